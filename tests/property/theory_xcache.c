/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Law of the index: after any history of operations, refusals and limits, it says what a plain
 * table says, and no entry was lost from its policy's queues.
 */
#include <criterion/criterion.h>
#include <criterion/theories.h>
#include <errno.h>
#include <string.h>

#include "peers/cache/xcache.h"
#include "tests/lib/fixture.h"

#define ENTRIES 96u
#define OBJECTS 12u
#define KEYS 20u
#define BUCKETS 48u /* of each key, some close together, some far apart */

struct row {
	uint8_t state; /* enum xcache_state */
	uint32_t object, bucket;
};

struct model {
	struct xcache *cache;
	struct row row[ENTRIES];
	struct {
		bool there;
		uint32_t key, refs;
	} object[OBJECTS];
	uint32_t entry_limit, object_limit;
	uint64_t random;
	unsigned refuse; /* of 16 */
};

static const struct xcache_policy *const policies[] = {
	&xcache_lru, &xcache_s3fifo, &xcache_clock2q};

static unsigned any(struct model *m, unsigned below)
{
	return (unsigned)(random_next(&m->random) % below);
}

/* They are its owner's while it is parked or loose. */
static void mark_links(struct model *m, uint32_t entry)
{
	xcache_entry(m->cache, entry)->prev = xcache_entry(m->cache, entry)->next = 7;
}

static struct xseg_key key_of(uint32_t key)
{
	return (struct xseg_key){.volume = 1 + key % 3, .epoch = key % 2, .object = key / 6};
}

static uint32_t bucket_of(unsigned i) { return i < BUCKETS / 2 ? i : i * 21 % XCACHE_BUCKETS; }

/* --- what the index says to its owner ------------------------------------------------ */

static void on_object_init(void *owner, uint32_t object)
{
	struct model *m = owner;
	const struct xcache_object *o = xcache_object(m->cache, object);
	cr_assert(!m->object[object].there);
	cr_assert_eq(o->count + o->refs, 0);
	m->object[object].there = true;
	m->object[object].refs = 0;
	for (uint32_t key = 0; key < KEYS; key++) {
		struct xseg_key k = key_of(key);
		if (memcmp(&k, &o->key, sizeof(k)) == 0)
			m->object[object].key = key;
	}
}

static void on_object_free(void *owner, uint32_t object)
{
	struct model *m = owner;
	cr_assert(m->object[object].there);
	cr_assert_eq(m->object[object].refs, 0);
	for (uint32_t i = 0; i < ENTRIES; i++)
		cr_assert(m->row[i].state == XCACHE_FREE || m->row[i].object != object);
	m->object[object].there = false;
}

static bool on_evict(void *owner, uint32_t entry)
{
	struct model *m = owner;
	struct row *row = &m->row[entry];
	cr_assert_eq(row->state, XCACHE_IN);
	if (any(m, 16) < m->refuse) {
		if (any(m, 2)) {
			xcache_park(m->cache, entry);
			mark_links(m, entry);
			row->state = XCACHE_PARKED;
		}
		return false;
	}
	*row = (struct row){.state = XCACHE_FREE};
	return true;
}

static const struct xcache_hooks hooks = {on_object_init, on_object_free, on_evict};

/* --- operations ---------------------------------------------------------------------- */

/* An entry in one of these states, or ENTRIES. */
static uint32_t pick(struct model *m, unsigned states)
{
	uint32_t start = any(m, ENTRIES);
	for (uint32_t i = 0; i < ENTRIES; i++) {
		uint32_t entry = (start + i) % ENTRIES;
		if (states & 1u << m->row[entry].state)
			return entry;
	}
	return ENTRIES;
}

static uint32_t expected(const struct model *m, uint32_t object, uint32_t bucket)
{
	for (uint32_t i = 0; i < ENTRIES; i++)
		if (m->row[i].state != XCACHE_FREE && m->row[i].object == object &&
			m->row[i].bucket == bucket)
			return i;
	return XCACHE_NONE;
}

