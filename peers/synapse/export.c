/* SPDX-License-Identifier: Apache-2.0 */
/* The exporting end of a bridge: a port of this segment, for others to reach over a network. */
#include "peers/synapse/export.h"

#include <base/clock.h>
#include <base/log.h>
#include <errno.h>
#include <inttypes.h>
#include <peer/notify.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const struct peer_option export_options[] = {
	OPTION_TEXT(struct export_options, listen, "listen", .required = true, .max = 320,
		.help = "where importing ends come in: tcp:HOST:PORT or unix:PATH"),
	OPTION_LIST(struct export_options, allow, "allow",
		.help = "URI in the certificates of those who may come in, with '*' at its end "
			"all that begin so; behind it, with edge.volume, the volumes that they may "
			"open, else all; may be given several times, the first that fits counts; "
			"without, nobody may"),
	OPTION_COUNT(struct export_options, requests, "requests", .max = WIRE_WINDOW,
		.unit = "requests",
		.help = "on their way at once from each lane of an importing peer; 0: a quarter of "
			"those that the segment has, 256 to 1024"),
	OPTION_SIZE(struct export_options, bytes, "bytes", .unit = "bytes",
		.help = "of data on their way at once from each of those, at least what the link "
			"carries in a round trip; 0: an eighth of the segment, 16M to 256M"),
	OPTION_TEXT(struct export_options, tls_ca, "tls-ca",
		.help = "certificates (PEM) of who signs for those that come in"),
	OPTION_TEXT(struct export_options, tls_cert, "tls-cert",
		.help = "certificate (PEM) that this end shows"),
	OPTION_TEXT(struct export_options, tls_key, "tls-key", .help = "its private key (PEM)"),
	OPTION_TEXT(struct export_options, tls_crl, "tls-crl",
		.help = "certificates (PEM) that were revoked; looked at again when it changes"),
	OPTION_TEXT(struct export_options, state, "state", .max = 200,
		.help = "folder where it notes which host may write to which volume; without, "
			"that is lost when this host goes down: then whoever had a volume before "
			"may write to it until its owner has reconnected, unless the store "
			"itself refuses that"),
	OPTION_BOOL(struct export_options, clear_text, "clear-text", .initial = "no",
		.help = "no TLS for other hosts: whoever reaches the address reads and writes all"),
	OPTION_BOOL(struct export_options, compress, "compress", .initial = "yes",
		.help = "data are compressed where an importing end asks for it and the link is "
			"slow enough for that to be faster"),
	OPTION_END,
};

static const char *const export_edges[] = {[EXPORT_EDGE_STORE] = "store", "volume", "map", NULL};

static const struct xseg_counter export_counters[] = {
	[EXPORT_ACCEPTED] = {"accepted", "", "connections accepted"},
	[EXPORT_REFUSED] = {"refused", "", "connections refused"},
	[EXPORT_CUTS] = {"cuts", "", "times that an importing end was lost"},
	[EXPORT_REPLAYS] = {"replays", "", "requests that came again and were not done again"},
	[EXPORT_FENCED] = {"fenced", "", "writes refused because another host has the volume"},
	[EXPORT_DENIED] = {"denied", "", "requests for volumes that 'allow' does not name"},
	[EXPORT_SENT] = {"sent", "B", "bytes sent"},
	[EXPORT_RECEIVED] = {"received", "B", "bytes received"},
	[EXPORT_SAVED] = {"saved", "B", "bytes not sent, as data were compressed"},
	[EXPORT_SESSIONS] = {"sessions", "now", "lanes of importing peers"},
	[EXPORT_COUNTERS] = {NULL, NULL, NULL},
};

/* --- connections ------------------------------------------------------------------------------ */

/* It may be on the stack, so its memory goes at the next turn. */
void export_end(struct export_conn *conn)
{
	struct export *export = conn->export;
	conn_close(&conn->conn);
	conn_count(&conn->conn, EXPORT_SENT, EXPORT_RECEIVED, EXPORT_SAVED);
	TAILQ_REMOVE(&export->conns, conn, link);
	TAILQ_INSERT_TAIL(&export->ended, conn, link);
}

static void bury(struct export *export)
{
	struct export_conn *conn;
	while ((conn = TAILQ_FIRST(&export->ended))) {
		TAILQ_REMOVE(&export->ended, conn, link);
		export->conn_count--;
		free(conn);
	}
}

