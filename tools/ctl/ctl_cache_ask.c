/* SPDX-License-Identifier: Apache-2.0 */
/* Asks caches through the segment, and puts what they say into words. */
#include <base/must.h>
#include <base/size.h>
#include <errno.h>
#include <peer/client.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xseg/registry.h>

#include "tools/ctl/ctl_cache.h"
#include "tools/report/report.h"

#define VOLUMES_AT_ONCE 256u
#define STATUS_LIMIT_NS 1000000000u /* a status does not wait long for anybody */

const char *const ctl_cache_phases[] = {"passing", "caching", "draining", NULL};
const char *const ctl_cache_modes[] = {"writethrough", "writeback", "writearound", NULL};
const char *const ctl_cache_acks[] = {"blocker", "journal", "volatile", NULL};
const char *const ctl_cache_policies[] = {"lru", "s3fifo", "clock2q", NULL};
const char *const ctl_cache_healths[] = {"well", "store-fails", "store-slow", "full", NULL};

const char *ctl_cache_ask_word(const char *const *names, uint32_t value)
{
	for (uint32_t i = 0; names[i]; i++)
		if (i == value)
			return names[i];
	return "unknown";
}

int ctl_cache_ask_number(const char *const *names, const char *word)
{
	for (int i = 0; names[i]; i++)
		if (!strcmp(names[i], word))
			return i;
	return -1;
}

/* --- requests --------------------------------------------------------------------------- */

int ctl_cache_ask_call(struct client *client, struct ctl_cache_ask_call *call)
{
	struct client_control asked = {.what = call->what,
		.volume = call->volume,
		.number = call->number,
		.in = call->setting,
		.in_size = sizeof(*call->setting),
		.answer_at = CACHE_ANSWER_AT,
		.out = call->out,
		.out_size = call->out_size};
	int rc = client_control(client, &asked);
	call->value = asked.value;
	call->got = asked.got;
	return rc;
}

int ctl_cache_ask_start(
	struct client *client, enum cache_control what, struct ctl_cache_asked *asked)
{
	memset(asked, 0, sizeof(*asked));
	asked->request = (struct client_request){.op = XSEG_OP_CONTROL,
		.arg0 = what,
		.length = CACHE_ANSWER_AT,
		.send = asked->buffer,
		.send_size = CACHE_ANSWER_AT};
	return client_start(client, &asked->request);
}

int ctl_cache_ask_state(struct client *client, struct cache_state *state)
{
	struct ctl_cache_ask_call call = {
		.what = CACHE_STATE, .out = state, .out_size = sizeof(*state)};
	int rc = ctl_cache_ask_call(client, &call);
	if (!rc && (call.got < sizeof(*state) || state->version != 1))
		return -EPROTO;
	return rc;
}

int ctl_cache_ask_volumes(
	struct client *client, struct cache_volume_state **volumes, uint32_t *count)
{
	struct cache_volume_state *all = NULL;
	struct ctl_cache_ask_call call = {
		.what = CACHE_VOLUMES, .out_size = VOLUMES_AT_ONCE * sizeof(*all)};
	uint32_t known = 0;
	int rc;
	do {
		must(all = realloc(all, (known + VOLUMES_AT_ONCE) * sizeof(*all)));
		uint64_t cursor = call.number;
		call.out = all + known;
		rc = ctl_cache_ask_call(client, &call);
		known += rc ? 0 : call.got / sizeof(*all);
		call.number = call.value;
		if (!rc && cursor && call.value == cursor)
			rc = -EPROTO; /* it would never end */
	} while (!rc && call.number && !ctl_ask_interrupted());
	*volumes = all;
	*count = known;
	return rc;
}

static int find(struct ctl *ctl, const struct xseg *seg, const char *name)
{
	struct xseg_peer_view view;
	if (xseg_peer_find(seg, name, &view))
		return fault_set(&ctl->fault, FAULT_NOT_FOUND, name,
			"'xsegctl cache list' lists them", "segment '%s' has no cache '%s'",
			seg->name, name);
	if (strcmp(view.role, CTL_CACHE_ROLE))
		return fault_set(&ctl->fault, FAULT_USAGE, name, "'xsegctl cache list' lists them",
			"peer '%s' is no cache but a %s", name, view.role);
	if (view.life == XSEG_LIFE_DEAD)
		return fault_set(&ctl->fault, FAULT_FAILED, name, "'xsegctl status' says why",
			"the cache '%s' does not serve", name);
	return 0;
}

