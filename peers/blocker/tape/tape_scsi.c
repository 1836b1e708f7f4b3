/* SPDX-License-Identifier: Apache-2.0 */
#include "peers/blocker/tape/tape_scsi.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* --- sense ------------------------------------------------------------------------------------ */

enum { NO_SENSE, RECOVERED, NOT_READY, MEDIUM, HARDWARE, ILLEGAL, ATTENTION, PROTECT, BLANK };
enum { ABORTED = 0xb, OVERFLOW = 0xd };

/* What an additional code says, where it says more than the key; SPC-4, annex D. */
static const struct {
	uint8_t asc, ascq;
	const char *text;
} codes[] = {
	{0x04, 0x01, "the drive is becoming ready"},
	{0x0c, 0x00, "the drive could not write here"},
	{0x11, 0x00, "the drive could not read here"},
	{0x14, 0x00, "the drive does not find that place"},
	{0x15, 0x01, "the medium's mechanism has failed"},
	{0x27, 0x00, "the cartridge is write-protected"},
	{0x28, 0x00, "another cartridge may have been loaded"},
	{0x29, 0x00, "the drive was reset"},
	{0x30, 0x00, "the drive does not take that kind of cartridge"},
	{0x30, 0x03, "a cleaning cartridge is in the drive"},
	{0x3a, 0x00, "no cartridge is in the drive"},
	{0x3b, 0x0d, "that slot has a cartridge already"},
	{0x3b, 0x0e, "that slot has no cartridge"},
	{0x44, 0x00, "the drive has an internal failure"},
	{0x53, 0x00, "the cartridge could not be loaded or unloaded"},
	{0x5d, 0x00, "the drive expects to fail soon"},
};

static const struct {
	const char *text;
	int error;
} keys[16] = {
	[NO_SENSE] = {"nothing was told", -EIO},
	[RECOVERED] = {"recovered", 0},
	[NOT_READY] = {"the drive is not ready", -EIO},
	[MEDIUM] = {"the medium is damaged", -EILSEQ},
	[HARDWARE] = {"the drive has failed", -EIO},
	[ILLEGAL] = {"the drive does not know that command", -EOPNOTSUPP},
	[ATTENTION] = {"the drive's state has changed", -ENOTCONN},
	[PROTECT] = {"the cartridge is write-protected", -EROFS},
	[BLANK] = {"nothing is written here", TAPE_END},
	[9] = {"the drive has a failure of its own", -EIO},
	[10] = {"a copy was aborted", -EIO},
	[ABORTED] = {"the drive has aborted the command", -ENOTCONN},
	[OVERFLOW] = {"the medium ends here", -ENOSPC},
};

bool tape_scsi_sense(struct tape_sense *sense, const uint8_t *bytes, size_t size)
{
	*sense = (struct tape_sense){0};
	if (size < 14 || (bytes[0] & 0x7e) != 0x70)
		return false;
	sense->key = bytes[2] & 0xf;
	sense->mark = bytes[2] & 0x80;
	sense->end = bytes[2] & 0x40;
	sense->length = bytes[2] & 0x20;
	sense->asc = bytes[12];
	sense->ascq = bytes[13];
	if (bytes[0] & 0x80)
		sense->information = (int32_t)((uint32_t)bytes[3] << 24 | (uint32_t)bytes[4] << 16 |
					       (uint32_t)bytes[5] << 8 | bytes[6]);
	return true;
}

int tape_scsi_result(const struct tape_sense *sense, char *why, size_t why_size)
{
	const char *text = keys[sense->key].text ? keys[sense->key].text : "unknown";
	if (sense->key <= RECOVERED && sense->mark)
		return TAPE_MARK;
	if (sense->key <= RECOVERED && sense->asc == 0 && sense->ascq == 5)
		return TAPE_END;
	if (sense->key <= RECOVERED) /* early warning, a block's length */
		return 0;
	for (size_t i = 0; i < sizeof(codes) / sizeof(*codes); i++)
		if (codes[i].asc == sense->asc && codes[i].ascq == sense->ascq)
			text = codes[i].text;
	snprintf(why, why_size, "%s (sense %x/%02x/%02x)", text, sense->key, sense->asc,
		sense->ascq);
	return keys[sense->key].text ? keys[sense->key].error : -EIO;
}

/* --- commands --------------------------------------------------------------------------------- */

void tape_scsi_close(struct tape_scsi *scsi)
{
	if (scsi->context)
		iscsi_destroy_context(scsi->context);
	scsi->context = NULL;
}

