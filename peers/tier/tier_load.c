/* SPDX-License-Identifier: Apache-2.0 */
/* The start: what a predecessor has logged. */
#include <base/container.h>
#include <base/log.h>
#include <unistd.h>
#include <xseg/port.h>
#include <xseg/registry.h>

#include "peers/tier/tier.h"

static void take(struct tier *tier, const struct tier_entry *entry)
{
	if (entry->flags & TIER_ENTRY_TERM) {
		struct tier_volume *volume =
			entry->key.volume ? tier_object_volume(tier, entry->key.volume) : NULL;
		if (volume)
			volume->term = volume->term_logged = entry->value;
		return;
	}
	struct tier_object *object = tier_object_get(tier, &entry->key);
	if (!object)
		return; /* what is not known is not present */
	bool unstable = entry->flags & TIER_ENTRY_UNSTABLE;
	bool sure = !unstable || !tier->log.other_life;
	tier_object_present(tier, object, sure ? entry->value : 0);
	tier_object_doubt(tier, object, sure ? 0 : entry->value);
	object->logged = object->present;
	object->unstable = unstable;
	object->written = unstable;
}

/* What was unstable is looked at once more, at the next FLUSH of the near store. */
static void ready(struct tier *tier)
{
	struct tier_object *object;
	TAILQ_FOREACH (object, &tier->order, order)
		if (object->unstable && object->present) {
			object->in_changed = true;
			TAILQ_INSERT_TAIL(&tier->log.changed, object, changed_link);
		}
	if (tier->present)
		log_info("tier", "%s: %llu MiB are near", tier->peer->name,
			(unsigned long long)tier->present >> 20);
	tier_log_rewrite(tier);
}

/* What the damaged block took back is not known. */
static void forget_all(struct tier *tier)
{
	struct tier_object *object;
	TAILQ_FOREACH (object, &tier->order, order) {
		tier_object_doubt(tier, object, object->present | object->doubt);
		object->logged = 0;
	}
}

static void recalled(struct tier_blocks *blocks)
{
	ready(blocks->tier); /* without the list the order is another one, no more */
}

static void loaded(struct tier_blocks *blocks)
{
	struct tier *tier = blocks->tier;
	if (blocks->error == -EILSEQ) {
		log_warning("tier", "%s: the near store's log is damaged; all is fetched anew",
			tier->peer->name);
		forget_all(tier);
	} else if (blocks->error) {
		tier_log_leave(tier, blocks->error);
		return;
	}
	tier->touch_blocks = (struct tier_blocks){
		.tier = tier, .touch = true, .entry = tier_pull_recall, .done = recalled};
	tier_blocks_read(&tier->touch_blocks);
}

/* What lies in memory is gone with its process, and would read as zeros: we must go with it. */
static bool may_vanish(struct peer *peer)
{
	const struct xseg *seg = peer_segment(peer);
	uint32_t port = xseg_edge_port(seg, peer->edge[TIER_NEAR]);
	struct xseg_peer_view view;
	char name[NAME_LENGTH_MAX + 1] = "";
	if (port == XSEG_NONE)
		return false;
	memcpy(name, seg->ports[port].name, NAME_LENGTH_MAX);
	return xseg_peer_find(seg, name, &view) == 0 && strcmp(view.role, "blocker_memory") == 0 &&
	       view.pid != getpid();
}

static void found(struct call *call)
{
	struct tier *tier = tier_of(call->peer);
	struct tier_log *log = &tier->log;
	struct tier_record record;
	size_t size = call->answer_length < sizeof(record) ? call->answer_length : sizeof(record);
	int error = call->result;
	memset(&record, 0, sizeof(record));
	log->version = call->value;
	if (!error) {
		call_get_bytes(call, 0, &record, (uint32_t)size);
		error = tier_format_record_check(&record, call->answer_length);
	}
	call_end(call);
	if (may_vanish(tier->peer)) {
		peer_fatal(tier->peer,
			"the near store keeps what it has in memory only: let both have one "
			"process (host=NAME)");
	} else if (error == -EPROTO) {
		peer_fatal(tier->peer,
			"the near store was used by a tier of a newer version: give it another "
			"store, or use that version");
	} else if (error == -ENOENT || error == -EILSEQ) {
		if (error == -EILSEQ)
			log_warning("tier",
				"%s: the near store's record is damaged; all is fetched anew",
				tier->peer->name);
		else
			log->version = 0;
		ready(tier);
	} else if (error) {
		tier_log_leave(tier, error);
	} else {
		log->generation = record.generation;
		log->other_life = memcmp(record.segment, peer_segment(tier->peer)->super->uuid,
					  sizeof(record.segment)) != 0;
		log->blocks = (struct tier_blocks){.tier = tier,
			.generation = record.generation,
			.entry = take,
			.done = loaded};
		tier_blocks_read(&log->blocks);
	}
}

static bool begin(struct peer *peer, void *context)
{
	struct call *call;
	(void)context;
	if (tier_serve_call(tier_of(peer), XSEG_OP_CAS, tier_format_record_key(), 0,
		    XSEG_RECORD_MAX, &call))
		return false;
	call->arg1 = XSEG_CAS_GET;
	call_submit(call, TIER_NEAR, found);
	return true;
}

void tier_load(struct tier *tier)
{
	tier->log.tier = tier;
	TAILQ_INIT(&tier->log.urgent);
	TAILQ_INIT(&tier->log.terms);
	TAILQ_INIT(&tier->log.changed);
	TAILQ_INIT(&tier->log.flushed);
	if (!begin(tier->peer, NULL))
		peer_retry(tier->peer, begin, NULL);
}
