/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Is the index O(1)? Hits, cold inserts (each of which evicts one) and evictions of full indices
 * of growing size, beside an access to a flat array of as many entries: what grows there grows
 * because the memory does not fit into the processor's caches. Bursts of all kinds interleaved;
 * CPU time.
 */
#include <base/time.h>
#include <string.h>
#include <time.h>

#include "bench/common.h"
#include "peers/cache/xcache.h"

#define OPS 20000u   /* of one burst */
#define DENSITY 256u /* buckets cached of each object */

static const struct xcache_policy *const policies[] = {
	&xcache_lru, &xcache_s3fifo, &xcache_clock2q};
enum { SIZE_1M = 3, SIZES = 5 };
static const uint32_t sizes[SIZES] = {128u << 10, 256u << 10, 512u << 10, 1u << 20, 4u << 20};

enum kind { FLAT, HIT, INSERT, EVICT, KINDS };
static const char *const kinds[KINDS] = {"flat array", "hit", "cold insert", "evict"};

struct rig {
	struct xcache *cache;
	struct xcache_entry *flat; /* as many, at their numbers */
	struct {
		struct xseg_key key;
		uint32_t bucket;
	} hits[OPS];
	uint32_t size, next; /* number of the bucket inserted next */
	uint64_t seed, sum;
	struct samples samples[KINDS];
};

/* The nth bucket of all there can be: DENSITY in each object, spread. */
static void place_of(uint32_t number, struct xseg_key *key, uint32_t *bucket)
{
	*key = (struct xseg_key){.volume = 1, .object = number / DENSITY};
	*bucket = number % DENSITY * (XCACHE_BUCKETS / DENSITY);
}

static uint32_t insert(struct rig *rig, uint32_t number)
{
	struct xseg_key key;
	uint32_t object, bucket, entry;
	place_of(number, &key, &bucket);
	must(xcache_get_object(rig->cache, &key, &object) == 0);
	must(xcache_insert(rig->cache, object, bucket, &entry) == 0);
	return entry;
}

static void rig_open(
	struct rig *rig, const struct xcache_policy *policy, uint32_t size, uint32_t rounds)
{
	struct xcache_config config = {
		.objects_max = 2 * (size / DENSITY) + 16, .entries_max = size, .policy = policy};
	memset(rig, 0, sizeof(*rig));
	rig->size = size;
	rig->seed = size;
	must(xcache_open(&rig->cache, &config) == 0);
	rig->flat = calloc(size, sizeof(*rig->flat));
	must(rig->flat);
	memset(rig->flat, 1, size * sizeof(*rig->flat));
	for (unsigned kind = 0; kind < KINDS; kind++)
		samples_init(&rig->samples[kind], rounds);
	for (uint32_t i = 0; i < size; i++)
		insert(rig, rig->next++);
}

static void rig_close(struct rig *rig)
{
	xcache_close(rig->cache);
	free(rig->flat);
	for (unsigned kind = 0; kind < KINDS; kind++)
		samples_fini(&rig->samples[kind]);
}

/* Where the next one lies depends on what this one says, as on the way to an entry. */
static void run_flat(struct rig *rig)
{
	for (unsigned i = 0; i < OPS; i++) {
		uint64_t any = random_next(&rig->seed) + rig->sum;
		struct xcache_entry *e = &rig->flat[any % rig->size];
		e->policy |= 4;
		rig->sum += e->page;
	}
}

/* Not timed: entries that are there, at random. The burst on the flat array runs in between. */
static void pick(struct rig *rig)
{
	for (unsigned i = 0; i < OPS;) {
		uint32_t any = (uint32_t)(random_next(&rig->seed) % rig->size);
		const struct xcache_entry *e = xcache_entry(rig->cache, any);
		if (e->state != XCACHE_IN)
			continue;
		rig->hits[i].key = xcache_object(rig->cache, e->object)->key;
		rig->hits[i++].bucket = e->bucket;
	}
}

