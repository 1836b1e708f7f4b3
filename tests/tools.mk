# SPDX-License-Identifier: Apache-2.0
if HAVE_CHECK
tools_unit_tests = test_pipeline test_pipeline_keep test_ctl_output test_fsck test_pipeline_diff \
	test_ctl_table test_ctl_volume test_kept test_program
check_PROGRAMS += $(tools_unit_tests)
TESTS += $(tools_unit_tests)

test_pipeline_SOURCES = tests/unit/test_pipeline.c
test_pipeline_LDADD = $(unit_libs) libtools.la libxseg.la $(JANSSON_LIBS) $(INIH_LIBS) $(CHECK_LIBS)
test_pipeline_keep_SOURCES = tests/unit/test_pipeline_keep.c
test_pipeline_keep_LDADD = $(unit_libs) libtools.la libxseg.la $(JANSSON_LIBS) $(INIH_LIBS) $(CHECK_LIBS)
test_pipeline_diff_SOURCES = tests/unit/test_pipeline_diff.c
test_pipeline_diff_LDADD = $(unit_libs) libtools.la libxseg.la $(JANSSON_LIBS) $(INIH_LIBS) $(CHECK_LIBS)
test_ctl_table_SOURCES = tests/unit/test_ctl_table.c
test_ctl_table_LDADD = $(unit_libs) libctl.la $(TOOLS_LIBS) $(SMARTCOLS_LIBS) $(EVENT_EXTRA_LIBS) $(CHECK_LIBS)
test_ctl_volume_SOURCES = tests/unit/test_ctl_volume.c
test_ctl_volume_LDADD = $(unit_libs) libctl.la libmaptest.la $(TOOLS_LIBS) $(SMARTCOLS_LIBS) \
	$(EVENT_EXTRA_LIBS) $(XXHASH_LIBS) $(CHECK_LIBS)
test_kept_SOURCES = tests/unit/test_kept.c
test_kept_LDADD = $(unit_libs) libtools.la libxseg.la $(JANSSON_LIBS) $(INIH_LIBS) $(CHECK_LIBS)
test_program_SOURCES = tests/unit/test_program.c
test_program_LDADD = $(unit_libs) libtools.la libxseg.la $(JANSSON_LIBS) $(INIH_LIBS) $(CHECK_LIBS)
test_fsck_SOURCES = tests/unit/test_fsck.c
test_fsck_LDADD = $(unit_libs) libtools.la libxseg.la $(JANSSON_LIBS) $(INIH_LIBS) $(CHECK_LIBS)
test_ctl_output_SOURCES = tests/unit/test_ctl_output.c
test_ctl_output_LDADD = $(unit_libs) libctl.la $(TOOLS_LIBS) $(SMARTCOLS_LIBS) $(EVENT_EXTRA_LIBS) $(CHECK_LIBS)
endif

tools_scenarios = tests/scenario/xsegctl_output.sh tests/scenario/xsegctl_segment.sh \
	tests/scenario/xsegctl_volume.sh tests/scenario/xsegctl_pipeline.sh \
	tests/scenario/xsegctl_keeper.sh
TESTS += $(tools_scenarios)
EXTRA_DIST += $(tools_scenarios) tests/scenario/xsegctl_lib.sh

ctl_volume_scenarios = tests/scenario/docs_commands.sh \
	tests/scenario/volume_image.sh tests/scenario/volume_import.sh \
	tests/scenario/volume_two_hosts.sh tests/scenario/volume_two_hosts_cache.sh \
	tests/scenario/volume_two_hosts_journal.sh tests/scenario/volume_two_hosts_kill.sh \
	tests/scenario/volume_two_hosts_late.sh tests/scenario/volume_two_hosts_stores.sh \
	tests/scenario/cookbook_rados.sh tests/scenario/cookbook_stores.sh \
	tests/scenario/volume_verbs.sh
TESTS += $(ctl_volume_scenarios)
EXTRA_DIST += $(ctl_volume_scenarios) tests/scenario/two_hosts_lib.sh

ctl_scenarios = tests/scenario/ctl_cache.sh tests/scenario/ctl_config.sh tests/scenario/ctl_job.sh \
	tests/scenario/ctl_kill.sh tests/scenario/ctl_attached.sh tests/scenario/ctl_plug.sh tests/scenario/ctl_socket.sh
TESTS += $(ctl_scenarios)
EXTRA_DIST += $(ctl_scenarios) tests/scenario/ctl_socket_ask.py

keeper_scenarios = tests/scenario/keeper_guard.sh tests/scenario/keeper_kill.sh tests/scenario/keeper_pause.sh \
	tests/scenario/keeper_give_up.sh tests/scenario/keeper_leases.sh \
	tests/scenario/keeper_stuck.sh tests/scenario/keeper_upgrade.sh \
	tests/scenario/keeper_service.sh
TESTS += $(keeper_scenarios)
EXTRA_DIST += $(keeper_scenarios) tests/scenario/keeper_lib.sh tests/scenario/keeper_load.py \
	tests/scenario/keeper_service_run.py
