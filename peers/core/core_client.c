/* SPDX-License-Identifier: Apache-2.0 */
/* A client that waits: for programs that are no peers but have something to ask of one. */
#include <base/must.h>
#include <errno.h>
#include <peer/client.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xseg/request.h>

#define CLIENT_HINTS 64u
#define CLIENT_SLOTS_LEAVES 4u
#define CLIENT_NAP_NS 100000000u    /* at most between two looks at the clock */
#define CLIENT_FULL_NAP_NS 200000u  /* nobody rings when a slot or page becomes free */
#define CLIENT_LEAVE_NS 1000000000u /* how long close waits for what was given up */

/* --- the two queues: in flight, answered --------------------------------------------- */

static void client_wait_for(struct client *client, struct client_request *request)
{
	request->next = client->waiting;
	request->back = &client->waiting;
	if (request->next)
		request->next->back = &request->next;
	client->waiting = request;
	client->by_slot[request->slot] = request;
}

/* Out of flight; what happens to its slot is the caller's business. */
static void client_answered(struct client *client, struct client_request *request)
{
	*request->back = request->next;
	if (request->next)
		request->next->back = request->back;
	client->by_slot[request->slot] = NULL;
	request->answered = true;
	request->next = NULL;
	*client->last = request;
	client->last = &request->next;
}

static void client_uncollect(struct client *client, struct client_request *request)
{
	struct client_request **link = &client->first;
	while (*link != request)
		link = &(*link)->next;
	*link = request->next;
	if (!*link)
		client->last = link;
}

/* --- data ------------------------------------------------------------------------------ */

struct client_data {
	const struct xseg *seg;
	const struct xseg_extent *extents;
	const uint32_t *list;
	uint32_t count;
	uint64_t offset; /* within the runs */
};

static struct xseg_extent client_run(const struct client_data *data, uint32_t i)
{
	const uint32_t per_page = XSEG_PAGE / sizeof(struct xseg_extent);
	if (i < XSEG_EXTENTS)
		return data->extents[i];
	uint32_t list = (i - XSEG_EXTENTS) / per_page;
	if (list >= XSEG_LIST_PAGES || data->list[list] >= data->seg->page_count)
		return (struct xseg_extent){.page = XSEG_NONE};
	const struct xseg_extent *runs =
		(const void *)xseg_page_address(data->seg, data->list[list]);
	return runs[(i - XSEG_EXTENTS) % per_page];
}

/* Copies into the data (write) or out of it; -EBADMSG when it does not hold that much. */
static int client_copy(const struct client_data *data, uint8_t *memory, uint32_t size, bool write)
{
	uint64_t skip = data->offset;
	for (uint32_t i = 0; i < data->count && size; i++) {
		struct xseg_extent run = client_run(data, i);
		if (!xseg_extents_check(data->seg, &run, 1))
			return -EBADMSG;
		uint64_t bytes = (uint64_t)run.count << XSEG_PAGE_SHIFT;
		if (skip >= bytes) {
			skip -= bytes;
			continue;
		}
		uint32_t n = bytes - skip < size ? (uint32_t)(bytes - skip) : size;
		uint8_t *page = xseg_page_address(data->seg, run.page) + skip;
		if (write)
			memcpy(page, memory, n);
		else
			memcpy(memory, page, n);
		memory += n;
		size -= n;
		skip = 0;
	}
	return size ? -EBADMSG : 0;
}

static int client_send_data(struct client *client, const struct client_request *request)
{
	const struct xseg_request *r = xseg_at(client->lane, request->slot);
	const struct client_data data = {.seg = &client->seg,
		.extents = r->extents,
		.list = r->list,
		.count = r->extent_count,
		.offset = r->data_offset};
	return client_copy(&data, (uint8_t *)(uintptr_t)request->send, request->send_size, true);
}

