/* SPDX-License-Identifier: Apache-2.0 */
/* The five verbs, and the turn of the thread that speaks them. */
#include <base/crash.h>
#include <base/must.h>
#include <base/probe.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <xseg/lane.h>

#define LEAVE_NAP_NS 100000u
#define LEAVE_LIMIT_NS 1000000000u

#include "xseg/xseg_data.h"

static struct xseg_ring *ring_between(const struct xseg *seg, uint32_t from, uint32_t to)
{
	return &seg->rings[(uint64_t)to * seg->lane_count + from];
}

/* --- private queues of hints -------------------------------------------------- */

static int queue_init(struct xseg_hint_queue *queue, uint32_t requests)
{
	uint32_t size = 64;
	/* a request may wait here once as SUBMIT and once as REPLY, and as both after a rescan */
	while (size < requests * 4)
		size *= 2;
	queue->item = malloc(size * sizeof(*queue->item));
	queue->mask = size - 1;
	queue->head = queue->tail = 0;
	return queue->item ? 0 : -ENOMEM;
}

/* Full only if stale hints were piled up by someone wild: then they are what is dropped. */
static void queue_put(struct xseg_hint_queue *queue, uint32_t slot, uint32_t kind)
{
	if (unlikely(queue->tail - queue->head > queue->mask))
		return;
	queue->item[queue->tail++ & queue->mask] =
		(struct xseg_hint_message){.request = slot, .kind = kind};
}

static bool queue_get(struct xseg_hint_queue *queue, struct xseg_hint_message *out)
{
	if (queue->head == queue->tail)
		return false;
	*out = queue->item[queue->head++ & queue->mask];
	return true;
}

/* --- joining ---------------------------------------------------------------- */

static void reattach_all(struct xseg_lane *lane)
{
	for (uint32_t i = 0; i < lane->seg->lane_count; i++) {
		xseg_ring_rx_attach(&lane->rx[i], ring_between(lane->seg, i, lane->index));
		lane->tx[i].ring = NULL; /* attached when first needed */
	}
}

int xseg_lane_join(struct xseg *seg, bool fd_bell, struct xseg_lane **out)
{
	struct xseg_lane *lane = aligned_alloc(64, (sizeof(*lane) + 63) / 64 * 64);
	if (!lane)
		return -ENOMEM;
	memset(lane, 0, sizeof(*lane));
	uint32_t index;
	int ret = xseg_lane_claim(seg, &index, &lane->epoch);
	if (ret) {
		free(lane);
		return ret;
	}
	lane->seg = seg;
	lane->index = (uint16_t)index;
	lane->bell_fd = -1;
	lane->now_ns = clock_now_ns();
	lane->rescanned = atomic_load(&seg->lanes[index].rescan);
	ret = queue_init(&lane->local, seg->request_count);
	if (ret == 0 && fd_bell)
		ret = xseg_bell_open_fd(seg, index, &lane->bell_fd);
	if (ret) {
		xseg_lane_release(seg, index);
		free(lane->local.item);
		free(lane);
		return ret;
	}
	xseg_magazine_init(&lane->pages, seg, lane->index, lane->epoch);
	xseg_slot_cache_init(&lane->slots, seg, lane->index, lane->epoch);
	xseg_ringer_init(&lane->ringer, seg);
	xseg_spin_init(&lane->spin);
	reattach_all(lane);
	*out = lane;
	return 0;
}

/* Hints that found no room must reach who waits for them; a dead one does not hold us for long. */
static void leave_hints(struct xseg_lane *lane)
{
	const struct timespec nap = {.tv_nsec = LEAVE_NAP_NS};
	xseg_turn_end(lane);
	for (uint64_t t = 0; lane->overflowing && t < LEAVE_LIMIT_NS; t += LEAVE_NAP_NS) {
		nanosleep(&nap, NULL);
		xseg_turn_end(lane);
	}
}

