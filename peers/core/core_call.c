/* SPDX-License-Identifier: Apache-2.0 */
/* Calls: requests of a peer's own, from an empty slot to the end of the answer. */
#include <errno.h>
#include <peer/keep.h>
#include <string.h>

#include "peers/core/core.h"

static uint64_t call_cookie(const struct call *call)
{
	return (uint64_t)call->generation << 32 | call->index;
}

static struct data_view call_view(const struct call *call)
{
	return (struct data_view){.seg = call->peer->lane->x->seg,
		.extents = call->extents,
		.extent_count = call->extent_count,
		.data_offset = call->data_offset,
		.data_size = call->data_size};
}

/* A list for more runs than fit into the call; stays until it ends. */
static struct xseg_extent *call_list(struct call *call)
{
	struct lane *lane = call->peer->lane;
	uint32_t index;
	struct extent_list *list = slab_get(&lane->lists, &index);
	must(list);
	list->index = index;
	call->extents = list->extents;
	return list->extents;
}

static void call_list_free(struct call *call)
{
	struct slab *lists = &call->peer->lane->lists;
	if (call->extents == call->inline_extents)
		return;
	slab_put(lists,
		(uint32_t)(((const uint8_t *)call->extents - lists->base) / lists->item_size));
	call->extents = call->inline_extents;
}

/* --- before submit ----------------------------------------------------------- */

/* Field by field: a memset of this odd size becomes a string instruction, 20 ns of it. */
static void call_reset(struct call *call)
{
	call->op = XSEG_OP_NONE;
	call->flags = 0;
	call->key = (struct xseg_key){0};
	call->offset = 0;
	call->length = 0;
	call->shard = XSEG_LANE_ANY;
	call->arg0 = call->arg1 = 0;
	call->context = call->context2 = NULL;
	call->result = 0;
	call->answer_length = 0;
	call->value = 0;
	call->job = NULL;
	call->borrowed = false;
	call->submitted_ns = 0;
	call->data_offset = call->data_size = call->extent_count = 0;
	call->extents = call->inline_extents;
	call->live = true;
	call->submitted = false;
}

int call_begin_reserved(struct peer *peer, struct call **out)
{
	struct shard *shard = shard_of(peer);
	struct lane *lane = peer->lane;
	uint32_t slot, index;
	int error = xseg_get(lane->x, &slot);
	if (unlikely(error))
		return error;
	struct call *call = slab_get(&lane->calls, &index);
	must(call); /* there are as many as requests */
	call_reset(call);
	call->generation++;
	call->peer = peer;
	call->slot = slot;
	call->index = index;
	shard->calls++;
	*out = call;
	return 0;
}

int call_begin(struct peer *peer, struct call **out)
{
	if (unlikely(!retry_slot_allowed(shard_of(peer))))
		return -EAGAIN;
	return call_begin_reserved(peer, out);
}

/* What was attached to the slot, as our own copy. */
static void call_adopt(struct call *call, const struct xseg_request *request)
{
	const struct xseg *seg = call->peer->lane->x->seg;
	uint32_t count = request->extent_count, done = count;
	struct xseg_extent *to = call->inline_extents;
	if (unlikely(count > XSEG_EXTENTS)) {
		must(count <= EXTENTS_MAX);
		to = call_list(call);
		done = XSEG_EXTENTS;
	}
	to[0] = request->extents[0];
	for (uint32_t i = 1; unlikely(done > 1) && i < done; i++) /* one, as a rule */
		to[i] = request->extents[i];
	for (unsigned i = 0; done < count; i++) {
		uint32_t n = count - done < LIST_PAGE_EXTENTS ? count - done : LIST_PAGE_EXTENTS;
		memcpy(to + done, xseg_page_address(seg, request->list[i]), n * sizeof(*to));
		done += n;
	}
	call->extent_count = count;
}

