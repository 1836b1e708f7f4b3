/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The world of rehome_model.h, private to its files: hosts with their composer, cache and re-homer,
 * the store that they share, clients, and messages that are on their way. rehome_world.c: what a
 * composer does, with the record and the store; rehome_model.c: re-homers, clients and faults.
 *
 * Units: none. Errors: 0 or -errno. Ownership: the world's. Threads: one. Blocking: none.
 */
#ifndef SKERRY_TESTS_PROPERTY_REHOME_WORLD_H
#define SKERRY_TESTS_PROPERTY_REHOME_WORLD_H

#include <stdbool.h>

#include "peers/map/map_home.h"
#include "peers/rehome/rehome_table.h"
#include "tests/lib/fixture.h"
#include "tests/lib/map_memory.h"
#include "tests/property/rehome_model.h"

#define HOSTS 3u
#define CLIENTS 4u
#define MESSAGES 64u
#define ID 7u
#define LEASE 1000u
#define NOBODY HOSTS

enum kind {
	REQUEST, /* a client's, at a re-homer */
	SERVE,	 /* the same, at a composer */
	LOOK,
	LOOKED,
	PUSH,
	PUSHED,
	GIVE,
	GIVEN,
	TAKE, /* at another host's re-homer */
	TAKEN,
	ACQUIRE, /* a re-homer's, at its composer */
	ACQUIRED,
	KEEP
};

struct message {
	enum kind kind;
	unsigned host, from, serial;
	unsigned client; /* KEEP: the host that says so */
	unsigned first;	 /* REQUEST, SERVE: to whom its own re-homer has sent it; NOBODY: here */
	uint64_t term, since, next;
	uint64_t given; /* GIVEN, TAKE: the record's version since then; 0: not known */
	struct map_home_info home;
	int result;
	bool there; /* KEEP: somebody is attached */
	bool early; /* TAKE: it went with GIVE */
};

struct re_homer {
	enum rehome_state state;
	unsigned serial, edge, to;  /* edge: AWAY; to: of the move */
	uint64_t term, since, next; /* next: the owner at `to` */
	uint64_t given;
	bool knows[HOSTS], attached, keeping, again, due, unsure;
	enum rehome_action action; /* to be tried again */
	unsigned early;		   /* serial of the TAKE that went with GIVE */
	bool has_early;		   /* and it is not answered yet */
	bool has_take;
	struct message take; /* to be answered */
	bool waiting[CLIENTS];
	unsigned first[CLIENTS]; /* as in struct message */
};

struct composer {
	bool claimed, acquired, has; /* claimed: by the record alone; has: the cache */
	uint64_t term, line;
	uint64_t cached, cached_term;
	bool is_dirty, kept;
	struct map_home known; /* the record, as it was put or found last */
	struct map_home seen;  /* the same, as it was read for a re-homer, or as that was told */
};

/* Who counts it as open: its host's composer; its re-homer, if it was away then; nobody any more,
   as that one was killed since. */
enum counted { BY_COMPOSER, BY_RE_HOMER, BY_NOBODY };

struct client {
	unsigned host;
	bool is_open;
	enum counted counted;
	uint64_t term, broken;
	bool busy, ends; /* a request is on its way; and it opens */
	bool reads;	 /* it changes nothing */
};

struct world {
	uint64_t random, clock;
	enum weak weak;
	const char *law;
	struct map_memory *memory;
	struct map_watch *watch;
	struct re_homer homes[HOSTS];
	struct composer composers[HOSTS];
	uint64_t owners[HOSTS];
	struct client clients[CLIENTS];
	struct message messages[MESSAGES];
	unsigned count, serial;
	uint64_t stored, fence;		    /* the blocker's */
	uint64_t truth, next_value, broken; /* broken: so often nobody's hand-over */
	bool calm, host_died;
};

static inline unsigned any(struct world *w, unsigned below)
{
	return (unsigned)(random_next(&w->random) % below);
}

struct map_claim claim_of(const struct world *w, unsigned host);
struct map_home record(struct world *w);
/* The same, as the host's re-homer sees it. */
struct map_home_info look(struct world *w, unsigned host);
void write_back(struct world *w, unsigned host);
/* Its record says that it is the host's. */
int claim(struct world *w, unsigned host);
/* The same, and the store and the cache have heard of it. */
int acquire(struct world *w, unsigned host);
unsigned opens(const struct world *w, unsigned host, enum counted counted);
/* It was given to it, in that term, and the record's version is this one since. */
void told(struct world *w, unsigned host, uint64_t term, uint64_t version);
/* Nobody has it open any more. */
void release_idle(struct world *w, unsigned host);
/* *is_unsure: the answer is lost, and it may have been given or not. */
int give(struct world *w, unsigned host, uint64_t next, bool *is_unsure);

#endif
