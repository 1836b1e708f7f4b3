/* SPDX-License-Identifier: Apache-2.0 */
/* xsegctl's main: runs a command and tells its error. */
#include <locale.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/ctl/ctl_output.h"

#define TIMEOUT_NS (30ull * 1000000000u)

static void tell(const struct ctl *ctl)
{
	const struct fault *fault = &ctl->fault;
	if (ctl_output_is_json(ctl)) {
		json_t *error = json_pack("{s:i, s:o}", "schema_version", CTL_SCHEMA_VERSION,
			"error", fault_to_json(fault));
		json_dumpf(error, stderr, JSON_COMPACT);
		fputc('\n', stderr);
		json_decref(error);
		return;
	}
	fprintf(stderr, "xsegctl: %s%s%s\n", fault->message, *fault->hint ? "; " : "", fault->hint);
}

/* Data that did not reach its reader is an error, too. */
static int finish(int status)
{
	struct pollfd out = {.fd = STDOUT_FILENO, .events = POLLOUT};
	if (fflush(stdout) == 0 && !ferror(stdout))
		return status;
	/* a reader who has seen enough, as head does */
	if (poll(&out, 1, 0) == 1 && (out.revents & POLLERR))
		return status;
	if (status == 0)
		fprintf(stderr, "xsegctl: stdout cannot be written\n");
	return status ? status : FAULT_FAILED;
}

int main(int argc, char **argv)
{
	struct ctl ctl = {.timeout_ns = TIMEOUT_NS};
	setlocale(LC_ALL, "");
	setlocale(LC_NUMERIC, "C");
	signal(SIGPIPE, SIG_IGN);
	int rc = ctl_option_parse(&ctl, argc, argv);
	if (rc == CTL_SHOWN)
		return finish(0);
	if (rc == 0)
		rc = ctl.verb->run(&ctl);
	if (rc >= 0)
		return finish(rc);
	tell(&ctl);
	return finish((int)ctl.fault.code);
}
