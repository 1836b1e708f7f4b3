/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Write-back: what reaches the store, in which order, and when FLUSH and FUA are answered. With one
 * lane and with two.
 */
#include <errno.h>
#include <string.h>

#include "tests/unit/cache_rig.h"

#define LATE ",age=1h,epoch=1h" /* nothing is written back unless somebody asks for it */

/* Nothing was written: the store is flushed once, for what a predecessor may have left there. */
UNIT_LOOP(test_empty, 2)
{
	struct crig crig;
	crig_begin(&crig, (unsigned)_i + 1, LATE);
	for (unsigned n = 0; n < 5; n++)
		ck_assert_int_eq(crig_flush(&crig), 0);
	ck_assert_uint_ge(crig_count(&crig, XSEG_OP_FLUSH), 1);
	ck_assert_uint_le(crig_count(&crig, XSEG_OP_FLUSH), 2);
	ck_assert_uint_eq(crig_count(&crig, XSEG_OP_WRITE), 0);
	crig_end(&crig);
}

UNIT_LOOP(test_order, 2)
{
	struct crig crig;
	crig_begin(&crig, (unsigned)_i + 1, LATE);
	for (uint32_t object = 0; object < 8; object++)
		ck_assert_int_eq(crig_write(&crig, object, 0, 16384, 1, 0), 0);
	ck_assert_uint_eq(crig_count(&crig, XSEG_OP_WRITE), 0);
	ck_assert_int_eq(crig_flush(&crig), 0);
	ck_assert_uint_eq(crig_count(&crig, XSEG_OP_WRITE), 8);
	uint32_t flush = crig_place(&crig, XSEG_OP_FLUSH, crig_count(&crig, XSEG_OP_FLUSH) - 1);
	ck_assert_uint_gt(flush, crig_place(&crig, XSEG_OP_WRITE, 7));
	for (uint32_t object = 0; object < 8; object++)
		ck_assert(crig_has(&crig, object, 0, 16384, 1));
	ck_assert_int_eq(crig_write(&crig, 0, 0, 4096, 2, 0), 0);
	ck_assert(crig_has(&crig, 0, 0, 4096, 1));
	ck_assert_int_eq(crig_flush(&crig), 0);
	ck_assert(crig_has(&crig, 0, 0, 4096, 2));
	ck_assert_uint_gt(crig_place(&crig, XSEG_OP_WRITE, 8), flush);
	RIG_UNTIL(crig_state(&crig).dirty == 0);
	crig_end(&crig);
}

/* Sectors that were not written are not, neighbours go together. */
UNIT(test_runs)
{
	struct crig crig;
	struct crig_store *store;
	crig_begin(&crig, 1, LATE);
	store = crig_store(&crig);
	pthread_mutex_lock(&store->mutex);
	memset(store->bytes[3], 9, CRIG_BYTES);
	pthread_mutex_unlock(&store->mutex);
	for (unsigned n = 16; n-- > 0;)
		ck_assert_int_eq(crig_write(&crig, 2, n * 4096, 4096, 1, 0), 0);
	ck_assert_int_eq(crig_write(&crig, 3, 512, 512, 4, 0), 0);
	ck_assert_int_eq(crig_write(&crig, 3, 2048, 1024, 5, 0), 0);
	ck_assert_int_eq(crig_flush(&crig), 0);
	ck_assert_uint_eq(crig_count(&crig, XSEG_OP_WRITE), 3);
	ck_assert(crig_has(&crig, 2, 0, CRIG_BYTES, 1));
	ck_assert(crig_has(&crig, 3, 0, 512, 9));
	ck_assert(crig_has(&crig, 3, 512, 512, 4));
	ck_assert(crig_has(&crig, 3, 1024, 1024, 9));
	ck_assert(crig_has(&crig, 3, 2048, 1024, 5));
	ck_assert(crig_has(&crig, 3, 3072, 4096, 9));
	crig_end(&crig);
}

