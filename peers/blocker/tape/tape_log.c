/* SPDX-License-Identifier: Apache-2.0 */
#include <base/log.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <xxhash.h>

#include "peers/blocker/tape/tape.h"

#define UNKNOWN UINT32_MAX
#define HEADER ((uint32_t)sizeof(struct tape_block))

uint64_t tape_log_now(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

void tape_log_say(struct tape_store *store, int error, const char *what)
{
	tape_count(store, TAPE_DRIVE_ERRORS, 1);
	if (tape_log_now() - store->said_ns < 1000000000u && !strcmp(store->said, store->drive.why))
		return; /* said already */
	store->said_ns = tape_log_now();
	memcpy(store->said, store->drive.why, sizeof(store->said));
	log_warning(TAPE_NAME, "%s: %s, cartridge %u, file %u, block %u: %s: %s",
		store->first->name, what, store->mounted, store->file, store->block,
		strerror(error < 0 ? -error : EIO), store->drive.why);
}

/* --- the drive -------------------------------------------------------------------------------- */

static void forget_head(struct tape_store *store)
{
	store->file = UNKNOWN;
	store->in_room.cartridge = 0;
}

bool tape_log_reopen(struct tape_store *store)
{
	struct tape_drive *drive = &store->drive;
	store->mounted = 0;
	forget_head(store);
	tape_log_say(store, -ENOTCONN, "the drive is away");
	while (tape_log_now() < store->until_ns) {
		drive->ops->close(drive);
		if (!drive->ops->open(drive)) {
			tape_count(store, TAPE_RECONNECTS, 1);
			return true;
		}
		nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL);
	}
	return false;
}

static int seek(struct tape_store *store, struct tape_place to)
{
	struct tape_drive *drive = &store->drive;
	uint32_t file = store->file, block = store->block;
	int error = 0;
	if (file == to.file && block == to.block)
		return 0;
	forget_head(store);
	if (drive->locates && to.position) {
		error = drive->ops->locate(drive, to.position);
	} else {
		if (file == UNKNOWN || to.file < file || (to.file == file && to.block < block)) {
			error = drive->ops->rewind(drive);
			file = block = 0;
		}
		if (!error && to.file > file) {
			error = drive->ops->skip_files(drive, to.file - file);
			block = 0;
		}
		if (!error && to.block > block)
			error = drive->ops->skip_blocks(drive, to.block - block);
	}
	if (error > 0)
		return tape_drive_fail(drive, -EILSEQ, "the cartridge has no such place");
	if (!error)
		store->file = to.file, store->block = to.block;
	return error;
}

/* Where the head is. */
static int read_here(struct tape_store *store, size_t *got)
{
	struct tape_drive *drive = &store->drive;
	int error = drive->ops->read(drive, store->room, TAPE_ROOM, got);
	store->in_room.cartridge = 0;
	if (error == 0)
		store->block++;
	else if (error == TAPE_MARK)
		store->file++, store->block = 0;
	else if (error < 0)
		forget_head(store);
	return error;
}

static uint64_t hash_of(struct tape_block *block)
{
	uint64_t kept = block->hash;
	block->hash = 0;
	uint64_t hash = XXH3_64bits(block, block->size);
	block->hash = kept;
	return hash;
}

/* Is it a block, whose ever? */
static bool is_sound(struct tape_store *store, size_t got)
{
	struct tape_block *block = (struct tape_block *)store->room;
	return got >= sizeof(*block) && !memcmp(block->magic, TAPE_MAGIC, 8) &&
	       block->size == got && block->hash == hash_of(block) &&
	       block->entries <= (got - sizeof(*block)) /
					 (block->kind == TAPE_LABEL ? sizeof(uint32_t)
								    : sizeof(struct tape_entry));
}

const struct tape_block *tape_log_block(const struct tape_store *store)
{
	return (const struct tape_block *)store->room;
}

