/* SPDX-License-Identifier: Apache-2.0 */
/* volume create and rm: asked of the composer, through the segment itself. */

#include <base/must.h>
#include <base/size.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "tools/ctl/ctl_map.h"

const struct ctl_option ctl_volume_option_size = {"size", 0, "SIZE", "size of the volume", NULL};
static const struct ctl_option option_from = {"from", 0, "SOURCE",
	"a clone of this snapshot or volume, see 'volume clone'; --size may be larger", NULL};
const struct ctl_option ctl_volume_option_object_size = {"object-size", 0, "SIZE",
	"size of its objects, a power of two, 4K to 4M (default: what the mapper says, 4M)", NULL};

static const struct ctl_column made_columns[] = {
	{"name", "name", CTL_TEXT},
	{"size", "size", CTL_SIZE},
	{"object_size", "object size", CTL_SIZE},
	{"state", "state", CTL_TEXT},
	{"changed", "changed", CTL_TEXT},
	{"dry_run", "dry run", CTL_TEXT},
};
/* Without the last one where there is nothing to say. */
#define MADE_COUNT(plan) (countof(made_columns) - !(plan))

/* --- asking the composer ---------------------------------------------------------------- */

int ctl_volume_do(struct client *client, struct client_request *request)
{
	int rc = client_do(client, request);
	return rc ? rc : request->result;
}

int ctl_volume_ask(struct client *client, enum xseg_op op, struct xseg_volume_info *info)
{
	struct xseg_volume_info answer = {0};
	struct client_request request = {.op = op,
		.key.volume = info->id,
		.length = sizeof(*info),
		.send = info,
		.send_size = sizeof(*info),
		.receive = &answer,
		.receive_size = sizeof(answer)};
	int rc = ctl_volume_do(client, &request);
	if (rc)
		return rc;
	if (op == XSEG_OP_UPDATE)
		return 0;
	if (request.answer_length < sizeof(answer))
		return -EPROTO;
	answer.name[VOLUME_NAME_LENGTH_MAX] = 0;
	*info = answer;
	return 0;
}

int ctl_volume_tell(struct client *client, enum xseg_op op, uint64_t id, uint64_t term)
{
	struct client_request request = {.op = op, .key.volume = id, .arg1 = term};
	return ctl_volume_do(client, &request);
}

int ctl_volume_open(struct client *client, unsigned flags, uint64_t id, uint64_t *term)
{
	struct xseg_volume_info info = {0};
	struct client_request request = {.op = XSEG_OP_OPEN,
		.flags = flags,
		.key.volume = id,
		.length = sizeof(info),
		.receive = &info,
		.receive_size = sizeof(info)};
	int rc = ctl_volume_do(client, &request);
	*term = info.term;
	return rc;
}

/* One sentence, whoever has noticed it. */
static int too_large(struct ctl *ctl, const char *name, const char *what, uint32_t object_size)
{
	char most[32], object[32];
	bool small = object_size != 0 && object_size < XSEG_OBJECT_MAX;
	object_size = object_size ? object_size : XSEG_OBJECT_MAX;
	size_format((uint64_t)MAP_VOLUME_OBJECTS * object_size, most, sizeof(most));
	size_format(object_size, object, sizeof(object));
	return fault_set(&ctl->fault, FAULT_USAGE, name,
		small ? "larger objects (--object-size, when it is made) make larger volumes"
		      : "a smaller size, or several volumes",
		"volume '%s' %s: a volume has at most %u objects, which is %s in objects of %s",
		name, what, MAP_VOLUME_OBJECTS, most, object);
}

int ctl_volume_size_check(struct ctl *ctl, const struct xseg_volume_info *info, const char *what)
{
	uint64_t object_size = info->object_size ? info->object_size : XSEG_OBJECT_MAX;
	if (info->size <= MAP_VOLUME_OBJECTS * object_size)
		return 0;
	return too_large(ctl, info->name, what, info->object_size);
}