/* Neighbours that were written in no order, and overwritten before their turn, still go as one. */
UNIT(test_gathered)
{
	struct crig crig;
	struct client_request flush = {.op = XSEG_OP_FLUSH, .key = {.volume = 1}}, *done;
	uint32_t buckets = CRIG_BYTES / 4096, last = CRIG_OBJECTS - 1;
	crig_begin(&crig, 1, LATE);
	struct crig_store *store = crig_store(&crig);
	atomic_store(&store->range, true);
	/* as many writes as there may be at once, none beside another */
	for (uint32_t n = 0; n < 16; n++)
		ck_assert_int_eq(crig_write(&crig, n % last, n / last * 8192, 4096, 1, 0), 0);
	for (uint32_t n = 0; n < buckets; n++) /* the even ones, then the odd ones */
		ck_assert_int_eq(crig_write(&crig, last, (2 * n % buckets + 2 * n / buckets) * 4096,
					 4096, 1, 0),
			0);
	ck_assert_int_eq(client_start(&crig.rig.client, &flush), 0);
	RIG_UNTIL(atomic_load(&store->held) >= 16);
	ck_assert_int_eq(crig_write(&crig, last, 0, CRIG_BYTES, 2, 0), 0);
	atomic_store(&store->range, false);
	ck_assert_int_eq(client_collect(&crig.rig.client, &done), 0);
	ck_assert_int_eq(flush.result, 0);
	ck_assert_uint_eq(crig_count(&crig, XSEG_OP_WRITE), 17);
	ck_assert(crig_has(&crig, last, 0, CRIG_BYTES, 1));
	ck_assert_int_eq(crig_flush(&crig), 0);
	ck_assert_uint_eq(crig_count(&crig, XSEG_OP_WRITE), 18);
	ck_assert(crig_has(&crig, last, 0, CRIG_BYTES, 2));
	crig_end(&crig);
}

UNIT_LOOP(test_fua, 2)
{
	struct crig crig;
	crig_begin(&crig, (unsigned)_i + 1, LATE);
	for (uint32_t object = 0; object < 6; object++) {
		ck_assert_int_eq(crig_write(&crig, object, 4096, 4096, 7, XSEG_F_FUA), 0);
		ck_assert(crig_has(&crig, object, 4096, 4096, 7));
		uint32_t last = crig_count(&crig, XSEG_OP_FLUSH) - 1;
		ck_assert_uint_gt(crig_place(&crig, XSEG_OP_FLUSH, last),
			crig_place(&crig, XSEG_OP_WRITE, object));
	}
	crig_end(&crig);
}

/* What is on its way stays what it was; the new version follows behind the flush. */
UNIT_LOOP(test_overwritten, 2)
{
	struct crig crig;
	struct client_request flush = {.op = XSEG_OP_FLUSH, .key = {.volume = 1}}, *done;
	crig_begin(&crig, (unsigned)_i + 1, LATE);
	struct crig_store *store = crig_store(&crig);
	atomic_store(&store->range, true);
	ck_assert_int_eq(crig_write(&crig, 1, 0, 8192, 1, 0), 0);
	ck_assert_int_eq(client_start(&crig.rig.client, &flush), 0);
	RIG_UNTIL(atomic_load(&store->held) > 0);
	for (uint8_t version = 2; version < 6; version++) {
		ck_assert_int_eq(crig_write(&crig, 1, 0, 4096, version, 0), 0);
		ck_assert(crig_reads(&crig, 1, 0, 4096, version));
		ck_assert(crig_reads(&crig, 1, 4096, 4096, 1));
	}
	atomic_store(&store->range, false);
	ck_assert_int_eq(client_collect(&crig.rig.client, &done), 0);
	ck_assert_ptr_eq(done, &flush);
	ck_assert_int_eq(flush.result, 0);
	ck_assert(crig_has(&crig, 1, 0, 8192, 1));
	ck_assert_int_eq(crig_flush(&crig), 0);
	ck_assert(crig_has(&crig, 1, 0, 4096, 5));
	ck_assert_uint_eq(crig_count(&crig, XSEG_OP_WRITE), 2);
	RIG_UNTIL(crig_state(&crig).dirty == 0);
	crig_end(&crig);
}

