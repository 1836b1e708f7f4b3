# SPDX-License-Identifier: Apache-2.0
noinst_LTLIBRARIES += libxseg.la
libxseg_la_SOURCES = \
	xseg/base/must.c xseg/base/log.c xseg/base/size.c xseg/base/name.c \
	xseg/base/notify.c xseg/base/pass.c xseg/base/path.c xseg/base/slab.c xseg/base/time.c \
	xseg/base/bits.c xseg/base/histogram.c xseg/base/crc32c.c xseg/base/crash.c xseg/xseg_reap.c \
	xseg/xseg_segment.c xseg/xseg_create.c xseg/xseg_layout.c xseg/xseg_layout.h xseg/xseg_map.c \
	xseg/xseg_op.c xseg/xseg_page.c xseg/xseg_ring.c \
	xseg/xseg_request.c xseg/xseg_port.c xseg/xseg_bell.c xseg/xseg_registry.c \
	xseg/xseg_resident.c xseg/xseg_stats.c xseg/xseg_usage.c xseg/xseg_data.c xseg/xseg_data.h xseg/xseg_lane.c
# the default visibility: modules find these in the program that hosts them
libxseg_la_CFLAGS = $(AM_CFLAGS) -fvisibility=default

# For programs that want a volume as memory: <xseg/region.h> is all that it exports.
lib_LTLIBRARIES += libxseg-region.la
libxseg_region_la_SOURCES = xseg/region/region.c xseg/region/region_fault.c xseg/region/region_link.c \
	xseg/region/region_priv.h
libxseg_region_la_LDFLAGS = $(AM_LDFLAGS) -version-info 0:0:0 -export-symbols-regex '^region_(open|why|close|memory|size|sync|prefetch|advise|status)$$'
libxseg_region_la_LIBADD = libxseg.la
