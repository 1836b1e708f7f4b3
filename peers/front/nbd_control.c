/* SPDX-License-Identifier: Apache-2.0 */
/* What can be asked of us (<peer/front.h>). */
#include <errno.h>
#include <stdio.h>

#include "peers/front/nbd.h"

void nbd_control_add(struct nbd_conn *conn)
{
	struct front_client *about = &conn->client.about;
	about->volume = conn->session.volume;
	if (conn->session.flags & NBD_FLAG_READ_ONLY)
		about->flags = FRONT_CLIENT_READ_ONLY;
	snprintf(about->who, sizeof(about->who), "%s", conn->who);
	front_client_add(&conn->nbd->shared->clients, &conn->client);
}

static bool nbd_control_offers(const struct peer *peer, const char *name)
{
	return nbd_export_allowed(nbd_of(peer), name);
}

static unsigned nbd_control_flags(const struct peer *peer, const struct front_listener *listener)
{
	uint64_t tls = nbd_of(peer)->options->tls;
	bool needed = tls == NBD_TLS_REQUIRE || (tls == NBD_TLS_AUTO && !listener->trusted);
	return needed ? FRONT_ADDRESS_TLS : 0;
}

void nbd_control(struct peer *peer, struct job *job)
{
	struct nbd *nbd = nbd_of(peer);
	switch (job->arg0) {
	case FRONT_ADDRESSES:
		front_addresses_answer(
			peer, job, &nbd->shared->listeners, nbd_control_offers, nbd_control_flags);
		break;
	case FRONT_CLIENTS: front_clients_answer(&nbd->shared->clients, job); break;
	case FRONT_CHECK: front_check_answer(peer, job, &nbd->options->exports); break;
	default: job_fail(job, -EOPNOTSUPP);
	}
}
