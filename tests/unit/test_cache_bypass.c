/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes that are handed on to the store as they are: while one is on its way, nothing of its place
 * is kept, and who asks for a FLUSH afterwards gets one.
 */
#include <string.h>

#include "tests/unit/cache_rig.h"

#define LATE ",age=1h,epoch=1h"
#define AROUND LATE ",mode=writearound"
#define MANY 400u /* more than it takes to see that nobody reads what is written */

/* A write that stays at the store until it lets go. */
struct held {
	struct client_request request;
	uint8_t bytes[4096];
};

static void held_start(
	struct crig *crig, struct held *held, uint32_t object, uint64_t offset, uint8_t value)
{
	struct crig_store *store = crig_store(crig);
	uint32_t before = atomic_load(&store->held);
	atomic_store(&store->range, true);
	memset(held->bytes, value, sizeof(held->bytes));
	held->request = crig_request(XSEG_OP_WRITE, object, offset, sizeof(held->bytes));
	held->request.send = held->bytes;
	held->request.send_size = sizeof(held->bytes);
	ck_assert_int_eq(client_start(&crig->rig.client, &held->request), 0);
	RIG_UNTIL(atomic_load(&store->held) > before);
}

static void held_end(struct crig *crig, struct held *held)
{
	struct client_request *done;
	atomic_store(&crig_store(crig)->range, false);
	ck_assert_int_eq(client_collect(&crig->rig.client, &done), 0);
	ck_assert_ptr_eq(done, &held->request);
	ck_assert_int_eq(done->result, 0);
}

/* All that the client has asked for, now that the store goes on. */
static void held_end_all(struct crig *crig, unsigned count)
{
	struct client_request *done;
	atomic_store(&crig_store(crig)->range, false);
	for (unsigned n = 0; n < count; n++) {
		ck_assert_int_eq(client_collect(&crig->rig.client, &done), 0);
		ck_assert_int_eq(done->result, 0);
	}
}

/* The store's READs that this one takes. */
static uint32_t reads(struct crig *crig, uint32_t object, uint64_t offset, uint8_t value)
{
	uint32_t before = crig_count(crig, XSEG_OP_READ);
	ck_assert(crig_reads(crig, object, offset, 4096, value));
	return crig_count(crig, XSEG_OP_READ) - before;
}

/* What is read meanwhile may be what was there before: it passes. Its neighbours are kept. */
UNIT_LOOP(test_read, 2)
{
	struct crig crig;
	struct held held;
	crig_begin(&crig, (unsigned)_i + 1, AROUND);
	ck_assert_int_eq(crig_write(&crig, 1, 0, 8192, 1, 0), 0);
	ck_assert_uint_eq(reads(&crig, 1, 0, 1), 1);
	ck_assert_uint_eq(reads(&crig, 1, 0, 1), 0);
	held_start(&crig, &held, 1, 0, 2);
	for (unsigned n = 0; n < 3; n++)
		ck_assert_uint_eq(reads(&crig, 1, 0, 1), 1);
	ck_assert_uint_eq(reads(&crig, 1, 4096, 1), 1);
	ck_assert_uint_eq(reads(&crig, 1, 4096, 1), 0);
	held_end(&crig, &held);
	ck_assert_uint_eq(reads(&crig, 1, 0, 2), 1);
	ck_assert_uint_eq(reads(&crig, 1, 0, 2), 0);
	crig_end(&crig);
}

/* The first FLUSH may have overtaken the write: it does not cover it, whether the cache knows that
   the write has ended or not. On one lane, whose FLUSHes are not many. */
UNIT_LOOP(test_flush, 2)
{
	struct crig crig;
	struct held held;
	struct client_request flush = {.op = XSEG_OP_FLUSH, .key = {.volume = 1}};
	crig_begin(&crig, 1, AROUND);
	ck_assert_int_eq(crig_flush(&crig), 0);
	held_start(&crig, &held, 1, 0, 2);
	ck_assert_int_eq(client_start(&crig.rig.client, &flush), 0);
	RIG_UNTIL(atomic_load(&crig_store(&crig)->held) > 1);
	/* The cache may send the one that does before it is asked, when it sees the write's end
	   while it answers the first; so all are counted but that one, which is held. */
	uint32_t flushes = crig_count(&crig, XSEG_OP_FLUSH) + 1;
	held_end_all(&crig, 2);
	usleep(_i * 20000);
	ck_assert_int_eq(crig_flush(&crig), 0);
	ck_assert_uint_gt(crig_count(&crig, XSEG_OP_FLUSH), flushes);
	/* and when nothing is on its way any more, none is needed */
	usleep(20000);
	ck_assert_int_eq(crig_flush(&crig), 0);
	flushes = crig_count(&crig, XSEG_OP_FLUSH);
	ck_assert_int_eq(crig_flush(&crig), 0);
	ck_assert_uint_eq(crig_count(&crig, XSEG_OP_FLUSH), flushes);
	crig_end(&crig);
}

