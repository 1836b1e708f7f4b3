/* SPDX-License-Identifier: Apache-2.0 */
/* A host with small peers inside a test program. */
#include "tests/unit/core_rig.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

/* --- t_store -------------------------------------------------------------------- */

struct rig_shard {
	struct job_queue held;
};

struct rig_options {
	uint64_t number;
	char *text;
	struct peer_list list;
	bool truth;
	uint64_t size, time, choice;
};

static struct rig_store *store_of(const struct peer *peer) { return peer->shared; }

static bool store_inside(struct job *job)
{
	if (job->offset + job->length <= RIG_BYTES)
		return true;
	job_fail(job, -ENOSPC);
	return false;
}

static void store_read(struct peer *peer, struct job *job)
{
	if (!store_inside(job))
		return;
	atomic_fetch_add(&store_of(peer)->reads[peer->shard], 1);
	atomic_fetch_or(&store_of(peer)->lanes_of_object[job->key.object % 64], 1u << peer->shard);
	job_put_bytes(job, 0, store_of(peer)->bytes + job->offset, job->length);
	job_complete(job, job->length);
}

static void store_write(struct peer *peer, struct job *job)
{
	if (!store_inside(job))
		return;
	job_get_bytes(job, 0, store_of(peer)->bytes + job->offset, job->length);
	job_complete(job, job->length);
}

static void store_flush(struct peer *peer, struct job *job)
{
	atomic_fetch_add(&store_of(peer)->flushes[peer->shard], 1);
	if (peer->shard == job->arg0 && job->key.volume == 666)
		job_fail(job, -EIO);
	else
		job_complete(job, 0);
}

/* DELETE answers with its version as value, or with an error and a value. */
static void store_delete(struct peer *peer, struct job *job)
{
	(void)peer;
	if (job->key.object == 13)
		job_fail_value(job, -ESTALE, 77);
	else
		job_complete_value(job, 0, job->key.object + 1);
}

static void store_prefetch(struct peer *peer, struct job *job)
{
	struct rig_shard *shard = peer->state;
	TAILQ_INSERT_TAIL(&shard->held, job, link);
}

struct store_work {
	struct worker_item item;
	struct job *job;
	pthread_t ran_on;
};

static void store_work_run(struct worker_item *item)
{
	struct store_work *work = (struct store_work *)item;
	work->ran_on = pthread_self();
	do
		usleep(1000);
	while (atomic_load(&store_of(item->post.peer)->hold));
	atomic_fetch_add(&store_of(item->post.peer)->ran, 1);
}

static void store_work_done(struct worker_item *item)
{
	struct store_work *work = (struct store_work *)item;
	bool elsewhere = !pthread_equal(work->ran_on, pthread_self());
	job_complete_value(work->job, 0, elsewhere);
	free(work);
}

static void store_close(struct peer *peer, struct job *job)
{
	struct store_work *work = calloc(1, sizeof(*work));
	work->job = job;
	worker_run(peer, &work->item, store_work_run, store_work_done);
}

static void *store_post(void *context)
{
	struct store_work *work = context;
	store_work_run(&work->item);
	peer_post(&work->item.post);
	return NULL;
}

static void store_posted(struct post_item *item) { store_work_done((struct worker_item *)item); }

/* By a thread that the core knows nothing of. */
static void store_control(struct peer *peer, struct job *job)
{
	struct rig_store *store = store_of(peer);
	struct store_work *work = calloc(1, sizeof(*work));
	unsigned poster = atomic_fetch_add(&store->posters, 1);
	must(work && poster < countof(store->poster));
	work->job = job;
	peer_post_expect(peer, &work->item.post, store_posted);
	must(pthread_create(&store->poster[poster], NULL, store_post, work) == 0);
}

static bool store_poll(struct peer *peer)
{
	struct rig_shard *shard = peer->state;
	struct job *job;
	bool moved = false;
	if (atomic_load(&store_of(peer)->hold))
		return false;
	while ((job = TAILQ_FIRST(&shard->held))) {
		TAILQ_REMOVE(&shard->held, job, link);
		job_complete(job, 0);
		moved = true;
	}
	/* whoever changes `hold` from outside rings no bell */
	peer_wake_at(peer, peer_now_ns(peer) + 1000000);
	return moved;
}

static bool store_sleep(struct peer *peer)
{
	struct rig_shard *shard = peer->state;
	if (!TAILQ_EMPTY(&shard->held))
		peer_wake_at(peer, peer_now_ns(peer) + 1000000);
	return true;
}

static int store_start(struct peer *peer, char *why, size_t why_size)
{
	struct rig_shard *shard = peer->state;
	const struct rig_options *options = peer->options;
	TAILQ_INIT(&shard->held);
	if (options->number == 13) {
		snprintf(why, why_size, "13 is an unlucky number");
		return -EINVAL;
	}
	return 0;
}

static int store_open(struct peer *peer, char *why, size_t why_size)
{
	const struct rig_options *options = peer->options;
	(void)why, (void)why_size;
	return options->number == 14 ? -EACCES : 0;
}

static void store_stop(struct peer *peer) { atomic_fetch_add(&store_of(peer)->stops, 1); }

