/* SPDX-License-Identifier: Apache-2.0 */
/* unplug: a cache writes everything back, is led past, and goes; or a mover that moves nothing. */
#include <base/clock.h>
#include <base/must.h>
#include <base/time.h>
#include <errno.h>
#include <peer/client.h>
#include <peer/mover.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <xseg/page.h>
#include <xseg/port.h>
#include <xseg/reap.h>
#include <xseg/registry.h>

#include "tools/ctl/ctl_map.h"
#include "tools/ctl/ctl_plug.h"
#include "tools/ctl/ctl_rpc.h"
#include "tools/report/kept.h"

#define LOOK_NS 100000000u
#define STUCK_NS 10000000000u /* the store fails, and for so long nothing got less */
#define BACK_NS 15000000000u
#define REAP_NS 20000000000u
#define DRAIN_NS (365ull * 24 * 3600 * 1000000000u) /* what ends it is a store that fails, or ^C */

static const struct ctl_column unplug_columns[] = {{"name", "name", CTL_TEXT},
	{"store", "edges lead to", CTL_TEXT}, {"written", "written back", CTL_SIZE},
	{"discarded", "given up", CTL_SIZE}, {"stopped", "stopped", CTL_TEXT},
	{"changed", "changed", CTL_TEXT}};

static const struct ctl_column step_columns[] = {{"action", "ACTION", CTL_TEXT},
	{"object", "OBJECT", CTL_TEXT}, {"state", "STATE", CTL_TEXT}};

struct unplug {
	struct ctl_plug plug;
	bool serves; /* it answers */
	bool is_mover;
	bool comes;	  /* it has died, and is started again */
	bool discarding;  /* --discard-dirty was given */
	uint64_t discard; /* bytes */
	uint64_t written, lost;
	uint64_t first, least, least_ns; /* dirty bytes: at first, the least so far, since when */
	int error;			 /* of the store */
};

/* --- draining ----------------------------------------------------------------------------- */

static int store_fails(struct unplug *unplug)
{
	fault_set(&unplug->plug.ctl->fault, FAULT_FAILED, unplug->plug.name, NULL,
		"the store of cache '%s' fails (%s): %llu bytes cannot be written back; the cache "
		"stays and serves",
		unplug->plug.name, strerror(unplug->error), (unsigned long long)unplug->least);
	fault_hint(&unplug->plug.ctl->fault,
		"repair the store and say it again, or give them up with %s--discard-dirty=%llu",
		unplug->plug.shares ? "'xsegctl down' " : "", (unsigned long long)unplug->least);
	return -FAULT_FAILED;
}

static int drain_look(struct unplug *unplug, const struct cache_state *state)
{
	uint64_t now_ns = clock_now_ns();
	if (!unplug->first)
		unplug->first = state->dirty;
	if (state->dirty < unplug->least || !unplug->least_ns) {
		unplug->least = state->dirty;
		unplug->least_ns = now_ns;
	}
	uint64_t done = unplug->first > state->dirty ? unplug->first - state->dirty : 0;
	ctl_work_progress(unplug->plug.work, done, unplug->first);
	unplug->error = state->error < 0 ? -state->error : EIO;
	bool fails = state->health == CACHE_STORE_FAILS;
	uint64_t patience =
		unplug->plug.ctl->timeout_given ? unplug->plug.ctl->timeout_ns : STUCK_NS;
	if (fails && now_ns - unplug->least_ns >= patience)
		return store_fails(unplug);
	return ctl_plug_check(&unplug->plug, "it has not written everything back");
}

/* It goes on as it did before. */
static void drain_undo(struct client *client)
{
	struct ctl_cache_ask_call call = {.what = CACHE_BEGIN};
	client->timeout_ns = LOOK_NS * 10;
	ctl_cache_ask_call(client, &call);
}

static int drain_wait(
	struct unplug *unplug, struct client *client, const struct client_request *drain)
{
	struct cache_state state;
	int rc = 0;
	while (!rc && !drain->answered) {
		client->timeout_ns = LOOK_NS * 10;
		/* one that was killed answers again when it has been started again */
		if (!ctl_cache_ask_state(client, &state))
			rc = drain_look(unplug, &state);
		else
			rc = ctl_plug_check(&unplug->plug, "it does not answer");
		if (!drain->answered)
			time_nap(LOOK_NS);
	}
	return rc;
}

static bool drain_again(struct unplug *unplug, int *rc)
{
	time_nap(LOOK_NS);
	*rc = ctl_plug_check(&unplug->plug, "it is busy");
	return *rc != 0;
}

