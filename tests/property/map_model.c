/* SPDX-License-Identifier: Apache-2.0 */
/* The tables, the composer of a few lines, and the comparison of the two. */
#include "tests/property/map_model.h"

#include <base/must.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

static const uint32_t objects[MODEL_OBJECTS] = {0, 1, 511, 512, 65535, 65536, 200000};
static const uint32_t sizes[MODEL_SIZES] = {0, 1, 2, 512, 513, 65536, 65537, 200001};
static const char *const kinds[MODEL_KINDS] = {"write", "zero", "hole", "flatten", "create",
	"snapshot", "clone", "rollback", "resize", "rename", "remove", "protect", "epoch",
	"cleanup", "detach"};

uint32_t model_object(unsigned index) { return objects[index]; }
uint32_t model_size(unsigned index) { return sizes[index]; }
const char *model_kind_name(enum model_kind kind) { return kinds[kind]; }
bool model_is_data(enum model_kind kind) { return kind <= MODEL_FLATTEN; }

/* One is as long as may be, one is not of letters as we know them. */
const char *model_name(unsigned index)
{
	static char names[MODEL_NAMES][VOLUME_NAME_LENGTH_MAX + 1];
	char *name = names[index];
	if (name[0] == 0 && index == 0)
		memset(name, 'x', VOLUME_PART_MAX);
	else if (name[0] == 0)
		snprintf(name, sizeof(names[0]), index % 2 ? "disk %u" : "\xe7\xa3\x81%u", index);
	return name;
}

void model_init(struct model *model)
{
	memset(model, 0, sizeof(*model));
	model->next_id = MODEL_ID;
	model->next_token = 1;
}

/* --- the tables ------------------------------------------------------------------------------- */

const struct model_volume *model_find(const struct model *model, uint64_t id)
{
	for (unsigned i = 0; i < MODEL_VOLUMES; i++)
		if (model->volumes[i].there && model->volumes[i].id == id)
			return model->volumes[i].removing ? NULL : &model->volumes[i];
	return NULL;
}

unsigned model_count(const struct model *model)
{
	unsigned count = 0;
	for (unsigned i = 0; i < MODEL_VOLUMES; i++)
		count += model->volumes[i].there;
	return count;
}

static const struct model_volume *bearer_of(const struct model *model, unsigned name)
{
	for (unsigned i = 0; i < MODEL_VOLUMES; i++)
		if (model->volumes[i].there && model->volumes[i].name == name)
			return &model->volumes[i];
	return NULL;
}

static bool has_children(const struct model *model, uint64_t id)
{
	for (unsigned i = 0; i < MODEL_VOLUMES; i++)
		if (model->volumes[i].there && model->volumes[i].parent == id)
			return true;
	return false;
}

static struct model_volume *room_of(struct model *model)
{
	for (unsigned i = 0; i < MODEL_VOLUMES; i++)
		if (!model->volumes[i].there)
			return &model->volumes[i];
	must(!"room for a volume");
	return NULL;
}

static void apply_resize(struct model_volume *volume, uint32_t size)
{
	volume->size = size;
	for (unsigned i = 0; i < MODEL_OBJECTS; i++)
		if (objects[i] >= size)
			memset(volume->data[i], 0, sizeof(volume->data[i]));
}

static int apply_make(
	struct model *model, const struct model_op *op, const struct model_volume *from)
{
	if (bearer_of(model, op->name))
		return -EEXIST;
	if (op->kind != MODEL_CREATE && !from)
		return -ENOENT;
	if (op->kind == MODEL_SNAPSHOT && from->snapshot)
		return -EPERM;
	if (op->kind == MODEL_CLONE && op->size != 0 && op->size < from->size)
		return -EINVAL;
	struct model_volume made = {.there = true, .id = op->other, .name = op->name};
	made.snapshot = op->kind == MODEL_SNAPSHOT;
	made.size = op->kind == MODEL_CREATE || op->size > (from ? from->size : 0) ? op->size
										   : from->size;
	if (op->kind == MODEL_SNAPSHOT)
		made.size = from->size;
	if (from) {
		made.parent = from->id;
		memcpy(made.data, from->data, sizeof(made.data));
	}
	*room_of(model) = made;
	return 0;
}

