/* SPDX-License-Identifier: Apache-2.0 */
/* The importing end of a bridge: a port of another segment, as one of this. */
#include "peers/synapse/import.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

static const char *const choices[] = {"auto", "yes", "no", NULL};

static const struct peer_option import_options[] = {
	OPTION_TEXT(struct import_options, remote, "remote", .required = true, .max = 320,
		.help = "where the exporting end listens: tcp:HOST:PORT or unix:PATH"),
	OPTION_TEXT(struct import_options, port, "port", .max = WIRE_NAME - 1,
		.help = "the exporting peer that must be there; empty: any"),
	OPTION_TIME(struct import_options, timeout, "timeout", .initial = "60s",
		.help = "requests wait so long for a link that is away, then fail: EIO; 0: they "
			"wait until it is back"),
	OPTION_TIME(struct import_options, silence, "silence", .min = 100000000, .initial = "10s",
		.help = "a link from which nothing comes for so long is made anew"),
	OPTION_SIZE(struct import_options, rate, "rate", .unit = "bytes",
		.help = "of data a second, both ways together, at most; small requests do not "
			"wait for it; 0: no limit"),
	OPTION_CHOICE(struct import_options, checksums, "checksums", .choices = choices,
		.initial = "auto",
		.help = "data are sent with a checksum; auto: in clear text to another host; TLS "
			"has its own"),
	OPTION_CHOICE(struct import_options, compress, "compress", .choices = choices,
		.initial = "auto",
		.help = "data are compressed (LZ4, Zstandard) while the link is slow enough for "
			"that to be faster; auto: to another host"),
	OPTION_TEXT(struct import_options, tls_ca, "tls-ca",
		.help = "certificates (PEM) of who signs for the exporting end"),
	OPTION_TEXT(struct import_options, tls_cert, "tls-cert",
		.help = "certificate (PEM) that this end shows"),
	OPTION_TEXT(struct import_options, tls_key, "tls-key", .help = "its private key (PEM)"),
	OPTION_TEXT(struct import_options, tls_crl, "tls-crl",
		.help = "certificates (PEM) that were revoked; looked at again when it changes"),
	OPTION_TEXT(struct import_options, tls_name, "tls-name",
		.help = "name in the other end's certificate, when that is not the host"),
	OPTION_BOOL(struct import_options, clear_text, "clear-text", .initial = "no",
		.help = "no TLS to another host: whoever is on the way reads and writes all"),
	OPTION_END,
};

static const struct xseg_counter import_counters[] = {
	[IMPORT_CONNECTS] = {"connects", "", "times that the other end was reached"},
	[IMPORT_CUTS] = {"cuts", "", "times that the link was lost"},
	[IMPORT_REPLAYS] = {"replays", "", "requests sent again after a cut"},
	[IMPORT_SENT] = {"sent", "B", "bytes sent"},
	[IMPORT_RECEIVED] = {"received", "B", "bytes received"},
	[IMPORT_SAVED] = {"saved", "B", "bytes not sent, as data were compressed"},
	[IMPORT_RTT] = {"rtt_ns", "now", "round trip to the other end, smoothed"},
	[IMPORT_DOWN] = {"down", "now", "lanes without a link for 2 s or longer"},
	[IMPORT_WAITING] = {"waiting", "now", "requests that wait for link or window"},
	[IMPORT_COUNTERS] = {NULL, NULL, NULL},
};

static int check(const struct import_options *options, const struct import_shared *shared,
	char *why, size_t why_size)
{
	bool all = options->tls_ca && options->tls_cert && options->tls_key;
	bool any = options->tls_ca || options->tls_cert || options->tls_key || options->tls_crl ||
		   options->tls_name;
	const char *text = NULL;
	if (any && !all)
		text = "tls-ca, tls-cert and tls-key: a bridge needs all three";
	else if (any && options->clear_text)
		text = "clear-text=yes goes without tls-ca, tls-cert and tls-key";
	else if (!any && !shared->address.local && !options->clear_text)
		text = "remote is another host, so it needs TLS: give tls-ca, tls-cert and "
		       "tls-key, or accept clear text with clear-text=yes";
	if (text)
		snprintf(why, why_size, "%s", text);
	return text ? -EINVAL : 0;
}

static int import_open(struct peer *first, char *why, size_t why_size)
{
	const struct import_options *options = first->options;
	struct import_shared *shared = first->shared;
	char text[400];
	struct tls_files files = {
		options->tls_ca, options->tls_cert, options->tls_key, options->tls_crl};
	pthread_mutex_init(&shared->lock, NULL);
	int error = address_parse(options->remote, &shared->address, text, sizeof(text));
	if (error) {
		snprintf(why, why_size, "remote: %s", text);
		return error;
	}
	error = check(options, shared, why, why_size);
	if (!error && getrandom(shared->life, sizeof(shared->life), 0) != sizeof(shared->life)) {
		snprintf(why, why_size, "remote: there are no random numbers");
		error = -EIO;
	}
	if (!error && files.cert)
		error = tls_context_open(&shared->tls, &files, 0, why, why_size);
	return error;
}

