/* SPDX-License-Identifier: Apache-2.0 */
/* The index: who goes, who may not, what the owner is told and when, and what it costs. */
#include <errno.h>
#include <malloc.h>
#include <string.h>

#include "peers/cache/xcache_priv.h"
#include "tests/lib/unit.h"

static const struct xcache_policy *const policies[] = {
	&xcache_lru, &xcache_s3fifo, &xcache_clock2q};

static struct xseg_key key_of(uint32_t number)
{
	return (struct xseg_key){.volume = 5, .object = number};
}

/* --- an owner that writes down what it is told --------------------------------------- */

struct owner {
	struct xcache *cache;
	char said[200];
	uint32_t refuse, park; /* buckets that must not go */
};

static void say(struct owner *owner, const char *what, uint32_t number)
{
	size_t length = strlen(owner->said);
	snprintf(owner->said + length, sizeof(owner->said) - length, "%s%s%u", length ? " " : "",
		what, number);
}

static void say_object(void *owner, const char *what, uint32_t object)
{
	say(owner, what, xcache_object(((struct owner *)owner)->cache, object)->key.object);
}

static void on_object_init(void *owner, uint32_t object) { say_object(owner, "made", object); }
static void on_object_free(void *owner, uint32_t object) { say_object(owner, "ended", object); }

static bool on_evict(void *owner, uint32_t entry)
{
	struct owner *o = owner;
	uint32_t bucket = xcache_entry(o->cache, entry)->bucket;
	say(o, "evict", bucket);
	if (bucket == o->park)
		xcache_park(o->cache, entry);
	return bucket != o->park && bucket != o->refuse;
}

static const struct xcache_hooks hooks = {on_object_init, on_object_free, on_evict};

static struct xcache *open_silent(
	const struct xcache_policy *policy, uint32_t objects, uint32_t entries)
{
	struct xcache *cache;
	struct xcache_config config = {
		.objects_max = objects, .entries_max = entries, .policy = policy};
	ck_assert_int_eq(xcache_open(&cache, &config), 0);
	return cache;
}

static void open_with(struct owner *owner, uint32_t objects, uint32_t entries)
{
	struct xcache_config config = {.objects_max = objects,
		.entries_max = entries,
		.policy = &xcache_lru,
		.hooks = &hooks,
		.owner = owner};
	*owner = (struct owner){.refuse = XCACHE_NONE, .park = XCACHE_NONE};
	ck_assert_int_eq(xcache_open(&owner->cache, &config), 0);
}

static void ck_said(struct owner *owner, const char *what)
{
	ck_assert_str_eq(owner->said, what);
	owner->said[0] = 0;
}

static uint32_t put_in(struct xcache *cache, uint32_t object, uint32_t bucket)
{
	struct xseg_key key = key_of(object);
	uint32_t index, entry;
	ck_assert_int_eq(xcache_get_object(cache, &key, &index), 0);
	ck_assert_int_eq(xcache_insert(cache, index, bucket, &entry), 0);
	return entry;
}

static bool is_there(struct xcache *cache, uint32_t object, uint32_t bucket)
{
	struct xseg_key key = key_of(object);
	uint32_t index = xcache_find_object(cache, &key);
	return index != XCACHE_NONE && xcache_lookup(cache, index, bucket) != XCACHE_NONE;
}

/* --- the life of an entry ------------------------------------------------------------ */

UNIT(evicted)
{
	struct owner o;
	open_with(&o, 4, 2);
	put_in(o.cache, 1, 10);
	uint32_t second = put_in(o.cache, 1, 11);
	ck_said(&o, "made1");
	put_in(o.cache, 2, 12);
	ck_said(&o, "made2 evict10");
	ck_assert_uint_eq(xcache_evict(o.cache, 1), 1);
	ck_said(&o, "evict11 ended1");
	ck_assert_uint_eq(xcache_entry(o.cache, second)->state, XCACHE_FREE);
	ck_assert(!is_there(o.cache, 1, 11));
	ck_assert_uint_eq(xcache_count(o.cache), 1);
	xcache_close(o.cache);
}

