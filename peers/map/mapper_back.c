/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What nobody waits for, on a thread of its own: at first the home records that name this segment
 * are taken over and what cut-off operations have left is cleaned up, then sweeps, when asked for.
 */
#include <base/clock.h>
#include <base/crash.h>
#include <base/log.h>
#include <errno.h>
#include <peer/keep.h>
#include <stdlib.h>
#include <string.h>

#include "peers/map/mapper.h"

#define CLEANUP_AGE_NS 600000000000u /* what is younger may be in the making */
#define BEGIN_AGAIN_NS 2000000000u   /* the store is not there yet */
#define PACE_LOOK_NS 20000000u	     /* a sweep is ended within this time */

static bool back_wait(struct mapper_shared *shared, uint64_t ns)
{
	struct mapper_back *back = &shared->back;
	struct timespec t;
	clock_gettime(CLOCK_REALTIME, &t);
	uint64_t until = (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec + ns;
	t.tv_sec = (time_t)(until / 1000000000u);
	t.tv_nsec = (long)(until % 1000000000u);
	if (!back->ending)
		pthread_cond_timedwait(&back->changed, &shared->lock, &t);
	return !back->ending;
}

/* --- the beginning -------------------------------------------------------------------------- */

/* Each under its volume's lock: whoever is at a change of it has named it for that time. */
static int back_adopt(struct mapper_shared *shared, struct mapper_store *store)
{
	struct xseg_key keys[64];
	uint64_t cursor = 0;
	do {
		int count = store->store.records(
			&store->store, XSEG_EPOCH_HOME, &cursor, keys, countof(keys));
		if (count < 0)
			return count;
		for (int i = 0; i < count; i++) {
			struct map_home home;
			int rc = map_home_read(&store->store, keys[i].volume, &home);
			if (rc != 0 || home.owner != shared->owner)
				continue; /* a damaged one is told to who asks for it */
			rc = mapper_task_own(shared->first, &mapper_kind_adopt, keys[i].volume);
			if (rc != 0)
				return rc;
			pthread_mutex_lock(&shared->lock);
			shared->back.adopted++;
			pthread_mutex_unlock(&shared->lock);
		}
	} while (cursor != 0);
	return 0;
}

static int back_cleanup(struct mapper_shared *shared, struct mapper_store *store)
{
	uint64_t deleted = 0;
	int rc = map_cleanup(&store->store, mapper_wall_ns() - CLEANUP_AGE_NS, &deleted);
	pthread_mutex_lock(&shared->lock);
	shared->back.cleaned += deleted;
	pthread_mutex_unlock(&shared->lock);
	return rc;
}

/* Until the store answers; one that keeps no records has nothing for us to do. */
static void back_begin(struct mapper_shared *shared)
{
	int (*const steps[])(struct mapper_shared *, struct mapper_store *) = {
		back_adopt, back_cleanup};
	bool said = false, goes_on = true;
	for (unsigned i = 0; i < countof(steps) && goes_on;) {
		struct mapper_store store;
		mapper_store_open(&store, shared->first);
		int rc = steps[i](shared, &store);
		mapper_store_close(&store);
		if (rc == 0 || rc == -EOPNOTSUPP) {
			i++;
			continue;
		}
		if (!said && rc != -ESHUTDOWN)
			log_warning("mapper_back",
				"the records in the store cannot be looked through now: %s",
				strerror(-rc));
		said = true;
		pthread_mutex_lock(&shared->lock);
		goes_on = back_wait(shared, BEGIN_AGAIN_NS);
		pthread_mutex_unlock(&shared->lock);
	}
}

/* --- a sweep -------------------------------------------------------------------------------- */

/* Under shared->lock. */
static void back_show(struct mapper_back *back, const struct map_sweep *sweep)
{
	struct map_sweep_state *state = &back->state;
	state->pass = sweep->pass;
	state->passes = sweep->passes;
	state->volumes = sweep->volumes;
	state->pages = sweep->pages;
	state->objects = sweep->objects;
	state->marked = sweep->marked;
	state->unreachable = sweep->unreachable;
	state->deleted = sweep->deleted;
	state->bytes_freed = sweep->bytes_freed;
}

/* Not faster than asked for, and what was under way when the first pass ended must have ended. */
static int back_pace(struct map_sweep *sweep)
{
	struct mapper_shared *shared = sweep->context;
	struct mapper_back *back = &shared->back;
	uint64_t settle_ns = 0;
	pthread_mutex_lock(&shared->lock);
	if (sweep->settles != back->settles)
		settle_ns = clock_now_ns() + shared->options->settle_ns;
	back->settles = sweep->settles;
	back_show(back, sweep);
	for (;;) {
		uint64_t now = clock_now_ns(), due = settle_ns;
		uint64_t asked = back->store->requests - back->paced;
		if (back->rate > 0 && back->began_ns + asked * 1000000000u / back->rate > due)
			due = back->began_ns + asked * 1000000000u / back->rate;
		if (back->stop || back->ending || due <= now)
			break;
		back_wait(shared, due - now < PACE_LOOK_NS ? due - now : PACE_LOOK_NS);
	}
	int rc = back->stop || back->ending ? -ECANCELED : 0;
	pthread_mutex_unlock(&shared->lock);
	crash_point("mapper.sweep.paced");
	return rc;
}

static void back_report(struct map_sweep *sweep, const struct map_report *report)
{
	struct mapper_shared *shared = sweep->context;
	struct mapper_back *back = &shared->back;
	pthread_mutex_lock(&shared->lock);
	uint64_t count = back->state.findings;
	if (count == back->finding_room && count < MAPPER_FINDINGS_MAX) {
		uint32_t room = count > 0 ? 2 * (uint32_t)count : 64;
		void *grown = realloc(back->findings, room * sizeof(*back->findings));
		if (grown) {
			back->findings = grown;
			back->finding_room = room;
		}
	}
	if (count < back->finding_room) {
		back->findings[count] = (struct map_finding_info){.finding = report->finding,
			.object = report->object,
			.repaired = report->repaired,
			.volume = report->volume,
			.key = report->key};
		back->state.findings++;
	}
	back_show(back, sweep);
	pthread_mutex_unlock(&shared->lock);
}

/* With shared->lock held, which it gives up for the time of the sweep. */
static void back_sweep(struct mapper_shared *shared)
{
	struct mapper_back *back = &shared->back;
	struct mapper_store store;
	struct map_sweep sweep = {.repair = back->flags & MAP_SWEEP_REPAIR,
		.explain = back->flags & MAP_SWEEP_EXPLAIN,
		.volume = back->volume,
		.pace = back_pace,
		.report = back_report,
		.context = shared};
	mapper_store_open(&store, shared->first);
	back->store = &store;
	back->began_ns = clock_now_ns();
	back->paced = 0;
	back->settles = 0;
	pthread_mutex_unlock(&shared->lock);
	int rc = map_sweep_run(&store.store, &sweep);
	int late = mapper_store_close(&store);
	crash_point("mapper.sweep.done");
	pthread_mutex_lock(&shared->lock);
	back_show(back, &sweep);
	back->store = NULL;
	back->wanted = back->stop = false;
	back->state.running = 0;
	back->state.error = rc != 0 ? rc : late;
	if (back->state.error != 0 && back->state.error != -ECANCELED)
		log_warning("mapper_back", "the sweep has ended: %s", strerror(-back->state.error));
}

static void *back_main(void *context)
{
	struct mapper_shared *shared = context;
	struct mapper_back *back = &shared->back;
	back_begin(shared);
	pthread_mutex_lock(&shared->lock);
	while (!back->ending) {
		if (back->wanted)
			back_sweep(shared);
		else
			pthread_cond_wait(&back->changed, &shared->lock);
	}
	back->ended = true;
	pthread_mutex_unlock(&shared->lock);
	peer_wake(shared->first->peer, shared->first->peer->shard);
	return NULL;
}

/* --- what is asked -------------------------------------------------------------------------- */

/* Asked for what is so already, it is so. */
int mapper_run_sweep(struct mapper_task *task)
{
	struct mapper_shared *shared = mapper_shared(task);
	struct mapper_back *back = &shared->back;
	unsigned flags = (unsigned)task->arg & (MAP_SWEEP_EXPLAIN | MAP_SWEEP_REPAIR);
	bool starts = task->arg & MAP_SWEEP_START, stops = task->arg & MAP_SWEEP_STOP;
	int rc = 0;
	if (starts == stops || task->arg >= 2 * MAP_SWEEP_REPAIR)
		return -EINVAL;
	pthread_mutex_lock(&shared->lock);
	if (stops) {
		back->stop = back->wanted;
	} else if (back->ending || (back->wanted && back->stop)) {
		rc = -EBUSY;
	} else if (back->wanted) {
		rc = back->flags == flags && back->volume == task->volume ? 0 : -EBUSY;
		if (rc == 0)
			back->rate = task->ask.size;
	} else {
		back->wanted = true;
		back->flags = flags;
		back->volume = task->volume;
		back->rate = task->ask.size;
		memset(&back->state, 0, sizeof(back->state));
		back->state.running = 1;
		back->state.run = mapper_draw_id();
	}
	task->value = back->state.run;
	pthread_cond_broadcast(&back->changed);
	pthread_mutex_unlock(&shared->lock);
	return rc;
}

int mapper_run_sweep_state(struct mapper_task *task)
{
	struct mapper_shared *shared = mapper_shared(task);
	struct mapper_back *back = &shared->back;
	uint32_t room = mapper_task_room(task), size = sizeof(struct map_sweep_state);
	uint32_t most = room > size ? (room - size) / sizeof(struct map_finding_info) : 0;
	pthread_mutex_lock(&shared->lock);
	uint64_t left = back->state.findings > task->arg ? back->state.findings - task->arg : 0;
	uint32_t count = left < most ? (uint32_t)left : most;
	uint8_t *out =
		mapper_task_answer(task, size + count * (uint32_t)sizeof(struct map_finding_info));
	if (out)
		memcpy(out, &back->state, size);
	if (out && count > 0)
		memcpy(out + size, back->findings + task->arg, count * sizeof(*back->findings));
	task->value = count < left ? task->arg + count : 0;
	pthread_mutex_unlock(&shared->lock);
	return task->error;
}

void mapper_back_dump(struct mapper_shared *shared, FILE *out)
{
	struct mapper_back *back = &shared->back;
	pthread_mutex_lock(&shared->lock);
	const struct map_sweep_state *state = &back->state;
	fprintf(out,
		"    sweep: %s, pass %u, %llu objects, %llu unreachable, %llu deleted; %llu leases "
		"found at the start, %llu leftovers deleted\n",
		state->running ? "at work" : "none", state->pass,
		(unsigned long long)state->objects, (unsigned long long)state->unreachable,
		(unsigned long long)state->deleted, (unsigned long long)back->adopted,
		(unsigned long long)back->cleaned);
	pthread_mutex_unlock(&shared->lock);
}

/* --- its thread ----------------------------------------------------------------------------- */

int mapper_back_start(struct mapper_shared *shared)
{
	struct mapper_back *back = &shared->back;
	int error = pthread_create(&back->thread, NULL, back_main, shared);
	back->started = error == 0;
	if (back->started)
		pthread_setname_np(back->thread, "mapper back");
	return -error;
}

void mapper_back_ask_end(struct mapper_shared *shared)
{
	pthread_mutex_lock(&shared->lock);
	shared->back.ending = true;
	pthread_cond_broadcast(&shared->back.changed);
	pthread_mutex_unlock(&shared->lock);
}

bool mapper_back_ended(struct mapper_shared *shared)
{
	pthread_mutex_lock(&shared->lock);
	bool ended = shared->back.ended || !shared->back.started;
	pthread_mutex_unlock(&shared->lock);
	return ended;
}

void mapper_back_join(struct mapper_shared *shared)
{
	if (shared->back.started)
		pthread_join(shared->back.thread, NULL);
	shared->back.started = false;
	free(shared->back.findings);
	shared->back.findings = NULL;
}
