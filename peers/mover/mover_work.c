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
#include <xseg/port.h>
#include <xseg/request.h>

#include "peers/mover/mover.h"

#define LOOK_NS 200000u
#define AGAIN_NS 1000000000u
#define LIST_BYTES (1u << 20)
#define RELATIVES (1u + MOVER_OWNERS_COUNT)

static struct mover_task *task_of(struct worker_item *item) { return (struct mover_task *)item; }

static bool has_id(const struct mover_group *group, uint64_t id)
{
	for (uint32_t i = 0; i < group->count; i++)
		if (group->ids[i] == id)
			return true;
	return false;
}

/* --- records ------------------------------------------------------------------------------ */

struct record {
	uint8_t bytes[XSEG_RECORD_MAX];
	uint32_t size;
	uint64_t version;
};

static int record_get(struct mover *mover, unsigned store, struct xseg_key key, struct record *out)
{
	struct mover_call get = {.op = XSEG_OP_CAS,
		.key = key,
		.arg1 = XSEG_CAS_GET,
		.room = XSEG_RECORD_MAX,
		.receive = out->bytes};
	int rc = mover_call_do(mover, store, &get);
	out->size = get.got;
	out->version = rc == -ENOENT ? 0 : get.value;
	return rc == 0 && out->size > XSEG_RECORD_MAX ? -EIO : rc;
}

static int record_put_once(
	struct mover *mover, unsigned store, struct xseg_key key, const void *bytes, uint32_t size)
{
	struct record found;
	int rc = record_get(mover, store, key, &found);
	if (rc != 0 && rc != -ENOENT && rc != -EILSEQ)
		return rc;
	struct mover_call put = {.op = XSEG_OP_CAS,
		.key = key,
		.arg0 = rc == -EILSEQ ? XSEG_CAS_DAMAGED : found.version,
		.arg1 = XSEG_CAS_PUT,
		.room = size,
		.send = bytes};
	return mover_call_do(mover, store, &put);
}

/* Over whatever is there. */
static int record_put(
	struct mover *mover, unsigned store, struct xseg_key key, const void *bytes, uint32_t size)
{
	int rc;
	do
		rc = record_put_once(mover, store, key, bytes, size);
	while (rc == -ESTALE || rc == -EEXIST);
	return rc;
}

/* -ESTALE: it has changed since. */
static int record_delete(struct mover *mover, unsigned store, struct xseg_key key, uint64_t version)
{
	struct mover_call gone = {
		.op = XSEG_OP_CAS, .key = key, .arg0 = version, .arg1 = XSEG_CAS_DELETE};
	int rc = mover_call_do(mover, store, &gone);
	return rc == -ENOENT ? 0 : rc;
}

/* Absent: fine, it has been done or never was. */
static int record_move(struct mover *mover, unsigned from, struct xseg_key from_key, unsigned to,
	struct xseg_key to_key)
{
	struct record record;
	int rc;
	do {
		rc = record_get(mover, from, from_key, &record);
		if (rc != 0)
			return rc == -ENOENT ? 0 : rc;
		rc = record_put(mover, to, to_key, record.bytes, record.size);
		crash_point("mover.record.put");
		if (rc == 0)
			rc = record_delete(mover, from, from_key, record.version);
	} while (rc == -ESTALE);
	return rc;
}

static struct xseg_key group_key(const struct mover_group *group)
{
	return (struct xseg_key){
		.volume = group->ids[0], .epoch = XSEG_EPOCH_VOLUME, .object = MOVER_GROUP_OBJECT};
}

static int group_put(
	struct mover *mover, const struct mover_group *group, enum mover_phase phase, unsigned to)
{
	uint8_t bytes[XSEG_RECORD_MAX];
	struct mover_group next = *group;
	next.phase = phase;
	next.to = to;
	uint32_t size = mover_group_encode(&next, bytes);
	int rc = record_put(mover, MOVER_NEW, group_key(group), bytes, size);
	crash_point("mover.group.put");
	return rc;
}

static int group_delete(struct mover *mover, const struct mover_group *group)
{
	struct record found;
	int rc;
	do {
		rc = record_get(mover, MOVER_NEW, group_key(group), &found);
		if (rc == 0)
			rc = record_delete(mover, MOVER_NEW, group_key(group), found.version);
	} while (rc == -ESTALE);
	return rc == -ENOENT ? 0 : rc;
}

