/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Names: which volume has one, and how a volume comes by it.
 *
 * A name's record is put before the volume's record says it (rename), or while that is in the
 * making (create). So one that its volume does not bear out may be a leftover, or about to be borne
 * out. Whoever takes it for a leftover first puts the volume's record as it is: a rename that is on
 * its way then finds another version, and begins anew.
 */
#include <errno.h>
#include <string.h>

#include "peers/map/map_step.h"

int map_name_place_read(struct map_store *store, const char *name, struct map_place *place)
{
	uint8_t bytes[XSEG_RECORD_MAX];
	*place = (struct map_place){.version = 0};
	if (!name_check_volume(name))
		return -EINVAL;
	int rc = store->get(store, map_name_key(name), bytes, &place->version);
	if (rc == -ENOENT)
		place->version = 0;
	if (rc <= 0)
		return rc == -ENOENT ? 0 : rc == 0 ? -EILSEQ : rc;
	return map_format_name_decode(bytes, (size_t)rc, &place->name);
}

bool map_name_place_leads(const struct map_place *place, const char *name, uint64_t id)
{
	return place->version != 0 && place->name.id == id && strcmp(place->name.name, name) == 0;
}

/* Is the volume there, and has it the name that leads to it? One that is on its way to another
   store has not left it to anybody. */
static int place_borne_out(
	struct map_store *store, const struct map_place *place, struct map_head *head, bool *borne)
{
	*borne = false;
	int rc = map_record_take(store, place->name.id, head);
	if (rc != 0)
		head->volume.id = 0;
	if (rc == -ENOENT) {
		rc = map_record_hidden(store, place->name.id);
		*borne = rc > 0;
		return rc < 0 ? rc : 0;
	}
	if (rc != 0)
		return rc;
	bool undone = map_is_new(&head->volume) && map_is_removing(&head->volume);
	*borne = !undone && strcmp(head->volume.name, place->name.name) == 0;
	return 0;
}

int map_name_place_look(
	struct map_store *store, const char *name, uint64_t id, struct map_place *place)
{
	struct map_head head;
	bool borne = false;
	int rc = map_name_place_read(store, name, place);
	if (rc != 0 || place->version == 0 || map_name_place_leads(place, name, id))
		return rc;
	rc = place_borne_out(store, place, &head, &borne);
	if (rc != 0)
		return rc;
	if (borne)
		return strcmp(place->name.name, name) == 0 ? -EEXIST : -ENOTUNIQ;
	return head.volume.id != 0 ? map_record_replace(store, &head) : 0;
}

int map_name_place_claim(struct map_store *store, const char *name, uint64_t id)
{
	struct map_name record = {.id = id};
	struct map_place place;
	uint8_t bytes[MAP_NAME_RECORD_SIZE];
	int rc = map_name_place_look(store, name, id, &place);
	if (rc != 0)
		return rc;
	memcpy(record.name, name, strlen(name) + 1);
	map_format_name_encode(&record, bytes);
	rc = store->put(store, map_name_key(name), bytes, sizeof(bytes), &place.version);
	return rc == -EEXIST ? -ESTALE : rc;
}

int map_name_place_drop(struct map_store *store, const struct map_place *place)
{
	uint64_t version = place->version;
	if (version == 0)
		return 0;
	int rc = store->drop(store, map_name_key(place->name.name), &version);
	return rc == -ENOENT || rc == -ESTALE || rc == -EEXIST ? 0 : rc;
}

int map_name_find(struct map_store *store, const char *name, uint64_t *id)
{
	struct map_place place;
	struct map_head head;
	bool borne = false;
	int rc = map_name_place_read(store, name, &place);
	if (rc != 0)
		return rc;
	if (place.version == 0 || strcmp(place.name.name, name) != 0)
		return -ENOENT;
	rc = place_borne_out(store, &place, &head, &borne);
	if (rc == 0 && !borne)
		rc = -ENOENT;
	if (rc == 0)
		*id = place.name.id;
	return rc;
}
