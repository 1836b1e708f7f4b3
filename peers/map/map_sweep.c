/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Deletes what no volume reaches, while volumes are written, copied, rolled back and removed.
 *
 * What is reached. Each volume that has a record, whatever its state, is a root, also one that is
 * in the making, being imported or removed. It reaches the pages of its map, the objects of its
 * entries, and of a partial object its bitmap, its parent, and so on down.
 *
 * Why what is unreachable stays so. New objects and pages have the epoch of their volume's record,
 * and an epoch is never given twice. All else that enters a map comes out of another one that is
 * there at that moment: a snapshot, clone or rollback copies a top, and an update leaves entries,
 * replaces them by new objects, or by partial ones that lie above them. So an object that nobody
 * reaches, with an epoch lower than its owner's record had before, is never reached again.
 *
 * What is being made. A composer writes objects and tells the mapper at the next flush, the mapper
 * writes pages and then the record: until then nobody reaches them. They have the epoch of the
 * record, or a later one. The limit for an owner is the epoch of its record at the beginning of the
 * sweep, before the first mark, and what is not below it is left alone. An owner that has no record
 * then has been removed and makes nothing; that is looked up only after its id was seen in
 * another's table, so a list that was read too early is no matter. Owners that appear later are
 * left to the next sweep.
 *
 * A mark takes time, and the list of volumes is no picture of one moment. As long as the epoch of a
 * volume's record stays the same, what an object's entry reaches only becomes less (new objects
 * apart). So a mark that reads some pages before an update and some after it, misses nothing
 * (map_mark.c reads on when a page has been overwritten meanwhile). With the epoch, anything may
 * have changed (a rollback): the volume is marked again. What is handed from one volume to another
 * goes to one with another id or another epoch. After the marks the list and the records are
 * therefore read again; what is new or has another epoch is marked, until two readings in a row
 * agree with what was marked. An object that is missed by all that would have had to be handed on,
 * in each of the readings, from a volume that was not yet listed and is removed, to one whose place
 * in the list was passed, both of which no other reading has ever shown.
 *
 * Two passes, because memories and messages are slower than stores: an operation may have read the
 * top of a snapshot that is removed before it puts its copy. It must look afterwards whether its
 * source is still there (map_volume.h), and take the copy back when it is not. The pace() hook may
 * stretch the time between the passes (pass has become 2) to as long as an operation can take at
 * all. Only what neither pass has reached is deleted.
 *
 * What cannot be read may need anything: a page, bitmap or entry that is damaged holds all
 * objects of all owners in its volume's table, half of a record does, too, and a record of which
 * nothing is whole holds all objects of the store. Only a volume that is being removed holds
 * nothing: nobody will read it again. (One that is in the making holds, and nobody hears of it: its
 * source has changed under it, and it will be made anew or undone.) Other families go on. Errors of
 * the store, other than -EIO at a page, end the sweep.
 *
 * What this does not find. The store lists the objects of a volume that one asks for. Objects are
 * found of owners that some record has in its table. The last record to have one goes by
 * map_remove(), which deletes the objects before. Objects of epoch 0, which no map has, are left.
 *
 * Cut off anywhere, nothing is to be done: the next sweep begins again, and what was deleted is not
 * found again. It reads each page and each bitmap once in a pass, however many volumes share it.
 */
#include "peers/map/map_sweep.h"

#include <errno.h>

#include "peers/map/map_fsck.h"

#define LISTED 256u /* objects at a time */
#define MEMORY (256ull << 20)
#define PACE_EVERY 32u
#define ROUNDS 64u /* that volumes are marked again in a pass */
#define AGREED 2u  /* readings */
#define SLICES_MAX 65536u

/* --- reports ---------------------------------------------------------------------------------- */

void map_sweep_report(struct map_run *run, const struct map_report *report)
{
	run->sweep->found[report->finding]++;
	if (run->sweep->report)
		run->sweep->report(run->sweep, report);
}

