#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# The store below a cache is slow, away, full, and fails.

. "$(dirname "$0")/cache_lib.sh"
cache_cases cache_store_away cache_store_fails cache_store_worse
