/* SPDX-License-Identifier: Apache-2.0 */
/* What xsegd says of itself. */
#include "tools/keeper/xsegd_man.h"

#include <base/must.h>
#include <stdio.h>

static const struct {
	const char *option, *argument, *help;
} entries[] = {
	{"-t, --timeout", "TIME", "how long each process may take to be ready (default 30s)"},
	{"--stop-timeout", "TIME", "how long each process may drain (default 30s)"},
	{"-c, --check", "", "check the file and the roles, start nothing"},
	{"--report-fd", "N", "write one line of JSON there when everything serves, or why not"},
	{"--guarded", "", "have a small process that starts this one again when it is killed"},
	{"--log-level", "LEVEL", "error, warning, info or debug (default info)"},
	{"--crash-points", "", "the places where SKERRY_CRASH can kill this build, for tests"},
	{"--man", "", "print the man page as scdoc takes it"},
	{"-h, --help", "", "show this"},
	{"-V, --version", "", "show the version"},
};

void xsegd_man_help(void)
{
	puts("usage: xsegd [OPTION]... [SEGMENT] FILE\n\n"
	     "Keeps the pipeline that FILE describes, in the foreground, until "
	     "SIGTERM.\n\nOptions:");
	for (unsigned i = 0; i < countof(entries); i++) {
		char text[64];
		snprintf(text, sizeof(text), "%s %s", entries[i].option, entries[i].argument);
		printf("  %-24s %s\n", text, entries[i].help);
	}
}

void xsegd_man(void)
{
	puts("xsegd(8)\n\n# NAME\n\nxsegd - keeps a Skerry pipeline\n\n"
	     "# SYNOPSIS\n\n*xsegd* [_OPTION_]... [_SEGMENT_] _FILE_\n\n"
	     "# DESCRIPTION\n\n"
	     "One keeper for each segment, off the data path. It checks the pipeline file and its "
	     "FILE.d before it does anything, makes the segment when it is missing, starts the "
	     "processes from the bottom up (stores first, fronts last), each when the one before "
	     "serves, and answers *xsegctl*(1) on a socket. When one does not start, those that "
	     "did are stopped again. SIGTERM or *xsegctl down* stops all from the top, each "
	     "drained, and removes the segment if the keeper made it.\n\n"
	     "A process that dies is started again at once, later with a growing delay, and given "
	     "up when it dies too often; one that does not move is an event, or is killed. How is "
	     "said by keys of the pipeline file: *skerry-pipeline*(5). Each such thing is a line "
	     "in "
	     "events.jsonl.\n\n"
	     "A keeper that is killed disturbs nobody; the next one adopts the processes that "
	     "run, starts those that died meanwhile, and goes on from its state file, whatever the "
	     "pipeline file says by now. It is usually started by *xsegctl up*, or by systemd "
	     "(Type=notify, WatchdogSec=, FileDescriptorStoreMax=, sockets of activation).\n\n"
	     "SIGHUP lets it become the program that is installed by now; its processes do not "
	     "notice.\n\n"
	     "# PIPELINE FILE\n\n"
	     "```\n[segment]\nname = demo\nsize = 1G\n\n[host front]\nlanes = 2\n\n"
	     "[peer nbd0]\nrole = front_nbd\nhost = front\nlisten = "
	     "unix:/run/skerry/demo/nbd.sock\n"
	     "edge.volume = vol0\n\n[peer vol0]\nrole = volume\nhost = front\nedge.store = "
	     "file0\nedge.map = map0\n\n"
	     "[peer map0]\nrole = mapperd\nhost = front\nedge.store = file0\n\n"
	     "[peer file0]\nrole = blocker_file\ndir = /var/lib/skerry/demo\n```\n\n"
	     "*[segment]*\n\tname, size (default 1G), lanes, huge (a hugetlbfs mount), "
	     "socket-group (who may speak to the keeper, too).\n\n"
	     "*[host NAME]*\n\tA process: lanes (threads), workers (threads for what blocks). "
	     "Optional.\n\n"
	     "*[peer NAME]*\n\trole, host (default: a process of its own, with the peer's name), "
	     "edge.EDGE = PEER, and the options of the role (*xsegpeer --help-role*). A key given "
	     "several times is a list.\n\n"
	     "Files FILE.d/\\*.conf (demo.conf.d of demo.conf) are read after it, in order of "
	     "their names; a "
	     "key there replaces what was said before. Unknown sections, keys, roles and "
	     "options are errors, with file and line.\n\n# OPTIONS\n");
	for (unsigned i = 0; i < countof(entries); i++)
		printf("*%s* %s%s%s\n\t%s\n\n", entries[i].option, *entries[i].argument ? "_" : "",
			entries[i].argument, *entries[i].argument ? "_" : "", entries[i].help);
	puts("# FILES\n\n"
	     "_/run/skerry/SEGMENT/xsegd.sock_\n\tcontrol socket: JSON-RPC 2.0, one message a "
	     "line, "
	     "for root and the keeper's user and group; *rpc.describe* lists the calls\n\n"
	     "_/run/skerry/SEGMENT/xsegd.pid_\n\tlocked while the keeper lives\n\n"
	     "_/run/skerry/SEGMENT/xsegd.state_\n\twhat runs, for the next keeper\n\n"
	     "_/run/skerry/SEGMENT/notify.sock_\n\twhat its processes say, as in "
	     "*sd_notify*(3)\n\n"
	     "_/run/skerry/SEGMENT/events.jsonl_\n\twhat has happened, one JSON object a "
	     "line\n\n"
	     "_/run/skerry/SEGMENT/HOST.log_\n\twhat a process said on stderr\n\n"
	     "# EXIT STATUS\n\n0 down as asked; 1 failed; 2 usage; 3 not found; 4 a keeper is "
	     "there "
	     "already; 7 a process was not ready in time; 8 one had to be killed.\n\n"
	     "# ENVIRONMENT\n\n*SKERRY\\_RUN\\_DIR*, *SKERRY\\_SHM\\_DIR*, "
	     "*SKERRY\\_MODULE\\_DIR*\n\t"
	     "move the folders\n\n*SKERRY\\_XSEGPEER*\n\twhere *xsegpeer*(1) is\n\n"
	     "# SEE ALSO\n\n*xsegctl*(1), *xsegpeer*(1), *skerry-pipeline*(5)");
}
