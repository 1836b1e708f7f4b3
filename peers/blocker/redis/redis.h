/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The blocker on Redis. What lies in the database, key by key: docs/format-blocker-redis.md.
 *
 *   blocker_redis.c  the peer: options, what the server must be, start, turn
 *   redis_link.c     a lane's connection: made again when it is lost, what waits meanwhile
 *   redis_op.c       operations: each is a few commands, one after the other
 *   redis_plain.c    writes without a script, and who must not write so any more
 *   redis_cluster.c  finds the node of a cluster that has the store
 *   redis_replica.c  waits for replicas, and knows one that took the server's place
 *   redis_script.h   what the server does as one step
 *   redis_tunnel.c   TLS
 *
 * Units: bytes, ns. Errors: 0 or -errno. Threads: a lane's own; open() on any. Blocking: none but
 * in open().
 */
#ifndef SKERRY_BLOCKER_REDIS_REDIS_H
#define SKERRY_BLOCKER_REDIS_REDIS_H

#include <hiredis/async.h>
#include <hiredis/hiredis.h>
#include <peer/store.h>
#include <pthread.h>
#include <sys/queue.h>

#include "peers/blocker/home.h"
#include "peers/blocker/redis/redis_script.h"

#define REDIS_ROOM "blocker_redis"
#define REDIS_KEY 160u /* bytes of any key of ours */
#define REDIS_PREFIX 64u
#define REDIS_NODES 64u
#define REDIS_RUN 41u /* what a server calls itself from its start to its end */

enum redis_lost { REDIS_THERE, REDIS_GONE, REDIS_PROMOTED };
enum redis_flush { REDIS_FLUSH_ALWAYS, REDIS_FLUSH_MEMORY };

struct redis_options {
	char *socket, *host, *nodes, *user, *password_file, *prefix;
	char *tls_ca, *tls_cert, *tls_key, *tls_name;
	bool tls;
	uint64_t port, database, timeout, window, flush, replicas;
};

#define REDIS_CLAIMS 4u
#define REDIS_VOLUMES 256u /* that a lane knows it may write to */
#define REDIS_KNOWN 65536u /* objects that it knows are there */

enum { REDIS_MAKES, REDIS_FENCED, REDIS_RECONNECTS, REDIS_RETRIES, REDIS_ERRORS, REDIS_COUNTERS };

struct redis_node {
	char host[256];
	int port;
};

/* Of all shards of the process: peer->shared. */
struct redis_store {
	char prefix[REDIS_PREFIX + 3];	/* of all keys; in a cluster their hash tag */
	char own[17];			/* which writer we are: the same after a restart */
	char generation[HOME_IDENTITY]; /* of the data: another one means that ours is gone */
	char password[512];
	struct redis_tunnel *tunnel;
	char home[PATH_LENGTH_MAX]; /* where the generation is noted */
	_Atomic int lost;	    /* enum redis_lost */
	pthread_mutex_t lock;
	char history[41]; /* of the data, as replication calls it; lock */
	bool named;	  /* it keeps that name while it lives; lock */
	bool cluster;
	struct redis_node node[REDIS_NODES]; /* the first one as the options say; lock */
	unsigned nodes, current;	     /* lock */
	bool kills; /* the server lets us end connections: so writes need no script */
	/* Plain writes (redis_plain.c): counts claims and the like, and of each count what is on
	   its way, from all lanes. */
	_Atomic uint32_t claims, plain[REDIS_CLAIMS];
};

struct redis_op;
typedef void redis_reply_f(struct redis_op *op, const redisReply *reply);

/* A request on its way. */
struct redis_op {
	TAILQ_ENTRY(redis_op) link;
	struct redis_shard *shard;
	struct job *job;
	void (*begin)(struct redis_op *op); /* sends the first command; again when all is lost */
	redis_reply_f *reply;		    /* to the command that is under way */
	uint64_t until_ns;
	size_t bytes; /* of that command */
	char *buffer; /* its own */
	size_t size;
	uint64_t version;
	uint32_t claims; /* how many there had been when it was sent */
	bool plain;	 /* a plain write is under way */
	int error;	 /* of what was sent before it */
	int answer;	 /* once replicas have it */
	bool awaited;	 /* the server was asked for that after it was done */
	bool split;	 /* what was sent before it met a slot that moves */
	void (*again)(struct redis_op *op);
};
TAILQ_HEAD(redis_queue, redis_op);

/* A volume that a lane may write to by itself, as long as there are so many claims. */
struct redis_may {
	uint64_t volume, line;
	uint32_t claims;
};

enum redis_state { REDIS_DOWN, REDIS_GREETING, REDIS_READY };

struct redis_shard {
	struct peer *peer;
	struct redis_store *store;
	redisAsyncContext *context;
	enum redis_state state;
	unsigned greetings;  /* answers that are still to come */
	char connection[17]; /* what this connection is called: one of before is not heard */
	char sha[REDIS_SCRIPTS][41];
	struct redis_queue waiting, sent;
	struct redis_queue settling; /* claims, until no plain write of before is on its way */
	struct redis_queue unsafe;   /* done, but replicas are waited for */
	bool asks;		     /* WAIT is under way */
	size_t bytes;		     /* sent and not answered */
	struct redis_may may[REDIS_VOLUMES];
	struct xseg_key *known;
	uint32_t lost_plain[REDIS_CLAIMS]; /* plain writes whose connection was lost */
	struct redis_node node;		   /* that the connection leads to */
	char run[REDIS_RUN];		   /* of its server */
	uint64_t retry_ns, backoff_ns;
	uint64_t heard_ns; /* the last answer, or when the first one began to be waited for */
	uint64_t pause_ns; /* the slot moves: nothing is sent before */
	int said;
};

