/* SPDX-License-Identifier: Apache-2.0 */
/* Volumes as such: made, described, changed and removed, and which control is which. */
#include <base/crash.h>
#include <base/time.h>
#include <errno.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#include "peers/map/mapper.h"

uint64_t mapper_admin_draw_id(void)
{
	uint64_t id = 0;
	while (id == 0)
		must(getrandom(&id, sizeof(id), 0) == sizeof(id));
	return id;
}

/* --- beside an error ------------------------------------------------------------------------ */

static void blame_volume(struct mapper_task *task, uint64_t id)
{
	struct map_store *store = mapper_task_store(task);
	char shown[MAP_NAME_ROOM];
	struct map_head head;
	if (map_head_read(store, id, &head, NULL) != 0)
		return;
	map_shown_name(store, &head.volume, shown);
	mapper_task_blame(task, shown);
}

/* The volume, open nowhere else for as long as this change takes. */
static int begin_change(struct mapper_task *task)
{
	struct map_head head;
	int rc = map_record_open(mapper_task_store(task), task->volume, &head);
	return rc != 0 ? rc : mapper_lease_guard_begin(task, task->volume);
}

static uint64_t term_of(struct mapper_task *task)
{
	uint64_t term;
	return mapper_lease_look(mapper_shared(task), task->volume, &term) == 0 ? term : 0;
}

/* --- operations of <xseg/op.h> -------------------------------------------------------------- */

static int run_info(struct mapper_task *task)
{
	struct map_head head;
	int rc = map_record_open(mapper_task_store(task), task->volume, &head);
	return rc != 0 ? rc : mapper_task_info(task, &head.volume);
}

/* A name with '@' is a snapshot's. */
static bool is_volumes(const char *name) { return name_check_volume(name) && !strchr(name, '@'); }

static int run_create(struct mapper_task *task)
{
	const struct xseg_volume_info *info = &task->info;
	const struct mapper_options *options = mapper_shared(task)->options;
	struct map_create create = {
		.id = info->id,
		.size = info->size,
		.created_ns = info->created_ns,
		.object_size =
			info->object_size ? info->object_size : (uint32_t)options->object_size,
		.state = info->state ? info->state : XSEG_VOLUME_READY,
		.name = info->name,
	};
	struct map_head head;
	if (!is_volumes(info->name) || info->flags != 0 ||
		(create.state != XSEG_VOLUME_READY && create.state != XSEG_VOLUME_IMPORTING))
		return -EINVAL;
	int rc = map_create(mapper_task_store(task), &create, &head);
	crash_point("mapper.create.done");
	if (rc == -EEXIST)
		mapper_task_blame(task, info->name);
	return rc != 0 ? rc : mapper_task_info(task, &head.volume);
}

static int run_update(struct mapper_task *task)
{
	struct map_head head;
	int rc = begin_change(task);
	if (rc == 0)
		rc = map_change_state(mapper_task_store(task), task->volume, task->info.state);
	crash_point("mapper.update.done");
	if (rc == 0)
		rc = map_record_open(mapper_task_store(task), task->volume, &head);
	return rc != 0 ? rc : mapper_task_info(task, &head.volume);
}

/* Whoever has it open here has closed it before, or the composer would not have asked. */
static int run_remove(struct mapper_task *task)
{
	uint64_t child = 0;
	int rc = mapper_lease_guard_begin(task, task->volume);
	if (rc == 0)
		rc = map_remove(mapper_task_store(task), task->volume, &child);
	if (rc == -EILSEQ)
		rc = map_remove_damaged(mapper_task_store(task), task->volume);
	crash_point("mapper.remove.done");
	if (rc == -ENOTEMPTY)
		blame_volume(task, child);
	if (rc == 0)
		mapper_lease_remove(mapper_shared(task), task->volume);
	return rc;
}

/* --- controls ------------------------------------------------------------------------------- */

static struct map_create create_of(const struct mapper_task *task)
{
	return (struct map_create){.id = task->ask.id,
		.size = task->ask.size,
		.created_ns = task->ask.created_ns,
		.state = task->ask.state ? (uint32_t)task->ask.state : XSEG_VOLUME_READY,
		.name = task->ask.name};
}

