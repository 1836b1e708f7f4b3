/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A drive behind an iSCSI target, with or without a changer: SSC-3's commands. What a drive cannot
 * do is found out when a cartridge is loaded: tgt's knows neither LOCATE nor READ POSITION.
 */
#include <stdlib.h>
#include <string.h>

#include "peers/blocker/tape/tape_scsi.h"

struct remote {
	struct tape_scsi tape, changer;
};

static int run(struct tape_drive *drive, const uint8_t *command, int size)
{
	struct remote *remote = drive->state;
	return tape_scsi_run(drive, &remote->tape, command, size, SCSI_XFER_NONE, NULL, 0);
}

/* Commands of six bytes with a count of 24 bits. */
#define COUNTED(code, flags, count) \
	{ \
		(code), (flags), (uint8_t)((count) >> 16), (uint8_t)((count) >> 8), \
			(uint8_t)(count), 0 \
	}

static int remote_rewind(struct tape_drive *drive)
{
	static const uint8_t command[6] = {0x01};
	return run(drive, command, 6);
}

static int remote_locate(struct tape_drive *drive, uint64_t position)
{
	const uint8_t command[10] = {0x2b, 0, 0, (uint8_t)(position >> 24),
		(uint8_t)(position >> 16), (uint8_t)(position >> 8), (uint8_t)position};
	return position > UINT32_MAX ? tape_drive_fail(drive, -EOPNOTSUPP, "too far")
				     : run(drive, command, 10);
}

static int remote_tell(struct tape_drive *drive, uint64_t *position)
{
	static const uint8_t command[10] = {0x34};
	struct remote *remote = drive->state;
	uint8_t answer[20] = {0};
	int error = tape_scsi_run(
		drive, &remote->tape, command, 10, SCSI_XFER_READ, answer, sizeof(answer));
	*position = (uint64_t)answer[4] << 24 | (uint64_t)answer[5] << 16 |
		    (uint64_t)answer[6] << 8 | answer[7];
	return error ? error : answer[0] & 4 ? -EOPNOTSUPP : 0;
}

static void remote_close(struct tape_drive *drive)
{
	struct remote *remote = drive->state;
	if (!remote)
		return;
	tape_scsi_close(&remote->tape);
	tape_scsi_close(&remote->changer);
	free(remote);
	drive->state = NULL;
}

static int remote_open(struct tape_drive *drive)
{
	static const uint8_t inquiry[6] = {0x12, 0, 0, 0, 96};
	uint8_t answer[96] = {0};
	struct remote *remote = drive->state = calloc(1, sizeof(*remote));
	if (!remote)
		return tape_drive_fail(drive, -ENOMEM, "out of memory");
	int error = tape_scsi_open(drive, &remote->tape, drive->options->drive);
	if (!error && drive->options->changer) {
		error = tape_scsi_open(drive, &remote->changer, drive->options->changer);
		error = error ? error : tape_scsi_ready(drive, &remote->changer);
	}
	error = error ? error
		      : tape_scsi_run(drive, &remote->tape, inquiry, 6, SCSI_XFER_READ, answer,
				sizeof(answer));
	if (!error && (answer[0] & 0x1f) != 1)
		error = tape_drive_fail(drive, -ENODEV,
			"'%s' is a device of type %u, no tape drive", drive->options->drive,
			answer[0] & 0x1fu);
	return error;
}

static int remote_slots(struct tape_drive *drive, struct tape_slot *slots)
{
	struct remote *remote = drive->state;
	unsigned loaded;
	if (drive->options->changer)
		return tape_scsi_slots(drive, &remote->changer, slots, &loaded);
	slots[0] = (struct tape_slot){.number = 1, .full = true};
	return 1;
}

/* Blocks of any length. */
static int set_variable(struct tape_drive *drive)
{
	static const uint8_t command[6] = {0x15, 0x10, 0, 0, 12};
	uint8_t mode[12] = {[2] = 0x10, [3] = 8};
	struct remote *remote = drive->state;
	return tape_scsi_run(drive, &remote->tape, command, 6, SCSI_XFER_WRITE, mode, sizeof(mode));
}

static int remote_load(struct tape_drive *drive, unsigned slot)
{
	struct remote *remote = drive->state;
	uint64_t position = 1;
	bool moved;
	int error =
		drive->options->changer ? tape_scsi_load(drive, &remote->changer, slot, &moved) : 0;
	error = error ? error : tape_scsi_ready(drive, &remote->tape);
	error = error ? error : remote_rewind(drive);
	error = error ? error : set_variable(drive);
	if (error)
		return error;
	drive->locates = !remote_locate(drive, 0) && !remote_tell(drive, &position) && !position;
	return remote->tape.context ? 0 : -ENOTCONN;
}

static int remote_read(struct tape_drive *drive, void *to, size_t room, size_t *got)
{
	const uint8_t command[6] = COUNTED(0x08, 0, room);
	struct remote *remote = drive->state;
	int error = tape_scsi_run(drive, &remote->tape, command, 6, SCSI_XFER_READ, to, room);
	/* the sense tells how much shorter the block is; tgt's residual is its length instead */
	int32_t shorter = remote->tape.sense.length ? remote->tape.sense.information : 0;
	if (!error && (shorter < 0 || (size_t)shorter > room))
		return tape_drive_fail(drive, -EILSEQ, "a block of %zu bytes and more", room);
	*got = room - (size_t)shorter;
	return error;
}

static int remote_write(struct tape_drive *drive, const void *from, size_t size, bool *warning)
{
	const uint8_t command[6] = COUNTED(0x0a, 0, size);
	struct remote *remote = drive->state;
	int error = tape_scsi_run(
		drive, &remote->tape, command, 6, SCSI_XFER_WRITE, (void *)(uintptr_t)from, size);
	*warning = remote->tape.sense.end;
	return error;
}

static int remote_mark(struct tape_drive *drive, unsigned count)
{
	const uint8_t command[6] = COUNTED(0x10, 0, count);
	int error = run(drive, command, 6);
	return error > 0 ? 0 : error;
}

static int remote_skip_blocks(struct tape_drive *drive, unsigned count)
{
	const uint8_t command[6] = COUNTED(0x11, 0, count);
	return run(drive, command, 6);
}

static int remote_skip_files(struct tape_drive *drive, unsigned count)
{
	const uint8_t command[6] = COUNTED(0x11, 1, count);
	return run(drive, command, 6);
}

const struct tape_drive_ops tape_iscsi = {
	.name = "iscsi",
	.open = remote_open,
	.close = remote_close,
	.slots = remote_slots,
	.load = remote_load,
	.read = remote_read,
	.write = remote_write,
	.mark = remote_mark,
	.rewind = remote_rewind,
	.skip_blocks = remote_skip_blocks,
	.skip_files = remote_skip_files,
	.locate = remote_locate,
	.tell = remote_tell,
};
