/* SPDX-License-Identifier: Apache-2.0 */
/* Reads: each block once, in the order in which they lie on the tape. */
#include <stdlib.h>
#include <string.h>

#include "peers/blocker/tape/tape.h"

static int add(struct tape_pieces *pieces, struct tape_piece piece)
{
	if (pieces->count == pieces->room) {
		size_t room = pieces->room ? 2 * pieces->room : 64;
		struct tape_piece *all = realloc(pieces->all, room * sizeof(*all));
		if (!all)
			return -ENOMEM;
		pieces->all = all;
		pieces->room = room;
	}
	pieces->all[pieces->count++] = piece;
	return 0;
}

int tape_pass_want(struct tape_pieces *pieces, struct tape_task *task, const struct xseg_key *key)
{
	struct job *job = task->job;
	uint32_t begin = (uint32_t)job->offset, at = begin, end = begin + job->length;
	struct tape_extent extent;
	int error = 0;
	while (at < end && !error) {
		uint32_t offset = at, zeros = end;
		bool found = tape_index_extent(&task->store->index, key, &offset, end, &extent);
		uint32_t skip = found && offset < at ? at - offset : 0;
		if (found && extent.at != TAPE_NO_BYTES)
			zeros = offset < at ? at : offset;
		else if (found && offset + extent.length < end)
			zeros = offset + extent.length;
		if (!task->bytes)
			job_zero_bytes(job, at - begin, zeros - at);
		at = zeros;
		if (!found || extent.at == TAPE_NO_BYTES)
			continue;
		uint32_t length = extent.length - skip < end - at ? extent.length - skip : end - at;
		error = add(pieces, (struct tape_piece){.place = extent.place,
					    .at = extent.at + skip,
					    .length = length,
					    .to = at - begin,
					    .task = task});
		at += length;
	}
	return error;
}

static int compare(const void *a, const void *b)
{
	const struct tape_piece *x = a, *y = b;
	if (x->rank != y->rank)
		return x->rank < y->rank ? -1 : 1;
	if (x->place.cartridge != y->place.cartridge)
		return x->place.cartridge < y->place.cartridge ? -1 : 1;
	return x->place.position < y->place.position ? -1 : x->place.position > y->place.position;
}

static void deliver(const struct tape_store *store, const struct tape_piece *piece, int error)
{
	const uint8_t *from = store->room + piece->at;
	struct tape_task *task = piece->task;
	if (!error && (uint64_t)piece->at + piece->length > tape_log_block(store)->size)
		error = -EILSEQ;
	if (error && task && task->answer >= 0)
		task->answer = error;
	if (error)
		return;
	if (piece->memory)
		memcpy(piece->memory, from, piece->length);
	else if (task->bytes)
		memcpy(task->bytes + piece->to, from, piece->length);
	else
		job_put_bytes(task->job, piece->to, from, piece->length);
}

/* What lies behind the head comes before what it would have to wind back for. */
static void rank(struct tape_store *store, struct tape_pieces *pieces)
{
	for (size_t i = 0; i < pieces->count; i++) {
		struct tape_piece *piece = &pieces->all[i];
		bool behind =
			piece->place.file < store->file ||
			(piece->place.file == store->file && piece->place.block < store->block);
		if (!piece->rank)
			piece->rank = UINT32_MAX - 2 +
				      (piece->place.cartridge != store->mounted ? 2 : behind);
	}
}

int tape_pass_run(struct tape_store *store, struct tape_pieces *pieces)
{
	int first = 0;
	if (!pieces->count)
		return 0;
	rank(store, pieces);
	qsort(pieces->all, pieces->count, sizeof(*pieces->all), compare);
	for (size_t i = 0; i < pieces->count; i++) {
		const struct tape_piece *piece = &pieces->all[i];
		int error = tape_log_read(store, piece->place);
		if (error > 0)
			error = -EILSEQ; /* the tape ends before it */
		if (error < 0 && !first) {
			tape_log_say(store, error, "a read");
			first = error;
		}
		deliver(store, piece, error);
	}
	pieces->count = 0;
	return first;
}
