/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Random requests, many in flight, against a model in memory. Requests in flight at once do not
 * overlap where one of them changes something, so what a read must find is always known.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/lib/blocker_rig.h"

#define OBJECTS 6u
#define OBJECT_SIZE (1u << 20)
#define IN_FLIGHT 16u

struct step {
	struct client_request request; /* first */
	bool busy;
	uint32_t object;
	uint32_t from; /* COPY */
	uint8_t *buffer;
};

struct model {
	struct rig *rig;
	uint8_t *shadow[OBJECTS];
	struct step steps[IN_FLIGHT];
	unsigned flying;
};

static bool changes(enum xseg_op op)
{
	return op != XSEG_OP_READ && op != XSEG_OP_STATUS && op != XSEG_OP_FLUSH;
}

static bool touches(const struct step *step, uint32_t object, uint64_t offset, uint64_t end)
{
	const struct client_request *r = &step->request;
	if (step->object != object && !(r->op == XSEG_OP_COPY && step->from == object))
		return false;
	return r->op == XSEG_OP_DELETE || (r->offset < end && offset < r->offset + r->length);
}

static bool conflicts(const struct model *model, const struct step *new)
{
	const struct client_request *r = &new->request;
	uint64_t offset = r->op == XSEG_OP_DELETE ? 0 : r->offset;
	uint64_t end = r->op == XSEG_OP_DELETE ? OBJECT_SIZE : r->offset + r->length;
	for (unsigned i = 0; i < IN_FLIGHT; i++) {
		const struct step *step = &model->steps[i];
		if (!step->busy || (!changes(step->request.op) && !changes(r->op)))
			continue;
		if (touches(step, new->object, offset, end) ||
			(r->op == XSEG_OP_COPY && touches(step, new->from, offset, end)))
			return true;
	}
	return false;
}

static void check_read(struct model *model, const struct step *step)
{
	const struct client_request *r = &step->request;
	const uint8_t *want = model->shadow[step->object] + r->offset;
	if (memcmp(step->buffer, want, r->length) == 0)
		return;
	uint32_t i = 0;
	while (step->buffer[i] == want[i])
		i++;
	rig_broken(model->rig, __FILE__, __LINE__, "object %u, offset %llu: 0x%02x, not 0x%02x",
		step->object, (unsigned long long)r->offset + i, step->buffer[i], want[i]);
}

/* What a change does is done in the model when it has come back. */
static void finish(struct model *model, struct step *step)
{
	const struct client_request *r = &step->request;
	uint8_t *at = model->shadow[step->object] + r->offset;
	expect_int(model->rig, r->result, 0);
	switch (r->op) {
	case XSEG_OP_READ: check_read(model, step); break;
	case XSEG_OP_WRITE: memcpy(at, step->buffer, r->length); break;
	case XSEG_OP_ZERO:
	case XSEG_OP_DISCARD: memset(at, 0, r->length); break;
	case XSEG_OP_COPY: memcpy(at, model->shadow[step->from] + r->offset, r->length); break;
	case XSEG_OP_DELETE: memset(model->shadow[step->object], 0, OBJECT_SIZE); break;
	default: break;
	}
	step->busy = false;
	model->flying--;
}

static bool collect(struct model *model)
{
	struct client_request *request;
	if (client_collect(&model->rig->client, &request))
		return false;
	finish(model, (struct step *)request);
	return true;
}

static enum xseg_op choose_op(uint64_t r)
{
	static const uint8_t ops[16] = {XSEG_OP_READ, XSEG_OP_READ, XSEG_OP_READ, XSEG_OP_READ,
		XSEG_OP_READ, XSEG_OP_WRITE, XSEG_OP_WRITE, XSEG_OP_WRITE, XSEG_OP_WRITE,
		XSEG_OP_WRITE, XSEG_OP_WRITE, XSEG_OP_ZERO, XSEG_OP_DISCARD, XSEG_OP_COPY,
		XSEG_OP_FLUSH, XSEG_OP_DELETE};
	return (enum xseg_op)ops[r % 16];
}

