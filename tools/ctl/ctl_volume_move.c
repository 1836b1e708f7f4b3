/* SPDX-License-Identifier: Apache-2.0 */
/*
 * volume move: to another store, while it is used. A mover comes in front of the old store as a
 * cache would (ctl_plug.h), is told what to move, step by step, and goes when nothing is left
 * behind it. Nothing is remembered here: said again, it goes on.
 */
#include <base/must.h>
#include <base/path.h>
#include <base/size.h>
#include <errno.h>
#include <peer/client.h>
#include <peer/mover.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xseg/port.h>
#include <xseg/registry.h>

#include "tools/ctl/ctl_map.h"
#include "tools/ctl/ctl_plug.h"
#include "tools/ctl/ctl_work.h"

#define LIST_KEYS 16384u
#define BATCH_NS (600ull * 1000000000u) /* of one step: as slow as the stores are */
#define NAMES_MAX 100u
#define NAP_NS 50000000u

static const struct ctl_option option_to = {
	"to", 0, "STORE", "the peer that keeps its objects from then on; it runs already", NULL};
const struct ctl_option ctl_volume_option_bandwidth = {"bandwidth", 0, "SIZE",
	"copy so many bytes a second at most, on average, e.g. 50M (default: no limit)", NULL};
const struct ctl_option ctl_volume_option_keep = {"keep", 0, "DIR",
	"copies of what goes stay in this folder of this host, and of what comes back only that "
	"crosses the bridge which has changed",
	NULL};

static const struct ctl_column columns[] = {{"name", "name", CTL_TEXT}, {"to", "store", CTL_TEXT},
	{"volumes", "volumes and snapshots moved", CTL_COUNT}, {"bytes", "copied", CTL_SIZE},
	{"duration_ns", "time", CTL_TIME}, {"mover", "mover", CTL_TEXT},
	{"changed", "changed", CTL_TEXT}, {"dry_run", "dry run", CTL_TEXT}};

struct move {
	struct ctl_plug plug; /* .name: the mover, .store: the old store */
	struct client composer;
	const char *name; /* of the volume; NULL: of none */
	struct xseg_volume_info info;
	char to[NAME_LENGTH_MAX + 1], below[NAME_LENGTH_MAX + 1]; /* the new store; what the mapper
								      asks */
	bool there;						  /* a mover is in the path */
	char astray[XSEG_EDGE_NAME_MAX + 1]; /* "": none; an edge that leads past the mover */
	bool in_place;			     /* there is nothing to do */
	bool finished;			     /* the mover went: nothing was left behind it */
	bool stays;			     /* it is to stay, whatever is left */
	uint32_t which;			     /* enum mover_store: what --to is to the mover */
	uint64_t bandwidth;		     /* bytes a second; 0: no limit */
	const char *keep;		     /* NULL: no copies */
	bool only_asks;			     /* whether there is room */
	struct mover_ask ask;
	struct mover_state state, first;
};

/* --- the group: who shares objects ----------------------------------------------------------- */

static bool has(const struct mover_ask *ask, uint64_t id)
{
	for (uint32_t i = 0; i < ask->count; i++)
		if (ask->ids[i] == id)
			return true;
	return false;
}

static int add(struct move *move, uint64_t id, bool *grown)
{
	if (id == 0 || has(&move->ask, id))
		return 0;
	if (move->ask.count == MOVER_IDS_MAX)
		return fault_set(&move->plug.ctl->fault, FAULT_FAILED, move->info.name,
			"'xsegctl volume flatten' makes a clone a group of its own",
			"'%s' shares objects with more than %u volumes and snapshots",
			move->info.name, MOVER_IDS_MAX - 1);
	move->ask.ids[move->ask.count++] = id;
	*grown = true;
	return 0;
}

