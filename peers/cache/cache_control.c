/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What can be asked of a cache while it runs. Shard 0 gets the requests and leads: it says in
 * shared->ask what all shards are to do, each does it in its own turns and counts itself in
 * `asked_done`. One thing is asked at a time.
 *
 *   drain   phase DRAINING -> all look (nobody dirties buckets any more) -> all empty -> PASSING
 *   begin   phase DRAINING -> all look -> what was passed on before has been answered -> CACHING
 */
#include <base/crash.h>
#include <base/log.h>
#include <errno.h>
#include <xseg/request.h>

#include "peers/cache/cache.h"
#include "peers/cache/cache_work.h"

#define CONTROL_AGAIN_NS 200000u /* between two looks at what has to be waited for */
#define CONTROL_EVICT 1024u	 /* buckets in one turn */

enum control_ask { ASK_NOTHING, ASK_LOOK, ASK_EMPTY, ASK_DROP, ASK_FIT, ASK_POLICY };

enum control_lead {
	LEAD_NOTHING,
	LEAD_DRAIN_LOOK,
	LEAD_DRAIN_EMPTY,
	LEAD_BEGIN_LOOK,
	LEAD_BEGIN_WAIT,
	LEAD_DROP,
	LEAD_FENCE,
	LEAD_FIT,
	LEAD_POLICY,
};

/* --- each shard -------------------------------------------------------------------------- */

/* Whatever is clean goes; what is dirty is being written. */
static bool do_empty(struct peer *peer)
{
	struct cache *cache = cache_of(peer);
	if (atomic_load(&cache_shared(peer)->ask_error))
		return true; /* broken off */
	if (cache->writeback.dirty == 0)
		cache_bucket_drop_clean(peer, 0);
	return cache->writeback.dirty == 0 && TAILQ_EMPTY(&cache->writeback.locals) &&
	       xcache_count(cache->index) == 0;
}

static bool do_drop(struct peer *peer)
{
	struct cache_shared *shared = cache_shared(peer);
	uint32_t count = cache_bucket_drop_clean(peer, atomic_load(&shared->drop_volume));
	atomic_fetch_add(&shared->drop_count, count);
	return true;
}

static bool do_policy(struct peer *peer)
{
	struct cache_shared *shared = cache_shared(peer);
	int error = xcache_set_policy(
		cache_of(peer)->index, xcache_policies[atomic_load(&shared->policy)]);
	if (error)
		atomic_store(&shared->ask_error, error);
	return true;
}

/* More is cached than the limit allows: a part of it goes each turn. */
static void shrink(struct peer *peer)
{
	struct cache *cache = cache_of(peer);
	uint64_t size = atomic_load(&cache_shared(peer)->size) / XSEG_PAGE / peer->shards;
	uint32_t count = xcache_count(cache->index);
	if (count > size) {
		uint64_t over = count - size;
		xcache_evict(cache->index, (uint32_t)(over < CONTROL_EVICT ? over : CONTROL_EVICT));
		cache->hurry = true;
	}
	cache->asked.shrinking = xcache_count(cache->index) > size;
}

static bool do_asked(struct peer *peer)
{
	switch (cache_of(peer)->asked.doing) {
	case ASK_EMPTY: return do_empty(peer);
	case ASK_DROP: return do_drop(peer);
	case ASK_FIT: return !cache_of(peer)->asked.shrinking;
	case ASK_POLICY: return do_policy(peer);
	default: return true;
	}
}

static void shard_asked(struct peer *peer, uint64_t asked)
{
	struct cache *cache = cache_of(peer);
	cache->asked.seen = asked;
	cache->asked.doing = atomic_load(&cache_shared(peer)->ask);
	cache->hurry = true;
	if (cache->asked.doing == ASK_FIT)
		cache_size_apply(peer);
}

