/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Another process serves the composer's port: it knows nothing of who has what open. It finds out
 * when a volume is used, but not while its user is idle. So each volume is opened again, as often
 * as we have it open (OPEN by id with that number, which may be said twice, and the term in which
 * it was opened: if another host has had the volume since, it is not), and then the composer
 * is told that this was all (CLOSE of volume 0): until it has heard so from every front that was
 * there before it, it removes nothing.
 */
#include <base/crash.h>
#include <base/log.h>
#include <errno.h>
#include <string.h>
#include <xseg/port.h>

#include "peers/front/front.h"

#define FRONT_REOPEN_NS 100000000u /* between looks */

/* Who serves the composer's port; 0: nobody just now. */
static uint64_t reopen_word(const struct peer *peer)
{
	const struct xseg *seg = peer_segment(peer);
	uint32_t port = xseg_edge_port(seg, peer->edge[FRONT_EDGE_VOLUME]);
	if (port == XSEG_NONE)
		return 0;
	uint64_t word = atomic_load_explicit(&seg->ports[port].word, memory_order_acquire);
	return xseg_life_of(word) == XSEG_LIFE_ALIVE ? word : 0;
}

/* --- the list ---------------------------------------------------------------------- */

void front_volumes_init(
	struct front_volumes *volumes, struct peer *peer, bool (*busy)(const struct peer *peer))
{
	volumes->peer = peer;
	volumes->busy = busy;
	TAILQ_INIT(&volumes->list);
}

struct front_volume *front_volume_find(const struct front_volumes *volumes, uint64_t id)
{
	struct front_volume *volume;
	TAILQ_FOREACH (volume, &volumes->list, link)
		if (volume->id == id)
			break;
	return volume;
}

void front_volume_add(struct front_volumes *volumes, struct front_volume *volume, uint64_t id)
{
	volume->all = volumes;
	volume->id = id;
	TAILQ_INSERT_TAIL(&volumes->list, volume, link);
}

void front_volume_use(struct front_volume *volume, uint64_t term, bool changes)
{
	volume->users++;
	volume->changers += changes;
	if (term > volume->term)
		volume->term = term;
}

bool front_volume_unuse(struct front_volume *volume, bool changed)
{
	volume->changers -= changed;
	if (--volume->users)
		return false;
	TAILQ_REMOVE(&volume->all->list, volume, link);
	return true;
}

int front_volume_info(const struct call *call, struct xseg_volume_info *info)
{
	if (call->result)
		return call->result;
	if (call->answer_length < sizeof(*info))
		return -EPROTO;
	call_get_bytes(call, 0, info, sizeof(*info));
	info->name[VOLUME_NAME_LENGTH_MAX] = 0;
	bool sound = info->id && info->size % XSEG_SECTOR == 0 && info->size < 1ull << 62;
	return sound ? 0 : -EPROTO;
}

/* --- calls ------------------------------------------------------------------------- */

bool front_volume_ask_open(
	struct peer *peer, const struct front_open *open, void *context, call_done_f *done)
{
	struct call *call;
	if (call_begin(peer, &call))
		return false;
	call->op = XSEG_OP_OPEN;
	if (call_pages(call, XSEG_PAGE)) {
		call_end(call);
		return false;
	}
	call->context = context;
	call->flags = open->writes ? 0 : XSEG_F_READ_ONLY;
	call->key.volume = open->name ? 0 : open->id;
	call->arg0 = open->times;
	call->arg1 = open->term;
	call->length = open->name ? (uint32_t)strlen(open->name) : 0;
	if (open->name)
		call_put_bytes(call, XSEG_NAME_AT, open->name, call->length + 1);
	call_submit(call, FRONT_EDGE_VOLUME, done);
	return true;
}

bool front_volume_ask_close(struct peer *peer, uint64_t id, void *context, call_done_f *done)
{
	struct call *call;
	if (call_begin(peer, &call))
		return false;
	call->op = XSEG_OP_CLOSE;
	call->key.volume = id;
	call->context = context;
	call_submit(call, FRONT_EDGE_VOLUME, done);
	return true;
}

/* --- a new composer ---------------------------------------------------------------- */

static void reopen_told(struct call *call) { call_end(call); }

static bool reopen_tell(struct peer *peer, void *context)
{
	return front_volume_ask_close(peer, 0, context, reopen_told);
}

static void reopen_end_one(struct front_volumes *volumes)
{
	if (--volumes->reopening)
		return;
	volumes->ended = true;
	if (!reopen_tell(volumes->peer, NULL))
		peer_retry(volumes->peer, reopen_tell, NULL);
}

/* What cannot be opened any more fails when it is used. */
static void reopen_opened(struct call *call)
{
	struct front_volumes *volumes = call->context;
	if (call->result == -ESTALE)
		log_error(FRONT_ROOM,
			"%s: another host has had volume %016llx since it was opened here: what "
			"its clients write is refused until they connect again",
			call->peer->name, (unsigned long long)call->key.volume);
	else if (call->result)
		log_warning(FRONT_ROOM, "%s: volume %016llx cannot be opened again: %s",
			call->peer->name, (unsigned long long)call->key.volume,
			strerror(-call->result));
	call_end(call);
	reopen_end_one(volumes);
}

static bool reopen_open(struct peer *peer, void *context)
{
	const struct front_volume *volume = context;
	const struct front_open open = {.id = volume->id,
		.term = volume->term,
		.times = volume->users,
		.writes = volume->changers > 0};
	return front_volume_ask_open(peer, &open, volume->all, reopen_opened);
}

void front_volumes_reopen(struct front_volumes *volumes)
{
	struct front_volume *volume;
	struct peer *peer = volumes->peer;
	uint64_t now = peer_now_ns(peer);
	volumes->ended = false;
	if (likely(now - volumes->looked_ns < FRONT_REOPEN_NS))
		return;
	volumes->looked_ns = now;
	uint64_t word = reopen_word(peer);
	if (likely(word == 0 || word == volumes->composer) || volumes->reopening ||
		volumes->busy(peer))
		return;
	volumes->composer = word;
	crash_point("front_nbd.again.begun");
	volumes->reopening = 1; /* ours, so that it is told once */
	TAILQ_FOREACH (volume, &volumes->list, link) {
		volumes->reopening++;
		if (!reopen_open(peer, volume))
			peer_retry(peer, reopen_open, volume);
	}
	reopen_end_one(volumes);
}
