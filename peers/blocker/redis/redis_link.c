/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A lane's connection to the server. When it is lost, each request that was under way begins
 * again on the next one, until its time is over; the server hears only the last connection of a
 * lane, so nothing that an earlier one had sent is done after that.
 */
#include <base/clock.h>
#include <base/hash.h>
#include <base/log.h>
#include <base/must.h>
#include <errno.h>
#include <hiredis/adapters/libevent.h>
#include <inttypes.h>
#include <peer/peer.h>
#include <stdlib.h>
#include <string.h>

#include "peers/blocker/redis/redis.h"

#define BACKOFF_MIN_NS 5000000u
#define BACKOFF_MAX_NS 1000000000u
#define ARGS_MAX 16
#define SETTLE_NS 200000u
#define PAUSE_NS 20000000u

static const char *const scripts[REDIS_SCRIPTS] = {
	[REDIS_CHANGE] = REDIS_SCRIPT_CHANGE,
	[REDIS_MAY] = REDIS_SCRIPT_MAY,
	[REDIS_DELETE] = REDIS_SCRIPT_DELETE,
	[REDIS_SWAP] = REDIS_SCRIPT_SWAP,
	[REDIS_CLAIM] = REDIS_SCRIPT_CLAIM,
};

static const struct redis_options *options_of(const struct redis_shard *shard)
{
	return shard->peer->options;
}

static bool begins(const char *text, const char *with)
{
	return strncmp(text, with, strlen(with)) == 0;
}

void redis_link_say(struct redis_shard *shard, int error, const char *text)
{
	peer_count(shard->peer, REDIS_ERRORS, 1);
	if (shard->said != error)
		log_error(REDIS_ROOM, "%s: the server says: %s", shard->peer->name, text);
	shard->said = error;
}

int redis_link_error(struct redis_shard *shard, const redisReply *reply)
{
	static const struct {
		const char *with;
		int error;
	} known[] = {{"SKSTALE", -ESTALE}, {"OOM", -ENOSPC}, {"MISCONF", -ENOSPC},
		{"READONLY", -EROFS}, {"NOPERM", -EACCES}, {"NOAUTH", -EACCES}};
	int error = -EIO;
	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
		if (begins(reply->str, known[i].with))
			error = known[i].error;
	if (error == -ESTALE)
		peer_count(shard->peer, REDIS_FENCED, 1);
	else
		redis_link_say(shard, error, reply->str);
	return error;
}

/* --- losing it ------------------------------------------------------------------------------ */

static void lost(struct redis_shard *shard)
{
	if (shard->state != REDIS_READY)
		redis_cluster_next(shard->store, &shard->node);
	shard->context = NULL;
	shard->state = REDIS_DOWN;
	uint64_t backoff = shard->backoff_ns * 2;
	backoff = backoff < BACKOFF_MIN_NS ? BACKOFF_MIN_NS : backoff;
	shard->backoff_ns = backoff > BACKOFF_MAX_NS ? BACKOFF_MAX_NS : backoff;
	shard->retry_ns = clock_now_ns() + shard->backoff_ns;
}

static void on_disconnect(const redisAsyncContext *context, int status)
{
	struct redis_shard *shard = context->data;
	(void)status;
	if (shard->context == context)
		lost(shard);
}

static void drop(struct redis_shard *shard)
{
	redisAsyncContext *context = shard->context;
	if (!context)
		return;
	lost(shard);
	redisAsyncFree(context);
}

/* --- the greeting --------------------------------------------------------------------------- */

static bool is_about(const redisReply *reply, const char *start)
{
	return reply->type == REDIS_REPLY_ERROR && begins(reply->str, start);
}

/* All that waits waits longer: the server answers, and will have its keys together again. */
static void extend(struct redis_shard *shard)
{
	struct redis_op *op;
	uint64_t now = clock_now_ns();
	shard->pause_ns = now + PAUSE_NS;
	TAILQ_FOREACH (op, &shard->waiting, link)
		op->until_ns = now + options_of(shard)->timeout;
}

/* The store's slot moves, or has moved to another node of the cluster. */
static bool is_cluster(struct redis_shard *shard, const redisReply *reply)
{
	if (reply->type != REDIS_REPLY_ERROR)
		return false;
	if (redis_cluster_is_split(reply->str)) {
		extend(shard);
		return true;
	}
	return redis_cluster_is_elsewhere(reply->str);
}

