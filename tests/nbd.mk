# SPDX-License-Identifier: Apache-2.0
nbd_test_sources = tests/lib/fixture.c tests/lib/fixture.h tests/lib/unit.h
nbd_rig_sources = tests/unit/nbd_rig.c tests/unit/nbd_rig.h tests/lib/fixture.c tests/lib/fixture.h \
	$(front_nbd_la_SOURCES)
nbd_rig_libs = libxseg.la $(EVENT_LIBS) $(OPENSSL_LIBS)

if HAVE_CHECK
nbd_unit_tests = test_nbd_command test_nbd_conn test_nbd_handshake test_nbd_listen
check_PROGRAMS += $(nbd_unit_tests)
TESTS += $(nbd_unit_tests)

test_nbd_command_SOURCES = tests/unit/test_nbd_command.c peers/front/nbd_command.c \
	peers/front/nbd_reply.c $(nbd_test_sources)
test_nbd_command_CFLAGS = $(AM_CFLAGS) $(CHECK_CFLAGS)
test_nbd_command_LDADD = libxseg.la $(CHECK_LIBS)

test_nbd_handshake_SOURCES = tests/unit/test_nbd_handshake.c peers/front/nbd_handshake.c \
	peers/front/nbd_option.c $(nbd_test_sources)
test_nbd_handshake_CFLAGS = $(AM_CFLAGS) $(CHECK_CFLAGS)
test_nbd_handshake_LDADD = libxseg.la $(CHECK_LIBS)

test_nbd_conn_SOURCES = tests/unit/test_nbd_conn.c tests/lib/unit.h $(nbd_rig_sources)
test_nbd_conn_CFLAGS = $(AM_CFLAGS) $(CHECK_CFLAGS) $(EVENT_CFLAGS) $(OPENSSL_CFLAGS)
test_nbd_conn_LDADD = $(nbd_rig_libs) $(CHECK_LIBS)

test_nbd_listen_SOURCES = tests/unit/test_nbd_listen.c tests/lib/unit.h $(nbd_rig_sources)
test_nbd_listen_CFLAGS = $(AM_CFLAGS) $(CHECK_CFLAGS) $(EVENT_CFLAGS) $(OPENSSL_CFLAGS)
test_nbd_listen_LDADD = $(nbd_rig_libs) $(CHECK_LIBS)
endif
