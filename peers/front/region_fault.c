/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Faults: what the kernel says of programs' pages, and what it is told. All goes through a
 * program's own userfaultfd, which it has handed to us, so it works on that program's memory.
 */
#include <base/crash.h>
#include <errno.h>
#include <event2/event.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "peers/front/regions.h"

#define FAULTS_MAX 16u /* read at once */
#define TRIES_MAX 100u
#define MAP_AROUND 16u /* pages that are mapped with one that is there, at most */

/* Newer than the headers of Debian 12: Linux 6.6. */
struct fault_poison {
	struct uffdio_range range;
	__u64 mode;
	__s64 updated;
};
#define FAULT_POISON _IOWR(UFFDIO, 0x08, struct fault_poison)

/* --- what the kernel is told ------------------------------------------------------------ */

static uint64_t fault_address(const struct region_attach *attach, uint64_t page)
{
	return attach->address + (page - attach->first) * XSEG_PAGE;
}

/* As much of [first, first + count) as the program has mapped: pages, 0: none. */
static uint64_t fault_clip(const struct region_attach *attach, uint64_t *first, uint64_t count)
{
	uint64_t end = *first + count, last = attach->first + attach->pages;
	if (attach->fault_fd < 0)
		return 0;
	*first = *first > attach->first ? *first : attach->first;
	end = end < last ? end : last;
	return *first < end ? end - *first : 0;
}

/* The program's memory is on its way out, or is not what it was any more. */
static void fault_failed(struct region_attach *attach, int error)
{
	if (error != ESRCH)
		region_attach_end(attach, "is cut off: its memory is not mapped as it was");
}

/* Only a program that has asked to be told of more than faults, and does not listen, is changing
   for ever. */
static bool fault_may_try(int error, unsigned *tries)
{
	return (error == EAGAIN || error == EINTR) && ++*tries < TRIES_MAX;
}

void region_fault_wake(struct region_attach *attach, uint64_t first, uint64_t count)
{
	count = fault_clip(attach, &first, count);
	struct uffdio_range range = {
		.start = fault_address(attach, first), .len = count * XSEG_PAGE};
	if (count)
		ioctl(attach->fault_fd, UFFDIO_WAKE, &range);
}

/* protected: nobody writes; else: who waits for that goes on. */
static void fault_protection(struct region_attach *attach, uint64_t first, uint64_t count, bool on)
{
	struct uffdio_writeprotect change = {
		.range = {.start = fault_address(attach, first), .len = count * XSEG_PAGE},
		.mode = on ? UFFDIO_WRITEPROTECT_MODE_WP : 0};
	unsigned tries = 0;
	while (ioctl(attach->fault_fd, UFFDIO_WRITEPROTECT, &change)) {
		if (fault_may_try(errno, &tries))
			continue;
		fault_failed(attach, errno);
		return;
	}
}

void region_fault_protect(struct region_volume *volume, uint64_t first, uint64_t count)
{
	struct region_attach *attach, *next;
	for (attach = TAILQ_FIRST(&volume->attached); attach; attach = next) {
		next = TAILQ_NEXT(attach, volume_link);
		uint64_t from = first,
			 pages = attach->shared ? fault_clip(attach, &from, count) : 0;
		if (pages)
			fault_protection(attach, from, pages, true);
	}
}

/* Maps what is in the memory file; pages that are mapped already are left as they are. */
static void fault_continue(
	struct region_attach *attach, uint64_t first, uint64_t count, bool protect)
{
	unsigned tries = 0;
	for (uint64_t page = first, end = first + count; page < end;) {
		struct uffdio_continue map = {.range = {.start = fault_address(attach, page),
						      .len = (end - page) * XSEG_PAGE},
			.mode = protect ? REGION_WIRE_MODE_CONTINUE_WP : 0};
		int error = ioctl(attach->fault_fd, UFFDIO_CONTINUE, &map) ? errno : 0;
		if (!error)
			return;
		if (map.mapped > 0)
			page += (uint64_t)map.mapped / XSEG_PAGE;
		/* somebody has cut it out of the file: it is fetched when it is touched again */
		if (error == EFAULT && region_state(attach->volume, page) & REGION_STATE)
			region_volume_set(attach->volume, page, REGION_ABSENT);
		if (error == EEXIST || error == EFAULT)
			region_fault_wake(attach, page++, 1);
		else if (!fault_may_try(error, &tries)) {
			fault_failed(attach, error);
			return;
		}
	}
}

