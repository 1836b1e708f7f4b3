/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fuzzes the segment door. The input is a program for a client and a scribbler:
 *
 *   'd'  a hostile client: it writes what it likes into requests of its own, into its lists of
 *        extents and into the rings. Nobody may even end himself; a good request is served.
 *   'w'  a wild hand over any word of any table, between honest steps, and the reaper, reports
 *        and checks. Programs may refuse and end; they may not crash, spin or leave the segment.
 *   's'  a superblock: what is joined can be looked at.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>
#include <xseg/reap.h>

#include "peers/map/map_format.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/segment_rig.h"
#include "tools/report/fsck.h"
#include "tools/report/metrics.h"
#include "tools/report/report.h"
#include "tools/report/report_trace.h"
#include "xseg/xseg_layout.h"

#define STEPS 400u

struct program {
	struct fuzz_bytes in;
	bool wild;
	unsigned looks;
	uint32_t own[64], own_count;
};

/* --- a client -------------------------------------------------------------------------------- */

/* The composer's one volume, or what no volume has, or an object of the store. */
static uint64_t volume_of(unsigned byte)
{
	return byte < 64 ? byte % 4 : map_format_name_hash("d");
}

/* A request as an honest client would fill it, data pages and all. */
static void step_get(struct program *p)
{
	struct xseg_lane *client = rig.client;
	uint32_t slot;
	if (p->own_count == countof(p->own) || xseg_get(client, &slot))
		return;
	struct xseg_request *r = xseg_at(client, slot);
	struct xseg_frame *f = &r->frame[0];
	*f = (struct xseg_frame){.op = (uint8_t)(fuzz_take(&p->in, 1) % (XSEG_OP_COUNT + 1)),
		.lane = XSEG_LANE_ANY,
		.flags = (uint16_t)fuzz_take(&p->in, 1),
		.key = {.volume = volume_of((unsigned)fuzz_take(&p->in, 1)),
			.object = (uint32_t)fuzz_take(&p->in, 1) % 5}};
	f->offset = fuzz_take(&p->in, 2) * XSEG_SECTOR;
	f->length = (uint32_t)fuzz_take(&p->in, 2) * XSEG_SECTOR % (64 * XSEG_PAGE);
	if (fuzz_take(&p->in, 1) & 1) {
		f->arg0 = fuzz_take(&p->in, 1);
		f->arg1 = fuzz_take(&p->in, 1);
	}
	if (f->length)
		xseg_attach_pages(client, slot, f->offset % XSEG_PAGE, f->length);
	p->own[p->own_count++] = slot;
}

static uint32_t own_index(struct program *p)
{
	return (uint32_t)fuzz_take(&p->in, 1) % p->own_count;
}

static void own_forget(struct program *p, uint32_t index)
{
	p->own[index] = p->own[--p->own_count];
}

static void step_submit(struct program *p)
{
	if (!p->own_count)
		return;
	uint32_t index = own_index(p), slot = p->own[index];
	if (xseg_submit(rig.client, slot, rig.port[fuzz_take(&p->in, 1) % RIG_PEERS]) == 0)
		own_forget(p, index);
	xseg_turn_end(rig.client);
}

static void step_put(struct program *p)
{
	if (!p->own_count)
		return;
	uint32_t index = own_index(p), slot = p->own[index];
	own_forget(p, index);
	xseg_put(rig.client, slot);
}

static void client_turn(struct program *p)
{
	struct xseg_hint_message hints[16];
	uint32_t count = xseg_poll(rig.client, hints, 16);
	for (uint32_t i = 0; i < count; i++) {
		if (xseg_receive(rig.client, hints[i].request))
			continue;
		if (p->own_count < countof(p->own))
			p->own[p->own_count++] = hints[i].request;
		else
			xseg_put(rig.client, hints[i].request);
	}
	xseg_turn_end(rig.client);
}

/* --- a hostile one --------------------------------------------------------------------------- */

/* Any byte of a request of ours, but for the word: without that it would not be ours. */
static void step_scribble_own(struct program *p)
{
	if (!p->own_count)
		return;
	uint8_t *request = (uint8_t *)xseg_at(rig.client, p->own[own_index(p)]);
	size_t size = 1u << fuzz_take(&p->in, 1) % 4;
	size_t at = sizeof(uint64_t) +
		    fuzz_take(&p->in, 2) % (sizeof(struct xseg_request) - 2 * sizeof(uint64_t));
	uint64_t value = fuzz_take(&p->in, size);
	at = at / size * size;
	memcpy(request + at, &value, size);
}

