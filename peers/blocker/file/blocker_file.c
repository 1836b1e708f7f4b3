/* SPDX-License-Identifier: Apache-2.0 */
/* The file blocker: objects as sparse files in a folder. */
#include <base/container.h>
#include <base/log.h>
#include <errno.h>
#include <peer/notify.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>
#include <xxhash.h>

#include "peers/blocker/file/file.h"
#include "peers/blocker/file/file_home.h"

#define ROOM "blocker_file"
#define FILES_FOR_OTHERS 128u /* sockets, bells, what workers open for a moment */

static const char *const io_choices[] = {"auto", "uring", "threads", NULL};

static const struct peer_option file_options[] = {
	OPTION_TEXT(struct file_options, dir, "dir", .required = true,
		.help = "folder that holds the objects; made when missing"),
	OPTION_CHOICE(struct file_options, io, "io", .choices = io_choices, .initial = "auto",
		.help = "how bytes move: auto is uring where the kernel lets us, else threads"),
	OPTION_COUNT(struct file_options, depth, "depth", .min = 1, .max = 4096, .initial = "128",
		.unit = "requests", .help = "at work at once on each lane; more wait"),
	OPTION_COUNT(struct file_options, fds, "fds", .min = 16, .max = 1048576, .initial = "1024",
		.unit = "files", .help = "object files kept open, by all lanes together"),
	OPTION_BOOL(struct file_options, shared, "shared", .initial = "no",
		.help = "other segments of this host serve the folder at the same time; all must "
			"say so"),
	OPTION_END,
};

static const struct xseg_counter file_counters[] = {
	[FILE_OPENS] = {"opens", "", "object files opened or made"},
	[FILE_CREATES] = {"creates", "", "object files made"},
	[FILE_EVICTIONS] = {"evictions", "", "objects forgotten to make room for others"},
	[FILE_DELETES] = {"deletes", "", "object files deleted"},
	[FILE_ABSENT_READS] = {"absent_reads", "", "reads of objects that have no file"},
	[FILE_PUNCHES] = {"punches", "", "ranges zeroed or discarded by the file system"},
	[FILE_ZEROS_WRITTEN] = {"zeros_written", "", "ranges zeroed by writing zeros"},
	[FILE_SHORT_IO] = {"short_io", "", "transfers that stopped early and were continued"},
	[FILE_WAITS] = {"waits", "", "requests that waited for depth or fds"},
	[FILE_GATED] = {"gated", "", "reads and writes that waited for others of the same sectors"},
	[FILE_SYNCS] = {"syncs", "", "object files synced"},
	[FILE_FOLDER_SYNCS] = {"folder_syncs", "", "folders synced"},
	[FILE_FLUSH_PASSES] = {"flush_passes", "", "rounds of syncs, each for one or more flushes"},
	[FILE_SYNC_ERRORS] = {"sync_errors", "", "files or folders that could not be made durable"},
	[FILE_IO_ERRORS] = {"io_errors", "", "transfers and punches that failed"},
	[FILE_CAS] = {"cas", "", "records read, put or deleted"},
	[FILE_FENCED] = {"fenced", "", "writes refused because another segment has the volume"},
	[FILE_COUNTERS] = {NULL, NULL, NULL},
};

/* --- of the process ---------------------------------------------------------------- */

/* May this process have that many files open? */
static int check_limit(uint64_t fds, char *why, size_t why_size)
{
	struct rlimit limit;
	uint64_t need = fds + FILES_FOR_OTHERS;
	if (getrlimit(RLIMIT_NOFILE, &limit))
		return 0;
	if (limit.rlim_cur < need && limit.rlim_max >= need) {
		limit.rlim_cur = need;
		if (setrlimit(RLIMIT_NOFILE, &limit) == 0)
			return 0;
	}
	if (limit.rlim_cur >= need)
		return 0;
	snprintf(why, why_size,
		"fds=%llu is more than this process may open (its limit is %llu, %u go elsewhere)",
		(unsigned long long)fds, (unsigned long long)limit.rlim_max, FILES_FOR_OTHERS);
	return -EMFILE;
}

static int choose_engine(struct peer *first, char *why, size_t why_size)
{
	const struct file_options *options = first->options;
	struct file_shared *shared = first->shared;
	shared->engine = &file_threads;
	if (options->io == FILE_IO_THREADS)
		return 0;
	int error = file_uring.probe((unsigned)options->depth, why, why_size);
	if (error == 0) {
		shared->engine = &file_uring;
	} else if (options->io == FILE_IO_AUTO) {
		log_info(ROOM, "%s: %s; worker threads move the bytes", first->name, why);
		error = 0;
	}
	return error;
}

