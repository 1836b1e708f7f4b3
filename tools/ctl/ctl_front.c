/* SPDX-License-Identifier: Apache-2.0 */
/* client list, and what a front says of itself before others are cut off or called well. */
#include "tools/ctl/ctl_front.h"

#include <base/clock.h>
#include <base/must.h>
#include <base/time.h>
#include <errno.h>
#include <peer/client.h>
#include <peer/front.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <xseg/registry.h>

#include "tools/ctl/ctl_map.h"
#include "tools/report/report.h"

#define LIMIT_NS 1000000000u
#define AT_ONCE 32u
#define SHOWN 4u
#define LOOKS 5u
#define LOOK_NS 50000000

static const struct ctl_column columns[] = {{"client", "CLIENT", CTL_TEXT},
	{"volume", "VOLUME", CTL_TEXT}, {"front", "FRONT", CTL_TEXT},
	{"read_only", "READ ONLY", CTL_TEXT}, {"for_ns", "FOR", CTL_TIME}};

bool ctl_front_is(const char *role) { return !strncmp(role, "front_", 6); }

/* --- clients -------------------------------------------------------------------------------- */

struct gather {
	struct ctl *ctl;
	const struct ctl_front_wish *wish;
	struct ctl_map_nodes nodes; /* to name volumes */
	json_t *rows;
};

/* A composer that does not answer leaves volumes without names, and that is all. */
static void name_volumes(struct gather *gather)
{
	const struct fault before = gather->ctl->fault;
	struct client client;
	if (!ctl_join_composer(gather->ctl, &client)) {
		client.timeout_ns = LIMIT_NS;
		if (ctl_map_tree_list(&client, &gather->nodes))
			gather->nodes.count = 0;
		client_close(&client);
	}
	gather->ctl->fault = before;
}

static const char *name_of(const struct gather *gather, uint64_t volume, char id[17])
{
	for (size_t i = 0; i < gather->nodes.count; i++)
		if (gather->nodes.all[i].info.id == volume && gather->nodes.all[i].info.name[0])
			return gather->nodes.all[i].info.name;
	snprintf(id, 17, "%016llx", (unsigned long long)volume);
	return id;
}

static void add(struct gather *gather, const char *front, struct front_client *found)
{
	char id[17];
	uint64_t now_ns = clock_now_ns();
	if (gather->wish->volume && found->volume != gather->wish->volume)
		return;
	if (!json_array_size(gather->rows))
		name_volumes(gather);
	found->who[sizeof(found->who) - 1] = 0;
	name_make_utf8(found->who);
	json_array_append_new(gather->rows,
		json_pack("{s:s, s:s, s:s, s:b, s:I}", "client", found->who, "volume",
			name_of(gather, found->volume, id), "front", front, "read_only",
			(int)(found->flags & FRONT_CLIENT_READ_ONLY), "for_ns",
			(json_int_t)(now_ns > found->since_ns ? now_ns - found->since_ns : 0)));
}

static int gather_front(struct gather *gather, const char *segment, const char *name)
{
	struct front_client found[AT_ONCE];
	struct client client;
	char why[XSEG_WHY_SIZE];
	struct client_control call = {
		.what = FRONT_CLIENTS, .out = found, .out_size = sizeof(found)};
	uint64_t all = 1;
	int error = client_open(&client, segment, name, why);
	if (error)
		return error;
	client.timeout_ns = LIMIT_NS;
	while (!error && call.number < all) {
		error = client_control(&client, &call);
		uint32_t got = error ? 0 : call.got / sizeof(found[0]);
		for (uint32_t i = 0; i < got && i < AT_ONCE; i++)
			add(gather, name, &found[i]);
		all = got ? call.value : 0;
		call.number += got;
	}
	client_close(&client);
	return error;
}

