/* SPDX-License-Identifier: Apache-2.0 */
/* A cache over a store that does as it is told, inside a test program. */
#include "tests/unit/cache_rig.h"

#include <errno.h>
#include <string.h>

#include "peers/cache/cache.h"
#include "peers/cache/cache_work.h"

extern const struct peer_ops *const peer_module; /* the cache: it is linked in */

/* --- c_store ----------------------------------------------------------------------------- */

struct crig_shard {
	struct job_queue held;
	struct job_queue late; /* until arg0 */
};

static struct crig_store *store_of(const struct peer *peer) { return peer->shared; }

static bool store_inside(const struct job *job)
{
	return job->key.object < CRIG_OBJECTS && job->offset + job->length <= CRIG_BYTES;
}

static void store_note(struct crig_store *store, const struct job *job, int result)
{
	struct crig_event event = {.op = job->op,
		.flags = job->flags,
		.object = job->key.object,
		.offset = job->offset,
		.length = job->length,
		.result = result};
	if (job->op == XSEG_OP_WRITE)
		job_get_bytes(job, 0, &event.first, 1);
	pthread_mutex_lock(&store->mutex);
	if (store->count < CRIG_EVENTS)
		store->events[store->count++] = event;
	pthread_mutex_unlock(&store->mutex);
}

static int store_result(struct peer *peer, const struct job *job)
{
	struct crig_store *store = store_of(peer);
	if (job->op == XSEG_OP_FLUSH)
		return atomic_load(&store->fail_flush);
	if (job->op == XSEG_OP_CONTROL)
		return atomic_load(&store->fail_control);
	if (!store_inside(job) && job->op != XSEG_OP_DELETE && job->op != XSEG_OP_READ)
		return -EINVAL;
	return job->op == XSEG_OP_WRITE ? atomic_load(&store->fail_write) : 0;
}

static void store_do(struct peer *peer, struct job *job)
{
	struct crig_store *store = store_of(peer);
	int result = store_result(peer, job);
	uint8_t *bytes = store->bytes[job->key.object % CRIG_OBJECTS] + job->offset % CRIG_BYTES;
	if (job->op != XSEG_OP_FLUSH || peer->shard == 0)
		store_note(store, job, result);
	pthread_mutex_lock(&store->mutex);
	if (result && job->op == XSEG_OP_FLUSH)
		memset(store->bytes, 0, sizeof(store->bytes)); /* all that was not flushed */
	if (result) {
		pthread_mutex_unlock(&store->mutex);
		job_fail(job, result);
		return;
	}
	switch (job->op) {
	case XSEG_OP_READ:
		if (store_inside(job))
			job_put_bytes(job, 0, bytes, job->length);
		else
			job_zero_bytes(job, 0, job->length);
		break;
	case XSEG_OP_WRITE: job_get_bytes(job, 0, bytes, job->length); break;
	case XSEG_OP_ZERO:
	case XSEG_OP_DISCARD: memset(bytes, 0, job->length); break;
	case XSEG_OP_DELETE: memset(store->bytes[job->key.object], 0, CRIG_BYTES); break;
	default: must(job->op == XSEG_OP_FLUSH || job->op == XSEG_OP_CONTROL);
	}
	pthread_mutex_unlock(&store->mutex);
	job_complete(job, job->op <= XSEG_OP_WRITE ? job->length : 0);
}

static bool store_holds(struct crig_store *store, const struct job *job)
{
	bool flush = job->op == XSEG_OP_FLUSH;
	bool passes = job->op == XSEG_OP_READ || (flush && atomic_load(&store->flushes_pass));
	return (atomic_load(&store->range) && !passes) ||
	       (atomic_load(&store->hold_flush) && flush);
}

static void store_take(struct peer *peer, struct job *job)
{
	struct crig_store *store = store_of(peer);
	struct crig_shard *shard = peer->state;
	uint64_t late_ns = job->op == XSEG_OP_READ    ? atomic_load(&store->read_ns)
			   : job->op == XSEG_OP_WRITE ? atomic_load(&store->write_ns)
			   : job->op == XSEG_OP_FLUSH ? atomic_load(&store->flush_ns)
						      : 0;
	if (store_holds(store, job)) {
		atomic_fetch_add(&store->held, 1);
		TAILQ_INSERT_TAIL(&shard->held, job, link);
	} else if (late_ns) {
		job->arg0 = peer_now_ns(peer) + late_ns;
		TAILQ_INSERT_TAIL(&shard->late, job, link);
	} else {
		store_do(peer, job);
	}
}

static bool store_poll_late(struct peer *peer)
{
	struct crig_shard *shard = peer->state;
	struct job *job = TAILQ_FIRST(&shard->late);
	if (!job || peer_now_ns(peer) < job->arg0)
		return false;
	TAILQ_REMOVE(&shard->late, job, link);
	store_do(peer, job);
	return true;
}

