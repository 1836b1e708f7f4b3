/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is ours to write to. A volume's home record names this segment as its owner, so whoever is
 * the mapper after us finds what it has to go on renewing, as long as a composer here has it
 * (mapper_holder.c). A change of a volume that nobody has
 * open takes it for that time, under a name that tells: what a killed mapper has left so is given
 * back.
 */
#include <base/clock.h>
#include <base/crash.h>
#include <base/hash.h>
#include <base/log.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "peers/map/mapper.h"

#define LEASE_PARTS 3u	/* renewed so often in its time */
#define LEASE_RETRY 12u /* a renewal that failed, not for good: again after this part of it */

static struct mapper_lease_list *bucket_of(struct mapper_leases *leases, uint64_t id)
{
	return &leases->bucket[(hash_u64(id) >> 32) % MAPPER_BUCKETS];
}

struct mapper_lease *mapper_lease_find(struct mapper_leases *leases, uint64_t id)
{
	struct mapper_lease *lease;
	LIST_FOREACH (lease, bucket_of(leases, id), link)
		if (lease->home.id == id)
			return lease;
	return NULL;
}

static void show_next(struct mapper_leases *leases)
{
	struct mapper_lease *first = TAILQ_FIRST(&leases->order);
	atomic_store(&leases->next_ns, first ? first->renew_ns : UINT64_MAX);
}

/* In order of time; as a rule it is the last. */
static void plan(struct mapper_leases *leases, struct mapper_lease *lease, uint64_t renew_ns)
{
	struct mapper_lease *before = TAILQ_LAST(&leases->order, mapper_lease_queue);
	while (before && before->renew_ns > renew_ns)
		before = TAILQ_PREV(before, mapper_lease_queue, order);
	lease->renew_ns = renew_ns;
	if (before)
		TAILQ_INSERT_AFTER(&leases->order, before, lease, order);
	else
		TAILQ_INSERT_HEAD(&leases->order, lease, order);
	show_next(leases);
}

static void unplan(struct mapper_leases *leases, struct mapper_lease *lease)
{
	if (lease->lost)
		return;
	TAILQ_REMOVE(&leases->order, lease, order);
	show_next(leases);
}

/* --- who asks ------------------------------------------------------------------------------- */

int mapper_lease_known(struct mapper_shared *shared, uint64_t id, struct map_home *home)
{
	struct mapper_leases *leases = &shared->leases;
	pthread_mutex_lock(&leases->lock);
	const struct mapper_lease *lease = mapper_lease_find(leases, id);
	int rc = !lease ? -ENOENT : lease->lost ? -ESTALE : 0;
	*home = lease ? lease->home : (struct map_home){0};
	pthread_mutex_unlock(&leases->lock);
	return rc;
}

void mapper_lease_seen(struct mapper_shared *shared, const struct map_home *home)
{
	struct mapper_leases *leases = &shared->leases;
	pthread_mutex_lock(&leases->lock);
	struct mapper_lease *lease = mapper_lease_find(leases, home->id);
	if (lease && home->owner == lease->home.owner && home->term == lease->home.term)
		lease->home = *home;
	pthread_mutex_unlock(&leases->lock);
}

int mapper_lease_look(struct mapper_shared *shared, uint64_t id, uint64_t *term)
{
	struct map_home home;
	int rc = mapper_lease_known(shared, id, &home);
	*term = home.term;
	return rc;
}

int mapper_lease_add(struct mapper_shared *shared, const struct map_home *home)
{
	struct mapper_leases *leases = &shared->leases;
	int rc = 0;
	pthread_mutex_lock(&leases->lock);
	struct mapper_lease *lease = mapper_lease_find(leases, home->id);
	if (lease) {
		unplan(leases, lease);
		leases->lost -= lease->lost;
	} else if ((lease = calloc(1, sizeof(*lease)))) {
		LIST_INSERT_HEAD(bucket_of(leases, home->id), lease, link);
		leases->count++;
	}
	if (lease) {
		lease->lost = lease->busy = false;
		lease->home = *home;
		lease->holder = (struct mapper_holder){0};
		lease->held_ns = clock_now_ns();
		plan(leases, lease, clock_now_ns() + leases->interval_ns);
	} else {
		rc = -ENOMEM;
	}
	pthread_mutex_unlock(&leases->lock);
	return rc;
}

void mapper_lease_remove(struct mapper_shared *shared, uint64_t id)
{
	struct mapper_leases *leases = &shared->leases;
	pthread_mutex_lock(&leases->lock);
	struct mapper_lease *lease = mapper_lease_find(leases, id);
	if (lease) {
		unplan(leases, lease);
		LIST_REMOVE(lease, link);
		leases->count--;
		leases->lost -= lease->lost;
		free(lease);
	}
	pthread_mutex_unlock(&leases->lock);
}