static bool shard_turn(struct peer *peer)
{
	struct cache *cache = cache_of(peer);
	struct cache_shared *shared = cache_shared(peer);
	uint64_t asked = atomic_load_explicit(&shared->asked, memory_order_acquire);
	if (unlikely(cache->asked.shrinking))
		shrink(peer);
	if (unlikely(asked != cache->asked.seen))
		shard_asked(peer, asked);
	if (likely(cache->asked.doing == ASK_NOTHING) || !do_asked(peer))
		return false;
	cache->asked.doing = ASK_NOTHING;
	atomic_fetch_add(&shared->asked_done, 1);
	if (peer->shard != 0)
		peer_wake(peer, 0);
	return true;
}

/* --- shard 0 ----------------------------------------------------------------------------- */

static void lead(struct peer *peer, enum control_ask ask, enum control_lead step)
{
	struct cache_shared *shared = cache_shared(peer);
	cache_of(peer)->asked.leading = step;
	atomic_store(&shared->asked_done, 0);
	atomic_store(&shared->ask_error, 0);
	atomic_store(&shared->ask, ask);
	atomic_fetch_add_explicit(&shared->asked, 1, memory_order_release);
	cache_volume_wake_others(peer);
}

static void lead_end(struct peer *peer, int error, uint64_t value)
{
	struct cache *cache = cache_of(peer);
	struct job *job = cache->asked.job;
	cache->asked.leading = LEAD_NOTHING;
	cache->asked.job = NULL;
	if (job && error)
		job_fail(job, error);
	else if (job)
		job_complete_value(job, 0, value);
}

static void set_phase(struct peer *peer, enum cache_phase phase, bool beginning)
{
	struct cache_shared *shared = cache_shared(peer);
	shared->beginning = beginning;
	atomic_store(&shared->phase, phase);
	atomic_fetch_add(&shared->phases, 1);
	crash_point("cache.control.phase");
	cache_meta_save(peer);
}

static void lead_begin_wait(struct peer *peer)
{
	struct cache *cache = cache_of(peer);
	if (peer_now_ns(peer) < cache->asked.since_ns)
		return;
	cache->asked.since_ns = peer_now_ns(peer) + CONTROL_AGAIN_NS;
	if (cache_bypass_is_out(peer))
		return;
	set_phase(peer, CACHE_CACHING, false);
	log_info("cached", "%s: caching", peer->name);
	lead_end(peer, 0, 0);
}

static void lead_drained(struct peer *peer)
{
	set_phase(peer, CACHE_PASSING, false);
	log_info("cached", "%s: drained; everything is passed on", peer->name);
	lead_end(peer, 0, 0);
}

static void control_begin(struct peer *peer, struct job *job)
{
	if (cache_phase_now(peer) == CACHE_CACHING) {
		job_complete(job, 0);
		return;
	}
	cache_of(peer)->asked.job = job;
	cache_of(peer)->asked.since_ns = 0;
	set_phase(peer, CACHE_DRAINING, true);
	lead(peer, ASK_LOOK, LEAD_BEGIN_LOOK);
}

/* Told to begin in the middle of a drain: what is dirty stays so. */
static bool lead_broken_off(struct peer *peer)
{
	struct cache *cache = cache_of(peer);
	struct job *begin = cache->asked.begin;
	if (!begin)
		return false;
	cache->asked.begin = NULL;
	lead_end(peer, -ECANCELED, 0);
	control_begin(peer, begin);
	return true;
}

/* What outlives the process: all that is here of the volume is of this term, or as good. */
static int fence_persist(struct peer *peer, struct cache_volume *volume, uint64_t term)
{
	return atomic_load(&volume->term) == term ? 0 : cache_term_persist(peer, volume, term);
}

static void lead_fenced(struct peer *peer)
{
	struct cache *cache = cache_of(peer);
	struct job *job = cache->asked.job;
	struct cache_volume *volume = cache_volume_find(peer, job->key.volume);
	if (volume && fence_persist(peer, volume, job->arg1))
		return; /* no page for it: again in the next turn */
	cache->asked.leading = LEAD_NOTHING;
	cache->asked.job = NULL;
	crash_point("cache.control.fenced");
	job_forward(job, CACHE_STORE);
}