static void run_hit(struct rig *rig)
{
	for (unsigned i = 0; i < OPS; i++) {
		uint32_t object = xcache_find_object(rig->cache, &rig->hits[i].key);
		uint32_t entry = xcache_lookup(rig->cache, object, rig->hits[i].bucket);
		xcache_hit(rig->cache, entry);
		rig->sum += xcache_entry(rig->cache, entry)->page;
	}
}

static void run_insert(struct rig *rig)
{
	for (unsigned i = 0; i < OPS; i++)
		rig->sum += insert(rig, rig->next++);
}

static void run_evict(struct rig *rig) { rig->sum += xcache_evict(rig->cache, OPS); }

/* Of this thread alone: steadier than the time of day, on a busy machine. */
static uint64_t cpu_now_ns(void)
{
	struct timespec t;
	must(clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t) == 0);
	return time_of(&t);
}

static void burst(struct rig *rig, enum kind kind)
{
	static void (*const runs[KINDS])(struct rig *) = {run_flat, run_hit, run_insert, run_evict};
	uint64_t t = cpu_now_ns();
	runs[kind](rig);
	samples_add(&rig->samples[kind], (double)(cpu_now_ns() - t) / OPS);
}

static void rounds(struct rig *rigs, unsigned count, unsigned sizes_used)
{
	for (unsigned i = 0; i < count; i++)
		for (unsigned s = 0; s < sizes_used; s++) {
			struct rig *rig = &rigs[s];
			pick(rig);
			for (unsigned kind = 0; kind < KINDS; kind++)
				burst(rig, kind);
			while (xcache_room(rig->cache)) /* full again */
				insert(rig, rig->next++);
		}
}

/* Times of a flat access of the same run: what is left of it when memory is taken out. */
static double relative(struct rig *rig, enum kind kind)
{
	return samples_median(&rig->samples[kind]) / samples_median(&rig->samples[FLAT]);
}

static void report(struct bench *bench, struct rig *rigs, unsigned sizes_used, const char *policy)
{
	char what[64];
	for (unsigned kind = HIT; kind < KINDS; kind++) {
		for (unsigned s = 0; s < sizes_used; s++) {
			double flat = samples_median(&rigs[s].samples[FLAT]);
			snprintf(what, sizeof(what), "%s, %s, %u Ki", policy, kinds[kind],
				sizes[s] >> 10);
			bench_row(bench, what, samples_median(&rigs[s].samples[kind]), "CPU ns",
				flat, "flat array as large");
		}
		snprintf(what, sizeof(what), "%s, %s, ratio at 1024 Ki", policy, kinds[kind]);
		bench_row(bench, what, relative(&rigs[SIZE_1M], kind), "flat",
			relative(&rigs[0], kind), "ratio at 128 Ki");
		bench_goal(bench, BENCH_AT_MOST, 2);
	}
}

static void measure(struct bench *bench, const struct xcache_policy *policy)
{
	static struct rig rigs[SIZES];
	unsigned sizes_used = bench_pick(bench, SIZES, SIZES - 1);
	unsigned count = bench_pick(bench, 40, 5);
	for (unsigned s = 0; s < sizes_used; s++)
		rig_open(&rigs[s], policy, sizes[s], count);
	rounds(rigs, count, sizes_used);
	report(bench, rigs, sizes_used, policy->name);
	printf("%s: %.1f bytes of memory for a bucket, at %u buckets an object\n", policy->name,
		(double)xcache_memory(rigs[SIZE_1M].cache) / sizes[SIZE_1M], DENSITY);
	for (unsigned s = 0; s < sizes_used; s++)
		rig_close(&rigs[s]);
}

int main(int argc, char **argv)
{
	struct bench bench;
	bench_begin(&bench, "bench_xcache: the index, by its size in buckets", argc, argv);
	bench_pin(0);
	for (unsigned p = 0; p < countof(policies); p++)
		measure(&bench, policies[p]);
	printf("\n");
	return bench_end(&bench);
}
