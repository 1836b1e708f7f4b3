/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A store on LMDB, the whole of it, built outside Skerry's tree: docs/write-a-blocker.md goes
 * through it. LMDB blocks, so each request is one transaction on a worker thread; LMDB lets one
 * writer in at a time, and readers always.
 *
 *   OBJECT  key         -> size: highest byte ever written + 1
 *   PAGE    key, page   -> 4096 bytes; one that is not there is a hole
 *   RECORD  key         -> version, then the record
 */
#include <fcntl.h>
#include <lmdb.h>
#include <peer/store.h>
#include <peer/worker.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

struct lmdb_options {
	char *dir;
	uint64_t size;
};

static const struct peer_option lmdb_options[] = {
	OPTION_TEXT(struct lmdb_options, dir, "dir", .required = true,
		.help = "folder that holds the database; made when missing"),
	OPTION_SIZE(struct lmdb_options, size, "size", .min = 1 << 20, .initial = "64G",
		.help = "most that the database may take"),
	OPTION_END,
};

/* Of all shards of the process. */
struct store {
	MDB_env *env;
	MDB_dbi dbi;
	int lock;
};

/* One request on its way through a worker. */
struct task {
	struct worker_item item; /* first */
	struct store *store;
	struct job *job;
	MDB_txn *txn;
	int error; /* the first that LMDB had */
	int answer;
	uint64_t value;
};

/* --- LMDB ----------------------------------------------------------------------------------- */

enum kind { OBJECT, PAGE, RECORD };

static int from_lmdb(int rc) { return rc == MDB_MAP_FULL ? -ENOSPC : rc > 0 ? -rc : rc ? -EIO : 0; }

struct name {
	enum kind kind;
	uint32_t page;
	struct xseg_key key;
};

/* The order of lists, and pages in theirs. */
static int compare(const MDB_val *a, const MDB_val *b)
{
	struct name x, y; /* copies: LMDB does not align them */
	memcpy(&x, a->mv_data, sizeof(x));
	memcpy(&y, b->mv_data, sizeof(y));
	int order = store_key_compare(&x.key, &y.key);
	if (x.kind != y.kind)
		return x.kind < y.kind ? -1 : 1;
	return order ? order : x.page < y.page ? -1 : x.page > y.page;
}

static bool good(struct task *task, int rc)
{
	if (rc && rc != MDB_NOTFOUND && !task->error)
		task->error = from_lmdb(rc);
	return rc == 0;
}

/* mv_data NULL: there is none. */
static MDB_val get(struct task *task, enum kind kind, const struct xseg_key *key, uint32_t page)
{
	struct name name = {kind, page, *key};
	MDB_val at = {sizeof(name), &name}, found;
	bool there = good(task, mdb_get(task->txn, task->store->dbi, &at, &found));
	return there ? found : (MDB_val){0, NULL};
}

static void put(struct task *task, enum kind kind, uint32_t page, void *data, size_t size)
{
	struct name name = {kind, page, task->job->key};
	MDB_val at = {sizeof(name), &name}, val = {size, data};
	good(task, mdb_put(task->txn, task->store->dbi, &at, &val, 0));
}

static void drop(struct task *task, enum kind kind, uint32_t page)
{
	struct name name = {kind, page, task->job->key};
	MDB_val at = {sizeof(name), &name};
	good(task, mdb_del(task->txn, task->store->dbi, &at, NULL));
}

/* --- operations ----------------------------------------------------------------------------- */

static int do_read(struct task *task)
{
	STORE_FOREACH (piece, task->job) {
		const uint8_t *page = get(task, PAGE, &task->job->key, piece.page).mv_data;
		if (page)
			job_put_bytes(task->job, piece.at, page + piece.offset, piece.size);
		else
			job_zero_bytes(task->job, piece.at, piece.size);
	}
	return (int)task->job->length;
}

static bool makes_hole(const struct job *job)
{
	return job->op == XSEG_OP_DISCARD ||
	       (job->op == XSEG_OP_ZERO && !(job->flags & XSEG_F_NO_HOLE));
}

