/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The loop of a lane. One turn: the clock, the peers' own polls, rounds over the hints until
 * nothing is left (so that a stacked request passes all its peers in one turn), what workers and
 * waiters have, the bells of whoever got something. When nothing has moved: spin a while, sleep.
 */
#include <base/log.h>
#include <base/probe.h>
#include <errno.h>
#include <event2/event.h>
#include <sched.h>
#include <string.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "peers/core/core.h"

#define LANE_HINTS 64u /* taken at once */
/* In a turn, at most: the clock must not stand still, and polls and sockets want their share. */
#define LANE_ROUNDS 64u
#define LANE_TURN_HINTS 256u
#define LANE_RETRIES (1u << 20) /* waiting at once: more than there are jobs and connections */
#define LANE_LOOKS 4u		/* at the rings, between two turns without work */
#define LANE_GROUP 8u		/* requests taken before one is served */
#define LANE_YIELD_NS 1000u	/* without work; a reply of another CPU is here sooner */
#define LANE_SLOW_NS 10000000u
#define LANE_SLEEP_NS 1000000000u /* at most: the heartbeat */
#define LANE_WAITING_NS 200000u	  /* at most, while somebody waits for slots or pages */
#define LANE_DRAIN_NS 1000000u	  /* at most, while we wait for the last to end */
#define LANE_EVENTS_BUSY_NS 50000u
#define LANE_EVENTS_IDLE_NS 5000u

/* --- one turn --------------------------------------------------------------------- */

/* Of two steps the first for all, then the second for all: the lines come over side by side. */
static void lane_expect(struct job *const *job, uint32_t count)
{
	for (unsigned step = 0; step < 2; step++)
		for (uint32_t i = 0; i < count; i++)
			job[i]->peer->ops->expect(job[i]->peer, job[i], step);
}

/*
 * A few at a time: requests are taken before the first of them is served, so that what each will
 * touch is on its way while those before it are worked on. What comes from this lane itself is here
 * already.
 */
static void lane_group(struct lane *lane, const struct xseg_hint_message *hint, uint32_t count)
{
	struct job *job[LANE_GROUP], *far[LANE_GROUP];
	uint32_t far_count = 0;
	for (uint32_t i = 0; i < count; i++) {
		job[i] = NULL;
		if (hint[i].kind != XSEG_HINT_SUBMIT)
			xseg_prefetch_answer(lane->x, &hint[i]);
		else if (likely((job[i] = job_take(lane, hint[i].request)) != NULL) &&
			 job[i]->client != lane->x->index && job[i]->peer->ops->expect)
			far[far_count++] = job[i];
	}
	/* apart from the taking, whose locked instructions would wait for what this fetches */
	if (far_count > 1)
		lane_expect(far, far_count);
	for (uint32_t i = 0; i < count; i++) {
		if (job[i])
			job_serve(job[i]);
		else if (hint[i].kind == XSEG_HINT_REPLY)
			call_arrive(lane, hint[i].request);
		else if (unlikely(hint[i].kind != XSEG_HINT_SUBMIT))
			lane->stray++;
	}
}

static bool lane_rounds(struct lane *lane)
{
	struct xseg_hint_message hints[LANE_HINTS];
	uint32_t taken = 0;
	for (unsigned round = 0; round < LANE_ROUNDS && taken < LANE_TURN_HINTS; round++) {
		uint32_t count = xseg_poll(lane->x, hints, LANE_HINTS);
		if (count == 0)
			break;
		taken += count;
		uint32_t ahead = 0;
		for (uint32_t i = 0; i < count; i += LANE_GROUP) {
			for (; ahead < count && ahead < i + 2 * LANE_GROUP; ahead++)
				xseg_prefetch(lane->x, &hints[ahead]);
			lane_group(
				lane, &hints[i], count - i < LANE_GROUP ? count - i : LANE_GROUP);
		}
	}
	lane->polling.work += taken;
	return taken > 0;
}

static bool lane_poll_peers(struct lane *lane)
{
	bool moved = false;
	for (unsigned i = 0; i < lane->shard_count; i++) {
		struct peer *peer = &lane->shard[i]->peer;
		if (peer->ops->poll && lane->shard[i]->started)
			moved |= peer->ops->poll(peer);
	}
	return moved;
}

