# SPDX-License-Identifier: Apache-2.0
# The data path of the cache.
cached_scenarios = tests/scenario/cached_laws.sh tests/scenario/cached_verify.sh
TESTS += $(cached_scenarios)
EXTRA_DIST += $(cached_scenarios)

if HAVE_CHECK
check_PROGRAMS += test_cache_gate
TESTS += test_cache_gate
test_cache_gate_SOURCES = tests/unit/test_cache_gate.c peers/cache/cache_gate.c \
	peers/cache/cache.h $(core_lib_tests)
test_cache_gate_CFLAGS = $(AM_CFLAGS) $(CHECK_CFLAGS)
test_cache_gate_LDADD = $(core_libs_tests)
endif