/* What is removed is not asked about. */
UNIT(removed)
{
	struct owner o;
	open_with(&o, 4, 3);
	uint32_t in = put_in(o.cache, 1, 10), parked = put_in(o.cache, 1, 11), loose;
	xcache_park(o.cache, parked);
	ck_assert_int_eq(xcache_loose(o.cache, &loose), 0);
	ck_assert_uint_eq(xcache_entry(o.cache, loose)->object, XCACHE_NONE);
	ck_assert_uint_eq(xcache_room(o.cache), 0);
	ck_said(&o, "made1");
	xcache_remove(o.cache, in);
	xcache_remove(o.cache, loose);
	ck_assert_uint_eq(xcache_count(o.cache), 1);
	ck_said(&o, "");
	xcache_remove(o.cache, parked);
	ck_said(&o, "ended1");
	ck_assert_uint_eq(xcache_room(o.cache), 3);
	xcache_close(o.cache);
}

UNIT(refused)
{
	struct owner o;
	open_with(&o, 4, 3);
	put_in(o.cache, 1, 10);
	put_in(o.cache, 1, 11);
	put_in(o.cache, 1, 12);
	o.said[0] = 0;
	o.refuse = 10;
	o.park = 11;
	put_in(o.cache, 1, 13);
	ck_said(&o, "evict10 evict11 evict12");
	put_in(o.cache, 1, 14); /* the refused one stands behind 13 no more */
	ck_said(&o, "evict10 evict13");
	o.refuse = 14;
	ck_assert_uint_eq(xcache_evict(o.cache, 9), 1);
	ck_assert(is_there(o.cache, 1, 11));
	ck_assert(is_there(o.cache, 1, 14));
	xcache_close(o.cache);
}

/* All policies: what is parked stays, and nothing fits beside it. */
UNIT(parked)
{
	for (unsigned p = 0; p < countof(policies); p++) {
		struct xcache *cache = open_silent(policies[p], 4, 20);
		uint32_t entries[20], none;
		for (uint32_t i = 0; i < 20; i++) {
			entries[i] = put_in(cache, 1, i);
			xcache_park(cache, entries[i]);
		}
		ck_assert_int_eq(xcache_insert(cache, 0, 20, &none), -ENOSPC);
		ck_assert_int_eq(xcache_loose(cache, &none), -ENOSPC);
		ck_assert_uint_eq(xcache_evict(cache, 20), 0);
		xcache_hit(cache, entries[3]);
		xcache_unpark(cache, entries[3]);
		ck_assert_int_eq(xcache_insert(cache, 0, 20, &none), 0);
		ck_assert(!is_there(cache, 1, 3));
		ck_assert_uint_eq(xcache_count(cache), 20);
		xcache_close(cache);
	}
}

/* --- objects ------------------------------------------------------------------------- */