static int run_snapshot(struct mapper_task *task)
{
	struct map_create create = create_of(task);
	char stored[MAP_NAME_ROOM];
	struct map_head head;
	int rc = map_shown_store(mapper_task_store(task), task->ask.name, stored);
	if (rc == 0 && !map_shown_is_of(stored, task->volume))
		rc = -EINVAL;
	create.name = stored;
	if (rc == 0)
		rc = begin_change(task);
	if (rc == 0)
		rc = map_create_snapshot(mapper_task_store(task), task->volume, &create, &head);
	crash_point("mapper.snapshot.done");
	if (rc == -EEXIST)
		mapper_task_blame(task, task->ask.name);
	return rc != 0 ? rc : mapper_task_head(task, &head.volume, term_of(task));
}

/* Nobody writes to a snapshot, so nobody else need be kept away. */
static int run_clone(struct mapper_task *task)
{
	struct map_create create = create_of(task);
	struct map_head head;
	if (!is_volumes(task->ask.name))
		return -EINVAL;
	int rc = map_record_open(mapper_task_store(task), task->volume, &head);
	if (rc == 0 && !(head.volume.flags & MAP_SNAPSHOT))
		rc = mapper_lease_guard_begin(task, task->volume);
	if (rc == 0)
		rc = map_create_clone(mapper_task_store(task), task->volume, &create, &head);
	crash_point("mapper.clone.done");
	if (rc == -EEXIST)
		mapper_task_blame(task, task->ask.name);
	return rc != 0 ? rc : mapper_task_head(task, &head.volume, 0);
}

static int run_rollback(struct mapper_task *task)
{
	struct map_head head;
	int rc = begin_change(task);
	if (rc == 0)
		rc = map_change_rollback(mapper_task_store(task), task->volume, task->other, &head);
	crash_point("mapper.rollback.done");
	return rc != 0 ? rc : mapper_task_head(task, &head.volume, term_of(task));
}

static int run_resize(struct mapper_task *task)
{
	struct map_head head;
	int rc = begin_change(task);
	if (rc == 0)
		rc = mapper_flatten_cut(task, task->ask.size);
	if (rc == 0)
		rc = map_change_resize(
			mapper_task_store(task), task->volume, task->ask.size, &head);
	crash_point("mapper.resize.done");
	return rc != 0 ? rc : mapper_task_head(task, &head.volume, term_of(task));
}

/* A snapshot stays with its volume. */
static int new_name(struct mapper_task *task, char stored[MAP_NAME_ROOM])
{
	struct map_head head;
	int rc = map_record_open(mapper_task_store(task), task->volume, &head);
	if (rc == 0)
		rc = map_shown_store(mapper_task_store(task), task->ask.name, stored);
	if (rc != 0)
		return rc;
	if (!(head.volume.flags & MAP_SNAPSHOT))
		return is_volumes(task->ask.name) ? 0 : -EINVAL;
	return map_shown_is_of(stored, head.volume.parent) ? 0 : -EXDEV;
}

static int run_rename(struct mapper_task *task)
{
	char stored[MAP_NAME_ROOM];
	int rc = new_name(task, stored);
	if (rc == 0)
		rc = begin_change(task);
	if (rc == 0)
		rc = map_rename(mapper_task_store(task), task->volume, stored);
	crash_point("mapper.rename.done");
	if (rc == -EEXIST)
		mapper_task_blame(task, task->ask.name);
	return rc;
}

/* Whether it may be removed does not concern who has it open: no guard, as for limits. */
static int run_flags(struct mapper_task *task)
{
	uint32_t set = (uint32_t)task->arg, clear = (uint32_t)(task->arg >> 32);
	if ((set | clear) & ~MAP_PROTECTED)
		return -EINVAL;
	int rc = map_change_flags(mapper_task_store(task), task->volume, set, clear);
	crash_point("mapper.flags.done");
	return rc;
}

static int run_limits(struct mapper_task *task)
{
	const struct map_change_limits *limits = &task->ask.limits;
	int rc = map_change_limits(mapper_task_store(task), task->volume, limits->iops,
		limits->bytes, limits->burst_ms);
	crash_point("mapper.limits.done");
	return rc;
}

#define CHANGE MAPPER_CHANGES_VOLUME
#define NAMED MAPPER_BY_NAME
#define OTHER MAPPER_BY_OTHER
#define QUICK MAPPER_QUICK
#define NO_COUNTER MAPPER_COUNTERS

