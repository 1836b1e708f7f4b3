/* SPDX-License-Identifier: Apache-2.0 */
/* Snapshots, clones and other changes of volumes that somebody writes to, on a real mapper and
   store in other processes. */
#include <base/clock.h>
#include <errno.h>
#include <peer/map.h>
#include <pthread.h>
#include <string.h>
#include <time.h>

#include "peers/map/map_home.h"
#include "tests/lib/unit.h"
#include "tests/property/volume_rig.h"

#define MAP 1 /* the mapper's host */
#define VOL 2 /* the composer's */
#define OBJECT 65536u

static struct rig rig;
static struct client a, b;
static struct xseg_volume_info info;
static uint64_t value; /* of the last answer */
static uint8_t out[65536];

static void setup_with(const char *composer)
{
	rig_open(&rig, 128u << 20);
	rig_start(&rig, 0, 2, "mem0=blocker_memory");
	rig_start(&rig, MAP, 2, "map0=mapperd,edge.store=mem0");
	rig_start(&rig, VOL, 2, composer);
	rig_client(&rig, &a, "vol0");
	rig_client(&rig, &b, "vol0");
}

static void setup(void) { setup_with("vol0=volume,edge.store=mem0,edge.map=map0"); }

static void setup_keep(void)
{
	setup_with("vol0=volume,edge.store=mem0,edge.map=map0,keep=missing,keep=kept");
}

static void teardown(void)
{
	client_close(&a);
	client_close(&b);
	rig_close(&rig);
}

static int io(struct client *client, enum xseg_op op, uint64_t id, uint64_t offset, void *data,
	uint32_t length)
{
	struct client_request request = {.op = op,
		.key.volume = id,
		.offset = offset,
		.length = length,
		.send = data,
		.send_size = op == XSEG_OP_WRITE ? length : 0,
		.receive = data,
		.receive_size = op == XSEG_OP_READ ? length : 0};
	return client_do(client, &request);
}

static int control(struct client *client, enum map_control what, uint64_t id, uint64_t arg,
	const struct map_ask *ask)
{
	struct client_request request = {.op = XSEG_OP_CONTROL,
		.key.volume = id,
		.arg0 = what,
		.arg1 = arg,
		.send = ask,
		.send_size = ask ? sizeof(*ask) : 0,
		.receive = out,
		.receive_size = sizeof(out)};
	int rc = client_do(client, &request);
	value = request.value;
	return rc;
}

static int ask(enum map_control what, uint64_t id, const char *name, uint64_t size)
{
	struct map_ask question = {.size = size};
	snprintf(question.name, sizeof(question.name), "%s", name);
	return control(&b, what, id, 0, &question);
}

static struct map_head_info head_answer(void)
{
	struct map_head_info head;
	memcpy(&head, out + MAP_ANSWER_AT, sizeof(head));
	return head;
}

static uint64_t make(const char *name, uint64_t size)
{
	ck_assert_int_eq(rig_volume_create(&a, name, size, OBJECT, &info), 0);
	return info.id;
}

static uint64_t opened(const char *name, unsigned flags)
{
	ck_assert_int_eq(rig_volume_named(&a, XSEG_OP_OPEN, flags, name, &info), 0);
	return info.id;
}

static void put(uint64_t id, uint64_t offset, uint8_t byte, uint32_t length)
{
	static uint8_t data[4 * OBJECT];
	memset(data, byte, length);
	ck_assert_int_eq(io(&a, XSEG_OP_WRITE, id, offset, data, length), 0);
}

static void is(uint64_t id, uint64_t offset, uint8_t byte, uint32_t length)
{
	static uint8_t data[4 * OBJECT];
	ck_assert_int_eq(io(&a, XSEG_OP_READ, id, offset, data, length), 0);
	uint32_t good = 0;
	while (good < length && data[good] == byte)
		good++;
	ck_assert_msg(good == length, "at %llu: %u instead of %u",
		(unsigned long long)(offset + good), data[good < length ? good : 0], byte);
}

