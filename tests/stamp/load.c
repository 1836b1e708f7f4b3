/* SPDX-License-Identifier: Apache-2.0 */
/* The load: random reads and writes at depth, each answer checked when it comes. */
#include <base/clock.h>
#include <base/must.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tests/stamp/conn.h"

#define POLL_MS 2
#define RUN_SHIFT 40
#define COMPLAINTS_MAX 20
#define PASS_SECTORS 128u /* of one read when all is read in order */

struct volume {
	const char *name;
	uint64_t id, sectors;
	bool fua;
	struct history history;
	uint64_t cursor; /* of the pass that reads all of it */
};

enum phase { PHASE_LOAD, PHASE_DRAIN, PHASE_PASS, PHASE_END };

struct load {
	const struct options *options;
	struct results *results;
	struct volume volumes[STAMP_VOLUMES];
	struct conn *conns;
	struct pollfd *polls;
	unsigned conn_count, busy; /* busy: operations that are due */
	struct journal journal;
	enum phase phase;
	uint64_t tick, run, sequence, random;
	uint64_t issued, begin_ns, answer_ns, progress_ns;
	unsigned complaints;
	int journal_error;
	FILE *map;
};

static uint64_t draw(struct load *load, uint64_t below)
{
	uint64_t x = load->random;
	x ^= x << 13;
	x ^= x >> 7;
	x ^= x << 17;
	load->random = x;
	return (x * 0x2545f4914f6cdd1dull >> 16) % below;
}

/* --- checking ------------------------------------------------------------------------------- */

static void complain(struct load *load, const char *what, const struct op *op,
	const struct volume *volume, uint64_t sector, const struct stamp *found, uint64_t newer)
{
	if (load->complaints++ >= COMPLAINTS_MAX)
		return;
	fprintf(stderr,
		"stamp: %s: volume '%s' sector %llu, read at %llu..%llu: found sequence %llx of "
		"writer %u (volume %llx sector %llu), which %llx rules out\n",
		what, volume->name, (unsigned long long)sector, (unsigned long long)op->begin_tick,
		(unsigned long long)load->tick, (unsigned long long)found->sequence, found->writer,
		(unsigned long long)found->volume, (unsigned long long)found->sector,
		(unsigned long long)newer);
}

/* Only reads that have not ended can still bring something from before. */
static uint64_t oldest_read(const struct load *load)
{
	uint64_t oldest = load->tick;
	for (unsigned c = 0; c < load->conn_count; c++)
		for (unsigned i = 0; i < load->options->depth; i++) {
			const struct op *op = &load->conns[c].ops[i];
			if (op->state != OP_IDLE && op->kind == OP_READ && op->begin_tick < oldest)
				oldest = op->begin_tick;
		}
	return oldest;
}

/* A sequence of ours that the history has forgotten was replaced long ago. */
static bool was_written(const struct load *load, uint64_t sequence)
{
	return sequence == 0 || (sequence >> RUN_SHIFT >= 1 && sequence >> RUN_SHIFT < load->run) ||
	       (sequence >> RUN_SHIFT == load->run && sequence <= load->sequence);
}

/* For whoever knows better than the journal what may be there: it is only noted, unless damaged. */
static bool note_map(
	struct load *load, uint64_t sector, enum stamp_look look, const struct stamp *found)
{
	uint64_t sequence = look == STAMP_BLANK ? 0 : found->sequence;
	if (look == STAMP_TORN || look == STAMP_MISPLACED)
		return false;
	must(fseeko(load->map, (off_t)(sector * sizeof(sequence)), SEEK_SET) == 0);
	must(fwrite(&sequence, sizeof(sequence), 1, load->map) == 1);
	return true;
}

static void check_sector(struct load *load, const struct op *op, struct volume *volume,
	uint64_t sector, const uint8_t *memory, uint64_t oldest)
{
	struct results *results = load->results;
	struct stamp found;
	uint64_t newer = 0;
	enum stamp_look look = stamp_read(memory, volume->id, sector, &found);
	results->sectors_checked++;
	if (load->map && load->phase == PHASE_PASS && note_map(load, sector, look, &found))
		return;
	if (look == STAMP_TORN && history_busy(&volume->history, sector, op->begin_tick)) {
		results->mixed++;
		if (!load->options->mixes)
			complain(load, "mixed", op, volume, sector, &found, newer);
		return;
	}
	if (look == STAMP_TORN) {
		results->torn++;
		complain(load, "torn", op, volume, sector, &found, newer);
		return;
	}
	if (look == STAMP_MISPLACED) {
		results->misplaced++;
		complain(load, "of another place", op, volume, sector, &found, newer);
		return;
	}
	enum history_verdict verdict = history_read(&volume->history, sector, found.sequence,
		op->begin_tick, load->tick, oldest, &newer);
	if (verdict == HISTORY_FINE)
		return;
	if (verdict == HISTORY_TWICE) {
		results->twice++;
		if (!load->options->replays)
			complain(load, "twice", op, volume, sector, &found, newer);
		return;
	}
	bool old = was_written(load, found.sequence);
	*(old ? &results->old : &results->alien) += 1;
	/* nothing is on its way any more, so it is not only late */
	if (old && load->phase == PHASE_PASS)
		results->lost++;
	complain(load, old ? "old" : "never written", op, volume, sector, &found, newer);
}