/* In no order: of every front that answers. */
static int clients(struct ctl *ctl, const struct ctl_front_wish *wish, json_t **rows)
{
	struct gather gather = {.ctl = ctl, .wish = wish, .rows = json_array()};
	struct xseg_peer_view view, with = {0};
	struct xseg seg;
	int rc = ctl_join(ctl, &seg);
	if (rc) {
		json_decref(gather.rows);
		return rc;
	}
	if (wish->peer && xseg_peer_find(&seg, wish->peer, &with))
		with.pid = 0;
	for (uint32_t i = 0; i < XSEG_PEERS_MAX; i++)
		if (xseg_peer_view(&seg, i, &view) && view.life == XSEG_LIFE_ALIVE &&
			ctl_front_is(view.role) && (!wish->peer || view.pid == with.pid))
			gather_front(&gather, seg.name, view.name);
	xseg_segment_leave(&seg);
	free(gather.nodes.all);
	*rows = gather.rows;
	return 0;
}

static int run_list(struct ctl *ctl)
{
	const struct ctl_front_wish all = {0};
	json_t *rows;
	int rc = clients(ctl, &all, &rows);
	if (!rc)
		ctl_output_rows(ctl, "clients", rows, columns, countof(columns));
	return rc;
}

const struct ctl_verb ctl_client_list = {
	"client",
	"list",
	"",
	0,
	0,
	"who is attached to which volume",
	"\tThe connections of all fronts: who (the process and user of a UNIX socket, or an "
	"address), "
	"which volume, and for how long. *FOR* begins anew when the front is started again.\n",
	run_list,
	{0},
	.examples = "xsegctl client list\n",
};

/* --- addresses -------------------------------------------------------------------------------- */

static void addresses_of(
	json_t *rows, const char *segment, const char *front, const char *volume, unsigned way)
{
	struct {
		char name[FRONT_ANSWER_AT];
		struct front_address address[AT_ONCE];
	} data = {.name = ""};
	struct client_control call = {.what = FRONT_ADDRESSES,
		.in = data.name,
		.in_size = sizeof(data.name),
		.answer_at = FRONT_ANSWER_AT,
		.out = data.address,
		.out_size = sizeof(data.address)};
	snprintf(data.name, sizeof(data.name), "%s", volume);
	int error = client_control_once(segment, front, LIMIT_NS, &call);
	size_t got = error ? 0 : call.got / sizeof(data.address[0]);
	for (size_t i = 0; i < got && i < AT_ONCE; i++) {
		struct front_address *address = &data.address[i];
		if ((address->flags & (FRONT_ADDRESS_VHOST | FRONT_ADDRESS_FILE)) != way)
			continue;
		address->text[sizeof(address->text) - 1] = 0;
		name_make_utf8(address->text);
		json_array_append_new(rows, json_pack("{s:s, s:i, s:s}", "front", front, "flags",
						    (int)address->flags, "text", address->text));
	}
}

static void addresses_missing(struct ctl *ctl, const char *volume, unsigned way)
{
	const char *hint =
		"'xsegctl status' shows the fronts; their 'export' and 'listen' say what "
		"and where";
	const char *whom = "to clients";
	if (way == FRONT_ADDRESS_VHOST) {
		hint = "start a front_vhost with that 'volume'";
		whom = "to machines over vhost-user";
	} else if (way == FRONT_ADDRESS_FILE) {
		hint = "start a front_fuse with a 'path'";
		whom = "as a file";
	}
	fault_set(&ctl->fault, FAULT_NOT_FOUND, volume, hint, "no front offers volume '%s' %s",
		volume, whom);
}