static void fault_map_one(struct region_attach *attach, uint64_t first, uint64_t count,
	const struct region_attach *writer)
{
	count = fault_clip(attach, &first, count);
	if (!count)
		return;
	if (!attach->shared) {
		region_fault_wake(attach, first, count);
		return;
	}
	if (attach == writer) {
		fault_continue(attach, first++, 1, false);
		count--;
	}
	if (count)
		fault_continue(attach, first, count, true);
}

void region_fault_map(struct region_volume *volume, uint64_t first, uint64_t count,
	const struct region_attach *writer)
{
	struct region_attach *attach, *next;
	for (attach = TAILQ_FIRST(&volume->attached); attach; attach = next) {
		next = TAILQ_NEXT(attach, volume_link);
		fault_map_one(attach, first, count, writer);
	}
}

static void fault_poison_one(struct region_attach *attach, uint64_t first, uint64_t count)
{
	count = fault_clip(attach, &first, count);
	struct fault_poison poison = {
		.range = {.start = fault_address(attach, first), .len = count * XSEG_PAGE}};
	/* where the kernel cannot, whoever waits tries again */
	if (count && ioctl(attach->fault_fd, FAULT_POISON, &poison))
		region_fault_wake(attach, first, count);
}

void region_fault_poison(struct region_volume *volume, uint64_t first, uint64_t count)
{
	struct region_attach *attach;
	TAILQ_FOREACH (attach, &volume->attached, volume_link)
		fault_poison_one(attach, first, count);
	peer_count(volume->regions->peer, REGION_COUNT_POISONED, count);
}

/* --- what the kernel says ---------------------------------------------------------------- */

void region_fault_hold(struct region_volume *volume, uint64_t ns)
{
	struct region_attach *attach;
	bool held = volume->held_ns != 0;
	volume->held_ns = ns ? peer_now_ns(volume->regions->peer) + ns : 0;
	if (ns || !held)
		return;
	TAILQ_FOREACH (attach, &volume->attached, volume_link)
		region_fault_wake(attach, attach->first, attach->pages);
}

/* A write to a page that is protected, or not mapped: from here on the volume does not have it. */
static void fault_dirty(struct region_volume *volume, uint64_t page)
{
	unsigned state = region_state(volume, page);
	if (!(state & REGION_STATE))
		return;
	unsigned changed = state & REGION_WRITING ? REGION_WRITING | REGION_CHANGED : 0u;
	region_volume_set(volume, page, (state & REGION_ASIDE) | REGION_DIRTY | changed);
	crash_point("front_region.page.dirty");
}

/* Written to upwards, page by page: the next ones are given up to it at once, twice as many each
   time. At its end so many pages are written for nothing. */
static uint64_t fault_write_ahead(struct region_attach *attach, uint64_t page)
{
	const struct region_volume *volume = attach->volume;
	uint64_t end = page + 1, limit = attach->first + attach->pages;
	if (attach->random || page != attach->write_next)
		attach->write_ahead = 1;
	else if (attach->write_ahead < REGION_RUN)
		attach->write_ahead *= 2;
	limit = limit < page + attach->write_ahead ? limit : page + attach->write_ahead;
	while (end < limit && (region_state(volume, end) & ~REGION_ASIDE) == REGION_CLEAN)
		end++;
	attach->write_next = end;
	return end - page;
}

static void fault_write(struct region_attach *attach, uint64_t page)
{
	struct region_volume *volume = attach->volume;
	if (volume->held_ns)
		return;
	if (!(region_state(volume, page) & REGION_STATE)) {
		region_fault_wake(attach, page, 1); /* it went meanwhile: touch it again */
		return;
	}
	uint64_t count = fault_write_ahead(attach, page);
	for (uint64_t at = page; at < page + count; at++)
		fault_dirty(volume, at);
	fault_protection(attach, page, count, false);
}

