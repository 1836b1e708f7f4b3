/* SPDX-License-Identifier: Apache-2.0 */
/* Another name for a volume: the new name's record, the volume's (the point), the old name's
   away. */
#include <errno.h>
#include <string.h>

#include "peers/map/map_step.h"

/*
 * The old name is read before the volume's record is put: if somebody gives that name to the
 * volume again in between, its record has another version, and stays.
 */
static int rename_once(struct map_store *store, uint64_t id, const char *name)
{
	struct map_head head;
	struct map_place old, now;
	int rc = map_record_live(store, id, &head);
	if (rc != 0)
		return rc;
	if (strcmp(head.volume.name, name) == 0) {
		rc = map_name_place_read(store, name, &now);
		return rc != 0 || map_name_place_leads(&now, name, id)
			       ? rc
			       : map_name_place_claim(store, name, id);
	}
	rc = map_name_place_read(store, head.volume.name, &old);
	if (rc != 0)
		return rc;
	bool leads = map_name_place_leads(&old, head.volume.name, id);
	rc = map_name_place_claim(store, name, id);
	if (rc != 0)
		return rc;
	memset(head.volume.name, 0, sizeof(head.volume.name));
	memcpy(head.volume.name, name, strlen(name));
	rc = map_record_replace(store, &head);
	return rc == 0 && leads ? map_name_place_drop(store, &old) : rc;
}

int map_rename(struct map_store *store, uint64_t id, const char *name)
{
	if (!name_check_volume(name))
		return -EINVAL;
	for (unsigned tries = 0; tries < MAP_TRIES; tries++) {
		int rc = rename_once(store, id, name);
		if (rc != -ESTALE)
			return rc;
	}
	return -EBUSY;
}
