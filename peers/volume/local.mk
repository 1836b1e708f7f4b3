# SPDX-License-Identifier: Apache-2.0
pkglib_LTLIBRARIES += volume.la
volume_la_SOURCES = \
	peers/volume/volume.h peers/volume/volume_record.h peers/volume/volume_span.h \
	peers/volume/volume_extent.h \
	peers/volume/volume.c peers/volume/volume_record.c peers/volume/volume_extent.c \
	peers/volume/volume_table.c peers/volume/volume_step.c peers/volume/volume_load.c \
	peers/volume/volume_task.c peers/volume/volume_admin.c peers/volume/volume_list.c \
	peers/volume/volume_remove.c peers/volume/volume_io.c peers/volume/volume_status.c peers/volume/volume_flight.c peers/volume/volume_front.c \
	peers/volume/volume_tidy.c
volume_la_CFLAGS = $(AM_CFLAGS) $(XXHASH_CFLAGS)
volume_la_LDFLAGS = $(MODULE_LDFLAGS)
volume_la_LIBADD = $(XXHASH_LIBS)
