/* SPDX-License-Identifier: Apache-2.0 */
/* Has what the dead had given back, at once and until nothing of theirs is left. */
#include <base/log.h>
#include <base/must.h>
#include <errno.h>
#include <string.h>
#include <xseg/reap.h>

#include "tools/keeper/keeper.h"

#define BUSY_US 5000	 /* somebody else reaps just now */
#define PENDING_US 20000 /* the living still work for the dead */
#define KEPT_US 500000	 /* or read what a dead store kept */

static bool reaped_any(const struct xseg_reap_report *report)
{
	return report->lanes || report->freed || report->resubmitted || report->refused ||
	       report->pages;
}

static void tell(struct keeper *keeper, const struct xseg_reap_report *report)
{
	if (!reaped_any(report))
		return;
	log_info("keeper",
		"reaped: %u lanes; %u requests freed, %u submitted again, %u refused; %u pages; %u "
		"pending",
		report->lanes, report->freed, report->resubmitted, report->refused, report->pages,
		report->pending);
	keeper_event(keeper, "reaped",
		json_pack("{s:i, s:i, s:i, s:i, s:i, s:i, s:I}", "lanes", (int)report->lanes,
			"freed", (int)report->freed, "resubmitted", (int)report->resubmitted,
			"refused", (int)report->refused, "pages", (int)report->pages, "pending",
			(int)report->pending, "took_ns", (json_int_t)report->took_ns));
}

static void again(struct keeper *keeper, suseconds_t after_us)
{
	struct timeval after = {.tv_usec = after_us};
	evtimer_add(keeper->reap, &after);
}

/* Nothing is refused or led elsewhere while a part of it is still on its way below. */
static void reap_once(struct keeper *keeper)
{
	struct xseg_reap_report report;
	keeper->reap_generation = atomic_load(&keeper->seg.super->generation);
	int rc = xseg_reap(&keeper->seg, &report);
	keeper->reap_pending = true;
	if (rc == -EBUSY) {
		again(keeper, BUSY_US);
		return;
	}
	if (rc) {
		log_error(
			"keeper", "segment '%s' cannot be reaped: %s", keeper->name, strerror(-rc));
		again(keeper, KEPT_US);
		return;
	}
	tell(keeper, &report);
	keeper->reap_pending = report.pending || report.kept;
	if (report.pending)
		again(keeper, PENDING_US);
	else if (report.kept)
		again(keeper, KEPT_US);
	if (!report.pending)
		keeper_restart_refuse(keeper);
}

/* The timer serves those who were given up, too: for them alone nothing is reaped. */
static void on_reap(int fd, short what, void *context)
{
	struct keeper *keeper = context;
	(void)fd;
	(void)what;
	if (keeper->reap_pending || xseg_reap_due(&keeper->seg))
		reap_once(keeper);
	else
		keeper_restart_refuse(keeper);
}

void keeper_reap_open(struct keeper *keeper)
{
	keeper->reap = evtimer_new(keeper->base, on_reap, keeper);
	must(keeper->reap);
}

void keeper_reap_soon(struct keeper *keeper)
{
	if (keeper->reap)
		reap_once(keeper);
}

/* Its lane may be another's by now, who leaves no trace: but somebody has joined. */
void keeper_reap_others(struct keeper *keeper)
{
	if (atomic_load(&keeper->seg.super->generation) != keeper->reap_generation ||
		xseg_reap_due(&keeper->seg))
		keeper_reap_soon(keeper);
}

void keeper_reap_close(struct keeper *keeper)
{
	if (keeper->reap)
		event_free(keeper->reap);
	keeper->reap = NULL;
}
