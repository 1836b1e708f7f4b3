/* SPDX-License-Identifier: Apache-2.0 */
/* Pages that a shard stores, pages it gives out to readers, pages it keeps from writers. */
#include <base/crash.h>
#include <errno.h>
#include <peer/keep.h>
#include <string.h>

#include "peers/core/core.h"

/* One page in so many stays for requests on their way: stores take only what is above that. */
#define PAGES_KEEP_FRACTION 8u
#define PAGES_CHUNK 64u

static void page_stored(struct peer *peer, uint32_t count)
{
	struct shard *shard = shard_of(peer);
	shard->store_credit -= count < shard->store_credit ? count : shard->store_credit;
}

uint32_t job_whole_page(const struct job *job, uint32_t at)
{
	uint64_t place = (uint64_t)job->data_offset + at;
	if (place % XSEG_PAGE || at > job->data_size || job->data_size - at < XSEG_PAGE)
		return XSEG_NONE;
	uint64_t page = place >> XSEG_PAGE_SHIFT;
	for (uint32_t i = 0; i < job->extent_count; i++) {
		if (page < job->extents[i].count)
			return job->extents[i].page + (uint32_t)page;
		page -= job->extents[i].count;
	}
	return XSEG_NONE;
}

int job_take_page(struct job *job, uint32_t page)
{
	must(job->live && job->op == XSEG_OP_WRITE && (job->flags & XSEG_F_DONATE));
	must(page < job->peer->lane->x->seg->page_count);
	int error = xseg_take_page(job->peer->lane->x, job->slot, page);
	if (error == 0)
		page_stored(job->peer, 1);
	return error;
}

/*
 * Last, and only what is whole: should we be killed before we answer, the reaper drops those pins
 * that are noted here.
 */
static void answer_note(struct xseg_request *request, uint32_t count)
{
	atomic_signal_fence(memory_order_seq_cst);
	request->answer_count = (uint16_t)count;
	crash_point("core.answer.noted");
}

/* What most reads are: no list to be gathered first. */
static void answer_page(const struct xseg_lane *x, struct xseg_request *request, uint32_t page)
{
	must(page < x->seg->page_count);
	xseg_page_pin(x->seg, page);
	request->answer[0] = (struct xseg_extent){.page = page, .count = 1};
	answer_note(request, 1);
}

int job_answer_pages(struct job *job, const uint32_t *pages, uint32_t count)
{
	struct xseg_lane *x = job->peer->lane->x;
	struct xseg_request *request = xseg_at(x, job->slot);
	struct xseg_extent runs[XSEG_EXTENTS];
	uint32_t used = 0;
	must(job->live && job->op == XSEG_OP_READ && (job->flags & XSEG_F_PIN) && count > 0);
	if (likely(count == 1)) {
		answer_page(x, request, pages[0]);
		return 0;
	}
	for (uint32_t i = 0; i < count; i++) {
		must(pages[i] < x->seg->page_count);
		if (used && runs[used - 1].page + runs[used - 1].count == pages[i]) {
			runs[used - 1].count++;
			continue;
		}
		if (used == XSEG_EXTENTS)
			return -E2BIG;
		runs[used++] = (struct xseg_extent){.page = pages[i], .count = 1};
	}
	for (uint32_t i = 0; i < count; i++)
		xseg_page_pin(x->seg, pages[i]);
	memcpy(request->answer, runs, used * sizeof(runs[0]));
	answer_note(request, used);
	return 0;
}

/* At most PAGES_CHUNK: then each may be a run of its own. */
static int page_hold_chunk(struct peer *peer, uint32_t *pages, uint32_t count)
{
	struct xseg_extent runs[PAGES_CHUNK];
	uint32_t run_count, got = 0;
	int error = xseg_page_alloc(&peer->lane->x->pages, count, runs, PAGES_CHUNK, &run_count);
	if (error)
		return error;
	for (uint32_t i = 0; i < run_count; i++)
		for (uint32_t k = 0; k < runs[i].count; k++)
			pages[got++] = runs[i].page + k;
	return 0;
}

