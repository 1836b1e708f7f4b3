# SPDX-License-Identifier: Apache-2.0
# Tests of libxseg: one Check program per file of it, the door, SIGKILL, threads; laws; the model.
xseg_check_cflags = $(AM_CFLAGS) $(CHECK_CFLAGS)
xseg_check_libs = $(unit_libs) libxseg.la $(CHECK_LIBS)

if HAVE_CHECK
xseg_unit_tests = \
	test_xseg_segment test_xseg_layout test_xseg_page test_xseg_ring \
	test_xseg_request test_xseg_port test_xseg_bell test_xseg_registry \
	test_xseg_stats test_xseg_op test_xseg_lane test_xseg_data test_xseg_usage \
	test_xseg_door test_xseg_kill test_xseg_reap \
	test_tsan_xseg
check_PROGRAMS += $(xseg_unit_tests)
TESTS += $(xseg_unit_tests)
THREAD_TESTS += test_tsan_xseg

test_xseg_segment_SOURCES = tests/unit/test_xseg_segment.c
test_xseg_segment_LDADD = $(xseg_check_libs)
test_xseg_layout_SOURCES = tests/unit/test_xseg_layout.c
test_xseg_layout_LDADD = $(xseg_check_libs)
test_xseg_page_SOURCES = tests/unit/test_xseg_page.c
test_xseg_page_LDADD = $(xseg_check_libs)
test_xseg_ring_SOURCES = tests/unit/test_xseg_ring.c
test_xseg_ring_LDADD = $(xseg_check_libs)
test_xseg_request_SOURCES = tests/unit/test_xseg_request.c
test_xseg_request_LDADD = $(xseg_check_libs)
test_xseg_port_SOURCES = tests/unit/test_xseg_port.c
test_xseg_port_LDADD = $(xseg_check_libs)
test_xseg_bell_SOURCES = tests/unit/test_xseg_bell.c
test_xseg_bell_LDADD = $(xseg_check_libs)
test_xseg_registry_SOURCES = tests/unit/test_xseg_registry.c
test_xseg_registry_LDADD = $(xseg_check_libs)
test_xseg_stats_SOURCES = tests/unit/test_xseg_stats.c
test_xseg_stats_LDADD = $(xseg_check_libs)
test_xseg_op_SOURCES = tests/unit/test_xseg_op.c
test_xseg_op_LDADD = $(xseg_check_libs)
test_xseg_lane_SOURCES = tests/unit/test_xseg_lane.c
test_xseg_lane_LDADD = $(xseg_check_libs)
test_xseg_data_SOURCES = tests/unit/test_xseg_data.c
test_xseg_data_LDADD = $(xseg_check_libs)
test_xseg_usage_SOURCES = tests/unit/test_xseg_usage.c
test_xseg_usage_LDADD = $(xseg_check_libs)
test_xseg_door_SOURCES = tests/unit/test_xseg_door.c
test_xseg_door_LDADD = $(xseg_check_libs)
test_xseg_kill_SOURCES = tests/unit/test_xseg_kill.c
test_xseg_kill_LDADD = $(xseg_check_libs)
test_xseg_reap_SOURCES = tests/unit/test_xseg_reap.c
test_xseg_reap_LDADD = $(xseg_check_libs)
test_tsan_xseg_SOURCES = tests/unit/test_tsan_xseg.c
test_tsan_xseg_LDADD = $(xseg_check_libs)
endif

if HAVE_CRITERION
xseg_theories = theory_ring theory_page theory_request theory_xcache
check_PROGRAMS += $(xseg_theories)
TESTS += $(xseg_theories)

theory_ring_SOURCES = tests/property/theory_ring.c
theory_ring_CFLAGS = $(AM_CFLAGS) $(CRITERION_CFLAGS)
theory_ring_LDADD = libfixture.la libxseg.la $(CRITERION_LIBS)
theory_page_SOURCES = tests/property/theory_page.c
theory_page_CFLAGS = $(AM_CFLAGS) $(CRITERION_CFLAGS)
theory_page_LDADD = libfixture.la libxseg.la $(CRITERION_LIBS)
theory_request_SOURCES = tests/property/theory_request.c
theory_request_CFLAGS = $(AM_CFLAGS) $(CRITERION_CFLAGS)
theory_request_LDADD = libfixture.la libxseg.la $(CRITERION_LIBS)
theory_xcache_SOURCES = tests/property/theory_xcache.c
theory_xcache_CFLAGS = $(AM_CFLAGS) $(CRITERION_CFLAGS)
theory_xcache_LDADD = libxcache.la libfixture.la libxseg.la $(CRITERION_LIBS)
endif

TESTS += tests/model/run.sh
EXTRA_DIST += tests/model/run.sh tests/model/bell.pml tests/model/request.pml tests/model/edge.pml
