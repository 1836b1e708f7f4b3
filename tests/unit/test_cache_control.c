/* SPDX-License-Identifier: Apache-2.0 */
/* What a cache is asked while it runs, and that it goes on as it was told after a start. */
#include <errno.h>
#include <string.h>

#include "tests/unit/cache_rig.h"

#define LATE ",age=1h,epoch=1h"

static unsigned volumes(struct crig *crig, struct cache_volume_state *out, unsigned room)
{
	uint8_t bytes[CACHE_ANSWER_AT + 2 * sizeof(*out)];
	struct client_request request = {.op = XSEG_OP_CONTROL,
		.length = sizeof(bytes),
		.arg0 = CACHE_VOLUMES,
		.receive = bytes,
		.receive_size = sizeof(bytes)};
	unsigned count = 0;
	do {
		ck_assert_int_eq(client_do(&crig->rig.client, &request), 0);
		uint32_t got = request.answer_length - CACHE_ANSWER_AT;
		ck_assert_uint_eq(got % sizeof(*out), 0);
		ck_assert_uint_le(count + got / sizeof(*out), room);
		memcpy(out + count, bytes + CACHE_ANSWER_AT, got);
		count += got / sizeof(*out);
		request.arg1 = request.value;
	} while (request.value);
	return count;
}

UNIT_LOOP(test_state, 2)
{
	struct cache_volume_state all[8];
	struct crig crig;
	crig_begin(&crig, (unsigned)_i + 1, LATE ",size=4M,policy=lru,share=50");
	struct cache_state state = crig_state(&crig);
	ck_assert_uint_eq(state.phase, CACHE_CACHING);
	ck_assert_uint_eq(state.policy, CACHE_LRU);
	ck_assert_uint_eq(state.health, CACHE_WELL);
	ck_assert_uint_eq(state.lanes, (unsigned)_i + 1);
	ck_assert_uint_eq(state.setting.mode, CACHE_WRITEBACK);
	ck_assert_uint_eq(state.setting.share, 50);
	ck_assert_uint_eq(state.size, 4u << 20);
	ck_assert_uint_eq(state.used, 0);
	ck_assert_uint_eq(volumes(&crig, all, 8), 0);
	struct client_request write = crig_request(XSEG_OP_WRITE, 0, 0, 4096);
	uint8_t bytes[4096] = {1};
	write.send = bytes;
	write.send_size = sizeof(bytes);
	for (uint64_t volume = 1; volume <= 5; volume++) {
		write.key.volume = volume;
		ck_assert_int_eq(client_do(&crig.rig.client, &write), 0);
	}
	ck_assert_int_eq(crig_control(&crig, CACHE_FLUSH, 3, 0, NULL), 0);
	ck_assert_uint_eq(volumes(&crig, all, 8), 5);
	uint64_t seen = 0;
	for (unsigned i = 0; i < 5; i++) {
		seen |= 1ull << all[i].volume;
		ck_assert_uint_eq(all[i].setting.share, 50);
		ck_assert_uint_le(all[i].used, 4096);
		ck_assert_uint_eq(all[i].epoch, all[i].volume == 3 ? 2 : 1);
		ck_assert_uint_eq(all[i].epoch_durable, all[i].volume == 3 ? 1 : 0);
	}
	ck_assert_uint_eq(seen, 0x3e);
	RIG_UNTIL(crig_state(&crig).dirty == 4 * 4096);
	ck_assert_int_eq(crig_control(&crig, CACHE_FLUSH, 0, 0, NULL), 0);
	RIG_UNTIL(crig_state(&crig).dirty == 0);
	ck_assert_uint_eq(crig_state(&crig).used, 5 * 4096);
	crig_end(&crig);
}

