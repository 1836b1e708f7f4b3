# SPDX-License-Identifier: Apache-2.0
pkglib_LTLIBRARIES += tier.la

tier_la_SOURCES = peers/tier/tier.h peers/tier/tier_main.c peers/tier/tier_serve.c peers/tier/tier_read.c \
	peers/tier/tier_change.c peers/tier/tier_fence.c peers/tier/tier_fill.c peers/tier/tier_pull.c \
	peers/tier/tier_object.c peers/tier/tier_log.c peers/tier/tier_load.c peers/tier/tier_blocks.c \
	peers/tier/tier_check.c peers/tier/tier_format.c
tier_la_LDFLAGS = $(MODULE_LDFLAGS)
dist_doc_DATA += docs/format-tier.md
