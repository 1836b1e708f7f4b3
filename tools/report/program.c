/* SPDX-License-Identifier: Apache-2.0 */
/* Finds Skerry's other programs and asks them things. */
#include "tools/report/program.h"

#include <base/clock.h>
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define OUTPUT_MAX (1u << 20)

static int find_in(const char *folder, const char *name, char out[PATH_MAX])
{
	int n = snprintf(out, PATH_MAX, "%s/%s", folder, name);
	return n > 0 && n < PATH_MAX && access(out, X_OK) == 0 ? 0 : -ENOENT;
}

static int find_by_variable(const char *name, char out[PATH_MAX])
{
	char variable[64];
	int n = snprintf(variable, sizeof(variable), "SKERRY_%s", name);
	for (int i = 0; i < n; i++)
		variable[i] = (char)toupper((unsigned char)variable[i]);
	const char *value = getenv(variable);
	if (!value || !*value)
		return -ENOENT;
	return snprintf(out, PATH_MAX, "%s", value) < PATH_MAX ? 0 : -ENAMETOOLONG;
}

static int find_beside(const char *name, char out[PATH_MAX])
{
	static const char *const folders[] = {"", "/../bin", "/../sbin"};
	char self[PATH_MAX], folder[PATH_MAX + 16];
	ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
	if (n < 0)
		return -errno;
	self[n] = 0;
	const char *home = dirname(self);
	for (size_t i = 0; i < sizeof(folders) / sizeof(folders[0]); i++) {
		snprintf(folder, sizeof(folder), "%s%s", home, folders[i]);
		if (!find_in(folder, name, out))
			return 0;
	}
	return -ENOENT;
}

int program_find(const char *name, char out[PATH_MAX])
{
	if (!find_by_variable(name, out) || !find_beside(name, out))
		return 0;
	const char *path = getenv("PATH");
	char *copy = strdup(path ? path : "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin");
	int rc = -ENOENT;
	for (char *folder = strtok(copy, ":"); folder && rc; folder = strtok(NULL, ":"))
		rc = find_in(folder, name, out);
	free(copy);
	return rc;
}

/* --- asking ----------------------------------------------------------------------------- */

struct capture {
	int fd;
	char *text;
	size_t length;
};

static int capture_read(struct capture *capture)
{
	char piece[4096];
	ssize_t n = read(capture->fd, piece, sizeof(piece));
	if (n < 0 && (errno == EINTR || errno == EAGAIN))
		return 0;
	if (n <= 0 || capture->length + (size_t)n > OUTPUT_MAX) {
		close(capture->fd);
		capture->fd = -1;
		return n < 0 ? -errno : 0;
	}
	char *text = realloc(capture->text, capture->length + (size_t)n + 1);
	if (!text)
		return -ENOMEM;
	memcpy(text + capture->length, piece, (size_t)n);
	capture->text = text;
	capture->length += (size_t)n;
	text[capture->length] = 0;
	return 0;
}

static int capture_all(struct capture captures[2], uint64_t end_ns)
{
	while (captures[0].fd >= 0 || captures[1].fd >= 0) {
		struct pollfd fds[2] = {{.fd = captures[0].fd, .events = POLLIN},
			{.fd = captures[1].fd, .events = POLLIN}};
		uint64_t now_ns = clock_now_ns();
		if (now_ns >= end_ns)
			return -ETIMEDOUT;
		if (poll(fds, 2, (int)((end_ns - now_ns) / 1000000) + 1) < 0 && errno != EINTR)
			return -errno;
		for (int i = 0; i < 2; i++) {
			int rc = fds[i].fd >= 0 && fds[i].revents ? capture_read(&captures[i]) : 0;
			if (rc)
				return rc;
		}
	}
	return 0;
}

static void run_child(char *const argv[], int out, int err)
{
	int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
	dup2(null, STDIN_FILENO);
	dup2(out, STDOUT_FILENO);
	dup2(err, STDERR_FILENO);
	execv(argv[0], argv);
	dprintf(STDERR_FILENO, "%s cannot be run: %s\n", argv[0], strerror(errno));
	_exit(127);
}

pid_t program_fork(void)
{
	sigset_t all, before;
	sigfillset(&all);
	pthread_sigmask(SIG_BLOCK, &all, &before);
	pid_t pid = fork();
	for (int number = 1; pid == 0 && number < NSIG; number++) {
		struct sigaction action;
		if (sigaction(number, NULL, &action) == 0 && action.sa_handler != SIG_IGN &&
			action.sa_handler != SIG_DFL)
			signal(number, SIG_DFL);
	}
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return pid;
}

int program_run(char *const argv[], uint64_t limit_ns, struct program_result *result)
{
	int out[2], err[2];
	memset(result, 0, sizeof(*result));
	if (pipe2(out, O_CLOEXEC))
		return -errno;
	if (pipe2(err, O_CLOEXEC)) {
		int error = -errno;
		close(out[0]);
		close(out[1]);
		return error;
	}
	pid_t pid = program_fork();
	if (pid == 0)
		run_child(argv, out[1], err[1]);
	close(out[1]);
	close(err[1]);
	struct capture captures[2] = {{.fd = out[0]}, {.fd = err[0]}};
	int rc = pid < 0 ? -errno : capture_all(captures, clock_now_ns() + limit_ns);
	for (int i = 0; i < 2; i++)
		if (captures[i].fd >= 0)
			close(captures[i].fd);
	if (pid > 0 && rc)
		kill(pid, SIGKILL);
	if (pid > 0)
		waitpid(pid, &result->status, 0);
	result->out = captures[0].text ? captures[0].text : strdup("");
	result->err = captures[1].text ? captures[1].text : strdup("");
	return rc;
}

void program_result_free(struct program_result *result)
{
	free(result->out);
	free(result->err);
	memset(result, 0, sizeof(*result));
}

/* What <base/log.h> puts in front of a line: a priority, or the time and the level. */
static size_t log_head_length(const char *line, size_t length)
{
	int at = 0;
	if (length > 3 && line[0] == '<' && line[2] == '>')
		return 3;
	if (sscanf(line, "%*4d-%*2d-%*2dT%*2d:%*2d:%*2d.%*3dZ %*15[a-z] %n", &at) < 0 ||
		(size_t)at > length)
		return 0;
	return (size_t)at;
}

void program_last_line(const char *text, char *out, size_t out_size)
{
	size_t length = strlen(text);
	while (length && isspace((unsigned char)text[length - 1]))
		length--;
	size_t start = length;
	while (start && text[start - 1] != '\n')
		start--;
	start += log_head_length(text + start, length - start);
	snprintf(out, out_size, "%.*s", (int)(length - start), text + start);
}
