/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a start makes of the pages that are kept. Between two runs their descriptors are written
 * anew, as a kill could have left them: dirty in some epochs, twice for one bucket, under two
 * records of one object, of more objects than there is room for.
 */
#include <errno.h>
#include <string.h>
#include <unistd.h>
#include <xseg/page.h>

#include "peers/cache/cache.h"
#include "peers/cache/cache_work.h"
#include "tests/unit/cache_rig.h"

#define LATE ",age=1h,epoch=1h" /* nothing is written back unless somebody asks for it */
#define OBJECTS 8u
#define BUCKETS (CRIG_BYTES / XSEG_PAGE)
#define RECORD_FAR 4096u /* beyond the table of batches */

/* As cache_meta.c lays them out. */
struct record {
	struct xseg_key key;
	uint32_t state, next;
	uint64_t reserved;
};
fixed(sizeof(struct record) * CACHE_META_RECORDS == XSEG_PAGE);

static uint8_t value_of(uint32_t object, uint32_t bucket)
{
	return (uint8_t)(1 + object * BUCKETS + bucket);
}

/* All buckets of some objects, clean; nobody serves them. */
static void begin(struct crig *crig, int loop)
{
	crig_begin(crig, (unsigned)loop + 1, LATE);
	for (uint32_t object = 0; object < OBJECTS; object++)
		for (uint32_t i = 0; i < BUCKETS; i++)
			ck_assert_int_eq(crig_write(crig, object, i * XSEG_PAGE, XSEG_PAGE,
						 value_of(object, i), 0),
				0);
	rig_halt(&crig->rig);
}

/* --- what is kept ------------------------------------------------------------------------- */

static struct xseg_page_descriptor *about(struct crig *crig, uint32_t page)
{
	return &crig->rig.seg.descriptors[page];
}

static void *memory(struct crig *crig, uint32_t page)
{
	return crig->rig.seg.pages + (size_t)page * XSEG_PAGE;
}

/* The page of records with that ordinal. */
static struct record *records(struct crig *crig, uint32_t ordinal)
{
	uint32_t cursor = 0, page;
	while ((page = xseg_page_next_kept(&crig->rig.seg, XSEG_NONE, &cursor)) != XSEG_NONE)
		if (about(crig, page)->bucket == CACHE_META_BUCKET &&
			about(crig, page)->object == ordinal)
			return memory(crig, page);
	return NULL;
}

static const struct record *record_of(struct crig *crig, uint32_t page)
{
	uint32_t record = about(crig, page)->object;
	return records(crig, record / CACHE_META_RECORDS) + record % CACHE_META_RECORDS;
}

/* The next page of a bucket. */
static uint32_t next_page(struct crig *crig, uint32_t *cursor)
{
	uint32_t page;
	do
		page = xseg_page_next_kept(&crig->rig.seg, XSEG_NONE, cursor);
	while (page != XSEG_NONE && about(crig, page)->bucket == CACHE_META_BUCKET);
	return page;
}

static uint32_t page_of(struct crig *crig, uint32_t object, uint32_t bucket)
{
	uint32_t cursor = 0, page;
	while ((page = next_page(crig, &cursor)) != XSEG_NONE)
		if (about(crig, page)->bucket == bucket &&
			record_of(crig, page)->key.object == object)
			return page;
	ck_abort_msg("bucket %u of object %u is not kept", bucket, object);
	return XSEG_NONE;
}

static void make_dirty(struct crig *crig, uint32_t page, uint32_t epoch)
{
	atomic_store(&about(crig, page)->dirty, 0xff);
	about(crig, page)->epoch = epoch;
}

static uint32_t pages(struct crig *crig)
{
	uint32_t cursor = 0, count = 0;
	while (next_page(crig, &cursor) != XSEG_NONE)
		count++;
	return count;
}

/* --- tests --------------------------------------------------------------------------------- */

static struct crig_event event_at(struct crig *crig, uint32_t place)
{
	struct crig_store *store = crig_store(crig);
	pthread_mutex_lock(&store->mutex);
	struct crig_event event = store->events[place];
	pthread_mutex_unlock(&store->mutex);
	return event;
}

static uint32_t events(struct crig *crig)
{
	struct crig_store *store = crig_store(crig);
	pthread_mutex_lock(&store->mutex);
	uint32_t count = store->count;
	pthread_mutex_unlock(&store->mutex);
	return count;
}

/* A FLUSH is answered by one lane; the others see a moment later that all is stored. */
static void wait_clean(struct crig *crig)
{
	for (unsigned i = 0; i < 120000 && crig_state(crig).dirty; i++)
		usleep(1000);
	ck_assert_uint_eq(crig_state(crig).dirty, 0);
}

