/* SPDX-License-Identifier: Apache-2.0 */
/* What a victim does while each of its instructions may be the last. */
#include <errno.h>
#include <signal.h>
#include <xseg/reap.h>

#include "tests/crash/step.h"
#include "tests/lib/fixture.h"

#define SCATTERED (70u * XSEG_PAGE) /* so much takes the way of requests in many runs */

/* --- a client -------------------------------------------------------------------------------- */

static void get(struct step_victim *v)
{
	child_check(xseg_get(v->lane, &v->slot) == 0);
	xseg_at(v->lane, v->slot)->frame[0] =
		(struct xseg_frame){.op = XSEG_OP_READ, .lane = XSEG_LANE_ANY, .length = XSEG_PAGE};
}

static void attach(struct step_victim *v)
{
	child_check(xseg_attach_pages(v->lane, v->slot, 0, 3 * XSEG_PAGE) == 0);
}

static void attach_many(struct step_victim *v)
{
	child_check(xseg_attach_pages(v->lane, v->slot, 0, SCATTERED) == 0);
}

static void get_attach(struct step_victim *v)
{
	get(v);
	attach(v);
}

static void submit(struct step_victim *v)
{
	v->lane->now_ns++;
	child_check(xseg_submit(v->lane, v->slot, v->world->home) == 0);
	xseg_turn_end(v->lane);
}

static void ask(struct step_victim *v)
{
	get_attach(v);
	submit(v);
}

static void receive(struct step_victim *v)
{
	struct xseg_hint_message hint;
	child_check(xseg_poll(v->lane, &hint, 1) == 1);
	child_check(xseg_receive(v->lane, hint.request) == 0);
}

static void receive_put(struct step_victim *v)
{
	receive(v);
	xseg_put(v->lane, v->slot);
}

static void drop(struct step_victim *v) { xseg_put(v->lane, v->slot); }

static void get_many(struct step_victim *v)
{
	get(v);
	attach_many(v);
}

static void pages(struct step_victim *v)
{
	uint32_t runs;
	child_check(xseg_page_alloc(&v->lane->pages, 1, v->pages, 4, &runs) == 0);
	xseg_page_free(&v->lane->pages, v->pages, runs);
	child_check(xseg_page_alloc(&v->lane->pages, 9, v->pages, 4, &runs) == 0);
	xseg_page_free(&v->lane->pages, v->pages, runs);
}

static void join(struct step_victim *v)
{
	child_check(xseg_lane_join(&v->world->seg, false, &v->lane) == 0);
}

static void leave(struct step_victim *v) { xseg_lane_leave(v->lane); }

static void joined(struct step_victim *v) { step_victim_join(v); }

static void joined_get(struct step_victim *v)
{
	step_victim_join(v);
	get(v);
}

static void joined_attached(struct step_victim *v)
{
	step_victim_join(v);
	get_attach(v);
}

static void joined_many(struct step_victim *v)
{
	step_victim_join(v);
	get_many(v);
}

static void joined_asked(struct step_victim *v)
{
	step_victim_join(v);
	ask(v);
}

/* --- a server -------------------------------------------------------------------------------- */

static void bind_ports(struct step_victim *v) { step_bind(v->world, v->lane); }

static void bound(struct step_victim *v)
{
	step_victim_join(v);
	bind_ports(v);
}

static void poll_accept(struct step_victim *v)
{
	struct xseg_hint_message hints[8];
	unsigned frame;
	uint32_t count = xseg_poll(v->lane, hints, 8);
	for (uint32_t i = 0; i < count; i++)
		if (xseg_accept(v->lane, hints[i].request, &frame) == 0)
			v->slots[v->slot_count++] = hints[i].request;
	child_check(v->slot_count == STEP_SENT);
}

static void taken(struct step_victim *v)
{
	bound(v);
	poll_accept(v);
}

/* Keeps the first page of each. */
static void keep(struct step_victim *v)
{
	for (unsigned i = 0; i < v->slot_count; i++)
		child_check(xseg_take_page(v->lane, v->slots[i],
				    xseg_at(v->lane, v->slots[i])->extents[0].page) == 0);
}

static void kept(struct step_victim *v)
{
	taken(v);
	keep(v);
}

/* The same, for a server whose pages outlive it. */
static void keep_on(struct step_victim *v)
{
	for (unsigned i = 0; i < v->slot_count; i++)
		child_check(xseg_keep_page(v->lane, v->slots[i],
				    xseg_at(v->lane, v->slots[i])->extents[0].page,
				    v->world->top) == 0);
}

static void kept_on(struct step_victim *v)
{
	taken(v);
	keep_on(v);
}

static void respond(struct step_victim *v)
{
	for (unsigned i = 0; i < v->slot_count; i++) {
		struct xseg_request *request = xseg_at(v->lane, v->slots[i]);
		request->result = 0;
		request->value = step_value(request->cookie, false);
		xseg_respond(v->lane, v->slots[i]);
	}
	xseg_turn_end(v->lane);
}

static void forward(struct step_victim *v)
{
	for (unsigned i = 0; i < v->slot_count; i++) {
		struct xseg_frame next = xseg_at(v->lane, v->slots[i])->frame[0];
		next.offset += XSEG_PAGE;
		child_check(xseg_forward(v->lane, v->slots[i], v->world->low, &next) == 0);
	}
	xseg_turn_end(v->lane);
}

/* --- a reaper -------------------------------------------------------------------------------- */

static void reap(struct step_victim *v)
{
	struct xseg_reap_report report;
	child_check(xseg_reap(&v->world->seg, &report) == 0);
}

static void nothing(struct step_victim *v) { (void)v; }

const struct step_scene step_scenes[] = {
	{"join", .ready = nothing, .act = join},
	{"get", .ready = joined, .act = get},
	{"pages", .ready = joined, .act = pages},
	{"attach", .ready = joined_get, .act = attach},
	{"attach_many", .ready = joined_get, .act = attach_many},
	{"submit", .ready = joined_attached, .act = submit},
	{"receive", .ready = joined_asked, .between = step_answer_home, .act = receive},
	{"receive_put", .pins = 1, .ready = joined_asked, .between = step_answer_home,
		.act = receive_put},
	{"put_many", .ready = joined_many, .act = drop},
	{"leave", .ready = joined_asked, .between = step_answer_home, .act = leave},
	{"bind", .serves = true, .ready = joined, .act = bind_ports},
	{"accept", .serves = true, .ready = bound, .act = poll_accept},
	{"keep", .serves = true, .ready = taken, .act = keep},
	{"respond", .serves = true, .ready = kept, .act = respond},
	{"keep_on", .serves = true, .ready = taken, .act = keep_on},
	{"respond_on", .serves = true, .ready = kept_on, .act = respond},
	{"forward", .serves = true, .ready = taken, .act = forward},
	{"reap", .serves = true, .corpse = true, .pins = 1, .ready = nothing, .act = reap},
};
const unsigned step_scene_count = countof(step_scenes);
