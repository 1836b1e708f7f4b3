/* SPDX-License-Identifier: Apache-2.0 */
/* A batch of objects: read, written and flushed; later, when nobody looks at them, deleted. */
#include <base/crash.h>
#include <base/log.h>
#include <base/time.h>

#include "peers/mover/mover.h"

#define PART (64u << 10) /* what is all zeros is not written */
#define PARTS (XSEG_OBJECT_MAX / PART)
#define AGAIN_NS 1000000000u

struct copies {
	struct mover *mover;
	struct mover_task *task;
	unsigned from, to;
	struct mover_call requests[MOVER_BATCH_MAX * PARTS];
	struct xseg_object_info info[MOVER_BATCH_MAX];
	char *bytes[MOVER_BATCH_MAX];
};

static struct mover_call *request_of(struct copies *copies, unsigned i, enum xseg_op op)
{
	struct mover_call *request = &copies->requests[i];
	*request = (struct mover_call){.op = op, .key = copies->task->pieces[i].key};
	return request;
}

/* The same of each; -ENOENT is an answer like another. */
static int ask_each(struct copies *copies, unsigned store, enum xseg_op op)
{
	struct mover_task *task = copies->task;
	for (unsigned i = 0; i < task->count; i++) {
		struct mover_call *request = request_of(copies, i, op);
		if (op != XSEG_OP_INFO)
			continue;
		copies->info[i] = (struct xseg_object_info){0};
		request->room = sizeof(copies->info[i]);
		request->receive = &copies->info[i];
	}
	int rc = mover_call_all(copies->mover, store, copies->requests, task->count);
	if (rc != -ENOENT)
		return rc;
	for (unsigned i = 0; i < task->count; i++)
		if (copies->requests[i].result != 0 && copies->requests[i].result != -ENOENT)
			return copies->requests[i].result;
	return 0;
}

/* Volumes of the batch, each once. */
static int flush(struct copies *copies, unsigned store)
{
	int rc = 0;
	for (unsigned i = 0; i < copies->task->count && rc == 0; i++) {
		const struct mover_piece *pieces = copies->task->pieces;
		bool known = false;
		for (unsigned k = 0; k < i; k++)
			known |= pieces[k].key.volume == pieces[i].key.volume;
		struct mover_call request = {
			.op = XSEG_OP_FLUSH, .key = {.volume = pieces[i].key.volume}};
		rc = known ? 0 : mover_call_do(copies->mover, store, &request);
	}
	return rc;
}

static int read_all(struct copies *copies)
{
	unsigned count = 0;
	for (unsigned i = 0; i < copies->task->count; i++) {
		struct mover_piece *piece = &copies->task->pieces[i];
		uint64_t size = copies->info[i].size;
		piece->size = size < XSEG_OBJECT_MAX ? size : XSEG_OBJECT_MAX;
		piece->size = (piece->size + XSEG_SECTOR - 1) / XSEG_SECTOR * XSEG_SECTOR;
		if (piece->size == 0)
			continue;
		copies->bytes[i] = malloc(piece->size);
		if (!copies->bytes[i])
			return -ENOMEM;
		copies->requests[count++] = (struct mover_call){.op = XSEG_OP_READ,
			.key = piece->key,
			.room = (uint32_t)piece->size,
			.receive = copies->bytes[i]};
	}
	return mover_call_all(copies->mover, copies->from, copies->requests, count);
}

/* Stretches of parts that are not all zeros, and the last sector, so that it is as long. */
static unsigned write_parts(struct copies *copies, unsigned i, unsigned count)
{
	const struct mover_piece *piece = &copies->task->pieces[i];
	const char *bytes = copies->bytes[i];
	uint32_t begin = 0, size = (uint32_t)piece->size;
	for (uint32_t at = 0; at < size; at = at + PART < size ? at + PART : size) {
		uint32_t n = size - at < PART ? size - at : PART;
		bool zero = store_is_zero(bytes + at, n), last = at + n == size;
		uint32_t end = zero ? at : at + n;
		if (zero && last && begin == at)
			begin = size - XSEG_SECTOR;
		if (last)
			end = size;
		if ((zero || last) && begin < end)
			copies->requests[count++] = (struct mover_call){.op = XSEG_OP_WRITE,
				.key = piece->key,
				.flags = XSEG_F_FUA,
				.offset = begin,
				.room = end - begin,
				.send = bytes + begin};
		if (zero)
			begin = at + n;
	}
	return count;
}

