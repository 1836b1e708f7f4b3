/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What doors to guests have in common: where clients come in, and the volumes they have open.
 *
 * Units: bytes, ns. Errors: 0 or -errno; the sentence in `why` goes to the user. Threads:
 * listeners belong to the process and change only while it starts and when its last lane stops;
 * the rest is a shard's, on its lane. Blocking: front_listen_open() and front_address_*().
 */
#ifndef SKERRY_FRONT_FRONT_H
#define SKERRY_FRONT_FRONT_H

#include <peer/call.h>
#include <peer/front.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <sys/types.h>

#define FRONT_ROOM "front"
#define FRONT_EDGE_VOLUME 0u
#define FRONT_LISTEN_MAX 16u
#define FRONT_WHO_LENGTH 96u
#define FRONT_FDSTORE_LENGTH 96u

/* --- listening sockets ----------------------------------------------------------- */

struct front_listener {
	int fd;
	bool trusted; /* a UNIX socket or loopback */
	char *path;   /* of a UNIX socket that we made, to be unlinked */
	uint64_t device, inode;
	char name[FRONT_WHO_LENGTH];
	char kept[FRONT_FDSTORE_LENGTH]; /* what it is stored as for a successor; "": not stored */
	bool taken;			 /* from a predecessor */
};

struct front_listeners {
	const char *owner; /* the peer's name */
	struct front_listener item[FRONT_LISTEN_MAX];
	unsigned count;
	_Atomic uint32_t accepting; /* shards that do */
	_Atomic bool stopping;	    /* asked to; else a close means that the start has failed */
};

/* Of UNIX sockets, and files. */
struct front_rights {
	mode_t mode;
	gid_t group;
};
#define FRONT_NO_GROUP ((gid_t)-1) /* the process's */

/* front_listen.c: the options `WHAT-mode` and `WHAT-group`; group may be NULL. */
int front_rights_parse(const char *what, const char *mode, const char *group,
	struct front_rights *rights, char *why, size_t size);
/* All of `listen`, or (none given) what the service manager has handed over. */
int front_listen_open(struct front_listeners *listeners, const struct peer_list *listen,
	const struct front_rights *rights, char *why, size_t size);
void front_listen_close(struct front_listeners *listeners);
/* "client of process 4711 (user 0)", "client 10.0.0.7:4711" */
void front_name_client(int fd, char who[FRONT_WHO_LENGTH]);
/* Of a UNIX socket's client; 0: not known. */
int front_client_pid(int fd);

/*
 * Where a shard takes clients in: all of them listen, and whoever is first gets the client. It is
 * handed a descriptor that is its own from then on.
 */
struct front_door;
struct front_accept {
	struct front_door *door;
	const struct front_listener *listener;
	struct event *event;
	bool paused; /* out of descriptors */
};
struct front_door {
	struct peer *peer;
	struct front_listeners *listeners;
	void (*enter)(struct peer *peer, int fd, const struct front_listener *listener);
	struct front_accept accept[FRONT_LISTEN_MAX];
	unsigned count;
	bool paused; /* one of them is: front_door_resume() soon */
};
/* peer, listeners and enter are set. */
int front_door_start(struct front_door *door, struct event_base *base);
void front_door_resume(struct front_door *door);
void front_door_dump(const struct front_door *door, FILE *out);
/* The last shard to stop closes the sockets. */
void front_door_stop(struct front_door *door);

/* front_address.c: one `listen` option becomes one or more listeners. */
int front_address_listen(struct front_listeners *listeners, const char *address,
	const struct front_rights *rights, char *why, size_t size);
int front_address_inherit(
	struct front_listeners *listeners, const char *name, char *why, size_t size);
void front_address_text(
	const struct sockaddr *address, socklen_t length, char out[FRONT_WHO_LENGTH]);
/* A UNIX socket or loopback? */
bool front_address_is_local(int fd);

/*
 * front_fdstore.c: listening sockets that outlive the process. Whoever started us keeps copies;
 * clients that come while nobody accepts wait in their queues.
 */
/* What a socket of that address is stored as; "" when it cannot be. */
void front_fdstore_name(const struct front_listeners *listeners, const struct sockaddr *address,
	socklen_t length, char name[FRONT_FDSTORE_LENGTH]);
/* The predecessor's socket of that name, or -ENOENT. */
int front_fdstore_take(const char *name);
/* All are open: has those kept that are not yet. */
void front_fdstore_put(struct front_listeners *listeners);
/* About to close it: true when its successor will go on with it, so its file must stay. */
bool front_fdstore_leave(
	const struct front_listeners *listeners, const struct front_listener *listener);

/* --- front_control.c: answers to <peer/front.h> ---------------------------------- */

