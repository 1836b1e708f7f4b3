/* SPDX-License-Identifier: Apache-2.0 */
/* Intents are published to the mapper: gathered, sent in pieces, struck out. */
#include <base/crash.h>
#include <errno.h>
#include <peer/keep.h>
#include <stdlib.h>
#include <string.h>

#include "peers/volume/volume_intent_priv.h"
#include "peers/volume/volume_map.h"

/* In one request: half a megabyte. */
#define PUBLISH_AT_ONCE 3200u

/* An intent as it was gathered. */
struct published {
	uint32_t changes;
	struct map_update text;
};

static void copy_intent(struct published *published, const struct volume_intent *slot, bool zero)
{
	/* before the bits: one that is set beside us is published the next time, too */
	published->changes = atomic_load_explicit(&slot->changes, memory_order_acquire);
	published->text = (struct map_update){
		.object = slot->object,
		.flags = zero ? MAP_WORD_ZERO : slot->flags,
		.epoch = slot->epoch,
		.parent_epoch = slot->parent_epoch,
		.parent_flags = slot->parent_flags,
		.parent_owner = slot->parent_owner,
	};
	for (unsigned i = 0; i < MAP_HAS_WORDS; i++)
		published->text.has[i] = atomic_load_explicit(&slot->has[i], memory_order_relaxed);
}

static int compare(const void *a, const void *b)
{
	const struct published *x = a, *y = b;
	return (x->text.object > y->text.object) - (x->text.object < y->text.object);
}

/* With the mutex, and it is our turn. In order of object: as the map's pages lie. */
static int gather(struct volume_publish *publish, const struct intent_volume *of)
{
	const struct intent *intent;
	publish->published = malloc(of->count * sizeof(*publish->published));
	if (!publish->published)
		return -ENOMEM;
	TAILQ_FOREACH (intent, &of->intents, beside)
		if (intent->state == INTENT_STANDING || intent->zero)
			copy_intent(&publish->published[publish->count++],
				intent_record(publish->step.peer, intent), intent->zero);
	qsort(publish->published, publish->count, sizeof(*publish->published), compare);
	return 0;
}

/* Our turn is over; the next one's lane is woken. */
static void pass_on(struct volume_publish *publish)
{
	struct intents *intents = intents_of(publish->step.peer);
	pthread_mutex_lock(&intents->lock);
	struct intent_volume *of = intent_volume_find(intents, publish->volume);
	struct volume_publish *next = TAILQ_FIRST(&of->waiting);
	of->publishing = false;
	if (next) {
		unsigned shard = next->step.peer->shard;
		of->publishing = true;
		TAILQ_REMOVE(&of->waiting, next, link);
		TAILQ_INSERT_TAIL(&intents->ready[shard], next, link);
		atomic_fetch_add_explicit(&intents->ready_count[shard], 1, memory_order_release);
		peer_wake(next->step.peer, shard);
	} else {
		intent_volume_put(of);
	}
	pthread_mutex_unlock(&intents->lock);
	free(publish->published);
	publish->published = NULL;
}

/* It is our turn; who has nothing to publish ends it at once. */
static void take_turn(struct volume_publish *publish)
{
	struct intents *intents = intents_of(publish->step.peer);
	pthread_mutex_lock(&intents->lock);
	struct intent_volume *of = intent_volume_find(intents, publish->volume);
	int rc = of->count > 0 ? gather(publish, of) : 0;
	pthread_mutex_unlock(&intents->lock);
	if (publish->count == 0)
		pass_on(publish);
	if (rc != 0)
		publish->done(publish, rc);
	else
		publish->gathered(publish);
}

void volume_publish_begin(struct volume_publish *publish)
{
	struct intents *intents = intents_of(publish->step.peer);
	bool mine = false;
	pthread_mutex_lock(&intents->lock);
	struct intent_volume *of = intent_volume_find(intents, publish->volume);
	if (of && of->publishing) {
		TAILQ_INSERT_TAIL(&of->waiting, publish, link);
	} else if (of) {
		of->publishing = true;
		mine = true;
	}
	pthread_mutex_unlock(&intents->lock);
	if (mine)
		take_turn(publish);
	else if (!of)
		publish->gathered(publish);
}

