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

struct cleanup {
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

static int deleted(struct cleanup *cleanup, int rc)
{
	cleanup->deleted += rc == 0;
	return tolerate(rc);
}

/* In the making: its last step is done for it, or it is undone. */
static int cleanup_new(struct cleanup *cleanup, const struct map_head *found)
{
	struct map_head head;
	int rc = map_record_open_head(cleanup->store, found->volume.id, &head);
	if (rc == 0)
		return tolerate(map_record_replace(cleanup->store, &head));
	if (rc != -ENOENT)
		return tolerate(rc);
	if (found->volume.created_ns >= cleanup->before_ns && !map_is_removing(&found->volume))
		return 0;
	head = *found;
	return deleted(cleanup, map_remove_head(cleanup->store, &head));
}

static int cleanup_volume(void *context, uint64_t id, int error, const struct map_head *head)
{
	struct cleanup *cleanup = context;
	struct map_place place;
	uint64_t child;
	if (error != 0)
		return 0;
	const struct map_volume *volume = &head->volume;
	if (map_is_new(volume))
		return cleanup_new(cleanup, head);
	/* it cannot be had back, and until it is gone its name and its parent are not free */
	if (map_is_removing(volume))
		return deleted(cleanup, map_remove(cleanup->store, id, &child));
	int rc = map_name_place_read(cleanup->store, volume->name, &place);
	if (rc == 0 && place.version == 0)
		rc = map_name_place_claim(cleanup->store, volume->name, id);
	return tolerate(rc);
}

/* Does anybody bear the name? It is asked for nobody. */
static int cleanup_name(struct cleanup *cleanup, struct xseg_key key)
{
	uint8_t bytes[XSEG_RECORD_MAX];
	uint64_t version = 0;
	struct map_place place;
	struct map_name name;
	int rc = cleanup->store->get(cleanup->store, key, bytes, &version);
	if (rc >= 0)
		rc = map_format_name_decode(bytes, (size_t)rc, &name);
	if (rc == 0)
		rc = map_name_place_look(cleanup->store, name.name, 0, &place);
	if (rc != 0 || place.version == 0)
		return tolerate(rc);
	return deleted(cleanup, map_name_place_drop(cleanup->store, &place));
}

static int cleanup_home(struct cleanup *cleanup, struct xseg_key key)
{
	uint8_t bytes[XSEG_RECORD_MAX];
	uint64_t version = 0;
	struct map_head head;
	int rc = map_record_take(cleanup->store, key.volume, &head);
	if (rc != -ENOENT)
		return tolerate(rc);
	rc = map_record_hidden(cleanup->store, key.volume);
	if (rc != 0)
		return rc < 0 ? tolerate(rc) : 0;
	rc = cleanup->store->get(cleanup->store, key, bytes, &version);
	if (rc >= 0)
		rc = cleanup->store->drop(cleanup->store, key, &version);
	return deleted(cleanup, rc);
}

static int cleanup_records(struct cleanup *cleanup, uint32_t epoch,
	int (*one)(struct cleanup *cleanup, struct xseg_key key))
{
	struct xseg_key keys[BATCH];
	uint64_t cursor = 0;
	do {
		int count = cleanup->store->records(cleanup->store, epoch, &cursor, keys, BATCH);
		if (count < 0)
			return count;
		for (int i = 0; i < count; i++) {
			int rc = one(cleanup, keys[i]);
			if (rc != 0)
				return rc;
		}
	} while (cursor != 0);
	return 0;
}

int map_cleanup(struct map_store *store, uint64_t before_ns, uint64_t *deleted)
{
	struct cleanup cleanup = {.store = store, .before_ns = before_ns};
	int rc = map_record_each_raw(store, cleanup_volume, &cleanup);
	if (rc == 0)
		rc = cleanup_records(&cleanup, XSEG_EPOCH_NAME, cleanup_name);
	if (rc == 0)
		rc = cleanup_records(&cleanup, XSEG_EPOCH_HOME, cleanup_home);
	*deleted = cleanup.deleted;
	return rc;
}
