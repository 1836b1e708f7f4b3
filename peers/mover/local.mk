# SPDX-License-Identifier: Apache-2.0
pkglib_LTLIBRARIES += mover.la

mover_la_SOURCES = peers/mover/mover.h peers/mover/mover_main.c peers/mover/mover_group.c \
	peers/mover/mover_call.c peers/mover/mover_route.c peers/mover/mover_ask.c peers/mover/mover_find.c \
	peers/mover/mover_step.c peers/mover/mover_batch.c peers/mover/mover_out.c peers/mover/mover_record.c \
	peers/mover/mover_work.c peers/mover/mover_copy.c peers/mover/mover_keep.c peers/mover/mover_room.c
mover_la_LDFLAGS = $(MODULE_LDFLAGS)