UNIT_WITHIN(test_snapshot, setup, teardown)
{
	make("disk", 16 * OBJECT);
	uint64_t id = opened("disk", 0);
	put(id, 0, 1, 2 * OBJECT);
	ck_assert_int_eq(ask(MAP_SNAP, id, "disk@1", 0), 0);
	struct map_head_info head = head_answer();
	ck_assert_uint_eq(head.id, id);
	ck_assert_uint_gt(head.epoch, head.frozen);
	put(id, 4096, 2, 4096); /* not announced to anybody, and nothing is flushed */
	put(id, OBJECT, 3, OBJECT);
	put(id, 5 * OBJECT, 4, OBJECT);
	uint64_t snap = opened("disk@1", XSEG_F_READ_ONLY);
	ck_assert_uint_eq(info.flags, XSEG_VOLUME_SNAPSHOT);
	is(snap, 0, 1, 2 * OBJECT);
	is(snap, 5 * OBJECT, 0, OBJECT);
	is(id, 0, 1, 4096);
	is(id, 4096, 2, 4096);
	is(id, 8192, 1, OBJECT - 8192);
	is(id, OBJECT, 3, OBJECT);
	is(id, 5 * OBJECT, 4, OBJECT);
	ck_assert_int_eq(rig_volume_named(&b, XSEG_OP_OPEN, 0, "disk@1", &info), -EROFS);
	ck_assert_int_eq(ask(MAP_SNAP, id, "disk@1", 0), -EEXIST);
	ck_assert_int_eq(rig_volume(&b, XSEG_OP_REMOVE, 0, snap, &info), -EBUSY);
	put(id, 0, 5, OBJECT); /* a refusal leaves nothing quiesced */
	is(snap, 0, 1, OBJECT);
}

/* All that was written before is in it, in order, and nothing of what came after. */
struct writer {
	struct client client;
	uint64_t id;
	_Atomic bool stop;
	_Atomic uint32_t count;
	pthread_t thread;
};

static void *writer_run(void *context)
{
	struct writer *writer = context;
	uint8_t data[4096];
	for (uint32_t i = 1; !atomic_load(&writer->stop); i++) {
		memcpy(data, &i, sizeof(i));
		must(io(&writer->client, XSEG_OP_WRITE, writer->id, i % 64 * 4096ull, data,
			     sizeof(data)) == 0);
		atomic_store(&writer->count, i);
	}
	return NULL;
}

/* The highest number in the snapshot; the 63 before it must be there, too. */
static uint32_t last_of(const char *name)
{
	static uint8_t data[64 * 4096];
	uint32_t last = 0, number;
	uint64_t id = opened(name, XSEG_F_READ_ONLY);
	ck_assert_int_eq(io(&a, XSEG_OP_READ, id, 0, data, sizeof(data)), 0);
	for (unsigned i = 0; i < 64; i++) {
		memcpy(&number, data + 4096 * i, sizeof(number));
		last = number > last ? number : last;
	}
	for (unsigned i = 0; i < 64; i++) {
		memcpy(&number, data + 4096 * i, sizeof(number));
		uint32_t wanted = last - (last - i) % 64;
		ck_assert_uint_eq(number, last < 64 && wanted > last ? 0 : wanted);
	}
	ck_assert_int_eq(io(&a, XSEG_OP_CLOSE, id, 0, NULL, 0), 0);
	return last;
}

UNIT_WITHIN(test_snapshot_beside_writes, setup, teardown)
{
	struct writer writer = {.id = make("busy", 16 * OBJECT)};
	uint32_t before, last = 0;
	char name[32];
	opened("busy", 0);
	rig_client(&rig, &writer.client, "vol0");
	must(pthread_create(&writer.thread, NULL, writer_run, &writer) == 0);
	for (unsigned i = 0; i < 10; i++) {
		for (before = atomic_load(&writer.count); atomic_load(&writer.count) < before + 80;)
			usleep(200);
		before = atomic_load(&writer.count);
		snprintf(name, sizeof(name), "busy@%u", i);
		ck_assert_int_eq(ask(MAP_SNAP, writer.id, name, 0), 0);
		uint32_t now = last_of(name);
		ck_assert_uint_ge(now, before);
		ck_assert_uint_gt(now, last);
		ck_assert_uint_eq(last_of(name), now); /* and it stays */
		last = now;
	}
	atomic_store(&writer.stop, true);
	pthread_join(writer.thread, NULL);
	for (unsigned i = 0; i < 10; i++) {
		snprintf(name, sizeof(name), "busy@%u", i);
		ck_assert_uint_le(last_of(name), last);
	}
	client_close(&writer.client);
}

UNIT_WITHIN(test_clone, setup, teardown)
{
	struct map_ask question = {.name = "copy", .other = "disk"};
	make("disk", 8 * OBJECT);
	uint64_t id = opened("disk", 0);
	put(id, 0, 1, 3 * OBJECT);
	ck_assert_int_eq(control(&b, MAP_CLONE, 0, 0, &question), 0);
	uint64_t copy = opened("copy", 0);
	is(copy, 0, 1, 3 * OBJECT);
	put(copy, 512, 2, 512);
	put(id, OBJECT, 3, 4096);
	is(copy, 0, 1, 512);
	is(copy, 512, 2, 512);
	is(copy, 1024, 1, 3 * OBJECT - 1024);
	is(id, 0, 1, OBJECT);
	is(id, OBJECT, 3, 4096);
	ck_assert_int_eq(rig_volume(&b, XSEG_OP_INFO, 0, copy, &info), 0);
	ck_assert_uint_eq(info.opens, 1);
	ck_assert_int_eq(io(&a, XSEG_OP_CLOSE, id, 0, NULL, 0), 0);
	ck_assert_int_eq(rig_volume(&b, XSEG_OP_REMOVE, 0, id, &info), -ENOTEMPTY);
	is(copy, 0, 1, 512);
}

