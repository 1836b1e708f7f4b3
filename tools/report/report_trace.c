/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests as they lie in the table: copied while they move, and believed only when the state word
 * was the same before and after.
 */
#include "tools/report/report_trace.h"

#include <base/clock.h>
#include <base/must.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

/* A word that changes each time is looked at so often. */
#define TRIES 8u

static const char *const state_names[XSEG_REQUEST_STATES] = {
	"free", "owned", "submitted", "taken", "done"};

int report_trace_take(const struct xseg *seg, uint32_t slot, struct trace *trace)
{
	const struct xseg_request *request = &seg->requests[slot];
	for (unsigned i = 0; i < TRIES; i++) {
		uint64_t word = atomic_load_explicit(&request->word, memory_order_acquire);
		if (xseg_word_state(word) == XSEG_REQUEST_FREE)
			return -ENOENT;
		/* its owner may write meanwhile: then the word tells, or it is what the owner has
		   not sent yet */
		memcpy(&trace->copy, request, sizeof(trace->copy));
		atomic_thread_fence(memory_order_acquire);
		if (atomic_load_explicit(&request->word, memory_order_relaxed) != word)
			continue;
		trace->slot = slot;
		trace->word = word;
		trace->now_ns = clock_now_ns();
		return 0;
	}
	return -EAGAIN;
}

uint64_t report_trace_age_ns(const struct trace *trace)
{
	uint64_t since = trace->copy.frame[0].time_ns;
	/* OWNED: not sent yet, or back already; what the frame says is of another life perhaps */
	if (xseg_word_state(trace->word) == XSEG_REQUEST_OWNED || since > trace->now_ns)
		return 0;
	return trace->now_ns - since;
}

/* --- names ------------------------------------------------------------------------------ */

static void port_name(const struct xseg *seg, uint32_t port, char out[NAME_LENGTH_MAX + 1])
{
	memset(out, 0, NAME_LENGTH_MAX + 1);
	if (port < XSEG_PORTS_MAX)
		memcpy(out, seg->ports[port].name, NAME_LENGTH_MAX);
	if (!out[0] || !name_check(out))
		snprintf(out, NAME_LENGTH_MAX + 1, "?%u", port);
}

void report_trace_lane_peers(const struct xseg *seg, uint32_t lane, char *out, size_t out_size)
{
	out[0] = 0;
	for (uint32_t i = 0; i < XSEG_PEERS_MAX; i++) {
		struct xseg_peer_view view;
		size_t n = strlen(out);
		if (xseg_peer_view(seg, i, &view) && lane < XSEG_LANES_MAX &&
			(view.lanes >> lane) & 1u && name_check(view.name))
			snprintf(out + n, out_size - n, "%s%s", n ? "," : "", view.name);
	}
	if (!out[0])
		snprintf(out, out_size, "lane %u", lane);
}

void report_trace_volume_name(const struct xseg *seg, uint64_t volume, char *out, size_t out_size)
{
	for (uint32_t i = 0; i < seg->volume_count; i++) {
		struct xseg_volume_view view;
		if (xseg_volume_view(seg, i, &view) && view.volume == volume &&
			name_check_volume(view.name)) {
			snprintf(out, out_size, "%s", view.name);
			return;
		}
	}
	snprintf(out, out_size, "%016llx", (unsigned long long)volume);
}

/* --- one request ------------------------------------------------------------------------ */

/* Frames up to the one that the word names were written before it, and are not written again. */
static unsigned frame_last(const struct trace *trace)
{
	unsigned frame = xseg_word_frame(trace->word);
	return frame < XSEG_FRAMES ? frame : XSEG_FRAMES - 1;
}

