/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Programs that use a volume as memory: region_check VERB SEGMENT VOLUME ..., 0 when all went well:
 *
 *   laws                  TAP: what <xseg/region.h> promises; of a volume of zeros, left so
 *   kernel                TAP: without the right to the kernel's own faults
 *   verify SEED           writes, reads back and syncs at random; at the end compares all of it
 *   count LEDGER INDEX    adds one to counters at random, in memory that others share, and then
 *                         to its own in the file LEDGER
 *   pauses FILE           counts in the first page, and writes down each count after which it had
 *                         to wait a millisecond
 *   twice OFFSET          syncs 1, and meanwhile 2; says so, and stays
 *   write OFFSET TEXT sync|close|die|exec|wait          and ends that way: killed, as sleep(1), at
 *                         the signal
 *   read OFFSET LENGTH    as text; zero: all of it; sum: of the counters; touch: each page
 *   come BYTES            touches nothing until so many are there
 *
 * Those that go on say "started", and end at SIGUSR1. Of a file: region_check
 *
 *   sumfile FILE          the sum of the counters in a copy of the volume
 *   ledger FILE           the sum of what all noted
 *   value FILE            what `pauses` had counted, in a copy of the volume
 */
#include <base/clock.h>
#include <base/hash.h>
#include <base/must.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <xseg/region.h>

#define PAGE 4096u
#define LEDGER_ENTRIES 64u
#define PAUSE_NS 1000000u

static unsigned laws, broken;
static volatile sig_atomic_t ended;

static void law(const char *name, bool holds)
{
	printf("%sok %u - %s\n", holds ? "" : "not ", ++laws, name);
	fflush(stdout);
	broken += !holds;
}

static int laws_end(void)
{
	printf("1..%u\n", laws);
	return broken ? 1 : 0;
}

static void on_end(int signal)
{
	(void)signal;
	ended = 1;
}

static void started(void)
{
	printf("started\n");
	fflush(stdout);
}

static struct region *open_or_end(const char *segment, const char *volume, unsigned flags)
{
	struct region *region = region_open(segment, volume, 0, 0, flags);
	if (region)
		return region;
	fprintf(stderr, "region_check: %s\n", region_why());
	exit(1);
}

/* --- laws ---------------------------------------------------------------------------- */

static void fill(uint8_t *bytes, size_t size, uint64_t seed)
{
	for (size_t i = 0; i < size / 8; i++)
		((uint64_t *)(void *)bytes)[i] = hash_u64(seed + i);
}

static bool has(const uint8_t *bytes, size_t size, uint64_t seed)
{
	for (size_t i = 0; i < size / 8; i++)
		if (((const uint64_t *)(const void *)bytes)[i] != hash_u64(seed + i))
			return false;
	return true;
}

static bool refused(const char *segment, const char *volume, uint64_t offset, uint64_t size,
	unsigned flags, int error, const char *word)
{
	struct region *region = region_open(segment, volume, offset, size, flags);
	int got = errno;
	if (region) {
		region_close(region);
		printf("# it was opened\n");
		return false;
	}
	bool said = strstr(region_why(), word);
	if (got != error || !said)
		printf("# %s: %s\n", strerror(got), region_why());
	return got == error && said;
}

static void laws_refusals(const char *segment, const char *volume, uint64_t size)
{
	law("a segment that is not there",
		refused("nothing", volume, 0, 0, 0, ENOENT, "none of that name"));
	law("a socket that is not there",
		refused("unix:/nothing", volume, 0, 0, 0, ENOENT, "/nothing"));
	law("a volume that is not there", refused(segment, "nothing", 0, 0, 0, ENOENT, "nothing"));
	law("a volume without a name", refused(segment, "", 0, 0, 0, EINVAL, "name"));
	law("an offset inside a page", refused(segment, volume, 512, 0, 0, EINVAL, "4096"));
	law("a size that is no whole pages", refused(segment, volume, 0, 100, 0, EINVAL, "4096"));
	law("an offset at the end", refused(segment, volume, size, 0, 0, EINVAL, "ends before"));
	law("a size beyond the end",
		refused(segment, volume, PAGE, size, 0, EINVAL, "ends before"));
	law("flags of another time", refused(segment, volume, 0, 0, 64, EINVAL, "flags"));
}

