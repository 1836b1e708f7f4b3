/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fuzzes what a mapper is asked: a client that speaks to it past its composer, and means no good.
 * The input is a program of questions about a volume, its snapshot and a clone of that; several may
 * be on their way at once. Each is answered; afterwards good ones are answered as ever, and fsck
 * finds nothing that the mapper itself has done wrong.
 *
 * Each input has a mapper of its own over a store in memory (tests/unit/mapper_rig.h).
 */
#include <base/log.h>
#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <unistd.h>

#include "tests/fuzz/fuzz.h"
#include "tests/unit/mapper_rig.h"

#define STEPS 64u
#define FLYING 8u /* questions at once */
#define IN_MAX 4096u
#define OUT_MAX 65536u
#define ANSWER_NS 50000000000u /* on a busy machine, too */
#define GOOD_NAME "the volume that no program makes"

struct question {
	struct client_request request;
	uint8_t in[IN_MAX], out[OUT_MAX];
	bool flies;
};

static struct mrig m;
static struct question questions[FLYING];

/* --- the rig's checks: nobody runs them as a test here ------------------------------------- */

void __wrap__mark_point(const char *file, int line);
_Noreturn void __wrap__ck_assert_failed(
	const char *file, int line, const char *expression, const char *message, ...);

void __wrap__mark_point(const char *file, int line) { (void)file, (void)line; }

_Noreturn void __wrap__ck_assert_failed(
	const char *file, int line, const char *expression, const char *message, ...)
{
	fprintf(stderr, "ERROR: %s:%d: %s (%s)\n", file, line, expression, message);
	abort();
}

/* --- what a question is made of ------------------------------------------------------------- */

/* Of the three, of those that a program may make, of none. */
static uint64_t take_id(struct fuzz_bytes *in)
{
	unsigned byte = (unsigned)fuzz_take(in, 1);
	return byte < 250 ? byte % 8 : fuzz_take(in, 8);
}

static uint64_t take_number(struct fuzz_bytes *in)
{
	unsigned byte = (unsigned)fuzz_take(in, 1);
	switch (byte % 8) {
	case 0: return 0;
	case 1: return byte / 8;
	case 2: return (uint64_t)fuzz_take(in, 2) * XSEG_SECTOR;
	case 3: return (uint64_t)fuzz_take(in, 2) * MRIG_OBJECT;
	case 4: return UINT64_MAX - byte / 8;
	case 5: return (uint64_t)1 << byte / 8 * 2;
	case 6: return fuzz_take(in, 4);
	default: return fuzz_take(in, 8);
	}
}

static void take_name(struct fuzz_bytes *in, char *name)
{
	static const char *const names[] = {"a", "a@s", "c", "x", "c@y", "", "/", "\xff"};
	unsigned byte = (unsigned)fuzz_take(in, 1);
	size_t length = byte / 8 == 31 ? VOLUME_NAME_LENGTH_MAX + 1 : 0;
	memset(name, 'n', length);
	if (length == 0)
		snprintf(name, VOLUME_NAME_LENGTH_MAX + 1, "%s", names[byte % 8]);
}

static void fill_ask(struct fuzz_bytes *in, uint8_t *bytes)
{
	struct map_ask ask = {.id = take_id(in), .size = take_number(in)};
	take_name(in, ask.name);
	take_name(in, ask.other);
	if (fuzz_take(in, 1) & 1) {
		ask.created_ns = take_number(in);
		ask.state = take_number(in);
		ask.limits = (struct map_change_limits){
			take_number(in), take_number(in), take_number(in)};
	}
	memcpy(bytes, &ask, sizeof(ask));
}

static void fill_info(struct fuzz_bytes *in, uint8_t *bytes)
{
	struct xseg_volume_info info = {.id = take_id(in), .size = take_number(in)};
	take_name(in, info.name);
	if (fuzz_take(in, 1) & 1) {
		info.object_size = (uint32_t)take_number(in);
		info.state = (uint32_t)take_number(in);
		info.flags = (uint32_t)take_number(in);
	}
	memcpy(bytes, &info, sizeof(info));
}

static void fill_objects(struct fuzz_bytes *in, uint8_t *bytes)
{
	for (unsigned i = 0; i < MAP_BITMAP_MAX && in->left > 8; i++) {
		struct map_object object = {.owner = take_id(in),
			.epoch = (uint32_t)fuzz_take(in, 1),
			.object = (uint32_t)take_number(in)};
		memcpy(bytes + i * sizeof(object), &object, sizeof(object));
	}
}

