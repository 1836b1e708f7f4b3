/* SPDX-License-Identifier: Apache-2.0 */
/* What fsck looks at beside the maps: names, records, parents; and what its findings are called. */
#include "peers/map/map_fsck.h"

#include <errno.h>
#include <string.h>

#include "peers/map/map_step.h"

#define LISTED 128u

static const struct {
	const char *name, *meaning;
} findings[MAP_FINDINGS] = {
	[MAP_FOUND_UNREACHABLE] = {"unreachable",
		"no volume needs this object; it only takes space, and can be deleted"},
	[MAP_FOUND_LOST] = {"lost",
		"the map has an object here that is not in the store; it reads as zeros (as it "
		"should after a discard that was cut off before its flush)"},
	[MAP_FOUND_BAD_PAGE] = {"bad-page",
		"a page of the map is damaged; the objects that it leads to cannot be reached, and "
		"nothing of this volume's owners is deleted until the volume is removed or "
		"rolled back"},
	[MAP_FOUND_BAD_RECORD] = {"bad-record",
		"the volume's record is damaged or of another version; the volume cannot be "
		"opened, "
		"and as nobody knows what it needs nothing is deleted in the whole store, until it "
		"is "
		"removed by its id ('xsegctl volume rm'), or its records are put back from a copy"},
	[MAP_FOUND_HALF_RECORD] = {"half-record",
		"one of the two halves of the volume's record is damaged; the other one counts and "
		"can be put again"},
	[MAP_FOUND_BAD_BITMAP] = {"bad-bitmap",
		"what a partial object has of its own cannot be read, nor which object has the "
		"rest; "
		"reading it is an error, and nothing of this volume's owners is deleted"},
	[MAP_FOUND_OVERLAP] = {"overlap",
		"a volume may still write to this object or page, and another volume uses it as if "
		"it were frozen"},
	[MAP_FOUND_BAD_ENTRY] = {"bad-entry", "an entry of the map cannot be: beyond the volume's "
					      "end, or of an owner or epoch that "
					      "there is not; it can be made a hole"},
	[MAP_FOUND_BAD_NAME] = {"bad-name",
		"a name that no volume bears and that can be deleted, or a volume that its name "
		"does "
		"not lead to and that can be given it again if it is free"},
	[MAP_FOUND_BAD_PARENT] = {"bad-parent",
		"the volume or object that lies below this one is not there; what it had reads as "
		"zeros"},
	[MAP_FOUND_BAD_COUNT] = {"bad-count",
		"the map counts its objects wrongly; only figures are wrong, and they can be put "
		"right"},
};

const char *map_fsck_finding_name(enum map_finding finding)
{
	return (unsigned)finding < MAP_FINDINGS ? findings[finding].name : "unknown";
}

const char *map_fsck_finding_meaning(enum map_finding finding)
{
	return (unsigned)finding < MAP_FINDINGS ? findings[finding].meaning : "unknown";
}

/* --- names ------------------------------------------------------------------------------------ */

static bool wants(const struct map_run *run, uint64_t id)
{
	return run->sweep->volume == 0 || run->sweep->volume == id;
}

/* What somebody else has changed meanwhile is not repaired; what the store cannot do ends it. */
static int settle(int rc, struct map_report *report)
{
	report->repaired = rc == 0;
	return rc == -ESTALE || rc == -EEXIST || rc == -ENOENT || rc == -ENOTUNIQ || rc == -EPERM ||
			       rc == -EILSEQ || rc == -EPROTO || rc == -EINVAL
		       ? 0
		       : rc;
}

/* Does a volume bear the name, or is it about to? 1, 0, -errno. What cannot be read may. */
static int name_is_borne(struct map_run *run, const struct map_name *name)
{
	struct map_head head;
	int rc = map_head_read(run->store, name->id, &head, NULL);
	if (rc == -EILSEQ || rc == -EPROTO)
		return 1;
	if (rc != 0)
		return rc == -ENOENT ? map_record_hidden(run->store, name->id) : rc;
	bool undone = map_is_new(&head.volume) && map_is_removing(&head.volume);
	return !undone && strcmp(head.volume.name, name->name) == 0;
}

/* A rename that is on its way finds that its volume was touched, and begins again. */
static int name_drop(
	struct map_run *run, struct xseg_key key, const struct map_name *name, uint64_t version)
{
	struct map_place place;
	if (!name)
		return run->store->drop(run->store, key, &version);
	int rc = map_name_place_look(run->store, name->name, 0, &place);
	if (rc == 0 && place.version != version)
		rc = -ESTALE;
	return rc == 0 ? map_name_place_drop(run->store, &place) : rc;
}