json_t *ctl_front_addresses(struct ctl *ctl, const char *volume, unsigned way)
{
	json_t *rows = json_array();
	struct xseg_peer_view view;
	struct xseg seg;
	int rc = ctl_join(ctl, &seg);
	for (uint32_t i = 0; !rc && i < XSEG_PEERS_MAX; i++)
		if (xseg_peer_view(&seg, i, &view) && view.life == XSEG_LIFE_ALIVE &&
			ctl_front_is(view.role))
			addresses_of(rows, seg.name, view.name, volume, way);
	if (!rc)
		xseg_segment_leave(&seg);
	if (!rc && json_array_size(rows))
		return rows;
	if (!rc)
		addresses_missing(ctl, volume, way);
	json_decref(rows);
	return NULL;
}

/* --- before they are cut off ------------------------------------------------------------------ */

/* "'disk' (client of process 12 (user 0)), 'root' (...) and 3 more" */
static void words(const json_t *rows, char *out, size_t out_size)
{
	size_t i, used = 0, count = json_array_size(rows);
	json_t *row;
	out[0] = 0;
	json_array_foreach (rows, i, row) {
		if (i == SHOWN || used >= out_size)
			break;
		used += (size_t)snprintf(out + used, out_size - used, "%s'%s' (%s)", i ? ", " : "",
			json_string_value(json_object_get(row, "volume")),
			json_string_value(json_object_get(row, "client")));
	}
	if (count > SHOWN && used < out_size)
		snprintf(out + used, out_size - used, " and %zu more", count - SHOWN);
}

/* Who has hung up a moment ago is not taken for a guest. */
static int attached(struct ctl *ctl, const struct ctl_front_wish *wish, json_t **rows)
{
	const struct fault before = ctl->fault;
	unsigned looks = wish->looks ? wish->looks : LOOKS;
	for (unsigned look = 0;; look++) {
		if (clients(ctl, wish, rows)) {
			ctl->fault = before; /* what is asked for will say so itself */
			return -1;
		}
		if (json_array_size(*rows) == 0 || look == looks)
			return 0;
		json_decref(*rows);
		time_nap(LOOK_NS);
	}
}

int ctl_front_ask(struct ctl *ctl, const struct ctl_front_wish *wish, const char *deed)
{
	char list[1024], text[1280];
	json_t *rows;
	if (ctl_option_given(ctl, "yes") || ctl_option_given(ctl, "dry-run"))
		return 0;
	if (attached(ctl, wish, &rows))
		return 0;
	size_t count = json_array_size(rows);
	words(rows, list, sizeof(list));
	json_decref(rows);
	if (!count)
		return 0;
	snprintf(text, sizeof(text), "%s, with %zu client%s attached: %s", deed, count,
		count == 1 ? "" : "s", list);
	if (isatty(STDIN_FILENO) && isatty(STDERR_FILENO))
		return ctl_ask(ctl, text);
	return fault_set(&ctl->fault, FAULT_BUSY, NULL, "detach them first, or say --yes",
		"nobody is here to confirm: %s", text);
}

/* --- status ----------------------------------------------------------------------------------- */

static void reason_of(const struct front_check *check, char *out, size_t out_size)
{
	if (!check->error)
		out[0] = 0;
	else if (check->name[0])
		snprintf(out, out_size, "export '%.100s' cannot be opened: %s", check->name,
			strerror(-check->error));
	else
		snprintf(
			out, out_size, "its volumes cannot be listed: %s", strerror(-check->error));
}

void ctl_front_status(const char *segment, json_t *peer)
{
	const char *name = json_string_value(json_object_get(peer, "name"));
	char reason[200] = "it does not answer";
	struct front_check check = {0};
	struct client_control call = {
		.what = FRONT_CHECK, .out = &check, .out_size = sizeof(check)};
	int rc = client_control_once(segment, name, LIMIT_NS, &call);
	check.name[VOLUME_NAME_LENGTH_MAX] = 0;
	name_make_utf8(check.name);
	if (rc == 0)
		reason_of(&check, reason, sizeof(reason));
	else if (rc != -ETIMEDOUT)
		return; /* no lane is free, or it knows nothing of such questions */
	if (reason[0])
		report_set_health(peer, "degraded", reason);
}