const struct tape_entry *tape_log_entries(const struct tape_store *store)
{
	const struct tape_block *block = tape_log_block(store);
	return (const struct tape_entry *)(store->room + block->size) - block->entries;
}

int tape_log_load(struct tape_store *store, uint32_t slot)
{
	struct tape_drive *drive = &store->drive;
	size_t got = 0;
	int error;
	do {
		store->mounted = 0;
		forget_head(store);
		tape_count(store, TAPE_LOADS, 1);
		error = drive->ops->load(drive, slot);
		store->file = store->block = 0;
		error = error ? error : read_here(store, &got);
	} while (error == -ENOTCONN && tape_log_reopen(store));
	if (!error && !is_sound(store, got))
		error = tape_drive_fail(drive, -EILSEQ, "what it has is not of this program");
	if (!error && tape_log_block(store)->kind != TAPE_LABEL)
		error = tape_drive_fail(drive, -EILSEQ, "it does not begin with a label");
	uint64_t position = 1;
	if (!error && drive->locates)
		drive->locates = !drive->ops->tell(drive, &position) && position == 1;
	return error;
}

/* That cartridge, in that use of it. */
static int mount(struct tape_store *store, uint32_t number)
{
	const struct tape_cartridge *of = tape_index_cartridge(&store->index, number);
	const struct tape_block *label = tape_log_block(store);
	if (store->mounted == number)
		return 0;
	if (!of)
		return tape_drive_fail(&store->drive, -EILSEQ, "no cartridge is number %u", number);
	int error = tape_log_load(store, of->slot);
	if (error == -ENOTCONN)
		return -ETIMEDOUT;
	if (!error && (memcmp(label->store, store->index.head.store, 16) ||
			      label->cartridge != number || label->use != of->use))
		error = tape_drive_fail(&store->drive, -EILSEQ,
			"the cartridge in slot %u is not number %u of this store", of->slot,
			number);
	if (!error)
		store->mounted = number;
	return error > 0 ? tape_drive_fail(&store->drive, -EILSEQ, "the cartridge is empty")
			 : error;
}

static bool is_there(struct tape_store *store, struct tape_place place, size_t got)
{
	const struct tape_block *block = tape_log_block(store);
	const struct tape_cartridge *of = tape_index_cartridge(&store->index, place.cartridge);
	return is_sound(store, got) && !memcmp(block->store, store->index.head.store, 16) &&
	       block->cartridge == place.cartridge && block->use == of->use &&
	       block->file == place.file && block->block == place.block;
}

/* How far the head goes for it. */
static void count_way(struct tape_store *store, struct tape_place place)
{
	uint32_t from = store->file == place.file ? store->block : 0;
	tape_count(store, TAPE_WOUND, from > place.block ? from - place.block : place.block - from);
}

static int read_once(struct tape_store *store, struct tape_place place)
{
	size_t got = 0;
	int error;
	do {
		error = mount(store, place.cartridge);
		if (!error)
			count_way(store, place);
		error = error ? error : seek(store, place);
		error = error ? error : read_here(store, &got);
	} while (error == -ENOTCONN && tape_log_reopen(store));
	if (!error && !is_there(store, place, got)) {
		const struct tape_block *block = tape_log_block(store);
		bool ours = is_sound(store, got);
		forget_head(store);
		error = ours ? tape_drive_fail(&store->drive, -EILSEQ,
				       "there is block %u of file %u instead", block->block,
				       block->file)
			     : tape_drive_fail(&store->drive, -EILSEQ,
				       "the block of %zu bytes is damaged", got);
	}
	if (!error)
		store->in_room = place;
	return error == -ENOTCONN ? -ETIMEDOUT : error;
}

int tape_log_read(struct tape_store *store, struct tape_place place)
{
	const struct tape_place *in = &store->in_room;
	if (in->cartridge == place.cartridge && in->file == place.file && in->block == place.block)
		return 0;
	tape_count(store, TAPE_BLOCKS_READ, 1);
	int error = read_once(store, place);
	if (error == -EILSEQ) { /* the head may not be where it was thought to be */
		tape_log_say(store, error, "a read");
		forget_head(store);
		error = read_once(store, place);
	}
	return error;
}

