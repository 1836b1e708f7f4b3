/* SPDX-License-Identifier: Apache-2.0 */
/* Where the tables of a segment lie, and what identifies a build's layout. */
#include "xseg/xseg_layout.h"

#include <base/crc32c.h>
#include <errno.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

static uint64_t round_up(uint64_t n, uint64_t to) { return (n + to - 1) / to * to; }

static uint32_t words_for(uint32_t bits) { return (bits + 63) / 64; }

uint64_t layout_places(uint32_t lanes, uint32_t requests, uint32_t pages,
	struct xseg_table_place places[XSEG_TABLE_COUNT])
{
	const struct {
		uint32_t count, item_size;
	} shape[XSEG_TABLE_COUNT] = {
		[XSEG_TABLE_PEERS] = {XSEG_PEERS_MAX, sizeof(struct xseg_peer_record)},
		[XSEG_TABLE_LANES] = {XSEG_LANES_MAX, sizeof(struct xseg_lane_record)},
		[XSEG_TABLE_PORTS] = {XSEG_PORTS_MAX, sizeof(struct xseg_port_record)},
		[XSEG_TABLE_EDGES] = {XSEG_EDGES_MAX, sizeof(struct xseg_edge_record)},
		[XSEG_TABLE_STATS] = {XSEG_STATS_BLOCKS, sizeof(struct xseg_stats_block)},
		[XSEG_TABLE_VOLUMES] = {lanes * XSEG_LANE_VOLUMES,
			sizeof(struct xseg_volume_block)},
		[XSEG_TABLE_REQUEST_HINTS] = {words_for(requests), sizeof(uint64_t)},
		[XSEG_TABLE_REQUESTS] = {requests, sizeof(struct xseg_request)},
		[XSEG_TABLE_RINGS] = {lanes * lanes, sizeof(struct xseg_ring)},
		[XSEG_TABLE_PAGE_HINTS] = {words_for(pages), sizeof(uint64_t)},
		[XSEG_TABLE_PAGE_DESCRIPTORS] = {pages, sizeof(struct xseg_page_descriptor)},
		[XSEG_TABLE_PAGES] = {pages, XSEG_PAGE},
	};
	uint64_t at = round_up(sizeof(struct xseg_superblock), XSEG_PAGE);
	for (unsigned i = 0; i < XSEG_TABLE_COUNT; i++) {
		/* data starts on a huge page, so that collapsing it wastes nothing */
		if (i == XSEG_TABLE_PAGES && pages > 16 * (LAYOUT_HUGE / XSEG_PAGE))
			at = round_up(at, LAYOUT_HUGE);
		places[i].offset = at;
		places[i].count = shape[i].count;
		places[i].item_size = shape[i].item_size;
		places[i].size = round_up((uint64_t)shape[i].count * shape[i].item_size, XSEG_PAGE);
		at += places[i].size;
	}
	return at;
}

uint32_t layout_pages_for(uint64_t size, uint32_t lanes, uint32_t requests)
{
	struct xseg_table_place places[XSEG_TABLE_COUNT];
	uint64_t low = 0, high = size / XSEG_PAGE;
	while (low < high) {
		uint64_t middle = (low + high + 1) / 2;
		if (layout_places(lanes, requests, (uint32_t)middle, places) <= size)
			low = middle;
		else
			high = middle - 1;
	}
	return (uint32_t)low;
}

uint32_t layout_checksum(const struct xseg_superblock *super)
{
	size_t from = offsetof(struct xseg_superblock, layout_version);
	size_t to = offsetof(struct xseg_superblock, checksum);
	return crc32c(0, (const uint8_t *)super + from, to - from);
}

uint32_t xseg_layout_hash(void)
{
	const uint32_t shape[] = {XSEG_LAYOUT_VERSION, sizeof(struct xseg_superblock),
		sizeof(struct xseg_peer_record), sizeof(struct xseg_lane_record),
		sizeof(struct xseg_port_record), sizeof(struct xseg_edge_record),
		sizeof(struct xseg_stats_block), sizeof(struct xseg_volume_block),
		sizeof(struct xseg_request), sizeof(struct xseg_frame), sizeof(struct xseg_ring),
		sizeof(struct xseg_slot), sizeof(struct xseg_page_descriptor),
		sizeof(struct xseg_volume_info), offsetof(struct xseg_request, frame),
		offsetof(struct xseg_request, extents), offsetof(struct xseg_request, client),
		offsetof(struct xseg_frame, arg0), offsetof(struct xseg_lane_record, bell),
		XSEG_RING_SLOTS, XSEG_FRAMES, XSEG_EXTENTS, XSEG_LANES_MAX, XSEG_PEERS_MAX,
		XSEG_PORTS_MAX, XSEG_EDGES_MAX, XSEG_COUNTERS, XSEG_HISTOGRAMS, HISTOGRAM_BUCKETS,
		XSEG_OP_COUNT, XSEG_TABLE_COUNT};
	return crc32c(0, shape, sizeof(shape));
}

void layout_boot_id(uint8_t id[16])
{
	memset(id, 0, 16);
	FILE *f = fopen("/proc/sys/kernel/random/boot_id", "re");
	if (!f)
		return;
	for (unsigned i = 0; i < 16; i++) {
		unsigned byte;
		if (fscanf(f, "%*[-]") == EOF || fscanf(f, "%2x", &byte) != 1)
			break;
		id[i] = (uint8_t)byte;
	}
	fclose(f);
}

uint64_t layout_pid_ns(void)
{
	struct stat st;
	return stat("/proc/self/ns/pid", &st) == 0 ? (uint64_t)st.st_ino : 0;
}

int layout_why(char *why, int error, const char *format, ...)
{
	if (why) {
		va_list args;
		va_start(args, format);
		vsnprintf(why, XSEG_WHY_SIZE, format, args);
		va_end(args);
	}
	return error;
}
