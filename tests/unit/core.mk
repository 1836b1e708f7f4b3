# SPDX-License-Identifier: Apache-2.0
core_libs_tests = $(unit_libs) libpeer.la libxseg.la $(CHECK_LIBS) $(URCU_LIBS) $(EVENT_LIBS) -ldl

if HAVE_CHECK
base_unit_tests = test_base_bits test_base_crc32c test_base_histogram test_base_log test_base_name test_base_notify test_base_path \
	test_base_size test_base_slab test_base_time
core_unit_tests = test_core_call test_core_client test_core_data test_core_flush test_core_host \
	test_core_job test_core_lane test_core_man test_core_module test_core_option \
	test_core_pages test_core_peer test_core_retry test_core_spec \
	test_core_volume test_core_worker test_xcache test_xcache_policy
check_PROGRAMS += $(base_unit_tests) $(core_unit_tests)
TESTS += $(base_unit_tests) $(core_unit_tests)
THREAD_TESTS += test_core_call test_core_flush test_core_host test_core_retry test_core_worker

test_base_bits_SOURCES = tests/unit/test_base_bits.c
test_base_bits_LDADD = $(unit_libs) libxseg.la $(CHECK_LIBS)
test_base_crc32c_SOURCES = tests/unit/test_base_crc32c.c
test_base_crc32c_LDADD = $(unit_libs) libxseg.la $(CHECK_LIBS)
test_base_histogram_SOURCES = tests/unit/test_base_histogram.c
test_base_histogram_LDADD = $(unit_libs) libxseg.la $(CHECK_LIBS)
test_base_log_SOURCES = tests/unit/test_base_log.c
test_base_log_LDADD = $(unit_libs) libxseg.la $(CHECK_LIBS)
test_base_name_SOURCES = tests/unit/test_base_name.c
test_base_name_LDADD = $(unit_libs) libxseg.la $(CHECK_LIBS)
test_base_notify_SOURCES = tests/unit/test_base_notify.c
test_base_notify_LDADD = $(unit_libs) libxseg.la $(CHECK_LIBS)
test_base_path_SOURCES = tests/unit/test_base_path.c
test_base_path_LDADD = $(unit_libs) libxseg.la $(CHECK_LIBS)
test_base_size_SOURCES = tests/unit/test_base_size.c
test_base_size_LDADD = $(unit_libs) libxseg.la $(CHECK_LIBS)
test_base_slab_SOURCES = tests/unit/test_base_slab.c
test_base_slab_LDADD = $(unit_libs) libxseg.la $(CHECK_LIBS)
test_base_time_SOURCES = tests/unit/test_base_time.c
test_base_time_LDADD = $(unit_libs) libxseg.la $(CHECK_LIBS)
test_core_call_SOURCES = tests/unit/test_core_call.c
test_core_call_LDADD = $(core_libs_tests)
test_core_client_SOURCES = tests/unit/test_core_client.c
test_core_client_LDADD = $(core_libs_tests)
test_core_data_SOURCES = tests/unit/test_core_data.c
test_core_data_LDADD = $(core_libs_tests)
test_core_flush_SOURCES = tests/unit/test_core_flush.c
test_core_flush_LDADD = $(core_libs_tests)
test_core_host_SOURCES = tests/unit/test_core_host.c
test_core_host_LDADD = $(core_libs_tests)
test_core_job_SOURCES = tests/unit/test_core_job.c
test_core_job_LDADD = $(core_libs_tests)
test_core_lane_SOURCES = tests/unit/test_core_lane.c
test_core_lane_LDADD = $(core_libs_tests)
test_core_man_SOURCES = tests/unit/test_core_man.c
test_core_man_LDADD = $(core_libs_tests)
test_core_module_SOURCES = tests/unit/test_core_module.c
test_core_module_LDADD = $(core_libs_tests)
test_core_option_SOURCES = tests/unit/test_core_option.c
test_core_option_LDADD = $(core_libs_tests)
test_core_pages_SOURCES = tests/unit/test_core_pages.c
test_core_pages_LDADD = $(core_libs_tests)
test_core_peer_SOURCES = tests/unit/test_core_peer.c
test_core_peer_LDADD = $(core_libs_tests)
test_core_retry_SOURCES = tests/unit/test_core_retry.c
test_core_retry_LDADD = $(core_libs_tests)
test_core_spec_SOURCES = tests/unit/test_core_spec.c
test_core_spec_LDADD = $(core_libs_tests)
test_core_volume_SOURCES = tests/unit/test_core_volume.c
test_core_volume_LDADD = $(core_libs_tests)
test_core_worker_SOURCES = tests/unit/test_core_worker.c
test_core_worker_LDADD = $(core_libs_tests)
test_xcache_SOURCES = tests/unit/test_xcache.c
test_xcache_LDADD = libxcache.la $(unit_libs) libxseg.la $(CHECK_LIBS)
test_xcache_policy_SOURCES = tests/unit/test_xcache_policy.c bench/traces.c \
	bench/traces.h
test_xcache_policy_CFLAGS = $(AM_CFLAGS) $(CHECK_CFLAGS)
test_xcache_policy_LDADD = libxcache.la $(core_libs_tests) -lm
endif

TESTS += tests/scenario/xsegpeer.sh
QUICK_TESTS += tests/scenario/xsegpeer.sh
EXTRA_DIST += tests/scenario/xsegpeer.sh tests/lib/blocker_stuck.c
