/* SPDX-License-Identifier: Apache-2.0 */
/* Pages that come: the one that is touched, those likely to be next, those asked for. */
#include <base/crash.h>
#include <base/log.h>
#include <errno.h>
#include <string.h>
#include <sys/uio.h>

#include "peers/front/regions.h"

#define FAULTS_AT_ONCE 16u /* for which there must always be room */
#define FETCH_FILLS 8u	   /* in flight for what is not urgent */
#define PIECES 80u	   /* of one read */

bool region_fill_room(const struct regions *regions)
{
	return regions->fills + FAULTS_AT_ONCE <= REGION_FILLS;
}

/* --- reads --------------------------------------------------------------------------- */

/* Bytes of the volume; what the last page has behind its end stays zero. */
static uint32_t fill_length(const struct region_fill *fill)
{
	uint64_t begin = fill->first * XSEG_PAGE, left = fill->volume->size - begin;
	uint64_t length = (uint64_t)fill->count * XSEG_PAGE;
	return (uint32_t)(length < left ? length : left);
}

static int fill_store(const struct region_fill *fill, const struct call *call)
{
	struct iovec iov[PIECES];
	uint64_t page = fill->first;
	int count = call_iov(call, 0, call->length, iov, PIECES), error = count < 0 ? count : 0;
	for (int i = 0; !error && i < count; i++) {
		error = region_volume_bring(fill->volume, page, iov[i].iov_base, iov[i].iov_len);
		page += iov[i].iov_len / XSEG_PAGE;
	}
	return error;
}

static void fill_set(const struct region_fill *fill, unsigned state)
{
	struct region_volume *volume = fill->volume;
	for (uint64_t page = fill->first; page < fill->first + fill->count; page++)
		region_volume_set(
			volume, page, state | (region_state(volume, page) & REGION_ASIDE));
}

static void fill_free(struct region_fill *fill)
{
	fill->volume->fills--;
	fill->volume->regions->fills--;
	fill->volume->regions->again = true;
	fill->count = 0;
}

static void fill_failed(struct region_fill *fill, int error)
{
	struct region_volume *volume = fill->volume;
	struct regions *regions = volume->regions;
	const uint64_t first = fill->first;
	const uint32_t count = fill->count;
	bool urgent = fill->urgent;
	fill_set(fill, REGION_ABSENT);
	fill_free(fill);
	if (!urgent) { /* whoever touches it asks again */
		struct region_attach *attach;
		TAILQ_FOREACH (attach, &volume->attached, volume_link)
			region_fault_wake(attach, first, count);
		return;
	}
	front_log(&regions->log, regions->peer, "volume", "%016llx: page %llu cannot be read: %s",
		(unsigned long long)volume->front.id, (unsigned long long)first, strerror(-error));
	region_fault_poison(volume, first, count);
}

static void fill_answered(struct call *call)
{
	struct region_fill *fill = call->context;
	struct region_volume *volume = fill->volume;
	struct regions *regions = volume->regions;
	int error = call->result;
	if (!error)
		error = fill_store(fill, call);
	call_end(call);
	if (error) {
		fill_failed(fill, error);
		return;
	}
	crash_point("front_region.page.stored");
	volume->fetched += fill->count;
	peer_count(regions->peer, REGION_COUNT_FETCHED, fill->count);
	/* whoever waits to write to it has been told of none yet, so this is what has changed */
	bool writes = fill->writer && !volume->held_ns;
	fill_set(fill, REGION_CLEAN);
	if (writes)
		region_volume_set(volume, fill->first,
			REGION_DIRTY | (region_state(volume, fill->first) & REGION_ASIDE));
	region_fault_map(volume, fill->first, fill->count, writes ? fill->writer : NULL);
	fill_free(fill);
}

/* Needs memory first, then room in the segment. */
static int fill_submit(struct region_fill *fill)
{
	struct regions *regions = fill->volume->regions;
	struct call *call;
	if (call_begin(regions->peer, &call))
		return -EAGAIN;
	call->op = XSEG_OP_READ;
	call->flags = XSEG_F_PIN | (fill->urgent ? XSEG_F_URGENT : 0u);
	call->key = (struct xseg_key){.volume = fill->volume->front.id};
	call->offset = fill->first * XSEG_PAGE;
	call->length = fill_length(fill);
	call->context = fill;
	if (call_pages(call, call->length)) {
		call_end(call);
		return -EAGAIN;
	}
	call_submit(call, FRONT_EDGE_VOLUME, fill_answered);
	return 0;
}

static bool fill_again(struct peer *peer, void *context)
{
	struct region_fill *fill = context;
	(void)peer;
	return fill_submit(fill) == 0;
}

static void fill_go(struct region_fill *fill)
{
	struct regions *regions = fill->volume->regions;
	fill->starved = false;
	if (!fill_submit(fill))
		return;
	peer_count(regions->peer, REGION_COUNT_WAITS, 1);
	peer_retry(regions->peer, fill_again, fill);
}

/* --- which ------------------------------------------------------------------------------- */

