/* SPDX-License-Identifier: Apache-2.0 */
/* The NBD front on a receive buffer of cardboard: what it knows of the core, done the simplest way.
   */
#include "tests/unit/nbd_rig.h"

#include <base/notify.h>
#include <errno.h>
#include <event2/event.h>
#include <fcntl.h>
#include <peer/notify.h>
#include <poll.h>
#include <string.h>
#include <sys/mman.h>

#include "tests/lib/fixture.h"

#define RIG_TURN_NS 50000u

extern const struct peer_ops *const peer_module;

struct rig_call {
	struct call call; /* first */
	uint8_t *data;
	TAILQ_ENTRY(rig_call) queue_link;
};

struct rig_retry {
	struct rig_retry *next;
	retry_f *again;
	void *context;
};

static struct rig *rig_now;
static struct event_base *rig_base;
static TAILQ_HEAD(, rig_call) rig_queue;
static struct rig_retry *rig_retries;

/* --- the core, as the front sees it ---------------------------------------------- */

uint64_t peer_now_ns(const struct peer *peer)
{
	(void)peer;
	return rig_now->now_ns;
}

struct event_base *peer_event_base(struct peer *peer)
{
	(void)peer;
	return rig_base;
}

static struct xseg_edge_record rig_edge;
static struct xseg_port_record rig_ports[1];
/* Of pages and slots nothing is known but that there are many. */
#define RIG_HINTS 1024u
static _Atomic uint64_t rig_hints[RIG_HINTS];
static struct xseg rig_seg = {.edges = &rig_edge,
	.ports = rig_ports,
	.page_hints = rig_hints,
	.page_count = RIG_HINTS * 64,
	.request_hints = rig_hints,
	.request_count = RIG_HINTS * 64};

/* The edge leads to port 0, which is bound by a composer of that epoch. */
void rig_composer(struct rig *rig, uint64_t epoch)
{
	for (unsigned i = 0; i < RIG_VOLUMES; i++)
		rig->volume[i].opens = 0;
	atomic_store(&rig_ports[0].word, epoch << 8 | XSEG_LIFE_ALIVE);
}

const struct xseg *peer_segment(const struct peer *peer)
{
	(void)peer;
	return &rig_seg;
}

void peer_wake_at(struct peer *peer, uint64_t time_ns)
{
	(void)peer;
	rig_now->wake_ns = time_ns;
}

void peer_stop_host(struct peer *peer)
{
	(void)peer;
	rig_now->host_stopped = true;
}

/* --- who keeps our sockets ------------------------------------------------------- */

struct rig_keeper rig_keeper;

int notify_store_fd(const char *name, int fd)
{
	unsigned i = rig_keeper.count;
	if (!rig_keeper.there)
		return -ENOENT;
	must(i < RIG_KEPT_MAX && strlen(name) < sizeof(rig_keeper.kept[0].name));
	must(!notify_name_check(name));
	strcpy(rig_keeper.kept[i].name, name);
	rig_keeper.kept[i].fd = fcntl(fd, F_DUPFD_CLOEXEC, 10);
	rig_keeper.kept[i].taken = true;
	rig_keeper.count++;
	return 0;
}

static int rig_keeper_find(const char *name)
{
	for (unsigned i = 0; i < rig_keeper.count; i++)
		if (!strcmp(rig_keeper.kept[i].name, name))
			return (int)i;
	return -ENOENT;
}

int notify_drop_fd(const char *name)
{
	int i = rig_keeper_find(name);
	if (i < 0)
		return i;
	close(rig_keeper.kept[i].fd);
	rig_keeper.kept[i] = rig_keeper.kept[--rig_keeper.count];
	return 0;
}

int notify_take_fd(const char *name)
{
	int i = rig_keeper_find(name);
	if (i < 0 || rig_keeper.kept[i].taken)
		return -ENOENT;
	rig_keeper.kept[i].taken = true;
	return fcntl(rig_keeper.kept[i].fd, F_DUPFD_CLOEXEC, 10);
}

