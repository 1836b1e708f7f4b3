/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The composer against a shadow in memory: random requests of several clients, many in flight,
 * across objects of all sizes, with the composer restarted in the middle. What is read must be what
 * the shadow says. A pipeline that loses writes must be caught.
 */
#include <errno.h>
#include <signal.h>
#include <string.h>

#include "tests/property/volume_rig.h"

#define CLIENTS 2u
#define DEPTH 12u
#define ROUNDS 3u
#define SLOTS (CLIENTS * DEPTH)
#define EXTENTS (XSEG_PAGE / sizeof(struct xseg_status_extent)) /* room comes in pages */

struct pipeline {
	const char *name;
	unsigned store_lanes, volume_lanes;
	const char *store;  /* host 0; NULL: all in one process */
	const char *volume; /* host 1 */
	uint64_t size;
	uint32_t object_size;
	unsigned ops;
	bool restarts;
};

struct slot {
	struct client_request request;
	unsigned client;
	bool busy, changes;
	int expect;
	uint8_t *buffer;
};

struct model {
	const struct pipeline *pipeline;
	struct rig rig;
	struct client client[CLIENTS];
	struct slot slot[SLOTS];
	uint8_t *shadow;
	uint64_t id, seed, first_seed;
	unsigned done, wrong;
};

static void complain(struct model *model, const struct slot *slot, const char *what)
{
	const struct client_request *request = &slot->request;
	if (model->wrong++ < 3)
		fprintf(stderr, "%s, seed %llu, op %u: %s %llu+%u: %s (result %d, value %llu)\n",
			model->pipeline->name, (unsigned long long)model->first_seed, model->done,
			xseg_op_name(request->op), (unsigned long long)request->offset,
			request->length, what, request->result, (unsigned long long)request->value);
}

/* --- what must come back ---------------------------------------------------------------- */

static bool is_zero(const uint8_t *at, uint64_t length)
{
	return length == 0 || (at[0] == 0 && memcmp(at, at + 1, length - 1) == 0);
}

static const char *check_status(const struct model *model, const struct slot *slot)
{
	const struct client_request *request = &slot->request;
	const struct xseg_status_extent *extents = (const void *)slot->buffer;
	uint64_t at = 0;
	if (request->value == 0 || request->value > EXTENTS ||
		request->answer_length != request->value * sizeof(*extents))
		return "a strange number of extents";
	for (uint64_t i = 0; i < request->value; i++) {
		if (extents[i].length == 0 || extents[i].length > request->length - at)
			return "an extent of a strange length";
		bool zero = extents[i].flags & XSEG_STATUS_ZERO;
		if (zero && !is_zero(model->shadow + request->offset + at, extents[i].length))
			return "data where it says zero";
		if (i > 0 && extents[i].flags == extents[i - 1].flags)
			return "two extents that are one";
		at += extents[i].length;
	}
	return NULL;
}

static const char *check(const struct model *model, const struct slot *slot)
{
	const struct client_request *request = &slot->request;
	if (request->result != slot->expect)
		return "the wrong result";
	if (request->result != 0)
		return NULL;
	if (request->op == XSEG_OP_READ && request->answer_length != request->length)
		return "a short read";
	if (request->op == XSEG_OP_READ &&
		memcmp(slot->buffer, model->shadow + request->offset, request->length) != 0)
		return "other data than was written";
	if (request->op == XSEG_OP_STATUS)
		return check_status(model, slot);
	return NULL;
}

static void collect(struct model *model, unsigned client)
{
	struct client_request *request;
	int rc = client_collect(&model->client[client], &request);
	if (rc != 0)
		fprintf(stderr, "%s: collect: %s\n", model->pipeline->name, strerror(-rc));
	must(rc == 0);
	struct slot *slot = request->context;
	const char *what = check(model, slot);
	if (what)
		complain(model, slot, what);
	slot->busy = false;
	model->done++;
}

static void collect_all(struct model *model)
{
	for (unsigned i = 0; i < SLOTS; i++)
		while (model->slot[i].busy)
			collect(model, model->slot[i].client);
}

/* --- what is asked ---------------------------------------------------------------------- */