UNIT_LOOP(test_write_fails, 2)
{
	struct crig crig;
	crig_begin(&crig, (unsigned)_i + 1, LATE);
	struct crig_store *store = crig_store(&crig);
	for (uint32_t object = 0; object < 4; object++)
		ck_assert_int_eq(crig_write(&crig, object, 0, 4096, 3, 0), 0);
	atomic_store(&store->fail_write, -EIO);
	ck_assert_int_eq(crig_flush(&crig), -EIO);
	ck_assert_int_eq(crig_write(&crig, 5, 0, 4096, 3, XSEG_F_FUA), -EIO);
	for (uint32_t object = 0; object < 4; object++)
		ck_assert(crig_reads(&crig, object, 0, 4096, 3));
	struct cache_state state = crig_state(&crig);
	ck_assert_int_eq(state.error, -EIO);
	ck_assert_uint_eq(state.health, CACHE_STORE_FAILS);
	RIG_UNTIL(crig_state(&crig).dirty == 5 * 4096);
	atomic_store(&store->fail_write, 0);
	/* a try from before may still be on its way back, and is reported */
	RIG_UNTIL(crig_flush(&crig) == 0);
	for (uint32_t object = 0; object < 4; object++)
		ck_assert(crig_has(&crig, object, 0, 4096, 3));
	ck_assert(crig_has(&crig, 5, 0, 4096, 3));
	RIG_UNTIL(crig_state(&crig).health == CACHE_WELL);
	RIG_UNTIL(crig_state(&crig).dirty == 0);
	crig_end(&crig);
}

/* A flush that has failed may have lost what was written before it. */
UNIT_LOOP(test_flush_fails, 2)
{
	struct crig crig;
	crig_begin(&crig, (unsigned)_i + 1, LATE);
	struct crig_store *store = crig_store(&crig);
	for (uint32_t object = 0; object < 4; object++)
		ck_assert_int_eq(crig_write(&crig, object, 0, 4096, 3, 0), 0);
	atomic_store(&store->fail_flush, -ENOSPC);
	ck_assert_int_eq(crig_flush(&crig), -ENOSPC);
	uint32_t tries = crig_count(&crig, XSEG_OP_FLUSH);
	RIG_UNTIL(crig_count(&crig, XSEG_OP_FLUSH) > tries + 2);
	atomic_store(&store->fail_flush, 0);
	/* one that was sent before that may be on its way */
	ck_assert(crig_flush(&crig) == 0 || crig_flush(&crig) == 0);
	for (uint32_t object = 0; object < 4; object++)
		ck_assert(crig_has(&crig, object, 0, 4096, 3));
	crig_end(&crig);
}

UNIT_LOOP(test_age, 2)
{
	struct crig crig;
	crig_begin(&crig, (unsigned)_i + 1, ",age=20ms,epoch=5ms,rate=10M");
	ck_assert_int_eq(crig_write(&crig, 2, 0, CRIG_BYTES, 8, 0), 0);
	RIG_UNTIL(crig_has(&crig, 2, 0, CRIG_BYTES, 8));
	RIG_UNTIL(crig_state(&crig).dirty == 0);
	ck_assert(crig_reads(&crig, 2, 0, CRIG_BYTES, 8));
	crig_end(&crig);
}

static void check_limit(struct crig *crig)
{
	struct cache_state state = crig_state(crig);
	ck_assert_uint_le(state.dirty, state.size);
	ck_assert_uint_le(state.used, state.size);
}

