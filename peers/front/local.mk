# SPDX-License-Identifier: Apache-2.0
front_sources = peers/front/front.h peers/front/front_address.c peers/front/front_control.c peers/front/front_data.c peers/front/front_fdstore.c \
	peers/front/front_listen.c peers/front/front_log.c peers/front/front_volume.c
pkglib_LTLIBRARIES += front_nbd.la
front_nbd_la_SOURCES = \
	peers/front/nbd.h peers/front/nbd_command.h peers/front/nbd_handshake.h peers/front/nbd_proto.h \
	peers/front/nbd_reply.h peers/front/front_nbd.c \
	peers/front/nbd_command.c peers/front/nbd_conn.c peers/front/nbd_control.c peers/front/nbd_data.c peers/front/nbd_dirty.c peers/front/nbd_export.c \
	peers/front/nbd_range.c peers/front/nbd_share.c peers/front/nbd_negotiate.c peers/front/nbd_handshake.c \
	peers/front/nbd_listen.c peers/front/nbd_option.c peers/front/nbd_handover.c peers/front/nbd_patch.c \
	peers/front/nbd_receive.c peers/front/nbd_reply.c peers/front/nbd_request.c \
	peers/front/nbd_send.c peers/front/nbd_overload.c \
	peers/front/nbd_socket.c peers/front/nbd_span.c peers/front/nbd_status.c \
	peers/front/nbd_tls.c $(front_sources) $(tls_sources)
front_nbd_la_CFLAGS = $(AM_CFLAGS) $(EVENT_CFLAGS) $(OPENSSL_CFLAGS)
front_nbd_la_LDFLAGS = $(AM_LDFLAGS) $(MODULE_LDFLAGS)
front_nbd_la_LIBADD = $(EVENT_LIBS) $(OPENSSL_LIBS)

pkglib_LTLIBRARIES += front_vhost.la
front_vhost_la_SOURCES = peers/front/vhost.h peers/front/vhost_memory.h peers/front/vhost_proto.h \
	peers/front/vhost_ring.h peers/front/front_vhost.c peers/front/vhost_config.c \
	peers/front/vhost_device.c peers/front/vhost_guard.c peers/front/vhost_memory.c \
	peers/front/vhost_message.c \
	peers/front/vhost_queue.c peers/front/vhost_region.c peers/front/vhost_request.c \
	peers/front/vhost_packed.c peers/front/vhost_ring.c peers/front/vhost_split.c $(front_sources)
front_vhost_la_CFLAGS = $(AM_CFLAGS) $(EVENT_CFLAGS)
front_vhost_la_LDFLAGS = $(AM_LDFLAGS) $(MODULE_LDFLAGS)
front_vhost_la_LIBADD = $(EVENT_LIBS)

pkglib_LTLIBRARIES += front_region.la
front_region_la_SOURCES = peers/front/regions.h peers/front/front_region.c peers/front/region_attach.c \
	peers/front/region_evict.c peers/front/region_fault.c peers/front/region_fill.c \
	peers/front/region_message.c peers/front/region_order.c peers/front/region_volume.c peers/front/region_write.c $(front_sources)
front_region_la_CFLAGS = $(AM_CFLAGS) $(EVENT_CFLAGS)
front_region_la_LDFLAGS = $(AM_LDFLAGS) $(MODULE_LDFLAGS)
front_region_la_LIBADD = $(EVENT_LIBS)

front_fuse_sources = peers/front/files.h peers/front/files_data.c peers/front/files_device.c \
	peers/front/files_mount.c peers/front/files_open.c peers/front/files_slot.c peers/front/files_tree.c peers/front/front_fuse.c
EXTRA_DIST += $(front_fuse_sources)
if HAVE_FUSE
pkglib_LTLIBRARIES += front_fuse.la
front_fuse_la_SOURCES = $(front_fuse_sources) $(front_sources)
front_fuse_la_CFLAGS = $(AM_CFLAGS) $(EVENT_CFLAGS) $(FUSE_CFLAGS)
front_fuse_la_LDFLAGS = $(AM_LDFLAGS) $(MODULE_LDFLAGS)
front_fuse_la_LIBADD = $(EVENT_LIBS) $(FUSE_LIBS)
endif
