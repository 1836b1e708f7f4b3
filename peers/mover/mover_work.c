/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What blocks: records and lists, on a worker. Whatever is cut off here is begun again by the next
 * process out of the group's record: TAKING and SETTLING are found only there, and ended before
 * anything is served.
 */
#include <base/crash.h>
#include <base/log.h>
#include <base/time.h>
#include <peer/map.h>

#include "peers/mover/mover.h"

#define AGAIN_NS 1000000000u
#define RELATIVES (1u + MOVER_OWNERS_COUNT)

static struct mover_task *task_of(struct worker_item *item) { return (struct mover_task *)item; }

/* --- records ------------------------------------------------------------------------------ */

static struct mover_record *records_new(void)
{
	struct mover_record *records = calloc(MOVER_RECORDS, sizeof(*records));
	must(records);
	return records;
}

static struct xseg_key group_key(const struct mover_group *group)
{
	return (struct xseg_key){
		.volume = group->ids[0], .epoch = XSEG_EPOCH_VOLUME, .object = MOVER_GROUP_OBJECT};
}

static int group_put(
	struct mover *mover, struct mover_group *group, enum mover_phase phase, unsigned to)
{
	struct mover_record record = {.key = group_key(group), .over = group->version};
	struct mover_group next = *group;
	next.phase = phase;
	next.to = to;
	record.size = mover_group_encode(&next, record.bytes);
	int rc = mover_record_put(mover, MOVER_NEW, &record, 1, false);
	group->version = record.over;
	crash_point("mover.group.put");
	return rc;
}

static int group_delete(struct mover *mover, struct mover_group *group)
{
	struct mover_record record = {.key = group_key(group), .version = group->version};
	int rc = mover_record_delete(mover, MOVER_NEW, &record, 1);
	while (rc == -ESTALE) {
		rc = mover_record_get(mover, MOVER_NEW, &record, 1);
		rc = rc ? rc : mover_record_delete(mover, MOVER_NEW, &record, 1);
	}
	group->version = 0;
	return rc;
}

#define RECORDS 3u /* of a volume; its own ones last: without them nobody finds it */
#define VOLUMES (MOVER_RECORDS / RECORDS)
static struct xseg_key record_key(uint64_t id, unsigned number, bool hidden)
{
	static const struct {
		uint32_t epoch, object;
	} keys[RECORDS] = {{XSEG_EPOCH_HOME, 0}, {XSEG_EPOCH_VOLUME, 1}, {XSEG_EPOCH_VOLUME, 0}};
	return (struct xseg_key){.volume = id,
		.epoch = keys[number].epoch,
		.object = keys[number].object | (hidden ? MOVER_HIDDEN : 0)};
}

/* Those of some volumes of the group, one number after the other. */
static unsigned records_of(
	const struct mover_group *group, uint32_t first, bool hidden, struct mover_record *records)
{
	uint32_t left = group->count - first;
	unsigned volumes = left < VOLUMES ? left : VOLUMES;
	for (unsigned n = 0; n < RECORDS; n++)
		for (unsigned i = 0; i < volumes; i++)
			records[n * volumes + i].key = record_key(group->ids[first + i], n, hidden);
	return volumes;
}

/* What is absent has been moved already, or never was. Nobody may find a volume by its own records
   while the one that says whose it is is not there. */
static int hide_some(struct mover *mover, const struct mover_group *group, unsigned store,
	uint32_t first, struct mover_record *records)
{
	int rc;
	do {
		unsigned volumes = records_of(group, first, false, records);
		rc = mover_record_get(mover, store, records, volumes * RECORDS);
		records_of(group, first, true, records);
		if (rc == 0)
			rc = mover_record_put(mover, MOVER_NEW, records, volumes * RECORDS, false);
		records_of(group, first, false, records);
		for (unsigned n = RECORDS; n-- > 0 && rc == 0;)
			rc = mover_record_delete(mover, store, records + n * volumes, volumes);
	} while (rc == -ESTALE); /* one has changed since it was read */
	return rc;
}

/* What is in its place already was put there before we were killed, and whoever has found it there
   since may have changed it; or (put back) it has not been taken from there. */
static int show_some(struct mover *mover, const struct mover_group *group, unsigned store,
	uint32_t first, struct mover_record *records)
{
	int rc;
	do {
		unsigned volumes = records_of(group, first, true, records);
		rc = mover_record_get(mover, MOVER_NEW, records, volumes * RECORDS);
		records_of(group, first, false, records);
		for (unsigned n = 0; n < RECORDS && rc == 0; n++)
			rc = mover_record_put(mover, store, records + n * volumes, volumes, true);
		records_of(group, first, true, records);
		if (rc == 0)
			rc = mover_record_delete(mover, MOVER_NEW, records, volumes * RECORDS);
	} while (rc == -ESTALE);
	return rc;
}

