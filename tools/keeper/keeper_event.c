/* SPDX-License-Identifier: Apache-2.0 */
/* Writes what happens to RUN_DIR/SEGMENT/events.jsonl, one JSON object a line. */
#include <base/log.h>
#include <base/must.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "tools/keeper/keeper.h"

#define EVENTS_MAX (1 << 20) /* then it becomes .1, and the .1 before goes */

static void time_text(char out[40])
{
	struct timespec now;
	struct tm utc;
	char seconds[24];
	clock_gettime(CLOCK_REALTIME, &now);
	gmtime_r(&now.tv_sec, &utc);
	strftime(seconds, sizeof(seconds), "%Y-%m-%dT%H:%M:%S", &utc);
	snprintf(out, 40, "%s.%03ldZ", seconds, now.tv_nsec / 1000000);
}

static int events_open(const char *path)
{
	char old[PATH_LENGTH_MAX + 4];
	struct stat st;
	if (!stat(path, &st) && st.st_size >= EVENTS_MAX) {
		snprintf(old, sizeof(old), "%s.1", path);
		rename(path, old);
	}
	return open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0640);
}

/* One write: a reader that follows never sees half a line, unless the disk is full. */
static void line_write(const struct keeper *keeper, const char *line, size_t length)
{
	char path[PATH_LENGTH_MAX];
	int fd = path_run(path, keeper->name, "events.jsonl") ? -1 : events_open(path);
	ssize_t n = fd < 0 ? -1 : write(fd, line, length);
	if (n != (ssize_t)length)
		log_warning("keeper", "an event is lost: %s", strerror(errno));
	if (fd >= 0)
		close(fd);
}

void keeper_event(struct keeper *keeper, const char *kind, json_t *more)
{
	char now[40];
	time_text(now);
	json_t *event = json_pack("{s:s, s:s}", "time", now, "event", kind);
	must(event);
	json_object_update_missing(event, more);
	json_decref(more);
	char *text = json_dumps(event, JSON_COMPACT | JSON_ENSURE_ASCII);
	json_decref(event);
	must(text);
	size_t length = strlen(text);
	text = realloc(text, length + 2);
	must(text);
	memcpy(text + length, "\n", 2);
	line_write(keeper, text, length + 1);
	free(text);
}

void keeper_event_host(
	const struct keeper_host *host, const char *kind, const char *reason, json_t *more)
{
	const struct pipeline *pipeline = &host->keeper->pipeline;
	const char *name = keeper_host_name(host);
	json_t *event = json_pack("{s:s, s:s}", "peer", name, "host", name), *peers = json_array();
	for (unsigned i = 0; i < pipeline->peer_count; i++)
		if (pipeline->peers[i].host == host->index)
			json_array_append_new(peers, json_string(pipeline->peers[i].name));
	json_object_set_new(event, "peers", peers);
	if (host->pid)
		json_object_set_new(event, "pid", json_integer(host->pid));
	if (reason && *reason) {
		json_t *text = json_string(reason);
		json_object_set_new(event, "reason", text ? text : json_string("(not printable)"));
	}
	json_object_update(event, more);
	json_decref(more);
	keeper_event(host->keeper, kind, event);
}
