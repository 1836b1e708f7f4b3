/* SPDX-License-Identifier: Apache-2.0 */
/* In place of file_uring.c where liburing was not there to build with. */
#include <errno.h>

#include "peers/blocker/file/file.h"

static int nouring_probe(unsigned depth, char *why, size_t why_size)
{
	(void)depth;
	snprintf(why, why_size, "io_uring is not built in; use io=threads, or build with liburing");
	return -ENOSYS;
}

const struct file_engine file_uring = {
	.name = "uring",
	.probe = nouring_probe,
};
