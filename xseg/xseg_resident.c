/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that stays where it is, on request; see <xseg/resident.h>. */
#include <base/log.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <xseg/resident.h>

#define OOM_FILE "/proc/self/oom_score_adj"
#define OOM_NEVER -1000

struct xseg_resident xseg_resident;
_Thread_local uint32_t xseg_resident_thread;

void xseg_resident_ask(const struct xseg *seg, bool on)
{
	__atomic_store_n(&seg->super->resident, on, __ATOMIC_RELEASE);
}

/* Who serves the swap is not what the kernel ends when memory is short. */
static void spare_from_oom(bool on)
{
	static int before;
	FILE *file = fopen(OOM_FILE, "r+e");
	if (!file)
		return;
	if (on && fscanf(file, "%d", &before) != 1)
		before = 0;
	rewind(file);
	/* ours may be what a keeper had that was asked as well */
	fprintf(file, "%d", on ? OOM_NEVER : before == OOM_NEVER ? 0 : before);
	fclose(file);
}

/* What is touched later is locked when it is touched: not all of what is reserved is used. */
static void lock(const struct xseg *seg)
{
	if (mlockall(MCL_CURRENT | MCL_FUTURE | MCL_ONFAULT) || mlock(seg->base, seg->size))
		log_warning("xseg_resident", "memory cannot be locked: %s", strerror(errno));
	else
		log_info("xseg_resident", "memory is locked");
}

void xseg_resident_apply(const struct xseg *seg)
{
	uint32_t asked = __atomic_load_n(&seg->super->resident, __ATOMIC_ACQUIRE);
	xseg_resident_thread = asked;
	if (atomic_exchange(&xseg_resident.done, asked) != asked) {
		spare_from_oom(asked);
		if (asked)
			lock(seg);
		else
			munlockall();
	}
	/* kept when it is over: who serves a file system needs it, too */
	if (asked)
		prctl(PR_SET_IO_FLUSHER, 1, 0, 0, 0);
}

void xseg_resident_begin(const struct xseg *seg)
{
	const struct xseg *none = NULL;
	atomic_compare_exchange_strong(&xseg_resident.seg, &none, seg);
	xseg_resident_look();
}

void xseg_resident_end(const struct xseg *seg)
{
	atomic_compare_exchange_strong(&xseg_resident.seg, &seg, NULL);
}
