/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Programs that use a volume as memory:
 *
 *   region_check laws SEGMENT VOLUME       TAP: what <xseg/region.h> promises; of a volume
 *                                          of zeros, which it leaves so
 *   region_check kernel SEGMENT VOLUME     TAP: with limits of user `nobody`, see there
 *   region_check verify SEGMENT VOLUME SECONDS SEED
 *                                          writes, reads back and syncs at random; says "started";
 *                                          SIGUSR1 ends it sooner: then all is compared
 *   region_check count SEGMENT VOLUME SECONDS LEDGER INDEX
 *                                          adds one to counters at random, in memory that others
 *                                          share, and then to its own in the file LEDGER
 *   region_check zero SEGMENT VOLUME       all of it
 *   region_check sum SEGMENT VOLUME        the sum of all counters, fetched anew
 *   region_check sumfile FILE              the same of a copy of the volume
 *   region_check ledger FILE               the sum of what all noted
 *   region_check touch SEGMENT VOLUME [FLAGS]    reads each page; its sum
 *   region_check write SEGMENT VOLUME OFFSET TEXT sync|close|die    and ends that way;
 *                                          wait: says "started", and closes at SIGUSR1;
 *                                          exec: becomes sleep(1)
 *   region_check twice SEGMENT VOLUME OFFSET            syncs 1, and meanwhile 2; says so; waits
 *   region_check pauses SEGMENT VOLUME FILE             counts in the first page, and writes down
 *                                          each count after which it had to wait a millisecond;
 *                                          says "started", and closes at SIGUSR1
 *   region_check value FILE                that count, in a copy of the volume
 *   region_check read SEGMENT VOLUME OFFSET LENGTH      as text
 *   region_check resident SEGMENT VOLUME BYTES          touches nothing until so many are there
 *   region_check hold SEGMENT VOLUME       opens it, says "started", waits to be killed
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