#define RECORDS 3u /* of a volume; its own ones last: without them nobody finds it */
static struct xseg_key record_key(uint64_t id, unsigned number, bool hidden)
{
	static const struct {
		uint32_t epoch, object;
	} keys[RECORDS] = {{XSEG_EPOCH_HOME, 0}, {XSEG_EPOCH_VOLUME, 1}, {XSEG_EPOCH_VOLUME, 0}};
	return (struct xseg_key){.volume = id,
		.epoch = keys[number].epoch,
		.object = keys[number].object | (hidden ? MOVER_HIDDEN : 0)};
}

static int hide(struct mover *mover, const struct mover_group *group, unsigned store)
{
	int rc = 0;
	for (uint32_t i = 0; i < group->count && rc == 0; i++)
		for (unsigned n = RECORDS; n-- > 0 && rc == 0;)
			rc = record_move(mover, store, record_key(group->ids[i], n, false),
				MOVER_NEW, record_key(group->ids[i], n, true));
	return rc;
}

static int show(struct mover *mover, const struct mover_group *group, unsigned store)
{
	int rc = 0;
	for (uint32_t i = 0; i < group->count && rc == 0; i++)
		for (unsigned n = 0; n < RECORDS && rc == 0; n++)
			rc = record_move(mover, MOVER_NEW, record_key(group->ids[i], n, true),
				store, record_key(group->ids[i], n, false));
	return rc;
}

/* --- lists -------------------------------------------------------------------------------- */

static int list_all(
	struct mover *mover, unsigned store, struct xseg_key of, struct mover_keys *keys)
{
	struct xseg_key *part = malloc(LIST_BYTES);
	uint64_t cursor = 0;
	int rc = part ? 0 : -ENOMEM;
	do {
		struct mover_call list = {.op = XSEG_OP_LIST,
			.key = of,
			.room = LIST_BYTES,
			.arg0 = cursor,
			.receive = part};
		rc = rc ? rc : mover_call_do(mover, store, &list);
		for (uint32_t i = 0; rc == 0 && i < list.got / sizeof(*part); i++)
			mover_group_keys_add(keys, part[i]);
		cursor = list.value;
	} while (rc == 0 && cursor != 0);
	free(part);
	return rc;
}

int mover_work_list(struct mover *mover, unsigned store, uint64_t id, struct mover_keys *keys)
{
	return list_all(mover, store, (struct xseg_key){.volume = id}, keys);
}

static int list_group(struct mover *mover, unsigned store, const struct mover_group *group,
	struct mover_keys *keys)
{
	int rc = 0;
	for (uint32_t i = 0; i < group->count && rc == 0; i++)
		rc = mover_work_list(mover, store, group->ids[i], keys);
	return rc;
}

/* Whose name is it? 0: nobody's, or it cannot be read. */
static int name_of(struct mover *mover, unsigned store, struct xseg_key key, uint64_t *id)
{
	struct record record;
	int rc = record_get(mover, store, key, &record);
	*id = 0;
	if (rc == 0 && record.size >= MOVER_NAME_ID + sizeof(*id))
		memcpy(id, record.bytes + MOVER_NAME_ID, sizeof(*id));
	return rc == -ENOENT || rc == -EILSEQ ? 0 : rc;
}

/*
 * Of the group, or (NULL) all; `only_look`: just say whether they can go. One that is another's in
 * the other store stays: -ENOTUNIQ.
 */
static int move_names(struct mover *mover, const struct mover_group *group, unsigned from,
	unsigned to, bool only_look)
{
	struct mover_keys keys = {0};
	bool clash = false;
	int rc = list_all(mover, from, (struct xseg_key){.epoch = XSEG_EPOCH_NAME}, &keys);
	for (size_t i = 0; i < keys.count && rc == 0; i++) {
		uint64_t id, other = 0;
		rc = name_of(mover, from, keys.all[i], &id);
		if (rc != 0 || id == 0 || (group && !has_id(group, id)))
			continue;
		rc = name_of(mover, to, keys.all[i], &other);
		bool clashes = other != 0 && other != id;
		clash |= clashes;
		if (rc == 0 && !clashes && !only_look)
			rc = record_move(mover, from, keys.all[i], to, keys.all[i]);
	}
	free(keys.all);
	return rc == 0 && clash ? -ENOTUNIQ : rc;
}

/* --- what is on its way ---------------------------------------------------------------------- */

/* Is it a request of the group, or (NULL) about a name, that we have handed on? */
static bool handed_on(const struct mover *mover, const struct mover_group *group,
	const struct xseg_request *request, unsigned frame, bool records)
{
	struct xseg_key key = request->frame[frame].key;
	if (request->frame[frame].port != mover->peer->port)
		return false;
	if (!group)
		return key.epoch == XSEG_EPOCH_NAME;
	return (!records || store_record_is(&key)) && has_id(group, key.volume);
}

