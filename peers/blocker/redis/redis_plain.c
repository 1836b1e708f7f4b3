/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes without a script, which hashes each byte of its arguments. A lane that has asked
 * (REDIS_MAY) writes to a volume with plain SETRANGE, until somebody claims the volume: who does so
 * from elsewhere ends the connections of all who have asked, and is answered when they have ended;
 * a claim of our own, which may raise the line, waits until what was sent before is done. So what a
 * script looks at for each write is looked at once.
 */
#include <base/hash.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "peers/blocker/redis/redis.h"

void redis_plain_connections(
	const struct redis_shard *shard, const char *writer, char key[REDIS_KEY])
{
	snprintf(key, REDIS_KEY, "%s:connections:%s", shard->store->prefix, writer);
}

const char *redis_plain_number(const char *text, const char *run)
{
	size_t length = strlen(run);
	return strncmp(text, run, length) == 0 && text[length] == ':' ? text + length + 1 : NULL;
}

static void send(struct redis_op *op, redis_reply_f *reply, int argc, const char **argv)
{
	size_t sizes[8];
	for (int i = 0; i < argc; i++)
		sizes[i] = strlen(argv[i]);
	redis_link_send(op, reply, argc, argv, sizes);
}

/* --- objects that are in the index ------------------------------------------------------------ */

static struct xseg_key *known_place(struct redis_shard *shard, const struct xseg_key *key)
{
	uint64_t hash = hash_object(key->volume, key->epoch, key->object);
	return &shard->known[(hash >> 32) % REDIS_KNOWN];
}

void redis_plain_forget(struct redis_shard *shard)
{
	memset(shard->may, 0, sizeof(shard->may));
	memset(shard->known, 0, REDIS_KNOWN * sizeof(*shard->known));
}

void redis_plain_note(struct redis_op *op, bool there)
{
	struct xseg_key *place = known_place(op->shard, &op->job->key);
	if (there)
		*place = op->job->key;
	else if (store_key_compare(place, &op->job->key) == 0)
		*place = (struct xseg_key){0};
}

static void indexed(redisAsyncContext *context, void *got, void *whose)
{
	struct redis_op *op = whose;
	const redisReply *reply = got;
	(void)context;
	if (!reply)
		return;
	if (reply->type == REDIS_REPLY_ERROR &&
		(redis_cluster_is_split(reply->str) || redis_cluster_is_elsewhere(reply->str))) {
		op->split = true;
		redis_plain_note(op, false);
	} else if (reply->type == REDIS_REPLY_ERROR)
		op->error = redis_link_error(op->shard, reply);
	else if (reply->integer == 1)
		peer_count(op->shard->peer, REDIS_MAKES, 1);
}

/* --- writes ------------------------------------------------------------------------------- */

static void write_reply(struct redis_op *op, const redisReply *reply)
{
	if (op->error)
		redis_plain_note(op, false);
	if (!redis_op_is_good(op, reply))
		return;
	int done = op->job->op == XSEG_OP_WRITE ? (int)op->job->length : 0;
	redis_replica_end(op, op->error ? op->error : done, 0);
}

static void write_send(struct redis_op *op, const char *bytes, size_t size)
{
	const struct job *job = op->job;
	struct redis_shard *shard = op->shard;
	char object[REDIS_KEY], index[REDIS_KEY], member[REDIS_KEY], offset[24];
	const char *argv[] = {"SETRANGE", object, offset, bytes};
	redis_op_object(op, object, &job->key);
	snprintf(offset, sizeof(offset), "%llu", (unsigned long long)job->offset);
	op->error = 0;
	if (shard->context && store_key_compare(known_place(shard, &job->key), &job->key) != 0) {
		redis_op_name(op, index, 'i', job->key.volume);
		redis_op_member(member, &job->key);
		redisAsyncCommand(shard->context, indexed, op, "ZADD %s 0 %s", index, member);
		redis_plain_note(op, true);
	}
	size_t sizes[] = {8, strlen(object), strlen(offset), size};
	op->plain = true;
	redis_link_send(op, write_reply, 4, argv, sizes);
}

static void may_reply(struct redis_op *op, const redisReply *reply)
{
	uint64_t volume = op->job->key.volume;
	if (!redis_op_is_good(op, reply))
		return;
	op->shard->may[(hash_u64(volume) >> 32) % REDIS_VOLUMES] =
		(struct redis_may){.volume = volume,
			.line = reply->str ? strtoull(reply->str, NULL, 16) : 0,
			.claims = op->claims};
	op->again(op);
}

bool redis_plain_write(
	struct redis_op *op, const char *bytes, size_t size, void (*again)(struct redis_op *op))
{
	const struct job *job = op->job;
	struct redis_store *store = op->shard->store;
	const struct redis_may *may =
		&op->shard->may[(hash_u64(job->key.volume) >> 32) % REDIS_VOLUMES];
	uint64_t term = job->op == XSEG_OP_COPY ? 0 : job->arg1;
	if (!store->kills)
		return false;
	op->claims = atomic_load(&store->claims);
	if (may->volume == job->key.volume && may->claims == op->claims) {
		if (term == 0 || may->line == 0 || term + 1 >= may->line) {
			write_send(op, bytes, size);
			return true;
		}
		peer_count(op->shard->peer, REDIS_FENCED, 1);
		redis_op_end(op, -ESTALE, 0);
		return true;
	}
	char fence[REDIS_KEY];
	redis_op_name(op, fence, 'f', job->key.volume);
	const char *argv[] = {fence, store->own};
	size_t sizes[] = {strlen(fence), strlen(store->own)};
	op->again = again;
	redis_link_script(op, may_reply, REDIS_MAY, 1, 2, argv, sizes);
	return true;
}

