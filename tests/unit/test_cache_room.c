/* SPDX-License-Identifier: Apache-2.0 */
/*
 * More than the cache holds: writes for which there is no room go past it, and what they must not
 * overtake; how often the store is flushed for room; which misses are fetched and which passed on.
 */
#include <base/clock.h>
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "peers/cache/cache.h"
#include "peers/cache/cache_work.h"
#include "tests/unit/cache_rig.h"

/* 256 buckets: from 51 dirty ones on they are written back, from 76 on writes go past, 102 wait */
#define SMALL ",size=1M,age=1h,epoch=1h,dirty-soft=20,dirty-hard=40,read-ahead=0,bypass=0"
#define MIDDLE 76u
#define HARD 102u

static uint64_t counter(struct crig *crig, enum cache_counter which)
{
	return rig_counter(&crig->rig, "cache", PEER_COUNTER(which));
}

static uint32_t object_of(unsigned bucket) { return bucket / (CRIG_BYTES / XSEG_PAGE); }
static uint64_t offset_of(unsigned bucket) { return bucket * XSEG_PAGE % CRIG_BYTES; }

static int write_at(struct crig *crig, unsigned bucket, uint8_t value)
{
	return crig_write(crig, object_of(bucket), offset_of(bucket), XSEG_PAGE, value, 0);
}

static bool has_at(struct crig *crig, unsigned bucket, uint8_t value)
{
	return crig_has(crig, object_of(bucket), offset_of(bucket), XSEG_PAGE, value);
}

static bool reads_at(struct crig *crig, unsigned bucket, uint8_t value)
{
	return crig_reads(crig, object_of(bucket), offset_of(bucket), XSEG_PAGE, value);
}

/* No room until the store's flush is answered: so many buckets are dirty. */
static void begin_full(struct crig *crig, const char *options)
{
	crig_begin(crig, 1, options);
	ck_assert_int_eq(crig_flush(crig), 0);
	atomic_store(&crig_store(crig)->hold_flush, true);
	for (unsigned n = 0; n < MIDDLE; n++)
		ck_assert_int_eq(write_at(crig, n, 1), 0);
	RIG_UNTIL(atomic_load(&crig_store(crig)->held) > 0);
}

/* --- writes ------------------------------------------------------------------------------ */

UNIT(test_bypass)
{
	struct crig crig;
	begin_full(&crig, SMALL);
	for (unsigned n = 100; n < 200; n++) {
		ck_assert_int_eq(write_at(&crig, n, 2), 0);
		ck_assert(has_at(&crig, n, 2));
		ck_assert(reads_at(&crig, n, 2));
	}
	ck_assert_uint_eq(counter(&crig, CACHE_WAITS), 0);
	/* one that is newer than what is dirty in its place must not */
	ck_assert_int_eq(write_at(&crig, MIDDLE - 1, 3), 0);
	ck_assert(!has_at(&crig, MIDDLE - 1, 3));
	ck_assert(reads_at(&crig, MIDDLE - 1, 3));
	ck_assert_uint_le(crig_state(&crig).dirty, (MIDDLE + 1) * XSEG_PAGE);
	/* what is clean here takes it over */
	ck_assert_int_eq(write_at(&crig, 150, 4), 0);
	ck_assert(has_at(&crig, 150, 4));
	ck_assert(reads_at(&crig, 150, 4));
	atomic_store(&crig_store(&crig)->hold_flush, false);
	ck_assert_int_eq(crig_flush(&crig), 0);
	uint32_t last = crig_count(&crig, XSEG_OP_FLUSH) - 1;
	ck_assert_uint_gt(crig_place(&crig, XSEG_OP_FLUSH, last),
		crig_place(&crig, XSEG_OP_WRITE, crig_count(&crig, XSEG_OP_WRITE) - 1));
	for (unsigned n = 0; n < 200; n++)
		if (n < MIDDLE || n >= 100)
			ck_assert(has_at(&crig, n,
				n == MIDDLE - 1 ? 3
				: n == 150	? 4
				: n < 100	? 1
						: 2));
	crig_end(&crig);
}

