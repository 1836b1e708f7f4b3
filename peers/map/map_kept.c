/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How far a sweep has come. docs/format-map.md has the bytes.
 *
 * The data of one half are written and flushed, then the head, which says which half it is and what
 * the checksum of the data is. Cut off in between, the head leads to what was there before.
 */
#include "peers/map/map_kept.h"

#include <base/crc32c.h>
#include <base/must.h>
#include <endian.h>
#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#define VERSION 1u
#define HALF_OBJECTS 0x10000u
#define CHUNK 65536u
#define STATES_MAX (16u << 20)

static const char magic[8] = {'S', 'K', 'S', 'W', 'E', 'E', 'P', '.'};

/* As it lies there: little-endian. */
struct head {
	char magic[8];
	uint32_t version, half;
	uint64_t states, cells;
	uint32_t data_crc;
	uint8_t reserved[508 - 36];
	uint32_t crc; /* of all before it */
};
fixed(sizeof(struct head) == XSEG_SECTOR && offsetof(struct head, crc) == 508);
fixed(sizeof(struct map_mark_cell) == 80);

/* The data, one piece after the other, a chunk at a time. */
struct stream {
	struct map_store *store;
	unsigned half;
	uint64_t at; /* of the chunk */
	uint32_t used, crc;
	int rc; /* nothing is done any more */
	uint8_t chunk[CHUNK];
};

void map_kept_init(struct map_kept *kept, uint64_t memory)
{
	*kept = (struct map_kept){0};
	map_marks_init(&kept->suspects, memory);
}

void map_kept_fini(struct map_kept *kept)
{
	free(kept->states);
	map_marks_fini(&kept->suspects);
	*kept = (struct map_kept){0};
}

static void forget(struct map_kept *kept)
{
	kept->state_count = 0;
	map_marks_begin(&kept->suspects, 0, 1);
}

/* --- states of families ----------------------------------------------------------------------- */

/* No memory: it is only looked at again. */
void map_kept_add_state(struct map_kept *kept, uint64_t state)
{
	if (kept->state_count == kept->state_room) {
		size_t room = kept->state_room ? 2 * kept->state_room : 64;
		void *grown = room <= STATES_MAX
				      ? realloc(kept->states, room * sizeof(*kept->states))
				      : NULL;
		if (!grown)
			return;
		kept->states = grown;
		kept->state_room = room;
	}
	kept->states[kept->state_count++] = state;
}

static int compare(const void *a, const void *b)
{
	uint64_t x, y;
	memcpy(&x, a, sizeof(x));
	memcpy(&y, b, sizeof(y));
	return (x > y) - (x < y);
}

/* What was loaded is in order; what was added since is of families that nobody asks for again. */
bool map_kept_has_state(const struct map_kept *kept, uint64_t state)
{
	return kept->state_count > 0 && bsearch(&state, kept->states, kept->state_count,
						sizeof(*kept->states), compare) != NULL;
}

/* --- the data --------------------------------------------------------------------------------- */

static struct xseg_key key_of(const struct stream *stream)
{
	uint32_t part = (uint32_t)(stream->at / XSEG_OBJECT_MAX);
	return (struct xseg_key){
		MAP_KEPT_ID, MAP_KEPT_EPOCH, 1 + stream->half * HALF_OBJECTS + part};
}

/* Whole sectors; the rest of the last one is 0. */
static void chunk_put(struct stream *stream)
{
	uint32_t length = (stream->used + XSEG_SECTOR - 1) / XSEG_SECTOR * XSEG_SECTOR;
	if (stream->rc != 0 || length == 0)
		return;
	memset(stream->chunk + stream->used, 0, length - stream->used);
	stream->crc = crc32c(stream->crc, stream->chunk, length);
	int rc = stream->store->write(stream->store, key_of(stream),
		(uint32_t)(stream->at % XSEG_OBJECT_MAX), stream->chunk, length);
	stream->rc = rc < 0 ? rc : 0;
	stream->at += CHUNK;
	stream->used = 0;
}

static void put(struct stream *stream, const void *from, uint32_t size)
{
	const uint8_t *bytes = from;
	while (size > 0) {
		uint32_t part = CHUNK - stream->used < size ? CHUNK - stream->used : size;
		memcpy(stream->chunk + stream->used, bytes, part);
		stream->used += part;
		bytes += part;
		size -= part;
		if (stream->used == CHUNK)
			chunk_put(stream);
	}
}

/* `left`: bytes of the data from here on. */
static void chunk_get(struct stream *stream, uint64_t left)
{
	uint32_t length = left < CHUNK ? (uint32_t)left : CHUNK;
	length = (length + XSEG_SECTOR - 1) / XSEG_SECTOR * XSEG_SECTOR;
	int rc = stream->store->read(stream->store, key_of(stream),
		(uint32_t)(stream->at % XSEG_OBJECT_MAX), stream->chunk, length);
	stream->rc = rc < 0 ? rc : 0;
	stream->at += CHUNK;
	stream->used = 0;
	if (rc >= 0)
		stream->crc = crc32c(stream->crc, stream->chunk, length);
}

static bool get(struct stream *stream, uint64_t *left, void *to, uint32_t size)
{
	uint8_t *bytes = to;
	while (size > 0 && stream->rc == 0) {
		if (stream->used == CHUNK)
			chunk_get(stream, *left);
		uint32_t part = CHUNK - stream->used < size ? CHUNK - stream->used : size;
		memcpy(bytes, stream->chunk + stream->used, part);
		stream->used += part;
		*left -= part;
		bytes += part;
		size -= part;
	}
	return stream->rc == 0;
}

