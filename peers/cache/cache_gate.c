/* SPDX-License-Identifier: Apache-2.0 */
/* Who works on which part of an object, and who waits for it: in the order of asking. */
#include <base/must.h>

#include "peers/cache/cache.h"
#include "peers/cache/cache_object.h"

static bool overlaps(const struct cache_hold *a, const struct cache_hold *b)
{
	return a->first < b->first + b->count && b->first < a->first + a->count;
}

/* Must `later` wait for `earlier`, which is at work or waits itself? */
static bool conflicts(const struct cache_hold *earlier, const struct cache_hold *later)
{
	return overlaps(earlier, later) &&
	       (earlier->exclusive || later->exclusive || earlier->waiting);
}

static bool has_to_wait(const struct cache_object *object, const struct cache_hold *hold)
{
	const struct cache_hold *earlier;
	TAILQ_FOREACH (earlier, &object->holds, link) {
		if (earlier == hold)
			return false;
		if (conflicts(earlier, hold))
			return true;
	}
	return false;
}

bool cache_gate_free(
	const struct cache_object *object, uint32_t first, uint32_t count, bool exclusive)
{
	struct cache_hold hold = {.first = first, .count = count, .exclusive = exclusive};
	return !has_to_wait(object, &hold);
}

bool cache_gate_enter(struct peer *peer, struct cache_object *object, struct cache_hold *hold)
{
	must(!hold->entered && hold->count > 0);
	hold->object = object;
	hold->entered = true;
	hold->waiting = has_to_wait(object, hold);
	xcache_ref_object(cache_of(peer)->index, object->index);
	TAILQ_INSERT_TAIL(&object->holds, hold, link);
	return !hold->waiting;
}

/* The first of those waiting that need not any more. */
static struct cache_hold *next_to_go(struct cache_object *object)
{
	struct cache_hold *hold;
	TAILQ_FOREACH (hold, &object->holds, link)
		if (hold->waiting && !has_to_wait(object, hold))
			return hold;
	return NULL;
}

void cache_gate_leave(struct peer *peer, struct cache_hold *hold)
{
	struct cache_object *object = hold->object;
	struct cache_hold *next;
	must(hold->entered && !hold->waiting);
	hold->entered = false;
	TAILQ_REMOVE(&object->holds, hold, link);
	/* whoever goes on may leave at once, and end others' waiting while we are here */
	while ((next = next_to_go(object))) {
		next->waiting = false;
		next->go(peer, next);
	}
	xcache_unref_object(cache_of(peer)->index, object->index);
}