static uint64_t draw(struct model *model, uint64_t below)
{
	return random_next(&model->seed) % below;
}

/* Requests that change the same bytes are never in flight together: then there is one truth. */
static bool conflicts(const struct slot *a, const struct slot *b)
{
	const struct client_request *x = &a->request, *y = &b->request;
	if (!b->busy || (!a->changes && !b->changes))
		return false;
	return x->offset < y->offset + y->length && y->offset < x->offset + x->length;
}

static void wait_for_conflicts(struct model *model, const struct slot *slot)
{
	for (unsigned i = 0; i < SLOTS; i++)
		while (conflicts(slot, &model->slot[i]))
			collect(model, model->slot[i].client);
}

static uint32_t draw_length(struct model *model)
{
	static const uint32_t limits[] = {1, 8, 8, 8, 64, 64, 512, 8192};
	uint32_t sectors = 1 + (uint32_t)draw(model, limits[draw(model, 8)]);
	if (draw(model, 2) == 0 && sectors >= 8)
		sectors &= ~7u;
	return sectors * XSEG_SECTOR;
}

/* Often at the border of an object, and at the end of the volume. */
static uint64_t draw_offset(struct model *model)
{
	uint64_t size = model->pipeline->size, object = model->pipeline->object_size;
	uint64_t offset = draw(model, size / XSEG_SECTOR) * XSEG_SECTOR;
	uint64_t near = draw(model, 16) * XSEG_SECTOR;
	switch (draw(model, 4)) {
	case 0: offset = offset / object * object; break;
	case 1:
		offset = offset / object * object + object;
		offset = offset > near ? offset - near : 0;
		break;
	default: break;
	}
	return offset < size ? offset : size - XSEG_SECTOR;
}

static void fill(struct model *model, uint8_t *at, uint32_t length)
{
	uint64_t word = random_next(&model->seed) | 1;
	for (uint32_t i = 0; i < length; i += 8, word += 0x9e3779b97f4a7c15ull)
		memcpy(at + i, &word, 8);
}

static enum xseg_op draw_op(struct model *model)
{
	static const enum xseg_op ops[] = {
		XSEG_OP_READ,
		XSEG_OP_READ,
		XSEG_OP_READ,
		XSEG_OP_READ,
		XSEG_OP_WRITE,
		XSEG_OP_WRITE,
		XSEG_OP_WRITE,
		XSEG_OP_WRITE,
		XSEG_OP_ZERO,
		XSEG_OP_DISCARD,
		XSEG_OP_STATUS,
		XSEG_OP_STATUS,
		XSEG_OP_FLUSH,
		XSEG_OP_PREFETCH,
	};
	return ops[draw(model, countof(ops))];
}

static void prepare(struct model *model, struct slot *slot)
{
	struct client_request *request = &slot->request;
	uint64_t size = model->pipeline->size;
	*request = (struct client_request){
		.op = draw_op(model), .key.volume = model->id, .context = slot};
	slot->expect = 0;
	slot->changes = request->op == XSEG_OP_WRITE || request->op == XSEG_OP_ZERO ||
			request->op == XSEG_OP_DISCARD;
	if (request->op == XSEG_OP_FLUSH)
		return;
	request->offset = draw_offset(model);
	request->length = draw_length(model);
	if (draw(model, 50) == 0) {
		/* past the end: refused, and nothing has changed */
		request->length += XSEG_SECTOR;
		request->offset =
			size + XSEG_SECTOR * draw(model, 3) - request->length + XSEG_SECTOR;
		if (request->offset > size + 4 * XSEG_SECTOR || request->length > XSEG_OBJECT_MAX)
			request->offset = size, request->length = XSEG_SECTOR;
		slot->expect = slot->changes ? -ENOSPC : -EINVAL;
	} else if (request->length > size - request->offset) {
		request->length = (uint32_t)(size - request->offset);
	}
	if (request->op == XSEG_OP_WRITE && draw(model, 8) == 0)
		request->flags |= XSEG_F_FUA;
	if (request->op == XSEG_OP_ZERO && draw(model, 2) == 0)
		request->flags |= XSEG_F_NO_HOLE;
}

