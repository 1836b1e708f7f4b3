/* SPDX-License-Identifier: Apache-2.0 */
/* The worker's requests to the stores: the lane sends them, and wakes the worker when all are
   answered. There is one worker at a time, so one row of requests. */
#include <peer/keep.h>

#include "peers/mover/mover.h"

/* --- the worker's side ------------------------------------------------------------------------ */

int mover_call_all(struct mover *mover, unsigned store, struct mover_call *calls, unsigned count)
{
	struct mover_row *row = &mover->row;
	if (count == 0)
		return 0;
	pthread_mutex_lock(&row->lock);
	row->calls = calls;
	row->store = store;
	row->count = row->pending = count;
	row->sent = 0;
	atomic_store(&row->waits, true);
	pthread_mutex_unlock(&row->lock);
	peer_wake(mover->peer, 0);
	pthread_mutex_lock(&row->lock);
	while (row->pending > 0)
		pthread_cond_wait(&row->answered, &row->lock);
	pthread_mutex_unlock(&row->lock);
	for (unsigned i = 0; i < count; i++)
		if (calls[i].result != 0)
			return calls[i].result;
	return 0;
}

int mover_call_do(struct mover *mover, unsigned store, struct mover_call *call)
{
	return mover_call_all(mover, store, call, 1);
}

/* --- the lane's side -------------------------------------------------------------------------- */

static void call_ended(struct mover_row *row)
{
	pthread_mutex_lock(&row->lock);
	if (--row->pending == 0)
		pthread_cond_signal(&row->answered);
	pthread_mutex_unlock(&row->lock);
}

static void call_answered(struct call *asked)
{
	struct mover_call *call = asked->context;
	struct mover_row *row = asked->context2;
	uint32_t got = asked->answer_length < call->room ? asked->answer_length : call->room;
	call->result = asked->result;
	call->value = asked->value;
	call->got = got;
	if (call->result == 0 && call->receive && got > 0)
		call_get_bytes(asked, 0, call->receive, got);
	call_end(asked);
	call_ended(row);
}

/* -EAGAIN: no slot or page now. */
static int call_send(struct mover *mover, struct mover_call *call)
{
	struct call *asked;
	int rc = call_begin(mover->peer, &asked);
	if (rc != 0)
		return rc;
	asked->op = call->op;
	asked->key = call->key;
	asked->flags = call->flags;
	asked->offset = call->offset;
	asked->length = call->op == XSEG_OP_INFO ? 0 : call->room;
	asked->arg0 = call->arg0;
	asked->arg1 = call->arg1;
	asked->context = call;
	asked->context2 = &mover->row;
	rc = call_pages(asked, call->room);
	if (rc != 0) {
		call_end(asked);
		return rc;
	}
	if (call->send)
		call_put_bytes(asked, 0, call->send, call->room);
	call_submit(asked, mover->row.store, call_answered);
	return 0;
}

static bool call_send_rest(struct peer *peer, void *context)
{
	struct mover *mover = mover_of(peer);
	struct mover_row *row = context;
	for (; row->sent < row->count; row->sent++) {
		struct mover_call *call = &row->calls[row->sent];
		int rc = call_send(mover, call);
		if (rc == -EAGAIN)
			return false;
		call->result = rc;
		if (rc != 0)
			call_ended(row);
	}
	return true;
}

bool mover_call_turn(struct mover *mover)
{
	struct mover_row *row = &mover->row;
	if (likely(!atomic_load_explicit(&row->waits, memory_order_acquire)))
		return false;
	atomic_store(&row->waits, false);
	if (!call_send_rest(mover->peer, row))
		peer_retry(mover->peer, call_send_rest, row);
	return true;
}
