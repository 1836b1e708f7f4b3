/* SPDX-License-Identifier: Apache-2.0 */
/* The table of objects and volumes, and which objects the near store has to forget. */
#include <base/hash.h>

#include "peers/tier/tier.h"

#define BUCKETS_SHIFT 17
#define BUCKETS ((size_t)1 << BUCKETS_SHIFT)
#define EVICTIONS_MAX 8u /* on their way */

int tier_object_open(struct tier *tier)
{
	TAILQ_INIT(&tier->order);
	tier->objects = calloc(BUCKETS, sizeof(*tier->objects));
	tier->volumes = calloc(TIER_VOLUME_BUCKETS, sizeof(*tier->volumes));
	return tier->objects && tier->volumes ? 0 : -ENOMEM;
}

void tier_object_close(struct tier *tier)
{
	struct tier_object *object;
	while ((object = TAILQ_FIRST(&tier->order))) {
		TAILQ_REMOVE(&tier->order, object, order);
		free(object);
	}
	for (size_t i = 0; tier->volumes && i < TIER_VOLUME_BUCKETS; i++)
		while (!LIST_EMPTY(&tier->volumes[i])) {
			struct tier_volume *volume = LIST_FIRST(&tier->volumes[i]);
			LIST_REMOVE(volume, chain);
			free(volume);
		}
	free(tier->objects);
	free(tier->volumes);
}

static size_t bucket_of(uint64_t volume, uint32_t number)
{
	return hash_more(hash_u64(volume), number) >> (64 - BUCKETS_SHIFT);
}

static struct tier_object *in_chain(struct tier_object *object, uint64_t volume, uint32_t number)
{
	while (object && (object->key.volume != volume || object->key.object != number))
		object = LIST_NEXT(object, chain);
	return object;
}

struct tier_object *tier_object_first(const struct tier *tier, uint64_t volume, uint32_t number)
{
	struct tier_object *first = LIST_FIRST(&tier->objects[bucket_of(volume, number)]);
	return in_chain(first, volume, number);
}

struct tier_object *tier_object_next(const struct tier_object *object)
{
	return in_chain(LIST_NEXT(object, chain), object->key.volume, object->key.object);
}

struct tier_object *tier_object_find(const struct tier *tier, const struct xseg_key *key)
{
	struct tier_object *object = tier_object_first(tier, key->volume, key->object);
	while (object && object->key.epoch != key->epoch)
		object = tier_object_next(object);
	return object;
}

struct tier_object *tier_object_get(struct tier *tier, const struct xseg_key *key)
{
	struct tier_object *object = tier_object_find(tier, key);
	struct tier_volume *volume =
		object ? object->volume : tier_object_volume(tier, key->volume);
	if (object || !volume)
		return object;
	object = calloc(1, sizeof(*object));
	if (!object)
		return NULL;
	object->key = *key;
	object->volume = volume;
	object->wanted = TIER_WANTS;
	TAILQ_INIT(&object->blocked);
	TAILQ_INIT(&object->writes);
	TAILQ_INIT(&object->fills);
	LIST_INSERT_HEAD(&tier->objects[bucket_of(key->volume, key->object)], object, chain);
	TAILQ_INSERT_TAIL(&tier->order, object, order);
	tier->known++;
	return object;
}

struct tier_volume *tier_object_volume(struct tier *tier, uint64_t id)
{
	struct tier_volumes *bucket =
		&tier->volumes[hash_u64(id) >> (64 - TIER_VOLUME_BUCKETS_SHIFT)];
	struct tier_volume *volume;
	LIST_FOREACH (volume, bucket, chain)
		if (volume->id == id)
			return volume;
	volume = calloc(1, sizeof(*volume));
	if (!volume)
		return NULL;
	volume->id = id;
	TAILQ_INIT(&volume->blocked);
	LIST_INSERT_HEAD(bucket, volume, chain);
	return volume;
}

