/* SPDX-License-Identifier: Apache-2.0 */
/* What composers ask: whose a volume is, where its objects are, and what is new. */
#include <base/crash.h>
#include <base/log.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "peers/map/mapper.h"

/* --- whose it is ---------------------------------------------------------------------------- */

static int may_be_written(const struct map_volume *volume)
{
	if (volume->state == XSEG_VOLUME_REMOVING)
		return -EBUSY;
	return volume->flags & (XSEG_VOLUME_READ_ONLY | MAP_SNAPSHOT) ? -EPERM : 0;
}

/* What others have done to it shows from here on. */
static int read_again(struct mapper_task *task, struct map_head *head)
{
	mapper_memory_forget_volume(&mapper_shared(task)->memory, task->volume);
	task->store.keeps = true;
	return map_record_open(mapper_task_store(task), task->volume, head);
}

static int acquired(
	struct mapper_task *task, const struct map_volume *volume, const struct map_home *home)
{
	int rc = mapper_task_head(task, volume, home->term);
	if (rc == 0)
		((struct map_head_info *)task->out)->line = home->line;
	return rc;
}

static void note_home(struct mapper_shared *shared, const struct map_home *home)
{
	uint8_t bytes[MAP_HOME_RECORD_SIZE];
	map_format_home_encode(home, bytes);
	mapper_memory_note(
		&shared->memory, map_home_key(home->id), 0, bytes, sizeof(bytes), home->version);
}

static bool find_home(struct mapper_shared *shared, uint64_t id, struct map_home *home)
{
	uint8_t bytes[XSEG_RECORD_MAX];
	uint32_t size;
	return mapper_memory_find(
		       &shared->memory, map_home_key(id), 0, bytes, &size, &home->version) &&
	       map_format_home_decode(bytes, size, home) == 0;
}

/* As we were told (MAP_GIVEN), without a look. -ESTALE: we were not, or it is not so any more. */
static int take(struct mapper_task *task, struct map_home *home, struct map_head *head)
{
	struct mapper_shared *shared = mapper_shared(task);
	struct map_store *store = mapper_task_store(task);
	struct map_claim claim = mapper_lease_claim(shared, 0);
	bool is_given = find_home(shared, task->volume, home) && home->owner == 0 &&
			home->next == shared->owner;
	mapper_memory_forget(&shared->memory, map_home_key(task->volume));
	if (!is_given)
		return -ESTALE;
	task->store.with_record = true;
	int rc = map_home_take(store, &claim, home);
	crash_point("mapper.acquire.home");
	if (rc != 0)
		return rc;
	rc = read_again(task, head);
	if (rc == 0)
		rc = may_be_written(&head->volume);
	if (rc != 0)
		map_home_release(store, task->volume, shared->owner, home->term);
	return rc;
}

/* By its home record. */
static int claim(struct mapper_task *task, struct map_home *home, struct map_head *head)
{
	struct mapper_shared *shared = mapper_shared(task);
	struct map_store *store = mapper_task_store(task);
	struct map_claim claim = mapper_lease_claim(shared, 0);
	int rc = take(task, home, head);
	if (rc != -ESTALE)
		return rc;
	task->store.with_home = true;
	rc = read_again(task, head);
	if (rc == 0)
		rc = may_be_written(&head->volume);
	if (rc != 0)
		return rc;
	rc = map_home_acquire(store, task->volume, &claim, false, home);
	crash_point("mapper.acquire.home");
	if (rc == 0 && home->flags & MAP_HOME_CHANGING) {
		/* a killed mapper's, of a change that it was at: it is not known by that name */
		rc = map_home_release(store, task->volume, shared->owner, home->term);
		if (rc == 0)
			rc = map_home_acquire(store, task->volume, &claim, false, home);
	}
	if (rc == -EBUSY)
		mapper_task_blame_owner(task, home);
	return rc;
}

/*
 * Its store keeps out whoever had it before, and what is written from now on has another epoch,
 * both at once: what that one still puts into the record fails, or was there first, and then the
 * record is read again.
 */
static int begin(struct mapper_task *task, const struct map_home *home, struct map_head *head)
{
	task->store.keeps = task->store.remembers = true;
	mapper_store_fence_along(&task->store, task->volume, home);
	int rc = map_change_epoch(mapper_task_store(task), task->volume, false, head);
	crash_point("mapper.acquire.epoch");
	if (rc == 0)
		rc = mapper_store_fenced(&task->store);
	return rc;
}

static int held(struct mapper_task *task, const struct map_home *home, const struct map_head *head)
{
	int rc = mapper_lease_add(mapper_shared(task), home);
	if (rc != 0)
		return rc;
	mapper_holder_note(task);
	return acquired(task, &head->volume, home);
}

int mapper_control_claim(struct mapper_task *task)
{
	struct map_home home = {0};
	struct map_head head;
	int rc = claim(task, &home, &head);
	return rc != 0 ? rc : held(task, &home, &head);
}

