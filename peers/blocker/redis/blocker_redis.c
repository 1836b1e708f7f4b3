/* SPDX-License-Identifier: Apache-2.0 */
/* The Redis blocker: objects as strings of a Redis server. */
#include <base/clock.h>
#include <base/log.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <unistd.h>
#include <xseg/layout.h>

#include "peers/blocker/home.h"
#include "peers/blocker/redis/redis.h"

static const char *const flush_choices[] = {"always", "memory", NULL};

static const struct peer_option redis_options[] = {
	OPTION_TEXT(struct redis_options, socket, "socket",
		.help = "the server's UNIX socket; host and port otherwise"),
	OPTION_TEXT(struct redis_options, host, "host", .initial = "127.0.0.1",
		.help = "address of the server"),
	OPTION_COUNT(struct redis_options, port, "port", .min = 1, .max = 65535, .initial = "6379",
		.help = "its port"),
	OPTION_COUNT(struct redis_options, database, "database", .max = 1000000, .initial = "0",
		.help = "its database"),
	OPTION_TEXT(struct redis_options, prefix, "prefix", .initial = "skerry",
		.max = REDIS_PREFIX,
		.help = "first part of all keys: stores in one database are kept apart by it"),
	OPTION_TEXT(struct redis_options, nodes, "nodes",
		.help = "more nodes of a cluster, as HOST:PORT HOST:PORT: asked when host does not "
			"answer; of a cluster that is reached it learns the others by itself"),
	OPTION_TEXT(struct redis_options, user, "user", .max = 128,
		.help = "user of the server's access lists"),
	OPTION_TEXT(struct redis_options, password_file, "password-file",
		.help = "file whose first line is the password"),
	OPTION_BOOL(struct redis_options, tls, "tls", .initial = "no",
		.help = "speak TLS to host and port; the server is known by its certificate"),
	OPTION_TEXT(struct redis_options, tls_ca, "tls-ca",
		.help = "certificates (PEM) of who signs for the server; else the system's"),
	OPTION_TEXT(struct redis_options, tls_cert, "tls-cert",
		.help = "certificate (PEM) that the server asks of its clients"),
	OPTION_TEXT(struct redis_options, tls_key, "tls-key", .help = "its private key (PEM)"),
	OPTION_TEXT(struct redis_options, tls_name, "tls-name",
		.help = "name in the server's certificate, when that is not host"),
	OPTION_CHOICE(struct redis_options, flush, "flush", .choices = flush_choices,
		.initial = "always",
		.help = "always: the server has each write on its disk when it answers, or is "
			"refused; memory: a flush promises nothing"),
	OPTION_COUNT(struct redis_options, replicas, "replicas", .max = 16, .initial = "0",
		.help = "a change is answered when so many replicas have it, too (WAIT); 0: a "
			"replica that takes the server's place is not served"),
	OPTION_TIME(struct redis_options, timeout, "timeout", .min = 100000000, .initial = "30s",
		.help = "a request that the server does not answer for so long fails: ETIMEDOUT"),
	OPTION_SIZE(struct redis_options, window, "window", .min = 4096, .initial = "1M",
		.unit = "bytes", .help = "under way to the server at once, from each lane"),
	OPTION_END,
};

static const struct xseg_counter redis_counters[] = {
	[REDIS_MAKES] = {"makes", "", "objects made"},
	[REDIS_FENCED] = {"fenced", "", "writes refused because another host has the volume"},
	[REDIS_RECONNECTS] = {"reconnects", "", "connections made"},
	[REDIS_RETRIES] = {"retries", "", "commands sent again on another connection"},
	[REDIS_ERRORS] = {"errors", "", "requests that the server failed"},
	[REDIS_COUNTERS] = {NULL, NULL, NULL},
};

/* --- what the server must be ------------------------------------------------------------------ */

