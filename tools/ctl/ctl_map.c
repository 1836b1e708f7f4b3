/* SPDX-License-Identifier: Apache-2.0 */
/* Asks for maps through the composer, and puts what is refused into words. */
#include "tools/ctl/ctl_map.h"

#include <base/must.h>
#include <base/time.h>
#include <errno.h>
#include <peer/client.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

/* --- requests --------------------------------------------------------------------------- */

int ctl_map_call(struct client *client, struct ctl_map_call *call)
{
	uint32_t room = call->out_size > sizeof(call->trouble) ? call->out_size
							       : (uint32_t)sizeof(call->trouble);
	uint8_t *out = calloc(1, room);
	if (!out)
		return -ENOMEM;
	struct client_control asked = {.what = call->what,
		.volume = call->volume,
		.number = call->number,
		.in = call->ask,
		.in_size = sizeof(*call->ask),
		.answer_at = MAP_ANSWER_AT,
		.out = out,
		.out_size = room};
	int rc = client_control(client, &asked);
	call->value = asked.value;
	call->blamed = rc && asked.value == 1;
	call->got = rc ? 0 : asked.got < call->out_size ? asked.got : call->out_size;
	if (call->got)
		memcpy(call->out, out, call->got);
	if (call->blamed)
		memcpy(&call->trouble, out, sizeof(call->trouble));
	call->trouble.name[VOLUME_NAME_LENGTH_MAX] = 0;
	call->trouble.owner.host[sizeof(call->trouble.owner.host) - 1] = 0;
	free(out);
	return rc;
}

int ctl_map_detail(struct client *client, uint64_t id, struct map_detail *detail)
{
	struct ctl_map_call call = {
		.what = MAP_DETAIL, .volume = id, .out = detail, .out_size = sizeof(*detail)};
	int rc = ctl_map_call(client, &call);
	detail->name[VOLUME_NAME_LENGTH_MAX] = 0;
	detail->parent_name[VOLUME_NAME_LENGTH_MAX] = 0;
	detail->home.host[sizeof(detail->home.host) - 1] = 0;
	return !rc && call.got < sizeof(*detail) ? -EPROTO : rc;
}

static int head_of_detail(struct client *client, uint64_t id, struct map_head_info *head)
{
	struct map_detail detail;
	int rc = ctl_map_detail(client, id, &detail);
	if (rc)
		return rc;
	*head = (struct map_head_info){.id = id,
		.size = detail.size,
		.parent = detail.parent,
		.generation = detail.generation,
		.created_ns = detail.created_ns,
		.object_size = detail.object_size,
		.state = detail.state,
		.flags = detail.flags,
		.limits = detail.limits};
	memcpy(head->name, detail.name, sizeof(head->name));
	return 0;
}

/* A composer may keep that question to itself; the detail has the same, and takes longer. */
int ctl_map_head(struct client *client, uint64_t id, struct map_head_info *head)
{
	struct ctl_map_call call = {.what = MAP_ACQUIRE,
		.volume = id,
		.number = MAP_READ_ONLY,
		.out = head,
		.out_size = sizeof(*head)};
	int rc = ctl_map_call(client, &call);
	if (rc == -EINVAL || rc == -EOPNOTSUPP || rc == -EPERM)
		return head_of_detail(client, id, head);
	head->name[VOLUME_NAME_LENGTH_MAX] = 0;
	return !rc && call.got < sizeof(*head) ? -EPROTO : rc;
}

uint64_t ctl_map_draw_id(void)
{
	uint64_t id = 0;
	while (id == 0)
		must(getrandom(&id, sizeof(id), 0) == sizeof(id));
	return id;
}

/* --- what is refused -------------------------------------------------------------------- */

void ctl_map_date(uint64_t ns, char *out, size_t out_size)
{
	static const struct ctl_column column = {"ns", "", CTL_DATE};
	json_t *row = json_pack("{s:I}", "ns", (json_int_t)ns);
	ctl_output_cell(row, &column, false, out, out_size);
	json_decref(row);
}

static int busy_fault(
	struct ctl *ctl, const char *name, const char *what, const struct ctl_map_call *call)
{
	char since[32];
	bool elsewhere = call && call->blamed && call->trouble.owner.owner;
	if (!elsewhere)
		return fault_set(&ctl->fault, FAULT_BUSY, name,
			"let its clients disconnect, or try again in a moment",
			"volume '%s' %s: it is open, or is being changed just now", name, what);
	ctl_map_date(call->trouble.owner.since_ns, since, sizeof(since));
	fault_set(&ctl->fault, FAULT_BUSY, name, NULL,
		"volume '%s' %s: host '%s' has it open since %s", name, what,
		call->trouble.owner.host, since);
	fault_hint(&ctl->fault,
		"close it there; if that host is gone for good: 'xsegctl volume break-lock %.128s'",
		name);
	return -FAULT_BUSY;
}

static int children_fault(
	struct ctl *ctl, const char *name, const char *what, const struct ctl_map_call *call)
{
	const char *child = call && call->blamed ? call->trouble.name : "";
	if (!*child)
		return fault_set(&ctl->fault, FAULT_BUSY, name,
			"'xsegctl volume list --tree' shows them",
			"volume '%s' %s: it has snapshots or clones", name, what);
	return fault_set(&ctl->fault, FAULT_BUSY, name,
		"remove its children first, or flatten those that are clones",
		"volume '%s' %s: '%s' hangs from it", name, what, child);
}

