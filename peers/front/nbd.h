/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the rooms of the NBD front share: a shard (its connections on one lane), a connection, a
 * request.
 *
 *   socket --receive--> receive buffer --parse--> request --calls--> volume
 *   socket <---send---- out queue <----- request <-answers-'
 *
 * Units: bytes, ns. Errors: 0 or -errno; NBD's own numbers where the type says so. Threads: all
 * of a shard on its lane; struct nbd_shared by all. Blocking: none but nbd_listen_open().
 */
#ifndef SKERRY_FRONT_NBD_H
#define SKERRY_FRONT_NBD_H

#include <base/sm.h>
#include <peer/call.h>
#include <stdatomic.h>
#include <sys/socket.h>

#include "peers/front/front.h"
#include "peers/front/nbd_handshake.h"
#include "peers/front/nbd_reply.h"

#define NBD_ROOM "front_nbd"
#define NBD_STAGE_SIZE (256u << 10) /* one receive; holds any option */
#define NBD_STAGE_NARROW 4096u /* where large payloads are expected: they go to pages instead */
#define NBD_LARGE 16384u       /* such a payload */
#define NBD_PAYLOAD_MAX (32u << 20)
#define NBD_WINDOW 8u /* calls in flight of one long request without data */
#define NBD_IOV_MAX 512

struct event;
struct nbd;
struct nbd_conn;
struct nbd_request;

/* --- options, counters ----------------------------------------------------------- */

enum nbd_tls_policy { NBD_TLS_AUTO, NBD_TLS_OFF, NBD_TLS_REQUIRE };
enum nbd_verify { NBD_VERIFY_AUTO, NBD_VERIFY_YES, NBD_VERIFY_NO };

struct nbd_options {
	struct peer_list listen, exports;
	bool read_only, single;
	uint64_t tls, tls_verify;
	char *tls_cert, *tls_key, *tls_ca, *tls_crl;
	char *socket_mode, *socket_group;
	uint64_t connections, newcomers, requests, bytes, payload_max;
	uint64_t handshake_ns, stall_ns, drain_ns;
};

enum nbd_counter {
	NBD_COUNT_COMMANDS, /* NBD_CMD_COUNT of them */
	NBD_COUNT_UNKNOWN = NBD_COUNT_COMMANDS + NBD_CMD_COUNT,
	NBD_COUNT_REFUSED,
	NBD_COUNT_BYTES_IN,
	NBD_COUNT_BYTES_OUT,
	NBD_COUNT_RECEIVES,
	NBD_COUNT_RECEIVES_EMPTY,
	NBD_COUNT_SENDS,
	NBD_COUNT_CONNECTIONS,
	NBD_COUNT_DISCONNECTS,
	NBD_COUNT_TURNED_AWAY,
	NBD_COUNT_BROKEN,
	NBD_COUNT_TLS,
	NBD_COUNT_STALLS,
	NBD_COUNT_WAITS_ROOM,
	NBD_COUNT_WAITS_POOL,
	NBD_COUNT_PATCHES,
	NBD_COUNTERS
};

/* --- what all shards share ------------------------------------------------------- */

struct nbd_shared {
	struct front_listeners listeners;
	int single_in, single_out;    /* stdin and stdout as they were; -1: not single */
	struct tls_context *tls;      /* NULL: no certificate */
	_Atomic uint32_t connections; /* that use a volume */
	_Atomic uint32_t newcomers;   /* that do not yet */
	struct front_clients clients; /* those of `connections` */
	_Atomic uint32_t passing;     /* connections that the successor will take over */
};

/* --- a volume that connections of this shard use --------------------------------- */

/* Parts of sectors are read, changed and written: meanwhile nobody else writes here. */
struct nbd_export {
	struct front_volume volume;   /* first; its users are connections */
	uint32_t writers;	      /* requests in flight that alter it */
	uint32_t inflight;	      /* requests */
	uint64_t bytes;		      /* of data that they hold */
	TAILQ_HEAD(, nbd_conn) crowd; /* wait for its share of the segment: nbd_share.c */
	struct nbd_conn *wanted;      /* waits for the writers to end; no new ones meanwhile */
	struct nbd_request *holder;
	TAILQ_HEAD(, nbd_conn) waiting;
};

/* --- a request ------------------------------------------------------------------- */

/* All chunks of the reply, one for each context, one after the other. */
#define NBD_STATUS_MAX 512u
#define NBD_STATUS_HEADER (NBD_CHUNK_HEADER + 4u)
struct nbd_status {
	struct nbd_status *next;
	uint32_t context; /* under way */
	uint32_t count;	  /* its descriptors so far */
	uint32_t begin, size;
	call_done_f *done;
	uint8_t wire[(1 + NBD_DIRTY_MAX) * (NBD_STATUS_HEADER + NBD_STATUS_MAX * 8)];
};

