/* SPDX-License-Identifier: Apache-2.0 */
/* Exports are the volumes of the composer below: listed, looked up, opened and closed here. */
#include <base/name.h>
#include <errno.h>
#include <peer/map.h>
#include <stdlib.h>
#include <time.h>

#include "peers/front/nbd.h"

#define NBD_LIST_PAGES 4u

/* May clients know of it? */
bool nbd_export_allowed(const struct nbd *nbd, const char *name)
{
	const struct peer_list *exports = &nbd->options->exports;
	for (size_t i = 0; i < exports->count; i++)
		if (!strcmp(exports->item[i], name))
			return true;
	return exports->count == 0;
}

static bool nbd_export_shown(const struct nbd *nbd, const struct xseg_volume_info *info)
{
	return info->state == XSEG_VOLUME_READY && name_check_volume(info->name) &&
	       nbd_export_allowed(nbd, info->name);
}

/* --- one step of a look-up ------------------------------------------------------- */

struct call *nbd_export_lookup_call(struct nbd_conn *conn, enum xseg_op op, uint32_t bytes)
{
	struct call *call;
	if (call_begin(conn->nbd->peer, &call))
		return NULL;
	call->op = op;
	call->context = conn;
	if (call_pages(call, bytes)) {
		call_end(call);
		return NULL;
	}
	return call;
}

static struct call *nbd_lookup_name_call(struct nbd_conn *conn)
{
	const struct nbd_lookup *lookup = &conn->lookup;
	struct call *call =
		nbd_export_lookup_call(conn, lookup->open ? XSEG_OP_OPEN : XSEG_OP_INFO, XSEG_PAGE);
	if (!call)
		return NULL;
	call->length = (uint32_t)strlen(lookup->name);
	call->flags = conn->lookup.read_only ? XSEG_F_READ_ONLY : 0;
	call_put_bytes(call, XSEG_NAME_AT, lookup->name, call->length + 1);
	return call;
}

struct call *nbd_export_list_call(struct nbd_conn *conn)
{
	struct call *call = nbd_export_lookup_call(conn, XSEG_OP_LIST, NBD_LIST_PAGES * XSEG_PAGE);
	if (call) {
		call->length = NBD_LIST_PAGES * XSEG_PAGE;
		call->arg0 = conn->lookup.cursor;
	}
	return call;
}

static struct call *nbd_lookup_close_call(struct nbd_conn *conn)
{
	struct call *call = nbd_export_lookup_call(conn, XSEG_OP_CLOSE, 0);
	if (call)
		call->key.volume = conn->session.volume;
	return call;
}

static struct call *nbd_lookup_adopt_call(struct nbd_conn *conn)
{
	struct call *call = nbd_export_lookup_call(conn, XSEG_OP_OPEN, XSEG_PAGE);
	if (call) {
		call->key.volume = conn->lookup.volume;
		call->arg1 = conn->session.term;
		call->flags = conn->lookup.read_only ? XSEG_F_READ_ONLY : 0;
	}
	return call;
}

static struct call *nbd_lookup_next_call(struct nbd_conn *conn)
{
	switch (conn->lookup.what) {
	case NBD_LOOKUP_NAME: return nbd_lookup_name_call(conn);
	case NBD_LOOKUP_ADOPT: return nbd_lookup_adopt_call(conn);
	case NBD_LOOKUP_CLOSE: return nbd_lookup_close_call(conn);
	case NBD_LOOKUP_HEADS: return nbd_dirty_head_call(conn);
	default: return nbd_export_list_call(conn);
	}
}

static bool nbd_lookup_issue(struct peer *peer, void *context)
{
	struct nbd_conn *conn = context;
	struct call *call;
	(void)peer;
	if (conn->nbd->volumes.reopening)
		return false;
	call = nbd_lookup_next_call(conn);
	if (!call)
		return false;
	conn->lookup.asked = true;
	call_submit(call, FRONT_EDGE_VOLUME, conn->lookup.done);
	return true;
}

void nbd_export_lookup_step(struct nbd_conn *conn)
{
	struct peer *peer = conn->nbd->peer;
	if (!nbd_lookup_issue(peer, conn))
		peer_retry(peer, nbd_lookup_issue, conn);
}

/* --- answers --------------------------------------------------------------------- */

/* A look-up of a connection that has died meanwhile ends here. */
bool nbd_export_lookup_over(struct nbd_conn *conn)
{
	conn->lookup.what = NBD_LOOKUP_NONE;
	free(conn->lookup.ids);
	conn->lookup.ids = NULL;
	if (conn->state == NBD_CONN_NEGOTIATING)
		return false;
	conn->nbd->again = true;
	return true;
}

