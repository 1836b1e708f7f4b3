/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The keeper, first form: one for each segment, off the data path. It starts the processes of a
 * pipeline from the bottom up, knows when one dies, stops them from the top down, and answers on
 * a UNIX socket. What it knows lies in the segment and in the pipeline file: killed and started
 * again, it adopts what runs.
 *
 * Units: ns. Errors: -enum fault_code. Threads: one; everything happens in the event loop.
 * Blocking: reading the pipeline file, asking xsegpeer for its roles and making the segment, all
 * before the loop; nothing in it.
 */
#ifndef SKERRY_TOOLS_KEEPER_H
#define SKERRY_TOOLS_KEEPER_H

#include <base/sm.h>
#include <event2/event.h>
#include <limits.h>
#include <sys/types.h>
#include <xseg/segment.h>

#include "tools/pipeline.h"

/*
 * A process of the pipeline:
 *
 *   IDLE --start--> STARTING --ready--> RUNNING --stop--> STOPPING --exit--> STOPPED
 *    |                 |  |               ^ |                                  ^ |
 *    `---- adopt ------|--|---------------' `--exit--> DEAD --stop-------------' |
 *                      |  |--stop--> STOPPING         ^ |                        |
 *                      |  `--exit---------------------' |                        |
 *                      `<------------ start ------------'<-------- start --------'
 */
enum keeper_state {
	KEEPER_IDLE,
	KEEPER_STARTING,
	KEEPER_RUNNING,
	KEEPER_STOPPING,
	KEEPER_STOPPED,
	KEEPER_DEAD,
	KEEPER_STATES
};

enum keeper_phase { KEEPER_PHASE_STARTING, KEEPER_PHASE_RUNNING, KEEPER_PHASE_STOPPING };

struct keeper;
struct keeper_client;

struct keeper_host {
	struct keeper *keeper;
	unsigned index; /* of pipeline.hosts */
	uint8_t state;
	pid_t pid;
	int pidfd, out; /* -1: none; out: its stdout until it says ready */
	struct event *exit_event, *out_event, *timer;
	char said[64];	  /* what came on stdout */
	off_t log_start;  /* where its log began this time */
	bool adopted;	  /* ran before this keeper */
	bool stranger;	  /* adopted, and not in the pipeline file: options unknown */
	bool timed_out;	  /* of a start or a stop */
	unsigned terms;	  /* SIGTERMs sent */
	char reason[384]; /* how it ended */
};

/* What a client waits for. */
enum keeper_operation { KEEPER_OP_NONE, KEEPER_OP_START, KEEPER_OP_STOP, KEEPER_OP_DOWN };

struct keeper {
	struct pipeline pipeline;
	char name[NAME_LENGTH_MAX + 1]; /* the segment's */
	char path[PATH_MAX];		/* of the pipeline file */
	char xsegpeer[PATH_MAX];
	struct xseg seg;
	bool joined, made_segment; /* now, or an earlier keeper did */
	bool made_now;
	int lock; /* xsegd.pid, locked */
	int report;
	uint64_t start_ns, stop_ns; /* limits for each process */
	struct event_base *base;
	struct event *turn, *sigterm, *sigint;
	enum keeper_phase phase;
	struct keeper_host hosts[PIPELINE_HOSTS_MAX];
	unsigned order[PIPELINE_HOSTS_MAX]; /* in which they start */
	unsigned order_count;
	struct {
		enum keeper_operation kind;
		struct keeper_host *host;
		char peer[NAME_LENGTH_MAX + 1];
		bool fresh; /* START of a peer that nobody knew: forgotten when it fails */
		struct keeper_client *client; /* NULL: it has left */
		json_t *id;
	} operation;
	struct fault fault; /* why it goes down */
	unsigned stopped_count;
	char killed[256]; /* who had to be */
	struct keeper_server *server;
};

extern const struct sm_state keeper_states[KEEPER_STATES];

/* --- keeper_files.c: the run folder and the segment --- */
int keeper_files_lock(struct keeper *keeper, struct fault *fault);
int keeper_files_segment(struct keeper *keeper, struct fault *fault); /* joins, makes if missing */
/* Lets go of everything on disk; `destroy`: of the segment, too. Whether that was done. */
bool keeper_files_remove(struct keeper *keeper, bool destroy);
/* The last line of a host's log since it was started; "" when none. */
void keeper_files_last_line(const struct keeper_host *host, char *out, size_t out_size);

/* --- keeper_check.c: roles and options, asked of xsegpeer --- */
int keeper_check(struct keeper *keeper, const struct pipeline *pipeline, struct fault *fault);

/* --- keeper_host.c: one process --- */
void keeper_host_init(struct keeper *keeper, unsigned index);
/* The one that was added last, with its peer: as if it had never been. */
void keeper_host_forget(struct keeper_host *host);
int keeper_host_start(struct keeper_host *host, uint64_t limit_ns);
void keeper_host_stop(struct keeper_host *host, uint64_t limit_ns);
/* A process that runs already; -ESRCH when it has ended. */
int keeper_host_adopt(struct keeper_host *host, pid_t pid, const char *peer);
const char *keeper_host_name(const struct keeper_host *host);

/* --- keeper_adopt.c --- */
/* Finds the pipeline's peers that run, and others. */
int keeper_adopt(struct keeper *keeper, struct fault *fault);
/* Peers in the segment whose process is none of ours: "a, b"; false when there are none. */
bool keeper_adopt_strangers(const struct keeper *keeper, char *out, size_t out_size);

/* --- keeper_turn.c: what is to be done next --- */
void keeper_turn_soon(struct keeper *keeper);
void keeper_turn_open(struct keeper *keeper);
/* Begins to go down; fault: why, or NULL when it was asked for. */
void keeper_turn_down(struct keeper *keeper, const struct fault *fault);

/* --- keeper_edge.c: edges as they lie in the segment --- */
/* Does a request to `from` ever come to `to`? */
bool keeper_edge_reaches(const struct xseg *seg, const char *from, const char *to);
/* Serving peers of other processes with an edge to a peer of this one: "vol0 (edge store)". */
bool keeper_edge_users(
	const struct keeper *keeper, const struct keeper_host *host, char *out, size_t out_size);
/* PEER:EDGE -> peer; the result is as `edge set` shows it. */
int keeper_edge_set(struct keeper *keeper, const char *edge, const char *to, json_t **result,
	struct fault *fault);

/* --- keeper_call.c: what can be asked --- */
#define KEEPER_LATER 1 /* the answer comes when the operation ends */
/* 0 and a result, KEEPER_LATER, or a fault; *rpc_code: JSON-RPC's own code for it. */
int keeper_call(struct keeper *keeper, struct keeper_client *client, const json_t *request,
	json_t **result, struct fault *fault, int *rpc_code);
json_t *keeper_call_status(struct keeper *keeper);
json_t *keeper_call_peer(struct keeper *keeper, const char *peer); /* one line of status */

/* --- keeper_server.c: the socket --- */
int keeper_server_open(struct keeper *keeper, struct fault *fault);
void keeper_server_close(struct keeper *keeper);
/* Answers the operation's client, if it is still there, and ends the operation; steals result. */
void keeper_server_finish(struct keeper *keeper, json_t *result, const struct fault *fault);

/* --- keeper_notify.c, or keeper_notify_plain.c without libsystemd --- */
void keeper_notify_ready(const char *status);
void keeper_notify_stopping(uint64_t limit_ns);

#endif
