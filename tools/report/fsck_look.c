/* SPDX-License-Identifier: Apache-2.0 */
/* One look at all requests: who has each, which pages it names, will anybody find it. */
#include <base/must.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xseg/page.h>
#include <xseg/port.h>
#include <xseg/request.h>

#include "tools/report/fsck.h"

#define LIST_EXTENTS (XSEG_PAGE / sizeof(struct xseg_extent))
#define EXTENTS_MAX (XSEG_EXTENTS + XSEG_LIST_PAGES * LIST_EXTENTS)
#define PROBLEMS_MAX 100000u
/* Free slots that a living lane may keep ready (xseg/request.h). */
#define SLOTS_KEPT(seg) ((seg)->request_count / (4 * (seg)->lane_count))

struct look {
	const struct xseg *seg;
	const uint64_t *first; /* may be NULL */
	struct fsck *fsck;
	struct fsck_refs refs;
};

void fsck_look_say(struct fsck *fsck, enum fsck_kind kind, uint32_t index, uint64_t word,
	const char *format, ...)
{
	fsck->by_kind[kind]++;
	if (fsck->problem_count == PROBLEMS_MAX)
		return;
	if (fsck->problem_count == fsck->problem_max) {
		fsck->problem_max = fsck->problem_max ? fsck->problem_max * 2 : 64;
		fsck->problems =
			realloc(fsck->problems, fsck->problem_max * sizeof(*fsck->problems));
		must(fsck->problems);
	}
	struct fsck_problem *problem = &fsck->problems[fsck->problem_count++];
	*problem = (struct fsck_problem){.kind = kind, .index = index, .word = word};
	va_list args;
	va_start(args, format);
	vsnprintf(problem->text, sizeof(problem->text), format, args);
	va_end(args);
}

bool fsck_look_lane_dead(const struct fsck *fsck, uint32_t lane, uint16_t epoch)
{
	return lane >= XSEG_LANES_MAX || !fsck->owners[lane].alive ||
	       fsck->owners[lane].epoch != epoch;
}

/* --- a copy of one request --------------------------------------------------------------- */

struct copy {
	uint64_t word;
	struct xseg_request request;
};

static bool unchanged(const struct xseg *seg, uint32_t slot, uint64_t word)
{
	atomic_thread_fence(memory_order_acquire);
	return atomic_load_explicit(&seg->requests[slot].word, memory_order_relaxed) == word;
}

/* False: it moves, so somebody has it. */
static bool take(const struct xseg *seg, uint32_t slot, struct copy *copy)
{
	copy->word = atomic_load_explicit(&seg->requests[slot].word, memory_order_acquire);
	if (xseg_word_state(copy->word) == XSEG_REQUEST_FREE)
		return true;
	memcpy(&copy->request, &seg->requests[slot], sizeof(copy->request));
	return unchanged(seg, slot, copy->word);
}

/* --- its pages -------------------------------------------------------------------------- */

static bool taken(const struct xseg_request *request, uint32_t position)
{
	return (request->flags & XSEG_R_DONATED) && position < XSEG_EXTENTS * 64 &&
	       (request->taken[position / 64] >> position % 64) & 1u;
}

static void refer(struct look *look, uint32_t slot, uint64_t word, uint32_t page)
{
	struct fsck_refs *refs = &look->refs;
	uint32_t other = refs->slot[page];
	/* both at the same moment, or one has given it to the other meanwhile */
	if (refs->held[page] && unchanged(look->seg, other, refs->word[page]) &&
		unchanged(look->seg, slot, word))
		fsck_look_say(look->fsck, FSCK_PAGE_TWICE, page, word ^ refs->word[page],
			"page %u is in requests %u and %u", page, other, slot);
	if (refs->held[page] < 255)
		refs->held[page]++;
	refs->slot[page] = slot;
	refs->word[page] = word;
	uint64_t now =
		atomic_load_explicit(&look->seg->descriptors[page].word, memory_order_acquire);
	if (xseg_page_state(now) != XSEG_PAGE_HELD && unchanged(look->seg, slot, word))
		fsck_look_say(look->fsck, FSCK_PAGE_UNHELD, page, word,
			"page %u is in request %u, but its word says %s", page, slot,
			xseg_page_state(now) == XSEG_PAGE_FREE ? "free" : "stored");
}

static bool run_at(
	const struct xseg *seg, const struct copy *copy, uint32_t i, struct xseg_extent *run)
{
	uint32_t list = i < XSEG_EXTENTS ? 0 : (i - XSEG_EXTENTS) / LIST_EXTENTS;
	if (i < XSEG_EXTENTS) {
		*run = copy->request.extents[i];
	} else {
		if (list >= XSEG_LIST_PAGES || copy->request.list[list] >= seg->page_count)
			return false;
		const struct xseg_extent *entries =
			(const void *)xseg_page_address(seg, copy->request.list[list]);
		*run = entries[(i - XSEG_EXTENTS) % LIST_EXTENTS];
	}
	return xseg_extents_check(seg, run, 1);
}

