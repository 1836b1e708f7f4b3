/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The log: which chunks the near store has, durably. One append is on its way at a time.
 *
 *   IDLE --urgent, terms, or what was flushed--> APPEND --> IDLE
 *   IDLE --it has become long, or at a start--> REWRITE --> SWITCH --> IDLE
 *
 * What is changed while an entry is on its way may not rely on it: from the start of the append the
 * object counts as logged with the old chunks and the new ones, and unstable only if both say so.
 */
#include <base/container.h>
#include <base/log.h>

#include "peers/tier/tier.h"

#define LENGTH_MIN 256u /* blocks: below, it is not worth a rewrite */
#define RETRY_NS 1000000000u

void tier_log_urgent(struct tier *tier, struct tier_object *object)
{
	if (object->in_urgent || tier->state == TIER_STATE_OFF)
		return;
	object->in_urgent = true;
	TAILQ_INSERT_TAIL(&tier->log.urgent, object, log_link);
}

void tier_log_term(struct tier *tier, struct tier_volume *volume)
{
	if (volume->in_terms)
		return;
	volume->in_terms = true;
	TAILQ_INSERT_TAIL(&tier->log.terms, volume, log_link);
}

void tier_log_changed(struct tier *tier, struct tier_object *object)
{
	if (object->in_changed || tier->state != TIER_STATE_ON)
		return;
	object->in_changed = true;
	TAILQ_INSERT_TAIL(&tier->log.changed, object, changed_link);
}

/* --- what an append says ---------------------------------------------------------------------- */

static int say(struct tier_log *log, struct tier_said said)
{
	struct tier_entry entry = {.value = said.value};
	if (log->said_count == log->said_room) {
		size_t room = log->said_room ? log->said_room * 2 : 256;
		struct tier_said *grown = realloc(log->said, room * sizeof(*grown));
		if (!grown)
			return -ENOMEM;
		log->said = grown;
		log->said_room = room;
	}
	if (said.object) {
		entry.key = said.object->key;
		entry.flags = said.unstable ? TIER_ENTRY_UNSTABLE : 0;
	} else {
		entry.key.volume = said.volume->id;
		entry.flags = TIER_ENTRY_TERM;
	}
	int error = tier_blocks_add(&log->blocks, &entry);
	if (!error)
		log->said[log->said_count++] = said;
	return error;
}

/* From now on until it is durable either may be so. */
static void append_begins(struct tier_log *log)
{
	for (size_t i = 0; i < log->said_count; i++) {
		struct tier_said *said = &log->said[i];
		if (!said->object)
			continue;
		said->object->logged |= said->value;
		said->object->unstable = said->object->unstable && said->unstable;
	}
}

static void append_holds(struct tier *tier)
{
	struct tier_log *log = &tier->log;
	size_t count = log->said_count;
	for (size_t i = 0; i < count; i++) {
		struct tier_said *said = &log->said[i];
		if (said->object) {
			said->object->logged = said->value;
			said->object->unstable = said->unstable;
		} else {
			said->volume->term_logged = said->value;
		}
	}
	log->said_count = 0;
	tier_blocks_clear(&log->blocks);
	for (size_t i = 0; i < count; i++) {
		/* whoever is served now may say something new: that comes in a later turn */
		struct tier_said said = log->said[i];
		struct tier_object *object = said.object;
		if (!object)
			tier_serve_all(tier, &said.volume->blocked);
		else if (object->evicting && !object->deleting && object->logged == 0)
			tier_object_evicted(tier, object);
		else
			tier_object_wake(tier, object);
	}
}

static void appended(struct tier_blocks *blocks)
{
	struct tier_log *log = container_of(blocks, struct tier_log, blocks);
	struct tier *tier = blocks->tier;
	log->step = TIER_LOG_IDLE;
	if (blocks->error) {
		tier_log_leave(tier, blocks->error);
		return;
	}
	log->length += blocks->count;
	peer_count(tier->peer, TIER_C_LOGGED, log->said_count);
	append_holds(tier);
}