static void laws_shared(const char *segment, const char *volume)
{
	struct region *one = open_or_end(segment, volume, 0), *two = NULL;
	uint8_t *memory = region_memory(one);
	uint64_t size = region_size(one);
	law("what was never written is zero", !memory[0] && !memory[size - 1]);
	fill(memory + 3 * PAGE, 20 * PAGE, 1);
	law("what is written is there", has(memory + 3 * PAGE, 20 * PAGE, 1));
	two = region_open(segment, volume, PAGE, 64 * PAGE, 0);
	law("a part of it", two && region_size(two) == 64 * PAGE);
	uint8_t *part = region_memory(two);
	law("which shows what the other has written", has(part + 2 * PAGE, 20 * PAGE, 1));
	fill(part, PAGE, 2);
	law("and the other way round", has(memory + PAGE, PAGE, 2));
	law("sync of a part", !region_sync(two, 10, PAGE));
	law("sync of all", !region_sync(one, 0, 0));
	struct region_status status;
	law("status", !region_status(one, &status) && status.volume_size == size &&
			      status.resident >= 21 * PAGE && status.dirty == 0 &&
			      status.written >= 21 * PAGE && !status.reconnects);
	memory[3 * PAGE]++;
	part[4 * PAGE]++;
	law("two pages are dirty again", !region_status(one, &status) && status.dirty == 2 * PAGE);
	law("sync beyond the end", region_sync(one, size - 1, 2) == -EINVAL);
	law("sync of its last byte", !region_sync(one, size - 1, 1));
	law("drop writes and drops", !region_advise(one, 0, 0, REGION_DROP) &&
					     !region_status(one, &status) && !status.resident &&
					     !status.dirty);
	law("what comes back is what was written",
		part[4 * PAGE] == (uint8_t)(((uint8_t)hash_u64(1 + 2 * PAGE / 8)) + 1) &&
			has(memory + 6 * PAGE, 17 * PAGE, 1 + 3 * PAGE / 8));
	law("advice that nobody knows", region_advise(one, 0, 0, 77) == -EINVAL);
	memset(memory, 0, 64 * PAGE);
	law("close", !region_close(two) && !region_close(one));
}

/* What is only being read is resident, too, so it is asked what has come since `before`. */
static bool come(struct region *region, const struct region_status *before, uint64_t bytes)
{
	struct region_status status = *before;
	for (int i = 0; i < 12000 && status.fetched - before->fetched < bytes; i++) {
		usleep(5000);
		region_status(region, &status);
	}
	return status.fetched - before->fetched == bytes;
}

static void laws_fetch(const char *segment, const char *volume)
{
	struct region *region = open_or_end(segment, volume, 0);
	struct region_status before, after;
	const uint8_t *memory = region_memory(region);
	uint64_t sum = 0;
	law("nothing is fetched before it is touched", !region_advise(region, 0, 0, REGION_DROP) &&
							       !region_status(region, &before) &&
							       !before.resident);
	law("prefetch of 4 MiB", !region_prefetch(region, 100, 4u << 20));
	law("brings them, with the pages at both ends", come(region, &before, (4u << 20) + PAGE));
	region_status(region, &before);
	for (uint32_t at = 0; at < 4u << 20; at += PAGE)
		sum += memory[at];
	region_status(region, &after);
	law("and who touches them need not wait", !sum && after.faults == before.faults);
	region_advise(region, 0, 0, REGION_RANDOM);
	for (uint32_t at = 8u << 20; at < 9u << 20; at += PAGE)
		sum += memory[at];
	region_status(region, &before);
	law("at random: one by one", before.faults - after.faults == 256);
	region_advise(region, 0, 0, REGION_NORMAL);
	for (uint32_t at = 9u << 20; at < 10u << 20; at += PAGE)
		sum += memory[at];
	region_status(region, &after);
	law("else: the next ones are there before", after.faults - before.faults < 64 && !sum);
	law("close", !region_close(region));
}

