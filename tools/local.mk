# SPDX-License-Identifier: Apache-2.0
# What both programs, and their unit tests, are made of.
noinst_LTLIBRARIES += libtools.la
libtools_la_SOURCES = \
	tools/pipeline/pipeline.c tools/pipeline/pipeline.h tools/pipeline/pipeline_check.c \
	tools/pipeline/pipeline_diff.c tools/pipeline/pipeline_diff.h tools/pipeline/pipeline_edit.h \
	tools/pipeline/pipeline_keep.c tools/pipeline/pipeline_keep.h tools/pipeline/pipeline_running.c \
	tools/pipeline/pipeline_running.h tools/pipeline/pipeline_text.c tools/pipeline/pipeline_write.c \
	tools/report/fault.c tools/report/fault.h tools/report/fsck.c tools/report/fsck.h \
	tools/report/fsck_look.c tools/report/fsck_pages.c tools/report/fsck_tables.c tools/report/job.c \
	tools/report/job.h tools/report/kept.c tools/report/kept.h tools/report/metrics.c \
	tools/report/metrics.h \
	tools/report/program.c tools/report/program.h tools/report/report.c tools/report/report.h \
	tools/report/report_reap.c tools/report/report_stats.c tools/report/report_trace.c \
	tools/report/report_trace.h tools/report/rpc.h tools/report/watch.c tools/report/watch.h
libtools_la_CFLAGS = $(AM_CFLAGS) $(JANSSON_CFLAGS) $(INIH_CFLAGS) $(XXHASH_CFLAGS)
libtools_la_LIBADD = $(XXHASH_LIBS)

noinst_LTLIBRARIES += libctl.la
libctl_la_SOURCES = \
	tools/ctl/ctl.h tools/ctl/ctl_ask.c tools/ctl/ctl_attach.c tools/ctl/ctl_bridge.c tools/ctl/ctl_mount.c tools/ctl/ctl_mount.h tools/ctl/ctl_mount_far.c \
	tools/ctl/ctl_mounted.c tools/ctl/ctl_swap.c tools/ctl/ctl_uri.c tools/ctl/ctl_uri.h tools/ctl/ctl_rehome.c tools/ctl/ctl_rehome_move.c \
	tools/ctl/ctl_hook.c tools/ctl/ctl_hook.h tools/ctl/ctl_rehome.h tools/ctl/ctl_rehome_move.h tools/ctl/ctl_rehome_status.c tools/ctl/ctl_cache.c \
	tools/ctl/ctl_cache.h tools/ctl/ctl_cache_ask.c tools/ctl/ctl_complete.c tools/ctl/ctl_config.c \
	tools/ctl/ctl_copy.c tools/ctl/ctl_copy.h tools/ctl/ctl_events.c \
	tools/ctl/ctl_export.c tools/ctl/ctl_front.c tools/ctl/ctl_front.h tools/ctl/ctl_fsck.c \
	tools/ctl/ctl_help.c tools/ctl/ctl_help.h tools/ctl/ctl_import.c tools/ctl/ctl_import.h \
	tools/ctl/ctl_import_copy.c tools/ctl/ctl_import_source.c tools/ctl/ctl_job.c \
	tools/ctl/ctl_join.c tools/ctl/ctl_log.c tools/ctl/ctl_map.c tools/ctl/ctl_map.h \
	tools/ctl/ctl_map_diff.c tools/ctl/ctl_map_sweep.c tools/ctl/ctl_map_sweep.h \
	tools/ctl/ctl_map_tree.c tools/ctl/ctl_metrics.c tools/ctl/ctl_option.c tools/ctl/ctl_output.c \
	tools/ctl/ctl_output.h tools/ctl/ctl_peer.c tools/ctl/ctl_pipeline.c tools/ctl/ctl_plug.c \
	tools/ctl/ctl_plug.h tools/ctl/ctl_progress.c tools/ctl/ctl_progress.h tools/ctl/ctl_reap.c \
	tools/ctl/ctl_remote.c tools/ctl/ctl_remote.h tools/ctl/ctl_rpc.c tools/ctl/ctl_rpc.h \
	tools/ctl/ctl_screen.c tools/ctl/ctl_screen.h tools/ctl/ctl_segment.c tools/ctl/ctl_settle.c tools/ctl/ctl_snap.c tools/ctl/ctl_stats.c \
	tools/ctl/ctl_status.c tools/ctl/ctl_status.h tools/ctl/ctl_table.c tools/ctl/ctl_tape.c tools/ctl/ctl_top.c \
	tools/ctl/ctl_trace.c tools/ctl/ctl_unplug.c tools/ctl/ctl_volume.c tools/ctl/ctl_volume.h \
	tools/ctl/ctl_volume_change.c tools/ctl/ctl_volume_flatten.c tools/ctl/ctl_volume_move.c tools/ctl/ctl_volume_image.c \
	tools/ctl/ctl_volume_image.h tools/ctl/ctl_volume_info.c tools/ctl/ctl_volume_list.c \
	tools/ctl/ctl_watch.c tools/ctl/ctl_watch.h tools/ctl/ctl_work.c tools/ctl/ctl_work.h