typedef int some_fn(struct mover *mover, const struct mover_group *group, unsigned store,
	uint32_t first, struct mover_record *records);

static int each_some(
	struct mover *mover, const struct mover_group *group, unsigned store, some_fn *some)
{
	struct mover_record *records = records_new();
	int rc = 0;
	for (uint32_t first = 0; first < group->count && rc == 0; first += VOLUMES)
		rc = some(mover, group, store, first, records);
	free(records);
	return rc;
}

static int hide(struct mover *mover, const struct mover_group *group, unsigned store)
{
	return each_some(mover, group, store, hide_some);
}

static int show(struct mover *mover, const struct mover_group *group, unsigned store)
{
	return each_some(mover, group, store, show_some);
}

/* --- names -------------------------------------------------------------------------------- */

/* Whose name is it? 0: nobody's, or it cannot be read. */
static uint64_t name_of(const struct mover_record *record)
{
	uint64_t id = 0;
	if (record->error == 0 && record->size >= MOVER_NAME_ID + sizeof(id))
		memcpy(&id, record->bytes + MOVER_NAME_ID, sizeof(id));
	return id;
}

static int names_get(
	struct mover *mover, unsigned store, struct mover_record *names, unsigned count)
{
	int rc = mover_record_get(mover, store, names, count);
	return rc == -EILSEQ ? 0 : rc;
}

struct name_ask {
	const struct mover_group *group; /* NULL: all */
	unsigned from, to;
	bool only_look; /* whether they can go */
	bool clash;	/* out: one is another's where it should go, and stays */
};

/* -ESTALE: somebody has made or removed one meanwhile. */
static int names_some(struct mover *mover, struct name_ask *ask, struct mover_record *names,
	struct mover_record *there, unsigned count)
{
	unsigned wanted = 0;
	int rc = names_get(mover, ask->from, names, count);
	for (unsigned i = 0; i < count && rc == 0; i++) {
		uint64_t id = name_of(&names[i]);
		if (id != 0 && (!ask->group || mover_group_has(ask->group, id)))
			names[wanted++] = names[i];
	}
	for (unsigned i = 0; i < wanted; i++)
		there[i].key = names[i].key;
	rc = rc ? rc : names_get(mover, ask->to, there, wanted);
	for (unsigned i = 0; i < wanted && rc == 0; i++) {
		uint64_t other = name_of(&there[i]);
		bool clashes = other != 0 && other != name_of(&names[i]);
		names[i].over = there[i].error == -EILSEQ ? XSEG_CAS_DAMAGED : there[i].version;
		names[i].error = clashes ? -ENOTUNIQ : 0;
		ask->clash |= clashes;
	}
	if (ask->only_look)
		return rc;
	rc = rc ? rc : mover_record_put_once(mover, ask->to, names, wanted, false);
	return rc ? rc : mover_record_delete(mover, ask->from, names, wanted);
}

/* -ENOTUNIQ: there is a clash; the others have gone. */
static int move_names(struct mover *mover, struct name_ask ask)
{
	struct mover_keys keys = {0};
	struct mover_record *names = records_new(), *there = records_new();
	int rc = mover_record_list_all(mover, ask.from, XSEG_EPOCH_NAME, &keys);
	for (size_t first = 0; first < keys.count && rc == 0; first += MOVER_RECORDS)
		do {
			size_t left = keys.count - first;
			unsigned count = left < MOVER_RECORDS ? (unsigned)left : MOVER_RECORDS;
			for (unsigned i = 0; i < count; i++)
				names[i].key = keys.all[first + i];
			rc = names_some(mover, &ask, names, there, count);
		} while (rc == -ESTALE);
	free(names);
	free(there);
	free(keys.all);
	return rc == 0 && ask.clash ? -ENOTUNIQ : rc;
}

/* With which volumes a volume shares objects. */
struct kin {
	uint64_t id, others[RELATIVES]; /* 0: none */
};