bool notify_handover(void) { return rig_keeper.successor; }

static bool rig_refuses(struct rig *rig)
{
	return rig->refuse_every && random_next(&rig->seed) % rig->refuse_every == 0;
}

int call_begin(struct peer *peer, struct call **out)
{
	struct rig *rig = rig_now;
	if (rig_refuses(rig))
		return -EAGAIN;
	struct rig_call *c = calloc(1, sizeof(*c));
	must(c);
	c->call.peer = peer;
	c->call.shard = XSEG_LANE_ANY;
	c->call.live = true;
	*out = &c->call;
	rig->calls++;
	if (rig->calls > rig->calls_most)
		rig->calls_most = rig->calls;
	return 0;
}

int call_pages(struct call *call, uint32_t bytes)
{
	struct rig *rig = rig_now;
	struct rig_call *c = (struct rig_call *)call;
	must(call->live && !call->submitted && !c->data);
	must(bytes <= XSEG_OBJECT_MAX);
	if (rig_refuses(rig) || (rig->pages_max && rig->pages + bytes > rig->pages_max))
		return -EAGAIN;
	bool data = call->op == XSEG_OP_READ || call->op == XSEG_OP_WRITE;
	call->data_offset = data ? (uint32_t)(call->offset % XSEG_PAGE) : 0;
	call->data_size = bytes;
	c->data = calloc(1, call->data_offset + bytes + 1);
	must(c->data);
	rig->pages += bytes;
	if (rig->pages > rig->pages_most)
		rig->pages_most = rig->pages;
	return 0;
}

/* Each page a piece of its own: the worst that can be. */
int call_iov(const struct call *call, uint32_t at, uint32_t length, struct iovec *iov, int max)
{
	const struct rig_call *c = (const struct rig_call *)call;
	must(at + length <= call->data_size);
	int count = 0;
	for (uint32_t from = call->data_offset + at, left = length; left;) {
		uint32_t size = XSEG_PAGE - from % XSEG_PAGE;
		size = size < left ? size : left;
		if (count == max)
			return -E2BIG;
		iov[count++] = (struct iovec){c->data + from, size};
		from += size;
		left -= size;
	}
	return count;
}

void call_put_bytes(struct call *call, uint32_t at, const void *from, uint32_t length)
{
	struct rig_call *c = (struct rig_call *)call;
	must(at + length <= call->data_size);
	memcpy(c->data + call->data_offset + at, from, length);
}

void call_get_bytes(const struct call *call, uint32_t at, void *to, uint32_t length)
{
	const struct rig_call *c = (const struct rig_call *)call;
	must(at + length <= call->data_size);
	memcpy(to, c->data + call->data_offset + at, length);
}

void call_submit(struct call *call, unsigned edge, call_done_f *done)
{
	struct rig *rig = rig_now;
	struct rig_call *c = (struct rig_call *)call;
	must(call->live && !call->submitted && edge == 0);
	call->submitted = true;
	call->done = done;
	rig->submitted[call->op]++;
	rig->flags_seen |= call->flags;
	if (call->length > rig->length_most)
		rig->length_most = call->length;
	TAILQ_INSERT_TAIL(&rig_queue, c, queue_link);
}

void call_end(struct call *call)
{
	struct rig_call *c = (struct rig_call *)call;
	must(call->live && rig_now->calls);
	call->live = false;
	rig_now->calls--;
	if (c->data)
		rig_now->pages -= call->data_size;
	free(c->data);
	free(c);
}

void peer_retry(struct peer *peer, retry_f *again, void *context)
{
	struct rig_retry **last = &rig_retries, *retry = calloc(1, sizeof(*retry));
	must(peer && retry);
	retry->again = again;
	retry->context = context;
	while (*last)
		last = &(*last)->next;
	*last = retry;
}

