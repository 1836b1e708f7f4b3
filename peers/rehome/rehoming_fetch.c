/* SPDX-License-Identifier: Apache-2.0 */
/* A volume that has come is fetched into the cache here, and its program told of what is there. */
#include <errno.h>
#include <stdlib.h>

#include "peers/rehome/rehoming_priv.h"

#define FETCH_OBJECTS 4u /* of XSEG_OBJECT_MAX, at a time */
#define FETCH_HINT (1u << 20)
#define FETCH_DEPTH 16u /* hints on their way */
#define FETCH_LIST 256u

static const unsigned local = XSEG_STATUS_CACHED | XSEG_STATUS_HOLE | XSEG_STATUS_ZERO;

/* Of the stretches of [from, to): calls `each` for those that are local, or for the others. */
static int look(struct rehoming *rehoming, uint64_t from, uint64_t to, bool wants_local,
	int (*each)(struct rehoming *rehoming, uint64_t offset, uint64_t length))
{
	struct xseg_status_extent list[FETCH_LIST];
	int error = 0;
	while (!error && from < to) {
		uint64_t left = to - from;
		struct client_request request = {.op = XSEG_OP_STATUS,
			.flags = XSEG_F_FAST_ONLY,
			.key.volume = rehoming->volume.id,
			.offset = from,
			.length = left < XSEG_OBJECT_MAX ? (uint32_t)left : XSEG_OBJECT_MAX,
			.receive = list,
			.receive_size = sizeof(list)};
		error = client_do(&rehoming->client, &request);
		uint32_t count = request.answer_length / (uint32_t)sizeof(*list);
		if (!error && (count == 0 || count > FETCH_LIST || list[0].length == 0))
			return -EPROTO;
		for (uint32_t i = 0; !error && i < count && from < to; i++) {
			uint64_t length = list[i].length < to - from ? list[i].length : to - from;
			if (((list[i].flags & local) != 0) == wants_local)
				error = each(rehoming, from, length);
			from += length;
		}
	}
	return error;
}

/* The first error, if any, is kept. */
static void collect(struct rehoming *rehoming, unsigned leave)
{
	struct client_request *request;
	while (rehoming->hints > leave && !client_collect(&rehoming->client, &request)) {
		if (!rehoming->hint_error)
			rehoming->hint_error = request->result;
		free(request);
		rehoming->hints--;
	}
}

static int hint(struct rehoming *rehoming, uint64_t offset, uint64_t length)
{
	int error = 0;
	for (uint64_t size; !error && length > 0; offset += size, length -= size) {
		size = length < FETCH_HINT ? length : FETCH_HINT;
		struct client_request *request = calloc(1, sizeof(*request));
		if (!request)
			return -ENOMEM;
		request->op = XSEG_OP_PREFETCH;
		request->key.volume = rehoming->volume.id;
		request->offset = offset;
		request->length = (uint32_t)size;
		error = client_start(&rehoming->client, request);
		if (error)
			free(request);
		else
			rehoming->hints++;
		collect(rehoming, FETCH_DEPTH - 1);
	}
	return error ? error : rehoming->hint_error;
}

static int tell(struct rehoming *rehoming, uint64_t offset, uint64_t length)
{
	rehoming->ask.chunk_is_local(rehoming->ask.context, offset, length);
	return 0;
}

/* What was begun is waited for in any case. */
static int fetch(struct rehoming *rehoming, uint64_t to)
{
	rehoming->hint_error = 0;
	int error = look(rehoming, rehoming->fetched, to, false, hint);
	collect(rehoming, 0);
	error = error ? error : rehoming->hint_error;
	return error ? error : look(rehoming, rehoming->fetched, to, true, tell);
}

int rehoming_fetch(struct rehoming *rehoming)
{
	char why[XSEG_WHY_SIZE];
	uint64_t size = rehoming->volume.size, left = size - rehoming->fetched;
	uint64_t some = (uint64_t)FETCH_OBJECTS * XSEG_OBJECT_MAX;
	uint64_t to = left < some ? size : rehoming->fetched + some;
	int error = rehoming->asks ? 0
				   : client_open(&rehoming->client, rehoming->segment,
					     rehoming->rehomer, why);
	if (error)
		return error;
	rehoming->asks = true;
	rehoming->client.timeout_ns = rehoming->ask.timeout_ns;
	error = left ? fetch(rehoming, to) : 0;
	if (error) /* without a cache nothing can be fetched */
		return error == -EOPNOTSUPP ? 0 : error;
	rehoming->fetched = to;
	return to < size ? REHOMING_GOES : 0;
}

void rehoming_fetch_end(struct rehoming *rehoming)
{
	if (rehoming->asks)
		client_close(&rehoming->client);
	rehoming->asks = false;
}
