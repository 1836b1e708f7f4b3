/* SPDX-License-Identifier: Apache-2.0 */
/* A volume on its way: a re-homer is told to begin, watched, and told to go on. */
#include <base/clock.h>
#include <errno.h>
#include <peer/map.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xseg/port.h>
#include <xseg/registry.h>

#include "peers/rehome/rehoming_priv.h"

#define AGAIN_MAX 5u /* a re-homer that was killed is told again so often */
#define KNOWN_NS 5000000000u

static _Thread_local char rehoming_said[XSEG_WHY_SIZE + 64];

const char *rehoming_why(void) { return rehoming_said; }

__attribute__((format(printf, 2, 3))) static int refuse(int error, const char *format, ...)
{
	va_list list;
	va_start(list, format);
	vsnprintf(rehoming_said, sizeof(rehoming_said), format, list);
	va_end(list);
	return error;
}

/* --- who is there ---------------------------------------------------------------------------- */

static int find_rehomer(const struct xseg *seg, struct rehoming *rehoming)
{
	const char *name = rehoming->ask.rehomer;
	struct xseg_peer_view view;
	for (uint32_t i = 0; i < XSEG_PEERS_MAX; i++) {
		if (!xseg_peer_view(seg, i, &view) || strcmp(view.role, REHOME_ROLE) != 0 ||
			(name && strcmp(view.name, name) != 0))
			continue;
		memcpy(rehoming->rehomer, view.name, sizeof(rehoming->rehomer));
		return 0;
	}
	return refuse(-ENOENT, "segment '%s' has no re-homer%s%s", seg->name, name ? " " : "",
		name ? name : "");
}

static int target_of(const struct xseg *seg, const struct rehoming *rehoming, const char *edge,
	char to[NAME_LENGTH_MAX + 1])
{
	char name[XSEG_EDGE_NAME_MAX + 1];
	snprintf(name, sizeof(name), "%s:%s", rehoming->rehomer, edge);
	return xseg_edge_target(seg, name, to);
}

static int find_edge(const struct xseg *seg, struct rehoming *rehoming)
{
	char to[NAME_LENGTH_MAX + 1];
	for (uint32_t i = 0; i < REHOME_EDGES; i++) {
		rehoming->say.edge = i;
		if (!target_of(seg, rehoming, rehome_edge_name(i), to) &&
			!strcmp(to, rehoming->bridge))
			return 0;
	}
	return refuse(-ENOLINK, "no edge of re-homer '%s' leads to '%s'", rehoming->rehomer,
		rehoming->bridge);
}

static int find_peers(const struct xseg *seg, struct rehoming *rehoming)
{
	struct xseg_peer_view view;
	int error = find_rehomer(seg, rehoming);
	if (error)
		return error;
	target_of(seg, rehoming, "volume", rehoming->composer);
	if (xseg_peer_find(seg, rehoming->bridge, &view))
		return refuse(
			-ENOENT, "segment '%s' has no peer '%s'", seg->name, rehoming->bridge);
	rehoming->say.edge = REHOME_EDGES;
	rehoming->say.owner = map_owner_of(seg);
	return rehoming->comes ? 0 : find_edge(seg, rehoming);
}

static int find_volume(struct rehoming *rehoming, const char *name)
{
	struct xseg_volume_info *info = &rehoming->volume;
	char why[XSEG_WHY_SIZE] = "";
	struct client client;
	int error = client_open(&client, rehoming->segment, rehoming->composer, why);
	if (error)
		return refuse(error, "%s", why);
	client.timeout_ns = rehoming->ask.timeout_ns;
	if (strlen(name) < sizeof(info->name))
		strcpy(info->name, name);
	struct client_request request = {.op = XSEG_OP_INFO,
		.length = sizeof(*info),
		.send = info,
		.send_size = sizeof(*info),
		.receive = info,
		.receive_size = sizeof(*info)};
	error = client_do(&client, &request);
	client_close(&client);
	return error ? refuse(error, "volume '%s' is not known in segment '%s': %s", name,
			       rehoming->segment, strerror(-error))
		     : 0;
}

static int find(struct rehoming *rehoming, const char *volume)
{
	struct xseg seg;
	char why[XSEG_WHY_SIZE] = "";
	int error = xseg_segment_join(rehoming->segment, &seg, why);
	if (error)
		return refuse(error, "%s", why);
	error = find_peers(&seg, rehoming);
	xseg_segment_leave(&seg);
	return error ? error : find_volume(rehoming, volume);
}

static struct rehoming *open_it(const struct rehoming_ask *ask, const char *volume, bool comes)
{
	struct rehoming *rehoming = NULL;
	int error = 0;
	if (!ask->segment || !ask->bridge || !volume || !name_check(ask->segment) ||
		!name_check(ask->bridge))
		error = refuse(-EINVAL, "segment, bridge and volume must be named");
	else if (!(rehoming = calloc(1, sizeof(*rehoming))))
		error = refuse(-ENOMEM, "no memory");
	if (!error) {
		rehoming->ask = *ask;
		rehoming->comes = comes;
		rehoming->known_ns = clock_now_ns() + KNOWN_NS;
		if (!ask->timeout_ns)
			rehoming->ask.timeout_ns = CLIENT_TIMEOUT_NS;
		rehoming->say = (struct rehome_ask){.version = REHOME_VERSION,
			.stall = ask->stall,
			.pause_ns = ask->pause_ns,
			.hold = ask->before_suspend != NULL};
		snprintf(rehoming->segment, sizeof(rehoming->segment), "%s", ask->segment);
		snprintf(rehoming->bridge, sizeof(rehoming->bridge), "%s", ask->bridge);
		error = find(rehoming, volume);
	}
	if (!error)
		return rehoming;
	free(rehoming);
	errno = -error;
	return NULL;
}

