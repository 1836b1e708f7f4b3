/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What peers count that is news to whoever runs them: links that are lost and back, mirrors that
 * have all. Each is an event when it begins to be so, or ceases to be.
 */
#include <base/must.h>
#include <string.h>
#include <xseg/registry.h>

#include "tools/keeper/keeper.h"
#include "tools/report/report.h"

/* It is so while `counter` is not 0 and `but` is; it has ended only if `proof` is not 0, as a
   process that was started anew does not know yet. */
static const struct news {
	const char *role, *counter, *but, *proof;
	const char *begins, *ends; /* kinds of events; NULL: none */
} all[] = {
	{"synapse_import", "down", NULL, "connects", "link_down", "link_up"},
	{"tier", "listed", "left", "listed", "all_near", NULL},
	{"tier", "off", NULL, "listed", "near_failed", NULL},
};
fixed(countof(all) <= 8 * sizeof(((struct keeper_news *)NULL)->so));

static void look(struct keeper *keeper, struct keeper_news *news, unsigned k, const json_t *stats)
{
	const struct news *now = &all[k];
	bool was = news->so >> k & 1u, is = report_counter(stats, now->counter) > 0;
	if (is && now->but)
		is = report_counter(stats, now->but) == 0;
	if (is == was || (was && report_counter(stats, now->proof) == 0))
		return;
	news->so ^= 1u << k;
	const char *kind = is ? now->begins : now->ends;
	if (kind)
		keeper_event(keeper, kind, json_pack("{s:s}", "peer", news->peer));
}

static bool has_news(const struct pipeline_peer *peer)
{
	for (unsigned k = 0; k < countof(all); k++)
		if (!strcmp(peer->role, all[k].role))
			return true;
	return false;
}

void keeper_news_look(struct keeper *keeper)
{
	for (unsigned i = 0; i < keeper->pipeline.peer_count; i++) {
		const struct pipeline_peer *peer = &keeper->pipeline.peers[i];
		struct keeper_news *news = &keeper->news[i];
		if (!has_news(peer))
			continue;
		if (strcmp(news->peer, peer->name) != 0) {
			*news = (struct keeper_news){.so = 0};
			memcpy(news->peer, peer->name, sizeof(news->peer));
		}
		json_t *stats = report_stats(&keeper->seg, peer->name);
		const json_t *first = json_array_get(stats, 0);
		for (unsigned k = 0; first && k < countof(all); k++)
			if (!strcmp(peer->role, all[k].role))
				look(keeper, news, k, first);
		json_decref(stats);
	}
}