/* --- volumes --------------------------------------------------------------------- */

static struct rig_volume *rig_volume_by_id(struct rig *rig, uint64_t id)
{
	for (unsigned i = 0; i < RIG_VOLUMES; i++)
		if (rig->volume[i].info.id == id)
			return &rig->volume[i];
	return NULL;
}

static struct rig_volume *rig_volume_by_name(struct rig *rig, const struct call *call)
{
	char name[VOLUME_NAME_LENGTH_MAX + 1] = "";
	must(call->length <= VOLUME_NAME_LENGTH_MAX);
	call_get_bytes(call, XSEG_NAME_AT, name, call->length);
	for (unsigned i = 0; i < RIG_VOLUMES; i++)
		if (!strcmp(rig->volume[i].info.name, name))
			return &rig->volume[i];
	return NULL;
}

static int rig_answer_info(struct rig *rig, struct call *call)
{
	struct rig_volume *volume = call->key.volume ? rig_volume_by_id(rig, call->key.volume)
						     : rig_volume_by_name(rig, call);
	if (!volume)
		return -ENOENT;
	bool reads = call->flags & XSEG_F_READ_ONLY;
	if (call->op == XSEG_OP_OPEN && !reads && volume->refuses) {
		struct map_trouble trouble = {
			.owner = {.host = "other", .since_ns = 86400000000000}};
		call_put_bytes(call, MAP_ANSWER_AT, &trouble, sizeof(trouble));
		call->value = 1;
		return volume->refuses;
	}
	volume->read_opens += call->op == XSEG_OP_OPEN && reads;
	if (call->op == XSEG_OP_OPEN && call->arg0)
		volume->opens = call->arg0 > volume->opens ? (uint32_t)call->arg0 : volume->opens;
	else
		volume->opens += call->op == XSEG_OP_OPEN;
	call_put_bytes(call, 0, &volume->info, sizeof(volume->info));
	call->answer_length = sizeof(volume->info);
	return 0;
}

/* One volume an answer: the front has to come again. */
static int rig_answer_list(struct rig *rig, struct call *call)
{
	if (!rig->volume[call->arg0].info.id)
		return 0;
	call_put_bytes(call, 0, &rig->volume[call->arg0].info, sizeof(struct xseg_volume_info));
	call->answer_length = sizeof(struct xseg_volume_info);
	call->value = call->arg0 + 1 < RIG_VOLUMES && rig->volume[call->arg0 + 1].info.id
			      ? call->arg0 + 1
			      : 0;
	return 0;
}

/* Whole sectors of zeros are holes; at most three stretches, so that it is asked again. */
static int rig_answer_status(const struct rig_volume *volume, struct call *call)
{
	struct xseg_status_extent extent[3];
	static const uint8_t zeros[XSEG_SECTOR];
	unsigned count = 0;
	for (uint32_t at = 0; at < call->length; at += XSEG_SECTOR) {
		bool zero = !memcmp(volume->data + call->offset + at, zeros, XSEG_SECTOR);
		uint32_t flags = zero ? XSEG_STATUS_HOLE | XSEG_STATUS_ZERO : 0;
		if (count && extent[count - 1].flags == flags)
			extent[count - 1].length += XSEG_SECTOR;
		else if (count < countof(extent))
			extent[count++] =
				(struct xseg_status_extent){.length = XSEG_SECTOR, .flags = flags};
		else
			break;
	}
	call_put_bytes(call, 0, extent, count * (uint32_t)sizeof(extent[0]));
	call->answer_length = count * (uint32_t)sizeof(extent[0]);
	call->value = count;
	return 0;
}