/* As the half that counts says: its parent and all owners. */
static void kin_of(const struct mover_record half[2], struct kin *kin)
{
	uint64_t generation[2] = {0, 0};
	for (unsigned i = 0; i < 2; i++)
		if (half[i].error == 0 && half[i].size == XSEG_RECORD_MAX)
			memcpy(&generation[i], half[i].bytes + MOVER_GENERATION,
				sizeof(*generation));
	const struct mover_record *last = &half[generation[1] > generation[0]];
	*kin = (struct kin){.id = last->key.volume};
	if (generation[0] == 0 && generation[1] == 0)
		return;
	memcpy(kin->others, last->bytes + MOVER_PARENT, sizeof(*kin->others));
	memcpy(kin->others + 1, last->bytes + MOVER_OWNERS,
		MOVER_OWNERS_COUNT * sizeof(*kin->others));
}

typedef void kin_fn(struct mover_task *task, const struct kin *kin);

/* Of each volume in a list of their records; the first writing of one is in its second half. */
static int each_kin(struct mover *mover, struct mover_task *task, unsigned store,
	const struct mover_keys *keys, kin_fn *found)
{
	struct mover_record *halves = records_new();
	int rc = 0;
	for (size_t i = 0; i < keys->count && rc == 0;) {
		unsigned count = 0;
		for (; i < keys->count && count < MOVER_RECORDS; i++)
			for (unsigned k = 0; k < 2 && keys->all[i].object == 1; k++)
				halves[count++].key = record_key(keys->all[i].volume, 2 - k, false);
		rc = mover_record_get(mover, store, halves, count);
		rc = rc == -EILSEQ ? 0 : rc;
		for (unsigned k = 0; k < count && rc == 0; k += 2) {
			struct kin kin;
			kin_of(&halves[k], &kin);
			found(task, &kin);
		}
	}
	free(halves);
	return rc;
}

/* --- changes ------------------------------------------------------------------------------ */

/* Another one's late writes are refused in the new store as in the old one. -EBUSY: another host
   has it, which would go on as if nothing had moved. */
static int fence(struct mover *mover, const struct mover_record *homes, unsigned count, unsigned to)
{
	struct mover_call calls[VOLUMES];
	unsigned fences = 0;
	for (unsigned i = 0; i < count; i++) {
		const struct mover_record *home = &homes[i];
		uint64_t owner, term, line;
		if (home->error == -ENOENT)
			continue;
		if (home->size < MOVER_HOME_SIZE)
			return -EILSEQ;
		memcpy(&owner, home->bytes + MOVER_HOME_OWNER, sizeof(owner));
		memcpy(&term, home->bytes + MOVER_HOME_TERM, sizeof(term));
		memcpy(&line, home->bytes + MOVER_HOME_LINE, sizeof(line));
		if (owner != 0 && owner != map_owner_of(peer_segment(mover->peer)))
			return -EBUSY;
		if (owner != 0)
			calls[fences++] = (struct mover_call){.op = XSEG_OP_CONTROL,
				.key = {.volume = home->key.volume},
				.arg0 = XSEG_CONTROL_FENCE,
				.arg1 = term,
				.offset = line};
	}
	(void)mover_call_all(&mover->row, to, calls, fences);
	for (unsigned i = 0; i < fences; i++)
		if (calls[i].result != 0 && calls[i].result != -EOPNOTSUPP)
			return calls[i].result;
	return 0;
}

/* One that cannot be read could not be moved. */
static int check_some(struct mover *mover, const struct mover_group *group, unsigned store,
	uint32_t first, struct mover_record *records)
{
	unsigned count = records_of(group, first, false, records) * RECORDS;
	return mover_record_get(mover, store, records, count);
}

static int fence_some(struct mover *mover, const struct mover_group *group, unsigned store,
	uint32_t first, struct mover_record *records)
{
	unsigned volumes = records_of(group, first, false, records); /* home records come first */
	int rc = mover_record_get(mover, !store, records, volumes);
	return rc ? rc : fence(mover, records, volumes, store);
}

static void complain(const struct mover *mover, const char *what, int rc)
{
	log_error("mover", "%s: %s: %s; it is tried again until that works", mover->peer->name,
		what, strerror(-rc));
}

/* The records show where they did: without them nobody can use the volumes. */
static void take_back(struct mover *mover, struct mover_group *group)
{
	unsigned home = mover_group_rest(group);
	bool said = false;
	while (!atomic_load(&mover->stopping)) {
		int rc = show(mover, group, home);
		if (rc == 0)
			rc = group_delete(mover, group);
		if (rc == 0)
			return;
		if (!said)
			complain(mover, "records cannot be put back", rc);
		said = true;
		time_nap(AGAIN_NS);
	}
}

