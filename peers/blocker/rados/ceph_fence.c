/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who may write to which volume: the omap of "fences" has a line for each that was ever claimed,
 *
 *   TERM WRITER BEFORE LINE LEFT      16 hexadecimal digits each, but for LEFT: 0 or 1
 *
 * and what this process knows of it. A claim changes that line, then drives out whoever had the
 * volume, then takes his name (BEFORE) off the line: a claimant that is killed in between leaves
 * it to the next one.
 */
#include <base/must.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "peers/blocker/rados/ceph.h"

#define FENCES "fences"
#define LINE_SIZE 69u /* four numbers, four blanks, a digit */

struct fence {
	uint64_t term, writer, before, line;
	unsigned left;
};

struct line {
	char text[LINE_SIZE + 1];
	size_t size; /* 0: there is none */
	struct fence fence;
};

static void key_of(char key[17], uint64_t volume) { snprintf(key, 17, "%016" PRIx64, volume); }

static int read_line(struct ceph_link *link, uint64_t volume, struct line *line)
{
	char key[17];
	key_of(key, volume);
	*line = (struct line){0};
	int got = ceph_index_get(link, FENCES, key, line->text, LINE_SIZE);
	if (got <= 0)
		return got;
	line->size = (size_t)got;
	struct fence *f = &line->fence;
	int found =
		sscanf(line->text, "%16" SCNx64 " %16" SCNx64 " %16" SCNx64 " %16" SCNx64 " %1u",
			&f->term, &f->writer, &f->before, &f->line, &f->left);
	return found == 5 ? 0 : -EILSEQ;
}

/* If nobody has changed it since it was read. */
static int write_line(
	struct ceph_link *link, uint64_t volume, struct line *line, const struct fence *fence)
{
	struct line now = {.size = LINE_SIZE, .fence = *fence};
	char key[17];
	key_of(key, volume);
	snprintf(now.text, sizeof(now.text),
		"%016" PRIx64 " %016" PRIx64 " %016" PRIx64 " %016" PRIx64 " %u", fence->term,
		fence->writer, fence->before, fence->line, fence->left);
	int error = ceph_index_swap(link, FENCES, key, (struct ceph_value){line->text, line->size},
		(struct ceph_value){now.text, now.size});
	if (!error)
		*line = now;
	return error;
}

/* --- what we know --------------------------------------------------------------------------- */

void ceph_fence_init(struct ceph_store *store)
{
	for (size_t i = 0; i < CEPH_BUCKETS; i++)
		SLIST_INIT(&store->volumes[i]);
}

void ceph_fence_fini(struct ceph_store *store)
{
	for (size_t i = 0; i < CEPH_BUCKETS; i++)
		while (!SLIST_EMPTY(&store->volumes[i])) {
			struct ceph_volume *volume = SLIST_FIRST(&store->volumes[i]);
			SLIST_REMOVE_HEAD(&store->volumes[i], link);
			free(volume);
		}
}

/* With the mutex. NULL: out of memory, or not known and not to be made. */
static struct ceph_volume *find(struct ceph_store *store, uint64_t id, bool make)
{
	struct ceph_volume *volume;
	size_t bucket = (id * 0x9e3779b97f4a7c15u) >> 56;
	SLIST_FOREACH (volume, &store->volumes[bucket], link)
		if (volume->id == id)
			return volume;
	volume = make ? calloc(1, sizeof(*volume)) : NULL;
	if (!volume)
		return NULL;
	volume->id = id;
	SLIST_INIT(&volume->notices);
	SLIST_INSERT_HEAD(&store->volumes[bucket], volume, link);
	return volume;
}

int ceph_fence_enter(struct ceph_store *store, uint64_t id, uint64_t term)
{
	int error = -EAGAIN;
	pthread_mutex_lock(&store->lock);
	struct ceph_volume *volume = find(store, id, true);
	if (!volume)
		error = -ENOMEM;
	else if (volume->claim == CEPH_FREE || volume->claim == CEPH_OURS)
		error = term && term + 1 < volume->line ? -ESTALE : 0;
	else if (volume->claim == CEPH_CLOSED)
		error = -ESTALE;
	if (!error)
		volume->writes++;
	pthread_mutex_unlock(&store->lock);
	if (error == -ESTALE)
		atomic_fetch_add(&store->counted[CEPH_FENCED], 1);
	return error;
}

