/* SPDX-License-Identifier: Apache-2.0 */
/* Bare lanes that answer, forward, or ask: what a request costs without any peer's own work. */
#include "bench/hop.h"

#include <base/path.h>
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#define BATCH 64u
#define WAIT_NS 100000000u

static volatile sig_atomic_t ended;

static void on_term(int signal)
{
	(void)signal;
	ended = 1;
}

uint32_t hop_bind(struct xseg_lane *lane, const char *name)
{
	uint32_t peer, port;
	uint16_t epoch;
	uint8_t index = (uint8_t)lane->index;
	must(xseg_peer_join(lane->seg, name, "bench", 1ull << index, &peer, &epoch) == 0);
	must(xseg_port_bind(lane->seg, name, peer, epoch, &index, 1, &port) == 0);
	return port;
}

/* --- server ------------------------------------------------------------------ */

/* What the null blocker does with a request, at the least: look at it, say how much was served. */
static inline void serve_one(struct xseg_lane *lane, uint32_t slot, uint32_t next)
{
	unsigned frame;
	if (xseg_accept(lane, slot, &frame) != 0)
		return;
	struct xseg_request *request = xseg_at(lane, slot);
	if (next != XSEG_NONE) {
		struct xseg_frame down = request->frame[frame];
		must(xseg_forward(lane, slot, next, &down) == 0);
		return;
	}
	request->result = 0;
	request->length = request->frame[frame].length;
	xseg_respond(lane, slot);
}

static void serve(struct xseg_lane *lane, uint32_t next, bool waits)
{
	struct xseg_hint_message m[BATCH];
	while (!ended) {
		uint32_t count = xseg_poll(lane, m, BATCH);
		for (uint32_t i = 0; i < count; i++)
			serve_one(lane, m[i].request, next);
		/* each turn: it also places replies that found a full ring */
		xseg_turn_end(lane);
		if (!count && waits)
			xseg_wait(lane, WAIT_NS);
	}
}

static int server(void *arg)
{
	struct hop_peer *peer = arg;
	struct sigaction action = {.sa_handler = on_term};
	struct xseg_lane *lane;
	uint32_t next = XSEG_NONE;
	must(sigaction(SIGTERM, &action, NULL) == 0);
	must(bench_pin(peer->cpu));
	must(xseg_lane_join(peer->seg, false, &lane) == 0);
	if (peer->next)
		must(xseg_port_find(peer->seg, peer->next, &next) == 0);
	uint32_t port = hop_bind(lane, peer->name);
	serve(lane, next, peer->waits);
	struct xseg_peer_view view;
	must(xseg_peer_find(peer->seg, peer->name, &view) == 0);
	xseg_port_unbind(peer->seg, port);
	xseg_peer_leave(peer->seg, view.index);
	xseg_lane_leave(lane);
	return 0;
}

/* Until it serves, or has ended: -1. */
static pid_t wait_bound(const struct xseg *seg, uint32_t port, pid_t pid)
{
	struct xseg_frame any = {.lane = XSEG_LANE_ANY};
	while (xseg_port_lane(seg, port, &any) == XSEG_NONE) {
		if (waitpid(pid, NULL, WNOHANG) == pid)
			return -1;
		usleep(1000);
	}
	return pid;
}

pid_t hop_start(struct hop_peer *peer)
{
	uint32_t port;
	must(xseg_port_reserve(peer->seg, peer->name, &port) == 0);
	pid_t pid = wait_bound(peer->seg, port, child_start(server, peer));
	must(pid > 0);
	return pid;
}

static bool build_folder(char folder[PATH_LENGTH_MAX])
{
	const char *from = getenv("SKERRY_BUILD");
	if (from)
		return snprintf(folder, PATH_LENGTH_MAX, "%s", from) < (int)PATH_LENGTH_MAX;
	ssize_t size = readlink("/proc/self/exe", folder, PATH_LENGTH_MAX - 1);
	if (size <= 0)
		return false;
	folder[size] = 0;
	*strrchr(folder, '/') = 0;
	return true;
}