/*
 * What outlives us: our successor may write what we might. 0 is nobody. A folder that is shared is
 * this segment's; one that is served by one process at a time belongs to the next segment of that
 * name as well, whose cache may have a journal of what it was to get.
 */
static uint64_t own_of(const struct xseg *seg, bool shared)
{
	const uint8_t *bytes = shared ? seg->super->uuid : (const uint8_t *)seg->path;
	size_t size = shared ? sizeof(seg->super->uuid) : strlen(seg->path);
	return XXH3_64bits(bytes, size) | 1;
}

/* Opens the folder if it is the one that it was; notes which one it is. */
static int open_home(struct peer *first, const char *dir, char *why, size_t why_size)
{
	struct file_shared *shared = first->shared;
	struct file_store *store = &shared->store;
	const struct file_options *options = first->options;
	struct file_ask ask = {.dir = dir, .shared = options->shared};
	char identity[HOME_IDENTITY];
	home_path(first, shared->home); /* the segment will be left when we close */
	bool known = home_known(first, dir, identity);
	ask.expect = known ? identity : NULL;
	ask.own = own_of(peer_segment(first), options->shared);
	int error = file_store_open(store, &ask, why, why_size);
	if (error || known)
		return error;
	file_lock(store, FILE_LOCK_FENCE); /* two that begin at once make one */
	error = file_home_make(store->root, identity);
	file_lock_release(store, FILE_LOCK_FENCE);
	error = error ? error : home_note(first, dir, identity);
	if (error) {
		snprintf(why, why_size, "it cannot be noted which store '%s' is: %s", dir,
			strerror(-error));
		file_store_close(store, false);
	}
	return error;
}

static int file_open(struct peer *first, char *why, size_t why_size)
{
	const struct file_options *options = first->options;
	struct file_shared *shared = first->shared;
	uint64_t objects = options->fds / first->shards;
	shared->objects = objects < FILE_OBJECTS_MIN ? FILE_OBJECTS_MIN : (uint32_t)objects;
	int error = check_limit((uint64_t)shared->objects * first->shards, why, why_size);
	error = error ? error : choose_engine(first, why, why_size);
	return error ? error : open_home(first, options->dir, why, why_size);
}

static void file_close(struct peer *first)
{
	struct file_shared *shared = first->shared;
	if (atomic_load(&shared->stopping) && !notify_handover())
		unlink(shared->home);
	if (!atomic_load(&shared->abandoned))
		file_store_close(&shared->store, !atomic_load(&shared->unclean));
}

/* --- of a shard ----------------------------------------------------------------------- */

static void shard_fini(struct file_shard *shard)
{
	file_object_fini(shard);
	file_flush_fini(shard);
	file_op_fini(shard);
}

static struct file_shard *shard_of_heir(struct worker_item *item)
{
	return container_of(item, struct file_shard, heir);
}

static void heir_run(struct worker_item *item)
{
	file_store_inherit(&shard_of_heir(item)->shared->store);
}

static void heir_done(struct worker_item *item) { shard_of_heir(item)->inheriting = false; }

/* Reads and writes are served meanwhile: only what must be durable waits. */
static void inherit(struct file_shard *shard)
{
	if (shard->peer->shard != 0 || !file_store_owes(&shard->shared->store))
		return;
	shard->inheriting = true;
	worker_run(shard->peer, &shard->heir, heir_run, heir_done);
}

static int file_start(struct peer *peer, char *why, size_t why_size)
{
	const struct file_options *options = peer->options;
	struct file_shard *shard = peer->state;
	shard->peer = peer;
	shard->shared = peer->shared;
	TAILQ_INIT(&shard->waits);
	int error = file_op_init(shard, (uint32_t)options->depth);
	error = error ? error : file_object_init(shard, shard->shared->objects);
	if (error)
		snprintf(why, why_size, "not enough memory for depth and fds");
	else
		error = shard->shared->engine->start(shard, why, why_size);
	if (error) {
		atomic_store(&shard->shared->unclean, true);
		shard_fini(shard);
	} else {
		inherit(shard);
	}
	return error;
}

static void file_finish(struct peer *peer)
{
	struct file_shard *shard = peer->state;
	if (!file_flush_is_clean(shard) || atomic_load(&shard->shared->store.records_error))
		atomic_store(&shard->shared->unclean, true);
	if (shard->ops_busy || shard->handovers || shard->passes || shard->inheriting) {
		atomic_store(&shard->shared->abandoned, true);
		return;
	}
	shard->shared->engine->stop(shard);
	shard_fini(shard);
}

