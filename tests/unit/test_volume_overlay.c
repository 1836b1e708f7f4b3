/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Partial objects, through a composer with a mapper over a store that intents what it is published
 * to change. What each cluster of a volume says is known; what a write costs is read from the
 * store's log.
 */
#include <errno.h>
#include <fcntl.h>
#include <peer/map.h>
#include <string.h>
#include <unistd.h>
#include <xseg/page.h>

#include "tests/lib/unit.h"
#include "tests/property/volume_rig.h"

#define OBJECT 65536u
#define CLUSTERS (OBJECT / MAP_CLUSTER)
#define SECTORS (OBJECT / XSEG_SECTOR)
#define SIZE (8u * OBJECT)
#define ID 0x1000u /* of the first clone */

static struct rig rig;
static struct client client, other;
static uint64_t base;

/* --- the store's log: as tests/lib/blocker_record.c writes it ----------------------------- */

struct intent {
	uint32_t magic, carried;
	uint64_t number, begin, time_ns, volume, offset, arg0, arg1;
	uint32_t object, length, crc;
	int32_t error;
	uint8_t op, kind, shard, flags;
	uint32_t reserved;
};

/* Requests of that kind about objects of the volume that have begun since *at, which moves on. */
static unsigned count_since(off_t *at, uint64_t volume, enum xseg_op op)
{
	char path[256];
	struct intent intent;
	unsigned count = 0;
	snprintf(path, sizeof(path), "%s/log", rig.dir);
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ck_assert_int_ge(fd, 0);
	for (; pread(fd, &intent, sizeof(intent), *at) == sizeof(intent);
		*at += (off_t)(sizeof(intent) + intent.carried)) {
		ck_assert_uint_eq(intent.magic, 0x4e4f5445u);
		count += intent.kind == 0 && intent.op == op && intent.volume == volume;
	}
	close(fd);
	return count;
}

/* --- volumes ------------------------------------------------------------------------------ */

static int do_io(struct client *by, enum xseg_op op, uint64_t id, uint64_t offset, void *data,
	uint32_t length)
{
	struct client_request request = {
		.op = op, .key.volume = id, .offset = offset, .length = length};
	if (op == XSEG_OP_WRITE) {
		request.send = data;
		request.send_size = length;
	} else if (op == XSEG_OP_READ) {
		request.receive = data;
		request.receive_size = length;
	}
	return client_do(by, &request);
}

/* `length` bytes of one value. */
static void put(uint64_t id, uint64_t offset, uint32_t length, uint8_t value)
{
	uint8_t *data = malloc(length);
	must(data);
	memset(data, value, length);
	ck_assert_int_eq(do_io(&client, XSEG_OP_WRITE, id, offset, data, length), 0);
	free(data);
}

static void expect(uint64_t id, uint64_t offset, uint32_t length, uint8_t value)
{
	uint8_t *data = malloc(length);
	must(data);
	ck_assert_int_eq(do_io(&client, XSEG_OP_READ, id, offset, data, length), 0);
	for (uint32_t i = 0; i < length; i++) /* ck_assert_msg() is slow */
		if (data[i] != value)
			ck_abort_msg("byte %llu of %llx is %u instead of %u",
				(unsigned long long)offset + i, (unsigned long long)id, data[i],
				value);
	free(data);
}

static void open_volume(uint64_t id)
{
	struct xseg_volume_info info;
	ck_assert_int_eq(rig_volume(&client, XSEG_OP_OPEN, 0, id, &info), 0);
	ck_assert_int_eq(rig_volume(&other, XSEG_OP_OPEN, 0, id, &info), 0);
}

static void close_volume(uint64_t id)
{
	struct client_request request = {.op = XSEG_OP_CLOSE, .key.volume = id};
	ck_assert_int_eq(client_do(&client, &request), 0);
	ck_assert_int_eq(client_do(&other, &request), 0);
}

