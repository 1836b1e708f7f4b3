/* SPDX-License-Identifier: Apache-2.0 */
/*
 * USDT probes: places that bpftrace, perf and gdb can watch while it runs. A probe that nobody
 * watches is one nop; built without <sys/sdt.h> there is nothing at all. They are listed with
 * their arguments in docs/watching.md; tools/bpftrace/ has scripts.
 *
 * Provider: skerry. Names are words with '_', arguments whole numbers.
 * Threads: any. Blocking: none.
 */
#ifndef SKERRY_BASE_PROBE_H
#define SKERRY_BASE_PROBE_H

#ifdef SKERRY_PROBES

#include <sys/sdt.h>

#define probe1(name, a) DTRACE_PROBE1(skerry, name, a)
#define probe2(name, a, b) DTRACE_PROBE2(skerry, name, a, b)
#define probe3(name, a, b, c) DTRACE_PROBE3(skerry, name, a, b, c)
#define probe4(name, a, b, c, d) DTRACE_PROBE4(skerry, name, a, b, c, d)
#define probe5(name, a, b, c, d, e) DTRACE_PROBE5(skerry, name, a, b, c, d, e)

#else

#define probe1(name, a) ((void)0)
#define probe2(name, a, b) ((void)0)
#define probe3(name, a, b, c) ((void)0)
#define probe4(name, a, b, c, d) ((void)0)
#define probe5(name, a, b, c, d, e) ((void)0)

#endif

#endif
