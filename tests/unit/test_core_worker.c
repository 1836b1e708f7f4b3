/* SPDX-License-Identifier: Apache-2.0 */
/* Workers, and threads of a peer's own: what is done there comes back to the lane, none is lost. */
#include "tests/unit/core_rig.h"

static const enum xseg_op by_worker_or_post[] = {XSEG_OP_CLOSE, XSEG_OP_CONTROL};

static const char *const one_store[] = {"a=t_store", NULL};

UNIT_LOOP(test_elsewhere, 2)
{
	struct rig rig;
	uint64_t elsewhere = 0;
	rig_begin(&rig, 0, 2, one_store);
	rig_ask(&rig, "a");
	for (unsigned i = 0; i < 20; i++) {
		ck_assert_int_eq(rig_do(&rig, by_worker_or_post[_i], 0, 0, &elsewhere), 0);
		ck_assert_uint_eq(elsewhere, 1);
	}
	ck_assert_uint_eq(rig_store(&rig, "a")->ran, 20);
	rig_end(&rig);
}

/* More items than threads; and a stop waits for all of them. */
UNIT_LOOP(test_many, 2)
{
	static struct client_request requests[60];
	struct rig rig;
	struct client_request *done;
	rig_begin(&rig, 0, 1, one_store);
	rig_ask(&rig, "a");
	for (unsigned i = 0; i < countof(requests); i++) {
		requests[i] =
			(struct client_request){.op = by_worker_or_post[_i], .key = {.volume = 1}};
		ck_assert_int_eq(client_start(&rig.client, &requests[i]), 0);
	}
	for (unsigned i = 0; i < countof(requests); i++) {
		ck_assert_int_eq(client_collect(&rig.client, &done), 0);
		ck_assert_int_eq(done->result, 0);
		ck_assert_uint_eq(done->value, 1);
	}
	ck_assert_uint_eq(rig_store(&rig, "a")->ran, countof(requests));
	rig_end(&rig);
}

static struct rig *stopping;

/* Asked while the stop waits, first: time to let the worker go on. */
static bool release(void)
{
	if (!atomic_load(&rig_store(stopping, "a")->hold))
		return false;
	ck_assert_uint_eq(rig_jobs(stopping, "a"), 1);
	atomic_store(&rig_store(stopping, "a")->hold, false);
	return false;
}

UNIT_LOOP(test_stop_waits, 2)
{
	struct rig rig;
	struct client_request request = {.op = by_worker_or_post[_i], .key = {.volume = 1}};
	rig_begin(&rig, 0, 1, one_store);
	rig_ask(&rig, "a");
	for (unsigned i = 0; i < 10; i++)
		ck_assert_int_eq(client_do(&rig.client, &request), 0);
	atomic_store(&rig_store(&rig, "a")->hold, true);
	ck_assert_int_eq(client_start(&rig.client, &request), 0);
	RIG_UNTIL(rig_jobs(&rig, "a") == 1);
	stopping = &rig;
	ck_assert(host_stop(&rig.host, release));
	ck_assert_uint_eq(rig_store(&rig, "a")->ran, 11);
	host_fini(&rig.host);
	rig.serving = false;
	struct client_request *done;
	ck_assert_int_eq(client_collect(&rig.client, &done), 0);
	ck_assert_int_eq(done->result, 0);
	rig_end(&rig);
}
