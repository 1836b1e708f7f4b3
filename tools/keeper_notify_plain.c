/* SPDX-License-Identifier: Apache-2.0 */
/* Without libsystemd nobody is told. */
#include "tools/keeper.h"

void keeper_notify_ready(const char *status) { (void)status; }

void keeper_notify_stopping(uint64_t limit_ns) { (void)limit_ns; }