/* Many at once: found, parked or in the queues, up to one whose place is taken or to the limit. */
UNIT_LOOP(adopted, 3)
{
	static const uint16_t at[] = {0, 1, 2, 3, 4, 5, 6, 7, 40, 42, 41, 800, 801, 9, 1};
	struct xcache_found found[sizeof(at) / sizeof(at[0])];
	uint32_t object, first, count = sizeof(at) / sizeof(at[0]);
	for (uint32_t i = 0; i < count; i++)
		found[i] = (struct xcache_found){.page = 70 + i, .bucket = at[i], .valid = 9};
	for (unsigned park = 0; park < 2; park++) {
		struct xcache *cache = open_silent(policies[_i], 4, 20);
		struct xseg_key key = key_of(1);
		ck_assert_int_eq(xcache_get_object(cache, &key, &object), 0);
		xcache_ref_object(cache, object);
		xcache_expect(cache, 20);
		ck_assert_uint_eq(xcache_adopt(cache, object, found, 10, park, 7, &first), 10);
		ck_assert_uint_eq(xcache_adopt(cache, object, found + 10, 5, park, 7, &first), 4);
		ck_assert_uint_eq(first, 10);
		ck_assert_uint_eq(xcache_count(cache), 14);
		ck_assert_uint_eq(xcache_object(cache, object)->count, 14);
		ck_assert_uint_eq(xcache_object(cache, object)->parked, park ? 14 : 0);
		for (uint32_t i = 0; i < 14; i++) {
			uint32_t entry = xcache_lookup(cache, object, at[i]);
			const struct xcache_entry *e = xcache_entry(cache, entry);
			ck_assert_uint_eq(entry, i);
			ck_assert(e->page == 70 + i && e->bucket == at[i] && e->word == 7);
			ck_assert(e->valid == 9 && e->object == object);
			ck_assert_uint_eq(e->state, park ? XCACHE_PARKED : XCACHE_IN);
			ck_assert(!park || e->prev == (i % 10 ? i - 1 : XCACHE_NONE));
			ck_assert(!park || e->next == (i == 9 || i == 13 ? XCACHE_NONE : i + 1));
		}
		ck_assert_uint_eq(xcache_lookup(cache, object, 8), XCACHE_NONE);
		/* only as many as there is room for; none when some have gone: one by one then */
		xcache_limit(cache, 4, 16);
		key = key_of(2);
		ck_assert_int_eq(xcache_get_object(cache, &key, &object), 0);
		ck_assert_uint_eq(xcache_adopt(cache, object, found, 10, park, 7, &first), 2);
		ck_assert_uint_eq(xcache_evict(cache, 3), park ? 0 : 3);
		xcache_remove(cache, first);
		ck_assert_uint_eq(xcache_adopt(cache, object, found, 1, park, 7, &first), 0);
		for (uint32_t i = 0; i < 16; i++)
			if (xcache_entry(cache, i)->state != XCACHE_FREE)
				xcache_remove(cache, i);
		ck_assert_uint_eq(xcache_count(cache), 0);
		xcache_close(cache);
	}
}

UNIT(oldest_object_goes)
{
	struct owner o;
	struct xseg_key key = key_of(4);
	uint32_t object;
	open_with(&o, 3, 100);
	for (uint32_t i = 1; i <= 3; i++)
		for (uint32_t bucket = 0; bucket < 2; bucket++)
			put_in(o.cache, i, 10 * i + bucket);
	put_in(o.cache, 1, 12);
	o.said[0] = 0;
	ck_assert_int_eq(xcache_get_object(o.cache, &key, &object), 0);
	ck_said(&o, "evict20 evict21 ended2 made4");
	xcache_close(o.cache);
}

UNIT(objects_that_cannot_go)
{
	struct owner o;
	struct xseg_key key = key_of(9);
	uint32_t object, entries[4];
	open_with(&o, 4, 100);
	for (uint32_t i = 0; i < 4; i++)
		entries[i] = put_in(o.cache, i, 10 + i);
	xcache_park(o.cache, entries[0]);
	xcache_park(o.cache, entries[1]);
	xcache_ref_object(o.cache, 2);
	o.refuse = 13;
	o.said[0] = 0;
	ck_assert_int_eq(xcache_get_object(o.cache, &key, &object), -ENOSPC);
	ck_assert_uint_eq(xcache_object_count(o.cache), 4);
	o.refuse = XCACHE_NONE;
	o.said[0] = 0;
	ck_assert_int_eq(xcache_get_object(o.cache, &key, &object), 0);
	ck_said(&o, "evict13 ended3 made9");
	xcache_close(o.cache);
}