static void nbd_lookup_list_item(struct nbd_conn *conn, const struct xseg_volume_info *info)
{
	struct nbd_lookup *lookup = &conn->lookup;
	if (!nbd_export_shown(conn->nbd, info))
		return;
	if (lookup->what == NBD_LOOKUP_DEFAULT) {
		if (!lookup->seen++)
			strcpy(lookup->name, info->name);
	} else if (conn->state == NBD_CONN_NEGOTIATING) {
		nbd_handshake_listed(conn->handshake, info->name);
	}
}

static void nbd_lookup_list_items(struct nbd_conn *conn, const struct call *call)
{
	struct xseg_volume_info info;
	uint32_t size = call->answer_length < NBD_LIST_PAGES * XSEG_PAGE
				? call->answer_length
				: NBD_LIST_PAGES * XSEG_PAGE;
	for (uint32_t at = 0; at + sizeof(info) <= size; at += sizeof(info)) {
		call_get_bytes(call, at, &info, sizeof(info));
		info.name[VOLUME_NAME_LENGTH_MAX] = 0;
		nbd_lookup_list_item(conn, &info);
	}
}

static void nbd_lookup_listed(struct nbd_conn *conn, int error)
{
	struct nbd_lookup *lookup = &conn->lookup;
	bool all = lookup->what == NBD_LOOKUP_LIST;
	if (!error && !all && lookup->seen == 1) {
		lookup->what = NBD_LOOKUP_NAME;
		nbd_export_lookup_step(conn);
	} else if (!nbd_export_lookup_over(conn)) {
		if (all)
			nbd_negotiate_listed(conn, error);
		else
			nbd_negotiate_found(conn, error ? error : -ENOENT, NULL);
	}
}

/* Who has it open, and since when. */
static void nbd_lookup_blame(struct nbd_conn *conn, const struct call *call)
{
	struct map_trouble trouble;
	char since[32] = "";
	struct tm tm;
	if (call->result != -EBUSY || call->value != 1 || conn->state != NBD_CONN_NEGOTIATING ||
		call->data_size < MAP_ANSWER_AT + sizeof(trouble))
		return;
	call_get_bytes(call, MAP_ANSWER_AT, &trouble, sizeof(trouble));
	trouble.owner.host[sizeof(trouble.owner.host) - 1] = 0;
	name_make_utf8(trouble.owner.host);
	time_t seconds = (time_t)(trouble.owner.since_ns / 1000000000u);
	if (trouble.owner.host[0] && gmtime_r(&seconds, &tm))
		strftime(since, sizeof(since), " since %F %T UTC", &tm);
	if (trouble.owner.host[0])
		snprintf(conn->handshake->holder, sizeof(conn->handshake->holder), "host '%s'%s",
			trouble.owner.host, since);
}

/* What nobody can write to is opened for reading. */
static bool nbd_lookup_again_to_read(struct nbd_lookup *lookup, int error)
{
	if ((error != -EROFS && error != -EPERM) || !lookup->open || lookup->read_only)
		return false;
	lookup->read_only = true;
	return true;
}

static struct nbd_export *nbd_export_of(const struct nbd *nbd, uint64_t volume)
{
	return (struct nbd_export *)front_volume_find(&nbd->volumes, volume);
}

/* The last places are for volumes that have no client: a guest that comes back finds one, however
   many connections somebody else has to another volume. */
static bool nbd_export_room(const struct nbd *nbd, uint64_t volume)
{
	uint64_t most = nbd->options->connections, used = atomic_load(&nbd->shared->connections);
	return used < most - most / 8 || (used < most && !nbd_export_of(nbd, volume));
}

static void nbd_lookup_named(struct nbd_conn *conn, struct call *call)
{
	struct xseg_volume_info info;
	int error = front_volume_info(call, &info);
	nbd_lookup_blame(conn, call);
	call_end(call);
	if (nbd_lookup_again_to_read(&conn->lookup, error)) {
		nbd_export_lookup_step(conn);
		return;
	}
	if (!error && conn->lookup.read_only)
		info.flags |= XSEG_VOLUME_READ_ONLY;
	if (!error && conn->lookup.open)
		conn->session.volume = info.id; /* to be closed, whatever comes now */
	if (!error && conn->lookup.open && conn->state == NBD_CONN_NEGOTIATING &&
		!nbd_export_room(conn->nbd, info.id)) {
		peer_count(conn->nbd->peer, NBD_COUNT_TURNED_AWAY, 1);
		nbd_conn_fail(conn, "turned away: there are as many connections as may be");
	}
	if (!nbd_export_lookup_over(conn))
		nbd_negotiate_found(conn, error, &info);
}

static void nbd_lookup_adopted(struct nbd_conn *conn, struct call *call)
{
	struct xseg_volume_info info;
	int error = front_volume_info(call, &info);
	call_end(call);
	if (!error) {
		conn->session.volume = info.id; /* to be closed, whatever comes now */
		conn->session.size = info.size;
	}
	if (nbd_export_lookup_over(conn))
		return;
	if (error || nbd_export_use(conn)) {
		nbd_conn_fail(conn, error == -ESTALE
					    ? "ends: another host has had its volume meanwhile"
					    : "was taken over, but its volume cannot be opened");
		return;
	}
	nbd_conn_serve(conn);
	nbd_conn_wake(conn, NBD_WAIT_ANSWER);
}

