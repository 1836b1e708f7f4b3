/* SPDX-License-Identifier: Apache-2.0 */
/* volume create, rm, list and info: asked of the composer, through the segment itself. */
#include "tools/ctl_volume.h"

#include <base/must.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#define LIST_AT_ONCE 64u

const struct ctl_option ctl_volume_option_size = {"size", 0, "SIZE", "size of the volume", NULL};
const struct ctl_option ctl_volume_option_object_size = {"object-size", 0, "SIZE",
	"size of its objects, a power of two, 4K to 4M (default 4M)", NULL};

static const struct ctl_column volume_columns[] = {
	{"name", "NAME", CTL_TEXT},
	{"size", "SIZE", CTL_SIZE},
	{"object_size", "OBJECT", CTL_SIZE},
	{"state", "STATE", CTL_TEXT},
	{"opens", "OPENS", CTL_COUNT},
	{"created_ns", "CREATED", CTL_DATE},
};

static const struct ctl_column info_columns[] = {
	{"name", "name", CTL_TEXT},
	{"id", "id", CTL_TEXT},
	{"size", "size", CTL_SIZE},
	{"object_size", "object size", CTL_SIZE},
	{"objects", "objects", CTL_COUNT},
	{"state", "state", CTL_TEXT},
	{"opens", "opens", CTL_COUNT},
	{"read_only", "read-only", CTL_TEXT},
	{"fixed", "fixed", CTL_TEXT},
	{"created_ns", "created", CTL_DATE},
};

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

int ctl_volume_tell(struct client *client, enum xseg_op op, unsigned flags, uint64_t id)
{
	struct xseg_volume_info info; /* OPEN answers with it */
	struct client_request request = {.op = op, .flags = flags, .key.volume = id};
	if (op == XSEG_OP_OPEN) {
		request.receive = &info;
		request.receive_size = request.length = sizeof(info);
	}
	return ctl_volume_do(client, &request);
}

int ctl_volume_fault(struct ctl *ctl, const char *name, const char *what, int error)
{
	const char *hint = NULL;
	if (error == -ETIMEDOUT)
		hint = "'xsegctl status' says who is not well; --timeout sets the limit";
	return fault_set(&ctl->fault, fault_code_of_errno(error), name, hint, "volume '%s' %s: %s",
		name, what, error == -ETIMEDOUT ? "nobody answers" : strerror(-error));
}

int ctl_volume_name_check(struct ctl *ctl, const char *name)
{
	if (volume_name_check(name))
		return 0;
	return fault_set(&ctl->fault, FAULT_USAGE, name, "no '/', no control characters",
		"'%s' is no name for a volume", name);
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
	if (rc == -ENOENT)
		return fault_set(&ctl->fault, FAULT_NOT_FOUND, name,
			"'xsegctl volume list' lists them", "volume '%s' does not exist", name);
	return rc ? ctl_volume_fault(ctl, name, "cannot be asked", rc) : 0;
}

static const char *state_name(uint32_t state)
{
	static const char *const names[] = {[XSEG_VOLUME_READY] = "ready",
		[XSEG_VOLUME_IMPORTING] = "importing",
		[XSEG_VOLUME_REMOVING] = "removing"};
	return state >= XSEG_VOLUME_READY && state < countof(names) ? names[state] : "unknown";
}

json_t *ctl_volume_json(const struct xseg_volume_info *info)
{
	char id[24];
	/* 64 bits do not fit what JSON readers take for a number */
	snprintf(id, sizeof(id), "%016llx", (unsigned long long)info->id);
	return json_pack("{s:s, s:s, s:I, s:I, s:s, s:I, s:I, s:b, s:b, s:I}", "name", info->name,
		"id", id, "size", (json_int_t)info->size, "object_size",
		(json_int_t)info->object_size, "state", state_name(info->state), "objects",
		(json_int_t)info->objects, "opens", (json_int_t)info->opens, "read_only",
		(info->flags & XSEG_VOLUME_READ_ONLY) != 0, "fixed",
		(info->flags & XSEG_VOLUME_FIXED) != 0, "created_ns", (json_int_t)info->created_ns);
}

/* --- create ----------------------------------------------------------------------------- */