/* Whoever has an owner of the group, and all of that one's owners. */
static int add_head(struct move *move, const struct map_head_info *head, bool *grown)
{
	bool shares = has(&move->ask, head->id) || (head->parent && has(&move->ask, head->parent));
	for (unsigned i = 0; i < head->owner_count && !shares; i++)
		shares = has(&move->ask, head->owners[i]);
	int rc = shares ? add(move, head->id, grown) : 0;
	if (shares && !rc)
		rc = add(move, head->parent, grown);
	for (unsigned i = 0; shares && i < head->owner_count && !rc; i++)
		rc = add(move, head->owners[i], grown);
	return rc;
}

static int read_heads(struct move *move, struct client *composer, const struct ctl_map_nodes *nodes,
	struct map_head_info *heads)
{
	for (size_t i = 0; i < nodes->count; i++) {
		const struct xseg_volume_info *info = &nodes->all[i].info;
		int error = info->flags & XSEG_VOLUME_FIXED
				    ? 0
				    : ctl_map_head(composer, info->id, &heads[i]);
		if (error && error != -ENOENT)
			return ctl_map_fault(
				move->plug.ctl, info, "cannot be looked at", error, NULL);
	}
	return 0;
}

static int find_group(struct move *move, struct client *composer)
{
	struct ctl_map_nodes nodes;
	int error = ctl_map_tree_list(composer, &nodes);
	if (error)
		return ctl_map_fault(move->plug.ctl, &move->info, "cannot be listed", error, NULL);
	struct map_head_info *heads = calloc(nodes.count + 1, sizeof(*heads));
	must(heads);
	int rc = read_heads(move, composer, &nodes, heads);
	bool grown = false;
	move->ask.count = 0;
	rc = rc ? rc : add(move, move->info.id, &grown);
	while (!rc && grown) {
		grown = false;
		for (size_t i = 0; i < nodes.count && !rc; i++)
			rc = heads[i].id ? add_head(move, &heads[i], &grown) : 0;
	}
	free(heads);
	free(nodes.all);
	return rc;
}

/* --- who is there ---------------------------------------------------------------------------- */

static bool role_is(const struct xseg *seg, const char *peer, const char *role)
{
	struct xseg_peer_view view;
	return !xseg_peer_find(seg, peer, &view) && !strcmp(view.role, role);
}

static int target(const struct move *move, const char *peer, const char *edge, char *to)
{
	char name[2 * NAME_LENGTH_MAX + 8];
	snprintf(name, sizeof(name), "%s:%s", peer, edge);
	if (!xseg_edge_target(&move->plug.seg, name, to) && to[0])
		return 0;
	return fault_set(&move->plug.ctl->fault, FAULT_FAILED, name, NULL,
		"the edge %s leads nowhere", name);
}

/* Whom a peer asks for objects in the end, and by which edge: caches do not count. */
static int walk(const struct move *move, const char *from, char edge[XSEG_EDGE_NAME_MAX + 1],
	char end[NAME_LENGTH_MAX + 1])
{
	char peer[NAME_LENGTH_MAX + 1];
	int rc;
	snprintf(end, NAME_LENGTH_MAX + 1, "%s", from);
	do {
		memcpy(peer, end, sizeof(peer));
		snprintf(edge, XSEG_EDGE_NAME_MAX + 1, "%s:store", peer);
		rc = target(move, peer, "store", end);
	} while (!rc && role_is(&move->plug.seg, end, CTL_CACHE_ROLE));
	return rc;
}

static bool leads_to(const struct move *move, const char *mover, const char *store)
{
	char edge[2 * NAME_LENGTH_MAX + 16], to[NAME_LENGTH_MAX + 1];
	snprintf(edge, sizeof(edge), "%s:store", mover);
	if (!xseg_edge_target(&move->plug.seg, edge, to) && !strcmp(to, store))
		return true;
	snprintf(edge, sizeof(edge), "%s:store-to", mover);
	return !xseg_edge_target(&move->plug.seg, edge, to) && !strcmp(to, store);
}

/* Records come by the mapper, objects by the composer: both ways must end at the mover. Who was
   killed while he switched edges has left one of them at a store. */
