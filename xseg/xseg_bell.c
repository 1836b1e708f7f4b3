/* SPDX-License-Identifier: Apache-2.0 */
/* Bells: sleeping without losing a wake-up. */
#include <base/clock.h>
#include <base/path.h>
#include <base/probe.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <xseg/bell.h>

static int fifo_path(const struct xseg *seg, uint32_t lane, char path[PATH_LENGTH_MAX])
{
	char leaf[32];
	snprintf(leaf, sizeof(leaf), "bell.%u", lane);
	return path_run(path, seg->name, leaf);
}

void xseg_ringer_init(struct xseg_ringer *ringer, const struct xseg *seg)
{
	ringer->seg = seg;
	for (unsigned i = 0; i < XSEG_LANES_MAX; i++)
		ringer->fd[i] = -1;
}

void xseg_ringer_fini(struct xseg_ringer *ringer)
{
	for (unsigned i = 0; i < XSEG_LANES_MAX; i++)
		if (ringer->fd[i] >= 0) {
			close(ringer->fd[i]);
			ringer->fd[i] = -1;
		}
}

/* For reading too: writing then never meets a pipe without a reader, whether the sleeper is just
   being restarted or not. */
static bool open_fd(struct xseg_ringer *ringer, uint32_t lane)
{
	char path[PATH_LENGTH_MAX];
	if (ringer->fd[lane] < 0 && fifo_path(ringer->seg, lane, path) == 0)
		ringer->fd[lane] = path_open(path, O_RDWR | O_NONBLOCK, 0);
	return ringer->fd[lane] >= 0;
}

static void ring_fd(struct xseg_ringer *ringer, uint32_t lane)
{
	for (int attempt = 0; attempt < 2 && open_fd(ringer, lane); attempt++) {
		/* a full pipe has been rung already */
		if (write(ringer->fd[lane], "!", 1) == 1 || errno == EAGAIN)
			return;
		close(ringer->fd[lane]);
		ringer->fd[lane] = -1;
	}
}

void xseg_bell_ring_slow(struct xseg_ringer *ringer, uint32_t lane)
{
	struct xseg_bell *bell = &ringer->seg->lanes[lane].bell;
	/* not there yet, or no descriptor is left: whoever rings next sees it asleep, too */
	if (xseg_peek(bell->kind) == XSEG_BELL_FD && !open_fd(ringer, lane))
		return;
	/* of several ringers one does the work */
	if (atomic_exchange_explicit(&bell->asleep, 0, memory_order_seq_cst) == 0)
		return;
	probe1(ring, lane);
	if (xseg_peek(bell->kind) == XSEG_BELL_FD)
		ring_fd(ringer, lane);
	else
		syscall(SYS_futex, &bell->asleep, FUTEX_WAKE, 1, NULL, NULL, 0);
}

void xseg_bell_init(const struct xseg *seg, uint32_t lane)
{
	struct xseg_bell *bell = &seg->lanes[lane].bell;
	xseg_poke(bell->kind, XSEG_BELL_FUTEX);
	atomic_store(&bell->asleep, 0);
}

int xseg_bell_open_fd(const struct xseg *seg, uint32_t lane, int *fd)
{
	char path[PATH_LENGTH_MAX];
	int ret = path_run(path, seg->name, NULL);
	if (ret == 0)
		ret = path_make_dir(path);
	if (ret == 0)
		ret = fifo_path(seg, lane, path);
	if (ret)
		return ret;
	/* an old one is kept: ringers that have it open still reach us */
	if (mkfifo(path, 0660) != 0 && errno != EEXIST)
		return -errno;
	*fd = open(path, O_RDWR | O_NONBLOCK | O_CLOEXEC);
	if (*fd < 0)
		return -errno;
	xseg_poke(seg->lanes[lane].bell.kind, XSEG_BELL_FD);
	return 0;
}

void xseg_bell_close_fd(const struct xseg *seg, uint32_t lane, int fd)
{
	close(fd);
	xseg_poke(seg->lanes[lane].bell.kind, XSEG_BELL_FUTEX);
}

void xseg_bell_arm(const struct xseg *seg, uint32_t lane)
{
	atomic_store_explicit(&seg->lanes[lane].bell.asleep, 1, memory_order_seq_cst);
	atomic_thread_fence(memory_order_seq_cst);
}

void xseg_bell_wait(const struct xseg *seg, uint32_t lane, uint64_t timeout_ns)
{
	struct xseg_bell *bell = &seg->lanes[lane].bell;
	struct timespec t = {.tv_sec = (time_t)(timeout_ns / 1000000000u),
		.tv_nsec = (long)(timeout_ns % 1000000000u)};
	probe2(sleep, lane, timeout_ns);
	syscall(SYS_futex, &bell->asleep, FUTEX_WAIT, 1, &t, NULL, 0);
	probe1(wake, lane);
	xseg_bell_disarm(seg, lane);
}

void xseg_bell_disarm(const struct xseg *seg, uint32_t lane)
{
	atomic_store_explicit(&seg->lanes[lane].bell.asleep, 0, memory_order_relaxed);
}

void xseg_bell_drain_fd(int fd)
{
	char sink[256];
	while (read(fd, sink, sizeof(sink)) == (ssize_t)sizeof(sink))
		;
}

/* --- how long to spin -------------------------------------------------------- */

/* after this many sleeps without luck, spin once again to see whether things have changed */
#define SPIN_PROBE_EVERY 64u
/* failures in a row that may be a partner that has to be woken first */
#define SPIN_PATIENCE 2u
#define SPIN_LEAST_NS 20000u

void xseg_spin_init(struct xseg_spin *spin)
{
	spin->budget_ns = XSEG_SPIN_MAX_NS;
	spin->failures = 0;
}

/* It came while we were spinning: allow some more than what it took. */
void xseg_spin_paid(struct xseg_spin *spin, uint64_t waited_ns)
{
	uint64_t want = waited_ns * 3 + 5000u;
	spin->failures = 0;
	if (want > spin->budget_ns)
		spin->budget_ns = (spin->budget_ns + want) / 2;
	else
		spin->budget_ns -= (spin->budget_ns - want) / 16;
	if (spin->budget_ns > XSEG_SPIN_MAX_NS)
		spin->budget_ns = XSEG_SPIN_MAX_NS;
	if (spin->budget_ns < SPIN_LEAST_NS)
		spin->budget_ns = SPIN_LEAST_NS;
}

/*
 * It did not. Once we sleep, so does our partner, and both must be woken: the next spins last as
 * long as that takes. If they fail too, our partner waits for this CPU, or nothing is going on.
 */
void xseg_spin_failed(struct xseg_spin *spin)
{
	spin->failures++;
	bool patient = spin->failures <= SPIN_PATIENCE || spin->failures % SPIN_PROBE_EVERY == 0;
	spin->budget_ns = patient ? XSEG_SPIN_MAX_NS : 0;
}
