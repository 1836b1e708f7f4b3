/* SPDX-License-Identifier: Apache-2.0 */
/* The lying blocker, negative controls: passes all down, but every so often tells one lie. */
#include <errno.h>
#include <peer/job.h>
#include <string.h>

#define SECTOR 512u
#define KEEP_MAX 65536u

enum { LIE_NONE, LIE_LOSE, LIE_OLD, LIE_TEAR, LIE_SWAP, LIE_PLACE, LIE_ERROR };
static const char *const liar_lies[] = {
	"none", "lose", "old", "tear", "swap", "place", "error", NULL};

struct liar_options {
	uint64_t lie, every;
};

static const struct peer_option liar_options[] = {
	OPTION_CHOICE(struct liar_options, lie, "lie", .initial = "none", .choices = liar_lies,
		.help = "what is done wrong"),
	OPTION_COUNT(struct liar_options, every, "every", .min = 1, .initial = "500",
		.unit = "requests", .help = "one of so many"),
	OPTION_END,
};

static const char *const liar_edges[] = {"store", NULL};

static const struct xseg_counter liar_counters[] = {
	{.name = "lies", .unit = "requests", .help = "answered or handed on wrong"},
	{.name = NULL},
};

/* A write of the past: what a read is told in the end, when it has been overwritten. */
struct liar {
	uint64_t turns;
	struct xseg_key key;
	uint64_t offset;
	uint32_t length;
	bool overwritten;
	unsigned age; /* writes since */
	uint8_t data[KEEP_MAX];
};

static bool its_turn(struct peer *peer)
{
	const struct liar_options *options = peer->options;
	struct liar *liar = peer->state;
	if (++liar->turns % options->every != 0)
		return false;
	peer_count(peer, 0, 1);
	return true;
}

static bool same_object(const struct liar *liar, const struct job *job)
{
	return memcmp(&liar->key, &job->key, sizeof(job->key)) == 0;
}

static void keep(struct liar *liar, const struct job *job)
{
	liar->key = job->key;
	liar->offset = job->offset;
	liar->length = job->length;
	liar->overwritten = false;
	liar->age = 0;
	job_get_bytes(job, 0, liar->data, job->length);
}

/* Remembers a write until another has covered it and a read has been told of it; but not for ever:
   a long one may never be covered, and a short one never read. */
static void look_at_write(struct liar *liar, const struct job *job)
{
	bool covers = same_object(liar, job) && job->offset <= liar->offset &&
		      job->offset + job->length >= liar->offset + liar->length;
	bool old = ++liar->age > (liar->length > XSEG_PAGE ? 256u : 4096u);
	if ((liar->length == 0 || old) && job->length <= KEEP_MAX)
		keep(liar, job);
	else if (covers)
		liar->overwritten = true;
}

static void tear(struct liar *liar, struct job *job)
{
	if (liar->length)
		job_put_bytes(job, SECTOR / 2, liar->data + SECTOR / 2, SECTOR / 2);
}

static void swap(struct job *job)
{
	uint8_t a[SECTOR], b[SECTOR];
	job_get_bytes(job, 0, a, SECTOR);
	job_get_bytes(job, SECTOR, b, SECTOR);
	job_put_bytes(job, 0, b, SECTOR);
	job_put_bytes(job, SECTOR, a, SECTOR);
}

static void liar_write(struct peer *peer, struct job *job)
{
	const struct liar_options *options = peer->options;
	struct liar *liar = peer->state;
	look_at_write(liar, job);
	if (options->lie == LIE_LOSE && its_turn(peer)) {
		job_complete(job, job->length);
		return;
	}
	if (options->lie == LIE_ERROR && its_turn(peer)) {
		job_fail(job, -EIO);
		return;
	}
	if (options->lie == LIE_TEAR && its_turn(peer))
		tear(liar, job);
	if (options->lie == LIE_SWAP && job->length >= 2 * SECTOR && its_turn(peer))
		swap(job);
	job_forward(job, 0);
}

static void liar_read(struct peer *peer, struct job *job)
{
	const struct liar_options *options = peer->options;
	struct liar *liar = peer->state;
	bool inside = liar->overwritten && same_object(liar, job) && job->offset >= liar->offset &&
		      job->offset + job->length <= liar->offset + liar->length;
	if (options->lie == LIE_OLD && inside) {
		job_put_bytes(job, 0, liar->data + (job->offset - liar->offset), job->length);
		peer_count(peer, 0, 1);
		liar->length = 0;
		liar->overwritten = false;
		job_complete(job, job->length);
		return;
	}
	if (options->lie == LIE_PLACE && its_turn(peer))
		job->offset ^= 2 * XSEG_PAGE;
	job_forward(job, 0);
}

static void liar_pass(struct peer *peer, struct job *job)
{
	(void)peer;
	job_forward(job, 0);
}

static const struct peer_ops liar_ops = {
	.name = "blocker_liar",
	.summary = "does one thing wrong on purpose, for tests",
	.options = liar_options,
	.options_size = sizeof(struct liar_options),
	.state_size = sizeof(struct liar),
	.edges = liar_edges,
	.counters = liar_counters,
	.on = {[XSEG_OP_READ] = liar_read,
		[XSEG_OP_WRITE] = liar_write,
		[XSEG_OP_ZERO... XSEG_OP_COUNT - 1] = liar_pass},
};
PEER_MODULE(liar_ops);