static int look_below(struct move *move)
{
	const struct xseg *seg = &move->plug.seg;
	char composer[NAME_LENGTH_MAX + 1] = "", mapper[NAME_LENGTH_MAX + 1];
	char map_edge[XSEG_EDGE_NAME_MAX + 1], edge[XSEG_EDGE_NAME_MAX + 1];
	char end[NAME_LENGTH_MAX + 1];
	memcpy(composer, seg->ports[move->composer.port].name, NAME_LENGTH_MAX);
	int rc = target(move, composer, "map", mapper);
	if (!rc)
		rc = walk(move, mapper, map_edge, move->below);
	if (!rc)
		rc = walk(move, composer, edge, end);
	if (rc || !strcmp(end, move->below))
		return rc;
	if (role_is(seg, move->below, MOVER_ROLE) && leads_to(move, move->below, end)) {
		memcpy(move->astray, edge, sizeof(edge));
	} else if (role_is(seg, end, MOVER_ROLE) && leads_to(move, end, move->below)) {
		memcpy(move->astray, map_edge, sizeof(map_edge));
		memcpy(move->below, end, sizeof(end));
	}
	return 0;
}

static int look_mover(struct move *move)
{
	struct ctl_plug *plug = &move->plug;
	char old[NAME_LENGTH_MAX + 1], new[NAME_LENGTH_MAX + 1];
	snprintf(plug->name, sizeof(plug->name), "%s", move->below);
	int rc = target(move, plug->name, "store", old);
	if (!rc)
		rc = target(move, plug->name, "store-to", new);
	if (rc)
		return rc;
	move->there = true;
	snprintf(plug->store, sizeof(plug->store), "%s", old);
	move->which = !strcmp(move->to, new) ? MOVER_NEW : MOVER_OLD;
	if (strcmp(move->to, new) && strcmp(move->to, old))
		return fault_set(&plug->ctl->fault, FAULT_CONFLICT, move->to,
			"move all of them to one of the two first",
			"volumes are moved between '%s' and '%s' already", old, new);
	return 0;
}

static void choose_name(struct move *move)
{
	struct xseg_peer_view view;
	for (unsigned i = 0; i < NAMES_MAX; i++) {
		char edge[2 * NAME_LENGTH_MAX + 16], to[NAME_LENGTH_MAX + 1];
		snprintf(move->plug.name, sizeof(move->plug.name), "mover%u", i);
		if (xseg_peer_find(&move->plug.seg, move->plug.name, &view))
			return;
		/* begun and not ended */
		snprintf(edge, sizeof(edge), "%s:store-to", move->plug.name);
		if (!strcmp(view.role, MOVER_ROLE) &&
			!xseg_edge_target(&move->plug.seg, edge, to) && !strcmp(to, move->to))
			return;
	}
}

static int look(struct move *move)
{
	struct ctl_plug *plug = &move->plug;
	struct xseg_peer_view view;
	int rc = look_below(move);
	if (rc)
		return rc;
	if (xseg_peer_find(&plug->seg, move->to, &view) || view.life == XSEG_LIFE_DEAD)
		return fault_set(&plug->ctl->fault, FAULT_NOT_FOUND, move->to,
			"e.g. 'xsegctl peer start ceph0=blocker_rados,pool=volumes'",
			"there is no peer '%s' that could keep the volume", move->to);
	/* what is behind a bridge may be one: who knows says so when it is asked */
	if (strncmp(view.role, "blocker_", 8) && strcmp(view.role, "synapse_import"))
		return fault_set(&plug->ctl->fault, FAULT_USAGE, move->to,
			"'xsegctl peer list' shows roles", "'%s' is no store but a %s", move->to,
			view.role);
	if (role_is(&plug->seg, move->below, MOVER_ROLE))
		return look_mover(move);
	snprintf(plug->store, sizeof(plug->store), "%s", move->below);
	move->which = MOVER_NEW;
	move->in_place = !strcmp(move->below, move->to);
	choose_name(move);
	return 0;
}

/* --- the mover's part --------------------------------------------------------------------- */

