/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What one volume may take of the segment: at most as many pages and request slots as are left for
 * all others then. So one whose requests wait, for its limit or its store, gets half, two of them a
 * third each, and there is always something left for the rest. One request of each volume goes on.
 * Answers that a client does not take are not counted: nbd_overload.c gives their pages back.
 *
 * The figures are looked at once a millisecond; lanes share them.
 */
#include <errno.h>
#include <xseg/page.h>
#include <xseg/request.h>

#include "peers/front/nbd.h"

/* Counting what is free takes a microsecond a GiB: a thousandth of the time, whatever the size. */
#define NBD_SHARE_NS 1000000u
#define NBD_SHARE_PAGES 262144u

static void nbd_share_look(struct nbd *nbd)
{
	const struct xseg *seg = peer_segment(nbd->peer);
	uint64_t now = nbd_now(nbd);
	if (likely(now - nbd->share_ns < NBD_SHARE_NS * (1ull + seg->page_count / NBD_SHARE_PAGES)))
		return;
	nbd->share_ns = now;
	nbd->share_bytes = (uint64_t)xseg_page_free_count(seg) * XSEG_PAGE / nbd->peer->shards;
	nbd->share_requests = xseg_request_free_count(seg) / nbd->peer->shards;
}

bool nbd_share_fits(struct nbd_conn *conn, uint32_t bytes)
{
	struct nbd_export *export = conn->export;
	if (!export || !export->inflight)
		return true;
	nbd_share_look(conn->nbd);
	if (likely(export->bytes + bytes <= conn->nbd->share_bytes &&
		    export->inflight < conn->nbd->share_requests))
		return true;
	peer_count(conn->nbd->peer, NBD_COUNT_WAITS_ROOM, 1);
	nbd_conn_wait(conn, NBD_WAIT_ROOM);
	if (!conn->crowded)
		TAILQ_INSERT_TAIL(&export->crowd, conn, crowd_link);
	conn->crowded = true;
	return false;
}

void nbd_share_take(struct nbd_request *request)
{
	struct nbd_export *export = request->conn->export;
	if (!export)
		return;
	request->shares = true;
	export->inflight++;
	export->bytes += request->bytes;
}

static void nbd_share_wake(struct nbd_export *export)
{
	struct nbd_conn *conn = TAILQ_FIRST(&export->crowd);
	TAILQ_REMOVE(&export->crowd, conn, crowd_link);
	conn->crowded = false;
	nbd_conn_wake(conn, NBD_WAIT_ROOM);
}

/* One goes on for each that ends; the last one leaves nobody behind. */
void nbd_share_give(struct nbd_request *request)
{
	struct nbd_export *export = request->conn->export;
	if (!request->shares)
		return;
	request->shares = false;
	must(export->inflight > 0 && export->bytes >= request->bytes);
	export->inflight--;
	export->bytes -= request->bytes;
	if (likely(TAILQ_EMPTY(&export->crowd)))
		return;
	nbd_share_wake(export);
	while (!export->inflight && !TAILQ_EMPTY(&export->crowd))
		nbd_share_wake(export);
}

void nbd_share_forget(struct nbd_conn *conn)
{
	if (!conn->crowded)
		return;
	TAILQ_REMOVE(&conn->export->crowd, conn, crowd_link);
	conn->crowded = false;
}
