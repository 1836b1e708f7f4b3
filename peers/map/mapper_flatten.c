/* SPDX-License-Identifier: Apache-2.0 */
/*
 * MAP_FLATTEN: what a volume shares becomes its own, some objects at a time. An object is copied
 * out of all those that it is made of, down the chain of parents; when the copies are durable, the
 * map is told. Killed in the middle, the same is done again.
 *
 * Resizing a volume to the middle of an object uses the same: what lies behind the new end must
 * read as zeros if the volume grows again.
 */
#include <base/crash.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "peers/map/mapper.h"

#define FLATTEN_OBJECTS 16u /* in one request */
#define CHAIN_MAX 4096u	    /* parents of an object; more is damage */
#define ZEROS_SIZE (64u << 10)

struct flatten {
	struct mapper_task *task;
	const struct map_volume *volume;
	struct {
		uint32_t object;
		struct map_entry entry;
	} found[FLATTEN_OBJECTS];
	unsigned count;
	bool looks;  /* copies nothing */
	bool shared; /* and has seen what would have to be copied */
};

/* --- one object ----------------------------------------------------------------------------- */

struct source {
	uint64_t owner;
	uint32_t epoch, flags;
};

static bool bit(const uint64_t bits[MAP_BITMAP_WORDS], uint32_t i)
{
	return bits[i / 64] >> (i % 64) & 1;
}

/* Copies the runs of clusters that are wanted and (has not NULL) there; they are wanted no more. */
static int copy_runs(struct map_store *store, struct xseg_key to, struct xseg_key from,
	uint32_t clusters, uint64_t wanted[MAP_BITMAP_WORDS], const uint64_t *has)
{
	for (uint32_t i = 0; i < clusters;) {
		uint32_t end = i;
		while (end < clusters && bit(wanted, end) && (!has || bit(has, end))) {
			wanted[end / 64] &= ~(1ull << (end % 64));
			end++;
		}
		if (end > i) {
			int rc = store->copy(
				store, to, from, i * MAP_CLUSTER, (end - i) * MAP_CLUSTER);
			if (rc < 0)
				return rc;
		}
		i = end > i ? end : i + 1;
	}
	return 0;
}

/* All that is wanted of the object `to`, out of the chain that begins with `source`. */
static int copy_chain(struct map_store *store, struct xseg_key to, struct source source,
	uint32_t clusters, uint64_t wanted[MAP_BITMAP_WORDS])
{
	for (unsigned depth = 0; depth < CHAIN_MAX; depth++) {
		struct xseg_key from = {
			.volume = source.owner, .epoch = source.epoch, .object = to.object};
		struct map_bitmap bitmap;
		if (!(source.flags & MAP_PARTIAL))
			return copy_runs(store, to, from, clusters, wanted, NULL);
		int rc = map_bitmap_read(store, source.owner, source.epoch, to.object, &bitmap);
		if (rc != 0)
			return rc == -ENOENT ? -EILSEQ : rc;
		bool same = from.volume == to.volume && from.epoch == to.epoch;
		if (same) /* it has them already */
			for (unsigned i = 0; i < MAP_BITMAP_WORDS; i++)
				wanted[i] &= ~bitmap.has[i];
		else
			rc = copy_runs(store, to, from, clusters, wanted, bitmap.has);
		if (rc != 0)
			return rc;
		source = (struct source){
			bitmap.parent_owner, bitmap.parent_epoch, bitmap.parent_flags};
	}
	return -EILSEQ;
}

/*
 * The first `clusters` of an object, as one of the volume's own. What lies at its place is either
 * what the map says, or a leftover that nobody knows.
 */
static int make_own(struct mapper_task *task, const struct map_volume *volume, uint32_t object,
	struct map_entry entry, uint32_t clusters, struct map_delta *deltas)
{
	struct map_store *store = mapper_task_store(task);
	bool in_place = entry.owner == volume->self && entry.epoch > volume->frozen;
	uint64_t wanted[MAP_BITMAP_WORDS] = {0};
	struct xseg_key to = {.volume = volume->id,
		.epoch = in_place ? entry.epoch : volume->epoch,
		.object = object};
	struct source source = {volume->owners[entry.owner], entry.epoch, entry.flags};
	memset(deltas, 0, sizeof(*deltas));
	deltas->object = object;
	deltas->epoch = to.epoch;
	deltas->flags = entry.flags & MAP_ZERO ? MAP_UPDATE_HOLE : 0;
	if (entry.flags & MAP_ZERO)
		return 0;
	if (in_place && !(entry.flags & MAP_PARTIAL))
		return 0;
	int rc = in_place ? 0 : store->discard(store, to);
	for (uint32_t i = 0; i < clusters; i++)
		wanted[i / 64] |= 1ull << (i % 64);
	return rc != 0 ? rc : copy_chain(store, to, source, clusters, wanted);
}

/* --- some of them --------------------------------------------------------------------------- */

static int flatten_visit(struct map_walk *walk, uint32_t object, struct map_entry entry)
{
	struct flatten *flatten = walk->context;
	if (entry.owner == flatten->volume->self && !(entry.flags & MAP_PARTIAL))
		return 0;
	if (flatten->looks && !(entry.flags & MAP_ZERO)) {
		flatten->shared = true;
		return 1;
	}
	flatten->found[flatten->count].object = object;
	flatten->found[flatten->count].entry = entry;
	return ++flatten->count == FLATTEN_OBJECTS;
}