static int mover_fault(struct move *move, int error)
{
	const char *hint = error == -ENOSPC ? "make room there, and say it again"
					    : "its log says more; say it again to go on";
	if (error == -EBUSY)
		return fault_set(&move->plug.ctl->fault, FAULT_BUSY, move->info.name,
			"'xsegctl volume info' says which; it has to give it back first",
			"volume '%s' cannot be moved: another host has it, or one that shares "
			"objects with it",
			move->info.name);
	if (error == -ENOTUNIQ)
		return fault_set(&move->plug.ctl->fault, FAULT_CONFLICT, move->info.name,
			"'xsegctl volume rename' gives this one another name",
			"'%s' has a volume of the same name as '%s' or one that shares objects "
			"with it",
			move->to, move->info.name);
	return fault_set(&move->plug.ctl->fault, fault_code_of_errno(error), move->info.name, hint,
		"volume '%s' cannot be moved to '%s': %s; it stays usable", move->info.name,
		move->to, error == -ETIMEDOUT ? "nobody answers" : strerror(-error));
}

static int tell(struct move *move, struct client *mover, enum mover_control what)
{
	bool asks = what == MOVER_BEGIN || what == MOVER_ROOM;
	struct client_control call = {.what = what,
		.volume = move->info.id,
		.in = asks ? &move->ask : NULL,
		.in_size = asks ? sizeof(move->ask) : 0,
		.answer_at = MOVER_ANSWER_AT,
		.out = &move->state,
		.out_size = sizeof(move->state)};
	int error = client_control(mover, &call);
	return error ? mover_fault(move, error) : 0;
}

/* One client at a time: a small segment has few lanes. */
static int reach(struct move *move, struct client *mover)
{
	int rc = ctl_join_peer(move->plug.ctl, move->plug.seg.name, move->plug.name, mover);
	mover->timeout_ns = BATCH_NS;
	return rc;
}

static int tell_once(struct move *move, enum mover_control what)
{
	struct client mover;
	int rc = reach(move, &mover);
	if (rc)
		return rc;
	rc = tell(move, &mover, what);
	client_close(&mover);
	return rc;
}

/* What goes past the mover goes through it again. */
static int bring_back(struct move *move)
{
	struct ctl_plug *plug = &move->plug;
	char to[NAME_LENGTH_MAX + 1];
	bool changed;
	if (!move->astray[0] || xseg_edge_target(&plug->seg, move->astray, to))
		return 0;
	memcpy(plug->edges[0], move->astray, sizeof(move->astray));
	plug->edge_count = 1;
	int rc = ctl_plug_switch(plug, plug->name, &changed);
	return rc ? rc : ctl_settle(plug, to, false);
}

/* Whoever was killed as he took a mover out may have stopped it, and the keeper knows it still. */
static int finish_taking_out(struct move *move)
{
	json_t *list = NULL;
	const json_t *row;
	size_t i;
	int rc = ctl_plug_ask(&move->plug, "peer.list", NULL, &list);
	json_array_foreach (json_object_get(list, "peers"), i, row) {
		struct ctl_plug left = move->plug;
		bool stopped = ctl_plug_row_is(row, "state", "stopped") ||
			       ctl_plug_row_is(row, "state", "stopping");
		if (rc || !stopped || !ctl_plug_row_is(row, "role", MOVER_ROLE))
			continue;
		snprintf(left.name, sizeof(left.name), "%s",
			json_string_value(json_object_get(row, "name")));
		snprintf(left.store, sizeof(left.store), "%s", move->below);
		ctl_plug_edges(&left);
		rc = left.edge_count ? 0 : ctl_unplug_rest(&left, false);
	}
	json_decref(list);
	return rc;
}

/* The mover's own edge goes on leading to the old store; and if it stays, that of who offers the
   store to other hosts: each of them looks into both stores itself, and not through the other. */