/* The buffers, and the shadow as it will be. */
static void prepare_data(struct model *model, struct slot *slot)
{
	struct client_request *request = &slot->request;
	bool fits = slot->expect == 0;
	switch (request->op) {
	case XSEG_OP_WRITE:
		fill(model, slot->buffer, request->length);
		request->send = slot->buffer;
		request->send_size = request->length;
		if (fits)
			memcpy(model->shadow + request->offset, slot->buffer, request->length);
		break;
	case XSEG_OP_READ:
		memset(slot->buffer, 0xa5, request->length);
		request->receive = slot->buffer;
		request->receive_size = request->length;
		break;
	case XSEG_OP_STATUS:
		request->receive = slot->buffer;
		request->receive_size = EXTENTS * sizeof(struct xseg_status_extent);
		break;
	default:
		if (slot->changes && fits)
			memset(model->shadow + request->offset, 0, request->length);
		break;
	}
}

static struct slot *free_slot(struct model *model)
{
	unsigned client = (unsigned)draw(model, CLIENTS);
	struct slot *slots = &model->slot[client * DEPTH];
	for (unsigned i = 0; i < DEPTH; i++)
		if (!slots[i].busy)
			return &slots[i];
	collect(model, client);
	return free_slot(model);
}

static void start(struct model *model, struct slot *slot)
{
	wait_for_conflicts(model, slot);
	prepare_data(model, slot);
	int rc = client_start(&model->client[slot->client], &slot->request);
	if (rc != 0)
		fprintf(stderr, "%s: start: %s\n", model->pipeline->name, strerror(-rc));
	must(rc == 0);
	slot->busy = true;
}

/* --- a run ------------------------------------------------------------------------------- */

/* From the first byte to the last, in pieces that have nothing to do with the objects. */
static void read_all(struct model *model)
{
	uint64_t size = model->pipeline->size, offset = 0;
	while (offset < size) {
		struct slot *slot = free_slot(model);
		slot->request = (struct client_request){.op = XSEG_OP_READ,
			.key.volume = model->id,
			.offset = offset,
			.length = 777 * XSEG_SECTOR,
			.context = slot};
		if (slot->request.length > size - offset)
			slot->request.length = (uint32_t)(size - offset);
		slot->expect = 0;
		slot->changes = false;
		offset += slot->request.length;
		start(model, slot);
	}
	collect_all(model);
}

static void begin(struct model *model, const struct pipeline *pipeline, uint64_t seed)
{
	struct xseg_volume_info info;
	*model = (struct model){.pipeline = pipeline, .seed = seed, .first_seed = seed};
	model->shadow = calloc(1, pipeline->size);
	must(model->shadow);
	rig_open(&model->rig, 96u << 20);
	if (pipeline->store)
		rig_start(&model->rig, 0, pipeline->store_lanes, pipeline->store);
	rig_start(&model->rig, 1, pipeline->volume_lanes, pipeline->volume);
	for (unsigned i = 0; i < CLIENTS; i++)
		rig_client(&model->rig, &model->client[i], "vol0");
	int rc = rig_volume_create(
		&model->client[0], "model", pipeline->size, pipeline->object_size, &info);
	if (rc != 0)
		fprintf(stderr, "%s: create: %s\n", pipeline->name, strerror(-rc));
	must(rc == 0);
	model->id = info.id;
	for (unsigned i = 0; i < SLOTS; i++) {
		model->slot[i].client = i / DEPTH;
		model->slot[i].buffer = malloc(XSEG_OBJECT_MAX);
		must(model->slot[i].buffer);
	}
	for (unsigned i = 0; i < CLIENTS; i++)
		must(rig_volume_named(&model->client[i], XSEG_OP_OPEN, 0, "model", &info) == 0 &&
			info.id == model->id);
}

static void finish(struct model *model)
{
	struct xseg_volume_info info;
	must(rig_volume(&model->client[0], XSEG_OP_INFO, 0, model->id, &info) == 0);
	must(info.size == model->pipeline->size && strcmp(info.name, "model") == 0);
	for (unsigned i = 0; i < CLIENTS; i++)
		client_close(&model->client[i]);
	rig_close(&model->rig);
	for (unsigned i = 0; i < SLOTS; i++)
		free(model->slot[i].buffer);
	free(model->shadow);
}

