/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Clients of the cluster. Each is noted in the pool, in the omap of "clients": its id, which writer
 * it is, its address. Who claims a volume notifies all that watch that object, and puts those on
 * the cluster's blocklist that do not answer: from the map on that names them no OSD takes
 * anything from them, not even what they have sent already.
 */
#include <base/log.h>
#include <base/must.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "peers/blocker/rados/ceph.h"

#define CLIENTS "clients"
#define FORMAT "format"
#define IDENTITY "identity"
#define FORMAT_TEXT "skerry blocker_rados 1\n"
/* A host that was stopped for longer, with writes on their way, could still send them. */
#define BLOCKLIST_S (30u * 24 * 3600)
#define WATCH_S 30u

static const char *or_default(const char *text, const char *otherwise)
{
	return text && *text ? text : otherwise;
}

/* --- connecting ----------------------------------------------------------------------------- */

static int configure(struct ceph_link *link, char *why, size_t why_size)
{
	const struct ceph_options *options = link->store->options;
	char seconds[24];
	int error = rados_conf_read_file(link->cluster, options->conf);
	if (error) {
		snprintf(why, why_size, "conf: '%s' cannot be read: %s",
			or_default(options->conf, "ceph.conf"), strerror(-error));
		return error;
	}
	/* in whole seconds, each of them */
	static const char *const timeouts[] = {
		"rados_osd_op_timeout", "rados_mon_op_timeout", "client_mount_timeout"};
	snprintf(seconds, sizeof(seconds), "%" PRIu64, (options->timeout + 999999999) / 1000000000);
	for (size_t i = 0; i < 3; i++)
		must(rados_conf_set(link->cluster, timeouts[i], seconds) == 0);
	if (options->key_file)
		rados_conf_set(link->cluster, "keyring", options->key_file);
	return 0;
}

static int log_in(struct ceph_link *link, char *why, size_t why_size)
{
	const struct ceph_options *options = link->store->options;
	int error = configure(link, why, why_size);
	if (error)
		return error;
	error = rados_connect(link->cluster);
	if (error) {
		snprintf(why, why_size, "the cluster does not let client.%s in: %s%s", options->id,
			strerror(-error),
			error == -ETIMEDOUT ? " (is a monitor running? see conf=)"
					    : " (see id=, key-file=)");
		return error;
	}
	error = rados_ioctx_create(link->cluster, options->pool, &link->io);
	if (error) {
		link->io = NULL;
		snprintf(why, why_size, "pool: '%s': %s; ceph osd pool create makes one",
			options->pool, strerror(-error));
		return error;
	}
	rados_ioctx_set_namespace(link->io, or_default(options->name_space, ""));
	/* full is an error, not a reason to wait */
	rados_set_pool_full_try(link->io);
	link->id = rados_get_instance_id(link->cluster);
	return 0;
}

/* What that object holds; whoever comes first puts `text` there. */
static int put_once(
	struct ceph_link *link, const char *name, const char *text, char *found, size_t size)
{
	rados_write_op_t op = rados_create_write_op();
	rados_write_op_create(op, LIBRADOS_CREATE_EXCLUSIVE, NULL);
	rados_write_op_write_full(op, text, strlen(text));
	int got = rados_write_op_operate(op, link->io, name, NULL, 0);
	rados_release_write_op(op);
	if (got == 0 || got == -EEXIST)
		got = rados_read(link->io, name, found, size - 1, 0);
	found[got > 0 ? got : 0] = 0;
	return got < 0 ? got : 0;
}

static int check_format(struct ceph_link *link, char *why, size_t why_size)
{
	struct ceph_store *store = link->store;
	char found[sizeof(FORMAT_TEXT) + 1], identity[HOME_IDENTITY], text[HOME_IDENTITY];
	int error = home_random(text);
	error = error ? error : put_once(link, FORMAT, FORMAT_TEXT, found, sizeof(found));
	if (!error && strcmp(found, FORMAT_TEXT) != 0) {
		snprintf(why, why_size,
			"pool: object '" FORMAT
			"' in '%s' is not of this version; namespace= keeps stores apart",
			store->options->pool);
		return -EINVAL;
	}
	error = error ? error : put_once(link, IDENTITY, text, identity, sizeof(identity));
	if (!error && *store->identity && strcmp(store->identity, identity) != 0)
		error = -ENODATA; /* emptied while we were shut out */
	if (error)
		snprintf(why, why_size, "pool: '%s' cannot be used: %s", store->options->pool,
			strerror(-error));
	else
		memcpy(store->identity, identity, sizeof(identity));
	return error;
}

/* --- who else is one ------------------------------------------------------------------------ */

static void on_notice(
	void *context, uint64_t notice, uint64_t watch, uint64_t who, void *data, size_t size)
{
	struct ceph_link *link = context;
	char text[17] = "";
	if (who != link->id && size == 16) {
		memcpy(text, data, 16);
		ceph_fence_let_go(link, strtoull(text, NULL, 16), notice, watch);
	} else {
		rados_notify_ack(link->io, CLIENTS, notice, watch, NULL, 0);
	}
}

