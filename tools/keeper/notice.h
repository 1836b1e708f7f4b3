/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What arrives at a NOTIFY_SOCKET of ours (sd_notify(3)), and descriptors handed to a program that
 * is about to be run (sd_listen_fds(3)).
 *
 * Errors: 0 or -errno. Ownership: descriptors of a notice are the reader's. Threads: one.
 * Blocking: none.
 */
#ifndef SKERRY_TOOLS_NOTICE_H
#define SKERRY_TOOLS_NOTICE_H

#include <base/name.h>
#include <base/notify.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#define NOTICE_FDS 4 /* with one message */

struct notice {
	char text[NOTIFY_TEXT_MAX];
	pid_t pid; /* who sent it; 0: unknown */
	int fds[NOTICE_FDS];
	unsigned fd_count;
	/* what it says */
	bool ready, alive, stopping, store, remove;
	const char *name; /* FDNAME; "" when there is none */
};

/* A bound one, in place of one of that path. The descriptor, or -errno. */
int notice_socket(const char *path);
/* False: there is nothing to be read. */
bool notice_read(int fd, struct notice *notice);
/* The descriptor to be kept, or -1; all others that came with it are closed. */
int notice_fd(struct notice *notice);

#define HAND_MAX 1024
#define HAND_NAME (NOTIFY_NAME_MAX + NAME_LENGTH_MAX + 2)

struct hand {
	int fds[HAND_MAX];
	unsigned count;
	char names[HAND_MAX * HAND_NAME];
	size_t length;
};

/* Under that name, or HOST/NAME when host is given; ours stays open. */
void notice_add(struct hand *hand, const char *host, const char *name, int fd);
/*
 * All of them lie where the program will look for them, and are named in the environment; behind
 * them those of `rest`, whose numbers change. There is no way back: what lay there is overwritten.
 */
void notice_over(struct hand *hand, int *rest, unsigned rest_count);
/* The arguments with which this program was started, for `program`, without what only the first
   one is to do; as many as fit. */
#define HAND_ARGUMENTS_MAX 32
void notice_arguments(char *const *from, char *program, char *to[HAND_ARGUMENTS_MAX]);

#endif