static void clone_of(uint64_t from, uint64_t id)
{
	static uint8_t out[8192];
	struct map_ask ask = {.id = id, .created_ns = 1};
	snprintf(ask.name, sizeof(ask.name), "c%llx", (unsigned long long)id);
	struct client_request request = {.op = XSEG_OP_CONTROL,
		.key.volume = from,
		.arg0 = MAP_CLONE,
		.send = &ask,
		.send_size = sizeof(ask),
		.receive = out,
		.receive_size = sizeof(out)};
	ck_assert_int_eq(client_do(&client, &request), 0);
	open_volume(id);
}

/* A volume full of 1, and one clone of it, opened. */
static void begin(void)
{
	struct xseg_volume_info info;
	rig_open(&rig, 112u << 20);
	rig_start(&rig, 0, 1,
		"mem0=blocker_memory log0=blocker_record,log=@/log,data=none,edge.store=mem0");
	rig_start(&rig, 1, 1, "map0=mapperd,edge.store=mem0");
	rig_start(&rig, 2, 2, "vol0=volume,edge.store=log0,edge.map=map0");
	rig_client(&rig, &client, "vol0");
	rig_client(&rig, &other, "vol0");
	ck_assert_int_eq(rig_volume_create(&client, "base", SIZE, OBJECT, &info), 0);
	base = info.id;
	open_volume(base);
	for (uint32_t at = 0; at < SIZE; at += OBJECT)
		put(base, at, OBJECT, 1);
	clone_of(base, ID);
}

static void end(void)
{
	client_close(&client);
	client_close(&other);
	rig_close(&rig);
}

/* --- what it costs ------------------------------------------------------------------------ */

UNIT(first_write_of_a_cluster_is_one_write)
{
	off_t at = 0;
	begin();
	count_since(&at, ID, XSEG_OP_WRITE);
	put(ID, 5 * MAP_CLUSTER, MAP_CLUSTER, 2);
	ck_assert_uint_eq(count_since(&at, ID, XSEG_OP_WRITE), 1);
	expect(ID, 0, 5 * MAP_CLUSTER, 1);
	expect(ID, 5 * MAP_CLUSTER, MAP_CLUSTER, 2);
	expect(ID, 6 * MAP_CLUSTER, OBJECT - 6 * MAP_CLUSTER, 1);
	expect(base, 0, OBJECT, 1);
	/* of a sector: its cluster is completed first, once */
	put(ID, 7 * MAP_CLUSTER + 512, 512, 3);
	ck_assert_uint_eq(count_since(&at, ID, XSEG_OP_WRITE), 2);
	put(ID, 7 * MAP_CLUSTER + 1536, 512, 4);
	ck_assert_uint_eq(count_since(&at, ID, XSEG_OP_WRITE), 1);
	expect(ID, 7 * MAP_CLUSTER, 512, 1);
	expect(ID, 7 * MAP_CLUSTER + 512, 512, 3);
	expect(ID, 7 * MAP_CLUSTER + 1024, 512, 1);
	expect(ID, 7 * MAP_CLUSTER + 1536, 512, 4);
	expect(ID, 7 * MAP_CLUSTER + 2048, 2048, 1);
	/* of one and a half at each end: two are completed */
	put(ID, 9 * MAP_CLUSTER + 2048, 2 * MAP_CLUSTER, 5);
	ck_assert_uint_eq(count_since(&at, ID, XSEG_OP_WRITE), 3);
	expect(ID, 9 * MAP_CLUSTER, 2048, 1);
	expect(ID, 9 * MAP_CLUSTER + 2048, 2 * MAP_CLUSTER, 5);
	expect(ID, 11 * MAP_CLUSTER + 2048, 2048, 1);
	end();
}

