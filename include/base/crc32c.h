/* SPDX-License-Identifier: Apache-2.0 */
/*
 * CRC-32C (Castagnoli), the checksum of iSCSI, ext4 and our own records. Start with crc 0
 * and feed pieces in order: crc32c(crc32c(0, a, n), b, m) is the checksum of a and b joined.
 *
 * Units: bytes. Threads: any. Blocking: none.
 * Source: RFC 3720, appendix B.4 (its test vectors are our unit test).
 */
#ifndef SKERRY_BASE_CRC32C_H
#define SKERRY_BASE_CRC32C_H

#include <stddef.h>
#include <stdint.h>

uint32_t crc32c(uint32_t crc, const void *data, size_t size);
/* Without the CPU's instruction: what a machine that lacks it runs; tests compare the two. */
uint32_t crc32c_table(uint32_t crc, const void *data, size_t size);

#endif