static void check_answer(struct load *load, const struct conn *conn, const struct op *op)
{
	struct volume *volume = &load->volumes[conn->volume];
	uint64_t oldest = oldest_read(load);
	if (op->kind == OP_READ) {
		for (uint32_t i = 0; i < op->count; i++)
			check_sector(load, op, volume, op->sector + i,
				op->memory + (size_t)i * STAMP_SECTOR, oldest);
		return;
	}
	if (op->kind == OP_FLUSH) {
		journal_put(&load->journal, JOURNAL_FLUSH_END, conn->volume, 0, 0, op->sequence);
		return;
	}
	journal_put(&load->journal, JOURNAL_END, conn->volume, op->sector, op->count, op->sequence);
	for (uint32_t i = 0; i < op->count; i++)
		history_write_end(
			&volume->history, op->sector + i, op->sequence, load->tick, oldest);
}

static void count_answer(struct load *load, const struct op *op, uint64_t now_ns)
{
	struct results *results = load->results;
	uint64_t took = now_ns - op->begin_ns, size = (uint64_t)op->count * STAMP_SECTOR;
	results->latency[histogram_index(took)]++;
	if (took > results->latency_ns_max)
		results->latency_ns_max = took;
	if (now_ns - load->answer_ns > results->pause_ns_max)
		results->pause_ns_max = now_ns - load->answer_ns;
	load->answer_ns = now_ns;
	switch (op->kind) {
	case OP_READ: results->reads++, results->bytes_read += size; break;
	case OP_WRITE: results->writes++, results->bytes_written += size; break;
	case OP_FLUSH: results->flushes++; break;
	}
}

static void take_answer(struct load *load, struct conn *conn, struct op *op, uint64_t now_ns)
{
	load->tick++;
	count_answer(load, op, now_ns);
	if (op->error)
		load->results->errors[op->error < STAMP_ERRNOS ? op->error : 0]++;
	else
		check_answer(load, conn, op);
	op->state = OP_IDLE;
	load->busy--;
}

/* --- making --------------------------------------------------------------------------------- */

static void fill(struct load *load, const struct conn *conn, struct op *op)
{
	struct volume *volume = &load->volumes[conn->volume];
	struct stamp stamp = {
		.volume = volume->id, .sequence = op->sequence, .writer = conn->writer};
	journal_put_flags(&load->journal, JOURNAL_BEGIN, conn->volume, op->sector, op->count,
		op->sequence, op->fua ? JOURNAL_FUA : 0);
	for (uint32_t i = 0; i < op->count; i++) {
		stamp.sector = op->sector + i;
		stamp_make(op->memory + (size_t)i * STAMP_SECTOR, &stamp);
		history_write_begin(&volume->history, stamp.sector, op->sequence, load->tick);
	}
}

/* Pages mostly, some crooked stretches, some long ones; half of all at the hot end. */
static void place(struct load *load, const struct volume *volume, struct op *op)
{
	uint64_t shape = draw(load, 100), align = 8;
	uint64_t room = volume->sectors;
	op->count = 8;
	if (shape < 25) {
		op->count = 1 + (uint32_t)draw(load, 16);
		align = 1;
	} else if (shape < 40) {
		op->count = 8 * (1 + (uint32_t)draw(load, load->options->sectors_max / 8));
	}
	if (draw(load, 2) && load->options->hot < room)
		room = load->options->hot;
	if (op->count > room)
		op->count = (uint32_t)room;
	op->sector = draw(load, (room - op->count) / align + 1) * align;
}

static void begin_random(struct load *load, struct conn *conn, struct op *op)
{
	struct volume *volume = &load->volumes[conn->volume];
	uint64_t die = draw(load, 100);
	op->kind = die < load->options->read_share ? OP_READ : OP_WRITE;
	if (die == 99 && draw(load, 2))
		op->kind = OP_FLUSH;
	op->count = 0;
	op->sector = 0;
	if (op->kind == OP_FLUSH) {
		op->sequence = ++load->sequence;
		journal_put(&load->journal, JOURNAL_FLUSH_BEGIN, conn->volume, 0, 0, op->sequence);
		return;
	}
	place(load, volume, op);
	if (op->kind == OP_READ)
		return;
	op->fua = volume->fua && draw(load, 20) == 0;
	op->sequence = ++load->sequence;
	fill(load, conn, op);
}

