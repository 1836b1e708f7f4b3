/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A mapper in a process of its own, over files, that is killed while it is asked something: at any
 * time, and at each of its crash points where they are compiled in. Its successor answers.
 */
#include <base/crash.h>
#include <errno.h>
#include <peer/map.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/wait.h>

#include "tests/lib/unit.h"
#include "tests/property/volume_rig.h"

#define MAPPER 1u
#define MIB (1u << 20)
#define IN_MAX 1024u
#define OUT_MAX 16384u
#define WASTED 2000u

static struct rig rig;
static struct client client, store;
static uint64_t seed = 5;

static void setup(void)
{
	rig_open(&rig, 64u << 20);
	rig_start(&rig, 0, 1, "file0=blocker_file,dir=@");
	rig_start(&rig, MAPPER, 1, "map0=mapperd,edge.store=file0,settle=0");
	rig_client(&rig, &client, "map0");
}

static void teardown(void)
{
	client_close(&client);
	rig_close(&rig);
}

/* --- what is asked -------------------------------------------------------------------------- */

struct question {
	struct client_request request;
	uint8_t in[IN_MAX], out[OUT_MAX];
};

static void control(struct question *q, enum map_control what, uint64_t id, uint64_t arg,
	const void *in, uint32_t size)
{
	memset(q, 0, sizeof(*q));
	must(size <= IN_MAX);
	if (size > 0)
		memcpy(q->in, in, size);
	q->request = (struct client_request){.op = XSEG_OP_CONTROL,
		.key.volume = id,
		.arg0 = what,
		.arg1 = arg,
		.send = q->in,
		.send_size = size,
		.receive = q->out,
		.receive_size = OUT_MAX};
}

static void ask(struct question *q, enum map_control what, uint64_t id, const char *name,
	uint64_t made, uint64_t size)
{
	struct map_ask in = {.id = made, .size = size};
	snprintf(in.name, sizeof(in.name), "%s", name);
	control(q, what, id, 0, &in, sizeof(in));
}

static void create(struct question *q, uint64_t id, const char *name)
{
	struct xseg_volume_info info = {.id = id, .size = 100 * MIB, .object_size = 65536};
	memset(q, 0, sizeof(*q));
	snprintf(info.name, sizeof(info.name), "%s", name);
	memcpy(q->in, &info, sizeof(info));
	q->request = (struct client_request){.op = XSEG_OP_CREATE,
		.length = sizeof(info),
		.send = q->in,
		.send_size = sizeof(info),
		.receive = q->out,
		.receive_size = sizeof(info)};
}

static void removal(struct question *q, uint64_t id)
{
	memset(q, 0, sizeof(*q));
	q->request = (struct client_request){.op = XSEG_OP_REMOVE, .key.volume = id};
}

static void deltas(struct question *q, uint64_t id, uint32_t object, uint32_t epoch)
{
	struct map_update new = {.object = object, .epoch = epoch};
	control(q, MAP_PUBLISH, id, 1, &new, sizeof(new));
}

static const struct map_head_info *head_in(const struct question *q)
{
	return (const void *)(q->out + MAP_ANSWER_AT);
}

/* --- killing -------------------------------------------------------------------------------- */

static bool has_ended(void)
{
	return waitpid(rig.host[MAPPER].pid, NULL, WNOHANG) == rig.host[MAPPER].pid;
}

static _Atomic bool collected;

static void *collect(void *context)
{
	struct client_request **done = context;
	must(client_collect(&client, done) == 0);
	atomic_store(&collected, true);
	return NULL;
}

/* Whoever dies by itself gets a successor that does not. It must be this thread's child: what the
   fixture starts ends with the thread that started it. */
static void restart_the_dead(void)
{
	if (!has_ended())
		return;
	rig.host[MAPPER].pid = 0;
	unsetenv("SKERRY_CRASH");
	rig_start_again(&rig, MAPPER);
}

