/* SPDX-License-Identifier: Apache-2.0 */
#include "peers/blocker/tape/tape_index.h"

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

/* --- names, in the order of lists ------------------------------------------------------------- */

struct name {
	uint8_t size;
	uint8_t bytes[24];
};

static void put32(struct name *name, uint32_t number)
{
	number = htobe32(number);
	memcpy(name->bytes + name->size, &number, 4);
	name->size += 4;
}

static void put64(struct name *name, uint64_t number)
{
	put32(name, (uint32_t)(number >> 32));
	put32(name, (uint32_t)number);
}

static uint32_t get32(const uint8_t *at)
{
	uint32_t number;
	memcpy(&number, at, 4);
	return be32toh(number);
}

static uint64_t get64(const uint8_t *at) { return (uint64_t)get32(at) << 32 | get32(at + 4); }

static struct name name_object(char kind, const struct xseg_key *key)
{
	struct name name = {1, {(uint8_t)kind}};
	put64(&name, key->volume);
	put32(&name, key->object);
	put32(&name, key->epoch);
	return name;
}

static struct name name_extent(const struct xseg_key *key, uint32_t offset)
{
	struct name name = name_object('e', key);
	put32(&name, offset);
	return name;
}

static struct name name_record(const struct xseg_key *key)
{
	struct name name = {1, {'r'}};
	put32(&name, key->epoch);
	put64(&name, key->volume);
	put32(&name, key->object);
	return name;
}

static struct name name_cartridge(uint32_t number)
{
	struct name name = {1, {'c'}};
	put32(&name, number);
	return name;
}

static struct xseg_key key_of(const MDB_val *name)
{
	const uint8_t *at = name->mv_data;
	if (*at == 'r')
		return (struct xseg_key){
			.epoch = get32(at + 1), .volume = get64(at + 5), .object = get32(at + 13)};
	return (struct xseg_key){
		.volume = get64(at + 1), .object = get32(at + 9), .epoch = get32(at + 13)};
}

/* --- LMDB ------------------------------------------------------------------------------------- */

static int from_lmdb(int rc) { return rc == MDB_MAP_FULL ? -ENOSPC : rc > 0 ? -rc : rc ? -EIO : 0; }

static bool good(struct tape_index *index, int rc)
{
	if (rc && rc != MDB_NOTFOUND && !index->error)
		index->error = from_lmdb(rc);
	return rc == 0;
}

static bool get(struct tape_index *index, const struct name *name, MDB_val *found)
{
	MDB_val at = {name->size, (void *)(uintptr_t)name->bytes};
	return good(index, mdb_get(index->txn, index->dbi, &at, found));
}

static void put(struct tape_index *index, const struct name *name, const void *data, size_t size)
{
	MDB_val at = {name->size, (void *)(uintptr_t)name->bytes};
	MDB_val value = {size, (void *)(uintptr_t)data};
	good(index, mdb_put(index->txn, index->dbi, &at, &value, 0));
}

static void drop(struct tape_index *index, const struct name *name)
{
	MDB_val at = {name->size, (void *)(uintptr_t)name->bytes};
	good(index, mdb_del(index->txn, index->dbi, &at, NULL));
}

/* From `name` on, in order, until `take` is false; nothing may be changed meanwhile. */
static void walk(struct tape_index *index, const struct name *name,
	bool (*take)(void *context, const MDB_val *at, const MDB_val *value), void *context)
{
	MDB_val at = {name->size, (void *)(uintptr_t)name->bytes}, value;
	MDB_cursor *cursor;
	if (!good(index, mdb_cursor_open(index->txn, index->dbi, &cursor)))
		return;
	int rc = mdb_cursor_get(cursor, &at, &value, MDB_SET_RANGE);
	while (good(index, rc) && take(context, &at, &value))
		rc = mdb_cursor_get(cursor, &at, &value, MDB_NEXT);
	mdb_cursor_close(cursor);
}

/* --- extents ---------------------------------------------------------------------------------- */

struct extent_search {
	struct name name; /* of the object */
	uint32_t offset, end;
	struct tape_extent extent;
	bool found;
};

static bool take_extent(void *context, const MDB_val *at, const MDB_val *value)
{
	struct extent_search *search = context;
	if (at->mv_size != (size_t)search->name.size + 4 ||
		memcmp(at->mv_data, search->name.bytes, search->name.size))
		return false;
	search->offset = get32((const uint8_t *)at->mv_data + search->name.size);
	memcpy(&search->extent, value->mv_data, sizeof(search->extent));
	search->found = search->offset < search->end;
	return false;
}

