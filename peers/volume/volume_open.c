/* SPDX-License-Identifier: Apache-2.0 */
/* Who has a volume open, and so may go on without being looked at. */
#include <errno.h>
#include <string.h>
#include <xseg/registry.h>

#include "peers/volume/volume.h"

struct volume_client volume_open_client(const struct peer *peer, const struct job *job)
{
	const struct xseg *seg = peer_segment(peer);
	uint16_t epoch = *(const volatile uint16_t *)&seg->requests[job->slot].client_epoch;
	return (struct volume_client){.lane = job->client % XSEG_LANES_MAX, .epoch = epoch};
}

/* With the mutex. The client's own entry; a lane of that number before it is dead. */
static struct volume_opener *opener_of(struct volume *volume, struct volume_client client)
{
	struct volume_opener *opener = &volume->opener[client.lane];
	if (opener->epoch != client.epoch)
		*opener = (struct volume_opener){.epoch = client.epoch};
	return opener;
}

/* Who is admitted may write, too: so one that is not ours to write to, and might be, admits
   nobody. */
static void admit_set(struct volume *volume, struct volume_client client)
{
	bool simple = volume->acquired || volume->configured || volume->read_only;
	if (simple && !volume->quiesce && !volume->limit && !volume_is_lost(volume))
		atomic_fetch_or_explicit(
			&volume->admitted, 1ull << client.lane, memory_order_relaxed);
}

static void admit_clear(struct volume *volume, unsigned lane)
{
	atomic_fetch_and_explicit(&volume->admitted, ~(1ull << lane), memory_order_relaxed);
}

bool volume_open_is_leaving(const struct volume *volume)
{
	return volume->state == XSEG_VOLUME_REMOVING || volume->state == VOLUME_GONE;
}

void volume_open_admit(struct volume *volume, struct volume_client client)
{
	struct volume_opener *opener = opener_of(volume, client);
	if (opener->count == 0)
		opener->implied = true;
	admit_set(volume, client);
}

int volume_open_add(struct peer *peer, struct volume *volume, struct volume_client client,
	bool writes, uint64_t again)
{
	int rc = 0;
	pthread_mutex_lock(&volume_shared(peer)->lock);
	if (volume_open_is_leaving(volume)) {
		rc = -EBUSY;
	} else if (writes && volume->read_only) {
		rc = -EROFS;
	} else {
		struct volume_opener *opener = opener_of(volume, client);
		uint64_t count = again != 0 ? again : opener->count + 1u;
		if (count > opener->count && count < UINT32_MAX)
			opener->count = (uint32_t)count;
		opener->implied &= again == 0; /* it tells us all that it has open */
		admit_set(volume, client);
	}
	pthread_mutex_unlock(&volume_shared(peer)->lock);
	return rc;
}

void volume_open_unnotice(struct volume *volume, unsigned lane)
{
	if (volume->opener[lane].implied && volume->opener[lane].count == 0)
		admit_clear(volume, lane);
	volume->opener[lane].implied = false;
}

/*
 * More closes than opens: they were opened before this process began. Whoever works on without
 * is noticed again at his next request.
 */
bool volume_open_remove(struct peer *peer, struct volume *volume, struct volume_client client)
{
	pthread_mutex_lock(&volume_shared(peer)->lock);
	struct volume_opener *opener = opener_of(volume, client);
	if (opener->count > 0) {
		opener->count--;
	} else {
		opener->implied = false;
		admit_clear(volume, client.lane);
	}
	bool last =
		volume->acquired && volume_open_count_locked(peer, volume, VOLUME_NO_CLIENT) == 0;
	pthread_mutex_unlock(&volume_shared(peer)->lock);
	return last;
}

uint32_t volume_open_count_locked(
	struct peer *peer, struct volume *volume, struct volume_client but)
{
	uint32_t count = 0;
	for (unsigned lane = 0; lane < XSEG_LANES_MAX; lane++) {
		struct volume_opener *opener = &volume->opener[lane];
		if (opener->count == 0 && !opener->implied)
			continue;
		if (!xseg_lane_alive(peer_segment(peer), lane, opener->epoch)) {
			*opener = (struct volume_opener){0};
			admit_clear(volume, lane);
			continue;
		}
		bool own = lane == but.lane && opener->epoch == but.epoch;
		count += opener->count + (opener->implied && opener->count == 0 && !own);
	}
	return count;
}

uint32_t volume_open_count(struct peer *peer, struct volume *volume, struct volume_client but)
{
	pthread_mutex_lock(&volume_shared(peer)->lock);
	uint32_t count = volume_open_count_locked(peer, volume, but);
	pthread_mutex_unlock(&volume_shared(peer)->lock);
	return count;
}

/* Whoever died and was not reaped yet counts as alive here: a little later he does not. */
static bool lane_is_gone(const struct xseg *seg, unsigned lane, uint16_t epoch)
{
	uint64_t word = atomic_load_explicit(&seg->lanes[lane].word, memory_order_acquire);
	unsigned life = xseg_life_of(word);
	return xseg_epoch_of(word) != epoch || life == XSEG_LIFE_FREE || life == XSEG_LIFE_DEAD;
}

bool volume_open_is_unused(const struct peer *peer, const struct volume *volume)
{
	for (unsigned lane = 0; lane < XSEG_LANES_MAX; lane++) {
		const struct volume_opener *opener = &volume->opener[lane];
		if ((opener->count > 0 || opener->implied) &&
			!lane_is_gone(peer_segment(peer), lane, opener->epoch))
			return false;
	}
	return true;
}

void volume_open_describe(struct peer *peer, struct volume *volume, struct xseg_volume_info *info)
{
	const struct map_head_info *head = &volume->head;
	memset(info, 0, sizeof(*info));
	pthread_mutex_lock(&volume_shared(peer)->lock);
	info->id = volume->id;
	info->size = atomic_load_explicit(&volume->size, memory_order_relaxed);
	info->object_size = 1u << volume->object_shift;
	info->state = volume->state == VOLUME_GONE ? XSEG_VOLUME_REMOVING : volume->state;
	if (volume->configured)
		info->objects = ((info->size - 1) >> volume->object_shift) + 1;
	info->created_ns = head->created_ns;
	info->parent = head->parent;
	info->term = volume->acquired ? volume->term : 0;
	info->opens = volume_open_count_locked(peer, volume, VOLUME_NO_CLIENT);
	info->flags = (head->flags & (XSEG_VOLUME_READ_ONLY | XSEG_VOLUME_SNAPSHOT |
					     XSEG_VOLUME_PROTECTED)) |
		      (volume->configured ? XSEG_VOLUME_FIXED : 0);
	memcpy(info->name, head->name, sizeof(info->name));
	pthread_mutex_unlock(&volume_shared(peer)->lock);
}
