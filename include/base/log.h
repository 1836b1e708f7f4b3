/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Logs go to stderr, one line each. What stands in front depends on what stderr is: on a terminal
 * the program's name, in a file the time (UTC) and the level, else a journald priority.
 *
 * A file that grows beyond SKERRY_LOG_LIMIT bytes (environment) is renamed to FILE.1, in place of
 * the one of before, and begun anew. Only whoever made the file says so.
 *
 * Threads: any. Blocking: a write to stderr; never on the data path.
 */
#ifndef SKERRY_BASE_LOG_H
#define SKERRY_BASE_LOG_H

enum log_level {
	LOG_LEVEL_ERROR = 3,
	LOG_LEVEL_WARNING = 4,
	LOG_LEVEL_INFO = 6,
	LOG_LEVEL_DEBUG = 7
};

/* The program's name in front of messages; who: not copied. */
void log_open(const char *who);
void log_level_set(enum log_level level);
enum log_level log_level_get(void);
/* "error", "warning", "info", "debug" -> level, or -EINVAL. */
int log_level_parse(const char *text);
/* The other way; "log" for what is no level. */
const char *log_level_name(enum log_level level);

/* room: the log room, e.g. "front_nbd"; one sentence without a full stop or newline. */
void log_print(enum log_level level, const char *room, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

#define log_error(room, ...) log_print(LOG_LEVEL_ERROR, room, __VA_ARGS__)
#define log_warning(room, ...) log_print(LOG_LEVEL_WARNING, room, __VA_ARGS__)
#define log_info(room, ...) log_print(LOG_LEVEL_INFO, room, __VA_ARGS__)
#define log_debug(room, ...) log_print(LOG_LEVEL_DEBUG, room, __VA_ARGS__)

#endif
