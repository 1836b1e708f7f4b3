/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Contexts skerry:dirty:SNAP: which snapshots a volume has, and what may differ since one of them.
 * The composer tells the mapper all it has noted before it hands the question on, so whatever was
 * answered before a BLOCK_STATUS came is in its answer. What is not known counts as changed.
 */
#include <errno.h>
#include <peer/map.h>
#include <stdlib.h>

#include "peers/front/nbd.h"

#define NBD_HEAD_BYTES (MAP_ANSWER_AT + (uint32_t)sizeof(struct map_head_info))
#define NBD_DIFF_BYTES (16 * XSEG_PAGE) /* an object's clusters, all apart, and as much again */
#define NBD_LIST_BYTES (4 * XSEG_PAGE)
#define NBD_CLEAN 0u
#define NBD_CHANGED 1u

/* --- which snapshots ------------------------------------------------------------- */

/* What it is, and nothing is acquired. */
struct call *nbd_dirty_head_call(struct nbd_conn *conn)
{
	const struct nbd_lookup *lookup = &conn->lookup;
	struct call *call = nbd_export_lookup_call(conn, XSEG_OP_CONTROL, NBD_HEAD_BYTES);
	struct map_ask ask = {0};
	if (!call)
		return NULL;
	call->arg0 = MAP_ACQUIRE;
	call->arg1 = MAP_READ_ONLY;
	if (lookup->ids)
		call->key.volume = lookup->ids[lookup->at];
	else if (conn->state == NBD_CONN_NEGOTIATING)
		snprintf(ask.name, sizeof(ask.name), "%016llx@%.*s",
			(unsigned long long)conn->handshake->meta_volume, SNAPSHOT_PART_MAX,
			conn->handshake->dirty.name[lookup->at]);
	call_put_bytes(call, 0, &ask, sizeof(ask));
	return call;
}

static void nbd_dirty_head(struct nbd_conn *conn, const struct call *call)
{
	struct map_head_info head;
	if (call->result || call->answer_length < NBD_HEAD_BYTES)
		return; /* gone meanwhile, or never there */
	call_get_bytes(call, MAP_ANSWER_AT, &head, sizeof(head));
	head.name[VOLUME_NAME_LENGTH_MAX] = 0;
	const char *at = strchr(head.name, '@');
	if (head.flags & XSEG_VOLUME_SNAPSHOT && head.parent == conn->handshake->meta_volume &&
		name_check_volume(head.name))
		nbd_handshake_snapshot(
			conn->handshake, at ? at + 1 : head.name, head.id, head.size);
}

static int nbd_dirty_keep(struct nbd_lookup *lookup, uint64_t id)
{
	if (lookup->id_count == lookup->id_room) {
		uint32_t room = lookup->id_room ? 2 * lookup->id_room : 64;
		uint64_t *ids = realloc(lookup->ids, room * sizeof(*ids));
		if (!ids)
			return -ENOMEM;
		lookup->ids = ids;
		lookup->id_room = room;
	}
	lookup->ids[lookup->id_count++] = id;
	return 0;
}

static int nbd_dirty_listed(struct nbd_conn *conn, const struct call *call)
{
	struct xseg_volume_info info;
	int error = call->result;
	uint32_t size = call->answer_length < NBD_LIST_BYTES ? call->answer_length : NBD_LIST_BYTES;
	for (uint32_t at = 0; !error && at + sizeof(info) <= size; at += sizeof(info)) {
		call_get_bytes(call, at, &info, sizeof(info));
		if (info.id && info.flags & XSEG_VOLUME_SNAPSHOT &&
			info.parent == conn->handshake->meta_volume)
			error = nbd_dirty_keep(&conn->lookup, info.id);
	}
	conn->lookup.cursor = call->value;
	return error;
}

static void nbd_dirty_end(struct nbd_conn *conn, int error)
{
	if (!nbd_export_lookup_over(conn))
		nbd_negotiate_snapshots(conn, error);
}

