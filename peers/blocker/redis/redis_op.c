/* SPDX-License-Identifier: Apache-2.0 */
/* Operations: each is a few commands to the server, one after the other. */
#include <base/bytes.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "peers/blocker/redis/redis.h"

#define LIST_AT_ONCE "1024"

struct record {
	uint64_t version;
	uint8_t data[XSEG_RECORD_MAX];
};

/* --- names ---------------------------------------------------------------------------------- */

static const char *prefix_of(const struct redis_op *op) { return op->shard->store->prefix; }

void redis_op_object(const struct redis_op *op, char name[REDIS_KEY], const struct xseg_key *key)
{
	snprintf(name, REDIS_KEY, "%s:o:%016" PRIx64 ".%08" PRIx32 ".%08" PRIx32, prefix_of(op),
		key->volume, key->object, key->epoch);
}

void redis_op_name(const struct redis_op *op, char name[REDIS_KEY], char kind, uint64_t number)
{
	snprintf(name, REDIS_KEY, "%s:%c:%016" PRIx64, prefix_of(op), kind, number);
}

void redis_op_member(char name[REDIS_KEY], const struct xseg_key *key)
{
	if (store_record_is(key))
		snprintf(name, REDIS_KEY, "%016" PRIx64 ".%08" PRIx32, key->volume, key->object);
	else
		snprintf(name, REDIS_KEY, "%08" PRIx32 ".%08" PRIx32, key->object, key->epoch);
}

static void hex(char text[17], uint64_t number) { snprintf(text, 17, "%016" PRIx64, number); }

/* --- ends ----------------------------------------------------------------------------------- */

void redis_op_end(struct redis_op *op, int answer, uint64_t value)
{
	store_answer(op->job, answer, value);
	free(op->buffer);
	free(op);
}

bool redis_op_is_good(struct redis_op *op, const redisReply *reply)
{
	if (reply->type != REDIS_REPLY_ERROR)
		return true;
	redis_op_end(op, redis_link_error(op->shard, reply), op->version);
	return false;
}

static void send(struct redis_op *op, redis_reply_f *reply, int argc, const char **argv)
{
	size_t sizes[8];
	for (int i = 0; i < argc; i++)
		sizes[i] = strlen(argv[i]);
	redis_link_send(op, reply, argc, argv, sizes);
}

static void get_range(struct redis_op *op, redis_reply_f *reply, const struct xseg_key *key)
{
	char name[REDIS_KEY], from[24], to[24];
	const struct job *job = op->job;
	redis_op_object(op, name, key);
	snprintf(from, sizeof(from), "%" PRIu64, job->offset);
	snprintf(to, sizeof(to), "%" PRIu64, job->offset + job->length - 1);
	send(op, reply, 4, (const char *[]){"GETRANGE", name, from, to});
}

/* --- READ, STATUS, INFO --------------------------------------------------------------------- */

static void read_reply(struct redis_op *op, const redisReply *reply)
{
	struct job *job = op->job;
	if (!redis_op_is_good(op, reply))
		return;
	uint32_t got = reply->len > job->length ? job->length : (uint32_t)reply->len;
	job_put_bytes(job, 0, reply->str, got);
	job_zero_bytes(job, got, job->length - got);
	redis_op_end(op, (int)job->length, 0);
}

static void read_begin(struct redis_op *op) { get_range(op, read_reply, &op->job->key); }

static void status_reply(struct redis_op *op, const redisReply *reply)
{
	struct job *job = op->job;
	uint64_t value = 0;
	if (!redis_op_is_good(op, reply))
		return;
	char *bytes = calloc(1, job->length ? job->length : 1);
	if (!bytes) {
		redis_op_end(op, -ENOMEM, 0);
		return;
	}
	memcpy(bytes, reply->str, reply->len > job->length ? job->length : (size_t)reply->len);
	int answer = store_status_of(job, bytes, &value);
	free(bytes);
	redis_op_end(op, answer, value);
}

static void status_begin(struct redis_op *op) { get_range(op, status_reply, &op->job->key); }

static void info_reply(struct redis_op *op, const redisReply *reply)
{
	if (!redis_op_is_good(op, reply))
		return;
	uint64_t size = (uint64_t)reply->integer;
	struct xseg_object_info info = {.size = size, .allocated = size};
	if (size == 0 || op->job->data_size < sizeof(info)) {
		redis_op_end(op, size ? -EINVAL : -ENOENT, 0);
		return;
	}
	job_put_bytes(op->job, 0, &info, sizeof(info));
	redis_op_end(op, sizeof(info), XSEG_INFO_SPACE_UNKNOWN);
}

