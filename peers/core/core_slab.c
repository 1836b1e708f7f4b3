/* SPDX-License-Identifier: Apache-2.0 */
/* Fixed pools: address space for all there can be, memory for those that were needed. */
#include <errno.h>
#include <sys/mman.h>

#include "peers/core/core.h"

int slab_init(struct slab *slab, size_t item_size, uint32_t count)
{
	must(item_size >= sizeof(uint32_t));
	void *base = mmap(NULL, item_size * count, PROT_READ | PROT_WRITE,
		MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (base == MAP_FAILED)
		return -errno;
	*slab = (struct slab){
		.base = base, .item_size = item_size, .count = count, .free = XSEG_NONE};
	return 0;
}

void slab_fini(struct slab *slab)
{
	if (slab->base)
		munmap(slab->base, slab->item_size * slab->count);
	slab->base = NULL;
}
