/* SPDX-License-Identifier: Apache-2.0 */
/* main() of every Check program. */
#include "tests/lib/unit.h"

#include <errno.h>

static struct unit *first, **last = &first;

void unit_add(struct unit *unit)
{
	*last = unit;
	last = &unit->next;
}

/* A case for each test, named after it, so that a failure's line says which. */
static void unit_case(Suite *suite, const struct unit *unit)
{
	TCase *made = tcase_create(unit->test->name);
	tcase_set_timeout(made, 300); /* for what hangs: machines may be slow */
	if (unit->setup || unit->teardown)
		tcase_add_checked_fixture(made, unit->setup, unit->teardown);
	tcase_add_loop_test(made, unit->test, 0, unit->count);
	suite_add_tcase(suite, made);
}

int main(void)
{
	Suite *suite = suite_create(program_invocation_short_name);
	for (const struct unit *unit = first; unit; unit = unit->next)
		unit_case(suite, unit);
	scratch_begin();
	SRunner *runner = srunner_create(suite);
	srunner_run_all(runner, CK_ENV);
	int failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	scratch_end();
	return failed == 0 ? 0 : 1;
}
