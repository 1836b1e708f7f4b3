/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The start. An index that is there knows the cartridges, and all but the log's end; without one
 * all cartridges are looked at, and it is made from them.
 */
#include <base/log.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "peers/blocker/tape/tape.h"

static int refuse(
	const struct tape_store *store, int error, char *why, size_t why_size, uint32_t slot)
{
	if (!*why)
		snprintf(why, why_size, "drive: slot %u: %s", slot, store->drive.why);
	return error > 0 ? -EILSEQ : error;
}

/* --- blocks, one at a time -------------------------------------------------------------------- */

static int apply_block(struct tape_store *store, struct tape_place place)
{
	struct tape_index_head *head = &store->index.head;
	const struct tape_block *block = tape_log_block(store);
	const struct tape_entry *entries = tape_log_entries(store);
	int error = 0;
	if (block->kind == TAPE_INDEX)
		return 0;
	if (store->file_count + block->entries > TAPE_FILE_ENTRIES)
		return -EILSEQ;
	for (uint32_t i = 0; i < block->entries && !error; i++) {
		error = tape_index_apply(
			&store->index, &entries[i], place, store->room + entries[i].at);
		store->file_entries[store->file_count++] = entries[i];
	}
	head->sequence = block->sequence + block->entries;
	return error;
}

/* A block that cannot be read: the last one may have been cut off by a kill, any other one is
   damage. */
static bool is_last(struct tape_store *store, struct tape_place place)
{
	place.block++;
	place.position++;
	int error = tape_log_read(store, place);
	return error == TAPE_END || error == TAPE_MARK;
}

/* From `at` on to the end of what is written, which `at` is then. */
static int roll(struct tape_store *store, struct tape_place *at, char *why, size_t why_size)
{
	struct tape_cartridge *of = tape_index_cartridge(&store->index, at->cartridge);
	for (;;) {
		struct tape_place place = *at;
		int error = tape_log_read(store, place);
		if (error == TAPE_END || (error == -EILSEQ && is_last(store, place)))
			return 0;
		if (error == TAPE_MARK) {
			at->file++, at->block = 0, at->position++;
			store->file_count = 0;
			store->file_bytes = 0;
			store->index.head.file_sequence = store->index.head.sequence;
			continue;
		}
		error = error ? error : apply_block(store, place);
		if (error) {
			snprintf(why, why_size,
				"drive: cartridge %u (slot %u) cannot be read in file %u at block "
				"%u: %s; what is behind it would be lost",
				at->cartridge, of->slot, at->file, at->block, store->drive.why);
			return error;
		}
		of->written += tape_log_block(store)->size;
		store->file_bytes += tape_log_block(store)->size;
		at->block++, at->position++;
	}
}

/* --- a whole cartridge ------------------------------------------------------------------------ */

/* Records are not in a file's index, only where they lie. */
static int apply_record(
	struct tape_store *store, const struct tape_entry *entry, struct tape_place place)
{
	int error = tape_log_read(store, place);
	if (error)
		return error > 0 ? -EILSEQ : error;
	return tape_index_apply(&store->index, entry, place, store->room + entry->at);
}

/* The index of a file is in store->room. */
static int apply_index(struct tape_store *store, struct tape_place begin)
{
	struct tape_block head = *tape_log_block(store);
	const struct tape_entry *in = tape_log_entries(store);
	int error = head.entries > TAPE_FILE_ENTRIES ? -EILSEQ : 0;
	if (!error)
		memcpy(store->file_entries, in, head.entries * sizeof(*in));
	for (uint32_t i = 0; i < head.entries && !error; i++) {
		const struct tape_entry *entry = &store->file_entries[i];
		struct tape_place place = begin;
		place.block += entry->block;
		place.position += entry->block;
		error = entry->kind == TAPE_RECORD
				? apply_record(store, entry, place)
				: tape_index_apply(&store->index, entry, place, NULL);
	}
	store->index.head.sequence = head.sequence + head.entries;
	return error;
}

/* From file to file as long as there are indexes, then the rest block by block. */
static int scan_cartridge(
	struct tape_store *store, struct tape_place *at, char *why, size_t why_size)
{
	struct tape_cartridge *of = tape_index_cartridge(&store->index, at->cartridge);
	for (;;) {
		struct tape_place next = *at, begin = *at;
		int error = tape_log_read(store, *at); /* the head is in this file */
		error = error ? error : tape_log_skip_file(store);
		next.file++, next.block = 0, next.position = 0;
		error = error ? error : tape_log_read(store, next);
		if (error || tape_log_block(store)->kind != TAPE_INDEX)
			break;
		const struct tape_block *index = tape_log_block(store);
		next.position = index->position;
		begin.position = index->position - 1 - index->blocks;
		of->written += (uint64_t)index->blocks * TAPE_BLOCK;
		if (apply_index(store, begin))
			break;
		*at = next;
	}
	if (store->index.error)
		return store->index.error;
	/* the label or the index that this file begins with says nothing more */
	struct tape_place from = *at;
	from.block++;
	from.position++;
	store->file_count = 0;
	store->index.head.file_sequence = store->index.head.sequence;
	int error = roll(store, &from, why, why_size);
	*at = from;
	return error;
}