/* READ data may lie in pinned pages of the server instead of ours. */
static int client_receive_data(struct client *client, struct client_request *request)
{
	const struct xseg_request *r = xseg_at(client->lane, request->slot);
	bool pinned = r->answer_count > 0 && request->op == XSEG_OP_READ;
	struct client_data data = {.seg = &client->seg,
		.extents = pinned ? r->answer : r->extents,
		.list = r->list,
		.count = pinned ? r->answer_count : r->extent_count,
		.offset = pinned ? request->offset % XSEG_PAGE : r->data_offset};
	if (pinned && data.count > XSEG_EXTENTS)
		return -EBADMSG;
	uint32_t size = request->answer_length < request->receive_size ? request->answer_length
								       : request->receive_size;
	/* beside its error a role may say more, see <peer/map.h> */
	if (request->result != 0)
		size = request->op == XSEG_OP_CONTROL ? request->receive_size : 0;
	return client_copy(&data, request->receive, size, false);
}

/* --- answers ---------------------------------------------------------------------------- */

static void client_take(struct client *client, uint32_t slot)
{
	if (xseg_receive(client->lane, slot))
		return;
	struct client_request *request = client->by_slot[slot];
	if (request) {
		const struct xseg_request *r = xseg_at(client->lane, slot);
		int result = r->result;
		request->result = result > 0 || result < -4095 ? -EIO : result;
		request->answer_length = r->length;
		request->value = r->value;
		int error = request->receive_size ? client_receive_data(client, request) : 0;
		request->result = request->result ? request->result : error;
		client_answered(client, request);
	}
	xseg_put(client->lane, slot);
}

static void client_give_up(struct client *client)
{
	struct client_request *next;
	for (struct client_request *request = client->waiting; request; request = next) {
		next = request->next;
		if (client->lane->now_ns < request->until_ns)
			continue;
		/* the slot stays its server's; should it answer one day, client_take() frees it */
		request->result = -ETIMEDOUT;
		client_answered(client, request);
	}
}

/* Takes what there is; waits for `nap_ns` at most when there is nothing. */
static void client_turn(struct client *client, uint64_t nap_ns)
{
	struct xseg_hint_message hints[CLIENT_HINTS];
	struct xseg_lane *lane = client->lane;
	lane->now_ns = clock_now_ns();
	uint32_t count = xseg_poll(lane, hints, CLIENT_HINTS);
	for (uint32_t i = 0; i < count; i++)
		if (hints[i].kind == XSEG_HINT_REPLY &&
			hints[i].request < client->seg.request_count)
			client_take(client, hints[i].request);
	xseg_turn_end(lane);
	if (count == 0 && nap_ns)
		xseg_wait(lane, nap_ns);
	client_give_up(client);
}

/* --- entry points ------------------------------------------------------------------------- */

int client_open(
	struct client *client, const char *segment, const char *peer, char why[XSEG_WHY_SIZE])
{
	memset(client, 0, sizeof(*client));
	client->last = &client->first;
	client->timeout_ns = CLIENT_TIMEOUT_NS;
	int error = xseg_segment_join(segment, &client->seg, why);
	if (error)
		return error;
	error = xseg_port_find(&client->seg, peer, &client->port);
	if (error) {
		snprintf(
			why, XSEG_WHY_SIZE, "there is no peer '%s' in segment '%s'", peer, segment);
		goto leave;
	}
	client->by_slot = calloc(client->seg.request_count, sizeof(*client->by_slot));
	error = client->by_slot ? xseg_lane_join(&client->seg, false, &client->lane) : -ENOMEM;
	if (!error)
		return 0;
	snprintf(why, XSEG_WHY_SIZE, "cannot join segment '%s': %s", segment,
		error == -ENOSPC ? "all its lanes are in use" : strerror(-error));
	free(client->by_slot);
leave:
	xseg_segment_leave(&client->seg);
	return error;
}

void client_close(struct client *client)
{
	uint64_t until_ns = clock_now_ns() + CLIENT_LEAVE_NS;
	while (client->waiting && clock_now_ns() < until_ns)
		client_turn(client, CLIENT_NAP_NS);
	xseg_lane_leave(client->lane);
	free(client->by_slot);
	xseg_segment_leave(&client->seg);
	memset(client, 0, sizeof(*client));
}

/* As a front does: what serves us must be able to ask on. */
static bool client_slots_low(const struct client *client)
{
	const struct xseg *seg = &client->seg;
	uint32_t count = xseg_request_free_count(seg) + client->lane->slots.count;
	return count <= seg->request_count / CLIENT_SLOTS_LEAVES;
}

