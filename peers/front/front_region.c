/* SPDX-License-Identifier: Apache-2.0 */
/* The region front: volumes as memory of programs. Its options, its turn, its end. */
#include <errno.h>
#include <event2/event.h>
#include <linux/magic.h>
#include <peer/notify.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statfs.h>
#include <unistd.h>

#include "peers/front/regions.h"

#define PAUSE_NS 250000000u /* out of descriptors */
#define HOLD_NS_MAX 60000000000u
#define HOLD_FOREVER_NS (1ull << 62)

static const struct peer_option region_option_table[] = {
	OPTION_LIST(struct regions_options, listen, "listen",
		.help = "address: unix:PATH, systemd or systemd:NAME; none given: where programs "
			"look for it, the file *region* in the segment's run folder"),
	OPTION_LIST(struct regions_options, volumes, "volume", .max = VOLUME_NAME_LENGTH_MAX,
		.help = "only this volume, with its snapshots; none given: all"),
	OPTION_BOOL(struct regions_options, read_only, "read-only", .initial = "no",
		.help = "programs can only read, or write to pages of their own"),
	OPTION_SIZE(struct regions_options, memory, "memory", .min = 1u << 20, .initial = "1GiB",
		.help = "memory for pages of all volumes; when it is full the oldest go back to "
			"their volume"),
	OPTION_TEXT(struct regions_options, orders, "orders", .max = PATH_LENGTH_MAX - 1,
		.help = "folder for files that say in which order pages of a volume were touched; "
			"who opens it next finds them fetched so. Empty: not kept"),
	OPTION_TEXT(struct regions_options, socket_mode, "socket-mode", .initial = "0660",
		.help = "mode of the socket, octal"),
	OPTION_TEXT(struct regions_options, socket_group, "socket-group",
		.help = "group of the socket, by name or number; empty: the process's"),
	OPTION_END,
};

static const struct xseg_counter region_counters[REGION_COUNTERS + 1] = {
	[REGION_COUNT_FAULTS] = {"region_faults", "", "touches that had to wait"},
	[REGION_COUNT_FETCHED] = {"region_fetched", "", "pages read from volumes"},
	[REGION_COUNT_AHEAD] = {"region_ahead", "", "of them: before they were touched"},
	[REGION_COUNT_WRITTEN] = {"region_written", "", "pages written to volumes"},
	[REGION_COUNT_EVICTED] = {"region_evicted", "", "pages that went for others"},
	[REGION_COUNT_SYNCS] = {"region_syncs", "", "region_sync() asked for"},
	[REGION_COUNT_POISONED] = {"region_poisoned", "",
		"pages that could not be read: a SIGBUS to whoever touches them"},
	[REGION_COUNT_RESIDENT] = {"region_resident", "now", "bytes of pages in memory now"},
	[REGION_COUNT_DIRTY] = {"region_dirty", "now", "bytes of them not yet at their volume"},
	[REGION_COUNT_OPENS] = {"region_opens", "", "connections"},
	[REGION_COUNT_CLOSES] = {"region_closes", "", "connections that have ended"},
	[REGION_COUNT_ADOPTED] = {"region_adopted", "",
		"volumes whose memory an earlier process has left"},
	[REGION_COUNT_WAITS] = {"region_waits", "", "times a read waited for pages or slots"},
};

/* --- the process ----------------------------------------------------------------- */

static int region_listen(struct peer *peer, char *why, size_t size)
{
	struct regions *regions = regions_of(peer);
	const struct regions_options *options = regions->options;
	char path[PATH_LENGTH_MAX] = "unix:", *usual = path;
	const struct peer_list one = {.item = &usual, .count = 1};
	struct front_rights rights;
	regions->listeners.owner = peer->name;
	int error = front_rights_parse(
		"socket", options->socket_mode, options->socket_group, &rights, why, size);
	if (error)
		return error;
	snprintf(path + 5, sizeof(path) - 5, "%s/%s/%s", path_run_dir(), peer_segment(peer)->name,
		REGION_WIRE_SOCKET);
	error = front_listen_open(&regions->listeners,
		options->listen.count ? &options->listen : &one, &rights, why, size);
	if (error)
		front_listen_close(&regions->listeners);
	else
		front_fdstore_put(&regions->listeners);
	return error;
}

static void region_enter(struct peer *peer, int fd, const struct front_listener *listener)
{
	(void)listener;
	region_attach_create(regions_of(peer), fd);
}

/* What userfaultfd(2) knows to serve as shared memory. */
static bool region_is_memory(const char *path)
{
	struct statfs fs;
	return statfs(path, &fs) == 0 && fs.f_type == TMPFS_MAGIC;
}

