/* SPDX-License-Identifier: Apache-2.0 */
/* A private place for segments, and children that say where they failed. */
#include "tests/lib/fixture.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define CHILD_LIMIT_MS 240000

static char scratch_path[128];

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)st, (void)type, (void)ftw;
	remove(path);
	return 0;
}

void scratch_begin(void)
{
	const char *parent = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";
	snprintf(scratch_path, sizeof(scratch_path), "%s/skerry-test.XXXXXX", parent);
	must(mkdtemp(scratch_path));
	char run[160];
	snprintf(run, sizeof(run), "%s/run", scratch_path);
	must(mkdir(run, 0700) == 0);
	must(setenv("SKERRY_SHM_DIR", scratch_path, 1) == 0);
	must(setenv("SKERRY_RUN_DIR", run, 1) == 0);
}

void scratch_end(void)
{
	if (scratch_path[0])
		nftw(scratch_path, remove_one, 16, FTW_DEPTH | FTW_PHYS);
	scratch_path[0] = 0;
}

const char *scratch_dir(void) { return scratch_path; }

void scratch_name(char name[NAME_LENGTH_MAX + 1])
{
	static unsigned number;
	snprintf(name, NAME_LENGTH_MAX + 1, "t%d-%u", (int)getpid(), number++);
}

static void make_segment(struct xseg *seg, struct xseg_config *config)
{
	char name[NAME_LENGTH_MAX + 1], why[XSEG_WHY_SIZE] = "";
	scratch_name(name);
	config->name = name;
	config->no_prefault = true;
	if (config->size == 0)
		config->size = 16u << 20;
	int rc = xseg_segment_create(config, why);
	if (rc == 0)
		rc = xseg_segment_join(name, seg, why);
	if (rc != 0)
		fprintf(stderr, "segment: %s (%s)\n", why, strerror(-rc));
	must(rc == 0);
}

void scratch_segment(struct xseg *seg, uint64_t size, uint32_t lanes, uint32_t requests)
{
	struct xseg_config config = {.size = size, .lanes = lanes, .requests = requests};
	make_segment(seg, &config);
}

void scratch_segment_unnamed(struct xseg *seg, uint64_t size, uint32_t lanes, uint32_t requests)
{
	scratch_begin();
	scratch_segment(seg, size, lanes, requests);
	scratch_end();
}

void scratch_segment_end(struct xseg *seg)
{
	char path[sizeof(seg->path)];
	memcpy(path, seg->path, sizeof(path));
	xseg_segment_leave(seg);
	unlink(path);
}

/* Check notes each assertion in a file "check_...", which the child would share: killed in the
   middle of a note, it leaves half of one, and Check cannot read the rest. */
static void child_keeps_its_notes(void)
{
	char path[64], file[512];
	int null = open("/dev/null", O_WRONLY | O_CLOEXEC);
	for (int fd = 3; fd < 64; fd++) {
		snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
		ssize_t size = readlink(path, file, sizeof(file) - 1);
		file[size > 0 ? size : 0] = 0;
		if (strstr(file, "/check_"))
			dup2(null, fd);
	}
	close(null);
}

pid_t child_start(int (*f)(void *), void *argument)
{
	fflush(NULL);
	pid_t pid = fork();
	must(pid >= 0);
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		child_keeps_its_notes();
		_exit(f(argument));
	}
	return pid;
}

int child_end(pid_t pid)
{
	const struct timespec nap = {.tv_nsec = 1000000};
	int status;
	for (int i = 0; i < CHILD_LIMIT_MS; i++) {
		pid_t got = waitpid(pid, &status, WNOHANG);
		must(got == 0 || got == pid);
		if (got == pid)
			return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
		nanosleep(&nap, NULL);
	}
	child_kill(pid);
	return 255;
}

void child_kill(pid_t pid)
{
	kill(pid, SIGKILL);
	while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
		;
}

/* xorshift64*, Vigna 2014 */
uint64_t random_next(uint64_t *state)
{
	uint64_t x = *state ? *state : 88172645463325252ull;
	x ^= x >> 12;
	x ^= x << 25;
	x ^= x >> 27;
	*state = x;
	return x * 2685821657736338717ull;
}