static bool keeps(const struct move *move, const char *edge)
{
	char peer[NAME_LENGTH_MAX + 1];
	snprintf(peer, sizeof(peer), "%.*s", (int)strcspn(edge, ":"), edge);
	return !strcmp(peer, move->plug.name) ||
	       (move->stays && role_is(&move->plug.seg, peer, "synapse_export"));
}

static int put_in(struct move *move)
{
	struct ctl_plug *plug = &move->plug;
	char argument[4 * NAME_LENGTH_MAX + PATH_LENGTH_MAX + 64], mover[NAME_LENGTH_MAX + 1];
	json_t *result = NULL;
	bool changed;
	if (move->there)
		return bring_back(move);
	snprintf(argument, sizeof(argument), "%s=%s,edge.store=%s,edge.store-to=%s%s%s", plug->name,
		MOVER_ROLE, plug->store, move->to, move->keep ? ",keep=" : "",
		move->keep ? move->keep : "");
	struct xseg_peer_view view;
	if (!xseg_peer_find(&plug->seg, plug->name, &view))
		snprintf(argument, sizeof(argument), "%s", plug->name);
	int rc = ctl_plug_ask(plug, "peer.start",
		json_pack("{s:s, s:I}", "peer", argument, "timeout_ns",
			(json_int_t)plug->ctl->timeout_ns),
		&result);
	json_decref(result);
	if (rc)
		return rc;
	snprintf(mover, sizeof(mover), "%s", plug->name);
	snprintf(plug->name, sizeof(plug->name), "%s", plug->store);
	ctl_plug_edges(plug);
	snprintf(plug->name, sizeof(plug->name), "%s", mover);
	for (unsigned i = 0; i < plug->edge_count;) {
		if (!keeps(move, plug->edges[i]))
			i++;
		else
			memmove(plug->edges[i], plug->edges[--plug->edge_count],
				sizeof(plug->edges[i]));
	}
	rc = ctl_plug_switch(plug, mover, &changed);
	return rc ? rc : ctl_settle(plug, plug->store, false);
}

/* Before anything is moved. What others write there meanwhile is not known. */
static int fits(struct move *move)
{
	char needed[32], room[32];
	move->ask.to = move->which;
	int rc = tell_once(move, MOVER_ROOM);
	if (!rc && move->keep && !move->state.keeps)
		return fault_set(&move->plug.ctl->fault, FAULT_CONFLICT, move->plug.name,
			"'xsegctl unplug' takes it out where nothing is on its way",
			"'%s' stands there already, and keeps no copies", move->plug.name);
	if (rc || move->state.needed <= move->state.room)
		return rc;
	return fault_set(&move->plug.ctl->fault, fault_code_of_errno(-ENOSPC), move->info.name,
		"make room there, and say it again",
		"volume '%s' stays where it is: '%s' has %s free, and it takes, with all that "
		"shares objects with it, at least %s",
		move->info.name, move->to, size_format(move->state.room, room, sizeof(room)),
		size_format(move->state.needed, needed, sizeof(needed)));
}

/* A step copies as fast as it can; there may be a while to the next one. */
static void pace(const struct move *move, uint64_t begin_ns)
{
	double bytes = (double)(move->state.bytes - move->first.bytes);
	double due_ns = move->bandwidth ? bytes * 1e9 / (double)move->bandwidth : 0;
	while (due_ns > (double)(clock_now_ns() - begin_ns) && !ctl_ask_interrupted())
		time_nap(NAP_NS);
}

static int steps(struct move *move, struct ctl_work *work)
{
	uint64_t size = move->info.object_size, begin_ns = clock_now_ns();
	struct client mover;
	int rc = reach(move, &mover);
	if (rc)
		return rc;
	rc = tell(move, &mover, MOVER_BEGIN);
	move->first = move->state;
	while (!rc && move->state.phase == MOVER_COPYING) {
		uint64_t left = move->state.left, first = move->first.left;
		uint64_t total = first > left ? first : left;
		ctl_work_progress(work, (total - left) * size, total * size);
		pace(move, begin_ns);
		rc = ctl_ask_interrupted()
			     ? ctl_ask_interrupted_fault(move->plug.ctl, move->info.name)
			     : tell(move, &mover, MOVER_STEP);
	}
	client_close(&mover);
	return rc;
}

