/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A volume's tree, changed, frozen, cloned, rolled back and resized at random, is the same as a
 * flat table, and so is all that was ever frozen of it, however often it is cut off.
 *
 * Each step is first done as a whole, then cut off at each of its mutations in a copy of the store:
 * by a kill, by a loss of power that takes all that was not flushed, and by one that takes some of
 * it. What is read then is the old tree; said again, the step makes the new one. The next step goes
 * on in one of those copies, among what the cuts have left over.
 */
#include <base/must.h>
#include <criterion/criterion.h>
#include <criterion/theories.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "peers/map/map_tree.h"
#include "tests/lib/map_memory.h"

#define OBJECT 4096u
#define PLACES 48 /* objects that are ever used; all others must be holes */
#define FROZEN 4
#define STEPS 36

struct model {
	uint64_t objects; /* the volume's size */
	struct map_entry entries[PLACES];
};

/* A volume as it was, and what it must read for ever. */
struct frozen {
	struct map_volume volume;
	struct model model;
};

struct world {
	uint64_t random;
	uint64_t objects_max;
	uint64_t next_id;
	uint32_t places[PLACES]; /* in order, each once */
	struct map_memory *memory;
	struct map_head head;
	struct model model;
	struct frozen frozen[FROZEN];
	unsigned frozen_count;
};

enum kind { UPDATE, FREEZE, REOPEN, RESIZE, CLONE, ROLLBACK, KINDS };

struct step {
	enum kind kind;
	struct map_change changes[PLACES];
	size_t count;
	uint64_t objects;   /* RESIZE */
	struct frozen from; /* CLONE, ROLLBACK */
	uint64_t id;	    /* CLONE */
};

static uint64_t any(struct world *w, uint64_t n)
{
	w->random ^= w->random << 13;
	w->random ^= w->random >> 7;
	w->random ^= w->random << 17;
	return (w->random >> 11) % n;
}

/* --- is it the same? ---------------------------------------------------------------------- */

struct check {
	const struct world *world;
	const struct model *model;
	unsigned next; /* place */
	unsigned found;
	uint32_t damaged_first, damaged_count;
};

static int place_of(const struct world *w, uint32_t object)
{
	for (unsigned i = 0; i < PLACES; i++)
		if (w->places[i] == object)
			return (int)i;
	return -1;
}

static int check_visit(struct map_walk *walk, uint32_t object, struct map_entry entry)
{
	struct check *check = walk->context;
	int place = place_of(check->world, object);
	cr_assert(place >= (int)check->next, "object %u out of order, or never written", object);
	cr_assert(map_format_entry_same(entry, check->model->entries[place]));
	check->next = (unsigned)place + 1;
	check->found++;
	return 0;
}

static int check_damaged(struct map_walk *walk, struct xseg_key key, uint32_t first, uint32_t count)
{
	struct check *check = walk->context;
	(void)key;
	cr_assert_eq(check->damaged_count, 0);
	check->damaged_first = first;
	check->damaged_count = count;
	return 0;
}

static unsigned count_entries(
	const struct world *w, const struct model *model, uint64_t first, uint64_t count)
{
	unsigned found = 0;
	for (unsigned i = 0; i < PLACES; i++)
		found += !map_entry_is_hole(model->entries[i]) && w->places[i] >= first &&
			 w->places[i] - first < count;
	return found;
}

static void check_tree(struct world *w, struct map_memory *memory, const struct map_volume *volume,
	const struct model *model)
{
	struct check check = {.world = w, .model = model};
	struct map_walk walk = {.visit = check_visit, .context = &check};
	unsigned expected = count_entries(w, model, 0, UINT64_MAX), counted = 0;
	cr_assert_eq(map_objects(volume), model->objects);
	cr_assert_eq(map_format_volume_check(volume), 0);
	cr_assert_eq(map_tree_walk(&memory->store, volume, 0, &walk), 0);
	cr_assert_eq(check.found, expected);
	for (unsigned i = 0; i < MAP_TOP_REFS; i++)
		counted += volume->top[i].count;
	cr_assert_eq(counted, expected);
	unsigned place = (unsigned)any(w, PLACES);
	struct map_entry entry;
	cr_assert_eq(map_tree_entry(&memory->store, volume, w->places[place], &entry), 0);
	cr_assert(map_format_entry_same(entry, model->entries[place]));
}

/* The volume as the store has it, and all that was frozen. */
static void check_all(struct world *w, struct map_memory *memory, uint64_t id,
	const struct model *model, struct map_head *head)
{
	cr_assert_eq(map_head_read(&memory->store, id, head, NULL), 0);
	check_tree(w, memory, &head->volume, model);
	for (unsigned i = 0; i < w->frozen_count; i++)
		check_tree(w, memory, &w->frozen[i].volume, &w->frozen[i].model);
}

