#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# What a guest is told by a cache, against a model.

. "$(dirname "$0")/cache_lib.sh"
cache_cases cache_model cache_shared_fill cache_trim_read cache_delete_read \
    cache_empty_flush cache_flushed_first cache_limit
