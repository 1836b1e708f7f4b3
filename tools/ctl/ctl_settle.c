/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Waits until a switched edge is everybody's: who read it before has had a turn and another one
 * since, and what went the old way has been answered.
 */
#include <base/must.h>
#include <base/time.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <xseg/bell.h>
#include <xseg/port.h>
#include <xseg/registry.h>
#include <xseg/request.h>

#include "tools/ctl/ctl_plug.h"

#define LOOK_NS 1000000u
#define TURNS 2u

struct turns {
	uint64_t lanes; /* that have not had theirs; a bit each */
	uint16_t epoch[XSEG_LANES_MAX];
	uint64_t heartbeat[XSEG_LANES_MAX];
};

static void nap(void) { time_nap(LOOK_NS); }

/* --- whose turns ------------------------------------------------------------------------ */

static uint64_t lanes_of(const struct xseg *seg, const char *peer)
{
	struct xseg_peer_view view;
	bool there = !xseg_peer_find(seg, peer, &view) && view.life != XSEG_LIFE_DEAD;
	return there ? view.lanes : 0;
}

/* Who is above; when no edge tells (any more), everybody but the cache itself. */
static uint64_t lanes_above(const struct ctl_plug *plug)
{
	uint64_t lanes = 0;
	struct xseg_peer_view view;
	for (unsigned i = 0; i < plug->edge_count; i++) {
		char peer[NAME_LENGTH_MAX + 1];
		snprintf(peer, sizeof(peer), "%.*s", (int)strcspn(plug->edges[i], ":"),
			plug->edges[i]);
		lanes |= lanes_of(&plug->seg, peer);
	}
	for (uint32_t i = 0; plug->edge_count == 0 && i < XSEG_PEERS_MAX; i++)
		if (xseg_peer_view(&plug->seg, i, &view) && view.life != XSEG_LIFE_DEAD &&
			strcmp(view.name, plug->name))
			lanes |= view.lanes;
	return lanes;
}

static void turns_begin(const struct ctl_plug *plug, struct turns *turns)
{
	turns->lanes = lanes_above(plug);
	for (uint32_t i = 0; i < plug->seg.lane_count; i++) {
		const struct xseg_lane_record *lane = &plug->seg.lanes[i];
		turns->epoch[i] = (uint16_t)xseg_epoch_of(atomic_load(&lane->word));
		turns->heartbeat[i] = atomic_load(&lane->heartbeat);
	}
}

/* A lane that is no more, or another's by now, has read nothing before. */
static bool turns_over(const struct ctl_plug *plug, struct turns *turns)
{
	struct xseg_ringer ringer;
	xseg_ringer_init(&ringer, &plug->seg);
	for (uint32_t i = 0; i < plug->seg.lane_count; i++) {
		const struct xseg_lane_record *lane = &plug->seg.lanes[i];
		if (!((turns->lanes >> i) & 1u))
			continue;
		if (atomic_load(&lane->heartbeat) - turns->heartbeat[i] >= TURNS ||
			!xseg_lane_alive(&plug->seg, i, turns->epoch[i]))
			turns->lanes &= ~(1ull << i);
		else if (atomic_load(&lane->bell.asleep))
			xseg_bell_ring_slow(&ringer, i);
	}
	xseg_ringer_fini(&ringer);
	return turns->lanes == 0;
}

int ctl_settle_turns(struct ctl_plug *plug)
{
	struct turns turns;
	turns_begin(plug, &turns);
	while (!turns_over(plug, &turns)) {
		int rc = ctl_plug_check(plug, "a peer above it does not move");
		if (rc)
			return rc;
		nap();
	}
	return 0;
}

/* --- what went the old way ---------------------------------------------------------------- */

/* Was it sent to that port by one of these lanes? Read twice: it may end while we look. */
static bool went(const struct xseg_request *request, uint32_t port, uint64_t lanes)
{
	uint64_t word = atomic_load_explicit(&request->word, memory_order_acquire);
	unsigned state = xseg_word_state(word), last = xseg_word_frame(word);
	bool found = false;
	if (state != XSEG_REQUEST_SUBMITTED && state != XSEG_REQUEST_TAKEN)
		return false;
	for (unsigned i = 0; !found && i <= last && i < XSEG_FRAMES; i++) {
		unsigned from = request->frame[i].from;
		found = request->frame[i].port == port && from < XSEG_LANES_MAX &&
			((lanes >> from) & 1u);
	}
	atomic_thread_fence(memory_order_acquire);
	uint64_t again = atomic_load_explicit(&request->word, memory_order_acquire);
	/* forwarded meanwhile is still on its way: only another life of the slot is another */
	return found && xseg_word_generation(again) == xseg_word_generation(word);
}

static uint32_t on_their_way(const struct xseg *seg, uint32_t port, uint64_t lanes)
{
	uint32_t count = 0;
	for (uint32_t i = 0; i < seg->request_count; i++)
		count += went(&seg->requests[i], port, lanes);
	return count;
}

int ctl_settle(struct ctl_plug *plug, const char *port_name, bool anybody)
{
	char why[96];
	uint32_t port, count;
	int rc = ctl_settle_turns(plug);
	if (rc || xseg_port_find(&plug->seg, port_name, &port))
		return rc;
	uint64_t lanes = anybody ? ~0ull : lanes_above(plug);
	while ((count = on_their_way(&plug->seg, port, lanes)) > 0) {
		snprintf(why, sizeof(why), "%u requests are still on their way to '%s'", count,
			port_name);
		rc = ctl_plug_check(plug, why);
		if (rc)
			return rc;
		nap();
	}
	return 0;
}