static int drain(struct unplug *unplug)
{
	struct ctl_plug *plug = &unplug->plug;
	struct ctl_cache_asked *asked = calloc(1, sizeof(*asked));
	struct client client;
	must(asked);
	int rc = ctl_cache_ask_open(plug->ctl, plug->name, &client);
	if (rc) {
		free(asked);
		return rc;
	}
	client.timeout_ns = DRAIN_NS;
	int error;
	do { /* one that nobody waits for any more may still be under way */
		error = ctl_cache_ask_start(&client, CACHE_DRAIN, asked);
		if (!error)
			rc = drain_wait(unplug, &client, &asked->request);
		if (!error && !rc)
			error = asked->request.result;
	} while (error == -EBUSY && !rc && !drain_again(unplug, &rc));
	if (error && !rc)
		rc = ctl_cache_ask_fault(plug->ctl, plug->name, "drained", error);
	if (rc)
		drain_undo(&client);
	client_close(&client);
	free(asked);
	unplug->written = unplug->first;
	return rc;
}

/* --- giving up ----------------------------------------------------------------------------- */

static int give_up_check(struct unplug *unplug, uint64_t dirty)
{
	const char *name = unplug->plug.name;
	bool allowed = unplug->discarding && dirty <= unplug->discard;
	if (allowed || dirty == 0) {
		unplug->lost = dirty;
		return 0;
	}
	fault_set(&unplug->plug.ctl->fault, FAULT_BUSY, name, NULL,
		"cache '%s' has %llu bytes that its store lacks%s", name, (unsigned long long)dirty,
		unplug->serves ? "" : ", and does not serve");
	fault_hint(&unplug->plug.ctl->fault,
		"%s%s' lets it write them back; --discard-dirty=%llu gives them up",
		unplug->serves ? "'xsegctl unplug " : "'xsegctl peer start ", name,
		(unsigned long long)dirty);
	return -FAULT_BUSY;
}

static uint64_t kept_dirty(const struct ctl_plug *plug)
{
	struct kept kept = {0};
	uint32_t port;
	if (!xseg_port_find(&plug->seg, plug->name, &port))
		kept_count(&plug->seg, port, &kept);
	return kept.dirty;
}

/* --- the end of it ------------------------------------------------------------------------- */

/* What a killed one had taken waits at its port again: it goes the way of the edges, as soon as the
   store is done with what that one had asked of it. Whoever gives up data waits so long for it. */
static int move_along(struct ctl_plug *plug, bool discard)
{
	uint64_t end_ns = clock_now_ns() + REAP_NS;
	uint32_t from, to;
	int rc = 0;
	if (xseg_port_find(&plug->seg, plug->name, &from) ||
		xseg_port_find(&plug->seg, plug->store, &to))
		return 0;
	while (!rc && xseg_reap_move_port(&plug->seg, ~0ull, from, to) != 0) {
		time_nap(LOOK_NS / 10);
		rc = ctl_plug_check(plug, "what it has asked of its store is not answered");
		if (!rc && discard && clock_now_ns() >= end_ns)
			rc = fault_set(&plug->ctl->fault, FAULT_TIMEOUT, plug->name, "say it again",
				"requests for '%s' cannot be moved to '%s' yet", plug->name,
				plug->store);
	}
	return rc;
}

static bool served(const struct ctl_plug *plug)
{
	struct xseg_peer_view view;
	return !xseg_peer_find(&plug->seg, plug->name, &view) && view.life != XSEG_LIFE_DEAD;
}

static int stop(struct ctl_plug *plug, bool discard)
{
	json_t *result = NULL, *params = json_pack("{s:s}", "peer", plug->name);
	if (discard)
		json_object_set_new(params, "timeout_ns", json_integer(1));
	int rc = ctl_plug_ask(plug, "peer.stop", params, &result);
	json_decref(result);
	if (rc == -FAULT_NOT_FOUND || (discard && rc == -FAULT_PARTLY)) {
		memset(&plug->ctl->fault, 0, sizeof(plug->ctl->fault));
		rc = 0;
	}
	return rc;
}

static int forget(struct ctl_plug *plug)
{
	struct xseg_peer_view view;
	json_t *result = NULL;
	int rc = ctl_plug_ask(plug, "peer.forget", json_pack("{s:s}", "peer", plug->name), &result);
	json_decref(result);
	if (rc == -FAULT_NOT_FOUND) {
		memset(&plug->ctl->fault, 0, sizeof(plug->ctl->fault));
		rc = 0;
	}
	/* one that was killed is nobody's bad health any more */
	if (!rc && !xseg_peer_find(&plug->seg, plug->name, &view) && view.life == XSEG_LIFE_DEAD)
		xseg_peer_leave(&plug->seg, view.index);
	return rc;
}

