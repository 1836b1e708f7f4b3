/* SPDX-License-Identifier: Apache-2.0 */
/* Partial objects: who has which cluster, and reading. */
#include <base/bits.h>
#include <base/crash.h>
#include <base/hash.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "peers/volume/volume_intent.h"
#include "peers/volume/volume_overlay_priv.h"

#define DEPTH_MAX 4096u /* of parents: more is a circle */
#define ANSWER_BYTES (MAP_ANSWER_AT + sizeof(struct map_bitmap_info))
/* Questions of one shard at a time: the mapper needs slots, too, to answer them. */
#define ASKS_MAX 32u
#define PARTS_MAX 65536u		    /* of one shard under way */
#define OVERLAYS_MAX (2u * VOLUME_OVERLAYS) /* those in use are not forgotten */
/* Who waits for another lane looks again at least this often. */
#define WAIT_NS 100000u

struct overlay_ask {
	struct volume_step step; /* first */
	uint32_t number;	 /* in the shard's slab */
	struct overlay *overlay; /* a ref is ours */
};

/* --- the table, with the mutex ------------------------------------------------------------ */

static struct overlay_list *bucket_of(
	struct overlays *overlays, uint64_t owner, uint32_t epoch, uint32_t object)
{
	return &overlays->buckets[hash_object(owner, epoch, object) >> 40 & (OVERLAYS_BUCKETS - 1)];
}

struct overlay *overlay_find(
	struct overlays *overlays, uint64_t owner, uint32_t epoch, uint32_t object)
{
	struct overlay *overlay;
	LIST_FOREACH (overlay, bucket_of(overlays, owner, epoch, object), link)
		if (overlay->owner == owner && overlay->epoch == epoch && overlay->object == object)
			return overlay;
	return NULL;
}

static void overlay_forget(struct overlays *overlays, struct overlay *overlay)
{
	LIST_REMOVE(overlay, link);
	overlays->count--;
	slab_put(&overlays->slab, overlay->number);
}

static struct overlay *overlay_new(
	struct overlays *overlays, uint64_t owner, uint32_t epoch, uint32_t object)
{
	uint32_t number;
	struct overlay *overlay = slab_get(&overlays->slab, &number);
	if (!overlay)
		return NULL;
	*overlay = (struct overlay){
		.number = number, .owner = owner, .epoch = epoch, .object = object, .refs = 1};
	LIST_INSERT_HEAD(bucket_of(overlays, owner, epoch, object), overlay, link);
	struct overlay *oldest = TAILQ_FIRST(&overlays->order);
	if (++overlays->count > VOLUME_OVERLAYS && oldest) {
		TAILQ_REMOVE(&overlays->order, oldest, order);
		overlay_forget(overlays, oldest);
	}
	return overlay;
}

struct overlay *overlay_add(
	struct overlays *overlays, uint64_t owner, uint32_t epoch, uint32_t object)
{
	struct overlay *overlay = overlay_new(overlays, owner, epoch, object);
	if (overlay)
		overlay->known = true;
	return overlay;
}

void overlay_ref(struct overlays *overlays, struct overlay *overlay)
{
	if (overlay->refs++ == 0)
		TAILQ_REMOVE(&overlays->order, overlay, order);
}

void overlay_unref(struct overlays *overlays, struct overlay *overlay)
{
	must(overlay->refs > 0);
	if (--overlay->refs > 0)
		return;
	if (overlay->known)
		TAILQ_INSERT_TAIL(&overlays->order, overlay, order);
	else
		overlay_forget(
			overlays, overlay); /* it could not be had: whoever asks next tries again */
}

int volume_overlay_open(struct peer *first)
{
	struct volume_shared *shared = first->shared;
	struct overlays *overlays = calloc(1, sizeof(*overlays));
	int rc = overlays ? slab_init(&overlays->slab, sizeof(struct overlay), OVERLAYS_MAX)
			  : -ENOMEM;
	if (rc == 0)
		rc = -pthread_mutex_init(&overlays->lock, NULL);
	if (rc != 0) {
		free(overlays);
		return rc;
	}
	TAILQ_INIT(&overlays->order);
	shared->overlays = overlays;
	return 0;
}