int ctl_volume_object_size(struct ctl *ctl, uint32_t *object_size)
{
	uint64_t size = *object_size;
	int rc = ctl_value_size(ctl, "object-size", &size);
	if (rc)
		return rc;
	bool power = size && (size & (size - 1)) == 0;
	if (!power || size < XSEG_PAGE || size > XSEG_OBJECT_MAX)
		return fault_set(&ctl->fault, FAULT_USAGE, ctl_value(ctl, "object-size"), NULL,
			"--object-size: a power of two from 4K to 4M");
	*object_size = (uint32_t)size;
	return 0;
}

static int create_wanted(struct ctl *ctl, struct xseg_volume_info *info)
{
	*info = (struct xseg_volume_info){
		.object_size = XSEG_OBJECT_MAX, .state = XSEG_VOLUME_READY};
	int rc = ctl_volume_name_check(ctl, ctl->argv[0]);
	if (rc)
		return rc;
	snprintf(info->name, sizeof(info->name), "%s", ctl->argv[0]);
	if (!ctl_given(ctl, "size"))
		return fault_set(&ctl->fault, FAULT_USAGE, info->name, "e.g. --size 10G",
			"a volume needs a size");
	rc = ctl_value_size(ctl, "size", &info->size);
	if (!rc)
		rc = ctl_volume_object_size(ctl, &info->object_size);
	if (!rc && (info->size == 0 || info->size % XSEG_SECTOR))
		rc = fault_set(&ctl->fault, FAULT_USAGE, info->name, NULL,
			"--size: a multiple of %u bytes, and not 0", XSEG_SECTOR);
	return rc;
}

/* What exists is fine when it is what was asked for. */
static int create_compare(struct ctl *ctl, struct client *client, struct xseg_volume_info *info)
{
	struct xseg_volume_info found;
	int rc = ctl_volume_find(ctl, client, info->name, &found);
	if (rc)
		return rc;
	bool same_objects =
		!ctl_given(ctl, "object-size") || found.object_size == info->object_size;
	if (found.size != info->size || !same_objects || found.state != XSEG_VOLUME_READY)
		return fault_set(&ctl->fault, FAULT_CONFLICT, info->name,
			"choose another name, or remove it with 'xsegctl volume rm'",
			"volume '%s' exists: %llu bytes in objects of %u, %s", info->name,
			(unsigned long long)found.size, found.object_size, state_name(found.state));
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
	bool plan = ctl_given(ctl, "dry-run");
	int made = plan ? create_plan(client, info) : ctl_volume_ask(client, XSEG_OP_CREATE, info);
	int rc = 0;
	if (made == -EEXIST)
		rc = create_compare(ctl, client, info);
	else if (made)
		rc = ctl_volume_fault(ctl, info->name, "cannot be made", made);
	if (rc)
		return rc;
	json_t *object = ctl_volume_json(info);
	json_object_set_new(object, "changed", json_boolean(made == 0 && !plan));
	json_object_set_new(object, "dry_run", json_boolean(plan));
	ctl_output_one(ctl, object, made_columns, MADE_COUNT(plan));
	return 0;
}

static int run_create(struct ctl *ctl)
{
	struct xseg_volume_info info;
	struct client client;
	int rc = create_wanted(ctl, &info);
	if (!rc)
		rc = ctl_join_composer(ctl, &client);
	if (rc)
		return rc;
	rc = create(ctl, &client, &info);
	client_close(&client);
	return rc;
}

const struct ctl_verb ctl_volume_create = {"volume", "create", "NAME", 1, 1, "make an empty volume",
	"\tIt takes no space until it is written. A volume that exists with the same parameters is "
	"fine (changed: false).\n",
	run_create,
	{&ctl_volume_option_size, &ctl_volume_option_object_size, &ctl_option_via,
		&ctl_option_dry_run}};

/* --- rm --------------------------------------------------------------------------------- */

static int rm_allowed(struct ctl *ctl, const struct xseg_volume_info *info)
{
	if (info->flags & XSEG_VOLUME_FIXED)
		return fault_set(&ctl->fault, FAULT_BUSY, info->name,
			"take 'fixed=' out of the pipeline file",
			"volume '%s' comes from the configuration", info->name);
	if (info->opens)
		return fault_set(&ctl->fault, FAULT_BUSY, info->name,
			"let its clients disconnect first",
			"volume '%s' is attached: %u have it open", info->name, info->opens);
	return 0;
}

