/* SPDX-License-Identifier: Apache-2.0 */
/* Looks several times, believes what stays, and repairs what can be repaired. */
#include "tools/report/fsck.h"

#include <base/clock.h>
#include <base/crc32c.h>
#include <base/time.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <xseg/page.h>
#include <xseg/reap.h>
#include <xseg/request.h>

#define LOOKS 4u
#define NAP_NS 25000000u
/* How long a lane in the middle of something is waited for: longer, and it hangs, or is stopped. */
#define MIDDLE_NS 10000000000u

const char *const fsck_kind_names[FSCK_KINDS] = {
	[FSCK_SUPERBLOCK] = "superblock",
	[FSCK_LANE_BAD] = "lane-bad",
	[FSCK_LANE_DEAD] = "lane-dead",
	[FSCK_PEER_BAD] = "peer-bad",
	[FSCK_PORT_BAD] = "port-bad",
	[FSCK_PORT_DEAD] = "port-dead",
	[FSCK_EDGE_BAD] = "edge-bad",
	[FSCK_NAME_TWICE] = "name-twice",
	[FSCK_RING_BAD] = "ring-bad",
	[FSCK_STATS_BAD] = "stats-bad",
	[FSCK_REQUEST_BAD] = "request-bad",
	[FSCK_REQUEST_DEAD] = "request-of-the-dead",
	[FSCK_REQUEST_HINT] = "request-hint-lost",
	[FSCK_SLOT_HINT] = "slot-hints-lost",
	[FSCK_PAGE_BAD] = "page-bad",
	[FSCK_PAGE_LEAKED] = "page-leaked",
	[FSCK_PAGE_PINS] = "page-pins",
	[FSCK_PAGE_UNHELD] = "page-unheld",
	[FSCK_PAGE_TWICE] = "page-twice",
	[FSCK_PAGE_HINT] = "page-hint-lost",
};

/* --- what stays ------------------------------------------------------------------------- */

static int compare(const void *a, const void *b)
{
	const struct fsck_problem *x = a, *y = b;
	if (x->kind != y->kind)
		return x->kind < y->kind ? -1 : 1;
	if (x->index != y->index)
		return x->index < y->index ? -1 : 1;
	return x->word < y->word ? -1 : x->word > y->word;
}

/* Keeps of `now` what was in `before`, too. */
static void keep_common(struct fsck *now, const struct fsck *before)
{
	uint32_t kept = 0;
	memset(now->by_kind, 0, sizeof(now->by_kind));
	for (uint32_t i = 0; i < now->problem_count; i++) {
		const struct fsck_problem *problem = &now->problems[i];
		if (before && !bsearch(problem, before->problems, before->problem_count,
				      sizeof(*problem), compare))
			continue;
		now->by_kind[problem->kind]++;
		now->problems[kept++] = *problem;
	}
	now->problem_count = kept;
}

static void check_super(const struct xseg *seg, struct fsck *fsck)
{
	const struct xseg_superblock *super = seg->super;
	size_t from = offsetof(struct xseg_superblock, layout_version);
	size_t to = offsetof(struct xseg_superblock, checksum);
	if (atomic_load(&super->magic) != XSEG_MAGIC ||
		crc32c(0, (const uint8_t *)super + from, to - from) != super->checksum)
		fsck_look_say(fsck, FSCK_SUPERBLOCK, 0, 0,
			"the superblock is damaged: whoever joins next will refuse it");
}

static void beats(const struct xseg *seg, uint64_t out[XSEG_LANES_MAX])
{
	memset(out, 0, XSEG_LANES_MAX * sizeof(*out));
	for (uint32_t i = 0; i < seg->lane_count; i++)
		out[i] = atomic_load(&seg->lanes[i].heartbeat);
}

/* Some lane neither sleeps nor has made turns since `first`: on a machine that gives it no time it
   still may be in the middle of what it did then. Lanes of our own process are where we are. */
