/* SPDX-License-Identifier: Apache-2.0 */
/* The vhost-user front: a volume as a virtio-blk disk. Its options, its turn, its end. */
#include <errno.h>
#include <event2/event.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "peers/front/vhost.h"

#define HELD_NS 5000000u    /* a message waits for another lane */
#define PAUSE_NS 250000000u /* out of descriptors */

static const struct peer_option vhost_option_table[] = {
	OPTION_LIST(struct vhost_options, listen, "listen",
		.help = "address: unix:PATH, systemd or systemd:NAME"),
	OPTION_TEXT(struct vhost_options, volume, "volume", .required = true,
		.max = VOLUME_NAME_LENGTH_MAX, .help = "the volume, or snapshot, that is the disk"),
	OPTION_BOOL(struct vhost_options, read_only, "read-only", .initial = "no",
		.help = "a disk that cannot be written to"),
	OPTION_COUNT(struct vhost_options, queues, "queues", .min = 1, .max = VHOST_QUEUES_MAX,
		.initial = "16", .unit = "rings",
		.help = "request queues that a machine may use, at most"),
	OPTION_COUNT(struct vhost_options, devices, "devices", .min = 1, .max = 1024,
		.initial = "16", .unit = "machines",
		.help = "machines at once that use the disk; more are turned away"),
	OPTION_TEXT(struct vhost_options, socket_mode, "socket-mode", .initial = "0660",
		.help = "mode of the socket, octal"),
	OPTION_TEXT(struct vhost_options, socket_group, "socket-group",
		.help = "group of the socket, by name or number, such as that of the virtual "
			"machines' user; empty: the process's"),
	OPTION_END,
};

static const struct xseg_counter vhost_counters[VHOST_COUNTERS + 1] = {
	[VHOST_COUNT_READS] = {"vhost_reads", "", "read requests taken"},
	[VHOST_COUNT_WRITES] = {"vhost_writes", "", "write requests taken"},
	[VHOST_COUNT_FLUSHES] = {"vhost_flushes", "", "flush requests taken"},
	[VHOST_COUNT_DISCARDS] = {"vhost_discards", "", "discard requests taken"},
	[VHOST_COUNT_ZEROES] = {"vhost_zeroes", "", "write-zeroes requests taken"},
	[VHOST_COUNT_OTHERS] = {"vhost_others", "", "other requests taken"},
	[VHOST_COUNT_REFUSED] = {"vhost_refused", "", "requests refused before anybody was asked"},
	[VHOST_COUNT_AGAIN] = {"vhost_again", "",
		"requests done again that an earlier process had not finished"},
	[VHOST_COUNT_BYTES_IN] = {"vhost_bytes_in", "B", "of data to be written"},
	[VHOST_COUNT_BYTES_OUT] = {"vhost_bytes_out", "B", "of data asked for"},
	[VHOST_COUNT_KICKS] = {"vhost_kicks", "", "times that a guest had to wake us"},
	[VHOST_COUNT_CALLS] = {"vhost_calls", "", "interrupts to guests"},
	[VHOST_COUNT_DEVICES] = {"vhost_devices", "", "machines that have connected"},
	[VHOST_COUNT_GONE] = {"vhost_gone", "", "machines that have left"},
	[VHOST_COUNT_TURNED_AWAY] = {"vhost_turned_away", "", "machines over the limit"},
	[VHOST_COUNT_BROKEN] = {"vhost_broken", "", "rings given up for what was in them"},
	[VHOST_COUNT_MESSAGES] = {"vhost_messages", "", "messages of monitors"},
	[VHOST_COUNT_WAITS] = {"vhost_waits", "", "times a request waited for pages or slots"},
};

/* --- the process ----------------------------------------------------------------- */

static int check_listen(const struct peer_list *listen, char *why, size_t size)
{
	for (size_t i = 0; i < listen->count; i++) {
		if (strncmp(listen->item[i], "tcp:", 4) != 0)
			continue;
		snprintf(why, size,
			"listen=%s: a machine shares its memory over a UNIX socket: write "
			"unix:PATH",
			listen->item[i]);
		return -EINVAL;
	}
	return 0;
}