/* Held objects at the old end do not stand before those that can go for ever. */
UNIT(objects_held)
{
	struct xcache *cache = open_silent(&xcache_lru, 40, 100);
	for (uint32_t i = 0; i < 40; i++) {
		struct xseg_key key = key_of(i);
		uint32_t object;
		put_in(cache, i, 1);
		ck_assert_int_eq(xcache_get_object(cache, &key, &object), 0);
		if (i < 30)
			xcache_ref_object(cache, object);
	}
	unsigned made = 0;
	for (uint32_t i = 0; i < 20; i++) {
		struct xseg_key key = key_of(100 + made);
		uint32_t object;
		int error = xcache_get_object(cache, &key, &object);
		ck_assert(error == 0 || error == -ENOSPC);
		made += error == 0;
	}
	ck_assert_uint_ge(made, 10);
	ck_assert_uint_eq(xcache_object_count(cache), 40);
	xcache_close(cache);
}

/* Beyond the limit nobody goes; to be one of those that count it needs room like any other. */
UNIT(objects_beyond)
{
	struct xcache *cache = open_silent(&xcache_lru, 6, 100);
	struct xseg_key key;
	uint32_t object, held[2];
	xcache_limit(cache, 4, 100);
	for (uint32_t i = 0; i < 4; i++)
		xcache_park(cache, put_in(cache, i, 1));
	for (uint32_t i = 0; i < 2; i++) {
		key = key_of(10 + i);
		ck_assert_int_eq(xcache_get_object(cache, &key, &object), -ENOSPC);
		ck_assert_int_eq(xcache_hold_object(cache, &key, &held[i]), 0);
		ck_assert_uint_eq(xcache_find_object(cache, &key), held[i]);
		ck_assert_int_eq(xcache_get_object(cache, &key, &object), -ENOSPC);
	}
	ck_assert_uint_eq(xcache_object_count(cache), 4);
	key = key_of(12);
	ck_assert_int_eq(xcache_hold_object(cache, &key, &object), -ENOSPC);
	xcache_unref_object(cache, held[0]);
	key = key_of(10);
	ck_assert_uint_eq(xcache_find_object(cache, &key), XCACHE_NONE);
	/* one goes: the other one takes its place among the four, and may have entries */
	key = key_of(0);
	uint32_t first = xcache_find_object(cache, &key);
	xcache_unpark(cache, xcache_lookup(cache, first, 1));
	key = key_of(11);
	ck_assert_int_eq(xcache_get_object(cache, &key, &object), 0);
	ck_assert_uint_eq(object, held[1]);
	ck_assert_uint_eq(xcache_object_count(cache), 4);
	put_in(cache, 11, 2);
	xcache_unref_object(cache, object);
	ck_assert_uint_eq(xcache_find_object(cache, &key), object);
	/* all that it was opened for: not one more, even where the limit would allow it */
	xcache_limit(cache, 6, 100);
	for (uint32_t i = 20; i < 22; i++) {
		key = key_of(i);
		ck_assert_int_eq(xcache_hold_object(cache, &key, &object), 0);
	}
	key = key_of(22);
	ck_assert_int_eq(xcache_get_object(cache, &key, &object), -ENOSPC);
	xcache_close(cache);
}

/* Every bucket of an object, in and out in other orders: groups change their form on the way. */
UNIT(whole_object)
{
	struct xcache *cache = open_silent(&xcache_lru, 1, XCACHE_BUCKETS);
	uint32_t entries[XCACHE_BUCKETS];
	for (uint32_t round = 0; round < 3; round++) {
		for (uint32_t i = 0; i < XCACHE_BUCKETS; i++) {
			uint32_t bucket = i * 389 % XCACHE_BUCKETS;
			entries[bucket] = put_in(cache, 1, bucket);
		}
		for (uint32_t i = 0; i < XCACHE_BUCKETS; i++)
			ck_assert_uint_eq(xcache_lookup(cache, 0, i), entries[i]);
		for (uint32_t i = 0; i < XCACHE_BUCKETS; i++) {
			uint32_t bucket = i * 613 % XCACHE_BUCKETS;
			xcache_remove(cache, entries[bucket]);
			entries[bucket] = XCACHE_NONE;
			for (uint32_t k = bucket & ~15u;
				i + 1 < XCACHE_BUCKETS && k <= (bucket | 15); k++)
				ck_assert_uint_eq(xcache_lookup(cache, 0, k), entries[k]);
		}
		ck_assert_uint_eq(xcache_object_count(cache), 0);
	}
	xcache_close(cache);
}