/* The same question is answered by the one that was killed or by the next. */
static int answered(struct question *q, const char *point)
{
	struct client_request *done;
	pthread_t thread;
	atomic_store(&collected, false);
	must(client_start(&client, &q->request) == 0);
	must(pthread_create(&thread, NULL, collect, &done) == 0);
	if (!point) {
		usleep((useconds_t)(random_next(&seed) % 4000));
		rig_kill(&rig, MAPPER);
		rig_start_again(&rig, MAPPER);
	}
	for (; !atomic_load(&collected); usleep(500))
		if (point)
			restart_the_dead();
	pthread_join(thread, NULL);
	return done->result;
}

static int plain(struct question *q) { return client_do(&client, &q->request); }

static void sweep(unsigned flags, uint64_t rate)
{
	struct question q;
	struct map_ask in = {.size = rate};
	control(&q, MAP_SWEEP, 0, MAP_SWEEP_START | flags, &in, sizeof(in));
	ck_assert_int_eq(plain(&q), 0);
}

static struct map_sweep_state sweep_state(struct question *q)
{
	struct map_sweep_state state;
	control(q, MAP_SWEEP_STATE, 0, 0, NULL, 0);
	ck_assert_int_eq(plain(q), 0);
	memcpy(&state, q->out + MAP_ANSWER_AT, sizeof(state));
	return state;
}

/* Until it has ended, or has deleted so many. */
static struct map_sweep_state swept(struct question *q, uint64_t deleted)
{
	struct map_sweep_state state;
	do {
		usleep(5000);
		state = sweep_state(q);
	} while (state.running && state.deleted < deleted);
	return state;
}

/* Nothing but what nobody needs may be left of it all. */
static void check_store(void)
{
	struct question q;
	sweep(MAP_SWEEP_EXPLAIN, 0);
	struct map_sweep_state state = swept(&q, UINT64_MAX);
	const struct map_finding_info *found =
		(const void *)(q.out + MAP_ANSWER_AT + sizeof(state));
	for (uint64_t i = 0; i < state.findings && i < 50; i++) /* unreachable, or not written */
		ck_assert_msg(found[i].finding == 0 || found[i].finding == 1, "finding %u",
			found[i].finding);
	ck_assert_int_eq(state.error, 0);
}

/*
 * A life of volumes: each question is killed at `point` (NULL: at any time). Answers are those of a
 * mapper that nobody kills.
 */
static void live(uint64_t id, const char *point)
{
	char name[32];
	struct question q;
	snprintf(name, sizeof(name), "v%llu", (unsigned long long)id);
	create(&q, id, name);
	ck_assert_int_eq(answered(&q, point), 0);
	control(&q, MAP_CLAIM, id, 0, NULL, 0);
	ck_assert_int_eq(answered(&q, point), 0);
	control(&q, MAP_ACQUIRE, id, 0, NULL, 0);
	ck_assert_int_eq(answered(&q, point), 0);
	uint32_t epoch = head_in(&q)->epoch;
	uint64_t term = head_in(&q)->term;
	deltas(&q, id, 7, epoch);
	ck_assert_int_eq(answered(&q, point), 0);
	snprintf(name, sizeof(name), "v%llu@s", (unsigned long long)id);
	ask(&q, MAP_SNAP, id, name, id + 1, 0);
	ck_assert_int_eq(answered(&q, point), 0);
	ck_assert_uint_gt(head_in(&q)->epoch, epoch);
	ck_assert_uint_eq(head_in(&q)->term, term);
	deltas(&q, id, 8, head_in(&q)->epoch);
	ck_assert_int_eq(answered(&q, point), 0);
	snprintf(name, sizeof(name), "c%llu", (unsigned long long)id);
	ask(&q, MAP_CLONE, id + 1, name, id + 2, 0);
	ck_assert_int_eq(answered(&q, point), 0);
	ask(&q, MAP_RESIZE, id + 2, "", 0, 200 * MIB);
	ck_assert_int_eq(answered(&q, point), 0);
	ck_assert_uint_eq(head_in(&q)->size, 200 * MIB);
	control(&q, MAP_FLATTEN, id + 2, 0, NULL, 0);
	ck_assert_int_eq(answered(&q, point), 0);
	ck_assert_uint_eq(q.request.value, UINT64_MAX);
	control(&q, MAP_PAGE, id, 0, NULL, 0);
	ck_assert_int_eq(answered(&q, point), 0);
	const uint64_t *words = (const void *)(q.out + MAP_ANSWER_AT);
	ck_assert_uint_eq(map_word_epoch(words[7]), epoch);
	ck_assert_uint_ne(words[8], 0);
	ask(&q, MAP_ROLLBACK, id, "", id + 1, 0);
	ck_assert_int_eq(answered(&q, point), 0);
	control(&q, MAP_RELEASE, id, 0, NULL, 0);
	ck_assert_int_eq(answered(&q, point), 0);
	for (uint64_t i = 3; i-- > 0;) {
		removal(&q, id + i);
		int rc = answered(&q, point);
		ck_assert_msg(rc == 0, "removal %u: %d", (unsigned)i, rc);
	}
}

