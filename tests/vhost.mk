# SPDX-License-Identifier: Apache-2.0
# The vhost-user front from the driver's side: the specification, drivers and monitors that mean no
# good, real kernels, kills. And how often data are copied, there and on the rest of their way.
check_PROGRAMS += vhost_check
vhost_check_SOURCES = tests/lib/vhost_check.c tests/lib/vhost_check.h tests/lib/vhost_driver.c \
	tests/lib/vhost_driver.h tests/lib/vhost_rude.c
vhost_check_LDADD = libxseg.la
check_LTLIBRARIES += copies.la
copies_la_SOURCES = tests/lib/copies.c
copies_la_LDFLAGS = $(MODULE_LDFLAGS) -rpath /nowhere
copies_la_LIBADD = -ldl
vhost_scenarios = tests/scenario/copies.sh tests/scenario/vhost.sh tests/scenario/vhost_guest.sh
TESTS += $(vhost_scenarios)
QUICK_TESTS += tests/scenario/vhost.sh
EXTRA_DIST += $(vhost_scenarios)
