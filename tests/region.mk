# SPDX-License-Identifier: Apache-2.0
# Programs that use a volume as memory, in place of those that people write.

check_PROGRAMS += region_check
region_check_SOURCES = tests/lib/region_check.c
region_check_LDADD = libxseg-region.la libxseg.la
region_scenarios = tests/scenario/region.sh tests/scenario/rehome_region.sh
TESTS += $(region_scenarios)
QUICK_TESTS += tests/scenario/region.sh
EXTRA_DIST += $(region_scenarios) tests/scenario/region_rude.py
