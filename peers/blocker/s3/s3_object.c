/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is written to one object. S3 only puts whole ones: what has come for an object is put
 * together with what is there, and put; what comes meanwhile goes with the next PUT. All of them
 * are answered when the server has answered, so there is nothing left to flush.
 *
 * Each PUT names what it replaces: one that was given up, and that the server does late, is refused
 * since the object has changed. What an object holds is kept for a while, to spare the next GET.
 */
#include <base/bytes.h>
#include <base/clock.h>
#include <base/hash.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "peers/blocker/s3/s3.h"

#define BARE_MAX 4096u
#define ASK_NS 10000000000u /* so often a writer looks whether it still is one */

struct s3_object {
	SLIST_ENTRY(s3_object) same;
	TAILQ_ENTRY(s3_object) link; /* ready, full or bare */
	struct s3_shard *shard;
	struct xseg_key key;
	enum { NOWHERE, FULL, BARE, READY, BUSY } place;
	struct job_queue jobs, taken; /* yet to come; those that it is busy with */
	bool known;		      /* what is there: tag ("": nothing) and size */
	bool held;		      /* and bytes are what it holds */
	char tag[S3_TAG];
	uint32_t size, room;
	char *bytes;
	struct record *wanted; /* that a PUT under way puts */
	uint64_t version;      /* of the record */
	uint64_t until_ns;
	struct s3_transfer transfer;
	struct s3_check check;
};

struct record {
	uint32_t size;
	uint64_t version; /* from here on it is what is stored */
	uint8_t data[XSEG_RECORD_MAX];
};
#define RECORD_HEAD sizeof(uint64_t)

/* A COPY without bytes copies zeros. */
static bool makes_hole(const struct job *job)
{
	return store_makes_hole(job) || (job->op == XSEG_OP_COPY && !job->context);
}

static bool is_change(const struct job *job)
{
	return job->op != XSEG_OP_CAS && job->op != XSEG_OP_DELETE;
}

/* --- which there are ------------------------------------------------------------------------ */

static uint32_t bucket_of(const struct xseg_key *key)
{
	uint64_t place = hash_u64(key->volume ^ hash_u64((uint64_t)key->object << 32 | key->epoch));
	return (uint32_t)(place % S3_BUCKETS);
}

static struct s3_object *object_find(struct s3_shard *shard, const struct xseg_key *key)
{
	struct s3_object *o;
	uint32_t bucket = bucket_of(key);
	SLIST_FOREACH (o, &shard->objects[bucket], same)
		if (store_key_compare(&o->key, key) == 0)
			return o;
	o = calloc(1, sizeof(*o));
	if (!o)
		return NULL;
	o->shard = shard;
	o->key = *key;
	TAILQ_INIT(&o->jobs);
	TAILQ_INIT(&o->taken);
	SLIST_INSERT_HEAD(&shard->objects[bucket], o, same);
	return o;
}

static void object_free(struct s3_object *o)
{
	SLIST_REMOVE(&o->shard->objects[bucket_of(&o->key)], o, s3_object, same);
	free(o->transfer.text);
	free(o->bytes);
	free(o->wanted);
	free(o);
}

static void drop_bytes(struct s3_object *o)
{
	free(o->bytes);
	o->bytes = NULL;
	o->room = 0;
	o->held = false;
}

static void rest_leave(struct s3_object *o)
{
	struct s3_shard *shard = o->shard;
	if (o->place == FULL) {
		TAILQ_REMOVE(&shard->full, o, link);
		shard->held -= o->room;
	} else {
		TAILQ_REMOVE(&shard->bare, o, link);
		shard->bare_count--;
	}
	o->place = NOWHERE;
}

static void rest_bare(struct s3_object *o)
{
	struct s3_shard *shard = o->shard;
	if (o->size)
		drop_bytes(o);
	TAILQ_INSERT_TAIL(&shard->bare, o, link);
	o->place = BARE;
	if (++shard->bare_count <= BARE_MAX)
		return;
	o = TAILQ_FIRST(&shard->bare);
	rest_leave(o);
	object_free(o);
}

static void rest_enter(struct s3_object *o)
{
	struct s3_shard *shard = o->shard;
	uint64_t most = shard->store->options->memory / shard->peer->shards;
	if (!o->known) {
		object_free(o);
		return;
	}
	if (!o->held || !o->room) {
		rest_bare(o);
		return;
	}
	TAILQ_INSERT_TAIL(&shard->full, o, link);
	o->place = FULL;
	shard->held += o->room;
	while (shard->held > most) {
		o = TAILQ_FIRST(&shard->full);
		rest_leave(o);
		rest_bare(o);
	}
}

