/* SPDX-License-Identifier: Apache-2.0 */
/* A mapper over a store in memory, inside a test program. */
#include "tests/unit/mapper_rig.h"

#include <base/time.h>
#include <errno.h>
#include <string.h>

extern const struct peer_ops *const peer_module; /* the mapper: it is linked in */

#define OUT_MAX (1u << 20)
#define KEYS_MAX 65536

static struct map_memory *memory;
static bool heal_at_start; /* the next one finds the store well again */
static pthread_mutex_t memory_lock = PTHREAD_MUTEX_INITIALIZER;
_Atomic bool mrig_hold;
_Atomic int mrig_fence = -EOPNOTSUPP;
bool mrig_small;
_Atomic uint64_t mrig_spare;
_Atomic unsigned mrig_held;

struct map_memory *mrig_lock(void)
{
	pthread_mutex_lock(&memory_lock);
	return memory;
}

void mrig_unlock(void) { pthread_mutex_unlock(&memory_lock); }

/* --- m_store -------------------------------------------------------------------------------- */

struct store_shard {
	struct job_queue held;
};

static int compare_keys(const void *a, const void *b)
{
	const struct xseg_key *x = a, *y = b;
	if (x->volume != y->volume)
		return x->volume < y->volume ? -1 : 1;
	return x->object < y->object ? -1 : x->object > y->object;
}

/* As blockers do: in order, the cursor is a volume, and a volume's records are not torn apart. */
static int list_records(struct job *job, uint64_t *next)
{
	struct map_store *store = &memory->store;
	struct xseg_key *keys = malloc(KEYS_MAX * sizeof(*keys));
	uint32_t room = job->length / sizeof(*keys), first = 0, end;
	uint64_t cursor = 0;
	int count = store->records(store, job->key.epoch, &cursor, keys, KEYS_MAX);
	must(cursor == 0);
	if (count > 0)
		qsort(keys, (size_t)count, sizeof(*keys), compare_keys);
	while ((int)first < count && keys[first].volume < job->arg0)
		first++;
	end = count < 0 ? 0 : (uint32_t)count;
	*next = 0;
	if (end - first > room) {
		end = first + room;
		*next = keys[end].volume;
		while (end > first && keys[end - 1].volume == *next)
			end--;
	}
	if (end > first)
		job_put_bytes(job, 0, keys + first, (end - first) * (uint32_t)sizeof(*keys));
	free(keys);
	return count < 0 ? count : (int)((end - first) * sizeof(*keys));
}

static int list_objects(struct job *job, uint64_t *next)
{
	struct map_store *store = &memory->store;
	struct xseg_key keys[4096];
	uint32_t room = job->length / sizeof(keys[0]);
	*next = job->arg0;
	int count = store->list(
		store, job->key.volume, next, keys, room < countof(keys) ? room : countof(keys));
	if (count > 0)
		job_put_bytes(job, 0, keys, (uint32_t)count * (uint32_t)sizeof(keys[0]));
	return count < 0 ? count : count * (int)sizeof(keys[0]);
}

static int store_cas(struct job *job, uint64_t *value)
{
	struct map_store *store = &memory->store;
	uint8_t bytes[XSEG_RECORD_MAX];
	int rc;
	*value = job->arg0;
	switch (job->arg1) {
	case XSEG_CAS_GET:
		rc = store->get(store, job->key, bytes, value);
		if (rc > 0)
			job_put_bytes(job, 0, bytes, (uint32_t)rc);
		return rc;
	case XSEG_CAS_PUT:
		job_get_bytes(job, 0, bytes, job->length);
		return store->put(store, job->key, bytes, job->length, value);
	default: return store->drop(store, job->key, value);
	}
}

static int store_info(struct job *job)
{
	struct xseg_object_info info = {0};
	int rc = memory->store.allocated(&memory->store, job->key, &info.allocated);
	if (rc != 0)
		return rc;
	job_put_bytes(job, 0, &info, sizeof(info));
	return sizeof(info);
}

