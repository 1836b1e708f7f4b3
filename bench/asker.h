/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What bench_volume asks with: calls that wait, and a bare lane for what is to be fast.
 *
 * Units: bytes, ns. Errors: must(), or the program ends with a sentence. Ownership: caller's.
 * Threads: one. Blocking: all.
 */
#ifndef SKERRY_BENCH_ASKER_H
#define SKERRY_BENCH_ASKER_H

#include <peer/client.h>
#include <peer/map.h>

#include "bench/common.h"

/* The sentence, and the end of the program. */
void asker_fail(const char *what, int error) __attribute__((noreturn));
/* Reaches the port, or ends the program. */
void asker_open(struct client *client, const char *segment, const char *port);

/* Makes `count` volumes, many at a time: PREFIX, or PREFIX0, PREFIX1, ...; the id of one. */
uint64_t asker_create(struct client *client, const char *prefix, uint32_t count, uint64_t size,
	uint32_t object_size);
struct xseg_volume_info asker_open_volume(struct client *client, const char *name, bool writes);
void asker_close_volume(struct client *client, uint64_t id);
void asker_remove(struct client *client, const char *name);
/* A control; `out` of that many bytes may be NULL. How long it took. */
uint64_t asker_control(struct client *client, struct client_request *request,
	const struct map_ask *ask, void *out, uint32_t out_size);

/* One way down of a bare lane; several may share the lane. */
struct asker {
	struct xseg *seg;
	struct xseg_lane *lane;
	uint32_t port;
	uint64_t volume; /* 0: objects of volume 1, as stores take them */
	uint64_t size;	 /* of the volume: a multiple of a page */
	uint64_t asked;	 /* so far: picks what comes next */
	uint64_t errors;
};
/* A read (or write) of one page at a place that no other near it has; how long it took. */
uint64_t asker_one(struct asker *asker, enum xseg_op op, uint64_t block);
/* The same for `count` of them, `depth` at a time: requests a second. */
double asker_many(struct asker *asker, uint32_t count, uint32_t depth);
/* Of this asker's volume, in no order. */
uint64_t asker_block(struct asker *asker);

#endif
