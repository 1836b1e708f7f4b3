/* SPDX-License-Identifier: Apache-2.0 */
/* The cache's journal: what goes in comes out, in order, once; full and failing disks only wait. */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/wait.h>

#include "tests/unit/journal_rig.h"

#define EXPECT(replay, n, v, e, o) \
	do { \
		ck_assert_uint_eq((replay)->seen[n].volume, v); \
		ck_assert_uint_eq((replay)->seen[n].epoch, e); \
		ck_assert_uint_eq((replay)->seen[n].object, o); \
	} while (0)

UNIT(test_round_trip)
{
	const char *path = rig_path();
	const struct rig_replay *replay;
	struct cache_journal *journal = rig_open(path);
	ck_assert_uint_eq(cache_journal_used(journal), 0);
	rig_append(journal, 0, 7, 1, 3, 0xff);
	rig_append(journal, 1, 9, 4, 1, 0x81);
	rig_append(journal, 2, 7, 2, 1000, 0xff); /* several records */
	rig_append(journal, 3, 7, 3, 5000, 0x10); /* small ones */
	rig_append(journal, 3, 7, 3, 0, 0);
	uint64_t used = cache_journal_used(journal), items;
	uint8_t identity[16];
	memcpy(identity, cache_journal_identity(journal), sizeof(identity));
	bool cut;
	uint32_t newest;
	ck_assert_uint_gt(used, 1000 * 4096 + 5000 * 512);
	cache_journal_close(journal);
	journal = rig_open(path);
	ck_assert_int_eq(memcmp(identity, cache_journal_identity(journal), sizeof(identity)), 0);
	ck_assert_uint_eq(cache_journal_used(journal), used);
	ck_assert_uint_eq(cache_journal_size(journal), RIG_SIZE);
	cache_journal_found(journal, &items, &cut);
	ck_assert_uint_eq(items, 6004);
	ck_assert(!cut);
	ck_assert(cache_journal_newest(journal, 7, &newest));
	ck_assert_uint_eq(newest, 3);
	ck_assert(!cache_journal_newest(journal, 8, &newest));
	ck_assert_int_eq(rig_replay(journal, &replay), 0);
	ck_assert_uint_eq(replay->count, 6004);
	EXPECT(replay, 2, 7, 1, 2);
	EXPECT(replay, 3, 9, 4, 0);
	EXPECT(replay, 1003, 7, 2, 999);
	EXPECT(replay, 6003, 7, 3, 4999);
	/* and goes on behind it */
	rig_append(journal, 0, 9, 5, 1, 0xff);
	cache_journal_close(journal);
	journal = rig_open(path);
	ck_assert_int_eq(rig_replay(journal, &replay), 0);
	ck_assert_uint_eq(replay->count, 6005);
	EXPECT(replay, 6004, 9, 5, 0);
	cache_journal_close(journal);
}

/* What all shards hand in while the worker is away is synced once. */
UNIT(test_group)
{
	struct cache_journal *journal = rig_open(rig_path());
	struct rig_batch batches[40];
	for (unsigned i = 0; i < countof(batches); i++) {
		rig_batch(&batches[i], i % RIG_SHARDS, 1 + i % 7, i, 2, 0xff);
		cache_journal_append(journal, &batches[i].batch);
	}
	rig_syncs = 0;
	rig_work();
	ck_assert_uint_eq(rig_syncs, 1);
	for (unsigned i = 0; i < countof(batches); i++)
		ck_assert_uint_eq(batches[i].done, 0);
	/* each on its own lane */
	ck_assert(cache_journal_turn(journal, &rig_shards[2]));
	ck_assert(!cache_journal_turn(journal, &rig_shards[2]));
	for (unsigned i = 0; i < countof(batches); i++)
		ck_assert_uint_eq(batches[i].done, i % RIG_SHARDS == 2);
	rig_pump(journal);
	for (unsigned i = 0; i < countof(batches); i++) {
		ck_assert_uint_eq(batches[i].done, 1);
		rig_batch_free(&batches[i]);
	}
	cache_journal_close(journal);
}

