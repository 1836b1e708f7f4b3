/* SPDX-License-Identifier: Apache-2.0 */
/* What is said when one of our own promises is broken, before the process ends. */
#include <base/must.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

_Noreturn void must_fail(const char *what, const char *file, int line)
{
	/* no stdio buffers, no allocation: the heap may be what is broken */
	char text[512];
	int length = snprintf(text, sizeof(text), "must() failed: %s (%s:%d, process %d)\n", what,
		file, line, (int)getpid());
	if (length > 0) {
		size_t size = (size_t)length < sizeof(text) ? (size_t)length : sizeof(text) - 1;
		ssize_t ignored = write(STDERR_FILENO, text, size);
		(void)ignored;
	}
	abort();
}
