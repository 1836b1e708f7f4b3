/* SPDX-License-Identifier: Apache-2.0 */
/* The tools of the blockers' checker. */
#include "tests/lib/blocker_rig.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define SAID_MAX 5u

int rig_open(struct rig *rig, const char *segment, const char *peer)
{
	char why[XSEG_WHY_SIZE] = "";
	int error = client_open(&rig->client, segment, peer, why);
	if (error) {
		fprintf(stderr, "blocker_check: %s\n", why);
		return error;
	}
	rig->segment = segment;
	rig->peer = peer;
	rig->out = malloc(XSEG_OBJECT_MAX);
	rig->in = malloc(XSEG_OBJECT_MAX);
	must(rig->out && rig->in);
	/* a store may outlive a run, so each has volumes of its own */
	if (!rig->volume)
		rig->volume = (clock_now_ns() ^ (uint64_t)time(NULL) << 32) & ~0xffffull;
	return 0;
}

void rig_close(struct rig *rig)
{
	client_close(&rig->client);
	free(rig->out);
	free(rig->in);
}

/* --- TAP ------------------------------------------------------------------------------- */

void rig_law(struct rig *rig, const char *name, void (*law)(struct rig *rig))
{
	rig->failed = false;
	rig->said = 0;
	law(rig);
	rig->laws++;
	rig->broken += rig->failed;
	printf("%sok %u - %s\n", rig->failed ? "not " : "", rig->laws, name);
	fflush(stdout);
}

void rig_broken(struct rig *rig, const char *file, int line, const char *format, ...)
{
	va_list args;
	rig->failed = true;
	if (rig->said++ >= SAID_MAX)
		return;
	va_start(args, format);
	printf("# %s:%d: ", file, line);
	vprintf(format, args);
	printf("\n");
	va_end(args);
}

/* --- operations ------------------------------------------------------------------------- */

struct xseg_key rig_key(const struct rig *rig, unsigned volume, uint32_t object)
{
	return (struct xseg_key){.volume = rig->volume + volume, .object = object};
}

int rig_read(struct rig *rig, struct xseg_key key, struct span span, void *to)
{
	struct client_request request = {.op = XSEG_OP_READ,
		.key = key,
		.offset = span.offset,
		.length = span.length,
		.receive = to,
		.receive_size = span.length};
	int error = client_do(&rig->client, &request);
	return error ? error : request.answer_length == span.length ? 0 : -EBADMSG;
}

int rig_write(
	struct rig *rig, struct xseg_key key, struct span span, const void *from, unsigned flags)
{
	struct client_request request = {.op = XSEG_OP_WRITE,
		.flags = flags,
		.key = key,
		.offset = span.offset,
		.length = span.length,
		.send = from,
		.send_size = span.length};
	return client_do(&rig->client, &request);
}

int rig_do(struct rig *rig, enum xseg_op op, struct xseg_key key, struct span span, unsigned flags)
{
	struct client_request request = {
		.op = op, .flags = flags, .key = key, .offset = span.offset, .length = span.length};
	return client_do(&rig->client, &request);
}

int rig_control(struct rig *rig, struct xseg_key key, uint64_t verb, uint64_t term, unsigned flags)
{
	struct client_request request = {.op = XSEG_OP_CONTROL,
		.key = {.volume = key.volume},
		.arg0 = verb,
		.arg1 = term,
		.flags = flags};
	return client_do(&rig->client, &request);
}

int rig_copy(struct rig *rig, struct xseg_key to, struct xseg_key from, struct span span)
{
	struct client_request request = {.op = XSEG_OP_COPY,
		.key = to,
		.offset = span.offset,
		.length = span.length,
		.arg0 = from.object | (uint64_t)from.epoch << 32,
		.arg1 = from.volume};
	return client_do(&rig->client, &request);
}

int rig_info(struct rig *rig, struct xseg_key key, struct xseg_object_info *info)
{
	struct client_request request = {
		.op = XSEG_OP_INFO, .key = key, .receive = info, .receive_size = sizeof(*info)};
	int error = client_do(&rig->client, &request);
	rig->space_known = request.value != XSEG_INFO_SPACE_UNKNOWN;
	return error ? error : request.answer_length == sizeof(*info) ? 0 : -EBADMSG;
}

