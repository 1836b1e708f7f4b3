/* SPDX-License-Identifier: Apache-2.0 */
/* Requests: to our composer, to the other host, or they wait until it is known which. */
#include <xseg/request.h>

#include "peers/rehome/rehome.h"

static bool retry(struct peer *peer, void *context)
{
	rehome_route_serve(peer, context);
	return true;
}

void rehome_route_later(struct job *job) { peer_retry(job->peer, retry, job); }

/* --- terms -------------------------------------------------------------------------------- */

static void go_on(const struct rehome_volume *volume, struct job *job)
{
	if (job->op == XSEG_OP_WRITE || job->op == XSEG_OP_ZERO || job->op == XSEG_OP_DISCARD ||
		job->op == XSEG_OP_FLUSH || job->op == XSEG_OP_OPEN)
		job->arg1 = rehome_table_term(job->arg1, volume->since, volume->term);
}

/* --- which of them ---------------------------------------------------------------------------- */

static void go_there(struct rehome *rehome, struct rehome_volume *volume, struct job *job)
{
	go_on(volume, job);
	peer_count(rehome->peer, REHOME_C_AWAY, 1);
	rehome_open_works(rehome, volume);
	if (job->op == XSEG_OP_OPEN)
		rehome_open_there(volume, job);
	else if (job->op == XSEG_OP_CLOSE)
		job_forward(job, REHOME_HERE); /* where he has opened it */
	else
		job_forward(job, volume->edge);
}

void rehome_route_wait(struct rehome *rehome, struct rehome_volume *volume, struct job *job)
{
	TAILQ_INSERT_TAIL(&volume->waiting, job, link);
	volume->info.waiting++;
	peer_count(rehome->peer, REHOME_C_WAITS, 1);
	rehome_volume_event(rehome, volume, REHOME_EV_ASKED, 0);
}

void rehome_route_here(const struct rehome_volume *volume, struct job *job)
{
	go_on(volume, job);
	job_forward(job, REHOME_HERE);
}

void rehome_route(struct rehome *rehome, struct rehome_volume *volume, struct job *job)
{
	enum rehome_way way = rehome_table_way(volume->state, job->op == XSEG_OP_READ);
	if (job->op == XSEG_OP_CLOSE && rehome_open_closes(volume, job)) {
		job_complete(job, 0);
		return;
	}
	if (unlikely(way == REHOME_WAY_WAIT)) {
		rehome_route_wait(rehome, volume, job);
		return;
	}
	if (unlikely(volume->state == REHOME_EXPORT) && volume->pace.progress.limit != 0 &&
		job->op == XSEG_OP_WRITE)
		rehome_pace_write(rehome, volume, job);
	else if (way == REHOME_WAY_HERE)
		rehome_route_here(volume, job);
	else
		go_there(rehome, volume, job);
}

void rehome_route_wake(struct rehome *rehome, struct rehome_volume *volume)
{
	struct job_queue waiting = TAILQ_HEAD_INITIALIZER(waiting);
	struct job *job;
	TAILQ_CONCAT(&waiting, &volume->waiting, link);
	volume->info.waiting = 0;
	while ((job = TAILQ_FIRST(&waiting))) {
		TAILQ_REMOVE(&waiting, job, link);
		rehome_route_serve(rehome->peer, job);
	}
}

void rehome_route_open_here(struct rehome *rehome, struct rehome_volume *volume)
{
	struct job_queue waiting = TAILQ_HEAD_INITIALIZER(waiting);
	struct job *job;
	if (volume->state != REHOME_LOOKING)
		return;
	TAILQ_CONCAT(&waiting, &volume->waiting, link);
	volume->info.waiting = 0;
	while ((job = TAILQ_FIRST(&waiting))) {
		TAILQ_REMOVE(&waiting, job, link);
		if (job->op == XSEG_OP_OPEN && job->arg1 == 0) {
			volume->unsure = true;
			job_forward(job, REHOME_HERE);
		} else {
			rehome_route_wait(rehome, volume, job);
		}
	}
}

static void by_id(struct rehome *rehome, struct job *job)
{
	struct rehome_volume *volume = rehome_volume_get(rehome, job->key.volume);
	if (!volume) {
		rehome_route_later(job);
		return;
	}
	bool settled = volume->state == REHOME_HOME || volume->state == REHOME_AWAY;
	bool opens = job->op == XSEG_OP_OPEN && job->arg0 == 0 && job->arg1 == 0;
	if (!opens || !settled)
		rehome_route(rehome, volume, job);
	else if (!rehome_open_looks(rehome, job))
		rehome_route_later(job);
}

