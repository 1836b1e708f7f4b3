/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A cluster. All keys of a store have its prefix as their hash tag, so they lie in one slot, and
 * scripts may touch any of them; the node that has the slot is found by what the others answer, and
 * searched among all that are known when it is silent. While the slot moves to another node,
 * requests wait: its keys are on both.
 */
#include <stdlib.h>
#include <string.h>

#include "peers/blocker/redis/redis.h"

static bool begins(const char *text, const char *with)
{
	return strncmp(text, with, strlen(with)) == 0;
}

bool redis_cluster_is_split(const char *error)
{
	return begins(error, "ASK ") || begins(error, "TRYAGAIN");
}

bool redis_cluster_is_elsewhere(const char *error)
{
	return begins(error, "MOVED ") || begins(error, "CLUSTERDOWN");
}

/* --- the nodes -------------------------------------------------------------------------------- */

static bool is_same(const struct redis_node *a, const struct redis_node *b)
{
	return a->port == b->port && strcmp(a->host, b->host) == 0;
}

/* HOST:PORT; an IPv6 address has colons, too. No host: the one that is asked. */
static bool parse(
	const char *text, size_t length, const struct redis_node *asked, struct redis_node *node)
{
	size_t colon = length;
	while (colon > 0 && text[colon - 1] != ':')
		colon--;
	if (colon == 0 || colon > sizeof(node->host))
		return false;
	*node = (struct redis_node){.port = atoi(text + colon)};
	memcpy(node->host, text, colon - 1);
	if (colon == 1)
		memcpy(node->host, asked->host, sizeof(node->host));
	return node->port > 0;
}

static void add(struct redis_store *store, const struct redis_node *node)
{
	for (unsigned i = 0; i < store->nodes; i++)
		if (is_same(&store->node[i], node))
			return;
	if (store->nodes < REDIS_NODES)
		store->node[store->nodes++] = *node;
}

bool redis_cluster_start(
	struct redis_store *store, const struct redis_options *options, const char **bad)
{
	store->node[0].port = (int)options->port;
	snprintf(store->node[0].host, sizeof(store->node[0].host), "%s", options->host);
	store->nodes = 1;
	for (const char *at = options->nodes; at && *at; at += strspn(at, " ")) {
		struct redis_node node;
		size_t length = strcspn(at, " ");
		*bad = at;
		if (!parse(at, length, &store->node[0], &node))
			return false;
		add(store, &node);
		at += length;
	}
	return true;
}

struct redis_node redis_cluster_node(struct redis_store *store)
{
	pthread_mutex_lock(&store->lock);
	struct redis_node node = store->node[store->current];
	pthread_mutex_unlock(&store->lock);
	return node;
}

const char *redis_cluster_socket(struct redis_store *store, const struct redis_options *options)
{
	struct redis_node node = redis_cluster_node(store);
	if (store->tunnel)
		return redis_tunnel_path(store->tunnel);
	return is_same(&node, &store->node[0]) ? options->socket : NULL;
}

void redis_cluster_next(struct redis_store *store, const struct redis_node *silent)
{
	pthread_mutex_lock(&store->lock);
	if (is_same(&store->node[store->current], silent)) /* another lane may have gone on */
		store->current = (store->current + 1) % store->nodes;
	pthread_mutex_unlock(&store->lock);
}

void redis_cluster_moved(
	struct redis_store *store, const struct redis_node *asked, const char *error)
{
	struct redis_node node;
	const char *slot = strchr(error, ' '), *place = slot ? strchr(slot + 1, ' ') : NULL;
	if (!begins(error, "MOVED ") || !place ||
		!parse(place + 1, strlen(place + 1), asked, &node))
		return;
	pthread_mutex_lock(&store->lock);
	add(store, &node);
	for (unsigned i = 0; i < store->nodes; i++)
		if (is_same(&store->node[i], &node))
			store->current = i;
	pthread_mutex_unlock(&store->lock);
}

static void learn_node(struct redis_store *store, const redisReply *reply)
{
	struct redis_node node = {0};
	if (reply->type != REDIS_REPLY_ARRAY || reply->elements < 2 ||
		reply->element[0]->type != REDIS_REPLY_STRING || reply->element[0]->len == 0)
		return;
	snprintf(node.host, sizeof(node.host), "%s", reply->element[0]->str);
	node.port = (int)reply->element[1]->integer;
	add(store, &node);
}

void redis_cluster_learn(struct redis_store *store, const redisReply *reply)
{
	if (reply->type != REDIS_REPLY_ARRAY)
		return;
	pthread_mutex_lock(&store->lock);
	for (size_t i = 0; i < reply->elements; i++) {
		const redisReply *range = reply->element[i];
		for (size_t j = 2; range->type == REDIS_REPLY_ARRAY && j < range->elements; j++)
			learn_node(store, range->element[j]);
	}
	pthread_mutex_unlock(&store->lock);
}