/* More than may be dirty: writes wait for the store, and none fails. */
UNIT_LOOP(test_limit, 2)
{
	static struct client_request requests[96];
	static uint8_t bytes[CRIG_BYTES];
	struct client_request *done;
	struct crig crig;
	unsigned ended = 0, lanes = (unsigned)_i + 1;
	crig_begin(&crig, lanes, lanes == 1 ? LATE ",size=1M" : LATE ",size=2M");
	struct crig_store *store = crig_store(&crig);
	memset(bytes, 6, sizeof(bytes));
	atomic_store(&store->range, true);
	for (unsigned n = 0; n < countof(requests); n++) {
		requests[n] = crig_request(XSEG_OP_WRITE, n % CRIG_OBJECTS, 0, CRIG_BYTES);
		requests[n].key.volume = 1 + n / CRIG_OBJECTS;
		requests[n].send = bytes;
		requests[n].send_size = CRIG_BYTES;
		ck_assert_int_eq(client_start(&crig.rig.client, &requests[n]), 0);
	}
	RIG_UNTIL(atomic_load(&store->held) > 0);
	ck_assert_uint_gt(crig_state(&crig).dirty, 0);
	check_limit(&crig);
	atomic_store(&store->range, false);
	while (client_collect(&crig.rig.client, &done) == 0) {
		ck_assert_int_eq(done->result, 0);
		ended++;
	}
	ck_assert_uint_eq(ended, countof(requests));
	check_limit(&crig);
	crig_end(&crig);
}

UNIT_LOOP(test_volatile, 2)
{
	struct crig crig;
	crig_begin(&crig, (unsigned)_i + 1, LATE ",ack=volatile");
	ck_assert_int_eq(crig_write(&crig, 1, 0, 4096, 1, XSEG_F_FUA), 0);
	ck_assert_int_eq(crig_flush(&crig), 0);
	ck_assert_uint_eq(crig_count(&crig, XSEG_OP_WRITE), 0);
	ck_assert_uint_eq(crig_count(&crig, XSEG_OP_FLUSH), 0);
	ck_assert_int_eq(crig_set(&crig, 0, CACHE_WRITEBACK, CACHE_ACK_BLOCKER), 0);
	ck_assert_int_eq(crig_flush(&crig), 0);
	ck_assert(crig_has(&crig, 1, 0, 4096, 1));
	crig_end(&crig);
}

/* What is written past the epochs is flushed, too. */
UNIT_LOOP(test_through, 2)
{
	struct crig crig;
	crig_begin(&crig, (unsigned)_i + 1, LATE ",mode=writethrough");
	ck_assert_int_eq(crig_flush(&crig), 0);
	for (uint8_t n = 1; n < 5; n++) {
		ck_assert_int_eq(crig_write(&crig, n, 0, 4096, n, 0), 0);
		ck_assert(crig_has(&crig, n, 0, 4096, n));
		ck_assert_int_eq(crig_flush(&crig), 0);
		uint32_t last = crig_count(&crig, XSEG_OP_FLUSH) - 1;
		ck_assert_uint_gt(crig_place(&crig, XSEG_OP_FLUSH, last),
			crig_place(&crig, XSEG_OP_WRITE, n - 1u));
	}
	crig_end(&crig);
}

/* What the store does itself comes behind everything that was written before it. */
UNIT_LOOP(test_barriers, 2)
{
	struct crig crig;
	crig_begin(&crig, (unsigned)_i + 1, LATE);
	ck_assert_int_eq(crig_write(&crig, 1, 0, 8192, 1, 0), 0);
	ck_assert_int_eq(crig_do(&crig, XSEG_OP_DISCARD, 1, 0, 4096), 0);
	ck_assert(crig_reads(&crig, 1, 0, 4096, 0));
	ck_assert(crig_reads(&crig, 1, 4096, 4096, 1));
	ck_assert_uint_gt(
		crig_place(&crig, XSEG_OP_DISCARD, 0), crig_place(&crig, XSEG_OP_WRITE, 0));
	ck_assert_int_eq(crig_write(&crig, 1, 0, 4096, 2, 0), 0);
	ck_assert_int_eq(crig_do(&crig, XSEG_OP_ZERO, 1, 512, 512), 0);
	ck_assert_uint_eq(crig_count(&crig, XSEG_OP_ZERO), 0);
	ck_assert(crig_reads(&crig, 1, 0, 512, 2));
	ck_assert(crig_reads(&crig, 1, 512, 512, 0));
	ck_assert_int_eq(crig_do(&crig, XSEG_OP_DELETE, 1, 0, 0), 0);
	ck_assert(crig_reads(&crig, 1, 0, CRIG_BYTES, 0));
	ck_assert(crig_has(&crig, 1, 0, CRIG_BYTES, 0));
	crig_end(&crig);
}

