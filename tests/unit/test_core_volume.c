/* SPDX-License-Identifier: Apache-2.0 */
/* A front's calls are counted for each volume, by name, in a table that is never too small. */
#include <base/log.h>
#include <errno.h>
#include <string.h>

#include "tests/unit/core_rig.h"

#define PAST_NS 61000000000ull /* longer than an unused volume is kept */

/* --- t_volumes: opens any volume, serves the first page of each, the rest is an error ----- */

static void volumes_open(struct peer *peer, struct job *job)
{
	struct xseg_volume_info info = {.state = XSEG_VOLUME_READY};
	(void)peer;
	info.id = job->arg0;
	snprintf(info.name, sizeof(info.name), "vol%llu", (unsigned long long)job->arg0);
	job_put_bytes(job, 0, &info, sizeof(info));
	job_complete(job, sizeof(info));
}

static void volumes_serve(struct peer *peer, struct job *job)
{
	(void)peer;
	if (job->offset)
		job_fail(job, -EIO);
	else
		job_complete(job, job->length);
}

static const struct peer_ops volumes_ops = {.name = "t_volumes",
	.on = {[XSEG_OP_OPEN] = volumes_open,
		[XSEG_OP_CLOSE] = volumes_serve,
		[XSEG_OP_READ] = volumes_serve,
		[XSEG_OP_WRITE] = volumes_serve,
		[XSEG_OP_FLUSH] = volumes_serve,
		[XSEG_OP_DISCARD] = volumes_serve}};

/* --- t_front: does what the test wants, one after the other ------------------------------- */

enum { SWEEP = XSEG_OP_COUNT };

struct wish {
	unsigned op;
	uint64_t volume, offset;
	uint32_t length;
};

static const struct wish *wishes;
static unsigned wish_count;
static _Atomic unsigned wish_next, wishes_done;

static void front_done(struct call *call)
{
	call_end(call);
	atomic_fetch_add(&wishes_done, 1);
}

static bool front_poll(struct peer *peer)
{
	unsigned next = atomic_load(&wish_next);
	struct call *call;
	if (next >= wish_count || next != atomic_load(&wishes_done))
		return false;
	const struct wish *wish = &wishes[next];
	atomic_store(&wish_next, next + 1);
	if (wish->op == SWEEP) {
		volume_sweep(shard_of(peer), peer_now_ns(peer) + PAST_NS);
		atomic_fetch_add(&wishes_done, 1);
		return true;
	}
	must(call_begin(peer, &call) == 0);
	call->op = (enum xseg_op)wish->op;
	call->key.volume = wish->op == XSEG_OP_OPEN ? 0 : wish->volume;
	call->arg0 = wish->volume;
	call->offset = wish->offset;
	call->length = wish->length;
	must(call_pages(call, wish->op == XSEG_OP_OPEN ? XSEG_PAGE : wish->length) == 0);
	call_submit(call, 0, front_done);
	return true;
}

static bool front_sleep(struct peer *peer)
{
	(void)peer;
	return atomic_load(&wish_next) >= wish_count;
}

static const char *const front_edges[] = {"below", NULL};
static const struct peer_ops front_ops = {
	.name = "t_front", .edges = front_edges, .poll = front_poll, .sleep = front_sleep};

static const char *const specs[] = {"f=t_front,edge.below=v", "v=t_volumes", NULL};

static void begin(struct rig *rig)
{
	static bool registered;
	if (!registered) {
		module_register(&volumes_ops);
		module_register(&front_ops);
	}
	registered = true;
	rig_begin(rig, 64u << 20, 1, specs);
}

static void grant(const struct wish *list, unsigned count)
{
	atomic_store(&wish_next, UINT32_MAX); /* nobody looks at the list now */
	wishes = list;
	wish_count = count;
	atomic_store(&wishes_done, 0);
	atomic_store(&wish_next, 0);
	RIG_UNTIL(atomic_load(&wishes_done) == count);
	wish_count = 0;
}

static bool find(struct rig *rig, uint64_t volume, struct xseg_volume_view *view, uint32_t *index)
{
	for (*index = 0; *index < rig->seg.volume_count; (*index)++)
		if (xseg_volume_view(&rig->seg, *index, view) && view->volume == volume)
			return true;
	return false;
}

static unsigned blocks(struct rig *rig)
{
	struct xseg_volume_view view;
	unsigned count = 0;
	for (uint32_t i = 0; i < rig->seg.volume_count; i++)
		count += xseg_volume_view(&rig->seg, i, &view);
	return count;
}

static uint64_t answers(struct rig *rig, uint32_t index, enum xseg_volume_op op)
{
	uint64_t sum = 0;
	for (unsigned i = 0; i < HISTOGRAM_BUCKETS; i++)
		sum += atomic_load(&rig->seg.volumes[index].latency[op].counts[i]);
	return sum;
}

