/* SPDX-License-Identifier: Apache-2.0 */
/* What differs between two maps: what they share is the same, and is not read. */
#include <errno.h>

#include "peers/map/map_tree.h"

struct diff {
	struct map_store *store;
	const struct map_volume *before, *after;
	uint32_t from;
	map_differs_f *visit;
	void *context;
};

/* Two clones of one snapshot have different owners at the same place of their tables. */
static bool same_owner(const struct diff *diff, uint16_t before, uint16_t after)
{
	return diff->before->owners[before] == diff->after->owners[after];
}

static bool same_entry(const struct diff *diff, struct map_entry before, struct map_entry after)
{
	if (map_entry_is_hole(before) || map_entry_is_hole(after))
		return map_entry_is_hole(before) && map_entry_is_hole(after);
	return before.epoch == after.epoch && before.flags == after.flags &&
	       same_owner(diff, before.owner, after.owner);
}

static bool same_ref(const struct diff *diff, struct map_ref before, struct map_ref after)
{
	if (map_ref_is_hole(before) || map_ref_is_hole(after))
		return map_ref_is_hole(before) && map_ref_is_hole(after);
	return before.epoch == after.epoch && before.crc == after.crc &&
	       before.half == after.half && same_owner(diff, before.owner, after.owner);
}

static int diff_page(
	const struct diff *diff, uint32_t page, struct map_ref before, struct map_ref after)
{
	struct map_entry a[MAP_ENTRIES], b[MAP_ENTRIES];
	int rc = map_tree_leaf(diff->store, diff->before, page, before, a);
	if (rc == 0)
		rc = map_tree_leaf(diff->store, diff->after, page, after, b);
	for (uint32_t i = 0; i < MAP_ENTRIES && rc == 0; i++) {
		uint32_t object = page * MAP_ENTRIES + i;
		if (object >= diff->from && !same_entry(diff, a[i], b[i]))
			rc = diff->visit(diff->context, object, a[i], b[i]);
	}
	return rc;
}

static int diff_directory(const struct diff *diff, uint32_t number)
{
	const struct map_volume *before = diff->before, *after = diff->after;
	struct map_ref a[MAP_DIRECTORY_REFS], b[MAP_DIRECTORY_REFS];
	if (before->depth == 2 && after->depth == 2 &&
		same_ref(diff, before->top[number], after->top[number]))
		return 0;
	int rc = map_tree_directory(diff->store, before, number, a);
	if (rc == 0)
		rc = map_tree_directory(diff->store, after, number, b);
	for (uint32_t i = 0; i < MAP_DIRECTORY_REFS && rc == 0; i++) {
		uint32_t page = number * MAP_DIRECTORY_REFS + i;
		if (page >= diff->from / MAP_ENTRIES && !same_ref(diff, a[i], b[i]))
			rc = diff_page(diff, page, a[i], b[i]);
	}
	return rc;
}

int map_diff_trees(struct map_store *store, const struct map_volume *before,
	const struct map_volume *after, uint32_t from, map_differs_f *visit, void *context)
{
	struct diff diff = {store, before, after, from, visit, context};
	/* the first owner is the one from whom all descend */
	if (before->owners[0] != after->owners[0] || before->object_size != after->object_size)
		return -EXDEV;
	uint32_t count = map_tree_directories(before), other = map_tree_directories(after);
	int rc = 0;
	count = other > count ? other : count;
	for (uint32_t i = from / MAP_ENTRIES / MAP_DIRECTORY_REFS; i < count && rc == 0; i++)
		rc = diff_directory(&diff, i);
	return rc;
}
