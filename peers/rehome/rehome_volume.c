/* SPDX-License-Identifier: Apache-2.0 */
/* What is known of each volume: its state, and whose it is by its home record. */
#include <base/log.h>

#include "peers/rehome/rehome.h"

static struct rehome_bucket *bucket_of(const struct rehome *rehome, uint64_t id)
{
	return &rehome->volumes[(hash_u64(id) >> 32) % REHOME_BUCKETS];
}

struct rehome_volume *rehome_volume_find(const struct rehome *rehome, uint64_t id)
{
	struct rehome_volume *volume;
	LIST_FOREACH (volume, bucket_of(rehome, id), link)
		if (volume->id == id)
			return volume;
	return NULL;
}

struct rehome_volume *rehome_volume_get(struct rehome *rehome, uint64_t id)
{
	struct rehome_volume *volume = rehome_volume_find(rehome, id);
	if (volume || !(volume = calloc(1, sizeof(*volume))))
		return volume;
	volume->id = id;
	TAILQ_INIT(&volume->waiting);
	TAILQ_INIT(&volume->pace.held);
	LIST_INSERT_HEAD(bucket_of(rehome, id), volume, link);
	return volume;
}

void rehome_volume_close(struct rehome *rehome)
{
	struct rehome_volume *volume;
	for (unsigned i = 0; rehome->volumes && i < REHOME_BUCKETS; i++)
		while ((volume = LIST_FIRST(&rehome->volumes[i]))) {
			LIST_REMOVE(volume, link);
			free(volume);
		}
	free(rehome->volumes);
}

uint32_t rehome_volume_edge_to(const struct rehome *rehome, uint64_t owner, bool *sure)
{
	*sure = true;
	for (uint32_t edge = 1; edge <= REHOME_EDGES; edge++) {
		const struct rehome_edge *to = &rehome->edges[edge];
		if (to->owner != 0 && to->owner == owner)
			return edge;
		*sure &= to->answered || to->port == XSEG_NONE;
	}
	return 0;
}

uint32_t rehome_volume_edge_from(struct rehome *rehome, uint32_t edge)
{
	rehome_volume_edges(rehome);
	while (edge != REHOME_HERE && edge <= REHOME_EDGES && rehome->edges[edge].port == XSEG_NONE)
		edge++;
	return edge;
}

/* To whoever has it; or else to the one that handed it over to him, who knows the way. */
static uint32_t way_to(const struct rehome *rehome, const struct map_home_info *home, bool *sure)
{
	bool any;
	uint32_t edge = rehome_volume_edge_to(rehome, home->owner, sure);
	if (edge != 0 || home->owner == 0 || home->owner == rehome->owner || home->previous == 0)
		return edge;
	return rehome_volume_edge_to(rehome, home->previous, &any);
}

bool rehome_volume_elsewhere(const struct rehome *rehome, const struct rehome_volume *volume,
	const struct map_home_info *home)
{
	bool sure;
	uint32_t edge = way_to(rehome, home, &sure);
	return edge != 0 && (volume->state != REHOME_AWAY || edge != volume->edge);
}

/* --- what happens to it --------------------------------------------------------------------- */

void rehome_volume_again(
	struct rehome *rehome, struct rehome_volume *volume, enum rehome_action action)
{
	volume->again = (uint8_t)action;
	volume->again_ns = peer_now_ns(rehome->peer) + REHOME_RETRY_NS;
}

void rehome_volume_watch(struct rehome *rehome, struct rehome_volume *volume)
{
	if (!volume->is_active)
		LIST_INSERT_HEAD(&rehome->active, volume, at_work);
	volume->is_active = true;
}

/* Whoever is behind an edge may still say that he is the one who has it. */
static bool may_be_found(const struct rehome *rehome)
{
	bool may = false;
	for (uint32_t i = 1; i <= REHOME_EDGES; i++) {
		const struct rehome_edge *edge = &rehome->edges[i];
		may |= edge->port != XSEG_NONE && !edge->answered &&
		       peer_now_ns(rehome->peer) < edge->since_ns + REHOME_HEAR_NS;
	}
	return may;
}