static void piece_change(struct task *task, struct store_piece piece)
{
	const struct job *job = task->job;
	struct xseg_key source = store_copy_source(job);
	uint8_t bytes[XSEG_PAGE] = {0}, *at = bytes + piece.offset;
	const uint8_t *old = get(task, PAGE, &job->key, piece.page).mv_data, *from = NULL;
	if (job->op == XSEG_OP_COPY)
		from = get(task, PAGE, &source, piece.page).mv_data;
	bool hole = job->op == XSEG_OP_COPY ? !from : makes_hole(job);
	if (hole && (!old || piece.size == XSEG_PAGE)) {
		drop(task, PAGE, piece.page);
		return;
	}
	if (old)
		memcpy(bytes, old, XSEG_PAGE);
	if (job->op == XSEG_OP_WRITE)
		job_get_bytes(job, piece.at, at, piece.size);
	else if (from)
		memcpy(at, from + piece.offset, piece.size);
	else
		memset(at, 0, piece.size);
	put(task, PAGE, piece.page, bytes, sizeof(bytes));
}

static bool size_of(struct task *task, uint64_t *size)
{
	MDB_val found = get(task, OBJECT, &task->job->key, 0);
	*size = 0;
	if (found.mv_data)
		memcpy(size, found.mv_data, sizeof(*size));
	return found.mv_data;
}

/* WRITE, ZERO, DISCARD, COPY. */
static int do_change(struct task *task)
{
	uint64_t size, end = task->job->offset + task->job->length;
	STORE_FOREACH (piece, task->job)
		piece_change(task, piece);
	size_of(task, &size);
	if (!makes_hole(task->job) && size < end)
		put(task, OBJECT, 0, &end, sizeof(end));
	return task->job->op == XSEG_OP_WRITE ? (int)task->job->length : 0;
}

static int do_delete(struct task *task)
{
	drop(task, OBJECT, 0);
	for (uint32_t page = 0; page < STORE_PIECES_MAX; page++)
		drop(task, PAGE, page);
	return 0;
}

static int do_info(struct task *task)
{
	struct xseg_object_info info = {0};
	if (!size_of(task, &info.size))
		return -ENOENT;
	if (task->job->data_size < sizeof(info))
		return -EINVAL;
	for (uint32_t page = 0; page * XSEG_PAGE < info.size; page++)
		if (get(task, PAGE, &task->job->key, page).mv_data)
			info.allocated += XSEG_PAGE;
	job_put_bytes(task->job, 0, &info, sizeof(info));
	return sizeof(info);
}

static int do_status(struct task *task)
{
	struct store_status status = {.job = task->job};
	STORE_FOREACH (piece, task->job)
		if (!store_status_add(&status, piece.size,
			    !get(task, PAGE, &task->job->key, piece.page).mv_data))
			break;
	return store_status_end(&status, &task->value);
}

static int do_cas(struct task *task)
{
	struct {
		uint64_t version;
		uint8_t data[XSEG_RECORD_MAX];
	} record = {0};
	struct job *job = task->job;
	MDB_val found = get(task, RECORD, &job->key, 0);
	if (found.mv_data)
		memcpy(&record, found.mv_data, found.mv_size);
	task->value = record.version;
	int error = store_record_check(job, record.version);
	if (error)
		return error;
	if (job->arg1 == XSEG_CAS_DELETE) {
		drop(task, RECORD, 0);
		return 0;
	}
	if (job->arg1 == XSEG_CAS_GET)
		return store_record_answer(
			job, record.data, found.mv_size - sizeof(record.version));
	task->value = record.version = store_record_version_next(record.version);
	job_get_bytes(job, 0, record.data, job->length);
	put(task, RECORD, 0, &record, sizeof(record.version) + job->length);
	return 0;
}

static int do_list(struct task *task)
{
	const struct job *job = task->job;
	struct store_list list = {.job = task->job};
	bool record = store_record_is(&job->key);
	struct name name = {record ? RECORD : OBJECT, 0, store_list_from(job)};
	MDB_val at = {sizeof(name), &name}, found;
	MDB_cursor *cursor;
	if (!good(task, mdb_cursor_open(task->txn, task->store->dbi, &cursor)))
		return 0;
	int rc = mdb_cursor_get(cursor, &at, &found, MDB_SET_RANGE);
	for (; good(task, rc) && !store_list_full(&list);
		rc = mdb_cursor_get(cursor, &at, &found, MDB_NEXT)) {
		struct name here;
		memcpy(&here, at.mv_data, sizeof(here));
		if (here.kind == name.kind && store_list_wants(job, &here.key))
			store_list_add(&list, here.key);
		else if (!record || here.key.epoch != job->key.epoch)
			break;
	}
	mdb_cursor_close(cursor);
	return store_list_end(&list, &task->value);
}

