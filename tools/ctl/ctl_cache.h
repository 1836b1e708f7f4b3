/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Asking a cache: XSEG_OP_CONTROL to its port, see <peer/cache.h>.
 *
 * Units: bytes, ns. Errors, ownership: as ctl.h; those that return an int and take no ctl: 0 or
 * -errno. Threads: one. Blocking: client->timeout_ns a request.
 */
#ifndef SKERRY_TOOLS_CTL_CACHE_H
#define SKERRY_TOOLS_CTL_CACHE_H

#include <peer/cache.h>
#include <peer/client.h>

#include "tools/ctl/ctl_output.h"

#define CTL_CACHE_ROLE "cached"

/* A client of that cache; a fault when there is none of that name, or it does not serve. */
int ctl_cache_ask_open(struct ctl *ctl, const char *name, struct client *client);

struct ctl_cache_ask_call {
	enum cache_control what;
	uint64_t volume, number;
	const struct cache_setting *setting; /* or NULL */
	void *out;			     /* what is answered */
	uint32_t out_size;
	/* the answer */
	uint32_t got; /* bytes of it */
	uint64_t value;
};
int ctl_cache_ask_call(struct client *client, struct ctl_cache_ask_call *call);
/* The same in two steps, with its buffer; answered when request.answered. */
struct ctl_cache_asked {
	struct client_request request;
	uint8_t buffer[CACHE_ANSWER_AT];
};
int ctl_cache_ask_start(
	struct client *client, enum cache_control what, struct ctl_cache_asked *asked);
int ctl_cache_ask_state(struct client *client, struct cache_state *state);
/* All volumes that it knows: a malloc'd array. */
int ctl_cache_ask_volumes(
	struct client *client, struct cache_volume_state **volumes, uint32_t *count);
/* "cache 'cache0' cannot be flushed: Input/output error" */
int ctl_cache_ask_fault(struct ctl *ctl, const char *name, const char *what, int error);

extern const char *const ctl_cache_phases[],
	*const ctl_cache_modes[], *const ctl_cache_acks[],
					  *const ctl_cache_policies[],
						  *const ctl_cache_healths[]; /* NULL at the end */
/* names[value], or "unknown". */
const char *ctl_cache_ask_word(const char *const *names, uint32_t value);
/* Its number, or -1. */
int ctl_cache_ask_number(const char *const *names, const char *word);
json_t *ctl_cache_ask_state_json(const char *name, const struct cache_state *state);
/* Why it is not well; "" when it is. */
void ctl_cache_ask_reason(const struct cache_state *state, char *out, size_t out_size);
/* Adds what a cache says of itself to a peer of a status: not well is "degraded". */
void ctl_cache_ask_status(const struct ctl *ctl, const char *segment, json_t *peer);

#endif
