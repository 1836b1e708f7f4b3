/* SPDX-License-Identifier: Apache-2.0 */
/* The null blocker: takes everything and keeps nothing. The smallest peer; copy it to begin one. */
#include <peer/job.h>

/* The pages are left as they are: a read costs nothing here, and shows whatever lay in them. */
static void null_read(struct peer *peer, struct job *job)
{
	(void)peer;
	job_complete(job, job->length);
}

static void null_write(struct peer *peer, struct job *job)
{
	(void)peer;
	job_complete(job, job->length);
}

static void null_zero(struct peer *peer, struct job *job)
{
	(void)peer;
	job_complete(job, 0);
}

/* Nothing was kept, so there is nothing left to lose: no promise is broken. */
static void null_flush(struct peer *peer, struct job *job)
{
	(void)peer;
	job_complete(job, 0);
}

static const struct peer_ops null_ops = {
	.name = "blocker_null",
	.summary = "stores nothing: what the pipeline above it costs",
	.serves = "store",
	.description =
		"Reads show whatever lay in the pages before; everything else is forgotten.\n",
	.on = {[XSEG_OP_READ] = null_read,
		[XSEG_OP_WRITE] = null_write,
		[XSEG_OP_ZERO] = null_zero,
		[XSEG_OP_DISCARD] = null_zero,
		[XSEG_OP_FLUSH] = null_flush},
};
PEER_MODULE(null_ops);