static int act(struct task *task)
{
	switch (task->job->op) {
	case XSEG_OP_READ: return do_read(task);
	case XSEG_OP_DELETE: return do_delete(task);
	case XSEG_OP_INFO: return do_info(task);
	case XSEG_OP_STATUS: return do_status(task);
	case XSEG_OP_CAS: return do_cas(task);
	case XSEG_OP_LIST: return do_list(task);
	default: return do_change(task);
	}
}

/* On a worker thread. All or nothing, and on the disk when mdb_txn_commit() returns. */
static void lmdb_run(struct worker_item *item)
{
	struct task *task = (struct task *)item;
	unsigned flags = task->job->op == XSEG_OP_READ ? MDB_RDONLY : 0;
	if (!good(task, mdb_txn_begin(task->store->env, NULL, flags, &task->txn)))
		return;
	task->answer = act(task);
	if (task->error || task->answer < 0)
		mdb_txn_abort(task->txn);
	else
		good(task, mdb_txn_commit(task->txn));
}

/* On the lane. */
static void lmdb_done(struct worker_item *item)
{
	struct task *task = (struct task *)item;
	store_answer(task->job, task->error ? task->error : task->answer, task->value);
	free(task);
}

static void lmdb_take(struct peer *peer, struct job *job)
{
	/* A write is answered when its transaction is on the disk: nothing is left to flush. */
	if (job->op == XSEG_OP_FLUSH || job->op == XSEG_OP_PREFETCH) {
		job_complete(job, 0);
		return;
	}
	int error = job->op <= XSEG_OP_COPY ? store_range_check(job) : 0;
	struct task *task = error ? NULL : calloc(1, sizeof(*task));
	if (!task) {
		job_fail(job, error ? error : -ENOMEM);
		return;
	}
	task->store = peer->shared;
	task->job = job;
	worker_run(peer, &task->item, lmdb_run, lmdb_done);
}

static int lmdb_open(struct peer *first, char *why, size_t why_size)
{
	const struct lmdb_options *options = first->options;
	struct store *store = first->shared;
	MDB_txn *txn;
	mkdir(options->dir, 0700);
	store->lock = open(options->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int rc = store->lock < 0 || flock(store->lock, LOCK_EX | LOCK_NB) ? errno : 0;
	rc = rc ? rc : mdb_env_create(&store->env);
	rc = rc ? rc : mdb_env_set_mapsize(store->env, options->size);
	rc = rc ? rc : mdb_env_open(store->env, options->dir, MDB_NOTLS, 0600);
	rc = rc ? rc : mdb_txn_begin(store->env, NULL, 0, &txn);
	rc = rc ? rc : mdb_dbi_open(txn, NULL, 0, &store->dbi);
	rc = rc ? rc : mdb_set_compare(txn, store->dbi, compare);
	rc = rc ? rc : mdb_txn_commit(txn);
	if (rc)
		snprintf(why, why_size, "dir: '%s': %s", options->dir,
			rc == EWOULDBLOCK ? "another process serves it" : mdb_strerror(rc));
	return from_lmdb(rc);
}

static void lmdb_close(struct peer *first)
{
	struct store *store = first->shared;
	mdb_env_close(store->env);
	close(store->lock);
}

static const struct peer_ops lmdb_ops = {
	.name = "blocker_lmdb",
	.summary = "objects in an LMDB database",
	.serves = "store",
	.description = "Each write is on the disk when it is answered.\n",
	.options = lmdb_options,
	.options_size = sizeof(struct lmdb_options),
	.shared_size = sizeof(struct store),
	.open = lmdb_open,
	.close = lmdb_close,
	.on = {[XSEG_OP_READ... XSEG_OP_CAS] = lmdb_take,
		[XSEG_OP_INFO... XSEG_OP_LIST] = lmdb_take},
};
PEER_MODULE(lmdb_ops);
