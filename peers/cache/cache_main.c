/* SPDX-License-Identifier: Apache-2.0 */
/* The cache as a peer: its options, what a shard consists of, how it begins, turns and ends. */
#include <base/crash.h>
#include <base/log.h>
#include <errno.h>
#include <sys/mman.h>
#include <xseg/segment.h>

#include "peers/cache/cache.h"
#include "peers/cache/cache_flush.h"
#include "peers/cache/cache_work.h"

#define MAIN_WAIT_NS 200000u /* while somebody waits: pages come from other processes, too */

/* as xcache_policies[] has them */
static const char *const main_policies[] = {"lru", "s3fifo", "clock2q", NULL};
fixed(CACHE_LRU == 0 && CACHE_S3FIFO == 1 && CACHE_CLOCK2Q == 2);
static const char *const main_modes[] = {"writethrough", "writeback", "writearound", NULL};
static const char *const main_acks[] = {"blocker", "journal", "volatile", NULL};
static const char *const main_begins[] = {"caching", "passing", NULL};
static const char *const main_edges[] = {"store", NULL};

static const struct peer_option main_options[] = {
	OPTION_SIZE(struct cache_options, size, "size",
		.help = "what it may take of the page pool; 0: half of it"),
	OPTION_COUNT(struct cache_options, objects, "objects", .unit = "objects",
		.help = "most objects with something cached; 0: a 16th of the buckets"),
	OPTION_CHOICE(struct cache_options, policy, "policy", .choices = main_policies,
		.initial = "clock2q", .help = "who goes when room is needed"),
	OPTION_CHOICE(struct cache_options, mode, "mode", .choices = main_modes,
		.initial = "writeback",
		.help = "what a write does, for volumes that have no mode of their own"),
	OPTION_CHOICE(struct cache_options, ack, "ack", .choices = main_acks, .initial = "blocker",
		.help = "where the data of an answered flush is; volatile: nowhere safe"),
	OPTION_CHOICE(struct cache_options, begin, "begin", .choices = main_begins,
		.initial = "caching",
		.help = "passing: cache nothing until told to, for plugging in"),
	OPTION_TEXT(struct cache_options, journal, "journal",
		.help = "file of the local journal, for ack=journal"),
	OPTION_SIZE(struct cache_options, journal_size, "journal-size",
		.min = CACHE_JOURNAL_SIZE_MIN, .initial = "1G", .unit = "bytes",
		.help = "size of the journal, when it is made"),
	OPTION_COUNT(struct cache_options, dirty_soft, "dirty-soft", .min = 1, .max = 100,
		.initial = "40", .unit = "percent",
		.help = "write-back begins at once when that much of the size is dirty"),
	OPTION_COUNT(struct cache_options, dirty_hard, "dirty-hard", .min = 1, .max = 100,
		.initial = "70", .unit = "percent",
		.help = "writes wait when that much of the size is dirty"),
	OPTION_TIME(struct cache_options, age, "age", .initial = "5s",
		.help = "dirty buckets are written back after that"),
	OPTION_TIME(struct cache_options, epoch, "epoch", .min = 1000000, .initial = "1s",
		.help = "what is written within that reaches the store in any order"),
	OPTION_SIZE(struct cache_options, rate, "rate", .unit = "bytes a second",
		.help = "limit of write-back that nobody waits for, each lane; 0: none"),
	OPTION_SIZE(struct cache_options, read_ahead, "read-ahead", .max = XSEG_OBJECT_MAX,
		.initial = "512K", .unit = "bytes",
		.help = "most that is read ahead for a sequential reader; 0: nothing"),
	OPTION_SIZE(struct cache_options, bypass, "bypass", .initial = "4M", .unit = "bytes",
		.help = "sequential reads beyond that are not cached; 0: all are"),
	OPTION_COUNT(struct cache_options, share, "share", .max = 100, .unit = "percent",
		.help = "most that one volume may take of the cache; 0: no limit"),
	OPTION_COUNT(struct cache_options, pins, "pins", .initial = "4096", .unit = "pages",
		.help = "most pages that one client reads in place; beyond that it gets copies"),
	OPTION_BOOL(struct cache_options, strict, "strict", .initial = "yes",
		.help = "no: epochs may overlap at the store, which then is no prefix"),
	OPTION_END,
};