static json_t *hop_report(const struct xseg *seg, const struct trace *trace, unsigned i)
{
	const struct xseg_frame *f = &trace->copy.frame[i];
	const struct xseg_frame *first = &trace->copy.frame[0];
	char to[NAME_LENGTH_MAX + 1], from[128];
	bool last = i == frame_last(trace);
	uint64_t until = last ? trace->now_ns : trace->copy.frame[i + 1].time_ns;
	port_name(seg, f->port, to);
	report_trace_lane_peers(seg, f->from, from, sizeof(from));
	return json_pack("{s:i, s:s, s:s, s:i, s:s, s:I, s:I, s:I, s:I, s:I, s:I}", "hop", (int)i,
		"to", to, "from", from, "lane", (int)f->from, "op", xseg_op_name(f->op), "object",
		(json_int_t)f->key.object, "offset", (json_int_t)f->offset, "length",
		(json_int_t)f->length, "time_ns", (json_int_t)f->time_ns, "since_submit_ns",
		(json_int_t)(f->time_ns > first->time_ns ? f->time_ns - first->time_ns : 0),
		"stayed_ns", (json_int_t)(until > f->time_ns ? until - f->time_ns : 0));
}

static void owner_text(const struct xseg *seg, const struct trace *trace, char *out, size_t size)
{
	char name[NAME_LENGTH_MAX + 1];
	unsigned state = xseg_word_state(trace->word);
	uint32_t owner = xseg_word_owner(trace->word);
	if (state == XSEG_REQUEST_TAKEN)
		owner = trace->copy.frame[frame_last(trace)].port;
	if (state == XSEG_REQUEST_SUBMITTED || state == XSEG_REQUEST_TAKEN) {
		port_name(seg, owner, name);
		snprintf(out, size, "%s", name);
	} else {
		report_trace_lane_peers(seg, owner, out, size);
	}
}

json_t *report_trace(const struct xseg *seg, const struct trace *trace)
{
	const struct xseg_request *r = &trace->copy;
	const struct xseg_frame *f = &r->frame[0];
	unsigned state = xseg_word_state(trace->word);
	char id[32], owner[128], client[128], volume[VOLUME_NAME_LENGTH_MAX + 1];
	json_t *hops = json_array();
	for (unsigned i = 0; state != XSEG_REQUEST_OWNED && i <= frame_last(trace); i++)
		json_array_append_new(hops, hop_report(seg, trace, i));
	snprintf(id, sizeof(id), "%u.%u", trace->slot, xseg_word_generation(trace->word));
	owner_text(seg, trace, owner, sizeof(owner));
	report_trace_lane_peers(seg, r->client, client, sizeof(client));
	report_trace_volume_name(seg, f->key.volume, volume, sizeof(volume));
	json_t *out = json_pack("{s:s, s:s, s:s, s:s, s:s, s:s, s:I, s:I, s:I, s:o}", "request", id,
		"state", state < XSEG_REQUEST_STATES ? state_names[state] : "corrupt", "owner",
		owner, "client", client, "op", xseg_op_name(f->op), "volume", volume, "offset",
		(json_int_t)f->offset, "length", (json_int_t)f->length, "age_ns",
		(json_int_t)report_trace_age_ns(trace), "hops", hops);
	must(out);
	json_object_set_new(
		out, "result", state == XSEG_REQUEST_DONE ? json_integer(r->result) : json_null());
	return out;
}

json_t *report_trace_details(const struct xseg *seg, const struct trace *trace)
{
	const struct xseg_request *r = &trace->copy;
	json_t *out = report_trace(seg, trace), *pages = json_array();
	uint32_t count = r->extent_count < XSEG_EXTENTS ? r->extent_count : XSEG_EXTENTS;
	for (uint32_t i = 0; i < count; i++)
		json_array_append_new(
			pages, json_pack("{s:I, s:I}", "page", (json_int_t)r->extents[i].page,
				       "count", (json_int_t)r->extents[i].count));
	json_t *more = json_pack("{s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:o}", "slot",
		(int)trace->slot, "generation", (int)xseg_word_generation(trace->word), "epoch",
		(int)xseg_word_epoch(trace->word), "frame", (int)frame_last(trace), "client_lane",
		(int)r->client, "flags", (int)r->flags, "extent_count", (int)r->extent_count,
		"answer_count", (int)r->answer_count, "extents", pages);
	json_object_update_missing(out, more);
	json_decref(more);
	return out;
}
