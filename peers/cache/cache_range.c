/* SPDX-License-Identifier: Apache-2.0 */
/* Who works on which part of an object, and who waits for it: in the order of asking. */
#include <base/must.h>

#include "peers/cache/cache.h"
#include "peers/cache/cache_object.h"

static bool overlaps(const struct cache_range *a, const struct cache_range *b)
{
	return a->first < b->first + b->count && b->first < a->first + a->count;
}

/* Must `later` wait for `earlier`, which is at work or waits itself? */
static bool conflicts(const struct cache_range *earlier, const struct cache_range *later)
{
	return overlaps(earlier, later) &&
	       (earlier->exclusive || later->exclusive || earlier->waiting);
}

static bool has_to_wait(const struct cache_object *object, const struct cache_range *range)
{
	const struct cache_range *earlier;
	TAILQ_FOREACH (earlier, &object->ranges, link) {
		if (earlier == range)
			return false;
		if (conflicts(earlier, range))
			return true;
	}
	return false;
}

bool cache_range_is_free(
	const struct cache_object *object, uint32_t first, uint32_t count, bool exclusive)
{
	struct cache_range range = {.first = first, .count = count, .exclusive = exclusive};
	return !has_to_wait(object, &range);
}

bool cache_range_lock(struct peer *peer, struct cache_object *object, struct cache_range *range)
{
	must(!range->entered && range->count > 0);
	range->object = object;
	range->entered = true;
	range->waiting = has_to_wait(object, range);
	xcache_ref_object(cache_of(peer)->index, object->index);
	TAILQ_INSERT_TAIL(&object->ranges, range, link);
	return !range->waiting;
}

/* The first of those waiting that need not any more. */
static struct cache_range *next_to_go(struct cache_object *object)
{
	struct cache_range *range;
	TAILQ_FOREACH (range, &object->ranges, link)
		if (range->waiting && !has_to_wait(object, range))
			return range;
	return NULL;
}

void cache_range_unlock(struct peer *peer, struct cache_range *range)
{
	struct cache_object *object = range->object;
	struct cache_range *next;
	must(range->entered && !range->waiting);
	range->entered = false;
	TAILQ_REMOVE(&object->ranges, range, link);
	/* whoever goes on may leave at once, and end others' waiting while we are here */
	while ((next = next_to_go(object))) {
		next->waiting = false;
		next->go(peer, next);
	}
	xcache_unref_object(cache_of(peer)->index, object->index);
}
