/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who has a volume open here. Who opened it while it was here is counted by our composer, who
 * opened it while it was away by us: the other host only hears that there is somebody, again and
 * again, so that nothing is left open there by who dies. It keeps the volume for them
 * (REHOME_KEEP), and so does our composer when it comes back.
 */
#include <xseg/lane.h>

#include "peers/rehome/rehome.h"

/* --- counted by us -------------------------------------------------------------------------- */

static struct rehome_opener *opener_of(struct rehome_volume *volume, const struct job *job)
{
	const struct xseg *seg = peer_segment(job->peer);
	uint16_t epoch = *(const volatile uint16_t *)&seg->requests[job->slot].client_epoch;
	struct rehome_opener *opener = &volume->openers[job->client % XSEG_LANES_MAX];
	if (opener->epoch != epoch) /* a lane of that number before it is dead */
		*opener = (struct rehome_opener){.epoch = epoch};
	return opener;
}

bool rehome_open_closes(struct rehome_volume *volume, const struct job *job)
{
	struct rehome_opener *opener = opener_of(volume, job);
	bool counted = opener->count > 0;
	opener->count -= counted;
	return counted;
}

static uint32_t count(const struct rehome *rehome, struct rehome_volume *volume)
{
	uint32_t sum = 0;
	for (unsigned lane = 0; lane < XSEG_LANES_MAX; lane++) {
		struct rehome_opener *opener = &volume->openers[lane];
		if (opener->count > 0 &&
			!xseg_lane_alive(peer_segment(rehome->peer), lane, opener->epoch))
			opener->count = 0;
		sum += opener->count;
	}
	return sum;
}

bool rehome_open_any(const struct rehome_volume *volume)
{
	bool any = false;
	for (unsigned lane = 0; !any && lane < XSEG_LANES_MAX; lane++)
		any = volume->openers[lane].count > 0;
	return any;
}

/* --- opening ---------------------------------------------------------------------------------- */

/* Nobody tells us what becomes of a volume that nobody here has open. */
static void found(struct call *call)
{
	struct job *job = call->context;
	struct rehome *rehome = rehome_of(job->peer);
	struct rehome_volume *volume = rehome_volume_find(rehome, job->key.volume);
	struct map_home_info home;
	int rc = rehome_volume_record(call, &home);
	bool away = volume->state == REHOME_AWAY;
	bool is_free = away && !volume->attached && home.owner == 0 && home.next == 0;
	bool settled = away || volume->state == REHOME_HOME;
	if (rc == 0 && settled && (is_free || rehome_volume_elsewhere(rehome, volume, &home)))
		rehome_volume_event(rehome, volume, REHOME_EV_ELSEWHERE, 0);
	rehome_route(rehome, volume, job);
}

bool rehome_open_looks(struct rehome *rehome, struct job *job)
{
	return rehome_volume_read_for(rehome, job, found) == 0;
}

static void ended(struct call *call) { call_end(call); }

/* Kept for him there, it need not be open any more. */
static void kept_there(struct call *call)
{
	struct rehome_volume *volume = call->context;
	uint32_t edge = (uint32_t)(uintptr_t)call->context2;
	struct call *close = rehome_volume_call(rehome_of(call->peer), volume, XSEG_OP_CLOSE, 0, 0);
	if (close)
		call_submit(close, edge, ended);
	call_end(call);
}

static void keep_there(struct rehome *rehome, struct rehome_volume *volume, uint32_t edge)
{
	struct call *call = rehome_source_ask(rehome, volume, REHOME_KEEP, REHOME_KEEP_NS);
	if (!call)
		return; /* it stays open there, until the bridge is cut */
	call->context2 = (void *)(uintptr_t)edge;
	call_submit(call, edge, kept_there);
}

