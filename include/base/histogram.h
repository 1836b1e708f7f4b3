/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Log-linear buckets: 8 to the octave, so a value is known to 12.5 %. The counters
 * lie in the segment, one writer, any readers.
 *
 * Units: whatever is recorded (latencies: nanoseconds).
 * Source: the idea of HdrHistogram; shape and code are ours.
 */
#ifndef SKERRY_BASE_HISTOGRAM_H
#define SKERRY_BASE_HISTOGRAM_H

#include <stdint.h>

#define HISTOGRAM_SUB_BITS 3
#define HISTOGRAM_BUCKETS 320 /* values up to 2^42: 73 minutes in ns; more is counted in the last */

static inline unsigned histogram_index(uint64_t value)
{
	const unsigned sub = 1u << HISTOGRAM_SUB_BITS;
	if (value < sub)
		return (unsigned)value;
	unsigned octave = 63u - (unsigned)__builtin_clzll(value);
	unsigned index = ((octave - HISTOGRAM_SUB_BITS + 1) << HISTOGRAM_SUB_BITS) +
			 (unsigned)((value >> (octave - HISTOGRAM_SUB_BITS)) & (sub - 1));
	return index < HISTOGRAM_BUCKETS ? index : HISTOGRAM_BUCKETS - 1;
}

/* Lowest value that falls into a bucket. */
uint64_t histogram_floor(unsigned index);
/* Value below which `share` (0..1) of the counts lie; 0 when empty. */
uint64_t histogram_quantile(const uint64_t counts[HISTOGRAM_BUCKETS], double share);

#endif
