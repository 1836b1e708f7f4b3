/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the rooms of the core share: the process (host), its threads (lanes) and the part of a
 * peer that runs on one of them (shard).
 *
 *   host ── lane 0 ── shard of nbd0, shard of vol0, shard of mem0
 *        `─ lane 1 ── shard of nbd0, shard of vol0, shard of mem0
 *
 * Threads: a lane and all that hangs from it belong to its thread. What the main thread and the
 * lanes say to each other goes through host->mutex or an atomic.
 */
#ifndef SKERRY_PEERS_CORE_H
#define SKERRY_PEERS_CORE_H

#include <base/must.h>
#include <base/slab.h>
#include <errno.h>
#include <peer/call.h>
#include <peer/job.h>
#include <peer/worker.h>
#include <pthread.h>
#include <stdatomic.h>
#include <urcu/wfcqueue.h>
#include <xseg/lane.h>
#include <xseg/resident.h>

#define HOST_PEERS_MAX 32u
#define HOST_LANES_MAX XSEG_PORT_LANES_MAX
#define WHY_SIZE XSEG_WHY_SIZE

/* More extents than fit into a job or call. */
#define LIST_PAGE_EXTENTS (XSEG_PAGE / sizeof(struct xseg_extent))
#define EXTENTS_MAX (XSEG_EXTENTS + XSEG_LIST_PAGES * LIST_PAGE_EXTENTS)
struct extent_list {
	uint32_t index, reserved;
	struct xseg_extent extents[EXTENTS_MAX];
};

struct retry {
	uint32_t index, next;
	retry_f *again;
	void *context;
};

/* --- a peer's part on one lane --------------------------------------------------- */

#define FLUSH_FANS 4u
struct flush_fan {
	struct job *leader; /* NULL: free */
	struct job_queue joined;
};

/* A volume that calls of a front on this lane were for. */
#define SHARD_VOLUMES 256u
struct shard_volume {
	uint64_t volume;		 /* 0: free */
	struct xseg_volume_block *block; /* the lane's `uncounted`: the segment had none */
	uint64_t used_ns;
	uint32_t opens;
};

struct shard {
	_Alignas(64) struct peer peer; /* what the role sees */
	struct host_peer *owner;
	uint32_t jobs, calls, posts; /* in flight */
	uint32_t jobs_shown, calls_shown;
	uint32_t retry_head, retry_tail;
	/* may be taken before looking at the pool again */
	uint32_t slot_credit, page_credit, store_credit;
	uint64_t slots_turn, pages_turn; /* when it was last looked at in vain */
	uint64_t wake_ns;
	/* flushes of the whole port: waiting, and asked of all shards */
	struct job_queue flushes;
	struct flush_fan fans[FLUSH_FANS];
	unsigned fans_out;
	bool front; /* serves no requests: its calls are what the pipeline is there for */
	bool started, finished, private_stats;
	/* counted volume by volume */
	struct shard_volume *last_volume;
	uint64_t volumes_sweep_ns;
	uint64_t volumes_full_ns; /* the segment had no block more: not asked before that */
	uint32_t level_seen;	  /* of its record */
	struct shard_volume volumes[SHARD_VOLUMES];
};

static inline struct shard *shard_of(const struct peer *peer)
{
	return (struct shard *)(uintptr_t)peer;
}

/* Counters that the core keeps for every peer; names in core_shard.c, in this order. */
enum core_counter {
	CORE_READS,
	CORE_READ_BYTES,
	CORE_WRITES,
	CORE_WRITE_BYTES,
	CORE_ZEROS,
	CORE_ZERO_BYTES,
	CORE_FLUSHES,
	CORE_OTHERS,
	CORE_ERRORS,
	CORE_REFUSED,
	CORE_UNSUPPORTED,
	CORE_JOBS,
	CORE_CALLS,
	CORE_CALLS_OUT,
	CORE_RETRIES,
	CORE_SLOW_TURNS,
	CORE_COUNTERS
};
fixed(CORE_COUNTERS == PEER_CORE_COUNTERS);

struct op_class {
	uint8_t counter, histogram;
	bool data; /* counter + 1 counts bytes */
};
extern const struct op_class op_classes[XSEG_OP_COUNT];

/* An answer that says what is there is none: a CAS that found another version, a look at what does
   not exist. */
static inline bool is_error(enum xseg_op op, int result)
{
	if (op == XSEG_OP_CAS)
		return result != -ENOENT && result != -EEXIST && result != -ESTALE;
	return op != XSEG_OP_INFO || result != -ENOENT;
}

static inline void shard_account(
	struct shard *shard, enum xseg_op op, uint32_t bytes, int result, uint64_t ns)
{
	const struct op_class *class = &op_classes[op];
	struct xseg_stats_block *stats = shard->peer.stats;
	xseg_count(stats, class->counter, 1);
	if (unlikely(result))
		xseg_count(stats, CORE_ERRORS, is_error(op, result));
	else if (class->data)
		xseg_count(stats, class->counter + 1u, bytes);
	xseg_record(stats, class->histogram, ns);
}

/* A call that was answered: counted for its volume; OPEN and CLOSE say which there are. */
void volume_account_slow(struct shard *shard, const struct call *call, uint64_t ns);
/* Those that nobody has used for a while give their blocks back. */
void volume_sweep(struct shard *shard, uint64_t now);
void volume_finish(struct shard *shard);

fixed(XSEG_OP_READ - 1 == XSEG_VOLUME_OP_READ && XSEG_OP_WRITE - 1 == XSEG_VOLUME_OP_WRITE);
static inline void volume_account(
	struct shard *shard, const struct call *call, uint64_t now, uint64_t ns)
{
	struct shard_volume *last = shard->last_volume;
	if (likely(last && last->volume == call->key.volume && call->op <= XSEG_OP_WRITE &&
		    call->result == 0)) {
		last->used_ns = now;
		xseg_volume_record(last->block, call->op - 1u, call->answer_length, ns);
	} else {
		volume_account_slow(shard, call, ns);
	}
}

/* Does the segment ask for another log level? Looked at once a second, by every shard. */
void level_look(struct shard *shard);
void level_begin(struct shard *shard);

int shard_start(struct shard *shard, char *why);
void shard_finish(struct shard *shard);
bool shard_idle(struct shard *shard);
void shard_dump(struct shard *shard, FILE *out);

/*
 * Which is better just now, to spin before sleeping or to sleep at once, cannot be known from
 * inside: it depends on where the partners run and whether they sleep themselves. So both are
 * tried for a moment, again and again, and the one that got more done is kept in between.
 */
enum lane_phase { LANE_TRY_SLEEP, LANE_TRY_SPIN, LANE_HOLD };

struct lane_polling {
	enum lane_phase phase;
	bool spins;	   /* the choice while it is held */
	uint64_t since_ns; /* beginning of this phase, or of a part of it */
	uint64_t cpu_ns;   /* the lane's CPU time then */
	uint64_t hold_ns;  /* how long a choice is kept: longer each time it is confirmed */
	uint64_t ends_ns;  /* of the choice */
	uint64_t work;	   /* hints taken in this phase */
	double sleep_rate; /* of the last try, hints per ns */
	double sleep_cpu;  /* ns per hint */
	double rate;	   /* of what was chosen */
};

/* The next phase, when this one has lasted long enough; true: spin before sleeping. */
bool polling_spins(struct lane_polling *polling, struct xseg_lane *x);

/* --- a lane ------------------------------------------------------------------------ */

struct lane {
	struct xseg_lane *x;
	struct host *host;
	unsigned index; /* within the host */
	unsigned shard_count;
	uint64_t word; /* of its record, as long as it is ours */
	struct shard *shard[HOST_PEERS_MAX];
	struct shard *by_port[XSEG_PORTS_MAX];
	struct slab jobs, calls, lists, retries;
	struct call *failed, **failed_tail;
	uint64_t turn;
	uint64_t stray; /* hints and replies that made no sense */
	/* what calls for volumes do that the segment has no block for, and nobody sees */
	struct xseg_volume_block uncounted;
	/* sleeping */
	bool now_stale;	  /* we have slept since now was read */
	bool slept;	  /* in this turn: it is not to be timed */
	bool moved;	  /* the last turn did something */
	uint64_t turn_ns; /* when this turn began */
	bool draining;
	struct event_base *base;
	struct event *bell_event, *timer_event;
	int timer_fd;
	uint64_t timer_ns; /* when it fires; 0: it has */
	uint64_t events_ns;
	uint64_t idle_ns; /* since when nothing has moved; 0: something has */
	struct lane_polling polling;
	/* what other threads hand to it: put in the queue, then counted */
	_Atomic uint32_t posted;
	uint32_t posts_taken;
	struct cds_wfcq_head post_head;
	_Alignas(64) struct cds_wfcq_tail post_tail;
	_Atomic uint32_t commands;
	pthread_t thread;
	bool joined;
	uint64_t seen_turn; /* by host_alive() */
	uint32_t place;	    /* its index in the segment; stays when x has gone */
	int start_error;
	char why[WHY_SIZE];
};

/* lane->commands */
enum { LANE_STOP = 1 << 0, LANE_DUMP = 1 << 1, LANE_EXIT = 1 << 2, LANE_WAKE = 1 << 3 };

int lane_init(struct lane *lane);
void lane_fini(struct lane *lane);
void lane_run(struct lane *lane);
/* Any thread: looks at its commands and completions soon. */
void lane_ring(struct lane *lane);

/* Now may be old when we come out of the event loop. */
static inline uint64_t lane_now(struct lane *lane)
{
	if (unlikely(lane->now_stale)) {
		lane->x->now_ns = clock_now_ns();
		lane->now_stale = false;
	}
	return lane->x->now_ns;
}

/* A hint says there is a request for us, or an answer. */
void job_arrive(struct lane *lane, uint32_t slot);
/* The same in two steps: taken and checked (NULL: there is nothing to serve), then handed to its
   handler. */
struct job *job_take(struct lane *lane, uint32_t slot);
void job_serve(struct job *job);
void call_arrive(struct lane *lane, uint32_t slot);
/* Calls that could not be sent are done now; true when there were any. */
bool call_fail_pending(struct lane *lane);
/* May this shard take a slot, or that many pages? Fronts leave some for those below. */
bool retry_slot_allowed(struct shard *shard);
bool retry_pages_allowed(struct shard *shard, uint32_t count);
/* A flush of the whole port, on the one shard that got it. */
void flush_init(struct shard *shard);
void flush_arrive(struct shard *shard, struct job *job);
/* A call to a port, within the core; `shard` set as wanted. */
int call_begin_reserved(struct peer *peer, struct call **call);
void call_submit_port(struct call *call, uint32_t port, struct job *job, call_done_f *done);
bool retry_run(struct shard *shard);
bool post_collect(struct lane *lane);
static inline bool post_waiting(struct lane *lane)
{
	return atomic_load_explicit(&lane->posted, memory_order_acquire) != lane->posts_taken;
}
void worker_pool_start(unsigned workers_max);
void worker_pool_stop(void);

/* --- data behind extents --------------------------------------------------------- */

struct data_view {
	const struct xseg *seg;
	const struct xseg_extent *extents;
	uint32_t extent_count, data_offset, data_size;
};

/* What lies behind these extents from data_offset on; false when they are not in the segment. */
bool data_measure(const struct xseg *seg, const struct xseg_extent *extents, uint32_t count,
	uint32_t data_offset, uint32_t *data_size);
int data_iov(
	const struct data_view *view, uint32_t at, uint32_t length, struct iovec *iov, int max);
void data_put(const struct data_view *view, uint32_t at, const void *from, uint32_t length);
void data_get(const struct data_view *view, uint32_t at, void *to, uint32_t length);
void data_zero(const struct data_view *view, uint32_t at, uint32_t length);
/* The runs that hold [at, at + length), at most max; how many, or -E2BIG. */
int data_slice(const struct data_view *view, uint32_t at, uint32_t length, struct xseg_extent *out,
	uint32_t max);

/* --- the process ------------------------------------------------------------------ */

struct host_edge {
	const char *name;   /* of the role's table */
	const char *target; /* a peer's name, or NULL: as the segment says */
};

/* A peer as the command line names it. */
struct host_peer {
	char name[NAME_LENGTH_MAX + 1];
	char role[NAME_LENGTH_MAX + 1];
	const struct peer_ops *ops;
	void *module;
	void *options, *shared;
	struct host_edge edge[PEER_EDGES_MAX];
	char *text; /* what edge[].target points into */
	uint32_t edge_index[PEER_EDGES_MAX];
	uint32_t record, port;
	uint16_t epoch;
	bool joined, opened, bound;
	unsigned rank; /* 0: nobody in this process is above it */
	struct shard *shards;
	_Atomic unsigned shards_done;
};

enum host_phase { HOST_JOINING, HOST_STARTING, HOST_RUNNING, HOST_ENDING };

struct host_config {
	const char *segment;
	unsigned lanes, workers;
	uint64_t drain_ns;
};

struct host {
	struct host_config config;
	struct xseg seg;
	bool joined;
	int log_level; /* as it was started */
	struct host_peer peers[HOST_PEERS_MAX];
	unsigned peer_count;
	struct host_peer *order[HOST_PEERS_MAX]; /* from the top down */
	struct lane lanes[HOST_LANES_MAX];
	unsigned lane_count;
	/* between the main thread and the lanes */
	pthread_mutex_t mutex;
	pthread_cond_t changed;
	enum host_phase phase;
	unsigned reported;	   /* lanes that have done this phase's part */
	_Atomic unsigned stopping; /* peers of the order that have been asked to stop */
	_Atomic int status;	   /* what the process will exit with */
	FILE *dump;
	pthread_t main_thread;
	/* for the threads that are no lanes */
	pthread_mutex_t ring_mutex;
	struct xseg_ringer ringer;
};

/* PEER=ROLE[,option=value]... ; `why` names what is wrong with it. */
int spec_host_add(struct host *host, const char *spec, char why[WHY_SIZE]);
void spec_peer_free(struct host_peer *peer);
/* Joins the segment, starts the lanes and the peers; on error nothing is left of it. */
int host_start(struct host *host, const struct host_config *config, char why[WHY_SIZE]);
/*
 * Stops the peers from the top down, each when those above have ended. False: the drain limit is
 * over, or hurry() (asked now and then; may be NULL) said so, and something is left.
 */
bool host_stop(struct host *host, bool (*hurry)(void));
/* Ends the lanes, gives everything back. */
void host_fini(struct host *host);
void host_dump(struct host *host, FILE *out);
/* Has each lane made a turn since the last time? They do, once a second at least. */
bool host_alive(struct host *host);
/* Asks the main thread to stop everything, with this exit status. */
void host_ask_stop(struct host *host, int status);

/* --- modules, options, words --------------------------------------------------------- */

/* Opens ROLE.so; -ENOENT with the roles there are. */
int module_open(const char *role, void **module, const struct peer_ops **ops, char why[WHY_SIZE]);
void module_close(void *module);
/* A role without a file: tests and benches bring their own. Before the first spec_host_add(). */
void module_register(const struct peer_ops *ops);
int module_visit(void (*visit)(const struct peer_ops *ops, void *context), void *context);

int option_set(const struct peer_option *table, void *options, const char *key, const char *value,
	char why[WHY_SIZE]);
int option_defaults(const struct peer_option *table, void *options, char why[WHY_SIZE]);
/* `given` has one bool for each row. */
int option_missing(const struct peer_option *table, const bool *given, char why[WHY_SIZE]);
const struct peer_option *option_find(const struct peer_option *table, const char *key);
/* " Did you mean 'x'?" or the list of what there is. */
void option_hint(const struct peer_option *table, const char *const *edges, const char *key,
	char *out, size_t size);
void option_clear(const struct peer_option *option, void *options);
void option_free(const struct peer_option *table, void *options);
size_t option_count(const struct peer_option *table);
/* "1 to 64 files", "at least 4.0 KiB"; empty when all values do. */
const char *option_range(const struct peer_option *option, char *out, size_t size);

void man_help(const struct peer_ops *ops, FILE *out);
void man_page(const struct peer_ops *ops, FILE *out);
void describe_role(const struct peer_ops *ops, FILE *out); /* as JSON */

/* The service manager, if there is one. */
void notify_ready(const char *status);
/* successor: one is about to take our place; see notify_handover(). */
void notify_stopping(uint64_t limit_ns, bool successor);
void notify_alive(void);
/* Closes what was handed over and nobody took. */
void notify_drop_rest(void);

#endif
