/* SPDX-License-Identifier: Apache-2.0 */
/* volume gc and fsck: sweeps, which a mapper does and tells of. */
#include "tools/ctl/ctl_map_sweep.h"

#include <base/clock.h>
#include <base/must.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xseg/port.h>
#include <xseg/registry.h>

#include "tools/ctl/ctl_plug.h"
#include "tools/ctl/ctl_progress.h"

#define LOOK_MS 100
#define FINDINGS_AT_ONCE 1024u

static const struct ctl_option option_rate = {
	"rate", 0, "COUNT", "requests to the store a second at most (default: no limit)", NULL};
static const struct ctl_option option_wait = {
	"wait", 0, NULL, "until it has ended (default: return at once)", NULL};
static const struct ctl_option option_repair = {
	"repair", 0, NULL, "repair what is safe to repair, and delete what nobody needs", NULL};

/* In the order of the mapper's enum map_finding. */
static const struct {
	const char *name, *meaning;
	bool harmless; /* no data and no volume are in danger */
} findings[CTL_MAP_FINDINGS] = {
	{"unreachable", "no volume needs this object; 'xsegctl volume gc' deletes such ones", true},
	{"lost", "the map has an object that the store has not; it reads as zeros", false},
	{"bad-page", "a page of the map is damaged; what it leads to cannot be reached", false},
	{"bad-record",
		"the volume's record is damaged; the volume cannot be opened, and nothing is "
		"deleted in this store until its records are put back from a copy, or it is "
		"removed by its id",
		false},
	{"half-record", "one of two copies of the volume's record is damaged; the other counts",
		false},
	{"bad-bitmap", "what a partial object has of its own cannot be read", false},
	{"overlap", "a volume may still write to what another one takes for frozen", false},
	{"bad-entry", "an entry of the map that cannot be; it can be made a hole", false},
	{"bad-name", "a name without a volume, or a volume without its name", false},
	{"bad-parent", "its parent is not there", false},
	{"bad-count", "a count of entries in the map is wrong; it can be put right", false},
};

const char *ctl_map_sweep_finding_name(unsigned finding)
{
	return finding < CTL_MAP_FINDINGS ? findings[finding].name : "unknown";
}

const char *ctl_map_sweep_finding_meaning(unsigned finding)
{
	return finding < CTL_MAP_FINDINGS ? findings[finding].meaning
					  : "the mapper is newer than this program";
}

/* --- asking ----------------------------------------------------------------------------- */

struct sweep {
	unsigned flags;
	uint64_t volume, rate;
	uint64_t run; /* as answered */
};

static int sweep_start(struct client *client, struct sweep *sweep)
{
	struct map_ask ask = {.size = sweep->rate};
	struct ctl_map_call call = {
		.what = MAP_SWEEP, .volume = sweep->volume, .number = sweep->flags, .ask = &ask};
	int rc = ctl_map_call(client, &call);
	if (!rc)
		sweep->run = call.value;
	return rc;
}

struct answer {
	struct map_sweep_state state;
	struct map_finding_info findings[FINDINGS_AT_ONCE];
};

static int sweep_state(struct client *client, uint64_t from, struct answer *answer, uint32_t *count,
	uint64_t *next)
{
	struct ctl_map_call call = {.what = MAP_SWEEP_STATE,
		.number = from,
		.out = answer,
		.out_size = sizeof(*answer)};
	int rc = ctl_map_call(client, &call);
	if (!rc && call.got < sizeof(answer->state))
		rc = -EPROTO;
	if (rc)
		return rc;
	*count = (uint32_t)((call.got - sizeof(answer->state)) / sizeof(answer->findings[0]));
	*next = call.value;
	return call.value && call.value <= from ? -EPROTO : 0;
}

static int sweep_fault(struct ctl *ctl, const char *what, int error)
{
	if (error == -EBUSY)
		return fault_set(&ctl->fault, FAULT_BUSY, NULL,
			"'xsegctl volume gc --wait' waits for it",
			"%s cannot begin: another sweep of this store is under way", what);
	if (error == -EOPNOTSUPP)
		return fault_set(&ctl->fault, FAULT_FAILED, NULL,
			"give it one: a peer of role mapperd, and edge.map of the composer",
			"%s cannot begin: the composer has no mapper", what);
	return fault_set(&ctl->fault, fault_code_of_errno(error), NULL,
		error == -ETIMEDOUT ? "'xsegctl status' says who is not well" : NULL,
		"%s has failed: %s", what,
		error == -ETIMEDOUT ? "nobody answers" : strerror(-error));
}

