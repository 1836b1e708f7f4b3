/* SPDX-License-Identifier: Apache-2.0 */
/* MOVER_ROOM, on a worker: what a group takes, and what is free where it would go. */
#include "peers/mover/mover.h"

#define AT_ONCE 256u /* the store may be far */

struct sizes {
	struct mover_call calls[AT_ONCE];
	struct xseg_object_info info[AT_ONCE];
};

/* A store that cannot tell, or is not to be reached now, has room until it says something else. */
static uint64_t room_of(struct mover *mover, unsigned store)
{
	struct xseg_space space = {0};
	struct mover_call ask = {.op = XSEG_OP_INFO, .room = sizeof(space), .receive = &space};
	bool known = mover_call_do(mover, store, &ask) == 0 && ask.got == sizeof(space);
	return known ? space.free : UINT64_MAX;
}

/* Of so many keys, what they take; one may be gone meanwhile. */
static int add_some(struct mover *mover, unsigned store, const struct xseg_key *keys,
	unsigned count, uint64_t *needed)
{
	struct sizes *sizes = calloc(1, sizeof(*sizes));
	int rc = 0;
	must(sizes);
	for (unsigned i = 0; i < count; i++)
		sizes->calls[i] = (struct mover_call){.op = XSEG_OP_INFO,
			.key = keys[i],
			.room = sizeof(sizes->info[i]),
			.receive = &sizes->info[i]};
	(void)mover_call_all(&mover->row, store, sizes->calls, count);
	for (unsigned i = 0; i < count; i++) {
		int one = sizes->calls[i].result;
		*needed += one == 0 ? sizes->info[i].allocated : 0;
		rc = one == 0 || one == -ENOENT || rc != 0 ? rc : one;
	}
	free(sizes);
	return rc;
}

/* Nobody asks each object for its size where all of them would fit if they were full. */
static int measure(struct mover *mover, struct mover_task *task)
{
	struct mover_keys keys = {0};
	unsigned from = !task->to;
	task->room = room_of(mover, task->to);
	if (task->room == UINT64_MAX)
		return 0;
	int rc = mover_record_list_group(mover, from, task->group, &keys);
	task->needed = (uint64_t)keys.count * XSEG_OBJECT_MAX;
	if (rc == 0 && task->needed > task->room) {
		task->needed = 0;
		for (size_t i = 0; i < keys.count && task->needed <= task->room && rc == 0;
			i += AT_ONCE) {
			size_t left = keys.count - i;
			rc = add_some(mover, from, keys.all + i,
				left < AT_ONCE ? (unsigned)left : AT_ONCE, &task->needed);
		}
	}
	free(keys.all);
	return rc;
}

void mover_room_run(struct worker_item *item)
{
	struct mover_task *task = (struct mover_task *)item;
	task->error = measure(task->mover, task);
}
