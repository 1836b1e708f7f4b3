/* SPDX-License-Identifier: Apache-2.0 */
/* Log lines to stderr: one write each, so that lines of several threads never mix. */
#include <base/log.h>
#include <base/must.h>
#include <errno.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define LOG_LINE_MAX 1024

static const char *log_who = "skerry";
static bool log_terminal;
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

void log_open(const char *who)
{
	log_who = who;
	log_terminal = isatty(STDERR_FILENO) == 1;
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
	size_t at = log_terminal ? log_clamp(snprintf(line, room_left, "%s: %s: %s: ", log_who,
						     log_level_name(level), room),
					   room_left)
				 : log_clamp(snprintf(line, room_left, "<%d>%s: %s: ", (int)level,
						     log_who, room),
					   room_left);
	size_t start = at;
	va_list args;
	va_start(args, format);
	at += log_clamp(vsnprintf(line + at, room_left - at, format, args), room_left - at);
	va_end(args);
	log_clean(line + start, at - start);
	line[at++] = '\n';
	ssize_t ignored = write(STDERR_FILENO, line, at);
	(void)ignored;
	errno = saved;
}