static void find_kin(struct mover_task *task, const struct kin *kin)
{
	bool related = false;
	if (mover_group_has(task->group, kin->id))
		return;
	for (unsigned i = 0; i < RELATIVES; i++)
		related |= kin->others[i] != 0 && mover_group_has(task->group, kin->others[i]);
	if (related)
		mover_group_keys_add(&task->family, (struct xseg_key){.volume = kin->id});
	for (unsigned i = 0; i < RELATIVES && related; i++)
		if (kin->others[i] != 0 && !mover_group_has(task->group, kin->others[i]))
			mover_group_keys_add(
				&task->family, (struct xseg_key){.volume = kin->others[i]});
}

/* Who was made after whoever asks for it had put the group together, and with whom that one shares
   objects. From now on such join it. */
static int find_family(struct mover *mover, struct mover_task *task, unsigned from)
{
	struct mover_keys keys = {0};
	mover_out_wait(mover, OUT_RECORDS, NULL);
	int rc = mover_record_list_all(mover, from, XSEG_EPOCH_VOLUME, &keys);
	rc = rc ? rc : each_kin(mover, task, from, &keys, find_kin);
	free(keys.all);
	return rc;
}

static int change_from_rest(struct mover *mover, struct mover_task *task)
{
	struct mover_group *group = task->group;
	unsigned from = !task->to;
	mover_out_wait(mover, OUT_ANY, group);
	int rc = task->complete ? 0 : find_family(mover, task, from);
	if (rc != 0 || task->family.count > 0)
		return rc;
	struct name_ask names = {.group = group, .from = from, .to = task->to, .only_look = true};
	rc = each_some(mover, group, from, check_some);
	if (rc == 0)
		rc = move_names(mover, names);
	if (rc == 0)
		rc = each_some(mover, group, task->to, fence_some);
	if (rc == 0)
		rc = group_put(mover, group, MOVER_TAKING, task->to);
	if (rc != 0)
		return rc;
	rc = hide(mover, group, from);
	if (rc == 0)
		rc = mover_record_list_group(mover, from, group, &task->members);
	if (rc == 0)
		rc = mover_record_list_group(mover, task->to, group, &task->copies);
	if (rc == 0)
		rc = group_put(mover, group, MOVER_COPYING, task->to);
	if (rc != 0)
		take_back(mover, group);
	return rc;
}

/* Parts of copies must go before the other store is the one that is looked into first. */
static int sweep_litter(struct mover *mover, const struct mover_task *task)
{
	struct mover_call calls[MOVER_RECORDS];
	int rc = 0;
	for (size_t i = 0; i < task->litter.count && rc == 0;) {
		unsigned count = 0;
		for (; i < task->litter.count && count < MOVER_RECORDS; i++)
			calls[count++] = (struct mover_call){
				.op = XSEG_OP_DELETE, .key = task->litter.all[i]};
		rc = mover_call_all(&mover->row, task->group->to, calls, count);
	}
	return rc;
}

static int change_back(struct mover *mover, struct mover_task *task)
{
	struct mover_group *group = task->group;
	mover_out_wait(mover, OUT_ANY, group);
	int rc = sweep_litter(mover, task);
	if (rc == 0)
		rc = mover_record_list_group(mover, group->to, group, &task->members);
	return rc == 0 ? group_put(mover, group, MOVER_COPYING, task->to) : rc;
}

void mover_work_change(struct worker_item *item)
{
	struct mover_task *task = task_of(item);
	bool back = task->group->phase == MOVER_COPYING;
	task->error = back ? change_back(task->mover, task) : change_from_rest(task->mover, task);
}

/* --- the end of a group's way ---------------------------------------------------------------- */

static int settle(struct mover *mover, struct mover_group *group)
{
	struct name_ask names = {.group = group, .from = !group->to, .to = group->to};
	int rc = group_put(mover, group, MOVER_SETTLING, group->to);
	if (rc == 0)
		rc = move_names(mover, names);
	if (rc == -ENOTUNIQ) {
		log_warning("mover",
			"%s: the store has a volume of that name by now; one is found by it only "
			"as long as the mover is there: rename it",
			mover->peer->name);
		rc = 0;
	}
	if (rc == 0)
		rc = show(mover, group, group->to);
	for (uint32_t i = 0; rc == 0 && group->to == MOVER_OLD && i < group->count; i++)
		mover_keep_drop(mover, group->ids[i]);
	return rc == 0 ? group_delete(mover, group) : rc;
}

void mover_work_settle(struct worker_item *item)
{
	struct mover_task *task = task_of(item);
	struct mover *mover = task->mover;
	bool said = false;
	mover_out_wait(mover, OUT_RECORDS, task->group);
	mover_out_wait(mover, OUT_NAMES, NULL);
	while ((task->error = settle(mover, task->group)) != 0 && !atomic_load(&mover->stopping)) {
		if (!said)
			complain(mover, "records cannot be put in their place", task->error);
		said = true;
		time_nap(AGAIN_NS);
	}
}