void xseg_lane_leave(struct xseg_lane *lane)
{
	struct xseg *seg = lane->seg;
	for (uint32_t i = 0; i < seg->lane_count; i++)
		xseg_ring_publish(&lane->rx[i]);
	leave_hints(lane);
	xseg_magazine_fini(&lane->pages);
	xseg_slot_cache_fini(&lane->slots);
	xseg_ringer_fini(&lane->ringer);
	if (lane->bell_fd >= 0)
		xseg_bell_close_fd(seg, lane->index, lane->bell_fd);
	for (uint32_t i = 0; i < XSEG_LANES_MAX; i++)
		free(lane->overflow[i].item);
	free(lane->local.item);
	xseg_lane_release(seg, lane->index);
	free(lane);
}

/* --- passing hints ------------------------------------------------------------ */

/* First message to that lane: find where the ring stands and make it listen to us. */
static void introduce(struct xseg_lane *lane, uint32_t to)
{
	xseg_ring_tx_attach(&lane->tx[to], ring_between(lane->seg, lane->index, to));
	atomic_fetch_or(&lane->seg->lanes[to].producers, 1ull << lane->index);
	lane->sent |= 1ull << to;
}

static void overflow(struct xseg_lane *lane, uint32_t to, uint32_t slot, uint32_t kind)
{
	struct xseg_hint_queue *queue = &lane->overflow[to];
	/* without memory the hint is lost, the truth is not: whoever reaps finds it */
	if (!queue->item && queue_init(queue, lane->seg->request_count) != 0)
		return;
	queue_put(queue, slot, kind);
	lane->overflowing |= 1ull << to;
}

static inline void send_hint(struct xseg_lane *lane, uint32_t to, uint32_t slot, uint32_t kind)
{
	if (to == lane->index) {
		queue_put(&lane->local, slot, kind);
		return;
	}
	crash_point("xseg.hint.before_ring");
	if (unlikely(!((lane->sent >> to) & 1u)))
		introduce(lane, to);
	lane->dirty_bells |= 1ull << to;
	if (unlikely((lane->overflowing >> to) & 1u) ||
		unlikely(!xseg_ring_put(&lane->tx[to], slot, kind)))
		overflow(lane, to, slot, kind);
}

/* The dead make no room; whoever comes in their place looks through the table. */
static bool reaped(const struct xseg *seg, uint32_t lane)
{
	uint64_t word = atomic_load_explicit(&seg->lanes[lane].word, memory_order_acquire);
	return xseg_life_of(word) == XSEG_LIFE_FREE || xseg_life_of(word) == XSEG_LIFE_DEAD;
}

static void retry_overflow(struct xseg_lane *lane)
{
	for (uint64_t left = lane->overflowing; left; left &= left - 1) {
		uint32_t to = (uint32_t)__builtin_ctzll(left);
		struct xseg_hint_queue *queue = &lane->overflow[to];
		if (unlikely(reaped(lane->seg, to)))
			queue->head = queue->tail;
		while (queue->head != queue->tail) {
			struct xseg_hint_message *m = &queue->item[queue->head & queue->mask];
			if (!xseg_ring_put(&lane->tx[to], m->request, m->kind))
				break;
			queue->head++;
			lane->dirty_bells |= 1ull << to;
		}
		if (queue->head == queue->tail)
			lane->overflowing &= ~(1ull << to);
	}
}

/* --- client ----------------------------------------------------------------- */

int xseg_get(struct xseg_lane *lane, uint32_t *slot)
{
	return xseg_request_alloc(&lane->slots, slot);
}

/*
 * The port changed hands while we submitted. What a frame says does not change, and if the slot
 * is in another life already then the hint is a stale one.
 */
static void look_again(
	struct xseg_lane *lane, const struct xseg_frame *frame, uint32_t slot, uint32_t port)
{
	struct xseg_frame copy = *frame;
	uint32_t to = xseg_port_lane(lane->seg, port, &copy);
	if (to != XSEG_NONE)
		send_hint(lane, to, slot, XSEG_HINT_SUBMIT);
}