static int vhost_open(struct peer *first, char *why, size_t size)
{
	struct vhost_shared *shared = first->shared;
	const struct vhost_options *options = first->options;
	struct front_rights rights;
	shared->listeners.owner = first->name;
	shared->names = (struct peer_list){.item = &shared->name, .count = 1};
	shared->name = options->volume;
	front_clients_init(&shared->clients);
	TAILQ_INIT(&shared->regions);
	must(pthread_mutex_init(&shared->regions_lock, NULL) == 0);
	int error = check_listen(&options->listen, why, size);
	if (!error)
		error = front_rights_parse(
			"socket", options->socket_mode, options->socket_group, &rights, why, size);
	if (!error)
		error = front_listen_open(&shared->listeners, &options->listen, &rights, why, size);
	if (!error && !shared->listeners.count) {
		snprintf(why, size, "nothing to listen on: give listen=unix:PATH");
		error = -EINVAL;
	}
	if (error)
		front_listen_close(&shared->listeners);
	else
		front_fdstore_put(&shared->listeners);
	return error;
}

static void vhost_close(struct peer *first)
{
	struct vhost_shared *shared = first->shared;
	front_listen_close(&shared->listeners);
}

/* --- a shard --------------------------------------------------------------------- */

static void vhost_enter(struct peer *peer, int fd, const struct front_listener *listener)
{
	struct vhost *vhost = vhost_of(peer);
	(void)listener;
	if (atomic_load(&vhost->shared->devices) < vhost->options->devices) {
		vhost_device_create(vhost, fd);
		return;
	}
	char who[FRONT_WHO_LENGTH];
	front_name_client(fd, who);
	front_log(&vhost->log, peer, who, "is turned away: %llu machines use the disk",
		(unsigned long long)vhost->options->devices);
	peer_count(peer, VHOST_COUNT_TURNED_AWAY, 1);
	close(fd);
}

static int vhost_start(struct peer *peer, char *why, size_t size)
{
	struct vhost *vhost = vhost_of(peer);
	vhost->peer = peer;
	vhost->options = peer->options;
	vhost->shared = peer->shared;
	vhost->base = peer_event_base(peer);
	TAILQ_INIT(&vhost->devices);
	TAILQ_INIT(&vhost->active);
	front_volumes_init(&vhost->volumes, peer, vhost_device_busy);
	vhost->door.peer = peer;
	vhost->door.listeners = &vhost->shared->listeners;
	vhost->door.enter = vhost_enter;
	int error = vhost->base ? front_door_start(&vhost->door, vhost->base) : -ENOMEM;
	if (error)
		snprintf(why, size, "no event loop for sockets");
	return error;
}

static void vhost_finish(struct peer *peer)
{
	struct vhost *vhost = vhost_of(peer);
	must(TAILQ_EMPTY(&vhost->devices));
	front_door_stop(&vhost->door);
}

static void vhost_stop(struct peer *peer)
{
	struct vhost *vhost = vhost_of(peer);
	struct vhost_device *device;
	atomic_store(&vhost->shared->listeners.stopping, true);
	vhost->stopping = true;
	front_door_stop(&vhost->door);
	TAILQ_FOREACH (device, &vhost->devices, link)
		if (device->state == VHOST_SERVING)
			vhost_device_end(device, NULL);
	vhost->again = true;
}

static bool vhost_idle(struct peer *peer)
{
	const struct vhost *vhost = vhost_of(peer);
	return TAILQ_EMPTY(&vhost->devices) && !vhost->volumes.reopening && !vhost->resizing;
}

static bool vhost_poll(struct peer *peer)
{
	struct vhost *vhost = vhost_of(peer);
	struct vhost_queue *queue, *next_queue;
	struct vhost_device *device, *next;
	bool moved = false;
	vhost->again = false;
	front_volumes_reopen(&vhost->volumes);
	for (queue = TAILQ_FIRST(&vhost->active); queue; queue = next_queue) {
		next_queue = TAILQ_NEXT(queue, link);
		moved |= vhost_queue_turn(queue);
	}
	for (device = TAILQ_FIRST(&vhost->devices); device; device = next) {
		next = TAILQ_NEXT(device, link);
		moved |= vhost_device_turn(device);
	}
	if (unlikely(vhost->door.paused))
		front_door_resume(&vhost->door);
	vhost_device_look(vhost);
	return moved;
}

