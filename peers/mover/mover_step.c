/* SPDX-License-Identifier: Apache-2.0 */
/* What the mover was asked to do, one thing after the other: the lane's part (mover.h). */
#include <base/log.h>

#include "peers/mover/mover.h"

/* What nobody has asked for, and has failed, is tried again after that. */
#define AGAIN_NS 1000000000u

#define FROM_IDLE \
	(SM(STEP_LOADING) | SM(STEP_CHANGING) | SM(STEP_QUIETING) | SM(STEP_SETTLING) | \
		SM(STEP_JOINING) | SM(STEP_NAMING))

static const struct sm_state steps[] = {
	[STEP_IDLE] = {"idle", FROM_IDLE},
	[STEP_LOADING] = {"loading", SM(STEP_IDLE)},
	[STEP_CHANGING] = {"changing", SM(STEP_IDLE)},
	[STEP_QUIETING] = {"quieting", SM(STEP_COPYING)},
	[STEP_COPYING] = {"copying", SM(STEP_CLOSING) | SM(STEP_IDLE)},
	[STEP_CLOSING] = {"closing", SM(STEP_DELETING)},
	[STEP_DELETING] = {"deleting", SM(STEP_IDLE)},
	[STEP_SETTLING] = {"settling", SM(STEP_IDLE)},
	[STEP_JOINING] = {"joining", SM(STEP_IDLE)},
	[STEP_NAMING] = {"naming", SM(STEP_IDLE)},
};
fixed(sizeof(steps) / sizeof(*steps) == STEPS);

static void move(struct mover *mover, unsigned step) { sm_move(steps, &mover->step, step); }

static void work(struct mover *mover, unsigned step, void (*run)(struct worker_item *item),
	void (*done)(struct worker_item *item))
{
	move(mover, step);
	mover->task.mover = mover;
	worker_run(mover->peer, &mover->task.item, run, done);
}

static struct mover *mover_of_item(struct worker_item *item)
{
	return ((struct mover_task *)item)->mover;
}

/* Groups that are where they were at first, or have gone, and of which nothing is on its way. */
static void prune(struct mover *mover)
{
	struct mover_group *group, *next;
	for (group = LIST_FIRST(&mover->groups); group; group = next) {
		next = LIST_NEXT(group, link);
		if (!TAILQ_EMPTY(&group->order))
			continue;
		if (group->phase == MOVER_NONE)
			mover_group_remove(mover, group);
		else if (group->phase == MOVER_DONE)
			mover_group_retire(mover, group);
	}
}

void mover_step_settled(struct mover *mover)
{
	if (mover->step == STEP_IDLE)
		prune(mover);
}

/* What waited may go on. */
static void idle(struct mover *mover)
{
	free(mover->task.members.all);
	free(mover->task.copies.all);
	free(mover->task.litter.all);
	mover->task = (struct mover_task){0};
	move(mover, STEP_IDLE);
	mover->names_held = false;
	prune(mover);
	mover_route_wake(mover);
}

/* --- answers -------------------------------------------------------------------------------- */

static void answer(struct mover *mover, struct job *job, int error)
{
	const struct mover_group *group = mover_group_find(mover, job->key.volume);
	struct mover_state state = {0};
	struct mover_group *any;
	if (job->arg0 == MOVER_GROUPS)
		state.objects = mover->residents;
	if (job->arg0 == MOVER_GROUPS)
		LIST_FOREACH (any, &mover->groups, link)
			state.left += any->phase != MOVER_NONE;
	else if (group)
		state = (struct mover_state){.phase = group->phase,
			.to = group->to,
			.left = group->members,
			.objects = group->objects,
			.bytes = group->bytes};
	if (error) {
		job_fail(job, error);
		return;
	}
	if (job->data_size < MOVER_ANSWER_AT + sizeof(state)) {
		job_fail(job, -EINVAL);
		return;
	}
	job_put_bytes(job, MOVER_ANSWER_AT, &state, sizeof(state));
	job_complete(job, MOVER_ANSWER_AT + sizeof(state));
}

static void answer_task(struct mover *mover)
{
	struct job *job = mover->task.job;
	mover->task.job = NULL;
	if (job)
		answer(mover, job, mover->task.error);
	else if (mover->task.error != 0) /* what was wanted will be again */
		mover->wanted_ns = peer_now_ns(mover->peer) + AGAIN_NS;
}

/* --- which objects are members ---------------------------------------------------------------- */