void volume_overlay_close(struct peer *first)
{
	struct volume_shared *shared = first->shared;
	struct overlays *overlays = shared->overlays;
	if (!overlays)
		return;
	pthread_mutex_destroy(&overlays->lock);
	slab_fini(&overlays->slab);
	free(overlays);
	shared->overlays = NULL;
}

int volume_overlay_start(struct peer *peer)
{
	struct volume_shard *shard = peer->state;
	int rc = slab_init(&shard->part_slab, sizeof(struct volume_part), PARTS_MAX);
	if (rc == 0)
		rc = slab_init(&shard->ask_slab, sizeof(struct overlay_ask), ASKS_MAX);
	return rc;
}

void volume_overlay_finish(struct peer *peer)
{
	struct volume_shard *shard = peer->state;
	slab_fini(&shard->part_slab);
	slab_fini(&shard->ask_slab);
}

/* --- waiting ------------------------------------------------------------------------------ */

void overlay_wait(struct volume_part *part, void (*again)(struct volume_step *step))
{
	struct volume_shard *shard = part->step.peer->state;
	part->step.run = again;
	TAILQ_INSERT_TAIL(&shard->parts, part, link);
	shard->parts_waiting++;
}

void overlay_wait_not(struct volume_part *part)
{
	struct overlays *overlays = overlays_of(part->step.peer);
	if (!part->waits)
		return;
	pthread_mutex_lock(&overlays->lock);
	overlay_unref(overlays, part->waits);
	pthread_mutex_unlock(&overlays->lock);
	part->waits = NULL;
}

bool volume_overlay_poll(struct peer *peer)
{
	struct volume_shard *shard = peer->state;
	struct volume_part_queue waiting = TAILQ_HEAD_INITIALIZER(waiting);
	struct volume_part *part;
	if (likely(TAILQ_EMPTY(&shard->parts)))
		return false;
	uint32_t ran = 0;
	/* who has to wait again stands behind those that come now */
	TAILQ_CONCAT(&waiting, &shard->parts, link);
	shard->parts_waiting = 0;
	while ((part = TAILQ_FIRST(&waiting))) {
		struct overlay *waits = part->waits;
		TAILQ_REMOVE(&waiting, part, link);
		part->waits = NULL;
		part->step.run(&part->step);
		ran++;
		if (!waits)
			continue;
		/* not before: an overlay that cannot be had gives its error to those who waited */
		pthread_mutex_lock(&overlays_of(peer)->lock);
		overlay_unref(overlays_of(peer), waits);
		pthread_mutex_unlock(&overlays_of(peer)->lock);
	}
	if (shard->parts_waiting > 0)
		peer_wake_at(peer, peer_now_ns(peer) + WAIT_NS);
	return shard->parts_waiting < ran;
}

/* --- bitmaps ---------------------------------------------------------------------------- */

static void bitmap_take(struct overlay *overlay, const struct map_bitmap_info *info)
{
	overlay->parent_owner = info->parent_owner;
	overlay->parent_epoch = info->parent_epoch;
	overlay->parent_flags = info->parent_flags;
	memcpy(overlay->has, info->has, sizeof(overlay->has));
	overlay->known = true;
}

static void bitmap_answered(struct call *call)
{
	struct overlay_ask *ask = call->context;
	struct volume_shard *shard = ask->step.peer->state;
	struct overlays *overlays = overlays_of(ask->step.peer);
	struct map_bitmap_info info = {.error = -EPROTO};
	if (call->result == 0 && call->answer_length >= ANSWER_BYTES)
		call_get_bytes(call, MAP_ANSWER_AT, &info, sizeof(info));
	else if (call->result != 0)
		info.error = call->result;
	if (info.error > 0)
		info.error = -EPROTO;
	call_end(call);
	shard->asks--;
	pthread_mutex_lock(&overlays->lock);
	if (info.error == 0)
		bitmap_take(ask->overlay, &info);
	else
		ask->overlay->error = info.error;
	overlay_unref(overlays, ask->overlay);
	pthread_mutex_unlock(&overlays->lock);
	slab_put(&shard->ask_slab, ask->number);
}

