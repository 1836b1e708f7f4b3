#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Negative controls: each check of the cache finds what it is there to find.

. "$(dirname "$0")/cache_lib.sh"
cache_cases 'cache_lie_*'