static int flatten_found(struct flatten *flatten, struct map_head *head)
{
	struct mapper_task *task = flatten->task;
	struct map_store *store = mapper_task_store(task);
	struct map_delta deltas[FLATTEN_OBJECTS];
	uint32_t clusters = head->volume.object_size / MAP_CLUSTER;
	int rc = 0;
	for (unsigned i = 0; i < flatten->count && rc == 0; i++)
		rc = make_own(task, &head->volume, flatten->found[i].object,
			flatten->found[i].entry, clusters, &deltas[i]);
	crash_point("mapper.flatten.copied");
	if (rc == 0)
		rc = store->flush(store, task->volume);
	if (rc == 0)
		rc = map_update(store, task->volume, deltas, flatten->count, head);
	crash_point("mapper.flatten.updated");
	return rc;
}

/* A volume that nobody has open may have leftovers in its epoch: a new one has none. */
static int fresh_head(struct mapper_task *task, struct map_head *head)
{
	struct map_store *store = mapper_task_store(task);
	if (task->guarded)
		return map_change_epoch(store, task->volume, false, head);
	return map_record_open(store, task->volume, head);
}

int mapper_flatten_run(struct mapper_task *task)
{
	struct map_store *store = mapper_task_store(task);
	struct map_head head;
	bool looks = task->arg == MAP_FLATTEN_LOOK;
	uint64_t from = looks ? 0 : task->arg;
	int rc = from > UINT32_MAX ? -EINVAL : map_record_open(store, task->volume, &head);
	if (rc == 0 && (head.volume.flags & MAP_SNAPSHOT))
		rc = -EPERM;
	if (rc == 0)
		rc = mapper_lease_guard_begin(task, task->volume);
	if (rc == 0)
		rc = fresh_head(task, &head);
	if (rc != 0)
		return rc;
	struct flatten flatten = {.task = task, .volume = &head.volume, .looks = looks};
	struct map_walk walk = {.visit = flatten_visit, .context = &flatten};
	rc = map_tree_walk(store, &head.volume, (uint32_t)from, &walk);
	if (rc >= 0 && flatten.shared)
		return 0; /* value 0: from the first on once more */
	bool more = rc == 1, again = false;
	if (rc >= 0)
		rc = flatten.count > 0 ? flatten_found(&flatten, &head) : 0;
	if (rc == 0 && !more) {
		rc = map_change_detach(store, task->volume);
		again = rc == -ENOTEMPTY && from > 0; /* something before arg1 is shared */
		rc = again ? 0 : rc;
	}
	if (rc != 0)
		return rc;
	task->amount = flatten.count;
	task->value = again ? 0 : more ? flatten.found[flatten.count - 1].object + 1u : UINT64_MAX;
	return 0;
}

/* --- the end of a volume within an object --------------------------------------------------- */

static int write_zeros(struct map_store *store, struct xseg_key key, uint32_t offset, uint32_t end)
{
	uint8_t *zeros = calloc(1, ZEROS_SIZE);
	int rc = zeros ? 0 : -ENOMEM;
	while (rc == 0 && offset < end) {
		uint32_t left = end - offset, length = left < ZEROS_SIZE ? left : ZEROS_SIZE;
		rc = store->write(store, key, offset, zeros, length);
		offset += length;
	}
	free(zeros);
	return rc < 0 ? rc : 0;
}

int mapper_flatten_cut(struct mapper_task *task, uint64_t size)
{
	struct map_store *store = mapper_task_store(task);
	struct map_head head;
	struct map_entry entry;
	struct map_delta deltas;
	int rc = map_record_open(store, task->volume, &head);
	if (rc != 0)
		return rc;
	uint32_t end = head.volume.object_size, tail = (uint32_t)(size % end);
	if (size >= head.volume.size || tail == 0 || size % XSEG_SECTOR != 0 ||
		(head.volume.flags & MAP_SNAPSHOT))
		return 0;
	if (task->guarded)
		rc = map_change_epoch(store, task->volume, false, &head);
	uint32_t object = (uint32_t)(size / end), clusters = (tail - 1) / MAP_CLUSTER + 1;
	if (rc == 0)
		rc = map_tree_entry(store, &head.volume, object, &entry);
	if (rc != 0 || map_entry_is_hole(entry) || (entry.flags & MAP_ZERO))
		return rc;
	rc = make_own(task, &head.volume, object, entry, clusters, &deltas);
	struct xseg_key key = {.volume = task->volume, .epoch = deltas.epoch, .object = object};
	/* one that is new has nothing behind its last cluster */
	if (deltas.epoch != entry.epoch || entry.owner != head.volume.self)
		end = clusters * MAP_CLUSTER;
	if (rc == 0)
		rc = write_zeros(store, key, tail, end);
	crash_point("mapper.cut.written");
	if (rc == 0)
		rc = store->flush(store, task->volume);
	return rc == 0 ? map_update(store, task->volume, &deltas, 1, &head) : rc;
}
