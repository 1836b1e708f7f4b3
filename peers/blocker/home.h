/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which store has a peer of this segment served? A successor of one that was killed must not serve
 * another one, or an emptied one, as if it were that: guests would read zeros.
 *
 * Each store has an identity, a random number that lies in it. The peer notes it, with the
 * segment's uuid and the store's place, in RUN_DIR/SEGMENT/store.PEER; a clean stop removes that.
 *
 * Errors: 0 or -errno. Threads: one, while the peer opens or closes. Blocking: all of it.
 */
#ifndef SKERRY_BLOCKER_HOME_H
#define SKERRY_BLOCKER_HOME_H

#include <base/path.h>
#include <peer/peer.h>
#include <xseg/segment.h>

#define HOME_IDENTITY 33 /* 32 hexadecimal digits */

int home_random(char identity[HOME_IDENTITY]);
/* Where the note lies: to be kept, for the segment is left before the peer closes. */
int home_path(const struct peer *peer, char path[PATH_LENGTH_MAX]);
/* Has this peer served a store at `place` in this segment? Then its identity. */
bool home_known(const struct peer *peer, const char *place, char identity[HOME_IDENTITY]);
int home_note(const struct peer *peer, const char *place, const char *identity);
/* All of it: notes what is there, or refuses what is not what was there, with a sentence. */
int home_check(const struct peer *peer, const char *place, const char *identity,
	char path[PATH_LENGTH_MAX], char *why, size_t why_size);
/* Which writer of shared objects this is: the same one after it was killed, another in each
   segment and by each name; not 0, and its highest bit is 0. */
uint64_t home_writer(const struct peer *peer);

#endif