struct front_client_entry {
	TAILQ_ENTRY(front_client_entry) link;
	struct front_client about; /* volume, flags and who: to be filled in before it is added */
};

/* Of all shards. */
struct front_clients {
	pthread_mutex_t lock;
	TAILQ_HEAD(, front_client_entry) list;
};

void front_clients_init(struct front_clients *clients);
void front_client_add(struct front_clients *clients, struct front_client_entry *entry);
void front_client_remove(struct front_clients *clients, struct front_client_entry *entry);
/* Each answers its job, at once or later. */
void front_clients_answer(struct front_clients *clients, struct job *job);
/* names: must stay; none: any volume. */
void front_check_answer(struct peer *peer, struct job *job, const struct peer_list *names);
/* Is that volume served here? What is to be said of that address, FRONT_ADDRESS_*? */
typedef bool front_offers_f(const struct peer *peer, const char *name);
typedef unsigned front_flags_f(const struct peer *peer, const struct front_listener *listener);
void front_addresses_answer(const struct peer *peer, struct job *job,
	const struct front_listeners *listeners, front_offers_f *offers, front_flags_f *flags);

/* --- front_log.c: what goes wrong with clients, never faster than a person reads -- */

struct front_log {
	uint64_t looked_ns;
	unsigned tokens, dropped;
};
/* "PEER: WHO text" */
void front_log(struct front_log *log, const struct peer *peer, const char *who, const char *format,
	...) __attribute__((format(printf, 4, 5)));

/* --- volumes that this shard has open -------------------------------------------- */

struct front_volume {
	TAILQ_ENTRY(front_volume) link;
	struct front_volumes *all;
	uint64_t id;
	uint64_t term;	   /* the last one in which it was opened to write */
	uint32_t users;	   /* that have it open */
	uint32_t changers; /* of them: those that may alter it */
};
TAILQ_HEAD(front_volume_list, front_volume);

struct front_volumes {
	struct peer *peer;
	struct front_volume_list list;
	uint64_t looked_ns, composer; /* when we looked last; who it was */
	unsigned reopening;	      /* volumes; meanwhile none is opened or closed */
	bool ended;		      /* that has just ended: do not sleep */
	/* a call that opens or closes is out */
	bool (*busy)(const struct peer *peer);
};

void front_volumes_init(
	struct front_volumes *volumes, struct peer *peer, bool (*busy)(const struct peer *peer));
struct front_volume *front_volume_find(const struct front_volumes *volumes, uint64_t id);
/* What OPEN or INFO was answered with, if it makes sense. */
int front_volume_info(const struct call *call, struct xseg_volume_info *info);
void front_volume_add(struct front_volumes *volumes, struct front_volume *volume, uint64_t id);
/* How it is opened: by name, or (NULL) by id; term: as OPEN's arg1, times: its arg0. */
struct front_open {
	const char *name;
	uint64_t id, term, times;
	bool writes;
};
/* OPEN, or CLOSE, is on its way; false: not now (peer_retry). */
bool front_volume_ask_open(
	struct peer *peer, const struct front_open *open, void *context, call_done_f *done);
bool front_volume_ask_close(struct peer *peer, uint64_t id, void *context, call_done_f *done);
/* It was opened, and is closed again; true: by its last user, so it is off the list. */
void front_volume_use(struct front_volume *volume, uint64_t term, bool changes);
bool front_volume_unuse(struct front_volume *volume, bool changed);
/* front_volume.c: a new composer learns what is open. Each turn. */
void front_volumes_reopen(struct front_volumes *volumes);

/* --- front_data.c: what all doors do to requests --------------------------------- */

/* As much of [next, end) as lies before the next multiple of `step`, a power of two. */
uint32_t front_cut(uint64_t next, uint64_t end, uint32_t step);
/*
 * Of a READ: parts small enough to be answered with the store's own pages; a megabyte in 16 parts
 * costs less than half of one that has to be copied. Long requests take larger ones, not more.
 */
uint32_t front_read_step(uint32_t length);
/* These bytes of the data that the call will write. */
void front_zero(const struct call *call, uint32_t at, uint32_t length);

/*
 * What one volume may take of the segment: at most as many pages and request slots as are left for
 * all others then. So one whose requests wait, for its limit or its store, gets half, two of them a
 * third each, and there is always something left for the rest.
 *
 * The figures are looked at once a millisecond; lanes share them.
 */
struct front_share {
	uint64_t looked_ns; /* at these: */
	uint64_t bytes;	    /* of pages that are free, for this lane */
	uint32_t requests;  /* slots */
};
/* Of one volume: requests in flight, and the bytes of their data, with those that are to come. */
bool front_share_fits(
	struct front_share *share, const struct peer *peer, uint32_t inflight, uint64_t bytes);

#endif
