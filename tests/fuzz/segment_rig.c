/* SPDX-License-Identifier: Apache-2.0 */
/* Two peers on a lane, a client, and a segment that forgets. */
#include "tests/fuzz/segment_rig.h"

#include <base/log.h>
#include <errno.h>
#include <fcntl.h>
#include <sanitizer/asan_interface.h>
#include <setjmp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "tests/lib/fixture.h"

#define SEGMENT_SIZE (8u << 20)
#define SEGMENT_LANES 4u
#define SEGMENT_REQUESTS 64u
#define HINTS 64u

struct segment_rig rig;

static struct host host, host_saved;
static struct xseg_lane serving_saved, client_saved;
static struct shard shard_saved[RIG_PEERS];
static jmp_buf refused;
static bool trying, holding;

extern const struct peer_ops *const fuzz_volume_module;
extern const struct peer_ops *const fuzz_memory_module;

_Noreturn void __wrap_must_fail(const char *what, const char *file, int line);
_Noreturn void __real_must_fail(const char *what, const char *file, int line);

_Noreturn void __wrap_must_fail(const char *what, const char *file, int line)
{
	if (trying && !holding)
		longjmp(refused, 1);
	__real_must_fail(what, file, line);
}

void rig_must_hold(bool hold) { holding = hold; }

/* --- once ------------------------------------------------------------------------------------ */

static void add_peer(unsigned which, const char *spec)
{
	char why[WHY_SIZE] = "", edge[XSEG_EDGE_NAME_MAX];
	must(spec_host_add(&host, spec, why) == 0);
	struct host_peer *peer = &host.peers[which];
	struct lane *lane = &host.lanes[0];
	uint8_t place = (uint8_t)lane->x->index;
	must(xseg_port_reserve(&host.seg, peer->name, &peer->port) == 0);
	must(xseg_peer_join(&host.seg, peer->name, peer->role, 1ull << place, &peer->record,
		     &peer->epoch) == 0);
	must(xseg_port_bind(&host.seg, peer->name, peer->record, peer->epoch, &place, 1,
		     &peer->port) == 0);
	struct shard *shard = aligned_alloc(64, sizeof(*shard));
	must(shard);
	memset(shard, 0, sizeof(*shard));
	shard->owner = peer;
	shard->peer = (struct peer){.ops = peer->ops,
		.name = peer->name,
		.shared = peer->shared,
		.options = peer->options,
		.shards = 1,
		.lane = lane,
		.port = peer->port,
		.record = peer->record};
	memset(shard->peer.edge, 0xff, sizeof(shard->peer.edge)); /* XSEG_NONE */
	shard->peer.state = calloc(1, peer->ops->state_size);
	must(shard->peer.state);
	peer->shards = shard;
	lane->shard[lane->shard_count++] = shard;
	rig.port[which] = peer->port;
	if (!peer->ops->edges)
		return;
	snprintf(edge, sizeof(edge), "%s:%s", peer->name, peer->ops->edges[0]);
	must(xseg_edge_reserve(&host.seg, edge, &shard->peer.edge[0]) == 0);
}

/* What lies between two tables is nobody's. */
static void poison_gaps(void)
{
	const struct xseg_superblock *super = host.seg.super;
	for (unsigned i = 0; i < XSEG_TABLE_COUNT; i++) {
		const struct xseg_table_place *place = &super->tables[i];
		uint64_t end = place->offset + place->size;
		uint64_t next =
			i + 1 < XSEG_TABLE_COUNT ? super->tables[i + 1].offset : host.seg.size;
		ASAN_POISON_MEMORY_REGION(host.seg.base + end, next - end);
	}
}

static void keep(void)
{
	must(mmap(host.seg.base, host.seg.size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED,
		     rig.image, 0) == host.seg.base);
	poison_gaps();
	host_saved = host;
	serving_saved = *host.lanes[0].x;
	client_saved = *rig.client;
	for (unsigned i = 0; i < RIG_PEERS; i++)
		shard_saved[i] = *host.peers[i].shards;
}

