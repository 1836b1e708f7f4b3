# SPDX-License-Identifier: Apache-2.0
# What both programs, and their unit tests, are made of.
noinst_LTLIBRARIES += libtools.la
libtools_la_SOURCES = \
	tools/fault.c tools/fault.h tools/parse_time.c tools/parse_time.h \
	tools/pipeline.c tools/pipeline.h tools/pipeline_check.c tools/pipeline_priv.h \
	tools/pipeline_text.c tools/program.c tools/program.h \
	tools/report.c tools/report.h tools/report_stats.c
libtools_la_CFLAGS = $(AM_CFLAGS) $(JANSSON_CFLAGS) $(INIH_CFLAGS)

noinst_LTLIBRARIES += libctl.la
libctl_la_SOURCES = \
	tools/ctl.h tools/ctl_ask.c tools/ctl_copy.c tools/ctl_copy.h tools/ctl_export.c \
	tools/ctl_help.c tools/ctl_import.c tools/ctl_join.c tools/ctl_option.c \
	tools/ctl_output.c tools/ctl_output.h tools/ctl_peer.c tools/ctl_pipeline.c \
	tools/ctl_progress.c tools/ctl_progress.h tools/ctl_rpc.c tools/ctl_rpc.h \
	tools/ctl_segment.c tools/ctl_stats.c tools/ctl_status.c tools/ctl_status.h \
	tools/ctl_table.c tools/ctl_volume.c tools/ctl_volume.h
libctl_la_CFLAGS = $(AM_CFLAGS) $(JANSSON_CFLAGS) $(SMARTCOLS_CFLAGS) $(EVENT_CFLAGS)

TOOLS_LIBS = libtools.la libpeer.la libxseg.la $(JANSSON_LIBS) $(INIH_LIBS)

bin_PROGRAMS += xsegctl
xsegctl_SOURCES = tools/xsegctl.c
xsegctl_CFLAGS = $(AM_CFLAGS) $(JANSSON_CFLAGS)
xsegctl_LDADD = libctl.la $(TOOLS_LIBS) $(SMARTCOLS_LIBS)

sbin_PROGRAMS += xsegd
xsegd_SOURCES = tools/xsegd.c tools/xsegd_man.c tools/xsegd_man.h \
	tools/keeper.h tools/keeper_adopt.c tools/keeper_call.c tools/keeper_check.c \
	tools/keeper_edge.c tools/keeper_files.c tools/keeper_host.c tools/keeper_server.c \
	tools/keeper_server.h tools/keeper_turn.c
if HAVE_SYSTEMD
xsegd_SOURCES += tools/keeper_notify.c
else
xsegd_SOURCES += tools/keeper_notify_plain.c
endif
xsegd_CFLAGS = $(AM_CFLAGS) $(JANSSON_CFLAGS) $(EVENT_CFLAGS) $(SYSTEMD_CFLAGS)
xsegd_LDADD = libtools.la libxseg.la $(JANSSON_LIBS) $(INIH_LIBS) $(EVENT_LIBS) $(SYSTEMD_LIBS)