/* The mode changes under load; what was written last is read, here and in the end at the store. */
UNIT_LOOP(test_modes, 2)
{
	struct crig crig;
	uint8_t last[CRIG_OBJECTS][16] = {0};
	uint64_t seed = 4711;
	crig_begin(&crig, (unsigned)_i + 1, ",age=3ms,epoch=1ms");
	for (unsigned n = 1; n <= 3000; n++) {
		uint32_t object = random_next(&seed) % CRIG_OBJECTS;
		uint32_t bucket = random_next(&seed) % 16;
		last[object][bucket] = (uint8_t)(1 + n % 250);
		ck_assert_int_eq(crig_write(&crig, object, bucket * 4096, 4096,
					 last[object][bucket], n % 50 == 0 ? XSEG_F_FUA : 0),
			0);
		if (n % 20 == 0)
			ck_assert_int_eq(crig_set(&crig, n % 40 ? 0 : 1,
						 (enum cache_mode)(random_next(&seed) % 3),
						 CACHE_ACK_BLOCKER),
				0);
		object = random_next(&seed) % CRIG_OBJECTS;
		bucket = random_next(&seed) % 16;
		ck_assert(crig_reads(&crig, object, bucket * 4096, 4096, last[object][bucket]));
	}
	ck_assert_int_eq(crig_flush(&crig), 0);
	for (uint32_t object = 0; object < CRIG_OBJECTS; object++)
		for (uint32_t bucket = 0; bucket < 16; bucket++)
			ck_assert(
				crig_has(&crig, object, bucket * 4096, 4096, last[object][bucket]));
	crig_end(&crig);
}

/* A stop ends though the store fails; what is dirty is there for the next one. */
UNIT_LOOP(test_stop, 2)
{
	struct crig crig;
	crig_begin(&crig, (unsigned)_i + 1, LATE);
	for (uint32_t object = 0; object < 4; object++)
		ck_assert_int_eq(crig_write(&crig, object, 0, 4096, 3, 0), 0);
	atomic_store(&crig_store(&crig)->fail_write, -EIO);
	crig_again(&crig, LATE); /* the store is another one now, and blank */
	ck_assert_uint_eq(crig_state(&crig).dirty, 4 * 4096);
	for (uint32_t object = 0; object < 4; object++)
		ck_assert(crig_reads(&crig, object, 0, 4096, 3));
	ck_assert_int_eq(crig_flush(&crig), 0);
	for (uint32_t object = 0; object < 4; object++)
		ck_assert(crig_has(&crig, object, 0, 4096, 3));
	crig_end(&crig);
}

/* Without errors a stop writes all of it, and the successor has it clean. */
UNIT_LOOP(test_stop_writes, 2)
{
	struct crig crig;
	crig_begin(&crig, (unsigned)_i + 1, LATE);
	for (uint32_t object = 0; object < 4; object++)
		ck_assert_int_eq(crig_write(&crig, object, 0, 4096, 3, 0), 0);
	crig_again(&crig, LATE);
	struct cache_state state = crig_state(&crig);
	ck_assert_uint_eq(state.dirty, 0);
	ck_assert_uint_eq(state.used, 4 * 4096);
	ck_assert(crig_reads(&crig, 2, 0, 4096, 3));
	crig_end(&crig);
}

