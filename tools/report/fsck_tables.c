/* SPDX-License-Identifier: Apache-2.0 */
/* Checks what a segment has beside requests and pages: lanes, peers, ports, edges, rings. */
#include <base/name.h>
#include <stdio.h>
#include <string.h>
#include <xseg/registry.h>
#include <xseg/request.h>

#include "tools/report/fsck.h"

static uint64_t load(const _Atomic uint64_t *place)
{
	return atomic_load_explicit(place, memory_order_acquire);
}

static bool named(const char field[NAME_LENGTH_MAX + 1], char out[NAME_LENGTH_MAX + 1])
{
	memcpy(out, field, NAME_LENGTH_MAX);
	out[NAME_LENGTH_MAX] = 0;
	return name_check(out);
}

/* --- lanes and peers -------------------------------------------------------------------- */

static void check_lane(const struct xseg *seg, uint32_t lane, struct fsck *fsck)
{
	uint64_t word = load(&seg->lanes[lane].word);
	unsigned life = xseg_life_of(word);
	struct fsck_owner *owner = &fsck->owners[lane];
	*owner = (struct fsck_owner){.there = life != XSEG_LIFE_FREE,
		.epoch = (uint16_t)xseg_epoch_of(word),
		.pid = (int32_t)xseg_owner_of(word),
		.alive = xseg_lane_alive(seg, lane, (uint16_t)xseg_epoch_of(word))};
	fsck->lanes_alive += owner->alive;
	if (life > XSEG_LIFE_DEAD)
		fsck_look_say(
			fsck, FSCK_LANE_BAD, lane, word, "lane %u is in no state (%u)", lane, life);
	else if (owner->there && !owner->alive && life != XSEG_LIFE_DEAD)
		fsck_look_say(fsck, FSCK_LANE_DEAD, lane, word,
			"lane %u belongs to process %d, which is gone", lane, owner->pid);
}

static void check_peer(const struct xseg *seg, uint32_t index, struct fsck *fsck)
{
	const struct xseg_peer_record *record = &seg->peers[index];
	char name[NAME_LENGTH_MAX + 1];
	uint64_t word = load(&record->word);
	unsigned life = xseg_life_of(word);
	if (life > XSEG_LIFE_DEAD)
		fsck_look_say(fsck, FSCK_PEER_BAD, index, word, "peer %u is in no state (%u)",
			index, life);
	else if (life > XSEG_LIFE_JOINING && !named(record->name, name))
		fsck_look_say(fsck, FSCK_PEER_BAD, index, word, "peer %u has no name", index);
	else if (life > XSEG_LIFE_JOINING && seg->lane_count < 64 &&
		 record->lanes >> seg->lane_count)
		fsck_look_say(fsck, FSCK_PEER_BAD, index, word,
			"peer '%s' runs on lanes that there are not (%llx)", name,
			(unsigned long long)record->lanes);
}

/* --- ports ------------------------------------------------------------------------------ */

static bool peer_lives(const struct xseg *seg, uint64_t word)
{
	struct xseg_peer_view view;
	return xseg_peer_view(seg, xseg_owner_of(word), &view) && view.life != XSEG_LIFE_DEAD &&
	       view.epoch == xseg_epoch_of(word);
}

static void check_port_lanes(
	const struct xseg *seg, uint32_t port, uint64_t word, const char *name, struct fsck *fsck)
{
	const struct xseg_port_record *record = &seg->ports[port];
	uint32_t count = record->lane_count;
	if (!peer_lives(seg, word)) {
		fsck_look_say(fsck, FSCK_PORT_DEAD, port, word,
			"port '%s' is bound to a peer that is gone", name);
		return;
	}
	if (count == 0 || count > XSEG_PORT_LANES_MAX) {
		fsck_look_say(
			fsck, FSCK_PORT_BAD, port, word, "port '%s' has %u lanes", name, count);
		return;
	}
	for (uint32_t i = 0; i < count; i++)
		if (record->lane[i] >= seg->lane_count || !fsck->owners[record->lane[i]].alive)
			fsck_look_say(fsck, FSCK_PORT_BAD, port, word,
				"port '%s' leads to lane %u, which nobody runs", name,
				record->lane[i]);
}

static void check_port(const struct xseg *seg, uint32_t port, struct fsck *fsck)
{
	const struct xseg_port_record *record = &seg->ports[port];
	char name[NAME_LENGTH_MAX + 1], other[NAME_LENGTH_MAX + 1];
	uint64_t word = load(&record->word);
	unsigned life = xseg_life_of(word);
	if (life <= XSEG_LIFE_JOINING)
		return;
	if (life > XSEG_LIFE_DEAD || !named(record->name, name)) {
		fsck_look_say(fsck, FSCK_PORT_BAD, port, word,
			life > XSEG_LIFE_DEAD ? "port %u is in no state" : "port %u has no name",
			port);
		return;
	}
	if (life == XSEG_LIFE_ALIVE || life == XSEG_LIFE_DRAINING)
		check_port_lanes(seg, port, word, name, fsck);
	for (uint32_t i = 0; i < port; i++)
		if (xseg_life_of(load(&seg->ports[i].word)) > XSEG_LIFE_JOINING &&
			named(seg->ports[i].name, other) && !strcmp(name, other))
			fsck_look_say(fsck, FSCK_NAME_TWICE, port, word,
				"ports %u and %u are both named '%s'", i, port, name);
}

