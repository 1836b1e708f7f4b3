/* SPDX-License-Identifier: Apache-2.0 */
/* A store that never answers: what a stop has to do with. */
#include <peer/job.h>

static void stuck_keep(struct peer *peer, struct job *job)
{
	(void)peer;
	(void)job; /* ours for ever */
}

static const struct peer_ops stuck_ops = {
	.name = "blocker_stuck",
	.summary = "never answers, for tests",
	.on = {[XSEG_OP_READ] = stuck_keep,
		[XSEG_OP_WRITE] = stuck_keep,
		[XSEG_OP_CAS] = stuck_keep,
		[XSEG_OP_LIST] = stuck_keep,
		[XSEG_OP_INFO] = stuck_keep},
};
PEER_MODULE(stuck_ops);
