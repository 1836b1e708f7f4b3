/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A tree of volumes, snapshots and clones against flat copies: random requests of two clients,
 * many in flight, while snapshots and clones are taken under them and the composer, the mapper and
 * a cache below the composer are killed again and again. Then the host dies: all processes, and the
 * segment with what was noted in it. A volume must read then as at its last flush, but for what was
 * written since.
 *
 * A sector says in which volume it was written, where, and which write it was, so that what is read
 * can be told from all that ever was.
 */
#include <base/hash.h>
#include <errno.h>
#include <peer/map.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "tests/property/volume_rig.h"

#define CLIENTS 2u
#define DEPTH 8u
#define SLOTS (CLIENTS * DEPTH)
#define VOLUMES 12u
#define EXTENTS (XSEG_PAGE / sizeof(struct xseg_status_extent))
#define LENGTH_MAX 192u /* sectors */

struct pipeline {
	const char *name;
	unsigned lanes;
	uint32_t sectors, object_size;
	unsigned ops, kills;
	const char *store;
	bool dies;	   /* the store is in files: the host may die */
	const char *cache; /* between composer and store, past which the mapper goes; or NULL */
};

/* Whoever asks another stands behind it. */
enum { STORE, CACHE, MAPPER, COMPOSER, HOSTS };

struct volume {
	uint64_t id;
	bool snapshot;
	unsigned from;
	/* of each sector what it says of itself, 0: zeros */
	uint64_t *now, *flushed;
	bool *zeroed; /* since it was flushed */
};

struct slot {
	struct client_request request;
	unsigned client, volume;
	bool busy, changes;
	uint64_t *old; /* what was there before */
	uint8_t *buffer;
};

struct tree {
	const struct pipeline *pipeline;
	struct rig rig;
	struct client client[CLIENTS];
	struct slot slot[SLOTS];
	struct volume volume[VOLUMES];
	unsigned count, done, wrong, kills;
	uint64_t seed, first_seed, writes;
};

static uint64_t draw(struct tree *tree, uint64_t below) { return random_next(&tree->seed) % below; }

static void complain(struct tree *tree, unsigned volume, uint64_t sector, const char *what)
{
	if (tree->wrong++ < 5)
		fprintf(stderr, "%s, seed %llu, op %u: volume %u, sector %llu: %s\n",
			tree->pipeline->name, (unsigned long long)tree->first_seed, tree->done,
			volume, (unsigned long long)sector, what);
}

/* --- sectors ------------------------------------------------------------------------------ */

static uint64_t stamp_of(struct tree *tree, unsigned volume)
{
	return ++tree->writes << 8 | volume;
}

static void sector_fill(uint64_t words[XSEG_SECTOR / 8], uint64_t stamp, uint64_t sector)
{
	uint64_t word = hash_u64(stamp) + sector;
	words[0] = stamp;
	words[1] = sector;
	for (unsigned i = 2; i < XSEG_SECTOR / 8; i++)
		words[i] = stamp ? (word += 0xd6e8feb86659fd93ull) : 0;
	if (stamp == 0)
		words[1] = 0;
}

/* What it says of itself; UINT64_MAX: nothing that was ever written there. */
static uint64_t sector_stamp(const void *bytes, uint64_t sector)
{
	uint64_t words[XSEG_SECTOR / 8], wanted[XSEG_SECTOR / 8];
	memcpy(words, bytes, sizeof(words));
	sector_fill(wanted, words[0], sector);
	return memcmp(words, wanted, sizeof(words)) == 0 ? words[0] : UINT64_MAX;
}

/* --- answers ------------------------------------------------------------------------------ */

static void check_read(struct tree *tree, const struct slot *slot)
{
	const struct volume *volume = &tree->volume[slot->volume];
	uint64_t first = slot->request.offset / XSEG_SECTOR;
	uint32_t count = slot->request.length / XSEG_SECTOR;
	for (uint32_t i = 0; i < count; i++) {
		uint64_t found = sector_stamp(slot->buffer + i * XSEG_SECTOR, first + i);
		if (found == volume->now[first + i])
			continue;
		char what[128];
		snprintf(what, sizeof(what), "reads as %llx instead of %llx",
			(unsigned long long)found, (unsigned long long)volume->now[first + i]);
		complain(tree, slot->volume, first + i, what);
		return;
	}
}

