/* SPDX-License-Identifier: Apache-2.0 */
/* MAP_DETAIL: what a volume has of its own, what it shares, who hangs from it and who has it. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "peers/map/mapper.h"

/* Space is asked for many objects at a time. */
struct space {
	struct mapper_call calls[MAPPER_BATCH];
	struct xseg_object_info infos[MAPPER_BATCH];
	unsigned count;
};

struct survey {
	struct mapper_task *task;
	const struct map_volume *volume;
	struct map_detail *detail;
	struct space space;
};

static int space_ask(struct survey *survey)
{
	struct space *space = &survey->space;
	int rc = 0;
	mapper_store_all(&survey->task->store, space->calls, space->count);
	for (unsigned i = 0; i < space->count; i++) {
		int one = space->calls[i].result;
		if (one == 0)
			survey->detail->allocated += space->infos[i].allocated;
		else if (one != -ENOENT && rc == 0)
			rc = one;
	}
	space->count = 0;
	return rc;
}

static int space_add(struct survey *survey, struct xseg_key key)
{
	struct space *space = &survey->space;
	space->infos[space->count] = (struct xseg_object_info){0};
	space->calls[space->count] = (struct mapper_call){.op = XSEG_OP_INFO,
		.key = key,
		.length = sizeof(space->infos[0]),
		.receive = &space->infos[space->count]};
	return ++space->count == MAPPER_BATCH ? space_ask(survey) : 0;
}

static int survey_visit(struct map_walk *walk, uint32_t object, struct map_entry entry)
{
	struct survey *survey = walk->context;
	struct map_detail *detail = survey->detail;
	const struct map_volume *volume = survey->volume;
	bool own = entry.owner == volume->self;
	detail->objects++;
	if (own && entry.epoch > volume->frozen)
		detail->own++;
	else
		detail->shared++;
	if (!own || (entry.flags & MAP_ZERO))
		return 0;
	return space_add(survey,
		(struct xseg_key){.volume = volume->id, .epoch = entry.epoch, .object = object});
}

/* A damaged page is fsck's to find; the rest can be counted. */
static int survey_damaged(
	struct map_walk *walk, struct xseg_key key, uint32_t first, uint32_t count)
{
	(void)walk;
	(void)key;
	(void)first;
	(void)count;
	return 0;
}

static int survey_child(void *context, uint64_t id, int error, const struct map_head *head)
{
	struct survey *survey = context;
	if (error == 0 && head->volume.parent == survey->volume->id)
		survey->detail->children++;
	if (error == 0 && id == survey->volume->parent)
		map_shown_name(mapper_task_store(survey->task), &head->volume,
			survey->detail->parent_name);
	return 0;
}

static void survey_head(struct survey *survey)
{
	const struct map_volume *volume = survey->volume;
	struct map_detail *detail = survey->detail;
	detail->id = volume->id;
	detail->size = volume->size;
	detail->parent = volume->parent;
	detail->created_ns = volume->created_ns;
	detail->generation = volume->generation;
	detail->object_size = volume->object_size;
	detail->state = volume->state;
	detail->flags = volume->flags;
	detail->limits = (struct map_change_limits){
		volume->limit_iops, volume->limit_bytes, volume->limit_burst_ms};
	map_shown_name(mapper_task_store(survey->task), volume, detail->name);
}

static int survey_home(struct survey *survey)
{
	struct map_home home;
	int rc = map_home_read(mapper_task_store(survey->task), survey->volume->id, &home);
	if (rc == 0 && home.owner != 0)
		mapper_task_fill_owner(&survey->detail->home, &home);
	return rc == -ENOENT ? 0 : rc;
}

int mapper_detail_run(struct mapper_task *task)
{
	struct map_store *store = mapper_task_store(task);
	struct map_head head;
	int rc = map_record_open(store, task->volume, &head);
	if (rc != 0)
		return rc;
	struct survey *survey = calloc(1, sizeof(*survey));
	struct map_walk walk = {
		.visit = survey_visit, .damaged = survey_damaged, .context = survey};
	if (!survey)
		return -ENOMEM;
	survey->task = task;
	survey->volume = &head.volume;
	survey->detail = mapper_task_answer(task, sizeof(*survey->detail));
	rc = task->error;
	if (rc == 0) {
		survey_head(survey);
		rc = survey_home(survey);
	}
	if (rc == 0)
		rc = map_tree_walk(store, &head.volume, 0, &walk);
	if (rc == 0)
		rc = space_ask(survey);
	if (rc == 0)
		rc = map_record_each(store, survey_child, survey);
	free(survey);
	return rc;
}
