/* SPDX-License-Identifier: Apache-2.0 */
/* The life of one NBD request: taken off the receive buffer, begun, finished, released. */
#include <errno.h>
#include <stdlib.h>

#include "peers/front/nbd.h"

#define NBD_CHUNK_REQUESTS 64u
#define NBD_BLOCKED_BYTES (1u << 20)

struct nbd_chunk_of_requests {
	struct nbd_chunk_of_requests *next;
	struct nbd_request request[NBD_CHUNK_REQUESTS];
};

static int nbd_requests_grow(struct nbd *nbd)
{
	struct nbd_chunk_of_requests *chunk = calloc(1, sizeof(*chunk));
	if (!chunk)
		return -ENOMEM;
	chunk->next = nbd->chunks;
	nbd->chunks = chunk;
	for (unsigned i = 0; i < NBD_CHUNK_REQUESTS; i++)
		TAILQ_INSERT_TAIL(&nbd->free_requests, &chunk->request[i], link);
	return 0;
}

void nbd_request_free_all(struct nbd *nbd)
{
	while (nbd->chunks) {
		struct nbd_chunk_of_requests *chunk = nbd->chunks;
		nbd->chunks = chunk->next;
		free(chunk);
	}
}

static struct nbd_request *nbd_request_new(struct nbd_conn *conn, const struct nbd_command *command)
{
	struct nbd *nbd = conn->nbd;
	struct nbd_request *request = TAILQ_FIRST(&nbd->free_requests);
	if (!request && nbd_requests_grow(nbd))
		return NULL;
	request = TAILQ_FIRST(&nbd->free_requests);
	TAILQ_REMOVE(&nbd->free_requests, request, link);
	request->conn = conn;
	request->command = *command;
	request->next = command->offset;
	request->end = command->offset + command->length;
	request->pending = request->bytes = 0;
	request->error = 0;
	request->refused = NBD_OK;
	request->filling = NULL;
	request->filled = request->fill_size = 0;
	request->range = NBD_RANGE_NONE;
	request->range_count = 0;
	request->shares = false;
	request->queued = request->dropped = request->probed = request->by_write = false;
	request->status = NULL;
	request->patch.write = NULL;
	TAILQ_INIT(&request->parts);
	return request;
}

static void nbd_request_free(struct nbd_request *request)
{
	TAILQ_INSERT_HEAD(&request->conn->nbd->free_requests, request, link);
}

/* --- beginning ------------------------------------------------------------------- */

static int (*const nbd_begin[NBD_CMD_COUNT])(struct nbd_request *request) = {
	[NBD_CMD_READ] = nbd_data_read,
	[NBD_CMD_WRITE] = nbd_data_write,
	[NBD_CMD_FLUSH] = nbd_data_flush,
	[NBD_CMD_TRIM] = nbd_span_trim,
	[NBD_CMD_CACHE] = nbd_span_cache,
	[NBD_CMD_WRITE_ZEROES] = nbd_span_zero,
	[NBD_CMD_BLOCK_STATUS] = nbd_status_begin,
};

static bool nbd_request_fits(const struct nbd_conn *conn, uint32_t bytes)
{
	const struct nbd_options *options = conn->nbd->options;
	if (conn->blocked && conn->bytes >= NBD_BLOCKED_BYTES)
		return false; /* it shall read what it has asked for */
	return conn->inflight < options->requests &&
	       (!conn->inflight || conn->bytes + bytes <= options->bytes);
}

/* Answered without asking anybody; a payload is thrown away first. */
static void nbd_request_refuse(struct nbd_request *request, enum nbd_error error)
{
	struct nbd_conn *conn = request->conn;
	request->refused = error;
	request->next = request->end;
	request->fill_size = nbd_command_payload(&request->command);
	if (error)
		peer_count(conn->nbd->peer, NBD_COUNT_REFUSED, 1);
	if (request->fill_size)
		conn->filling = request;
	else
		nbd_request_finish(request);
}

static void nbd_request_count(struct nbd_conn *conn, unsigned type)
{
	conn->requests++;
	peer_count(conn->nbd->peer,
		type < NBD_CMD_COUNT ? NBD_COUNT_COMMANDS + type : NBD_COUNT_UNKNOWN, 1);
}

