/* SPDX-License-Identifier: Apache-2.0 */
/* The range lock: who may work on which part of an object, and that nobody passes who waits. */
#include <string.h>

#include "peers/cache/cache.h"
#include "peers/cache/cache_work.h"
#include "tests/lib/unit.h"

static struct cache cache;
static struct cache_object object;
static struct peer peer = {.state = &cache};
static struct cache_range ranges[8];
static char order[16]; /* who was let in after a wait */

static void init(void *owner, uint32_t index)
{
	(void)owner;
	object = (struct cache_object){.index = index};
	TAILQ_INIT(&object.ranges);
	xcache_object(cache.index, index)->owner = &object;
}

static const struct xcache_hooks hooks = {.object_init = init};

static void setup(void)
{
	const struct xcache_config config = {
		.objects_max = 4, .entries_max = 16, .policy = &xcache_lru, .hooks = &hooks};
	const struct xseg_key key = {.volume = 1};
	uint32_t index;
	ck_assert_int_eq(xcache_open(&cache.index, &config), 0);
	ck_assert_int_eq(xcache_get_object(cache.index, &key, &index), 0);
	memset(ranges, 0, sizeof(ranges));
	order[0] = '\0';
}

static void entry(struct peer *p, struct cache_range *range)
{
	ck_assert_ptr_eq(p, &peer);
	size_t length = strlen(order);
	order[length] = (char)('0' + (range - ranges));
	order[length + 1] = '\0';
}

static void note_and_leave(struct peer *p, struct cache_range *range)
{
	entry(p, range);
	cache_range_unlock(p, range);
}

static bool enter(unsigned i, uint32_t first, uint32_t count, bool exclusive)
{
	ranges[i] = (struct cache_range){
		.first = first, .count = count, .exclusive = exclusive, .go = entry};
	return cache_range_lock(&peer, &object, &ranges[i]);
}

static void leave(unsigned i) { cache_range_unlock(&peer, &ranges[i]); }

UNIT(test_shared)
{
	setup();
	ck_assert(enter(0, 0, 4, false));
	ck_assert(enter(1, 2, 4, false));
	ck_assert(cache_range_is_free(&object, 3, 1, false));
	ck_assert(!cache_range_is_free(&object, 3, 1, true));
	ck_assert(cache_range_is_free(&object, 6, 9, true));
	leave(0);
	ck_assert(!cache_range_is_free(&object, 3, 1, true));
	leave(1);
	ck_assert(xcache_find_object(cache.index, &(struct xseg_key){.volume = 1}) == XCACHE_NONE);
	xcache_close(cache.index);
}

UNIT(test_exclusive)
{
	setup();
	ck_assert(enter(0, 10, 2, true));
	ck_assert(enter(1, 12, 2, true));
	ck_assert(enter(2, 0, 10, false));
	ck_assert(!cache_range_is_free(&object, 11, 1, false));
	ck_assert(!enter(3, 9, 2, false));
	leave(2);
	ck_assert_str_eq(order, "");
	leave(0);
	ck_assert_str_eq(order, "3");
	leave(1);
	leave(3);
	xcache_close(cache.index);
}

/* A shared one behind an exclusive one that waits does not overtake it, one beside it does. */
UNIT(test_order)
{
	setup();
	ck_assert(enter(0, 0, 4, false));
	ck_assert(!enter(1, 2, 4, true));
	ck_assert(!enter(2, 3, 1, false));
	ck_assert(!cache_range_is_free(&object, 5, 1, false));
	ck_assert(enter(3, 0, 2, false));
	ck_assert(!enter(4, 5, 1, true));
	leave(0);
	ck_assert_str_eq(order, "1");
	leave(3);
	ck_assert_str_eq(order, "1");
	leave(1);
	ck_assert_str_eq(order, "124");
	leave(2);
	leave(4);
	xcache_close(cache.index);
}

/* Those let in leave at once: each lets the next one in, and none is called twice. */
UNIT(test_chain)
{
	setup();
	ck_assert(enter(0, 0, 1, true));
	for (unsigned i = 1; i < 6; i++) {
		ranges[i] =
			(struct cache_range){.count = 1, .exclusive = true, .go = note_and_leave};
		ck_assert(!cache_range_lock(&peer, &object, &ranges[i]));
	}
	leave(0);
	ck_assert_str_eq(order, "12345");
	ck_assert_uint_eq(xcache_object_count(cache.index), 0);
	xcache_close(cache.index);
}
