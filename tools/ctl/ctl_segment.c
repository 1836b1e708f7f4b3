/* SPDX-License-Identifier: Apache-2.0 */
/* segment create, destroy, list and dump: the named files that everything else lies in. */
#include <base/must.h>
#include <base/path.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <xseg/registry.h>

#include "tools/ctl/ctl_output.h"
#include "tools/report/kept.h"
#include "tools/report/report.h"

static const struct ctl_option option_size = {
	"size", 0, "SIZE", "size of the segment (default 1G)", NULL};
static const struct ctl_option option_lanes = {
	"lanes", 0, "N", "threads that can be in it at once (default: by size)", NULL};
static const struct ctl_option option_huge = {"huge", 0, "DIR", "hugetlbfs mount to lie in", NULL};
static const struct ctl_option option_requests = {
	"requests", 0, "N", "requests in flight at once (default: by size)", NULL};

static const struct ctl_column segment_columns[] = {
	{"name", "NAME", CTL_TEXT},
	{"size", "SIZE", CTL_SIZE},
	{"lanes", "LANES", CTL_COUNT},
	{"peer_count", "PEERS", CTL_COUNT},
	{"pages.free", "PAGES FREE", CTL_COUNT},
	{"state", "STATE", CTL_TEXT},
};

static const struct ctl_column made_columns[] = {
	{"name", "name", CTL_TEXT},
	{"path", "path", CTL_TEXT},
	{"size", "size", CTL_SIZE},
	{"lanes", "lanes", CTL_COUNT},
	{"pages.total", "pages", CTL_COUNT},
	{"requests.total", "requests", CTL_COUNT},
	{"overhead", "overhead", CTL_SIZE},
	{"huge", "huge pages", CTL_TEXT},
	{"uuid", "uuid", CTL_TEXT},
	{"changed", "changed", CTL_TEXT},
};

static int name_argument(struct ctl *ctl, const char **name)
{
	*name = ctl->argc ? ctl->argv[0] : ctl->segment;
	if (!*name)
		return fault_set(&ctl->fault, FAULT_USAGE, NULL, NULL, "say which segment");
	if (!name_check(*name))
		return fault_set(&ctl->fault, FAULT_USAGE, *name,
			"up to 31 letters, digits, '.', '_' or '-'",
			"'%s' is no name for a segment", *name);
	return 0;
}

/* --- create ----------------------------------------------------------------------------- */

static int make_config(struct ctl *ctl, struct xseg_config *config)
{
	uint64_t lanes = 0, requests = 0;
	int rc = name_argument(ctl, &config->name);
	config->size = 1ull << 30;
	config->huge_dir = ctl_option_value(ctl, "huge");
	if (!rc)
		rc = ctl_option_size(ctl, "size", &config->size);
	if (!rc)
		rc = ctl_option_number(ctl, "lanes", XSEG_LANES_MAX, &lanes);
	if (!rc)
		rc = ctl_option_number(ctl, "requests", 1u << 20, &requests);
	if (!rc && (config->size < XSEG_SIZE_MIN || config->size > XSEG_SIZE_MAX))
		rc = fault_set(&ctl->fault, FAULT_USAGE, ctl_option_value(ctl, "size"), NULL,
			"--size: a segment has 8M to 1T");
	config->lanes = (uint32_t)lanes;
	config->requests = (uint32_t)requests;
	return rc;
}

/* Fine when it is what was asked for. */
static int compare_existing(
	struct ctl *ctl, const struct xseg_config *config, const struct xseg *seg)
{
	/* sizes were rounded up when it was made, to huge pages at most */
	if (ctl_option_given(ctl, "size") &&
		(seg->size < config->size || seg->size - config->size >= (2u << 20)))
		return fault_set(&ctl->fault, FAULT_CONFLICT, config->name,
			"destroy it first, or use it as it is",
			"segment '%s' exists with %llu bytes", config->name,
			(unsigned long long)seg->size);
	if (config->lanes && seg->lane_count != config->lanes)
		return fault_set(&ctl->fault, FAULT_CONFLICT, config->name,
			"destroy it first, or use it as it is", "segment '%s' exists with %u lanes",
			config->name, seg->lane_count);
	if (config->requests && seg->request_count != config->requests)
		return fault_set(&ctl->fault, FAULT_CONFLICT, config->name,
			"destroy it first, or use it as it is",
			"segment '%s' exists with %u requests", config->name, seg->request_count);
	return 0;
}

