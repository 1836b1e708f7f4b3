/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A network that can be made bad, in user space: relays connections to 127.0.0.1:LISTEN on to
 * 127.0.0.1:TARGET, and does with them what its control file says at the moment.
 *
 *   relay LISTEN TARGET CONTROL
 *
 * Words of the control file, read again whenever it changes:
 *   delay=US    each way, from the first byte on
 *   rate=BYTES  a second, each way of each connection; 0: no limit
 *   stall=1     nothing moves, nothing ends
 *   refuse=1    whoever comes is let go at once
 *   cut=N       another number than before: all connections end
 *   corrupt=N   one byte in N is changed; 0: none
 */
#include <arpa/inet.h>
#include <base/clock.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#define PAIRS 64
#define CHUNK 65536u
#define QUEUED_MAX (64u << 20) /* then the sender has to wait */

struct chunk {
	STAILQ_ENTRY(chunk) link;
	uint64_t due_ns;
	uint32_t from, to;
	uint8_t bytes[CHUNK];
};

struct way {
	int in, out;
	bool ended, shut;
	uint64_t queued, free_ns; /* free_ns: when the line has room for the next one */
	STAILQ_HEAD(, chunk) chunks;
};

struct pair {
	bool live;
	struct way way[2];
};

static struct {
	uint64_t delay_us, rate, stall, refuse, cut, corrupt;
} is;
static struct pair pairs[PAIRS];
static uint64_t until_corrupt;

/* --- what it is to do ------------------------------------------------------------------------- */

static void end_pair(struct pair *pair)
{
	for (unsigned i = 0; i < 2; i++) {
		struct chunk *chunk;
		while ((chunk = STAILQ_FIRST(&pair->way[i].chunks))) {
			STAILQ_REMOVE_HEAD(&pair->way[i].chunks, link);
			free(chunk);
		}
	}
	close(pair->way[0].in);
	close(pair->way[0].out);
	pair->live = false;
}

static void read_control(const char *path)
{
	static struct timespec seen;
	static const char *const words[] = {"delay", "rate", "stall", "refuse", "cut", "corrupt"};
	uint64_t *const numbers[] = {
		&is.delay_us, &is.rate, &is.stall, &is.refuse, &is.cut, &is.corrupt};
	char line[256] = "", word[16];
	uint64_t cut = is.cut, number;
	struct stat st;
	int used;
	if (stat(path, &st) || memcmp(&st.st_mtim, &seen, sizeof(seen)) == 0)
		return;
	FILE *in = fopen(path, "re");
	if (!in || !fgets(line, sizeof(line), in)) {
		if (in)
			fclose(in);
		return;
	}
	fclose(in);
	seen = st.st_mtim;
	memset(&is, 0, sizeof(is));
	for (const char *at = line; sscanf(at, " %15[a-z]=%lu%n", word, &number, &used) == 2;
		at += used)
		for (unsigned i = 0; i < 6; i++)
			if (strcmp(word, words[i]) == 0)
				*numbers[i] = number;
	until_corrupt = is.corrupt;
	for (unsigned i = 0; is.cut != cut && i < PAIRS; i++)
		if (pairs[i].live)
			end_pair(&pairs[i]);
}

/* --- bytes ------------------------------------------------------------------------------------ */

static void corrupt(struct chunk *chunk)
{
	uint32_t size = chunk->to;
	if (is.corrupt == 0)
		return;
	if (until_corrupt > size) {
		until_corrupt -= size;
		return;
	}
	chunk->bytes[until_corrupt - 1] ^= 0x10;
	until_corrupt = is.corrupt;
}

static bool take(struct way *way)
{
	struct chunk *chunk = malloc(sizeof(*chunk));
	ssize_t got = chunk ? recv(way->in, chunk->bytes, CHUNK, MSG_DONTWAIT) : -1;
	if (got <= 0) {
		way->ended = got == 0 || (errno != EAGAIN && errno != EINTR);
		free(chunk);
		return got < 0 && !way->ended;
	}
	uint64_t now = clock_now_ns();
	chunk->from = 0;
	chunk->to = (uint32_t)got;
	corrupt(chunk);
	if (way->free_ns < now)
		way->free_ns = now;
	if (is.rate)
		way->free_ns += (uint64_t)got * 1000000000u / is.rate;
	chunk->due_ns = way->free_ns + is.delay_us * 1000;
	way->queued += (uint64_t)got;
	STAILQ_INSERT_TAIL(&way->chunks, chunk, link);
	return true;
}

/* What is on a line, and what waits before it: as much as it carries in 20 ms. */
static bool is_room(const struct way *way)
{
	uint64_t most = is.rate / 1000000 * is.delay_us + is.rate / 50 + CHUNK;
	return way->queued < (is.rate && most < QUEUED_MAX ? most : QUEUED_MAX);
}

