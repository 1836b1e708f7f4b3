/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Messages of the vhost-user protocol, as they go over its socket.
 *
 * Units: bytes; the host's byte order. Source: the specification in QEMU's documentation
 * ("Vhost-user Protocol"), and virtio 1.2 for what the rings carry.
 */
#ifndef SKERRY_FRONT_VHOST_PROTO_H
#define SKERRY_FRONT_VHOST_PROTO_H

#include <base/must.h>
#include <stddef.h>
#include <stdint.h>

enum vhost_request_code {
	VHOST_GET_FEATURES = 1,
	VHOST_SET_FEATURES,
	VHOST_SET_OWNER,
	VHOST_RESET_OWNER,
	VHOST_SET_MEM_TABLE,
	VHOST_SET_LOG_BASE,
	VHOST_SET_LOG_FD,
	VHOST_SET_VRING_NUM,
	VHOST_SET_VRING_ADDR,
	VHOST_SET_VRING_BASE,
	VHOST_GET_VRING_BASE,
	VHOST_SET_VRING_KICK,
	VHOST_SET_VRING_CALL,
	VHOST_SET_VRING_ERR,
	VHOST_GET_PROTOCOL_FEATURES,
	VHOST_SET_PROTOCOL_FEATURES,
	VHOST_GET_QUEUE_NUM,
	VHOST_SET_VRING_ENABLE,
	VHOST_SET_BACKEND_REQ_FD = 21,
	VHOST_GET_CONFIG = 24,
	VHOST_SET_CONFIG,
	VHOST_GET_INFLIGHT_FD = 31,
	VHOST_SET_INFLIGHT_FD,
	VHOST_RESET_DEVICE = 34,
	VHOST_GET_MAX_MEM_SLOTS = 36,
	VHOST_ADD_MEM_REG,
	VHOST_REM_MEM_REG,
	VHOST_CODES,
};

#define VHOST_BACKEND_CONFIG_CHANGE 2u /* of our own requests */

#define VHOST_VERSION 1u
#define VHOST_VERSION_MASK 3u
#define VHOST_REPLY (1u << 2)
#define VHOST_NEED_REPLY (1u << 3)

#define VHOST_F_LOG_ALL 26
#define VHOST_F_PROTOCOL_FEATURES 30

enum vhost_protocol_feature {
	VHOST_PROTOCOL_MQ = 0,
	VHOST_PROTOCOL_LOG_SHMFD = 1,
	VHOST_PROTOCOL_REPLY_ACK = 3,
	VHOST_PROTOCOL_BACKEND_REQ = 5,
	VHOST_PROTOCOL_CONFIG = 9,
	VHOST_PROTOCOL_INFLIGHT_SHMFD = 12,
	VHOST_PROTOCOL_RESET_DEVICE = 13,
	VHOST_PROTOCOL_CONFIGURE_MEM_SLOTS = 15,
};

#define VHOST_INDEX_MASK 0xffu
#define VHOST_NO_FD (1u << 8) /* of a kick, call or error: no descriptor comes with it */
#define VHOST_FDS_MAX 8u
#define VHOST_TABLE_MAX 8u /* regions in one SET_MEM_TABLE */
#define VHOST_CONFIG_MAX 256u

struct vhost_wire_region {
	uint64_t guest, size, user, offset; /* of the guest, of whoever sends; in its descriptor */
};

struct vhost_header {
	uint32_t request, flags, size;
};
fixed(sizeof(struct vhost_header) == 12);

union vhost_payload {
	uint64_t number;
	struct {
		uint32_t index, number;
	} ring;
	struct {
		uint32_t index, flags;
		uint64_t desc, used, avail, log;
	} address;
	struct {
		uint32_t count, padding;
		struct vhost_wire_region region[VHOST_TABLE_MAX];
	} table;
	struct {
		uint64_t padding;
		struct vhost_wire_region region;
	} slot;
	struct {
		uint64_t size, offset;
	} log;
	struct {
		uint32_t offset, size, flags;
		uint8_t bytes[VHOST_CONFIG_MAX];
	} config;
	struct {
		uint64_t size, offset;
		uint16_t queues, queue_size;
	} inflight;
};
#define VHOST_CONFIG_HEADER 12u
/* Some end it with its last field, some (QEMU) as their compiler pads it. */
#define VHOST_INFLIGHT_SIZE 20u
#define VHOST_INFLIGHT_SIZE_PADDED 24u

/*
 * The in-flight region of a split ring: which heads were taken and not given back, so that whoever
 * comes after a backend that was killed does them again.
 */
struct vhost_inflight_entry {
	uint8_t taken;
	uint8_t padding[5];
	uint16_t next;	  /* of the batch that was given back last */
	uint64_t counter; /* order in which they were taken */
};
fixed(sizeof(struct vhost_inflight_entry) == 16);

struct vhost_inflight {
	uint64_t features;
	uint16_t version; /* 1 */
	uint16_t num;
	uint16_t batch;	  /* the head that was given back last */
	uint16_t used_at; /* used index up to which `taken` is right */
	struct vhost_inflight_entry entry[];
};
fixed(sizeof(struct vhost_inflight) == 16);
#define VHOST_INFLIGHT_VERSION 1u

/*
 * That of a packed ring: copies of the descriptors that were taken. A request's copies are linked;
 * its first one has what is said of it. The `old` fields are those before what is under way.
 */
struct vhost_packed_entry {
	uint8_t taken;
	uint8_t padding;
	uint16_t next, last; /* copy of the request, or free one; the request's last one */
	uint16_t num;	     /* copies of the request */
	uint64_t counter;
	uint16_t id, flags;
	uint32_t len;
	uint64_t addr;
};
fixed(sizeof(struct vhost_packed_entry) == 32);

struct vhost_packed_inflight {
	uint64_t features;
	uint16_t version;
	uint16_t num;
	uint16_t free_at, old_free_at; /* the first free copy; `num`: none */
	uint16_t used_at, old_used_at; /* slot that is given back next */
	uint8_t used_wrap, old_used_wrap;
	uint8_t by_base; /* ours, in padding: the monitor knows where the ring stopped */
	uint8_t padding[6];
	struct vhost_packed_entry entry[];
};
fixed(offsetof(struct vhost_packed_inflight, entry) == 32);

#endif