static void fill_deltas(struct fuzz_bytes *in, uint8_t *bytes, unsigned count)
{
	for (unsigned i = 0; i < count && i < IN_MAX / sizeof(struct map_update); i++) {
		struct map_update new = {.object = (uint32_t)fuzz_take(in, 1) % 16,
			.flags = (uint32_t)fuzz_take(in, 1) % 8,
			.epoch = (uint32_t)fuzz_take(in, 1) % 16};
		if (new.flags & 1) {
			new.parent_epoch = (uint32_t)fuzz_take(in, 1) % 16;
			new.parent_flags = (uint32_t)fuzz_take(in, 1) % 3;
			new.parent_owner = take_id(in);
			new.has[0] = fuzz_take(in, 2);
		}
		memcpy(bytes + i * sizeof(new), &new, sizeof(new));
	}
}

/* Words anywhere in what it says. */
static void scribble(struct fuzz_bytes *in, uint8_t *bytes)
{
	for (unsigned count = (unsigned)fuzz_take(in, 1) % 4; count > 0; count--) {
		size_t at = fuzz_take(in, 2) % (IN_MAX - sizeof(uint64_t));
		uint64_t value = take_number(in);
		memcpy(bytes + at, &value, sizeof(value));
	}
}

static void size_data(struct fuzz_bytes *in, struct client_request *request)
{
	unsigned byte = (unsigned)fuzz_take(in, 1);
	request->send_size = request->receive_size = IN_MAX;
	if (byte % 8 == 1)
		request->receive_size = OUT_MAX;
	else if (byte % 8 == 2)
		request->send_size = request->receive_size = byte * 4u;
	else if (byte % 8 == 3)
		request->send_size = request->receive_size = (uint32_t)fuzz_take(in, 2) % IN_MAX;
	request->length = request->receive_size;
	if (byte == 255)
		request->length = (uint32_t)take_number(in);
}

/* --- questions ------------------------------------------------------------------------------ */

static void make_question(struct fuzz_bytes *in, struct question *question)
{
	static const enum xseg_op ops[] = {XSEG_OP_INFO, XSEG_OP_LIST, XSEG_OP_CREATE,
		XSEG_OP_UPDATE, XSEG_OP_REMOVE, XSEG_OP_CONTROL, XSEG_OP_CONTROL, XSEG_OP_CONTROL};
	struct client_request *request = &question->request;
	memset(question, 0, sizeof(*question));
	*request = (struct client_request){.op = ops[fuzz_take(in, 1) % countof(ops)],
		.key.volume = take_id(in),
		.send = question->in,
		.receive = question->out,
		.context = question};
	if (request->op == XSEG_OP_CONTROL) {
		request->arg0 = fuzz_take(in, 1) % (MAP_CONTROLS + 1u);
		request->arg1 = take_number(in);
	}
	if (request->op == XSEG_OP_LIST)
		request->arg0 = take_number(in);
	if (request->op != XSEG_OP_CONTROL)
		fill_info(in, question->in);
	else if (request->arg0 == MAP_PUBLISH)
		fill_deltas(in, question->in, (unsigned)request->arg1);
	else if (request->arg0 == MAP_BITMAP)
		fill_objects(in, question->in);
	else
		fill_ask(in, question->in);
	scribble(in, question->in);
	size_data(in, request);
}

/* Whole pages. */
static uint32_t room_of(const struct client_request *request)
{
	uint32_t send = request->send_size, receive = request->receive_size;
	return ((send > receive ? send : receive) + XSEG_PAGE - 1) / XSEG_PAGE * XSEG_PAGE;
}

static void collect(bool all)
{
	struct client_request *done;
	while (client_collect(&m.rig.client, &done) == 0) {
		struct question *question = done->context;
		question->flies = false;
		must(done->result != -ETIMEDOUT);
		must(done->result > -4096 && done->result <= 0);
		must(done->answer_length <= room_of(done));
		if (!all)
			break;
	}
}

static void step(struct fuzz_bytes *in)
{
	struct question *question = questions;
	bool waits = fuzz_take(in, 1) & 3;
	while (question < questions + FLYING && question->flies)
		question++;
	if (question == questions + FLYING) {
		collect(false);
		return;
	}
	make_question(in, question);
	question->flies = client_start(&m.rig.client, &question->request) == 0;
	if (waits)
		collect(true);
}

/* --- before and after ----------------------------------------------------------------------- */