/*
 * Each durable when it is answered: the disk has the first while the last is on its way there. An
 * object with holes is of several pieces that do not wait for each other, so the answer to one says
 * nothing of the others: then a flush has to.
 */
static int write_all(struct copies *copies)
{
	unsigned count = 0, before;
	bool holes = false;
	for (unsigned i = 0; i < copies->task->count; i++) {
		before = count;
		count = write_parts(copies, i, count);
		holes |= count > before + 1;
	}
	int rc = mover_call_all(copies->mover, copies->to, copies->requests, count);
	return rc == 0 && holes ? flush(copies, copies->to) : rc;
}

static int copy(struct copies *copies)
{
	bool litter = false;
	for (unsigned i = 0; i < copies->task->count; i++)
		litter |= copies->task->pieces[i].litter;
	int rc = litter ? ask_each(copies, copies->to, XSEG_OP_DELETE) : 0;
	if (rc == 0)
		rc = ask_each(copies, copies->from, XSEG_OP_INFO);
	if (rc == 0)
		rc = read_all(copies);
	if (rc == 0)
		rc = write_all(copies);
	crash_point("mover.copy.flushed");
	return rc;
}

static void set_litter(struct mover_task *task, bool litter)
{
	for (unsigned i = 0; i < task->count; i++)
		task->pieces[i].litter = litter;
}

static struct copies *copies_new(struct mover_task *task)
{
	struct copies *copies = calloc(1, sizeof(*copies));
	must(copies);
	copies->mover = task->mover;
	copies->task = task;
	copies->from = !task->to;
	copies->to = task->to;
	return copies;
}

static void copies_free(struct copies *copies)
{
	for (unsigned i = 0; i < copies->task->count; i++)
		free(copies->bytes[i]);
	free(copies);
}

void mover_copy_run(struct worker_item *item)
{
	struct mover_task *task = (struct mover_task *)item;
	struct copies *copies = copies_new(task);
	task->error = copy(copies);
	if (task->error != 0)
		set_litter(task, ask_each(copies, copies->to, XSEG_OP_DELETE) != 0);
	else
		set_litter(task, false);
	copies_free(copies);
}

/* Who knows whether a deletion that failed was done? The store that is left. */
static void find_out(struct copies *copies)
{
	struct mover_task *task = copies->task;
	int rc;
	while ((rc = ask_each(copies, copies->from, XSEG_OP_INFO)) != 0 &&
		!atomic_load(&task->mover->stopping))
		time_nap(AGAIN_NS);
	for (unsigned i = 0; i < task->count; i++) {
		struct mover_piece *piece = &task->pieces[i];
		piece->moved = rc == 0 && copies->requests[i].result == -ENOENT;
		piece->litter = !piece->moved;
	}
}

/* The copies are durable. A flush of the guest's covers these deletions, too, so one that is not
   durable yet can do no harm before. */
void mover_copy_delete(struct worker_item *item)
{
	struct mover_task *task = (struct mover_task *)item;
	struct copies *copies = copies_new(task);
	task->error = ask_each(copies, copies->from, XSEG_OP_DELETE);
	crash_point("mover.copy.deleted");
	if (task->error == 0)
		task->error = flush(copies, copies->from);
	if (task->error != 0)
		find_out(copies);
	for (unsigned i = 0; i < task->count && task->error == 0; i++)
		task->pieces[i].moved = true;
	copies_free(copies);
}
