/* SPDX-License-Identifier: Apache-2.0 */
/* Speaks JSON-RPC 2.0 with the keeper: one line out, one line back. */
#include "tools/ctl/ctl_rpc.h"

#include <base/clock.h>
#include <base/must.h>
#include <base/path.h>
#include <base/time.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define REPLY_MAX (16u << 20)
#define AGAIN_NS 100000000u

static int away(struct ctl *ctl, const char *segment, const char *why)
{
	fault_set(&ctl->fault, FAULT_KEEPER_AWAY, segment, NULL,
		"the keeper of segment '%s' is away (%s)", segment, why);
	fault_hint(&ctl->fault, "start it with 'xsegctl up FILE'");
	return -FAULT_KEEPER_AWAY;
}

static int connect_keeper(struct ctl *ctl, const char *segment, int *fd)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	char path[PATH_LENGTH_MAX];
	ctl_join_run_dir(segment);
	if (path_run(path, segment, "xsegd.sock") || strlen(path) >= sizeof(address.sun_path))
		return fault_set(&ctl->fault, FAULT_FAILED, segment,
			"choose a shorter SKERRY_RUN_DIR", "the socket's path is too long");
	if (path_check(path) == -EPERM)
		return fault_set(&ctl->fault, FAULT_FAILED, path, "look at it with 'ls -l'",
			"'%s' belongs to another user: it is not spoken to", path);
	memcpy(address.sun_path, path, strlen(path) + 1);
	*fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (*fd < 0)
		return fault_set(
			&ctl->fault, FAULT_FAILED, NULL, NULL, "no socket: %s", strerror(errno));
	if (connect(*fd, (struct sockaddr *)&address, sizeof(address)) == 0)
		return 0;
	int error = errno;
	close(*fd);
	*fd = -1;
	if (error == EACCES)
		return fault_set(&ctl->fault, FAULT_FAILED, path,
			"ask as root or as the keeper's user or group; 'socket-group' in [segment] "
			"lets "
			"another group in",
			"the keeper of segment '%s' may not be asked by this user", segment);
	return away(ctl, segment, error == ENOENT ? "no socket" : strerror(error));
}

/* Until the socket is ready, the time is over or somebody presses ^C. */
static int wait_for(struct ctl *ctl, int fd, short events, uint64_t end_ns, const char *method)
{
	for (;;) {
		struct pollfd one = {.fd = fd, .events = events};
		uint64_t now_ns = clock_now_ns();
		if (ctl_ask_interrupted())
			return ctl_ask_interrupted_fault(ctl, method);
		if (now_ns >= end_ns)
			return fault_set(&ctl->fault, FAULT_TIMEOUT, method,
				"the keeper goes on with it; --timeout sets the limit",
				"no answer from the keeper within %.1f s",
				(double)ctl->timeout_ns / 1e9);
		uint64_t left_ms = (end_ns - now_ns) / 1000000 + 1;
		if (poll(&one, 1, left_ms > 1000 ? 1000 : (int)left_ms) > 0)
			return 0;
	}
}

static int send_line(struct ctl *ctl, int fd, const char *line, uint64_t end_ns, const char *method)
{
	size_t left = strlen(line);
	while (left) {
		ssize_t n = send(fd, line, left, MSG_NOSIGNAL | MSG_DONTWAIT);
		if (n > 0) {
			line += n;
			left -= (size_t)n;
			continue;
		}
		if (errno != EAGAIN && errno != EINTR)
			return fault_set(&ctl->fault, FAULT_KEEPER_AWAY, method, NULL,
				"the keeper hung up: %s", strerror(errno));
		int rc = wait_for(ctl, fd, POLLOUT, end_ns, method);
		if (rc)
			return rc;
	}
	return 0;
}

struct line {
	char *text;
	size_t length, room;
};

static int receive_line(
	struct ctl *ctl, int fd, struct line *line, uint64_t end_ns, const char *method)
{
	while (!line->length || line->text[line->length - 1] != '\n') {
		if (line->room - line->length < 4096) {
			line->room = line->room ? line->room * 2 : 65536;
			line->text = realloc(line->text, line->room);
			must(line->text);
		}
		int rc = wait_for(ctl, fd, POLLIN, end_ns, method);
		if (rc)
			return rc;
		ssize_t n = read(fd, line->text + line->length, line->room - line->length);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0 || line->length > REPLY_MAX)
			return fault_set(&ctl->fault, FAULT_KEEPER_AWAY, method,
				"its log is xsegd.log in the run folder",
				"the keeper hung up before it answered");
		line->length += (size_t)n;
	}
	return 0;
}

static int take_reply(struct ctl *ctl, const struct line *line, json_t **result)
{
	json_t *reply = json_loadb(line->text, line->length, JSON_REJECT_DUPLICATES, NULL);
	json_t *error = json_object_get(reply, "error"), *data = json_object_get(error, "data");
	int rc = 0;
	*result = json_incref(json_object_get(reply, "result"));
	if (data) {
		fault_from_json(&ctl->fault, data);
		rc = -(int)ctl->fault.code;
	} else if (error || !*result) {
		const char *text = json_string_value(json_object_get(error, "message"));
		rc = fault_set(&ctl->fault, FAULT_FAILED, NULL, NULL, "the keeper says: %s",
			text ? text : "nothing that could be understood");
	}
	json_decref(reply);
	return rc;
}

int ctl_rpc_call(
	struct ctl *ctl, const char *segment, const char *method, json_t *params, json_t **result)
{
	struct line line = {0};
	uint64_t end_ns = clock_now_ns() + ctl->timeout_ns;
	int fd = -1;
	json_t *request = json_pack("{s:s, s:i, s:s, s:o}", "jsonrpc", "2.0", "id", 1, "method",
		method, "params", params ? params : json_object());
	char *text = json_dumps(request, JSON_COMPACT), *out;
	json_decref(request);
	must(text && asprintf(&out, "%s\n", text) > 0);
	free(text);
	*result = NULL;
	int rc = connect_keeper(ctl, segment, &fd);
	if (!rc)
		rc = send_line(ctl, fd, out, end_ns, method);
	if (!rc)
		rc = receive_line(ctl, fd, &line, end_ns, method);
	if (!rc)
		rc = take_reply(ctl, &line, result);
	if (fd >= 0)
		close(fd);
	free(line.text);
	free(out);
	return rc;
}

int ctl_rpc_insist(struct ctl *ctl, const char *segment, const char *method, json_t *params,
	uint64_t until_ns, json_t **result)
{
	json_t *kept = params ? params : json_object();
	int rc;
	do {
		memset(&ctl->fault, 0, sizeof(ctl->fault));
		rc = ctl_rpc_call(ctl, segment, method, json_deep_copy(kept), result);
		if (!rc || !ctl->fault.again || ctl_ask_interrupted())
			break;
		time_nap(AGAIN_NS);
	} while (!until_ns || clock_now_ns() < until_ns);
	json_decref(kept);
	return rc;
}
