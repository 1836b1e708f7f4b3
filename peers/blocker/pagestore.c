/* SPDX-License-Identifier: Apache-2.0 */
/* Objects in pages of the pool: reading, writing and dropping them, page by page. */
#include "peers/blocker/pagestore.h"

#include <base/clock.h>
#include <peer/store.h>
#include <stdlib.h>
#include <string.h>
#include <xseg/segment.h>

static void lock(struct pagestore *store)
{
	if (store->peer->shards > 1)
		must(pthread_mutex_lock(&store->lock) == 0);
}

static void unlock(struct pagestore *store)
{
	if (store->peer->shards > 1)
		must(pthread_mutex_unlock(&store->lock) == 0);
}

/* Shard i's store, locked; NULL: there is none (any more). */
static struct pagestore *lock_other(struct pagestore_shared *shared, unsigned i)
{
	struct pagestore *store = atomic_load(&shared->stores[i]);
	if (!store)
		return NULL;
	lock(store);
	if (atomic_load(&shared->stores[i]))
		return store;
	unlock(store);
	return NULL;
}

static uint8_t *memory_of(const struct pagestore *store, uint32_t page)
{
	return peer_page_memory(store->peer, page);
}

/* May the store hold one page more? */
static bool grow(struct pagestore *store)
{
	struct pagestore_shared *shared = store->shared;
	if (atomic_fetch_add_explicit(&shared->used, 1, memory_order_relaxed) < shared->limit)
		return true;
	atomic_fetch_sub_explicit(&shared->used, 1, memory_order_relaxed);
	return false;
}

static void shrink(struct pagestore *store)
{
	atomic_fetch_sub_explicit(&store->shared->used, 1, memory_order_relaxed);
}

static uint32_t page_at(struct pagestore *store, const struct xseg_key *key, uint32_t index)
{
	return pagemap_get(&store->map, pagemap_find(&store->map, key), index);
}

static void note_size(struct pagestore *store, const struct xseg_key *key, uint32_t end)
{
	struct pagemap_object *object = pagemap_find(&store->map, key);
	if (object && object->size < end)
		object->size = end;
}

/* A page of ours for the piece, with what is not in the piece as it was. */
static int fresh_page(
	struct pagestore *store, struct store_piece piece, uint32_t old, uint32_t *page)
{
	int error = peer_page_take(store->peer, page, 1);
	if (error || piece.size == XSEG_PAGE)
		return error;
	if (old == XSEG_NONE)
		memset(memory_of(store, *page), 0, XSEG_PAGE);
	else
		memcpy(memory_of(store, *page), memory_of(store, old), XSEG_PAGE);
	return 0;
}

/* New contents for a piece; from NULL: zeros. In place, unless a reader looks at the page. */
static int put_piece(struct pagestore *store, const struct xseg_key *key, struct store_piece piece,
	const uint8_t *from)
{
	uint32_t old = page_at(store, key, piece.page), page = old;
	if (old == XSEG_NONE && !grow(store))
		return -ENOSPC;
	if (old == XSEG_NONE || peer_page_pinned(store->peer, old)) {
		int error = fresh_page(store, piece, old, &page);
		if (error) {
			if (old == XSEG_NONE)
				shrink(store);
			return error;
		}
	}
	if (from)
		memcpy(memory_of(store, page) + piece.offset, from, piece.size);
	else
		memset(memory_of(store, page) + piece.offset, 0, piece.size);
	if (page == old)
		return 0;
	pagemap_set(&store->map, key, piece.page, page);
	if (old != XSEG_NONE)
		peer_page_drop(store->peer, old);
	return 0;
}

/* The request's own page takes the place of ours. */
static int keep_page(
	struct pagestore *store, struct job *job, struct store_piece piece, uint32_t page)
{
	uint32_t old = page_at(store, &job->key, piece.page);
	if (old == XSEG_NONE && !grow(store))
		return -ENOSPC;
	int error = job_take_page(job, page);
	if (error) {
		if (old == XSEG_NONE)
			shrink(store);
		return error;
	}
	pagemap_set(&store->map, &job->key, piece.page, page);
	if (old != XSEG_NONE)
		peer_page_drop(store->peer, old);
	return 0;
}

static void drop_page(struct pagestore *store, const struct xseg_key *key, uint32_t index)
{
	uint32_t old = page_at(store, key, index);
	if (old == XSEG_NONE)
		return;
	pagemap_set(&store->map, key, index, XSEG_NONE);
	peer_page_drop(store->peer, old);
	shrink(store);
}

/* Zeros that take no space, where whole pages allow it. */
static int drop_piece(struct pagestore *store, const struct xseg_key *key, struct store_piece piece)
{
	if (piece.size < XSEG_PAGE && page_at(store, key, piece.page) != XSEG_NONE)
		return put_piece(store, key, piece, NULL);
	if (piece.size == XSEG_PAGE)
		drop_page(store, key, piece.page);
	return 0;
}

