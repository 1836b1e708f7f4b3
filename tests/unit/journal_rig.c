/* SPDX-License-Identifier: Apache-2.0 */
/* The worker, the lanes and the clock of a journal under test. */
#include "tests/unit/journal_rig.h"

#include <errno.h>
#include <peer/keep.h>
#include <peer/worker.h>
#include <pthread.h>
#include <string.h>
#include <sys/syscall.h>
#include <xseg/layout.h>

#include "peers/cache/cache_journal_log.h"

struct peer rig_shards[RIG_SHARDS] = {{.shard = 0, .shards = RIG_SHARDS},
	{.shard = 1, .shards = RIG_SHARDS}, {.shard = 2, .shards = RIG_SHARDS},
	{.shard = 3, .shards = RIG_SHARDS}};
unsigned rig_syncs;
int rig_sync_error;
uint64_t rig_time_ns;

static struct worker_item *rig_item;

/* With threads: one worker, and for each lane what it has done. */
static struct {
	bool on, ending;
	pthread_mutex_t mutex;
	pthread_cond_t work;
	pthread_t thread;
	struct worker_item *todo, *done[RIG_SHARDS];
} rig_threads = {.mutex = PTHREAD_MUTEX_INITIALIZER, .work = PTHREAD_COND_INITIALIZER};
static struct rig_replay rig_result;

/* --- what the journal calls ----------------------------------------------------------------- */

void worker_run(struct peer *peer, struct worker_item *item, void (*run)(struct worker_item *item),
	void (*done)(struct worker_item *item))
{
	item->post.peer = peer;
	item->run = run;
	item->done = done;
	pthread_mutex_lock(&rig_threads.mutex);
	struct worker_item **place = rig_threads.on ? &rig_threads.todo : &rig_item;
	ck_assert_ptr_null(*place);
	*place = item;
	pthread_cond_signal(&rig_threads.work);
	pthread_mutex_unlock(&rig_threads.mutex);
}

void peer_wake(struct peer *peer, unsigned shard) { ck_assert_uint_lt(shard, peer->shards); }

uint64_t peer_now_ns(const struct peer *peer)
{
	ck_assert_ptr_nonnull(peer);
	return rig_time_ns;
}

/* Instead of the C library's. */
int fdatasync(int fd)
{
	rig_syncs++;
	if (rig_sync_error) {
		errno = rig_sync_error;
		return -1;
	}
	return (int)syscall(SYS_fdatasync, fd);
}

static void *rig_worker(void *unused)
{
	pthread_mutex_lock(&rig_threads.mutex);
	while (!rig_threads.ending || rig_threads.todo) {
		struct worker_item *item = rig_threads.todo;
		if (!item) {
			pthread_cond_wait(&rig_threads.work, &rig_threads.mutex);
			continue;
		}
		rig_threads.todo = NULL;
		pthread_mutex_unlock(&rig_threads.mutex);
		item->run(item);
		pthread_mutex_lock(&rig_threads.mutex);
		rig_threads.done[item->post.peer->shard] = item;
	}
	pthread_mutex_unlock(&rig_threads.mutex);
	return unused;
}

void rig_threads_begin(void)
{
	rig_threads.on = true;
	rig_threads.ending = false;
	ck_assert_int_eq(pthread_create(&rig_threads.thread, NULL, rig_worker, NULL), 0);
}

void rig_threads_end(void)
{
	pthread_mutex_lock(&rig_threads.mutex);
	rig_threads.ending = true;
	pthread_cond_signal(&rig_threads.work);
	pthread_mutex_unlock(&rig_threads.mutex);
	pthread_join(rig_threads.thread, NULL);
	rig_threads.on = false;
}

void rig_lane_turn(struct cache_journal *journal, unsigned shard)
{
	pthread_mutex_lock(&rig_threads.mutex);
	struct worker_item *item = rig_threads.done[shard];
	rig_threads.done[shard] = NULL;
	pthread_mutex_unlock(&rig_threads.mutex);
	if (item)
		item->done(item);
	cache_journal_turn(journal, &rig_shards[shard]);
}

/* --- the rig ------------------------------------------------------------------------------- */

const char *rig_path(void)
{
	static char path[256];
	static unsigned number;
	snprintf(path, sizeof(path), "%s/journal.%d.%u", scratch_dir(), getpid(), number++);
	return path;
}

struct cache_journal *rig_open(const char *path)
{
	char why[256] = "";
	struct cache_journal *journal = NULL;
	struct cache_journal_config config = {path, RIG_SIZE, RIG_OWNER, RIG_SHARDS};
	int error = cache_journal_open(&journal, &config, why, sizeof(why));
	ck_assert_msg(error == 0, "%s", why);
	return journal;
}

int rig_refused(const char *path, const char *owner, uint64_t size, char why[256])
{
	struct cache_journal *journal = NULL;
	struct cache_journal_config config = {path, size, owner, RIG_SHARDS};
	why[0] = 0;
	int error = cache_journal_open(&journal, &config, why, 256);
	if (error == 0)
		cache_journal_close(journal);
	return error;
}

void rig_work(void)
{
	struct worker_item *item = rig_item;
	rig_item = NULL;
	if (item) {
		item->run(item);
		item->done(item);
	}
}