struct rehoming *rehoming_seed(const struct rehoming_ask *ask, const char *volume)
{
	return open_it(ask, volume, false);
}

struct rehoming *rehoming_leech(const struct rehoming_ask *ask, const char *volume)
{
	return open_it(ask, volume, true);
}

/* --- the way --------------------------------------------------------------------------------- */

/* The re-homer where it is: of a leecher, over the bridge. */
static int say(struct rehoming *rehoming, enum rehome_control what)
{
	struct client_control control = {.what = what,
		.volume = rehoming->volume.id,
		.in = &rehoming->say,
		.in_size = sizeof(rehoming->say),
		.answer_at = REHOME_ANSWER_AT,
		.out = &rehoming->info,
		.out_size = sizeof(rehoming->info)};
	rehoming->info = (struct rehome_info){0};
	return client_control_once(rehoming->segment,
		rehoming->comes ? rehoming->bridge : rehoming->rehomer, rehoming->ask.timeout_ns,
		&control);
}

int rehoming_check(struct rehoming *rehoming)
{
	rehoming->say.only_ask = 1;
	int error = say(rehoming, REHOME_BEGIN);
	rehoming->say.only_ask = 0;
	return error;
}

static int end(struct rehoming *rehoming, int error)
{
	const struct rehoming_ask *ask = &rehoming->ask;
	bool fetches = !error && rehoming->comes && ask->chunk_is_local;
	rehoming->step = fetches ? STEP_FETCH : STEP_ENDED;
	rehoming->error = error;
	if (!rehoming->comes)
		rehoming_hold_end(rehoming);
	if (ask->after_sync)
		ask->after_sync(ask->context, error);
	return fetches ? REHOMING_GOES : error;
}

static int begin(struct rehoming *rehoming)
{
	if (!rehoming->comes)
		rehoming_hold(rehoming);
	int error = say(rehoming, REHOME_BEGIN);
	if (!error) {
		rehoming->step = STEP_LOOK;
		return REHOMING_GOES;
	}
	/* theirs asks now and then who is at the other end of its bridges */
	bool later = rehoming->comes && error == -ENOLINK && clock_now_ns() < rehoming->known_ns;
	rehoming->step = STEP_BEGIN;
	return later ? REHOMING_WAITS : end(rehoming, error);
}

/* The rest is short enough. A re-homer that was killed since is told again. */
static void suspend(struct rehoming *rehoming)
{
	int error = rehoming->suspended ? rehoming->error
					: rehoming->ask.before_suspend(rehoming->ask.context);
	if (error == -EAGAIN)
		return;
	rehoming->suspended = true;
	rehoming->error = error;
	say(rehoming, error ? REHOME_CANCEL : REHOME_GO);
}

static int look(struct rehoming *rehoming)
{
	int error = say(rehoming, REHOME_STATE);
	const struct rehome_info *info = &rehoming->info;
	bool home = info->state == REHOME_HOME;
	/* whoever was asked to begin and was killed has forgotten it */
	bool forgot = error == -ENOENT || (!error && home && info->rounds == 0 && info->error == 0);
	if (forgot && rehoming->again++ < AGAIN_MAX)
		return begin(rehoming);
	if (error)
		return end(rehoming, error);
	if (home)
		return end(rehoming, info->error ? info->error : -ECANCELED);
	if (info->state == REHOME_AWAY)
		return end(rehoming, 0);
	if (info->ready)
		suspend(rehoming);
	return REHOMING_GOES;
}

/* Is it here still? What is elsewhere is in somebody else's cache. */
static int fetch(struct rehoming *rehoming)
{
	struct rehome_info info = {0};
	struct client_control control = {.what = REHOME_STATE,
		.volume = rehoming->volume.id,
		.answer_at = REHOME_ANSWER_AT,
		.out = &info,
		.out_size = sizeof(info)};
	int error = client_control_once(
		rehoming->segment, rehoming->rehomer, rehoming->ask.timeout_ns, &control);
	bool settled = info.state == REHOME_HOME || info.state == REHOME_UNKNOWN;
	if (!error && info.state == REHOME_AWAY)
		error = -ESTALE;
	else if (!error && !settled)
		error = REHOMING_GOES;
	else if (!error || error == -ENOENT) /* it has been started anew */
		error = rehoming_fetch(rehoming);
	if (error == 0)
		rehoming->step = STEP_ENDED;
	return error;
}

int rehoming_step(struct rehoming *rehoming)
{
	switch (rehoming->step) {
	case STEP_BEGIN: return begin(rehoming);
	case STEP_LOOK: return look(rehoming);
	case STEP_FETCH: return fetch(rehoming);
	case STEP_ENDED:
	default: return rehoming->error;
	}
}

void rehoming_cancel(struct rehoming *rehoming)
{
	if (rehoming->step == STEP_LOOK)
		say(rehoming, REHOME_CANCEL);
}

const struct rehome_info *rehoming_info(const struct rehoming *rehoming) { return &rehoming->info; }

void rehoming_close(struct rehoming *rehoming)
{
	if (rehoming->ask.before_close)
		rehoming->ask.before_close(rehoming->ask.context);
	if (!rehoming->comes && rehoming->step == STEP_LOOK)
		rehoming_hold_end(rehoming);
	rehoming_fetch_end(rehoming);
	free(rehoming);
}
