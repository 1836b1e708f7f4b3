#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# The cache is killed, alone and with others, under checked load.

. "$(dirname "$0")/cache_lib.sh"
cache_cases cache_kill_two cache_kill_random cache_kill_keeper