/* id 0: all that are half removed. */
static int apply_removed(struct model *model, uint64_t id)
{
	for (unsigned i = 0; i < MODEL_VOLUMES; i++)
		if (model->volumes[i].removing && (id == 0 || model->volumes[i].id == id))
			model->volumes[i] = (struct model_volume){0};
	return 0;
}

static int apply_remove(struct model *model, struct model_volume *volume)
{
	if (volume->protected)
		return -EPERM;
	if (has_children(model, volume->id))
		return -ENOTEMPTY;
	volume->there = false;
	return 0;
}

static int apply_data(struct model_volume *volume, const struct model_op *op)
{
	if (volume->snapshot)
		return -EPERM;
	uint32_t *data = volume->data[op->object];
	for (unsigned i = 0; i < MODEL_CLUSTERS && op->kind != MODEL_FLATTEN; i++)
		if (op->kind != MODEL_WRITE || op->mask & 1u << i)
			data[i] = op->token;
	return 0;
}

static int apply_rollback(
	struct model *model, struct model_volume *volume, const struct model_op *op)
{
	const struct model_volume *from = model_find(model, op->other);
	if (volume->snapshot)
		return -EPERM;
	if (!from)
		return -ENOENT;
	if (!from->snapshot || from->parent != volume->id)
		return -EINVAL;
	volume->size = from->size;
	memcpy(volume->data, from->data, sizeof(volume->data));
	return 0;
}

static int apply_rename(struct model *model, struct model_volume *volume, unsigned name)
{
	const struct model_volume *bearer = bearer_of(model, name);
	if (bearer && bearer != volume)
		return -EEXIST;
	volume->name = name;
	return 0;
}

int model_apply(struct model *model, const struct model_op *op)
{
	struct model_volume *volume = (struct model_volume *)model_find(model, op->id);
	if (op->kind == MODEL_CLEANUP)
		return apply_removed(model, 0);
	if (op->kind == MODEL_CREATE || op->kind == MODEL_SNAPSHOT || op->kind == MODEL_CLONE)
		return apply_make(model, op, op->kind == MODEL_CREATE ? NULL : volume);
	if (op->kind == MODEL_REMOVE)
		return volume ? apply_remove(model, volume) : apply_removed(model, op->id);
	if (!volume)
		return -ENOENT;
	if (op->kind == MODEL_RENAME)
		return apply_rename(model, volume, op->name);
	if (op->kind == MODEL_PROTECT) {
		volume->protected = op->flag;
		return 0;
	}
	if (volume->snapshot)
		return -EPERM;
	if (op->kind == MODEL_ROLLBACK)
		return apply_rollback(model, volume, op);
	if (op->kind == MODEL_RESIZE)
		apply_resize(volume, op->size);
	if (model_is_data(op->kind))
		return objects[op->object] < volume->size || op->kind == MODEL_FLATTEN
			       ? apply_data(volume, op)
			       : -EINVAL;
	if (op->kind != MODEL_DETACH || volume->parent == 0)
		return 0;
	if (!op->flag)
		return -ENOTEMPTY;
	volume->parent = 0;
	return 0;
}

/* --- the composer ----------------------------------------------------------------------------- */

static int read_sector(struct map_store *store, struct xseg_key key, unsigned cluster, uint32_t *to)
{
	uint8_t bytes[XSEG_SECTOR];
	int rc = store->read(store, key, cluster * MAP_CLUSTER, bytes, sizeof(bytes));
	memcpy(to, bytes, sizeof(*to));
	return rc < 0 ? rc : 0;
}

/* Down the chain of parents: what the first that has a cluster says. */
static int read_object(struct map_store *store, const struct map_volume *volume, uint32_t object,
	uint32_t to[MODEL_CLUSTERS])
{
	struct map_entry entry;
	unsigned missing = (1u << MODEL_CLUSTERS) - 1;
	memset(to, 0, MODEL_CLUSTERS * sizeof(*to));
	int rc = map_tree_entry(store, volume, object, &entry);
	if (rc != 0 || map_entry_is_hole(entry) || entry.flags & MAP_ZERO)
		return rc;
	struct map_bitmap at = {.parent_owner = volume->owners[entry.owner],
		.parent_epoch = entry.epoch,
		.parent_flags = entry.flags};
	while (missing != 0 && rc == 0) {
		struct xseg_key key = {at.parent_owner, at.parent_epoch, object};
		bool partial = at.parent_flags & MAP_PARTIAL;
		if (partial)
			rc = map_bitmap_read(store, key.volume, key.epoch, object, &at);
		for (unsigned i = 0; i < MODEL_CLUSTERS && rc == 0; i++)
			if (missing & 1u << i && (!partial || at.has[0] & (uint64_t)1 << i)) {
				missing &= ~(1u << i);
				rc = read_sector(store, key, i, &to[i]);
			}
	}
	return rc;
}

