/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Three hosts over one store, of which one volume moves about while clients use it: the re-homer's
 * table (peers/rehome/rehome_table.h) and the home record (peers/map/map_home.h) as they are, and
 * around them a model of composers, caches, stores and of the bridges between. Messages are
 * delivered in any order, late, twice or not at all; re-homers, composers and hosts die.
 *
 * Laws, looked at with each step:
 *   - what is read is what was written last, by whomever
 *   - who attached before another had the volume without a hand-over writes nothing any more
 *   - who did not sees no error, but if he opened it while it was away, and his re-homer, who
 *     alone knew of that, was killed
 * and at the end, when nothing fails any more: one host has it, and everybody is answered.
 *
 * Units: none. Errors: NULL, or the law that was broken. Threads: one. Blocking: none.
 */
#ifndef SKERRY_TESTS_PROPERTY_REHOME_MODEL_H
#define SKERRY_TESTS_PROPERTY_REHOME_MODEL_H

/* One thing less, to see that it is missed. */
enum weak {
	WEAK_NOTHING,
	WEAK_GIVE_DIRTY, /* the cache is not written back before the volume is given */
	WEAK_NO_FENCE,	 /* a cache keeps what it has when the volume comes back */
	WEAK_FREEZE,	 /* it is given with requests on their way, and those still go through */
	WEAK_BLIND,	 /* it is given and taken by puts that no version guards */
	WEAK_ANY_TERM,	 /* all who are attached go on, whoever has had it */
	WEAK_NOT_HANDED, /* the destination takes what was free for a hand-over */
	WEAK_NO_PREDECESSOR, /* who has it without a hand-over is not noted */
	WEAK_NO_TIMER,	     /* the destination's answer is waited for */
	WEAK_NO_RETRY,	     /* what fails is not tried again */
	WEAK_EARLY,	     /* it is taken back while what gives it away is on its way */
	WEAK_TOLD,	     /* whoever is told that it was given takes it, also for another one */
	WEAK_COUNT
};

/* One schedule. *steps: so many until it failed. */
const char *rehome_model_run(unsigned seed, enum weak weak, unsigned *steps);

#endif