void rig_pump(struct cache_journal *journal)
{
	bool moved = true;
	while (moved) {
		moved = false;
		rig_work();
		for (unsigned i = 0; i < RIG_SHARDS; i++)
			moved |= cache_journal_turn(journal, &rig_shards[i]);
		moved |= rig_item != NULL;
	}
}

static void rig_done(struct cache_journal_batch *batch, int error)
{
	struct rig_batch *at = batch->context;
	at->done++;
	at->error = error;
}

/* Byte i of sector s of an item. */
static uint8_t rig_byte(uint64_t volume, uint32_t epoch, uint32_t object, unsigned i)
{
	return (uint8_t)(volume * 131 + epoch * 31 + object * 7 + i * (i >> 8 | 1));
}

/* Of some volumes it is not known. */
static uint64_t rig_term(uint64_t volume, uint32_t epoch)
{
	return volume % 3 == 0 ? 0 : volume << 40 | epoch;
}

void rig_batch(struct rig_batch *out, unsigned shard, uint64_t volume, uint32_t epoch,
	uint32_t count, uint8_t sectors)
{
	memset(out, 0, sizeof(*out));
	out->items = calloc(count ? count : 1, sizeof(*out->items));
	out->pages = malloc((size_t)(count ? count : 1) * XSEG_PAGE);
	ck_assert(out->items && out->pages);
	for (uint32_t i = 0; i < count; i++) {
		uint8_t *page = out->pages + (size_t)i * XSEG_PAGE;
		for (unsigned n = 0; n < XSEG_PAGE; n++)
			page[n] = rig_byte(volume, epoch, i, n);
		out->items[i] = (struct cache_journal_item){.object = i,
			.key_epoch = 3,
			.bucket = (uint16_t)(i % 1024),
			.sectors = sectors,
			.data = page};
	}
	out->batch = (struct cache_journal_batch){.peer = &rig_shards[shard],
		.volume = volume,
		.term = rig_term(volume, epoch),
		.epoch = epoch,
		.count = count,
		.items = out->items,
		.done = rig_done,
		.context = out};
}

void rig_batch_free(struct rig_batch *batch)
{
	free(batch->items);
	free(batch->pages);
}

void rig_append(struct cache_journal *journal, unsigned shard, uint64_t volume, uint32_t epoch,
	uint32_t count, uint8_t sectors)
{
	struct rig_batch batch;
	rig_batch(&batch, shard, volume, epoch, count, sectors);
	cache_journal_append(journal, &batch.batch);
	rig_pump(journal);
	ck_assert_uint_eq(batch.done, 1);
	ck_assert_int_eq(batch.error, 0);
	rig_batch_free(&batch);
}

void rig_stored(struct cache_journal *journal, uint64_t volume, uint32_t epoch)
{
	struct rig_batch mark;
	rig_batch(&mark, 0, volume, epoch, 0, 0);
	if (!cache_journal_durable(journal, &mark.batch)) {
		rig_pump(journal);
		ck_assert_uint_eq(mark.done, 1);
		ck_assert_int_eq(mark.error, 0);
	}
	rig_batch_free(&mark);
}

static int rig_take(
	void *context, const struct cache_journal_from *from, const struct cache_journal_item *item)
{
	struct rig_replay *replay = context;
	uint64_t volume = from->volume;
	uint32_t epoch = from->epoch;
	const uint8_t *page = item->data;
	ck_assert_uint_lt(replay->count, countof(replay->seen));
	ck_assert_uint_eq(item->key_epoch, 3);
	ck_assert_uint_eq(item->bucket, item->object % 1024);
	for (unsigned n = 0; n < XSEG_PAGE; n++) {
		bool there = item->sectors >> n / XSEG_SECTOR & 1;
		uint8_t expect = there ? rig_byte(volume, epoch, item->object, n) : 0;
		if (page[n] != expect)
			ck_abort_msg("volume %llu epoch %u item %u byte %u",
				(unsigned long long)volume, epoch, item->object, n);
	}
	ck_assert_uint_eq(from->term, rig_term(volume, epoch));
	replay->seen[replay->count++] = (struct rig_seen){volume, epoch, item->object};
	return 0;
}

int rig_replay(struct cache_journal *journal, const struct rig_replay **replay)
{
	rig_result.count = 0;
	*replay = &rig_result;
	return cache_journal_replay(journal, rig_take, &rig_result);
}

int rig_look(const char *path, const struct rig_replay **replay)
{
	char text[256] = "";
	struct journal_why why = {text, sizeof(text), path};
	struct cache_journal_config config = {path, RIG_SIZE, RIG_OWNER, RIG_SHARDS};
	struct journal_log log = {.fd = -1, .path = strdup(path)};
	struct journal_volumes volumes = {.touched = 0};
	ck_assert_int_eq(journal_volume_open(&volumes), 0);
	rig_result.count = 0;
	*replay = &rig_result;
	int error = journal_file_open(&log, &config, &why);
	error = error ? error : journal_scan(&log, &volumes, &why);
	error = error ? error : journal_scan_replay(&log, &volumes, rig_take, &rig_result);
	journal_file_close(&log);
	free(volumes.items);
	free(log.path);
	return error;
}
