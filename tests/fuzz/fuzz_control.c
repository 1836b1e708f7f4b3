/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fuzzes the keeper's control socket: the input is what a client says there, in pieces, to a keeper
 * with three peers whose processes are only pretended. Each line that comes back must be a
 * JSON-RPC answer, and the keeper must still answer the next client.
 */
#include <base/log.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <xseg/port.h>

#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/roles.h"
#include "tests/lib/fixture.h"
#include "tools/keeper/keeper.h"
#include "tools/keeper/keeper_config.h"
#include "tools/keeper/keeper_job.h"
#include "tools/report/program.h"
#include "tools/report/rpc.h"

#define ANSWER_MAX (1u << 20)

static const char demo_file[] =
	"[segment]\nname=x\n"
	"[peer nbd0]\nrole=front_nbd\nlisten=unix:/a\n"
	"edge.volume=vol0\n"
	"[peer vol0]\nrole=volume\nhost=low\nedge.store=null0\nedge.map=map0\n"
	"[peer map0]\nrole=mapperd\nhost=low\nedge.store=null0\n"
	"[peer null0]\nrole=blocker_null\nhost=low\n";

static struct xseg seg;
static char path[64];

/* --- processes that are none ----------------------------------------------------------------- */

int __wrap_keeper_check(
	struct keeper *keeper, const struct pipeline *pipeline, struct fault *fault);
int __wrap_keeper_check_host(struct keeper *keeper, unsigned host, struct fault *fault);
int __wrap_program_run(char *const argv[], uint64_t limit_ns, struct program_result *result);
int __wrap_inotify_init1(int flags);
int __real_inotify_init1(int flags);
int __wrap_keeper_host_start(struct keeper_host *host, uint64_t limit_ns);
void __wrap_keeper_host_stop(struct keeper_host *host, uint64_t limit_ns, bool successor);

int __wrap_keeper_check(struct keeper *keeper, const struct pipeline *pipeline, struct fault *fault)
{
	(void)keeper;
	return fuzz_roles_check(pipeline, fault);
}

int __wrap_keeper_check_host(struct keeper *keeper, unsigned host, struct fault *fault)
{
	(void)host;
	return fuzz_roles_check(&keeper->pipeline, fault);
}

/* One for all: the last close of a watch takes the kernel 15 ms. */
int __wrap_inotify_init1(int flags)
{
	static int watch = -1;
	if (watch < 0)
		watch = __real_inotify_init1(flags);
	return fcntl(watch, F_DUPFD_CLOEXEC, 0);
}

/* Nothing is ever run. */
int __wrap_program_run(char *const argv[], uint64_t limit_ns, struct program_result *result)
{
	(void)argv;
	(void)limit_ns;
	memset(result, 0, sizeof(*result));
	return -ENOENT;
}

int __wrap_keeper_host_start(struct keeper_host *host, uint64_t limit_ns)
{
	(void)limit_ns;
	bool lives = host->index < 3;
	sm_move(keeper_states, &host->state, KEEPER_STARTING);
	sm_move(keeper_states, &host->state, lives ? KEEPER_RUNNING : KEEPER_DEAD);
	if (!lives)
		snprintf(host->reason, sizeof(host->reason), "it would not");
	return 0;
}

void __wrap_keeper_host_stop(struct keeper_host *host, uint64_t limit_ns, bool successor)
{
	(void)limit_ns;
	(void)successor;
	sm_move(keeper_states, &host->state, KEEPER_STOPPING);
	sm_move(keeper_states, &host->state, KEEPER_STOPPED);
	host->keeper->stopped_count++;
	keeper_turn_soon(host->keeper);
}

/* --- a keeper for each input ----------------------------------------------------------------- */

static void edge(const char *name, const char *to)
{
	uint32_t index, port;
	must(xseg_edge_reserve(&seg, name, &index) == 0);
	must(xseg_port_reserve(&seg, to, &port) == 0);
	xseg_edge_set(&seg, index, port);
}

static struct keeper *keeper_begin(void)
{
	struct keeper *keeper = calloc(1, sizeof(*keeper));
	must(keeper);
	keeper->report = keeper->lock = keeper->notify_fd = -1;
	keeper->start_ns = keeper->stop_ns = 1000000000;
	keeper->seg = seg;
	keeper->joined = true;
	snprintf(keeper->name, sizeof(keeper->name), "%s", seg.name);
	snprintf(keeper->path, sizeof(keeper->path), "%s", path);
	must(pipeline_load(&keeper->pipeline, path, &keeper->fault) == 0);
	must((keeper->base = event_base_new()));
	keeper_turn_open(keeper);
	keeper_reap_open(keeper);
	for (unsigned i = 0; i < keeper->pipeline.host_count; i++) {
		keeper_host_init(keeper, i);
		keeper->order[i] = keeper->pipeline.order[i];
		must(keeper_host_start(&keeper->hosts[i], 0) == 0);
	}
	keeper->order_count = keeper->pipeline.host_count;
	keeper->phase = KEEPER_PHASE_RUNNING;
	edge("nbd0:volume", "vol0");
	edge("vol0:store", "null0");
	edge("vol0:map", "map0");
	edge("map0:store", "null0");
	must(keeper_server_open(keeper, &keeper->fault) == 0);
	keeper_job_open(keeper);
	return keeper;
}