int ctl_volume_fault(struct ctl *ctl, const char *name, const char *what, int error)
{
	const char *hint = NULL;
	if (error == -ETIMEDOUT)
		hint = "'xsegctl status' says who is not well; --timeout sets the limit";
	if (error == -EILSEQ)
		return fault_set(&ctl->fault, FAULT_FAILED, name,
			"'xsegctl volume fsck' says what to do",
			"volume '%s' %s: its record is damaged", name, what);
	if (error == -EFBIG)
		return too_large(ctl, name, what, 0);
	return fault_set(&ctl->fault, fault_code_of_errno(error), name, hint, "volume '%s' %s: %s",
		name, what, error == -ETIMEDOUT ? "nobody answers" : strerror(-error));
}

int ctl_volume_name_check(struct ctl *ctl, const char *name)
{
	if (name_check_volume(name))
		return 0;
	return fault_set(&ctl->fault, FAULT_USAGE, name, "no '/', no control characters",
		"'%s' is no name for a volume (at most %u bytes) or a snapshot (VOLUME@SNAP, SNAP "
		"at most %u)",
		name, VOLUME_PART_MAX, SNAPSHOT_PART_MAX);
}

int ctl_volume_new_name_check(struct ctl *ctl, const char *name)
{
	int rc = ctl_volume_name_check(ctl, name);
	if (rc || !strchr(name, '@'))
		return rc;
	fault_set(&ctl->fault, FAULT_USAGE, name, NULL, "'%s' is a name for a snapshot", name);
	fault_hint(&ctl->fault, "'xsegctl volume snapshot %s' makes one", name);
	return -FAULT_USAGE;
}

int ctl_volume_snap_name_check(struct ctl *ctl, char volume[VOLUME_NAME_LENGTH_MAX + 1])
{
	const char *name = ctl->argv[0], *at = strchr(name, '@');
	memset(volume, 0, VOLUME_NAME_LENGTH_MAX + 1);
	if (ctl->argc == 2) {
		fault_set(&ctl->fault, FAULT_USAGE, ctl->argv[1], NULL,
			"a snapshot belongs to its volume and is called VOLUME@SNAP");
		fault_hint(&ctl->fault, "xsegctl volume %s %s@%s", ctl->verb->verb, name,
			ctl->argv[1]);
		return -FAULT_USAGE;
	}
	int rc = ctl_volume_name_check(ctl, name);
	if (rc)
		return rc;
	if (!at)
		return fault_set(&ctl->fault, FAULT_USAGE, name, "say VOLUME@SNAP",
			"'%s' does not say which snapshot", name);
	memcpy(volume, name, (size_t)(at - name));
	return 0;
}

/* Before snapshots belonged to their volumes they had names of their own. */
static void hint_snapshot(struct ctl *ctl, struct client *client, const char *name)
{
	struct ctl_map_nodes nodes;
	if (strchr(name, '@') || ctl_map_tree_list(client, &nodes))
		return;
	for (size_t i = 0; i < nodes.count; i++) {
		const char *at = strchr(nodes.all[i].info.name, '@');
		if (!at || strcmp(at + 1, name) != 0)
			continue;
		fault_hint(&ctl->fault, "there is a snapshot '%s'", nodes.all[i].info.name);
		break;
	}
	free(nodes.all);
}

/* In: the name, out: the record. */
static int info_by_name(struct client *client, const char *name, struct xseg_volume_info *info)
{
	struct client_request request = {.op = XSEG_OP_INFO,
		.length = (uint32_t)sizeof(*info),
		.send = info,
		.send_size = sizeof(*info),
		.receive = info,
		.receive_size = sizeof(*info)};
	memset(info, 0, sizeof(*info));
	snprintf(info->name, sizeof(info->name), "%s", name);
	int rc = ctl_volume_do(client, &request);
	if (!rc && request.answer_length < sizeof(*info))
		rc = -EPROTO;
	info->name[VOLUME_NAME_LENGTH_MAX] = 0;
	return rc;
}

int ctl_volume_find(
	struct ctl *ctl, struct client *client, const char *name, struct xseg_volume_info *info)
{
	int rc = ctl_volume_name_check(ctl, name);
	if (rc)
		return rc;
	rc = info_by_name(client, name, info);
	if (rc == -ENOENT) {
		fault_set(&ctl->fault, FAULT_NOT_FOUND, name, "'xsegctl volume list' lists them",
			"volume '%s' does not exist", name);
		hint_snapshot(ctl, client, name);
		return -FAULT_NOT_FOUND;
	}
	return rc ? ctl_volume_fault(ctl, name, "cannot be asked", rc) : 0;
}

