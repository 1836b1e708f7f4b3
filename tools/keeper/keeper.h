/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The keeper: one for each segment, off the data path. It starts the processes of a pipeline from
 * the bottom up, sees one die or stop moving, has what the dead had given back (xseg_reap()),
 * starts it again or gives it up, stops all from the top down, and answers on a UNIX socket.
 * What it knows lies in the segment and in the state file: killed and started again, it finds
 * everything; meanwhile the peers go on.
 *
 * Units: ns. Errors: -enum fault_code. Threads: one; everything happens in the event loop.
 * Blocking: reading the pipeline file, asking xsegpeer for its roles and making the segment, all
 * before the loop; in it only `peer restart --exec`, which asks the new program once, and a
 * peer that is started anew, of which the pipeline file may have keys.
 */
#ifndef SKERRY_TOOLS_KEEPER_H
#define SKERRY_TOOLS_KEEPER_H

#include <base/notify.h>
#include <base/sm.h>
#include <event2/event.h>
#include <limits.h>
#include <sys/types.h>
#include <xseg/segment.h>

#include "tools/pipeline/pipeline.h"
#include "tools/pipeline/pipeline_keep.h"

/*
 * A process of the pipeline:
 *
 *            ,<------------------------- start ----------------------.
 *            v                                                       |
 *   IDLE -> STARTING --ready--> RUNNING --stop--> STOPPING --exit--> STOPPED
 *            |  |  ^               |                  ^              ^  ^  ^
 *            |  `--|------ stop ---|------------------'              |  |  |
 *          exit    |             exit                                |  |  |
 *            |   start             |                                 |  |  |
 *            v     |               v                                 |  |  |
 *           DEAD --+<--------------'------------------ stop ---------'  |  |
 *            |  `--- restart ---> WAITING --due--> STARTING, or stop ---'  |
 *            `------ limit -----> GIVEN_UP --start--> STARTING, or stop ---'
 *
 * WAITING is the delay before a restart. From IDLE a process that runs is adopted (STARTING or
 * RUNNING; from WAITING, too, should it turn out to run), and one that an earlier keeper knew to be
 * STOPPED, DEAD or GIVEN_UP is that again; one that has died since is DEAD.
 */
enum keeper_state {
	KEEPER_IDLE,
	KEEPER_STARTING,
	KEEPER_RUNNING,
	KEEPER_STOPPING,
	KEEPER_STOPPED,
	KEEPER_DEAD,
	KEEPER_WAITING,
	KEEPER_GIVEN_UP,
	KEEPER_STATES
};

enum keeper_phase { KEEPER_PHASE_STARTING, KEEPER_PHASE_RUNNING, KEEPER_PHASE_STOPPING };

struct keeper;
struct keeper_client;

/* A descriptor that a process wants to find again after its death. */
struct keeper_fd {
	char name[NOTIFY_NAME_MAX];
	int fd;
};

/* Does it move? */
struct keeper_pulse {
	uint64_t heartbeat[XSEG_LANES_MAX], moved_ns[XSEG_LANES_MAX];
	uint64_t alive_ns; /* its last WATCHDOG=1; 0: none so far */
	uint64_t old_ns;   /* when requests of it were last found too old */
	bool stuck;
	char reason[160];
};

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
	/* restarts */
	struct pipeline_keep keep;
	bool clean;	/* it ended with status 0 */
	bool due;	/* WAITING: the delay is over */
	bool by_hand;	/* started by `peer start`: when that fails it is not tried again */
	bool killed;	/* by us: it did not move */
	bool successor; /* STOPPING, and one is to follow */
	unsigned quick; /* deaths in a row, each soon after a start */
	uint64_t started_ns;
	uint64_t ready_ns;			 /* since when it serves; 0: not yet */
	uint64_t restarts;			 /* in all */
	uint64_t counted;			 /* since it was last started by hand */
	uint64_t history[PIPELINE_RESTARTS_MAX]; /* when it was started again, a ring */
	struct keeper_pulse pulse;
	struct keeper_fd fds[NOTIFY_FDS_MAX];
	unsigned fd_count;
};

/* What a client waits for. */
enum keeper_operation {
	KEEPER_OP_NONE,
	KEEPER_OP_START,
	KEEPER_OP_STOP,
	KEEPER_OP_DOWN,
	KEEPER_OP_RESTART,
	KEEPER_OP_CONFIG /* keeper_config.c's, see its header */
};

/* What was so of a peer when it was looked at last: bits of the table in keeper_news.c. */
struct keeper_news {
	char peer[NAME_LENGTH_MAX + 1];
	uint32_t so;
};

