/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A guest that means no good: rings, descriptors and requests are whatever the input says, in two
 * regions of memory. Nothing outside of them is touched; what is taken is answered once, or the
 * ring is given up; and an in-flight region of any content is survived.
 */
#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "peers/front/vhost.h"
#include "tests/fuzz/fuzz.h"

#define NUM 8u
#define REGION 16384u
#define GUEST 0x100000u
#define USER 0x700000000000ull
#define CALLS (NUM * VHOST_WINDOW + 1)
#define TURNS 64u
#define FENCE (2u << 20) /* a descriptor's number reaches 1 MiB far */

static struct vhost vhost;
static struct vhost_device *device;
static struct vhost_options options = {.volume = (char *)"disk"};
static struct peer peer;
static struct xseg_stats_block stats;
static struct fuzz_bytes answers;
static uint8_t *memory;
static int memory_fd;
static struct call calls[CALLS];
static bool calls_used[CALLS];
static uint8_t *calls_data[CALLS];
static struct call *waiting[CALLS];
static unsigned waiting_count;

static void promise(bool kept)
{
	if (!kept)
		abort();
}

/* --- the core, as far as requests need it ------------------------------------------ */

int call_begin(struct peer *who, struct call **call)
{
	for (unsigned i = 0; i < CALLS; i++)
		if (!calls_used[i]) {
			calls[i] = (struct call){.peer = who, .index = i};
			calls_used[i] = true;
			*call = &calls[i];
			return 0;
		}
	return -1;
}

int call_pages(struct call *call, uint32_t bytes)
{
	calls_data[call->index] = calloc(1, bytes);
	return calls_data[call->index] ? 0 : -1;
}

int call_iov(const struct call *call, uint32_t at, uint32_t length, struct iovec *iov, int max)
{
	promise(max > 0 && at + length <= call->length);
	iov[0] = (struct iovec){calls_data[call->index] + at, length};
	return 1;
}

void call_submit(struct call *call, unsigned edge, call_done_f *done)
{
	promise(edge == FRONT_EDGE_VOLUME && waiting_count < CALLS);
	promise(call->offset + call->length <= device->size);
	promise(call->op == XSEG_OP_READ || !device->read_only || call->op == XSEG_OP_FLUSH);
	call->done = done;
	waiting[waiting_count++] = call;
}

void call_end(struct call *call)
{
	free(calls_data[call->index]);
	calls_data[call->index] = NULL;
	calls_used[call->index] = false;
}

/* Calls that are out come back, and make room. */
void peer_retry(struct peer *who, retry_f *again, void *context)
{
	(void)who, (void)again, (void)context;
	abort(); /* there are more calls than requests may have out */
}

const struct xseg *peer_segment(const struct peer *who)
{
	(void)who;
	return NULL;
}

uint64_t peer_now_ns(const struct peer *who)
{
	(void)who;
	return 0;
}

void vhost_queue_wake(struct vhost_queue *queue) { promise(queue == &device->queue[0]); }

static void answer_all(void)
{
	static const int results[] = {0, 0, 0, 0, 0, -EIO, -EOPNOTSUPP, -ENOSPC};
	while (waiting_count) {
		struct call *call = waiting[--waiting_count];
		call->result = results[fuzz_take(&answers, 1) % 8];
		call->done(call);
	}
}

/* --- the guest --------------------------------------------------------------------- */