if HAVE_OPENSSL
libctl_la_SOURCES += tools/ctl/ctl_cert.c
else
libctl_la_SOURCES += tools/ctl/ctl_cert_none.c
endif
EXTRA_DIST += tools/ctl/ctl_cert.c tools/ctl/ctl_cert_none.c
libctl_la_CFLAGS = $(AM_CFLAGS) $(OPENSSL_CFLAGS) $(JANSSON_CFLAGS) $(SMARTCOLS_CFLAGS) $(EVENT_CFLAGS) \
	$(EVENT_EXTRA_CFLAGS) $(LIBNBD_CFLAGS) $(NCURSES_CFLAGS)
libctl_la_LIBADD = $(LIBNBD_LIBS) $(NCURSES_LIBS) $(OPENSSL_LIBS)

TOOLS_LIBS = libtools.la librehoming.la libpeer.la libxseg.la $(JANSSON_LIBS) $(INIH_LIBS)

bin_PROGRAMS += xsegctl
xsegctl_SOURCES = tools/ctl/xsegctl.c
xsegctl_CFLAGS = $(AM_CFLAGS) $(JANSSON_CFLAGS)
xsegctl_LDADD = libctl.la $(TOOLS_LIBS) $(SMARTCOLS_LIBS) $(EVENT_EXTRA_LIBS)

sbin_PROGRAMS += xsegd
keeper_sources = \
	tools/keeper/guard.c tools/keeper/guard.h tools/keeper/keeper.h tools/keeper/keeper_adopt.c \
	tools/keeper/keeper_ask.c tools/keeper/keeper_ask.h tools/keeper/keeper_cache.c \
	tools/keeper/keeper_cache.h tools/keeper/keeper_call.c tools/keeper/keeper_check.c \
	tools/keeper/keeper_config.c tools/keeper/keeper_config.h tools/keeper/keeper_edge.c \
	tools/keeper/keeper_event.c tools/keeper/keeper_files.c tools/keeper/keeper_guard.c \
	tools/keeper/keeper_host.c tools/keeper/keeper_job.c tools/keeper/keeper_job.h \
	tools/keeper/keeper_notify.c tools/keeper/keeper_reap.c tools/keeper/keeper_renew.c \
	tools/keeper/keeper_restart.c tools/keeper/keeper_save.c tools/keeper/keeper_server.c \
	tools/keeper/keeper_spawn.c tools/keeper/keeper_store.c tools/keeper/keeper_turn.c \
	tools/keeper/keeper_news.c tools/keeper/keeper_watch.c tools/keeper/notice.c tools/keeper/notice.h
xsegd_SOURCES = tools/keeper/xsegd.c tools/keeper/xsegd_man.c tools/keeper/xsegd_man.h $(keeper_sources)
xsegd_CFLAGS = $(AM_CFLAGS) $(JANSSON_CFLAGS) $(EVENT_CFLAGS)
xsegd_LDADD = libtools.la libxseg.la $(JANSSON_LIBS) $(INIH_LIBS) $(EVENT_LIBS)

# For those who watch: bpftrace's scripts, and what gdb reads.
bpftracedir = $(pkgdatadir)/bpftrace
dist_bpftrace_DATA = tools/bpftrace/skerry-hops.bt tools/bpftrace/skerry-slow.bt \
	tools/bpftrace/skerry-wakes.bt
gdbdir = $(pkgdatadir)
dist_gdb_DATA = tools/skerry-gdb.py
