/* SPDX-License-Identifier: Apache-2.0 */
/* Ports and edges: where peers are reached, and which way down leads there. */
#include <base/hash.h>
#include <base/name.h>
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <xseg/port.h>
#include <xseg/registry.h>

static bool name_is(const char *field, size_t size, const char *name)
{
	return strncmp(field, name, size) == 0;
}

/* A record is visible once its life is past JOINING. */
static bool port_named(const struct xseg_port_record *port, const char *name)
{
	unsigned life = xseg_life_of(atomic_load_explicit(&port->word, memory_order_acquire));
	return life > XSEG_LIFE_JOINING && name_is(port->name, sizeof(port->name), name);
}

int xseg_port_find(const struct xseg *seg, const char *name, uint32_t *port)
{
	for (uint32_t i = 0; i < XSEG_PORTS_MAX; i++)
		if (port_named(&seg->ports[i], name)) {
			*port = i;
			return 0;
		}
	return -ENOENT;
}

/* JOINING carries the pid of who is writing the name, so that one killed at it is told. */
static bool being_named(unsigned life, uint32_t pid)
{
	return life == XSEG_LIFE_JOINING && xseg_process_start_time((pid_t)pid) != 0;
}

static bool port_claim(struct xseg_port_record *record)
{
	uint64_t word = atomic_load_explicit(&record->word, memory_order_acquire);
	unsigned life = xseg_life_of(word);
	if (life > XSEG_LIFE_JOINING || being_named(life, xseg_owner_of(word)))
		return false;
	return atomic_compare_exchange_strong_explicit(&record->word, &word,
		xseg_life_word(XSEG_LIFE_JOINING, 0, (uint32_t)getpid()), memory_order_acq_rel,
		memory_order_relaxed);
}

static bool port_below(const struct xseg *seg, const char *name, uint32_t end, uint32_t *port)
{
	for (uint32_t i = 0; i < end; i++) {
		const struct xseg_port_record *record = &seg->ports[i];
		uint64_t word = atomic_load_explicit(&record->word, memory_order_acquire);
		while (being_named(xseg_life_of(word), xseg_owner_of(word))) {
			sched_yield();
			word = atomic_load_explicit(&record->word, memory_order_acquire);
		}
		if (port_named(record, name)) {
			*port = i;
			return true;
		}
	}
	return false;
}

/*
 * Of several that make a record of one name at once, the lowest stays: each looks below, and
 * waits for who is still writing there, before it shows its own, and once more after.
 */
static void port_show(const struct xseg *seg, const char *name, uint32_t made, uint32_t *port)
{
	_Atomic uint64_t *word = &seg->ports[made].word;
	*port = made;
	if (port_below(seg, name, made, port)) {
		atomic_store_explicit(word, 0, memory_order_release);
		return;
	}
	atomic_store(word, xseg_life_word(XSEG_LIFE_DEAD, 0, XSEG_NONE));
	if (port_below(seg, name, made, port))
		atomic_store_explicit(word, 0, memory_order_release);
}

int xseg_port_reserve(const struct xseg *seg, const char *name, uint32_t *port)
{
	if (!name_check(name))
		return -EINVAL;
	if (xseg_port_find(seg, name, port) == 0)
		return 0;
	for (uint32_t i = 0; i < XSEG_PORTS_MAX; i++) {
		struct xseg_port_record *record = &seg->ports[i];
		if (!port_claim(record))
			continue;
		snprintf(record->name, sizeof(record->name), "%s", name);
		xseg_poke(record->lane_count, 0u);
		port_show(seg, name, i, port);
		return 0;
	}
	return -ENOSPC;
}

static bool bound_to_living(const struct xseg *seg, uint64_t word)
{
	struct xseg_peer_view view;
	return xseg_life_of(word) == XSEG_LIFE_ALIVE && xseg_owner_of(word) < XSEG_PEERS_MAX &&
	       xseg_peer_view(seg, xseg_owner_of(word), &view) && view.life != XSEG_LIFE_DEAD &&
	       view.epoch == xseg_epoch_of(word);
}