/* It ended with its mapper: the next one goes on, when it is asked to. */
static int sweep_look(struct client *client, struct sweep *sweep, struct answer *answer)
{
	uint32_t count;
	uint64_t next;
	int error = sweep_state(client, 0, answer, &count, &next);
	while (!error && answer->state.run != sweep->run && !ctl_ask_interrupted()) {
		error = sweep_start(client, sweep);
		if (!error)
			error = sweep_state(client, 0, answer, &count, &next);
	}
	return error;
}

/* Ours, until it has ended; ^C stops it if we are to (fsck), else only the waiting. */
static int sweep_wait(struct ctl *ctl, struct client *client, const char *what, bool stop,
	struct sweep *sweep, struct map_sweep_state *state)
{
	struct answer *answer = malloc(sizeof(*answer));
	struct ctl_progress progress;
	int error = answer ? 0 : -ENOMEM;
	ctl_ask_interrupt_catch();
	ctl_progress_begin(&progress, ctl, what, "objects", 0);
	while (!error) {
		error = sweep_look(client, sweep, answer);
		if (error || !answer->state.running || ctl_ask_interrupted())
			break;
		ctl_progress_show(&progress, answer->state.objects);
		poll(NULL, 0, LOOK_MS);
	}
	if (!error)
		*state = answer->state;
	ctl_progress_end(&progress, error ? 0 : answer->state.objects);
	free(answer);
	if (!error && ctl_ask_interrupted() && state->running) {
		if (stop)
			sweep_start(client, &(struct sweep){.flags = MAP_SWEEP_STOP});
		return ctl_ask_interrupted_fault(ctl, NULL);
	}
	return error ? sweep_fault(ctl, what, error) : 0;
}

static json_t *state_json(const struct map_sweep_state *state)
{
	return json_pack("{s:b, s:i, s:i, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "running",
		(int)state->running, "pass", (int)state->pass, "error",
		state->error < 0 ? -state->error : 0, "volumes", (json_int_t)state->volumes,
		"pages", (json_int_t)state->pages, "objects", (json_int_t)state->objects,
		"unreachable", (json_int_t)state->unreachable, "deleted",
		(json_int_t)state->deleted, "freed", (json_int_t)state->bytes_freed, "findings",
		(json_int_t)state->findings);
}

/* --- gc --------------------------------------------------------------------------------- */

static const struct ctl_column gc_columns[] = {{"running", "under way", CTL_TEXT},
	{"pass", "pass", CTL_COUNT}, {"volumes", "volumes", CTL_COUNT},
	{"objects", "objects looked at", CTL_COUNT}, {"unreachable", "nobody needs", CTL_COUNT},
	{"deleted", "deleted", CTL_COUNT}, {"freed", "given back", CTL_SIZE},
	{"dry_run", "dry run", CTL_TEXT}};

/* As it ended: cut off, or with things that changed too fast and are left for the next time. */
static int gc_end(struct ctl *ctl, const struct map_sweep_state *state)
{
	if (!state->error)
		return 0;
	if (state->error == -EBUSY)
		return fault_set(&ctl->fault, FAULT_PARTLY, NULL, "run it again later",
			"some volumes changed faster than they could be looked at; all else was "
			"swept");
	if (state->error == -ECANCELED)
		return fault_set(&ctl->fault, FAULT_FAILED, NULL, NULL, "the sweep was stopped");
	return fault_set(&ctl->fault, FAULT_FAILED, NULL, "'xsegctl volume fsck' looks at all",
		"the sweep has ended: %s", strerror(-state->error));
}

/* Whose record cannot be read: what it needs nobody knows, so nothing was deleted. 0: nobody's. */
static uint64_t gc_held(struct client *client)
{
	struct answer *answer = malloc(sizeof(*answer));
	uint64_t from = 0, next = 1, held = 0;
	for (; answer && next && !held; from = next) {
		uint32_t count = 0;
		if (sweep_state(client, from, answer, &count, &next))
			break;
		for (uint32_t i = 0; i < count && !held; i++)
			if (strcmp(ctl_map_sweep_finding_name(answer->findings[i].finding),
				    "bad-record") == 0)
				held = answer->findings[i].volume;
	}
	free(answer);
	return held;
}

