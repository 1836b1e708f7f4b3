# SPDX-License-Identifier: Apache-2.0
noinst_LTLIBRARIES += libpeer.la
libpeer_la_SOURCES = \
	peers/core/core.h peers/core/core_call.c peers/core/core_client.c peers/core/core_data.c \
	peers/core/core_describe.c peers/core/core_digest.c \
	peers/core/core_flush.c peers/core/core_host.c peers/core/core_job.c peers/core/core_lane.c \
	peers/core/core_level.c \
	peers/core/core_man.c peers/core/core_module.c peers/core/core_notify.c \
	peers/core/core_option.c \
	peers/core/core_pages.c peers/core/core_shard.c peers/core/core_post.c peers/core/core_retry.c \
	peers/core/core_spec.c peers/core/core_store.c peers/core/core_polling.c \
	peers/core/core_volume.c peers/core/core_worker.c
libpeer_la_CFLAGS = $(AM_CFLAGS) -fvisibility=default $(URCU_CFLAGS) $(EVENT_CFLAGS)
libpeer_la_LIBADD = $(URCU_LIBS) $(EVENT_LIBS)

# of modules that use it: only they are linked with OpenSSL
if HAVE_OPENSSL
tls_sources = include/peer/tls.h peers/core/core_tls.c
else
tls_sources = include/peer/tls.h peers/core/core_tls_none.c
endif
EXTRA_DIST += peers/core/core_tls.c peers/core/core_tls_none.c

bin_PROGRAMS += xsegpeer
xsegpeer_SOURCES = peers/core/core_main.c
xsegpeer_CPPFLAGS = $(AM_CPPFLAGS) -DPACKAGE_VERSION='"$(PACKAGE_VERSION)"'
xsegpeer_CFLAGS = $(AM_CFLAGS) $(EVENT_CFLAGS)
# modules resolve the core's and libxseg's symbols in this program, all of them
xsegpeer_LDFLAGS = $(AM_LDFLAGS) -export-dynamic
xsegpeer_LDADD = $(WHOLE_ARCHIVES) \
	$(URCU_LIBS) $(EVENT_LIBS) -ldl
# a sanitizer brings an allocator of its own
if !SANITIZED
xsegpeer_LDADD += $(JEMALLOC_LIBS)
endif
xsegpeer_DEPENDENCIES = libpeer.la libxseg.la