/* Moves the word and tells the lane that serves the port, if somebody does. */
static inline void notice_over(struct xseg_lane *lane, struct xseg_request *request, uint32_t slot,
	unsigned frame, uint32_t port, uint64_t word)
{
	const _Atomic uint64_t *bound = &lane->seg->ports[port].word;
	uint64_t before = atomic_load_explicit(bound, memory_order_acquire);
	uint32_t to = xseg_port_lane(lane->seg, port, &request->frame[frame]);
	crash_point("xseg.submit.before_word");
	atomic_store_explicit(&request->word,
		xseg_word(XSEG_REQUEST_SUBMITTED, frame, (uint16_t)port, 0,
			xseg_word_generation(word)),
		memory_order_release);
	if (likely(to != XSEG_NONE))
		send_hint(lane, to, slot, XSEG_HINT_SUBMIT);
	/* who binds the port has a barrier between that and its look through the table: either it
	   sees our word there, or we see its bind here */
	if (unlikely(!lane->seg->barrier))
		atomic_thread_fence(memory_order_seq_cst);
	else
		atomic_signal_fence(memory_order_seq_cst);
	if (unlikely(atomic_load_explicit(bound, memory_order_acquire) != before))
		look_again(lane, &request->frame[frame], slot, port);
}

int xseg_submit(struct xseg_lane *lane, uint32_t slot, uint32_t port)
{
	struct xseg_request *request = xseg_at(lane, slot);
	uint64_t word = atomic_load_explicit(&request->word, memory_order_relaxed);
	must(xseg_word_state(word) == XSEG_REQUEST_OWNED && xseg_word_owner(word) == lane->index);
	if (unlikely(port >= XSEG_PORTS_MAX))
		return -ENXIO;
	struct xseg_frame *frame = &request->frame[0];
	frame->port = (uint16_t)port;
	frame->from = lane->index;
	frame->time_ns = lane->now_ns;
	atomic_store_explicit(
		&request->sequence, lane->now_ns << 6 | lane->index, memory_order_relaxed);
	probe3(submit, slot, lane->index, port);
	notice_over(lane, request, slot, 0, port, word);
	return 0;
}

int xseg_receive(struct xseg_lane *lane, uint32_t slot)
{
	if (unlikely(slot >= lane->seg->request_count))
		return -ESTALE;
	struct xseg_request *request = xseg_at(lane, slot);
	uint64_t word = atomic_load_explicit(&request->word, memory_order_acquire);
	uint64_t done = xseg_word(XSEG_REQUEST_DONE, xseg_word_frame(word), lane->index,
		lane->epoch, xseg_word_generation(word));
	if (unlikely(word != done))
		return -ESTALE;
	crash_point("xseg.receive.before_word");
	/* only its client moves a DONE word, so a store is enough */
	atomic_store_explicit(&request->word,
		xseg_word(XSEG_REQUEST_OWNED, 0, lane->index, lane->epoch,
			xseg_word_generation(word)),
		memory_order_relaxed);
	probe2(receive, slot, lane->index);
	return 0;
}

void xseg_put(struct xseg_lane *lane, uint32_t slot)
{
	struct xseg_request *request = xseg_at(lane, slot);
	uint64_t word = atomic_load_explicit(&request->word, memory_order_relaxed);
	must(xseg_word_state(word) == XSEG_REQUEST_OWNED && xseg_word_owner(word) == lane->index);
	crash_point("xseg.put.before_drop");
	if (request->answer_count || request->extent_count)
		data_drop(lane, request);
	crash_point("xseg.put.before_word");
	xseg_request_free(&lane->slots, slot);
}

/* --- server ----------------------------------------------------------------- */