const struct mapper_kind mapper_controls[MAP_CONTROLS] = {
	[MAP_ACQUIRE] = {"acquire", CHANGE | QUICK | NAMED, MAPPER_ACQUIRES,
		mapper_control_acquire},
	[MAP_CLAIM] = {"claim", CHANGE | QUICK | NAMED, NO_COUNTER, mapper_control_claim},
	[MAP_RELEASE] = {"release", CHANGE | QUICK, NO_COUNTER, mapper_control_release},
	[MAP_PAGE] = {"page", QUICK | MAPPER_REMEMBERS, MAPPER_LOOKUPS, mapper_control_page},
	[MAP_BITMAP] = {"bitmap", QUICK, MAPPER_BITMAPS, mapper_control_bitmap},
	[MAP_PUBLISH] = {"publish", CHANGE | QUICK | MAPPER_REMEMBERS | MAPPER_OWN,
		MAPPER_PUBLISHED, mapper_control_publish},
	[MAP_SNAP] = {"snapshot", CHANGE | OTHER | MAPPER_MAKES | MAPPER_ASKS, MAPPER_SNAPSHOTS,
		run_snapshot},
	[MAP_CLONE] = {"clone", CHANGE | OTHER | MAPPER_MAKES | MAPPER_ASKS, MAPPER_CLONES,
		run_clone},
	[MAP_ROLLBACK] = {"rollback", CHANGE | NAMED | MAPPER_OTHER | MAPPER_ASKS, MAPPER_CHANGES,
		run_rollback},
	[MAP_RESIZE] = {"resize", CHANGE | NAMED | MAPPER_ASKS, MAPPER_CHANGES, run_resize},
	[MAP_RENAME] = {"rename", CHANGE | OTHER | MAPPER_ASKS, MAPPER_CHANGES, run_rename},
	[MAP_FLAGS] = {"flags", CHANGE | NAMED, MAPPER_CHANGES, run_flags},
	[MAP_FLATTEN] = {"flatten", CHANGE | NAMED, MAPPER_FLATTENED, mapper_flatten_run},
	[MAP_LIMITS] = {"limits", CHANGE | NAMED | MAPPER_ASKS, MAPPER_CHANGES, run_limits},
	[MAP_DIFF] = {"diff", NAMED | MAPPER_OTHER | MAPPER_ASKS, NO_COUNTER, mapper_diff_run},
	[MAP_DETAIL] = {"detail", NAMED, NO_COUNTER, mapper_detail_run},
	[MAP_BREAK] = {"break", CHANGE | NAMED, NO_COUNTER, mapper_control_break},
	[MAP_SWEEP] = {"sweep", QUICK | MAPPER_ASKS, NO_COUNTER, mapper_background_sweep},
	[MAP_SWEEP_STATE] = {"sweep state", QUICK, NO_COUNTER, mapper_background_sweep_state},
	[MAP_HOME] = {"home", QUICK, NO_COUNTER, mapper_control_home},
	[MAP_GIVEN] = {"given", QUICK, NO_COUNTER, mapper_control_given},
	[MAP_LEASES] = {"leases", QUICK, NO_COUNTER, mapper_holder_renew},
};

const struct mapper_kind mapper_kind_info = {"info", NAMED | MAPPER_INFO, NO_COUNTER, run_info};
const struct mapper_kind mapper_kind_list = {"list", 0, MAPPER_LISTED, mapper_list_run};
const struct mapper_kind mapper_kind_create = {
	"create", CHANGE | MAPPER_MAKES | MAPPER_INFO, MAPPER_CHANGES, run_create};
const struct mapper_kind mapper_kind_update = {
	"update", CHANGE | NAMED | MAPPER_INFO, MAPPER_CHANGES, run_update};
const struct mapper_kind mapper_kind_remove = {
	"remove", CHANGE | NAMED | MAPPER_INFO, MAPPER_CHANGES, run_remove};
const struct mapper_kind mapper_kind_renew = {
	"renew", CHANGE | QUICK, MAPPER_RENEWALS, mapper_lease_renew};
const struct mapper_kind mapper_kind_adopt = {
	"adopt", CHANGE | QUICK, NO_COUNTER, mapper_lease_adopt};