void map_sweep_progress(struct map_run *run, enum map_finding finding, uint64_t id,
	struct xseg_key key, uint32_t object)
{
	struct map_enumeration_volume *known = map_enumeration_volume_find(&run->enumeration, id);
	/* fsck has said all of it already */
	if (!known || known->told || run->sweep->explain)
		return;
	known->told = true;
	struct map_report report = {.finding = finding, .volume = id, .key = key, .object = object};
	map_sweep_report(run, &report);
}

/* --- marking ---------------------------------------------------------------------------------- */

static int mark(struct map_run *run, struct xseg_key key)
{
	int rc = map_mark_set(&run->reached, key);
	if (rc > 0 && run->sweep->pass == 1)
		run->sweep->marked++;
	return rc < 0 ? rc : 0;
}

static bool is_removing(const struct map_scan *scan)
{
	return scan->head.volume.state == XSEG_VOLUME_REMOVING;
}

/*
 * A snapshot or clone in the making may show its source's pages as they were before the source
 * wrote on: what is done with those is not done for others.
 */
static bool is_settled_volume(const struct map_scan *scan)
{
	return !is_removing(scan) && !(scan->head.volume.flags & MAP_NEW);
}

/* What may lie below this cannot be known. */
static void hold(
	struct map_scan *scan, enum map_finding finding, struct xseg_key key, uint32_t object)
{
	struct map_run *run = scan->context;
	if (is_removing(scan))
		return;
	map_enumeration_retain(&run->enumeration, &scan->head.volume);
	if (is_settled_volume(scan))
		map_sweep_progress(run, finding, scan->head.volume.id, key, object);
}

static bool has_owner(const struct map_volume *volume, uint64_t owner)
{
	for (unsigned i = 0; i < volume->owner_count; i++)
		if (volume->owners[i] == owner)
			return true;
	return false;
}

static bool is_damage(int rc)
{
	return rc == -EILSEQ || rc == -EPROTO || rc == -ENOENT || rc == -EIO;
}

/* One bitmap down: 1, and *key is the parent; 0: it holds everything. */
static int mark_parent(struct map_scan *scan, struct xseg_key *key, bool *partial)
{
	struct map_run *run = scan->context;
	struct map_bitmap bitmap;
	int rc = map_bitmap_read(run->store, key->volume, key->epoch, key->object, &bitmap);
	if (rc < 0 && !is_damage(rc))
		return rc;
	if (rc < 0) {
		int moved = map_mark_scan_moved(scan);
		if (moved != 0)
			return moved < 0 ? moved : -EAGAIN;
	}
	if (rc < 0 || !has_owner(&scan->head.volume, bitmap.parent_owner)) {
		hold(scan, MAP_FOUND_BAD_BITMAP, *key, key->object);
		return 0;
	}
	key->volume = bitmap.parent_owner;
	key->epoch = bitmap.parent_epoch;
	*partial = bitmap.parent_flags & MAP_PARTIAL;
	rc = mark(run, *key);
	return rc < 0 ? rc : 1;
}

/*
 * A partial object's bitmap, its parent, and so on. A bitmap's parent never changes, so each is
 * followed once; that is noted at the end, for the way there may have to be begun again.
 */
static int mark_chain(struct map_scan *scan, struct xseg_key key)
{
	struct map_run *run = scan->context;
	struct xseg_key passed[MAP_CHAIN_MAX];
	unsigned count = 0;
	bool partial = true;
	while (partial && !map_mark_has(&run->walked, key)) {
		int rc = mark(run, map_bitmap_key(key.volume, key.epoch, key.object));
		if (rc < 0)
			return rc;
		if (count == MAP_CHAIN_MAX) {
			hold(scan, MAP_FOUND_BAD_BITMAP, key, key.object);
			return 0;
		}
		passed[count++] = key;
		rc = mark_parent(scan, &key, &partial);
		if (rc <= 0)
			return rc;
	}
	for (unsigned i = 0; i < count && is_settled_volume(scan); i++)
		(void)map_mark_set(&run->walked, passed[i]); /* full: it is only followed again */
	return 0;
}

