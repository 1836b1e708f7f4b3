#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Two hosts on one store, each with a cache that writes back: what it has of a volume that another
# has had is forgotten, and before a volume is given up all of it is in the store.
TWO_HOSTS_CACHE=mode=writeback,ack=blocker,size=8M exec "$(dirname "$0")/volume_two_hosts.sh"