/* Answers that are none of a script's. */
enum { HELLO = -1, GENERATION = REDIS_SCRIPTS, REPLICATION, SERVER, SLOTS, BEFORE, KILLED, NUMBER };

static void greet(struct redis_shard *shard, intptr_t which, const char *format, ...);

/* What the connection before still had on its way is not done: it ends first. Whoever claims a
   volume finds this one by its number. */
static void greet_connections(struct redis_shard *shard, intptr_t which, const redisReply *reply)
{
	char connections[REDIS_KEY];
	redis_plain_connections(shard, shard->store->own, connections);
	const char *before = which == BEFORE && reply->type == REDIS_REPLY_STRING
				     ? redis_plain_number(reply->str, shard->run)
				     : NULL;
	if (before)
		greet(shard, KILLED, "CLIENT KILL ID %s", before);
	if (which == NUMBER)
		greet(shard, HELLO, "HSET %s %u %s:%lld", connections, shard->peer->shard,
			shard->run, reply->integer);
}

static void greeted(redisAsyncContext *context, void *got, void *which)
{
	struct redis_shard *shard = context->data;
	const redisReply *reply = got;
	intptr_t script = (intptr_t)which - 1;
	if (!reply || shard->context != context)
		return;
	shard->heard_ns = clock_now_ns();
	if (reply->type == REDIS_REPLY_ERROR && script != KILLED) {
		bool moves = is_cluster(shard, reply);
		if (!moves && !is_about(reply, "LOADING"))
			redis_link_say(shard, -EACCES, reply->str);
		drop(shard);
		redis_cluster_moved(shard->store, &shard->node, reply->str);
		return;
	}
	if (script == SERVER)
		redis_replica_field(reply->str, "run_id:", shard->run, sizeof(shard->run));
	if (script == SLOTS)
		redis_cluster_learn(shard->store, reply);
	if (script == REPLICATION &&
		!redis_replica_meet(shard->store, options_of(shard), reply->str)) {
		redis_link_say(shard, -EROFS, "it is a replica");
		drop(shard);
		return;
	}
	if (script >= 0 && script < REDIS_SCRIPTS && reply->len == 40)
		memcpy(shard->sha[script], reply->str, 41);
	greet_connections(shard, script, reply);
	if (script == GENERATION && (reply->type != REDIS_REPLY_STRING ||
					    strcmp(reply->str, shard->store->generation) != 0)) {
		shard->said = 0;
		redis_link_say(shard, -EIO, "nothing of ours: its data is gone, or another's");
		atomic_store(&shard->store->lost, REDIS_GONE);
	}
	if (--shard->greetings > 0)
		return;
	shard->state = REDIS_READY;
	redis_plain_connected(shard);
	shard->backoff_ns = 0;
	shard->said = 0;
}

static void greet(struct redis_shard *shard, intptr_t which, const char *format, ...)
{
	va_list args;
	va_start(args, format);
	if (redisvAsyncCommand(shard->context, greeted, (void *)(which + 1), format, args) == 0)
		shard->greetings++;
	va_end(args);
}

static void on_connect(const redisAsyncContext *context, int status)
{
	struct redis_shard *shard = context->data;
	const struct redis_options *options = options_of(shard);
	if (shard->context != context)
		return;
	if (status != REDIS_OK) {
		lost(shard); /* hiredis frees it */
		return;
	}
	shard->state = REDIS_GREETING;
	shard->greetings = 0;
	snprintf(shard->connection, sizeof(shard->connection), "%016" PRIx64,
		hash_u64(clock_now_ns()));
	if (*shard->store->password && options->user)
		greet(shard, HELLO, "AUTH %s %s", options->user, shard->store->password);
	else if (*shard->store->password)
		greet(shard, HELLO, "AUTH %s", shard->store->password);
	greet(shard, HELLO, "SELECT %d", (int)options->database);
	for (intptr_t i = 0; i < REDIS_SCRIPTS; i++)
		greet(shard, i, "SCRIPT LOAD %s", scripts[i]);
	greet(shard, HELLO, "SET %s:connection:%s:%u %s", shard->store->prefix, shard->store->own,
		shard->peer->shard, shard->connection);
	greet(shard, REPLICATION, "INFO replication");
	greet(shard, GENERATION, "GET %s:generation", shard->store->prefix);
	if (shard->store->cluster)
		greet(shard, SLOTS, "CLUSTER SLOTS");
	greet(shard, SERVER, "INFO server");
	if (shard->store->kills) {
		char connections[REDIS_KEY];
		redis_plain_connections(shard, shard->store->own, connections);
		greet(shard, BEFORE, "HGET %s %u", connections, shard->peer->shard);
		greet(shard, NUMBER, "CLIENT ID");
	}
	redis_plain_forget(shard);
	peer_count(shard->peer, REDIS_RECONNECTS, 1);
}

