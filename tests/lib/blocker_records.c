/* SPDX-License-Identifier: Apache-2.0 */
/* What every blocker keeps to with records: compare-and-set, alone and in a race. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/lib/blocker_rig.h"

#define RACERS 2
#define RACE_STEPS 100u

static struct xseg_key record_key(const struct rig *rig, unsigned number)
{
	return (struct xseg_key){.volume = rig->volume + 256 + number, .epoch = XSEG_EPOCH_VOLUME};
}

/* As it is now; 0: absent. */
static uint64_t version_of(struct rig *rig, struct xseg_key key)
{
	uint64_t version;
	int size = rig_cas_get(rig, key, rig->in, XSEG_RECORD_MAX, &version);
	expect_true(rig, size == -ENOENT ? version == 0 : size > 0 && version != 0);
	return version;
}

/* Put for the time number `before` + 1. Where a count begins is the store's to say. */
static void put_ok(struct rig *rig, struct xseg_key key, uint32_t size, uint64_t before)
{
	uint64_t found = version_of(rig, key), version = found;
	expect_true(rig, (found == 0) == (before == 0));
	pattern_fill(rig->out, key, (struct span){0, (size + 7) / 8 * 8}, before);
	expect_int(rig, rig_cas_put(rig, key, rig->out, size, &version), 0);
	expect_true(rig, found == 0 ? version != 0 : version == found + 1);
	expect_int(rig, version_of(rig, key), version);
}

static void delete_ok(struct rig *rig, struct xseg_key key)
{
	uint64_t version = version_of(rig, key);
	expect_int(rig, rig_cas_delete(rig, key, &version), 0);
}

static void expect_record(struct rig *rig, struct xseg_key key, uint32_t size, uint64_t times)
{
	uint64_t found;
	uint8_t want[XSEG_RECORD_MAX];
	pattern_fill(want, key, (struct span){0, (size + 7) / 8 * 8}, times - 1);
	memset(rig->in, 0xee, XSEG_RECORD_MAX);
	expect_int(rig, rig_cas_get(rig, key, rig->in, XSEG_RECORD_MAX, &found), size);
	expect_int(rig, memcmp(rig->in, want, size), 0);
}

static void law_put(struct rig *rig)
{
	struct xseg_key key = record_key(rig, 0);
	uint64_t version = 7;
	expect_int(rig, rig_cas_get(rig, key, rig->in, XSEG_RECORD_MAX, &version), -ENOENT);
	expect_int(rig, version, 0);
	version = 3;
	expect_int(rig, rig_cas_put(rig, key, rig->out, 8, &version), -ESTALE);
	static const uint32_t sizes[] = {1, 284, XSEG_RECORD_MAX, 13};
	for (uint64_t i = 0; i < countof(sizes); i++) {
		put_ok(rig, key, sizes[i], i);
		uint64_t now = version_of(rig, key);
		expect_record(rig, key, sizes[i], i + 1);
		version = 0;
		expect_int(rig, rig_cas_put(rig, key, rig->out, 8, &version), -EEXIST);
		expect_true(rig, version == now);
		version = now + 6;
		expect_int(rig, rig_cas_put(rig, key, rig->out, 8, &version), -ESTALE);
		expect_true(rig, version == now);
		expect_record(rig, key, sizes[i], i + 1);
	}
}

/* One that is put again is another: who still knows the old one's version can do it nothing. */
static void law_delete_record(struct rig *rig)
{
	struct xseg_key key = record_key(rig, 0);
	uint64_t now = version_of(rig, key), version = now - 1;
	expect_int(rig, rig_cas_delete(rig, key, &version), -ESTALE);
	expect_true(rig, version == now);
	expect_record(rig, key, 13, 4);
	expect_int(rig, rig_cas_delete(rig, key, &version), 0);
	expect_int(rig, rig_cas_get(rig, key, rig->in, XSEG_RECORD_MAX, &version), -ENOENT);
	version = now;
	expect_int(rig, rig_cas_delete(rig, key, &version), -ENOENT);
	for (uint64_t i = 0; i < 4; i++) {
		put_ok(rig, key, 20, i);
		version = now;
		expect_int(rig, rig_cas_put(rig, key, rig->out, 8, &version), -ESTALE);
		version = now - i;
		expect_int(rig, rig_cas_delete(rig, key, &version), -ESTALE);
	}
	delete_ok(rig, key);
}