/* --- urgent ones ------------------------------------------------------------------------------ */

static int gather_urgent(struct tier_log *log)
{
	struct tier_object *object;
	struct tier_volume *volume;
	int error = 0;
	while (!error && (object = TAILQ_FIRST(&log->urgent))) {
		error = say(log, (struct tier_said){.object = object,
					 .value = object->logged & object->present,
					 .unstable = true});
		if (error)
			break;
		TAILQ_REMOVE(&log->urgent, object, log_link);
		object->in_urgent = false;
	}
	/* behind them: who reads the log only in part must not believe the term */
	while (!error && (volume = TAILQ_FIRST(&log->terms))) {
		error = say(log, (struct tier_said){.volume = volume, .value = volume->term});
		if (error)
			break;
		TAILQ_REMOVE(&log->terms, volume, log_link);
		volume->in_terms = false;
	}
	return error;
}

/* --- what was flushed ------------------------------------------------------------------------- */

static int gather_flushed(struct tier_log *log)
{
	struct tier_object *object;
	int error = 0;
	while (!error && (object = TAILQ_FIRST(&log->flushed))) {
		bool unstable = object->hot || tier_object_changes(object);
		uint64_t value = object->snap & object->present;
		bool nothing = value == 0 && object->logged == 0;
		if (!nothing && (value != object->logged || unstable != object->unstable))
			error = say(log,
				(struct tier_said){
					.object = object, .value = value, .unstable = unstable});
		if (error)
			break;
		TAILQ_REMOVE(&log->flushed, object, changed_link);
		object->in_changed = false;
		if ((unstable && !nothing) || object->present != value)
			tier_log_changed(log->tier, object);
	}
	return error;
}

static void flush_ends(struct tier_log *log, int error)
{
	struct tier_object *object;
	if (error) {
		TAILQ_FOREACH (object, &log->flushed, changed_link)
			object->written |= object->hot;
		TAILQ_CONCAT(&log->changed, &log->flushed, changed_link);
		log->flushing = false;
		if (error != -EAGAIN)
			tier_log_leave(log->tier, error);
	}
}

static void flushed(struct call *call)
{
	struct tier_log *log = &tier_of(call->peer)->log;
	if (call->result && !log->flush_error)
		log->flush_error = call->result;
	call_end(call);
	if (--log->flushes == 0)
		flush_ends(log, log->flush_error);
}

static int flush_volume(struct tier_log *log, uint64_t id)
{
	struct call *call;
	struct xseg_key key = {.volume = id};
	int error = tier_serve_call(log->tier, XSEG_OP_FLUSH, key, 0, 0, &call);
	if (error)
		return error;
	log->flushes++;
	call_submit(call, TIER_NEAR, flushed);
	return 0;
}

static void flush_begin(struct tier_log *log)
{
	struct tier_object *object;
	TAILQ_FOREACH (object, &log->changed, changed_link) {
		object->snap = object->present;
		object->hot = tier_object_changes(object);
		object->written = false;
		object->volume->flush = true;
	}
	TAILQ_CONCAT(&log->flushed, &log->changed, changed_link);
	log->flushing = true;
	log->flushes = 1;
	log->flush_error = 0;
	TAILQ_FOREACH (object, &log->flushed, changed_link) {
		int error = object->volume->flush ? flush_volume(log, object->volume->id) : 0;
		object->volume->flush = false;
		if (error && !log->flush_error)
			log->flush_error = error;
	}
	if (--log->flushes == 0)
		flush_ends(log, log->flush_error);
}

/* --- a new generation ------------------------------------------------------------------------- */

