/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A port of this segment, offered to others.
 *
 *   export.c          the role: options, listening, who is let in
 *   export_session.c  sessions: one for each lane of an importing peer, over its connections
 *   export_request.c  their requests as calls, and the answers, kept until they have arrived
 *   export_fence.c    which segment may write to which volume
 *   export_rights.c   whose certificate may use which volume
 *
 * A request, in its session's table:
 *
 *   FREE --header--> ARRIVING --data--> RUNNING --answered--> ANSWERING --sent, cut--> DONE
 *    ^ ^                |  |              ^                       |   ^                 |  |
 *    | `------cut-------'  `----------> WAITING                   |   `---asked again---'  |
 *    `--------------------------------a read, sent or cut---------+------acknowledged------'
 *
 * WAITING is a FENCE, for others' writes to end, and a change of a volume of whose owner what is
 * below is still being told.
 *
 * All is done on the peer's first lane.
 */
#ifndef SKERRY_SYNAPSE_EXPORT_H
#define SKERRY_SYNAPSE_EXPORT_H

#include <peer/call.h>
#include <peer/tls.h>

#include "peers/synapse/address.h"
#include "peers/synapse/conn.h"

#define EXPORT_CONNS_MAX 256u
#define EXPORT_SESSIONS_MAX 64u
#define EXPORT_EDGE_STORE 0u
#define EXPORT_EDGE_VOLUME 1u
#define EXPORT_FENCES_MAX 65536u

enum export_counter {
	EXPORT_ACCEPTED,
	EXPORT_REFUSED,
	EXPORT_CUTS,
	EXPORT_REPLAYS,
	EXPORT_FENCED,
	EXPORT_DENIED,
	EXPORT_SENT,
	EXPORT_RECEIVED,
	EXPORT_SAVED,
	EXPORT_SESSIONS,
	EXPORT_COUNTERS
};

struct export_options {
	char *listen, *tls_ca, *tls_cert, *tls_key, *tls_crl, *state;
	struct peer_list allow;
	uint64_t requests, bytes;
	bool clear_text, compress;
};

struct export_shared {
	struct address address;
	struct tls_context *tls;
	int listener;
	char stored[64];	   /* the socket's name at whoever keeps descriptors */
	_Atomic uint32_t refences; /* REFENCEs that came */
};

enum export_request_state {
	EXPORT_STATE_FREE,
	EXPORT_STATE_ARRIVING,
	EXPORT_STATE_WAITING,
	EXPORT_STATE_RUNNING,
	EXPORT_STATE_ANSWERING,
	EXPORT_STATE_DONE
};

struct export_request {
	struct conn_out out;
	struct export_session *session;
	struct call *call; /* NULL: none, or no longer */
	enum export_request_state state;
	enum wire_class class;
	bool orphan;   /* its importer does not wait for it any more */
	bool flushing; /* FENCE: what the one before has written is being made durable */
	enum xseg_op op;
	uint64_t sequence, arg1, volume;
	uint64_t generation; /* of the session when it was asked last */
	uint64_t waits_until_ns;
	uint32_t room;
	uint32_t digest; /* DIGEST: bytes for each; its call is a READ. 0: anything else */
	/* the answer */
	int result;
	uint32_t length, data;
	uint64_t value;
	uint8_t *saved; /* its data, when they cannot be had again */
};

struct export_conn {
	struct conn conn;
	TAILQ_ENTRY(export_conn) link;
	struct export *export;
	struct export_session *session; /* NULL: not greeted yet */
	enum wire_class class;
	bool greeted, waits, resends;
	struct export_rule *rule; /* of its certificate; NULL: it has none, and may all */
	uint32_t who;		  /* the same for the same certificate's URI; 0: it has none */
	struct wire_hello hello;
	uint8_t in[WIRE_HELLO], out[WIRE_REFUSAL];
	uint32_t out_size;
	struct conn_out greeting, pong;
	uint64_t since_ns;
	struct export_request *request; /* whose data come; NULL: they are thrown away */
};
TAILQ_HEAD(export_conns, export_conn);

