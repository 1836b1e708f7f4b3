/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The store as the library sees it, one request after the other; below, four things that it need
 * not know: some answers are remembered (mapper_memory.c), deletions go out many at a time, and so
 * do pages of maps (mapper_pages.c), and who lists volume records gets them read ahead, many at a
 * time.
 */
#include <base/clock.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "peers/map/mapper.h"

#define LIST_BYTES (256u << 10) /* of keys asked for at a time, at most */
#define AHEAD_VOLUMES (MAPPER_BATCH / 2)
#define AHEAD_NS 50000000u /* then what was read ahead is old */

/* Records that a list has shown, and a window of volumes whose records have been read. */
struct mapper_ahead {
	/* keys from one request, given out a few at a time */
	struct xseg_key *keys;
	uint32_t epoch, key_count, key_next;
	uint64_t cursor; /* behind them */
	/* volumes among them */
	uint64_t *ids;
	uint32_t count, room, next; /* next: not read yet */
	uint32_t first, end;	    /* of the window */
	uint64_t read_ns;
	struct mapper_call calls[2 * AHEAD_VOLUMES];
	uint8_t data[2 * AHEAD_VOLUMES][XSEG_RECORD_MAX];
};

static struct mapper_store *store_of(struct map_store *store)
{
	return (struct mapper_store *)store;
}

static struct mapper_memory *memory_of(struct mapper_store *store)
{
	return &store->shard->shared->memory;
}

void mapper_store_all(struct mapper_store *store, struct mapper_call *calls, unsigned count)
{
	mapper_call_all(store->shard, calls, count);
	store->requests += count;
	store->waited++;
}

/* --- deletions ------------------------------------------------------------------------------ */

static void discards_do(struct mapper_store *store)
{
	if (store->discard_count == 0)
		return;
	mapper_store_all(store, store->discards, store->discard_count);
	for (unsigned i = 0; i < store->discard_count; i++) {
		int rc = store->discards[i].result;
		if (rc != 0 && rc != -ENOENT && store->discard_error == 0)
			store->discard_error = rc;
	}
	store->discard_count = 0;
}

static int discards_end(struct mapper_store *store)
{
	discards_do(store);
	int rc = store->discard_error;
	store->discard_error = 0;
	return rc;
}

static int store_discard(struct map_store *s, struct xseg_key key)
{
	struct mapper_store *store = store_of(s);
	struct mapper_call *call = &store->discards[store->discard_count];
	mapper_pages_send(store);
	mapper_pages_forget(store);
	memset(call, 0, sizeof(*call));
	call->op = XSEG_OP_DELETE;
	call->key = key;
	if (key.epoch & MAP_EPOCH_MAP)
		mapper_memory_forget(memory_of(store), key);
	if (++store->discard_count < MAPPER_BATCH)
		return 0;
	return discards_end(store);
}

/* --- one request ---------------------------------------------------------------------------- */

/* What was asked for before has been done. The first one's result. */
static int store_do_all(struct mapper_store *store, struct mapper_call *calls, unsigned count)
{
	mapper_pages_send(store);
	int rc = store->revoked ? -EKEYREVOKED : discards_end(store);
	if (rc != 0)
		return rc;
	mapper_store_all(store, calls, count);
	return calls->result;
}

static int store_do(struct mapper_store *store, struct mapper_call *call)
{
	return store_do_all(store, call, 1);
}

/* A whole page of a directory? */
static bool is_directory(struct xseg_key key, uint32_t length)
{
	return (key.epoch & MAP_EPOCH_MAP) != 0 && length == MAP_PAGE_SIZE &&
	       key.object >= MAP_NUMBER_DIRECTORY && key.object < MAP_NUMBER_BITMAP;
}

static bool from_memory(struct mapper_store *store, struct xseg_key key, uint32_t offset, void *to,
	uint32_t *size, uint64_t *version)
{
	if (!store->remembers ||
		!mapper_memory_find(memory_of(store), key, offset, to, size, version))
		return false;
	store->remembered = true;
	store->answered++;
	return true;
}