/* --- by name -------------------------------------------------------------------------------- */

static bool ask_name(struct job *job, uint32_t edge);

static bool knows_not(int rc)
{
	return rc == -ENOENT || rc == -EOPNOTSUPP || rc == -EPERM || rc == -EACCES;
}

/* A volume that has left with its data is still open here, and its client may come again: by its
   name. Who cannot answer might have it: the next one is not asked, as its volume of that name
   would be another. */
static void named(struct call *call)
{
	struct job *job = call->context;
	uint32_t edge = (uint32_t)(uintptr_t)call->context2;
	struct xseg_volume_info info = {0};
	int rc = call->result;
	call_end(call);
	if (rc == 0)
		job_get_bytes(job, 0, &info, sizeof(info));
	job->key.volume = info.id;
	if (info.id != 0)
		by_id(rehome_of(job->peer), job);
	else if (edge != REHOME_HERE && !knows_not(rc))
		job_fail(job, rc ? rc : -EPROTO);
	else if (!knows_not(rc) ||
		 !ask_name(job, edge + 1)) /* there is none: the composer says so */
		job_forward(job, REHOME_HERE);
}

/* Of the composer here or, from that edge on, of another host's. The answer has the name where the
   question had it. False: there is nobody to ask. */
static bool ask_name(struct job *job, uint32_t edge)
{
	struct call *call = NULL;
	edge = rehome_volume_edge_from(rehome_of(job->peer), edge);
	if (edge > REHOME_EDGES)
		return false;
	int rc = call_begin(job->peer, &call);
	if (rc == 0) {
		call_as(call, job);
		call->op = XSEG_OP_INFO;
		call->flags = 0;
		call->arg0 = call->arg1 = 0;
		call->context = job;
		call->context2 = (void *)(uintptr_t)edge;
		rc = call_borrow(call, job, 0, job->data_size);
	}
	if (rc == 0) {
		call_submit(call, edge, named);
		return true;
	}
	if (call)
		call_end(call);
	rehome_route_later(job);
	return true;
}

static void by_name(struct job *job)
{
	if (job->data_size < sizeof(struct xseg_volume_info))
		job_fail(job, -EINVAL);
	else
		ask_name(job, REHOME_HERE);
}

/* --- what is asked of us ---------------------------------------------------------------------- */

static void cancel(struct rehome *rehome, struct job *job)
{
	struct rehome_volume *volume = rehome_volume_find(rehome, job->key.volume);
	if (volume)
		rehome_volume_event(rehome, volume, REHOME_EV_CANCEL, -ECANCELED);
	job_complete(job, 0);
}

static void put_info(struct job *job, struct rehome_volume *volume, uint32_t at)
{
	struct rehome_info info = volume->info;
	info.volume = volume->id;
	info.state = volume->state;
	info.edge = volume->state == REHOME_AWAY ? volume->edge : volume->move.edge;
	job_put_bytes(job, at, &info, sizeof(info));
}

/* In the order of the table; what comes meanwhile may be missed. */
static void list(struct rehome *rehome, struct job *job)
{
	uint32_t at = REHOME_ANSWER_AT, bucket = (uint32_t)job->arg1;
	struct rehome_volume *volume;
	for (; bucket < REHOME_BUCKETS; bucket++) {
		uint32_t room = at;
		LIST_FOREACH (volume, &rehome->volumes[bucket], link)
			room += (uint32_t)sizeof(struct rehome_info);
		if (room > job->data_size)
			break;
		LIST_FOREACH (volume, &rehome->volumes[bucket], link) {
			put_info(job, volume, at);
			at += (uint32_t)sizeof(struct rehome_info);
		}
	}
	job_complete_value(job, at, bucket < REHOME_BUCKETS ? bucket : 0);
}

