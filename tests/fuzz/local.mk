# SPDX-License-Identifier: Apache-2.0
# Fuzzers, on demand and with clang: `make fuzz` and tests/fuzz/run.sh build them in a folder of
# their own. CC=clang CFLAGS='-g -O1 -fsanitize=fuzzer-no-link,address,undefined'
FUZZER_FLAGS = $(AM_LDFLAGS) -fsanitize=fuzzer,address,undefined

EXTRA_PROGRAMS += fuzz_nbd
fuzz_nbd_SOURCES = tests/fuzz/fuzz_nbd.c
fuzz_nbd_CFLAGS = $(AM_CFLAGS) $(EVENT_CFLAGS) $(OPENSSL_CFLAGS)
fuzz_nbd_LDFLAGS = $(FUZZER_FLAGS)
fuzz_nbd_LDADD = $(nbd_rig_libs)

EXTRA_PROGRAMS += fuzz_vhost
fuzz_vhost_SOURCES = tests/fuzz/fuzz_vhost.c tests/fuzz/fuzz.h peers/front/front_data.c \
	peers/front/vhost_guard.c peers/front/vhost_memory.c peers/front/vhost_request.c \
	peers/front/vhost_packed.c peers/front/vhost_ring.c peers/front/vhost_split.c
fuzz_vhost_CFLAGS = $(AM_CFLAGS)
fuzz_vhost_LDFLAGS = $(FUZZER_FLAGS)
fuzz_vhost_LDADD = libxseg.la

EXTRA_PROGRAMS += fuzz_bridge
fuzz_bridge_SOURCES = tests/fuzz/fuzz_bridge.c tests/fuzz/fuzz.h peers/synapse/wire.h \
	peers/synapse/wire.c peers/synapse/pack.h peers/synapse/pack.c
fuzz_bridge_CFLAGS = $(AM_CFLAGS) $(LZ4_CFLAGS) $(ZSTD_CFLAGS)
fuzz_bridge_LDFLAGS = $(FUZZER_FLAGS)
fuzz_bridge_LDADD = libxseg.la $(LZ4_LIBS) $(ZSTD_LIBS)

EXTRA_PROGRAMS += fuzz_pipeline
fuzz_pipeline_SOURCES = tests/fuzz/fuzz_pipeline.c tests/fuzz/fuzz.h tests/fuzz/roles.c \
	tests/fuzz/roles.h
fuzz_pipeline_CFLAGS = $(AM_CFLAGS) $(JANSSON_CFLAGS)
fuzz_pipeline_LDFLAGS = $(FUZZER_FLAGS)
fuzz_pipeline_LDADD = libtools.la libxseg.la $(JANSSON_LIBS) $(INIH_LIBS)

# modules export the same two names; here two of them live in one program
EXTRA_LTLIBRARIES += libfuzz_volume.la libfuzz_memory.la libfuzz_map.la
CLEANFILES += libfuzz_volume.la libfuzz_memory.la libfuzz_map.la
libfuzz_volume_la_SOURCES = $(volume_la_SOURCES)
libfuzz_volume_la_CFLAGS = $(AM_CFLAGS) $(XXHASH_CFLAGS) -Dpeer_module=fuzz_volume_module \
	-Dpeer_module_interface=fuzz_volume_interface
libfuzz_memory_la_SOURCES = $(blocker_memory_la_SOURCES)
libfuzz_memory_la_CFLAGS = $(AM_CFLAGS) -Dpeer_module=fuzz_memory_module \
	-Dpeer_module_interface=fuzz_memory_interface
# of the mapper just its records
libfuzz_map_la_SOURCES = peers/map/map_format.h peers/map/map_format.c
libfuzz_map_la_CFLAGS = $(AM_CFLAGS) $(XXHASH_CFLAGS)

EXTRA_PROGRAMS += fuzz_map
fuzz_map_SOURCES = tests/fuzz/fuzz_map.c tests/fuzz/fuzz.h
fuzz_map_CFLAGS = $(AM_CFLAGS)
fuzz_map_LDFLAGS = $(FUZZER_FLAGS)
fuzz_map_LDADD = libfuzz_map.la libxseg.la $(XXHASH_LIBS)

# the mapper with its threads, a store in memory below it: a new one for each input
if HAVE_CHECK
EXTRA_PROGRAMS += fuzz_mapper
fuzz_mapper_SOURCES = tests/fuzz/fuzz_mapper.c tests/fuzz/fuzz.h tests/unit/core_rig.c \
	tests/unit/core_rig.h tests/lib/fixture.c tests/lib/fixture.h
fuzz_mapper_CFLAGS = $(AM_CFLAGS) $(CHECK_CFLAGS) $(URCU_CFLAGS) $(EVENT_CFLAGS)
fuzz_mapper_LDFLAGS = $(FUZZER_FLAGS) -Wl,--wrap=_mark_point,--wrap=_ck_assert_failed
fuzz_mapper_LDADD = libmappertest.la libmaptest.la libpeer.la libxseg.la $(CHECK_LIBS) \
	$(URCU_LIBS) $(EVENT_LIBS) $(XXHASH_LIBS) -ldl
endif

EXTRA_PROGRAMS += fuzz_segment
fuzz_segment_SOURCES = tests/fuzz/fuzz_segment.c tests/fuzz/fuzz.h tests/fuzz/segment_rig.c \
	tests/fuzz/segment_rig.h tests/lib/fixture.c tests/lib/fixture.h
fuzz_segment_CFLAGS = $(AM_CFLAGS) $(JANSSON_CFLAGS) $(URCU_CFLAGS) $(EVENT_CFLAGS)
fuzz_segment_LDFLAGS = $(FUZZER_FLAGS) -Wl,--wrap=must_fail
fuzz_segment_LDADD = libfuzz_volume.la libfuzz_memory.la libfuzz_map.la libtools.la libpeer.la \
	libxseg.la $(JANSSON_LIBS) $(INIH_LIBS) $(XXHASH_LIBS) $(URCU_LIBS) $(EVENT_LIBS) -ldl

EXTRA_PROGRAMS += fuzz_control
fuzz_control_SOURCES = tests/fuzz/fuzz_control.c tests/fuzz/fuzz.h tests/fuzz/roles.c \
	tests/fuzz/roles.h tests/lib/fixture.c tests/lib/fixture.h $(keeper_sources)
fuzz_control_CFLAGS = $(xsegd_CFLAGS)
fuzz_control_LDFLAGS = $(FUZZER_FLAGS) -Wl,--wrap=keeper_host_start,--wrap=keeper_host_stop \
	-Wl,--wrap=keeper_check,--wrap=keeper_check_host,--wrap=program_run \
	-Wl,--wrap=inotify_init1
fuzz_control_LDADD = $(xsegd_LDADD)

EXTRA_DIST += tests/fuzz/run.sh tests/fuzz/control.dict tests/fuzz/pipeline.dict tests/fuzz/corpus

# FUZZ_SECONDS each; CI takes 10
.PHONY: fuzz
fuzz:
	@FUZZ_SECONDS=$${FUZZ_SECONDS:-600} bash $(srcdir)/tests/fuzz/run.sh $(abs_builddir)/fuzz