static uint32_t count_handed_on(
	const struct mover *mover, const struct mover_group *group, bool records)
{
	const struct xseg *seg = peer_segment(mover->peer);
	uint32_t count = 0;
	for (uint32_t i = 0; i < seg->request_count; i++) {
		const struct xseg_request *request = &seg->requests[i];
		uint64_t word = atomic_load_explicit(&request->word, memory_order_acquire);
		unsigned state = xseg_word_state(word), frames = xseg_word_frame(word);
		if (state != XSEG_REQUEST_SUBMITTED && state != XSEG_REQUEST_TAKEN)
			continue;
		for (unsigned k = 0; k < frames && k < XSEG_FRAMES; k++)
			count += handed_on(mover, group, request, k, records);
	}
	return count;
}

/* Until what was handed on before requests were counted or held has been answered. */
static void wait_handed_on(const struct mover *mover, const struct mover_group *group, bool records)
{
	while (count_handed_on(mover, group, records) > 0 && !atomic_load(&mover->stopping))
		time_nap(LOOK_NS);
}

static bool is_record_handed_on(
	const struct mover *mover, const struct xseg_request *request, uint64_t word)
{
	unsigned state = xseg_word_state(word), frames = xseg_word_frame(word);
	bool found = false;
	for (unsigned k = 0; k < frames && k < XSEG_FRAMES; k++)
		found |= request->frame[k].port == mover->peer->port &&
			 store_record_is(&request->frame[k].key);
	return found && (state == XSEG_REQUEST_SUBMITTED || state == XSEG_REQUEST_TAKEN);
}

/* Until what was handed on so far about records of any volume has been answered. */
static void wait_records(const struct mover *mover)
{
	const struct xseg *seg = peer_segment(mover->peer);
	for (uint32_t i = 0; i < seg->request_count; i++) {
		const struct xseg_request *request = &seg->requests[i];
		uint64_t first = atomic_load_explicit(&request->word, memory_order_acquire);
		uint64_t word = first;
		while (is_record_handed_on(mover, request, word) &&
			xseg_word_generation(word) == xseg_word_generation(first) &&
			!atomic_load(&mover->stopping)) {
			time_nap(LOOK_NS);
			word = atomic_load_explicit(&request->word, memory_order_acquire);
		}
	}
}

/* What a killed predecessor had sent, or handed on, to either store: nothing is asked for now. */
static void wait_stores(const struct mover *mover, const struct mover_group *group)
{
	const struct peer *peer = mover->peer;
	const struct xseg *seg = peer_segment(peer);
	uint32_t old = xseg_edge_port(seg, peer->edge[MOVER_OLD]);
	uint32_t new = xseg_edge_port(seg, peer->edge[MOVER_NEW]);
	bool out = true;
	while (out && !atomic_load(&mover->stopping)) {
		out = false;
		for (uint32_t i = 0; i < seg->request_count && !out; i++) {
			const struct xseg_request *request = &seg->requests[i];
			uint64_t word = atomic_load_explicit(&request->word, memory_order_acquire);
			unsigned state = xseg_word_state(word), last = xseg_word_frame(word);
			if (state != XSEG_REQUEST_SUBMITTED && state != XSEG_REQUEST_TAKEN)
				continue;
			struct xseg_frame frame = request->frame[last % XSEG_FRAMES];
			out = has_id(group, frame.key.volume) &&
			      (frame.port == old || frame.port == new);
		}
		if (out)
			time_nap(LOOK_NS);
	}
}

/* --- changes ------------------------------------------------------------------------------ */

/* Another one's late writes are refused in the new store as in the old one. -EBUSY: another host
   has it, which would go on as if nothing had moved. */
static int fence(struct mover *mover, const struct mover_group *group, unsigned from, unsigned to)
{
	struct record home;
	for (uint32_t i = 0; i < group->count; i++) {
		struct xseg_key key = record_key(group->ids[i], 0, false);
		uint64_t owner, term, line;
		int rc = record_get(mover, from, key, &home);
		if (rc == -ENOENT)
			continue;
		if (rc != 0 || home.size < MOVER_HOME_SIZE)
			return rc ? rc : -EILSEQ;
		memcpy(&owner, home.bytes + MOVER_HOME_OWNER, sizeof(owner));
		memcpy(&term, home.bytes + MOVER_HOME_TERM, sizeof(term));
		memcpy(&line, home.bytes + MOVER_HOME_LINE, sizeof(line));
		if (owner != 0 && owner != map_owner_of(peer_segment(mover->peer)))
			return -EBUSY;
		struct mover_call ask = {.op = XSEG_OP_CONTROL,
			.key = {.volume = group->ids[i]},
			.arg0 = XSEG_CONTROL_FENCE,
			.arg1 = term,
			.offset = line};
		rc = owner ? mover_call_do(mover, to, &ask) : 0;
		if (rc != 0 && rc != -EOPNOTSUPP)
			return rc;
	}
	return 0;
}

