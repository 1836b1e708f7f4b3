/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From here to another host: what is dirty is written back round for round; then requests wait, the
 * rest is written back, and the record is given away. Who is attached here goes on from here.
 */
#include <base/log.h>

#include "peers/rehome/rehome.h"

#define OFFERS 3u  /* made again so often */
#define STALLED 3u /* rounds that were not shorter than the shortest one */

static uint64_t now_of(const struct rehome *rehome) { return peer_now_ns(rehome->peer); }

static void answer(struct rehome_volume *volume, int error)
{
	struct job *job = volume->move.job;
	volume->move.job = NULL;
	if (!job)
		return;
	if (error)
		job_fail(job, error);
	else
		job_complete(job, 0);
}

/* --- beginning -------------------------------------------------------------------------------- */

/* Nothing has begun yet. It was kept for the move: who has it open is looked at again. */
static void give_up(struct rehome *rehome, struct rehome_volume *volume, int error)
{
	volume->keeping |= volume->state == REHOME_HOME;
	rehome_volume_watch(rehome, volume);
	volume->info.error = error;
	volume->is_preparing = false;
	answer(volume, error);
}

static struct rehome_volume *preparing(const struct call *call)
{
	struct rehome_volume *volume = rehome_volume_of(call);
	return volume && volume->is_preparing ? volume : NULL;
}

static void acquired(struct call *call);

/* In the moment between our look at the record and theirs, it can have been given back and acquired
   anew, if nobody has it open: is it the same one now? */
static bool offer_again(struct rehome *rehome, struct rehome_volume *volume)
{
	return volume->move.offers++ < OFFERS &&
	       rehome_volume_keep(rehome, volume, MAP_KEEP_MAX_NS, acquired);
}

/* No pause is shorter than a round trip to the other host and one to the store. */
static uint64_t usual_pause(const struct rehome_move *move)
{
	uint64_t far_ns = move->rtt_ns + move->record_ns + REHOME_REST_NS;
	return far_ns > REHOME_PAUSE_NS ? far_ns : REHOME_PAUSE_NS;
}

static void offered(struct call *call)
{
	struct rehome *rehome = rehome_of(call->peer);
	struct rehome_volume *volume = preparing(call);
	struct rehome_offer offer = {0};
	int rc = call->result == -EOPNOTSUPP ? -ENOLINK : call->result;
	if (rc == 0 && call->answer_length < REHOME_ASK_BYTES)
		rc = -ENOLINK;
	if (rc == 0)
		call_get_bytes(call, REHOME_ANSWER_AT, &offer, sizeof(offer));
	call_end(call);
	if (!volume)
		return;
	if (rc == 0 && (offer.owner == 0 || offer.owner == rehome->owner))
		rc = -ELOOP;
	volume->move.owner = offer.owner;
	volume->move.rtt_ns = now_of(rehome) - volume->move.asked_ns;
	if (rc == -EXDEV && offer_again(rehome, volume))
		return;
	if (rc != 0 || volume->move.only_ask) {
		give_up(rehome, volume, rc);
		return;
	}
	rehome_volume_edge_is(rehome, volume->move.edge, offer.owner);
	if (volume->move.pause_ns == 0)
		volume->move.pause_ns = usual_pause(&volume->move);
	volume->is_preparing = false;
	answer(volume, 0);
	rehome_volume_event(rehome, volume, REHOME_EV_BEGIN, 0);
}

struct call *rehome_source_ask(struct rehome *rehome, struct rehome_volume *volume,
	enum rehome_control what, uint64_t keep_ns)
{
	struct rehome_ask ask = {.version = REHOME_VERSION,
		.owner = rehome->owner,
		.pause_ns = keep_ns,
		.term = volume->term,
		.since = volume->since,
		.next = volume->move.owner,
		.given = volume->move.given,
		.hold = what == REHOME_TAKE && volume->due_ns == 0};
	struct call *call =
		rehome_volume_call(rehome, volume, XSEG_OP_CONTROL, what, REHOME_ASK_BYTES);
	if (!call)
		return NULL;
	call->flags = XSEG_F_FAST_ONLY;
	call_put_bytes(call, 0, &ask, sizeof(ask));
	return call;
}