/* After a read in this file. */
int tape_log_skip_file(struct tape_store *store)
{
	struct tape_drive *drive = &store->drive;
	int error = drive->ops->skip_files(drive, 1);
	if (!error)
		store->file++, store->block = 0;
	else
		forget_head(store);
	store->in_room.cartridge = 0;
	return error;
}

/* --- the end of the log ----------------------------------------------------------------------- */

/* Nothing is overwritten: the block before is looked at. */
static int to_end(struct tape_store *store)
{
	struct tape_place end = store->index.head.end, last = end;
	int error = mount(store, end.cartridge);
	if (error || (store->file == end.file && store->block == end.block))
		return error;
	if (end.block == 0) /* behind the filemarks */
		return forget_head(store), end.position = 0, seek(store, end);
	last.block--;
	last.position--;
	error = read_once(store, last);
	if (error != TAPE_END && error != -EILSEQ)
		return error;
	tape_log_say(store, -EIO, "what was written last is not there any more");
	store->lost = true;
	return tape_drive_fail(&store->drive, -EIO, "what was written last is gone");
}

static int put_block(struct tape_store *store, struct tape_block *block, bool *warning)
{
	struct tape_index_head *head = &store->index.head;
	struct tape_cartridge *of = tape_index_cartridge(&store->index, head->end.cartridge);
	struct tape_drive *drive = &store->drive;
	int error;
	memcpy(block->magic, TAPE_MAGIC, 8);
	memcpy(block->store, head->store, 16);
	block->cartridge = of->number;
	block->use = of->use;
	block->file = head->end.file;
	block->block = head->end.block;
	block->position = head->end.position;
	block->hash = hash_of(block);
	do {
		error = to_end(store);
		error = error ? error : drive->ops->write(drive, block, block->size, warning);
	} while (error == -ENOTCONN && tape_log_reopen(store));
	if (error) {
		forget_head(store);
		return error == -ENOTCONN ? -ETIMEDOUT : error;
	}
	tape_count(store, TAPE_BLOCKS_WRITTEN, 1);
	store->block++;
	head->end.block++;
	head->end.position++;
	of->written += block->size;
	store->file_bytes += block->size;
	store->unsynced = true;
	return 0;
}

/* count 0: only to be on the medium. */
static int put_marks(struct tape_store *store, unsigned count)
{
	struct tape_index_head *head = &store->index.head;
	struct tape_drive *drive = &store->drive;
	int error;
	do {
		error = to_end(store);
		error = error ? error : drive->ops->mark(drive, count);
	} while (error == -ENOTCONN && tape_log_reopen(store));
	if (error) {
		forget_head(store);
		return error == -ENOTCONN ? -ETIMEDOUT : error;
	}
	store->unsynced = false;
	if (count) {
		store->file++, store->block = 0;
		head->end.file++, head->end.block = 0;
		head->end.position += count;
	}
	return 0;
}

/* The index of the file that has just been ended. */
static int put_index(struct tape_store *store, uint32_t blocks)
{
	uint32_t size = HEADER + store->file_count * (uint32_t)sizeof(struct tape_entry);
	struct tape_block *block = aligned_alloc(4096, TAPE_BLOCK);
	bool warning;
	if (!block)
		return tape_drive_fail(&store->drive, -ENOMEM, "out of memory");
	*block = (struct tape_block){.kind = TAPE_INDEX,
		.sequence = store->index.head.file_sequence,
		.entries = store->file_count,
		.size = size,
		.blocks = blocks};
	memcpy(block + 1, store->file_entries, size - HEADER);
	int error = put_block(store, block, &warning);
	free(block);
	return error;
}

