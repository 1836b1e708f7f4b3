/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Holds: what is on its way is waited for, what comes meanwhile waits, and nothing is left behind.
 * A store in the middle keeps what it gets until it is published to go on.
 */
#include <base/clock.h>
#include <errno.h>
#include <peer/map.h>
#include <string.h>
#include <xseg/registry.h>
#include <xseg/stats.h>

#include "tests/lib/unit.h"
#include "tests/property/volume_rig.h"

#define VOL 2 /* the composer's host */
#define OBJECT 65536u
#define LANES 2
#define PROBES 1024

/* However long it takes: the test itself has a limit. */
#define wait_for(true_at_last) \
	do { \
		usleep(1000); \
	} while (!(true_at_last))

static struct rig rig;
static struct client a, b;
static struct xseg_volume_info info;

static void setup(void)
{
	rig_open(&rig, 128u << 20);
	rig_start(&rig, 0, LANES,
		"mem0=blocker_memory med0=blocker_meddle,edge.store=mem0,rules=@/rules");
	rig_start(&rig, 1, LANES, "map0=mapperd,edge.store=mem0");
	rig_start(&rig, VOL, LANES, "vol0=volume,edge.store=med0,edge.map=map0");
	rig_client(&rig, &a, "vol0");
	rig_client(&rig, &b, "vol0");
}

static void teardown(void)
{
	client_close(&a);
	client_close(&b);
	rig_close(&rig);
}

/* What the lanes of a peer that live have counted. */
static uint64_t counted(const char *peer, const char *name)
{
	struct xseg_peer_view view;
	uint64_t sum = 0;
	for (unsigned i = 0; i < XSEG_STATS_BLOCKS; i++) {
		const struct xseg_stats_block *block = &rig.seg.stats[i];
		uint64_t word = atomic_load(&block->word);
		if (xseg_life_of(word) != XSEG_LIFE_ALIVE ||
			!xseg_peer_view(&rig.seg, xseg_owner_of(word), &view) ||
			strcmp(view.name, peer) != 0)
			continue;
		for (unsigned k = 0; k < block->counter_count; k++)
			if (strcmp(block->names[k].name, name) == 0)
				sum += atomic_load(&block->counters[k]);
	}
	return sum;
}

static void rules_are(const char *name, const char *text)
{
	char path[256], next[256];
	snprintf(path, sizeof(path), "%s/%s", rig.dir, name);
	snprintf(next, sizeof(next), "%s/rules.next", rig.dir);
	FILE *file = fopen(next, "w");
	ck_assert_ptr_nonnull(file);
	fputs(text, file);
	fclose(file);
	ck_assert_int_eq(rename(next, path), 0);
}

/* What the store in the middle does from now on: both of its lanes have taken it. */
static void rules(const char *text)
{
	uint64_t before = counted("med0", "rules");
	rules_are("rules", text);
	wait_for(counted("med0", "rules") >= before + LANES);
}

/* Does the mapper know of it? */
static bool is_there(const char *name)
{
	struct client map;
	rig_client(&rig, &map, "map0");
	int rc = rig_volume_named(&map, XSEG_OP_INFO, 0, name, &info);
	client_close(&map);
	ck_assert(rc == 0 || rc == -ENOENT);
	return rc == 0;
}

struct write {
	struct client_request request;
	uint8_t data[4096];
};

static void write_start(struct write *write, uint64_t id, uint64_t offset, uint8_t byte)
{
	memset(write->data, byte, sizeof(write->data));
	write->request = (struct client_request){.op = XSEG_OP_WRITE,
		.key.volume = id,
		.offset = offset,
		.length = sizeof(write->data),
		.send = write->data,
		.send_size = sizeof(write->data)};
	ck_assert_int_eq(client_start(&a, &write->request), 0);
}

static void collect(unsigned count, int error)
{
	struct client_request *request;
	while (count-- > 0) {
		ck_assert_int_eq(client_collect(&a, &request), 0);
		ck_assert_int_eq(request->result, error);
	}
}