UNIT_WITHIN(test_rollback, setup, teardown)
{
	struct map_ask question = {.other = "disk@1"};
	make("disk", 8 * OBJECT);
	uint64_t id = opened("disk", 0);
	put(id, 0, 1, 2 * OBJECT);
	ck_assert_int_eq(ask(MAP_SNAP, id, "disk@1", 0), 0);
	put(id, 0, 2, 3 * OBJECT);
	ck_assert_int_eq(control(&b, MAP_ROLLBACK, id, 0, &question), -EBUSY); /* it is open */
	is(id, 0, 2, 3 * OBJECT);
	ck_assert_int_eq(control(&a, MAP_ROLLBACK, id, 0, &question), -EBUSY);
	ck_assert_int_eq(io(&a, XSEG_OP_CLOSE, id, 0, NULL, 0), 0);
	ck_assert_int_eq(control(&b, MAP_ROLLBACK, id, 0, &question), 0);
	opened("disk", 0);
	is(id, 0, 1, 2 * OBJECT);
	is(id, 2 * OBJECT, 0, OBJECT);
	put(id, 0, 3, 512);
	is(id, 0, 3, 512);
	is(id, 512, 1, OBJECT - 512);
	uint64_t snap = opened("disk@1", XSEG_F_READ_ONLY);
	is(snap, 0, 1, OBJECT);
}

UNIT_WITHIN(test_resize, setup, teardown)
{
	uint8_t sector[512] = {0};
	make("disk", 4 * OBJECT);
	uint64_t id = opened("disk", 0);
	put(id, 0, 1, 4 * OBJECT);
	ck_assert_int_eq(io(&a, XSEG_OP_WRITE, id, 4 * OBJECT, sector, 512), -ENOSPC);
	ck_assert_int_eq(ask(MAP_RESIZE, id, "", 6 * OBJECT), 0);
	put(id, 5 * OBJECT, 2, OBJECT);
	is(id, 4 * OBJECT, 0, OBJECT);
	is(id, 0, 1, 4 * OBJECT);
	ck_assert_int_eq(ask(MAP_RESIZE, id, "", 2 * OBJECT + 1536), 0);
	ck_assert_uint_eq(head_answer().size, 2 * OBJECT + 1536);
	ck_assert_int_eq(io(&a, XSEG_OP_READ, id, 2 * OBJECT + 1536, sector, 512), -EINVAL);
	is(id, 0, 1, 2 * OBJECT + 1536);
	ck_assert_int_eq(ask(MAP_RESIZE, id, "", 6 * OBJECT), 0);
	is(id, 0, 1, 2 * OBJECT + 1536);
	is(id, 2 * OBJECT + 1536, 0, 4 * OBJECT - 1536);
	put(id, 3 * OBJECT, 3, OBJECT);
	is(id, 3 * OBJECT, 3, OBJECT);
	is(id, 4 * OBJECT, 0, 2 * OBJECT);
	ck_assert_int_eq(ask(MAP_RESIZE, id, "", 4097), -EINVAL);
	is(id, 3 * OBJECT, 3, OBJECT);
}

UNIT_WITHIN(test_flatten, setup, teardown)
{
	struct map_ask question = {.name = "copy", .other = "disk"};
	make("disk", 64 * OBJECT);
	uint64_t id = opened("disk", 0);
	for (unsigned i = 0; i < 40; i++)
		put(id, (uint64_t)i * OBJECT, (uint8_t)(i + 1), OBJECT);
	ck_assert_int_eq(control(&b, MAP_CLONE, 0, 0, &question), 0);
	uint64_t copy = opened("copy", 0);
	put(copy, 4096, 99, 512);
	unsigned steps = 0;
	for (uint64_t at = 0; at != UINT64_MAX; at = value, steps++) {
		ck_assert_int_eq(control(&b, MAP_FLATTEN, copy, at, NULL), 0);
		ck_assert_uint_lt(steps, 10);
	}
	ck_assert_uint_ge(steps, 3);
	ck_assert_int_eq(io(&a, XSEG_OP_CLOSE, id, 0, NULL, 0), 0);
	ck_assert_int_eq(rig_volume(&b, XSEG_OP_REMOVE, 0, id, &info), 0);
	is(copy, 0, 1, 4096);
	is(copy, 4096, 99, 512);
	for (unsigned i = 1; i < 40; i++)
		is(copy, (uint64_t)i * OBJECT, (uint8_t)(i + 1), OBJECT);
	is(copy, 40ull * OBJECT, 0, OBJECT);
}