static void bad_extent(struct look *look, uint32_t slot, uint64_t word)
{
	if (unchanged(look->seg, slot, word))
		fsck_look_say(look->fsck, FSCK_REQUEST_BAD, slot, word,
			"request %u names pages that there are not", slot);
}

static void look_pages(struct look *look, uint32_t slot, const struct copy *copy)
{
	const struct xseg_request *r = &copy->request;
	struct xseg_extent run;
	uint32_t count = r->extent_count, position = 0;
	if (count > EXTENTS_MAX) {
		bad_extent(look, slot, copy->word);
		return;
	}
	/* borrowed ones are their lender's; of the list pages there is no such */
	for (uint32_t i = 0; i < count; i++) {
		if (!run_at(look->seg, copy, i, &run)) {
			bad_extent(look, slot, copy->word);
			return;
		}
		for (uint32_t k = 0; k < run.count; k++, position++)
			if (!(r->flags & XSEG_R_BORROWED) && !taken(r, position))
				refer(look, slot, copy->word, run.page + k);
	}
	for (uint32_t i = 0; count > XSEG_EXTENTS && i < XSEG_LIST_PAGES; i++)
		if (r->list[i] < look->seg->page_count && count > XSEG_EXTENTS + i * LIST_EXTENTS)
			refer(look, slot, copy->word, r->list[i]);
}

static void look_answer(struct look *look, uint32_t slot, const struct copy *copy)
{
	const struct xseg_request *r = &copy->request;
	if (r->flags & XSEG_R_DONATED)
		return;
	if (r->answer_count > XSEG_EXTENTS ||
		!xseg_extents_check(look->seg, r->answer, r->answer_count)) {
		/* counts of 0 are left by a reaper that is at it */
		bad_extent(look, slot, copy->word);
		return;
	}
	for (uint32_t i = 0; i < r->answer_count; i++)
		for (uint32_t k = 0; k < r->answer[i].count; k++) {
			look->refs.readers[r->answer[i].page + k]++;
			look->fsck->readers++;
		}
}

/* --- will it be found? ------------------------------------------------------------------ */

static bool in_ring(const struct xseg_ring *ring, uint32_t slot, enum xseg_hint kind)
{
	uint64_t head = atomic_load_explicit(&ring->head, memory_order_acquire);
	for (uint32_t i = 0; i < XSEG_RING_SLOTS; i++) {
		const struct xseg_slot *s = &ring->slots[i];
		if (atomic_load_explicit(&s->sequence, memory_order_acquire) > head &&
			s->request == slot && s->kind == kind)
			return true;
	}
	return false;
}

/*
 * For lane `to`, which has either slept all the time, and a lane that sleeps keeps no hints of its
 * own, or has made so many turns that it would have come to them; and no ring has one for it.
 */
static void look_hint(
	struct look *look, uint32_t slot, const struct copy *copy, uint32_t to, enum xseg_hint kind)
{
	const struct xseg *seg = look->seg;
	const struct xseg_lane_record *lane = &seg->lanes[to];
	if (look->first && !atomic_load(&lane->bell.asleep) &&
		atomic_load(&lane->heartbeat) - look->first[to] < FSCK_TURNS_ENOUGH)
		return;
	for (uint32_t from = 0; from < seg->lane_count; from++)
		if (in_ring(&seg->rings[(uint64_t)to * seg->lane_count + from], slot, kind))
			return;
	if (unchanged(seg, slot, copy->word))
		fsck_look_say(look->fsck, FSCK_REQUEST_HINT, slot, copy->word,
			"request %u waits for lane %u, which has no hint of it", slot, to);
}

/* --- who has it ------------------------------------------------------------------------- */

static void dead_request(struct look *look, uint32_t slot, uint64_t word, const char *whose)
{
	fsck_look_say(look->fsck, FSCK_REQUEST_DEAD, slot, word, "request %u %s", slot, whose);
}

