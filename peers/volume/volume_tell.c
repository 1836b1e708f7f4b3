/* SPDX-License-Identifier: Apache-2.0 */
/* The mapper is told what stands in notes: gathered, sent in pieces, struck out. */
#include <base/crash.h>
#include <errno.h>
#include <peer/keep.h>
#include <stdlib.h>
#include <string.h>

#include "peers/volume/volume_map.h"
#include "peers/volume/volume_notes.h"

/* In one request: half a megabyte. */
#define TELL_AT_ONCE 3200u

/* A note as it was gathered. */
struct told {
	uint32_t changes;
	struct map_new text;
};

static struct notes *notes_of(const struct volume_tell *tell)
{
	return ((struct volume_shared *)tell->step.peer->shared)->notes;
}

static void copy_note(struct told *told, const struct volume_note *slot, bool zero)
{
	/* before the bits: one that is set beside us is told the next time, too */
	told->changes = atomic_load_explicit(&slot->changes, memory_order_acquire);
	told->text = (struct map_new){
		.object = slot->object,
		.flags = zero ? MAP_WORD_ZERO : slot->flags,
		.epoch = slot->epoch,
		.parent_epoch = slot->parent_epoch,
		.parent_flags = slot->parent_flags,
		.parent_owner = slot->parent_owner,
	};
	for (unsigned i = 0; i < MAP_HAS_WORDS; i++)
		told->text.has[i] = atomic_load_explicit(&slot->has[i], memory_order_relaxed);
}

static int compare(const void *a, const void *b)
{
	const struct told *x = a, *y = b;
	return (x->text.object > y->text.object) - (x->text.object < y->text.object);
}

/* With the mutex, and it is our turn. In order of object: as the map's pages lie. */
static int gather(struct volume_tell *tell, const struct note_volume *of)
{
	const struct note *note;
	tell->told = malloc(of->count * sizeof(*tell->told));
	if (!tell->told)
		return -ENOMEM;
	TAILQ_FOREACH (note, &of->notes, beside)
		if (!note->unmade || note->zero)
			copy_note(&tell->told[tell->count++], notes_slot(tell->step.peer, note),
				note->zero);
	qsort(tell->told, tell->count, sizeof(*tell->told), compare);
	return 0;
}

/* Our turn is over; the next one's lane is woken. */
static void pass_on(struct volume_tell *tell)
{
	struct notes *notes = notes_of(tell);
	pthread_mutex_lock(&notes->lock);
	struct note_volume *of = notes_volume(notes, tell->volume);
	struct volume_tell *next = TAILQ_FIRST(&of->waiting);
	of->telling = false;
	if (next) {
		unsigned shard = next->step.peer->shard;
		of->telling = true;
		TAILQ_REMOVE(&of->waiting, next, link);
		TAILQ_INSERT_TAIL(&notes->ready[shard], next, link);
		atomic_fetch_add_explicit(&notes->ready_count[shard], 1, memory_order_release);
		peer_wake(next->step.peer, shard);
	} else {
		notes_volume_put(of);
	}
	pthread_mutex_unlock(&notes->lock);
	free(tell->told);
	tell->told = NULL;
}

/* It is our turn; who has nothing to tell ends it at once. */
static void take_turn(struct volume_tell *tell)
{
	struct notes *notes = notes_of(tell);
	pthread_mutex_lock(&notes->lock);
	struct note_volume *of = notes_volume(notes, tell->volume);
	int rc = of->count > 0 ? gather(tell, of) : 0;
	pthread_mutex_unlock(&notes->lock);
	if (tell->count == 0)
		pass_on(tell);
	if (rc != 0)
		tell->done(tell, rc);
	else
		tell->gathered(tell);
}