static int write_clusters(struct map_store *store, struct xseg_key key, unsigned mask,
	const uint32_t tokens[MODEL_CLUSTERS])
{
	int rc = 0;
	for (unsigned i = 0; i < MODEL_CLUSTERS && rc == 0; i++) {
		uint32_t sector[XSEG_SECTOR / sizeof(uint32_t)];
		for (unsigned j = 0; j < XSEG_SECTOR / sizeof(uint32_t); j++)
			sector[j] = tokens[i];
		if (mask & 1u << i)
			rc = store->write(store, key, i * MAP_CLUSTER, sector, sizeof(sector));
	}
	return rc < 0 ? rc : store->flush(store, key.volume);
}

static bool is_ours(const struct map_volume *volume, struct map_entry entry)
{
	return !map_entry_is_hole(entry) && !(entry.flags & MAP_ZERO) &&
	       entry.owner == volume->self && entry.epoch > volume->frozen;
}

static int open_ready(struct map_store *store, uint64_t id, struct map_head *head)
{
	int rc = map_record_open(store, id, head);
	return rc == 0 && head->volume.state != XSEG_VOLUME_READY ? -ENOENT : rc;
}

/* In place if it is ours alone; else a child, partial unless there is nothing below it. */
static int write_object(struct map_store *store, uint64_t id, uint32_t object, unsigned mask,
	const uint32_t tokens[MODEL_CLUSTERS])
{
	struct map_head head;
	struct map_entry entry;
	struct map_bitmap bitmap;
	int rc = open_ready(store, id, &head);
	const struct map_volume *volume = &head.volume;
	if (rc == 0 && object < map_objects(volume))
		rc = map_tree_entry(store, volume, object, &entry);
	else if (rc == 0)
		entry = (struct map_entry){0};
	if (rc != 0)
		return rc;
	bool ours = is_ours(volume, entry), all = mask == (1u << MODEL_CLUSTERS) - 1;
	struct map_delta deltas = {.object = object, .epoch = ours ? entry.epoch : volume->epoch};
	if (ours && entry.flags & MAP_PARTIAL) {
		rc = map_bitmap_read(store, id, entry.epoch, object, &bitmap);
		deltas.parent_owner = bitmap.parent_owner;
		deltas.parent_epoch = bitmap.parent_epoch;
		deltas.parent_flags = bitmap.parent_flags;
		deltas.flags = MAP_PARTIAL;
	} else if (!ours && !all && !map_entry_is_hole(entry) && !(entry.flags & MAP_ZERO)) {
		deltas.parent_owner = volume->owners[entry.owner];
		deltas.parent_epoch = entry.epoch;
		deltas.parent_flags = entry.flags;
		deltas.flags = MAP_PARTIAL;
	}
	deltas.has[0] = mask;
	if (rc == 0 && !(volume->flags & MAP_SNAPSHOT) && object < map_objects(volume))
		rc = write_clusters(
			store, (struct xseg_key){id, deltas.epoch, object}, mask, tokens);
	return rc == 0 ? map_update(store, id, &deltas, 1, &head) : rc;
}

/* The name may be used again in this epoch: nothing may lie there. */
static int clear_object(struct map_store *store, uint64_t id, uint32_t object, uint32_t flags)
{
	struct map_head head;
	struct map_entry entry = {0};
	int rc = open_ready(store, id, &head);
	if (rc == 0 && object < map_objects(&head.volume))
		rc = map_tree_entry(store, &head.volume, object, &entry);
	if (rc != 0)
		return rc;
	struct map_delta deltas = {.object = object, .flags = flags, .epoch = head.volume.epoch};
	bool ours = is_ours(&head.volume, entry);
	rc = map_update(store, id, &deltas, 1, &head);
	if (rc == 0 && ours)
		rc = store->discard(store, (struct xseg_key){id, entry.epoch, object});
	return rc;
}

