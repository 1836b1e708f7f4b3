/* SPDX-License-Identifier: Apache-2.0 */
/* A flush reaches every shard of a port, once, and fails if one of them does. */
#include "tests/unit/core_rig.h"

#include <errno.h>
#include <pthread.h>

static const char *const passing[] = {"p=t_pass,edge.below=a", "a=t_store", NULL};

START_TEST(test_every_shard)
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
END_TEST

/* p flushes each of its four shards, each forwards to a, which asks its four. */
START_TEST(test_two_floors)
{
	struct rig rig;
	rig_begin(&rig, 0, 4, passing);
	rig_ask(&rig, "p");
	ck_assert_int_eq(rig_do(&rig, XSEG_OP_FLUSH, 0, 0, NULL), 0);
	for (unsigned i = 0; i < 4; i++)
		ck_assert_uint_eq(rig_store(&rig, "a")->flushes[i], 4);
	rig_end(&rig);
}
END_TEST

START_TEST(test_one_fails)
{
	struct rig rig;
	rig_begin(&rig, 0, 3, passing);
	rig_ask(&rig, "a");
	struct client_request request = {.op = XSEG_OP_FLUSH, .key = {.volume = 666}};
	ck_assert_int_eq(client_do(&rig.client, &request), -EIO);
	ck_assert_int_eq(rig_do(&rig, XSEG_OP_FLUSH, 0, 0, NULL), 0);
	rig_end(&rig);
}
END_TEST

/* Many at once, with hardly a request slot left for the fan: they wait, none fails, none hangs. */
START_TEST(test_few_slots)
{
	static struct client_request requests[80];
	struct rig rig;
	rig_begin(&rig, 0, 4, passing);
	rig_ask(&rig, "p");
	for (unsigned i = 0; i < countof(requests); i++) {
		requests[i] = (struct client_request){.op = XSEG_OP_FLUSH, .key = {.volume = 1}};
		ck_assert_int_eq(client_start(&rig.client, &requests[i]), 0);
	}
	for (unsigned i = 0; i < countof(requests); i++) {
		struct client_request *done;
		ck_assert_int_eq(client_collect(&rig.client, &done), 0);
		ck_assert_int_eq(done->result, 0);
	}
	for (unsigned i = 0; i < 4; i++)
		ck_assert_uint_eq(rig_store(&rig, "a")->flushes[i], 4 * countof(requests));
	rig_end(&rig);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("core_flush");
	UNIT_TEST(suite, test_every_shard);
	UNIT_TEST(suite, test_two_floors);
	UNIT_TEST(suite, test_one_fails);
	UNIT_TEST(suite, test_few_slots);
	return unit_main(suite);
}