static uint64_t make_child(enum map_control how, uint64_t of, const char *name, uint64_t id)
{
	struct map_ask ask = {.id = id};
	snprintf(ask.name, sizeof(ask.name), "%s", name);
	must(mrig_ask(&m, how, of, &ask) == 0);
	return id;
}

/* Objects 0 to 2 of "a" (1) are there, "a@s" (2) is its snapshot, "c" (3) a clone of that. */
static void make_world(void)
{
	struct map_head_info head;
	struct xseg_volume_info info = {.id = 1, .size = 16 * MRIG_OBJECT, .name = "a"};
	struct client_request create = {.op = XSEG_OP_CREATE,
		.length = sizeof(info),
		.send = &info,
		.send_size = sizeof(info),
		.receive = &info,
		.receive_size = sizeof(info)};
	must(client_do(&m.rig.client, &create) == 0);
	must(mrig_acquire(&m, 1, &head) == 0);
	for (uint32_t i = 0; i < 3; i++)
		must(mrig_publish(&m, 1, i, head.epoch) == 0);
	make_child(MAP_CLONE, make_child(MAP_SNAP, 1, "a@s", 2), "c", 3);
	must(mrig_acquire(&m, 3, &head) == 0);
}

static int sweep(unsigned flags)
{
	const struct map_ask as_fast_as_it_can = {0};
	return mrig_control(&m, MAP_SWEEP, 0, flags, &as_fast_as_it_can, sizeof(as_fast_as_it_can));
}

/*
 * What a composer may say without its being true (that there is an object) can be found afterwards;
 * damage cannot, nor can a name or record that leads nowhere.
 */
static void look_after(void)
{
	static const unsigned bad = 1u << MAP_FOUND_BAD_PAGE | 1u << MAP_FOUND_BAD_RECORD |
				    1u << MAP_FOUND_HALF_RECORD | 1u << MAP_FOUND_OVERLAP |
				    1u << MAP_FOUND_BAD_ENTRY | 1u << MAP_FOUND_BAD_NAME |
				    1u << MAP_FOUND_BAD_COUNT;
	struct map_sweep_state state;
	struct map_finding_info found;
	int rc;
	do {
		rc = sweep(MAP_SWEEP_STOP);
		must(rc == 0);
		rc = sweep(MAP_SWEEP_START | MAP_SWEEP_EXPLAIN);
	} while (rc == -EBUSY);
	must(rc == 0);
	do {
		usleep(100);
		must(mrig_control(&m, MAP_SWEEP_STATE, 0, 0, NULL, 0) == 0);
		memcpy(&state, m.out, sizeof(state));
	} while (state.running);
	must(state.error == 0 || state.error == -EBUSY);
	for (uint64_t i = 0; i < state.findings; i++) {
		must(sizeof(state) + (i + 1) * sizeof(found) <= m.size);
		memcpy(&found, m.out + sizeof(state) + i * sizeof(found), sizeof(found));
		must(!(bad >> found.finding & 1));
	}
}

static void still_serves(bool look)
{
	struct map_head_info head;
	uint64_t id;
	must(mrig_create(&m, GOOD_NAME, 4 * MRIG_OBJECT, &id) == 0);
	must(mrig_acquire(&m, id, &head) == 0);
	must(mrig_publish(&m, id, 1, head.epoch) == 0);
	must(mrig_word(&m, id, 1) == map_word(head.epoch, head.self, 0));
	must(mrig_control(&m, MAP_RELEASE, id, 0, NULL, 0) == 0);
	if (look)
		look_after();
	must(mrig_remove(&m, id) == 0);
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	(void)argc;
	(void)argv;
	/* each question goes from thread to thread: much faster where they need not be woken */
	cpu_set_t here;
	CPU_ZERO(&here);
	CPU_SET(sched_getcpu(), &here);
	sched_setaffinity(0, sizeof(here), &here);
	log_level_set(LOG_LEVEL_ERROR);
	scratch_begin();
	atexit(scratch_end);
	return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct fuzz_bytes in = {.at = data, .left = size};
	bool look = fuzz_take(&in, 1) % 8 == 0;
	mrig_begin(&m, 1, ",threads=2");
	m.rig.client.timeout_ns = ANSWER_NS;
	make_world();
	for (unsigned i = 0; i < STEPS && in.left > 0; i++)
		step(&in);
	collect(true);
	still_serves(look);
	mrig_end(&m);
	return 0;
}