static uint8_t byte_at(uint64_t id, uint64_t offset)
{
	uint8_t sector[512];
	struct client_request request = {.op = XSEG_OP_READ,
		.key.volume = id,
		.offset = offset,
		.length = sizeof(sector),
		.receive = sector,
		.receive_size = sizeof(sector)};
	ck_assert_int_eq(client_do(&b, &request), 0);
	return sector[0];
}

static struct client_request snap_request(uint64_t id, struct map_ask *ask, uint8_t out[4096])
{
	return (struct client_request){.op = XSEG_OP_CONTROL,
		.key.volume = id,
		.arg0 = MAP_SNAP,
		.send = ask,
		.send_size = sizeof(*ask),
		.receive = out,
		.receive_size = 4096};
}

static uint64_t make(void)
{
	ck_assert_int_eq(rig_volume_create(&a, "disk", 16 * OBJECT, OBJECT, &info), 0);
	ck_assert_int_eq(rig_volume_named(&a, XSEG_OP_OPEN, 0, "disk", &info), 0);
	return info.id;
}

/* Writes keep coming, many at a time, while snapshots are made: all of them are answered, and each
   snapshot has all that was answered before it was asked for. */
UNIT_WITHIN(test_many, setup, teardown)
{
	static struct write writes[32];
	uint64_t id = make();
	for (unsigned round = 0; round < 40; round++) {
		struct map_ask ask = {0};
		uint8_t out[4096];
		struct client_request request = snap_request(id, &ask, out);
		snprintf(ask.name, sizeof(ask.name), "disk@%u", round);
		for (unsigned i = 0; i < 16; i++)
			write_start(&writes[i], id, i * OBJECT, (uint8_t)(2 * round + 1));
		collect(16, 0);
		for (unsigned i = 0; i < 16; i++)
			write_start(
				&writes[16 + i], id, i * OBJECT + 8192, (uint8_t)(2 * round + 2));
		ck_assert_int_eq(client_do(&b, &request), 0);
		for (unsigned i = 0; i < 16; i++)
			write_start(&writes[i], id, i * OBJECT + 4096, 255);
		collect(32, 0);
		ck_assert_int_eq(
			rig_volume_named(&b, XSEG_OP_OPEN, XSEG_F_READ_ONLY, ask.name, &info), 0);
		for (unsigned i = 0; i < 16; i++) {
			ck_assert_uint_eq(byte_at(info.id, i * OBJECT), 2 * round + 1);
			ck_assert_uint_eq(byte_at(info.id, i * OBJECT + 4096), round ? 255 : 0);
			ck_assert_uint_eq(byte_at(id, i * OBJECT + 8192), 2 * round + 2);
		}
	}
}

/* Writes elsewhere until one is kept back: how many. The others wait at the store. */
static unsigned write_until_held(uint64_t id)
{
	static struct write probes[PROBES];
	uint64_t away = counted("med0", "waited");
	unsigned count = 0;
	for (; counted("vol0", "held") == 0; usleep(20000)) {
		ck_assert_uint_lt(count, PROBES);
		write_start(&probes[count++], id, OBJECT / 2, 1);
		wait_for(counted("med0", "waited") + counted("vol0", "held") == away + count);
	}
	return count;
}

/* The store does not answer: the snapshot waits for the write that it has, later writes wait for
   the snapshot, reads of what is elsewhere do not; then all go on. */
