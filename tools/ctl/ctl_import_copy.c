/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Import's loop. A volume that is new gets what the source has. One with contents (of a base, of an
 * import that was killed) is read where it is not known to be zeros, and gets what differs, block
 * by block: so it does not matter what is there, nor how far the killed one had come.
 */
#include <errno.h>
#include <string.h>

#include "tools/ctl/ctl_import.h"

/* --- requests --------------------------------------------------------------------------- */

/* Takes one answer; what it says of its request is this command's error. */
static int collect(struct import *import)
{
	struct client_request *request;
	int rc = client_collect(&import->client, &request);
	bool asked = !rc && request == &import->asking;
	if (rc)
		return ctl_volume_fault(import->ctl, import->info.name, "cannot be written", rc);
	if (asked)
		import->answered = true;
	else
		import->idle[import->idle_count++] = request;
	if (request->result)
		return ctl_volume_fault(import->ctl, import->info.name,
			asked ? "cannot be read" : "cannot be written", request->result);
	if (request->op == XSEG_OP_WRITE)
		import->written += request->length;
	return 0;
}

/* Without data: zeros. */
static int write_run(struct import *import, uint64_t offset, const uint8_t *data, uint32_t length)
{
	if (import->idle_count == 0) {
		int rc = collect(import);
		if (rc)
			return rc;
	}
	struct client_request *request = import->idle[--import->idle_count];
	*request = (struct client_request){.op = data ? XSEG_OP_WRITE : XSEG_OP_ZERO,
		.key.volume = import->info.id,
		.offset = offset,
		.length = length,
		.arg1 = import->info.term,
		.send = data,
		.send_size = data ? length : 0};
	int rc = client_start(&import->client, request);
	if (!rc)
		return 0;
	import->idle[import->idle_count++] = request;
	return ctl_volume_fault(import->ctl, import->info.name, "cannot be written", rc);
}

/* An answer that is waited for, whatever else comes meanwhile. */
static int ask(struct import *import, enum xseg_op op, uint64_t offset, uint32_t length, void *out,
	uint32_t out_size)
{
	import->asking = (struct client_request){.op = op,
		.key.volume = import->info.id,
		.offset = offset,
		.length = length,
		.receive = out,
		.receive_size = out_size};
	import->answered = false;
	int rc = client_start(&import->client, &import->asking);
	if (rc)
		return ctl_volume_fault(import->ctl, import->info.name, "cannot be read", rc);
	while (!rc && !import->answered)
		rc = collect(import);
	return rc;
}

/* --- what is there ---------------------------------------------------------------------- */

static int look(struct import *import, uint64_t from)
{
	uint64_t left = import->info.size - from;
	uint32_t length = left < XSEG_OBJECT_MAX ? (uint32_t)left : XSEG_OBJECT_MAX;
	int rc =
		ask(import, XSEG_OP_STATUS, from, length, import->extents, sizeof(import->extents));
	if (rc)
		return rc;
	import->extent_count = import->asking.answer_length / sizeof(import->extents[0]);
	import->looked_from = from;
	import->looked_to = from + length;
	return 0;
}

/* Of what was looked at: where from `from` on something may be. What was not said may be. */
static uint64_t looked_data(const struct import *import, uint64_t from)
{
	uint64_t end = import->looked_from;
	for (unsigned i = 0; i < import->extent_count; i++) {
		end += import->extents[i].length;
		if (end > from && !(import->extents[i].flags & XSEG_STATUS_ZERO))
			return end - import->extents[i].length > from
				       ? end - import->extents[i].length
				       : from;
	}
	return end > from ? end : from;
}

/* Where from `from` on there may be anything but zeros; *found is `limit`: nowhere before it. */
static int present_data(struct import *import, uint64_t from, uint64_t limit, uint64_t *found)
{
	int rc = 0;
	*found = from;
	while (!rc && *found < limit) {
		if (*found < import->looked_from || *found >= import->looked_to)
			rc = look(import, *found);
		*found = looked_data(import, *found);
		if (*found < import->looked_to)
			break;
	}
	if (*found > limit)
		*found = limit;
	return rc;
}

static int present_read(struct import *import, uint32_t length)
{
	uint64_t data;
	int rc = present_data(import, import->at, import->at + length, &data);
	if (rc)
		return rc;
	if (data < import->at + length)
		return ask(import, XSEG_OP_READ, import->at, length, import->present, length);
	memset(import->present, 0, length);
	return 0;
}

/* --- chunks ----------------------------------------------------------------------------- */

enum block { BLOCK_SAME_ZERO, BLOCK_SAME, BLOCK_DATA, BLOCK_ZERO };

