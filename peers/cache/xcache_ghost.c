/* SPDX-License-Identifier: Apache-2.0 */
/* Who went lately: sets of 16 fingerprints with the time each was added. */
#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "peers/cache/xcache_priv.h"

#define TIME_MASK (GHOST_TIMES - 1)
#define SPANS 512u	 /* that the limit is divided into */
#define SPANS_MAX 2048u	 /* living at once, many of them nearly empty after many takes */
#define SWEEP_EVERY 8u	 /* adds: all sets are swept before a time comes again */
#define LOAD_PERCENT 60u /* of the slots in use: few sets overflow */

static uint32_t sets_for(uint32_t limit)
{
	return (uint32_t)((uint64_t)limit * 100 / (GHOST_WAYS * LOAD_PERCENT)) + 1;
}

static bool is_living(const struct xcache_ghost *ghost, uint32_t slot)
{
	return slot && ((ghost->now - slot) & TIME_MASK) <= ghost->now - ghost->oldest;
}

static uint32_t *set_of(const struct xcache_ghost *ghost, uint64_t hash)
{
	uint64_t set = ((hash >> 32) * ghost->sets) >> 32;
	return ghost->slots + set * GHOST_WAYS;
}

static uint32_t print_of(uint64_t hash)
{
	uint32_t print = (uint32_t)hash & ~TIME_MASK;
	return print ? print : GHOST_TIMES;
}

static uint32_t *find(const struct xcache_ghost *ghost, uint64_t hash)
{
	uint32_t *set = set_of(ghost, hash), print = print_of(hash);
	for (uint32_t i = 0; i < GHOST_WAYS; i++)
		if ((set[i] & ~TIME_MASK) == print && is_living(ghost, set[i]))
			return &set[i];
	return NULL;
}

static void forget(struct xcache_ghost *ghost, uint32_t *slot)
{
	ghost->count[*slot & TIME_MASK]--;
	ghost->live--;
	*slot = 0;
}

/* A place in the set; when all are taken the oldest one's. */
static uint32_t *place(struct xcache_ghost *ghost, uint32_t *set)
{
	uint32_t oldest = 0, age_max = 0;
	for (uint32_t i = 0; i < GHOST_WAYS; i++) {
		if (!is_living(ghost, set[i]))
			return &set[i];
		uint32_t age = (ghost->now - set[i]) & TIME_MASK;
		if (age >= age_max) {
			age_max = age;
			oldest = i;
		}
	}
	forget(ghost, &set[oldest]);
	return &set[oldest];
}

/* What was forgotten with its span is cleared before its time is used again. */
static void sweep(struct xcache_ghost *ghost)
{
	uint32_t *set = ghost->slots + (size_t)ghost->sweep * GHOST_WAYS;
	for (uint32_t i = 0; i < GHOST_WAYS; i++)
		if (!is_living(ghost, set[i]))
			set[i] = 0;
	ghost->sweep = ghost->sweep + 1 == ghost->sets ? 0 : ghost->sweep + 1;
}

static void forget_oldest(struct xcache_ghost *ghost)
{
	uint32_t *count = &ghost->count[ghost->oldest++ & TIME_MASK];
	ghost->live -= *count;
	*count = 0;
}

void xcache_ghost_add(struct xcache_ghost *ghost, uint64_t hash)
{
	if (ghost->limit == 0 || find(ghost, hash))
		return;
	*place(ghost, set_of(ghost, hash)) = print_of(hash) | (ghost->now & TIME_MASK);
	ghost->count[ghost->now & TIME_MASK]++;
	ghost->live++;
	if (++ghost->made == ghost->span) {
		ghost->made = 0;
		ghost->now++;
	}
	while (ghost->live > ghost->limit || ghost->now - ghost->oldest > SPANS_MAX)
		forget_oldest(ghost);
	if (++ghost->adds % SWEEP_EVERY == 0)
		sweep(ghost);
}

bool xcache_ghost_take(struct xcache_ghost *ghost, uint64_t hash)
{
	uint32_t *slot = ghost->live ? find(ghost, hash) : NULL;
	if (!slot)
		return false;
	forget(ghost, slot);
	return true;
}

int xcache_ghost_open(struct xcache_ghost *ghost, uint32_t limit_max)
{
	memset(ghost, 0, sizeof(*ghost));
	ghost->reserved = (size_t)sets_for(limit_max) * GHOST_WAYS * sizeof(uint32_t);
	void *base = mmap(NULL, ghost->reserved, PROT_READ | PROT_WRITE,
		MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (base == MAP_FAILED)
		return -ENOMEM;
	ghost->slots = base;
	xcache_ghost_limit(ghost, limit_max);
	return 0;
}

void xcache_ghost_close(struct xcache_ghost *ghost)
{
	if (ghost->slots)
		munmap(ghost->slots, ghost->reserved);
	ghost->slots = NULL;
}

void xcache_ghost_limit(struct xcache_ghost *ghost, uint32_t limit)
{
	struct xcache_ghost fresh = {.slots = ghost->slots, .reserved = ghost->reserved};
	*ghost = fresh;
	ghost->limit = limit;
	ghost->sets = sets_for(limit);
	ghost->span = limit / SPANS ? limit / SPANS : 1;
	must(madvise(ghost->slots, ghost->reserved, MADV_DONTNEED) == 0);
}
