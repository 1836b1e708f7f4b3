/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A role's options: one table gives the parser, the help and the man page.
 *
 *   struct file_options { char *dir; uint64_t fds; };
 *   static const struct peer_option file_options[] = {
 *       OPTION_TEXT(struct file_options, dir, "dir", .required = true,
 *                   .help = "folder that holds the objects; made when missing"),
 *       OPTION_COUNT(struct file_options, fds, "fds", .min = 16, .max = 65536, .initial = "1024",
 *                    .unit = "files", .help = "object files kept open"),
 *       OPTION_END };
 *
 * Units: sizes in bytes, times in ns. Errors: one sentence that names option, value and what
 * would do; -EINVAL. Ownership: parsed values live as long as the peer.
 */
#ifndef SKERRY_PEER_OPTION_H
#define SKERRY_PEER_OPTION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum peer_option_type {
	PEER_OPTION_END,
	PEER_OPTION_TEXT,   /* char * */
	PEER_OPTION_LIST,   /* struct peer_list: may be given several times */
	PEER_OPTION_BOOL,   /* bool: yes no true false on off 1 0 */
	PEER_OPTION_COUNT,  /* uint64_t, a plain number */
	PEER_OPTION_SIZE,   /* uint64_t bytes: "4K", "1GiB" */
	PEER_OPTION_TIME,   /* uint64_t ns: "10ms", "5s", "20us" */
	PEER_OPTION_CHOICE, /* uint64_t: index into choices */
};

struct peer_list {
	char **item;
	size_t count;
};

#define PEER_TEXT_MAX 4095u /* characters; a path has no more */

struct peer_option {
	enum peer_option_type type;
	const char *name;
	size_t offset;
	bool required;
	uint64_t min, max;	    /* COUNT, SIZE, TIME; max 0: no limit.
				       TEXT, LIST: max characters; 0: PEER_TEXT_MAX */
	const char *initial;	    /* as one would write it; NULL: empty, no, 0 */
	const char *const *choices; /* NULL-terminated */
	const char *unit;
	const char *help; /* one line, lower case, no full stop */
};

#define OPTION_(kind, s, member, text, ...) \
	{ \
		.type = PEER_OPTION_##kind, .name = text, .offset = offsetof(s, member), \
		__VA_ARGS__ \
	}
#define OPTION_TEXT(s, m, n, ...) OPTION_(TEXT, s, m, n, __VA_ARGS__)
#define OPTION_LIST(s, m, n, ...) OPTION_(LIST, s, m, n, __VA_ARGS__)
#define OPTION_BOOL(s, m, n, ...) OPTION_(BOOL, s, m, n, __VA_ARGS__)
#define OPTION_COUNT(s, m, n, ...) OPTION_(COUNT, s, m, n, __VA_ARGS__)
#define OPTION_SIZE(s, m, n, ...) OPTION_(SIZE, s, m, n, __VA_ARGS__)
#define OPTION_TIME(s, m, n, ...) OPTION_(TIME, s, m, n, __VA_ARGS__)
#define OPTION_CHOICE(s, m, n, ...) OPTION_(CHOICE, s, m, n, __VA_ARGS__)
#define OPTION_END \
	{ \
		.type = PEER_OPTION_END \
	}

#endif