/* False: the connection is at its end. */
static bool give(struct way *way, uint64_t now)
{
	struct chunk *chunk;
	while ((chunk = STAILQ_FIRST(&way->chunks)) && chunk->due_ns <= now) {
		ssize_t sent = send(way->out, chunk->bytes + chunk->from, chunk->to - chunk->from,
			MSG_DONTWAIT | MSG_NOSIGNAL);
		if (sent < 0)
			return errno == EAGAIN || errno == EINTR;
		chunk->from += (uint32_t)sent;
		way->queued -= (uint64_t)sent;
		if (chunk->from < chunk->to)
			return true;
		STAILQ_REMOVE_HEAD(&way->chunks, link);
		free(chunk);
	}
	if (way->ended && !chunk && !way->shut) {
		shutdown(way->out, SHUT_WR);
		way->shut = true;
	}
	return true;
}

/* --- connections ------------------------------------------------------------------------------ */

static struct sockaddr_in local(uint16_t port)
{
	return (struct sockaddr_in){.sin_family = AF_INET,
		.sin_port = htons(port),
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
}

static void enter(int listener, uint16_t target)
{
	struct sockaddr_in to = local(target);
	int yes = 1, kernel = 1 << 20, a = accept4(listener, NULL, NULL, SOCK_CLOEXEC), b;
	if (a < 0)
		return;
	b = is.refuse ? -1 : socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	for (unsigned i = 0; b >= 0 && i < PAIRS; i++) {
		if (pairs[i].live)
			continue;
		if (connect(b, (struct sockaddr *)&to, sizeof(to)))
			break;
		for (unsigned end = 0; end < 2; end++) {
			int fd = end ? b : a;
			setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
			/* what is on the line lies in our chunks, no more of it in the kernel */
			setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &kernel, sizeof(kernel));
		}
		pairs[i] = (struct pair){
			.live = true, .way = {{.in = a, .out = b}, {.in = b, .out = a}}};
		STAILQ_INIT(&pairs[i].way[0].chunks);
		STAILQ_INIT(&pairs[i].way[1].chunks);
		return;
	}
	close(a);
	if (b >= 0)
		close(b);
}

/* Which ends to wait for, and until when. */
static nfds_t look(struct pollfd *fds, struct way **ways, uint64_t now, uint64_t *until)
{
	nfds_t count = 1;
	for (unsigned i = 0; i < 2 * PAIRS; i++) {
		struct way *way = &pairs[i / 2].way[i % 2];
		if (!pairs[i / 2].live || is.stall)
			continue;
		const struct chunk *chunk = STAILQ_FIRST(&way->chunks);
		if (chunk && chunk->due_ns > now && chunk->due_ns < *until)
			*until = chunk->due_ns;
		if (!way->ended && is_room(way)) {
			ways[count] = way;
			fds[count++] = (struct pollfd){.fd = way->in, .events = POLLIN};
		}
		if (chunk && chunk->due_ns <= now) {
			ways[count] = NULL;
			fds[count++] = (struct pollfd){.fd = way->out, .events = POLLOUT};
		}
	}
	return count;
}

static void turn(int listener, uint16_t target)
{
	struct pollfd fds[1 + 4 * PAIRS] = {{.fd = listener, .events = POLLIN}};
	struct way *ways[1 + 4 * PAIRS] = {NULL};
	uint64_t now = clock_now_ns(), until = now + 10000000;
	nfds_t count = look(fds, ways, now, &until);
	struct timespec wait = {0, (long)(until - now)};
	if (ppoll(fds, count, &wait, NULL) < 0)
		return;
	for (nfds_t i = 1; i < count; i++)
		if (ways[i] && fds[i].revents)
			take(ways[i]);
	now = clock_now_ns();
	for (unsigned i = 0; i < PAIRS && !is.stall; i++) {
		struct pair *pair = &pairs[i];
		if (pair->live && (!give(&pair->way[0], now) || !give(&pair->way[1], now) ||
					  (pair->way[0].shut && pair->way[1].shut)))
			end_pair(pair);
	}
	if (fds[0].revents)
		enter(listener, target);
}

int main(int argc, char **argv)
{
	int yes = 1, listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (argc != 4) {
		fprintf(stderr, "usage: relay LISTEN TARGET CONTROL\n");
		return 2;
	}
	struct sockaddr_in at = local((uint16_t)atoi(argv[1]));
	setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
	if (bind(listener, (struct sockaddr *)&at, sizeof(at)) || listen(listener, 64)) {
		fprintf(stderr, "relay: port %s: %s\n", argv[1], strerror(errno));
		return 1;
	}
	signal(SIGPIPE, SIG_IGN);
	for (;;) {
		read_control(argv[3]);
		turn(listener, (uint16_t)atoi(argv[2]));
	}
}