/* The next volume that another has had: what we know of it may be old. */
static bool lead_fence(struct peer *peer)
{
	struct cache *cache = cache_of(peer);
	struct job *job = TAILQ_FIRST(&cache->asked.fences);
	if (likely(!job))
		return false;
	TAILQ_REMOVE(&cache->asked.fences, job, link);
	cache->asked.job = job;
	atomic_store(&cache_shared(peer)->drop_volume, job->key.volume);
	lead(peer, ASK_DROP, LEAD_FENCE);
	return true;
}

/* All shards have done what was asked. */
static void lead_next(struct peer *peer)
{
	struct cache *cache = cache_of(peer);
	struct cache_shared *shared = cache_shared(peer);
	switch (cache->asked.leading) {
	case LEAD_DRAIN_LOOK:
		if (!lead_broken_off(peer))
			lead(peer, ASK_EMPTY, LEAD_DRAIN_EMPTY);
		break;
	case LEAD_DRAIN_EMPTY:
		if (!lead_broken_off(peer))
			lead_drained(peer);
		break;
	case LEAD_BEGIN_LOOK: cache->asked.leading = LEAD_BEGIN_WAIT; break;
	case LEAD_BEGIN_WAIT: lead_begin_wait(peer); break;
	case LEAD_FENCE: lead_fenced(peer); break;
	case LEAD_DROP: lead_end(peer, 0, atomic_load(&shared->drop_count)); break;
	default: lead_end(peer, atomic_load(&shared->ask_error), 0);
	}
}

/* Killed in the middle of a drain, it goes on, whether it is asked again or not. */
static bool lead_turn(struct peer *peer)
{
	struct cache *cache = cache_of(peer);
	struct cache_shared *shared = cache_shared(peer);
	if (likely(cache->asked.leading == LEAD_NOTHING)) {
		if (unlikely(lead_fence(peer)))
			return true;
		if (likely(cache_phase_now(peer) != CACHE_DRAINING))
			return false;
		lead(peer, ASK_LOOK, LEAD_DRAIN_LOOK);
		return true;
	}
	if (atomic_load(&shared->asked_done) < peer->shards)
		return false;
	lead_next(peer);
	return cache->asked.leading != LEAD_BEGIN_WAIT;
}

static void show(struct peer *peer)
{
	struct cache_shared *shared = cache_shared(peer);
	struct cache *cache = cache_of(peer);
	uint32_t objects = xcache_object_count(cache->index);
	_Atomic uint32_t *shown = &shared->objects[peer->shard];
	if (atomic_load_explicit(shown, memory_order_relaxed) != objects)
		atomic_store_explicit(shown, objects, memory_order_relaxed);
	shown = &shared->waiting[peer->shard];
	if (atomic_load_explicit(shown, memory_order_relaxed) != cache->waiting.count)
		atomic_store_explicit(shown, cache->waiting.count, memory_order_relaxed);
}

bool cache_control_turn(struct peer *peer)
{
	show(peer);
	bool moved = shard_turn(peer);
	if (peer->shard == 0)
		moved |= lead_turn(peer);
	return moved;
}

bool cache_control_busy(const struct peer *peer)
{
	const struct cache *cache = cache_of(peer);
	return cache->asked.doing != ASK_NOTHING || !TAILQ_EMPTY(&cache->asked.fences) ||
	       cache->asked.leading != LEAD_NOTHING || cache->asked.shrinking;
}

/* --- asked: state ------------------------------------------------------------------------ */

static uint64_t volume_age(const struct peer *peer, const struct cache_volume *volume)
{
	uint64_t now = peer_now_ns(peer), age = 0;
	for (unsigned i = 0; i < peer->shards; i++) {
		uint64_t since = atomic_load(&volume->since_ns[i]);
		if (since && now > since && now - since > age)
			age = now - since;
	}
	return age;
}