int call_pages(struct call *call, uint32_t bytes)
{
	struct lane *lane = call->peer->lane;
	must(call->live && !call->submitted && call->extent_count == 0);
	if (bytes == 0)
		return 0;
	bool data = call->op == XSEG_OP_READ || call->op == XSEG_OP_WRITE;
	uint32_t offset = data ? (uint32_t)(call->offset % XSEG_PAGE) : 0;
	if (unlikely(bytes > XSEG_OBJECT_MAX))
		return -E2BIG;
	uint32_t pages = (offset + bytes + XSEG_PAGE - 1) >> XSEG_PAGE_SHIFT;
	if (unlikely(!retry_pages_allowed(shard_of(call->peer), pages)))
		return -EAGAIN;
	int error = xseg_attach_pages(lane->x, call->slot, offset, bytes);
	if (unlikely(error))
		return error;
	call_adopt(call, xseg_at(lane->x, call->slot));
	call->data_offset = offset;
	call->data_size = bytes;
	return 0;
}

/* Whose data it is not: a job's, or pages that the shard has anyway. */
static void call_set_borrowed(struct call *call, uint32_t count)
{
	struct xseg_request *request = xseg_at(call->peer->lane->x, call->slot);
	uint32_t inside = count > XSEG_EXTENTS ? XSEG_EXTENTS : count;
	call->extent_count = count;
	call->borrowed = true;
	for (uint32_t i = 0; i < inside; i++)
		request->extents[i] = call->extents[i];
	request->flags |= XSEG_R_BORROWED;
	request->data_offset = (uint16_t)call->data_offset;
	request->extent_count = (uint16_t)count;
}

/* The borrowed runs that the slot has no room for; the list pages are ours and go at the end. */
static int call_borrow_list(struct call *call, struct xseg_request *request)
{
	struct xseg_lane *x = call->peer->lane->x;
	uint32_t done = XSEG_EXTENTS, got;
	for (unsigned i = 0; done < call->extent_count; i++) {
		struct xseg_extent page;
		uint32_t left = call->extent_count - done;
		int error = xseg_page_alloc(&x->pages, 1, &page, 1, &got);
		if (error)
			return error; /* call_end() frees what there is */
		request->list[i] = page.page;
		left = left < LIST_PAGE_EXTENTS ? left : LIST_PAGE_EXTENTS;
		memcpy(xseg_page_address(x->seg, page.page), call->extents + done,
			left * sizeof(struct xseg_extent));
		done += left;
	}
	return 0;
}

static int call_borrow_view(
	struct call *call, const struct data_view *view, uint32_t at, uint32_t length)
{
	struct lane *lane = call->peer->lane;
	must(call->live && !call->submitted && call->extent_count == 0 && length);
	int count = data_slice(view, at, length, call->inline_extents, XSEG_EXTENTS);
	if (unlikely(count == -E2BIG))
		count = data_slice(view, at, length, call_list(call), EXTENTS_MAX);
	must(count > 0);
	call->data_offset = (view->data_offset + at) % XSEG_PAGE;
	call->data_size = length;
	call_set_borrowed(call, (uint32_t)count);
	return call_borrow_list(call, xseg_at(lane->x, call->slot));
}

int call_borrow(struct call *call, const struct job *job, uint32_t at, uint32_t length)
{
	struct data_view view = {.seg = call->peer->lane->x->seg,
		.extents = job->extents,
		.extent_count = job->extent_count,
		.data_offset = job->data_offset,
		.data_size = job->data_size};
	must(job->live);
	return call_borrow_view(call, &view, at, length);
}

int call_borrow_call(struct call *call, const struct call *from, uint32_t at, uint32_t length)
{
	struct data_view view = call_view(from);
	must(from->live && !from->submitted);
	return call_borrow_view(call, &view, at, length);
}

