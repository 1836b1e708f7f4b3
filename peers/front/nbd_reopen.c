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
#include <xseg/port.h>

#include "peers/front/nbd.h"

#define NBD_REOPEN_NS 100000000u /* between looks */

/* Who serves the composer's port; 0: nobody just now. */
static uint64_t reopen_word(const struct nbd *nbd)
{
	const struct xseg *seg = peer_segment(nbd->peer);
	uint32_t port = xseg_edge_port(seg, nbd->peer->edge[NBD_EDGE_VOLUME]);
	if (port == XSEG_NONE)
		return 0;
	uint64_t word = atomic_load_explicit(&seg->ports[port].word, memory_order_acquire);
	return xseg_life_of(word) == XSEG_LIFE_ALIVE ? word : 0;
}

static void reopen_told(struct call *call) { call_end(call); }

static bool reopen_tell(struct peer *peer, void *context)
{
	struct call *call;
	(void)context;
	if (call_begin(peer, &call))
		return false;
	call->op = XSEG_OP_CLOSE;
	call_submit(call, NBD_EDGE_VOLUME, reopen_told);
	return true;
}

static void reopen_end_one(struct nbd *nbd)
{
	if (--nbd->reopening == 0 && !reopen_tell(nbd->peer, NULL))
		peer_retry(nbd->peer, reopen_tell, NULL);
	nbd->again = true;
}

/* What cannot be opened any more fails when it is used. */
static void reopen_opened(struct call *call)
{
	struct nbd *nbd = nbd_of(call->peer);
	if (call->result == -ESTALE)
		log_error(NBD_ROOM,
			"%s: another host has had volume %016llx since it was opened here: what "
			"its clients write is refused until they connect again",
			nbd->peer->name, (unsigned long long)call->key.volume);
	else if (call->result)
		log_warning(NBD_ROOM, "%s: volume %016llx cannot be opened again: %s",
			nbd->peer->name, (unsigned long long)call->key.volume,
			strerror(-call->result));
	call_end(call);
	reopen_end_one(nbd);
}

static bool reopen_open(struct peer *peer, void *context)
{
	const struct nbd_export *export = context;
	struct call *call;
	if (call_begin(peer, &call))
		return false;
	call->op = XSEG_OP_OPEN;
	if (call_pages(call, XSEG_PAGE)) {
		call_end(call);
		return false;
	}
	call->key.volume = export->volume;
	call->arg0 = export->users;
	call->arg1 = export->term;
	call->flags = export->changers ? 0 : XSEG_F_READ_ONLY;
	call_submit(call, NBD_EDGE_VOLUME, reopen_opened);
	return true;
}

/* A call that opens or closes may be served by either process: first let it come back. */
static bool reopen_must_wait(const struct nbd *nbd)
{
	const struct nbd_conn *conn;
	TAILQ_FOREACH (conn, &nbd->conns, link)
		if (conn->lookup.what != NBD_LOOKUP_NONE && conn->lookup.asked)
			return true;
	return false;
}

void nbd_reopen_check(struct nbd *nbd)
{
	struct nbd_export *export;
	uint64_t now = nbd_now(nbd);
	if (likely(now - nbd->reopen_ns < NBD_REOPEN_NS))
		return;
	nbd->reopen_ns = now;
	uint64_t word = reopen_word(nbd);
	if (likely(word == 0 || word == nbd->composer) || nbd->reopening || reopen_must_wait(nbd))
		return;
	nbd->composer = word;
	crash_point("front_nbd.again.begun");
	nbd->reopening = 1; /* ours, so that it is told once */
	TAILQ_FOREACH (export, &nbd->exports, link) {
		nbd->reopening++;
		if (!reopen_open(nbd->peer, export))
			peer_retry(nbd->peer, reopen_open, export);
	}
	reopen_end_one(nbd);
}
