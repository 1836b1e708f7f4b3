/* SPDX-License-Identifier: Apache-2.0 */
/* Reads back, from /proc and the segment, how the processes of a pipeline were started. */
#include "tools/pipeline/pipeline_running.h"

#include <base/must.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xseg/port.h>

#include "tools/pipeline/pipeline_edit.h"

#define ARGUMENTS_MAX (PIPELINE_PEERS_MAX + 64u)
#define CMDLINE_MAX (1u << 20)

/* --- arguments -------------------------------------------------------------------------- */

/* "-l2", "-l 2", "--lanes=2", "--lanes 2"; moves *at over the value. NULL: another option. */
static const char *value_of(
	char *const *argv, unsigned argc, unsigned *at, const char *letter, const char *name)
{
	const char *text = argv[*at];
	size_t length = strlen(name);
	if (letter && !strncmp(text, letter, 2) && text[2])
		return text + 2;
	if (!strncmp(text, name, length) && text[length] == '=')
		return text + length + 1;
	if (strcmp(text, name) && (!letter || strcmp(text, letter)))
		return NULL;
	return *at + 1 < argc ? argv[++*at] : NULL;
}

/* Options of xsegpeer that say nothing of the pipeline but have a value. */
static bool skip_value(char *const *argv, unsigned argc, unsigned *at)
{
	static const char *const names[] = {
		"--segment", "--drain-limit", "--dump-file", "--log-level"};
	for (size_t i = 0; i < countof(names); i++)
		if (value_of(argv, argc, at, i ? NULL : "-s", names[i]))
			return true;
	return false;
}

static int peer_from(struct pipeline *pipeline, const char *argument, unsigned host)
{
	struct fault fault = {0};
	if (pipeline_text_parse(pipeline, argument, &fault))
		return -EINVAL;
	struct pipeline_peer *peer = &pipeline->peers[pipeline->peer_count - 1];
	peer->host = host;
	snprintf(peer->host_name, sizeof(peer->host_name), "%s", pipeline->hosts[host].name);
	pipeline->hosts[host].peer_count++;
	return 0;
}

static int arguments_read(
	struct pipeline *pipeline, char *const *argv, unsigned argc, struct pipeline_host *host)
{
	unsigned index = (unsigned)(host - pipeline->hosts);
	int rc = 0;
	for (unsigned i = 0; !rc && i < argc; i++) {
		const char *value;
		if ((value = value_of(argv, argc, &i, "-l", "--lanes")))
			host->lanes = (unsigned)strtoul(value, NULL, 10);
		else if ((value = value_of(argv, argc, &i, NULL, "--workers")))
			host->workers = (unsigned)strtoul(value, NULL, 10);
		else if (!skip_value(argv, argc, &i) && argv[i][0] != '-')
			rc = peer_from(pipeline, argv[i], index);
	}
	return rc || host->peer_count ? rc : -EINVAL;
}

int pipeline_running_arguments(
	struct pipeline *pipeline, char *const *argv, unsigned argc, const char *name)
{
	unsigned peers = pipeline->peer_count;
	if (pipeline_host_find(pipeline, name))
		return -EEXIST;
	struct pipeline_host *host = pipeline_host_add(pipeline, name);
	if (!host)
		return -E2BIG;
	int rc = arguments_read(pipeline, argv, argc, host);
	if (!rc)
		return 0;
	while (pipeline->peer_count > peers)
		pipeline_peer_drop(pipeline);
	pipeline->host_count--;
	return rc;
}

/* --- /proc ------------------------------------------------------------------------------ */

static ssize_t cmdline_read(pid_t pid, char *out, size_t out_size)
{
	char path[64];
	size_t length = 0;
	ssize_t n = 1;
	snprintf(path, sizeof(path), "/proc/%d/cmdline", (int)pid);
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	while (n > 0 && length < out_size - 1) {
		n = read(fd, out + length, out_size - 1 - length);
		length += n > 0 ? (size_t)n : 0;
	}
	close(fd);
	out[length] = 0;
	return n < 0 ? -EIO : (ssize_t)length;
}

int pipeline_running_host(struct pipeline *pipeline, pid_t pid, const char *name)
{
	char *argv[ARGUMENTS_MAX], *text = malloc(CMDLINE_MAX);
	unsigned argc = 0;
	must(text);
	ssize_t length = cmdline_read(pid, text, CMDLINE_MAX);
	for (ssize_t at = 0; at < length && argc < ARGUMENTS_MAX;
		at += (ssize_t)strlen(text + at) + 1)
		argv[argc++] = text + at;
	int rc = length < 0 ? (int)length : -ESRCH;
	if (argc > 1)
		rc = pipeline_running_arguments(pipeline, argv + 1, argc - 1, name);
	free(text);
	return rc;
}