static int store_read(
	struct map_store *s, struct xseg_key key, uint32_t offset, void *to, uint32_t length)
{
	struct mapper_store *store = store_of(s);
	uint32_t size;
	uint64_t version;
	bool directory = is_directory(key, length);
	if (directory && from_memory(store, key, offset, to, &size, &version))
		return 0;
	if (store->discard_count == 0 && mapper_pages_read(store, key, offset, to, length))
		return 0;
	struct mapper_call call = {
		.op = XSEG_OP_READ, .key = key, .offset = offset, .length = length, .receive = to};
	int rc = store->revoked ? -EKEYREVOKED : discards_end(store);
	if (rc != 0)
		return rc;
	mapper_store_all(store, &call, 1);
	rc = call.result;
	if (rc == 0 && call.answer_length != length)
		rc = -EIO;
	if (rc == 0 && directory)
		mapper_memory_note(memory_of(store), key, offset, to, length, 0);
	return rc;
}

static void store_expect(struct map_store *s, const struct map_range *ranges, size_t count)
{
	mapper_pages_expect(store_of(s), ranges, count);
}

void mapper_store_note(struct mapper_store *store, struct xseg_key key, uint32_t offset,
	const void *bytes, uint32_t length)
{
	if (is_directory(key, length))
		mapper_memory_note(memory_of(store), key, offset, bytes, length, 0);
}

static int store_write(struct map_store *s, struct xseg_key key, uint32_t offset, const void *from,
	uint32_t length)
{
	struct mapper_store *store = store_of(s);
	struct mapper_call call = {
		.op = XSEG_OP_WRITE, .key = key, .offset = offset, .length = length, .send = from};
	bool of_map = (key.epoch & MAP_EPOCH_MAP) != 0;
	if (of_map)
		mapper_memory_forget(memory_of(store), key);
	int rc = store->revoked ? -EKEYREVOKED : discards_end(store);
	if (rc != 0 || (of_map && mapper_pages_write(store, key, offset, from, length)))
		return rc;
	rc = store_do(store, &call);
	if (rc == 0)
		mapper_store_note(store, key, offset, from, length);
	return rc;
}

static int store_flush(struct map_store *s, uint64_t volume)
{
	struct mapper_store *store = store_of(s);
	struct mapper_call call = {.op = XSEG_OP_FLUSH, .key.volume = volume};
	int rc = store_do(store, &call);
	if (store->write_error != 0)
		rc = store->write_error;
	store->write_error = 0;
	return rc;
}

static int store_copy(struct map_store *s, struct xseg_key to, struct xseg_key from,
	uint32_t offset, uint32_t length)
{
	struct mapper_call call = {.op = XSEG_OP_COPY,
		.key = to,
		.offset = offset,
		.length = length,
		.arg0 = from.object | (uint64_t)from.epoch << 32,
		.arg1 = from.volume};
	mapper_pages_forget(store_of(s));
	return store_do(store_of(s), &call);
}

static int store_allocated(struct map_store *s, struct xseg_key key, uint64_t *bytes)
{
	struct xseg_object_info info = {0};
	struct mapper_call call = {
		.op = XSEG_OP_INFO, .key = key, .length = sizeof(info), .receive = &info};
	int rc = store_do(store_of(s), &call);
	*bytes = rc == 0 ? info.allocated : 0;
	return rc == -ENOENT ? 0 : rc;
}

/* --- lists ---------------------------------------------------------------------------------- */

static int ask_list(struct mapper_store *store, struct xseg_key of, uint64_t *cursor,
	struct xseg_key *keys, uint32_t max)
{
	uint32_t most = LIST_BYTES / sizeof(*keys);
	struct mapper_call call = {.op = XSEG_OP_LIST,
		.key = of,
		.arg0 = *cursor,
		.length = (max < most ? max : most) * (uint32_t)sizeof(*keys),
		.receive = keys};
	int rc = store_do(store, &call);
	if (rc != 0)
		return rc;
	*cursor = call.value;
	return (int)(call.answer_length / sizeof(*keys));
}

static int store_list(
	struct map_store *s, uint64_t volume, uint64_t *cursor, struct xseg_key *keys, uint32_t max)
{
	struct xseg_key of = {.volume = volume};
	int count = ask_list(store_of(s), of, cursor, keys, max), kept = 0;
	for (int i = 0; i < count; i++)
		if (keys[i].volume == volume)
			keys[kept++] = keys[i];
	return count < 0 ? count : kept;
}

static struct mapper_ahead *ahead_of(struct mapper_store *store)
{
	if (!store->ahead)
		store->ahead = calloc(1, sizeof(*store->ahead));
	if (store->ahead && !store->ahead->keys)
		store->ahead->keys = malloc(LIST_BYTES);
	return store->ahead && store->ahead->keys ? store->ahead : NULL;
}

