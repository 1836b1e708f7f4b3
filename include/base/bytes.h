/* SPDX-License-Identifier: Apache-2.0 */
/* What bytes hold. Threads: any. Blocking: none. */
#ifndef SKERRY_BASE_BYTES_H
#define SKERRY_BASE_BYTES_H

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

/* Each is compared with its neighbour, which memcmp(3) does many at a time. */
static inline bool bytes_are_zero(const void *bytes, size_t size)
{
	const char *at = bytes;
	return size == 0 || (!*at && !memcmp(at, at + 1, size - 1));
}

#endif
