/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Kills after every single instruction. A victim does one thing (submits, takes, answers, reaps);
 * whoever steps it with ptrace(2) notes each change of shared memory. SIGKILL leaves nothing behind
 * but shared memory, so what a kill after instruction k leaves is what was there after k: those
 * states are put back one after the other, when the victim is dead, and each must be repaired.
 *
 * Threads: one in each process. Errors: must() and child_check().
 */
#ifndef SKERRY_TESTS_CRASH_STEP_H
#define SKERRY_TESTS_CRASH_STEP_H

#include <xseg/lane.h>

#define STEP_SENT 4u

/* The living: a client of "top" (whose server may be the victim), and the server of "home". */
struct step_world {
	struct xseg seg;
	struct xseg_lane *lane;
	uint32_t home, top, low; /* ports; "low" is where "top" forwards to */
	uint32_t sent[STEP_SENT], sent_count;
	uint32_t lent[2], lent_count; /* pages of ours that a reader has pinned */
};

struct step_victim {
	struct step_world *world;
	struct xseg_lane *lane;
	uint32_t slot, slots[8], slot_count;
	struct xseg_extent pages[4];
	uint32_t page_count;
};

struct step_scene {
	const char *name;
	bool serves;   /* the victim is the server of "top", and has work */
	bool corpse;   /* somebody has died before, with hands full */
	unsigned pins; /* that it drops: so many states may leave one behind */
	void (*ready)(struct step_victim *victim); /* before it is stepped */
	void (*between)(struct step_world *world); /* the living's move, then */
	void (*act)(struct step_victim *victim);   /* each instruction of this */
};

extern const struct step_scene step_scenes[];
extern const unsigned step_scene_count;

/* --- step_world.c ---------------------------------------------------------------------------- */
void step_world_make(struct step_world *world);
void step_victim_join(struct step_victim *victim);
/* Binds "top" and "low" to the lane, and finds what waits for them. */
void step_bind(struct step_world *world, struct xseg_lane *lane);
/* The living one has sent STEP_SENT requests down to "top". */
void step_send(struct step_world *world);
/* Answers what has come to "home", reads with pages of our own. */
void step_answer_home(struct step_world *world);
/*
 * Reaps, lets a successor serve, and looks whether all is as it must be. Call in a child. False:
 * a page is left with the pin of a reader that died between noting it as dropped and dropping it.
 */
bool step_repair_and_check(struct step_world *world);
uint64_t step_value(uint64_t cookie, bool successor);

#endif
