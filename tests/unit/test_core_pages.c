/* SPDX-License-Identifier: Apache-2.0 */
/* Pages that are kept and given out: no copy, no loss, and never more than the pool can bear. */
#include <errno.h>
#include <peer/keep.h>
#include <string.h>
#include <xseg/page.h>

#include "tests/unit/core_rig.h"

#define KEPT_PAGES 2048u

/* A store of whole pages. */
struct kept {
	uint32_t page[KEPT_PAGES]; /* XSEG_NONE: nothing */
	unsigned taken, pinned, copied;
};

static int kept_start(struct peer *peer, char *why, size_t why_size)
{
	(void)why, (void)why_size;
	struct kept *kept = peer->state;
	for (unsigned i = 0; i < KEPT_PAGES; i++)
		kept->page[i] = XSEG_NONE;
	return 0;
}

static void kept_finish(struct peer *peer)
{
	struct kept *kept = peer->state;
	for (unsigned i = 0; i < KEPT_PAGES; i++)
		if (kept->page[i] != XSEG_NONE)
			peer_page_drop(peer, kept->page[i]);
}

static void kept_put(struct peer *peer, uint32_t index, uint32_t page)
{
	struct kept *kept = peer->state;
	if (kept->page[index] != XSEG_NONE)
		peer_page_drop(peer, kept->page[index]);
	kept->page[index] = page;
}

/* Whole pages only; donated ones as long as the pool allows, copies while pages can be had. */
static void kept_write(struct peer *peer, struct job *job)
{
	struct kept *kept = peer->state;
	for (uint32_t at = 0; at < job->length; at += XSEG_PAGE) {
		uint32_t page = job_whole_page(job, at);
		if ((job->flags & XSEG_F_DONATE) && page != XSEG_NONE && !peer_pages_low(peer) &&
			job_take_page(job, page) == 0) {
			kept->taken++;
		} else if (peer_page_take(peer, &page, 1) == 0) {
			kept->copied++;
			job_get_bytes(job, at, peer_page_memory(peer, page), XSEG_PAGE);
		} else {
			job_fail(job, -ENOSPC);
			return;
		}
		kept_put(peer, (uint32_t)((job->offset + at) / XSEG_PAGE), page);
	}
	job_complete(job, job->length);
}

static void kept_read(struct peer *peer, struct job *job)
{
	struct kept *kept = peer->state;
	uint32_t first = (uint32_t)(job->offset / XSEG_PAGE);
	uint32_t count =
		(uint32_t)((job->offset + job->length + XSEG_PAGE - 1) / XSEG_PAGE) - first;
	if ((job->flags & XSEG_F_PIN) && job_answer_pages(job, &kept->page[first], count) == 0) {
		kept->pinned++;
		job_complete(job, job->length);
		return;
	}
	for (uint32_t at = 0; at < job->length;) {
		uint64_t offset = job->offset + at;
		uint32_t inside = (uint32_t)(offset % XSEG_PAGE), n = XSEG_PAGE - inside;
		n = n < job->length - at ? n : job->length - at;
		uint8_t *memory = peer_page_memory(peer, kept->page[offset / XSEG_PAGE]);
		job_put_bytes(job, at, memory + inside, n);
		at += n;
	}
	job_complete(job, job->length);
}

static const struct peer_ops kept_ops = {
	.name = "t_kept",
	.summary = "keeps pages",
	.state_size = sizeof(struct kept),
	.start = kept_start,
	.finish = kept_finish,
	.on = {[XSEG_OP_READ] = kept_read, [XSEG_OP_WRITE] = kept_write},
};

/*
 * A store whose pages outlive it: bucket n of object 0 in a kept page each, found again at the
 * start. DISCARD writes all of it down to t_store, WRITE_ZEROES reads it from there, FLUSH forgets.
 */
#define HEIR_PAGES 128u
struct heir {
	uint32_t page[HEIR_PAGES], adopted;
	uint64_t ticket;
};

static int heir_start(struct peer *peer, char *why, size_t why_size)
{
	(void)why, (void)why_size;
	struct heir *heir = peer->state;
	uint32_t cursor = 0, page;
	memset(heir->page, 0xff, sizeof(heir->page));
	while ((page = xseg_page_next_kept(peer_segment(peer), peer->port, &cursor)) != XSEG_NONE) {
		heir->page[peer_page_about(peer, page)->bucket] = page;
		heir->adopted++;
	}
	return 0;
}