/* --dry-run: as xseg_segment_create() would say. */
static int create_plan(struct ctl *ctl, const struct xseg_config *config)
{
	static const struct ctl_column columns[] = {{"name", "name", CTL_TEXT},
		{"size", "size", CTL_SIZE}, {"changed", "changed", CTL_TEXT},
		{"dry_run", "dry run", CTL_TEXT}};
	char why[XSEG_WHY_SIZE] = "";
	struct xseg seg;
	int rc = xseg_segment_join(config->name, &seg, why);
	if (!rc) {
		rc = compare_existing(ctl, config, &seg);
		xseg_segment_leave(&seg);
	} else if (rc != -ENOENT) {
		rc = fault_set(&ctl->fault, FAULT_CONFLICT, config->name,
			"'xsegctl segment destroy' removes it", "%s", why);
	} else {
		rc = 0;
	}
	if (!rc)
		ctl_output_one(ctl,
			json_pack("{s:s, s:I, s:b, s:b}", "name", config->name, "size",
				(json_int_t)config->size, "changed", 0, "dry_run", 1),
			columns, countof(columns));
	return rc;
}

static int run_create(struct ctl *ctl)
{
	struct xseg_config config = {0};
	char why[XSEG_WHY_SIZE] = "";
	struct xseg seg;
	int rc = make_config(ctl, &config);
	if (!rc && ctl_option_given(ctl, "dry-run"))
		return create_plan(ctl, &config);
	if (rc)
		return rc;
	int made = xseg_segment_create(&config, why);
	if (made && made != -EEXIST)
		return fault_set(&ctl->fault,
			made == -EINVAL ? FAULT_USAGE : fault_code_of_errno(made), config.name,
			NULL, "%s", why);
	rc = xseg_segment_join(config.name, &seg, why);
	if (rc)
		return fault_set(&ctl->fault, FAULT_CONFLICT, config.name,
			"'xsegctl segment destroy' removes it", "%s", why);
	rc = made ? compare_existing(ctl, &config, &seg) : 0;
	if (!rc) {
		json_t *object = report_segment(&seg);
		json_object_set_new(object, "changed", json_boolean(made == 0));
		ctl_output_one(ctl, object, made_columns, countof(made_columns));
	}
	xseg_segment_leave(&seg);
	return rc;
}

const struct ctl_verb ctl_segment_create = {
	"segment",
	"create",
	"NAME",
	0,
	1,
	"make a segment",
	"\tTouches every page, so that memory that is not there is noticed now. A segment that "
	"exists with the same parameters is fine (changed: false).\n",
	run_create,
	{&option_size, &option_lanes, &option_requests, &option_huge, &ctl_option_dry_run},
	.examples = "xsegctl segment create demo --size 1G\n",
};

/* --- destroy ---------------------------------------------------------------------------- */

static int refuse_used(struct ctl *ctl, const char *name, const struct xseg *seg)
{
	char list[256] = "";
	for (uint32_t i = 0; i < XSEG_PEERS_MAX; i++) {
		struct xseg_peer_view view;
		if (!xseg_peer_view(seg, i, &view) || view.life == XSEG_LIFE_DEAD)
			continue;
		size_t n = strlen(list);
		snprintf(list + n, sizeof(list) - n, "%s%s (pid %d)", n ? ", " : "", view.name,
			(int)view.pid);
	}
	if (!list[0])
		return 0;
	return fault_set(&ctl->fault, FAULT_BUSY, name, "stop them first, e.g. with 'xsegctl down'",
		"segment '%s' is in use by %s", name, list);
}

/* What a cache has and its store has not is lost with the segment. */
static int refuse_dirty(struct ctl *ctl, const char *name, const struct xseg *seg)
{
	struct kept kept;
	uint64_t discard = 0;
	int rc = ctl_option_size(ctl, "discard-dirty", &discard);
	kept_count(seg, XSEG_NONE, &kept);
	if (rc || kept.dirty == 0 || kept.dirty == discard)
		return rc;
	fault_set(&ctl->fault, FAULT_BUSY, name, NULL,
		"in segment '%s' are %llu bytes of a cache that its store lacks", name,
		(unsigned long long)kept.dirty);
	fault_hint(&ctl->fault,
		"'xsegctl up' with the cache in the file, then 'down', writes them back; "
		"--discard-dirty=%llu gives them up",
		(unsigned long long)kept.dirty);
	return -FAULT_BUSY;
}