static void choose(struct model *model, struct step *step)
{
	struct rig *rig = model->rig;
	uint64_t r = rig_random(rig);
	struct client_request *request = &step->request;
	uint8_t *buffer = step->buffer;
	*step = (struct step){.buffer = buffer, .object = r % OBJECTS, .from = (r >> 8) % OBJECTS};
	request->op = choose_op(r >> 16);
	/* deletions are rare, or there would be nothing to find */
	if (request->op == XSEG_OP_DELETE && (r >> 24) % 8)
		request->op = XSEG_OP_READ;
	/* half of them small, some whole pages, some large */
	uint32_t unit = (r >> 32) % 2 ? XSEG_SECTOR : XSEG_PAGE;
	uint32_t most = (r >> 34) % 4 == 0 ? 256 * 1024 : 16 * 1024;
	request->length = (uint32_t)((r >> 36) % (most / unit) + 1) * unit;
	request->offset = rig_random(rig) % ((OBJECT_SIZE - request->length) / unit + 1) * unit;
	request->key = rig_key(rig, 200, step->object);
	if (request->op == XSEG_OP_COPY) {
		request->arg0 = step->from;
		request->arg1 = request->key.volume;
	}
	if (request->op == XSEG_OP_ZERO && (r >> 60) % 2)
		request->flags = XSEG_F_NO_HOLE;
	if (changes(request->op) && (r >> 61) % 8 == 0)
		request->flags |= XSEG_F_FUA;
}

static void prepare(struct model *model, struct step *step)
{
	struct client_request *request = &step->request;
	if (request->op == XSEG_OP_FLUSH || request->op == XSEG_OP_DELETE)
		request->length = 0, request->offset = 0;
	if (request->op == XSEG_OP_READ) {
		request->receive = step->buffer;
		request->receive_size = request->length;
	}
	if (request->op == XSEG_OP_WRITE) {
		for (uint32_t i = 0; i < request->length; i += 8) {
			uint64_t word = rig_random(model->rig);
			memcpy(step->buffer + i, &word, sizeof(word));
		}
		request->send = step->buffer;
		request->send_size = request->length;
	}
}

static struct step *idle_step(struct model *model)
{
	for (;;) {
		for (unsigned i = 0; i < IN_FLIGHT; i++)
			if (!model->steps[i].busy)
				return &model->steps[i];
		collect(model);
	}
}

static void run(struct model *model, unsigned steps)
{
	for (unsigned i = 0; i < steps && !model->rig->failed; i++) {
		struct step *step = idle_step(model);
		choose(model, step);
		while (conflicts(model, step) && collect(model))
			;
		prepare(model, step);
		int error = client_start(&model->rig->client, &step->request);
		expect_int(model->rig, error, 0);
		step->busy = error == 0;
		model->flying += error == 0;
	}
	while (collect(model))
		;
}

/* All of it, at the end. */
static void check_all(struct model *model)
{
	struct rig *rig = model->rig;
	for (uint32_t i = 0; i < OBJECTS; i++) {
		struct span all = {0, OBJECT_SIZE};
		expect_int(rig, rig_read(rig, rig_key(rig, 200, i), all, rig->in), 0);
		expect_int(rig, memcmp(rig->in, model->shadow[i], OBJECT_SIZE), 0);
		expect_int(rig,
			rig_do(rig, XSEG_OP_DELETE, rig_key(rig, 200, i), (struct span){0, 0}, 0),
			0);
	}
}

static unsigned model_steps;

static void law_model(struct rig *rig)
{
	struct model model = {.rig = rig};
	for (unsigned i = 0; i < OBJECTS; i++)
		must(model.shadow[i] = calloc(1, OBJECT_SIZE));
	for (unsigned i = 0; i < IN_FLIGHT; i++)
		must(model.steps[i].buffer = malloc(256 * 1024));
	printf("# seed %llu\n", (unsigned long long)rig->seed);
	run(&model, model_steps);
	check_all(&model);
	for (unsigned i = 0; i < OBJECTS; i++)
		free(model.shadow[i]);
	for (unsigned i = 0; i < IN_FLIGHT; i++)
		free(model.steps[i].buffer);
}

void blocker_model(struct rig *rig, unsigned steps)
{
	model_steps = steps;
	rig_law(rig, "random requests, sixteen in flight, agree with a model", law_model);
}
