/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a front's calls do to each volume: a block in the segment for every volume that is in use
 * on this lane, found again by a small table of the shard's own.
 */
#include <base/hash.h>
#include <string.h>

#include "peers/core/core.h"

/* One that is closed and was not used for so long gives its block back. */
#define VOLUME_IDLE_NS 60000000000u
#define VOLUME_SWEEP_NS 1000000000u
#define VOLUME_FULL_NS 10000000000u

static const uint8_t volume_ops[XSEG_OP_COUNT] = {
	[XSEG_OP_READ] = 1 + XSEG_VOLUME_OP_READ,
	[XSEG_OP_WRITE] = 1 + XSEG_VOLUME_OP_WRITE,
	[XSEG_OP_FLUSH] = 1 + XSEG_VOLUME_OP_FLUSH,
	[XSEG_OP_ZERO] = 1 + XSEG_VOLUME_OP_OTHER,
	[XSEG_OP_DISCARD] = 1 + XSEG_VOLUME_OP_OTHER,
	[XSEG_OP_STATUS] = 1 + XSEG_VOLUME_OP_OTHER,
	[XSEG_OP_PREFETCH] = 1 + XSEG_VOLUME_OP_OTHER,
};

/* Neighbouring ids lie apart: they are often counted up from one. */
static unsigned volume_place(uint64_t volume)
{
	return (unsigned)(hash_u64(volume) >> 32) % SHARD_VOLUMES;
}

static void volume_forget(struct shard *shard, struct shard_volume *entry)
{
	if (shard->last_volume == entry)
		shard->last_volume = NULL;
	if (entry->block != &shard->peer.lane->uncounted)
		xseg_volume_close(entry->block);
	memset(entry, 0, sizeof(*entry));
}

/* A block of the segment. That is a look at all of them, with a system call for some. */
static struct xseg_volume_block *volume_block(struct shard *shard, uint64_t volume, uint64_t now)
{
	struct lane *lane = shard->peer.lane;
	struct xseg_volume_block *block = &lane->uncounted;
	if (now >= shard->volumes_full_ns &&
		xseg_volume_open(lane->x->seg, shard->peer.record, shard->owner->epoch,
			lane->x->index, volume, &block))
		shard->volumes_full_ns = now + VOLUME_FULL_NS;
	return block;
}

/* Its place in the table, or a free one; NULL: the table is full. */
static struct shard_volume *volume_slot(struct shard *shard, uint64_t volume)
{
	struct shard_volume *room = NULL;
	unsigned first = volume_place(volume);
	for (unsigned i = 0; i < SHARD_VOLUMES; i++) {
		struct shard_volume *entry = &shard->volumes[(first + i) % SHARD_VOLUMES];
		if (entry->volume == volume)
			return entry;
		if (!entry->volume && !room)
			room = entry;
	}
	return room;
}

static struct shard_volume *volume_find(struct shard *shard, uint64_t volume, uint64_t now)
{
	struct shard_volume *entry = volume_slot(shard, volume);
	if (!entry)
		return NULL;
	if (!entry->volume) {
		entry->block = volume_block(shard, volume, now);
		entry->volume = volume;
	}
	entry->used_ns = now;
	shard->last_volume = entry;
	return entry;
}

/* OPEN was answered: from now on it has a name. */
static void volume_opened(struct shard *shard, const struct call *call, uint64_t now)
{
	struct xseg_volume_info info;
	if (call->result || call->answer_length < sizeof(info))
		return;
	call_get_bytes(call, 0, &info, sizeof(info));
	info.name[VOLUME_NAME_LENGTH_MAX] = '\0';
	struct shard_volume *entry = info.id ? volume_find(shard, info.id, now) : NULL;
	if (!entry)
		return;
	entry->opens++;
	if (name_check_volume(info.name))
		xseg_volume_name(entry->block, info.name);
}

/* After the last CLOSE it stays for a while: the client may come back. */
static void volume_closed(struct shard *shard, const struct call *call, uint64_t now)
{
	struct shard_volume *entry = call->key.volume ? volume_slot(shard, call->key.volume) : NULL;
	if (!entry || !entry->volume)
		return;
	entry->used_ns = now;
	if (entry->opens)
		entry->opens--;
}

void volume_account_slow(struct shard *shard, const struct call *call, uint64_t ns)
{
	struct shard_volume *entry = shard->last_volume;
	uint64_t now = lane_now(shard->peer.lane);
	unsigned op = call->op < XSEG_OP_COUNT ? volume_ops[call->op] : 0;
	if (call->op == XSEG_OP_OPEN)
		volume_opened(shard, call, now);
	else if (call->op == XSEG_OP_CLOSE)
		volume_closed(shard, call, now);
	if (!op || !call->key.volume)
		return;
	if (!entry || entry->volume != call->key.volume)
		entry = volume_find(shard, call->key.volume, now);
	if (!entry)
		return;
	_Atomic uint64_t *errors = &entry->block->errors;
	if (call->result)
		atomic_store_explicit(errors,
			atomic_load_explicit(errors, memory_order_relaxed) + 1,
			memory_order_relaxed);
	xseg_volume_record(entry->block, op - 1, call->result ? 0 : call->answer_length, ns);
}

void volume_sweep(struct shard *shard, uint64_t now)
{
	shard->volumes_sweep_ns = now + VOLUME_SWEEP_NS;
	for (unsigned i = 0; i < SHARD_VOLUMES; i++) {
		struct shard_volume *entry = &shard->volumes[i];
		if (entry->volume && !entry->opens && now - entry->used_ns > VOLUME_IDLE_NS)
			volume_forget(shard, entry);
	}
	for (unsigned i = 0; i < SHARD_VOLUMES && now >= shard->volumes_full_ns; i++) {
		struct shard_volume *entry = &shard->volumes[i];
		if (entry->block == &shard->peer.lane->uncounted)
			entry->block = volume_block(shard, entry->volume, now);
	}
}

void volume_finish(struct shard *shard)
{
	for (unsigned i = 0; i < SHARD_VOLUMES; i++)
		if (shard->volumes[i].volume)
			volume_forget(shard, &shard->volumes[i]);
}
