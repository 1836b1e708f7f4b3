/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Our own programs: where they lie, and asking one something.
 *
 * Errors: 0 or -errno. Ownership: text is malloc'd. Threads: one. Blocking: run waits for the
 * program, limit_ns at most, then kills it.
 */
#ifndef SKERRY_TOOLS_PROGRAM_H
#define SKERRY_TOOLS_PROGRAM_H

#include <limits.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* "xsegpeer": $SKERRY_XSEGPEER (name in capitals), beside this program, bin and sbin beside its
   folder, then PATH. -ENOENT. */
int program_find(const char *name, char out[PATH_MAX]);

/* Of a log that we have made for another program, in bytes: SKERRY_LOG_LIMIT. */
#define PROGRAM_LOG_LIMIT "16777216"

/*
 * fork(), where no signal that is meant for the child reaches us: until it has become another
 * program, a handler of ours would run in it, and libevent's write to a socket that it shares with
 * us. In the child, what was caught is as it is by default.
 */
pid_t program_fork(void);

struct program_result {
	int status; /* of waitpid() */
	char *out;  /* stdout, text */
	char *err;
};
int program_run(char *const argv[], uint64_t limit_ns, struct program_result *result);
void program_result_free(struct program_result *result);
/* The last line of `text` that says something, without what <base/log.h> puts in front; "" when
   none. */
void program_last_line(const char *text, char *out, size_t out_size);

#endif
