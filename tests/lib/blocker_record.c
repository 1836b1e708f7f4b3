/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The recording blocker: hands all down to a store and notes in a file what changes it and what
 * flushes it: when it began and when the store had answered, in the order in which that happened.
 * tests/crash/cache_log.py reads the file and cuts it at every point.
 *
 * A record is a struct note and what it carries (`carried` bytes). It is written by one write() for
 * each, appending: what was noted before a SIGKILL is in the file, and a successor goes on behind
 * the last whole record.
 */
#include <base/clock.h>
#include <base/crc32c.h>
#include <errno.h>
#include <fcntl.h>
#include <peer/call.h>
#include <pthread.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#define NOTE_MAGIC 0x4e4f5445u /* "ETON" */
#define SECTOR 512u
#define HEAD 48u /* of a sector: what a stamp says of itself */

enum { KIND_BEGIN, KIND_END };
enum { DATA_NONE, DATA_HEADS, DATA_ALL };
static const char *const record_choices[] = {"none", "heads", "all", NULL};

struct note {
	uint32_t magic, carried;
	uint64_t number; /* from 1 on */
	uint64_t begin;	 /* END: the number of its BEGIN */
	uint64_t time_ns, volume, offset, arg0, arg1;
	uint32_t object, length, crc;
	int32_t error;
	uint8_t op, kind, shard, flags;
	uint32_t reserved;
};
fixed(sizeof(struct note) == 88);

struct record_options {
	char *log;
	uint64_t data;
};

static const struct peer_option record_options[] = {
	OPTION_TEXT(struct record_options, log, "log", .required = true,
		.help = "file that the records are appended to"),
	OPTION_CHOICE(struct record_options, data, "data", .initial = "heads",
		.choices = record_choices, .help = "what is noted of the data of writes"),
	OPTION_END,
};

static const char *const record_edges[] = {"store", NULL};

static const struct xseg_counter record_counters[] = {
	{.name = "records", .unit = "records", .help = "written to the log"},
	{.name = NULL},
};

struct record_shared {
	pthread_mutex_t lock; /* one record after the other */
	uint64_t number;
	int fd;
};

/* --- the file ---------------------------------------------------------------------------- */

/* Goes to the end of the last whole record. */
static int find_end(struct record_shared *shared)
{
	struct note note;
	struct stat stat;
	off_t at = 0;
	if (fstat(shared->fd, &stat))
		return -errno;
	while (pread(shared->fd, &note, sizeof(note), at) == sizeof(note)) {
		off_t next = at + (off_t)(sizeof(note) + note.carried);
		if (note.magic != NOTE_MAGIC || next > stat.st_size)
			break;
		shared->number = note.number;
		at = next;
	}
	if (ftruncate(shared->fd, at) || lseek(shared->fd, at, SEEK_SET) < 0)
		return -errno;
	return 0;
}

