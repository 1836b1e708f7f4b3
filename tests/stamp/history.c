/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which versions of each sector may still be read, and whether the reads so far fit one order.
 *
 * Every write makes a version of its own, so the test for linearizability of Gibbons and Korach
 * ("Testing shared memories", 1997) is exact: a history of a register has an order if and only if
 * no two versions contradict each other as struct version says.
 */
#include <base/must.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tests/stamp/stamp.h"

#define PRUNE_ABOVE 8
#define PRUNE_MOST 512 /* so many at once: acceptable, but not worth looking at each time */

struct history_cell {
	struct version *versions;
	uint32_t count, capacity;
};

static bool contradict(const struct version *a, const struct version *b)
{
	return a->first_end < b->last_start && b->first_end < a->last_start;
}

/*
 * The same when a write that is on its way may take effect any number of times: what was seen of
 * it before its acknowledgement orders nothing.
 */
static bool contradict_acked(const struct version *a, const struct version *b)
{
	return a->acked < b->last_start && b->acked < a->last_start;
}

static struct version *find(struct history_cell *cell, uint64_t sequence)
{
	for (uint32_t i = 0; i < cell->count; i++)
		if (cell->versions[i].sequence == sequence)
			return &cell->versions[i];
	return NULL;
}

static struct version *add(struct history_cell *cell, const struct version *version)
{
	if (cell->count == cell->capacity) {
		cell->capacity = cell->capacity ? cell->capacity * 2 : 2;
		cell->versions = realloc(cell->versions, cell->capacity * sizeof(*cell->versions));
		must(cell->versions);
	}
	cell->versions[cell->count] = *version;
	return &cell->versions[cell->count++];
}

/* Before the first write a sector is blank, since ever. */
static struct history_cell *cell_at(struct history *history, uint64_t sector)
{
	must(sector < history->sectors);
	struct history_cell *cell = &history->cells[sector];
	if (cell->count == 0)
		add(cell, &(struct version){.sequence = 0});
	return cell;
}

/*
 * A version can go when another has replaced it and every operation that comes from now on begins
 * after that: reading it then is an error whether it is known or not.
 */
static bool replaced(const struct history_cell *cell, const struct version *v, uint64_t oldest)
{
	if (v->acked >= oldest)
		return false;
	for (uint32_t i = 0; i < cell->count; i++)
		if (&cell->versions[i] != v && v->acked < cell->versions[i].last_start &&
			cell->versions[i].acked < oldest)
			return true;
	return false;
}

/* All are judged before the first goes: one that goes may be what another is judged by. */
static void prune(struct history_cell *cell, uint64_t oldest)
{
	bool gone[PRUNE_MOST];
	uint32_t kept = 0, count = cell->count;
	if (count <= PRUNE_ABOVE || count > PRUNE_MOST)
		return;
	for (uint32_t i = 0; i < count; i++)
		gone[i] = replaced(cell, &cell->versions[i], oldest);
	for (uint32_t i = 0; i < count; i++)
		if (!gone[i])
			cell->versions[kept++] = cell->versions[i];
	cell->count = kept;
}

int history_open(struct history *history, uint64_t sectors)
{
	history->sectors = sectors;
	history->cells = calloc(sectors, sizeof(*history->cells));
	return history->cells ? 0 : -ENOMEM;
}

void history_close(struct history *history)
{
	for (uint64_t i = 0; history->cells && i < history->sectors; i++)
		free(history->cells[i].versions);
	free(history->cells);
	history->cells = NULL;
}

void history_write_begin(struct history *history, uint64_t sector, uint64_t sequence, uint64_t now)
{
	add(cell_at(history, sector), &(struct version){.sequence = sequence,
					      .first_end = HISTORY_NEVER,
					      .acked = HISTORY_NEVER,
					      .last_start = now});
}

bool history_busy(const struct history *history, uint64_t sector, uint64_t start)
{
	const struct history_cell *cell = &history->cells[sector];
	for (uint32_t i = 0; i < cell->count; i++)
		if (cell->versions[i].acked > start)
			return true;
	return false;
}

void history_write_end(
	struct history *history, uint64_t sector, uint64_t sequence, uint64_t now, uint64_t oldest)
{
	struct history_cell *cell = cell_at(history, sector);
	struct version *version = find(cell, sequence);
	if (version && now < version->first_end)
		version->first_end = now;
	if (version && now < version->acked)
		version->acked = now;
	prune(cell, oldest);
}

/* Both sides of it begin anew: the next contradiction is another one. */
static enum history_verdict judge(struct version *seen, struct version *other)
{
	if (contradict_acked(seen, other))
		return HISTORY_OLD;
	if (!contradict(seen, other))
		return HISTORY_FINE;
	seen->first_end = seen->acked;
	other->first_end = other->acked;
	return HISTORY_TWICE;
}

enum history_verdict history_read(struct history *history, uint64_t sector, uint64_t sequence,
	uint64_t start, uint64_t now, uint64_t oldest, uint64_t *newer)
{
	struct history_cell *cell = cell_at(history, sector);
	struct version *version = find(cell, sequence);
	*newer = cell->versions[cell->count - 1].sequence;
	if (!version)
		return HISTORY_ALIEN;
	struct version seen = *version;
	if (now < seen.first_end)
		seen.first_end = now;
	if (start > seen.last_start)
		seen.last_start = start;
	enum history_verdict worst = HISTORY_FINE;
	for (uint32_t i = 0; i < cell->count && worst != HISTORY_OLD; i++) {
		struct version *other = &cell->versions[i];
		enum history_verdict verdict =
			other == version ? HISTORY_FINE : judge(&seen, other);
		if (verdict == HISTORY_FINE)
			continue;
		worst = verdict;
		*newer = other->sequence;
	}
	if (worst == HISTORY_OLD)
		return worst;
	*version = seen;
	prune(cell, oldest);
	return worst;
}