/* librados watches again by itself where it can; who is not heard is shut out, and so comes back
   as another client, with another watch. */
static void on_watch_error(void *context, uint64_t watch, int error)
{
	const struct ceph_link *link = context;
	(void)watch;
	log_debug(
		CEPH_ROOM, "%s: the watch is lost: %s", link->store->peer->name, strerror(-error));
}

struct client {
	uint64_t id, own;
	char address[128];
};

struct clients {
	struct client *at;
	size_t count;
	int error;
};

static bool add_client(void *context, const char *key, const char *value, size_t size)
{
	struct clients *clients = context;
	struct client client = {.id = strtoull(key, NULL, 16)}, *grown;
	if (size < 18 || size - 17 >= sizeof(client.address))
		return true;
	client.own = strtoull(value, NULL, 16);
	memcpy(client.address, value + 17, size - 17);
	grown = realloc(clients->at, (clients->count + 1) * sizeof(client));
	if (!grown) {
		clients->error = -ENOMEM;
		return false;
	}
	clients->at = grown;
	clients->at[clients->count++] = client;
	return true;
}

static int list_clients(struct ceph_link *link, struct clients *clients)
{
	int error = ceph_index_walk(link, CLIENTS, "", add_client, clients);
	return error ? error : clients->error;
}

static int note_client(struct ceph_link *link)
{
	char key[17], value[160], *address = NULL;
	snprintf(key, sizeof(key), "%016" PRIx64, link->id);
	int error = rados_getaddrs(link->cluster, &address);
	if (error)
		return error;
	snprintf(value, sizeof(value), "%016" PRIx64 " %s", link->store->own, address);
	free(address);
	return ceph_index_swap(link, CLIENTS, key, (struct ceph_value){"", 0},
		(struct ceph_value){value, strlen(value)});
}

static void forget_client(struct ceph_link *link, uint64_t id)
{
	char key[17];
	const char *keys[] = {key};
	size_t size = 16;
	snprintf(key, sizeof(key), "%016" PRIx64, id);
	rados_write_op_t op = rados_create_write_op();
	rados_write_op_omap_rm_keys2(op, keys, &size, 1);
	(void)rados_write_op_operate(op, link->io, CLIENTS, NULL, 0);
	rados_release_write_op(op);
}

static int shut_out(struct ceph_link *link, const struct client *client)
{
	char address[sizeof(client->address)];
	memcpy(address, client->address, sizeof(address));
	int error = rados_blocklist_add(link->cluster, address, BLOCKLIST_S);
	if (error) {
		log_error(CEPH_ROOM,
			"client %s cannot be put on the cluster's blocklist: %s; client.%s needs "
			"the capability: mon 'profile rbd'",
			address, strerror(-error), link->store->options->id);
		return error;
	}
	log_warning(CEPH_ROOM, "client %s does not answer; the cluster takes nothing from it now",
		address);
	atomic_fetch_add(&link->store->counted[CEPH_BLOCKLISTED], 1);
	error = rados_wait_for_latest_osdmap(link->cluster);
	if (!error)
		forget_client(link, client->id);
	return error;
}

/* One that we were before we were killed: what it has sent may not arrive after what we send. */
static int shut_out_ancestors(struct ceph_link *link)
{
	struct clients clients = {0};
	int error = list_clients(link, &clients);
	for (size_t i = 0; !error && i < clients.count; i++)
		if (clients.at[i].own == link->store->own && clients.at[i].id != link->id)
			error = shut_out(link, &clients.at[i]);
	free(clients.at);
	return error;
}

static bool has_answered(const struct notify_ack_t *acks, size_t count, uint64_t id)
{
	for (size_t i = 0; i < count; i++)
		if (acks[i].notifier_id == id)
			return true;
	return false;
}

static int notify(
	struct ceph_link *link, uint64_t volume, struct notify_ack_t **acks, size_t *count)
{
	struct notify_timeout_t *late = NULL;
	size_t size = 0, late_count;
	char text[17], *reply = NULL;
	snprintf(text, sizeof(text), "%016" PRIx64, volume);
	/* librados cuts it to whole seconds, and waits for half a minute when none is left */
	uint64_t seconds = (link->store->options->fence_timeout + 999999999) / 1000000000;
	int error = rados_notify2(link->io, CLIENTS, text, 16, seconds * 1000, &reply, &size);
	if (reply && rados_decode_notify_response(reply, size, acks, count, &late, &late_count))
		error = error ? error : -EIO;
	if (reply)
		rados_buffer_free(reply);
	/* the acks are freed by whoever has read them; who was late is not among them */
	if (late)
		rados_free_notify_response(NULL, 0, late);
	return error == -ETIMEDOUT ? 0 : error;
}