/* A part of a write that begins or ends inside a sector. */
struct nbd_patch {
	struct call *write;  /* waits for the edges */
	uint32_t at, length; /* what is new in its data */
	unsigned edges;	     /* still to be asked for */
	unsigned pending;    /* asked for */
	int error;
	call_done_f *done;
};

enum nbd_range_lock_mode { NBD_RANGE_NONE, NBD_RANGE_SHARED, NBD_RANGE_ALONE };

struct nbd_request {
	TAILQ_ENTRY(nbd_request) link; /* conn->out, or free */
	struct nbd_conn *conn;
	struct nbd_command command;
	uint64_t next, end; /* what has not been given to a call yet */
	uint32_t pending;   /* calls out */
	uint32_t bytes;	    /* of data, held until the reply has left */
	int error;	    /* the first of its calls */
	enum nbd_error refused;
	/* WRITE: the part whose payload is being received; no call: it is thrown away */
	struct call *filling;
	uint32_t filled, fill_size, fill_at;
	uint8_t header_size;
	uint8_t range;		 /* enum nbd_range_lock_mode */
	bool shares;		 /* counted in its volume's share */
	uint32_t range_count;	 /* NBD_RANGE_SHARED: so often */
	bool queued;		 /* its reply is in conn->queue */
	bool dropped;		 /* READ: parts from `next` on were given back, to be read again */
	bool probed;		 /* WRITE_ZEROES: its first part has succeeded */
	bool by_write;		 /* WRITE_ZEROES: nobody below can, so zeros are written */
	struct call_queue parts; /* READ: in order, kept until the reply has left */
	struct nbd_status *status;
	struct nbd_patch patch;
	uint8_t header[NBD_REPLY_MAX];
};
TAILQ_HEAD(nbd_request_queue, nbd_request);

/* --- a connection ---------------------------------------------------------------- */

/*
 *   NEGOTIATING --> SERVING --> DRAINING --> DEAD --> LEAVING --> GONE
 *       |           |                      ^ |                  ^
 *       `-----------+----------------------' `------------------'
 */
enum nbd_conn_state {
	NBD_CONN_NEGOTIATING, /* handshake */
	NBD_CONN_SERVING,
	NBD_CONN_DRAINING, /* reads no more; answers what it has taken */
	NBD_CONN_DEAD,	   /* the socket is closed; calls are still out */
	NBD_CONN_LEAVING,  /* closes its volume */
	NBD_CONN_GONE,
	NBD_CONN_STATES
};

/* Why it neither reads nor parses. */
enum nbd_wait {
	NBD_WAIT_POOL = 1 << 0,	  /* a page, a request slot */
	NBD_WAIT_ROOM = 1 << 1,	  /* its own limits */
	NBD_WAIT_RANGE = 1 << 2,  /* somebody patches a sector of the export */
	NBD_WAIT_PATCH = 1 << 3,  /* it does so itself */
	NBD_WAIT_ANSWER = 1 << 4, /* a look-up */
	NBD_WAIT_OUTPUT = 1 << 5, /* output of the handshake */
};

struct nbd_transport {
	const char *name;
	/* Bytes; 0: the other side has ended; -EAGAIN; -errno. */
	ssize_t (*receive)(struct nbd_conn *conn, struct iovec *iov, int count);
	ssize_t (*send)(struct nbd_conn *conn, struct iovec *iov, int count);
	void (*end)(struct nbd_conn *conn);
	/* May hold received bytes that the socket no longer has. */
	bool buffers;
};
extern const struct nbd_transport nbd_transport_socket;
extern const struct nbd_transport nbd_transport_pipe;

enum nbd_lookup_what {
	NBD_LOOKUP_NONE,
	NBD_LOOKUP_LIST,
	NBD_LOOKUP_DEFAULT,
	NBD_LOOKUP_NAME,
	NBD_LOOKUP_SNAPSHOTS, /* all there are: their ids */
	NBD_LOOKUP_HEADS,     /* what they are, one by one */
	NBD_LOOKUP_ADOPT,     /* by id, for a client of our predecessor */
	NBD_LOOKUP_CLOSE
};

struct nbd_lookup {
	enum nbd_lookup_what what;
	bool open; /* NAME: opens it, else only asks */
	bool read_only;
	bool asked;	 /* a call is under way */
	unsigned seen;	 /* DEFAULT: volumes there are */
	uint64_t volume; /* ADOPT */
	uint64_t cursor;
	call_done_f *done;
	char name[VOLUME_NAME_LENGTH_MAX + 1];
	/* HEADS: by id, or (NULL) by the names that the client has said */
	uint64_t *ids;
	uint32_t id_count, id_room, at;
};