static int mark_entry(struct map_scan *scan, uint32_t object, struct map_entry entry)
{
	const struct map_volume *volume = &scan->head.volume;
	if (!map_format_entry_check(entry, volume->owner_count)) {
		hold(scan, MAP_FOUND_BAD_ENTRY, (struct xseg_key){0}, object);
		return 0;
	}
	if (entry.flags & MAP_ZERO)
		return 0;
	struct xseg_key key = {
		.volume = volume->owners[entry.owner], .epoch = entry.epoch, .object = object};
	int rc = mark(scan->context, key);
	if (rc == 0 && (entry.flags & MAP_PARTIAL))
		rc = mark_chain(scan, key);
	return rc;
}

static int mark_page(struct map_scan *scan, uint32_t page, const struct map_ref *ref,
	const struct map_entry entries[MAP_ENTRIES])
{
	(void)ref;
	int rc = 0;
	for (uint32_t i = 0; i < MAP_ENTRIES && rc == 0; i++)
		if (!map_entry_is_hole(entries[i]) || entries[i].owner || entries[i].flags)
			rc = mark_entry(scan, page * MAP_ENTRIES + i, entries[i]);
	return rc;
}

static int mark_enter(struct map_scan *scan, struct xseg_key key, bool shared)
{
	struct map_run *run = scan->context;
	int rc = mark(run, key);
	if (rc < 0 || (shared && map_mark_has(&run->walked, key)))
		return rc < 0 ? rc : 1;
	if (run->sweep->pass == 1 && run->reached.slice == 0)
		run->sweep->pages++;
	return 0;
}

static void mark_leave(struct map_scan *scan, struct xseg_key key)
{
	struct map_run *run = scan->context;
	if (is_settled_volume(scan))
		(void)map_mark_set(&run->walked, key); /* full: it is only read again */
}

static int mark_bad(struct map_scan *scan, struct xseg_key key, uint32_t page)
{
	hold(scan, MAP_FOUND_BAD_PAGE, key, page * MAP_ENTRIES);
	return 0;
}

static int mark_volume(struct map_run *run, uint32_t index)
{
	struct map_scan scan = {
		.store = run->store,
		.enter = mark_enter,
		.leave = mark_leave,
		.page = mark_page,
		.bad = mark_bad,
		.context = run,
	};
	struct map_enumeration_volume *volume = &run->enumeration.volumes[index];
	bool halved = false;
	volume->wanted = false;
	int rc = map_head_read(run->store, volume->id, &scan.head, &halved);
	if (rc == 0 && halved)
		map_enumeration_retain(&run->enumeration, &scan.head.volume);
	if (rc == 0)
		rc = map_mark_scan(&scan);
	if (rc == -EBUSY) {
		run->busy = true;
		map_enumeration_retain(&run->enumeration, &scan.head.volume);
		rc = 0;
	}
	if (rc == -EILSEQ || rc == -EPROTO)
		run->enumeration.held = true;
	if (rc == -EILSEQ || rc == -EPROTO || rc == -ENOENT) {
		volume->error = rc;
		return 0;
	}
	if (rc == 0)
		volume->marked = scan.head.volume.epoch;
	return rc;
}

/* Marks what is wanted until the volumes are as they were marked. */
static int mark_all(struct map_run *run)
{
	struct map_enumeration *enumeration = &run->enumeration;
	unsigned agreed = 0, rounds = 0;
	for (uint32_t i = 0; i < enumeration->volume_count; i++) {
		enumeration->volumes[i].wanted = enumeration->volumes[i].error == 0;
		enumeration->volumes[i].marked = 0;
	}
	while (agreed < AGREED) {
		if (rounds++ == ROUNDS)
			return -EBUSY;
		for (uint32_t i = 0; i < enumeration->volume_count; i++) {
			struct map_enumeration_volume *volume = &enumeration->volumes[i];
			int rc = 0;
			if (volume->wanted && map_enumeration_has(enumeration, volume, run->batch))
				rc = mark_volume(run, i);
			if (rc != 0)
				return rc;
		}
		run->sweep->passes++;
		int wanted = map_enumeration_read(enumeration, run->store, run->batch);
		if (wanted < 0)
			return wanted;
		agreed = wanted ? 0 : agreed + 1;
	}
	return 0;
}

