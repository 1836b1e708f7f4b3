/* SPDX-License-Identifier: Apache-2.0 */
/* Asks a peer through the segment. */
#include "tools/ctl/ctl_call.h"

#include <base/must.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

int ctl_call(struct client *client, struct ctl_call *call)
{
	uint32_t size = call->answer_at + call->out_size;
	uint8_t *buffer = calloc(1, size + 1);
	if (!buffer)
		return -ENOMEM;
	must(call->in_size <= call->answer_at);
	if (call->in)
		memcpy(buffer, call->in, call->in_size);
	struct client_request request = {.op = XSEG_OP_CONTROL,
		.key.volume = call->volume,
		.arg0 = call->what,
		.arg1 = call->number,
		.length = size,
		.send = buffer,
		.send_size = call->answer_at,
		.receive = buffer,
		.receive_size = size};
	int rc = client_do(client, &request);
	rc = rc ? rc : request.result;
	uint32_t end = request.answer_length < size ? request.answer_length : size;
	call->value = request.value;
	call->got = end > call->answer_at ? end - call->answer_at : 0;
	if (call->out_size)
		memcpy(call->out, buffer + call->answer_at, call->out_size);
	free(buffer);
	return rc;
}

int ctl_call_once(const char *segment, const char *peer, uint64_t timeout_ns, struct ctl_call *call)
{
	struct client client;
	char why[XSEG_WHY_SIZE];
	int rc = client_open(&client, segment, peer, why);
	if (rc)
		return rc;
	client.timeout_ns = timeout_ns;
	rc = ctl_call(&client, call);
	client_close(&client);
	return rc;
}

int ctl_call_open(struct ctl *ctl, const char *segment, const char *peer, struct client *client)
{
	char why[XSEG_WHY_SIZE] = "";
	int rc = client_open(client, segment, peer, why);
	if (rc)
		return fault_set(&ctl->fault, fault_code_of_errno(rc), peer, NULL, "%s", why);
	client->timeout_ns = ctl->timeout_ns;
	return 0;
}