static void look(struct rehome *rehome, struct rehome_volume *volume);
static void acquire(struct rehome *rehome, struct rehome_volume *volume);

static void act(struct rehome *rehome, struct rehome_volume *volume, enum rehome_action action)
{
	if (action == REHOME_DO_LOOK)
		look(rehome, volume);
	else if (action == REHOME_DO_ACQUIRE)
		acquire(rehome, volume);
	else if (action != REHOME_DO_SERVE && action != REHOME_DO_FORWARD)
		rehome_source_do(rehome, volume, action);
}

void rehome_volume_event(
	struct rehome *rehome, struct rehome_volume *volume, enum rehome_event event, int error)
{
	const struct rehome_rule *rule = rehome_table_find(volume->state, event);
	if (!rule)
		return;
	unsigned before = volume->state;
	bool again = rule->next == before && event == REHOME_EV_FAILED;
	volume->state = rule->next;
	volume->serial++;
	if (error != 0)
		volume->info.error = error;
	rehome_volume_watch(rehome, volume);
	volume->again_ns = volume->due_ns = 0;
	if (again) {
		rehome_volume_again(rehome, volume, rule->action);
		if (!may_be_found(rehome))
			rehome_route_open_here(rehome, volume);
		return;
	}
	log_debug("rehome", "%s: volume %016llx: %s -> %s", rehome->peer->name,
		(unsigned long long)volume->id, rehome_state_name(before),
		rehome_state_name(rule->next));
	if (before == REHOME_EXPORT && rule->next != REHOME_EXPORT)
		rehome_pace_end(rehome, volume);
	act(rehome, volume, rule->action);
	if (rule->action == REHOME_DO_SERVE || rule->action == REHOME_DO_FORWARD) {
		rehome_source_end(rehome, volume, error);
		rehome_route_wake(rehome, volume);
	}
}

/* --- calls about it --------------------------------------------------------------------------- */

struct rehome_volume *rehome_volume_of(const struct call *call)
{
	struct rehome_volume *volume = call->context;
	return volume->serial == (uint32_t)(uintptr_t)call->context2 ? volume : NULL;
}

struct call *rehome_volume_call(struct rehome *rehome, struct rehome_volume *volume,
	enum xseg_op op, uint64_t what, uint32_t bytes)
{
	struct call *call = NULL;
	int rc = call_begin(rehome->peer, &call);
	if (rc != 0)
		return NULL;
	call->op = op;
	call->key.volume = volume->id;
	call->arg0 = what;
	call->context = volume;
	call->context2 = (void *)(uintptr_t)volume->serial;
	rc = call_pages(call, bytes);
	if (rc == 0)
		return call;
	call_end(call);
	return NULL;
}

bool rehome_volume_read(
	struct rehome *rehome, struct rehome_volume *volume, uint64_t how, call_done_f *done)
{
	struct call *call = rehome_volume_call(rehome, volume, XSEG_OP_CONTROL, MAP_HOME,
		MAP_ANSWER_AT + sizeof(struct map_home_info));
	if (!call)
		return false;
	call->arg1 = how;
	call_submit(call, REHOME_HERE, done);
	return true;
}

int rehome_volume_read_for(struct rehome *rehome, struct job *job, call_done_f *done)
{
	struct call *call;
	int rc = call_begin(rehome->peer, &call);
	if (rc != 0)
		return rc;
	call->op = XSEG_OP_CONTROL;
	call->key.volume = job->key.volume;
	call->arg0 = MAP_HOME;
	call->context = job;
	rc = call_pages(call, MAP_ANSWER_AT + sizeof(struct map_home_info));
	if (rc == 0)
		call_submit(call, REHOME_HERE, done);
	else
		call_end(call);
	return rc;
}

int rehome_volume_record(struct call *call, struct map_home_info *home)
{
	int rc = call->result;
	*home = (struct map_home_info){0};
	if (rc == 0 && call->answer_length < MAP_ANSWER_AT + sizeof(*home))
		rc = -EPROTO;
	if (rc == 0)
		call_get_bytes(call, MAP_ANSWER_AT, home, sizeof(*home));
	call_end(call);
	return rc;
}