static void keeper_end(struct keeper *keeper)
{
	struct fault fault = {0};
	fault_set(&fault, FAULT_FAILED, NULL, NULL, "the end");
	if (keeper->operation.kind != KEEPER_OP_NONE)
		keeper_server_finish(keeper, NULL, &fault);
	keeper_config_drop(keeper);
	keeper_job_close(keeper, true);
	keeper_server_close(keeper);
	keeper_reap_close(keeper);
	for (unsigned i = 0; i < keeper->pipeline.host_count; i++)
		if (keeper->hosts[i].timer) /* places of processes that have gone stay */
			event_free(keeper->hosts[i].timer);
	event_free(keeper->turn);
	event_free(keeper->sigterm);
	event_free(keeper->sigint);
	event_free(keeper->sighup);
	event_base_free(keeper->base);
	pipeline_free(&keeper->pipeline);
	free(keeper);
}

/* --- a client -------------------------------------------------------------------------------- */

static int client_connect(const struct keeper *keeper)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	snprintf(address.sun_path, sizeof(address.sun_path), "%s/%s/xsegd.sock",
		getenv("SKERRY_RUN_DIR"), keeper->name);
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	must(fd >= 0 && connect(fd, (struct sockaddr *)&address, sizeof(address)) == 0);
	return fd;
}

/* Each whole line is an answer to somebody. */
static void answers_check(const char *text, size_t size)
{
	for (const char *end; (end = memchr(text, '\n', size)); text = end + 1) {
		json_t *answer = json_loadb(text, (size_t)(end - text), 0, NULL);
		const char *version = json_string_value(json_object_get(answer, "jsonrpc"));
		must(version && !strcmp(version, "2.0") && json_object_get(answer, "id"));
		must(!json_object_get(answer, "result") != !json_object_get(answer, "error"));
		json_decref(answer);
		size -= (size_t)(end + 1 - text);
	}
}

static size_t turn(struct keeper *keeper, int fd, char *answer, size_t have)
{
	event_base_loop(keeper->base, EVLOOP_NONBLOCK);
	for (ssize_t n; have < ANSWER_MAX; have += (size_t)n) {
		n = recv(fd, answer + have, ANSWER_MAX - have, MSG_DONTWAIT);
		if (n <= 0)
			break;
	}
	return have;
}

static void converse(struct keeper *keeper, const uint8_t *data, size_t size, size_t piece)
{
	static char answer[ANSWER_MAX];
	int fd = client_connect(keeper);
	size_t have = turn(keeper, fd, answer, 0);
	while (size && keeper->phase != KEEPER_PHASE_STOPPING) {
		ssize_t n = send(fd, data, size < piece ? size : piece, MSG_NOSIGNAL);
		if (n < 0 && errno != EAGAIN)
			break;
		data += n > 0 ? n : 0;
		size -= n > 0 ? (size_t)n : 0;
		have = turn(keeper, fd, answer, have);
	}
	for (unsigned i = 0; i < 6; i++)
		have = turn(keeper, fd, answer, have);
	answers_check(answer, have);
	close(fd);
	event_base_loop(keeper->base, EVLOOP_NONBLOCK);
}

/* Whatever one client said, the next is answered. */
static void still_answers(struct keeper *keeper)
{
	static const char ask[] = "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"rpc.describe\"}\n";
	static char answer[ANSWER_MAX];
	int fd = client_connect(keeper);
	must(send(fd, ask, sizeof(ask) - 1, MSG_NOSIGNAL) == sizeof(ask) - 1);
	size_t have = 0;
	for (unsigned i = 0; i < 20 && !memchr(answer, '\n', have); i++)
		have = turn(keeper, fd, answer, have);
	answers_check(answer, have);
	must(memmem(answer, have, "\"result\"", 8));
	close(fd);
	event_base_loop(keeper->base, EVLOOP_NONBLOCK);
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	char run[256];
	(void)argc;
	(void)argv;
	log_level_set(LOG_LEVEL_ERROR);
	scratch_begin();
	atexit(scratch_end);
	must(chdir(scratch_dir()) == 0);
	scratch_segment(&seg, 8u << 20, 4, 64);
	snprintf(run, sizeof(run), "%s/%s", getenv("SKERRY_RUN_DIR"), seg.name);
	must(path_make_dir(run) == 0);
	int file = memfd_create("pipeline", MFD_CLOEXEC);
	must(file >= 0 && write(file, demo_file, sizeof(demo_file) - 1) > 0);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", file);
	return 0;
}

/* The first byte says in which pieces the rest comes. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (size < 1)
		return 0;
	struct keeper *keeper = keeper_begin();
	converse(keeper, data + 1, size - 1, data[0] == 'p' ? 7 : 65536);
	if (keeper->phase == KEEPER_PHASE_RUNNING)
		still_answers(keeper);
	keeper_end(keeper);
	return 0;
}