static const struct xseg_counter main_counters[] = {
	[CACHE_HITS] = {"hits", "", "buckets that were read and there"},
	[CACHE_MISSES] = {"misses", "", "buckets that were read and not there"},
	[CACHE_FILLS] = {"fills", "", "buckets read from the store"},
	[CACHE_FILL_BYTES] = {"fill_bytes", "B", "bytes read from the store"},
	[CACHE_AHEAD] = {"ahead", "", "buckets read ahead"},
	[CACHE_BYPASSES] = {"bypasses", "", "buckets read or written past the cache"},
	[CACHE_DONATED] = {"donated", "", "buckets written without a copy"},
	[CACHE_COPIED] = {"copied", "", "whole buckets written with a copy"},
	[CACHE_PARTIAL] = {"partial", "", "buckets written in part"},
	[CACHE_EVICTED] = {"evicted", "", "buckets that went to make room"},
	[CACHE_PINNED] = {"pinned", "now", "pages out with readers now"},
	[CACHE_WRITTEN_BYTES] = {"written_bytes", "B", "bytes written back"},
	[CACHE_WRITE_CALLS] = {"write_calls", "", "requests that wrote back"},
	[CACHE_EPOCHS] = {"epochs", "", "flush epochs closed"},
	[CACHE_RETRIES] = {"retried", "", "write-backs that failed and are tried again"},
	[CACHE_WAITS] = {"waits", "", "requests that had to wait for room"},
	[CACHE_WAITING] = {"waiting", "now", "requests that wait for room now"},
	[CACHE_DIRTY] = {"dirty", "now", "bytes that the store lacks now"},
	[CACHE_USED] = {"used", "now", "bytes cached now"},
	[CACHE_SIZE] = {"size", "now", "bytes that may be cached"},
	[CACHE_ADOPTED] = {"adopted", "", "buckets taken over from a predecessor"},
	[CACHE_COUNTERS] = {.name = NULL},
};

/* --- once in a process ------------------------------------------------------------------- */

static int main_check(struct peer *first, char *why, size_t why_size)
{
	const struct cache_options *options = cache_options(first);
	uint64_t size = options->size, least = cache_size_min(first), most = cache_size_max(first);
	if (options->dirty_soft > options->dirty_hard) {
		snprintf(why, why_size,
			"dirty-soft is %llu percent and dirty-hard %llu: it cannot be less",
			(unsigned long long)options->dirty_soft,
			(unsigned long long)options->dirty_hard);
		return -EINVAL;
	}
	if (options->ack == CACHE_ACK_JOURNAL && !options->journal) {
		snprintf(why, why_size, "ack=journal needs a journal; name its file: journal=FILE");
		return -EINVAL;
	}
	if ((size && size < least) || size > most || (!size && most / 3 * 2 < least)) {
		snprintf(why, why_size,
			"size is %llu bytes; between %llu (256 buckets for each lane) and three "
			"quarters of the segment's pages (%llu) will do",
			(unsigned long long)(size ? size : most / 3 * 2), (unsigned long long)least,
			(unsigned long long)most);
		return -EINVAL;
	}
	return 0;
}

static int main_open_journal(struct peer *first, char *why, size_t why_size)
{
	const struct cache_options *options = cache_options(first);
	char owner[CACHE_JOURNAL_OWNER_MAX];
	if (!options->journal)
		return 0;
	snprintf(owner, sizeof(owner), "%s/%s", peer_segment(first)->name, first->name);
	struct cache_journal_config config = {.path = options->journal,
		.size = options->journal_size,
		.owner = owner,
		.shards = first->shards};
	return cache_journal_open(&cache_shared(first)->journal, &config, why, why_size);
}

static void main_close(struct peer *first)
{
	struct cache_shared *shared = cache_shared(first);
	if (shared->journal)
		cache_journal_close(shared->journal);
	shared->journal = NULL;
	cache_meta_close(first);
	cache_volume_close(first);
}

/* What it has was to be written over what the segment has: too late, that is newer. */
static int main_check_journal(struct peer *first, char *why, size_t why_size)
{
	struct cache_shared *shared = cache_shared(first);
	uint64_t items = 0;
	bool cut;
	if (!shared->journal || shared->kept_pages == 0 || shared->journal_known)
		return 0;
	cache_journal_found(shared->journal, &items, &cut);
	if (items == 0)
		return 0;
	snprintf(why, why_size,
		"journal '%s' has %llu buckets that are not at the store, but segment '%s' has "
		"been in use without it since: take another file, or start with a new segment",
		cache_options(first)->journal, (unsigned long long)items,
		peer_segment(first)->name);
	return -EEXIST;
}

