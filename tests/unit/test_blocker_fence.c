/* SPDX-License-Identifier: Apache-2.0 */
/* The table of who may write to a volume: it grows, places are given back, and whoever takes a
   volume waits for those that write to it, and for nobody else. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "peers/blocker/file/file_disk.h"
#include "tests/lib/unit.h"

/* In memory: each change is synced. */
static char folder[64];
static struct file_store store, other; /* two processes of a host */

static int begin(struct file_store *it, uint64_t own, bool shared)
{
	memset(it, 0, sizeof(*it));
	it->dir = folder;
	it->root = open(folder, O_RDONLY | O_DIRECTORY);
	it->shared = shared;
	mkdirat(it->root, "tmp", 0700);
	it->lock = openat(it->root, "lock", O_RDWR | O_CREAT, 0600);
	for (unsigned i = 0; i < FILE_LOCKS; i++)
		pthread_mutex_init(&it->mutex[i], NULL);
	return file_fence_open(it, own, it == &store);
}

static void setup_as(bool shared)
{
	strcpy(folder, "/dev/shm/skerry-fence.XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(folder));
	ck_assert_int_eq(begin(&store, 7, shared), 0);
}

static void setup(void) { setup_as(false); }

static int claim(struct file_store *it, uint64_t volume, uint64_t term, bool nobody)
{
	struct file_fence_claim what = {.volume = volume, .term = term, .nobody = nobody};
	int error = file_fence_claim(it, &what);
	if (error != FILE_FENCE_WAITS)
		return error;
	return file_crowd_is_past(it, &what.past) ? file_fence_take(it, &what) : -EAGAIN;
}

static void teardown(void)
{
	file_fence_close(&store, true);
	unlinkat(store.root, "fence", 0);
	unlinkat(store.root, "lock", 0);
	unlinkat(store.root, "tmp", AT_REMOVEDIR);
	rmdir(folder);
	close(store.lock);
	close(store.root);
}

static off_t size(void)
{
	struct stat s;
	ck_assert_int_eq(fstatat(store.root, "fence", &s, 0), 0);
	return s.st_size;
}

static bool mine(uint64_t volume)
{
	struct file_fence_look look = {0};
	return file_fence_look(&store, &look, volume, 0);
}

/* Volumes come and go: the table stays as small as it was. */
UNIT(test_given_back)
{
	setup();
	off_t before = size();
	for (uint64_t volume = 1; volume <= 100000; volume++) {
		ck_assert_int_eq(claim(&store, volume, 1, false), 0);
		file_fence_forget(&store, volume);
	}
	ck_assert_int_eq(size(), before);
	teardown();
}

/* More than there was room for: all of them are known, by another process, too. */
UNIT(test_grows)
{
	enum { MANY = 100000 };
	setup();
	off_t before = size();
	for (uint64_t volume = 1; volume <= MANY; volume++)
		ck_assert_int_eq(claim(&store, volume, volume, volume % 3 == 0), 0);
	ck_assert_int_gt(size(), before);
	file_fence_close(&store, true);
	ck_assert_int_eq(file_fence_open(&store, 7, true), 0);
	for (uint64_t volume = 1; volume <= MANY; volume++)
		ck_assert_int_eq(mine(volume), volume % 3 != 0);
	ck_assert_int_eq(claim(&store, MANY, MANY - 1, false), -ESTALE);
	ck_assert_int_eq(claim(&store, 3, 4, false), 0);
	ck_assert(mine(3));
	file_fence_forget(&store, 6);
	ck_assert(mine(6)); /* nobody has it */
	teardown();
}

static void close_other(void)
{
	file_fence_close(&other, false);
	close(other.lock);
	close(other.root);
}

/* The other is stopped in the middle of a write: who wants that volume waits, however long, and
   nobody's else does; nor for those that write afterwards. */
UNIT(test_waits)
{
	enum { OTHERS = 1000 };
	struct file_fence_look look = {0};
	unsigned turn, later;
	setup_as(true);
	ck_assert_int_eq(begin(&other, 8, true), 0);
	ck_assert_int_eq(claim(&other, 1, 1, false), 0);
	ck_assert(file_fence_enter(&other, &look, 1, 0, &turn));
	struct file_fence_claim what = {.volume = 1, .term = 2};
	ck_assert_int_eq(file_fence_claim(&store, &what), FILE_FENCE_WAITS);
	ck_assert(!file_crowd_is_past(&store, &what.past));
	ck_assert_uint_eq(file_crowd_who(&store, &what.past), (uint64_t)getpid());
	unsigned waited = 0;
	for (uint64_t volume = 2; volume < OTHERS; volume++)
		waited += claim(&store, volume, 1, false) == -EAGAIN;
	ck_assert_uint_lt(waited, OTHERS / 50);
	/* a volume that shares its counters: those that come now are none that it waits for */
	uint64_t neighbour = OTHERS;
	while (crowd_bin(neighbour) != crowd_bin(1))
		neighbour++;
	file_fence_leave(&other, 1, turn);
	ck_assert(file_fence_enter(&other, &look, neighbour, 0, &turn));
	bool past = false;
	for (unsigned i = 0; i < 10 && !past; i++) {
		past = file_crowd_is_past(&store, &what.past);
		ck_assert(file_fence_enter(&other, &look, neighbour, 0, &later));
		file_fence_leave(&other, neighbour, turn);
		turn = later;
	}
	ck_assert(past);
	ck_assert(!file_fence_enter(&other, &look, 1, 0, &later));
	ck_assert_int_eq(file_fence_take(&store, &what), 0);
	ck_assert(mine(1));
	ck_assert_int_eq(claim(&other, 1, 1, false), -ESTALE);
	close_other();
	teardown();
}

/* Two claim it while a third writes: the later term has it. */
UNIT(test_overtaken)
{
	setup_as(true);
	ck_assert_int_eq(begin(&other, 8, true), 0);
	struct file_fence_claim early = {.volume = 1, .term = 2}, late = {.volume = 1, .term = 3};
	ck_assert_int_eq(file_fence_claim(&store, &early), FILE_FENCE_WAITS);
	ck_assert_int_eq(file_fence_claim(&other, &late), FILE_FENCE_WAITS);
	ck_assert_int_eq(file_fence_take(&store, &early), -ESTALE);
	ck_assert_int_eq(file_fence_take(&other, &late), 0);
	ck_assert(!mine(1));
	close_other();
	teardown();
}

/* Whoever sees other counters than those that serve the folder is not let in. */
UNIT(test_elsewhere)
{
	char path[64] = "/dev/shm/skerry-elsewhere.XXXXXX";
	setup_as(true);
	ck_assert_ptr_nonnull(mkdtemp(path));
	setenv("SKERRY_SHM_DIR", path, 1);
	ck_assert_int_eq(begin(&other, 8, true), -EXDEV);
	unsetenv("SKERRY_SHM_DIR");
	rmdir(path);
	close(other.lock);
	close(other.root);
	teardown();
}
