/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What TCP over loopback does between two processes that poll, a CPU each: the limit of a bridge.
 * Prints one JSON object.
 *
 *   bench_tcp ping SECONDS REQUEST ANSWER    bytes there, bytes back, one at a time; sleep: by
 *                                            processes that sleep meanwhile
 *   bench_tcp stream SECONDS CHUNK           one way, as much as goes, out of 64 MiB and into 64
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench/common.h"

#define MOST (4u << 20)
#define AREA (64u << 20)

static uint8_t area[AREA];
static int wait_flag = MSG_DONTWAIT;
static size_t where; /* the next chunk: data of a volume are in no CPU's cache, either */

static uint8_t *next_chunk(void)
{
	where = where + MOST < AREA ? where + MOST : 0;
	return area + where;
}

/* The n-th CPU that we may use, the last one if there are fewer. */
static void stay_on(unsigned n)
{
	cpu_set_t may, one;
	CPU_ZERO(&one);
	must(sched_getaffinity(0, sizeof(may), &may) == 0);
	for (unsigned cpu = 0; cpu < CPU_SETSIZE; cpu++)
		if (CPU_ISSET(cpu, &may)) {
			CPU_ZERO(&one);
			CPU_SET(cpu, &one);
			if (n-- == 0)
				break;
		}
	must(sched_setaffinity(0, sizeof(one), &one) == 0);
}

static bool receive(int fd, size_t size)
{
	uint8_t *bytes = next_chunk();
	for (size_t got = 0; got < size;) {
		ssize_t more = recv(fd, bytes + got, size - got, wait_flag);
		if (more < 0 && errno == EAGAIN)
			continue;
		if (more <= 0)
			return false;
		got += (size_t)more;
	}
	return true;
}

static bool transmit(int fd, size_t size)
{
	const uint8_t *bytes = next_chunk();
	for (size_t sent = 0; sent < size;) {
		ssize_t more = send(fd, bytes + sent, size - sent, MSG_NOSIGNAL);
		if (more <= 0)
			return false;
		sent += (size_t)more;
	}
	return true;
}

static int listen_at(struct sockaddr_in *at)
{
	socklen_t size = sizeof(*at);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	*at = (struct sockaddr_in){
		.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	must(fd >= 0 && bind(fd, (struct sockaddr *)at, sizeof(*at)) == 0 && listen(fd, 1) == 0);
	must(getsockname(fd, (struct sockaddr *)at, &size) == 0);
	return fd;
}

static void serve(int listener, size_t request, size_t answer)
{
	int yes = 1, fd = accept(listener, NULL, NULL);
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
	stay_on(1);
	memset(area, 2, sizeof(area));
	while (receive(fd, request) && (answer == 0 || transmit(fd, answer)))
		continue;
	_exit(0);
}

int main(int argc, char **argv)
{
	bool sleeps = argc == 5 && strcmp(argv[1], "sleep") == 0;
	bool ping = sleeps || (argc == 5 && strcmp(argv[1], "ping") == 0);
	if (!ping && (argc != 4 || strcmp(argv[1], "stream") != 0)) {
		fprintf(stderr, "usage: bench_tcp ping|sleep SECONDS REQUEST ANSWER | stream "
				"SECONDS CHUNK\n");
		return 2;
	}
	size_t request = strtoul(argv[3], NULL, 10), answer = ping ? strtoul(argv[4], NULL, 10) : 0;
	must(request > 0 && request <= MOST && answer <= MOST);
	if (sleeps)
		wait_flag = 0;
	struct sockaddr_in at;
	int yes = 1, listener = listen_at(&at);
	pid_t server = fork();
	if (server == 0)
		serve(listener, request, answer);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	must(connect(fd, (struct sockaddr *)&at, sizeof(at)) == 0);
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
	stay_on(0);
	memset(area, 1, sizeof(area));
	uint64_t begun = clock_now_ns(), until = begun + (uint64_t)(atof(argv[2]) * 1e9), count = 0;
	while (clock_now_ns() < until && transmit(fd, request) && (!ping || receive(fd, answer)))
		count++;
	double took = (double)(clock_now_ns() - begun) / 1e9;
	close(fd);
	waitpid(server, NULL, 0);
	printf("{\"ops_per_second\": %.1f, \"us\": %.2f, \"bytes_per_second\": %.0f}\n",
		(double)count / took, took * 1e6 / (double)count,
		(double)count * (double)(request + answer) / took);
	return 0;
}
