/* SPDX-License-Identifier: Apache-2.0 */
/* Counting ones: by the CPU's own instruction, which the compiler may not assume to be there. */
#include <base/bits.h>

static inline uint32_t count(const _Atomic uint64_t *words, uint32_t size)
{
	uint32_t ones = 0;
	for (uint32_t i = 0; i < size; i++)
		ones += (uint32_t)__builtin_popcountll(
			atomic_load_explicit(&words[i], memory_order_relaxed));
	return ones;
}

#if defined(__x86_64__)
__attribute__((target("popcnt"))) static uint32_t count_by_cpu(
	const _Atomic uint64_t *words, uint32_t size)
{
	return count(words, size);
}

uint32_t bits_count(const _Atomic uint64_t *words, uint32_t size)
{
	return __builtin_cpu_supports("popcnt") ? count_by_cpu(words, size) : count(words, size);
}
#else
uint32_t bits_count(const _Atomic uint64_t *words, uint32_t size) { return count(words, size); }
#endif
