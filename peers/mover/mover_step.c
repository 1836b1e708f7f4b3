/* SPDX-License-Identifier: Apache-2.0 */
/* What the mover was asked to do, one thing after the other: the lane's part (mover.h). */
#include <base/log.h>

#include "peers/mover/mover.h"

/* What nobody has asked for, and has failed, is tried again after that. */
#define AGAIN_NS 1000000000u

#define FROM_IDLE \
	(SM(STEP_LOADING) | SM(STEP_CHANGING) | SM(STEP_MOVING) | SM(STEP_SETTLING) | \
		SM(STEP_JOINING) | SM(STEP_NAMING) | SM(STEP_MEASURING))

static const struct sm_state steps[] = {
	[STEP_IDLE] = {"idle", FROM_IDLE},
	[STEP_LOADING] = {"loading", SM(STEP_IDLE)},
	[STEP_CHANGING] = {"changing", SM(STEP_IDLE)},
	[STEP_MOVING] = {"moving", SM(STEP_IDLE)},
	[STEP_SETTLING] = {"settling", SM(STEP_IDLE)},
	[STEP_JOINING] = {"joining", SM(STEP_IDLE)},
	[STEP_NAMING] = {"naming", SM(STEP_IDLE)},
	[STEP_MEASURING] = {"measuring", SM(STEP_IDLE)},
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
	free(mover->task.family.all);
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

static void answer_put(struct job *job, const struct mover_state *state, int error)
{
	if (!error && job->data_size < MOVER_ANSWER_AT + sizeof(*state))
		error = -EINVAL;
	if (error) {
		job_fail(job, error);
		return;
	}
	job_put_bytes(job, MOVER_ANSWER_AT, state, sizeof(*state));
	job_complete(job, MOVER_ANSWER_AT + sizeof(*state));
}

static void answer(struct mover *mover, struct job *job, int error)
{
	const struct mover_group *group = mover_group_find(mover, job->key.volume);
	struct mover_state state = {0};
	struct mover_group *any;
	if (job->arg0 == MOVER_GROUPS)
		LIST_FOREACH (any, &mover->groups, link) {
			state.left += any->phase != MOVER_NONE;
			state.moving += any->phase != MOVER_NONE && any->phase != MOVER_DONE;
		}
	else if (group)
		state = (struct mover_state){.phase = group->phase,
			.to = group->to,
			.left = group->members,
			.objects = group->objects,
			.bytes = group->bytes};
	answer_put(job, &state, error);
}

static void answer_task(struct mover *mover)
{
	struct job *job = mover->task.job;
	mover->task.job = NULL;
	answer(mover, job, mover->task.error);
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

/* 0, or why an id cannot belong to it. What lies where the group goes stays there. */
static int grow(struct mover *mover, struct mover_group *group, uint32_t to, uint64_t id)
{
	struct mover_group *found = mover_group_find(mover, id);
	bool resident = found && mover_group_is_resident(mover, found);
	if (found == group)
		return 0;
	if (found && !resident)
		return mover_group_is_astray(mover, found) ? -EBUSY : -EEXIST;
	if (resident == (to == MOVER_NEW))
		return 0;
	if (group->count == MOVER_IDS_MAX)
		return -E2BIG;
	mover_group_add_id(mover, group, id);
	return 0;
}

/* The same again, until nobody is found any more. */
static void change_done(struct worker_item *item)
{
	struct mover *mover = mover_of_item(item);
	struct mover_task *task = &mover->task;
	struct mover_group *group = task->group;
	uint32_t count = group->count;
	for (size_t i = 0; i < task->family.count && task->error == 0; i++)
		task->error = grow(mover, group, task->to, task->family.all[i].volume);
	if (task->family.count > 0 && task->error == 0) {
		task->complete = group->count == count;
		task->family.count = 0;
		worker_run(mover->peer, &task->item, mover_work_change, change_done);
		return;
	}
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

void mover_step_want(struct mover *mover, const struct mover_object *object)
{
	mover->wanted = object->key;
}

/* From the first batch on; what is no batch waits until the last has ended. */
static bool start_batch(struct mover *mover, struct mover_group *group, struct mover_object *only)
{
	if (!mover_batch_start(mover, group, only))
		return false;
	if (mover->step == STEP_IDLE)
		move(mover, STEP_MOVING);
	return true;
}

/* That object goes alone; its copy is made anew, and then there is no litter. */
static bool take_wanted(struct mover *mover)
{
	if (mover->wanted.volume == 0 || peer_now_ns(mover->peer) < mover->wanted_ns)
		return false;
	struct mover_group *group = mover_group_find(mover, mover->wanted.volume);
	struct mover_object *object = group ? mover_group_object(mover, &mover->wanted) : NULL;
	bool served = !object || !object->member || object->busy || group->phase != MOVER_COPYING;
	bool started = !served && start_batch(mover, group, object);
	if (served || started)
		mover->wanted.volume = 0;
	return started;
}

/* False: it has to wait for batches of other groups. */
static bool step(struct mover *mover, struct job *job)
{
	struct mover_group *group = mover_group_find(mover, job->key.volume);
	bool moving = group && group->phase == MOVER_COPYING;
	while (moving && start_batch(mover, group, NULL)) {
	}
	bool settles = moving && group->members == 0;
	if (moving && group->batches == 0 && (!settles || mover->step != STEP_IDLE))
		return false;
	TAILQ_REMOVE(&mover->controls, job, link);
	if (!moving) {
		answer(mover, job, 0);
	} else if (group->batches > 0) {
		TAILQ_INSERT_TAIL(&mover->steps, job, link);
	} else {
		mover->task = (struct mover_task){
			.mover = mover, .group = group, .job = job, .to = group->to};
		group->held = mover->names_held = true;
		work(mover, STEP_SETTLING, mover_work_settle, settle_done);
	}
	return true;
}

/* Whoever said STEP of that group first knows now; nobody is left behind. */
static void answer_steps(struct mover *mover, const struct mover_group *group, int error)
{
	struct job *job, *next;
	for (job = TAILQ_FIRST(&mover->steps); job; job = next) {
		next = TAILQ_NEXT(job, link);
		if (mover_group_find(mover, job->key.volume) != group)
			continue;
		TAILQ_REMOVE(&mover->steps, job, link);
		answer(mover, job, error);
		if (group->batches > 0)
			break;
	}
}

void mover_step_ended(struct mover *mover, struct mover_group *group, int error)
{
	if (error != 0) /* what was wanted will be again */
		mover->wanted_ns = peer_now_ns(mover->peer) + AGAIN_NS;
	answer_steps(mover, group, error);
	if (mover_batch_any(mover))
		mover_route_wake(mover);
	else
		idle(mover);
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

static void room_done(struct worker_item *item)
{
	struct mover *mover = mover_of_item(item);
	struct mover_task task = mover->task;
	struct mover_state state = {
		.needed = task.needed, .room = task.room, .keeps = mover->keep >= 0};
	free(task.group);
	idle(mover);
	answer_put(task.job, &state, task.error);
}

/* Of a group that nobody has begun to move: it is none yet. */
static void room(struct mover *mover, struct job *job)
{
	const struct mover_state goes_on = {.room = UINT64_MAX, .keeps = mover->keep >= 0};
	struct mover_ask ask;
	struct mover_group *known, *group = calloc(1, sizeof(*group));
	must(group);
	int rc = ask_read(job, &ask);
	bool moves = false;
	for (uint32_t i = 0; rc == 0 && i < ask.count; i++) {
		known = mover_group_find(mover, ask.ids[i]);
		moves |= known && known->phase != MOVER_NONE && known->phase != MOVER_DONE;
		group->ids[group->count++] = ask.ids[i];
	}
	if (rc != 0 || moves) {
		free(group);
		answer_put(job, &goes_on, rc);
		return;
	}
	mover->task = (struct mover_task){.group = group, .job = job, .to = ask.to};
	work(mover, STEP_MEASURING, mover_room_run, room_done);
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

/* While batches are under way others may begin, unless something waits for all of them to end. */
static bool next_one(struct mover *mover)
{
	bool is_idle = mover->step == STEP_IDLE;
	struct job *job = TAILQ_FIRST(&mover->joins);
	if (job && is_idle) {
		TAILQ_REMOVE(&mover->joins, job, link);
		join(mover, job, mover_route_joins(mover, job));
	}
	if (job)
		return is_idle;
	job = TAILQ_FIRST(&mover->controls);
	if (!job && is_idle && mover->wanted.volume != 0)
		peer_wake_at(mover->peer, mover->wanted_ns);
	if (!job)
		return take_wanted(mover);
	if (job->arg0 == MOVER_STEP)
		return step(mover, job);
	if (!is_idle)
		return false;
	TAILQ_REMOVE(&mover->controls, job, link);
	if (job->arg0 == MOVER_BEGIN)
		begin(mover, job);
	else if (job->arg0 == MOVER_ROOM)
		room(mover, job);
	else
		names(mover, job);
	return true;
}

bool mover_step_turn(struct mover *mover)
{
	if (unlikely(!mover->loaded && mover->step == STEP_IDLE)) {
		work(mover, STEP_LOADING, mover_work_load, load_done);
		return true;
	}
	if (mover->step != STEP_IDLE && mover->step != STEP_MOVING)
		return false;
	bool moved = mover->step == STEP_MOVING && mover_batch_turn(mover);
	return next_one(mover) || moved;
}