static int gc_end_said(struct ctl *ctl, struct client *client, const struct map_sweep_state *state)
{
	uint64_t held = state->error ? 0 : gc_held(client);
	if (!held)
		return gc_end(ctl, state);
	return fault_set(&ctl->fault, FAULT_FAILED, NULL, "'xsegctl volume fsck' says what to do",
		"the record of volume %016llx is damaged: as nobody knows what it needs, nothing "
		"is deleted in this store",
		(unsigned long long)held);
}

static int gc(struct ctl *ctl, struct client *client, uint64_t rate)
{
	bool plan = ctl_option_given(ctl, "dry-run");
	struct map_sweep_state state = {0};
	/* without REPAIR it only counts */
	struct sweep sweep = {
		.flags = MAP_SWEEP_START | (plan ? 0 : MAP_SWEEP_REPAIR), .rate = rate};
	uint32_t count;
	uint64_t next;
	int error = sweep_start(client, &sweep);
	int rc = error ? sweep_fault(ctl, "the sweep", error) : 0;
	if (!rc && (plan || ctl_option_given(ctl, "wait"))) {
		rc = sweep_wait(ctl, client, "gc", plan, &sweep, &state);
	} else if (!rc) {
		struct answer *answer = calloc(1, sizeof(*answer));
		error = answer ? sweep_state(client, 0, answer, &count, &next) : -ENOMEM;
		state = answer ? answer->state : state;
		free(answer);
		rc = error ? sweep_fault(ctl, "the sweep", error) : 0;
	}
	if (rc)
		return rc;
	json_t *out = state_json(&state);
	json_object_set_new(out, "dry_run", json_boolean(plan));
	ctl_output_one(ctl, out, gc_columns, countof(gc_columns) - !plan);
	return state.running ? 0 : gc_end_said(ctl, client, &state);
}

static int run_gc(struct ctl *ctl)
{
	struct client client;
	uint64_t rate = 0;
	int rc = ctl_option_number(ctl, "rate", 1000000000u, &rate);
	if (!rc)
		rc = ctl_join_composer(ctl, &client);
	if (rc)
		return rc;
	rc = gc(ctl, &client, rate);
	client_close(&client);
	return rc;
}

const struct ctl_verb ctl_volume_gc = {
	"volume",
	"gc",
	"",
	0,
	0,
	"give back the space of objects that no volume needs any more",
	"\tSafe while volumes are written, cloned and removed. Begins and returns at once; said "
	"again while it runs, says how far it is and takes the new *--rate*. With *--wait* returns "
	"when it has ended. *--dry-run* looks and deletes nothing. One that was cut off, with its "
	"mapper or its machine, is begun again by the next *volume gc*.\n",
	run_gc,
	{&option_rate, &option_wait, &ctl_option_progress, &ctl_option_via, &ctl_option_dry_run},
	.examples = "xsegctl volume gc --rate 500\n"
		    "xsegctl volume gc --wait\n",
};

/* --- fsck ------------------------------------------------------------------------------- */

static const struct ctl_column finding_columns[] = {{"finding", "FINDING", CTL_TEXT},
	{"volume", "VOLUME", CTL_TEXT}, {"object", "OBJECT", CTL_COUNT},
	{"repaired", "REPAIRED", CTL_TEXT}, {"meaning", "MEANING", CTL_TEXT}};

struct check {
	struct ctl *ctl;
	struct client client;
	struct ctl_map_nodes nodes;
	struct map_sweep_state state;
	json_t *rows;
	uint64_t damaged, garbage, left;
	struct client above[4]; /* what stores of composers lead to */
	unsigned above_count;
	uint64_t cached; /* objects that only a cache has */
};

static const char *name_of(const struct check *check, uint64_t id)
{
	for (size_t i = 0; i < check->nodes.count; i++)
		if (check->nodes.all[i].info.id == id && check->nodes.all[i].info.name[0])
			return check->nodes.all[i].info.name;
	return NULL;
}

