# SPDX-License-Identifier: Apache-2.0
include tests/xseg.mk
include tests/volume.mk
include tests/nbd.mk
include tests/fuzz/local.mk
include tests/blocker.mk
include tests/unit/core.mk
include tests/tools.mk
include tests/scenario/nbd.mk
include tests/watch.mk
include tests/scenario/kill.mk
include tests/crash/local.mk
include tests/cache.mk
include tests/unit/cache.mk
include tests/cached.mk
