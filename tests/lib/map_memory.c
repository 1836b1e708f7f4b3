/* SPDX-License-Identifier: Apache-2.0 */
/* A store in memory with all the faults that a store can have. */
#include "tests/lib/map_memory.h"

#include <base/must.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define PAGE XSEG_PAGE
#define SECTORS (XSEG_PAGE / XSEG_SECTOR)

/* 4 KiB of an object: as it reads now, and as it was at the last flush; NULL: nothing there. */
struct page {
	uint32_t index;
	bool dirty;
	uint8_t *now;
	uint8_t *then;
};

/* An object or a record. */
struct item {
	struct item *next; /* of the same hash */
	struct xseg_key key;
	bool dirty;
	bool there;	 /* now; always, for a record */
	bool there_then; /* at the last flush */
	bool discarded;	 /* since then */
	struct page *pages;
	uint32_t count;
	uint64_t version;
	uint8_t *record;
	uint32_t size;
	uint64_t place; /* in its bin */
};

/* What is listed together: the objects of a volume, or the records of an epoch. In the order in
   which they were made, so that a cursor means the same whatever else is made or goes. */
struct bin {
	struct bin *next;
	uint64_t name;
	bool records;
	struct item **items;
	uint64_t count, room;
};

#define HASH_SIZE (1u << 13)
struct map_memory_data {
	struct item *items[HASH_SIZE];
	struct bin *bins[HASH_SIZE];
};

/* --- what there is ------------------------------------------------------------------------ */

static void *need(void *memory)
{
	must(memory);
	return memory;
}

static bool is_record(struct xseg_key key) { return key.epoch >= XSEG_EPOCH_HOME; }

static uint32_t hash_of(uint64_t a, uint64_t b)
{
	uint64_t x = (a ^ (b + 0x9e3779b97f4a7c15ull)) * 0xff51afd7ed558ccdull;
	x = (x ^ x >> 33) * 0xc4ceb9fe1a85ec53ull;
	return (uint32_t)(x >> 40) % HASH_SIZE;
}

static struct item **slot_of(const struct map_memory *memory, struct xseg_key key)
{
	uint32_t hash = hash_of(key.volume, (uint64_t)key.epoch << 32 | key.object);
	struct item **slot = (struct item **)&memory->data->items[hash];
	while (*slot && memcmp(&(*slot)->key, &key, sizeof(key)) != 0)
		slot = &(*slot)->next;
	return slot;
}

static struct item *find(const struct map_memory *memory, struct xseg_key key)
{
	return *slot_of(memory, key);
}

static struct bin *bin_of(const struct map_memory *memory, uint64_t name, bool records)
{
	struct bin **slot = (struct bin **)&memory->data->bins[hash_of(name, records)];
	while (*slot && ((*slot)->name != name || (*slot)->records != records))
		slot = &(*slot)->next;
	if (!*slot) {
		*slot = need(calloc(1, sizeof(struct bin)));
		(*slot)->name = name;
		(*slot)->records = records;
	}
	return *slot;
}

static struct bin *bin_of_key(const struct map_memory *memory, struct xseg_key key)
{
	bool records = is_record(key);
	return bin_of(memory, records ? key.epoch : key.volume, records);
}

static struct item *make(struct map_memory *memory, struct xseg_key key)
{
	struct item **slot = slot_of(memory, key);
	if (*slot)
		return *slot;
	struct item *item = *slot = need(calloc(1, sizeof(*item)));
	item->key = key;
	struct bin *bin = bin_of_key(memory, key);
	if (bin->count == bin->room) {
		bin->room = bin->room ? 2 * bin->room : 16;
		bin->items = need(realloc(bin->items, bin->room * sizeof(struct item *)));
	}
	item->place = bin->count;
	bin->items[bin->count++] = item;
	return item;
}

static void item_free(struct item *item)
{
	for (uint32_t i = 0; i < item->count; i++) {
		free(item->pages[i].now);
		free(item->pages[i].then);
	}
	free(item->pages);
	free(item->record);
	free(item);
}