void rig_init(void)
{
	log_level_set(LOG_LEVEL_ERROR);
	scratch_begin();
	atexit(scratch_end);
	scratch_segment(&host.seg, SEGMENT_SIZE, SEGMENT_LANES, SEGMENT_REQUESTS);
	must((rig.image = open(host.seg.path, O_RDWR | O_CLOEXEC)) >= 0);
	module_register(fuzz_volume_module);
	module_register(fuzz_memory_module);
	host.lane_count = 1;
	host.lanes[0].host = &host;
	must(lane_init(&host.lanes[0]) == 0);
	must(xseg_lane_join(&host.seg, false, &rig.client) == 0);
	add_peer(RIG_VOLUME, "vol=volume,object-size=64K,fixed=d:8M");
	add_peer(RIG_STORE, "mem=blocker_memory,size=1M");
	xseg_edge_set(&host.seg, host.peers[RIG_VOLUME].shards->peer.edge[0], rig.port[RIG_STORE]);
	rig.seg = &host.seg;
	keep();
}

/* --- each time ------------------------------------------------------------------------------- */

static void lane_forget(struct xseg_lane *lane, const struct xseg_lane *saved)
{
	for (unsigned i = 0; i < XSEG_LANES_MAX; i++)
		free(lane->overflow[i].item);
	xseg_ringer_fini(&lane->ringer);
	*lane = *saved;
	xseg_ringer_init(&lane->ringer, &host.seg);
}

static void slab_forget(const struct slab *slab)
{
	memset(slab->base, 0, slab->touched * slab->item_size);
}

static void forget(void)
{
	struct lane *lane = &host.lanes[0];
	slab_forget(&lane->jobs);
	slab_forget(&lane->calls);
	slab_forget(&lane->lists);
	slab_forget(&lane->retries);
	lane_forget(lane->x, &serving_saved);
	lane_forget(rig.client, &client_saved);
	for (unsigned i = 0; i < RIG_PEERS; i++) {
		struct host_peer *peer = &host_saved.peers[i];
		*peer->shards = shard_saved[i];
		memset(peer->shards->peer.state, 0, peer->ops->state_size);
		memset(peer->shared, 0, peer->ops->shared_size);
	}
	memcpy(&host, &host_saved, sizeof(host));
	lane->failed_tail = &lane->failed;
	must(madvise(host.seg.base, host.seg.size, MADV_DONTNEED) == 0);
}

static void start(void)
{
	char why[WHY_SIZE];
	for (unsigned i = RIG_PEERS; i-- > 0;) {
		struct shard *shard = host.peers[i].shards;
		must(shard->peer.ops->open(&shard->peer, why, WHY_SIZE) == 0);
		must(shard_start(shard, why) == 0);
	}
}

static void finish(void)
{
	for (unsigned i = 0; i < RIG_PEERS; i++) {
		struct shard *shard = host.peers[i].shards;
		shard_finish(shard);
		if (shard->peer.ops->close)
			shard->peer.ops->close(&shard->peer);
	}
}

bool rig_try(void (*f)(void *context), void *context)
{
	volatile bool held = true;
	forget();
	start();
	trying = true;
	if (setjmp(refused) == 0)
		f(context);
	else
		held = false;
	/* also what is left of it must come down, or be given up */
	if (setjmp(refused) == 0)
		finish();
	trying = false;
	return held;
}

static void take(struct lane *lane, const struct xseg_hint_message *hint)
{
	if (hint->kind == XSEG_HINT_SUBMIT)
		job_arrive(lane, hint->request);
	else if (hint->kind == XSEG_HINT_REPLY)
		call_arrive(lane, hint->request);
}

void rig_serve(void)
{
	struct lane *lane = &host.lanes[0];
	struct xseg_hint_message hints[HINTS];
	lane->turn++;
	lane->x->now_ns = clock_now_ns();
	for (unsigned round = 0; round < 8; round++) {
		uint32_t count = xseg_poll(lane->x, hints, HINTS);
		must(count <= HINTS);
		for (uint32_t i = 0; i < count; i++)
			take(lane, &hints[i]);
		call_fail_pending(lane);
		for (unsigned i = lane->shard_count; i-- > 0;)
			retry_run(lane->shard[i]);
		xseg_turn_end(lane->x);
	}
	xseg_pending(lane->x);
}
