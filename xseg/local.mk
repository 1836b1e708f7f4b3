# SPDX-License-Identifier: Apache-2.0
noinst_LTLIBRARIES += libxseg.la
libxseg_la_SOURCES = \
	include/base/clock.h include/base/histogram.h include/base/log.h include/base/must.h \
	include/base/name.h include/base/notify.h include/base/path.h include/base/size.h \
	include/base/sm.h \
	include/xseg/bell.h include/xseg/lane.h include/xseg/layout.h include/xseg/op.h \
	include/xseg/page.h include/xseg/port.h include/xseg/registry.h include/xseg/request.h \
	include/xseg/ring.h include/xseg/segment.h include/xseg/stats.h \
	xseg/base/must.c xseg/base/log.c xseg/base/size.c xseg/base/name.c \
	xseg/base/notify.c xseg/base/path.c \
	xseg/base/histogram.c xseg/base/crc32c.c include/base/crc32c.h \
	include/base/crash.h include/base/probe.h xseg/base/crash.c \
	include/xseg/reap.h xseg/xseg_reap.c \
	xseg/xseg_segment.c xseg/xseg_create.c xseg/xseg_layout.c xseg/xseg_layout.h xseg/xseg_map.c \
	xseg/xseg_op.c xseg/xseg_page.c xseg/xseg_ring.c \
	xseg/xseg_request.c xseg/xseg_port.c xseg/xseg_bell.c xseg/xseg_registry.c \
	xseg/xseg_stats.c xseg/xseg_usage.c xseg/xseg_data.c xseg/xseg_data.h xseg/xseg_lane.c
# the default visibility: modules find these in the program that hosts them
libxseg_la_CFLAGS = $(AM_CFLAGS) -fvisibility=default
