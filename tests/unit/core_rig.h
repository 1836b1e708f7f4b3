/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A host with small peers inside a test program, and a client that asks them.
 *
 * Roles: t_store keeps bytes (one array for all its shards), t_split cuts reads and writes every
 * 8 KiB and joins, t_pass forwards everything. What t_store does to each op stands in core_rig.c.
 */
#ifndef SKERRY_TESTS_CORE_RIG_H
#define SKERRY_TESTS_CORE_RIG_H

#include <peer/client.h>

#include "peers/core/core.h"
#include "tests/lib/unit.h"

#define RIG_BYTES (8u << 20)
#define RIG_SPLIT 8192u

extern const struct peer_ops rig_store_ops, rig_split_ops, rig_pass_ops;

/* What t_store has in common; rig_store() finds it. */
struct rig_store {
	uint8_t bytes[RIG_BYTES];
	_Atomic unsigned flushes[HOST_LANES_MAX], reads[HOST_LANES_MAX];
	_Atomic unsigned stops, finished, ran, lossy;
	_Atomic bool hold;    /* PREFETCH, CLOSE and CONTROL wait until it is false */
	pthread_t poster[64]; /* a thread for each CONTROL */
	_Atomic unsigned posters;
	_Atomic uint32_t lanes_of_object[64];
};

struct rig {
	struct xseg seg;
	struct host host;
	struct client client;
	bool serving;
};

/* A segment of `size` bytes (0: default), a host with these peers ("a=t_store"; NULL ends). */
void rig_begin(struct rig *rig, uint64_t size, unsigned lanes, const char *const *specs);
/* Its peers end. */
void rig_halt(struct rig *rig);
/* Its peers end, if they have not yet, and others begin in the same segment. */
void rig_again(struct rig *rig, unsigned lanes, const char *const *specs);
/* The client asks that peer from now on. */
void rig_ask(struct rig *rig, const char *peer);
/* Stops, checks that everything drained and that no page or request was lost. */
void rig_end(struct rig *rig);
struct rig_store *rig_store(struct rig *rig, const char *peer);
struct host_peer *rig_peer(struct rig *rig, const char *peer);
/*
 * Looking at what belongs to a lane that goes on. A word is whole, and what was asked for has been
 * answered; the thread sanitizer cannot know that this is enough.
 */
#define RIG_PEEK __attribute__((no_sanitize("thread"), noinline))
uint32_t rig_jobs(struct rig *rig, const char *peer);
bool rig_holds(
	struct rig *rig, const char *peer, uint64_t offset, const void *bytes, uint32_t length);
/* A counter of all shards of a peer. */
uint64_t rig_counter(struct rig *rig, const char *peer, enum core_counter counter);

int rig_read(struct rig *rig, uint64_t offset, void *to, uint32_t length);
int rig_write(struct rig *rig, uint64_t offset, const void *from, uint32_t length);
int rig_do(struct rig *rig, enum xseg_op op, uint64_t offset, uint32_t length, uint64_t *value);
/* Bytes that say where they are and which time they were made. */
void rig_pattern(uint8_t *to, uint32_t length, uint32_t seed);
/* Until it is true, 10 s at most. */
#define RIG_UNTIL(cond) \
	do { \
		for (int rig_i = 0; rig_i < 120000 && !(cond); rig_i++) \
			usleep(1000); \
		ck_assert(cond); \
	} while (0)

#endif