/* Protected, a snapshot, or read-only. */
static int forbidden_fault(struct ctl *ctl, const struct xseg_volume_info *info, const char *what)
{
	const char *name = info->name;
	if (info->flags & XSEG_VOLUME_PROTECTED) {
		fault_set(&ctl->fault, FAULT_BUSY, name, NULL, "volume '%s' %s: it is protected",
			name, what);
		fault_hint(&ctl->fault, "'xsegctl volume unprotect %.128s' allows it", name);
		return -FAULT_BUSY;
	}
	bool snapshot = info->flags & XSEG_VOLUME_SNAPSHOT;
	return fault_set(&ctl->fault, FAULT_CONFLICT, name,
		snapshot ? "make a clone of it with 'xsegctl volume clone'" : NULL,
		"volume '%s' %s: it is %s", name, what,
		snapshot ? "a snapshot, which never changes" : "read-only");
}

static int exists_fault(struct ctl *ctl, const struct xseg_volume_info *info, const char *what,
	const struct ctl_map_call *call)
{
	const char *name = call && call->blamed && call->trouble.name[0] ? call->trouble.name
			   : call && call->ask				 ? call->ask->name
									 : info->name;
	return fault_set(&ctl->fault, FAULT_CONFLICT, name, "choose another name",
		"volume '%s' %s: the name '%s' is taken", info->name, what, name);
}

static const struct {
	int error;
	const char *why, *hint;
} reasons[] = {
	{ETIMEDOUT, "nobody answers",
		"'xsegctl status' says who is not well; --timeout sets the limit"},
	{EOPNOTSUPP, "the composer has no mapper, which keeps the maps of volumes",
		"give it one: a peer of role mapperd, and edge.map of the composer"},
	{EMLINK, "too many volumes lie between it and where its data come from",
		"flatten one of its parents with 'xsegctl volume flatten'"},
	{EILSEQ, "its map is damaged", "'xsegctl volume fsck' says where"},
	{EPROTO, "its record is of another version of this program", NULL},
	{ENOTUNIQ, "another name has the same hash as that one", "choose another name"},
	{EOVERFLOW, "it has been snapshotted so often that no epoch is left",
		"export it and import it anew"},
	{ESTALE, "it was taken away or changed while it was asked", "try again"},
	{ENOSPC, "the store is full", "make room with 'xsegctl volume rm' and 'xsegctl volume gc'"},
};

int ctl_map_fault(struct ctl *ctl, const struct xseg_volume_info *info, const char *what, int error,
	const struct ctl_map_call *call)
{
	const char *name = info->name;
	switch (-error) {
	case EBUSY: return busy_fault(ctl, name, what, call);
	case ENOTEMPTY: return children_fault(ctl, name, what, call);
	case EPERM: return forbidden_fault(ctl, info, what);
	case EEXIST: return exists_fault(ctl, info, what, call);
	default: break;
	}
	for (size_t i = 0; i < countof(reasons); i++)
		if (reasons[i].error == -error)
			return fault_set(&ctl->fault, fault_code_of_errno(error), name,
				reasons[i].hint, "volume '%s' %s: %s", name, what, reasons[i].why);
	return ctl_volume_fault(ctl, name, what, error);
}

int ctl_map_do(struct ctl *ctl, struct client *client, const struct xseg_volume_info *info,
	const char *what, struct ctl_map_call *call)
{
	int error = ctl_map_call(client, call);
	return error ? ctl_map_fault(ctl, info, what, error, call) : 0;
}

int ctl_map_changeable(struct ctl *ctl, const struct xseg_volume_info *info)
{
	if (!(info->flags & XSEG_VOLUME_FIXED))
		return 0;
	return fault_set(&ctl->fault, FAULT_BUSY, info->name,
		"take 'fixed=' out of the pipeline file",
		"volume '%s' comes from the configuration and has no map", info->name);
}

int ctl_map_open(
	struct ctl *ctl, const char *name, struct client *client, struct xseg_volume_info *info)
{
	int rc = ctl_volume_name_check(ctl, name);
	if (!rc)
		rc = ctl_join_composer(ctl, client);
	if (rc)
		return rc;
	rc = ctl_volume_find(ctl, client, name, info);
	if (rc)
		client_close(client);
	else if (!ctl->timeout_given)
		client->timeout_ns = CTL_MAP_PATIENCE_NS;
	return rc;
}

/* --- JSON ------------------------------------------------------------------------------- */

json_t *ctl_map_limits_json(const struct map_change_limits *limits)
{
	return json_pack("{s:I, s:I, s:I}", "iops", (json_int_t)limits->iops, "bandwidth",
		(json_int_t)limits->bytes, "burst_ns", (json_int_t)(limits->burst_ms * 1000000u));
}

json_t *ctl_map_owner_json(const struct map_owner *owner)
{
	char id[24], host[sizeof(owner->host)];
	if (!owner->owner)
		return json_null();
	snprintf(id, sizeof(id), "%016llx", (unsigned long long)owner->owner);
	snprintf(host, sizeof(host), "%s", owner->host);
	name_make_utf8(host);
	return json_pack("{s:s, s:s, s:I, s:I, s:I}", "host", host, "owner", id, "term",
		(json_int_t)owner->term, "since_ns", (json_int_t)owner->since_ns, "until_ns",
		(json_int_t)owner->until_ns);
}
