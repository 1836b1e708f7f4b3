/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Keeps a read and a write of the same sectors, or two writes, from being at work at once: a page
 * cache would mix them within a sector, which no disk does.
 */
#include <base/must.h>

#include "peers/blocker/file/file.h"

static bool changes(const struct file_op *op) { return op->job->op != XSEG_OP_READ; }

static bool meet(const struct file_op *a, const struct file_op *b)
{
	return (changes(a) || changes(b)) && a->job->offset < b->job->offset + b->job->length &&
	       b->job->offset < a->job->offset + a->job->length;
}

/* Those that wait already go first, up to `op` itself. */
static bool must_wait(const struct file_object *object, const struct file_op *op)
{
	const struct file_op *other;
	TAILQ_FOREACH (other, &object->inside, gate_link)
		if (meet(op, other))
			return true;
	for (other = TAILQ_FIRST(&object->gated); other && other != op;
		other = TAILQ_NEXT(other, gate_link))
		if (meet(op, other))
			return true;
	return false;
}

static void let_in(struct file_op *op)
{
	op->gate = FILE_GATE_INSIDE;
	TAILQ_INSERT_TAIL(&op->object->inside, op, gate_link);
}

bool file_gate_enter(struct file_op *op)
{
	struct file_object *object = op->object;
	if (op->gate == FILE_GATE_INSIDE)
		return true;
	must(op->gate == FILE_GATE_OUTSIDE);
	if (!must_wait(object, op)) {
		let_in(op);
		return true;
	}
	op->gate = FILE_GATE_WAITING;
	TAILQ_INSERT_TAIL(&object->gated, op, gate_link);
	file_count(op->shard, FILE_GATED, 1);
	return false;
}

void file_gate_leave(struct file_op *op)
{
	must(op->gate != FILE_GATE_WAITING);
	if (op->gate == FILE_GATE_INSIDE)
		TAILQ_REMOVE(&op->object->inside, op, gate_link);
	op->gate = FILE_GATE_OUTSIDE;
}

static struct file_op *next_of(const struct file_object *object)
{
	struct file_op *op;
	TAILQ_FOREACH (op, &object->gated, gate_link)
		if (!must_wait(object, op))
			return op;
	return NULL;
}

/* One that runs may end at once and come here again: the first call goes on for it. */
void file_gate_wake(struct file_object *object)
{
	struct file_op *op;
	if (object->waking)
		return;
	object->waking = true;
	while ((op = next_of(object))) {
		TAILQ_REMOVE(&object->gated, op, gate_link);
		let_in(op);
		file_op_run(op);
	}
	object->waking = false;
}
