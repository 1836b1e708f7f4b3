/* SPDX-License-Identifier: Apache-2.0 */
/* S3-FIFO (SOSP 2023): two hits in the small queue lead into the main one; no window. */
#include "peers/cache/xcache_priv.h"

static int s3fifo_open(struct xcache *cache, uint32_t entries_max)
{
	static const struct xcache_queue_rules rules = {
		.marks_max = 3, .marks_main = 2, .window_percent = 0};
	return xcache_queue_open(cache, entries_max, &rules);
}

const struct xcache_policy xcache_s3fifo = {
	.name = "s3fifo",
	.open = s3fifo_open,
	.close = xcache_queue_close,
	.insert = xcache_queue_insert,
	.hit = xcache_queue_hit,
	.victim = xcache_queue_victim,
	.remove = xcache_queue_remove,
	.back = xcache_queue_back,
	.resize = xcache_queue_resize,
};