static int region_begin(struct peer *peer, char *why, size_t size)
{
	struct regions *regions = regions_of(peer);
	if (!region_is_memory(path_shm_dir())) {
		snprintf(
			why, size, "'%s', where the memory would lie, is no tmpfs", path_shm_dir());
		return -ENOTSUP;
	}
	if (peer->shards > 1) {
		snprintf(why, size,
			"the process has %u lanes: give this peer one of its own, with one",
			peer->shards);
		return -EINVAL;
	}
	const char *orders = regions->options->orders;
	if (orders && *orders && access(orders, W_OK | X_OK)) {
		snprintf(why, size, "orders=%s: %s", orders, strerror(errno));
		return -errno;
	}
	regions->base = peer_event_base(peer);
	if (!regions->base) {
		snprintf(why, size, "no event loop for sockets");
		return -ENOMEM;
	}
	int error = region_listen(peer, why, size);
	if (error)
		return error;
	regions->door.peer = peer;
	regions->door.listeners = &regions->listeners;
	regions->door.enter = region_enter;
	return front_door_start(&regions->door, regions->base);
}

static int region_start(struct peer *peer, char *why, size_t size)
{
	struct regions *regions = regions_of(peer);
	regions->peer = peer;
	regions->options = peer->options;
	regions->limit = regions->options->memory / XSEG_PAGE;
	TAILQ_INIT(&regions->list);
	TAILQ_INIT(&regions->attaches);
	STAILQ_INIT(&regions->orders);
	front_clients_init(&regions->clients);
	front_volumes_init(&regions->volumes, peer, region_attach_busy);
	int error = region_begin(peer, why, size);
	if (!error)
		region_volume_leftovers(regions, region_attach_leftover);
	return error;
}

static void region_finish(struct peer *peer)
{
	struct regions *regions = regions_of(peer);
	must(TAILQ_EMPTY(&regions->attaches));
	front_door_stop(&regions->door);
}

/* --- its end ----------------------------------------------------------------------- */

static void region_end_all(struct regions *regions)
{
	struct region_attach *attach, *next;
	regions->leaves = true;
	for (attach = TAILQ_FIRST(&regions->attaches); attach; attach = next) {
		next = TAILQ_NEXT(attach, link);
		region_attach_end(attach, NULL);
	}
}

/*
 * For a successor all stays as it is. Else the volumes get what they have not yet; programs
 * that want to write meanwhile wait, and go on when there is a front again.
 */
static void region_stop(struct peer *peer)
{
	struct regions *regions = regions_of(peer);
	struct region_volume *volume;
	atomic_store(&regions->listeners.stopping, true);
	front_door_stop(&regions->door);
	regions->ending = regions->again = true;
	if (notify_handover())
		return;
	TAILQ_FOREACH (volume, &regions->list, link) {
		region_fault_hold(volume, HOLD_FOREVER_NS);
		region_write_all(volume, true);
	}
}

/*
 * Anybody may have a volume until we are back. So what was dirty is written, and nothing stays
 * here: programs will fetch it anew, in whatever term. What a read has brought meanwhile goes, too.
 */
static bool region_has_left(struct region_volume *volume)
{
	if (!TAILQ_EMPTY(&volume->tasks) || volume->fills)
		return false;
	if (volume->resident && !volume->dirty && !notify_handover())
		return !region_write_all(volume, true);
	if (!volume->resident)
		volume->book->term = 0;
	return true;
}

static void region_ends(struct regions *regions)
{
	struct region_volume *volume;
	TAILQ_FOREACH (volume, &regions->list, link)
		if (!region_has_left(volume))
			return;
	regions->ending = false;
	region_end_all(regions);
}

static bool region_idle(struct peer *peer)
{
	const struct regions *regions = regions_of(peer);
	return !regions->ending && TAILQ_EMPTY(&regions->attaches) && !regions->volumes.reopening;
}

/* --- its turn ----------------------------------------------------------------------- */

static bool region_poll(struct peer *peer)
{
	struct regions *regions = regions_of(peer);
	struct region_attach *attach, *next;
	struct region_volume *volume;
	bool moved = false;
	regions->again = false;
	front_volumes_reopen(&regions->volumes);
	for (attach = TAILQ_FIRST(&regions->attaches); attach; attach = next) {
		next = TAILQ_NEXT(attach, link);
		if (attach->hot && !regions->ending)
			moved |= region_fault_turn(attach);
		moved |= region_attach_turn(attach);
	}
	moved |= region_fill_turn(regions);
	TAILQ_FOREACH (volume, &regions->list, link) {
		if (unlikely(volume->held_ns) && peer_now_ns(peer) >= volume->held_ns)
			region_fault_hold(volume, 0);
		moved |= region_write_turn(volume);
	}
	if (unlikely(regions->ending))
		region_ends(regions);
	if (unlikely(regions->door.paused))
		front_door_resume(&regions->door);
	return moved;
}

