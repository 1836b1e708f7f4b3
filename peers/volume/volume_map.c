/* SPDX-License-Identifier: Apache-2.0 */
/* Brings pages of a volume's map from the mapper, once for all who want one. */
#include "peers/volume/volume_map.h"

#include <base/crash.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "peers/volume/volume_intent.h"

#define ANSWER_BYTES (MAP_ANSWER_AT + MAP_PAGE_ENTRIES * sizeof(uint64_t))

/* Questions of one shard at a time: the mapper needs slots, too, to answer them. */
#define FETCHES_MAX 16u

/* A page that is on its way to this shard. */
struct map_fetch {
	struct volume_step step; /* first */
	TAILQ_ENTRY(map_fetch) link;
	uint64_t id; /* of the volume; it may be gone when the answer comes */
	uint32_t page, forgets;
	bool sent;
	struct job_queue jobs;
	TAILQ_HEAD(, volume_wish) wishes;
};

/* An entry that names an owner that we do not know would lead anywhere. */
static int check(const struct volume *volume, const struct volume_page *page)
{
	for (uint32_t i = 0; i < MAP_PAGE_ENTRIES; i++) {
		uint64_t word = atomic_load_explicit(&page->entry[i], memory_order_relaxed);
		if (word != 0 && (map_word_epoch(word) == 0 || map_word_owner(word) >= MAP_OWNERS ||
					 volume->owners[map_word_owner(word)] == 0))
			return -EILSEQ;
	}
	return 0;
}

static int take(struct map_fetch *fetch, const struct call *call)
{
	struct peer *peer = fetch->step.peer;
	struct volume *volume = volume_table_lookup(peer, fetch->id);
	if (call->result != 0)
		return call->result;
	if (call->answer_length < ANSWER_BYTES)
		return -EPROTO;
	if (!volume || !volume->pages)
		return -ENOENT;
	struct volume_page *page = malloc(sizeof(*page));
	if (!page)
		return -ENOMEM;
	call_get_bytes(call, MAP_ANSWER_AT, page, sizeof(*page));
	int rc = check(volume, page);
	/* not taken: another shard was faster, and entries have moved since, perhaps; or it was
	   asked too early, and whoever waits asks again */
	if (rc != 0 || !volume_intent_install(peer, volume, fetch->page, page, fetch->forgets))
		free(page);
	return rc;
}

static void fetch_next(struct volume_shard *shard);

static void fetched(struct call *call)
{
	struct map_fetch *fetch = call->context;
	struct peer *peer = fetch->step.peer;
	struct volume_shard *shard = peer->state;
	struct volume_wish *wish;
	struct job *job;
	int rc = take(fetch, call);
	call_end(call);
	TAILQ_REMOVE(&shard->fetches, fetch, link);
	peer_count(peer, VOLUME_PAGES, rc == 0);
	while ((wish = TAILQ_FIRST(&fetch->wishes))) {
		TAILQ_REMOVE(&fetch->wishes, wish, link);
		wish->found(wish, rc);
	}
	while ((job = TAILQ_FIRST(&fetch->jobs))) {
		TAILQ_REMOVE(&fetch->jobs, job, link);
		if (rc != 0)
			job_fail(job, rc);
		else
			peer->ops->on[job->op](peer, job);
	}
	free(fetch);
	fetch_next(shard);
}

static void fetch_send(struct volume_step *step)
{
	struct map_fetch *fetch = (struct map_fetch *)step;
	struct call *call = volume_step_call(step, fetch_send, XSEG_OP_CONTROL,
		(struct xseg_key){.volume = fetch->id}, ANSWER_BYTES);
	if (!call)
		return;
	call->arg0 = MAP_PAGE;
	call->arg1 = fetch->page;
	call_submit(call, VOLUME_MAP, fetched);
}

/* The oldest that waits goes, if there are not too many on their way. */
static void fetch_next(struct volume_shard *shard)
{
	struct map_fetch *fetch, *next = NULL;
	unsigned sent = 0;
	TAILQ_FOREACH (fetch, &shard->fetches, link) {
		sent += fetch->sent;
		if (!fetch->sent && !next)
			next = fetch;
	}
	if (!next || sent >= FETCHES_MAX)
		return;
	next->sent = true;
	fetch_send(&next->step);
}

static struct map_fetch *fetch_find(const struct volume_shard *shard, uint64_t id, uint32_t page)
{
	struct map_fetch *fetch;
	TAILQ_FOREACH (fetch, &shard->fetches, link)
		if (fetch->id == id && fetch->page == page)
			return fetch;
	return NULL;
}

/* NULL: no memory. */
static struct map_fetch *fetch_get(struct peer *peer, const struct volume *volume, uint32_t object)
{
	struct volume_shard *shard = peer->state;
	uint32_t page = object / MAP_PAGE_ENTRIES;
	struct map_fetch *fetch = fetch_find(shard, volume->id, page);
	if (fetch)
		return fetch;
	fetch = calloc(1, sizeof(*fetch));
	if (!fetch)
		return NULL;
	fetch->step.peer = peer;
	fetch->id = volume->id;
	fetch->page = page;
	fetch->forgets = atomic_load_explicit(&volume->forgets, memory_order_acquire);
	TAILQ_INIT(&fetch->jobs);
	TAILQ_INIT(&fetch->wishes);
	TAILQ_INSERT_TAIL(&shard->fetches, fetch, link);
	return fetch;
}

void volume_map_want(struct peer *peer, struct volume *volume, uint32_t object, struct job *job)
{
	struct map_fetch *fetch = fetch_get(peer, volume, object);
	if (!fetch) {
		job_fail(job, -ENOMEM);
		return;
	}
	TAILQ_INSERT_TAIL(&fetch->jobs, job, link);
	fetch_next(peer->state);
}

void volume_map_wish(
	struct peer *peer, struct volume *volume, uint32_t object, struct volume_wish *wish)
{
	struct map_fetch *fetch = fetch_get(peer, volume, object);
	if (!fetch) {
		wish->found(wish, -ENOMEM);
		return;
	}
	TAILQ_INSERT_TAIL(&fetch->wishes, wish, link);
	fetch_next(peer->state);
}

bool volume_map_move(struct volume *volume, uint32_t object, uint64_t from, uint64_t to)
{
	struct volume_page *page = volume_map_page(volume, object);
	return atomic_compare_exchange_strong_explicit(&page->entry[object % MAP_PAGE_ENTRIES],
		&from, to, memory_order_release, memory_order_relaxed);
}

void volume_map_forget(struct volume *volume)
{
	if (!volume->pages)
		return;
	/* first: what is on its way now is not to be believed */
	atomic_fetch_add_explicit(&volume->forgets, 1, memory_order_release);
	for (uint32_t i = 0; i < VOLUME_PAGES_MAX; i++) /* most were never there */
		if (atomic_load_explicit(&volume->pages[i], memory_order_acquire))
			free(atomic_exchange_explicit(
				&volume->pages[i], NULL, memory_order_acq_rel));
}