bool tier_object_may_be_kept(const struct tier_object *object)
{
	return !object->volume->lost &&
	       (object->key.epoch <= XSEG_EPOCH_DATA_MAX || object->volume->term != 0);
}

void tier_object_present(struct tier *tier, struct tier_object *object, uint64_t present)
{
	tier->present -= (uint64_t)__builtin_popcountll(object->present) * TIER_CHUNK;
	tier->present += (uint64_t)__builtin_popcountll(present) * TIER_CHUNK;
	object->present = present;
	object->doubt &= ~present;
	peer_set(tier->peer, TIER_C_PRESENT, tier->present);
}

void tier_object_doubt(struct tier *tier, struct tier_object *object, uint64_t doubt)
{
	tier_object_present(tier, object, object->present & ~doubt);
	/* maps are small, and change all the time */
	object->doubt = object->key.epoch <= XSEG_EPOCH_DATA_MAX ? doubt : 0;
}

void tier_object_wake(struct tier *tier, struct tier_object *object)
{
	tier_serve_all(tier, &object->blocked);
}

void tier_object_drop(struct tier *tier, const struct tier_volume *volume)
{
	struct tier_object *object;
	TAILQ_FOREACH (object, &tier->order, order) {
		if (object->volume != volume)
			continue;
		tier_fill_poison(object, UINT64_MAX);
		tier_change_spoil(object);
		if (object->present)
			peer_count(tier->peer, TIER_C_DROPPED, 1);
		tier_object_doubt(tier, object, object->present | object->doubt);
		object->extent = 0;
		if (object->logged)
			tier_log_urgent(tier, object);
	}
}

/* --- eviction ----------------------------------------------------------------------------- */

static void evicted(struct call *call)
{
	struct tier_object *object = call->context;
	struct tier *tier = tier_of(call->peer);
	call_end(call);
	tier->evictions--;
	/* were it not gone, it would lie there unused until it comes again */
	object->evicting = object->deleting = false;
	peer_count(tier->peer, TIER_C_EVICTED, 1);
	tier_object_wake(tier, object);
}

/* Its turn comes again with what waits for it, or with the next look. */
static bool forget(struct peer *peer, void *context)
{
	struct tier_object *object = context;
	struct call *call;
	if (tier_serve_call(tier_of(peer), XSEG_OP_DELETE, object->key, 0, 0, &call))
		return false;
	call->context = object;
	call_submit(call, TIER_NEAR, evicted);
	return true;
}

static bool is_idle(const struct tier_object *object)
{
	return object->reads + object->copies == 0 && TAILQ_EMPTY(&object->writes) &&
	       TAILQ_EMPTY(&object->fills) && TAILQ_EMPTY(&object->blocked) && !object->evicting;
}

void tier_object_evicted(struct tier *tier, struct tier_object *object)
{
	object->deleting = true;
	if (!forget(tier->peer, object))
		peer_retry(tier->peer, forget, object);
}

static void evict(struct tier *tier, struct tier_object *object)
{
	object->evicting = true;
	tier->evictions++;
	tier_object_present(tier, object, 0);
	object->doubt = 0;
	if (object->logged)
		tier_log_urgent(tier, object); /* goes on in tier_object_evicted() */
	else
		tier_object_evicted(tier, object);
}

/* A hand goes round; what was used since it came by last stays for one more time. */
void tier_object_evict(struct tier *tier)
{
	size_t looks = 1024;
	while (tier->options->size && tier->present > tier->options->size &&
		tier->evictions < EVICTIONS_MAX && looks-- > 0) {
		struct tier_object *object = TAILQ_FIRST(&tier->order);
		if (!object)
			return;
		TAILQ_REMOVE(&tier->order, object, order);
		TAILQ_INSERT_TAIL(&tier->order, object, order);
		if (object->present && is_idle(object) && !object->used)
			evict(tier, object);
		object->used = false;
	}
}
