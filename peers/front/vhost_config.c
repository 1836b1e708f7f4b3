/* SPDX-License-Identifier: Apache-2.0 */
/* What a disk says of itself: features, and the fields of virtio-blk's configuration. */
#include <endian.h>
#include <errno.h>
#include <string.h>

#include "peers/front/vhost.h"

#define PAGE_SECTORS (XSEG_PAGE / XSEG_SECTOR)
#define RANGE_SECTORS (1u << 22) /* 2 GiB, of one range */

#define BIT(number) (1ull << (number))

uint64_t vhost_features(const struct vhost_device *device)
{
	uint64_t features = BIT(VIRTIO_F_VERSION_1) | BIT(VIRTIO_F_RING_PACKED) |
			    BIT(VIRTIO_RING_F_INDIRECT_DESC) | BIT(VIRTIO_RING_F_EVENT_IDX) |
			    BIT(VHOST_F_LOG_ALL) | BIT(VHOST_F_PROTOCOL_FEATURES) |
			    BIT(VIRTIO_BLK_F_SEG_MAX) | BIT(VIRTIO_BLK_F_BLK_SIZE) |
			    BIT(VIRTIO_BLK_F_TOPOLOGY) | BIT(VIRTIO_BLK_F_MQ) |
			    BIT(VIRTIO_BLK_F_FLUSH);
	if (device->read_only)
		return features | BIT(VIRTIO_BLK_F_RO);
	return features | BIT(VIRTIO_BLK_F_CONFIG_WCE) | BIT(VIRTIO_BLK_F_DISCARD) |
	       BIT(VIRTIO_BLK_F_WRITE_ZEROES);
}

void vhost_config_fill(const struct vhost_device *device, struct virtio_blk_config *config)
{
	memset(config, 0, sizeof(*config));
	config->capacity = htole64(device->size / XSEG_SECTOR);
	config->seg_max = htole32(VHOST_SEGMENTS);
	config->blk_size = htole32(XSEG_SECTOR);
	config->physical_block_exp = XSEG_PAGE_SHIFT - 9;
	config->min_io_size = htole16(PAGE_SECTORS);
	config->opt_io_size = htole32(PAGE_SECTORS);
	config->wce = !device->write_through;
	config->num_queues = htole16((uint16_t)device->queue_count);
	config->max_discard_sectors = htole32(RANGE_SECTORS);
	config->max_discard_seg = htole32(VHOST_RANGES_MAX);
	config->discard_sector_alignment = htole32(PAGE_SECTORS);
	config->max_write_zeroes_sectors = htole32(RANGE_SECTORS);
	config->max_write_zeroes_seg = htole32(VHOST_RANGES_MAX);
	config->write_zeroes_may_unmap = 1;
}

int vhost_config_set(
	struct vhost_device *device, uint32_t offset, uint32_t size, const uint8_t *bytes)
{
	if (offset != offsetof(struct virtio_blk_config, wce) || size != 1 || device->read_only)
		return -EINVAL;
	device->write_through = !bytes[0];
	return 0;
}