/* Snapshots while objects are made its own for no request of a client: each is whole, and the
   volume is not lost. */
UNIT_WITHIN(test_flatten_beside_snapshots, setup, teardown)
{
	static uint8_t outs[65536];
	struct map_ask question = {.name = "copy", .other = "disk"};
	struct client_request request, *done;
	char name[32];
	make("disk", 64 * OBJECT);
	uint64_t id = opened("disk", 0), at = 0;
	for (unsigned i = 0; i < 60; i += 4)
		put(id, (uint64_t)i * OBJECT, (uint8_t)(i + 1), 4 * OBJECT);
	ck_assert_int_eq(control(&b, MAP_CLONE, 0, 0, &question), 0);
	uint64_t copy = opened("copy", 0);
	for (unsigned i = 0; at != UINT64_MAX; i++) {
		request = (struct client_request){.op = XSEG_OP_CONTROL,
			.key.volume = copy,
			.arg0 = MAP_FLATTEN,
			.arg1 = at,
			.receive = outs,
			.receive_size = sizeof(outs)};
		ck_assert_int_eq(client_start(&a, &request), 0);
		usleep(i * 137 % 1000);
		snprintf(name, sizeof(name), "copy@%u", i);
		ck_assert_int_eq(ask(MAP_SNAP, copy, name, 0), 0);
		ck_assert_int_eq(client_collect(&a, &done), 0);
		ck_assert_int_eq(done->result, 0);
		at = done->value;
		ck_assert_uint_lt(i, 100);
		uint64_t snap = opened(name, XSEG_F_READ_ONLY);
		for (unsigned j = 0; j < 60; j += 4)
			is(snap, (uint64_t)j * OBJECT, (uint8_t)(j + 1), 4 * OBJECT);
	}
	put(copy, 0, 99, 512);
	ck_assert_int_eq(io(&a, XSEG_OP_FLUSH, copy, 0, NULL, 0), 0);
	for (unsigned j = 4; j < 60; j += 4)
		is(copy, (uint64_t)j * OBJECT, (uint8_t)(j + 1), 4 * OBJECT);
}

UNIT_WITHIN(test_words, setup, teardown)
{
	struct map_ask question = {.name = "new", .other = "old"};
	make("old", 4 * OBJECT);
	uint64_t id = opened("old", 0);
	put(id, 0, 1, OBJECT);
	ck_assert_int_eq(control(&b, MAP_RENAME, 0, 0, &question), 0);
	ck_assert_uint_eq(opened("new", 0), id);
	ck_assert_int_eq(rig_volume_named(&b, XSEG_OP_OPEN, 0, "old", &info), -ENOENT);
	ck_assert_int_eq(control(&b, MAP_FLAGS, id, XSEG_VOLUME_PROTECTED, NULL), 0);
	ck_assert_int_eq(io(&a, XSEG_OP_CLOSE, id, 0, NULL, 0), 0);
	ck_assert_int_eq(io(&a, XSEG_OP_CLOSE, id, 0, NULL, 0), 0);
	ck_assert_int_eq(rig_volume(&b, XSEG_OP_REMOVE, 0, id, &info), -EPERM);
	is(id, 0, 1, OBJECT);
	ck_assert_int_eq(control(&b, MAP_DETAIL, id, 0, NULL), 0);
	struct map_detail detail;
	memcpy(&detail, out + MAP_ANSWER_AT, sizeof(detail));
	ck_assert_uint_eq(detail.objects, 1); /* it was published first */
	ck_assert_int_eq(
		control(&b, MAP_FLAGS, id, (uint64_t)XSEG_VOLUME_PROTECTED << 32, NULL), 0);
	ck_assert_int_eq(io(&a, XSEG_OP_CLOSE, id, 0, NULL, 0), 0);
	ck_assert_int_eq(rig_volume(&b, XSEG_OP_REMOVE, 0, id, &info), 0);
	ck_assert_int_eq(control(&b, MAP_ACQUIRE, id, 0, NULL), -EOPNOTSUPP);
	ck_assert_int_eq(control(&b, MAP_ACQUIRE, id, MAP_READ_ONLY, NULL), -ENOENT);
	ck_assert_int_eq(control(&b, MAP_PUBLISH, id, 1, NULL), -EOPNOTSUPP);
	ck_assert_int_eq(control(&b, MAP_CONTROLS, id, 1, NULL), -EOPNOTSUPP);
}

static struct map_home_info home_of(uint64_t id) { return rig_home(&b, id); }

