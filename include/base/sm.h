/* SPDX-License-Identifier: Apache-2.0 */
/*
 * State machines by table: for each state its name and the set of states that may
 * follow. A state changes only by sm_move().
 * Source: the idea of dqlite's sm.h (successor masks), written anew.
 */
#ifndef SKERRY_BASE_SM_H
#define SKERRY_BASE_SM_H

#include <base/must.h>
#include <stdbool.h>
#include <stdint.h>

struct sm_state {
	const char *name;
	uint32_t next; /* SM(A) | SM(B): states that may follow */
};

#define SM(state) (1u << (state))

static inline bool sm_may(const struct sm_state *table, unsigned from, unsigned to)
{
	return (table[from].next >> to) & 1u;
}

static inline void sm_move(const struct sm_state *table, uint8_t *state, unsigned to)
{
	must(sm_may(table, *state, to));
	*state = (uint8_t)to;
}

#endif
