# SPDX-License-Identifier: Apache-2.0
# What both programs, and their unit tests, are made of.
noinst_LTLIBRARIES += libtools.la
libtools_la_SOURCES = \
	tools/fault.c tools/fault.h tools/job.c tools/job.h tools/kept.c tools/kept.h tools/parse_time.c \
	tools/parse_time.h \
	tools/pipeline.c tools/pipeline.h tools/pipeline_check.c tools/pipeline_diff.c \
	tools/pipeline_diff.h tools/pipeline_keep.c tools/pipeline_keep.h tools/pipeline_priv.h tools/pipeline_running.c \
	tools/pipeline_running.h tools/pipeline_text.c tools/pipeline_write.c tools/program.c tools/program.h \
	tools/report.c tools/report.h tools/report_reap.c tools/report_stats.c tools/report_trace.c tools/report_trace.h \
	tools/fsck.c tools/fsck.h tools/fsck_look.c tools/fsck_pages.c tools/fsck_tables.c \
	tools/metrics.c tools/metrics.h tools/watch.c tools/watch.h
libtools_la_CFLAGS = $(AM_CFLAGS) $(JANSSON_CFLAGS) $(INIH_CFLAGS)

noinst_LTLIBRARIES += libctl.la
libctl_la_SOURCES = \
	tools/ctl.h tools/ctl_ask.c tools/ctl_cache.c tools/ctl_cache.h tools/ctl_cache_ask.c \
	tools/ctl_copy.c tools/ctl_copy.h tools/ctl_export.c \
	tools/ctl_complete.c tools/ctl_attach.c tools/ctl_front.c tools/ctl_front.h \
	tools/ctl_config.c tools/ctl_example.c tools/ctl_help.c tools/ctl_help.h tools/ctl_import.c tools/ctl_import.h \
	tools/ctl_import_copy.c tools/ctl_import_source.c tools/ctl_job.c tools/ctl_join.c tools/ctl_option.c \
	tools/ctl_output.c tools/ctl_output.h tools/ctl_peer.c tools/ctl_pipeline.c tools/ctl_plug.c \
	tools/ctl_plug.h tools/ctl_settle.c tools/ctl_unplug.c \
	tools/ctl_progress.c tools/ctl_progress.h tools/ctl_reap.c tools/ctl_remote.c \
	tools/ctl_remote.h tools/ctl_rpc.c tools/ctl_rpc.h tools/ctl_work.c tools/ctl_work.h \
	tools/ctl_segment.c tools/ctl_stats.c tools/ctl_status.c tools/ctl_status.h \
	tools/ctl_table.c tools/ctl_events.c tools/ctl_fsck.c tools/ctl_log.c tools/ctl_metrics.c tools/ctl_top.c tools/ctl_trace.c tools/ctl_watch.c tools/ctl_watch.h tools/ctl_volume.c tools/ctl_volume.h \
	tools/ctl_map.c tools/ctl_map.h tools/ctl_map_diff.c tools/ctl_map_sweep.c tools/ctl_map_sweep.h \
	tools/ctl_map_tree.c tools/ctl_snap.c tools/ctl_volume_change.c tools/ctl_volume_flatten.c tools/ctl_volume_image.c tools/ctl_volume_image.h \
	tools/ctl_volume_info.c tools/ctl_volume_list.c
libctl_la_CFLAGS = $(AM_CFLAGS) $(JANSSON_CFLAGS) $(SMARTCOLS_CFLAGS) $(EVENT_CFLAGS) \
	$(EVENT_EXTRA_CFLAGS)

TOOLS_LIBS = libtools.la libpeer.la libxseg.la $(JANSSON_LIBS) $(INIH_LIBS)

bin_PROGRAMS += xsegctl
xsegctl_SOURCES = tools/xsegctl.c
xsegctl_CFLAGS = $(AM_CFLAGS) $(JANSSON_CFLAGS)
xsegctl_LDADD = libctl.la $(TOOLS_LIBS) $(SMARTCOLS_LIBS) $(EVENT_EXTRA_LIBS)

sbin_PROGRAMS += xsegd
keeper_sources = \
	tools/keeper.h tools/keeper_adopt.c tools/keeper_ask.c tools/keeper_ask.h \
	tools/keeper_cache.c tools/keeper_cache.h tools/keeper_call.c tools/keeper_check.c tools/keeper_config.c tools/keeper_config.h \
	tools/keeper_job.c tools/keeper_job.h \
	tools/guard.c tools/guard.h tools/keeper_guard.c tools/notice.c tools/notice.h \
	tools/keeper_edge.c tools/keeper_event.c tools/keeper_files.c tools/keeper_host.c \
	tools/keeper_notify.c tools/keeper_reap.c tools/keeper_renew.c tools/keeper_restart.c tools/keeper_save.c \
	tools/keeper_server.c tools/keeper_server.h tools/keeper_spawn.c tools/keeper_store.c \
	tools/keeper_turn.c tools/keeper_watch.c
xsegd_SOURCES = tools/xsegd.c tools/xsegd_man.c tools/xsegd_man.h $(keeper_sources)
xsegd_CFLAGS = $(AM_CFLAGS) $(JANSSON_CFLAGS) $(EVENT_CFLAGS)
xsegd_LDADD = libtools.la libxseg.la $(JANSSON_LIBS) $(INIH_LIBS) $(EVENT_LIBS)

# For those who watch: bpftrace's scripts, and what gdb reads.
bpftracedir = $(pkgdatadir)/bpftrace
dist_bpftrace_DATA = tools/bpftrace/skerry-hops.bt tools/bpftrace/skerry-slow.bt \
	tools/bpftrace/skerry-wakes.bt
gdbdir = $(pkgdatadir)
dist_gdb_DATA = tools/skerry-gdb.py
