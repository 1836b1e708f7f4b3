/* SPDX-License-Identifier: Apache-2.0 */
/* Preloaded: time() is WRONG_CLOCK seconds ahead, as on a machine whose clock nobody has set. */
#include <stdlib.h>
#include <time.h>

__attribute__((visibility("default"))) time_t time(time_t *out)
{
	struct timespec now;
	const char *wrong = getenv("WRONG_CLOCK");
	clock_gettime(CLOCK_REALTIME, &now);
	time_t told = now.tv_sec + (wrong ? atoi(wrong) : 0);
	if (out)
		*out = told;
	return told;
}
