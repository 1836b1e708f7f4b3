/* SPDX-License-Identifier: Apache-2.0 */
/* The FUSE front: volumes as files in a folder. Its options, its turn, its end. */
#include <base/path.h>
#include <errno.h>
#include <peer/notify.h>
#include <stdio.h>
#include <string.h>

#include "peers/front/files.h"

static const struct peer_option fuse_option_table[] = {
	OPTION_TEXT(struct files_options, path, "path", .required = true,
		.max = PATH_LENGTH_MAX - 1,
		.help = "the folder in which the files are; it must be there"),
	OPTION_LIST(struct files_options, volumes, "volume", .max = VOLUME_NAME_LENGTH_MAX,
		.help = "only this volume, with its snapshots; none given: all"),
	OPTION_BOOL(struct files_options, read_only, "read-only", .initial = "no",
		.help = "files that cannot be written to"),
	OPTION_BOOL(struct files_options, allow_shrink, "allow-shrink", .initial = "no",
		.help = "truncate(2) may make a volume smaller; what lies behind the new end is "
			"lost"),
	OPTION_TEXT(struct files_options, file_mode, "file-mode", .initial = "0600",
		.help = "mode of the files, octal; with rights of group or others these may come "
			"in"),
	OPTION_TEXT(struct files_options, file_group, "file-group",
		.help = "group of the files, by name or number; empty: the process's"),
	OPTION_END,
};

static const struct xseg_counter fuse_counters[FILES_COUNTERS + 1] = {
	[FILES_COUNT_READS] = {"fuse_reads", "", "reads taken"},
	[FILES_COUNT_WRITES] = {"fuse_writes", "", "writes taken"},
	[FILES_COUNT_FLUSHES] = {"fuse_flushes", "", "fsyncs taken"},
	[FILES_COUNT_ZEROES] = {"fuse_zeroes", "", "ranges to be zeroed, or punched out"},
	[FILES_COUNT_OTHERS] = {"fuse_others", "", "questions about names and attributes"},
	[FILES_COUNT_PATCHES] = {"fuse_patches", "",
		"writes that began or ended inside a sector, which was read first"},
	[FILES_COUNT_AGAIN] = {"fuse_again", "",
		"requests done again that an earlier process had not answered"},
	[FILES_COUNT_BYTES_IN] = {"fuse_bytes_in", "B", "of data to be written"},
	[FILES_COUNT_BYTES_OUT] = {"fuse_bytes_out", "B", "of data asked for"},
	[FILES_COUNT_OPENS] = {"fuse_opens", "", "files opened"},
	[FILES_COUNT_CLOSES] = {"fuse_closes", "", "files closed"},
	[FILES_COUNT_WAITS] = {"fuse_waits", "", "times a request waited for pages or slots"},
	[FILES_COUNT_LEFT] = {"fuse_left", "", "requests whose process got a signal, and EINTR"},
};

/* --- a shard ----------------------------------------------------------------------- */

static bool fuse_busy(const struct peer *peer) { return files_of(peer)->asked > 0; }

static int fuse_start(struct peer *peer, char *why, size_t size)
{
	struct files *files = files_of(peer);
	files->peer = peer;
	files->options = peer->options;
	files->memory_fd = -1;
	files->message_pipe[0] = files->message_pipe[1] = -1;
	files->answer_pipe[0] = files->answer_pipe[1] = -1;
	front_clients_init(&files->clients);
	front_volumes_init(&files->volumes, peer, fuse_busy);
	if (peer->shards > 1) {
		snprintf(why, size,
			"the process has %u lanes: give this peer one of its own, with one",
			peer->shards);
		return -EINVAL;
	}
	int error = front_rights_parse("file", files->options->file_mode,
		files->options->file_group, &files->rights, why, size);
	error = error ? error : files_mount_open(files, why, size);
	if (error)
		return error;
	error = peer_event_base(peer) ? files_slot_start(files) : -ENOMEM;
	if (error) {
		snprintf(why, size, "no event loop for /dev/fuse");
		files_mount_close(files);
		return error;
	}
	files_open_adopt(files);
	return 0;
}

static void fuse_finish(struct peer *peer)
{
	struct files *files = files_of(peer);
	files_slot_stop(files);
	files_mount_close(files);
}

/* Restarted on purpose: what is in flight ends, and the rest waits for our successor. */
static void fuse_stop(struct peer *peer)
{
	struct files *files = files_of(peer);
	if (files->mounted && !notify_handover())
		files_mount_end(files);
	files->stopping = true;
	files->again = true;
}

static bool fuse_idle(struct peer *peer)
{
	const struct files *files = files_of(peer);
	return !files->inflight && !files->unmounts && !files->asked && !files->volumes.reopening;
}

static bool fuse_poll(struct peer *peer)
{
	struct files *files = files_of(peer);
	files->again = false;
	front_volumes_reopen(&files->volumes);
	return files_slot_turn(files);
}

static bool fuse_sleep(struct peer *peer)
{
	const struct files *files = files_of(peer);
	uint64_t due = files_slot_due(files);
	if (due != UINT64_MAX)
		peer_wake_at(peer, due);
	return !files->again && !files->volumes.ended;
}

