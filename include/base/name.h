/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Names of segments, peers, edges and hosts: 1 to NAME_LENGTH_MAX characters of
 * [A-Za-z0-9._-], not starting with '.' or '-'. Volume names: see name_check_volume().
 */
#ifndef SKERRY_BASE_NAME_H
#define SKERRY_BASE_NAME_H

#include <stdbool.h>
#include <stddef.h>

#define NAME_LENGTH_MAX 31
#define VOLUME_NAME_LENGTH_MAX 255 /* bytes of UTF-8: of VOLUME, or of VOLUME@SNAP */
#define VOLUME_PART_MAX 191
#define SNAPSHOT_PART_MAX 63

bool name_check(const char *name);
/* VOLUME (1 to 191 bytes) or, a snapshot's, VOLUME@SNAP (1 to 63 more): UTF-8 without control
   characters, '/', another '@', or a leading '-'. */
bool name_check_volume(const char *name);
/* What is no UTF-8 in it (cut off, or never was) becomes '?': what is sent as JSON must be. */
void name_make_utf8(char *text);
/* The machine's own, 32 hexadecimal digits; "": it has none (a container may not). */
#define NAME_MACHINE 33
void name_machine(char id[NAME_MACHINE]);
/* The name of names[] nearest to the one given (for "did you mean"), or NULL. */
const char *name_nearest(const char *name, const char *const *names, size_t count);

#endif