static int main_open(struct peer *first, char *why, size_t why_size)
{
	int error = main_check(first, why, why_size);
	if (!error)
		error = cache_volume_open(first);
	if (!error)
		error = main_open_journal(first, why, why_size);
	if (!error)
		error = cache_meta_open(first, why, why_size);
	if (error) {
		main_close(first);
		return error;
	}
	cache_size_fit(first);
	error = main_check_journal(first, why, why_size);
	/* should there be no page for it now, it is written with the next change */
	if (!error && cache_meta_write(first) && cache_shared(first)->replaying) {
		snprintf(why, why_size, "the segment has no free page; make it larger");
		error = -ENOSPC;
	}
	if (error)
		main_close(first);
	return error;
}

/* --- a shard ----------------------------------------------------------------------------- */

#define LINE_UP(size) (((size) + 63) / 64 * 64) /* items on lines of their own */

static int main_pools(struct peer *peer, uint32_t entries, uint32_t objects)
{
	struct cache_pools *pools = &cache_of(peer)->pools;
	uint32_t requests = peer_segment(peer)->request_count + 64;
	uint32_t batches = cache_shared(peer)->journal ? CACHE_BATCHES : 0;
	uint32_t runs = cache_of(peer)->writeback.runs_max = call_far_most(peer_segment(peer));
	const struct {
		struct slab *slab;
		size_t size;
		uint32_t count;
	} all[] = {
		{&pools->objects, sizeof(struct cache_object), objects + CACHE_OBJECTS_BYPASSING},
		{&pools->locals, sizeof(struct cache_local), CACHE_VOLUMES_MAX},
		{&pools->epochs, sizeof(struct cache_epoch), 2 * CACHE_VOLUMES_MAX + entries},
		{&pools->works, sizeof(struct cache_work), requests},
		{&pools->barriers, CACHE_BARRIER_SIZE, requests},
		{&pools->runs, sizeof(struct cache_run), runs},
		{&pools->batches, sizeof(struct cache_batch), batches},
	};
	int error = 0;
	for (unsigned i = 0; i < countof(all) && !error; i++)
		if (all[i].count)
			error = slab_init(all[i].slab, LINE_UP(all[i].size), all[i].count);
	return error;
}

static int main_index(struct peer *peer)
{
	struct cache *cache = cache_of(peer);
	uint64_t most = cache_size_max(peer) / XSEG_PAGE;
	/* those of one shard may be more than its part, after a start with more lanes */
	uint64_t part = 2 * most / peer->shards;
	uint32_t entries = (uint32_t)(part < most ? part : most);
	uint32_t objects = cache_size_objects_of(peer, most);
	struct xcache_config config = {.objects_max = objects + CACHE_OBJECTS_BYPASSING,
		.entries_max = entries,
		.policy = xcache_policies[atomic_load(&cache_shared(peer)->policy)],
		.hooks = &cache_hooks,
		.owner = peer};
	int error = main_pools(peer, entries, objects);
	if (!error)
		error = xcache_open(&cache->index, &config);
	if (!error) /* the others are for writes that go past: nothing is taken over into them */
		xcache_limit(cache->index, objects, entries);
	return error;
}

/* Each shard was taken to have some of the oldest: which it does not have is known now. */
static void main_finalize(struct peer *peer)
{
	const struct cache_shared *shared = cache_shared(peer);
	for (uint32_t i = 0; i < CACHE_VOLUME_SLOTS; i++) {
		struct cache_volume *volume = &shared->volumes[i];
		uint64_t id = atomic_load(&volume->id);
		struct cache_local *local = id ? cache_volume_local_find(peer, id) : NULL;
		if (local)
			cache_epoch_enqueue(peer, local);
		else if (id)
			atomic_store(&volume->low[peer->shard], CACHE_NO_EPOCH);
	}
	cache_volume_wake_others(peer);
}

static void main_release(struct peer *peer)
{
	struct cache *cache = cache_of(peer);
	cache_pin_close(peer);
	cache_bypass_close(peer);
	if (cache->index)
		xcache_close(cache->index);
	cache->index = NULL;
	slab_fini(&cache->pools.objects);
	slab_fini(&cache->pools.locals);
	slab_fini(&cache->pools.epochs);
	slab_fini(&cache->pools.works);
	slab_fini(&cache->pools.barriers);
	slab_fini(&cache->pools.runs);
	slab_fini(&cache->pools.batches);
}

