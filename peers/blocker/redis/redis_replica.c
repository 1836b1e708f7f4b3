/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Replicas. Redis answers a write before they have it. With replicas=N what changes something is
 * answered when so many have it: one WAIT for all that was done before it. Without, a replica that
 * has taken the server's place may lack what was answered: nothing is read from it.
 */
#include <base/clock.h>
#include <base/log.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "peers/blocker/redis/redis.h"

#define WAIT_MS "500"

static uint64_t wanted(const struct redis_shard *shard)
{
	const struct redis_options *options = shard->peer->options;
	return options->replicas;
}

/* --- whose place it has taken ----------------------------------------------------------------- */

void redis_replica_field(const char *info, const char *word, char *text, size_t size)
{
	const char *at = strstr(info, word);
	size_t length = at ? strcspn(at + strlen(word), "\r\n") : 0;
	snprintf(text, size, "%.*s", (int)length, at ? at + strlen(word) : "");
}

/* Each history of data has a name; a server that was promoted knows the one that it goes on with,
   and one that was restarted does not. */
bool redis_replica_meet(
	struct redis_store *store, const struct redis_options *options, const char *info)
{
	char role[16], history[41], before[41];
	redis_replica_field(info, "role:", role, sizeof(role));
	redis_replica_field(info, "master_replid:", history, sizeof(history));
	redis_replica_field(info, "master_replid2:", before, sizeof(before));
	if (strcmp(role, "master") != 0)
		return false;
	pthread_mutex_lock(&store->lock);
	bool promoted = *store->history && strcmp(history, store->history) != 0 &&
			strspn(before, "0") < strlen(before);
	/* in a cluster the slot may have moved to one that was promoted long ago; a server takes
	   another name when its first replica comes */
	if (store->cluster && store->named)
		promoted = promoted && strcmp(before, store->history) == 0;
	store->named = strstr(info, "repl_backlog_active:1") != NULL;
	if (promoted && options->replicas == 0) {
		log_error(REDIS_ROOM, "a replica has taken the server's place: what was written "
				      "last may be missing; start this peer anew to go on with "
				      "what is there");
		atomic_store(&store->lost, REDIS_PROMOTED);
	}
	memcpy(store->history, history, sizeof(history));
	pthread_mutex_unlock(&store->lock);
	if (promoted && options->replicas > 0)
		log_info(REDIS_ROOM, "a replica has taken the server's place");
	return true;
}

unsigned redis_replica_count(const char *info)
{
	char count[16];
	redis_replica_field(info, "connected_slaves:", count, sizeof(count));
	return (unsigned)strtoul(count, NULL, 10);
}

/* --- waiting for them ------------------------------------------------------------------------- */

static void ask(struct redis_shard *shard);

static void all_begin_again(struct redis_shard *shard)
{
	struct redis_op *op;
	while ((op = TAILQ_FIRST(&shard->unsafe)) != NULL) {
		TAILQ_REMOVE(&shard->unsafe, op, link);
		TAILQ_INSERT_TAIL(&shard->waiting, op, link);
	}
}

static void end_awaited(struct redis_shard *shard, int error)
{
	struct redis_op *op;
	while ((op = TAILQ_FIRST(&shard->unsafe)) != NULL && op->awaited) {
		TAILQ_REMOVE(&shard->unsafe, op, link);
		redis_op_end(op, error ? error : op->answer, op->version);
	}
}

static void answered(redisAsyncContext *context, void *got, void *whose)
{
	struct redis_shard *shard = whose;
	const redisReply *reply = got;
	(void)context;
	shard->asks = false;
	shard->heard_ns = clock_now_ns();
	if (!reply) {
		all_begin_again(shard);
		return;
	}
	if (reply->type == REDIS_REPLY_ERROR)
		end_awaited(shard, redis_link_error(shard, reply));
	else if ((uint64_t)reply->integer >= wanted(shard))
		end_awaited(shard, 0);
	else
		redis_link_say(shard, -EAGAIN, "too few replicas have it; see replicas=");
	if (!TAILQ_EMPTY(&shard->unsafe))
		ask(shard);
}

static void ask(struct redis_shard *shard)
{
	struct redis_op *op;
	if (!shard->context || redisAsyncCommand(shard->context, answered, shard,
				       "WAIT %u " WAIT_MS, (unsigned)wanted(shard)) != REDIS_OK) {
		all_begin_again(shard);
		return;
	}
	shard->asks = true;
	TAILQ_FOREACH (op, &shard->unsafe, link)
		op->awaited = true;
}

void redis_replica_end(struct redis_op *op, int answer, uint64_t version)
{
	struct redis_shard *shard = op->shard;
	if (wanted(shard) == 0 || answer < 0) {
		redis_op_end(op, answer, version);
		return;
	}
	op->answer = answer;
	op->version = version;
	op->awaited = false;
	TAILQ_INSERT_TAIL(&shard->unsafe, op, link);
	if (!shard->asks)
		ask(shard);
}
