/* SPDX-License-Identifier: Apache-2.0 */
/* A stretch of a volume as stretches of objects: laws over many random requests. */
#include <xseg/op.h>

#include "peers/volume/volume_span.h"
#include "tests/lib/unit.h"

#define ROUNDS 20000

struct request {
	uint64_t offset;
	uint32_t length;
	unsigned shift;
};

/* Near borders, in the depth of large volumes, whole and crooked. */
static struct request draw(uint64_t *seed)
{
	struct request r = {.shift = 12 + (unsigned)(random_next(seed) % 11)};
	uint64_t object_size = 1ull << r.shift;
	uint64_t object = random_next(seed) >> (32 + random_next(seed) % 31);
	uint64_t sectors = object_size / XSEG_SECTOR;
	r.offset = object * object_size + random_next(seed) % sectors * XSEG_SECTOR;
	r.length =
		(uint32_t)(1 + random_next(seed) % (XSEG_OBJECT_MAX / XSEG_SECTOR)) * XSEG_SECTOR;
	if (random_next(seed) % 4 == 0)
		r.length = XSEG_SECTOR * (uint32_t)(1 + random_next(seed) % 16);
	if (r.length > XSEG_OBJECT_MAX)
		r.length = XSEG_OBJECT_MAX;
	return r;
}

/* One part: in its own object, beginning where the one before ended. */
static bool part_is_right(
	const struct request *r, const struct volume_span *span, uint32_t at, uint32_t last)
{
	bool right = span->at == at && span->length > 0;
	right &= (uint64_t)span->offset + span->length <= 1ull << r->shift;
	right &= ((uint64_t)span->object << r->shift) + span->offset == r->offset + at;
	if (at > 0)
		right &= span->object == last + 1 && span->offset == 0;
	/* pages of the request stay pages of the object: data can be handed on */
	return right && span->offset % XSEG_PAGE == (r->offset + at) % XSEG_PAGE;
}

/* The parts cover the request without gap or overlap; how many, or 0. */
static unsigned count_parts(const struct request *r)
{
	struct volume_span span;
	uint32_t at = 0, last = 0;
	unsigned parts = 0;
	while (volume_span_at(r->offset, r->length, r->shift, at, &span)) {
		if (!part_is_right(r, &span, at, last))
			return 0;
		last = span.object;
		at += span.length;
		parts++;
	}
	return at == r->length ? parts : 0;
}

UNIT(test_parts)
{
	uint64_t seed = 4711;
	for (unsigned i = 0; i < ROUNDS; i++) {
		struct request r = draw(&seed);
		if (r.offset >> r.shift > UINT32_MAX - 1025)
			continue;
		unsigned parts = count_parts(&r);
		ck_assert_msg(parts > 0, "%llu+%u, shift %u", (unsigned long long)r.offset,
			r.length, r.shift);
		ck_assert(volume_span_single(r.offset, r.length, r.shift) == (parts == 1));
	}
}

UNIT(test_borders)
{
	struct volume_span span;
	ck_assert(!volume_span_at(4096, 0, 12, 0, &span));
	ck_assert(volume_span_single(0, 4096, 12));
	ck_assert(!volume_span_single(512, 4096, 12));
	ck_assert(volume_span_single(0, XSEG_OBJECT_MAX, 22));
	ck_assert(!volume_span_single(512, XSEG_OBJECT_MAX, 22));
	/* the very last object there can be */
	uint64_t end = 1ull << (32 + 22);
	ck_assert(volume_span_at(end - 512, 512, 22, 0, &span));
	ck_assert_uint_eq(span.object, UINT32_MAX);
	ck_assert_uint_eq(span.offset, XSEG_OBJECT_MAX - 512);
	ck_assert(volume_span_single(end - 512, 512, 22));
}
