/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is fetched before anybody asks for it, in this order: what a read has missed and its
 * neighbours, what PREFETCH named, what was touched first the last time, all there is.
 */
#include <base/clock.h>

#include "peers/tier/tier.h"

#define AHEAD 4u /* neighbours of a miss */
#define LIST_BYTES (XSEG_OBJECT_MAX / 4)
#define SECOND_NS 1000000000u
#define PAUSE_NS 1000000000u
#define SAVE_MIN 64u /* objects touched, since the list was saved */

/* --- what is wanted --------------------------------------------------------------------------- */

void tier_pull_unwant(struct tier *tier, struct tier_object *object)
{
	if (object->wanted == TIER_WANTS)
		return;
	if (object->measuring)
		TAILQ_REMOVE(&tier->measuring, object, want_link);
	else
		TAILQ_REMOVE(&tier->wants[object->wanted], object, want_link);
	object->measuring = false;
	object->wanted = TIER_WANTS;
	tier->left -= (uint64_t)__builtin_popcountll(object->want);
	object->want = 0;
}

void tier_pull_want(struct tier *tier, struct tier_object *object, uint64_t mask, unsigned want)
{
	uint64_t extent = object->extent ? tier_bits(0, object->extent) : UINT64_MAX;
	mask = (mask | object->want) & ~object->present & extent;
	if (want == TIER_WANT_ALL && !tier->options->pull)
		return;
	if (mask == 0 || tier->state != TIER_STATE_ON || tier->peer->stopping ||
		!tier_object_may_be_kept(object))
		return;
	if (want > object->wanted)
		want = object->wanted; /* it stays where it comes sooner */
	tier_pull_unwant(tier, object);
	object->want = mask;
	object->wanted = (uint8_t)want;
	tier->left += (uint64_t)__builtin_popcountll(mask);
	if (want == TIER_WANT_FAULT)
		TAILQ_INSERT_HEAD(&tier->wants[want], object, want_link);
	else
		TAILQ_INSERT_TAIL(&tier->wants[want], object, want_link);
}

/* Two misses as far from one another as the two before: the next ones will be, too. */
static void want_neighbours(struct tier *tier, const struct tier_object *object)
{
	const struct xseg_key *key = &object->key;
	bool same = tier->last_miss.volume == key->volume;
	int64_t stride = same ? (int64_t)key->object - tier->last_miss.object : 0;
	bool again = stride != 0 && stride == tier->stride;
	if (stride == 0 && same)
		return;
	tier->stride = stride;
	tier->last_miss = *key;
	/* the nearest last, as it goes to the head of the queue */
	for (int64_t i = again ? AHEAD : 0; i > 0; i--) {
		int64_t number = (int64_t)key->object + i * stride;
		if (number < 0 || number > UINT32_MAX)
			continue;
		struct tier_object *next = tier_object_first(tier, key->volume, (uint32_t)number);
		for (; next; next = tier_object_next(next))
			if (next->key.epoch == key->epoch)
				tier_pull_want(tier, next, UINT64_MAX, TIER_WANT_FAULT);
	}
}

void tier_pull_miss(struct tier *tier, struct tier_object *object, uint64_t mask)
{
	want_neighbours(tier, object);
	tier_pull_want(tier, object, mask, TIER_WANT_FAULT);
}

/* --- what was touched ----------------------------------------------------------------------- */

void tier_pull_touched(struct tier *tier, struct tier_object *object)
{
	object->touched = true;
	tier_pull_volume(tier, object->volume);
	if (tier->touch_count < TIER_TOUCH_MAX)
		tier->touch[tier->touch_count++] = object->key;
}

void tier_pull_recall(struct tier *tier, const struct tier_entry *entry)
{
	struct tier_object *object = tier_object_get(tier, &entry->key);
	if (object && object->wanted == TIER_WANTS && tier->options->pull) {
		object->want = UINT64_MAX;
		object->wanted = TIER_WANT_TOUCHED;
		tier->left += TIER_CHUNKS;
		TAILQ_INSERT_TAIL(&tier->wants[TIER_WANT_TOUCHED], object, want_link);
	}
}

static void saved(struct tier_blocks *blocks)
{
	struct tier *tier = blocks->tier;
	tier_blocks_clear(blocks);
	tier->touch_busy = false;
}