static void looked(struct call *call)
{
	struct rehome *rehome = rehome_of(call->peer);
	struct rehome_volume *volume = preparing(call);
	struct map_home_info home;
	int rc = rehome_volume_record(call, &home);
	if (!volume)
		return;
	if (rc == 0 && home.owner != rehome->owner)
		rc = -EBUSY;
	volume->term = home.term;
	volume->since = home.since ? home.since : home.line;
	volume->move.record_ns = now_of(rehome) - volume->move.asked_ns;
	volume->move.asked_ns = now_of(rehome);
	call = rc == 0 ? rehome_source_ask(rehome, volume, REHOME_OFFER, 0) : NULL;
	if (call)
		call_submit(call, volume->move.edge, offered);
	else
		give_up(rehome, volume, rc == 0 ? -EAGAIN : rc);
}

static void acquired(struct call *call)
{
	struct rehome *rehome = rehome_of(call->peer);
	struct rehome_volume *volume = preparing(call);
	int rc = call->result;
	call_end(call);
	if (volume)
		volume->move.asked_ns = now_of(rehome);
	if (volume && (rc != 0 || !rehome_volume_read(rehome, volume, 0, looked)))
		give_up(rehome, volume, rc == 0 ? -EAGAIN : rc);
}

/* Of this peer's; 0: there is none. */
static uint32_t edge_of(const struct rehome *rehome, const struct rehome_ask *ask)
{
	bool sure;
	return ask->edge == REHOME_EDGES ? rehome_volume_edge_to(rehome, ask->owner, &sure)
					 : 1 + ask->edge;
}

static int begin(struct rehome *rehome, struct rehome_volume *volume, const struct rehome_ask *ask)
{
	uint32_t edge = edge_of(rehome, ask);
	if (ask->version != REHOME_VERSION)
		return -EPROTO;
	if (ask->edge > REHOME_EDGES || ask->stall >= REHOME_STALLS)
		return -EINVAL;
	rehome_volume_edges(rehome);
	if (edge == 0 || rehome->edges[edge].port == XSEG_NONE)
		return -ENOLINK;
	if (volume->state != REHOME_HOME || volume->is_preparing)
		return -EBUSY;
	/* if it takes longer, GIVE acquires it again */
	if (!rehome_volume_keep(rehome, volume, MAP_KEEP_MAX_NS, acquired))
		return -EAGAIN;
	volume->is_preparing = true;
	volume->move = (struct rehome_move){.edge = edge,
		.stall = (enum rehome_stall)ask->stall,
		.only_ask = ask->only_ask,
		.hold = ask->hold,
		.heard_ns = now_of(rehome),
		.pause_ns = ask->pause_ns};
	volume->info = (struct rehome_info){.moves = volume->info.moves};
	rehome_pace_begin(volume);
	return 0;
}

void rehome_source_begin(struct rehome *rehome, struct job *job)
{
	struct rehome_volume *volume = rehome_volume_get(rehome, job->key.volume);
	struct rehome_ask ask = {0};
	if (!volume || job->data_size < sizeof(ask)) {
		job_fail(job, volume ? -EINVAL : -ENOMEM);
		return;
	}
	job_get_bytes(job, 0, &ask, sizeof(ask));
	if (volume->state == REHOME_AWAY && volume->edge == edge_of(rehome, &ask)) {
		if (ask.only_ask) /* it is there */
			job_fail(job, -EALREADY);
		else
			job_complete(job, 0);
		return;
	}
	bool is_open_ended = volume->state == REHOME_UNKNOWN || volume->state == REHOME_LOOKING ||
			     volume->state == REHOME_SETTLING || volume->state == REHOME_TAKING;
	if (is_open_ended) {
		rehome_route_wait(rehome, volume, job);
		return;
	}
	int rc = begin(rehome, volume, &ask);
	if (rc != 0)
		job_fail(job, rc);
	else
		volume->move.job = job;
}

/* --- rounds ------------------------------------------------------------------------------- */

/* It does not get shorter any more. */
static int stalls(struct rehome_move *move, uint64_t took_ns)
{
	if (move->best_ns == 0 || took_ns < move->best_ns - move->best_ns / 8) {
		move->best_ns = took_ns;
		move->stalled = 0;
		return 0;
	}
	return ++move->stalled >= STALLED;
}