static int check_name(struct map_run *run, struct xseg_key key)
{
	uint8_t bytes[XSEG_RECORD_MAX];
	struct map_name name = {.id = 0};
	struct map_report report = {.finding = MAP_FOUND_BAD_NAME, .key = key};
	uint64_t version = 0;
	int size = run->store->get(run->store, key, bytes, &version);
	if (size < 0 && size != -EILSEQ)
		return size == -ENOENT ? 0 : size;
	int rc = size < 0 ? size : map_format_name_decode(bytes, (size_t)size, &name);
	bool whole = rc == 0 && map_format_name_hash(name.name) == key.volume;
	int borne = whole ? name_is_borne(run, &name) : 0;
	if (borne != 0)
		return borne < 0 ? borne : 0;
	report.volume = whole ? name.id : 0;
	if (run->sweep->repair && rc != -EPROTO)
		rc = settle(name_drop(run, key, whole ? &name : NULL, version), &report);
	map_sweep_report(run, &report);
	return rc == -EILSEQ || rc == -EPROTO ? 0 : rc;
}

static int check_names(struct map_run *run)
{
	struct xseg_key keys[LISTED];
	uint64_t cursor = 0;
	do {
		int count = run->store->records(run->store, XSEG_EPOCH_NAME, &cursor, keys, LISTED);
		if (count < 0)
			return count;
		for (int i = 0; i < count; i++) {
			int rc = check_name(run, keys[i]);
			if (rc != 0)
				return rc;
		}
	} while (cursor != 0);
	return 0;
}

/* --- records ---------------------------------------------------------------------------------- */

/* The damaged half is the one that the next put is for. */
static int check_half(struct map_run *run, struct map_head *head)
{
	unsigned half = (head->volume.generation + 1) % 2;
	struct map_report report = {.finding = MAP_FOUND_HALF_RECORD,
		.volume = head->volume.id,
		.key = map_volume_key(head->volume.id, half)};
	int rc = 0;
	if (run->sweep->repair)
		rc = settle(map_head_put(run->store, head), &report);
	map_sweep_report(run, &report);
	return rc;
}

/* Its name was put after its record: when it is not there, it has been lost. */
static int check_own_name(struct map_run *run, const struct map_volume *volume)
{
	struct map_place place;
	struct map_head now;
	struct map_report report = {.finding = MAP_FOUND_BAD_NAME,
		.volume = volume->id,
		.key = map_name_key(volume->name)};
	int rc = map_name_place_read(run->store, volume->name, &place);
	bool damaged = rc == -EILSEQ || rc == -EPROTO;
	if (rc != 0 && !damaged)
		return rc;
	if ((!damaged && map_name_place_leads(&place, volume->name, volume->id)) ||
		(damaged && run->sweep->volume == 0)) /* said already */
		return 0;
	rc = map_head_read(run->store, volume->id, &now, NULL);
	if (rc != 0 || strcmp(now.volume.name, volume->name) != 0)
		return rc == -ENOENT ? 0 : rc;
	if (run->sweep->repair && !damaged)
		rc = settle(map_name_place_claim(run->store, volume->name, volume->id), &report);
	map_sweep_report(run, &report);
	return rc;
}

static int check_parent(struct map_run *run, const struct map_volume *volume)
{
	struct map_head head;
	struct map_report report = {.finding = MAP_FOUND_BAD_PARENT,
		.volume = volume->id,
		.key = map_volume_key(volume->parent, 0)};
	if (volume->parent == 0)
		return 0;
	int rc = map_head_read(run->store, volume->parent, &head, NULL);
	if (rc != -ENOENT)
		return rc == -EILSEQ || rc == -EPROTO ? 0 : rc;
	/* a volume that was detached meanwhile has no parent any more */
	rc = map_head_read(run->store, volume->id, &head, NULL);
	if (rc == 0 && head.volume.parent == volume->parent)
		map_sweep_report(run, &report);
	return rc == -ENOENT ? 0 : rc;
}

static int check_record(struct map_run *run, uint64_t id)
{
	struct map_head head;
	bool halved = false;
	struct map_report report = {
		.finding = MAP_FOUND_BAD_RECORD, .volume = id, .key = map_volume_key(id, 0)};
	int rc = map_head_read(run->store, id, &head, &halved);
	if (rc == -EILSEQ || rc == -EPROTO)
		map_sweep_report(run, &report);
	if (rc != 0)
		return rc == -EILSEQ || rc == -EPROTO || rc == -ENOENT ? 0 : rc;
	if (halved)
		rc = check_half(run, &head);
	if (rc != 0 || map_is_new(&head.volume) || map_is_removing(&head.volume))
		return rc;
	rc = check_own_name(run, &head.volume);
	return rc != 0 ? rc : check_parent(run, &head.volume);
}

int map_fsck_records(struct map_run *run)
{
	int rc = run->sweep->volume == 0 ? check_names(run) : 0;
	for (size_t i = 0; rc == 0 && i < run->enumeration.volume_count; i++)
		if (wants(run, run->enumeration.volumes[i].id))
			rc = check_record(run, run->enumeration.volumes[i].id);
	return rc;
}