UNIT_LOOP(test_refused, 2)
{
	struct crig crig;
	crig_begin(&crig, (unsigned)_i + 1, LATE);
	ck_assert_int_eq(crig_control(&crig, CACHE_POLICY + 1, 0, 0, NULL), -EINVAL);
	ck_assert_int_eq(crig_control(&crig, CACHE_POLICY, 0, 99, NULL), -EINVAL);
	ck_assert_int_eq(crig_control(&crig, CACHE_RESIZE, 0, 4096, NULL), -EINVAL);
	ck_assert_int_eq(crig_control(&crig, CACHE_RESIZE, 0, 1ull << 40, NULL), -EINVAL);
	ck_assert_int_eq(crig_control(&crig, CACHE_SET, 0, 0, NULL), -EINVAL);
	ck_assert_int_eq(crig_control(&crig, CACHE_STATE, 0, 0, NULL), -EINVAL);
	ck_assert_int_eq(crig_control(&crig, CACHE_VOLUMES, 0, 0, NULL), -EINVAL);
	ck_assert_int_eq(crig_set(&crig, 0, 7, CACHE_ACK_BLOCKER), -EINVAL);
	ck_assert_int_eq(crig_set(&crig, 1, CACHE_WRITEBACK, 9), -EINVAL);
	ck_assert_int_eq(crig_set(&crig, 1, CACHE_WRITEBACK, CACHE_ACK_JOURNAL), -EPERM);
	crig_end(&crig);
}

UNIT_LOOP(test_drain, 2)
{
	struct crig crig;
	crig_begin(&crig, (unsigned)_i + 1, LATE);
	for (unsigned round = 0; round < 5; round++) {
		uint8_t value = (uint8_t)(10 + round);
		for (uint32_t object = 0; object < 8; object++)
			ck_assert_int_eq(crig_write(&crig, object, 0, 8192, value, 0), 0);
		ck_assert_int_eq(crig_control(&crig, CACHE_DRAIN, 0, 0, NULL), 0);
		ck_assert_int_eq(crig_control(&crig, CACHE_DRAIN, 0, 0, NULL), 0);
		struct cache_state state = crig_state(&crig);
		ck_assert_uint_eq(state.phase, CACHE_PASSING);
		ck_assert_uint_eq(state.used, 0);
		ck_assert_uint_eq(state.dirty, 0);
		uint32_t writes = crig_count(&crig, XSEG_OP_WRITE);
		for (uint32_t object = 0; object < 8; object++)
			ck_assert(crig_has(&crig, object, 0, 8192, value));
		ck_assert_int_eq(crig_write(&crig, 0, 0, 4096, 3, 0), 0);
		ck_assert_uint_eq(crig_count(&crig, XSEG_OP_WRITE), writes + 1);
		ck_assert(crig_reads(&crig, 0, 0, 4096, 3));
		uint32_t flushes = crig_count(&crig, XSEG_OP_FLUSH);
		ck_assert_int_eq(crig_flush(&crig), 0);
		ck_assert_uint_gt(crig_count(&crig, XSEG_OP_FLUSH), flushes);
		ck_assert_uint_eq(crig_state(&crig).used, 0);
		ck_assert_int_eq(crig_control(&crig, CACHE_BEGIN, 0, 0, NULL), 0);
		ck_assert_int_eq(crig_control(&crig, CACHE_BEGIN, 0, 0, NULL), 0);
		ck_assert_uint_eq(crig_state(&crig).phase, CACHE_CACHING);
		ck_assert(crig_reads(&crig, 0, 0, 4096, 3));
	}
	crig_end(&crig);
}

/* A change that was passed on is still below: what is read now may not be kept. */
UNIT_LOOP(test_begin_waits, 2)
{
	struct crig crig;
	struct client_request begin = {.op = XSEG_OP_CONTROL, .arg0 = CACHE_BEGIN}, *done;
	struct client_request write = crig_request(XSEG_OP_WRITE, 1, 0, 4096);
	static uint8_t bytes[4096] = {5};
	crig_begin(&crig, (unsigned)_i + 1, LATE ",begin=passing");
	struct crig_store *store = crig_store(&crig);
	write.send = bytes;
	write.send_size = sizeof(bytes);
	atomic_store(&store->range, true);
	ck_assert_int_eq(client_start(&crig.rig.client, &write), 0);
	RIG_UNTIL(atomic_load(&store->held) == 1);
	ck_assert_int_eq(client_start(&crig.rig.client, &begin), 0);
	for (unsigned n = 0; n < 20; n++)
		ck_assert_uint_eq(crig_state(&crig).phase, CACHE_PASSING);
	ck_assert(crig_reads(&crig, 1, 0, 4096, 0));
	ck_assert_uint_eq(crig_state(&crig).used, 0);
	atomic_store(&store->range, false);
	ck_assert_int_eq(client_collect(&crig.rig.client, &done), 0);
	ck_assert_int_eq(client_collect(&crig.rig.client, &done), 0);
	ck_assert_int_eq(write.result, 0);
	ck_assert_int_eq(begin.result, 0);
	ck_assert_uint_eq(crig_state(&crig).phase, CACHE_CACHING);
	ck_assert(crig_has(&crig, 1, 1, 4095, 0));
	ck_assert(!crig_reads(&crig, 1, 0, 4096, 0));
	crig_end(&crig);
}