static void answer_notice(struct ceph_notice *notice)
{
	rados_notify_ack(notice->by->io, "clients", notice->id, notice->watch, NULL, 0);
	ceph_link_give(notice->by);
	free(notice);
}

void ceph_fence_leave(struct ceph_store *store, uint64_t id)
{
	SLIST_HEAD(, ceph_notice) due = SLIST_HEAD_INITIALIZER(due);
	pthread_mutex_lock(&store->lock);
	struct ceph_volume *volume = find(store, id, false);
	must(volume && volume->writes > 0);
	if (--volume->writes == 0 && !SLIST_EMPTY(&volume->notices)) {
		due.slh_first = SLIST_FIRST(&volume->notices);
		SLIST_INIT(&volume->notices);
	}
	pthread_mutex_unlock(&store->lock);
	while (!SLIST_EMPTY(&due)) {
		struct ceph_notice *notice = SLIST_FIRST(&due);
		SLIST_REMOVE_HEAD(&due, link);
		answer_notice(notice);
	}
}

/* On a thread of librados. */
void ceph_fence_let_go(struct ceph_link *link, uint64_t id, uint64_t notice_id, uint64_t watch)
{
	struct ceph_store *store = link->store;
	struct ceph_notice *notice = calloc(1, sizeof(*notice));
	if (!notice)
		return; /* we are shut out then, which is as safe */
	*notice = (struct ceph_notice){.by = link, .id = notice_id, .watch = watch};
	bool now = true;
	pthread_mutex_lock(&store->lock);
	link->users++;
	struct ceph_volume *volume = find(store, id, false);
	if (volume) {
		volume->claim = CEPH_UNKNOWN;
		volume->changes++;
		now = volume->writes == 0;
		if (!now)
			SLIST_INSERT_HEAD(&volume->notices, notice, link);
	}
	pthread_mutex_unlock(&store->lock);
	if (now)
		answer_notice(notice);
}

void ceph_fence_forget_all(struct ceph_store *store)
{
	struct ceph_volume *volume;
	pthread_mutex_lock(&store->lock);
	for (size_t i = 0; i < CEPH_BUCKETS; i++)
		SLIST_FOREACH (volume, &store->volumes[i], link) {
			volume->claim = CEPH_UNKNOWN;
			volume->changes++;
		}
	pthread_mutex_unlock(&store->lock);
}

static uint32_t changes_of(struct ceph_store *store, uint64_t id)
{
	pthread_mutex_lock(&store->lock);
	const struct ceph_volume *volume = find(store, id, true);
	uint32_t changes = volume ? volume->changes : 0;
	pthread_mutex_unlock(&store->lock);
	return changes;
}

/* What the pool said, unless something has happened since `changes`: then it is asked again. */
static void learn(struct ceph_store *store, uint64_t id, const struct line *line, uint32_t changes)
{
	const struct fence *fence = &line->fence;
	bool ours = fence->writer == store->own && !fence->before && !fence->left;
	pthread_mutex_lock(&store->lock);
	struct ceph_volume *volume = find(store, id, true);
	if (volume && volume->changes == changes && !volume->closing) {
		volume->claim = !line->size ? CEPH_FREE : ours ? CEPH_OURS : CEPH_CLOSED;
		volume->line = fence->line;
	}
	pthread_mutex_unlock(&store->lock);
}

/* What of ours begins asks again and again, until close_end(), and what is under way ends. */
static void close_begin(struct ceph_store *store, uint64_t id)
{
	static const struct timespec pause = {.tv_nsec = 200000};
	pthread_mutex_lock(&store->lock);
	struct ceph_volume *volume = find(store, id, true);
	if (volume) {
		volume->claim = CEPH_UNKNOWN;
		volume->changes++;
		volume->closing++;
	}
	while (volume && volume->writes > 0) { /* no longer than timeout= */
		pthread_mutex_unlock(&store->lock);
		nanosleep(&pause, NULL);
		pthread_mutex_lock(&store->lock);
	}
	pthread_mutex_unlock(&store->lock);
}

static void close_end(struct ceph_store *store, uint64_t id)
{
	pthread_mutex_lock(&store->lock);
	struct ceph_volume *volume = find(store, id, false);
	if (volume) {
		volume->changes++;
		volume->closing--;
	}
	pthread_mutex_unlock(&store->lock);
}

/* --- tasks ---------------------------------------------------------------------------------- */

