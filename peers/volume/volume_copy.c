/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writing to objects that are shared or partial.
 *
 *   begin:  shared -> an own object, partial, that has nothing yet: intent, then entry
 *   claim:  the stretch's clusters are busy; somebody else's: wait
 *   fill:   a cluster that is written only in part, and is not there, is read from who has it and
 *           written whole; at most the first and the last
 *   write:  the stretch itself
 *   made:   the bits are set, in the intent first, then for readers; the last bit makes it whole
 *
 * Nothing is seen before it is there, so each step may be cut off and done again.
 */
#include <base/bits.h>
#include <base/crash.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "peers/volume/volume_intent.h"
#include "peers/volume/volume_overlay_priv.h"

/* Clusters of a flatten in one request. */
#define FILL_AT_ONCE 64u

static struct volume_part *part_of(struct volume_step *step) { return (struct volume_part *)step; }

static void write_begin(struct volume_step *step);
static void write_next(struct volume_step *step);
static void write_made(struct volume_step *step);

static uint32_t clusters_of(const struct volume *volume)
{
	return (1u << volume->object_shift) / MAP_CLUSTER;
}

/* Is it a write that leaves no data: the whole object may go. */
static bool empties(const struct volume_part *part)
{
	if (!part->job || part->length != 1u << part->volume->object_shift)
		return false;
	return part->job->op == XSEG_OP_DISCARD ||
	       (part->job->op == XSEG_OP_ZERO && !(part->job->flags & XSEG_F_NO_HOLE));
}

static void lock(const struct volume_part *part)
{
	pthread_mutex_lock(&overlays_of(part->step.peer)->lock);
}
static void unlock(const struct volume_part *part)
{
	pthread_mutex_unlock(&overlays_of(part->step.peer)->lock);
}

/* With the mutex. The entry that the object had before it got an overlay; 0: unknown. */
static uint64_t word_before(const struct volume *volume, const struct overlay *overlay)
{
	for (unsigned i = 0; i < MAP_OWNERS; i++)
		if (volume->owners[i] == overlay->parent_owner)
			return map_word(overlay->parent_epoch, i, overlay->parent_flags);
	return 0;
}

/* With the mutex. The last who was making the first clusters has failed: it is shared as before,
   unless the mapper knows better. What may have been written nobody looks at. */
static void unmake_overlay(struct volume_part *part)
{
	const struct overlay *overlay = part->overlay;
	uint64_t before = overlay_volume(part) ? word_before(part->volume, overlay) : 0;
	if (before == 0 || bits_any(overlay->busy, 0, clusters_of(part->volume)) ||
		bits_any(overlay->has, 0, clusters_of(part->volume)))
		return;
	if (volume_intent_unmake(part->step.peer, part->id, part->object))
		volume_map_move(part->volume, part->object,
			map_word(overlay->epoch, part->volume->self, MAP_WORD_PARTIAL), before);
}

/* With the mutex. The clusters are nobody's any more. */
static void let_go(struct volume_part *part, int error)
{
	if (part->count > 0)
		bits_clear(part->overlay->busy, part->first, part->count);
	if (error != 0)
		unmake_overlay(part);
	overlay_unref(overlays_of(part->step.peer), part->overlay);
	part->overlay = NULL;
}

static void write_end(struct volume_part *part, int error)
{
	if (part->overlay) {
		lock(part);
		let_go(part, error);
		unlock(part);
	}
	volume_io_part_end(part, error);
}

/* --- the object is there already, whole --------------------------------------------------- */

static void sent(struct call *call)
{
	struct volume_part *part = call->context;
	int rc = call->result;
	call_end(call);
	write_end(part, rc);
}

static void touched(struct call *call)
{
	struct volume_part *part = call->context;
	int rc = call->result;
	call_end(call);
	crash_point("volume.copy.touched");
	part->written = true;
	if (rc != 0)
		write_end(part, rc);
	else if (part->job)
		write_next(&part->step);
	else
		write_made(&part->step);
}

/* A cluster of zeros, which is emptied at once: an object that the map has should be in the store,
   or whoever looks there would take it for lost. */