static int store_data(struct job *job)
{
	static uint8_t bytes[XSEG_OBJECT_MAX]; /* under the lock */
	struct map_store *store = &memory->store;
	int rc;
	if (job->op == XSEG_OP_WRITE)
		job_get_bytes(job, 0, bytes, job->length);
	if (job->op == XSEG_OP_WRITE)
		rc = store->write(store, job->key, (uint32_t)job->offset, bytes, job->length);
	else
		rc = store->read(store, job->key, (uint32_t)job->offset, bytes, job->length);
	if (rc == 0 && job->op == XSEG_OP_READ)
		job_put_bytes(job, 0, bytes, job->length);
	return rc < 0 ? rc : (int)job->length;
}

static int store_answer(struct job *job, uint64_t *value)
{
	struct map_store *store = &memory->store;
	struct xseg_key from = {.volume = job->arg1,
		.epoch = (uint32_t)(job->arg0 >> 32),
		.object = (uint32_t)job->arg0};
	switch (job->op) {
	case XSEG_OP_READ:
	case XSEG_OP_WRITE: return store_data(job);
	case XSEG_OP_FLUSH: return store->flush(store, job->key.volume);
	case XSEG_OP_DELETE: return store->discard(store, job->key);
	case XSEG_OP_COPY:
		return store->copy(store, job->key, from, (uint32_t)job->offset, job->length);
	case XSEG_OP_INFO: return store_info(job);
	case XSEG_OP_CONTROL: return mrig_fence;
	case XSEG_OP_CAS: return store_cas(job, value);
	default:
		return job->key.epoch >= XSEG_EPOCH_HOME ? list_records(job, value)
							 : list_objects(job, value);
	}
}

static void store_do(struct job *job)
{
	uint64_t value = 0;
	pthread_mutex_lock(&memory_lock);
	int rc = store_answer(job, &value);
	pthread_mutex_unlock(&memory_lock);
	if (rc < 0)
		job_fail_value(job, rc, value);
	else
		job_complete_value(job, (uint32_t)rc, value);
}

static void store_take(struct peer *peer, struct job *job)
{
	struct store_shard *shard = peer->state;
	if (!atomic_load(&mrig_hold) || job->key.volume == atomic_load(&mrig_spare)) {
		store_do(job);
		return;
	}
	TAILQ_INSERT_TAIL(&shard->held, job, link);
	atomic_fetch_add(&mrig_held, 1);
}

static bool store_poll(struct peer *peer)
{
	struct store_shard *shard = peer->state;
	struct job *job = TAILQ_FIRST(&shard->held);
	if (!job || atomic_load(&mrig_hold))
		return false;
	TAILQ_REMOVE(&shard->held, job, link);
	atomic_fetch_sub(&mrig_held, 1);
	store_do(job);
	return true;
}

/* Whoever changes `hold` from outside rings no bell. */
static bool store_sleep(struct peer *peer)
{
	struct store_shard *shard = peer->state;
	if (!TAILQ_EMPTY(&shard->held))
		peer_wake_at(peer, peer_now_ns(peer) + 1000000);
	return true;
}

static int store_open(struct peer *first, char *why, size_t why_size)
{
	(void)first, (void)why, (void)why_size;
	if (heal_at_start)
		map_memory_heal(memory);
	heal_at_start = false;
	return 0;
}

static int store_start(struct peer *peer, char *why, size_t why_size)
{
	struct store_shard *shard = peer->state;
	(void)why, (void)why_size;
	TAILQ_INIT(&shard->held);
	return 0;
}

static const struct peer_ops store_ops = {
	.name = "m_store",
	.summary = "a store that does as it is told, for tests",
	.state_size = sizeof(struct store_shard),
	.open = store_open,
	.start = store_start,
	.poll = store_poll,
	.sleep = store_sleep,
	.on = {[XSEG_OP_READ] = store_take,
		[XSEG_OP_WRITE] = store_take,
		[XSEG_OP_FLUSH] = store_take,
		[XSEG_OP_COPY] = store_take,
		[XSEG_OP_DELETE] = store_take,
		[XSEG_OP_CAS] = store_take,
		[XSEG_OP_INFO] = store_take,
		[XSEG_OP_CONTROL] = store_take,
		[XSEG_OP_LIST] = store_take},
};

/* --- the rig -------------------------------------------------------------------------------- */

static const char *const *specs_of(struct mrig *mrig, const char *options)
{
	static const char *specs[3];
	snprintf(mrig->spec, sizeof(mrig->spec),
		"map=mapperd,edge.store=store,settle=0,object-size=%u%s", MRIG_OBJECT, options);
	specs[0] = mrig->spec;
	specs[1] = "store=m_store";
	specs[2] = NULL;
	return specs;
}

