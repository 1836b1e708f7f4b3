/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A part of an object on its way: read from the far store, handed to all who wait for it, written
 * to the near one. What is changed meanwhile poisons it: it may be older or newer than the change,
 * so whoever asked before may have it, but it is not kept, and nobody asks for it any more.
 */
#include "peers/tier/tier.h"

struct tier_fill *tier_fill_find(struct tier_object *object, uint64_t mask)
{
	struct tier_fill *fill;
	TAILQ_FOREACH (fill, &object->fills, link)
		if (!fill->digest && fill->stores == 0 && !(mask & ~fill->mask) &&
			!(mask & fill->poison))
			return fill;
	return NULL;
}

uint64_t tier_fill_mask(const struct tier_object *object)
{
	const struct tier_fill *fill;
	uint64_t mask = 0;
	TAILQ_FOREACH (fill, &object->fills, link)
		mask |= fill->mask;
	return mask;
}

bool tier_fill_stores(const struct tier_object *object, uint64_t mask)
{
	const struct tier_fill *fill;
	TAILQ_FOREACH (fill, &object->fills, link)
		if (fill->stores > 0 && (fill->mask & mask))
			return true;
	return false;
}

void tier_fill_poison(struct tier_object *object, uint64_t mask)
{
	struct tier_fill *fill;
	TAILQ_FOREACH (fill, &object->fills, link)
		fill->poison |= mask;
}

/* --- the answer ----------------------------------------------------------------------------- */

#define PIECE 65536u
#define PIECE_IOV (PIECE / XSEG_PAGE + 1)

static void hand_out(const struct tier_fill *fill, struct job *job)
{
	uint32_t from = tier_run_at(fill->mask);
	for (uint32_t at = 0; at < job->length;) {
		struct iovec iov[PIECE_IOV];
		uint32_t size = job->length - at < PIECE ? job->length - at : PIECE;
		uint32_t place = (uint32_t)job->offset + at - from;
		int count = job_iov(job, at, size, iov, PIECE_IOV);
		must(count > 0);
		for (int i = 0; i < count; i++) {
			call_get_bytes(
				fill->call, place, iov[i].iov_base, (uint32_t)iov[i].iov_len);
			place += (uint32_t)iov[i].iov_len;
		}
		at += size;
	}
	job_complete(job, job->length);
}

static void answer(struct tier_fill *fill)
{
	struct job *job;
	while ((job = TAILQ_FIRST(&fill->joined))) {
		TAILQ_REMOVE(&fill->joined, job, link);
		if (fill->call->result)
			job_fail(job, fill->call->result);
		else
			hand_out(fill, job);
	}
}

/* --- to the near store ------------------------------------------------------------------------ */

/* Nothing is pulled for so long into a store that fails, or is full. */
#define PAUSE_NS 10000000000u

void tier_fill_end(struct tier_fill *fill, int error)
{
	struct tier *tier = fill->tier;
	struct tier_object *object = fill->object;
	TAILQ_REMOVE(&object->fills, fill, link);
	tier->held -= (uint64_t)__builtin_popcountll(fill->mask);
	if (fill->pulled)
		tier->pulling--;
	tier_pull_filled(tier, object, fill->mask, error);
	if (fill->call)
		call_end(fill->call);
	if (fill->digest)
		call_end(fill->digest);
	free(fill);
	tier_object_wake(tier, object);
}

static void store_done(struct call *call)
{
	struct tier_fill *fill = call->context;
	struct tier_object *object = fill->object;
	struct tier *tier = fill->tier;
	uint64_t run = tier_touched(call->offset, call->length) & ~fill->poison;
	int error = call->result;
	call_end(call);
	if (error) {
		peer_count(tier->peer, TIER_C_ERRORS, 1);
		tier->pause_ns = peer_now_ns(tier->peer) + PAUSE_NS;
		fill->poison |= run;
	} else {
		tier_object_present(tier, object, object->present | run);
		tier_log_changed(tier, object);
		peer_count(tier->peer, TIER_C_PULLED, tier_run_size(run));
	}
	if (--fill->stores == 0)
		tier_fill_end(fill, fill->call->result);
}

static int store(struct tier_fill *fill, uint64_t run)
{
	struct call *call;
	int error = call_begin(fill->tier->peer, &call);
	if (error)
		return error;
	call->op = XSEG_OP_WRITE;
	call->key = fill->object->key;
	call->offset = tier_run_at(run);
	call->length = tier_run_size(run);
	call->context = fill;
	error = call_borrow_call(
		call, fill->call, tier_run_at(run) - tier_run_at(fill->mask), call->length);
	if (error) {
		call_end(call);
		return error;
	}
	fill->stores++;
	call_submit(call, TIER_NEAR, store_done);
	return 0;
}

/* What cannot be put there now is fetched again some time. */
static void arrived(struct call *call)
{
	struct tier_fill *fill = call->context;
	struct tier *tier = fill->tier;
	uint64_t left = 0;
	answer(fill);
	if (call->result == 0 && tier->state == TIER_STATE_ON && !peer_pages_low(tier->peer))
		left = fill->mask & ~fill->object->present & ~fill->poison;
	fill->stores = 1; /* none may be the last while they are sent */
	while (left) {
		uint64_t run = tier_run(left, TIER_CHUNKS);
		if (store(fill, run))
			break;
		left &= ~run;
	}
	if (--fill->stores == 0)
		tier_fill_end(fill, fill->call->result);
}

/* An eighth of the segment is for what is on its way, or those who wait for it had no pages. */
static bool is_room(const struct tier *tier, uint64_t mask)
{
	uint64_t most = (uint64_t)peer_segment(tier->peer)->page_count * XSEG_PAGE / 8;
	uint64_t count = tier->held + (uint64_t)__builtin_popcountll(mask);
	return tier->held == 0 || count * TIER_CHUNK <= most;
}

struct tier_fill *tier_fill_new(
	struct tier *tier, struct tier_object *object, uint64_t mask, bool pulled, int *error)
{
	bool room = is_room(tier, mask);
	struct tier_fill *fill = room ? calloc(1, sizeof(*fill)) : NULL;
	struct job *job;
	*error = room ? -ENOMEM : -EAGAIN;
	if (!fill)
		return NULL;
	*fill = (struct tier_fill){.tier = tier, .object = object, .mask = mask, .pulled = pulled};
	TAILQ_INIT(&fill->joined);
	TAILQ_FOREACH (job, &object->writes, link)
		fill->poison |= tier_change_mask(job);
	return fill;
}

void tier_fill_join(struct tier_fill *fill)
{
	struct tier *tier = fill->tier;
	TAILQ_INSERT_TAIL(&fill->object->fills, fill, link);
	tier->held += (uint64_t)__builtin_popcountll(fill->mask);
	if (fill->pulled)
		tier->pulling++;
}

int tier_fill_begin(struct tier *tier, struct tier_object *object, uint64_t mask, bool pulled,
	struct tier_fill **out)
{
	int error;
	struct tier_fill *fill = tier_fill_new(tier, object, mask, pulled, &error);
	if (!fill)
		return error;
	error = tier_serve_call(tier, XSEG_OP_READ, object->key, tier_run_at(mask),
		tier_run_size(mask), &fill->call);
	if (error) {
		free(fill);
		return error;
	}
	fill->call->flags = pulled ? 0 : XSEG_F_URGENT;
	fill->call->context = fill;
	tier_fill_join(fill);
	call_submit(fill->call, TIER_FAR, arrived);
	*out = fill;
	return 0;
}