/* Epochs go to the store one after the other, with a flush in between. */
static uint32_t check_epochs(struct crig *crig, uint32_t (*epoch_of)(uint32_t, uint32_t))
{
	uint32_t now = 0, written = 0, count = events(crig);
	bool flushed = true;
	for (uint32_t i = 0; i < count; i++) {
		struct crig_event event = event_at(crig, i);
		flushed |= event.op == XSEG_OP_FLUSH;
		for (uint32_t at = 0; event.op == XSEG_OP_WRITE && at < event.length;
			at += XSEG_PAGE, written++) {
			uint32_t bucket = (uint32_t)((event.offset + at) / XSEG_PAGE);
			uint32_t epoch = epoch_of(event.object, bucket);
			ck_assert_uint_ge(epoch, now);
			ck_assert(epoch == now || flushed);
			flushed = false;
			now = epoch;
		}
	}
	return written;
}

/* 0: clean */
static uint32_t mixed_epoch(uint32_t object, uint32_t bucket)
{
	uint32_t kind = (object * 5 + bucket * 3) % 7;
	return kind < 3 ? 0 : 90 + kind;
}

UNIT_LOOP(test_mixed, 2)
{
	struct crig crig;
	begin(&crig, _i);
	uint32_t dirty = 0;
	for (uint32_t object = 0; object < OBJECTS; object++)
		for (uint32_t i = 0; i < BUCKETS; i++)
			if (mixed_epoch(object, i)) {
				make_dirty(
					&crig, page_of(&crig, object, i), mixed_epoch(object, i));
				dirty++;
			}
	crig_again(&crig, LATE);
	struct cache_state state = crig_state(&crig);
	ck_assert_uint_eq(state.dirty, dirty * XSEG_PAGE);
	ck_assert_uint_eq(state.used, OBJECTS * BUCKETS * XSEG_PAGE);
	for (uint32_t object = 0; object < OBJECTS; object++)
		for (uint32_t i = 0; i < BUCKETS; i++)
			ck_assert(crig_reads(
				&crig, object, i * XSEG_PAGE, XSEG_PAGE, value_of(object, i)));
	ck_assert_int_eq(crig_flush(&crig), 0);
	ck_assert_uint_eq(check_epochs(&crig, mixed_epoch), dirty);
	for (uint32_t object = 0; object < OBJECTS; object++)
		for (uint32_t i = 0; i < BUCKETS; i++)
			if (mixed_epoch(object, i))
				ck_assert(crig_has(&crig, object, i * XSEG_PAGE, XSEG_PAGE,
					value_of(object, i)));
	wait_clean(&crig);
	crig_end(&crig);
}

/* The page of bucket 3 says that it is bucket 2: what is read, and what the store is given. */
struct twice {
	uint32_t epoch2, epoch3; /* 0: clean */
	int later;		 /* which has the higher sequence, 2 or 3 */
	int read;		 /* which one is the bucket */
	unsigned dirty, used;	 /* of the two */
	int first;		 /* which one is written first; 0: none */
};

static const struct twice twices[] = {
	{0, 0, 2, 2, 0, 1, 0},
	{0, 0, 3, 3, 0, 1, 0},
	{7, 7, 2, 2, 1, 1, 2},
	{7, 7, 3, 3, 1, 1, 3},
	{7, 8, 2, 3, 2, 2, 2},
	{7, 8, 3, 3, 2, 2, 2},
	{8, 7, 3, 2, 2, 2, 3},
	{7, 0, 3, 3, 0, 1, 0},
	{0, 7, 3, 3, 1, 1, 3},
};
#define TWICES (sizeof(twices) / sizeof(twices[0]))

