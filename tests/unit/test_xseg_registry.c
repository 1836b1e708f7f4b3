/* SPDX-License-Identifier: Apache-2.0 */
/* The registry: a dead process' lane and name are taken over, a living one's are not. */
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <xseg/registry.h>

#include "tests/lib/unit.h"

static struct xseg seg;

static void setup(void) { scratch_segment(&seg, 0, 4, 64); }

struct claimed {
	_Atomic int ready;
	uint32_t lane, peer;
	uint16_t lane_epoch, peer_epoch;
};

/* Shared with children: a page of the segment nobody uses. */
static struct claimed *board(void) { return (void *)xseg_page_address(&seg, seg.page_count - 1); }

static int claim_and_wait(void *name)
{
	struct claimed *b = board();
	child_check(xseg_lane_claim(&seg, &b->lane, &b->lane_epoch) == 0);
	child_check(
		xseg_peer_join(&seg, name, "role", 1ull << b->lane, &b->peer, &b->peer_epoch) == 0);
	atomic_store(&b->ready, 1);
	pause();
	return 0;
}

static pid_t start_claimer(const char *name)
{
	atomic_store(&board()->ready, 0);
	pid_t pid = child_start(claim_and_wait, (void *)name);
	for (unsigned i = 0; i < 120000 && !atomic_load(&board()->ready); i++)
		usleep(1000);
	ck_assert_int_eq(atomic_load(&board()->ready), 1);
	return pid;
}

UNIT(test_lanes)
{
	setup();
	uint32_t lane[5];
	uint16_t epoch[5];
	for (unsigned i = 0; i < 4; i++) {
		ck_assert_int_eq(xseg_lane_claim(&seg, &lane[i], &epoch[i]), 0);
		ck_assert_uint_lt(lane[i], 4);
		ck_assert(xseg_lane_alive(&seg, lane[i], epoch[i]));
		ck_assert(!xseg_lane_alive(&seg, lane[i], (uint16_t)(epoch[i] + 1)));
		for (unsigned k = 0; k < i; k++)
			ck_assert_uint_ne(lane[i], lane[k]);
	}
	/* the segment has rings for four */
	ck_assert_int_eq(xseg_lane_claim(&seg, &lane[4], &epoch[4]), -ENOSPC);
	xseg_lane_release(&seg, lane[2]);
	ck_assert(!xseg_lane_alive(&seg, lane[2], epoch[2]));
	ck_assert_int_eq(xseg_lane_claim(&seg, &lane[4], &epoch[4]), 0);
	ck_assert_uint_eq(lane[4], lane[2]);
	ck_assert_uint_ne(epoch[4], epoch[2]);
	ck_assert(!xseg_lane_alive(&seg, lane[2], epoch[2]));
	scratch_segment_end(&seg);
}

UNIT(test_peer)
{
	setup();
	uint32_t peer, other;
	uint16_t epoch, epoch2;
	struct xseg_peer_view v;
	uint64_t generation = atomic_load(&seg.super->generation);
	ck_assert_int_eq(xseg_peer_find(&seg, "front0", &v), -ENOENT);
	ck_assert_int_eq(xseg_peer_join(&seg, "front0", "front_nbd", 5, &peer, &epoch), 0);
	ck_assert_uint_gt(atomic_load(&seg.super->generation), generation);
	ck_assert_int_eq(xseg_peer_find(&seg, "front0", &v), 0);
	ck_assert_uint_eq(v.index, peer);
	ck_assert_int_eq(v.life, XSEG_LIFE_ALIVE);
	ck_assert_int_eq(v.pid, getpid());
	ck_assert_uint_eq(v.epoch, epoch);
	ck_assert_uint_eq(v.lanes, 5);
	ck_assert_uint_gt(v.joined_ns, 0);
	ck_assert_str_eq(v.name, "front0");
	ck_assert_str_eq(v.role, "front_nbd");
	ck_assert_int_eq(xseg_peer_join(&seg, "front0", "front_nbd", 5, &other, &epoch2), -EEXIST);
	xseg_peer_draining(&seg, peer);
	ck_assert(xseg_peer_view(&seg, peer, &v));
	ck_assert_int_eq(v.life, XSEG_LIFE_DRAINING);
	ck_assert_int_eq(xseg_peer_join(&seg, "front0", "front_nbd", 5, &other, &epoch2), -EEXIST);
	xseg_peer_leave(&seg, peer);
	ck_assert_int_eq(xseg_peer_find(&seg, "front0", &v), -ENOENT);
	ck_assert(!xseg_peer_view(&seg, peer, &v));
	ck_assert_int_eq(xseg_peer_join(&seg, "front0", "front_nbd", 5, &other, &epoch2), 0);
	ck_assert_uint_ne(epoch2, epoch);
	scratch_segment_end(&seg);
}