/* Where the composer has its objects: of those that a cache has not written back the store below,
   at which the mapper looks, knows nothing. */
static void caches_open(struct check *check)
{
	const struct xseg *seg = &check->client.seg;
	char to[NAME_LENGTH_MAX + 1], why[XSEG_WHY_SIZE];
	for (uint32_t i = 0; i < XSEG_EDGES_MAX && check->above_count < countof(check->above);
		i++) {
		char edge[XSEG_EDGE_NAME_MAX + 1] = "", *colon;
		struct xseg_peer_view view;
		if (atomic_load_explicit(&seg->edges[i].life, memory_order_acquire) !=
			XSEG_LIFE_ALIVE)
			continue;
		memcpy(edge, seg->edges[i].name, XSEG_EDGE_NAME_MAX);
		if (xseg_edge_target(seg, edge, to) || !to[0] || !(colon = strchr(edge, ':')) ||
			strcmp(colon, ":store"))
			continue;
		*colon = 0;
		if (xseg_peer_find(seg, edge, &view) || strcmp(view.role, "volume"))
			continue;
		struct client *above = &check->above[check->above_count];
		check->above_count += client_open(above, seg->name, to, why) == 0;
	}
}

static bool is_above(struct check *check, const struct map_finding_info *found)
{
	for (unsigned i = 0; i < check->above_count; i++) {
		struct xseg_object_info info;
		struct client_request request = {.op = XSEG_OP_INFO,
			.flags = XSEG_F_FAST_ONLY,
			.key = found->key,
			.length = sizeof(info),
			.receive = &info,
			.receive_size = sizeof(info)};
		if (client_do(&check->above[i], &request) == 0)
			return true;
	}
	return false;
}

static void finding_add(struct check *check, const struct map_finding_info *found)
{
	if (strcmp(ctl_map_sweep_finding_name(found->finding), "lost") == 0 &&
		is_above(check, found)) {
		check->cached++;
		return;
	}
	char id[24], key[64];
	bool harmless = found->finding < CTL_MAP_FINDINGS && findings[found->finding].harmless;
	const char *name = name_of(check, found->volume);
	snprintf(id, sizeof(id), "%016llx", (unsigned long long)found->volume);
	snprintf(key, sizeof(key), "%016llx.%08x.%08x", (unsigned long long)found->key.volume,
		found->key.epoch, found->key.object);
	check->damaged += !harmless;
	check->garbage += harmless;
	check->left += !found->repaired && !harmless;
	json_array_append_new(check->rows,
		json_pack("{s:s, s:s, s:s, s:I, s:s, s:b, s:s}", "finding",
			ctl_map_sweep_finding_name(found->finding), "volume", name ? name : id,
			"id", id, "object", (json_int_t)found->object, "key", key, "repaired",
			found->repaired != 0, "meaning",
			ctl_map_sweep_finding_meaning(found->finding)));
}

static int findings_read(struct check *check)
{
	struct answer *answer = malloc(sizeof(*answer));
	uint64_t from = 0;
	uint32_t count;
	int error = answer ? 0 : -ENOMEM;
	do {
		uint64_t next = 0;
		if (!error)
			error = sweep_state(&check->client, from, answer, &count, &next);
		for (uint32_t i = 0; !error && i < count; i++)
			finding_add(check, &answer->findings[i]);
		from = next;
	} while (!error && from);
	free(answer);
	return error;
}

static int check_volume(struct check *check, uint64_t *id)
{
	struct ctl *ctl = check->ctl;
	struct xseg_volume_info info;
	*id = 0;
	if (ctl->argc == 0)
		return 0;
	int rc = ctl_volume_find(ctl, &check->client, ctl->argv[0], &info);
	if (!rc)
		rc = ctl_map_changeable(ctl, &info);
	*id = rc ? 0 : info.id;
	return rc;
}

