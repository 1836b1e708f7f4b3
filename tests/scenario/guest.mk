# SPDX-License-Identifier: Apache-2.0
# Volumes under those who use them: databases in a guest, verified load, copies elsewhere.
guest_scenarios = tests/scenario/volume_guest.sh tests/scenario/volume_guest_qemu.sh \
	tests/scenario/volume_prefix.sh tests/scenario/volume_clones.sh \
	tests/scenario/volume_replay.sh
TESTS += $(guest_scenarios)
EXTRA_DIST += $(guest_scenarios) tests/scenario/guest_lib.sh \
	tests/scenario/guest_qemu_lib.sh tests/scenario/guest_db_lib.sh \
	tests/scenario/volume_prefix_write.py
