/* SPDX-License-Identifier: Apache-2.0 */
/* Counters and histograms: written by one lane, read by another process. */
#include <errno.h>
#include <string.h>
#include <xseg/registry.h>
#include <xseg/stats.h>

#include "tests/lib/unit.h"

static const struct xseg_counter counters[] = {
	{"reads", "", "read requests"}, {"bytes", "B", "bytes read"}, {"time", "ns", "time spent"}};
static const char *const histograms[] = {"latency", "depth"};

UNIT(test_open_count)
{
	struct xseg seg;
	struct xseg_stats_block *b;
	uint32_t peer;
	uint16_t epoch;
	scratch_segment(&seg, 0, 2, 64);
	ck_assert_int_eq(xseg_peer_join(&seg, "p", "role", 1, &peer, &epoch), 0);
	ck_assert_int_eq(xseg_stats_open(&seg, peer, epoch, 1, counters, 3, histograms, 2, &b), 0);
	ck_assert_uint_eq(b->lane, 1);
	ck_assert_uint_eq(b->counter_count, 3);
	ck_assert_uint_eq(b->histogram_count, 2);
	ck_assert_str_eq(b->names[1].name, "bytes");
	ck_assert_str_eq(b->names[1].unit, "B");
	ck_assert_str_eq(b->histograms[0].name, "latency");
	ck_assert_uint_eq(xseg_life_of(atomic_load(&b->word)), XSEG_LIFE_ALIVE);
	ck_assert_uint_eq(xseg_owner_of(atomic_load(&b->word)), peer);
	for (unsigned i = 0; i < 100; i++) {
		xseg_count(b, 0, 1);
		xseg_count(b, 1, 4096);
		xseg_record(b, 0, 1000 + i);
	}
	ck_assert_uint_eq(atomic_load(&b->counters[0]), 100);
	ck_assert_uint_eq(atomic_load(&b->counters[1]), 409600);
	ck_assert_uint_eq(atomic_load(&b->counters[2]), 0);
	ck_assert_uint_eq(atomic_load(&b->histograms[0].sum), 100 * 1000 + 4950);
	uint64_t sum = 0;
	for (unsigned i = 0; i < HISTOGRAM_BUCKETS; i++)
		sum += atomic_load(&b->histograms[0].counts[i]);
	ck_assert_uint_eq(sum, 100);
	xseg_record(b, 1, UINT64_MAX); /* off the scale: the last bucket */
	ck_assert_uint_eq(atomic_load(&b->histograms[1].counts[HISTOGRAM_BUCKETS - 1]), 1);
	xseg_stats_close(b);
	ck_assert_uint_ne(xseg_life_of(atomic_load(&b->word)), XSEG_LIFE_ALIVE);
	scratch_segment_end(&seg);
}

/* A block is new when it is opened: nothing of its last owner is seen. */
UNIT(test_reopen)
{
	struct xseg seg;
	struct xseg_stats_block *b;
	uint32_t peer;
	uint16_t epoch;
	scratch_segment(&seg, 0, 2, 64);
	ck_assert_int_eq(xseg_peer_join(&seg, "p", "role", 1, &peer, &epoch), 0);
	for (unsigned round = 0; round < 3 * XSEG_STATS_BLOCKS; round++) {
		ck_assert_int_eq(
			xseg_stats_open(&seg, peer, epoch, 0, counters, 3, histograms, 2, &b), 0);
		for (unsigned i = 0; i < XSEG_COUNTERS; i++)
			ck_assert_uint_eq(atomic_load(&b->counters[i]), 0);
		for (unsigned i = 0; i < HISTOGRAM_BUCKETS; i++)
			ck_assert_uint_eq(atomic_load(&b->histograms[0].counts[i]), 0);
		ck_assert_uint_eq(atomic_load(&b->histograms[0].sum), 0);
		xseg_count(b, 0, round + 1);
		xseg_record(b, 0, round);
		xseg_stats_close(b);
	}
	scratch_segment_end(&seg);
}

UNIT(test_full)
{
	struct xseg seg;
	struct xseg_stats_block *b, *kept = NULL;
	uint32_t peer;
	uint16_t epoch;
	scratch_segment(&seg, 0, 2, 64);
	ck_assert_int_eq(xseg_peer_join(&seg, "p", "role", 1, &peer, &epoch), 0);
	for (unsigned i = 0; i < XSEG_STATS_BLOCKS; i++) {
		ck_assert_int_eq(
			xseg_stats_open(&seg, peer, epoch, 0, counters, 3, NULL, 0, &b), 0);
		ck_assert_ptr_ne(b, kept);
		kept = b;
	}
	ck_assert_int_eq(xseg_stats_open(&seg, peer, epoch, 0, counters, 3, NULL, 0, &b), -ENOSPC);
	xseg_stats_close(kept);
	ck_assert_int_eq(xseg_stats_open(&seg, peer, epoch, 0, counters, 3, NULL, 0, &b), 0);
	ck_assert_ptr_eq(b, kept);
	scratch_segment_end(&seg);
}

struct job {
	struct xseg *seg;
	unsigned blocks;
};

static int open_and_die(void *arg)
{
	struct job *job = arg;
	uint32_t peer;
	uint16_t epoch;
	struct xseg_stats_block *b;
	child_check(xseg_peer_join(job->seg, "mortal", "role", 1, &peer, &epoch) == 0);
	for (unsigned i = 0; i < job->blocks; i++)
		child_check(xseg_stats_open(
				    job->seg, peer, epoch, 0, counters, 3, histograms, 2, &b) == 0);
	xseg_count(b, 0, 77);
	return 0;
}

