# SPDX-License-Identifier: Apache-2.0
# `make bench` runs everything here and writes bench.json; BENCH_FLAGS=--quick takes seconds.
bench_shared = bench/common.c bench/common.h tests/lib/fixture.c tests/lib/fixture.h
bench_hop_shared = bench/hop.c bench/hop.h $(bench_shared)
bench_builds = bench_ring bench_hop bench_instructions bench_policy bench_reap bench_xcache \
	bench_cache bench_port bench_tcp bench_region
bench_bare = bench/bare.c bench/bare.h
bench_rados_sources = bench/bench_rados.c $(bench_bare)
if HAVE_RADOS
bench_builds += bench_rados
bench_rados_SOURCES = $(bench_rados_sources)
bench_rados_LDADD = libxseg.la $(RADOS_LIBS)
endif
bench_s3_sources = bench/bench_s3.c $(bench_bare) peers/blocker/s3/s3_sign.c peers/blocker/s3/s3_sign.h
if HAVE_S3
bench_builds += bench_s3
bench_s3_SOURCES = $(bench_s3_sources)
bench_s3_CFLAGS = $(AM_CFLAGS) $(CURL_CFLAGS)
bench_s3_LDADD = libxseg.la $(CURL_LIBS)
endif
bench_tape_sources = bench/bench_tape.c peers/blocker/tape/tape_drive.h \
	peers/blocker/tape/tape_iscsi.c peers/blocker/tape/tape_scsi.c peers/blocker/tape/tape_scsi.h
if HAVE_TAPE
bench_builds += bench_tape
bench_tape_SOURCES = $(bench_tape_sources)
bench_tape_CFLAGS = $(AM_CFLAGS) $(ISCSI_CFLAGS)
bench_tape_LDADD = libxseg.la $(ISCSI_LIBS)
endif
EXTRA_DIST += $(bench_rados_sources) $(bench_s3_sources) $(bench_tape_sources)
EXTRA_PROGRAMS += $(bench_builds)

bench_ring_SOURCES = bench/bench_ring.c $(bench_shared)
bench_ring_LDADD = libxseg.la
bench_hop_SOURCES = bench/bench_hop.c $(bench_hop_shared)
bench_hop_LDADD = libxseg.la
bench_instructions_SOURCES = bench/bench_instructions.c $(bench_hop_shared)
bench_instructions_LDADD = libxseg.la

bench_reap_SOURCES = bench/bench_reap.c $(bench_shared)
bench_reap_LDADD = libxseg.la

bench_traces = bench/traces.c bench/traces.h
bench_policy_SOURCES = bench/bench_policy.c $(bench_traces) $(bench_shared)
bench_policy_LDADD = libxcache.la libpeer.la libxseg.la -lm
bench_xcache_SOURCES = bench/bench_xcache.c $(bench_shared)
bench_xcache_LDADD = libxcache.la libxseg.la

bench_cache_SOURCES = bench/bench_cache.c $(bench_shared)
bench_cache_LDADD = libxseg.la
bench_port_SOURCES = bench/bench_port.c $(bench_shared)
bench_port_LDADD = libxseg.la
bench_tcp_SOURCES = bench/bench_tcp.c $(bench_shared)
bench_tcp_LDADD = libxseg.la
bench_region_SOURCES = bench/bench_region.c $(bench_shared)
bench_region_LDADD = libxseg-region.la libxseg.la

# a test runs it, too
check_PROGRAMS += bench_volume
bench_volume_SOURCES = bench/bench_volume.c bench/asker.c bench/asker.h $(bench_shared)
bench_volume_LDADD = libpeer.la libxseg.la

# the load, a peer: not installed; tests use it, too
check_LTLIBRARIES += load.la
load_la_SOURCES = bench/load.c bench/load.h bench/load_check.c bench/load_plan.c \
	bench/load_stat.c bench/load_trace.c
load_la_LDFLAGS = $(MODULE_LDFLAGS) -rpath /nowhere
load_la_LIBADD = -lm
# a hop and nothing else, a peer
check_LTLIBRARIES += forward.la
forward_la_SOURCES = bench/forward.c
forward_la_LDFLAGS = $(MODULE_LDFLAGS) -rpath /nowhere
TESTS += tests/scenario/bench_load.sh tests/scenario/bench_tables.sh
EXTRA_DIST += tests/scenario/bench_load.sh tests/scenario/bench_tables.sh

bench_helpers = bench/run.sh bench/instructions.sh bench/memory.sh bench/path.sh bench/recovery.sh \
	bench/cache.sh bench/volumes.sh bench/many.sh bench/stores.sh bench/bridge.sh bench/rehome.sh \
	bench/vhost.sh bench/fuse.sh bench/region.sh
EXTRA_DIST += $(bench_helpers) bench/fio.py bench/path.py bench/path_servers.py \
	bench/cache.py bench/cache_pipeline.py bench/cache_rig.py bench/instructions.txt \
	bench/recovery.py bench/tables.py \
	bench/volumes.py bench/volumes_rig.py bench/many.py bench/stores.py bench/bridge.py bench/rehome.py bench/machine.py bench/vhost.py bench/fuse.py bench/plot.py
CLEANFILES += bench.json $(bench_builds)

.PHONY: bench
bench: all $(bench_builds) bench_volume relay vhost_check load.la forward.la blocker_meddle.la
	SKERRY_BUILD='$(abs_top_builddir)' bash $(srcdir)/bench/run.sh --json bench.json $(BENCH_FLAGS)
