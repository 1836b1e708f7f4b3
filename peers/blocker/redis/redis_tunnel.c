/* SPDX-License-Identifier: Apache-2.0 */
/*
 * TLS to the server. hiredis before 1.0, which Debian 12 has, knows none: it speaks to a UNIX
 * socket of ours, and a thread carries what it says through libevent's TLS. The server is always
 * known by its certificate.
 */
#include <base/log.h>
#include <errno.h>
#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/bufferevent_ssl.h>
#include <event2/event.h>
#include <event2/listener.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "peers/blocker/redis/redis.h"

#define TUNNEL_FULL (8u << 20) /* bytes in one direction: more are not read until they have gone */
#define TUNNEL_LOW (1u << 20)

/* A connection of hiredis's, and the one that it stands for. */
struct pair {
	LIST_ENTRY(pair) link;
	struct redis_tunnel *tunnel;
	struct bufferevent *near, *far;
	bool greeted; /* the server's certificate is good */
	bool ending;  /* the server has closed; what it said last is still to be heard */
};

struct redis_tunnel {
	struct redis_store *store;
	const struct redis_options *options;
	struct event_base *base;
	struct evconnlistener *listener;
	struct event *stop_event;
	int stop_fd;
	SSL_CTX *context;
	pthread_t thread;
	char path[PATH_LENGTH_MAX];
	LIST_HEAD(, pair) pairs;
	pthread_mutex_t lock;
	char reason[256]; /* why the last connection was lost; lock */
};

/* --- why ---------------------------------------------------------------------------------- */

static const char *openssl_reason(void)
{
	const char *reason = ERR_reason_error_string(ERR_peek_last_error());
	ERR_clear_error();
	return reason ? reason : "unknown error";
}

static void note_reason(struct redis_tunnel *tunnel, const char *text)
{
	pthread_mutex_lock(&tunnel->lock);
	bool again = strcmp(tunnel->reason, text) == 0;
	snprintf(tunnel->reason, sizeof(tunnel->reason), "%s", text);
	pthread_mutex_unlock(&tunnel->lock);
	if (*text && !again)
		log_error(REDIS_ROOM, "TLS with '%s': %s", tunnel->options->host, text);
}

void redis_tunnel_reason(struct redis_tunnel *tunnel, char *text, size_t size)
{
	pthread_mutex_lock(&tunnel->lock);
	snprintf(text, size, "%s", tunnel->reason);
	pthread_mutex_unlock(&tunnel->lock);
}

static void note_loss(struct pair *pair)
{
	long verified = SSL_get_verify_result(bufferevent_openssl_get_ssl(pair->far));
	unsigned long error = bufferevent_get_openssl_error(pair->far);
	int name = bufferevent_socket_get_dns_error(pair->far);
	const char *text = error ? ERR_reason_error_string(error) : NULL;
	if (verified != X509_V_OK)
		text = X509_verify_cert_error_string(verified);
	else if (name)
		text = evutil_gai_strerror(name);
	else if (!text)
		text = evutil_socket_error_to_string(EVUTIL_SOCKET_ERROR());
	char all[256];
	snprintf(all, sizeof(all), "%s%s", text ? text : "unknown error",
		pair->greeted && !pair->tunnel->options->tls_cert
			? "; it may want a certificate: tls-cert"
			: "");
	note_reason(pair->tunnel, all);
}

/* --- carrying ----------------------------------------------------------------------------- */

static void pair_free(struct pair *pair)
{
	LIST_REMOVE(pair, link);
	bufferevent_free(pair->near);
	bufferevent_free(pair->far);
	free(pair);
}

static void on_read(struct bufferevent *from, void *whose)
{
	struct pair *pair = whose;
	struct bufferevent *to = from == pair->near ? pair->far : pair->near;
	struct evbuffer *out = bufferevent_get_output(to);
	evbuffer_add_buffer(out, bufferevent_get_input(from));
	if (evbuffer_get_length(out) > TUNNEL_FULL)
		bufferevent_disable(from, EV_READ);
}

static void on_write(struct bufferevent *to, void *whose)
{
	struct pair *pair = whose;
	if (!pair->ending)
		bufferevent_enable(to == pair->near ? pair->far : pair->near, EV_READ);
	else if (evbuffer_get_length(bufferevent_get_output(pair->near)) == 0)
		pair_free(pair);
}

