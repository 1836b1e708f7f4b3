/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A write that begins or ends inside a sector: reads the sectors at its edges into its own pages
 * around what is new, then goes down as whole sectors. The range lock keeps everybody else away.
 */
#include "peers/front/nbd.h"

enum { NBD_PATCH_HEAD = 1 << 0, NBD_PATCH_TAIL = 1 << 1 };

/* What of the write's data an edge brings: [*from, *to). */
static void nbd_patch_edge(
	const struct nbd_patch *patch, unsigned edge, uint32_t *from, uint32_t *to)
{
	*from = edge == NBD_PATCH_HEAD ? 0 : patch->at + patch->length;
	*to = edge == NBD_PATCH_HEAD ? patch->at : patch->write->length;
}

static void nbd_patch_finish(struct nbd_patch *patch)
{
	struct call *write = patch->write;
	patch->write = NULL;
	if (patch->error) {
		write->result = patch->error;
		patch->done(write);
	} else {
		call_submit(write, FRONT_EDGE_VOLUME, patch->done);
	}
}

static void nbd_patch_read_done(struct call *call)
{
	struct nbd_request *request = call->context;
	struct nbd_patch *patch = &request->patch;
	unsigned edge = (unsigned)(uintptr_t)call->context2;
	uint32_t from, to;
	if (call->result) {
		patch->error = call->result;
	} else {
		uint8_t sector[XSEG_SECTOR];
		nbd_patch_edge(patch, edge, &from, &to);
		call_get_bytes(call, 0, sector, XSEG_SECTOR);
		call_put_bytes(patch->write, from, sector + from % XSEG_SECTOR, to - from);
	}
	call_end(call);
	if (!--patch->pending && !patch->edges)
		nbd_patch_finish(patch);
}

/* False: the pool is low, to be asked again. */
static bool nbd_patch_issue(struct peer *peer, void *context)
{
	struct nbd_request *request = context;
	struct nbd_patch *patch = &request->patch;
	(void)peer;
	while (patch->edges) {
		unsigned edge = patch->edges & NBD_PATCH_HEAD ? NBD_PATCH_HEAD : NBD_PATCH_TAIL;
		uint32_t from, to;
		nbd_patch_edge(patch, edge, &from, &to);
		uint64_t sector = patch->write->offset + from / XSEG_SECTOR * XSEG_SECTOR;
		struct call *read =
			nbd_data_call(request, XSEG_OP_READ, sector, XSEG_SECTOR, XSEG_SECTOR);
		if (!read)
			return false;
		read->context2 = (void *)(uintptr_t)edge;
		patch->edges &= ~edge;
		patch->pending++;
		call_submit(read, FRONT_EDGE_VOLUME, nbd_patch_read_done);
	}
	return true;
}

void nbd_patch_begin(struct nbd_request *request, struct call *write, uint32_t at, uint32_t length,
	call_done_f *done)
{
	struct peer *peer = request->conn->nbd->peer;
	struct nbd_patch *patch = &request->patch;
	must(!patch->write && request->range == NBD_RANGE_ALONE);
	*patch = (struct nbd_patch){.write = write, .at = at, .length = length, .done = done};
	patch->edges =
		(at ? NBD_PATCH_HEAD : 0u) | (at + length < write->length ? NBD_PATCH_TAIL : 0u);
	must(patch->edges);
	peer_count(peer, NBD_COUNT_PATCHES, 1);
	if (!nbd_patch_issue(peer, request))
		peer_retry(peer, nbd_patch_issue, request);
}
