/* SPDX-License-Identifier: Apache-2.0 */
/* The checker checked: sectors, histories that can and cannot have been, a journal that is cut. */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/lib/unit.h"
#include "tests/stamp/stamp.h"

static struct history history;
static uint64_t newer;

static void begin(void) { ck_assert_int_eq(history_open(&history, 4), 0); }
static void wrote(uint64_t sequence, uint64_t from, uint64_t to)
{
	history_write_begin(&history, 0, sequence, from);
	if (to)
		history_write_end(&history, 0, sequence, to, 0);
}
static enum history_verdict saw(uint64_t sequence, uint64_t from, uint64_t to)
{
	return history_read(&history, 0, sequence, from, to, 0, &newer);
}

UNIT(a_sector_says_where_it_belongs)
{
	uint8_t memory[STAMP_SECTOR] = {0};
	struct stamp found, stamp = {.volume = stamp_volume_id("a"), .sector = 7, .sequence = 9};
	ck_assert_int_eq(stamp_read(memory, stamp.volume, 7, &found), STAMP_BLANK);
	stamp_make(memory, &stamp);
	ck_assert_int_eq(stamp_read(memory, stamp.volume, 7, &found), STAMP_GOOD);
	ck_assert_uint_eq(found.sequence, 9);
	ck_assert_int_eq(stamp_read(memory, stamp.volume, 8, &found), STAMP_MISPLACED);
	ck_assert_int_eq(stamp_read(memory, stamp_volume_id("b"), 7, &found), STAMP_MISPLACED);
}

/* Any mixture of two stamps of one place, cut anywhere, and any one bit. */
UNIT(a_torn_sector_is_seen)
{
	uint8_t a[STAMP_SECTOR], b[STAMP_SECTOR], c[STAMP_SECTOR];
	struct stamp found, stamp = {.volume = 1, .sector = 7, .sequence = 9};
	stamp_make(a, &stamp);
	stamp.sequence = 10;
	stamp_make(b, &stamp);
	for (unsigned cut = 64; cut < STAMP_SECTOR; cut += 8) {
		memcpy(c, a, cut);
		memcpy(c + cut, b + cut, STAMP_SECTOR - cut);
		ck_assert_int_eq(stamp_read(c, 1, 7, &found), STAMP_TORN);
	}
	for (unsigned bit = 0; bit < STAMP_SECTOR * 8; bit++) {
		memcpy(c, a, STAMP_SECTOR);
		c[bit / 8] ^= (uint8_t)(1u << bit % 8);
		ck_assert_int_eq(stamp_read(c, 1, 7, &found), STAMP_TORN);
	}
}

UNIT(what_is_current_may_be_read)
{
	begin();
	ck_assert_int_eq(saw(0, 1, 2), HISTORY_FINE);
	wrote(5, 3, 4);
	ck_assert_int_eq(saw(5, 5, 6), HISTORY_FINE);
	history_close(&history);
}

UNIT(what_was_replaced_may_not)
{
	begin();
	wrote(5, 3, 4);
	ck_assert_int_eq(saw(0, 5, 6), HISTORY_OLD);
	wrote(6, 7, 8);
	ck_assert_int_eq(saw(5, 9, 10), HISTORY_OLD);
	ck_assert_uint_eq(newer, 6);
	ck_assert_int_eq(saw(6, 11, 12), HISTORY_FINE);
	history_close(&history);
}

UNIT(a_concurrent_write_may_be_read_or_not)
{
	begin();
	wrote(5, 1, 2);
	wrote(6, 3, 0);
	ck_assert_int_eq(saw(5, 4, 5), HISTORY_FINE);
	ck_assert_int_eq(saw(6, 6, 7), HISTORY_FINE);
	ck_assert_msg(saw(5, 8, 9) == HISTORY_TWICE, "once seen, it stays");
	history_close(&history);
}

UNIT(a_read_that_began_before_may_be_late)
{
	begin();
	wrote(5, 1, 2);
	wrote(6, 4, 5);
	ck_assert_int_eq(saw(5, 3, 6), HISTORY_FINE);
	ck_assert_int_eq(saw(5, 4, 7), HISTORY_FINE);
	ck_assert_int_eq(saw(5, 6, 8), HISTORY_OLD);
	history_close(&history);
}

/* Two writes at once have either order, but one for all readers. */
UNIT(all_readers_see_one_order)
{
	begin();
	wrote(5, 1, 10);
	wrote(6, 2, 11);
	ck_assert_int_eq(saw(5, 12, 13), HISTORY_FINE);
	ck_assert_int_eq(saw(6, 14, 15), HISTORY_OLD);
	ck_assert_int_eq(saw(5, 16, 17), HISTORY_FINE);
	history_close(&history);
}

UNIT(a_write_never_answered_may_come_at_any_time_but_once)
{
	begin();
	wrote(5, 1, 0);
	wrote(6, 2, 3);
	ck_assert_int_eq(saw(6, 4, 5), HISTORY_FINE);
	ck_assert_int_eq(saw(5, 6, 7), HISTORY_FINE);
	ck_assert_int_eq(saw(6, 8, 9), HISTORY_TWICE);
	history_close(&history);
}

/* Seen, replaced, seen again: no register, but what a repeated write looks like. */
UNIT(a_write_may_be_seen_twice_only_before_it_is_acknowledged)
{
	begin();
	wrote(5, 1, 0);
	ck_assert_int_eq(saw(5, 2, 3), HISTORY_FINE);
	wrote(6, 4, 5);
	ck_assert_int_eq(saw(6, 6, 7), HISTORY_FINE);
	ck_assert_int_eq(saw(5, 8, 9), HISTORY_TWICE);
	history_write_end(&history, 0, 5, 10, 0);
	ck_assert_int_eq(saw(5, 11, 12), HISTORY_FINE);
	ck_assert_int_eq(saw(6, 13, 14), HISTORY_OLD);
	ck_assert_int_eq(saw(0, 15, 16), HISTORY_OLD);
	history_close(&history);
}

