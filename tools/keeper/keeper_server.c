/* SPDX-License-Identifier: Apache-2.0 */
/* The keeper's control socket: takes lines, checks who asks, gives answers. */
#include <base/log.h>
#include <base/must.h>
#include <errno.h>
#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/listener.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "tools/keeper/keeper.h"
#include "tools/keeper/keeper_job.h"
#include "tools/report/rpc.h"

/* Requests taken from one client before others have their turn. */
#define TURN_MESSAGES 8

struct keeper_client {
	struct keeper *keeper;
	struct bufferevent *stream;
	LIST_ENTRY(keeper_client) link;
	bool closing; /* when its last answer is out */
};

struct keeper_server {
	struct evconnlistener *listener;
	LIST_HEAD(, keeper_client) clients;
	unsigned count;
};

/* --- answers ---------------------------------------------------------------------------- */

static void client_free(struct keeper_client *client)
{
	struct keeper *keeper = client->keeper;
	if (keeper->operation.client == client)
		keeper->operation.client = NULL;
	LIST_REMOVE(client, link);
	keeper->server->count--;
	bufferevent_free(client->stream);
	free(client);
}

static void send_json(struct keeper_client *client, json_t *message)
{
	static const char unsaid[] = "{\"jsonrpc\":\"2.0\",\"id\":null,\"error\":{\"code\":-32603,"
				     "\"message\":\"the answer cannot be said in JSON\"}}";
	/* a text that is no UTF-8, from a log or a name: no reason to end */
	char *text = message ? json_dumps(message, JSON_COMPACT) : NULL;
	json_decref(message);
	struct evbuffer *out = bufferevent_get_output(client->stream);
	evbuffer_add(out, text ? text : unsaid, strlen(text ? text : unsaid));
	evbuffer_add(out, "\n", 1);
	free(text);
}

static void send_result(struct keeper_client *client, const json_t *id, json_t *result)
{
	send_json(
		client, json_pack("{s:s, s:O, s:o}", "jsonrpc", "2.0", "id", id, "result", result));
}

static void send_fault(
	struct keeper_client *client, json_t *id, const struct fault *fault, int code)
{
	json_t *error = json_pack("{s:i, s:s, s:o}", "code", code, "message", fault->message,
		"data", fault_to_json(fault));
	send_json(client, json_pack("{s:s, s:o, s:o}", "jsonrpc", "2.0", "id",
				  id ? json_incref(id) : json_null(), "error", error));
}

void keeper_server_finish(struct keeper *keeper, json_t *result, const struct fault *fault)
{
	struct keeper_client *client = keeper->operation.client;
	json_t *id = keeper->operation.id;
	must(!result != !fault);
	keeper_job_end(keeper, result, fault);
	memset(&keeper->operation, 0, sizeof(keeper->operation));
	if (client && id && fault)
		send_fault(client, id, fault, RPC_APPLICATION);
	else if (client && id)
		send_result(client, id, json_incref(result));
	json_decref(result);
	json_decref(id);
}

/* --- requests --------------------------------------------------------------------------- */

static void answer(struct keeper_client *client, const json_t *request)
{
	struct fault fault = {0};
	json_t *result = NULL, *id = json_object_get(request, "id");
	int code, rc = keeper_call(client->keeper, client, request, &result, &fault, &code);
	bool asked = id || code == RPC_INVALID_REQUEST; /* without id nobody wants to know */
	if (rc == KEEPER_LATER)
		return;
	if (rc < 0 && asked)
		send_fault(client, code == RPC_INVALID_REQUEST ? NULL : id, &fault, code);
	else if (rc == 0 && asked)
		send_result(client, id, json_incref(result));
	json_decref(result);
}