static void heir_put(struct peer *peer, struct job *job, uint32_t bucket, uint32_t given)
{
	struct heir *heir = peer->state;
	uint32_t old = heir->page[bucket], page = given;
	bool donated = (job->flags & XSEG_F_DONATE) && given != XSEG_NONE;
	if (!donated) {
		ck_assert_int_eq(peer_page_hold(peer, &page, 1), 0);
		job_get_bytes(job, bucket * XSEG_PAGE - (uint32_t)job->offset,
			peer_page_memory(peer, page), XSEG_PAGE);
	}
	struct xseg_page_descriptor *about = peer_page_about(peer, page);
	about->bucket = (uint16_t)bucket;
	atomic_store(&about->valid, 0xff);
	if (donated)
		ck_assert_int_eq(peer_page_keep_job(job, page), 0);
	else
		peer_page_keep(peer, page);
	heir->page[bucket] = page;
	if (old != XSEG_NONE)
		peer_page_drop(peer, old);
}

static void heir_write(struct peer *peer, struct job *job)
{
	for (uint32_t at = 0; at < job->length; at += XSEG_PAGE)
		heir_put(peer, job, (uint32_t)((job->offset + at) / XSEG_PAGE),
			job_whole_page(job, at));
	job_complete(job, job->length);
}

static void heir_read(struct peer *peer, struct job *job)
{
	struct heir *heir = peer->state;
	heir->ticket = peer_ticket_of(job);
	ck_assert(!peer_ticket_spent(peer, heir->ticket));
	ck_assert_int_eq(job_answer_pages(job, &heir->page[job->offset / XSEG_PAGE],
				 job->length / XSEG_PAGE),
		0);
	job_complete(job, job->length);
}

static void heir_answered(struct job *job, int error)
{
	if (error)
		job_fail(job, error);
	else
		job_complete(job, 0);
}

/* All pages from the second sector of the first on, as one call. */
static void heir_lend(struct peer *peer, struct job *job)
{
	const struct heir *heir = peer->state;
	struct call *call;
	ck_assert_int_eq(call_begin(peer, &call), 0);
	call->op = job->op == XSEG_OP_DISCARD ? XSEG_OP_WRITE : XSEG_OP_READ;
	call->flags = XSEG_F_PIN | XSEG_F_DONATE; /* not with pages that are lent */
	call->offset = XSEG_SECTOR;
	call->length = HEIR_PAGES * XSEG_PAGE - XSEG_SECTOR;
	ck_assert_int_eq(call_lend(call, heir->page, HEIR_PAGES), 0);
	job_fan(job, heir_answered);
	call_submit_part(call, job, 0, NULL);
	job_fan_ready(job);
}

static void heir_forget(struct peer *peer, struct job *job)
{
	struct heir *heir = peer->state;
	for (unsigned i = 0; i < HEIR_PAGES; i++)
		if (heir->page[i] != XSEG_NONE)
			peer_page_drop(peer, heir->page[i]);
	memset(heir->page, 0xff, sizeof(heir->page));
	job_complete(job, 0);
}

static const char *const heir_edges[] = {"below", NULL};
static const struct peer_ops heir_ops = {
	.name = "t_heir",
	.summary = "keeps pages beyond its end",
	.state_size = sizeof(struct heir),
	.edges = heir_edges,
	.start = heir_start,
	.on = {[XSEG_OP_READ] = heir_read,
		[XSEG_OP_WRITE] = heir_write,
		[XSEG_OP_DISCARD] = heir_lend,
		[XSEG_OP_ZERO] = heir_lend,
		[XSEG_OP_FLUSH] = heir_forget},
};

static uint8_t data[4u << 20], back[4u << 20];
static const char *const alone[] = {"k=t_kept", NULL};
static const char *const below[] = {"s=t_split,edge.below=k", "k=t_kept", NULL};

struct counts {
	unsigned taken, copied, pinned;
};

RIG_PEEK static struct counts counts_of(struct rig *rig)
{
	const struct kept *kept = rig_peer(rig, "k")->shards[0].peer.state;
	return (struct counts){kept->taken, kept->copied, kept->pinned};
}

static void kept_begin(struct rig *rig, uint64_t size, const char *const *specs, const char *ask)
{
	module_register(&kept_ops);
	rig_begin(rig, size, 1, specs);
	rig_ask(rig, ask);
}

