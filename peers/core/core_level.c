/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The log level while it runs: a word in the peer's record asks for it, so it needs no signal, and
 * a successor of that name finds it again. Logs are the process's, so the most talkative of its
 * peers decides.
 */
#include <base/log.h>

#include "peers/core/core.h"

static uint32_t asked_of(const struct host *host, const struct host_peer *peer)
{
	const struct xseg_peer_record *record = &host->seg.peers[peer->record];
	uint32_t level = atomic_load_explicit(&record->log_level, memory_order_acquire);
	return level <= LOG_LEVEL_DEBUG ? level : 0;
}

/* Any of its lanes, also several at once: all come to the same. */
static void level_apply(struct host *host)
{
	uint32_t most = 0;
	for (unsigned i = 0; i < host->peer_count; i++) {
		const struct host_peer *peer = &host->peers[i];
		uint32_t asked = peer->joined ? asked_of(host, peer) : 0;
		most = asked > most ? asked : most;
	}
	log_level_set(most ? (enum log_level)most : (enum log_level)host->log_level);
	for (unsigned i = 0; i < host->peer_count; i++) {
		const struct host_peer *peer = &host->peers[i];
		if (peer->joined)
			atomic_store_explicit(&host->seg.peers[peer->record].log_level_now,
				(uint32_t)log_level_get() | asked_of(host, peer) << 8,
				memory_order_release);
	}
}

void level_look(struct shard *shard)
{
	uint32_t asked = asked_of(shard->peer.lane->host, shard->owner);
	if (likely(asked == shard->level_seen))
		return;
	shard->level_seen = asked;
	level_apply(shard->peer.lane->host);
}

void level_begin(struct shard *shard)
{
	shard->level_seen = asked_of(shard->peer.lane->host, shard->owner);
	level_apply(shard->peer.lane->host);
}
