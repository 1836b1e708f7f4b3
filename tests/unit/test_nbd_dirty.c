/* SPDX-License-Identifier: Apache-2.0 */
/* Snapshots and what cannot be written to, as clients see them. */
#include <errno.h>
#include <unistd.h>

#include "tests/lib/unit.h"
#include "tests/unit/nbd_rig.h"

#define K 1024u
#define M (1024u * K)

static const struct map_stretch since[] = {{.offset = 4 * K, .length = 4 * K},
	{.offset = 4 * M, .length = 4 * K}, {.offset = 5 * M, .length = M},
	{.offset = 8 * M, .length = 4 * M}};

/* One bit for each of `length` bytes in units of 4 KiB, out of the two chunks of one answer. */
static unsigned ask_dirty(struct rig *rig, int fd, unsigned flags, uint64_t offset, uint32_t length,
	uint8_t changed[RIG_SIZE / 4096])
{
	static uint8_t wire[NBD_REQUEST_HEADER], head[NBD_CHUNK_HEADER], body[16 * K];
	uint64_t at = offset;
	unsigned count = 0;
	rig_request(wire, NBD_CMD_BLOCK_STATUS, flags, 1, offset, length);
	ck_assert(rig_send(rig, fd, wire, sizeof(wire)));
	for (unsigned context = 1; context <= 2; context++) {
		ck_assert(rig_receive(rig, fd, head, sizeof(head)));
		ck_assert_uint_eq(nbd_get16(head + 4), context == 2 ? NBD_CHUNK_DONE : 0);
		ck_assert_uint_eq(nbd_get16(head + 6), NBD_CHUNK_BLOCK_STATUS);
		ck_assert(rig_receive(rig, fd, body, nbd_get32(head + 16)));
		ck_assert_uint_eq(nbd_get32(body), context);
		count = (nbd_get32(head + 16) - 4) / 8;
	}
	for (unsigned i = 0; i < count; i++) {
		uint64_t to = at + nbd_get32(body + 4 + 8 * i);
		for (; at < to; at += 4 * K)
			changed[at / (4 * K)] = (uint8_t)nbd_get32(body + 8 + 8 * i);
	}
	ck_assert_uint_le(at, offset + length);
	return count;
}

static bool has_changed(uint64_t at)
{
	bool is = at >= RIG_SIZE - M; /* it was smaller */
	for (unsigned i = 0; i < countof(since); i++)
		is |= at >= since[i].offset && at < since[i].offset + since[i].length;
	return is;
}

UNIT_LOOP(test_dirty, 2)
{
	static uint8_t changed[RIG_SIZE / 4096];
	struct rig *rig = rig_new();
	rig->stretches = since;
	rig->stretch_count = countof(since);
	rig->stretch_room = (unsigned)_i + 2; /* of one object at most two */
	int fd = rig_client(rig);
	rig_go(rig, fd, "one", true, false);
	memset(changed, 2, sizeof(changed));
	ck_assert_uint_eq(ask_dirty(rig, fd, 0, 0, RIG_SIZE, changed), 10);
	for (uint64_t at = 0; at < RIG_SIZE; at += 4 * K)
		ck_assert_msg(changed[at / (4 * K)] == has_changed(at), "at %llu",
			(unsigned long long)at);
	ck_assert_uint_eq(ask_dirty(rig, fd, 0, 5 * M + 4 * K, M, changed), 2);
	ck_assert(changed[6 * M / (4 * K) - 1] && !changed[6 * M / (4 * K)]);
	ck_assert_uint_eq(ask_dirty(rig, fd, NBD_CMD_FLAG_REQ_ONE, 0, RIG_SIZE, changed), 1);
	/* gone, or nobody knows: all may have changed */
	rig->fail[XSEG_OP_CONTROL] = -ENOENT;
	ck_assert_uint_eq(ask_dirty(rig, fd, 0, M, M, changed), 1);
	ck_assert(changed[M / (4 * K)]);
	rig->fail[XSEG_OP_CONTROL] = -EIO;
	ck_assert_uint_eq(rig_do(rig, fd, NBD_CMD_BLOCK_STATUS, 0, 0, M, NULL), NBD_EIO);
	close(fd);
	rig_free(rig);
}

/* What cannot be written to is served to be read, also by a composer that knows nothing of it. */
UNIT_LOOP(test_read_only, 2)
{
	static uint8_t data[4 * K];
	struct rig *rig = rig_new();
	rig->volume[0].refuses = _i ? -EBUSY : -EROFS;
	int fd = rig_client(rig);
	rig_go(rig, fd, _i ? "one/ro" : "one", true, true);
	ck_assert_uint_eq(rig->volume[0].read_opens, 1);
	ck_assert_uint_eq(rig_do(rig, fd, NBD_CMD_READ, 0, 0, 4 * K, data), NBD_OK);
	ck_assert_uint_eq(rig_do(rig, fd, NBD_CMD_WRITE, 0, 0, 4 * K, data), NBD_EPERM);
	rig_composer(rig, 2);
	rig->now_ns += 200000000;
	rig_turn(rig, 100);
	ck_assert_uint_eq(rig->volume[0].opens, 1);
	ck_assert_uint_eq(rig->volume[0].read_opens, 2);
	close(fd);
	rig_free(rig);
}