/* --- edges ------------------------------------------------------------------------------ */

static bool edge_name(const struct xseg_edge_record *record, char out[XSEG_EDGE_NAME_MAX + 1])
{
	memcpy(out, record->name, XSEG_EDGE_NAME_MAX);
	out[XSEG_EDGE_NAME_MAX] = 0;
	return strchr(out, ':') != NULL;
}

static void check_edge(const struct xseg *seg, uint32_t edge, struct fsck *fsck)
{
	const struct xseg_edge_record *record = &seg->edges[edge];
	char name[XSEG_EDGE_NAME_MAX + 1], other[XSEG_EDGE_NAME_MAX + 1];
	uint32_t life = atomic_load_explicit(&record->life, memory_order_acquire);
	uint64_t word = load(&record->word);
	uint32_t port = (uint32_t)(word >> 32);
	if (life == XSEG_LIFE_FREE || (life & 0xffu) == XSEG_LIFE_JOINING)
		return;
	if (life != XSEG_LIFE_ALIVE || !edge_name(record, name)) {
		fsck_look_say(fsck, FSCK_EDGE_BAD, edge, word,
			life != XSEG_LIFE_ALIVE ? "edge %u is in no state" : "edge %u has no name",
			edge);
		return;
	}
	if (port != XSEG_NONE &&
		(port >= XSEG_PORTS_MAX ||
			xseg_life_of(load(&seg->ports[port].word)) == XSEG_LIFE_FREE))
		fsck_look_say(fsck, FSCK_EDGE_BAD, edge, word,
			"edge '%s' leads to port %u, which there is not", name, port);
	for (uint32_t i = 0; i < edge; i++)
		if (atomic_load(&seg->edges[i].life) == XSEG_LIFE_ALIVE &&
			edge_name(&seg->edges[i], other) && !strcmp(name, other))
			fsck_look_say(fsck, FSCK_NAME_TWICE, XSEG_PORTS_MAX + edge, word,
				"edges %u and %u are both named '%s'", i, edge, name);
}

/* --- rings ------------------------------------------------------------------------------ */

static void check_ring(
	const struct xseg *seg, uint32_t consumer, uint32_t producer, struct fsck *fsck)
{
	uint32_t index = consumer * seg->lane_count + producer;
	const struct xseg_ring *ring = &seg->rings[index];
	uint64_t head = load(&ring->head), top = 0;
	for (uint32_t i = 0; i < XSEG_RING_SLOTS; i++) {
		const struct xseg_slot *slot = &ring->slots[i];
		uint64_t sequence = load(&slot->sequence);
		if (sequence == 0)
			continue;
		bool placed = (sequence - 1) % XSEG_RING_SLOTS == i;
		if (!placed || slot->kind > XSEG_HINT_REPLY || slot->request >= seg->request_count)
			fsck_look_say(fsck, FSCK_RING_BAD, index, sequence,
				"ring from lane %u to lane %u: entry %u cannot be (sequence %llu, "
				"request %u, kind %u)",
				producer, consumer, i, (unsigned long long)sequence, slot->request,
				slot->kind);
		else if (sequence > top)
			top = sequence;
	}
	/* the producer may have gone on since we read the head, never back */
	if (head > top)
		fsck_look_say(fsck, FSCK_RING_BAD, index, head,
			"ring from lane %u to lane %u: taken up to %llu, but put up to %llu",
			producer, consumer, (unsigned long long)head, (unsigned long long)top);
}

/* --- counters --------------------------------------------------------------------------- */

static void check_blocks(const struct xseg *seg, struct fsck *fsck)
{
	for (uint32_t i = 0; i < XSEG_STATS_BLOCKS; i++) {
		uint64_t word = load(&seg->stats[i].word);
		if (xseg_life_of(word) > XSEG_LIFE_ALIVE)
			fsck_look_say(fsck, FSCK_STATS_BAD, i, word,
				"block %u of counters is in no state (%u)", i, xseg_life_of(word));
	}
	for (uint32_t i = 0; i < seg->volume_count; i++) {
		uint64_t word = load(&seg->volumes[i].word);
		if (xseg_life_of(word) > XSEG_LIFE_ALIVE)
			fsck_look_say(fsck, FSCK_STATS_BAD, XSEG_STATS_BLOCKS + i, word,
				"block %u of volumes is in no state (%u)", i, xseg_life_of(word));
	}
}

void fsck_tables(const struct xseg *seg, struct fsck *fsck)
{
	for (uint32_t i = 0; i < seg->lane_count; i++)
		check_lane(seg, i, fsck);
	for (uint32_t i = 0; i < XSEG_PEERS_MAX; i++)
		check_peer(seg, i, fsck);
	for (uint32_t i = 0; i < XSEG_PORTS_MAX; i++)
		check_port(seg, i, fsck);
	for (uint32_t i = 0; i < XSEG_EDGES_MAX; i++)
		check_edge(seg, i, fsck);
	for (uint32_t c = 0; c < seg->lane_count; c++)
		for (uint32_t p = 0; p < seg->lane_count; p++)
			check_ring(seg, c, p, fsck);
	check_blocks(seg, fsck);
}