static int verdict(struct check *check, bool repair)
{
	struct ctl *ctl = check->ctl;
	const struct map_sweep_state *state = &check->state;
	if (state->error && state->error != -EBUSY)
		return fault_set(&ctl->fault, FAULT_FAILED, NULL, NULL, "the check was cut off: %s",
			strerror(-state->error));
	if (check->left)
		return fault_set(&ctl->fault, repair ? FAULT_PARTLY : FAULT_FAILED, NULL,
			repair ? "what is left: restore the volume, roll it back, or remove it"
			       : "'xsegctl volume fsck --repair' repairs what is safe to repair",
			"%llu of %llu faults are %s", (unsigned long long)check->left,
			(unsigned long long)check->damaged, repair ? "left" : "to be looked at");
	if (state->error)
		return fault_set(&ctl->fault, FAULT_PARTLY, NULL, "run it again later",
			"some volumes changed faster than they could be looked at");
	return 0;
}

static void check_print(struct check *check, bool plan)
{
	struct ctl *ctl = check->ctl;
	const struct map_sweep_state *state = &check->state;
	if (ctl->format == CTL_JSON) {
		json_t *out = state_json(state);
		json_object_set_new(out, "clean", json_boolean(!check->damaged && !state->error));
		json_object_set_new(out, "cached", json_integer((json_int_t)check->cached));
		json_object_set_new(out, "dry_run", json_boolean(plan));
		json_object_set_new(out, "list", check->rows);
		ctl_output_json(ctl, ctl_output_versioned(out));
	} else {
		ctl_output_rows(
			ctl, "list", check->rows, finding_columns, countof(finding_columns));
	}
	check->rows = NULL;
	if (!ctl_output_is_json(ctl))
		fprintf(stderr,
			"%llu volumes, %llu pages of maps, %llu objects: %llu faults; %llu objects "
			"that nobody needs\n",
			(unsigned long long)state->volumes, (unsigned long long)state->pages,
			(unsigned long long)state->objects, (unsigned long long)check->damaged,
			(unsigned long long)check->garbage);
	if (!ctl_output_is_json(ctl) && check->cached)
		fprintf(stderr, "%llu objects are in a cache and not yet in the store\n",
			(unsigned long long)check->cached);
}

static int fsck(struct check *check)
{
	struct ctl *ctl = check->ctl;
	bool plan = ctl_option_given(ctl, "dry-run"),
	     repair = ctl_option_given(ctl, "repair") && !plan;
	struct sweep sweep = {
		.flags = MAP_SWEEP_START | MAP_SWEEP_EXPLAIN | (repair ? MAP_SWEEP_REPAIR : 0)};
	int rc = check_volume(check, &sweep.volume);
	int error = rc ? 0 : ctl_map_tree_list(&check->client, &check->nodes);
	if (!rc && !error)
		error = sweep_start(&check->client, &sweep);
	if (error)
		rc = sweep_fault(ctl, "the check", error);
	if (!rc)
		rc = sweep_wait(ctl, &check->client, "fsck", true, &sweep, &check->state);
	error = rc ? 0 : findings_read(check);
	if (error)
		rc = sweep_fault(ctl, "the check", error);
	if (rc)
		return rc;
	check_print(check, plan);
	return verdict(check, repair);
}

static int run_fsck(struct ctl *ctl)
{
	struct check check = {.ctl = ctl};
	int rc = ctl->argc ? ctl_volume_name_check(ctl, ctl->argv[0]) : 0;
	if (!rc)
		rc = ctl_join_composer(ctl, &check.client);
	if (rc)
		return rc;
	check.rows = json_array();
	caches_open(&check);
	rc = fsck(&check);
	while (check.above_count)
		client_close(&check.above[--check.above_count]);
	json_decref(check.rows);
	free(check.nodes.all);
	client_close(&check.client);
	return rc;
}

const struct ctl_verb ctl_volume_fsck = {
	"volume",
	"fsck",
	"[VOLUME]",
	0,
	1,
	"check the maps of all volumes, or of one and what it needs",
	"\tPrints what is not as it should be, and what it means. Volumes may be open. Exit "
	"status: "
	"0 when "
	"nothing is wrong or all was repaired (objects that nobody needs are not wrong, *volume "
	"gc* "
	"deletes "
	"them), 1 when something is, 8 when *--repair* could not repair all of it. *--dry-run* "
	"looks "
	"only.\n",
	run_fsck,
	{&option_repair, &ctl_option_progress, &ctl_option_via, &ctl_option_dry_run},
	.examples = "xsegctl volume fsck\n"
		    "xsegctl volume fsck disk --repair\n",
};
