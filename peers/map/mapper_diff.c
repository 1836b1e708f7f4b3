/* SPDX-License-Identifier: Apache-2.0 */
/*
 * MAP_DIFF: what may differ between a volume and one of its snapshots (or any relative), stretch by
 * stretch. An object whose entry is the same is the same; of a partial one the clusters that it has
 * differ, if what it has not comes from the other's object; all else differs as a whole.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "peers/map/mapper.h"

struct diff {
	struct mapper_task *task;
	const struct map_volume *before, *after;
	struct map_stretch *out;
	uint32_t count, room;
	uint64_t next; /* object that there was no room for, or nobody asks for */
	uint64_t end;  /* of what is asked for */
	bool full;
};

/* Joined with the last one, if it goes on there. False: no room. */
static bool diff_add(struct diff *diff, uint64_t offset, uint64_t length, uint32_t flags)
{
	uint64_t end = diff->after->size;
	if (offset >= end || length == 0)
		return true;
	if (length > end - offset)
		length = end - offset;
	struct map_stretch *last = diff->count > 0 ? &diff->out[diff->count - 1] : NULL;
	if (last && last->flags == flags && last->offset + last->length == offset) {
		last->length += length;
		return true;
	}
	if (diff->count == diff->room)
		return false;
	diff->out[diff->count++] =
		(struct map_stretch){.offset = offset, .length = length, .flags = flags};
	return true;
}

/* Clusters that objects between `after` and `before` have. -ENOENT: one is not below the other. */
static int diff_bitmap(struct diff *diff, uint32_t object, struct map_entry before,
	struct map_entry after, uint64_t has[MAP_BITMAP_WORDS])
{
	uint64_t owner = diff->after->owners[after.owner];
	uint64_t below = diff->before->owners[before.owner];
	uint32_t epoch = after.epoch, flags = after.flags;
	memset(has, 0, MAP_BITMAP_WORDS * sizeof(has[0]));
	if (before.epoch == 0 || (before.flags & MAP_ZERO))
		return -ENOENT;
	for (unsigned depth = 0; depth < 4096; depth++) {
		struct map_bitmap bitmap;
		if (owner == below && epoch == before.epoch)
			return 0;
		if (!(flags & MAP_PARTIAL))
			return -ENOENT;
		int rc = map_bitmap_read(
			mapper_task_store(diff->task), owner, epoch, object, &bitmap);
		if (rc != 0)
			return rc;
		for (unsigned i = 0; i < MAP_BITMAP_WORDS; i++)
			has[i] |= bitmap.has[i];
		owner = bitmap.parent_owner;
		epoch = bitmap.parent_epoch;
		flags = bitmap.parent_flags;
	}
	return -EILSEQ;
}

static bool diff_clusters(struct diff *diff, uint64_t offset, const uint64_t has[MAP_BITMAP_WORDS])
{
	uint32_t clusters = diff->after->object_size / MAP_CLUSTER;
	for (uint32_t i = 0; i < clusters; i++)
		if ((has[i / 64] >> (i % 64) & 1) &&
			!diff_add(diff, offset + (uint64_t)i * MAP_CLUSTER, MAP_CLUSTER, 0))
			return false;
	return true;
}

static int diff_visit(
	void *context, uint32_t object, struct map_entry before, struct map_entry after)
{
	struct diff *diff = context;
	uint64_t has[MAP_BITMAP_WORDS];
	uint64_t offset = (uint64_t)object * diff->after->object_size;
	bool zero = after.epoch == 0 || (after.flags & MAP_ZERO), room;
	struct map_stretch last =
		diff->count ? diff->out[diff->count - 1] : (struct map_stretch){0};
	uint32_t count = diff->count;
	int rc = -ENOENT;
	if (offset >= diff->end) {
		diff->next = object;
		diff->full = true;
		return 1;
	}
	if (!zero && (after.flags & MAP_PARTIAL))
		rc = diff_bitmap(diff, object, before, after, has);
	if (rc != 0 && rc != -ENOENT)
		return rc;
	if (rc == 0)
		room = diff_clusters(diff, offset, has);
	else
		room = diff_add(
			diff, offset, diff->after->object_size, zero ? XSEG_STATUS_ZERO : 0);
	if (room)
		return 0;
	/* an object is told as a whole: the next question begins with it */
	diff->count = count;
	if (count > 0)
		diff->out[count - 1] = last;
	diff->next = object;
	diff->full = true;
	return 1;
}

static int diff_run(struct diff *diff, uint32_t from)
{
	uint32_t room = mapper_task_room(diff->task);
	uint32_t least = diff->after->object_size / MAP_CLUSTER * (uint32_t)sizeof(*diff->out);
	/* the worst object must find room, or nothing would ever move */
	diff->room = room / sizeof(*diff->out);
	if (room < least)
		return -EMSGSIZE;
	diff->out = mapper_task_answer(diff->task, diff->room * (uint32_t)sizeof(*diff->out));
	if (!diff->out)
		return diff->task->error;
	int rc = map_diff_trees(
		mapper_task_store(diff->task), diff->before, diff->after, from, diff_visit, diff);
	if (rc < 0)
		return rc;
	diff->task->value = diff->full ? diff->next : UINT64_MAX;
	diff->task->out_size = diff->count * (uint32_t)sizeof(*diff->out);
	return 0;
}

int mapper_diff_run(struct mapper_task *task)
{
	struct map_store *store = mapper_task_store(task);
	struct map_head *before = malloc(sizeof(*before)), *after = malloc(sizeof(*after));
	int rc = before && after ? 0 : -ENOMEM;
	if (rc == 0)
		rc = map_record_open(store, task->other, before);
	if (rc == 0)
		rc = map_record_open(store, task->volume, after);
	if (rc == 0 && task->arg > UINT32_MAX)
		rc = -EINVAL;
	struct diff diff = {.task = task};
	if (rc == 0) {
		diff.before = &before->volume;
		diff.after = &after->volume;
		diff.end = task->ask.size != 0 ? task->ask.size : UINT64_MAX;
		rc = diff_run(&diff, (uint32_t)task->arg);
	}
	free(before);
	free(after);
	return rc;
}
