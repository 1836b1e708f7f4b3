/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What operations that were cut off have left: finished, or undone.
 *
 * Whoever goes on with one of them at the same time finds a record of another version than it has
 * read, and begins anew. So does this: what it meets in other hands it leaves.
 */
#include <errno.h>
#include <string.h>

#include "peers/map/map_step.h"

#define BATCH 64u

struct tidy {
	struct map_store *store;
	uint64_t before_ns;
	uint64_t deleted;
};

/* Others are at it, or it is damaged: not ours. */
static int tolerate(int rc)
{
	return rc == -ESTALE || rc == -ENOENT || rc == -EEXIST || rc == -ENOTUNIQ || rc == -EBUSY ||
			       rc == -EILSEQ || rc == -EPROTO || rc == -ENOTEMPTY
		       ? 0
		       : rc;
}

static int tidied(struct tidy *tidy, int rc)
{
	tidy->deleted += rc == 0;
	return tolerate(rc);
}

/* In the making: its last step is done for it, or it is undone. */
static int tidy_new(struct tidy *tidy, const struct map_head *found)
{
	struct map_head head;
	int rc = map_head_open(tidy->store, found->volume.id, &head);
	if (rc == 0)
		return tolerate(map_head_replace(tidy->store, &head));
	if (rc != -ENOENT)
		return tolerate(rc);
	if (found->volume.created_ns >= tidy->before_ns && !map_is_removing(&found->volume))
		return 0;
	head = *found;
	return tidied(tidy, map_head_undo(tidy->store, &head));
}

static int tidy_volume(void *context, uint64_t id, int error, const struct map_head *head)
{
	struct tidy *tidy = context;
	struct map_place place;
	uint64_t child;
	if (error != 0)
		return 0;
	const struct map_volume *volume = &head->volume;
	if (map_is_new(volume))
		return tidy_new(tidy, head);
	/* it cannot be had back, and until it is gone its name and its parent are not free */
	if (map_is_removing(volume))
		return tidied(tidy, map_remove(tidy->store, id, &child));
	int rc = map_place_read(tidy->store, volume->name, &place);
	if (rc == 0 && place.version == 0)
		rc = map_place_claim(tidy->store, volume->name, id);
	return tolerate(rc);
}

/* Does anybody bear the name? It is asked for nobody. */
static int tidy_name(struct tidy *tidy, struct xseg_key key)
{
	uint8_t bytes[XSEG_RECORD_MAX];
	uint64_t version = 0;
	struct map_place place;
	struct map_name name;
	int rc = tidy->store->get(tidy->store, key, bytes, &version);
	if (rc >= 0)
		rc = map_name_decode(bytes, (size_t)rc, &name);
	if (rc == 0)
		rc = map_place_look(tidy->store, name.name, 0, &place);
	if (rc != 0 || place.version == 0)
		return tolerate(rc);
	return tidied(tidy, map_place_drop(tidy->store, &place));
}

static int tidy_home(struct tidy *tidy, struct xseg_key key)
{
	uint8_t bytes[XSEG_RECORD_MAX];
	uint64_t version = 0;
	struct map_head head;
	int rc = map_head_take(tidy->store, key.volume, &head);
	if (rc != -ENOENT)
		return tolerate(rc);
	rc = tidy->store->get(tidy->store, key, bytes, &version);
	if (rc >= 0)
		rc = tidy->store->drop(tidy->store, key, &version);
	return tidied(tidy, rc);
}

static int tidy_records(
	struct tidy *tidy, uint32_t epoch, int (*one)(struct tidy *tidy, struct xseg_key key))
{
	struct xseg_key keys[BATCH];
	uint64_t cursor = 0;
	do {
		int count = tidy->store->records(tidy->store, epoch, &cursor, keys, BATCH);
		if (count < 0)
			return count;
		for (int i = 0; i < count; i++) {
			int rc = one(tidy, keys[i]);
			if (rc != 0)
				return rc;
		}
	} while (cursor != 0);
	return 0;
}

int map_tidy(struct map_store *store, uint64_t before_ns, uint64_t *deleted)
{
	struct tidy tidy = {.store = store, .before_ns = before_ns};
	int rc = map_each_record(store, tidy_volume, &tidy);
	if (rc == 0)
		rc = tidy_records(&tidy, XSEG_EPOCH_NAME, tidy_name);
	if (rc == 0)
		rc = tidy_records(&tidy, XSEG_EPOCH_HOME, tidy_home);
	*deleted = tidy.deleted;
	return rc;
}
