/* SPDX-License-Identifier: Apache-2.0 */
/* The pattern blocker: each 8-byte word of the store is its own offset; tests without storage. */
#include <endian.h>
#include <peer/store.h>
#include <string.h>

#define STEP_PIECES 16

struct pattern_options {
	uint64_t object_size;
};

static const struct peer_option pattern_options[] = {
	OPTION_SIZE(struct pattern_options, object_size, "object-size", .initial = "4M",
		.min = XSEG_PAGE, .max = XSEG_OBJECT_MAX,
		.help = "size of the objects of the volumes above"),
	OPTION_END,
};

/* Offset in the store of the job's first byte. */
static uint64_t base_of(const struct peer *peer, const struct job *job)
{
	const struct pattern_options *options = peer->options;
	return job->key.object * options->object_size + job->offset;
}

static void fill(uint8_t *to, size_t size, uint64_t offset)
{
	for (size_t i = 0; i < size; i += 8) {
		uint64_t word = htobe64(offset + i);
		memcpy(to + i, &word, sizeof(word));
	}
}

static bool matches(const uint8_t *from, size_t size, uint64_t offset)
{
	for (size_t i = 0; i < size; i += 8) {
		uint64_t word;
		memcpy(&word, from + i, sizeof(word));
		if (be64toh(word) != offset + i)
			return false;
	}
	return true;
}

/* Fills the job's data, or compares it: in steps that a few pieces always cover. */
static int walk(struct peer *peer, struct job *job, bool compare)
{
	uint64_t base = base_of(peer, job);
	for (uint32_t at = 0, size; at < job->length; at += size) {
		struct iovec iov[STEP_PIECES];
		size = job->length - at;
		int count = job_iov(job, at, size, iov, STEP_PIECES);
		if (count == -E2BIG) {
			size = (STEP_PIECES - 1) * XSEG_PAGE;
			count = job_iov(job, at, size, iov, STEP_PIECES);
		}
		must(count > 0);
		uint64_t offset = base + at;
		for (int i = 0; i < count; offset += iov[i++].iov_len)
			if (!compare)
				fill(iov[i].iov_base, iov[i].iov_len, offset);
			else if (!matches(iov[i].iov_base, iov[i].iov_len, offset))
				return -EIO;
	}
	return 0;
}

static void end(struct job *job, int error)
{
	if (error)
		job_fail(job, error);
	else
		job_complete(job, job->length);
}

static void pattern_read(struct peer *peer, struct job *job)
{
	int error = store_range_check(job);
	end(job, error ? error : walk(peer, job, false));
}

static void pattern_write(struct peer *peer, struct job *job)
{
	int error = store_range_check(job);
	end(job, error ? error : walk(peer, job, true));
}

/* What is here never changes, so it is as durable as the program. */
static void pattern_flush(struct peer *peer, struct job *job)
{
	(void)peer;
	job_complete(job, 0);
}

static void pattern_status(struct peer *peer, struct job *job)
{
	(void)peer;
	struct xseg_status_extent all = {.length = job->length};
	if (job->data_size < sizeof(all)) {
		job_fail(job, -EINVAL);
		return;
	}
	job_put_bytes(job, 0, &all, sizeof(all));
	job_complete_value(job, sizeof(all), 1);
}

static const struct peer_ops pattern_ops = {
	.name = "blocker_pattern",
	.summary = "every 8-byte word is its own offset",
	.serves = "store",
	.description =
		"Each 8-byte big-endian word of the store says where it lies: object number times "
		"*object-size*, plus the offset in the object. So a read of any place and size can "
		"be "
		"checked without storage, and a volume may be as large as there are object "
		"numbers.\n\n"
		"A write must bring that same pattern: it is compared, nothing is kept, and a "
		"difference answers EIO. Zeroing and discarding are refused.\n",
	.options = pattern_options,
	.options_size = sizeof(struct pattern_options),
	.on = {[XSEG_OP_READ] = pattern_read,
		[XSEG_OP_WRITE] = pattern_write,
		[XSEG_OP_FLUSH] = pattern_flush,
		[XSEG_OP_STATUS] = pattern_status},
};
PEER_MODULE(pattern_ops);