static void opened(struct call *call)
{
	struct job *job = call->context;
	struct rehome *rehome = rehome_of(job->peer);
	struct rehome_volume *volume = rehome_volume_find(rehome, job->key.volume);
	uint32_t edge = (uint32_t)(uintptr_t)call->context2;
	int rc = call->result;
	bool is_there = volume->state == REHOME_AWAY && volume->edge == edge;
	if (rc == 0)
		keep_there(rehome, volume, edge);
	if (rc == 0 && is_there && job->arg0 == 0) /* else he says again what he has open */
		opener_of(volume, job)->count++;
	volume->attached |= is_there;
	volume->left = 0;
	rehome_volume_watch(rehome, volume);
	if (rc != 0)
		job_fail_value(job, rc, call->value);
	else if (is_there)
		job_complete_value(job, call->answer_length, call->value);
	else /* it is coming here, or has gone on: opened where it is */
		rehome_route_later(job);
	call_end(call);
}

void rehome_open_there(struct rehome_volume *volume, struct job *job)
{
	struct call *call = NULL;
	int rc = call_begin(job->peer, &call);
	if (rc == 0) {
		call_as(call, job);
		call->arg0 = 0;
		call->context = job;
		call->context2 = (void *)(uintptr_t)volume->edge;
		rc = call_borrow(call, job, 0, job->data_size);
	}
	if (rc == 0) {
		call_submit(call, volume->edge, opened);
		return;
	}
	if (call)
		call_end(call);
	rehome_route_later(job);
}

/* --- who has it is told ----------------------------------------------------------------------- */

static void kept(struct call *call)
{
	struct rehome_volume *volume = rehome_volume_of(call);
	if (volume && call->result == 0 && call->arg1 == 0 && ++volume->left >= REHOME_LEFT_TIMES)
		volume->attached = false;
	call_end(call);
}

static void asked(struct call *call)
{
	struct rehome *rehome = rehome_of(call->peer);
	struct rehome_volume *volume = rehome_volume_of(call);
	struct xseg_volume_info info = {.opens = 1};
	if (call->result == 0)
		call_get_bytes(call, 0, &info, sizeof(info));
	call_end(call);
	if (!volume)
		return;
	info.opens += count(rehome, volume);
	call = rehome_source_ask(
		rehome, volume, REHOME_KEEP, info.opens > 0 ? REHOME_KEEP_NS : REHOME_LEFT_NS);
	if (!call)
		return;
	call->arg1 = info.opens;
	call_submit(call, volume->edge, kept);
}

/* The one it went to has given it to a third: that one is told from now on, and asked, too, if one
   of our edges leads there. So the one in between is not needed. */
static void looked(struct call *call)
{
	struct rehome *rehome = rehome_of(call->peer);
	struct rehome_volume *volume = rehome_volume_of(call);
	struct map_home_info home;
	int rc = rehome_volume_record(call, &home);
	if (!volume)
		return;
	if (rc == 0 && rehome_volume_elsewhere(rehome, volume, &home)) {
		rehome_volume_event(rehome, volume, REHOME_EV_ELSEWHERE, 0);
		return;
	}
	call = rehome_volume_call(rehome, volume, XSEG_OP_INFO, 0, sizeof(struct xseg_volume_info));
	if (call)
		call_submit(call, REHOME_HERE, asked);
}

/* Our composer. Of one that was handed over, somebody elsewhere may say soon that he has it. */
static bool tell_it(struct rehome *rehome, struct rehome_volume *volume)
{
	volume->keeping = count(rehome, volume) > 0;
	bool wanted = volume->keeping || volume->since != 0;
	return rehome_volume_keep(rehome, volume, wanted ? REHOME_KEEP_NS : REHOME_LEFT_NS, ended);
}

bool rehome_open_turn(struct rehome *rehome, struct rehome_volume *volume)
{
	uint64_t now = peer_now_ns(rehome->peer);
	bool away = volume->state == REHOME_AWAY && volume->attached;
	bool here = volume->state == REHOME_HOME && (volume->keeping || rehome_open_any(volume));
	if (now < volume->count_ns || (!away && !here) || rehome->peer->stopping)
		return false;
	volume->count_ns = now + REHOME_COUNT_NS;
	return away ? rehome_volume_read(rehome, volume, 0, looked) : tell_it(rehome, volume);
}
