/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How fast a volume that is about to go is written to, and how fast the cache writes it back; and
 * writes that are held up (REHOME_STALL_THROTTLE), so that the rest gets short.
 */
#include "peers/rehome/rehome.h"

#define LIMIT_MIN (1u << 20) /* bytes a second; writers are not slowed down further */
#define LATE_NS 10000000u    /* what a turn that came late may make up for */
#define SECOND_NS 1000000000ull

/* --- what the cache says -------------------------------------------------------------------- */

/* An average of now and before. */
static void smooth(uint64_t *rate, uint64_t bytes, uint64_t ns)
{
	uint64_t now = (uint64_t)((double)bytes * SECOND_NS / (double)ns);
	*rate = *rate ? (*rate + now) / 2 : now;
}

static void expect(struct rehome_volume *volume)
{
	struct rehome_progress *progress = &volume->pace.progress;
	double rest_ns = progress->bandwidth
				 ? (double)progress->rest * SECOND_NS / (double)progress->bandwidth
				 : (double)volume->info.round_ns;
	progress->expected_ns = volume->move.rtt_ns + (uint64_t)rest_ns;
}

static void measure(struct rehome_volume *volume, const struct xseg_dirty *dirty, uint64_t now)
{
	struct rehome_pace *pace = &volume->pace;
	const struct xseg_dirty *before = &pace->dirty;
	uint64_t sum = dirty->bytes + dirty->written, sum_before = before->bytes + before->written;
	uint64_t ns = now - pace->measured_ns;
	/* else it is another cache, or the same one killed since */
	bool goes_on = pace->measured_ns != 0 && ns > 0 && dirty->written >= before->written;
	if (goes_on)
		smooth(&pace->progress.dirty_rate, sum > sum_before ? sum - sum_before : 0, ns);
	if (goes_on && dirty->written > before->written)
		smooth(&pace->progress.bandwidth, dirty->written - before->written, ns);
	pace->dirty = *dirty;
	pace->measured_ns = now;
	pace->progress.rest = dirty->bytes;
	expect(volume);
}

static void measured(struct call *call)
{
	struct rehome_volume *volume = call->context;
	struct xseg_dirty dirty = {0};
	bool said = call->result == 0 && call->answer_length >= sizeof(dirty);
	if (said)
		call_get_bytes(call, 0, &dirty, sizeof(dirty));
	call_end(call);
	volume->pace.asking = false;
	if (said && volume->state == REHOME_EXPORT)
		measure(volume, &dirty, peer_now_ns(call->peer));
}

static bool ask(struct rehome *rehome, struct rehome_volume *volume)
{
	struct call *call = rehome_volume_call(
		rehome, volume, XSEG_OP_CONTROL, XSEG_CONTROL_DIRTY, sizeof(struct xseg_dirty));
	if (!call)
		return false;
	volume->pace.asking = true;
	call_submit(call, REHOME_HERE, measured);
	return true;
}

/* --- writes that are held up ---------------------------------------------------------------- */

bool rehome_pace_tighten(struct rehome_volume *volume)
{
	struct rehome_pace *pace = &volume->pace;
	uint64_t was = pace->progress.limit ? pace->progress.limit : pace->progress.bandwidth;
	if (was == 0 || pace->progress.limit == LIMIT_MIN)
		return false;
	pace->progress.limit = was / 2 > LIMIT_MIN ? was / 2 : LIMIT_MIN;
	return true;
}

static void pass(struct rehome *rehome, struct rehome_volume *volume, struct job *job)
{
	struct rehome_pace *pace = &volume->pace;
	uint64_t late = peer_now_ns(rehome->peer) - LATE_NS;
	if (pace->next_ns < late)
		pace->next_ns = late;
	pace->next_ns += job->length * SECOND_NS / pace->progress.limit;
	rehome_route_here(volume, job);
}

void rehome_pace_write(struct rehome *rehome, struct rehome_volume *volume, struct job *job)
{
	struct rehome_pace *pace = &volume->pace;
	if (TAILQ_EMPTY(&pace->held) && peer_now_ns(rehome->peer) >= pace->next_ns) {
		pass(rehome, volume, job);
		return;
	}
	TAILQ_INSERT_TAIL(&pace->held, job, link);
	peer_count(rehome->peer, REHOME_C_HELD, 1);
}

static bool let_through(struct rehome *rehome, struct rehome_volume *volume)
{
	struct rehome_pace *pace = &volume->pace;
	struct job *job;
	bool moved = false;
	while ((job = TAILQ_FIRST(&pace->held)) && peer_now_ns(rehome->peer) >= pace->next_ns) {
		TAILQ_REMOVE(&pace->held, job, link);
		pass(rehome, volume, job);
		moved = true;
	}
	return moved;
}

/* --- a move --------------------------------------------------------------------------------- */

void rehome_pace_begin(struct rehome_volume *volume)
{
	volume->pace.progress = (struct rehome_progress){0};
	volume->pace.measured_ns = 0;
}

void rehome_pace_end(struct rehome *rehome, struct rehome_volume *volume)
{
	struct job_queue held = TAILQ_HEAD_INITIALIZER(held);
	struct job *job;
	TAILQ_CONCAT(&held, &volume->pace.held, link);
	volume->pace.progress.limit = 0;
	while ((job = TAILQ_FIRST(&held))) {
		TAILQ_REMOVE(&held, job, link);
		rehome_route(rehome, volume, job);
	}
}

uint64_t rehome_pace_wake(const struct rehome_volume *volume)
{
	return TAILQ_EMPTY(&volume->pace.held) ? UINT64_MAX : volume->pace.next_ns;
}

bool rehome_pace_turn(struct rehome *rehome, struct rehome_volume *volume, uint64_t now)
{
	struct rehome_pace *pace = &volume->pace;
	bool moved = let_through(rehome, volume);
	if (!pace->asking && now >= pace->ask_ns) {
		pace->ask_ns = now + REHOME_RETRY_NS;
		moved |= ask(rehome, volume);
	}
	return moved;
}