UNIT_LOOP(test_busy, 2)
{
	struct crig crig;
	struct client_request drain = {.op = XSEG_OP_CONTROL, .arg0 = CACHE_DRAIN}, *done;
	struct client_request flush = {.op = XSEG_OP_FLUSH, .key.volume = 2};
	crig_begin(&crig, (unsigned)_i + 1, LATE);
	struct crig_store *store = crig_store(&crig);
	ck_assert_int_eq(crig_write(&crig, 0, 0, 4096, 1, 0), 0);
	atomic_store(&store->flushes_pass, true);
	atomic_store(&store->range, true);
	ck_assert_int_eq(client_start(&crig.rig.client, &drain), 0);
	RIG_UNTIL(atomic_load(&store->held) > 0);
	ck_assert_uint_eq(crig_state(&crig).phase, CACHE_DRAINING);
	ck_assert_int_eq(crig_control(&crig, CACHE_RESIZE, 0, 4u << 20, NULL), -EBUSY);
	ck_assert_int_eq(crig_control(&crig, CACHE_DROP, 0, 0, NULL), -EBUSY);
	ck_assert(crig_reads(&crig, 0, 0, 4096, 1));
	/* who flushes again and again does not hold it up: only the first one asks the store */
	ck_assert_int_eq(client_do(&crig.rig.client, &flush), 0);
	uint32_t flushes = crig_count(&crig, XSEG_OP_FLUSH);
	for (unsigned n = 0; n < 3; n++)
		ck_assert_int_eq(client_do(&crig.rig.client, &flush), 0);
	ck_assert_uint_eq(crig_count(&crig, XSEG_OP_FLUSH), flushes);
	atomic_store(&store->range, false);
	ck_assert_int_eq(client_collect(&crig.rig.client, &done), 0);
	ck_assert_int_eq(drain.result, 0);
	ck_assert(crig_has(&crig, 0, 0, 4096, 1));
	crig_end(&crig);
}

UNIT_LOOP(test_drop_resize_policy, 2)
{
	struct crig crig;
	uint64_t count;
	crig_begin(&crig, (unsigned)_i + 1, LATE ",size=8M");
	for (uint32_t object = 0; object < CRIG_OBJECTS; object++)
		ck_assert_int_eq(crig_write(&crig, object, 0, CRIG_BYTES, 4, 0), 0);
	ck_assert_int_eq(crig_control(&crig, CACHE_DROP, 0, 0, &count), 0);
	ck_assert_uint_eq(count, 0);
	for (uint64_t policy = CACHE_LRU; policy <= CACHE_CLOCK2Q; policy++) {
		ck_assert_int_eq(crig_control(&crig, CACHE_POLICY, 0, policy, NULL), 0);
		ck_assert_uint_eq(crig_state(&crig).policy, policy);
		ck_assert(crig_reads(&crig, 3, 0, CRIG_BYTES, 4));
	}
	/* to less than what is dirty: it has to be written for that */
	uint64_t least = (1u << 20) * ((unsigned)_i + 1);
	ck_assert_int_eq(crig_control(&crig, CACHE_RESIZE, 0, least / 2, NULL), -EINVAL);
	ck_assert_int_eq(crig_control(&crig, CACHE_RESIZE, 0, least, NULL), 0);
	RIG_UNTIL(crig_state(&crig).used <= least);
	ck_assert_uint_eq(crig_state(&crig).size, least);
	for (uint32_t object = 0; object < CRIG_OBJECTS; object++)
		ck_assert(crig_reads(&crig, object, 0, CRIG_BYTES, 4));
	ck_assert_int_eq(crig_control(&crig, CACHE_RESIZE, 0, 8u << 20, NULL), 0);
	ck_assert_int_eq(crig_control(&crig, CACHE_FLUSH, 0, 0, NULL), 0);
	RIG_UNTIL(crig_state(&crig).dirty == 0);
	ck_assert_int_eq(crig_control(&crig, CACHE_DROP, 9, 0, &count), 0);
	ck_assert_uint_eq(count, 0);
	ck_assert_int_eq(crig_control(&crig, CACHE_DROP, 0, 0, &count), 0);
	ck_assert_uint_gt(count, 0);
	RIG_UNTIL(crig_state(&crig).used == 0);
	ck_assert(crig_reads(&crig, 3, 0, CRIG_BYTES, 4));
	crig_end(&crig);
}

