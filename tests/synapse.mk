# SPDX-License-Identifier: Apache-2.0
# Bridges between segments.
check_PROGRAMS += relay
relay_SOURCES = tests/lib/relay.c
relay_LDADD = libxseg.la
synapse_scenarios = tests/scenario/synapse_faults.sh tests/scenario/synapse_refusals.sh \
	tests/scenario/pipeline_synapse.sh tests/scenario/cookbook_bridge.sh \
	tests/scenario/tier_faults.sh tests/scenario/mount.sh tests/scenario/bridge_hosts.sh \
	tests/scenario/synapse_terms.sh
TESTS += $(synapse_scenarios)
EXTRA_DIST += $(synapse_scenarios) tests/scenario/synapse_lib.sh tests/scenario/relay_lib.sh tests/stores/synapse_import.sh \
	tests/stores/tier.sh tests/lib/bridge_liar.py
if HAVE_CHECK
check_PROGRAMS += test_synapse_wire
TESTS += test_synapse_wire
test_synapse_wire_SOURCES = tests/unit/test_synapse_wire.c peers/synapse/wire.c peers/synapse/wire.h \
	peers/synapse/pack.c peers/synapse/pack.h
test_synapse_wire_CFLAGS = $(AM_CFLAGS) $(CHECK_CFLAGS) $(LZ4_CFLAGS) $(ZSTD_CFLAGS)
test_synapse_wire_LDADD = $(unit_libs) libxseg.la $(CHECK_LIBS) $(LZ4_LIBS) $(ZSTD_LIBS)
endif