/* The last shard notes that it is done: what is there from now on is newer than the journal. */
static int main_replay(struct peer *peer, char *why, size_t why_size)
{
	struct cache_shared *shared = cache_shared(peer);
	cache_of(peer)->adopted = true;
	int error = cache_replay(peer, why, why_size);
	if (error || atomic_fetch_add(&shared->started, 1) + 1 < peer->shards || !shared->replaying)
		return error;
	crash_point("cache.replay.done");
	shared->replaying = false;
	error = cache_term_persist_all(peer);
	if (!error)
		error = cache_meta_write(peer);
	if (error)
		snprintf(why, why_size, "the segment has no free page; make it larger");
	return error;
}

static int main_start(struct peer *peer, char *why, size_t why_size)
{
	struct cache *cache = cache_of(peer);
	struct cache_shared *shared = cache_shared(peer);
	cache->peer = peer;
	cache->record_free = shared->record_free[peer->shard];
	TAILQ_INIT(&cache->waiting.jobs);
	TAILQ_INIT(&cache->asked.fences);
	TAILQ_INIT(&cache->writeback.locals);
	LIST_INIT(&cache->tallied);
	LIST_INIT(&cache->unpublished);
	for (unsigned i = 0; i < CACHE_LOCAL_CHAINS; i++)
		LIST_INIT(&cache->locals[i]);
	int error = main_index(peer);
	if (!error)
		error = cache_pin_open(peer);
	if (!error)
		error = cache_bypass_open(peer);
	if (error)
		snprintf(why, why_size, "no memory for the index of the cache");
	if (!error)
		error = cache_adopt(peer, why, why_size);
	if (!error)
		error = main_replay(peer, why, why_size);
	if (error) {
		main_release(peer);
		return error;
	}
	if (cache_phase_now(peer) != CACHE_PASSING)
		cache_bypass_adopt(peer);
	cache_meta_sweep(peer);
	cache_size_apply(peer);
	main_finalize(peer);
	cache_volume_publish(peer);
	return 0;
}

/* What is dirty stays kept: the successor finds it. */
static void main_say_rest(const struct peer *peer)
{
	const struct cache *cache = cache_of(peer);
	if (cache->writeback.dirty)
		log_warning("cached",
			"%s: %llu bytes were not written back; they stay in the segment for the "
			"next start",
			peer->name, (unsigned long long)cache->writeback.dirty * XSEG_PAGE);
}

static void main_finish(struct peer *peer)
{
	struct cache_shared *shared = cache_shared(peer);
	main_say_rest(peer);
	cache_volume_publish(peer);
	if (atomic_fetch_add(&shared->finished, 1) + 1 == peer->shards &&
		atomic_load(&shared->used) == 0) {
		cache_meta_drop_records(peer);
		cache_term_drop(peer);
	}
	main_release(peer);
}

static void main_stop(struct peer *peer)
{
	struct cache *cache = cache_of(peer);
	struct cache_local *local;
	cache->stopping = cache->hurry = true;
	if (cache->writeback.dirty)
		log_info("cached", "%s: %llu bytes are still to be written back", peer->name,
			(unsigned long long)cache->writeback.dirty * XSEG_PAGE);
	for (unsigned i = 0; i < CACHE_LOCAL_CHAINS; i++)
		LIST_FOREACH (local, &cache->locals[i], chain) {
			cache_sync_needs_flush(peer, local);
			cache_epoch_enqueue(peer, local);
		}
}

static bool main_idle(struct peer *peer)
{
	return cache_flush_idle(peer) && cache_of(peer)->waiting.count == 0;
}

static bool main_turn(struct peer *peer)
{
	struct cache_shared *shared = cache_shared(peer);
	bool moved = cache_control_turn(peer);
	moved |= cache_flush_turn(peer);
	moved |= cache_wait_turn(peer);
	if (shared->journal)
		moved |= cache_journal_turn(shared->journal, peer);
	cache_io_turn(peer);
	return moved;
}