static void touch(struct volume_step *step)
{
	struct volume_part *part = part_of(step);
	static const uint8_t zeros[MAP_CLUSTER];
	struct call *call;
	int rc = call_begin(part->step.peer, &call);
	if (rc == 0) {
		call->op = XSEG_OP_WRITE;
		call->key = part->own;
		call->offset = (uint64_t)(part->job ? part->first : part->fill) * MAP_CLUSTER;
		call->length = MAP_CLUSTER;
		call->context = part;
		rc = call_pages(call, MAP_CLUSTER);
		if (rc == 0) {
			call_put_bytes(call, 0, zeros, MAP_CLUSTER);
			call_submit(call, VOLUME_STORE, touched);
			return;
		}
		call_end(call);
	}
	if (rc == -EAGAIN)
		overlay_wait(part, touch);
	else
		write_end(part, rc);
}

/* With the mutex. What empties a part of an object that nothing was ever written to does not make
   it. */
static bool is_absent(struct volume_part *part)
{
	bool makes =
		part->job &&
		(part->job->op == XSEG_OP_WRITE ||
			(part->job->op == XSEG_OP_ZERO && (part->job->flags & XSEG_F_NO_HOLE)));
	return !makes && !part->written &&
	       !bits_any(part->overlay->has, 0, clusters_of(part->volume));
}

static void made_all(struct call *call)
{
	struct volume_part *part = call->context;
	int rc = call->result;
	call_end(call);
	crash_point("volume.copy.written");
	if (rc != 0)
		write_end(part, rc);
	else
		write_made(&part->step);
}

int volume_copy_send(struct volume_part *part, call_done_f *done)
{
	struct call *call;
	int rc = call_begin(part->step.peer, &call);
	if (rc != 0)
		return rc;
	call_as(call, part->job);
	call->flags &= ~(unsigned)(XSEG_F_FUA | XSEG_F_PIN);
	call->key = part->own;
	call->offset = part->offset;
	call->length = part->length;
	call->context = part;
	if (part->job->op == XSEG_OP_WRITE)
		rc = call_borrow(call, part->job, part->at, part->length);
	if (rc != 0) {
		call_end(call);
		return rc;
	}
	call_submit(call, VOLUME_STORE, done);
	return 0;
}

static void send_simply(struct volume_step *step)
{
	struct volume_part *part = part_of(step);
	int rc = volume_copy_send(part, sent);
	if (rc == -EAGAIN)
		overlay_wait(part, send_simply);
	else if (rc != 0)
		write_end(part, rc);
}

/* --- beginning ---------------------------------------------------------------------------- */

static void intent_of(
	const struct volume_part *part, const struct overlay *overlay, struct volume_intent *intent)
{
	*intent = (struct volume_intent){
		.volume = part->volume->id,
		.parent_owner = overlay->parent_owner,
		.object = part->object,
		.epoch = overlay->epoch,
		.flags = MAP_WORD_PARTIAL,
		.parent_epoch = overlay->parent_epoch,
		.parent_flags = overlay->parent_flags,
	};
	for (unsigned i = 0; i < MAP_HAS_WORDS; i++)
		atomic_init(&intent->has[i], overlay->has[i]);
}

/* With the mutex: two lanes may be at it. The shared object gets an own overlay. */
static int make_overlay(struct volume_part *part, uint64_t word)
{
	struct peer *peer = part->step.peer;
	struct volume *volume = part->volume;
	uint32_t epoch = atomic_load_explicit(&volume->epoch, memory_order_relaxed);
	struct overlays *overlays = overlays_of(peer);
	struct volume_intent intent;
	struct overlay *overlay = overlay_find(overlays, volume->id, epoch, part->object);
	if (overlay) /* it was begun before, and its intent could not be made */
		overlay_ref(overlays, overlay);
	else
		overlay = overlay_add(overlays, volume->id, epoch, part->object);
	if (!overlay)
		return -EAGAIN;
	overlay->known = true;
	overlay->error = 0;
	overlay->parent_owner = volume->owners[map_word_owner(word)];
	overlay->parent_epoch = map_word_epoch(word);
	overlay->parent_flags = map_word_flags(word);
	memset(overlay->has, 0, sizeof(overlay->has));
	intent_of(part, overlay, &intent);
	int rc = volume_intent_try(peer, &intent);
	if (rc != 0) {
		overlay_unref(overlays, overlay);
		return rc;
	}
	volume_map_move(
		volume, part->object, word, map_word(epoch, volume->self, MAP_WORD_PARTIAL));
	peer_count(peer, VOLUME_MADE, 1);
	part->overlay = overlay;
	return 0;
}

