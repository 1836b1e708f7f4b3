/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A session's connections. One that is lost ends all of them: what was on its way is asked again
 * over new ones, whatever the reason was and whichever side was started anew.
 */
#include <base/clock.h>
#include <base/container.h>
#include <base/log.h>
#include <base/must.h>
#include <errno.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>
#include <xseg/segment.h>

#include "peers/synapse/import.h"

#define BACK_OFF_FIRST_NS 20000000u
#define BACK_OFF_MOST_NS 2000000000u
#define DIAL_NS 10000000000u /* to connect and be greeted */
#define SHOW_DOWN_NS 2000000000u
#define PING_NS 1000000000u

/* --- down ------------------------------------------------------------------------------------- */

static uint64_t back_off_ns(const struct import *import)
{
	uint64_t wait = BACK_OFF_FIRST_NS, jitter = 0;
	for (unsigned i = 1; i < import->attempt && wait < BACK_OFF_MOST_NS; i++)
		wait *= 2;
	/* many that lost the same exporter do not come back in step */
	getrandom(&jitter, sizeof(jitter), GRND_NONBLOCK);
	return wait / 2 + jitter % (wait / 2);
}

void import_link_cut(struct import *import, const char *why)
{
	uint64_t now = clock_now_ns();
	bool was_ready = import->state == IMPORT_STATE_READY;
	for (unsigned i = 0; i < WIRE_CONNS; i++) {
		conn_close(&import->link[i].conn);
		import->link[i].answer = NULL;
		import->link[i].welcomed = false;
	}
	if (was_ready) {
		import_job_cut(import);
		peer_count(import->peer, IMPORT_CUTS, 1);
		/* one that greets, and then only breaks the rules, is as good as away */
		if (import->proven) {
			import->down_ns = now;
			import->attempt = 0;
		}
		import->proven = false;
	}
	if (was_ready || !import->said)
		log_warning("synapse_import", "%s: '%s': %s; trying again", import->peer->name,
			import_options_of(import)->remote, why);
	import->said = true;
	import->state = IMPORT_STATE_DOWN;
	import->attempt++;
	import->retry_ns = now + back_off_ns(import);
}

/* --- greeting --------------------------------------------------------------------------------- */

static void nothing_sent(struct conn_out *out, bool lost) { (void)out, (void)lost; }

static int hello_pieces(struct conn_out *out, uint32_t at, struct iovec *iov, int max)
{
	struct import_link *link = container_of(out, struct import_link, greeting);
	(void)max;
	iov[0] = (struct iovec){link->hello + at, WIRE_HELLO - at};
	return 1;
}

static bool is_chosen(const struct import *import, uint64_t choice)
{
	const struct import_shared *shared = import->peer->shared;
	return choice == IMPORT_AUTO ? !shared->address.local : choice == IMPORT_YES;
}

static void greet(struct import *import, unsigned which)
{
	struct import_link *link = &import->link[which];
	const struct import_options *options = import_options_of(import);
	const struct xseg *seg = peer_segment(import->peer);
	struct wire_hello hello = {
		.version_min = WIRE_VERSION,
		.version_max = WIRE_VERSION,
		.conn = (uint8_t)which,
		.checksums = is_chosen(import, options->checksums),
		.packs = is_chosen(import, options->compress) ? PACK_ALL : 0,
		.lane = (uint16_t)import->peer->shard,
		.generation = import->generation,
	};
	memcpy(hello.writer, seg->super->uuid, sizeof(hello.writer));
	memcpy(hello.session, import->session, sizeof(hello.session));
	snprintf(hello.importer, sizeof(hello.importer), "%.63s", import->peer->name);
	snprintf(hello.port, sizeof(hello.port), "%.63s", options->port ? options->port : "");
	wire_pack_hello(&hello, link->hello);
	struct wire_frame frame = {.type = WIRE_TYPE_HELLO, .data = WIRE_HELLO};
	link->greeting.pieces = hello_pieces;
	link->greeting.sent = nothing_sent;
	conn_send(&link->conn, &link->greeting, &frame);
}

static void ready(struct import *import)
{
	import->state = IMPORT_STATE_READY;
	import->said = false;
	import->ping_ns = 0;
	peer_set(import->peer, IMPORT_DOWN, 0);
	peer_count(import->peer, IMPORT_CONNECTS, 1);
	log_info("synapse_import", "%s: port '%s' of '%s' is reached", import->peer->name,
		import_options_of(import)->port ? import_options_of(import)->port : "any",
		import_options_of(import)->remote);
	import_job_replay(import);
}

