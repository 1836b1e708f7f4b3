/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What to fetch, and what not. Who reads in order gets what comes next before it is asked for, or,
 * when that is too much to be kept, bypasses the cache; so do most misses where what was fetched
 * is not worth its place (cache_admit.h).
 */
#include "peers/cache/cache.h"
#include "peers/cache/cache_work.h"

#define AHEAD_LEAST 65536u /* bytes */
#define AHEAD_READS 4u	   /* in a row, before anything is read ahead */
#define WINDOW_MIN 512u	   /* buckets fetched, before it is looked at what they were worth */
#define WINDOW_MAX 8192u

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
	cache_fill_ahead(
		peer, object, NULL, first, (uint32_t)((ahead + XSEG_PAGE - 1) / XSEG_PAGE));
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

/* --- admission -------------------------------------------------------------------------- */

/* Before, what is fetched takes nobody's place. */
static bool is_full(const struct cache *cache)
{
	return xcache_room(cache->index) == 0 ||
	       xcache_object_count(cache->index) >= cache->objects_max;
}

/* An eighth of the cache: those that came have had their time by then. */
static uint32_t window(const struct cache *cache)
{
	uint32_t part = xcache_count(cache->index) / 8;
	part = part < WINDOW_MAX ? part : WINDOW_MAX;
	return part > WINDOW_MIN ? part : WINDOW_MIN;
}

bool cache_stream_skips(struct cache *cache, struct cache_local *local)
{
	return local->reads.bypasses && is_full(cache) && !cache_admit(&local->reads);
}

void cache_stream_paid(
	struct cache *cache, struct cache_local *local, uint32_t count, uint64_t idle_ns)
{
	if (!is_full(cache))
		return;
	cache_admit_call(&local->reads, idle_ns);
	cache_admit_came(&local->reads, count, window(cache), &local->volume->read_bypass);
}