/* A server without a limit goes on until its machine has no memory left. */
static void space_reply(struct redis_op *op, const redisReply *reply)
{
	char text[32] = "";
	if (reply->type == REDIS_REPLY_STRING)
		redis_replica_field(reply->str, "\nmaxmemory:", text, sizeof(text));
	uint64_t limit = strtoull(text, NULL, 10), used;
	if (limit == 0) {
		redis_op_end(op, -EOPNOTSUPP, 0);
		return;
	}
	redis_replica_field(reply->str, "\nused_memory:", text, sizeof(text));
	used = strtoull(text, NULL, 10);
	redis_op_end(op, store_space_answer(op->job, limit, used < limit ? limit - used : 0), 0);
}

static void info_begin(struct redis_op *op)
{
	char name[REDIS_KEY];
	if (store_space_asked(op->job)) {
		send(op, space_reply, 2, (const char *[]){"INFO", "memory"});
		return;
	}
	redis_op_object(op, name, &op->job->key);
	send(op, info_reply, 2, (const char *[]){"STRLEN", name});
}

/* --- WRITE, ZERO, DISCARD, COPY, DELETE ----------------------------------------------------- */

static void change_reply(struct redis_op *op, const redisReply *reply)
{
	if (!redis_op_is_good(op, reply))
		return;
	if (reply->integer == 1)
		peer_count(op->shard->peer, REDIS_MAKES, 1);
	redis_replica_end(op, op->job->op == XSEG_OP_WRITE ? (int)op->job->length : 0, 0);
}

static void change_begin(struct redis_op *op);
static void copy_begin(struct redis_op *op);

static void change_send(struct redis_op *op, char what, const char *bytes, size_t size)
{
	const struct job *job = op->job;
	char fence[REDIS_KEY], object[REDIS_KEY], index[REDIS_KEY], member[REDIS_KEY];
	char term[17] = "", offset[24], kind[2] = {what};
	uint64_t of = job->op == XSEG_OP_COPY ? 0 : job->arg1;
	if (what == 'w' && redis_plain_write(op, bytes, size,
				   job->op == XSEG_OP_COPY ? copy_begin : change_begin))
		return;
	redis_op_name(op, fence, 'f', job->key.volume);
	redis_op_name(op, index, 'i', job->key.volume);
	redis_op_object(op, object, &job->key);
	redis_op_member(member, &job->key);
	if (of)
		hex(term, of + 1);
	snprintf(offset, sizeof(offset), "%" PRIu64, job->offset);
	const char *argv[] = {
		fence, object, index, op->shard->store->own, term, member, kind, offset, bytes};
	size_t sizes[9];
	for (int i = 0; i < 8; i++)
		sizes[i] = strlen(argv[i]);
	sizes[8] = size;
	redis_link_script(op, change_reply, REDIS_CHANGE, 3, 9, argv, sizes);
}

static void change_begin(struct redis_op *op)
{
	const struct job *job = op->job;
	struct iovec one;
	char length[16];
	if (job->op != XSEG_OP_WRITE) {
		snprintf(length, sizeof(length), "%" PRIu32, job->length);
		change_send(op, store_makes_hole(job) ? 'd' : 'z', length, strlen(length));
		return;
	}
	if (job_iov(job, 0, job->length, &one, 1) == 1) {
		change_send(op, 'w', one.iov_base, one.iov_len);
		return;
	}
	if (!op->buffer)
		op->buffer = malloc(job->length);
	if (!op->buffer) {
		redis_op_end(op, -ENOMEM, 0);
		return;
	}
	job_get_bytes(job, 0, op->buffer, job->length);
	change_send(op, 'w', op->buffer, job->length);
}

static void copy_reply(struct redis_op *op, const redisReply *reply)
{
	const struct job *job = op->job;
	char length[16];
	if (!redis_op_is_good(op, reply))
		return;
	if (bytes_are_zero(reply->str, (size_t)reply->len)) {
		snprintf(length, sizeof(length), "%" PRIu32, job->length);
		change_send(op, 'd', length, strlen(length));
		return;
	}
	if (!op->buffer)
		op->buffer = malloc(job->length);
	if (!op->buffer) {
		redis_op_end(op, -ENOMEM, 0);
		return;
	}
	size_t got = (size_t)reply->len > job->length ? job->length : (size_t)reply->len;
	memcpy(op->buffer, reply->str, got);
	memset(op->buffer + got, 0, job->length - got);
	change_send(op, 'w', op->buffer, job->length);
}

static void copy_begin(struct redis_op *op)
{
	struct xseg_key source = store_copy_source(op->job);
	get_range(op, copy_reply, &source);
}

