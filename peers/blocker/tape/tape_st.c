/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A drive of this machine: Linux's st driver, by what its documentation (st.rst) and <sys/mtio.h>
 * say. The device has to be one that does not rewind when it is closed, /dev/nst0. Only one
 * cartridge: who changes it is not here.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mtio.h>
#include <unistd.h>

#include "peers/blocker/tape/tape_drive.h"

struct device {
	int fd;
};

static int failed(struct tape_drive *drive, const char *what)
{
	int error = errno;
	int answer = error == ENOSPC || error == EROFS ? -error
		     : error == EACCES		       ? -EROFS
		     : error == ENOMEM		       ? -EILSEQ
						       : -EIO;
	return tape_drive_fail(drive, answer, "%s: %s%s", what, strerror(error),
		error == EACCES ? " (the cartridge is write-protected?)" : "");
}

static int operate(struct tape_drive *drive, short what, int count, const char *name)
{
	const struct device *device = drive->state;
	struct mtop operation = {.mt_op = what, .mt_count = count};
	return ioctl(device->fd, MTIOCTOP, &operation) ? failed(drive, name) : 0;
}

/* GMT_* of the drive's state; 0 when it is not told. */
static long state(const struct tape_drive *drive)
{
	const struct device *device = drive->state;
	struct mtget got = {0};
	return ioctl(device->fd, MTIOCGET, &got) ? 0 : got.mt_gstat;
}

static int device_open(struct tape_drive *drive)
{
	struct device *device = drive->state = calloc(1, sizeof(*device));
	if (!device)
		return tape_drive_fail(drive, -ENOMEM, "out of memory");
	device->fd = open(drive->options->drive, O_RDWR | O_CLOEXEC);
	if (device->fd < 0 && (errno == EROFS || errno == EACCES))
		device->fd = open(drive->options->drive, O_RDONLY | O_CLOEXEC);
	return device->fd < 0 ? failed(drive, drive->options->drive) : 0;
}

static void device_close(struct tape_drive *drive)
{
	struct device *device = drive->state;
	if (device && device->fd >= 0)
		close(device->fd);
	free(device);
	drive->state = NULL;
}

static int device_slots(struct tape_drive *drive, struct tape_slot *slots)
{
	(void)drive;
	slots[0] = (struct tape_slot){.number = 1, .full = true};
	return 1;
}

static int device_tell(struct tape_drive *drive, uint64_t *position)
{
	const struct device *device = drive->state;
	struct mtpos at = {0};
	if (ioctl(device->fd, MTIOCPOS, &at))
		return failed(drive, "the position");
	*position = (uint64_t)at.mt_blkno;
	return 0;
}

static int device_load(struct tape_drive *drive, unsigned slot)
{
	uint64_t position = 1;
	(void)slot;
	int error = operate(drive, MTREW, 1, "rewinding");
	error = error ? error : operate(drive, MTSETBLK, 0, "blocks of any length");
	drive->locates = !error && !device_tell(drive, &position) && !position;
	return error;
}

static int device_read(struct tape_drive *drive, void *to, size_t room, size_t *got)
{
	const struct device *device = drive->state;
	ssize_t size = read(device->fd, to, room);
	*got = size > 0 ? (size_t)size : 0;
	if (size > 0)
		return 0;
	if (GMT_EOD(state(drive)))
		return TAPE_END;
	return size ? failed(drive, "reading") : TAPE_MARK;
}

/* st says ENOSPC once at the early warning, and has written nothing then; the next one is taken. */
static int device_write(struct tape_drive *drive, const void *from, size_t size, bool *warning)
{
	const struct device *device = drive->state;
	ssize_t done = write(device->fd, from, size);
	*warning = false;
	if (done < 0 && errno == ENOSPC) {
		*warning = true;
		done = write(device->fd, from, size);
	}
	if (done >= 0 && (size_t)done < size)
		return tape_drive_fail(drive, -EIO, "a block was written in part");
	return done < 0 ? failed(drive, "writing") : 0;
}

static int device_mark(struct tape_drive *drive, unsigned count)
{
	return operate(drive, MTWEOF, (int)count, "a filemark");
}

static int device_rewind(struct tape_drive *drive) { return operate(drive, MTREW, 1, "rewinding"); }

static int skip(struct tape_drive *drive, short what, unsigned count)
{
	int error = count ? operate(drive, what, (int)count, "winding") : 0;
	if (!error)
		return 0;
	return GMT_EOD(state(drive)) ? TAPE_END : GMT_EOF(state(drive)) ? TAPE_MARK : error;
}

static int device_skip_blocks(struct tape_drive *drive, unsigned count)
{
	return skip(drive, MTFSR, count);
}

static int device_skip_files(struct tape_drive *drive, unsigned count)
{
	return skip(drive, MTFSF, count);
}

static int device_locate(struct tape_drive *drive, uint64_t position)
{
	if (position > INT32_MAX)
		return tape_drive_fail(drive, -EOPNOTSUPP, "too far");
	return operate(drive, MTSEEK, (int)position, "winding");
}

const struct tape_drive_ops tape_st = {
	.name = "st",
	.open = device_open,
	.close = device_close,
	.slots = device_slots,
	.load = device_load,
	.read = device_read,
	.write = device_write,
	.mark = device_mark,
	.rewind = device_rewind,
	.skip_blocks = device_skip_blocks,
	.skip_files = device_skip_files,
	.locate = device_locate,
	.tell = device_tell,
};
