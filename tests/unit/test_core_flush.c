/* SPDX-License-Identifier: Apache-2.0 */
/* A flush reaches every shard of a port, once, and fails if one of them does. */
#include <errno.h>
#include <string.h>

#include "tests/unit/core_rig.h"

static const char *const passing[] = {"p=t_pass,edge.below=a", "a=t_store", NULL};

UNIT(test_every_shard)
{
	struct rig rig;
	rig_begin(&rig, 0, 4, passing);
	rig_ask(&rig, "a");
	for (unsigned n = 1; n <= 20; n++) {
		ck_assert_int_eq(rig_do(&rig, XSEG_OP_FLUSH, 0, 0, NULL), 0);
		for (unsigned i = 0; i < 4; i++)
			ck_assert_uint_eq(rig_store(&rig, "a")->flushes[i], n);
	}
	rig_end(&rig);
}

/* p flushes each of its four shards, each forwards to a, which asks its four, of some at once. */
UNIT(test_two_floors)
{
	struct rig rig;
	rig_begin(&rig, 0, 4, passing);
	rig_ask(&rig, "p");
	ck_assert_int_eq(rig_do(&rig, XSEG_OP_FLUSH, 0, 0, NULL), 0);
	for (unsigned i = 0; i < 4; i++) {
		ck_assert_uint_ge(rig_store(&rig, "a")->flushes[i], 1);
		ck_assert_uint_le(rig_store(&rig, "a")->flushes[i], 4);
	}
	ck_assert_uint_eq(rig_counter(&rig, "p", CORE_FLUSHES), 4 + 1);
	rig_end(&rig);
}

UNIT(test_one_fails)
{
	struct rig rig;
	rig_begin(&rig, 0, 3, passing);
	rig_ask(&rig, "a");
	struct client_request request = {.op = XSEG_OP_FLUSH, .key = {.volume = 666}};
	ck_assert_int_eq(client_do(&rig.client, &request), -EIO);
	ck_assert_int_eq(rig_do(&rig, XSEG_OP_FLUSH, 0, 0, NULL), 0);
	rig_end(&rig);
}

/*
 * More at once than there are request slots: they wait, none fails, none hangs, and those of one
 * volume that wait together are asked together.
 */
UNIT(test_few_slots)
{
	static struct client_request requests[300];
	struct rig rig;
	struct client_request *done;
	unsigned started = 0, ended = 0, asked = 0;
	rig_begin(&rig, 0, 4, passing);
	rig_ask(&rig, "p");
	while (ended < countof(requests)) {
		if (started < countof(requests) && started - ended < 90) {
			requests[started] = (struct client_request){
				.op = XSEG_OP_FLUSH, .key = {.volume = 1 + started % 7}};
			ck_assert_int_eq(client_start(&rig.client, &requests[started++]), 0);
			continue;
		}
		ck_assert_int_eq(client_collect(&rig.client, &done), 0);
		ck_assert_int_eq(done->result, 0);
		ended++;
	}
	for (unsigned i = 0; i < 4; i++) {
		asked = rig_store(&rig, "a")->flushes[i];
		ck_assert_uint_ge(asked, 4 * 7);
		ck_assert_uint_le(asked, 4 * countof(requests));
	}
	rig_end(&rig);
}

/* A stop in the middle of fans: they end, and what came too late waits for the next host. */
UNIT(test_stop_in_between)
{
	static struct client_request requests[24];
	static struct host next;
	for (unsigned round = 0; round < 10; round++) {
		struct rig rig;
		struct client_request *done;
		char why[WHY_SIZE] = "";
		rig_begin(&rig, 0, 4, passing);
		rig_ask(&rig, "p");
		for (unsigned i = 0; i < countof(requests); i++) {
			requests[i] = (struct client_request){
				.op = XSEG_OP_FLUSH, .key = {.volume = 1 + i % 5}};
			ck_assert_int_eq(client_start(&rig.client, &requests[i]), 0);
		}
		ck_assert(host_stop(&rig.host, NULL));
		host_fini(&rig.host);
		rig.serving = false;
		const struct host_config config = {.segment = rig.seg.name,
			.lanes = 3,
			.workers = 1,
			.drain_ns = 120000000000u};
		memset(&next, 0, sizeof(next));
		ck_assert_int_eq(spec_host_add(&next, passing[0], why), 0);
		ck_assert_int_eq(spec_host_add(&next, passing[1], why), 0);
		ck_assert_msg(host_start(&next, &config, why) == 0, "%s", why);
		for (unsigned i = 0; i < countof(requests); i++) {
			ck_assert_int_eq(client_collect(&rig.client, &done), 0);
			ck_assert_int_eq(done->result, 0);
		}
		ck_assert(host_stop(&next, NULL));
		host_fini(&next);
		rig_end(&rig);
	}
}