/* All is written and flushed before the store is told. */
UNIT_LOOP(test_leave, 2)
{
	struct crig crig;
	crig_begin(&crig, (unsigned)_i + 1, LATE);
	ck_assert_int_eq(crig_write(&crig, 1, 0, 4096, 1, 0), 0);
	ck_assert_int_eq(crig_control(&crig, XSEG_CONTROL_LEAVE, 1, 0, NULL), 0);
	ck_assert(crig_has(&crig, 1, 0, 4096, 1));
	ck_assert_uint_gt(
		crig_place(&crig, XSEG_OP_CONTROL, 0), crig_place(&crig, XSEG_OP_FLUSH, 0));
	atomic_store(&crig_store(&crig)->fail_control, -EIO);
	ck_assert_int_eq(crig_control(&crig, XSEG_CONTROL_LEAVE, 1, 0, NULL), -EIO);
	crig_end(&crig);
}

/* So often did the store hear of a FLUSH with FUA. */
static uint32_t settle(struct crig *crig, int error)
{
	struct client_request request = {.op = XSEG_OP_FLUSH, .flags = XSEG_F_FUA, .key.volume = 1};
	uint32_t before = crig_count_with(crig, XSEG_OP_FLUSH, XSEG_F_FUA);
	ck_assert_int_eq(client_do(&crig->rig.client, &request), error);
	return crig_count_with(crig, XSEG_OP_FLUSH, XSEG_F_FUA) - before;
}

/* One that waits for its turn is not answered with another one's, which asks for less. */
UNIT(test_settle_beside_flush)
{
	struct crig crig;
	struct client_request flush[3] = {{.flags = 0}, {.flags = 0}, {.flags = XSEG_F_FUA}}, *done;
	crig_begin(&crig, 2, LATE);
	struct crig_store *store = crig_store(&crig);
	ck_assert_int_eq(crig_write(&crig, 1, 0, 4096, 1, 0), 0);
	atomic_store(&store->hold_flush, true);
	for (unsigned i = 0; i < 3; i++) {
		flush[i].op = XSEG_OP_FLUSH;
		flush[i].key.volume = 1;
		ck_assert_int_eq(client_start(&crig.rig.client, &flush[i]), 0);
		RIG_UNTIL(atomic_load(&store->held) >= 1);
	}
	atomic_store(&store->hold_flush, false);
	for (unsigned i = 0; i < 3; i++) {
		ck_assert_int_eq(client_collect(&crig.rig.client, &done), 0);
		ck_assert_int_eq(done->result, 0);
	}
	ck_assert_uint_ge(crig_count_with(&crig, XSEG_OP_FLUSH, XSEG_F_FUA), 1);
	crig_end(&crig);
}

/* A time in which writes are not counted. */
static void pass_on(struct crig *crig)
{
	ck_assert_int_eq(crig_control(crig, CACHE_DRAIN, 0, 0, NULL), 0);
	ck_assert_int_eq(crig_write(crig, 1, 0, 4096, 8, 0), 0);
	ck_assert_int_eq(crig_control(crig, CACHE_BEGIN, 0, 0, NULL), 0);
}

/* What was passed on the store has to be flushed for, though nothing is dirty. */
UNIT_LOOP(test_passed, 2)
{
	struct crig crig;
	crig_begin(&crig, (unsigned)_i + 1, LATE);
	ck_assert_int_eq(crig_flush(&crig), 0);
	for (unsigned n = 0; n < 2; n++) {
		pass_on(&crig);
		uint32_t before = crig_count(&crig, XSEG_OP_FLUSH);
		ck_assert_int_eq(crig_flush(&crig), 0);
		ck_assert_uint_gt(crig_count(&crig, XSEG_OP_FLUSH), before);
		before = crig_count(&crig, XSEG_OP_FLUSH);
		ck_assert_int_eq(crig_flush(&crig), 0);
		ck_assert_uint_eq(crig_count(&crig, XSEG_OP_FLUSH), before);
	}
	crig_end(&crig);
}

/* The store itself is to have it, whatever else is enough for a FLUSH; nothing is done for it when
   nothing was written since. */