static void reach(struct redis_shard *shard)
{
	const char *path = redis_cluster_socket(shard->store, options_of(shard));
	shard->node = redis_cluster_node(shard->store);
	shard->heard_ns = clock_now_ns();
	redisAsyncContext *context = path ? redisAsyncConnectUnix(path)
					  : redisAsyncConnect(shard->node.host, shard->node.port);
	if (!context || context->err) {
		if (context)
			redisAsyncFree(context);
		lost(shard);
		return;
	}
	context->data = shard;
	shard->context = context;
	shard->state = REDIS_GREETING;
	redisLibeventAttach(context, peer_event_base(shard->peer));
	redisAsyncSetConnectCallback(context, on_connect);
	redisAsyncSetDisconnectCallback(context, on_disconnect);
}

/* --- sending -------------------------------------------------------------------------------- */

static void answered(redisAsyncContext *context, void *got, void *whose)
{
	struct redis_op *op = whose;
	struct redis_shard *shard = op->shard;
	const redisReply *reply = got;
	(void)context;
	TAILQ_REMOVE(&shard->sent, op, link);
	shard->bytes -= op->bytes;
	if (op->plain)
		redis_plain_ended(op, !reply);
	shard->heard_ns = clock_now_ns();
	bool again = !reply || is_about(reply, "SKCONN") || is_about(reply, "NOSCRIPT") ||
		     is_about(reply, "LOADING") || is_about(reply, "READONLY");
	bool moves = reply && is_cluster(shard, reply);
	bool stays = op->split || (moves && redis_cluster_is_split(reply->str));
	op->split = false;
	if (again || moves || stays) {
		peer_count(shard->peer, REDIS_RETRIES, 1);
		TAILQ_INSERT_TAIL(&shard->waiting, op, link);
		if (stays)
			extend(shard);
		if (reply && !stays && shard->context == context) {
			drop(shard);
			if (moves)
				redis_cluster_moved(shard->store, &shard->node, reply->str);
		}
		return;
	}
	op->reply(op, reply);
}

void redis_link_send(
	struct redis_op *op, redis_reply_f *reply, int argc, const char **argv, const size_t *sizes)
{
	struct redis_shard *shard = op->shard;
	op->reply = reply;
	op->bytes = 0;
	for (int i = 0; i < argc; i++)
		op->bytes += sizes[i];
	if (!shard->context || redisAsyncCommandArgv(shard->context, answered, op, argc, argv,
				       sizes) != REDIS_OK) {
		op->plain = false;
		TAILQ_INSERT_TAIL(&shard->waiting, op, link);
		return;
	}
	if (op->plain)
		redis_plain_sent(op);
	if (TAILQ_EMPTY(&shard->sent) && TAILQ_EMPTY(&shard->unsafe))
		shard->heard_ns = peer_now_ns(shard->peer);
	shard->bytes += op->bytes;
	TAILQ_INSERT_TAIL(&shard->sent, op, link);
}

static void connection_key(const struct redis_shard *shard, char key[REDIS_KEY])
{
	snprintf(key, REDIS_KEY, "%s:connection:%s:%u", shard->store->prefix, shard->store->own,
		shard->peer->shard);
}

void redis_link_script(struct redis_op *op, redis_reply_f *reply, enum redis_script script,
	int keys, int argc, const char **argv, const size_t *sizes)
{
	struct redis_shard *shard = op->shard;
	const char *all[ARGS_MAX] = {"EVALSHA", shard->sha[script]};
	size_t all_sizes[ARGS_MAX] = {7, 40};
	char connection[REDIS_KEY], count[12];
	int n = 0;
	must(argc + 5 <= ARGS_MAX && keys <= argc);
	snprintf(count, sizeof(count), "%d", keys + 1);
	connection_key(shard, connection);
	all[2] = count;
	all[3] = connection;
	all_sizes[2] = strlen(count);
	all_sizes[3] = strlen(connection);
	for (n = 4; n < 4 + keys; n++)
		all[n] = argv[n - 4], all_sizes[n] = sizes[n - 4];
	all[n] = shard->connection;
	all_sizes[n++] = 16;
	for (int i = keys; i < argc; i++, n++)
		all[n] = argv[i], all_sizes[n] = sizes[i];
	redis_link_send(op, reply, n, all, all_sizes);
}