static int away(struct tape_drive *drive, struct tape_scsi *scsi, const char *what)
{
	char said[200];
	snprintf(said, sizeof(said), "%.190s", iscsi_get_error(scsi->context));
	said[strcspn(said, "\n")] = 0;
	tape_scsi_close(scsi);
	return tape_drive_fail(drive, -ENOTCONN, "%s: %s", what, said);
}

int tape_scsi_open(struct tape_drive *drive, struct tape_scsi *scsi, const char *url)
{
	const struct tape_drive_options *options = drive->options;
	char name[256], host[128] = "";
	gethostname(host, sizeof(host) - 1);
	snprintf(name, sizeof(name), "iqn.2026-11.skerry:%s", host);
	scsi->context = iscsi_create_context(name);
	struct iscsi_url *at = scsi->context ? iscsi_parse_full_url(scsi->context, url) : NULL;
	if (!at) {
		tape_scsi_close(scsi);
		return tape_drive_fail(
			drive, -EINVAL, "'%s' is not iscsi://HOST[:PORT]/TARGET/LUN", url);
	}
	iscsi_set_targetname(scsi->context, at->target);
	iscsi_set_session_type(scsi->context, ISCSI_SESSION_NORMAL);
	iscsi_set_header_digest(scsi->context, ISCSI_HEADER_DIGEST_NONE_CRC32C);
	iscsi_set_noautoreconnect(scsi->context, 1);
	iscsi_set_timeout(scsi->context, (int)((options->timeout_ns + 999999999) / 1000000000));
	if (options->user && *options->user)
		iscsi_set_initiator_username_pwd(scsi->context, options->user, options->password);
	scsi->lun = at->lun;
	int error = iscsi_full_connect_sync(scsi->context, at->portal, at->lun)
			    ? away(drive, scsi, url)
			    : 0;
	iscsi_destroy_url(at);
	return error;
}

/* libiscsi gives the sense as it came, behind two bytes of its length. */
static int check(struct tape_drive *drive, struct tape_scsi *scsi, const struct scsi_task *task)
{
	scsi->sense = (struct tape_sense){0};
	if (task->status == SCSI_STATUS_GOOD)
		return 0;
	if (task->status != SCSI_STATUS_CHECK_CONDITION)
		return tape_drive_fail(drive, task->status < 0x100 ? -EIO : -ENOTCONN,
			"the drive answers with status 0x%x", (unsigned)task->status);
	if (task->datain.size < 2 || !tape_scsi_sense(&scsi->sense, task->datain.data + 2,
					     (size_t)task->datain.size - 2))
		scsi->sense = (struct tape_sense){.key = (uint8_t)task->sense.key,
			.asc = (uint8_t)(task->sense.ascq >> 8),
			.ascq = (uint8_t)task->sense.ascq};
	return tape_scsi_result(&scsi->sense, drive->why, sizeof(drive->why));
}

int tape_scsi_run(struct tape_drive *drive, struct tape_scsi *scsi, const uint8_t *command,
	int command_size, int direction, void *data, size_t size)
{
	unsigned char bytes[16];
	struct iscsi_data out = {.data = data, .size = size};
	if (!scsi->context)
		return tape_drive_fail(drive, -ENOTCONN, "the drive is away");
	memcpy(bytes, command, (size_t)command_size);
	struct scsi_task *task = scsi_create_task(command_size, bytes, direction, (int)size);
	if (!task || (direction == SCSI_XFER_READ &&
			     scsi_task_add_data_in_buffer(task, (int)size, data))) {
		free(task);
		return tape_drive_fail(drive, -ENOMEM, "out of memory");
	}
	if (!iscsi_scsi_command_sync(
		    scsi->context, scsi->lun, task, direction == SCSI_XFER_WRITE ? &out : NULL)) {
		scsi_free_scsi_task(task);
		return away(drive, scsi, "the drive does not answer");
	}
	int error = check(drive, scsi, task);
	scsi_free_scsi_task(task);
	return error;
}

int tape_scsi_ready(struct tape_drive *drive, struct tape_scsi *scsi)
{
	static const uint8_t test[6] = {0};
	uint64_t tries = drive->options->timeout_ns / 100000000 + 1;
	int error;
	while ((error = tape_scsi_run(drive, scsi, test, 6, SCSI_XFER_NONE, NULL, 0))) {
		bool soon = scsi->sense.key == NOT_READY && scsi->sense.asc == 4;
		if (!scsi->context || !(soon || scsi->sense.key == ATTENTION) || !--tries)
			break;
		if (soon)
			nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL);
	}
	return error;
}

/* --- the changer ------------------------------------------------------------------------------ */

enum { ELEMENT_SLOT = 2, ELEMENT_DRIVE = 4 };
#define STATUS_ROOM (1u << 16)

