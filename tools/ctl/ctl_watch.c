/* SPDX-License-Identifier: Apache-2.0 */
/* Repeats a look at a segment: on a terminal over the same screen, else one after another. */
#include "tools/ctl/ctl_watch.h"

#include <base/clock.h>
#include <base/time.h>
#include <poll.h>
#include <stdio.h>
#include <sys/stat.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

#define NAP_NS 50000000u
#define FIRST_NS 300000000u /* a live screen is not empty for long */

const struct ctl_option ctl_option_interval = {
	"interval", 'i', "TIME", "from one look to the next (default 1s)", NULL};
const struct ctl_option ctl_option_once = {
	"once", '1', NULL, "one look, then end (without a terminal always)", NULL};
const struct ctl_option ctl_option_count = {"count", 'n', "N", "end after so many looks", NULL};

int ctl_watch_time(struct ctl *ctl, const char *name, uint64_t *ns)
{
	const char *text = ctl_option_value(ctl, name);
	if (text && *text && time_parse_positive(text, ns))
		return fault_set(&ctl->fault, FAULT_USAGE, text, "write e.g. 500ms, 2s, 1m",
			"--%s: '%s' is not a time", name, text);
	return 0;
}

bool ctl_watch_nap(uint64_t ns)
{
	uint64_t end = clock_now_ns() + ns;
	for (uint64_t now = clock_now_ns(); now < end && !ctl_ask_interrupted();
		now = clock_now_ns()) {
		uint64_t left = end - now < NAP_NS ? end - now : NAP_NS;
		time_nap(left);
	}
	return !ctl_ask_interrupted();
}

/* --- keys, of a live screen ------------------------------------------------------------- */

static struct termios terminal; /* as it was */
static bool listening;

static void keys_begin(void)
{
	listening = isatty(STDIN_FILENO) && tcgetattr(STDIN_FILENO, &terminal) == 0;
	struct termios raw = terminal;
	raw.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
	if (listening)
		tcsetattr(STDIN_FILENO, TCSANOW, &raw);
}

static void keys_end(void)
{
	if (listening)
		tcsetattr(STDIN_FILENO, TCSANOW, &terminal);
	listening = false;
}

/* False: somebody has pressed q. */
static bool keys_nap(uint64_t ns)
{
	uint64_t end = clock_now_ns() + ns;
	for (uint64_t now = clock_now_ns(); listening && now < end; now = clock_now_ns()) {
		struct pollfd key = {.fd = STDIN_FILENO, .events = POLLIN};
		char c = 0;
		if (ctl_ask_interrupted())
			return false;
		if (poll(&key, 1, (int)(NAP_NS / 1000000)) > 0 && read(STDIN_FILENO, &c, 1) <= 0)
			listening = false;
		if (c == 'q' || c == 'Q')
			return false;
	}
	uint64_t now = clock_now_ns();
	return now >= end ? !ctl_ask_interrupted() : ctl_watch_nap(end - now);
}

/* Destroyed, and perhaps made again: what we have mapped is nobody's any more. */
static bool segment_gone(const struct xseg *seg)
{
	struct stat st;
	return stat(seg->path, &st) != 0;
}

static void screen_enter(void) { fputs("\033[?1049h\033[?25l", stdout); }

static void screen_leave(void)
{
	fputs("\033[?25h\033[?1049l", stdout);
	fflush(stdout);
}

static void show(struct ctl *ctl, const struct ctl_watch *watch, const struct watch *before,
	const struct watch *now)
{
	double seconds = (double)(now->time_ns - before->time_ns) / 1e9;
	if (watch->live)
		fputs("\033[H\033[2J", stdout);
	watch->show(ctl, before, now, seconds > 0 ? seconds : 1e-9);
	fflush(stdout);
}

int ctl_watch_run(struct ctl *ctl, const struct xseg *seg, const struct ctl_watch *watch)
{
	struct watch before, now;
	int rc = 0;
	ctl_ask_interrupt_catch();
	if (watch->live) {
		screen_enter();
		keys_begin();
	}
	watch_take(seg, &before);
	for (uint64_t i = 0; watch->count == 0 || i < watch->count; i++) {
		bool soon = i == 0 && watch->live && watch->every_ns > FIRST_NS;
		uint64_t pause = soon ? FIRST_NS : watch->every_ns;
		if (!(watch->live ? keys_nap(pause) : ctl_watch_nap(pause)))
			break;
		if (segment_gone(seg)) {
			rc = fault_set(&ctl->fault, FAULT_NOT_FOUND, seg->name, NULL,
				"segment '%s' was destroyed", seg->name);
			break;
		}
		watch_take(seg, &now);
		show(ctl, watch, &before, &now);
		watch_free(&before);
		before = now;
		if (ferror(stdout))
			break; /* nobody reads it any more */
	}
	watch_free(&before);
	if (watch->live) {
		keys_end();
		screen_leave();
	}
	return rc;
}