UNIT_LOOP(test_settle, 4)
{
	struct crig crig;
	unsigned lanes = (unsigned)_i % 2 + 1;
	crig_begin(&crig, lanes, _i < 2 ? LATE : LATE ",ack=volatile");
	for (uint32_t n = 1; n < 4; n++) {
		ck_assert_int_eq(crig_write(&crig, n, 0, 4096, (uint8_t)n, 0), 0);
		ck_assert_int_eq(crig_flush(&crig), 0);
		ck_assert_uint_ge(settle(&crig, 0), 1);
		ck_assert(crig_has(&crig, n, 0, 4096, (uint8_t)n));
		ck_assert(crig_reads(&crig, n, 0, 4096, (uint8_t)n));
		ck_assert_uint_eq(settle(&crig, 0), 0);
	}
	/* what was passed on */
	ck_assert_int_eq(crig_set(&crig, 0, CACHE_WRITETHROUGH, CACHE_ACK_BLOCKER), 0);
	ck_assert_int_eq(crig_write(&crig, 1, 0, 4096, 5, 0), 0);
	ck_assert_int_eq(crig_set(&crig, 0, CACHE_WRITEBACK, CACHE_ACK_BLOCKER), 0);
	ck_assert_uint_ge(settle(&crig, 0), 1);
	ck_assert_uint_eq(settle(&crig, 0), 0);
	/* what the store has lost */
	ck_assert_int_eq(crig_write(&crig, 1, 0, 4096, 9, 0), 0);
	atomic_store(&crig_store(&crig)->fail_flush, -EIO);
	settle(&crig, -EIO);
	atomic_store(&crig_store(&crig)->fail_flush, 0);
	RIG_UNTIL(crig_state(&crig).dirty == 0); /* it is tried again, and may fail once more */
	ck_assert_uint_ge(settle(&crig, 0), 1);
	ck_assert(crig_has(&crig, 1, 0, 4096, 9));
	pass_on(&crig);
	ck_assert_uint_ge(settle(&crig, 0), 1);
	ck_assert_uint_eq(settle(&crig, 0), 0);
	/* a FLUSH alone asks no more of the store than ever */
	uint32_t before = crig_count_with(&crig, XSEG_OP_FLUSH, XSEG_F_FUA);
	ck_assert_int_eq(crig_write(&crig, 1, 0, 4096, 7, 0), 0);
	ck_assert_int_eq(crig_flush(&crig), 0);
	ck_assert_uint_eq(crig_count_with(&crig, XSEG_OP_FLUSH, XSEG_F_FUA), before);
	crig_end(&crig);
}

/* Written past the cache, behind what is dirty in its place. */
UNIT_LOOP(test_past, 2)
{
	struct crig crig;
	crig_begin(&crig, (unsigned)_i + 1, LATE ",ack=volatile");
	ck_assert_int_eq(crig_write(&crig, 1, 0, 4096, 1, XSEG_F_FUA), 0);
	ck_assert_uint_eq(crig_count(&crig, XSEG_OP_WRITE), 0);
	ck_assert_int_eq(crig_write(&crig, 1, 512, 512, 2, XSEG_F_FUA | XSEG_F_NO_CACHE), 0);
	ck_assert_uint_eq(crig_count_with(&crig, XSEG_OP_WRITE, XSEG_F_FUA), 1);
	ck_assert(crig_has(&crig, 1, 0, 512, 1));
	ck_assert(crig_has(&crig, 1, 512, 512, 2));
	ck_assert(crig_has(&crig, 1, 1024, 3072, 1));
	ck_assert(crig_reads(&crig, 1, 512, 512, 2));
	crig_end(&crig);
}

/* What the store hears when the bucket is written and then flushed: writes that are durable when
   they are answered, and FLUSHes. */
struct heard {
	uint32_t fua, settled, flushes;
};