UNIT(a_write_on_its_way_is_known)
{
	begin();
	wrote(5, 1, 4);
	ck_assert(history_busy(&history, 0, 3));
	ck_assert(!history_busy(&history, 0, 4));
	wrote(6, 5, 0);
	ck_assert(history_busy(&history, 0, 100));
	ck_assert(!history_busy(&history, 1, 0));
	history_close(&history);
}

UNIT(nobody_wrote_that)
{
	begin();
	ck_assert_int_eq(saw(77, 1, 2), HISTORY_ALIEN);
	history_close(&history);
}

/*
 * A true register under many operations at once: each takes effect at one moment between its
 * begin and its end. No such history may be called wrong; then one read of what was replaced
 * `lag` versions ago, which began after that, must be.
 */
#define AT_ONCE 12
struct pending {
	bool busy, is_write, done;
	uint64_t sequence, start;
};

static uint64_t oldest_of(const struct pending *p, uint64_t now)
{
	for (unsigned i = 0; i < AT_ONCE; i++)
		if (p[i].busy && !p[i].is_write && p[i].start < now)
			now = p[i].start;
	return now;
}

static void finish(struct pending *all, struct pending *p, uint64_t now)
{
	uint64_t oldest = oldest_of(all, now);
	p->busy = false;
	if (p->is_write)
		history_write_end(&history, 0, p->sequence, now, oldest);
	else
		ck_assert_int_eq(
			history_read(&history, 0, p->sequence, p->start, now, oldest, &newer),
			HISTORY_FINE);
}

static void random_history(
	uint64_t seed, unsigned steps, uint64_t *current, uint64_t *before, uint64_t *now)
{
	struct pending all[AT_ONCE] = {{0}};
	uint64_t next = 1;
	for (unsigned i = 0; i < steps; i++) {
		struct pending *p = &all[random_next(&seed) % AT_ONCE];
		++*now;
		if (!p->busy) {
			*p = (struct pending){.busy = true, .start = *now};
			p->is_write = random_next(&seed) % 3 == 0;
			p->sequence = p->is_write ? next++ : 0;
			if (p->is_write)
				history_write_begin(&history, 0, p->sequence, *now);
		} else if (!p->done) {
			p->done = true; /* its moment */
			if (p->is_write)
				*before = *current, *current = p->sequence;
			else
				p->sequence = *current;
		} else {
			finish(all, p, *now);
		}
	}
	for (unsigned i = 0; i < AT_ONCE; i++)
		if (all[i].busy && all[i].done)
			finish(all, &all[i], ++*now);
}

UNIT(random_histories_are_judged_right)
{
	unsigned caught = 0;
	for (uint64_t seed = 1; seed <= 300; seed++) {
		uint64_t current = 0, before = 0, now = 0;
		begin();
		random_history(seed, 50 + (unsigned)seed * 5, &current, &before, &now);
		enum history_verdict verdict =
			history_read(&history, 0, current, now + 1, now + 2, now + 1, &newer);
		ck_assert_int_eq(verdict, HISTORY_FINE);
		if (current != before) {
			verdict = history_read(
				&history, 0, before, now + 3, now + 4, now + 3, &newer);
			ck_assert_int_ne(verdict, HISTORY_FINE);
			caught++;
		}
		history_close(&history);
	}
	ck_assert_uint_gt(caught, 250);
}

/* --- the journal ---------------------------------------------------------------------------- */

static unsigned records;
static void count_record(void *context, const struct journal_record *record)
{
	(void)context;
	ck_assert_uint_eq(record->sequence, records);
	records++;
}

static int reopen(const char *path, struct journal *journal)
{
	records = 0;
	return journal_open(journal, path, false, count_record, NULL);
}

UNIT(a_journal_that_is_cut_is_read_up_to_there)
{
	char path[256];
	struct journal journal;
	snprintf(path, sizeof(path), "%s/journal", scratch_dir());
	ck_assert_int_eq(reopen(path, &journal), 0);
	for (unsigned i = 0; i < 1000; i++)
		journal_put(&journal, JOURNAL_BEGIN, 0, i, 1, i);
	journal_close(&journal);
	ck_assert_int_eq(reopen(path, &journal), 0);
	ck_assert_uint_eq(records, 1000);
	journal_close(&journal);
	ck_assert_int_eq(truncate(path, 999 * sizeof(struct journal_record) + 5), 0);
	ck_assert_int_eq(reopen(path, &journal), 0);
	ck_assert_uint_eq(records, 999);
	journal_put(&journal, JOURNAL_BEGIN, 0, 0, 1, 999);
	journal_close(&journal);
	ck_assert_int_eq(reopen(path, &journal), 0);
	ck_assert_uint_eq(records, 1000);
	journal_close(&journal);
}

UNIT(a_damaged_journal_is_refused)
{
	char path[256];
	struct journal journal;
	snprintf(path, sizeof(path), "%s/damaged", scratch_dir());
	ck_assert_int_eq(reopen(path, &journal), 0);
	for (unsigned i = 0; i < 10; i++)
		journal_put(&journal, JOURNAL_BEGIN, 0, i, 1, i);
	ck_assert_int_eq(pwrite(journal.fd, "x", 1, 3 * sizeof(struct journal_record) + 9), 1);
	journal_close(&journal);
	ck_assert_int_lt(reopen(path, &journal), 0);
}
