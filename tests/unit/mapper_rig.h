/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A mapper over a store in memory (tests/lib/map_memory.h) that does as it is told, inside a test
 * program. The store outlives the mapper: mrig_again() begins another one over it.
 */
#ifndef SKERRY_TESTS_MAPPER_RIG_H
#define SKERRY_TESTS_MAPPER_RIG_H

#include "peers/map/mapper.h"
#include "tests/lib/map_memory.h"
#include "tests/unit/core_rig.h"

#define MRIG_OBJECT 65536u

struct mrig {
	struct rig rig;
	unsigned lanes;
	char spec[256];
	uint8_t *out; /* the last answer, from MAP_ANSWER_AT (or 0) on */
	uint32_t size;
	uint64_t value;
};

void mrig_begin(struct mrig *mrig, unsigned lanes, const char *options);
void mrig_again(struct mrig *mrig, const char *options);
/* The old one meets the store's faults to its end, the new one none. */
void mrig_healed_again(struct mrig *mrig, const char *options);
void mrig_end(struct mrig *mrig);
/* The store's memory, locked against its lane until mrig_unlock(). */
struct map_memory *mrig_lock(void);
void mrig_unlock(void);
/* Requests to the store wait as long as this is true (not of the volume in mrig_spare). */
extern _Atomic bool mrig_hold;
extern _Atomic int mrig_fence; /* what FENCE is answered with; -EOPNOTSUPP */
/* Before mrig_begin(): a segment with fewer requests than the mapper would like to have. */
extern bool mrig_small;
extern _Atomic uint64_t mrig_spare;
extern _Atomic unsigned mrig_held;

/* Another client of the same mapper, for a thread of its own. */
void mrig_client(struct mrig *mrig, struct client *client);
/* A request for one, as it is to be sent with client_do(). */
int mrig_ask_at(struct client *client, struct mrig *mrig, enum map_control what, uint64_t volume,
	uint64_t arg, const void *in, uint32_t in_size);
/* One control; the answer's data lie in mrig->out. */
int mrig_control(struct mrig *mrig, enum map_control what, uint64_t volume, uint64_t arg,
	const void *in, uint32_t in_size);
int mrig_named(struct mrig *mrig, enum map_control what, const char *name, uint64_t arg);
int mrig_ask(struct mrig *mrig, enum map_control what, uint64_t volume, const struct map_ask *ask);
int mrig_create(struct mrig *mrig, const char *name, uint64_t size, uint64_t *id);
int mrig_info(struct mrig *mrig, uint64_t id, const char *name, struct xseg_volume_info *info);
int mrig_remove(struct mrig *mrig, uint64_t id);
/* In pieces of `room`; how many, the names separated by spaces. */
unsigned mrig_list_at(struct client *client, unsigned room, char *names, size_t size);
unsigned mrig_list(struct mrig *mrig, unsigned room, char *names, size_t size);
int mrig_acquire(struct mrig *mrig, uint64_t id, struct map_head_info *head);
/* The home record of a volume, as the store has it. */
struct map_home mrig_home(uint64_t id);
/* Object `object` is the volume's own and whole, at epoch `epoch`; its data are in the store. */
int mrig_publish(struct mrig *mrig, uint64_t id, uint32_t object, uint32_t epoch);
void mrig_data(uint64_t id, uint32_t epoch, uint32_t object, uint8_t byte);
/* The first byte at that offset of an object in the store. */
uint8_t mrig_byte(uint64_t id, uint32_t epoch, uint32_t object, uint32_t offset);
/* Entry `object` of the map, as a word. */
uint64_t mrig_word(struct mrig *mrig, uint64_t id, uint32_t object);
/* Somebody on another host. */
int mrig_other_acquire(uint64_t id, bool force, struct map_home *home);
uint64_t mrig_counter(struct mrig *mrig, enum mapper_counter counter);

#endif