static int run_flatten(struct map_store *store, uint64_t id)
{
	struct map_head head;
	int rc = open_ready(store, id, &head);
	if (rc == 0 && head.volume.flags & MAP_SNAPSHOT)
		return -EPERM;
	for (unsigned i = 0; i < MODEL_OBJECTS && rc == 0; i++) {
		uint32_t tokens[MODEL_CLUSTERS];
		struct map_entry entry;
		if (objects[i] >= map_objects(&head.volume))
			continue;
		rc = map_tree_entry(store, &head.volume, objects[i], &entry);
		if (rc == 0)
			rc = read_object(store, &head.volume, objects[i], tokens);
		if (rc == 0 && entry.flags & MAP_ZERO)
			rc = clear_object(store, id, objects[i], MAP_UPDATE_HOLE);
		else if (rc == 0 && !map_entry_is_hole(entry))
			rc = write_object(
				store, id, objects[i], (1u << MODEL_CLUSTERS) - 1, tokens);
		if (rc == 0)
			rc = open_ready(store, id, &head);
	}
	return rc;
}

static int run_data(struct map_store *store, const struct model_op *op)
{
	uint32_t tokens[MODEL_CLUSTERS];
	for (unsigned i = 0; i < MODEL_CLUSTERS; i++)
		tokens[i] = op->token;
	if (op->kind == MODEL_FLATTEN)
		return run_flatten(store, op->id);
	if (op->kind == MODEL_WRITE)
		return write_object(store, op->id, objects[op->object], op->mask, tokens);
	return clear_object(store, op->id, objects[op->object],
		op->kind == MODEL_ZERO ? MAP_ZERO : MAP_UPDATE_HOLE);
}

int model_run(struct map_store *store, const struct model_op *op, bool fresh)
{
	struct map_head head;
	uint64_t bytes = (uint64_t)op->size * MODEL_OBJECT_SIZE, number;
	struct map_create create = {.id = op->other,
		.size = bytes,
		.created_ns = MODEL_CREATED_NS,
		.object_size = MODEL_OBJECT_SIZE,
		.state = XSEG_VOLUME_READY,
		.name = model_name(op->name)};
	int rc = fresh && model_is_data(op->kind) ? map_change_epoch(store, op->id, false, &head)
						  : 0;
	if (rc != 0)
		return rc;
	switch (op->kind) {
	case MODEL_CREATE: return map_create(store, &create, &head);
	case MODEL_SNAPSHOT: return map_create_snapshot(store, op->id, &create, &head);
	case MODEL_CLONE: return map_create_clone(store, op->id, &create, &head);
	case MODEL_ROLLBACK: return map_change_rollback(store, op->id, op->other, &head);
	case MODEL_RESIZE: return map_change_resize(store, op->id, bytes, &head);
	case MODEL_RENAME: return map_rename(store, op->id, model_name(op->name));
	case MODEL_REMOVE: return map_remove(store, op->id, &number);
	case MODEL_PROTECT:
		return map_change_flags(
			store, op->id, op->flag ? MAP_PROTECTED : 0, op->flag ? 0 : MAP_PROTECTED);
	case MODEL_EPOCH: return map_change_epoch(store, op->id, op->flag, &head);
	case MODEL_CLEANUP: return map_cleanup(store, MODEL_CREATED_NS + 1, &number);
	case MODEL_DETACH: return map_change_detach(store, op->id);
	default: return run_data(store, op);
	}
}

bool model_is_flat(struct map_store *store, uint64_t id)
{
	struct map_head head;
	bool flat = map_record_open(store, id, &head) == 0;
	for (unsigned i = 0; i < MAP_TOP_REFS && flat; i++)
		if (!map_ref_is_hole(head.volume.top[i]))
			flat = head.volume.top[i].owner == head.volume.self;
	for (unsigned i = 0; i < MODEL_OBJECTS && flat; i++) {
		struct map_entry entries[MAP_ENTRIES];
		struct map_ref ref;
		must(map_tree_page(store, &head.volume, objects[i] / MAP_ENTRIES, entries, &ref) ==
			0);
		struct map_entry entry = entries[objects[i] % MAP_ENTRIES];
		if (!map_ref_is_hole(ref) && ref.owner != head.volume.self)
			flat = false;
		else if (!map_entry_is_hole(entry) && !(entry.flags & MAP_ZERO))
			flat = entry.owner == head.volume.self && entry.flags == 0;
	}
	return flat;
}

