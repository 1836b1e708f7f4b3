/* SPDX-License-Identifier: Apache-2.0 */
/* What the parts of vhost_check share. */
#ifndef SKERRY_TESTS_VHOST_CHECK_H
#define SKERRY_TESTS_VHOST_CHECK_H

#include "tests/lib/vhost_driver.h"

#define CHECK_MEMORY (64u << 20)

/* A line of TAP; the plan, and an exit status. */
void check_law(const char *name, bool holds);
int check_end(void);
/* The same bytes for the same seed. */
void check_pattern(void *data, uint64_t length, uint64_t seed);
bool check_has_pattern(const void *data, uint64_t length, uint64_t seed);
/* One ring if `queues` is 0; says why not. */
bool check_open(struct driver *driver, const char *socket, struct driver_config config);
bool check_writes_and_reads(struct driver *driver, unsigned index, uint64_t sector, uint64_t size);

/* vhost_rude.c: guests and monitors that mean no good */
int check_rude(const char *socket);

#endif