/* How much was wrong. */
static unsigned run(const struct pipeline *pipeline, uint64_t seed)
{
	struct model model;
	begin(&model, pipeline, seed);
	for (unsigned i = 0; i < pipeline->ops; i++) {
		/* with requests in flight: they are answered by either, and none is lost */
		if (pipeline->restarts && i % (pipeline->ops / 3) == pipeline->ops / 6) {
			rig_stop(&model.rig, 1);
			rig_start_again(&model.rig, 1);
		}
		struct slot *slot = free_slot(&model);
		prepare(&model, slot);
		start(&model, slot);
	}
	collect_all(&model);
	read_all(&model);
	finish(&model);
	return model.wrong;
}

#define STACKED_MEMORY \
	"vol0=volume,edge.store=mem0,edge.map=map0 map0=mapperd,edge.store=mem0 " \
	"mem0=blocker_memory"
#define STACKED_FILE \
	"vol0=volume,edge.store=file0,edge.map=map0 map0=mapperd,edge.store=file0 " \
	"file0=blocker_file,dir=@"
#define LOSSY \
	"vol0=volume,edge.store=lossy0,edge.map=map0 map0=mapperd,edge.store=mem0 " \
	"lossy0=blocker_lossy,every=100,edge.store=mem0 mem0=blocker_memory"

static const struct pipeline pipelines[] = {
	{"memory, 4K objects", 0, 1, NULL, STACKED_MEMORY, (200 << 10) + 512, 4096, 1500, false},
	{"memory, 64K objects", 0, 1, NULL, STACKED_MEMORY, (5 << 20) + 1536, 65536, 2500, false},
	{"memory, 4M objects", 0, 1, NULL, STACKED_MEMORY, (9 << 20) + 512, 4 << 20, 1500, false},
	{"memory, two lanes", 0, 2, NULL, STACKED_MEMORY, (6 << 20) + 512, 1 << 20, 1500, false},
	{"memory behind it, restarts", 2, 2, "map0=mapperd,edge.store=mem0 mem0=blocker_memory",
		"vol0=volume,edge.store=mem0,edge.map=map0", (3 << 20) + 4096, 32768, 2000, true},
	{"files, 64K objects", 0, 1, NULL, STACKED_FILE, (3 << 20) + 512, 65536, 1200, false},
	{"files, restarts", 0, 1, NULL, STACKED_FILE, (9 << 20) + 512, 1 << 20, 1200, true},
};

static const struct pipeline lossy = {
	"negative control", 0, 1, NULL, LOSSY, 5 << 20, 65536, 2500, false};

/* An assertion that fails, or whoever has lost patience: nothing is left behind even so. */
static void clean_up(int signal_number)
{
	scratch_end();
	_exit(128 + signal_number);
}

/* volume_model [PART OF A PIPELINE'S NAME] */
int main(int argc, char **argv)
{
	const char *given = getenv("SKERRY_SEED"), *only = argc > 1 ? argv[1] : "";
	uint64_t seed = given ? strtoull(given, NULL, 0) : 20240607;
	unsigned wrong = 0, caught = 1;
	scratch_begin();
	signal(SIGABRT, clean_up);
	signal(SIGTERM, clean_up);
	signal(SIGINT, clean_up);
	for (unsigned i = 0; i < ROUNDS * countof(pipelines); i++) {
		const struct pipeline *pipeline = &pipelines[i % countof(pipelines)];
		if (!strstr(pipeline->name, only))
			continue;
		unsigned found = run(pipeline, seed + i);
		printf("%s: %u ops, %u wrong\n", pipeline->name, pipeline->ops, found);
		wrong += found;
	}
	if (strstr(lossy.name, only)) {
		fprintf(stderr, "complaints are wanted now: every 100th write is thrown away\n");
		caught = run(&lossy, seed);
		printf("%s: %u wrong, as it must be\n", lossy.name, caught);
	}
	scratch_end();
	return wrong == 0 && caught > 0 ? 0 : 1;
}
