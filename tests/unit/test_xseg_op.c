/* SPDX-License-Identifier: Apache-2.0 */
/* Every op has a name of its own; what is no op has one too. */
#include <string.h>
#include <xseg/op.h>

#include "tests/lib/unit.h"

UNIT(test_names)
{
	for (unsigned a = 0; a < XSEG_OP_COUNT; a++) {
		ck_assert_ptr_nonnull(xseg_op_name(a));
		ck_assert_uint_gt(strlen(xseg_op_name(a)), 0);
		for (unsigned b = 0; b < a; b++)
			ck_assert_str_ne(xseg_op_name(a), xseg_op_name(b));
	}
	ck_assert_str_eq(xseg_op_name(XSEG_OP_READ), "read");
	ck_assert_str_eq(xseg_op_name(XSEG_OP_CAS), "cas");
	ck_assert_ptr_nonnull(xseg_op_name(XSEG_OP_COUNT));
	ck_assert_ptr_nonnull(xseg_op_name(0xffffffffu));
}