/* Volumes whose records will be asked for next, most likely. No memory: they are not read ahead. */
static void ahead_add(struct mapper_ahead *ahead)
{
	for (uint32_t i = 0; i < ahead->key_count; i++) {
		uint64_t id = ahead->keys[i].volume;
		if (ahead->count > 0 && ahead->ids[ahead->count - 1] == id)
			continue;
		if (ahead->count == ahead->room) {
			uint32_t room = ahead->room ? 2 * ahead->room : 256;
			uint64_t *grown = realloc(ahead->ids, room * sizeof(*grown));
			if (!grown)
				return;
			ahead->ids = grown;
			ahead->room = room;
		}
		ahead->ids[ahead->count++] = id;
	}
}

/* The store makes the whole list to answer with a part of it, so the parts are large. */
static int ahead_list(struct mapper_store *store, uint32_t epoch, uint64_t cursor)
{
	struct mapper_ahead *ahead = store->ahead;
	struct xseg_key of = {.epoch = epoch};
	ahead->cursor = cursor;
	ahead->epoch = epoch;
	ahead->key_next = ahead->key_count = 0;
	int count = ask_list(store, of, &ahead->cursor, ahead->keys, UINT32_MAX);
	if (count < 0)
		return count;
	ahead->key_count = (uint32_t)count;
	if (epoch != XSEG_EPOCH_VOLUME)
		return 0;
	/* what was read before this list is older than it */
	ahead->count = ahead->next = ahead->first = ahead->end = 0;
	ahead_add(ahead);
	return 0;
}

/* Of a volume's records all or none, for the cursor of a list of records is a volume's number. */
static int ahead_give(
	struct mapper_ahead *ahead, uint64_t *cursor, struct xseg_key *keys, uint32_t max)
{
	const struct xseg_key *from = ahead->keys + ahead->key_next;
	uint32_t left = ahead->key_count - ahead->key_next, count = left < max ? left : max;
	while (count > 0 && count < left && from[count - 1].volume == from[count].volume)
		count--;
	if (left > 0 && count == 0)
		return -E2BIG;
	memcpy(keys, from, count * sizeof(*keys));
	ahead->key_next += count;
	*cursor = count < left ? from[count].volume : ahead->cursor;
	return (int)count;
}

static int store_records(
	struct map_store *s, uint32_t epoch, uint64_t *cursor, struct xseg_key *keys, uint32_t max)
{
	struct mapper_store *store = store_of(s);
	struct mapper_ahead *ahead = ahead_of(store);
	if (!ahead)
		return -ENOMEM;
	bool there = *cursor != 0 && ahead->epoch == epoch && ahead->key_next < ahead->key_count &&
		     ahead->keys[ahead->key_next].volume == *cursor;
	int rc = there ? 0 : ahead_list(store, epoch, *cursor);
	return rc < 0 ? rc : ahead_give(ahead, cursor, keys, max);
}

/* --- records -------------------------------------------------------------------------------- */

static void fill_get(struct mapper_call *call, struct xseg_key key, uint8_t to[XSEG_RECORD_MAX])
{
	memset(call, 0, sizeof(*call));
	call->op = XSEG_OP_CAS;
	call->arg1 = XSEG_CAS_GET;
	call->key = key;
	call->length = XSEG_RECORD_MAX;
	call->receive = to;
}

/* The next window: from the first volume that has not been read. */
static void ahead_read(struct mapper_store *store, uint32_t from)
{
	struct mapper_ahead *ahead = store->ahead;
	uint32_t count = ahead->count - from;
	if (count > AHEAD_VOLUMES)
		count = AHEAD_VOLUMES;
	for (uint32_t i = 0; i < 2 * count; i++)
		fill_get(&ahead->calls[i], map_volume_key(ahead->ids[from + i / 2], i % 2),
			ahead->data[i]);
	ahead->read_ns = clock_now_ns();
	mapper_store_all(store, ahead->calls, 2 * count);
	ahead->first = from;
	ahead->next = ahead->end = from + count;
}

/* Its answer in the window, if it has not been changed here since. */
static struct mapper_call *ahead_find(struct mapper_ahead *ahead, struct xseg_key key)
{
	for (uint32_t i = ahead->first; i < ahead->end; i++) {
		struct mapper_call *call = &ahead->calls[2 * (i - ahead->first) + key.object];
		if (ahead->ids[i] == key.volume && call->op != XSEG_OP_NONE)
			return call;
	}
	return NULL;
}