static int read_password(struct redis_store *store, const char *path, char *why, size_t why_size)
{
	int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
	if (!path)
		return 0;
	ssize_t size = fd < 0 ? -1 : read(fd, store->password, sizeof(store->password) - 1);
	int error = size < 0 ? -errno : 0;
	if (fd >= 0)
		close(fd);
	if (error)
		snprintf(why, why_size, "password-file: '%s': %s", path, strerror(-error));
	else
		store->password[strcspn(store->password, "\r\n")] = 0;
	return error;
}

/* A command whose answer is an error or not what it is to be: a sentence of the server's. */
static int ask(redisContext *context, redisReply **reply, char *why, size_t why_size,
	const char *format, ...)
{
	va_list args;
	va_start(args, format);
	*reply = redisvCommand(context, format, args);
	va_end(args);
	if (*reply && (*reply)->type != REDIS_REPLY_ERROR)
		return 0;
	snprintf(why, why_size, "the server says: %s", *reply ? (*reply)->str : context->errstr);
	bool waits = *reply && (redis_cluster_is_split((*reply)->str) ||
				       redis_cluster_is_elsewhere((*reply)->str));
	if (*reply)
		freeReplyObject(*reply);
	*reply = NULL;
	return waits ? -EAGAIN : -EACCES;
}

static int ask_only(redisContext *context, char *why, size_t why_size, const char *a, const char *b,
	const char *c)
{
	redisReply *reply;
	int error = c ? ask(context, &reply, why, why_size, "%s %s %s", a, b, c)
		      : ask(context, &reply, why, why_size, "%s %s", a, b);
	if (!error)
		freeReplyObject(reply);
	return error;
}

/* May not be told: then it is not what is wanted. */
static bool is_set(redisContext *context, const char *what, const char *to)
{
	redisReply *reply = redisCommand(context, "CONFIG GET %s", what);
	bool good = reply && reply->type == REDIS_REPLY_ARRAY && reply->elements == 2 &&
		    strcmp(reply->element[1]->str, to) == 0;
	if (reply)
		freeReplyObject(reply);
	return good;
}

/* In a cluster the keys have the prefix as their hash tag, and this node must be the one that has
   its slot; -EAGAIN: another one has, and is the current one. */
static int find_slot(redisContext *context, struct redis_store *store,
	const struct redis_options *options, char *why, size_t why_size)
{
	struct redis_node node = redis_cluster_node(store);
	snprintf(store->prefix, sizeof(store->prefix), store->cluster ? "{%s}" : "%s",
		options->prefix);
	if (!store->cluster)
		return 0;
	if (strpbrk(options->prefix, "{}")) {
		snprintf(why, why_size, "prefix: '%s': no braces in a cluster", options->prefix);
		return -EINVAL;
	}
	redisReply *reply = redisCommand(context, "GET %s:generation", store->prefix);
	if (!reply || reply->type != REDIS_REPLY_ERROR) {
		freeReplyObject(reply);
		return 0; /* what is wrong is said by the next one */
	}
	snprintf(why, why_size, "the server says: %s", reply->str);
	redis_cluster_moved(store, &node, reply->str);
	freeReplyObject(reply);
	return -EAGAIN;
}

static int check_server(redisContext *context, struct redis_store *store,
	const struct redis_options *options, char *why, size_t why_size)
{
	redisReply *reply;
	int error = ask(context, &reply, why, why_size, "INFO cluster");
	if (error)
		return error;
	store->cluster = strstr(reply->str, "cluster_enabled:1");
	freeReplyObject(reply);
	error = find_slot(context, store, options, why, why_size);
	if (error)
		return error;
	error = ask(context, &reply, why, why_size, "INFO replication");
	if (error)
		return error;
	bool master = redis_replica_meet(store, options, reply->str);
	unsigned replicas = redis_replica_count(reply->str);
	freeReplyObject(reply);
	if (!master) {
		snprintf(why, why_size, "the server is a replica: serve its master");
		return -EROFS;
	}
	if (replicas < options->replicas)
		log_warning(REDIS_ROOM,
			"the server has %u of %u replicas: what is written waits for them",
			replicas, (unsigned)options->replicas);
	if (!is_set(context, "maxmemory-policy", "noeviction")) {
		snprintf(why, why_size,
			"the server may throw data away: it needs maxmemory-policy noeviction");
		return -EINVAL;
	}
	if (options->flush == REDIS_FLUSH_ALWAYS &&
		(!is_set(context, "appendonly", "yes") ||
			!is_set(context, "appendfsync", "always"))) {
		snprintf(why, why_size,
			"flush: 'always' needs a server with appendonly yes and appendfsync "
			"always; "
			"flush=memory promises nothing");
		return -EINVAL;
	}
	return 0;
}

