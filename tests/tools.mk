# SPDX-License-Identifier: Apache-2.0
if HAVE_CHECK
tools_unit_tests = test_pipeline test_ctl_output
check_PROGRAMS += $(tools_unit_tests)
TESTS += $(tools_unit_tests)
tools_test_sources = tests/lib/fixture.c tests/lib/fixture.h tests/lib/unit.h

test_pipeline_SOURCES = tests/unit/test_pipeline.c $(tools_test_sources)
test_pipeline_CFLAGS = $(AM_CFLAGS) $(CHECK_CFLAGS) $(JANSSON_CFLAGS)
test_pipeline_LDADD = libtools.la libxseg.la $(JANSSON_LIBS) $(INIH_LIBS) $(CHECK_LIBS)

test_ctl_output_SOURCES = tests/unit/test_ctl_output.c $(tools_test_sources)
test_ctl_output_CFLAGS = $(AM_CFLAGS) $(CHECK_CFLAGS) $(JANSSON_CFLAGS)
test_ctl_output_LDADD = libctl.la $(TOOLS_LIBS) $(SMARTCOLS_LIBS) $(CHECK_LIBS)
endif

tools_scenarios = tests/scenario/xsegctl_output.sh tests/scenario/xsegctl_segment.sh \
	tests/scenario/xsegctl_volume.sh tests/scenario/xsegctl_pipeline.sh \
	tests/scenario/xsegctl_keeper.sh
TESTS += $(tools_scenarios)
EXTRA_DIST += $(tools_scenarios) tests/scenario/xsegctl_lib.sh