void volume_tell_begin(struct volume_tell *tell)
{
	struct notes *notes = notes_of(tell);
	bool mine = false;
	pthread_mutex_lock(&notes->lock);
	struct note_volume *of = notes_volume(notes, tell->volume);
	if (of && of->telling) {
		TAILQ_INSERT_TAIL(&of->waiting, tell, link);
	} else if (of) {
		of->telling = true;
		mine = true;
	}
	pthread_mutex_unlock(&notes->lock);
	if (mine)
		take_turn(tell);
	else if (!of)
		tell->gathered(tell);
}

bool volume_note_poll(struct peer *peer)
{
	struct notes *notes = ((struct volume_shared *)peer->shared)->notes;
	bool moved = false;
	while (notes &&
		atomic_load_explicit(&notes->ready_count[peer->shard], memory_order_acquire) > 0) {
		pthread_mutex_lock(&notes->lock);
		struct volume_tell *tell = TAILQ_FIRST(&notes->ready[peer->shard]);
		TAILQ_REMOVE(&notes->ready[peer->shard], tell, link);
		atomic_fetch_sub_explicit(
			&notes->ready_count[peer->shard], 1, memory_order_relaxed);
		pthread_mutex_unlock(&notes->lock);
		take_turn(tell);
		moved = true;
	}
	return moved;
}

/* --- sending ------------------------------------------------------------------------------ */

/* What has not changed since it was gathered stands in the map now. A page of the map that was
   asked for before and has not come yet may lack it: it is to be asked for again. */
static void strike_out(struct volume_tell *tell)
{
	struct peer *peer = tell->step.peer;
	struct notes *notes = notes_of(tell);
	struct volume *volume = volume_find(peer, tell->volume);
	pthread_mutex_lock(&notes->lock);
	for (uint32_t i = tell->sent; i < tell->sent + tell->batch; i++) {
		const struct told *told = &tell->told[i];
		if (volume && volume->pages && !volume_map_page(volume, told->text.object))
			atomic_fetch_add_explicit(&volume->forgets, 1, memory_order_release);
		struct note *note = notes_find(notes, tell->volume, told->text.object);
		if (note && !note->unmade &&
			atomic_load_explicit(&notes_slot(peer, note)->changes,
				memory_order_relaxed) == told->changes)
			notes_free(peer, notes, note);
	}
	pthread_mutex_unlock(&notes->lock);
}

static void tell_some(struct volume_step *step);

static void told_some(struct call *call)
{
	struct volume_tell *tell = call->context;
	int rc = call->result;
	call_end(call);
	crash_point("volume.note.told");
	if (rc == -ESTALE)
		volume_lease_lost(tell->step.peer, tell->volume);
	if (rc == 0) {
		peer_count(tell->step.peer, VOLUME_TOLD, tell->batch);
		strike_out(tell);
		tell->sent += tell->batch;
	}
	if (rc == 0 && tell->sent < tell->count) {
		tell_some(&tell->step);
		return;
	}
	pass_on(tell);
	tell->done(tell, rc);
}

static void tell_some(struct volume_step *step)
{
	struct volume_tell *tell = (struct volume_tell *)step;
	uint32_t left = tell->count - tell->sent;
	tell->batch = left < TELL_AT_ONCE ? left : TELL_AT_ONCE;
	struct call *call = volume_step_call(step, tell_some, XSEG_OP_CONTROL,
		(struct xseg_key){.volume = tell->volume},
		tell->batch * (uint32_t)sizeof(struct map_new));
	if (!call)
		return;
	for (uint32_t i = 0; i < tell->batch; i++)
		call_put_bytes(call, i * (uint32_t)sizeof(struct map_new),
			&tell->told[tell->sent + i].text, sizeof(struct map_new));
	call->arg0 = MAP_NEWS;
	call->arg1 = tell->batch;
	call_submit(call, VOLUME_MAP, told_some);
}

void volume_tell_send(struct volume_tell *tell)
{
	must(tell->count > 0);
	tell_some(&tell->step);
}

void volume_tell_drop(struct volume_tell *tell)
{
	if (tell->count > 0)
		pass_on(tell);
}