/* With the mutex. 0: part->overlay, or NULL: it is own and whole; -EALREADY: there is nothing. */
static int find_overlay(struct volume_part *part)
{
	struct volume *volume = part->volume;
	const struct volume_page *page = volume_map_page(volume, part->object);
	uint64_t word = page ? atomic_load_explicit(&page->entry[part->object % MAP_PAGE_ENTRIES],
				       memory_order_acquire)
			     : 0;
	if (!page)
		return -EIO; /* pages are forgotten only while nobody is at work */
	if (word == 0 || (map_word_flags(word) & MAP_WORD_ZERO))
		return -EALREADY;
	bool own = volume_word_is_own(volume, word);
	part->own = (struct xseg_key){.volume = volume->id,
		.epoch = own ? map_word_epoch(word)
			     : atomic_load_explicit(&volume->epoch, memory_order_relaxed),
		.object = part->object};
	if (!own)
		return make_overlay(part, word);
	if (!(map_word_flags(word) & MAP_WORD_PARTIAL))
		return 0;
	struct overlay *overlay = overlay_get(part->step.peer, &part->own);
	if (!overlay)
		return -EAGAIN;
	if (overlay->known) {
		part->overlay = overlay;
		return 0;
	}
	if (overlay->error == 0) {
		part->waits = overlay;
		return -EINPROGRESS;
	}
	int error = overlay->error;
	overlay_unref(overlays_of(part->step.peer), overlay);
	return error;
}

/* With the mutex. The clusters are ours, or it has to wait. */
static int claim(struct volume_part *part)
{
	struct overlay *overlay = part->overlay;
	uint32_t first = part->offset / MAP_CLUSTER;
	uint32_t count = (part->offset + part->length - 1) / MAP_CLUSTER - first + 1;
	if (bits_any(overlay->busy, first, count)) {
		overlay_unref(overlays_of(part->step.peer), overlay);
		part->overlay = NULL;
		return -EINPROGRESS;
	}
	part->first = first;
	part->count = count;
	bits_set(overlay->busy, first, count);
	return 0;
}

/* --- filling ------------------------------------------------------------------------------ */

/* With the mutex. The next clusters that have to be completed: of a stretch the ends that it covers
   in part, of a flatten all that is missing. */
static bool find_fill(struct volume_part *part)
{
	const struct overlay *overlay = part->overlay;
	uint32_t last = part->first + part->count - 1;
	uint32_t end = part->offset + part->length;
	for (uint32_t g = part->first; g <= last; g++) {
		bool inner = part->job && g * MAP_CLUSTER >= part->offset &&
			     (g + 1) * MAP_CLUSTER <= end;
		if (inner || bits_has(overlay->has, g) || bits_has(part->made, g))
			continue;
		part->fill = g;
		part->fill_count = 1;
		while (!part->job && part->fill_count < FILL_AT_ONCE &&
			g + part->fill_count <= last &&
			!bits_has(overlay->has, g + part->fill_count))
			part->fill_count++;
		return true;
	}
	return false;
}

static void filled(struct call *call)
{
	struct volume_part *part = call->context;
	int rc = call->result;
	call_end(call);
	crash_point("volume.copy.filled");
	if (rc != 0) {
		write_end(part, rc);
		return;
	}
	part->written = true;
	bits_set(part->made, part->fill, part->fill_count);
	peer_count(part->step.peer, VOLUME_COPIED, part->fill_count);
	if (part->job)
		write_next(&part->step);
	else
		write_made(&part->step);
}

/* A copy below would be one request less, but it makes a cache write back all that is dirty
   first. */
static void fill_write(struct call *read)
{
	struct volume_part *part = read->context;
	struct call *call = NULL;
	uint32_t bytes = part->fill_count * MAP_CLUSTER;
	int rc = read->result;
	if (rc == 0)
		rc = call_begin(part->step.peer, &call);
	if (rc == 0) {
		call->op = XSEG_OP_WRITE;
		call->key = part->own;
		call->offset = (uint64_t)part->fill * MAP_CLUSTER;
		call->length = bytes;
		call->context = part;
		rc = call_pages(call, bytes);
	}
	for (uint32_t at = 0; rc == 0 && at < bytes; at += MAP_CLUSTER) {
		uint8_t cluster[MAP_CLUSTER];
		call_get_bytes(read, at, cluster, sizeof(cluster));
		call_put_bytes(call, at, cluster, sizeof(cluster));
	}
	call_end(read);
	if (rc == 0) {
		call_submit(call, VOLUME_STORE, filled);
		return;
	}
	if (call)
		call_end(call);
	if (rc == -EAGAIN) /* read it again: what was read is not kept while we wait */
		overlay_wait(part, write_next);
	else
		write_end(part, rc);
}

