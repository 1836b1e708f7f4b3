/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A port of another segment, as one of this: each shard has a session with the exporter there.
 *
 *   import.c        the role: options, start, status
 *   import_link.c   the session's connections: made, greeted, made again
 *   import_job.c    jobs as requests, their answers, and all again after a cut
 *   import_fence.c  whose volumes are, for an exporter that has not heard it
 *
 *                       resolved          all welcome
 *   DOWN -----> RESOLVING ------> GREETING ------> READY
 *     ^             |                 |              |
 *     +-------------+-----------------+--------------+  cut, refused, silent
 */
#ifndef SKERRY_SYNAPSE_IMPORT_H
#define SKERRY_SYNAPSE_IMPORT_H

#include <peer/job.h>
#include <peer/tls.h>
#include <peer/worker.h>
#include <pthread.h>

#include "peers/synapse/address.h"
#include "peers/synapse/conn.h"

enum import_counter {
	IMPORT_CONNECTS,
	IMPORT_CUTS,
	IMPORT_REPLAYS,
	IMPORT_SENT,
	IMPORT_RECEIVED,
	IMPORT_SAVED,
	IMPORT_RTT,
	IMPORT_DOWN,
	IMPORT_WAITING,
	IMPORT_COUNTERS
};

enum import_choice { IMPORT_AUTO, IMPORT_YES, IMPORT_NO };

struct import_options {
	char *remote, *port, *tls_ca, *tls_cert, *tls_key, *tls_crl, *tls_name;
	bool clear_text;
	uint64_t timeout, silence, rate, checksums, compress; /* the last two: enum import_choice */
};

/* A FENCE that was answered. */
struct import_fence {
	uint64_t volume, term, line;
	unsigned flags; /* XSEG_F_READ_ONLY: nobody may write to it */
};

struct import_shared {
	uint8_t life[WIRE_LIFE]; /* random, of this process */
	struct address address;
	struct tls_context *tls;
	pthread_mutex_t lock;	    /* of what follows */
	struct import_fence *fence; /* in any order */
	uint32_t fences;
};

enum import_state {
	IMPORT_STATE_DOWN,
	IMPORT_STATE_RESOLVING,
	IMPORT_STATE_GREETING,
	IMPORT_STATE_READY
};

/* A request that has a sequence; found by its last bits. */
struct import_request {
	struct conn_out out;
	struct job *job; /* NULL: none, or its job has failed meanwhile */
	uint64_t sequence;
	uint32_t data, room;
	bool live; /* not answered */
	bool sent; /* at least once */
};

struct import_link {
	struct conn conn;
	struct import *import;
	struct conn_out greeting, ping;
	uint8_t hello[WIRE_HELLO], welcome[WIRE_WELCOME], refusal[WIRE_REFUSAL];
	bool welcomed;
	struct import_request *answer; /* what comes now; NULL: for nobody */
};

#define IMPORT_TELLS 16u /* FENCEs said again at once */

struct import {
	struct peer *peer;
	enum import_state state;
	struct import_link link[WIRE_CONNS];
	uint8_t session[16];
	uint64_t generation;
	/* requests */
	struct job_queue waiting[WIRE_CONNS][CONN_FLOWS];
	unsigned turn[WIRE_CONNS]; /* which of them is next */
	uint64_t waiting_count;
	struct import_request *table;	 /* WIRE_WINDOW of them */
	uint64_t lowest, next;		 /* sequences: of the first not answered, of the next */
	uint64_t bytes, bytes_max;	 /* of bulk data on their way */
	uint32_t requests, requests_max; /* on their way */
	uint64_t paid_ns;		 /* until then the rate is used up */
	/* FENCEs that the other end has to hear before all else */
	bool untold;		       /* there are */
	struct job tell[IMPORT_TELLS]; /* no client's; live: on their way */
	unsigned telling;	       /* of them */
	uint64_t tell_from;	       /* the lowest volume of which it has not heard */
	/* the link */
	struct worker_item resolver;
	bool resolving;
	struct address_list found;
	unsigned attempt; /* since it was last ready */
	uint64_t retry_ns, down_ns, begun_ns, ping_ns, ping_sequence;
	uint64_t rtt_ns; /* smoothed */
	bool said;	 /* that it is down, once */
	bool proven;	 /* since it is ready the other end has answered */
};

static inline const struct import_options *import_options_of(const struct import *import)
{
	return import->peer->options;
}

/* --- link ------------------------------------------------------------------------------------- */

void import_link_start(struct import *import);
/* What the time asks for: dials, greets, pings, gives up. True: something moved. */
bool import_link_turn(struct import *import);
uint64_t import_link_wake_ns(const struct import *import);
void import_link_stop(struct import *import);
/* It cannot be used as it is: all connections end, and it is tried again. */
void import_link_cut(struct import *import, const char *why);

/* --- jobs ------------------------------------------------------------------------------------- */

void import_job_take(struct peer *peer, struct job *job);
/* Sends what waits, as far as the window goes. */
bool import_job_turn(struct import *import);
/* The session is ready (again): all that is not answered is sent, in order, after what the other
   end has to hear first. */
void import_job_replay(struct import *import);
/* The connections have ended: what it had to hear first is forgotten, until there are others. */
void import_job_cut(struct import *import);
/* Nothing was heard for too long: all fail. */
void import_job_fail(struct import *import, int error);
/* The link is down: those whose clients have died, and that cannot have changed anything, end, so
   that nobody's successor has to wait for the link; and those of who does not want to. */
void import_job_sweep(struct import *import);
int import_job_answer_begin(struct import_link *link, const struct wire_frame *frame);
int import_job_answer_place(struct import_link *link, uint32_t at, struct iovec *iov, int max);
int import_job_answer_end(struct import_link *link, const struct wire_frame *frame);

/* --- whose volumes are ------------------------------------------------------------------------ */

/* By another end that does not know the session: then it has to hear all that was said before. */
void import_fence_greeted(struct import *import, bool known);
/* The next FENCE that is said again; NULL: none now. */
struct job *import_fence_next(struct import *import);
/* Such a job: it ends nowhere. */
static inline bool import_fence_is(const struct job *job) { return job->peer == NULL; }
/* Every job's answer comes by here. True: it was such a job. */
bool import_fence_answered(struct import *import, struct job *job, int result);
void import_fence_cut(struct import *import);

#endif
