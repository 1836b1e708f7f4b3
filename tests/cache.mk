# SPDX-License-Identifier: Apache-2.0
# The cache: peers for the faults of a store, and what it does with them; its parts.
check_LTLIBRARIES += blocker_record.la blocker_meddle.la
blocker_record_la_SOURCES = tests/lib/blocker_record.c
blocker_record_la_LDFLAGS = $(MODULE_LDFLAGS) -rpath /nowhere
blocker_meddle_la_SOURCES = tests/lib/blocker_meddle.c
blocker_meddle_la_LDFLAGS = $(MODULE_LDFLAGS) -rpath /nowhere

cache_fault_scenarios = tests/scenario/cache_kill.sh tests/scenario/cache_host.sh \
	tests/scenario/cache_store.sh tests/scenario/cache_ask.sh tests/scenario/cache_switch.sh \
	tests/scenario/cache_lies.sh
TESTS += $(cache_fault_scenarios)
QUICK_TESTS += tests/scenario/cache_ask.sh
EXTRA_DIST += $(cache_fault_scenarios) tests/scenario/cache_lib.sh tests/crash/cache_log.py \
	tests/crash/cache_rig.py tests/crash/cases_cache.py tests/crash/cases_cache_ask.py

# The data path.
cached_scenarios = tests/scenario/cached_laws.sh tests/scenario/cached_verify.sh
TESTS += $(cached_scenarios)
EXTRA_DIST += $(cached_scenarios)

if HAVE_CHECK
# the same objects as the module's: no flags of its own
check_LTLIBRARIES += libcachetest.la
libcachetest_la_SOURCES = $(cached_sources)
libcachetest_la_LIBADD = libxcache.la
# the rig asks for the cache, so it comes before
cache_libs_tests = $(unit_libs) libcachetest.la libpeer.la libxseg.la $(CHECK_LIBS) \
	$(URCU_LIBS) $(EVENT_LIBS) -ldl

cache_unit_tests = test_cache_admit test_cache_adopt test_cache_control test_cache_flush test_cache_range \
	test_cache_journal test_cache_journal_damage test_cache_bypass test_cache_room
check_PROGRAMS += $(cache_unit_tests)
TESTS += $(cache_unit_tests)
THREAD_TESTS += test_cache_adopt test_cache_control test_cache_flush test_cache_journal \
	test_cache_bypass

test_cache_admit_SOURCES = tests/unit/test_cache_admit.c
test_cache_admit_LDADD = $(cache_libs_tests)
test_cache_adopt_SOURCES = tests/unit/test_cache_adopt.c
test_cache_adopt_LDADD = $(cache_libs_tests)
test_cache_control_SOURCES = tests/unit/test_cache_control.c
test_cache_control_LDADD = $(cache_libs_tests)
test_cache_flush_SOURCES = tests/unit/test_cache_flush.c
test_cache_flush_LDADD = $(cache_libs_tests)
test_cache_range_SOURCES = tests/unit/test_cache_range.c
test_cache_range_LDADD = $(cache_libs_tests)
test_cache_bypass_SOURCES = tests/unit/test_cache_bypass.c
test_cache_bypass_LDADD = $(cache_libs_tests)
test_cache_room_SOURCES = tests/unit/test_cache_room.c
test_cache_room_LDADD = $(cache_libs_tests)

# these two have a rig that stands in for the core
test_cache_journal_SOURCES = tests/unit/test_cache_journal.c tests/unit/journal_rig.c \
	tests/unit/journal_rig.h
test_cache_journal_CFLAGS = $(AM_CFLAGS) $(CHECK_CFLAGS)
test_cache_journal_LDADD = libcachetest.la $(unit_libs) libxseg.la $(CHECK_LIBS)
test_cache_journal_damage_SOURCES = tests/unit/test_cache_journal_damage.c \
	tests/unit/journal_rig.c tests/unit/journal_rig.h
test_cache_journal_damage_CFLAGS = $(AM_CFLAGS) $(CHECK_CFLAGS)
test_cache_journal_damage_LDADD = libcachetest.la $(unit_libs) libxseg.la $(CHECK_LIBS)
endif

if HAVE_CRITERION
check_PROGRAMS += theory_cache
TESTS += theory_cache
theory_cache_SOURCES = tests/property/theory_cache.c
theory_cache_CFLAGS = $(AM_CFLAGS) $(CRITERION_CFLAGS)
theory_cache_LDADD = libfixture.la libpeer.la libxseg.la $(URCU_LIBS) $(EVENT_LIBS) \
	$(CRITERION_LIBS)
endif
