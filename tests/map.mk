# SPDX-License-Identifier: Apache-2.0
# The maps of volumes: the library over a store in memory that can be cut off after any change.
check_LTLIBRARIES += libmaptest.la
libmaptest_la_SOURCES = peers/map/map_format.h peers/map/map_store.h peers/map/map_tree.h \
	peers/map/map_format.c peers/map/map_head.c peers/map/map_tree.c peers/map/map_diff.c \
	peers/map/map_bitmap.c \
	peers/map/map_volume.h peers/map/map_home.h peers/map/map_step.h peers/map/map_name.c peers/map/map_shown.c \
	peers/map/map_record.c peers/map/map_create.c peers/map/map_change.c peers/map/map_rename.c \
	peers/map/map_remove.c peers/map/map_update.c peers/map/map_cleanup.c peers/map/map_home.c \
	tests/lib/map_memory.c tests/lib/map_memory.h
libmaptest_la_CFLAGS = $(AM_CFLAGS) $(XXHASH_CFLAGS)
libmaptest_la_LIBADD = libxseg.la $(XXHASH_LIBS)


if HAVE_CHECK
check_PROGRAMS += test_map_format test_map_head test_map_tree
TESTS += test_map_format test_map_head test_map_tree
test_map_format_SOURCES = tests/unit/test_map_format.c
test_map_format_LDADD = libmaptest.la $(unit_libs) libxseg.la $(CHECK_LIBS)
test_map_head_SOURCES = tests/unit/test_map_head.c tests/unit/map_tree_rig.h
test_map_head_CFLAGS = $(AM_CFLAGS) $(CHECK_CFLAGS)
test_map_head_LDADD = libmaptest.la $(unit_libs) libxseg.la $(CHECK_LIBS)
test_map_tree_SOURCES = tests/unit/test_map_tree.c tests/unit/map_tree_rig.h
test_map_tree_CFLAGS = $(AM_CFLAGS) $(CHECK_CFLAGS)
test_map_tree_LDADD = libmaptest.la $(unit_libs) libxseg.la $(CHECK_LIBS)
endif

if HAVE_CRITERION
check_PROGRAMS += theory_map_tree
TESTS += theory_map_tree
theory_map_tree_SOURCES = tests/property/theory_map_tree.c
theory_map_tree_CFLAGS = $(AM_CFLAGS) $(CRITERION_CFLAGS)
theory_map_tree_LDADD = libmaptest.la libfixture.la libxseg.la $(CRITERION_LIBS)
endif

# names, snapshots, clones, homes
if HAVE_CHECK
check_PROGRAMS += test_map_volume test_map_volume_cut test_map_home
TESTS += test_map_volume test_map_volume_cut test_map_home
test_map_volume_SOURCES = tests/unit/test_map_volume.c tests/unit/map_volume_rig.h
test_map_volume_cut_SOURCES = tests/unit/test_map_volume_cut.c tests/unit/map_volume_rig.h
test_map_volume_cut_CFLAGS = $(AM_CFLAGS) $(CHECK_CFLAGS)
test_map_volume_cut_LDADD = libmaptest.la $(unit_libs) libxseg.la $(CHECK_LIBS)
test_map_volume_CFLAGS = $(AM_CFLAGS) $(CHECK_CFLAGS)
test_map_volume_LDADD = libmaptest.la $(unit_libs) libxseg.la $(CHECK_LIBS)
test_map_home_SOURCES = tests/unit/test_map_home.c
test_map_home_LDADD = libmaptest.la $(unit_libs) libxseg.la $(CHECK_LIBS)
endif

if HAVE_CRITERION
check_PROGRAMS += theory_map_volume
TESTS += theory_map_volume
theory_map_volume_SOURCES = tests/property/theory_map_volume.c tests/property/map_model.c \
	tests/property/map_model.h
theory_map_volume_CFLAGS = $(AM_CFLAGS) $(CRITERION_CFLAGS)
theory_map_volume_LDADD = libmaptest.la libfixture.la libxseg.la $(CRITERION_LIBS)
endif

# what nobody needs, what is damaged
libmaptest_la_SOURCES += peers/map/map_sweep.h peers/map/map_sweep.c peers/map/map_mark.h \
	peers/map/map_mark.c peers/map/map_enumeration.h peers/map/map_enumeration.c peers/map/map_pace.h \
	peers/map/map_pace.c peers/map/map_fsck.h peers/map/map_fsck.c peers/map/map_fsck_map.c \
	peers/map/map_repair.c

if HAVE_CHECK
check_PROGRAMS += test_map_sweep test_map_fsck
TESTS += test_map_sweep test_map_fsck
test_map_sweep_SOURCES = tests/unit/test_map_sweep.c tests/unit/map_sweep_rig.h
test_map_sweep_CFLAGS = $(AM_CFLAGS) $(CHECK_CFLAGS)
test_map_sweep_LDADD = libmaptest.la $(unit_libs) libxseg.la $(CHECK_LIBS)
test_map_fsck_SOURCES = tests/unit/test_map_fsck.c tests/unit/map_sweep_rig.h
test_map_fsck_CFLAGS = $(AM_CFLAGS) $(CHECK_CFLAGS)
test_map_fsck_LDADD = libmaptest.la $(unit_libs) libxseg.la $(CHECK_LIBS)
endif

if HAVE_CRITERION
check_PROGRAMS += theory_map_sweep
TESTS += theory_map_sweep
theory_map_sweep_SOURCES = tests/property/theory_map_sweep.c tests/property/map_model.c \
	tests/property/map_model.h
theory_map_sweep_CFLAGS = $(AM_CFLAGS) $(CRITERION_CFLAGS)
theory_map_sweep_LDADD = libmaptest.la libfixture.la libxseg.la $(CRITERION_LIBS)
endif