/* Nothing can be read around it, so that a step outside ends the fuzzer. */
static void fence(struct vhost_region *region)
{
	uint8_t *room = mmap(NULL, 2 * FENCE + region->map_size, PROT_NONE,
		MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	promise(room != MAP_FAILED);
	uint8_t *map = mremap(region->map, region->map_size, region->map_size,
		MREMAP_MAYMOVE | MREMAP_FIXED, room + FENCE);
	promise(map == room + FENCE);
	region->host = map + (region->host - (uint8_t *)region->map);
	region->map = map;
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	(void)argc, (void)argv;
	memory_fd = memfd_create("guest", 0);
	promise(memory_fd >= 0 && ftruncate(memory_fd, 2 * REGION) == 0);
	memory = mmap(NULL, 2 * REGION, PROT_READ | PROT_WRITE, MAP_SHARED, memory_fd, 0);
	promise(memory != MAP_FAILED);
	device = calloc(1, sizeof(*device) + sizeof(struct vhost_queue));
	peer.stats = &stats;
	vhost.peer = &peer;
	vhost.options = &options;
	device->vhost = &vhost;
	/* with a gap between them, for the guest; in the other order, for us */
	promise(!vhost_memory_add(&device->memory,
		&(struct vhost_wire_region){GUEST, REGION, USER, REGION}, memory_fd));
	promise(!vhost_memory_add(&device->memory,
		&(struct vhost_wire_region){GUEST + REGION, REGION, USER + 2 * REGION, 0},
		memory_fd));
	for (unsigned i = 0; i < device->memory.count; i++)
		fence(&device->memory.region[i]);
	return 0;
}

static bool is_inside(const struct iovec *iov)
{
	for (unsigned i = 0; i < device->memory.count; i++) {
		const struct vhost_region *region = &device->memory.region[i];
		const uint8_t *at = iov->iov_base;
		if (at >= region->host && at + iov->iov_len <= region->host + region->size)
			return true;
	}
	return false;
}

static void check_chain(const struct vhost_chain *chain)
{
	uint64_t out = 0, in = 0;
	promise(chain->count <= VHOST_IOV_MAX && chain->readable <= chain->count);
	for (unsigned i = 0; i < chain->count; i++) {
		promise(is_inside(&chain->iov[i]));
		*(i < chain->readable ? &out : &in) += chain->iov[i].iov_len;
	}
	promise(out == chain->out_size && in == chain->in_size);
}

/* False: the ring is given up. */
static bool turn(struct vhost_queue *queue, uint32_t *taken)
{
	struct vhost_chain chain;
	uint16_t head;
	if (vhost_ring_next(&queue->ring, &head))
		return false;
	promise(head < NUM);
	if (queue->requests[head].busy)
		return false;
	if (!vhost_ring_read(&queue->ring, head, &chain))
		check_chain(&chain);
	++*taken;
	if (vhost_request_begin(queue, head)) {
		--*taken;
		return false;
	}
	if (fuzz_take(&answers, 1) % 2)
		answer_all();
	return true;
}

static void serve(struct vhost_queue *queue)
{
	uint32_t taken = 0;
	uint16_t before = queue->ring.used_at;
	for (unsigned i = 0; i < TURNS && turn(queue, &taken); i++)
		vhost_ring_publish(&queue->ring);
	answer_all();
	vhost_ring_publish(&queue->ring);
	promise(queue->inflight == 0 && device->inflight == 0 && vhost.inflight == 0);
	promise((uint16_t)(queue->ring.used_at - before) == taken);
	promise(queue->ring.layout != &vhost_packed || queue->ring.packed.used.slot < NUM);
	vhost_ring_arm(&queue->ring);
	vhost_ring_disarm(&queue->ring);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static uint8_t inflight[sizeof(struct vhost_packed_inflight) +
				NUM * sizeof(struct vhost_packed_entry)]
		__attribute__((aligned(64)));
	struct fuzz_bytes in = {data, size};
	struct vhost_queue *queue = &device->queue[0];
	unsigned how = (unsigned)fuzz_take(&in, 1);
	bool packed = how & 16;
	*queue = (struct vhost_queue){.device = device, .kick = -1, .call = -1, .error = -1};
	queue->ring = (struct vhost_ring){.layout = packed ? &vhost_packed : &vhost_split,
		.memory = &device->memory,
		.num = NUM,
		.event_idx = how & 1,
		.desc_user = USER,
		.avail_user = USER + 128,
		.used_user = USER + 160,
		.base = (uint32_t)fuzz_take(&in, packed ? 4 : 1)};
	device->read_only = how & 2;
	device->write_through = how & 4;
	device->size = 1u << 20;
	answers = (struct fuzz_bytes){data, size < 16 ? size : 16};
	memset(memory, 0, 2 * REGION);
	if (how & 8) {
		uint64_t notes = queue->ring.layout->notes_size(NUM);
		for (unsigned i = 0; i < notes; i++)
			inflight[i] = (uint8_t)fuzz_take(&in, 1);
		queue->ring.inflight = (void *)inflight;
		((struct vhost_inflight *)inflight)->version = VHOST_INFLIGHT_VERSION;
		((struct vhost_inflight *)inflight)->num = NUM;
	}
	memcpy(memory + REGION, in.at, in.left < REGION ? in.left : REGION);
	queue->requests = calloc(NUM, sizeof(*queue->requests));
	promise(queue->requests && vhost_ring_map(&queue->ring) == 0);
	if (vhost_ring_recover(&queue->ring) == 0)
		serve(queue);
	free(queue->requests);
	vhost_ring_fini(&queue->ring);
	return 0;
}
