/* SPDX-License-Identifier: Apache-2.0 */
/* Who may alter an export: many whole-sector requests, or one that patches a sector. A write comes
   in with the payload of its part: whoever sends that slowly keeps nobody else out. */
#include <errno.h>

#include "peers/front/nbd.h"

static int nbd_gate_wait(struct nbd_conn *conn, enum nbd_range_lock_mode hold)
{
	struct nbd_export *export = conn->export;
	if (hold == NBD_RANGE_ALONE && !export->wanted)
		export->wanted = conn;
	if (!(conn->waits & NBD_WAIT_RANGE)) {
		TAILQ_INSERT_TAIL(&export->waiting, conn, range_link);
		nbd_conn_wait(conn, NBD_WAIT_RANGE);
	}
	return -EAGAIN;
}

int nbd_range_lock(struct nbd_request *request, enum nbd_range_lock_mode hold)
{
	struct nbd_conn *conn = request->conn;
	struct nbd_export *export = conn->export;
	bool others_first = export->holder || (export->wanted && export->wanted != conn);
	if (unlikely(others_first || (hold == NBD_RANGE_ALONE && export->writers)))
		return nbd_gate_wait(conn, hold);
	if (export->wanted == conn)
		export->wanted = NULL;
	if (hold == NBD_RANGE_ALONE) {
		export->holder = request;
	} else {
		export->writers++;
		request->range_count++;
	}
	request->range = (uint8_t)hold;
	return 0;
}

static void nbd_gate_open(struct nbd_export *export)
{
	struct nbd_conn *conn;
	while ((conn = TAILQ_FIRST(&export->waiting))) {
		TAILQ_REMOVE(&export->waiting, conn, range_link);
		nbd_conn_wake(conn, NBD_WAIT_RANGE);
	}
}

void nbd_range_unlock(struct nbd_request *request)
{
	struct nbd_export *export = request->conn->export;
	if (request->range == NBD_RANGE_NONE)
		return;
	if (request->range == NBD_RANGE_ALONE) {
		must(export->holder == request);
		export->holder = NULL;
	} else {
		must(export->writers > 0 && request->range_count > 0);
		export->writers--;
		request->range_count--;
	}
	if (!request->range_count)
		request->range = NBD_RANGE_NONE;
	if (!export->writers && !TAILQ_EMPTY(&export->waiting))
		nbd_gate_open(export);
}

void nbd_range_forget(struct nbd_conn *conn)
{
	struct nbd_export *export = conn->export;
	if (!export)
		return;
	if (conn->waits & NBD_WAIT_RANGE) {
		TAILQ_REMOVE(&export->waiting, conn, range_link);
		conn->waits &= (uint8_t)~NBD_WAIT_RANGE;
	}
	if (export->wanted == conn) {
		export->wanted = NULL;
		nbd_gate_open(export);
	}
}
