/* SPDX-License-Identifier: Apache-2.0 */
/* Reads times: a number and a unit. */
#include "tools/report/parse_time.h"

#include <base/must.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

static const struct {
	const char *unit;
	double ns;
} units[] = {{"", 1e9}, {"s", 1e9}, {"ms", 1e6}, {"us", 1e3}, {"ns", 1}, {"m", 60e9}, {"min", 60e9},
	{"h", 3600e9}};

int parse_time(const char *text, uint64_t *ns)
{
	char *end;
	double value = strtod(text, &end);
	if (end == text || !(value > 0))
		return -EINVAL;
	for (size_t i = 0; i < countof(units); i++) {
		double all_ns = value * units[i].ns;
		if (strcmp(end, units[i].unit))
			continue;
		if (all_ns < 1 || all_ns > 1e18)
			return -EINVAL;
		*ns = (uint64_t)all_ns;
		return 0;
	}
	return -EINVAL;
}