UNIT_WITHIN(test_stuck, setup, teardown)
{
	struct write first, second;
	struct map_ask ask = {.name = "disk@1"};
	uint8_t out[4096];
	uint64_t id = make();
	struct client_request request = snap_request(id, &ask, out);
	write_start(&first, id, 0, 1);
	collect(1, 0);
	rules("away ops=write");
	write_start(&first, id, 0, 2);
	wait_for(counted("med0", "waited") == 1);
	ck_assert_int_eq(client_start(&b, &request), 0);
	unsigned probes = write_until_held(id);
	write_start(&second, id, 0, 3);
	wait_for(counted("vol0", "held") == 2);
	ck_assert(!is_there("disk@1"));
	rules("");
	collect(2 + probes, 0);
	struct client_request *done;
	ck_assert_int_eq(client_collect(&b, &done), 0);
	ck_assert_int_eq(done->result, 0);
	ck_assert_uint_eq(byte_at(id, 0), 3);
	ck_assert_int_eq(rig_volume_named(&b, XSEG_OP_OPEN, XSEG_F_READ_ONLY, "disk@1", &info), 0);
	ck_assert_uint_eq(byte_at(info.id, 0), 2);
}

/* Several want to hold it at once: one after the other, and none is refused for that. */
UNIT_WITHIN(test_crowd, setup, teardown)
{
	static struct map_ask asks[8];
	static uint8_t outs[8][4096];
	static struct client_request requests[8];
	static struct write writes[8];
	struct client_request *done;
	uint64_t id = make();
	for (unsigned i = 0; i < 8; i++) {
		snprintf(asks[i].name, sizeof(asks[i].name), "disk@%u", i);
		requests[i] = snap_request(id, &asks[i], outs[i]);
		ck_assert_int_eq(client_start(&b, &requests[i]), 0);
		write_start(&writes[i], id, i * OBJECT, (uint8_t)(i + 1));
	}
	for (unsigned i = 0; i < 8; i++) {
		ck_assert_int_eq(client_collect(&b, &done), 0);
		ck_assert_int_eq(done->result, 0);
	}
	collect(8, 0);
	for (unsigned i = 0; i < 8; i++)
		ck_assert_uint_eq(byte_at(id, i * OBJECT), i + 1);
}

/* A store that does not let us write: the volume is nobody's, and ours as soon as it does. */
UNIT_WITHIN(test_not_let_in, setup, teardown)
{
	struct write write;
	ck_assert_int_eq(rig_volume_create(&a, "v", 4 * OBJECT, 0, &info), 0);
	uint64_t id = info.id;
	rules("ops=control fail=ETIMEDOUT");
	write_start(&write, id, 0, 1);
	collect(1, -EIO);
	ck_assert_uint_eq(rig_home(&b, id).owner, 0);
	ck_assert_uint_gt(rig_home(&b, id).term, 0);
	rules("");
	write_start(&write, id, 0, 2);
	collect(1, 0);
	ck_assert_uint_eq(rig_home(&b, id).owner, rig_home(&b, id).self);
	ck_assert_uint_eq(byte_at(id, 0), 2);
}

static struct client_request keep_request(uint64_t id)
{
	return (struct client_request){
		.op = XSEG_OP_CONTROL, .key.volume = id, .arg0 = MAP_KEEP, .arg1 = 60000000000u};
}

static int keep(uint64_t id)
{
	struct client_request request = keep_request(id);
	return client_do(&b, &request);
}

/* What is being given back at this moment is acquired anew. */
UNIT_WITHIN(test_kept_late, setup, teardown)
{
	struct client_request *done;
	ck_assert_int_eq(rig_volume_create(&a, "v", 4 * OBJECT, 0, &info), 0);
	uint64_t id = info.id;
	struct client_request request = keep_request(id);
	ck_assert_int_eq(rig_volume(&a, XSEG_OP_OPEN, 0, id, &info), 0);
	rules("away ops=control");
	ck_assert_int_eq(rig_volume(&a, XSEG_OP_CLOSE, 0, id, &info), 0);
	wait_for(counted("med0", "waited") == 1); /* LEAVE */
	ck_assert_uint_eq(rig_home(&b, id).owner, 0);
	ck_assert_int_eq(client_start(&b, &request), 0);
	usleep(20000);
	rules("");
	ck_assert_int_eq(client_collect(&b, &done), 0);
	ck_assert_int_eq(done->result, 0);
	ck_assert_uint_eq(rig_home(&a, id).owner, rig_home(&a, id).self);
}