/* --- limits -------------------------------------------------------------------------- */

UNIT(limits_move)
{
	for (unsigned p = 0; p < countof(policies); p++) {
		struct xcache *cache = open_silent(policies[p], 100, 1000);
		for (uint32_t i = 0; i < 1000; i++)
			put_in(cache, i / 10, i % 10);
		xcache_limit(cache, 100, 400);
		ck_assert_uint_eq(xcache_count(cache), 1000);
		ck_assert_uint_eq(xcache_room(cache), 0);
		/* it fits while the limit is neared, and never grows */
		for (uint32_t i = 0; i < 100; i++) {
			uint32_t before = xcache_count(cache);
			put_in(cache, i, 20);
			ck_assert_uint_le(xcache_count(cache), before);
		}
		ck_assert_uint_eq(xcache_count(cache), 400);
		xcache_limit(cache, 100, 100);
		ck_assert_uint_eq(xcache_evict(cache, 350), 350);
		ck_assert_uint_eq(xcache_room(cache), 50);
		xcache_limit(cache, 100, 5000);
		ck_assert_uint_eq(xcache_room(cache), 950);
		xcache_close(cache);
	}
}

UNIT(policy_changes)
{
	struct xcache *cache = open_silent(policies[0], 100, 1000);
	for (uint32_t i = 0; i < 1000; i++) {
		uint32_t entry = put_in(cache, i / 10, i % 10);
		if (i % 10 == 0)
			xcache_park(cache, entry);
	}
	for (unsigned p = 1; p <= countof(policies); p++) {
		ck_assert_int_eq(xcache_set_policy(cache, policies[p % countof(policies)]), 0);
		ck_assert_uint_eq(xcache_count(cache), 1000);
		put_in(cache, 10, 20 + p); /* one goes for it */
	}
	ck_assert_uint_eq(xcache_evict(cache, 1000), 900);
	for (uint32_t i = 0; i < 1000; i += 10)
		xcache_unpark(cache, xcache_lookup(cache, i / 10, 0));
	ck_assert_uint_eq(xcache_evict(cache, 1000), 100);
	xcache_close(cache);
}

/* --- what policies do ---------------------------------------------------------------- */

static void lookup_hit(struct xcache *cache, uint32_t number)
{
	struct xseg_key key = key_of(number / XCACHE_BUCKETS);
	uint32_t object = xcache_find_object(cache, &key);
	uint32_t entry = xcache_lookup(cache, object, number % XCACHE_BUCKETS);
	ck_assert_uint_ne(entry, XCACHE_NONE);
	xcache_hit(cache, entry);
}

static uint32_t count_there(struct xcache *cache, uint32_t count)
{
	uint32_t there = 0;
	for (uint32_t i = 0; i < count; i++)
		there += is_there(cache, i / XCACHE_BUCKETS, i % XCACHE_BUCKETS);
	return there;
}

/* A scan of ten times the size: what was asked for before it stays, but for LRU. */
UNIT(scan)
{
	static const uint32_t hot = 400, size = 1000;
	uint32_t left[countof(policies)];
	for (unsigned p = 0; p < countof(policies); p++) {
		struct xcache *cache = open_silent(policies[p], 100, size);
		for (uint32_t i = 0; i < size; i++)
			put_in(cache, i / XCACHE_BUCKETS, i % XCACHE_BUCKETS);
		for (uint32_t round = 0; round < 3; round++)
			for (uint32_t i = 200; i < 200 + hot; i++)
				lookup_hit(cache, i);
		for (uint32_t i = 0; i < 10 * size; i++)
			put_in(cache, 20 + i / XCACHE_BUCKETS, i % XCACHE_BUCKETS);
		left[p] = count_there(cache, size);
		xcache_close(cache);
	}
	ck_assert_uint_eq(left[0], 0);
	ck_assert_uint_ge(left[1], hot);
	ck_assert_uint_ge(left[2], hot);
}