static bool begin_pass(struct load *load, struct conn *conn, struct op *op)
{
	struct volume *volume = &load->volumes[conn->volume];
	uint64_t left = volume->sectors - volume->cursor;
	if (left == 0)
		return false;
	op->kind = OP_READ;
	op->sector = volume->cursor;
	op->count = left < PASS_SECTORS ? (uint32_t)left : PASS_SECTORS;
	volume->cursor += op->count;
	return true;
}

static void begin(struct load *load, struct conn *conn, struct op *op, uint64_t now_ns)
{
	op->begin_tick = ++load->tick;
	op->begin_ns = now_ns;
	op->error = 0;
	op->fua = false;
	if (load->phase == PHASE_PASS) {
		if (!begin_pass(load, conn, op))
			return;
	} else {
		begin_random(load, conn, op);
	}
	if (load->busy++ == 0)
		load->answer_ns = now_ns;
	load->issued++;
	conn_send(conn, op);
}

/* --- the loop ------------------------------------------------------------------------------- */

static void connection_turn(struct load *load, unsigned index, uint64_t now_ns)
{
	struct conn *conn = &load->conns[index];
	conn_turn(conn, load->polls[index].revents, now_ns, load->results);
	for (unsigned i = 0; i < conn->depth; i++) {
		struct op *op = &conn->ops[i];
		if (op->state == OP_ANSWERED)
			take_answer(load, conn, op, now_ns);
		if (op->state == OP_IDLE && load->phase != PHASE_DRAIN)
			begin(load, conn, op, now_ns);
		/* A call may have answered at once */
		if (op->state != OP_IDLE && op->state != OP_ANSWERED &&
			now_ns > op->begin_ns + (uint64_t)(load->options->hang_s * 1e9)) {
			load->results->hung++;
			load->results->given_up = -ETIMEDOUT;
		}
	}
	if (!conn->ready && conn->broken_ns &&
		now_ns > conn->broken_ns + (uint64_t)(load->options->reconnect_s * 1e9))
		load->results->given_up = -ENOTCONN;
}

static void tell_progress(struct load *load, uint64_t now_ns)
{
	const struct results *r = load->results;
	uint64_t errors = 0;
	if (load->options->progress_s <= 0 || now_ns < load->progress_ns)
		return;
	load->progress_ns = now_ns + (uint64_t)(load->options->progress_s * 1e9);
	for (unsigned i = 0; i < STAMP_ERRNOS; i++)
		errors += r->errors[i];
	printf("{\"progress\": %llu, \"errors\": %llu, \"bad\": %llu, \"reconnects\": %llu, "
	       "\"in_flight\": %u, \"time_ns\": %llu}\n",
		(unsigned long long)(r->reads + r->writes + r->flushes), (unsigned long long)errors,
		(unsigned long long)(r->old + r->torn + r->misplaced + r->alien +
				     (load->options->replays ? 0 : r->twice) +
				     (load->options->mixes ? 0 : r->mixed)),
		(unsigned long long)r->reconnects, load->busy, (unsigned long long)now_ns);
	fflush(stdout);
}

static bool load_is_over(const struct load *load, uint64_t now_ns, int stop)
{
	if (stop || load->options->verify_only)
		return true;
	if (load->options->ops)
		return load->issued >= load->options->ops;
	return now_ns > load->begin_ns + (uint64_t)(load->options->seconds * 1e9);
}

static bool pass_is_over(const struct load *load)
{
	for (unsigned i = 0; i < load->options->volumes; i++)
		if (load->volumes[i].cursor < load->volumes[i].sectors)
			return false;
	return load->busy == 0;
}

static void next_phase(struct load *load, uint64_t now_ns, int stop)
{
	if (load->phase == PHASE_LOAD && load_is_over(load, now_ns, stop))
		load->phase = PHASE_DRAIN;
	if (load->phase == PHASE_DRAIN && load->busy == 0)
		load->phase = load->options->final_pass ? PHASE_PASS : PHASE_END;
	if (load->phase == PHASE_PASS && pass_is_over(load))
		load->phase = PHASE_END;
}

