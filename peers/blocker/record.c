/* SPDX-License-Identifier: Apache-2.0 */
/* Records in memory, in a sorted array: they are few, and asked for when volumes are opened. */
#include "peers/blocker/record.h"

#include <stdlib.h>
#include <string.h>

void record_fini(struct record_table *table)
{
	for (uint32_t i = 0; i < table->count; i++)
		free(table->records[i]);
	free(table->records);
	*table = (struct record_table){0};
}

/* Index of the first record that is not before the key. */
static uint32_t place_of(const struct record_table *table, const struct xseg_key *key)
{
	uint32_t low = 0, high = table->count;
	while (low < high) {
		uint32_t middle = (low + high) / 2;
		if (store_key_compare(&table->records[middle]->key, key) < 0)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

static int make_room(struct record_table *table)
{
	if (table->count < table->room)
		return 0;
	if (table->room == RECORD_COUNT_MAX)
		return -ENOSPC;
	uint32_t room = table->room ? table->room * 2 : 64;
	struct record **grown = realloc(table->records, room * sizeof(struct record *));
	if (!grown)
		return -ENOMEM;
	table->records = grown;
	table->room = room;
	return 0;
}

/* The new one is whole before it takes the old one's place. */
static int put(struct record_table *table, struct job *job, uint32_t place, uint64_t found)
{
	int error = found ? 0 : make_room(table);
	struct record *record = error ? NULL : malloc(sizeof(*record) + job->length);
	if (!record)
		return error ? error : -ENOMEM;
	record->key = job->key;
	record->version = store_record_version_next(found);
	record->size = job->length;
	job_get_bytes(job, 0, record->data, job->length);
	struct record **slot = &table->records[place];
	if (found)
		free(*slot);
	else
		memmove(slot + 1, slot, (table->count++ - place) * sizeof(*slot));
	*slot = record;
	return 0;
}

static void forget(struct record_table *table, uint32_t place)
{
	struct record **slot = &table->records[place];
	free(*slot);
	memmove(slot, slot + 1, (--table->count - place) * sizeof(*slot));
}

int record_cas(struct record_table *table, struct job *job, uint64_t *value)
{
	uint32_t place = place_of(table, &job->key);
	struct record *record = place < table->count ? table->records[place] : NULL;
	if (record && store_key_compare(&record->key, &job->key) != 0)
		record = NULL;
	*value = record ? record->version : 0;
	int error = store_record_check(job, *value);
	if (error)
		return error;
	switch (job->arg1) {
	case XSEG_CAS_PUT:
		error = put(table, job, place, *value);
		if (!error)
			*value = table->records[place]->version;
		return error;
	case XSEG_CAS_DELETE: forget(table, place); return 0;
	default: return store_record_answer(job, record->data, record->size);
	}
}

int record_list(const struct record_table *table, struct job *job, uint64_t *next)
{
	struct store_list list = {.job = job};
	struct xseg_key from = store_list_from(job);
	for (uint32_t i = place_of(table, &from); i < table->count; i++) {
		const struct xseg_key *key = &table->records[i]->key;
		if (key->epoch != from.epoch || store_list_full(&list))
			break;
		if (store_list_wants(job, key))
			store_list_add(&list, *key);
	}
	return store_list_end(&list, next);
}