/* A reader's CPU has had the descriptor last, for its unpin; of a page that a write brings, too. */
void pagestore_expect(struct peer *peer, struct job *job, unsigned step)
{
	struct pagestore *store = peer->state;
	const struct xseg *seg = peer_segment(peer);
	if (step > 0 || job->op > XSEG_OP_WRITE || job->offset >= XSEG_OBJECT_MAX)
		return;
	if (job->op == XSEG_OP_WRITE && job->extent_count)
		cpu_prefetch_own(&seg->descriptors[job->extents[0].page]);
	uint32_t page = page_at(store, &job->key, (uint32_t)job->offset / XSEG_PAGE);
	if (page != XSEG_NONE)
		cpu_prefetch_own(&seg->descriptors[page]);
}

int pagestore_read(struct pagestore *store, struct job *job)
{
	int error = store_range_check(job);
	if (error || job->length == 0)
		return error;
	uint32_t pages[STORE_PIECES_MAX], count = 0;
	struct pagemap_object *object = pagemap_find(&store->map, &job->key);
	STORE_FOREACH (piece, job) {
		uint32_t page = pagemap_get(&store->map, object, piece.page);
		pages[count++] = page == XSEG_NONE ? store->zero : page;
	}
	if ((job->flags & XSEG_F_PIN) && job_answer_pages(job, pages, count) == 0)
		return (int)job->length;
	count = 0;
	STORE_FOREACH (piece, job) {
		const uint8_t *from = memory_of(store, pages[count++]);
		job_put_bytes(job, piece.at, from + piece.offset, piece.size);
	}
	return (int)job->length;
}

static uint32_t whole_page_of(struct job *job, struct store_piece piece)
{
	bool whole = (job->flags & XSEG_F_DONATE) && piece.size == XSEG_PAGE;
	return whole ? job_whole_page(job, piece.at) : XSEG_NONE;
}

/* Everything that cannot be kept as it is; *grows: is there a page to keep where none was? */
static int write_copies(struct pagestore *store, struct job *job, bool *grows)
{
	int error = 0;
	STORE_FOREACH (piece, job) {
		struct iovec from;
		if (whole_page_of(job, piece) != XSEG_NONE) {
			*grows |= page_at(store, &job->key, piece.page) == XSEG_NONE;
			continue;
		}
		must(job_iov(job, piece.at, piece.size, &from, 1) == 1);
		error = put_piece(store, &job->key, piece, from.iov_base);
		if (error)
			break;
	}
	return error;
}

static int write_keeps(struct pagestore *store, struct job *job)
{
	int error = 0;
	STORE_FOREACH (piece, job) {
		uint32_t page = whole_page_of(job, piece);
		if (page != XSEG_NONE)
			error = keep_page(store, job, piece, page);
		if (error)
			break;
	}
	return error;
}

/* The copies first: only before a page is kept can all be done again from the start. */
int pagestore_write(struct pagestore *store, struct job *job)
{
	bool grows = false;
	int error = store_range_check(job);
	if (error)
		return error;
	lock(store);
	error = write_copies(store, job, &grows);
	if (!error && grows && peer_pages_low(store->peer))
		error = -EAGAIN;
	if (!error && (job->flags & XSEG_F_DONATE))
		error = write_keeps(store, job);
	if (!error)
		note_size(store, &job->key, (uint32_t)job->offset + job->length);
	unlock(store);
	return error ? error : (int)job->length;
}

int pagestore_zero(struct pagestore *store, struct job *job)
{
	int error = store_range_check(job);
	bool keep = job->op == XSEG_OP_ZERO && (job->flags & XSEG_F_NO_HOLE);
	lock(store);
	STORE_FOREACH (piece, job) {
		if (error)
			break;
		error = keep ? put_piece(store, &job->key, piece, NULL)
			     : drop_piece(store, &job->key, piece);
	}
	if (!error && keep)
		note_size(store, &job->key, (uint32_t)job->offset + job->length);
	unlock(store);
	return error;
}

/* Any shard may have the source: copies the piece out; false: a hole. */
static bool peek(struct pagestore_shared *shared, const struct xseg_key *key,
	struct store_piece piece, uint8_t out[XSEG_PAGE])
{
	bool found = false;
	for (unsigned i = 0; i < countof(shared->stores) && !found; i++) {
		struct pagestore *store = lock_other(shared, i);
		if (!store)
			continue;
		uint32_t page =
			pagemap_get(&store->map, pagemap_look(&store->map, key), piece.page);
		found = page != XSEG_NONE;
		if (found)
			memcpy(out, memory_of(store, page) + piece.offset, piece.size);
		unlock(store);
	}
	return found;
}