/* --- turns ---------------------------------------------------------------------------------- */

/* What it was busy with has ended. */
static void object_done(struct s3_object *o)
{
	struct s3_shard *shard = o->shard;
	o->place = NOWHERE;
	shard->busy--;
	if (shard->store->options->read_only)
		o->known = false; /* others write */
	if (TAILQ_EMPTY(&o->jobs)) {
		rest_enter(o);
		return;
	}
	o->place = READY;
	TAILQ_INSERT_TAIL(&shard->ready, o, link);
}

static void end_job(struct job *job, int answer, uint64_t value)
{
	if (job->op == XSEG_OP_COPY)
		free(job->context);
	store_answer(job, answer, value);
}

static void end_taken(struct s3_object *o, int error)
{
	struct job *job;
	free(o->wanted);
	o->wanted = NULL;
	if (error)
		o->known = o->held = false;
	while ((job = TAILQ_FIRST(&o->taken))) {
		TAILQ_REMOVE(&o->taken, job, link);
		end_job(job,
			error			   ? error
			: job->op == XSEG_OP_WRITE ? (int)job->length
						   : 0,
			o->version);
	}
	object_done(o);
}

static struct s3_transfer *transfer_begin(
	struct s3_object *o, enum s3_method method, s3_done_f *done)
{
	struct s3_transfer *t = &o->transfer;
	char *text = t->text;
	uint32_t room = t->text_room;
	*t = (struct s3_transfer){
		.method = method, .done = done, .whose = o, .text = text, .text_room = room};
	s3_op_name(t->name, &o->key);
	return t;
}

/* --- what is there -------------------------------------------------------------------------- */

static void go_on(struct s3_object *o);

static void absence_checked(void *whose, int error)
{
	struct s3_object *o = whose;
	if (error) {
		end_taken(o, error);
		return;
	}
	o->known = o->held = true;
	o->size = 0;
	*o->tag = 0;
	go_on(o);
}

static void learned(struct s3_transfer *t, int error)
{
	struct s3_object *o = t->whose;
	if (error == -ENOENT) {
		o->check = (struct s3_check){.done = absence_checked, .whose = o};
		s3_store_check(o->shard, &o->check);
		return;
	}
	bool whole = t->method == S3_GET;
	uint64_t size = whole ? t->text_size : t->size;
	if (!error && size > XSEG_OBJECT_MAX)
		error = -EILSEQ;
	if (error) {
		end_taken(o, error);
		return;
	}
	o->known = true;
	o->size = (uint32_t)size;
	snprintf(o->tag, sizeof(o->tag), "%s", t->tag);
	if (whole) {
		drop_bytes(o);
		o->bytes = t->text;
		o->room = t->text_room;
		o->held = true;
		t->text = NULL;
		t->text_room = 0;
		peer_count(o->shard->peer, S3_FETCHES, 1);
	}
	go_on(o);
}

/* How much from its beginning the changes replace, whatever is there. */
static uint32_t replaced_by(const struct s3_object *o)
{
	const struct job *job;
	uint32_t end = 0;
	TAILQ_FOREACH (job, &o->taken, link)
		if (job->offset <= end && job->offset + job->length > end)
			end = (uint32_t)job->offset + job->length;
	return end;
}

/* --- changes -------------------------------------------------------------------------------- */

static bool make_room(struct s3_object *o, uint32_t size)
{
	if (size <= o->room)
		return true;
	char *bytes = realloc(o->bytes, size);
	if (!bytes)
		return false;
	o->bytes = bytes;
	o->room = size;
	return true;
}

/* False: there is nothing to be changed. */
static bool apply(struct s3_object *o, const struct job *job)
{
	uint32_t from = (uint32_t)job->offset, end = from + job->length;
	if (makes_hole(job)) {
		end = end < o->size ? end : o->size;
		if (from >= end)
			return false;
	}
	if (end > o->size) {
		memset(o->bytes + o->size, 0, end - o->size);
		o->size = end;
	}
	if (job->op == XSEG_OP_WRITE)
		job_get_bytes(job, 0, o->bytes + from, job->length);
	else if (job->op == XSEG_OP_COPY && job->context)
		memcpy(o->bytes + from, job->context, job->length);
	else
		memset(o->bytes + from, 0, end - from);
	return true;
}

