/* SPDX-License-Identifier: Apache-2.0 */
/*
 * LIST: the keys of the volumes' records, a part of them at a time, and each volume's two records,
 * many at once (mapper_store.c reads them ahead). Nothing is remembered from one list to the next:
 * another host may have changed anything.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "peers/map/mapper.h"

#define LIST_KEYS 4096u

struct list {
	struct xseg_volume_info *infos;
	uint32_t count, room;
	uint64_t next; /* the first volume that there was no room for; 0: none */
};

/* Damaged, or of another version: its id is all there is to say. One in the making is no volume. */
static int list_volume(struct mapper_task *task, struct list *list, uint64_t id)
{
	struct xseg_volume_info *info = &list->infos[list->count];
	struct map_head head;
	int rc = map_record_open(mapper_task_store(task), id, &head);
	if (rc == -ENOENT)
		return 0;
	if (rc != 0 && rc != -EILSEQ && rc != -EPROTO)
		return rc;
	if (rc == 0)
		mapper_task_describe(mapper_task_store(task), &head.volume, info);
	else
		*info = (struct xseg_volume_info){.id = id};
	list->count++;
	return 0;
}

static int list_keys(struct mapper_task *task, struct list *list, const struct xseg_key *keys,
	uint32_t count, uint64_t *last)
{
	int rc = 0;
	for (uint32_t i = 0; i < count && rc == 0; i++) {
		if (keys[i].volume == *last)
			continue;
		if (list->count == list->room) {
			list->next = keys[i].volume;
			break;
		}
		*last = keys[i].volume;
		rc = list_volume(task, list, *last);
	}
	return rc;
}

static int list_fill(struct mapper_task *task, struct list *list)
{
	struct map_store *store = mapper_task_store(task);
	struct xseg_key *keys = malloc(LIST_KEYS * sizeof(*keys));
	uint64_t cursor = task->job->arg0, last = 0;
	int rc = keys ? 0 : -ENOMEM;
	while (rc == 0) {
		int count = store->records(store, XSEG_EPOCH_VOLUME, &cursor, keys, LIST_KEYS);
		rc = count < 0 ? count : list_keys(task, list, keys, (uint32_t)count, &last);
		if (cursor == 0 || list->next != 0)
			break;
		if (list->count == list->room) {
			list->next = cursor;
			break;
		}
	}
	free(keys);
	return rc;
}

int mapper_list_run(struct mapper_task *task)
{
	struct list list = {.room = mapper_task_room(task) / sizeof(struct xseg_volume_info)};
	if (list.room == 0)
		return -EINVAL;
	list.infos = mapper_task_answer(task, list.room * (uint32_t)sizeof(*list.infos));
	if (!list.infos)
		return task->error;
	int rc = list_fill(task, &list);
	task->out_size = list.count * (uint32_t)sizeof(*list.infos);
	task->value = list.next;
	task->amount = list.count;
	return rc;
}
