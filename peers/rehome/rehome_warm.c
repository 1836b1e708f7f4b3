/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What our cache holds of a volume that has gone is worth having where it is now: the cache is
 * asked object for object, and the other host gets a hint (PREFETCH) for each stretch, which its
 * own cache fetches from the store that both have. A hint is answered when the data has come, so a
 * few of them on their way are all the pace that is needed. Nothing rests on it: it ends at the
 * first thing that goes wrong, and a successor does not begin it again.
 */
#include <base/log.h>

#include "peers/rehome/rehome.h"

#define WARM_DEPTH 16u		 /* hints on their way */
#define WARM_HINT_MAX (1u << 20) /* bytes, of one hint */
#define WARM_LIST_MAX 256u

struct warm {
	struct rehome *rehome;
	struct rehome_volume *volume;
	uint32_t serial;  /* of the volume's step: the next one ends it */
	uint32_t pending; /* hints */
	bool asking, ended, retrying;
	uint64_t size, at; /* of the volume; what was looked at */
	uint64_t from;	   /* where the list's next stretch begins */
	uint64_t bytes, begun_ns;
	uint32_t count, next; /* of the list */
	struct xseg_status_extent list[WARM_LIST_MAX];
};

static void go_on(struct warm *warm);

static struct call *warm_call(struct warm *warm, enum xseg_op op, uint32_t bytes)
{
	struct call *call = rehome_volume_call(warm->rehome, warm->volume, op, 0, bytes);
	if (call)
		call->context = warm;
	return call;
}

static void hinted(struct call *call)
{
	struct warm *warm = call->context;
	warm->ended |= call->result != 0;
	warm->bytes += call->result == 0 ? call->length : 0;
	warm->pending--;
	call_end(call);
	go_on(warm);
}

/* False: no room now. */
static bool hint(struct warm *warm)
{
	struct xseg_status_extent *stretch = &warm->list[warm->next];
	uint64_t length = stretch->length < WARM_HINT_MAX ? stretch->length : WARM_HINT_MAX;
	if (stretch->flags & XSEG_STATUS_CACHED) {
		struct call *call = warm_call(warm, XSEG_OP_PREFETCH, 0);
		if (!call)
			return false;
		call->flags = XSEG_F_FAST_ONLY; /* without a link it is soon of no use */
		call->offset = warm->from;
		call->length = (uint32_t)length;
		warm->pending++;
		call_submit(call, warm->volume->edge, hinted);
	} else {
		length = stretch->length;
	}
	warm->from += length;
	stretch->length -= length;
	warm->next += stretch->length == 0;
	return true;
}

static void listed(struct call *call)
{
	struct warm *warm = call->context;
	uint32_t count = call->answer_length / (uint32_t)sizeof(*warm->list);
	warm->asking = false;
	warm->ended |= call->result != 0 || count == 0;
	warm->count = warm->ended ? 0 : count < WARM_LIST_MAX ? count : WARM_LIST_MAX;
	warm->next = 0;
	warm->from = warm->at;
	call_get_bytes(call, 0, warm->list, warm->count * (uint32_t)sizeof(*warm->list));
	for (uint32_t i = 0; i < warm->count; i++)
		warm->at += warm->list[i].length;
	warm->ended |= warm->at == warm->from;
	call_end(call);
	go_on(warm);
}

static bool look(struct warm *warm)
{
	uint64_t left = XSEG_OBJECT_MAX - warm->at % XSEG_OBJECT_MAX;
	if (warm->at >= warm->size) {
		warm->ended = true;
		return true;
	}
	struct call *call = warm_call(warm, XSEG_OP_STATUS, sizeof(warm->list));
	if (!call)
		return false;
	call->flags = XSEG_F_FAST_ONLY;
	call->offset = warm->at;
	call->length = (uint32_t)(left < warm->size - warm->at ? left : warm->size - warm->at);
	warm->asking = true;
	call_submit(call, REHOME_HERE, listed);
	return true;
}

static bool again(struct peer *peer, void *context)
{
	struct warm *warm = context;
	(void)peer;
	warm->retrying = false;
	go_on(warm);
	return true;
}

static void end(struct warm *warm)
{
	struct peer *peer = warm->rehome->peer;
	peer_count(peer, REHOME_C_WARMED, warm->bytes);
	if (warm->bytes > 0)
		log_info("rehome",
			"%s: volume %016llx: %llu bytes fetched at the other host in %llu ms",
			peer->name, (unsigned long long)warm->volume->id,
			(unsigned long long)warm->bytes,
			(unsigned long long)(peer_now_ns(peer) - warm->begun_ns) / 1000000);
	free(warm);
}

static void go_on(struct warm *warm)
{
	bool room = true;
	warm->ended |= warm->volume->serial != warm->serial || warm->rehome->peer->stopping;
	while (room && !warm->ended && !warm->asking && warm->pending < WARM_DEPTH)
		room = warm->next < warm->count ? hint(warm) : look(warm);
	bool waits = warm->asking || warm->pending > 0 || warm->retrying;
	if (!waits && warm->ended) {
		end(warm);
	} else if (!waits) {
		warm->retrying = true;
		peer_retry(warm->rehome->peer, again, warm);
	}
}

static void sized(struct call *call)
{
	struct warm *warm = call->context;
	struct xseg_volume_info info = {0};
	if (call->result == 0)
		call_get_bytes(call, 0, &info, sizeof(info));
	call_end(call);
	warm->asking = false;
	warm->size = info.size;
	go_on(warm);
}

void rehome_warm_begin(struct rehome *rehome, struct rehome_volume *volume)
{
	const struct rehome_options *options = rehome->peer->options;
	struct warm *warm = options->warm ? calloc(1, sizeof(*warm)) : NULL;
	if (!warm)
		return;
	warm->rehome = rehome;
	warm->volume = volume;
	warm->serial = volume->serial;
	warm->begun_ns = peer_now_ns(rehome->peer);
	struct call *call = warm_call(warm, XSEG_OP_INFO, sizeof(struct xseg_volume_info));
	if (!call) {
		free(warm);
		return;
	}
	warm->asking = true;
	call_submit(call, REHOME_HERE, sized);
}
