/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The reaper: what the dead had is given back, what they were asked goes to their successors.
 * Each step moves one word by CAS from what was seen; what the steps are to be follows from the
 * words alone, so another reaper can go on wherever this one ends.
 */
#include <base/clock.h>
#include <base/crash.h>
#include <base/probe.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xseg/bell.h>
#include <xseg/page.h>
#include <xseg/reap.h>
#include <xseg/registry.h>
#include <xseg/request.h>

#include "xseg/xseg_data.h"

#define REAP_AGAIN_NS 5000000u /* while something is pending */

struct reap {
	const struct xseg *seg;
	struct xseg_reap_report *report;
	uint64_t *needed; /* bit per page: a request that is not free names it */
};

/* --- one reaper at a time ------------------------------------------------------------ */

static uint64_t reaper_word(pid_t pid, uint64_t start_time)
{
	return start_time << 32 | (uint32_t)pid;
}

static bool reaper_lives(uint64_t word)
{
	pid_t pid = (pid_t)(uint32_t)word;
	uint64_t start = pid > 0 ? xseg_process_start_time(pid) : 0;
	return start != 0 && reaper_word(pid, start) == word;
}

static bool reaper_lock(const struct xseg *seg)
{
	uint64_t word = atomic_load(&seg->super->reaper);
	uint64_t mine = reaper_word(getpid(), xseg_process_start_time(getpid()));
	if (word && reaper_lives(word))
		return false;
	return atomic_compare_exchange_strong(&seg->super->reaper, &word, mine);
}

static void reaper_unlock(const struct xseg *seg) { atomic_store(&seg->super->reaper, 0); }

/* --- who is dead -------------------------------------------------------------------- */

/* Says so in the records of lanes whose process has gone; how many were not known to be. */
static uint32_t mark_lanes(const struct xseg *seg)
{
	uint32_t found = 0;
	for (uint32_t i = 0; i < seg->lane_count; i++) {
		_Atomic uint64_t *place = &seg->lanes[i].word;
		uint64_t word = atomic_load_explicit(place, memory_order_acquire);
		unsigned life = xseg_life_of(word);
		if (life == XSEG_LIFE_FREE || life == XSEG_LIFE_DEAD ||
			xseg_lane_alive(seg, i, (uint16_t)xseg_epoch_of(word)))
			continue;
		uint64_t dead =
			xseg_life_word(XSEG_LIFE_DEAD, xseg_epoch_of(word), xseg_owner_of(word));
		if (atomic_compare_exchange_strong(place, &word, dead))
			found++;
	}
	return found;
}

/* Nothing of them is left. */
static void clear_lanes(const struct xseg *seg)
{
	for (uint32_t i = 0; i < seg->lane_count; i++) {
		uint64_t word = atomic_load_explicit(&seg->lanes[i].word, memory_order_acquire);
		if (xseg_life_of(word) == XSEG_LIFE_DEAD)
			atomic_compare_exchange_strong(&seg->lanes[i].word, &word, 0);
	}
}

/* Nobody leads requests to lanes that are no more: they wait for whoever binds the port next. */
static void unbind_ports(const struct xseg *seg)
{
	struct xseg_peer_view view;
	for (uint32_t i = 0; i < XSEG_PORTS_MAX; i++) {
		_Atomic uint64_t *place = &seg->ports[i].word;
		uint64_t word = atomic_load_explicit(place, memory_order_acquire);
		unsigned life = xseg_life_of(word);
		uint32_t peer = xseg_owner_of(word);
		if (life != XSEG_LIFE_ALIVE && life != XSEG_LIFE_DRAINING)
			continue;
		if (xseg_peer_view(seg, peer, &view) && view.life != XSEG_LIFE_DEAD &&
			view.epoch == xseg_epoch_of(word))
			continue;
		atomic_compare_exchange_strong(
			place, &word, xseg_life_word(XSEG_LIFE_DEAD, 0, XSEG_NONE));
	}
}

/*
 * Ask with a lane that was read before its record is: the record then is of that life or of a
 * later one. A number that no lane can have belongs to nobody.
 */