/* All there are; a list that is torn ends there. */
static bool save(struct tier *tier)
{
	struct tier_blocks *blocks = &tier->touch_blocks;
	bool enough = tier->touch_count >= tier->touch_saved + SAVE_MIN ||
		      (tier->touch_count > tier->touch_saved && tier->peer->stopping);
	if (!enough || tier->touch_busy || tier->state != TIER_STATE_ON ||
		(tier->left > 0 && !tier->peer->stopping))
		return false;
	*blocks = (struct tier_blocks){
		.tier = tier, .touch = true, .generation = clock_now_ns(), .done = saved};
	for (uint32_t i = 0; i < tier->touch_count; i++)
		if (tier_blocks_add(blocks, &(struct tier_entry){.key = tier->touch[i]}))
			break;
	tier->touch_saved = tier->touch_count;
	tier->touch_busy = blocks->count > 0;
	if (tier->touch_busy)
		tier_blocks_write(blocks);
	return true;
}

/* --- what there is of a volume -------------------------------------------------------------- */

void tier_pull_volume(struct tier *tier, struct tier_volume *volume)
{
	if (volume->listing != TIER_LISTING_NOT || !tier->options->pull ||
		tier->state != TIER_STATE_ON)
		return;
	volume->listing = TIER_LISTING_NOW;
	TAILQ_INSERT_TAIL(&tier->unlisted, volume, list_link);
}

void tier_pull_again(struct tier *tier, struct tier_volume *volume)
{
	if (volume->listing == TIER_LISTING_NOW)
		volume->listing = TIER_LISTING_TWICE;
	if (volume->listing == TIER_LISTING_DONE) {
		peer_set(tier->peer, TIER_C_LISTED, --tier->listed);
		volume->listing = TIER_LISTING_NOT;
	}
	tier_pull_volume(tier, volume);
}

static void listed(struct call *call)
{
	struct tier *tier = tier_of(call->peer);
	struct tier_volume *volume = call->context;
	uint64_t next = call->value;
	int error = call->result;
	for (uint32_t at = 0; !error && at + sizeof(struct xseg_key) <= call->answer_length;
		at += sizeof(struct xseg_key)) {
		struct xseg_key key;
		call_get_bytes(call, at, &key, sizeof(key));
		struct tier_object *object =
			store_record_is(&key) ? NULL : tier_object_get(tier, &key);
		if (object)
			tier_pull_want(tier, object, UINT64_MAX, TIER_WANT_ALL);
	}
	call_end(call);
	tier->pulling--;
	bool twice = volume->listing == TIER_LISTING_TWICE;
	if (error) {
		volume->listing = TIER_LISTING_NOT; /* with the next thing that is asked of it */
	} else if (next != 0 || twice) {
		volume->cursor = twice ? 0 : next;
		volume->listing = TIER_LISTING_NOW;
		TAILQ_INSERT_HEAD(&tier->unlisted, volume, list_link);
	} else {
		volume->listing = TIER_LISTING_DONE;
		peer_set(tier->peer, TIER_C_LISTED, ++tier->listed);
	}
}

static bool list(struct tier *tier, struct tier_volume *volume)
{
	struct call *call;
	struct xseg_key key = {.volume = volume->id};
	if (tier_serve_call(tier, XSEG_OP_LIST, key, 0, LIST_BYTES, &call))
		return false;
	call->arg0 = volume->cursor;
	call->context = volume;
	TAILQ_REMOVE(&tier->unlisted, volume, list_link);
	volume->cursor = 0;
	tier->pulling++;
	call_submit(call, TIER_FAR, listed);
	return true;
}

/* --- how much of an object there is --------------------------------------------------------- */

static void measured(struct call *call)
{
	struct tier *tier = tier_of(call->peer);
	struct tier_object *object = call->context;
	/* another host may have made it longer since */
	bool old = call->context2 != (void *)(uintptr_t)object->volume->term;
	struct xseg_object_info info = {0};
	int error = old ? -EAGAIN : call->result;
	if (!error)
		call_get_bytes(call, 0, &info, sizeof(info));
	call_end(call);
	tier->pulling--;
	if (error == -ENOENT || (!error && info.size == 0)) {
		tier_pull_unwant(tier, object); /* a hole reads as one at any distance */
		return;
	}
	if (error && !old)
		tier->pause_ns = peer_now_ns(tier->peer) + PAUSE_NS;
	else if (!error && info.size <= XSEG_OBJECT_MAX)
		object->extent = (uint32_t)((info.size + TIER_CHUNK - 1) / TIER_CHUNK);
	if (object->extent != 0 && object->extent < object->grown)
		object->extent = object->grown; /* since it was asked */
	unsigned want = object->wanted < TIER_WANTS ? object->wanted : TIER_WANT_ALL;
	uint64_t mask = object->want;
	tier_pull_unwant(tier, object);
	tier_pull_want(tier, object, mask, want);
}

