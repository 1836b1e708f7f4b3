# SPDX-License-Identifier: Apache-2.0
# The mapper's peer, with a store that fails as it is told to in the same program.
if HAVE_CHECK
check_LTLIBRARIES += libmappertest.la
libmappertest_la_SOURCES = tests/unit/mapper_rig.c tests/unit/mapper_rig.h $(mapper_sources)
libmappertest_la_CFLAGS = $(AM_CFLAGS) $(CHECK_CFLAGS) $(URCU_CFLAGS) $(EVENT_CFLAGS)

check_PROGRAMS += test_mapperd test_mapperd_fault test_mapperd_holder
TESTS += test_mapperd test_mapperd_fault test_mapperd_holder
THREAD_TESTS += test_mapperd test_mapperd_fault test_mapperd_holder
test_mapperd_SOURCES = tests/unit/test_mapperd.c
test_mapperd_LDADD = libmappertest.la libmaptest.la $(core_libs_tests)
test_mapperd_fault_SOURCES = tests/unit/test_mapperd_fault.c
test_mapperd_fault_LDADD = libmappertest.la libmaptest.la $(core_libs_tests)
test_mapperd_holder_SOURCES = tests/unit/test_mapperd_holder.c
test_mapperd_holder_LDADD = libmappertest.la libmaptest.la $(core_libs_tests)

check_PROGRAMS += test_mapperd_kill
TESTS += test_mapperd_kill
test_mapperd_kill_SOURCES = tests/unit/test_mapperd_kill.c
test_mapperd_kill_LDADD = $(unit_libs) libpeer.la libxseg.la $(URCU_LIBS) $(EVENT_LIBS) $(CHECK_LIBS)
endif