/* Zeros at its end need not be stored. */
static void trim(struct s3_object *o)
{
	while (o->size >= XSEG_SECTOR &&
		bytes_are_zero(o->bytes + o->size - XSEG_SECTOR, XSEG_SECTOR))
		o->size -= XSEG_SECTOR;
}

static void put_again(struct s3_object *o)
{
	o->known = o->held = false;
	go_on(o);
}

static void record_put_done(struct s3_object *o, int error);

static void put_done(struct s3_transfer *t, int error)
{
	struct s3_object *o = t->whose;
	if (error == -ECANCELED || error == -ENOENT) {
		/* it is not what it was: a try of ours that was thought lost, or somebody else's */
		peer_count(o->shard->peer, S3_CONFLICTS, 1);
		if (clock_now_ns() >= o->until_ns)
			end_taken(o, -ETIMEDOUT);
		else
			put_again(o);
		return;
	}
	peer_count(o->shard->peer, S3_PUTS, error ? 0 : 1);
	o->known = !error && *t->tag;
	o->held = o->known && !o->wanted;
	snprintf(o->tag, sizeof(o->tag), "%s", t->tag);
	if (o->wanted)
		record_put_done(o, error);
	else
		end_taken(o, error);
}

static void put_send(struct s3_object *o, const void *bytes, uint32_t size)
{
	struct s3_transfer *t = transfer_begin(o, S3_PUT, put_done);
	t->body = bytes;
	t->body_size = size;
	if (o->shard->store->conditional)
		snprintf(t->match, sizeof(t->match), "%s", *o->tag ? o->tag : "*");
	s3_link_submit(&o->shard->link, t);
}

static void change_put(struct s3_object *o)
{
	const struct job *job;
	uint32_t end = o->size;
	bool changed = false;
	TAILQ_FOREACH (job, &o->taken, link)
		if (!makes_hole(job) && job->offset + job->length > end)
			end = (uint32_t)job->offset + job->length;
	if (!make_room(o, end)) {
		end_taken(o, -ENOMEM);
		return;
	}
	if (!o->held && o->size)
		memset(o->bytes, 0, o->size); /* all of it is replaced */
	TAILQ_FOREACH (job, &o->taken, link)
		changed |= apply(o, job);
	if (!changed) {
		end_taken(o, 0);
		return;
	}
	trim(o);
	o->held = false;
	put_send(o, o->bytes, o->size);
}

static void change_go_on(struct s3_object *o)
{
	uint32_t replaced = replaced_by(o);
	if (o->known && (o->held || replaced >= o->size))
		change_put(o);
	else
		s3_link_submit(&o->shard->link,
			transfer_begin(
				o, o->known || replaced < XSEG_PAGE ? S3_GET : S3_HEAD, learned));
}

/* --- removal -------------------------------------------------------------------------------- */

static void removed(struct s3_transfer *t, int error)
{
	struct s3_object *o = t->whose;
	if (error == -ENOENT)
		error = 0;
	drop_bytes(o);
	o->known = false;
	end_taken(o, error);
}

/* --- records -------------------------------------------------------------------------------- */

static void record_end(struct s3_object *o, int answer)
{
	struct job *job = TAILQ_FIRST(&o->taken);
	TAILQ_REMOVE(&o->taken, job, link);
	free(o->wanted);
	o->wanted = NULL;
	end_job(job, answer, o->version);
	object_done(o);
}

static void record_put(struct s3_object *o, const struct job *job)
{
	struct record *now = o->wanted ? o->wanted : malloc(sizeof(*now));
	if (!now) {
		record_end(o, -ENOMEM);
		return;
	}
	o->wanted = now;
	now->version = o->version = store_record_version_next(o->version);
	now->size = (uint32_t)RECORD_HEAD + job->length;
	job_get_bytes(job, 0, now->data, job->length);
	put_send(o, &now->version, now->size);
}

static void record_put_done(struct s3_object *o, int error)
{
	o->held = o->known && make_room(o, o->wanted->size);
	if (o->held) {
		o->size = o->wanted->size;
		memcpy(o->bytes, &o->wanted->version, o->size);
	}
	record_end(o, error);
}

static void record_decide(struct s3_object *o)
{
	struct job *job = TAILQ_FIRST(&o->taken);
	int answer = store_record_check(job, o->version);
	if (!answer && job->arg1 == XSEG_CAS_GET)
		answer = store_record_answer(job, o->size ? o->bytes + RECORD_HEAD : NULL,
			o->size ? o->size - RECORD_HEAD : 0);
	if (answer || job->arg1 == XSEG_CAS_GET)
		record_end(o, answer);
	else if (job->arg1 == XSEG_CAS_DELETE)
		s3_link_submit(&o->shard->link, transfer_begin(o, S3_DELETE, removed));
	else
		record_put(o, job);
}