int mapper_control_acquire(struct mapper_task *task)
{
	struct map_home home = {0};
	struct map_head head;
	int rc;
	if (task->arg & MAP_READ_ONLY) {
		rc = read_again(task, &head);
		return rc != 0 ? rc : mapper_task_head(task, &head.volume, 0);
	}
	rc = mapper_lease_known(mapper_shared(task), task->volume, &home);
	if (rc != 0) /* not claimed, or of our predecessor, or lost since */
		rc = claim(task, &home, &head);
	if (rc == 0)
		rc = begin(task, &home, &head);
	return rc != 0 ? rc : held(task, &home, &head);
}

int mapper_control_release(struct mapper_task *task)
{
	struct mapper_shared *shared = mapper_shared(task);
	struct map_store *store = mapper_task_store(task);
	struct map_claim claim = mapper_lease_claim(shared, 0);
	struct map_home home;
	int rc;
	if (task->arg != 0) {
		mapper_lease_known(shared, task->volume, &home);
		rc = map_home_give(store, task->volume, &claim, 0, task->arg, &home);
		task->value = rc == 0 ? home.version : 0;
	} else {
		rc = map_home_read(store, task->volume, &home);
		if (rc == 0 && home.owner == shared->owner && !(home.flags & MAP_HOME_CHANGING))
			rc = map_home_release(store, task->volume, shared->owner, home.term);
	}
	crash_point("mapper.release.home");
	if (rc == 0 || rc == -ENOENT)
		mapper_lease_remove(shared, task->volume);
	return rc == -ENOENT && task->arg == 0 ? 0 : rc;
}

int mapper_control_home(struct mapper_task *task)
{
	struct map_home home = {0};
	struct mapper_shared *shared = mapper_shared(task);
	bool known =
		task->arg == MAP_HOME_KNOWN && mapper_lease_known(shared, task->volume, &home) == 0;
	int rc = known ? 0 : map_home_read(mapper_task_store(task), task->volume, &home);
	if (rc == -ENOENT) { /* nobody has ever had it, or it is not here */
		struct map_head head;
		rc = read_again(task, &head);
	}
	if (rc != 0)
		return rc;
	mapper_lease_seen(shared, &home);
	if (home.version != 0)
		note_home(shared, &home);
	struct map_home_info *out = mapper_task_answer(task, sizeof(*out));
	if (!out)
		return task->error;
	*out = (struct map_home_info){.self = shared->owner,
		.owner = home.owner,
		.last = home.last,
		.next = home.next,
		.previous = home.previous,
		.term = home.term,
		.line = home.line,
		.since = home.since};
	return 0;
}

int mapper_control_given(struct mapper_task *task)
{
	struct mapper_shared *shared = mapper_shared(task);
	struct map_home home = {0};
	if (!find_home(shared, task->volume, &home) || home.term != task->arg)
		return -ENOENT;
	home.owner = 0;
	home.next = shared->owner;
	home.version = task->job->offset;
	note_home(shared, &home);
	return 0;
}

int mapper_control_break(struct mapper_task *task)
{
	struct mapper_shared *shared = mapper_shared(task);
	struct map_store *store = mapper_task_store(task);
	struct map_claim claim = mapper_lease_claim(shared, MAP_HOME_CHANGING);
	struct map_home had = {0}, home = {0};
	struct map_head head;
	int rc = map_record_open(store, task->volume, &head);
	if (rc != 0)
		return rc;
	rc = map_home_read(store, task->volume, &had);
	if (rc != 0 && rc != -ENOENT)
		return rc;
	struct map_owner *owner = mapper_task_answer(task, sizeof(*owner));
	if (!owner)
		return task->error;
	mapper_task_fill_owner(owner, &had);
	if (had.owner == 0)
		return 0;
	/* ours, too: whoever wrote to it here is to stop, and a term of its own says so */
	if (had.owner == shared->owner)
		rc = map_home_release(store, task->volume, shared->owner, had.term);
	if (rc == 0 || rc == -ENOENT)
		rc = map_home_acquire(store, task->volume, &claim, true, &home);
	crash_point("mapper.break.taken");
	if (rc == 0)
		rc = mapper_store_fence(&task->store, task->volume, &home, XSEG_F_READ_ONLY);
	crash_point("mapper.break.fenced");
	if (rc == 0)
		mapper_lease_lost(shared, task->volume, &home);
	if (rc == 0)
		rc = map_home_release(store, task->volume, shared->owner, home.term);
	if (rc == 0)
		log_warning("mapper_lease", "volume %016llx was taken away from '%s'",
			(unsigned long long)task->volume, had.host);
	return rc;
}

/* --- where its objects are ------------------------------------------------------------------ */

int mapper_control_page(struct mapper_task *task)
{
	struct map_entry entries[MAP_ENTRIES];
	struct map_head head;
	fixed(MAP_PAGE_ENTRIES == MAP_ENTRIES);
	fixed(MAP_VOLUME_OBJECTS == MAP_OBJECTS_MAX);
	int rc = map_record_open(mapper_task_store(task), task->volume, &head);
	if (rc == 0 && task->arg > (map_objects(&head.volume) + MAP_ENTRIES - 1) / MAP_ENTRIES)
		rc = -EINVAL;
	if (rc == 0)
		rc = map_tree_page(
			mapper_task_store(task), &head.volume, (uint32_t)task->arg, entries, NULL);
	if (rc != 0)
		return rc;
	uint64_t *words = mapper_task_answer(task, MAP_PAGE_ENTRIES * sizeof(*words));
	for (unsigned i = 0; words && i < MAP_ENTRIES; i++)
		words[i] = map_word(entries[i].epoch, entries[i].owner, entries[i].flags);
	return task->error;
}