void mapper_lease_lost(struct mapper_shared *shared, uint64_t id, const struct map_home *found)
{
	struct mapper_leases *leases = &shared->leases;
	pthread_mutex_lock(&leases->lock);
	struct mapper_lease *lease = mapper_lease_find(leases, id);
	bool first = lease && !lease->lost;
	if (first) {
		unplan(leases, lease);
		lease->lost = true;
		leases->lost++;
	}
	pthread_mutex_unlock(&leases->lock);
	if (!first)
		return;
	mapper_memory_forget_volume(&shared->memory, id);
	log_error("mapper_lease",
		"volume %016llx is not ours any more: '%s' has it (term %llu); what is written to "
		"it here is refused",
		(unsigned long long)id, found->owner ? found->host : "nobody",
		(unsigned long long)found->term);
}

int mapper_lease_verify(struct mapper_task *task)
{
	struct mapper_shared *shared = mapper_shared(task);
	struct map_home home = {0};
	uint64_t term;
	int rc = mapper_lease_look(shared, task->volume, &term);
	if (rc == -ESTALE)
		return rc;
	bool known = rc == 0;
	rc = map_home_read(mapper_task_store(task), task->volume, &home);
	if (rc != 0 && rc != -ENOENT)
		return rc;
	if (rc == 0 && home.owner == shared->owner && !(home.flags & MAP_HOME_CHANGING) &&
		(!known || home.term == term))
		return known ? 0 : mapper_lease_add(shared, &home);
	mapper_lease_lost(shared, task->volume, &home);
	return -ESTALE;
}

int mapper_lease_resume(struct mapper_task *task)
{
	struct mapper_shared *shared = mapper_shared(task);
	struct map_store *store = mapper_task_store(task);
	struct map_claim claim = mapper_lease_claim(shared, 0);
	struct map_home home = {0};
	int rc = map_home_read(store, task->volume, &home);
	if (rc != 0 || home.owner != 0 || home.last != shared->owner)
		return mapper_lease_verify(task);
	rc = map_home_acquire(store, task->volume, &claim, false, &home);
	crash_point("mapper.lease.resumed");
	if (rc == 0 && home.line == home.term) { /* somebody was faster, and gave it back */
		map_home_release(store, task->volume, shared->owner, home.term);
		rc = -ESTALE;
	}
	if (rc == 0)
		rc = mapper_lease_add(shared, &home);
	if (rc == 0)
		mapper_holder_note(task);
	return rc == -EBUSY ? -ESTALE : rc;
}

/* --- renewals ------------------------------------------------------------------------------- */

bool mapper_lease_turn(struct mapper_shard *shard, uint64_t now_ns)
{
	struct mapper_shared *shared = shard->shared;
	struct mapper_leases *leases = &shared->leases;
	bool moved = false;
	while (atomic_load(&leases->next_ns) <= now_ns) {
		uint64_t id = 0;
		pthread_mutex_lock(&leases->lock);
		struct mapper_lease *lease = TAILQ_FIRST(&leases->order);
		if (lease && lease->renew_ns <= now_ns) {
			unplan(leases, lease);
			plan(leases, lease, now_ns + leases->interval_ns);
			id = lease->busy ? 0 : lease->home.id;
			lease->busy = true;
		}
		pthread_mutex_unlock(&leases->lock);
		moved = true;
		if (id != 0 && mapper_task_own(shard, &mapper_kind_renew, id) != 0)
			break;
	}
	return moved;
}

static void renewed(struct mapper_leases *leases, uint64_t id, const struct map_home *home, int rc)
{
	pthread_mutex_lock(&leases->lock);
	struct mapper_lease *lease = mapper_lease_find(leases, id);
	if (lease) {
		lease->busy = false;
		if (rc == 0)
			lease->home = *home;
		if (rc != 0 && !lease->lost) {
			uint64_t part = leases->interval_ns * LEASE_PARTS / LEASE_RETRY;
			unplan(leases, lease);
			plan(leases, lease, clock_now_ns() + part);
		}
	}
	pthread_mutex_unlock(&leases->lock);
}