/* The pause may be longer than was asked for. */
static bool forces(struct rehome_volume *volume)
{
	struct rehome_move *move = &volume->move;
	if (move->stall != REHOME_STALL_THROTTLE)
		return move->stall == REHOME_STALL_FORCE;
	move->best_ns = 0; /* counted anew from here */
	return !rehome_pace_tighten(volume);
}

/* Whoever holds it gets something ready: round for round meanwhile, and the rest stays short. */
static bool held(struct rehome *rehome, struct rehome_volume *volume)
{
	bool hold = volume->move.hold;
	volume->info.ready = hold;
	if (hold && now_of(rehome) - volume->move.heard_ns > REHOME_HOLD_NS)
		rehome_volume_event(rehome, volume, REHOME_EV_FAILED, -ECANCELED);
	else if (hold)
		rehome_volume_again(rehome, volume, REHOME_DO_PUSH);
	return hold;
}

void rehome_source_go(struct rehome *rehome, struct job *job)
{
	struct rehome_volume *volume = rehome_volume_find(rehome, job->key.volume);
	if (!volume) {
		job_fail(job, -ENOENT);
		return;
	}
	volume->move.hold = false;
	job_complete(job, 0);
}

static void pushed(struct call *call)
{
	struct rehome *rehome = rehome_of(call->peer);
	struct rehome_volume *volume = rehome_volume_of(call);
	int rc = call->result;
	call_end(call);
	if (!volume)
		return;
	struct rehome_move *move = &volume->move;
	uint64_t took_ns = now_of(rehome) - move->asked_ns;
	volume->info.rounds++;
	volume->info.round_ns = took_ns;
	bool fits = took_ns + move->rtt_ns <= move->pause_ns || volume->state == REHOME_FLUSHING;
	bool stalled = rc == 0 && !fits && stalls(move, took_ns);
	if (stalled && move->stall == REHOME_STALL_CANCEL)
		rc = -EAGAIN;
	if (rc != 0)
		rehome_volume_event(rehome, volume, REHOME_EV_FAILED, rc);
	else if (!fits && !(stalled && forces(volume)))
		rehome_volume_event(rehome, volume, REHOME_EV_LONG, 0);
	else if (!held(rehome, volume))
		rehome_volume_event(rehome, volume, REHOME_EV_SHORT, 0);
}

/* What is flushed like this need not be when it is given away, if nothing was written since. */
static struct call *push(struct rehome *rehome, struct rehome_volume *volume)
{
	volume->move.asked_ns = now_of(rehome);
	struct call *call = rehome_volume_call(rehome, volume, XSEG_OP_FLUSH, 0, 0);
	if (call)
		call->flags = XSEG_F_FUA;
	return call;
}

/* --- giving it away --------------------------------------------------------------------------- */

static void given(struct call *call)
{
	struct rehome *rehome = rehome_of(call->peer);
	struct rehome_volume *volume = rehome_volume_of(call);
	int rc = call->result;
	uint64_t version = call->value;
	call_end(call);
	if (!volume)
		return;
	volume->move.given = rc == 0 ? version : 0;
	rehome_volume_event(rehome, volume, rc ? REHOME_EV_FAILED : REHOME_EV_GIVEN, rc);
}

static struct call *give(struct rehome *rehome, struct rehome_volume *volume)
{
	struct call *call = rehome_volume_call(rehome, volume, XSEG_OP_CONTROL, MAP_GIVE, 0);
	if (call)
		call->arg1 = volume->move.owner;
	return call;
}

/* Was this the TAKE that went with GIVE, and is it still of interest? */
static bool was_early(struct rehome_volume *volume, const struct call *call)
{
	struct rehome_move *move = &volume->move;
	bool early = volume->state == REHOME_COMMITTING && move->early != 0 &&
		     move->early == (uint32_t)(uintptr_t)call->context2;
	if (early)
		move->early = 0;
	return early;
}

static void taken(struct call *call)
{
	struct rehome *rehome = rehome_of(call->peer);
	struct rehome_volume *volume = call->context;
	bool early = was_early(volume, call), late = !early && !rehome_volume_of(call);
	struct rehome_offer offer = {0};
	int rc = call->result;
	if (rc == 0 && call->answer_length < REHOME_ASK_BYTES)
		rc = -EPROTO;
	if (rc == 0)
		call_get_bytes(call, REHOME_ANSWER_AT, &offer, sizeof(offer));
	call_end(call);
	if (late)
		return;
	if (rc != 0 && early) { /* said again when it is given, if that is not to come yet */
		if (volume->due_ns != 0)
			rehome_source_do(rehome, volume, REHOME_DO_TAKE);
		return;
	}
	if (rc != 0) {
		rehome_volume_event(rehome, volume, REHOME_EV_FAILED, rc);
		return;
	}
	volume->edge = volume->move.edge;
	volume->term = offer.term;
	rehome_volume_event(rehome, volume, REHOME_EV_THEIRS, 0);
}