static void store_finish(struct peer *peer) { atomic_fetch_add(&store_of(peer)->finished, 1); }

static void store_join(struct peer *first)
{
	struct rig_store *store = store_of(first);
	for (unsigned i = 0; i < atomic_load(&store->posters); i++)
		must(pthread_join(store->poster[i], NULL) == 0);
}

static const char *const rig_choices[] = {"red", "green", NULL};

static const struct peer_option rig_options[] = {
	OPTION_COUNT(struct rig_options, number, "number", .min = 2, .max = 64, .initial = "4",
		.unit = "things", .help = "how many"),
	OPTION_TEXT(struct rig_options, text, "text", .initial = "none", .help = "some words"),
	OPTION_LIST(struct rig_options, list, "list", .initial = "first", .help = "some items"),
	OPTION_BOOL(struct rig_options, truth, "truth", .help = "whether"),
	OPTION_SIZE(
		struct rig_options, size, "size", .min = 4096, .initial = "64K", .help = "how big"),
	OPTION_TIME(struct rig_options, time, "time", .max = 1000000000, .initial = "5ms",
		.help = "how long"),
	OPTION_CHOICE(struct rig_options, choice, "choice", .choices = rig_choices,
		.initial = "green", .help = "which colour"),
	OPTION_END,
};

static const struct xseg_counter rig_counters[] = {
	{"held", "", "jobs that were held"}, {NULL, NULL, NULL}};

const struct peer_ops rig_store_ops = {
	.name = "t_store",
	.summary = "keeps bytes, for tests",
	.options = rig_options,
	.options_size = sizeof(struct rig_options),
	.state_size = sizeof(struct rig_shard),
	.shared_size = sizeof(struct rig_store),
	.counters = rig_counters,
	.open = store_open,
	.close = store_join,
	.start = store_start,
	.stop = store_stop,
	.finish = store_finish,
	.poll = store_poll,
	.sleep = store_sleep,
	.on = {[XSEG_OP_READ] = store_read,
		[XSEG_OP_WRITE] = store_write,
		[XSEG_OP_FLUSH] = store_flush,
		[XSEG_OP_DELETE] = store_delete,
		[XSEG_OP_PREFETCH] = store_prefetch,
		[XSEG_OP_CLOSE] = store_close,
		[XSEG_OP_CONTROL] = store_control},
};

/* --- t_split --------------------------------------------------------------------------- */

static void split_joined(struct job *job, int error)
{
	if (error)
		job_fail(job, error);
	else
		job_complete(job, job->length);
}

/* The parts from job->arg1 on; again later when there is no slot for one. */
static bool split_send(struct peer *peer, void *context)
{
	struct job *job = context;
	while (job->arg1 < job->length) {
		uint32_t at = (uint32_t)job->arg1;
		uint64_t offset = job->offset + at;
		uint32_t room = RIG_SPLIT - (uint32_t)(offset % RIG_SPLIT);
		uint32_t length = job->length - at < room ? job->length - at : room;
		struct call *call;
		if (call_begin(peer, &call))
			return false;
		call->op = job->op;
		call->flags = job->flags;
		call->key = job->key;
		call->offset = offset;
		call->length = length;
		int error = call_borrow(call, job, at, length);
		if (error) {
			call_end(call);
			return false;
		}
		job->arg1 += length;
		call_submit_part(call, job, 0, NULL);
	}
	job_fan_ready(job);
	return true;
}

static void split_data(struct peer *peer, struct job *job)
{
	job_fan(job, split_joined);
	job->arg1 = 0;
	if (!split_send(peer, job))
		peer_retry(peer, split_send, job);
}

static void split_pass(struct peer *peer, struct job *job)
{
	(void)peer;
	job_forward(job, 0);
}

static const char *const rig_edges[] = {"below", NULL};

const struct peer_ops rig_split_ops = {
	.name = "t_split",
	.summary = "cuts and joins, for tests",
	.edges = rig_edges,
	.on = {[XSEG_OP_READ] = split_data,
		[XSEG_OP_WRITE] = split_data,
		[XSEG_OP_FLUSH] = split_pass,
		[XSEG_OP_DELETE] = split_pass,
		[XSEG_OP_CLOSE] = split_pass},
};

/* --- t_pass ------------------------------------------------------------------------------ */

const struct peer_ops rig_pass_ops = {
	.name = "t_pass",
	.summary = "forwards, for tests",
	.edges = rig_edges,
	.on = {[XSEG_OP_READ] = split_pass,
		[XSEG_OP_WRITE] = split_pass,
		[XSEG_OP_FLUSH] = split_pass,
		[XSEG_OP_PREFETCH] = split_pass,
		[XSEG_OP_DELETE] = split_pass,
		[XSEG_OP_CLOSE] = split_pass},
};

/* --- the rig ----------------------------------------------------------------------------- */