static bool resident_reaches(struct region *region, uint64_t bytes)
{
	struct region_status status = {0};
	for (int i = 0; i < 2000 && status.resident < bytes; i++) {
		usleep(5000);
		region_status(region, &status);
	}
	return status.resident == bytes;
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
	law("brings them, with the pages at both ends",
		resident_reaches(region, (4u << 20) + PAGE));
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

/* System calls, children and signals. */
static void laws_kernel(const char *segment, const char *volume)
{
	struct region *region = open_or_end(segment, volume, 0);
	uint8_t *memory = region_memory(region);
	int pipes[2], status = 0;
	char back[8] = "";
	must(pipe(pipes) == 0 && write(pipes[1], "through", 8) == 8);
	law("read(2) into a page that is not there yet",
		read(pipes[0], memory + 30 * PAGE + 4090, 8) == 8 &&
			!strcmp((char *)memory + 30 * PAGE + 4090, "through"));
	law("write(2) out of one", write(pipes[1], memory + 50 * PAGE, 8) == 8 &&
					   read(pipes[0], back, 8) == 8 && !back[0]);
	law("sync, and read(2) into one that is protected",
		!region_sync(region, 0, 0) && write(pipes[1], "another", 8) == 8 &&
			read(pipes[0], memory + 30 * PAGE + 4090, 8) == 8 &&
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

/* The library's, which nobody else has. */
static int socket_of_region(void)
{
	for (int fd = 3; fd < 1024; fd++) {
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

static int run_laws(const char *segment, const char *volume)
{
	struct region *region = open_or_end(segment, volume, 0);
	uint64_t size = region_size(region);
	law("open and close", !region_close(region));
	laws_refusals(segment, volume, size);
	laws_shared(segment, volume);
	laws_fetch(segment, volume);
	laws_private(segment, volume);
	laws_kernel(segment, volume);
	laws_cut(segment, volume);
	laws_threads(segment, volume);
	return laws_end();
}

/* As who may not have the kernel's own faults. */
static int run_kernel(const char *segment, const char *volume)
{
	struct region *region = open_or_end(segment, volume, 0);
	struct region_status status;
	uint8_t *memory = region_memory(region);
	law("which the status says", !region_status(region, &status) && !status.kernel_faults);
	memory[5 * PAGE] = 1;
	law("its own touches are served", !region_sync(region, 0, 0) && memory[5 * PAGE] == 1);
	int fd = open("/dev/zero", O_RDONLY);
	law("a system call is refused what is not there",
		read(fd, memory + 9 * PAGE, 8) < 0 && errno == EFAULT);
	memory[9 * PAGE] = 1;
	law("and not what is", read(fd, memory + 9 * PAGE, 8) == 8 && !memory[9 * PAGE]);
	memory[5 * PAGE] = 0;
	law("close", !region_close(region));
	return laws_end();
}

/* --- load ------------------------------------------------------------------------------ */

/* Our own copy of what must be there, the whole of it. */
static int run_verify(const char *segment, const char *volume, unsigned seconds, uint64_t seed)
{
	struct region *region = open_or_end(segment, volume, 0);
	uint64_t size = region_size(region), until = clock_now_ns() + seconds * 1000000000ull;
	uint8_t *memory = region_memory(region);
	uint8_t *copy = malloc(size);
	uint64_t random = hash_u64(seed), steps = 0, wrong = 0;
	must(copy);
	memcpy(copy, memory, size);
	printf("started\n");
	fflush(stdout);
	for (; !ended && !wrong && clock_now_ns() < until; steps++) {
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
	return wrong || synced || !same || dropped || !again || region_close(region) ? 1 : 0;
}

static int run_count(char **words, unsigned seconds, const char *path, unsigned index)
{
	struct region *region = open_or_end(words[0], words[1], 0);
	uint64_t count = region_size(region) / PAGE,
		 until = clock_now_ns() + seconds * 1000000000ull;
	_Atomic uint64_t *cells = region_memory(region);
	int fd = open(path, O_RDWR | O_CREAT, 0600);
	must(fd >= 0 && index < LEDGER_ENTRIES && ftruncate(fd, LEDGER_ENTRIES * 8) == 0);
	_Atomic uint64_t *ledger =
		mmap(NULL, LEDGER_ENTRIES * 8, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	must(ledger != MAP_FAILED);
	uint64_t random = hash_u64((uint64_t)getpid() + clock_now_ns());
	printf("started\n");
	fflush(stdout);
	while (!ended && clock_now_ns() < until) {
		random = hash_u64(random);
		atomic_fetch_add(&cells[random % count * (PAGE / 8)], 1);
		atomic_fetch_add(&ledger[index], 1);
		if (random >> 52 == 0 && region_sync(region, 0, 0))
			return 1;
	}
	return region_close(region) ? 1 : 0;
}

static int run_zero(const char *segment, const char *volume)
{
	struct region *region = open_or_end(segment, volume, 0);
	memset(region_memory(region), 0, region_size(region));
	return region_sync(region, 0, 0) || region_close(region) ? 1 : 0;
}

static int run_sum(const char *segment, const char *volume)
{
	struct region *region = open_or_end(segment, volume, REGION_READ_ONLY);
	printf("%llu\n",
		(unsigned long long)sum_of(region_memory(region), region_size(region), PAGE));
	return region_close(region) ? 1 : 0;
}

static void *map_file(const char *path, size_t *size)
{
	struct stat st;
	int fd = open(path, O_RDONLY);
	must(fd >= 0 && fstat(fd, &st) == 0);
	void *map = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, fd, 0);
	must(map != MAP_FAILED);
	*size = (size_t)st.st_size;
	return map;
}

static int run_sumfile(const char *path, uint64_t step)
{
	size_t size;
	const void *map = map_file(path, &size);
	printf("%llu\n", (unsigned long long)sum_of(map, size, step));
	return 0;
}

/* --- one thing ---------------------------------------------------------------------------- */

static int run_touch(const char *segment, const char *volume, unsigned flags)
{
	struct region *region = open_or_end(segment, volume, flags);
	const volatile uint8_t *memory = region_memory(region);
	uint64_t sum = 0;
	for (uint64_t at = 0; at < region_size(region); at += PAGE) {
		if (faults(memory + at, SIGBUS)) {
			printf("SIGBUS at %llu\n", (unsigned long long)at);
			return 2;
		}
		sum += memory[at];
	}
	printf("%llu\n", (unsigned long long)sum);
	return region_close(region) ? 1 : 0;
}

static int wait_and_close(struct region *region)
{
	printf("started\n");
	fflush(stdout);
	while (!ended)
		pause();
	return region_close(region) ? 1 : 0;
}

static int run_write(char **words, uint64_t offset, const char *text, const char *end)
{
	struct region *region = open_or_end(words[0], words[1], 0);
	memcpy((char *)region_memory(region) + offset, text, strlen(text));
	if (!strcmp(end, "die"))
		raise(SIGKILL);
	if (!strcmp(end, "exec"))
		execlp("sleep", "sleep", "600", (char *)NULL);
	if (!strcmp(end, "sync") && region_sync(region, 0, 0))
		return 1;
	if (!strcmp(end, "wait"))
		return wait_and_close(region);
	return region_close(region) ? 1 : 0;
}

static void *sync_one(void *region) { return region_sync(region, 0, 0) ? region : NULL; }

static int run_twice(char **words, uint64_t offset)
{
	struct region *one = open_or_end(words[0], words[1], 0);
	struct region *two =
		open_or_end(words[0], words[1], 0); /* its sync does not wait for ours */
	volatile char *at = (char *)region_memory(one) + offset;
	pthread_t first;
	void *failed;
	*at = '1';
	must(pthread_create(&first, NULL, sync_one, one) == 0);
	usleep(100000); /* it is on its way: the store is slow */
	*at = '2';
	int error = region_sync(two, 0, 0);
	must(pthread_join(first, &failed) == 0);
	return error || failed || region_close(two) || wait_and_close(one) ? 1 : 0;
}

/* Counts, and notes before which counts it had to wait. */
static int run_pauses(char **words, const char *path)
{
	struct region *region = open_or_end(words[0], words[1], 0);
	_Atomic uint64_t *cell = (_Atomic uint64_t *)region_memory(region) + 1;
	uint64_t last = clock_now_ns(), value = 0;
	FILE *file = fopen(path, "w");
	must(file);
	printf("started\n");
	fflush(stdout);
	while (!ended) {
		atomic_store(cell, value + 1);
		uint64_t now = clock_now_ns();
		if (now - last >= PAUSE_NS)
			fprintf(file, "%llu\n", (unsigned long long)value);
		last = now;
		value++;
	}
	return fclose(file) || region_close(region) ? 1 : 0;
}

static int run_value(const char *path)
{
	size_t size;
	printf("%llu\n", (unsigned long long)((uint64_t *)map_file(path, &size))[1]);
	return 0;
}

static int run_read(char **words, uint64_t offset, uint64_t length)
{
	struct region *region = open_or_end(words[0], words[1], REGION_READ_ONLY);
	printf("%.*s\n", (int)length, (char *)region_memory(region) + offset);
	return region_close(region) ? 1 : 0;
}

static int run_resident(const char *segment, const char *volume, uint64_t bytes)
{
	struct region *region = open_or_end(segment, volume, 0);
	bool there = resident_reaches(region, bytes);
	return region_close(region) || !there ? 1 : 0;
}

static int run_hold(const char *segment, const char *volume)
{
	struct region *region = open_or_end(segment, volume, 0);
	*(volatile uint8_t *)region_memory(region) = 0;
	return wait_and_close(region);
}

static int usage(void)
{
	fprintf(stderr, "region_check: see the head of its source\n");
	return 2;
}

int main(int count, char **words)
{
	struct sigaction action = {.sa_handler = on_end};
	const char *verb = count > 1 ? words[1] : "";
	sigaction(SIGUSR1, &action, NULL);
	if (count == 3 && !strcmp(verb, "sumfile"))
		return run_sumfile(words[2], PAGE);
	if (count == 3 && !strcmp(verb, "value"))
		return run_value(words[2]);
	if (count == 3 && !strcmp(verb, "ledger"))
		return run_sumfile(words[2], 8);
	if (count < 4)
		return usage();
	if (!strcmp(verb, "laws"))
		return run_laws(words[2], words[3]);
	if (!strcmp(verb, "kernel"))
		return run_kernel(words[2], words[3]);
	if (!strcmp(verb, "zero"))
		return run_zero(words[2], words[3]);
	if (!strcmp(verb, "sum"))
		return run_sum(words[2], words[3]);
	if (!strcmp(verb, "pauses") && count == 5)
		return run_pauses(words + 2, words[4]);
	if (!strcmp(verb, "twice") && count == 5)
		return run_twice(words + 2, strtoull(words[4], NULL, 10));
	if (!strcmp(verb, "hold"))
		return run_hold(words[2], words[3]);
	if (!strcmp(verb, "resident") && count == 5)
		return run_resident(words[2], words[3], strtoull(words[4], NULL, 10));
	if (!strcmp(verb, "touch"))
		return run_touch(words[2], words[3], count > 4 ? (unsigned)atoi(words[4]) : 0);
	if (!strcmp(verb, "verify") && count == 6)
		return run_verify(
			words[2], words[3], (unsigned)atoi(words[4]), strtoull(words[5], NULL, 10));
	if (!strcmp(verb, "count") && count == 7)
		return run_count(
			words + 2, (unsigned)atoi(words[4]), words[5], (unsigned)atoi(words[6]));
	if (!strcmp(verb, "write") && count == 7)
		return run_write(words + 2, strtoull(words[4], NULL, 10), words[5], words[6]);
	if (!strcmp(verb, "read") && count == 6)
		return run_read(
			words + 2, strtoull(words[4], NULL, 10), strtoull(words[5], NULL, 10));
	return usage();
}
