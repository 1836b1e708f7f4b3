/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The steps that the operations on volumes are made of (map_volume.h).
 *
 * Whoever loses a race reads again and begins anew: a step says so with -ESTALE.
 *
 * Units: bytes. Errors: 0 or -errno. Ownership: caller's. Threads: any. Blocking: the store's.
 */
#ifndef SKERRY_MAP_STEP_H
#define SKERRY_MAP_STEP_H

#include "peers/map/map_volume.h"

#define MAP_TRIES 100u /* races lost in a row; then -EBUSY */

static inline bool map_is_new(const struct map_volume *volume) { return volume->flags & MAP_NEW; }
static inline bool map_is_removing(const struct map_volume *volume)
{
	return volume->state == XSEG_VOLUME_REMOVING;
}

/* --- names (map_name.c) ----------------------------------------------------------------------- */

/* What stands at a name's place. version 0: nothing. */
struct map_place {
	struct map_name name;
	uint64_t version;
};
/* -ENOENT is not an error here: version is 0. */
int map_name_place_read(struct map_store *store, const char *name, struct map_place *place);
/* Does the place lead to the volume that has this name? */
bool map_name_place_leads(const struct map_place *place, const char *name, uint64_t id);
/* 0: *free says whether volume `id` may have the name; -EEXIST, -ENOTUNIQ (another name with this
   hash is taken): it is another's. *place: what to put it over. */
int map_name_place_look(
	struct map_store *store, const char *name, uint64_t id, struct map_place *place);
/*
 * The name leads to the volume from now on. It is put anew even when it did before: somebody may be
 * about to delete it as a leftover, in the version that was there.
 */
int map_name_place_claim(struct map_store *store, const char *name, uint64_t id);
/* Deletes what was read there, if it is still that. */
int map_name_place_drop(struct map_store *store, const struct map_place *place);

/* --- heads (map_record.c) -------------------------------------------------------------------- */

/* As map_head_read(), and fit to be put: also what is in the making or goes. */
int map_record_take(struct map_store *store, uint64_t id, struct map_head *head);
/* Of one that is not to be found: has a mover taken its record from everybody's sight, as it takes
   the volume to another store (docs/moving.md)? 1, 0 or -errno. */
int map_record_hidden(struct map_store *store, uint64_t id);
/* -ENOENT also for one that is not yet there. */
int map_record_open_head(struct map_store *store, uint64_t id, struct map_head *head);
/* -ENOENT also for one that is being removed. */
int map_record_live(struct map_store *store, uint64_t id, struct map_head *head);
/* A volume that may be written to: -EPERM for a snapshot. */
int map_record_writable(struct map_store *store, uint64_t id, struct map_head *head);
/* -ESTALE also for a record that came or went. As it is: whoever has read it before must begin
   anew. */
int map_record_replace(struct map_store *store, struct map_head *head);
/* Both halves, as they were read, the older first. */
int map_record_forget(struct map_store *store, const struct map_head *head);

/* A damaged page of a volume that has been changed or removed since it was read: -ESTALE. Any other
   error stays. */
int map_record_excuse(struct map_store *store, const struct map_head *head, int rc);

/* Reads, edits and puts until nobody interferes. edit returns 0, or -errno, or 1: nothing to do. */
typedef int map_edit_f(struct map_store *store, struct map_head *head, const void *context);
typedef int map_read_f(struct map_store *store, uint64_t id, struct map_head *head);
int map_record_edit(struct map_store *store, uint64_t id, map_read_f *read, map_edit_f *edit,
	const void *context, struct map_head *head);
/* New objects get another epoch; `freeze`: those that there are are not written any more. */
int map_record_advance(struct map_head *head, bool freeze);

/* Every record of a volume, also of those that are in the making. */
int map_record_each_raw(struct map_store *store, map_each_f *visit, void *context);

/* --- undoing (map_remove.c) ------------------------------------------------------------------- */

int map_remove_objects(struct map_store *store, uint64_t id);
/* One that is in the making and not named shall never be. -ESTALE: somebody goes on with it. */
int map_remove_head(struct map_store *store, struct map_head *head);

#endif