static bool dead(const struct xseg *seg, uint16_t lane, uint16_t epoch)
{
	if (lane >= seg->lane_count)
		return true;
	uint64_t word = atomic_load_explicit(&seg->lanes[lane].word, memory_order_acquire);
	unsigned life = xseg_life_of(word);
	return xseg_epoch_of(word) != epoch || life == XSEG_LIFE_FREE || life >= XSEG_LIFE_DEAD;
}

/* A KEPT page belongs to a port, which has successors. */
static bool dead_page(const struct xseg *seg, uint64_t word)
{
	return xseg_page_state(word) != XSEG_PAGE_KEPT &&
	       dead(seg, xseg_page_owner(word), xseg_page_epoch(word));
}

static bool move_word(_Atomic uint64_t *place, uint64_t from, uint64_t to)
{
	return atomic_compare_exchange_strong_explicit(
		place, &from, to, memory_order_acq_rel, memory_order_relaxed);
}

/* --- pages ---------------------------------------------------------------------------- */

static void free_hint(const struct xseg *seg, uint32_t page)
{
	atomic_fetch_or_explicit(
		&seg->page_hints[page / 64], 1ull << page % 64, memory_order_release);
}

static void unpin(const struct xseg *seg, uint32_t page)
{
	_Atomic uint64_t *place = &seg->descriptors[page].word;
	uint64_t word = atomic_load_explicit(place, memory_order_acquire), next;
	do {
		if (xseg_page_pins(word) == 0)
			return;
		next = word - (1u << 4);
		if (xseg_page_state(next) == XSEG_PAGE_RETIRED && xseg_page_pins(next) == 0)
			next = 0;
	} while (!atomic_compare_exchange_weak_explicit(
		place, &word, next, memory_order_acq_rel, memory_order_acquire));
	if (next == 0)
		free_hint(seg, page);
}

/*
 * An answer that nobody will read, of a dead client or server: noted as gone first, so that no pin
 * is ever dropped twice. Whoever was killed at it has left a run of no pages, which is no reason to
 * leave the others alone.
 */
static void drop_answer(const struct xseg *seg, struct xseg_request *request)
{
	uint32_t count = request->answer_count;
	if ((request->flags & XSEG_R_DONATED) || count > XSEG_EXTENTS)
		count = 0;
	while (count) {
		struct xseg_extent *last = &request->answer[count - 1];
		if (!xseg_extents_check(seg, last, 1)) { /* done with, or wild */
			request->answer_count = (uint16_t)--count;
			continue;
		}
		last->count--;
		atomic_signal_fence(memory_order_seq_cst);
		crash_point("reap.answer.before_unpin");
		unpin(seg, last->page + last->count);
	}
	request->answer_count = 0;
}

/*
 * A dead server kept this page of a request that will be served again: it is the client's once
 * more. Nobody has read it meanwhile: a page is pinned for readers after its write is answered.
 */
static void return_page(
	const struct xseg *seg, const struct xseg_request *request, unsigned port, uint32_t page)
{
	_Atomic uint64_t *place = &seg->descriptors[page].word;
	uint64_t word = atomic_load_explicit(place, memory_order_acquire);
	uint64_t held = (uint64_t)XSEG_PAGE_HELD | (uint64_t)request->client << 32 |
			(uint64_t)request->client_epoch << 48;
	unsigned state = xseg_page_state(word);
	bool taken = (state == XSEG_PAGE_STORED && dead_page(seg, word)) ||
		     (state == XSEG_PAGE_KEPT && xseg_page_owner(word) == port);
	if (taken && xseg_page_pins(word) == 0)
		move_word(place, word, held);
}

static void return_pages(const struct xseg *seg, struct xseg_request *request, unsigned port)
{
	struct xseg_extent run;
	uint32_t position = 0;
	for (uint32_t i = 0; (request->flags & XSEG_R_DONATED) && i < request->extent_count; i++) {
		if (data_run(seg, request, i, &run) || !xseg_extents_check(seg, &run, 1))
			break;
		for (uint32_t k = 0; k < run.count && position < XSEG_EXTENTS * 64; k++, position++)
			if ((request->taken[position / 64] >> position % 64) & 1u)
				return_page(seg, request, port, run.page + k);
	}
	crash_point("reap.return.before_flag");
	/* what it has lent may outlive it: kept pages */
	drop_answer(seg, request);
	request->flags &= (uint16_t)~XSEG_R_DONATED;
}

