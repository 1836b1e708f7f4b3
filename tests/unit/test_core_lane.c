/* SPDX-License-Identifier: Apache-2.0 */
/* The loop: it sleeps when there is nothing, wakes for all there can be, counts its turns. */
#include <base/time.h>
#include <event2/event.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "tests/unit/core_rig.h"

static const char *const one_store[] = {"a=t_store", NULL};

static uint64_t cpu_ns(void)
{
	struct timespec t;
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return time_of(&t);
}

/* t_quiet has no polls and no timers: its lane must not run while nothing comes. */
static void quiet_delete(struct peer *peer, struct job *job)
{
	(void)peer;
	job_complete(job, 0);
}

static const struct peer_ops quiet_ops = {
	.name = "t_quiet", .summary = "sleeps", .on = {[XSEG_OP_DELETE] = quiet_delete}};

RIG_PEEK static uint64_t turns_of(struct rig *rig) { return rig->host.lanes[0].turn; }

RIG_PEEK static uint64_t strays_of(struct rig *rig) { return rig->host.lanes[0].stray; }

UNIT(test_sleeps)
{
	static const char *const specs[] = {"a=t_quiet", NULL};
	struct rig rig;
	module_register(&quiet_ops);
	rig_begin(&rig, 0, 2, specs);
	rig_ask(&rig, "a");
	for (unsigned i = 0; i < 200; i++) { /* slow enough for it to fall asleep in between */
		ck_assert_int_eq(rig_do(&rig, XSEG_OP_DELETE, 0, 0, NULL), 0);
		usleep(500);
	}
	usleep(20000);
	uint64_t before = cpu_ns(), turns = turns_of(&rig);
	usleep(400000);
	ck_assert_uint_lt(turns_of(&rig) - turns, 2000);
	ck_assert_uint_lt(cpu_ns() - before, 200000000); /* spinning would be four times that */
	ck_assert_uint_gt(atomic_load(&rig.seg.lanes[rig.host.lanes[0].place].heartbeat), 0);
	rig_end(&rig);
}

/* --- a lane that sleeps in its event loop ------------------------------------------------- */

struct looper {
	struct event *readable, *timer;
	int fds[2];
	_Atomic unsigned bytes, ticks, polls;
	_Atomic uint64_t late_ns;
	uint64_t due_ns;
};

static struct looper *looper_state;

static void looper_read(evutil_socket_t fd, short what, void *context)
{
	(void)what, (void)context;
	char byte;
	if (read(fd, &byte, 1) == 1)
		atomic_fetch_add(&looper_state->bytes, 1);
}

/* Now must be now, however long the lane has slept. */
static void looper_tick(evutil_socket_t fd, short what, void *context)
{
	(void)fd, (void)what;
	uint64_t now = clock_now_ns(), lane_says = peer_now_ns(context);
	atomic_store(&looper_state->late_ns, now > lane_says ? now - lane_says : 0);
	atomic_fetch_add(&looper_state->ticks, 1);
}

static int looper_start(struct peer *peer, char *why, size_t why_size)
{
	(void)why, (void)why_size;
	struct looper *looper = looper_state;
	struct event_base *base = peer_event_base(peer);
	const struct timeval every = {.tv_usec = 30000};
	if (!base || pipe(looper->fds))
		return -1;
	looper->readable = event_new(base, looper->fds[0], EV_READ | EV_PERSIST, looper_read, peer);
	looper->timer = event_new(base, -1, EV_PERSIST, looper_tick, peer);
	return event_add(looper->readable, NULL) || event_add(looper->timer, &every) ? -1 : 0;
}

static void looper_finish(struct peer *peer)
{
	(void)peer;
	event_free(looper_state->readable);
	event_free(looper_state->timer);
	close(looper_state->fds[0]);
	close(looper_state->fds[1]);
}

static const struct peer_ops looper_ops = {.name = "t_looper",
	.summary = "waits for descriptors",
	.start = looper_start,
	.finish = looper_finish,
	.on = {[XSEG_OP_DELETE] = quiet_delete}};

UNIT(test_event_loop)
{
	static const char *const specs[] = {"a=t_store", "l=t_looper", NULL};
	static struct looper looper;
	struct rig rig;
	uint64_t elsewhere = 0;
	looper_state = &looper;
	module_register(&looper_ops);
	rig_begin(&rig, 0, 1, specs);
	for (unsigned i = 1; i <= 20; i++) { /* asleep: woken by the descriptor */
		usleep(2000);
		ck_assert_int_eq(write(looper.fds[1], "x", 1), 1);
		RIG_UNTIL(atomic_load(&looper.bytes) == i);
	}
	rig_ask(&rig, "l"); /* by a ring's bell */
	for (unsigned i = 0; i < 50; i++) {
		usleep(1000);
		ck_assert_int_eq(rig_do(&rig, XSEG_OP_DELETE, 0, 0, NULL), 0);
	}
	rig_ask(&rig, "a"); /* by a worker */
	for (unsigned i = 0; i < 20; i++)
		ck_assert_int_eq(rig_do(&rig, XSEG_OP_CLOSE, 0, 0, &elsewhere), 0);
	unsigned ticks = atomic_load(&looper.ticks);
	RIG_UNTIL(atomic_load(&looper.ticks) > ticks + 2); /* by a timer */
	ck_assert_uint_lt(looper.late_ns, 20000000);
	rig_end(&rig);
}

