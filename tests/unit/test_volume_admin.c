/* SPDX-License-Identifier: Apache-2.0 */
/* Creating, opening, listing and removing volumes, on a real mapper and store in other processes.
   */
#include <errno.h>
#include <string.h>

#include "tests/lib/unit.h"
#include "tests/property/volume_rig.h"

#define VOL 2 /* the composer's host */

static struct rig rig;
static struct client a, b, store;
static struct xseg_volume_info info;

static void setup(void)
{
	rig_open(&rig, 128u << 20);
	rig_start(&rig, 0, 2, "mem0=blocker_memory");
	rig_start(&rig, 1, 2, "map0=mapperd,edge.store=mem0");
	rig_start(&rig, VOL, 2, "vol0=volume,edge.store=mem0,edge.map=map0");
	rig_client(&rig, &a, "vol0");
	rig_client(&rig, &b, "vol0");
	rig_client(&rig, &store, "mem0");
}

static void teardown(void)
{
	client_close(&a);
	client_close(&b);
	client_close(&store);
	rig_close(&rig);
}

static void restart(void)
{
	rig_stop(&rig, VOL);
	rig_start_again(&rig, VOL);
}

static uint64_t make(const char *name, uint64_t size, uint32_t object_size)
{
	ck_assert_int_eq(rig_volume_create(&a, name, size, object_size, &info), 0);
	ck_assert_uint_ne(info.id, 0);
	return info.id;
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

static int cas(enum xseg_cas what, struct xseg_key key, uint64_t version, void *data, uint32_t size)
{
	struct client_request request = {.op = XSEG_OP_CAS,
		.key = key,
		.arg0 = version,
		.arg1 = what,
		.length = size,
		.send = data,
		.send_size = what == XSEG_CAS_PUT ? size : 0,
		.receive = data,
		.receive_size = what == XSEG_CAS_GET ? size : 0};
	return client_do(&store, &request);
}

static struct xseg_key volume_key(uint64_t id)
{
	return (struct xseg_key){.volume = id, .epoch = XSEG_EPOCH_VOLUME};
}

/* How often LIST shows a name, in pieces of `room` volumes; *shown is the last. */
static unsigned listed(
	const char *name, unsigned room, struct xseg_volume_info *shown, unsigned *total)
{
	struct xseg_volume_info page[64];
	unsigned found = 0;
	uint64_t cursor = 0;
	*total = 0;
	do {
		struct client_request request = {.op = XSEG_OP_LIST,
			.arg0 = cursor,
			.length = room * (unsigned)sizeof(page[0]),
			.receive = page,
			.receive_size = room * (unsigned)sizeof(page[0])};
		ck_assert_int_eq(client_do(&a, &request), 0);
		unsigned count = request.answer_length / (unsigned)sizeof(page[0]);
		ck_assert_uint_le(count, countof(page));
		for (unsigned i = 0; i < count; i++)
			if (strcmp(page[i].name, name) == 0) {
				*shown = page[i];
				found++;
			}
		*total += count;
		cursor = request.value;
	} while (cursor != 0);
	return found;
}

static unsigned listed_state(const char *name)
{
	struct xseg_volume_info shown = {.state = 99};
	unsigned total;
	return listed(name, 64, &shown, &total) == 1 ? shown.state : 99;
}

static unsigned objects_in_store(uint64_t id)
{
	static struct xseg_key keys[1024];
	struct client_request request = {.op = XSEG_OP_LIST,
		.key.volume = id,
		.length = sizeof(keys),
		.receive = keys,
		.receive_size = sizeof(keys)};
	ck_assert_int_eq(client_do(&store, &request), 0);
	return request.answer_length / (unsigned)sizeof(keys[0]);
}

UNIT_WITHIN(test_create, setup, teardown)
{
	uint64_t id = make("disk", 10 << 20, 65536);
	ck_assert_uint_eq(info.state, XSEG_VOLUME_READY);
	ck_assert_uint_eq(info.object_size, 65536);
	ck_assert_uint_ne(info.created_ns, 0);
	ck_assert_int_eq(rig_volume_create(&a, "disk", 10 << 20, 65536, &info), -EEXIST);
	ck_assert_int_eq(rig_volume_named(&b, XSEG_OP_INFO, 0, "disk", &info), 0);
	ck_assert_uint_eq(info.id, id);
	ck_assert_uint_eq(info.size, 10 << 20);
	ck_assert_uint_eq(info.objects, 0);
	ck_assert_int_eq(rig_volume_named(&b, XSEG_OP_INFO, 0, "desk", &info), -ENOENT);
	ck_assert_int_eq(rig_volume(&b, XSEG_OP_INFO, 0, id + 1, &info), -ENOENT);
	/* the default of the option */
	make("other", 4096, 0);
	ck_assert_uint_eq(info.object_size, 4 << 20);
}

UNIT_WITHIN(test_create_refused, setup, teardown)
{
	ck_assert_int_eq(rig_volume_create(&a, "", 4096, 4096, &info), -EINVAL);
	ck_assert_int_eq(rig_volume_create(&a, "a/b", 4096, 4096, &info), -EINVAL);
	ck_assert_int_eq(rig_volume_create(&a, "-a", 4096, 4096, &info), -EINVAL);
	ck_assert_int_eq(rig_volume_create(&a, "a", 0, 4096, &info), -EINVAL);
	ck_assert_int_eq(rig_volume_create(&a, "a", 4097, 4096, &info), -EINVAL);
	ck_assert_int_eq(rig_volume_create(&a, "a", 4096, 5000, &info), -EINVAL);
	ck_assert_int_eq(rig_volume_create(&a, "a", 4096, 2048, &info), -EINVAL);
	ck_assert_int_eq(rig_volume_create(&a, "a", 4096, 8 << 20, &info), -EINVAL);
	ck_assert_int_eq(rig_volume_create(&a, "a", 1ull << 60, 4096, &info), -EFBIG);
	memset(&info, 'n', sizeof(info)); /* a name without an end */
	info.size = 4096;
	info.object_size = 4096;
	info.state = info.flags = 0;
	ck_assert_int_eq(rig_volume(&a, XSEG_OP_CREATE, 0, 0, &info), -EINVAL);
	ck_assert_uint_eq(listed_state("a"), 99);
}

/* Who chose the id may ask again: it is the same volume. */
UNIT_WITHIN(test_create_again, setup, teardown)
{
	struct xseg_volume_info want = {.id = 4711, .size = 8192, .object_size = 4096};
	strcpy(want.name, "mine");
	for (int i = 0; i < 3; i++) {
		info = want;
		ck_assert_int_eq(rig_volume(&a, XSEG_OP_CREATE, 0, 0, &info), 0);
		ck_assert_uint_eq(info.id, 4711);
	}
	info = want;
	info.object_size = 8192; /* the id is another one's */
	ck_assert_int_eq(rig_volume(&a, XSEG_OP_CREATE, 0, 0, &info), -EEXIST);
}

UNIT_WITHIN(test_open, setup, teardown)
{
	uint64_t id = make("disk", 1 << 20, 65536);
	char data[4096] = "x";
	ck_assert_int_eq(rig_volume_named(&a, XSEG_OP_OPEN, 0, "disk", &info), 0);
	ck_assert_uint_eq(info.id, id);
	ck_assert_uint_eq(info.opens, 1);
	ck_assert_int_eq(rig_volume(&a, XSEG_OP_OPEN, XSEG_F_READ_ONLY, id, &info), 0);
	ck_assert_uint_eq(info.opens, 2);
	ck_assert_int_eq(io(&a, XSEG_OP_WRITE, id, 0, data, sizeof(data)), 0);
	ck_assert_int_eq(rig_volume(&b, XSEG_OP_REMOVE, 0, id, &info), -EBUSY);
	ck_assert_int_eq(io(&a, XSEG_OP_CLOSE, id, 0, NULL, 0), 0);
	ck_assert_int_eq(rig_volume(&b, XSEG_OP_REMOVE, 0, id, &info), -EBUSY);
	ck_assert_int_eq(io(&a, XSEG_OP_CLOSE, id, 0, NULL, 0), 0);
	ck_assert_int_eq(rig_volume(&b, XSEG_OP_INFO, 0, id, &info), 0);
	ck_assert_uint_eq(info.opens, 0);
	ck_assert_int_eq(rig_volume(&b, XSEG_OP_REMOVE, 0, id, &info), 0);
	ck_assert_int_eq(rig_volume_named(&a, XSEG_OP_OPEN, 0, "disk", &info), -ENOENT);
	ck_assert_int_eq(io(&a, XSEG_OP_READ, id, 0, data, sizeof(data)), -ENOENT);
	ck_assert_int_eq(io(&a, XSEG_OP_CLOSE, id, 0, NULL, 0), 0);
}

/* On two lanes a flush is asked of each by the composer itself: that is nobody who has it open. */
UNIT_WITHIN(test_flush, setup, teardown)
{
	uint64_t id = make("disk", 1 << 20, 65536);
	ck_assert_int_eq(rig_volume_named(&a, XSEG_OP_OPEN, 0, "disk", &info), 0);
	ck_assert_int_eq(io(&a, XSEG_OP_FLUSH, id, 0, NULL, 0), 0);
	ck_assert_int_eq(io(&a, XSEG_OP_FLUSH, 0, 0, NULL, 0), -EINVAL);
	ck_assert_int_eq(io(&a, XSEG_OP_CLOSE, id, 0, NULL, 0), 0);
	ck_assert_int_eq(rig_volume(&b, XSEG_OP_INFO, 0, id, &info), 0);
	ck_assert_uint_eq(info.opens, 0);
	ck_assert_int_eq(rig_volume(&b, XSEG_OP_REMOVE, 0, id, &info), 0);
	ck_assert_int_eq(io(&b, XSEG_OP_FLUSH, id, 0, NULL, 0), -ENOENT);
}

/* A client that is gone holds nothing. */
UNIT_WITHIN(test_dead_client, setup, teardown)
{
	uint64_t id = make("disk", 1 << 20, 65536);
	struct client c;
	rig_client(&rig, &c, "vol0");
	ck_assert_int_eq(rig_volume_named(&c, XSEG_OP_OPEN, 0, "disk", &info), 0);
	ck_assert_int_eq(rig_volume(&b, XSEG_OP_REMOVE, 0, id, &info), -EBUSY);
	client_close(&c);
	ck_assert_int_eq(rig_volume(&b, XSEG_OP_INFO, 0, id, &info), 0);
	ck_assert_uint_eq(info.opens, 0);
	ck_assert_int_eq(rig_volume(&b, XSEG_OP_REMOVE, 0, id, &info), 0);
}

/* More objects than one list holds and than are deleted at a time. */
UNIT_WITHIN(test_remove, setup, teardown)
{
	uint64_t id = make("big", 1000 * 4096, 4096), other = make("other", 1 << 20, 4096);
	static char data[200 * 4096];
	memset(data, 7, sizeof(data));
	for (unsigned i = 0; i < 1000; i += 200)
		ck_assert_int_eq(io(&a, XSEG_OP_WRITE, id, i * 4096, data, sizeof(data)), 0);
	ck_assert_int_eq(io(&a, XSEG_OP_WRITE, other, 0, data, 4096), 0);
	ck_assert_int_eq(io(&a, XSEG_OP_FLUSH, id, 0, NULL, 0), 0);
	ck_assert_int_eq(rig_volume(&a, XSEG_OP_INFO, 0, id, &info), 0);
	ck_assert_uint_eq(info.objects, 1000);
	ck_assert_uint_ge(objects_in_store(id), 1000); /* pages of its map, too */
	ck_assert_int_eq(rig_volume(&a, XSEG_OP_REMOVE, 0, id, &info), 0);
	ck_assert_uint_eq(objects_in_store(id), 0);
	ck_assert_uint_eq(objects_in_store(other), 1);
	ck_assert_int_eq(cas(XSEG_CAS_GET, volume_key(id), 0, data, 4096), -ENOENT);
	ck_assert_int_eq(rig_volume_named(&a, XSEG_OP_REMOVE, 0, "big", &info), -ENOENT);
	/* who has been told the id may ask again: a composer is killed before it answers */
	ck_assert_int_eq(rig_volume(&a, XSEG_OP_REMOVE, 0, id, &info), 0);
	ck_assert_uint_ne(make("big", 4096, 4096), id);
	ck_assert_int_eq(rig_volume_named(&a, XSEG_OP_REMOVE, 0, "big", &info), 0);
}

/* The composer forgets who opened what; who is at work shows himself. */
UNIT_WITHIN(test_restart, setup, teardown)
{
	uint64_t id = make("disk", 1 << 20, 65536);
	char data[4096], back[4096] = "";
	memset(data, 9, sizeof(data));
	ck_assert_int_eq(rig_volume_named(&a, XSEG_OP_OPEN, 0, "disk", &info), 0);
	ck_assert_int_eq(io(&a, XSEG_OP_WRITE, id, 65536, data, sizeof(data)), 0);
	restart();
	ck_assert_int_eq(io(&a, XSEG_OP_READ, id, 65536, back, sizeof(back)), 0);
	ck_assert_mem_eq(data, back, sizeof(data));
	ck_assert_int_eq(rig_volume(&b, XSEG_OP_INFO, 0, id, &info), 0);
	ck_assert_uint_eq(info.opens, 1);
	ck_assert_int_eq(io(&a, XSEG_OP_FLUSH, id, 0, NULL, 0), 0);
	ck_assert_int_eq(rig_volume(&b, XSEG_OP_INFO, 0, id, &info), 0);
	ck_assert_uint_eq(info.objects, 1);
	ck_assert_int_eq(rig_volume(&b, XSEG_OP_REMOVE, 0, id, &info), -EBUSY);
	ck_assert_int_eq(io(&a, XSEG_OP_CLOSE, id, 0, NULL, 0), 0);
	ck_assert_int_eq(rig_volume(&b, XSEG_OP_REMOVE, 0, id, &info), 0);
}

UNIT_WITHIN(test_update, setup, teardown)
{
	info = (struct xseg_volume_info){.size = 1 << 20, .state = XSEG_VOLUME_IMPORTING};
	strcpy(info.name, "image");
	ck_assert_int_eq(rig_volume(&a, XSEG_OP_CREATE, 0, 0, &info), 0);
	uint64_t id = info.id;
	ck_assert_uint_eq(listed_state("image"), XSEG_VOLUME_IMPORTING);
	restart();
	info.state = XSEG_VOLUME_READY;
	ck_assert_int_eq(rig_volume(&a, XSEG_OP_UPDATE, 0, id, &info), 0);
	ck_assert_uint_eq(info.state, XSEG_VOLUME_READY);
	ck_assert_int_eq(rig_volume(&a, XSEG_OP_UPDATE, 0, id, &info), 0);
	restart();
	ck_assert_uint_eq(listed_state("image"), XSEG_VOLUME_READY);
	info.state = XSEG_VOLUME_IMPORTING;
	ck_assert_int_eq(rig_volume(&a, XSEG_OP_UPDATE, 0, id, &info), -EINVAL);
	info.state = XSEG_VOLUME_REMOVING;
	ck_assert_int_eq(rig_volume(&a, XSEG_OP_UPDATE, 0, id, &info), -EINVAL);
	info.state = XSEG_VOLUME_READY;
	info.id = 0;
	ck_assert_int_eq(rig_volume(&a, XSEG_OP_UPDATE, 0, 0, &info), 0); /* by name */
	ck_assert_uint_eq(info.id, id);
}

UNIT_WITHIN(test_list, setup, teardown)
{
	static const unsigned rooms[] = {1, 13, 40, 64};
	char name[32];
	unsigned total;
	for (unsigned i = 0; i < 100; i++) {
		snprintf(name, sizeof(name), "volume-%u", i);
		make(name, 4096 + 512 * i, 4096);
	}
	for (unsigned r = 0; r < countof(rooms); r++) {
		for (unsigned i = 0; i < 100; i += 33) {
			snprintf(name, sizeof(name), "volume-%u", i);
			ck_assert_uint_eq(listed(name, rooms[r], &info, &total), 1);
			ck_assert_uint_eq(info.size, 4096 + 512 * i);
			ck_assert_uint_eq(total, 100);
		}
	}
}

/* A store that keeps nothing: volumes of the configuration, and nobody can make others. */
UNIT_WITHIN(test_fixed, setup, teardown)
{
	char data[8192] = "";
	unsigned total;
	rig_start(&rig, 3, 1,
		"null0=blocker_null fix0=volume,edge.store=null0,"
		"fixed=zero:8M,fixed=one:1048576,object-size=4096");
	client_close(&a);
	rig_client(&rig, &a, "fix0");
	ck_assert_int_eq(rig_volume_named(&a, XSEG_OP_OPEN, 0, "zero", &info), 0);
	ck_assert_uint_eq(info.size, 8 << 20);
	ck_assert_uint_eq(info.flags, XSEG_VOLUME_FIXED);
	ck_assert_uint_eq(info.objects, 2048);
	uint64_t id = info.id;
	ck_assert_int_eq(io(&a, XSEG_OP_READ, id, 2048, data, sizeof(data)), 0);
	ck_assert_int_eq(io(&a, XSEG_OP_WRITE, id, (8 << 20) - 4096, data, 4096), 0);
	ck_assert_int_eq(io(&a, XSEG_OP_WRITE, id, (8 << 20) - 4096, data, 8192), -ENOSPC);
	ck_assert_int_eq(io(&a, XSEG_OP_READ, id, (8 << 20) - 4096, data, 8192), -EINVAL);
	ck_assert_int_eq(io(&a, XSEG_OP_FLUSH, id, 0, NULL, 0), 0);
	ck_assert_int_eq(rig_volume(&a, XSEG_OP_REMOVE, 0, id, &info), -EPERM);
	ck_assert_int_eq(rig_volume(&a, XSEG_OP_UPDATE, 0, id, &info), -EPERM);
	ck_assert_int_eq(rig_volume_create(&a, "zero", 4096, 4096, &info), -EEXIST);
	ck_assert_int_eq(rig_volume_create(&a, "two", 4096, 4096, &info), -EOPNOTSUPP);
	ck_assert_int_eq(rig_volume_named(&a, XSEG_OP_OPEN, 0, "two", &info), -ENOENT);
	ck_assert_int_eq(io(&a, XSEG_OP_READ, 12345, 0, data, sizeof(data)), -ENOENT);
	ck_assert_uint_eq(listed("one", 64, &info, &total), 1);
	ck_assert_uint_eq(total, 2);
	ck_assert_uint_eq(info.size, 1 << 20);
}

/*
 * The composer is killed at a random moment of a removal: afterwards the volume is there, or it is
 * shown and can be removed, or it is gone; never anything else, and no object stays. Few rounds:
 * what the dead held of the segment is not reaped here.
 */
UNIT_WITHIN(test_killed_in_removal, setup, teardown)
{
	static char data[500 * 4096];
	uint64_t seed = 17;
	unsigned seen[3] = {0};
	memset(data, 5, sizeof(data));
	for (unsigned round = 0; round < 12; round++) {
		struct client c;
		struct client_request request = {.op = XSEG_OP_REMOVE};
		rig_client(&rig, &c, "vol0");
		uint64_t id = make("victim", sizeof(data), 4096);
		ck_assert_int_eq(io(&a, XSEG_OP_WRITE, id, 0, data, sizeof(data)), 0);
		ck_assert_int_eq(io(&a, XSEG_OP_CLOSE, id, 0, NULL, 0), 0);
		request.key.volume = id;
		ck_assert_int_eq(client_start(&c, &request), 0);
		usleep((useconds_t)(random_next(&seed) % 2500));
		rig_kill(&rig, VOL);
		rig_start_again(&rig, VOL);
		client_close(&c);
		int rc = rig_volume_named(&a, XSEG_OP_INFO, 0, "victim", &info);
		if (rc == 0) {
			ck_assert_uint_eq(info.id, id);
			ck_assert_uint_ne(info.state, XSEG_VOLUME_IMPORTING);
			seen[info.state == XSEG_VOLUME_REMOVING]++;
			if (info.state == XSEG_VOLUME_READY)
				ck_assert_uint_eq(objects_in_store(id), 500);
			ck_assert_int_eq(rig_volume(&a, XSEG_OP_REMOVE, 0, id, &info), 0);
		} else {
			ck_assert_int_eq(rc, -ENOENT);
			seen[2]++;
		}
		ck_assert_uint_eq(objects_in_store(id), 0);
		ck_assert_uint_eq(listed_state("victim"), 99);
	}
	fprintf(stderr, "killed before, in the middle of and after a removal: %u, %u, %u\n",
		seen[0], seen[1], seen[2]);
}

/* The same for a creation: the volume is whole or not there, and the name is usable. */
UNIT_WITHIN(test_killed_in_creation, setup, teardown)
{
	uint64_t seed = 18;
	char name[32], data[4096] = "";
	for (unsigned round = 0; round < 10; round++) {
		struct xseg_volume_info want = {.size = 1 << 20, .object_size = 65536};
		struct client c;
		struct client_request request = {.op = XSEG_OP_CREATE,
			.length = sizeof(want),
			.send = &want,
			.send_size = sizeof(want)};
		rig_client(&rig, &c, "vol0");
		snprintf(name, sizeof(name), "new-%u", round);
		strcpy(want.name, name);
		ck_assert_int_eq(client_start(&c, &request), 0);
		usleep((useconds_t)(random_next(&seed) % 300));
		rig_kill(&rig, VOL);
		rig_start_again(&rig, VOL);
		client_close(&c);
		int rc = rig_volume_create(&a, name, 1 << 20, 65536, &info);
		ck_assert_msg(rc == 0 || rc == -EEXIST, "create says %d", rc);
		ck_assert_int_eq(rig_volume_named(&a, XSEG_OP_OPEN, 0, name, &info), 0);
		ck_assert_uint_eq(info.size, 1 << 20);
		ck_assert_int_eq(io(&a, XSEG_OP_READ, info.id, 0, data, sizeof(data)), 0);
		ck_assert_uint_eq(listed_state(name), XSEG_VOLUME_READY);
	}
}

/* Requests that no honest front sends. */
UNIT_WITHIN(test_odd_requests, setup, teardown)
{
	uint64_t id = make("disk", 1 << 20, 65536);
	char data[4096] = "";
	ck_assert_int_eq(io(&a, XSEG_OP_READ, 0, 0, data, sizeof(data)), -EINVAL);
	ck_assert_int_eq(io(&a, XSEG_OP_READ, id ^ 1, 0, data, sizeof(data)), -ENOENT);
	ck_assert_int_eq(io(&a, XSEG_OP_FLUSH, id ^ 1, 0, NULL, 0), -ENOENT);
	ck_assert_int_eq(io(&a, XSEG_OP_READ, id, 1ull << 60, data, sizeof(data)), -EINVAL);
	ck_assert_int_eq(io(&a, XSEG_OP_COPY, id, 0, NULL, 4096), -EOPNOTSUPP);
	struct client_request request = {.op = XSEG_OP_READ,
		.key = {.volume = id, .object = 3},
		.length = 4096,
		.receive = data,
		.receive_size = 4096};
	ck_assert_int_eq(client_do(&a, &request), -EINVAL);
	ck_assert_int_eq(rig_volume_named(&a, XSEG_OP_OPEN, 0, "", &info), -EINVAL);
	ck_assert_int_eq(rig_volume_named(&a, XSEG_OP_OPEN, 0, "\xff", &info), -EINVAL);
	char name[300];
	memset(name, 'x', sizeof(name) - 1);
	name[299] = 0;
	ck_assert_int_eq(rig_volume_named(&a, XSEG_OP_OPEN, 0, name, &info), -EINVAL);
	name[191] = 0;
	ck_assert_int_eq(rig_volume_named(&a, XSEG_OP_OPEN, 0, name, &info), -ENOENT);
	make(name, 4096, 4096);
	ck_assert_int_eq(rig_volume_named(&a, XSEG_OP_OPEN, 0, name, &info), 0);
}
