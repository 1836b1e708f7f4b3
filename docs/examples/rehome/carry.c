/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Moves a volume to another host while it is used, or has it come, and tells what happens.
 *
 *   cc -o carry carry.c $(pkg-config --cflags --libs skerry-rehome)
 *   carry seed SEGMENT BRIDGE VOLUME [BEFORE [AFTER]]    it goes there
 *   carry leech SEGMENT BRIDGE VOLUME [BEFORE [AFTER]]   it comes from there, and is fetched
 *
 * BEFORE is a command that is run just before requests wait: does it fail, the volume stays. AFTER
 * is run when they go on, wherever the volume is then.
 */
#include <errno.h>
#include <peer/rehoming.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct carry {
	const char *before, *after;
	uint64_t local;
};

static int before_suspend(void *context)
{
	const struct carry *carry = context;
	printf("suspends\n");
	return carry->before && system(carry->before) != 0 ? -ECANCELED : 0;
}

static void after_sync(void *context, int error)
{
	const struct carry *carry = context;
	printf("synced: %s\n", error ? strerror(-error) : "moved");
	fflush(stdout);
	if (carry->after && system(carry->after) != 0)
		fprintf(stderr, "carry: '%s' failed\n", carry->after);
}

static void chunk_is_local(void *context, uint64_t offset, uint64_t length)
{
	struct carry *carry = context;
	carry->local += length;
	printf("local: %llu bytes at %llu\n", (unsigned long long)length,
		(unsigned long long)offset);
}

static void before_close(void *context)
{
	const struct carry *carry = context;
	printf("closes: %llu bytes are local\n", (unsigned long long)carry->local);
}

int main(int count, char **words)
{
	bool seeds = count > 4 && !strcmp(words[1], "seed");
	if (count < 5 || count > 7 || (!seeds && strcmp(words[1], "leech") != 0)) {
		fprintf(stderr, "usage: carry seed|leech SEGMENT BRIDGE VOLUME [BEFORE [AFTER]]\n");
		return 2;
	}
	struct carry carry = {
		.before = count > 5 ? words[5] : NULL, .after = count > 6 ? words[6] : NULL};
	struct rehoming_ask ask = {.segment = words[2],
		.bridge = words[3],
		.context = &carry,
		.before_suspend = before_suspend,
		.after_sync = after_sync,
		.chunk_is_local = chunk_is_local,
		.before_close = before_close};
	struct rehoming *rehoming =
		seeds ? rehoming_seed(&ask, words[4]) : rehoming_leech(&ask, words[4]);
	if (!rehoming) {
		fprintf(stderr, "carry: %s\n", rehoming_why());
		return 1;
	}
	int error;
	while ((error = rehoming_step(rehoming)) > 0)
		usleep(20000);
	rehoming_close(rehoming);
	if (error)
		fprintf(stderr, "carry: %s\n", strerror(-error));
	return error != 0;
}