static void check_status(struct tree *tree, const struct slot *slot)
{
	const struct volume *volume = &tree->volume[slot->volume];
	const struct xseg_status_extent *extents = (const void *)slot->buffer;
	uint64_t at = slot->request.offset / XSEG_SECTOR;
	uint64_t end = at + slot->request.length / XSEG_SECTOR;
	if (slot->request.value == 0 || slot->request.value > EXTENTS)
		complain(tree, slot->volume, at, "a strange number of extents");
	for (uint64_t i = 0; i < slot->request.value && i < EXTENTS; i++) {
		uint64_t next = at + extents[i].length / XSEG_SECTOR;
		if (next == at || next > end) {
			complain(tree, slot->volume, at, "an extent of a strange length");
			return;
		}
		for (; at < next; at++)
			if ((extents[i].flags & XSEG_STATUS_ZERO) && volume->now[at] != 0) {
				complain(tree, slot->volume, at, "data where it says zero");
				return;
			}
	}
}

static void check(struct tree *tree, const struct slot *slot)
{
	const struct client_request *request = &slot->request;
	struct volume *volume = &tree->volume[slot->volume];
	if (request->result != 0) {
		char what[128];
		snprintf(what, sizeof(what), "%s fails: %s", xseg_op_name(request->op),
			strerror(-request->result));
		complain(tree, slot->volume, request->offset / XSEG_SECTOR, what);
	} else if (request->op == XSEG_OP_READ) {
		check_read(tree, slot);
	} else if (request->op == XSEG_OP_STATUS) {
		check_status(tree, slot);
	} else if (slot->changes && (request->flags & XSEG_F_FUA)) {
		uint64_t first = request->offset / XSEG_SECTOR;
		for (uint32_t i = 0; i < request->length / XSEG_SECTOR; i++) {
			volume->flushed[first + i] = volume->now[first + i];
			volume->zeroed[first + i] = false;
		}
	}
}

static void collect(struct tree *tree, unsigned client)
{
	struct client_request *request;
	int rc = client_collect(&tree->client[client], &request);
	if (rc != 0)
		fprintf(stderr, "%s: collect: %s\n", tree->pipeline->name, strerror(-rc));
	must(rc == 0);
	struct slot *slot = request->context;
	check(tree, slot);
	slot->busy = false;
	tree->done++;
}

static void collect_all(struct tree *tree)
{
	for (unsigned i = 0; i < SLOTS; i++)
		while (tree->slot[i].busy)
			collect(tree, tree->slot[i].client);
}

/* --- requests ----------------------------------------------------------------------------- */

static bool conflicts(const struct slot *a, const struct slot *b)
{
	const struct client_request *x = &a->request, *y = &b->request;
	if (!b->busy || a->volume != b->volume || (!a->changes && !b->changes))
		return false;
	return x->offset < y->offset + y->length && y->offset < x->offset + x->length;
}

static void draw_place(struct tree *tree, struct client_request *request)
{
	static const uint32_t limits[] = {1, 1, 8, 8, 16, LENGTH_MAX};
	uint32_t sectors = tree->pipeline->sectors;
	uint32_t per_object = tree->pipeline->object_size / XSEG_SECTOR;
	uint64_t first = draw(tree, sectors);
	uint32_t count = 1 + (uint32_t)draw(tree, limits[draw(tree, countof(limits))]);
	switch (draw(tree, 4)) {
	case 0: /* whole clusters */
		first &= ~7ull;
		count = (count + 7) & ~7u;
		break;
	case 1: /* a whole object */
		first -= first % per_object;
		count = per_object < LENGTH_MAX ? per_object : LENGTH_MAX;
		break;
	default: break;
	}
	if (count > sectors - first)
		count = (uint32_t)(sectors - first);
	request->offset = first * XSEG_SECTOR;
	request->length = count * XSEG_SECTOR;
}

static void prepare(struct tree *tree, struct slot *slot)
{
	static const enum xseg_op ops[] = {XSEG_OP_READ, XSEG_OP_READ, XSEG_OP_READ, XSEG_OP_READ,
		XSEG_OP_WRITE, XSEG_OP_WRITE, XSEG_OP_WRITE, XSEG_OP_WRITE, XSEG_OP_WRITE,
		XSEG_OP_ZERO, XSEG_OP_DISCARD, XSEG_OP_STATUS, XSEG_OP_PREFETCH};
	struct client_request *request = &slot->request;
	slot->volume = (unsigned)draw(tree, tree->count);
	*request = (struct client_request){.op = ops[draw(tree, countof(ops))],
		.key.volume = tree->volume[slot->volume].id,
		.context = slot};
	draw_place(tree, request);
	slot->changes = request->op == XSEG_OP_WRITE || request->op == XSEG_OP_ZERO ||
			request->op == XSEG_OP_DISCARD;
	if (slot->changes && tree->volume[slot->volume].snapshot) {
		request->op = XSEG_OP_READ;
		slot->changes = false;
	}
	if (request->op == XSEG_OP_ZERO && draw(tree, 2) == 0)
		request->flags |= XSEG_F_NO_HOLE;
	if (slot->changes && draw(tree, 10) == 0)
		request->flags |= XSEG_F_FUA;
}