/* No key of anything else is made of what a composer says. */
static bool is_sound(const struct map_object *object)
{
	return object->owner != 0 && object->epoch >= 1 && object->epoch <= MAP_EPOCH_MAX &&
	       object->object < MAP_OBJECTS_MAX;
}

/* All at once. */
static void expect_bitmaps(struct mapper_task *task, const struct map_object *objects, uint32_t all)
{
	struct map_range ranges[MAP_BITMAP_MAX];
	uint32_t count = 0;
	for (uint32_t i = 0; i < all; i++)
		if (is_sound(&objects[i]))
			ranges[count++] = map_bitmap_range(
				objects[i].owner, objects[i].epoch, objects[i].object);
	if (count > 1)
		mapper_pages_expect(&task->store, ranges, count);
}

static void read_bitmap(
	struct mapper_task *task, const struct map_object *object, struct map_bitmap_info *info)
{
	struct map_bitmap bitmap;
	info->error = is_sound(object) ? map_bitmap_read(mapper_task_store(task), object->owner,
						 object->epoch, object->object, &bitmap)
				       : -EINVAL;
	if (info->error != 0)
		return;
	info->parent_epoch = bitmap.parent_epoch;
	info->parent_flags = bitmap.parent_flags;
	info->parent_owner = bitmap.parent_owner;
	fixed(sizeof(info->has) == sizeof(bitmap.has));
	memcpy(info->has, bitmap.has, sizeof(info->has));
}

int mapper_control_bitmap(struct mapper_task *task)
{
	struct map_object objects[MAP_BITMAP_MAX];
	const struct job *job = task->job;
	uint32_t count = (uint32_t)task->arg;
	if (task->arg == 0 || task->arg > MAP_BITMAP_MAX ||
		job->data_size < count * sizeof(objects[0]))
		return -EINVAL;
	job_get_bytes(job, 0, objects, count * (uint32_t)sizeof(objects[0]));
	struct map_bitmap_info *infos = mapper_task_answer(task, count * (uint32_t)sizeof(*infos));
	expect_bitmaps(task, objects, count);
	for (uint32_t i = 0; infos && i < count; i++)
		read_bitmap(task, &objects[i], &infos[i]);
	task->amount = count;
	return task->error;
}

/* --- what is new ---------------------------------------------------------------------------- */

static void take_deltas(struct map_delta *to, const struct map_update *from)
{
	memset(to, 0, sizeof(*to));
	to->object = from->object;
	to->flags = from->flags;
	to->epoch = from->epoch;
	to->parent_epoch = from->parent_epoch;
	to->parent_flags = from->parent_flags;
	to->parent_owner = from->parent_owner;
	fixed(sizeof(to->has) == sizeof(from->has));
	memcpy(to->has, from->has, sizeof(to->has));
}

static int read_deltas(const struct mapper_task *task, struct map_delta *deltas, uint32_t count)
{
	struct map_update *from = malloc(count * sizeof(*from));
	if (!from)
		return -ENOMEM;
	job_get_bytes(task->job, 0, from, count * (uint32_t)sizeof(*from));
	for (uint32_t i = 0; i < count; i++)
		take_deltas(&deltas[i], &from[i]);
	free(from);
	return 0;
}

/* In order of object, as the tree wants them. */
static int compare_deltas(const void *a, const void *b)
{
	const struct map_delta *x = a, *y = b;
	return x->object < y->object ? -1 : x->object > y->object;
}

int mapper_control_publish(struct mapper_task *task)
{
	const struct job *job = task->job;
	struct map_head head;
	uint64_t term;
	uint32_t count = (uint32_t)task->arg;
	if (task->arg == 0 || task->arg > MAP_UPDATES_MAX ||
		job->data_size < count * sizeof(struct map_update))
		return -EINVAL;
	int rc = mapper_lease_look(mapper_shared(task), task->volume, &term);
	if (rc == -ENOENT)
		rc = mapper_lease_resume(task);
	if (rc != 0)
		return rc;
	struct map_delta *deltas = malloc(count * sizeof(*deltas));
	if (!deltas)
		return -ENOMEM;
	rc = read_deltas(task, deltas, count);
	if (rc == 0)
		qsort(deltas, count, sizeof(*deltas), compare_deltas);
	for (uint32_t i = 1; rc == 0 && i < count; i++)
		if (deltas[i].object == deltas[i - 1].object)
			rc = -EINVAL;
	if (rc == 0)
		rc = map_update(mapper_task_store(task), task->volume, deltas, count, &head);
	crash_point("mapper.update.durable");
	free(deltas);
	task->amount = count;
	return rc;
}
