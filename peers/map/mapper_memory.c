/* SPDX-License-Identifier: Apache-2.0 */
/* What was read or written here, so that a look into the map costs one read, and deltas no GET. */
#include <base/hash.h>
#include <stdlib.h>
#include <string.h>

#include "peers/map/mapper.h"

#define MEMORY_MIN 64u

static struct mapper_notes *bucket_of(struct mapper_memory *memory, struct xseg_key key)
{
	uint64_t h = hash_object(key.volume, key.epoch, key.object);
	return &memory->bucket[(h >> 32) % MAPPER_BUCKETS];
}

static bool key_is(const struct xseg_key *a, const struct xseg_key *b)
{
	return a->volume == b->volume && a->epoch == b->epoch && a->object == b->object;
}

static struct mapper_note *find(struct mapper_memory *memory, struct xseg_key key, uint32_t offset)
{
	struct mapper_note *note;
	LIST_FOREACH (note, bucket_of(memory, key), link)
		if (key_is(&note->key, &key) && note->offset == offset)
			return note;
	return NULL;
}

static void unlist(struct mapper_memory *memory, struct mapper_note *note)
{
	LIST_REMOVE(note, link);
	TAILQ_REMOVE(&memory->ages, note, age);
	memory->count--;
}

/* A fresh one, or the one unused the longest; NULL: no memory, which is no error here. */
static struct mapper_note *make(struct mapper_memory *memory)
{
	if (memory->count < memory->max)
		return malloc(sizeof(struct mapper_note));
	struct mapper_note *note = TAILQ_FIRST(&memory->ages);
	unlist(memory, note);
	return note;
}

void mapper_memory_open(struct mapper_memory *memory, uint64_t bytes)
{
	uint64_t max = bytes / sizeof(struct mapper_note);
	must(pthread_mutex_init(&memory->lock, NULL) == 0);
	TAILQ_INIT(&memory->ages);
	memory->count = 0;
	memory->max = max < MEMORY_MIN ? MEMORY_MIN : max > UINT32_MAX ? UINT32_MAX : (uint32_t)max;
	for (unsigned i = 0; i < MAPPER_BUCKETS; i++)
		LIST_INIT(&memory->bucket[i]);
}

void mapper_memory_close(struct mapper_memory *memory)
{
	struct mapper_note *note;
	while ((note = TAILQ_FIRST(&memory->ages))) {
		unlist(memory, note);
		free(note);
	}
	pthread_mutex_destroy(&memory->lock);
}

bool mapper_memory_find(struct mapper_memory *memory, struct xseg_key key, uint32_t offset,
	void *to, uint32_t *size, uint64_t *version)
{
	pthread_mutex_lock(&memory->lock);
	struct mapper_note *note = find(memory, key, offset);
	if (note) {
		memcpy(to, note->data, note->size);
		*size = note->size;
		*version = note->version;
		TAILQ_REMOVE(&memory->ages, note, age);
		TAILQ_INSERT_TAIL(&memory->ages, note, age);
	}
	pthread_mutex_unlock(&memory->lock);
	return note != NULL;
}

void mapper_memory_note(struct mapper_memory *memory, struct xseg_key key, uint32_t offset,
	const void *from, uint32_t size, uint64_t version)
{
	must(size <= XSEG_RECORD_MAX);
	pthread_mutex_lock(&memory->lock);
	struct mapper_note *note = find(memory, key, offset);
	bool older = note && version < note->version;
	if (note && !older)
		unlist(memory, note);
	if (!note)
		note = make(memory);
	if (note && !older) {
		note->key = key;
		note->offset = offset;
		note->size = size;
		note->version = version;
		if (size > 0)
			memcpy(note->data, from, size);
		LIST_INSERT_HEAD(bucket_of(memory, key), note, link);
		TAILQ_INSERT_TAIL(&memory->ages, note, age);
		memory->count++;
	}
	pthread_mutex_unlock(&memory->lock);
}

void mapper_memory_forget(struct mapper_memory *memory, struct xseg_key key)
{
	struct mapper_note *note, *next;
	pthread_mutex_lock(&memory->lock);
	for (note = LIST_FIRST(bucket_of(memory, key)); note; note = next) {
		next = LIST_NEXT(note, link);
		if (!key_is(&note->key, &key))
			continue;
		unlist(memory, note);
		free(note);
	}
	pthread_mutex_unlock(&memory->lock);
}

void mapper_memory_forget_volume(struct mapper_memory *memory, uint64_t volume)
{
	mapper_memory_forget(memory, map_volume_key(volume, 0));
	mapper_memory_forget(memory, map_volume_key(volume, 1));
}