/* --- redis_link.c --------------------------------------------------------------------------- */

void redis_link_start(struct redis_shard *shard);
void redis_link_stop(struct redis_shard *shard);
/* Connects again, fails what has waited too long, sends what may go. True when something moved. */
bool redis_link_turn(struct redis_shard *shard);
void redis_link_wake(struct redis_shard *shard);
/* Begins as soon as it may. */
void redis_link_submit(struct redis_op *op);
/* One command of an op; reply() is called once, unless the connection is lost: then begin(). */
void redis_link_send(struct redis_op *op, redis_reply_f *reply, int argc, const char **argv,
	const size_t *sizes);
void redis_link_script(struct redis_op *op, redis_reply_f *reply, enum redis_script script,
	int keys, int argc, const char **argv, const size_t *sizes);
void redis_link_say(struct redis_shard *shard, int error, const char *text);
/* What the server's sentence means; the log has the first of each kind in a row. */
int redis_link_error(struct redis_shard *shard, const redisReply *reply);

/* --- redis_plain.c -------------------------------------------------------------------------- */

/* The key of the hash that has a writer's connections, by lane. */
void redis_plain_connections(
	const struct redis_shard *shard, const char *writer, char key[REDIS_KEY]);
/* RUN:NUMBER as it stands there: the connection's number, or NULL: its server has ended. */
const char *redis_plain_number(const char *text, const char *run);
/* Another connection: nothing is known. */
void redis_plain_forget(struct redis_shard *shard);
void redis_plain_note(struct redis_op *op, bool there);
/* Writes these bytes of the op's object. False: it takes a script. */
bool redis_plain_write(
	struct redis_op *op, const char *bytes, size_t size, void (*again)(struct redis_op *op));
/* It is under way; it was answered, or lost; all that was lost is not done any more. */
void redis_plain_sent(struct redis_op *op);
void redis_plain_ended(struct redis_op *op, bool lost);
void redis_plain_connected(struct redis_shard *shard);
/* A claim, or LEAVE: before it is sent, and when it is done; the reply says who is to be
   silenced. */
void redis_plain_claim(struct redis_op *op);
void redis_plain_claimed(struct redis_op *op, const redisReply *reply);
bool redis_plain_turn(struct redis_shard *shard);

/* --- redis_replica.c ------------------------------------------------------------------------ */

/* Ends what has changed something. */
void redis_replica_end(struct redis_op *op, int answer, uint64_t version);
/* INFO replication; false: the server is a replica itself. */
bool redis_replica_meet(
	struct redis_store *store, const struct redis_options *options, const char *info);
unsigned redis_replica_count(const char *info);
/* What stands behind this word in an answer to INFO. */
void redis_replica_field(const char *info, const char *word, char *text, size_t size);

/* --- redis_cluster.c ------------------------------------------------------------------------ */

/* The nodes that the options name; false: one is no HOST:PORT. */
bool redis_cluster_start(
	struct redis_store *store, const struct redis_options *options, const char **bad);
/* Where to connect to. The socket, or NULL: host and port. */
struct redis_node redis_cluster_node(struct redis_store *store);
const char *redis_cluster_socket(struct redis_store *store, const struct redis_options *options);
/* It does not answer: another one, unless that has been found already. */
void redis_cluster_next(struct redis_store *store, const struct redis_node *silent);
/* An error that says where the slot is. */
void redis_cluster_moved(
	struct redis_store *store, const struct redis_node *asked, const char *error);
/* CLUSTER SLOTS. */
void redis_cluster_learn(struct redis_store *store, const redisReply *reply);
/* Errors: the slot is on its way to another node; it is another one's. */
bool redis_cluster_is_split(const char *error);
bool redis_cluster_is_elsewhere(const char *error);

/* --- redis_tunnel.c ------------------------------------------------------------------------- */

/* A UNIX socket at this path: what is said to it goes to the server by TLS. NULL: `why` says. */
struct redis_tunnel *redis_tunnel_open(struct redis_store *store,
	const struct redis_options *options, const char *path, char *why, size_t why_size);
const char *redis_tunnel_path(const struct redis_tunnel *tunnel);
/* Why the last connection was lost, or nothing. */
void redis_tunnel_reason(struct redis_tunnel *tunnel, char *text, size_t size);
void redis_tunnel_close(struct redis_tunnel *tunnel);

/* --- redis_op.c ----------------------------------------------------------------------------- */

void redis_op_take(struct peer *peer, struct job *job);
/* Names of keys. kind: i, the index of a volume's objects; f, its fence; k, the index of records of
   that epoch. */
void redis_op_object(const struct redis_op *op, char name[REDIS_KEY], const struct xseg_key *key);
void redis_op_name(const struct redis_op *op, char name[REDIS_KEY], char kind, uint64_t number);
void redis_op_member(char name[REDIS_KEY], const struct xseg_key *key);
/* False: the server's error has ended the op. */
bool redis_op_is_good(struct redis_op *op, const redisReply *reply);
/* Ends it. */
void redis_op_end(struct redis_op *op, int answer, uint64_t value);

#endif