static int welcomed(struct import_link *link)
{
	struct import *import = link->import;
	struct wire_welcome welcome;
	if (wire_unpack_welcome(link->welcome, &welcome) || welcome.window == 0 ||
		import->state != IMPORT_STATE_GREETING || link->welcomed) {
		import_link_cut(import, "it speaks another version of the protocol");
		return -EPROTO;
	}
	link->welcomed = true;
	import_fence_greeted(import, welcome.known);
	link->conn.checks = welcome.checksums;
	if (link == &import->link[WIRE_BULK] &&
		is_chosen(import, import_options_of(import)->compress))
		link->conn.pack.methods = welcome.packs & PACK_ALL;
	import->requests_max = welcome.window < WIRE_WINDOW ? welcome.window : WIRE_WINDOW;
	import->bytes_max = welcome.bytes;
	for (unsigned i = 0; i < WIRE_CONNS; i++)
		if (!import->link[i].welcomed)
			return 0;
	ready(import);
	return 0;
}

static int refused(struct import_link *link, const struct wire_frame *frame)
{
	char why[WIRE_REFUSAL + 32];
	for (uint32_t i = 0; i < frame->data; i++) /* theirs: nothing that moves a cursor */
		if (link->refusal[i] < ' ' || link->refusal[i] > '~')
			link->refusal[i] = '?';
	snprintf(why, sizeof(why), "it says: %.*s", (int)frame->data, (char *)link->refusal);
	import_link_cut(link->import, why);
	return -EACCES;
}

static void ponged(struct import *import, const struct wire_frame *frame)
{
	if (frame->sequence != import->ping_sequence)
		return;
	uint64_t took = clock_now_ns() - import->ping_ns;
	import->proven = true;
	import->rtt_ns = import->rtt_ns ? (import->rtt_ns * 7 + took) / 8 : took;
	peer_set(import->peer, IMPORT_RTT, import->rtt_ns);
}

/* --- frames ----------------------------------------------------------------------------------- */

static int link_begin(struct conn *conn, const struct wire_frame *frame)
{
	struct import_link *link = conn->owner;
	int error = 0;
	link->answer = NULL;
	switch (frame->type) {
	case WIRE_TYPE_WELCOME:
	case WIRE_TYPE_REFUSE: error = link->welcomed ? -EPROTO : 0; break;
	case WIRE_TYPE_ANSWER:
		error = link->import->state == IMPORT_STATE_READY
				? import_job_answer_begin(link, frame)
				: -EPROTO;
		break;
	case WIRE_TYPE_PONG: break;
	default: error = -EPROTO;
	}
	if (error)
		conn_fail(conn, error, "it sends what was not asked for");
	return error;
}

static int link_place(struct conn *conn, uint32_t at, struct iovec *iov, int max)
{
	struct import_link *link = conn->owner;
	switch (conn->frame.type) {
	case WIRE_TYPE_WELCOME:
		iov[0] = (struct iovec){link->welcome + at, WIRE_WELCOME - at};
		return 1;
	case WIRE_TYPE_REFUSE:
		iov[0] = (struct iovec){link->refusal + at, WIRE_REFUSAL - at};
		return 1;
	case WIRE_TYPE_ANSWER: return import_job_answer_place(link, at, iov, max);
	default: return 0;
	}
}

static int link_end(struct conn *conn, const struct wire_frame *frame)
{
	struct import_link *link = conn->owner;
	switch (frame->type) {
	case WIRE_TYPE_WELCOME: return welcomed(link);
	case WIRE_TYPE_REFUSE: return refused(link, frame);
	case WIRE_TYPE_ANSWER: return import_job_answer_end(link, frame);
	case WIRE_TYPE_PONG: ponged(link->import, frame); return 0;
	default: return -EPROTO;
	}
}

static void link_lost(struct conn *conn, int error, const char *why)
{
	struct import_link *link = conn->owner;
	(void)error;
	import_link_cut(link->import, why);
}

static const struct conn_ops link_ops = {
	.begin = link_begin,
	.place = link_place,
	.end = link_end,
	.lost = link_lost,
};

/* --- up --------------------------------------------------------------------------------------- */

static const char *server_name(const struct import *import)
{
	const struct import_options *options = import_options_of(import);
	const struct import_shared *shared = import->peer->shared;
	return options->tls_name ? options->tls_name : shared->address.host;
}

static int dial_one(struct import *import, unsigned which)
{
	struct import_shared *shared = import->peer->shared;
	struct import_link *link = &import->link[which];
	struct tls_link *tls = NULL;
	int fd = address_connect(&import->found, import->attempt);
	if (fd < 0)
		return fd;
	if (shared->tls) {
		tls = tls_open(shared->tls, fd, fd, server_name(import));
		if (!tls) {
			close(fd);
			return -ENOMEM;
		}
	}
	link->import = import;
	int error = conn_open(&link->conn, import->peer, fd, tls, &link_ops, link);
	if (!error)
		greet(import, which);
	return error;
}

static void dial(struct import *import)
{
	import->state = IMPORT_STATE_GREETING;
	import->begun_ns = clock_now_ns();
	import->generation++;
	for (unsigned i = 0; i < WIRE_CONNS && import->state == IMPORT_STATE_GREETING; i++) {
		int error = dial_one(import, i);
		if (error)
			import_link_cut(import, strerror(-error));
	}
}