static bool store_poll(struct peer *peer)
{
	struct crig_shard *shard = peer->state;
	struct job *job = TAILQ_FIRST(&shard->held);
	bool moved = store_poll_late(peer);
	if (!job || store_holds(store_of(peer), job))
		return moved;
	TAILQ_REMOVE(&shard->held, job, link);
	atomic_fetch_sub(&store_of(peer)->held, 1);
	store_do(peer, job);
	return true;
}

/* Whoever changes `hold` from outside rings no bell. */
static bool store_sleep(struct peer *peer)
{
	struct crig_shard *shard = peer->state;
	const struct job *late = TAILQ_FIRST(&shard->late);
	if (!TAILQ_EMPTY(&shard->held))
		peer_wake_at(peer, peer_now_ns(peer) + 1000000);
	else if (late)
		peer_wake_at(peer, late->arg0);
	return true;
}

static int store_start(struct peer *peer, char *why, size_t why_size)
{
	struct crig_shard *shard = peer->state;
	(void)why, (void)why_size;
	TAILQ_INIT(&shard->held);
	TAILQ_INIT(&shard->late);
	return 0;
}

static int store_open(struct peer *first, char *why, size_t why_size)
{
	(void)why, (void)why_size;
	return -pthread_mutex_init(&store_of(first)->mutex, NULL);
}

static const struct peer_ops store_ops = {
	.name = "c_store",
	.summary = "a store that does as it is told, for tests",
	.state_size = sizeof(struct crig_shard),
	.shared_size = sizeof(struct crig_store),
	.open = store_open,
	.start = store_start,
	.poll = store_poll,
	.sleep = store_sleep,
	.on = {[XSEG_OP_READ] = store_take,
		[XSEG_OP_WRITE] = store_take,
		[XSEG_OP_ZERO] = store_take,
		[XSEG_OP_DISCARD] = store_take,
		[XSEG_OP_FLUSH] = store_take,
		[XSEG_OP_DELETE] = store_take,
		[XSEG_OP_CONTROL] = store_take},
};

/* --- the rig ---------------------------------------------------------------------------------- */

static const char *const *crig_specs(struct crig *crig, const char *options)
{
	static const char *specs[3];
	snprintf(crig->cache, sizeof(crig->cache), "cache=cached,edge.store=store%s", options);
	specs[0] = crig->cache;
	specs[1] = "store=c_store";
	specs[2] = NULL;
	return specs;
}

void crig_begin(struct crig *crig, unsigned lanes, const char *options)
{
	module_register(peer_module);
	module_register(&store_ops);
	crig->lanes = lanes;
	crig->is_apart = false;
	rig_begin(&crig->rig, 24u << 20, lanes, crig_specs(crig, options));
	rig_ask(&crig->rig, "cache");
}

void crig_again(struct crig *crig, const char *options)
{
	rig_again(&crig->rig, crig->lanes, crig_specs(crig, options));
	rig_ask(&crig->rig, "cache");
}

static void apart_start(struct crig *crig, const char *options)
{
	char why[WHY_SIZE] = "";
	const struct host_config config = {
		.segment = crig->rig.seg.name, .lanes = 1, .workers = 2, .drain_ns = 120000000000u};
	memset(&crig->apart, 0, sizeof(crig->apart));
	ck_assert_msg(
		spec_host_add(&crig->apart, crig_specs(crig, options)[0], why) == 0, "%s", why);
	ck_assert_msg(host_start(&crig->apart, &config, why) == 0, "%s", why);
	crig->is_apart = true;
}

static void apart_stop(struct crig *crig)
{
	ck_assert(host_stop(&crig->apart, NULL));
	host_fini(&crig->apart);
	crig->is_apart = false;
}

void crig_apart_begin(struct crig *crig, const char *options)
{
	static const char *const store[] = {"store=c_store", NULL};
	module_register(peer_module);
	module_register(&store_ops);
	crig->lanes = 1;
	rig_begin(&crig->rig, 24u << 20, 1, store);
	apart_start(crig, options);
	rig_ask(&crig->rig, "cache");
}

void crig_apart_again(struct crig *crig, const char *options)
{
	apart_stop(crig);
	apart_start(crig, options);
}

/* What the cache keeps stays kept; all else is free. */
void crig_end(struct crig *crig)
{
	struct rig *rig = &crig->rig;
	struct xseg_usage usage;
	client_close(&rig->client);
	if (crig->is_apart)
		apart_stop(crig);
	ck_assert(host_stop(&rig->host, NULL));
	host_fini(&rig->host);
	xseg_segment_usage(&rig->seg, &usage);
	ck_assert_uint_eq(usage.requests_by_state[XSEG_REQUEST_FREE], usage.requests);
	ck_assert_uint_eq(usage.pages_held, 0);
	ck_assert_uint_eq(usage.pages_stored, 0);
	ck_assert_uint_eq(usage.pages_retired, 0);
	scratch_segment_end(&rig->seg);
}

