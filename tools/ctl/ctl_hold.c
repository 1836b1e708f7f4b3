/* SPDX-License-Identifier: Apache-2.0 */
/* What fronts keep of a volume is written, and their clients wait. */
#include "tools/ctl/ctl_hold.h"

#include <peer/client.h>
#include <peer/front.h>
#include <string.h>
#include <xseg/registry.h>

#include "tools/ctl/ctl_front.h"

#define HOLD_LIMIT_NS 30000000000u /* one front's answer */
#define HOLD_NS 10000000000u

/* Of each front; how many keep anything. */
static unsigned hold_ask(
	const struct xseg *seg, uint64_t volume, enum front_control what, uint64_t number)
{
	struct xseg_peer_view view;
	unsigned count = 0;
	for (uint32_t i = 0; i < XSEG_PEERS_MAX; i++) {
		if (!xseg_peer_view(seg, i, &view) || view.life != XSEG_LIFE_ALIVE ||
			!ctl_front_is(view.role))
			continue;
		struct client_control call = {.what = what, .volume = volume, .number = number};
		count += client_control_once(seg->name, view.name, HOLD_LIMIT_NS, &call) == 0;
	}
	return count;
}

void ctl_hold(const struct xseg *seg, const char *composer, uint64_t volume)
{
	struct client_control leave = {.what = XSEG_CONTROL_LEAVE, .volume = volume};
	if (!hold_ask(seg, volume, FRONT_SETTLE, 0))
		return;
	/* so that the cache has little left to write back while they wait */
	client_control_once(seg->name, composer, HOLD_LIMIT_NS, &leave);
	hold_ask(seg, volume, FRONT_SETTLE, HOLD_NS);
}

void ctl_hold_end(const struct xseg *seg, uint64_t volume) { hold_ask(seg, volume, FRONT_GO, 0); }
