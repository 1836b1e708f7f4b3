/* SPDX-License-Identifier: Apache-2.0 */
/* Calls: borrowed pages, joins, scattered pages, lanes in between, and calls that fail at once. */
#include <errno.h>
#include <string.h>

#include "tests/unit/core_rig.h"

static const char *const split[] = {"s=t_split,edge.below=a", "a=t_store", NULL};
static uint8_t data[4u << 20], back[4u << 20];

static void split_round(struct rig *rig, uint64_t offset, uint32_t length)
{
	rig_pattern(data, length, (uint32_t)offset + length);
	memset(back, 0xee, length);
	ck_assert_int_eq(rig_write(rig, offset, data, length), 0);
	ck_assert(rig_holds(rig, "a", offset, data, length));
	ck_assert_int_eq(rig_read(rig, offset, back, length), 0);
	ck_assert_mem_eq(back, data, length);
}

UNIT(test_join)
{
	struct rig rig;
	rig_begin(&rig, 64u << 20, 1, split);
	rig_ask(&rig, "s");
	split_round(&rig, 0, 512);
	split_round(&rig, 0, RIG_SPLIT);
	split_round(&rig, 512, RIG_SPLIT);
	split_round(&rig, RIG_SPLIT - 512, 1024);
	split_round(&rig, 7680, 300 * 512);
	split_round(&rig, 4096, 4u << 20);
	split_round(&rig, 3584, (4u << 20) - 4096);
	/* one part of several lies outside: the join tells */
	ck_assert_int_eq(rig_read(&rig, RIG_BYTES - 4096, back, 32768), -ENOSPC);
	ck_assert_uint_eq(rig_counter(&rig, "s", CORE_ERRORS), 1);
	rig_end(&rig);
}

/* Every second page of the pool is taken: requests and their parts have more runs than a slot. */
UNIT(test_scattered)
{
	enum { PAGES = 4000 };
	static uint32_t pages[PAGES];
	struct rig rig;
	uint32_t got;
	rig_begin(&rig, 64u << 20, 1, split);
	rig_ask(&rig, "s");
	struct xseg_magazine *magazine = &rig.client.lane->pages;
	for (unsigned i = 0; i < PAGES; i++) {
		struct xseg_extent one;
		ck_assert_int_eq(xseg_page_alloc(magazine, 1, &one, 1, &got), 0);
		pages[i] = one.page;
	}
	for (unsigned i = 0; i < PAGES; i++)
		if (pages[i] % 2) {
			struct xseg_extent one = {.page = pages[i], .count = 1};
			xseg_page_free(magazine, &one, 1);
		}
	split_round(&rig, 4096, 4u << 20);
	split_round(&rig, 3584, 3u << 20);
	for (unsigned i = 0; i < PAGES; i++)
		if (pages[i] % 2 == 0) {
			struct xseg_extent one = {.page = pages[i], .count = 1};
			xseg_page_free(magazine, &one, 1);
		}
	rig_end(&rig);
}

UNIT(test_lanes)
{
	struct rig rig;
	rig_begin(&rig, 64u << 20, 2, split);
	rig_ask(&rig, "s");
	for (uint32_t i = 0; i < 64; i++)
		split_round(&rig, (uint64_t)i * 65536, 65536 - 512 * i);
	rig_end(&rig);
}

/* An edge that leads nowhere: done is called, later, with -ENXIO. */
UNIT(test_nowhere)
{
	struct rig rig;
	rig_begin(&rig, 0, 1, split);
	rig_ask(&rig, "s");
	xseg_edge_set(&rig.seg, rig_peer(&rig, "s")->edge_index[0], XSEG_NONE);
	ck_assert_int_eq(rig_write(&rig, 0, data, 65536), -ENXIO);
	ck_assert_int_eq(rig_read(&rig, 0, data, 65536), -ENXIO);
	rig_end(&rig);
}

/* --- a front that looks at answers ---------------------------------------------------- */

struct front {
	unsigned asked;
	_Atomic unsigned answered;
	_Atomic int results[8];
	_Atomic bool right;
};

static struct front *front_state;

static void front_read_done(struct call *call)
{
	uint8_t bytes[8192];
	call_get_bytes(call, 0, bytes, 8192);
	atomic_store(&front_state->right,
		call->result == 0 && call->answer_length == 8192 && !memcmp(bytes, data, 8192));
	atomic_store(&front_state->results[1], call->result);
	call_end(call);
	atomic_fetch_add(&front_state->answered, 1);
}

static void front_write_done(struct call *call)
{
	struct call *next;
	atomic_store(&front_state->results[0], call->result);
	struct peer *peer = call->peer;
	call_end(call);
	ck_assert_int_eq(call_begin(peer, &next), 0);
	next->op = XSEG_OP_READ;
	next->flags = XSEG_F_PIN;
	next->key.volume = 1;
	next->offset = 1024;
	next->length = 8192;
	ck_assert_int_eq(call_pages(next, 8192), 0);
	call_submit(next, 0, front_read_done);
}

static bool front_poll(struct peer *peer)
{
	struct call *call;
	struct iovec iov[4];
	if (front_state->asked++)
		return false;
	ck_assert_int_eq(call_begin(peer, &call), 0);
	call->op = XSEG_OP_WRITE;
	call->key.volume = 1;
	call->offset = 1024;
	call->length = 8192;
	ck_assert_int_eq(call_pages(call, 8192), 0);
	int count = call_iov(call, 0, 8192, iov, 4);
	size_t size = 0;
	for (int i = 0; i < count; i++)
		size += iov[i].iov_len;
	ck_assert_uint_eq(size, 8192);
	call_put_bytes(call, 0, data, 8192);
	call_submit(call, 0, front_write_done);
	/* one that is begun and given up leaves nothing behind */
	ck_assert_int_eq(call_begin(peer, &call), 0);
	call->op = XSEG_OP_READ;
	ck_assert_int_eq(call_pages(call, 100000), 0);
	call_end(call);
	return true;
}

static const char *const front_edges[] = {"below", NULL};
static const struct peer_ops front_ops = {
	.name = "t_front", .summary = "asks", .edges = front_edges, .poll = front_poll};

UNIT(test_front)
{
	static const char *const specs[] = {"f=t_front,edge.below=a", "a=t_store", NULL};
	struct rig rig;
	static struct front front;
	front_state = &front;
	rig_pattern(data, 8192, 3);
	module_register(&front_ops);
	rig_begin(&rig, 64u << 20, 1, specs);
	RIG_UNTIL(atomic_load(&front.answered) == 1);
	ck_assert_int_eq(front.results[0], 0);
	ck_assert_int_eq(front.results[1], 0);
	ck_assert(front.right);
	/* a front's requests are what it counts */
	ck_assert_uint_eq(rig_counter(&rig, "f", CORE_READ_BYTES), 8192);
	ck_assert_uint_eq(rig_counter(&rig, "f", CORE_WRITES), 1);
	ck_assert_uint_eq(rig_counter(&rig, "f", CORE_CALLS), 2);
	rig_end(&rig);
}
