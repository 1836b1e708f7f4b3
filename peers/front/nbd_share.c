/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Connections whose volume has had its share of the segment (front_data.c) wait. One request of
 * each volume goes on. Answers that a client does not take are not counted: nbd_overload.c gives
 * their pages back.
 */
#include <errno.h>
#include <xseg/page.h>
#include <xseg/request.h>

#include "peers/front/nbd.h"

bool nbd_share_fits(struct nbd_conn *conn, uint32_t bytes)
{
	struct nbd_export *export = conn->export;
	if (!export || !export->inflight)
		return true;
	if (likely(front_share_fits(
		    &conn->nbd->share, conn->nbd->peer, export->inflight, export->bytes + bytes)))
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