static void bitmap_ask(struct volume_step *step)
{
	struct overlay_ask *ask = (struct overlay_ask *)step;
	const struct overlay *overlay = ask->overlay;
	struct map_object object = {
		.owner = overlay->owner, .epoch = overlay->epoch, .object = overlay->object};
	struct call *call = volume_step_call(step, bitmap_ask, XSEG_OP_CONTROL,
		(struct xseg_key){.volume = overlay->owner}, ANSWER_BYTES);
	if (!call)
		return;
	call_put_bytes(call, 0, &object, sizeof(object));
	call->arg0 = MAP_BITMAP;
	call->arg1 = 1;
	call_submit(call, VOLUME_MAP, bitmap_answered);
}

/* With the mutex. What stands in an intent is all there is to know. */
static bool bitmap_from_intent(struct peer *peer, struct overlay *overlay)
{
	struct volume_intent intent;
	if (!volume_intent_find(peer, overlay->owner, overlay->object, &intent) ||
		intent.epoch != overlay->epoch || !(intent.flags & MAP_WORD_PARTIAL))
		return false;
	overlay->parent_owner = intent.parent_owner;
	overlay->parent_epoch = intent.parent_epoch;
	overlay->parent_flags = intent.parent_flags;
	for (unsigned i = 0; i < MAP_HAS_WORDS; i++)
		overlay->has[i] = atomic_load_explicit(&intent.has[i], memory_order_relaxed);
	overlay->known = true;
	return true;
}

struct overlay *overlay_get(struct peer *peer, const struct xseg_key *key)
{
	struct overlays *overlays = overlays_of(peer);
	struct overlay *overlay = overlay_find(overlays, key->volume, key->epoch, key->object);
	if (overlay) {
		overlay_ref(overlays, overlay);
		return overlay;
	}
	struct volume_shard *shard = peer->state;
	uint32_t number;
	struct overlay_ask *ask = slab_get(&shard->ask_slab, &number);
	overlay = ask ? overlay_new(overlays, key->volume, key->epoch, key->object) : NULL;
	if (!overlay) {
		if (ask)
			slab_put(&shard->ask_slab, number);
		return NULL;
	}
	if (bitmap_from_intent(peer, overlay)) {
		slab_put(&shard->ask_slab, number);
		return overlay;
	}
	overlay->refs++; /* the question's */
	shard->asks++;
	*ask = (struct overlay_ask){.step.peer = peer, .number = number, .overlay = overlay};
	bitmap_ask(&ask->step);
	return overlay;
}

/* --- who has it --------------------------------------------------------------------------- */

/* With the mutex. The run at `first`, in this overlay: had, or not. */
static uint32_t run_in(const struct overlay *overlay, uint32_t first, uint32_t most)
{
	bool has = bits_has(overlay->has, first);
	uint32_t count = 1;
	while (count < most && bits_has(overlay->has, first + count) == has)
		count++;
	return count;
}

/* With the mutex. One step down: true: run->key is who has it. */
static bool run_step(const struct overlay *overlay, uint32_t first, struct overlay_run *run,
	struct xseg_key *next)
{
	if (bits_has(overlay->has, first)) {
		run->key = (struct xseg_key){.volume = overlay->owner,
			.epoch = overlay->epoch,
			.object = overlay->object};
		return true;
	}
	*next = (struct xseg_key){.volume = overlay->parent_owner,
		.epoch = overlay->parent_epoch,
		.object = overlay->object};
	if (overlay->parent_flags & MAP_WORD_PARTIAL)
		return false;
	run->key = *next;
	return true;
}

/* With the mutex. */
static int resolve(struct peer *peer, struct volume_part *part, const struct xseg_key *key,
	bool skip, uint32_t first, uint32_t most, struct overlay_run *run)
{
	struct overlays *overlays = overlays_of(peer);
	struct xseg_key at = *key;
	run->count = most;
	for (uint32_t depth = 0; depth < DEPTH_MAX; depth++) {
		struct overlay *overlay =
			part ? overlay_get(peer, &at)
			     : overlay_find(overlays, at.volume, at.epoch, at.object);
		if (!overlay)
			return part ? -EAGAIN : -EINPROGRESS;
		if (!overlay->known && part && overlay->error == 0) {
			part->waits = overlay;
			return -EINPROGRESS;
		}
		int error = overlay->error;
		bool known = overlay->known, found = false;
		if (!part && overlay->refs == 0) { /* it is used */
			TAILQ_REMOVE(&overlays->order, overlay, order);
			TAILQ_INSERT_TAIL(&overlays->order, overlay, order);
		}
		if (known && !(skip && depth == 0))
			run->count = run_in(overlay, first, run->count);
		if (known)
			found = run_step(overlay, first, run, &at);
		if (part)
			overlay_unref(overlays, overlay);
		if (!known)
			return error != 0 ? error : -EINPROGRESS;
		if (found)
			return 0;
	}
	return -EILSEQ;
}

