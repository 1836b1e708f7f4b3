# SPDX-License-Identifier: Apache-2.0
# The sector-stamp checker and what is done to Skerry while it runs.
stamp_core = tests/stamp/sector.c tests/stamp/history.c tests/stamp/journal.c tests/stamp/stamp.h

check_PROGRAMS += stamp
stamp_SOURCES = tests/stamp/stamp.c tests/stamp/load.c tests/stamp/conn.c tests/stamp/conn.h \
	$(stamp_core)
stamp_CFLAGS = $(AM_CFLAGS) $(LIBNBD_CFLAGS)
stamp_LDADD = libxseg.la $(LIBNBD_LIBS)

if HAVE_CHECK
check_PROGRAMS += test_stamp
TESTS += test_stamp
test_stamp_SOURCES = tests/unit/test_stamp.c $(stamp_core)
test_stamp_CFLAGS = $(AM_CFLAGS) $(CHECK_CFLAGS)
test_stamp_LDADD = $(unit_libs) libxseg.la $(CHECK_LIBS)
endif

# -rpath makes libtool build modules that are not installed
check_LTLIBRARIES += crash_shim.la blocker_liar.la
blocker_liar_la_SOURCES = tests/lib/blocker_liar.c
blocker_liar_la_LDFLAGS = $(MODULE_LDFLAGS) -rpath /nowhere
crash_shim_la_SOURCES = tests/lib/crash_shim.c
crash_shim_la_LDFLAGS = $(MODULE_LDFLAGS) -rpath /nowhere
crash_shim_la_LIBADD = -ldl

TESTS += tests/scenario/stamp.sh
EXTRA_DIST += tests/scenario/stamp.sh tests/lib/blocker_liar.c tests/crash/ci.sh \
	tests/crash/crash.py tests/crash/rig.py tests/crash/case.py tests/crash/cases_kill.py \
	tests/crash/cases_control.py \
	tests/crash/cases_fault.py tests/crash/cases_flip.py tests/crash/run.sh \
	tests/crash/cases_volume.py tests/crash/volume_life.py

# All faults, 1000 kills (minutes), or faults at random for HOURS; in a build of their own with
# crash points. ARGS goes to tests/crash/crash.py: make crash ARGS='--seed 7 kill_random'
HOURS = 8
.PHONY: crash stress
crash:
	$(AM_V_at)bash $(srcdir)/tests/crash/run.sh '$(abs_builddir)/crash' $(ARGS)
stress:
	$(AM_V_at)bash $(srcdir)/tests/crash/run.sh '$(abs_builddir)/crash' --stress $(HOURS) $(ARGS)

# Sanitizers would be stepped through, too.
if !SANITIZED
check_PROGRAMS += step
TESTS += step
step_SOURCES = tests/crash/step.c tests/crash/step.h tests/crash/step_scenes.c \
	tests/crash/step_world.c
step_LDADD = libfixture.la libxseg.la
endif
