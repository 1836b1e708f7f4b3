/* SPDX-License-Identifier: Apache-2.0 */
/* Who is in the segment, and whether they still live. */
#include <base/clock.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xseg/bell.h>
#include <xseg/registry.h>

/* 0 and its start time; -ESRCH: it is gone; -EAGAIN: it lives, as far as can be seen. */
static int process_look(pid_t pid, uint64_t *start_time)
{
	char path[64], text[1024];
	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t got = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
	int error = got < 0 ? errno : 0;
	if (fd >= 0)
		close(fd);
	/* no descriptor, no right, or hidden from us (hidepid): that is not dead */
	if (error != 0 && error != ENOENT && error != ESRCH)
		return -EAGAIN;
	if (error != 0)
		return kill(pid, 0) == 0 || errno == EPERM ? -EAGAIN : -ESRCH;
	text[got] = '\0';
	/* the command may hold anything, so count fields from its closing bracket */
	char *at = strrchr(text, ')');
	if (!at || at[1] != ' ')
		return -EAGAIN;
	bool zombie = at[2] == 'Z' || at[2] == 'X';
	for (int field = 2; field < 20 && at; field++)
		at = strchr(at + 1, ' ');
	/* a zombie has left, but not while a thread of it is still writing somewhere */
	if (at && zombie && strtoul(at + 1, NULL, 10) <= 1)
		return -ESRCH;
	for (int field = 20; field < 22 && at; field++)
		at = strchr(at + 1, ' ');
	if (!at)
		return -EAGAIN;
	*start_time = strtoull(at + 1, NULL, 10);
	return 0;
}

uint64_t xseg_process_start_time(pid_t pid)
{
	uint64_t start_time;
	return process_look(pid, &start_time) == 0 ? start_time : 0;
}

/* start_time 0: it is joining right now; its pid is enough to wait for it. */
static bool process_lives(pid_t pid, uint64_t start_time)
{
	uint64_t now = 0;
	int error = pid > 0 ? process_look(pid, &now) : -ESRCH;
	return error == -EAGAIN || (error == 0 && (start_time == 0 || start_time == now));
}

static uint16_t next_epoch(const struct xseg *seg)
{
	uint16_t epoch;
	do
		epoch = (uint16_t)(atomic_fetch_add(&seg->super->epoch, 1) + 1);
	while (epoch == 0);
	atomic_fetch_add(&seg->super->generation, 1);
	return epoch;
}

/* Moves an entry that is free, or whose process is gone, to JOINING by us. */
static bool claim(_Atomic uint64_t *place, const _Atomic uint64_t *start_time, uint16_t epoch)
{
	uint64_t word = atomic_load_explicit(place, memory_order_acquire);
	unsigned life = xseg_life_of(word);
	/* read after the word it belongs to; if another claims meanwhile, the CAS will tell */
	uint64_t started = life == XSEG_LIFE_JOINING ? 0 : atomic_load(start_time);
	if (life != XSEG_LIFE_FREE && process_lives((pid_t)xseg_owner_of(word), started))
		return false;
	return atomic_compare_exchange_strong_explicit(place, &word,
		xseg_life_word(XSEG_LIFE_JOINING, epoch, (uint32_t)getpid()), memory_order_acq_rel,
		memory_order_relaxed);
}

int xseg_lane_claim(const struct xseg *seg, uint32_t *lane, uint16_t *epoch)
{
	*epoch = next_epoch(seg);
	for (uint32_t i = 0; i < seg->lane_count; i++) {
		struct xseg_lane_record *record = &seg->lanes[i];
		/* what a dead lane still owns waits to be reaped under its epoch; ours is new */
		if (!claim(&record->word, &record->start_time, *epoch))
			continue;
		record->start_time = xseg_process_start_time(getpid());
		xseg_bell_init(seg, i);
		atomic_store(&record->heartbeat, 0);
		atomic_store(&record->busy_ns, 0);
		atomic_store(&record->asleep_ns, 0);
		atomic_store(&record->sleeps, 0);
		atomic_store_explicit(&record->word,
			xseg_life_word(XSEG_LIFE_ALIVE, *epoch, (uint32_t)getpid()),
			memory_order_release);
		*lane = i;
		return 0;
	}
	return -ENOSPC;
}

void xseg_lane_release(const struct xseg *seg, uint32_t lane)
{
	atomic_store_explicit(&seg->lanes[lane].word, 0, memory_order_release);
	atomic_fetch_add(&seg->super->generation, 1);
}

bool xseg_lane_alive(const struct xseg *seg, uint32_t lane, uint16_t epoch)
{
	if (lane >= XSEG_LANES_MAX)
		return false;
	const struct xseg_lane_record *record = &seg->lanes[lane];
	uint64_t word = atomic_load_explicit(&record->word, memory_order_acquire);
	unsigned life = xseg_life_of(word);
	if (xseg_epoch_of(word) != epoch || life == XSEG_LIFE_FREE || life == XSEG_LIFE_DEAD)
		return false;
	return process_lives(
		(pid_t)xseg_owner_of(word), life == XSEG_LIFE_JOINING ? 0 : record->start_time);
}

/* A record may be looked at while its next owner writes it: byte by byte, each of them whole. */
static void text_peek(char out[NAME_LENGTH_MAX + 1], const char *text)
{
	for (unsigned i = 0; i < NAME_LENGTH_MAX; i++)
		out[i] = xseg_peek(text[i]);
	out[NAME_LENGTH_MAX] = 0;
}

