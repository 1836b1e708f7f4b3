/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whether a lane spins before it sleeps: tried, not guessed (docs/decisions/0004). It sleeps at
 * once for a while, then spins for a while, and keeps to the better of the two until the next try,
 * which comes at once when the load is no longer what it was.
 */
#include <time.h>

#include "peers/core/core.h"

#define TRIAL_TRY_NS 8000000u
#define TRIAL_LOOK_NS 20000000u /* while a choice is held: is the load still the same? */
#define TRIAL_CHANGE 1.5	/* it is not */
#define TRIAL_HOLD_MIN_NS 200000000u
#define TRIAL_HOLD_MAX_NS 1600000000u
/* Spinning must bring so much more for the CPU it takes, unless it takes none. */
#define TRIAL_GAIN 1.25
#define TRIAL_NOISE 0.98
#define TRIAL_STALE 2u /* a try that took so many times longer */

static uint64_t trial_cpu_ns(void)
{
	struct timespec ts;
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static void trial_begin(struct lane_trial *trial, enum lane_phase phase, uint64_t now)
{
	trial->phase = phase;
	trial->since_ns = now;
	trial->cpu_ns = trial_cpu_ns();
	trial->work = 0;
}

static void trial_judge(struct lane_trial *trial, double rate, double cpu, uint64_t now)
{
	bool faster = rate > trial->sleep_rate * TRIAL_GAIN;
	bool free = rate > trial->sleep_rate * TRIAL_NOISE && cpu < trial->sleep_cpu;
	bool spins = faster || free;
	bool confirmed = trial->hold_ns && spins == trial->spins;
	trial->hold_ns = confirmed ? trial->hold_ns * 2 : TRIAL_HOLD_MIN_NS;
	if (trial->hold_ns > TRIAL_HOLD_MAX_NS)
		trial->hold_ns = TRIAL_HOLD_MAX_NS;
	trial->ends_ns = now + trial->hold_ns;
	trial->spins = spins;
	trial->rate = 0;
}

/* False: the load is another one. */
static bool trial_same(struct lane_trial *trial, double rate)
{
	if (trial->rate == 0)
		trial->rate = rate;
	return rate < trial->rate * TRIAL_CHANGE && trial->rate < rate * TRIAL_CHANGE;
}

static void trial_next(struct lane_trial *trial, struct xseg_lane *x, uint64_t passed)
{
	double work = (double)(trial->work ? trial->work : 1);
	double rate = work / (double)passed, cpu = (double)(trial_cpu_ns() - trial->cpu_ns) / work;
	enum lane_phase next = LANE_HOLD;
	if (trial->phase == LANE_TRY_SLEEP) {
		trial->sleep_rate = rate;
		trial->sleep_cpu = cpu;
		xseg_spin_init(&x->spin);
		next = LANE_TRY_SPIN;
	} else if (trial->phase == LANE_TRY_SPIN) {
		trial_judge(trial, rate, cpu, x->now_ns);
	} else if (!trial_same(trial, rate)) {
		trial->hold_ns = 0;
		next = LANE_TRY_SLEEP;
	} else if (x->now_ns >= trial->ends_ns) {
		next = LANE_TRY_SLEEP;
	}
	trial_begin(trial, next, x->now_ns);
}

bool trial_spins(struct lane_trial *trial, struct xseg_lane *x)
{
	uint64_t lasts = trial->phase == LANE_HOLD ? TRIAL_LOOK_NS : TRIAL_TRY_NS;
	uint64_t passed = x->now_ns - trial->since_ns;
	if (trial->phase != LANE_HOLD && passed > TRIAL_STALE * lasts)
		trial_begin(trial, trial->phase, x->now_ns); /* silence says nothing */
	else if (passed >= lasts)
		trial_next(trial, x, passed);
	return trial->phase == LANE_HOLD ? trial->spins : trial->phase == LANE_TRY_SPIN;
}