int ceph_fence_ask(struct ceph_task *task, struct ceph_link *link)
{
	uint64_t volume = task->job->key.volume;
	uint32_t changes = changes_of(link->store, volume);
	struct line line;
	int error = read_line(link, volume, &line);
	struct fence again = line.fence;
	if (!error && again.writer == link->store->own && !again.before && again.left) {
		again.left = 0; /* we write to it once more */
		error = write_line(link, volume, &line, &again);
	}
	if (!error)
		learn(link->store, volume, &line, changes);
	return error == -ECANCELED ? 0 : error; /* whoever waits for it asks again */
}

/* May it be claimed like that? *wanted: the line as it is to be, with whom to drive out. */
static int check_claim(const struct ceph_store *store, const struct job *job,
	const struct line *line, struct fence *wanted)
{
	const struct fence *had = &line->fence;
	bool nobody = job->flags & XSEG_F_READ_ONLY;
	bool ours = line->size && had->writer == store->own && !nobody;
	uint64_t term = job->arg1;
	*wanted = (struct fence){.term = term, .writer = nobody ? 0 : store->own, .left = nobody};
	bool same = line->size && had->term == term; /* as before, perhaps by another way */
	wanted->line = job->offset ? job->offset : ours || same ? had->line : term;
	if (line->size && term < had->term)
		return -ESTALE;
	/* his name stays until he is out; when there are two, all have to be asked */
	uint64_t last = !line->size ? CEPH_ANYBODY : had->left || ours ? 0 : had->writer;
	wanted->before = !had->before || had->before == last ? last
			 : last				     ? CEPH_ANYBODY
							     : had->before;
	return 0;
}

static int claim_once(struct ceph_task *task, struct ceph_link *link)
{
	struct ceph_store *store = link->store;
	uint64_t volume = task->job->key.volume;
	struct fence wanted;
	struct line line;
	int error = read_line(link, volume, &line);
	error = error ? error : check_claim(store, task->job, &line, &wanted);
	if (error)
		return error;
	if (!wanted.writer)
		close_begin(store, volume);
	error = write_line(link, volume, &line, &wanted);
	if (!wanted.writer)
		close_end(store, volume);
	if (!error && wanted.before) {
		error = ceph_link_evict(link, volume, wanted.before);
		wanted.before = 0;
		error = error ? error : write_line(link, volume, &line, &wanted);
	}
	/* who claims it meanwhile has lost, or changes the line */
	uint32_t changes = changes_of(store, volume);
	struct line found;
	error = error ? error : read_line(link, volume, &found);
	if (!error && (found.size != line.size || memcmp(found.text, line.text, line.size) != 0))
		error = -ESTALE;
	if (!error)
		learn(store, volume, &found, changes);
	return error;
}

int ceph_fence_claim(struct ceph_task *task, struct ceph_link *link)
{
	int error;
	if (task->job->key.volume == 0 || task->job->arg1 == 0)
		return -EINVAL;
	do
		error = claim_once(task, link);
	while (error == -ECANCELED);
	return error;
}

int ceph_fence_left(struct ceph_task *task, struct ceph_link *link)
{
	uint64_t volume = task->job->key.volume, term = task->job->arg1;
	struct line line;
	int error;
	do {
		error = read_line(link, volume, &line);
		bool is_ours = !error && line.size && line.fence.writer == link->store->own &&
			       (term == 0 || line.fence.term == term);
		if (!is_ours || line.fence.before || line.fence.left)
			return error;
		close_begin(link->store, volume);
		struct fence wanted = line.fence;
		wanted.left = 1;
		error = write_line(link, volume, &line, &wanted);
		close_end(link->store, volume);
	} while (error == -ECANCELED);
	return error;
}

void ceph_fence_forget(struct ceph_link *link, uint64_t volume)
{
	char key[17];
	struct line line;
	key_of(key, volume);
	if (read_line(link, volume, &line) == 0 && line.size)
		(void)ceph_index_swap(link, FENCES, key, (struct ceph_value){line.text, line.size},
			(struct ceph_value){NULL, 0});
	pthread_mutex_lock(&link->store->lock);
	struct ceph_volume *known = find(link->store, volume, false);
	if (known) {
		known->claim = CEPH_UNKNOWN;
		known->changes++;
	}
	pthread_mutex_unlock(&link->store->lock);
}
