/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What can be done with volumes, snapshots and clones as such. Each is atomic: one put of a record
 * is the point from which on it has happened; what lies before it is invisible, and what is left
 * over after a cut is found and deleted by map_cleanup(). Each may be said again: it then finds
 * what was done and answers as the first time (ids are drawn by the caller, so that they are the
 * same).
 *
 * Order of a create, snapshot, clone: record (MAP_NEW), the source's record, name (the point),
 * record without MAP_NEW. Of a rename: the new name record, the volume's record (the point), the
 * old name record. Of a remove: the record says REMOVING, the objects, the name, the record.
 *
 * Units: bytes. Errors: 0 or -errno: -EEXIST (the name is taken), -ENOENT, -EBUSY (open elsewhere:
 * see map_home.h), -ENOTEMPTY (it has children), -EPERM (protected; a snapshot is not written to),
 * -EINVAL, -EMLINK (clones too deep: flatten first), -EFBIG (too many objects), -ENOTUNIQ (another
 * name that is taken has the same hash), -EOVERFLOW (no epoch is left), -EILSEQ, -EPROTO.
 * Ownership: caller's. Threads: any; operations on one volume one at a time within the process,
 * between processes the records' versions decide, and the loser starts again from its read.
 * Blocking: the store's.
 */
#ifndef SKERRY_MAP_VOLUME_H
#define SKERRY_MAP_VOLUME_H

#include "peers/map/map_tree.h"

/* By name: its id. -ENOENT also for a name that its volume does not bear out. */
int map_name_find(struct map_store *store, const char *name, uint64_t *id);

/* --- names as people say them: map_shown.c --- */

#define MAP_NAME_ROOM (VOLUME_NAME_LENGTH_MAX + 1u)
/* "disk" or "disk@monday" as it stands in records; -ENOENT: there is no volume 'disk'. */
int map_shown_store(struct map_store *store, const char *shown, char stored[MAP_NAME_ROOM]);
/* The other way round. */
void map_shown_name(
	struct map_store *store, const struct map_volume *volume, char shown[MAP_NAME_ROOM]);
/* Is it, as stored, the name of a snapshot of that volume? */
bool map_shown_is_of(const char *stored, uint64_t volume);
/* map_name_find() of a name that somebody has said; as it is stored will do too: programs say
   ID@SNAP, and a snapshot of an older store may have a name with '@' of its own. */
int map_shown_find(struct map_store *store, const char *shown, uint64_t *id);
/* In any state, also REMOVING, in which its map may be gone already: all else says -ENOENT then. */
int map_record_open(struct map_store *store, uint64_t id, struct map_head *head);

struct map_create {
	uint64_t id; /* drawn by the caller, not 0 */
	uint64_t size, created_ns;
	uint32_t object_size;
	uint32_t state; /* XSEG_VOLUME_READY, or _IMPORTING */
	const char *name;
};
int map_create(struct map_store *store, const struct map_create *create, struct map_head *head);
int map_change_state(struct map_store *store, uint64_t id, unsigned state); /* IMPORTING -> READY */
int map_change_flags(
	struct map_store *store, uint64_t id, uint32_t set, uint32_t clear); /* protect */
int map_change_limits(
	struct map_store *store, uint64_t id, uint64_t iops, uint64_t bytes, uint64_t burst_ms);
/* New objects get an epoch that nobody has used, so that what a crash has left cannot be taken for
   theirs. `freeze`: what there is is shared from now on. */
int map_change_epoch(struct map_store *store, uint64_t id, bool freeze, struct map_head *head);

/* The volume as it is now, under a new name and id, never to change. *volume: the volume's head
   after it, with a higher epoch. The caller has seen to it that no write is on its way. */
int map_create_snapshot(struct map_store *store, uint64_t id, const struct map_create *snapshot,
	struct map_head *volume);
/* A new volume with the contents of a snapshot, or of a volume (which is then frozen as for a
   snapshot). create->size: 0: as it is; larger: the rest is a hole. create->object_size: 0, or that
   of the source. create->state IMPORTING: what is to differ is still to be written; all else:
   READY. -EBUSY: the source is still being imported. */
int map_create_clone(struct map_store *store, uint64_t id, const struct map_create *create,
	struct map_head *clone);
/* The volume has the contents of one of its snapshots again. Size, too. */
int map_change_rollback(
	struct map_store *store, uint64_t id, uint64_t snapshot, struct map_head *head);
/* As for map_update(). The rest of the last object, when the size ends within it, is the
   caller's to zero before. */
int map_change_resize(struct map_store *store, uint64_t id, uint64_t size, struct map_head *head);
int map_rename(struct map_store *store, uint64_t id, const char *name);
/* -ENOTEMPTY: *child is one of those that hang from it. Objects that others may need are left
   to the sweep (map_sweep.h). What is not there has been removed: 0. Its home record goes with
   it. */
int map_remove(struct map_store *store, uint64_t id, uint64_t *child);
/* One of which no whole record is left (-EILSEQ): what others may need of it stays, and is theirs
   or the sweep's. */
int map_remove_damaged(struct map_store *store, uint64_t id);

/* Does the volume still need its parents? (Any entry of another owner, any partial object.) */
int map_change_is_flat(struct map_store *store, const struct map_volume *volume, bool *flat);
/* A volume that is flat forgets its parent. -ENOTEMPTY: it is not. */
int map_change_detach(struct map_store *store, uint64_t id);

/* All volumes, in no order: visit is given each head; damaged ones with error < 0 and only the id
   known. Returns what visit returned when not 0. */
typedef int map_each_f(void *context, uint64_t id, int error, const struct map_head *head);
int map_record_each(struct map_store *store, map_each_f *visit, void *context);

/* Deletes what cut-off operations have left: records without a name, names that nobody bears, and
   volumes that are being removed, whoever began it. Nothing that is younger than `before_ns` (wall
   clock) and might be in the making. A volume whose name is gone gets it back. */
int map_cleanup(struct map_store *store, uint64_t before_ns, uint64_t *deleted);

/*
 * What a partial update of objects means on disk, see <peer/map.h>: bitmaps first, then a flush,
 * then map_tree_update(). The data are durable before. Only who has the volume's home may say it:
 * two at once would write to one page. -ESTALE: the deltas are of an epoch that is over: of an
 * object that is shared by now, or that the map did not know when its epoch ended, and may be
 * swept.
 */
struct map_delta {
	uint32_t object;
	uint32_t flags; /* 0, MAP_PARTIAL, MAP_ZERO; MAP_NEWS_HOLE: no entry any more */
	uint32_t epoch; /* of the volume's own object */
	uint32_t parent_epoch, parent_flags;
	uint64_t parent_owner;
	uint64_t has[MAP_BITMAP_WORDS]; /* MAP_PARTIAL; added to what it has; all: it is whole */
};
#define MAP_UPDATE_HOLE 0x80000000u
int map_update(struct map_store *store, uint64_t id, const struct map_delta *deltas, size_t count,
	struct map_head *head);

#endif
