# SPDX-License-Identifier: Apache-2.0
pkglib_LTLIBRARIES += mapperd.la

# the library: plain C over a struct map_store
map_sources = peers/map/map_format.h peers/map/map_store.h peers/map/map_tree.h \
	peers/map/map_volume.h peers/map/map_home.h peers/map/map_sweep.h peers/map/map_step.h \
	peers/map/map_enumeration.h peers/map/map_fsck.h peers/map/map_mark.h peers/map/map_pace.h \
	peers/map/map_format.c peers/map/map_head.c peers/map/map_tree.c peers/map/map_diff.c \
	peers/map/map_bitmap.c peers/map/map_name.c peers/map/map_shown.c peers/map/map_record.c peers/map/map_create.c \
	peers/map/map_change.c peers/map/map_rename.c peers/map/map_remove.c \
	peers/map/map_update.c peers/map/map_cleanup.c peers/map/map_home.c \
	peers/map/map_sweep.c peers/map/map_mark.c peers/map/map_enumeration.c peers/map/map_pace.c \
	peers/map/map_fsck.c peers/map/map_fsck_map.c peers/map/map_repair.c

mapper_sources = peers/map/mapper.h peers/map/mapper.c peers/map/mapper_admin.c \
	peers/map/mapper_background.c peers/map/mapper_call.c peers/map/mapper_control.c \
	peers/map/mapper_detail.c peers/map/mapper_diff.c peers/map/mapper_flatten.c \
	peers/map/mapper_holder.c peers/map/mapper_task.c peers/map/mapper_lease.c peers/map/mapper_list.c \
	peers/map/mapper_lock.c peers/map/mapper_memory.c peers/map/mapper_pages.c \
	peers/map/mapper_pool.c peers/map/mapper_store.c

mapperd_la_SOURCES = $(map_sources) $(mapper_sources)
mapperd_la_CFLAGS = $(AM_CFLAGS) $(XXHASH_CFLAGS)
mapperd_la_LDFLAGS = $(MODULE_LDFLAGS)
mapperd_la_LIBADD = $(XXHASH_LIBS)
