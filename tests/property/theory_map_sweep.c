/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Laws of the sweep: whatever volumes go through before it and while it is at work, cut off
 * anywhere or not, and whoever else is killed, said again or never, they read the same; and when
 * all is quiet, two sweeps leave what a walk over every map reaches, object by object, and nothing
 * else. Sweeps that are lied to are caught.
 */
#include <criterion/criterion.h>
#include <criterion/theories.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "peers/map/map_sweep.h"
#include "tests/lib/fixture.h"
#include "tests/property/map_model.h"

#define ROUNDS 12u
#define STEPS 14u /* in a round, and a sweep */
#define KEYS 8192u

enum lie {
	LIE_NONE,
	LIE_PARENTS, /* no object is below a partial one */
	LIE_EPOCHS,  /* nothing is being made */
	LIE_ROOTS,   /* there are no snapshots */
	LIES
};

struct world {
	struct map_store truth; /* the store's own answers */
	struct model model;
	struct map_memory *memory;
	struct map_sweep sweep;
	uint64_t random;
	enum lie lie;
	bool broken;	     /* what should be done could not be */
	unsigned busy, stop; /* of 64 calls of pace(): that somebody does something, that it ends */
	bool pending;	     /* written to the store, the map not told */
	struct model_op write;
	uint32_t epoch;
	uint64_t others; /* what others did meanwhile */
	uint64_t kills;	 /* in the middle of what they did */
	uint64_t halves; /* that are left so */
	bool sweeping;
};

static unsigned any(struct world *w, unsigned below)
{
	return (unsigned)(random_next(&w->random) % below);
}

/* --- what to do next -------------------------------------------------------------------------- */

static uint64_t any_volume(struct world *w, uint64_t parent)
{
	uint64_t found = 0;
	unsigned seen = 0;
	for (unsigned i = 0; i < MODEL_VOLUMES; i++) {
		const struct model_volume *volume = &w->model.volumes[i];
		bool fits = volume->there && (parent == 0 || volume->parent == parent);
		if (fits && any(w, ++seen) == 0)
			found = volume->id;
	}
	return found;
}

static struct model_op any_op(struct world *w)
{
	static const uint8_t kinds[] = {MODEL_WRITE, MODEL_WRITE, MODEL_WRITE, MODEL_WRITE,
		MODEL_WRITE, MODEL_ZERO, MODEL_HOLE, MODEL_FLATTEN, MODEL_CREATE, MODEL_SNAPSHOT,
		MODEL_SNAPSHOT, MODEL_CLONE, MODEL_CLONE, MODEL_ROLLBACK, MODEL_ROLLBACK,
		MODEL_RESIZE, MODEL_RENAME, MODEL_REMOVE, MODEL_REMOVE, MODEL_REMOVE, MODEL_EPOCH,
		MODEL_CLEANUP, MODEL_DETACH};
	struct model_op op = {.kind = kinds[any(w, countof(kinds))]};
	bool makes = op.kind == MODEL_CREATE || op.kind == MODEL_SNAPSHOT || op.kind == MODEL_CLONE;
	if (makes && model_count(&w->model) + 2 > MODEL_VOLUMES)
		op.kind = MODEL_REMOVE;
	if (w->lie != LIE_NONE && op.kind == MODEL_DETACH)
		op.kind = MODEL_WRITE; /* it looks at maps that may be no more */
	if (model_count(&w->model) == 0)
		op.kind = MODEL_CREATE;
	op.id = any_volume(w, 0);
	op.name = any(w, MODEL_NAMES);
	op.object = any(w, MODEL_OBJECTS);
	op.mask = any(w, 4) == 0 ? 15 : 1 + any(w, 15);
	op.size = op.kind == MODEL_CLONE && any(w, 2) ? 0 : model_size(any(w, MODEL_SIZES));
	op.flag = any(w, 2);
	if (op.kind == MODEL_CREATE || op.kind == MODEL_RESIZE)
		op.size = model_size(MODEL_SIZES - 1 - any(w, 3));
	if (op.kind == MODEL_WRITE)
		op.token = w->model.next_token++;
	if (op.kind == MODEL_ROLLBACK)
		op.other = any_volume(w, op.id);
	if (op.kind == MODEL_CREATE || op.kind == MODEL_SNAPSHOT || op.kind == MODEL_CLONE)
		op.other = w->model.next_id++;
	return op;
}