static enum block block_look(const struct import *import, uint32_t at, uint32_t length)
{
	static const uint8_t zeros[CTL_COPY_BLOCK];
	bool zero = memcmp(import->buffer + at, zeros, length) == 0;
	if (memcmp(import->buffer + at, import->present + at, length) == 0)
		return zero ? BLOCK_SAME_ZERO : BLOCK_SAME;
	return zero ? BLOCK_ZERO : BLOCK_DATA;
}

static int write_blocks(struct import *import, enum block kind, uint32_t from, uint32_t length)
{
	if (kind == BLOCK_SAME)
		import->same += length;
	if (kind == BLOCK_SAME || kind == BLOCK_SAME_ZERO)
		return 0;
	return write_run(import, import->at + from,
		kind == BLOCK_DATA ? import->buffer + from : NULL, length);
}

static int write_differing(struct import *import, uint32_t whole)
{
	uint32_t at = 0, from = 0;
	enum block run = BLOCK_SAME_ZERO;
	int rc = present_read(import, whole);
	while (!rc && at < whole) {
		uint32_t n = whole - at < CTL_COPY_BLOCK ? whole - at : CTL_COPY_BLOCK;
		enum block kind = block_look(import, at, n);
		if (kind != run) {
			rc = write_blocks(import, run, from, at - from);
			run = kind;
			from = at;
		}
		at += n;
	}
	return rc ? rc : write_blocks(import, run, from, whole - from);
}

static int write_chunk(struct import *import, uint32_t got)
{
	uint32_t at = 0, run;
	uint32_t whole = (got + XSEG_SECTOR - 1) / XSEG_SECTOR * XSEG_SECTOR;
	int rc = import->compare ? write_differing(import, whole) : 0;
	while (!rc && !import->compare && ctl_copy_run(import->buffer, whole, &at, &run)) {
		rc = write_run(import, import->at + at, import->buffer + at, run);
		at += run;
	}
	if (!rc)
		import->at += got;
	return rc;
}

/* --- the loop --------------------------------------------------------------------------- */

/* A hole of the source is passed over where the volume has nothing, either. */
static int next(struct import *import, bool *more)
{
	uint64_t from = import->at, found;
	*more = ctl_import_source_data(import);
	if (!import->compare || !import->seekable)
		return 0;
	uint64_t limit = import->at < import->source_size ? import->at : import->source_size;
	int rc = present_data(import, from, limit, &found);
	if (rc || found >= limit)
		return rc;
	import->at = found;
	*more = true;
	return 0;
}

static int copy_source(struct import *import)
{
	uint32_t got;
	bool more;
	int rc = next(import, &more);
	while (!rc && more) {
		rc = ctl_import_source_read(import, &got);
		if (rc || got == 0 || ctl_ask_interrupted())
			break;
		rc = write_chunk(import, got);
		ctl_work_progress(import->work, import->at,
			import->source_size ? import->source_size : import->info.size);
		if (!rc)
			rc = next(import, &more);
	}
	return rc;
}

/* A whole object is dropped, whatever is in it; of the one in which the source ends, what is
   there. */
static int clear_some(struct import *import, uint64_t begin)
{
	uint64_t left = import->info.size - import->at;
	uint64_t object = import->at / import->info.object_size * import->info.object_size;
	uint32_t room = import->plan.chunk - (uint32_t)(import->at % import->plan.chunk);
	if (object < begin) {
		room = left < room ? (uint32_t)left : room;
		memset(import->buffer, 0, room);
		return write_chunk(import, room);
	}
	left = import->info.size - object;
	room = left < import->info.object_size ? (uint32_t)left : import->info.object_size;
	import->at = object + room;
	return write_run(import, object, NULL, room);
}

/* Behind the source's end the volume is empty, whatever its base is. */
static int clear_rest(struct import *import)
{
	uint64_t begin = (import->at + XSEG_SECTOR - 1) / XSEG_SECTOR * XSEG_SECTOR;
	int rc = 0;
	import->at = begin;
	while (!rc && !ctl_ask_interrupted()) {
		rc = present_data(import, import->at, import->info.size, &import->at);
		if (rc || import->at >= import->info.size)
			break;
		rc = clear_some(import, begin);
	}
	return rc;
}

int ctl_import_copy(struct import *import)
{
	int rc = copy_source(import);
	if (!rc && !ctl_ask_interrupted())
		rc = ctl_import_source_unchanged(import);
	if (!rc && import->compare)
		rc = clear_rest(import);
	while (!rc && import->idle_count < import->plan.depth)
		rc = collect(import);
	if (!rc && ctl_ask_interrupted())
		rc = ctl_ask_interrupted_fault(import->ctl, import->info.name);
	return rc;
}