/* What is known and not listed lies where the group goes. */
static void members_drop(struct mover *mover, struct mover_group *group)
{
	struct mover_object *object, *next;
	for (object = TAILQ_FIRST(&group->order); object; object = next) {
		next = TAILQ_NEXT(object, order);
		mover_group_object_is_member(object, false);
		object->litter = false;
		if (object->reads + object->changes == 0)
			mover_group_object_forget(mover, object);
	}
}

static void members_add(
	struct mover *mover, struct mover_group *group, const struct mover_keys *keys)
{
	for (size_t i = 0; i < keys->count; i++) {
		struct mover_object *object = mover_group_object_get(mover, group, &keys->all[i]);
		must(object);
		mover_group_object_is_member(object, true);
	}
}

/* Parts of copies that were cut off, or deletions that a crash of the host has undone. */
static void members_litter(const struct mover *mover, const struct mover_keys *copies)
{
	for (size_t i = 0; i < copies->count; i++) {
		struct mover_object *object = mover_group_object(mover, &copies->all[i]);
		if (object && object->member)
			object->litter = true;
	}
}

/* Those that were asked for while the list was made may exist by now: they are members, too, and
   those that were members already are where the group goes now. */
static void members_turn(
	struct mover *mover, struct mover_group *group, const struct mover_keys *keys)
{
	struct mover_object *object, *next;
	for (object = TAILQ_FIRST(&group->order); object; object = next) {
		next = TAILQ_NEXT(object, order);
		bool member = !object->member;
		object->litter = false;
		mover_group_object_is_member(object, member);
		if (!member && object->reads + object->changes == 0)
			mover_group_object_forget(mover, object);
	}
	members_add(mover, group, keys);
}

/* --- the start -------------------------------------------------------------------------------- */

static void loaded_install(struct mover *mover, struct mover_loaded *loaded)
{
	struct mover_group *group = loaded->group;
	mover_group_add(mover, group);
	members_add(mover, group, &loaded->members);
	members_litter(mover, &loaded->copies);
	log_info("mover", "%s: a group of %u volumes is %s: %llu objects are to be moved",
		mover->peer->name, group->count,
		group->phase == MOVER_DONE ? "in the new store" : "on its way",
		(unsigned long long)group->members);
}

static void load_done(struct worker_item *item)
{
	struct mover *mover = mover_of_item(item);
	struct mover_keys *residents = &mover->task.residents;
	struct mover_loaded *loaded;
	while ((loaded = mover->task.loaded)) {
		mover->task.loaded = loaded->next;
		loaded_install(mover, loaded);
		free(loaded->members.all);
		free(loaded->copies.all);
		free(loaded);
	}
	if (mover->task.error != 0)
		peer_fatal(mover->peer, "what was moved cannot be found out: %s",
			strerror(-mover->task.error));
	for (size_t i = 0; i < residents->count; i++)
		mover_group_reside(mover, residents->all[i].volume);
	free(residents->all);
	mover->loaded = mover->task.error == 0;
	idle(mover);
}

/* --- MOVER_BEGIN ------------------------------------------------------------------------------ */

static void change_done(struct worker_item *item)
{
	struct mover *mover = mover_of_item(item);
	struct mover_task *task = &mover->task;
	struct mover_group *group = task->group;
	group->counting = group->held = false;
	if (task->error == 0) {
		members_turn(mover, group, &task->members);
		members_litter(mover, &task->copies);
		group->phase = MOVER_COPYING;
		group->to = task->to;
	} else if (group->phase != MOVER_COPYING) {
		members_drop(mover, group);
	}
	answer_task(mover);
	idle(mover);
}

/* The group that the ids belong to; *group NULL: none yet. *resident: they are where the mover does
   not take volumes from but back. */
static int group_of(struct mover *mover, const struct mover_ask *ask, struct mover_group **group,
	bool *resident)
{
	uint32_t residents = 0;
	*group = NULL;
	for (uint32_t i = 0; i < ask->count; i++) {
		struct mover_group *found = mover_group_find(mover, ask->ids[i]);
		if (found && mover_group_is_resident(mover, found)) {
			residents++;
			continue;
		}
		if (mover_group_is_astray(mover, found))
			return -EBUSY;
		if (found && *group && found != *group)
			return -EEXIST;
		if (found)
			*group = found;
	}
	*resident = residents > 0;
	bool mixed = *group ? (*group)->phase != MOVER_DONE : residents < ask->count;
	return residents > 0 && mixed ? -EEXIST : 0;
}

static struct mover_group *group_new(struct mover *mover, bool resident)
{
	struct mover_group *group = calloc(1, sizeof(*group));
	must(group);
	group->phase = resident ? MOVER_DONE : MOVER_NONE;
	group->to = resident ? MOVER_NEW : MOVER_OLD;
	TAILQ_INIT(&group->order);
	mover_group_add(mover, group);
	return group;
}

