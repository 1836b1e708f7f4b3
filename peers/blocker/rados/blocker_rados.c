/* SPDX-License-Identifier: Apache-2.0 */
/* The RADOS blocker: objects in a pool of a Ceph cluster. */
#include <base/log.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "peers/blocker/rados/ceph.h"

#define TRIES 4 /* with a new link each, when the cluster shuts us out again and again */

static const struct peer_option rados_options[] = {
	OPTION_TEXT(struct ceph_options, pool, "pool", .required = true,
		.help = "pool that holds the objects; replicated, it must exist"),
	OPTION_TEXT(struct ceph_options, name_space, "namespace", .initial = "skerry", .max = 64,
		.help = "of the pool: stores in one pool are kept apart by it"),
	OPTION_TEXT(struct ceph_options, conf, "conf",
		.help = "the cluster's configuration; CEPH_CONF and /etc/ceph/ceph.conf otherwise"),
	OPTION_TEXT(struct ceph_options, id, "id", .initial = "admin", .max = 64,
		.help = "who we are to the cluster: client.ID"),
	OPTION_TEXT(struct ceph_options, key_file, "key-file",
		.help = "keyring with its secret; as the configuration says otherwise"),
	OPTION_TIME(struct ceph_options, timeout, "timeout", .min = 1000000000, .initial = "30s",
		.help = "a request that the cluster does not answer for so long fails: ETIMEDOUT"),
	OPTION_TIME(struct ceph_options, fence_timeout, "fence-timeout", .min = 1000000000,
		.initial = "3s",
		.help = "another host's client that does not answer for so long when a volume is "
			"taken from it is put on the blocklist"),
	OPTION_END,
};

static const struct xseg_counter rados_counters[] = {
	[CEPH_MAKES] = {"makes", "", "objects made"},
	[CEPH_ABSENT_READS] = {"absent_reads", "", "reads of objects that are not there"},
	[CEPH_FENCED] = {"fenced", "", "writes refused because another host has the volume"},
	[CEPH_RECONNECTS] = {"reconnects", "", "times the cluster had shut us out"},
	[CEPH_BLOCKLISTED] = {"blocklisted", "", "clients put on the cluster's blocklist"},
	[CEPH_CAS_RETRIES] = {"cas_retries", "", "records that changed while they were changed"},
	[CEPH_ERRORS] = {"errors", "", "requests that the cluster failed"},
	[CEPH_COUNTERS] = {NULL, NULL, NULL},
};

/* --- errors --------------------------------------------------------------------------------- */

/* An answer like any other, and none of the cluster's doing. */
static bool is_plain(int error)
{
	return error == -ESTALE || error == -EEXIST || error == -EINVAL || error == -EMSGSIZE ||
	       error == -E2BIG || error == -ENOMEM || error == -EOPNOTSUPP;
}

int blocker_rados_error(struct ceph_store *store, int error, const char *what)
{
	if (error == -EDQUOT)
		error = -ENOSPC;
	if (is_plain(error))
		return error;
	atomic_fetch_add(&store->counted[CEPH_ERRORS], 1);
	if (atomic_exchange(&store->said, error) != error)
		log_error(CEPH_ROOM, "%s: pool '%s': %s: %s", store->peer->name,
			store->options->pool, what, strerror(-error));
	return error == -ENOENT || error == -ESHUTDOWN ? -EIO : error;
}

/* --- tasks ---------------------------------------------------------------------------------- */

static void task_run(struct worker_item *item)
{
	struct ceph_task *task = (struct ceph_task *)item;
	struct ceph_store *store = ceph_store_of(task->job);
	task->answer = -ESHUTDOWN;
	for (int i = 0, error = 0; i < TRIES && task->answer == -ESHUTDOWN; i++) {
		struct ceph_link *link = ceph_link_take(store);
		task->answer = task->act(task, link);
		if (task->answer == -ESHUTDOWN)
			error = ceph_link_renew(store, link);
		ceph_link_give(link);
		task->answer = error ? error : task->answer;
	}
}

static void task_done(struct worker_item *item)
{
	struct ceph_task *task = (struct ceph_task *)item;
	task->then(task);
}

void blocker_rados_answer(struct ceph_task *task)
{
	struct job *job = task->job;
	bool may_be_absent = job->op == XSEG_OP_INFO || job->op == XSEG_OP_CAS;
	if (task->answer >= 0)
		atomic_store(&ceph_store_of(job)->said, 0);
	else if (!may_be_absent || task->answer != -ENOENT)
		task->answer =
			blocker_rados_error(ceph_store_of(job), task->answer, "a request failed");
	store_answer(job, task->answer, task->value);
	free(task);
}