/* One that cannot be read could not be moved. */
static int check_records(struct mover *mover, const struct mover_group *group, unsigned store)
{
	struct record record;
	int rc = 0;
	for (uint32_t i = 0; i < group->count && rc == 0; i++)
		for (unsigned n = 0; n < RECORDS && rc == 0; n++) {
			rc = record_get(mover, store, record_key(group->ids[i], n, false), &record);
			rc = rc == -ENOENT ? 0 : rc;
		}
	return rc;
}

static void complain(const struct mover *mover, const char *what, int rc)
{
	log_error("mover", "%s: %s: %s; it is tried again until that works", mover->peer->name,
		what, strerror(-rc));
}

/* The records show where they did: without them nobody can use the volumes. */
static void take_back(struct mover *mover, const struct mover_group *group)
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

/* With which volumes it shares objects, as the half that counts says: its parent and all owners. */
static int relatives_of(struct mover *mover, unsigned store, uint64_t id, uint64_t ids[RELATIVES])
{
	struct record half[2];
	uint64_t generation[2] = {0, 0};
	for (unsigned i = 0; i < 2; i++) {
		struct xseg_key key = {.volume = id, .epoch = XSEG_EPOCH_VOLUME, .object = i};
		int rc = record_get(mover, store, key, &half[i]);
		if (rc != 0 && rc != -ENOENT && rc != -EILSEQ)
			return rc;
		if (rc == 0 && half[i].size == XSEG_RECORD_MAX)
			memcpy(&generation[i], half[i].bytes + MOVER_GENERATION,
				sizeof(*generation));
	}
	unsigned last = generation[1] > generation[0];
	memset(ids, 0, RELATIVES * sizeof(*ids));
	if (generation[last] == 0)
		return 0;
	memcpy(ids, half[last].bytes + MOVER_PARENT, sizeof(*ids));
	memcpy(ids + 1, half[last].bytes + MOVER_OWNERS, MOVER_OWNERS_COUNT * sizeof(*ids));
	return 0;
}

/* Who was made after whoever asks for it had put the group together, and with whom that one shares
   objects. From now on such join it. */
static int find_family(struct mover *mover, struct mover_task *task, unsigned from)
{
	uint64_t ids[RELATIVES];
	struct mover_keys keys = {0};
	wait_records(mover);
	int rc = list_all(mover, from, (struct xseg_key){.epoch = XSEG_EPOCH_VOLUME}, &keys);
	for (size_t i = 0; i < keys.count && rc == 0; i++) {
		uint64_t id = keys.all[i].volume;
		bool related = false;
		/* the first writing is in that half */
		if (keys.all[i].object != 1 || has_id(task->group, id))
			continue;
		rc = relatives_of(mover, from, id, ids);
		for (unsigned k = 0; k < RELATIVES && rc == 0; k++)
			related |= ids[k] != 0 && has_id(task->group, ids[k]);
		if (related)
			mover_group_keys_add(&task->family, keys.all[i]);
		for (unsigned k = 0; k < RELATIVES && related; k++)
			if (ids[k] != 0 && !has_id(task->group, ids[k]))
				mover_group_keys_add(
					&task->family, (struct xseg_key){.volume = ids[k]});
	}
	free(keys.all);
	return rc;
}

static int change_from_rest(struct mover *mover, struct mover_task *task)
{
	const struct mover_group *group = task->group;
	unsigned from = !task->to;
	wait_handed_on(mover, group, false);
	int rc = task->complete ? 0 : find_family(mover, task, from);
	if (rc != 0 || task->family.count > 0)
		return rc;
	rc = check_records(mover, group, from);
	if (rc == 0)
		rc = move_names(mover, group, from, task->to, true);
	if (rc == 0)
		rc = fence(mover, group, from, task->to);
	if (rc == 0)
		rc = group_put(mover, group, MOVER_TAKING, task->to);
	if (rc != 0)
		return rc;
	rc = hide(mover, group, from);
	if (rc == 0)
		rc = list_group(mover, from, group, &task->members);
	if (rc == 0)
		rc = list_group(mover, task->to, group, &task->copies);
	if (rc == 0)
		rc = group_put(mover, group, MOVER_COPYING, task->to);
	if (rc != 0)
		take_back(mover, group);
	return rc;
}