/* The first to come makes one. What is there later tells whether the data is still there. */
static int learn_generation(
	redisContext *context, struct redis_store *store, char *why, size_t why_size)
{
	char text[HOME_IDENTITY];
	redisReply *reply;
	if (home_random(text))
		return -EIO;
	int error =
		ask(context, &reply, why, why_size, "SET %s:generation %s NX", store->prefix, text);
	if (error)
		return error;
	freeReplyObject(reply);
	error = ask(context, &reply, why, why_size, "GET %s:generation", store->prefix);
	if (error)
		return error;
	snprintf(store->generation, sizeof(store->generation), "%s",
		reply->type == REDIS_REPLY_STRING ? reply->str : "");
	freeReplyObject(reply);
	return 0;
}

/* What our ancestors still have on its way, from any lane, is not heard any more; who wrote without
   a script is cut off. */
static int silence_plain(
	redisContext *context, struct redis_store *store, char *why, size_t why_size)
{
	char run[REDIS_RUN];
	/* nobody has that number: the answer is how many have ended */
	redisReply *reply = redisCommand(context, "CLIENT KILL ID %lld", (long long)INT64_MAX);
	store->kills = reply && reply->type == REDIS_REPLY_INTEGER;
	if (reply)
		freeReplyObject(reply);
	if (!store->kills)
		return 0;
	int error = ask(context, &reply, why, why_size, "INFO server");
	if (error)
		return error;
	redis_replica_field(reply->str, "run_id:", run, sizeof(run));
	freeReplyObject(reply);
	error = ask(context, &reply, why, why_size, "HVALS %s:connections:%s", store->prefix,
		store->own);
	if (error)
		return error;
	for (size_t i = 0; i < reply->elements; i++) {
		const char *id = redis_plain_number(reply->element[i]->str, run);
		redisReply *killed = id ? redisCommand(context, "CLIENT KILL ID %s", id) : NULL;
		if (killed)
			freeReplyObject(killed);
	}
	freeReplyObject(reply);
	error = ask(
		context, &reply, why, why_size, "DEL %s:connections:%s", store->prefix, store->own);
	if (!error)
		freeReplyObject(reply);
	return error;
}

static int silence(
	redisContext *context, const struct redis_store *store, char *why, size_t why_size)
{
	int error = 0;
	for (unsigned lane = 0; lane < XSEG_PORT_LANES_MAX && !error; lane++) {
		redisReply *reply;
		error = ask(context, &reply, why, why_size, "DEL %s:connection:%s:%u",
			store->prefix, store->own, lane);
		if (!error)
			freeReplyObject(reply);
	}
	return error;
}

static int meet(redisContext *context, struct redis_store *store,
	const struct redis_options *options, char *why, size_t why_size)
{
	char database[24];
	int error = 0;
	snprintf(database, sizeof(database), "%" PRIu64, options->database);
	if (*store->password)
		error = options->user
				? ask_only(context, why, why_size, "AUTH", options->user,
					  store->password)
				: ask_only(context, why, why_size, "AUTH", store->password, NULL);
	error = error ? error : ask_only(context, why, why_size, "SELECT", database, NULL);
	error = error ? error : check_server(context, store, options, why, why_size);
	error = error ? error : silence(context, store, why, why_size);
	error = error ? error : silence_plain(context, store, why, why_size);
	return error ? error : learn_generation(context, store, why, why_size);
}

