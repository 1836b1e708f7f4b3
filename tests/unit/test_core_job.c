/* SPDX-License-Identifier: Apache-2.0 */
/* Jobs: what passes the door, what does not, how one ends, and that others are not disturbed. */
#include <errno.h>
#include <string.h>

#include "tests/unit/core_rig.h"

static const char *const one_store[] = {"a=t_store", NULL};
static const char *const passing[] = {
	"p=t_pass,edge.below=q", "q=t_pass,edge.below=a", "a=t_store", NULL};

/* Sends one request as it stands, past all that the client checks; its result. */
static int send_raw(struct rig *rig, const struct xseg_frame *frame, uint32_t bytes,
	void (*spoil)(struct xseg_request *request))
{
	struct xseg_lane *lane = rig->client.lane;
	uint32_t slot;
	struct xseg_hint_message hint;
	ck_assert_int_eq(xseg_get(lane, &slot), 0);
	struct xseg_request *request = xseg_at(lane, slot);
	if (bytes)
		ck_assert_int_eq(
			xseg_attach_pages(lane, slot, (uint32_t)(frame->offset % XSEG_PAGE), bytes),
			0);
	struct xseg_request saved = {
		.extent_count = request->extent_count, .data_offset = request->data_offset};
	struct xseg_extent first = request->extents[0];
	request->frame[0] = *frame;
	if (spoil)
		spoil(request);
	ck_assert_int_eq(xseg_submit(lane, slot, rig->client.port), 0);
	xseg_turn_end(lane);
	for (int i = 0; xseg_poll(lane, &hint, 1) == 0; i++) {
		ck_assert_int_lt(i, 10000);
		xseg_wait(lane, 1000000);
	}
	ck_assert_uint_eq(hint.request, slot);
	ck_assert_int_eq(xseg_receive(lane, slot), 0);
	int result = request->result;
	request->extent_count = saved.extent_count;
	request->data_offset = saved.data_offset;
	request->extents[0] = first;
	xseg_put(lane, slot);
	return result;
}

static void spoil_page(struct xseg_request *request) { request->extents[0].page = 0xfffffff0u; }
static void spoil_wrap(struct xseg_request *request) { request->extents[0].count = 0xffffffffu; }
static void spoil_empty(struct xseg_request *request) { request->extents[0].count = 0; }
static void spoil_count(struct xseg_request *request) { request->extent_count = 0xffff; }
static void spoil_list(struct xseg_request *request)
{
	request->extent_count = XSEG_EXTENTS + 1;
	request->list[0] = 0xfffffff1u;
}
static void spoil_none(struct xseg_request *request) { request->extent_count = 0; }
static void spoil_offset(struct xseg_request *request) { request->data_offset = 0xfff0; }
static void spoil_step(struct xseg_request *request)
{
	request->data_offset = 512; /* not where the offset says */
}

