#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# A cache is told to do otherwise, plugged in and out, under checked load.

. "$(dirname "$0")/cache_lib.sh"
cache_cases cache_mode cache_told cache_plug