int mapper_lease_renew(struct mapper_task *task)
{
	struct mapper_shared *shared = mapper_shared(task);
	struct map_claim claim = mapper_lease_claim(shared, 0);
	struct map_home home;
	if (mapper_lease_known(shared, task->volume, &home) != 0)
		return 0; /* given back meanwhile */
	if (mapper_holder_gone(shared, task->volume)) {
		int gone = mapper_holder_release(task, home.term);
		if (gone != 0)
			renewed(&shared->leases, task->volume, &home, gone);
		return gone;
	}
	int rc = map_home_renew(mapper_task_store(task), task->volume, &claim, home.term, &home);
	crash_point("mapper.lease.renewed");
	if (rc == -ESTALE) {
		mapper_lease_lost(shared, task->volume, &home);
		return 0;
	}
	if (rc != 0)
		log_warning("mapper_lease", "the lease of volume %016llx cannot be renewed now: %s",
			(unsigned long long)task->volume, strerror(-rc));
	renewed(&shared->leases, task->volume, &home, rc);
	return rc;
}

/* A home record that names our segment, found when we began. */
int mapper_lease_adopt(struct mapper_task *task)
{
	struct mapper_shared *shared = mapper_shared(task);
	struct map_store *store = mapper_task_store(task);
	struct map_home home;
	uint64_t term;
	int rc = map_home_read(store, task->volume, &home);
	if (rc != 0 || home.owner != shared->owner)
		return rc == -ENOENT ? 0 : rc;
	if (home.flags & MAP_HOME_CHANGING)
		return map_home_release(store, task->volume, shared->owner, home.term);
	if (mapper_lease_look(shared, task->volume, &term) != -ENOENT)
		return 0;
	rc = mapper_lease_add(shared, &home);
	return rc != 0 ? rc : mapper_lease_renew(task);
}

/* --- for the time of a change --------------------------------------------------------------- */

struct map_claim mapper_lease_claim(struct mapper_shared *shared, uint32_t flags)
{
	return (struct map_claim){.owner = shared->owner,
		.now_ns = time_wall_ns(),
		.boot_ns = time_now_ns(CLOCK_BOOTTIME),
		.lease_ns = shared->options->lease_ns,
		.host = shared->host,
		.flags = flags,
		.place = shared->place,
		.boot = shared->boot,
		.watch = &shared->watch};
}

int mapper_lease_guard_begin(struct mapper_task *task, uint64_t id)
{
	struct mapper_shared *shared = mapper_shared(task);
	struct map_store *store = mapper_task_store(task);
	struct map_claim claim = mapper_lease_claim(shared, MAP_HOME_CHANGING);
	struct map_home home = {0};
	uint64_t term;
	if (mapper_lease_look(shared, id, &term) == 0)
		return 0;
	int rc = map_home_read(store, id, &home);
	if (rc != 0 && rc != -ENOENT)
		return rc;
	if (rc == 0 && home.owner == shared->owner && !(home.flags & MAP_HOME_CHANGING))
		return mapper_lease_add(shared, &home);
	rc = map_home_acquire(store, id, &claim, false, &home);
	crash_point("mapper.lease.guarded");
	if (rc == -EBUSY)
		mapper_task_blame_owner(task, &home);
	if (rc != 0)
		return rc;
	task->guarded = id;
	task->guard_term = home.term;
	return mapper_store_fence(&task->store, id, &home, 0);
}

void mapper_lease_guard_end(struct mapper_task *task)
{
	struct mapper_shared *shared = mapper_shared(task);
	int rc = map_home_release(
		mapper_task_store(task), task->guarded, shared->owner, task->guard_term);
	if (rc != 0 && rc != -ESHUTDOWN)
		log_warning("mapper_lease",
			"volume %016llx could not be given back: %s; it is ours until its lease "
			"ends",
			(unsigned long long)task->guarded, strerror(-rc));
	task->guarded = 0;
}

void mapper_lease_open(struct mapper_shared *shared)
{
	struct mapper_leases *leases = &shared->leases;
	must(pthread_mutex_init(&leases->lock, NULL) == 0);
	TAILQ_INIT(&leases->order);
	for (unsigned i = 0; i < MAPPER_BUCKETS; i++)
		LIST_INIT(&leases->bucket[i]);
	leases->interval_ns = shared->options->lease_ns / LEASE_PARTS;
	atomic_store(&leases->next_ns, UINT64_MAX);
}

void mapper_lease_close(struct mapper_shared *shared)
{
	struct mapper_leases *leases = &shared->leases;
	for (unsigned i = 0; i < MAPPER_BUCKETS; i++) {
		struct mapper_lease *lease;
		while ((lease = LIST_FIRST(&leases->bucket[i]))) {
			LIST_REMOVE(lease, link);
			free(lease);
		}
	}
	pthread_mutex_destroy(&leases->lock);
}