bool rehome_volume_keep(
	struct rehome *rehome, struct rehome_volume *volume, uint64_t ns, call_done_f *done)
{
	struct call *call = rehome_volume_call(rehome, volume, XSEG_OP_CONTROL, MAP_KEEP, 0);
	if (!call)
		return false;
	call->arg1 = ns;
	call_submit(call, REHOME_HERE, done);
	return true;
}

/* --- whose it is ------------------------------------------------------------------------------ */

/* It was another's, but what we had sent to our composer before may have got it since: again. */
static bool is_unsure(struct rehome *rehome, struct rehome_volume *volume, enum rehome_event event,
	enum rehome_action action)
{
	if (event != REHOME_EV_THEIRS || !volume->unsure)
		return false;
	rehome_volume_again(rehome, volume, action);
	return true;
}

static bool look_there(struct rehome *rehome, struct rehome_volume *volume, uint32_t edge);

/* `at`: the edge behind which its record was read. */
static void judge(struct rehome *rehome, struct rehome_volume *volume, uint32_t at, int rc,
	const struct map_home_info *home)
{
	struct rehome_terms terms = {0, 0};
	bool sure;
	uint32_t edge = way_to(rehome, home, &sure);
	enum rehome_event event = rehome_table_judge(home, rehome->owner, edge != 0, sure, &terms);
	bool is_there = rc == 0 && at != REHOME_HERE;
	if (is_there && edge == 0 && home->owner != rehome->owner) {
		event = REHOME_EV_THEIRS; /* that host knows who has it, if anybody */
		edge = at;
	} else if (rc == -EOPNOTSUPP || rc == -ENOENT) {
		/* a composer without a mapper has volumes that nobody else has */
		event = REHOME_EV_OURS;
		rc = 0;
	}
	volume->since = terms.since;
	volume->term = terms.term;
	volume->edge = edge;
	if (rc != 0 || !is_unsure(rehome, volume, event, REHOME_DO_LOOK))
		rehome_volume_event(rehome, volume, rc ? REHOME_EV_FAILED : event, rc);
}

static void looked_there(struct call *call)
{
	struct rehome *rehome = rehome_of(call->peer);
	struct rehome_volume *volume = rehome_volume_of(call);
	uint32_t edge = (uint32_t)call->arg1;
	struct map_home_info home;
	int rc = rehome_volume_record(call, &home);
	if (!volume)
		return;
	bool knows_not = rc == -ENOENT || rc == -EOPNOTSUPP;
	if (!knows_not || !look_there(rehome, volume, edge + 1))
		judge(rehome, volume, edge, rc, &home);
}

/* It is not in a store of ours, any more: a host that has it in one of its own knows whose it is.
   From that edge on; false: there is nobody to ask. */
static bool look_there(struct rehome *rehome, struct rehome_volume *volume, uint32_t edge)
{
	edge = rehome_volume_edge_from(rehome, edge);
	if (edge > REHOME_EDGES)
		return false;
	struct call *call = rehome_volume_call(rehome, volume, XSEG_OP_CONTROL, MAP_HOME,
		MAP_ANSWER_AT + sizeof(struct map_home_info));
	if (!call) {
		rehome_volume_again(rehome, volume, REHOME_DO_LOOK);
		return true;
	}
	call->flags = XSEG_F_FAST_ONLY;
	call->arg1 = edge;
	call_submit(call, edge, looked_there);
	return true;
}

static void looked(struct call *call)
{
	struct rehome *rehome = rehome_of(call->peer);
	struct rehome_volume *volume = rehome_volume_of(call);
	struct map_home_info home;
	int rc = rehome_volume_record(call, &home);
	if (!volume)
		return;
	if (rc != -ENOENT || !look_there(rehome, volume, 1))
		judge(rehome, volume, REHOME_HERE, rc, &home);
}

static void look(struct rehome *rehome, struct rehome_volume *volume)
{
	volume->unsure = !rehome_route_quiet(rehome, volume->id, true);
	if (!rehome_volume_read(rehome, volume, 0, looked))
		rehome_volume_again(rehome, volume, REHOME_DO_LOOK);
}

