/* SPDX-License-Identifier: Apache-2.0 */
/* The table of who may write to a volume: it grows, and places are given back. */
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
static struct file_store store;

static void setup(void)
{
	memset(&store, 0, sizeof(store));
	strcpy(folder, "/dev/shm/skerry-fence.XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(folder));
	store.dir = folder;
	store.root = open(folder, O_RDONLY | O_DIRECTORY);
	ck_assert_int_eq(mkdirat(store.root, "tmp", 0700), 0);
	store.lock = openat(store.root, "lock", O_RDWR | O_CREAT, 0600);
	for (unsigned i = 0; i < FILE_LOCKS; i++)
		pthread_mutex_init(&store.mutex[i], NULL);
	ck_assert_int_eq(file_fence_open(&store, 7), 0);
}

static void teardown(void)
{
	file_fence_close(&store);
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
	return file_fence_look(&store.fence, &look, volume);
}

/* Volumes come and go: the table stays as small as it was. */
START_TEST(test_given_back)
{
	setup();
	off_t before = size();
	for (uint64_t volume = 1; volume <= 100000; volume++) {
		ck_assert_int_eq(file_fence_set(&store, volume, 1, false), 0);
		file_fence_forget(&store, volume);
	}
	ck_assert_int_eq(size(), before);
	teardown();
}
END_TEST

/* More than there was room for: all of them are known, by another process, too. */
START_TEST(test_grows)
{
	enum { MANY = 100000 };
	setup();
	off_t before = size();
	for (uint64_t volume = 1; volume <= MANY; volume++)
		ck_assert_int_eq(file_fence_set(&store, volume, volume, volume % 3 == 0), 0);
	ck_assert_int_gt(size(), before);
	file_fence_close(&store);
	ck_assert_int_eq(file_fence_open(&store, 7), 0);
	for (uint64_t volume = 1; volume <= MANY; volume++)
		ck_assert_int_eq(mine(volume), volume % 3 != 0);
	ck_assert_int_eq(file_fence_set(&store, MANY, MANY - 1, false), -ESTALE);
	ck_assert_int_eq(file_fence_set(&store, 3, 4, false), 0);
	ck_assert(mine(3));
	file_fence_forget(&store, 6);
	ck_assert(mine(6)); /* nobody has it */
	teardown();
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("blocker_fence");
	UNIT_TEST(suite, test_given_back);
	UNIT_TEST(suite, test_grows);
	return unit_main(suite);
}
