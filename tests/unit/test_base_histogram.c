/* SPDX-License-Identifier: Apache-2.0 */
/* Histograms: a value is known to an eighth, quantiles stay within their bucket. */
#include <base/histogram.h>
#include <string.h>

#include "tests/lib/unit.h"

UNIT(test_buckets)
{
	unsigned last = 0;
	for (uint64_t value = 0; value < 100000; value++) {
		unsigned i = histogram_index(value);
		ck_assert(i == last || i == last + 1);
		ck_assert_uint_le(histogram_floor(i), value);
		ck_assert_uint_gt(histogram_floor(i + 1), value);
		last = i;
	}
	for (unsigned i = 0; i < HISTOGRAM_BUCKETS; i++) {
		ck_assert_uint_eq(histogram_index(histogram_floor(i)), i);
		uint64_t width = histogram_floor(i + 1) - histogram_floor(i);
		ck_assert_uint_le(width, histogram_floor(i) / 8 + 1);
	}
	ck_assert_uint_eq(histogram_index(UINT64_MAX), HISTOGRAM_BUCKETS - 1);
	ck_assert_uint_eq(histogram_index(1ull << 60), HISTOGRAM_BUCKETS - 1);
	ck_assert_uint_ge(histogram_floor(HISTOGRAM_BUCKETS), 1ull << 42);
}

static uint64_t distance(uint64_t a, uint64_t b) { return a > b ? a - b : b - a; }

UNIT(test_quantiles)
{
	static uint64_t counts[HISTOGRAM_BUCKETS];
	ck_assert_uint_eq(histogram_quantile(counts, 0.5), 0);
	/* all of its buckets full: then values lie evenly in them */
	for (uint64_t value = 0; value < 98304; value++)
		counts[histogram_index(value)]++;
	static const double shares[] = {0.01, 0.1, 0.5, 0.9, 0.99, 0.999};
	for (unsigned i = 0; i < countof(shares); i++) {
		uint64_t want = (uint64_t)(shares[i] * 98304);
		ck_assert_uint_le(
			distance(histogram_quantile(counts, shares[i]), want), want / 50 + 2);
	}
	ck_assert_uint_le(histogram_quantile(counts, 1.0), 98304);
}

UNIT(test_one_value)
{
	static uint64_t counts[HISTOGRAM_BUCKETS];
	memset(counts, 0, sizeof(counts));
	unsigned i = histogram_index(5000);
	counts[i] = 1;
	ck_assert_uint_ge(histogram_quantile(counts, 0.5), histogram_floor(i));
	ck_assert_uint_le(histogram_quantile(counts, 0.99), histogram_floor(i + 1));
	ck_assert_uint_ge(histogram_quantile(counts, 0), histogram_floor(i));
}
