/* SPDX-License-Identifier: Apache-2.0 */
/* A batch of objects: read, written and flushed; later, when nobody looks at them, deleted. */
#include <base/bytes.h>
#include <base/crash.h>
#include <base/log.h>
#include <base/time.h>

#include "peers/mover/mover.h"

#define AGAIN_NS 1000000000u

struct copies {
	struct mover_batch *batch;
	unsigned from, to;
	struct mover_call requests[MOVER_BATCH_MAX * MOVER_PARTS];
	struct xseg_object_info info[MOVER_BATCH_MAX];
	char *bytes[MOVER_BATCH_MAX];
	/* of what comes back: what the other host has, and which parts of the copy are the same */
	uint8_t digests[MOVER_BATCH_MAX][MOVER_PARTS][XSEG_DIGEST];
	bool same[MOVER_BATCH_MAX][MOVER_PARTS];
};

static struct mover_call *request_of(struct copies *copies, unsigned i, enum xseg_op op)
{
	struct mover_call *request = &copies->requests[i];
	*request = (struct mover_call){.op = op, .key = copies->batch->pieces[i].key};
	return request;
}

/* The same of each; -ENOENT is an answer like another. */
static int ask_each(struct copies *copies, unsigned store, enum xseg_op op)
{
	struct mover_batch *batch = copies->batch;
	for (unsigned i = 0; i < batch->count; i++) {
		struct mover_call *request = request_of(copies, i, op);
		if (op != XSEG_OP_INFO)
			continue;
		copies->info[i] = (struct xseg_object_info){0};
		request->room = sizeof(copies->info[i]);
		request->receive = &copies->info[i];
	}
	int rc = mover_call_all(&copies->batch->row, store, copies->requests, batch->count);
	if (rc != -ENOENT)
		return rc;
	for (unsigned i = 0; i < batch->count; i++)
		if (copies->requests[i].result != 0 && copies->requests[i].result != -ENOENT)
			return copies->requests[i].result;
	return 0;
}

/* Volumes of the batch, each once. */
static int flush(struct copies *copies, unsigned store)
{
	int rc = 0;
	for (unsigned i = 0; i < copies->batch->count && rc == 0; i++) {
		const struct mover_piece *pieces = copies->batch->pieces;
		bool known = false;
		for (unsigned k = 0; k < i; k++)
			known |= pieces[k].key.volume == pieces[i].key.volume;
		struct mover_call request = {
			.op = XSEG_OP_FLUSH, .key = {.volume = pieces[i].key.volume}};
		rc = known ? 0 : mover_call_all(&copies->batch->row, store, &request, 1);
	}
	return rc;
}

static uint32_t part_size(const struct mover_piece *piece, uint32_t at)
{
	uint32_t size = (uint32_t)piece->size;
	return size - at < MOVER_PART ? size - at : MOVER_PART;
}

/* What the other host says that it has. A store that is not behind a bridge says nothing. */
static void compare(struct copies *copies)
{
	struct mover *mover = copies->batch->row.mover;
	unsigned of[MOVER_BATCH_MAX], count = 0;
	for (unsigned i = 0; i < copies->batch->count && copies->to == MOVER_OLD; i++) {
		const struct mover_piece *piece = &copies->batch->pieces[i];
		uint32_t size = (uint32_t)piece->size;
		if (size == 0 || !mover_keep_get(mover, &piece->key, copies->bytes[i], size))
			continue;
		of[count] = i;
		copies->requests[count++] = (struct mover_call){.op = XSEG_OP_CONTROL,
			.key = piece->key,
			.arg0 = XSEG_CONTROL_DIGEST,
			.arg1 = MOVER_PART,
			.length = size,
			.room = (size + MOVER_PART - 1) / MOVER_PART * XSEG_DIGEST,
			.receive = copies->digests[i]};
	}
	(void)mover_call_all(&copies->batch->row, copies->from, copies->requests, count);
	for (unsigned k = 0; k < count; k++) {
		struct mover_piece *piece = &copies->batch->pieces[of[k]];
		bool told = copies->requests[k].result == 0 &&
			    copies->requests[k].got == copies->requests[k].room;
		for (uint32_t at = 0; told && at < piece->size; at += MOVER_PART) {
			uint8_t here[XSEG_DIGEST], *there = copies->digests[of[k]][at / MOVER_PART];
			uint32_t n = part_size(piece, at);
			call_digest_bytes(copies->bytes[of[k]] + at, n, here);
			copies->same[of[k]][at / MOVER_PART] = !memcmp(here, there, sizeof(here));
			piece->unchanged += copies->same[of[k]][at / MOVER_PART] ? n : 0;
		}
	}
}

/* Stretches of parts that are not known to be the same. */
static unsigned read_parts(struct copies *copies, unsigned i, unsigned count)
{
	const struct mover_piece *piece = &copies->batch->pieces[i];
	uint32_t size = (uint32_t)piece->size;
	for (uint32_t at = 0, end; at < size; at = end) {
		bool same = copies->same[i][at / MOVER_PART];
		for (end = at; end < size && copies->same[i][end / MOVER_PART] == same;)
			end += part_size(piece, end);
		if (!same)
			copies->requests[count++] = (struct mover_call){.op = XSEG_OP_READ,
				.key = piece->key,
				.offset = at,
				.room = end - at,
				.receive = copies->bytes[i] + at};
	}
	return count;
}