void redis_plain_sent(struct redis_op *op)
{
	atomic_fetch_add(&op->shard->store->plain[op->claims % REDIS_CLAIMS], 1);
}

/* Lost with its connection, it may be done until that has ended at the server. */
void redis_plain_ended(struct redis_op *op, bool lost)
{
	struct redis_shard *shard = op->shard;
	op->plain = false;
	if (lost)
		shard->lost_plain[op->claims % REDIS_CLAIMS]++;
	else
		atomic_fetch_sub(&shard->store->plain[op->claims % REDIS_CLAIMS], 1);
}

void redis_plain_connected(struct redis_shard *shard)
{
	for (unsigned i = 0; i < REDIS_CLAIMS; i++) {
		atomic_fetch_sub(&shard->store->plain[i], shard->lost_plain[i]);
		shard->lost_plain[i] = 0;
	}
}

/* --- claims ------------------------------------------------------------------------------- */

#define OTHERS_MAX 32u

struct silenced {
	unsigned writers, ids;
	bool ended; /* all of the last writer's */
	char writer[OTHERS_MAX][17];
	long long id[XSEG_PORT_LANES_MAX];
};

static void silence(struct redis_op *op);

void redis_plain_claim(struct redis_op *op) { atomic_fetch_add(&op->shard->store->claims, 1); }

static void settle(struct redis_op *op)
{
	op->claims = atomic_fetch_add(&op->shard->store->claims, 1) + 1;
	TAILQ_INSERT_TAIL(&op->shard->settling, op, link);
}

static void silenced_reply(struct redis_op *op, const redisReply *reply)
{
	if (redis_op_is_good(op, reply))
		silence(op);
}

static void numbers_reply(struct redis_op *op, const redisReply *reply)
{
	struct silenced *todo = (struct silenced *)op->buffer;
	if (!redis_op_is_good(op, reply))
		return;
	for (size_t i = 0; i < reply->elements && todo->ids < XSEG_PORT_LANES_MAX; i++) {
		const char *id = redis_plain_number(reply->element[i]->str, op->shard->run);
		if (id)
			todo->id[todo->ids++] = strtoll(id, NULL, 10);
	}
	if (todo->ids > 0 && !op->shard->store->kills) {
		redisReply no = {.type = REDIS_REPLY_ERROR,
			.str = "NOPERM another host writes to the volume, and this user may not "
			       "end its connections: allow CLIENT KILL"};
		redis_op_is_good(op, &no);
		return;
	}
	todo->ended = true;
	silence(op);
}

/* The next connection, or whose are next. */
static void silence(struct redis_op *op)
{
	struct silenced *todo = (struct silenced *)op->buffer;
	char number[24], key[REDIS_KEY], field[24];
	if (todo->ids > 0) {
		snprintf(number, sizeof(number), "%lld", todo->id[--todo->ids]);
		send(op, silenced_reply, 4, (const char *[]){"CLIENT", "KILL", "ID", number});
	} else if (todo->ended) {
		todo->ended = false;
		redis_op_name(op, key, 'f', op->job->key.volume);
		snprintf(field, sizeof(field), "p:%s", todo->writer[--todo->writers]);
		send(op, silenced_reply, 3, (const char *[]){"HDEL", key, field});
	} else if (todo->writers > 0) {
		redis_plain_connections(op->shard, todo->writer[todo->writers - 1], key);
		send(op, numbers_reply, 2, (const char *[]){"HVALS", key});
	} else {
		settle(op);
	}
}

void redis_plain_claimed(struct redis_op *op, const redisReply *reply)
{
	struct silenced *todo = (struct silenced *)op->buffer;
	if (reply->type != REDIS_REPLY_ARRAY || reply->elements == 0) {
		settle(op);
		return;
	}
	if (!todo)
		op->buffer = (char *)(todo = malloc(sizeof(*todo)));
	if (!todo) {
		redis_op_end(op, -ENOMEM, 0);
		return;
	}
	*todo = (struct silenced){0};
	for (size_t i = 0; i < reply->elements && todo->writers < OTHERS_MAX; i++)
		snprintf(todo->writer[todo->writers++], sizeof(todo->writer[0]), "%s",
			reply->element[i]->str);
	silence(op);
}

/* Is nothing on its way that was sent before? */
static bool is_settled(const struct redis_op *op)
{
	uint32_t out = 0;
	for (uint32_t i = 1; i < REDIS_CLAIMS; i++)
		out += atomic_load(&op->shard->store->plain[(op->claims + i) % REDIS_CLAIMS]);
	return out == 0;
}

bool redis_plain_turn(struct redis_shard *shard)
{
	struct redis_op *op, *next;
	bool moved = false;
	for (op = TAILQ_FIRST(&shard->settling); op; op = next) {
		next = TAILQ_NEXT(op, link);
		bool late = peer_now_ns(shard->peer) >= op->until_ns;
		if (!late && !is_settled(op))
			continue;
		TAILQ_REMOVE(&shard->settling, op, link);
		redis_replica_end(op, late ? -ETIMEDOUT : 0, 0);
		moved = true;
	}
	return moved;
}
