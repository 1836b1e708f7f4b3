/* SPDX-License-Identifier: Apache-2.0 */
/* Re-homing by its table and its record (rehome_model.h): the laws hold in every schedule, and do
   not when any one of the things they rest on is left out. */
#include <criterion/criterion.h>

#include "tests/property/rehome_model.h"

#ifdef __SANITIZE_ADDRESS__ /* it looks at other things, and takes three times as long */
#define SCHEDULES 25000u
#else
#define SCHEDULES 100000u
#endif
#define WEAK_SCHEDULES 40000u /* at most, until one is found */

Test(rehome, laws, .timeout = 3000)
{
	unsigned steps;
	for (unsigned seed = 0; seed < SCHEDULES; seed++) {
		const char *broken = rehome_model_run(seed, WEAK_NOTHING, &steps);
		cr_assert(!broken, "seed %u, step %u: %s", seed, steps, broken);
	}
}

Test(rehome, weakenings, .timeout = 3000)
{
	unsigned steps;
	for (enum weak weak = WEAK_NOTHING + 1; weak < WEAK_COUNT; weak++) {
		const char *broken = NULL;
		unsigned seed = 0;
		for (; !broken && seed < WEAK_SCHEDULES; seed++)
			broken = rehome_model_run(seed, weak, &steps);
		cr_assert(broken, "weakening %u was not missed in %u schedules", (unsigned)weak,
			WEAK_SCHEDULES);
		cr_log_info("weakening %u: seed %u, step %u: %s", (unsigned)weak, seed - 1, steps,
			broken);
	}
}