/* The last one that begins at or before the offset: LMDB's cursor is behind it, and goes back. */
static bool extent_before(struct tape_index *index, struct extent_search *search,
	const struct xseg_key *key, uint32_t offset)
{
	struct name name = name_extent(key, offset);
	MDB_val at = {name.size, name.bytes}, value;
	MDB_cursor *cursor;
	if (!good(index, mdb_cursor_open(index->txn, index->dbi, &cursor)))
		return false;
	int rc = mdb_cursor_get(cursor, &at, &value, MDB_SET_RANGE);
	if (rc || at.mv_size != name.size || memcmp(at.mv_data, name.bytes, name.size))
		rc = mdb_cursor_get(cursor, &at, &value, rc ? MDB_LAST : MDB_PREV);
	if (good(index, rc))
		take_extent(search, &at, &value);
	mdb_cursor_close(cursor);
	return search->found && search->offset + search->extent.length > offset;
}

bool tape_index_extent(struct tape_index *index, const struct xseg_key *key, uint32_t *offset,
	uint32_t end, struct tape_extent *extent)
{
	struct extent_search search = {.name = name_object('e', key), .end = end};
	bool found = extent_before(index, &search, key, *offset);
	if (!found) {
		struct name name = name_extent(key, *offset);
		search.found = false;
		walk(index, &name, take_extent, &search);
		found = search.found;
	}
	*offset = search.offset;
	*extent = search.extent;
	return found;
}

static void account(struct tape_index *index, uint32_t cartridge, int64_t bytes)
{
	struct tape_cartridge *of = tape_index_cartridge(index, cartridge);
	if (of)
		of->live = (uint64_t)((int64_t)of->live + bytes);
}

static void extent_put(struct tape_index *index, const struct xseg_key *key, uint32_t offset,
	const struct tape_extent *extent)
{
	struct name name = name_extent(key, offset);
	put(index, &name, extent, sizeof(*extent));
	account(index, extent->place.cartridge, extent->length);
}

/* Nothing is left in [from, to): what reaches over an edge keeps the rest. */
static void extents_cut(
	struct tape_index *index, const struct xseg_key *key, uint32_t from, uint32_t to)
{
	struct tape_extent extent;
	uint32_t offset = from;
	while (offset < to && tape_index_extent(index, key, &offset, to, &extent)) {
		struct name name = name_extent(key, offset);
		uint32_t end = offset + extent.length;
		drop(index, &name);
		account(index, extent.place.cartridge, -(int64_t)extent.length);
		if (offset < from) {
			struct tape_extent left = extent;
			left.length = from - offset;
			extent_put(index, key, offset, &left);
		}
		if (end > to) {
			struct tape_extent right = extent;
			right.length = end - to;
			if (right.at != TAPE_NO_BYTES)
				right.at += to - offset;
			extent_put(index, key, to, &right);
		}
		offset = end;
	}
}

/* --- objects and records ---------------------------------------------------------------------- */

struct object {
	uint32_t size;
	uint32_t cartridge; /* one that says so */
};

static bool object_get(struct tape_index *index, const struct xseg_key *key, struct object *object)
{
	struct name name = name_object('o', key);
	MDB_val found;
	if (!get(index, &name, &found))
		return false;
	memcpy(object, found.mv_data, sizeof(*object));
	return true;
}

bool tape_index_size(struct tape_index *index, const struct xseg_key *key, uint32_t *size)
{
	struct object object = {0};
	bool found = object_get(index, key, &object);
	*size = object.size;
	return found;
}

/* At least so large; the latest that says the same is the one to go by. */
static void object_reaches(
	struct tape_index *index, const struct xseg_key *key, uint32_t end, uint32_t cartridge)
{
	struct name name = name_object('o', key);
	struct object object;
	if (!object_get(index, key, &object) || object.size <= end) {
		object = (struct object){end, cartridge};
		put(index, &name, &object, sizeof(object));
	}
}

struct record_head {
	uint32_t cartridge;
	uint32_t reserved;
	uint64_t version;
};

void tape_index_record(
	struct tape_index *index, const struct xseg_key *key, struct tape_record *record)
{
	struct name name = name_record(key);
	struct record_head head;
	MDB_val found;
	record->version = 0;
	record->size = 0;
	if (!get(index, &name, &found))
		return;
	memcpy(&head, found.mv_data, sizeof(head));
	record->version = head.version;
	record->size = (uint32_t)(found.mv_size - sizeof(head));
	memcpy(record->data, (const uint8_t *)found.mv_data + sizeof(head), record->size);
}

