/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The life of one request: read off its descriptors, cut into calls, answered in the ring. Data are
 * copied once, between the guest's memory and pages of the segment.
 */
#include <base/crash.h>
#include <endian.h>
#include <errno.h>
#include <string.h>

#include "peers/front/vhost.h"

#define WRITE_STEP (256u << 10) /* the store begins while the rest is copied */
#define ZERO_WRITE_MAX (1u << 20)
#define COPY_PAGES 15u

/* --- the guest's bytes ----------------------------------------------------------- */

/* A place in what a request reads from, or writes to. */
struct cursor {
	const struct iovec *iov;
	uint64_t skip; /* in it */
};

static struct cursor cursor_of(const struct vhost_chain *chain, bool writable, uint64_t at)
{
	struct cursor cursor = {&chain->iov[writable ? chain->readable : 0], at};
	while (cursor.skip >= cursor.iov->iov_len)
		cursor.skip -= cursor.iov++->iov_len;
	return cursor;
}

/* As much as lies in one piece. */
static void *cursor_take(struct cursor *cursor, uint64_t *length)
{
	while (cursor->skip == cursor->iov->iov_len) {
		cursor->iov++;
		cursor->skip = 0;
	}
	void *at = (char *)cursor->iov->iov_base + cursor->skip;
	if (*length > cursor->iov->iov_len - cursor->skip)
		*length = cursor->iov->iov_len - cursor->skip;
	cursor->skip += *length;
	return at;
}

static void read_guest(struct cursor *cursor, void *to, uint64_t length)
{
	for (uint64_t done = 0, piece; done < length; done += piece) {
		piece = length - done;
		const void *from = cursor_take(cursor, &piece);
		memcpy((char *)to + done, from, piece);
	}
}

static void write_guest(
	struct vhost_request *request, struct cursor *cursor, const void *from, uint64_t length)
{
	for (uint64_t done = 0, piece; done < length; done += piece) {
		piece = length - done;
		void *to = cursor_take(cursor, &piece);
		memcpy(to, (const char *)from + done, piece);
		vhost_memory_mark_host(request->queue->ring.memory, to, piece);
	}
}

/* Between a call's pages and the guest: in, what it writes; out, what it reads. */
static void copy(struct vhost_request *request, const struct call *call, bool out)
{
	uint64_t skip = out ? 0 : sizeof(struct virtio_blk_outhdr);
	struct cursor cursor =
		cursor_of(&request->chain, out, skip + call->offset - request->begin);
	struct iovec iov[COPY_PAGES + 1];
	for (uint32_t done = 0; done < call->length;) {
		uint32_t size = call->length - done;
		size = size < COPY_PAGES * XSEG_PAGE ? size : COPY_PAGES * XSEG_PAGE;
		int count = call_iov(call, done, size, iov, COPY_PAGES + 1);
		must(count > 0);
		for (int i = 0; i < count; i++)
			if (out)
				write_guest(request, &cursor, iov[i].iov_base, iov[i].iov_len);
			else
				read_guest(&cursor, iov[i].iov_base, iov[i].iov_len);
		done += size;
	}
}

/* --- the end --------------------------------------------------------------------- */

static uint8_t status_of(int error)
{
	if (!error)
		return VIRTIO_BLK_S_OK;
	return error == -EOPNOTSUPP ? VIRTIO_BLK_S_UNSUPP : VIRTIO_BLK_S_IOERR;
}

static void request_finish(struct vhost_request *request)
{
	struct vhost_queue *queue = request->queue;
	struct vhost *vhost = queue->device->vhost;
	struct cursor cursor = cursor_of(&request->chain, true, request->chain.in_size - 1);
	const uint8_t status = status_of(request->error);
	write_guest(request, &cursor, &status, 1);
	crash_point("front_vhost.request.done");
	vhost_ring_push(&queue->ring, request->head, (request->error ? 0 : request->written) + 1);
	request->busy = false;
	queue->inflight--;
	queue->device->inflight--;
	vhost->inflight--;
	vhost->bytes -= request->bytes;
	vhost_queue_wake(queue);
	vhost->again = true;
}

