/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What to fetch, and what not. Who reads in order gets what comes next before it is asked for, or,
 * when that is too much to be kept, is passed on. And where what was fetched is read again so
 * seldom that the store's time is less than ours, most misses are passed on: a fill costs more than
 * it saves.
 */
#include "peers/cache/cache.h"
#include "peers/cache/cache_work.h"

#define AHEAD_LEAST 65536u    /* bytes */
#define AHEAD_READS 4u	      /* in a row, before anything is read ahead */
#define WORTH_FILLS_MIN 512u  /* buckets fetched, before it is looked at what they were worth: */
#define WORTH_FILLS_MAX 8192u /* an eighth of the cache, so that they have had their time */
#define WORTH_SHARE 4u	      /* read again: one of so many is always worth it */
#define WORTH_TRY 64u	      /* one miss in so many is fetched all the same */
#define WORTH_COST_NS 4000u   /* of a fill: copied, another one evicted */

static uint64_t stream_place(const struct job *job)
{
	return (uint64_t)job->key.object << 22 | job->offset;
}

/* The stream that this read continues, or begins. */
static struct cache_stream *stream_of(struct cache_local *local, const struct job *job)
{
	uint64_t place = stream_place(job);
	struct cache_stream *stream = NULL;
	for (unsigned i = 0; i < CACHE_STREAMS && !stream; i++)
		if (local->streams[i].next == place && local->streams[i].length)
			stream = &local->streams[i];
	if (!stream) {
		stream = &local->streams[local->stream_next++ % CACHE_STREAMS];
		*stream = (struct cache_stream){0};
	}
	stream->next = place + job->length;
	stream->length += job->length;
	return stream;
}

static void stream_ahead(struct peer *peer, struct cache_object *object, const struct job *job,
	struct cache_stream *stream)
{
	uint64_t most = cache_options(peer)->read_ahead;
	uint64_t from = stream->until > stream->next ? stream->until : stream->next;
	if (!most || stream->length < (uint64_t)AHEAD_READS * job->length ||
		from - stream->next > stream->ahead / 2)
		return;
	uint64_t ahead = stream->ahead ? 2ull * stream->ahead : AHEAD_LEAST;
	ahead = ahead < most ? ahead : most;
	if (from >> 22 != job->key.object)
		return; /* the next object is another shard's */
	stream->ahead = (uint32_t)ahead;
	stream->until = from + ahead;
	uint32_t first = (uint32_t)(from % XSEG_OBJECT_MAX) / XSEG_PAGE;
	cache_fill_ahead(peer, object, first, (uint32_t)((ahead + XSEG_PAGE - 1) / XSEG_PAGE));
}

bool cache_stream_read(struct peer *peer, struct cache_object *object, const struct job *job)
{
	uint64_t bypass = cache_options(peer)->bypass;
	struct cache_stream *stream = stream_of(object->local, job);
	if (bypass && stream->length > bypass)
		return true;
	stream_ahead(peer, object, job, stream);
	return false;
}

void cache_stream_follow(struct peer *peer, struct cache_object *object, const struct job *job)
{
	cache_stream_read(peer, object, job);
}

/* --- what fills are worth --------------------------------------------------------------- */

/* A bucket that comes takes another one's place, or a whole object's. */
static bool worth_is_full(const struct cache *cache)
{
	return xcache_room(cache->index) == 0 ||
	       xcache_object_count(cache->index) >= cache->objects_max;
}

static uint32_t worth_fills(const struct cache *cache)
{
	uint32_t part = xcache_count(cache->index) / 8;
	part = part < WORTH_FILLS_MAX ? part : WORTH_FILLS_MAX;
	return part > WORTH_FILLS_MIN ? part : WORTH_FILLS_MIN;
}

bool cache_stream_skips(struct cache *cache, struct cache_local *local)
{
	struct cache_worth *worth = &local->worth;
	return worth->low && worth_is_full(cache) && worth->misses++ % WORTH_TRY != 0;
}

/*
 * Only of a full cache: before, what is fetched takes nobody's place. A fill that is read again
 * saves what the store takes: not until the answer is there, that may be our own queue, but for
 * how long the lane had nothing else to do meanwhile.
 */
void cache_stream_paid(
	struct cache *cache, struct cache_local *local, uint32_t count, uint64_t idle_ns)
{
	struct cache_worth *worth = &local->worth;
	if (!worth_is_full(cache))
		return;
	worth->fills += count;
	worth->idle_ns += idle_ns;
	worth->calls++;
	if (worth->fills < worth_fills(cache))
		return;
	uint64_t saved_ns = worth->idle_ns / worth->calls * worth->again;
	worth->low = worth->again * WORTH_SHARE < worth->fills &&
		     saved_ns < (uint64_t)worth->fills * WORTH_COST_NS;
	worth->fills = worth->again = worth->calls = 0;
	worth->idle_ns = 0;
}