static void import_close(struct peer *first)
{
	struct import_shared *shared = first->shared;
	tls_context_close(shared->tls);
	pthread_mutex_destroy(&shared->lock);
	free(shared->fence);
}

static int import_start(struct peer *peer, char *why, size_t why_size)
{
	struct import *import = peer->state;
	const struct import_shared *shared = peer->shared;
	import->peer = peer;
	for (unsigned i = 0; i < WIRE_CONNS * CONN_FLOWS; i++)
		TAILQ_INIT(&import->waiting[i / CONN_FLOWS][i % CONN_FLOWS]);
	import->table = calloc(WIRE_WINDOW, sizeof(*import->table));
	import->lowest = import->next = 1;
	if (!import->table || !peer_event_base(peer) ||
		getrandom(import->session, sizeof(import->session), 0) != sizeof(import->session)) {
		snprintf(why, why_size, "out of memory");
		return -ENOMEM;
	}
	memcpy(import->session, shared->life, sizeof(shared->life));
	import_link_start(import);
	return 0;
}

static void import_finish(struct peer *peer)
{
	struct import *import = peer->state;
	import_link_stop(import);
	free(import->table);
}

static bool import_idle(struct peer *peer)
{
	const struct import *import = peer->state;
	return !import->resolving;
}

static void count(struct import *import)
{
	for (unsigned i = 0; i < WIRE_CONNS; i++)
		if (import->link[i].conn.peer)
			conn_count(
				&import->link[i].conn, IMPORT_SENT, IMPORT_RECEIVED, IMPORT_SAVED);
	peer_set(import->peer, IMPORT_WAITING, import->waiting_count);
}

static bool import_poll(struct peer *peer)
{
	struct import *import = peer->state;
	bool moved = import_link_turn(import);
	for (unsigned i = 0; i < WIRE_CONNS && import->state == IMPORT_STATE_READY; i++)
		moved |= conn_poll(&import->link[i].conn);
	moved |= import_job_turn(import);
	count(import);
	return moved;
}

static bool import_sleep(struct peer *peer)
{
	struct import *import = peer->state;
	bool moved = import_poll(peer); /* the event loop may have made room since */
	uint64_t at = import_link_wake_ns(import);
	if (at != UINT64_MAX)
		peer_wake_at(peer, at);
	return !moved;
}

static void import_dump(struct peer *peer, FILE *out)
{
	static const char *const states[] = {"down", "resolving", "greeting", "ready"};
	const struct import *import = peer->state;
	fprintf(out,
		"%s: %s, %" PRIu32 " requests of %" PRIu32 ", %" PRIu64 " bytes of %" PRIu64
		", %" PRIu64 " waiting, sequences %" PRIu64 " to %" PRIu64 "\n",
		peer->name, states[import->state], import->requests, import->requests_max,
		import->bytes, import->bytes_max, import->waiting_count, import->lowest,
		import->next);
}

static const struct peer_ops import_ops = {
	.name = "synapse_import",
	.summary = "a port of another segment, over a network",
	.description =
		"Edges that lead to this peer lead to the port of another segment, often another "
		"host's, which *skerry-role-synapse_export*(7) offers there. When the link is lost "
		"it is made again, and what was on its way is asked again; each request is done "
		"once as long as the other end lives.\n",
	.options = import_options,
	.options_size = sizeof(struct import_options),
	.counters = import_counters,
	.state_size = sizeof(struct import),
	.shared_size = sizeof(struct import_shared),
	.open = import_open,
	.close = import_close,
	.start = import_start,
	.finish = import_finish,
	.idle = import_idle,
	.poll = import_poll,
	.sleep = import_sleep,
	.dump = import_dump,
	.on = {[XSEG_OP_READ] = import_job_take,
		[XSEG_OP_WRITE] = import_job_take,
		[XSEG_OP_ZERO] = import_job_take,
		[XSEG_OP_DISCARD] = import_job_take,
		[XSEG_OP_FLUSH] = import_job_take,
		[XSEG_OP_PREFETCH] = import_job_take,
		[XSEG_OP_STATUS] = import_job_take,
		[XSEG_OP_COPY] = import_job_take,
		[XSEG_OP_DELETE] = import_job_take,
		[XSEG_OP_CAS] = import_job_take,
		[XSEG_OP_OPEN] = import_job_take,
		[XSEG_OP_CLOSE] = import_job_take,
		[XSEG_OP_INFO] = import_job_take,
		[XSEG_OP_LIST] = import_job_take,
		[XSEG_OP_CREATE] = import_job_take,
		[XSEG_OP_UPDATE] = import_job_take,
		[XSEG_OP_REMOVE] = import_job_take,
		[XSEG_OP_CONTROL] = import_job_take},
};
PEER_MODULE(import_ops);
