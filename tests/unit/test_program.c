/* SPDX-License-Identifier: Apache-2.0 */
/* A child that is signalled before it has become another program: the signal is its own. */
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/lib/unit.h"
#include "tools/report/program.h"

static _Atomic unsigned *handled; /* of us and all children */

static void on_signal(int number)
{
	(void)number;
	(*handled)++;
}

UNIT(a_child_gets_its_signals)
{
	handled = mmap(
		NULL, sizeof(*handled), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	ck_assert_ptr_ne(handled, MAP_FAILED);
	signal(SIGTERM, on_signal);
	for (unsigned i = 0; i < 200; i++) {
		int status;
		pid_t pid = program_fork();
		if (pid == 0)
			for (;;)
				pause();
		ck_assert_int_gt(pid, 0);
		ck_assert_int_eq(kill(pid, SIGTERM), 0);
		ck_assert_int_eq(waitpid(pid, &status, 0), pid);
		ck_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM);
	}
	ck_assert_uint_eq(*handled, 0);
	raise(SIGTERM); /* ours are handled as before */
	ck_assert_uint_eq(*handled, 1);
}
