/* SPDX-License-Identifier: Apache-2.0 */
/* Log lines to stderr: one write each, so that lines of several threads never mix. */
#include <base/log.h>
#include <base/must.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define LOG_LINE_MAX 1024

static const char *log_who = "skerry";
static enum { LOG_TO_PIPE, LOG_TO_TERMINAL, LOG_TO_FILE } log_to;
static _Atomic int log_level_now = LOG_LEVEL_INFO;

static const struct {
	const char *name;
	enum log_level level;
} log_levels[] = {
	{"error", LOG_LEVEL_ERROR},
	{"warning", LOG_LEVEL_WARNING},
	{"info", LOG_LEVEL_INFO},
	{"debug", LOG_LEVEL_DEBUG},
};

const char *log_level_name(enum log_level level)
{
	for (size_t i = 0; i < countof(log_levels); i++)
		if (log_levels[i].level == level)
			return log_levels[i].name;
	return "log";
}

/* Control characters (from a name a client sent, say) must not forge lines or move cursors. */
static void log_clean(char *text, size_t length)
{
	for (size_t i = 0; i < length; i++)
		if ((unsigned char)text[i] < 0x20 || text[i] == 0x7f)
			text[i] = '?';
}

static size_t log_clamp(int length, size_t room)
{
	if (length < 0)
		return 0;
	return (size_t)length < room ? (size_t)length : room - 1;
}

/* --- a file that grows --------------------------------------------------------------------- */

static uint64_t log_limit; /* 0: none */
static _Atomic uint64_t log_size;
static pthread_mutex_t log_lock = PTHREAD_MUTEX_INITIALIZER;

/* Whoever has it open, too (who made it, another thread in the middle of a line) goes on in the
   old one for that line. */
static void log_rotate(void)
{
	char path[PATH_MAX], old[PATH_MAX + 2];
	struct stat st;
	ssize_t n = readlink("/proc/self/fd/2", path, sizeof(path) - 1);
	if (n <= 0 || fstat(STDERR_FILENO, &st) || (uint64_t)st.st_size < log_limit)
		return;
	path[n] = 0;
	snprintf(old, sizeof(old), "%s.1", path);
	if (st.st_nlink == 0 || rename(path, old))
		return;
	int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, st.st_mode & 0777);
	if (fd < 0)
		return;
	dup2(fd, STDERR_FILENO);
	close(fd);
}

static void log_grown(size_t bytes)
{
	if (log_limit == 0 || atomic_fetch_add(&log_size, bytes) + bytes < log_limit)
		return;
	pthread_mutex_lock(&log_lock);
	log_rotate();
	struct stat st;
	atomic_store(&log_size, fstat(STDERR_FILENO, &st) ? 0 : (uint64_t)st.st_size);
	pthread_mutex_unlock(&log_lock);
}

/* --- lines ---------------------------------------------------------------------------------- */

/* "2026-11-22T20:26:48.123Z warning " */
static size_t log_time(char *out, size_t room, enum log_level level)
{
	struct timespec now;
	struct tm tm;
	clock_gettime(CLOCK_REALTIME, &now);
	gmtime_r(&now.tv_sec, &tm);
	size_t n = strftime(out, room, "%FT%T", &tm);
	return n + log_clamp(snprintf(out + n, room - n, ".%03ldZ %s ", now.tv_nsec / 1000000,
				     log_level_name(level)),
			   room - n);
}

static size_t log_head(char *out, size_t room, enum log_level level, const char *from)
{
	size_t n = 0;
	if (log_to == LOG_TO_TERMINAL)
		return log_clamp(
			snprintf(out, room, "%s: %s: %s: ", log_who, log_level_name(level), from),
			room);
	if (log_to == LOG_TO_FILE)
		n = log_time(out, room, level);
	else
		n = log_clamp(snprintf(out, room, "<%d>", (int)level), room);
	return n + log_clamp(snprintf(out + n, room - n, "%s: %s: ", log_who, from), room - n);
}

void log_open(const char *who)
{
	struct stat st;
	const char *limit = getenv("SKERRY_LOG_LIMIT");
	log_who = who;
	log_to = isatty(STDERR_FILENO) == 1	  ? LOG_TO_TERMINAL
		 : fstat(STDERR_FILENO, &st) != 0 ? LOG_TO_PIPE
		 : S_ISREG(st.st_mode)		  ? LOG_TO_FILE
						  : LOG_TO_PIPE;
	log_limit = limit && log_to == LOG_TO_FILE ? strtoull(limit, NULL, 10) : 0;
	atomic_store(&log_size, log_limit ? (uint64_t)st.st_size : 0);
}

void log_level_set(enum log_level level) { atomic_store(&log_level_now, (int)level); }

enum log_level log_level_get(void) { return (enum log_level)atomic_load(&log_level_now); }

int log_level_parse(const char *text)
{
	for (size_t i = 0; i < countof(log_levels); i++)
		if (!strcmp(text, log_levels[i].name))
			return (int)log_levels[i].level;
	return -EINVAL;
}

void log_print(enum log_level level, const char *room, const char *format, ...)
{
	if ((int)level > atomic_load_explicit(&log_level_now, memory_order_relaxed))
		return;
	int saved = errno;
	char line[LOG_LINE_MAX];
	const size_t room_left = sizeof(line) - 1; /* for the newline */
	size_t at = log_head(line, room_left, level, room);
	size_t start = at;
	va_list args;
	va_start(args, format);
	at += log_clamp(vsnprintf(line + at, room_left - at, format, args), room_left - at);
	va_end(args);
	log_clean(line + start, at - start);
	line[at++] = '\n';
	ssize_t put = write(STDERR_FILENO, line, at);
	log_grown(put > 0 ? (size_t)put : 0);
	errno = saved;
}