int xseg_accept(struct xseg_lane *lane, uint32_t slot, unsigned *frame)
{
	if (unlikely(slot >= lane->seg->request_count))
		return -ESTALE;
	struct xseg_request *request = xseg_at(lane, slot);
	uint64_t word = atomic_load_explicit(&request->word, memory_order_acquire);
	if (unlikely(xseg_word_state(word) != XSEG_REQUEST_SUBMITTED ||
		     xseg_word_frame(word) >= XSEG_FRAMES))
		return -ESTALE;
	uint16_t port = xseg_word_owner(word);
	if (unlikely(port >= XSEG_PORTS_MAX))
		return -ESTALE;
	uint32_t to = xseg_port_lane(lane->seg, port, &request->frame[xseg_word_frame(word)]);
	if (unlikely(to != lane->index)) {
		/* from an earlier life of this lane, or the port has moved: tell who it is for */
		if (to != XSEG_NONE)
			send_hint(lane, to, slot, XSEG_HINT_SUBMIT);
		return -ESTALE;
	}
	uint64_t mine = xseg_word(XSEG_REQUEST_TAKEN, xseg_word_frame(word), lane->index,
		lane->epoch, xseg_word_generation(word));
	if (unlikely(!atomic_compare_exchange_strong_explicit(
		    &request->word, &word, mine, memory_order_acq_rel, memory_order_relaxed)))
		return -ESTALE;
	crash_point("xseg.accept.taken");
	*frame = xseg_word_frame(word);
	probe4(accept, slot, lane->index, port, *frame);
	return 0;
}

static uint64_t taken_word(const struct xseg_lane *lane, const struct xseg_request *request)
{
	uint64_t word = atomic_load_explicit(&request->word, memory_order_relaxed);
	must(xseg_word_state(word) == XSEG_REQUEST_TAKEN && xseg_word_owner(word) == lane->index);
	return word;
}

int xseg_forward(
	struct xseg_lane *lane, uint32_t slot, uint32_t port, const struct xseg_frame *next)
{
	struct xseg_request *request = xseg_at(lane, slot);
	uint64_t word = taken_word(lane, request);
	unsigned frame = xseg_word_frame(word) + 1;
	if (unlikely(port >= XSEG_PORTS_MAX))
		return -ENXIO;
	if (unlikely(frame >= XSEG_FRAMES))
		return -ELOOP;
	struct xseg_frame *f = &request->frame[frame];
	uint64_t before_ns = request->frame[frame - 1].time_ns;
	*f = *next;
	f->port = (uint16_t)port;
	f->from = lane->index;
	/* this turn may have begun before the request was sent here */
	f->time_ns = lane->now_ns > before_ns ? lane->now_ns : before_ns;
	crash_point("xseg.forward.filled");
	probe4(forward, slot, lane->index, port, frame);
	notice_over(lane, request, slot, frame, port, word);
	return 0;
}

void xseg_respond(struct xseg_lane *lane, uint32_t slot)
{
	struct xseg_request *request = xseg_at(lane, slot);
	uint64_t word = taken_word(lane, request);
	uint16_t client = request->client;
	crash_point("xseg.respond.before_word");
	probe3(respond, slot, lane->index, client);
	atomic_store_explicit(&request->word,
		xseg_word(XSEG_REQUEST_DONE, xseg_word_frame(word), client, request->client_epoch,
			xseg_word_generation(word)),
		memory_order_release);
	if (likely(client < lane->seg->lane_count))
		send_hint(lane, client, slot, XSEG_HINT_REPLY);
}

/* --- after a death ------------------------------------------------------------ */

struct found {
	uint64_t sequence;
	uint32_t slot, kind;
};

static int by_sequence(const void *a, const void *b)
{
	const struct found *x = a, *y = b;
	return x->sequence < y->sequence ? -1 : x->sequence > y->sequence;
}

/*
 * What steers a request, of one that may be taken, ended and filled anew under our eyes: then the
 * hint is a stale one. The thread sanitizer cannot know that whoever takes it looks again.
 */