static void text_poke(char *text, const char *value)
{
	size_t length = strlen(value);
	for (unsigned i = 0; i <= NAME_LENGTH_MAX; i++)
		xseg_poke(text[i], i < length ? value[i] : 0);
}

bool xseg_peer_view(const struct xseg *seg, uint32_t peer, struct xseg_peer_view *view)
{
	if (peer >= XSEG_PEERS_MAX)
		return false;
	const struct xseg_peer_record *record = &seg->peers[peer];
	uint64_t word = atomic_load_explicit(&record->word, memory_order_acquire);
	if (xseg_life_of(word) == XSEG_LIFE_FREE || xseg_life_of(word) > XSEG_LIFE_DEAD)
		return false;
	memset(view, 0, sizeof(*view));
	view->index = peer;
	view->life = (enum xseg_life)xseg_life_of(word);
	view->pid = (pid_t)xseg_owner_of(word);
	view->epoch = (uint16_t)xseg_epoch_of(word);
	view->lanes = xseg_peek(record->lanes);
	view->joined_ns = xseg_peek(record->joined_ns);
	text_peek(view->name, record->name);
	text_peek(view->role, record->role);
	if (!process_lives(view->pid, view->life == XSEG_LIFE_JOINING ? 0 : record->start_time))
		view->life = XSEG_LIFE_DEAD;
	return true;
}

int xseg_peer_find(const struct xseg *seg, const char *name, struct xseg_peer_view *view)
{
	for (uint32_t i = 0; i < XSEG_PEERS_MAX; i++)
		if (xseg_peer_view(seg, i, view) && view->life != XSEG_LIFE_JOINING &&
			strcmp(view->name, name) == 0)
			return 0;
	return -ENOENT;
}

/*
 * The entry of that name whose process is dead, else any free or dead one. A name is
 * taken over where it stood, so its port and edges keep their meaning.
 */
static int pick_peer(const struct xseg *seg, const char *name, uint32_t *peer)
{
	struct xseg_peer_view view;
	if (xseg_peer_find(seg, name, &view) == 0) {
		*peer = view.index;
		return view.life == XSEG_LIFE_DEAD ? 0 : -EEXIST;
	}
	for (uint32_t i = 0; i < XSEG_PEERS_MAX; i++)
		if (!xseg_peer_view(seg, i, &view) || view.life == XSEG_LIFE_DEAD) {
			*peer = i;
			return 0;
		}
	return -ENOSPC;
}

/* Lives under this name; one that is joining, once it has written it. */
static bool rival(
	const struct xseg *seg, uint32_t peer, const char *name, struct xseg_peer_view *view)
{
	const struct xseg_peer_record *record = &seg->peers[peer];
	uint32_t named = atomic_load_explicit(&record->named, memory_order_acquire);
	return xseg_peer_view(seg, peer, view) && view->life != XSEG_LIFE_DEAD &&
	       (view->life != XSEG_LIFE_JOINING || named == view->epoch) &&
	       strcmp(view->name, name) == 0;
}

/*
 * Of several that join with one name at once the lowest stays. Each writes its name before it
 * looks, so of two at least one sees the other; a lower one waits until a higher has given way,
 * or turns out to have been first.
 */
static bool lost_race(const struct xseg *seg, const char *name, uint32_t mine)
{
	struct xseg_peer_view view;
	atomic_thread_fence(memory_order_seq_cst);
	for (uint32_t i = 0; i < XSEG_PEERS_MAX; i++)
		while (i != mine && rival(seg, i, name, &view)) {
			if (view.life != XSEG_LIFE_JOINING || i < mine)
				return true;
			sched_yield();
		}
	return false;
}

int xseg_peer_join(const struct xseg *seg, const char *name, const char *role, uint64_t lanes,
	uint32_t *peer, uint16_t *epoch)
{
	if (!name_check(name) || !name_check(role))
		return -EINVAL;
	*epoch = next_epoch(seg);
	for (;;) {
		int ret = pick_peer(seg, name, peer);
		if (ret)
			return ret;
		struct xseg_peer_record *record = &seg->peers[*peer];
		if (!claim(&record->word, &record->start_time, *epoch))
			continue;
		record->start_time = xseg_process_start_time(getpid());
		xseg_poke(record->lanes, lanes);
		xseg_poke(record->joined_ns, clock_now_ns());
		if (strncmp(record->name, name, sizeof(record->name)) != 0)
			atomic_store(&record->log_level, 0); /* a successor keeps it */
		text_poke(record->name, name);
		text_poke(record->role, role);
		atomic_store_explicit(&record->named, *epoch, memory_order_release);
		if (lost_race(seg, name, *peer)) {
			atomic_store_explicit(&record->word, 0, memory_order_release);
			return -EEXIST;
		}
		atomic_store_explicit(&record->word,
			xseg_life_word(XSEG_LIFE_ALIVE, *epoch, (uint32_t)getpid()),
			memory_order_release);
		return 0;
	}
}

void xseg_peer_draining(const struct xseg *seg, uint32_t peer)
{
	_Atomic uint64_t *place = &seg->peers[peer].word;
	uint64_t word = atomic_load_explicit(place, memory_order_acquire);
	atomic_store_explicit(place,
		xseg_life_word(XSEG_LIFE_DRAINING, xseg_epoch_of(word), xseg_owner_of(word)),
		memory_order_release);
}

void xseg_peer_leave(const struct xseg *seg, uint32_t peer)
{
	atomic_store_explicit(&seg->peers[peer].word, 0, memory_order_release);
	atomic_fetch_add(&seg->super->generation, 1);
}