static void need(const struct reap *reap, const struct xseg_extent *run)
{
	if (!xseg_extents_check(reap->seg, run, 1))
		return;
	for (uint32_t k = 0; k < run->count; k++)
		reap->needed[(run->page + k) / 64] |= 1ull << (run->page + k) % 64;
}

static void need_pages(const struct reap *reap, const struct xseg_request *request)
{
	struct xseg_extent run;
	uint32_t count = request->extent_count;
	for (uint32_t i = 0; i < count && data_run(reap->seg, request, i, &run) == 0; i++)
		need(reap, &run);
	for (unsigned i = 0; count > XSEG_EXTENTS && i < XSEG_LIST_PAGES; i++) {
		run = (struct xseg_extent){.page = request->list[i], .count = 1};
		need(reap, &run);
	}
	if (request->flags & XSEG_R_DONATED)
		return;
	for (uint32_t i = 0; i < request->answer_count && i < XSEG_EXTENTS; i++)
		need(reap, &request->answer[i]);
}

static void sweep_page(const struct reap *reap, uint32_t page)
{
	_Atomic uint64_t *place = &reap->seg->descriptors[page].word;
	uint64_t word = atomic_load_explicit(place, memory_order_acquire);
	unsigned state = xseg_page_state(word);
	if (state == XSEG_PAGE_FREE || !dead_page(reap->seg, word))
		return;
	bool needed = (reap->needed[page / 64] >> page % 64) & 1u;
	if (needed && state == XSEG_PAGE_HELD) {
		reap->report->pending++;
		return;
	}
	if (needed) {
		/* of a store that is no more: freed with its last reader */
		uint64_t retired = word - XSEG_PAGE_STORED + XSEG_PAGE_RETIRED;
		if (state == XSEG_PAGE_STORED)
			move_word(place, word, retired);
		reap->report->kept++;
		return;
	}
	crash_point("reap.sweep.before_free");
	if (move_word(place, word, 0)) {
		free_hint(reap->seg, page);
		reap->report->pages++;
	}
}

static void reap_pages(const struct reap *reap)
{
	const struct xseg *seg = reap->seg;
	for (uint32_t slot = 0; slot < seg->request_count; slot++) {
		const struct xseg_request *request = &seg->requests[slot];
		uint64_t word = atomic_load_explicit(&request->word, memory_order_acquire);
		if (xseg_word_state(word) != XSEG_REQUEST_FREE)
			need_pages(reap, request);
	}
	for (uint32_t page = 0; page < seg->page_count; page++)
		sweep_page(reap, page);
}

/* --- requests --------------------------------------------------------------------------- */

static uint64_t owned_word(const struct xseg_request *request, uint64_t word)
{
	return xseg_word(XSEG_REQUEST_OWNED, 0, request->client, request->client_epoch,
		xseg_word_generation(word));
}

/* Of a dead client, and nobody serves it: its pages are swept afterwards. */
static void free_request(const struct reap *reap, struct xseg_request *request, uint64_t word)
{
	uint64_t owned = owned_word(request, word);
	if (xseg_word_state(word) != XSEG_REQUEST_OWNED && !move_word(&request->word, word, owned))
		return; /* taken or answered a moment ago: next time */
	if (xseg_word_state(word) == XSEG_REQUEST_OWNED)
		owned = word;
	crash_point("reap.free.owned");
	drop_answer(reap->seg, request);
	crash_point("reap.free.before_word");
	if (move_word(&request->word, owned,
		    xseg_word(XSEG_REQUEST_FREE, 0, 0, 0, xseg_word_generation(word))))
		reap->report->freed++;
}

static void refuse(const struct reap *reap, struct xseg_request *request, uint64_t word, int error)
{
	request->result = error;
	request->length = 0;
	request->value = 0;
	if (move_word(&request->word, word,
		    xseg_word(XSEG_REQUEST_DONE, xseg_word_frame(word), request->client,
			    request->client_epoch, xseg_word_generation(word))))
		reap->report->refused++;
}