static bool lane_retries(struct lane *lane)
{
	bool moved = false;
	/* from the bottom up: those below free what those above wait for */
	for (unsigned i = lane->shard_count; i-- > 0;)
		if (unlikely(lane->shard[i]->retry_head != XSEG_NONE))
			moved |= retry_run(lane->shard[i]);
	return moved;
}

static void lane_events(struct lane *lane, uint64_t every_ns)
{
	if (!lane->base || lane->x->now_ns - lane->events_ns < every_ns)
		return;
	lane->events_ns = lane->x->now_ns;
	/* once: an event that nobody takes away here (a ring polled each turn) stays active */
	event_base_loop(lane->base, EVLOOP_ONCE | EVLOOP_NONBLOCK);
}

/* Numbers that stand for now, not for all time. */
static void lane_show(struct lane *lane)
{
	for (unsigned i = 0; i < lane->shard_count; i++) {
		struct shard *shard = lane->shard[i];
		if (!shard->started)
			continue;
		if (shard->jobs != shard->jobs_shown)
			atomic_store_explicit(&shard->peer.stats->counters[CORE_JOBS],
				shard->jobs_shown = shard->jobs, memory_order_relaxed);
		if (shard->calls != shard->calls_shown)
			atomic_store_explicit(&shard->peer.stats->counters[CORE_CALLS_OUT],
				shard->calls_shown = shard->calls, memory_order_relaxed);
		if (unlikely(lane->x->now_ns >= shard->volumes_sweep_ns)) {
			volume_sweep(shard, lane->x->now_ns);
			level_look(shard);
			xseg_resident_look();
		}
	}
}

static void lane_slow(struct lane *lane)
{
	for (unsigned i = 0; i < lane->shard_count; i++)
		if (lane->shard[i]->started)
			xseg_count(lane->shard[i]->peer.stats, CORE_SLOW_TURNS, 1);
}

/* Ours alone, read by anyone. */
static inline void add(_Atomic uint64_t *cell, uint64_t amount)
{
	atomic_store_explicit(cell, atomic_load_explicit(cell, memory_order_relaxed) + amount,
		memory_order_relaxed);
}

/*
 * The record says that we are dead: a reaper has given away what was ours, or the word is damaged.
 * Whoever goes on now works on what belongs to others; a successor finds all of it.
 */
_Noreturn static void lane_disowned(const struct lane *lane)
{
	log_error("core_lane",
		"lane %u of segment '%s' is not ours any more: its record was damaged or reaped; "
		"this process ends",
		lane->x->index, lane->x->seg->name);
	_exit(1);
}

/* The turn before this one is over: was it work, sleep, or looking? */
static void lane_clock(struct lane *lane)
{
	struct xseg *seg = lane->x->seg;
	uint64_t now = clock_now_ns();
	if (unlikely(now - lane->x->now_ns > LANE_SLOW_NS) && !lane->slept)
		lane_slow(lane);
	struct xseg_lane_record *record = &seg->lanes[lane->x->index];
	if (unlikely(atomic_load_explicit(&record->word, memory_order_relaxed) != lane->word))
		lane_disowned(lane);
	uint64_t passed = now - lane->turn_ns;
	if (lane->slept) {
		add(&record->asleep_ns, passed);
		add(&record->sleeps, 1);
	} else if (lane->moved) {
		add(&record->busy_ns, passed);
	}
	lane->turn_ns = lane->x->now_ns = now;
	lane->now_stale = false;
	lane->slept = false;
	lane->turn++;
	atomic_store_explicit(&record->turn_ns, now, memory_order_relaxed);
	atomic_store_explicit(&record->heartbeat, lane->turn, memory_order_relaxed);
}

static bool lane_turn(struct lane *lane)
{
	lane_clock(lane);
	bool moved = lane_poll_peers(lane);
	lane_events(lane, lane->idle_ns ? LANE_EVENTS_IDLE_NS : LANE_EVENTS_BUSY_NS);
	moved |= lane_rounds(lane);
	moved |= call_fail_pending(lane);
	moved |= post_collect(lane);
	moved |= lane_retries(lane);
	if (moved)
		lane_rounds(lane);
	xseg_turn_end(lane->x);
	lane_show(lane);
	lane->moved = moved;
	return moved;
}

