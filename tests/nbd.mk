# SPDX-License-Identifier: Apache-2.0
# The rig stands in for the core, so it is an archive of its own. Tests and a fuzzer.
EXTRA_LTLIBRARIES += libnbdtest.la
CLEANFILES += libnbdtest.la
libnbdtest_la_SOURCES = tests/unit/nbd_rig.c tests/unit/nbd_rig.h $(front_nbd_la_SOURCES)
libnbdtest_la_CFLAGS = $(AM_CFLAGS) $(EVENT_CFLAGS) $(OPENSSL_CFLAGS)
nbd_rig_libs = libnbdtest.la libfixture.la libxseg.la $(EVENT_LIBS) $(OPENSSL_LIBS)

if HAVE_CHECK
nbd_unit_tests = test_nbd_command test_nbd_conn test_nbd_dirty test_nbd_handshake test_nbd_listen
check_PROGRAMS += $(nbd_unit_tests)
TESTS += $(nbd_unit_tests)

test_nbd_command_SOURCES = tests/unit/test_nbd_command.c
test_nbd_command_LDADD = libunitmain.la $(nbd_rig_libs) $(CHECK_LIBS)
test_nbd_handshake_SOURCES = tests/unit/test_nbd_handshake.c
test_nbd_handshake_LDADD = libunitmain.la $(nbd_rig_libs) $(CHECK_LIBS)
test_nbd_conn_SOURCES = tests/unit/test_nbd_conn.c
test_nbd_conn_LDADD = libunitmain.la $(nbd_rig_libs) $(CHECK_LIBS)
test_nbd_dirty_SOURCES = tests/unit/test_nbd_dirty.c
test_nbd_dirty_LDADD = libunitmain.la $(nbd_rig_libs) $(CHECK_LIBS)
test_nbd_listen_SOURCES = tests/unit/test_nbd_listen.c
test_nbd_listen_LDADD = libunitmain.la $(nbd_rig_libs) $(CHECK_LIBS)
endif
