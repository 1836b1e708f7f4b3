/* SPDX-License-Identifier: Apache-2.0 */
/* Records as files: read, compare, write anew, rename, and durable before anyone hears of it. */
#include <base/crash.h>
#include <base/crc32c.h>
#include <base/log.h>
#include <dirent.h>
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <peer/store.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "peers/blocker/file/file_disk.h"

#define ROOM "blocker_file"
#define TEMPORARY "tmp/record"
#define SPARE "spare"
#define SPARE_BYTES 8192 /* two blocks: the largest record */
#define FILE_RECORD_VERSION 1u

static const char record_magic[8] = {'S', 'K', 'R', 'E', 'C', 'O', 'R', 'D'};

/* A record's file: this, then the data. Little-endian. */
struct record_file {
	char magic[8];
	uint32_t format;
	uint32_t size; /* of the data */
	uint64_t version;
	uint64_t volume;
	uint32_t epoch;
	uint32_t object;
	uint32_t reserved; /* 0 */
	uint32_t checksum; /* crc32c of all that is before it, then of the data */
	uint8_t data[XSEG_RECORD_MAX];
};
#define RECORD_HEAD offsetof(struct record_file, data)
fixed(offsetof(struct record_file, data) == 48);

static void path_in(const char *folder, char path[FILE_PATH_SIZE], const struct xseg_key *key)
{
	snprintf(path, FILE_PATH_SIZE, "%s/%08x.%016llx.%08x", folder, key->epoch,
		(unsigned long long)key->volume, key->object);
}

static void path_of(char path[FILE_PATH_SIZE], const struct xseg_key *key)
{
	path_in("records", path, key);
}

static uint32_t checksum_of(const struct record_file *file, uint32_t size)
{
	uint32_t crc = crc32c(0, file, offsetof(struct record_file, checksum));
	return crc32c(crc, file->data, size);
}

static bool is_good(const struct record_file *file, size_t file_size, const struct xseg_key *key)
{
	if (file_size < RECORD_HEAD || memcmp(file->magic, record_magic, sizeof(record_magic)) != 0)
		return false;
	uint32_t size = le32toh(file->size);
	return size <= file_size - RECORD_HEAD && le32toh(file->format) == FILE_RECORD_VERSION &&
	       le64toh(file->volume) == key->volume && le32toh(file->epoch) == key->epoch &&
	       le32toh(file->object) == key->object && le64toh(file->version) != 0 &&
	       le32toh(file->checksum) == checksum_of(file, size);
}