int call_lend(struct call *call, const uint32_t *pages, uint32_t count)
{
	const struct xseg *seg = call->peer->lane->x->seg;
	struct xseg_extent *runs = call->inline_extents;
	uint32_t used = 0;
	must(call->live && !call->submitted && call->extent_count == 0 && count > 0);
	for (uint32_t i = 0; i < count; i++) {
		must(pages[i] < seg->page_count);
		if (used && runs[used - 1].page + runs[used - 1].count == pages[i]) {
			runs[used - 1].count++;
			continue;
		}
		if (used == XSEG_EXTENTS && runs == call->inline_extents) {
			runs = call_list(call);
			memcpy(runs, call->inline_extents, sizeof(call->inline_extents));
		}
		must(used < EXTENTS_MAX);
		runs[used++] = (struct xseg_extent){.page = pages[i], .count = 1};
	}
	call->data_offset = (uint32_t)(call->offset % XSEG_PAGE);
	call->data_size = count * XSEG_PAGE - call->data_offset;
	must(call->length <= call->data_size);
	call_set_borrowed(call, used);
	return call_borrow_list(call, xseg_at(call->peer->lane->x, call->slot));
}

int call_iov(const struct call *call, uint32_t at, uint32_t length, struct iovec *iov, int max)
{
	struct data_view view = call_view(call);
	return data_iov(&view, at, length, iov, max);
}

void call_put_bytes(struct call *call, uint32_t at, const void *from, uint32_t length)
{
	struct data_view view = call_view(call);
	data_put(&view, at, from, length);
}

void call_get_bytes(const struct call *call, uint32_t at, void *to, uint32_t length)
{
	struct data_view view = call_view(call);
	data_get(&view, at, to, length);
}

/* --- submit -------------------------------------------------------------------- */

static void call_fail_later(struct lane *lane, struct call *call, int error)
{
	call->result = error;
	call->next = NULL;
	*lane->failed_tail = call;
	lane->failed_tail = &call->next;
}

static void call_send(struct call *call, uint32_t port)
{
	struct lane *lane = call->peer->lane;
	struct xseg_request *request = xseg_at(lane->x, call->slot);
	must(call->live && !call->submitted && call->op < XSEG_OP_COUNT);
	unsigned flags = call->flags;
	/* the answer belongs into the borrowed pages, and those stay with whom they are from: were
	   we killed, the whole would be served once more, out of pages that had changed hands */
	if (call->borrowed)
		flags &= ~(unsigned)(XSEG_F_PIN | XSEG_F_DONATE);
	struct xseg_frame *frame = &request->frame[0];
	frame->op = (uint8_t)call->op;
	frame->lane = (uint8_t)call->shard;
	frame->flags = (uint16_t)flags;
	frame->key = call->key;
	frame->offset = call->offset;
	frame->length = call->length;
	frame->reserved = 0;
	frame->arg0 = call->arg0;
	frame->arg1 = call->arg1;
	request->cookie = call_cookie(call);
	call->submitted = true;
	call->submitted_ns = lane_now(lane);
	int error = port == XSEG_NONE ? -ENXIO : xseg_submit(lane->x, call->slot, port);
	if (unlikely(error))
		call_fail_later(lane, call, error);
}

static uint32_t call_edge_port(const struct peer *peer, unsigned edge)
{
	must(edge < PEER_EDGES_MAX);
	uint32_t index = peer->edge[edge];
	return index == XSEG_NONE ? XSEG_NONE : xseg_edge_port(peer->lane->x->seg, index);
}

void call_submit(struct call *call, unsigned edge, call_done_f *done)
{
	call->done = done;
	call_send(call, call_edge_port(call->peer, edge));
}

void call_submit_part(struct call *call, struct job *job, unsigned edge, call_done_f *look)
{
	call_submit_port(call, call_edge_port(call->peer, edge), job, look);
}

void call_submit_port(struct call *call, uint32_t port, struct job *job, call_done_f *look)
{
	job_fan_hold(job);
	call->job = job;
	call->done = look;
	call_send(call, port);
}

/* --- the answer -------------------------------------------------------------------- */

/* READ data lies in pinned pages of the server: they take the place of our own. */
static int call_adopt_answer(struct call *call, const struct xseg_request *request, uint32_t count)
{
	const struct xseg *seg = call->peer->lane->x->seg;
	uint32_t size;
	if (call->op != XSEG_OP_READ || !(call->flags & XSEG_F_PIN) || call->borrowed ||
		count > XSEG_EXTENTS)
		return -EBADMSG;
	call_list_free(call);
	for (uint32_t i = 0; i < count; i++)
		call->inline_extents[i] = request->answer[i];
	call->extent_count = count;
	if (!data_measure(seg, call->inline_extents, count, call->data_offset, &size) ||
		size < call->answer_length) {
		call->extent_count = 0;
		call->data_size = 0;
		return -EBADMSG;
	}
	call->data_size = size;
	return 0;
}

