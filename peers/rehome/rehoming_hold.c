/* SPDX-License-Identifier: Apache-2.0 */
/* What fronts keep of a volume is written, and their clients wait. */
#include <peer/front.h>
#include <string.h>
#include <xseg/registry.h>

#include "peers/rehome/rehoming_priv.h"

#define HOLD_LIMIT_NS 30000000000u /* one front's answer */
#define HOLD_NS 10000000000u

/* Of each front; how many keep anything. */
static unsigned hold_ask(const struct rehoming *rehoming, enum front_control what, uint64_t number)
{
	struct xseg seg;
	char why[XSEG_WHY_SIZE];
	unsigned count = 0;
	if (xseg_segment_join(rehoming->segment, &seg, why))
		return 0;
	for (uint32_t i = 0; i < XSEG_PEERS_MAX; i++) {
		struct xseg_peer_view view;
		if (!xseg_peer_view(&seg, i, &view) || view.life != XSEG_LIFE_ALIVE ||
			strncmp(view.role, "front_", 6) != 0)
			continue;
		struct client_control control = {
			.what = what, .volume = rehoming->volume.id, .number = number};
		count += client_control_once(seg.name, view.name, HOLD_LIMIT_NS, &control) == 0;
	}
	xseg_segment_leave(&seg);
	return count;
}

void rehoming_hold(const struct rehoming *rehoming)
{
	struct client_control leave = {.what = XSEG_CONTROL_LEAVE, .volume = rehoming->volume.id};
	if (!hold_ask(rehoming, FRONT_SETTLE, 0))
		return;
	/* so that the cache has little left to write back while they wait */
	client_control_once(rehoming->segment, rehoming->composer, HOLD_LIMIT_NS, &leave);
	hold_ask(rehoming, FRONT_SETTLE, HOLD_NS);
}

void rehoming_hold_end(const struct rehoming *rehoming) { hold_ask(rehoming, FRONT_GO, 0); }
