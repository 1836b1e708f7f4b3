/* SPDX-License-Identifier: Apache-2.0 */
/* What can be asked of us (<peer/front.h>): who our clients are, and whether all is there. */
#include <base/clock.h>
#include <errno.h>
#include <peer/front.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>

#include "peers/front/nbd.h"

/* --- clients: of all shards --------------------------------------------------------------- */

void nbd_control_init(struct nbd_shared *shared)
{
	TAILQ_INIT(&shared->clients);
	must(pthread_mutex_init(&shared->clients_lock, NULL) == 0);
}

void nbd_control_add(struct nbd_conn *conn)
{
	struct nbd_shared *shared = conn->nbd->shared;
	conn->served_ns = clock_now_ns();
	pthread_mutex_lock(&shared->clients_lock);
	TAILQ_INSERT_TAIL(&shared->clients, conn, client_link);
	pthread_mutex_unlock(&shared->clients_lock);
}

void nbd_control_remove(struct nbd_conn *conn)
{
	struct nbd_shared *shared = conn->nbd->shared;
	pthread_mutex_lock(&shared->clients_lock);
	TAILQ_REMOVE(&shared->clients, conn, client_link);
	pthread_mutex_unlock(&shared->clients_lock);
}

static void nbd_control_clients(struct nbd *nbd, struct job *job)
{
	uint64_t number = 0;
	uint32_t at = 0;
	const struct nbd_conn *conn;
	pthread_mutex_lock(&nbd->shared->clients_lock);
	TAILQ_FOREACH (conn, &nbd->shared->clients, client_link) {
		struct front_client client = {
			.volume = conn->session.volume, .since_ns = conn->served_ns};
		if (number++ < job->arg1 || at + sizeof(client) > job->data_size)
			continue;
		if (conn->session.flags & NBD_FLAG_READ_ONLY)
			client.flags = FRONT_CLIENT_READ_ONLY;
		snprintf(client.who, sizeof(client.who), "%s", conn->who);
		job_put_bytes(job, at, &client, sizeof(client));
		at += (uint32_t)sizeof(client);
	}
	pthread_mutex_unlock(&nbd->shared->clients_lock);
	job_complete_value(job, at, number);
}

/* --- is all there? -------------------------------------------------------------------------- */

struct nbd_check {
	struct job *job;
	unsigned at; /* of the exports that were named */
};

static const char *nbd_check_name(const struct nbd *nbd, const struct nbd_check *check)
{
	const struct peer_list *exports = &nbd->options->exports;
	return exports->count ? exports->item[check->at] : "";
}

static void nbd_check_end(struct nbd_check *check, int error, const char *name)
{
	struct front_check answer = {.error = error};
	struct job *job = check->job;
	free(check);
	if (error)
		snprintf(answer.name, sizeof(answer.name), "%s", name);
	if (job->data_size < sizeof(answer)) {
		job_fail(job, -EINVAL);
		return;
	}
	job_put_bytes(job, 0, &answer, sizeof(answer));
	job_complete(job, (uint32_t)sizeof(answer));
}

static bool nbd_check_ask(struct peer *peer, void *context);

static void nbd_check_step(struct peer *peer, struct nbd_check *check)
{
	if (!nbd_check_ask(peer, check))
		peer_retry(peer, nbd_check_ask, check);
}

static void nbd_check_answered(struct call *call)
{
	struct nbd_check *check = call->context;
	struct peer *peer = call->context2;
	const struct nbd *nbd = peer->state;
	int error = call->result;
	call_end(call);
	if (error || ++check->at >= nbd->options->exports.count) {
		const char *name = error ? nbd_check_name(nbd, check) : "";
		nbd_check_end(check, error, name);
		return;
	}
	nbd_check_step(peer, check);
}

static bool nbd_check_ask(struct peer *peer, void *context)
{
	struct nbd_check *check = context;
	const char *name = nbd_check_name(peer->state, check);
	struct call *call;
	if (call_begin(peer, &call))
		return false;
	call->op = *name ? XSEG_OP_INFO : XSEG_OP_LIST;
	if (call_pages(call, XSEG_PAGE)) {
		call_end(call);
		return false;
	}
	call->length = *name ? (uint32_t)strlen(name) : XSEG_PAGE;
	if (*name)
		call_put_bytes(call, XSEG_NAME_AT, name, call->length + 1);
	call->context = check;
	call->context2 = peer;
	call_submit(call, FRONT_EDGE_VOLUME, nbd_check_answered);
	return true;
}

/* --- where -------------------------------------------------------------------------------- */

static bool nbd_address_fill(const struct nbd *nbd, unsigned index, struct front_address *out)
{
	const struct front_listener *listener = &nbd->shared->listeners.item[index];
	struct sockaddr_storage address = {0};
	socklen_t length = sizeof(address);
	char text[FRONT_WHO_LENGTH];
	uint64_t tls = nbd->options->tls;
	memset(out, 0, sizeof(*out));
	if (getsockname(listener->fd, (struct sockaddr *)&address, &length))
		return false;
	if (tls == NBD_TLS_REQUIRE || (tls == NBD_TLS_AUTO && !listener->trusted))
		out->flags = FRONT_ADDRESS_TLS;
	if (address.ss_family == AF_UNIX) {
		const struct sockaddr_un *un = (const struct sockaddr_un *)&address;
		out->flags |= FRONT_ADDRESS_UNIX;
		snprintf(out->text, sizeof(out->text), "%.*s", (int)sizeof(un->sun_path),
			un->sun_path);
		return out->text[0] != 0;
	}
	front_address_text((const struct sockaddr *)&address, length, text);
	if (strncmp(text, "tcp:", 4) != 0)
		return false;
	snprintf(out->text, sizeof(out->text), "%s", text + 4);
	if (!strncmp(out->text, "0.0.0.0:", 8) || !strncmp(out->text, "[::]:", 5))
		out->flags |= FRONT_ADDRESS_ANY;
	return true;
}

static void nbd_control_addresses(const struct nbd *nbd, struct job *job)
{
	char name[FRONT_ANSWER_AT];
	uint32_t at = FRONT_ANSWER_AT;
	struct front_address address;
	if (job->data_size < FRONT_ANSWER_AT) {
		job_fail(job, -EINVAL);
		return;
	}
	job_get_bytes(job, 0, name, sizeof(name));
	name[sizeof(name) - 1] = 0;
	if (!nbd_export_allowed(nbd, name)) {
		job_fail(job, -ENOENT);
		return;
	}
	for (unsigned i = 0; i < nbd->shared->listeners.count; i++) {
		if (at + sizeof(address) > job->data_size || !nbd_address_fill(nbd, i, &address))
			continue;
		job_put_bytes(job, at, &address, sizeof(address));
		at += (uint32_t)sizeof(address);
	}
	job_complete(job, at);
}

void nbd_control(struct peer *peer, struct job *job)
{
	if (job->arg0 == FRONT_ADDRESSES) {
		nbd_control_addresses(peer->state, job);
		return;
	}
	if (job->arg0 == FRONT_CLIENTS) {
		nbd_control_clients(peer->state, job);
		return;
	}
	struct nbd_check *check = job->arg0 == FRONT_CHECK ? calloc(1, sizeof(*check)) : NULL;
	if (!check) {
		job_fail(job, job->arg0 == FRONT_CHECK ? -ENOMEM : -EOPNOTSUPP);
		return;
	}
	check->job = job;
	nbd_check_step(peer, check);
}