const char *ctl_volume_state(uint32_t state)
{
	static const char *const names[] = {[XSEG_VOLUME_READY] = "ready",
		[XSEG_VOLUME_IMPORTING] = "importing",
		[XSEG_VOLUME_REMOVING] = "removing"};
	return state >= XSEG_VOLUME_READY && state < countof(names) ? names[state] : "damaged";
}

json_t *ctl_volume_json(const struct xseg_volume_info *info)
{
	char id[24];
	/* 64 bits do not fit what JSON readers take for a number */
	snprintf(id, sizeof(id), "%016llx", (unsigned long long)info->id);
	bool snapshot = info->flags & XSEG_VOLUME_SNAPSHOT;
	json_t *out = json_pack("{s:s, s:s, s:I, s:I, s:s, s:I, s:I, s:b, s:b, s:I}", "name",
		info->name, "id", id, "size", (json_int_t)info->size, "object_size",
		(json_int_t)info->object_size, "state", ctl_volume_state(info->state), "objects",
		(json_int_t)info->objects, "opens", (json_int_t)info->opens, "read_only",
		(info->flags & XSEG_VOLUME_READ_ONLY) != 0, "fixed",
		(info->flags & XSEG_VOLUME_FIXED) != 0, "created_ns", (json_int_t)info->created_ns);
	json_object_set_new(out, "type", json_string(snapshot ? "snapshot" : "volume"));
	json_object_set_new(out, "protected", json_boolean(info->flags & XSEG_VOLUME_PROTECTED));
	return out;
}

/* --- create ----------------------------------------------------------------------------- */

int ctl_volume_object_size(struct ctl *ctl, uint32_t *object_size)
{
	uint64_t size = 0;
	int rc = ctl_option_size(ctl, "object-size", &size);
	if (rc || !ctl_option_given(ctl, "object-size"))
		return rc;
	bool power = size && (size & (size - 1)) == 0;
	if (!power || size < XSEG_PAGE || size > XSEG_OBJECT_MAX)
		return fault_set(&ctl->fault, FAULT_USAGE, ctl_option_value(ctl, "object-size"),
			NULL, "--object-size: a power of two from 4K to 4M");
	*object_size = (uint32_t)size;
	return 0;
}

static int create_wanted(struct ctl *ctl, struct xseg_volume_info *info)
{
	*info = (struct xseg_volume_info){.state = XSEG_VOLUME_READY};
	int rc = ctl_volume_new_name_check(ctl, ctl->argv[0]);
	if (rc)
		return rc;
	snprintf(info->name, sizeof(info->name), "%s", ctl->argv[0]);
	if (!ctl_option_given(ctl, "size"))
		return fault_set(&ctl->fault, FAULT_USAGE, info->name, "e.g. --size 10G",
			"a volume needs a size");
	rc = ctl_option_size(ctl, "size", &info->size);
	if (!rc)
		rc = ctl_volume_object_size(ctl, &info->object_size);
	if (!rc && (info->size == 0 || info->size % XSEG_SECTOR))
		rc = fault_set(&ctl->fault, FAULT_USAGE, info->name, NULL,
			"--size: a multiple of %u bytes, and not 0", XSEG_SECTOR);
	return rc ? rc : ctl_volume_size_check(ctl, info, "cannot be made");
}

/* What exists is fine when it is what was asked for. */
static int create_compare(struct ctl *ctl, struct client *client, struct xseg_volume_info *info)
{
	struct xseg_volume_info found;
	int rc = info_by_name(client, info->name, &found);
	if (rc == -ENOENT)
		return fault_set(&ctl->fault, FAULT_CONFLICT, info->name,
			"choose another name, or wait until it is there",
			"'%s' is the name of a volume that is on its way to another store",
			info->name);
	if (rc)
		return ctl_volume_fault(ctl, info->name, "cannot be looked at", rc);
	bool same_objects =
		!ctl_option_given(ctl, "object-size") || found.object_size == info->object_size;
	if (found.size != info->size || !same_objects || found.state != XSEG_VOLUME_READY)
		return fault_set(&ctl->fault, FAULT_CONFLICT, info->name,
			"choose another name, or remove it with 'xsegctl volume rm'",
			"volume '%s' exists: %llu bytes in objects of %u, %s", info->name,
			(unsigned long long)found.size, found.object_size,
			ctl_volume_state(found.state));
	*info = found;
	return 0;
}

