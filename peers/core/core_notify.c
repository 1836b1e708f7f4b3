/* SPDX-License-Identifier: Apache-2.0 */
/* Telling the service manager, through libsystemd. core_notify_plain.c does without it. */
#include <systemd/sd-daemon.h>

#include "peers/core/core.h"

void notify_ready(const char *status) { sd_notifyf(0, "READY=1\nSTATUS=%s", status); }

void notify_stopping(uint64_t limit_ns)
{
	sd_notifyf(
		0, "STOPPING=1\nEXTEND_TIMEOUT_USEC=%llu", (unsigned long long)(limit_ns / 1000));
}

void notify_alive(void) { sd_notify(0, "WATCHDOG=1"); }
