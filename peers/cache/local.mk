# SPDX-License-Identifier: Apache-2.0
pkglib_LTLIBRARIES += cached.la

cached_sources = peers/cache/cache.h peers/cache/cache_epoch.h peers/cache/cache_object.h \
	peers/cache/cache_volume.h peers/cache/cache_work.h peers/cache/cache_admit.c peers/cache/cache_admit.h peers/cache/cache_main.c peers/cache/cache_size.c \
	peers/cache/cache_io.c peers/cache/cache_read.c peers/cache/cache_write.c \
	peers/cache/cache_fill.c peers/cache/cache_stream.c peers/cache/cache_bucket.c \
	peers/cache/cache_adopt.c peers/cache/cache_range.c peers/cache/cache_wait.c \
	peers/cache/cache_pin.c peers/cache/cache_mode_writeback.c \
	peers/cache/cache_mode_writethrough.c peers/cache/cache_mode_writearound.c \
	peers/cache/cache_bypass.c \
	peers/cache/cache_volume.c peers/cache/cache_meta.c peers/cache/cache_term.c peers/cache/cache_epoch.c \
	peers/cache/cache_flush.h peers/cache/cache_flush.c peers/cache/cache_run.c \
	peers/cache/cache_sync.c peers/cache/cache_barrier.c peers/cache/cache_control.c peers/cache/cache_replay.c \
	peers/cache/cache_journal.h peers/cache/cache_journal.c \
	peers/cache/cache_journal_file.c peers/cache/cache_journal_group.h \
	peers/cache/cache_journal_group.c peers/cache/cache_journal_log.h \
	peers/cache/cache_journal_log.c peers/cache/cache_journal_scan.c \
	peers/cache/cache_journal_volume.c
# the index: in an archive of its own, tests and benchmarks use it without the peer
noinst_LTLIBRARIES += libxcache.la
libxcache_la_SOURCES = peers/cache/xcache.h peers/cache/xcache_priv.h peers/cache/xcache.c \
	peers/cache/xcache_clock2q.c peers/cache/xcache_ghost.c peers/cache/xcache_group.c \
	peers/cache/xcache_lru.c peers/cache/xcache_object.c peers/cache/xcache_queue.c \
	peers/cache/xcache_s3fifo.c
cached_la_SOURCES = $(cached_sources)
cached_la_LIBADD = libxcache.la
cached_la_LDFLAGS = $(MODULE_LDFLAGS)

dist_doc_DATA += docs/format-cache-journal.md
