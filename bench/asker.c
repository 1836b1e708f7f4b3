/* SPDX-License-Identifier: Apache-2.0 */
/* Asks volumes, mappers and stores: one call after the other, many at a time, or as fast as a bare
   lane can. */
#include "bench/asker.h"

#include <errno.h>
#include <string.h>
#include <sys/random.h>

#define CREATES 16u
#define BATCH 64u
#define PATIENCE_NS 120000000000u

void asker_fail(const char *what, int error)
{
	fprintf(stderr, "bench_volume: %s: %s\n", what, strerror(-error));
	exit(1);
}

void asker_open(struct client *client, const char *segment, const char *port)
{
	char why[XSEG_WHY_SIZE];
	if (client_open(client, segment, port, why) != 0) {
		fprintf(stderr, "bench_volume: %s\n", why);
		exit(1);
	}
	client->timeout_ns = PATIENCE_NS;
}

/* --- calls that wait -------------------------------------------------------------------------- */

static void call(struct client *client, struct client_request *request, const char *what)
{
	int rc = client_do(client, request);
	if (rc == 0)
		rc = request->result;
	if (rc != 0)
		asker_fail(what, rc);
}

struct creation {
	struct client_request request;
	struct xseg_volume_info info;
};

/* The id of one that has been made. */
static uint64_t collect_creation(struct client *client)
{
	struct client_request *request;
	int rc = client_collect(client, &request);
	if (rc == 0)
		rc = request->result;
	if (rc != 0)
		asker_fail("create", rc);
	struct creation *creation = request->context;
	uint64_t id = creation->info.id;
	free(creation);
	return id;
}

uint64_t asker_create(struct client *client, const char *prefix, uint32_t count, uint64_t size,
	uint32_t object_size)
{
	uint32_t made = 0;
	uint64_t id = 0;
	for (uint32_t i = 0; i < count; i++) {
		struct creation *creation = calloc(1, sizeof(*creation));
		must(creation);
		creation->info.size = size;
		creation->info.object_size = object_size;
		if (count == 1)
			snprintf(creation->info.name, sizeof(creation->info.name), "%s", prefix);
		else
			snprintf(creation->info.name, sizeof(creation->info.name), "%s%u", prefix,
				i);
		creation->request = (struct client_request){.op = XSEG_OP_CREATE,
			.length = sizeof(creation->info),
			.send = &creation->info,
			.send_size = sizeof(creation->info),
			.receive = &creation->info,
			.receive_size = sizeof(creation->info),
			.context = creation};
		for (; i - made == CREATES; made++)
			id = collect_creation(client);
		int rc = client_start(client, &creation->request);
		if (rc != 0)
			asker_fail("create", rc);
	}
	for (; made < count; made++)
		id = collect_creation(client);
	return id;
}

static struct xseg_volume_info ask_by_name(
	struct client *client, enum xseg_op op, unsigned flags, const char *name)
{
	struct xseg_volume_info info = {0};
	snprintf(info.name, sizeof(info.name), "%s", name);
	struct client_request request = {.op = op,
		.flags = flags,
		.length = sizeof(info),
		.send = &info,
		.send_size = sizeof(info),
		.receive = &info,
		.receive_size = sizeof(info)};
	call(client, &request, name);
	return info;
}

struct xseg_volume_info asker_open_volume(struct client *client, const char *name, bool writes)
{
	return ask_by_name(client, XSEG_OP_OPEN, writes ? 0 : XSEG_F_READ_ONLY, name);
}

void asker_close_volume(struct client *client, uint64_t id)
{
	struct client_request request = {.op = XSEG_OP_CLOSE, .key.volume = id};
	call(client, &request, "close");
}

void asker_remove(struct client *client, const char *name)
{
	ask_by_name(client, XSEG_OP_REMOVE, 0, name);
}

uint64_t asker_control(struct client *client, struct client_request *request,
	const struct map_ask *ask, void *out, uint32_t out_size)
{
	uint32_t size = MAP_ANSWER_AT + (out_size > 4096 ? out_size : 4096);
	uint8_t *buffer = calloc(1, size);
	must(buffer);
	if (ask)
		memcpy(buffer, ask, sizeof(*ask));
	request->op = XSEG_OP_CONTROL;
	request->length = size;
	request->receive = buffer;
	request->receive_size = size;
	if (!request->send) {
		request->send = buffer;
		request->send_size = MAP_ANSWER_AT;
	}
	uint64_t begun_ns = clock_now_ns();
	call(client, request, "control");
	uint64_t took_ns = clock_now_ns() - begun_ns;
	if (out)
		memcpy(out, buffer + MAP_ANSWER_AT, out_size);
	free(buffer);
	return took_ns;
}

/* --- a bare lane ------------------------------------------------------------------------------ */

static void ask(struct asker *asker, enum xseg_op op, uint64_t block)
{
	uint32_t slot;
	must(xseg_get(asker->lane, &slot) == 0);
	must(xseg_attach_pages(asker->lane, slot, 0, XSEG_PAGE) == 0);
	uint64_t offset = block * XSEG_PAGE;
	bool store = asker->volume == 0;
	xseg_at(asker->lane, slot)->frame[0] = (struct xseg_frame){.op = (uint8_t)op,
		.lane = XSEG_LANE_ANY,
		.flags = op == XSEG_OP_READ ? XSEG_F_PIN : XSEG_F_DONATE,
		.key = {.volume = store ? 1 : asker->volume,
			.object = store ? (uint32_t)(offset / XSEG_OBJECT_MAX) : 0},
		.offset = store ? offset % XSEG_OBJECT_MAX : offset,
		.length = XSEG_PAGE};
	must(xseg_submit(asker->lane, slot, asker->port) == 0);
}

static uint32_t collect(struct asker *asker)
{
	struct xseg_hint_message m[BATCH];
	uint32_t count = xseg_poll(asker->lane, m, BATCH), done = 0;
	for (uint32_t i = 0; i < count; i++) {
		if (xseg_receive(asker->lane, m[i].request) != 0)
			continue;
		asker->errors += xseg_at(asker->lane, m[i].request)->result != 0;
		xseg_put(asker->lane, m[i].request);
		done++;
	}
	return done;
}

uint64_t asker_block(struct asker *asker)
{
	uint64_t blocks = asker->size / XSEG_PAGE;
	return asker->asked++ * 0x9e3779b97f4a7c15ull % blocks;
}

uint64_t asker_one(struct asker *asker, enum xseg_op op, uint64_t block)
{
	uint64_t begun_ns = asker->lane->now_ns = clock_now_ns();
	ask(asker, op, block);
	xseg_turn_end(asker->lane);
	while (collect(asker) == 0)
		cpu_relax();
	return clock_now_ns() - begun_ns;
}

double asker_many(struct asker *asker, uint32_t count, uint32_t depth)
{
	uint32_t asked = 0, done = 0;
	uint64_t begun_ns = clock_now_ns();
	while (done < count) {
		asker->lane->now_ns = clock_now_ns();
		for (; asked < count && asked - done < depth; asked++)
			ask(asker, XSEG_OP_READ, asker_block(asker));
		xseg_turn_end(asker->lane);
		uint32_t got = collect(asker);
		done += got;
		if (got == 0)
			cpu_relax();
	}
	return count * 1e9 / (double)(clock_now_ns() - begun_ns);
}
