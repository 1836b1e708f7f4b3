/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Kills a process after every single instruction of each thing that moves a request or a page,
 * and of the reaper, and lets the living repair it: see step.h.
 *
 *   step [--all] [SCENE...]
 *
 * Each different state of shared memory is repaired. Besides, a few instants of each scene, by
 * chance, are reached by a kill in earnest; with --all every instruction of the short ones is, and
 * hundreds of the long ones.
 */
#include "tests/crash/step.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <time.h>

#include "tests/lib/fixture.h"

#define STEPS_MAX (8u << 20)
#define PIN_LEFT 2
#define KILLS 12u	   /* in earnest, for each scene; */
#define KILLS_STEPS 60000u /* of long ones fewer: so many steps in all */
#define KILLS_EACH 6000u   /* --all: after each instruction, where there are no more */

/* What changed after one instruction: words of the tables. */
struct change {
	uint64_t offset, value;
};

struct result {
	uint64_t steps, states, kills;
	unsigned failed, pins_left;
};

struct recorder {
	const struct xseg *seg;
	uint64_t size; /* of all before the pages, so of all tables */
	uint64_t *last, *before;
	struct change *changes;
	uint64_t change_count, change_room;
	uint64_t *ends; /* changes up to state i */
	uint64_t end_count, end_room;
};

static void grow(void **array, uint64_t *room, uint64_t count, size_t item)
{
	if (count < *room)
		return;
	*room = *room ? 2 * *room : 1024;
	must((*array = realloc(*array, *room * item)));
}

/* --- what has changed ------------------------------------------------------------------------ */

/* Counters change nothing that a reaper looks at, and are most of what lies before the pages. */
static bool skipped(const struct xseg *seg, uint64_t offset)
{
	const struct xseg_table_place *tables = seg->super->tables;
	return offset >= tables[XSEG_TABLE_STATS].offset &&
	       offset < tables[XSEG_TABLE_REQUEST_HINTS].offset;
}

static void recorder_begin(struct recorder *r, const struct xseg *seg)
{
	memset(r, 0, sizeof(*r));
	r->seg = seg;
	r->size = seg->super->tables[XSEG_TABLE_PAGES].offset;
	must((r->last = malloc(r->size)) && (r->before = malloc(r->size)));
	memcpy(r->last, seg->base, r->size);
	memcpy(r->before, seg->base, r->size);
}

static void recorder_end(struct recorder *r)
{
	free(r->last);
	free(r->before);
	free(r->changes);
	free(r->ends);
}

static void note(struct recorder *r, uint64_t word)
{
	grow((void **)&r->changes, &r->change_room, r->change_count, sizeof(*r->changes));
	memcpy(&r->last[word], r->seg->base + word * 8, 8);
	r->changes[r->change_count++] = (struct change){word * 8, r->last[word]};
}

/* One line at a time: most are as they were. */
static void recorder_look(struct recorder *r)
{
	uint64_t count = r->change_count;
	for (uint64_t at = 0; at < r->size; at += 4096) {
		if (skipped(r->seg, at) ||
			!memcmp(r->seg->base + at, (uint8_t *)r->last + at, 4096))
			continue;
		for (uint64_t word = at / 8; word < (at + 4096) / 8; word++)
			if (memcmp(r->seg->base + word * 8, &r->last[word], 8))
				note(r, word);
	}
	if (r->change_count == count)
		return;
	grow((void **)&r->ends, &r->end_room, r->end_count, sizeof(*r->ends));
	r->ends[r->end_count++] = r->change_count;
}

static void put_back(const struct recorder *r, uint64_t states)
{
	for (uint64_t at = 0; at < r->size; at += 4096)
		if (!skipped(r->seg, at))
			memcpy(r->seg->base + at, (uint8_t *)r->before + at, 4096);
	for (uint64_t i = 0; states && i < r->ends[states - 1]; i++)
		memcpy(r->seg->base + r->changes[i].offset, &r->changes[i].value, 8);
}

/* --- a victim -------------------------------------------------------------------------------- */

struct cast {
	struct step_world world;
	const struct step_scene *scene;
	pid_t victim;
};

/* Stops when it is ready, and, by SIGUSR1, when it has done it. */
static int victim_main(void *argument)
{
	struct cast *cast = argument;
	struct step_victim victim = {.world = &cast->world};
	cast->scene->ready(&victim);
	child_check(ptrace(PTRACE_TRACEME, 0, NULL, NULL) == 0);
	raise(SIGSTOP);
	cast->scene->act(&victim);
	raise(SIGUSR1);
	return 0;
}

/* Died with its hands full: a client with all kinds of requests, and the server of "top". */
static int corpse_main(void *argument)
{
	struct cast *cast = argument;
	struct step_victim victim = {.world = &cast->world};
	for (unsigned i = 0; i < step_scene_count; i++)
		if (!strcmp(step_scenes[i].name, "respond"))
			step_scenes[i].ready(&victim);
	for (unsigned i = 0; i < step_scene_count; i++)
		if (!strcmp(step_scenes[i].name, "submit")) {
			struct xseg_lane *server = victim.lane;
			step_scenes[i].ready(&victim);
			step_scenes[i].act(&victim);
			victim.lane = server;
		}
	raise(SIGKILL);
	return 0;
}