/* --- a composer that has not told the map yet ------------------------------------------------- */

static void tell(struct world *w)
{
	struct map_delta deltas = {.object = model_object(w->write.object), .epoch = w->epoch};
	struct map_head head;
	if (!w->pending)
		return;
	w->pending = false;
	if (map_update(&w->memory->store, w->write.id, &deltas, 1, &head) == 0 &&
		model_apply(&w->model, &w->write) != 0)
		w->broken = true;
}

/* Only objects that are to get a new name: what is written in place is seen at once. */
static void write_untold(struct world *w)
{
	struct map_store *store = &w->memory->store;
	struct model_op op = {.kind = MODEL_WRITE, .mask = 15, .id = any_volume(w, 0)};
	struct map_head head;
	struct map_entry entry;
	uint32_t sector[XSEG_SECTOR / sizeof(uint32_t)];
	op.object = any(w, MODEL_OBJECTS);
	uint32_t object = model_object(op.object);
	const struct model_volume *volume = model_find(&w->model, op.id);
	if (w->pending || !volume || volume->snapshot || object >= volume->size)
		return;
	must(map_record_open(store, op.id, &head) == 0);
	w->broken = map_tree_entry(store, &head.volume, object, &entry) != 0;
	if (w->broken)
		return;
	if (!map_entry_is_hole(entry) && entry.owner == head.volume.self &&
		entry.epoch > head.volume.frozen)
		return;
	op.token = w->model.next_token++;
	struct model after = w->model;
	must(model_apply(&after, &op) == 0);
	const uint32_t *data = model_find(&after, op.id)->data[op.object];
	for (unsigned i = 0; i < MODEL_CLUSTERS; i++) {
		for (unsigned j = 0; j < countof(sector); j++)
			sector[j] = data[i];
		struct xseg_key key = {op.id, head.volume.epoch, object};
		must(store->write(store, key, i * MAP_CLUSTER, sector, sizeof(sector)) == 0);
	}
	must(store->flush(store, op.id) == 0);
	w->write = op;
	w->epoch = head.volume.epoch;
	w->pending = true;
}

static int raise_epoch(void *context, uint64_t id, int error, const struct map_head *head)
{
	struct world *w = context;
	struct map_head now;
	must(error == 0);
	if (!(head->volume.flags & MAP_SNAPSHOT) && head->volume.state == XSEG_VOLUME_READY)
		must(map_change_epoch(&w->memory->store, id, false, &now) == 0);
	return 0;
}

/* Somebody is killed in the middle, or the host loses its power; the next one says it again, or
   nobody ever does. */
static void do_killed(struct world *w, const struct model_op *op)
{
	struct map_memory *memory = w->memory;
	struct model after = w->model;
	int expected = model_apply(&after, op);
	bool lost = !w->sweeping && any(w, 2);
	map_memory_heal(memory);
	memory->cut_after = 1 + any(w, 8);
	int rc = model_run(&memory->store, op, false);
	bool killed = memory->cut;
	if (killed && lost) {
		map_memory_lose(memory, any(w, 3));
		must(map_record_each(&memory->store, raise_epoch, w) ==
			0); /* all are opened anew */
	} else {
		map_memory_heal(memory);
	}
	w->kills += killed;
	if (killed && any(w, 2)) {
		w->halves++;
		w->broken |= !model_abandon(memory, &w->model, op);
		return;
	}
	if (killed)
		rc = model_run(&memory->store, op, lost || op->kind != MODEL_WRITE);
	w->model = after;
	w->broken |= rc != expected || !model_match(memory, &w->model, NULL, true);
}

static void do_something(struct world *w)
{
	struct model_op op = any_op(w);
	if (op.id == w->write.id) /* nothing is on its way when a volume is copied */
		tell(w);
	if (op.kind == MODEL_DETACH)
		op.flag = model_find(&w->model, op.id) && model_is_flat(&w->memory->store, op.id);
	if (w->lie == LIE_NONE && !w->pending && any(w, 3) == 0)
		do_killed(w, &op);
	else if (model_run(&w->memory->store, &op, any(w, 3) == 0) != model_apply(&w->model, &op))
		w->broken = true;
	if (!w->broken && any(w, 3) == 0)
		write_untold(w);
}

/* --- lies ------------------------------------------------------------------------------------- */

static const struct world *world_of(struct map_store *store)
{
	return ((struct map_memory *)store)->context;
}