/* --- when nothing is left behind it ----------------------------------------------------------- */

/* Volume records in a store. */
static int count_records(struct move *move, const char *store, uint32_t *count)
{
	static struct xseg_key keys[LIST_KEYS];
	struct client client;
	uint64_t cursor = 0;
	int rc = ctl_join_peer(move->plug.ctl, move->plug.seg.name, store, &client);
	*count = 0;
	if (rc)
		return rc;
	do {
		struct client_request list = {.op = XSEG_OP_LIST,
			.key.epoch = XSEG_EPOCH_VOLUME,
			.arg0 = cursor,
			.length = sizeof(keys),
			.receive = keys,
			.receive_size = sizeof(keys)};
		int error = client_do(&client, &list);
		for (uint32_t i = 0; !error && i < list.answer_length / sizeof(*keys); i++)
			*count += !(keys[i].object & MOVER_GROUP_OBJECT);
		rc = error ? mover_fault(move, error) : 0;
		cursor = list.value;
	} while (!rc && cursor);
	client_close(&client);
	return rc;
}

/* What only the mover finds: volumes in the store that they are to leave, and those on their way,
   which neither shows. */
static int count_left(struct move *move, uint64_t *left)
{
	char store[NAME_LENGTH_MAX + 1];
	uint32_t records = 0;
	bool old = move->which == MOVER_NEW;
	int rc = target(move, move->plug.name, old ? "store" : "store-to", store);
	if (!rc)
		rc = tell_once(move, MOVER_GROUPS);
	*left = rc ? 0 : move->state.moving;
	if (!rc)
		rc = count_records(move, store, &records);
	*left += records;
	return rc;
}

static int take_out(struct move *move, const char *last, bool is_new)
{
	struct ctl_plug *plug = &move->plug;
	bool changed;
	uint64_t left = 0;
	ctl_plug_edges(plug);
	int rc = ctl_plug_switch(plug, last, &changed);
	if (!rc)
		rc = ctl_settle(plug, plug->name, true);
	if (!rc && is_new)
		rc = count_left(move, &left);
	if (!rc && left) /* made, or begun, in this moment */
		return ctl_plug_switch(plug, plug->name, &changed);
	snprintf(plug->store, sizeof(plug->store), "%s", last);
	if (!rc)
		rc = ctl_unplug_rest(plug, false);
	move->finished = !rc;
	return rc;
}

/* Nothing has begun: what was put in for that goes again. */
static void undo(struct move *move)
{
	struct ctl *ctl = move->plug.ctl;
	struct fault first = ctl->fault;
	char old[NAME_LENGTH_MAX + 1];
	int signal = ctl_ask_interrupt_block();
	snprintf(old, sizeof(old), "%s", move->plug.store);
	if (!tell_once(move, MOVER_GROUPS) && move->state.left == 0)
		take_out(move, old, false);
	ctl->fault = first;
	ctl_ask_interrupt_resume(signal);
}

static int leave(struct move *move)
{
	uint64_t left = 0;
	int rc = count_left(move, &left);
	if (!rc && !left && move->which == MOVER_NEW)
		rc = tell_once(move, MOVER_NAMES);
	return rc || left ? rc : take_out(move, move->to, move->which == MOVER_NEW);
}

/* --- the job ---------------------------------------------------------------------------------- */

static int with_mover(struct move *move, struct ctl_work *work)
{
	int rc = fits(move);
	if (move->only_asks)
		return rc;
	rc = rc ? rc : steps(move, work);
	struct mover_state state = move->state;
	if (!rc && !move->stays)
		rc = leave(move);
	else if (rc && !move->there)
		undo(move);
	move->state = state;
	return rc;
}