/* The record is much nearer than the other host, who has read it once, too, before he agreed: it is
   given at once, and if he is told so he need not look first. */
static bool is_near(const struct rehome_move *move) { return move->record_ns * 4 < move->rtt_ns; }

/* Together with GIVE, so that the record is on its way while the other host hears of it: what it
   finds there decides, however early it looks. */
static void take_early(struct rehome *rehome, struct rehome_volume *volume)
{
	struct call *call = rehome_source_ask(rehome, volume, REHOME_TAKE, 0);
	if (!call)
		return;
	volume->move.early = volume->serial;
	call_submit(call, volume->move.edge, taken);
}

/* --- one after the other ---------------------------------------------------------------------- */

void rehome_source_do(
	struct rehome *rehome, struct rehome_volume *volume, enum rehome_action action)
{
	const struct rehome_options *options = rehome->peer->options;
	struct call *call = NULL;
	call_done_f *done = NULL;
	uint32_t edge = REHOME_HERE;
	if (action == REHOME_DO_FREEZE) {
		if (volume->state == REHOME_DRAINING)
			volume->move.frozen_ns = now_of(rehome);
		volume->due_ns = now_of(rehome) + options->drain_ns;
		return; /* rehome_source_turn() looks */
	}
	if (action == REHOME_DO_PUSH) {
		call = push(rehome, volume);
		done = pushed;
	} else if (action == REHOME_DO_GIVE) {
		call = give(rehome, volume);
		done = given;
	} else {
		must(action == REHOME_DO_TAKE);
		volume->due_ns = now_of(rehome) + options->commit_ns;
		if (volume->move.early != 0)
			return; /* it is on its way */
		call = rehome_source_ask(rehome, volume, REHOME_TAKE, 0);
		done = taken;
		edge = volume->move.edge;
	}
	if (!call) {
		rehome_volume_again(rehome, volume, action);
		return;
	}
	call_submit(call, edge, done);
	if (action == REHOME_DO_GIVE && !is_near(&volume->move))
		take_early(rehome, volume);
}

void rehome_source_end(struct rehome *rehome, struct rehome_volume *volume, int error)
{
	struct rehome_move *move = &volume->move;
	bool from_here = move->edge != 0;
	volume->info.error = error;
	volume->info.ready = 0;
	if (move->frozen_ns != 0)
		volume->info.pause_ns = now_of(rehome) - move->frozen_ns;
	volume->attached = volume->state == REHOME_AWAY;
	/* it was kept for the time of the move */
	volume->keeping |= from_here && volume->state == REHOME_HOME;
	if (from_here && volume->state == REHOME_AWAY) {
		volume->info.moves++;
		peer_count(rehome->peer, REHOME_C_MOVED, 1);
		rehome_warm_begin(rehome, volume);
		log_info("rehome", "%s: volume %016llx has moved; requests waited %llu us",
			rehome->peer->name, (unsigned long long)volume->id,
			(unsigned long long)volume->info.pause_ns / 1000);
	} else if (from_here) {
		peer_count(rehome->peer, REHOME_C_STAYED, 1);
		log_warning("rehome", "%s: volume %016llx stays here: %s", rehome->peer->name,
			(unsigned long long)volume->id, strerror(-error));
	}
	answer(volume, error);
	*move = (struct rehome_move){0};
}

bool rehome_source_turn(struct rehome *rehome, struct rehome_volume *volume)
{
	bool reads = volume->state == REHOME_FROZEN;
	if (rehome_source_drains(volume) && rehome_route_quiet(rehome, volume->id, reads)) {
		rehome_volume_event(rehome, volume, REHOME_EV_QUIET, 0);
		return true;
	}
	if (volume->state == REHOME_EXPORT)
		return rehome_pace_turn(rehome, volume, now_of(rehome));
	return rehome_open_turn(rehome, volume);
}