void blocker_rados_work(struct job *job, int (*act)(struct ceph_task *, struct ceph_link *),
	void (*then)(struct ceph_task *))
{
	struct ceph_task *task = calloc(1, sizeof(*task));
	if (!task) {
		peer_fatal(job->peer, "out of memory");
		return;
	}
	task->job = job;
	task->act = act;
	task->then = then;
	worker_run(job->peer, &task->item, task_run, task_done);
}

/* --- operations ----------------------------------------------------------------------------- */

static void rados_control(struct peer *peer, struct job *job)
{
	(void)peer;
	if (job->arg0 == XSEG_CONTROL_FENCE)
		blocker_rados_work(job, ceph_fence_claim, blocker_rados_answer);
	else if (job->arg0 == XSEG_CONTROL_LEAVE)
		blocker_rados_work(job, ceph_fence_left, blocker_rados_answer);
	else
		job_fail(job, -EOPNOTSUPP);
}

static void rados_deleted(struct ceph_task *task)
{
	ceph_data_deleted(task->job);
	blocker_rados_answer(task);
}

void blocker_rados_take(struct peer *peer, struct job *job)
{
	switch (job->op) {
	case XSEG_OP_DELETE:
		ceph_data_deleted(job);
		blocker_rados_work(job, ceph_object_delete, rados_deleted);
		break;
	case XSEG_OP_INFO: blocker_rados_work(job, ceph_object_info, blocker_rados_answer); break;
	case XSEG_OP_STATUS:
		blocker_rados_work(job, ceph_object_status, blocker_rados_answer);
		break;
	case XSEG_OP_LIST: blocker_rados_work(job, ceph_index_list, blocker_rados_answer); break;
	case XSEG_OP_CAS: blocker_rados_work(job, ceph_index_cas, blocker_rados_answer); break;
	case XSEG_OP_CONTROL: rados_control(peer, job); break;
	case XSEG_OP_FLUSH:
	case XSEG_OP_PREFETCH:
		/* a write is safe when it is answered */
		job_complete(job, 0);
		break;
	default: ceph_data_take(job);
	}
}

/* --- the peer ------------------------------------------------------------------------------- */

static int rados_open(struct peer *first, char *why, size_t why_size)
{
	struct ceph_store *store = first->shared;
	char place[512];
	store->peer = first;
	store->options = first->options;
	store->own = home_writer(first);
	pthread_mutex_init(&store->lock, NULL);
	pthread_mutex_init(&store->renewing, NULL);
	for (size_t i = 0; i < CEPH_MAKERS; i++)
		pthread_mutex_init(&store->making[i], NULL);
	ceph_fence_init(store);
	int error = ceph_link_open(store, why, why_size);
	if (error)
		return error;
	snprintf(place, sizeof(place), "%s/%s", store->options->pool,
		store->options->name_space ? store->options->name_space : "");
	error = home_check(first, place, store->identity, store->home, why, why_size);
	if (error)
		ceph_link_close(store);
	return error;
}

static void rados_close(struct peer *first)
{
	struct ceph_store *store = first->shared;
	ceph_link_close(store);
	ceph_fence_fini(store);
	unlink(store->home);
}

static int rados_start(struct peer *peer, char *why, size_t why_size)
{
	(void)why;
	(void)why_size;
	ceph_data_start(peer);
	return 0;
}

/* What other threads have counted. */
static bool rados_poll(struct peer *peer)
{
	struct ceph_store *store = peer->shared;
	for (unsigned i = 0; peer->shard == 0 && i < CEPH_COUNTERS; i++)
		if (atomic_load_explicit(&store->counted[i], memory_order_relaxed))
			peer_count(peer, i, atomic_exchange(&store->counted[i], 0));
	return false;
}

static const struct peer_ops rados_ops = {
	.name = "blocker_rados",
	.summary = "objects in a pool of a Ceph cluster",
	.serves = "store",
	.description = "A write is on all of its OSDs when it is answered, so a flush has nothing "
		       "to do. Any "
		       "number of hosts may serve one pool: a volume is written to by the one that "
		       "claimed it "
		       "last, and the cluster takes nothing late from the others "
		       "(docs/fencing.md). The id "
		       "needs the capabilities mon 'profile rbd', osd 'allow rwx pool=POOL'.\n",
	.options = rados_options,
	.options_size = sizeof(struct ceph_options),
	.counters = rados_counters,
	.shared_size = sizeof(struct ceph_store),
	.state_size = sizeof(struct ceph_shard),
	.start = rados_start,
	.open = rados_open,
	.close = rados_close,
	.poll = rados_poll,
	.on = {[XSEG_OP_READ... XSEG_OP_CAS] = blocker_rados_take,
		[XSEG_OP_INFO... XSEG_OP_LIST] = blocker_rados_take,
		[XSEG_OP_CONTROL] = blocker_rados_take},
};
PEER_MODULE(rados_ops);