static int lie_read(
	struct map_store *store, struct xseg_key key, uint32_t offset, void *to, uint32_t length)
{
	const struct world *w = world_of(store);
	struct map_bitmap bitmap;
	int rc = w->truth.read(store, key, offset, to, length);
	if (w->lie != LIE_PARENTS || !(key.epoch & MAP_EPOCH_MAP) || key.object < MAP_NUMBER_BITMAP)
		return rc;
	for (uint32_t at = 0; at < length; at += MAP_BITMAP_SIZE) {
		uint8_t *bytes = (uint8_t *)to + at;
		if (map_format_bitmap_decode(bytes, &bitmap) != 0)
			continue;
		bitmap.parent_owner = bitmap.owner;
		bitmap.parent_epoch = bitmap.epoch;
		bitmap.parent_flags = 0;
		map_format_bitmap_encode(&bitmap, bytes);
	}
	return rc;
}

static int lie_get(struct map_store *store, struct xseg_key key, uint8_t to[XSEG_RECORD_MAX],
	uint64_t *version)
{
	const struct world *w = world_of(store);
	struct map_volume volume;
	int rc = w->truth.get(store, key, to, version);
	if (rc < 0 || w->lie < LIE_EPOCHS || map_format_volume_decode(to, (size_t)rc, &volume) != 0)
		return rc;
	if (w->lie == LIE_ROOTS && volume.flags & MAP_SNAPSHOT)
		return -ENOENT;
	volume.epoch += w->lie == LIE_EPOCHS ? 1000 : 0;
	map_format_volume_encode(&volume, to);
	return rc;
}

/* --- sweeps ----------------------------------------------------------------------------------- */

static int on_pace(struct map_sweep *sweep)
{
	struct world *w = sweep->context;
	if (any(w, 64) < w->busy) {
		do_something(w);
		w->others++;
	}
	return any(w, 64) < w->stop && any(w, 8) == 0 ? -EINTR : 0;
}

static int sweep_once(struct world *w, bool explain)
{
	w->sweep = (struct map_sweep){.repair = !explain,
		.batch = any(w, 2), /* small ones, or one of all */
		.explain = explain,
		.pace = on_pace,
		.pace_every = 1 + any(w, 6),
		.memory = any(w, 2),
		.context = w};
	w->memory->context = w;
	w->truth = w->memory->store;
	if (w->lie != LIE_NONE) {
		w->memory->store.read = lie_read;
		w->memory->store.get = lie_get;
	}
	w->sweeping = true;
	int rc = map_sweep_run(&w->memory->store, &w->sweep);
	w->sweeping = false;
	w->memory->store = w->truth;
	must(rc == 0 || rc == -EINTR || rc == -EBUSY);
	return rc;
}

static bool reads_right(struct world *w)
{
	return model_match(w->memory, &w->model, NULL, w->lie == LIE_NONE);
}

/* --- what is reached, the long way ------------------------------------------------------------ */

struct reach {
	struct world *w;
	const struct map_volume *volume;
	struct xseg_key keys[KEYS];
	unsigned count;
};

static int compare_keys(const void *a, const void *b)
{
	return memcmp(a, b, sizeof(struct xseg_key));
}

static void reach_key(struct reach *reach, struct xseg_key key)
{
	must(reach->count < KEYS);
	reach->keys[reach->count++] = key;
}

static int reach_page(struct map_walk *walk, struct xseg_key key)
{
	reach_key(walk->context, key);
	return 0;
}

static int reach_entry(struct map_walk *walk, uint32_t object, struct map_entry entry)
{
	struct reach *reach = walk->context;
	struct map_store *store = &reach->w->memory->store;
	if (entry.flags & MAP_ZERO)
		return 0;
	struct map_bitmap at = {.parent_owner = reach->volume->owners[entry.owner],
		.parent_epoch = entry.epoch,
		.parent_flags = entry.flags};
	reach_key(reach, (struct xseg_key){at.parent_owner, at.parent_epoch, object});
	while (at.parent_flags & MAP_PARTIAL) {
		reach_key(reach, map_bitmap_key(at.parent_owner, at.parent_epoch, object));
		must(map_bitmap_read(store, at.parent_owner, at.parent_epoch, object, &at) == 0);
		reach_key(reach, (struct xseg_key){at.parent_owner, at.parent_epoch, object});
	}
	return 0;
}