/* Busy with requests all the time: descriptors do not starve. */
UNIT(test_busy_event_loop)
{
	static const char *const specs[] = {"l=t_looper", NULL};
	static struct looper looper;
	static struct client_request requests[32];
	struct rig rig;
	looper_state = &looper;
	module_register(&looper_ops);
	rig_begin(&rig, 0, 1, specs);
	rig_ask(&rig, "l");
	for (unsigned i = 0; i < countof(requests); i++) {
		requests[i] = (struct client_request){.op = XSEG_OP_DELETE, .key = {.volume = 1}};
		ck_assert_int_eq(client_start(&rig.client, &requests[i]), 0);
	}
	ck_assert_int_eq(write(looper.fds[1], "x", 1), 1);
	for (unsigned i = 0; i < 2000000 && !atomic_load(&looper.bytes); i++) {
		struct client_request *done;
		ck_assert_int_eq(client_collect(&rig.client, &done), 0);
		ck_assert_int_eq(client_start(&rig.client, done), 0);
	}
	ck_assert_uint_eq(looper.bytes, 1);
	rig_end(&rig);
}

/* A turn that takes too long is noticed, sleep is not taken for one. */
static void slow_delete(struct peer *peer, struct job *job)
{
	(void)peer;
	if (job->key.object == 1)
		usleep(15000);
	job_complete(job, 0);
}

static const struct peer_ops slow_ops = {
	.name = "t_slow", .summary = "dawdles", .on = {[XSEG_OP_DELETE] = slow_delete}};

UNIT(test_slow_turn)
{
	static const char *const specs[] = {"a=t_slow", NULL};
	struct rig rig;
	struct client_request request = {.op = XSEG_OP_DELETE, .key = {.volume = 1, .object = 1}};
	module_register(&slow_ops);
	rig_begin(&rig, 0, 1, specs);
	rig_ask(&rig, "a");
	for (unsigned i = 0; i < 50; i++) {
		usleep(1000);
		ck_assert_int_eq(rig_do(&rig, XSEG_OP_DELETE, 0, 0, NULL), 0);
	}
	uint64_t before = rig_counter(&rig, "a", CORE_SLOW_TURNS);
	ck_assert_uint_lt(before, 25); /* whoever shares this machine may have made some */
	for (unsigned i = 0; i < 5; i++)
		ck_assert_int_eq(client_do(&rig.client, &request), 0);
	RIG_UNTIL(rig_counter(&rig, "a", CORE_SLOW_TURNS) >= before + 5);
	rig_end(&rig);
}

/* A peer asks to be woken each millisecond: of itself a lane that sleeps moves once a second. */
UNIT(test_wake_at)
{
	struct rig rig;
	rig_begin(&rig, 0, 1, one_store);
	rig_ask(&rig, "a");
	atomic_store(&rig_store(&rig, "a")->hold, true);
	struct client_request request = {.op = XSEG_OP_PREFETCH, .key = {.volume = 1}}, *done;
	ck_assert_int_eq(client_start(&rig.client, &request), 0);
	uint64_t turns = turns_of(&rig);
	RIG_UNTIL(turns_of(&rig) >= turns + 200);	  /* it does not wait for as many seconds */
	atomic_store(&rig_store(&rig, "a")->hold, false); /* rings no bell: its timer finds it */
	ck_assert_int_eq(client_collect(&rig.client, &done), 0);
	rig_end(&rig);
}

/* Hints that mean nothing: dropped and counted, and nothing else happens. */
UNIT(test_stray_hints)
{
	struct rig rig;
	uint8_t byte[512] = {0};
	rig_begin(&rig, 0, 1, one_store);
	rig_ask(&rig, "a");
	ck_assert_int_eq(rig_write(&rig, 0, byte, 512), 0);
	struct xseg_lane *lane = rig.client.lane;
	uint32_t to = rig.host.lanes[0].place;
	static const uint32_t wild[] = {0, 5, 127, 128, 1000000, 0xffffffff};
	for (unsigned i = 0; i < countof(wild); i++)
		for (unsigned kind = 0; kind < 3; kind++) {
			lane->dirty_bells |= 1ull << to;
			ck_assert(xseg_ring_put(&lane->tx[to], wild[i], kind));
		}
	xseg_turn_end(lane);
	ck_assert_int_eq(rig_write(&rig, 0, byte, 512), 0);
	RIG_UNTIL(strays_of(&rig) >= countof(wild) * 3 - 1);
	rig_end(&rig);
}