static void switched(struct call *call)
{
	struct tier_log *log = &tier_of(call->peer)->log;
	struct tier *tier = log->tier;
	int error = call->result;
	uint64_t version = call->value;
	call_end(call);
	log->step = TIER_LOG_IDLE;
	if (error) {
		tier_log_leave(tier, error);
		return;
	}
	log->generation = log->blocks.generation;
	log->version = version;
	log->length = log->blocks.count;
	log->other_life = false;
	if (tier->state == TIER_STATE_LOADING) {
		tier->state = TIER_STATE_ON;
		tier_serve_all(tier, &tier->loading);
	}
	append_holds(tier);
}

static bool switch_over(struct peer *peer, void *context)
{
	struct tier_log *log = context;
	struct tier_record record = {.generation = log->blocks.generation};
	struct call *call;
	if (tier_serve_call(
		    log->tier, XSEG_OP_CAS, tier_format_record_key(), 0, sizeof(record), &call))
		return false;
	call->arg0 = log->version;
	call->arg1 = XSEG_CAS_PUT;
	memcpy(record.segment, peer_segment(peer)->super->uuid, sizeof(record.segment));
	tier_format_record_seal(&record);
	call_put_bytes(call, 0, &record, sizeof(record));
	call_submit(call, TIER_NEAR, switched);
	return true;
}

static void rewritten(struct tier_blocks *blocks)
{
	struct tier_log *log = container_of(blocks, struct tier_log, blocks);
	if (blocks->error) {
		log->step = TIER_LOG_IDLE;
		tier_log_leave(blocks->tier, blocks->error);
		return;
	}
	log->step = TIER_LOG_SWITCH;
	if (!switch_over(blocks->tier->peer, log))
		peer_retry(blocks->tier->peer, switch_over, log);
}

static void blocks_send(struct tier_log *log, uint64_t generation, uint64_t first,
	void (*done)(struct tier_blocks *blocks))
{
	log->blocks.tier = log->tier;
	log->blocks.generation = generation;
	log->blocks.first = first;
	log->blocks.done = done;
	append_begins(log);
	tier_blocks_write(&log->blocks);
}

void tier_log_rewrite(struct tier *tier)
{
	struct tier_log *log = &tier->log;
	struct tier_object *object;
	int error = 0;
	TAILQ_FOREACH (object, &tier->order, order) {
		bool unstable = object->unstable || tier_object_changes(object);
		uint64_t value = object->logged & object->present;
		if (!error && value)
			error = say(log,
				(struct tier_said){
					.object = object, .value = value, .unstable = unstable});
		else if (object->logged && !value)
			tier_log_urgent(tier, object);
	}
	for (size_t i = 0; i < TIER_VOLUME_BUCKETS; i++) {
		struct tier_volume *volume;
		LIST_FOREACH (volume, &tier->volumes[i], chain)
			if (!error && volume->term_logged)
				error = say(log, (struct tier_said){.volume = volume,
							 .value = volume->term_logged});
	}
	if (!error && log->blocks.count == 0) /* a generation has one block at least */
		error = tier_blocks_add(
			&log->blocks, &(struct tier_entry){.flags = TIER_ENTRY_TERM});
	if (error) {
		tier_log_leave(tier, error);
		return;
	}
	log->step = TIER_LOG_REWRITE;
	blocks_send(log, log->generation + 1, 0, rewritten);
}

/* --- the near store fails --------------------------------------------------------------------- */

static void left(struct call *call)
{
	struct tier *tier = tier_of(call->peer);
	struct tier_log *log = &tier->log;
	struct tier_object *object;
	int error = call->result;
	uint64_t version = call->value;
	call_end(call);
	log->step = TIER_LOG_IDLE;
	if (error && error != -ENOENT) {
		if (error == -ESTALE)
			log->version = version;
		tier->retry_ns = peer_now_ns(tier->peer) + RETRY_NS;
		return;
	}
	tier->state = TIER_STATE_OFF;
	log_warning("tier",
		"%s: everything goes to the far store, until the near one and the tier are "
		"restarted",
		tier->peer->name);
	TAILQ_FOREACH (object, &tier->order, order) {
		object->logged = 0;
		object->evicting = object->evicting && object->deleting;
	}
	TAILQ_FOREACH (object, &tier->order, order)
		tier_object_wake(tier, object);
	for (size_t i = 0; i < TIER_VOLUME_BUCKETS; i++) {
		struct tier_volume *volume;
		LIST_FOREACH (volume, &tier->volumes[i], chain)
			tier_serve_all(tier, &volume->blocked);
	}
	tier_serve_all(tier, &tier->loading);
}