/* What will be there. */
static void change(struct tree *tree, struct slot *slot)
{
	struct client_request *request = &slot->request;
	struct volume *volume = &tree->volume[slot->volume];
	uint64_t first = request->offset / XSEG_SECTOR;
	uint64_t stamp = request->op == XSEG_OP_WRITE ? stamp_of(tree, slot->volume) : 0;
	for (uint32_t i = 0; i < request->length / XSEG_SECTOR; i++) {
		slot->old[i] = volume->now[first + i];
		volume->now[first + i] = stamp;
		volume->zeroed[first + i] |= stamp == 0;
		sector_fill((uint64_t *)(void *)(slot->buffer + i * XSEG_SECTOR), stamp, first + i);
	}
	if (request->op != XSEG_OP_WRITE)
		return;
	request->send = slot->buffer;
	request->send_size = request->length;
}

static struct slot *free_slot(struct tree *tree)
{
	unsigned client = (unsigned)draw(tree, CLIENTS);
	struct slot *slots = &tree->slot[client * DEPTH];
	for (unsigned i = 0; i < DEPTH; i++)
		if (!slots[i].busy)
			return &slots[i];
	collect(tree, client);
	return free_slot(tree);
}

static void start(struct tree *tree, struct slot *slot)
{
	struct client_request *request = &slot->request;
	for (unsigned i = 0; i < SLOTS; i++)
		while (conflicts(slot, &tree->slot[i]))
			collect(tree, tree->slot[i].client);
	if (slot->changes) {
		change(tree, slot);
	} else if (request->op != XSEG_OP_PREFETCH) {
		request->receive = slot->buffer;
		request->receive_size = request->op == XSEG_OP_READ ? request->length : XSEG_PAGE;
	}
	must(client_start(&tree->client[slot->client], request) == 0);
	slot->busy = true;
}

static void read_all(struct tree *tree, unsigned index,
	void (*look)(struct tree *tree, unsigned index, uint64_t sector, uint64_t found))
{
	uint32_t most = 128, sectors = tree->pipeline->sectors;
	uint8_t *bytes = malloc(most * XSEG_SECTOR);
	must(bytes);
	for (uint32_t at = 0; at < sectors; at += most) {
		uint32_t count = sectors - at < most ? sectors - at : most;
		struct client_request request = {.op = XSEG_OP_READ,
			.key.volume = tree->volume[index].id,
			.offset = (uint64_t)at * XSEG_SECTOR,
			.length = count * XSEG_SECTOR,
			.receive = bytes,
			.receive_size = count * XSEG_SECTOR};
		int rc = client_do(&tree->client[0], &request);
		if (rc != 0)
			complain(tree, index, at, strerror(-rc));
		for (uint32_t i = 0; rc == 0 && i < count; i++)
			look(tree, index, at + i, sector_stamp(bytes + i * XSEG_SECTOR, at + i));
	}
	free(bytes);
}

static void expect_now(struct tree *tree, unsigned index, uint64_t sector, uint64_t found)
{
	if (found != tree->volume[index].now[sector])
		complain(tree, index, sector, "in the end it reads as something else");
}

/* --- volumes ------------------------------------------------------------------------------ */

static int control(struct tree *tree, enum map_control what, uint64_t id, struct map_ask *ask)
{
	uint8_t *out = malloc(8192);
	must(out);
	struct client_request request = {.op = XSEG_OP_CONTROL,
		.key.volume = id,
		.arg0 = what,
		.send = ask,
		.send_size = ask ? sizeof(*ask) : 0,
		.receive = out,
		.receive_size = 8192};
	int rc = client_do(&tree->client[0], &request);
	free(out);
	return rc;
}

