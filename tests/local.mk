# SPDX-License-Identifier: Apache-2.0
# What test programs share is compiled once; of these archives each program gets what it asks for.
check_LTLIBRARIES += libfixture.la
libfixture_la_SOURCES = tests/lib/fixture.c tests/lib/fixture.h \
	tests/property/volume_rig.c tests/property/volume_rig.h
# flags of its own: others compile the fixture for themselves, without libtool
libfixture_la_CFLAGS = $(AM_CFLAGS)
if HAVE_CHECK
check_LTLIBRARIES += libunitmain.la libunit.la
libunitmain_la_SOURCES = tests/lib/unit.c tests/lib/unit.h
libunit_la_SOURCES = tests/lib/lane_rig.c tests/lib/lane_rig.h \
	tests/unit/core_rig.c tests/unit/core_rig.h tests/unit/cache_rig.c tests/unit/cache_rig.h
libunit_la_CFLAGS = $(AM_CFLAGS) $(CHECK_CFLAGS) $(URCU_CFLAGS) $(EVENT_CFLAGS)
endif
unit_libs = libunitmain.la libunit.la libfixture.la

include tests/xseg.mk
include tests/volume.mk
include tests/nbd.mk
include tests/vhost.mk
include tests/region.mk
include tests/files.mk
include tests/fuzz/local.mk
include tests/blocker.mk
include tests/synapse.mk
include tests/unit/core.mk
include tests/tools.mk
include tests/scenario/nbd.mk
include tests/scenario/guest.mk
include tests/watch.mk
include tests/scenario/kill.mk
include tests/crash/local.mk
include tests/cache.mk
include tests/map.mk
include tests/rehome.mk
include tests/mapperd.mk