/* Records are no objects: neither list shows the other's. */
static void law_list_records(struct rig *rig)
{
	struct xseg_key keys[8], of = {.epoch = XSEG_EPOCH_VOLUME};
	uint64_t cursor = 0;
	unsigned ours = 0;
	struct span sector = {0, XSEG_SECTOR};
	for (unsigned i = 0; i < 30; i++)
		put_ok(rig, record_key(rig, i), 40, 0);
	struct xseg_key object = {.volume = rig->volume + 256 + 3};
	expect_int(rig, rig_write(rig, object, sector, rig->out, 0), 0);
	uint64_t before = 0;
	do {
		int count = rig_list(rig, of, &cursor, keys, 8);
		expect_true(rig, count > 0 || cursor == 0);
		for (int i = 0; i < count; i++) {
			expect_int(rig, keys[i].epoch, XSEG_EPOCH_VOLUME);
			expect_true(rig, keys[i].volume > before);
			before = keys[i].volume;
			ours += before >= rig->volume + 256 && before < rig->volume + 286;
		}
	} while (cursor && !rig->failed);
	expect_int(rig, ours, 30);
	cursor = 0;
	expect_int(rig, rig_list(rig, object, &cursor, keys, 8), 1);
	expect_int(rig, keys[0].epoch, 0);
	for (unsigned i = 0; i < 30; i++)
		delete_ok(rig, record_key(rig, i));
	expect_int(rig, rig_do(rig, XSEG_OP_DELETE, object, (struct span){0, 0}, 0), 0);
}

/* A volume has two records of one kind, one of another, and its name's: each by itself. */
static void law_kinds(struct rig *rig)
{
	const struct xseg_key kinds[] = {
		record_key(rig, 50), record_key(rig, 50), record_key(rig, 50), record_key(rig, 50)};
	static const uint32_t epochs[] = {
		XSEG_EPOCH_VOLUME, XSEG_EPOCH_VOLUME, XSEG_EPOCH_HOME, XSEG_EPOCH_NAME};
	struct xseg_key key, keys[64];
	uint64_t cursor;
	for (unsigned round = 0; round < 2; round++)
		for (unsigned i = 0; i < countof(kinds); i++) {
			key = kinds[i];
			key.epoch = epochs[i];
			key.object = i == 1;
			put_ok(rig, key, 100 + i, round);
			expect_record(rig, key, 100 + i, round + 1);
		}
	for (unsigned i = 1; i < countof(kinds); i++) {
		unsigned ours = 0;
		cursor = 0;
		do {
			key = (struct xseg_key){.epoch = epochs[i]};
			int count = rig_list(rig, key, &cursor, keys, 3);
			expect_true(rig, count > 0 || cursor == 0);
			for (int k = 0; k < count; k++) {
				expect_int(rig, keys[k].epoch, epochs[i]);
				ours += keys[k].volume == kinds[0].volume;
			}
		} while (cursor && !rig->failed);
		expect_int(rig, ours, i == 1 ? 2 : 1);
	}
	key = (struct xseg_key){.volume = kinds[0].volume};
	cursor = 0;
	expect_int(rig, rig_list(rig, key, &cursor, keys, 8), 0);
	for (unsigned i = 0; i < countof(kinds); i++) {
		key = kinds[i];
		key.epoch = epochs[i];
		key.object = i == 1;
		delete_ok(rig, key);
	}
}

/* Adds one to the counter in the record so many times, against the others who do so, too. */
static int race(const struct rig *parent)
{
	struct rig rig = {.volume = parent->volume};
	struct xseg_key key = record_key(parent, 100);
	if (rig_open(&rig, parent->segment, parent->peer))
		return 1;
	for (unsigned done = 0; done < RACE_STEPS;) {
		uint64_t version, counter = 0;
		int size = rig_cas_get(&rig, key, &counter, sizeof(counter), &version);
		if (size != sizeof(counter) && size != -ENOENT)
			return 2;
		counter++;
		int error = rig_cas_put(&rig, key, &counter, sizeof(counter), &version);
		if (error != 0 && error != -ESTALE && error != -EEXIST)
			return 3;
		done += error == 0;
	}
	rig_close(&rig);
	return 0;
}

static void law_race(struct rig *rig)
{
	struct xseg_key key = record_key(rig, 100);
	pid_t racers[RACERS];
	fflush(stdout);
	for (int i = 0; i < RACERS; i++) {
		racers[i] = fork();
		must(racers[i] >= 0);
		if (racers[i] == 0)
			_exit(race(rig));
	}
	for (int i = 0; i < RACERS; i++) {
		int status;
		must(waitpid(racers[i], &status, 0) == racers[i]);
		expect_int(rig, status, 0);
	}
	uint64_t counter = 0, version = 0;
	expect_int(rig, rig_cas_get(rig, key, &counter, sizeof(counter), &version), 8);
	expect_int(rig, counter, RACERS * RACE_STEPS);
	expect_int(rig, rig_cas_delete(rig, key, &version), 0);
}

void blocker_records(struct rig *rig)
{
	rig_law(rig, "a record is put where it was expected so", law_put);
	rig_law(rig, "and deleted", law_delete_record);
	rig_law(rig, "records are listed by themselves", law_list_records);
	rig_law(rig, "kinds and halves of records are told apart", law_kinds);
	rig_law(rig, "two clients race: no step is lost", law_race);
}