/* Handed over while it is open; who writes afterwards takes it back, as nobody has come for it. */
UNIT_WITHIN(test_give, setup, teardown)
{
	make("moves", 4 * OBJECT);
	uint64_t id = opened("moves", 0);
	put(id, 0, 1, OBJECT);
	struct map_home_info home = home_of(id);
	ck_assert_uint_eq(home.owner, home.self);
	ck_assert_int_eq(control(&b, MAP_GIVE, id, 0, NULL), -EINVAL);
	ck_assert_int_eq(control(&b, MAP_GIVE, id, home.self, NULL), -EINVAL);
	ck_assert_uint_eq(home_of(id).owner, home.self);
	for (unsigned i = 0; i < 3; i++) {
		ck_assert_int_eq(control(&b, MAP_GIVE, id, 77, NULL), 0);
		ck_assert_uint_eq(home_of(id).next, 77);
		ck_assert_uint_eq(home_of(id).owner, 0);
		if (i == 1) { /* what a composer that was killed has left goes there first */
			rig_kill(&rig, VOL);
			rig_start_again(&rig, VOL);
		}
		put(id, OBJECT, (uint8_t)(2 + i), OBJECT);
		ck_assert_uint_eq(home_of(id).term, home.term + i + 1);
		ck_assert_uint_eq(home_of(id).owner, home.self);
		is(id, 0, 1, OBJECT);
		is(id, OBJECT, (uint8_t)(2 + i), OBJECT);
	}
	rig_kill(&rig, VOL);
	rig_start_again(&rig, VOL);
	ck_assert_int_eq(control(&b, MAP_GIVE, id, 77, NULL), 0);
	is(id, OBJECT, 4, OBJECT);
}

/* It is for somebody elsewhere: acquired, and not given back until he says nothing any more. */
UNIT_WITHIN(test_keep, setup, teardown)
{
	uint64_t id = make("kept", 4 * OBJECT);
	ck_assert_int_eq(control(&b, MAP_KEEP, id, UINT64_MAX, NULL), -EINVAL);
	ck_assert_uint_eq(home_of(id).owner, 0);
	ck_assert_int_eq(control(&b, MAP_KEEP, id, 600000000000u, NULL), 0);
	ck_assert_uint_eq(home_of(id).owner, home_of(id).self);
	opened("kept", 0);
	put(id, 0, 1, OBJECT);
	ck_assert_int_eq(io(&a, XSEG_OP_CLOSE, id, 0, NULL, 0), 0);
	usleep(1500000); /* longer than the time after which a composer looks */
	ck_assert_uint_eq(home_of(id).owner, home_of(id).self);
	ck_assert_int_eq(control(&b, MAP_KEEP, id, 0, NULL), 0);
	for (unsigned i = 0; i < 60000 && home_of(id).owner != 0; i++)
		usleep(1000);
	ck_assert_uint_eq(home_of(id).owner, 0);
}

static void owned(uint64_t id, bool ours)
{
	for (unsigned i = 0; i < 60000 && (home_of(id).owner != 0) != ours; i++)
		usleep(1000);
	ck_assert_int_eq(home_of(id).owner != 0, ours);
}

/* The option keep: without the mapper it is opened and looked at, and goes only when it is told
   to, or has another name. */
UNIT_WITHIN(test_option_keep, setup_keep, teardown)
{
	struct client mapper;
	uint64_t begun = clock_now_ns();
	make("other", 4 * OBJECT);
	make("kept", 4 * OBJECT);
	uint64_t id = opened("kept", 0);
	ck_assert_int_eq(control(&b, MAP_GIVE, id, 77, NULL), 0);
	while (clock_now_ns() < begun + 7000000000u) /* it looks again for what was not there */
		usleep(1000);
	owned(id, false);
	put(id, 0, 1, 2 * OBJECT); /* taken back, as nobody has come for it */
	ck_assert_int_eq(io(&a, XSEG_OP_FLUSH, id, 0, NULL, 0), 0);
	ck_assert_int_eq(io(&a, XSEG_OP_CLOSE, id, 0, NULL, 0), 0);
	usleep(1500000); /* longer than the time after which a composer looks */
	owned(id, true);
	ck_assert_int_eq(rig_volume_named(&b, XSEG_OP_INFO, 0, "kept", &info), 0);
	ck_assert_uint_eq(info.objects, 2);

	rig_kill(&rig, MAP);
	ck_assert_uint_eq(opened("kept", 0), id);
	is(id, 0, 1, OBJECT);
	for (unsigned i = 0; i < 3; i++) {
		ck_assert_int_eq(rig_volume_named(&b, XSEG_OP_INFO, 0, "kept", &info), 0);
		ck_assert_uint_eq(info.id, id);
		ck_assert_uint_eq(info.size, 4 * OBJECT);
		ck_assert_uint_eq(info.opens, 1);
		ck_assert_uint_eq(info.objects, 2);
	}
	put(id, 2 * OBJECT, 1, OBJECT);
	rig_start_again(&rig, MAP);
	ck_assert_int_eq(rig_volume_named(&b, XSEG_OP_INFO, 0, "other", &info), 0);
	ck_assert_int_eq(io(&a, XSEG_OP_FLUSH, id, 0, NULL, 0), 0);
	ck_assert_int_eq(io(&a, XSEG_OP_CLOSE, id, 0, NULL, 0), 0);
	ck_assert_int_eq(rig_volume_named(&b, XSEG_OP_INFO, 0, "kept", &info), 0);
	ck_assert_uint_eq(info.objects, 3);

	ck_assert_int_eq(control(&b, MAP_GIVE, id, 77, NULL), 0);
	rig_kill(&rig, VOL);
	rig_start_again(&rig, VOL); /* acquired by itself */
	owned(id, true);
	rig_stop(&rig, VOL);
	rig_client(&rig, &mapper, "map0");
	ck_assert_uint_eq(rig_home(&mapper, id).owner, 0);
	client_close(&mapper);
	rig_start_again(&rig, VOL);
	owned(id, true);
	ck_assert_int_eq(ask(MAP_RENAME, id, "free", 0), 0);
	owned(id, false);
}