UNIT(test_counts)
{
	static const struct wish list[] = {{XSEG_OP_OPEN, 7, 0, 0}, {XSEG_OP_READ, 7, 0, 4096},
		{XSEG_OP_READ, 7, 0, 4096}, {XSEG_OP_WRITE, 7, 0, 512},
		{XSEG_OP_WRITE, 7, 4096, 4096}, /* an error */
		{XSEG_OP_FLUSH, 7, 0, 0}, {XSEG_OP_DISCARD, 7, 0, 8192},
		{XSEG_OP_READ, 8, 0, 1024}}; /* never opened: counted, without a name */
	struct rig rig;
	struct xseg_volume_view view;
	uint32_t i;
	begin(&rig);
	grant(list, countof(list));
	ck_assert(find(&rig, 7, &view, &i));
	ck_assert_str_eq(view.name, "vol7");
	ck_assert_uint_eq(view.errors, 1);
	ck_assert_uint_eq(view.bytes[XSEG_VOLUME_OP_READ], 8192);
	ck_assert_uint_eq(view.bytes[XSEG_VOLUME_OP_WRITE], 512);
	ck_assert_uint_eq(answers(&rig, i, XSEG_VOLUME_OP_READ), 2);
	ck_assert_uint_eq(answers(&rig, i, XSEG_VOLUME_OP_WRITE), 2);
	ck_assert_uint_eq(answers(&rig, i, XSEG_VOLUME_OP_FLUSH), 1);
	ck_assert_uint_eq(answers(&rig, i, XSEG_VOLUME_OP_OTHER), 1);
	ck_assert(find(&rig, 8, &view, &i));
	ck_assert_str_eq(view.name, "");
	ck_assert_uint_eq(view.bytes[XSEG_VOLUME_OP_READ], 1024);
	ck_assert_uint_eq(blocks(&rig), 2);
	ck_assert(host_stop(&rig.host, NULL));
	host_fini(&rig.host);
	ck_assert_uint_eq(blocks(&rig), 0);
	rig.serving = false;
	rig_end(&rig);
}

/* More volumes than there are blocks: served all the same, and the table is not outgrown. When a
   block is given back another volume is counted in it. */
UNIT(test_many)
{
	enum { MANY = 300 };
	static const struct wish closed[] = {
		{XSEG_OP_CLOSE, 1, 0, 0}, {SWEEP, 0, 0, 0}, {XSEG_OP_READ, 2, 0, 512}};
	static struct wish list[2 * MANY];
	struct rig rig;
	begin(&rig);
	for (unsigned i = 0; i < MANY; i++) {
		list[2 * i] = (struct wish){XSEG_OP_OPEN, 1 + i, 0, 0};
		list[2 * i + 1] = (struct wish){XSEG_OP_READ, 1 + i, 0, 512};
	}
	grant(list, countof(list));
	unsigned most = rig.seg.volume_count < SHARD_VOLUMES ? rig.seg.volume_count : SHARD_VOLUMES;
	ck_assert_uint_eq(blocks(&rig), most);
	ck_assert_uint_eq(rig_counter(&rig, "f", CORE_READS), MANY);
	struct xseg_volume_view view;
	uint32_t i;
	ck_assert(find(&rig, 1, &view, &i));
	grant(closed, countof(closed));
	ck_assert(!find(&rig, 1, &view, &i));
	ck_assert_uint_eq(blocks(&rig), most);
	rig_end(&rig);
}

/* After the last CLOSE a volume's block is kept for a while, then given back. */
UNIT(test_idle)
{
	static const struct wish used[] = {{XSEG_OP_OPEN, 5, 0, 0}, {XSEG_OP_OPEN, 5, 0, 0},
		{XSEG_OP_READ, 5, 0, 512}, {XSEG_OP_CLOSE, 5, 0, 0}, {SWEEP, 0, 0, 0}};
	static const struct wish closed[] = {{XSEG_OP_CLOSE, 5, 0, 0}, {XSEG_OP_CLOSE, 5, 0, 0}};
	static const struct wish swept[] = {{SWEEP, 0, 0, 0}};
	static const struct wish again[] = {{XSEG_OP_OPEN, 5, 0, 0}, {XSEG_OP_READ, 5, 0, 512}};
	struct rig rig;
	struct xseg_volume_view view;
	uint32_t i;
	begin(&rig);
	grant(used, countof(used));
	ck_assert(find(&rig, 5, &view, &i)); /* somebody has it open, however idle */
	grant(closed, countof(closed));
	ck_assert(find(&rig, 5, &view, &i));
	ck_assert_uint_eq(view.bytes[XSEG_VOLUME_OP_READ], 512);
	grant(swept, countof(swept));
	ck_assert_uint_eq(blocks(&rig), 0);
	grant(again, countof(again));
	ck_assert(find(&rig, 5, &view, &i));
	ck_assert_uint_eq(view.bytes[XSEG_VOLUME_OP_READ], 512);
	rig_end(&rig);
}

/* A log level that the segment asks for is the process's within a second or so. */
UNIT(test_level)
{
	struct rig rig;
	begin(&rig);
	int was = (int)log_level_get();
	struct xseg_peer_record *f = &rig.seg.peers[rig_peer(&rig, "f")->record];
	struct xseg_peer_record *v = &rig.seg.peers[rig_peer(&rig, "v")->record];
	ck_assert_uint_eq(atomic_load(&f->log_level_now), (unsigned)was);
	atomic_store(&f->log_level, LOG_LEVEL_ERROR);
	RIG_UNTIL(atomic_load(&f->log_level_now) == (LOG_LEVEL_ERROR | LOG_LEVEL_ERROR << 8));
	ck_assert_int_eq(log_level_get(), LOG_LEVEL_ERROR);
	/* the most talkative of a process decides */
	atomic_store(&v->log_level, LOG_LEVEL_DEBUG);
	RIG_UNTIL(atomic_load(&f->log_level_now) == (LOG_LEVEL_DEBUG | LOG_LEVEL_ERROR << 8));
	atomic_store(&v->log_level, 0);
	atomic_store(&f->log_level, 77); /* none: as if nobody had asked */
	RIG_UNTIL(atomic_load(&f->log_level_now) == (unsigned)was);
	ck_assert_int_eq(log_level_get(), was);
	rig_end(&rig);
}