struct element {
	unsigned address;
	bool full;
	unsigned source; /* where it came from; 0: not told */
	char barcode[40];
};

static unsigned number16(const uint8_t *at) { return (unsigned)at[0] << 8 | at[1]; }

static void take_element(struct element *to, const uint8_t *from, size_t size)
{
	*to = (struct element){.address = number16(from), .full = from[2] & 1};
	to->source = from[9] & 0x80 ? number16(from + 10) : 0;
	if (size >= 48 && to->full)
		snprintf(to->barcode, sizeof(to->barcode), "%.32s", (const char *)from + 12);
	for (size_t end = strlen(to->barcode); end && to->barcode[end - 1] == ' '; end--)
		to->barcode[end - 1] = 0;
}

/* One type at a time, and by its count: that is what tgt answers rightly. */
static int elements(struct tape_drive *drive, struct tape_scsi *changer, unsigned type,
	struct element *found, unsigned room)
{
	const uint8_t command[12] = {0xb8, (uint8_t)(0x10 | type), 0, 0, (uint8_t)(room >> 8),
		(uint8_t)room, 0, 0, 0xff, 0};
	uint8_t *answer = calloc(1, STATUS_ROOM);
	unsigned taken = 0;
	if (!answer)
		return tape_drive_fail(drive, -ENOMEM, "out of memory");
	int error = tape_scsi_run(
		drive, changer, command, 12, SCSI_XFER_READ, answer, STATUS_ROOM - 256);
	unsigned count = number16(answer + 2), size = number16(answer + 10);
	for (size_t at = 16;
		!error && size >= 12 && taken < count && taken < room && at + size <= STATUS_ROOM;
		at += size)
		take_element(&found[taken++], answer + at, size);
	free(answer);
	return error < 0 ? error : (int)taken;
}

static int survey(struct tape_drive *drive, struct tape_scsi *changer, struct element *slots,
	struct element *of_drive)
{
	*of_drive = (struct element){0};
	int count = elements(drive, changer, ELEMENT_SLOT, slots, TAPE_SLOTS_MAX);
	int drives = count < 0 ? count : elements(drive, changer, ELEMENT_DRIVE, of_drive, 1);
	if (drives == 0)
		return tape_drive_fail(drive, -ENODEV, "the changer has no drive");
	if (drives < 0 || !of_drive->full)
		return drives < 0 ? drives : count;
	/* whose it is, where that is not told: a slot that is empty */
	for (int i = 0; i < count && !of_drive->source; i++)
		if (!slots[i].full)
			of_drive->source = slots[i].address;
	return count;
}

int tape_scsi_slots(struct tape_drive *drive, struct tape_scsi *changer, struct tape_slot *slots,
	unsigned *loaded)
{
	struct element *found = calloc(TAPE_SLOTS_MAX, sizeof(*found)), in_drive;
	int count = found ? survey(drive, changer, found, &in_drive)
			  : tape_drive_fail(drive, -ENOMEM, "out of memory");
	for (int i = 0; i < count; i++) {
		bool here = in_drive.full && in_drive.source == found[i].address;
		const struct element *cartridge = here ? &in_drive : &found[i];
		slots[i] = (struct tape_slot){.number = found[i].address, .full = cartridge->full};
		memcpy(slots[i].barcode, cartridge->barcode, sizeof(slots[i].barcode));
	}
	*loaded = count > 0 && in_drive.full ? in_drive.source : 0;
	free(found);
	return count;
}

static int move(struct tape_drive *drive, struct tape_scsi *changer, unsigned from, unsigned to)
{
	const uint8_t command[12] = {0xa5, 0, 0, 0, (uint8_t)(from >> 8), (uint8_t)from,
		(uint8_t)(to >> 8), (uint8_t)to};
	return tape_scsi_run(drive, changer, command, 12, SCSI_XFER_NONE, NULL, 0);
}

int tape_scsi_load(struct tape_drive *drive, struct tape_scsi *changer, unsigned slot, bool *moved)
{
	struct element *found = calloc(TAPE_SLOTS_MAX, sizeof(*found)), in_drive;
	int count = found ? survey(drive, changer, found, &in_drive)
			  : tape_drive_fail(drive, -ENOMEM, "out of memory");
	free(found);
	*moved = count >= 0 && !(in_drive.full && in_drive.source == slot);
	if (count < 0 || !*moved)
		return count < 0 ? count : 0;
	int error = in_drive.full ? move(drive, changer, in_drive.address, in_drive.source) : 0;
	return error ? error : move(drive, changer, slot, in_drive.address);
}