static void record_put(struct tape_index *index, const struct tape_entry *entry, uint32_t cartridge,
	const void *bytes)
{
	struct {
		struct record_head head;
		uint8_t data[XSEG_RECORD_MAX];
	} record = {.head = {.cartridge = cartridge}};
	struct name name = name_record(&entry->key);
	size_t size = entry->length - sizeof(uint64_t);
	memcpy(&record.head.version, bytes, sizeof(uint64_t));
	memcpy(record.data, (const uint8_t *)bytes + sizeof(uint64_t), size);
	put(index, &name, &record, sizeof(record.head) + size);
}

/* --- entries ---------------------------------------------------------------------------------- */

static bool entry_is_sound(const struct tape_entry *entry)
{
	if (entry->kind == TAPE_RECORD)
		return entry->length >= sizeof(uint64_t) &&
		       entry->length <= sizeof(uint64_t) + XSEG_RECORD_MAX;
	return entry->offset <= XSEG_OBJECT_MAX && entry->length <= XSEG_OBJECT_MAX - entry->offset;
}

int tape_index_apply(struct tape_index *index, const struct tape_entry *entry,
	struct tape_place place, const void *bytes)
{
	const struct xseg_key *key = &entry->key;
	uint32_t end = entry->offset + entry->length;
	struct tape_extent extent = {entry->length, entry->at, place};
	struct name name;
	if (!entry_is_sound(entry))
		return -EILSEQ;
	switch (entry->kind) {
	case TAPE_ZERO: extent.at = TAPE_NO_BYTES; /* fall through */
	case TAPE_WRITE:
		extents_cut(index, key, entry->offset, end);
		extent_put(index, key, entry->offset, &extent);
		object_reaches(index, key, end, place.cartridge);
		break;
	case TAPE_HOLE: extents_cut(index, key, entry->offset, end); break;
	case TAPE_SIZE: object_reaches(index, key, entry->offset, place.cartridge); break;
	case TAPE_DELETE:
		extents_cut(index, key, 0, XSEG_OBJECT_MAX);
		name = name_object('o', key);
		drop(index, &name);
		break;
	case TAPE_RECORD: record_put(index, entry, place.cartridge, bytes); break;
	case TAPE_RECORD_DELETE:
		name = name_record(key);
		drop(index, &name);
		break;
	default: return -EILSEQ;
	}
	return index->error;
}

/* --- walks ------------------------------------------------------------------------------------ */

struct key_walk {
	char kind;
	uint32_t epoch;
	bool (*take)(void *context, const struct xseg_key *key);
	void *context;
};

static bool take_key(void *context, const MDB_val *at, const MDB_val *value)
{
	const struct key_walk *walk = context;
	(void)value;
	if (*(const char *)at->mv_data != walk->kind)
		return false;
	struct xseg_key key = key_of(at);
	return (walk->kind != 'r' || key.epoch == walk->epoch) && walk->take(walk->context, &key);
}

void tape_index_keys(struct tape_index *index, struct xseg_key from, bool records,
	bool (*take)(void *context, const struct xseg_key *key), void *context)
{
	struct key_walk of = {records ? 'r' : 'o', from.epoch, take, context};
	struct name name = records ? name_record(&from) : name_object('o', &from);
	walk(index, &name, take_key, &of);
}

struct live_walk {
	uint32_t cartridge;
	struct tape_live *live;
	unsigned count, max;
};

static void live_extent(struct live_walk *walk, const MDB_val *at, const MDB_val *value)
{
	struct tape_extent extent;
	memcpy(&extent, value->mv_data, sizeof(extent));
	if (extent.place.cartridge != walk->cartridge)
		return;
	walk->live[walk->count++] = (struct tape_live){
		.entry = {.key = key_of(at),
			.offset = get32((const uint8_t *)at->mv_data + 17),
			.length = extent.length,
			.at = extent.at,
			.kind = extent.at == TAPE_NO_BYTES ? TAPE_ZERO : TAPE_WRITE},
		.place = extent.place};
}

