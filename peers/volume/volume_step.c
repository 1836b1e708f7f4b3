/* SPDX-License-Identifier: Apache-2.0 */
/* Requests of the composer's own that wait their turn when slots or pages are short. */
#include <errno.h>

#include "peers/volume/volume.h"

static bool step_again(struct peer *peer, void *context)
{
	struct volume_step *step = context;
	must(step->peer == peer);
	step->run(step);
	return true;
}

void volume_step_later(struct volume_step *step, void (*run)(struct volume_step *step))
{
	step->run = run;
	peer_retry(step->peer, step_again, step);
}

/* It could not be had: rc is -EAGAIN. */
static struct call *step_wait(
	struct volume_step *step, void (*run)(struct volume_step *step), struct call *call, int rc)
{
	must(rc == -EAGAIN);
	if (call)
		call_end(call);
	volume_step_later(step, run);
	return NULL;
}

struct call *volume_step_call(struct volume_step *step, void (*run)(struct volume_step *step),
	enum xseg_op op, struct xseg_key key, uint32_t bytes)
{
	struct call *call = NULL;
	int rc = call_begin(step->peer, &call);
	if (rc == 0) {
		call->op = op;
		call->key = key;
		call->length = bytes;
		call->context = step;
		rc = bytes > 0 ? call_pages(call, bytes) : 0;
	}
	return rc == 0 ? call : step_wait(step, run, call, rc);
}

struct call *volume_step_as(
	struct volume_step *step, void (*run)(struct volume_step *step), const struct job *job)
{
	struct call *call = NULL;
	int rc = call_begin(step->peer, &call);
	if (rc == 0) {
		call_as(call, job);
		call->context = step;
		rc = job->data_size > 0 ? call_borrow(call, job, 0, job->data_size) : 0;
	}
	return rc == 0 ? call : step_wait(step, run, call, rc);
}