/* --- calls ----------------------------------------------------------------------- */

static void request_step(struct vhost_request *request);

static enum xseg_op op_of(const struct vhost_request *request)
{
	switch (request->type) {
	case VIRTIO_BLK_T_IN: return XSEG_OP_READ;
	case VIRTIO_BLK_T_FLUSH: return XSEG_OP_FLUSH;
	case VIRTIO_BLK_T_DISCARD: return XSEG_OP_DISCARD;
	case VIRTIO_BLK_T_WRITE_ZEROES: return request->by_write ? XSEG_OP_WRITE : XSEG_OP_ZERO;
	default: return XSEG_OP_WRITE;
	}
}

static unsigned flags_of(const struct vhost_request *request, enum xseg_op op)
{
	const struct vhost_device *device = request->queue->device;
	bool through = device->write_through || !(device->features & (1ull << VIRTIO_BLK_F_FLUSH));
	unsigned fua = through ? XSEG_F_FUA : 0;
	bool keep = op == XSEG_OP_ZERO &&
		    !(request->range[request->range_at].flags & VIRTIO_BLK_WRITE_ZEROES_FLAG_UNMAP);
	switch (op) {
	case XSEG_OP_READ: return XSEG_F_PIN;
	case XSEG_OP_WRITE: return XSEG_F_DONATE | fua;
	case XSEG_OP_ZERO: return (keep ? XSEG_F_NO_HOLE : 0u) | fua;
	case XSEG_OP_DISCARD: return fua;
	default: return 0;
	}
}

static uint32_t step_of(const struct vhost_request *request)
{
	switch (request->type) {
	case VIRTIO_BLK_T_IN: return front_read_step((uint32_t)(request->end - request->begin));
	case VIRTIO_BLK_T_OUT: return WRITE_STEP;
	default: return request->by_write ? ZERO_WRITE_MAX : XSEG_OBJECT_MAX;
	}
}

static struct call *call_of(struct vhost_request *request, uint32_t length)
{
	const struct vhost_device *device = request->queue->device;
	struct call *call;
	if (call_begin(device->vhost->peer, &call))
		return NULL;
	call->op = op_of(request);
	call->flags = flags_of(request, call->op);
	call->key = (struct xseg_key){.volume = device->volume};
	if (call->op != XSEG_OP_READ)
		call->arg1 = device->term;
	call->offset = request->next;
	call->length = call->op == XSEG_OP_FLUSH ? 0 : length;
	call->context = request;
	bool data = call->op == XSEG_OP_READ || call->op == XSEG_OP_WRITE;
	if (data && call_pages(call, length)) {
		call_end(call);
		return NULL;
	}
	return call;
}

/* Nobody below can: a hint may be forgotten, zeros can be written. */
static int settle_unsupported(struct vhost_request *request, const struct call *call)
{
	if (call->op == XSEG_OP_DISCARD)
		return 0;
	if (call->op != XSEG_OP_ZERO || request->probed)
		return -EOPNOTSUPP;
	request->by_write = true;
	request->next = request->begin;
	return 0;
}

static void request_answered(struct call *call)
{
	struct vhost_request *request = call->context;
	int error = call->result;
	if (unlikely(error == -EOPNOTSUPP))
		error = settle_unsupported(request, call);
	else if (!error && call->op == XSEG_OP_READ)
		copy(request, call, true);
	call_end(call);
	request->probed = true;
	request->pending--;
	if (error && !request->error)
		request->error = error;
	request_step(request);
}

