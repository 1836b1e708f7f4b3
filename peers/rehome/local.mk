# SPDX-License-Identifier: Apache-2.0
pkglib_LTLIBRARIES += rehome.la

rehome_la_SOURCES = peers/rehome/rehome.h peers/rehome/rehome_table.h peers/rehome/rehome_table.c \
	peers/rehome/rehome_main.c peers/rehome/rehome_volume.c peers/rehome/rehome_route.c peers/rehome/rehome_open.c \
	peers/rehome/rehome_pace.c peers/rehome/rehome_source.c peers/rehome/rehome_target.c \
	peers/rehome/rehome_warm.c
rehome_la_LDFLAGS = $(MODULE_LDFLAGS)