static void resolve(struct worker_item *item)
{
	struct import *import = container_of(item, struct import, resolver);
	const struct import_shared *shared = import->peer->shared;
	address_resolve(&shared->address, &import->found);
}

static void resolved(struct worker_item *item)
{
	struct import *import = container_of(item, struct import, resolver);
	import->resolving = false;
	if (import->found.count == 0)
		import_link_cut(import, "there is no such host");
	else
		dial(import);
}

/* A name may lead elsewhere by now, so it is looked up each time, where that may take its time. */
static void look_up(struct import *import)
{
	import->state = IMPORT_STATE_RESOLVING;
	import->resolving = true;
	worker_run(import->peer, &import->resolver, resolve, resolved);
}

/* --- time ------------------------------------------------------------------------------------- */

/* Often enough that an idle link is not taken for a silent one. */
static uint64_t ping_every_ns(const struct import *import)
{
	uint64_t quarter = import_options_of(import)->silence / 4;
	return quarter < PING_NS ? quarter : PING_NS;
}

static void ping(struct import *import, uint64_t now)
{
	struct import_link *link = &import->link[WIRE_URGENT];
	struct wire_frame frame = {.type = WIRE_TYPE_PING, .sequence = ++import->ping_sequence};
	if (link->ping.queued)
		return;
	link->ping.sent = nothing_sent;
	link->ping.pieces = NULL;
	import->ping_ns = now;
	conn_send(&link->conn, &link->ping, &frame);
}

/* A link that carries nothing is as bad as one that is cut. Bulk data are asked for only while
   something of them is on its way. */
static bool is_silent(const struct import *import, uint64_t now)
{
	const struct import_options *options = import_options_of(import);
	return import->link[WIRE_URGENT].conn.heard_ns + options->silence < now;
}

static bool watch(struct import *import, uint64_t now)
{
	if (import->state == IMPORT_STATE_GREETING && now > import->begun_ns + DIAL_NS) {
		import_link_cut(import, "it does not answer");
		return true;
	}
	if (import->state != IMPORT_STATE_READY)
		return false;
	if (is_silent(import, now)) {
		import_link_cut(import, "nothing has come from it for 'silence'");
		return true;
	}
	if (now < import->ping_ns + ping_every_ns(import))
		return false;
	ping(import, now);
	return true;
}

static bool give_up(struct import *import, uint64_t now)
{
	uint64_t timeout = import_options_of(import)->timeout;
	bool waits = import->requests > 0 || import->waiting_count > 0;
	if (!waits || timeout == 0 || import->state == IMPORT_STATE_READY ||
		now < import->down_ns + timeout)
		return false;
	for (unsigned i = 0; i < WIRE_CONNS; i++)
		if (conn_is_open(&import->link[i].conn))
			return false; /* it may just be coming */
	log_warning("synapse_import", "%s: '%s' is away for longer than 'timeout': requests fail",
		import->peer->name, import_options_of(import)->remote);
	import_job_fail(import, -EIO);
	return true;
}

bool import_link_turn(struct import *import)
{
	uint64_t now = peer_now_ns(import->peer);
	bool moved = false;
	/* one that is just being made is not told of */
	if (import->state != IMPORT_STATE_READY && now > import->down_ns + SHOW_DOWN_NS)
		peer_set(import->peer, IMPORT_DOWN, 1);
	if (import->state == IMPORT_STATE_DOWN && now >= import->retry_ns) {
		import_job_sweep(import);
		look_up(import);
		moved = true;
	}
	moved |= watch(import, now);
	moved |= give_up(import, now);
	if (import->state == IMPORT_STATE_GREETING)
		for (unsigned i = 0; i < WIRE_CONNS && import->state == IMPORT_STATE_GREETING; i++)
			moved |= conn_flush(&import->link[i].conn);
	return moved;
}

uint64_t import_link_wake_ns(const struct import *import)
{
	uint64_t timeout = import_options_of(import)->timeout, at = UINT64_MAX;
	switch (import->state) {
	case IMPORT_STATE_DOWN: at = import->retry_ns; break;
	case IMPORT_STATE_GREETING: return import->begun_ns + DIAL_NS;
	case IMPORT_STATE_READY:
		at = import->ping_ns + ping_every_ns(import);
		if (import->waiting_count > 0 && import->paid_ns > peer_now_ns(import->peer) &&
			import->paid_ns < at)
			at = import->paid_ns;
		return at;
	default: break;
	}
	uint64_t late = import->down_ns + timeout;
	bool waits = import->requests > 0 || import->waiting_count > 0;
	return timeout > 0 && waits && late < at ? late : at;
}

void import_link_start(struct import *import)
{
	import->state = IMPORT_STATE_DOWN;
	import->down_ns = clock_now_ns();
	for (unsigned i = 0; i < WIRE_CONNS; i++)
		import->link[i].conn.fd = -1;
}

void import_link_stop(struct import *import)
{
	for (unsigned i = 0; i < WIRE_CONNS; i++)
		conn_close(&import->link[i].conn);
}
