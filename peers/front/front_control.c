/* SPDX-License-Identifier: Apache-2.0 */
/* What can be asked of any front (<peer/front.h>): its clients, its addresses, is all there? */
#include <base/clock.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>

#include "peers/front/front.h"

/* --- clients: of all shards --------------------------------------------------------------- */

void front_clients_init(struct front_clients *clients)
{
	TAILQ_INIT(&clients->list);
	must(pthread_mutex_init(&clients->lock, NULL) == 0);
}

void front_client_add(struct front_clients *clients, struct front_client_entry *entry)
{
	entry->about.since_ns = clock_now_ns();
	pthread_mutex_lock(&clients->lock);
	TAILQ_INSERT_TAIL(&clients->list, entry, link);
	pthread_mutex_unlock(&clients->lock);
}

void front_client_remove(struct front_clients *clients, struct front_client_entry *entry)
{
	pthread_mutex_lock(&clients->lock);
	TAILQ_REMOVE(&clients->list, entry, link);
	pthread_mutex_unlock(&clients->lock);
}

void front_clients_answer(struct front_clients *clients, struct job *job)
{
	uint64_t number = 0;
	uint32_t at = 0;
	const struct front_client_entry *entry;
	pthread_mutex_lock(&clients->lock);
	TAILQ_FOREACH (entry, &clients->list, link) {
		if (number++ < job->arg1 || at + sizeof(entry->about) > job->data_size)
			continue;
		job_put_bytes(job, at, &entry->about, sizeof(entry->about));
		at += (uint32_t)sizeof(entry->about);
	}
	pthread_mutex_unlock(&clients->lock);
	job_complete_value(job, at, number);
}

/* --- is all there? -------------------------------------------------------------------------- */

struct front_checking {
	struct job *job;
	struct peer *peer;
	const struct peer_list *names;
	unsigned at;
};

static const char *check_name(const struct front_checking *check)
{
	return check->names->count ? check->names->item[check->at] : "";
}

static void check_end(struct front_checking *check, int error)
{
	struct front_check answer = {.error = error};
	struct job *job = check->job;
	if (error)
		snprintf(answer.name, sizeof(answer.name), "%s", check_name(check));
	free(check);
	if (job->data_size < sizeof(answer)) {
		job_fail(job, -EINVAL);
		return;
	}
	job_put_bytes(job, 0, &answer, sizeof(answer));
	job_complete(job, (uint32_t)sizeof(answer));
}

static bool check_ask(struct peer *peer, void *context);

static void check_step(struct front_checking *check)
{
	if (!check_ask(check->peer, check))
		peer_retry(check->peer, check_ask, check);
}

static void check_answered(struct call *call)
{
	struct front_checking *check = call->context;
	int error = call->result;
	call_end(call);
	if (error || ++check->at >= check->names->count)
		check_end(check, error);
	else
		check_step(check);
}

static bool check_ask(struct peer *peer, void *context)
{
	struct front_checking *check = context;
	const char *name = check_name(check);
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
	call_submit(call, FRONT_EDGE_VOLUME, check_answered);
	return true;
}

void front_check_answer(struct peer *peer, struct job *job, const struct peer_list *names)
{
	struct front_checking *check = calloc(1, sizeof(*check));
	if (!check) {
		job_fail(job, -ENOMEM);
		return;
	}
	*check = (struct front_checking){.job = job, .peer = peer, .names = names};
	check_step(check);
}

/* --- where -------------------------------------------------------------------------------- */

static bool address_fill(const struct front_listener *listener, struct front_address *out)
{
	struct sockaddr_storage address = {0};
	socklen_t length = sizeof(address);
	char text[FRONT_WHO_LENGTH];
	memset(out, 0, sizeof(*out));
	if (getsockname(listener->fd, (struct sockaddr *)&address, &length))
		return false;
	if (address.ss_family == AF_UNIX) {
		const struct sockaddr_un *un = (const struct sockaddr_un *)&address;
		out->flags = FRONT_ADDRESS_UNIX;
		snprintf(out->text, sizeof(out->text), "%.*s", (int)sizeof(un->sun_path),
			un->sun_path);
		return out->text[0] != 0;
	}
	front_address_text((const struct sockaddr *)&address, length, text);
	if (strncmp(text, "tcp:", 4) != 0)
		return false;
	snprintf(out->text, sizeof(out->text), "%s", text + 4);
	if (!strncmp(out->text, "0.0.0.0:", 8) || !strncmp(out->text, "[::]:", 5))
		out->flags = FRONT_ADDRESS_ANY;
	return true;
}

void front_addresses_answer(const struct peer *peer, struct job *job,
	const struct front_listeners *listeners, front_offers_f *offers, front_flags_f *flags)
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
	if (!offers(peer, name)) {
		job_fail(job, -ENOENT);
		return;
	}
	for (unsigned i = 0; i < listeners->count; i++) {
		const struct front_listener *listener = &listeners->item[i];
		if (at + sizeof(address) > job->data_size || !address_fill(listener, &address))
			continue;
		address.flags |= flags(peer, listener);
		job_put_bytes(job, at, &address, sizeof(address));
		at += (uint32_t)sizeof(address);
	}
	job_complete(job, at);
}
