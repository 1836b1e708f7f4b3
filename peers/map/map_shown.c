/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Names as people say them. A snapshot belongs to its volume and is called VOLUME@SNAP; in its
 * records the volume's id stands in place of its name, so that a volume has another name without a
 * change of any of its snapshots.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "peers/map/map_step.h"

#define ID_DIGITS 16u

/* "0123456789abcdef@monday": the id, or 0. */
static uint64_t volume_of(const char *stored)
{
	uint64_t id = 0;
	if (strspn(stored, "0123456789abcdef") != ID_DIGITS || stored[ID_DIGITS] != '@' ||
		sscanf(stored, "%16" SCNx64, &id) != 1)
		return 0;
	return id;
}

bool map_shown_is_of(const char *stored, uint64_t volume)
{
	return volume != 0 && volume_of(stored) == volume;
}

int map_shown_store(struct map_store *store, const char *shown, char stored[MAP_NAME_ROOM])
{
	char volume[MAP_NAME_ROOM];
	uint64_t id;
	if (!name_check_volume(shown))
		return -EINVAL;
	snprintf(stored, MAP_NAME_ROOM, "%s", shown);
	size_t length = strcspn(shown, "@");
	if (!shown[length])
		return 0;
	snprintf(volume, sizeof(volume), "%.*s", (int)length, shown);
	int rc = map_name_find(store, volume, &id);
	if (rc == 0)
		snprintf(stored, MAP_NAME_ROOM, "%016" PRIx64 "%.*s", id,
			(int)(MAP_NAME_ROOM - ID_DIGITS - 1), shown + length);
	return rc;
}

/* A volume whose records cannot be read leaves its id there. */
void map_shown_name(
	struct map_store *store, const struct map_volume *volume, char shown[MAP_NAME_ROOM])
{
	struct map_head head;
	uint64_t id = volume->flags & MAP_SNAPSHOT ? volume_of(volume->name) : 0;
	memcpy(shown, volume->name, MAP_NAME_ROOM);
	if (id == 0 || map_record_take(store, id, &head) != 0)
		return;
	char text[2 * MAP_NAME_ROOM];
	snprintf(text, sizeof(text), "%s%s", head.volume.name, volume->name + ID_DIGITS);
	if (strlen(text) < MAP_NAME_ROOM)
		memcpy(shown, text, strlen(text) + 1);
}

int map_shown_find(struct map_store *store, const char *shown, uint64_t *id)
{
	char stored[MAP_NAME_ROOM];
	int rc = map_shown_store(store, shown, stored);
	if (rc == 0)
		rc = map_name_find(store, stored, id);
	return rc == -ENOENT ? map_name_find(store, shown, id) : rc;
}
