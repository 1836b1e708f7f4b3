/* SPDX-License-Identifier: Apache-2.0 */
/* Groups, whose volumes they are, and what is known of their objects. */
#include <base/crc32c.h>
#include <base/hash.h>

#include "peers/mover/mover.h"

#define MAGIC "SKMOVER."
#define VERSION 1u
#define HEAD 24u /* magic, version, phase, to, count; then the ids, then the checksum */

static struct mover_id_chain *ids_of(const struct mover *mover, uint64_t id)
{
	return &mover->ids[(hash_u64(id) >> 32) % MOVER_ID_BUCKETS];
}

struct mover_group *mover_group_find(const struct mover *mover, uint64_t id)
{
	struct mover_id *entry;
	LIST_FOREACH (entry, ids_of(mover, id), chain)
		if (entry->id == id)
			return entry->group;
	return NULL;
}

bool mover_group_has(const struct mover_group *group, uint64_t id)
{
	for (uint32_t i = 0; i < group->count; i++)
		if (group->ids[i] == id)
			return true;
	return false;
}

static void id_note(struct mover *mover, struct mover_group *group, uint64_t id)
{
	struct mover_id *entry = calloc(1, sizeof(*entry));
	must(entry);
	*entry = (struct mover_id){.id = id, .group = group};
	LIST_INSERT_HEAD(ids_of(mover, id), entry, chain);
}

void mover_group_add(struct mover *mover, struct mover_group *group)
{
	LIST_INSERT_HEAD(&mover->groups, group, link);
	for (uint32_t i = 0; i < group->count; i++)
		id_note(mover, group, group->ids[i]);
}

bool mover_group_is_resident(const struct mover *mover, const struct mover_group *group)
{
	return group == &mover->resident;
}

bool mover_group_is_astray(const struct mover *mover, const struct mover_group *group)
{
	return group == &mover->astray[MOVER_OLD] || group == &mover->astray[MOVER_NEW];
}

bool mover_group_is_ours(const struct mover *mover, const struct mover_group *group)
{
	return group && !mover_group_is_resident(mover, group) &&
	       !mover_group_is_astray(mover, group);
}

static void id_forget(struct mover *mover, uint64_t id)
{
	struct mover_id *entry;
	LIST_FOREACH (entry, ids_of(mover, id), chain)
		if (entry->id == id) {
			LIST_REMOVE(entry, chain);
			free(entry);
			return;
		}
}

void mover_group_add_id(struct mover *mover, struct mover_group *group, uint64_t id)
{
	must(group->count < MOVER_IDS_MAX);
	id_forget(mover, id);
	group->ids[group->count++] = id;
	id_note(mover, group, id);
}

void mover_group_reside(struct mover *mover, uint64_t id)
{
	if (!mover_group_find(mover, id))
		id_note(mover, &mover->resident, id);
}

void mover_group_remove(struct mover *mover, struct mover_group *group)
{
	struct mover_object *object;
	while ((object = TAILQ_FIRST(&group->order)))
		mover_group_object_forget(mover, object);
	for (uint32_t i = 0; i < group->count; i++)
		id_forget(mover, group->ids[i]);
	LIST_REMOVE(group, link);
	free(group);
}

void mover_group_found(struct mover *mover, uint64_t id, unsigned store, bool hidden)
{
	struct mover_group *group = mover_group_find(mover, id);
	struct mover_group *now = store == MOVER_NEW ? &mover->resident : NULL;
	if (hidden)
		now = mover_group_is_astray(mover, group)
			      ? group
			      : &mover->astray[group ? MOVER_NEW : MOVER_OLD];
	if (now == group)
		return;
	id_forget(mover, id);
	if (now)
		id_note(mover, now, id);
}

void mover_group_retire(struct mover *mover, struct mover_group *group)
{
	struct mover_group done = *group;
	mover_group_remove(mover, group);
	for (uint32_t i = 0; i < done.count; i++)
		mover_group_reside(mover, done.ids[i]);
}

void mover_group_open(struct mover *mover)
{
	LIST_INIT(&mover->groups);
	mover->resident = (struct mover_group){.phase = MOVER_DONE, .to = MOVER_NEW};
	TAILQ_INIT(&mover->resident.order);
	for (unsigned store = 0; store < 2; store++) {
		mover->astray[store] = (struct mover_group){.phase = MOVER_DONE, .to = store};
		TAILQ_INIT(&mover->astray[store].order);
	}
	mover->ids = calloc(MOVER_ID_BUCKETS, sizeof(*mover->ids));
	mover->objects = calloc(MOVER_BUCKETS, sizeof(*mover->objects));
	must(mover->ids && mover->objects);
}