static void report(struct move *move, struct ctl_work *work)
{
	uint64_t bytes = move->state.bytes - move->first.bytes;
	work->result = json_pack("{s:s, s:s, s:I, s:I, s:I, s:s?, s:b, s:b}", "name",
		move->info.name, "to", move->to, "volumes",
		(json_int_t)(move->in_place ? 0 : move->ask.count), "bytes", (json_int_t)bytes,
		"duration_ns", (json_int_t)(clock_now_ns() - work->progress.start_ns), "mover",
		move->in_place || move->finished ? NULL : move->plug.name, "changed",
		!move->in_place, "dry_run", 0);
}

static int begin(struct move *move)
{
	struct ctl *ctl = move->plug.ctl;
	int rc = move->name ? ctl_map_open(ctl, move->name, &move->composer, &move->info)
			    : ctl_join_composer(ctl, &move->composer);
	if (rc)
		return rc;
	rc = ctl_join(ctl, &move->plug.seg);
	if (rc) {
		client_close(&move->composer);
		return rc;
	}
	rc = move->name ? ctl_map_changeable(ctl, &move->info) : 0;
	if (!rc)
		rc = look(move);
	return rc;
}

static int move_all(struct move *move, struct ctl_work *work)
{
	move->plug.work = work;
	int rc = begin(move);
	if (!move->plug.seg.ports)
		return rc;
	if (!rc && !move->there)
		rc = finish_taking_out(move);
	if (!rc && !move->in_place && move->name)
		rc = find_group(move, &move->composer);
	client_close(&move->composer);
	if (!rc && !move->in_place)
		rc = put_in(move);
	if (!rc && !move->in_place && move->name)
		rc = with_mover(move, work);
	xseg_segment_leave(&move->plug.seg);
	return rc;
}

static int body(struct ctl_work *work, void *context)
{
	int rc = move_all(context, work);
	if (!rc)
		report(context, work);
	return rc;
}

static struct move *part(struct ctl_work *work, const char *name,
	const struct ctl_volume_data *data, uint64_t until_ns)
{
	struct move *move = calloc(1, sizeof(*move));
	must(move);
	*move = (struct move){.plug.ctl = work->ctl,
		.plug.work = work,
		.plug.until_ns = until_ns,
		.name = name,
		.stays = data->stays,
		.bandwidth = data->bandwidth,
		.keep = data->keep,
		.only_asks = data->only_asks};
	memcpy(move->to, data->to, sizeof(move->to));
	return move;
}

int ctl_volume_move_data(struct ctl_work *work, const char *name,
	const struct ctl_volume_data *data, uint64_t until_ns, uint64_t *bytes)
{
	struct move *move = part(work, name, data, until_ns);
	int rc = move_all(move, work);
	*bytes += move->state.bytes - move->first.bytes;
	free(move);
	return rc;
}

int ctl_volume_see(struct ctl_work *work, const struct ctl_volume_data *data, uint64_t until_ns,
	char own[NAME_LENGTH_MAX + 1], bool *fresh)
{
	struct move *move = part(work, NULL, data, until_ns);
	int rc = move_all(move, work);
	if (!rc && (move->in_place || move->which == MOVER_OLD))
		rc = fault_set(&work->ctl->fault, FAULT_USAGE, data->to, NULL,
			"'%s' is the store of this host", data->to);
	snprintf(own, NAME_LENGTH_MAX + 1, "%s", move->plug.store);
	*fresh = !rc && !move->there;
	free(move);
	return rc;
}

void ctl_volume_unsee(struct ctl_work *work, const struct ctl_volume_data *data, uint64_t until_ns)
{
	struct move *move = part(work, NULL, data, until_ns);
	struct fault first = work->ctl->fault;
	if (!begin(move) && move->there)
		undo(move);
	work->ctl->fault = first;
	if (move->plug.seg.ports) {
		client_close(&move->composer);
		xseg_segment_leave(&move->plug.seg);
	}
	free(move);
}

