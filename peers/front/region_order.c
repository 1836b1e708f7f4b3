/* SPDX-License-Identifier: Apache-2.0 */
/*
 * In which order pages of a volume are touched for the first time. It is kept in a file of the
 * folder `orders` when the last program has left, and who opens the volume next finds pages
 * fetched before he needs them. Files are read and written on threads.
 *
 * Source: REAP (Ustiugov and others, ASPLOS 2021): functions touch the same pages at each start.
 */
#include <base/log.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "peers/front/regions.h"

#define ORDER_MAGIC 0x7264726f6e676572ull
#define ORDER_RUNS_MAX 65536u

/* A file: this, then its runs. */
struct order_head {
	uint64_t magic, volume;
	uint32_t count, reserved;
};

/* On its way to or from a file. */
struct region_order_work {
	struct worker_item item;
	STAILQ_ENTRY(region_order_work) link;
	void (*run)(struct worker_item *item);
	void (*done)(struct region_order_work *work);
	struct regions *regions;
	uint64_t id;
	char path[PATH_LENGTH_MAX], other[PATH_LENGTH_MAX + 8];
	struct region_run *list;
	uint32_t count;
	bool joins; /* to be written behind what is in the file */
	int error;
};

static bool order_is_kept(const struct regions *regions)
{
	return regions->options->orders && *regions->options->orders;
}

static struct region_order_work *order_work(struct regions *regions, uint64_t id)
{
	struct region_order_work *work = calloc(1, sizeof(*work));
	if (!work)
		return NULL;
	work->regions = regions;
	work->id = id;
	int length = snprintf(work->path, sizeof(work->path), "%s/%016llx.order",
		regions->options->orders, (unsigned long long)id);
	snprintf(work->other, sizeof(work->other), "%s.new", work->path);
	if (length < (int)sizeof(work->path))
		return work;
	free(work);
	return NULL;
}

static void order_free(struct region_order_work *work)
{
	free(work->list);
	free(work);
}

/* One after the other: what is read has been written. */
static void order_ended(struct worker_item *item)
{
	struct region_order_work *work = (struct region_order_work *)item;
	struct regions *regions = work->regions;
	work->done(work);
	STAILQ_REMOVE_HEAD(&regions->orders, link);
	order_free(work);
	work = STAILQ_FIRST(&regions->orders);
	if (work)
		worker_run(regions->peer, &work->item, work->run, order_ended);
}

static void order_begin(struct region_order_work *work, void (*run)(struct worker_item *item),
	void (*done)(struct region_order_work *work))
{
	struct regions *regions = work->regions;
	bool first = STAILQ_EMPTY(&regions->orders);
	work->run = run;
	work->done = done;
	STAILQ_INSERT_TAIL(&regions->orders, work, link);
	if (first)
		worker_run(regions->peer, &work->item, run, order_ended);
}

/* --- what is touched ------------------------------------------------------------------------ */

void region_order_note(struct region_volume *volume, uint64_t page, uint32_t count)
{
	struct region_order *order = &volume->order;
	if (!order_is_kept(volume->regions) || region_state(volume, page) & REGION_NOTED)
		return;
	for (uint64_t at = page; at < page + count; at++)
		region_volume_set(volume, at, region_state(volume, at) | REGION_NOTED);
	struct region_run *last = order->count ? &order->run[order->count - 1] : NULL;
	order->changed = true;
	if (last && last->first + last->count == page) {
		last->count += count;
		return;
	}
	if (order->count == order->room && order->room < ORDER_RUNS_MAX) {
		uint32_t room = order->room ? order->room * 2 : 256;
		struct region_run *more = realloc(order->run, room * sizeof(*more));
		if (!more)
			return;
		order->run = more;
		order->room = room;
	}
	if (order->count < order->room)
		order->run[order->count++] = (struct region_run){.first = page, .count = count};
}

/* --- from the file ---------------------------------------------------------------------------- */

static int order_check(struct region_order_work *work, FILE *file)
{
	struct order_head head;
	if (fread(&head, sizeof(head), 1, file) != 1 || head.magic != ORDER_MAGIC ||
		head.volume != work->id || head.count > ORDER_RUNS_MAX)
		return -EILSEQ;
	work->list = calloc(head.count + 1, sizeof(*work->list));
	if (!work->list)
		return -ENOMEM;
	work->count = head.count;
	return fread(work->list, sizeof(*work->list), head.count, file) == head.count ? 0 : -EILSEQ;
}

static void order_read(struct worker_item *item)
{
	struct region_order_work *work = (struct region_order_work *)item;
	FILE *file = fopen(work->path, "re");
	work->error = file ? order_check(work, file) : -errno;
	if (file)
		fclose(file);
}

