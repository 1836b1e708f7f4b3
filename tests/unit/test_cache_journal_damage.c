/* SPDX-License-Identifier: Apache-2.0 */
/* Journals that were cut off, damaged, or are not ours: what comes back, or what is said. */
#include <base/crc32c.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "peers/cache/cache_journal_log.h"
#include "tests/unit/journal_rig.h"

#define RECORDS 8u

/* A file with some records, each a group of its own; where each begins. */
struct sample {
	const char *path;
	uint64_t at[RECORDS + 1]; /* in the file */
	uint32_t items[RECORDS];
};

static void sample_make(struct sample *sample)
{
	static const struct {
		uint32_t count;
		uint8_t sectors;
	} of[RECORDS] = {{1, 0xff}, {3, 0x03}, {20, 0xff}, {2, 0xff}, {7, 0x81}, {1, 0x01},
		{4, 0xff}, {2, 0x15}};
	sample->path = rig_path();
	struct cache_journal *journal = rig_open(sample->path);
	for (unsigned i = 0; i < RECORDS; i++) {
		sample->at[i] = JOURNAL_RING_AT + cache_journal_used(journal);
		sample->items[i] = of[i].count;
		rig_append(journal, i % RIG_SHARDS, 1 + i % 2, i, of[i].count, of[i].sectors);
	}
	sample->at[RECORDS] = JOURNAL_RING_AT + cache_journal_used(journal);
	cache_journal_close(journal);
	/* what lies behind is zeros: a file without them is read the same, and sooner */
	ck_assert_int_eq(truncate(sample->path, (off_t)sample->at[RECORDS]), 0);
}

static uint32_t items_of(const struct sample *sample, unsigned records)
{
	uint32_t items = 0;
	for (unsigned i = 0; i < records; i++)
		items += sample->items[i];
	return items;
}

/* All records that end at or before this byte, and nothing else. */
static void expect_up_to(const struct sample *sample, uint64_t end)
{
	const struct rig_replay *replay;
	unsigned whole = 0;
	while (whole < RECORDS && sample->at[whole + 1] <= end)
		whole++;
	int error = rig_look(sample->path, &replay);
	ck_assert_msg(error == 0 && replay->count == items_of(sample, whole),
		"cut at byte %llu: %d, %u items", (unsigned long long)end, error, replay->count);
	for (uint32_t i = 1; i < replay->count; i++)
		ck_assert_uint_ge(replay->seen[i].epoch, replay->seen[i - 1].epoch);
}

#define PARTS 8u /* of the last record, so that no test takes long */
#define PART (JOURNAL_BLOCK / PARTS)
#ifdef __SANITIZE_ADDRESS__ /* it looks at other things, and takes thirty times as long */
#define STRIDE 5u
#else
#define STRIDE 1u
#endif

/* At each byte of the last record. */
UNIT_LOOP(test_truncated, PARTS)
{
	struct sample sample;
	sample_make(&sample);
	uint64_t last = sample.at[RECORDS - 1], begin = last + (unsigned)_i * PART;
	ck_assert_uint_eq(sample.at[RECORDS] - last, JOURNAL_BLOCK);
	for (uint64_t end = begin + PART; end > begin; end -= STRIDE) {
		ck_assert_int_eq(truncate(sample.path, (off_t)end), 0);
		/* a page that ends in zeros may be cut by so much without a loss */
		struct sample as_is = sample;
		if (end >= last + sizeof(struct journal_record) + 2 * (16 + 3 * 512))
			as_is.at[RECORDS] = end;
		expect_up_to(&as_is, end);
	}
}

/* At each sector, from the end to the beginning. */
UNIT(test_truncated_sectors)
{
	struct sample sample;
	const struct rig_replay *replay;
	sample_make(&sample);
	for (uint64_t end = sample.at[RECORDS]; end > JOURNAL_RING_AT; end -= 512) {
		ck_assert_int_eq(truncate(sample.path, (off_t)end), 0);
		struct sample as_is = sample;
		for (unsigned i = 0; i < RECORDS; i++)
			if (sample.at[i] < end && end < sample.at[i + 1] &&
				rig_look(sample.path, &replay) == 0 &&
				replay->count == items_of(&sample, i + 1))
				as_is.at[i + 1] = end; /* only zeros are missing */
		expect_up_to(&as_is, end);
	}
}