static int ask_read(const struct job *job, struct mover_ask *ask)
{
	if (job->data_size < MOVER_ANSWER_AT)
		return -EINVAL;
	job_get_bytes(job, 0, ask, sizeof(*ask));
	if (ask->count > MOVER_IDS_MAX)
		return -E2BIG;
	bool sane = ask->count > 0 && ask->to <= MOVER_NEW;
	for (uint32_t i = 0; sane && i < ask->count; i++)
		sane = ask->ids[i] != 0;
	return sane ? 0 : -EINVAL;
}

static void begin(struct mover *mover, struct job *job)
{
	struct mover_object *object;
	struct mover_group *group;
	struct mover_ask ask;
	bool resident = false;
	int rc = ask_read(job, &ask);
	if (rc == 0)
		rc = group_of(mover, &ask, &group, &resident);
	bool there = rc == 0 && (group ? group->to : resident ? MOVER_NEW : MOVER_OLD) == ask.to;
	if (rc != 0 || there) {
		answer(mover, job, rc);
		return;
	}
	if (!group)
		group = group_new(mover, resident);
	for (uint32_t i = 0; i < ask.count; i++)
		if (mover_group_find(mover, ask.ids[i]) != group)
			mover_group_add_id(mover, group, ask.ids[i]);
	group->counting = true;
	group->held = group->phase != MOVER_COPYING;
	mover->task = (struct mover_task){.group = group, .job = job, .to = ask.to};
	TAILQ_FOREACH (object, &group->order, order)
		if (object->member && object->litter)
			mover_group_keys_add(&mover->task.litter, object->key);
	work(mover, STEP_CHANGING, mover_work_change, change_done);
}

/* --- MOVER_STEP ----------------------------------------------------------------------------- */

static void settle_done(struct worker_item *item)
{
	struct mover *mover = mover_of_item(item);
	struct mover_group *group = mover->task.group;
	group->held = false;
	if (mover->task.error == 0) {
		group->phase = group->to == MOVER_NEW ? MOVER_DONE : MOVER_NONE;
		members_drop(mover, group);
	}
	answer_task(mover);
	idle(mover);
}

static void batch_release(struct mover *mover)
{
	for (unsigned i = 0; i < mover->task.count; i++) {
		struct mover_piece *piece = &mover->task.pieces[i];
		struct mover_object *object = piece->object;
		object->busy = object->closing = false;
		object->litter = piece->litter;
		if (!piece->moved)
			continue;
		mover->task.group->objects++;
		mover->task.group->bytes += piece->size;
		peer_count(mover->peer, MOVER_C_OBJECTS, 1);
		peer_count(mover->peer, MOVER_C_BYTES, piece->size);
		mover_group_object_forget(mover, object);
	}
}

static void delete_done(struct worker_item *item)
{
	struct mover *mover = mover_of_item(item);
	batch_release(mover);
	answer_task(mover);
	idle(mover);
}

static void copy_done(struct worker_item *item)
{
	struct mover *mover = mover_of_item(item);
	if (mover->task.error != 0) {
		batch_release(mover);
		answer_task(mover);
		idle(mover);
		return;
	}
	for (unsigned i = 0; i < mover->task.count; i++)
		mover->task.pieces[i].object->closing = true;
	move(mover, STEP_CLOSING);
}

static void piece_take(struct mover_task *task, struct mover_object *object)
{
	object->busy = true;
	task->pieces[task->count++] = (struct mover_piece){
		.object = object, .key = object->key, .litter = object->litter};
}

static void batch_take(struct mover *mover, struct mover_group *group)
{
	const struct mover_options *options = mover->peer->options;
	struct mover_object *object;
	TAILQ_FOREACH (object, &group->order, order) {
		if (mover->task.count == options->batch)
			break;
		if (object->member)
			piece_take(&mover->task, object);
	}
}

void mover_step_want(struct mover *mover, const struct mover_object *object)
{
	mover->wanted = object->key;
}

/* That object goes alone; its copy is made anew, and then there is no litter. */
static bool take_wanted(struct mover *mover)
{
	if (mover->wanted.volume == 0 || peer_now_ns(mover->peer) < mover->wanted_ns)
		return false;
	struct mover_group *group = mover_group_find(mover, mover->wanted.volume);
	struct mover_object *object = group ? mover_group_object(mover, &mover->wanted) : NULL;
	mover->wanted.volume = 0;
	if (!object || !object->member || group->phase != MOVER_COPYING)
		return false; /* whoever wanted it was served meanwhile */
	mover->task = (struct mover_task){.mover = mover, .group = group, .to = group->to};
	piece_take(&mover->task, object);
	move(mover, STEP_QUIETING);
	return true;
}