struct nbd_conn {
	TAILQ_ENTRY(nbd_conn) link;	   /* nbd->conns */
	TAILQ_ENTRY(nbd_conn) active_link; /* nbd->active */
	TAILQ_ENTRY(nbd_conn) range_link;  /* export->waiting */
	struct nbd *nbd;
	const struct nbd_transport *transport;
	int in, out;
	uint8_t state;
	uint8_t waits; /* enum nbd_wait */
	bool active;   /* on the list of those that are looked at each turn */
	bool reparse;  /* the receive buffer may hold whole requests */
	bool dry;      /* the last receive took all there was */
	bool blocked;  /* the socket takes no more */
	bool retrying; /* the core will call us */
	bool narrow;   /* large payloads are expected */
	bool ended;    /* the client has ended its side */
	bool parting;  /* the successor will take it over: not a byte of the next request is read */
	bool passed;   /* it has been given away */
	bool want_write; /* TLS must write before it can read */
	uint64_t heard_ns, tried_ns, send_tried_ns, blocked_ns, began_ns;
	/* in */
	uint8_t *buffer;
	uint32_t head, tail;
	uint32_t carried;
	uint8_t carry[NBD_REQUEST_HEADER + 4];
	struct nbd_request *filling;
	/* out */
	struct nbd_request_queue queue;
	uint64_t sent; /* of the first reply in the queue */
	/* limits */
	uint32_t inflight;
	uint64_t bytes;
	/* what was agreed */
	bool served;			  /* counted as one that uses a volume */
	struct front_client_entry client; /* in shared->clients */
	bool crowded;			  /* in export->crowd */
	TAILQ_ENTRY(nbd_conn) crowd_link;
	uint64_t checked_ns, fill_left_ns; /* of what is filling: see nbd_conn_check_time() */
	struct nbd_session session;
	struct nbd_export *export;
	/* handshake */
	struct nbd_handshake *handshake;
	size_t handshake_sent;
	enum nbd_ask ask;
	struct nbd_lookup lookup;
	struct tls_link *tls; /* NULL: in the clear */
	bool tls_counted;
	struct event *in_event, *out_event;
	uint64_t requests, bytes_in, bytes_out;
	unsigned handover_number;
	char who[FRONT_WHO_LENGTH];
};
TAILQ_HEAD(nbd_conn_list, nbd_conn);

/* --- a shard --------------------------------------------------------------------- */

/* A connection of our predecessor's. */
#define NBD_HANDOVER_MAX 32u
struct nbd_taken {
	int fd;
	struct nbd_session session;
	char name[FRONT_FDSTORE_LENGTH];
};

struct nbd {
	struct peer *peer;
	const struct nbd_options *options;
	struct nbd_shared *shared;
	struct event_base *base;
	struct front_door door;
	struct nbd_conn_list conns, active;
	struct front_volumes volumes; /* each of them in a struct nbd_export */
	uint32_t dying;		      /* connections past DRAINING */
	bool again;		      /* somebody has work: do not sleep */
	bool timed;		      /* somebody has a deadline */
	bool starved; /* the pool was low: data that cannot leave is to be given back */
	uint64_t sweep_ns, stop_ns;
	struct front_share share;
	struct nbd_taken taken[NBD_HANDOVER_MAX];
	unsigned taken_count;
	/* pools */
	uint8_t *buffers; /* linked by their first bytes */
	unsigned buffer_count;
	struct nbd_request_queue free_requests;
	struct nbd_chunk_of_requests *chunks;
	struct nbd_status *free_status;
	struct front_log log;
	struct iovec iov[NBD_IOV_MAX];
};

static inline struct nbd *nbd_of(const struct peer *peer) { return peer->state; }

static inline uint64_t nbd_now(const struct nbd *nbd) { return peer_now_ns(nbd->peer); }

/* --- the rooms ------------------------------------------------------------------- */

/* About a client, limited in rate. */
#define nbd_log(conn, ...) front_log(&(conn)->nbd->log, (conn)->nbd->peer, (conn)->who, __VA_ARGS__)