static bool vhost_sleep(struct peer *peer)
{
	struct vhost *vhost = vhost_of(peer);
	const struct vhost_device *device;
	uint64_t now = peer_now_ns(peer);
	if (vhost->again || vhost->volumes.ended || !vhost_queue_sleep(vhost))
		return false;
	TAILQ_FOREACH (device, &vhost->devices, link)
		if (device->held && !device->inflight)
			peer_wake_at(peer, now + HELD_NS);
	if (vhost->door.paused)
		peer_wake_at(peer, now + PAUSE_NS);
	if (vhost->volume.users)
		peer_wake_at(peer, vhost->sized_ns + VHOST_LOOK_NS + 1);
	return true;
}

static void vhost_dump(struct peer *peer, FILE *out)
{
	const struct vhost *vhost = vhost_of(peer);
	const struct vhost_device *device;
	front_door_dump(&vhost->door, out);
	TAILQ_FOREACH (device, &vhost->devices, link)
		vhost_device_dump(device, out);
}

/* --- what can be asked of us ------------------------------------------------------ */

static bool vhost_offers(const struct peer *peer, const char *name)
{
	return !strcmp(vhost_of(peer)->options->volume, name);
}

static unsigned vhost_address_flags(const struct peer *peer, const struct front_listener *listener)
{
	(void)peer;
	(void)listener;
	return FRONT_ADDRESS_VHOST;
}

static void vhost_control(struct peer *peer, struct job *job)
{
	struct vhost_shared *shared = peer->shared;
	switch (job->arg0) {
	case FRONT_ADDRESSES:
		front_addresses_answer(
			peer, job, &shared->listeners, vhost_offers, vhost_address_flags);
		break;
	case FRONT_CLIENTS: front_clients_answer(&shared->clients, job); break;
	case FRONT_CHECK: front_check_answer(peer, job, &shared->names); break;
	default: job_fail(job, -EOPNOTSUPP);
	}
}

static const char *const vhost_edges[] = {"volume", NULL};

static const char vhost_description[] =
	"Serves a volume, or a snapshot read-only, as a virtio-blk disk to virtual machines: "
	"anything that "
	"speaks vhost-user (QEMU's *vhost-user-blk-pci*, Cloud Hypervisor, libblkio, User-Mode "
	"Linux). The "
	"machine shares its memory, and requests come out of its rings without a system call "
	"while both sides "
	"are busy; data are copied once.\n\n"
	"The disk has write cache, discard, write zeroes, several queues, indirect descriptors and "
	"event "
	"indices. The guest may turn its write cache off. A new size of the volume is told to a "
	"machine within two seconds.\n\n"
	"The machine keeps a list of what is in flight, in memory of its own. When this process is "
	"killed, "
	"its successor takes the requests up again and the guest meets a pause: QEMU connects "
	"again with *reconnect=1* on its *-chardev*. The same when it is restarted on purpose.\n\n"
	"Whoever may connect to the socket may read and write the volume; see *socket-mode* and "
	"*socket-group*. Nothing that a guest does in its memory can do more than stop its own "
	"ring; a monitor that cuts off the memory it shares is hung up on, and other machines do "
	"not notice.";

static const struct peer_ops vhost_ops = {
	.name = "front_vhost",
	.summary = "serves a volume to virtual machines as a vhost-user-blk disk",
	.description = vhost_description,
	.options = vhost_option_table,
	.options_size = sizeof(struct vhost_options),
	.state_size = sizeof(struct vhost),
	.shared_size = sizeof(struct vhost_shared),
	.edges = vhost_edges,
	.serves = "",
	.counters = vhost_counters,
	.open = vhost_open,
	.close = vhost_close,
	.start = vhost_start,
	.finish = vhost_finish,
	.stop = vhost_stop,
	.idle = vhost_idle,
	.poll = vhost_poll,
	.sleep = vhost_sleep,
	.dump = vhost_dump,
	.on = {[XSEG_OP_CONTROL] = vhost_control},
};
PEER_MODULE(vhost_ops);
