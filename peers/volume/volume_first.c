/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The first write to an object that is not there, or reads as zeros. It is a request of our own,
 * for its answer matters: what nothing was written of is not there, and a FLUSH need not tell the
 * mapper of it (it could not, on a store that is full). The entry moves behind the answer, so all
 * who write to the object until then come this way.
 */
#include <base/crash.h>
#include <errno.h>

#include "peers/volume/volume_intent.h"
#include "peers/volume/volume_overlay_priv.h"

static struct volume_part *part_of(struct volume_step *step) { return (struct volume_part *)step; }

static uint64_t word_of(const struct volume_part *part)
{
	const struct volume_page *page = volume_map_page(part->volume, part->object);
	return page ? atomic_load_explicit(
			      &page->entry[part->object % MAP_PAGE_ENTRIES], memory_order_acquire)
		    : 0;
}

/* From now on it is written to as any other. */
static void entry_make(const struct volume_part *part, uint32_t epoch)
{
	uint64_t word = word_of(part);
	if (word != 0 && !(map_word_flags(word) & MAP_WORD_ZERO))
		return;
	if (volume_map_move(
		    part->volume, part->object, word, map_word(epoch, part->volume->self, 0)))
		peer_count(part->step.peer, VOLUME_MADE, 1);
}

/* --- it has failed ------------------------------------------------------------------------ */

static void removed(struct call *call)
{
	struct volume_part *part = call->context;
	bool gone = call->result == 0;
	call_end(call);
	crash_point("volume.first.removed");
	if (!gone && overlay_volume(part))
		entry_make(part, part->own.epoch);
	volume_intent_undo(part->step.peer, part->id, part->object, gone);
	volume_io_part_end(part, part->error);
}

/* A piece of it may have been written; it must not be found by whoever makes the object later. */
static void remove_begin(struct volume_step *step)
{
	struct call *call =
		volume_step_call(step, remove_begin, XSEG_OP_DELETE, part_of(step)->own, 0);
	if (call)
		call_submit(call, VOLUME_STORE, removed);
}

static void failed(struct volume_part *part, int error)
{
	part->error = error;
	if (volume_intent_failed(part->step.peer, part->id, part->object))
		remove_begin(&part->step);
	else
		volume_io_part_end(part, error);
}

/* --- writing ------------------------------------------------------------------------------ */

static void written(struct call *call)
{
	struct volume_part *part = call->context;
	int rc = call->result;
	call_end(call);
	crash_point("volume.first.written");
	if (rc != 0) {
		failed(part, rc);
		return;
	}
	if (overlay_volume(part))
		entry_make(part, part->own.epoch);
	volume_intent_made(part->step.peer, part->id, part->object);
	volume_io_part_end(part, 0);
}

static void send(struct volume_step *step)
{
	struct volume_part *part = part_of(step);
	int rc = volume_copy_send(part, written);
	if (rc == -EAGAIN)
		overlay_wait(part, send);
	else if (rc != 0)
		failed(part, rc);
}

/* The intent before the write: a composer that is killed in between has left word of it. */
static void begin(struct volume_step *step)
{
	struct volume_part *part = part_of(step);
	struct xseg_key key;
	if (!overlay_volume(part)) {
		volume_io_part_end(part, -ENOENT);
		return;
	}
	enum volume_where where = volume_where(part->volume, part->object, &key);
	if (where != VOLUME_HOLE && where != VOLUME_ZERO) {
		volume_io_part_again(part);
		return;
	}
	uint32_t epoch = atomic_load_explicit(&part->volume->epoch, memory_order_relaxed);
	struct volume_intent intent = {.volume = part->id, .object = part->object, .epoch = epoch};
	part->own = (struct xseg_key){.volume = part->id, .epoch = epoch, .object = part->object};
	int rc = volume_intent_first(part->step.peer, &intent, where == VOLUME_ZERO);
	if (rc == 0) {
		send(step);
	} else if (rc == -EALREADY) {
		entry_make(part, epoch);
		volume_io_part_again(part);
	} else if (rc == -EAGAIN) {
		overlay_wait(part, begin);
	} else {
		volume_io_part_end(part, rc);
	}
}

void volume_first_write(struct volume_part *part) { begin(&part->step); }