/* nbd_conn.c */
/* The fds are the connection's from here on, also on error. */
int nbd_conn_create(struct nbd *nbd, int in, int out, bool trusted);
/* The same for a client of our predecessor's, with whom all is agreed. */
void nbd_conn_adopt(struct nbd *nbd, int fd, const struct nbd_session *session);
/* Looked at in the next turn. */
void nbd_conn_mark(struct nbd_conn *conn);
static inline void nbd_conn_wait(struct nbd_conn *conn, enum nbd_wait why)
{
	conn->waits |= (uint8_t)why;
}
void nbd_conn_wake(struct nbd_conn *conn, enum nbd_wait why);
/* -EAGAIN of the core: the connection goes on when it may try again. Returns -EAGAIN. */
int nbd_conn_starve(struct nbd_conn *conn);
/* The handshake is over: requests follow. */
void nbd_conn_serve(struct nbd_conn *conn);
/* Over: `why` (may be NULL) goes to the log. */
void nbd_conn_fail(struct nbd_conn *conn, const char *why);
/* Takes nothing more; ends when all is answered. */
void nbd_conn_drain(struct nbd_conn *conn);
/* The socket takes no more for now. */
void nbd_conn_block(struct nbd_conn *conn);
/* TLS cannot read before it has written. */
void nbd_conn_want_write(struct nbd_conn *conn);
/* One turn of one connection; true when something moved. */
bool nbd_conn_turn(struct nbd_conn *conn);
/* Deadlines; true while it has one. */
bool nbd_conn_check_time(struct nbd_conn *conn);
/* Ends those whose last call has come back. */
void nbd_conn_reap(struct nbd *nbd);
void nbd_conn_dump(const struct nbd_conn *conn, FILE *out);

/* nbd_receive.c: receive buffer and parser; true when bytes came. */
bool nbd_receive(struct nbd_conn *conn);
void nbd_receive_reset(struct nbd_conn *conn);
void nbd_receive_free(struct nbd *nbd);

/* nbd_send.c: the out queue. */
/* Bytes of a reply behind its header. */
uint32_t nbd_send_body_size(const struct nbd_request *request);
bool nbd_send(struct nbd_conn *conn);

/* nbd_negotiate.c: the handshake on a connection. */
int nbd_negotiate_begin(struct nbd_conn *conn, bool trusted);
void nbd_negotiate_parse(struct nbd_conn *conn);
bool nbd_negotiate_send(struct nbd_conn *conn);
void nbd_negotiate_end(struct nbd_conn *conn);
/* What nbd_export_list(), nbd_dirty_find() and nbd_export_find() found. */
void nbd_negotiate_listed(struct nbd_conn *conn, int error);
void nbd_negotiate_snapshots(struct nbd_conn *conn, int error);
void nbd_negotiate_found(struct nbd_conn *conn, int error, const struct xseg_volume_info *info);

/* nbd_export.c: volumes by name; nbd_export_close() when the connection is dead. */
void nbd_export_list(struct nbd_conn *conn);
void nbd_export_find(struct nbd_conn *conn, const char *name, bool open, bool read_only);
/* For those who look something up: begins, ends (true: the connection has died meanwhile). */
void nbd_export_lookup(struct nbd_conn *conn, enum nbd_lookup_what what);
void nbd_export_lookup_step(struct nbd_conn *conn);
bool nbd_export_lookup_over(struct nbd_conn *conn);
struct call *nbd_export_lookup_call(struct nbd_conn *conn, enum xseg_op op, uint32_t bytes);
struct call *nbd_export_list_call(struct nbd_conn *conn);
void nbd_export_close(struct nbd_conn *conn);
void nbd_export_adopt(struct nbd_conn *conn, uint64_t volume);
int nbd_export_use(struct nbd_conn *conn);
bool nbd_export_busy(const struct peer *peer);
void nbd_export_unuse(struct nbd_conn *conn);

/* nbd_range.c: who may alter the export now. -EAGAIN: the connection waits. */
int nbd_range_lock(struct nbd_request *request, enum nbd_range_lock_mode hold);
void nbd_range_unlock(struct nbd_request *request);
void nbd_range_forget(struct nbd_conn *conn);

/* --- nbd_share.c: what one volume may take of the segment ------------------------ */

/* May the connection's volume have so much more in flight? False: the connection waits. */
bool nbd_share_fits(struct nbd_conn *conn, uint32_t bytes);
/* From its beginning until it is answered. */
void nbd_share_take(struct nbd_request *request);
void nbd_share_give(struct nbd_request *request);
/* The connection waits no more. */
void nbd_share_forget(struct nbd_conn *conn);

