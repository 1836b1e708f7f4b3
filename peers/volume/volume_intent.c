/* SPDX-License-Identifier: Apache-2.0 */
/* The life of an intent; its states and moves are drawn in volume_intent_store.c. */
#include <errno.h>

#include "peers/volume/volume_intent_priv.h"

static int intent_make(
	struct peer *peer, const struct volume_intent *wanted, enum intent_state state)
{
	struct intents *intents = intents_of(peer);
	uint64_t volume = atomic_load_explicit(&wanted->volume, memory_order_relaxed);
	pthread_mutex_lock(&intents->lock);
	struct intent *intent = intent_find(intents, volume, wanted->object);
	bool undoing = intent && intent->state == INTENT_UNDOING;
	int rc = undoing ? -EAGAIN : intent_put(peer, intents, wanted, &intent);
	if (rc == 0) {
		intent_move(intent, state);
		intent->zero = false;
	}
	pthread_mutex_unlock(&intents->lock);
	return rc;
}

int volume_intent_make(struct peer *peer, const struct volume_intent *intent)
{
	return intent_make(peer, intent, INTENT_STANDING);
}

int volume_intent_try(struct peer *peer, const struct volume_intent *intent)
{
	return intent_make(peer, intent, INTENT_TRYING);
}

bool volume_intent_unmake(struct peer *peer, uint64_t volume, uint32_t object)
{
	struct intents *intents = intents_of(peer);
	pthread_mutex_lock(&intents->lock);
	struct intent *intent = intent_find(intents, volume, object);
	bool trying = intent && intent->state == INTENT_TRYING;
	if (trying)
		intent_drop(peer, intents, intent);
	pthread_mutex_unlock(&intents->lock);
	return trying;
}

/* --- first writes --------------------------------------------------------------------------- */

/* With the mutex. */
static int first(
	struct peer *peer, struct intents *intents, const struct volume_intent *wanted, bool zero)
{
	uint64_t volume = atomic_load_explicit(&wanted->volume, memory_order_relaxed);
	struct intent *intent = intent_find(intents, volume, wanted->object);
	enum intent_state state = intent ? intent->state : INTENT_FREE;
	if (state == INTENT_UNDOING)
		return -EAGAIN;
	if (state == INTENT_STANDING && intent_record(peer, intent)->flags == 0)
		return -EALREADY;
	if (state != INTENT_TRYING) {
		int rc = intent_put(peer, intents, wanted, &intent);
		if (rc != 0)
			return rc;
		intent_move(intent, INTENT_TRYING);
		intent->zero = zero;
	}
	intent->writers++;
	return 0;
}

int volume_intent_first(struct peer *peer, const struct volume_intent *intent, bool zero)
{
	struct intents *intents = intents_of(peer);
	pthread_mutex_lock(&intents->lock);
	int rc = first(peer, intents, intent, zero);
	pthread_mutex_unlock(&intents->lock);
	return rc;
}

/* With the mutex. It is to be published from now on. */
static void stand(struct peer *peer, struct intents *intents, struct intent *intent)
{
	intent_move(intent, INTENT_STANDING);
	intent->zero = false;
	atomic_store_explicit(
		&intent_record(peer, intent)->changes, ++intents->changes, memory_order_release);
}

void volume_intent_made(struct peer *peer, uint64_t volume, uint32_t object)
{
	struct intents *intents = intents_of(peer);
	pthread_mutex_lock(&intents->lock);
	struct intent *intent = intent_find(intents, volume, object);
	if (intent && intent->writers > 0)
		intent->writers--;
	if (intent && intent->state == INTENT_TRYING)
		stand(peer, intents, intent);
	pthread_mutex_unlock(&intents->lock);
}

bool volume_intent_failed(struct peer *peer, uint64_t volume, uint32_t object)
{
	struct intents *intents = intents_of(peer);
	pthread_mutex_lock(&intents->lock);
	struct intent *intent = intent_find(intents, volume, object);
	if (intent && intent->writers > 0)
		intent->writers--;
	bool undo = intent && intent->writers == 0 && intent->state == INTENT_TRYING;
	if (undo)
		intent_move(intent, INTENT_UNDOING);
	pthread_mutex_unlock(&intents->lock);
	return undo;
}

void volume_intent_undo(struct peer *peer, uint64_t volume, uint32_t object, bool gone)
{
	struct intents *intents = intents_of(peer);
	pthread_mutex_lock(&intents->lock);
	struct intent *intent = intent_find(intents, volume, object);
	if (intent && intent->state == INTENT_UNDOING) {
		bool zero = intent->zero;
		if (gone && zero)
			intent_record(peer, intent)->flags = MAP_WORD_ZERO;
		if (gone && !zero)
			intent_drop(peer, intents, intent);
		else
			stand(peer, intents, intent);
	}
	pthread_mutex_unlock(&intents->lock);
}

bool volume_intent_has(
	struct peer *peer, uint64_t volume, uint32_t object, const uint64_t has[MAP_HAS_WORDS])
{
	struct intents *intents = intents_of(peer);
	pthread_mutex_lock(&intents->lock);
	struct intent *intent = intent_find(intents, volume, object);
	if (intent) {
		struct volume_intent *record = intent_record(peer, intent);
		for (unsigned i = 0; i < MAP_HAS_WORDS; i++)
			if (has[i])
				atomic_fetch_or_explicit(
					&record->has[i], has[i], memory_order_relaxed);
		stand(peer, intents, intent);
	}
	pthread_mutex_unlock(&intents->lock);
	return intent != NULL;
}
