/* SPDX-License-Identifier: Apache-2.0 */
/* The workers' requests to the stores: the lane sends them, and wakes a worker when all of his row
   are answered. */
#include <peer/keep.h>

#include "peers/mover/mover.h"

/* --- the worker's side ------------------------------------------------------------------------ */

int mover_call_all(struct mover_row *row, unsigned store, struct mover_call *calls, unsigned count)
{
	if (count == 0)
		return 0;
	pthread_mutex_lock(&row->lock);
	row->calls = calls;
	row->store = store;
	row->count = row->pending = count;
	row->sent = 0;
	atomic_store(&row->waits, true);
	pthread_mutex_unlock(&row->lock);
	peer_wake(row->mover->peer, 0);
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
	return mover_call_all(&mover->row, store, call, 1);
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
static int call_send(struct mover_row *row, struct mover_call *call)
{
	struct call *asked;
	int rc = call_begin(row->mover->peer, &asked);
	if (rc != 0)
		return rc;
	asked->op = call->op;
	asked->key = call->key;
	asked->flags = call->flags;
	asked->offset = call->offset;
	asked->length = call->op == XSEG_OP_INFO ? 0 : call->length ? call->length : call->room;
	asked->arg0 = call->arg0;
	asked->arg1 = call->arg1;
	asked->context = call;
	asked->context2 = row;
	rc = call_pages(asked, call->room);
	if (rc != 0) {
		call_end(asked);
		return rc;
	}
	if (call->send)
		call_put_bytes(asked, 0, call->send, call->room);
	call_submit(asked, row->store, call_answered);
	return 0;
}

static bool call_send_rest(struct peer *peer, void *context)
{
	struct mover_row *row = context;
	(void)peer;
	for (; row->sent < row->count; row->sent++) {
		struct mover_call *call = &row->calls[row->sent];
		int rc = call_send(row, call);
		if (rc == -EAGAIN)
			return false;
		call->result = rc;
		if (rc != 0)
			call_ended(row);
	}
	return true;
}

static bool row_turn(struct mover_row *row)
{
	struct peer *peer = row->mover->peer;
	if (!atomic_load_explicit(&row->waits, memory_order_acquire))
		return false;
	atomic_store(&row->waits, false);
	if (!call_send_rest(peer, row))
		peer_retry(peer, call_send_rest, row);
	return true;
}

bool mover_call_turn(struct mover *mover)
{
	if (likely(mover->step == STEP_IDLE)) /* no worker is out */
		return false;
	bool moved = row_turn(&mover->row);
	for (unsigned i = 0; i < MOVER_BATCHES; i++)
		moved |= row_turn(&mover->batches[i].row);
	return moved;
}

/* --- begin and end ---------------------------------------------------------------------------- */

static void row_open(struct mover_row *row, struct mover *mover)
{
	row->mover = mover;
	must(pthread_mutex_init(&row->lock, NULL) == 0);
	must(pthread_cond_init(&row->answered, NULL) == 0);
}

static void row_close(struct mover_row *row)
{
	pthread_cond_destroy(&row->answered);
	pthread_mutex_destroy(&row->lock);
}

void mover_call_open(struct mover *mover)
{
	row_open(&mover->row, mover);
	for (unsigned i = 0; i < MOVER_BATCHES; i++)
		row_open(&mover->batches[i].row, mover);
}

void mover_call_close(struct mover *mover)
{
	row_close(&mover->row);
	for (unsigned i = 0; i < MOVER_BATCHES; i++)
		row_close(&mover->batches[i].row);
}