static void file_begins(struct tape_store *store)
{
	store->file_count = 0;
	store->file_bytes = 0;
	store->index.head.file_sequence = store->index.head.sequence;
}

static int end_file(struct tape_store *store)
{
	uint32_t blocks = store->index.head.end.block;
	int error = put_marks(store, 1);
	error = error ? error : put_index(store, blocks);
	if (error)
		return error;
	file_begins(store);
	return tape_index_commit(&store->index);
}

/* Nothing more is written to it. damaged: it does not take anything. */
static int end_cartridge(struct tape_store *store, bool damaged)
{
	struct tape_index_head *head = &store->index.head;
	int error = damaged ? -EIO : end_file(store);
	error = error ? error : put_marks(store, 1);
	if (error && store->unsynced)
		error = put_marks(store, 0);
	if (store->unsynced) {
		tape_log_say(store, error, "what was written last may not be on the medium");
		store->lost = true;
		return -EIO;
	}
	tape_index_cartridge(&store->index, head->end.cartridge)->state = TAPE_FULL;
	head->end = (struct tape_place){0};
	file_begins(store);
	return tape_index_commit(&store->index);
}

/* --- the next cartridge ----------------------------------------------------------------------- */

static bool is_available(const struct tape_cartridge *of)
{
	return (of->state == TAPE_BLANK || of->state == TAPE_FREE) && !of->unusable;
}

unsigned tape_log_available(struct tape_store *store)
{
	unsigned count = 0;
	for (uint32_t i = 1; i <= store->index.head.cartridges; i++)
		count += is_available(tape_index_cartridge(&store->index, i));
	return count;
}

/* One is kept for cleaning, and for what deletes. */
unsigned tape_log_spare(const struct tape_store *store) { return store->index.head.cartridges > 1; }

/* Blank ones, then in the order in which they were freed: a delete may be overwritten only after
   what it deletes. */
static struct tape_cartridge *choose(struct tape_store *store)
{
	struct tape_cartridge *best = NULL;
	for (uint32_t i = 1; i <= store->index.head.cartridges; i++) {
		struct tape_cartridge *of = tape_index_cartridge(&store->index, i);
		if (is_available(of) &&
			(!best || of->state < best->state ||
				(of->state == best->state && of->freed < best->freed)))
			best = of;
	}
	return best;
}

/* May it be begun anew? Only if it is what it is thought to be. */
static int look_at(struct tape_store *store, const struct tape_cartridge *of)
{
	const struct tape_block *label = tape_log_block(store);
	int error = tape_log_load(store, of->slot);
	if (error == TAPE_END && of->state == TAPE_BLANK)
		return 0;
	if (error < 0)
		return error;
	if (!error && !memcmp(label->store, store->index.head.store, 16) &&
		label->cartridge == of->number)
		return 0;
	return tape_drive_fail(&store->drive, -EILSEQ,
		"the cartridge in slot %u is not what this store has there", of->slot);
}

/* In the room that a read has. */
static uint32_t make_label(struct tape_store *store, struct tape_cartridge *of)
{
	struct tape_index_head *head = &store->index.head;
	struct tape_block *label = (struct tape_block *)store->room;
	uint32_t *numbers = (uint32_t *)(label + 1);
	*label = (struct tape_block){
		.kind = TAPE_LABEL, .sequence = head->sequence, .oldest = head->sequence};
	numbers[label->entries++] = of->number;
	for (uint32_t i = 1; i <= head->cartridges; i++) {
		const struct tape_cartridge *other = tape_index_cartridge(&store->index, i);
		if (other->state != TAPE_FULL)
			continue;
		numbers[label->entries++] = i;
		if (other->first < label->oldest)
			label->oldest = other->first;
	}
	label->size = HEADER + label->entries * (uint32_t)sizeof(*numbers);
	return label->size;
}

