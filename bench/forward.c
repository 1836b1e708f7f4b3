/* SPDX-License-Identifier: Apache-2.0 */
/* Hands on what it gets, as it is: a hop and nothing else, what others are measured against. */
#include <peer/job.h>

static void forward(struct peer *peer, struct job *job)
{
	(void)peer;
	job_forward(job, 0);
}

static const char *const forward_edges[] = {"store", NULL};

static const struct peer_ops forward_ops = {
	.name = "forward",
	.summary = "hands all on: what a hop costs",
	.edges = forward_edges,
	.on = {[XSEG_OP_READ] = forward, [XSEG_OP_WRITE] = forward, [XSEG_OP_FLUSH] = forward},
};
PEER_MODULE(forward_ops);