static void record_go_on(struct s3_object *o)
{
	if (!o->known || !o->held) {
		s3_link_submit(&o->shard->link, transfer_begin(o, S3_GET, learned));
		return;
	}
	o->version = 0;
	if (o->size && (o->size < RECORD_HEAD || o->size > RECORD_HEAD + XSEG_RECORD_MAX)) {
		record_end(o, -EILSEQ);
		return;
	}
	if (o->size)
		memcpy(&o->version, o->bytes, RECORD_HEAD);
	if (o->wanted && o->size == o->wanted->size &&
		memcmp(o->bytes, &o->wanted->version, o->size) == 0)
		record_end(o, 0); /* the first try was done, though its answer was lost */
	else
		record_decide(o);
}

/* --- what comes ----------------------------------------------------------------------------- */

static void go_on(struct s3_object *o)
{
	const struct job *first = TAILQ_FIRST(&o->taken);
	if (first->op == XSEG_OP_CAS)
		record_go_on(o);
	else if (first->op == XSEG_OP_DELETE)
		s3_link_submit(&o->shard->link, transfer_begin(o, S3_DELETE, removed));
	else
		change_go_on(o);
}

static void object_begin(struct s3_object *o)
{
	struct job *job = TAILQ_FIRST(&o->jobs);
	unsigned count = 0;
	o->place = BUSY;
	o->shard->busy++;
	o->version = 0;
	o->until_ns = clock_now_ns() + o->shard->store->options->timeout;
	do {
		TAILQ_REMOVE(&o->jobs, job, link);
		TAILQ_INSERT_TAIL(&o->taken, job, link);
		count++;
	} while (is_change(job) && (job = TAILQ_FIRST(&o->jobs)) && is_change(job));
	peer_count(o->shard->peer, S3_GATHERED, count - 1);
	go_on(o);
}

static void looked(void *whose, int error)
{
	struct s3_shard *shard = whose;
	(void)error; /* s3_store.c has noted it */
	shard->looking = false;
}

/* Is it still ours to write? */
static void look(struct s3_shard *shard)
{
	if (shard->looking || clock_now_ns() < shard->asked_ns + ASK_NS)
		return;
	shard->looking = true;
	shard->look = (struct s3_check){.done = looked, .whose = shard};
	s3_store_check(shard, &shard->look);
}

bool s3_object_turn(struct s3_shard *shard)
{
	struct s3_object *o;
	bool moved = false;
	while (shard->busy < shard->store->options->connections &&
		(o = TAILQ_FIRST(&shard->ready))) {
		TAILQ_REMOVE(&shard->ready, o, link);
		if (!shard->store->options->read_only)
			look(shard);
		object_begin(o);
		moved = true;
	}
	return moved;
}

static int may(const struct s3_shard *shard, const struct job *job)
{
	if (job->op == XSEG_OP_CAS && job->arg1 == XSEG_CAS_GET)
		return 0;
	if (shard->store->options->read_only)
		return -EROFS;
	return shard->deposed ? -ESTALE : 0;
}

void s3_object_take(struct s3_shard *shard, struct job *job)
{
	int error = may(shard, job);
	struct s3_object *o = error ? NULL : object_find(shard, &job->key);
	if (!o) {
		end_job(job, error ? error : -ENOMEM, 0);
		return;
	}
	if (o->place == FULL || o->place == BARE)
		rest_leave(o);
	TAILQ_INSERT_TAIL(&o->jobs, job, link);
	if (o->place == NOWHERE) {
		o->place = READY;
		TAILQ_INSERT_TAIL(&shard->ready, o, link);
	}
}

void s3_object_start(struct s3_shard *shard)
{
	TAILQ_INIT(&shard->ready);
	TAILQ_INIT(&shard->full);
	TAILQ_INIT(&shard->bare);
	STAILQ_INIT(&shard->checks);
	STAILQ_INIT(&shard->checked);
	shard->asked_ns = clock_now_ns();
}

void s3_object_finish(struct s3_shard *shard)
{
	struct s3_object *o;
	while ((o = TAILQ_FIRST(&shard->full)) || (o = TAILQ_FIRST(&shard->bare))) {
		rest_leave(o);
		object_free(o);
	}
	free(shard->asking.text);
}
