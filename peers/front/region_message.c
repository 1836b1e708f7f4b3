/* SPDX-License-Identifier: Apache-2.0 */
/* What programs say over their sockets, <xseg/region_wire.h>. */
#include <base/pass.h>
#include <errno.h>
#include <event2/event.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "peers/front/regions.h"

/* --- the socket ---------------------------------------------------------------------- */

int region_message_read(struct region_attach *attach)
{
	while (attach->got < sizeof(attach->wire)) {
		unsigned had = attach->given >= 0;
		ssize_t got = pass_receive(attach->fd, (char *)&attach->wire + attach->got,
			sizeof(attach->wire) - attach->got, &attach->given, &had, 1, MSG_DONTWAIT);
		if (got < 0)
			return errno == EINTR ? -EAGAIN : -errno;
		if (!got)
			return -ECONNRESET;
		attach->got += (uint32_t)got;
	}
	attach->got = 0;
	attach->wire.text[sizeof(attach->wire.text) - 1] = 0;
	bool sound = attach->wire.magic == REGION_WIRE_MAGIC &&
		     attach->wire.version == REGION_WIRE_VERSION &&
		     attach->wire.type > REGION_WIRE_NONE && attach->wire.type < REGION_WIRE_TYPES;
	return sound ? 0 : -EPROTO;
}

void region_message_answer(
	struct region_attach *attach, struct region_wire *wire, int error, int give)
{
	const struct iovec iov = {wire, sizeof(*wire)};
	wire->error = error;
	if (attach->fd < 0)
		return;
	/* it has one question out, so its socket has room for the answer */
	if (pass_send(attach->fd, &iov, 1, give, MSG_DONTWAIT) != (ssize_t)sizeof(*wire))
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

/* It is answered when what is dirty there has been written. */
static int message_write(struct region_attach *attach, uint64_t first, uint64_t count, bool drops)
{
	struct region_task *task = region_write_task(attach->volume, first, count, drops);
	if (!task)
		return -EBUSY;
	task->attach = attach;
	task->wire = attach->wire;
	return -EINPROGRESS;
}

/* 0: done; -EINPROGRESS: it will be answered. */
static int message_advise(struct region_attach *attach, uint64_t first, uint64_t count)
{
	switch (attach->wire.arg) {
	case REGION_NORMAL: attach->random = false; return 0;
	case REGION_RANDOM: attach->random = true; return 0;
	case REGION_KEEP: return message_keeps(attach, first, count, true);
	case REGION_KEEP_NOT: return message_keeps(attach, first, count, false);
	case REGION_DROP: return message_write(attach, first, count, true);
	default: return -EINVAL;
	}
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
		return message_write(attach, first, count, false);
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
