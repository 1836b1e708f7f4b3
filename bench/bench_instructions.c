/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One request after the other on one lane, so many times: run under callgrind with two counts,
 * the difference says how many instructions a request takes, repeatable whatever else runs.
 */
#include "bench/hop.h"

int main(int argc, char **argv)
{
	unsigned count = argc == 3 ? (unsigned)strtoul(argv[1], NULL, 10) : 0;
	unsigned depth = argc == 3 ? (unsigned)strtoul(argv[2], NULL, 10) : 0;
	if (count == 0 || depth == 0 || depth > 4096) {
		fprintf(stderr, "usage: bench_instructions COUNT DEPTH\n");
		return 2;
	}
	struct xseg seg;
	struct xseg_lane *lane;
	scratch_segment_unnamed(&seg, 64u << 20, 4, 4096);
	must(xseg_lane_join(&seg, false, &lane) == 0);
	uint32_t port = hop_bind(lane, "stacked");
	hop_stacked(lane, port, count, depth);
	xseg_lane_leave(lane);
	xseg_segment_leave(&seg);
	return 0;
}
