/* SPDX-License-Identifier: Apache-2.0 */
/* The tape blocker: a log over the cartridges of a library. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "peers/blocker/tape/tape.h"

static const struct peer_option tape_options[] = {
	OPTION_TEXT(struct tape_options, drive, "drive", .required = true,
		.help = "image:FOLDER (each *.tap in it is a cartridge), "
			"iscsi://HOST[:PORT]/TARGET/LUN, or a device, /dev/nst0"),
	OPTION_TEXT(struct tape_options, changer, "changer",
		.help = "the library's changer, iscsi://HOST[:PORT]/TARGET/LUN; without one the "
			"drive has one cartridge"),
	OPTION_TEXT(struct tape_options, index, "index", .required = true,
		.help = "folder on a disk for the index; it is made again from the cartridges when "
			"it is empty"),
	OPTION_SIZE(struct tape_options, index_size, "index-size", .min = 1 << 20, .initial = "64G",
		.unit = "bytes", .help = "most that the index may take"),
	OPTION_TEXT(struct tape_options, user, "user", .max = 128,
		.help = "name for CHAP, with which the target is logged in to"),
	OPTION_TEXT(struct tape_options, password_file, "password-file",
		.help = "file whose first line is the password for that"),
	OPTION_SIZE(struct tape_options, capacity, "capacity", .min = 4 << 20, .initial = "16G",
		.unit = "bytes", .help = "of each cartridge that is an image"),
	OPTION_SIZE(struct tape_options, file, "file", .min = 1 << 20, .initial = "256M",
		.unit = "bytes",
		.help = "a filemark and an index follow after so much: a start reads up to as "
			"much"),
	OPTION_COUNT(struct tape_options, window, "window", .min = 1, .max = 65536,
		.initial = "256", .help = "reads that are put into the tape's order at once"),
	OPTION_TIME(struct tape_options, deadline, "deadline", .initial = "10s",
		.help = "reads that have waited so long come before others, in the order of their "
			"arrival"),
	OPTION_TIME(struct tape_options, timeout, "timeout", .min = 1000000000, .initial = "60s",
		.help = "a command that the drive does not answer for so long, and a drive that is "
			"away for so long, fail what they are for: ETIMEDOUT"),
	OPTION_SIZE(struct tape_options, memory, "memory", .min = 4 << 20, .initial = "64M",
		.unit = "bytes", .help = "for what is copied when a cartridge is cleaned"),
	OPTION_END,
};

static const struct xseg_counter tape_counters[] = {
	[TAPE_BLOCKS_WRITTEN] = {"blocks_written", "", "blocks put on the tape"},
	[TAPE_BLOCKS_READ] = {"blocks_read", "", "blocks read from it"},
	[TAPE_WOUND] = {"wound", "", "blocks that the head went over to get somewhere"},
	[TAPE_LOADS] = {"loads", "", "cartridges put into the drive"},
	[TAPE_CLEANED] = {"cleaned", "", "cartridges whose contents were copied to others"},
	[TAPE_OVERDUE] = {"overdue", "", "reads that had waited longer than deadline="},
	[TAPE_RECONNECTS] = {"reconnects", "", "times that the drive was away and came back"},
	[TAPE_DRIVE_ERRORS] = {"drive_errors", "", "commands that the drive failed"},
	[TAPE_COUNTERS] = {NULL, NULL, NULL},
};

static int read_password(struct tape_store *store, char *why, size_t why_size)
{
	const char *path = store->options->password_file;
	FILE *in = path ? fopen(path, "re") : NULL;
	if (path && (!in || !fgets(store->password, sizeof(store->password), in))) {
		int error = in ? -EINVAL : -errno;
		snprintf(why, why_size, "password-file: '%s': %s", path,
			in ? "it is empty" : strerror(errno));
		if (in)
			fclose(in);
		return error;
	}
	if (in)
		fclose(in);
	store->password[strcspn(store->password, "\r\n")] = 0;
	return 0;
}

static int choose_driver(struct tape_store *store, char *why, size_t why_size)
{
	const struct tape_options *options = store->options;
	bool image = strncmp(options->drive, "image:", 6) == 0;
	bool iscsi = strncmp(options->drive, "iscsi://", 8) == 0;
	store->drive.ops = image ? &tape_image : iscsi ? &tape_iscsi : &tape_st;
	store->drive.options = &store->drive_options;
	store->drive_options =
		(struct tape_drive_options){.drive = image ? options->drive + 6 : options->drive,
			.changer = options->changer,
			.user = options->user,
			.password = store->password,
			.capacity = options->capacity,
			.timeout_ns = options->timeout};
	if (!image && !iscsi && strncmp(options->drive, "/dev/", 5)) {
		snprintf(why, why_size,
			"drive: '%s' must be image:FOLDER, iscsi://HOST[:PORT]/TARGET/LUN or a "
			"device in /dev",
			options->drive);
		return -EINVAL;
	}
	if (options->changer && !iscsi) {
		snprintf(why, why_size, "changer: only for a drive that is an iSCSI target");
		return -EINVAL;
	}
	return 0;
}

static int begin(struct peer *first, struct tape_store *store, char *why, size_t why_size)
{
	char identity[HOME_IDENTITY];
	int error = tape_log_open(store);
	error = error ? error : choose_driver(store, why, why_size);
	error = error ? error : read_password(store, why, why_size);
	error = error ? error : tape_scan_start(store, why, why_size);
	if (error)
		return error;
	for (int i = 0; i < 16; i++)
		snprintf(identity + 2 * (size_t)i, 3, "%02x", store->index.head.store[i]);
	error = home_check(first, store->options->drive, identity, store->home, why, why_size);
	return error ? error : tape_work_start(store);
}

static int tape_open(struct peer *first, char *why, size_t why_size)
{
	struct tape_store *store = first->shared;
	store->first = first;
	store->options = first->options;
	int error = begin(first, store, why, why_size);
	if (error)
		tape_log_close(store);
	return error;
}

static void tape_close(struct peer *first)
{
	struct tape_store *store = first->shared;
	tape_work_stop(store);
	if (*store->home)
		unlink(store->home);
	tape_log_close(store);
}

/* The thread counts, the lane tells. */
static bool tape_poll(struct peer *peer)
{
	struct tape_store *store = peer->shared;
	if (peer != store->first)
		return false;
	for (unsigned i = 0; i < TAPE_COUNTERS; i++) {
		uint64_t more = atomic_load_explicit(&store->counters[i], memory_order_relaxed) -
				store->told[i];
		if (more)
			peer_count(peer, i, more);
		store->told[i] += more;
	}
	return false;
}

static const struct peer_ops tape_ops = {
	.name = TAPE_NAME,
	.summary = "objects on tape",
	.serves = "store",
	.description =
		"For archives, with a cache above: a log over the cartridges of a library, in the "
		"order in which it was written. Reads that wait are put into the order of the "
		"tape. One peer serves a library.\n",
	.options = tape_options,
	.options_size = sizeof(struct tape_options),
	.counters = tape_counters,
	.shared_size = sizeof(struct tape_store),
	.open = tape_open,
	.close = tape_close,
	.poll = tape_poll,
	.on = {[XSEG_OP_READ... XSEG_OP_CAS] = tape_work_take,
		[XSEG_OP_INFO... XSEG_OP_LIST] = tape_work_take,
		[XSEG_OP_CONTROL] = tape_work_take},
};
PEER_MODULE(tape_ops);
