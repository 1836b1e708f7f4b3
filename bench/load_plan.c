/* SPDX-License-Identifier: Apache-2.0 */
/* Which block comes next: in order, in an order that meets each once, by a law, by a trace. */
#include <base/hash.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <xseg/port.h>

#include "bench/load.h"

/* --- the footprint ------------------------------------------------------------- */

/* Objects that the target serves on the lane of our own number, when it has as many as we: so a
   shard stacked on another meets only that one. */
static bool plan_is_ours(const struct peer *peer, uint32_t port, uint32_t object)
{
	const struct load_options *options = peer->options;
	const struct xseg *seg = peer_segment(peer);
	struct xseg_frame frame = {.op = XSEG_OP_READ,
		.lane = XSEG_LANE_ANY,
		.key = {.volume = options->volume, .object = object}};
	const struct xseg_port_record *record = &seg->ports[port];
	if (peer->shards == 1 || record->lane_count != peer->shards)
		return object % peer->shards == peer->shard;
	return xseg_port_lane(seg, port, &frame) == record->lane[peer->shard];
}

int load_plan_open(
	struct load_plan *plan, struct peer *peer, uint32_t port, const struct load_trace *trace)
{
	const struct load_options *options = peer->options;
	uint64_t size = options->size, span = options->span;
	if (trace->count && (!size || size > (uint64_t)trace->objects * XSEG_OBJECT_MAX))
		size = (uint64_t)trace->objects * XSEG_OBJECT_MAX;
	/* a small footprint is a part of one object for each shard */
	if (!trace->count && size / peer->shards < span)
		span = size / peer->shards / options->bs * options->bs;
	if (span == 0)
		return -EINVAL;
	uint64_t count = (size / peer->shards + span - 1) / span;
	plan->objects = malloc(count * sizeof(*plan->objects));
	if (!plan->objects)
		return -ENOMEM;
	plan->span = (uint32_t)span;
	plan->trace = trace;
	plan->shard = peer->shard;
	plan->shards = peer->shards;
	plan->random = hash_u64(options->seed + 1 + peer->shard) | 1;
	for (uint32_t object = 0; plan->object_count < count; object++)
		if (plan_is_ours(peer, port, object))
			plan->objects[plan->object_count++] = object;
	return 0;
}

void load_plan_close(struct load_plan *plan) { free(plan->objects); }

/* --- an order that meets each block once --------------------------------------------- */

/* Each step can be undone within `bits`, so no two blocks become one. */
static uint64_t plan_scatter_once(const struct load_plan *plan, uint64_t x)
{
	uint64_t mask = (1ull << plan->bits) - 1;
	unsigned half = plan->bits / 2 + 1;
	x = (x + plan->key) & mask;
	x = hash_u64(x) & mask;
	x ^= x >> half;
	x = x * 0xd6e8feb86659fd93u & mask;
	x ^= x >> half;
	x = (x ^ plan->key >> 32) & mask;
	return x;
}

/* Beyond the last block: on, until it is one of ours; less than two steps on average. */
static uint64_t plan_scatter(const struct load_plan *plan, uint64_t x)
{
	do
		x = plan_scatter_once(plan, x);
	while (x >= plan->blocks);
	return x;
}

/* --- Zipf's law ------------------------------------------------------------------------ */

/*
 * Rank k comes with weight 1 / k^theta. Drawn under the curve x^-theta, whose integral can be
 * turned round, and refused where the curve is above the step of k.
 * Source: rejection-inversion, Hoermann and Derflinger 1996; code is ours.
 */
static double zipf_integral(const struct load_zipf *zipf, double x)
{
	double e = 1 - zipf->theta;
	return fabs(e) < 1e-9 ? log(x) : (pow(x, e) - 1) / e;
}

static double zipf_integral_back(const struct load_zipf *zipf, double y)
{
	double e = 1 - zipf->theta;
	if (fabs(e) < 1e-9)
		return exp(y);
	double base = 1 + y * e;
	return base > 0 ? pow(base, 1 / e) : 0;
}

static void zipf_init(struct load_zipf *zipf, double theta, uint64_t count)
{
	zipf->theta = theta;
	zipf->at_start = zipf_integral(zipf, 1.5) - 1;
	zipf->at_end = zipf_integral(zipf, (double)count + 0.5);
	zipf->shift = 2 - zipf_integral_back(zipf, zipf_integral(zipf, 2.5) - pow(2, -theta));
}

/* 0 first. */
static uint64_t zipf_draw(const struct load_zipf *zipf, uint64_t count, uint64_t *random)
{
	for (;;) {
		double u = (double)(load_random(random) >> 11) * 0x1p-53;
		double y = zipf->at_end + u * (zipf->at_start - zipf->at_end);
		double x = zipf_integral_back(zipf, y);
		uint64_t k = x < 1 ? 1 : (uint64_t)(x + 0.5);
		k = k < 1 ? 1 : k > count ? count : k;
		if ((double)k - x <= zipf->shift ||
			y >= zipf_integral(zipf, (double)k + 0.5) - pow((double)k, -zipf->theta))
			return k - 1;
	}
}

/* --- entry points ------------------------------------------------------------------------- */

void load_plan_begin(
	struct load_plan *plan, enum load_pattern pattern, uint32_t bs, unsigned mix, double theta)
{
	plan->pattern = pattern;
	plan->bs = bs;
	plan->mix = mix;
	plan->per_object = plan->span / bs;
	plan->blocks = (uint64_t)plan->object_count * plan->per_object;
	plan->bits = 1;
	while (1ull << plan->bits < plan->blocks)
		plan->bits++;
	plan->next = plan->rounds = 0;
	plan->key = load_random(&plan->random);
	if (pattern == LOAD_ZIPF)
		zipf_init(&plan->zipf, theta, plan->blocks);
}

static void plan_round(struct load_plan *plan, uint64_t all)
{
	if (plan->next < all)
		return;
	plan->next = 0;
	plan->rounds++;
	/* which blocks are the hot ones stays, the order of a round does not */
	if (plan->pattern == LOAD_RANDOM)
		plan->key = load_random(&plan->random);
}

static bool plan_writes(struct load_plan *plan)
{
	if (plan->mix >= 100)
		return false;
	return plan->mix == 0 || (load_random(&plan->random) >> 16) % 100 >= plan->mix;
}

static void plan_next_record(struct load_plan *plan, struct load_place *place)
{
	const struct load_trace *trace = plan->trace;
	const struct load_record *record;
	uint32_t object;
	/* every object has its shard; at a round's end there may be none of ours for a while */
	do {
		record = &trace->records[plan->next++];
		object = record->object % (plan->object_count * plan->shards);
		plan_round(plan, trace->count);
	} while (object % plan->shards != plan->shard);
	*place = (struct load_place){.object = object / plan->shards,
		.offset = record->offset,
		.length = record->length,
		.write = trace->knows_writes ? record->write : plan_writes(plan)};
}

void load_plan_next(struct load_plan *plan, struct load_place *place)
{
	if (plan->pattern == LOAD_TRACE) {
		plan_next_record(plan, place);
		return;
	}
	uint64_t block = plan->next++;
	if (plan->pattern == LOAD_RANDOM)
		block = plan_scatter(plan, block);
	else if (plan->pattern == LOAD_ZIPF)
		block = plan_scatter(plan, zipf_draw(&plan->zipf, plan->blocks, &plan->random));
	plan_round(plan, plan->blocks);
	place->object = (uint32_t)(block / plan->per_object);
	place->offset = (uint32_t)(block % plan->per_object) * plan->bs;
	place->length = plan->bs;
	place->write = plan_writes(plan);
}
