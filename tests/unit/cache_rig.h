/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A cache over a store that does as it is told, inside a test program, and a client that asks.
 *
 * The store (role c_store) keeps 64 KiB of each of a few objects and notes what it is asked in
 * order. Lanes: as many as the test wants, for both. Threads: the client's is the test's.
 */
#ifndef SKERRY_TESTS_CACHE_RIG_H
#define SKERRY_TESTS_CACHE_RIG_H

#include <peer/cache.h>

#include "tests/unit/core_rig.h"

#define CRIG_OBJECTS 16u
#define CRIG_BYTES 65536u /* of each object */
#define CRIG_EVENTS 8192u

struct crig_event {
	enum xseg_op op;
	unsigned flags;
	uint32_t object;
	uint64_t offset;
	uint32_t length;
	uint8_t first; /* byte of the data */
	int result;
};

struct crig_store {
	_Atomic int fail_write, fail_flush; /* a flush that fails loses everything */
	_Atomic int fail_control;
	_Atomic bool range;	   /* writes and flushes wait until it is false */
	_Atomic bool hold_flush;   /* flushes alone */
	_Atomic bool flushes_pass; /* flushes do not, even so */
	_Atomic uint32_t held;
	_Atomic uint64_t read_ns, write_ns, flush_ns; /* so long they take */
	pthread_mutex_t mutex;
	uint32_t count;
	struct crig_event events[CRIG_EVENTS];
	uint8_t bytes[CRIG_OBJECTS][CRIG_BYTES];
};

struct crig {
	struct rig rig;
	unsigned lanes;
	char cache[256];
	struct host apart; /* the cache's, when the store has one to itself */
	bool is_apart;
};

/* options: of the cache, ",age=1h..." */
void crig_begin(struct crig *crig, unsigned lanes, const char *options);
/* Stops both and starts them in the same segment; `stops`: what host_stop() is to say. */
void crig_again(struct crig *crig, const char *options);
/* Each in a host of its own, on one lane; crig_apart_again() starts the cache anew, and the client
   and what the store has goes on. */
void crig_apart_begin(struct crig *crig, const char *options);
void crig_apart_again(struct crig *crig, const char *options);
void crig_end(struct crig *crig);
struct crig_store *crig_store(struct crig *crig);
/* Events of that op so far (shard 0's, of FLUSH), and the place of the nth one, from 0 on. */
uint32_t crig_count(struct crig *crig, enum xseg_op op);
uint32_t crig_count_with(struct crig *crig, enum xseg_op op, unsigned flags);
uint32_t crig_place(struct crig *crig, enum xseg_op op, uint32_t nth);

struct client_request crig_request(
	enum xseg_op op, uint32_t object, uint64_t offset, uint32_t length);
/* Writes `length` bytes of that value. */
int crig_write(struct crig *crig, uint32_t object, uint64_t offset, uint32_t length, uint8_t value,
	unsigned flags);
/* Are those bytes, as the cache reads them or as the store has them, all of that value? */
bool crig_reads(
	struct crig *crig, uint32_t object, uint64_t offset, uint32_t length, uint8_t value);
bool crig_has(struct crig *crig, uint32_t object, uint64_t offset, uint32_t length, uint8_t value);
int crig_do(struct crig *crig, enum xseg_op op, uint32_t object, uint64_t offset, uint32_t length);
int crig_flush(struct crig *crig);
int crig_control(struct crig *crig, enum cache_control what, uint64_t volume, uint64_t number,
	uint64_t *value);
int crig_set(struct crig *crig, uint64_t volume, enum cache_mode mode, enum cache_ack ack);
struct cache_state crig_state(struct crig *crig);

#endif