static int run_destroy(struct ctl *ctl)
{
	const char *name;
	char why[XSEG_WHY_SIZE] = "", deed[128];
	struct xseg seg;
	int rc = name_argument(ctl, &name);
	if (rc)
		return rc;
	rc = xseg_segment_join(name, &seg, why);
	if (rc == -ENOENT)
		return fault_set(&ctl->fault, FAULT_NOT_FOUND, name, NULL, "%s", why);
	if (!rc) {
		rc = refuse_used(ctl, name, &seg);
		if (!rc)
			rc = refuse_dirty(ctl, name, &seg);
		xseg_segment_leave(&seg);
		if (rc)
			return rc;
	}
	snprintf(deed, sizeof(deed), "destroy segment '%s' and what lies in it", name);
	bool plan = ctl_option_given(ctl, "dry-run");
	rc = plan ? 0 : ctl_ask(ctl, deed);
	if (!rc && !plan) {
		int gone = xseg_segment_destroy(name, why);
		if (gone)
			rc = fault_set(
				&ctl->fault, fault_code_of_errno(gone), name, NULL, "%s", why);
	}
	if (rc)
		return rc;
	static const struct ctl_column columns[] = {{"name", "name", CTL_TEXT},
		{"destroyed", "destroyed", CTL_TEXT}, {"dry_run", "dry run", CTL_TEXT}};
	ctl_output_one(ctl,
		json_pack("{s:s, s:b, s:b}", "name", name, "destroyed", !plan, "dry_run", plan),
		columns, countof(columns));
	return 0;
}

const struct ctl_verb ctl_segment_destroy = {
	"segment",
	"destroy",
	"NAME",
	0,
	1,
	"remove a segment that nobody uses",
	"\tRefuses while a living process is in it, and says which, and while there is something "
	"in it that a cache has not written back yet. One that is corrupt or of "
	"another boot is removed as well.\n",
	run_destroy,
	{&ctl_option_yes, &ctl_option_discard, &ctl_option_dry_run},
	.examples = "xsegctl segment destroy demo --yes\n",
};

/* --- list ------------------------------------------------------------------------------- */

static int list_one(const char *name, void *context)
{
	char why[XSEG_WHY_SIZE] = "", path[PATH_LENGTH_MAX];
	struct xseg seg;
	struct stat st;
	json_t *row;
	if (xseg_segment_join(name, &seg, why)) {
		bool there = !path_segment(path, name) && !stat(path, &st);
		row = json_pack("{s:s, s:I, s:s, s:s}", "name", name, "size",
			there ? (json_int_t)st.st_size : (json_int_t)0, "state", "unusable",
			"reason", why);
	} else {
		json_t *peers = report_peers(&seg);
		row = report_segment(&seg);
		json_object_set_new(
			row, "peer_count", json_integer((json_int_t)json_array_size(peers)));
		json_object_set_new(row, "state", json_string("ok"));
		json_decref(peers);
		xseg_segment_leave(&seg);
	}
	json_array_append_new(context, row);
	return 0;
}

static int run_list(struct ctl *ctl)
{
	json_t *rows = json_array();
	int rc = xseg_segment_list(list_one, rows);
	if (rc && rc != -ENOENT) {
		json_decref(rows);
		return fault_set(&ctl->fault, FAULT_FAILED, path_shm_dir(), NULL,
			"segments in '%s' cannot be listed: %s", path_shm_dir(), strerror(-rc));
	}
	ctl_output_rows(ctl, "segments", rows, segment_columns, countof(segment_columns));
	return 0;
}

const struct ctl_verb ctl_segment_list = {
	"segment",
	"list",
	"",
	0,
	0,
	"list segments",
	NULL,
	run_list,
	{0},
	.examples = "xsegctl segment list --json\n",
};

/* --- dump ------------------------------------------------------------------------------- */

static const char *const table_names[XSEG_TABLE_COUNT] = {"peers", "lanes", "ports", "edges",
	"stats", "volumes", "request hints", "requests", "rings", "page hints", "page descriptors",
	"pages"};

static json_t *dump_tables(const struct xseg *seg)
{
	json_t *tables = json_array();
	for (unsigned i = 0; i < XSEG_TABLE_COUNT; i++) {
		const struct xseg_table_place *place = &seg->super->tables[i];
		json_array_append_new(
			tables, json_pack("{s:s, s:I, s:I, s:I, s:I}", "table", table_names[i],
					"offset", (json_int_t)place->offset, "size",
					(json_int_t)place->size, "count", (json_int_t)place->count,
					"item_size", (json_int_t)place->item_size));
	}
	return tables;
}

static json_t *dump_lanes(const struct xseg *seg)
{
	json_t *lanes = json_array();
	for (uint32_t i = 0; i < seg->lane_count; i++) {
		const struct xseg_lane_record *lane = &seg->lanes[i];
		uint64_t word = atomic_load(&lane->word);
		if (xseg_life_of(word) == XSEG_LIFE_FREE)
			continue;
		bool alive = xseg_lane_alive(seg, i, (uint16_t)xseg_epoch_of(word));
		json_array_append_new(
			lanes, json_pack("{s:i, s:i, s:i, s:s, s:b, s:I}", "lane", (int)i, "pid",
				       (int)xseg_owner_of(word), "epoch", (int)xseg_epoch_of(word),
				       "state", alive ? "alive" : "dead", "asleep",
				       (int)atomic_load(&lane->bell.asleep), "turns",
				       (json_int_t)atomic_load(&lane->heartbeat)));
	}
	return lanes;
}

