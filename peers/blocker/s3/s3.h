/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The blocker on S3. What lies in the bucket, name by name: docs/format-blocker-s3.md.
 *
 *   blocker_s3.c  the peer: options, keys, start, turn
 *   s3_sign.c     signatures
 *   s3_link.c     transfers: sent, sent again, what a server's answer means
 *   s3_store.c    is this the store that it was, and is it still ours to write?
 *   s3_object.c   what is written to one object, one after the other: changes, records, removal
 *   s3_op.c       what only reads, and where each operation goes
 *
 * A shard has all of this for itself, since an object's requests all come to one shard.
 *
 * Units: bytes, ns. Errors: 0 or -errno. Threads: a lane's own; open() and close() on any.
 * Blocking: none but in open() and close().
 */
#ifndef SKERRY_BLOCKER_S3_S3_H
#define SKERRY_BLOCKER_S3_S3_H

#include <curl/curl.h>
#include <event2/event.h>
#include <peer/store.h>
#include <stdatomic.h>
#include <sys/queue.h>

#include "peers/blocker/home.h"
#include "peers/blocker/s3/s3_sign.h"

#define S3_ROOM "blocker_s3"
#define S3_NAME 320u /* bytes of any object's name in the bucket */
#define S3_TAG 80u   /* bytes of an entity tag */
#define S3_BUCKETS 1024u

enum s3_style { S3_STYLE_PATH, S3_STYLE_HOST };

struct s3_options {
	char *endpoint, *bucket, *prefix, *region, *key_file, *ca_file;
	uint64_t style, timeout, connections, memory;
	bool read_only, takeover;
};

enum { S3_PUTS, S3_GATHERED, S3_FETCHES, S3_RETRIES, S3_CONFLICTS, S3_ERRORS, S3_COUNTERS };

/* Of all shards of the process: peer->shared. */
struct s3_store {
	const struct s3_options *options;
	struct s3_keys keys;	  /* access "": none, nothing is signed */
	char url[512], host[320]; /* scheme and host; host and port */
	char base[256];		  /* the bucket's path, "" or "/BUCKET" */
	char identity[HOME_IDENTITY];
	char owner[128];	    /* who we are: the same after a restart */
	bool conditional;	    /* the server minds If-Match */
	bool bare;		    /* but takes a tag without its quotes only: radosgw 16 */
	_Atomic int64_t skew;	    /* seconds that the server's clock is ahead of ours */
	char home[PATH_LENGTH_MAX]; /* where the identity is noted */
};

/* --- s3_link.c -------------------------------------------------------------------------------- */

struct s3_link {
	struct s3_store *store;
	struct peer *peer;	 /* NULL: none yet; no counters, and s3_link_wait() drives it */
	struct event_base *base; /* likewise */
	CURLM *multi;
	struct event *timer;
	struct s3_signer signer;
	unsigned under_way;
	TAILQ_HEAD(, s3_transfer) waiting; /* to be sent again */
	char words[640];		   /* of the last error */
	SLIST_HEAD(, s3_easy) idle;
	int said;
};

enum s3_method { S3_GET, S3_HEAD, S3_PUT, S3_DELETE };

struct s3_transfer;
typedef void s3_done_f(struct s3_transfer *transfer, int error);

/*
 * One request to the server. Begin with {.method, .done, .whose, ...}; it must live until done(),
 * which gets
 *   0            answered; `text` is the body, unless a range was asked for
 *   -ENOENT      there is no such object
 *   -ERANGE      it ends before the range
 *   -ECANCELED   the condition does not hold
 *   -EOPNOTSUPP  the server does not know how
 *   -EACCES -EROFS -ENOSPC -EIO -ETIMEDOUT    and the log has had the server's words
 */