/* --- sleeping ---------------------------------------------------------------------- */

/* Anything beside the rings that a bell would have been rung for. */
static bool lane_pending(struct lane *lane)
{
	return lane->failed || post_waiting(lane) ||
	       atomic_load_explicit(&lane->commands, memory_order_acquire);
}

/* How long we may sleep; 0: not at all. */
static uint64_t lane_sleep_ns(struct lane *lane)
{
	uint64_t most = lane->draining ? LANE_DRAIN_NS : LANE_SLEEP_NS, now = lane->x->now_ns;
	if (lane->x->overflowing)
		most = LANE_WAITING_NS / 2;
	for (unsigned i = 0; i < lane->shard_count; i++) {
		struct shard *shard = lane->shard[i];
		if (shard->retry_head != XSEG_NONE && most > LANE_WAITING_NS)
			most = LANE_WAITING_NS;
		if (!shard->wake_ns)
			continue;
		if (shard->wake_ns <= now) {
			shard->wake_ns = 0; /* this turn was the wake-up */
			return 0;
		}
		if (shard->wake_ns - now < most)
			most = shard->wake_ns - now;
	}
	return most;
}

static bool lane_may_sleep(struct lane *lane)
{
	for (unsigned i = 0; i < lane->shard_count; i++) {
		struct peer *peer = &lane->shard[i]->peer;
		if (peer->ops->sleep && lane->shard[i]->started && !peer->ops->sleep(peer))
			return false;
	}
	return true;
}

/* One that is set already and fires before that will do: a wake-up too many a second is less than a
   system call for each sleep. */
static void lane_set_timer(struct lane *lane, uint64_t timeout_ns)
{
	uint64_t at_ns = lane->x->now_ns + timeout_ns;
	if (lane->timer_ns && lane->timer_ns <= at_ns)
		return;
	struct itimerspec when = {.it_value = {.tv_sec = (time_t)(at_ns / 1000000000u),
					  .tv_nsec = (long)(at_ns % 1000000000u)}};
	timerfd_settime(lane->timer_fd, TFD_TIMER_ABSTIME, &when, NULL);
	lane->timer_ns = at_ns;
}

static void lane_wait_events(struct lane *lane, uint64_t timeout_ns)
{
	lane_set_timer(lane, timeout_ns);
	lane->now_stale = true; /* whoever is called from there looks at the clock first */
	probe2(sleep, lane->x->index, timeout_ns);
	event_base_loop(lane->base, EVLOOP_ONCE);
	probe1(wake, lane->x->index);
	lane->events_ns = clock_now_ns();
}

static void lane_sleep(struct lane *lane)
{
	struct xseg_lane *x = lane->x;
	/* sleep() may still set an alarm */
	if (!lane_may_sleep(lane))
		return;
	uint64_t timeout_ns = lane_sleep_ns(lane);
	if (timeout_ns == 0)
		return;
	if (polling_spins(&lane->polling, x))
		xseg_spin_failed(&x->spin);
	lane->slept = true;
	/* what sleep() may have sent must be on its way before we are gone */
	xseg_turn_end(x);
	if (!xseg_arm(x))
		return;
	if (lane_pending(lane)) {
		xseg_bell_disarm(x->seg, x->index);
	} else if (lane->base) {
		lane_wait_events(lane, timeout_ns);
		xseg_bell_disarm(x->seg, x->index);
		xseg_turn_end(x);
	} else {
		xseg_bell_wait(x->seg, x->index, timeout_ns);
	}
}