/* Clock2Q+: a hit on what came in just now says nothing, a later one does. */
UNIT(window)
{
	struct xcache *cache = open_silent(&xcache_clock2q, 100, 1000);
	uint32_t entry;
	for (uint32_t i = 0; i < 1000; i++)
		put_in(cache, 1, i);
	for (uint32_t i = 0; i < 100; i++) /* the small queue turns over */
		put_in(cache, 2, i);
	entry = put_in(cache, 3, 0);
	xcache_hit(cache, entry);
	for (uint32_t i = 0; i < 60; i++)
		put_in(cache, 4, i);
	entry = put_in(cache, 3, 1);
	for (uint32_t i = 0; i < 60; i++)
		put_in(cache, 5, i);
	xcache_hit(cache, entry);
	for (uint32_t i = 0; i < 200; i++)
		put_in(cache, 6, i);
	ck_assert(!is_there(cache, 3, 0));
	ck_assert(is_there(cache, 3, 1));
	xcache_close(cache);
}

/* What comes again soon after it went does not have to pass through the small queue again. */
UNIT(ghosts)
{
	for (unsigned p = 1; p < countof(policies); p++) {
		struct xcache *cache = open_silent(policies[p], 100, 1000);
		for (uint32_t i = 0; i < 1500; i++)
			put_in(cache, i / XCACHE_BUCKETS, i % XCACHE_BUCKETS);
		ck_assert(!is_there(cache, 0, 50));
		put_in(cache, 0, 50);
		for (uint32_t i = 0; i < 300; i++)
			put_in(cache, 30, i);
		ck_assert(is_there(cache, 0, 50));
		xcache_close(cache);
	}
}

#define GHOSTS 60000u

static uint64_t hash_of(uint64_t number) { return random_next(&number); }

/* Which ones an exact queue would hold: the last `limit` of those not taken. */
static uint32_t oldest_of(const bool *taken, uint32_t limit)
{
	uint32_t oldest = GHOSTS;
	while (oldest > 0 && limit > 0)
		limit -= !taken[--oldest];
	return oldest;
}

/* Like an exact queue, a few percent aside, also when its clock has gone round many times. */
UNIT(ghosts_in_order)
{
	for (unsigned take_percent = 0; take_percent <= 60; take_percent += 30) {
		static struct xcache_ghost ghost;
		static bool taken[GHOSTS];
		const uint32_t limit = 1000;
		uint64_t seed = take_percent;
		memset(taken, 0, sizeof(taken));
		ck_assert_int_eq(xcache_ghost_open(&ghost, limit), 0);
		for (uint32_t i = 0; i < GHOSTS; i++) {
			xcache_ghost_add(&ghost, hash_of(i));
			uint32_t back = (uint32_t)(random_next(&seed) % 300);
			if (random_next(&seed) % 100 < take_percent && back <= i &&
				!taken[i - back])
				taken[i - back] = xcache_ghost_take(&ghost, hash_of(i - back));
			ck_assert_uint_le(ghost.live, limit);
		}
		uint32_t oldest = oldest_of(taken, limit), found = 0, wrong = 0, margin = 60;
		for (uint32_t i = oldest + margin; i < GHOSTS; i++)
			found += taken[i] || xcache_ghost_take(&ghost, hash_of(i));
		for (uint32_t i = 0; i < oldest - margin; i++)
			wrong += xcache_ghost_take(&ghost, hash_of(i));
		ck_assert_uint_ge(found * 100, (GHOSTS - oldest - margin) * 95);
		ck_assert_uint_le(wrong, 10);
		xcache_ghost_close(&ghost);
	}
}

