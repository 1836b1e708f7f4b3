/* SPDX-License-Identifier: Apache-2.0 */
/* Three roles, as `xsegpeer --describe-role` would tell of them. Threads: one. */
#ifndef SKERRY_TESTS_FUZZ_ROLES_H
#define SKERRY_TESTS_FUZZ_ROLES_H

#include "tools/pipeline/pipeline.h"

/* pipeline_check() against them. */
int fuzz_roles_check(const struct pipeline *pipeline, struct fault *fault);

#endif