UNIT(test_door)
{
	static const struct {
		struct xseg_frame frame;
		uint32_t bytes;
		void (*spoil)(struct xseg_request *request);
		int result;
	} cases[] = {
		{{.op = 0}, 0, NULL, -EINVAL},
		{{.op = XSEG_OP_COUNT}, 0, NULL, -EINVAL},
		{{.op = 0xff}, 0, NULL, -EINVAL},
		{{.op = XSEG_OP_READ, .length = 4096}, 4096, spoil_page, -EBADMSG},
		{{.op = XSEG_OP_READ, .length = 4096}, 4096, spoil_wrap, -EBADMSG},
		{{.op = XSEG_OP_READ, .length = 4096}, 4096, spoil_empty, -EBADMSG},
		{{.op = XSEG_OP_WRITE, .length = 4096}, 4096, spoil_count, -EBADMSG},
		{{.op = XSEG_OP_WRITE, .length = 4096}, 4096, spoil_list, -EBADMSG},
		{{.op = XSEG_OP_WRITE, .length = 4096}, 4096, spoil_none, -EINVAL},
		{{.op = XSEG_OP_WRITE, .length = 4096}, 4096, spoil_offset, -EBADMSG},
		{{.op = XSEG_OP_WRITE, .length = 512}, 4096, spoil_step, -EINVAL},
		{{.op = XSEG_OP_WRITE, .length = 8192}, 4096, NULL, -EINVAL},
		{{.op = XSEG_OP_WRITE, .length = 100}, 4096, NULL, -EINVAL},
		{{.op = XSEG_OP_WRITE, .length = 0}, 4096, NULL, -EINVAL},
		{{.op = XSEG_OP_READ, .length = 512, .offset = 7}, 4096, NULL, -EINVAL},
		{{.op = XSEG_OP_READ, .length = 512, .offset = UINT64_MAX - 511}, 4096, NULL,
			-EINVAL},
		{{.op = XSEG_OP_PREFETCH, .length = 0xffffffff}, 0, NULL, -EINVAL},
		{{.op = XSEG_OP_OPEN}, 100, NULL, 0}, /* a page is a page: room enough */
		{{.op = XSEG_OP_OPEN}, 0, NULL, -EINVAL},
		{{.op = XSEG_OP_STATUS, .length = 512}, 0, NULL, -EINVAL},
		{{.op = XSEG_OP_CAS, .arg1 = 9}, 4096, NULL, -EINVAL},
		{{.op = XSEG_OP_CAS, .arg1 = XSEG_CAS_PUT, .length = 8192}, 8192, NULL, -EINVAL},
	};
	struct rig rig;
	uint8_t byte[512] = {1}, back[512];
	uint64_t refused = 0;
	rig_begin(&rig, 0, 1, one_store);
	rig_ask(&rig, "a");
	for (unsigned i = 0; i < countof(cases); i++) {
		int want = cases[i].result ? cases[i].result : -EOPNOTSUPP;
		ck_assert_msg(
			send_raw(&rig, &cases[i].frame, cases[i].bytes, cases[i].spoil) == want,
			"case %u", i);
		refused += cases[i].result != 0;
		/* and nobody else notices */
		ck_assert_int_eq(rig_write(&rig, 512 * i, byte, 512), 0);
		ck_assert_int_eq(rig_read(&rig, 512 * i, back, 512), 0);
		ck_assert_mem_eq(byte, back, 512);
	}
	ck_assert_uint_eq(rig_counter(&rig, "a", CORE_REFUSED), refused);
	rig_end(&rig);
}

static uint64_t wild_seed;

/* Small and huge numbers, some of them right. */
static uint32_t wild(uint32_t sane)
{
	uint64_t r = random_next(&wild_seed);
	return r % 4 == 0 ? (uint32_t)(r >> 32) : (uint32_t)((r >> 32) % sane);
}

static void spoil_wild(struct xseg_request *request)
{
	request->data_offset = (uint16_t)wild(XSEG_PAGE);
	request->extent_count = (uint16_t)wild(3);
	request->extents[0].page = wild(1000);
	request->extents[0].count = wild(8);
	request->list[0] = wild(1000);
	request->answer_count = 0;
}

/* Requests without sense: each is answered, whatever it says, and the peer goes on. */
UNIT(test_wild)
{
	struct rig rig;
	uint8_t byte[512] = {7};
	wild_seed = 99;
	rig_begin(&rig, 0, 1, one_store);
	rig_ask(&rig, "a");
	for (unsigned i = 0; i < 5000; i++) {
		struct xseg_frame frame = {.op = (uint8_t)wild(XSEG_OP_COUNT),
			.flags = (uint16_t)wild(64),
			.offset = (uint64_t)wild(1u << 22) * (wild(4) ? 1 : 1ull << 40),
			.length = wild(1u << 16) & (wild(2) ? ~511u : ~0u),
			.arg0 = wild(4),
			.arg1 = wild(4)};
		if (frame.op == XSEG_OP_WRITE)
			continue; /* would write what wild pages hold, and say nothing wrong */
		send_raw(&rig, &frame, wild(2) ? 4096 : 0, spoil_wild);
	}
	ck_assert_uint_gt(rig_counter(&rig, "a", CORE_REFUSED), 1000);
	ck_assert_int_eq(rig_write(&rig, 0, byte, 512), 0);
	rig_end(&rig);
}