static int rm(struct ctl *ctl, struct client *client, const char *name)
{
	static const struct ctl_column columns[] = {{"name", "name", CTL_TEXT},
		{"size", "size", CTL_SIZE}, {"removed", "removed", CTL_TEXT},
		{"dry_run", "dry run", CTL_TEXT}};
	struct xseg_volume_info info;
	char deed[384];
	bool plan = ctl_given(ctl, "dry-run");
	int rc = ctl_volume_find(ctl, client, name, &info);
	if (!rc)
		rc = rm_allowed(ctl, &info);
	snprintf(deed, sizeof(deed), "remove volume '%s' and all its data", name);
	if (!rc && !plan)
		rc = ctl_ask(ctl, deed);
	if (!rc && !plan) {
		int gone = ctl_volume_tell(client, XSEG_OP_REMOVE, 0, info.id);
		if (gone == -EBUSY)
			rc = fault_set(&ctl->fault, FAULT_BUSY, name,
				"let its clients disconnect first", "volume '%s' is attached",
				name);
		else if (gone)
			rc = ctl_volume_fault(ctl, name, "cannot be removed", gone);
	}
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

const struct ctl_verb ctl_volume_rm = {"volume", "rm", "NAME", 1, 1, "remove a volume and its data",
	"\tRefuses while somebody has it open.\n", run_rm,
	{&ctl_option_yes, &ctl_option_dry_run, &ctl_option_via}};

/* --- list and info ---------------------------------------------------------------------- */

static int list(struct client *client, json_t *rows)
{
	static struct xseg_volume_info infos[LIST_AT_ONCE];
	uint64_t cursor = 0;
	do {
		struct client_request request = {.op = XSEG_OP_LIST,
			.length = sizeof(infos),
			.arg0 = cursor,
			.receive = infos,
			.receive_size = sizeof(infos)};
		int rc = ctl_volume_do(client, &request);
		if (rc)
			return rc;
		uint32_t count = request.answer_length / sizeof(infos[0]);
		for (uint32_t i = 0; i < count && i < LIST_AT_ONCE; i++) {
			infos[i].name[VOLUME_NAME_LENGTH_MAX] = 0;
			json_array_append_new(rows, ctl_volume_json(&infos[i]));
		}
		if (request.value == cursor && cursor)
			return -EPROTO; /* it would never end */
		cursor = request.value;
	} while (cursor && !ctl_interrupted());
	return 0;
}

static int run_list(struct ctl *ctl)
{
	struct client client;
	int rc = ctl_join_composer(ctl, &client);
	if (rc)
		return rc;
	json_t *rows = json_array();
	rc = list(&client, rows);
	client_close(&client);
	if (rc) {
		json_decref(rows);
		return fault_set(&ctl->fault, fault_code_of_errno(rc), NULL,
			rc == -ETIMEDOUT ? "'xsegctl status' says who is not well" : NULL,
			"volumes cannot be listed: %s",
			rc == -ETIMEDOUT ? "the composer does not answer" : strerror(-rc));
	}
	ctl_output_rows(ctl, "volumes", rows, volume_columns, countof(volume_columns));
	return 0;
}

const struct ctl_verb ctl_volume_list = {
	"volume", "list", "", 0, 0, "list volumes", NULL, run_list, {&ctl_option_via}};

static int run_info(struct ctl *ctl)
{
	struct xseg_volume_info info;
	struct client client;
	int rc = ctl_volume_name_check(ctl, ctl->argv[0]);
	if (!rc)
		rc = ctl_join_composer(ctl, &client);
	if (rc)
		return rc;
	rc = ctl_volume_find(ctl, &client, ctl->argv[0], &info);
	client_close(&client);
	if (!rc)
		ctl_output_one(ctl, ctl_volume_json(&info), info_columns, countof(info_columns));
	return rc;
}

const struct ctl_verb ctl_volume_info = {
	"volume", "info", "NAME", 1, 1, "show one volume", NULL, run_info, {&ctl_option_via}};
