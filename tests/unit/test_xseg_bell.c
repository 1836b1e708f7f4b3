/* SPDX-License-Identifier: Apache-2.0 */
/* Bells: no wake-up is lost, none is needed when awake, and spinning adapts. */
#include <base/path.h>
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/stat.h>
#include <xseg/bell.h>
#include <xseg/lane.h>
#include <xseg/registry.h>

#include "tests/lib/unit.h"

#define FAR_NS 20000000000ull /* longer than any test may take */

static struct xseg seg;

struct board {
	_Alignas(128) _Atomic uint32_t sent;
	_Alignas(128) _Atomic uint32_t seen;
	_Alignas(128) _Atomic uint32_t ready;
};

static struct board *board(void) { return (void *)xseg_page_address(&seg, seg.page_count - 1); }

static void setup(void)
{
	scratch_segment(&seg, 0, 4, 64);
	memset(board(), 0, sizeof(struct board));
	uint32_t lane;
	uint16_t epoch;
	ck_assert_int_eq(xseg_lane_claim(&seg, &lane, &epoch), 0);
	ck_assert_uint_eq(lane, 0);
}

UNIT(test_arm_disarm)
{
	setup();
	_Atomic uint32_t *asleep = &seg.lanes[0].bell.asleep;
	ck_assert_uint_eq(atomic_load(asleep), 0);
	xseg_bell_arm(&seg, 0);
	ck_assert_uint_eq(atomic_load(asleep), 1);
	xseg_bell_disarm(&seg, 0);
	ck_assert_uint_eq(atomic_load(asleep), 0);
	/* rung between arming and waiting: no sleep */
	struct xseg_ringer ringer;
	xseg_ringer_init(&ringer, &seg);
	xseg_bell_arm(&seg, 0);
	xseg_bell_ring(&ringer, 0);
	ck_assert_uint_eq(atomic_load(asleep), 0);
	uint64_t start = clock_now_ns();
	xseg_bell_wait(&seg, 0, FAR_NS);
	ck_assert_uint_lt(clock_now_ns() - start, FAR_NS / 4);
	/* ringing somebody who is awake does nothing */
	xseg_bell_ring(&ringer, 0);
	ck_assert_uint_eq(atomic_load(asleep), 0);
	xseg_ringer_fini(&ringer);
	scratch_segment_end(&seg);
}

UNIT(test_timeout)
{
	setup();
	xseg_bell_arm(&seg, 0);
	uint64_t start = clock_now_ns();
	xseg_bell_wait(&seg, 0, 20000000);
	ck_assert_uint_ge(clock_now_ns() - start, 19000000);
	ck_assert_uint_eq(atomic_load(&seg.lanes[0].bell.asleep), 0);
	scratch_segment_end(&seg);
}

struct style {
	uint32_t count;
	bool pace; /* gives the sleeper time to fall asleep now and then */
};

/* Publishes a number, rings, waits until it was seen; all by the rules of bell.h. */
static int ringer_process(void *arg)
{
	const struct style *style = arg;
	struct xseg_ringer ringer;
	xseg_ringer_init(&ringer, &seg);
	while (!atomic_load(&board()->ready))
		usleep(100);
	for (uint32_t i = 1; i <= style->count; i++) {
		if (style->pace && i % 7 == 0)
			usleep(i % 300);
		atomic_store_explicit(&board()->sent, i, memory_order_release);
		atomic_thread_fence(memory_order_seq_cst);
		xseg_bell_ring(&ringer, 0);
		while (atomic_load_explicit(&board()->seen, memory_order_acquire) != i)
			cpu_relax();
	}
	xseg_ringer_fini(&ringer);
	return 0;
}

static bool news(uint32_t seen)
{
	return atomic_load_explicit(&board()->sent, memory_order_acquire) != seen;
}

/* Sleeps on the futex whenever there is nothing; a lost wake-up would last FAR_NS. */
static void sleep_through(const struct style *style)
{
	setup();
	pid_t child = child_start(ringer_process, (void *)style);
	atomic_store(&board()->ready, 1);
	for (uint32_t seen = 0; seen < style->count;) {
		if (news(seen)) {
			atomic_store_explicit(&board()->seen, ++seen, memory_order_release);
			continue;
		}
		xseg_bell_arm(&seg, 0);
		if (news(seen)) {
			xseg_bell_disarm(&seg, 0);
			continue;
		}
		uint64_t start = clock_now_ns();
		xseg_bell_wait(&seg, 0, FAR_NS);
		ck_assert_msg(clock_now_ns() - start < FAR_NS / 2, "wake-up %u was lost", seen + 1);
	}
	ck_assert_int_eq(child_end(child), 0);
	scratch_segment_end(&seg);
}

UNIT(test_futex)
{
	const struct style fast = {.count = 20000}, paced = {.count = 5000, .pace = true};
	sleep_through(&fast);
	sleep_through(&paced);
}