/* Those of before need not be noted again. */
static void order_mark(struct region_volume *volume, const struct region_run *run)
{
	uint64_t end = run->first + run->count;
	end = end < volume->high ? end : volume->high;
	for (uint64_t page = run->first; page >= volume->low && page < end; page++)
		region_volume_set(volume, page, region_state(volume, page) | REGION_NOTED);
}

/* One list behind the other, as much as fits; NULL: no memory. */
static struct region_run *order_concat(
	const struct region_order_work *before, const struct region_run *after, uint32_t *count)
{
	uint32_t room = ORDER_RUNS_MAX - before->count, more = *count < room ? *count : room;
	struct region_run *all = calloc((size_t)before->count + more + 1, sizeof(*all));
	if (!all)
		return NULL;
	memcpy(all, before->list, before->count * sizeof(*all));
	if (more)
		memcpy(all + before->count, after, more * sizeof(*all));
	*count = before->count + more;
	return all;
}

/* Before what was touched while the file was read. Pages beyond the volume, or twice, are of no
   meaning: whoever fetches looks. */
static void order_join(struct region_volume *volume, const struct region_order_work *work)
{
	struct region_order *order = &volume->order;
	struct region_run *all = order_concat(work, order->run, &order->count);
	if (!all)
		return;
	for (uint32_t i = 0; i < work->count; i++)
		order_mark(volume, &all[i]);
	free(order->run);
	order->run = all;
	order->room = order->count;
	order->replays = work->count;
}

static void order_has_read(struct region_order_work *work)
{
	struct region_volume *volume = region_volume_find(work->regions, work->id);
	if (work->error && work->error != -ENOENT)
		log_warning(REGION_ROOM, "%s: '%s' is left aside: %s", work->regions->peer->name,
			work->path, strerror(-work->error));
	bool ours = volume && volume->order.loading == work; /* it may have been opened anew */
	if (ours && !work->error)
		order_join(volume, work);
	if (ours)
		volume->order.loading = NULL;
	work->regions->again = true;
}

void region_order_load(struct region_volume *volume)
{
	struct regions *regions = volume->regions;
	struct region_order_work *work =
		order_is_kept(regions) ? order_work(regions, volume->book->volume) : NULL;
	volume->order.loading = work;
	if (work)
		order_begin(work, order_read, order_has_read);
}

bool region_order_next(struct region_volume *volume, uint64_t *first, uint64_t *end)
{
	struct region_order *order = &volume->order;
	for (; order->at < order->replays; order->at++, order->done = 0) {
		const struct region_run *run = &order->run[order->at];
		uint64_t to = run->first + run->count;
		*first = run->first + order->done;
		*end = to < volume->high ? to : volume->high;
		if (*first >= volume->low && *first < *end)
			return true;
	}
	return false;
}

void region_order_went(struct region_volume *volume, uint64_t to)
{
	struct region_order *order = &volume->order;
	order->done = (uint32_t)(to - order->run[order->at].first);
}

void region_order_stop(struct region_volume *volume) { volume->order.at = volume->order.replays; }

/* --- to the file ------------------------------------------------------------------------------ */

/* The last program had left before they were read. */
static void order_prepend(struct region_order_work *work)
{
	struct region_order_work before = {.id = work->id};
	FILE *file = fopen(work->path, "re");
	int error = file ? order_check(&before, file) : -errno;
	if (file)
		fclose(file);
	struct region_run *all = error ? NULL : order_concat(&before, work->list, &work->count);
	if (all) {
		free(work->list);
		work->list = all;
	}
	free(before.list);
}

static void order_write(struct worker_item *item)
{
	struct region_order_work *work = (struct region_order_work *)item;
	if (work->joins)
		order_prepend(work);
	const struct order_head head = {
		.magic = ORDER_MAGIC, .volume = work->id, .count = work->count};
	FILE *file = fopen(work->other, "we");
	if (!file) {
		work->error = -errno;
		return;
	}
	bool good = fwrite(&head, sizeof(head), 1, file) == 1 &&
		    fwrite(work->list, sizeof(*work->list), work->count, file) == work->count;
	good = fclose(file) == 0 && good && rename(work->other, work->path) == 0;
	work->error = good ? 0 : -errno;
}

static void order_has_written(struct region_order_work *work)
{
	if (work->error)
		log_warning(REGION_ROOM, "%s: '%s' cannot be written: %s",
			work->regions->peer->name, work->path, strerror(-work->error));
}

void region_order_save(struct region_volume *volume)
{
	struct regions *regions = volume->regions;
	struct region_order *order = &volume->order;
	struct region_order_work *work =
		order->changed ? order_work(regions, volume->book->volume) : NULL;
	if (work) {
		work->list = order->run;
		work->count = order->count;
		work->joins = order->loading != NULL;
		order->run = NULL;
		order_begin(work, order_write, order_has_written);
	}
	free(order->run);
	*order = (struct region_order){.run = NULL};
}
