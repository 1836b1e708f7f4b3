# SPDX-License-Identifier: Apache-2.0
synapse_common = \
	peers/synapse/wire.h peers/synapse/wire.c \
	peers/synapse/conn.h peers/synapse/conn.c \
	peers/synapse/pack.h peers/synapse/pack.c \
	peers/synapse/address.h peers/synapse/address.c \
	$(tls_sources)
pkglib_LTLIBRARIES += synapse_import.la synapse_export.la
synapse_import_la_SOURCES = $(synapse_common) peers/synapse/import.h \
	peers/synapse/import.c peers/synapse/import_link.c \
	peers/synapse/import_job.c peers/synapse/import_fence.c
synapse_export_la_SOURCES = $(synapse_common) peers/synapse/export.h \
	peers/synapse/export.c peers/synapse/export_session.c \
	peers/synapse/export_request.c peers/synapse/export_fence.c \
	peers/synapse/export_rights.c
synapse_import_la_CFLAGS = $(AM_CFLAGS) $(EVENT_CFLAGS) $(OPENSSL_CFLAGS) $(LZ4_CFLAGS) $(ZSTD_CFLAGS)
synapse_import_la_LDFLAGS = $(AM_LDFLAGS) $(MODULE_LDFLAGS)
synapse_import_la_LIBADD = $(EVENT_LIBS) $(OPENSSL_LIBS) $(LZ4_LIBS) $(ZSTD_LIBS)
synapse_export_la_CFLAGS = $(AM_CFLAGS) $(EVENT_CFLAGS) $(OPENSSL_CFLAGS) $(LZ4_CFLAGS) $(ZSTD_CFLAGS)
synapse_export_la_LDFLAGS = $(AM_LDFLAGS) $(MODULE_LDFLAGS)
synapse_export_la_LIBADD = $(EVENT_LIBS) $(OPENSSL_LIBS) $(LZ4_LIBS) $(ZSTD_LIBS)
dist_doc_DATA += docs/format-bridge.md