/* --dry-run: 0, as CREATE would say, or -EEXIST. */
static int create_plan(struct client *client, const struct xseg_volume_info *info)
{
	struct xseg_volume_info found;
	int rc = info_by_name(client, info->name, &found);
	return rc == -ENOENT ? 0 : rc ? rc : -EEXIST;
}

static int create(struct ctl *ctl, struct client *client, struct xseg_volume_info *info)
{
	bool plan = ctl_option_given(ctl, "dry-run");
	int made = plan ? create_plan(client, info) : ctl_volume_ask(client, XSEG_OP_CREATE, info);
	int rc = 0;
	if (made == -EEXIST)
		rc = create_compare(ctl, client, info);
	else if (made)
		rc = ctl_volume_fault(ctl, info->name, "cannot be made", made);
	if (rc)
		return rc;
	json_t *object = ctl_volume_json(info);
	if (!info->object_size) /* a plan that leaves it to the mapper */
		json_object_del(object, "object_size");
	json_object_set_new(object, "changed", json_boolean(made == 0 && !plan));
	json_object_set_new(object, "dry_run", json_boolean(plan));
	ctl_output_one(ctl, object, made_columns, MADE_COUNT(plan));
	return 0;
}

static int run_create(struct ctl *ctl)
{
	struct xseg_volume_info info;
	struct client client;
	if (ctl_option_given(ctl, "from") && ctl_option_given(ctl, "object-size"))
		return fault_set(&ctl->fault, FAULT_USAGE, ctl->argv[0], NULL,
			"--from and --object-size do not go together: a clone has the objects of "
			"its source");
	if (ctl_option_given(ctl, "from"))
		return ctl_snap_clone(ctl, ctl_option_value(ctl, "from"), ctl->argv[0]);
	int rc = create_wanted(ctl, &info);
	if (!rc)
		rc = ctl_join_composer(ctl, &client);
	if (rc)
		return rc;
	rc = create(ctl, &client, &info);
	client_close(&client);
	return rc;
}

const struct ctl_verb ctl_volume_create = {
	"volume",
	"create",
	"NAME",
	1,
	1,
	"make a volume",
	"\tEmpty, or with *--from* with the contents of a snapshot or a volume. It takes no space "
	"until it is written. A volume that exists with the same parameters is fine (changed: "
	"false).\n",
	run_create,
	{&ctl_volume_option_size, &option_from, &ctl_volume_option_object_size, &ctl_option_via,
		&ctl_option_dry_run},
	.examples = "xsegctl volume create disk --size 10G\n"
		    "xsegctl volume create vm1 --from debian-12 --size 40G\n",
};

/* --- rm --------------------------------------------------------------------------------- */

static int rm_allowed(struct ctl *ctl, const struct xseg_volume_info *info)
{
	int rc = ctl_map_changeable(ctl, info);
	if (rc)
		return rc;
	if (info->flags & XSEG_VOLUME_PROTECTED)
		return ctl_map_fault(ctl, info, "cannot be removed", -EPERM, NULL);
	if (info->opens)
		return fault_set(&ctl->fault, FAULT_BUSY, info->name,
			"let its clients disconnect first",
			"volume '%s' is attached: %u have it open", info->name, info->opens);
	return 0;
}

/* REMOVE says no more than that it is refused: who has it open is in its detail, its children are
   in a list. */