static json_t *dump_ports(const struct xseg *seg)
{
	json_t *ports = json_array();
	for (uint32_t i = 0; i < XSEG_PORTS_MAX; i++) {
		const struct xseg_port_record *port = &seg->ports[i];
		uint64_t word = atomic_load(&port->word);
		char name[NAME_LENGTH_MAX + 1] = "";
		memcpy(name, port->name, NAME_LENGTH_MAX);
		if (xseg_life_of(word) == XSEG_LIFE_FREE && !name[0])
			continue;
		json_array_append_new(
			ports, json_pack("{s:i, s:s, s:b, s:i}", "port", (int)i, "name", name,
				       "bound", xseg_life_of(word) == XSEG_LIFE_ALIVE, "lanes",
				       (int)port->lane_count));
	}
	return ports;
}

static void dump_text(struct ctl *ctl, const json_t *dump)
{
	static const struct ctl_column tables[] = {{"table", "TABLE", CTL_TEXT},
		{"offset", "OFFSET", CTL_COUNT}, {"size", "SIZE", CTL_SIZE},
		{"count", "COUNT", CTL_COUNT}, {"item_size", "EACH", CTL_COUNT}};
	static const struct ctl_column lanes[] = {{"lane", "LANE", CTL_COUNT},
		{"pid", "PID", CTL_COUNT}, {"epoch", "EPOCH", CTL_COUNT},
		{"state", "STATE", CTL_TEXT}, {"asleep", "ASLEEP", CTL_TEXT},
		{"turns", "TURNS", CTL_COUNT}};
	static const struct ctl_column ports[] = {{"port", "PORT", CTL_COUNT},
		{"name", "NAME", CTL_TEXT}, {"bound", "BOUND", CTL_TEXT},
		{"lanes", "LANES", CTL_COUNT}};
	static const struct ctl_column usage[] = {{"name", "name", CTL_TEXT},
		{"path", "path", CTL_TEXT}, {"uuid", "uuid", CTL_TEXT},
		{"boot_id", "boot", CTL_TEXT}, {"created_ns", "created", CTL_DATE},
		{"layout_version", "layout version", CTL_COUNT}, {"size", "size", CTL_SIZE},
		{"overhead", "overhead", CTL_SIZE}, {"pages.free", "pages free", CTL_COUNT},
		{"pages.held", "pages held", CTL_COUNT},
		{"pages.stored", "pages stored", CTL_COUNT},
		{"pages.kept", "pages kept", CTL_COUNT},
		{"pages.retired", "pages retired", CTL_COUNT},
		{"requests.owned", "requests owned", CTL_COUNT},
		{"requests.submitted", "requests submitted", CTL_COUNT},
		{"requests.taken", "requests taken", CTL_COUNT},
		{"requests.done", "requests done", CTL_COUNT}};
	ctl_output_lines(ctl, json_object_get(dump, "segment"), usage, countof(usage));
	putchar('\n');
	ctl_output_table(ctl, json_object_get(dump, "tables"), tables, countof(tables));
	putchar('\n');
	ctl_output_table(ctl, json_object_get(dump, "lanes"), lanes, countof(lanes));
	putchar('\n');
	ctl_output_table(ctl, json_object_get(dump, "ports"), ports, countof(ports));
}

static int run_dump(struct ctl *ctl)
{
	const char *name;
	struct xseg seg;
	if (ctl->argc) {
		int rc = name_argument(ctl, &name);
		if (rc)
			return rc;
		ctl->segment = name;
	}
	int rc = ctl_join(ctl, &seg);
	if (rc)
		return rc;
	json_t *dump = json_pack("{s:i, s:o, s:o, s:o, s:o, s:o, s:o}", "schema_version",
		CTL_SCHEMA_VERSION, "segment", report_segment(&seg), "tables", dump_tables(&seg),
		"lanes", dump_lanes(&seg), "ports", dump_ports(&seg), "peers", report_peers(&seg),
		"edges", report_edges(&seg));
	xseg_segment_leave(&seg);
	if (ctl_output_is_json(ctl))
		ctl_output_json(ctl, json_incref(dump));
	else
		dump_text(ctl, dump);
	json_decref(dump);
	return 0;
}

const struct ctl_verb ctl_segment_dump = {
	"segment",
	"dump",
	"[NAME]",
	0,
	1,
	"show the superblock, tables, lanes and ports",
	NULL,
	run_dump,
	{0},
	.examples = "xsegctl segment dump demo\n",
};