static void run(struct load *load, volatile int *stop)
{
	load->begin_ns = load->answer_ns = clock_now_ns();
	next_phase(load, load->begin_ns, *stop);
	while (load->phase != PHASE_END && !load->results->given_up) {
		for (unsigned i = 0; i < load->conn_count; i++)
			load->polls[i] = conn_poll(&load->conns[i]);
		poll(load->polls, load->conn_count, POLL_MS);
		uint64_t now_ns = clock_now_ns();
		for (unsigned i = 0; i < load->conn_count; i++)
			connection_turn(load, i, now_ns);
		next_phase(load, now_ns, *stop);
		tell_progress(load, now_ns);
	}
}

/* --- before and after ----------------------------------------------------------------------- */

/* What the runs before us wrote; what they did not see acknowledged may be there or not. */
static void replay(void *context, const struct journal_record *record)
{
	struct load *load = context;
	struct volume *volume = &load->volumes[record->volume % STAMP_VOLUMES];
	load->tick++;
	if (record->kind == JOURNAL_RUN)
		load->run = record->sequence;
	if (record->volume >= load->options->volumes ||
		(record->kind == JOURNAL_VOLUME &&
			(record->sequence != volume->id || record->sector != volume->sectors)))
		load->journal_error = -ESTALE;
	if (load->journal_error || (record->kind != JOURNAL_BEGIN && record->kind != JOURNAL_END))
		return;
	for (uint32_t i = 0; i < record->count && record->sector + i < volume->sectors; i++)
		if (record->kind == JOURNAL_BEGIN)
			history_write_begin(
				&volume->history, record->sector + i, record->sequence, load->tick);
		else
			history_write_end(&volume->history, record->sector + i, record->sequence,
				load->tick, load->tick);
}

static int open_journal(struct load *load)
{
	const struct options *options = load->options;
	int error = journal_open(&load->journal, options->journal, options->sync, replay, load);
	if (error == 0)
		error = load->journal_error;
	if (error)
		return error;
	load->run++;
	load->sequence = load->run << RUN_SHIFT;
	journal_put(&load->journal, JOURNAL_RUN, 0, 0, 0, load->run);
	for (unsigned i = 0; i < options->volumes; i++)
		journal_put(&load->journal, JOURNAL_VOLUME, i, load->volumes[i].sectors, 0,
			load->volumes[i].id);
	return 0;
}

/* The name of a volume is the whole URI's path: "nbd+unix:///NAME?socket=...". */
static uint64_t id_of(const char *uri)
{
	const char *path = strstr(uri, "://");
	path = path ? strchr(path + 3, '/') : NULL;
	char name[256];
	snprintf(name, sizeof(name), "%.*s", path ? (int)strcspn(path, "?") : 0, path ? path : "");
	return stamp_volume_id(name);
}

static int open_volume(struct load *load, unsigned index)
{
	struct volume *volume = &load->volumes[index];
	uint64_t size;
	volume->name = load->options->uris[index];
	volume->id = id_of(volume->name);
	int error = conn_size(volume->name, load->options->reconnect_s, &size, &volume->fua);
	if (error)
		return error;
	volume->sectors = size / STAMP_SECTOR;
	return volume->sectors ? history_open(&volume->history, volume->sectors) : -EINVAL;
}

static int open_all(struct load *load)
{
	const struct options *options = load->options;
	uint32_t most = options->sectors_max > PASS_SECTORS ? options->sectors_max : PASS_SECTORS;
	int error = 0;
	for (unsigned i = 0; i < options->volumes && !error; i++)
		error = open_volume(load, i);
	if (!error)
		error = open_journal(load);
	if (error)
		return error;
	unsigned count = options->volumes * options->connections;
	load->conns = calloc(count, sizeof(*load->conns));
	load->polls = calloc(count, sizeof(*load->polls));
	if (!load->conns || !load->polls)
		return -ENOMEM;
	for (unsigned i = 0; i < count && !error; i++) {
		struct conn *conn = &load->conns[load->conn_count++];
		conn->volume = i % options->volumes;
		conn->writer = i + 1;
		error = conn_open(conn, options->uris[conn->volume], options->depth,
			(size_t)most * STAMP_SECTOR);
	}
	return error;
}

int load_run(const struct options *options, struct results *results, volatile int *stop)
{
	struct load load = {.options = options,
		.results = results,
		.journal = {.fd = -1},
		.random = options->seed | 1};
	int error = open_all(&load);
	if (!error && options->map && !(load.map = fopen(options->map, "wb")))
		error = -errno;
	if (!error)
		run(&load, stop);
	if (load.map && fclose(load.map) && !error)
		error = -errno;
	for (unsigned i = 0; i < load.conn_count; i++)
		conn_close(&load.conns[i]);
	for (unsigned i = 0; i < options->volumes; i++)
		history_close(&load.volumes[i].history);
	journal_close(&load.journal);
	free(load.conns);
	free(load.polls);
	return error;
}