static int pass(struct map_run *run, unsigned number, unsigned slice, unsigned slices)
{
	run->sweep->pass = number;
	int rc = map_pace_call(&run->pace);
	if (rc != 0)
		return rc;
	map_mark_begin(&run->reached, slice, slices);
	map_mark_begin(&run->walked, 0, 1);
	return mark_all(run);
}

/* --- sweeping --------------------------------------------------------------------------------- */

static bool is_held(const struct map_run *run, const struct map_enumeration_owner *owner)
{
	return run->enumeration.held || owner->held;
}

/* May it go when nobody reaches it? */
static bool is_settled(const struct map_enumeration_owner *owner, struct xseg_key key)
{
	uint32_t epoch = key.epoch & ~MAP_EPOCH_MAP;
	return epoch >= 1 && epoch <= MAP_EPOCH_MAX && epoch < owner->limit;
}

int map_sweep_list(struct map_run *run,
	int (*visit)(struct map_run *run, const struct map_enumeration_owner *owner,
		struct xseg_key key))
{
	struct xseg_key keys[LISTED];
	const struct map_enumeration_volume *only = NULL;
	if (run->sweep->volume != 0)
		only = map_enumeration_volume_find(&run->enumeration, run->sweep->volume);
	for (uint32_t i = 0; i < run->enumeration.owner_count; i++) {
		const struct map_enumeration_owner *owner = &run->enumeration.owners[i];
		uint64_t cursor = 0;
		if (map_enumeration_batch(&run->enumeration, i) != run->batch ||
			(only && !map_enumeration_is_related(&run->enumeration, only, i)))
			continue;
		do {
			int count = run->store->list(run->store, owner->id, &cursor, keys, LISTED);
			int rc = count < 0 ? count : 0;
			for (int j = 0; j < count && rc == 0; j++)
				if (keys[j].volume == owner->id)
					rc = visit(run, owner, keys[j]);
			if (rc != 0)
				return rc;
		} while (cursor != 0);
	}
	return 0;
}

static int doubt(
	struct map_run *run, const struct map_enumeration_owner *owner, struct xseg_key key)
{
	run->sweep->objects += run->reached.slice == 0;
	if (is_held(run, owner) || !is_settled(owner, key) || map_mark_has(&run->reached, key))
		return 0;
	int rc = map_mark_set(&run->doubtful, key);
	return rc < 0 ? rc : 0;
}

static int delete_object(struct map_run *run, struct xseg_key key)
{
	uint64_t bytes = 0;
	int rc = run->store->allocated(run->store, key, &bytes);
	if (rc == 0)
		rc = run->store->discard(run->store, key);
	if (rc != 0)
		return rc;
	run->sweep->deleted++;
	run->sweep->bytes_freed += bytes;
	return 0;
}

static uint32_t object_of(struct xseg_key key)
{
	return key.epoch & MAP_EPOCH_MAP ? 0 : key.object;
}

/* Those that the second pass has not reached, either. */
static int sweep_doubtful(struct map_run *run)
{
	size_t cell = 0;
	unsigned bit = 0;
	struct xseg_key key;
	while (map_mark_next(&run->doubtful, &cell, &bit, &key)) {
		const struct map_enumeration_owner *owner =
			map_enumeration_owner_find(&run->enumeration, key.volume);
		must(owner);
		if (is_held(run, owner) || map_mark_has(&run->reached, key))
			continue;
		int rc = run->sweep->repair ? delete_object(run, key) : 0;
		if (rc != 0)
			return rc;
		run->sweep->unreachable++;
		struct map_report report = {.finding = MAP_FOUND_UNREACHABLE,
			.volume = key.volume,
			.key = key,
			.object = object_of(key),
			.repaired = run->sweep->repair};
		map_sweep_report(run, &report);
	}
	return 0;
}

static int sweep_slice(struct map_run *run, unsigned slice, unsigned slices)
{
	map_mark_begin(&run->doubtful, slice, slices);
	int rc = pass(run, 1, slice, slices);
	if (rc == 0)
		rc = map_sweep_list(run, doubt);
	if (rc != 0 || run->doubtful.objects == 0)
		return rc;
	run->sweep->settles++;
	rc = pass(run, 2, slice, slices);
	return rc != 0 ? rc : sweep_doubtful(run);
}

