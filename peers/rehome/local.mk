# SPDX-License-Identifier: Apache-2.0
pkglib_LTLIBRARIES += rehome.la

rehome_la_SOURCES = peers/rehome/rehome.h peers/rehome/rehome_table.h peers/rehome/rehome_table.c \
	peers/rehome/rehome_main.c peers/rehome/rehome_volume.c peers/rehome/rehome_route.c peers/rehome/rehome_open.c \
	peers/rehome/rehome_pace.c peers/rehome/rehome_source.c peers/rehome/rehome_target.c \
	peers/rehome/rehome_warm.c
rehome_la_LDFLAGS = $(MODULE_LDFLAGS)

# For programs that move volumes: <peer/rehoming.h> is all that it exports. xsegctl is one.
noinst_LTLIBRARIES += librehoming.la
librehoming_la_SOURCES = peers/rehome/rehoming.c peers/rehome/rehoming_fetch.c peers/rehome/rehoming_hold.c \
	peers/rehome/rehoming_priv.h
librehoming_la_CFLAGS = $(AM_CFLAGS) -fvisibility=default
lib_LTLIBRARIES += libxseg-rehome.la
libxseg_rehome_la_SOURCES = peers/core/core_client.c
libxseg_rehome_la_LDFLAGS = $(AM_LDFLAGS) -version-info 0:0:0 \
	-export-symbols-regex '^rehoming_(seed|leech|why|check|step|cancel|info|close)$$'
libxseg_rehome_la_LIBADD = librehoming.la libxseg.la