static uint64_t sixty_writes(uint64_t id)
{
	uint64_t begun = clock_now_ns();
	for (unsigned i = 0; i < 60; i++)
		put(id, 0, 1, 512);
	return clock_now_ns() - begun;
}

/* A hundred requests a second, with a burst of ten. */
UNIT_WITHIN(test_limits, setup, teardown)
{
	struct map_ask question = {.limits = {.iops = 100, .burst_ms = 100}};
	make("slow", 4 * OBJECT);
	uint64_t id = opened("slow", 0);
	ck_assert_int_eq(control(&b, MAP_LIMITS, id, 0, &question), 0);
	ck_assert_uint_ge(sixty_writes(id), 480000000u);
	ck_assert_int_eq(ask(MAP_SNAP, id, "slow@1", 0), 0);
	question.limits = (struct map_change_limits){0};
	ck_assert_int_eq(control(&b, MAP_LIMITS, id, 0, &question), 0);
	/* a busy machine may be as slow at times, a limit is so always */
	bool fast = false;
	for (unsigned i = 0; i < 50 && !fast; i++)
		fast = sixty_writes(id) < 480000000u;
	ck_assert(fast);
}

static struct map_detail detail_of(uint64_t id)
{
	struct map_detail detail;
	ck_assert_int_eq(control(&b, MAP_DETAIL, id, 0, NULL), 0);
	memcpy(&detail, out + MAP_ANSWER_AT, sizeof(detail));
	return detail;
}

/* Ours while it is open for writing, and no longer. */
UNIT_WITHIN(test_home, setup, teardown)
{
	uint64_t id = make("disk", 4 * OBJECT);
	ck_assert_uint_eq(detail_of(id).home.owner, 0);
	opened("disk", XSEG_F_READ_ONLY);
	ck_assert_uint_eq(detail_of(id).home.owner, 0);
	opened("disk", 0);
	ck_assert_uint_ne(detail_of(id).home.owner, 0);
	put(id, 0, 1, OBJECT);
	ck_assert_int_eq(io(&a, XSEG_OP_CLOSE, id, 0, NULL, 0), 0);
	ck_assert_uint_ne(detail_of(id).home.owner, 0);
	ck_assert_int_eq(io(&a, XSEG_OP_CLOSE, id, 0, NULL, 0), 0);
	for (unsigned i = 0; i < 60000 && detail_of(id).home.owner != 0; i++)
		usleep(1000);
	ck_assert_uint_eq(detail_of(id).home.owner, 0);
	ck_assert_uint_eq(detail_of(id).objects, 1);
	/* who dies without a word has it open no more, either */
	struct client c;
	rig_client(&rig, &c, "vol0");
	ck_assert_int_eq(rig_volume_named(&c, XSEG_OP_OPEN, 0, "disk", &info), 0);
	ck_assert_uint_ne(detail_of(id).home.owner, 0);
	client_close(&c);
	for (unsigned i = 0; i < 60000 && detail_of(id).home.owner != 0; i++)
		usleep(1000);
	ck_assert_uint_eq(detail_of(id).home.owner, 0);
}

