/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sessions. A session that loses a connection loses all, and keeps what it was asked until the
 * importer is back. Another life of the same importer takes its place, once what the one before
 * had begun has ended, on any lane: a write of that one must not follow one of this.
 */
#include <base/clock.h>
#include <base/container.h>
#include <base/crc32c.h>
#include <base/log.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "peers/synapse/export.h"

#define LINGER_NS 600000000000u /* a session without connections is kept so long */
#define SAY_AGAIN_NS 60000000000u
#define GREETING_NS 10000000000u

/* --- out of the way --------------------------------------------------------------------------- */

void export_session_cut(struct export_session *session)
{
	struct export *export = session->export;
	bool any = false;
	for (unsigned i = 0; i < WIRE_CONNS; i++) {
		struct export_conn *conn = session->conn[i];
		session->conn[i] = NULL;
		if (!conn)
			continue;
		any = true;
		conn->session = NULL;
		conn->request = NULL;
		export_end(conn);
	}
	if (any) {
		peer_count(export->peer, EXPORT_CUTS, 1);
		session->since_ns = clock_now_ns();
	}
	export_request_cut(session);
}

void export_session_free(struct export_session *session)
{
	struct export *export = session->export;
	export_session_cut(session);
	export_request_forget(session);
	TAILQ_REMOVE(&export->sessions, session, link);
	export->session_count--;
	peer_set(export->peer, EXPORT_SESSIONS, export->session_count);
	free(session->table);
	free(session);
}

static bool is_connected(const struct export_session *session)
{
	for (unsigned i = 0; i < WIRE_CONNS; i++)
		if (session->conn[i])
			return true;
	return false;
}

/* The one that has been without its importer for longest, and has nothing on its way. */
static struct export_session *oldest(struct export *export)
{
	struct export_session *session, *found = NULL;
	TAILQ_FOREACH (session, &export->sessions, link)
		if (!is_connected(session) && session->running == 0 &&
			(!found || session->since_ns < found->since_ns))
			found = session;
	return found;
}

/* --- greeting --------------------------------------------------------------------------------- */

/* By its certificate too: what others are called is not secret. */
static bool is_same_peer(const struct export_session *session, const struct export_conn *conn)
{
	const struct wire_hello *a = &session->hello, *b = &conn->hello;
	return memcmp(a->writer, b->writer, sizeof(a->writer)) == 0 &&
	       strcmp(a->importer, b->importer) == 0 && session->who == conn->who;
}

static struct export_session *find(struct export *export, const struct export_conn *conn)
{
	struct export_session *session;
	TAILQ_FOREACH (session, &export->sessions, link)
		if (session->hello.lane == conn->hello.lane && is_same_peer(session, conn))
			return session;
	return NULL;
}

/* The sessions that the same peer had in a life before, on any lane: by now an object may come over
   another one. False: what they had begun has not ended yet. */
static bool end_lives_before(struct export *export, const struct export_conn *conn)
{
	struct export_session *session, *next;
	bool ended = true;
	for (session = TAILQ_FIRST(&export->sessions); session; session = next) {
		next = TAILQ_NEXT(session, link);
		if (!is_same_peer(session, conn) ||
			memcmp(session->hello.session, conn->hello.session, WIRE_LIFE) == 0)
			continue;
		export_session_cut(session);
		if (session->running == 0)
			export_session_free(session);
		else
			ended = false;
	}
	return ended;
}

static struct export_session *make(struct export *export, const struct export_conn *conn)
{
	if (export->session_count == EXPORT_SESSIONS_MAX) {
		struct export_session *session = oldest(export);
		if (!session)
			return NULL;
		export_session_free(session);
	}
	struct export_session *session = calloc(1, sizeof(*session));
	if (session)
		session->table = calloc(WIRE_WINDOW, sizeof(*session->table));
	if (!session || !session->table) {
		free(session);
		return NULL;
	}
	session->export = export;
	session->hello = conn->hello;
	session->rule = conn->rule;
	session->who = conn->who;
	session->lowest = 1;
	TAILQ_INSERT_TAIL(&export->sessions, session, link);
	peer_set(export->peer, EXPORT_SESSIONS, ++export->session_count);
	return session;
}

static int greeting_pieces(struct conn_out *out, uint32_t at, struct iovec *iov, int max)
{
	struct export_conn *conn = container_of(out, struct export_conn, greeting);
	(void)max;
	iov[0] = (struct iovec){conn->out + at, conn->out_size - at};
	return 1;
}

static void greeting_sent(struct conn_out *out, bool lost) { (void)out, (void)lost; }

