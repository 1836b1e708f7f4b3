/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fixed pools: things of one size, as many as there can ever be. Memory is touched when it is
 * first needed. A free item holds the number of the next free one in its first four bytes.
 *
 * Units: items. Errors: 0 or -errno. Ownership: the caller's. Threads: one at a time.
 * Blocking: none.
 */
#ifndef SKERRY_BASE_SLAB_H
#define SKERRY_BASE_SLAB_H

#include <base/must.h>
#include <stddef.h>
#include <stdint.h>

#define SLAB_NONE 0xffffffffu

struct slab {
	uint8_t *base;
	size_t item_size;
	uint32_t count, touched, free;
};

int slab_init(struct slab *slab, size_t item_size, uint32_t count);
void slab_fini(struct slab *slab);
/* The memory of the next `count`, all at once: a fault for each page takes longer. Never fails. */
void slab_expect(struct slab *slab, uint32_t count);

static inline void *slab_at(const struct slab *slab, uint32_t index)
{
	return slab->base + (size_t)index * slab->item_size;
}

/* NULL: all are out. A fresh one is all zero; in another one is what was, but for four bytes. */
static inline void *slab_get(struct slab *slab, uint32_t *index)
{
	uint32_t got = slab->free;
	if (likely(got != SLAB_NONE)) {
		uint32_t *item = slab_at(slab, got);
		slab->free = *item;
		*index = got;
		return item;
	}
	if (slab->touched == slab->count)
		return NULL;
	*index = slab->touched++;
	return slab_at(slab, *index);
}

static inline void slab_put(struct slab *slab, uint32_t index)
{
	uint32_t *item = slab_at(slab, index);
	*item = slab->free;
	slab->free = index;
}

/* The same by item, for those who keep no numbers. */
static inline void *slab_take(struct slab *slab)
{
	uint32_t index;
	return slab_get(slab, &index);
}

static inline void slab_give(struct slab *slab, void *item)
{
	slab_put(slab, (uint32_t)((size_t)((uint8_t *)item - slab->base) / slab->item_size));
}

#endif