/* --- a run ------------------------------------------------------------------------------------ */

/*
 * What does not fit is done as two: the hashes of a slice are those of two slices of twice as many.
 * What was counted of it before it did not fit is not.
 */
static int in_slices(struct map_run *run,
	int (*work)(struct map_run *run, unsigned slice, unsigned slices), unsigned slice,
	unsigned slices)
{
	struct map_sweep *sweep = run->sweep;
	uint64_t pages = sweep->pages, objects = sweep->objects, marked = sweep->marked;
	int rc = work(run, slice, slices);
	if (rc != -E2BIG || slices == SLICES_MAX)
		return rc;
	sweep->pages = pages;
	sweep->objects = objects;
	sweep->marked = marked;
	rc = in_slices(run, work, slice, 2 * slices);
	return rc != 0 ? rc : in_slices(run, work, slice + slices, 2 * slices);
}

/* Records of which nothing, or not all, can be read, and why nothing goes for their sake. */
static void tell_records(struct map_run *run)
{
	for (size_t i = 0; i < run->enumeration.volume_count; i++) {
		const struct map_enumeration_volume *volume = &run->enumeration.volumes[i];
		bool bad = volume->error == -EILSEQ || volume->error == -EPROTO;
		if (bad || volume->halved)
			map_sweep_progress(run, bad ? MAP_FOUND_BAD_RECORD : MAP_FOUND_HALF_RECORD,
				volume->id, map_volume_key(volume->id, 0), 0);
	}
}

static int run_batches(struct map_run *run)
{
	const struct map_enumeration_volume *only =
		map_enumeration_volume_find(&run->enumeration, run->sweep->volume);
	if (run->sweep->volume != 0 && (!only || only->error == -ENOENT))
		return -ENOENT;
	int rc = run->sweep->explain ? map_fsck_records(run) : 0;
	for (run->batch = 0; rc == 0 && run->batch < run->enumeration.batches; run->batch++) {
		if (run->sweep->explain &&
			(!only || map_enumeration_has(&run->enumeration, only, run->batch)))
			rc = in_slices(run, map_fsck_map_all, 0, 1);
		/* what one volume does not reach, another one may */
		if (rc == 0 && !only)
			rc = in_slices(run, sweep_slice, 0, 1);
		if (rc == -EBUSY) {
			run->busy = true;
			rc = 0;
		}
	}
	tell_records(run);
	return rc != 0 ? rc : run->busy ? -EBUSY : 0;
}

static int call_pace(void *context)
{
	struct map_sweep *sweep = context;
	return sweep->pace ? sweep->pace(sweep) : 0;
}

static void begin(struct map_run *run, struct map_store *store, struct map_sweep *sweep)
{
	uint64_t memory = (sweep->memory ? sweep->memory : MEMORY) / 3;
	map_pace_init(&run->pace, store, sweep->pace_every ? sweep->pace_every : PACE_EVERY);
	run->pace.hook = call_pace;
	run->pace.context = sweep;
	run->store = &run->pace.store;
	map_mark_init(&run->reached, memory);
	map_mark_init(&run->walked, memory);
	map_mark_init(&run->doubtful, memory);
	sweep->volumes = sweep->pages = sweep->objects = sweep->marked = 0;
	sweep->unreachable = sweep->deleted = sweep->bytes_freed = 0;
	sweep->pass = sweep->passes = sweep->settles = 0;
	for (unsigned i = 0; i < MAP_FINDINGS; i++)
		sweep->found[i] = 0;
}

int map_sweep_run(struct map_store *store, struct map_sweep *sweep)
{
	struct map_run run = {.sweep = sweep};
	begin(&run, store, sweep);
	int rc = map_enumeration_load(&run.enumeration, run.store);
	sweep->volumes = run.enumeration.volume_count;
	if (rc == 0) {
		map_enumeration_divide(&run.enumeration, sweep->batch);
		rc = run_batches(&run);
	}
	map_enumeration_fini(&run.enumeration);
	map_mark_fini(&run.reached);
	map_mark_fini(&run.walked);
	map_mark_fini(&run.doubtful);
	return run.pace.ended != 0 ? run.pace.ended : rc;
}
