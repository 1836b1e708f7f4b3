/* SPDX-License-Identifier: Apache-2.0 */
/* The rules of records that are the same in every store. */
#include <peer/store.h>
#include <time.h>

uint64_t store_record_version_next(uint64_t found)
{
	struct timespec now;
	if (found != 0 && found != XSEG_CAS_DAMAGED)
		return found + 1;
	clock_gettime(CLOCK_REALTIME, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

int store_record_check(const struct job *job, uint64_t found)
{
	switch (job->arg1) {
	case XSEG_CAS_GET: return found ? 0 : -ENOENT;
	case XSEG_CAS_PUT:
		if (job->length > XSEG_RECORD_MAX)
			return -EINVAL;
		if (found == job->arg0)
			return 0;
		return job->arg0 == 0 ? -EEXIST : -ESTALE;
	case XSEG_CAS_DELETE:
		if (!found)
			return -ENOENT;
		return found == job->arg0 ? 0 : -ESTALE;
	default: return -EINVAL;
	}
}

int store_record_compare(const struct xseg_key *a, const struct xseg_key *b)
{
	if (a->epoch != b->epoch)
		return a->epoch < b->epoch ? -1 : 1;
	if (a->volume != b->volume)
		return a->volume < b->volume ? -1 : 1;
	return a->object < b->object ? -1 : a->object > b->object;
}

int store_record_list_cut(const struct xseg_key *keys, uint32_t count, uint64_t next_volume)
{
	uint32_t keep = count;
	while (keep && keys[keep - 1].volume == next_volume)
		keep--;
	return count && !keep ? -E2BIG : (int)keep;
}