static void take_line(struct keeper_client *client, const char *line, size_t length)
{
	struct fault fault = {0};
	json_error_t error;
	json_t *request = json_loadb(line, length, JSON_REJECT_DUPLICATES, &error);
	if (!request) {
		fault_set(&fault, FAULT_USAGE, NULL, NULL, "not JSON: %s", error.text);
		send_fault(client, NULL, &fault, RPC_PARSE);
		return;
	}
	if (!json_is_object(request)) {
		fault_set(&fault, FAULT_USAGE, NULL, NULL, "a message is an object; no batches");
		send_fault(client, NULL, &fault, RPC_INVALID_REQUEST);
	} else {
		answer(client, request);
	}
	json_decref(request);
}

static void refuse(struct keeper_client *client, enum fault_code code, const char *text)
{
	struct fault fault = {0};
	fault_set(&fault, code, NULL, NULL, "%s", text);
	send_fault(client, NULL, &fault, RPC_INVALID_REQUEST);
	client->closing = true;
	bufferevent_disable(client->stream, EV_READ);
}

static void on_read(struct bufferevent *stream, void *context)
{
	struct keeper_client *client = context;
	struct evbuffer *in = bufferevent_get_input(stream), *out = bufferevent_get_output(stream);
	for (int i = 0; !client->closing; i++) {
		size_t length;
		if (evbuffer_get_length(out) > RPC_OUTPUT_MAX)
			return; /* on_write comes back to it */
		if (i == TURN_MESSAGES) {
			bufferevent_trigger(stream, EV_READ, BEV_TRIG_DEFER_CALLBACKS);
			return;
		}
		char *line = evbuffer_readln(in, &length, EVBUFFER_EOL_LF);
		if (!line)
			break;
		if (length > RPC_MESSAGE_MAX)
			refuse(client, FAULT_USAGE, "the message is too long");
		else
			take_line(client, line, length);
		free(line);
	}
	if (!client->closing && evbuffer_get_length(in) > RPC_MESSAGE_MAX)
		refuse(client, FAULT_USAGE, "the message is too long");
}

/* Everything is out. */
static void on_write(struct bufferevent *stream, void *context)
{
	struct keeper_client *client = context;
	if (client->closing)
		client_free(client);
	else if (evbuffer_get_length(bufferevent_get_input(stream)))
		on_read(stream, client);
}

/* Who waits for an operation to end may be silent as long as it takes. */
static void on_event(struct bufferevent *stream, short what, void *context)
{
	struct keeper_client *client = context;
	bool waits = client->keeper->operation.client == client;
	if ((what & BEV_EVENT_TIMEOUT) && (what & BEV_EVENT_READING) && waits) {
		bufferevent_enable(stream, EV_READ);
		return;
	}
	client_free(client);
}

/* --- who asks --------------------------------------------------------------------------- */

/* Ours, or the one that the pipeline names. */
static bool group_may(const struct keeper *keeper, gid_t group)
{
	gid_t named;
	return group == getegid() ||
	       (keeper->pipeline.socket_group &&
		       !pipeline_group(keeper->pipeline.socket_group, &named) && group == named);
}

/* A member by one of its further groups, as those who were added to it are. */
static bool in_such_group(const struct keeper *keeper, int fd)
{
	gid_t groups[NGROUPS_MAX];
	socklen_t size = sizeof(groups);
	if (getsockopt(fd, SOL_SOCKET, SO_PEERGROUPS, groups, &size))
		return false;
	for (size_t i = 0; i < size / sizeof(groups[0]); i++)
		if (group_may(keeper, groups[i]))
			return true;
	return false;
}

static bool allowed(const struct keeper *keeper, int fd)
{
	struct ucred peer;
	socklen_t size = sizeof(peer);
	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size))
		return false;
	return peer.uid == 0 || peer.uid == geteuid() || group_may(keeper, peer.gid) ||
	       in_such_group(keeper, fd);
}

