/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The load: a peer that asks a port for objects as fast as it can, for benches and tests.
 *
 *   load.c          the peer: options, phases, what is on its way
 *   load_plan.c     which block comes next                     load_trace.c  traces from files
 *   load_check.c    what blocks must hold, and whether they do load_stat.c   figures, the report
 *
 * Units: bytes, ns; sectors of 512 bytes. Errors: 0 or -errno. Ownership: a shard's own, but for
 * struct load_shared. Threads: the shard's lane. Blocking: open() reads the trace, the last shard
 * writes the report.
 */
#ifndef SKERRY_BENCH_LOAD_H
#define SKERRY_BENCH_LOAD_H

#include <peer/call.h>
#include <stdatomic.h>

enum load_pattern { LOAD_SEQUENTIAL, LOAD_RANDOM, LOAD_ZIPF, LOAD_TRACE };
enum load_verify { LOAD_VERIFY_NONE, LOAD_VERIFY_META, LOAD_VERIFY_FULL };
enum load_prepare { LOAD_PREPARE_NONE, LOAD_PREPARE_WRITE, LOAD_PREPARE_READ, LOAD_PREPARE_BOTH };

struct load_options {
	uint64_t pattern, mix, bs, qd, size, span, volume, count, time, verify, seed, flush;
	uint64_t prepare, chunk;
	char *theta, *trace, *report;
	bool donate, pin, fill, fresh, fua, linear;
};

/* --- traces ------------------------------------------------------------------- */

struct load_record {
	uint32_t object; /* numbered by when they are first met */
	uint32_t offset;
	uint32_t length : 31; /* within the object */
	uint32_t write : 1;
};

struct load_trace {
	struct load_record *records;
	uint64_t count;
	uint32_t objects;
	uint32_t length_max;
	bool knows_writes; /* false: the mix says which are */
};

/* CSV (version,time,op,size,lbn or time,host,disk,op,offset,size,...), vscsi 1 and 2, or block
   numbers of 4 KiB as 32-bit words; FILE or FILE.xz. The sentence in `why` goes to the user. */
int load_trace_open(struct load_trace *trace, const char *path, char *why, size_t why_size);
void load_trace_close(struct load_trace *trace);

/* --- the plan ---------------------------------------------------------------------- */

/* A part of one object, of those of this shard. */
struct load_place {
	uint32_t object; /* which of the plan's */
	uint32_t offset, length;
	bool write;
};

struct load_zipf {
	double theta, at_end, at_start, shift;
};

struct load_plan {
	enum load_pattern pattern;
	uint32_t *objects; /* their numbers in the volume */
	uint32_t object_count, span, bs, per_object;
	uint64_t blocks;
	uint64_t next, rounds;
	uint64_t random; /* state */
	uint64_t key;	 /* of this round's order */
	unsigned bits;	 /* blocks <= 1 << bits */
	unsigned mix;
	struct load_zipf zipf;
	const struct load_trace *trace;
	unsigned shard, shards;
};

/* The objects of this shard, of a footprint of `size` in all; the pattern comes with _begin(). */
int load_plan_open(
	struct load_plan *plan, struct peer *peer, uint32_t port, const struct load_trace *trace);
void load_plan_close(struct load_plan *plan);
void load_plan_begin(
	struct load_plan *plan, enum load_pattern pattern, uint32_t bs, unsigned mix, double theta);
/* The next; plan->rounds grows when all blocks (or the whole trace) have been. */
void load_plan_next(struct load_plan *plan, struct load_place *place);
static inline uint64_t load_random(uint64_t *state)
{
	uint64_t x = *state;
	x ^= x << 13;
	x ^= x >> 7;
	x ^= x << 17;
	return *state = x;
}

/* --- what blocks must hold ------------------------------------------------------------- */

/*
 * Each sector has a version that grows by one with each write: `sent` the newest that was asked
 * for, `done` the newest that was answered. A read must find one that is not older than what was
 * answered when it was asked for, and not newer than what was sent.
 */
struct load_check {
	enum load_verify how;
	uint32_t *sent, *done;
	uint64_t sectors, volume, seed;
};
/* done: not known what is there until it is written; is being written */
#define LOAD_UNKNOWN UINT32_MAX
#define LOAD_UNKNOWN_BUSY (UINT32_MAX - 1)

int load_check_open(struct load_check *check, const struct load_options *options, uint64_t sectors);
void load_check_close(struct load_check *check);
/* Is a write to any of these on its way? */
bool load_check_busy(const struct load_check *check, uint64_t first, uint32_t count);
/* A write: new versions, the data of the call. `number`: of the first sector, in the volume. */
void load_check_fill(struct load_check *check, struct call *call, uint64_t first, uint64_t number);
void load_check_written(struct load_check *check, uint64_t first, uint32_t count, bool failed);
/* A read: what is to be found at the least; then, how many sectors are not as they must be. */
void load_check_note(
	const struct load_check *check, uint64_t first, uint32_t count, uint32_t *least);
uint32_t load_check_read(const struct load_check *check, const struct call *call, uint64_t first,
	uint64_t number, const uint32_t *least);

/* --- figures ------------------------------------------------------------------------------ */

enum load_kind { LOAD_READ, LOAD_WRITE, LOAD_FLUSH, LOAD_KINDS };

#define LOAD_FINE_BITS 7u /* 128 buckets to the octave: known to 0.8 % */
#define LOAD_FINE_BUCKETS (36u << LOAD_FINE_BITS)

struct load_fine {
	uint64_t count, max;
	uint64_t bucket[LOAD_FINE_BUCKETS];
};

struct load_stat {
	uint64_t ops[LOAD_KINDS], bytes[LOAD_KINDS];
	uint64_t errors, verify_errors, rounds;
	uint64_t end_ns, chunk_ops, chunk_ns;
	struct load_fine latency[LOAD_KINDS];
	struct load_fine chunk; /* ns of so many operations */
};

struct load_shared {
	struct load_trace trace;
	double theta;
	struct load_stat *stat[XSEG_PORT_LANES_MAX];
	_Atomic unsigned ready, ended;
	_Atomic bool go, early; /* early: told to stop before it had begun */
	uint64_t begin_ns, begin_cpu_ns;
};

void load_fine_add(struct load_fine *fine, uint64_t value);
double load_fine_quantile(const struct load_fine *fine, double share);
uint64_t load_cpu_ns(void);
/* A line on stdout, the file if one is named; errors of all kinds, or -1: it cannot be written. */
int64_t load_report(const struct load_shared *shared, const struct peer *peer);

#endif
