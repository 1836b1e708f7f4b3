/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Cartridges as files of a folder, each *.tap one of them, in the format that SIMH's documentation
 * "Magtape Representation and Handling" describes: a block is its length, its bytes, made even, and
 * its length again; a length of 0 is a filemark; the file's end is the end of what is written.
 */
#include <base/path.h>
#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include "peers/blocker/tape/tape_drive.h"

#define WARNING_BEFORE (8u << 20) /* or an eighth of the cartridge */

struct part {
	uint64_t at;
	uint32_t size; /* 0: a filemark */
};

struct image {
	char *names[TAPE_SLOTS_MAX]; /* in order: slot 1 is the first */
	int count;
	int fd;
	bool protected;
	struct part *parts;
	size_t end, room; /* how many there are */
	uint64_t bytes;	  /* up to the end */
	size_t here;	  /* the head */
};

static int failed(struct tape_drive *drive, const char *what, const char *name)
{
	int error = errno;
	/* -ENOSPC is the end of a cartridge */
	return tape_drive_fail(drive, error == ENOSPC || error == EDQUOT ? -EDQUOT : -EIO,
		"%s of %.400s: %s", what, name, strerror(error));
}

/* --- the folder ------------------------------------------------------------------------------- */

static int is_cartridge(const struct dirent *entry)
{
	size_t length = strlen(entry->d_name);
	return length > 4 && strcmp(entry->d_name + length - 4, ".tap") == 0;
}

static int image_open(struct tape_drive *drive)
{
	struct image *image = drive->state = calloc(1, sizeof(*image));
	struct dirent **found = NULL;
	if (!image)
		return tape_drive_fail(drive, -ENOMEM, "out of memory");
	image->fd = -1;
	int count = scandir(drive->options->drive, &found, is_cartridge, alphasort);
	if (count < 0)
		return tape_drive_fail(
			drive, -errno, "'%s': %s", drive->options->drive, strerror(errno));
	for (int i = 0; i < count; i++) {
		if (i < (int)TAPE_SLOTS_MAX)
			image->names[image->count++] = strdup(found[i]->d_name);
		free(found[i]);
	}
	free(found);
	if (image->count)
		return 0;
	return tape_drive_fail(drive, -ENOENT,
		"no cartridge in '%s': an empty file whose name ends with .tap is a new one",
		drive->options->drive);
}

static void unload(struct image *image)
{
	if (image->fd >= 0)
		close(image->fd);
	free(image->parts);
	image->fd = -1;
	image->parts = NULL;
	image->end = image->room = image->here = 0;
	image->bytes = 0;
}

static void image_close(struct tape_drive *drive)
{
	struct image *image = drive->state;
	if (!image)
		return;
	unload(image);
	for (int i = 0; i < image->count; i++)
		free(image->names[i]);
	free(image);
	drive->state = NULL;
}

static int image_slots(struct tape_drive *drive, struct tape_slot *slots)
{
	const struct image *image = drive->state;
	for (int i = 0; i < image->count; i++) {
		slots[i] = (struct tape_slot){.number = (unsigned)i + 1, .full = true};
		snprintf(slots[i].barcode, sizeof(slots[i].barcode), "%.*s",
			(int)(strlen(image->names[i]) - 4), image->names[i]);
	}
	return image->count;
}

/* --- a cartridge ------------------------------------------------------------------------------ */

static bool note(struct image *image, uint64_t at, uint32_t size)
{
	if (image->end == image->room) {
		size_t room = image->room ? 2 * image->room : 1024;
		struct part *parts = realloc(image->parts, room * sizeof(*parts));
		if (!parts)
			return false;
		image->parts = parts;
		image->room = room;
	}
	image->parts[image->end++] = (struct part){at, size};
	return true;
}

static uint64_t length_of(uint32_t size) { return size ? 8 + ((uint64_t)size + 1) / 2 * 2 : 4; }

/* A block that was not written to its end is the end. */
static int learn(struct tape_drive *drive, struct image *image)
{
	uint32_t size, again;
	for (;;) {
		if (pread(image->fd, &size, 4, (off_t)image->bytes) != 4 || size > 1u << 24)
			return 0;
		uint64_t length = length_of(size);
		if (size && (pread(image->fd, &again, 4, (off_t)(image->bytes + length - 4)) != 4 ||
				    again != size))
			return 0;
		if (!note(image, image->bytes, size))
			return tape_drive_fail(drive, -ENOMEM, "out of memory");
		image->bytes += length;
	}
}

