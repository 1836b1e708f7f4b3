/* SPDX-License-Identifier: Apache-2.0 */
/* Tells the service manager through libsystemd. */
#include <systemd/sd-daemon.h>

#include "tools/keeper.h"

void keeper_notify_ready(const char *status) { sd_notifyf(0, "READY=1\nSTATUS=%s", status); }

void keeper_notify_stopping(uint64_t limit_ns)
{
	sd_notifyf(
		0, "STOPPING=1\nEXTEND_TIMEOUT_USEC=%llu", (unsigned long long)(limit_ns / 1000));
}
