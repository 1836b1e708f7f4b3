# SPDX-License-Identifier: Apache-2.0
# `make bench` runs everything here and writes bench.json; BENCH_FLAGS=--quick takes seconds.
bench_shared = bench/common.c bench/common.h tests/lib/fixture.c tests/lib/fixture.h
bench_hop_shared = bench/hop.c bench/hop.h $(bench_shared)
bench_builds = bench_ring bench_hop bench_instructions bench_reap
EXTRA_PROGRAMS += $(bench_builds)

bench_ring_SOURCES = bench/bench_ring.c $(bench_shared)
bench_ring_LDADD = libxseg.la
bench_hop_SOURCES = bench/bench_hop.c $(bench_hop_shared)
bench_hop_LDADD = libxseg.la
bench_instructions_SOURCES = bench/bench_instructions.c $(bench_hop_shared)
bench_instructions_LDADD = libxseg.la

bench_reap_SOURCES = bench/bench_reap.c $(bench_shared)
bench_reap_LDADD = libxseg.la

bench_helpers = bench/run.sh bench/instructions.sh bench/memory.sh bench/path.sh bench/recovery.sh
EXTRA_DIST += $(bench_helpers) bench/path.py bench/path_servers.py bench/instructions.txt bench/recovery.py
CLEANFILES += bench.json $(bench_builds)

.PHONY: bench
bench: all $(bench_builds)
	SKERRY_BUILD='$(abs_top_builddir)' bash $(srcdir)/bench/run.sh --json bench.json $(BENCH_FLAGS)