static int image_load(struct tape_drive *drive, unsigned slot)
{
	struct image *image = drive->state;
	struct stat stat;
	char path[PATH_LENGTH_MAX];
	unload(image);
	if (slot < 1 || slot > (unsigned)image->count)
		return tape_drive_fail(drive, -ENOENT, "there is no slot %u", slot);
	snprintf(path, sizeof(path), "%s/%s", drive->options->drive, image->names[slot - 1]);
	image->fd = open(path, O_RDWR | O_CLOEXEC);
	if (image->fd < 0 && (errno == EROFS || errno == EACCES))
		image->fd = open(path, O_RDONLY | O_CLOEXEC);
	if (image->fd < 0 || fstat(image->fd, &stat))
		return failed(drive, "opening", path);
	if (flock(image->fd, LOCK_EX | LOCK_NB))
		return tape_drive_fail(drive, -EBUSY, "another process uses %.400s", path);
	image->protected =
		!(stat.st_mode & 0222) || (fcntl(image->fd, F_GETFL) & O_ACCMODE) == O_RDONLY;
	drive->locates = true;
	return learn(drive, image);
}

static int image_read(struct tape_drive *drive, void *to, size_t room, size_t *got)
{
	struct image *image = drive->state;
	if (image->here == image->end)
		return TAPE_END;
	struct part part = image->parts[image->here];
	if (part.size > room)
		return tape_drive_fail(
			drive, -EILSEQ, "a block of %u bytes is none of ours", part.size);
	image->here++;
	*got = part.size;
	if (!part.size)
		return TAPE_MARK;
	if (pread(image->fd, to, part.size, (off_t)part.at + 4) != (ssize_t)part.size)
		return tape_drive_fail(drive, -EILSEQ, "a block cannot be read");
	return 0;
}

/* What comes behind the head is gone. */
static int cut(struct tape_drive *drive, struct image *image)
{
	if (image->here < image->end) {
		image->bytes = image->parts[image->here].at;
		image->end = image->here;
	}
	if (image->protected)
		return tape_drive_fail(drive, -EROFS, "the cartridge is write-protected");
	return ftruncate(image->fd, (off_t)image->bytes) ? failed(drive, "a write", "image") : 0;
}

static int append(struct tape_drive *drive, struct image *image, const void *from, uint32_t size)
{
	uint32_t pad = size & 1;
	struct iovec iov[] = {{&size, 4}, {(void *)(uintptr_t)from, size}, {"", pad}, {&size, 4}};
	uint64_t length = length_of(size);
	int error = cut(drive, image);
	if (error)
		return error;
	if (image->bytes + length > drive->options->capacity)
		return tape_drive_fail(drive, -ENOSPC, "the cartridge is full");
	if (pwritev(image->fd, iov, size ? 4 : 1, (off_t)image->bytes) != (ssize_t)length)
		return failed(drive, "a write", "image");
	if (!note(image, image->bytes, size))
		return tape_drive_fail(drive, -ENOMEM, "out of memory");
	image->bytes += length;
	image->here = image->end;
	return 0;
}

static int image_write(struct tape_drive *drive, const void *from, size_t size, bool *warning)
{
	struct image *image = drive->state;
	uint64_t capacity = drive->options->capacity, before = capacity / 8;
	if (before > WARNING_BEFORE)
		before = WARNING_BEFORE;
	int error = append(drive, image, from, (uint32_t)size);
	*warning = image->bytes > capacity - before;
	return error;
}

static int image_mark(struct tape_drive *drive, unsigned count)
{
	struct image *image = drive->state;
	int error = 0;
	while (count-- && !error)
		error = append(drive, image, NULL, 0);
	return error ? error : fdatasync(image->fd) ? failed(drive, "a sync", "image") : 0;
}

/* --- where the head is ------------------------------------------------------------------------ */

static int image_rewind(struct tape_drive *drive)
{
	struct image *image = drive->state;
	image->here = 0;
	return 0;
}

static int skip(struct image *image, unsigned blocks, unsigned files)
{
	while (blocks || files) {
		if (image->here == image->end)
			return TAPE_END;
		bool mark = !image->parts[image->here++].size;
		if (mark && !files)
			return TAPE_MARK;
		blocks -= !mark && !files;
		files -= mark;
	}
	return 0;
}

static int image_skip_blocks(struct tape_drive *drive, unsigned count)
{
	return skip(drive->state, count, 0);
}

static int image_skip_files(struct tape_drive *drive, unsigned count)
{
	return skip(drive->state, 0, count);
}

static int image_locate(struct tape_drive *drive, uint64_t position)
{
	struct image *image = drive->state;
	image->here = position < image->end ? position : image->end;
	return position > image->end ? TAPE_END : 0;
}

static int image_tell(struct tape_drive *drive, uint64_t *position)
{
	const struct image *image = drive->state;
	*position = image->here;
	return 0;
}

const struct tape_drive_ops tape_image = {
	.name = "image",
	.open = image_open,
	.close = image_close,
	.slots = image_slots,
	.load = image_load,
	.read = image_read,
	.write = image_write,
	.mark = image_mark,
	.rewind = image_rewind,
	.skip_blocks = image_skip_blocks,
	.skip_files = image_skip_files,
	.locate = image_locate,
	.tell = image_tell,
};