/* --- what it costs ------------------------------------------------------------------- */

#define DENSE_ENTRIES 100000u

/* At random places of each object, as many as recorded traces have there. */
static double bytes_of_bucket(const struct xcache_policy *policy, uint32_t density)
{
	uint32_t objects = DENSE_ENTRIES / density, entry;
	uint64_t seed = density;
	struct xcache *cache = open_silent(policy, objects, DENSE_ENTRIES);
	for (uint32_t i = 0; i < objects; i++) {
		struct xseg_key key = key_of(i);
		uint32_t object;
		ck_assert_int_eq(xcache_get_object(cache, &key, &object), 0);
		while (xcache_object(cache, object)->count < density)
			xcache_insert(cache, object,
				(uint32_t)(random_next(&seed) % XCACHE_BUCKETS), &entry);
	}
	/* a while of use: not only what is freshly filled counts */
	for (uint32_t i = 0; i < DENSE_ENTRIES; i++) {
		struct xseg_key key = key_of((uint32_t)(random_next(&seed) % objects));
		uint32_t object;
		ck_assert_int_eq(xcache_get_object(cache, &key, &object), 0);
		xcache_insert(
			cache, object, (uint32_t)(random_next(&seed) % XCACHE_BUCKETS), &entry);
	}
	double bytes = (double)xcache_memory(cache) / xcache_count(cache);
	xcache_close(cache);
	return bytes;
}

UNIT(memory)
{
	static const uint32_t densities[] = {205, 256, 372, 1024};
	for (unsigned p = 0; p < countof(policies); p++)
		for (unsigned d = 0; d < countof(densities); d++) {
			/* the descriptor in the segment has 32 */
			double bytes = 32 + bytes_of_bucket(policies[p], densities[d]);
			printf("# %s, %u buckets an object: %.1f bytes, %.2f %%\n",
				policies[p]->name, densities[d], bytes, 100 * bytes / XSEG_PAGE);
			ck_assert_double_le(bytes, 0.02 * XSEG_PAGE);
		}
}

UNIT(nothing_allocated)
{
	for (unsigned p = 0; p < countof(policies); p++) {
		struct xcache *cache = open_silent(policies[p], 50, 5000);
		struct mallinfo2 before = mallinfo2();
		for (uint32_t i = 0; i < 50000; i++)
			put_in(cache, i / 700, i % 700);
		struct mallinfo2 after = mallinfo2();
		ck_assert_uint_eq(before.uordblks, after.uordblks);
		ck_assert_uint_eq(before.hblkhd, after.hblkhd);
		xcache_close(cache);
	}
}

/* All are marked: the one that has to go is found all the same before all have been looked at. */
UNIT(bounded)
{
	static const uint32_t size = 60000, steps = 1024;
	for (unsigned p = 1; p < countof(policies); p++) {
		struct xcache *cache = open_silent(policies[p], 100, size);
		uint8_t *marks = malloc(size);
		for (uint32_t i = 0; i < size; i++)
			put_in(cache, i / XCACHE_BUCKETS, i % XCACHE_BUCKETS);
		for (uint32_t i = 0; i < 3 * size; i++)
			lookup_hit(cache, i % size);
		/* from the small queue, then from the main one */
		for (unsigned queue = 0; queue < 2; queue++) {
			uint32_t changed = 0;
			for (uint32_t i = 0; i < size; i++)
				marks[i] = xcache_entry(cache, i)->policy;
			ck_assert_uint_eq(xcache_evict(cache, 1), 1);
			for (uint32_t i = 0; i < size; i++)
				changed += marks[i] != xcache_entry(cache, i)->policy;
			ck_assert_uint_ge(changed, steps / 2);
			ck_assert_uint_le(changed, steps + 1);
		}
		free(marks);
		xcache_close(cache);
	}
}