/* --- the comparison --------------------------------------------------------------------------- */

static bool differs(bool loud, const char *what, uint64_t id, uint64_t found, uint64_t expected)
{
	if (loud)
		fprintf(stderr, "volume %llx: %s is %llx, not %llx\n", (unsigned long long)id, what,
			(unsigned long long)found, (unsigned long long)expected);
	return false;
}

static bool match_data(struct map_store *store, const struct map_volume *volume,
	const struct model_volume *a, const struct model_volume *b, bool loud)
{
	uint32_t tokens[MODEL_CLUSTERS];
	for (unsigned i = 0; i < MODEL_OBJECTS; i++) {
		if (objects[i] >= a->size)
			continue;
		int rc = read_object(store, volume, objects[i], tokens);
		if (rc != 0)
			return differs(loud, "error of an object", a->id, (uint64_t)-rc, 0);
		for (unsigned j = 0; j < MODEL_CLUSTERS; j++)
			if (tokens[j] != a->data[i][j] && tokens[j] != (b ? b : a)->data[i][j])
				return differs(loud, "a cluster", a->id, tokens[j], a->data[i][j]);
	}
	return true;
}

static bool match_volume(struct map_store *store, const struct model_volume *a,
	const struct model_volume *b, bool loud)
{
	struct map_head head;
	uint64_t id = 0;
	int rc = map_record_open(store, a->id, &head);
	if (a->removing && (rc != 0 || head.volume.state != XSEG_VOLUME_REMOVING))
		return differs(loud, "error of a half removed one", a->id, (uint64_t)-rc, 0);
	if (a->removing)
		return true;
	if (rc != 0 || head.volume.state != XSEG_VOLUME_READY)
		return differs(loud, "error", a->id, (uint64_t)-rc, 0);
	uint32_t flags = (a->snapshot ? MAP_SNAPSHOT : 0) | (a->protected ? MAP_PROTECTED : 0);
	if (map_objects(&head.volume) != a->size)
		return differs(loud, "size", a->id, map_objects(&head.volume), a->size);
	if (head.volume.flags != flags)
		return differs(loud, "flags", a->id, head.volume.flags, flags);
	if (head.volume.parent != a->parent)
		return differs(loud, "parent", a->id, head.volume.parent, a->parent);
	if (map_name_find(store, model_name(a->name), &id) != 0 || id != a->id)
		return differs(loud, "id of its name", a->id, id, a->id);
	return match_data(store, &head.volume, a, b, loud);
}

static int count_ready(void *context, uint64_t id, int error, const struct map_head *head)
{
	unsigned *count = context;
	(void)id;
	*count += error != 0 || head->volume.state == XSEG_VOLUME_READY;
	return 0;
}

static bool match_names(struct map_store *store, const struct model *model, bool loud)
{
	for (unsigned i = 0; i < MODEL_NAMES; i++) {
		struct map_head head;
		uint64_t id = 0;
		if (bearer_of(model, i) || map_name_find(store, model_name(i), &id) == -ENOENT)
			continue;
		if (map_record_open(store, id, &head) != 0 ||
			head.volume.state != XSEG_VOLUME_REMOVING)
			return differs(loud, "name of nobody", i, id, 0);
	}
	return true;
}

bool model_match(struct map_memory *memory, const struct model *a, const struct model *b, bool loud)
{
	struct map_store *store = &memory->store;
	unsigned count = 0, half = 0;
	for (unsigned i = 0; i < MODEL_VOLUMES; i++) {
		const struct model_volume *volume = &a->volumes[i];
		const struct model_volume *other = b ? model_find(b, volume->id) : NULL;
		half += volume->removing;
		if (volume->there && !match_volume(store, volume, other, loud))
			return false;
	}
	must(map_record_each(store, count_ready, &count) == 0);
	if (count + half != model_count(a))
		return differs(loud, "count", 0, count + half, model_count(a));
	return match_names(store, a, loud);
}