bool peer_pages_low(const struct peer *peer)
{
	const struct xseg *seg = peer->lane->x->seg;
	struct shard *shard = shard_of(peer);
	if (likely(shard->store_credit > 0))
		return false;
	/* counting the pool costs a microsecond a GiB: not for each page */
	uint32_t free_pages = xseg_page_free_count(seg);
	uint32_t keep = seg->page_count / PAGES_KEEP_FRACTION;
	if (free_pages <= keep)
		return true;
	shard->store_credit = (free_pages - keep) / 16 + 1;
	return false;
}

int peer_page_hold(struct peer *peer, uint32_t *pages, uint32_t count)
{
	if (unlikely(peer_pages_low(peer)))
		return -EAGAIN;
	for (uint32_t done = 0; done < count;) {
		uint32_t n = count - done < PAGES_CHUNK ? count - done : PAGES_CHUNK;
		int error = page_hold_chunk(peer, pages + done, n);
		if (error) {
			while (done)
				peer_page_let_go(peer, pages[--done]);
			return error;
		}
		done += n;
	}
	page_stored(peer, count);
	return 0;
}

void peer_page_let_go(struct peer *peer, uint32_t page)
{
	struct xseg_extent one = {.page = page, .count = 1};
	must(page < peer->lane->x->seg->page_count);
	xseg_page_free(&peer->lane->x->pages, &one, 1);
}

int peer_page_take(struct peer *peer, uint32_t *pages, uint32_t count)
{
	int error = peer_page_hold(peer, pages, count);
	for (uint32_t i = 0; i < count && !error; i++)
		xseg_page_store(&peer->lane->x->pages, pages[i]);
	return error;
}

struct xseg_page_descriptor *peer_page_about(struct peer *peer, uint32_t page)
{
	must(page < peer->lane->x->seg->page_count);
	return &peer->lane->x->seg->descriptors[page];
}

void peer_page_keep(struct peer *peer, uint32_t page)
{
	must(page < peer->lane->x->seg->page_count);
	xseg_page_keep(peer->lane->x->seg, page, peer->port);
}

int peer_page_keep_job(struct job *job, uint32_t page)
{
	struct xseg_lane *x = job->peer->lane->x;
	must(job->live && job->op == XSEG_OP_WRITE && (job->flags & XSEG_F_DONATE));
	must(page < x->seg->page_count);
	int error = xseg_keep_page(x, job->slot, page, job->peer->port);
	if (error == 0)
		page_stored(job->peer, 1);
	return error;
}

/* The slot, and which use of it: it grows at each alloc. */
uint64_t peer_ticket_of(const struct job *job)
{
	uint64_t word = atomic_load_explicit(
		&xseg_at(job->peer->lane->x, job->slot)->word, memory_order_relaxed);
	return (uint64_t)job->slot << 32 | xseg_word_generation(word);
}

bool peer_ticket_spent(const struct peer *peer, uint64_t ticket)
{
	const struct xseg *seg = peer->lane->x->seg;
	uint64_t word =
		atomic_load_explicit(&seg->requests[ticket >> 32].word, memory_order_acquire);
	return xseg_word_state(word) == XSEG_REQUEST_FREE ||
	       xseg_word_generation(word) != (uint32_t)ticket;
}

void peer_page_drop(struct peer *peer, uint32_t page)
{
	must(page < peer->lane->x->seg->page_count);
	xseg_page_retire(&peer->lane->x->pages, page);
}

uint8_t *peer_page_memory(struct peer *peer, uint32_t page)
{
	must(page < peer->lane->x->seg->page_count);
	return xseg_page_address(peer->lane->x->seg, page);
}

bool peer_page_pinned(struct peer *peer, uint32_t page)
{
	return xseg_page_pinned(peer->lane->x->seg, page);
}