/* The same through a FIFO, for lanes that wait for sockets as well. */
UNIT(test_fd)
{
	const struct style style = {.count = 5000, .pace = true};
	int fd;
	setup();
	ck_assert_int_eq(xseg_bell_open_fd(&seg, 0, &fd), 0);
	ck_assert_uint_eq(seg.lanes[0].bell.kind, XSEG_BELL_FD);
	pid_t child = child_start(ringer_process, (void *)&style);
	atomic_store(&board()->ready, 1);
	for (uint32_t seen = 0; seen < style.count;) {
		if (news(seen)) {
			atomic_store_explicit(&board()->seen, ++seen, memory_order_release);
			continue;
		}
		xseg_bell_arm(&seg, 0);
		if (!news(seen)) {
			struct pollfd p = {.fd = fd, .events = POLLIN};
			ck_assert_msg(poll(&p, 1, 10000) == 1, "wake-up %u was lost", seen + 1);
		}
		xseg_bell_disarm(&seg, 0);
		xseg_bell_drain_fd(fd);
	}
	ck_assert_int_eq(child_end(child), 0);
	xseg_bell_close_fd(&seg, 0, fd);
	ck_assert_uint_eq(seg.lanes[0].bell.kind, XSEG_BELL_FUTEX);
	scratch_segment_end(&seg);
}

static bool readable(int fd)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};
	return poll(&p, 1, 0) == 1;
}

/* Either side is restarted: the FIFO stays, and ringing still reaches the sleeper. */
UNIT(test_fd_restart)
{
	int fd;
	struct xseg_ringer ringer;
	setup();
	xseg_ringer_init(&ringer, &seg);
	for (unsigned i = 0; i < 5; i++) {
		ck_assert_int_eq(xseg_bell_open_fd(&seg, 0, &fd), 0);
		xseg_bell_drain_fd(fd);
		ck_assert(!readable(fd));
		for (unsigned k = 0; k < 3; k++) {
			xseg_bell_arm(&seg, 0);
			xseg_bell_ring(&ringer, 0);
			ck_assert(readable(fd));
			xseg_bell_drain_fd(fd);
			ck_assert(!readable(fd));
			if (k == 1) { /* the ringer's process is new */
				xseg_ringer_fini(&ringer);
				xseg_ringer_init(&ringer, &seg);
			}
		}
		xseg_bell_close_fd(&seg, 0, fd);
	}
	/* nobody has the FIFO open: ringing does not block, kill or crash the ringer */
	seg.lanes[0].bell.kind = XSEG_BELL_FD;
	for (unsigned i = 0; i < 3; i++) {
		atomic_store(&seg.lanes[0].bell.asleep, 1);
		xseg_bell_ring(&ringer, 0);
	}
	/* it is gone altogether */
	char path[PATH_LENGTH_MAX];
	ck_assert_int_eq(path_run(path, seg.name, "bell.0"), 0);
	ck_assert_int_eq(unlink(path), 0);
	xseg_ringer_fini(&ringer);
	xseg_ringer_init(&ringer, &seg);
	atomic_store(&seg.lanes[0].bell.asleep, 1);
	xseg_bell_ring(&ringer, 0);
	xseg_ringer_fini(&ringer);
	scratch_segment_end(&seg);
}

/* A sleeper that does not drain: the pipe fills up, ringers go on. */
UNIT(test_fd_full)
{
	int fd;
	struct xseg_ringer ringer;
	setup();
	xseg_ringer_init(&ringer, &seg);
	ck_assert_int_eq(xseg_bell_open_fd(&seg, 0, &fd), 0);
	for (unsigned i = 0; i < 70000; i++) {
		atomic_store(&seg.lanes[0].bell.asleep, 1);
		xseg_bell_ring(&ringer, 0);
	}
	ck_assert(readable(fd));
	xseg_bell_drain_fd(fd);
	ck_assert(!readable(fd));
	xseg_bell_close_fd(&seg, 0, fd);
	xseg_ringer_fini(&ringer);
	scratch_segment_end(&seg);
}

UNIT(test_fd_no_folder)
{
	char file[200];
	int fd;
	setup();
	snprintf(file, sizeof(file), "%s/file", scratch_dir());
	FILE *f = fopen(file, "we");
	ck_assert_ptr_nonnull(f);
	fclose(f);
	setenv("SKERRY_RUN_DIR", file, 1); /* not a folder */
	ck_assert_int_lt(xseg_bell_open_fd(&seg, 0, &fd), 0);
	struct xseg_lane *lane;
	ck_assert_int_lt(xseg_lane_join(&seg, true, &lane), 0);
	/* the lane that could not be had is free again */
	ck_assert_int_eq(xseg_lane_join(&seg, false, &lane), 0);
	ck_assert_uint_eq(lane->index, 1);
	xseg_lane_leave(lane);
	scratch_segment_end(&seg);
}

UNIT(test_spin)
{
	struct xseg_spin spin;
	xseg_spin_init(&spin);
	ck_assert_uint_gt(spin.budget_ns, 0);
	/* it pays: never beyond the limit, and enough for what it waits for */
	for (unsigned i = 0; i < 1000; i++)
		xseg_spin_paid(&spin, 30000);
	ck_assert_uint_le(spin.budget_ns, XSEG_SPIN_MAX_NS);
	ck_assert_uint_ge(spin.budget_ns, 30000);
	/* it never does: soon next to nothing */
	uint64_t spent = 0;
	for (unsigned i = 0; i < 1000; i++) {
		spent += spin.budget_ns;
		xseg_spin_failed(&spin);
	}
	ck_assert_uint_lt(spent, 1000 * 2000);
	/* and it is tried again when things change */
	bool again = false;
	for (unsigned i = 0; i < 200 && !again; i++) {
		xseg_spin_failed(&spin);
		again = spin.budget_ns > 0;
	}
	ck_assert(again);
	for (unsigned i = 0; i < 100; i++)
		xseg_spin_paid(&spin, 500);
	ck_assert_uint_ge(spin.budget_ns, 500);
}