static bool take_live(void *context, const MDB_val *at, const MDB_val *value)
{
	struct live_walk *walk = context;
	struct object object;
	struct record_head head;
	switch (*(const char *)at->mv_data) {
	case 'e': live_extent(walk, at, value); break;
	case 'o':
		memcpy(&object, value->mv_data, sizeof(object));
		if (object.cartridge == walk->cartridge)
			walk->live[walk->count++] =
				(struct tape_live){.entry = {.key = key_of(at),
							   .offset = object.size,
							   .kind = TAPE_SIZE}};
		break;
	case 'r':
		memcpy(&head, value->mv_data, sizeof(head));
		if (head.cartridge == walk->cartridge)
			walk->live[walk->count++] = (struct tape_live){
				.entry = {.key = key_of(at), .kind = TAPE_RECORD}};
		break;
	}
	return walk->count < walk->max;
}

unsigned tape_index_live(
	struct tape_index *index, uint32_t cartridge, struct tape_live *live, unsigned max)
{
	struct live_walk of = {cartridge, live, 0, max};
	struct name first = {1, {'e'}};
	walk(index, &first, take_live, &of);
	return of.count;
}

/* --- the whole of it -------------------------------------------------------------------------- */

static bool take_cartridge(void *context, const MDB_val *at, const MDB_val *value)
{
	struct tape_index *index = context;
	if (*(const char *)at->mv_data != 'c')
		return false;
	struct tape_cartridge *to =
		tape_index_cartridge(index, get32((const uint8_t *)at->mv_data + 1));
	if (to)
		memcpy(to, value->mv_data, sizeof(*to)), to->unusable = 0;
	return true;
}

static int load(struct tape_index *index)
{
	struct name name = {1, {'m'}}, first = name_cartridge(0);
	MDB_val found;
	if (!get(index, &name, &found))
		return index->error;
	memcpy(&index->head, found.mv_data, sizeof(index->head));
	free(index->cartridges);
	index->cartridges = calloc(index->head.cartridges + 1, sizeof(*index->cartridges));
	if (!index->cartridges)
		return -ENOMEM;
	walk(index, &first, take_cartridge, index);
	return index->error;
}

struct tape_cartridge *tape_index_cartridge_add(struct tape_index *index)
{
	uint32_t count = index->head.cartridges;
	struct tape_cartridge *all =
		realloc(index->cartridges, (count + 1) * sizeof(*index->cartridges));
	if (!all)
		return NULL;
	index->cartridges = all;
	index->head.cartridges = count + 1;
	all[count] = (struct tape_cartridge){.number = count + 1};
	return &all[count];
}

int tape_index_commit(struct tape_index *index)
{
	struct name name = {1, {'m'}};
	put(index, &name, &index->head, sizeof(index->head));
	for (uint32_t i = 1; i <= index->head.cartridges; i++) {
		struct name of = name_cartridge(i);
		put(index, &of, tape_index_cartridge(index, i), sizeof(struct tape_cartridge));
	}
	if (index->error)
		return index->error;
	good(index, mdb_txn_commit(index->txn));
	index->txn = NULL;
	if (!index->error)
		good(index, mdb_txn_begin(index->env, NULL, 0, &index->txn));
	return index->error;
}

int tape_index_clear(struct tape_index *index)
{
	good(index, mdb_drop(index->txn, index->dbi, 0));
	return index->error;
}

int tape_index_open(
	struct tape_index *index, const char *dir, uint64_t size, char *why, size_t why_size)
{
	if (mkdir(dir, 0700) && errno != EEXIST) {
		snprintf(why, why_size, "index: '%s': %s", dir, strerror(errno));
		return -errno;
	}
	index->lock = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int rc = index->lock < 0 || flock(index->lock, LOCK_EX | LOCK_NB) ? errno : 0;
	rc = rc ? rc : mdb_env_create(&index->env);
	rc = rc ? rc : mdb_env_set_mapsize(index->env, size);
	rc = rc ? rc : mdb_env_open(index->env, dir, MDB_NOTLS | MDB_NOLOCK, 0600);
	rc = rc ? rc : mdb_txn_begin(index->env, NULL, 0, &index->txn);
	rc = rc ? rc : mdb_dbi_open(index->txn, NULL, 0, &index->dbi);
	if (rc)
		snprintf(why, why_size, "index: '%s': %s", dir,
			rc == EWOULDBLOCK ? "another process uses it" : mdb_strerror(rc));
	return rc ? from_lmdb(rc) : load(index);
}

void tape_index_close(struct tape_index *index)
{
	if (index->txn)
		mdb_txn_abort(index->txn);
	if (index->env)
		mdb_env_close(index->env);
	if (index->lock >= 0)
		close(index->lock);
	free(index->cartridges);
	*index = (struct tape_index){.lock = -1};
}