int ctl_cache_ask_open(struct ctl *ctl, const char *name, struct client *client)
{
	char segment[NAME_LENGTH_MAX + 1];
	struct xseg seg;
	int rc = ctl_join(ctl, &seg);
	if (rc)
		return rc;
	snprintf(segment, sizeof(segment), "%s", seg.name);
	rc = find(ctl, &seg, name);
	xseg_segment_leave(&seg);
	return rc ? rc : ctl_join_peer(ctl, segment, name, client);
}

int ctl_cache_ask_fault(struct ctl *ctl, const char *name, const char *what, int error)
{
	const char *hint = NULL, *why = strerror(-error);
	if (error == -ETIMEDOUT) {
		hint = "'xsegctl status' says who is not well; --timeout sets the limit";
		why = "it does not answer";
	} else if (error == -EBUSY) {
		hint = "try again in a moment";
		why = "it drains, drops or changes its size just now";
	} else if (error == -EPERM) {
		why = "what acknowledges a flush is not to be had here (journal= of the cache)";
	}
	return fault_set(&ctl->fault, fault_code_of_errno(error), name, hint,
		"cache '%s' cannot be %s: %s", name, what, why);
}

/* --- words ------------------------------------------------------------------------------ */

void ctl_cache_ask_reason(const struct cache_state *state, char *out, size_t out_size)
{
	char dirty[32];
	out[0] = 0;
	size_format(state->dirty, dirty, sizeof(dirty));
	if (state->health == CACHE_STORE_FAILS)
		snprintf(out, out_size, "its store fails (%s): %s are kept and tried again",
			strerror(state->error < 0 ? -state->error : EIO), dirty);
	else if (state->health == CACHE_STORE_SLOW)
		snprintf(out, out_size,
			"its store is slow: %s wait to be written, the oldest %llu s", dirty,
			(unsigned long long)(state->oldest_ns / 1000000000u));
	else if (state->health == CACHE_FULL)
		snprintf(out, out_size, "it is full: %llu requests wait for room, %s are dirty",
			(unsigned long long)state->waiting, dirty);
	else if (state->health != CACHE_WELL)
		snprintf(out, out_size, "it is not well (%u)", state->health);
}

json_t *ctl_cache_ask_state_json(const char *name, const struct cache_state *state)
{
	char reason[160];
	ctl_cache_ask_reason(state, reason, sizeof(reason));
	json_t *out = json_pack("{s:s, s:s, s:s, s:s, s:s, s:i}", "name", name, "phase",
		ctl_cache_ask_word(ctl_cache_phases, state->phase), "policy",
		ctl_cache_ask_word(ctl_cache_policies, state->policy), "mode",
		ctl_cache_ask_word(ctl_cache_modes, state->setting.mode), "ack",
		ctl_cache_ask_word(ctl_cache_acks, state->setting.ack), "share",
		(int)state->setting.share);
	json_object_update_new(out,
		json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:i, s:s, s:s, s:i}", "size",
			(json_int_t)state->size, "used", (json_int_t)state->used, "dirty",
			(json_int_t)state->dirty, "oldest_ns", (json_int_t)state->oldest_ns,
			"objects", (json_int_t)state->objects, "objects_max",
			(json_int_t)state->objects_max, "waiting", (json_int_t)state->waiting,
			"journal", (json_int_t)state->journal, "lanes", (int)state->lanes, "health",
			ctl_cache_ask_word(ctl_cache_healths, state->health), "reason", reason,
			"error", state->error < 0 ? -state->error : 0));
	return out;
}

/* --- status ----------------------------------------------------------------------------- */

void ctl_cache_ask_status(const struct ctl *ctl, const char *segment, json_t *peer)
{
	const char *name = json_string_value(json_object_get(peer, "name"));
	char why[XSEG_WHY_SIZE], reason[160] = "it does not answer";
	struct cache_state state;
	struct client client;
	if (client_open(&client, segment, name, why))
		return; /* no lane is free: that says nothing of the cache */
	bool quick = ctl->timeout_given && ctl->timeout_ns < STATUS_LIMIT_NS;
	client.timeout_ns = quick ? ctl->timeout_ns : STATUS_LIMIT_NS;
	int rc = ctl_cache_ask_state(&client, &state);
	client_close(&client);
	if (!rc)
		ctl_cache_ask_reason(&state, reason, sizeof(reason));
	if (!rc)
		json_object_set_new(peer, "cache", ctl_cache_ask_state_json(name, &state));
	if (reason[0])
		report_set_health(peer, "degraded", reason);
}