/* Ten times around, with a volume or two that lag behind. */
UNIT(test_recycle)
{
	const char *path = rig_path();
	const struct rig_replay *replay;
	struct cache_journal *journal = rig_open(path);
	uint32_t epoch = UINT32_MAX - 100; /* over the end of the numbers */
	for (unsigned i = 0; i < 300; i++, epoch++) {
		rig_append(journal, i % RIG_SHARDS, 1, epoch, 120, 0xff);
		rig_append(journal, i % RIG_SHARDS, 2, epoch, 20, 0x0f);
		rig_stored(journal, 1, epoch - 2);
		rig_stored(journal, 2, epoch - 5);
		ck_assert(!cache_journal_error(journal));
		if (i % 50 != 49)
			continue;
		cache_journal_close(journal);
		journal = rig_open(path);
		ck_assert_int_eq(rig_replay(journal, &replay), 0);
		ck_assert_uint_eq(replay->count, 2 * 120 + 5 * 20);
		EXPECT(replay, replay->count - 1, 2, epoch, 19);
	}
	rig_stored(journal, 1, epoch - 1);
	rig_stored(journal, 2, epoch - 1);
	ck_assert_uint_eq(cache_journal_used(journal), 0);
	ck_assert(!cache_journal_hurry(journal));
	cache_journal_close(journal);
	journal = rig_open(path);
	ck_assert_int_eq(rig_replay(journal, &replay), 0);
	ck_assert_uint_eq(replay->count, 0);
	cache_journal_close(journal);
}

/* Marks: what the store has is not replayed, also when it is still in the file. */
UNIT(test_marks)
{
	const char *path = rig_path();
	const struct rig_replay *replay;
	struct cache_journal *journal = rig_open(path);
	rig_append(journal, 0, 1, 1, 4, 0xff);
	rig_append(journal, 0, 2, 1, 4, 0xff);
	rig_append(journal, 0, 1, 2, 4, 0xff);
	rig_stored(journal, 1, 1);
	rig_stored(journal, 3, 9); /* of which there is nothing */
	cache_journal_close(journal);
	journal = rig_open(path);
	uint64_t items;
	bool cut;
	cache_journal_found(journal, &items, &cut);
	ck_assert_uint_eq(items, 8);
	ck_assert_int_eq(rig_replay(journal, &replay), 0);
	ck_assert_uint_eq(replay->count, 8);
	EXPECT(replay, 0, 2, 1, 0);
	EXPECT(replay, 4, 1, 2, 0);
	/* written down already: nothing is to be synced for it */
	struct rig_batch mark;
	rig_batch(&mark, 0, 2, 1, 0, 0);
	ck_assert(!cache_journal_durable(journal, &mark.batch));
	rig_pump(journal);
	ck_assert_uint_eq(mark.done, 1);
	rig_syncs = 0;
	ck_assert(cache_journal_durable(journal, &mark.batch));
	rig_pump(journal);
	ck_assert_uint_eq(rig_syncs, 0);
	ck_assert_uint_eq(mark.done, 1);
	rig_batch_free(&mark);
	cache_journal_close(journal);
}

/* A batch whose data the store has got meanwhile has nothing to wait for. */
UNIT(test_moot)
{
	struct cache_journal *journal = rig_open(rig_path());
	struct rig_batch old, new, mark;
	rig_batch(&old, 1, 5, 1, 4, 0xff);
	rig_batch(&new, 2, 5, 2, 4, 0xff);
	rig_batch(&mark, 0, 5, 1, 0, 0);
	cache_journal_append(journal, &old.batch);
	cache_journal_append(journal, &new.batch);
	ck_assert(cache_journal_durable(journal, &mark.batch));
	ck_assert(cache_journal_turn(journal, &rig_shards[1]));
	ck_assert_uint_eq(old.done, 1);
	ck_assert_uint_eq(new.done, 0);
	ck_assert(!cache_journal_cancel(journal, &old.batch));
	ck_assert(cache_journal_cancel(journal, &new.batch));
	rig_pump(journal);
	ck_assert_uint_eq(new.done, 0);
	ck_assert_uint_eq(cache_journal_used(journal), 0);
	rig_batch_free(&old);
	rig_batch_free(&new);
	rig_batch_free(&mark);
	cache_journal_close(journal);
}