UNIT(test_no_copy)
{
	struct rig rig;
	kept_begin(&rig, 64u << 20, alone, "k");
	for (unsigned i = 0; i < 3; i++) { /* overwritten: the old pages go back */
		rig_pattern(data, 1u << 20, i);
		ck_assert_int_eq(rig_write(&rig, 0, data, 1u << 20), 0);
		ck_assert_int_eq(rig_read(&rig, 0, back, 32768), 0);
		ck_assert_mem_eq(back, data, 32768);
		ck_assert_int_eq(rig_read(&rig, 512, back, 32768), 0);
		ck_assert_mem_eq(back, data + 512, 32768);
		ck_assert_int_eq(rig_read(&rig, 1000 * 512, back, 512), 0);
		ck_assert_mem_eq(back, data + 1000 * 512, 512);
	}
	ck_assert_uint_eq(counts_of(&rig).taken, 3 * 256);
	ck_assert_uint_eq(counts_of(&rig).copied, 0);
	ck_assert_uint_eq(counts_of(&rig).pinned, 9);
	struct xseg_usage usage;
	xseg_segment_usage(&rig.seg, &usage);
	ck_assert_uint_eq(usage.pages_stored, 256);
	ck_assert_uint_eq(usage.pages_retired, 0);
	rig_end(&rig);
}

/* More runs than an answer can name: the answer is a copy. */
UNIT(test_too_many_runs)
{
	struct rig rig;
	kept_begin(&rig, 64u << 20, alone, "k");
	for (unsigned i = 0; i < 64; i++) { /* in an order that leaves no two neighbours */
		uint32_t page = i * 37 % 64;
		rig_pattern(data + page * XSEG_PAGE, XSEG_PAGE, page);
		ck_assert_int_eq(
			rig_write(&rig, page * XSEG_PAGE, data + page * XSEG_PAGE, XSEG_PAGE), 0);
	}
	ck_assert_int_eq(rig_read(&rig, 0, back, 64 * XSEG_PAGE), 0);
	ck_assert_mem_eq(back, data, 64 * XSEG_PAGE);
	ck_assert_uint_eq(counts_of(&rig).pinned, 0);
	rig_end(&rig);
}

/* Parts only borrow: were the splitter killed, the whole would be served again. */
UNIT(test_through_a_split)
{
	struct rig rig;
	kept_begin(&rig, 64u << 20, below, "s");
	for (unsigned i = 0; i < 8; i++) {
		uint32_t size = (4u << 20) - 8192 * i;
		rig_pattern(data, size, i);
		ck_assert_int_eq(rig_write(&rig, XSEG_PAGE * i, data, size), 0);
		ck_assert_int_eq(rig_read(&rig, XSEG_PAGE * i, back, size), 0);
		ck_assert_mem_eq(back, data, size);
	}
	ck_assert_uint_eq(counts_of(&rig).taken, 0);
	ck_assert_uint_gt(counts_of(&rig).copied, 5000);
	ck_assert_uint_eq(counts_of(&rig).pinned, 0);
	rig_end(&rig);
}

/* The store is larger than the pool: it says so, and requests go on. */
UNIT(test_pool_low)
{
	struct rig rig;
	unsigned full = 0;
	struct xseg_usage usage;
	kept_begin(&rig, 8u << 20, alone, "k");
	for (unsigned i = 0; i < KEPT_PAGES; i++) {
		rig_pattern(data, XSEG_PAGE, i);
		int error = rig_write(&rig, (uint64_t)i * XSEG_PAGE, data, XSEG_PAGE);
		ck_assert(error == 0 || error == -ENOSPC);
		full += error != 0;
	}
	ck_assert_uint_gt(full, 0);
	xseg_segment_usage(&rig.seg, &usage);
	ck_assert_uint_ge(usage.pages - usage.pages_stored, usage.pages / 16);
	/* what was written can be read */
	ck_assert_int_eq(rig_read(&rig, 0, back, XSEG_PAGE), 0);
	rig_pattern(data, XSEG_PAGE, 0);
	ck_assert_mem_eq(back, data, XSEG_PAGE);
	rig_end(&rig);
}

static const char *const heirs[] = {"h=t_heir,edge.below=s", "s=t_store", NULL};

RIG_PEEK static const struct heir *heir_of(struct rig *rig)
{
	return rig_peer(rig, "h")->shards[0].peer.state;
}

RIG_PEEK static bool ticket_spent(struct rig *rig)
{
	return peer_ticket_spent(&rig_peer(rig, "h")->shards[0].peer, heir_of(rig)->ticket);
}

