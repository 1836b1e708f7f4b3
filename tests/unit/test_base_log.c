/* SPDX-License-Identifier: Apache-2.0 */
/* Logs: a line is a line whatever is in it, with a priority in front; must() says where. */
#include <base/log.h>
#include <base/must.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "tests/lib/unit.h"

static char text[65536];

/* What f writes to stderr; its exit status in *status. */
static const char *written(void (*f)(void), int *status)
{
	int fds[2];
	size_t size = 0;
	ssize_t n;
	ck_assert_int_eq(pipe(fds), 0);
	pid_t pid = fork();
	if (pid == 0) {
		dup2(fds[1], STDERR_FILENO);
		close(fds[0]);
		close(fds[1]);
		f();
		_exit(0);
	}
	close(fds[1]);
	while ((n = read(fds[0], text + size, sizeof(text) - 1 - size)) > 0)
		size += (size_t)n;
	text[size] = 0;
	close(fds[0]);
	waitpid(pid, status, 0);
	return text;
}

static void write_lines(void)
{
	log_open("prog");
	errno = EIO;
	log_error("front_nbd", "no %s of %d", "export", 7);
	if (errno != EIO)
		_exit(9);
	log_debug("front_nbd", "not shown");
	log_level_set(LOG_LEVEL_DEBUG);
	log_debug("core", "shown");
	log_level_set(LOG_LEVEL_ERROR);
	log_warning("core", "not shown either");
}

UNIT(test_lines)
{
	int status;
	const char *out = written(write_lines, &status);
	ck_assert_int_eq(status, 0);
	ck_assert_str_eq(out, "<3>prog: front_nbd: no export of 7\n<7>prog: core: shown\n");
}

static void write_wild(void)
{
	static char line[5000];
	log_open("p");
	log_info("r", "a%sb", "\n<0>forged\r\x1b[2J\x7f");
	memset(line, 'x', sizeof(line) - 1);
	log_info("r", "%s", line);
	log_info(line, "%s", line);
}

UNIT(test_wild)
{
	int status;
	const char *out = written(write_wild, &status);
	ck_assert_int_eq(status, 0);
	ck_assert(strstr(out, "<6>p: r: a?<0>forged??[2J?b\n") == out);
	unsigned lines = 0;
	for (const char *p = out; *p; p++)
		lines += *p == '\n';
	ck_assert_uint_eq(lines, 3);
}

/* A file: the time is in front, and it does not grow for ever. */
UNIT(test_file)
{
	char path[] = "/tmp/skerry-log.XXXXXX", old[64], line[200];
	int fd = mkstemp(path), status;
	unsigned lines = 0;
	struct stat st;
	snprintf(old, sizeof(old), "%s.1", path);
	pid_t pid = fork();
	if (pid == 0) {
		dup2(fd, STDERR_FILENO);
		setenv("SKERRY_LOG_LIMIT", "10000", 1);
		log_open("prog");
		for (unsigned i = 0; i < 1000; i++)
			log_warning("room", "line %u of many", i);
		_exit(0);
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_int_eq(status, 0);
	ck_assert_int_eq(stat(old, &st), 0);
	ck_assert_int_ge(st.st_size, 10000);
	ck_assert_int_lt(st.st_size, 11000);
	ck_assert_int_eq(stat(path, &st), 0);
	ck_assert_int_lt(st.st_size, 10000);
	FILE *file = fopen(old, "r");
	while (fgets(line, sizeof(line), file)) {
		unsigned year, number;
		ck_assert_int_eq(sscanf(line,
					 "%4u-%*2u-%*2uT%*2u:%*2u:%*2u.%*3uZ warning prog: room: "
					 "line %u of many",
					 &year, &number),
			2);
		ck_assert_uint_ge(year, 2026);
		lines++;
	}
	ck_assert_uint_gt(lines, 100);
	fclose(file);
	close(fd);
	unlink(path);
	unlink(old);
}

UNIT(test_levels)
{
	ck_assert_int_eq(log_level_parse("error"), LOG_LEVEL_ERROR);
	ck_assert_int_eq(log_level_parse("warning"), LOG_LEVEL_WARNING);
	ck_assert_int_eq(log_level_parse("info"), LOG_LEVEL_INFO);
	ck_assert_int_eq(log_level_parse("debug"), LOG_LEVEL_DEBUG);
	ck_assert_int_eq(log_level_parse("Debug"), -EINVAL);
	ck_assert_int_eq(log_level_parse(""), -EINVAL);
}

static void break_a_promise(void)
{
	must(1 + 1 == 2);
	must(1 + 1 == 3);
}

UNIT(test_must)
{
	int status;
	const char *out = written(break_a_promise, &status);
	ck_assert(WIFSIGNALED(status));
	ck_assert_int_eq(WTERMSIG(status), SIGABRT);
	ck_assert(strstr(out, "must() failed: 1 + 1 == 3 ("));
	ck_assert(strstr(out, "test_base_log.c:"));
}
