/* SPDX-License-Identifier: Apache-2.0 */
/* Fixed pools: address space for all there can be, memory for those that were needed. */
#include <base/slab.h>
#include <errno.h>
#include <sys/mman.h>

#define SLAB_PAGE ((uintptr_t)4096)
#define SLAB_HUGE ((uintptr_t)2 << 20)

int slab_init(struct slab *slab, size_t item_size, uint32_t count)
{
	must(item_size >= sizeof(uint32_t));
	void *base = mmap(NULL, item_size * count, PROT_READ | PROT_WRITE,
		MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (base == MAP_FAILED)
		return -errno;
	*slab = (struct slab){
		.base = base, .item_size = item_size, .count = count, .free = SLAB_NONE};
	return 0;
}

void slab_expect(struct slab *slab, uint32_t count)
{
	uint32_t left = slab->count - slab->touched;
	uintptr_t from = (uintptr_t)slab_at(slab, slab->touched);
	uintptr_t to = from + (count < left ? count : left) * slab->item_size;
	/* large pages only where all of one will be used */
	uintptr_t first = (from + SLAB_HUGE - 1) / SLAB_HUGE * SLAB_HUGE;
	uintptr_t last = to / SLAB_HUGE * SLAB_HUGE;
	if (first < last)
		madvise((void *)first, last - first, MADV_HUGEPAGE);
	from = from / SLAB_PAGE * SLAB_PAGE;
	if (to - from >= SLAB_PAGE)
		madvise((void *)from, (to - from) / SLAB_PAGE * SLAB_PAGE, MADV_POPULATE_WRITE);
}

void slab_fini(struct slab *slab)
{
	if (slab->base)
		munmap(slab->base, slab->item_size * slab->count);
	slab->base = NULL;
}
