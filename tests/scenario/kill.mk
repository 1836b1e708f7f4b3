# SPDX-License-Identifier: Apache-2.0
# Peers that are killed under load, and clients that connect again.
kill_scenarios = tests/scenario/kill_volume.sh tests/scenario/kill_blocker_file.sh \
	tests/scenario/kill_all.sh tests/scenario/kill_disk.sh \
	tests/scenario/nbd_reconnect_libnbd.sh \
	tests/scenario/nbd_reconnect_qemu.sh tests/scenario/nbd_reconnect_uml.sh \
	tests/scenario/nbd_reconnect_keeper.sh
TESTS += $(kill_scenarios)
QUICK_TESTS += tests/scenario/kill_all.sh
EXTRA_DIST += $(kill_scenarios) tests/scenario/kill_lib.sh tests/scenario/nbd_recover.py \
	tests/scenario/nbd_netlink.py
