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

/* So that the cache has little left to write back while they wait. */
static void write_back(const struct rehoming *rehoming)
{
	struct client_request flush = {
		.op = XSEG_OP_FLUSH, .flags = XSEG_F_FUA, .key.volume = rehoming->volume.id};
	struct client client;
	char why[XSEG_WHY_SIZE];
	if (client_open(&client, rehoming->segment, rehoming->composer, why))
		return;
	client.timeout_ns = HOLD_LIMIT_NS;
	client_do(&client, &flush);
	client_close(&client);
}

void rehoming_hold(const struct rehoming *rehoming)
{
	if (!hold_ask(rehoming, FRONT_SETTLE, 0))
		return;
	write_back(rehoming);
	hold_ask(rehoming, FRONT_SETTLE, HOLD_NS);
}

void rehoming_hold_end(const struct rehoming *rehoming) { hold_ask(rehoming, FRONT_GO, 0); }
