# SPDX-License-Identifier: Apache-2.0
if HAVE_CHECK
check_LTLIBRARIES += libvolumetest.la
libvolumetest_la_SOURCES = peers/volume/volume_record.c peers/volume/volume_extent.c \
	peers/volume/volume_table.c
libvolumetest_la_CFLAGS = $(AM_CFLAGS) $(XXHASH_CFLAGS)
volume_unit_tests = test_volume_record test_volume_span test_volume_extent test_volume_table \
	test_volume_admin
check_PROGRAMS += $(volume_unit_tests)
TESTS += $(volume_unit_tests)

test_volume_record_SOURCES = tests/unit/test_volume_record.c
test_volume_record_CFLAGS = $(AM_CFLAGS) $(CHECK_CFLAGS) $(XXHASH_CFLAGS)
test_volume_record_LDADD = libvolumetest.la $(unit_libs) libxseg.la $(CHECK_LIBS) $(XXHASH_LIBS)

test_volume_span_SOURCES = tests/unit/test_volume_span.c
test_volume_span_CFLAGS = $(AM_CFLAGS) $(CHECK_CFLAGS)
test_volume_span_LDADD = $(unit_libs) libxseg.la $(CHECK_LIBS)

test_volume_extent_SOURCES = tests/unit/test_volume_extent.c
test_volume_extent_CFLAGS = $(AM_CFLAGS) $(CHECK_CFLAGS)
test_volume_extent_LDADD = libvolumetest.la $(unit_libs) libxseg.la $(CHECK_LIBS)

test_volume_table_SOURCES = tests/unit/test_volume_table.c
test_volume_table_CFLAGS = $(AM_CFLAGS) $(CHECK_CFLAGS) $(XXHASH_CFLAGS)
test_volume_table_LDADD = libvolumetest.la $(unit_libs) libxseg.la $(CHECK_LIBS) $(XXHASH_LIBS)

test_volume_admin_SOURCES = tests/unit/test_volume_admin.c
test_volume_admin_CFLAGS = $(AM_CFLAGS) $(CHECK_CFLAGS) $(XXHASH_CFLAGS)
test_volume_admin_LDADD = libvolumetest.la $(unit_libs) libpeer.la libxseg.la $(URCU_LIBS) \
	$(EVENT_LIBS) $(CHECK_LIBS) $(XXHASH_LIBS)
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