/* What the dead have counted can be read; their blocks can be used again. */
UNIT(test_dead_owner)
{
	struct xseg seg;
	scratch_segment(&seg, 0, 2, 64);
	struct job job = {.seg = &seg, .blocks = XSEG_STATS_BLOCKS};
	ck_assert_int_eq(child_end(child_start(open_and_die, &job)), 0);
	uint64_t seen = 0;
	for (unsigned i = 0; i < XSEG_STATS_BLOCKS; i++)
		seen += atomic_load(&seg.stats[i].counters[0]);
	ck_assert_uint_eq(seen, 77);
	struct xseg_stats_block *b;
	uint32_t peer;
	uint16_t epoch;
	ck_assert_int_eq(xseg_peer_join(&seg, "heir", "role", 1, &peer, &epoch), 0);
	ck_assert_int_eq(xseg_stats_open(&seg, peer, epoch, 0, counters, 3, histograms, 2, &b), 0);
	ck_assert_uint_eq(atomic_load(&b->counters[0]), 0);
	scratch_segment_end(&seg);
}

/* --- volumes -------------------------------------------------------------------- */

UNIT(test_volume)
{
	struct xseg seg;
	struct xseg_volume_block *b;
	struct xseg_volume_view view;
	uint32_t peer;
	uint16_t epoch;
	scratch_segment(&seg, 0, 2, 64);
	ck_assert_uint_eq(seg.volume_count, 2 * XSEG_LANE_VOLUMES);
	ck_assert_int_eq(xseg_peer_join(&seg, "p", "role", 1, &peer, &epoch), 0);
	ck_assert(!xseg_volume_view(&seg, 0, &view));
	ck_assert_int_eq(xseg_volume_open(&seg, peer, epoch, 1, 0x1234, &b), 0);
	for (unsigned i = 0; i < 10; i++)
		xseg_volume_record(b, XSEG_VOLUME_OP_WRITE, 4096, 100);
	xseg_volume_record(b, XSEG_VOLUME_OP_READ, 512, UINT64_MAX);
	ck_assert(xseg_volume_view(&seg, (uint32_t)(b - seg.volumes), &view));
	ck_assert_uint_eq(view.volume, 0x1234);
	ck_assert_uint_eq(view.lane, 1);
	ck_assert_uint_eq(view.peer, peer);
	ck_assert_str_eq(view.name, "");
	ck_assert_uint_eq(view.bytes[XSEG_VOLUME_OP_WRITE], 40960);
	ck_assert_uint_eq(view.bytes[XSEG_VOLUME_OP_READ], 512);
	const struct xseg_histogram *h = &b->latency[XSEG_VOLUME_OP_WRITE];
	ck_assert_uint_eq(atomic_load(&h->counts[histogram_index(100)]), 10);
	ck_assert_uint_eq(atomic_load(&h->sum), 1000);
	h = &b->latency[XSEG_VOLUME_OP_READ];
	ck_assert_uint_eq(atomic_load(&h->counts[HISTOGRAM_BUCKETS - 1]), 1);
	xseg_volume_name(b, "disk");
	xseg_volume_name(b, "another");
	ck_assert(xseg_volume_view(&seg, (uint32_t)(b - seg.volumes), &view));
	ck_assert_str_eq(view.name, "disk");
	xseg_volume_close(b);
	ck_assert(!xseg_volume_view(&seg, (uint32_t)(b - seg.volumes), &view));
	ck_assert(!xseg_volume_view(&seg, seg.volume_count, &view));
	scratch_segment_end(&seg);
}

/* A table is full; a block is new when it is opened again. */
UNIT(test_volume_full)
{
	struct xseg seg;
	struct xseg_volume_block *b, *last = NULL;
	struct xseg_volume_view view;
	uint32_t peer;
	uint16_t epoch;
	scratch_segment(&seg, 0, 2, 64);
	ck_assert_int_eq(xseg_peer_join(&seg, "p", "role", 1, &peer, &epoch), 0);
	for (unsigned i = 0; i < seg.volume_count; i++) {
		ck_assert_int_eq(xseg_volume_open(&seg, peer, epoch, 0, i + 1, &b), 0);
		xseg_volume_record(b, XSEG_VOLUME_OP_FLUSH, 1, 5);
		xseg_volume_name(b, "old");
		last = b;
	}
	ck_assert_int_eq(xseg_volume_open(&seg, peer, epoch, 0, 99, &b), -ENOSPC);
	xseg_volume_close(last);
	ck_assert_int_eq(xseg_volume_open(&seg, peer, epoch, 0, 99, &b), 0);
	ck_assert_ptr_eq(b, last);
	ck_assert(xseg_volume_view(&seg, (uint32_t)(b - seg.volumes), &view));
	ck_assert_str_eq(view.name, "");
	ck_assert_uint_eq(view.bytes[XSEG_VOLUME_OP_FLUSH], 0);
	ck_assert_uint_eq(atomic_load(&b->latency[XSEG_VOLUME_OP_FLUSH].sum), 0);
	/* whose peer has gone is anybody's */
	xseg_peer_leave(&seg, peer);
	ck_assert_int_eq(xseg_peer_join(&seg, "q", "role", 1, &peer, &epoch), 0);
	for (unsigned i = 0; i < seg.volume_count; i++)
		ck_assert_int_eq(xseg_volume_open(&seg, peer, epoch, 0, i + 1, &b), 0);
	scratch_segment_end(&seg);
}