static void nbd_lookup_closed(struct nbd_conn *conn, struct call *call)
{
	call_end(call);
	conn->session.volume = 0;
	nbd_export_lookup_over(conn);
}

static void nbd_lookup_page(struct nbd_conn *conn, struct call *call)
{
	struct nbd_lookup *lookup = &conn->lookup;
	int error = call->result;
	if (!error)
		nbd_lookup_list_items(conn, call);
	lookup->cursor = call->value;
	call_end(call);
	bool enough = lookup->what == NBD_LOOKUP_DEFAULT && lookup->seen > 1;
	if (!error && lookup->cursor && !enough && conn->state == NBD_CONN_NEGOTIATING)
		nbd_export_lookup_step(conn);
	else
		nbd_lookup_listed(conn, error);
}

static void nbd_lookup_done(struct call *call)
{
	struct nbd_conn *conn = call->context;
	switch (conn->lookup.what) {
	case NBD_LOOKUP_NAME: nbd_lookup_named(conn, call); return;
	case NBD_LOOKUP_ADOPT: nbd_lookup_adopted(conn, call); return;
	case NBD_LOOKUP_CLOSE: nbd_lookup_closed(conn, call); return;
	case NBD_LOOKUP_SNAPSHOTS:
	case NBD_LOOKUP_HEADS: nbd_dirty_answered(conn, call); return;
	default: nbd_lookup_page(conn, call); return;
	}
}

/* A call that opens or closes may be served by either process: first let it come back. */
bool nbd_export_busy(const struct peer *peer)
{
	const struct nbd_conn *conn;
	TAILQ_FOREACH (conn, &nbd_of(peer)->conns, link)
		if (conn->lookup.what != NBD_LOOKUP_NONE && conn->lookup.asked)
			return true;
	return false;
}

/* --- entry points ---------------------------------------------------------------- */

void nbd_export_lookup(struct nbd_conn *conn, enum nbd_lookup_what what)
{
	must(conn->lookup.what == NBD_LOOKUP_NONE);
	conn->lookup.asked = false;
	conn->lookup.what = what;
	conn->lookup.cursor = 0;
	conn->lookup.seen = 0;
	conn->lookup.done = nbd_lookup_done;
	nbd_export_lookup_step(conn);
}

void nbd_export_list(struct nbd_conn *conn) { nbd_export_lookup(conn, NBD_LOOKUP_LIST); }

void nbd_export_find(struct nbd_conn *conn, const char *name, bool open, bool read_only)
{
	const struct peer_list *exports = &conn->nbd->options->exports;
	conn->lookup.read_only = read_only || conn->nbd->options->read_only;
	conn->lookup.open = open;
	if (!*name && exports->count == 1)
		name = exports->item[0];
	strcpy(conn->lookup.name, name);
	if (!*name)
		nbd_export_lookup(conn, NBD_LOOKUP_DEFAULT);
	else if (nbd_export_allowed(conn->nbd, name))
		nbd_export_lookup(conn, NBD_LOOKUP_NAME);
	else
		nbd_negotiate_found(conn, -ENOENT, NULL);
}

void nbd_export_close(struct nbd_conn *conn) { nbd_export_lookup(conn, NBD_LOOKUP_CLOSE); }

void nbd_export_adopt(struct nbd_conn *conn, uint64_t volume)
{
	conn->lookup.volume = volume;
	conn->lookup.read_only = conn->session.flags & NBD_FLAG_READ_ONLY;
	nbd_export_lookup(conn, NBD_LOOKUP_ADOPT);
}

int nbd_export_use(struct nbd_conn *conn)
{
	struct nbd *nbd = conn->nbd;
	struct nbd_export *export = nbd_export_of(nbd, conn->session.volume);
	if (!export) {
		export = calloc(1, sizeof(*export));
		if (!export)
			return -ENOMEM;
		TAILQ_INIT(&export->waiting);
		TAILQ_INIT(&export->crowd);
		front_volume_add(&nbd->volumes, &export->volume, conn->session.volume);
	}
	front_volume_use(
		&export->volume, conn->session.term, !(conn->session.flags & NBD_FLAG_READ_ONLY));
	conn->export = export;
	return 0;
}

void nbd_export_unuse(struct nbd_conn *conn)
{
	struct nbd_export *export = conn->export;
	conn->export = NULL;
	if (!export)
		return;
	if (!front_volume_unuse(&export->volume, !(conn->session.flags & NBD_FLAG_READ_ONLY)))
		return;
	must(!export->writers && !export->holder && TAILQ_EMPTY(&export->waiting));
	free(export);
}
