/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is near and in doubt is compared with the far store by digests, so that only what another
 * host has changed is fetched. What is changed meanwhile is poisoned, as with what is fetched.
 */
#include "peers/tier/tier.h"

/* The chunks that are the same at both. */
static uint64_t same_chunks(const struct tier_fill *fill)
{
	uint64_t same = 0;
	uint32_t at = 0;
	for (uint64_t left = fill->mask; left; left &= left - 1, at++) {
		uint8_t here[XSEG_DIGEST], there[XSEG_DIGEST];
		call_digest(fill->call, at * TIER_CHUNK, TIER_CHUNK, here);
		call_get_bytes(fill->digest, at * XSEG_DIGEST, there, XSEG_DIGEST);
		if (memcmp(here, there, XSEG_DIGEST) == 0)
			same |= left & -left;
	}
	return same;
}

static void answered(struct call *call)
{
	struct tier_fill *fill = call->context;
	struct tier_object *object = fill->object;
	struct tier *tier = fill->tier;
	uint64_t same = 0;
	if (--fill->asked > 0)
		return;
	int error = fill->digest->result;
	if (error == 0 && fill->call->result == 0)
		same = same_chunks(fill) & ~fill->poison & ~object->present;
	/* a far store that is another one by now, or was updated, is asked by the next tier */
	if (error == -EOPNOTSUPP || error == -EINVAL) {
		tier->no_digests = true;
		error = 0;
	}
	if (error == 0)
		object->doubt &= ~fill->mask | fill->poison;
	if (same && tier->state == TIER_STATE_ON) {
		tier_object_present(tier, object, object->present | same);
		tier_log_changed(tier, object);
		peer_count(tier->peer, TIER_C_UNCHANGED,
			(uint64_t)__builtin_popcountll(same) * TIER_CHUNK);
	}
	tier_fill_end(fill, error);
}

int tier_check_begin(struct tier *tier, struct tier_object *object, uint64_t mask)
{
	uint32_t at = tier_run_at(mask), size = tier_run_size(mask);
	int error;
	struct tier_fill *fill = tier_fill_new(tier, object, mask, true, &error);
	if (!fill)
		return error;
	error = tier_serve_call(tier, XSEG_OP_READ, object->key, at, size, &fill->call);
	if (error) {
		free(fill);
		return error;
	}
	error = tier_serve_call(tier, XSEG_OP_CONTROL, object->key, at,
		size / TIER_CHUNK * XSEG_DIGEST, &fill->digest);
	if (error) {
		call_end(fill->call);
		free(fill);
		return error;
	}
	fill->digest->length = size;
	fill->digest->arg0 = XSEG_CONTROL_DIGEST;
	fill->digest->arg1 = TIER_CHUNK;
	fill->call->context = fill->digest->context = fill;
	fill->asked = 2;
	tier_fill_join(fill);
	call_submit(fill->call, TIER_NEAR, answered);
	call_submit(fill->digest, TIER_FAR, answered);
	return 0;
}