static void enter(struct export *export, int fd, const char *who)
{
	struct export_shared *shared = export->peer->shared;
	struct export_conn *conn = calloc(1, sizeof(*conn));
	struct tls_link *tls = conn && shared->tls ? tls_open(shared->tls, fd, fd, NULL) : NULL;
	if (!conn || (shared->tls && !tls)) {
		free(conn);
		close(fd);
		return;
	}
	conn->export = export;
	conn->since_ns = clock_now_ns();
	memcpy(conn->conn.who, who, CONN_WHO);
	if (conn_open(&conn->conn, export->peer, fd, tls, &export_conn_ops, conn)) {
		free(conn);
		return;
	}
	TAILQ_INSERT_TAIL(&export->conns, conn, link);
	export->conn_count++;
	peer_count(export->peer, EXPORT_ACCEPTED, 1);
}

static void on_listening(evutil_socket_t listener, short what, void *context)
{
	struct export *export = context;
	char who[CONN_WHO];
	(void)what;
	/* the rest waits in the socket's queue */
	while (export->conn_count < EXPORT_CONNS_MAX) {
		int fd = address_accept(listener, who, sizeof(who));
		if (fd < 0)
			return;
		enter(export, fd, who);
	}
	event_del(export->listening);
}

/* --- opening, once per process ---------------------------------------------------------------- */

static int check(const struct export_options *options, const struct export_shared *shared,
	char *why, size_t why_size)
{
	bool all = options->tls_ca && options->tls_cert && options->tls_key;
	bool any = options->tls_ca || options->tls_cert || options->tls_key;
	const char *text = NULL;
	if (any && !all)
		text = "tls-ca, tls-cert and tls-key: a bridge needs all three";
	else if (!any && options->tls_crl)
		text = "tls-crl needs tls-ca, tls-cert and tls-key";
	else if (any && options->clear_text)
		text = "clear-text=yes goes without tls-ca, tls-cert and tls-key";
	else if (any && options->allow.count == 0)
		text = "nobody may come in: name with allow=URI who may, or allow=* for all whose "
		       "certificate tls-ca has signed";
	else if (!any && options->allow.count > 0)
		text = "allow needs TLS, which tells who comes in: give tls-ca, tls-cert and "
		       "tls-key";
	else if (!any && !shared->address.local && !options->clear_text)
		text = "listen can be reached from other hosts, so it needs TLS: give tls-ca, "
		       "tls-cert and tls-key, or accept clear text with clear-text=yes";
	if (text)
		snprintf(why, why_size, "%s", text);
	return text ? -EINVAL : 0;
}

static int listen_on(struct peer *first, char *why, size_t why_size)
{
	struct export_shared *shared = first->shared;
	snprintf(shared->stored, sizeof(shared->stored), "%.40s/bridge", first->name);
	shared->listener = notify_take_fd(shared->stored);
	if (shared->listener >= 0)
		return 0;
	shared->listener = address_listen(&shared->address, why, why_size);
	if (shared->listener < 0)
		return shared->listener;
	notify_store_fd(shared->stored, shared->listener);
	return 0;
}

static int export_open(struct peer *first, char *why, size_t why_size)
{
	const struct export_options *options = first->options;
	struct export_shared *shared = first->shared;
	char text[400];
	struct tls_files files = {
		options->tls_ca, options->tls_cert, options->tls_key, options->tls_crl};
	shared->listener = -1;
	int error = address_parse(options->listen, &shared->address, text, sizeof(text));
	if (error) {
		snprintf(why, why_size, "listen: %s", text);
		return error;
	}
	error = check(options, shared, why, why_size);
	if (!error && files.cert)
		error = tls_context_open(&shared->tls, &files, TLS_SERVER, why, why_size);
	return error ? error : listen_on(first, why, why_size);
}

static void export_close(struct peer *first)
{
	struct export_shared *shared = first->shared;
	tls_context_close(shared->tls);
	if (shared->listener < 0)
		return;
	close(shared->listener);
	if (notify_handover())
		return;
	notify_drop_fd(shared->stored);
	if (*shared->address.path)
		unlink(shared->address.path);
}

/* --- a shard ---------------------------------------------------------------------------------- */

