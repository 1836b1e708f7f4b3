/* SPDX-License-Identifier: Apache-2.0 */
/* The frame of a Check program: one suite in a scratch folder. */
#ifndef SKERRY_TESTS_LIB_UNIT_H
#define SKERRY_TESTS_LIB_UNIT_H

#include <check.h>

#include "tests/lib/fixture.h"

/* A case for one test, named after it, so that a failure's line says which. */
static inline TCase *unit_case(Suite *suite, const char *name)
{
	TCase *made = tcase_create(name);
	tcase_set_timeout(made, 300); /* for what hangs: machines may be slow */
	suite_add_tcase(suite, made);
	return made;
}

#define UNIT_TEST(suite, test) tcase_add_test(unit_case(suite, #test), test)
/* Once for each _i from 0 on. */
#define UNIT_LOOP_TEST(suite, test, count) \
	tcase_add_loop_test(unit_case(suite, #test), test, 0, count)
/* Between the two functions. */
#define UNIT_TEST_WITHIN(suite, test, setup, teardown) \
	do { \
		TCase *within_case = unit_case(suite, #test); \
		tcase_add_checked_fixture(within_case, setup, teardown); \
		tcase_add_test(within_case, test); \
	} while (0)

static inline int unit_main(Suite *suite)
{
	scratch_begin();
	SRunner *runner = srunner_create(suite);
	srunner_run_all(runner, CK_ENV);
	int failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	scratch_end();
	return failed == 0 ? 0 : 1;
}

#endif