/* Nothing has moved: go on looking for as long as that has paid of late, then sleep. */
static void lane_idle(struct lane *lane)
{
	struct xseg_spin *spin = &lane->x->spin;
	if (lane->idle_ns == 0)
		lane->idle_ns = lane->x->now_ns;
	uint64_t idle_ns = lane->x->now_ns - lane->idle_ns;
	if (polling_spins(&lane->polling, lane->x) && idle_ns < spin->budget_ns) {
		/* whoever was woken on this CPU, a client most likely, goes first */
		if (idle_ns >= LANE_YIELD_NS)
			sched_yield();
		/* a look at the rings is cheaper than a turn, and what comes is seen sooner */
		for (unsigned i = 0; i < LANE_LOOKS && !xseg_pending(lane->x); i++)
			cpu_relax();
		return;
	}
	lane_sleep(lane);
	lane->idle_ns = 0;
}

static void lane_busy(struct lane *lane)
{
	if (lane->idle_ns == 0)
		return;
	xseg_spin_paid(&lane->x->spin, lane->x->now_ns - lane->idle_ns);
	lane->idle_ns = 0;
}

/* --- what the main thread asks for ---------------------------------------------------- */

static void lane_shard_finished(struct lane *lane, struct shard *shard)
{
	struct host *host = lane->host;
	/* from here on only its part of a flush that another shard has begun; all else that comes
	   stays in the table for whoever binds the port next */
	shard->finished = true;
	pthread_mutex_lock(&host->mutex);
	atomic_fetch_add(&shard->owner->shards_done, 1);
	pthread_cond_broadcast(&host->changed);
	pthread_mutex_unlock(&host->mutex);
}

static void lane_stop_shards(struct lane *lane)
{
	unsigned asked = atomic_load(&lane->host->stopping);
	for (unsigned i = 0; i < lane->shard_count; i++) {
		struct shard *shard = lane->shard[i];
		if (shard->owner->rank >= asked || shard->finished)
			continue;
		if (!shard->peer.stopping) {
			shard->peer.stopping = true;
			if (shard->peer.ops->stop)
				shard->peer.ops->stop(&shard->peer);
		} else if (!xseg_pending(lane->x) && shard_idle(shard)) {
			lane_shard_finished(lane, shard);
		}
	}
}

static void lane_dump(struct lane *lane)
{
	struct host *host = lane->host;
	pthread_mutex_lock(&host->mutex);
	FILE *out = host->dump;
	if (out) {
		fprintf(out,
			"lane %u (lane %u of segment '%s'): turn %llu, spins for %llu ns, %llu "
			"stray\n",
			lane->index, lane->x->index, lane->x->seg->name,
			(unsigned long long)lane->turn, (unsigned long long)lane->x->spin.budget_ns,
			(unsigned long long)lane->stray);
		for (unsigned i = 0; i < lane->shard_count; i++)
			if (lane->shard[i]->started)
				shard_dump(lane->shard[i], out);
		fflush(out);
	}
	host->reported++;
	pthread_cond_broadcast(&host->changed);
	pthread_mutex_unlock(&host->mutex);
}

/* False: the lane is to end. */
static bool lane_obey(struct lane *lane)
{
	uint32_t commands = atomic_load_explicit(&lane->commands, memory_order_acquire);
	if (likely(commands == 0))
		return true;
	if (commands & LANE_DUMP) {
		atomic_fetch_and(&lane->commands, ~(uint32_t)LANE_DUMP);
		lane_dump(lane);
	}
	if (commands & LANE_WAKE) /* a turn is all it asks for */
		atomic_fetch_and(&lane->commands, ~(uint32_t)LANE_WAKE);
	if (commands & LANE_STOP) {
		atomic_fetch_and(&lane->commands, ~(uint32_t)LANE_STOP);
		lane->draining = true;
	}
	return !(commands & LANE_EXIT);
}

/* --- the event loop, for lanes that need one --------------------------------------------- */

static void lane_bell_rung(evutil_socket_t fd, short what, void *context)
{
	(void)what;
	(void)context;
	xseg_bell_drain_fd(fd);
}

static void lane_timer_rung(evutil_socket_t fd, short what, void *context)
{
	struct lane *lane = context;
	uint64_t times;
	(void)what;
	if (read(fd, &times, sizeof(times)) == (ssize_t)sizeof(times))
		lane->timer_ns = 0;
}

