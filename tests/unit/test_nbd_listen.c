/* SPDX-License-Identifier: Apache-2.0 */
/* Where clients come in: good and bad addresses, sockets of the dead and the living, TLS. */
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/stat.h>
#include <sys/un.h>

#include "tests/lib/unit.h"
#include "tests/unit/nbd_rig.h"

static char why[512];

static int open_with(struct nbd_shared *shared, struct nbd_options *options, const char *address)
{
	char *items[1] = {(char *)(uintptr_t)address};
	memset(shared, 0, sizeof(*shared));
	options->listen = (struct peer_list){.item = items, .count = address != NULL};
	if (!options->socket_mode)
		options->socket_mode = (char *)(uintptr_t) "0640";
	why[0] = 0;
	int error = nbd_listen_open(shared, options, why, sizeof(why));
	if (error)
		nbd_listen_close(shared);
	return error;
}

static const char *socket_path(void)
{
	static char path[256];
	snprintf(path, sizeof(path), "unix:%s/s", scratch_dir());
	return path;
}

static int dial(const char *path)
{
	struct sockaddr_un un = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0);
	strcpy(un.sun_path, path);
	if (connect(fd, (struct sockaddr *)&un, sizeof(un)) == 0)
		return fd;
	close(fd);
	return -1;
}

UNIT(test_unix)
{
	struct nbd_shared shared, other;
	struct nbd_options options = {0};
	struct stat st;
	const char *path = socket_path() + 5;
	ck_assert_int_eq(open_with(&shared, &options, socket_path()), 0);
	ck_assert(shared.listeners.count == 1 && shared.listeners.item[0].trusted);
	ck_assert_int_eq(stat(path, &st), 0);
	ck_assert_uint_eq(st.st_mode & 0777, 0640);
	ck_assert_int_eq(open_with(&other, &options, socket_path()), -EADDRINUSE);
	ck_assert_msg(strstr(why, "another server") && strstr(why, path), "%s", why);
	int fd = dial(path);
	ck_assert_int_ge(fd, 0);
	close(fd);
	nbd_listen_close(&shared);
	ck_assert_int_eq(stat(path, &st), -1);
}

UNIT(test_unix_of_the_dead)
{
	struct nbd_shared shared;
	struct nbd_options options = {0};
	struct sockaddr_un un = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_STREAM, 0);
	strcpy(un.sun_path, socket_path() + 5);
	ck_assert_int_eq(bind(fd, (struct sockaddr *)&un, sizeof(un)), 0);
	close(fd); /* the file stays */
	ck_assert_int_eq(open_with(&shared, &options, socket_path()), 0);
	nbd_listen_close(&shared);
}

/* What is no socket, or somebody else's by now, is left alone. */
UNIT(test_unix_spares_files)
{
	struct nbd_shared shared;
	struct nbd_options options = {0};
	const char *path = socket_path() + 5;
	int fd = open(path, O_CREAT | O_WRONLY, 0600);
	ck_assert_int_ge(fd, 0);
	close(fd);
	ck_assert_int_eq(open_with(&shared, &options, socket_path()), -EEXIST);
	ck_assert_int_eq(access(path, F_OK), 0);
	unlink(path);
	ck_assert_int_eq(open_with(&shared, &options, socket_path()), 0);
	unlink(path);
	fd = open(path, O_CREAT | O_WRONLY, 0600);
	close(fd);
	nbd_listen_close(&shared);
	ck_assert_int_eq(access(path, F_OK), 0);
	unlink(path);
}

/* The next process: nothing is taken yet. */
static void keeper_next(void)
{
	for (unsigned i = 0; i < rig_keeper.count; i++)
		rig_keeper.kept[i].taken = false;
}

static void keeper_end(void)
{
	while (rig_keeper.count)
		close(rig_keeper.kept[--rig_keeper.count].fd);
	rig_keeper = (struct rig_keeper){0};
}

/* As SIGKILL: our copies go, nothing else happens. */
static void die(struct nbd_shared *shared)
{
	for (unsigned i = 0; i < shared->listeners.count; i++) {
		close(shared->listeners.item[i].fd);
		free(shared->listeners.item[i].path);
	}
	keeper_next();
}

static void stop(struct nbd_shared *shared, bool successor)
{
	rig_keeper.successor = successor;
	atomic_store(&shared->listeners.stopping, true);
	nbd_listen_close(shared);
	rig_keeper.successor = false;
	keeper_next();
}

static bool accepts(const struct nbd_shared *shared)
{
	int fd = accept(shared->listeners.item[0].fd, NULL, NULL);
	if (fd >= 0)
		close(fd);
	return fd >= 0;
}