/* The store's flush that was sent before a write went past is not one for it. */
UNIT(test_bypass_flush)
{
	struct crig crig;
	struct client_request flush[2], *done;
	flush[0] = flush[1] = crig_request(XSEG_OP_FLUSH, 0, 0, 0);
	crig_begin(&crig, 1, ",size=1M,age=1h,epoch=1h,dirty-soft=40,dirty-hard=40");
	ck_assert_int_eq(crig_flush(&crig), 0);
	uint32_t before = crig_count(&crig, XSEG_OP_FLUSH);
	atomic_store(&crig_store(&crig)->hold_flush, true);
	for (unsigned n = 0; n < HARD; n++)
		ck_assert_int_eq(write_at(&crig, n, 1), 0);
	ck_assert_int_eq(client_start(&crig.rig.client, &flush[0]), 0);
	RIG_UNTIL(atomic_load(&crig_store(&crig)->held) > 0);
	ck_assert_int_eq(write_at(&crig, 120, 2), 0);
	ck_assert(has_at(&crig, 120, 2));
	ck_assert_int_eq(client_start(&crig.rig.client, &flush[1]), 0);
	atomic_store(&crig_store(&crig)->hold_flush, false);
	for (unsigned n = 0; n < 2; n++) {
		ck_assert_int_eq(client_collect(&crig.rig.client, &done), 0);
		ck_assert_int_eq(done->result, 0);
	}
	ck_assert_uint_eq(crig_count(&crig, XSEG_OP_FLUSH), before + 2);
	crig_end(&crig);
}

/* The store refuses it: nobody hears of it, it waits for room. */
UNIT(test_bypass_fails)
{
	static uint8_t bytes[XSEG_PAGE];
	struct client_request *done, request = crig_request(XSEG_OP_WRITE, 12, 0, XSEG_PAGE);
	struct crig crig;
	begin_full(&crig, SMALL);
	struct crig_store *store = crig_store(&crig);
	memset(bytes, 5, sizeof(bytes));
	request.send = bytes;
	request.send_size = sizeof(bytes);
	atomic_store(&store->fail_write, -EIO);
	ck_assert_int_eq(client_start(&crig.rig.client, &request), 0);
	RIG_UNTIL(counter(&crig, CACHE_WAITS) > 0);
	atomic_store(&store->hold_flush, false);
	ck_assert_int_eq(client_collect(&crig.rig.client, &done), 0);
	ck_assert_int_eq(done->result, 0);
	ck_assert(reads_at(&crig, 12 * 16, 5));
	atomic_store(&store->fail_write, 0);
	RIG_UNTIL(crig_flush(&crig) == 0);
	ck_assert(has_at(&crig, 12 * 16, 5));
	crig_end(&crig);
}

/* Where a FLUSH is answered before the store has everything, nothing may overtake. */
UNIT(test_bypass_volatile)
{
	static uint8_t bytes[XSEG_PAGE];
	static struct client_request requests[100];
	struct client_request *done;
	struct crig crig;
	begin_full(&crig, SMALL ",ack=volatile");
	memset(bytes, 2, sizeof(bytes));
	for (unsigned n = 0; n < countof(requests); n++) {
		requests[n] = crig_request(
			XSEG_OP_WRITE, object_of(100 + n), offset_of(100 + n), XSEG_PAGE);
		requests[n].send = bytes;
		requests[n].send_size = sizeof(bytes);
		ck_assert_int_eq(client_start(&crig.rig.client, &requests[n]), 0);
	}
	RIG_UNTIL(crig_state(&crig).waiting > 50);
	for (unsigned n = 100; n < 100 + countof(requests); n++)
		ck_assert(!has_at(&crig, n, 2));
	atomic_store(&crig_store(&crig)->hold_flush, false);
	while (client_collect(&crig.rig.client, &done) == 0)
		ck_assert_int_eq(done->result, 0);
	crig_end(&crig);
}

