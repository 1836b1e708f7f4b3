/* SPDX-License-Identifier: Apache-2.0 */
/* The NBD front: serves the composer's volumes to NBD clients. Its options, its turn, its end. */
#include <signal.h>

#include "peers/front/nbd.h"

#define NBD_SWEEP_NS 250000000ull
/* A client that has taken nothing for so long does not keep the data of its replies... */
#define NBD_OVERLOAD_NS 1000000000ull
#define NBD_OVERLOAD_STARVED_NS 5000000ull /* ...and less long when others need the pages */

static const char *const nbd_tls_choices[] = {"auto", "off", "require", NULL};
static const char *const nbd_verify_choices[] = {"auto", "yes", "no", NULL};

static const struct peer_option nbd_option_table[] = {
	OPTION_LIST(struct nbd_options, listen, "listen",
		.help = "address: unix:PATH, tcp:HOST:PORT, tcp:[IPV6]:PORT, systemd or "
			"systemd:NAME"),
	OPTION_LIST(struct nbd_options, exports, "export", .max = VOLUME_NAME_LENGTH_MAX,
		.help = "volume that clients may use; all of the composer's when none is named"),
	OPTION_BOOL(struct nbd_options, read_only, "read-only", .initial = "no",
		.help = "refuse everything that alters a volume"),
	OPTION_BOOL(struct nbd_options, single, "single", .initial = "no",
		.help = "serve one client on stdin and stdout, then end the process"),
	OPTION_TEXT(struct nbd_options, socket_mode, "socket-mode", .initial = "0660",
		.help = "mode of UNIX sockets, octal"),
	OPTION_TEXT(struct nbd_options, socket_group, "socket-group",
		.help = "group of UNIX sockets, by name or number, such as that of the virtual "
			"machines' user; empty: the process's"),
	OPTION_CHOICE(struct nbd_options, tls, "tls", .choices = nbd_tls_choices, .initial = "auto",
		.help = "require TLS: of clients of other hosts (auto), of nobody (off), of all "
			"(require)"),
	OPTION_TEXT(struct nbd_options, tls_cert, "tls-cert",
		.help = "file with the server's certificate chain, PEM"),
	OPTION_TEXT(struct nbd_options, tls_key, "tls-key",
		.help = "file with the private key of that certificate, PEM"),
	OPTION_TEXT(struct nbd_options, tls_ca, "tls-ca",
		.help = "file with the authorities that sign certificates of clients, PEM"),
	OPTION_TEXT(struct nbd_options, tls_crl, "tls-crl",
		.help = "certificates (PEM) that were revoked; looked at again when it changes"),
	OPTION_CHOICE(struct nbd_options, tls_verify, "tls-verify-peer",
		.choices = nbd_verify_choices, .initial = "auto",
		.help = "ask clients for a certificate; auto: when tls-ca is given"),
	OPTION_COUNT(struct nbd_options, connections, "connections", .min = 1, .max = 65536,
		.initial = "256", .unit = "connections",
		.help = "clients at once that use a volume; more are turned away, and in the last "
			"eighth those of volumes that have a client already"),
	OPTION_COUNT(struct nbd_options, newcomers, "newcomers", .min = 1, .max = 65536,
		.initial = "256", .unit = "connections",
		.help = "clients at once that have not chosen an export yet; for one more the "
			"oldest is closed"),
	OPTION_COUNT(struct nbd_options, requests, "requests", .min = 1, .max = 65536,
		.initial = "256", .unit = "requests",
		.help = "in flight on one connection; then it is not read from"),
	OPTION_SIZE(struct nbd_options, bytes, "bytes", .min = 4096, .initial = "64M",
		.help = "data in flight on one connection; then it is not read from"),
	OPTION_SIZE(struct nbd_options, payload_max, "payload-max", .min = 4096,
		.max = NBD_PAYLOAD_MAX, .initial = "32M",
		.help = "largest read or write that clients are told they may send"),
	OPTION_TIME(struct nbd_options, handshake_ns, "handshake-timeout", .min = 1000000,
		.initial = "30s", .help = "limit for the whole handshake"),
	OPTION_TIME(struct nbd_options, stall_ns, "stall-timeout", .min = 1000000, .initial = "60s",
		.help = "limit for a client that stops reading replies, or in the middle of a "
			"request"),
	OPTION_TIME(struct nbd_options, drain_ns, "drain-timeout", .min = 1000000, .initial = "5s",
		.help = "limit for replies to leave when the front stops"),
	OPTION_END,
};

#define COMMAND(name) (NBD_COUNT_COMMANDS + NBD_CMD_##name)