UNIT(killed_at_any_time)
{
	setup();
	for (unsigned i = 0; i < 3; i++)
		live(1000 + i * 10, NULL);
	check_store();
	teardown();
}

/* Objects that a map had and has no more. */
static void make_waste(uint64_t id, uint32_t objects)
{
	struct question q;
	create(&q, id, "waste");
	ck_assert_int_eq(plain(&q), 0);
	control(&q, MAP_ACQUIRE, id, 0, NULL, 0);
	ck_assert_int_eq(plain(&q), 0);
	uint32_t epoch = head_in(&q)->epoch;
	for (uint32_t i = 0; i < objects; i++) {
		uint8_t bytes[XSEG_SECTOR] = {1};
		struct client_request write = {.op = XSEG_OP_WRITE,
			.key = {.volume = id, .epoch = epoch, .object = i},
			.length = sizeof(bytes),
			.send = bytes,
			.send_size = sizeof(bytes)};
		ck_assert_int_eq(client_do(&store, &write), 0);
		ck_assert_int_eq(write.result, 0);
	}
	control(&q, MAP_RELEASE, id, 0, NULL, 0);
	ck_assert_int_eq(plain(&q), 0);
	control(&q, MAP_ACQUIRE, id, 0, NULL, 0); /* the epoch is over */
	ck_assert_int_eq(plain(&q), 0);
}

/* The next sweep begins again: what was deleted is not found again, what was not is. */
UNIT(killed_while_it_sweeps)
{
	struct question q;
	struct map_sweep_state state;
	setup();
	rig_client(&rig, &store, "file0");
	make_waste(1000, WASTED);
	sweep(MAP_SWEEP_REPAIR, 400); /* for 10 s: two requests for each object that goes */
	ck_assert_uint_eq(swept(&q, 150).running, 1);
	rig_kill(&rig, MAPPER);
	rig_start_again(&rig, MAPPER);
	ck_assert_uint_eq(sweep_state(&q).running, 0);
	sweep(MAP_SWEEP_REPAIR, 0);
	state = swept(&q, UINT64_MAX);
	ck_assert_int_eq(state.error, 0);
	ck_assert_uint_gt(state.deleted, 0);
	/* those that are asked for together had perhaps not gone yet */
	ck_assert_uint_le(state.deleted, WASTED - 150 + 64);
	sweep(MAP_SWEEP_REPAIR, 0);
	state = swept(&q, UINT64_MAX);
	ck_assert_uint_eq(state.unreachable, 0);
	client_close(&store);
	teardown();
}

static const char *const points[] = {"mapper.job.answered", "mapper.acquire.home",
	"mapper.acquire.epoch", "mapper.release.home", "mapper.lease.guarded",
	"mapper.update.durable", "mapper.create.done", "mapper.snapshot.done", "mapper.clone.done",
	"mapper.rollback.done", "mapper.resize.done", "mapper.remove.done", "mapper.flatten.copied",
	"mapper.flatten.updated"};

/* Its next process ends there, and only there. */
UNIT_LOOP(killed_at_a_point, countof(points))
{
	if (!crash_points_there())
		return; /* a build without them */
	setup();
	rig_stop(&rig, MAPPER);
	setenv("SKERRY_CRASH", points[_i], 1);
	rig_start_again(&rig, MAPPER);
	live(1000, points[_i]);
	ck_assert_msg(getenv("SKERRY_CRASH") == NULL, "%s was never passed", points[_i]);
	check_store();
	teardown();
}
