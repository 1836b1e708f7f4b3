/* SPDX-License-Identifier: Apache-2.0 */
/* How import and export size their requests, and how they skip zeros. */
#include "tools/ctl/ctl_copy.h"

#include <string.h>

void ctl_copy_plan(const struct xseg *seg, struct ctl_copy_plan *plan)
{
	uint64_t budget = (uint64_t)seg->page_count * XSEG_PAGE / 4;
	plan->chunk = CTL_COPY_CHUNK_MAX;
	plan->depth = CTL_COPY_DEPTH_MAX;
	while (plan->depth > 4 && (uint64_t)plan->chunk * plan->depth > budget)
		plan->depth /= 2;
	while (plan->chunk > CTL_COPY_BLOCK && (uint64_t)plan->chunk * plan->depth > budget)
		plan->chunk /= 2;
}

static bool block_is_zero(const uint8_t *data, uint32_t length)
{
	static const uint8_t zeros[CTL_COPY_BLOCK];
	return memcmp(data, zeros, length) == 0;
}

static uint32_t block_length(uint32_t length, uint32_t at)
{
	return length - at < CTL_COPY_BLOCK ? length - at : CTL_COPY_BLOCK;
}

bool ctl_copy_run(const uint8_t *data, uint32_t length, uint32_t *at, uint32_t *run)
{
	uint32_t from = *at, to;
	while (from < length && block_is_zero(data + from, block_length(length, from)))
		from += block_length(length, from);
	to = from;
	while (to < length && !block_is_zero(data + to, block_length(length, to)))
		to += block_length(length, to);
	*at = from;
	*run = to - from;
	return to > from;
}

void ctl_copy_patience(const struct ctl *ctl, struct client *client)
{
	if (!ctl->timeout_given)
		client->timeout_ns = CTL_COPY_PATIENCE_NS;
}

void ctl_copy_drain(const struct ctl *ctl, struct client *client)
{
	struct client_request *request;
	bool silent = ctl->fault.code == FAULT_TIMEOUT;
	while (!silent && client_collect(client, &request) == 0)
		;
}