UNIT_LOOP(test_twice, 2 * TWICES)
{
	const struct twice *twice = &twices[_i / 2];
	struct crig crig;
	begin(&crig, _i % 2);
	uint32_t page2 = page_of(&crig, 5, 2), page3 = page_of(&crig, 5, 3);
	if (twice->epoch2)
		make_dirty(&crig, page2, twice->epoch2);
	if (twice->epoch3)
		make_dirty(&crig, page3, twice->epoch3);
	about(&crig, page3)->bucket = 2;
	about(&crig, twice->later == 2 ? page2 : page3)->sequence = 1u << 20;
	crig_again(&crig, LATE);
	struct cache_state state = crig_state(&crig);
	ck_assert_uint_eq(state.dirty, twice->dirty * XSEG_PAGE);
	ck_assert_uint_eq(state.used, (OBJECTS * BUCKETS - 2 + twice->used) * XSEG_PAGE);
	uint8_t value = value_of(5, (uint32_t)twice->read);
	ck_assert(crig_reads(&crig, 5, 2 * XSEG_PAGE, XSEG_PAGE, value));
	ck_assert(crig_reads(&crig, 5, 4 * XSEG_PAGE, XSEG_PAGE, value_of(5, 4)));
	ck_assert_int_eq(crig_flush(&crig), 0);
	ck_assert_uint_eq(crig_count(&crig, XSEG_OP_WRITE), twice->dirty);
	if (twice->first) {
		uint32_t place = crig_place(&crig, XSEG_OP_WRITE, 0);
		ck_assert_uint_eq(
			event_at(&crig, place).first, value_of(5, (uint32_t)twice->first));
		ck_assert(crig_has(&crig, 5, 2 * XSEG_PAGE, XSEG_PAGE, value));
	}
	wait_clean(&crig);
	ck_assert_uint_eq(pages(&crig), OBJECTS * BUCKETS - 1);
	crig_end(&crig);
}

/* Made by a shard that was killed before it could use it, and then once more. */
UNIT_LOOP(test_two_records, 2)
{
	struct crig crig;
	begin(&crig, _i);
	uint32_t page = page_of(&crig, 3, 0), record = about(&crig, page)->object;
	uint32_t first = record / CACHE_META_RECORDS * CACHE_META_RECORDS;
	struct record *all = records(&crig, first / CACHE_META_RECORDS), *other = all;
	while (other->state & 1u)
		other++;
	other->key = all[record - first].key;
	other->state++;
	for (uint32_t i = 0; i < BUCKETS; i += 1 + i % 2) {
		page = page_of(&crig, 3, i);
		about(&crig, page)->object = first + (uint32_t)(other - all);
		make_dirty(&crig, page, 3);
	}
	crig_again(&crig, LATE);
	record = about(&crig, page_of(&crig, 3, 0))->object;
	for (uint32_t i = 0; i < BUCKETS; i++) {
		ck_assert(crig_reads(&crig, 3, i * XSEG_PAGE, XSEG_PAGE, value_of(3, i)));
		ck_assert_uint_eq(about(&crig, page_of(&crig, 3, i))->object, record);
	}
	ck_assert((other->state & 1u) == (first + (other - all) == record));
	crig_end(&crig);
}

/* Records that want one place among the batches, their pages in turns. */
UNIT_LOOP(test_far_records, 2)
{
	struct crig crig;
	begin(&crig, _i);
	/* a bucket gives its page for records */
	uint32_t page = page_of(&crig, 0, 0), record = about(&crig, page_of(&crig, 1, 0))->object;
	struct record *far = memory(&crig, page), *one = far + record % CACHE_META_RECORDS;
	memset(far, 0, XSEG_PAGE);
	*one = (struct record){.key = record_of(&crig, page_of(&crig, 2, 0))->key};
	one->state = 1;
	for (uint32_t i = 0; i < BUCKETS; i++) {
		uint32_t moved = page_of(&crig, 2, i);
		about(&crig, moved)->object = RECORD_FAR + record;
		/* their places in turns with object 1's */
		if (i % 2)
			make_dirty(&crig, moved, 4);
	}
	about(&crig, page)->bucket = CACHE_META_BUCKET;
	about(&crig, page)->object = (RECORD_FAR + record) / CACHE_META_RECORDS;
	crig_again(&crig, LATE);
	ck_assert_uint_eq(crig_state(&crig).used, (OBJECTS * BUCKETS - 1) * XSEG_PAGE);
	for (uint32_t i = 0; i < BUCKETS; i++) {
		ck_assert(crig_reads(&crig, 1, i * XSEG_PAGE, XSEG_PAGE, value_of(1, i)));
		ck_assert(crig_reads(&crig, 2, i * XSEG_PAGE, XSEG_PAGE, value_of(2, i)));
	}
	crig_end(&crig);
}

/* Each page is of an object of its own, and 64 are allowed: those that are dirty are there, though
   they come late; of the others some have to go. */
