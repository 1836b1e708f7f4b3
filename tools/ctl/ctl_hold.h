/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fronts that keep what their clients write (front_region) give it to the volume before that
 * becomes another host's, and their clients write no more until it is: who opens it there finds all
 * that was written here.
 *
 * Units: ns. Errors: none; what cannot be settled goes to the volume later, over the bridge.
 * Ownership: the caller's. Threads: one. Blocking: until all of them have answered.
 */
#ifndef SKERRY_TOOLS_CTL_HOLD_H
#define SKERRY_TOOLS_CTL_HOLD_H

#include <xseg/segment.h>

/* All of it once while clients go on, down to the store of `composer`; then the rest, and they
   wait. */
void ctl_hold(const struct xseg *seg, const char *composer, uint64_t volume);
/* They go on. A command that was killed holds them for a few seconds. */
void ctl_hold_end(const struct xseg *seg, uint64_t volume);

#endif
