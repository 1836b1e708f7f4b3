/* SPDX-License-Identifier: Apache-2.0 */
/* What only reads, and where each operation goes. */
#include <base/bytes.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "peers/blocker/s3/s3.h"

#define LIST_AT_ONCE 1000u

/* A request that only reads, or what a COPY reads first. */
struct s3_op {
	struct s3_transfer transfer;
	struct s3_check check;
	struct s3_shard *shard;
	struct job *job;
	struct store_list list;
	char *bytes; /* of a range, zeros where there is nothing */
};

/* --- names ---------------------------------------------------------------------------------- */

void s3_op_name(char name[S3_NAME], const struct xseg_key *key)
{
	if (store_record_is(key))
		snprintf(name, S3_NAME, "r/%08" PRIx32 "/%016" PRIx64 ".%08" PRIx32, key->epoch,
			key->volume, key->object);
	else
		snprintf(name, S3_NAME, "o/%016" PRIx64 "/%08" PRIx32 ".%08" PRIx32, key->volume,
			key->object, key->epoch);
}

/* name: as the bucket has it. */
static bool parse(const struct s3_op *op, const char *name, struct xseg_key *key)
{
	size_t length = strlen(op->shard->store->options->prefix) + 1;
	if (strlen(name) <= length)
		return false;
	if (store_record_is(&op->job->key))
		return sscanf(name + length, "r/%8" SCNx32 "/%16" SCNx64 ".%8" SCNx32, &key->epoch,
			       &key->volume, &key->object) == 3;
	return sscanf(name + length, "o/%16" SCNx64 "/%8" SCNx32 ".%8" SCNx32, &key->volume,
		       &key->object, &key->epoch) == 3;
}

/* --- ends ----------------------------------------------------------------------------------- */

static void op_end(struct s3_op *op, int answer, uint64_t value)
{
	store_answer(op->job, answer, value);
	free(op->transfer.text);
	free(op->bytes);
	free(op);
}

static struct s3_transfer *op_transfer(struct s3_op *op, enum s3_method method, s3_done_f *done)
{
	free(op->transfer.text);
	op->transfer = (struct s3_transfer){.method = method, .done = done, .whose = op};
	return &op->transfer;
}

/* An absent object: zeros, if the store is there. */
static void if_there(struct s3_op *op, s3_checked_f *done)
{
	op->check = (struct s3_check){.done = done, .whose = op};
	s3_store_check(op->shard, &op->check);
}

/* --- READ ----------------------------------------------------------------------------------- */

static void read_absent(void *whose, int error)
{
	struct s3_op *op = whose;
	if (!error || error == -ESTALE)
		job_zero_bytes(op->job, 0, op->job->length);
	op_end(op, error && error != -ESTALE ? error : (int)op->job->length, 0);
}

static void read_done(struct s3_transfer *t, int error)
{
	struct s3_op *op = t->whose;
	struct job *job = op->job;
	if (error == -ENOENT) {
		if_there(op, read_absent);
		return;
	}
	if (!error || error == -ERANGE)
		job_zero_bytes(job, t->got, job->length - t->got);
	op_end(op, error && error != -ERANGE ? error : (int)job->length, 0);
}

static void ask_range(struct s3_op *op, const struct xseg_key *key, s3_done_f *done)
{
	struct s3_transfer *t = op_transfer(op, S3_GET, done);
	t->offset = (uint32_t)op->job->offset;
	t->length = op->job->length;
	t->job = op->bytes ? NULL : op->job;
	t->bytes = op->bytes;
	s3_op_name(t->name, key);
	s3_link_submit(&op->shard->link, t);
}

static void read_begin(struct s3_op *op) { ask_range(op, &op->job->key, read_done); }

/* --- a range's bytes, for STATUS and COPY --------------------------------------------------- */

static void status_answer(struct s3_op *op)
{
	uint64_t value = 0;
	int answer = store_status_of(op->job, op->bytes, &value);
	op_end(op, answer, value);
}

static void copy_answer(struct s3_op *op)
{
	struct job *job = op->job;
	if (!bytes_are_zero(op->bytes, job->length)) {
		job->context = op->bytes;
		op->bytes = NULL;
	} else {
		job->context = NULL;
	}
	s3_object_take(op->shard, job);
	free(op->bytes);
	free(op->transfer.text);
	free(op);
}

static void range_answer(struct s3_op *op)
{
	const struct s3_transfer *t = &op->transfer;
	memset(op->bytes + t->got, 0,
		t->length - t->got); /* a try that was cut may have left some */
	if (op->job->op == XSEG_OP_COPY)
		copy_answer(op);
	else
		status_answer(op);
}

static void range_absent(void *whose, int error)
{
	struct s3_op *op = whose;
	if (error)
		op_end(op, error, 0);
	else
		range_answer(op);
}

static void range_done(struct s3_transfer *t, int error)
{
	struct s3_op *op = t->whose;
	if (error == -ENOENT)
		if_there(op, range_absent);
	else if (error && error != -ERANGE)
		op_end(op, error, 0);
	else
		range_answer(op);
}

static void range_begin(struct s3_op *op, const struct xseg_key *key)
{
	op->bytes = calloc(1, op->job->length);
	if (op->bytes)
		ask_range(op, key, range_done);
	else
		op_end(op, -ENOMEM, 0);
}