void mrig_begin(struct mrig *mrig, unsigned lanes, const char *options)
{
	memset(mrig, 0, sizeof(*mrig));
	static bool registered;
	if (!registered) {
		module_register(peer_module);
		module_register(&store_ops);
	}
	registered = true;
	memory = map_memory_create();
	mrig->lanes = lanes;
	mrig->out = malloc(OUT_MAX);
	must(mrig->out);
	rig_begin(&mrig->rig, mrig_small ? 0 : 48u << 20, lanes, specs_of(mrig, options));
	rig_ask(&mrig->rig, "map");
}

void mrig_again(struct mrig *mrig, const char *options)
{
	rig_again(&mrig->rig, mrig->lanes, specs_of(mrig, options));
	rig_ask(&mrig->rig, "map");
}

void mrig_healed_again(struct mrig *mrig, const char *options)
{
	heal_at_start = true;
	mrig_again(mrig, options);
}

void mrig_end(struct mrig *mrig)
{
	rig_end(&mrig->rig);
	map_memory_destroy(memory);
	free(mrig->out);
}

void mrig_client(struct mrig *mrig, struct client *client)
{
	char why[XSEG_WHY_SIZE];
	must(client_open(client, mrig->rig.seg.name, "map", why) == 0);
}

/* --- what is asked -------------------------------------------------------------------------- */

int mrig_ask_at(struct client *client, struct mrig *mrig, enum map_control what, uint64_t volume,
	uint64_t arg, const void *in, uint32_t in_size)
{
	uint8_t *bytes = calloc(1, OUT_MAX);
	must(bytes);
	struct client_request request = {.op = XSEG_OP_CONTROL,
		.key.volume = volume,
		.arg0 = what,
		.arg1 = arg,
		.send = in,
		.send_size = in_size,
		.receive = bytes,
		.receive_size = 65536};
	int rc = client_do(client, &request);
	uint32_t size = request.answer_length;
	mrig->size = size > MAP_ANSWER_AT ? size - MAP_ANSWER_AT : 0;
	mrig->value = request.value;
	memcpy(mrig->out, bytes + MAP_ANSWER_AT, 65536 - MAP_ANSWER_AT);
	free(bytes);
	return rc;
}

int mrig_control(struct mrig *mrig, enum map_control what, uint64_t volume, uint64_t arg,
	const void *in, uint32_t in_size)
{
	return mrig_ask_at(&mrig->rig.client, mrig, what, volume, arg, in, in_size);
}

int mrig_ask(struct mrig *mrig, enum map_control what, uint64_t volume, const struct map_ask *ask)
{
	return mrig_control(mrig, what, volume, 0, ask, sizeof(*ask));
}

int mrig_named(struct mrig *mrig, enum map_control what, const char *name, uint64_t arg)
{
	struct map_ask ask = {0};
	snprintf(ask.name, sizeof(ask.name), "%s", name);
	return mrig_control(mrig, what, 0, arg, &ask, sizeof(ask));
}

static int volume_do(struct mrig *mrig, enum xseg_op op, uint64_t id, struct xseg_volume_info *info)
{
	struct client_request request = {.op = op,
		.key.volume = id,
		.length = sizeof(*info),
		.send = info,
		.send_size = sizeof(*info),
		.receive = info,
		.receive_size = sizeof(*info)};
	int rc = client_do(&mrig->rig.client, &request);
	mrig->value = request.value;
	return rc;
}

int mrig_create(struct mrig *mrig, const char *name, uint64_t size, uint64_t *id)
{
	struct xseg_volume_info info = {.size = size};
	snprintf(info.name, sizeof(info.name), "%s", name);
	int rc = volume_do(mrig, XSEG_OP_CREATE, 0, &info);
	*id = info.id;
	return rc;
}

int mrig_info(struct mrig *mrig, uint64_t id, const char *name, struct xseg_volume_info *info)
{
	memset(info, 0, sizeof(*info));
	if (name)
		snprintf(info->name, sizeof(info->name), "%s", name);
	return volume_do(mrig, XSEG_OP_INFO, id, info);
}