static void do_insert(struct model *m)
{
	struct xseg_key key = key_of(any(m, KEYS));
	uint32_t object, entry, bucket = bucket_of(any(m, BUCKETS));
	int error = xcache_get_object(m->cache, &key, &object);
	if (error) {
		cr_assert_eq(error, -ENOSPC);
		cr_assert_geq(xcache_object_count(m->cache), m->object_limit);
		cr_assert_eq(xcache_find_object(m->cache, &key), XCACHE_NONE);
		return;
	}
	uint32_t was = expected(m, object, bucket);
	unsigned state = was == XCACHE_NONE ? XCACHE_FREE : m->row[was].state;
	error = xcache_insert(m->cache, object, bucket, &entry);
	if (error == -ENOSPC) {
		cr_assert_eq(state, XCACHE_FREE);
		cr_assert_eq(xcache_room(m->cache), 0);
	} else if (error == -EEXIST) {
		cr_assert_eq(entry, was);
		cr_assert(state == XCACHE_IN || state == XCACHE_PARKED);
	} else {
		cr_assert_eq(error, 0);
		cr_assert_eq(state, XCACHE_FREE);
		cr_assert_eq(m->row[entry].state, XCACHE_FREE);
		m->row[entry] =
			(struct row){.state = XCACHE_IN, .object = object, .bucket = bucket};
	}
}

static void do_park(struct model *m, uint32_t entry)
{
	if (entry == ENTRIES)
		return;
	if (m->row[entry].state == XCACHE_IN) {
		m->row[entry].state = XCACHE_PARKED;
		xcache_park(m->cache, entry);
		mark_links(m, entry);
	} else {
		m->row[entry].state = XCACHE_IN;
		xcache_unpark(m->cache, entry);
	}
}

static void do_remove(struct model *m, uint32_t entry)
{
	if (entry == ENTRIES)
		return;
	m->row[entry] = (struct row){.state = XCACHE_FREE};
	xcache_remove(m->cache, entry);
}

static void do_loose(struct model *m)
{
	uint32_t entry;
	if (xcache_loose(m->cache, &entry) != 0) {
		cr_assert_eq(xcache_room(m->cache), 0);
		return;
	}
	cr_assert_eq(m->row[entry].state, XCACHE_FREE);
	m->row[entry] = (struct row){.state = XCACHE_LOOSE, .object = XCACHE_NONE};
}

static void do_loosen(struct model *m, uint32_t entry)
{
	if (entry == ENTRIES)
		return;
	m->row[entry].state = XCACHE_LOOSE;
	m->row[entry].object = XCACHE_NONE; /* which may go with it */
	xcache_loosen(m->cache, entry);
	cr_assert_eq(xcache_entry(m->cache, entry)->bucket, m->row[entry].bucket);
	cr_assert_eq(xcache_entry(m->cache, entry)->prev, 7);
}

static void do_object_ref(struct model *m)
{
	struct xseg_key key = key_of(any(m, KEYS));
	uint32_t object = xcache_find_object(m->cache, &key);
	if (object == XCACHE_NONE)
		return;
	if (m->object[object].refs < 2 && any(m, 3) == 0) {
		m->object[object].refs++;
		xcache_ref_object(m->cache, object);
	} else if (m->object[object].refs > 0) {
		m->object[object].refs--;
		xcache_unref_object(m->cache, object);
	}
}

static void do_limit(struct model *m)
{
	m->entry_limit = ENTRIES / 2 + any(m, ENTRIES / 2 + 1);
	m->object_limit = OBJECTS / 2 + any(m, OBJECTS / 2 + 1);
	xcache_limit(m->cache, m->object_limit, m->entry_limit);
}

/* All that are IN can be had from the policy, and nothing else can. */
static void do_drain(struct model *m)
{
	uint32_t in = 0, refuse = m->refuse;
	for (uint32_t i = 0; i < ENTRIES; i++)
		in += m->row[i].state == XCACHE_IN;
	m->refuse = 0;
	cr_assert_eq(xcache_evict(m->cache, ENTRIES), in);
	cr_assert_eq(pick(m, 1u << XCACHE_IN), ENTRIES);
	m->refuse = refuse;
}