static void on_accept(struct evconnlistener *listener, evutil_socket_t fd, struct sockaddr *address,
	int size, void *context)
{
	static const struct timeval idle = {.tv_sec = RPC_IDLE_S};
	struct keeper *keeper = context;
	struct keeper_client *client = calloc(1, sizeof(*client));
	(void)listener;
	(void)address;
	(void)size;
	must(client);
	client->keeper = keeper;
	client->stream = bufferevent_socket_new(keeper->base, fd, BEV_OPT_CLOSE_ON_FREE);
	must(client->stream);
	LIST_INSERT_HEAD(&keeper->server->clients, client, link);
	keeper->server->count++;
	bufferevent_setcb(client->stream, on_read, on_write, on_event, client);
	bufferevent_set_timeouts(client->stream, &idle, &idle);
	bufferevent_setwatermark(client->stream, EV_READ, 0, 2 * RPC_MESSAGE_MAX);
	bufferevent_enable(client->stream, EV_READ | EV_WRITE);
	if (!allowed(keeper, fd))
		refuse(client, FAULT_FAILED,
			"this socket is for root and the keeper's user and group; 'socket-group' "
			"in "
			"[segment] lets another one in");
	else if (keeper->server->count > RPC_CLIENTS_MAX)
		refuse(client, FAULT_BUSY, "too many clients");
}

/* --- open and close --------------------------------------------------------------------- */

static int bind_socket(struct keeper *keeper, int fd, struct fault *fault)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	char path[PATH_LENGTH_MAX];
	if (path_run(path, keeper->name, "xsegd.sock") || strlen(path) >= sizeof(address.sun_path))
		return fault_set(fault, FAULT_FAILED, keeper->name,
			"choose a shorter SKERRY_RUN_DIR", "the socket's path is too long");
	memcpy(address.sun_path, path, strlen(path) + 1);
	unlink(path); /* a dead keeper's: we hold the lock */
	mode_t mask = umask(0117);
	int rc = bind(fd, (struct sockaddr *)&address, sizeof(address));
	int error = errno;
	umask(mask);
	gid_t group;
	const char *named = keeper->pipeline.socket_group;
	if (!rc && named && !pipeline_group(named, &group)) {
		rc = chown(path, (uid_t)-1, group);
		error = errno;
	}
	if (rc)
		return fault_set(
			fault, FAULT_FAILED, path, NULL, "socket '%s': %s", path, strerror(error));
	return 0;
}

int keeper_server_open(struct keeper *keeper, struct fault *fault)
{
	struct keeper_server *server = calloc(1, sizeof(*server));
	must(server);
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	int rc = fd < 0 ? fault_set(
				  fault, FAULT_FAILED, NULL, NULL, "no socket: %s", strerror(errno))
			: bind_socket(keeper, fd, fault);
	if (rc) {
		if (fd >= 0)
			close(fd);
		free(server);
		return rc;
	}
	LIST_INIT(&server->clients);
	keeper->server = server;
	server->listener = evconnlistener_new(keeper->base, on_accept, keeper,
		LEV_OPT_CLOSE_ON_FREE | LEV_OPT_CLOSE_ON_EXEC, 128, fd);
	must(server->listener);
	return 0;
}

static bool all_sent(const struct keeper_server *server)
{
	const struct keeper_client *client;
	LIST_FOREACH (client, &server->clients, link)
		if (evbuffer_get_length(bufferevent_get_output(client->stream)))
			return false;
	return true;
}

void keeper_server_close(struct keeper *keeper)
{
	static const struct timeval tick = {.tv_usec = 10000};
	struct keeper_server *server = keeper->server;
	if (!server)
		return;
	struct keeper_client *client;
	evconnlistener_free(server->listener);
	LIST_FOREACH (client, &server->clients, link) {
		client->closing = true; /* nothing more is taken from it */
		bufferevent_disable(client->stream, EV_READ);
	}
	/* last answers, to those who read them */
	for (int i = 0; i < 100 && !all_sent(server); i++) {
		event_base_loopexit(keeper->base, &tick);
		event_base_dispatch(keeper->base);
	}
	while (!LIST_EMPTY(&server->clients))
		client_free(LIST_FIRST(&server->clients));
	free(server);
	keeper->server = NULL;
}