static struct heard hear(struct crig *crig, uint8_t value, unsigned flush_flags)
{
	struct client_request flush = {.op = XSEG_OP_FLUSH, .flags = flush_flags, .key.volume = 1};
	struct heard before = {crig_count_with(crig, XSEG_OP_WRITE, XSEG_F_FUA),
		crig_count_with(crig, XSEG_OP_WRITE, XSEG_F_NO_CACHE),
		crig_count(crig, XSEG_OP_FLUSH)};
	ck_assert_int_eq(crig_write(crig, 1, 0, 4096, value, 0), 0);
	ck_assert_int_eq(client_do(&crig->rig.client, &flush), 0);
	ck_assert(crig_has(crig, 1, 0, 4096, value));
	return (struct heard){crig_count_with(crig, XSEG_OP_WRITE, XSEG_F_FUA) - before.fua,
		crig_count_with(crig, XSEG_OP_WRITE, XSEG_F_NO_CACHE) - before.settled,
		crig_count(crig, XSEG_OP_FLUSH) - before.flushes};
}

/* Writes to a store that is far away are durable by themselves where somebody waits for that. */
UNIT(test_far)
{
	struct crig crig;
	crig_begin(&crig, 1, LATE);
	struct crig_store *store = crig_store(&crig);
	atomic_store(&store->write_ns, 4000000);
	struct heard heard;
	for (uint8_t n = 0; n < 2; n++) { /* that it is far shows by then */
		heard = hear(&crig, n, 0);
		ck_assert_uint_eq(heard.fua, 0);
		ck_assert_uint_ge(heard.flushes, 1);
	}
	for (uint8_t n = 2; n < 5; n++) {
		heard = hear(&crig, n, 0);
		ck_assert_uint_eq(heard.fua, 1);
		ck_assert_uint_eq(heard.settled, 0);
		ck_assert_uint_eq(heard.flushes, 0);
	}
	/* a journal on the way may have those */
	heard = hear(&crig, 5, XSEG_F_FUA);
	ck_assert_uint_eq(heard.settled, 1);
	ck_assert_uint_eq(heard.flushes, 1);
	heard = hear(&crig, 6, XSEG_F_FUA);
	ck_assert_uint_eq(heard.settled, 1);
	ck_assert_uint_eq(heard.flushes, 0);
	ck_assert_uint_eq(hear(&crig, 7, 0).flushes, 0);
	ck_assert_uint_eq(hear(&crig, 8, XSEG_F_FUA).flushes, 1);
	/* what was passed on is not durable */
	pass_on(&crig);
	ck_assert_uint_eq(hear(&crig, 9, 0).flushes, 1);
	ck_assert_uint_eq(hear(&crig, 10, 0).flushes, 0);
	/* nor is more than can be on its way at once */
	uint32_t before = crig_count_with(&crig, XSEG_OP_WRITE, XSEG_F_FUA);
	for (uint32_t object = 0; object < CRIG_OBJECTS; object++)
		ck_assert_int_eq(crig_write(&crig, object, 0, CRIG_BYTES, 11, 0), 0);
	heard = hear(&crig, 12, 0);
	ck_assert_uint_eq(heard.flushes, 1);
	ck_assert_uint_eq(crig_count_with(&crig, XSEG_OP_WRITE, XSEG_F_FUA), before);
	for (uint32_t object = 2; object < CRIG_OBJECTS; object++)
		ck_assert(crig_has(&crig, object, 0, CRIG_BYTES, 11));
	crig_end(&crig);
}

/* A write that is not durable has to be written again, and none before it is taken for durable. */
UNIT(test_far_fails)
{
	struct crig crig;
	crig_begin(&crig, 1, LATE);
	struct crig_store *store = crig_store(&crig);
	atomic_store(&store->write_ns, 4000000);
	hear(&crig, 1, 0);
	hear(&crig, 2, 0);
	atomic_store(&store->fail_write, -EIO);
	ck_assert_int_eq(crig_write(&crig, 1, 0, 4096, 2, 0), 0);
	ck_assert_int_eq(crig_flush(&crig), -EIO);
	ck_assert_int_ne(crig_state(&crig).dirty, 0);
	atomic_store(&store->fail_write, 0);
	RIG_UNTIL(crig_state(&crig).dirty == 0);
	ck_assert_int_eq(crig_flush(&crig), 0);
	ck_assert(crig_has(&crig, 1, 0, 4096, 2));
	ck_assert_uint_eq(hear(&crig, 3, 0).fua, 1);
	crig_end(&crig);
}
