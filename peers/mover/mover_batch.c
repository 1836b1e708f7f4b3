/* SPDX-License-Identifier: Apache-2.0 */
/* Batches of objects on their way, some at a time: the lane's part (mover.h). */
#include "peers/mover/mover.h"

static const struct sm_state steps[] = {
	[BATCH_FREE] = {"free", SM(BATCH_QUIETING)},
	[BATCH_QUIETING] = {"quieting", SM(BATCH_COPYING)},
	[BATCH_COPYING] = {"copying", SM(BATCH_CLOSING) | SM(BATCH_FREE)},
	[BATCH_CLOSING] = {"closing", SM(BATCH_DELETING)},
	[BATCH_DELETING] = {"deleting", SM(BATCH_FREE)},
};
fixed(sizeof(steps) / sizeof(*steps) == BATCH_STEPS);

/* --- the end ------------------------------------------------------------------------------ */

static void piece_release(struct mover_batch *batch, const struct mover_piece *piece)
{
	struct mover_object *object = piece->object;
	object->busy = object->closing = false;
	object->litter = piece->litter;
	if (!piece->moved)
		return;
	batch->group->objects++;
	batch->group->bytes += piece->size - piece->unchanged;
	peer_count(batch->row.mover->peer, MOVER_C_OBJECTS, 1);
	peer_count(batch->row.mover->peer, MOVER_C_BYTES, piece->size - piece->unchanged);
	peer_count(batch->row.mover->peer, MOVER_C_UNCHANGED, piece->unchanged);
	mover_group_object_forget(batch->row.mover, object);
}

static void end(struct mover_batch *batch)
{
	for (unsigned i = 0; i < batch->count; i++)
		piece_release(batch, &batch->pieces[i]);
	batch->group->batches--;
	sm_move(steps, &batch->step, BATCH_FREE);
	mover_step_ended(batch->row.mover, batch->group, batch->error);
}

static void delete_done(struct worker_item *item) { end((struct mover_batch *)item); }

static void copy_done(struct worker_item *item)
{
	struct mover_batch *batch = (struct mover_batch *)item;
	if (batch->error != 0) {
		end(batch);
		return;
	}
	for (unsigned i = 0; i < batch->count; i++)
		batch->pieces[i].object->closing = true;
	sm_move(steps, &batch->step, BATCH_CLOSING);
}

/* --- the beginning ------------------------------------------------------------------------ */

static void take(struct mover_batch *batch, struct mover_object *object)
{
	object->busy = true;
	batch->pieces[batch->count++] = (struct mover_piece){
		.object = object, .key = object->key, .litter = object->litter};
}

/* So many objects, that all batches together are as many as may be under way. */
static unsigned room(const struct mover *mover)
{
	const struct mover_options *options = mover->peer->options;
	unsigned most = (unsigned)options->batch, part = (most + MOVER_BATCHES - 1) / MOVER_BATCHES;
	unsigned out = 0;
	for (unsigned i = 0; i < MOVER_BATCHES; i++)
		if (mover->batches[i].step != BATCH_FREE)
			out += mover->batches[i].count;
	return out >= most ? 0 : most - out < part ? most - out : part;
}

bool mover_batch_start(struct mover *mover, struct mover_group *group, struct mover_object *only)
{
	struct mover_object *object;
	struct mover_batch *batch = NULL;
	unsigned most = only ? 1 : room(mover);
	for (unsigned i = 0; i < MOVER_BATCHES && !batch; i++)
		if (mover->batches[i].step == BATCH_FREE)
			batch = &mover->batches[i];
	if (!batch)
		return false;
	batch->count = 0;
	if (only)
		take(batch, only);
	else
		TAILQ_FOREACH (object, &group->order, order) {
			if (batch->count == most)
				break;
			if (object->member && !object->busy)
				take(batch, object);
		}
	if (batch->count == 0)
		return false;
	batch->group = group;
	batch->error = 0;
	group->batches++;
	sm_move(steps, &batch->step, BATCH_QUIETING);
	return true;
}

/* --- turns -------------------------------------------------------------------------------- */

/* Has what was on its way ended? */
static bool is_quiet(const struct mover_batch *batch, bool reads)
{
	uint32_t out = 0;
	for (unsigned i = 0; i < batch->count; i++) {
		const struct mover_object *object = batch->pieces[i].object;
		out += object->changes + (reads ? object->reads : 0);
	}
	return out == 0;
}

static bool turn(struct mover_batch *batch)
{
	bool copies = batch->step == BATCH_QUIETING && is_quiet(batch, false);
	bool deletes = batch->step == BATCH_CLOSING && is_quiet(batch, true);
	if (!copies && !deletes)
		return false;
	sm_move(steps, &batch->step, copies ? BATCH_COPYING : BATCH_DELETING);
	worker_run(batch->row.mover->peer, &batch->item,
		copies ? mover_copy_run : mover_copy_delete, copies ? copy_done : delete_done);
	return true;
}

bool mover_batch_any(const struct mover *mover)
{
	bool any = false;
	for (unsigned i = 0; i < MOVER_BATCHES; i++)
		any |= mover->batches[i].step != BATCH_FREE;
	return any;
}

bool mover_batch_turn(struct mover *mover)
{
	bool moved = false;
	for (unsigned i = 0; i < MOVER_BATCHES; i++)
		moved |= turn(&mover->batches[i]);
	return moved;
}
