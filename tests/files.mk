# SPDX-License-Identifier: Apache-2.0
# The FUSE front from the side of programs that use files: rights, bytes, kills.
TESTS += tests/scenario/files.sh tests/scenario/files_guest.sh tests/scenario/mount_here.sh \
	tests/scenario/swap_guest.sh
QUICK_TESTS += tests/scenario/files.sh
EXTRA_DIST += tests/scenario/files.sh tests/scenario/files_guest.sh tests/scenario/mount_here.sh \
	tests/scenario/swap_guest.sh tests/scenario/swap_hog.py tests/scenario/files_check.py
