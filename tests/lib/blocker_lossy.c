/* SPDX-License-Identifier: Apache-2.0 */
/* The lossy blocker, a negative control: acknowledges every so many writes and forgets them. */
#include <peer/job.h>

struct lossy_options {
	uint64_t every;
};

static const struct peer_option lossy_options[] = {
	OPTION_COUNT(struct lossy_options, every, "every", .initial = "500", .unit = "writes",
		.help = "of so many writes one is lost; 0: none"),
	OPTION_END,
};

static const char *const lossy_edges[] = {"store", NULL};

static const struct xseg_counter lossy_counters[] = {
	{.name = "lost", .unit = "writes", .help = "acknowledged and forgotten"},
	{.name = NULL},
};

struct lossy {
	uint64_t writes;
};

static void lossy_write(struct peer *peer, struct job *job)
{
	const struct lossy_options *options = peer->options;
	struct lossy *lossy = peer->state;
	if (options->every == 0 || ++lossy->writes % options->every != 0) {
		job_forward(job, 0);
		return;
	}
	peer_count(peer, 0, 1);
	job_complete(job, job->length);
}

static void lossy_pass(struct peer *peer, struct job *job)
{
	(void)peer;
	job_forward(job, 0);
}

static const struct peer_ops lossy_ops = {
	.name = "blocker_lossy",
	.summary = "loses writes on purpose, for tests",
	.options = lossy_options,
	.options_size = sizeof(struct lossy_options),
	.state_size = sizeof(struct lossy),
	.edges = lossy_edges,
	.counters = lossy_counters,
	.on = {[XSEG_OP_READ] = lossy_pass,
		[XSEG_OP_WRITE] = lossy_write,
		[XSEG_OP_ZERO... XSEG_OP_COUNT - 1] = lossy_pass},
};
PEER_MODULE(lossy_ops);