UNIT(an_object_becomes_whole)
{
	off_t at = 0;
	begin();
	for (unsigned i = 0; i < CLUSTERS; i++)
		put(ID, OBJECT + i * MAP_CLUSTER, MAP_CLUSTER, (uint8_t)(10 + i));
	count_since(&at, ID, XSEG_OP_WRITE);
	put(ID, OBJECT + 512, 1024, 9);
	ck_assert_uint_eq(count_since(&at, ID, XSEG_OP_WRITE), 1);
	expect(ID, OBJECT, 512, 10);
	expect(ID, OBJECT + 512, 1024, 9);
	for (unsigned i = 1; i < CLUSTERS; i++)
		expect(ID, OBJECT + i * MAP_CLUSTER, MAP_CLUSTER, (uint8_t)(10 + i));
	end();
}

/* --- chains ------------------------------------------------------------------------------- */

UNIT(a_chain_of_64)
{
	begin();
	/* each has a cluster of its own; one is forgotten by all but the first */
	for (unsigned i = 1; i <= 64; i++) {
		put(ID + i - 1, (i % CLUSTERS) * MAP_CLUSTER, MAP_CLUSTER, (uint8_t)(i + 1));
		clone_of(ID + i - 1, ID + i);
		close_volume(ID + i - 1);
	}
	/* what the composer remembers is no more than what the mapper knows */
	for (unsigned round = 0; round < 2; round++) {
		for (unsigned g = 0; g < CLUSTERS; g++)
			expect(ID + 64, g * MAP_CLUSTER, MAP_CLUSTER,
				(uint8_t)(1 + (g ? 48 + g : 64)));
		rig_stop(&rig, 2);
		rig_start_again(&rig, 2);
	}
	put(ID + 64, 3 * MAP_CLUSTER + 1024, 512, 200);
	expect(ID + 64, 3 * MAP_CLUSTER, 1024, 52);
	expect(ID + 64, 3 * MAP_CLUSTER + 1024, 512, 200);
	expect(ID + 64, 3 * MAP_CLUSTER + 1536, 2560, 52);
	end();
}

/* --- side by side ------------------------------------------------------------------------- */

static void start_write(struct client *by, struct client_request *request, uint64_t offset,
	uint8_t *data, uint8_t value)
{
	memset(data, value, 512);
	*request = (struct client_request){.op = XSEG_OP_WRITE,
		.key.volume = ID,
		.offset = offset,
		.length = 512,
		.send = data,
		.send_size = 512};
	ck_assert_int_eq(client_start(by, request), 0);
}

static void finish(struct client *by)
{
	struct client_request *request;
	ck_assert_int_eq(client_collect(by, &request), 0);
	ck_assert_int_eq(request->result, 0);
}

UNIT(writers_of_one_cluster)
{
	static uint8_t data[8][512];
	struct client_request request[8];
	begin();
	for (uint64_t g = 0; g < SIZE / MAP_CLUSTER; g++) {
		for (unsigned i = 0; i < 8; i++)
			start_write(i % 2 ? &client : &other, &request[i],
				g * MAP_CLUSTER + i * 512, data[i], (uint8_t)(g + 2 + i));
		for (unsigned i = 0; i < 8; i++)
			finish(i % 2 ? &client : &other);
		for (unsigned i = 0; i < 8; i++)
			expect(ID, g * MAP_CLUSTER + i * 512, 512, (uint8_t)(g + 2 + i));
	}
	expect(base, 0, SIZE, 1);
	end();
}

UNIT(a_reader_beside_a_writer)
{
	static uint8_t data[512], seen[MAP_CLUSTER];
	struct client_request write;
	begin();
	for (uint64_t g = 0; g < SIZE / MAP_CLUSTER; g++) {
		start_write(&client, &write, g * MAP_CLUSTER + 1024, data, 7);
		for (unsigned round = 0; round < 3; round++) {
			ck_assert_int_eq(do_io(&other, XSEG_OP_READ, ID, g * MAP_CLUSTER, seen,
						 sizeof(seen)),
				0);
			for (unsigned i = 0; i < sizeof(seen); i++) {
				bool inside = i >= 1024 && i < 1536;
				if (seen[i] != 1 && !(inside && seen[i] == 7))
					ck_abort_msg("byte %u is %u", i, seen[i]);
			}
		}
		finish(&client);
		expect(ID, g * MAP_CLUSTER, 1024, 1);
		expect(ID, g * MAP_CLUSTER + 1024, 512, 7);
	}
	end();
}