struct difference {
	const struct world *world;
	bool expected[PLACES];
};

static int check_differs(
	void *context, uint32_t object, struct map_entry before, struct map_entry after)
{
	struct difference *difference = context;
	int place = place_of(difference->world, object);
	(void)before;
	(void)after;
	cr_assert(place >= 0 && difference->expected[place]);
	difference->expected[place] = false;
	return 0;
}

static bool same_object(const struct map_volume *a, struct map_entry x, const struct map_volume *b,
	struct map_entry y)
{
	return x.epoch == y.epoch && x.flags == y.flags &&
	       (x.epoch == 0 || a->owners[x.owner] == b->owners[y.owner]);
}

static void check_diff(struct world *w, const struct frozen *frozen)
{
	struct difference difference = {.world = w};
	unsigned from = (unsigned)any(w, PLACES);
	for (unsigned i = from; i < PLACES; i++)
		difference.expected[i] = !same_object(&frozen->volume, frozen->model.entries[i],
			&w->head.volume, w->model.entries[i]);
	cr_assert_eq(map_diff_trees(&w->memory->store, &frozen->volume, &w->head.volume,
			     w->places[from], check_differs, &difference),
		0);
	for (unsigned i = 0; i < PLACES; i++)
		cr_assert(!difference.expected[i]);
}

/* --- steps -------------------------------------------------------------------------------- */

static void step_update(struct world *w, struct step *step)
{
	const struct map_volume *volume = &w->head.volume;
	unsigned most = any(w, 4) == 0 ? PLACES : 6;
	for (unsigned i = 0, n = 1 + (unsigned)any(w, most); i < n; i++) {
		uint32_t object = w->places[any(w, PLACES)];
		struct map_entry entry = {.epoch = volume->epoch, .owner = volume->self};
		unsigned what = (unsigned)any(w, 6);
		if (what == 0)
			entry = (struct map_entry){0};
		else if (what <= 2)
			entry.flags = what == 1 ? MAP_PARTIAL : MAP_ZERO;
		if (object < w->model.objects)
			step->changes[step->count++] = (struct map_change){object, entry};
	}
}

static uint64_t draw_objects(struct world *w)
{
	uint64_t place = w->places[any(w, PLACES)] + any(w, 2);
	return any(w, 3) == 0	? any(w, w->objects_max + 1)
	       : any(w, 3) == 0 ? w->objects_max
				: (place < w->objects_max ? place : w->objects_max);
}

static struct step draw_step(struct world *w)
{
	static const enum kind kinds[] = {UPDATE, UPDATE, UPDATE, UPDATE, UPDATE, UPDATE, FREEZE,
		FREEZE, REOPEN, RESIZE, CLONE, ROLLBACK};
	struct step step = {.kind = kinds[any(w, 12)]};
	if (w->frozen_count > 0)
		step.from = w->frozen[any(w, w->frozen_count)];
	else if (step.kind >= CLONE)
		step.kind = FREEZE;
	/* to what was the volume's own, or its parent's, before it was a clone */
	if (step.kind == ROLLBACK && step.from.volume.owner_count > w->head.volume.owner_count)
		step.kind = REOPEN;
	if (step.kind == ROLLBACK && memcmp(step.from.volume.owners, w->head.volume.owners,
					     step.from.volume.owner_count * sizeof(uint64_t)) != 0)
		step.kind = REOPEN;
	if (step.kind == UPDATE)
		step_update(w, &step);
	step.objects = draw_objects(w);
	step.id = step.kind == CLONE ? w->next_id++ : w->head.volume.id;
	return step;
}

/* As map_create.c does it: a copy with an owner of its own. */
static struct map_head clone_of(const struct step *step)
{
	struct map_head head = {.volume = step->from.volume};
	head.volume.id = step->id;
	head.volume.flags = 0;
	head.volume.generation = 0;
	head.volume.self = head.volume.owner_count++;
	head.volume.owners[head.volume.self] = step->id;
	head.volume.epoch = 1;
	head.volume.frozen = 0;
	return head;
}

static int do_step(struct map_store *store, struct map_head *head, const struct step *step)
{
	struct map_volume *volume = &head->volume;
	int rc = 0;
	switch (step->kind) {
	case UPDATE: return map_tree_update(store, head, step->changes, step->count);
	case FREEZE: volume->frozen = volume->epoch++; break;
	case REOPEN: volume->epoch++; break;
	case RESIZE: rc = map_tree_resize(store, head, step->objects * OBJECT); break;
	case CLONE: *head = clone_of(step); break;
	default:
		volume->size = step->from.volume.size;
		volume->depth = step->from.volume.depth;
		memcpy(volume->top, step->from.volume.top, sizeof(volume->top));
		volume->frozen = volume->epoch;
	}
	if (rc != 0)
		return rc;
	if (step->kind == RESIZE || step->kind == ROLLBACK)
		volume->epoch++;
	return map_head_put(store, head);
}

