/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A port asked by a bare lane, without a peer's loop and bookkeeping around it: what the server
 * takes, not what the asker costs. Prints one JSON object.
 *
 *   bench_port SEGMENT PORT read|copy|write|fill DEPTH SECONDS SIZE
 *
 * read: pinned, in place; copy: into our pages; write: donated as the pages were; fill: with data.
 * 4 KiB each, all blocks of volume 1's first SIZE bytes (a power of two) in no order.
 */
#include <string.h>
#include <xseg/lane.h>

#include "bench/common.h"

#define BATCH 64u
#define CHUNK 512u

enum kind { KIND_READ, KIND_COPY, KIND_WRITE, KIND_FILL };
static const char *const kinds[] = {"read", "copy", "write", "fill"};

struct asker {
	struct xseg seg;
	struct xseg_lane *lane;
	uint32_t port, blocks, depth;
	enum kind kind;
	uint64_t asked, done, errors, copied; /* copied: reads that were to be pinned */
	struct samples latency, chunk;
};

static void ask(struct asker *a)
{
	uint32_t slot, block = (uint32_t)a->asked++ * 2654435761u % a->blocks;
	bool writes = a->kind >= KIND_WRITE;
	must(xseg_get(a->lane, &slot) == 0);
	must(xseg_attach_pages(a->lane, slot, 0, XSEG_PAGE) == 0);
	struct xseg_request *request = xseg_at(a->lane, slot);
	if (a->kind == KIND_FILL)
		memset(xseg_page_address(&a->seg, request->extents[0].page), (int)a->asked,
			XSEG_PAGE);
	unsigned flags = a->kind == KIND_READ ? XSEG_F_PIN : writes ? XSEG_F_DONATE : 0;
	request->frame[0] = (struct xseg_frame){.op = writes ? XSEG_OP_WRITE : XSEG_OP_READ,
		.lane = XSEG_LANE_ANY,
		.flags = (uint16_t)flags,
		.key = {.volume = 1, .object = block / (XSEG_OBJECT_MAX / XSEG_PAGE)},
		.offset = (uint64_t)block * XSEG_PAGE % XSEG_OBJECT_MAX,
		.length = XSEG_PAGE};
	must(xseg_submit(a->lane, slot, a->port) == 0);
}

/* What has come back; how many. */
static uint32_t collect(struct asker *a)
{
	struct xseg_hint_message m[BATCH];
	uint32_t count = xseg_poll(a->lane, m, BATCH), done = 0;
	for (uint32_t i = 0; i < count && i < 8; i++)
		xseg_prefetch(a->lane, &m[i]);
	for (uint32_t i = 0; i < count && i < 4; i++)
		xseg_prefetch_answer(a->lane, &m[i]);
	for (uint32_t i = 0; i < count; i++) {
		if (i + 8 < count)
			xseg_prefetch(a->lane, &m[i + 8]);
		if (i + 4 < count)
			xseg_prefetch_answer(a->lane, &m[i + 4]);
		if (xseg_receive(a->lane, m[i].request) != 0)
			continue;
		const struct xseg_request *request = xseg_at(a->lane, m[i].request);
		a->errors += request->result != 0;
		a->copied += a->kind == KIND_READ && request->answer_count == 0;
		xseg_put(a->lane, m[i].request);
		done++;
	}
	a->done += done;
	return done;
}

static void one_by_one(struct asker *a, uint64_t end_ns)
{
	for (uint64_t now = clock_now_ns(); now < end_ns;) {
		uint64_t start = a->lane->now_ns = clock_now_ns();
		ask(a);
		xseg_turn_end(a->lane);
		while (collect(a) == 0)
			;
		now = clock_now_ns();
		samples_add(&a->latency, (double)(now - start));
	}
}

static void many(struct asker *a, uint64_t end_ns)
{
	uint64_t begin = clock_now_ns(), next = a->done + CHUNK;
	bool over = false;
	while (!over || a->done < a->asked) {
		a->lane->now_ns = clock_now_ns();
		while (!over && a->asked - a->done < a->depth)
			ask(a);
		xseg_turn_end(a->lane);
		if (collect(a) == 0)
			cpu_relax();
		if (a->done < next || over)
			continue;
		uint64_t now = clock_now_ns();
		samples_add(
			&a->chunk, (double)(a->done - next + CHUNK) * 1e9 / (double)(now - begin));
		begin = now;
		next = a->done + CHUNK;
		over = now >= end_ns;
	}
}

static int usage(void)
{
	fprintf(stderr, "usage: bench_port SEGMENT PORT read|copy|write|fill DEPTH SECONDS SIZE\n");
	return 2;
}

static int parse(struct asker *a, char **word, double *seconds)
{
	char why[XSEG_WHY_SIZE];
	unsigned kind = 0;
	while (kind < countof(kinds) && strcmp(kinds[kind], word[3]))
		kind++;
	a->kind = (enum kind)kind;
	a->depth = (uint32_t)strtoul(word[4], NULL, 10);
	*seconds = strtod(word[5], NULL);
	uint64_t blocks = strtoull(word[6], NULL, 10) / XSEG_PAGE;
	a->blocks = (uint32_t)blocks;
	if (kind == countof(kinds) || a->depth < 1 || a->depth > 1024 || !(*seconds > 0) ||
		blocks == 0 || blocks > 1u << 24 || (blocks & (blocks - 1)))
		return usage();
	if (xseg_segment_join(word[1], &a->seg, why)) {
		fprintf(stderr, "bench_port: %s\n", why);
		return 1;
	}
	if (xseg_lane_join(&a->seg, false, &a->lane) == 0 &&
		xseg_port_find(&a->seg, word[2], &a->port) == 0)
		return 0;
	fprintf(stderr, "bench_port: no lane, or no port %s\n", word[2]);
	return 1;
}

int main(int argc, char **argv)
{
	struct asker *a = calloc(1, sizeof(*a));
	double seconds;
	must(a);
	int status = argc == 7 ? parse(a, argv, &seconds) : usage();
	if (status)
		return status;
	samples_init(&a->latency, 200000);
	samples_init(&a->chunk, 200000);
	uint64_t begin = clock_now_ns(), end = begin + (uint64_t)(seconds * 1e9);
	if (a->depth == 1)
		one_by_one(a, end);
	else
		many(a, end);
	double took = (double)(clock_now_ns() - begin) / 1e9;
	printf("{\"ops\": %llu, \"seconds\": %.6f, \"ops_per_second\": %.1f, "
	       "\"ops_per_second_steady\": %.1f, \"p50_ns\": %.0f, \"p99_ns\": %.0f, "
	       "\"errors\": %llu, \"not_pinned\": %llu}\n",
		(unsigned long long)a->done, took, (double)a->done / took,
		samples_median(&a->chunk), samples_median(&a->latency),
		samples_quantile(&a->latency, 0.99), (unsigned long long)a->errors,
		(unsigned long long)a->copied);
	xseg_lane_leave(a->lane);
	xseg_segment_leave(&a->seg);
	return a->errors ? 1 : 0;
}