struct keeper {
	struct pipeline pipeline;
	char name[NAME_LENGTH_MAX + 1]; /* the segment's */
	char path[PATH_MAX];		/* of the pipeline file */
	char xsegpeer[PATH_MAX];
	struct xseg seg;
	bool joined, made_segment; /* now, or an earlier keeper did */
	bool made_now;
	bool resumed; /* an earlier keeper's pipeline, from its state file */
	int lock;     /* xsegd.pid, locked */
	int kept;     /* the segment's file, locked */
	int report;
	uint64_t start_ns, stop_ns; /* limits for each process */
	struct event_base *base;
	struct event *turn, *sigterm, *sigint, *sighup;
	char *const *argv; /* as it was started */
	struct event *reap, *watch, *notify, *alive;
	uint64_t reap_generation;		     /* of the segment when it was last reaped */
	bool reap_pending;			     /* the living still use what the dead had */
	int notify_fd;				     /* what our processes say */
	uint64_t watched_ns;			     /* the last look */
	struct keeper_news news[PIPELINE_PEERS_MAX]; /* as the pipeline's peers */
	struct keeper_fd activated[NOTIFY_FDS_MAX];  /* sockets of systemd's activation */
	unsigned activated_count;
	enum keeper_phase phase;
	struct keeper_host hosts[PIPELINE_HOSTS_MAX];
	unsigned order[PIPELINE_HOSTS_MAX]; /* in which they start */
	unsigned order_count;
	struct {
		enum keeper_operation kind;
		struct keeper_host *host;
		char peer[NAME_LENGTH_MAX + 1];
		bool was_killed; /* RESTART: it did not drain in time */
		bool fresh;	 /* START of a peer that nobody knew: forgotten when it fails */
		struct keeper_client *client; /* NULL: it has left */
		json_t *id;
		unsigned job; /* its record; 0: none */
	} operation;
	struct keeper_config *config; /* being applied, or NULL */
	struct keeper_jobs *jobs;
	struct fault fault; /* why it goes down */
	unsigned stopped_count;
	char killed[256];	/* who had to be */
	uint64_t discard_dirty; /* `down` may lose so many bytes */
	struct keeper_server *server;
	/* keeper_guard.c's */
	bool guarded;		 /* somebody is to start us again */
	int guard_socket, guard; /* the latter a pidfd; -1: none */
	struct event *guard_event;
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
/* Would the program take the peers of that process? Waits for it, a few seconds at most. */
int keeper_check_host(struct keeper *keeper, unsigned host, struct fault *fault);
/* May an edge of that name lead to a peer of that role? Asks xsegpeer. */
bool keeper_check_role_serves(struct keeper *keeper, const char *role, const char *edge);

/* --- keeper_host.c: one process --- */
void keeper_host_init(struct keeper *keeper, unsigned index);
/* The one that was added last, with its peer: as if it had never been. */
void keeper_host_forget(struct keeper_host *host);
int keeper_host_start(struct keeper_host *host, uint64_t limit_ns);
/* successor: it is started again, so its listening sockets stay. */
void keeper_host_stop(struct keeper_host *host, uint64_t limit_ns, bool successor);
/* It serves, or will without being asked to. */
bool keeper_host_comes(const struct keeper_host *host);
/* One that does not move; it ends like any that dies. */
void keeper_host_kill(struct keeper_host *host);
/* READY=1, or the line on stdout. */
void keeper_host_ready(struct keeper_host *host);
void keeper_host_set_timer(struct keeper_host *host, uint64_t after_ns);
struct keeper_host *keeper_host_of_pid(struct keeper *keeper, pid_t pid);
/* A process that runs already (pid and its start time, as the registry or the state file has
   them), and serves or is about to; -ESRCH when it has ended. */
int keeper_host_adopt(struct keeper_host *host, pid_t pid, uint64_t start_time, bool ready);
const char *keeper_host_name(const struct keeper_host *host);

/* --- keeper_spawn.c: its process --- */
/* Forks and runs it: pid, pidfd, out and log_start are set; 0 or -errno. */
int keeper_spawn(struct keeper_host *host);

/* --- keeper_restart.c: what follows a death --- */
/* DEAD: to be started again, or given up, or left. */
void keeper_restart_decide(struct keeper_host *host);
/* DEAD: to be started at once. */
void keeper_restart_soon(struct keeper_host *host);
/* Starts those whose time has come, the lowest first. */
void keeper_restart_turn(struct keeper *keeper);
/* Is one of them still on its way up or down? */
bool keeper_restart_unsettled(const struct keeper *keeper);
/* It is not kept waiting any more: stop was asked for. */
void keeper_restart_cancel(struct keeper_host *host);
/* Requests for peers that were given up are answered with -EIO; called again and again. */
void keeper_restart_refuse(struct keeper *keeper);

/* --- keeper_reap.c: after a death --- */
void keeper_reap_open(struct keeper *keeper);
/* At once, and again until nothing is pending. */
void keeper_reap_soon(struct keeper *keeper);
/* If one died that is not ours: xsegctl, a client. */
void keeper_reap_others(struct keeper *keeper);
void keeper_reap_close(struct keeper *keeper);

/* --- keeper_watch.c: who lives, but does not move --- */
void keeper_watch_open(struct keeper *keeper);
void keeper_watch_close(struct keeper *keeper);
void keeper_watch_begin(struct keeper_host *host); /* a new process */

/* --- keeper_news.c: what peers count that is an event --- */
void keeper_news_look(struct keeper *keeper);

/* --- keeper_store.c: RUN_DIR/SEGMENT/notify.sock, and descriptors kept --- */
/* What has been said so far: before a death is looked at, for it may have said something before. */
void keeper_store_read(struct keeper *keeper);
int keeper_store_open(struct keeper *keeper, struct fault *fault);
void keeper_store_close(struct keeper *keeper);
/* Closes what is kept of a process that is not wanted back; files of sockets go too. */
void keeper_store_drop(struct keeper_host *host);
/* In the child: puts the kept ones where it looks for them, and says so in its environment. */
void keeper_store_hand(const struct keeper_host *host);

/* --- keeper_event.c: RUN_DIR/SEGMENT/events.jsonl --- */
/*
 * {"time", "event": kind, members of `more`}; steals `more` (may be NULL). The second adds peer,
 * host, peers and pid of the process, and the reason when there is one.
 */
void keeper_event(struct keeper *keeper, const char *kind, json_t *more);
void keeper_event_host(
	const struct keeper_host *host, const char *kind, const char *reason, json_t *more);

/* --- keeper_save.c: RUN_DIR/SEGMENT/xsegd.state --- */
/* What runs, and what was stopped or given up; after every change of that. */
void keeper_save(const struct keeper *keeper);
/* Is there one for the segment as it is? Then keeper->pipeline is what an earlier keeper ran, and
   0; -FAULT_NOT_FOUND: begin with the pipeline file, so, too, when nothing runs and the file says
   something else by now (hash, of the file; NULL when it cannot be read). */
int keeper_save_load(struct keeper *keeper, struct fault *fault, const uint64_t *hash);
/* After the hosts are made: which were stopped or given up. */
void keeper_save_apply(struct keeper *keeper);

/* --- keeper_adopt.c --- */
/* Finds the pipeline's peers that run, and others. */
int keeper_adopt(struct keeper *keeper, struct fault *fault);
/* Do all peers of an adopted process serve? */
bool keeper_adopt_serves(const struct keeper_host *host);
/* Its peers run, though we did not know: adopted, so it need not be started. */
bool keeper_adopt_late(struct keeper_host *host);
/* Peers in the segment whose process is none of ours: "a, b"; false when there are none. */
bool keeper_adopt_strangers(const struct keeper *keeper, char *out, size_t out_size);

/* --- keeper_turn.c: what is to be done next --- */
void keeper_turn_soon(struct keeper *keeper);
void keeper_turn_open(struct keeper *keeper);
/* Goes on with what an earlier keeper ran. */
void keeper_turn_resume(struct keeper *keeper);
/* Begins to go down; fault: why, or NULL when it was asked for. */
void keeper_turn_down(struct keeper *keeper, const struct fault *fault);

/* --- keeper_edge.c: edges as they lie in the segment --- */
/* Does a request to `from` ever come to `to`? */
bool keeper_edge_reaches(const struct xseg *seg, const char *from, const char *to);
/* Serving peers of other processes with an edge to a peer of this one: "vol0 (edge store)". */
bool keeper_edge_users(
	const struct keeper *keeper, const struct keeper_host *host, char *out, size_t out_size);
/* Does a request of one process come to the other? */
bool keeper_edge_above(const struct keeper_host *above, const struct keeper_host *below);
bool keeper_edge_waits(const struct keeper *keeper, uint32_t port);
/* Every edge to a peer of `host` that has a second choice leads there now; how many. */
unsigned keeper_edge_fall_back(struct keeper_host *host);
/* Edges to a port whose name is nobody's, as a flipped bit leaves it, lead where the pipeline says
   again, with what waits there. Before a peer is started, or it would not be found. */
void keeper_edge_repair(struct keeper *keeper);
/* PEER:EDGE -> peer, or "none"; the result is as `edge set` shows it. */
int keeper_edge_set(struct keeper *keeper, const char *edge, const char *to, bool dry_run,
	json_t **result, struct fault *fault);

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

/* --- keeper_renew.c --- */
/* Becomes the program that is installed now; does not come back, unless this is not the time. */
void keeper_renew(struct keeper *keeper);

/* --- keeper_guard.c: who starts us again where systemd does not --- */
struct hand;
/* The one that has started us; before anything else is opened. */
void keeper_guard_take(struct keeper *keeper);
/* Its process; 0: none. */
pid_t keeper_guard_pid(const struct keeper *keeper);
/* We serve: there is to be one. */
void keeper_guard_open(struct keeper *keeper);
/* notice_over(), with it. */
void keeper_guard_hand(const struct keeper *keeper, struct hand *hand);
/* We go, and it with us. */
void keeper_guard_close(struct keeper *keeper);

/* --- keeper_notify.c: systemd, when it started us --- */
void keeper_notify_ready(struct keeper *keeper, const char *status);
void keeper_notify_stopping(uint64_t limit_ns);
/* It keeps them, too, so that they survive us. */
void keeper_notify_store(const struct keeper_host *host, const struct keeper_fd *kept);
void keeper_notify_drop(const struct keeper_host *host, const char *name);
/* What it kept or opened for us: of hosts, and sockets of activation. */
void keeper_notify_take(struct keeper *keeper);

#endif