static void laws_private(const char *segment, const char *volume)
{
	struct region *shared = open_or_end(segment, volume, 0);
	struct region *mine = open_or_end(segment, volume, REGION_PRIVATE);
	struct region *reader = open_or_end(segment, volume, REGION_READ_ONLY);
	uint8_t *all = region_memory(shared), *own = region_memory(mine);
	const uint8_t *seen = region_memory(reader);
	fill(all, 4 * PAGE, 5);
	law("a private one and a reader see what is there",
		has(own, 4 * PAGE, 5) && has(seen, 4 * PAGE, 5));
	own[0]++;
	own[9 * PAGE] = 77;
	law("what is written to a private one is its own",
		has(all, PAGE, 5) && has(seen, PAGE, 5) && !all[9 * PAGE] && own[9 * PAGE] == 77);
	law("and is not synced", !region_sync(mine, 0, 0) &&
					 !region_advise(shared, 0, 0, REGION_DROP) &&
					 !all[9 * PAGE] && own[9 * PAGE] == 77);
	law("a reader's memory cannot be made writable into the volume",
		!mprotect(region_memory(reader), PAGE, PROT_READ | PROT_WRITE));
	*(volatile uint8_t *)region_memory(reader) = 99;
	law("but for a copy", has(all, PAGE, 5));
	memset(all, 0, 4 * PAGE);
	law("close", !region_close(mine) && !region_close(reader) && !region_close(shared));
}

static sigjmp_buf landing;

static void on_fault(int signal)
{
	(void)signal;
	siglongjmp(landing, 1);
}

static bool faults(const volatile uint8_t *at, int which)
{
	struct sigaction old, action = {.sa_handler = on_fault};
	bool hit = true;
	sigaction(which, &action, &old);
	if (!sigsetjmp(landing, 1)) {
		(void)*at;
		hit = false;
	}
	sigaction(which, &old, NULL);
	return hit;
}

/* 8 bytes by a system call; where the kernel may not fetch pages, once it has refused to. */
static bool passes(bool may_fetch, bool in, int fd, uint8_t *at)
{
	ssize_t done = in ? read(fd, at, 8) : write(fd, at, 8);
	if (may_fetch)
		return done == 8;
	bool refused = done < 0 && errno == EFAULT;
	for (int i = 0; i < 8; i++)
		((volatile uint8_t *)at)[i] = at[i];
	return refused && (in ? read(fd, at, 8) : write(fd, at, 8)) == 8;
}

/* System calls, children and signals. */
static void laws_kernel(const char *segment, const char *volume)
{
	struct region *region = open_or_end(segment, volume, 0);
	uint8_t *memory = region_memory(region);
	struct region_status now = {0};
	int pipes[2], status = 0;
	char back[8] = "";
	bool may = !region_status(region, &now) && now.kernel_faults;
	must(pipe(pipes) == 0 && write(pipes[1], "through", 8) == 8);
	law("read(2) into a page that is not there yet",
		passes(may, true, pipes[0], memory + 30 * PAGE + 4090) &&
			!strcmp((char *)memory + 30 * PAGE + 4090, "through"));
	law("write(2) out of one", passes(may, false, pipes[1], memory + 50 * PAGE) &&
					   read(pipes[0], back, 8) == 8 && !back[0]);
	law("sync, and read(2) into one that is protected",
		!region_sync(region, 0, 0) && write(pipes[1], "another", 8) == 8 &&
			passes(may, true, pipes[0], memory + 30 * PAGE + 4090) &&
			!region_sync(region, 0, 0) && !region_advise(region, 0, 0, REGION_DROP) &&
			!strcmp((char *)memory + 30 * PAGE + 4090, "another"));
	pid_t child = fork();
	if (!child)
		_exit(faults(memory, SIGSEGV) ? 0 : 1);
	law("a child has no such memory, and is told so",
		waitpid(child, &status, 0) == child && WIFEXITED(status) && !WEXITSTATUS(status));
	child = fork();
	if (!child) {
		struct region *own = open_or_end(segment, volume, 0);
		const char *text = (char *)region_memory(own) + 30 * PAGE + 4090;
		bool same = !strcmp(text, "another");
		((uint8_t *)region_memory(own))[31 * PAGE] = 66;
		_exit(same && !region_close(own) ? 0 : 1);
	}
	law("but may open it itself",
		waitpid(child, &status, 0) == child && WIFEXITED(status) && !WEXITSTATUS(status));
	law("and what it has written is here", memory[31 * PAGE] == 66);
	memset(memory + 30 * PAGE, 0, 2 * PAGE);
	law("close", !region_close(region));
}