/* --- nothing ------------------------------------------------------------------------------ */

UNIT(what_is_discarded_reads_as_zeros)
{
	begin();
	put(ID, OBJECT + 4096, 4096, 2);   /* partial */
	for (unsigned i = 0; i < 2; i++) { /* shared; partial */
		ck_assert_int_eq(do_io(&client, XSEG_OP_DISCARD, ID, i * OBJECT, NULL, OBJECT), 0);
		expect(ID, i * OBJECT, OBJECT, 0);
		put(ID, i * OBJECT + 8192 + 512, 512, 3);
		expect(ID, i * OBJECT, 8192 + 512, 0);
		expect(ID, i * OBJECT + 8192 + 512, 512, 3);
		expect(ID, i * OBJECT + 8192 + 1024, OBJECT - 8192 - 1024, 0);
	}
	/* pieces that are no whole clusters */
	ck_assert_int_eq(do_io(&client, XSEG_OP_DISCARD, ID, 2 * OBJECT + 512, NULL, 8192), 0);
	expect(ID, 2 * OBJECT, 512, 1);
	expect(ID, 2 * OBJECT + 512, 8192, 0);
	expect(ID, 2 * OBJECT + 512 + 8192, OBJECT - 512 - 8192, 1);
	/* over the border of two */
	ck_assert_int_eq(do_io(&client, XSEG_OP_ZERO, ID, 4 * OBJECT - 1024, NULL, 2048), 0);
	expect(ID, 3 * OBJECT, OBJECT - 1024, 1);
	expect(ID, 4 * OBJECT - 1024, 2048, 0);
	expect(ID, 4 * OBJECT + 1024, OBJECT - 1024, 1);
	expect(base, 0, SIZE, 1);
	end();
}

/* --- what is there ------------------------------------------------------------------------ */

/* The stretches of [offset, offset + length): their ends in bytes, negative where it reads as
   zeros. */
static unsigned status(uint64_t id, uint64_t offset, uint32_t length, int64_t ends[64])
{
	static struct xseg_status_extent extents[256];
	uint64_t at = offset;
	unsigned count = 0;
	while (at < offset + length) {
		struct client_request request = {.op = XSEG_OP_STATUS,
			.key.volume = id,
			.offset = at,
			.length = (uint32_t)(offset + length - at),
			.receive = extents,
			.receive_size = sizeof(extents)};
		ck_assert_int_eq(client_do(&client, &request), 0);
		ck_assert_uint_gt(request.value, 0);
		for (unsigned i = 0; i < request.value; i++) {
			at += extents[i].length;
			int64_t end =
				extents[i].flags & XSEG_STATUS_ZERO ? -(int64_t)at : (int64_t)at;
			/* a short answer may end in the middle of one */
			if (count > 0 && (ends[count - 1] < 0) == (end < 0))
				count--;
			ck_assert_uint_lt(count, 64);
			ends[count++] = end;
		}
	}
	ck_assert_uint_eq(at, offset + length);
	return count;
}