bool volume_publish_poll(struct peer *peer)
{
	struct intents *intents = intents_of(peer);
	bool moved = false;
	while (intents && atomic_load_explicit(
				  &intents->ready_count[peer->shard], memory_order_acquire) > 0) {
		pthread_mutex_lock(&intents->lock);
		struct volume_publish *publish = TAILQ_FIRST(&intents->ready[peer->shard]);
		TAILQ_REMOVE(&intents->ready[peer->shard], publish, link);
		atomic_fetch_sub_explicit(
			&intents->ready_count[peer->shard], 1, memory_order_relaxed);
		pthread_mutex_unlock(&intents->lock);
		take_turn(publish);
		moved = true;
	}
	return moved;
}

/* --- sending ------------------------------------------------------------------------------ */

/* What has not changed since it was gathered stands in the map now. A page of the map that was
   asked for before and has not come yet may lack it: it is to be asked for again. */
static void strike_out(struct volume_publish *publish)
{
	struct peer *peer = publish->step.peer;
	struct intents *intents = intents_of(publish->step.peer);
	struct volume *volume = volume_table_lookup(peer, publish->volume);
	pthread_mutex_lock(&intents->lock);
	for (uint32_t i = publish->sent; i < publish->sent + publish->batch; i++) {
		const struct published *published = &publish->published[i];
		if (volume && volume->pages && !volume_map_page(volume, published->text.object))
			atomic_fetch_add_explicit(&volume->forgets, 1, memory_order_release);
		struct intent *intent =
			intent_find(intents, publish->volume, published->text.object);
		if (intent && intent->state == INTENT_STANDING &&
			atomic_load_explicit(&intent_record(peer, intent)->changes,
				memory_order_relaxed) == published->changes)
			intent_free(peer, intents, intent);
	}
	pthread_mutex_unlock(&intents->lock);
}

static void publish_some(struct volume_step *step);

static void published_some(struct call *call)
{
	struct volume_publish *publish = call->context;
	int rc = call->result;
	call_end(call);
	crash_point("volume.intent.published");
	if (rc == -ESTALE)
		volume_lease_lost(publish->step.peer, publish->volume);
	if (rc == 0) {
		peer_count(publish->step.peer, VOLUME_PUBLISHED, publish->batch);
		strike_out(publish);
		publish->sent += publish->batch;
	}
	if (rc == 0 && publish->sent < publish->count) {
		publish_some(&publish->step);
		return;
	}
	pass_on(publish);
	publish->done(publish, rc);
}

static void publish_some(struct volume_step *step)
{
	struct volume_publish *publish = (struct volume_publish *)step;
	uint32_t left = publish->count - publish->sent;
	publish->batch = left < PUBLISH_AT_ONCE ? left : PUBLISH_AT_ONCE;
	struct call *call = volume_step_call(step, publish_some, XSEG_OP_CONTROL,
		(struct xseg_key){.volume = publish->volume},
		publish->batch * (uint32_t)sizeof(struct map_update));
	if (!call)
		return;
	for (uint32_t i = 0; i < publish->batch; i++)
		call_put_bytes(call, i * (uint32_t)sizeof(struct map_update),
			&publish->published[publish->sent + i].text, sizeof(struct map_update));
	call->arg0 = MAP_PUBLISH;
	call->arg1 = publish->batch;
	call_submit(call, VOLUME_MAP, published_some);
}

void volume_publish_send(struct volume_publish *publish)
{
	must(publish->count > 0);
	publish_some(&publish->step);
}

void volume_publish_drop(struct volume_publish *publish)
{
	if (publish->count > 0)
		pass_on(publish);
}