static void status_begin(struct s3_op *op) { range_begin(op, &op->job->key); }

static void copy_begin(struct s3_op *op)
{
	struct xseg_key source = store_copy_source(op->job);
	range_begin(op, &source);
}

/* --- INFO ----------------------------------------------------------------------------------- */

static void info_absent(void *whose, int error) { op_end(whose, error ? error : -ENOENT, 0); }

static void info_done(struct s3_transfer *t, int error)
{
	struct s3_op *op = t->whose;
	struct xseg_object_info info = {.size = t->size, .allocated = t->size};
	if (error == -ENOENT) {
		if_there(op, info_absent);
		return;
	}
	if (!error && op->job->data_size < sizeof(info))
		error = -EINVAL;
	if (!error)
		job_put_bytes(op->job, 0, &info, sizeof(info));
	op_end(op, error ? error : (int)sizeof(info), error ? 0 : XSEG_INFO_SPACE_UNKNOWN);
}

static void info_begin(struct s3_op *op)
{
	struct s3_transfer *t = op_transfer(op, S3_HEAD, info_done);
	s3_op_name(t->name, &op->job->key);
	s3_link_submit(&op->shard->link, t);
}

/* --- LIST ----------------------------------------------------------------------------------- */

static void list_done(struct s3_transfer *t, int error);

/* after: a name in the bucket. */
static void list_send(struct s3_op *op, const char *after)
{
	struct s3_transfer *t = op_transfer(op, S3_GET, list_done);
	const struct s3_options *options = op->shard->store->options;
	const struct xseg_key *key = &op->job->key;
	char name[S3_NAME], prefix[2 * S3_NAME];
	s3_op_name(name, key);
	*strrchr(name, '/') = 0;
	snprintf(prefix, sizeof(prefix), "%s/%s/", options->prefix, name);
	uint32_t room = op->job->data_size / sizeof(struct xseg_key) + 1;
	snprintf(t->query, sizeof(t->query), "list-type=2&max-keys=%" PRIu32 "&prefix=",
		room < LIST_AT_ONCE ? room : LIST_AT_ONCE);
	s3_sign_encode(t->query, sizeof(t->query), prefix, false);
	strcat(t->query, "&start-after=");
	s3_sign_encode(t->query, sizeof(t->query), after, false);
	s3_link_submit(&op->shard->link, t);
}

static void list_end(void *whose, int error)
{
	struct s3_op *op = whose;
	uint64_t value = 0;
	if (error && error != -ESTALE)
		op->list.error = error;
	int answer = store_list_end(&op->list, &value);
	op_end(op, answer, value);
}

static void list_done(struct s3_transfer *t, int error)
{
	struct s3_op *op = t->whose;
	const char *at = t->text_size ? t->text : NULL, *whole = at;
	char name[2 * S3_NAME] = "", more[8] = "";
	while (!error && !store_list_full(&op->list) &&
		s3_link_element(&at, "Key", name, sizeof(name))) {
		struct xseg_key key;
		if (parse(op, name, &key) && store_list_wants(op->job, &key))
			store_list_add(&op->list, key);
	}
	if (!error && !s3_link_element(&whole, "IsTruncated", more, sizeof(more)))
		error = -EPROTO;
	if (!error && strcmp(more, "true") == 0 && *name && !store_list_full(&op->list)) {
		list_send(op, name);
		return;
	}
	if (error)
		op->list.error = error == -ENOENT ? -EIO : error;
	if (!error && op->list.count == 0) {
		if_there(op, list_end);
		return;
	}
	list_end(op, 0);
}

static void list_begin(struct s3_op *op)
{
	char name[S3_NAME], after[2 * S3_NAME];
	struct xseg_key from = store_list_from(op->job);
	op->list.job = op->job;
	if (store_key_compare(&from, &op->job->key) < 0)
		from = op->job->key;
	s3_op_name(name, &from);
	name[strlen(name) - 1] = 0; /* before that name: what starts there is not left out */
	snprintf(after, sizeof(after), "%s/%s", op->shard->store->options->prefix, name);
	list_send(op, after);
}

/* --- where each goes ------------------------------------------------------------------------ */

static void (*const beginnings[XSEG_OP_COUNT])(struct s3_op *op) = {
	[XSEG_OP_READ] = read_begin,
	[XSEG_OP_STATUS] = status_begin,
	[XSEG_OP_COPY] = copy_begin,
	[XSEG_OP_INFO] = info_begin,
	[XSEG_OP_LIST] = list_begin,
};

static bool is_ranged(const struct job *job)
{
	return job->op <= XSEG_OP_DISCARD || job->op == XSEG_OP_COPY || job->op == XSEG_OP_STATUS;
}

void s3_op_take(struct peer *peer, struct job *job)
{
	struct s3_shard *shard = peer->state;
	int error = is_ranged(job) ? store_range_check(job) : 0;
	if (store_space_asked(job))
		error = -EOPNOTSUPP;
	if (error || (is_ranged(job) && job->length == 0)) {
		store_answer(job, error, 0);
		return;
	}
	if (!beginnings[job->op]) {
		s3_object_take(shard, job);
		return;
	}
	struct s3_op *op = calloc(1, sizeof(*op));
	if (!op) {
		job_fail(job, -ENOMEM);
		return;
	}
	op->shard = shard;
	op->job = job;
	beginnings[job->op](op);
}