/* The process ends, its pages do not: the next one finds them, and what they are. */
UNIT(test_heir)
{
	struct rig rig;
	struct xseg_usage usage;
	module_register(&heir_ops);
	rig_begin(&rig, 64u << 20, 1, heirs);
	rig_ask(&rig, "h");
	for (unsigned i = 0; i < 2; i++) {
		rig_pattern(data, HEIR_PAGES * XSEG_PAGE, i);
		ck_assert_int_eq(rig_write(&rig, 0, data, HEIR_PAGES * XSEG_PAGE), 0);
	}
	xseg_segment_usage(&rig.seg, &usage);
	ck_assert_uint_eq(usage.pages_kept, HEIR_PAGES);
	rig_again(&rig, 1, heirs);
	rig_ask(&rig, "h");
	ck_assert_uint_eq(heir_of(&rig)->adopted, HEIR_PAGES);
	ck_assert_int_eq(rig_read(&rig, 0, back, 16 * XSEG_PAGE), 0);
	ck_assert_mem_eq(back, data, 16 * XSEG_PAGE);
	RIG_UNTIL(ticket_spent(&rig));
	ck_assert_int_eq(rig_do(&rig, XSEG_OP_FLUSH, 0, 0, NULL), 0);
	xseg_segment_usage(&rig.seg, &usage);
	ck_assert_uint_eq(usage.pages_kept, 0);
	rig_end(&rig);
}

/* Lent pages, in more runs than a request holds, with a beginning that is no page's. */
UNIT(test_lend)
{
	struct rig rig;
	module_register(&heir_ops);
	rig_begin(&rig, 64u << 20, 1, heirs);
	rig_ask(&rig, "h");
	for (unsigned i = 0; i < HEIR_PAGES; i++) { /* no two neighbours */
		uint32_t page = i * 37 % HEIR_PAGES;
		rig_pattern(data + page * XSEG_PAGE, XSEG_PAGE, page);
		ck_assert_int_eq(
			rig_write(&rig, page * XSEG_PAGE, data + page * XSEG_PAGE, XSEG_PAGE), 0);
	}
	ck_assert_int_eq(rig_do(&rig, XSEG_OP_DISCARD, 0, XSEG_SECTOR, NULL), 0);
	ck_assert(rig_holds(
		&rig, "s", XSEG_SECTOR, data + XSEG_SECTOR, HEIR_PAGES * XSEG_PAGE - XSEG_SECTOR));
	/* and into them: reading what the store has now */
	rig_pattern(data, HEIR_PAGES * XSEG_PAGE, 77);
	rig_ask(&rig, "s");
	ck_assert_int_eq(rig_write(&rig, 0, data, HEIR_PAGES * XSEG_PAGE), 0);
	rig_ask(&rig, "h");
	ck_assert_int_eq(rig_do(&rig, XSEG_OP_ZERO, 0, XSEG_SECTOR, NULL), 0);
	ck_assert_int_eq(rig_read(&rig, 4096, back, 8 * XSEG_PAGE), 0);
	ck_assert_mem_eq(back, data + 4096, 8 * XSEG_PAGE);
	ck_assert_int_eq(rig_do(&rig, XSEG_OP_FLUSH, 0, 0, NULL), 0);
	rig_end(&rig);
}

UNIT(test_whole_page)
{
	struct job job = {.data_offset = 512, .data_size = 5 * XSEG_PAGE - 512, .extent_count = 2};
	job.extents = job.inline_extents;
	job.inline_extents[0] = (struct xseg_extent){.page = 7, .count = 2};
	job.inline_extents[1] = (struct xseg_extent){.page = 40, .count = 3};
	ck_assert_uint_eq(job_whole_page(&job, 0), XSEG_NONE);
	ck_assert_uint_eq(job_whole_page(&job, 3584), 8);
	ck_assert_uint_eq(job_whole_page(&job, 3584 + 4096), 40);
	ck_assert_uint_eq(job_whole_page(&job, 3584 + 3 * 4096), 42);
	ck_assert_uint_eq(job_whole_page(&job, 3584 + 4 * 4096), XSEG_NONE);
	ck_assert_uint_eq(job_whole_page(&job, 0xffffffff), XSEG_NONE);
	job.data_size -= 512; /* the last is no longer whole */
	ck_assert_uint_eq(job_whole_page(&job, 3584 + 3 * 4096), XSEG_NONE);
}
