/* SPDX-License-Identifier: Apache-2.0 */
/* Starts and stops xsegpeer for the composer's tests. */
#include "tests/property/volume_rig.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>

static const char *build_dir(void)
{
	const char *dir = getenv("SKERRY_BUILD");
	return dir && *dir ? dir : ".";
}

void rig_open(struct rig *rig, uint64_t segment_size)
{
	*rig = (struct rig){0};
	scratch_segment(&rig->seg, segment_size, 16, 8192);
	snprintf(rig->dir, sizeof(rig->dir), "%s/store.%s", scratch_dir(), rig->seg.name);
	must(mkdir(rig->dir, 0700) == 0);
}

void rig_close(struct rig *rig)
{
	/* stores last: whoever asks them must be answered */
	for (unsigned i = RIG_HOSTS; i-- > 0;)
		if (rig->host[i].pid != 0)
			rig_stop(rig, i);
	scratch_segment_end(&rig->seg);
}

static void argument_add(struct rig_host *host, int *count, char *argument)
{
	must(*count < RIG_ARGUMENTS - 1);
	host->argv[(*count)++] = argument;
	host->argv[*count] = NULL;
}

/* program\0-s\0...: all in host->text, so that it can be started again. */
static void make_arguments(
	struct rig *rig, struct rig_host *host, unsigned lanes, const char *peers)
{
	char *at = host->text, *end = at + sizeof(host->text);
	int count = 0;
	const char *word = peers;
	argument_add(host, &count, at);
	at += snprintf(at, (size_t)(end - at), "%s/xsegpeer", build_dir()) + 1;
	argument_add(host, &count, (char *)(uintptr_t) "-s");
	argument_add(host, &count, rig->seg.name);
	argument_add(host, &count, (char *)(uintptr_t) "-l");
	argument_add(host, &count, at);
	at += snprintf(at, (size_t)(end - at), "%u", lanes) + 1;
	while (*word) {
		argument_add(host, &count, at);
		for (; *word && *word != ' '; word++) {
			if (*word == '@')
				at += snprintf(at, (size_t)(end - at), "%s", rig->dir);
			else
				*at++ = *word;
			must(at < end - 1);
		}
		*at++ = 0;
		while (*word == ' ')
			word++;
	}
}

static _Noreturn void run_host(const struct rig_host *host, int out)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	dup2(out, STDOUT_FILENO);
	execv(host->argv[0], host->argv);
	fprintf(stderr, "%s: %s\n", host->argv[0], strerror(errno));
	_exit(127);
}

void rig_start_again(struct rig *rig, unsigned index)
{
	struct rig_host *host = &rig->host[index];
	int pipe_fd[2];
	char line[64] = "";
	must(host->pid == 0 && pipe2(pipe_fd, O_CLOEXEC) == 0);
	fflush(NULL);
	host->pid = fork();
	must(host->pid >= 0);
	if (host->pid == 0)
		run_host(host, pipe_fd[1]);
	close(pipe_fd[1]);
	FILE *in = fdopen(pipe_fd[0], "r");
	must(in);
	bool ready = fgets(line, sizeof(line), in) && strcmp(line, "ready\n") == 0;
	if (!ready)
		fprintf(stderr, "xsegpeer says '%s' instead of ready\n", line);
	must(ready);
	fclose(in);
}

void rig_start(struct rig *rig, unsigned index, unsigned lanes, const char *peers)
{
	make_arguments(rig, &rig->host[index], lanes, peers);
	rig_start_again(rig, index);
}

void rig_stop(struct rig *rig, unsigned index)
{
	struct rig_host *host = &rig->host[index];
	must(host->pid > 0);
	kill(host->pid, SIGTERM);
	int status = child_end(host->pid);
	if (status != 0)
		fprintf(stderr, "%s ... %s ended with status %d\n", host->argv[0], host->argv[5],
			status);
	must(status == 0);
	host->pid = 0;
}

void rig_kill(struct rig *rig, unsigned index)
{
	child_kill(rig->host[index].pid);
	rig->host[index].pid = 0;
}

void rig_client(struct rig *rig, struct client *client, const char *peer)
{
	char why[XSEG_WHY_SIZE] = "";
	int rc = client_open(client, rig->seg.name, peer, why);
	if (rc != 0)
		fprintf(stderr, "client: %s\n", why);
	must(rc == 0);
	client->timeout_ns = 120000000000ull;
}

int rig_volume(struct client *client, enum xseg_op op, unsigned flags, uint64_t id,
	struct xseg_volume_info *info)
{
	struct client_request request = {
		.op = op,
		.flags = flags,
		.key.volume = id,
		.length = sizeof(*info),
		.send = info,
		.send_size = sizeof(*info),
		.receive = info,
		.receive_size = sizeof(*info),
	};
	return client_do(client, &request);
}

int rig_volume_named(struct client *client, enum xseg_op op, unsigned flags, const char *name,
	struct xseg_volume_info *info)
{
	struct client_request request = {
		.op = op,
		.flags = flags,
		.length = sizeof(*info),
		.send = info,
		.send_size = sizeof(*info),
		.receive = info,
		.receive_size = sizeof(*info),
	};
	*info = (struct xseg_volume_info){.id = 0};
	size_t length = strlen(name) + 1; /* too long a one goes without its end */
	memcpy(info->name, name, length < sizeof(info->name) ? length : sizeof(info->name));
	return client_do(client, &request);
}

int rig_volume_create(struct client *client, const char *name, uint64_t size, uint32_t object_size,
	struct xseg_volume_info *info)
{
	*info = (struct xseg_volume_info){.size = size, .object_size = object_size};
	snprintf(info->name, sizeof(info->name), "%s", name);
	return rig_volume(client, XSEG_OP_CREATE, 0, 0, info);
}

struct map_home_info rig_home(struct client *client, uint64_t id)
{
	struct map_home_info home;
	uint8_t out[MAP_ANSWER_AT + sizeof(home)];
	struct client_request request = {.op = XSEG_OP_CONTROL,
		.key.volume = id,
		.arg0 = MAP_HOME,
		.receive = out,
		.receive_size = sizeof(out)};
	must(client_do(client, &request) == 0);
	memcpy(&home, out + MAP_ANSWER_AT, sizeof(home));
	return home;
}