/* As many objects as may be, and none can go: writes to others go past, too. */
UNIT(test_bypass_objects)
{
	struct crig crig;
	struct client_request request = crig_request(XSEG_OP_WRITE, 0, 0, XSEG_PAGE);
	static uint8_t bytes[XSEG_PAGE];
	crig_begin(&crig, 1, SMALL ",objects=64");
	ck_assert_int_eq(crig_flush(&crig), 0);
	struct crig_store *store = crig_store(&crig);
	atomic_store(&store->hold_flush, true);
	request.send = bytes;
	request.send_size = sizeof(bytes);
	/* volumes share the store's objects here: each has buckets of its own */
	for (unsigned n = 0; n < 4 * CRIG_OBJECTS + 40; n++) {
		request.key.volume = 1 + n / CRIG_OBJECTS;
		request.key.object = n % CRIG_OBJECTS;
		request.offset = n / CRIG_OBJECTS * XSEG_PAGE;
		memset(bytes, (int)n, sizeof(bytes));
		ck_assert_int_eq(client_do(&crig.rig.client, &request), 0);
		request.op = XSEG_OP_READ;
		request.receive = bytes;
		request.receive_size = sizeof(bytes);
		memset(bytes, 0xff, sizeof(bytes));
		ck_assert_int_eq(client_do(&crig.rig.client, &request), 0);
		ck_assert_uint_eq(bytes[0], n);
		request.op = XSEG_OP_WRITE;
	}
	ck_assert_uint_eq(crig_state(&crig).objects, 64);
	ck_assert_uint_ge(counter(&crig, CACHE_BYPASSES), 2 * 40);
	for (unsigned n = 4 * CRIG_OBJECTS; n < 4 * CRIG_OBJECTS + 40; n++)
		ck_assert(crig_has(&crig, n % CRIG_OBJECTS, n / CRIG_OBJECTS * XSEG_PAGE, XSEG_PAGE,
			(uint8_t)n));
	atomic_store(&store->hold_flush, false);
	for (unsigned volume = 1; volume <= 7; volume++) {
		struct client_request flush = {.op = XSEG_OP_FLUSH, .key = {.volume = volume}};
		ck_assert_int_eq(client_do(&crig.rig.client, &flush), 0);
	}
	for (unsigned n = 0; n < 4 * CRIG_OBJECTS + 40; n++)
		ck_assert(crig_has(&crig, n % CRIG_OBJECTS, n / CRIG_OBJECTS * XSEG_PAGE, XSEG_PAGE,
			(uint8_t)n));
	crig_end(&crig);
}

/*
 * Where flushes take long they are few (one after the other would be one in each FLUSH_NS): what
 * finds no room goes past, and does not wait for them.
 */
#define FLUSH_NS 10000000u
UNIT(test_calm)
{
	struct crig crig;
	crig_begin(&crig, 1, SMALL);
	ck_assert_int_eq(crig_flush(&crig), 0);
	atomic_store(&crig_store(&crig)->flush_ns, FLUSH_NS);
	uint32_t before = crig_count(&crig, XSEG_OP_FLUSH);
	uint64_t begin_ns = clock_now_ns(), passed_ns = 0;
	for (unsigned n = 0; passed_ns < 40ull * FLUSH_NS || counter(&crig, CACHE_BYPASSES) < 256;
		n++) {
		/* none is on its way when it is written again: that would have to wait */
		ck_assert_int_eq(write_at(&crig, n % 256, (uint8_t)n), 0);
		usleep(100);
		passed_ns = clock_now_ns() - begin_ns;
	}
	uint32_t flushes = crig_count(&crig, XSEG_OP_FLUSH) - before;
	ck_assert_uint_ge(flushes, 1);
	ck_assert_uint_le(flushes, passed_ns / (5ull * FLUSH_NS));
	crig_end(&crig);
}

/* --- reads ------------------------------------------------------------------------------- */

/* Twice what the cache holds, and one in eight is read again soon: what was fetched. */
static void read_much(struct crig *crig, unsigned reads)
{
	for (unsigned n = 0; n < reads; n++) {
		reads_at(crig, n % 512, 0);
		if (n % 8 == 0 && n >= 64)
			reads_at(crig, (n - 64) % 512, 0);
	}
}

UNIT(test_fills_fast)
{
	struct crig crig;
	crig_begin(&crig, 1, SMALL ",policy=lru");
	read_much(&crig, 4096);
	ck_assert_uint_ge(counter(&crig, CACHE_BYPASSES), 1024);
	ck_assert_uint_le(counter(&crig, CACHE_FILLS), 1280);
	/* what is read now and then is cached again some time */
	uint64_t hits = counter(&crig, CACHE_HITS);
	for (unsigned n = 0; n < 200 * 64; n++)
		reads_at(&crig, n % 64, 0);
	ck_assert_uint_ge(counter(&crig, CACHE_HITS) - hits, 64 * 64);
	crig_end(&crig);
}

UNIT(test_fills_slow)
{
	struct crig crig;
	crig_begin(&crig, 1, SMALL ",policy=lru");
	atomic_store(&crig_store(&crig)->read_ns, 200000);
	read_much(&crig, 2048);
	ck_assert_uint_eq(counter(&crig, CACHE_BYPASSES), 0);
	ck_assert_uint_eq(counter(&crig, CACHE_FILLS), 2048);
	crig_end(&crig);
}