static int reach_volume(void *context, uint64_t id, int error, const struct map_head *head)
{
	struct reach *reach = context;
	struct map_walk walk = {.visit = reach_entry, .page = reach_page, .context = reach};
	(void)id;
	must(error == 0);
	reach->volume = &head->volume;
	must(map_tree_walk(&reach->w->memory->store, &head->volume, 0, &walk) == 0);
	return 0;
}

static bool is_exact(struct world *w, const struct reach *reach, unsigned there)
{
	struct map_store *store = &w->memory->store;
	unsigned left = 0;
	for (uint64_t id = MODEL_ID; id < w->model.next_id; id++) {
		struct xseg_key keys[64];
		uint64_t cursor = 0;
		do {
			int count = store->list(store, id, &cursor, keys, 64);
			must(count >= 0);
			left += (unsigned)count;
			for (int i = 0; i < count; i++)
				if (!bsearch(&keys[i], reach->keys, reach->count, sizeof(*keys),
					    compare_keys))
					return false; /* left over */
		} while (cursor != 0);
	}
	return left == there; /* else lost */
}

/* Nobody does anything any more, and nobody is in the middle of anything. */
static void settle(struct world *w)
{
	static struct reach reach;
	unsigned there = 0;
	uint64_t deleted;
	w->busy = w->stop = 0;
	tell(w);
	must(map_cleanup(&w->memory->store, MODEL_CREATED_NS + 1, &deleted) == 0);
	must(model_apply(&w->model, &(struct model_op){.kind = MODEL_CLEANUP}) == 0);
	must(map_record_each(&w->memory->store, raise_epoch, w) == 0);
	memset(&reach, 0, sizeof(reach));
	reach.w = w;
	must(map_record_each(&w->memory->store, reach_volume, &reach) == 0);
	qsort(reach.keys, reach.count, sizeof(reach.keys[0]), compare_keys);
	for (unsigned i = 0; i < reach.count; i++)
		if (i == 0 || compare_keys(&reach.keys[i - 1], &reach.keys[i]) != 0)
			there += map_memory_exists(w->memory, reach.keys[i]);
	for (unsigned i = 0; i < 2; i++)
		cr_assert_eq(sweep_once(w, false), 0);
	cr_assert(is_exact(w, &reach, there));
	cr_assert(reads_right(w));
	cr_assert_eq(sweep_once(w, true), 0);
	for (unsigned i = 0; i < MAP_FINDINGS; i++)
		cr_assert_eq(w->sweep.found[i], 0, "%s", map_fsck_finding_name(i));
}

/* False: something reads as it should not. */
static bool play(struct world *w, unsigned seed, enum lie lie)
{
	model_init(&w->model);
	w->memory = map_memory_create();
	w->random = seed * 7919u + 1;
	w->lie = lie;
	w->pending = w->broken = false;
	w->others = w->kills = w->halves = 0;
	bool right = true;
	for (unsigned round = 0; round < ROUNDS && right; round++) {
		for (unsigned i = 0; i < STEPS && !w->broken; i++)
			do_something(w);
		w->busy = any(w, 3) == 0 ? 0 : 8 + any(w, 40);
		w->stop = any(w, 3) == 0;
		/* one that is lied to is watched at rest, lest the liar's own mistakes count */
		if (lie != LIE_NONE)
			w->busy = 0;
		sweep_once(w, false);
		tell(w);
		right = !w->broken && reads_right(w);
	}
	return right;
}

TheoryDataPoints(map_sweep, nothing_lost_nothing_left) = {
	DataPoints(unsigned, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16),
};

Theory((unsigned seed), map_sweep, nothing_lost_nothing_left)
{
	static struct world w;
	cr_assert(play(&w, seed, LIE_NONE), "seed %u", seed);
	cr_assert_gt(w.others, 20);
	cr_assert_gt(w.kills, 5);
	cr_assert_gt(w.halves, 2);
	settle(&w);
	map_memory_destroy(w.memory);
}

/* Controls: of each lie, some world must tell. */
TheoryDataPoints(map_sweep, lies_are_caught) = {
	DataPoints(unsigned, LIE_PARENTS, LIE_EPOCHS, LIE_ROOTS),
};

Theory((unsigned lie), map_sweep, lies_are_caught)
{
	static struct world w;
	bool caught = false;
	for (unsigned seed = 1; seed <= 20 && !caught; seed++) {
		caught = !play(&w, seed, lie);
		map_memory_destroy(w.memory);
	}
	cr_assert(caught);
}