static int record_open(struct peer *first, char *why, size_t why_size)
{
	const struct record_options *options = first->options;
	struct record_shared *shared = first->shared;
	must(pthread_mutex_init(&shared->lock, NULL) == 0);
	shared->fd = open(options->log, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
	int error = shared->fd < 0 ? -errno : find_end(shared);
	if (error)
		snprintf(why, why_size, "log: '%s': %s", options->log, strerror(-error));
	return error;
}

static void record_close(struct peer *first)
{
	struct record_shared *shared = first->shared;
	if (shared->fd >= 0)
		close(shared->fd);
	pthread_mutex_destroy(&shared->lock);
}

/* Puts it behind all others; its number. */
static uint64_t append(struct peer *peer, struct note *note, const uint8_t *data)
{
	struct record_shared *shared = peer->shared;
	struct iovec iov[2] = {{note, sizeof(*note)}, {(void *)(uintptr_t)data, note->carried}};
	must(pthread_mutex_lock(&shared->lock) == 0);
	note->number = ++shared->number;
	note->time_ns = clock_now_ns();
	ssize_t size = (ssize_t)(sizeof(*note) + note->carried);
	if (writev(shared->fd, iov, 2) != size)
		peer_fatal(peer, "the log cannot be written: %s", strerror(errno));
	must(pthread_mutex_unlock(&shared->lock) == 0);
	peer_count(peer, 0, 1);
	return note->number;
}

/* --- what is noted -------------------------------------------------------------------------- */

static struct note note_of(const struct peer *peer, const struct job *job)
{
	return (struct note){.magic = NOTE_MAGIC,
		.volume = job->key.volume,
		.object = job->key.object,
		.offset = job->offset,
		.length = job->length,
		.arg0 = job->arg0,
		.arg1 = job->arg1,
		.op = (uint8_t)job->op,
		.flags = (uint8_t)job->flags,
		.shard = (uint8_t)peer->shard};
}

/* The data of a write into the shard's buffer, all of it or the heads of its sectors. */
static void carry(const struct peer *peer, const struct job *job, struct note *note)
{
	const struct record_options *options = peer->options;
	uint8_t *data = peer->state;
	job_get_bytes(job, 0, data, job->length);
	note->crc = crc32c(0, data, job->length);
	note->carried = options->data == DATA_NONE ? 0 : job->length;
	if (options->data != DATA_HEADS)
		return;
	note->carried = 0;
	for (uint32_t at = 0; at + SECTOR <= job->length; at += SECTOR) {
		memmove(data + note->carried, data + at, HEAD);
		note->carried += HEAD;
	}
}

/* --- requests ------------------------------------------------------------------------------- */

static void record_done(struct call *call)
{
	struct peer *peer = call->peer;
	struct job *job = call->context;
	struct note note = note_of(peer, job);
	uint64_t value = call->value;
	int error = call->result;
	note.kind = KIND_END;
	note.error = error;
	note.begin = (uint64_t)(uintptr_t)call->context2;
	append(peer, &note, NULL);
	call_end(call);
	if (error)
		job_fail_value(job, error, value);
	else
		job_complete_value(job, job->op == XSEG_OP_WRITE ? job->length : 0, value);
}

static bool record_again(struct peer *peer, void *context)
{
	struct job *job = context;
	struct call *call;
	if (call_begin(peer, &call))
		return false;
	call_as(call, job);
	if (job->op == XSEG_OP_WRITE && call_borrow(call, job, 0, job->length)) {
		call_end(call);
		return false;
	}
	struct note note = note_of(peer, job);
	if (job->op == XSEG_OP_WRITE)
		carry(peer, job, &note);
	call->context = job;
	call->context2 = (void *)(uintptr_t)append(peer, &note, peer->state);
	call_submit(call, 0, record_done);
	return true;
}

static void record_change(struct peer *peer, struct job *job)
{
	if (!record_again(peer, job))
		peer_retry(peer, record_again, job);
}

static void record_pass(struct peer *peer, struct job *job)
{
	(void)peer;
	job_forward(job, 0);
}

static const struct peer_ops record_ops = {
	.name = "blocker_record",
	.summary = "notes what changes and flushes the store below, for tests",
	.options = record_options,
	.options_size = sizeof(struct record_options),
	.state_size = XSEG_OBJECT_MAX,
	.shared_size = sizeof(struct record_shared),
	.edges = record_edges,
	.counters = record_counters,
	.open = record_open,
	.close = record_close,
	.on = {[XSEG_OP_READ] = record_pass,
		[XSEG_OP_WRITE... XSEG_OP_FLUSH] = record_change,
		[XSEG_OP_PREFETCH... XSEG_OP_STATUS] = record_pass,
		[XSEG_OP_COPY... XSEG_OP_DELETE] = record_change,
		[XSEG_OP_CAS... XSEG_OP_COUNT - 1] = record_pass},
};
PEER_MODULE(record_ops);