/* Of the region that was opened last. */
static int socket_of_region(void)
{
	for (int fd = 1023; fd > 2; fd--) {
		int domain = 0;
		socklen_t size = sizeof(domain);
		if (!getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &size) && domain == AF_UNIX)
			return fd;
	}
	return -1;
}

static void laws_cut(const char *segment, const char *volume)
{
	struct region *region = open_or_end(segment, volume, 0);
	struct region_status status = {0};
	uint8_t *memory = region_memory(region);
	int fd = socket_of_region();
	char nonsense[512] = "nonsense";
	memory[0] = 5;
	law("a connection that says nonsense",
		write(fd, nonsense, sizeof(nonsense)) == (ssize_t)sizeof(nonsense));
	for (int i = 0; i < 2000 && !status.reconnects; i++) {
		usleep(5000);
		region_status(region, &status);
	}
	law("is cut off, and made again", status.reconnects == 1);
	memory[PAGE]++;
	law("nothing of the region is lost",
		memory[0] == 5 && memory[40 * PAGE] == 0 && !region_sync(region, 0, 0) &&
			!region_status(region, &status) && !status.dirty);
	memset(memory, 0, 2 * PAGE);
	law("close", !region_close(region));
}

static struct region *threads_region;
static _Atomic uint64_t threads_sum;

static void *thread_adds(void *context)
{
	uint64_t random = (uintptr_t)context;
	_Atomic uint64_t *cells = region_memory(threads_region);
	uint64_t count = region_size(threads_region) / PAGE;
	for (unsigned i = 0; i < 20000; i++) {
		random = hash_u64(random);
		atomic_fetch_add(&cells[random % count * (PAGE / 8)], 1);
		if (i % 4000 == 0)
			region_sync(threads_region, 0, 0);
	}
	atomic_fetch_add(&threads_sum, 20000);
	return NULL;
}

static uint64_t sum_of(const uint64_t *cells, uint64_t size, uint64_t step)
{
	uint64_t sum = 0;
	for (uint64_t i = 0; i < size / 8; i += step / 8)
		sum += cells[i];
	return sum;
}

static void laws_threads(const char *segment, const char *volume)
{
	pthread_t thread[8];
	threads_region = open_or_end(segment, volume, 0);
	uint64_t size = region_size(threads_region);
	for (uintptr_t i = 0; i < 8; i++)
		pthread_create(&thread[i], NULL, thread_adds, (void *)(i + 1));
	for (unsigned i = 0; i < 8; i++)
		pthread_join(thread[i], NULL);
	law("eight threads that write everywhere and sync",
		sum_of(region_memory(threads_region), size, PAGE) == threads_sum);
	law("and so it is fetched again",
		!region_advise(threads_region, 0, 0, REGION_DROP) &&
			sum_of(region_memory(threads_region), size, PAGE) == threads_sum);
	uint8_t *memory = region_memory(threads_region);
	for (uint64_t at = 0; at < size; at += PAGE)
		memset(memory + at, 0, 8);
	law("close", !region_close(threads_region));
}

static int run_laws(struct region *region, char **words)
{
	const char *segment = words[2], *volume = words[3];
	laws_refusals(segment, volume, region_size(region));
	laws_shared(segment, volume);
	laws_fetch(segment, volume);
	laws_private(segment, volume);
	laws_kernel(segment, volume);
	laws_cut(segment, volume);
	laws_threads(segment, volume);
	return laws_end();
}

