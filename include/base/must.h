/* SPDX-License-Identifier: Apache-2.0 */
/*
 * must() states what can only be false through a mistake of our own; it is always
 * compiled. Input (a socket, a file, the segment) is never checked with it.
 */
#ifndef SKERRY_BASE_MUST_H
#define SKERRY_BASE_MUST_H

/* Says where and what on stderr, then aborts: the keeper restarts us, the segment survives. */
_Noreturn void must_fail(const char *what, const char *file, int line);

#define must(cond) ((cond) ? (void)0 : must_fail(#cond, __FILE__, __LINE__))

/* The shape of a shared struct is fixed at compile time. */
#define fixed(cond) _Static_assert(cond, #cond)

#define likely(x) __builtin_expect(!!(x), 1)
#define unlikely(x) __builtin_expect(!!(x), 0)

#define countof(a) (sizeof(a) / sizeof((a)[0]))

#endif
