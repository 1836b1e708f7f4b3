/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The load, a peer for benches and tests: requests straight to a port, by a plan, with what they
 * must find checked.
 *
 *   WAITING -> WRITING -> FLUSHING -> READING -> READY -> RUNNING -> LEAVING -> DONE
 *   for the target  `--- prepare: the footprint ---'  for the others
 */
#include "bench/load.h"

#include <base/clock.h>
#include <base/sm.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <xseg/port.h>

#define LOAD_SAMPLE 16u /* of deep queues one operation in so many is timed */
#define LOAD_SHALLOW 8u /* up to this depth all are */
#define LOAD_PREPARE_BS 131072u
#define LOAD_PIECES (XSEG_OBJECT_MAX / XSEG_PAGE + 1)

static const char *const load_patterns[] = {"sequential", "random", "zipf", "trace", NULL};
static const char *const load_verifies[] = {"none", "meta", "full", NULL};
static const char *const load_prepares[] = {"none", "write", "read", "both", NULL};

#define O struct load_options
static const struct peer_option load_options[] = {
	OPTION_CHOICE(O, pattern, "pattern", .initial = "random", .choices = load_patterns,
		.help = "which block comes next; random: each once before any comes again"),
	OPTION_TEXT(O, theta, "theta", .initial = "1.0", .help = "how steep zipf is"),
	OPTION_TEXT(O, trace, "trace", .help = "file with a block trace, or FILE.xz"),
	OPTION_COUNT(O, mix, "mix", .max = 100, .initial = "100", .unit = "%",
		.help = "how many of the operations read"),
	OPTION_SIZE(O, bs, "bs", .min = 512, .max = XSEG_OBJECT_MAX, .initial = "4K",
		.help = "of a block"),
	OPTION_COUNT(O, qd, "qd", .min = 1, .max = 4096, .initial = "1", .unit = "requests",
		.help = "on their way at once, of each lane"),
	OPTION_SIZE(O, size, "size", .initial = "64M",
		.help = "footprint, of all lanes; of a trace the most, 0: all it touches"),
	OPTION_SIZE(O, span, "span", .min = 512, .max = XSEG_OBJECT_MAX, .initial = "4M",
		.help = "used of each object, from its beginning"),
	OPTION_COUNT(O, volume, "volume", .min = 1, .initial = "1", .help = "its number"),
	OPTION_BOOL(O, linear, "linear", .initial = "no",
		.help = "asks a composer: for offsets in the volume, not for objects"),
	OPTION_COUNT(O, count, "count", .unit = "operations", .help = "ends after so many"),
	OPTION_TIME(O, time, "time",
		.help = "ends after that; neither this nor count: after one round"),
	OPTION_CHOICE(O, verify, "verify", .initial = "none", .choices = load_verifies,
		.help = "what each sector says: nothing, who it is in its first 32 bytes, or "
			"the same in all bytes"),
	OPTION_BOOL(O, fresh, "fresh", .initial = "yes",
		.help = "what was never written reads as zeros; no: it is not looked at"),
	OPTION_CHOICE(O, prepare, "prepare", .initial = "none", .choices = load_prepares,
		.help = "before the clock starts: write all, read all"),
	OPTION_COUNT(O, seed, "seed", .initial = "1", .help = "of all that is random"),
	OPTION_BOOL(O, donate, "donate", .initial = "yes",
		.help = "writes: the server may keep the pages"),
	OPTION_BOOL(O, pin, "pin", .initial = "yes",
		.help = "reads: the server may answer with its own pages"),
	OPTION_BOOL(O, fill, "fill", .initial = "yes",
		.help = "writes: their data is made; no: it is what was in the pages"),
	OPTION_BOOL(O, fua, "fua", .initial = "no", .help = "writes: durable when answered"),
	OPTION_COUNT(O, flush, "flush", .unit = "operations", .help = "a flush after so many"),
	OPTION_COUNT(O, chunk, "chunk", .min = 1, .initial = "512", .unit = "operations",
		.help = "timed together, for the steady rate: the median of these"),
	OPTION_TEXT(O, report, "report", .help = "file for the figures, JSON"),
	OPTION_END,
};
#undef O

static const char *const load_edges[] = {"target", NULL};

static const struct xseg_counter load_counters[] = {
	{.name = "verify_errors", .unit = "sectors", .help = "that held something else"},
	{.name = NULL},
};

enum load_phase {
	LOAD_WAITING,
	LOAD_WRITING,
	LOAD_FLUSHING,
	LOAD_READING,
	LOAD_READY,
	LOAD_RUNNING,
	LOAD_LEAVING,
	LOAD_DONE,
};

#define LATER (SM(LOAD_READY) | SM(LOAD_LEAVING))
static const struct sm_state load_phases[] = {
	[LOAD_WAITING] = {"waiting", SM(LOAD_WRITING) | SM(LOAD_READING) | LATER},
	[LOAD_WRITING] = {"writing", SM(LOAD_FLUSHING) | SM(LOAD_LEAVING)},
	[LOAD_FLUSHING] = {"flushing", SM(LOAD_READING) | LATER},
	[LOAD_READING] = {"reading", LATER},
	[LOAD_READY] = {"ready", SM(LOAD_RUNNING) | SM(LOAD_LEAVING)},
	[LOAD_RUNNING] = {"running", SM(LOAD_LEAVING)},
	[LOAD_LEAVING] = {"leaving", SM(LOAD_DONE)},
	[LOAD_DONE] = {"done", 0},
};
#undef LATER

struct load_op {
	enum load_kind kind;
	uint32_t count;			  /* sectors */
	uint64_t start_ns, first, number; /* first sector of the footprint, of the volume */
	uint32_t *least;
	struct load_op *next; /* free */
};

struct load {
	struct peer *peer;
	struct load_plan plan;
	struct load_check check;
	struct load_stat *stat;
	struct load_op *ops, *free;
	uint32_t *least;
	struct load_place held; /* could not be sent yet */
	uint8_t phase;		/* enum load_phase */
	bool holds, flush_due, failed, asked_again;
	uint32_t flying, depth, sample;
	uint64_t sent, limit, stop_ns; /* limit: operations; stop_ns 0: none */
};

static void load_fill_pipe(struct load *load);

static inline const struct load_options *load_options_of(const struct load *load)
{
	return load->peer->options;
}

/* --- one operation ----------------------------------------------------------------- */

static void load_answered(struct load *load, const struct load_op *op, const struct call *call)
{
	struct load_stat *stat = load->stat;
	bool checks = load->check.how != LOAD_VERIFY_NONE;
	if (unlikely(call->result)) {
		stat->errors++;
	} else if (checks && op->kind == LOAD_READ) {
		uint32_t bad =
			load_check_read(&load->check, call, op->first, op->number, op->least);
		stat->verify_errors += bad;
		if (bad)
			peer_count(load->peer, 0, bad);
	}
	if (checks && op->kind == LOAD_WRITE)
		load_check_written(&load->check, op->first, op->count, call->result != 0);
	if (load->phase < LOAD_RUNNING)
		return;
	stat->ops[op->kind]++;
	stat->bytes[op->kind] += call->length;
	if (op->start_ns)
		load_fine_add(&stat->latency[op->kind], clock_now_ns() - op->start_ns);
	if (++stat->chunk_ops == load_options_of(load)->chunk) {
		uint64_t now = clock_now_ns();
		load_fine_add(&stat->chunk, now - stat->chunk_ns);
		stat->chunk_ns = now;
		stat->chunk_ops = 0;
	}
}

static void load_done(struct call *call)
{
	struct load *load = call->peer->state;
	struct load_op *op = call->context;
	load_answered(load, op, call);
	call_end(call);
	op->next = load->free;
	load->free = op;
	load->flying--;
	load_fill_pipe(load);
}

static void load_fill_data(struct load *load, struct load_op *op, struct call *call)
{
	struct iovec iov[LOAD_PIECES];
	if (load->check.how != LOAD_VERIFY_NONE)
		load_check_fill(&load->check, call, op->first, op->number);
	else if (load_options_of(load)->fill) {
		int count = call_iov(call, 0, call->length, iov, LOAD_PIECES);
		for (int i = 0; i < count; i++)
			memset(iov[i].iov_base, (int)(load->sent & 0xff), iov[i].iov_len);
	}
}

static unsigned load_flags(const struct load *load, bool write)
{
	const struct load_options *options = load_options_of(load);
	bool run = load->phase == LOAD_RUNNING;
	if (write)
		return (options->donate && run ? XSEG_F_DONATE : 0u) |
		       (options->fua && run ? XSEG_F_FUA : 0u);
	return options->pin && run ? XSEG_F_PIN : 0;
}

static bool load_again(struct peer *peer, void *context)
{
	struct load *load = context;
	(void)peer;
	load->asked_again = false;
	load_fill_pipe(load);
	return true;
}

/* Slots or pages are out: when there may be some. */
static bool load_starved(struct load *load)
{
	if (!load->asked_again) {
		load->asked_again = true;
		peer_retry(load->peer, load_again, load);
	}
	return false;
}

static void load_send(struct load *load, struct load_op *op, struct call *call)
{
	load->free = op->next;
	load->flying++;
	op->start_ns = 0;
	if (load->sample == 1 || load->sent % load->sample == 0 || op->kind == LOAD_FLUSH)
		op->start_ns = clock_now_ns();
	call->context = op;
	call_submit(call, 0, load_done);
}

static bool load_send_flush(struct load *load)
{
	struct load_op *op = load->free;
	struct call *call;
	if (call_begin(load->peer, &call))
		return load_starved(load);
	call->op = XSEG_OP_FLUSH;
	call->key = (struct xseg_key){.volume = load_options_of(load)->volume};
	op->kind = LOAD_FLUSH;
	load->flush_due = false;
	load_send(load, op, call);
	return true;
}

/* False: not now. */
static bool load_send_place(struct load *load, const struct load_place *place)
{
	struct load_plan *plan = &load->plan;
	struct load_op *op = load->free;
	uint32_t object = plan->objects[place->object];
	struct call *call;
	bool checks = load->check.how != LOAD_VERIFY_NONE;
	op->kind = place->write ? LOAD_WRITE : LOAD_READ;
	op->count = place->length / XSEG_SECTOR;
	op->first =
		(uint64_t)place->object * (plan->span / XSEG_SECTOR) + place->offset / XSEG_SECTOR;
	op->number = ((uint64_t)object * XSEG_OBJECT_MAX + place->offset) / XSEG_SECTOR;
	/* two writes of one sector at a time: nobody could say which one is to be found */
	if (checks && place->write && load_check_busy(&load->check, op->first, op->count))
		return false;
	if (unlikely(call_begin(load->peer, &call)))
		return load_starved(load);
	call->op = place->write ? XSEG_OP_WRITE : XSEG_OP_READ;
	call->flags = load_flags(load, place->write);
	call->key = (struct xseg_key){.volume = load_options_of(load)->volume, .object = object};
	call->offset = place->offset;
	call->length = place->length;
	if (load_options_of(load)->linear) {
		call->key.object = 0;
		call->offset += (uint64_t)object * XSEG_OBJECT_MAX;
	}
	if (unlikely(call_pages(call, place->length))) {
		call_end(call);
		return load_starved(load);
	}
	if (place->write)
		load_fill_data(load, op, call);
	else if (checks)
		load_check_note(&load->check, op->first, op->count, op->least);
	load_send(load, op, call);
	return true;
}

/* --- how much ---------------------------------------------------------------------------- */

static bool load_over(const struct load *load)
{
	const struct load_options *options = load_options_of(load);
	if (load->phase < LOAD_RUNNING || (!options->count && !options->time))
		return load->plan.rounds > 0;
	return (load->limit && load->sent >= load->limit) ||
	       (load->stop_ns && peer_now_ns(load->peer) >= load->stop_ns);
}

static bool load_flies(unsigned phase)
{
	return phase == LOAD_WRITING || phase == LOAD_READING || phase == LOAD_RUNNING;
}

/* As many as there may be; false when the plan is at its end. */
static bool load_send_next(struct load *load)
{
	uint64_t every = load_options_of(load)->flush;
	if (load->flush_due)
		return load_send_flush(load);
	if (!load->holds) {
		if (load_over(load) || load->peer->stopping)
			return false;
		load_plan_next(&load->plan, &load->held);
		load->holds = true;
	}
	if (!load_send_place(load, &load->held))
		return false;
	load->holds = false;
	load->sent++;
	if (every && load->phase == LOAD_RUNNING && load->sent % every == 0)
		load->flush_due = true;
	return true;
}

static void load_fill_pipe(struct load *load)
{
	if (unlikely(!load_flies(load->phase)))
		return;
	while (load->flying < load->depth && load_send_next(load))
		;
}

/* --- phases ---------------------------------------------------------------------------------- */

static void load_enter(struct load *load, enum load_phase phase)
{
	const struct load_options *options = load_options_of(load);
	uint64_t prepare_bs = options->bs;
	/* whole spans, in pieces that are not too small */
	if (prepare_bs < LOAD_PREPARE_BS && load->plan.span % LOAD_PREPARE_BS == 0)
		prepare_bs = LOAD_PREPARE_BS;
	sm_move(load_phases, &load->phase, phase);
	load->depth = 16;
	load->sent = 0;
	switch (phase) {
	case LOAD_WRITING:
		load_plan_begin(&load->plan, LOAD_SEQUENTIAL, (uint32_t)prepare_bs, 0, 0);
		break;
	case LOAD_FLUSHING: load->flush_due = true; break;
	case LOAD_READING: /* in no order, or a cache takes it for a stream and lets it pass */
		load_plan_begin(&load->plan, LOAD_RANDOM, (uint32_t)options->bs, 100, 0);
		break;
	case LOAD_RUNNING: load->depth = (uint32_t)options->qd; break;
	default: break;
	}
}

static void load_ready(struct load *load)
{
	struct load_shared *shared = load->peer->shared;
	load_enter(load, LOAD_READY);
	if (atomic_fetch_add(&shared->ready, 1) + 1 < load->peer->shards)
		return;
	shared->begin_cpu_ns = load_cpu_ns();
	shared->begin_ns = clock_now_ns();
	atomic_store(&shared->go, true);
}

static void load_run(struct load *load)
{
	const struct load_options *options = load_options_of(load);
	struct load_shared *shared = load->peer->shared;
	load_plan_begin(&load->plan, (enum load_pattern)options->pattern, (uint32_t)options->bs,
		(unsigned)options->mix, shared->theta);
	load->limit = (options->count + load->peer->shards - 1) / load->peer->shards;
	load->stop_ns = options->time ? shared->begin_ns + options->time : 0;
	load->stat->chunk_ns = clock_now_ns();
	load_enter(load, LOAD_RUNNING);
}

/* The last of the shards says what was found, and ends the process. */
static void load_leave(struct load *load)
{
	struct load_shared *shared = load->peer->shared;
	load->stat->end_ns = clock_now_ns();
	load->stat->rounds = load->plan.rounds;
	load_enter(load, LOAD_DONE);
	if (atomic_fetch_add(&shared->ended, 1) + 1 < load->peer->shards)
		return;
	if (atomic_load(&shared->early) || load->failed) {
		peer_fatal(load->peer, "ended before it had begun");
		return;
	}
	int64_t bad = load_report(shared, load->peer);
	if (bad)
		peer_fatal(load->peer, "%lld errors", (long long)bad);
	else
		peer_stop_host(load->peer);
}

/* Room for what is on its way, and for what the footprint must hold. */
static int load_room(struct load *load)
{
	const struct load_options *options = load_options_of(load);
	struct load_shared *shared = load->peer->shared;
	uint32_t most = (uint32_t)(options->bs > LOAD_PREPARE_BS ? options->bs : LOAD_PREPARE_BS);
	uint32_t deep = options->qd > 16 ? (uint32_t)options->qd : 16;
	if (shared->trace.length_max > most)
		most = shared->trace.length_max;
	most /= XSEG_SECTOR;
	load->ops = calloc(deep + 1, sizeof(*load->ops));
	bool checks = options->verify != LOAD_VERIFY_NONE;
	load->least = checks ? calloc((deep + 1) * (size_t)most, sizeof(*load->least)) : NULL;
	if (!load->ops || (checks && !load->least))
		return -ENOMEM;
	for (uint32_t i = 0; i <= deep; i++) {
		struct load_op *op = &load->ops[i];
		op->least = checks ? load->least + (size_t)i * most : NULL;
		op->next = load->free;
		load->free = op;
	}
	return load_check_open(&load->check, options,
		(uint64_t)load->plan.object_count * (load->plan.span / XSEG_SECTOR));
}

/* The target serves: now it is known which objects are ours. */
static void load_begin(struct load *load)
{
	struct peer *peer = load->peer;
	const struct load_options *options = peer->options;
	struct load_shared *shared = peer->shared;
	const struct xseg *seg = peer_segment(peer);
	uint32_t port = xseg_edge_port(seg, peer->edge[0]);
	struct xseg_frame any = {.lane = XSEG_LANE_ANY};
	if (port == XSEG_NONE || xseg_port_lane(seg, port, &any) == XSEG_NONE)
		return;
	int error = load_plan_open(&load->plan, peer, port, &shared->trace);
	if (!error)
		error = load_room(load);
	if (error) {
		load->failed = true;
		peer_fatal(peer, "cannot begin: %s", strerror(-error));
		load_enter(load, LOAD_LEAVING);
	} else if (options->prepare == LOAD_PREPARE_WRITE || options->prepare == LOAD_PREPARE_BOTH)
		load_enter(load, LOAD_WRITING);
	else if (options->prepare == LOAD_PREPARE_READ)
		load_enter(load, LOAD_READING);
	else
		load_ready(load);
}

/* On to the next phase, when this one is over. */
static void load_step(struct load *load)
{
	const struct load_options *options = load_options_of(load);
	const struct load_shared *shared = load->peer->shared;
	bool idle = load->flying == 0 && !load->holds && !load->flush_due;
	switch (load->phase) {
	case LOAD_WAITING: load_begin(load); break;
	case LOAD_WRITING:
		if (idle && load_over(load))
			load_enter(load, LOAD_FLUSHING);
		break;
	case LOAD_FLUSHING:
		if (load->flush_due)
			load_send_flush(load);
		else if (idle && options->prepare == LOAD_PREPARE_BOTH)
			load_enter(load, LOAD_READING);
		else if (idle)
			load_ready(load);
		break;
	case LOAD_READING:
		if (idle && load_over(load))
			load_ready(load);
		break;
	case LOAD_READY:
		if (atomic_load(&shared->go))
			load_run(load);
		break;
	case LOAD_RUNNING:
		if (idle && (load_over(load) || load->peer->stopping))
			load_enter(load, LOAD_LEAVING);
		break;
	case LOAD_LEAVING: load_leave(load); break;
	case LOAD_DONE: break;
	}
}

static bool load_poll(struct peer *peer)
{
	struct load *load = peer->state;
	uint8_t phase = load->phase;
	if (phase == LOAD_RUNNING && load->flying)
		return false;
	load_step(load);
	if (load->flying == 0)
		load_fill_pipe(load);
	return phase != load->phase;
}

/* Others are waited for without a bell. */
static bool load_sleep(struct peer *peer)
{
	struct load *load = peer->state;
	if (load->phase == LOAD_WAITING)
		peer_wake_at(peer, peer_now_ns(peer) + 1000000);
	return load->phase == LOAD_WAITING || load->phase == LOAD_DONE || load->flying > 0 ||
	       load->asked_again;
}

/* Told to end before the end: what has been done by then counts. */
static void load_stop(struct peer *peer)
{
	struct load *load = peer->state;
	struct load_shared *shared = peer->shared;
	load->holds = false;
	load->flush_due = false;
	if (load->phase >= LOAD_RUNNING)
		return;
	atomic_store(&shared->early, true);
	load_enter(load, LOAD_LEAVING);
}

static bool load_idle(struct peer *peer)
{
	const struct load *load = peer->state;
	return load->phase == LOAD_DONE && load->flying == 0;
}

/* --- entry points -------------------------------------------------------------------------- */

static int load_refuse(char *why, size_t why_size, const char *text)
{
	snprintf(why, why_size, "%s", text);
	return -EINVAL;
}

static int load_open(struct peer *first, char *why, size_t why_size)
{
	const struct load_options *options = first->options;
	struct load_shared *shared = first->shared;
	char *end;
	shared->theta = strtod(options->theta, &end);
	if (*end || !(shared->theta > 0 && shared->theta <= 10))
		return load_refuse(why, why_size, "theta is above 0 and at most 10");
	if (options->bs % XSEG_SECTOR || options->span % options->bs)
		return load_refuse(
			why, why_size, "bs is a multiple of 512 bytes, and span is one of bs");
	if ((options->pattern == LOAD_TRACE) != (options->trace && *options->trace))
		return load_refuse(why, why_size, "pattern=trace and trace=FILE go together");
	if (options->pattern == LOAD_TRACE && options->span != XSEG_OBJECT_MAX)
		return load_refuse(why, why_size, "a trace uses whole objects: no span");
	if (options->pattern != LOAD_TRACE && options->size / options->bs < first->shards)
		return load_refuse(why, why_size, "size is less than a block for each lane");
	for (unsigned i = 0; i < first->shards; i++) {
		shared->stat[i] = calloc(1, sizeof(*shared->stat[i]));
		if (!shared->stat[i])
			return -ENOMEM;
	}
	return options->pattern == LOAD_TRACE
		       ? load_trace_open(&shared->trace, options->trace, why, why_size)
		       : 0;
}

static void load_close(struct peer *first)
{
	struct load_shared *shared = first->shared;
	load_trace_close(&shared->trace);
	for (unsigned i = 0; i < XSEG_PORT_LANES_MAX; i++)
		free(shared->stat[i]);
}

static int load_start(struct peer *peer, char *why, size_t why_size)
{
	struct load *load = peer->state;
	const struct load_shared *shared = peer->shared;
	const struct load_options *options = peer->options;
	(void)why;
	(void)why_size;
	load->peer = peer;
	load->stat = shared->stat[peer->shard];
	load->sample = options->qd > LOAD_SHALLOW ? LOAD_SAMPLE : 1;
	return 0;
}

static void load_finish(struct peer *peer)
{
	struct load *load = peer->state;
	load_plan_close(&load->plan);
	load_check_close(&load->check);
	free(load->ops);
	free(load->least);
}

static const struct peer_ops load_ops = {
	.name = "load",
	.summary = "asks a port for objects, for benches and tests",
	.options = load_options,
	.options_size = sizeof(struct load_options),
	.state_size = sizeof(struct load),
	.shared_size = sizeof(struct load_shared),
	.edges = load_edges,
	.counters = load_counters,
	.open = load_open,
	.close = load_close,
	.start = load_start,
	.finish = load_finish,
	.stop = load_stop,
	.idle = load_idle,
	.poll = load_poll,
	.sleep = load_sleep,
};
PEER_MODULE(load_ops);