/* Cut in a start that goes on: the file is whole again, and what is written then is what counts. */
UNIT(test_cut_and_on)
{
	struct sample sample;
	const struct rig_replay *replay;
	sample_make(&sample);
	ck_assert_int_eq(truncate(sample.path, (off_t)(sample.at[2] + 4096 * 3 + 700)), 0);
	struct cache_journal *journal = rig_open(sample.path);
	struct stat about;
	ck_assert_int_eq(stat(sample.path, &about), 0);
	ck_assert_int_eq(about.st_size, RIG_SIZE);
	rig_append(journal, 0, 1, 9, 2, 0xff);
	cache_journal_close(journal);
	journal = rig_open(sample.path);
	ck_assert_int_eq(rig_replay(journal, &replay), 0);
	ck_assert_uint_eq(replay->count, items_of(&sample, 2) + 2);
	ck_assert_uint_eq(replay->seen[replay->count - 1].epoch, 9);
	cache_journal_close(journal);
}

static void flip(int fd, uint64_t at, unsigned bit)
{
	uint8_t byte;
	ck_assert_int_eq(pread(fd, &byte, 1, (off_t)at), 1);
	byte ^= (uint8_t)(1u << bit);
	ck_assert_int_eq(pwrite(fd, &byte, 1, (off_t)at), 1);
}

/* In the last record: it was never there. */
UNIT_LOOP(test_flipped_tail, PARTS)
{
	struct sample sample;
	const struct rig_replay *replay;
	sample_make(&sample);
	int fd = open(sample.path, O_RDWR);
	uint64_t begin = sample.at[RECORDS - 1] + (unsigned)_i * PART;
	for (uint64_t at = begin; at < begin + PART; at += STRIDE) {
		bool header = at < sample.at[RECORDS - 1] + sizeof(struct journal_record) + 2 * 16;
		for (unsigned bit = header ? 0 : (unsigned)at % 8;
			bit < (header ? 8 : (unsigned)at % 8 + 1); bit++) {
			flip(fd, at, bit);
			ck_assert_int_eq(rig_look(sample.path, &replay), 0);
			ck_assert_msg(replay->count == items_of(&sample, RECORDS - 1),
				"byte %llu bit %u", (unsigned long long)at, bit);
			flip(fd, at, bit);
		}
	}
	ck_assert_int_eq(rig_look(sample.path, &replay), 0);
	ck_assert_uint_eq(replay->count, items_of(&sample, RECORDS));
	close(fd);
}

/* In one that others came after: that is no end, and nothing is made of it. */
UNIT(test_flipped_middle)
{
	struct sample sample;
	const struct rig_replay *replay;
	char why[256];
	sample_make(&sample);
	int fd = open(sample.path, O_RDWR);
	for (unsigned i = 0; i < RECORDS - 1; i++)
		for (uint64_t at = sample.at[i]; at < sample.at[i + 1]; at += at % 397 + 61) {
			flip(fd, at, (unsigned)at % 8);
			int error = rig_look(sample.path, &replay);
			ck_assert_msg(error == -EILSEQ && replay->count == 0,
				"byte %llu: %d, %u items", (unsigned long long)at, error,
				replay->count);
			flip(fd, at, (unsigned)at % 8);
		}
	flip(fd, sample.at[3] + 8, 0);
	ck_assert_int_eq(rig_refused(sample.path, RIG_OWNER, RIG_SIZE, why), -EILSEQ);
	ck_assert_ptr_nonnull(strstr(why, "is damaged before its end, at byte"));
	ck_assert_ptr_nonnull(strstr(why, "move it away and accept the loss"));
	close(fd);
}

/* A group that was never synced may have reached the disk in part, and in any order. */
UNIT(test_torn_group)
{
	const char *path = rig_path();
	const struct rig_replay *replay;
	struct cache_journal *journal = rig_open(path);
	rig_append(journal, 0, 1, 1, 1, 0xff);
	struct rig_batch batches[6];
	for (unsigned i = 0; i < countof(batches); i++) {
		rig_batch(&batches[i], 0, 1, 2 + i, 1, 0xff);
		cache_journal_append(journal, &batches[i].batch);
	}
	rig_pump(journal);
	cache_journal_close(journal);
	int fd = open(path, O_RDWR);
	char zeros[8192] = {0};
	/* the third of the group is missing, the others are there */
	ck_assert_int_eq(pwrite(fd, zeros, sizeof(zeros), JOURNAL_RING_AT + 3 * 8192), 8192);
	ck_assert_int_eq(rig_look(path, &replay), 0);
	ck_assert_uint_eq(replay->count, 3);
	/* what is written there next must not lead into the rest of that group */
	journal = rig_open(path);
	rig_append(journal, 0, 1, 20, 1, 0xff);
	cache_journal_close(journal);
	ck_assert_int_eq(rig_look(path, &replay), 0);
	ck_assert_uint_eq(replay->count, 4);
	ck_assert_uint_eq(replay->seen[3].epoch, 20);
	for (unsigned i = 0; i < countof(batches); i++)
		rig_batch_free(&batches[i]);
	close(fd);
}

