/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What nobody waits for, on a thread of its own: at first the home records that name this segment
 * are taken over and what cut-off operations have left is cleaned up, then sweeps, when asked for.
 */
#include <base/clock.h>
#include <base/crash.h>
#include <base/log.h>
#include <base/time.h>
#include <errno.h>
#include <peer/keep.h>
#include <stdlib.h>
#include <string.h>

#include "peers/map/mapper.h"

#define CLEANUP_AGE_NS 600000000000u /* what is younger may be in the making */
#define BEGIN_AGAIN_NS 2000000000u   /* the store is not there yet */
#define PACE_LOOK_NS 20000000u	     /* a sweep is ended within this time */

static bool background_wait(struct mapper_shared *shared, uint64_t ns)
{
	struct mapper_background *background = &shared->background;
	struct timespec t;
	clock_gettime(CLOCK_REALTIME, &t);
	uint64_t until = time_of(&t) + ns;
	t.tv_sec = (time_t)(until / 1000000000u);
	t.tv_nsec = (long)(until % 1000000000u);
	if (!background->ending)
		pthread_cond_timedwait(&background->changed, &shared->lock, &t);
	return !background->ending;
}

/* --- the beginning -------------------------------------------------------------------------- */

/* Each under its volume's lock: whoever is at a change of it has named it for that time. */
static int background_adopt(struct mapper_shared *shared, struct mapper_store *store)
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
			shared->background.adopted++;
			pthread_mutex_unlock(&shared->lock);
		}
	} while (cursor != 0);
	return 0;
}

static int background_cleanup(struct mapper_shared *shared, struct mapper_store *store)
{
	uint64_t deleted = 0;
	int rc = map_cleanup(&store->store, time_wall_ns() - CLEANUP_AGE_NS, &deleted);
	pthread_mutex_lock(&shared->lock);
	shared->background.cleaned += deleted;
	pthread_mutex_unlock(&shared->lock);
	return rc;
}

/* Until the store answers; one that keeps no records has nothing for us to do. */
static void background_begin(struct mapper_shared *shared)
{
	int (*const steps[])(struct mapper_shared *, struct mapper_store *) = {
		background_adopt, background_cleanup};
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
			log_warning("mapper_background",
				"the records in the store cannot be looked through now: %s",
				strerror(-rc));
		said = true;
		pthread_mutex_lock(&shared->lock);
		goes_on = background_wait(shared, BEGIN_AGAIN_NS);
		pthread_mutex_unlock(&shared->lock);
	}
}

/* --- a sweep -------------------------------------------------------------------------------- */