static const struct xseg_counter nbd_counters[NBD_COUNTERS + 1] = {
	[COMMAND(READ)] = {"nbd_reads", "", "READ requests taken"},
	[COMMAND(WRITE)] = {"nbd_writes", "", "WRITE requests taken"},
	[COMMAND(DISC)] = {"nbd_discs", "", "DISC requests: clients that said good bye"},
	[COMMAND(FLUSH)] = {"nbd_flushes", "", "FLUSH requests taken"},
	[COMMAND(TRIM)] = {"nbd_trims", "", "TRIM requests taken"},
	[COMMAND(CACHE)] = {"nbd_caches", "", "CACHE requests taken"},
	[COMMAND(WRITE_ZEROES)] = {"nbd_zeroes", "", "WRITE_ZEROES requests taken"},
	[COMMAND(BLOCK_STATUS)] = {"nbd_statuses", "", "BLOCK_STATUS requests taken"},
	[NBD_COUNT_UNKNOWN] = {"nbd_unknown", "", "requests that the protocol does not know"},
	[NBD_COUNT_REFUSED] = {"nbd_refused", "", "requests refused before anybody was asked"},
	[NBD_COUNT_BYTES_IN] = {"nbd_bytes_in", "B", "received in transmission"},
	[NBD_COUNT_BYTES_OUT] = {"nbd_bytes_out", "B", "sent in transmission"},
	[NBD_COUNT_RECEIVES] = {"nbd_receives", "", "receives that brought something"},
	[NBD_COUNT_RECEIVES_EMPTY] = {"nbd_receives_empty", "", "receives that found nothing"},
	[NBD_COUNT_SENDS] = {"nbd_sends", "", "sends"},
	[NBD_COUNT_CONNECTIONS] = {"nbd_connections", "", "connections accepted"},
	[NBD_COUNT_DISCONNECTS] = {"nbd_disconnects", "", "connections ended"},
	[NBD_COUNT_TURNED_AWAY] = {"nbd_turned_away", "", "connections over the limit"},
	[NBD_COUNT_BROKEN] = {"nbd_broken", "", "connections ended for what the client did"},
	[NBD_COUNT_TLS] = {"nbd_tls", "", "TLS handshakes that succeeded"},
	[NBD_COUNT_STALLS] = {"nbd_stalls", "",
		"clients that stopped reading, or in the middle of a request"},
	[NBD_COUNT_WAITS_ROOM] = {"nbd_waits_room", "", "times a connection was at its own limits"},
	[NBD_COUNT_WAITS_POOL] = {"nbd_waits_pool", "",
		"times a connection waited for pages or slots"},
	[NBD_COUNT_PATCHES] = {"nbd_patches", "", "writes that began or ended inside a sector"},
};

/* --- the process ----------------------------------------------------------------- */

static int nbd_open(struct peer *first, char *why, size_t why_size)
{
	struct nbd_shared *shared = first->shared;
	const struct nbd_options *options = first->options;
	shared->listeners.owner = first->name;
	shared->single_in = shared->single_out = -1;
	front_clients_init(&shared->clients);
	signal(SIGPIPE, SIG_IGN); /* pipes know no MSG_NOSIGNAL */
	int error = nbd_tls_open(shared, options, why, why_size);
	if (!error)
		error = nbd_listen_open(shared, options, why, why_size);
	if (error) {
		nbd_listen_close(shared);
		nbd_tls_close(shared);
	}
	return error;
}

static void nbd_close(struct peer *first)
{
	nbd_listen_close(first->shared);
	nbd_tls_close(first->shared);
}

/* --- a shard --------------------------------------------------------------------- */

static void nbd_finish(struct peer *peer)
{
	struct nbd *nbd = nbd_of(peer);
	must(TAILQ_EMPTY(&nbd->conns));
	front_door_stop(&nbd->door);
	nbd_handover_end(nbd);
	nbd_receive_free(nbd);
	nbd_request_free_all(nbd);
	nbd_status_free_all(nbd);
}

static int nbd_start(struct peer *peer, char *why, size_t why_size)
{
	struct nbd *nbd = nbd_of(peer);
	nbd->peer = peer;
	nbd->options = peer->options;
	nbd->shared = peer->shared;
	nbd->base = peer_event_base(peer);
	TAILQ_INIT(&nbd->conns);
	TAILQ_INIT(&nbd->active);
	front_volumes_init(&nbd->volumes, peer, nbd_export_busy);
	TAILQ_INIT(&nbd->free_requests);
	int error = nbd->base ? nbd_listen_start(nbd) : -1;
	if (error)
		snprintf(why, why_size, "no event loop for sockets");
	else
		nbd_handover_take(nbd);
	return error;
}

static void nbd_stop(struct peer *peer)
{
	struct nbd *nbd = nbd_of(peer);
	struct nbd_conn *conn;
	atomic_store(&nbd->shared->listeners.stopping, true);
	front_door_stop(&nbd->door);
	TAILQ_FOREACH (conn, &nbd->conns, link)
		if (!nbd_handover_begin(conn))
			nbd_conn_drain(conn);
	nbd->stop_ns = nbd_now(nbd);
	nbd->timed = nbd->again = true;
}

static bool nbd_idle(struct peer *peer)
{
	struct nbd *nbd = nbd_of(peer);
	return TAILQ_EMPTY(&nbd->conns) && !nbd->volumes.reopening;
}