/* Full: who comes waits in order, and goes on when the store has something. */
UNIT(test_full)
{
	const char *path = rig_path();
	const struct rig_replay *replay;
	struct cache_journal *journal = rig_open(path);
	struct rig_batch batches[12];
	for (unsigned i = 0; i < countof(batches); i++) {
		rig_batch(&batches[i], i % RIG_SHARDS, 1, i + 1, 500, 0xff);
		cache_journal_append(journal, &batches[i].batch);
	}
	rig_pump(journal);
	unsigned done = 0;
	for (unsigned i = 0; i < countof(batches); i++) {
		ck_assert_uint_le(batches[i].done, done == i);
		done += batches[i].done;
	}
	ck_assert_uint_gt(done, 5);
	ck_assert_uint_lt(done, 9);
	ck_assert(cache_journal_hurry(journal));
	ck_assert_int_eq(cache_journal_error(journal), 0);
	ck_assert(cache_journal_cancel(journal, &batches[11].batch));
	rig_stored(journal, 1, done);
	for (unsigned i = 0; i < countof(batches); i++)
		ck_assert_uint_eq(batches[i].done, i < 11);
	ck_assert(!cache_journal_hurry(journal));
	cache_journal_close(journal);
	journal = rig_open(path);
	ck_assert_int_eq(rig_replay(journal, &replay), 0);
	ck_assert_uint_eq(replay->count, (11 - done) * 500);
	EXPECT(replay, 0, 1, done + 1, 0);
	cache_journal_close(journal);
	for (unsigned i = 0; i < countof(batches); i++)
		rig_batch_free(&batches[i]);
}

/* A batch larger than the whole journal ends when the store has it. */
UNIT(test_too_large)
{
	struct cache_journal *journal = rig_open(rig_path());
	struct rig_batch batch;
	rig_batch(&batch, 0, 1, 1, 6000, 0xff);
	cache_journal_append(journal, &batch.batch);
	rig_pump(journal);
	ck_assert_uint_eq(batch.done, 0);
	ck_assert(cache_journal_hurry(journal));
	rig_stored(journal, 1, 1);
	ck_assert_uint_eq(batch.done, 1);
	ck_assert_uint_eq(cache_journal_used(journal), 0);
	rig_append(journal, 0, 1, 2, 10, 0xff);
	rig_batch_free(&batch);
	cache_journal_close(journal);
}

static void wait_for_retry(struct cache_journal *journal)
{
	usleep(30000); /* longer than the first back-off, which is by the real clock */
	rig_time_ns = UINT64_MAX / 2;
	ck_assert_uint_ne(cache_journal_due_ns(journal), 0);
	rig_pump(journal);
}

/* A disk that fails: batches wait, the error is seen, no mark is waited for; then all is well. */
UNIT(test_failing)
{
	const char *path = rig_path();
	const struct rig_replay *replay;
	struct cache_journal *journal = rig_open(path);
	struct rig_batch batch, gone, mark, later;
	rig_append(journal, 0, 1, 1, 4, 0xff);
	rig_batch(&batch, 1, 1, 2, 4, 0xff);
	rig_batch(&gone, 1, 2, 2, 4, 0xff);
	rig_batch(&mark, 2, 1, 1, 0, 0);
	rig_batch(&later, 3, 2, 2, 0, 0);
	cache_journal_append(journal, &batch.batch);
	cache_journal_append(journal, &gone.batch);
	ck_assert(!cache_journal_durable(journal, &mark.batch));
	rig_sync_error = EIO;
	rig_pump(journal);
	ck_assert_int_eq(cache_journal_error(journal), -EIO);
	ck_assert(cache_journal_hurry(journal));
	ck_assert_uint_eq(mark.done, 1);
	ck_assert_int_eq(mark.error, -EIO);
	ck_assert_uint_eq(batch.done, 0);
	wait_for_retry(journal);
	ck_assert_int_eq(cache_journal_error(journal), -EIO);
	/* taken back, and to the store without the journal */
	ck_assert(cache_journal_cancel(journal, &gone.batch));
	ck_assert(cache_journal_durable(journal, &later.batch));
	rig_sync_error = 0;
	usleep(20000);
	wait_for_retry(journal);
	ck_assert_int_eq(cache_journal_error(journal), 0);
	ck_assert_uint_eq(cache_journal_due_ns(journal), 0);
	ck_assert_uint_eq(batch.done, 1);
	ck_assert_int_eq(batch.error, 0);
	cache_journal_close(journal);
	/* the mark was made good, and what was taken back is not there */
	journal = rig_open(path);
	ck_assert_int_eq(rig_replay(journal, &replay), 0);
	ck_assert_uint_eq(replay->count, 4);
	EXPECT(replay, 0, 1, 2, 0);
	cache_journal_close(journal);
	rig_batch_free(&batch);
	rig_batch_free(&gone);
	rig_batch_free(&mark);
	rig_batch_free(&later);
}

