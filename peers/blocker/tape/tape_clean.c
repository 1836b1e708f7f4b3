/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Cleaning: the oldest full cartridge's contents that are still of use go to the log's end, and it
 * is free. Always the oldest: what is deleted on it lies on it, too, or nowhere any more, so that
 * what it says of deletes need not be kept.
 */
#include <base/log.h>
#include <peer/tape.h>
#include <stdlib.h>
#include <string.h>

#include "peers/blocker/tape/tape.h"

#define LIVE_AT_ONCE 4096u

struct tape_cartridge *tape_clean_oldest(struct tape_store *store)
{
	struct tape_cartridge *best = NULL;
	for (uint32_t i = 1; i <= store->index.head.cartridges; i++) {
		struct tape_cartridge *of = tape_index_cartridge(&store->index, i);
		if (of->state == TAPE_FULL && (!best || of->first < best->first))
			best = of;
	}
	return best;
}

/* Does it gain a cartridge to clean all of them, one after the other? */
static bool is_worth_it(struct tape_store *store)
{
	uint64_t dead = 0, largest = 0;
	for (uint32_t i = 1; i <= store->index.head.cartridges; i++) {
		const struct tape_cartridge *of = tape_index_cartridge(&store->index, i);
		if (of->state != TAPE_FULL)
			continue;
		dead += of->written > of->live ? of->written - of->live : 0;
		largest = of->written > largest ? of->written : largest;
	}
	return largest && dead >= largest;
}

uint32_t tape_clean_next(struct tape_store *store)
{
	const struct tape_cartridge *of = tape_clean_oldest(store);
	bool tight = tape_log_available(store) <= tape_log_spare(store);
	return of && tight && !store->lost && is_worth_it(store) ? of->number : 0;
}

static int copy_one(struct tape_store *store, const struct tape_live *live, const uint8_t *bytes)
{
	struct tape_entry entry = live->entry;
	struct tape_record record = {0};
	uint8_t *to;
	if (entry.kind == TAPE_RECORD) {
		tape_index_record(&store->index, &entry.key, &record);
		entry.length = (uint32_t)sizeof(record.version) + record.size;
	}
	uint32_t size = entry.kind == TAPE_RECORD || entry.kind == TAPE_WRITE ? entry.length : 0;
	int error = tape_log_add(store, entry, size, &to, false);
	if (error)
		return error;
	if (entry.kind == TAPE_WRITE)
		memcpy(to, bytes, size);
	if (entry.kind == TAPE_RECORD) {
		memcpy(to, &record.version, sizeof(record.version));
		memcpy(to + sizeof(record.version), record.data, record.size);
	}
	return 0;
}

/* As many of them as there is memory for are read, in the order of the tape. How many. */
static int read_some(struct tape_store *store, struct tape_live *live, unsigned count,
	uint8_t *memory, struct tape_pieces *pieces)
{
	uint64_t used = 0;
	unsigned taken = 0;
	for (; taken < count; taken++) {
		const struct tape_entry *entry = &live[taken].entry;
		uint32_t size = entry->kind == TAPE_WRITE ? entry->length : 0;
		if (used + size > store->options->memory)
			break;
		if (size)
			pieces->all[pieces->count++] =
				(struct tape_piece){.place = live[taken].place,
					.at = entry->at,
					.length = size,
					.memory = memory + used};
		used += size;
	}
	int error = tape_pass_run(store, pieces);
	return error ? error : (int)taken;
}

static int copy_some(struct tape_store *store, uint32_t cartridge, struct tape_live *live,
	uint8_t *memory, struct tape_pieces *pieces)
{
	unsigned count = tape_index_live(&store->index, cartridge, live, LIVE_AT_ONCE);
	int taken = read_some(store, live, count, memory, pieces), error = 0;
	uint64_t used = 0;
	if (taken < 0)
		return taken;
	for (int i = 0; i < taken && !error; i++) {
		error = copy_one(store, &live[i], memory + used);
		used += live[i].entry.kind == TAPE_WRITE ? live[i].entry.length : 0;
	}
	error = error ? error : tape_log_write(store);
	return error ? error : (int)count;
}

int tape_clean_step(struct tape_store *store, uint32_t cartridge)
{
	struct tape_cartridge *of = tape_index_cartridge(&store->index, cartridge);
	struct tape_pieces pieces = {
		.all = calloc(LIVE_AT_ONCE, sizeof(*pieces.all)), .room = LIVE_AT_ONCE};
	struct tape_live *live = calloc(LIVE_AT_ONCE, sizeof(*live));
	uint8_t *memory = malloc(store->options->memory);
	int left = !live || !memory || !pieces.all
			   ? -ENOMEM
			   : copy_some(store, cartridge, live, memory, &pieces);
	free(memory);
	free(live);
	free(pieces.all);
	if (left)
		return left < 0 ? left : 1;
	int error = tape_log_sync(store);
	if (error)
		return error;
	of->state = TAPE_FREE;
	of->freed = store->index.head.sequence;
	of->live = 0;
	tape_count(store, TAPE_CLEANED, 1);
	log_info(TAPE_NAME, "%s: cartridge %u is clean", store->first->name, cartridge);
	return tape_index_commit(&store->index);
}