/* Taken by a dead server: as it was before. */
static void submit_again(const struct reap *reap, struct xseg_request *request, uint64_t word)
{
	unsigned frame = xseg_word_frame(word);
	uint16_t port = frame < XSEG_FRAMES ? request->frame[frame].port : XSEG_PORTS_MAX;
	return_pages(reap->seg, request, port);
	if (port >= XSEG_PORTS_MAX) {
		refuse(reap, request, word, -EIO);
		return;
	}
	/* the number may have been one of lanes that the successor does not have */
	crash_point("reap.submit.before_word");
	if (move_word(&request->word, word,
		    xseg_word(XSEG_REQUEST_SUBMITTED, frame, port, 0, xseg_word_generation(word))))
		reap->report->resubmitted++;
}

static void reap_request(const struct reap *reap, struct xseg_request *request)
{
	const struct xseg *seg = reap->seg;
	uint64_t word = atomic_load_explicit(&request->word, memory_order_acquire);
	unsigned state = xseg_word_state(word);
	bool orphan;
	switch (state) {
	case XSEG_REQUEST_FREE: return;
	case XSEG_REQUEST_OWNED:
	case XSEG_REQUEST_DONE:
		if (dead(seg, xseg_word_owner(word), xseg_word_epoch(word)))
			free_request(reap, request, word);
		return;
	case XSEG_REQUEST_SUBMITTED:
		if (dead(seg, request->client, request->client_epoch))
			free_request(reap, request, word);
		return;
	case XSEG_REQUEST_TAKEN:
		orphan = dead(seg, request->client, request->client_epoch);
		if (!dead(seg, xseg_word_owner(word), xseg_word_epoch(word)))
			reap->report->pending += orphan;
		else if (orphan)
			free_request(reap, request, word);
		else
			submit_again(reap, request, word);
		return;
	default: /* no state that there is: damaged */ free_request(reap, request, word);
	}
}

/* --- telling the living ---------------------------------------------------------------- */

/* What a dead lane had still to tell them is lost: they look through the table themselves. */
static void tell_lanes(const struct xseg *seg)
{
	struct xseg_ringer ringer;
	xseg_ringer_init(&ringer, seg);
	for (uint32_t i = 0; i < seg->lane_count; i++) {
		uint64_t word = atomic_load_explicit(&seg->lanes[i].word, memory_order_acquire);
		if (xseg_life_of(word) != XSEG_LIFE_ALIVE)
			continue;
		atomic_fetch_add(&seg->lanes[i].rescan, 1);
		if (atomic_load(&seg->lanes[i].bell.asleep))
			xseg_bell_ring_slow(&ringer, i);
	}
	xseg_ringer_fini(&ringer);
}

/* --- entry points ------------------------------------------------------------------------ */

static void reap_locked(const struct reap *reap)
{
	const struct xseg *seg = reap->seg;
	struct xseg_reap_report *report = reap->report;
	report->lanes = mark_lanes(seg);
	unbind_ports(seg);
	/* who was about to steer by an old binding has done so */
	xseg_segment_barrier();
	crash_point("reap.begin.marked");
	for (uint32_t slot = 0; slot < seg->request_count; slot++)
		reap_request(reap, &seg->requests[slot]);
	crash_point("reap.requests.done");
	reap_pages(reap);
	report->hints = xseg_request_rehint(seg) + xseg_page_rehint(seg);
	crash_point("reap.pages.done");
	if (!report->pending && !report->kept)
		clear_lanes(seg);
	probe4(reap, report->freed, report->resubmitted, report->pages, report->pending);
	tell_lanes(seg);
}

int xseg_reap(const struct xseg *seg, struct xseg_reap_report *report)
{
	struct xseg_reap_report ignored;
	uint64_t began = clock_now_ns();
	struct reap reap = {.seg = seg, .report = report ? report : &ignored};
	memset(reap.report, 0, sizeof(*reap.report));
	reap.needed = calloc((seg->page_count + 63u) / 64u, sizeof(*reap.needed));
	if (!reap.needed)
		return -ENOMEM;
	int error = reaper_lock(seg) ? 0 : -EBUSY;
	if (!error) {
		reap_locked(&reap);
		reaper_unlock(seg);
	}
	free(reap.needed);
	reap.report->took_ns = clock_now_ns() - began;
	return error;
}

