/* SPDX-License-Identifier: Apache-2.0 */
/* metrics: counters as OpenMetrics text, printed once or served over HTTP. */
#include <arpa/inet.h>
#include <base/must.h>
#include <errno.h>
#include <event2/buffer.h>
#include <event2/event.h>
#include <event2/http.h>
#include <event2/listener.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "tools/ctl/ctl_output.h"
#include "tools/report/metrics.h"

#define HEADERS_MAX 8192
#define BODY_MAX 1024
#define TIMEOUT_S 5
#define BACKLOG 16

static const struct ctl_option option_listen = {"listen", 'l', "WHERE",
	"serve /metrics over HTTP: unix:PATH or tcp:127.0.0.1:PORT, until ^C", NULL};

static const struct ctl_option option_prometheus = {"prometheus", 0, NULL,
	"as Prometheus' older text format; over HTTP whoever asks says which", NULL};

struct exporter {
	struct ctl *ctl;
	struct event_base *base;
	struct evhttp *http;
	struct event *signals[2];
	struct xseg seg;
	bool joined;
	ino_t inode; /* of the segment we have mapped */
	char socket_path[sizeof(((struct sockaddr_un *)0)->sun_path)];
	char name[NAME_LENGTH_MAX + 1];
};

/* --- the segment, which may be made anew while we run ------------------------------------- */

static bool still_there(const struct exporter *exporter)
{
	struct stat st;
	return exporter->joined && !stat(exporter->seg.path, &st) && st.st_ino == exporter->inode;
}

static int join(struct exporter *exporter, char why[XSEG_WHY_SIZE])
{
	struct stat st;
	if (still_there(exporter))
		return 0;
	if (exporter->joined)
		xseg_segment_leave(&exporter->seg);
	exporter->joined = false;
	int rc = xseg_segment_join(exporter->name, &exporter->seg, why);
	if (rc)
		return rc;
	exporter->joined = true;
	exporter->inode = stat(exporter->seg.path, &st) ? 0 : st.st_ino;
	return 0;
}

/* --- HTTP --------------------------------------------------------------------------------- */

static void serve_metrics(struct evhttp_request *request, void *context)
{
	struct exporter *exporter = context;
	char why[XSEG_WHY_SIZE] = "";
	size_t size;
	if (join(exporter, why)) {
		evhttp_send_error(request, HTTP_SERVUNAVAIL, why);
		return;
	}
	const char *accept =
		evhttp_find_header(evhttp_request_get_input_headers(request), "Accept");
	/* who says nothing is no Prometheus, and can read either */
	bool old = accept && !strstr(accept, METRICS_OPEN_TYPE) && strstr(accept, "text/plain");
	char *text = metrics_text(&exporter->seg, old ? METRICS_PROMETHEUS : METRICS_OPEN, &size);
	struct evbuffer *body = evbuffer_new();
	must(body && evbuffer_add(body, text, size) == 0);
	free(text);
	struct evkeyvalq *headers = evhttp_request_get_output_headers(request);
	evhttp_add_header(headers, "Content-Type",
		old ? "text/plain; version=0.0.4; charset=utf-8"
		    : METRICS_OPEN_TYPE "; version=1.0.0; charset=utf-8");
	evhttp_add_header(headers, "Cache-Control", "no-store");
	evhttp_send_reply(request, HTTP_OK, "OK", body);
	evbuffer_free(body);
}

static void serve_other(struct evhttp_request *request, void *context)
{
	(void)context;
	evhttp_send_error(request, HTTP_NOTFOUND, "there is only /metrics");
}

static void on_signal(evutil_socket_t signal, short what, void *context)
{
	struct exporter *exporter = context;
	(void)signal;
	(void)what;
	event_base_loopbreak(exporter->base);
}

/* --- where -------------------------------------------------------------------------------- */

static int bad_address(struct ctl *ctl, const char *where, const char *why)
{
	return fault_set(&ctl->fault, FAULT_USAGE, where,
		"write unix:/run/skerry/metrics.sock or tcp:127.0.0.1:9464", "--listen: '%s' %s",
		where, why);
}

/* Counters say a lot about a guest: they leave this host only through something that asks who. */
static int tcp_address(struct ctl *ctl, const char *where, struct sockaddr_in *address)
{
	const char *host = where + strlen("tcp:"), *colon = strrchr(host, ':');
	char text[32], *end;
	unsigned long port = colon ? strtoul(colon + 1, &end, 10) : 0;
	if (!colon || (size_t)(colon - host) >= sizeof(text) || end == colon + 1 || *end ||
		port > 65535)
		return bad_address(ctl, where, "is no address");
	snprintf(text, sizeof(text), "%.*s", (int)(colon - host), host);
	*address = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
	if (!strcmp(text, "localhost"))
		snprintf(text, sizeof(text), "127.0.0.1");
	if (inet_pton(AF_INET, text, &address->sin_addr) != 1)
		return bad_address(ctl, where, "is no address");
	if (ntohl(address->sin_addr.s_addr) >> 24 != 127)
		return bad_address(ctl, where, "is not of this host alone (127.0.0.1)");
	return 0;
}