static enum cache_health health(const struct peer *peer, const struct cache_state *state, int error)
{
	const struct cache_options *options = cache_options(peer);
	if (error)
		return CACHE_STORE_FAILS;
	if (state->oldest_ns > 2 * (options->age + options->epoch) && options->rate == 0)
		return CACHE_STORE_SLOW;
	return state->waiting ? CACHE_FULL : CACHE_WELL;
}

/* Of all volumes: the age of the oldest, and one of the errors there are now. */
static int survey(const struct peer *peer, uint64_t *oldest_ns)
{
	const struct cache_shared *shared = cache_shared(peer);
	int error = 0;
	*oldest_ns = 0;
	for (uint32_t i = 0; i < CACHE_VOLUME_SLOTS; i++) {
		const struct cache_volume *volume = &shared->volumes[i];
		if (!atomic_load(&volume->id))
			continue;
		uint64_t age = volume_age(peer, volume);
		if (age > *oldest_ns)
			*oldest_ns = age;
		if (!error)
			error = atomic_load(&volume->error);
	}
	return error;
}

static void control_state(struct peer *peer, struct job *job)
{
	const struct cache_shared *shared = cache_shared(peer);
	struct cache_state state = {.version = 1,
		.phase = shared->beginning ? CACHE_PASSING : cache_phase_now(peer),
		.policy = atomic_load(&shared->policy),
		.lanes = peer->shards,
		.setting = {.mode = atomic_load(&shared->mode),
			.ack = atomic_load(&shared->ack),
			.share = atomic_load(&shared->share)},
		.size = atomic_load(&shared->size),
		.used = (uint64_t)atomic_load(&shared->used) * XSEG_PAGE,
		.dirty = (uint64_t)atomic_load(&shared->dirty) * XSEG_PAGE,
		.objects_max = (uint64_t)cache_size_objects(peer) * peer->shards,
		.journal = shared->journal ? cache_journal_used(shared->journal) : 0};
	for (unsigned i = 0; i < peer->shards; i++) {
		state.objects += atomic_load(&shared->objects[i]);
		state.waiting += atomic_load(&shared->waiting[i]);
	}
	state.error = survey(peer, &state.oldest_ns);
	state.health = health(peer, &state, state.error);
	if (job->data_size < CACHE_ANSWER_AT + sizeof(state)) {
		job_fail(job, -EINVAL);
		return;
	}
	job_put_bytes(job, CACHE_ANSWER_AT, &state, sizeof(state));
	job_complete_value(job, CACHE_ANSWER_AT + sizeof(state), 0);
}

static struct cache_volume_state volume_state(
	const struct peer *peer, const struct cache_volume *volume)
{
	return (struct cache_volume_state){.volume = atomic_load(&volume->id),
		.setting = {.mode = atomic_load(&volume->mode),
			.ack = atomic_load(&volume->ack),
			.share = atomic_load(&volume->share)},
		.used = atomic_load(&volume->used) * XSEG_PAGE,
		.dirty = atomic_load(&volume->dirty) * XSEG_PAGE,
		.hits = atomic_load(&volume->hits),
		.misses = atomic_load(&volume->misses),
		.fills = atomic_load(&volume->fills),
		.bypasses = atomic_load(&volume->bypasses),
		.evictions = atomic_load(&volume->evictions),
		.written = atomic_load(&volume->written),
		.write_calls = atomic_load(&volume->write_calls),
		.epoch = atomic_load(&volume->open),
		.epoch_durable = atomic_load(&volume->durable),
		.oldest_ns = volume_age(peer, volume),
		.read_bypass = atomic_load(&volume->read_bypass),
		.write_bypass = atomic_load(&volume->write_bypass)};
}

