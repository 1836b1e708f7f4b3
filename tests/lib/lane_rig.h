/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lanes with ports in a segment of the test's own. The expecting ones fail the Check test; the
 * others abort, so that children may use them too.
 */
#ifndef SKERRY_TESTS_LIB_LANE_RIG_H
#define SKERRY_TESTS_LIB_LANE_RIG_H

#include <xseg/lane.h>

#include "tests/lib/fixture.h"

extern struct xseg rig_seg;

void rig_setup(void);
/* Everything must be free again. */
void rig_teardown(void);
struct xseg_lane *rig_join(void);
/* A port for the lane, bound under a peer of its own. */
uint32_t rig_serve(struct xseg_lane *lane, const char *name);
/* A slot of ours to submit: cookie `number`, offset 4096 times that. */
uint32_t rig_get(struct xseg_lane *lane, unsigned op, uint64_t number);
/* Waits for one hint; false after half a minute. */
bool rig_next_hint(struct xseg_lane *lane, struct xseg_hint_message *m);
/* Waits for a request, or a reply, and accepts or receives it; its slot. */
uint32_t rig_expect_submit(struct xseg_lane *lane, unsigned frame);
uint32_t rig_expect_reply(struct xseg_lane *lane);
unsigned rig_state_of(uint32_t slot);
void rig_answer(struct xseg_lane *lane, uint32_t slot, int result, uint64_t value);

#endif