static void call_read_answer(struct call *call, const struct xseg_request *request)
{
	int result = request->result;
	uint32_t length = request->length, answers = request->answer_count;
	call->value = request->value;
	call->result = result > 0 || result < -4095 ? -EIO : result;
	uint32_t most = call->data_size > call->length ? call->data_size : call->length;
	call->answer_length = length < most ? length : most;
	if (unlikely(answers) && call->result == 0)
		call->result = call_adopt_answer(call, request, answers);
}

static void call_done(struct call *call)
{
	struct shard *shard = shard_of(call->peer);
	must(call->live && call->submitted);
	call->submitted = false;
	xseg_count(shard->peer.stats, CORE_CALLS, 1);
	if (shard->front) {
		uint64_t now = lane_now(shard->peer.lane), ns = now - call->submitted_ns;
		shard_account(shard, call->op, call->answer_length, call->result, ns);
		volume_account(shard, call, now, ns);
	}
	if (!call->job) {
		call->done(call);
		return;
	}
	struct job *job = call->job;
	if (call->done)
		call->done(call);
	int error = call->result;
	call_end(call);
	job_fan_release(job, error);
}

/* The cookie is not as we wrote it: look for whose slot it is. */
static struct call *call_search(struct lane *lane, uint32_t slot)
{
	for (uint32_t i = 0; i < lane->calls.touched; i++) {
		struct call *call = slab_at(&lane->calls, i);
		if (call->live && call->submitted && call->slot == slot)
			return call;
	}
	return NULL;
}

static struct call *call_find(struct lane *lane, uint32_t slot, uint64_t cookie)
{
	uint32_t index = (uint32_t)cookie;
	if (likely(index < lane->calls.touched)) {
		struct call *call = slab_at(&lane->calls, index);
		if (likely(call->live && call->submitted && call->slot == slot &&
			    call_cookie(call) == cookie))
			return call;
	}
	lane->stray++;
	return call_search(lane, slot);
}

void call_arrive(struct lane *lane, uint32_t slot)
{
	if (unlikely(xseg_receive(lane->x, slot))) {
		lane->stray++;
		return;
	}
	const struct xseg_request *request = xseg_at(lane->x, slot);
	struct call *call = call_find(lane, slot, request->cookie);
	if (unlikely(!call)) {
		xseg_put(lane->x, slot);
		return;
	}
	call_read_answer(call, request);
	call_done(call);
}

bool call_fail_pending(struct lane *lane)
{
	struct call *call = lane->failed;
	if (likely(!call))
		return false;
	lane->failed = NULL;
	lane->failed_tail = &lane->failed;
	while (call) {
		struct call *next = call->next;
		call_done(call);
		call = next;
	}
	return true;
}

/* The pages are somebody else's; only the list of them is ours. */
static void call_return_borrowed(struct call *call)
{
	struct xseg_lane *x = call->peer->lane->x;
	struct xseg_request *request = xseg_at(x, call->slot);
	for (unsigned i = 0; i < XSEG_LIST_PAGES; i++) {
		struct xseg_extent page = {.page = request->list[i], .count = 1};
		if (page.page == XSEG_NONE)
			continue;
		request->list[i] = XSEG_NONE;
		if (xseg_extents_check(x->seg, &page, 1))
			xseg_page_free(&x->pages, &page, 1);
	}
}

void call_end(struct call *call)
{
	struct lane *lane = call->peer->lane;
	must(call->live && !call->submitted);
	if (call->borrowed)
		call_return_borrowed(call);
	call_list_free(call);
	call->live = false;
	shard_of(call->peer)->calls--;
	xseg_put(lane->x, call->slot);
	slab_put(&lane->calls, call->index);
}