/* From the one order of bytes to the other, and back. */
static struct map_mark_cell cell_turned(const struct map_mark_cell *cell)
{
	struct map_mark_cell turned = {.owner = htole64(cell->owner),
		.epoch = htole32(cell->epoch),
		.group = htole32(cell->group)};
	for (unsigned i = 0; i < countof(cell->bits); i++)
		turned.bits[i] = htole64(cell->bits[i]);
	return turned;
}

/* --- the head --------------------------------------------------------------------------------- */

static const struct xseg_key head_key = {MAP_KEPT_ID, MAP_KEPT_EPOCH, 0};

static bool head_is_right(const struct head *head)
{
	return memcmp(head->magic, magic, sizeof(magic)) == 0 &&
	       le32toh(head->version) == VERSION &&
	       le32toh(head->crc) == crc32c(0, head, offsetof(struct head, crc)) &&
	       le32toh(head->half) <= 1 && le64toh(head->states) <= STATES_MAX;
}

static int head_put(const struct stream *stream, uint64_t states, uint64_t cells)
{
	struct head head = {.version = htole32(VERSION),
		.half = htole32(stream->half),
		.states = htole64(states),
		.cells = htole64(cells),
		.data_crc = htole32(stream->crc)};
	memcpy(head.magic, magic, sizeof(magic));
	head.crc = htole32(crc32c(0, &head, offsetof(struct head, crc)));
	int rc = stream->store->write(stream->store, head_key, 0, &head, sizeof(head));
	return rc < 0 ? rc : stream->store->flush(stream->store, MAP_KEPT_ID);
}

/* --- all of it -------------------------------------------------------------------------------- */

/* False: it is not what the head says. */
static bool data_get(struct map_kept *kept, struct stream *stream, const struct head *head)
{
	uint64_t states = le64toh(head->states), cells = le64toh(head->cells);
	uint64_t left = states * sizeof(uint64_t) + cells * sizeof(struct map_mark_cell), state;
	struct map_mark_cell cell;
	for (uint64_t i = 0; i < states && get(stream, &left, &state, sizeof(state)); i++)
		map_kept_add_state(kept, le64toh(state));
	for (uint64_t i = 0; i < cells && get(stream, &left, &cell, sizeof(cell)); i++) {
		cell = cell_turned(&cell);
		if (cell.owner == 0 || map_marks_add(&kept->suspects, &cell) != 0)
			return false;
	}
	return stream->rc == 0 && stream->crc == le32toh(head->data_crc);
}

void map_kept_load(struct map_kept *kept, struct map_store *store)
{
	struct xseg_key key;
	uint64_t cursor = 0;
	struct head head;
	struct stream *stream = calloc(1, sizeof(*stream));
	forget(kept);
	kept->there = store->list(store, MAP_KEPT_ID, &cursor, &key, 1) != 0;
	if (stream && store->read(store, head_key, 0, &head, sizeof(head)) >= 0 &&
		head_is_right(&head) && le64toh(head.cells) <= kept->suspects.limit) {
		kept->half = le32toh(head.half);
		*stream = (struct stream){.store = store, .half = kept->half, .used = CHUNK};
		if (!data_get(kept, stream, &head))
			forget(kept);
	}
	free(stream);
	if (kept->state_count > 0)
		qsort(kept->states, kept->state_count, sizeof(*kept->states), compare);
}

static void data_put(
	struct stream *stream, const struct map_kept *kept, const struct map_marks *suspects)
{
	for (size_t i = 0; i < kept->state_count; i++) {
		uint64_t state = htole64(kept->states[i]);
		put(stream, &state, sizeof(state));
	}
	for (size_t i = 0; suspects && i < suspects->capacity; i++) {
		struct map_mark_cell cell = cell_turned(&suspects->cells[i]);
		if (cell.owner != 0)
			put(stream, &cell, sizeof(cell));
	}
	chunk_put(stream);
}

void map_kept_save(struct map_kept *kept, struct map_store *store, const struct map_marks *suspects)
{
	struct stream *stream = calloc(1, sizeof(*stream));
	if (!stream)
		return;
	*stream = (struct stream){.store = store, .half = !kept->half};
	kept->there = true;
	data_put(stream, kept, suspects);
	if (stream->rc == 0)
		stream->rc = store->flush(store, MAP_KEPT_ID);
	if (stream->rc == 0)
		stream->rc = head_put(stream, kept->state_count, suspects ? suspects->count : 0);
	if (stream->rc == 0)
		kept->half = stream->half;
	free(stream);
}

/* Also what others have left: they are of no use any more. */
int map_kept_drop(struct map_kept *kept, struct map_store *store)
{
	struct xseg_key keys[64];
	uint64_t cursor = 0;
	int rc = kept->there ? store->discard(store, head_key) : 0;
	while (kept->there && rc == 0) {
		int count = store->list(store, MAP_KEPT_ID, &cursor, keys, countof(keys));
		for (int i = 0; i < count && rc == 0; i++)
			rc = keys[i].volume == MAP_KEPT_ID ? store->discard(store, keys[i]) : 0;
		rc = count < 0 ? count : rc;
		kept->there = cursor != 0;
	}
	return rc;
}