/* --- which cartridges there are --------------------------------------------------------------- */

struct seen {
	struct tape_slot slot;
	int kind; /* 0: of a store; TAPE_END: blank; else something else */
	uint8_t store[16];
	struct tape_block label;
	uint32_t *numbers;
};

static int look(struct tape_store *store, struct seen *seen, char *why, size_t why_size)
{
	const struct tape_block *label = tape_log_block(store);
	seen->kind = tape_log_load(store, seen->slot.number);
	if (seen->kind < 0 && seen->kind != -EILSEQ)
		return refuse(store, seen->kind, why, why_size, seen->slot.number);
	if (seen->kind)
		return 0;
	seen->label = *label;
	seen->numbers = malloc((label->entries + 1) * sizeof(*seen->numbers));
	if (!seen->numbers)
		return -ENOMEM;
	memcpy(seen->numbers, label + 1, label->entries * sizeof(*seen->numbers));
	return 0;
}

static int by_sequence(const void *a, const void *b)
{
	const struct seen *x = a, *y = b;
	bool ours_x = x->kind == 0, ours_y = y->kind == 0;
	if (ours_x != ours_y)
		return ours_x ? -1 : 1;
	if (!ours_x || x->label.sequence == y->label.sequence)
		return (int)x->slot.number - (int)y->slot.number;
	return x->label.sequence < y->label.sequence ? -1 : 1;
}

static struct tape_cartridge *adopt(struct tape_store *store, const struct seen *seen)
{
	struct tape_index *index = &store->index;
	uint32_t number = seen->kind == 0 ? seen->label.cartridge : index->head.cartridges + 1;
	while (index->head.cartridges < number)
		if (!tape_index_cartridge_add(index))
			return NULL;
		else
			tape_index_cartridge(index, index->head.cartridges)->unusable = 1;
	struct tape_cartridge *of = tape_index_cartridge(index, number);
	*of = (struct tape_cartridge){.number = number,
		.slot = seen->slot.number,
		.state = seen->kind == 0 ? TAPE_FULL : TAPE_BLANK,
		.use = seen->kind == 0 ? seen->label.use : 0,
		.first = seen->kind == 0 ? seen->label.sequence : 0};
	memcpy(of->barcode, seen->slot.barcode, sizeof(of->barcode));
	return of;
}

/* The newest label says which cartridges the store had then, and from where on they are of use. */
static int check_complete(
	struct tape_store *store, const struct seen *all, int ours, char *why, size_t why_size)
{
	const struct seen *newest = &all[ours - 1];
	for (int i = 0; i < ours; i++)
		if (memcmp(all[i].label.store, all[0].label.store, 16)) {
			snprintf(why, why_size,
				"drive: slots %u and %u have cartridges of two stores; take one of "
				"them out, or xsegctl tape label it",
				all[0].slot.number, all[i].slot.number);
			return -EEXIST;
		}
	for (uint32_t n = 0; n < newest->label.entries; n++) {
		const struct tape_cartridge *of =
			tape_index_cartridge(&store->index, newest->numbers[n]);
		if (of && !of->unusable)
			continue;
		snprintf(why, why_size,
			"drive: cartridge %u of this store is missing; put it into the library",
			newest->numbers[n]);
		return -ENOENT;
	}
	return 0;
}

static int scan_all(struct tape_store *store, struct seen *all, int ours, char *why, size_t size)
{
	struct tape_index_head *head = &store->index.head;
	const struct seen *newest = &all[ours - 1];
	memcpy(head->store, newest->label.store, 16);
	int error = check_complete(store, all, ours, why, size);
	for (int i = 0; i < ours && !error; i++) {
		struct tape_cartridge *of =
			tape_index_cartridge(&store->index, all[i].label.cartridge);
		struct tape_place at = {.cartridge = of->number};
		head->sequence = of->first;
		if (of->first < newest->label.oldest) {
			of->state = TAPE_FREE; /* all of it has been copied */
			of->freed = of->first;
			continue;
		}
		log_info(TAPE_NAME, "%s: reading cartridge %u in slot %u", store->first->name,
			of->number, of->slot);
		error = scan_cartridge(store, &at, why, size);
		if (i == ours - 1 && !error) {
			head->end = at;
			of->state = TAPE_ACTIVE;
		}
	}
	return error;
}

/* Blank ones only: a new store. Its first cartridge is begun with the first block. */
static int make_store(struct tape_store *store, char *why, size_t why_size)
{
	char identity[HOME_IDENTITY];
	if (home_random(identity))
		return -EIO;
	for (int i = 0; i < 16; i++) {
		unsigned byte;
		sscanf(identity + 2 * (size_t)i, "%2x", &byte);
		store->index.head.store[i] = (uint8_t)byte;
	}
	store->index.head.sequence = 1;
	(void)why, (void)why_size;
	return 0;
}

