/* SPDX-License-Identifier: Apache-2.0 */
/* PEER=ROLE,key=value,...: a peer as the command line names it, read and checked. */
#include <base/name.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "peers/core/core.h"

#define SPEC_OPTIONS_MAX 64u

struct spec {
	struct host_peer *peer;
	bool given[SPEC_OPTIONS_MAX];
	char *why;
};

/* Cuts off the piece before the next comma; "\," is a comma within it, "\\" a backslash. */
static char *spec_next(char **rest)
{
	char *piece = *rest, *from = piece, *to = piece;
	if (!piece)
		return NULL;
	while (*from && *from != ',') {
		if (from[0] == '\\' && (from[1] == ',' || from[1] == '\\'))
			from++;
		*to++ = *from++;
	}
	*rest = *from ? from + 1 : NULL;
	*to = '\0';
	return piece;
}

static int spec_edge(struct spec *spec, const char *edge, const char *target)
{
	struct host_peer *peer = spec->peer;
	const char *const *edges = peer->ops->edges;
	for (unsigned i = 0; edges && edges[i] && i < PEER_EDGES_MAX; i++) {
		if (strcmp(edges[i], edge))
			continue;
		if (!name_check(target)) {
			snprintf(spec->why, WHY_SIZE,
				"peer '%s': edge.%s=%s: that is not a peer's name", peer->name,
				edge, target);
			return -EINVAL;
		}
		if (!strcmp(target, peer->name)) {
			snprintf(spec->why, WHY_SIZE, "peer '%s': edge.%s leads back to itself",
				peer->name, edge);
			return -EINVAL;
		}
		peer->edge[i].target = target;
		return 0;
	}
	return -ENOENT;
}

static int spec_unknown(struct spec *spec, const char *key)
{
	char hint[WHY_SIZE / 2];
	const struct peer_ops *ops = spec->peer->ops;
	option_hint(ops->options, ops->edges, key, hint, sizeof(hint));
	snprintf(spec->why, WHY_SIZE, "peer '%s': role %s has no option '%s'; %s", spec->peer->name,
		ops->name, key, hint);
	return -EINVAL;
}

/* The sentence gets the peer's name in front. */
static int spec_say(struct spec *spec, const char *text)
{
	snprintf(spec->why, WHY_SIZE, "peer '%s': %.400s", spec->peer->name, text);
	return -EINVAL;
}

static int spec_option(struct spec *spec, char *piece)
{
	const struct peer_ops *ops = spec->peer->ops;
	char text[WHY_SIZE];
	char *value = strchr(piece, '=');
	if (!value)
		return spec_say(
			spec, (snprintf(text, sizeof(text), "'%.200s' is not option=value", piece),
				      text));
	*value++ = '\0';
	if (!strncmp(piece, "edge.", 5)) {
		int error = spec_edge(spec, piece + 5, value);
		return error == -ENOENT ? spec_unknown(spec, piece) : error;
	}
	const struct peer_option *option = option_find(ops->options, piece);
	if (!option)
		return spec_unknown(spec, piece);
	bool *given = &spec->given[option - ops->options];
	if (*given && option->type != PEER_OPTION_LIST) {
		snprintf(text, sizeof(text), "option '%s' is given twice", piece);
		return spec_say(spec, text);
	}
	/* the first item of a list that is given takes the place of the initial one */
	if (!*given && option->type == PEER_OPTION_LIST)
		option_clear(option, spec->peer->options);
	*given = true;
	return option_set(ops->options, spec->peer->options, piece, value, text)
		       ? spec_say(spec, text)
		       : 0;
}

static int spec_head(struct host *host, struct spec *spec, char *head)
{
	struct host_peer *peer = spec->peer;
	char *role = strchr(head, '=');
	if (!role || !role[1]) {
		snprintf(spec->why, WHY_SIZE, "'%s' is not PEER=ROLE[,option=value]...", head);
		return -EINVAL;
	}
	*role++ = '\0';
	if (!name_check(head)) {
		snprintf(spec->why, WHY_SIZE,
			"'%s' is not a peer's name: 1 to %d letters, digits, '.', '_' or '-'", head,
			NAME_LENGTH_MAX);
		return -EINVAL;
	}
	for (unsigned i = 0; i < host->peer_count; i++)
		if (!strcmp(host->peers[i].name, head)) {
			snprintf(spec->why, WHY_SIZE, "peer '%s' is named twice", head);
			return -EINVAL;
		}
	snprintf(peer->name, sizeof(peer->name), "%s", head);
	int error = module_open(role, &peer->module, &peer->ops, spec->why);
	if (error)
		return error;
	snprintf(peer->role, sizeof(peer->role), "%s", role);
	must(option_count(peer->ops->options) <= SPEC_OPTIONS_MAX);
	return 0;
}

static int spec_read(struct host *host, struct spec *spec, const char *text)
{
	struct host_peer *peer = spec->peer;
	char words[WHY_SIZE], *piece;
	peer->text = strdup(text);
	if (!peer->text)
		return spec_say(spec, "out of memory");
	char *rest = peer->text;
	int error = spec_head(host, spec, spec_next(&rest));
	if (error)
		return error;
	peer->options = calloc(1, peer->ops->options_size ? peer->ops->options_size : 1);
	peer->shared = calloc(1, peer->ops->shared_size ? peer->ops->shared_size : 1);
	if (!peer->options || !peer->shared)
		return spec_say(spec, "out of memory");
	if (option_defaults(peer->ops->options, peer->options, words))
		return spec_say(spec, words);
	while ((piece = spec_next(&rest))) {
		error = spec_option(spec, piece);
		if (error)
			return error;
	}
	return option_missing(peer->ops->options, spec->given, words) ? spec_say(spec, words) : 0;
}

void spec_peer_free(struct host_peer *peer)
{
	if (peer->ops)
		option_free(peer->ops->options, peer->options);
	free(peer->options);
	free(peer->shared);
	free(peer->text);
	module_close(peer->module);
	*peer = (struct host_peer){.name = ""};
}

int spec_host_add(struct host *host, const char *text, char why[WHY_SIZE])
{
	if (host->peer_count == HOST_PEERS_MAX) {
		snprintf(why, WHY_SIZE, "more than %u peers in one process", HOST_PEERS_MAX);
		return -EINVAL;
	}
	struct host_peer *peer = &host->peers[host->peer_count];
	struct spec spec = {.peer = peer, .why = why};
	int error = spec_read(host, &spec, text);
	if (error)
		spec_peer_free(peer);
	else
		host->peer_count++;
	return error;
}
