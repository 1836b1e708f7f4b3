# SPDX-License-Identifier: Apache-2.0
# Peers for the faults of a store, and what the cache does with them.
check_LTLIBRARIES += blocker_record.la blocker_meddle.la
blocker_record_la_SOURCES = tests/lib/blocker_record.c
blocker_record_la_LDFLAGS = $(MODULE_LDFLAGS) -rpath /nowhere
blocker_meddle_la_SOURCES = tests/lib/blocker_meddle.c
blocker_meddle_la_LDFLAGS = $(MODULE_LDFLAGS) -rpath /nowhere

cache_fault_scenarios = tests/scenario/cache_kill.sh tests/scenario/cache_host.sh \
	tests/scenario/cache_store.sh tests/scenario/cache_ask.sh tests/scenario/cache_switch.sh \
	tests/scenario/cache_lies.sh
TESTS += $(cache_fault_scenarios)
QUICK_TESTS += tests/scenario/cache_ask.sh
EXTRA_DIST += $(cache_fault_scenarios) tests/scenario/cache_lib.sh tests/crash/cache_log.py \
	tests/crash/cache_rig.py tests/crash/cases_cache.py tests/crash/cases_cache_ask.py