void redis_link_submit(struct redis_op *op)
{
	struct redis_shard *shard = op->shard;
	op->until_ns = peer_now_ns(shard->peer) + options_of(shard)->timeout;
	TAILQ_INSERT_TAIL(&shard->waiting, op, link);
}

/* --- the turn ------------------------------------------------------------------------------- */

static bool is_due(const struct redis_queue *queue, uint64_t now)
{
	const struct redis_op *first = TAILQ_FIRST(queue);
	return first && now >= first->until_ns;
}

/* In a cluster another node may have taken its place. */
static uint64_t silent_at(const struct redis_shard *shard)
{
	bool waits = shard->state == REDIS_GREETING || !TAILQ_EMPTY(&shard->sent) ||
		     !TAILQ_EMPTY(&shard->unsafe);
	if (!shard->store->cluster || !shard->context || !waits)
		return UINT64_MAX;
	return shard->heard_ns + options_of(shard)->timeout / 4;
}

static bool expire(struct redis_shard *shard, uint64_t now)
{
	struct redis_op *op, *next;
	bool moved = false;
	if (now >= silent_at(shard)) {
		redis_cluster_next(shard->store, &shard->node);
		drop(shard);
	}
	if (is_due(&shard->sent, now) || is_due(&shard->unsafe, now))
		drop(shard); /* all that is sent is waiting now */
	for (op = TAILQ_FIRST(&shard->waiting); op; op = next) {
		next = TAILQ_NEXT(op, link);
		if (now < op->until_ns && !atomic_load(&shard->store->lost))
			continue;
		TAILQ_REMOVE(&shard->waiting, op, link);
		moved = true;
		if (now >= op->until_ns)
			redis_link_say(shard, -ETIMEDOUT, "nothing in time");
		redis_op_end(op, now >= op->until_ns ? -ETIMEDOUT : -EIO, 0);
	}
	return moved;
}

bool redis_link_turn(struct redis_shard *shard)
{
	uint64_t now = peer_now_ns(shard->peer);
	bool moved = expire(shard, now);
	moved |= redis_plain_turn(shard);
	if (shard->state == REDIS_DOWN && now >= shard->retry_ns)
		reach(shard);
	while (shard->state == REDIS_READY && !TAILQ_EMPTY(&shard->waiting) &&
		now >= shard->pause_ns && (shard->bytes < options_of(shard)->window)) {
		struct redis_op *op = TAILQ_FIRST(&shard->waiting);
		TAILQ_REMOVE(&shard->waiting, op, link);
		op->begin(op);
		moved = true;
	}
	return moved;
}

void redis_link_wake(struct redis_shard *shard)
{
	const struct redis_op *op = TAILQ_FIRST(&shard->sent);
	if (op)
		peer_wake_at(shard->peer, op->until_ns);
	op = TAILQ_FIRST(&shard->unsafe);
	if (op)
		peer_wake_at(shard->peer, op->until_ns);
	op = TAILQ_FIRST(&shard->waiting);
	if (op)
		peer_wake_at(shard->peer, op->until_ns);
	if (op && shard->pause_ns > clock_now_ns())
		peer_wake_at(shard->peer, shard->pause_ns);
	if (silent_at(shard) != UINT64_MAX)
		peer_wake_at(shard->peer, silent_at(shard));
	if (shard->state == REDIS_DOWN)
		peer_wake_at(shard->peer, shard->retry_ns);
	if (!TAILQ_EMPTY(&shard->settling))
		peer_wake_at(shard->peer, clock_now_ns() + SETTLE_NS);
}

void redis_link_start(struct redis_shard *shard)
{
	TAILQ_INIT(&shard->waiting);
	TAILQ_INIT(&shard->sent);
	TAILQ_INIT(&shard->settling);
	TAILQ_INIT(&shard->unsafe);
	must(shard->known = calloc(REDIS_KNOWN, sizeof(*shard->known)));
	reach(shard);
}

void redis_link_stop(struct redis_shard *shard)
{
	drop(shard);
	free(shard->known);
}