static int read_all(struct copies *copies)
{
	unsigned count = 0;
	for (unsigned i = 0; i < copies->batch->count; i++) {
		struct mover_piece *piece = &copies->batch->pieces[i];
		uint64_t size = copies->info[i].size;
		piece->unchanged = 0;
		piece->size = size < XSEG_OBJECT_MAX ? size : XSEG_OBJECT_MAX;
		piece->size = (piece->size + XSEG_SECTOR - 1) / XSEG_SECTOR * XSEG_SECTOR;
		copies->bytes[i] = malloc(piece->size + 1);
		if (!copies->bytes[i])
			return -ENOMEM;
	}
	compare(copies);
	for (unsigned i = 0; i < copies->batch->count; i++)
		count = read_parts(copies, i, count);
	return mover_call_all(&copies->batch->row, copies->from, copies->requests, count);
}

/* Stretches of parts that are not all zeros, and the last sector, so that it is as long. */
static unsigned write_parts(struct copies *copies, unsigned i, unsigned count)
{
	const struct mover_piece *piece = &copies->batch->pieces[i];
	const char *bytes = copies->bytes[i];
	uint32_t begin = 0, size = (uint32_t)piece->size;
	for (uint32_t at = 0; at < size; at = at + MOVER_PART < size ? at + MOVER_PART : size) {
		uint32_t n = part_size(piece, at);
		bool zero = bytes_are_zero(bytes + at, n), last = at + n == size;
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
	for (unsigned i = 0; i < copies->batch->count; i++) {
		before = count;
		count = write_parts(copies, i, count);
		holes |= count > before + 1;
	}
	int rc = mover_call_all(&copies->batch->row, copies->to, copies->requests, count);
	return rc == 0 && holes ? flush(copies, copies->to) : rc;
}

/* Copies stay here of what has gone. */
static void keep_all(struct copies *copies)
{
	struct mover *mover = copies->batch->row.mover;
	if (mover->keep < 0 || copies->to == MOVER_OLD)
		return;
	for (unsigned i = 0; i < copies->batch->count; i++) {
		const struct mover_piece *piece = &copies->batch->pieces[i];
		mover_keep_put(mover, &piece->key, copies->bytes[i], (uint32_t)piece->size);
	}
}

static int copy(struct copies *copies)
{
	bool litter = false;
	for (unsigned i = 0; i < copies->batch->count; i++)
		litter |= copies->batch->pieces[i].litter;
	int rc = litter ? ask_each(copies, copies->to, XSEG_OP_DELETE) : 0;
	if (rc == 0)
		rc = ask_each(copies, copies->from, XSEG_OP_INFO);
	if (rc == 0)
		rc = read_all(copies);
	if (rc == 0)
		rc = write_all(copies);
	if (rc == 0)
		keep_all(copies);
	crash_point("mover.copy.flushed");
	return rc;
}

static void set_litter(struct mover_batch *batch, bool litter)
{
	for (unsigned i = 0; i < batch->count; i++)
		batch->pieces[i].litter = litter;
}

static struct copies *copies_new(struct mover_batch *batch)
{
	struct copies *copies = calloc(1, sizeof(*copies));
	must(copies);
	copies->batch = batch;
	copies->from = !batch->group->to;
	copies->to = batch->group->to;
	return copies;
}

static void copies_free(struct copies *copies)
{
	for (unsigned i = 0; i < copies->batch->count; i++)
		free(copies->bytes[i]);
	free(copies);
}

void mover_copy_run(struct worker_item *item)
{
	struct mover_batch *batch = (struct mover_batch *)item;
	struct copies *copies = copies_new(batch);
	batch->error = copy(copies);
	if (batch->error != 0)
		set_litter(batch, ask_each(copies, copies->to, XSEG_OP_DELETE) != 0);
	else
		set_litter(batch, false);
	copies_free(copies);
}

/* Who knows whether a deletion that failed was done? The store that is left. */
static void find_out(struct copies *copies)
{
	struct mover_batch *batch = copies->batch;
	int rc;
	while ((rc = ask_each(copies, copies->from, XSEG_OP_INFO)) != 0 &&
		!atomic_load(&batch->row.mover->stopping))
		time_nap(AGAIN_NS);
	for (unsigned i = 0; i < batch->count; i++) {
		struct mover_piece *piece = &batch->pieces[i];
		piece->moved = rc == 0 && copies->requests[i].result == -ENOENT;
		piece->litter = !piece->moved;
	}
}

/* The copies are durable. A flush of the guest's covers these deletions, too, so one that is not
   durable yet can do no harm before. */
void mover_copy_delete(struct worker_item *item)
{
	struct mover_batch *batch = (struct mover_batch *)item;
	struct copies *copies = copies_new(batch);
	batch->error = ask_each(copies, copies->from, XSEG_OP_DELETE);
	crash_point("mover.copy.deleted");
	if (batch->error == 0)
		batch->error = flush(copies, copies->from);
	if (batch->error != 0)
		find_out(copies);
	for (unsigned i = 0; i < batch->count && batch->error == 0; i++)
		batch->pieces[i].moved = true;
	copies_free(copies);
}