static struct model model_after(const struct world *w, const struct step *step)
{
	struct model model = w->model;
	if (step->kind == CLONE || step->kind == ROLLBACK)
		return step->from.model;
	if (step->kind == UPDATE)
		for (size_t i = 0; i < step->count; i++)
			model.entries[place_of(w, step->changes[i].object)] =
				step->changes[i].entry;
	if (step->kind == RESIZE) {
		model.objects = step->objects;
		for (unsigned i = 0; i < PLACES; i++)
			if (w->places[i] >= model.objects)
				model.entries[i] = (struct map_entry){0};
	}
	return model;
}

static void freeze(struct world *w, const struct map_volume *volume)
{
	unsigned at = w->frozen_count < FROZEN ? w->frozen_count++ : (unsigned)any(w, FROZEN);
	w->frozen[at] = (struct frozen){*volume, w->model};
}

/* --- cuts --------------------------------------------------------------------------------- */

enum loss { KILLED, ALL_LOST, SOME_LOST, ANSWER_LOST, LOSSES };

/* The step, cut off at that mutation, and said again. Returns the store after it. */
static struct map_memory *cut_at(struct world *w, const struct step *step, uint64_t mutation,
	enum loss loss, uint64_t mutations)
{
	struct map_memory *memory = map_memory_copy(w->memory);
	struct map_head head = w->head;
	struct model after = model_after(w, step);
	bool done = loss == ANSWER_LOST && mutation == mutations;
	if (loss == ANSWER_LOST) {
		memory->fail_at = mutation;
		memory->fail_done = true;
	} else {
		memory->cut_after = mutation;
	}
	cr_assert_eq(do_step(&memory->store, &head, step), -EIO);
	if (loss == KILLED)
		map_memory_heal(memory);
	else
		map_memory_lose(memory, loss == ALL_LOST ? 0 : 1 + any(w, 1u << 30));
	check_all(w, memory, done ? step->id : w->head.volume.id, done ? &after : &w->model, &head);
	if (!done)
		cr_assert_eq(do_step(&memory->store, &head, step), 0);
	check_all(w, memory, step->id, &after, &head);
	return memory;
}

/* One of the two records is damaged: the other one counts, and its tree is whole. */
static void spoil_record(struct world *w, uint64_t id, const struct model *old)
{
	struct map_memory *memory = map_memory_copy(w->memory);
	struct map_head head;
	unsigned half = w->head.volume.generation % 2;
	uint32_t at = (uint32_t)any(w, MAP_RECORD_SIZE);
	bool young = w->head.volume.generation == 1 || any(w, 2) == 0;
	if (id == w->head.volume.id) {
		map_memory_corrupt(memory, map_volume_key(id, young ? half : !half), at, 0x20);
		check_all(w, memory, id, young ? old : &w->model, &head);
		cr_assert_eq(map_head_put(&memory->store, &head), 0);
		check_all(w, memory, id, young ? old : &w->model, &head);
	}
	map_memory_destroy(memory);
}

static bool same_head(const struct map_head *a, const struct map_head *b)
{
	uint8_t x[MAP_RECORD_SIZE], y[MAP_RECORD_SIZE];
	map_format_volume_encode(&a->volume, x);
	map_format_volume_encode(&b->volume, y);
	return memcmp(x, y, sizeof(x)) == 0 && a->version[0] == b->version[0] &&
	       a->version[1] == b->version[1];
}

static void step(struct world *w)
{
	struct step step = draw_step(w);
	struct map_memory *whole = map_memory_copy(w->memory), *kept;
	struct map_head head = w->head;
	struct model after = model_after(w, &step), before = w->model;
	uint64_t id = w->head.volume.id;
	cr_assert_eq(do_step(&whole->store, &head, &step), 0);
	uint64_t mutations = whole->mutations;
	map_memory_lose(whole, 0); /* what is acknowledged is durable */
	struct map_head read;
	check_all(w, whole, step.id, &after, &read);
	cr_assert(same_head(&read, &head));
	kept = whole;
	for (uint64_t i = 1; i <= mutations; i++)
		for (enum loss loss = KILLED; loss < LOSSES; loss++) {
			struct map_memory *cut = cut_at(w, &step, i, loss, mutations);
			bool keep = any(w, 4) == 0;
			map_memory_destroy(keep ? kept : cut);
			kept = keep ? cut : kept;
		}
	if (step.kind == FREEZE || step.kind == CLONE)
		freeze(w, &w->head.volume);
	map_memory_destroy(w->memory);
	w->memory = kept;
	w->model = after;
	cr_assert_eq(map_head_read(&w->memory->store, step.id, &w->head, NULL), 0);
	if (mutations > 0)
		spoil_record(w, id, &before);
}