static int request_issue(struct vhost_request *request)
{
	uint32_t length = front_cut(request->next, request->end, step_of(request));
	struct call *call = call_of(request, length);
	if (!call)
		return -EAGAIN;
	if (request->type == VIRTIO_BLK_T_OUT)
		copy(request, call, false);
	if (unlikely(atomic_load(&request->queue->ring.memory->lost))) { /* it may be zeros */
		call_end(call);
		request->error = -EIO;
		return 0;
	}
	if (request->by_write)
		front_zero(call, 0, length);
	request->next += length;
	request->pending++;
	call_submit(call, FRONT_EDGE_VOLUME, request_answered);
	return 0;
}

static unsigned window_of(const struct vhost_request *request)
{
	if (request->by_write)
		return 2;
	return request->type == VIRTIO_BLK_T_WRITE_ZEROES && !request->probed ? 1 : VHOST_WINDOW;
}

static bool has_more(const struct vhost_request *request)
{
	return !request->error && request->next < request->end;
}

static int request_fill(struct vhost_request *request)
{
	int error = 0;
	while (!error && has_more(request) && request->pending < window_of(request))
		error = request_issue(request);
	return error;
}

static bool request_again(struct peer *peer, void *context)
{
	struct vhost_request *request = context;
	(void)peer;
	if (request_fill(request) && !request->pending)
		return false;
	request->queue->starved--;
	if (!request->pending)
		request_step(request);
	return true;
}

static bool next_range(struct vhost_request *request)
{
	if (request->error || request->range_at + 1 >= request->range_count)
		return false;
	const struct vhost_range *range = &request->range[++request->range_at];
	request->begin = request->next = range->offset;
	request->end = range->offset + range->length;
	return true;
}

/* Some of it is out, or it has ended, or it waits for the pool. */
static void request_step(struct vhost_request *request)
{
	struct vhost_queue *queue = request->queue;
	do {
		int error = request_fill(request);
		if (request->pending)
			return;
		if (error) {
			peer_count(queue->device->vhost->peer, VHOST_COUNT_WAITS, 1);
			queue->starved++;
			peer_retry(queue->device->vhost->peer, request_again, request);
			return;
		}
	} while (next_range(request));
	request_finish(request);
}

/* --- the beginning --------------------------------------------------------------- */

static bool fits(const struct vhost_request *request, uint64_t sector, uint64_t length)
{
	uint64_t size = request->queue->device->size, sectors = size / XSEG_SECTOR;
	return length % XSEG_SECTOR == 0 && sector <= sectors &&
	       length <= (sectors - sector) * XSEG_SECTOR;
}

static void set_range(struct vhost_request *request, uint64_t sector, uint64_t length)
{
	request->begin = request->next = sector * XSEG_SECTOR;
	request->end = request->begin + length;
}

static int begin_data(struct vhost_request *request, uint64_t sector)
{
	bool in = request->type == VIRTIO_BLK_T_IN;
	uint64_t length = in ? request->chain.in_size - 1
			     : request->chain.out_size - sizeof(struct virtio_blk_outhdr);
	if (!fits(request, sector, length))
		return -EINVAL;
	set_range(request, sector, length);
	request->bytes = length;
	request->written = in ? (uint32_t)length : 0;
	peer_count(request->queue->device->vhost->peer,
		in ? VHOST_COUNT_BYTES_OUT : VHOST_COUNT_BYTES_IN, length);
	return 0;
}

static int begin_ranges(struct vhost_request *request, uint64_t ignored)
{
	const uint64_t header = sizeof(struct virtio_blk_outhdr);
	struct virtio_blk_discard_write_zeroes wire[VHOST_RANGES_MAX];
	uint64_t size = request->chain.out_size - header, count = size / sizeof(wire[0]);
	uint32_t known =
		request->type == VIRTIO_BLK_T_DISCARD ? 0 : VIRTIO_BLK_WRITE_ZEROES_FLAG_UNMAP;
	(void)ignored; /* each range has its own */
	if (!count || count > VHOST_RANGES_MAX || size % sizeof(wire[0]))
		return -EINVAL;
	struct cursor cursor = cursor_of(&request->chain, false, header);
	read_guest(&cursor, wire, size);
	for (unsigned i = 0; i < count; i++) {
		uint64_t sector = le64toh(wire[i].sector);
		uint64_t length = (uint64_t)le32toh(wire[i].num_sectors) * XSEG_SECTOR;
		uint32_t flags = le32toh(wire[i].flags);
		if (flags & ~known)
			return -EOPNOTSUPP;
		if (!fits(request, sector, length))
			return -EINVAL;
		request->range[i] = (struct vhost_range){sector * XSEG_SECTOR, length, flags};
	}
	request->range_count = (uint8_t)count;
	set_range(request, request->range[0].offset / XSEG_SECTOR, request->range[0].length);
	return 0;
}

