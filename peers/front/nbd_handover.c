/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Connections that outlive the process, when it is restarted on purpose: each is answered what it
 * has asked, read up to the end of a request, and given to whoever started us; our successor takes
 * it from there and the client notices nothing. What was agreed with the client is in the name that
 * the socket is stored under.
 *
 * TLS cannot be passed on, nor what was agreed about snapshots (the name has no room for it), nor
 * more than NBD_HANDOVER_MAX connections: they are drained, as in a stop.
 */
#include <base/crash.h>
#include <base/notify.h>
#include <errno.h>
#include <fcntl.h>
#include <peer/notify.h>
#include <unistd.h>

#include "peers/front/nbd.h"

#define NBD_OWNER_MAX 20 /* longer names leave no room */

/* --- what was agreed, as text ---------------------------------------------------- */

enum { HANDOVER_STRUCTURED = 1, HANDOVER_META = 2, HANDOVER_BLOCKS = 4, HANDOVER_PATCHING = 8 };

static void handover_name(
	const struct nbd_conn *conn, unsigned number, char name[FRONT_FDSTORE_LENGTH])
{
	const struct nbd_session *session = &conn->session;
	unsigned bits = (session->structured ? HANDOVER_STRUCTURED : 0) |
			(session->meta ? HANDOVER_META : 0) |
			(session->blocks_known ? HANDOVER_BLOCKS : 0) |
			(session->patching ? HANDOVER_PATCHING : 0);
	snprintf(name, FRONT_FDSTORE_LENGTH, "%.20s/c%x.%016llx.%08x.%04x.%x.%llx",
		conn->nbd->peer->name, number & 0xffffu, (unsigned long long)session->volume,
		session->payload_max, session->flags, bits, (unsigned long long)session->term);
}

static bool handover_parse(
	const char *name, const char *owner, unsigned *number, struct nbd_session *session)
{
	size_t length = strlen(owner);
	unsigned long long volume, term;
	unsigned payload_max, flags, bits;
	if (strncmp(name, owner, length) || strncmp(name + length, "/c", 2) ||
		sscanf(name + length, "/c%4x.%16llx.%8x.%4x.%1x.%16llx", number, &volume,
			&payload_max, &flags, &bits, &term) != 6 ||
		volume == 0 || payload_max > NBD_PAYLOAD_MAX)
		return false;
	*session = (struct nbd_session){.volume = volume,
		.term = term,
		.payload_max = payload_max,
		.flags = (uint16_t)flags,
		.structured = bits & HANDOVER_STRUCTURED,
		.meta = bits & HANDOVER_META,
		.blocks_known = bits & HANDOVER_BLOCKS,
		.patching = bits & HANDOVER_PATCHING};
	return true;
}

/* --- giving them away ------------------------------------------------------------ */

static bool handover_may(const struct nbd_conn *conn)
{
	return notify_handover() && conn->state == NBD_CONN_SERVING && !conn->ended &&
	       conn->transport == &nbd_transport_socket && conn->in == conn->out &&
	       !conn->session.dirty_count && strlen(conn->nbd->peer->name) <= NBD_OWNER_MAX;
}

bool nbd_handover_begin(struct nbd_conn *conn)
{
	if (!handover_may(conn))
		return false;
	conn->handover_number = atomic_fetch_add(&conn->nbd->shared->passing, 1);
	if (conn->handover_number >= NBD_HANDOVER_MAX)
		return false;
	conn->parting = true;
	nbd_conn_mark(conn);
	return true;
}

static bool handover_is_due(const struct nbd_conn *conn)
{
	return conn->state == NBD_CONN_SERVING && !conn->inflight && !conn->filling &&
	       TAILQ_EMPTY(&conn->queue) && conn->head == conn->tail && !conn->carried &&
	       !conn->retrying;
}

void nbd_handover_check(struct nbd_conn *conn)
{
	char name[FRONT_FDSTORE_LENGTH];
	if (!handover_is_due(conn))
		return;
	handover_name(conn, conn->handover_number, name);
	conn->passed = notify_store_fd(name, conn->in) == 0;
	crash_point("front_nbd.pass.stored");
	nbd_conn_fail(conn, NULL);
}

/* --- taking them over ------------------------------------------------------------ */

/* Not before all has started: a successor that fails to start leaves them to the next. */
static bool handover_adopt(struct peer *peer, void *context)
{
	struct nbd *nbd = nbd_of(peer);
	(void)context;
	while (nbd->taken_count) {
		struct nbd_taken *taken = &nbd->taken[--nbd->taken_count];
		crash_point("front_nbd.pass.before_drop");
		notify_drop_fd(taken->name);
		nbd_conn_adopt(nbd, taken->fd, &taken->session);
	}
	return true;
}

void nbd_handover_take(struct nbd *nbd)
{
	const struct peer *peer = nbd->peer;
	int count = notify_fd_count();
	for (int i = 0; i < count && nbd->taken_count < NBD_HANDOVER_MAX; i++) {
		struct nbd_taken *taken = &nbd->taken[nbd->taken_count];
		unsigned number;
		notify_fd_name(i, taken->name);
		if (!handover_parse(taken->name, peer->name, &number, &taken->session) ||
			number % peer->shards != peer->shard)
			continue;
		taken->fd = notify_take_fd(taken->name);
		nbd->taken_count += taken->fd >= 0;
	}
	if (nbd->taken_count)
		peer_retry(nbd->peer, handover_adopt, NULL);
}

void nbd_handover_end(struct nbd *nbd)
{
	while (nbd->taken_count)
		close(nbd->taken[--nbd->taken_count].fd);
}