void nbd_dirty_answered(struct nbd_conn *conn, struct call *call)
{
	struct nbd_lookup *lookup = &conn->lookup;
	bool listing = lookup->what == NBD_LOOKUP_SNAPSHOTS,
	     alive = conn->state == NBD_CONN_NEGOTIATING;
	int error = 0;
	if (listing)
		error = nbd_dirty_listed(conn, call);
	else if (alive)
		nbd_dirty_head(conn, call);
	call_end(call);
	if (listing && !lookup->cursor)
		lookup->what = NBD_LOOKUP_HEADS;
	else if (!listing)
		lookup->at++;
	bool more = lookup->what == NBD_LOOKUP_SNAPSHOTS || lookup->at < lookup->id_count;
	if (alive && !error && more)
		nbd_export_lookup_step(conn);
	else
		nbd_dirty_end(conn, error);
}

void nbd_dirty_find(struct nbd_conn *conn)
{
	const struct nbd_option_dirty *dirty = &conn->handshake->dirty;
	conn->lookup.at = 0;
	conn->lookup.id_room = 0;
	conn->lookup.id_count = dirty->all ? 0 : dirty->count;
	nbd_export_lookup(conn, dirty->all ? NBD_LOOKUP_SNAPSHOTS : NBD_LOOKUP_HEADS);
}

/* --- what has changed ------------------------------------------------------------ */

static const struct nbd_dirty *nbd_dirty_of(const struct nbd_request *request)
{
	return &request->conn->session.dirty[request->status->context - NBD_CONTEXT_DIRTY];
}

struct call *nbd_dirty_call(const struct nbd_request *request)
{
	const struct nbd_session *session = &request->conn->session;
	struct map_ask ask = {.id = nbd_dirty_of(request)->snapshot, .size = request->end};
	struct call *call;
	if (call_begin(request->conn->nbd->peer, &call))
		return NULL;
	call->op = XSEG_OP_CONTROL;
	call->key.volume = session->volume;
	call->arg0 = MAP_DIFF;
	call->arg1 = request->next / session->object_size;
	call->context = (void *)request;
	if (call_pages(call, NBD_DIFF_BYTES)) {
		call_end(call);
		return NULL;
	}
	call_put_bytes(call, 0, &ask, sizeof(ask));
	return call;
}

/* What lies behind the snapshot's end is not in it. */
static bool nbd_dirty_clean_to(struct nbd_request *request, uint64_t to)
{
	uint64_t size = nbd_dirty_of(request)->size;
	return nbd_status_add_to(request, to < size ? to : size, NBD_CLEAN) &&
	       nbd_status_add_to(request, to, NBD_CHANGED);
}

/* Up to `limit` all that has changed is among them, in order. */
static bool nbd_dirty_stretches(
	struct nbd_request *request, const struct call *call, uint64_t limit)
{
	struct map_stretch stretch;
	uint64_t before = 0;
	uint32_t size = call->answer_length < NBD_DIFF_BYTES ? call->answer_length : NBD_DIFF_BYTES;
	for (uint32_t at = MAP_ANSWER_AT; at + sizeof(stretch) <= size; at += sizeof(stretch)) {
		call_get_bytes(call, at, &stretch, sizeof(stretch));
		uint64_t end = stretch.offset + stretch.length;
		if (stretch.offset < before || end < stretch.offset) {
			nbd_request_note(request, -EPROTO);
			return false;
		}
		before = end;
		if (!nbd_dirty_clean_to(request, stretch.offset < limit ? stretch.offset : limit) ||
			!nbd_status_add_to(request, end < limit ? end : limit, NBD_CHANGED))
			return false;
	}
	return nbd_dirty_clean_to(request, limit);
}

bool nbd_dirty_take(struct nbd_request *request, const struct call *call)
{
	uint64_t object_size = request->conn->session.object_size, limit = request->end;
	if (call->result == -ENOENT || call->result == -EOPNOTSUPP) {
		nbd_log(request->conn, "asks what has changed since a snapshot that is gone: all");
		return nbd_status_add_to(request, request->end, NBD_CHANGED);
	}
	if (!call->result && call->value < limit / object_size + 1)
		limit = call->value * object_size;
	if (call->result || limit <= request->next) {
		nbd_request_note(request, call->result ? call->result : -EPROTO);
		return false;
	}
	return nbd_dirty_stretches(request, call, limit);
}
