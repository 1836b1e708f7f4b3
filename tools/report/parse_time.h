/* SPDX-License-Identifier: Apache-2.0 */
/* Times as people write them: "10s", "500ms", "2m"; a bare number is seconds. Units: ns. */
#ifndef SKERRY_TOOLS_PARSE_TIME_H
#define SKERRY_TOOLS_PARSE_TIME_H

#include <stdint.h>

/* 0 or -EINVAL. */
int parse_time(const char *text, uint64_t *ns);

#endif