int pagestore_copy(struct pagestore *store, struct job *job)
{
	struct xseg_key source = store_copy_source(job);
	int error = store_range_check(job);
	uint8_t bytes[XSEG_PAGE];
	STORE_FOREACH (piece, job) {
		if (error)
			break;
		bool found = peek(store->shared, &source, piece, bytes);
		lock(store);
		error = found ? put_piece(store, &job->key, piece, bytes)
			      : drop_piece(store, &job->key, piece);
		note_size(store, &job->key, (uint32_t)job->offset + piece.at + piece.size);
		unlock(store);
	}
	return error;
}

int pagestore_delete(struct pagestore *store, struct job *job)
{
	lock(store);
	for (uint32_t i = 0; i < STORE_PIECES_MAX && pagemap_find(&store->map, &job->key); i++)
		drop_page(store, &job->key, i);
	unlock(store);
	return 0;
}

int pagestore_info(struct pagestore *store, struct job *job)
{
	if (store_space_asked(job)) {
		uint32_t limit = store->shared->limit, used = atomic_load(&store->shared->used);
		return store_space_answer(job, (uint64_t)limit * XSEG_PAGE,
			(uint64_t)(used < limit ? limit - used : 0) * XSEG_PAGE);
	}
	struct pagemap_object *object = pagemap_find(&store->map, &job->key);
	if (!object || job->data_size < sizeof(struct xseg_object_info))
		return object ? -EINVAL : -ENOENT;
	struct xseg_object_info info = {object->size, (uint64_t)object->count * XSEG_PAGE};
	job_put_bytes(job, 0, &info, sizeof(info));
	return sizeof(info);
}

int pagestore_status(struct pagestore *store, struct job *job, uint64_t *count)
{
	int error = store_range_check(job);
	if (error)
		return error;
	struct pagemap_object *object = pagemap_find(&store->map, &job->key);
	struct store_status status = {.job = job};
	STORE_FOREACH (piece, job) {
		bool hole = pagemap_get(&store->map, object, piece.page) == XSEG_NONE;
		if (!store_status_add(&status, piece.size, hole))
			break;
	}
	return store_status_end(&status, count);
}

static void collect(struct pagestore *store, struct store_list *list)
{
	struct pagemap_object *object;
	for (uint32_t i = 0; (object = pagemap_next(&store->map, &i));)
		if (store_list_wants(list->job, &object->key))
			store_list_add(list, object->key);
}

int pagestore_list(struct pagestore *store, struct job *job, uint64_t *next)
{
	struct store_list list = {.job = job};
	for (unsigned i = 0; i < countof(store->shared->stores); i++) {
		struct pagestore *other = lock_other(store->shared, i);
		if (!other)
			continue;
		collect(other, &list);
		unlock(other);
	}
	return store_list_end(&list, next);
}

int pagestore_limit(struct peer *first, uint64_t size, char *why, size_t why_size)
{
	struct pagestore_shared *shared = first->shared;
	uint64_t all = peer_segment(first)->page_count, most = all - all / 4;
	shared->limit = (uint32_t)(size ? size / XSEG_PAGE : all / 2);
	if (size / XSEG_PAGE <= most && shared->limit > 0)
		return 0;
	snprintf(why, why_size,
		"size is %llu bytes; between 4096 and three quarters of the segment's pages (%llu) "
		"will do",
		(unsigned long long)size, (unsigned long long)most * XSEG_PAGE);
	return -EINVAL;
}

int pagestore_open(struct pagestore *store, struct peer *peer, char *why, size_t why_size)
{
	store->peer = peer;
	store->shared = peer->shared;
	int error = pagemap_init(&store->map, store->shared->limit);
	if (error) {
		snprintf(
			why, why_size, "no memory for the table of %u pages", store->shared->limit);
		return error;
	}
	error = peer_page_take(peer, &store->zero, 1);
	if (error) {
		snprintf(why, why_size, "the segment has no free page; make it larger");
		pagemap_fini(&store->map);
		return error;
	}
	memset(memory_of(store, store->zero), 0, XSEG_PAGE);
	must(pthread_mutex_init(&store->lock, NULL) == 0);
	atomic_store(&store->shared->stores[peer->shard], store);
	return 0;
}

void pagestore_close(struct pagestore *store)
{
	struct pagemap_object *object;
	lock(store);
	atomic_store(&store->shared->stores[store->peer->shard], NULL);
	for (uint32_t i = 0; (object = pagemap_next(&store->map, &i));) {
		struct xseg_key key = object->key;
		for (uint32_t page = 0; page < STORE_PIECES_MAX && object->count; page++)
			drop_page(store, &key, page);
	}
	peer_page_drop(store->peer, store->zero);
	pagemap_fini(&store->map);
	unlock(store);
}