int mrig_remove(struct mrig *mrig, uint64_t id)
{
	struct client_request request = {.op = XSEG_OP_REMOVE, .key.volume = id};
	return client_do(&mrig->rig.client, &request);
}

unsigned mrig_list_at(struct client *client, unsigned room, char *names, size_t size)
{
	struct xseg_volume_info *infos = calloc(room, sizeof(*infos));
	unsigned total = 0;
	uint64_t cursor = 0;
	names[0] = 0;
	must(infos);
	do {
		struct client_request request = {.op = XSEG_OP_LIST,
			.arg0 = cursor,
			.length = room * (uint32_t)sizeof(*infos),
			.receive = infos,
			.receive_size = room * (uint32_t)sizeof(*infos)};
		must(client_do(client, &request) == 0);
		unsigned count = request.answer_length / (unsigned)sizeof(*infos);
		for (unsigned i = 0; i < count; i++) {
			size_t at = strlen(names);
			snprintf(names + at, size - at, "%s%s", at ? " " : "", infos[i].name);
		}
		total += count;
		cursor = request.value;
	} while (cursor != 0);
	free(infos);
	return total;
}

unsigned mrig_list(struct mrig *mrig, unsigned room, char *names, size_t size)
{
	return mrig_list_at(&mrig->rig.client, room, names, size);
}

int mrig_acquire(struct mrig *mrig, uint64_t id, struct map_head_info *head)
{
	int rc = mrig_control(mrig, MAP_ACQUIRE, id, 0, NULL, 0);
	if (rc == 0)
		memcpy(head, mrig->out, sizeof(*head));
	return rc;
}

struct map_home mrig_home(uint64_t id)
{
	struct map_home home = {0};
	ck_assert_int_eq(map_home_read(&mrig_lock()->store, id, &home), 0);
	mrig_unlock();
	return home;
}

int mrig_publish(struct mrig *mrig, uint64_t id, uint32_t object, uint32_t epoch)
{
	struct map_update new = {.object = object, .epoch = epoch};
	mrig_data(id, epoch, object, (uint8_t)(object + 1));
	return mrig_control(mrig, MAP_PUBLISH, id, 1, &new, sizeof(new));
}

uint64_t mrig_word(struct mrig *mrig, uint64_t id, uint32_t object)
{
	uint64_t words[MAP_PAGE_ENTRIES];
	ck_assert_int_eq(mrig_control(mrig, MAP_PAGE, id, object / MAP_PAGE_ENTRIES, NULL, 0), 0);
	ck_assert_uint_eq(mrig->size, sizeof(words));
	memcpy(words, mrig->out, sizeof(words));
	return words[object % MAP_PAGE_ENTRIES];
}

/* --- the store from behind ------------------------------------------------------------------ */

void mrig_data(uint64_t id, uint32_t epoch, uint32_t object, uint8_t byte)
{
	struct xseg_key key = {.volume = id, .epoch = epoch, .object = object};
	uint8_t *bytes = malloc(MRIG_OBJECT);
	must(bytes);
	memset(bytes, byte, MRIG_OBJECT);
	struct map_store *store = &mrig_lock()->store;
	must(store->write(store, key, 0, bytes, MRIG_OBJECT) == 0);
	must(store->flush(store, id) == 0);
	mrig_unlock();
	free(bytes);
}

uint8_t mrig_byte(uint64_t id, uint32_t epoch, uint32_t object, uint32_t offset)
{
	struct xseg_key key = {.volume = id, .epoch = epoch, .object = object};
	uint8_t sector[XSEG_SECTOR];
	struct map_store *store = &mrig_lock()->store;
	must(store->read(store, key, offset, sector, sizeof(sector)) == 0);
	mrig_unlock();
	return sector[0];
}

int mrig_other_acquire(uint64_t id, bool force, struct map_home *home)
{
	struct map_claim claim = {.owner = 4711,
		.now_ns = time_wall_ns(),
		.lease_ns = 3600000000000u,
		.host = "elsewhere"};
	struct map_store *store = &mrig_lock()->store;
	int rc = map_home_acquire(store, id, &claim, force, home);
	mrig_unlock();
	return rc;
}

uint64_t mrig_counter(struct mrig *mrig, enum mapper_counter counter)
{
	return rig_counter(&mrig->rig, "map", (enum core_counter)PEER_COUNTER(counter));
}
