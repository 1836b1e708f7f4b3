/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Is the folder that a peer finds the store that its predecessor served?
 *
 * Errors: 0 or -errno; -ENOENT: the folder has no identity; -EILSEQ: a damaged one. Threads: one,
 * while the peer opens or closes. Blocking: all of it.
 */
#ifndef SKERRY_BLOCKER_FILE_HOME_H
#define SKERRY_BLOCKER_FILE_HOME_H

#include <base/path.h>
#include <peer/peer.h>
#include <xseg/segment.h>

#define FILE_IDENTITY 33 /* 32 hexadecimal digits */

/* Has this peer served a store at `dir` in this segment? Then its identity. */
bool file_home_known(const struct peer *peer, const char *dir, char identity[FILE_IDENTITY]);
int file_home_note(const struct peer *peer, const char *dir, const char *identity);
/* Where the note lies. */
int file_home_path(const struct peer *peer, char path[PATH_LENGTH_MAX]);

int file_home_read(int root, char identity[FILE_IDENTITY]);
/* The identity, made when there is none. */
int file_home_make(int root, char identity[FILE_IDENTITY]);

#endif
