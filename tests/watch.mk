# SPDX-License-Identifier: Apache-2.0
# Watching: top, stats, trace, events, fsck, metrics, probes, and what gdb sees.
watch_scenarios = tests/scenario/watch_events.sh tests/scenario/watch_gdb.sh \
	tests/scenario/watch_metrics.sh tests/scenario/watch_probes.sh tests/scenario/watch_top.sh
TESTS += $(watch_scenarios)
EXTRA_DIST += $(watch_scenarios) tests/scenario/watch_load.py tests/scenario/watch_metrics_parse.py
