/* SPDX-License-Identifier: Apache-2.0 */
/* What the pattern blocker keeps to. */
#include <endian.h>
#include <errno.h>
#include <string.h>

#include "tests/lib/blocker_rig.h"

static uint64_t pattern_size;

static const struct span pattern_spans[] = {
	{0, XSEG_SECTOR}, {3 * XSEG_SECTOR, XSEG_PAGE}, {XSEG_PAGE, XSEG_PAGE}, {0, 1024 * 1024}};
static const uint32_t pattern_objects[] = {0, 1, 77, 1u << 20, 0xffffffffu};

static void words(uint8_t *to, uint32_t object, struct span span)
{
	for (uint32_t i = 0; i < span.length; i += 8) {
		uint64_t word = htobe64(object * pattern_size + span.offset + i);
		memcpy(to + i, &word, sizeof(word));
	}
}

static void law_offsets(struct rig *rig)
{
	for (unsigned o = 0; o < countof(pattern_objects); o++)
		for (unsigned s = 0; s < countof(pattern_spans); s++) {
			struct span span = pattern_spans[s];
			words(rig->out, pattern_objects[o], span);
			memset(rig->in, 0, span.length);
			struct xseg_key key = rig_key(rig, o, pattern_objects[o]);
			expect_int(rig, rig_read(rig, key, span, rig->in), 0);
			expect_int(rig, memcmp(rig->in, rig->out, span.length), 0);
		}
}

static void law_compare(struct rig *rig)
{
	for (unsigned s = 0; s < countof(pattern_spans); s++) {
		struct span span = pattern_spans[s];
		struct xseg_key key = rig_key(rig, 0, 12);
		words(rig->out, 12, span);
		expect_int(rig, rig_write(rig, key, span, rig->out, 0), 0);
		for (uint32_t i = 0; i < span.length; i += 1024 - 1) {
			rig->out[i] ^= 1;
			expect_int(rig, rig_write(rig, key, span, rig->out, 0), -EIO);
			rig->out[i] ^= 1;
		}
		key.object++;
		expect_int(rig, rig_write(rig, key, span, rig->out, 0), -EIO);
	}
	expect_int(rig, rig_do(rig, XSEG_OP_FLUSH, rig_key(rig, 0, 0), (struct span){0, 0}, 0), 0);
}

static void law_refused(struct rig *rig)
{
	struct xseg_key key = rig_key(rig, 0, 0);
	struct span sector = {0, XSEG_SECTOR}, beyond = {XSEG_OBJECT_MAX, XSEG_SECTOR};
	expect_int(rig, rig_do(rig, XSEG_OP_DISCARD, key, sector, 0), -EOPNOTSUPP);
	expect_int(rig, rig_do(rig, XSEG_OP_ZERO, key, sector, 0), -EOPNOTSUPP);
	expect_int(rig, rig_read(rig, key, beyond, rig->in), -EINVAL);
}

void blocker_pattern(struct rig *rig, uint64_t object_size)
{
	pattern_size = object_size;
	rig_law(rig, "each word is its own offset", law_offsets);
	rig_law(rig, "writes are compared", law_compare);
	rig_law(rig, "zeros and what is outside are refused", law_refused);
}
