#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# The host dies: what a cache has promised is there, in the order in which it was promised.

. "$(dirname "$0")/cache_lib.sh"
cache_cases cache_host_crash cache_host_crash_volatile cache_journal_cut
