# SPDX-License-Identifier: Apache-2.0
pkglib_LTLIBRARIES += blocker_null.la blocker_pattern.la blocker_memory.la blocker_file.la

blocker_null_la_SOURCES = peers/blocker/blocker_null.c
blocker_null_la_LDFLAGS = $(MODULE_LDFLAGS)

blocker_pattern_la_SOURCES = peers/blocker/blocker_pattern.c
blocker_pattern_la_LDFLAGS = $(MODULE_LDFLAGS)

blocker_memory_la_SOURCES = \
	peers/blocker/blocker_memory.c \
	peers/blocker/pagemap.c peers/blocker/pagemap.h \
	peers/blocker/pagestore.c peers/blocker/pagestore.h \
	peers/blocker/record.c peers/blocker/record.h
blocker_memory_la_LDFLAGS = $(MODULE_LDFLAGS)

blocker_file_la_SOURCES = \
	peers/blocker/file/blocker_file.c peers/blocker/file/file.h \
	peers/blocker/file/file_disk.c peers/blocker/file/file_disk.h \
	peers/blocker/file/file_fence.c peers/blocker/file/file_fence.h \
	peers/blocker/file/file_crowd.c peers/blocker/file/file_crowd.h \
	peers/blocker/file/file_handover.c peers/blocker/file/file_lock.c \
	peers/blocker/file/file_flush.c peers/blocker/file/file_gate.c \
	peers/blocker/file/file_home.c peers/blocker/file/file_home.h peers/blocker/file/file_list.c \
	peers/blocker/home.c peers/blocker/home.h \
	peers/blocker/file/file_object.c peers/blocker/file/file_op.c \
	peers/blocker/file/file_record.c peers/blocker/file/file_store.c \
	peers/blocker/file/file_threads.c
blocker_file_la_CFLAGS = $(AM_CFLAGS) $(XXHASH_CFLAGS)
blocker_file_la_LDFLAGS = $(MODULE_LDFLAGS)
blocker_file_la_LIBADD = $(XXHASH_LIBS)
if HAVE_LIBURING
blocker_file_la_SOURCES += peers/blocker/file/file_uring.c
blocker_file_la_CFLAGS += $(URING_CFLAGS) $(EVENT_CFLAGS)
blocker_file_la_LIBADD += $(URING_LIBS) $(EVENT_LIBS)
else
blocker_file_la_SOURCES += peers/blocker/file/file_nouring.c
endif
EXTRA_DIST += peers/blocker/file/file_uring.c peers/blocker/file/file_nouring.c

blocker_rados_sources = peers/blocker/rados/blocker_rados.c peers/blocker/rados/ceph.h \
	peers/blocker/rados/ceph_data.c peers/blocker/rados/ceph_fence.c \
	peers/blocker/rados/ceph_index.c peers/blocker/rados/ceph_link.c \
	peers/blocker/rados/ceph_object.c peers/blocker/home.c peers/blocker/home.h
if HAVE_RADOS
pkglib_LTLIBRARIES += blocker_rados.la
blocker_rados_la_SOURCES = $(blocker_rados_sources)
blocker_rados_la_CFLAGS = $(AM_CFLAGS) $(XXHASH_CFLAGS) $(JANSSON_CFLAGS)
blocker_rados_la_LDFLAGS = $(MODULE_LDFLAGS)
blocker_rados_la_LIBADD = $(RADOS_LIBS) $(XXHASH_LIBS) $(JANSSON_LIBS)
endif
EXTRA_DIST += $(blocker_rados_sources)

blocker_redis_sources = peers/blocker/redis/blocker_redis.c peers/blocker/redis/redis.h \
	peers/blocker/redis/redis_link.c peers/blocker/redis/redis_op.c peers/blocker/redis/redis_plain.c \
	peers/blocker/redis/redis_replica.c peers/blocker/redis/redis_cluster.c \
	peers/blocker/redis/redis_script.h peers/blocker/redis/redis_tunnel.c \
	peers/blocker/home.c peers/blocker/home.h
if HAVE_HIREDIS
pkglib_LTLIBRARIES += blocker_redis.la
blocker_redis_la_SOURCES = $(blocker_redis_sources)
blocker_redis_la_CFLAGS = $(AM_CFLAGS) $(XXHASH_CFLAGS) $(EVENT_CFLAGS) $(EVENT_TLS_CFLAGS)
blocker_redis_la_LDFLAGS = $(MODULE_LDFLAGS)
blocker_redis_la_LIBADD = -lhiredis $(EVENT_TLS_LIBS) $(EVENT_LIBS) $(XXHASH_LIBS)
endif
EXTRA_DIST += $(blocker_redis_sources)

blocker_s3_sources = peers/blocker/s3/blocker_s3.c peers/blocker/s3/s3.h \
	peers/blocker/s3/s3_link.c peers/blocker/s3/s3_object.c peers/blocker/s3/s3_op.c \
	peers/blocker/s3/s3_sign.c peers/blocker/s3/s3_sign.h peers/blocker/s3/s3_store.c \
	peers/blocker/home.c peers/blocker/home.h
if HAVE_S3
pkglib_LTLIBRARIES += blocker_s3.la
blocker_s3_la_SOURCES = $(blocker_s3_sources)
blocker_s3_la_CFLAGS = $(AM_CFLAGS) $(XXHASH_CFLAGS) $(EVENT_CFLAGS) $(CURL_CFLAGS)
blocker_s3_la_LDFLAGS = $(MODULE_LDFLAGS)
blocker_s3_la_LIBADD = $(CURL_LIBS) $(EVENT_LIBS) $(XXHASH_LIBS)
endif
EXTRA_DIST += $(blocker_s3_sources)

blocker_tape_sources = peers/blocker/tape/blocker_tape.c peers/blocker/tape/tape.h \
	peers/blocker/tape/tape_clean.c peers/blocker/tape/tape_drive.h \
	peers/blocker/tape/tape_format.h peers/blocker/tape/tape_image.c \
	peers/blocker/tape/tape_index.c peers/blocker/tape/tape_index.h \
	peers/blocker/tape/tape_iscsi.c peers/blocker/tape/tape_log.c \
	peers/blocker/tape/tape_pass.c peers/blocker/tape/tape_scan.c \
	peers/blocker/tape/tape_scsi.c peers/blocker/tape/tape_scsi.h \
	peers/blocker/tape/tape_st.c peers/blocker/tape/tape_work.c \
	peers/blocker/home.c peers/blocker/home.h
if HAVE_TAPE
pkglib_LTLIBRARIES += blocker_tape.la
blocker_tape_la_SOURCES = $(blocker_tape_sources)
blocker_tape_la_CFLAGS = $(AM_CFLAGS) $(XXHASH_CFLAGS) $(ISCSI_CFLAGS)
blocker_tape_la_LDFLAGS = $(MODULE_LDFLAGS)
blocker_tape_la_LIBADD = $(ISCSI_LIBS) -llmdb $(XXHASH_LIBS)
endif
EXTRA_DIST += $(blocker_tape_sources)

dist_doc_DATA += docs/format-blocker-file.md docs/format-blocker-rados.md docs/format-blocker-redis.md \
	docs/format-blocker-s3.md docs/format-blocker-tape.md