static void step(struct model *m)
{
	const unsigned in = 1u << XCACHE_IN, parked = 1u << XCACHE_PARKED;
	const unsigned loose = 1u << XCACHE_LOOSE;
	uint32_t entry;
	switch (any(m, 40)) {
	case 0: do_remove(m, pick(m, in | parked | loose)); break;
	case 1: do_remove(m, pick(m, loose)); break;
	case 2: do_loose(m); break;
	case 7: do_park(m, pick(m, in)); break;
	case 8:
	case 9:
	case 10: do_park(m, pick(m, parked)); break;
	case 11:
	case 12: do_object_ref(m); break;
	case 13: xcache_evict(m->cache, any(m, 4)); break;
	case 14: do_loosen(m, pick(m, parked)); break;
	case 15:
	case 16:
	case 17:
	case 18:
		entry = pick(m, in | parked);
		if (entry != ENTRIES)
			xcache_hit(m->cache, entry);
		break;
	default: do_insert(m);
	}
}

/* --- is it the same? ----------------------------------------------------------------- */

static void check_object(struct model *m, uint32_t object)
{
	struct xseg_key key = key_of(m->object[object].key);
	const struct xcache_object *o = xcache_object(m->cache, object);
	uint32_t count = 0, parked = 0;
	for (uint32_t i = 0; i < ENTRIES; i++) {
		const struct row *row = &m->row[i];
		if (row->state == XCACHE_FREE || row->object != object)
			continue;
		count++;
		parked += row->state == XCACHE_PARKED;
	}
	cr_assert_eq(xcache_find_object(m->cache, &key), object);
	cr_assert_eq(o->count, count);
	cr_assert_eq(o->parked, parked);
	cr_assert_eq(o->refs, m->object[object].refs);
	for (unsigned i = 0; i < BUCKETS; i++)
		cr_assert_eq(xcache_lookup(m->cache, object, bucket_of(i)),
			expected(m, object, bucket_of(i)));
}

static void check(struct model *m)
{
	uint32_t count = 0, objects = 0, cursor = 0, object;
	for (uint32_t i = 0; i < ENTRIES; i++) {
		count += m->row[i].state != XCACHE_FREE;
		if (m->row[i].state == XCACHE_FREE)
			continue;
		cr_assert_eq(xcache_entry(m->cache, i)->state, m->row[i].state);
		cr_assert_eq(xcache_entry(m->cache, i)->object, m->row[i].object);
	}
	cr_assert_eq(xcache_count(m->cache), count);
	cr_assert_eq(xcache_room(m->cache), m->entry_limit > count ? m->entry_limit - count : 0);
	for (object = 0; object < OBJECTS; object++)
		objects += m->object[object].there;
	cr_assert_eq(xcache_object_count(m->cache), objects);
	while ((object = xcache_next_object(m->cache, &cursor)) != XCACHE_NONE) {
		cr_assert(m->object[object].there);
		check_object(m, object);
		objects--;
	}
	cr_assert_eq(objects, 0);
}

static void model_end(struct model *m)
{
	for (uint32_t i = 0; i < ENTRIES; i++)
		if (m->row[i].state != XCACHE_FREE)
			do_remove(m, i);
	for (uint32_t object = 0; object < OBJECTS; object++)
		while (m->object[object].refs) {
			m->object[object].refs--;
			xcache_unref_object(m->cache, object);
		}
	check(m);
	cr_assert_eq(xcache_count(m->cache), 0);
	xcache_close(m->cache);
}

TheoryDataPoints(xcache, same_as_a_table) = {
	DataPoints(unsigned, 0, 1, 2), /* policy */
	DataPoints(unsigned, 1, 2, 3, 4, 5, 6),
	DataPoints(unsigned, 0, 2, 8), /* of 16 evictions, so many are refused */
};

Theory((unsigned policy, unsigned seed, unsigned refuse), xcache, same_as_a_table)
{
	static struct model m;
	m = (struct model){.random = seed * 1000003u + policy * 101u + refuse,
		.refuse = refuse,
		.entry_limit = ENTRIES,
		.object_limit = OBJECTS};
	struct xcache_config config = {.objects_max = OBJECTS,
		.entries_max = ENTRIES,
		.policy = policies[policy],
		.hooks = &hooks,
		.owner = &m};
	cr_assert_eq(xcache_open(&m.cache, &config), 0);
	for (unsigned i = 0; i < 30000; i++) {
		step(&m);
		if (i % 50 == 0)
			check(&m);
		if (i % 1000 == 999)
			do_limit(&m);
		if (i % 2500 == 2499)
			do_drain(&m);
		if (i % 5000 == 4999)
			cr_assert_eq(xcache_set_policy(m.cache, policies[any(&m, 3)]), 0);
	}
	do_drain(&m);
	model_end(&m);
}
