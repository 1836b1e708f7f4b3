/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checks a blocker through a segment, or does one thing to it:
 *
 *   blocker_check create SEGMENT SIZE | destroy SEGMENT
 *   blocker_check all SEGMENT PEER [STEPS [SEED]]        TAP; 0 when every law holds
 *   blocker_check some SEGMENT PEER [STEPS [SEED]]       of records and random requests alone
 *   blocker_check shared SEGMENT PEER SEGMENT2 PEER2     laws of two segments on one store
 *   blocker_check write|fua|read|zero|zero-keep|zero-fast|discard
 *                 SEGMENT PEER VOLUME OBJECT OFFSET LENGTH [SEED]
 *   blocker_check delete|flush SEGMENT PEER VOLUME OBJECT
 *   blocker_check fence|leave SEGMENT PEER VOLUME TERM
 *   blocker_check fill SEGMENT PEER VOLUME COUNT         whole objects, until one fails
 *   blocker_check put|get|remove SEGMENT PEER VOLUME VERSION    a record
 *   blocker_check pattern SEGMENT PEER OBJECT_SIZE       laws of blocker_pattern
 *   blocker_check hammer SEGMENT PEER VOLUME FIRST       writes for ever; a number for each flush
 *   blocker_check verify SEGMENT PEER VOLUME LAST        what a hammer left that said LAST
 *
 * Single operations print "ok", "wrong data" or the name of the error; exit status 0 when the
 * blocker answered at all. `read` expects what `write` with the same seed left; seed 0: zeros.
 */
#include <base/size.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/lib/blocker_rig.h"

static int usage(void)
{
	fprintf(stderr, "blocker_check: see the head of tests/lib/blocker_check.c\n");
	return 2;
}

static int say(int error)
{
	puts(error == 0 ? "ok" : strerrorname_np(-error));
	return error == -ETIMEDOUT;
}

static int create(const char *name, const char *text)
{
	char why[XSEG_WHY_SIZE] = "";
	struct xseg_config config = {.name = name};
	if (size_parse(text, &config.size))
		return usage();
	if (xseg_segment_create(&config, why) == 0)
		return 0;
	fprintf(stderr, "blocker_check: %s\n", why);
	return 1;
}

static int destroy(const char *name)
{
	char why[XSEG_WHY_SIZE] = "";
	if (xseg_segment_destroy(name, why) == 0)
		return 0;
	fprintf(stderr, "blocker_check: %s\n", why);
	return 1;
}

static int check_all(struct rig *rig, unsigned steps, bool whole)
{
	if (whole)
		blocker_laws(rig);
	blocker_records(rig);
	if (whole)
		blocker_fence(rig);
	blocker_model(rig, steps);
	printf("1..%u\n", rig->laws);
	return rig->broken ? 1 : 0;
}

static int check_shared(struct rig *rig, const char *segment, const char *peer)
{
	struct rig other = {0};
	if (rig_open(&other, segment, peer))
		return 1;
	blocker_fence_shared(rig, &other);
	rig_close(&other);
	printf("1..%u\n", rig->laws);
	return rig->broken ? 1 : 0;
}

static uint64_t number(const char *text) { return strtoull(text, NULL, 0); }

static int read_checked(struct rig *rig, struct xseg_key key, struct span span, uint64_t seed)
{
	int error = rig_read(rig, key, span, rig->in);
	if (error)
		return say(error);
	long wrong =
		seed ? pattern_check(rig->in, key, span, seed) : zeros_check(rig->in, span.length);
	puts(wrong < 0 ? "ok" : "wrong data");
	return 0;
}