static void lane_close_events(struct lane *lane)
{
	if (lane->bell_event)
		event_free(lane->bell_event);
	if (lane->timer_event)
		event_free(lane->timer_event);
	if (lane->base)
		event_base_free(lane->base);
	if (lane->timer_fd >= 0)
		close(lane->timer_fd);
	lane->timer_fd = -1;
	lane->timer_ns = 0;
	lane->bell_event = lane->timer_event = NULL;
	lane->base = NULL;
}

static struct event_base *lane_new_base(void)
{
	struct event_config *config = event_config_new();
	if (!config)
		return NULL;
	/* one thread; the lane has a timer of its own, finer than these and not set at each wait */
	event_config_set_flag(config, EVENT_BASE_FLAG_NOLOCK);
	struct event_base *base = event_base_new_with_config(config);
	event_config_free(config);
	return base;
}

static int lane_open_events(struct lane *lane)
{
	struct xseg_lane *x = lane->x;
	int error = xseg_bell_open_fd(x->seg, x->index, &x->bell_fd);
	if (error)
		return error;
	lane->base = lane_new_base();
	lane->timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
	if (lane->base && lane->timer_fd >= 0) {
		lane->bell_event = event_new(
			lane->base, x->bell_fd, EV_READ | EV_PERSIST, lane_bell_rung, NULL);
		lane->timer_event = event_new(
			lane->base, lane->timer_fd, EV_READ | EV_PERSIST, lane_timer_rung, lane);
	}
	if (lane->bell_event && lane->timer_event && event_add(lane->bell_event, NULL) == 0 &&
		event_add(lane->timer_event, NULL) == 0)
		return 0;
	lane_close_events(lane);
	return -ENOMEM;
}

struct event_base *peer_event_base(struct peer *peer)
{
	struct lane *lane = peer->lane;
	if (!lane->base) {
		int error = lane_open_events(lane);
		if (error)
			log_error("core_lane",
				"no event loop for peer '%s' (run folder of '%s'): %s", peer->name,
				lane->x->seg->name, strerror(-error));
	}
	return lane->base;
}

/* --- entry points ------------------------------------------------------------------------ */

int lane_init(struct lane *lane)
{
	struct xseg *seg = &lane->host->seg;
	uint32_t count = seg->request_count;
	lane->failed_tail = &lane->failed;
	lane->timer_fd = -1;
	cds_wfcq_init(&lane->post_head, &lane->post_tail);
	int error = xseg_lane_join(seg, false, &lane->x);
	if (error)
		return error;
	lane->place = lane->x->index;
	lane->word = atomic_load(&seg->lanes[lane->place].word);
	lane->turn_ns = lane->x->now_ns;
	error = slab_init(&lane->jobs, sizeof(struct job), count);
	if (!error)
		error = slab_init(&lane->calls, sizeof(struct call), count);
	if (!error)
		error = slab_init(&lane->lists, sizeof(struct extent_list), 2 * count);
	if (!error)
		error = slab_init(&lane->retries, sizeof(struct retry), LANE_RETRIES);
	if (error)
		lane_fini(lane);
	return error;
}

void lane_fini(struct lane *lane)
{
	lane_close_events(lane);
	slab_fini(&lane->jobs);
	slab_fini(&lane->calls);
	slab_fini(&lane->lists);
	slab_fini(&lane->retries);
	if (lane->x)
		xseg_lane_leave(lane->x);
	lane->x = NULL;
}

void lane_ring(struct lane *lane)
{
	struct host *host = lane->host;
	struct xseg_bell *bell = &host->seg.lanes[lane->place].bell;
	atomic_thread_fence(memory_order_seq_cst);
	if (!atomic_load_explicit(&bell->asleep, memory_order_relaxed))
		return;
	/* its descriptors are shared by the threads of this process that ring */
	pthread_mutex_lock(&host->ring_mutex);
	xseg_bell_ring_slow(&host->ringer, lane->place);
	pthread_mutex_unlock(&host->ring_mutex);
}

void lane_run(struct lane *lane)
{
	while (lane_obey(lane)) {
		if (lane_turn(lane))
			lane_busy(lane);
		else
			lane_idle(lane);
		if (unlikely(lane->draining))
			lane_stop_shards(lane);
	}
}
