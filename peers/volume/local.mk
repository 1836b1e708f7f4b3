# SPDX-License-Identifier: Apache-2.0
pkglib_LTLIBRARIES += volume.la
volume_sources = \
	peers/volume/volume.h peers/volume/volume_quiesce.h peers/volume/volume_limit.h \
	peers/volume/volume_control.h peers/volume/volume_map.h peers/volume/volume_intent.h \
	peers/volume/volume_intent_priv.h peers/volume/volume_overlay.h peers/volume/volume_overlay_priv.h \
	peers/volume/volume_flush.h peers/volume/volume_span.h peers/volume/volume_extent.h \
	peers/volume/volume.c peers/volume/volume_table.c peers/volume/volume_open.c \
	peers/volume/volume_step.c peers/volume/volume_task.c peers/volume/volume_load.c \
	peers/volume/volume_lease.c peers/volume/volume_keep.c \
	peers/volume/volume_refence.c peers/volume/volume_renew.c peers/volume/volume_quiesce.c peers/volume/volume_limit.c \
	peers/volume/volume_enter.c peers/volume/volume_admin.c peers/volume/volume_list.c \
	peers/volume/volume_control.c peers/volume/volume_change.c \
	peers/volume/volume_flatten.c peers/volume/volume_adopt.c peers/volume/volume_front.c
# the data path
volume_sources += \
	peers/volume/volume_io.c peers/volume/volume_status.c peers/volume/volume_extent.c \
	peers/volume/volume_map.c peers/volume/volume_intent.c \
	peers/volume/volume_intent_store.c peers/volume/volume_intent_view.c \
	peers/volume/volume_publish.c \
	peers/volume/volume_flush.c peers/volume/volume_overlay.c peers/volume/volume_copy.c \
	peers/volume/volume_first.c
volume_la_SOURCES = $(volume_sources)
volume_la_CFLAGS = $(AM_CFLAGS) $(XXHASH_CFLAGS)
volume_la_LDFLAGS = $(MODULE_LDFLAGS)
volume_la_LIBADD = $(XXHASH_LIBS)