bool xseg_port_served(const struct xseg *seg, uint32_t port)
{
	return port < XSEG_PORTS_MAX &&
	       bound_to_living(
		       seg, atomic_load_explicit(&seg->ports[port].word, memory_order_acquire));
}

int xseg_port_bind(const struct xseg *seg, const char *name, uint32_t peer, uint16_t epoch,
	const uint8_t *lanes, uint32_t lane_count, uint32_t *port)
{
	if (lane_count == 0 || lane_count > XSEG_PORT_LANES_MAX)
		return -EINVAL;
	int ret = xseg_port_reserve(seg, name, port);
	if (ret)
		return ret;
	struct xseg_port_record *record = &seg->ports[*port];
	uint64_t word = atomic_load_explicit(&record->word, memory_order_acquire);
	if (bound_to_living(seg, word))
		return -EEXIST;
	/* out of service while the lanes change, so that nobody steers by half a list */
	if (!atomic_compare_exchange_strong_explicit(&record->word, &word,
		    xseg_life_word(XSEG_LIFE_DRAINING, epoch, peer), memory_order_acq_rel,
		    memory_order_relaxed))
		return -EEXIST;
	xseg_poke(record->lane_count, lane_count);
	for (uint32_t i = 0; i < lane_count; i++)
		xseg_poke(record->lane[i], lanes[i]);
	atomic_store_explicit(
		&record->word, xseg_life_word(XSEG_LIFE_ALIVE, epoch, peer), memory_order_release);
	return 0;
}

void xseg_port_drain(const struct xseg *seg, uint32_t port)
{
	_Atomic uint64_t *word = &seg->ports[port].word;
	uint64_t old = atomic_load_explicit(word, memory_order_relaxed);
	atomic_store_explicit(word,
		xseg_life_word(XSEG_LIFE_DRAINING, xseg_epoch_of(old), xseg_owner_of(old)),
		memory_order_release);
}

void xseg_port_unbind(const struct xseg *seg, uint32_t port)
{
	atomic_store_explicit(&seg->ports[port].word, xseg_life_word(XSEG_LIFE_DEAD, 0, XSEG_NONE),
		memory_order_release);
}

/* Cheap and good enough to spread neighbours: multiply and take the high bits. */
static uint32_t spread(uint64_t volume, uint64_t place, uint32_t count)
{
	uint64_t h = (volume ^ hash_u64(place)) * 0xd6e8feb86659fd93ull;
	return (uint32_t)(((h >> 32) * count) >> 32);
}

uint32_t xseg_port_shard(const struct xseg_key *key, uint64_t offset, uint32_t count)
{
	return spread(
		key->volume ^ (uint64_t)key->epoch << 32, key->object + (offset >> 22), count);
}

uint32_t xseg_port_lane(const struct xseg *seg, uint32_t port, const struct xseg_frame *frame)
{
	const struct xseg_port_record *record = &seg->ports[port];
	uint64_t word = atomic_load_explicit(&record->word, memory_order_acquire);
	uint32_t count = xseg_peek(record->lane_count), which = 0;
	bool drains = xseg_life_of(word) == XSEG_LIFE_DRAINING && frame->lane != XSEG_LANE_ANY;
	if ((xseg_life_of(word) != XSEG_LIFE_ALIVE && !drains) || count == 0 ||
		count > XSEG_PORT_LANES_MAX)
		return XSEG_NONE;
	if (frame->lane != XSEG_LANE_ANY)
		which = frame->lane < count ? frame->lane : 0;
	else if (count > 1 && (frame->op <= XSEG_OP_DELETE || frame->op == XSEG_OP_INFO))
		which = xseg_port_shard(&frame->key, frame->offset, count);
	uint32_t lane = xseg_peek(record->lane[which]);
	return lane < seg->lane_count ? lane : XSEG_NONE;
}

int xseg_edge_find(const struct xseg *seg, const char *name, uint32_t *edge)
{
	for (uint32_t i = 0; i < XSEG_EDGES_MAX; i++) {
		const struct xseg_edge_record *record = &seg->edges[i];
		if (atomic_load_explicit(&record->life, memory_order_acquire) == XSEG_LIFE_ALIVE &&
			name_is(record->name, sizeof(record->name), name)) {
			*edge = i;
			return 0;
		}
	}
	return -ENOENT;
}

