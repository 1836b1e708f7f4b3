/* SPDX-License-Identifier: Apache-2.0 */
/* Requests of a thread: put into its lane's queue, sent there, and the answer wakes the thread. */
#include <errno.h>
#include <peer/keep.h>

#include "peers/map/mapper.h"

/* --- the thread's side ---------------------------------------------------------------------- */

void mapper_call_all(struct mapper_shard *shard, struct mapper_call *calls, unsigned count)
{
	struct mapper_wait wait = {.pending = count};
	must(pthread_mutex_init(&wait.lock, NULL) == 0);
	must(pthread_cond_init(&wait.changed, NULL) == 0);
	pthread_mutex_lock(&shard->lock);
	bool gone = shard->gone;
	for (unsigned i = 0; i < count; i++) {
		calls[i].result = -ESHUTDOWN;
		calls[i].answer_length = 0;
		calls[i].value = 0;
		calls[i].wait = &wait;
		if (!gone)
			TAILQ_INSERT_TAIL(&shard->calls, &calls[i], link);
	}
	atomic_store(&shard->waiting, true);
	pthread_mutex_unlock(&shard->lock);
	if (!gone) {
		peer_wake(shard->peer, shard->peer->shard);
		pthread_mutex_lock(&wait.lock);
		while (wait.pending > 0)
			pthread_cond_wait(&wait.changed, &wait.lock);
		pthread_mutex_unlock(&wait.lock);
	}
	pthread_cond_destroy(&wait.changed);
	pthread_mutex_destroy(&wait.lock);
}

/* --- the lane's side ------------------------------------------------------------------------ */

/* From here on the call is the thread's again, and may be gone. */
static void call_wake(struct mapper_call *call)
{
	struct mapper_wait *wait = call->wait;
	pthread_mutex_lock(&wait->lock);
	if (--wait->pending == 0)
		pthread_cond_signal(&wait->changed);
	pthread_mutex_unlock(&wait->lock);
}

static void call_answered(struct call *asked)
{
	struct mapper_call *call = asked->context;
	struct mapper_shard *shard = asked->context2;
	uint32_t got = asked->answer_length < call->length ? asked->answer_length : call->length;
	call->result = asked->result;
	call->value = asked->value;
	call->answer_length = got;
	if (call->result == 0 && call->receive)
		call_get_bytes(asked, 0, call->receive, got);
	call_end(asked);
	pthread_mutex_lock(&shard->lock);
	TAILQ_REMOVE(&shard->sent, call, link);
	pthread_mutex_unlock(&shard->lock);
	call_wake(call);
}

/* -EAGAIN: no slot or page now. */
static int call_send(struct mapper_shard *shard, struct mapper_call *call)
{
	struct call *asked;
	int error = call_begin(shard->peer, &asked);
	if (error)
		return error;
	asked->op = call->op;
	asked->flags = call->flags;
	asked->key = call->key;
	asked->offset = call->offset;
	/* there it would be a part of the object */
	asked->length = call->op == XSEG_OP_INFO ? 0 : call->length;
	asked->arg0 = call->arg0;
	asked->arg1 = call->arg1;
	asked->context = call;
	asked->context2 = shard;
	error = call->send || call->receive ? call_pages(asked, call->length) : 0;
	if (error) {
		call_end(asked);
		return error;
	}
	if (call->send)
		call_put_bytes(asked, 0, call->send, call->length);
	call_submit(asked, MAPPER_STORE, call_answered);
	return 0;
}

/* The first that waits, moved to those that are sent; NULL: none. */
static struct mapper_call *call_next(struct mapper_shard *shard)
{
	pthread_mutex_lock(&shard->lock);
	struct mapper_call *call = TAILQ_FIRST(&shard->calls);
	if (call) {
		TAILQ_REMOVE(&shard->calls, call, link);
		TAILQ_INSERT_TAIL(&shard->sent, call, link);
	}
	pthread_mutex_unlock(&shard->lock);
	return call;
}

static void call_put_back(struct mapper_shard *shard, struct mapper_call *call)
{
	pthread_mutex_lock(&shard->lock);
	TAILQ_REMOVE(&shard->sent, call, link);
	TAILQ_INSERT_HEAD(&shard->calls, call, link);
	pthread_mutex_unlock(&shard->lock);
}

/* -EAGAIN: there is no room for the next. */
static int call_send_all(struct mapper_shard *shard, bool *moved)
{
	struct mapper_call *call;
	while ((call = call_next(shard))) {
		int error = call_send(shard, call);
		if (error == -EAGAIN) {
			call_put_back(shard, call);
			return error;
		}
		*moved = true;
		if (error == 0)
			continue;
		pthread_mutex_lock(&shard->lock);
		TAILQ_REMOVE(&shard->sent, call, link);
		pthread_mutex_unlock(&shard->lock);
		call->result = error;
		call_wake(call);
	}
	return 0;
}

static bool call_again(struct peer *peer, void *context)
{
	struct mapper_shard *shard = context;
	bool moved;
	(void)peer;
	if (call_send_all(shard, &moved) == -EAGAIN)
		return false;
	shard->retrying = false;
	return true;
}

bool mapper_call_pump(struct mapper_shard *shard)
{
	bool moved = false;
	if (shard->retrying)
		return false;
	if (call_send_all(shard, &moved) == -EAGAIN) {
		shard->retrying = true;
		peer_retry(shard->peer, call_again, shard);
	}
	return moved;
}

void mapper_call_open(struct mapper_shard *shard)
{
	must(pthread_mutex_init(&shard->lock, NULL) == 0);
	TAILQ_INIT(&shard->calls);
	TAILQ_INIT(&shard->sent);
	TAILQ_INIT(&shard->done);
}

void mapper_call_abandon(struct mapper_shard *shard)
{
	struct mapper_call_queue left;
	struct mapper_call *call;
	TAILQ_INIT(&left);
	pthread_mutex_lock(&shard->lock);
	shard->gone = true;
	TAILQ_CONCAT(&left, &shard->calls, link);
	TAILQ_CONCAT(&left, &shard->sent, link);
	pthread_mutex_unlock(&shard->lock);
	while ((call = TAILQ_FIRST(&left))) {
		TAILQ_REMOVE(&left, call, link);
		call->result = -ESHUTDOWN;
		call_wake(call);
	}
}