/* Whoever finds himself dead in the books goes, before he touches what is others' by now. */
/* --- requests in groups ------------------------------------------------------------------- */

/* What t_group was told of, in order: offsets of DELETEs; + GROUP_SAID: it was to expect one. */
#define GROUP_SAID 1000u
#define GROUP_MANY 11u
static uint64_t group_log[4 * GROUP_MANY];
static _Atomic unsigned group_logged, group_served;
static _Atomic bool group_asked;

static void group_note(uint64_t what)
{
	unsigned at = atomic_fetch_add(&group_logged, 1);
	if (at < countof(group_log))
		group_log[at] = what;
}

static void group_expect(struct peer *peer, struct job *job, unsigned step)
{
	(void)peer;
	if (step == 0)
		job->guess = (uint32_t)job->offset;
	else if (job->guess == job->offset)
		group_note(GROUP_SAID + job->offset);
}

/* The first one holds the lane until all others are there. */
static void group_delete(struct peer *peer, struct job *job)
{
	(void)peer;
	group_note(job->offset);
	while (job->offset == 0 && !atomic_load(&group_asked))
		usleep(1000);
	job_complete(job, (uint32_t)job->offset);
	atomic_fetch_add(&group_served, 1);
}

static const struct peer_ops group_ops = {.name = "t_group",
	.summary = "says what it was told",
	.expect = group_expect,
	.on = {[XSEG_OP_DELETE] = group_delete}};

static uint32_t group_ask(struct xseg_lane *lane, uint32_t port, uint64_t offset)
{
	uint32_t slot;
	ck_assert_int_eq(xseg_get(lane, &slot), 0);
	xseg_at(lane, slot)->frame[0] =
		(struct xseg_frame){.op = XSEG_OP_DELETE, .lane = XSEG_LANE_ANY, .offset = offset};
	ck_assert_int_eq(xseg_submit(lane, slot, port), 0);
	return slot;
}

/* How often it was told to expect it before it was served; and that was once, in order. */
static unsigned group_said(uint64_t offset)
{
	unsigned said = 0, served = 0;
	for (unsigned i = 0; i < atomic_load(&group_logged); i++) {
		said += group_log[i] == GROUP_SAID + offset && !served;
		served += group_log[i] == offset;
	}
	ck_assert_uint_eq(served, 1);
	return said;
}

/* Each is served once and in order, whether its hint comes alone, with others, or twice. */
UNIT(test_groups)
{
	static const char *const specs[] = {"a=t_group", NULL};
	struct rig rig;
	struct xseg_lane *lane;
	struct xseg_hint_message hint;
	uint32_t port, slot[GROUP_MANY];
	module_register(&group_ops);
	rig_begin(&rig, 0, 1, specs);
	rig_ask(&rig, "a");
	ck_assert_int_eq(xseg_lane_join(&rig.seg, false, &lane), 0);
	ck_assert_int_eq(xseg_port_find(&rig.seg, "a", &port), 0);
	slot[0] = group_ask(lane, port, 0);
	xseg_turn_end(lane);
	RIG_UNTIL(atomic_load(&group_logged) > 0);
	for (unsigned i = 1; i < GROUP_MANY; i++)
		slot[i] = group_ask(lane, port, i);
	xseg_ring_put(&lane->tx[rig.host.lanes[0].place], slot[2], XSEG_HINT_SUBMIT);
	xseg_turn_end(lane);
	atomic_store(&group_asked, true);
	RIG_UNTIL(atomic_load(&group_served) == GROUP_MANY);
	uint64_t last = 0;
	for (unsigned i = 0; i < atomic_load(&group_logged); i++)
		if (group_log[i] < GROUP_SAID) {
			ck_assert_uint_ge(group_log[i], last);
			last = group_log[i];
		}
	ck_assert_uint_eq(group_said(0), 0);
	for (unsigned i = 1; i < GROUP_MANY; i++)
		ck_assert_uint_le(group_said(i), 1);
	ck_assert_uint_eq(group_said(1) + group_said(2) + group_said(3), 3);
	for (unsigned done = 0; done < GROUP_MANY;)
		if (xseg_poll(lane, &hint, 1) && xseg_receive(lane, hint.request) == 0) {
			ck_assert_int_eq(xseg_at(lane, hint.request)->result, 0);
			xseg_put(lane, hint.request);
			done++;
		}
	xseg_lane_leave(lane);
	rig_end(&rig);
}

UNIT(test_disowned)
{
	pid_t pid = fork();
	if (pid == 0) {
		struct rig rig;
		rig_begin(&rig, 0, 1, one_store);
		_Atomic uint64_t *word = &rig.seg.lanes[rig.host.lanes[0].place].word;
		atomic_store(word, xseg_life_word(XSEG_LIFE_DEAD, 1, (uint32_t)getpid()));
		for (unsigned i = 0; i < 6000; i++) /* it sleeps for a second at most */
			usleep(20000);
		_exit(42);
	}
	int status = 0;
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == 1, "status %#x", status);
}