void mover_group_close(struct mover *mover)
{
	struct mover_group *group;
	struct mover_id *entry;
	while ((group = LIST_FIRST(&mover->groups)))
		mover_group_remove(mover, group);
	for (unsigned i = 0; i < MOVER_ID_BUCKETS; i++)
		while ((entry = LIST_FIRST(&mover->ids[i])))
			id_forget(mover, entry->id);
	free(mover->ids);
	free(mover->objects);
}

unsigned mover_group_rest(const struct mover_group *group)
{
	return group->phase == MOVER_TAKING ? !group->to : group->to;
}

/* --- objects -------------------------------------------------------------------------------- */

static struct mover_chain *chain_of(const struct mover *mover, const struct xseg_key *key)
{
	uint64_t hash = hash_object(key->volume, key->epoch, key->object);
	return &mover->objects[(hash >> 32) % MOVER_BUCKETS];
}

struct mover_object *mover_group_object(const struct mover *mover, const struct xseg_key *key)
{
	struct mover_object *object;
	LIST_FOREACH (object, chain_of(mover, key), chain)
		if (store_key_compare(&object->key, key) == 0)
			return object;
	return NULL;
}

struct mover_object *mover_group_object_get(
	struct mover *mover, struct mover_group *group, const struct xseg_key *key)
{
	struct mover_object *object = mover_group_object(mover, key);
	if (object || !(object = calloc(1, sizeof(*object))))
		return object;
	object->key = *key;
	object->group = group;
	LIST_INSERT_HEAD(chain_of(mover, key), object, chain);
	TAILQ_INSERT_TAIL(&group->order, object, order);
	return object;
}

void mover_group_object_is_member(struct mover_object *object, bool member)
{
	object->group->members += member;
	object->group->members -= object->member;
	object->member = member;
}

void mover_group_object_forget(struct mover *mover, struct mover_object *object)
{
	(void)mover;
	must(object->reads == 0 && object->changes == 0);
	mover_group_object_is_member(object, false);
	LIST_REMOVE(object, chain);
	TAILQ_REMOVE(&object->group->order, object, order);
	free(object);
}

void mover_group_keys_add(struct mover_keys *keys, struct xseg_key key)
{
	if (keys->count == keys->room) {
		keys->room = keys->room ? 2 * keys->room : 1024;
		keys->all = realloc(keys->all, keys->room * sizeof(key));
		must(keys->all);
	}
	keys->all[keys->count++] = key;
}

/* --- records -------------------------------------------------------------------------------- */

uint32_t mover_group_encode(const struct mover_group *group, uint8_t bytes[XSEG_RECORD_MAX])
{
	uint32_t head[4] = {VERSION, group->phase, group->to, group->count};
	uint32_t size = HEAD + group->count * (uint32_t)sizeof(uint64_t);
	memcpy(bytes, MAGIC, 8);
	memcpy(bytes + 8, head, sizeof(head));
	memcpy(bytes + HEAD, group->ids, group->count * sizeof(uint64_t));
	uint32_t crc = crc32c(0, bytes, size);
	memcpy(bytes + size, &crc, sizeof(crc));
	return size + (uint32_t)sizeof(crc);
}
fixed(HEAD + MOVER_IDS_MAX * sizeof(uint64_t) + sizeof(uint32_t) <= XSEG_RECORD_MAX);

int mover_group_decode(const uint8_t *bytes, uint32_t size, struct mover_group *group)
{
	uint32_t head[4], crc, end = size - (uint32_t)sizeof(crc);
	if (size < HEAD + sizeof(crc) || memcmp(bytes, MAGIC, 8) != 0)
		return -EILSEQ;
	memcpy(head, bytes + 8, sizeof(head));
	memcpy(&crc, bytes + end, sizeof(crc));
	if (crc != crc32c(0, bytes, end))
		return -EILSEQ;
	if (head[0] != VERSION)
		return -EPROTO;
	if (head[1] < MOVER_TAKING || head[1] > MOVER_DONE || head[2] > MOVER_NEW || head[3] == 0 ||
		head[3] > MOVER_IDS_MAX || end != HEAD + head[3] * sizeof(uint64_t))
		return -EILSEQ;
	memset(group, 0, sizeof(*group));
	TAILQ_INIT(&group->order);
	group->phase = head[1];
	group->to = head[2];
	group->count = head[3];
	memcpy(group->ids, bytes + HEAD, group->count * sizeof(uint64_t));
	return 0;
}