/* 0, with version and size in native order; -ENOENT; -EILSEQ: damaged. */
static int read_record(
	struct file_store *store, const struct xseg_key *key, struct record_file *file)
{
	char path[FILE_PATH_SIZE];
	path_of(path, key);
	int fd = openat(store->root, path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	if (fd < 0 && errno == ENOENT)
		return file_store_alive(store) ? -ENOENT : -EIO;
	if (fd < 0)
		return -errno;
	ssize_t got = pread(fd, file, sizeof(*file), 0);
	int error = got < 0 ? -errno : 0;
	close(fd);
	if (!error && !is_good(file, (size_t)got, key)) {
		log_error(ROOM, "record '%s/%s' is damaged", store->dir, path);
		error = -EILSEQ;
	}
	if (error)
		return error;
	file->version = le64toh(file->version);
	file->size = le32toh(file->size);
	return 0;
}

static void fill(struct record_file *file, const struct job *job, uint64_t version)
{
	memcpy(file->magic, record_magic, sizeof(record_magic));
	file->format = htole32(FILE_RECORD_VERSION);
	file->size = htole32(job->length);
	file->version = htole64(version);
	file->volume = htole64(job->key.volume);
	file->epoch = htole32(job->key.epoch);
	file->object = htole32(job->key.object);
	file->reserved = 0;
	job_get_bytes(job, 0, file->data, job->length);
	file->checksum = htole32(checksum_of(file, job->length));
}

static int write_file(
	struct file_store *store, const char *path, const struct record_file *file, size_t size)
{
	int fd = openat(store->root, path, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0)
		return errno == ENOENT ? -EIO : -errno;
	/* it may be the spare one day, when there is no space to make it as large as that */
	(void)fallocate(fd, FALLOC_FL_KEEP_SIZE, 0, SPARE_BYTES);
	ssize_t put = pwrite(fd, file, size, 0);
	int error = put < 0 ? -errno : put != (ssize_t)size ? -ENOSPC : 0;
	if (!error && fsync(fd))
		error = -errno;
	close(fd);
	return error;
}

static int write_temporary(struct file_store *store, const struct record_file *file, size_t size)
{
	unlinkat(store->root, TEMPORARY, 0);
	int error = write_file(store, TEMPORARY, file, size);
	if (error)
		unlinkat(store->root, TEMPORARY, 0);
	return error;
}

/*
 * A file with room for any record, which changes places with one that is put anew: so that needs no
 * space. Where none can be had now there may be some the next time.
 */
static void make_spare(struct file_store *store)
{
	int fd = openat(store->root, SPARE, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0)
		return;
	if (fallocate(fd, FALLOC_FL_KEEP_SIZE, 0, SPARE_BYTES))
		log_debug(ROOM, "folder '%s': no spare record: %s", store->dir, strerror(errno));
	close(fd);
}

/*
 * The names in the folder have changed. If that cannot be made durable, nobody knows what a crash
 * would leave, and a second fsync() may say yes without having done it: no record is served then
 * until the change has been made once more (see again()), or, where it is not known which one it
 * was, until we are started again.
 */
static int sync_records(struct file_store *store)
{
	int error = file_store_sync(store, "records");
	if (!error && !file_store_alive(store))
		error = -EIO;
	if (error) {
		log_error(ROOM,
			"folder '%s/records' cannot be made durable: %s; records are refused until "
			"it can",
			store->dir, strerror(-error));
		atomic_store(&store->records_error, error);
	}
	return error;
}

/* What stood there is the spare from now on. It is not written to before the next put: by then that
   it is not the record any more is durable. */
static int exchange(struct file_store *store, const char *path)
{
	if (renameat2(store->root, SPARE, store->root, path, RENAME_EXCHANGE) == 0)
		return 0;
	bool unknown = errno == EINVAL || errno == ENOSYS; /* to the file system, the kernel */
	return unknown && renameat(store->root, SPARE, store->root, path) == 0 ? 0 : -errno;
}

/* Where others serve the folder, too, one of them may have been killed before it came to that. If
   that is noted, file_lock() has seen to it. */
static int write_spare(struct file_store *store, const struct record_file *file, size_t size)
{
	int error = store->shared && !store->crowd.file ? sync_records(store) : 0;
	return error ? error : write_file(store, SPARE, file, size);
}

static int put_fresh(
	struct file_store *store, const char *path, const struct record_file *file, size_t size)
{
	int error = write_temporary(store, file, size);
	if (error)
		return error;
	crash_point("blocker_file.record.written");
	return renameat(store->root, TEMPORARY, store->root, path) ? -errno : 0;
}

static int put_over(
	struct file_store *store, const char *path, const struct record_file *file, size_t size)
{
	int error = write_spare(store, file, size);
	if (error)
		return error;
	crash_point("blocker_file.record.rewritten");
	return exchange(store, path);
}

static int put(struct file_store *store, const struct job *job, bool fresh, uint64_t version)
{
	struct record_file file;
	char path[FILE_PATH_SIZE];
	size_t size = RECORD_HEAD + job->length;
	path_of(path, &job->key);
	fill(&file, job, version);
	int error =
		fresh ? put_fresh(store, path, &file, size) : put_over(store, path, &file, size);
	if (error)
		return error;
	crash_point("blocker_file.record.renamed");
	error = sync_records(store);
	store->records_again = error ? job->key : (struct xseg_key){0};
	store->removes_again = false;
	if (!error)
		make_spare(store); /* what has become it may be small */
	return error;
}

static int put_again(struct file_store *store, const struct xseg_key *key)
{
	struct record_file file;
	char path[FILE_PATH_SIZE];
	int error = read_record(store, key, &file);
	if (error)
		return error;
	size_t size = RECORD_HEAD + (size_t)file.size;
	file.version = htole64(file.version);
	file.size = htole32(file.size);
	path_of(path, key);
	return put_fresh(store, path, &file, size);
}

/* A removed record stays in `tmp` until that is durable, so that it can be removed once more. One
   that another process has put in its place meanwhile is not touched. */
static int remove_again(struct file_store *store, const struct xseg_key *key)
{
	char path[FILE_PATH_SIZE], removed[FILE_PATH_SIZE];
	path_of(path, key);
	path_in("tmp", removed, key);
	if (renameat2(store->root, removed, store->root, path, RENAME_NOREPLACE) ||
		renameat(store->root, path, store->root, removed))
		return -errno;
	return 0;
}

static void removal_is_durable(struct file_store *store, const struct xseg_key *key)
{
	char removed[FILE_PATH_SIZE];
	path_in("tmp", removed, key);
	unlinkat(store->root, removed, 0);
	if (key->epoch == XSEG_EPOCH_HOME)
		file_fence_forget(store, key->volume);
}

/* The change that could not be made durable: its name is written to the disk anew, and so a sync
   that says yes means it. */
static int again(struct file_store *store)
{
	struct xseg_key key = store->records_again;
	int error = key.volume == 0	   ? -EIO
		    : store->removes_again ? remove_again(store, &key)
					   : put_again(store, &key);
	error = error ? error : file_store_sync(store, "records");
	if (error)
		return atomic_load(&store->records_error);
	if (store->removes_again)
		removal_is_durable(store, &key);
	log_info(ROOM, "folder '%s/records' is durable again", store->dir);
	store->records_again.volume = 0;
	atomic_store(&store->records_error, 0);
	return 0;
}

static int forget(struct file_store *store, const struct job *job)
{
	char path[FILE_PATH_SIZE], removed[FILE_PATH_SIZE];
	path_of(path, &job->key);
	path_in("tmp", removed, &job->key);
	if (renameat(store->root, path, store->root, removed))
		return -errno;
	crash_point("blocker_file.record.removed");
	int error = sync_records(store);
	store->records_again = error ? job->key : (struct xseg_key){0};
	store->removes_again = error != 0;
	if (!error)
		removal_is_durable(store, &job->key);
	return error;
}

/* A killed process may have renamed a record and not come to making that durable. */
static int inherit_records(struct file_store *store)
{
	if (atomic_load(&store->records_error))
		return again(store);
	if (store->records_owed)
		sync_records(store);
	store->records_owed = false;
	if (!store->spare)
		make_spare(store);
	store->spare = true;
	return atomic_load(&store->records_error);
}

static int compare_and_set(struct file_store *store, struct job *job, uint64_t *value)
{
	struct record_file file = {.version = 0};
	uint64_t version;
	int error = inherit_records(store);
	error = error ? error : read_record(store, &job->key, &file);
	if (error && error != -ENOENT && error != -EILSEQ)
		return error;
	*value = error == -EILSEQ ? XSEG_CAS_DAMAGED : error ? 0 : file.version;
	if (error == -EILSEQ && (job->arg1 == XSEG_CAS_GET || job->arg0 != *value))
		return error;
	error = store_record_check(job, *value);
	if (error)
		return error;
	switch (job->arg1) {
	case XSEG_CAS_PUT:
		version = store_record_version_next(*value);
		error = put(store, job, *value == 0, version);
		if (!error)
			*value = version;
		return error;
	case XSEG_CAS_DELETE: return forget(store, job);
	default: return store_record_answer(job, file.data, file.size);
	}
}

int file_record_cas(struct file_store *store, struct job *job, uint64_t *value)
{
	*value = 0;
	file_lock(store, FILE_LOCK_RECORDS);
	int result = compare_and_set(store, job, value);
	file_lock_release(store, FILE_LOCK_RECORDS);
	return result;
}

/* --- which there are -------------------------------------------------------------------- */

/* As path_of() makes them. A folder of tens of thousands is read for each list. */
static bool parse_name(const char *name, struct xseg_key *key)
{
	uint64_t epoch, object;
	if (!file_list_parse_hex(name, 8, &epoch) || name[8] != '.' ||
		!file_list_parse_hex(name + 9, 16, &key->volume) || name[25] != '.' ||
		!file_list_parse_hex(name + 26, 8, &object) || name[34] != 0)
		return false;
	key->epoch = (uint32_t)epoch;
	key->object = (uint32_t)object;
	return true;
}

static int collect(DIR *folder, struct store_list *list)
{
	const struct dirent *entry;
	while (errno = 0, (entry = readdir(folder))) {
		struct xseg_key key;
		if (parse_name(entry->d_name, &key) && store_list_wants(list->job, &key))
			store_list_add(list, key);
	}
	return -errno;
}

int file_record_list(struct file_store *store, struct job *job, uint64_t *next)
{
	struct store_list list = {.job = job};
	int fd = openat(store->root, "records", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *folder = fd < 0 ? NULL : fdopendir(fd);
	if (!folder) {
		int error = errno == ENOENT ? -EIO : -errno;
		if (fd >= 0)
			close(fd);
		return error;
	}
	int error = collect(folder, &list);
	closedir(folder);
	if (!list.error)
		list.error = error;
	return store_list_end(&list, next);
}