static bool in_the_middle(
	const struct xseg *seg, const uint64_t first[XSEG_LANES_MAX], const struct fsck *fsck)
{
	for (uint32_t i = 0; i < seg->lane_count; i++) {
		const struct fsck_owner *owner = &fsck->owners[i];
		if (owner->alive && owner->pid != getpid() &&
			!atomic_load(&seg->lanes[i].bell.asleep) &&
			atomic_load(&seg->lanes[i].heartbeat) - first[i] < FSCK_TURNS_ENOUGH)
			return true;
	}
	return false;
}

int fsck_run(const struct xseg *seg, unsigned looks, struct fsck *fsck)
{
	struct fsck before = {0};
	uint64_t first[XSEG_LANES_MAX], began = clock_now_ns();
	unsigned done = 0;
	bool last;
	int error;
	looks = looks ? looks : LOOKS;
	do {
		last = done + 1 >= looks;
		if (done) {
			time_nap(NAP_NS);
			last = last && (clock_now_ns() - began > MIDDLE_NS ||
					       !in_the_middle(seg, first, &before));
		}
		error = fsck_look(seg, done && last ? first : NULL, fsck);
		if (error) {
			fsck_free(&before);
			break;
		}
		check_super(seg, fsck);
		keep_common(fsck, done ? &before : NULL);
		if (fsck->problem_count)
			qsort(fsck->problems, fsck->problem_count, sizeof(*fsck->problems),
				compare);
		fsck_free(&before);
		before = *fsck;
		/* what moves from here on has left behind whatever the first look saw of it */
		if (!done++)
			beats(seg, first);
	} while (fsck->problem_count && !last);
	fsck->looks = done;
	fsck->took_ns = clock_now_ns() - began;
	return error;
}

void fsck_free(struct fsck *fsck)
{
	free(fsck->problems);
	fsck->problems = NULL;
	fsck->problem_count = fsck->problem_max = 0;
}

/* --- repairing ---------------------------------------------------------------------------- */

/* From the word that was seen several times: nobody else moves it, so nobody can be in between. */
static uint32_t repair_page(const struct xseg *seg, const struct fsck_problem *problem)
{
	_Atomic uint64_t *place = &seg->descriptors[problem->index].word;
	uint64_t word = problem->word, next = 0;
	unsigned state = xseg_page_state(word);
	/* a page in no state may be anybody's: only its word is lost, and a word does no harm */
	if (state >= XSEG_PAGE_STATES)
		return 0;
	if (problem->kind == FSCK_PAGE_BAD && state != XSEG_PAGE_FREE)
		return 0;
	if (problem->kind == FSCK_PAGE_LEAKED &&
		(state != XSEG_PAGE_RETIRED || xseg_page_pins(word)))
		return 0; /* of the dead: the reaper's */
	return atomic_compare_exchange_strong(place, &word, next);
}

static uint32_t repair_ring(const struct xseg *seg, const struct fsck *fsck, uint32_t index)
{
	uint32_t consumer = index / seg->lane_count, producer = index % seg->lane_count;
	if (fsck->owners[consumer].alive || fsck->owners[producer].alive)
		return 0; /* they know where they are in it */
	memset(&seg->rings[index], 0, sizeof(seg->rings[index]));
	return 1;
}

int fsck_repair(const struct xseg *seg, const struct fsck *fsck, uint64_t limit_ns,
	struct fsck_repair *repair)
{
	struct xseg_reap_report report = {0};
	memset(repair, 0, sizeof(*repair));
	for (uint32_t i = 0; i < fsck->problem_count; i++) {
		const struct fsck_problem *problem = &fsck->problems[i];
		if (problem->kind == FSCK_PAGE_BAD || problem->kind == FSCK_PAGE_LEAKED)
			repair->repaired += repair_page(seg, problem);
		else if (problem->kind == FSCK_RING_BAD)
			repair->repaired += repair_ring(seg, fsck, problem->index);
	}
	int error = xseg_reap_wait(seg, limit_ns, &report);
	repair->lanes = report.lanes;
	repair->freed = report.freed;
	repair->resubmitted = report.resubmitted;
	repair->refused = report.refused;
	repair->pages = report.pages;
	repair->hints = report.hints;
	repair->pending = report.pending;
	return error;
}