static int begin_cartridge(struct tape_store *store, struct tape_cartridge *of)
{
	struct tape_index_head *head = &store->index.head;
	struct tape_cartridge before = *of;
	bool warning;
	int error = look_at(store, of);
	error = error ? error : store->drive.ops->rewind(&store->drive);
	if (error)
		return error;
	make_label(store, of);
	of->use++;
	of->first = head->sequence;
	of->written = of->live = 0;
	head->end = (struct tape_place){.cartridge = of->number};
	store->mounted = of->number;
	store->file = store->block = 0;
	store->in_room.cartridge = 0;
	error = put_block(store, (struct tape_block *)store->room, &warning);
	error = error ? error : put_marks(store, 0);
	if (error) {
		*of = before;
		head->end = (struct tape_place){0};
		store->mounted = 0;
		store->unsynced = false;
		return error;
	}
	of->state = TAPE_ACTIVE;
	file_begins(store);
	return tape_index_commit(&store->index);
}

static int begin_next(struct tape_store *store)
{
	struct tape_cartridge *of;
	int error = tape_index_commit(&store->index); /* what was freed stays free */
	while (!error && (of = choose(store))) {
		if (store->fill.grows && tape_log_available(store) <= tape_log_spare(store))
			break;
		uint64_t before = store->counters[TAPE_RECONNECTS];
		error = begin_cartridge(store, of);
		if (error == -EILSEQ && before != store->counters[TAPE_RECONNECTS])
			continue;
		if (!error || error == -ETIMEDOUT || error == -ENOTCONN || error == -EDQUOT)
			return error == -ENOTCONN ? -ETIMEDOUT : error;
		tape_log_say(store, error, "a cartridge cannot be begun and is left out");
		of->unusable = true;
		error = store->index.error;
	}
	return error ? error : tape_drive_fail(&store->drive, -ENOSPC, "all cartridges are full");
}

/* --- blocks ----------------------------------------------------------------------------------- */

uint32_t tape_log_left(const struct tape_store *store)
{
	uint32_t taken =
		store->fill.used + (store->fill.count + 1) * (uint32_t)sizeof(struct tape_entry);
	bool fits =
		taken + 8 < TAPE_BLOCK && store->file_count + store->fill.count < TAPE_FILE_ENTRIES;
	return fits ? TAPE_BLOCK - 8 - taken : 0; /* entries are aligned */
}

int tape_log_add(struct tape_store *store, struct tape_entry entry, uint32_t size, uint8_t **bytes,
	bool grows)
{
	uint32_t left = tape_log_left(store);
	int error = left == 0 || left < size ? tape_log_write(store) : 0;
	if (error)
		return error;
	entry.at = store->fill.used;
	*bytes = store->fill.bytes + store->fill.used;
	store->fill.entries[store->fill.count++] = entry;
	store->fill.used += size;
	store->fill.grows |= grows;
	return 0;
}

static int note_entries(struct tape_store *store, struct tape_place place)
{
	int error = 0;
	for (uint32_t i = 0; i < store->fill.count && !error; i++) {
		const struct tape_entry *entry = &store->fill.entries[i];
		error = tape_index_apply(
			&store->index, entry, place, store->fill.bytes + entry->at);
		store->file_entries[store->file_count++] = *entry;
	}
	store->index.head.sequence += store->fill.count;
	return error;
}

static int put_entries(struct tape_store *store, struct tape_block *block, bool *warning)
{
	const struct tape_filling *fill = &store->fill;
	for (uint32_t i = 0; i < fill->count; i++)
		fill->entries[i].block = store->index.head.end.block;
	block->sequence = store->index.head.sequence;
	memcpy((struct tape_entry *)((uint8_t *)block + block->size) - fill->count, fill->entries,
		fill->count * sizeof(*fill->entries));
	return put_block(store, block, warning);
}