static void decided(
	struct rehome *rehome, struct rehome_volume *volume, enum rehome_event event, int error)
{
	bool taking = volume->state == REHOME_TAKING;
	if (taking)
		rehome_target_decided(rehome, volume, error);
	volume->keeping |= event == REHOME_EV_OURS;
	/* back here: why it could not go is still of interest */
	rehome_volume_event(rehome, volume, event, taking || error ? error : volume->info.error);
}

/* We were told before the record was: it is the giver's, or ours to take since we have tried. */
static bool is_early(const struct rehome *rehome, const struct rehome_volume *volume,
	const struct map_home_info *home)
{
	const struct rehome_move *move = &volume->move;
	bool given = home->owner == 0 && home->next == rehome->owner;
	return volume->state == REHOME_TAKING && !volume->acquired && home->term == volume->term &&
	       (given || home->owner == move->owner) && peer_now_ns(rehome->peer) < move->early_ns;
}

static void recorded(struct call *call)
{
	struct rehome *rehome = rehome_of(call->peer);
	struct rehome_volume *volume = rehome_volume_of(call);
	struct map_home_info home;
	struct rehome_terms terms;
	bool sure;
	int rc = rehome_volume_record(call, &home);
	if (!volume)
		return;
	if (rc != 0) {
		decided(rehome, volume, REHOME_EV_FAILED, rc);
		return;
	}
	if (is_early(rehome, volume, &home)) {
		volume->again = REHOME_DO_ACQUIRE;
		volume->again_ns = peer_now_ns(rehome->peer) + REHOME_SOON_NS;
		return;
	}
	uint32_t edge = way_to(rehome, &home, &sure);
	enum rehome_event event = rehome_table_acquired(volume->state, volume->acquired,
		volume->term, &home, rehome->owner, edge != 0, sure, &terms);
	volume->since = terms.since;
	volume->term = terms.term;
	volume->edge = edge;
	bool too_late = volume->state == REHOME_TAKING && event == REHOME_EV_FAILED;
	if (!is_unsure(rehome, volume, event, REHOME_DO_ACQUIRE))
		decided(rehome, volume, event, too_late ? -ESTALE : 0);
}

static void acquired(struct call *call)
{
	struct rehome *rehome = rehome_of(call->peer);
	struct rehome_volume *volume = rehome_volume_of(call);
	int rc = call->result;
	call_end(call);
	if (!volume)
		return;
	volume->acquired = rc == 0;
	bool is_nobodys = rc == -ENOENT || rc == -EROFS || rc == -EPERM; /* to write to */
	if (is_nobodys && volume->state == REHOME_SETTLING)
		decided(rehome, volume, REHOME_EV_OURS, rc);
	else if (!rehome_volume_read(
			 rehome, volume, volume->acquired ? MAP_HOME_KNOWN : 0, recorded))
		rehome_volume_again(rehome, volume, REHOME_DO_ACQUIRE);
}

static void told(struct call *call) { call_end(call); }

/* Our mapper need not read the record that it acquires. */
static void tell(struct rehome *rehome, struct rehome_volume *volume)
{
	struct call *call = rehome_volume_call(rehome, volume, XSEG_OP_CONTROL, MAP_GIVEN, 0);
	if (!call)
		return;
	call->arg1 = volume->term;
	call->offset = volume->move.given;
	volume->move.given = 0;
	call_submit(call, REHOME_HERE, told);
}

/* Who has it open may be attached elsewhere, so it is kept for him. */
static void acquire(struct rehome *rehome, struct rehome_volume *volume)
{
	volume->unsure = !rehome_route_quiet(rehome, volume->id, true);
	if (volume->state == REHOME_TAKING && volume->move.given != 0)
		tell(rehome, volume);
	if (!rehome_volume_keep(rehome, volume, REHOME_KEEP_NS, acquired))
		rehome_volume_again(rehome, volume, REHOME_DO_ACQUIRE);
}

/* --- who is behind the edges ------------------------------------------------------------------ */