/* As who may not have the kernel's own faults. */
static int run_kernel(struct region *region, char **words)
{
	struct region_status status;
	uint8_t *memory = region_memory(region);
	(void)words;
	law("which the status says", !region_status(region, &status) && !status.kernel_faults);
	memory[5 * PAGE] = 1;
	law("its own touches are served", !region_sync(region, 0, 0) && memory[5 * PAGE] == 1);
	int fd = open("/dev/zero", O_RDONLY);
	law("a system call is refused what is not there",
		read(fd, memory + 9 * PAGE, 8) < 0 && errno == EFAULT);
	memory[9 * PAGE] = 1;
	law("and not what is", read(fd, memory + 9 * PAGE, 8) == 8 && !memory[9 * PAGE]);
	memory[5 * PAGE] = 0;
	return laws_end();
}

/* --- load ------------------------------------------------------------------------------ */

static uint64_t number(const char *word) { return strtoull(word, NULL, 10); }

/* Our own copy of what must be there, the whole of it. */
static int run_verify(struct region *region, char **words)
{
	uint64_t size = region_size(region), random = number(words[4]), steps = 0, wrong = 0;
	uint8_t *memory = region_memory(region), *copy = malloc(size);
	must(copy);
	memcpy(copy, memory, size);
	started();
	for (; !ended && !wrong; steps++) {
		random = hash_u64(random);
		uint64_t at = random % size, what = random >> 56;
		uint64_t length = 1 + (random >> 32) % 10000;
		length = length < size - at ? length : size - at;
		if (what < 120) {
			memset(memory + at, (int)(steps & 0xff), length);
			memset(copy + at, (int)(steps & 0xff), length);
		} else if (what < 250) {
			wrong += memcmp(memory + at, copy + at, length) != 0;
		} else if (what < 254) {
			wrong += region_prefetch(region, at, length) != 0;
		} else {
			wrong += region_sync(region, at, length) != 0;
		}
	}
	int synced = region_sync(region, 0, 0);
	bool same = !memcmp(memory, copy, size);
	int dropped = region_advise(region, 0, 0, REGION_DROP);
	bool again = !memcmp(memory, copy, size);
	struct region_status status = {0};
	region_status(region, &status);
	free(copy);
	printf("%llu steps, %llu wrong, sync %d, same %d, drop %d, same again %d, reconnects %u\n",
		(unsigned long long)steps, (unsigned long long)wrong, synced, same, dropped, again,
		status.reconnects);
	return wrong || synced || !same || dropped || !again;
}