/* Where it can be written, on this cartridge or the next. */
static int put_somewhere(struct tape_store *store, struct tape_block *block, bool *warning)
{
	struct tape_index_head *head = &store->index.head;
	for (;;) {
		int error = 0;
		if (!head->end.cartridge && store->fill.grows)
			error = tape_clean_room(store);
		if (!error && !head->end.cartridge)
			error = begin_next(store);
		if (error)
			return error;
		if (store->file_count + store->fill.count > TAPE_FILE_ENTRIES)
			error = end_file(store);
		if (!error)
			error = put_entries(store, block, warning);
		bool damaged = error == -EIO || error == -EILSEQ || error == -EROFS;
		if (store->lost || !(damaged || error == -ENOSPC))
			return error;
		tape_log_say(store, error, "a write, so the next cartridge is begun");
		error = end_cartridge(store, damaged);
		if (error)
			return error;
	}
}

static void empty_block(struct tape_store *store)
{
	store->fill.used = HEADER;
	store->fill.count = 0;
	store->fill.grows = false;
}

static int write_block(struct tape_store *store)
{
	struct tape_block *block = (struct tape_block *)store->fill.bytes;
	bool warning = false;
	/* entries are aligned, behind the bytes */
	uint32_t begin = (store->fill.used + 7) / 8 * 8;
	*block = (struct tape_block){.kind = TAPE_DATA,
		.entries = store->fill.count,
		.size = begin + store->fill.count * (uint32_t)sizeof(struct tape_entry)};
	int error = put_somewhere(store, block, &warning);
	if (error)
		return error;
	store->fill.done++;
	struct tape_place place = store->index.head.end;
	place.block--;
	place.position--;
	error = note_entries(store, place);
	if (!error && warning)
		return end_cartridge(store, false);
	if (!error && (store->file_bytes >= store->options->file ||
			      store->file_count >= TAPE_FILE_ENTRIES - 1))
		error = end_file(store);
	if (error == -ENOSPC && !store->index.error)
		error = end_cartridge(store, false);
	return error;
}

int tape_log_write(struct tape_store *store)
{
	if (!store->fill.count)
		return 0;
	int error = store->lost ? -EIO : store->index.error;
	error = error ? error : write_block(store);
	store->full = error == -ENOSPC || error == -EDQUOT;
	if (store->index.error) {
		log_error(TAPE_NAME, "%s: the index cannot be written: %s; restart it when it can",
			store->first->name, strerror(-store->index.error));
		store->lost = true;
	}
	empty_block(store);
	return error == -EDQUOT ? -ENOSPC : error;
}

int tape_log_sync(struct tape_store *store)
{
	int error = tape_log_write(store);
	if (error || store->lost)
		return store->lost ? -EIO : error;
	if (!store->unsynced)
		return 0;
	error = put_marks(store, 0);
	if (error && error != -ETIMEDOUT)
		store->lost = true; /* the next one might say yes to what is not there */
	return error;
}

/* --- begin and end ---------------------------------------------------------------------------- */

static bool make_filling(struct tape_filling *fill)
{
	fill->bytes = aligned_alloc(4096, TAPE_BLOCK);
	fill->entries = calloc(TAPE_FILE_ENTRIES, sizeof(*fill->entries));
	fill->used = HEADER;
	return fill->bytes && fill->entries;
}

int tape_log_open(struct tape_store *store)
{
	store->index.lock = -1;
	if (!make_filling(&store->fill) || !make_filling(&store->cleaning))
		return -ENOMEM;
	store->room = aligned_alloc(4096, TAPE_ROOM);
	store->file_entries = calloc(TAPE_FILE_ENTRIES, sizeof(*store->file_entries));
	forget_head(store);
	return store->room && store->file_entries ? 0 : -ENOMEM;
}

void tape_log_close(struct tape_store *store)
{
	if (store->drive.ops && store->drive.state)
		store->drive.ops->close(&store->drive);
	tape_index_close(&store->index);
	free(store->fill.bytes);
	free(store->fill.entries);
	free(store->cleaning.bytes);
	free(store->cleaning.entries);
	free(store->room);
	free(store->file_entries);
}
