/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a flush owes. Each volume has a list of objects written since they were last synced, and
 * the folders with new or removed names; a flush syncs exactly those, on a worker.
 *
 * Linux reports an error of write-back once, to a file that was open, and marks the pages clean:
 * a second fsync() says yes though the data never came to the disk. So sectors that were unsynced
 * when a sync failed are *lost*: every flush of their volume fails until they have been written
 * again and synced, or their object is deleted. A cache above does so by itself. A file with
 * unsynced data is never closed, or the report might go to nobody. A folder is another matter: a
 * file system that could not commit a change of its own does not take the next one as if nothing
 * were missing. So a folder that could not be synced is synced again by the next flush.
 *
 * After a killed process every volume may owe something that is not in the list: then the first
 * flush of any syncs the file system, once.
 */
#include <base/crash.h>
#include <base/hash.h>
#include <base/log.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "peers/blocker/file/file.h"

#define ROOM "blocker_file"

/* --- bits ------------------------------------------------------------------------- */

/* Of the word, those in [first, end). */
static uint64_t bits_mask(uint64_t word, uint64_t first, uint64_t end)
{
	uint64_t low = word * 64 < first ? first - word * 64 : 0;
	uint64_t high = word * 64 + 64 > end ? end - word * 64 : 64;
	return (high == 64 ? ~0ull : (1ull << high) - 1) & ~((1ull << low) - 1);
}

static void bits_set(uint64_t bits[FILE_WORDS], uint64_t first, uint64_t end)
{
	for (uint64_t word = first / 64; word * 64 < end; word++)
		bits[word] |= bits_mask(word, first, end);
}

static void bits_clear(uint64_t bits[FILE_WORDS], uint64_t first, uint64_t end)
{
	for (uint64_t word = first / 64; word * 64 < end; word++)
		bits[word] &= ~bits_mask(word, first, end);
}

static void bits_add(uint64_t bits[FILE_WORDS], const uint64_t more[FILE_WORDS])
{
	for (int i = 0; i < FILE_WORDS; i++)
		bits[i] |= more[i];
}

/* --- volumes ------------------------------------------------------------------------ */

static struct file_volume **volume_link(struct file_shard *shard, uint64_t id)
{
	struct file_volume **link = &shard->volumes[hash_u64(id) >> 58];
	while (*link && (*link)->id != id)
		link = &(*link)->next;
	return link;
}
fixed(FILE_BUCKETS == 1 << (64 - 58));

/* Made when there is none; those that are no longer needed are kept for the next. */
static struct file_volume *volume_get(struct file_shard *shard, uint64_t id)
{
	struct file_volume **link = volume_link(shard, id), *volume = *link;
	if (volume)
		return volume;
	volume = shard->free_volumes;
	if (volume)
		shard->free_volumes = volume->next;
	else
		volume = malloc(sizeof(*volume));
	if (!volume)
		return NULL;
	memset(volume, 0, sizeof(*volume));
	volume->shard = shard;
	volume->id = id;
	TAILQ_INIT(&volume->dirty);
	TAILQ_INIT(&volume->pass);
	TAILQ_INIT(&volume->waiting);
	TAILQ_INIT(&volume->answered);
	*link = volume;
	shard->volume_count++;
	return volume;
}

static bool owes_folders(const struct file_volume *volume)
{
	uint64_t any = 0;
	for (size_t i = 0; i < countof(volume->folders); i++)
		any |= volume->folders[i];
	return any != 0;
}

static bool owes(const struct file_volume *volume)
{
	return !TAILQ_EMPTY(&volume->dirty) || owes_folders(volume);
}

/* Forgotten when there is nothing to remember. */
static void volume_settle(struct file_volume *volume)
{
	struct file_shard *shard = volume->shard;
	if (volume->objects || volume->running || volume->error || owes(volume) ||
		!TAILQ_EMPTY(&volume->waiting))
		return;
	*volume_link(shard, volume->id) = volume->next;
	volume->next = shard->free_volumes;
	shard->free_volumes = volume;
	shard->volume_count--;
}

/* --- objects ------------------------------------------------------------------------- */

/* Lets go of the volume when nothing is owed. */
static void object_settle(struct file_object *object)
{
	struct file_volume *volume = object->volume;
	if (!volume || object->writers || object->dirty || object->passing || object->is_lost)
		return;
	object->volume = NULL;
	volume->objects--;
	volume_settle(volume);
}

static void set_lost(struct file_object *object)
{
	bool lost = file_bits_any(object->lost);
	if (lost == object->is_lost)
		return;
	object->is_lost = lost;
	object->volume->lost += lost ? 1 : -1u;
}