/* The cursor is a place in the table, + 1: volumes stay where they are. */
static void control_volumes(struct peer *peer, struct job *job)
{
	const struct cache_shared *shared = cache_shared(peer);
	uint32_t at = CACHE_ANSWER_AT, size = sizeof(struct cache_volume_state);
	uint32_t room = job->length < job->data_size ? job->length : job->data_size;
	uint64_t i = job->arg1 ? job->arg1 - 1 : 0;
	if (room < at + size) {
		job_fail(job, -EINVAL);
		return;
	}
	for (; i < CACHE_VOLUME_SLOTS; i++) {
		const struct cache_volume *volume = &shared->volumes[i];
		if (!atomic_load(&volume->id))
			continue;
		if (room - at < size)
			break;
		struct cache_volume_state state = volume_state(peer, volume);
		job_put_bytes(job, at, &state, size);
		at += size;
	}
	job_complete_value(job, at, i < CACHE_VOLUME_SLOTS ? i + 1 : 0);
}

static void control_dirty(struct peer *peer, struct job *job)
{
	const struct cache_volume *volume = cache_volume_find(peer, job->key.volume);
	struct xseg_dirty dirty = {0};
	if (job->data_size < sizeof(dirty)) {
		job_fail(job, -EINVAL);
		return;
	}
	if (volume) {
		dirty.bytes = atomic_load(&volume->dirty) * XSEG_PAGE;
		dirty.written = atomic_load(&volume->written);
	}
	job_put_bytes(job, 0, &dirty, sizeof(dirty));
	job_complete(job, sizeof(dirty));
}

/* --- asked: settings --------------------------------------------------------------------- */

static void setting_store(struct cache_volume *volume, const struct cache_setting *setting)
{
	atomic_store(&volume->mode, setting->mode);
	atomic_store(&volume->ack, setting->ack);
	atomic_store(&volume->share, setting->share);
}

static void set_default(struct cache_shared *shared, const struct cache_setting *setting)
{
	must(pthread_mutex_lock(&shared->lock) == 0);
	atomic_store(&shared->mode, setting->mode);
	atomic_store(&shared->ack, setting->ack);
	atomic_store(&shared->share, setting->share);
	for (uint32_t i = 0; i < CACHE_VOLUME_SLOTS; i++)
		if (atomic_load(&shared->volumes[i].id) &&
			!atomic_load(&shared->volumes[i].own_setting))
			setting_store(&shared->volumes[i], setting);
	must(pthread_mutex_unlock(&shared->lock) == 0);
}

static int control_set(struct peer *peer, struct job *job)
{
	struct cache_shared *shared = cache_shared(peer);
	struct cache_setting setting;
	if (job->data_size < sizeof(setting))
		return -EINVAL;
	job_get_bytes(job, 0, &setting, sizeof(setting));
	if (setting.mode > CACHE_WRITEAROUND || setting.ack > CACHE_ACK_VOLATILE ||
		setting.share > 100)
		return -EINVAL;
	if (setting.ack == CACHE_ACK_JOURNAL && !shared->journal)
		return -EPERM;
	if (job->key.volume == 0) {
		set_default(shared, &setting);
	} else {
		struct cache_volume *volume = cache_volume_get(peer, job->key.volume);
		if (!volume || (!atomic_load(&volume->own_setting) && !cache_meta_room(peer)))
			return -ENOSPC;
		setting_store(volume, &setting);
		atomic_store(&volume->own_setting, true);
	}
	cache_meta_save(peer);
	/* who waits for a flush may not have to any more */
	cache_of(peer)->hurry = true;
	cache_volume_wake_others(peer);
	return 0;
}

/* --- asked: what takes a while ----------------------------------------------------------- */

static void control_drain(struct peer *peer, struct job *job)
{
	struct cache *cache = cache_of(peer);
	if (cache_phase_now(peer) == CACHE_PASSING && atomic_load(&cache_shared(peer)->used) == 0) {
		job_complete(job, 0);
		return;
	}
	cache->asked.job = job;
	set_phase(peer, CACHE_DRAINING, false);
	lead(peer, ASK_LOOK, LEAD_DRAIN_LOOK);
}

