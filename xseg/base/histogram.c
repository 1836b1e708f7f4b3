/* SPDX-License-Identifier: Apache-2.0 */
/* Reading log-linear histograms. */
#include <base/histogram.h>

uint64_t histogram_floor(unsigned index)
{
	const unsigned sub = 1u << HISTOGRAM_SUB_BITS;
	if (index < sub)
		return index;
	unsigned octave = (index >> HISTOGRAM_SUB_BITS) + HISTOGRAM_SUB_BITS - 1;
	uint64_t part = index & (sub - 1);
	return (1ull << octave) + (part << (octave - HISTOGRAM_SUB_BITS));
}

uint64_t histogram_quantile(const uint64_t counts[HISTOGRAM_BUCKETS], double share)
{
	uint64_t total = 0, seen = 0;
	for (unsigned i = 0; i < HISTOGRAM_BUCKETS; i++)
		total += counts[i];
	if (total == 0)
		return 0;
	double rank = share * (double)total;
	for (unsigned i = 0; i < HISTOGRAM_BUCKETS; i++) {
		if (counts[i] == 0)
			continue;
		double before = (double)seen;
		seen += counts[i];
		if ((double)seen < rank && seen < total)
			continue;
		/* evenly spread within the bucket: steps of 12.5 % would show in every table */
		double inside = (rank - before) / (double)counts[i];
		double low = (double)histogram_floor(i), high = (double)histogram_floor(i + 1);
		inside = inside < 0 ? 0 : inside > 1 ? 1 : inside;
		return (uint64_t)(low + inside * (high - low));
	}
	return 0;
}