__attribute__((no_sanitize("thread"), noinline)) static struct xseg_frame peek(
	const struct xseg_frame *frame)
{
	return (struct xseg_frame){
		.op = frame->op, .lane = frame->lane, .key = frame->key, .offset = frame->offset};
}

/* Something for us: an answer, or a request to a port (or any port: XSEG_NONE) that we serve. */
static bool find(const struct xseg_lane *lane, uint32_t slot, uint32_t port, struct found *found)
{
	const struct xseg_request *request = xseg_at(lane, slot);
	uint64_t word = atomic_load_explicit(&request->word, memory_order_acquire);
	unsigned state = xseg_word_state(word), frame = xseg_word_frame(word);
	uint16_t owner = xseg_word_owner(word);
	*found = (struct found){.slot = slot,
		.sequence = atomic_load_explicit(&request->sequence, memory_order_relaxed)};
	if (state == XSEG_REQUEST_DONE) {
		found->kind = XSEG_HINT_REPLY;
		return port == XSEG_NONE && owner == lane->index &&
		       xseg_word_epoch(word) == lane->epoch;
	}
	if (state != XSEG_REQUEST_SUBMITTED || frame >= XSEG_FRAMES || owner >= XSEG_PORTS_MAX)
		return false;
	found->kind = XSEG_HINT_SUBMIT;
	if (port != XSEG_NONE)
		return owner == port;
	struct xseg_frame copy = peek(&request->frame[frame]);
	return xseg_port_lane(lane->seg, owner, &copy) == lane->index;
}

/* In the order in which they were submitted; how many in *list (to be freed), NULL: no memory. */
static struct found *find_all(const struct xseg_lane *lane, uint32_t port, uint32_t *count)
{
	uint32_t slots = lane->seg->request_count;
	struct found *list = malloc(slots * sizeof(*list));
	*count = 0;
	for (uint32_t slot = 0; list && slot < slots; slot++)
		*count += find(lane, slot, port, &list[*count]);
	if (list)
		qsort(list, *count, sizeof(*list), by_sequence);
	return list;
}

static bool rescan_due(const struct xseg_lane *lane)
{
	return atomic_load_explicit(&lane->seg->lanes[lane->index].rescan, memory_order_relaxed) !=
	       lane->rescanned;
}

/* A dead lane may have taken hints for us with it: the table knows. */
static void rescan(struct xseg_lane *lane)
{
	struct xseg_hint_queue *queue = &lane->local;
	uint32_t count, now = atomic_load(&lane->seg->lanes[lane->index].rescan);
	if (queue->tail - queue->head > lane->seg->request_count)
		return; /* those first: there must be room */
	struct found *list = find_all(lane, XSEG_NONE, &count);
	if (!list)
		return;
	lane->rescanned = now;
	for (uint32_t i = 0; i < count; i++)
		queue_put(queue, list[i].slot, list[i].kind);
	free(list);
}

/* --- the turn --------------------------------------------------------------- */

uint32_t xseg_poll(struct xseg_lane *lane, struct xseg_hint_message *out, uint32_t max)
{
	const uint32_t begin = lane->first;
	uint32_t count = 0, from = begin;
	if (unlikely(rescan_due(lane)))
		rescan(lane);
	lane->producers = atomic_load_explicit(
		&lane->seg->lanes[lane->index].producers, memory_order_relaxed);
	/* no ring leads from us to us: our own bit stands for the local queue */
	uint64_t left = lane->producers | 1ull << lane->index;
	if (begin)
		left = left >> begin | left << (64 - begin);
	for (; left && count < max; left &= left - 1) {
		from = (begin + (uint32_t)__builtin_ctzll(left)) % 64;
		if (from == lane->index)
			while (count < max && queue_get(&lane->local, &out[count]))
				count++;
		else if (likely(from < lane->seg->lane_count))
			while (count < max && xseg_ring_get(&lane->rx[from], &out[count]))
				count++;
	}
	/* who filled the batch is asked last next time: a loud producer silences nobody */
	if (count == max)
		lane->first = (from + 1) % 64;
	return count;
}

