/* SPDX-License-Identifier: Apache-2.0 */
/* Asks before something is destroyed, and notices ^C. */
#include <base/must.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tools/ctl/ctl.h"

#define POLL_MS 100

static volatile sig_atomic_t interrupted_by;

int ctl_ask(struct ctl *ctl, const char *deed)
{
	char answer[16] = "";
	if (ctl_option_given(ctl, "yes"))
		return 0;
	if (!isatty(STDIN_FILENO) || !isatty(STDERR_FILENO))
		return fault_set(&ctl->fault, FAULT_USAGE, NULL, "say --yes",
			"nobody is here to confirm: %s", deed);
	fprintf(stderr, "%s? [y/N] ", deed);
	fflush(stderr);
	if (fgets(answer, sizeof(answer), stdin) && (answer[0] == 'y' || answer[0] == 'Y'))
		return 0;
	return fault_set(&ctl->fault, FAULT_FAILED, NULL, NULL, "not done: the answer was no");
}

static void on_interrupt(int signal) { interrupted_by = signal; }

void ctl_ask_interrupt_catch(void)
{
	static const int signals[] = {SIGINT, SIGTERM, SIGHUP};
	/* no SA_RESTART: waits end; once: who presses ^C again does not want to wait */
	struct sigaction action = {.sa_handler = on_interrupt, .sa_flags = SA_RESETHAND};
	for (size_t i = 0; i < countof(signals); i++)
		sigaction(signals[i], &action, NULL);
}

int ctl_ask_interrupted_by(void) { return interrupted_by; }

int ctl_ask_interrupt_block(void)
{
	int signal = interrupted_by;
	interrupted_by = 0;
	return signal;
}

void ctl_ask_interrupt_resume(int signal) { interrupted_by = signal; }

bool ctl_ask_interrupted(void) { return interrupted_by != 0; }

bool ctl_ask_interrupt_wait(int fd, short events)
{
	while (!interrupted_by) {
		struct pollfd one = {.fd = fd, .events = events};
		if (poll(&one, 1, POLL_MS) > 0)
			return true;
	}
	return false;
}

int ctl_ask_interrupted_fault(struct ctl *ctl, const char *object)
{
	return fault_set(&ctl->fault, FAULT_FAILED, object, NULL, "interrupted (SIG%s)",
		sigabbrev_np(interrupted_by));
}