int rig_space(struct rig *rig, struct xseg_space *space)
{
	struct client_request request = {
		.op = XSEG_OP_INFO, .receive = space, .receive_size = sizeof(*space)};
	int error = client_do(&rig->client, &request);
	return error ? error : request.answer_length == sizeof(*space) ? 0 : -EBADMSG;
}

int rig_status(struct rig *rig, struct xseg_key key, struct span span,
	struct xseg_status_extent *out, int room)
{
	struct client_request request = {.op = XSEG_OP_STATUS,
		.key = key,
		.offset = span.offset,
		.length = span.length,
		.receive = out,
		.receive_size = (uint32_t)room * (uint32_t)sizeof(*out)};
	int error = client_do(&rig->client, &request);
	if (error)
		return error;
	if (request.answer_length != request.value * sizeof(*out))
		return -EBADMSG;
	/* pages are whole, so there may be more than we asked for */
	return request.value < (uint64_t)room ? (int)request.value : room;
}

int rig_list(struct rig *rig, struct xseg_key of, uint64_t *cursor, struct xseg_key *out, int room)
{
	struct client_request request = {.op = XSEG_OP_LIST,
		.key = of,
		.length = (uint32_t)room * (uint32_t)sizeof(*out),
		.arg0 = *cursor,
		.receive = out,
		.receive_size = (uint32_t)room * (uint32_t)sizeof(*out)};
	int error = client_do(&rig->client, &request);
	*cursor = request.value;
	return error ? error : (int)(request.answer_length / sizeof(*out));
}

int rig_cas_get(struct rig *rig, struct xseg_key key, void *to, uint32_t room, uint64_t *version)
{
	struct client_request request = {.op = XSEG_OP_CAS,
		.key = key,
		.arg1 = XSEG_CAS_GET,
		.receive = to,
		.receive_size = room};
	int error = client_do(&rig->client, &request);
	*version = request.value;
	return error ? error : (int)request.answer_length;
}

int rig_cas_put(
	struct rig *rig, struct xseg_key key, const void *from, uint32_t size, uint64_t *version)
{
	struct client_request request = {.op = XSEG_OP_CAS,
		.key = key,
		.length = size,
		.arg0 = *version,
		.arg1 = XSEG_CAS_PUT,
		.send = from,
		.send_size = size};
	int error = client_do(&rig->client, &request);
	*version = request.value;
	return error;
}

int rig_cas_delete(struct rig *rig, struct xseg_key key, uint64_t *version)
{
	struct client_request request = {
		.op = XSEG_OP_CAS, .key = key, .arg0 = *version, .arg1 = XSEG_CAS_DELETE};
	int error = client_do(&rig->client, &request);
	*version = request.value;
	return error;
}

/* --- bytes ----------------------------------------------------------------------------------- */

static uint64_t mix(uint64_t x)
{
	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
	return x ^ (x >> 31);
}

/* Spans are whole sectors, so words do not straddle their ends. */
static uint64_t word_at(struct xseg_key key, uint64_t offset, uint64_t seed)
{
	return mix(seed + mix(key.volume ^ mix((uint64_t)key.epoch << 32 | key.object) ^ offset)) |
	       1;
}

void pattern_fill(uint8_t *to, struct xseg_key key, struct span span, uint64_t seed)
{
	for (uint32_t i = 0; i < span.length; i += 8) {
		uint64_t word = word_at(key, span.offset + i, seed);
		memcpy(to + i, &word, sizeof(word));
	}
}

long pattern_check(const uint8_t *from, struct xseg_key key, struct span span, uint64_t seed)
{
	for (uint32_t i = 0; i < span.length; i += 8) {
		uint64_t word = word_at(key, span.offset + i, seed);
		if (memcmp(from + i, &word, sizeof(word)) != 0)
			return (long)i;
	}
	return -1;
}

long zeros_check(const uint8_t *from, uint32_t length)
{
	for (uint32_t i = 0; i < length; i++)
		if (from[i])
			return (long)i;
	return -1;
}

uint64_t rig_random(struct rig *rig) { return mix(rig->seed += 0x9e3779b97f4a7c15ull); }
