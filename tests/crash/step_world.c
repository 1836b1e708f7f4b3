/* SPDX-License-Identifier: Apache-2.0 */
/* The living beside a victim: what they ask and answer, and how they see that nothing was lost. */
#include <errno.h>
#include <string.h>
#include <xseg/reap.h>

#include "tests/crash/step.h"
#include "tests/lib/fixture.h"

#define LANES 4u
#define REQUESTS 64u
#define HINTS 32u

uint64_t step_value(uint64_t cookie, bool successor) { return (cookie + 1) * (successor ? 5 : 7); }

void step_world_make(struct step_world *world)
{
	memset(world, 0, sizeof(*world));
	scratch_segment(&world->seg, XSEG_SIZE_MIN, LANES, REQUESTS);
	must(xseg_lane_join(&world->seg, false, &world->lane) == 0);
	uint8_t place = (uint8_t)world->lane->index;
	uint32_t peer;
	uint16_t epoch;
	must(xseg_peer_join(&world->seg, "home", "test", 1ull << place, &peer, &epoch) == 0);
	must(xseg_port_bind(&world->seg, "home", peer, epoch, &place, 1, &world->home) == 0);
	must(xseg_port_reserve(&world->seg, "top", &world->top) == 0);
	must(xseg_port_reserve(&world->seg, "low", &world->low) == 0);
}

void step_victim_join(struct step_victim *victim)
{
	child_check(xseg_lane_join(&victim->world->seg, false, &victim->lane) == 0);
}

void step_bind(struct step_world *world, struct xseg_lane *lane)
{
	static const char *const names[] = {"top", "low"};
	uint8_t place = (uint8_t)lane->index;
	for (unsigned i = 0; i < countof(names); i++) {
		uint32_t peer, port;
		uint16_t epoch;
		child_check(xseg_peer_join(&world->seg, names[i], "test", 1ull << place, &peer,
				    &epoch) == 0);
		child_check(
			xseg_port_bind(&world->seg, names[i], peer, epoch, &place, 1, &port) == 0);
		xseg_rehint_port(lane, port);
	}
	xseg_turn_end(lane);
}

/* --- what is asked --------------------------------------------------------------------------- */

static uint8_t *first_page(const struct step_world *world, const struct xseg_request *request)
{
	return xseg_page_address(&world->seg, request->extents[0].page);
}

/* Writes carry a page that says so, and may be kept; the last one has more runs than pages. */
void step_send(struct step_world *world)
{
	for (uint32_t i = 0; i < STEP_SENT; i++) {
		uint32_t slot;
		must(xseg_get(world->lane, &slot) == 0);
		struct xseg_request *request = xseg_at(world->lane, slot);
		request->cookie = i;
		request->frame[0] = (struct xseg_frame){.op = XSEG_OP_WRITE,
			.lane = XSEG_LANE_ANY,
			.flags = XSEG_F_DONATE,
			.offset = i * XSEG_OBJECT_MAX,
			.length = XSEG_PAGE << i};
		must(xseg_attach_pages(world->lane, slot, 0, XSEG_PAGE << i) == 0);
		memset(first_page(world, request), (int)(0x40 + i), XSEG_PAGE);
		world->lane->now_ns++; /* submit order */
		must(xseg_submit(world->lane, slot, world->top) == 0);
		world->sent[world->sent_count++] = slot;
	}
	xseg_turn_end(world->lane);
}

static void lend(struct step_world *world, struct xseg_request *request)
{
	struct xseg_extent page;
	uint32_t runs;
	child_check(xseg_page_alloc(&world->lane->pages, 1, &page, 1, &runs) == 0);
	xseg_page_store(&world->lane->pages, page.page);
	xseg_page_pin(&world->seg, page.page);
	request->answer[0] = page;
	request->answer_count = 1;
	world->lent[world->lent_count++] = page.page;
}

void step_answer_home(struct step_world *world)
{
	struct xseg_hint_message hints[HINTS];
	uint32_t count = xseg_poll(world->lane, hints, HINTS);
	for (uint32_t i = 0; i < count; i++) {
		unsigned frame;
		if (xseg_accept(world->lane, hints[i].request, &frame))
			continue;
		struct xseg_request *request = xseg_at(world->lane, hints[i].request);
		request->result = 0;
		if (request->frame[frame].op == XSEG_OP_READ && world->lent_count < 2)
			lend(world, request);
		xseg_respond(world->lane, hints[i].request);
	}
	xseg_turn_end(world->lane);
}

/* --- what must be true afterwards ------------------------------------------------------------ */

static void reap_all(struct step_world *world)
{
	struct xseg_reap_report report;
	child_check(xseg_reap(&world->seg, &report) == 0);
	child_check(report.pending == 0);
	child_check(report.refused == 0);
}

/* Nothing that a dead client had asked may be done any more. */
static void nothing_comes_home(struct step_world *world, struct xseg_hint_message *hint)
{
	unsigned frame;
	child_check(xseg_accept(world->lane, hint->request, &frame) != 0);
}

struct tally {
	unsigned served[STEP_SENT], answered[STEP_SENT], by_victim[STEP_SENT];
};

