/* SPDX-License-Identifier: Apache-2.0 */
/* Repeats a look at a segment: on a terminal over the same screen, else one after another. */
#include "tools/ctl/ctl_watch.h"

#include <base/clock.h>
#include <base/time.h>
#include <stdio.h>
#include <sys/stat.h>

#include "tools/ctl/ctl_screen.h"

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

/* Destroyed, and perhaps made again: what we have mapped is nobody's any more. */
static bool segment_gone(const struct xseg *seg)
{
	struct stat st;
	return stat(seg->path, &st) != 0;
}

static void show(struct ctl *ctl, const struct ctl_watch *watch, const struct watch *before,
	const struct watch *now, bool live)
{
	double seconds = (double)(now->time_ns - before->time_ns) / 1e9;
	if (live)
		ctl_screen_begin();
	watch->show(ctl, before, now, seconds > 0 ? seconds : 1e-9);
	if (live)
		ctl_screen_end();
	else
		fflush(stdout);
}

int ctl_watch_run(struct ctl *ctl, const struct xseg *seg, const struct ctl_watch *watch)
{
	struct watch before, now;
	int rc = 0;
	ctl_ask_interrupt_catch();
	bool live = watch->live && ctl_screen_open();
	watch_take(seg, &before);
	for (uint64_t i = 0; watch->count == 0 || i < watch->count; i++) {
		bool soon = i == 0 && live && watch->every_ns > FIRST_NS;
		uint64_t pause = soon ? FIRST_NS : watch->every_ns;
		if (!(live ? ctl_screen_nap(pause) : ctl_watch_nap(pause)))
			break;
		if (segment_gone(seg)) {
			rc = fault_set(&ctl->fault, FAULT_NOT_FOUND, seg->name, NULL,
				"segment '%s' was destroyed", seg->name);
			break;
		}
		watch_take(seg, &now);
		show(ctl, watch, &before, &now, live);
		watch_free(&before);
		before = now;
		if (ferror(stdout))
			break; /* nobody reads it any more */
	}
	watch_free(&before);
	if (live)
		ctl_screen_close();
	return rc;
}