/* "PEER:edge", both of them names. */
static bool edge_name_check(const char *name)
{
	char part[NAME_LENGTH_MAX + 1];
	const char *colon = strchr(name, ':');
	if (!colon || (size_t)(colon - name) >= sizeof(part))
		return false;
	memcpy(part, name, (size_t)(colon - name));
	part[colon - name] = '\0';
	return name_check(part) && name_check(colon + 1);
}

static bool edge_claim(struct xseg_edge_record *record)
{
	uint32_t life = atomic_load_explicit(&record->life, memory_order_acquire);
	if (life == XSEG_LIFE_ALIVE || being_named(life & 0xffu, life >> 8))
		return false;
	return atomic_compare_exchange_strong_explicit(&record->life, &life,
		XSEG_LIFE_JOINING | (uint32_t)getpid() << 8, memory_order_acq_rel,
		memory_order_relaxed);
}

static bool edge_below(const struct xseg *seg, const char *name, uint32_t end, uint32_t *edge)
{
	for (uint32_t i = 0; i < end; i++) {
		const struct xseg_edge_record *record = &seg->edges[i];
		uint32_t life = atomic_load_explicit(&record->life, memory_order_acquire);
		while (being_named(life & 0xffu, life >> 8)) {
			sched_yield();
			life = atomic_load_explicit(&record->life, memory_order_acquire);
		}
		if (life == XSEG_LIFE_ALIVE && name_is(record->name, sizeof(record->name), name)) {
			*edge = i;
			return true;
		}
	}
	return false;
}

/* As port_show(). */
static void edge_show(const struct xseg *seg, const char *name, uint32_t made, uint32_t *edge)
{
	struct xseg_edge_record *record = &seg->edges[made];
	*edge = made;
	if (edge_below(seg, name, made, edge)) {
		atomic_store_explicit(&record->life, XSEG_LIFE_FREE, memory_order_release);
		return;
	}
	atomic_store(&record->life, XSEG_LIFE_ALIVE);
	if (edge_below(seg, name, made, edge))
		atomic_store_explicit(&record->life, XSEG_LIFE_FREE, memory_order_release);
}

int xseg_edge_reserve(const struct xseg *seg, const char *name, uint32_t *edge)
{
	if (!edge_name_check(name))
		return -EINVAL;
	if (xseg_edge_find(seg, name, edge) == 0)
		return 0;
	for (uint32_t i = 0; i < XSEG_EDGES_MAX; i++) {
		struct xseg_edge_record *record = &seg->edges[i];
		if (!edge_claim(record))
			continue;
		snprintf(record->name, sizeof(record->name), "%s", name);
		atomic_store_explicit(
			&record->word, (uint64_t)XSEG_NONE << 32, memory_order_relaxed);
		edge_show(seg, name, i, edge);
		return 0;
	}
	return -ENOSPC;
}

int xseg_edge_target(const struct xseg *seg, const char *name, char to[NAME_LENGTH_MAX + 1])
{
	uint32_t index;
	int error = xseg_edge_find(seg, name, &index);
	memset(to, 0, NAME_LENGTH_MAX + 1);
	uint32_t port = error ? XSEG_NONE : xseg_edge_port(seg, index);
	if (port != XSEG_NONE)
		memcpy(to, seg->ports[port].name, NAME_LENGTH_MAX);
	return error;
}

void xseg_edge_set(const struct xseg *seg, uint32_t edge, uint32_t port)
{
	_Atomic uint64_t *word = &seg->edges[edge].word;
	uint64_t old = atomic_load_explicit(word, memory_order_relaxed);
	uint64_t next;
	do
		next = (uint64_t)port << 32 | (uint32_t)((uint32_t)old + 1);
	while (!atomic_compare_exchange_weak_explicit(
		word, &old, next, memory_order_acq_rel, memory_order_relaxed));
}
