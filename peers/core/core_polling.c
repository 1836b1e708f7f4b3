/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whether a lane spins before it sleeps: tried, not guessed (docs/decisions/0004). It sleeps at
 * once for a while, then spins for a while, and keeps to the better of the two until the next try,
 * which comes at once when the load is no longer what it was.
 */
#include <base/time.h>
#include <time.h>

#include "peers/core/core.h"

#define POLLING_TRY_NS 8000000u
#define POLLING_LOOK_NS 20000000u /* while a choice is held: is the load still the same? */
#define POLLING_CHANGE 1.5	  /* it is not */
#define POLLING_HOLD_MIN_NS 200000000u
#define POLLING_HOLD_MAX_NS 1600000000u
/* Spinning must bring so much more for the CPU it takes, unless it takes none. */
#define POLLING_GAIN 1.25
#define POLLING_NOISE 0.98
#define POLLING_STALE 2u /* a try that took so many times longer */

static uint64_t polling_cpu_ns(void)
{
	struct timespec ts;
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
	return time_of(&ts);
}

static void polling_begin(struct lane_polling *polling, enum lane_phase phase, uint64_t now)
{
	polling->phase = phase;
	polling->since_ns = now;
	polling->cpu_ns = polling_cpu_ns();
	polling->work = 0;
}

static void polling_judge(struct lane_polling *polling, double rate, double cpu, uint64_t now)
{
	bool faster = rate > polling->sleep_rate * POLLING_GAIN;
	bool free = rate > polling->sleep_rate * POLLING_NOISE && cpu < polling->sleep_cpu;
	bool spins = faster || free;
	bool confirmed = polling->hold_ns && spins == polling->spins;
	polling->hold_ns = confirmed ? polling->hold_ns * 2 : POLLING_HOLD_MIN_NS;
	if (polling->hold_ns > POLLING_HOLD_MAX_NS)
		polling->hold_ns = POLLING_HOLD_MAX_NS;
	polling->ends_ns = now + polling->hold_ns;
	polling->spins = spins;
	polling->rate = 0;
}

/* False: the load is another one. */
static bool polling_same(struct lane_polling *polling, double rate)
{
	if (polling->rate == 0)
		polling->rate = rate;
	return rate < polling->rate * POLLING_CHANGE && polling->rate < rate * POLLING_CHANGE;
}

static void polling_next(struct lane_polling *polling, struct xseg_lane *x, uint64_t passed)
{
	double work = (double)(polling->work ? polling->work : 1);
	double rate = work / (double)passed,
	       cpu = (double)(polling_cpu_ns() - polling->cpu_ns) / work;
	enum lane_phase next = LANE_HOLD;
	if (polling->phase == LANE_TRY_SLEEP) {
		polling->sleep_rate = rate;
		polling->sleep_cpu = cpu;
		xseg_spin_init(&x->spin);
		next = LANE_TRY_SPIN;
	} else if (polling->phase == LANE_TRY_SPIN) {
		polling_judge(polling, rate, cpu, x->now_ns);
	} else if (!polling_same(polling, rate)) {
		polling->hold_ns = 0;
		next = LANE_TRY_SLEEP;
	} else if (x->now_ns >= polling->ends_ns) {
		next = LANE_TRY_SLEEP;
	}
	polling_begin(polling, next, x->now_ns);
}

bool polling_spins(struct lane_polling *polling, struct xseg_lane *x)
{
	uint64_t lasts = polling->phase == LANE_HOLD ? POLLING_LOOK_NS : POLLING_TRY_NS;
	uint64_t passed = x->now_ns - polling->since_ns;
	if (polling->phase != LANE_HOLD && passed > POLLING_STALE * lasts)
		polling_begin(polling, polling->phase, x->now_ns); /* silence says nothing */
	else if (passed >= lasts)
		polling_next(polling, x, passed);
	return polling->phase == LANE_HOLD ? polling->spins : polling->phase == LANE_TRY_SPIN;
}
