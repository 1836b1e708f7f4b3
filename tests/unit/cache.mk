# SPDX-License-Identifier: Apache-2.0
if HAVE_CHECK
journal_rig_sources = tests/unit/journal_rig.c tests/unit/journal_rig.h \
	peers/cache/cache_journal.c peers/cache/cache_journal.h \
	peers/cache/cache_journal_group.c peers/cache/cache_journal_group.h \
	peers/cache/cache_journal_log.c peers/cache/cache_journal_log.h \
	peers/cache/cache_journal_file.c peers/cache/cache_journal_scan.c \
	peers/cache/cache_journal_volume.c $(core_lib_tests)
check_PROGRAMS += test_cache_journal test_cache_journal_damage
TESTS += test_cache_journal test_cache_journal_damage
THREAD_TESTS += test_cache_journal
test_cache_journal_SOURCES = tests/unit/test_cache_journal.c $(journal_rig_sources)
test_cache_journal_CFLAGS = $(AM_CFLAGS) $(CHECK_CFLAGS)
test_cache_journal_LDADD = libxseg.la $(CHECK_LIBS)
test_cache_journal_damage_SOURCES = tests/unit/test_cache_journal_damage.c $(journal_rig_sources)
test_cache_journal_damage_CFLAGS = $(AM_CFLAGS) $(CHECK_CFLAGS)
test_cache_journal_damage_LDADD = libxseg.la $(CHECK_LIBS)
endif

if HAVE_CRITERION
check_PROGRAMS += theory_cache
TESTS += theory_cache
theory_cache_SOURCES = tests/property/theory_cache.c $(volume_rig_sources)
theory_cache_CFLAGS = $(AM_CFLAGS) $(CRITERION_CFLAGS)
theory_cache_LDADD = libpeer.la libxseg.la $(URCU_LIBS) $(EVENT_LIBS) $(CRITERION_LIBS)
endif

if HAVE_CHECK
check_PROGRAMS += test_cache_adopt test_cache_flush test_cache_control
TESTS += test_cache_adopt test_cache_flush test_cache_control
THREAD_TESTS += test_cache_adopt test_cache_flush test_cache_control
test_cache_adopt_SOURCES = tests/unit/test_cache_adopt.c tests/unit/cache_rig.c \
	tests/unit/cache_rig.h $(cached_sources) $(core_rig_tests)
test_cache_adopt_CFLAGS = $(AM_CFLAGS) $(CHECK_CFLAGS) $(URCU_CFLAGS) $(EVENT_CFLAGS)
test_cache_adopt_LDADD = $(core_libs_tests)
test_cache_flush_SOURCES = tests/unit/test_cache_flush.c tests/unit/cache_rig.c \
	tests/unit/cache_rig.h $(cached_sources) $(core_rig_tests)
test_cache_flush_CFLAGS = $(AM_CFLAGS) $(CHECK_CFLAGS) $(URCU_CFLAGS) $(EVENT_CFLAGS)
test_cache_flush_LDADD = $(core_libs_tests)
test_cache_control_SOURCES = tests/unit/test_cache_control.c tests/unit/cache_rig.c \
	tests/unit/cache_rig.h $(cached_sources) $(core_rig_tests)
test_cache_control_CFLAGS = $(AM_CFLAGS) $(CHECK_CFLAGS) $(URCU_CFLAGS) $(EVENT_CFLAGS)
test_cache_control_LDADD = $(core_libs_tests)
endif
