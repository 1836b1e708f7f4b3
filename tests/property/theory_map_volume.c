/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Laws of volumes, snapshots and clones: whatever is done to them does what plain tables say; cut
 * off after any change, with what was not flushed lost or not, it has happened or has not; said
 * again it happens; and of two that race the outcome is that of one after the other.
 */
#include <criterion/criterion.h>
#include <criterion/theories.h>
#include <errno.h>
#include <stdio.h>

#include "tests/lib/fixture.h"
#include "tests/property/map_model.h"

#define STEPS 90u
#define RACES 24u

struct world {
	struct model model;
	struct map_memory *memory;
	uint64_t random;
	unsigned seed, step;
};

static unsigned any(struct world *w, unsigned below)
{
	return (unsigned)(random_next(&w->random) % below);
}

static void world_begin(struct world *w, unsigned seed)
{
	model_init(&w->model);
	w->memory = map_memory_create();
	w->random = seed * 1000003u;
	w->seed = seed;
}

#define law(w, op, cut, cond) \
	cr_assert(cond, "seed %u, step %u, %s, cut %u: %s", (w)->seed, (w)->step, \
		model_kind_name((op)->kind), cut, #cond)

/* --- what to do next -------------------------------------------------------------------------- */

/* One of those that are there, a snapshot or none if that is asked for; now and then any id. */
enum which { ANY, SNAPSHOT, WRITABLE };

static uint64_t any_volume(struct world *w, enum which which)
{
	uint64_t found = 0;
	unsigned seen = 0;
	bool picky = any(w, 8) != 0;
	for (unsigned i = 0; i < MODEL_VOLUMES; i++) {
		const struct model_volume *volume = &w->model.volumes[i];
		bool fits = !picky || which == ANY || volume->snapshot == (which == SNAPSHOT);
		if (volume->there && fits && any(w, ++seen) == 0)
			found = volume->id;
	}
	return found != 0 ? found : MODEL_ID + any(w, (unsigned)(w->model.next_id - MODEL_ID) + 1);
}

/* Mostly one that the volume has. */
static unsigned any_object(struct world *w, uint64_t id)
{
	const struct model_volume *volume = model_find(&w->model, id);
	unsigned object = any(w, MODEL_OBJECTS);
	while (volume && object > 0 && model_object(object) >= volume->size && any(w, 8) != 0)
		object--;
	return object;
}

static uint32_t any_size(struct world *w)
{
	unsigned a = any(w, MODEL_SIZES), b = any(w, MODEL_SIZES);
	return model_size(a > b ? a : b);
}

static enum model_kind any_kind(struct world *w)
{
	static const uint8_t weights[MODEL_KINDS] = {[MODEL_WRITE] = 40,
		[MODEL_ZERO] = 5,
		[MODEL_HOLE] = 5,
		[MODEL_FLATTEN] = 4,
		[MODEL_CREATE] = 8,
		[MODEL_SNAPSHOT] = 14,
		[MODEL_CLONE] = 14,
		[MODEL_ROLLBACK] = 10,
		[MODEL_RESIZE] = 8,
		[MODEL_RENAME] = 6,
		[MODEL_REMOVE] = 14,
		[MODEL_PROTECT] = 6,
		[MODEL_EPOCH] = 3,
		[MODEL_CLEANUP] = 2,
		[MODEL_DETACH] = 8};
	unsigned all = 0, kind = 0;
	for (unsigned i = 0; i < MODEL_KINDS; i++)
		all += weights[i];
	for (unsigned at = any(w, all); at >= weights[kind]; kind++)
		at -= weights[kind];
	return kind;
}

static bool makes(enum model_kind kind)
{
	return kind == MODEL_CREATE || kind == MODEL_SNAPSHOT || kind == MODEL_CLONE;
}

static struct model_op any_op(struct world *w)
{
	struct model_op op = {.kind = any_kind(w)};
	if (model_count(&w->model) + 2 > MODEL_VOLUMES && makes(op.kind))
		op.kind = MODEL_REMOVE;
	if (model_count(&w->model) < 2)
		op.kind = MODEL_CREATE;
	bool any_will_do = op.kind == MODEL_CLONE || op.kind == MODEL_REMOVE ||
			   op.kind == MODEL_RENAME || op.kind == MODEL_PROTECT;
	op.id = any_volume(w, any_will_do ? ANY : WRITABLE);
	op.name = any(w, MODEL_NAMES);
	op.object = any_object(w, op.id);
	op.mask = any(w, 3) == 0 ? 15 : 1 + any(w, 15);
	op.size = op.kind == MODEL_CLONE && any(w, 2) ? 0 : any_size(w);
	op.token = op.kind == MODEL_WRITE ? w->model.next_token++ : 0;
	op.flag = op.kind == MODEL_PROTECT ? any(w, 4) == 0 : any(w, 2);
	if (op.kind == MODEL_ROLLBACK) {
		op.other = any_volume(w, SNAPSHOT);
		const struct model_volume *from = model_find(&w->model, op.other);
		op.id = from && from->parent != 0 && any(w, 8) != 0 ? from->parent : op.id;
	}
	if (makes(op.kind))
		op.other = w->model.next_id++;
	if (op.kind == MODEL_DETACH)
		op.flag = model_is_flat(&w->memory->store, op.id);
	return op;
}

/* --- cut off ---------------------------------------------------------------------------------- */

static void check_cleanup(
	struct world *w, const struct model_op *op, unsigned cut, struct map_memory *memory)
{
	uint64_t deleted;
	int rc = map_cleanup(&memory->store, MODEL_CREATED_NS + 1, &deleted);
	law(w, op, cut, rc == 0);
	law(w, op, cut, !model_leftover(memory, &w->model));
	rc = map_cleanup(&memory->store, MODEL_CREATED_NS + 1, &deleted);
	law(w, op, cut, rc == 0 && deleted == 0);
}

/* Data are written cluster by cluster; all else is one or the other. */
static bool is_old_or_new(struct map_memory *memory, const struct model_op *op,
	const struct model *before, const struct model *after)
{
	if (model_is_data(op->kind))
		return model_match(memory, before, after, true);
	return model_match(memory, before, NULL, false) || model_match(memory, after, NULL, true);
}

/* What becomes of the store when the operation is cut off before change number `cut`, or that
   change alone fails or seems to, and it is then said again. False: there was no such change. */
static bool cut_once(struct world *w, const struct model_op *op, const struct model *after,
	int expected, unsigned cut)
{
	struct map_memory *memory = map_memory_copy(w->memory);
	bool once = (w->step + cut) % 4 == 0, lost = !once && cut % 3 != 0;
	if (once)
		memory->fail_at = cut;
	else
		memory->cut_after = cut;
	memory->fail_done = cut % 2 == 0;
	int rc = model_run(&memory->store, op, false);
	bool was_cut = once ? memory->mutations >= cut : memory->cut;
	if (was_cut && lost)
		map_memory_lose(memory, cut % 3 == 1 ? 0 : cut);
	else
		map_memory_heal(memory);
	if (!was_cut || rc == 0) {
		law(w, op, cut, rc == expected);
		law(w, op, cut, model_match(memory, after, NULL, true));
	}
	law(w, op, cut, is_old_or_new(memory, op, &w->model, after));
	if (was_cut && cut % 2 == 0) {
		check_cleanup(w, op, cut, memory);
		law(w, op, cut, is_old_or_new(memory, op, &w->model, after));
	}
	if (was_cut) {
		rc = model_run(&memory->store, op, lost || op->kind != MODEL_WRITE);
		law(w, op, cut, rc == expected);
		law(w, op, cut, model_match(memory, after, NULL, true));
	}
	check_cleanup(w, op, cut, memory);
	law(w, op, cut, model_match(memory, after, NULL, true));
	map_memory_destroy(memory);
	return was_cut;
}

static void do_op(struct world *w, const struct model_op *op)
{
	struct model after = w->model;
	int expected = model_apply(&after, op);
	unsigned cut = any(w, 2);
	while (cut != 0 && cut_once(w, op, &after, expected, cut))
		cut++;
	int rc = model_run(&w->memory->store, op, false);
	law(w, op, 0u, rc == expected);
	w->model = after;
	law(w, op, 0u, model_match(w->memory, &w->model, NULL, true));
}

TheoryDataPoints(map_volume, old_or_new) = {
	DataPoints(unsigned, 1, 2, 3, 4, 5, 6, 7, 8),
};

Theory((unsigned seed), map_volume, old_or_new)
{
	static struct world w;
	world_begin(&w, seed);
	for (w.step = 0; w.step < STEPS; w.step++) {
		struct model_op op = any_op(&w);
		do_op(&w, &op);
	}
	map_memory_destroy(w.memory);
}

/* --- two at once ------------------------------------------------------------------------------ */

struct rival {
	const struct model_op *op;
	unsigned at; /* before the request with this number, all of it */
	int rc;
};

static int rival_acts(struct map_memory *memory, enum map_memory_kind kind, struct xseg_key key)
{
	struct rival *rival = memory->context;
	(void)kind;
	(void)key;
	if (rival->at-- != 0)
		return 0;
	memory->before = NULL;
	rival->rc = model_run(&memory->store, rival->op, false);
	return 0;
}

/* What only the owner of a volume's home may do is not done twice at once. */
static bool may_race(const struct model_op *a, const struct model_op *b)
{
	if (model_is_data(a->kind) || a->kind == MODEL_DETACH || b->kind == MODEL_DETACH)
		return false;
	bool owners = b->kind == MODEL_RESIZE || b->kind == MODEL_REMOVE || model_is_data(b->kind);
	return a->kind != MODEL_RESIZE || a->id != b->id || !owners;
}

/* One after the other: what is there then, and what they were answered. */
static bool is_order(struct map_memory *memory, const struct model *before,
	const struct model_op *ops[2], const int rcs[2], bool loud)
{
	struct model after = *before;
	int first = model_apply(&after, ops[0]), second = model_apply(&after, ops[1]);
	return first == rcs[0] && second == rcs[1] && model_match(memory, &after, NULL, loud);
}

/* False: it was over before the rival's turn came. */
static bool race_once(
	struct world *w, const struct model_op *a, const struct model_op *b, unsigned at)
{
	struct map_memory *memory = map_memory_copy(w->memory);
	struct rival rival = {.op = b, .at = at, .rc = 1};
	memory->context = &rival;
	memory->before = rival_acts;
	int rc = model_run(&memory->store, a, false);
	bool raced = !memory->before;
	memory->before = NULL;
	for (unsigned i = 0; i < 2 && raced; i++) {
		bool one = is_order(memory, &w->model, (const struct model_op *[]){a, b},
			(int[]){rc, rival.rc}, false);
		bool other = is_order(memory, &w->model, (const struct model_op *[]){b, a},
			(int[]){rival.rc, rc}, false);
		cr_assert(one || other, "seed %u, step %u: %s (%d), at %u %s (%d): neither order",
			w->seed, w->step, model_kind_name(a->kind), rc, at,
			model_kind_name(b->kind), rival.rc);
		if (i == 0)
			check_cleanup(w, a, at, memory);
	}
	map_memory_destroy(memory);
	return raced;
}

TheoryDataPoints(map_volume, one_after_the_other) = {
	DataPoints(unsigned, 11, 12, 13, 14, 15, 16, 17, 18),
};

Theory((unsigned seed), map_volume, one_after_the_other)
{
	static struct world w;
	world_begin(&w, seed);
	for (w.step = 0; w.step < RACES; w.step++) {
		struct model_op a = any_op(&w), b = any_op(&w);
		if (any(&w, 4) != 0)
			b.id = a.id;
		if (any(&w, 4) == 0)
			b.kind = MODEL_REMOVE;
		if (any(&w, 3) == 0)
			b.name = a.name;
		for (unsigned at = 0; may_race(&a, &b) && race_once(&w, &a, &b, at);)
			at++;
		do_op(&w, may_race(&a, &b) ? &b : &a);
	}
	map_memory_destroy(w.memory);
}