static void add_report(struct xseg_reap_report *sum, const struct xseg_reap_report *one)
{
	sum->lanes += one->lanes;
	sum->freed += one->freed;
	sum->resubmitted += one->resubmitted;
	sum->refused += one->refused;
	sum->pages += one->pages;
	sum->hints += one->hints;
	sum->pending = one->pending;
	sum->kept = one->kept;
	sum->took_ns += one->took_ns;
}

int xseg_reap_wait(const struct xseg *seg, uint64_t limit_ns, struct xseg_reap_report *report)
{
	const struct timespec nap = {.tv_nsec = REAP_AGAIN_NS};
	uint64_t until_ns = clock_now_ns() + limit_ns;
	struct xseg_reap_report one, sum = {0};
	int error;
	for (;;) {
		error = xseg_reap(seg, &one);
		if (!error)
			add_report(&sum, &one);
		if ((error && error != -EBUSY) || (!error && one.pending == 0))
			break;
		if (clock_now_ns() >= until_ns) {
			error = -ETIME;
			break;
		}
		nanosleep(&nap, NULL);
	}
	if (report)
		*report = sum;
	return error;
}

bool xseg_reap_due(const struct xseg *seg)
{
	for (uint32_t i = 0; i < seg->lane_count; i++) {
		uint64_t word = atomic_load_explicit(&seg->lanes[i].word, memory_order_acquire);
		unsigned life = xseg_life_of(word);
		if (life != XSEG_LIFE_FREE && life != XSEG_LIFE_DEAD &&
			!xseg_lane_alive(seg, i, (uint16_t)xseg_epoch_of(word)))
			return true;
	}
	return false;
}

/* Before what waits for a port goes elsewhere: nothing of it may be in use any more. */
static int come_to_rest(const struct xseg *seg, struct xseg_reap_report *report)
{
	int error = xseg_reap(seg, report);
	return error ? error : report->pending ? -EAGAIN : 0;
}

static bool waits_for(const struct xseg_request *request, uint32_t port, uint64_t *word)
{
	*word = atomic_load_explicit(&request->word, memory_order_acquire);
	return xseg_word_state(*word) == XSEG_REQUEST_SUBMITTED && xseg_word_owner(*word) == port;
}

int xseg_reap_fail_port(const struct xseg *seg, uint32_t port, int error)
{
	struct xseg_reap_report report;
	struct reap reap = {.seg = seg, .report = &report};
	uint64_t word;
	int ret = come_to_rest(seg, &report);
	if (ret)
		return ret;
	report.refused = 0;
	for (uint32_t slot = 0; slot < seg->request_count; slot++)
		if (waits_for(&seg->requests[slot], port, &word))
			refuse(&reap, &seg->requests[slot], word, error);
	tell_lanes(seg);
	return (int)report.refused;
}

static bool sent_by(const struct xseg_frame *frame, uint64_t lanes)
{
	return frame->from < XSEG_LANES_MAX && (lanes >> frame->from & 1u);
}

int xseg_reap_move_port(const struct xseg *seg, uint64_t lanes, uint32_t from, uint32_t to)
{
	struct xseg_reap_report report;
	uint64_t word;
	int moved = 0, ret = come_to_rest(seg, &report);
	if (ret)
		return ret;
	for (uint32_t slot = 0; slot < seg->request_count; slot++) {
		struct xseg_request *request = &seg->requests[slot];
		if (!waits_for(request, from, &word) || xseg_word_frame(word) >= XSEG_FRAMES)
			continue;
		struct xseg_frame *frame = &request->frame[xseg_word_frame(word)];
		if (!sent_by(frame, lanes))
			continue;
		frame->port = (uint16_t)to;
		moved += move_word(&request->word, word,
			xseg_word(XSEG_REQUEST_SUBMITTED, xseg_word_frame(word), (uint16_t)to, 0,
				xseg_word_generation(word)));
	}
	tell_lanes(seg);
	return moved;
}