/* --- damage ------------------------------------------------------------------------------- */

/* A page of the map is damaged: found, and nothing but what it leads to is lost. */
static void spoil_page(struct world *w)
{
	const struct map_volume *volume = &w->head.volume;
	struct map_ref refs[MAP_DIRECTORY_REFS];
	for (unsigned i = 0; i < PLACES; i++) {
		uint32_t page = w->places[i] / MAP_ENTRIES, number = page / MAP_DIRECTORY_REFS;
		bool whole = volume->depth == 2 && any(w, 3) == 0;
		cr_assert_eq(map_tree_directory(&w->memory->store, volume, number, refs), 0);
		struct map_ref ref = whole ? volume->top[number] : refs[page % MAP_DIRECTORY_REFS];
		if (map_ref_is_hole(ref))
			continue;
		struct map_memory *memory = map_memory_copy(w->memory);
		uint64_t owner = volume->owners[ref.owner];
		uint32_t count = whole ? MAP_ENTRIES * MAP_DIRECTORY_REFS : MAP_ENTRIES;
		map_memory_corrupt(memory,
			whole ? map_directory_key(owner, ref.epoch, number)
			      : map_page_key(owner, ref.epoch, page),
			ref.half * MAP_PAGE_SIZE + (uint32_t)any(w, MAP_PAGE_SIZE),
			1u << any(w, 8));
		struct check check = {.world = w, .model = &w->model};
		struct map_walk walk = {check_visit, check_damaged, NULL, &check};
		cr_assert_eq(map_tree_walk(&memory->store, volume, 0, &walk), 0);
		cr_assert_eq(check.damaged_count, count);
		cr_assert_eq(check.damaged_first, w->places[i] / count * count);
		cr_assert_eq(check.found,
			count_entries(w, &w->model, 0, UINT64_MAX) -
				count_entries(w, &w->model, check.damaged_first, count));
		struct map_entry entry;
		cr_assert_eq(map_tree_entry(&memory->store, volume, w->places[i], &entry), -EILSEQ);
		map_memory_destroy(memory);
	}
}

/* --- the theory --------------------------------------------------------------------------- */

static int compare(const void *a, const void *b)
{
	const uint32_t *x = a, *y = b;
	return (*x > *y) - (*x < *y);
}

/* Some near one another, some at the ends of pages and directories; never twice the same. */
static void draw_places(struct world *w)
{
	static const uint32_t edges[] = {0, 511, 512, 65535, 65536, 131071, 131072, 262143};
	uint32_t count = 0, near = 0;
	while (count < PLACES) {
		uint64_t object = any(w, 4) == 0 ? edges[any(w, 8)] : near + any(w, 120);
		if (any(w, 8) == 0)
			near = (uint32_t)any(w, w->objects_max);
		if (any(w, 16) == 0)
			object = w->objects_max - 1;
		uint32_t i = 0;
		while (i < count && w->places[i] != object)
			i++;
		if (i == count && object < MAP_OBJECTS_MAX)
			w->places[count++] = (uint32_t)object;
	}
	qsort(w->places, PLACES, sizeof(w->places[0]), compare);
}

static void world_begin(struct world *w)
{
	w->memory = map_memory_create();
	w->next_id = 100;
	w->model.objects = w->objects_max;
	w->head.volume = (struct map_volume){.id = 99,
		.size = w->objects_max * OBJECT,
		.object_size = OBJECT,
		.state = XSEG_VOLUME_READY,
		.epoch = 1,
		.owner_count = 1,
		.depth = w->objects_max > MAP_OBJECTS_FLAT ? 2 : 1,
		.owners = {99},
		.name = "v"};
	draw_places(w);
	cr_assert_eq(map_head_put(&w->memory->store, &w->head), 0);
	cr_assert_eq(map_head_put(&w->memory->store, &w->head), 0);
}

TheoryDataPoints(map_tree, same_as_a_table) = {
	DataPoints(uint32_t, 1, 512, 1000, 65536, 65537, 300000, 16777216), /* objects */
	DataPoints(unsigned, 1, 2),
};

Theory((uint32_t objects, unsigned seed), map_tree, same_as_a_table)
{
	static struct world w;
	memset(&w, 0, sizeof(w));
	w.random = seed * 1000003u + objects;
	w.objects_max = objects;
	world_begin(&w);
	for (unsigned i = 0; i < STEPS; i++) {
		step(&w);
		if (w.frozen_count > 0)
			check_diff(&w, &w.frozen[any(&w, w.frozen_count)]);
		if (i % 10 == 9)
			spoil_page(&w);
	}
	map_memory_destroy(w.memory);
}