static void look_submitted(struct look *look, uint32_t slot, const struct copy *copy)
{
	const struct xseg_request *r = &copy->request;
	uint32_t port = xseg_word_owner(copy->word);
	if (port >= XSEG_PORTS_MAX) {
		fsck_look_say(look->fsck, FSCK_REQUEST_BAD, slot, copy->word,
			"request %u is submitted to port %u, which there is not", slot, port);
		return;
	}
	look->fsck->submitted[port]++;
	if (fsck_look_lane_dead(look->fsck, r->client, r->client_epoch)) {
		dead_request(look, slot, copy->word, "is submitted, but its client is gone");
		return;
	}
	struct xseg_frame frame = r->frame[xseg_word_frame(copy->word)];
	uint32_t to = xseg_port_lane(look->seg, port, &frame);
	if (to == XSEG_NONE || !look->fsck->owners[to].alive)
		look->fsck->waiting_unbound++; /* for whoever binds the port next */
	else
		look_hint(look, slot, copy, to, XSEG_HINT_SUBMIT);
}

static void look_owned(struct look *look, uint32_t slot, const struct copy *copy)
{
	unsigned state = xseg_word_state(copy->word);
	uint32_t lane = xseg_word_owner(copy->word);
	if (fsck_look_lane_dead(look->fsck, lane, xseg_word_epoch(copy->word))) {
		dead_request(look, slot, copy->word,
			state == XSEG_REQUEST_OWNED   ? "is owned by a lane that is gone"
			: state == XSEG_REQUEST_TAKEN ? "was taken by a lane that is gone"
						      : "is done, but its client is gone");
		return;
	}
	struct fsck_owner *owner = &look->fsck->owners[lane];
	owner->requests_owned += state == XSEG_REQUEST_OWNED;
	owner->requests_taken += state == XSEG_REQUEST_TAKEN;
	owner->requests_done += state == XSEG_REQUEST_DONE;
	if (state == XSEG_REQUEST_DONE)
		look_hint(look, slot, copy, lane, XSEG_HINT_REPLY);
	/* its server still works on it: the reaper waits for that */
	if (state == XSEG_REQUEST_TAKEN &&
		fsck_look_lane_dead(look->fsck, copy->request.client, copy->request.client_epoch))
		look->fsck->pending++;
}

static void look_free(struct look *look, uint32_t slot)
{
	uint64_t hints =
		atomic_load_explicit(&look->seg->request_hints[slot / 64], memory_order_relaxed);
	if (!((hints >> slot % 64) & 1u))
		look->fsck->unhinted_slots++;
}

static void look_request(struct look *look, uint32_t slot)
{
	struct copy copy;
	bool still = take(look->seg, slot, &copy);
	unsigned state = xseg_word_state(copy.word);
	if (state >= XSEG_REQUEST_STATES || xseg_word_frame(copy.word) >= XSEG_FRAMES) {
		look->fsck->requests_bad++;
		fsck_look_say(look->fsck, FSCK_REQUEST_BAD, slot, copy.word,
			"request %u is in no state (%u, frame %u)", slot, state,
			xseg_word_frame(copy.word));
		return;
	}
	look->fsck->requests[state]++;
	if (!still)
		return;
	if (state == XSEG_REQUEST_FREE) {
		look_free(look, slot);
		return;
	}
	if (state == XSEG_REQUEST_SUBMITTED)
		look_submitted(look, slot, &copy);
	else
		look_owned(look, slot, &copy);
	look_pages(look, slot, &copy);
	look_answer(look, slot, &copy);
}

/* --- entry point ------------------------------------------------------------------------ */

static int refs_make(struct fsck_refs *refs, uint32_t pages)
{
	refs->held = calloc(pages, sizeof(*refs->held));
	refs->slot = calloc(pages, sizeof(*refs->slot));
	refs->word = calloc(pages, sizeof(*refs->word));
	refs->readers = calloc(pages, sizeof(*refs->readers));
	return refs->held && refs->slot && refs->word && refs->readers ? 0 : -ENOMEM;
}

static void refs_free(struct fsck_refs *refs)
{
	free(refs->held);
	free(refs->slot);
	free(refs->word);
	free(refs->readers);
}

int fsck_look(const struct xseg *seg, const uint64_t first[XSEG_LANES_MAX], struct fsck *fsck)
{
	struct look look = {.seg = seg, .first = first, .fsck = fsck};
	memset(fsck, 0, sizeof(*fsck));
	int error = refs_make(&look.refs, seg->page_count);
	if (!error) {
		fsck_tables(seg, fsck);
		for (uint32_t slot = 0; slot < seg->request_count; slot++)
			look_request(&look, slot);
		uint32_t kept = fsck->lanes_alive * (SLOTS_KEPT(seg) + 1);
		if (fsck->unhinted_slots > kept)
			fsck_look_say(fsck, FSCK_SLOT_HINT, 0, 0,
				"%u free request slots have no hint; living lanes keep %u at most",
				fsck->unhinted_slots, kept);
		fsck_pages(seg, &look.refs, fsck);
	}
	refs_free(&look.refs);
	return error;
}