/* One snapshot: "monday", 33, of 11, and smaller by a megabyte. */
static int rig_answer_head(struct call *call)
{
	struct map_head_info head = {.id = 33,
		.parent = 11,
		.size = RIG_SIZE - (1 << 20),
		.flags = XSEG_VOLUME_SNAPSHOT,
		.name = "one@monday"};
	struct map_ask ask;
	call_get_bytes(call, 0, &ask, sizeof(ask));
	if (call->arg1 != MAP_READ_ONLY || strcmp(ask.name, "000000000000000b@monday"))
		return -ENOENT;
	call_put_bytes(call, MAP_ANSWER_AT, &head, sizeof(head));
	call->answer_length = MAP_ANSWER_AT + sizeof(head);
	return 0;
}

/* As the mapper: whole objects, the next question begins with the one that has no room. */
static int rig_answer_diff(struct rig *rig, struct call *call)
{
	struct map_ask ask;
	uint32_t count = 0;
	call_get_bytes(call, 0, &ask, sizeof(ask));
	must(ask.id == 33 && call->key.volume == 11);
	rig->diffs++;
	call->value = UINT64_MAX;
	for (unsigned i = 0; i < rig->stretch_count; i++) {
		uint64_t object = rig->stretches[i].offset / XSEG_OBJECT_MAX;
		if (object < call->arg1)
			continue;
		if (count == rig->stretch_room || rig->stretches[i].offset >= ask.size) {
			call->value = object;
			break;
		}
		call_put_bytes(call, MAP_ANSWER_AT + count++ * (uint32_t)sizeof(struct map_stretch),
			&rig->stretches[i], sizeof(struct map_stretch));
	}
	call->answer_length = MAP_ANSWER_AT + count * (uint32_t)sizeof(struct map_stretch);
	return 0;
}

static int rig_answer_control(struct rig *rig, struct call *call)
{
	return call->arg0 == MAP_DIFF ? rig_answer_diff(rig, call) : rig_answer_head(call);
}

static int rig_answer_data(struct rig *rig, struct call *call)
{
	struct rig_volume *volume = rig_volume_by_id(rig, call->key.volume);
	if (call->op == XSEG_OP_CLOSE && !call->key.volume) {
		rig->told++;
		return 0;
	}
	must(volume && volume->opens);
	if (call->op == XSEG_OP_FLUSH)
		return 0;
	if (call->op == XSEG_OP_CLOSE) {
		volume->opens--;
		return 0;
	}
	must(call->offset % XSEG_SECTOR == 0 && call->length % XSEG_SECTOR == 0 &&
		call->length > 0);
	must(call->length <= XSEG_OBJECT_MAX && call->offset + call->length <= volume->info.size);
	uint8_t *at = volume->data + call->offset;
	switch (call->op) {
	case XSEG_OP_READ: call_put_bytes(call, 0, at, call->length); break;
	case XSEG_OP_WRITE: call_get_bytes(call, 0, at, call->length); break;
	case XSEG_OP_ZERO:
	case XSEG_OP_DISCARD: memset(at, 0, call->length); break;
	case XSEG_OP_STATUS: return rig_answer_status(volume, call);
	default: must(call->op == XSEG_OP_PREFETCH);
	}
	call->answer_length = call->length;
	return 0;
}

static void rig_answer(struct rig *rig, struct rig_call *c)
{
	struct call *call = &c->call;
	bool fails = rig->fail[call->op] && call->offset >= rig->fail_from;
	if (fails)
		call->result = rig->fail[call->op];
	else if (call->op == XSEG_OP_OPEN || call->op == XSEG_OP_INFO)
		call->result = rig_answer_info(rig, call);
	else if (call->op == XSEG_OP_LIST)
		call->result = rig_answer_list(rig, call);
	else if (call->op == XSEG_OP_CONTROL)
		call->result = rig_answer_control(rig, call);
	else
		call->result = rig_answer_data(rig, call);
	call->done(call);
}