UNIT(test_objects)
{
	struct crig crig;
	begin(&crig, 0);
	struct record *all = records(&crig, 0);
	uint32_t cursor = 0, page, count = 0;
	memset(all, 0, XSEG_PAGE);
	while ((page = next_page(&crig, &cursor)) != XSEG_NONE && count < CACHE_META_RECORDS) {
		bool dirty = count >= 100 && count < 108;
		uint32_t object = dirty ? count - 100 : 200 + count;
		all[count] = (struct record){.key = {.volume = 1, .object = object}, .state = 1};
		if (dirty)
			make_dirty(&crig, page, 2);
		about(&crig, page)->bucket = 0;
		about(&crig, page)->object = count++;
	}
	ck_assert_uint_gt(count, 108);
	crig_again(&crig, LATE ",objects=64");
	struct cache_state state = crig_state(&crig);
	ck_assert_uint_eq(state.dirty, 8 * XSEG_PAGE);
	ck_assert_uint_eq(state.used, 64 * XSEG_PAGE);
	ck_assert_int_eq(crig_flush(&crig), 0);
	ck_assert_uint_eq(crig_count(&crig, XSEG_OP_WRITE), 8);
	crig_end(&crig);
}

/* --- terms -------------------------------------------------------------------------------- */

#define TERM_VOLUMES 600u
#define MANY_VOLUMES 5000u
#define TERM_BASE (7ull << 32)

static int fence(struct crig *crig, uint64_t volume, uint64_t term, uint64_t line)
{
	struct client_request request = {.op = XSEG_OP_CONTROL,
		.key.volume = volume,
		.arg0 = XSEG_CONTROL_FENCE,
		.arg1 = term,
		.offset = line};
	return client_do(&crig->rig.client, &request);
}

static void write_volume(struct crig *crig, uint64_t volume)
{
	static uint8_t bytes[XSEG_PAGE] = {1};
	struct client_request write = crig_request(XSEG_OP_WRITE, 0, 0, sizeof(bytes));
	write.key.volume = volume;
	write.send = bytes;
	write.send_size = sizeof(bytes);
	ck_assert_int_eq(client_do(&crig->rig.client, &write), 0);
}

/* All that is in the cache becomes dirty, as a kill before its write-back leaves it. */
static uint32_t dirty_all(struct crig *crig)
{
	uint32_t cursor = 0, page, count = 0;
	for (; (page = next_page(crig, &cursor)) != XSEG_NONE; count++)
		make_dirty(crig, page, 1);
	return count;
}

/*
 * Another host has had every second volume while the cache was dead, and those of which no term was
 * told: what was dirty of them is dropped, and of the others written.
 */
UNIT_LOOP(test_terms, 2)
{
	struct crig crig;
	crig_begin(&crig, (unsigned)_i + 1, LATE);
	for (uint64_t volume = 1; volume <= TERM_VOLUMES; volume++) {
		if (volume % 100 != 0)
			ck_assert_int_eq(fence(&crig, volume, TERM_BASE + volume, 1), 0);
		write_volume(&crig, volume);
	}
	ck_assert_int_eq(crig_control(&crig, CACHE_FLUSH, 0, 0, NULL), 0);
	wait_clean(&crig);
	ck_assert_uint_eq(dirty_all(&crig), TERM_VOLUMES);
	crig_again(&crig, LATE);
	ck_assert_uint_eq(crig_state(&crig).dirty, TERM_VOLUMES * XSEG_PAGE);
	uint32_t writes = crig_count(&crig, XSEG_OP_WRITE), good = 0;
	for (uint64_t volume = 1; volume <= TERM_VOLUMES; volume++) {
		uint64_t term = TERM_BASE + volume + 2;
		bool stale = volume % 2 == 0 || volume % 100 == 0;
		ck_assert_int_eq(fence(&crig, volume, term, stale ? term : term - 1), 0);
		good += !stale;
	}
	RIG_UNTIL(crig_state(&crig).dirty == good * XSEG_PAGE);
	ck_assert_uint_eq(crig_count(&crig, XSEG_OP_WRITE), writes);
	ck_assert_int_eq(crig_control(&crig, CACHE_FLUSH, 0, 0, NULL), 0);
	wait_clean(&crig);
	ck_assert_uint_eq(crig_count(&crig, XSEG_OP_WRITE), writes + good);
	crig_end(&crig);
}

#ifndef __SANITIZE_THREAD__ /* it takes minutes there on a busy machine, and shows no more */
/* More volumes than are used at any time, as a host sees in a year: the last one is cached, too. */
UNIT(test_many_volumes)
{
	struct crig crig;
	crig_begin(&crig, 2, LATE);
	for (uint64_t volume = 1; volume <= MANY_VOLUMES; volume++)
		write_volume(&crig, volume);
	ck_assert_int_eq(crig_control(&crig, CACHE_FLUSH, 0, 0, NULL), 0);
	wait_clean(&crig);
	write_volume(&crig, MANY_VOLUMES);
	ck_assert_uint_eq(crig_state(&crig).dirty, XSEG_PAGE);
	crig_end(&crig);
}
#endif