/* Into the first page of its data: a name, a record, an entry of a list. */
static void step_fill(struct program *p)
{
	if (!p->own_count)
		return;
	const struct xseg_request *r = xseg_at(rig.client, p->own[own_index(p)]);
	uint32_t page = r->extent_count ? r->extents[0].page : XSEG_NONE;
	size_t at = fuzz_take(&p->in, 1), size = 1 + fuzz_take(&p->in, 1) % 32;
	for (; size && p->in.left && page < rig.seg->page_count; size--)
		xseg_page_address(rig.seg, page)[at++] = (uint8_t)fuzz_take(&p->in, 1);
}

/* More runs than fit into the slot, in a list page of ours. */
static void step_list(struct program *p)
{
	if (!p->own_count)
		return;
	struct xseg_request *r = xseg_at(rig.client, p->own[own_index(p)]);
	uint32_t list = (uint32_t)fuzz_take(&p->in, 1), n = (uint32_t)fuzz_take(&p->in, 1);
	r->extent_count = (uint16_t)(XSEG_EXTENTS + n);
	r->list[0] = list < rig.seg->page_count ? list : XSEG_NONE;
	for (uint32_t i = 0; i < n && r->list[0] != XSEG_NONE; i++) {
		struct xseg_extent run = {.page = (uint32_t)fuzz_take(&p->in, 1) % 64, .count = 1};
		memcpy(xseg_page_address(rig.seg, r->list[0]) + i * sizeof(run), &run, sizeof(run));
	}
}

static void step_hint(struct program *p)
{
	struct xseg_lane *client = rig.client;
	uint32_t to = rig.seg->ports[rig.port[0]].lane[0];
	uint32_t slot = (uint32_t)fuzz_take(&p->in, 1), kind = (uint32_t)fuzz_take(&p->in, 1) % 3;
	if (to < XSEG_LANES_MAX && client->tx[to].ring) /* the wild hand may have been there */
		xseg_ring_put(&client->tx[to], slot == 255 ? ~0u : slot % 70, kind);
}

/* --- a wild hand ----------------------------------------------------------------------------- */

/* Of any table but the pages: `item`, a word in it, its new value. */
static void step_poke(struct program *p)
{
	const struct xseg_superblock *super = rig.seg->super;
	unsigned which = (unsigned)fuzz_take(&p->in, 1) % XSEG_TABLE_PAGES;
	uint64_t item = fuzz_take(&p->in, 1), at = fuzz_take(&p->in, 2) & ~7ull;
	unsigned width = 1u << fuzz_take(&p->in, 1) % 4;
	uint64_t value = fuzz_take(&p->in, width);
	const struct xseg_table_place *place = &super->tables[which];
	uint64_t offset = (item * place->item_size + at % (place->item_size & ~7ull ?: 8)) &
			  ~(uint64_t)(width - 1);
	if (offset + width <= place->size)
		memcpy(rig.seg->base + place->offset + offset, &value, width);
}

/* All that is shown to people and machines. */
static void look(void)
{
	struct trace trace;
	size_t size = 0;
	json_decref(report_status(rig.seg, json_object(), report_peers(rig.seg)));
	json_decref(report_stats(rig.seg, NULL));
	json_decref(report_segment(rig.seg));
	for (uint32_t slot = 0; slot < rig.seg->request_count; slot++)
		if (report_trace_take(rig.seg, slot, &trace) == 0)
			json_decref(report_trace_details(rig.seg, &trace));
	char *text = metrics_text(rig.seg, METRICS_OPEN, &size);
	must(text && size >= 6 && !memcmp(text + size - 6, "# EOF\n", 6));
	free(text);
}

static void check(bool repair)
{
	struct fsck fsck;
	struct fsck_repair done;
	if (fsck_run(rig.seg, 1, &fsck))
		return;
	if (repair)
		fsck_repair(rig.seg, &fsck, 0, &done);
	fsck_free(&fsck);
}