UNIT(test_ends)
{
	struct rig rig;
	uint64_t value;
	rig_begin(&rig, 0, 1, one_store);
	rig_ask(&rig, "a");
	struct client_request request = {.op = XSEG_OP_DELETE, .key = {.volume = 1, .object = 41}};
	ck_assert_int_eq(client_do(&rig.client, &request), 0);
	ck_assert_uint_eq(request.value, 42);
	request.key.object = 13;
	ck_assert_int_eq(client_do(&rig.client, &request), -ESTALE);
	ck_assert_uint_eq(request.value, 77);
	ck_assert_int_eq(rig_do(&rig, XSEG_OP_DISCARD, 0, 512, &value), -EOPNOTSUPP);
	ck_assert_uint_eq(rig_counter(&rig, "a", CORE_UNSUPPORTED), 1);
	ck_assert_uint_eq(rig_counter(&rig, "a", CORE_ERRORS), 1);
	ck_assert_uint_eq(rig_counter(&rig, "a", CORE_OTHERS), 2);
	rig_end(&rig);
}

UNIT(test_forward)
{
	static uint8_t data[70000], back[70000];
	struct rig rig;
	rig_begin(&rig, 64u << 20, 1, passing);
	rig_ask(&rig, "p");
	rig_pattern(data, sizeof(data), 5);
	ck_assert_int_eq(rig_write(&rig, 1536, data, 69632), 0);
	ck_assert_int_eq(rig_read(&rig, 1536, back, 69632), 0);
	ck_assert_mem_eq(data, back, 69632);
	ck_assert(rig_holds(&rig, "a", 1536, data, 69632));
	ck_assert_int_eq(rig_read(&rig, RIG_BYTES, back, 512), -ENOSPC);
	ck_assert_uint_eq(rig_counter(&rig, "p", CORE_READS), 2);
	ck_assert_uint_eq(rig_counter(&rig, "a", CORE_READ_BYTES), 69632);
	rig_end(&rig);
}

/* A circle of edges: the frames of a request end before the circle does. */
UNIT(test_loop)
{
	static const char *const circle[] = {
		"p=t_pass,edge.below=q", "q=t_pass,edge.below=p", NULL};
	struct rig rig;
	rig_begin(&rig, 0, 1, circle);
	rig_ask(&rig, "p");
	ck_assert_int_eq(rig_do(&rig, XSEG_OP_DELETE, 0, 0, NULL), -ELOOP);
	rig_end(&rig);
}

/* An edge that leads nowhere after the start fails what comes, and only that. */
UNIT(test_edge_cut)
{
	struct rig rig;
	uint8_t byte[512] = {0};
	rig_begin(&rig, 0, 1, passing);
	rig_ask(&rig, "p");
	ck_assert_int_eq(rig_write(&rig, 0, byte, 512), 0);
	uint32_t edge = rig_peer(&rig, "q")->edge_index[0];
	uint32_t port = xseg_edge_port(&rig.seg, edge);
	xseg_edge_set(&rig.seg, edge, XSEG_NONE);
	ck_assert_int_eq(rig_write(&rig, 0, byte, 512), -ENXIO);
	xseg_edge_set(&rig.seg, edge, port);
	ck_assert_int_eq(rig_write(&rig, 0, byte, 512), 0);
	rig_end(&rig);
}

/* Whatever the client thinks: an object is served by one shard. */
UNIT(test_steering)
{
	struct rig rig;
	uint8_t back[512];
	rig_begin(&rig, 0, 3, one_store);
	rig_ask(&rig, "a");
	for (unsigned i = 0; i < 256; i++)
		ck_assert_int_eq(rig_read(&rig, (uint64_t)(i % 64) << 16, back, 512), 0);
	struct rig_store *store = rig_store(&rig, "a");
	unsigned all = 0;
	for (unsigned i = 0; i < 64; i++) {
		ck_assert_int_eq(__builtin_popcount(store->lanes_of_object[i]), 1);
		all |= store->lanes_of_object[i];
	}
	ck_assert_uint_eq(all, 7); /* and none has nothing to do */
	rig_end(&rig);
}
