# SPDX-License-Identifier: Apache-2.0
# Re-homing: its table and its record in schedules of a model, two real hosts over one store
# or with one each, three in a ring, and a machine that moves.
if HAVE_CRITERION
check_PROGRAMS += theory_rehome
TESTS += theory_rehome
theory_rehome_SOURCES = tests/property/theory_rehome.c tests/property/rehome_model.c \
	tests/property/rehome_model.h tests/property/rehome_world.c \
	tests/property/rehome_world.h peers/rehome/rehome_table.c peers/rehome/rehome_table.h
theory_rehome_CFLAGS = $(AM_CFLAGS) $(CRITERION_CFLAGS)
theory_rehome_LDADD = libmaptest.la libfixture.la libxseg.la $(CRITERION_LIBS)
endif

# what <peer/rehoming.h> promises is tried with the example
check_PROGRAMS += carry
carry_SOURCES = docs/examples/rehome/carry.c
carry_LDADD = libxseg-rehome.la

rehome_scenarios = tests/scenario/rehome.sh tests/scenario/rehome_store.sh \
	tests/scenario/rehome_stores.sh tests/scenario/rehome_from.sh \
	tests/scenario/rehome_guest.sh tests/scenario/rehome_hosts.sh \
	tests/scenario/rehome_stall.sh tests/scenario/rehome_reads.sh
TESTS += $(rehome_scenarios)
EXTRA_DIST += $(rehome_scenarios) tests/scenario/rehome_lib.sh tests/scenario/hosts_lib.sh \
	tests/scenario/rehome_stamps.py