static int rm_refused(
	struct ctl *ctl, struct client *client, const struct xseg_volume_info *info, int error)
{
	struct ctl_map_call call = {.blamed = true};
	struct map_detail detail;
	int rc = error == -ENOTEMPTY ? ctl_map_tree_childless(ctl, client, info) : 0;
	if (rc)
		return rc;
	if (error == -EBUSY && ctl_map_detail(client, info->id, &detail) == 0)
		call.trouble.owner = detail.home;
	if (error == -EBUSY && !call.trouble.owner.owner)
		return fault_set(&ctl->fault, FAULT_BUSY, info->name,
			"let its clients disconnect first", "volume '%s' is attached", info->name);
	return ctl_map_fault(ctl, info, "cannot be removed", error, &call);
}

/* A plan asks what the deed would be refused for; without maps there are no children. */
static int rm_plan(struct ctl *ctl, struct client *client, const struct xseg_volume_info *info)
{
	struct map_head_info head;
	if (ctl_map_head(client, info->id, &head) == -EOPNOTSUPP)
		return 0;
	return ctl_map_tree_childless(ctl, client, info);
}

/* A damaged one has lost its name, and is listed by its id. */
static bool rm_finds_damaged(struct client *client, const char *name, struct xseg_volume_info *info)
{
	char again[24];
	uint64_t id = strtoull(name, NULL, 16);
	snprintf(again, sizeof(again), "%016llx", (unsigned long long)id);
	struct client_request request = {.op = XSEG_OP_INFO,
		.key.volume = id,
		.length = (uint32_t)sizeof(*info),
		.receive = info,
		.receive_size = sizeof(*info)};
	if (strcmp(again, name) != 0 || id == 0 || ctl_volume_do(client, &request) != -EILSEQ)
		return false;
	*info = (struct xseg_volume_info){.id = id};
	return true;
}

static int rm_find(
	struct ctl *ctl, struct client *client, const char *name, struct xseg_volume_info *info)
{
	if (rm_finds_damaged(client, name, info))
		return 0;
	return ctl_volume_find(ctl, client, name, info);
}

static int rm(struct ctl *ctl, struct client *client, const char *name)
{
	static const struct ctl_column columns[] = {{"name", "name", CTL_TEXT},
		{"size", "size", CTL_SIZE}, {"removed", "removed", CTL_TEXT},
		{"dry_run", "dry run", CTL_TEXT}};
	struct xseg_volume_info info = {0};
	char deed[384];
	bool plan = ctl_option_given(ctl, "dry-run");
	int rc = rm_find(ctl, client, name, &info);
	if (!rc)
		rc = rm_allowed(ctl, &info);
	snprintf(deed, sizeof(deed), "remove %s '%s' and all its data",
		info.flags & XSEG_VOLUME_SNAPSHOT ? "snapshot" : "volume", name);
	if (!rc && !plan)
		rc = ctl_ask(ctl, deed);
	if (!rc && plan)
		rc = rm_plan(ctl, client, &info);
	int gone = rc || plan ? 0 : ctl_volume_tell(client, XSEG_OP_REMOVE, info.id, 0);
	if (gone)
		rc = rm_refused(ctl, client, &info, gone);
	if (rc)
		return rc;
	ctl_output_one(ctl,
		json_pack("{s:s, s:I, s:b, s:b}", "name", name, "size", (json_int_t)info.size,
			"removed", !plan, "dry_run", plan),
		columns, countof(columns));
	return 0;
}

static int run_rm(struct ctl *ctl)
{
	struct client client;
	int rc = ctl_volume_name_check(ctl, ctl->argv[0]);
	if (!rc)
		rc = ctl_join_composer(ctl, &client);
	if (rc)
		return rc;
	rc = rm(ctl, &client, ctl->argv[0]);
	client_close(&client);
	return rc;
}

const struct ctl_verb ctl_volume_rm = {
	"volume",
	"rm",
	"NAME",
	1,
	1,
	"remove a volume or a snapshot and its data",
	"\tRefuses while somebody has it open, while snapshots or clones hang from it, and while "
	"it "
	"is protected; says which and who. What others share stays. A volume whose record is "
	"damaged is removed by its id, as _xsegctl volume list_ shows it.\n",
	run_rm,
	{&ctl_option_yes, &ctl_option_dry_run, &ctl_option_via},
	.examples = "xsegctl volume rm disk --yes\n",
};