static void set_dirty(struct file_object *object)
{
	if (object->dirty)
		return;
	object->dirty = true;
	TAILQ_INSERT_TAIL(&object->volume->dirty, object, dirty_link);
}

int file_flush_begin(struct file_object *object)
{
	if (!object->volume) {
		object->volume = volume_get(object->shard, object->key.volume);
		if (!object->volume)
			return -ENOMEM;
		object->volume->objects++;
	}
	object->writers++;
	return 0;
}

void file_flush_end(struct file_object *object, struct file_range range, bool durable)
{
	uint64_t first = range.offset / XSEG_SECTOR;
	uint64_t end = (range.offset + range.size + XSEG_SECTOR - 1) / XSEG_SECTOR;
	must(object->writers > 0);
	if (range.size && unlikely(object->is_lost)) { /* what it was meant to be again */
		bits_clear(object->lost, first, end);
		set_lost(object);
	}
	if (range.size && !durable) {
		bits_set(object->unsynced, first, end);
		set_dirty(object);
	}
	object->writers--;
	object_settle(object);
}

void file_flush_named(struct file_object *object)
{
	unsigned folder = file_folder_of(object->key.object);
	object->volume->folders[folder / 64] |= 1ull << (folder % 64);
}

bool file_flush_owes_name(const struct file_object *object)
{
	const struct file_volume *volume = *volume_link(object->shard, object->key.volume);
	unsigned folder = file_folder_of(object->key.object);
	if (!volume)
		return false;
	uint64_t owed = volume->folders[folder / 64] | volume->pass_folders[folder / 64];
	return (owed >> (folder % 64)) & 1;
}

int file_flush_delete_begin(struct file_object *object)
{
	int error = file_flush_begin(object);
	if (!error && object->dirty)
		object->volume->deleting++;
	return error;
}

void file_flush_delete_end(struct file_object *object, bool deleted)
{
	struct file_volume *volume = object->volume;
	if (object->dirty)
		volume->deleting--;
	if (deleted) {
		file_flush_named(object);
		file_flush_forget(object);
	}
	file_flush_end(object, (struct file_range){0, 0}, true);
	/* named or not empty: it is still there */
	if (!TAILQ_EMPTY(&volume->waiting))
		file_flush_start(volume);
}

void file_flush_forget(struct file_object *object)
{
	must(!object->passing);
	memset(object->lost, 0, sizeof(object->lost));
	memset(object->unsynced, 0, sizeof(object->unsynced));
	set_lost(object);
	if (object->dirty)
		TAILQ_REMOVE(&object->volume->dirty, object, dirty_link);
	object->dirty = object->fresh = false;
}

void file_flush_failed(struct file_object *object, int error)
{
	object->failures++;
	bits_add(object->lost, object->unsynced);
	bits_add(object->lost, object->syncing);
	set_lost(object);
	file_count(object->shard, FILE_SYNC_ERRORS, 1);
	log_error(ROOM, "object %u of volume %016llx cannot be made durable: %s",
		object->key.object, (unsigned long long)object->key.volume, strerror(-error));
}

static void folders_failed(struct file_volume *volume, int error)
{
	log_error(ROOM, "folders of volume %016llx cannot be made durable: %s",
		(unsigned long long)volume->id, strerror(-error));
	file_count(volume->shard, FILE_SYNC_ERRORS, 1);
}

void file_flush_broken(struct file_object *object, int error)
{
	folders_failed(object->volume, error);
	file_flush_named(object);
}

/* --- a pass ----------------------------------------------------------------------------- */

/* On a worker. The disk gets everything to do at once, then each file is waited for. */
static void pass_run(struct worker_item *item)
{
	struct file_volume *volume = (struct file_volume *)item;
	struct file_store *store = &volume->shard->shared->store;
	struct file_object *object;
	volume->folders_error = file_store_inherit(store);
	TAILQ_FOREACH (object, &volume->pass, pass_link)
		sync_file_range(object->fd, 0, 0, SYNC_FILE_RANGE_WRITE);
	TAILQ_FOREACH (object, &volume->pass, pass_link)
		object->sync_error = file_disk_sync(store, object->fd);
	crash_point("blocker_file.flush.synced");
	for (unsigned i = 0; i < FILE_FOLDERS; i++) {
		if (!((volume->pass_folders[i / 64] >> (i % 64)) & 1))
			continue;
		int error = file_disk_sync_folder(store, volume->id, i);
		volume->folders_error = volume->folders_error ? volume->folders_error : error;
		volume->folders_synced++;
	}
}

