# SPDX-License-Identifier: Apache-2.0
# NBD from the client's side: the specification, real clients, rude clients, a real kernel, and
# stores that lose writes.
nbd_scenarios = tests/scenario/nbd_spec.sh tests/scenario/nbd_clients.sh \
	tests/scenario/nbd_siege.sh tests/scenario/nbd_share.sh tests/scenario/nbd_uml.sh \
	tests/scenario/nbd_negative.sh \
	tests/scenario/rude_crowd.sh tests/scenario/demo_kill.sh tests/scenario/nbd_snapshots.sh
nbd_helpers = tests/scenario/nbd_conform.py tests/scenario/nbd_libnbd.py \
	tests/scenario/nbd_snapshot_client.py \
	tests/scenario/nbd_rude.py tests/scenario/nbd_rule.py tests/scenario/nbd_rules_command.py \
	tests/scenario/nbd_rules_data.py tests/scenario/nbd_rules_option.py \
	tests/scenario/nbd_rules_tls.py tests/scenario/nbd_wire.py tests/scenario/rude_crowd_load.py tests/scenario/demo_kill_load.py
TESTS += $(nbd_scenarios)
QUICK_TESTS += tests/scenario/nbd_uml.sh
EXTRA_DIST += $(nbd_scenarios) $(nbd_helpers) tests/scenario/lib.sh tests/lib/blocker_lossy.c \
	tests/lib/uml_xstate.c