int ctl_unplug_rest(struct ctl_plug *plug, bool discard)
{
	uint32_t port;
	int rc = discard ? ctl_settle_turns(plug) : ctl_settle(plug, plug->name, true);
	if (rc || plug->shares)
		return rc;
	rc = stop(plug, discard);
	if (!rc && served(plug))
		rc = fault_set(&plug->ctl->fault, FAULT_BUSY, plug->name, NULL,
			"'%s' runs, but not under this keeper: stop it, then say it again",
			plug->name);
	if (!rc)
		rc = move_along(plug, discard);
	if (!rc && !discard && kept_dirty(plug))
		rc = fault_set(&plug->ctl->fault, FAULT_BUSY, plug->name,
			"'xsegctl peer start' lets it write them back, then say it again",
			"cache '%s' ended with %llu bytes that its store lacks", plug->name,
			(unsigned long long)kept_dirty(plug));
	if (!rc && !xseg_port_find(&plug->seg, plug->name, &port))
		xseg_page_free_kept(&plug->seg, port);
	return rc ? rc : forget(plug);
}

/* --- the steps ------------------------------------------------------------------------------ */

/* Does the keeper start others with it? */
static bool shares_process(const char *name, const json_t *peers)
{
	const char *host = NULL;
	unsigned count = 0;
	const json_t *peer;
	size_t i;
	json_array_foreach (peers, i, peer)
		if (ctl_plug_row_is(peer, "name", name))
			host = json_string_value(json_object_get(peer, "host"));
	json_array_foreach (peers, i, peer)
		count += ctl_plug_row_is(peer, "host", host);
	return count > 1;
}

static int find_peer(struct unplug *unplug, bool *there)
{
	struct ctl_plug *plug = &unplug->plug;
	struct xseg_peer_view view;
	struct kept kept = {0};
	uint32_t port;
	*there = !xseg_peer_find(&plug->seg, plug->name, &view);
	unplug->is_mover = *there && !strcmp(view.role, MOVER_ROLE);
	if (*there && strcmp(view.role, CTL_CACHE_ROLE) && !unplug->is_mover)
		return fault_set(&plug->ctl->fault, FAULT_USAGE, plug->name,
			"'xsegctl cache list' lists them", "peer '%s' is no cache but a %s",
			plug->name, view.role);
	unplug->serves = *there && view.life != XSEG_LIFE_DEAD;
	if (!xseg_port_find(&plug->seg, plug->name, &port))
		kept_count(&plug->seg, port, &kept);
	/* what a killed unplug has left: pages, or a peer that only the keeper knows of */
	json_t *status = NULL, *peer;
	size_t i;
	int rc = ctl_plug_ask(plug, "peer.list", NULL, &status);
	unplug->comes = false;
	json_t *peers = json_object_get(status, "peers");
	json_array_foreach (peers, i, peer) {
		const char *role = unplug->is_mover ? MOVER_ROLE : CTL_CACHE_ROLE;
		if (!ctl_plug_row_is(peer, "name", plug->name) ||
			!ctl_plug_row_is(peer, "role", role))
			continue;
		*there = true;
		unplug->comes = ctl_plug_row_is(peer, "state", "restarting") ||
				ctl_plug_row_is(peer, "state", "starting") ||
				ctl_plug_row_is(peer, "state", "dead");
	}
	plug->shares = shares_process(plug->name, peers);
	json_decref(status);
	*there |= kept.pages > 0;
	return rc;
}

static int look(struct unplug *unplug)
{
	struct ctl_plug *plug = &unplug->plug;
	char edge[2 * NAME_LENGTH_MAX + 8];
	bool there;
	int rc = find_peer(unplug, &there);
	if (rc)
		return rc;
	if (!there)
		return fault_set(&plug->ctl->fault, FAULT_NOT_FOUND, plug->name,
			"'xsegctl cache list' lists them", "segment '%s' has no cache '%s'",
			plug->seg.name, plug->name);
	ctl_plug_edges(plug);
	snprintf(edge, sizeof(edge), "%s:store", plug->name);
	if (xseg_edge_target(&plug->seg, edge, plug->store) || !plug->store[0])
		return plug->edge_count == 0
			       ? 0
			       : fault_set(&plug->ctl->fault, FAULT_FAILED, plug->name, NULL,
					 "the edge %s leads nowhere: there is no way past it",
					 edge);
	return 0;
}

