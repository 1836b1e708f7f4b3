/* SPDX-License-Identifier: Apache-2.0 */
/* What programs say over their sockets, <xseg/region_wire.h>. */
#include <errno.h>
#include <event2/event.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "peers/front/regions.h"

/* --- the socket ---------------------------------------------------------------------- */

union message_control {
	struct cmsghdr header;
	char bytes[CMSG_SPACE(4 * sizeof(int))];
};

/* One descriptor at a time; more are nobody's. */
static void message_keep(struct region_attach *attach, struct msghdr *message)
{
	for (struct cmsghdr *control = CMSG_FIRSTHDR(message); control;
		control = CMSG_NXTHDR(message, control)) {
		if (control->cmsg_level != SOL_SOCKET || control->cmsg_type != SCM_RIGHTS)
			continue;
		size_t count = (control->cmsg_len - CMSG_LEN(0)) / sizeof(int);
		for (size_t i = 0; i < count; i++) {
			int fd;
			memcpy(&fd, CMSG_DATA(control) + i * sizeof(int), sizeof(fd));
			if (attach->given < 0)
				attach->given = fd;
			else
				close(fd);
		}
	}
}

int region_message_read(struct region_attach *attach)
{
	while (attach->got < sizeof(attach->wire)) {
		union message_control control;
		struct iovec iov = {
			(char *)&attach->wire + attach->got, sizeof(attach->wire) - attach->got};
		struct msghdr message = {.msg_iov = &iov,
			.msg_iovlen = 1,
			.msg_control = &control,
			.msg_controllen = sizeof(control)};
		ssize_t got = recvmsg(attach->fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
		if (got < 0)
			return errno == EINTR ? -EAGAIN : -errno;
		if (!got)
			return -ECONNRESET;
		message_keep(attach, &message);
		attach->got += (uint32_t)got;
	}
	attach->got = 0;
	attach->wire.text[sizeof(attach->wire.text) - 1] = 0;
	bool sound = attach->wire.magic == REGION_WIRE_MAGIC &&
		     attach->wire.version == REGION_WIRE_VERSION &&
		     attach->wire.type > REGION_WIRE_NONE && attach->wire.type < REGION_WIRE_TYPES;
	return sound ? 0 : -EPROTO;
}

/* A program has one question out, so its socket has room for the answer. */
static int message_send(int fd, const struct region_wire *wire, int give)
{
	union message_control control = {.bytes = {0}};
	struct iovec iov = {(void *)(uintptr_t)wire, sizeof(*wire)};
	struct msghdr message = {.msg_iov = &iov, .msg_iovlen = 1};
	if (give >= 0) {
		message.msg_control = &control;
		message.msg_controllen = CMSG_SPACE(sizeof(int));
		struct cmsghdr *header = CMSG_FIRSTHDR(&message);
		*header = (struct cmsghdr){.cmsg_level = SOL_SOCKET,
			.cmsg_type = SCM_RIGHTS,
			.cmsg_len = CMSG_LEN(sizeof(int))};
		memcpy(CMSG_DATA(header), &give, sizeof(give));
	}
	return sendmsg(fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL) == (ssize_t)sizeof(*wire)
		       ? 0
		       : -EPIPE;
}

void region_message_answer(
	struct region_attach *attach, struct region_wire *wire, int error, int give)
{
	wire->error = error;
	attach->answering = false;
	if (attach->fd < 0)
		return;
	if (message_send(attach->fd, wire, give))
		region_attach_hang_up(attach, NULL);
	else if (attach->event)
		event_add(attach->event, NULL);
}

/* --- what is asked ---------------------------------------------------------------------- */

/* A range of the region, outwards in pages of the volume. */
static int message_range(const struct region_attach *attach, const struct region_wire *wire,
	uint64_t *first, uint64_t *count)
{
	uint64_t size = attach->pages * XSEG_PAGE;
	if (wire->offset > size || wire->size > size - wire->offset)
		return -EINVAL;
	uint64_t begin = wire->offset / XSEG_PAGE;
	uint64_t end = (wire->offset + wire->size + XSEG_PAGE - 1) / XSEG_PAGE;
	*first = attach->first + begin;
	*count = end - begin;
	return 0;
}

static void message_status(struct region_attach *attach)
{
	const struct region_volume *volume = attach->volume;
	struct region_wire wire = attach->wire;
	const struct region_status status = {.volume_size = volume->size,
		.memory_limit = attach->regions->limit * XSEG_PAGE,
		.resident = volume->resident * XSEG_PAGE,
		.dirty = volume->dirty * XSEG_PAGE,
		.faults = attach->faults,
		.fetched = volume->fetched * XSEG_PAGE,
		.written = volume->written * XSEG_PAGE,
		.evicted = volume->evicted * XSEG_PAGE};
	memset(wire.text, 0, sizeof(wire.text));
	memcpy(wire.text, &status, sizeof(status));
	region_message_answer(attach, &wire, 0, -1);
}
fixed(sizeof(struct region_status) <= VOLUME_NAME_LENGTH_MAX + 1);

static int message_keeps(struct region_attach *attach, uint64_t first, uint64_t count, bool keeps)
{
	struct region_volume *volume = attach->volume;
	for (uint64_t page = first; page < first + count; page++) {
		unsigned state = region_state(volume, page) & ~REGION_KEPT;
		region_volume_set(volume, page, state | (keeps ? REGION_KEPT : 0u));
	}
	return 0;
}

/* 0: done; -EINPROGRESS: it will be answered. */
static int message_advise(struct region_attach *attach, uint64_t first, uint64_t count)
{
	switch (attach->wire.arg) {
	case REGION_NORMAL: attach->random = false; return 0;
	case REGION_RANDOM: attach->random = true; return 0;
	case REGION_KEEP: return message_keeps(attach, first, count, true);
	case REGION_KEEP_NOT: return message_keeps(attach, first, count, false);
	case REGION_DROP: break;
	default: return -EINVAL;
	}
	int error = region_write_task(attach->volume, attach, &attach->wire, first, count);
	return error ? error : -EINPROGRESS;
}

static int message_take_range(struct region_attach *attach)
{
	uint64_t first, count;
	int error = message_range(attach, &attach->wire, &first, &count);
	if (error)
		return error;
	switch (attach->wire.type) {
	case REGION_WIRE_FETCH:
		attach->fetch = first;
		attach->fetch_end = first + count;
		attach->regions->again = true;
		return 0;
	case REGION_WIRE_SYNC:
		peer_count(attach->regions->peer, REGION_COUNT_SYNCS, 1);
		error = region_write_task(attach->volume, attach, &attach->wire, first, count);
		return error ? error : -EINPROGRESS;
	default: return message_advise(attach, first, count);
	}
}

static int message_arm(struct region_attach *attach)
{
	const uint64_t address = attach->wire.arg;
	if (attach->state != REGION_UNARMED || attach->given < 0 || !address ||
		address % XSEG_PAGE || address > UINT64_MAX - attach->pages * XSEG_PAGE)
		return -EINVAL;
	attach->pid = front_client_pid(attach->fd);
	/* a front that is started anew must know of it before it can have written anything */
	int error = region_volume_add_user(attach->volume, attach->token, attach->pid);
	if (error)
		return error;
	attach->address = address;
	attach->fault_fd = attach->given;
	attach->given = -1;
	error = region_attach_serve(attach);
	if (!error)
		return 0;
	attach->given = attach->fault_fd; /* what is not taken is closed */
	attach->fault_fd = -1;
	return error;
}

void region_message_take(struct region_attach *attach)
{
	const unsigned type = attach->wire.type;
	int error = -EINVAL;
	if (type == REGION_WIRE_OPEN) {
		if (!region_attach_open(attach))
			return;
	} else if (type == REGION_WIRE_ARM) {
		error = message_arm(attach);
	} else if (type == REGION_WIRE_LEAVE && attach->volume) {
		region_volume_remove_user(attach->volume, attach->token);
		region_message_answer(attach, &attach->wire, 0, -1);
		region_attach_end(attach, NULL);
		return;
	} else if (attach->state == REGION_SERVING && type == REGION_WIRE_STATUS) {
		message_status(attach);
		return;
	} else if (attach->state == REGION_SERVING) {
		error = message_take_range(attach);
	}
	if (attach->given >= 0)
		close(attach->given);
	attach->given = -1;
	if (error != -EINPROGRESS)
		region_message_answer(attach, &attach->wire, error, -1);
}