UNIT(test_bad_peers)
{
	setup();
	uint32_t peer;
	uint16_t epoch;
	struct xseg_peer_view v;
	ck_assert_int_eq(xseg_peer_join(&seg, "a b", "role", 1, &peer, &epoch), -EINVAL);
	ck_assert_int_eq(xseg_peer_join(&seg, "", "role", 1, &peer, &epoch), -EINVAL);
	char name[NAME_LENGTH_MAX + 1];
	for (unsigned i = 0; i < XSEG_PEERS_MAX; i++) {
		snprintf(name, sizeof(name), "peer%u", i);
		ck_assert_int_eq(xseg_peer_join(&seg, name, "role", 1, &peer, &epoch), 0);
	}
	ck_assert_int_eq(xseg_peer_join(&seg, "late", "role", 1, &peer, &epoch), -ENOSPC);
	ck_assert(!xseg_peer_view(&seg, XSEG_PEERS_MAX, &v));
	ck_assert(!xseg_peer_view(&seg, XSEG_NONE, &v));
	ck_assert(!xseg_lane_alive(&seg, XSEG_NONE, 1));
	scratch_segment_end(&seg);
}

UNIT(test_takeover)
{
	setup();
	pid_t child = start_claimer("worker");
	struct claimed first = *board();
	struct xseg_peer_view v;
	uint32_t peer, lane[4];
	uint16_t epoch, lane_epoch[4];
	/* the living keep what they have */
	ck_assert(xseg_lane_alive(&seg, first.lane, first.lane_epoch));
	ck_assert_int_eq(xseg_peer_join(&seg, "worker", "role", 1, &peer, &epoch), -EEXIST);
	for (unsigned i = 0; i < 3; i++) {
		ck_assert_int_eq(xseg_lane_claim(&seg, &lane[i], &lane_epoch[i]), 0);
		ck_assert_uint_ne(lane[i], first.lane);
	}
	ck_assert_int_eq(xseg_lane_claim(&seg, &lane[3], &lane_epoch[3]), -ENOSPC);
	child_kill(child);
	/* the dead do not */
	ck_assert(!xseg_lane_alive(&seg, first.lane, first.lane_epoch));
	ck_assert_int_eq(xseg_peer_find(&seg, "worker", &v), 0);
	ck_assert_int_eq(v.life, XSEG_LIFE_DEAD);
	ck_assert_int_eq(xseg_lane_claim(&seg, &lane[3], &lane_epoch[3]), 0);
	ck_assert_uint_eq(lane[3], first.lane);
	ck_assert_uint_ne(lane_epoch[3], first.lane_epoch);
	ck_assert(xseg_lane_alive(&seg, lane[3], lane_epoch[3]));
	ck_assert(!xseg_lane_alive(&seg, first.lane, first.lane_epoch));
	ck_assert_int_eq(xseg_peer_join(&seg, "worker", "role", 1, &peer, &epoch), 0);
	ck_assert_uint_ne(epoch, first.peer_epoch);
	ck_assert_int_eq(xseg_peer_find(&seg, "worker", &v), 0);
	ck_assert_int_eq(v.life, XSEG_LIFE_ALIVE);
	scratch_segment_end(&seg);
}

/* A zombie is dead: its keeper has not waited for it yet, but it will never run again. */
UNIT(test_zombie)
{
	setup();
	pid_t child = start_claimer("zombie");
	struct claimed first = *board();
	ck_assert_int_eq(kill(child, SIGKILL), 0);
	bool alive = true;
	for (unsigned i = 0; i < 120000 && alive; i++) {
		alive = xseg_lane_alive(&seg, first.lane, first.lane_epoch);
		usleep(1000);
	}
	ck_assert_msg(!alive, "the lane of a zombie counts as living");
	struct xseg_peer_view v;
	ck_assert_int_eq(xseg_peer_find(&seg, "zombie", &v), 0);
	ck_assert_int_eq(v.life, XSEG_LIFE_DEAD);
	child_kill(child);
	scratch_segment_end(&seg);
}

/* A pid used again is another process: told by its start time. */
UNIT(test_reused_pid)
{
	setup();
	pid_t child = start_claimer("again");
	struct claimed first = *board();
	seg.lanes[first.lane].start_time -= 1; /* as if an older process had left the entry */
	seg.peers[first.peer].start_time -= 1;
	struct xseg_peer_view v;
	ck_assert(!xseg_lane_alive(&seg, first.lane, first.lane_epoch));
	ck_assert_int_eq(xseg_peer_find(&seg, "again", &v), 0);
	ck_assert_int_eq(v.life, XSEG_LIFE_DEAD);
	child_kill(child);
	scratch_segment_end(&seg);
}

UNIT(test_start_time)
{
	uint64_t mine = xseg_process_start_time(getpid());
	ck_assert_uint_gt(mine, 0);
	ck_assert_uint_eq(xseg_process_start_time(getpid()), mine);
	ck_assert_uint_eq(xseg_process_start_time(0x7fffffff), 0);
}