static int export_start(struct peer *peer, char *why, size_t why_size)
{
	struct export *export = peer->state;
	const struct export_shared *shared = peer->shared;
	export->peer = peer;
	TAILQ_INIT(&export->conns);
	TAILQ_INIT(&export->ended);
	TAILQ_INIT(&export->sessions);
	unsigned edges = 0;
	for (unsigned i = 0; export_edges[i]; i++)
		if (peer->edge[i] != XSEG_NONE) {
			export->edge = i;
			edges++;
		}
	if (edges != 1) {
		snprintf(why, why_size,
			"which port does it offer? give one of edge.store, edge.volume and "
			"edge.map");
		return -EDESTADDRREQ;
	}
	int error = export_rights_open(export, why, why_size);
	if (error)
		export_rights_close(export);
	if (error || peer->shard > 0)
		return error;
	export->fence = calloc(EXPORT_FENCES_MAX, sizeof(*export->fence));
	export->listening = event_new(peer_event_base(peer), shared->listener, EV_READ | EV_PERSIST,
		on_listening, export);
	if (!export->fence || !export->listening || event_add(export->listening, NULL)) {
		snprintf(why, why_size, "out of memory");
		return -ENOMEM;
	}
	export_fence_load(export);
	return 0;
}

static void end_all(struct export *export)
{
	struct export_session *session;
	struct export_conn *conn;
	TAILQ_FOREACH (session, &export->sessions, link)
		export_session_cut(session);
	while ((conn = TAILQ_FIRST(&export->conns)))
		export_end(conn);
	bury(export);
}

/* Who comes now is the successor's, if there is one. */
static void export_stop(struct peer *peer)
{
	struct export *export = peer->state;
	if (export->listening)
		event_free(export->listening);
	export->listening = NULL;
	end_all(export);
}

static void export_finish(struct peer *peer)
{
	struct export *export = peer->state;
	struct export_session *session;
	if (export->listening)
		event_free(export->listening);
	end_all(export);
	while ((session = TAILQ_FIRST(&export->sessions)))
		export_session_free(session);
	export_rights_close(export);
	free(export->fence);
}

static bool export_idle(struct peer *peer)
{
	const struct export *export = peer->state;
	return export->fencing == 0;
}

static bool export_poll(struct peer *peer)
{
	struct export *export = peer->state;
	if (peer->shard > 0)
		return false;
	bool moved = export_session_turn(export);
	moved |= export_request_turn(export);
	bury(export);
	if (export->listening && export->conn_count < EXPORT_CONNS_MAX &&
		!event_pending(export->listening, EV_READ, NULL))
		event_add(export->listening, NULL);
	return moved;
}

static bool export_sleep(struct peer *peer)
{
	const struct export *export = peer->state;
	bool moved = export_poll(peer); /* the event loop may have made room since */
	bool soon = export->fencing > 0;
	if (!TAILQ_EMPTY(&export->conns) || soon)
		peer_wake_at(peer, peer_now_ns(peer) + (soon ? 10000000u : 1000000000u));
	return !moved;
}

static void export_dump(struct peer *peer, FILE *out)
{
	const struct export *export = peer->state;
	const struct export_session *session;
	fprintf(out, "%s: %u connections, %u sessions, %" PRIu32 " volumes fenced\n", peer->name,
		export->conn_count, export->session_count, export->fences);
	TAILQ_FOREACH (session, &export->sessions, link)
		fprintf(out, "  %s lane %u: sequence %" PRIu64 ", %" PRIu32 " running\n",
			session->hello.importer, session->hello.lane, session->lowest,
			session->running);
}

/* Any shard may get it. What it asks for is done by the first one, before the next request. */
static void export_control(struct peer *peer, struct job *job)
{
	struct export_shared *shared = peer->shared;
	if (job->arg0 != XSEG_CONTROL_REFENCE) {
		job_fail(job, -EOPNOTSUPP);
		return;
	}
	atomic_fetch_add(&shared->refences, 1);
	job_complete(job, 0);
}

static const struct peer_ops export_ops = {
	.name = "synapse_export",
	.summary = "offers a port of this segment to others, over a network",
	.description =
		"What comes in over the address is asked of the peer that its edge leads to, of "
		"which it has one: *store*, *volume* or *map*. Each importing segment is a writer "
		"of its own: one that has lost a volume "
		"to another cannot write to it any more (docs/fencing.md). It works on the first "
		"lane of its process.\n",
	.options = export_options,
	.options_size = sizeof(struct export_options),
	.edges = export_edges,
	.edges_needed = PEER_EDGES_ANY,
	.serves = "",
	.counters = export_counters,
	.state_size = sizeof(struct export),
	.shared_size = sizeof(struct export_shared),
	.open = export_open,
	.close = export_close,
	.start = export_start,
	.finish = export_finish,
	.stop = export_stop,
	.idle = export_idle,
	.poll = export_poll,
	.sleep = export_sleep,
	.dump = export_dump,
	.on = {[XSEG_OP_CONTROL] = export_control},
};
PEER_MODULE(export_ops);