int overlay_resolve(struct volume_part *part, const struct xseg_key *key, bool skip, uint32_t first,
	uint32_t most, struct overlay_run *run)
{
	struct peer *peer = part->step.peer;
	pthread_mutex_lock(&overlays_of(peer)->lock);
	int rc = resolve(peer, part, key, skip, first, most, run);
	pthread_mutex_unlock(&overlays_of(peer)->lock);
	return rc;
}

int overlay_known(struct peer *peer, const struct xseg_key *key, uint32_t first, uint32_t most,
	struct overlay_run *run)
{
	pthread_mutex_lock(&overlays_of(peer)->lock);
	int rc = resolve(peer, NULL, key, false, first, most, run);
	pthread_mutex_unlock(&overlays_of(peer)->lock);
	return rc;
}

bool overlay_volume(struct volume_part *part)
{
	part->volume = volume_table_lookup(part->step.peer, part->id);
	return part->volume != NULL;
}

bool volume_overlay_source(struct peer *peer, struct volume *volume, uint32_t object,
	uint32_t offset, uint32_t length, struct xseg_key *key)
{
	struct xseg_key top;
	struct overlay_run run;
	uint32_t first = offset / MAP_CLUSTER,
		 count = (offset + length - 1) / MAP_CLUSTER - first + 1;
	if (volume_where(volume, object, &top) != VOLUME_PARTIAL)
		return false;
	if (overlay_known(peer, &top, first, count, &run) != 0)
		return false;
	*key = run.key;
	return run.count == count && run.key.volume != 0;
}

/* --- reading ------------------------------------------------------------------------------ */

static void read_go(struct volume_step *step);

/* A piece of the stretch, of one object. */
static int read_piece(struct volume_part *part, const struct overlay_run *run, uint32_t length)
{
	struct call *call;
	if (run->key.volume == 0) {
		job_zero_bytes(part->job, part->at, length);
		return 0;
	}
	int rc = call_begin(part->step.peer, &call);
	if (rc != 0)
		return rc;
	call_as(call, part->job);
	call->flags &= ~(unsigned)XSEG_F_PIN;
	call->key = run->key;
	call->offset = part->offset;
	call->length = length;
	rc = call_borrow(call, part->job, part->at, length);
	if (rc != 0) {
		call_end(call);
		return rc;
	}
	call_submit_part(call, part->job, VOLUME_STORE, NULL);
	return 0;
}

/* From where it is on. What is sent is the job's fan's. */
static void read_go(struct volume_step *step)
{
	struct volume_part *part = (struct volume_part *)step;
	int rc = overlay_volume(part) ? 0 : -ENOENT;
	while (rc == 0 && part->length > 0) {
		struct overlay_run run = {.count = 0};
		struct xseg_key key;
		uint32_t first = part->offset / MAP_CLUSTER;
		uint32_t last = (part->offset + part->length - 1) / MAP_CLUSTER;
		enum volume_where where = volume_where(part->volume, part->object, &key);
		if (where == VOLUME_PARTIAL)
			rc = overlay_resolve(part, &key, false, first, last - first + 1, &run);
		else if (where == VOLUME_OWN || where == VOLUME_SHARED)
			run = (struct overlay_run){.key = key, .count = last - first + 1};
		else /* it has been discarded meanwhile */
			run = (struct overlay_run){.count = last - first + 1};
		if (rc != 0)
			break;
		uint32_t length = (first + run.count) * MAP_CLUSTER - part->offset;
		if (length > part->length)
			length = part->length;
		rc = read_piece(part, &run, length);
		if (rc != 0)
			break;
		part->offset += length;
		part->at += length;
		part->length -= length;
	}
	if (rc == -EINPROGRESS || rc == -EAGAIN)
		overlay_wait(part, read_go);
	else
		volume_io_part_end(part, rc);
}

void volume_overlay_read(struct volume_part *part)
{
	peer_count(part->step.peer, VOLUME_OVERLAY_READS, 1);
	read_go(&part->step);
}