static void on_event(struct bufferevent *which, short what, void *whose)
{
	struct pair *pair = whose;
	if (what & BEV_EVENT_CONNECTED) {
		/* or a command's last record waits until its first is acknowledged */
		setsockopt(
			bufferevent_getfd(which), IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
		note_reason(pair->tunnel, "");
		pair->greeted = true;
		return;
	}
	if (which == pair->near || pair->ending) {
		pair_free(pair);
		return;
	}
	if (what & BEV_EVENT_ERROR)
		note_loss(pair);
	on_read(which, pair);
	pair->ending = true;
	bufferevent_disable(pair->far, EV_READ | EV_WRITE);
	bufferevent_disable(pair->near, EV_READ);
	bufferevent_setwatermark(pair->near, EV_WRITE, 0, 0);
	if (evbuffer_get_length(bufferevent_get_output(pair->near)) == 0)
		pair_free(pair);
}

/* By its name, or by its address. */
static SSL *session_new(const struct redis_tunnel *tunnel)
{
	const struct redis_options *options = tunnel->options;
	const char *name = options->tls_name ? options->tls_name : options->host;
	SSL *ssl = SSL_new(tunnel->context);
	if (!ssl || X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl), name) == 1)
		return ssl;
	if (SSL_set1_host(ssl, name) == 1 && SSL_set_tlsext_host_name(ssl, name) == 1)
		return ssl;
	SSL_free(ssl);
	return NULL;
}

static void on_accept(struct evconnlistener *listener, evutil_socket_t fd, struct sockaddr *from,
	int size, void *whose)
{
	struct redis_tunnel *tunnel = whose;
	struct pair *pair = calloc(1, sizeof(*pair));
	SSL *ssl = session_new(tunnel);
	(void)listener;
	(void)from;
	(void)size;
	if (ssl && pair)
		pair->far = bufferevent_openssl_socket_new(
			tunnel->base, -1, ssl, BUFFEREVENT_SSL_CONNECTING, BEV_OPT_CLOSE_ON_FREE);
	if (pair)
		pair->near = bufferevent_socket_new(tunnel->base, fd, BEV_OPT_CLOSE_ON_FREE);
	if (!pair || !pair->far || !pair->near) {
		if (pair && pair->near)
			bufferevent_free(pair->near);
		else
			evutil_closesocket(fd);
		free(pair);
		note_reason(tunnel, "out of memory");
		return;
	}
	pair->tunnel = tunnel;
	LIST_INSERT_HEAD(&tunnel->pairs, pair, link);
	bufferevent_setcb(pair->near, on_read, on_write, on_event, pair);
	bufferevent_setcb(pair->far, on_read, on_write, on_event, pair);
	bufferevent_setwatermark(pair->near, EV_WRITE, TUNNEL_LOW, 0);
	bufferevent_setwatermark(pair->far, EV_WRITE, TUNNEL_LOW, 0);
	bufferevent_enable(pair->near, EV_READ | EV_WRITE);
	bufferevent_enable(pair->far, EV_READ | EV_WRITE);
	struct redis_node node = redis_cluster_node(tunnel->store);
	bufferevent_socket_connect_hostname(pair->far, NULL, AF_UNSPEC, node.host, node.port);
}

/* --- beginning and end ---------------------------------------------------------------------- */

static void on_stop(evutil_socket_t fd, short what, void *whose)
{
	struct redis_tunnel *tunnel = whose;
	(void)fd;
	(void)what;
	event_base_loopbreak(tunnel->base);
}

static void *carry(void *whose)
{
	struct redis_tunnel *tunnel = whose;
	event_base_dispatch(tunnel->base);
	return NULL;
}

static int refuse(char *why, size_t why_size, const char *option, const char *file)
{
	snprintf(why, why_size, "%s: '%s': %s", option, file, openssl_reason());
	return -EINVAL;
}