static bool measure(struct tier *tier, struct tier_object *object)
{
	struct call *call;
	if (tier_serve_call(
		    tier, XSEG_OP_INFO, object->key, 0, sizeof(struct xseg_object_info), &call))
		return false;
	call->length = 0; /* the range that is asked about: the object */
	call->flags = XSEG_F_FAST_ONLY;
	call->context = object;
	call->context2 = (void *)(uintptr_t)object->volume->term;
	/* it comes back into its queue with the answer */
	TAILQ_REMOVE(&tier->wants[object->wanted], object, want_link);
	TAILQ_INSERT_TAIL(&tier->measuring, object, want_link);
	object->measuring = true;
	tier->pulling++;
	call_submit(call, TIER_FAR, measured);
	return true;
}

/* --- the pump --------------------------------------------------------------------------------- */

void tier_pull_filled(struct tier *tier, struct tier_object *object, uint64_t mask, int error)
{
	uint64_t missing = mask & ~object->present;
	if (error)
		tier->pause_ns = peer_now_ns(tier->peer) + PAUSE_NS;
	if (missing && tier->options->pull)
		tier_pull_want(tier, object, missing, TIER_WANT_ALL);
}

static bool may_spend(struct tier *tier, uint64_t now)
{
	uint64_t rate = tier->options->rate;
	if (rate == 0)
		return true;
	if (now > tier->tokens_ns + SECOND_NS)
		tier->tokens_ns = now - SECOND_NS;
	return tier->tokens_ns <= now;
}

static void spend(struct tier *tier, uint64_t bytes)
{
	if (tier->options->rate)
		tier->tokens_ns += bytes * SECOND_NS / tier->options->rate;
}

static struct tier_object *first_wanted(struct tier *tier)
{
	for (unsigned want = 0; want < TIER_WANTS; want++) {
		struct tier_object *object = TAILQ_FIRST(&tier->wants[want]);
		/* what nobody has asked for does not drive out what somebody has */
		if (want > TIER_WANT_USER && tier->options->size &&
			tier->present >= tier->options->size)
			return NULL;
		if (object)
			return object;
	}
	return NULL;
}

/* False: nothing is to be done, or not now. */
static bool fetch(struct tier *tier, struct tier_object *object)
{
	uint64_t mask = object->want & ~object->present & ~tier_fill_mask(object);
	struct tier_fill *fill;
	if (mask == 0 || object->evicting || !tier_object_may_be_kept(object)) {
		tier_pull_unwant(tier, object);
		return true;
	}
	uint64_t doubt = tier->options->pull && !tier->no_digests ? mask & object->doubt : 0;
	uint64_t run = doubt ? tier_run(doubt, TIER_CHUNKS) : tier_run(mask, TIER_PART_CHUNKS);
	if (doubt) {
		if (tier_check_begin(tier, object, run))
			return false;
	} else {
		if (object->extent == 0 && object->wanted >= TIER_WANT_TOUCHED)
			return measure(tier, object);
		if (tier_fill_begin(tier, object, run, true, &fill))
			return false;
		spend(tier, tier_run_size(run));
	}
	tier->left -= (uint64_t)__builtin_popcountll(run & object->want);
	object->want &= ~run;
	if (object->want == 0)
		tier_pull_unwant(tier, object);
	return true;
}

static bool may_pull(struct tier *tier, uint64_t now)
{
	return tier->state == TIER_STATE_ON && !tier->peer->stopping && now >= tier->pause_ns &&
	       tier->pulling < tier->options->parts && !peer_pages_low(tier->peer) &&
	       may_spend(tier, now);
}

bool tier_pull_turn(struct tier *tier)
{
	uint64_t now = peer_now_ns(tier->peer);
	bool moved = save(tier);
	tier->is_short |= peer_pages_low(tier->peer);
	while (may_pull(tier, now)) {
		struct tier_volume *volume = TAILQ_FIRST(&tier->unlisted);
		struct tier_object *object = first_wanted(tier);
		bool faults = object && object->wanted <= TIER_WANT_USER;
		if (volume && !faults) {
			tier->is_short |= !list(tier, volume);
		} else if (object) {
			tier->is_short |= !fetch(tier, object);
		} else {
			break;
		}
		if (tier->is_short)
			break;
		moved = true;
	}
	peer_set(tier->peer, TIER_C_LEFT, (tier->left + tier->held) * TIER_CHUNK);
	return moved;
}

bool tier_pull_quiet(const struct tier *tier)
{
	return tier->pulling == 0 && !tier->touch_busy &&
	       (tier->state != TIER_STATE_ON || tier->touch_saved == tier->touch_count);
}

uint64_t tier_pull_wake_ns(const struct tier *tier)
{
	if (tier->left == 0 && TAILQ_EMPTY(&tier->unlisted))
		return 0;
	return tier->pause_ns > tier->tokens_ns ? tier->pause_ns : tier->tokens_ns;
}