static void tables(struct tree *tree, struct volume *volume)
{
	volume->now = calloc(tree->pipeline->sectors, sizeof(uint64_t));
	volume->flushed = calloc(tree->pipeline->sectors, sizeof(uint64_t));
	volume->zeroed = calloc(tree->pipeline->sectors, sizeof(bool));
	must(volume->now && volume->flushed && volume->zeroed);
}

static void open_one(struct tree *tree, unsigned index)
{
	const struct volume *volume = &tree->volume[index];
	struct xseg_volume_info info = {0};
	for (unsigned i = 0; i < CLIENTS; i++) {
		int rc = rig_volume(&tree->client[i], XSEG_OP_OPEN,
			volume->snapshot ? XSEG_F_READ_ONLY : 0, volume->id, &info);
		if (rc != 0)
			complain(tree, index, 0, strerror(-rc));
		must(rc == 0);
	}
}

/* Of a snapshot taken while writes were on their way: each of their sectors is as before or
   after. */
static void settle(struct tree *tree, unsigned index, uint64_t sector, uint64_t found)
{
	struct volume *volume = &tree->volume[index];
	if (found == volume->now[sector])
		return;
	for (unsigned i = 0; i < SLOTS; i++) {
		const struct slot *slot = &tree->slot[i];
		uint64_t first = slot->request.offset / XSEG_SECTOR;
		if (slot->changes && sector >= first &&
			sector < first + slot->request.length / XSEG_SECTOR &&
			slot->old[sector - first] == found) {
			volume->now[sector] = found;
			volume->flushed[sector] = found;
			return;
		}
	}
	complain(tree, index, sector, "is not what it was taken from");
}

static void branch(struct tree *tree)
{
	unsigned from = (unsigned)draw(tree, tree->count), index = tree->count;
	struct volume *volume = &tree->volume[index], *source = &tree->volume[from];
	bool snapshot = !source->snapshot && draw(tree, 2) == 0;
	struct map_ask ask = {.id = 0x100000 + index, .created_ns = 1};
	if (snapshot)
		snprintf(ask.name, sizeof(ask.name), "v%u@%u", from, index);
	else
		snprintf(ask.name, sizeof(ask.name), "v%u", index);
	for (unsigned i = 0; i < SLOTS; i++) /* only what is on its way now may be either */
		tree->slot[i].changes &= tree->slot[i].busy && tree->slot[i].volume == from;
	int rc = control(tree, snapshot ? MAP_SNAP : MAP_CLONE, source->id, &ask);
	if (rc != 0)
		complain(tree, from, 0, strerror(-rc));
	must(rc == 0);
	tables(tree, volume);
	volume->id = ask.id;
	volume->snapshot = snapshot;
	volume->from = from;
	memcpy(volume->now, source->now, tree->pipeline->sectors * sizeof(uint64_t));
	memcpy(volume->flushed, source->now, tree->pipeline->sectors * sizeof(uint64_t));
	tree->count++;
	collect_all(tree);
	open_one(tree, index);
	read_all(tree, index, settle);
	for (unsigned i = 0; i < SLOTS; i++)
		tree->slot[i].changes = false;
}

/* Back to one of its snapshots; nobody may have it open. */
static void roll_back(struct tree *tree)
{
	unsigned index = (unsigned)draw(tree, tree->count);
	const struct volume *snapshot = &tree->volume[index];
	struct volume *volume = &tree->volume[snapshot->from];
	struct map_ask ask = {.id = snapshot->id};
	struct client_request request = {.op = XSEG_OP_CLOSE, .key.volume = volume->id};
	if (!snapshot->snapshot)
		return;
	collect_all(tree);
	for (unsigned i = 0; i < CLIENTS; i++)
		must(client_do(&tree->client[i], &request) == 0);
	int rc = control(tree, MAP_ROLLBACK, volume->id, &ask);
	if (rc != 0)
		complain(tree, index, 0, strerror(-rc));
	open_one(tree, snapshot->from);
	memcpy(volume->now, snapshot->now, tree->pipeline->sectors * sizeof(uint64_t));
	memcpy(volume->flushed, snapshot->now, tree->pipeline->sectors * sizeof(uint64_t));
	memset(volume->zeroed, 0, tree->pipeline->sectors * sizeof(bool));
}