static void control_resize(struct peer *peer, struct job *job)
{
	struct cache_shared *shared = cache_shared(peer);
	uint64_t size = job->arg1 / XSEG_PAGE * XSEG_PAGE;
	if (size < cache_size_min(peer) || size > cache_size_max(peer)) {
		job_fail(job, -EINVAL);
		return;
	}
	cache_of(peer)->asked.job = job;
	atomic_store(&shared->size, size);
	cache_meta_save(peer);
	lead(peer, ASK_FIT, LEAD_FIT);
}

static void control_drop(struct peer *peer, struct job *job)
{
	struct cache_shared *shared = cache_shared(peer);
	cache_of(peer)->asked.job = job;
	atomic_store(&shared->drop_volume, job->key.volume);
	atomic_store(&shared->drop_count, 0);
	lead(peer, ASK_DROP, LEAD_DROP);
}

static void control_policy(struct peer *peer, struct job *job)
{
	struct cache_shared *shared = cache_shared(peer);
	if (job->arg1 > CACHE_CLOCK2Q) {
		job_fail(job, -EINVAL);
		return;
	}
	cache_of(peer)->asked.job = job;
	atomic_store(&shared->policy, (uint32_t)job->arg1);
	cache_meta_save(peer);
	lead(peer, ASK_POLICY, LEAD_POLICY);
}

/* --- asked: flush ------------------------------------------------------------------------ */

/* One volume, or one after the other: `next` is the place in the table. */
struct control_flush {
	struct cache_barrier barrier;
	struct job *job;
	uint32_t next;
	bool waits, ended;
	void (*go)(struct peer *peer, struct control_flush *flush);
};
fixed(sizeof(struct control_flush) <= CACHE_BARRIER_SIZE);

static struct cache_local *flush_next(struct peer *peer, struct control_flush *flush)
{
	const struct cache_shared *shared = cache_shared(peer);
	while (flush->next < CACHE_VOLUME_SLOTS) {
		uint64_t id = atomic_load(&shared->volumes[flush->next++].id);
		if (id && (flush->job->key.volume == 0 || flush->job->key.volume == id))
			return cache_volume_local_get(peer, id);
	}
	return NULL;
}

static void flush_passed(struct peer *peer, struct cache_barrier *barrier)
{
	struct control_flush *flush = barrier->context;
	flush->ended = true;
	if (flush->waits)
		flush->go(peer, flush);
}

/* Each barrier may end at once: then it is this loop that goes on, else flush_passed(). */
static void flush_go(struct peer *peer, struct control_flush *flush)
{
	struct cache_local *local;
	flush->waits = false;
	while ((local = flush_next(peer, flush))) {
		flush->ended = false;
		cache_sync_needs_flush(peer, local);
		flush->barrier = (struct cache_barrier){.done = flush_passed,
			.context = flush,
			.forwarded = atomic_load(&local->volume->forwarded)};
		cache_flush_barrier(peer, local, &flush->barrier);
		if (!flush->ended) {
			flush->waits = true;
			return;
		}
	}
	struct job *job = flush->job;
	slab_give(&cache_of(peer)->pools.barriers, flush);
	job_complete(job, 0);
}

static void control_flush(struct peer *peer, struct job *job)
{
	struct control_flush *flush = slab_take(&cache_of(peer)->pools.barriers);
	must(flush); /* there are as many as requests */
	*flush = (struct control_flush){.job = job, .go = flush_go};
	flush_go(peer, flush);
}

/* --- asked: whose a volume is ------------------------------------------------------------- */

/* What was not written back in time is another's to have written over. */
static void fence_discard(struct peer *peer, struct cache_volume *volume)
{
	uint64_t dirty = atomic_load(&volume->dirty) * XSEG_PAGE, id = atomic_load(&volume->id);
	if (dirty == 0)
		return;
	log_error("cached",
		"%s: volume %016llx was taken over by another host: %llu bytes that were not "
		"written back to the store are dropped",
		peer->name, (unsigned long long)id, (unsigned long long)dirty);
	/* it is closed before the FENCE goes on: what is written afterwards is in a later one */
	atomic_store(&volume->discard_epoch, cache_epoch_goal(cache_volume_local_get(peer, id)));
	atomic_store(&volume->discards, true);
}

