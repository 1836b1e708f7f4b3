/* SPDX-License-Identifier: Apache-2.0 */
/* The client that waits: many at once, time limits, and a server that never answers. */
#include <errno.h>
#include <string.h>

#include "tests/unit/core_rig.h"

static const char *const one_store[] = {"a=t_store", NULL};
static uint8_t data[1u << 20], back[1u << 20];

UNIT(test_no_peer)
{
	struct rig rig;
	struct client client;
	char why[XSEG_WHY_SIZE] = "";
	rig_begin(&rig, 0, 1, one_store);
	ck_assert_int_eq(client_open(&client, rig.seg.name, "b", why), -ENOENT);
	ck_assert(strstr(why, "there is no peer 'b'"));
	ck_assert_int_eq(client_open(&client, "nosuch", "b", why), -ENOENT);
	ck_assert(strstr(why, "nosuch"));
	rig_end(&rig);
}

UNIT(test_many)
{
	enum { COUNT = 700, SIZE = 4096 };
	static struct client_request requests[COUNT];
	struct rig rig;
	struct client_request *done;
	bool seen[COUNT] = {false};
	unsigned started = 0, ended = 0;
	rig_begin(&rig, 0, 1, one_store);
	rig_ask(&rig, "a");
	rig_pattern(data, sizeof(data), 1);
	while (ended < COUNT) {
		if (started < COUNT && started - ended < 64) {
			requests[started] = (struct client_request){.op = XSEG_OP_WRITE,
				.key = {.volume = 1},
				.offset = (uint64_t)started * SIZE,
				.length = SIZE,
				.send = data + started,
				.send_size = SIZE,
				.context = &seen[started]};
			ck_assert_int_eq(client_start(&rig.client, &requests[started++]), 0);
			continue;
		}
		ck_assert_int_eq(client_collect(&rig.client, &done), 0);
		ck_assert_int_eq(done->result, 0);
		ck_assert(!*(bool *)done->context);
		*(bool *)done->context = true;
		ended++;
	}
	ck_assert_int_eq(client_collect(&rig.client, &done), -ENOENT);
	for (unsigned i = 0; i < COUNT; i++)
		ck_assert(rig_holds(&rig, "a", i * SIZE, data + i, SIZE));
	rig_end(&rig);
}

/* do() among start(): each gets its own answer. */
UNIT(test_mixed)
{
	struct rig rig;
	struct client_request early = {.op = XSEG_OP_PREFETCH, .key = {.volume = 1}}, *done;
	rig_begin(&rig, 0, 1, one_store);
	rig_ask(&rig, "a");
	atomic_store(&rig_store(&rig, "a")->hold, true);
	ck_assert_int_eq(client_start(&rig.client, &early), 0);
	for (unsigned i = 0; i < 50; i++) {
		rig_pattern(data, 4096, i);
		ck_assert_int_eq(rig_write(&rig, 512 * i, data, 4096), 0);
		ck_assert_int_eq(rig_read(&rig, 512 * i, back, 4096), 0);
		ck_assert_mem_eq(data, back, 4096);
	}
	ck_assert(!early.answered);
	atomic_store(&rig_store(&rig, "a")->hold, false);
	ck_assert_int_eq(client_collect(&rig.client, &done), 0);
	ck_assert_ptr_eq(done, &early);
	rig_end(&rig);
}

/* Given up after the limit; the answer that comes later disturbs nobody and frees the slot. */
UNIT(test_time_limit)
{
	struct rig rig;
	struct client_request slow = {.op = XSEG_OP_PREFETCH, .key = {.volume = 1}};
	rig_begin(&rig, 0, 1, one_store);
	rig_ask(&rig, "a");
	atomic_store(&rig_store(&rig, "a")->hold, true);
	rig.client.timeout_ns = 50000000;
	ck_assert_int_eq(client_do(&rig.client, &slow), -ETIMEDOUT);
	rig.client.timeout_ns = 120000000000u;
	ck_assert_int_eq(rig_write(&rig, 0, data, 4096), 0);
	atomic_store(&rig_store(&rig, "a")->hold, false);
	RIG_UNTIL(rig_jobs(&rig, "a") == 0);
	usleep(20000);
	ck_assert_int_eq(rig_write(&rig, 0, data, 4096), 0);
	ck_assert_int_eq(rig_write(&rig, 0, data, 4096), 0);
	rig_end(&rig); /* checks that all slots are free */
}

/* A port that nobody serves is like a server that never answers. */
UNIT(test_nobody)
{
	struct rig rig;
	uint32_t port;
	rig_begin(&rig, 0, 1, one_store);
	ck_assert_int_eq(xseg_port_reserve(&rig.seg, "nobody", &port), 0);
	rig_ask(&rig, "nobody");
	rig.client.timeout_ns = 30000000;
	ck_assert_int_eq(rig_do(&rig, XSEG_OP_FLUSH, 0, 0, NULL), -ETIMEDOUT);
	rig.client.timeout_ns = 120000000000u;
	rig_ask(&rig, "a");
	ck_assert_int_eq(rig_do(&rig, XSEG_OP_FLUSH, 0, 0, NULL), 0);
	client_close(&rig.client);
	/* what was sent to nobody waits for whoever binds the port: that is all that is left */
	struct xseg_usage usage;
	xseg_segment_usage(&rig.seg, &usage);
	ck_assert_uint_eq(usage.requests_by_state[XSEG_REQUEST_SUBMITTED], 1);
	ck_assert(host_stop(&rig.host, NULL));
	host_fini(&rig.host);
	scratch_segment_end(&rig.seg);
}