/* Its place in the list stays empty, and the cursors behind it right. */
static void forget(struct map_memory *memory, struct item *item)
{
	struct item **slot = slot_of(memory, item->key);
	*slot = item->next;
	bin_of_key(memory, item->key)->items[item->place] = NULL;
	item_free(item);
}

/* The first page at or behind `index`. */
static uint32_t page_at(const struct item *item, uint32_t index)
{
	uint32_t low = 0, high = item->count;
	while (low < high) {
		uint32_t middle = (low + high) / 2;
		if (item->pages[middle].index < index)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

static struct page *page_find(const struct item *item, uint32_t index)
{
	uint32_t at = page_at(item, index);
	return at < item->count && item->pages[at].index == index ? &item->pages[at] : NULL;
}

static struct page *page_make(struct item *item, uint32_t index)
{
	uint32_t at = page_at(item, index);
	if (at < item->count && item->pages[at].index == index)
		return &item->pages[at];
	if ((item->count & (item->count - 1)) == 0)
		item->pages =
			need(realloc(item->pages, (2 * item->count + 1) * sizeof(struct page)));
	memmove(item->pages + at + 1, item->pages + at, (item->count - at) * sizeof(struct page));
	item->count++;
	item->pages[at] = (struct page){.index = index};
	return &item->pages[at];
}

static uint64_t item_space(const struct item *item)
{
	uint64_t space = 0;
	for (uint32_t i = 0; i < item->count; i++)
		space += item->pages[i].now ? PAGE : 0;
	return space;
}

/* --- changes ------------------------------------------------------------------------------ */

static void item_fill(struct item *item, uint32_t offset, const uint8_t *from, uint32_t length)
{
	item->there = item->dirty = true;
	while (length > 0) {
		uint32_t in = offset % PAGE, part = PAGE - in < length ? PAGE - in : length;
		struct page *page = page_make(item, offset / PAGE);
		if (!page->now)
			page->now = need(calloc(1, PAGE));
		page->dirty = true;
		memcpy(page->now + in, from, part);
		offset += part;
		from += part;
		length -= part;
	}
}

static void item_read(const struct item *item, uint32_t offset, uint8_t *to, uint32_t length)
{
	while (length > 0) {
		uint32_t in = offset % PAGE, part = PAGE - in < length ? PAGE - in : length;
		const struct page *page = item ? page_find(item, offset / PAGE) : NULL;
		if (page && page->now)
			memcpy(to, page->now + in, part);
		else
			memset(to, 0, part);
		offset += part;
		to += part;
		length -= part;
	}
}

static void item_discard(struct item *item)
{
	for (uint32_t i = 0; i < item->count; i++) {
		free(item->pages[i].now);
		item->pages[i].now = NULL;
		item->pages[i].dirty = true;
	}
	item->there = false;
	item->dirty = item->discarded = true;
}

static uint8_t *page_copy(const uint8_t *from)
{
	return from ? memcpy(need(malloc(PAGE)), from, PAGE) : NULL;
}

/* What it is now is what it will be after any loss of power. True: it is gone for good. */
static bool item_settle(struct item *item)
{
	uint32_t kept = 0;
	for (uint32_t i = 0; i < item->count; i++) {
		struct page *page = &item->pages[i];
		if (page->dirty) {
			free(page->then);
			page->then = page_copy(page->now);
			page->dirty = false;
		}
		if (page->now)
			item->pages[kept++] = *page;
	}
	item->count = kept;
	item->dirty = item->discarded = false;
	item->there_then = item->there;
	return !item->there;
}

static uint64_t draw(uint64_t *seed)
{
	*seed ^= *seed << 13;
	*seed ^= *seed >> 7;
	*seed ^= *seed << 17;
	return *seed >> 11;
}

static void page_lose(struct page *page, bool emptied, uint64_t *seed)
{
	uint8_t left[PAGE] = {0};
	bool any = page->then && !emptied;
	if (any)
		memcpy(left, page->then, PAGE);
	for (unsigned i = 0; i < SECTORS && page->now; i++)
		if (*seed != 0 && draw(seed) % 2) {
			memcpy(left + i * XSEG_SECTOR, page->now + i * XSEG_SECTOR, XSEG_SECTOR);
			any = true;
		}
	free(page->now);
	page->now = any ? page_copy(left) : NULL;
}

/* Before it is settled: what is left of it. */
static void item_lose(struct item *item, uint64_t *seed)
{
	bool emptied = item->discarded && *seed != 0 && draw(seed) % 2;
	bool there = item->there_then && !emptied;
	for (uint32_t i = 0; i < item->count; i++) {
		struct page *page = &item->pages[i];
		if (page->dirty)
			page_lose(page, emptied, seed);
		there = there || page->now;
	}
	item->there = there;
}

/* --- requests ----------------------------------------------------------------------------- */

static int begin(struct map_memory *memory, enum map_memory_kind kind, struct xseg_key key)
{
	memory->count[kind]++;
	if (memory->before) {
		int rc = memory->before(memory, kind, key);
		if (rc != 0)
			return rc;
	}
	if (memory->cut)
		return -EIO;
	if (kind < MAP_MEMORY_WRITE)
		return 0;
	memory->mutations++;
	if (memory->cut_after != 0 && memory->mutations >= memory->cut_after) {
		memory->cut = true;
		return -EIO;
	}
	if (memory->mutations == memory->fail_at && !memory->fail_done)
		return memory->fail_error ? memory->fail_error : -EIO;
	return 0;
}

/* The answer to a mutation that was done. */
static int answer(const struct map_memory *memory)
{
	if (memory->mutations != memory->fail_at || !memory->fail_done)
		return 0;
	return memory->fail_error ? memory->fail_error : -EIO;
}

static void check_range(struct xseg_key key, uint32_t offset, uint32_t length)
{
	must(key.volume != 0 && !is_record(key));
	must(offset % XSEG_SECTOR == 0 && length % XSEG_SECTOR == 0 && length > 0);
	must(offset <= XSEG_OBJECT_MAX && length <= XSEG_OBJECT_MAX - offset);
}

/* -ENOSPC, or the space is taken. */
static int take_space(
	struct map_memory *memory, struct xseg_key key, uint32_t offset, uint32_t length)
{
	const struct item *item = find(memory, key);
	uint64_t more = 0;
	for (uint32_t index = offset / PAGE; index <= (offset + length - 1) / PAGE; index++) {
		const struct page *page = item ? page_find(item, index) : NULL;
		more += page && page->now ? 0 : PAGE;
	}
	if (memory->space_max != 0 && memory->space + more > memory->space_max)
		return -ENOSPC;
	memory->space += more;
	return 0;
}

static struct map_memory *of(struct map_store *store) { return (struct map_memory *)store; }

static int memory_read(
	struct map_store *store, struct xseg_key key, uint32_t offset, void *to, uint32_t length)
{
	check_range(key, offset, length);
	int rc = begin(of(store), MAP_MEMORY_READ, key);
	if (rc == 0)
		item_read(find(of(store), key), offset, to, length);
	return rc;
}

static int memory_write(struct map_store *store, struct xseg_key key, uint32_t offset,
	const void *from, uint32_t length)
{
	check_range(key, offset, length);
	int rc = begin(of(store), MAP_MEMORY_WRITE, key);
	if (rc == 0)
		rc = take_space(of(store), key, offset, length);
	if (rc != 0)
		return rc;
	item_fill(make(of(store), key), offset, from, length);
	return answer(of(store));
}

static int memory_flush(struct map_store *store, uint64_t volume)
{
	int rc = begin(of(store), MAP_MEMORY_FLUSH, (struct xseg_key){.volume = volume});
	if (rc != 0)
		return rc;
	struct bin *bin = bin_of(of(store), volume, false);
	for (uint64_t i = 0; i < bin->count; i++) {
		struct item *item = bin->items[i];
		if (item && item->dirty && item_settle(item))
			forget(of(store), item);
	}
	return answer(of(store));
}

static int memory_discard(struct map_store *store, struct xseg_key key)
{
	must(key.volume != 0 && !is_record(key));
	int rc = begin(of(store), MAP_MEMORY_DISCARD, key);
	if (rc != 0)
		return rc;
	struct item *item = find(of(store), key);
	if (item) {
		of(store)->space -= item_space(item);
		item_discard(item);
	}
	return answer(of(store));
}

static int memory_copy(struct map_store *store, struct xseg_key to, struct xseg_key from,
	uint32_t offset, uint32_t length)
{
	check_range(to, offset, length);
	check_range(from, offset, length);
	int rc = begin(of(store), MAP_MEMORY_COPY, to);
	if (rc == 0)
		rc = take_space(of(store), to, offset, length);
	if (rc != 0)
		return rc;
	uint8_t *data = need(malloc(length));
	item_read(find(of(store), from), offset, data, length);
	item_fill(make(of(store), to), offset, data, length);
	free(data);
	return answer(of(store));
}

static int list_bin(const struct bin *bin, uint64_t *cursor, struct xseg_key *keys, uint32_t max)
{
	must(max > 0);
	uint32_t count = 0;
	uint64_t i = *cursor;
	for (; i < bin->count && count < max; i++)
		if (bin->items[i] && bin->items[i]->there)
			keys[count++] = bin->items[i]->key;
	*cursor = i < bin->count ? i : 0;
	return (int)count;
}

static int memory_list(struct map_store *store, uint64_t volume, uint64_t *cursor,
	struct xseg_key *keys, uint32_t max)
{
	int rc = begin(of(store), MAP_MEMORY_LIST, (struct xseg_key){.volume = volume});
	return rc != 0 ? rc : list_bin(bin_of(of(store), volume, false), cursor, keys, max);
}

static int memory_records(struct map_store *store, uint32_t epoch, uint64_t *cursor,
	struct xseg_key *keys, uint32_t max)
{
	must(epoch >= XSEG_EPOCH_HOME);
	int rc = begin(of(store), MAP_MEMORY_RECORDS, (struct xseg_key){.epoch = epoch});
	return rc != 0 ? rc : list_bin(bin_of(of(store), epoch, true), cursor, keys, max);
}

static int memory_allocated(struct map_store *store, struct xseg_key key, uint64_t *bytes)
{
	int rc = begin(of(store), MAP_MEMORY_ALLOCATED, key);
	const struct item *item = rc == 0 ? find(of(store), key) : NULL;
	*bytes = item ? item_space(item) : 0;
	return rc;
}

static int memory_get(struct map_store *store, struct xseg_key key, uint8_t to[XSEG_RECORD_MAX],
	uint64_t *version)
{
	must(is_record(key));
	int rc = begin(of(store), MAP_MEMORY_GET, key);
	if (rc != 0)
		return rc;
	const struct item *item = find(of(store), key);
	if (!item)
		return -ENOENT;
	memcpy(to, item->record, item->size);
	*version = item->version;
	return (int)item->size;
}

static int memory_put(struct map_store *store, struct xseg_key key, const void *from, uint32_t size,
	uint64_t *version)
{
	must(is_record(key) && key.volume != 0 && size > 0 && size <= XSEG_RECORD_MAX);
	int rc = begin(of(store), MAP_MEMORY_PUT, key);
	if (rc != 0)
		return rc;
	struct item *item = find(of(store), key);
	uint64_t found = item ? item->version : 0;
	if (found != *version) {
		rc = *version == 0 ? -EEXIST : -ESTALE;
		*version = found;
		return rc;
	}
	item = make(of(store), key);
	item->there = item->there_then = true;
	item->record = need(realloc(item->record, size));
	memcpy(item->record, from, size);
	item->size = size;
	*version = ++item->version;
	return answer(of(store));
}

static int memory_drop(struct map_store *store, struct xseg_key key, uint64_t *version)
{
	must(is_record(key));
	int rc = begin(of(store), MAP_MEMORY_DROP, key);
	if (rc != 0)
		return rc;
	struct item *item = find(of(store), key);
	uint64_t expected = *version;
	*version = item ? item->version : 0;
	if (!item)
		return -ENOENT;
	if (item->version != expected)
		return -ESTALE;
	forget(of(store), item);
	*version = 0;
	return answer(of(store));
}

/* --- the test's side ---------------------------------------------------------------------- */

struct map_memory *map_memory_create(void)
{
	struct map_memory *memory = need(calloc(1, sizeof(*memory)));
	memory->data = need(calloc(1, sizeof(*memory->data)));
	memory->store = (struct map_store){.read = memory_read,
		.write = memory_write,
		.flush = memory_flush,
		.discard = memory_discard,
		.copy = memory_copy,
		.list = memory_list,
		.allocated = memory_allocated,
		.get = memory_get,
		.put = memory_put,
		.drop = memory_drop,
		.records = memory_records};
	return memory;
}

static void item_copy(struct item *to, const struct item *from)
{
	struct item *next = to->next;
	uint64_t place = to->place;
	*to = *from;
	to->next = next;
	to->place = place;
	to->pages = from->count ? need(malloc(from->count * sizeof(struct page))) : NULL;
	for (uint32_t i = 0; i < from->count; i++) {
		to->pages[i] = from->pages[i];
		to->pages[i].now = page_copy(from->pages[i].now);
		to->pages[i].then = page_copy(from->pages[i].then);
	}
	to->record =
		from->record ? memcpy(need(malloc(from->size)), from->record, from->size) : NULL;
}

struct map_memory *map_memory_copy(const struct map_memory *memory)
{
	struct map_memory *copy = map_memory_create();
	for (uint32_t hash = 0; hash < HASH_SIZE; hash++)
		for (const struct bin *bin = memory->data->bins[hash]; bin; bin = bin->next)
			for (uint64_t i = 0; i < bin->count; i++)
				if (bin->items[i])
					item_copy(make(copy, bin->items[i]->key), bin->items[i]);
	copy->space = memory->space;
	return copy;
}

void map_memory_destroy(struct map_memory *memory)
{
	for (uint32_t hash = 0; hash < HASH_SIZE; hash++) {
		for (struct bin *bin = memory->data->bins[hash], *next; bin; bin = next) {
			next = bin->next;
			free(bin->items);
			free(bin);
		}
		for (struct item *item = memory->data->items[hash], *next; item; item = next) {
			next = item->next;
			item_free(item);
		}
	}
	free(memory->data);
	free(memory);
}

void map_memory_heal(struct map_memory *memory)
{
	memory->cut_after = memory->fail_at = memory->space_max = memory->mutations = 0;
	memory->fail_error = 0;
	memory->fail_done = memory->cut = false;
	memory->before = NULL;
	memset(memory->count, 0, sizeof(memory->count));
}

void map_memory_lose(struct map_memory *memory, uint64_t seed)
{
	memory->space = 0;
	for (uint32_t hash = 0; hash < HASH_SIZE; hash++)
		for (struct item *item = memory->data->items[hash], *next; item; item = next) {
			next = item->next;
			if (item->dirty) {
				item_lose(item, &seed);
				for (uint32_t i = 0; i < item->count; i++)
					item->pages[i].dirty = true;
			}
			memory->space += item_space(item);
			if (item->dirty && item_settle(item))
				forget(memory, item);
		}
	map_memory_heal(memory);
}

void map_memory_corrupt(
	struct map_memory *memory, struct xseg_key key, uint32_t offset, uint8_t mask)
{
	struct item *item = find(memory, key);
	must(item);
	if (is_record(key)) {
		must(offset < item->size);
		item->record[offset] ^= mask;
		return;
	}
	struct page *page = page_find(item, offset / PAGE);
	must(page && page->now);
	page->now[offset % PAGE] ^= mask;
	if (page->then)
		page->then[offset % PAGE] ^= mask;
}

bool map_memory_exists(const struct map_memory *memory, struct xseg_key key)
{
	const struct item *item = find(memory, key);
	return item && item->there;
}

uint64_t map_memory_objects(const struct map_memory *memory, uint64_t volume)
{
	const struct bin *bin = bin_of(memory, volume, false);
	uint64_t count = 0;
	for (uint64_t i = 0; i < bin->count; i++)
		count += bin->items[i] && bin->items[i]->there;
	return count;
}