/* Without its record there is no log: nothing of what lies there counts. */
static bool leave(struct tier *tier)
{
	struct call *call;
	if (tier_serve_call(tier, XSEG_OP_CAS, tier_format_record_key(), 0, 0, &call)) {
		tier->is_short = true;
		return false;
	}
	call->arg0 = tier->log.version;
	call->arg1 = XSEG_CAS_DELETE;
	tier->log.step = TIER_LOG_SWITCH;
	call_submit(call, TIER_NEAR, left);
	return true;
}

void tier_log_leave(struct tier *tier, int error)
{
	struct tier_log *log = &tier->log;
	struct tier_object *object;
	if (tier->state == TIER_STATE_LEAVING || tier->state == TIER_STATE_OFF)
		return;
	log_error("tier", "%s: what is near cannot be noted there: %s", tier->peer->name,
		strerror(-error));
	tier->state = TIER_STATE_LEAVING;
	peer_set(tier->peer, TIER_C_OFF, 1);
	tier->retry_ns = 0;
	log->said_count = 0;
	tier_blocks_clear(&log->blocks);
	TAILQ_FOREACH (object, &tier->order, order) {
		tier_fill_poison(object, UINT64_MAX);
		tier_change_spoil(object);
		tier_object_present(tier, object, 0);
	}
}

/* --- turns --------------------------------------------------------------------------------- */

static bool append(struct tier_log *log, int error)
{
	if (error) {
		tier_log_leave(log->tier, error);
		return true;
	}
	if (log->said_count == 0)
		return false;
	log->step = TIER_LOG_APPEND;
	blocks_send(log, log->generation, log->length, appended);
	return true;
}

bool tier_log_quiet(const struct tier *tier)
{
	const struct tier_log *log = &tier->log;
	if (log->step != TIER_LOG_IDLE || log->flushing)
		return false;
	return tier->state == TIER_STATE_OFF || tier->state == TIER_STATE_LOADING ||
	       (TAILQ_EMPTY(&log->changed) && TAILQ_EMPTY(&log->urgent));
}

uint64_t tier_log_wake_ns(const struct tier *tier)
{
	if (tier->log.step != TIER_LOG_IDLE || tier->log.flushing)
		return 0; /* its answer wakes us */
	if (tier->state == TIER_STATE_LEAVING)
		return tier->retry_ns;
	return TAILQ_EMPTY(&tier->log.changed) ? 0 : tier->log.next_ns;
}

bool tier_log_turn(struct tier *tier)
{
	struct tier_log *log = &tier->log;
	uint64_t now = peer_now_ns(tier->peer);
	if (log->step != TIER_LOG_IDLE)
		return false;
	if (tier->state == TIER_STATE_LEAVING)
		return now >= tier->retry_ns && leave(tier);
	if (tier->state != TIER_STATE_ON)
		return false;
	if (!TAILQ_EMPTY(&log->urgent) || !TAILQ_EMPTY(&log->terms))
		return append(log, gather_urgent(log));
	if (log->flushing && log->flushes == 0) {
		log->flushing = false;
		append(log, gather_flushed(log));
		return true;
	}
	if (log->length > LENGTH_MIN + 4 * (tier->known / TIER_BLOCK_ENTRIES)) {
		tier_log_rewrite(tier);
		return true;
	}
	if (log->flushing || TAILQ_EMPTY(&log->changed) ||
		(now < log->next_ns && !tier->peer->stopping))
		return false;
	log->next_ns = now + tier->options->interval;
	flush_begin(log);
	return true;
}