static int begin_id(struct vhost_request *request, uint64_t sector)
{
	(void)sector;
	char id[VIRTIO_BLK_ID_BYTES] = "";
	uint64_t room = request->chain.in_size - 1;
	const char *name = request->queue->device->vhost->options->volume;
	memcpy(id, name, strnlen(name, sizeof(id)));
	request->written = (uint32_t)(room < sizeof(id) ? room : sizeof(id));
	if (!request->written)
		return -EINVAL;
	struct cursor cursor = cursor_of(&request->chain, true, 0);
	write_guest(request, &cursor, id, request->written);
	return 0;
}

/* One call that has no offset. */
static int begin_flush(struct vhost_request *request, uint64_t sector)
{
	(void)sector;
	request->end = request->queue->device->read_only ? 0 : 1;
	return 0;
}

static const struct kind {
	uint32_t type;
	int (*begin)(struct vhost_request *request, uint64_t sector);
	unsigned counter;
	bool alters;
} kinds[] = {
	{VIRTIO_BLK_T_IN, begin_data, VHOST_COUNT_READS, false},
	{VIRTIO_BLK_T_OUT, begin_data, VHOST_COUNT_WRITES, true},
	{VIRTIO_BLK_T_FLUSH, begin_flush, VHOST_COUNT_FLUSHES, false},
	{VIRTIO_BLK_T_GET_ID, begin_id, VHOST_COUNT_OTHERS, false},
	{VIRTIO_BLK_T_DISCARD, begin_ranges, VHOST_COUNT_DISCARDS, true},
	{VIRTIO_BLK_T_WRITE_ZEROES, begin_ranges, VHOST_COUNT_ZEROES, true},
};

static int request_parse(struct vhost_request *request)
{
	struct vhost_device *device = request->queue->device;
	struct virtio_blk_outhdr header;
	struct cursor cursor = cursor_of(&request->chain, false, 0);
	read_guest(&cursor, &header, sizeof(header));
	request->type = le32toh(header.type);
	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		if (kinds[i].type != request->type)
			continue;
		peer_count(device->vhost->peer, kinds[i].counter, 1);
		if (kinds[i].alters && device->read_only)
			return -EROFS;
		return kinds[i].begin(request, le64toh(header.sector));
	}
	return -EOPNOTSUPP;
}

int vhost_request_begin(struct vhost_queue *queue, uint16_t head)
{
	struct vhost *vhost = queue->device->vhost;
	struct vhost_request *request = &queue->requests[head];
	int error = vhost_ring_read(&queue->ring, head, &request->chain);
	/* without room for a status nothing can be said of it */
	if (error || request->chain.out_size < sizeof(struct virtio_blk_outhdr) ||
		!request->chain.in_size || request->chain.in_size > UINT32_MAX)
		return -EPROTO;
	request->queue = queue;
	request->head = head;
	request->busy = true;
	request->begin = request->next = request->end = request->bytes = 0;
	request->pending = request->written = 0;
	request->range_count = request->range_at = 0;
	request->probed = request->by_write = false;
	request->error = request_parse(request);
	if (request->error)
		peer_count(vhost->peer, VHOST_COUNT_REFUSED, 1);
	queue->inflight++;
	queue->device->inflight++;
	vhost->inflight++;
	vhost->bytes += request->bytes;
	request_step(request);
	return 0;
}