static int run_count(struct region *region, char **words)
{
	uint64_t count = region_size(region) / PAGE, index = number(words[5]);
	_Atomic uint64_t *cells = region_memory(region);
	int fd = open(words[4], O_RDWR | O_CREAT, 0600);
	must(fd >= 0 && index < LEDGER_ENTRIES && ftruncate(fd, LEDGER_ENTRIES * 8) == 0);
	_Atomic uint64_t *ledger =
		mmap(NULL, LEDGER_ENTRIES * 8, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	must(ledger != MAP_FAILED);
	uint64_t random = hash_u64((uint64_t)getpid() + clock_now_ns());
	started();
	while (!ended) {
		random = hash_u64(random);
		atomic_fetch_add(&cells[random % count * (PAGE / 8)], 1);
		atomic_fetch_add(&ledger[index], 1);
		if (random >> 52 == 0 && region_sync(region, 0, 0))
			return 1;
	}
	return 0;
}

/* Counts, and notes between which counts it had to wait: before one was written, or (without a CPU)
   after that and before the clock was read. */
static int run_pauses(struct region *region, char **words)
{
	_Atomic uint64_t *cell = (_Atomic uint64_t *)region_memory(region) + 1;
	uint64_t last = clock_now_ns();
	FILE *file = fopen(words[4], "w");
	must(file);
	started();
	for (uint64_t value = 0; !ended; value++) {
		atomic_store(cell, value + 1);
		uint64_t now = clock_now_ns();
		if (now - last >= PAUSE_NS)
			fprintf(file, "%llu\n%llu\n", (unsigned long long)value,
				(unsigned long long)value + 1);
		last = now;
	}
	return fclose(file) != 0;
}

/* --- one thing ---------------------------------------------------------------------------- */

static int run_zero(struct region *region, char **words)
{
	(void)words;
	memset(region_memory(region), 0, region_size(region));
	return region_sync(region, 0, 0) != 0;
}

static int run_sum(struct region *region, char **words)
{
	(void)words;
	printf("%llu\n",
		(unsigned long long)sum_of(region_memory(region), region_size(region), PAGE));
	return 0;
}

static int run_touch(struct region *region, char **words)
{
	const volatile uint8_t *memory = region_memory(region);
	(void)words;
	for (uint64_t at = 0; at < region_size(region); at += PAGE)
		if (faults(memory + at, SIGBUS)) {
			printf("SIGBUS at %llu\n", (unsigned long long)at);
			return 2;
		}
	printf("all\n");
	return 0;
}

static int stay(void)
{
	started();
	while (!ended)
		pause();
	return 0;
}

static int run_write(struct region *region, char **words)
{
	const char *text = words[5], *end = words[6];
	memcpy((char *)region_memory(region) + number(words[4]), text, strlen(text));
	if (!strcmp(end, "die"))
		raise(SIGKILL);
	if (!strcmp(end, "exec"))
		execlp("sleep", "sleep", "600", (char *)NULL);
	if (!strcmp(end, "wait"))
		return stay();
	return !strcmp(end, "sync") && region_sync(region, 0, 0);
}

static void *sync_one(void *region) { return region_sync(region, 0, 0) ? region : NULL; }

static int run_twice(struct region *region, char **words)
{
	/* its sync does not wait for ours */
	struct region *other = open_or_end(words[2], words[3], 0);
	volatile char *at = (char *)region_memory(region) + number(words[4]);
	pthread_t first;
	void *failed;
	*at = '1';
	must(pthread_create(&first, NULL, sync_one, region) == 0);
	usleep(100000); /* it is on its way: the store is slow */
	*at = '2';
	int error = region_sync(other, 0, 0);
	must(pthread_join(first, &failed) == 0);
	return error || failed || region_close(other) || stay();
}

static int run_read(struct region *region, char **words)
{
	printf("%.*s\n", (int)number(words[5]), (char *)region_memory(region) + number(words[4]));
	return 0;
}

static int run_come(struct region *region, char **words)
{
	const struct region_status none = {0};
	return !come(region, &none, number(words[4]));
}

static const struct verb {
	const char *name;
	int words; /* of the command, with its name */
	unsigned flags;
	int (*run)(struct region *region, char **words);
} verbs[] = {
	{"laws", 4, 0, run_laws},
	{"kernel", 4, 0, run_kernel},
	{"verify", 5, 0, run_verify},
	{"count", 6, 0, run_count},
	{"pauses", 5, 0, run_pauses},
	{"twice", 5, 0, run_twice},
	{"write", 7, 0, run_write},
	{"read", 6, REGION_READ_ONLY, run_read},
	{"zero", 4, 0, run_zero},
	{"sum", 4, REGION_READ_ONLY, run_sum},
	{"touch", 4, 0, run_touch},
	{"come", 5, 0, run_come},
};

static int run_file(const char *verb, const char *path)
{
	struct stat st;
	int fd = open(path, O_RDONLY);
	must(fd >= 0 && fstat(fd, &st) == 0);
	const uint64_t *map = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, fd, 0);
	must(map != MAP_FAILED);
	uint64_t value = map[1];
	if (strcmp(verb, "value") != 0)
		value = sum_of(map, (uint64_t)st.st_size, !strcmp(verb, "ledger") ? 8 : PAGE);
	printf("%llu\n", (unsigned long long)value);
	return 0;
}

int main(int count, char **words)
{
	struct sigaction action = {.sa_handler = on_end};
	sigaction(SIGUSR1, &action, NULL);
	if (count == 3)
		return run_file(words[1], words[2]);
	for (size_t i = 0; i < countof(verbs); i++) {
		const struct verb *verb = &verbs[i];
		if (count != verb->words || strcmp(words[1], verb->name) != 0)
			continue;
		struct region *region = open_or_end(words[2], words[3], verb->flags);
		int rc = verb->run(region, words);
		return region_close(region) && !rc ? 1 : rc;
	}
	fprintf(stderr, "region_check: see the head of its source\n");
	return 2;
}