void xseg_turn_end(struct xseg_lane *lane)
{
	if (unlikely(lane->overflowing))
		retry_overflow(lane);
	if (lane->dirty_bells)
		atomic_thread_fence(memory_order_seq_cst); /* see bell.h */
	for (uint64_t left = lane->dirty_bells; left; left &= left - 1)
		xseg_bell_ring(&lane->ringer, (uint32_t)__builtin_ctzll(left));
	lane->dirty_bells = 0;
}

bool xseg_pending(struct xseg_lane *lane)
{
	if (lane->local.head != lane->local.tail || rescan_due(lane))
		return true;
	lane->producers = atomic_load_explicit(
		&lane->seg->lanes[lane->index].producers, memory_order_acquire);
	for (uint64_t left = lane->producers; left; left &= left - 1) {
		uint32_t from = (uint32_t)__builtin_ctzll(left);
		if (from >= lane->seg->lane_count)
			break;
		if (!xseg_ring_empty(&lane->rx[from]))
			return true;
	}
	return false;
}

/* Producers wait for room only while their ring is full: tell them before we sleep. */
static void publish_heads(struct xseg_lane *lane)
{
	for (uint64_t left = lane->producers; left; left &= left - 1) {
		uint32_t from = (uint32_t)__builtin_ctzll(left);
		if (from < lane->seg->lane_count)
			xseg_ring_publish(&lane->rx[from]);
	}
}

/* One look at the clock when it has paid: this is the way of every message that comes in time. */
static bool spin(struct xseg_lane *lane)
{
	uint64_t start = clock_now_ns(), now = start;
	while (now - start < lane->spin.budget_ns) {
		for (unsigned i = 0; i < 16; i++) {
			if (xseg_pending(lane)) {
				lane->now_ns = clock_now_ns();
				xseg_spin_paid(&lane->spin, lane->now_ns - start);
				return true;
			}
			cpu_relax();
		}
		now = clock_now_ns();
	}
	xseg_spin_failed(&lane->spin);
	return false;
}

bool xseg_arm(struct xseg_lane *lane)
{
	publish_heads(lane);
	xseg_bell_arm(lane->seg, lane->index);
	if (!xseg_pending(lane))
		return true;
	xseg_bell_disarm(lane->seg, lane->index);
	return false;
}

void xseg_wait(struct xseg_lane *lane, uint64_t timeout_ns)
{
	publish_heads(lane);
	/* with messages of our own still to place, look again soon */
	if (lane->overflowing && timeout_ns > 100000u)
		timeout_ns = 100000u;
	if (!xseg_pending(lane)) {
		if (spin(lane))
			return;
		if (xseg_arm(lane))
			xseg_bell_wait(lane->seg, lane->index, timeout_ns);
	}
	lane->now_ns = clock_now_ns();
}

uint32_t xseg_rehint_port(struct xseg_lane *lane, uint32_t port)
{
	uint32_t count, sent = 0;
	xseg_segment_barrier(); /* see notice_over() */
	struct found *list = find_all(lane, port, &count);
	for (uint32_t i = 0; list && i < count; i++) {
		const struct xseg_request *request = xseg_at(lane, list[i].slot);
		uint64_t word = atomic_load_explicit(&request->word, memory_order_acquire);
		uint32_t to = XSEG_NONE;
		if (xseg_word_frame(word) < XSEG_FRAMES) {
			struct xseg_frame copy = peek(&request->frame[xseg_word_frame(word)]);
			to = xseg_port_lane(lane->seg, port, &copy);
		}
		if (to == XSEG_NONE)
			continue;
		send_hint(lane, to, list[i].slot, XSEG_HINT_SUBMIT);
		sent++;
	}
	free(list);
	return sent;
}