/* Written back it would be overtaken: one in another mode goes the same way, behind it. */
UNIT_LOOP(test_mode, 2)
{
	struct crig crig;
	struct held first, second;
	crig_begin(&crig, (unsigned)_i + 1, AROUND);
	held_start(&crig, &first, 1, 0, 2);
	ck_assert_int_eq(crig_set(&crig, 0, CACHE_WRITEBACK, CACHE_ACK_BLOCKER), 0);
	held_start(&crig, &second, 1, 0, 3);
	/* beside it there is nothing in its way */
	ck_assert_int_eq(crig_write(&crig, 1, 4096, 4096, 4, 0), 0);
	held_end_all(&crig, 2);
	ck_assert(crig_has(&crig, 1, 0, 4096, 3));
	ck_assert(crig_reads(&crig, 1, 0, 4096, 3));
	ck_assert_uint_eq(crig_state(&crig).dirty, 4096);
	crig_end(&crig);
}

/* A successor knows what its predecessor has handed on. */
UNIT(test_again)
{
	struct crig crig;
	struct held held;
	crig_apart_begin(&crig, AROUND);
	ck_assert_int_eq(crig_write(&crig, 1, 0, 4096, 1, 0), 0);
	held_start(&crig, &held, 1, 0, 2);
	atomic_store(&crig_store(&crig)->flushes_pass, true);
	crig_apart_again(&crig, AROUND);
	ck_assert_uint_eq(reads(&crig, 1, 0, 1), 1);
	ck_assert_uint_eq(reads(&crig, 1, 0, 1), 1);
	held_end(&crig, &held);
	ck_assert_uint_eq(reads(&crig, 1, 0, 2), 1);
	ck_assert_uint_eq(reads(&crig, 1, 0, 2), 0);
	crig_end(&crig);
}

/* Write-through keeps what it writes where that is read, and stops to where it is not. */
UNIT_LOOP(test_worth, 2)
{
	struct crig crig;
	struct held held;
	crig_begin(&crig, (unsigned)_i + 1, LATE ",mode=writethrough");
	for (unsigned n = 0; n < MANY; n++) {
		ck_assert_int_eq(crig_write(&crig, 1, 0, 4096, (uint8_t)n, 0), 0);
		ck_assert_uint_eq(reads(&crig, 1, 0, (uint8_t)n), 0);
	}
	for (unsigned n = 0; n < 2 * MANY; n++)
		ck_assert_int_eq(crig_write(&crig, 1, 0, 4096, (uint8_t)n, 0), 0);
	ck_assert_uint_eq(reads(&crig, 1, 0, (uint8_t)(2 * MANY - 1)), 1);
	held_start(&crig, &held, 1, 0, 2);
	ck_assert_uint_eq(reads(&crig, 1, 0, (uint8_t)(2 * MANY - 1)), 1);
	held_end(&crig, &held);
	ck_assert_uint_eq(reads(&crig, 1, 0, 2), 1);
	crig_end(&crig);
}

/* One that is kept while another of its place is on its way: nobody knows which the store has. */
UNIT_LOOP(test_kept, 2)
{
	struct crig crig;
	struct held first, second;
	crig_begin(&crig, (unsigned)_i + 1, AROUND);
	held_start(&crig, &first, 1, 0, 2);
	ck_assert_int_eq(crig_set(&crig, 0, CACHE_WRITETHROUGH, CACHE_ACK_BLOCKER), 0);
	held_start(&crig, &second, 1, 0, 3);
	held_end_all(&crig, 2);
	ck_assert_uint_eq(reads(&crig, 1, 0, 3), 1);
	crig_end(&crig);
}
