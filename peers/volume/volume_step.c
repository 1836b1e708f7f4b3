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
	if (rc == 0)
		return call;
	must(rc == -EAGAIN);
	if (call)
		call_end(call);
	step->run = run;
	peer_retry(step->peer, step_again, step);
	return NULL;
}

struct call *volume_step_cas(struct volume_step *step, void (*run)(struct volume_step *step),
	enum xseg_cas what, struct xseg_key key)
{
	uint32_t bytes = what == XSEG_CAS_DELETE ? 0 : XSEG_RECORD_MAX;
	struct call *call = volume_step_call(step, run, XSEG_OP_CAS, key, bytes);
	if (call)
		call->arg1 = what;
	return call;
}

void volume_call_record(struct call *call, const void *record, uint32_t size)
{
	must(size <= XSEG_RECORD_MAX);
	call_put_bytes(call, 0, record, size);
	call->length = size;
}

int volume_call_answer(const struct call *call, uint8_t record[XSEG_RECORD_MAX])
{
	if (call->result != 0)
		return call->result;
	if (call->answer_length > XSEG_RECORD_MAX)
		return -EILSEQ;
	call_get_bytes(call, 0, record, call->answer_length);
	return (int)call->answer_length;
}