static bool region_sleep(struct peer *peer)
{
	struct regions *regions = regions_of(peer);
	struct region_attach *attach;
	const struct region_volume *volume;
	uint64_t now = peer_now_ns(peer);
	if (regions->again || regions->volumes.ended)
		return false;
	TAILQ_FOREACH (attach, &regions->attaches, link) {
		attach->hot = false;
		if (attach->state == REGION_ENDING || attach->fd < 0)
			peer_wake_at(peer, now + REGION_LOOK_NS);
	}
	TAILQ_FOREACH (volume, &regions->list, link)
		if (volume->held_ns)
			peer_wake_at(peer, volume->held_ns);
	if (regions->fills && regions->evictable_ns > now)
		peer_wake_at(peer, regions->evictable_ns);
	if (regions->door.paused)
		peer_wake_at(peer, now + PAUSE_NS);
	return true;
}

static void region_dump(struct peer *peer, FILE *out)
{
	const struct regions *regions = regions_of(peer);
	const struct region_attach *attach;
	const struct region_volume *volume;
	front_door_dump(&regions->door, out);
	TAILQ_FOREACH (volume, &regions->list, link)
		fprintf(out,
			"  volume %016llx: %llu pages in memory, %llu dirty, %u reads, %u writes\n",
			(unsigned long long)volume->front.id, (unsigned long long)volume->resident,
			(unsigned long long)volume->dirty, volume->fills, volume->writes);
	TAILQ_FOREACH (attach, &regions->attaches, link)
		region_attach_dump(attach, out);
}

/* --- what can be asked of us ---------------------------------------------------------- */

static void region_settle(struct regions *regions, struct job *job)
{
	struct region_volume *volume = region_volume_find(regions, job->key.volume);
	struct region_task *task = volume ? region_write_all(volume, false) : NULL;
	if (task) {
		task->job = job;
		if (job->arg1)
			region_fault_hold(
				volume, job->arg1 < HOLD_NS_MAX ? job->arg1 : HOLD_NS_MAX);
	} else if (volume) {
		job_fail(job, -EBUSY);
	} else {
		job_complete(job, 0);
	}
}

static void region_go(struct regions *regions, struct job *job)
{
	struct region_volume *volume = region_volume_find(regions, job->key.volume);
	if (volume)
		region_fault_hold(volume, 0);
	job_complete(job, 0);
}

static void region_control(struct peer *peer, struct job *job)
{
	struct regions *regions = regions_of(peer);
	switch (job->arg0) {
	case FRONT_ADDRESSES: job_fail(job, -ENOENT); break; /* none that a volume has */
	case FRONT_SETTLE: region_settle(regions, job); break;
	case FRONT_GO: region_go(regions, job); break;
	case FRONT_CLIENTS: front_clients_answer(&regions->clients, job); break;
	case FRONT_CHECK: front_check_answer(peer, job, &regions->options->volumes); break;
	default: job_fail(job, -EOPNOTSUPP);
	}
}

static const char *const region_edges[] = {"volume", NULL};

static const char region_description[] =
	"Gives volumes to programs as memory: a program that is linked with *libxseg-region* calls "
	"*region_open*(), and a page is fetched when it is touched for the first time. The pages "
	"of a "
	"volume lie in one file beside the segment, which all its programs share; what they write "
	"goes to the volume when one calls *region_sync*(), when *memory* is full, and when the "
	"last "
	"of them has closed it or has died.\n\n"
	"Neither the death of a program nor that of this process loses what was written; programs "
	"meet a pause until there is a successor. Only when the host stops what was not synced is "
	"lost. When it is stopped for good what is dirty is written, and programs wait until it is "
	"started again.\n\n"
	"Memory is kept until it is needed for other pages. What somebody else writes to a volume "
	"over another front meanwhile is not seen by programs that have the page already: they "
	"call "
	"*region_advise*() with *REGION_DROP*.\n\n"
	"Whoever may connect to the socket may read and write the volumes; see *socket-mode*, "
	"*socket-group*, *volume* and *read-only*. Needs Linux 6.4. A program that is not root "
	"needs "
	"access to */dev/userfaultfd*, or its system calls (as *read*(2)) cannot be given memory "
	"that "
	"is not there yet.";

static const struct peer_ops region_ops = {
	.name = "front_region",
	.summary = "gives volumes to programs as memory",
	.description = region_description,
	.options = region_option_table,
	.options_size = sizeof(struct regions_options),
	.state_size = sizeof(struct regions),
	.edges = region_edges,
	.serves = "",
	.counters = region_counters,
	.start = region_start,
	.finish = region_finish,
	.stop = region_stop,
	.idle = region_idle,
	.poll = region_poll,
	.sleep = region_sleep,
	.dump = region_dump,
	.on = {[XSEG_OP_CONTROL] = region_control},
};
PEER_MODULE(region_ops);
