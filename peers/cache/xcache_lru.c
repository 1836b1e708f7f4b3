/* SPDX-License-Identifier: Apache-2.0 */
/* Least recently used: one list, a hit moves to its head. */
#include <errno.h>
#include <stdlib.h>

#include "peers/cache/xcache_priv.h"

static int lru_open(struct xcache *cache, uint32_t entries_max)
{
	(void)entries_max;
	struct xcache_list *list = malloc(sizeof(*list));
	if (!list)
		return -ENOMEM;
	xcache_list_init(list);
	cache->state = list;
	cache->policy_memory = sizeof(*list);
	return 0;
}

static void lru_close(struct xcache *cache)
{
	free(cache->state);
	cache->state = NULL;
}

static void lru_insert(struct xcache *cache, uint32_t entry)
{
	xcache_list_push(cache, cache->state, entry);
}

static void lru_hit(struct xcache *cache, uint32_t entry)
{
	struct xcache_list *list = cache->state;
	if (xcache_entry(cache, entry)->state != XCACHE_IN || list->head == entry)
		return; /* parked: it comes back at the head */
	xcache_list_cut(cache, list, entry);
	xcache_list_push(cache, list, entry);
}

static uint32_t lru_victim(struct xcache *cache)
{
	struct xcache_list *list = cache->state;
	uint32_t entry = list->tail;
	if (entry != XCACHE_NONE)
		xcache_list_cut(cache, list, entry);
	return entry;
}

static void lru_remove(struct xcache *cache, uint32_t entry)
{
	xcache_list_cut(cache, cache->state, entry);
}

static void lru_resize(struct xcache *cache, uint32_t entries)
{
	(void)cache;
	(void)entries;
}

const struct xcache_policy xcache_lru = {
	.name = "lru",
	.open = lru_open,
	.close = lru_close,
	.insert = lru_insert,
	.hit = lru_hit,
	.victim = lru_victim,
	.remove = lru_remove,
	.back = lru_insert,
	.resize = lru_resize,
};