/* --- half done -------------------------------------------------------------------------------- */

static void see_removal(struct map_store *store, struct model_volume *volume)
{
	struct map_head head;
	uint64_t id = 0;
	int rc = map_record_open(store, volume->id, &head);
	must(rc == 0 || rc == -ENOENT);
	if (rc == -ENOENT) {
		*volume = (struct model_volume){0};
		return;
	}
	volume->removing = head.volume.state == XSEG_VOLUME_REMOVING;
	if (volume->removing && (volume->name == MODEL_NAMES ||
					map_name_find(store, model_name(volume->name), &id) != 0 ||
					id != volume->id))
		volume->name = MODEL_NAMES;
}

/*
 * Cluster by cluster, what was there or what was written. Whoever opens the volume next writes
 * under other names, and with its flush all stays as it was read.
 */
static bool see_data(struct map_store *store, struct model_volume *volume,
	const struct model_volume *after, unsigned object)
{
	uint32_t tokens[MODEL_CLUSTERS];
	struct map_head head;
	must(map_change_epoch(store, volume->id, false, &head) == 0);
	must(store->flush(store, volume->id) == 0);
	if (objects[object] >= volume->size)
		return true;
	if (read_object(store, &head.volume, objects[object], tokens) != 0)
		return false;
	for (unsigned i = 0; i < MODEL_CLUSTERS; i++) {
		uint32_t *token = &volume->data[object][i];
		if (tokens[i] != *token && tokens[i] != after->data[object][i])
			return differs(true, "a cluster", volume->id, tokens[i], *token);
		*token = tokens[i];
	}
	return true;
}

bool model_abandon(struct map_memory *memory, struct model *model, const struct model_op *op)
{
	struct map_store *store = &memory->store;
	struct model after = *model;
	bool done = model_apply(&after, op) == 0, right = true;
	struct model_volume *volume = (struct model_volume *)model_find(model, op->id);
	if (op->kind == MODEL_REMOVE || op->kind == MODEL_CLEANUP) {
		for (unsigned i = 0; i < MODEL_VOLUMES; i++)
			if (model->volumes[i].removing || (done && &model->volumes[i] == volume))
				see_removal(store, &model->volumes[i]);
	} else if (done && model_is_data(op->kind)) {
		right = see_data(store, volume, model_find(&after, op->id), op->object);
	} else if (!model_match(memory, model, NULL, false)) {
		*model = after;
	}
	return right && model_match(memory, model, NULL, true);
}

static uint64_t count_records(struct map_store *store, uint32_t epoch)
{
	struct xseg_key keys[64];
	uint64_t cursor = 0, count = 0;
	do {
		int rc = store->records(store, epoch, &cursor, keys, 64);
		must(rc >= 0);
		count += (uint64_t)rc;
	} while (cursor != 0);
	return count;
}

struct needs {
	bool owner[4096];
	uint64_t names, records;
};

static int count_needs(void *context, uint64_t id, int error, const struct map_head *head)
{
	struct needs *needs = context;
	(void)id;
	if (error != 0)
		return 0;
	needs->names++;
	needs->records += (head->version[0] != 0) + (head->version[1] != 0);
	for (unsigned i = 0; i < head->volume.owner_count; i++)
		needs->owner[head->volume.owners[i] - MODEL_ID] = true;
	return 0;
}

bool model_leftover(struct map_memory *memory, const struct model *model)
{
	struct needs needs = {0};
	must(model->next_id - MODEL_ID < 4096);
	must(map_record_each(&memory->store, count_needs, &needs) == 0);
	if (count_records(&memory->store, XSEG_EPOCH_VOLUME) != needs.records)
		return !differs(true, "records", 0, 0, needs.records);
	if (count_records(&memory->store, XSEG_EPOCH_NAME) != needs.names)
		return !differs(true, "names", 0, count_records(&memory->store, XSEG_EPOCH_NAME),
			needs.names);
	for (uint64_t id = MODEL_ID; id < model->next_id; id++)
		if (!needs.owner[id - MODEL_ID] && map_memory_objects(memory, id) != 0)
			return !differs(true, "objects", id, map_memory_objects(memory, id), 0);
	return false;
}
