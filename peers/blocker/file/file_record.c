/* SPDX-License-Identifier: Apache-2.0 */
/* Records as files: read, compare, write anew, rename, and durable before anyone hears of it. */
#include <base/crash.h>
#include <base/crc32c.h>
#include <base/log.h>
#include <dirent.h>
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "peers/blocker/file/file_disk.h"
#include "peers/blocker/record.h"

#define ROOM "blocker_file"
#define TEMPORARY "tmp/record"
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

static void path_of(char path[FILE_PATH_SIZE], const struct xseg_key *key)
{
	snprintf(path, FILE_PATH_SIZE, "records/%08x.%016llx.%08x", key->epoch,
		(unsigned long long)key->volume, key->object);
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
	return size == file_size - RECORD_HEAD && le32toh(file->format) == FILE_RECORD_VERSION &&
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

static int write_temporary(struct file_store *store, const struct record_file *file, size_t size)
{
	int fd = openat(store->root, TEMPORARY, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	if (fd < 0)
		return errno == ENOENT ? -EIO : -errno;
	ssize_t put = pwrite(fd, file, size, 0);
	int error = put < 0 ? -errno : put != (ssize_t)size ? -ENOSPC : 0;
	if (!error && fsync(fd))
		error = -errno;
	close(fd);
	if (error)
		unlinkat(store->root, TEMPORARY, 0);
	return error;
}

/*
 * The names in the folder have changed. If that cannot be made durable, nobody knows what a crash
 * would leave, and a second fsync() may say yes without having done it: no record is served then
 * until somebody has looked at the disk and started us again.
 */
static int sync_records(struct file_store *store)
{
	int error = file_store_sync(store, "records");
	if (!error && !file_store_alive(store))
		error = -EIO;
	if (error) {
		log_error(ROOM,
			"folder '%s/records' cannot be made durable: %s; records are refused",
			store->dir, strerror(-error));
		atomic_store(&store->records_error, error);
	}
	return error;
}

static int put(struct file_store *store, const struct job *job, uint64_t version)
{
	struct record_file file;
	char path[FILE_PATH_SIZE];
	path_of(path, &job->key);
	fill(&file, job, version);
	int error = write_temporary(store, &file, RECORD_HEAD + job->length);
	if (error)
		return error;
	crash_point("blocker_file.record.written");
	if (renameat(store->root, TEMPORARY, store->root, path))
		return -errno;
	crash_point("blocker_file.record.renamed");
	return sync_records(store);
}

static int forget(struct file_store *store, const struct job *job)
{
	char path[FILE_PATH_SIZE];
	path_of(path, &job->key);
	if (unlinkat(store->root, path, 0))
		return -errno;
	return sync_records(store);
}

static int answer(struct job *job, const struct record_file *file)
{
	if (file->size > job->data_size)
		return -EMSGSIZE;
	job_put_bytes(job, 0, file->data, file->size);
	return (int)file->size;
}

/* A killed process may have renamed a record and not come to making that durable. */
static int inherit_records(struct file_store *store)
{
	if (store->records_owed && !atomic_load(&store->records_error))
		sync_records(store);
	store->records_owed = false;
	return atomic_load(&store->records_error);
}

static int compare_and_set(struct file_store *store, struct job *job, uint64_t *value)
{
	struct record_file file = {.version = 0};
	int error = inherit_records(store);
	error = error ? error : read_record(store, &job->key, &file);
	if (error && error != -ENOENT)
		return error;
	*value = error ? 0 : file.version;
	error = record_check(job, *value);
	if (error)
		return error;
	switch (job->arg1) {
	case XSEG_CAS_PUT:
		error = put(store, job, *value + 1);
		*value += error == 0;
		return error;
	case XSEG_CAS_DELETE: return forget(store, job);
	default: return answer(job, &file);
	}
}

int file_record_cas(struct file_store *store, struct job *job, uint64_t *value)
{
	*value = 0;
	must(pthread_mutex_lock(&store->records) == 0);
	int result = compare_and_set(store, job, value);
	must(pthread_mutex_unlock(&store->records) == 0);
	return result;
}

/* --- which there are -------------------------------------------------------------------- */

static bool parse_name(const char *name, struct xseg_key *key)
{
	unsigned long long volume;
	char again[FILE_PATH_SIZE];
	if (sscanf(name, "%8x.%16llx.%8x", &key->epoch, &volume, &key->object) != 3)
		return false;
	key->volume = volume;
	path_of(again, key);
	return strcmp(again + strlen("records/"), name) == 0;
}

static int compare_keys(const void *a, const void *b) { return record_compare(a, b); }

static bool is_asked(const struct job *job, const struct xseg_key *key)
{
	return key->epoch == job->key.epoch && key->volume >= job->arg0 &&
	       (job->key.volume == 0 || key->volume == job->key.volume);
}

/* All keys that are asked for, in order; the array is the caller's. */
static int collect(DIR *folder, const struct job *job, struct xseg_key **keys, uint32_t *count)
{
	uint32_t room = 0;
	const struct dirent *entry;
	while (errno = 0, (entry = readdir(folder))) {
		struct xseg_key key;
		if (!parse_name(entry->d_name, &key) || !is_asked(job, &key))
			continue;
		if (*count == room) {
			room = room ? 2 * room : 64;
			void *grown = realloc(*keys, room * sizeof(key));
			if (!grown)
				return -ENOMEM;
			*keys = grown;
		}
		(*keys)[(*count)++] = key;
	}
	int error = -errno;
	if (*count)
		qsort(*keys, *count, sizeof(**keys), compare_keys);
	return error;
}

int file_record_list(struct file_store *store, struct job *job, uint64_t *next)
{
	uint32_t size = job->length < job->data_size ? job->length : job->data_size;
	uint32_t room = size / sizeof(struct xseg_key), count = 0;
	struct xseg_key *keys = NULL;
	int fd = openat(store->root, "records", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *folder = fd < 0 ? NULL : fdopendir(fd);
	if (!folder) {
		int error = errno == ENOENT ? -EIO : -errno;
		if (fd >= 0)
			close(fd);
		return error;
	}
	int listed = collect(folder, job, &keys, &count);
	closedir(folder);
	*next = 0;
	if (listed == 0)
		listed = (int)count;
	if (listed >= 0 && count > room) {
		*next = keys[room].volume;
		listed = room ? record_list_cut(keys, room, *next) : -EINVAL;
	}
	if (listed > 0)
		job_put_bytes(job, 0, keys, (uint32_t)listed * (uint32_t)sizeof(*keys));
	free(keys);
	return listed < 0 ? listed : listed * (int)sizeof(*keys);
}