static int fill_read(struct volume_part *part, const struct overlay_run *run)
{
	struct call *call;
	uint32_t bytes = part->fill_count * MAP_CLUSTER;
	int rc = call_begin(part->step.peer, &call);
	if (rc != 0)
		return rc;
	call->op = XSEG_OP_READ;
	call->key = run->key;
	call->offset = (uint64_t)part->fill * MAP_CLUSTER;
	call->length = bytes;
	call->context = part;
	rc = call_pages(call, bytes);
	if (rc != 0) {
		call_end(call);
		return rc;
	}
	call_submit(call, VOLUME_STORE, fill_write);
	return 0;
}

/* Whoever has them has nothing: they are zeros, and the own object reads as zeros where nothing was
   ever written. */
static void fill_nothing(struct volume_part *part)
{
	bits_set(part->made, part->fill, part->fill_count);
	lock(part);
	bool absent = is_absent(part);
	unlock(part);
	if (part->job)
		write_next(&part->step);
	else if (absent)
		touch(&part->step);
	else
		write_made(&part->step);
}

static void fill(struct volume_part *part)
{
	struct overlay_run run;
	int rc = overlay_resolve(part, &part->own, true, part->fill, part->fill_count, &run);
	if (rc == 0) {
		part->fill_count = run.count;
		if (run.key.volume == 0) {
			fill_nothing(part);
			return;
		}
		rc = fill_read(part, &run);
	}
	if (rc == -EINPROGRESS || rc == -EAGAIN)
		overlay_wait(part, write_next);
	else if (rc != 0)
		write_end(part, rc);
}

/* --- writing ------------------------------------------------------------------------------ */

static void emptied(struct call *call);

enum next { NEXT_FILL, NEXT_TOUCH, NEXT_SEND, NEXT_EMPTY, NEXT_END };

/* With the mutex. What the stretch covers is there when it has been written. */
static enum next next_of(struct volume_part *part)
{
	if (empties(part))
		return NEXT_EMPTY;
	if (find_fill(part))
		return NEXT_FILL;
	if (!part->job)
		return NEXT_END;
	return is_absent(part) ? NEXT_TOUCH : NEXT_SEND;
}

static void write_send(struct volume_part *part, call_done_f *done)
{
	int rc = volume_copy_send(part, done);
	if (rc == -EAGAIN)
		overlay_wait(part, write_next);
	else if (rc != 0)
		write_end(part, rc);
}

static void write_go(struct volume_part *part, enum next next)
{
	switch (next) {
	case NEXT_FILL: fill(part); break;
	case NEXT_TOUCH: touch(&part->step); break;
	case NEXT_SEND: write_send(part, made_all); break;
	case NEXT_EMPTY: write_send(part, emptied); break;
	case NEXT_END: write_end(part, 0); break;
	}
}

static void write_next(struct volume_step *step)
{
	struct volume_part *part = part_of(step);
	if (!overlay_volume(part)) {
		write_end(part, -ENOENT);
		return;
	}
	lock(part);
	enum next next = next_of(part);
	unlock(part);
	write_go(part, next);
}

/* There is nothing at all by now: as volume_io.c does it, from the beginning. */
static void nothing_there(struct volume_part *part)
{
	if (part->job)
		volume_io_part_again(part);
	else
		write_end(part, 0);
}

static void write_begin(struct volume_step *step)
{
	struct volume_part *part = part_of(step);
	if (!overlay_volume(part)) {
		write_end(part, -ENOENT);
		return;
	}
	lock(part);
	int rc = find_overlay(part);
	bool whole = rc == 0 && !part->overlay;
	if (!whole && rc == 0)
		rc = claim(part);
	enum next next = !whole && rc == 0 ? next_of(part) : NEXT_END;
	unlock(part);
	if (rc == -EALREADY)
		nothing_there(part);
	else if (rc == -EINPROGRESS || rc == -EAGAIN)
		overlay_wait(part, write_begin);
	else if (rc != 0)
		write_end(part, rc);
	else if (!whole)
		write_go(part, next);
	else if (part->job)
		send_simply(step);
	else
		write_end(part, 0);
}