/* Pages from `page` on that are there and clean, so that they may be mapped with it. */
static uint64_t fault_around(const struct region_attach *attach, uint64_t page)
{
	uint64_t end = page + 1, limit = attach->first + attach->pages;
	limit = limit < page + MAP_AROUND ? limit : page + MAP_AROUND;
	while (end < limit && (region_state(attach->volume, end) & ~REGION_ASIDE) == REGION_CLEAN)
		end++;
	return end - page;
}

/* It is in the memory file, and not in this program's tables. */
static void fault_minor(struct region_attach *attach, uint64_t page, bool writes)
{
	unsigned state = region_state(attach->volume, page);
	const bool held = attach->volume->held_ns != 0;
	if (!attach->shared) {
		region_fault_wake(attach, page, 1);
	} else if (!held && (writes || (state & ~REGION_ASIDE) == REGION_DIRTY)) {
		fault_dirty(attach->volume, page);
		fault_continue(attach, page, 1, false);
	} else {
		fault_continue(attach, page, fault_around(attach, page), true);
	}
}

static void fault_missing(struct region_attach *attach, uint64_t page, bool writes)
{
	unsigned state = region_state(attach->volume, page);
	if (state & REGION_STATE)
		fault_minor(attach, page, writes);
	else
		region_fill_fault(attach, page, writes);
}

static void fault_take(struct region_attach *attach, const struct uffd_msg *message)
{
	if (message->event != UFFD_EVENT_PAGEFAULT)
		return;
	const uint64_t flags = message->arg.pagefault.flags;
	uint64_t offset = message->arg.pagefault.address - attach->address;
	uint64_t page = attach->first + offset / XSEG_PAGE;
	if (offset / XSEG_PAGE >= attach->pages)
		return;
	attach->faults++;
	peer_count(attach->regions->peer, REGION_COUNT_FAULTS, 1);
	if (flags & UFFD_PAGEFAULT_FLAG_WP)
		fault_write(attach, page);
	else
		fault_missing(attach, page, flags & UFFD_PAGEFAULT_FLAG_WRITE);
}

bool region_fault_turn(struct region_attach *attach)
{
	struct uffd_msg messages[FAULTS_MAX];
	bool moved = false;
	/* what we have no room for waits in the kernel */
	while (attach->fault_fd >= 0 && attach->state == REGION_SERVING &&
		region_fill_room(attach->regions)) {
		ssize_t got = read(attach->fault_fd, messages, sizeof(messages));
		if (got <= 0)
			break;
		for (size_t i = 0; i < (size_t)got / sizeof(messages[0]); i++)
			if (attach->fault_fd >= 0)
				fault_take(attach, &messages[i]);
		moved = true;
	}
	return moved;
}

static void fault_ready(evutil_socket_t fd, short what, void *context)
{
	struct region_attach *attach = context;
	(void)fd;
	(void)what;
	attach->hot = true;
	attach->regions->again = true;
}

/* Anything else could answer for ever, or never. */
static bool fault_is_one(int fd)
{
	char path[32], name[32] = "";
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	return readlink(path, name, sizeof(name) - 1) > 0 &&
	       !strcmp(name, "anon_inode:[userfaultfd]");
}

int region_fault_arm(struct region_attach *attach)
{
	int flags = fcntl(attach->fault_fd, F_GETFL);
	if (!fault_is_one(attach->fault_fd) || fcntl(attach->fault_fd, F_SETFL, flags | O_NONBLOCK))
		return -EINVAL;
	attach->fault_event = event_new(
		attach->regions->base, attach->fault_fd, EV_READ | EV_PERSIST, fault_ready, attach);
	if (!attach->fault_event || event_add(attach->fault_event, NULL))
		return -EINVAL;
	/* what a predecessor had read and not served is said again */
	region_fault_wake(attach, attach->first, attach->pages);
	return 0;
}