static void done_reply(struct redis_op *op, const redisReply *reply)
{
	if (redis_op_is_good(op, reply))
		redis_replica_end(op, 0, op->version);
}

static void delete_begin(struct redis_op *op)
{
	redis_plain_note(op, false);
	char object[REDIS_KEY], index[REDIS_KEY], member[REDIS_KEY];
	redis_op_object(op, object, &op->job->key);
	redis_op_name(op, index, 'i', op->job->key.volume);
	redis_op_member(member, &op->job->key);
	const char *argv[] = {object, index, member};
	size_t sizes[] = {strlen(object), strlen(index), strlen(member)};
	redis_link_script(op, done_reply, REDIS_DELETE, 2, 3, argv, sizes);
}

/* --- LIST ----------------------------------------------------------------------------------- */

static bool parse(const struct job *job, const char *text, struct xseg_key *key)
{
	*key = (struct xseg_key){.volume = job->key.volume, .epoch = job->key.epoch};
	if (store_record_is(&job->key))
		return sscanf(text, "%16" SCNx64 ".%8" SCNx32, &key->volume, &key->object) == 2;
	return sscanf(text, "%8" SCNx32 ".%8" SCNx32, &key->object, &key->epoch) == 2;
}

static void list_reply(struct redis_op *op, const redisReply *reply);

/* after: the last one had, or NULL. */
static void list_send(struct redis_op *op, const char *after)
{
	const struct job *job = op->job;
	struct xseg_key from = store_list_from(job);
	char index[REDIS_KEY], first[REDIS_KEY + 1];
	bool record = store_record_is(&job->key);
	if (record && from.volume < job->key.volume)
		from.volume = job->key.volume;
	redis_op_name(op, index, record ? 'k' : 'i', record ? job->key.epoch : job->key.volume);
	if (after) {
		snprintf(first, sizeof(first), "(%s", after);
	} else {
		*first = '[';
		redis_op_member(first + 1, &from);
	}
	send(op, list_reply, 7,
		(const char *[]){"ZRANGEBYLEX", index, first, "+", "LIMIT", "0", LIST_AT_ONCE});
}

/* op->buffer: keys of before, op->size: how many. */
static void list_reply(struct redis_op *op, const redisReply *reply)
{
	struct store_list list = {
		.job = op->job, .keys = (void *)op->buffer, .count = (uint32_t)op->size};
	uint64_t value = 0;
	list.room = list.count;
	if (!redis_op_is_good(op, reply))
		return;
	for (size_t i = 0; i < reply->elements && !store_list_full(&list); i++) {
		struct xseg_key key;
		if (parse(op->job, reply->element[i]->str, &key) && store_list_wants(op->job, &key))
			store_list_add(&list, key);
	}
	op->buffer = (void *)list.keys;
	op->size = list.count;
	if (reply->elements == (size_t)atoi(LIST_AT_ONCE) && !store_list_full(&list)) {
		list_send(op, reply->element[reply->elements - 1]->str);
		return;
	}
	op->buffer = NULL; /* store_list_end() frees the keys */
	int answer = store_list_end(&list, &value);
	redis_op_end(op, answer, value);
}

static void list_begin(struct redis_op *op)
{
	op->size = 0;
	free(op->buffer);
	op->buffer = NULL;
	list_send(op, NULL);
}

/* --- CAS ------------------------------------------------------------------------------------ */

static void cas_begin(struct redis_op *op);

static void swap_reply(struct redis_op *op, const redisReply *reply)
{
	if (!redis_op_is_good(op, reply))
		return;
	if (reply->integer == 0) {
		cas_begin(op); /* it has changed meanwhile */
		return;
	}
	redis_replica_end(op, 0, op->version);
}

static void swap_send(struct redis_op *op, const redisReply *old, const struct record *now)
{
	const struct job *job = op->job;
	char name[REDIS_KEY], index[REDIS_KEY], fence[REDIS_KEY], member[REDIS_KEY];
	redis_op_object(op, name, &job->key);
	redis_op_name(op, index, 'k', job->key.epoch);
	/* with its home record a volume's fence goes, too */
	redis_op_name(op, fence, job->key.epoch == XSEG_EPOCH_HOME ? 'f' : 'n', job->key.volume);
	redis_op_member(member, &job->key);
	const char *argv[] = {
		name, index, fence, old->str ? old->str : "", now ? (const char *)now : "", member};
	size_t sizes[] = {strlen(name), strlen(index), strlen(fence), (size_t)old->len,
		now ? sizeof(now->version) + job->length : 0, strlen(member)};
	redis_link_script(op, swap_reply, REDIS_SWAP, 3, 6, argv, sizes);
}

