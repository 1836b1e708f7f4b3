/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A peer: a program part with one job that speaks only through the segment. A module
 * (ROLE.so) exports `const struct peer_ops *const peer_module`, and which version of this interface
 * it was built with; PEER_MODULE() does it.
 *
 * A peer runs as one or more shards, one on each lane of its host process; each shard has a
 * `struct peer` and a state of its own and never meets another shard's. Requests are steered
 * by object, so an object's state lives on one shard. What shards must share lies in
 * peer->shared, and the role synchronises it itself.
 *
 * Units: bytes, ns. Errors: 0 or -errno. Threads: all calls of a shard come from its lane.
 * Blocking: no handler blocks; what must block goes to worker_run().
 */
#ifndef SKERRY_PEER_PEER_H
#define SKERRY_PEER_PEER_H

#include <peer/option.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <xseg/op.h>
#include <xseg/stats.h>

struct job;
struct call;
struct lane; /* peers/core */
struct event_base;

#define PEER_EDGES_MAX 4u
#define PEER_EDGES_ANY 0x100u /* none has to: the role checks what it needs */

struct peer {
	const struct peer_ops *ops;
	const char *name;
	void *state;	     /* ops->state_size bytes, zeroed: this shard's */
	void *shared;	     /* ops->shared_size bytes, zeroed: of all shards in this process */
	const void *options; /* ops->options_size bytes, parsed: of all shards, read-only */
	unsigned shard, shards;
	struct lane *lane;
	struct xseg_stats_block *stats; /* the role's counters start at PEER_COUNTER(0) */
	uint32_t edge[PEER_EDGES_MAX];
	uint32_t port, record; /* in the segment */
	bool stopping;	       /* stop was asked for */
};

typedef void peer_handler_f(struct peer *peer, struct job *job);

struct peer_ops {
	const char *name;		   /* the role: "blocker_null" */
	const char *summary;		   /* one line */
	const char *description;	   /* man page prose, scdoc paragraphs; may be NULL */
	const struct peer_option *options; /* ends with OPTION_END; may be NULL */
	size_t options_size, state_size, shared_size;
	const char *const *edges; /* names of the ways down, NULL-terminated; may be NULL */
	/* The edges of others that may lead here, by name: "volume", "store", "map"; "": none, as
	   only clients of other protocols ask; NULL: any. */
	const char *serves;
	unsigned edges_needed; /* so many of them must lead somewhere; 0: all; or PEER_EDGES_ANY */
	bool edges_later;      /* the others are there, too, leading nowhere until they are set */
	const struct xseg_counter *counters; /* ends with a NULL name; may be NULL */
	/* Once per process before any shard starts: checks options, opens what shards share. The
	   sentence in `why` goes to the user. May be NULL, as all below. */
	int (*open)(struct peer *first, char *why, size_t why_size);
	void (*close)(struct peer *first);
	/* A shard begins and ends; its lane runs. */
	int (*start)(struct peer *peer, char *why, size_t why_size);
	/* After the last job of the shard has ended. */
	void (*finish)(struct peer *peer);
	/* Stop was asked for: stop admitting, let what is in flight end. The shard is done when it
	   has no jobs, no calls and idle() is true. */
	void (*stop)(struct peer *peer);
	bool (*idle)(struct peer *peer);
	/* Each turn; true when something moved. For who polls sockets or rings of its own. */
	bool (*poll)(struct peer *peer);
	/* About to sleep (false: do not: there is work). */
	bool (*sleep)(struct peer *peer);
	/* Private state, for people: SIGUSR1 and `peer dump`. */
	void (*dump)(struct peer *peer, FILE *out);
	/* The job will be handed to its handler soon, after a few others: fetch the lines that it
	   will touch, change nothing but job->guess. Called twice for each of them, step 0 for all
	   before step 1 for all: what step 0 has fetched may say what step 1 has to. */
	void (*expect)(struct peer *peer, struct job *job, unsigned step);
	/* A missing handler answers -EOPNOTSUPP. */
	peer_handler_f *on[XSEG_OP_COUNT];
};

/* Grows when these headers change so that a module must be built anew; xsegpeer refuses others. */
#define PEER_INTERFACE 1u
#define PEER_MODULE(ops) \
	__attribute__((visibility("default"))) const unsigned peer_module_interface = \
		PEER_INTERFACE; \
	__attribute__((visibility("default"))) const struct peer_ops *const peer_module = &(ops)

/* Counters of the role, after the ones that the core keeps for every peer. */
#define PEER_CORE_COUNTERS 16u
#define PEER_COUNTER(n) (PEER_CORE_COUNTERS + (n))
static inline void peer_count(struct peer *peer, unsigned counter, uint64_t amount)
{
	xseg_count(peer->stats, PEER_COUNTER(counter), amount);
}
/* One whose unit is "now". */
static inline void peer_set(struct peer *peer, unsigned counter, uint64_t value)
{
	atomic_store_explicit(
		&peer->stats->counters[PEER_COUNTER(counter)], value, memory_order_relaxed);
}

/* Time of this turn. */
uint64_t peer_now_ns(const struct peer *peer);
/* The segment, to look at: who is in it (<xseg/registry.h>), where an edge leads. */
const struct xseg *peer_segment(const struct peer *peer);
/* The lane's event loop, made at the first call: the lane then sleeps in it. Call from start(). */
struct event_base *peer_event_base(struct peer *peer);
/* This lane may sleep no longer than until then (0: no limit); once. */
void peer_wake_at(struct peer *peer, uint64_t time_ns);
/* Ends the whole process with a message and status 1 (e.g. a listening socket broke). */
void peer_fatal(struct peer *peer, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* As SIGTERM would: `--single` fronts end their process when the client has left. */
void peer_stop_host(struct peer *peer);

#endif
