/* SPDX-License-Identifier: Apache-2.0 */
/* Logs: a line is a line whatever is in it, with a priority in front; must() says where. */
#include <base/log.h>
#include <base/must.h>
#include <errno.h>
#include <signal.h>
#include <string.h>
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

START_TEST(test_lines)
{
	int status;
	const char *out = written(write_lines, &status);
	ck_assert_int_eq(status, 0);
	ck_assert_str_eq(out, "<3>prog: front_nbd: no export of 7\n<7>prog: core: shown\n");
}
END_TEST

static void write_wild(void)
{
	static char line[5000];
	log_open("p");
	log_info("r", "a%sb", "\n<0>forged\r\x1b[2J\x7f");
	memset(line, 'x', sizeof(line) - 1);
	log_info("r", "%s", line);
	log_info(line, "%s", line);
}

START_TEST(test_wild)
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
END_TEST

START_TEST(test_levels)
{
	ck_assert_int_eq(log_level_parse("error"), LOG_LEVEL_ERROR);
	ck_assert_int_eq(log_level_parse("warning"), LOG_LEVEL_WARNING);
	ck_assert_int_eq(log_level_parse("info"), LOG_LEVEL_INFO);
	ck_assert_int_eq(log_level_parse("debug"), LOG_LEVEL_DEBUG);
	ck_assert_int_eq(log_level_parse("Debug"), -EINVAL);
	ck_assert_int_eq(log_level_parse(""), -EINVAL);
}
END_TEST

static void break_a_promise(void)
{
	must(1 + 1 == 2);
	must(1 + 1 == 3);
}

START_TEST(test_must)
{
	int status;
	const char *out = written(break_a_promise, &status);
	ck_assert(WIFSIGNALED(status));
	ck_assert_int_eq(WTERMSIG(status), SIGABRT);
	ck_assert(strstr(out, "must() failed: 1 + 1 == 3 ("));
	ck_assert(strstr(out, "test_base_log.c:"));
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("base_log");
	UNIT_TEST(suite, test_lines);
	UNIT_TEST(suite, test_wild);
	UNIT_TEST(suite, test_levels);
	UNIT_TEST(suite, test_must);
	return unit_main(suite);
}