/* For whom it is kept he hears when its record says that it is ours; requests wait for its store.
   If that does not agree it is as if it had not been kept. */
UNIT_WITHIN(test_kept_early, setup, teardown)
{
	struct write write;
	ck_assert_int_eq(rig_volume_create(&a, "v", 4 * OBJECT, 0, &info), 0);
	uint64_t id = info.id;
	rules("away");
	ck_assert_int_eq(keep(id), 0);
	ck_assert_uint_eq(rig_home(&b, id).owner, rig_home(&b, id).self);
	wait_for(counted("med0", "waited") == 1); /* FENCE */
	write_start(&write, id, 0, 1);
	usleep(20000);
	ck_assert_uint_eq(counted("med0", "waited"), 1);
	rules("");
	collect(1, 0);
	ck_assert_uint_eq(byte_at(id, 0), 1);
	ck_assert_int_eq(rig_volume_create(&a, "w", 4 * OBJECT, 0, &info), 0);
	id = info.id;
	rules("ops=control fail=ETIMEDOUT");
	ck_assert_int_eq(keep(id), 0);
	wait_for(rig_home(&b, id).owner == 0);
	rules("");
	write_start(&write, id, 0, 2);
	collect(1, 0);
	ck_assert_uint_eq(byte_at(id, 0), 2);
}

/* A mapper that knows of no claims is asked for all at once, and the store is told then. */
UNIT_WITHIN(test_older_mapper, setup, teardown)
{
	struct client c;
	char none[64];
	ck_assert_int_eq(rig_volume_create(&a, "v", 4 * OBJECT, 0, &info), 0);
	snprintf(none, sizeof(none), "ops=control what=%d fail=EOPNOTSUPP", MAP_CLAIM);
	rules_are("map.rules", none);
	rules("ops=control delay=1000");
	rig_start(&rig, 3, 1,
		"vol1=volume,edge.store=med0,edge.map=med1 "
		"med1=blocker_meddle,edge.store=map0,rules=@/map.rules");
	rig_client(&rig, &c, "vol1");
	uint64_t told = counted("med0", "waited");
	ck_assert_int_eq(rig_volume(&c, XSEG_OP_OPEN, 0, info.id, &info), 0);
	ck_assert_uint_eq(counted("med1", "failed"), 1);
	ck_assert_uint_eq(counted("med0", "waited") - told, 1);
	ck_assert_uint_eq(rig_home(&b, info.id).owner, rig_home(&b, info.id).self);
	client_close(&c);
}

/* Killed while it is quiesced: the successor knows of no quiesce, and all that waited is done. */
UNIT_WITHIN(test_killed, setup, teardown)
{
	static struct write writes[8];
	for (unsigned round = 0; round < 6; round++) {
		struct map_ask ask = {0};
		uint8_t out[4096];
		struct client_request *done;
		if (round == 0)
			make();
		uint64_t id = info.id;
		struct client_request request = snap_request(id, &ask, out);
		snprintf(ask.name, sizeof(ask.name), "disk@%u", round);
		rules("away ops=write");
		for (unsigned i = 0; i < 4; i++)
			write_start(&writes[i], id, i * OBJECT, (uint8_t)(round + 1));
		usleep(2000);
		ck_assert_int_eq(client_start(&b, &request), 0);
		usleep(2000 * round);
		for (unsigned i = 4; i < 8; i++)
			write_start(&writes[i], id, i * OBJECT, (uint8_t)(round + 1));
		usleep(2000);
		rig_kill(&rig, VOL);
		rules("");
		rig_start_again(&rig, VOL);
		collect(8, 0);
		ck_assert_int_eq(client_collect(&b, &done), 0);
		ck_assert_int_eq(done->result, 0);
		for (unsigned i = 0; i < 8; i++)
			ck_assert_uint_eq(byte_at(id, i * OBJECT), round + 1);
	}
}
