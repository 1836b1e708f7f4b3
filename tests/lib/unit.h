/* SPDX-License-Identifier: Apache-2.0 */
/* The frame of a Check program: one suite in a scratch folder. */
#ifndef SKERRY_TESTS_LIB_UNIT_H
#define SKERRY_TESTS_LIB_UNIT_H

#include <check.h>

#include "tests/lib/fixture.h"

/* Adds one test to a case named after it, so that a failure's line says which. */
#define UNIT_TEST(suite, test) \
	do { \
		TCase *unit_case = tcase_create(#test); \
		tcase_set_timeout(unit_case, 60); \
		tcase_add_test(unit_case, test); \
		suite_add_tcase(suite, unit_case); \
	} while (0)
/* Once for each _i from 0 on. */
#define UNIT_LOOP_TEST(suite, test, count) \
	do { \
		TCase *unit_case = tcase_create(#test); \
		tcase_set_timeout(unit_case, 60); \
		tcase_add_loop_test(unit_case, test, 0, count); \
		suite_add_tcase(suite, unit_case); \
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
