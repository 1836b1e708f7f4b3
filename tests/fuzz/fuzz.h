/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the fuzzers share: entry points of libFuzzer, a reader of input bytes, and roles as
 * xsegpeer would describe them.
 *
 * Threads: one. Errors: a fuzzer aborts where a promise is broken; libFuzzer shows the input.
 */
#ifndef SKERRY_TESTS_FUZZ_FUZZ_H
#define SKERRY_TESTS_FUZZ_FUZZ_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerInitialize(int *argc, char ***argv);

/* What is left of the input; past its end everything is zero. */
struct fuzz_bytes {
	const uint8_t *at;
	size_t left;
};

static inline uint64_t fuzz_take(struct fuzz_bytes *in, size_t bytes)
{
	uint64_t value = 0;
	size_t n = bytes < in->left ? bytes : in->left;
	memcpy(&value, in->at, n);
	in->at += n;
	in->left -= n;
	return value;
}

#endif