/* nbd_request.c */
/* One request header; 0: taken. -EAGAIN: not yet, waits are set. -EPROTO. */
int nbd_request_take(struct nbd_conn *conn, const uint8_t *wire);
/* All its calls are back and its payload is in: answers. */
void nbd_request_finish(struct nbd_request *request);
/* Finishes it when nothing is left to do. */
void nbd_request_check(struct nbd_request *request);
/* The reply has left, or nobody wants it any more. */
void nbd_request_release(struct nbd_request *request);
void nbd_request_free_all(struct nbd *nbd);
/* Part of an answer has come: its error, if it is the first. */
static inline void nbd_request_note(struct nbd_request *request, int error)
{
	if (error && !request->error)
		request->error = error;
}

/* nbd_data.c: requests as calls. Each begins one: 0 or -EAGAIN with nothing done. */
int nbd_data_read(struct nbd_request *request);
int nbd_data_write(struct nbd_request *request);
/* Adds a part of a READ, not yet sent on its way; false: the pool is low. */
bool nbd_data_read_part(struct nbd_request *request);
/* Sends parts on their way, from the given one to the last. */
void nbd_data_read_submit(struct nbd_request *request, struct call *first);
int nbd_data_flush(struct nbd_request *request);
/* The next part's pages; 0 or -EAGAIN. */
int nbd_data_write_part(struct nbd_request *request);
/* All bytes of the part are there. */
void nbd_data_write_filled(struct nbd_request *request);
/* A call for [offset, offset + length), made whole sectors; NULL: the pool is low. */
struct call *nbd_data_call(struct nbd_request *request, enum xseg_op op, uint64_t offset,
	uint32_t length, uint32_t data);

/* nbd_overload.c: data of replies that a client does not take. */
/* Gives it back if the client has taken nothing for so long. */
void nbd_overload_drop(struct nbd_conn *conn, uint64_t since_ns);
/* The first reply's data is read again; false: it is on its way, or waits for the pool. */
bool nbd_overload_restore(struct nbd_conn *conn);

/* nbd_span.c: requests without data that may be long. */
int nbd_span_trim(struct nbd_request *request);
int nbd_span_zero(struct nbd_request *request);
int nbd_span_cache(struct nbd_request *request);
void nbd_span_go_on(struct nbd_request *request);

/* nbd_patch.c: completes the sectors at both ends of a write, then submits it. */
static inline bool nbd_is_odd(uint64_t offset, uint64_t length)
{
	return (offset | length) % XSEG_SECTOR;
}
void nbd_patch_begin(struct nbd_request *request, struct call *write, uint32_t at, uint32_t length,
	call_done_f *done);

/* nbd_status.c */
int nbd_status_begin(struct nbd_request *request);
void nbd_status_put(struct nbd *nbd, struct nbd_status *status);
void nbd_status_free_all(struct nbd *nbd);
/* So much of the request is like that; false: no more fits. */
bool nbd_status_add_to(struct nbd_request *request, uint64_t to, uint32_t flags);

/* nbd_dirty.c: skerry:dirty:SNAP */
/* Snapshots that the handshake asks for. */
void nbd_dirty_find(struct nbd_conn *conn);
struct call *nbd_dirty_head_call(struct nbd_conn *conn);
void nbd_dirty_answered(struct nbd_conn *conn, struct call *call);
/* What may differ from the snapshot of the context under way; NULL: the pool is low. */
struct call *nbd_dirty_call(const struct nbd_request *request);
/* True: the next piece is wanted, too. */
bool nbd_dirty_take(struct nbd_request *request, const struct call *call);

/* nbd_control.c: what can be asked of us. */
void nbd_control_add(struct nbd_conn *conn);
void nbd_control(struct peer *peer, struct job *job);
/* nbd_export.c: is a volume of that name offered? */
bool nbd_export_allowed(const struct nbd *nbd, const char *name);

/* nbd_handover.c: connections that our successor takes over. */
/* We stop: true when it will be passed on, as soon as nbd_handover_check() finds it quiet. */
bool nbd_handover_begin(struct nbd_conn *conn);
void nbd_handover_check(struct nbd_conn *conn);
/* Looks for those of our predecessor; they are served from the first turn on. */
void nbd_handover_take(struct nbd *nbd);
void nbd_handover_end(struct nbd *nbd);

/* nbd_listen.c */
int nbd_listen_open(
	struct nbd_shared *shared, const struct nbd_options *options, char *why, size_t size);
void nbd_listen_close(struct nbd_shared *shared);
int nbd_listen_start(struct nbd *nbd);

/* nbd_tls.c */
int nbd_tls_open(
	struct nbd_shared *shared, const struct nbd_options *options, char *why, size_t size);
void nbd_tls_close(struct nbd_shared *shared);
/* From now on all goes through TLS; the handshake happens in receive. */
int nbd_tls_begin(struct nbd_conn *conn);
void nbd_tls_free(struct nbd_conn *conn);

#endif