/* --- edges ------------------------------------------------------------------------------ */

static void option_set(struct pipeline_peer *peer, const char *key, const char *value)
{
	for (unsigned i = 0; i < peer->option_count; i++)
		if (!strcmp(peer->options[i].key, key)) {
			free(peer->options[i].value);
			must(peer->options[i].value = strdup(value));
			return;
		}
	/* a process that was started again found its edges in the segment */
	pipeline_option_add(peer, key, value, PIPELINE_FILES_MAX, 0);
}

/* One that was set to lead nowhere: nothing a file could say. */
static void option_unset(struct pipeline_peer *peer, const char *key)
{
	unsigned kept = 0;
	for (unsigned i = 0; i < peer->option_count; i++) {
		if (strcmp(peer->options[i].key, key)) {
			peer->options[kept++] = peer->options[i];
			continue;
		}
		free(peer->options[i].key);
		free(peer->options[i].value);
	}
	peer->option_count = kept;
}

bool pipeline_running_begin(const char *role, const char *key)
{
	/* a cache that was plugged in began by passing everything on; it is past that */
	return role && !strcmp(role, "cached") && !strcmp(key, "begin");
}

void pipeline_running_begun(struct pipeline *pipeline)
{
	for (unsigned i = 0; i < pipeline->peer_count; i++)
		if (pipeline_running_begin(pipeline->peers[i].role, "begin"))
			option_unset(&pipeline->peers[i], "begin");
}

void pipeline_running_edges(struct pipeline *pipeline, const struct xseg *seg)
{
	for (uint32_t i = 0; i < XSEG_EDGES_MAX; i++) {
		const struct xseg_edge_record *record = &seg->edges[i];
		char name[XSEG_EDGE_NAME_MAX + 1] = "", key[XSEG_EDGE_NAME_MAX + 8], to[64] = "";
		if (atomic_load_explicit(&record->life, memory_order_acquire) != XSEG_LIFE_ALIVE)
			continue;
		memcpy(name, record->name, XSEG_EDGE_NAME_MAX);
		char *colon = strchr(name, ':');
		uint32_t port = xseg_edge_port(seg, i);
		if (!colon)
			continue;
		*colon = 0;
		if (port != XSEG_NONE)
			memcpy(to, seg->ports[port].name, NAME_LENGTH_MAX);
		snprintf(key, sizeof(key), "edge.%s", colon + 1);
		struct pipeline_peer *peer =
			(struct pipeline_peer *)pipeline_peer_find(pipeline, name);
		if (peer && port != XSEG_NONE)
			option_set(peer, key, to);
		else if (peer)
			option_unset(peer, key);
	}
}

/* Where the edge of that option leads, if that is a peer of the pipeline; or NULL. */
static const struct pipeline_peer *edge_now(const struct pipeline *pipeline, const struct xseg *seg,
	const struct pipeline_peer *peer, const char *key)
{
	char name[XSEG_EDGE_NAME_MAX + 1], to[NAME_LENGTH_MAX + 1] = "";
	uint32_t index, port = XSEG_NONE;
	snprintf(name, sizeof(name), "%s:%s", peer->name, key + 5);
	if (!strncmp(key, "edge.", 5) && !xseg_edge_find(seg, name, &index))
		port = xseg_edge_port(seg, index);
	if (port != XSEG_NONE)
		memcpy(to, seg->ports[port].name, NAME_LENGTH_MAX);
	return pipeline_peer_find(pipeline, to);
}

void pipeline_running_part(struct pipeline *pipeline, const struct xseg *seg, unsigned host)
{
	for (unsigned i = 0; i < pipeline->peer_count; i++) {
		struct pipeline_peer *peer = &pipeline->peers[i];
		for (unsigned j = peer->option_count; j-- > 0;) {
			const struct pipeline_option *option = &peer->options[j];
			const struct pipeline_peer *to =
				pipeline_peer_find(pipeline, option->value);
			if (!pipeline_check_is_edge(option) || !to || to->host != host)
				continue;
			to = edge_now(pipeline, seg, peer, option->key);
			if (to && to->host != host)
				option_set(peer, option->key, to->name);
			else
				option_unset(peer, option->key);
		}
	}
}