/* The successor gets what its predecessor had, with the data as the client wrote it. */
static void serve_one(
	struct step_world *world, struct xseg_lane *lane, uint32_t slot, struct tally *tally)
{
	unsigned frame;
	if (xseg_accept(lane, slot, &frame))
		return;
	struct xseg_request *request = xseg_at(lane, slot);
	uint64_t cookie = request->cookie;
	child_check(cookie < STEP_SENT && world->sent[cookie] == slot);
	child_check(request->frame[0].offset == cookie * XSEG_OBJECT_MAX);
	child_check(request->frame[frame].op == XSEG_OP_WRITE);
	const uint8_t *data = first_page(world, request);
	for (unsigned i = 0; i < XSEG_PAGE; i++)
		child_check(data[i] == 0x40 + cookie);
	uint64_t word = atomic_load(&world->seg.descriptors[request->extents[0].page].word);
	child_check(xseg_page_state(word) == XSEG_PAGE_HELD);
	child_check(xseg_page_owner(word) == world->lane->index);
	tally->served[cookie]++;
	request->result = 0;
	request->value = step_value(cookie, true);
	xseg_respond(lane, slot);
}

static void receive_one(struct step_world *world, uint32_t slot, struct tally *tally)
{
	if (xseg_receive(world->lane, slot))
		return;
	const struct xseg_request *request = xseg_at(world->lane, slot);
	uint64_t cookie = request->cookie;
	child_check(cookie < STEP_SENT && request->result == 0);
	child_check(request->value == step_value(cookie, true) ||
		    request->value == step_value(cookie, false));
	tally->by_victim[cookie] = request->value == step_value(cookie, false);
	tally->answered[cookie]++;
	xseg_put(world->lane, slot);
}

static void turn(struct step_world *world, struct xseg_lane *successor, struct tally *tally)
{
	struct xseg_hint_message hints[HINTS];
	uint32_t count = xseg_poll(successor, hints, HINTS);
	for (uint32_t i = 0; i < count; i++)
		serve_one(world, successor, hints[i].request, tally);
	xseg_turn_end(successor);
	count = xseg_poll(world->lane, hints, HINTS);
	for (uint32_t i = 0; i < count; i++)
		if (hints[i].kind == XSEG_HINT_SUBMIT)
			nothing_comes_home(world, &hints[i]);
		else
			receive_one(world, hints[i].request, tally);
	xseg_turn_end(world->lane);
}

/* The reader died between noting its pin as gone and dropping it: the page waits for its holder. */
static bool left_pinned(const struct step_world *world)
{
	unsigned left = 0;
	for (unsigned i = 0; i < world->lent_count; i++) {
		uint64_t word = atomic_load(&world->seg.descriptors[world->lent[i]].word);
		left += xseg_page_state(word) == XSEG_PAGE_RETIRED && xseg_page_pins(word) == 1;
	}
	child_check(left <= 1);
	return left;
}

/*
 * What the dead server had kept for its successor: a page of each request that it had answered, and
 * none of those that were served again.
 */
static void inherit(struct step_world *world, const struct tally *tally)
{
	unsigned kept = 0, answered = 0;
	for (uint32_t page = 0; page < world->seg.page_count; page++) {
		uint64_t word = atomic_load(&world->seg.descriptors[page].word);
		if (xseg_page_state(word) != XSEG_PAGE_KEPT)
			continue;
		child_check(xseg_page_owner(word) == world->top && xseg_page_pins(word) == 0);
		xseg_page_retire(&world->lane->pages, page);
		kept++;
	}
	for (unsigned i = 0; i < world->sent_count; i++)
		answered += tally->by_victim[i];
	child_check(kept == 0 || kept == answered);
}

/* Each slot and each page can be had, once. */
static void conserve(struct step_world *world, unsigned pages)
{
	static uint8_t seen[1u << 16];
	struct xseg_extent page;
	uint32_t slot, count = 0, runs;
	memset(seen, 0, sizeof(seen));
	for (; xseg_get(world->lane, &slot) == 0; count++)
		child_check(slot < world->seg.request_count && !seen[slot]++);
	child_check(count == world->seg.request_count);
	memset(seen, 0, sizeof(seen));
	for (count = 0; xseg_page_alloc(&world->lane->pages, 1, &page, 1, &runs) == 0; count++)
		child_check(page.page < sizeof(seen) && !seen[page.page]++);
	child_check(count == pages);
}

bool step_repair_and_check(struct step_world *world)
{
	struct xseg_lane *successor;
	struct tally tally = {{0}, {0}, {0}};
	reap_all(world);
	child_check(xseg_lane_join(&world->seg, false, &successor) == 0);
	step_bind(world, successor);
	for (unsigned i = 0; i < 6; i++)
		turn(world, successor, &tally);
	for (unsigned i = 0; i < world->sent_count; i++) {
		child_check(tally.answered[i] == 1);
		/* done once: by him who died, or by who came after him */
		child_check(tally.served[i] + tally.by_victim[i] == 1);
	}
	for (unsigned i = 0; i < world->lent_count; i++)
		xseg_page_retire(&world->lane->pages, world->lent[i]);
	inherit(world, &tally);
	xseg_lane_leave(successor);
	reap_all(world);
	bool left = left_pinned(world);
	conserve(world, world->seg.page_count - left);
	return !left;
}