/* Told once, it is so after a start, unless the options have changed meanwhile. */
UNIT_LOOP(test_outlives, 2)
{
	struct cache_volume_state all[8];
	struct crig crig;
	crig_begin(&crig, (unsigned)_i + 1, ",size=8M");
	ck_assert_int_eq(crig_set(&crig, 77, CACHE_WRITEAROUND, CACHE_ACK_VOLATILE), 0);
	ck_assert_int_eq(crig_set(&crig, 0, CACHE_WRITETHROUGH, CACHE_ACK_BLOCKER), 0);
	ck_assert_int_eq(crig_control(&crig, CACHE_POLICY, 0, CACHE_LRU, NULL), 0);
	ck_assert_int_eq(crig_control(&crig, CACHE_RESIZE, 0, 6u << 20, NULL), 0);
	ck_assert_int_eq(crig_control(&crig, CACHE_DRAIN, 0, 0, NULL), 0);
	crig_again(&crig, ",size=8M");
	struct cache_state state = crig_state(&crig);
	ck_assert_uint_eq(state.phase, CACHE_PASSING);
	ck_assert_uint_eq(state.policy, CACHE_LRU);
	ck_assert_uint_eq(state.size, 6u << 20);
	ck_assert_uint_eq(state.setting.mode, CACHE_WRITETHROUGH);
	ck_assert_uint_eq(volumes(&crig, all, 8), 1);
	ck_assert_uint_eq(all[0].volume, 77);
	ck_assert_uint_eq(all[0].setting.mode, CACHE_WRITEAROUND);
	ck_assert_uint_eq(all[0].setting.ack, CACHE_ACK_VOLATILE);
	crig_again(&crig, ",size=4M,mode=writearound");
	state = crig_state(&crig);
	ck_assert_uint_eq(state.size, 4u << 20);
	ck_assert_uint_eq(state.setting.mode, CACHE_WRITEAROUND);
	ck_assert_uint_eq(state.policy, CACHE_LRU);
	crig_end(&crig);
}

static uint32_t cached(struct crig *crig, struct xseg_status_extent out[8])
{
	struct client_request request = crig_request(XSEG_OP_STATUS, 2, 0, CRIG_BYTES);
	request.flags = XSEG_F_FAST_ONLY;
	request.receive = out;
	request.receive_size = 8 * sizeof(*out);
	ck_assert_int_eq(client_do(&crig->rig.client, &request), 0);
	return (uint32_t)request.value;
}

/* What is here is told without the store, dirty or not; a hint is answered when it has come. */
UNIT_LOOP(test_cached, 2)
{
	struct xseg_status_extent extents[8];
	struct crig crig;
	crig_begin(&crig, (unsigned)_i + 1, LATE ",size=4M");
	ck_assert_uint_eq(cached(&crig, extents), 1);
	ck_assert_uint_eq(extents[0].flags, 0);
	atomic_store(&crig_store(&crig)->read_ns, 50000000);
	ck_assert_int_eq(crig_do(&crig, XSEG_OP_PREFETCH, 2, 0, 4 * XSEG_PAGE), 0);
	ck_assert_uint_eq(cached(&crig, extents), 2);
	ck_assert_uint_eq(extents[0].flags, XSEG_STATUS_CACHED);
	ck_assert_uint_eq(extents[0].length, 4 * XSEG_PAGE);
	ck_assert_int_eq(crig_write(&crig, 2, 8 * XSEG_PAGE, XSEG_PAGE, 7, 0), 0);
	ck_assert_uint_eq(cached(&crig, extents), 4);
	ck_assert_uint_eq(extents[1].length, 4 * XSEG_PAGE);
	ck_assert_uint_eq(extents[1].flags, 0);
	ck_assert_uint_eq(extents[2].length, XSEG_PAGE);
	ck_assert_uint_eq(extents[2].flags, XSEG_STATUS_CACHED);
	ck_assert_uint_eq(extents[3].length, CRIG_BYTES - 9 * XSEG_PAGE);
	ck_assert(!crig_has(&crig, 2, 8 * XSEG_PAGE, XSEG_PAGE, 7));
	ck_assert_uint_eq(crig_count(&crig, XSEG_OP_STATUS), 0);
	crig_end(&crig);
}