static void flush(struct tree *tree, unsigned index)
{
	struct volume *volume = &tree->volume[index];
	struct client_request request = {.op = XSEG_OP_FLUSH, .key.volume = volume->id};
	collect_all(tree);
	int rc = client_do(&tree->client[draw(tree, CLIENTS)], &request);
	if (rc != 0)
		complain(tree, index, 0, strerror(-rc));
	memcpy(volume->flushed, volume->now, tree->pipeline->sectors * sizeof(uint64_t));
	memset(volume->zeroed, 0, tree->pipeline->sectors * sizeof(bool));
}

/* --- hosts -------------------------------------------------------------------------------- */

static void start_hosts(struct tree *tree)
{
	const struct pipeline *pipeline = tree->pipeline;
	char composer[96];
	snprintf(composer, sizeof(composer), "vol0=volume,edge.store=%s,edge.map=map0",
		pipeline->cache ? "cache0" : "store0");
	rig_start(&tree->rig, STORE, pipeline->lanes, pipeline->store);
	if (pipeline->cache)
		rig_start(&tree->rig, CACHE, pipeline->lanes, pipeline->cache);
	rig_start(&tree->rig, MAPPER, 1, "map0=mapperd,lease=1s,edge.store=store0");
	rig_start(&tree->rig, COMPOSER, pipeline->lanes, composer);
	for (unsigned i = 0; i < CLIENTS; i++)
		rig_client(&tree->rig, &tree->client[i], "vol0");
}

/* One of them, or some at once, and at once there are others. */
static void kill_some(struct tree *tree)
{
	static const unsigned groups[] = {1u << COMPOSER, 1u << MAPPER,
		1u << COMPOSER | 1u << MAPPER, 1u << CACHE, 1u << CACHE | 1u << COMPOSER,
		1u << CACHE | 1u << MAPPER};
	uint64_t count = tree->pipeline->cache ? countof(groups) : 3;
	unsigned group = groups[draw(tree, count)];
	for (unsigned host = CACHE; host < HOSTS; host++)
		if (group >> host & 1)
			rig_kill(&tree->rig, host);
	for (unsigned host = CACHE; host < HOSTS; host++)
		if (group >> host & 1)
			rig_start_again(&tree->rig, host);
}

static void expect_flushed(struct tree *tree, unsigned index, uint64_t sector, uint64_t found)
{
	const struct volume *volume = &tree->volume[index];
	uint64_t flushed = volume->flushed[sector];
	bool later = found != UINT64_MAX && found > flushed && (found & 255) == index;
	if (found == flushed || later || (found == 0 && volume->zeroed[sector]))
		return;
	char what[160];
	snprintf(what, sizeof(what),
		"reads as %llx after the host's death, %llx was flushed, %llx written",
		(unsigned long long)found, (unsigned long long)flushed,
		(unsigned long long)volume->now[sector]);
	complain(tree, index, sector, what);
}

/* With requests in flight. The store's files stay. */
static void host_dies(struct tree *tree)
{
	for (unsigned i = HOSTS; i-- > 0;)
		if (i != CACHE || tree->pipeline->cache)
			rig_kill(&tree->rig, i);
	for (unsigned i = 0; i < CLIENTS; i++)
		client_close(&tree->client[i]);
	for (unsigned i = 0; i < SLOTS; i++)
		tree->slot[i].busy = false;
	scratch_segment_end(&tree->rig.seg);
	scratch_segment(&tree->rig.seg, 96u << 20, 16, 8192);
	start_hosts(tree);
	usleep(1200000); /* nobody renews what the dead had */
	for (unsigned i = 0; i < tree->count; i++) {
		open_one(tree, i);
		read_all(tree, i, expect_flushed);
	}
}

/* --- a run -------------------------------------------------------------------------------- */

static void begin(struct tree *tree, const struct pipeline *pipeline, uint64_t seed)
{
	struct xseg_volume_info info;
	*tree = (struct tree){.pipeline = pipeline, .seed = seed, .first_seed = seed, .count = 1};
	rig_open(&tree->rig, 96u << 20);
	start_hosts(tree);
	int rc = rig_volume_create(&tree->client[0], "v0",
		(uint64_t)pipeline->sectors * XSEG_SECTOR, pipeline->object_size, &info);
	if (rc != 0)
		fprintf(stderr, "%s: create: %s\n", pipeline->name, strerror(-rc));
	must(rc == 0);
	tree->volume[0].id = info.id;
	tables(tree, &tree->volume[0]);
	open_one(tree, 0);
	for (unsigned i = 0; i < SLOTS; i++) {
		tree->slot[i].client = i / DEPTH;
		tree->slot[i].buffer = calloc(LENGTH_MAX, XSEG_SECTOR);
		tree->slot[i].old = calloc(LENGTH_MAX, sizeof(uint64_t));
		must(tree->slot[i].buffer && tree->slot[i].old);
	}
}

