/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sizes as people write them: "4096", "4K", "4KiB", "1.5G", "4kB" (decimal).
 * Units: bytes. Threads: any.
 */
#ifndef SKERRY_BASE_SIZE_H
#define SKERRY_BASE_SIZE_H

#include <stddef.h>
#include <stdint.h>

/* 0, or -EINVAL (not a size), -ERANGE (does not fit 63 bits). */
int size_parse(const char *text, uint64_t *size);
/* "4.0 KiB", "1.5 GiB"; returns buffer. */
const char *size_format(uint64_t size, char *buffer, size_t buffer_size);

#endif