void mover_work_names(struct worker_item *item)
{
	struct mover_task *task = task_of(item);
	struct name_ask names = {.from = MOVER_OLD, .to = MOVER_NEW};
	mover_out_wait(task->mover, OUT_NAMES, NULL);
	task->error = move_names(task->mover, names);
}

void mover_work_join(struct worker_item *item)
{
	struct mover_task *task = task_of(item);
	struct mover_group next = *task->group;
	next.ids[next.count++] = task->id;
	task->error = group_put(task->mover, &next, next.phase, next.to);
	task->group->version = next.version;
}

/* --- the start ------------------------------------------------------------------------------ */

/* What was cut off is brought to its end first. */
static int load_end(struct mover *mover, struct mover_loaded *loaded)
{
	struct mover_group *group = loaded->group;
	int rc = 0;
	mover_out_wait(mover, OUT_STORES, group);
	if (group->phase == MOVER_TAKING) {
		rc = hide(mover, group, !group->to);
		if (rc == 0)
			rc = group_put(mover, group, MOVER_COPYING, group->to);
		if (rc == 0)
			group->phase = MOVER_COPYING;
	} else if (group->phase == MOVER_SETTLING) {
		rc = settle(mover, group);
		if (rc == 0)
			group->phase = group->to == MOVER_NEW ? MOVER_DONE : MOVER_NONE;
	}
	if (rc == 0 && group->phase == MOVER_COPYING)
		rc = mover_record_list_group(mover, !group->to, group, &loaded->members);
	if (rc == 0 && group->phase == MOVER_COPYING)
		rc = mover_record_list_group(mover, group->to, group, &loaded->copies);
	return rc;
}

static int load_one(struct mover *mover, struct mover_task *task, struct xseg_key key)
{
	struct mover_record record = {.key = key};
	int rc = mover_record_get(mover, MOVER_NEW, &record, 1);
	if (rc != 0 || record.error != 0)
		return rc ? rc : record.error;
	struct mover_loaded *loaded = calloc(1, sizeof(*loaded));
	struct mover_group *group = calloc(1, sizeof(*group));
	must(loaded && group);
	rc = mover_group_decode(record.bytes, record.size, group);
	group->version = record.version;
	loaded->group = group;
	if (rc == 0)
		rc = load_end(mover, loaded);
	if (rc != 0) {
		free(loaded->members.all);
		free(loaded->copies.all);
		free(loaded);
		free(group);
		return rc;
	}
	loaded->next = task->loaded;
	task->loaded = loaded;
	return 0;
}

/* With whoever it shares objects with. Those of groups are known when these are added. */
static void load_resident(struct mover_task *task, const struct kin *kin)
{
	mover_group_keys_add(&task->residents, (struct xseg_key){.volume = kin->id});
	for (unsigned i = 0; i < RELATIVES; i++)
		if (kin->others[i] != 0)
			mover_group_keys_add(
				&task->residents, (struct xseg_key){.volume = kin->others[i]});
}

static void unload(struct mover_task *task)
{
	struct mover_loaded *loaded;
	while ((loaded = task->loaded)) {
		task->loaded = loaded->next;
		free(loaded->members.all);
		free(loaded->copies.all);
		free(loaded->group);
		free(loaded);
	}
	free(task->residents.all);
	task->residents = (struct mover_keys){0};
}

static int load(struct mover *mover, struct mover_task *task)
{
	struct mover_keys keys = {0};
	int rc = mover_record_list_all(mover, MOVER_NEW, XSEG_EPOCH_VOLUME, &keys);
	for (size_t i = 0; i < keys.count && rc == 0; i++)
		if (keys.all[i].object & MOVER_GROUP_OBJECT)
			rc = load_one(mover, task, keys.all[i]);
	rc = rc ? rc : each_kin(mover, task, MOVER_NEW, &keys, load_resident);
	free(keys.all);
	return rc;
}

/* Nothing is served before it is known what lies where. */
void mover_work_load(struct worker_item *item)
{
	struct mover_task *task = task_of(item);
	bool said = false;
	while ((task->error = load(task->mover, task)) != 0 &&
		!atomic_load(&task->mover->stopping)) {
		unload(task);
		if (task->error == -EILSEQ || task->error == -EPROTO)
			return;
		if (!said)
			complain(task->mover, "the stores cannot be asked", task->error);
		said = true;
		time_nap(AGAIN_NS);
	}
}