struct s3_transfer {
	TAILQ_ENTRY(s3_transfer) link;
	struct s3_link *by;
	enum s3_method method;
	char name[S3_NAME];	 /* without the prefix; "": the bucket itself */
	char query[2 * S3_NAME]; /* encoded, sorted */
	uint32_t offset, length; /* GET: of the range; length 0: all */
	struct job *job; /* GET of a range: its data takes it, or `bytes` do, as far as it goes */
	char *bytes;
	const char *body; /* PUT */
	uint32_t body_size;
	char match[S3_TAG]; /* PUT: only over what has this tag; "*": only if nothing is there */
	s3_done_f *done;
	void *whose;
	/* the answer */
	int status;
	char tag[S3_TAG];
	uint64_t size; /* of the whole object */
	char *text;    /* else; ends with a zero; whoever wants to keep it takes it */
	uint32_t text_size, text_room;
	uint32_t got, skipped; /* of the range; of what came before it */
	time_t date;
	/* on its way */
	struct s3_easy *easy;
	uint64_t until_ns, retry_ns, backoff_ns;
	unsigned tries;
	char why[512]; /* the last try failed: the server's words, or libcurl's */
};

int s3_link_open(struct s3_link *link, struct s3_store *store, struct peer *peer);
void s3_link_close(struct s3_link *link);
void s3_link_submit(struct s3_link *link, struct s3_transfer *transfer);
/* Ends what has ended, sends again what is due. True when something moved. */
bool s3_link_turn(struct s3_link *link);
void s3_link_wake(struct s3_link *link);
/* Without a lane: until nothing is under way. */
void s3_link_wait(struct s3_link *link);
/* The log has the first of each kind in a row. */
void s3_link_say(struct s3_link *link, int error, const char *text);
/* What lies between <name> and </name>, from *at on, which moves behind it; false: none. */
bool s3_link_element(const char **at, const char *name, char *to, size_t size);

/* --- s3_store.c ------------------------------------------------------------------------------- */

/* Learns what is there, makes it, claims it. Blocks. */
int s3_store_open(struct s3_link *link, char *why, size_t why_size);
/* Gives it back. Blocks. */
void s3_store_leave(struct s3_link *link);

/* Asks whether the store is still there: done(whose, error), 0, or -EIO: its data is gone, -ESTALE:
   another one writes there. The question begins after the call. */
typedef void s3_checked_f(void *whose, int error);
struct s3_check {
	STAILQ_ENTRY(s3_check) link;
	s3_checked_f *done;
	void *whose;
};

/* --- a shard ---------------------------------------------------------------------------------- */

struct s3_object;
TAILQ_HEAD(s3_objects, s3_object);
STAILQ_HEAD(s3_checks, s3_check);

struct s3_shard {
	struct peer *peer;
	struct s3_store *store;
	struct s3_link link;
	struct s3_transfer asking; /* whether the store is still there */
	bool asked;
	bool deposed, looking; /* another one writes there; we look whether one does */
	struct s3_check look;
	uint64_t asked_ns;
	struct s3_checks checks, checked; /* those of the next question, and of this one */
	SLIST_HEAD(, s3_object) objects[S3_BUCKETS];
	struct s3_objects ready; /* have jobs, and wait for their turn */
	struct s3_objects full;	 /* have none, and bytes; the first was used longest ago */
	struct s3_objects bare;	 /* have none, and no bytes: only their tags are kept */
	unsigned busy, bare_count;
	uint64_t held; /* bytes of the full ones */
};

void s3_store_check(struct s3_shard *shard, struct s3_check *check);

/* --- s3_object.c ------------------------------------------------------------------------------ */

/* WRITE, ZERO, DISCARD, COPY, DELETE, CAS. */
void s3_object_take(struct s3_shard *shard, struct job *job);
bool s3_object_turn(struct s3_shard *shard);
void s3_object_start(struct s3_shard *shard);
void s3_object_finish(struct s3_shard *shard);

/* --- s3_op.c ---------------------------------------------------------------------------------- */

void s3_op_name(char name[S3_NAME], const struct xseg_key *key);
void s3_op_take(struct peer *peer, struct job *job);

#endif
