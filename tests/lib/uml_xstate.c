/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A preload that lets User-Mode Linux 6.1 run on CPUs with AMX: it hands whole register sets to a
 * kernel that takes no others.
 *
 * That UML keeps 2696 bytes of XSAVE state for a process and writes them back with
 * PTRACE_SETREGSET; a host whose XSAVE area is larger (11008 bytes with AMX) answers EFAULT, and
 * the guest dies before its init runs. So: read the whole area, put UML's part in front, write
 * the whole area. Components that UML knows nothing of go back to their initial state.
 */
#include <elf.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#define AREA_SIZE_MAX 65536
#define XSTATE_BV_OFFSET 512
#define UML_KNOWS 0x3ffu /* x87, SSE, AVX, MPX, AVX-512, PT, PKRU */

static long set_whole(pid_t pid, const struct iovec *part)
{
	static uint64_t area[AREA_SIZE_MAX / sizeof(uint64_t)];
	struct iovec whole = {area, sizeof(area)};

	if (syscall(SYS_ptrace, PTRACE_GETREGSET, pid, NT_X86_XSTATE, &whole) < 0)
		return -1;
	if (part->iov_len < whole.iov_len) {
		memcpy(area, part->iov_base, part->iov_len);
		area[XSTATE_BV_OFFSET / sizeof(uint64_t)] &= UML_KNOWS;
	} else {
		whole = *part;
	}
	return syscall(SYS_ptrace, PTRACE_SETREGSET, pid, NT_X86_XSTATE, &whole);
}

/*
 * As in glibc: the PEEK requests return the word itself, which the system call stores at data;
 * everything else goes straight through.
 */
long ptrace(enum __ptrace_request request, ...)
{
	va_list args;
	long word = 0, rc;

	va_start(args, request);
	pid_t pid = va_arg(args, pid_t);
	void *addr = va_arg(args, void *);
	void *data = va_arg(args, void *);
	va_end(args);
	if (request == PTRACE_SETREGSET && addr == (void *)NT_X86_XSTATE)
		return set_whole(pid, data);
	if (request != PTRACE_PEEKTEXT && request != PTRACE_PEEKDATA && request != PTRACE_PEEKUSER)
		return syscall(SYS_ptrace, request, pid, addr, data);
	rc = syscall(SYS_ptrace, request, pid, addr, &word);
	return rc < 0 ? rc : word;
}