/* What went over it is looked for anew. */
static void edge_looks_anew(struct rehome *rehome, uint32_t edge)
{
	struct rehome_volume *volume;
	for (unsigned i = 0; i < REHOME_BUCKETS; i++)
		LIST_FOREACH (volume, &rehome->volumes[i], link)
			if (volume->state == REHOME_AWAY && volume->edge == edge)
				rehome_volume_event(rehome, volume, REHOME_EV_ELSEWHERE, 0);
}

void rehome_volume_edge_is(struct rehome *rehome, uint32_t edge, uint64_t owner)
{
	bool changed = rehome->edges[edge].owner != 0 && rehome->edges[edge].owner != owner;
	rehome->edges[edge].owner = owner;
	if (changed)
		edge_looks_anew(rehome, edge);
}

static void heard(struct call *call)
{
	struct rehome *rehome = rehome_of(call->peer);
	struct rehome_edge *edge = call->context;
	uint32_t port = (uint32_t)(uintptr_t)call->context2;
	struct rehome_offer offer = {0};
	int rc = call->result;
	if (rc == 0 && call->answer_length >= REHOME_ASK_BYTES)
		call_get_bytes(call, REHOME_ANSWER_AT, &offer, sizeof(offer));
	call_end(call);
	edge->asking = false;
	if (port != edge->port)
		return;
	/* one that cannot be reached may be anybody; what is no re-homer has no volume for us */
	edge->answered = rc == 0 || rc == -EOPNOTSUPP || rc == -EPROTO || rc == -ELOOP;
	if (edge->answered)
		rehome_volume_edge_is(rehome, (uint32_t)(edge - rehome->edges), offer.owner);
}

/* OFFER of no volume asks just that. */
static bool introduce(struct rehome *rehome, uint32_t edge)
{
	struct rehome_ask ask = {.version = REHOME_VERSION, .owner = rehome->owner};
	struct call *call = NULL;
	if (call_begin(rehome->peer, &call) != 0)
		return false;
	call->op = XSEG_OP_CONTROL;
	call->flags = XSEG_F_FAST_ONLY;
	call->arg0 = REHOME_OFFER;
	call->context = &rehome->edges[edge];
	call->context2 = (void *)(uintptr_t)rehome->edges[edge].port;
	if (call_pages(call, REHOME_ASK_BYTES) != 0) {
		call_end(call);
		return false;
	}
	call_put_bytes(call, 0, &ask, sizeof(ask));
	rehome->edges[edge].asking = true;
	rehome->edges[edge].again_ns = peer_now_ns(rehome->peer) + REHOME_KNOWN_NS;
	call_submit(call, edge, heard);
	return true;
}

static void edge_changed(struct rehome *rehome, uint32_t edge, uint32_t port)
{
	rehome->edges[edge].port = port;
	rehome->edges[edge].since_ns = peer_now_ns(rehome->peer);
	rehome->edges[edge].owner = 0;
	rehome->edges[edge].answered = false;
	edge_looks_anew(rehome, edge);
}

bool rehome_volume_edges(struct rehome *rehome)
{
	bool moved = false;
	for (uint32_t edge = 1; edge <= REHOME_EDGES; edge++) {
		uint32_t port =
			xseg_edge_port(peer_segment(rehome->peer), rehome->peer->edge[edge]);
		if (port == rehome->edges[edge].port)
			continue;
		edge_changed(rehome, edge, port);
		rehome->ask_ns = 0;
		moved = true;
	}
	return moved;
}

static bool list_open(struct rehome *rehome);

static bool introductions(struct rehome *rehome, uint64_t now)
{
	bool moved = rehome_volume_edges(rehome);
	if (now < rehome->ask_ns || rehome->peer->stopping)
		return moved;
	rehome->ask_ns = now + REHOME_ASK_NS;
	moved |= list_open(rehome);
	for (uint32_t i = 1; i <= REHOME_EDGES; i++) {
		const struct rehome_edge *edge = &rehome->edges[i];
		bool is_due = edge->owner == 0 || now >= edge->again_ns;
		if (edge->port != XSEG_NONE && is_due && !edge->asking)
			moved |= introduce(rehome, i);
	}
	return moved;
}