/* Slot and pages, or -EAGAIN with neither. */
static int client_prepare(struct client *client, struct client_request *request)
{
	bool data = request->op == XSEG_OP_READ || request->op == XSEG_OP_WRITE;
	uint32_t offset = data ? (uint32_t)(request->offset % XSEG_PAGE) : 0;
	uint32_t size = request->send_size > request->receive_size ? request->send_size
								   : request->receive_size;
	if (data && size < request->length)
		size = request->length;
	if (client_slots_low(client))
		return -EAGAIN;
	int error = xseg_get(client->lane, &request->slot);
	if (error || size == 0)
		return error;
	error = xseg_attach_pages(client->lane, request->slot, offset, size);
	if (error)
		xseg_put(client->lane, request->slot);
	return error;
}

static void client_fill(const struct client_request *request, struct xseg_frame *frame)
{
	unsigned flags = request->flags;
	/* our pages are copies: the server may answer with its own, and keep what we send */
	if (request->op == XSEG_OP_READ)
		flags |= XSEG_F_PIN;
	if (request->op == XSEG_OP_WRITE)
		flags |= XSEG_F_DONATE;
	frame->op = (uint8_t)request->op;
	frame->lane = XSEG_LANE_ANY;
	frame->flags = (uint16_t)flags;
	frame->key = request->key;
	frame->offset = request->offset;
	frame->length = request->length;
	frame->reserved = 0;
	frame->arg0 = request->arg0;
	frame->arg1 = request->arg1;
}

int client_start(struct client *client, struct client_request *request)
{
	int error;
	request->until_ns = clock_now_ns() + client->timeout_ns;
	while ((error = client_prepare(client, request)) == -EAGAIN) {
		client_turn(client, CLIENT_FULL_NAP_NS);
		if (client->lane->now_ns >= request->until_ns)
			return -ETIMEDOUT;
	}
	if (error)
		return error;
	request->answered = false;
	request->result = 0;
	client_fill(request, &xseg_at(client->lane, request->slot)->frame[0]);
	if (request->send_size)
		error = client_send_data(client, request);
	if (!error)
		error = xseg_submit(client->lane, request->slot, client->port);
	if (error) {
		xseg_put(client->lane, request->slot);
		return error;
	}
	client_wait_for(client, request);
	xseg_turn_end(client->lane);
	return 0;
}

int client_collect(struct client *client, struct client_request **request)
{
	while (!client->first) {
		if (!client->waiting)
			return -ENOENT;
		client_turn(client, CLIENT_NAP_NS);
	}
	*request = client->first;
	client_uncollect(client, *request);
	return 0;
}

int client_do(struct client *client, struct client_request *request)
{
	int error = client_start(client, request);
	if (error)
		return error;
	while (!request->answered)
		client_turn(client, CLIENT_NAP_NS);
	client_uncollect(client, request);
	return request->result;
}

/* --- control ----------------------------------------------------------------------------- */

int client_control(struct client *client, struct client_control *control)
{
	uint32_t size = control->answer_at + control->out_size;
	uint8_t *buffer = calloc(1, size + 1);
	if (!buffer)
		return -ENOMEM;
	must(control->in_size <= control->answer_at);
	if (control->in)
		memcpy(buffer, control->in, control->in_size);
	struct client_request request = {.op = XSEG_OP_CONTROL,
		.key.volume = control->volume,
		.arg0 = control->what,
		.arg1 = control->number,
		.length = size,
		.send = buffer,
		.send_size = control->answer_at,
		.receive = buffer,
		.receive_size = size};
	int rc = client_do(client, &request);
	rc = rc ? rc : request.result;
	uint32_t end = request.answer_length < size ? request.answer_length : size;
	control->value = request.value;
	control->got = end > control->answer_at ? end - control->answer_at : 0;
	if (control->out_size)
		memcpy(control->out, buffer + control->answer_at, control->out_size);
	free(buffer);
	return rc;
}

int client_control_once(
	const char *segment, const char *peer, uint64_t timeout_ns, struct client_control *control)
{
	struct client client;
	char why[XSEG_WHY_SIZE];
	int rc = client_open(&client, segment, peer, why);
	if (rc)
		return rc;
	client.timeout_ns = timeout_ns;
	rc = client_control(&client, control);
	client_close(&client);
	return rc;
}