/* Who came while nobody was there is found by the next, after a kill and after a hand-over. */
UNIT(test_kept)
{
	struct nbd_shared shared;
	struct nbd_options options = {0};
	const char *path = socket_path() + 5;
	struct stat st;
	rig_keeper.there = true;
	ck_assert_int_eq(open_with(&shared, &options, socket_path()), 0);
	ck_assert_uint_eq(rig_keeper.count, 1);
	die(&shared);
	int fd = dial(path);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(open_with(&shared, &options, socket_path()), 0);
	ck_assert(shared.listeners.item[0].taken && accepts(&shared) && !accepts(&shared));
	close(fd);
	stop(&shared, true);
	ck_assert_int_eq(stat(path, &st), 0);
	fd = dial(path);
	ck_assert_int_ge(fd, 0);
	options.socket_mode = (char *)(uintptr_t) "0600";
	ck_assert_int_eq(open_with(&shared, &options, socket_path()), 0);
	ck_assert(shared.listeners.item[0].taken && accepts(&shared));
	ck_assert(stat(path, &st) == 0 && (st.st_mode & 0777) == 0600);
	close(fd);
	ck_assert_uint_eq(rig_keeper.count, 1);
	stop(&shared, false);
	ck_assert_uint_eq(rig_keeper.count, 0);
	ck_assert_int_eq(stat(path, &st), -1);
	keeper_end();
}

UNIT(test_kept_tcp)
{
	struct nbd_shared shared;
	struct nbd_options options = {0};
	char name[FRONT_WHO_LENGTH];
	rig_keeper.there = true;
	ck_assert_int_eq(open_with(&shared, &options, "tcp:127.0.0.1:0"), 0);
	strcpy(name, shared.listeners.item[0].name);
	die(&shared);
	ck_assert_int_eq(open_with(&shared, &options, "tcp:127.0.0.1:0"), 0);
	ck_assert(shared.listeners.item[0].taken);
	ck_assert_str_eq(shared.listeners.item[0].name, name); /* the port is the same, too */
	die(&shared);
	ck_assert_int_eq(open_with(&shared, &options, name), -EADDRINUSE); /* asked for otherwise */
	stop(&shared, false);
	keeper_end();
}

/* A file of our name that somebody else has put there is not ours; nor is a name that is gone. */
UNIT(test_kept_elsewhere)
{
	struct nbd_shared shared;
	struct nbd_options options = {0};
	struct sockaddr_un un = {.sun_family = AF_UNIX};
	char other[300];
	rig_keeper.there = true;
	ck_assert_int_eq(open_with(&shared, &options, socket_path()), 0);
	die(&shared);
	snprintf(other, sizeof(other), "%s.other", socket_path() + 5);
	int fd = socket(AF_UNIX, SOCK_STREAM, 0);
	ck_assert_uint_lt(strlen(other), sizeof(un.sun_path));
	strcpy(un.sun_path, other);
	ck_assert(bind(fd, (struct sockaddr *)&un, sizeof(un)) == 0 && listen(fd, 1) == 0);
	ck_assert_int_eq(rename(other, socket_path() + 5), 0);
	ck_assert_int_eq(open_with(&shared, &options, socket_path()), -EADDRINUSE);
	close(fd);
	unlink(socket_path() + 5);
	ck_assert_int_eq(open_with(&shared, &options, socket_path()), 0);
	ck_assert(!shared.listeners.item[0].taken);
	stop(&shared, false);
	keeper_end();
}

/* A successor that fails to start leaves everything to the one after it. */
UNIT(test_kept_over_failed_start)
{
	struct nbd_shared shared;
	struct nbd_options options = {0};
	char *items[2] = {(char *)(uintptr_t)socket_path(), (char *)(uintptr_t) "nonsense"};
	rig_keeper.there = true;
	ck_assert_int_eq(open_with(&shared, &options, socket_path()), 0);
	die(&shared);
	memset(&shared, 0, sizeof(shared));
	options.listen = (struct peer_list){.item = items, .count = 2};
	ck_assert_int_lt(nbd_listen_open(&shared, &options, why, sizeof(why)), 0);
	nbd_listen_close(&shared);
	keeper_next();
	ck_assert_int_eq(open_with(&shared, &options, socket_path()), 0);
	ck_assert(shared.listeners.item[0].taken);
	stop(&shared, false);
	keeper_end();
}

static const struct {
	const char *address, *says;
} bad[] = {{"unix:/nowhere/at/all/s", "folder does not exist"}, {"unix:", "1 to"},
	{"tcp:1.2.3.4.5:99999", ""}, {"tcp:::1:10809", "[IPV6]"}, {"tcp:[::1", "HOST:PORT"},
	{"tcp:[::1]x", "HOST:PORT"}, {"tcp:127.0.0.1:", "HOST:PORT"},
	{"tcp:127.0.0.1:nosuchservice", ""}, {"10809", "unix:PATH"}, {"systemd", "no such socket"},
	{"systemd:nbd", "no such socket"}, {"systemdx", "unix:PATH"}, {"tcp:192.0.2.1:0", ""}};