/* argv: OFFSET LENGTH [SEED] */
static int transfer(struct rig *rig, const char *verb, struct xseg_key key, char **argv, int argc)
{
	if (argc < 2)
		return usage();
	struct span span = {number(argv[0]), (uint32_t)number(argv[1])};
	uint64_t seed = argc > 2 ? number(argv[2]) : 0;
	if (span.length > XSEG_OBJECT_MAX)
		return usage();
	if (strcmp(verb, "read") == 0)
		return read_checked(rig, key, span, seed);
	if (strcmp(verb, "write") == 0 || strcmp(verb, "fua") == 0) {
		pattern_fill(rig->out, key, span, seed);
		return say(rig_write(rig, key, span, rig->out, *verb == 'f' ? XSEG_F_FUA : 0));
	}
	if (strcmp(verb, "discard") == 0)
		return say(rig_do(rig, XSEG_OP_DISCARD, key, span, 0));
	unsigned flags = strcmp(verb, "zero-keep") == 0	  ? XSEG_F_NO_HOLE
			 : strcmp(verb, "zero-fast") == 0 ? XSEG_F_FAST_ONLY
							  : 0;
	if (strncmp(verb, "zero", 4) == 0)
		return say(rig_do(rig, XSEG_OP_ZERO, key, span, flags));
	return usage();
}

/* Prints how many objects were written, and what ended it. */
static int fill(struct rig *rig, uint64_t volume, uint32_t count)
{
	struct span all = {0, XSEG_OBJECT_MAX};
	int error = 0;
	uint32_t done = 0;
	for (; done < count && !error; done += !error) {
		struct xseg_key key = {.volume = volume, .object = done};
		pattern_fill(rig->out, key, all, volume);
		error = rig_write(rig, key, all, rig->out, 0);
	}
	printf("%u ", done);
	return say(error);
}

/* put: for the time number `times` + 1, over what is there; get: what was put that often; remove:
   what is there. */
static int record(struct rig *rig, const char *verb, uint64_t volume, uint64_t times)
{
	struct xseg_key key = {.volume = volume, .epoch = XSEG_EPOCH_VOLUME};
	struct span span = {0, 256};
	uint64_t found;
	int size = rig_cas_get(rig, key, rig->in, XSEG_RECORD_MAX, &found);
	if (strcmp(verb, "put") == 0) {
		found = times == 0 ? 0 : found;
		pattern_fill(rig->out, key, span, times + 1);
		return say(rig_cas_put(rig, key, rig->out, span.length, &found));
	}
	if (size < 0 || strcmp(verb, "remove") == 0)
		return say(size < 0 ? size : rig_cas_delete(rig, key, &found));
	bool good = size == (int)span.length && pattern_check(rig->in, key, span, times) < 0;
	puts(good ? "ok" : "wrong data");
	return 0;
}

/* --- writing until somebody is killed --------------------------------------------- */

#define HAMMER_PLACES 512u
#define HAMMER_FLUSH 16u
#define HAMMER_SIZE 8192u

/* Write number n goes to the same place as n + HAMMER_PLACES. */
static struct xseg_key hammer_key(uint64_t volume, uint64_t n)
{
	return (struct xseg_key){.volume = volume, .object = (uint32_t)(n % 8)};
}

static struct span hammer_span(uint64_t n)
{
	return (struct span){n % HAMMER_PLACES / 8 * HAMMER_SIZE, HAMMER_SIZE};
}

static int hammer(struct rig *rig, uint64_t volume, uint64_t first)
{
	for (uint64_t n = first;; n++) {
		struct xseg_key key = hammer_key(volume, n);
		struct span span = hammer_span(n), none = {0, 0};
		pattern_fill(rig->out, key, span, n + 1);
		int error = rig_write(rig, key, span, rig->out, 0);
		if (error)
			return say(error);
		if (n % HAMMER_FLUSH != HAMMER_FLUSH - 1)
			continue;
		error = rig_do(rig, XSEG_OP_FLUSH, key, none, 0);
		if (error)
			return say(error);
		printf("%llu\n", (unsigned long long)n);
		fflush(stdout);
	}
}

/* Of each page: a kernel that ends a process may do so between two pages of what it writes to a
   file (tmpfs does), and nobody has promised more of a write that was not answered. */