static int check_options(
	struct redis_store *store, const struct redis_options *options, char *why, size_t why_size)
{
	const char *text = NULL;
	bool any = options->tls_ca || options->tls_cert || options->tls_key || options->tls_name;
	if (options->tls && options->socket)
		text = "tls=yes is for host and port, not for socket";
	else if (any && !options->tls)
		text = "tls-ca, tls-cert, tls-key and tls-name need tls=yes";
	else if (!options->tls_cert != !options->tls_key)
		text = "tls-cert and tls-key need each other";
	else if (!redis_cluster_start(store, options, &text)) {
		snprintf(why, why_size, "nodes: '%s': not HOST:PORT", text);
		return -EINVAL;
	} else
		text = NULL;
	if (text)
		snprintf(why, why_size, "%s", text);
	return text ? -EINVAL : 0;
}

static int open_tunnel(struct peer *first, char *why, size_t why_size)
{
	char path[PATH_LENGTH_MAX], leaf[NAME_LENGTH_MAX + 8];
	struct redis_store *store = first->shared;
	const struct redis_options *options = first->options;
	const char *segment = peer_segment(first)->name;
	if (!options->tls)
		return 0;
	snprintf(leaf, sizeof(leaf), "tls.%s", first->name);
	int error = path_run(path, segment, NULL);
	error = error ? error : path_make_dir(path);
	error = error ? error : path_run(path, segment, leaf);
	if (error) {
		snprintf(why, why_size, "'%s': %s", path, strerror(-error));
		return error;
	}
	store->tunnel = redis_tunnel_open(store, options, path, why, why_size);
	return store->tunnel ? 0 : -EINVAL;
}

static void explain(const struct redis_store *store, const struct redis_options *options, char *why,
	size_t why_size)
{
	char reason[256] = "";
	if (store->tunnel)
		redis_tunnel_reason(store->tunnel, reason, sizeof(reason));
	if (*reason)
		snprintf(why, why_size, "host: TLS with '%s': %s", options->host, reason);
}

static redisContext *connect_to(struct redis_store *store, const struct redis_options *options,
	const struct redis_node *node, char *why, size_t why_size)
{
	const char *path = redis_cluster_socket(store, options);
	struct timeval timeout = {.tv_sec = (time_t)(options->timeout / 1000000000u),
		.tv_usec = (suseconds_t)(options->timeout % 1000000000u / 1000)};
	redisContext *context = path ? redisConnectUnixWithTimeout(path, timeout)
				     : redisConnectWithTimeout(node->host, node->port, timeout);
	if (context && !context->err) {
		redisSetTimeout(context, timeout);
		return context;
	}
	bool unix_socket = path && !store->tunnel;
	snprintf(why, why_size, "%s: '%s' does not answer: %s", unix_socket ? "socket" : "host",
		unix_socket ? path : node->host, context ? context->errstr : "out of memory");
	redisFree(context);
	return NULL;
}

/* One node: -EAGAIN: another one is to be asked, or the same one later. */
static int reach_node(struct peer *first, char *why, size_t why_size)
{
	struct redis_store *store = first->shared;
	struct redis_node node = redis_cluster_node(store);
	redisContext *context = connect_to(store, first->options, &node, why, why_size);
	int error = context ? meet(context, store, first->options, why, why_size) : -ECONNREFUSED;
	if (error && context && error != -EAGAIN)
		explain(store, first->options, why, why_size);
	bool silent = !context || context->err;
	redisFree(context);
	if (!silent)
		return error;
	redis_cluster_next(store, &node);
	return store->nodes > 1 ? -EAGAIN : error;
}