/* While the block that needs the room waits. */
int tape_clean_room(struct tape_store *store)
{
	struct tape_filling waits = store->fill;
	uint32_t next;
	int error = 0;
	store->fill = store->cleaning;
	while (!store->index.head.end.cartridge && (next = tape_clean_next(store)) && !error)
		while ((error = tape_clean_step(store, next)) == 1)
			;
	store->cleaning = store->fill;
	store->fill = waits;
	return error == -ENOSPC ? 0 : error; /* who needs it will see */
}

/* --- what operators ask ----------------------------------------------------------------------- */

int tape_clean_list(struct tape_store *store, struct job *job, uint64_t *value)
{
	uint32_t count = store->index.head.cartridges, size = 0;
	for (uint32_t i = 1; i <= count && size + sizeof(struct tape_info) <= job->data_size; i++) {
		const struct tape_cartridge *of = tape_index_cartridge(&store->index, i);
		struct tape_info info = {.number = i,
			.slot = of->slot,
			.state = of->state,
			.use = of->use,
			.missing = of->unusable,
			.loaded = store->mounted == i,
			.written = of->written,
			.live = of->live};
		memcpy(info.barcode, of->barcode, sizeof(info.barcode));
		job_put_bytes(job, size, &info, sizeof(info));
		size += (uint32_t)sizeof(info);
	}
	*value = count;
	return (int)size;
}

/* A cartridge of the library becomes one of the store's. Its own are not touched. */
int tape_clean_label(struct tape_store *store, uint32_t slot, bool overwrite, uint64_t *value)
{
	struct tape_slot *slots = calloc(TAPE_SLOTS_MAX, sizeof(*slots)), found = {0};
	int count = slots ? store->drive.ops->slots(&store->drive, slots) : -ENOMEM;
	for (int i = 0; i < count; i++)
		if (slots[i].number == slot && slots[i].full)
			found = slots[i];
	free(slots);
	if (count < 0 || !found.full)
		return count < 0 ? count : -ENOENT;
	for (uint32_t i = 1; i <= store->index.head.cartridges; i++) {
		struct tape_cartridge *of = tape_index_cartridge(&store->index, i);
		if (of->slot != slot || of->unusable)
			continue;
		*value = i;
		return -EEXIST;
	}
	int error = tape_log_load(store, slot);
	if (error < 0 && error != -EILSEQ)
		return error;
	if (error != TAPE_END && !overwrite)
		return -EEXIST;
	if (error != TAPE_END) { /* a filemark at the beginning, and nothing after it: blank */
		error = store->drive.ops->rewind(&store->drive);
		error = error ? error : store->drive.ops->mark(&store->drive, 1);
		if (error)
			return error;
	}
	struct tape_cartridge *of = tape_index_cartridge_add(&store->index);
	if (!of)
		return -ENOMEM;
	of->slot = slot;
	memcpy(of->barcode, found.barcode, sizeof(of->barcode));
	*value = of->number;
	return tape_index_commit(&store->index);
}

/* --- verify ----------------------------------------------------------------------------------- */

#define VERIFY_AT_ONCE 64u

/* task->cursor: the cartridge that is looked at; job->offset, arg0: file and block in it. */
static int verify_block(struct tape_store *store, struct tape_task *task, struct tape_place *place)
{
	int error = tape_log_read(store, *place);
	if (error == 0) {
		place->block++;
	} else if (error == TAPE_MARK) {
		place->file++, place->block = 0;
	} else if (error == -EILSEQ) {
		log_warning(TAPE_NAME, "%s: cartridge %u is damaged in file %u at block %u",
			store->first->name, place->cartridge, place->file, place->block);
		task->value++;
		place->block++;
	} else {
		return error;
	}
	return 0;
}

int tape_clean_verify_step(struct tape_store *store, struct tape_task *task)
{
	struct job *job = task->job;
	if (!task->cursor)
		task->cursor = job->arg1 ? (uint32_t)job->arg1 : 1;
	const struct tape_cartridge *of = tape_index_cartridge(&store->index, task->cursor);
	if (!of)
		return job->arg1 ? -ENOENT : 0;
	struct tape_place end = store->index.head.end;
	struct tape_place place = {.cartridge = task->cursor,
		.file = (uint32_t)job->offset,
		.block = (uint32_t)(job->offset >> 32)};
	bool done = !of->use || of->unusable || of->state == TAPE_FREE;
	int error = 0;
	for (unsigned i = 0; i < VERIFY_AT_ONCE && !error && !done; i++) {
		done = end.cartridge == place.cartridge && end.file == place.file &&
		       end.block == place.block;
		error = done ? 0 : verify_block(store, task, &place);
	}
	if (error < 0)
		return error;
	job->offset = done || error == TAPE_END ? 0 : place.file | (uint64_t)place.block << 32;
	if (job->offset || !(done || error == TAPE_END))
		return 1;
	task->cursor++;
	return job->arg1 ? 0 : 1;
}