/* What only a kill takes out would take the others out, too. */
static int kill_check(const struct unplug *unplug)
{
	const struct ctl_plug *plug = &unplug->plug;
	if (!plug->shares || (unplug->serves && !unplug->discarding))
		return 0;
	return fault_set(&plug->ctl->fault, FAULT_BUSY, plug->name,
		unplug->discarding
			? "'xsegctl down --discard-dirty' ends everything and gives it up"
			: "'xsegctl status' says why it does not serve",
		"cache '%s' shares its process with other peers, so it cannot be killed alone",
		plug->name);
}

static int ask_mover(const struct unplug *unplug, enum mover_control what, uint64_t volume,
	struct mover_state *state)
{
	const struct ctl_plug *plug = &unplug->plug;
	struct client_control call = {.what = what,
		.volume = volume,
		.answer_at = MOVER_ANSWER_AT,
		.out = state,
		.out_size = sizeof(*state)};
	return client_control_once(plug->seg.name, plug->name, plug->ctl->timeout_ns, &call);
}

static int mover_is_silent(const struct unplug *unplug, int error)
{
	return fault_set(&unplug->plug.ctl->fault, fault_code_of_errno(error), unplug->plug.name,
		"'xsegctl status' says how it is", "mover '%s' does not say what is where: %s",
		unplug->plug.name, strerror(-error));
}

/* Past the mover a volume in its other store would read as if nothing had ever been written. */
static int nobody_needs_it(const struct unplug *unplug)
{
	struct ctl *ctl = unplug->plug.ctl;
	struct ctl_map_nodes nodes = {0};
	struct client composer;
	int rc = ctl_join_composer(ctl, &composer);
	if (rc)
		return rc;
	int error = ctl_map_tree_list(&composer, &nodes);
	client_close(&composer);
	if (error)
		rc = mover_is_silent(unplug, error);
	for (size_t i = 0; i < nodes.count && !rc; i++) {
		const struct xseg_volume_info *info = &nodes.all[i].info;
		struct mover_state state = {0};
		error = info->opens ? ask_mover(unplug, MOVER_STATE, info->id, &state) : -ENOENT;
		if (error && error != -ENOENT)
			rc = mover_is_silent(unplug, error);
		else if (!error)
			rc = fault_set(&ctl->fault, FAULT_BUSY, info->name,
				"'xsegctl client list' says who has it open",
				"volume '%s' is open here, and lies in the other store of '%s'",
				info->name, unplug->plug.name);
	}
	free(nodes.all);
	return rc;
}

/* Without it nobody would find what is half in one store and half in the other. */
static int moves_nothing(const struct unplug *unplug)
{
	struct mover_state state = {0};
	int error = ask_mover(unplug, MOVER_GROUPS, 0, &state);
	if (error)
		return mover_is_silent(unplug, error);
	return state.left == 0
		       ? nobody_needs_it(unplug)
		       : fault_set(&unplug->plug.ctl->fault, FAULT_BUSY, unplug->plug.name,
				 "say 'xsegctl volume move' again, or with --to the old store",
				 "mover '%s' has %llu groups of volumes on their way",
				 unplug->plug.name, (unsigned long long)state.left);
}

/* Nothing is in it that is nowhere else. */
static int empty_it(struct unplug *unplug)
{
	struct cache_state state;
	struct client client;
	if (unplug->is_mover)
		return moves_nothing(unplug);
	if (!unplug->serves)
		return give_up_check(unplug, kept_dirty(&unplug->plug));
	if (!unplug->discarding)
		return drain(unplug);
	int rc = ctl_cache_ask_open(unplug->plug.ctl, unplug->plug.name, &client);
	if (rc)
		return rc;
	int error = ctl_cache_ask_state(&client, &state);
	client_close(&client);
	return give_up_check(unplug, error ? kept_dirty(&unplug->plug) : state.dirty);
}

/* Killed a moment ago, it is back in a moment. */
static int look_patiently(struct unplug *unplug)
{
	uint64_t end_ns = clock_now_ns() + BACK_NS;
	int rc = look(unplug);
	while (!rc && !unplug->serves && unplug->comes && clock_now_ns() < end_ns) {
		time_nap(LOOK_NS);
		rc = look(unplug);
	}
	return rc;
}

/* Killed before we looked, it can die after that: a busy machine takes its time. */
static bool has_died(struct unplug *unplug)
{
	bool served = unplug->serves;
	struct fault why = unplug->plug.ctl->fault;
	if (served && !look(unplug) && !unplug->serves && unplug->comes)
		return true;
	unplug->plug.ctl->fault = why;
	return false;
}