int ctl_volume_group(struct ctl *ctl, struct client *composer, const struct xseg_volume_info *info,
	uint64_t *ids, uint32_t *count)
{
	struct move *move = calloc(1, sizeof(*move));
	must(move);
	*move = (struct move){.plug.ctl = ctl, .info = *info};
	int rc = find_group(move, composer);
	*count = move->ask.count;
	memcpy(ids, move->ask.ids, *count * sizeof(*ids));
	free(move);
	return rc;
}

static int plan(struct move *move)
{
	int rc = begin(move);
	if (!move->plug.seg.ports)
		return rc;
	if (!rc && !move->in_place)
		rc = find_group(move, &move->composer);
	if (!rc)
		ctl_output_one(move->plug.ctl,
			json_pack("{s:s, s:s, s:I, s:s?, s:b, s:b}", "name", move->info.name, "to",
				move->to, "volumes",
				(json_int_t)(move->in_place ? 0 : move->ask.count), "mover",
				move->in_place ? NULL : move->plug.name, "changed", 0, "dry_run",
				1),
			columns, countof(columns));
	xseg_segment_leave(&move->plug.seg);
	client_close(&move->composer);
	return rc;
}

int ctl_volume_read_keep(struct ctl *ctl, const char **keep)
{
	*keep = ctl_option_value(ctl, "keep");
	if (!*keep || (**keep == '/' && !strchr(*keep, ',') && strlen(*keep) < PATH_LENGTH_MAX))
		return 0;
	return fault_set(&ctl->fault, FAULT_USAGE, *keep, "e.g. --keep /var/lib/skerry/kept",
		"--keep: '%s' is no path from the root on without a comma", *keep);
}

static int run(struct ctl *ctl)
{
	static struct move move;
	const char *to = ctl_option_value(ctl, "to");
	move = (struct move){.plug.ctl = ctl, .name = ctl->argv[0]};
	struct ctl_work work = {.ctl = ctl,
		.kind = "volume.move",
		.object = ctl->argv[0],
		.body = body,
		.context = &move,
		.columns = columns,
		.column_count = countof(columns) - 1};
	if (!to || !name_check(to))
		return fault_set(&ctl->fault, FAULT_USAGE, to,
			"e.g. xsegctl volume move vm1 --to ceph0",
			to ? "'%s' is no name for a peer" : "say where: --to STORE", to);
	snprintf(move.to, sizeof(move.to), "%s", to);
	int rc = ctl_option_size(ctl, "bandwidth", &move.bandwidth);
	if (!rc)
		rc = ctl_volume_read_keep(ctl, &move.keep);
	if (rc)
		return rc;
	if (ctl->timeout_given)
		move.plug.until_ns = clock_now_ns() + ctl->timeout_ns;
	if (ctl_option_given(ctl, "dry-run"))
		return plan(&move);
	return ctl_work_run(&work, json_pack("{s:s, s:s}", "volume", ctl->argv[0], "to", to));
}

const struct ctl_verb ctl_volume_move = {
	"volume",
	"move",
	"VOLUME",
	1,
	1,
	"to another store, while it is used",
	"\tWith all snapshots and clones that share objects with it, whose data and records then "
	"lie "
	"in STORE, a peer that runs already (*peer start*). Objects are copied below the cache, "
	"some "
	"at a time; who writes to one of those waits for it; what is new goes to the new store. It "
	"is a job that goes on when the terminal is gone; stopped or killed, all stays usable, and "
	"said again it goes on. *--to* "
	"the old store brings it back. Until nothing is left in the old store a peer 'mover0' "
	"stands in front of both, and belongs into the pipeline (*config save*).\n",
	run,
	{&option_to, &ctl_volume_option_bandwidth, &ctl_volume_option_keep, &ctl_option_progress,
		&ctl_option_via, &ctl_option_detach, &ctl_option_dry_run},
	.examples = "xsegctl volume move vm1 --to ceph0 --dry-run\n"
		    "xsegctl volume move vm1 --to ceph0 --bandwidth 50M\n"
		    "xsegctl volume move vm1 --to ceph0 --progress=plain\n"
		    "xsegctl volume move vm1 --to file0\n",
};