static void end(struct tree *tree)
{
	for (unsigned i = 0; i < CLIENTS; i++)
		client_close(&tree->client[i]);
	rig_close(&tree->rig);
	for (unsigned i = 0; i < SLOTS; i++) {
		free(tree->slot[i].buffer);
		free(tree->slot[i].old);
	}
	for (unsigned i = 0; i < tree->count; i++) {
		free(tree->volume[i].now);
		free(tree->volume[i].flushed);
		free(tree->volume[i].zeroed);
	}
}

static void step(struct tree *tree, unsigned i)
{
	const struct pipeline *pipeline = tree->pipeline;
	if (tree->count < VOLUMES && i % (pipeline->ops / VOLUMES) == pipeline->ops / VOLUMES - 1)
		branch(tree);
	else if (pipeline->kills && i % (pipeline->ops / pipeline->kills) == 17) {
		kill_some(tree);
	} else if (draw(tree, 150) == 0) {
		roll_back(tree);
	} else if (draw(tree, 100) == 0) {
		flush(tree, (unsigned)draw(tree, tree->count));
	}
	struct slot *slot = free_slot(tree);
	prepare(tree, slot);
	start(tree, slot);
}

static unsigned run(const struct pipeline *pipeline, uint64_t seed)
{
	struct tree tree;
	begin(&tree, pipeline, seed);
	for (unsigned i = 0; i < pipeline->ops; i++)
		step(&tree, i);
	collect_all(&tree);
	for (unsigned i = 0; i < tree.count; i++)
		read_all(&tree, i, expect_now);
	if (pipeline->dies) {
		for (unsigned i = 0; i < pipeline->ops / 4; i++) {
			struct slot *slot = free_slot(&tree);
			prepare(&tree, slot);
			start(&tree, slot);
			if (draw(&tree, 50) == 0)
				flush(&tree, (unsigned)draw(&tree, tree.count));
		}
		host_dies(&tree);
	}
	end(&tree);
	return tree.wrong;
}

static const struct pipeline pipelines[] = {
	{"4K objects", 1, 803, 4096, 2000, 0, "store0=blocker_memory", false, NULL},
	{"64K objects", 1, 4099, 65536, 3000, 0, "store0=blocker_memory", false, NULL},
	{"64K objects, two lanes, kills", 2, 4099, 65536, 3000, 6, "store0=blocker_memory", false,
		NULL},
	{"4M objects, kills", 1, 8205, 4 << 20, 2000, 4, "store0=blocker_memory", false, NULL},
	{"files, kills, the host dies", 2, 2051, 65536, 1500, 3, "store0=blocker_file,dir=@", true,
		NULL},
	{"cached, kills", 2, 4099, 65536, 2400, 8, "store0=blocker_memory", false,
		"cache0=cached,edge.store=store0,mode=writeback,size=4M,epoch=50ms,age=200ms"},
	{"cached through, kills", 1, 4099, 65536, 1200, 4, "store0=blocker_memory", false,
		"cache0=cached,edge.store=store0,mode=writethrough,size=4M"},
	{"files, cached, kills, the host dies", 2, 2051, 65536, 1500, 4,
		"store0=blocker_file,dir=@", true,
		"cache0=cached,edge.store=store0,mode=writeback,size=4M,epoch=50ms,age=200ms"},
};

static void clean_up(int signal_number)
{
	scratch_end();
	_exit(128 + signal_number);
}

/* volume_tree [PART OF A PIPELINE'S NAME] */
int main(int argc, char **argv)
{
	const char *given = getenv("SKERRY_SEED"), *only = argc > 1 ? argv[1] : "";
	uint64_t seed = given ? strtoull(given, NULL, 0) : 20240607;
	unsigned wrong = 0;
	scratch_begin();
	signal(SIGABRT, clean_up);
	signal(SIGTERM, clean_up);
	signal(SIGINT, clean_up);
	for (unsigned i = 0; i < countof(pipelines); i++) {
		if (!strstr(pipelines[i].name, only))
			continue;
		unsigned found = run(&pipelines[i], seed + i);
		printf("%s: %u ops, %u wrong\n", pipelines[i].name, pipelines[i].ops, found);
		wrong += found;
	}
	scratch_end();
	return wrong == 0 ? 0 : 1;
}