static int claim_all_the_time(void *arg)
{
	(void)arg;
	_Atomic uint32_t *owner = (void *)board();
	for (unsigned i = 0; i < 3000; i++) {
		uint32_t lane;
		uint16_t epoch;
		if (xseg_lane_claim(&seg, &lane, &epoch) != 0)
			continue;
		uint32_t nobody = 0;
		child_check(
			atomic_compare_exchange_strong(&owner[lane], &nobody, (uint32_t)getpid()));
		child_check(atomic_exchange(&owner[lane], 0) == (uint32_t)getpid());
		xseg_lane_release(&seg, lane);
	}
	return 0;
}

/* Six processes want four lanes: no lane is ever given to two. */
UNIT(test_race)
{
	setup();
	memset(board(), 0, sizeof(*board()));
	pid_t child[6];
	for (unsigned i = 0; i < 6; i++)
		child[i] = child_start(claim_all_the_time, NULL);
	for (unsigned i = 0; i < 6; i++)
		ck_assert_int_eq(child_end(child[i]), 0);
	scratch_segment_end(&seg);
}

#define RACERS 3u

struct race {
	_Atomic uint32_t arrived, done, winners;
};

static void meet(_Atomic uint32_t *count, uint32_t want)
{
	atomic_fetch_add(count, 1);
	while (atomic_load(count) < want)
		sched_yield();
}

static int join_same_name(void *arg)
{
	(void)arg;
	struct race *r = (void *)board();
	for (uint32_t i = 1; i <= 500; i++) {
		uint32_t peer;
		uint16_t epoch;
		meet(&r->arrived, i * RACERS);
		bool won = xseg_peer_join(&seg, "unique", "role", 1, &peer, &epoch) == 0;
		if (won)
			atomic_fetch_add(&r->winners, 1);
		meet(&r->done, i * RACERS);
		child_check(atomic_load(&r->winners) == i); /* one, neither two nor none */
		if (won)
			xseg_peer_leave(&seg, peer);
	}
	return 0;
}

/* Several processes want one name at the same moment: one of them gets it. */
UNIT(test_name_race)
{
	setup();
	memset(board(), 0, sizeof(struct race));
	pid_t child[RACERS];
	for (unsigned i = 0; i < RACERS; i++)
		child[i] = child_start(join_same_name, NULL);
	for (unsigned i = 0; i < RACERS; i++)
		ck_assert_int_eq(child_end(child[i]), 0);
	scratch_segment_end(&seg);
}

/* Random records: views and look-ups stay within bounds and say dead or free. */
UNIT(test_wild)
{
	setup();
	uint64_t seed = 11;
	struct xseg_peer_view v;
	for (unsigned round = 0; round < 200; round++) {
		uint8_t *bytes = (uint8_t *)seg.peers;
		for (size_t i = 0; i < XSEG_PEERS_MAX * sizeof(struct xseg_peer_record); i++)
			bytes[i] = (uint8_t)random_next(&seed);
		for (uint32_t i = 0; i < XSEG_PEERS_MAX; i++)
			if (xseg_peer_view(&seg, i, &v)) {
				ck_assert_uint_le(strlen(v.name), NAME_LENGTH_MAX);
				ck_assert_uint_le(strlen(v.role), NAME_LENGTH_MAX);
				ck_assert_int_le(v.life, XSEG_LIFE_DEAD);
			}
		xseg_peer_find(&seg, "x", &v);
		for (uint32_t i = 0; i < 4; i++) {
			atomic_store(&seg.lanes[i].word, random_next(&seed));
			xseg_lane_alive(&seg, i, (uint16_t)random_next(&seed));
		}
	}
	scratch_segment_end(&seg);
}

/* A log level that was asked for belongs to the name: a successor has it, another one has not. */
UNIT(test_log_level)
{
	uint32_t peer;
	uint16_t epoch;
	scratch_segment(&seg, 0, 2, 64);
	ck_assert_int_eq(xseg_peer_join(&seg, "a", "role", 1, &peer, &epoch), 0);
	ck_assert_uint_eq(atomic_load(&seg.peers[peer].log_level), 0);
	atomic_store(&seg.peers[peer].log_level, 7);
	xseg_peer_leave(&seg, peer);
	ck_assert_int_eq(xseg_peer_join(&seg, "a", "role", 1, &peer, &epoch), 0);
	ck_assert_uint_eq(atomic_load(&seg.peers[peer].log_level), 7);
	xseg_peer_leave(&seg, peer);
	ck_assert_int_eq(xseg_peer_join(&seg, "b", "role", 1, &peer, &epoch), 0);
	ck_assert_uint_eq(atomic_load(&seg.peers[peer].log_level), 0);
	scratch_segment_end(&seg);
}