static int steps(struct unplug *unplug)
{
	struct ctl_plug *plug = &unplug->plug;
	bool changed;
	int rc;
	do {
		rc = look_patiently(unplug);
		rc = rc ? rc : kill_check(unplug);
		rc = rc ? rc : empty_it(unplug);
	} while (rc && has_died(unplug));
	if (!rc && plug->edge_count)
		rc = ctl_plug_switch(plug, plug->store, &changed);
	bool kill = unplug->discarding || !unplug->serves;
	return rc ? rc : ctl_unplug_rest(plug, kill);
}

static int body(struct ctl_work *work, void *context)
{
	struct unplug *unplug = context;
	struct ctl_plug *plug = &unplug->plug;
	plug->work = work;
	int rc = ctl_join(plug->ctl, &plug->seg);
	if (rc)
		return rc;
	rc = steps(unplug);
	xseg_segment_leave(&plug->seg);
	work->done = unplug->first;
	work->job.total = unplug->first;
	if (!rc)
		work->result = json_pack("{s:s, s:s, s:I, s:I, s:b, s:b, s:b}", "name", plug->name,
			"store", plug->store, "written", (json_int_t)unplug->written, "discarded",
			(json_int_t)unplug->lost, "stopped", !plug->shares, "changed", 1, "dry_run",
			0);
	return rc;
}

static void plan_add(json_t *rows, const char *action, const char *object)
{
	json_array_append_new(rows, json_pack("{s:s, s:s, s:s}", "action", action, "object", object,
					    "state", "planned"));
}

static int plan(struct unplug *unplug)
{
	struct ctl_plug *plug = &unplug->plug;
	int rc = ctl_join(plug->ctl, &plug->seg);
	if (rc)
		return rc;
	rc = look(unplug);
	if (!rc)
		rc = kill_check(unplug);
	if (!rc && (unplug->discarding || !unplug->serves))
		rc = empty_it(unplug);
	json_t *rows = json_array();
	if (unplug->serves && !unplug->discarding)
		plan_add(rows, "drain", plug->name);
	if (unplug->lost)
		plan_add(rows, "discard", plug->name);
	for (unsigned i = 0; i < plug->edge_count; i++)
		plan_add(rows, "switch", plug->edges[i]);
	if (!plug->shares)
		plan_add(rows, "stop", plug->name);
	xseg_segment_leave(&plug->seg);
	if (rc)
		json_decref(rows);
	else
		ctl_output_rows(plug->ctl, "steps", rows, step_columns, countof(step_columns));
	return rc;
}

static int run(struct ctl *ctl)
{
	struct unplug unplug = {.plug.ctl = ctl};
	struct ctl_work work = {.ctl = ctl,
		.kind = "cache.unplug",
		.object = ctl->argv[0],
		.keeper_only = true,
		.body = body,
		.context = &unplug,
		.columns = unplug_columns,
		.column_count = countof(unplug_columns)};
	int rc = ctl_option_size(ctl, "discard-dirty", &unplug.discard);
	unplug.discarding = ctl_option_given(ctl, "discard-dirty");
	if (!rc && !name_check(ctl->argv[0]))
		rc = fault_set(&ctl->fault, FAULT_USAGE, ctl->argv[0], NULL,
			"'%s' is no name for a peer", ctl->argv[0]);
	if (rc)
		return rc;
	snprintf(unplug.plug.name, sizeof(unplug.plug.name), "%s", ctl->argv[0]);
	if (ctl->timeout_given && unplug.discarding)
		unplug.plug.until_ns = clock_now_ns() + ctl->timeout_ns;
	if (ctl_option_given(ctl, "dry-run"))
		return plan(&unplug);
	return ctl_work_run(&work, json_object());
}

const struct ctl_verb ctl_unplug_verb = {
	"unplug",
	NULL,
	"PEER",
	1,
	1,
	"take a cache or a mover out of a running pipeline",
	"\tIt writes everything back, which takes as long as the store does; then the edges lead "
	"past it, and when nothing is left at it, it is stopped and forgotten; one that shares its "
	"process stays there, out of the way. A guest sees a pause at most. Said again it goes on "
	"where it was. When the store fails for 10 s (or *--timeout*) it says so and leaves the "
	"cache in place, serving; *--discard-dirty* with the number of bytes that was shown takes "
	"it out all the same, and they are lost. A mover goes when nothing is on its way "
	"and nobody here has a volume open that lies in its other store: those are not seen here "
	"any more.\n",
	run,
	{&ctl_option_discard, &ctl_option_progress, &ctl_option_detach, &ctl_option_dry_run},
	.examples = "xsegctl unplug cache0\n"
		    "xsegctl unplug cache0 --discard-dirty=1048576\n",
};
