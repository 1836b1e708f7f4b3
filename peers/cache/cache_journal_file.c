/* SPDX-License-Identifier: Apache-2.0 */
/* The journal's file: made, recognised, locked, and its first blocks. */
#include <base/crc32c.h>
#include <base/path.h>
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "peers/cache/cache_journal_log.h"

int journal_file_refuse(const struct journal_why *why, int error, const char *format, ...)
{
	int used = snprintf(why->text, why->size, "journal '%s' ", why->path);
	va_list args;
	va_start(args, format);
	if (used >= 0 && (size_t)used < why->size)
		vsnprintf(why->text + used, why->size - (size_t)used, format, args);
	va_end(args);
	return error;
}

/* What lies behind the end of the file is zeros. */
int journal_file_read(int fd, void *out, size_t size, uint64_t offset)
{
	size_t done = 0;
	while (done < size) {
		ssize_t got = pread(fd, (uint8_t *)out + done, size - done, (off_t)(offset + done));
		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			return -errno;
		if (got == 0)
			break;
		done += (size_t)got;
	}
	memset((uint8_t *)out + done, 0, size - done);
	return 0;
}

/* --- the first blocks ---------------------------------------------------------------------- */

static uint32_t super_crc(const struct journal_super *super)
{
	struct journal_super copy = *super;
	copy.crc = 0;
	return crc32c(0, &copy, sizeof(copy));
}

/* The copy that was not written last, so that one of them is whole at every moment. */
static int super_write(struct journal_log *log, struct journal_super *super)
{
	super->sequence++;
	super->crc = super_crc(super);
	ssize_t put = pwrite(
		log->fd, super, sizeof(*super), (off_t)(super->sequence % 2 * JOURNAL_BLOCK));
	if (put != (ssize_t)sizeof(*super))
		return put < 0 ? -errno : -EIO;
	if (fdatasync(log->fd))
		return -errno;
	log->super = *super;
	return 0;
}

static bool super_is_whole(const struct journal_super *super)
{
	return memcmp(super->magic, JOURNAL_MAGIC, sizeof(super->magic)) == 0 &&
	       super->crc == super_crc(super);
}

static bool super_makes_sense(const struct journal_super *super)
{
	return super->size >= CACHE_JOURNAL_SIZE_MIN && super->size % JOURNAL_BLOCK == 0 &&
	       super->size <= (uint64_t)INT64_MAX && super->tail < super->size - JOURNAL_RING_AT &&
	       super->tail % JOURNAL_BLOCK == 0 && memchr(super->owner, 0, sizeof(super->owner));
}

static int super_check(
	const struct journal_super *super, const char *owner, const struct journal_why *why)
{
	if (super->version != JOURNAL_VERSION)
		return journal_file_refuse(why, -EPROTO,
			"has format version %u, this program knows %u; start the program that "
			"wrote it and drain the cache, or name another file",
			super->version, JOURNAL_VERSION);
	if (!super_makes_sense(super))
		return journal_file_refuse(why, -EILSEQ,
			"is damaged in its first blocks; restore it, or move it away and accept "
			"the loss of what only it had");
	if (strcmp(super->owner, owner) != 0)
		return journal_file_refuse(why, -ESTALE,
			"belongs to the cache '%s', this is '%s'; give each cache a file of its "
			"own",
			super->owner, owner);
	return 0;
}

static int super_read(struct journal_log *log, const char *owner, const struct journal_why *why)
{
	struct journal_super super[2];
	int error = journal_file_read(log->fd, super, sizeof(super), 0);
	if (error)
		return journal_file_refuse(why, error, "cannot be read: %s", strerror(-error));
	bool whole[2] = {super_is_whole(&super[0]), super_is_whole(&super[1])};
	bool ours = memcmp(super[0].magic, JOURNAL_MAGIC, sizeof(super[0].magic)) == 0 ||
		    memcmp(super[1].magic, JOURNAL_MAGIC, sizeof(super[1].magic)) == 0;
	if (!ours)
		return journal_file_refuse(why, -EILSEQ,
			"is not a journal; name another file, or one that does not exist yet");
	if (!whole[0] && !whole[1])
		return journal_file_refuse(why, -EILSEQ,
			"is damaged in its first blocks; restore it, or move it away and accept "
			"the loss of what only it had");
	unsigned pick = !whole[0] || (whole[1] && super[1].sequence > super[0].sequence);
	log->super = super[pick];
	return super_check(&log->super, owner, why);
}

/* --- making it ----------------------------------------------------------------------------- */