pid_t hop_start_peer(struct hop_peer *peer, const char *role)
{
	char folder[PATH_LENGTH_MAX], program[PATH_LENGTH_MAX + 16], modules[PATH_LENGTH_MAX + 16];
	char what[2 * NAME_LENGTH_MAX + 8];
	if (!build_folder(folder))
		return -1;
	snprintf(program, sizeof(program), "%s/xsegpeer", folder);
	snprintf(modules, sizeof(modules), "%s/.libs", folder);
	snprintf(what, sizeof(what), "%s=%s", peer->name, role);
	uint32_t port;
	must(xseg_port_reserve(peer->seg, peer->name, &port) == 0);
	if (access(program, X_OK) != 0)
		return -1;
	pid_t pid = fork();
	must(pid >= 0);
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		must(bench_pin(peer->cpu) && setenv("SKERRY_MODULE_DIR", modules, 1) == 0);
		must(freopen("/dev/null", "w", stdout));
		execl(program, "xsegpeer", "-s", peer->seg->name, what, NULL);
		_exit(127);
	}
	return wait_bound(peer->seg, port, pid);
}

void hop_stop(struct hop_peer *peer, pid_t pid)
{
	(void)peer;
	must(kill(pid, SIGTERM) == 0);
	must(child_end(pid) == 0);
}

/* --- client -------------------------------------------------------------------- */

void hop_client_init(struct hop_client *client, struct xseg *seg, const char *port, bool waits)
{
	must(xseg_lane_join(seg, false, &client->lane) == 0);
	must(xseg_port_find(seg, port, &client->port) == 0);
	client->waits = waits;
}

void hop_client_fini(struct hop_client *client) { xseg_lane_leave(client->lane); }

static inline void ask(struct xseg_lane *lane, uint32_t port, uint64_t number)
{
	uint32_t slot;
	must(xseg_get(lane, &slot) == 0);
	struct xseg_request *request = xseg_at(lane, slot);
	request->frame[0] = (struct xseg_frame){.op = XSEG_OP_DISCARD,
		.lane = XSEG_LANE_ANY,
		.key = {.volume = 1},
		.length = XSEG_PAGE};
	request->cookie = number;
	must(xseg_submit(lane, slot, port) == 0);
}

/* Takes what has come back; how many. */
static inline uint32_t collect(struct hop_client *client)
{
	struct xseg_hint_message m[BATCH];
	uint32_t count = xseg_poll(client->lane, m, BATCH), done = 0;
	for (uint32_t i = 0; i < count; i++) {
		if (xseg_receive(client->lane, m[i].request) != 0)
			continue;
		must(xseg_at(client->lane, m[i].request)->result == 0);
		xseg_put(client->lane, m[i].request);
		done++;
	}
	if (!count && client->waits)
		xseg_wait(client->lane, WAIT_NS);
	return done;
}

void hop_one_by_one(struct hop_client *client, unsigned count, struct samples *samples)
{
	for (unsigned i = 0; i < count; i++) {
		uint64_t start = clock_now_ns();
		client->lane->now_ns = start;
		ask(client->lane, client->port, i);
		xseg_turn_end(client->lane);
		while (collect(client) == 0)
			;
		samples_add(samples, (double)(clock_now_ns() - start));
	}
}

double hop_many(struct hop_client *client, unsigned count, unsigned depth)
{
	unsigned asked = 0, done = 0;
	uint64_t start = clock_now_ns();
	while (done < count) {
		client->lane->now_ns = clock_now_ns();
		while (asked < count && asked - done < depth)
			ask(client->lane, client->port, asked++);
		xseg_turn_end(client->lane);
		done += collect(client);
	}
	return count * 1e3 / (double)(clock_now_ns() - start);
}

/* --- both on one lane ------------------------------------------------------------- */

double hop_stacked(struct xseg_lane *lane, uint32_t port, unsigned count, unsigned depth)
{
	struct xseg_hint_message m[BATCH];
	unsigned asked = 0, done = 0;
	uint64_t start = clock_now_ns();
	while (done < count) {
		lane->now_ns = clock_now_ns();
		while (asked < count && asked - done < depth)
			ask(lane, port, asked++);
		for (uint32_t n; (n = xseg_poll(lane, m, BATCH)) > 0;)
			for (uint32_t i = 0; i < n; i++) {
				if (m[i].kind == XSEG_HINT_SUBMIT) {
					serve_one(lane, m[i].request, XSEG_NONE);
					continue;
				}
				must(xseg_receive(lane, m[i].request) == 0);
				xseg_put(lane, m[i].request);
				done++;
			}
		xseg_turn_end(lane);
	}
	return count * 1e3 / (double)(clock_now_ns() - start);
}
