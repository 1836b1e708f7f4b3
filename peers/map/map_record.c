/* SPDX-License-Identifier: Apache-2.0 */
/* Reading, listing and editing the records of volumes. */
#include <errno.h>
#include <peer/mover.h>
#include <string.h>

#include "peers/map/map_step.h"

#define BATCH 64u /* keys of records asked for at once */

/*
 * A volume has both its halves. One that is not there may have gone between the reading of the two,
 * and a put over it would bring the volume back.
 */
int map_record_take(struct map_store *store, uint64_t id, struct map_head *head)
{
	int rc = map_head_read(store, id, head, NULL);
	if (rc == 0 && (head->version[0] == 0 || head->version[1] == 0))
		rc = map_head_read(store, id, head, NULL);
	return rc;
}

int map_record_hidden(struct map_store *store, uint64_t id)
{
	uint8_t bytes[XSEG_RECORD_MAX];
	uint64_t version;
	int rc = -ENOENT;
	for (unsigned half = 0; half < 2 && rc == -ENOENT; half++) {
		struct xseg_key key = map_volume_key(id, half);
		key.object |= MOVER_HIDDEN;
		rc = store->get(store, key, bytes, &version);
	}
	return rc >= 0 || rc == -EILSEQ ? 1 : rc == -ENOENT ? 0 : rc;
}

/* One that is in the making is there when its name leads to it; the first put over it makes it a
   volume like any other. */
int map_record_open_head(struct map_store *store, uint64_t id, struct map_head *head)
{
	struct map_place place;
	int rc = map_record_take(store, id, head);
	if (rc != 0 || !map_is_new(&head->volume))
		return rc;
	if (map_is_removing(&head->volume))
		return -ENOENT;
	rc = map_name_place_read(store, head->volume.name, &place);
	if (rc == 0 && !map_name_place_leads(&place, head->volume.name, id))
		rc = -ENOENT;
	head->volume.flags &= ~MAP_NEW;
	return rc;
}

int map_record_open(struct map_store *store, uint64_t id, struct map_head *head)
{
	return map_record_open_head(store, id, head);
}

int map_record_live(struct map_store *store, uint64_t id, struct map_head *head)
{
	int rc = map_record_open_head(store, id, head);
	return rc == 0 && map_is_removing(&head->volume) ? -ENOENT : rc;
}

int map_record_writable(struct map_store *store, uint64_t id, struct map_head *head)
{
	int rc = map_record_live(store, id, head);
	return rc == 0 && head->volume.flags & MAP_SNAPSHOT ? -EPERM : rc;
}

int map_record_replace(struct map_store *store, struct map_head *head)
{
	int rc = map_head_put(store, head);
	return rc == -EEXIST || rc == -ENOENT ? -ESTALE : rc;
}

int map_record_forget(struct map_store *store, const struct map_head *head)
{
	unsigned younger = head->volume.generation % 2;
	int rc = 0;
	for (unsigned i = 0; i < 2 && rc == 0; i++) {
		unsigned half = i == 0 ? !younger : younger;
		uint64_t version = head->version[half];
		if (version != 0)
			rc = store->drop(store, map_volume_key(head->volume.id, half), &version);
		if (rc == -ENOENT)
			rc = 0;
	}
	return rc == -EEXIST ? -ESTALE : rc;
}

int map_record_excuse(struct map_store *store, const struct map_head *head, int rc)
{
	struct map_head now;
	if (rc != -EILSEQ)
		return rc;
	int found = map_record_take(store, head->volume.id, &now);
	bool same = found == 0 && now.volume.generation == head->volume.generation;
	return same || (found != 0 && found != -ENOENT) ? rc : -ESTALE;
}

int map_record_edit(struct map_store *store, uint64_t id, map_read_f *read, map_edit_f *edit,
	const void *context, struct map_head *head)
{
	struct map_head own;
	if (!head)
		head = &own;
	for (unsigned tries = 0; tries < MAP_TRIES; tries++) {
		int rc = read(store, id, head);
		if (rc == 0)
			rc = map_record_excuse(store, head, edit(store, head, context));
		if (rc == 1)
			return 0;
		if (rc == 0 && map_format_volume_check(&head->volume) != 0)
			rc = -EINVAL;
		if (rc == 0)
			rc = map_record_replace(store, head);
		if (rc != -ESTALE)
			return rc;
	}
	return -EBUSY;
}

int map_record_advance(struct map_head *head, bool freeze)
{
	if (head->volume.epoch >= MAP_EPOCH_MAX)
		return -EOVERFLOW;
	if (freeze)
		head->volume.frozen = head->volume.epoch;
	head->volume.epoch++;
	return 0;
}

/* --- all of them ------------------------------------------------------------------------------ */

/* A volume with both its halves is visited with the first, or with the only one. */
static int visit_key(struct map_store *store, struct xseg_key key, map_each_f *visit, void *context,
	bool *visited)
{
	struct map_head head = {.volume.id = key.volume};
	uint8_t bytes[XSEG_RECORD_MAX];
	uint64_t version = 0;
	if (key.object != 0) {
		int rc = store->get(store, map_volume_key(key.volume, 0), bytes, &version);
		if (rc != -ENOENT)
			return rc < 0 && rc != -EILSEQ ? rc : 0;
	}
	int rc = map_record_take(store, key.volume, &head);
	*visited = true;
	if (rc == -ENOENT)
		return 0;
	if (rc != 0 && rc != -EILSEQ && rc != -EPROTO)
		return rc;
	head.volume.id = key.volume;
	return visit(context, key.volume, rc, &head);
}

int map_record_each_raw(struct map_store *store, map_each_f *visit, void *context)
{
	struct xseg_key keys[BATCH];
	uint64_t cursor = 0, last = 0;
	do {
		int count = store->records(store, XSEG_EPOCH_VOLUME, &cursor, keys, BATCH);
		if (count < 0)
			return count;
		for (int i = 0; i < count; i++) {
			bool visited = false;
			int rc = 0;
			if (keys[i].volume != last)
				rc = visit_key(store, keys[i], visit, context, &visited);
			if (rc != 0)
				return rc;
			if (visited)
				last = keys[i].volume;
		}
	} while (cursor != 0);
	return 0;
}

struct each {
	struct map_store *store;
	map_each_f *visit;
	void *context;
};

static int each_visit(void *context, uint64_t id, int error, const struct map_head *head)
{
	const struct each *each = context;
	struct map_head named;
	if (error == 0 && map_is_new(&head->volume)) {
		error = map_record_open_head(each->store, id, &named);
		if (error == -ENOENT)
			return 0;
		if (error != 0 && error != -EILSEQ && error != -EPROTO)
			return error;
		head = &named;
	}
	return each->visit(each->context, id, error, head);
}

int map_record_each(struct map_store *store, map_each_f *visit, void *context)
{
	struct each each = {.store = store, .visit = visit, .context = context};
	return map_record_each_raw(store, each_visit, &each);
}