static void refusal_sent(struct conn_out *out, bool lost)
{
	struct export_conn *conn = container_of(out, struct export_conn, greeting);
	(void)lost;
	conn->since_ns = 0; /* to be ended at the next turn */
}

static void say(struct export_conn *conn, const char *why)
{
	struct export *export = conn->export;
	uint64_t now = clock_now_ns();
	if (strncmp(export->said, why, sizeof(export->said) - 1) == 0 &&
		now < export->said_ns + SAY_AGAIN_NS)
		return;
	snprintf(export->said, sizeof(export->said), "%s", why);
	export->said_ns = now;
	log_warning("synapse_export", "%s: %s is sent away: %s", export->peer->name, conn->conn.who,
		why);
}

void export_session_refuse(struct export_conn *conn, const char *why)
{
	struct wire_frame frame = {.type = WIRE_TYPE_REFUSE, .result = -EACCES};
	say(conn, why);
	peer_count(conn->export->peer, EXPORT_REFUSED, 1);
	conn->out_size = (uint32_t)strnlen(why, WIRE_REFUSAL - 1);
	memcpy(conn->out, why, conn->out_size);
	frame.data = conn->out_size;
	conn->greeting.pieces = greeting_pieces;
	conn->greeting.sent = refusal_sent;
	conn->waits = false;
	conn_send(&conn->conn, &conn->greeting, &frame);
	conn_flush(&conn->conn);
}

#define BYTES_LEAST (16u << 20)
#define BYTES_MOST (256u << 20)

/* Small enough that a few importers do not take all pages, and much more than the round trip of a
   link in one town asks for. */
static uint64_t bytes_granted(const struct export *export)
{
	uint64_t asked = export_options_of(export)->bytes;
	uint64_t bytes = (uint64_t)peer_segment(export->peer)->page_count * XSEG_PAGE / 8;
	if (asked)
		return asked;
	bytes = bytes < BYTES_LEAST ? BYTES_LEAST : bytes;
	return bytes > BYTES_MOST ? BYTES_MOST : bytes;
}

static uint32_t requests_granted(const struct export *export)
{
	uint32_t asked = (uint32_t)export_options_of(export)->requests;
	fixed(CALL_FAR_MAX <= WIRE_WINDOW);
	return asked ? asked : call_far_most(peer_segment(export->peer));
}

static void welcome(struct export_conn *conn, struct export_session *session, bool known)
{
	struct export *export = conn->export;
	const struct export_options *options = export_options_of(export);
	struct wire_welcome welcome = {.version = WIRE_VERSION,
		.checksums = conn->hello.checksums && !conn->conn.tls,
		.packs = options->compress ? conn->hello.packs & PACK_ALL : 0,
		.known = known,
		.window = requests_granted(export),
		.bytes = bytes_granted(export)};
	struct wire_frame frame = {.type = WIRE_TYPE_WELCOME, .data = WIRE_WELCOME};
	wire_pack_welcome(&welcome, conn->out);
	conn->out_size = WIRE_WELCOME;
	conn->greeting.pieces = greeting_pieces;
	conn->greeting.sent = greeting_sent;
	conn->session = session;
	conn->class = (enum wire_class)conn->hello.conn;
	conn->greeted = true;
	session->conn[conn->class] = conn;
	conn_send(&conn->conn, &conn->greeting, &frame);
	conn->conn.checks = welcome.checksums; /* from the next frame on */
	conn->conn.pack.methods = conn->class == WIRE_BULK ? welcome.packs : 0;
	conn_flush(&conn->conn);
}

/* False: what its life before had begun has not ended yet, or its rights are not known. */
static bool try_greet(struct export_conn *conn)
{
	struct export *export = conn->export;
	const struct wire_hello *hello = &conn->hello;
	if (!export_rights_ready(export, conn->rule) || !end_lives_before(export, conn))
		return false;
	struct export_session *session = find(export, conn);
	bool known = session &&
		     memcmp(session->hello.session, hello->session, sizeof(hello->session)) == 0;
	if (known && hello->generation < session->generation) {
		export_session_refuse(conn, "a later attempt of the same session is here");
		return true;
	}
	if (session && !known) {
		export_session_refuse(conn, "its lane has another session");
		return true;
	}
	if (session && (hello->generation > session->generation || session->conn[hello->conn]))
		export_session_cut(session);
	session = session ? session : make(export, conn);
	if (!session) {
		export_session_refuse(conn, "there are too many sessions");
		return true;
	}
	session->generation = hello->generation;
	welcome(conn, session, known);
	return true;
}