int ceph_link_evict(struct ceph_link *link, uint64_t volume, uint64_t writer)
{
	struct notify_ack_t *acks = NULL;
	struct clients clients = {0};
	size_t count = 0;
	int error = notify(link, volume, &acks, &count);
	error = error ? error : list_clients(link, &clients);
	for (size_t i = 0; !error && i < clients.count; i++) {
		const struct client *client = &clients.at[i];
		bool may = writer == CEPH_ANYBODY || client->own == writer;
		if (may && client->id != link->id && !has_answered(acks, count, client->id))
			error = shut_out(link, client);
	}
	rados_free_notify_response(acks, count, NULL);
	free(clients.at);
	return error;
}

/* --- links ---------------------------------------------------------------------------------- */

static void end_link(struct ceph_link *link)
{
	if (link->watching) {
		(void)rados_unwatch2(link->io, link->watch);
		(void)rados_watch_flush(link->cluster);
	}
	if (link->io)
		rados_ioctx_destroy(link->io);
	rados_shutdown(link->cluster);
	free(link);
}

static int make_link(struct ceph_store *store, struct ceph_link **made, char *why, size_t why_size)
{
	struct ceph_link *link = calloc(1, sizeof(*link));
	char name[128];
	if (!link)
		return -ENOMEM;
	link->store = store;
	link->users = 1;
	snprintf(name, sizeof(name), "client.%s", store->options->id);
	int error = rados_create2(&link->cluster, "ceph", name, 0);
	if (error) {
		snprintf(why, why_size, "id: '%s': %s", store->options->id, strerror(-error));
		free(link);
		return error;
	}
	error = log_in(link, why, why_size);
	error = error ? error : check_format(link, why, why_size);
	*why = error ? *why : 0;
	error = error ? error : note_client(link);
	error = error ? error
		      : rados_watch3(link->io, CLIENTS, &link->watch, on_notice, on_watch_error,
				WATCH_S, link);
	link->watching = !error;
	error = error ? error : shut_out_ancestors(link);
	if (error && !*why)
		snprintf(why, why_size, "pool: '%s': this client cannot be noted: %s",
			store->options->pool, strerror(-error));
	if (error)
		end_link(link);
	else
		*made = link;
	return error;
}

struct ceph_link *ceph_link_take(struct ceph_store *store)
{
	pthread_mutex_lock(&store->lock);
	struct ceph_link *link = store->link;
	link->users++;
	pthread_mutex_unlock(&store->lock);
	return link;
}

void ceph_link_give(struct ceph_link *link)
{
	pthread_mutex_lock(&link->store->lock);
	link->users--;
	pthread_mutex_unlock(&link->store->lock);
}

/* Those that have been replaced, once nothing of theirs is under way. */
static void sweep(struct ceph_store *store, bool all)
{
	struct ceph_link *link, *next, *ended = NULL;
	pthread_mutex_lock(&store->lock);
	struct ceph_link **place = &store->dead;
	for (link = store->dead; link; link = next) {
		next = link->next;
		if (link->users && !all) {
			place = &link->next;
			continue;
		}
		*place = next;
		link->next = ended;
		ended = link;
	}
	pthread_mutex_unlock(&store->lock);
	for (; ended; ended = next) {
		next = ended->next;
		end_link(ended);
	}
}

int ceph_link_open(struct ceph_store *store, char *why, size_t why_size)
{
	return make_link(store, &store->link, why, why_size);
}

int ceph_link_renew(struct ceph_store *store, const struct ceph_link *dead)
{
	struct ceph_link *made = NULL;
	char why[256] = "";
	int error = 0;
	pthread_mutex_lock(&store->renewing);
	struct ceph_link *now = ceph_link_take(store);
	if (now == dead)
		error = make_link(store, &made, why, sizeof(why));
	if (made) {
		log_warning(CEPH_ROOM, "%s: the cluster had shut us out; we are in again",
			store->peer->name);
		atomic_fetch_add(&store->counted[CEPH_RECONNECTS], 1);
		pthread_mutex_lock(&store->lock);
		now->users--;
		now->next = store->dead;
		store->dead = now;
		store->link = made;
		pthread_mutex_unlock(&store->lock);
		ceph_fence_forget_all(store);
	}
	ceph_link_give(now);
	sweep(store, false);
	pthread_mutex_unlock(&store->renewing);
	if (error)
		log_error(CEPH_ROOM, "%s: %s", store->peer->name, why);
	return error;
}

void ceph_link_close(struct ceph_store *store)
{
	sweep(store, true);
	if (!store->link)
		return;
	forget_client(store->link, store->link->id);
	end_link(store->link);
	store->link = NULL;
}

int ceph_link_pool(struct ceph_link *link)
{
	char name[256];
	int got = rados_pool_reverse_lookup(
		link->cluster, rados_ioctx_get_id(link->io), name, sizeof(name));
	if (got >= 0)
		return 0;
	return got == -ENOENT ? blocker_rados_error(link->store, -EIO, "the pool is gone") : got;
}
