/* SPDX-License-Identifier: Apache-2.0 */
/* log level: what a peer writes to its log, changed while it runs. */
#include <base/clock.h>
#include <base/log.h>
#include <base/must.h>
#include <stdio.h>
#include <string.h>
#include <xseg/registry.h>

#include "tools/ctl/ctl_output.h"
#include "tools/ctl/ctl_watch.h"

#define LOOK_NS 20000000u

static const struct ctl_column columns[] = {{"peer", "peer", CTL_TEXT},
	{"level", "level", CTL_TEXT}, {"asked", "asked for", CTL_TEXT},
	{"pid", "process", CTL_COUNT}, {"also", "also of", CTL_TEXT},
	{"changed", "changed", CTL_TEXT}};

static const char *level_text(uint32_t level)
{
	return level ? log_level_name((enum log_level)level) : "as started";
}

/* Who shares its process, and so its log. */
static void also_of(
	const struct xseg *seg, const struct xseg_peer_view *peer, char *out, size_t size)
{
	out[0] = 0;
	for (uint32_t i = 0; i < XSEG_PEERS_MAX; i++) {
		struct xseg_peer_view other;
		size_t n = strlen(out);
		if (i != peer->index && xseg_peer_view(seg, i, &other) && other.pid == peer->pid)
			snprintf(out + n, size - n, "%s%s", n ? ", " : "", other.name);
	}
}

/* The process looks once a second. */
static int wait_effect(
	struct ctl *ctl, const struct xseg *seg, const struct xseg_peer_view *peer, uint32_t level)
{
	const struct xseg_peer_record *record = &seg->peers[peer->index];
	uint64_t end = clock_now_ns() + ctl->timeout_ns;
	/* a more talkative peer of that process may keep it higher */
	while ((atomic_load(&record->log_level_now) >> 8 & 0xff) != level) {
		struct xseg_peer_view view;
		if (!xseg_peer_view(seg, peer->index, &view) || view.life == XSEG_LIFE_DEAD)
			return 0; /* its successor will find it */
		if (clock_now_ns() > end)
			return fault_set(&ctl->fault, FAULT_TIMEOUT, peer->name,
				"it takes effect when the peer moves again",
				"peer '%s' (pid %d) has not looked at it within %.1f s", peer->name,
				(int)peer->pid, (double)ctl->timeout_ns / 1e9);
		if (!ctl_watch_nap(LOOK_NS))
			return ctl_ask_interrupted_fault(ctl, peer->name);
	}
	return 0;
}

static int level_argument(struct ctl *ctl, uint32_t *level)
{
	static const char *const names[] = {"error", "warning", "info", "debug", "default"};
	const char *text = ctl->argv[1];
	int value = !strcmp(text, "default") ? 0 : log_level_parse(text);
	*level = value < 0 ? 0 : (uint32_t)value;
	if (value >= 0)
		return 0;
	fault_set(&ctl->fault, FAULT_USAGE, text, NULL, "'%s' is no log level", text);
	fault_nearest(&ctl->fault, text, names, countof(names),
		"error, warning, info, debug, or default: as it was started");
	return -FAULT_USAGE;
}

static int set_level(
	struct ctl *ctl, const struct xseg *seg, const struct xseg_peer_view *view, bool *changed)
{
	uint32_t level;
	int rc = level_argument(ctl, &level);
	if (rc)
		return rc;
	*changed = atomic_exchange(&seg->peers[view->index].log_level, level) != level;
	ctl_ask_interrupt_catch();
	return wait_effect(ctl, seg, view, level);
}

static int run(struct ctl *ctl)
{
	struct xseg_peer_view view;
	struct xseg seg;
	bool changed = false;
	char also[512];
	const char *name = ctl->argv[0];
	int rc = ctl_join(ctl, &seg);
	if (rc)
		return rc;
	if (xseg_peer_find(&seg, name, &view))
		rc = fault_set(&ctl->fault, FAULT_NOT_FOUND, name, "'xsegctl peer list' lists them",
			"segment '%s' has no peer '%s'", seg.name, name);
	else if (ctl->argc > 1)
		rc = set_level(ctl, &seg, &view, &changed);
	if (!rc) {
		const struct xseg_peer_record *record = &seg.peers[view.index];
		also_of(&seg, &view, also, sizeof(also));
		ctl_output_one(ctl,
			json_pack("{s:s, s:s, s:s, s:i, s:s, s:b}", "peer", name, "level",
				level_text(atomic_load(&record->log_level_now) & 0xff), "asked",
				level_text(atomic_load(&record->log_level)), "pid", (int)view.pid,
				"also", also, "changed", (int)changed),
			columns, countof(columns));
	}
	xseg_segment_leave(&seg);
	return rc;
}

const struct ctl_verb ctl_log_level = {
	"log",
	"level",
	"PEER [LEVEL]",
	1,
	2,
	"show or change what a peer logs, while it runs",
	"\terror, warning, info, debug, or default: as its process was started. Peers of one "
	"process share its log: the most talkative decides. The level stays with the peer's name: "
	"after a restart it holds again. Takes effect within a second.\n",
	run,
	{0},
	.examples = "xsegctl log level vol0 debug\n"
		    "xsegctl log level vol0 default\n",
};