static struct region_fill *fill_get(struct regions *regions)
{
	for (unsigned i = 0; i < REGION_FILLS; i++)
		if (!regions->fill[i].count)
			return &regions->fill[i];
	return NULL;
}

/* Absent ones in a row, from `page` on: as many as one read may have. */
static uint32_t fill_run(const struct region_volume *volume, uint64_t page, uint64_t end)
{
	uint32_t count = 0;
	while (page + count < end && count < REGION_RUN &&
		!(region_state(volume, page + count) & (REGION_STATE | REGION_FILLING)))
		count++;
	return count;
}

static struct region_fill *fill_begin(
	struct region_volume *volume, uint64_t first, uint32_t count, bool urgent)
{
	struct region_fill *fill = fill_get(volume->regions);
	must(fill);
	*fill = (struct region_fill){
		.volume = volume, .first = first, .count = count, .urgent = urgent};
	volume->fills++;
	volume->regions->fills++;
	fill_set(fill, REGION_FILLING);
	return fill;
}

/* Touched upwards, page by page: twice as many each time, so that the reads stay ahead. */
static uint32_t fill_ahead(struct region_attach *attach, uint64_t page)
{
	bool onward = page == attach->next;
	if (attach->random || !onward)
		attach->ahead = 0;
	else if (!attach->ahead)
		attach->ahead = REGION_AHEAD_MIN;
	else if (attach->ahead < REGION_RUN)
		attach->ahead *= 2;
	return attach->ahead;
}

static void fill_neighbours(struct region_attach *attach, uint64_t page)
{
	struct region_volume *volume = attach->volume;
	struct regions *regions = attach->regions;
	uint64_t end = attach->first + attach->pages;
	uint32_t ahead = fill_ahead(attach, page);
	attach->next = page + 1;
	if (!ahead)
		return;
	end = end < page + 1 + ahead ? end : page + 1 + ahead;
	uint32_t count = fill_run(volume, page + 1, end);
	attach->next = page + 1 + count;
	if (!count || regions->fills + FAULTS_AT_ONCE >= REGION_FILLS ||
		!region_evict_room(regions, count))
		return;
	struct region_fill *fill = fill_begin(volume, page + 1, count, false);
	region_order_note(volume, page + 1, count);
	peer_count(regions->peer, REGION_COUNT_AHEAD, count);
	fill_go(fill);
}

void region_fill_fault(struct region_attach *attach, uint64_t page, bool writes)
{
	struct region_volume *volume = attach->volume;
	if (region_state(volume, page) & REGION_FILLING)
		return;
	bool room = region_evict_room(attach->regions, 1);
	struct region_fill *fill = fill_begin(volume, page, 1, true);
	fill->writer = writes && attach->shared ? attach : NULL;
	region_order_note(volume, page, 1);
	if (room)
		fill_go(fill);
	else
		fill->starved = true;
	fill_neighbours(attach, page);
}

/* --- each turn ----------------------------------------------------------------------------- */

/* Pages that are marked count already, so what is missing is what there is too much. */
static bool fill_starved(struct regions *regions)
{
	bool moved = false;
	for (unsigned i = 0; i < REGION_FILLS; i++) {
		struct region_fill *fill = &regions->fill[i];
		if (!fill->count || !fill->starved)
			continue;
		if (!region_evict_room(regions, 0))
			break;
		fill_go(fill);
		moved = true;
	}
	return moved;
}

/* What is absent of [*at, end): while there is memory that nobody needs, and few reads are out.
   True: something was begun. */
static bool fill_fetch(struct region_volume *volume, uint64_t *at, uint64_t end)
{
	struct regions *regions = volume->regions;
	bool moved = false;
	while (*at < end && volume->fills < FETCH_FILLS && region_fill_room(regions)) {
		uint32_t count = fill_run(volume, *at, end);
		if (!count) {
			++*at;
			continue;
		}
		/* others' pages do not go for what may be needed */
		if (regions->resident + count > regions->limit) {
			*at = end;
			break;
		}
		struct region_fill *fill = fill_begin(volume, *at, count, false);
		*at += count;
		fill_go(fill);
		moved = true;
	}
	return moved;
}

/* As it was touched the last time. */
static bool fill_replay(struct region_volume *volume)
{
	struct regions *regions = volume->regions;
	uint64_t first, end;
	bool moved = false;
	while (volume->fills < FETCH_FILLS && region_fill_room(regions) &&
		region_order_next(volume, &first, &end)) {
		if (regions->resident + REGION_RUN > regions->limit) {
			region_order_stop(volume);
			break;
		}
		moved |= fill_fetch(volume, &first, end);
		region_order_went(volume, first);
	}
	return moved;
}

bool region_fill_turn(struct regions *regions)
{
	struct region_attach *attach;
	struct region_volume *volume;
	bool moved = fill_starved(regions);
	TAILQ_FOREACH (attach, &regions->attaches, link)
		if (attach->state == REGION_SERVING && attach->fetch < attach->fetch_end)
			moved |= fill_fetch(attach->volume, &attach->fetch, attach->fetch_end);
	TAILQ_FOREACH (volume, &regions->list, link)
		moved |= fill_replay(volume);
	return moved;
}