/* --- what is open already --------------------------------------------------------------------- */

#define LIST_BYTES (4 * XSEG_PAGE)

static void listed(struct call *call)
{
	struct rehome *rehome = rehome_of(call->peer);
	struct xseg_volume_info info;
	bool failed = call->result != 0;
	uint32_t length = failed || call->answer_length > LIST_BYTES ? 0 : call->answer_length;
	for (uint32_t at = 0; at + sizeof(info) <= length; at += sizeof(info)) {
		call_get_bytes(call, at, &info, sizeof(info));
		struct rehome_volume *volume =
			info.opens > 0 ? rehome_volume_get(rehome, info.id) : NULL;
		if (volume)
			rehome_volume_event(rehome, volume, REHOME_EV_ASKED, 0);
	}
	rehome->cursor = failed ? rehome->cursor : call->value;
	rehome->listed = !failed && call->value == 0;
	rehome->listing = false;
	call_end(call);
	if (!failed) /* else with the next introductions */
		list_open(rehome);
}

/* Those who had one open before our predecessor died are told to its host again, if it is another:
   they may have nothing to ask for a while. */
static bool list_open(struct rehome *rehome)
{
	struct call *call = NULL;
	if (rehome->listed || rehome->listing || call_begin(rehome->peer, &call) != 0)
		return false;
	call->op = XSEG_OP_LIST;
	call->arg0 = rehome->cursor;
	if (call_pages(call, LIST_BYTES) != 0) {
		call_end(call);
		return false;
	}
	rehome->listing = true;
	call_submit(call, REHOME_HERE, listed);
	return true;
}

/* --- each turn ---------------------------------------------------------------------------- */

static bool volume_turn(struct rehome *rehome, struct rehome_volume *volume, uint64_t now)
{
	if (volume->due_ns != 0 && now >= volume->due_ns) {
		rehome_volume_event(rehome, volume, REHOME_EV_FAILED,
			rehome_source_drains(volume) ? -ETIME : -ETIMEDOUT);
		return true;
	}
	if (volume->again_ns != 0 && now >= volume->again_ns) {
		volume->again_ns = 0;
		act(rehome, volume, volume->again);
		return true;
	}
	return rehome_source_turn(rehome, volume);
}

static bool is_settled(const struct rehome_volume *volume)
{
	if (volume->state == REHOME_HOME)
		return !volume->keeping && !rehome_open_any(volume);
	return volume->state == REHOME_AWAY && !volume->attached;
}

void rehome_volume_stop(struct rehome *rehome)
{
	struct rehome_volume *volume;
	for (unsigned i = 0; i < REHOME_BUCKETS; i++)
		LIST_FOREACH (volume, &rehome->volumes[i], link)
			if (volume->state != REHOME_AWAY)
				rehome_volume_event(rehome, volume, REHOME_EV_CANCEL, -ECANCELED);
}

bool rehome_volume_turn(struct rehome *rehome)
{
	uint64_t now = peer_now_ns(rehome->peer);
	bool moved = introductions(rehome, now);
	struct rehome_volume *volume, *next;
	uint64_t wake_ns = rehome->ask_ns;
	for (volume = LIST_FIRST(&rehome->active); volume; volume = next) {
		next = LIST_NEXT(volume, at_work);
		moved |= volume_turn(rehome, volume, now);
		if (is_settled(volume)) {
			LIST_REMOVE(volume, at_work);
			volume->is_active = false;
		} else if (rehome_source_drains(volume)) {
			wake_ns = now + REHOME_LOOK_NS;
		}
		if (volume->again_ns != 0 && volume->again_ns < wake_ns)
			wake_ns = volume->again_ns;
		if (rehome_pace_wake(volume) < wake_ns)
			wake_ns = rehome_pace_wake(volume);
	}
	if (!LIST_EMPTY(&rehome->active) && wake_ns > now + REHOME_RETRY_NS)
		wake_ns = now + REHOME_RETRY_NS;
	peer_wake_at(rehome->peer, wake_ns);
	return moved;
}