struct export_session {
	TAILQ_ENTRY(export_session) link;
	struct export *export;
	struct wire_hello hello; /* of its first connection */
	struct export_rule *rule;
	uint32_t who;
	uint64_t generation;
	struct export_conn *conn[WIRE_CONNS];
	struct export_request *table; /* WIRE_WINDOW of them */
	uint64_t lowest;
	uint32_t running;  /* WAITING and RUNNING */
	uint64_t since_ns; /* without connections */
};
TAILQ_HEAD(export_sessions, export_session);

/* Does what is below know of it? A cache that came there later, or that was started anew like us,
   does not, and must not take writes whose term it could not say to the store. */
enum export_told { EXPORT_TOLD_NOT, EXPORT_TELLING, EXPORT_TOLD };

struct export_fence {
	uint64_t volume, term, line;
	uint8_t writer[16];
	uint8_t nobody; /* may write until the next term */
	uint8_t owed;	/* what another has written is to be made durable first */
	uint8_t told;	/* enum export_told; in the file it says nothing */
	uint8_t reserved;
	uint32_t who; /* as in the session; 0: not known */
};
fixed(sizeof(struct export_fence) == 48);

struct export
{
	struct peer *peer;
	unsigned edge; /* the one that leads somewhere: EXPORT_EDGE_STORE or another */
	struct event *listening;
	struct export_conns conns, ended;
	unsigned conn_count;
	struct export_sessions sessions;
	unsigned session_count;
	bool retrying;
	uint32_t fencing; /* WAITING requests, and volumes that are being told of */
	char said[128];	  /* why somebody was sent away last: they come again and again */
	uint64_t said_ns;
	struct export_rule *rules;
	size_t rule_count;
	struct export_fence *fence; /* sorted by volume */
	uint32_t fences;
	uint32_t refences; /* as in shared, when `told` was true for all */
};

static inline const struct export_options *export_options_of(const struct export *export)
{
	return export->peer->options;
}

/* --- connections ------------------------------------------------------------------------------ */

/* Says why, and ends it when that is sent. */
void export_session_refuse(struct export_conn *conn, const char *why);
void export_end(struct export_conn *conn);

/* --- sessions --------------------------------------------------------------------------------- */

extern const struct conn_ops export_conn_ops;
bool export_session_turn(struct export *export);
/* Its connections are gone, or are to be. */
void export_session_cut(struct export_session *session);
void export_session_free(struct export_session *session);

/* --- requests --------------------------------------------------------------------------------- */

int export_request_begin(struct export_conn *conn, const struct wire_frame *frame);
int export_request_place(struct export_conn *conn, uint32_t at, struct iovec *iov, int max);
int export_request_end(struct export_conn *conn);
/* What was still arriving over its connections never came. */
void export_request_cut(struct export_session *session);
/* All of its requests, when none is running. */
void export_request_forget(struct export_session *session);
/* Those that WAIT for nothing more. */
bool export_request_turn(struct export *export);

/* --- fences ----------------------------------------------------------------------------------- */

void export_fence_load(struct export *export);
/* May this session's segment change the volume, by a request that carries this term? */
bool export_fence_allows(const struct export *export, const struct export_session *session,
	uint64_t volume, uint64_t term);
/* It is this segment's from here on. -ESTALE: there is a later term. */
int export_fence_claim(struct export *export, const struct export_fence *claim);
/* Has another written to it before, whose data are not durable yet? */
bool export_fence_owes(const struct export *export, uint64_t volume);
void export_fence_paid(struct export *export, uint64_t volume);
/* A volume's place when what is below is to be told who has it, or is being told; else NULL. */
struct export_fence *export_fence_untold(struct export *export, uint64_t volume);
/* It was told; or that failed, and is for the next one to try. False: it is of another term now. */
bool export_fence_told(struct export *export, uint64_t volume, uint64_t term, bool good);
/* There is no such volume any more. */
void export_fence_forget(struct export *export, uint64_t volume);

/* --- rights ----------------------------------------------------------------------------------- */

int export_rights_open(struct export *export, char *why, size_t why_size);
void export_rights_close(struct export *export);
/* NULL: nobody has named this certificate. */
struct export_rule *export_rights_find(const struct export *export, const struct tls_link *tls);
/* The volumes that it names are known; else they are being asked for. */
bool export_rights_ready(struct export *export, struct export_rule *rule);
/* Before its call is submitted. */
bool export_rights_allow(const struct export_request *request);
/* OPEN and INFO say which number a name has. */
void export_rights_answered(const struct export_request *request, const struct call *call);

#endif
