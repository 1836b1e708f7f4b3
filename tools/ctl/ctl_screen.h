/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A terminal's whole screen, for a text that is shown anew again and again. It can be longer than
 * the screen: arrows, page up and down, home and end move in it.
 *
 * Units: ns. Errors: none. Ownership: one screen of the process. Threads: one. Blocking:
 * ctl_screen_nap().
 */
#ifndef SKERRY_TOOLS_CTL_SCREEN_H
#define SKERRY_TOOLS_CTL_SCREEN_H

#include <stdbool.h>
#include <stdint.h>

/* False: this terminal cannot do that. */
bool ctl_screen_open(void);
void ctl_screen_close(void);
/* From begin to end, what is printed to stdout is the new text. */
void ctl_screen_begin(void);
void ctl_screen_end(void);
/* Looks after keys for that long; false: somebody has pressed q, or ^C. */
bool ctl_screen_nap(uint64_t ns);

#endif