static int unix_address(struct ctl *ctl, const char *where, struct sockaddr_un *address)
{
	const char *path = where + strlen("unix:");
	struct stat st;
	*address = (struct sockaddr_un){.sun_family = AF_UNIX};
	if (!*path || strlen(path) >= sizeof(address->sun_path))
		return bad_address(ctl, where, "is too short or too long for a socket");
	memcpy(address->sun_path, path, strlen(path) + 1);
	/* one that nobody listens on is left from an exporter that was killed */
	if (!lstat(path, &st) && S_ISSOCK(st.st_mode)) {
		int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
		bool used = fd >= 0 && !connect(fd, (struct sockaddr *)address, sizeof(*address));
		if (fd >= 0)
			close(fd);
		if (used)
			return fault_set(&ctl->fault, FAULT_CONFLICT, path, NULL,
				"somebody listens on '%s' already", path);
		unlink(path);
	}
	return 0;
}

static int listen_at(struct exporter *exporter, const char *where)
{
	struct ctl *ctl = exporter->ctl;
	struct sockaddr_in in;
	struct sockaddr_un un;
	bool tcp = !strncmp(where, "tcp:", 4);
	if (!tcp && strncmp(where, "unix:", 5))
		return bad_address(ctl, where, "is no address");
	int rc = tcp ? tcp_address(ctl, where, &in) : unix_address(ctl, where, &un);
	if (rc)
		return rc;
	struct evconnlistener *listener = evconnlistener_new_bind(exporter->base, NULL, NULL,
		LEV_OPT_CLOSE_ON_FREE | LEV_OPT_CLOSE_ON_EXEC | LEV_OPT_REUSEABLE, BACKLOG,
		tcp ? (struct sockaddr *)&in : (struct sockaddr *)&un,
		tcp ? (int)sizeof(in) : (int)sizeof(un));
	if (!listener)
		return fault_set(&ctl->fault, fault_code_of_errno(-errno), where, NULL,
			"nobody can listen at '%s': %s", where, strerror(errno));
	if (!tcp) {
		chmod(un.sun_path, 0660);
		memcpy(exporter->socket_path, un.sun_path, sizeof(exporter->socket_path));
	}
	must(evhttp_bind_listener(exporter->http, listener));
	socklen_t size = sizeof(in);
	if (tcp && !getsockname(evconnlistener_get_fd(listener), (struct sockaddr *)&in, &size))
		printf("listening on http://127.0.0.1:%u/metrics\n", ntohs(in.sin_port));
	else
		printf("listening on %s\n", where);
	fflush(stdout);
	return 0;
}

/* --- entry point -------------------------------------------------------------------------- */

static int serve(struct ctl *ctl, struct exporter *exporter, const char *where)
{
	static const int signals[2] = {SIGINT, SIGTERM};
	exporter->ctl = ctl;
	exporter->base = event_base_new();
	must(exporter->base);
	exporter->http = evhttp_new(exporter->base);
	must(exporter->http);
	evhttp_set_allowed_methods(exporter->http, EVHTTP_REQ_GET | EVHTTP_REQ_HEAD);
	evhttp_set_max_headers_size(exporter->http, HEADERS_MAX);
	evhttp_set_max_body_size(exporter->http, BODY_MAX);
	evhttp_set_timeout(exporter->http, TIMEOUT_S);
	evhttp_set_cb(exporter->http, "/metrics", serve_metrics, exporter);
	evhttp_set_gencb(exporter->http, serve_other, NULL);
	for (unsigned i = 0; i < 2; i++) {
		exporter->signals[i] =
			evsignal_new(exporter->base, signals[i], on_signal, exporter);
		must(exporter->signals[i] && event_add(exporter->signals[i], NULL) == 0);
	}
	int rc = listen_at(exporter, where);
	if (!rc)
		event_base_dispatch(exporter->base);
	evhttp_free(exporter->http);
	for (unsigned i = 0; i < 2; i++)
		event_free(exporter->signals[i]);
	event_base_free(exporter->base);
	if (exporter->socket_path[0])
		unlink(exporter->socket_path);
	return rc;
}

static int run(struct ctl *ctl)
{
	struct exporter exporter = {0};
	const char *where = ctl_option_value(ctl, "listen");
	char why[XSEG_WHY_SIZE] = "";
	size_t size;
	int rc = ctl_join_segment_name(ctl, exporter.name);
	if (rc)
		return rc;
	rc = join(&exporter, why);
	/* who serves may be there before the segment is */
	if (rc && !(where && rc == -ENOENT))
		return fault_set(
			&ctl->fault, fault_code_of_errno(rc), exporter.name, NULL, "%s", why);
	if (where) {
		rc = serve(ctl, &exporter, where);
	} else {
		char *text = metrics_text(&exporter.seg,
			ctl_option_given(ctl, "prometheus") ? METRICS_PROMETHEUS : METRICS_OPEN,
			&size);
		fwrite(text, 1, size, stdout);
		free(text);
	}
	if (exporter.joined)
		xseg_segment_leave(&exporter.seg);
	return rc;
}

const struct ctl_verb ctl_metrics_verb = {
	"metrics",
	NULL,
	"",
	0,
	0,
	"counters and latencies as OpenMetrics text",
	"\tNames, units and help are those of the counters; labels are segment, peer, "
	"volume and op. With "
	"*--listen* it serves /metrics over HTTP until ^C or SIGTERM, on this host only, also over "
	"the keeper's restarts; while there is no segment it answers 503. Formats of other "
	"commands "
	"do not apply.\n",
	run,
	{&option_listen, &option_prometheus},
	.examples = "xsegctl metrics >skerry.prom\n"
		    "xsegctl metrics --listen tcp:127.0.0.1:9464\n",
};
