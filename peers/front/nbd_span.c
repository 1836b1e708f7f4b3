/* SPDX-License-Identifier: Apache-2.0 */
/*
 * TRIM, WRITE_ZEROES and CACHE: no data, up to 4 GiB. Cut at objects, a few calls at a time; the
 * next ones begin as others end.
 */
#include <errno.h>

#include "peers/front/nbd.h"

#define NBD_ZERO_WRITE_MAX (1u << 20) /* zeros that have to be written, at once */

/* The call that takes [next, next + length), ready to be sent; NULL: the pool is low. */
static struct call *nbd_span_call(struct nbd_request *request, uint32_t length)
{
	static const uint8_t ops[NBD_CMD_COUNT] = {
		[NBD_CMD_TRIM] = XSEG_OP_DISCARD,
		[NBD_CMD_CACHE] = XSEG_OP_PREFETCH,
		[NBD_CMD_WRITE_ZEROES] = XSEG_OP_ZERO,
	};
	struct call *call =
		nbd_data_call(request, ops[request->command.type], request->next, length, 0);
	if (call && call->op == XSEG_OP_ZERO) {
		call->flags |= request->command.flags & NBD_CMD_FLAG_NO_HOLE ? XSEG_F_NO_HOLE : 0;
		/* only the first may say no: later ones would leave half of it done */
		if (request->command.flags & NBD_CMD_FLAG_FAST_ZERO && !request->probed)
			call->flags |= XSEG_F_FAST_ONLY;
	}
	return call;
}

static struct call *nbd_span_zeros(struct nbd_request *request, uint32_t length)
{
	struct call *call = nbd_data_call(request, XSEG_OP_WRITE, request->next, length, length);
	if (call)
		front_zero(call, (uint32_t)(request->next - call->offset), length);
	return call;
}

/* The client will write zeros itself, or wants them now: both are fine when nobody below can. */
static bool nbd_span_ignores(const struct nbd_request *request, int error)
{
	return error == -EOPNOTSUPP &&
	       (request->command.type == NBD_CMD_TRIM || request->command.type == NBD_CMD_CACHE);
}

static void nbd_span_done(struct call *call)
{
	struct nbd_request *request = call->context;
	bool may_write = call->op == XSEG_OP_ZERO && !(call->flags & XSEG_F_FAST_ONLY);
	int error = call->result;
	call_end(call);
	request->pending--;
	if (error == -EOPNOTSUPP && may_write && !request->probed) {
		request->by_write = true;
		request->next = request->command.offset;
	} else if (!nbd_span_ignores(request, error)) {
		nbd_request_note(request, error);
	}
	request->probed = true;
	if (request->conn->state > NBD_CONN_DRAINING)
		nbd_request_note(request, -ECONNRESET);
	if (!request->error && request->next < request->end)
		nbd_span_go_on(request);
	else
		nbd_request_check(request);
}

/* How many calls may be out: one until it is known that the pipeline can do it. */
static unsigned nbd_span_window(const struct nbd_request *request)
{
	if (request->range == NBD_RANGE_ALONE ||
		(request->command.type == NBD_CMD_WRITE_ZEROES && !request->probed))
		return 1;
	return request->by_write ? 2 : NBD_WINDOW;
}

static int nbd_span_issue(struct nbd_request *request)
{
	uint32_t step = request->by_write ? NBD_ZERO_WRITE_MAX : XSEG_OBJECT_MAX;
	uint32_t length = front_cut(request->next, request->end, step);
	uint32_t at = (uint32_t)(request->next % XSEG_SECTOR);
	struct call *call = request->by_write ? nbd_span_zeros(request, length)
					      : nbd_span_call(request, length);
	if (!call)
		return -EAGAIN;
	request->pending++;
	request->next += length;
	if (request->by_write && nbd_is_odd(at, length))
		nbd_patch_begin(request, call, at, length, nbd_span_done);
	else
		call_submit(call, FRONT_EDGE_VOLUME, nbd_span_done);
	return 0;
}

static bool nbd_span_again(struct peer *peer, void *context)
{
	struct nbd_request *request = context;
	int error = 0;
	(void)peer;
	while (!error && request->next < request->end &&
		request->pending < nbd_span_window(request))
		error = nbd_span_issue(request);
	return !error || request->pending; /* else one that comes back goes on */
}

void nbd_span_go_on(struct nbd_request *request)
{
	struct peer *peer = request->conn->nbd->peer;
	if (!nbd_span_again(peer, request))
		peer_retry(peer, nbd_span_again, request);
}

static int nbd_span_begin(struct nbd_request *request)
{
	return nbd_span_issue(request) ? nbd_conn_starve(request->conn) : 0;
}

static int nbd_span_begin_gated(struct nbd_request *request, enum nbd_range_lock_mode hold)
{
	int error = nbd_range_lock(request, hold);
	if (error)
		return error;
	error = nbd_span_begin(request);
	if (error)
		nbd_range_unlock(request);
	return error;
}

/* A hint, so it may be rounded inwards to whole sectors. */
int nbd_span_trim(struct nbd_request *request)
{
	request->next = (request->next + XSEG_SECTOR - 1) / XSEG_SECTOR * XSEG_SECTOR;
	request->end = request->end / XSEG_SECTOR * XSEG_SECTOR;
	if (request->next >= request->end) {
		request->next = request->end;
		nbd_request_finish(request);
		return 0;
	}
	return nbd_span_begin_gated(request, NBD_RANGE_SHARED);
}

int nbd_span_zero(struct nbd_request *request)
{
	bool odd = nbd_is_odd(request->command.offset, request->command.length);
	if (odd && request->command.flags & NBD_CMD_FLAG_FAST_ZERO) {
		nbd_request_note(request, -EOPNOTSUPP);
		nbd_request_finish(request);
		return 0;
	}
	request->by_write = request->probed = odd;
	return nbd_span_begin_gated(request, odd ? NBD_RANGE_ALONE : NBD_RANGE_SHARED);
}

int nbd_span_cache(struct nbd_request *request) { return nbd_span_begin(request); }
