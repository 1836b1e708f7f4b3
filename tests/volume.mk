# SPDX-License-Identifier: Apache-2.0

if HAVE_CHECK
volume_unit_tests = test_volume_span test_volume_extent test_volume_table \
	test_volume_admin test_volume_control test_volume_quiesce test_volume_limit
check_PROGRAMS += $(volume_unit_tests)
TESTS += $(volume_unit_tests)

test_volume_span_SOURCES = tests/unit/test_volume_span.c
test_volume_span_LDADD = $(unit_libs) libxseg.la $(CHECK_LIBS)
test_volume_extent_SOURCES = tests/unit/test_volume_extent.c peers/volume/volume_extent.c
test_volume_extent_CFLAGS = $(AM_CFLAGS) $(CHECK_CFLAGS)
test_volume_extent_LDADD = $(unit_libs) libxseg.la $(CHECK_LIBS)
test_volume_table_SOURCES = tests/unit/test_volume_table.c peers/volume/volume_table.c \
	peers/volume/volume_open.c peers/volume/volume_limit.c
test_volume_table_CFLAGS = $(AM_CFLAGS) $(CHECK_CFLAGS) $(XXHASH_CFLAGS)
test_volume_table_LDADD = $(unit_libs) libxseg.la $(CHECK_LIBS) $(XXHASH_LIBS)
test_volume_admin_SOURCES = tests/unit/test_volume_admin.c
test_volume_admin_LDADD = $(unit_libs) libpeer.la libxseg.la $(URCU_LIBS) $(EVENT_LIBS) $(CHECK_LIBS) \
	$(XXHASH_LIBS)
test_volume_control_SOURCES = tests/unit/test_volume_control.c
test_volume_control_LDADD = libmaptest.la $(unit_libs) libpeer.la libxseg.la $(URCU_LIBS) $(EVENT_LIBS) $(CHECK_LIBS)
test_volume_quiesce_SOURCES = tests/unit/test_volume_quiesce.c
test_volume_quiesce_LDADD = $(unit_libs) libpeer.la libxseg.la $(URCU_LIBS) $(EVENT_LIBS) $(CHECK_LIBS)
test_volume_limit_SOURCES = tests/unit/test_volume_limit.c peers/volume/volume_limit.c
test_volume_limit_CFLAGS = $(AM_CFLAGS) $(CHECK_CFLAGS)
test_volume_limit_LDADD = $(unit_libs) libxseg.la $(CHECK_LIBS)
endif

check_PROGRAMS += volume_model
TESTS += volume_model
volume_model_SOURCES = tests/property/volume_model.c
volume_model_CFLAGS = $(AM_CFLAGS)
volume_model_LDADD = libfixture.la libpeer.la libxseg.la $(URCU_LIBS) $(EVENT_LIBS)

# the negative control's store; -rpath makes libtool build a module that is not installed
check_LTLIBRARIES += blocker_lossy.la
blocker_lossy_la_SOURCES = tests/lib/blocker_lossy.c
blocker_lossy_la_LDFLAGS = $(MODULE_LDFLAGS) -rpath /nowhere

# the data path: notes over a floor in the test, partial objects and trees of volumes as processes
if HAVE_CHECK
check_PROGRAMS += test_volume_intent test_volume_overlay
TESTS += test_volume_intent test_volume_overlay
test_volume_intent_SOURCES = tests/unit/test_volume_intent.c peers/volume/volume_intent.c \
	peers/volume/volume_intent_store.c peers/volume/volume_intent_view.c \
	peers/volume/volume_publish.c
test_volume_intent_CFLAGS = $(AM_CFLAGS) $(CHECK_CFLAGS)
test_volume_intent_LDADD = $(unit_libs) libxseg.la $(CHECK_LIBS)
test_volume_overlay_SOURCES = tests/unit/test_volume_overlay.c
test_volume_overlay_LDADD = $(unit_libs) libpeer.la libxseg.la $(URCU_LIBS) $(EVENT_LIBS) $(CHECK_LIBS)
endif

check_PROGRAMS += volume_tree
TESTS += volume_tree
volume_tree_SOURCES = tests/property/volume_tree.c
volume_tree_CFLAGS = $(AM_CFLAGS)
volume_tree_LDADD = libfixture.la libpeer.la libxseg.la $(URCU_LIBS) $(EVENT_LIBS)

# sizes, names, many clones, long chains
TESTS += tests/scenario/volume_limits.sh
EXTRA_DIST += tests/scenario/volume_limits.sh tests/scenario/volume_edges.py

volume_scenarios = tests/scenario/volume_full.sh tests/scenario/volume_move.sh \
	tests/scenario/mover_laws.sh tests/scenario/mover_killed.sh
TESTS += $(volume_scenarios)
QUICK_TESTS += tests/scenario/mover_killed.sh
EXTRA_DIST += $(volume_scenarios)