/* What the sync of one object came to; the object's error, or 0. */
static int pass_object(struct file_volume *volume, struct file_object *object)
{
	int error = object->sync_error;
	TAILQ_REMOVE(&volume->pass, object, pass_link);
	if (error)
		file_flush_failed(object, error);
	else if (!volume->folders_error)
		object->fresh = false;
	memset(object->syncing, 0, sizeof(object->syncing));
	object->passing = false;
	file_count(volume->shard, FILE_SYNCS, 1);
	object_settle(object);
	file_object_release(object);
	return error;
}

static void pass_answer(struct file_volume *volume, int error)
{
	struct job *job;
	if (!error)
		error = volume->error ? volume->error : volume->lost ? -EIO : 0;
	while ((job = TAILQ_FIRST(&volume->answered))) {
		TAILQ_REMOVE(&volume->answered, job, link);
		if (error)
			job_fail(job, error);
		else
			job_complete(job, 0);
	}
}

static void pass_done(struct worker_item *item)
{
	struct file_volume *volume = (struct file_volume *)item;
	struct file_object *object;
	int error = volume->folders_error;
	if (error)
		folders_failed(volume, error);
	for (size_t i = 0; error && i < countof(volume->folders); i++)
		volume->folders[i] |= volume->pass_folders[i];
	file_count(volume->shard, FILE_FOLDER_SYNCS, volume->folders_synced);
	while ((object = TAILQ_FIRST(&volume->pass))) {
		int failed = pass_object(volume, object);
		error = error ? error : failed;
	}
	memset(volume->pass_folders, 0, sizeof(volume->pass_folders));
	crash_point("blocker_file.flush.before_answer");
	pass_answer(volume, error);
	struct file_shard *shard = volume->shard;
	volume->running = false;
	shard->passes--;
	if (!TAILQ_EMPTY(&volume->waiting))
		file_flush_start(volume);
	else
		volume_settle(volume);
	file_object_feed(shard);
}

void file_flush_start(struct file_volume *volume)
{
	struct file_object *object;
	/* one whose file is just going would look like one that somebody took from us */
	if (volume->running || volume->deleting)
		return;
	volume->running = true;
	volume->shard->passes++;
	TAILQ_CONCAT(&volume->answered, &volume->waiting, link);
	while ((object = TAILQ_FIRST(&volume->dirty))) {
		TAILQ_REMOVE(&volume->dirty, object, dirty_link);
		TAILQ_INSERT_TAIL(&volume->pass, object, pass_link);
		object->dirty = false;
		object->passing = true;
		memcpy(object->syncing, object->unsynced, sizeof(object->syncing));
		memset(object->unsynced, 0, sizeof(object->unsynced));
		object->users++;
		file_object_settle(object);
	}
	memcpy(volume->pass_folders, volume->folders, sizeof(volume->folders));
	memset(volume->folders, 0, sizeof(volume->folders));
	volume->folders_error = 0;
	volume->folders_synced = 0;
	file_count(volume->shard, FILE_FLUSH_PASSES, 1);
	worker_run(volume->shard->peer, &volume->work, pass_run, pass_done);
}

/* --- entry points ---------------------------------------------------------------------------- */

/*
 * Flushes that come while a pass runs wait for the next one, together: the pass may have begun
 * before a write that they cover was done.
 */
void file_flush_take(struct peer *peer, struct job *job)
{
	struct file_shard *shard = peer->state;
	struct file_volume *volume = *volume_link(shard, job->key.volume);
	bool owes = file_store_owes(&shard->shared->store);
	if (!volume && owes)
		volume = volume_get(shard, job->key.volume);
	if (!volume && owes) {
		job_fail(job, -ENOMEM);
		return;
	}
	if (!volume) { /* nothing was written since the last one */
		job_complete(job, 0);
		return;
	}
	TAILQ_INSERT_TAIL(&volume->waiting, job, link);
	file_flush_start(volume);
}

bool file_flush_drain(struct file_shard *shard)
{
	if (shard->passes)
		return false;
	bool idle = true;
	for (unsigned i = 0; i < FILE_BUCKETS; i++)
		for (struct file_volume *volume = shard->volumes[i]; volume; volume = volume->next)
			if (owes(volume) && !(volume->last && volume->folders_error)) {
				volume->last = true;
				file_flush_start(volume);
				idle = false;
			}
	return idle;
}

bool file_flush_is_clean(const struct file_shard *shard) { return shard->volume_count == 0; }

void file_flush_fini(struct file_shard *shard)
{
	struct file_volume *volume;
	for (unsigned i = 0; i < FILE_BUCKETS; i++)
		while ((volume = shard->volumes[i])) {
			shard->volumes[i] = volume->next;
			free(volume);
		}
	while ((volume = shard->free_volumes)) {
		shard->free_volumes = volume->next;
		free(volume);
	}
}