UNIT(test_bad_addresses)
{
	struct nbd_shared shared;
	struct nbd_options options = {0};
	char longest[200] = "unix:/";
	memset(longest + 6, 'x', 150);
	ck_assert_int_eq(open_with(&shared, &options, longest), -EINVAL);
	for (unsigned i = 0; i < countof(bad); i++) {
		ck_assert_msg(open_with(&shared, &options, bad[i].address) < 0, "%s was opened",
			bad[i].address);
		ck_assert_msg(strstr(why, bad[i].says) && strstr(why, bad[i].address), "%s: %s",
			bad[i].address, why);
	}
	ck_assert_int_eq(open_with(&shared, &options, NULL), -EINVAL);
	ck_assert_msg(strstr(why, "nothing to listen on"), "%s", why);
	options.socket_mode = (char *)(uintptr_t) "0899";
	ck_assert_int_eq(open_with(&shared, &options, socket_path()), -EINVAL);
}

UNIT(test_tcp)
{
	struct nbd_shared shared, other;
	struct nbd_options options = {0};
	char again[FRONT_WHO_LENGTH];
	ck_assert_int_eq(open_with(&shared, &options, "tcp:127.0.0.1:0"), 0);
	ck_assert(shared.listeners.count == 1 && shared.listeners.item[0].trusted);
	strcpy(again, shared.listeners.item[0].name);
	ck_assert_int_eq(open_with(&other, &options, again), -EADDRINUSE);
	ck_assert_msg(strstr(why, "the port is in use") && strstr(why, again), "%s", why);
	nbd_listen_close(&shared);
	ck_assert_int_eq(open_with(&shared, &options, "tcp:localhost:0"), 0);
	ck_assert_uint_ge(shared.listeners.count, 1);
	nbd_listen_close(&shared);
	int six = socket(AF_INET6, SOCK_STREAM, 0);
	struct sockaddr_in6 loopback = {
		.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
	bool has_six = six >= 0 && bind(six, (struct sockaddr *)&loopback, sizeof(loopback)) == 0;
	close(six);
	if (has_six) {
		ck_assert_int_eq(open_with(&shared, &options, "tcp:[::1]:0"), 0);
		ck_assert(shared.listeners.item[0].trusted &&
			  strstr(shared.listeners.item[0].name, "[::1]"));
		nbd_listen_close(&shared);
	}
}

UNIT(test_tls_where_others_can_come)
{
	struct nbd_shared shared;
	struct nbd_options options = {.tls = NBD_TLS_AUTO};
	ck_assert_int_eq(open_with(&shared, &options, "tcp:0.0.0.0:0"), -EPERM);
	ck_assert_msg(
		strstr(why, "TLS") && strstr(why, "tls-cert") && strstr(why, "tls=off"), "%s", why);
	ck_assert_int_eq(open_with(&shared, &options, "tcp:*:0"), -EPERM);
	options.tls = NBD_TLS_OFF;
	ck_assert_int_eq(open_with(&shared, &options, "tcp:*:0"), 0);
	ck_assert(!shared.listeners.item[0].trusted);
	nbd_listen_close(&shared);
}

UNIT(test_tls_options)
{
	static char file[] = "/nowhere/x.pem";
	static const struct nbd_options wrong[] = {{.tls_cert = file}, {.tls_key = file},
		{.tls = NBD_TLS_REQUIRE}, {.tls_ca = file}, {.tls_cert = file, .tls_key = file}};
	for (unsigned i = 0; i < countof(wrong); i++) {
		struct nbd_shared shared = {0};
		why[0] = 0;
		ck_assert_msg(nbd_tls_open(&shared, &wrong[i], why, sizeof(why)) < 0, "case %u", i);
		ck_assert_msg(
			strstr(why, "tls-") || strstr(why, "without TLS"), "case %u: %s", i, why);
		ck_assert_ptr_null(shared.tls);
	}
}

/* In a child: descriptors 3 and 4 belong to somebody else here. */
static int be_activated(void *argument)
{
	struct nbd_shared shared;
	struct nbd_options options = {.tls = NBD_TLS_OFF};
	char pid[16];
	(void)argument;
	int fd = fcntl(socket(AF_INET, SOCK_STREAM, 0), F_DUPFD, 10);
	child_check(listen(fd, 1) == 0);
	child_check(dup2(fd, 3) == 3 && dup2(fd, 4) == 4);
	snprintf(pid, sizeof(pid), "%d", (int)getpid());
	setenv("LISTEN_PID", pid, 1);
	setenv("LISTEN_FDS", "2", 1);
	setenv("LISTEN_FDNAMES", "web:nbd", 1);
	child_check(open_with(&shared, &options, NULL) == 0 && shared.listeners.count == 2);
	nbd_listen_close(&shared);
	child_check(
		open_with(&shared, &options, "systemd:nbd") == 0 && shared.listeners.count == 1);
	nbd_listen_close(&shared);
	child_check(open_with(&shared, &options, "systemd:ndb") == -ENOENT);
	setenv("LISTEN_PID", "1", 1);
	child_check(open_with(&shared, &options, NULL) == -EINVAL);
	return 0;
}

UNIT(test_socket_activation) { ck_assert_int_eq(child_end(child_start(be_activated, NULL)), 0); }

/* The socket belongs to a group that may be told by number, and to none that is not there. */
UNIT(test_group)
{
	struct rig *rig = rig_new();
	char *items[1] = {(char *)(uintptr_t)socket_path()};
	struct stat st;
	rig->options.listen = (struct peer_list){.item = items, .count = 1};
	rig->options.socket_mode = (char *)(uintptr_t) "0660";
	rig->options.socket_group = (char *)(uintptr_t) "no such group";
	ck_assert_int_eq(
		nbd_listen_open(rig->nbd->shared, &rig->options, why, sizeof(why)), -EINVAL);
	ck_assert_ptr_nonnull(strstr(why, "there is no such group"));
	if (geteuid() == 0) {
		rig->options.socket_group = (char *)(uintptr_t) "12345";
		ck_assert_int_eq(
			nbd_listen_open(rig->nbd->shared, &rig->options, why, sizeof(why)), 0);
		ck_assert_int_eq(stat(socket_path() + 5, &st), 0);
		ck_assert_uint_eq(st.st_gid, 12345);
		ck_assert_uint_eq(st.st_mode & 0777, 0660);
		nbd_listen_close(rig->nbd->shared);
	}
	rig_free(rig);
}

/* Through a real listener: of those that have not chosen an export the oldest makes room. */
UNIT(test_connection_limit)
{
	struct rig *rig = rig_new();
	char *items[1] = {(char *)(uintptr_t)socket_path()};
	const char *path = socket_path() + 5;
	uint8_t greeting[18];
	rig->options.listen = (struct peer_list){.item = items, .count = 1};
	rig->options.socket_mode = (char *)(uintptr_t) "0600";
	rig->options.newcomers = 2;
	ck_assert_int_eq(nbd_listen_open(rig->nbd->shared, &rig->options, why, sizeof(why)), 0);
	ck_assert_int_eq(nbd_listen_start(rig->nbd), 0);
	int one = dial(path), two = dial(path);
	ck_assert(rig_receive(rig, one, greeting, 18) && rig_receive(rig, two, greeting, 18));
	int three = dial(path);
	ck_assert(rig_closed(rig, three)); /* those before it are given a moment */
	close(three);
	rig->now_ns += 1000000000;
	three = dial(path);
	ck_assert(rig_receive(rig, three, greeting, 18));
	ck_assert(rig_closed(rig, one));
	close(one);
	close(two);
	rig_turn(rig, 50);
	rig->now_ns += 1000000000;
	one = dial(path);
	two = dial(path);
	ck_assert(rig_receive(rig, one, greeting, 18) && rig_receive(rig, two, greeting, 18));
	ck_assert(rig_closed(rig, three));
	close(one);
	close(two);
	close(three);
	rig_free(rig);
}

static int pipe_in[2], pipe_out[2];

/* Stdin and stdout as pipes: served, and the process ends with its client. */
UNIT(test_single)
{
	struct rig *rig = rig_new();
	uint8_t wire[] = "\0\0\0\3IHAVEOPT\0\0\0\2\0\0\0\0", reply[38];
	ck_assert(pipe(pipe_in) == 0 && pipe(pipe_out) == 0);
	rig->options.single = true;
	rig->nbd->shared->single_in = pipe_in[0];
	rig->nbd->shared->single_out = pipe_out[1];
	ck_assert_int_eq(nbd_listen_start(rig->nbd), 0);
	rig_turn(rig, 10);
	ck_assert_int_eq(write(pipe_in[1], wire, sizeof(wire) - 1), sizeof(wire) - 1);
	rig_turn(rig, 50);
	ck_assert_int_eq(read(pipe_out[0], reply, sizeof(reply)), 38);
	ck_assert_mem_eq(reply, "NBDMAGICIHAVEOPT\0\3", 18);
	rig_turn(rig, 50);
	ck_assert(rig->host_stopped);
	close(pipe_in[1]);
	close(pipe_out[0]);
	rig_free(rig);
}
