/* SPDX-License-Identifier: Apache-2.0 */
/* Which objects a volume has: names of files, folder by folder, in the order of the cursor. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <peer/store.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "peers/blocker/file/file_disk.h"

/*
 * Objects are listed by folder, object, epoch; the cursor is the object (high half) and epoch of
 * the next one. That the first of all has the cursor 0 is just what a beginner sends.
 */
static int compare_keys(const void *a, const void *b) { return store_key_compare(a, b); }

bool file_list_parse_hex(const char *text, int digits, uint64_t *value)
{
	*value = 0;
	for (int i = 0; i < digits; i++) {
		char c = text[i];
		if (c >= '0' && c <= '9')
			*value = *value << 4 | (uint64_t)(c - '0');
		else if (c >= 'a' && c <= 'f')
			*value = *value << 4 | (uint64_t)(c - 'a' + 10);
		else
			return false;
	}
	return true;
}

static bool parse_hex_32(const char *text, uint32_t *value)
{
	uint64_t wide;
	bool good = file_list_parse_hex(text, 8, &wide);
	*value = (uint32_t)wide;
	return good;
}

/* "0000002a" or "0000002a.00000007", and in its right folder; what else lies there is not ours. */
static bool parse_object(const char *name, unsigned folder, struct xseg_key *key)
{
	if (!parse_hex_32(name, &key->object) || file_folder_of(key->object) != folder)
		return false;
	key->epoch = 0;
	if (name[8] == 0)
		return true;
	return name[8] == '.' && parse_hex_32(name + 9, &key->epoch) && name[17] == 0 && key->epoch;
}

static int open_folder(struct file_store *store, const char *path, DIR **folder)
{
	int fd = openat(store->root, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	*folder = fdopendir(fd);
	if (*folder)
		return 0;
	int error = -errno;
	close(fd);
	return error;
}

/* The next name; false: no more, or *error. */
static bool next_name(DIR *folder, const char **name, int *error)
{
	errno = 0;
	const struct dirent *entry = readdir(folder);
	*error = entry ? 0 : -errno;
	*name = entry ? entry->d_name : NULL;
	return entry != NULL;
}

/* Which folders the volume has. */
static int find_folders(struct file_store *store, uint64_t volume, bool present[FILE_FOLDERS])
{
	char path[FILE_PATH_SIZE];
	const char *name;
	uint64_t folder;
	DIR *above;
	file_disk_path_volume(path, volume);
	int error = open_folder(store, path, &above);
	if (error)
		return error == -ENOENT ? (file_store_alive(store) ? 0 : -EIO) : error;
	while (next_name(above, &name, &error))
		if (file_list_parse_hex(name, 2, &folder) && name[2] == 0)
			present[folder] = true;
	closedir(above);
	return error;
}

/* The objects of one folder that are not before the cursor, in order, behind what is there. */
static int read_folder(struct file_store *store, unsigned folder, struct store_list *list)
{
	char path[FILE_PATH_SIZE];
	const char *name;
	const struct job *job = list->job;
	uint32_t first = list->count;
	DIR *open;
	file_disk_path_folder(path, job->key.volume, folder);
	int error = open_folder(store, path, &open);
	if (error)
		return error == -ENOENT ? 0 : error;
	struct xseg_key from = store_list_from(job);
	bool here = folder == file_folder_of(from.object);
	while (next_name(open, &name, &error)) {
		struct xseg_key key = {.volume = job->key.volume};
		if (parse_object(name, folder, &key) &&
			(!here || store_key_compare(&key, &from) >= 0))
			store_list_add(list, key);
	}
	closedir(open);
	if (list->count > first)
		qsort(list->keys + first, list->count - first, sizeof(*list->keys), compare_keys);
	return error ? error : list->error;
}

int file_list(struct file_store *store, struct job *job, uint64_t *next)
{
	bool present[FILE_FOLDERS] = {false};
	struct store_list list = {.job = job};
	unsigned folder = file_folder_of(store_list_from(job).object);
	int error = find_folders(store, job->key.volume, present);
	for (; folder < FILE_FOLDERS && !store_list_full(&list) && !error; folder++)
		if (present[folder])
			error = read_folder(store, folder, &list);
	if (!list.error)
		list.error = error;
	return store_list_put(&list, next);
}