static bool fence_again(struct peer *peer, void *context)
{
	struct job *job = context;
	peer->ops->on[job->op](peer, job);
	return true;
}

/*
 * The volume is ours since `term`, and nobody else had it since `line`. Was there a term between
 * that and what was heard last, another has written to it in it. So it may have been when no term
 * is known here: a cache hears of each volume before its first write (XSEG_CONTROL_REFENCE, too). A
 * term that is over is for the store to refuse.
 */
static void control_fence(struct peer *peer, struct job *job)
{
	struct cache_volume *volume = cache_volume_get(peer, job->key.volume);
	uint64_t term = job->arg1, line = job->offset ? job->offset : term;
	uint64_t seen = volume ? atomic_load(&volume->term) : 0;
	if (!volume || (job->flags & XSEG_F_READ_ONLY) || term < seen) {
		job_forward(job, CACHE_STORE);
		return;
	}
	atomic_store(&volume->next_term, term);
	if (seen != 0 && seen + 1 >= line) {
		if (fence_persist(peer, volume, term))
			peer_retry(peer, fence_again, job);
		else
			job_forward(job, CACHE_STORE);
		return;
	}
	job->offset = line;
	fence_discard(peer, volume);
	if (atomic_load(&volume->dirty) != 0)
		cache_sync_leave(peer, job);
	else
		cache_sync_fenced(peer, job);
}

/* --- the door ---------------------------------------------------------------------------- */

/* A drain that goes on from before answers whoever asks for it now; begin breaks it off. */
static bool control_joins(struct peer *peer, struct job *job)
{
	struct cache *cache = cache_of(peer);
	bool drains =
		cache->asked.leading == LEAD_DRAIN_LOOK || cache->asked.leading == LEAD_DRAIN_EMPTY;
	if (drains && job->arg0 == CACHE_BEGIN && !cache->asked.begin) {
		cache->asked.begin = job;
		atomic_store(&cache_shared(peer)->ask_error, -ECANCELED);
		cache_volume_wake_others(peer);
		return true;
	}
	if (!drains || job->arg0 != CACHE_DRAIN || cache->asked.job)
		return false;
	cache->asked.job = job;
	return true;
}

static void control_long(struct peer *peer, struct job *job)
{
	if (control_joins(peer, job))
		return;
	if (cache_of(peer)->asked.leading != LEAD_NOTHING) {
		job_fail(job, -EBUSY);
		return;
	}
	switch (job->arg0) {
	case CACHE_BEGIN: control_begin(peer, job); break;
	case CACHE_DRAIN: control_drain(peer, job); break;
	case CACHE_RESIZE: control_resize(peer, job); break;
	case CACHE_DROP: control_drop(peer, job); break;
	default: control_policy(peer, job);
	}
}

void cache_control(struct peer *peer, struct job *job)
{
	int error;
	switch (job->arg0) {
	case CACHE_STATE: control_state(peer, job); break;
	case CACHE_VOLUMES: control_volumes(peer, job); break;
	case CACHE_FLUSH: control_flush(peer, job); break;
	case XSEG_CONTROL_FENCE: control_fence(peer, job); break;
	case XSEG_CONTROL_LEAVE: cache_sync_leave(peer, job); break;
	case XSEG_CONTROL_DIRTY: control_dirty(peer, job); break;
	case CACHE_SET:
		error = control_set(peer, job);
		if (error)
			job_fail(job, error);
		else
			job_complete(job, 0);
		break;
	case CACHE_BEGIN:
	case CACHE_DRAIN:
	case CACHE_RESIZE:
	case CACHE_DROP:
	case CACHE_POLICY: control_long(peer, job); break;
	default: job_fail(job, -EINVAL);
	}
}