static bool place_holds(const struct rig *rig, struct xseg_key key, struct span span, uint64_t n)
{
	for (uint32_t at = 0; at < span.length; at += XSEG_PAGE) {
		struct span page = {span.offset + at, XSEG_PAGE};
		if (pattern_check(rig->in + at, key, page, n + 1) >= 0 &&
			pattern_check(rig->in + at, key, page, n + HAMMER_PLACES + 1) >= 0)
			return false;
	}
	return true;
}

/* Each place holds the write that was flushed last, or a later one. */
static int verify(struct rig *rig, uint64_t volume, uint64_t last)
{
	unsigned wrong = 0;
	for (uint64_t i = 0; i < HAMMER_PLACES && i <= last; i++) {
		uint64_t n = last - i;
		struct xseg_key key = hammer_key(volume, n);
		struct span span = hammer_span(n);
		int error = rig_read(rig, key, span, rig->in);
		if (error)
			return say(error);
		wrong += !place_holds(rig, key, span, n);
	}
	if (wrong)
		printf("wrong data in %u places\n", wrong);
	else
		puts("ok");
	return 0;
}

/* Of the store: all, and what is free. */
static int space(struct rig *rig)
{
	struct xseg_space space;
	int error = rig_space(rig, &space);
	if (error)
		return say(error);
	printf("%llu %llu\n", (unsigned long long)space.total, (unsigned long long)space.free);
	return 0;
}

static int run(struct rig *rig, int argc, char **argv)
{
	const char *verb = argv[1];
	bool all = strcmp(verb, "all") == 0;
	if (all || strcmp(verb, "some") == 0) {
		rig->seed = argc > 5 ? number(argv[5]) : clock_now_ns();
		return check_all(rig, argc > 4 ? (unsigned)number(argv[4]) : 3000, all);
	}
	if (argc == 5 && strcmp(verb, "pattern") == 0) {
		blocker_pattern(rig, number(argv[4]));
		printf("1..%u\n", rig->laws);
		return rig->broken ? 1 : 0;
	}
	if (argc < 6)
		return usage();
	if (strcmp(verb, "shared") == 0)
		return check_shared(rig, argv[4], argv[5]);
	struct xseg_key key = {.volume = number(argv[4]), .object = (uint32_t)number(argv[5])};
	struct span none = {0, 0};
	if (strcmp(verb, "delete") == 0)
		return say(rig_do(rig, XSEG_OP_DELETE, key, none, 0));
	if (strcmp(verb, "flush") == 0)
		return say(rig_do(rig, XSEG_OP_FLUSH, key, none, 0));
	if (strcmp(verb, "fill") == 0)
		return fill(rig, key.volume, key.object);
	if (strcmp(verb, "fence") == 0)
		return say(rig_control(rig, key, XSEG_CONTROL_FENCE, key.object, 0));
	if (strcmp(verb, "space") == 0)
		return space(rig);
	if (strcmp(verb, "leave") == 0)
		return say(rig_control(rig, key, XSEG_CONTROL_LEAVE, key.object, 0));
	if (strcmp(verb, "put") == 0 || strcmp(verb, "get") == 0 || strcmp(verb, "remove") == 0)
		return record(rig, verb, key.volume, number(argv[5]));
	if (strcmp(verb, "hammer") == 0)
		return hammer(rig, key.volume, number(argv[5]));
	if (strcmp(verb, "verify") == 0)
		return verify(rig, key.volume, number(argv[5]));
	return transfer(rig, verb, key, argv + 6, argc - 6);
}

int main(int argc, char **argv)
{
	struct rig rig = {0};
	if (argc == 4 && strcmp(argv[1], "create") == 0)
		return create(argv[2], argv[3]);
	if (argc == 3 && strcmp(argv[1], "destroy") == 0)
		return destroy(argv[2]);
	if (argc < 4)
		return usage();
	if (rig_open(&rig, argv[2], argv[3]))
		return 1;
	int status = run(&rig, argc, argv);
	rig_close(&rig);
	return status;
}