static struct rig_call *rig_pick(struct rig *rig)
{
	struct rig_call *c = TAILQ_FIRST(&rig_queue);
	unsigned skip = rig->shuffle ? random_next(&rig->seed) % 8 : 0;
	for (; skip && c && TAILQ_NEXT(c, queue_link); skip--)
		c = TAILQ_NEXT(c, queue_link);
	return c;
}

static bool rig_answer_some(struct rig *rig)
{
	bool moved = false;
	for (unsigned i = 0; i < rig->answer_max; i++) {
		struct rig_call *c = rig_pick(rig);
		if (!c)
			break;
		TAILQ_REMOVE(&rig_queue, c, queue_link);
		rig_answer(rig, c);
		moved = true;
	}
	return moved;
}

static void rig_run_retries(struct rig *rig)
{
	struct rig_retry *first;
	unsigned most = 64;
	while (most-- && (first = rig_retries) && first->again(&rig->peer, first->context)) {
		rig_retries = first->next;
		free(first);
	}
}

/* --- the rig --------------------------------------------------------------------- */

static void rig_add_volume(struct rig *rig, unsigned index, const char *name, uint64_t id)
{
	struct rig_volume *volume = &rig->volume[index];
	volume->info = (struct xseg_volume_info){.id = id,
		.size = RIG_SIZE,
		.object_size = XSEG_OBJECT_MAX,
		.state = XSEG_VOLUME_READY};
	strcpy(volume->info.name, name);
	volume->data =
		mmap(NULL, RIG_SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	must(volume->data != MAP_FAILED);
}

struct rig *rig_new(void)
{
	char why[256];
	struct rig *rig = calloc(1, sizeof(*rig));
	must(rig && !rig_now);
	rig_now = rig;
	rig->ops = peer_module;
	rig_composer(rig, 1);
	rig->now_ns = 1000000000;
	for (unsigned i = 0; i < RIG_HINTS; i++)
		atomic_store(&rig_hints[i], UINT64_MAX);
	rig->seed = 1;
	rig->answer_max = 1000;
	rig->options = (struct nbd_options){.connections = 16,
		.newcomers = 16,
		.requests = 64,
		.bytes = 64u << 20,
		.payload_max = NBD_PAYLOAD_MAX,
		.handshake_ns = 10000000000,
		.stall_ns = 10000000000,
		.drain_ns = 1000000000};
	rig_add_volume(rig, 0, "one", 11);
	rig_add_volume(rig, 1, "two", 22);
	TAILQ_INIT(&rig_queue);
	rig_base = event_base_new();
	rig->peer = (struct peer){
		.ops = rig->ops, .name = "nbd0", .options = &rig->options, .shards = 1};
	rig->peer.state = calloc(1, rig->ops->state_size);
	rig->peer.shared = calloc(1, rig->ops->shared_size);
	rig->peer.stats = calloc(1, sizeof(struct xseg_stats_block));
	must(rig_base && rig->peer.state && rig->peer.shared && rig->peer.stats);
	rig->nbd = rig->peer.state;
	struct nbd_shared *shared = rig->peer.shared;
	shared->single_in = shared->single_out = -1;
	front_clients_init(&shared->clients);
	must(rig->ops->start(&rig->peer, why, sizeof(why)) == 0);
	return rig;
}

void rig_turn(struct rig *rig, unsigned turns)
{
	for (unsigned i = 0, idle = 0; i < turns && idle < 4; i++) {
		rig->now_ns += RIG_TURN_NS;
		bool moved = rig->ops->poll(&rig->peer);
		moved |= rig_answer_some(rig);
		rig_run_retries(rig);
		event_base_loop(rig_base, EVLOOP_NONBLOCK);
		idle = moved || !rig->ops->sleep(&rig->peer) ? 0 : idle + 1;
	}
}

void rig_free(struct rig *rig)
{
	rig->refuse_every = rig->pages_max = 0;
	rig->answer_max = 1000;
	rig->peer.stopping = true;
	rig->ops->stop(&rig->peer);
	for (unsigned i = 0; i < 100 && !rig->ops->idle(&rig->peer); i++) {
		rig_turn(rig, 100);
		rig->now_ns += 300000000;
	}
	must(rig->ops->idle(&rig->peer) && !rig->calls && !rig->pages && !rig_retries);
	must(!rig->nbd->shared->connections && !rig->nbd->shared->newcomers &&
		TAILQ_EMPTY(&rig->nbd->volumes.list));
	for (unsigned i = 0; i < RIG_VOLUMES; i++) {
		must(!rig->volume[i].opens);
		munmap(rig->volume[i].data, RIG_SIZE);
	}
	rig->ops->finish(&rig->peer);
	rig->ops->close(&rig->peer);
	event_base_free(rig_base);
	free(rig->peer.state);
	free(rig->peer.shared);
	free(rig->peer.stats);
	free(rig);
	rig_now = NULL;
}

/* --- the client's side ----------------------------------------------------------- */

int rig_client(struct rig *rig)
{
	int pair[2];
	must(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair) == 0);
	must(nbd_conn_create(rig->nbd, pair[0], pair[0], true) == 0);
	return pair[1];
}

