/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A loop on a client library with nothing around it: what bench/stores.py measures stores against.
 * So many requests are always on their way, at places in no order.
 *
 * Units: bytes. Errors: a sentence, status 1. Threads: one.
 */
#ifndef SKERRY_BENCH_BARE_H
#define SKERRY_BENCH_BARE_H

#include <stdbool.h>
#include <stdint.h>

#define BARE_OBJECT (4u << 20)
#define BARE_DEPTH_MAX 256u

struct bare {
	bool reads;
	uint32_t block, depth;
	double seconds;
	uint64_t size;
	void (*submit)(const struct bare *bare, uint32_t slot, uint64_t at);
	uint32_t (*collect)(void); /* waits for one, says which */
};

/* "read|write BLOCK DEPTH SECONDS SIZE", five words. */
void bare_parse(struct bare *bare, char **words);
/* Prints JSON: operations a second, and CPU microseconds of each. */
void bare_run(const struct bare *bare);
_Noreturn void bare_fail(const char *what, const char *why);

#endif