static int nbd_request_start(struct nbd_conn *conn, const struct nbd_command *command)
{
	enum nbd_error refused = nbd_command_check(&conn->session, command);
	bool moves_data = command->type == NBD_CMD_READ || command->type == NBD_CMD_WRITE;
	uint32_t bytes = !refused && moves_data ? command->length : 0;
	if (unlikely(!nbd_request_fits(conn, bytes))) {
		peer_count(conn->nbd->peer, NBD_COUNT_WAITS_ROOM, 1);
		nbd_conn_wait(conn, NBD_WAIT_ROOM);
		return -EAGAIN;
	}
	if (unlikely(!nbd_share_fits(conn, bytes)))
		return -EAGAIN;
	struct nbd_request *request = nbd_request_new(conn, command);
	if (!request)
		return nbd_conn_starve(conn);
	request->bytes = bytes;
	conn->inflight++;
	conn->bytes += bytes;
	nbd_share_take(request);
	int error = 0;
	if (unlikely(refused || (!command->length && command->type != NBD_CMD_FLUSH)))
		nbd_request_refuse(request, refused);
	else
		error = nbd_begin[command->type](request);
	if (!error)
		return 0;
	conn->inflight--;
	conn->bytes -= bytes;
	nbd_share_give(request);
	nbd_request_free(request);
	return error;
}

int nbd_request_take(struct nbd_conn *conn, const uint8_t *wire)
{
	struct nbd_command command;
	int error = nbd_command_parse(wire, &command);
	if (error)
		return error;
	if (command.type == NBD_CMD_DISC)
		nbd_conn_drain(conn);
	else
		error = nbd_request_start(conn, &command);
	if (!error)
		nbd_request_count(conn, command.type);
	return error;
}

/* --- the end --------------------------------------------------------------------- */

static enum nbd_error nbd_request_verdict(const struct nbd_request *request)
{
	if (request->refused)
		return request->refused;
	enum nbd_error error = nbd_command_error(request->error);
	bool may_be_slow = request->command.flags & NBD_CMD_FLAG_FAST_ZERO;
	return error == NBD_ENOTSUP && !may_be_slow ? NBD_EINVAL : error;
}

static uint32_t nbd_request_answer(struct nbd_request *request, enum nbd_error error)
{
	const struct nbd_command *command = &request->command;
	bool structured = request->conn->session.structured;
	if (error)
		return structured ? nbd_reply_error(request->header, command->cookie, error)
				  : nbd_reply_simple(request->header, command->cookie, error);
	if (command->type == NBD_CMD_BLOCK_STATUS)
		return 0; /* its headers are in request->status */
	if (command->type != NBD_CMD_READ || !structured)
		return nbd_reply_simple(request->header, command->cookie, NBD_OK);
	if (!command->length)
		return nbd_reply_none(request->header, command->cookie);
	return nbd_reply_data(request->header, command->cookie, command->offset, command->length);
}

static void nbd_request_end_parts(struct nbd_request *request)
{
	struct call *call;
	while ((call = TAILQ_FIRST(&request->parts))) {
		TAILQ_REMOVE(&request->parts, call, link);
		call_end(call);
	}
}

void nbd_request_finish(struct nbd_request *request)
{
	struct nbd_conn *conn = request->conn;
	must(!request->pending && conn->filling != request);
	while (request->range != NBD_RANGE_NONE)
		nbd_range_unlock(request);
	nbd_share_give(request);
	if (conn->state > NBD_CONN_DRAINING) {
		nbd_request_release(request);
		return;
	}
	enum nbd_error error = nbd_request_verdict(request);
	if (unlikely(error))
		nbd_request_end_parts(request);
	request->refused = error;
	request->header_size = (uint8_t)nbd_request_answer(request, error);
	request->queued = true;
	TAILQ_INSERT_TAIL(&conn->queue, request, link);
	nbd_conn_mark(conn);
}

void nbd_request_check(struct nbd_request *request)
{
	if (!request->pending && request->conn->filling != request &&
		(request->next == request->end || request->error))
		nbd_request_finish(request);
}

void nbd_request_release(struct nbd_request *request)
{
	struct nbd_conn *conn = request->conn;
	nbd_request_end_parts(request);
	if (request->status)
		nbd_status_put(conn->nbd, request->status);
	conn->inflight--;
	conn->bytes -= request->bytes;
	nbd_request_free(request);
	if (conn->waits & NBD_WAIT_ROOM)
		nbd_conn_wake(conn, NBD_WAIT_ROOM);
	if (conn->state > NBD_CONN_DRAINING)
		conn->nbd->again = true;
}
