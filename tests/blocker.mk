# SPDX-License-Identifier: Apache-2.0
check_PROGRAMS += blocker_check
blocker_check_SOURCES = tests/lib/blocker_check.c tests/lib/blocker_rig.c tests/lib/blocker_rig.h \
	tests/lib/blocker_laws.c tests/lib/blocker_laws_fence.c tests/lib/blocker_laws_pattern.c tests/lib/blocker_records.c \
	tests/lib/blocker_model.c
blocker_check_LDADD = libpeer.la libxseg.la $(URCU_LIBS) $(EVENT_LIBS)

check_LTLIBRARIES += sync_fault.la wrong_clock.la fake_st.la
fake_st_la_SOURCES = tests/lib/fake_st.c
fake_st_la_LDFLAGS = $(MODULE_LDFLAGS) -rpath /nowhere
fake_st_la_LIBADD = -ldl
wrong_clock_la_SOURCES = tests/lib/wrong_clock.c
wrong_clock_la_LDFLAGS = $(MODULE_LDFLAGS) -rpath /nowhere
sync_fault_la_SOURCES = tests/lib/sync_fault.c
sync_fault_la_LDFLAGS = $(MODULE_LDFLAGS) -rpath /nowhere
sync_fault_la_LIBADD = -ldl

blocker_scenarios = tests/scenario/blocker_laws.sh tests/scenario/blocker_memory.sh \
	tests/scenario/blocker_file_start.sh tests/scenario/blocker_file_full.sh \
	tests/scenario/blocker_file_fence.sh tests/scenario/example_lmdb.sh \
	tests/scenario/blocker_file_kill.sh tests/scenario/blocker_file_lost.sh \
	tests/scenario/blocker_file_crash.sh tests/scenario/blocker_file_uring.sh \
	tests/scenario/blocker_rados_faults.sh tests/scenario/blocker_redis_faults.sh \
	tests/scenario/blocker_redis_cluster.sh \
	tests/scenario/blocker_s3_faults.sh tests/scenario/blocker_tape_faults.sh
TESTS += $(blocker_scenarios)
# stores that keep to the laws (blocker_laws.sh, blocker_lib.sh says what such a file is)
EXTRA_DIST += tests/stores/blocker_memory.sh tests/stores/blocker_file.sh \
	tests/stores/blocker_rados.sh tests/stores/blocker_redis.sh tests/stores/blocker_s3.sh \
	tests/stores/blocker_tape.sh tests/scenario/tape_lib.sh \
	tests/scenario/ceph_lib.sh tests/scenario/redis_lib.sh tests/scenario/s3_lib.sh \
	tests/lib/s3_trouble.py
QUICK_TESTS += tests/scenario/blocker_memory.sh tests/scenario/blocker_file_start.sh \
	tests/scenario/blocker_file_lost.sh
EXTRA_DIST += $(blocker_scenarios) tests/scenario/blocker_lib.sh tests/lib/deny_uring.py

if HAVE_CHECK
check_PROGRAMS += test_blocker_pagemap test_blocker_fence
TESTS += test_blocker_pagemap test_blocker_fence
test_blocker_fence_SOURCES = tests/unit/test_blocker_fence.c peers/blocker/file/file_fence.c \
	peers/blocker/file/file_crowd.c \
	peers/blocker/file/file_lock.c
test_blocker_fence_CFLAGS = $(AM_CFLAGS) $(CHECK_CFLAGS)
test_blocker_fence_LDADD = $(unit_libs) libxseg.la $(CHECK_LIBS)
test_blocker_pagemap_SOURCES = tests/unit/test_blocker_pagemap.c peers/blocker/pagemap.c \
	peers/blocker/pagemap.h
if HAVE_S3
check_PROGRAMS += test_blocker_s3_sign
TESTS += test_blocker_s3_sign
endif
if HAVE_TAPE
check_PROGRAMS += test_tape_sense
TESTS += test_tape_sense
endif
test_tape_sense_SOURCES = tests/unit/test_tape_sense.c peers/blocker/tape/tape_scsi.c \
	peers/blocker/tape/tape_scsi.h
test_tape_sense_CFLAGS = $(AM_CFLAGS) $(CHECK_CFLAGS) $(ISCSI_CFLAGS)
test_tape_sense_LDADD = $(unit_libs) libxseg.la $(CHECK_LIBS) $(ISCSI_LIBS)
check_PROGRAMS += test_mover_group
TESTS += test_mover_group
test_mover_group_SOURCES = tests/unit/test_mover_group.c peers/mover/mover_group.c \
	peers/mover/mover.h
test_mover_group_CFLAGS = $(AM_CFLAGS) $(CHECK_CFLAGS)
test_mover_group_LDADD = libpeer.la $(unit_libs) libxseg.la $(CHECK_LIBS) $(URCU_LIBS) $(EVENT_LIBS)
test_blocker_s3_sign_SOURCES = tests/unit/test_blocker_s3_sign.c peers/blocker/s3/s3_sign.c \
	peers/blocker/s3/s3_sign.h
test_blocker_s3_sign_CFLAGS = $(AM_CFLAGS) $(CHECK_CFLAGS)
test_blocker_s3_sign_LDADD = $(unit_libs) libxseg.la $(CHECK_LIBS) $(CURL_LIBS)
test_blocker_pagemap_CFLAGS = $(AM_CFLAGS) $(CHECK_CFLAGS)
test_blocker_pagemap_LDADD = $(unit_libs) libxseg.la $(CHECK_LIBS)
endif