static int reach(struct peer *first, char *why, size_t why_size)
{
	const struct redis_options *options = first->options;
	struct redis_store *store = first->shared;
	uint64_t until = clock_now_ns() + options->timeout;
	char place[512];
	snprintf(place, sizeof(place), "%s:%" PRIu64 "/%" PRIu64 "/%s",
		options->socket ? options->socket : options->host, options->port, options->database,
		options->prefix);
	int error = reach_node(first, why, why_size);
	while (error == -EAGAIN && clock_now_ns() < until) {
		usleep(10000);
		error = reach_node(first, why, why_size);
	}
	return error ? error
		     : home_check(first, place, store->generation, store->home, why, why_size);
}

static int redis_open(struct peer *first, char *why, size_t why_size)
{
	const struct redis_options *options = first->options;
	struct redis_store *store = first->shared;
	snprintf(store->own, sizeof(store->own), "%016" PRIx64, home_writer(first));
	pthread_mutex_init(&store->lock, NULL);
	int error = check_options(store, options, why, why_size);
	error = error ? error : read_password(store, options->password_file, why, why_size);
	error = error ? error : open_tunnel(first, why, why_size);
	error = error ? error : reach(first, why, why_size);
	if (error)
		redis_tunnel_close(store->tunnel);
	return error;
}

/* --- the peer --------------------------------------------------------------------------------- */

static int redis_start(struct peer *peer, char *why, size_t why_size)
{
	struct redis_shard *shard = peer->state;
	(void)why;
	(void)why_size;
	shard->peer = peer;
	shard->store = peer->shared;
	redis_link_start(shard);
	return 0;
}

static void redis_close(struct peer *first)
{
	const struct redis_store *store = first->shared;
	unlink(store->home);
	redis_tunnel_close(store->tunnel);
}

static void redis_finish(struct peer *peer) { redis_link_stop(peer->state); }

static bool redis_poll(struct peer *peer) { return redis_link_turn(peer->state); }

static bool redis_sleep(struct peer *peer)
{
	/* the event loop may have made room since it was polled */
	bool moved = redis_link_turn(peer->state);
	redis_link_wake(peer->state);
	return !moved;
}

static void redis_flush(struct peer *peer, struct job *job)
{
	/* an answered write is where flush= says already */
	(void)peer;
	job_complete(job, 0);
}

static const struct peer_ops redis_ops = {
	.name = "blocker_redis",
	.summary = "objects in a Redis server",
	.serves = "store",
	.description =
		"Any number of hosts may serve one server: who claims a volume ends the "
		"connections of those who wrote to it before, for which its user needs *CLIENT "
		"KILL*. A server that comes back without its data is noticed, and answered EIO "
		"for.\n",
	.options = redis_options,
	.options_size = sizeof(struct redis_options),
	.counters = redis_counters,
	.state_size = sizeof(struct redis_shard),
	.shared_size = sizeof(struct redis_store),
	.open = redis_open,
	.close = redis_close,
	.start = redis_start,
	.finish = redis_finish,
	.poll = redis_poll,
	.sleep = redis_sleep,
	.on = {[XSEG_OP_READ] = redis_op_take,
		[XSEG_OP_WRITE] = redis_op_take,
		[XSEG_OP_ZERO] = redis_op_take,
		[XSEG_OP_DISCARD] = redis_op_take,
		[XSEG_OP_STATUS] = redis_op_take,
		[XSEG_OP_COPY] = redis_op_take,
		[XSEG_OP_DELETE] = redis_op_take,
		[XSEG_OP_CAS] = redis_op_take,
		[XSEG_OP_INFO] = redis_op_take,
		[XSEG_OP_LIST] = redis_op_take,
		[XSEG_OP_CONTROL] = redis_op_take,
		[XSEG_OP_FLUSH] = redis_flush,
		[XSEG_OP_PREFETCH] = redis_flush},
};
PEER_MODULE(redis_ops);
