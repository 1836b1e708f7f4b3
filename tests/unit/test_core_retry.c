/* SPDX-License-Identifier: Apache-2.0 */
/* Back-pressure: a front that wants more than there is gets it in turn; nobody below starves. */
#include <errno.h>
#include <string.h>

#include "tests/unit/core_rig.h"

struct greedy {
	unsigned want, begun, waiting;
	_Atomic unsigned done, wrong, most;
	unsigned out, order, last_order;
};

static struct greedy *greedy_state;
static uint32_t greedy_length;

static void greedy_done(struct call *call)
{
	struct greedy *greedy = greedy_state;
	if (call->result)
		atomic_fetch_add(&greedy->wrong, 1);
	call_end(call);
	greedy->out--;
	atomic_fetch_add(&greedy->done, 1);
}

static bool greedy_try(struct peer *peer)
{
	struct greedy *greedy = greedy_state;
	struct call *call;
	if (call_begin(peer, &call))
		return false;
	call->op = XSEG_OP_WRITE;
	call->key.volume = 1;
	call->offset = 0;
	call->length = greedy_length;
	if (call_pages(call, greedy_length)) {
		call_end(call);
		return false;
	}
	call_submit(call, 0, greedy_done);
	if (++greedy->out > greedy->most)
		greedy->most = greedy->out;
	return true;
}

static bool greedy_again(struct peer *peer, void *context)
{
	struct greedy *greedy = greedy_state;
	unsigned order = (unsigned)(uintptr_t)context;
	if (!greedy_try(peer))
		return false;
	/* in order of asking */
	if (order != greedy->last_order + 1)
		atomic_fetch_add(&greedy->wrong, 1);
	greedy->last_order = order;
	greedy->waiting--;
	return true;
}

static bool greedy_poll(struct peer *peer)
{
	struct greedy *greedy = greedy_state;
	if (greedy->begun == greedy->want)
		return false;
	for (; greedy->begun < greedy->want; greedy->begun++)
		if (greedy->waiting || !greedy_try(peer)) {
			greedy->waiting++;
			peer_retry(peer, greedy_again, (void *)(uintptr_t)++greedy->order);
		}
	return true;
}

static const char *const greedy_edges[] = {"below", NULL};
static const struct peer_ops greedy_ops = {
	.name = "t_greedy", .summary = "wants all", .edges = greedy_edges, .poll = greedy_poll};

static void greedy_run(unsigned want, uint32_t length, unsigned most_slots)
{
	static const char *const specs[] = {
		"g=t_greedy,edge.below=s", "s=t_split,edge.below=a", "a=t_store", NULL};
	static struct greedy greedy;
	struct rig rig;
	greedy = (struct greedy){.want = want};
	greedy_state = &greedy;
	greedy_length = length;
	module_register(&greedy_ops);
	rig_begin(&rig, 0, 1, specs);
	RIG_UNTIL(atomic_load(&greedy.done) == want);
	ck_assert_uint_eq(greedy.wrong, 0);
	ck_assert_uint_le(greedy.most, most_slots);
	ck_assert_uint_gt(rig_counter(&rig, "g", CORE_RETRIES), 0);
	rig_end(&rig);
}

/* 128 slots, each request needs one and two more below. */
UNIT(test_slots) { greedy_run(5000, 2 * RIG_SPLIT, 128 - 128 / 4); }

/* The pool holds only a few of these. */
UNIT(test_pages) { greedy_run(500, 1u << 20, 16); }
