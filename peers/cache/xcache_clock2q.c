/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Clock2Q+ (arXiv 2511.21958): one hit in the small queue leads into the main one, but not while it
 * is in the newer half of it: such hits belong to what brought it in.
 */
#include "peers/cache/xcache_priv.h"

static int clock2q_open(struct xcache *cache, uint32_t entries_max)
{
	static const struct xcache_queue_rules rules = {
		.marks_max = 1, .marks_main = 1, .window_percent = 50};
	return xcache_queue_open(cache, entries_max, &rules);
}

const struct xcache_policy xcache_clock2q = {
	.name = "clock2q",
	.open = clock2q_open,
	.close = xcache_queue_close,
	.insert = xcache_queue_insert,
	.hit = xcache_queue_hit,
	.victim = xcache_queue_victim,
	.remove = xcache_queue_remove,
	.back = xcache_queue_back,
	.resize = xcache_queue_resize,
};