static void together_forget(struct mapper_store *store)
{
	store->together[1].op = store->together[2].op = XSEG_OP_NONE;
}

static void ahead_forget(struct mapper_store *store, struct xseg_key key)
{
	struct mapper_ahead *ahead = store->ahead;
	struct mapper_call *call = NULL;
	together_forget(store);
	if (ahead && key.epoch == XSEG_EPOCH_VOLUME && key.object <= 1)
		call = ahead_find(ahead, key);
	if (call)
		call->op = XSEG_OP_NONE;
}

/* Once: whoever reads it again wants to know whether it has changed. */
static struct mapper_call *ahead_take(struct mapper_store *store, struct xseg_key key)
{
	struct mapper_ahead *ahead = store->ahead;
	if (!ahead || key.epoch != XSEG_EPOCH_VOLUME || key.object > 1)
		return NULL;
	struct mapper_call *call = ahead_find(ahead, key);
	for (uint32_t i = ahead->next; i < ahead->count && !call; i++) {
		if (ahead->ids[i] != key.volume)
			continue;
		ahead_read(store, i);
		return ahead_find(ahead, key);
	}
	return call && clock_now_ns() - ahead->read_ns < AHEAD_NS ? call : NULL;
}

/* One half of a record is asked for, then the other, then perhaps whose the volume is: they are
   there then, unless anything else was asked for in between. */
static struct mapper_call *together_take(struct mapper_store *store, struct xseg_key key)
{
	for (unsigned i = 1; i < countof(store->together); i++) {
		struct mapper_call *call = &store->together[i];
		if (call->op == XSEG_OP_NONE || memcmp(&call->key, &key, sizeof(key)) != 0)
			continue;
		call->op = XSEG_OP_NONE;
		return call;
	}
	together_forget(store);
	return NULL;
}

static struct mapper_call *together_read(
	struct mapper_store *store, struct xseg_key key, uint8_t to[XSEG_RECORD_MAX])
{
	struct mapper_call *calls = store->together;
	unsigned count = store->with_home ? 3 : 2;
	if (key.epoch != XSEG_EPOCH_VOLUME || key.object != 0)
		return NULL;
	fill_get(&calls[0], key, to);
	fill_get(&calls[1], map_volume_key(key.volume, 1), store->waits[0]);
	if (count == 3)
		fill_get(&calls[2], map_home_key(key.volume), store->waits[1]);
	store->with_home = false;
	mapper_store_all(store, calls, count);
	return &calls[0];
}

static int take_record(const struct mapper_call *call, uint64_t *version)
{
	*version = call->result == 0 || call->result == -EILSEQ ? call->value : 0;
	if (call->result == 0 && (call->answer_length == 0 || call->value == 0))
		return -EIO;
	return call->result != 0 ? call->result : (int)call->answer_length;
}

static int store_get(
	struct map_store *s, struct xseg_key key, uint8_t to[XSEG_RECORD_MAX], uint64_t *version)
{
	struct mapper_store *store = store_of(s);
	struct mapper_call own, *call = NULL, *waits = together_take(store, key);
	uint32_t size;
	bool kept = key.epoch == XSEG_EPOCH_VOLUME && key.object <= 1 && store->keeps;
	if (store->revoked)
		return -EKEYREVOKED;
	if (kept && from_memory(store, key, 0, to, &size, version))
		return size > 0 ? (int)size : -ENOENT;
	store->fresh |= key.epoch == XSEG_EPOCH_VOLUME;
	int rc = discards_end(store);
	if (rc != 0)
		return rc;
	call = ahead_take(store, key);
	if (call)
		call->op = XSEG_OP_NONE;
	else
		call = waits ? waits : together_read(store, key, to);
	if (call && call->receive != to) {
		memcpy(to, call->receive, call->answer_length);
	} else if (!call) {
		fill_get(&own, key, to);
		call = &own;
		rc = store_do(store, call);
		if (rc == -EKEYREVOKED)
			return rc;
	}
	rc = take_record(call, version);
	if (kept && (rc > 0 || rc == -ENOENT))
		mapper_memory_note(
			memory_of(store), key, 0, to, rc > 0 ? (uint32_t)rc : 0, *version);
	return rc;
}

/*
 * A record that we remember was put or read while the volume was ours, and if it was another's
 * since, the put is refused. One that was read just now may be another's.
 */
