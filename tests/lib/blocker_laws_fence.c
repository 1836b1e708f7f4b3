/* SPDX-License-Identifier: Apache-2.0 */
/*
 * FENCE and LEAVE: who may write to a volume. `all` asks a store through one segment, `shared`
 * through two that have the same objects.
 */
#include <errno.h>

#include "tests/lib/blocker_rig.h"

#define VOLUME 300u

static const struct span span = {0, 2 * XSEG_PAGE}, none = {0, 0};

static struct xseg_key key_of(const struct rig *rig) { return rig_key(rig, VOLUME, 1); }

static int fence(struct rig *rig, uint64_t term, unsigned flags)
{
	return rig_control(rig, key_of(rig), XSEG_CONTROL_FENCE, term, flags);
}

static int leave(struct rig *rig)
{
	return rig_control(rig, key_of(rig), XSEG_CONTROL_LEAVE, 0, 0);
}

static int put(struct rig *rig, struct xseg_key key, uint64_t seed)
{
	pattern_fill(rig->out, key, span, seed);
	return rig_write(rig, key, span, rig->out, 0);
}

/* Data of that term: as a cache writes it back. */
static int put_late(struct rig *rig, struct xseg_key key, uint64_t seed, uint64_t term)
{
	struct client_request request = {.op = XSEG_OP_WRITE,
		.key = key,
		.length = span.length,
		.arg1 = term,
		.send = rig->out,
		.send_size = span.length};
	pattern_fill(rig->out, key, span, seed);
	return client_do(&rig->client, &request);
}

static void expect_seed(struct rig *rig, struct xseg_key key, uint64_t seed)
{
	expect_int(rig, rig_read(rig, key, span, rig->in), 0);
	expect_int(rig, pattern_check(rig->in, key, span, seed), -1);
}

/* Nothing that changes the volume's objects goes through, and nothing of it is done. */
static void expect_kept_out(struct rig *rig, uint64_t seed)
{
	struct xseg_key key = key_of(rig), other = rig_key(rig, VOLUME + 1, 1);
	expect_int(rig, put(rig, key, 99), -ESTALE);
	expect_int(rig, rig_do(rig, XSEG_OP_ZERO, key, span, 0), -ESTALE);
	expect_int(rig, rig_do(rig, XSEG_OP_DISCARD, key, span, 0), -ESTALE);
	expect_int(rig, rig_copy(rig, key, other, span), -ESTALE);
	expect_seed(rig, key, seed);
	expect_int(rig, put(rig, other, 7), 0);
	expect_int(rig, rig_copy(rig, other, key, span), 0);
	expect_int(rig, rig_do(rig, XSEG_OP_DELETE, other, none, 0), 0);
}

static void law_alone(struct rig *rig)
{
	int error = fence(rig, 5, 0);
	if (error == -EOPNOTSUPP) {
		expect_int(rig, leave(rig), -EOPNOTSUPP);
		return;
	}
	expect_int(rig, error, 0);
	expect_int(rig, fence(rig, 5, 0), 0);
	expect_int(rig, put(rig, key_of(rig), 1), 0);
	expect_int(rig, fence(rig, 4, 0), -ESTALE);
	expect_int(rig, put(rig, key_of(rig), 2), 0);
	expect_int(rig, leave(rig), 0);
	expect_int(rig, put(rig, key_of(rig), 4), 0); /* nobody else has come: it is still his */
	expect_int(rig, leave(rig), 0);
	expect_int(rig, fence(rig, 6, 0), 0);
	expect_int(rig, put(rig, key_of(rig), 3), 0);
	expect_int(rig, fence(rig, 7, XSEG_F_READ_ONLY), 0);
	expect_kept_out(rig, 3);
	expect_int(rig, fence(rig, 8, 0), 0);
	expect_int(rig, rig_do(rig, XSEG_OP_DELETE, key_of(rig), none, 0), 0);
}

static struct rig *second;

static void law_handover(struct rig *rig)
{
	expect_int(rig, fence(rig, 15, 0), 0);
	expect_int(rig, put(rig, key_of(rig), 1), 0);
	expect_seed(second, key_of(rig), 1);
	expect_kept_out(second, 1);
	expect_int(rig, fence(second, 16, 0), 0);
	expect_kept_out(rig, 1);
	expect_int(rig, put(second, key_of(rig), 2), 0);
	expect_seed(rig, key_of(rig), 2);
	expect_int(rig, fence(rig, 15, 0), -ESTALE);
	expect_kept_out(rig, 2);
	expect_true(rig, !second->failed);
}

/* A term is one owner's: in the same one he comes by another way now, by that alone, and back. */
static void law_another_way(struct rig *rig)
{
	struct xseg_key key = key_of(rig);
	expect_int(rig, put_late(second, key, 2, 15), 0);
	expect_int(rig, put_late(second, key, 2, 14), -ESTALE);
	expect_int(rig, fence(rig, 16, 0), 0);
	expect_kept_out(second, 2);
	expect_int(rig, put_late(rig, key, 5, 15), 0);
	expect_int(rig, put_late(rig, key, 5, 14), -ESTALE);
	expect_seed(second, key, 5);
	expect_int(rig, fence(second, 16, 0), 0);
	expect_kept_out(rig, 5);
	expect_int(rig, put(second, key, 2), 0);
	expect_true(rig, !second->failed);
}

/* The first has it again: what a cache of its own still has from before is older. */
static void law_late(struct rig *rig)
{
	struct xseg_key key = key_of(rig);
	expect_int(rig, fence(rig, 18, 0), 0);
	expect_int(rig, put_late(rig, key, 4, 15), -ESTALE);
	expect_int(rig, put_late(rig, key, 4, 1), -ESTALE);
	expect_seed(rig, key, 2);
	expect_int(rig, put_late(rig, key, 4, 18), 0);
	expect_int(rig, fence(rig, 19, 0), 0);
	expect_int(rig, put_late(rig, key, 5, 18), 0);
	expect_int(rig, put_late(rig, key, 6, 16), -ESTALE);
	expect_seed(rig, key, 5);
	expect_int(rig, fence(second, 20, 0), 0);
	expect_int(rig, put(second, key, 2), 0);
}

static void law_read_only(struct rig *rig)
{
	expect_int(rig, leave(second), 0);
	expect_int(rig, put(second, key_of(rig), 2), 0);
	expect_int(rig, leave(second), 0);
	expect_int(rig, fence(rig, 21, XSEG_F_READ_ONLY), 0);
	expect_kept_out(rig, 2);
	expect_kept_out(second, 2);
	expect_int(rig, fence(second, 22, 0), 0);
	expect_int(rig, put(second, key_of(rig), 3), 0);
	expect_kept_out(rig, 3);
	expect_int(rig, rig_do(second, XSEG_OP_DELETE, key_of(rig), none, 0), 0);
	expect_true(rig, !second->failed);
}

void blocker_fence(struct rig *rig)
{
	rig_law(rig, "who has fenced a volume writes to it, by the highest term", law_alone);
}

void blocker_fence_shared(struct rig *rig, struct rig *other)
{
	second = other;
	other->volume = rig->volume;
	rig_law(rig, "the last one to fence a volume writes to it, and nobody else", law_handover);
	rig_law(rig, "in one term that is the last one, too: a way to its owner", law_another_way);
	rig_law(rig, "what is from before another one's term comes too late", law_late);
	rig_law(rig, "nobody writes to one that is fenced to be read", law_read_only);
}
