/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pages and bitmaps of maps, many at a time: what is written waits for the next request that is not
 * of that kind, at the latest the flush; what the library says that it will read is read at once.
 * So a change of many objects takes a few round trips to the store, not two for each of them.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "peers/map/mapper.h"

struct mapper_pages {
	/* written, and not sent yet */
	struct mapper_call writes[MAPPER_BATCH];
	uint8_t written[MAPPER_BATCH][MAP_PAGE_SIZE];
	unsigned write_count;
	/* what will be read, in order, and a window of it that has been */
	struct map_range *ranges;
	size_t range_count, first;
	struct mapper_call reads[MAPPER_BATCH];
	uint8_t read[MAPPER_BATCH][MAP_PAGE_SIZE];
	unsigned read_count;
};

/* NULL: no memory. */
static struct mapper_pages *pages_of(struct mapper_store *store)
{
	if (!store->pages)
		store->pages = calloc(1, sizeof(*store->pages));
	return store->pages;
}

static bool overlaps(
	const struct mapper_call *call, struct xseg_key key, uint32_t offset, uint32_t length)
{
	return call->op != XSEG_OP_NONE && memcmp(&call->key, &key, sizeof(key)) == 0 &&
	       call->offset < (uint64_t)offset + length && offset < call->offset + call->length;
}

/* --- writing -------------------------------------------------------------------------------- */

void mapper_pages_send(struct mapper_store *store)
{
	struct mapper_pages *pages = store->pages;
	if (!pages || pages->write_count == 0)
		return;
	if (store->revoked) {
		store->write_error = -EKEYREVOKED;
		pages->write_count = 0;
		return;
	}
	mapper_store_all(store, pages->writes, pages->write_count);
	for (unsigned i = 0; i < pages->write_count; i++) {
		struct mapper_call *call = &pages->writes[i];
		if (call->result == 0)
			mapper_store_note(
				store, call->key, (uint32_t)call->offset, call->send, call->length);
		else if (store->write_error == 0)
			store->write_error = call->result;
	}
	pages->write_count = 0;
}

/* If any of what waits is of that part. */
static void send_over(
	struct mapper_store *store, struct xseg_key key, uint32_t offset, uint32_t length)
{
	const struct mapper_pages *pages = store->pages;
	bool any = false;
	for (unsigned i = 0; i < pages->write_count; i++)
		any |= overlaps(&pages->writes[i], key, offset, length);
	if (any)
		mapper_pages_send(store);
}

bool mapper_pages_write(struct mapper_store *store, struct xseg_key key, uint32_t offset,
	const void *from, uint32_t length)
{
	struct mapper_pages *pages = pages_of(store);
	if (!pages || length > MAP_PAGE_SIZE)
		return false;
	if (pages->write_count == MAPPER_BATCH)
		mapper_pages_send(store);
	send_over(store, key, offset, length);
	for (unsigned i = 0; i < pages->read_count; i++)
		if (overlaps(&pages->reads[i], key, offset, length))
			pages->reads[i].op = XSEG_OP_NONE;
	unsigned at = pages->write_count++;
	memcpy(pages->written[at], from, length);
	pages->writes[at] = (struct mapper_call){.op = XSEG_OP_WRITE,
		.key = key,
		.offset = offset,
		.length = length,
		.send = pages->written[at]};
	return true;
}

/* --- reading -------------------------------------------------------------------------------- */

void mapper_pages_expect(struct mapper_store *store, const struct map_range *ranges, size_t count)
{
	struct mapper_pages *pages = pages_of(store);
	struct map_range *copy = pages ? malloc((count + 1) * sizeof(*copy)) : NULL;
	if (!copy) /* then each is read when it is asked for */
		return;
	memcpy(copy, ranges, count * sizeof(*copy));
	free(pages->ranges);
	pages->ranges = copy;
	pages->range_count = count;
	pages->first = 0;
	pages->read_count = 0;
}

void mapper_pages_forget(struct mapper_store *store)
{
	if (store->pages)
		store->pages->range_count = store->pages->read_count = 0;
}

/* The window begins there. */
static void read_from(struct mapper_store *store, size_t first)
{
	struct mapper_pages *pages = store->pages;
	size_t left = pages->range_count - first;
	pages->first = first;
	pages->read_count = left < MAPPER_BATCH ? (unsigned)left : MAPPER_BATCH;
	for (unsigned i = 0; i < pages->read_count; i++) {
		const struct map_range *range = &pages->ranges[first + i];
		pages->reads[i] = (struct mapper_call){.op = XSEG_OP_READ,
			.key = range->key,
			.offset = range->offset,
			.length = range->length,
			.receive = pages->read[i]};
	}
	mapper_pages_send(store);
	mapper_store_all(store, pages->reads, pages->read_count);
}

static bool is_range(
	const struct map_range *range, struct xseg_key key, uint32_t offset, uint32_t length)
{
	return memcmp(&range->key, &key, sizeof(key)) == 0 && range->offset == offset &&
	       range->length == length;
}

/* Where it is in the list; from the window on first. */
static bool find_range(const struct mapper_pages *pages, struct xseg_key key, uint32_t offset,
	uint32_t length, size_t *at)
{
	for (size_t i = 0; i < pages->range_count; i++) {
		*at = (pages->first + i) % pages->range_count;
		if (is_range(&pages->ranges[*at], key, offset, length))
			return true;
	}
	return false;
}

bool mapper_pages_read(
	struct mapper_store *store, struct xseg_key key, uint32_t offset, void *to, uint32_t length)
{
	struct mapper_pages *pages = store->pages;
	size_t at;
	if (!pages || store->revoked)
		return false;
	if (find_range(pages, key, offset, length, &at)) {
		if (at < pages->first || at >= pages->first + pages->read_count)
			read_from(store, at);
		const struct mapper_call *call = &pages->reads[at - pages->first];
		if (call->op != XSEG_OP_NONE && call->result == 0 &&
			call->answer_length == length) {
			memcpy(to, call->receive, length);
			return true;
		}
	}
	send_over(store, key, offset, length);
	return false;
}

void mapper_pages_close(struct mapper_store *store)
{
	mapper_pages_send(store);
	if (store->pages)
		free(store->pages->ranges);
	free(store->pages);
	store->pages = NULL;
}