static int may_put(struct mapper_store *store, struct xseg_key key)
{
	if (!store->owned || !store->fresh || key.epoch != XSEG_EPOCH_VOLUME)
		return 0;
	store->fresh = false;
	store->revoked = mapper_lease_verify(store->owned) != 0;
	return store->revoked ? -EKEYREVOKED : 0;
}

static int store_put(struct map_store *s, struct xseg_key key, const void *from, uint32_t size,
	uint64_t *version)
{
	struct mapper_store *store = store_of(s);
	struct mapper_call calls[4] = {{.op = XSEG_OP_CAS,
					       .arg0 = *version,
					       .arg1 = XSEG_CAS_PUT,
					       .key = key,
					       .length = size,
					       .send = from},
		store->fence};
	ahead_forget(store, key);
	mapper_pages_send(store);
	int rc = may_put(store, key);
	if (rc != 0 || store->write_error != 0)
		return rc ? rc : store->write_error;
	bool fences = store->fence.op != XSEG_OP_NONE;
	bool reads = store->with_record && key.epoch == XSEG_EPOCH_HOME;
	unsigned count = fences ? 2 : 1;
	for (unsigned half = 0; reads && half < 2; half++)
		fill_get(&calls[count++], map_volume_key(key.volume, half), store->waits[half]);
	rc = store_do_all(store, calls, count);
	if (fences)
		store->fenced = calls[1].result;
	if (reads && rc == 0)
		memcpy(&store->together[1], &calls[count - 2], 2 * sizeof(calls[0]));
	store->fence.op = XSEG_OP_NONE;
	store->with_record = false;
	if (rc == 0 || rc == -EEXIST || rc == -ESTALE)
		*version = calls[0].value;
	if (key.epoch != XSEG_EPOCH_VOLUME)
		return rc;
	if (rc == 0)
		mapper_memory_note(memory_of(store), key, 0, from, size, *version);
	else
		mapper_memory_forget(memory_of(store), key);
	return rc;
}

static int store_drop(struct map_store *s, struct xseg_key key, uint64_t *version)
{
	struct mapper_store *store = store_of(s);
	struct mapper_call call = {
		.op = XSEG_OP_CAS, .arg0 = *version, .arg1 = XSEG_CAS_DELETE, .key = key};
	ahead_forget(store, key);
	int rc = store_do(store, &call);
	if (rc == -ESTALE)
		*version = call.value;
	if (key.epoch == XSEG_EPOCH_VOLUME)
		mapper_memory_forget(memory_of(store), key);
	return rc;
}

static struct mapper_call fence_call(uint64_t id, const struct map_home *home, unsigned flags)
{
	return (struct mapper_call){.op = XSEG_OP_CONTROL,
		.flags = flags,
		.key = {.volume = id},
		.arg0 = XSEG_CONTROL_FENCE,
		.arg1 = home->term,
		.offset = home->line,
		.result = -EIO};
}

static int fenced(int rc) { return rc == -EOPNOTSUPP ? 0 : rc; }

int mapper_store_fence(
	struct mapper_store *store, uint64_t id, const struct map_home *home, unsigned flags)
{
	struct mapper_call call = fence_call(id, home, flags);
	return fenced(store_do(store, &call));
}

void mapper_store_fence_along(struct mapper_store *store, uint64_t id, const struct map_home *home)
{
	store->fence = fence_call(id, home, 0);
}

int mapper_store_fenced(struct mapper_store *store)
{
	if (store->fence.op != XSEG_OP_NONE)
		store->fenced = store_do(store, &store->fence);
	store->fence.op = XSEG_OP_NONE;
	return fenced(store->fenced);
}

void mapper_store_open(struct mapper_store *store, struct mapper_shard *shard)
{
	memset(store, 0, sizeof(*store));
	store->shard = shard;
	store->fence.op = XSEG_OP_NONE;
	store->store = (struct map_store){
		.read = store_read,
		.expect = store_expect,
		.write = store_write,
		.flush = store_flush,
		.discard = store_discard,
		.copy = store_copy,
		.list = store_list,
		.allocated = store_allocated,
		.get = store_get,
		.put = store_put,
		.drop = store_drop,
		.records = store_records,
	};
}

int mapper_store_close(struct mapper_store *store)
{
	mapper_pages_close(store);
	int rc = discards_end(store);
	together_forget(store);
	store->with_home = false;
	if (store->ahead) {
		free(store->ahead->ids);
		free(store->ahead->keys);
	}
	free(store->ahead);
	store->ahead = NULL;
	return rc;
}