struct crig_store *crig_store(struct crig *crig) { return rig_peer(&crig->rig, "store")->shared; }

uint32_t crig_count(struct crig *crig, enum xseg_op op) { return crig_count_with(crig, op, 0); }

uint32_t crig_count_with(struct crig *crig, enum xseg_op op, unsigned flags)
{
	struct crig_store *store = crig_store(crig);
	uint32_t count = 0;
	pthread_mutex_lock(&store->mutex);
	for (uint32_t i = 0; i < store->count; i++)
		count += store->events[i].op == op && (store->events[i].flags & flags) == flags;
	pthread_mutex_unlock(&store->mutex);
	return count;
}

uint32_t crig_place(struct crig *crig, enum xseg_op op, uint32_t nth)
{
	struct crig_store *store = crig_store(crig);
	uint32_t found = UINT32_MAX;
	pthread_mutex_lock(&store->mutex);
	for (uint32_t i = 0; i < store->count && found == UINT32_MAX; i++)
		if (store->events[i].op == op && nth-- == 0)
			found = i;
	pthread_mutex_unlock(&store->mutex);
	ck_assert_uint_ne(found, UINT32_MAX);
	return found;
}

/* --- asking -------------------------------------------------------------------------------- */

struct client_request crig_request(
	enum xseg_op op, uint32_t object, uint64_t offset, uint32_t length)
{
	return (struct client_request){.op = op,
		.key = {.volume = 1, .object = object},
		.offset = offset,
		.length = length};
}

int crig_write(struct crig *crig, uint32_t object, uint64_t offset, uint32_t length, uint8_t value,
	unsigned flags)
{
	static uint8_t bytes[CRIG_BYTES];
	struct client_request request = crig_request(XSEG_OP_WRITE, object, offset, length);
	memset(bytes, value, length);
	request.flags = flags;
	request.send = bytes;
	request.send_size = length;
	return client_do(&crig->rig.client, &request);
}

static bool all_are(const uint8_t *bytes, uint32_t length, uint8_t value)
{
	for (uint32_t i = 0; i < length; i++)
		if (bytes[i] != value)
			return false;
	return true;
}

bool crig_reads(struct crig *crig, uint32_t object, uint64_t offset, uint32_t length, uint8_t value)
{
	static uint8_t bytes[CRIG_BYTES];
	struct client_request request = crig_request(XSEG_OP_READ, object, offset, length);
	request.receive = bytes;
	request.receive_size = length;
	ck_assert_int_eq(client_do(&crig->rig.client, &request), 0);
	return all_are(bytes, length, value);
}

bool crig_has(struct crig *crig, uint32_t object, uint64_t offset, uint32_t length, uint8_t value)
{
	struct crig_store *store = crig_store(crig);
	pthread_mutex_lock(&store->mutex);
	bool has = all_are(store->bytes[object] + offset, length, value);
	pthread_mutex_unlock(&store->mutex);
	return has;
}

int crig_do(struct crig *crig, enum xseg_op op, uint32_t object, uint64_t offset, uint32_t length)
{
	struct client_request request = crig_request(op, object, offset, length);
	return client_do(&crig->rig.client, &request);
}

int crig_flush(struct crig *crig) { return crig_do(crig, XSEG_OP_FLUSH, 0, 0, 0); }

int crig_control(struct crig *crig, enum cache_control what, uint64_t volume, uint64_t number,
	uint64_t *value)
{
	struct client_request request = {
		.op = XSEG_OP_CONTROL, .key = {.volume = volume}, .arg0 = what, .arg1 = number};
	int error = client_do(&crig->rig.client, &request);
	if (value)
		*value = request.value;
	return error;
}

int crig_set(struct crig *crig, uint64_t volume, enum cache_mode mode, enum cache_ack ack)
{
	struct cache_setting setting = {.mode = mode, .ack = ack};
	struct client_request request = {.op = XSEG_OP_CONTROL,
		.key = {.volume = volume},
		.length = sizeof(setting),
		.arg0 = CACHE_SET,
		.send = &setting,
		.send_size = sizeof(setting)};
	return client_do(&crig->rig.client, &request);
}

struct cache_state crig_state(struct crig *crig)
{
	uint8_t bytes[CACHE_ANSWER_AT + sizeof(struct cache_state)] = {0};
	struct client_request request = {.op = XSEG_OP_CONTROL,
		.length = sizeof(bytes),
		.arg0 = CACHE_STATE,
		.receive = bytes,
		.receive_size = sizeof(bytes)};
	struct cache_state state;
	ck_assert_int_eq(client_do(&crig->rig.client, &request), 0);
	memcpy(&state, bytes + CACHE_ANSWER_AT, sizeof(state));
	ck_assert_uint_eq(state.version, 1);
	return state;
}