static bool main_sleep(struct peer *peer)
{
	const struct cache_shared *shared = cache_shared(peer);
	uint64_t now = peer_now_ns(peer), due = cache_flush_due_ns(peer);
	uint64_t again = now + MAIN_WAIT_NS;
	if (cache_of(peer)->waiting.count && (due == 0 || again < due))
		due = again;
	uint64_t pool = cache_io_due_ns(peer);
	if (pool && (due == 0 || pool < due))
		due = pool;
	if (cache_control_busy(peer) && (due == 0 || again < due))
		due = again;
	uint64_t retry = shared->journal ? cache_journal_due_ns(shared->journal) : 0;
	if (retry && (due == 0 || retry < due))
		due = retry;
	peer_wake_at(peer, due);
	return due == 0 || due > now;
}

static void main_dump_local(const struct peer *peer, const struct cache_local *local, FILE *out)
{
	const struct cache_volume *volume = local->volume;
	const struct cache_epoch *epoch;
	const struct job *job;
	unsigned syncs = 0;
	TAILQ_FOREACH (job, &local->syncs, link)
		syncs++;
	fprintf(out,
		"    volume %llx: %u used, %u dirty here; epoch %u open, %u stored, %u wanted, low "
		"%u/%u, flushing %u, %u wait, error %d\n",
		(unsigned long long)atomic_load(&volume->id), local->used, local->dirty,
		atomic_load(&volume->open), atomic_load(&volume->durable),
		atomic_load(&volume->wanted), atomic_load(&volume->low[peer->shard]),
		atomic_load(&volume->written_low[peer->shard]), atomic_load(&volume->flushing),
		syncs, atomic_load(&volume->error));
	TAILQ_FOREACH (epoch, &local->epochs, link)
		fprintf(out, "      epoch %u: %u waiting, %u writing, %u written%s%s\n",
			epoch->number, epoch->dirty.count, epoch->writing, epoch->written.count,
			epoch->journaling ? ", journaling" : "",
			epoch->journaled ? ", journaled" : "");
}

static void main_dump(struct peer *peer, FILE *out)
{
	const struct cache *cache = cache_of(peer);
	const struct cache_local *local;
	fprintf(out,
		"    phase %u, %u entries, %u objects, %u dirty, %u writing in %u runs, %u wait\n",
		cache_phase_now(peer), xcache_count(cache->index),
		xcache_object_count(cache->index), cache->writeback.dirty, cache->writeback.writing,
		cache->writeback.runs_out, cache->waiting.count);
	for (unsigned i = 0; i < CACHE_LOCAL_CHAINS; i++)
		LIST_FOREACH (local, &cache->locals[i], chain)
			main_dump_local(peer, local, out);
}

/* Records and what the store does by itself. */
static void main_pass(struct peer *peer, struct job *job)
{
	(void)peer;
	job_forward(job, CACHE_STORE);
}

static const struct peer_ops main_ops = {
	.name = "cached",
	.summary = "a write-back cache of objects, in pages of the segment",
	.description =
		"Sits between a composer and a blocker. What it keeps lies in the segment and "
		"outlives its process: killed and started again, it goes on with all that it had, "
		"written or not. The store is always at the end of a flush epoch, never in the "
		"middle of one.\n",
	.options = main_options,
	.options_size = sizeof(struct cache_options),
	.state_size = sizeof(struct cache),
	.shared_size = sizeof(struct cache_shared),
	.edges = main_edges,
	.serves = "store",
	.counters = main_counters,
	.open = main_open,
	.close = main_close,
	.start = main_start,
	.finish = main_finish,
	.stop = main_stop,
	.idle = main_idle,
	.poll = main_turn,
	.expect = cache_io_expect,
	.sleep = main_sleep,
	.dump = main_dump,
	.on = {[XSEG_OP_READ] = cache_io_read,
		[XSEG_OP_WRITE] = cache_io_write,
		[XSEG_OP_ZERO] = cache_io_zero,
		[XSEG_OP_DISCARD] = cache_barrier_discard,
		[XSEG_OP_FLUSH] = cache_sync_flush,
		[XSEG_OP_PREFETCH] = cache_io_prefetch,
		[XSEG_OP_STATUS] = cache_barrier_status,
		[XSEG_OP_COPY] = cache_barrier_copy,
		[XSEG_OP_DELETE] = cache_barrier_delete,
		[XSEG_OP_CAS] = main_pass,
		[XSEG_OP_INFO] = cache_barrier_info,
		[XSEG_OP_LIST] = cache_barrier_list,
		[XSEG_OP_CONTROL] = cache_control},
};
PEER_MODULE(main_ops);