int tape_scan_rebuild(struct tape_store *store, char *why, size_t why_size)
{
	struct tape_slot *slots = calloc(TAPE_SLOTS_MAX, sizeof(*slots));
	struct seen *all = calloc(TAPE_SLOTS_MAX, sizeof(*all));
	int count = 0, ours = 0, blank = 0, error = slots && all ? 0 : -ENOMEM;
	*why = 0;
	store->index.head = (struct tape_index_head){0};
	store->file_count = 0;
	error = error ? error : tape_index_clear(&store->index);
	int found = error ? error : store->drive.ops->slots(&store->drive, slots);
	error = found < 0 ? refuse(store, found, why, why_size, 0) : 0;
	for (int i = 0; i < found && !error; i++) {
		if (!slots[i].full)
			continue;
		all[count].slot = slots[i];
		error = look(store, &all[count], why, why_size);
		ours += all[count].kind == 0;
		blank += all[count++].kind == TAPE_END;
	}
	if (!error && !ours && !blank) {
		snprintf(why, why_size,
			"drive: no cartridge is blank or of a store; a used one is made blank with "
			"its own tools");
		error = -ENOENT;
	}
	qsort(all, (size_t)count, sizeof(*all), by_sequence);
	for (int i = 0; i < count && !error; i++)
		if (all[i].kind == 0 || all[i].kind == TAPE_END)
			error = adopt(store, &all[i]) ? 0 : -ENOMEM;
		else
			log_warning(TAPE_NAME, "%s: slot %u is left alone: %s", store->first->name,
				all[i].slot.number, "it has a cartridge of something else");
	if (!error)
		error = ours ? scan_all(store, all, ours, why, why_size)
			     : make_store(store, why, why_size);
	for (int i = 0; i < count; i++)
		free(all[i].numbers);
	free(all);
	free(slots);
	return error ? error : tape_index_commit(&store->index);
}

/* --- a start with an index -------------------------------------------------------------------- */

/* Cartridges may have moved to other slots; where they have no barcodes they may not. */
static int find_slots(struct tape_store *store, char *why, size_t why_size)
{
	struct tape_slot *slots = calloc(TAPE_SLOTS_MAX, sizeof(*slots));
	int count = slots ? store->drive.ops->slots(&store->drive, slots) : -ENOMEM;
	int error = count < 0 ? refuse(store, count, why, why_size, 0) : 0;
	for (uint32_t n = 1; n <= store->index.head.cartridges && !error; n++) {
		struct tape_cartridge *of = tape_index_cartridge(&store->index, n);
		bool found = false;
		for (int i = 0; i < count && !found; i++) {
			found = slots[i].full &&
				(*of->barcode ? !strcmp(of->barcode, slots[i].barcode)
					      : of->slot == slots[i].number);
			if (found)
				of->slot = slots[i].number;
		}
		of->unusable = !found;
		if (found || of->state == TAPE_BLANK || of->state == TAPE_FREE)
			continue;
		snprintf(why, why_size,
			"drive: cartridge %u %s is missing; put it into the library", n,
			of->barcode);
		error = -ENOENT;
	}
	free(slots);
	return error;
}

/* What came after the last commit. */
static int catch_up(struct tape_store *store, char *why, size_t why_size)
{
	struct tape_index_head *head = &store->index.head;
	struct tape_place end = head->end, file = end;
	if (!end.cartridge)
		return 0;
	/* entries of the file that the index has already: they belong to the file's own index */
	file.position -= file.block;
	for (file.block = 0; file.block < end.block; file.block++, file.position++) {
		int error = tape_log_read(store, file);
		if (error)
			return refuse(store, error, why, why_size,
				tape_index_cartridge(&store->index, end.cartridge)->slot);
		const struct tape_block *block = tape_log_block(store);
		for (uint32_t i = 0; block->kind == TAPE_DATA && i < block->entries; i++)
			store->file_entries[store->file_count++] = tape_log_entries(store)[i];
		store->file_bytes += block->size;
	}
	int error = roll(store, &end, why, why_size);
	head->end = end;
	return error;
}

int tape_scan_start(struct tape_store *store, char *why, size_t why_size)
{
	const struct tape_options *options = store->options;
	*why = 0;
	int error =
		tape_index_open(&store->index, options->index, options->index_size, why, why_size);
	if (error)
		return error;
	error = store->drive.ops->open(&store->drive);
	if (error) {
		snprintf(why, why_size, "drive: %s", store->drive.why);
		return error;
	}
	store->until_ns = tape_log_now() + options->timeout;
	if (!store->index.head.sequence)
		return tape_scan_rebuild(store, why, why_size);
	error = find_slots(store, why, why_size);
	error = error ? error : catch_up(store, why, why_size);
	return error ? error : tape_index_commit(&store->index);
}