/* With the mutex. The entry of an overlay that has everything. */
static void become_whole(struct volume_part *part)
{
	struct volume *volume = part->volume;
	uint32_t epoch = part->overlay->epoch;
	if (bits_all(part->overlay->has, 0, clusters_of(volume)))
		volume_map_move(volume, part->object,
			map_word(epoch, volume->self, MAP_WORD_PARTIAL),
			map_word(epoch, volume->self, 0));
}

/* With the mutex. Bits are in the intent before anybody reads by them: killed in between, the job
   is served again. */
static int intent_made(struct volume_part *part)
{
	struct peer *peer = part->step.peer;
	struct volume_intent intent;
	if (!volume_intent_has(peer, part->volume->id, part->object, part->made)) {
		intent_of(part, part->overlay, &intent);
		for (unsigned i = 0; i < MAP_HAS_WORDS; i++)
			atomic_fetch_or_explicit(
				&intent.has[i], part->made[i], memory_order_relaxed);
		int rc = volume_intent_make(peer, &intent);
		if (rc != 0)
			return rc;
	}
	crash_point("volume.copy.recorded");
	for (unsigned i = 0; i < MAP_HAS_WORDS; i++)
		part->overlay->has[i] |= part->made[i];
	become_whole(part);
	return 0;
}

static void write_made(struct volume_step *step)
{
	struct volume_part *part = part_of(step);
	if (!overlay_volume(part)) {
		write_end(part, -ENOENT);
		return;
	}
	if (part->job)
		bits_set(part->made, part->first, part->count);
	lock(part);
	/* nothing new: it was there before */
	int rc = 0;
	for (unsigned i = 0; i < MAP_HAS_WORDS && rc == 0; i++)
		if (part->made[i] & ~part->overlay->has[i])
			rc = 1;
	if (rc == 1)
		rc = intent_made(part);
	bool over = rc != -EAGAIN && (rc != 0 || part->job);
	if (over)
		let_go(part, rc);
	unlock(part);
	if (over)
		volume_io_part_end(part, rc);
	else if (rc == -EAGAIN)
		overlay_wait(part, write_made);
	else
		write_next(step); /* a flatten goes on */
}

/* --- all of it discarded ------------------------------------------------------------------ */

static void empty_entry(struct volume_step *step)
{
	struct volume_part *part = part_of(step);
	uint32_t epoch = part->overlay->epoch;
	struct volume_intent intent = {
		.volume = part->id, .object = part->object, .epoch = epoch, .flags = MAP_WORD_ZERO};
	if (!overlay_volume(part)) {
		write_end(part, -ENOENT);
		return;
	}
	struct volume *volume = part->volume;
	lock(part);
	int rc = volume_intent_make(part->step.peer, &intent);
	/* what the overlay has is not touched: whoever still reads by it finds zeros there, and not
	   what the parent had before */
	if (rc == 0)
		volume_map_move(volume, part->object,
			map_word(epoch, volume->self, MAP_WORD_PARTIAL),
			map_word(epoch, volume->self, MAP_WORD_ZERO));
	unlock(part);
	if (rc == -EAGAIN)
		overlay_wait(part, empty_entry);
	else
		write_end(part, rc);
}

static void emptied(struct call *call)
{
	struct volume_part *part = call->context;
	int rc = call->result;
	call_end(call);
	crash_point("volume.copy.emptied");
	if (rc != 0)
		write_end(part, rc);
	else
		empty_entry(&part->step);
}

/* --- from outside ------------------------------------------------------------------------- */

void volume_copy_write(struct volume_part *part)
{
	peer_count(part->step.peer, VOLUME_OVERLAY_WRITES, 1);
	write_begin(&part->step);
}

void volume_copy_flatten(struct volume_flattened *whole)
{
	struct volume_part *part = volume_io_part_new(whole->peer);
	if (!part) {
		whole->done(whole, -EAGAIN);
		return;
	}
	part->id = whole->volume->id;
	part->object = whole->object;
	part->length = 1u << whole->volume->object_shift;
	part->whole = whole;
	write_begin(&part->step);
}