/* Under shared->lock. */
static void background_show(struct mapper_background *background, const struct map_sweep *sweep)
{
	struct map_sweep_state *state = &background->state;
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
static int background_pace(struct map_sweep *sweep)
{
	struct mapper_shared *shared = sweep->context;
	struct mapper_background *background = &shared->background;
	uint64_t settle_ns = 0;
	pthread_mutex_lock(&shared->lock);
	if (sweep->settles != background->settles)
		settle_ns = clock_now_ns() + shared->options->settle_ns;
	background->settles = sweep->settles;
	background_show(background, sweep);
	for (;;) {
		uint64_t now = clock_now_ns(), due = settle_ns;
		uint64_t asked = background->store->requests - background->paced;
		if (background->rate > 0 &&
			background->began_ns + asked * 1000000000u / background->rate > due)
			due = background->began_ns + asked * 1000000000u / background->rate;
		if (background->stop || background->ending || due <= now)
			break;
		background_wait(shared, due - now < PACE_LOOK_NS ? due - now : PACE_LOOK_NS);
	}
	int rc = background->stop || background->ending ? -ECANCELED : 0;
	pthread_mutex_unlock(&shared->lock);
	crash_point("mapper.sweep.paced");
	return rc;
}

static void background_report(struct map_sweep *sweep, const struct map_report *report)
{
	struct mapper_shared *shared = sweep->context;
	struct mapper_background *background = &shared->background;
	pthread_mutex_lock(&shared->lock);
	uint64_t count = background->state.findings;
	if (count == background->finding_room && count < MAPPER_FINDINGS_MAX) {
		uint32_t room = count > 0 ? 2 * (uint32_t)count : 64;
		void *grown = realloc(background->findings, room * sizeof(*background->findings));
		if (grown) {
			background->findings = grown;
			background->finding_room = room;
		}
	}
	if (count < background->finding_room) {
		background->findings[count] = (struct map_finding_info){.finding = report->finding,
			.object = report->object,
			.repaired = report->repaired,
			.volume = report->volume,
			.key = report->key};
		background->state.findings++;
	}
	background_show(background, sweep);
	pthread_mutex_unlock(&shared->lock);
}

/* With shared->lock held, which it gives up for the time of the sweep. */
static void background_sweep(struct mapper_shared *shared)
{
	struct mapper_background *background = &shared->background;
	struct mapper_store store;
	struct map_sweep sweep = {.repair = background->flags & MAP_SWEEP_REPAIR,
		.explain = background->flags & MAP_SWEEP_EXPLAIN,
		.volume = background->volume,
		.pace = background_pace,
		.report = background_report,
		.context = shared};
	mapper_store_open(&store, shared->first);
	background->store = &store;
	background->began_ns = clock_now_ns();
	background->paced = 0;
	background->settles = 0;
	pthread_mutex_unlock(&shared->lock);
	int rc = map_sweep_run(&store.store, &sweep);
	int late = mapper_store_close(&store);
	crash_point("mapper.sweep.done");
	pthread_mutex_lock(&shared->lock);
	background_show(background, &sweep);
	background->store = NULL;
	background->wanted = background->stop = false;
	background->state.running = 0;
	background->state.error = rc != 0 ? rc : late;
	if (background->state.error != 0 && background->state.error != -ECANCELED)
		log_warning("mapper_background", "the sweep has ended: %s",
			strerror(-background->state.error));
}

static void *background_main(void *context)
{
	struct mapper_shared *shared = context;
	struct mapper_background *background = &shared->background;
	background_begin(shared);
	pthread_mutex_lock(&shared->lock);
	while (!background->ending) {
		if (background->wanted)
			background_sweep(shared);
		else
			pthread_cond_wait(&background->changed, &shared->lock);
	}
	background->ended = true;
	pthread_mutex_unlock(&shared->lock);
	peer_wake(shared->first->peer, shared->first->peer->shard);
	return NULL;
}

/* --- what is asked -------------------------------------------------------------------------- */

/* Asked for what is so already, it is so. */
int mapper_background_sweep(struct mapper_task *task)
{
	struct mapper_shared *shared = mapper_shared(task);
	struct mapper_background *background = &shared->background;
	unsigned flags = (unsigned)task->arg & (MAP_SWEEP_EXPLAIN | MAP_SWEEP_REPAIR);
	bool starts = task->arg & MAP_SWEEP_START, stops = task->arg & MAP_SWEEP_STOP;
	int rc = 0;
	if (starts == stops || task->arg >= 2 * MAP_SWEEP_REPAIR)
		return -EINVAL;
	pthread_mutex_lock(&shared->lock);
	if (stops) {
		background->stop = background->wanted;
	} else if (background->ending || (background->wanted && background->stop)) {
		rc = -EBUSY;
	} else if (background->wanted) {
		rc = background->flags == flags && background->volume == task->volume ? 0 : -EBUSY;
		if (rc == 0)
			background->rate = task->ask.size;
	} else {
		background->wanted = true;
		background->flags = flags;
		background->volume = task->volume;
		background->rate = task->ask.size;
		memset(&background->state, 0, sizeof(background->state));
		background->state.running = 1;
		background->state.run = mapper_admin_draw_id();
	}
	task->value = background->state.run;
	pthread_cond_broadcast(&background->changed);
	pthread_mutex_unlock(&shared->lock);
	return rc;
}

int mapper_background_sweep_state(struct mapper_task *task)
{
	struct mapper_shared *shared = mapper_shared(task);
	struct mapper_background *background = &shared->background;
	uint32_t room = mapper_task_room(task), size = sizeof(struct map_sweep_state);
	uint32_t most = room > size ? (room - size) / sizeof(struct map_finding_info) : 0;
	pthread_mutex_lock(&shared->lock);
	uint64_t left =
		background->state.findings > task->arg ? background->state.findings - task->arg : 0;
	uint32_t count = left < most ? (uint32_t)left : most;
	uint8_t *out =
		mapper_task_answer(task, size + count * (uint32_t)sizeof(struct map_finding_info));
	if (out)
		memcpy(out, &background->state, size);
	if (out && count > 0)
		memcpy(out + size, background->findings + task->arg,
			count * sizeof(*background->findings));
	task->value = count < left ? task->arg + count : 0;
	pthread_mutex_unlock(&shared->lock);
	return task->error;
}

void mapper_background_dump(struct mapper_shared *shared, FILE *out)
{
	struct mapper_background *background = &shared->background;
	pthread_mutex_lock(&shared->lock);
	const struct map_sweep_state *state = &background->state;
	fprintf(out,
		"    sweep: %s, pass %u, %llu objects, %llu unreachable, %llu deleted; %llu leases "
		"found at the start, %llu leftovers deleted\n",
		state->running ? "at work" : "none", state->pass,
		(unsigned long long)state->objects, (unsigned long long)state->unreachable,
		(unsigned long long)state->deleted, (unsigned long long)background->adopted,
		(unsigned long long)background->cleaned);
	pthread_mutex_unlock(&shared->lock);
}

/* --- its thread ----------------------------------------------------------------------------- */

int mapper_background_start(struct mapper_shared *shared)
{
	struct mapper_background *background = &shared->background;
	int error = pthread_create(&background->thread, NULL, background_main, shared);
	background->started = error == 0;
	if (background->started)
		pthread_setname_np(background->thread, "mapper back");
	return -error;
}

void mapper_background_ask_end(struct mapper_shared *shared)
{
	pthread_mutex_lock(&shared->lock);
	shared->background.ending = true;
	pthread_cond_broadcast(&shared->background.changed);
	pthread_mutex_unlock(&shared->lock);
}

bool mapper_background_ended(struct mapper_shared *shared)
{
	pthread_mutex_lock(&shared->lock);
	bool ended = shared->background.ended || !shared->background.started;
	pthread_mutex_unlock(&shared->lock);
	return ended;
}

void mapper_background_join(struct mapper_shared *shared)
{
	if (shared->background.started)
		pthread_join(shared->background.thread, NULL);
	shared->background.started = false;
	free(shared->background.findings);
	shared->background.findings = NULL;
}