/* Taken away by somebody: what is written then is refused, until it is opened anew. */
UNIT_WITHIN(test_lost, setup, teardown)
{
	uint8_t data[512] = {7};
	uint64_t id = make("disk", 4 * OBJECT);
	opened("disk", 0);
	put(id, 0, 1, OBJECT);
	ck_assert_int_eq(io(&a, XSEG_OP_FLUSH, id, 0, NULL, 0), 0);
	put(id, OBJECT, 2, OBJECT);
	ck_assert_int_eq(control(&b, MAP_BREAK, id, 0, NULL), 0);
	ck_assert_int_eq(io(&a, XSEG_OP_FLUSH, id, 0, NULL, 0), -EIO);
	ck_assert_int_eq(io(&a, XSEG_OP_WRITE, id, 0, data, sizeof(data)), -EIO);
	ck_assert_int_eq(io(&a, XSEG_OP_FLUSH, id, 0, NULL, 0), -EIO);
	ck_assert_int_eq(io(&a, XSEG_OP_CLOSE, id, 0, NULL, 0), 0);
	opened("disk", 0);
	is(id, 0, 1, OBJECT);
	is(id, OBJECT, 0, OBJECT);
	put(id, OBJECT, 3, OBJECT);
	ck_assert_int_eq(io(&a, XSEG_OP_FLUSH, id, 0, NULL, 0), 0);
	is(id, OBJECT, 3, OBJECT);
}

/* Who was at work before the composer was killed goes on; what was recorded is published. */
UNIT_WITHIN(test_killed, setup, teardown)
{
	uint64_t id = make("disk", 64 * OBJECT);
	opened("disk", 0);
	for (unsigned round = 0; round < 5; round++) {
		put(id, (uint64_t)round * OBJECT, (uint8_t)(round + 1), OBJECT);
		if (round % 2)
			ck_assert_int_eq(ask(MAP_SNAP, id, round == 1 ? "disk@1" : "disk@3", 0), 0);
		rig_kill(&rig, VOL);
		rig_start_again(&rig, VOL);
		put(id, 32ull * OBJECT, (uint8_t)(round + 1), 512);
		for (unsigned i = 0; i <= round; i++)
			is(id, (uint64_t)i * OBJECT, (uint8_t)(i + 1), OBJECT);
	}
	ck_assert_int_eq(io(&a, XSEG_OP_FLUSH, id, 0, NULL, 0), 0);
	ck_assert_uint_eq(detail_of(id).objects, 6);
	uint64_t snap = opened("disk@1", XSEG_F_READ_ONLY);
	is(snap, 0, 1, OBJECT);
	is(snap, OBJECT, 2, OBJECT);
	is(snap, 2 * OBJECT, 0, OBJECT);
	is(snap, 32ull * OBJECT, 1, 512);
}

/* Nobody asks for it again: what was recorded is published all the same, and it is given back. */
UNIT_WITHIN(test_adopted, setup, teardown)
{
	uint64_t id = make("disk", 64 * OBJECT);
	opened("disk", 0);
	put(id, 0, 1, 3 * OBJECT);
	ck_assert_uint_ne(id, 0);
	client_close(&a);
	rig_kill(&rig, VOL);
	rig_start_again(&rig, VOL);
	rig_client(&rig, &a, "map0"); /* past the composer, which would tell it for our question */
	struct map_detail detail = {.objects = 0};
	for (unsigned i = 0; i < 60000 && (detail.objects != 3 || detail.home.owner != 0); i++) {
		usleep(1000);
		ck_assert_int_eq(control(&a, MAP_DETAIL, id, 0, NULL), 0);
		memcpy(&detail, out + MAP_ANSWER_AT, sizeof(detail));
	}
	ck_assert_uint_eq(detail.objects, 3);
	ck_assert_uint_eq(detail.home.owner, 0);
}

static uint32_t kept_pages(void)
{
	struct xseg_usage usage;
	xseg_segment_usage(&rig.seg, &usage);
	return usage.pages_kept;
}

/* Asked to stop, it publishes what it has recorded, and keeps nothing. */
UNIT_WITHIN(test_stopped, setup, teardown)
{
	uint64_t id = make("disk", 64 * OBJECT);
	opened("disk", 0);
	put(id, 0, 1, 3 * OBJECT);
	ck_assert_uint_ge(kept_pages(), 1);
	rig_stop(&rig, VOL);
	ck_assert_uint_eq(kept_pages(), 0);
	struct client map;
	struct map_detail detail;
	rig_client(&rig, &map, "map0");
	ck_assert_int_eq(control(&map, MAP_DETAIL, id, 0, NULL), 0);
	memcpy(&detail, out + MAP_ANSWER_AT, sizeof(detail));
	ck_assert_uint_eq(detail.objects, 3);
	ck_assert_uint_ne(detail.home.owner, 0); /* we have it open still */
	rig_start_again(&rig, VOL);
	is(id, 0, 1, 3 * OBJECT);
	put(id, 0, 2, OBJECT);
	ck_assert_int_eq(io(&a, XSEG_OP_CLOSE, id, 0, NULL, 0), 0);
	rig_stop(&rig, VOL);
	ck_assert_int_eq(control(&map, MAP_DETAIL, id, 0, NULL), 0);
	memcpy(&detail, out + MAP_ANSWER_AT, sizeof(detail));
	ck_assert_uint_eq(detail.home.owner, 0);
	client_close(&map);
}