/* The same after a write that failed, in one life of the process. */
UNIT(test_failed_group)
{
	const char *path = rig_path();
	const struct rig_replay *replay;
	struct cache_journal *journal = rig_open(path);
	struct rig_batch batches[4];
	for (unsigned i = 0; i < countof(batches); i++) {
		rig_batch(&batches[i], 0, 1, 2 + i, 1, 0xff);
		cache_journal_append(journal, &batches[i].batch);
	}
	rig_sync_error = EIO;
	rig_pump(journal);
	rig_sync_error = 0;
	for (unsigned i = 0; i < countof(batches); i++) {
		ck_assert(cache_journal_cancel(journal, &batches[i].batch));
		rig_batch_free(&batches[i]);
	}
	usleep(30000);
	rig_time_ns = UINT64_MAX / 2;
	rig_append(journal, 0, 1, 20, 1, 0xff);
	cache_journal_close(journal);
	ck_assert_int_eq(rig_look(path, &replay), 0);
	ck_assert_uint_eq(replay->count, 1);
	ck_assert_uint_eq(replay->seen[0].epoch, 20);
}

/* --- refused ------------------------------------------------------------------------------- */

static void expect_refused(const char *path, const char *owner, int error, const char *sentence)
{
	char why[256];
	ck_assert_int_eq(rig_refused(path, owner, RIG_SIZE, why), error);
	ck_assert_msg(strstr(why, sentence), "'%s' is not in '%s'", sentence, why);
	ck_assert_ptr_nonnull(strstr(why, path));
}

UNIT(test_refused)
{
	struct sample sample;
	const char *other = rig_path();
	sample_make(&sample);
	expect_refused(sample.path, "segment/cache1", -ESTALE,
		"belongs to the cache 'segment/cache0', this is 'segment/cache1'; give each cache "
		"a file of its own");
	struct cache_journal *journal = rig_open(sample.path);
	expect_refused(sample.path, RIG_OWNER, -EBUSY, "is in use by another process");
	cache_journal_close(journal);
	FILE *file = fopen(other, "w");
	fputs("something of somebody else's", file);
	fclose(file);
	expect_refused(other, RIG_OWNER, -EILSEQ, "is not a journal; name another file");
	ck_assert_int_eq(truncate(other, 0), 0);
	expect_refused(other, RIG_OWNER, -EILSEQ, "is not a journal; name another file");
	expect_refused("/dev/null", RIG_OWNER, -EINVAL, "is not a file");
	expect_refused("/nowhere/journal", RIG_OWNER, -ENOENT, "cannot be made");
	char why[256];
	ck_assert_int_eq(rig_refused(other, RIG_OWNER, 4096, why), -EINVAL);
	ck_assert_ptr_nonnull(strstr(why, "must have at least 16 MiB"));
}

/* Either copy of the first block will do; with both gone it is refused. */
UNIT(test_first_blocks)
{
	struct sample sample;
	const struct rig_replay *replay;
	sample_make(&sample);
	int fd = open(sample.path, O_RDWR);
	for (unsigned copy = 0; copy < 2; copy++) {
		for (uint64_t at = 0; at < JOURNAL_BLOCK; at += 61) {
			flip(fd, copy * JOURNAL_BLOCK + at, 3);
			ck_assert_int_eq(rig_look(sample.path, &replay), 0);
			ck_assert_uint_eq(replay->count, items_of(&sample, RECORDS));
			flip(fd, copy * JOURNAL_BLOCK + at, 3);
		}
	}
	flip(fd, 1000, 3);
	flip(fd, JOURNAL_BLOCK + 2000, 3);
	expect_refused(sample.path, RIG_OWNER, -EILSEQ, "is damaged in its first blocks");
	close(fd);
}

static uint32_t crc_of(struct journal_super *super)
{
	super->crc = 0;
	return crc32c(0, super, sizeof(*super));
}

UNIT(test_version)
{
	struct sample sample;
	struct journal_super super;
	sample_make(&sample);
	int fd = open(sample.path, O_RDWR);
	for (unsigned copy = 0; copy < 2; copy++) {
		off_t at = (off_t)copy * JOURNAL_BLOCK;
		ck_assert_int_eq(pread(fd, &super, sizeof(super), at), sizeof(super));
		super.version = 2;
		super.crc = crc_of(&super);
		ck_assert_int_eq(pwrite(fd, &super, sizeof(super), at), sizeof(super));
	}
	expect_refused(
		sample.path, RIG_OWNER, -EPROTO, "has format version 2, this program knows 1");
	close(fd);
}