static void cas_reply(struct redis_op *op, const redisReply *reply)
{
	struct job *job = op->job;
	struct record now;
	op->version = 0;
	if (!redis_op_is_good(op, reply))
		return;
	size_t size = reply->type == REDIS_REPLY_STRING ? (size_t)reply->len : 0;
	if (size && (size < sizeof(now.version) || size > sizeof(now))) {
		redis_op_end(op, -EILSEQ, 0);
		return;
	}
	if (size)
		memcpy(&op->version, reply->str, sizeof(op->version));
	int answer = store_record_check(job, op->version);
	if (!answer && job->arg1 == XSEG_CAS_GET)
		answer = store_record_answer(
			job, reply->str + sizeof(now.version), size - sizeof(now.version));
	if (answer || job->arg1 == XSEG_CAS_GET) {
		redis_op_end(op, answer, op->version);
		return;
	}
	if (job->arg1 == XSEG_CAS_DELETE) {
		swap_send(op, reply, NULL);
		return;
	}
	now.version = op->version = store_record_version_next(op->version);
	job_get_bytes(job, 0, now.data, job->length);
	swap_send(op, reply, &now);
}

static void cas_begin(struct redis_op *op)
{
	char name[REDIS_KEY];
	redis_op_object(op, name, &op->job->key);
	send(op, cas_reply, 2, (const char *[]){"GET", name});
}

/* --- CONTROL -------------------------------------------------------------------------------- */

static void control_reply(struct redis_op *op, const redisReply *reply)
{
	if (redis_op_is_good(op, reply))
		redis_plain_claimed(op, reply);
}

static void control_begin(struct redis_op *op)
{
	const struct job *job = op->job;
	char fence[REDIS_KEY], term[17], line[17] = "";
	redis_op_name(op, fence, 'f', job->key.volume);
	hex(term, job->arg1);
	if (job->offset)
		hex(line, job->offset);
	const char *argv[] = {fence, op->shard->store->own, term, line,
		job->flags & XSEG_F_READ_ONLY ? "1" : "0"};
	size_t sizes[] = {strlen(fence), 16, 16, strlen(line), 1};
	redis_plain_claim(op);
	redis_link_script(op, control_reply, REDIS_CLAIM, 1, 5, argv, sizes);
}

/* --- where each goes ------------------------------------------------------------------------ */

static void (*const beginnings[XSEG_OP_COUNT])(struct redis_op *op) = {
	[XSEG_OP_READ] = read_begin,
	[XSEG_OP_WRITE] = change_begin,
	[XSEG_OP_ZERO] = change_begin,
	[XSEG_OP_DISCARD] = change_begin,
	[XSEG_OP_STATUS] = status_begin,
	[XSEG_OP_COPY] = copy_begin,
	[XSEG_OP_DELETE] = delete_begin,
	[XSEG_OP_CAS] = cas_begin,
	[XSEG_OP_INFO] = info_begin,
	[XSEG_OP_LIST] = list_begin,
	[XSEG_OP_CONTROL] = control_begin,
};

static int check(const struct job *job)
{
	if (job->op == XSEG_OP_CONTROL) {
		if (job->arg0 != XSEG_CONTROL_FENCE && job->arg0 != XSEG_CONTROL_LEAVE)
			return -EOPNOTSUPP;
		bool claim = job->arg0 == XSEG_CONTROL_FENCE;
		return claim && (!job->key.volume || !job->arg1) ? -EINVAL : 0;
	}
	bool ranged =
		job->op <= XSEG_OP_DISCARD || job->op == XSEG_OP_STATUS || job->op == XSEG_OP_COPY;
	return ranged ? store_range_check(job) : 0;
}

/* LEAVE is no news: a claim asks who writes by himself, and ends their connections. */
static bool is_nothing(const struct job *job)
{
	bool ranged = job->op <= XSEG_OP_DISCARD || job->op == XSEG_OP_COPY;
	bool leaves = job->op == XSEG_OP_CONTROL && job->arg0 == XSEG_CONTROL_LEAVE;
	return leaves || (ranged && job->length == 0);
}

void redis_op_take(struct peer *peer, struct job *job)
{
	int error = check(job);
	if (!error && is_nothing(job)) {
		job_complete(job, 0);
		return;
	}
	struct redis_op *op = error ? NULL : calloc(1, sizeof(*op));
	if (!op) {
		job_fail(job, error ? error : -ENOMEM);
		return;
	}
	op->shard = peer->state;
	op->job = job;
	op->begin = beginnings[job->op];
	redis_link_submit(op);
}