static void step(struct mover *mover, struct job *job)
{
	struct mover_group *group = mover_group_find(mover, job->key.volume);
	if (!group || group->phase != MOVER_COPYING) {
		answer(mover, job, 0);
		return;
	}
	mover->task =
		(struct mover_task){.mover = mover, .group = group, .job = job, .to = group->to};
	if (group->members > 0) {
		batch_take(mover, group);
		move(mover, STEP_QUIETING);
		return;
	}
	group->held = mover->names_held = true;
	work(mover, STEP_SETTLING, mover_work_settle, settle_done);
}

/* Has what was on its way ended? */
static bool batch_is_quiet(const struct mover *mover, bool reads)
{
	uint32_t out = 0;
	for (unsigned i = 0; i < mover->task.count; i++) {
		const struct mover_object *object = mover->task.pieces[i].object;
		out += object->changes + (reads ? object->reads : 0);
	}
	return out == 0;
}

/* --- others --------------------------------------------------------------------------------- */

static void join_done(struct worker_item *item)
{
	struct mover *mover = mover_of_item(item);
	struct mover_task task = mover->task;
	if (task.error == 0)
		mover_group_add_id(mover, task.group, task.id);
	idle(mover);
	if (task.error == 0)
		mover_route_serve(mover->peer, task.job);
	else
		job_fail(task.job, task.error);
}

void mover_step_join(struct mover *mover, struct job *job)
{
	TAILQ_INSERT_TAIL(&mover->joins, job, link);
}

/* The group is looked for again: it may have gone meanwhile. */
static void join(struct mover *mover, struct job *job, struct mover_group *group)
{
	if (!group || mover_group_find(mover, job->key.volume)) {
		mover_route_serve(mover->peer, job);
		return;
	}
	mover->task = (struct mover_task){.group = group, .job = job, .id = job->key.volume};
	if (group->count == MOVER_IDS_MAX) {
		mover->task = (struct mover_task){0};
		job_fail(job, -EMLINK);
		return;
	}
	work(mover, STEP_JOINING, mover_work_join, join_done);
}

static void names_done(struct worker_item *item)
{
	struct mover *mover = mover_of_item(item);
	struct job *job = mover->task.job;
	int error = mover->task.error;
	idle(mover);
	if (error)
		job_fail(job, error);
	else
		job_complete(job, 0);
}

static void names(struct mover *mover, struct job *job)
{
	mover->names_held = true;
	mover->task = (struct mover_task){.job = job};
	work(mover, STEP_NAMING, mover_work_names, names_done);
}

/* --- turns ---------------------------------------------------------------------------------- */

void mover_step_control(struct mover *mover, struct job *job)
{
	if (job->arg0 == MOVER_GROUPS)
		answer(mover, job, 0);
	else if (job->arg0 == MOVER_STATE)
		answer(mover, job, mover_group_find(mover, job->key.volume) ? 0 : -ENOENT);
	else
		TAILQ_INSERT_TAIL(&mover->controls, job, link);
}

static bool next_one(struct mover *mover)
{
	struct job *job = TAILQ_FIRST(&mover->joins);
	if (job) {
		TAILQ_REMOVE(&mover->joins, job, link);
		join(mover, job, mover_route_joins(mover, job));
		return true;
	}
	job = TAILQ_FIRST(&mover->controls);
	if (!job && mover->wanted.volume != 0)
		peer_wake_at(mover->peer, mover->wanted_ns);
	if (!job)
		return take_wanted(mover);
	TAILQ_REMOVE(&mover->controls, job, link);
	switch (job->arg0) {
	case MOVER_BEGIN: begin(mover, job); break;
	case MOVER_STEP: step(mover, job); break;
	default: names(mover, job);
	}
	return true;
}

bool mover_step_turn(struct mover *mover)
{
	if (unlikely(!mover->loaded && mover->step == STEP_IDLE)) {
		work(mover, STEP_LOADING, mover_work_load, load_done);
		return true;
	}
	switch (mover->step) {
	case STEP_IDLE: return next_one(mover);
	case STEP_QUIETING:
		if (!batch_is_quiet(mover, false))
			return false;
		work(mover, STEP_COPYING, mover_copy_run, copy_done);
		return true;
	case STEP_CLOSING:
		if (!batch_is_quiet(mover, true))
			return false;
		work(mover, STEP_DELETING, mover_copy_delete, delete_done);
		return true;
	default: return false;
	}
}
