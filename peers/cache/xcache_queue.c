/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two queues: a small one where most new entries pass through, and a main one for those that were
 * asked for on the way, or that come again soon after they went (ghosts).
 *
 *   new --> young --> old --- marked ---> main <-- marked: round again, one mark less
 *                      |                   |
 *                      v                   v
 *              gone, a ghost             gone
 *
 * Young and old are the small queue: hits on young ones do not count. Without a window all is old.
 */
#include <errno.h>
#include <stdlib.h>

#include "peers/cache/xcache_priv.h"

#define SMALL_PERCENT 10u
#define GHOST_PERCENT 90u
/* So many are moved on to find a victim; then the next goes, marked or not: bounded time. */
#define STEPS_MAX 1024u

/* `policy` of an entry */
enum {
	IN_YOUNG = 1,
	IN_OLD = 2,
	IN_MAIN = 3,
	IN_MASK = 3,
	MARK = 1 << 2, /* counted from here */
};

struct queues {
	struct xcache_queue_rules rules;
	struct xcache_list list[IN_MASK + 1];
	uint32_t small_max, main_max, young_max;
	bool filled; /* something had to go already */
	struct xcache_ghost ghost;
};

static unsigned marks_of(const struct xcache_entry *e) { return e->policy / MARK; }

static struct xcache_list *list_of(struct queues *q, const struct xcache_entry *e)
{
	return &q->list[e->policy & IN_MASK];
}

static uint32_t small_count(const struct queues *q)
{
	return q->list[IN_YOUNG].count + q->list[IN_OLD].count;
}

static uint64_t hash_of(struct xcache *cache, const struct xcache_entry *e)
{
	uint64_t h = xcache_hash_key(&xcache_object(cache, e->object)->key) + e->bucket;
	h *= 0x9e3779b97f4a7c15ull;
	h = (h ^ h >> 29) * 0xbf58476d1ce4e5b9ull;
	return h ^ h >> 32;
}

static void put(struct xcache *cache, uint32_t entry, unsigned in, unsigned marks)
{
	struct queues *q = cache->state;
	xcache_entry(cache, entry)->policy = (uint8_t)(in | marks * MARK);
	xcache_list_push(cache, &q->list[in], entry);
}

static void move(struct xcache *cache, uint32_t entry, unsigned in, unsigned marks)
{
	struct queues *q = cache->state;
	xcache_list_cut(cache, list_of(q, xcache_entry(cache, entry)), entry);
	put(cache, entry, in, marks);
}

/* Those that have been there for long enough. */
static void grow_old(struct xcache *cache)
{
	struct queues *q = cache->state;
	for (unsigned i = 0; i < 2 && q->list[IN_YOUNG].count > q->young_max; i++) {
		uint32_t entry = q->list[IN_YOUNG].tail;
		move(cache, entry, IN_OLD, marks_of(xcache_entry(cache, entry)));
	}
}

void xcache_queue_insert(struct xcache *cache, uint32_t entry)
{
	struct queues *q = cache->state;
	struct xcache_entry *e = xcache_entry(cache, entry);
	unsigned in = e->policy & IN_MASK;
	if (!in) {
		bool again = q->ghost.live && xcache_ghost_take(&q->ghost, hash_of(cache, e));
		bool spill = !q->filled && small_count(q) >= q->small_max;
		in = again || spill ? IN_MAIN : IN_YOUNG;
	}
	put(cache, entry, in, marks_of(e));
	grow_old(cache);
}

void xcache_queue_hit(struct xcache *cache, uint32_t entry)
{
	const struct queues *q = cache->state;
	struct xcache_entry *e = xcache_entry(cache, entry);
	if ((e->policy & IN_MASK) != IN_YOUNG && marks_of(e) < q->rules.marks_max)
		e->policy += MARK;
}

static uint32_t cut(struct xcache *cache, uint32_t entry)
{
	struct queues *q = cache->state;
	xcache_list_cut(cache, list_of(q, xcache_entry(cache, entry)), entry);
	return entry;
}

static uint32_t main_victim(struct xcache *cache, unsigned steps)
{
	struct queues *q = cache->state;
	for (;; steps++) {
		uint32_t entry = q->list[IN_MAIN].tail;
		if (entry == XCACHE_NONE)
			return entry;
		unsigned marks = marks_of(xcache_entry(cache, entry));
		if (marks == 0 || steps >= STEPS_MAX)
			return cut(cache, entry);
		move(cache, entry, IN_MAIN, marks - 1);
	}
}

uint32_t xcache_queue_victim(struct xcache *cache)
{
	struct queues *q = cache->state;
	q->filled = true;
	if (q->list[IN_MAIN].count > q->main_max)
		return main_victim(cache, 0);
	for (unsigned steps = 0;; steps++) {
		uint32_t entry = q->list[IN_OLD].tail;
		entry = entry == XCACHE_NONE ? q->list[IN_YOUNG].tail : entry;
		if (entry == XCACHE_NONE)
			return main_victim(cache, steps);
		const struct xcache_entry *e = xcache_entry(cache, entry);
		if (marks_of(e) < q->rules.marks_main || steps >= STEPS_MAX) {
			xcache_ghost_add(&q->ghost, hash_of(cache, e));
			return cut(cache, entry);
		}
		move(cache, entry, IN_MAIN, 0);
	}
}

void xcache_queue_remove(struct xcache *cache, uint32_t entry) { cut(cache, entry); }

void xcache_queue_back(struct xcache *cache, uint32_t entry)
{
	struct queues *q = cache->state;
	struct xcache_entry *e = xcache_entry(cache, entry);
	unsigned in = (e->policy & IN_MASK) == IN_MAIN ? IN_MAIN : IN_OLD;
	if (in == IN_OLD)
		xcache_ghost_take(&q->ghost, hash_of(cache, e));
	put(cache, entry, in, marks_of(e));
}

void xcache_queue_resize(struct xcache *cache, uint32_t entries)
{
	struct queues *q = cache->state;
	uint32_t small = (uint32_t)((uint64_t)entries * SMALL_PERCENT / 100);
	uint32_t ghost = (uint32_t)((uint64_t)entries * GHOST_PERCENT / 100);
	q->small_max = small;
	q->main_max = entries - small;
	q->young_max = (uint32_t)(((uint64_t)small * q->rules.window_percent + 99) / 100);
	if (ghost == q->ghost.limit)
		return;
	cache->policy_memory -= (size_t)q->ghost.sets * GHOST_WAYS * sizeof(uint32_t);
	xcache_ghost_limit(&q->ghost, ghost);
	cache->policy_memory += (size_t)q->ghost.sets * GHOST_WAYS * sizeof(uint32_t);
}

int xcache_queue_open(
	struct xcache *cache, uint32_t entries_max, const struct xcache_queue_rules *rules)
{
	struct queues *q = calloc(1, sizeof(*q));
	if (!q)
		return -ENOMEM;
	int error = xcache_ghost_open(&q->ghost, entries_max);
	if (error) {
		free(q);
		return error;
	}
	q->rules = *rules;
	for (unsigned i = 0; i <= IN_MASK; i++)
		xcache_list_init(&q->list[i]);
	cache->state = q;
	cache->policy_memory = sizeof(*q) + (size_t)q->ghost.sets * GHOST_WAYS * sizeof(uint32_t);
	xcache_queue_resize(cache, entries_max);
	return 0;
}

void xcache_queue_close(struct xcache *cache)
{
	struct queues *q = cache->state;
	xcache_ghost_close(&q->ghost);
	free(q);
	cache->state = NULL;
}