static void file_stop(struct peer *peer)
{
	struct file_shared *shared = peer->shared;
	atomic_store(&shared->stopping, true);
}

/* What is written but not durable is made so before we go: the next start is then a quick one. */
static bool file_idle(struct peer *peer)
{
	struct file_shard *shard = peer->state;
	return shard->ops_busy == 0 && shard->handovers == 0 && TAILQ_EMPTY(&shard->jobs) &&
	       file_flush_drain(shard);
}

static bool file_poll(struct peer *peer)
{
	struct file_shard *shard = peer->state;
	bool moved = file_handover_poll(shard);
	return shard->shared->engine->poll(shard) || moved;
}

static bool file_sleep(struct peer *peer)
{
	struct file_shard *shard = peer->state;
	file_handover_sleep(shard);
	return shard->shared->engine->sleep(shard);
}

static void file_dump(struct peer *peer, FILE *out)
{
	const struct file_shard *shard = peer->state;
	fprintf(out,
		"  folder '%s' by %s: %u operations, %u of %u objects, %u volumes that owe a "
		"flush\n",
		shard->shared->store.dir, shard->shared->engine->name, shard->ops_busy,
		shard->objects_touched, shard->objects_max, shard->volume_count);
	for (uint32_t i = 0; i < shard->objects_touched; i++) {
		const struct file_object *object = &shard->objects[i];
		if (object->users == 0 && TAILQ_EMPTY(&object->waiting) && !object->is_lost)
			continue;
		fprintf(out, "    object %016llx.%u: %u users%s%s\n",
			(unsigned long long)object->key.volume, object->key.object, object->users,
			TAILQ_EMPTY(&object->waiting) ? "" : ", others wait",
			object->is_lost ? ", has lost data" : "");
	}
}

static const struct peer_ops file_ops = {
	.name = "blocker_file",
	.summary = "objects as sparse files in a folder",
	.serves = "store",
	.description =
		"Each object is a file, made when it is first written: "
		"_DIR_/objects/_VOLUME_/_XX_/_OBJECT_. What was never written takes no space; "
		"zeroing and "
		"discarding punch holes. The folder is locked: one process serves it at a time, or "
		"with _shared_ one of each "
		"segment. Then what one segment has written to a volume is refused once another "
		"has acquired the volume.\n\n"
		"Data go between the files and the pages of the segment without a copy on the way, "
		"through "
		"the kernel's page cache. A flush makes durable what completed before it, file by "
		"file, and "
		"the folders with new or removed names; a write with FUA is durable when it "
		"completes. "
		"Records are replaced by renaming, and durable before anyone hears of them.\n\n"
		"A full disk, a used-up quota or a bad sector fail the request that met them, and "
		"no other. "
		"When data that was completed cannot be made durable, the flush that asked fails, "
		"and so does "
		"every later one of that volume, until the data has been written again: Linux "
		"would report "
		"success the second time, though nothing was saved.\n\n"
		"After a clean stop everything is durable. After a kill the next process serves at "
		"once what was written, and makes durable what is in the kernel's memory for that "
		"file system; flushes wait for that, and fail when it does.\n",
	.options = file_options,
	.options_size = sizeof(struct file_options),
	.state_size = sizeof(struct file_shard),
	.shared_size = sizeof(struct file_shared),
	.counters = file_counters,
	.open = file_open,
	.close = file_close,
	.start = file_start,
	.finish = file_finish,
	.stop = file_stop,
	.idle = file_idle,
	.poll = file_poll,
	.sleep = file_sleep,
	.dump = file_dump,
	.on = {[XSEG_OP_READ] = file_op_take,
		[XSEG_OP_WRITE] = file_op_take,
		[XSEG_OP_ZERO] = file_op_take,
		[XSEG_OP_DISCARD] = file_op_take,
		[XSEG_OP_FLUSH] = file_flush_take,
		[XSEG_OP_PREFETCH] = file_op_take,
		[XSEG_OP_STATUS] = file_op_take,
		[XSEG_OP_COPY] = file_op_take,
		[XSEG_OP_DELETE] = file_op_take,
		[XSEG_OP_CAS] = file_op_take,
		[XSEG_OP_INFO] = file_op_take,
		[XSEG_OP_LIST] = file_op_take,
		[XSEG_OP_CONTROL] = file_op_take},
};
PEER_MODULE(file_ops);
