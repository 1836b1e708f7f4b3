/* SPDX-License-Identifier: Apache-2.0 */
/* Ends the process at the crash point that the environment names. */
#include <base/crash.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CRASH_PARTS_MAX 32u /* a program and its modules */
#define CRASH_NAMES_MAX 512u

static struct {
	const char *const *begin, *const *end;
} crash_parts[CRASH_PARTS_MAX];
static unsigned crash_part_count;

static struct {
	char name[96];
	unsigned hit;
	void (*act)(void);
} crash_armed;
static _Atomic unsigned crash_hits;

static void act_kill(void) { raise(SIGKILL); }
static void act_exit(void) { _exit(3); }

/* Read each time, so that nobody sees that it never ends. */
static void (*volatile crash_deeper)(void);

static void act_overflow(void)
{
	volatile char page[4096];
	page[0] = 1;
	crash_deeper();
	page[1] = page[0];
}

static const struct {
	const char *name;
	void (*act)(void);
} crash_actions[] = {
	{"kill", act_kill}, {"abort", abort}, {"overflow", act_overflow}, {"exit", act_exit}};

static void crash_arm(void)
{
	const char *text = getenv("SKERRY_CRASH");
	if (!text)
		return;
	size_t length = strcspn(text, ":");
	if (length >= sizeof(crash_armed.name))
		return;
	crash_deeper = act_overflow;
	crash_armed.hit = 1;
	crash_armed.act = act_kill;
	const char *hit = text[length] ? text + length + 1 : "";
	if (*hit && *hit != ':')
		crash_armed.hit = (unsigned)strtoul(hit, NULL, 10);
	const char *action = strchr(hit, ':');
	for (unsigned i = 0; action && i < sizeof(crash_actions) / sizeof(crash_actions[0]); i++)
		if (!strcmp(action + 1, crash_actions[i].name))
			crash_armed.act = crash_actions[i].act;
	memcpy(crash_armed.name, text, length);
}

void crash_point_hit(const char *name)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	pthread_once(&once, crash_arm);
	if (!crash_armed.act || strcmp(name, crash_armed.name))
		return;
	if (atomic_fetch_add(&crash_hits, 1) + 1 == crash_armed.hit)
		crash_armed.act();
}

void crash_points_register(const char *const *begin, const char *const *end)
{
	for (unsigned i = 0; i < crash_part_count; i++)
		if (crash_parts[i].begin == begin)
			return;
	if (begin == end || crash_part_count == CRASH_PARTS_MAX)
		return;
	crash_parts[crash_part_count].begin = begin;
	crash_parts[crash_part_count++].end = end;
}

bool crash_points_there(void) { return crash_part_count != 0; }

static int by_name(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

void crash_points_list(FILE *out)
{
	const char *names[CRASH_NAMES_MAX];
	unsigned count = 0;
	for (unsigned i = 0; i < crash_part_count; i++)
		for (const char *const *at = crash_parts[i].begin; at < crash_parts[i].end; at++)
			if (count < CRASH_NAMES_MAX)
				names[count++] = *at;
	qsort(names, count, sizeof(names[0]), by_name);
	for (unsigned i = 0; i < count; i++)
		if (i == 0 || strcmp(names[i - 1], names[i]))
			fprintf(out, "%s\n", names[i]);
}