/* Nothing waits any more when the disk comes back: that is noticed too. */
UNIT(test_failing_alone)
{
	struct cache_journal *journal = rig_open(rig_path());
	struct rig_batch batch;
	rig_batch(&batch, 1, 1, 2, 4, 0xff);
	cache_journal_append(journal, &batch.batch);
	rig_sync_error = ENOSPC;
	rig_pump(journal);
	ck_assert_int_eq(cache_journal_error(journal), -ENOSPC);
	ck_assert(cache_journal_cancel(journal, &batch.batch));
	rig_sync_error = 0;
	wait_for_retry(journal);
	ck_assert_int_eq(cache_journal_error(journal), 0);
	ck_assert_uint_eq(cache_journal_due_ns(journal), 0);
	rig_batch_free(&batch);
	cache_journal_close(journal);
}

/* More volumes than are known at once: the last wait. */
UNIT(test_volumes)
{
	struct cache_journal *journal = rig_open(rig_path());
	static struct rig_batch batches[4096];
	for (unsigned round = 0; round < 3; round++) {
		for (unsigned i = 0; i < countof(batches); i++) {
			rig_batch(&batches[i], 0, 1 + round * 100000ull + i, 1, 1, 0x01);
			cache_journal_append(journal, &batches[i].batch);
		}
		rig_pump(journal);
		for (unsigned i = 0; i < countof(batches); i++) {
			uint64_t volume = batches[i].batch.volume;
			if (batches[i].done == 0)
				ck_assert(cache_journal_cancel(journal, &batches[i].batch));
			rig_batch_free(&batches[i]);
			rig_stored(journal, volume, 1);
		}
		ck_assert_uint_eq(cache_journal_used(journal), 0);
	}
	cache_journal_close(journal);
}

/* Another size is taken when nothing has to be kept, not before. */
UNIT(test_resize)
{
	const char *path = rig_path();
	char why[256];
	struct cache_journal *journal = rig_open(path);
	rig_append(journal, 0, 1, 1, 1, 0xff);
	cache_journal_close(journal);
	struct cache_journal_config config = {path, 2 * RIG_SIZE, RIG_OWNER, RIG_SHARDS};
	ck_assert_int_eq(cache_journal_open(&journal, &config, why, sizeof(why)), 0);
	ck_assert_uint_eq(cache_journal_size(journal), RIG_SIZE);
	rig_stored(journal, 1, 1);
	cache_journal_close(journal);
	for (unsigned i = 2; i > 0; i--) {
		config.size = i * RIG_SIZE;
		ck_assert_int_eq(cache_journal_open(&journal, &config, why, sizeof(why)), 0);
		ck_assert_uint_eq(cache_journal_size(journal), i * RIG_SIZE);
		rig_append(journal, 0, 1, 2, 1000, 0xff);
		rig_stored(journal, 1, 2);
		cache_journal_close(journal);
	}
}

/* --- all lanes at once ---------------------------------------------------------------------- */

#define LANE_ROUNDS 100u /* all that they write fits */

static _Atomic unsigned lanes_ended;

struct lane_run {
	struct cache_journal *journal;
	unsigned shard;
	pthread_t thread;
};

static void lane_wait(struct lane_run *lane, const struct rig_batch *batch)
{
	while (batch->done == 0)
		rig_lane_turn(lane->journal, lane->shard);
	ck_assert_int_eq(batch->error, 0);
}

/* Two volumes, one of which all lanes write to; each lane marks its own. */
static void *lane_main(void *context)
{
	struct lane_run *lane = context;
	struct rig_batch own, common, mark;
	uint64_t volume = 10 + lane->shard;
	for (uint32_t epoch = 1; epoch <= LANE_ROUNDS; epoch++) {
		rig_batch(&own, lane->shard, volume, epoch, 1 + epoch % 9, 0x03);
		rig_batch(&common, lane->shard, 1, epoch, 1, 0x01);
		rig_batch(&mark, lane->shard, volume, epoch - 1, 0, 0);
		cache_journal_append(lane->journal, &own.batch);
		cache_journal_append(lane->journal, &common.batch);
		if (epoch % 7 == 0 && cache_journal_cancel(lane->journal, &common.batch))
			common.done = 1;
		if (epoch > 1 && !cache_journal_durable(lane->journal, &mark.batch))
			lane_wait(lane, &mark);
		lane_wait(lane, &own);
		lane_wait(lane, &common);
		rig_batch_free(&own);
		rig_batch_free(&common);
		rig_batch_free(&mark);
	}
	/* what the worker brings back may be for this lane while another waits */
	atomic_fetch_add(&lanes_ended, 1);
	while (atomic_load(&lanes_ended) < RIG_SHARDS)
		rig_lane_turn(lane->journal, lane->shard);
	return NULL;
}