/* Parts of copies must go before the other store is the one that is looked into first. */
static int sweep_litter(struct mover *mover, const struct mover_task *task)
{
	int rc = 0;
	for (size_t i = 0; i < task->litter.count && rc == 0; i++) {
		struct mover_call gone = {.op = XSEG_OP_DELETE, .key = task->litter.all[i]};
		rc = mover_call_do(mover, task->group->to, &gone);
	}
	return rc;
}

static int change_back(struct mover *mover, struct mover_task *task)
{
	const struct mover_group *group = task->group;
	wait_handed_on(mover, group, false);
	int rc = sweep_litter(mover, task);
	if (rc == 0)
		rc = list_group(mover, group->to, group, &task->members);
	return rc == 0 ? group_put(mover, group, MOVER_COPYING, task->to) : rc;
}

void mover_work_change(struct worker_item *item)
{
	struct mover_task *task = task_of(item);
	bool back = task->group->phase == MOVER_COPYING;
	task->error = back ? change_back(task->mover, task) : change_from_rest(task->mover, task);
}

/* --- the end of a group's way ---------------------------------------------------------------- */

static int settle(struct mover *mover, const struct mover_group *group)
{
	int rc = group_put(mover, group, MOVER_SETTLING, group->to);
	if (rc == 0)
		rc = move_names(mover, group, !group->to, group->to, false);
	if (rc == -ENOTUNIQ) {
		log_warning("mover",
			"%s: the store has a volume of that name by now; one is found by it only "
			"as long as the mover is there: rename it",
			mover->peer->name);
		rc = 0;
	}
	if (rc == 0)
		rc = show(mover, group, group->to);
	return rc == 0 ? group_delete(mover, group) : rc;
}

void mover_work_settle(struct worker_item *item)
{
	struct mover_task *task = task_of(item);
	struct mover *mover = task->mover;
	bool said = false;
	wait_handed_on(mover, task->group, true);
	wait_handed_on(mover, NULL, true);
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
	wait_handed_on(task->mover, NULL, true);
	task->error = move_names(task->mover, NULL, MOVER_OLD, MOVER_NEW, false);
}

void mover_work_join(struct worker_item *item)
{
	struct mover_task *task = task_of(item);
	struct mover_group next = *task->group;
	next.ids[next.count++] = task->id;
	task->error = group_put(task->mover, &next, next.phase, next.to);
}

/* --- the start ------------------------------------------------------------------------------ */

/* What was cut off is brought to its end first. */
static int load_end(struct mover *mover, struct mover_loaded *loaded)
{
	struct mover_group *group = loaded->group;
	int rc = 0;
	wait_stores(mover, group);
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
		rc = list_group(mover, !group->to, group, &loaded->members);
	if (rc == 0 && group->phase == MOVER_COPYING)
		rc = list_group(mover, group->to, group, &loaded->copies);
	return rc;
}

static int load_one(struct mover *mover, struct mover_task *task, struct xseg_key key)
{
	struct record record;
	int rc = record_get(mover, MOVER_NEW, key, &record);
	if (rc != 0)
		return rc;
	struct mover_loaded *loaded = calloc(1, sizeof(*loaded));
	struct mover_group *group = calloc(1, sizeof(*group));
	must(loaded && group);
	rc = mover_group_decode(record.bytes, record.size, group);
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

/* A volume in the new store, with whoever it shares objects with. Those of groups are known by the
   time that these are added. */
static int load_resident(struct mover *mover, struct mover_task *task, uint64_t id)
{
	uint64_t ids[1 + RELATIVES] = {id};
	int rc = relatives_of(mover, MOVER_NEW, id, ids + 1);
	for (unsigned i = 0; i < 1 + RELATIVES; i++)
		if (ids[i] != 0)
			mover_group_keys_add(&task->residents, (struct xseg_key){.volume = ids[i]});
	return rc;
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
	struct xseg_key of = {.epoch = XSEG_EPOCH_VOLUME};
	int rc = list_all(mover, MOVER_NEW, of, &keys);
	for (size_t i = 0; i < keys.count && rc == 0; i++)
		if (keys.all[i].object & MOVER_GROUP_OBJECT)
			rc = load_one(mover, task, keys.all[i]);
		else if (keys.all[i].object == 1) /* the first writing is in that half */
			rc = load_resident(mover, task, keys.all[i].volume);
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