static void fuse_dump(struct peer *peer, FILE *out)
{
	const struct files *files = files_of(peer);
	fprintf(out, "  %s %s, %u requests in flight\n", files->options->path,
		files->mounted ? "is mounted" : "is not mounted", files->inflight);
}

/* --- what can be asked of us -------------------------------------------------------- */

static void fuse_addresses(struct files *files, struct job *job)
{
	char name[FRONT_ANSWER_AT];
	struct front_address address = {.flags = FRONT_ADDRESS_FILE};
	if (job->data_size < FRONT_ANSWER_AT + sizeof(address)) {
		job_fail(job, -EINVAL);
		return;
	}
	job_get_bytes(job, 0, name, sizeof(name));
	name[sizeof(name) - 1] = 0;
	if (!files_tree_offers(files, name) || !files->mounted) {
		job_fail(job, -ENOENT);
		return;
	}
	int size = snprintf(address.text, sizeof(address.text), "%s/%s%s", files->options->path,
		strchr(name, '@') ? FILES_SNAPSHOTS "/" : "", name);
	if (size >= (int)sizeof(address.text)) {
		job_complete(job, FRONT_ANSWER_AT);
		return;
	}
	job_put_bytes(job, FRONT_ANSWER_AT, &address, sizeof(address));
	job_complete(job, FRONT_ANSWER_AT + (uint32_t)sizeof(address));
}

static void fuse_check(struct files *files, struct job *job)
{
	const struct front_check answer = {.error = -ENOTCONN};
	if (files_mount_is_there(files)) {
		front_check_answer(files->peer, job, &files->options->volumes);
	} else if (job->data_size < sizeof(answer)) {
		job_fail(job, -EINVAL);
	} else {
		job_put_bytes(job, 0, &answer, sizeof(answer));
		job_complete(job, (uint32_t)sizeof(answer));
	}
}

static void fuse_control(struct peer *peer, struct job *job)
{
	struct files *files = files_of(peer);
	switch (job->arg0) {
	case FRONT_ADDRESSES: fuse_addresses(files, job); break;
	case FRONT_CLIENTS: front_clients_answer(&files->clients, job); break;
	case FRONT_CHECK: fuse_check(files, job); break;
	default: job_fail(job, -EOPNOTSUPP);
	}
}

static const char *const fuse_edges[] = {"volume", NULL};

static const char fuse_description[] =
	"Mounts a folder in which each volume is a file, and in *.snapshots* each snapshot one "
	"that "
	"cannot be written to. They are read, written, mapped (*MAP_SHARED*, too) and handed to "
	"*losetup*(8) like any other file; *fsync*(2) is a flush of the volume. A write goes to "
	"the "
	"volume before *write*(2) returns; the kernel's cache keeps what was read until the file "
	"is opened again, so whoever looks at a volume that is changed over another front uses "
	"*O_DIRECT*.\n\n"
	"A file behaves as a disk does: it does not grow when it is written to behind its end "
	"(*ENOSPC*), and *O_TRUNC* zeroes it and leaves its size, so what *cp* and *dd* write over "
	"it is all that is there (*dd conv=notrunc* leaves the rest). *truncate*(2) makes "
	"a "
	"volume larger, to a multiple of 512 bytes; smaller only with *allow-shrink*. "
	"*fallocate*(2) punches holes and zeroes ranges, *lseek*(2) finds data and holes. Files "
	"are "
	"made, renamed and removed with *xsegctl volume*. The attributes *user.skerry.id*, "
	"*user.skerry.parent* and *user.skerry.object-size* say what a volume is.\n\n"
	"The keeper keeps the connection to the kernel and what is in flight. When this process is "
	"killed its successor does what was not answered, and whoever uses a file meets a pause; "
	"the "
	"same when it is restarted on purpose. Who has waited for two seconds (the store may be on "
	"a "
	"host that is away) and gets a signal meets *EINTR*, so a program can be ended; but not "
	"one that writes, or reads with *O_DIRECT*, before that is done. Without a keeper a death "
	"leaves a mount that answers "
	"*ENOTCONN*, which is cleared at the next start. When it is stopped the folder is "
	"unmounted: files that are open are cut off.\n\n"
	"Needs root, or *fusermount3* of Debian's package fuse3. At most 1024 files are open at "
	"once. One lane reads all requests: for "
	"more "
	"than one processor's worth, start several.";

static const struct peer_ops fuse_ops = {
	.name = "front_fuse",
	.summary = "serves volumes as files in a folder",
	.description = fuse_description,
	.options = fuse_option_table,
	.options_size = sizeof(struct files_options),
	.state_size = sizeof(struct files),
	.edges = fuse_edges,
	.serves = "",
	.counters = fuse_counters,
	.start = fuse_start,
	.finish = fuse_finish,
	.stop = fuse_stop,
	.idle = fuse_idle,
	.poll = fuse_poll,
	.sleep = fuse_sleep,
	.dump = fuse_dump,
	.on = {[XSEG_OP_CONTROL] = fuse_control},
};
PEER_MODULE(fuse_ops);