UNIT(test_lanes)
{
	const char *path = rig_path();
	const struct rig_replay *replay;
	struct lane_run lanes[RIG_SHARDS];
	struct cache_journal *journal = rig_open(path);
	rig_threads_begin();
	for (unsigned i = 0; i < RIG_SHARDS; i++) {
		lanes[i] = (struct lane_run){.journal = journal, .shard = i};
		ck_assert_int_eq(pthread_create(&lanes[i].thread, NULL, lane_main, &lanes[i]), 0);
	}
	for (unsigned i = 0; i < RIG_SHARDS; i++)
		pthread_join(lanes[i].thread, NULL);
	rig_threads_end();
	for (unsigned i = 0; i < RIG_SHARDS; i++)
		rig_lane_turn(journal, i);
	cache_journal_close(journal);
	journal = rig_open(path);
	ck_assert_int_eq(rig_replay(journal, &replay), 0);
	uint32_t own = 0, common = 0;
	for (uint32_t i = 0; i < replay->count; i++) {
		own += replay->seen[i].volume >= 10;
		common += replay->seen[i].volume == 1;
		if (replay->seen[i].volume >= 10)
			ck_assert_uint_eq(replay->seen[i].epoch, LANE_ROUNDS);
	}
	ck_assert_uint_eq(own, RIG_SHARDS * (1 + LANE_ROUNDS % 9));
	ck_assert_uint_ge(common, RIG_SHARDS * (LANE_ROUNDS - LANE_ROUNDS / 7));
	cache_journal_close(journal);
}

/* --- killed between writes ----------------------------------------------------------------- */

struct writer {
	const char *path;
	int told; /* a pipe: the epochs that are in the journal */
};

static int write_on(void *argument)
{
	const struct writer *writer = argument;
	struct cache_journal *journal = rig_open(writer->path);
	for (uint32_t epoch = 1;; epoch++) {
		rig_append(journal, epoch % RIG_SHARDS, 1, epoch, 1 + epoch % 40, 0xff);
		if (write(writer->told, &epoch, sizeof(epoch)) != sizeof(epoch))
			return 1;
		if (epoch % 8 == 0)
			rig_stored(journal, 1, epoch - 8);
	}
}

/* What was said to be in the journal is, from some stored epoch on, without a gap. */
UNIT_LOOP(test_killed, 4)
{
	const char *path = rig_path();
	const struct rig_replay *replay;
	uint32_t told = 0, epoch;
	int ends[2];
	ck_assert_int_eq(pipe(ends), 0);
	struct writer writer = {path, ends[1]};
	pid_t pid = child_start(write_on, &writer);
	close(ends[1]);
	while (told < 20 + 150 * (uint32_t)_i && read(ends[0], &epoch, sizeof(epoch)) > 0)
		told = epoch;
	usleep(100u * (unsigned)_i);
	child_kill(pid);
	while (read(ends[0], &epoch, sizeof(epoch)) == sizeof(epoch))
		told = epoch;
	close(ends[0]);
	struct cache_journal *journal = rig_open(path);
	ck_assert_int_eq(rig_replay(journal, &replay), 0);
	ck_assert_uint_gt(replay->count, 0);
	ck_assert_uint_le(replay->seen[0].epoch, told);
	epoch = replay->seen[0].epoch;
	for (uint32_t i = 0; i < replay->count; i++) {
		ck_assert_uint_eq(replay->seen[i].object,
			i && replay->seen[i - 1].epoch == epoch && replay->seen[i].epoch == epoch
				? replay->seen[i - 1].object + 1
				: 0);
		if (i + 1 < replay->count && replay->seen[i + 1].epoch != epoch)
			ck_assert_uint_eq(replay->seen[i + 1].epoch, ++epoch);
	}
	ck_assert_uint_ge(epoch, told);
	rig_append(journal, 0, 1, epoch + 1, 1, 0xff);
	cache_journal_close(journal);
}