static int load(struct redis_tunnel *tunnel, char *why, size_t why_size)
{
	const struct redis_options *options = tunnel->options;
	SSL_CTX *context = tunnel->context = SSL_CTX_new(TLS_client_method());
	if (!context)
		return refuse(why, why_size, "tls", "yes");
	SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION);
	SSL_CTX_set_verify(context, SSL_VERIFY_PEER, NULL);
	if (options->tls_ca && SSL_CTX_load_verify_locations(context, options->tls_ca, NULL) != 1)
		return refuse(why, why_size, "tls-ca", options->tls_ca);
	if (!options->tls_ca)
		SSL_CTX_set_default_verify_paths(context);
	if (options->tls_cert &&
		SSL_CTX_use_certificate_chain_file(context, options->tls_cert) != 1)
		return refuse(why, why_size, "tls-cert", options->tls_cert);
	if (options->tls_key &&
		(SSL_CTX_use_PrivateKey_file(context, options->tls_key, SSL_FILETYPE_PEM) != 1 ||
			SSL_CTX_check_private_key(context) != 1))
		return refuse(why, why_size, "tls-key", options->tls_key);
	return 0;
}

/* Nobody else's to speak to. */
static int listen_at(struct redis_tunnel *tunnel, char *why, size_t why_size)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	if (strlen(tunnel->path) >= sizeof(address.sun_path)) {
		snprintf(why, why_size, "'%s' is too long for a socket's name", tunnel->path);
		return -ENAMETOOLONG;
	}
	strcpy(address.sun_path, tunnel->path);
	unlink(tunnel->path); /* of one that was killed */
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd >= 0 && bind(fd, (struct sockaddr *)&address, sizeof(address)) == 0 &&
		chmod(tunnel->path, 0600) == 0)
		tunnel->listener = evconnlistener_new(
			tunnel->base, on_accept, tunnel, LEV_OPT_CLOSE_ON_FREE, 64, fd);
	if (tunnel->listener)
		return 0;
	int error = -errno;
	if (fd >= 0)
		close(fd);
	snprintf(why, why_size, "'%s': %s", tunnel->path, strerror(-error));
	return error;
}

static int start(struct redis_tunnel *tunnel, char *why, size_t why_size)
{
	int error = load(tunnel, why, why_size);
	if (error)
		return error;
	tunnel->base = event_base_new();
	tunnel->stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (tunnel->base && tunnel->stop_fd >= 0)
		tunnel->stop_event =
			event_new(tunnel->base, tunnel->stop_fd, EV_READ, on_stop, tunnel);
	if (!tunnel->stop_event || event_add(tunnel->stop_event, NULL)) {
		snprintf(why, why_size, "tls: out of memory");
		return -ENOMEM;
	}
	signal(SIGPIPE, SIG_IGN); /* OpenSSL writes to sockets without MSG_NOSIGNAL */
	error = listen_at(tunnel, why, why_size);
	if (!error)
		error = -pthread_create(&tunnel->thread, NULL, carry, tunnel);
	return error;
}

static void tunnel_free(struct redis_tunnel *tunnel)
{
	while (!LIST_EMPTY(&tunnel->pairs))
		pair_free(LIST_FIRST(&tunnel->pairs));
	if (tunnel->listener) {
		evconnlistener_free(tunnel->listener);
		unlink(tunnel->path);
	}
	if (tunnel->stop_event)
		event_free(tunnel->stop_event);
	if (tunnel->stop_fd >= 0)
		close(tunnel->stop_fd);
	if (tunnel->base)
		event_base_free(tunnel->base);
	SSL_CTX_free(tunnel->context);
	pthread_mutex_destroy(&tunnel->lock);
	free(tunnel);
}

struct redis_tunnel *redis_tunnel_open(struct redis_store *store,
	const struct redis_options *options, const char *path, char *why, size_t why_size)
{
	struct redis_tunnel *tunnel = calloc(1, sizeof(*tunnel));
	if (!tunnel)
		return NULL;
	tunnel->store = store;
	tunnel->options = options;
	tunnel->stop_fd = -1;
	pthread_mutex_init(&tunnel->lock, NULL);
	snprintf(tunnel->path, sizeof(tunnel->path), "%s", path);
	if (start(tunnel, why, why_size) == 0)
		return tunnel;
	tunnel_free(tunnel);
	return NULL;
}

const char *redis_tunnel_path(const struct redis_tunnel *tunnel) { return tunnel->path; }

void redis_tunnel_close(struct redis_tunnel *tunnel)
{
	uint64_t one = 1;
	if (!tunnel)
		return;
	if (write(tunnel->stop_fd, &one, sizeof(one)) == (ssize_t)sizeof(one))
		pthread_join(tunnel->thread, NULL);
	tunnel_free(tunnel);
}