static int sync_folder(const char *path)
{
	char *copy = strdup(path);
	if (!copy)
		return -ENOMEM;
	int fd = open(dirname(copy), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	free(copy);
	if (fd < 0)
		return -errno;
	int error = fsync(fd) ? -errno : 0;
	close(fd);
	return error;
}

static int lock_file(int fd, const struct journal_why *why)
{
	struct stat about;
	if (fstat(fd, &about))
		return journal_file_refuse(why, -errno, "cannot be opened: %s", strerror(errno));
	if (!S_ISREG(about.st_mode))
		return journal_file_refuse(
			why, -EINVAL, "is not a file; name a file on a local disk");
	if (flock(fd, LOCK_EX | LOCK_NB) == 0)
		return 0;
	return journal_file_refuse(why, errno == EWOULDBLOCK ? -EBUSY : -errno,
		"is in use by another process; give each cache a file of its own");
}

static int fill_new(struct journal_log *log, uint64_t size, const char *owner)
{
	struct journal_super super = {.version = JOURNAL_VERSION, .size = size, .tail_lsn = 1};
	memcpy(super.magic, JOURNAL_MAGIC, sizeof(super.magic));
	memcpy(super.owner, owner, strlen(owner));
	if (getrandom(super.identity, sizeof(super.identity), 0) != sizeof(super.identity))
		return -EIO;
	if (ftruncate(log->fd, 0))
		return -errno;
	int error = -posix_fallocate(log->fd, 0, (off_t)size);
	error = error ? error : super_write(log, &super);
	return error ? error : super_write(log, &super);
}

/* Under another name first: a file of that name is a journal, whole. */
static int make(
	struct journal_log *log, uint64_t size, const char *owner, const struct journal_why *why)
{
	char *path = NULL;
	if (asprintf(&path, "%s.new", why->path) < 0)
		return journal_file_refuse(why, -ENOMEM, "cannot be made: out of memory");
	log->fd = path_open(path, O_RDWR | O_CREAT, 0600);
	int error = log->fd < 0 ? journal_file_refuse(
					  why, -errno, "cannot be made: %s", strerror(errno))
				: lock_file(log->fd, why);
	if (error) {
		free(path);
		return error;
	}
	error = fill_new(log, size, owner);
	if (!error && rename(path, why->path))
		error = -errno;
	error = error ? error : sync_folder(why->path);
	if (error)
		unlink(path);
	free(path);
	return error ? journal_file_refuse(why, error, "cannot be made, with %llu MiB: %s",
			       (unsigned long long)(size >> 20), strerror(-error))
		     : 0;
}

/* --- opening it ---------------------------------------------------------------------------- */

static void shape(struct journal_log *log)
{
	memcpy(log->identity, log->super.identity, sizeof(log->identity));
	log->ring = log->super.size - JOURNAL_RING_AT;
	log->reserve = log->ring / 16 / JOURNAL_BLOCK * JOURNAL_BLOCK;
	log->head = (struct journal_at){.offset = log->super.tail, .lsn = log->super.tail_lsn};
	log->begin = log->stale = log->head;
}

static int memory(struct journal_log *log)
{
	free(log->spans);
	log->spans = calloc(log->ring / JOURNAL_BLOCK, sizeof(*log->spans));
	if (!log->stage)
		log->stage = malloc(JOURNAL_RECORD_MAX);
	return log->spans && log->stage ? 0 : -ENOMEM;
}

int journal_file_open(struct journal_log *log, const struct cache_journal_config *config,
	const struct journal_why *why)
{
	uint64_t size = config->size ? config->size : CACHE_JOURNAL_SIZE_DEFAULT;
	size = size / JOURNAL_BLOCK * JOURNAL_BLOCK;
	if (size < CACHE_JOURNAL_SIZE_MIN)
		return journal_file_refuse(
			why, -EINVAL, "must have at least %u MiB", CACHE_JOURNAL_SIZE_MIN >> 20);
	if (strlen(config->owner) >= CACHE_JOURNAL_OWNER_MAX)
		return journal_file_refuse(why, -ENAMETOOLONG,
			"cannot be made: its owner's name is "
			"too long");
	log->fd = path_open(config->path, O_RDWR, 0);
	int error = 0;
	if (log->fd >= 0)
		error = lock_file(log->fd, why);
	else if (errno == ENOENT)
		error = make(log, size, config->owner, why);
	else
		error = journal_file_refuse(why, -errno, "cannot be opened: %s", strerror(errno));
	error = error ? error : super_read(log, config->owner, why);
	if (!error) {
		shape(log);
		error = memory(log);
		if (error)
			journal_file_refuse(why, error, "cannot be opened: out of memory");
	}
	return error;
}

/* The file may have been cut: all of it is there again before anything is promised. */
int journal_file_start(struct journal_log *log)
{
	struct journal_super super = log->super;
	int error = -posix_fallocate(log->fd, 0, (off_t)super.size);
	if (error)
		return error;
	if (super.generation < log->known >> 24)
		super.generation = log->known >> 24;
	super.generation++;
	log->known = log->generation = super.generation << 24;
	error = super_write(log, &super);
	return error ? error : super_write(log, &super);
}

void journal_file_close(struct journal_log *log)
{
	if (log->fd >= 0)
		close(log->fd);
	free(log->spans);
	free(log->stage);
	log->fd = -1;
}

/* --- later --------------------------------------------------------------------------------- */

int journal_file_checkpoint(struct journal_log *log)
{
	must(log->head.lsn == log->begin.lsn && log->staged == 0);
	struct journal_super super = log->super;
	super.tail = log->stale.offset;
	super.tail_lsn = log->stale.lsn;
	int error = super_write(log, &super);
	if (error)
		return error;
	log->head.used -= log->stale.used;
	log->begin = log->head;
	log->stale.used = 0;
	return 0;
}

int journal_file_resize(struct journal_log *log, uint64_t size)
{
	struct journal_super super = log->super;
	must(log->head.used == 0);
	if (size > super.size) {
		int error = -posix_fallocate(log->fd, 0, (off_t)size);
		if (error)
			return error;
	}
	super.tail = 0;
	super.tail_lsn = log->head.lsn;
	super.size = size;
	int error = super_write(log, &super);
	if (!error && ftruncate(log->fd, (off_t)size))
		error = -errno;
	shape(log);
	return error ? error : memory(log);
}