static bool may_enter(struct export_conn *conn)
{
	char uri[TLS_URI_MAX];
	if (!conn->conn.tls)
		return true;
	size_t length = tls_uri(conn->conn.tls, uri);
	conn->who = crc32c(0, uri, length) | 1;
	conn->rule = export_rights_find(conn->export, conn->conn.tls);
	return conn->rule != NULL;
}

static int greeted(struct export_conn *conn)
{
	struct wire_hello *hello = &conn->hello;
	if (wire_unpack_hello(conn->in, hello))
		export_session_refuse(conn, "that is no greeting");
	else if (!may_enter(conn))
		export_session_refuse(conn, "no 'allow' of this port names your certificate");
	else if (hello->version_min > WIRE_VERSION || hello->version_max < WIRE_VERSION)
		export_session_refuse(conn, "this end speaks version 1 of the protocol only");
	else if (*hello->port && strcmp(hello->port, conn->export->peer->name))
		export_session_refuse(conn, "no port of that name is offered here");
	else
		conn->waits = !try_greet(conn);
	return 0;
}

/* --- frames ----------------------------------------------------------------------------------- */

static struct export_conn *conn_of(struct conn *conn) { return conn->owner; }

static int begin(struct conn *conn, const struct wire_frame *frame)
{
	struct export_conn *mine = conn_of(conn);
	int error = -EPROTO;
	if (!mine->greeted)
		error = frame->type == WIRE_TYPE_HELLO && !mine->waits && !mine->greeting.queued
				? 0
				: -EPROTO;
	else if (frame->type == WIRE_TYPE_REQUEST)
		error = export_request_begin(mine, frame);
	else if (frame->type == WIRE_TYPE_PING && !mine->pong.queued)
		error = 0;
	if (error && error != -EAGAIN)
		conn_fail(conn, error, "it sends what it may not");
	return error;
}

static int place(struct conn *conn, uint32_t at, struct iovec *iov, int max)
{
	struct export_conn *mine = conn_of(conn);
	if (conn->frame.type == WIRE_TYPE_REQUEST)
		return export_request_place(mine, at, iov, max);
	if (conn->frame.type != WIRE_TYPE_HELLO)
		return 0;
	iov[0] = (struct iovec){mine->in + at, WIRE_HELLO - at};
	return 1;
}

static int end(struct conn *conn, const struct wire_frame *frame)
{
	struct export_conn *mine = conn_of(conn);
	if (frame->type == WIRE_TYPE_REQUEST)
		return export_request_end(mine);
	if (frame->type == WIRE_TYPE_HELLO)
		return greeted(mine);
	struct wire_frame pong = {.type = WIRE_TYPE_PONG, .sequence = frame->sequence};
	mine->pong.sent = greeting_sent;
	conn_send(conn, &mine->pong, &pong);
	return 0;
}

static void lost(struct conn *conn, int error, const char *why)
{
	struct export_conn *mine = conn_of(conn);
	if (error != -ECONNRESET)
		say(mine, why);
	if (mine->session)
		export_session_cut(mine->session);
	else
		export_end(mine);
}

const struct conn_ops export_conn_ops = {
	.begin = begin,
	.place = place,
	.end = end,
	.lost = lost,
};

/* --- time ------------------------------------------------------------------------------------- */

static bool look_after(struct export_conn *conn, uint64_t now)
{
	if (!conn_is_open(&conn->conn))
		return false;
	if (conn->waits && try_greet(conn)) {
		conn->waits = false;
		return true;
	}
	if (!conn->greeted && !conn->waits && now > conn->since_ns + GREETING_NS) {
		export_end(conn);
		return true;
	}
	bool moved = conn_poll(&conn->conn);
	moved |= conn_flush(&conn->conn);
	conn_count(&conn->conn, EXPORT_SENT, EXPORT_RECEIVED, EXPORT_SAVED);
	return moved;
}

bool export_session_turn(struct export *export)
{
	struct export_conn *conn, *next;
	struct export_session *session, *after;
	uint64_t now = peer_now_ns(export->peer);
	bool moved = false;
	for (conn = TAILQ_FIRST(&export->conns); conn; conn = next) {
		next = TAILQ_NEXT(conn, link);
		moved |= look_after(conn, now);
		if (next && !conn_is_open(&next->conn))
			break; /* it went with the same session: the list is another one now */
	}
	for (session = TAILQ_FIRST(&export->sessions); session; session = after) {
		after = TAILQ_NEXT(session, link);
		if (!is_connected(session) && session->running == 0 &&
			now > session->since_ns + LINGER_NS)
			export_session_free(session);
	}
	return moved;
}