/* Deadlines, a few times a second and only while there are any. */
static void nbd_sweep(struct nbd *nbd)
{
	uint64_t now = nbd_now(nbd);
	struct nbd_conn *conn;
	bool hurry = nbd->stop_ns && now - nbd->stop_ns > nbd->options->drain_ns;
	nbd->sweep_ns = now;
	nbd->timed = false;
	front_door_resume(&nbd->door);
	TAILQ_FOREACH (conn, &nbd->conns, link) {
		nbd_overload_drop(conn, NBD_OVERLOAD_NS);
		if (hurry)
			nbd_conn_fail(conn, "was still busy when the server stopped");
		if (nbd_conn_check_time(conn) || nbd->stop_ns)
			nbd->timed = true;
	}
}

/* Somebody waits for pages: from those that sit on some to no use. */
static void nbd_relieve(struct nbd *nbd)
{
	struct nbd_conn *conn;
	nbd->starved = false;
	TAILQ_FOREACH (conn, &nbd->conns, link)
		nbd_overload_drop(conn, NBD_OVERLOAD_STARVED_NS);
}

static bool nbd_poll(struct peer *peer)
{
	struct nbd *nbd = nbd_of(peer);
	struct nbd_conn *conn, *next;
	bool moved = false;
	nbd->again = false;
	front_volumes_reopen(&nbd->volumes);
	for (conn = TAILQ_FIRST(&nbd->active); conn; conn = next) {
		next = TAILQ_NEXT(conn, active_link);
		moved |= nbd_conn_turn(conn);
	}
	if (unlikely(nbd->timed || nbd->door.paused) &&
		nbd_now(nbd) - nbd->sweep_ns >= NBD_SWEEP_NS)
		nbd_sweep(nbd);
	if (unlikely(nbd->starved))
		nbd_relieve(nbd);
	if (unlikely(nbd->dying))
		nbd_conn_reap(nbd);
	return moved;
}

static bool nbd_sleep(struct peer *peer)
{
	struct nbd *nbd = nbd_of(peer);
	if (nbd->again || nbd->volumes.ended)
		return false;
	if (nbd->timed || nbd->door.paused)
		peer_wake_at(peer, nbd->sweep_ns + NBD_SWEEP_NS + 1);
	return true;
}

static void nbd_dump(struct peer *peer, FILE *out)
{
	const struct nbd *nbd = nbd_of(peer);
	const struct nbd_conn *conn;
	front_door_dump(&nbd->door, out);
	TAILQ_FOREACH (conn, &nbd->conns, link)
		nbd_conn_dump(conn, out);
}

static const char *const nbd_edges[] = {"volume", NULL};

static const char nbd_description[] =
	"Serves the volumes of the composer that its edge *volume* leads to, by their names, to "
	"any NBD "
	"client: the Linux kernel, QEMU, libnbd. It speaks the fixed newstyle handshake with "
	"structured "
	"replies, block sizes and base:allocation, and any number of connections to a volume "
	"(multi-conn: a flush on one covers them all, because it is a flush of the volume).\n\n"
	"A snapshot is served read-only. A client that will not write may say so with */ro* behind "
	"the "
	"export's name; so it can read what another host has open for writing. Without, it is "
	"refused and told who has it. A client sees a new size when it connects again, or asks.\n\n"
	"The context skerry:dirty:SNAP tells, for each snapshot SNAP of the volume, what may have "
	"changed since: bit 0 of its flags is set where data may differ, and where the volume has "
	"grown. "
	"skerry: and skerry:dirty: in a query mean all snapshots; 8 at most can be set on a "
	"connection.\n\n"
	"The empty export name leads to the only export there is.\n\n"
	"Clients that have asked for block sizes must keep to multiples of 512 bytes. For others, "
	"parts "
	"of sectors are served too; on a process of several lanes such writes are refused.\n\n"
	"On anything but UNIX sockets and loopback, TLS is required unless *tls=off*. A stale UNIX "
	"socket "
	"is replaced, one with a server behind it is not.\n\n"
	"When the service manager hands over listening sockets and no *listen* is given, they are "
	"used.\n\n"
	"Whoever started the process (xsegd, systemd) is given its listening sockets to keep. When "
	"the "
	"process dies its successor goes on with them: clients that connect again meanwhile wait "
	"in "
	"the queue and meet no refusal. When it is restarted on purpose (*xsegctl peer restart*), "
	"connections "
	"without TLS and without skerry:dirty: are passed on as well, up to 32: each is answered "
	"what it has asked, and goes "
	"on "
	"where it was; its client notices a pause. Others are drained and closed.";

static const struct peer_ops nbd_ops = {
	.name = "front_nbd",
	.summary = "serves volumes to NBD clients",
	.description = nbd_description,
	.options = nbd_option_table,
	.options_size = sizeof(struct nbd_options),
	.state_size = sizeof(struct nbd),
	.shared_size = sizeof(struct nbd_shared),
	.edges = nbd_edges,
	.serves = "",
	.counters = nbd_counters,
	.open = nbd_open,
	.close = nbd_close,
	.start = nbd_start,
	.finish = nbd_finish,
	.stop = nbd_stop,
	.idle = nbd_idle,
	.poll = nbd_poll,
	.sleep = nbd_sleep,
	.dump = nbd_dump,
	.on = {[XSEG_OP_CONTROL] = nbd_control},
};
PEER_MODULE(nbd_ops);