bool rig_send(struct rig *rig, int fd, const void *data, size_t size)
{
	for (unsigned idle = 0; size && idle < 2000;) {
		ssize_t sent = send(fd, data, size, MSG_NOSIGNAL);
		if (sent < 0 && errno != EAGAIN)
			return false;
		if (sent > 0) {
			data = (const uint8_t *)data + sent;
			size -= (size_t)sent;
		}
		idle = sent > 0 ? 0 : idle + 1;
		rig_turn(rig, 8);
	}
	return !size;
}

bool rig_receive(struct rig *rig, int fd, void *data, size_t size)
{
	for (unsigned idle = 0; size && idle < 2000;) {
		ssize_t got = recv(fd, data, size, 0);
		if (got == 0 || (got < 0 && errno != EAGAIN))
			return false;
		if (got > 0) {
			data = (uint8_t *)data + got;
			size -= (size_t)got;
		}
		idle = got > 0 ? 0 : idle + 1;
		if (got < 0)
			rig_turn(rig, 8);
	}
	return !size;
}

bool rig_closed(struct rig *rig, int fd)
{
	uint8_t byte;
	rig_turn(rig, 200);
	ssize_t got = recv(fd, &byte, 1, 0);
	return got == 0 || (got < 0 && errno == ECONNRESET);
}

static void rig_option(struct rig *rig, int fd, uint32_t option, const uint8_t *data, uint32_t size)
{
	uint8_t head[NBD_OPTION_HEADER];
	nbd_put32(nbd_put32(nbd_put64(head, NBD_OPTION_MAGIC), option), size);
	must(rig_send(rig, fd, head, sizeof(head)));
	must(!size || rig_send(rig, fd, data, size));
	for (uint32_t type = 0; type != NBD_REP_ACK;) {
		uint8_t reply[20], text[512];
		must(rig_receive(rig, fd, reply, sizeof(reply)));
		type = nbd_get32(reply + 12);
		must(nbd_get32(reply + 8) == option && !(type & 0x80000000u));
		must(nbd_get32(reply + 16) <= sizeof(text));
		must(rig_receive(rig, fd, text, nbd_get32(reply + 16)));
	}
}