/* The records of the store, for somebody on another host. */
static struct client store;

static int store_cas(
	enum xseg_cas what, struct xseg_key key, void *data, uint32_t size, uint64_t *version)
{
	struct client_request request = {.op = XSEG_OP_CAS,
		.key = key,
		.arg0 = *version,
		.arg1 = what,
		.length = size,
		.send = data,
		.send_size = what == XSEG_CAS_PUT ? size : 0,
		.receive = data,
		.receive_size = what == XSEG_CAS_GET ? size : 0};
	int rc = client_do(&store, &request);
	*version = request.value;
	return rc == 0 ? (int)request.answer_length : rc;
}

static int store_get(
	struct map_store *map, struct xseg_key key, uint8_t to[XSEG_RECORD_MAX], uint64_t *version)
{
	(void)map;
	return store_cas(XSEG_CAS_GET, key, to, XSEG_RECORD_MAX, version);
}

static int store_put(struct map_store *map, struct xseg_key key, const void *from, uint32_t size,
	uint64_t *version)
{
	uint8_t data[XSEG_RECORD_MAX];
	(void)map;
	memcpy(data, from, size);
	int rc = store_cas(XSEG_CAS_PUT, key, data, size, version);
	return rc < 0 ? rc : 0;
}

static int other_acquires(uint64_t id, bool force, struct map_home *home)
{
	struct map_store records = {.get = store_get, .put = store_put};
	struct map_claim claim = {.owner = 4711,
		.now_ns = (uint64_t)time(NULL) * 1000000000u,
		.lease_ns = 3600000000000u,
		.host = "elsewhere"};
	return map_home_acquire(&records, id, &claim, force, home);
}

/* Another host has it: whoever wants to write is told who. */
UNIT_WITHIN(test_elsewhere, setup, teardown)
{
	struct map_home home;
	struct map_trouble trouble;
	struct client_request request = {.op = XSEG_OP_OPEN,
		.length = sizeof(info),
		.send = &info,
		.send_size = sizeof(info),
		.receive = out,
		.receive_size = sizeof(out)};
	uint8_t data[512] = {1};
	uint64_t id = make("disk", 4 * OBJECT);
	rig_client(&rig, &store, "mem0");
	ck_assert_int_eq(other_acquires(id, false, &home), 0);
	memset(out, 0, sizeof(out));
	ck_assert_int_eq(client_do(&a, &request), -EBUSY);
	ck_assert_uint_eq(request.value, 1);
	ck_assert_int_eq(rig_volume_named(&a, XSEG_OP_OPEN, 0, "disk", &info), -EBUSY);
	ck_assert_int_eq(io(&a, XSEG_OP_WRITE, id, 0, data, sizeof(data)), -EIO);
	ck_assert_int_eq(ask(MAP_SNAP, id, "disk@1", 0), -EBUSY);
	ck_assert_uint_eq(value, 1);
	memcpy(&trouble, out + MAP_ANSWER_AT, sizeof(trouble));
	ck_assert_uint_eq(trouble.owner.owner, 4711);
	ck_assert_str_eq(trouble.owner.host, "elsewhere");
	opened("disk", XSEG_F_READ_ONLY); /* to look at it is free */
	is(id, 0, 0, OBJECT);
	client_close(&store);
}

/* Another host takes it by force, and writes: ours stops at the next flush. */
UNIT_WITHIN(test_taken, setup, teardown)
{
	struct map_home home;
	uint8_t data[512] = {7};
	uint64_t id = make("disk", 4 * OBJECT);
	opened("disk", 0);
	rig_client(&rig, &store, "mem0");
	put(id, 0, 1, OBJECT);
	ck_assert_int_eq(io(&a, XSEG_OP_FLUSH, id, 0, NULL, 0), 0);
	put(id, OBJECT, 2, OBJECT);
	ck_assert_int_eq(other_acquires(id, true, &home), 0);
	rig_stop(&rig, 1); /* one that does not know it yet would ask again before a change, too */
	rig_start_again(&rig, 1);
	ck_assert_int_eq(io(&a, XSEG_OP_FLUSH, id, 0, NULL, 0), -EIO);
	ck_assert_int_eq(io(&a, XSEG_OP_WRITE, id, 0, data, sizeof(data)), -EIO);
	ck_assert_int_eq(io(&a, XSEG_OP_FLUSH, id, 0, NULL, 0), -EIO);
	ck_assert_int_eq(ask(MAP_SNAP, id, "disk@1", 0), -EIO);
	ck_assert_int_eq(io(&a, XSEG_OP_CLOSE, id, 0, NULL, 0), 0);
	ck_assert_int_eq(rig_volume_named(&a, XSEG_OP_OPEN, 0, "disk", &info), -EBUSY);
	client_close(&store);
}