static void step_repair(struct program *p)
{
	struct xseg_reap_report report;
	switch (fuzz_take(&p->in, 1) % 8) {
	case 0:
		if (xseg_reap(rig.seg, &report) == 0)
			must(report.pending <= rig.seg->request_count + rig.seg->page_count);
		break;
	case 1:
		if (p->looks++ < 3)
			look();
		break;
	case 2: xseg_request_rehint(rig.seg); break;
	case 3: xseg_page_rehint(rig.seg); break;
	case 4: check(false); break;
	case 5: check(true); break;
	case 6: xseg_reap_fail_port(rig.seg, (uint32_t)fuzz_take(&p->in, 1), -EIO); break;
	default: xseg_rehint_port(rig.client, rig.port[fuzz_take(&p->in, 1) % RIG_PEERS]);
	}
}

/* --- all of it ------------------------------------------------------------------------------- */

static void step(struct program *p)
{
	unsigned what = (unsigned)fuzz_take(&p->in, 1) % (p->wild ? 12 : 9);
	switch (what) {
	case 0:
	case 1: step_get(p); break;
	case 2: step_submit(p); break;
	case 3: rig_serve(); break;
	case 4: client_turn(p); break;
	case 5: step_scribble_own(p); break;
	case 6: step_fill(p); break;
	case 7: p->own_count &&fuzz_take(&p->in, 1) % 2 ? step_put(p) : step_list(p); break;
	case 8: step_hint(p); break;
	case 9:
	case 10: step_poke(p); break;
	default: step_repair(p);
	}
}

static void settle(struct program *p)
{
	for (unsigned i = 0; i < 20; i++) {
		rig_serve();
		client_turn(p);
		while (p->own_count)
			xseg_put(rig.client, p->own[--p->own_count]);
	}
}

/* After all that a good request is served. */
static void still_serves(struct program *p)
{
	uint32_t slot;
	must(xseg_get(rig.client, &slot) == 0);
	struct xseg_request *r = xseg_at(rig.client, slot);
	r->frame[0] = (struct xseg_frame){
		.op = XSEG_OP_PREFETCH, .lane = XSEG_LANE_ANY, .key = {.volume = 1}, .length = 512};
	r->result = -EINPROGRESS;
	must(xseg_submit(rig.client, slot, rig.port[RIG_STORE]) == 0);
	xseg_turn_end(rig.client);
	for (unsigned i = 0; i < 20 && !p->own_count; i++) {
		rig_serve();
		client_turn(p);
	}
	must(p->own_count == 1 && p->own[0] == slot && r->result == 0);
	xseg_put(rig.client, slot);
	p->own_count = 0;
}

static void run(void *context)
{
	struct program *p = context;
	rig_must_hold(!p->wild);
	for (unsigned i = 0; i < STEPS && p->in.left; i++)
		step(p);
	if (!p->wild) {
		settle(p);
		still_serves(p);
	}
	rig_must_hold(false);
}

/* --- superblocks ----------------------------------------------------------------------------- */

static void join(struct fuzz_bytes in)
{
	char path[64];
	struct xseg seg;
	struct xseg_superblock super, good;
	memcpy(&good, rig.seg->base, sizeof(good));
	memcpy(&super, &good, sizeof(super));
	bool sum = fuzz_take(&in, 1) & 1;
	while (in.left >= 4) {
		size_t at = fuzz_take(&in, 2) % (sizeof(super) - 8),
		       size = 1 + fuzz_take(&in, 1) % 8;
		uint64_t value = fuzz_take(&in, size);
		memcpy((uint8_t *)&super + at, &value, size);
	}
	if (sum)
		super.checksum = layout_checksum(&super);
	must(pwrite(rig.image, &super, sizeof(super), 0) == sizeof(super));
	snprintf(path, sizeof(path), "/proc/self/fd/%d", rig.image);
	int rc = xseg_segment_join_path(path, &seg, NULL);
	if (rc == 0) {
		struct xseg_usage usage;
		xseg_segment_usage(&seg, &usage);
		must(usage.pages && usage.pages <= seg.size >> XSEG_PAGE_SHIFT);
		json_decref(report_segment(&seg));
		xseg_segment_leave(&seg);
	}
	must(pwrite(rig.image, &good, sizeof(good), 0) == sizeof(good));
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	(void)argc;
	(void)argv;
	rig_init();
	return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct program p = {.in = {data, size}};
	unsigned mode = (unsigned)fuzz_take(&p.in, 1);
	if (mode == 's') {
		join(p.in);
		return 0;
	}
	p.wild = mode == 'w';
	rig_try(run, &p);
	return 0;
}