static void cast_make(struct cast *cast, const struct step_scene *scene)
{
	step_world_make(&cast->world);
	cast->scene = scene;
	if (scene->serves)
		step_send(&cast->world);
	if (scene->corpse) {
		must(child_end(child_start(corpse_main, cast)) == 128 + SIGKILL);
		step_answer_home(&cast->world);
	}
	cast->victim = child_start(victim_main, cast);
	int status;
	must(waitpid(cast->victim, &status, 0) == cast->victim);
	if (!WIFSTOPPED(status) || WSTOPSIG(status) != SIGSTOP)
		fprintf(stderr, "%s: the victim is not ready\n", scene->name);
	must(WIFSTOPPED(status) && WSTOPSIG(status) == SIGSTOP);
	if (scene->between)
		scene->between(&cast->world);
}

/* False: it has come to its end. */
static bool step(const struct cast *cast)
{
	int status;
	must(ptrace(PTRACE_SINGLESTEP, cast->victim, NULL, NULL) == 0);
	must(waitpid(cast->victim, &status, 0) == cast->victim);
	if (!WIFSTOPPED(status))
		fprintf(stderr, "%s: the victim ended (status %x)\n", cast->scene->name, status);
	must(WIFSTOPPED(status));
	return WSTOPSIG(status) == SIGTRAP;
}

static int check_main(void *argument)
{
	struct cast *cast = argument;
	return step_repair_and_check(&cast->world) ? 0 : PIN_LEFT;
}

static unsigned check(struct cast *cast, const char *when, uint64_t number, struct result *result)
{
	int status = child_end(child_start(check_main, cast));
	if (status == PIN_LEFT) {
		result->pins_left++;
		return 0;
	}
	if (status)
		fprintf(stderr, "%s: %s %llu cannot be repaired (status %d)\n", cast->scene->name,
			when, (unsigned long long)number, status);
	return status != 0;
}

static void cast_end(struct cast *cast) { scratch_segment_end(&cast->world.seg); }

/* --- all of one scene ------------------------------------------------------------------------ */

/* Steps it through to its end, then puts back each state that there was. */
static void states_all(const struct step_scene *scene, struct result *result)
{
	struct cast cast;
	struct recorder r;
	cast_make(&cast, scene);
	recorder_begin(&r, &cast.world.seg);
	while (result->steps < STEPS_MAX && step(&cast)) {
		result->steps++;
		recorder_look(&r);
	}
	must(result->steps < STEPS_MAX);
	child_kill(cast.victim);
	for (uint64_t i = 0; i <= r.end_count && result->failed < 5; i++) {
		put_back(&r, i);
		result->failed += check(&cast, "after change", i, result);
	}
	result->states = r.end_count + 1;
	if (result->pins_left > scene->pins) {
		fprintf(stderr, "%s: %u states leave a pin behind\n", scene->name,
			result->pins_left);
		result->failed++;
	}
	recorder_end(&r);
	cast_end(&cast);
}

static void kill_at(const struct step_scene *scene, uint64_t k, struct result *result)
{
	struct cast cast;
	cast_make(&cast, scene);
	for (uint64_t i = 0; i < k && step(&cast); i++)
		;
	child_kill(cast.victim);
	result->failed += check(&cast, "killed after instruction", k, result);
	result->kills++;
	cast_end(&cast);
}

static bool play(const struct step_scene *scene, bool all, uint64_t *random)
{
	struct result result = {0};
	struct timespec a, b;
	clock_gettime(CLOCK_MONOTONIC, &a);
	states_all(scene, &result);
	bool each = all && result.steps < KILLS_EACH;
	uint64_t kills =
		each ? result.steps : 2 + (all ? 50 : 1) * KILLS_STEPS / (result.steps + 1);
	if (!all && kills > KILLS)
		kills = KILLS;
	for (uint64_t i = 0; i < kills && result.failed < 5; i++)
		kill_at(scene, each ? i : random_next(random) % (result.steps + 1), &result);
	clock_gettime(CLOCK_MONOTONIC, &b);
	printf("%-12s %8llu instructions, %5llu states, %5llu kills, %u not repaired, %u pins "
	       "left, "
	       "%.1f s\n",
		scene->name, (unsigned long long)result.steps, (unsigned long long)result.states,
		(unsigned long long)result.kills, result.failed, result.pins_left,
		(double)(b.tv_sec - a.tv_sec) + (double)(b.tv_nsec - a.tv_nsec) / 1e9);
	fflush(stdout);
	return result.failed == 0;
}

static bool wanted(const char *name, int argc, char **argv)
{
	for (int i = 0; i < argc; i++)
		if (!strcmp(argv[i], name))
			return true;
	return argc == 0;
}

static int trace_main(void *argument)
{
	(void)argument;
	return ptrace(PTRACE_TRACEME, 0, NULL, NULL) ? 1 : 0;
}

int main(int argc, char **argv)
{
	uint64_t random = (uint64_t)time(NULL);
	bool all = argc > 1 && !strcmp(argv[1], "--all"), good = true;
	if (child_end(child_start(trace_main, NULL))) {
		puts("nobody may be traced here");
		return 77;
	}
	scratch_begin();
	atexit(scratch_end);
	for (unsigned i = 0; i < step_scene_count; i++)
		if (wanted(step_scenes[i].name, argc - 1 - all, argv + 1 + all))
			good = play(&step_scenes[i], all, &random) && good;
	return good ? 0 : 1;
}
