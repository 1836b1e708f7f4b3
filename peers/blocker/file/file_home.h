/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A folder's identity (peers/blocker/home.h says what for), in DIR/identity.
 *
 * Errors: 0 or -errno; -ENOENT: the folder has no identity; -EILSEQ: a damaged one. Threads: one,
 * while the peer opens. Blocking: all of it.
 */
#ifndef SKERRY_BLOCKER_FILE_HOME_H
#define SKERRY_BLOCKER_FILE_HOME_H

#include "peers/blocker/home.h"

int file_home_read(int root, char identity[HOME_IDENTITY]);
/* The identity, made when there is none. */
int file_home_make(int root, char identity[HOME_IDENTITY]);

#endif