static void rig_serve(struct rig *rig, unsigned lanes, const char *const *specs)
{
	char why[WHY_SIZE] = "";
	for (; *specs; specs++)
		ck_assert_msg(spec_host_add(&rig->host, *specs, why) == 0, "%s", why);
	const struct host_config config = {
		.segment = rig->seg.name, .lanes = lanes, .workers = 2, .drain_ns = 120000000000u};
	ck_assert_msg(host_start(&rig->host, &config, why) == 0, "%s", why);
	rig->serving = true;
}

void rig_begin(struct rig *rig, uint64_t size, unsigned lanes, const char *const *specs)
{
	sigset_t set;
	memset(rig, 0, sizeof(*rig));
	sigemptyset(&set);
	sigaddset(&set, SIGUSR2);
	sigprocmask(SIG_BLOCK, &set, NULL);
	scratch_segment(&rig->seg, size, 8, size ? 0 : 128);
	static bool registered;
	if (!registered) {
		module_register(&rig_store_ops);
		module_register(&rig_split_ops);
		module_register(&rig_pass_ops);
	}
	registered = true;
	rig_serve(rig, lanes, specs);
}

void rig_halt(struct rig *rig)
{
	client_close(&rig->client);
	memset(&rig->client, 0, sizeof(rig->client));
	ck_assert(host_stop(&rig->host, NULL));
	host_fini(&rig->host);
	memset(&rig->host, 0, sizeof(rig->host));
}

void rig_again(struct rig *rig, unsigned lanes, const char *const *specs)
{
	if (rig->host.joined)
		rig_halt(rig);
	rig_serve(rig, lanes, specs);
}

void rig_ask(struct rig *rig, const char *peer)
{
	char why[WHY_SIZE] = "";
	if (rig->client.lane)
		client_close(&rig->client);
	ck_assert_msg(client_open(&rig->client, rig->seg.name, peer, why) == 0, "%s", why);
	rig->client.timeout_ns = 290000000000u; /* a test has 300 s */
}

void rig_end(struct rig *rig)
{
	struct xseg_usage usage;
	if (rig->client.lane)
		client_close(&rig->client);
	if (rig->serving)
		ck_assert(host_stop(&rig->host, NULL));
	if (rig->serving)
		host_fini(&rig->host);
	xseg_segment_usage(&rig->seg, &usage);
	ck_assert_uint_eq(usage.requests_by_state[XSEG_REQUEST_FREE], usage.requests);
	ck_assert_uint_eq(usage.pages_free, usage.pages);
	scratch_segment_end(&rig->seg);
}

struct host_peer *rig_peer(struct rig *rig, const char *peer)
{
	for (unsigned i = 0; i < rig->host.peer_count; i++)
		if (!strcmp(rig->host.peers[i].name, peer))
			return &rig->host.peers[i];
	ck_abort_msg("no peer %s", peer);
}

struct rig_store *rig_store(struct rig *rig, const char *peer)
{
	return rig_peer(rig, peer)->shared;
}

RIG_PEEK uint32_t rig_jobs(struct rig *rig, const char *peer)
{
	const struct host_peer *found = rig_peer(rig, peer);
	uint32_t jobs = 0;
	for (unsigned i = 0; i < rig->host.lane_count; i++)
		jobs += found->shards[i].jobs;
	return jobs;
}

RIG_PEEK bool rig_holds(
	struct rig *rig, const char *peer, uint64_t offset, const void *bytes, uint32_t length)
{
	const volatile uint8_t *kept = rig_store(rig, peer)->bytes + offset;
	for (uint32_t i = 0; i < length; i++)
		if (kept[i] != ((const uint8_t *)bytes)[i])
			return false;
	return true;
}

uint64_t rig_counter(struct rig *rig, const char *peer, enum core_counter counter)
{
	struct host_peer *found = rig_peer(rig, peer);
	uint64_t sum = 0;
	for (unsigned i = 0; i < rig->host.lane_count; i++)
		sum += atomic_load(&found->shards[i].peer.stats->counters[counter]);
	return sum;
}

int rig_read(struct rig *rig, uint64_t offset, void *to, uint32_t length)
{
	struct client_request request = {.op = XSEG_OP_READ,
		.key = {.volume = 1, .object = (uint32_t)(offset >> 16)},
		.offset = offset,
		.length = length,
		.receive = to,
		.receive_size = length};
	int error = client_do(&rig->client, &request);
	ck_assert(error || request.answer_length == length);
	return error;
}

int rig_write(struct rig *rig, uint64_t offset, const void *from, uint32_t length)
{
	struct client_request request = {.op = XSEG_OP_WRITE,
		.key = {.volume = 1, .object = (uint32_t)(offset >> 16)},
		.offset = offset,
		.length = length,
		.send = from,
		.send_size = length};
	return client_do(&rig->client, &request);
}

int rig_do(struct rig *rig, enum xseg_op op, uint64_t offset, uint32_t length, uint64_t *value)
{
	struct client_request request = {
		.op = op, .key = {.volume = 1}, .offset = offset, .length = length};
	int error = client_do(&rig->client, &request);
	if (value)
		*value = request.value;
	return error;
}

void rig_pattern(uint8_t *to, uint32_t length, uint32_t seed)
{
	for (uint32_t i = 0; i < length; i++)
		to[i] = (uint8_t)(seed + i * 7 + (i >> 8) * 13);
}