static void tell(struct rehome *rehome, struct job *job)
{
	struct rehome_volume *volume = rehome_volume_find(rehome, job->key.volume);
	uint32_t size = REHOME_ANSWER_AT + (uint32_t)sizeof(struct rehome_info);
	if (job->data_size < size) {
		job_fail(job, -EINVAL);
	} else if (job->key.volume == 0) {
		list(rehome, job);
	} else if (!volume) {
		job_fail(job, -ENOENT);
	} else {
		volume->move.heard_ns = peer_now_ns(rehome->peer);
		put_info(job, volume, REHOME_ANSWER_AT);
		job_complete(job, size);
	}
}

static void tell_progress(const struct rehome *rehome, struct job *job)
{
	const struct rehome_volume *volume = rehome_volume_find(rehome, job->key.volume);
	const struct rehome_progress *progress = volume ? &volume->pace.progress : NULL;
	uint32_t size = REHOME_ANSWER_AT + (uint32_t)sizeof(*progress);
	if (!progress || job->data_size < size) {
		job_fail(job, progress ? -EINVAL : -ENOENT);
		return;
	}
	job_put_bytes(job, REHOME_ANSWER_AT, progress, sizeof(*progress));
	job_complete(job, size);
}

static void control(struct peer *peer, struct job *job)
{
	struct rehome *rehome = rehome_of(peer);
	switch (job->arg0) {
	case REHOME_BEGIN: rehome_source_begin(rehome, job); break;
	case REHOME_GO: rehome_source_go(rehome, job); break;
	case REHOME_CANCEL: cancel(rehome, job); break;
	case REHOME_STATE: tell(rehome, job); break;
	case REHOME_PROGRESS: tell_progress(rehome, job); break;
	case REHOME_OFFER: rehome_target_offer(rehome, job); break;
	case REHOME_TAKE: rehome_target_take(rehome, job); break;
	case REHOME_KEEP: rehome_target_keep(rehome, job); break;
	case MAP_HOME: /* of another re-homer: what our composer knows; else where it is */
		if (job->flags & XSEG_F_FAST_ONLY)
			job_forward(job, REHOME_HERE);
		else
			by_id(rehome, job);
		break;
	default:
		if (job->key.volume != 0)
			by_id(rehome, job);
		else
			job_forward(job, REHOME_HERE);
	}
}

void rehome_route_serve(struct peer *peer, struct job *job)
{
	bool admin = job->op == XSEG_OP_INFO || job->op == XSEG_OP_LIST ||
		     job->op == XSEG_OP_CREATE || job->op == XSEG_OP_UPDATE ||
		     job->op == XSEG_OP_REMOVE;
	if (job->op == XSEG_OP_CONTROL)
		control(peer, job);
	else if (!admin && job->key.volume != 0)
		by_id(rehome_of(peer), job);
	else if (job->op == XSEG_OP_OPEN)
		by_name(job);
	else
		job_forward(job, REHOME_HERE);
}

/* --- what is on its way ----------------------------------------------------------------------- */

static bool is_there(const struct rehome *rehome, uint32_t port)
{
	for (uint32_t edge = 1; edge <= REHOME_EDGES; edge++)
		if (rehome->edges[edge].port == port)
			return true;
	return false;
}

/* Handed on by us, not to another host, and not answered; the frame behind ours says for which
   volume, also of what came by name. A word that changes meanwhile is looked at again. */
static bool is_on_its_way(
	const struct rehome *rehome, const struct xseg_request *request, uint64_t id, bool reads)
{
	uint64_t word = atomic_load_explicit(&request->word, memory_order_acquire);
	unsigned state = xseg_word_state(word), last = xseg_word_frame(word);
	if ((state != XSEG_REQUEST_SUBMITTED && state != XSEG_REQUEST_TAKEN) || last >= XSEG_FRAMES)
		return false;
	for (unsigned i = 0; i < last; i++) {
		const volatile struct xseg_frame *frame = &request->frame[i];
		bool ours = frame[0].port == rehome->peer->port && frame[1].key.volume == id;
		bool counts = reads || frame[0].op != XSEG_OP_READ;
		if (ours && counts && !is_there(rehome, frame[1].port))
			return true;
	}
	return atomic_load_explicit(&request->word, memory_order_acquire) != word;
}

bool rehome_route_quiet(const struct rehome *rehome, uint64_t id, bool reads)
{
	const struct xseg *seg = peer_segment(rehome->peer);
	for (uint32_t slot = 0; slot < seg->request_count; slot++)
		if (is_on_its_way(rehome, &seg->requests[slot], id, reads))
			return false;
	return true;
}