void rig_go(struct rig *rig, int fd, const char *name, bool structured, bool blocks)
{
	uint8_t data[512], greeting[18], flags[4];
	uint32_t size = (uint32_t)strlen(name);
	must(rig_receive(rig, fd, greeting, sizeof(greeting)));
	nbd_put32(flags, NBD_FLAG_FIXED_NEWSTYLE | NBD_FLAG_NO_ZEROES);
	must(rig_send(rig, fd, flags, sizeof(flags)));
	memcpy(nbd_put32(data, size), name, size);
	if (structured) {
		rig_option(rig, fd, NBD_OPT_STRUCTURED_REPLY, NULL, 0);
		uint8_t *at = nbd_put32(nbd_put32(data + 4 + size, 1), 15);
		memcpy(at, "base:allocation", 15);
		uint32_t more = rig->stretches ? 4 + 19 : 0; /* and the snapshot's */
		if (more) {
			nbd_put32(data + 4 + size, 2);
			memcpy(nbd_put32(at + 15, 19), "skerry:dirty:monday", 19);
		}
		rig_option(rig, fd, NBD_OPT_SET_META_CONTEXT, data, 4 + size + 8 + 15 + more);
	}
	nbd_put16(nbd_put16(data + 4 + size, blocks), NBD_INFO_BLOCK_SIZE);
	rig_option(rig, fd, NBD_OPT_GO, data, 4 + size + 2 + 2 * blocks);
}

void rig_request(uint8_t wire[NBD_REQUEST_HEADER], unsigned type, unsigned flags, uint64_t cookie,
	uint64_t offset, uint32_t length)
{
	uint8_t *at = nbd_put32(wire, NBD_REQUEST_MAGIC);
	at = nbd_put16(nbd_put16(at, (uint16_t)flags), (uint16_t)type);
	nbd_put32(nbd_put64(nbd_put64(at, cookie), offset), length);
}

unsigned rig_do(struct rig *rig, int fd, unsigned type, unsigned flags, uint64_t offset,
	uint32_t length, void *data)
{
	uint8_t wire[NBD_REQUEST_HEADER], head[NBD_CHUNK_HEADER + 8];
	rig_request(wire, type, flags, 0x1122334455667788, offset, length);
	must(rig_send(rig, fd, wire, sizeof(wire)));
	if (type == NBD_CMD_WRITE)
		must(rig_send(rig, fd, data, length));
	must(rig_receive(rig, fd, head, NBD_SIMPLE_HEADER));
	if (nbd_get32(head) == NBD_SIMPLE_MAGIC) {
		must(nbd_get64(head + 8) == 0x1122334455667788);
		if (type == NBD_CMD_READ && !nbd_get32(head + 4))
			must(rig_receive(rig, fd, data, length));
		return nbd_get32(head + 4);
	}
	must(nbd_get32(head) == NBD_CHUNK_MAGIC && nbd_get64(head + 8) == 0x1122334455667788);
	must(rig_receive(rig, fd, head + NBD_SIMPLE_HEADER, 4));
	uint32_t size = nbd_get32(head + 16);
	if (nbd_get16(head + 6) == NBD_CHUNK_ERROR) {
		must(size == 6 && rig_receive(rig, fd, head, 6));
		return nbd_get32(head);
	}
	if (nbd_get16(head + 6) == NBD_CHUNK_NONE) {
		must(size == 0 && length == 0);
		return 0;
	}
	must(nbd_get16(head + 6) == NBD_CHUNK_OFFSET_DATA && size == length + 8);
	must(rig_receive(rig, fd, head + 20, 8) && nbd_get64(head + 20) == offset);
	must(rig_receive(rig, fd, data, length));
	return 0;
}

/* --- jobs: in these tests nobody in the segment asks the front for anything ------------------- */

void job_complete_value(struct job *job, uint32_t length, uint64_t value)
{
	(void)job, (void)length, (void)value;
	abort();
}

void job_complete(struct job *job, uint32_t length) { job_complete_value(job, length, 0); }

void job_fail(struct job *job, int error)
{
	(void)job, (void)error;
	abort();
}

void job_get_bytes(const struct job *job, uint32_t at, void *to, uint32_t length)
{
	(void)job, (void)at, (void)to, (void)length;
	abort();
}

void job_put_bytes(struct job *job, uint32_t at, const void *from, uint32_t length)
{
	(void)job, (void)at, (void)from, (void)length;
	abort();
}