UNIT(status_follows_the_chain)
{
	int64_t ends[64];
	begin();
	put(ID, 4096, 4096, 2); /* partial, over a parent with data */
	ck_assert_uint_eq(status(ID, 0, SIZE, ends), 1);
	ck_assert_int_eq(ends[0], SIZE);
	ck_assert_int_eq(do_io(&client, XSEG_OP_DISCARD, ID, 2 * OBJECT, NULL, OBJECT), 0);
	ck_assert_int_eq(do_io(&client, XSEG_OP_DISCARD, ID, 4 * OBJECT + 8192, NULL, 8192), 0);
	ck_assert_uint_eq(status(ID, 0, SIZE, ends), 5);
	ck_assert_int_eq(ends[0], 2 * OBJECT);
	ck_assert_int_eq(ends[1], -(int64_t)(3 * OBJECT));
	ck_assert_int_eq(ends[2], 4 * OBJECT + 8192);
	ck_assert_int_eq(ends[3], -(int64_t)(4 * OBJECT + 16384));
	ck_assert_int_eq(ends[4], SIZE);
	/* of one object, and of one that has lost it again */
	ck_assert_uint_eq(status(ID, 4 * OBJECT, OBJECT, ends), 3);
	put(ID, 2 * OBJECT + 512, 512, 3);
	ck_assert_uint_eq(status(ID, 2 * OBJECT + 512, 512, ends), 1);
	ck_assert_int_gt(ends[0], 0);
	/* a composer that knows nothing yet, of a clone whose parent is partial */
	clone_of(ID, ID + 1);
	rig_kill(&rig, 2);
	rig_start_again(&rig, 2);
	ck_assert_uint_eq(status(ID + 1, 3 * OBJECT, 3 * OBJECT, ends), 3);
	ck_assert_int_eq(ends[1], -(int64_t)(4 * OBJECT + 16384));
	end();
}

/* Whoever has a run is asked for it; of what nobody has asked about nothing is known. */
UNIT(prefetch_goes_to_who_has_it)
{
	static uint8_t data[OBJECT];
	begin();
	put(ID, 4096, 4096, 2);
	ck_assert_int_eq(do_io(&client, XSEG_OP_PREFETCH, ID, 512, NULL, OBJECT - 512), 0);
	ck_assert_int_eq(do_io(&client, XSEG_OP_PREFETCH, ID, 0, NULL, 3 * OBJECT), 0);
	rig_kill(&rig, 2);
	rig_start_again(&rig, 2);
	ck_assert_int_eq(do_io(&client, XSEG_OP_PREFETCH, ID, 0, NULL, OBJECT), 0);
	ck_assert_int_eq(do_io(&client, XSEG_OP_READ, ID, 0, data, OBJECT), 0);
	ck_assert_uint_eq(data[4095], 1);
	ck_assert_uint_eq(data[4096], 2);
	end();
}

/* Nobody flushes: what is recorded is published all the same, before it is too much. */
UNIT(too_many_notes_are_published)
{
	struct xseg_volume_info info;
	static uint8_t data[XSEG_OBJECT_MAX];
	off_t at = 0;
	begin();
	ck_assert_int_eq(rig_volume_create(&client, "small", 40u << 20, 4096, &info), 0);
	open_volume(info.id);
	memset(data, 5, sizeof(data));
	for (uint64_t offset = 0; offset < 40u << 20; offset += sizeof(data))
		ck_assert_int_eq(
			do_io(&client, XSEG_OP_WRITE, info.id, offset, data, sizeof(data)), 0);
	unsigned flushes = 0;
	for (unsigned i = 0; i < 1200 && flushes == 0; i++) {
		usleep(50000);
		flushes = count_since(&at, info.id, XSEG_OP_FLUSH);
	}
	ck_assert_uint_gt(flushes, 0);
	for (uint64_t offset = 0; offset < 40u << 20; offset += sizeof(data))
		expect(info.id, offset, sizeof(data), 5);
	end();
}

/* What is kept looks to people like something that is still to be saved. */
UNIT(nothing_is_kept_when_all_is_closed)
{
	uint32_t cursor = 0;
	begin();
	put(ID, 512, 512, 2);
	ck_assert_uint_ne(xseg_page_next_kept(&rig.seg, XSEG_NONE, &cursor), XSEG_NONE);
	close_volume(ID);
	close_volume(base);
	bool kept = true;
	for (unsigned i = 0; i < 3000 && kept; i++) {
		cursor = 0;
		kept = xseg_page_next_kept(&rig.seg, XSEG_NONE, &cursor) != XSEG_NONE;
		usleep(kept ? 20000 : 0);
	}
	ck_assert(!kept);
	open_volume(ID);
	expect(ID, 512, 512, 2);
	end();
}
