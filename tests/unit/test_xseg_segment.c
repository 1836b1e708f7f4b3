/* SPDX-License-Identifier: Apache-2.0 */
/* Segments come whole or not at all, and nothing that is not one can be joined. */
#include <base/crc32c.h>
#include <base/path.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <xseg/registry.h>
#include <xseg/request.h>

#include "tests/lib/unit.h"

#define CHECKED_BYTES (offsetof(struct xseg_superblock, checksum) + sizeof(uint32_t))

static struct xseg_config small(const char *name)
{
	return (struct xseg_config){.name = name,
		.size = XSEG_SIZE_MIN,
		.lanes = 2,
		.requests = 64,
		.no_prefault = true};
}

static void file_of(const char *name, char path[256])
{
	snprintf(path, 256, "%s/xseg.%s", scratch_dir(), name);
}

static void make(char name[NAME_LENGTH_MAX + 1], char path[256])
{
	char why[XSEG_WHY_SIZE] = "";
	scratch_name(name);
	struct xseg_config config = small(name);
	ck_assert_msg(xseg_segment_create(&config, why) == 0, "%s", why);
	file_of(name, path);
}

static void put_bytes(const char *path, size_t offset, const void *bytes, size_t size)
{
	int fd = open(path, O_RDWR | O_CLOEXEC);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(pwrite(fd, bytes, size, (off_t)offset), (ssize_t)size);
	close(fd);
}

static void take_bytes(const char *path, size_t offset, void *bytes, size_t size)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(pread(fd, bytes, size, (off_t)offset), (ssize_t)size);
	close(fd);
}

/* The error is the expected one and the sentence names the segment. */
static void refused(const char *name, int error)
{
	struct xseg seg;
	char why[XSEG_WHY_SIZE] = "";
	int rc = xseg_segment_join(name, &seg, why);
	ck_assert_msg(rc == error, "join says %d (%s), not %d", rc, why, error);
	ck_assert_msg(strstr(why, name) != NULL, "'%s' does not name %s", why, name);
	ck_assert_int_eq(xseg_segment_join(name, &seg, NULL), error);
}

UNIT(test_create_join)
{
	char name[NAME_LENGTH_MAX + 1], path[256];
	struct xseg seg;
	make(name, path);
	ck_assert_int_eq(xseg_segment_join(name, &seg, NULL), 0);
	ck_assert_str_eq(seg.name, name);
	ck_assert_str_eq(seg.path, path);
	ck_assert_uint_eq(seg.size, XSEG_SIZE_MIN);
	ck_assert_uint_eq(seg.lane_count, 2);
	ck_assert_uint_eq(seg.request_count, 64);
	ck_assert_uint_gt(seg.page_count, 1024);
	ck_assert_uint_eq(atomic_load(&seg.super->magic), XSEG_MAGIC);
	struct stat st;
	ck_assert_int_eq(stat(path, &st), 0);
	ck_assert_int_eq(st.st_mode & 07, 0); /* nobody else's */
	struct xseg_usage usage;
	xseg_segment_usage(&seg, &usage);
	ck_assert_uint_eq(usage.size, seg.size);
	ck_assert_uint_eq(usage.pages, seg.page_count);
	ck_assert_uint_eq(usage.pages_free, seg.page_count);
	ck_assert_uint_eq(usage.requests_by_state[XSEG_REQUEST_FREE], 64);
	ck_assert_uint_eq(usage.overhead, seg.size - (uint64_t)seg.page_count * XSEG_PAGE);
	/* first and last byte of the last page are there */
	xseg_page_address(&seg, seg.page_count - 1)[0] = 1;
	xseg_page_address(&seg, seg.page_count - 1)[XSEG_PAGE - 1] = 1;
	xseg_segment_leave(&seg);
	ck_assert_int_eq(xseg_segment_destroy(name, NULL), 0);
	ck_assert_int_eq(access(path, F_OK), -1);
}

UNIT(test_join_by_path)
{
	char name[NAME_LENGTH_MAX + 1], path[256], moved[300], why[XSEG_WHY_SIZE] = "";
	struct xseg seg;
	make(name, path);
	snprintf(moved, sizeof(moved), "%s.moved", path);
	ck_assert_int_eq(rename(path, moved), 0);
	refused(name, -ENOENT);
	ck_assert_int_eq(xseg_segment_join_path(moved, &seg, why), 0);
	ck_assert_str_eq(seg.name, name);
	xseg_segment_leave(&seg);
	ck_assert_int_eq(xseg_segment_join_path("/", &seg, why), -EISDIR);
	ck_assert_int_lt(xseg_segment_join_path("/dev/null", &seg, why), 0);
	unlink(moved);
}

UNIT(test_exists)
{
	char name[NAME_LENGTH_MAX + 1], path[256], why[XSEG_WHY_SIZE] = "";
	make(name, path);
	struct xseg_superblock before, after;
	take_bytes(path, 0, &before, sizeof(before));
	struct xseg_config config = small(name);
	ck_assert_int_eq(xseg_segment_create(&config, why), -EEXIST);
	ck_assert_ptr_nonnull(strstr(why, name));
	take_bytes(path, 0, &after, sizeof(after));
	ck_assert_mem_eq(&before, &after, sizeof(before));
	ck_assert_int_eq(xseg_segment_destroy(name, why), 0);
	ck_assert_int_eq(xseg_segment_destroy(name, why), -ENOENT);
	ck_assert_ptr_nonnull(strstr(why, name));
}

UNIT(test_bad_config)
{
	static const char *const names[] = {
		"", ".x", "-x", "a/b", "a b", "..", "x123456789012345678901234567890123"};
	char why[XSEG_WHY_SIZE];
	for (unsigned i = 0; i < countof(names); i++) {
		struct xseg_config config = small(names[i]);
		ck_assert_msg(xseg_segment_create(&config, why) == -EINVAL, "'%s'", names[i]);
		struct xseg seg;
		ck_assert_int_lt(xseg_segment_join(names[i], &seg, why), 0);
		ck_assert_int_lt(xseg_segment_destroy(names[i], why), 0);
	}
	struct xseg_config config = {.name = "size", .size = XSEG_SIZE_MIN - 1};
	ck_assert_int_eq(xseg_segment_create(&config, why), -EINVAL);
	config.size = XSEG_SIZE_MAX + 1;
	ck_assert_int_eq(xseg_segment_create(&config, why), -EINVAL);
	config = small("lanes");
	config.lanes = XSEG_LANES_MAX + 1;
	ck_assert_int_eq(xseg_segment_create(&config, why), -EINVAL);
	config = small("rings");
	config.lanes = XSEG_LANES_MAX; /* 64 x 64 rings do not fit into 8 MiB */
	ck_assert_int_eq(xseg_segment_create(&config, why), -EINVAL);
	config = small("no-memory");
	config.requests = 1u << 20;
	ck_assert_int_eq(xseg_segment_create(&config, why), -EINVAL);
	char path[256];
	file_of("rings", path);
	ck_assert_int_eq(access(path, F_OK), -1);
}

UNIT(test_missing_folder)
{
	char why[XSEG_WHY_SIZE] = "", gone[160];
	snprintf(gone, sizeof(gone), "%s/nowhere", scratch_dir());
	setenv("SKERRY_SHM_DIR", gone, 1);
	struct xseg_config config = small("x");
	ck_assert_int_eq(xseg_segment_create(&config, why), -ENOENT);
	ck_assert_ptr_nonnull(strstr(why, gone));
	setenv("SKERRY_SHM_DIR", scratch_dir(), 1);
}

UNIT(test_another_boot)
{
	char name[NAME_LENGTH_MAX + 1], path[256];
	make(name, path);
	struct xseg seg;
	ck_assert_int_eq(xseg_segment_join(name, &seg, NULL), 0);
	/* as a machine before its reboot would have written it: checksum and all */
	seg.super->boot_id[3] ^= 0x5a;
	size_t from = offsetof(struct xseg_superblock, layout_version);
	seg.super->checksum = crc32c(
		0, (uint8_t *)seg.super + from, offsetof(struct xseg_superblock, checksum) - from);
	xseg_segment_leave(&seg);
	refused(name, -ESTALE);
	ck_assert_int_eq(xseg_segment_destroy(name, NULL), 0);
}

UNIT(test_version_and_hash)
{
	char name[NAME_LENGTH_MAX + 1], path[256];
	make(name, path);
	uint32_t version = XSEG_LAYOUT_VERSION + 1, right = XSEG_LAYOUT_VERSION;
	put_bytes(path, offsetof(struct xseg_superblock, layout_version), &version, 4);
	refused(name, -EPROTO);
	put_bytes(path, offsetof(struct xseg_superblock, layout_version), &right, 4);
	uint32_t hash = xseg_layout_hash() ^ 1;
	put_bytes(path, offsetof(struct xseg_superblock, layout_hash), &hash, 4);
	refused(name, -EPROTO);
	hash ^= 1;
	put_bytes(path, offsetof(struct xseg_superblock, layout_hash), &hash, 4);
	struct xseg seg;
	ck_assert_int_eq(xseg_segment_join(name, &seg, NULL), 0);
	xseg_segment_leave(&seg);
}

UNIT(test_truncated)
{
	static const off_t sizes[] = {XSEG_SIZE_MIN - 1, XSEG_SIZE_MIN / 2, XSEG_PAGE, 100, 1, 0};
	for (unsigned i = 0; i < countof(sizes); i++) {
		char name[NAME_LENGTH_MAX + 1], path[256];
		make(name, path);
		ck_assert_int_eq(truncate(path, sizes[i]), 0);
		refused(name, -EMSGSIZE);
		ck_assert_int_eq(xseg_segment_destroy(name, NULL), 0);
	}
}

/* Every byte that is written once, flipped in three ways: never joined, never a crash. */
UNIT(test_corrupted)
{
	static const uint8_t flips[] = {0x01, 0x80, 0xff};
	char name[NAME_LENGTH_MAX + 1], path[256];
	make(name, path);
	uint8_t good[CHECKED_BYTES];
	take_bytes(path, 0, good, sizeof(good));
	struct xseg seg;
	for (size_t at = 0; at < sizeof(good); at++) {
		for (unsigned f = 0; f < countof(flips); f++) {
			uint8_t bad = good[at] ^ flips[f];
			put_bytes(path, at, &bad, 1);
			int rc = xseg_segment_join(name, &seg, NULL);
			ck_assert_msg(rc == -EILSEQ || rc == -EPROTO,
				"byte %zu ^ %02x: join says %d", at, flips[f], rc);
		}
		put_bytes(path, at, &good[at], 1);
	}
	ck_assert_int_eq(xseg_segment_join(name, &seg, NULL), 0);
	xseg_segment_leave(&seg);
}

/* Corruption that brings its own right checksum: the table places are still checked. */
UNIT(test_corrupted_places)
{
	char name[NAME_LENGTH_MAX + 1], path[256];
	make(name, path);
	struct xseg_superblock good, bad;
	struct xseg seg;
	take_bytes(path, 0, &good, sizeof(good));
	const size_t from = offsetof(struct xseg_superblock, layout_version);
	const size_t to = offsetof(struct xseg_superblock, checksum);
	const size_t first = offsetof(struct xseg_superblock, lane_count);
	uint64_t seed = 7;
	for (size_t at = first; at < to; at++) {
		if (at >= offsetof(struct xseg_superblock, name) &&
			at < offsetof(struct xseg_superblock, tables))
			continue;
		bad = good;
		((uint8_t *)&bad)[at] ^= (uint8_t)(random_next(&seed) % 255 + 1);
		bad.checksum = crc32c(0, (uint8_t *)&bad + from, to - from);
		put_bytes(path, 0, &bad, sizeof(bad));
		int rc = xseg_segment_join(name, &seg, NULL);
		ck_assert_msg(rc == -EILSEQ, "byte %zu: join says %d", at, rc);
	}
}

UNIT(test_not_a_segment)
{
	char name[NAME_LENGTH_MAX + 1], path[256];
	scratch_name(name);
	file_of(name, path);
	int fd = open(path, O_CREAT | O_RDWR | O_CLOEXEC, 0600);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(ftruncate(fd, XSEG_SIZE_MIN), 0);
	close(fd);
	refused(name, -EILSEQ);
	ck_assert_int_eq(xseg_segment_destroy(name, NULL), 0);
}

/* Half-way failure of a pre-faulted segment on a file system that is too small. */
UNIT(test_no_space)
{
	char folder[160], why[XSEG_WHY_SIZE] = "", path[200];
	snprintf(folder, sizeof(folder), "%s/tiny", scratch_dir());
	ck_assert_int_eq(mkdir(folder, 0700), 0);
	if (unshare(CLONE_NEWNS) != 0 || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
		mount("tiny", folder, "tmpfs", 0, "size=2m") != 0) {
		fprintf(stderr, "no_space: not root, not tested\n");
		return;
	}
	setenv("SKERRY_SHM_DIR", folder, 1);
	struct xseg_config config = {.name = "big", .size = XSEG_SIZE_MIN};
	ck_assert_int_eq(xseg_segment_create(&config, why), -ENOSPC);
	ck_assert_ptr_nonnull(strstr(why, "big"));
	snprintf(path, sizeof(path), "%s/xseg.big", folder);
	ck_assert_int_eq(access(path, F_OK), -1);
	ck_assert_int_eq(rmdir(path), -1);
	umount(folder);
	setenv("SKERRY_SHM_DIR", scratch_dir(), 1);
}

UNIT(test_prefault)
{
	char name[NAME_LENGTH_MAX + 1], path[256], why[XSEG_WHY_SIZE] = "";
	scratch_name(name);
	struct xseg_config config = small(name);
	config.no_prefault = false;
	ck_assert_msg(xseg_segment_create(&config, why) == 0, "%s", why);
	struct stat st;
	file_of(name, path);
	ck_assert_int_eq(stat(path, &st), 0);
	ck_assert_int_ge(st.st_blocks * 512, (long)XSEG_SIZE_MIN);
	ck_assert_int_eq(xseg_segment_destroy(name, why), 0);
}

static int hold_lane(void *name)
{
	struct xseg seg;
	uint32_t lane;
	uint16_t epoch;
	child_check(xseg_segment_join(name, &seg, NULL) == 0);
	child_check(xseg_lane_claim(&seg, &lane, &epoch) == 0);
	atomic_fetch_add(&seg.super->generation, 1u << 20); /* "I am in" */
	pause();
	return 0;
}

UNIT(test_destroy_busy)
{
	char name[NAME_LENGTH_MAX + 1], path[256], why[XSEG_WHY_SIZE] = "";
	make(name, path);
	struct xseg seg;
	ck_assert_int_eq(xseg_segment_join(name, &seg, NULL), 0);
	pid_t child = child_start(hold_lane, name);
	while (atomic_load(&seg.super->generation) < 1u << 20)
		usleep(1000);
	ck_assert_int_eq(xseg_segment_destroy(name, why), -EBUSY);
	ck_assert_ptr_nonnull(strstr(why, name));
	ck_assert_int_eq(access(path, F_OK), 0);
	child_kill(child);
	ck_assert_int_eq(xseg_segment_destroy(name, why), 0);
	ck_assert_int_eq(access(path, F_OK), -1);
	/* who has it mapped goes on */
	atomic_fetch_add(&seg.super->generation, 1);
	xseg_segment_leave(&seg);
}

struct seen {
	char names[8][NAME_LENGTH_MAX + 1];
	unsigned count;
	unsigned stop_after;
};

static int see(const char *name, void *context)
{
	struct seen *seen = context;
	snprintf(seen->names[seen->count++ % 8], NAME_LENGTH_MAX + 1, "%s", name);
	return seen->count == seen->stop_after ? -ECANCELED : 0;
}

UNIT(test_list)
{
	char folder[160], stray[200];
	snprintf(folder, sizeof(folder), "%s/list", scratch_dir());
	ck_assert_int_eq(mkdir(folder, 0700), 0);
	setenv("SKERRY_SHM_DIR", folder, 1);
	struct seen seen = {.count = 0};
	ck_assert_int_eq(xseg_segment_list(see, &seen), 0);
	ck_assert_uint_eq(seen.count, 0);
	static const char *const names[] = {"beta", "alpha", "gamma"};
	for (unsigned i = 0; i < 3; i++) {
		struct xseg_config config = small(names[i]);
		ck_assert_int_eq(xseg_segment_create(&config, NULL), 0);
	}
	snprintf(stray, sizeof(stray), "%s/other", folder);
	close(open(stray, O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
	ck_assert_int_eq(xseg_segment_list(see, &seen), 0);
	ck_assert_uint_eq(seen.count, 3);
	ck_assert_str_eq(seen.names[0], "alpha");
	ck_assert_str_eq(seen.names[2], "gamma");
	struct seen part = {.stop_after = 1};
	ck_assert_int_eq(xseg_segment_list(see, &part), -ECANCELED);
	ck_assert_uint_eq(part.count, 1);
	setenv("SKERRY_SHM_DIR", scratch_dir(), 1);
}

/* One process, two addresses: what one view writes, the other reads by index. */
/* Somebody else was first to make it, or a link where it should be. */
UNIT(test_squatted)
{
	char path[PATH_LENGTH_MAX], victim[PATH_LENGTH_MAX + 8], why[XSEG_WHY_SIZE];
	struct xseg_config config = {.name = "squat", .size = 16u << 20};
	struct xseg seg;
	ck_assert_int_eq(xseg_segment_create(&config, why), 0);
	ck_assert_int_eq(path_segment(path, "squat"), 0);
	ck_assert_int_eq(chmod(path, 0666), 0);
	ck_assert_int_eq(xseg_segment_join("squat", &seg, why), -EPERM);
	ck_assert_ptr_nonnull(strstr(why, "another user"));
	ck_assert_int_eq(chmod(path, 0660), 0);
	if (geteuid() == 0) {
		ck_assert_int_eq(chown(path, 12345, 12345), 0);
		ck_assert_int_eq(xseg_segment_join("squat", &seg, why), -EPERM);
		ck_assert_int_eq(xseg_segment_destroy("squat", why), -EPERM);
		ck_assert_int_eq(chown(path, 0, 0), 0);
	}
	ck_assert_int_eq(xseg_segment_destroy("squat", why), 0);
	/* what a link leads to is removed only when it is a segment on hugetlbfs */
	snprintf(victim, sizeof(victim), "%s.victim", path);
	fclose(fopen(victim, "w"));
	ck_assert_int_eq(symlink(victim, path), 0);
	if (geteuid() == 0) {
		ck_assert_int_eq(lchown(path, 12345, 12345), 0);
		ck_assert_int_eq(xseg_segment_join("squat", &seg, why), -EPERM);
		ck_assert_int_eq(xseg_segment_destroy("squat", why), -EPERM);
		ck_assert_int_eq(lchown(path, 0, 0), 0);
	}
	ck_assert_int_eq(xseg_segment_destroy("squat", why), 0);
	ck_assert_int_eq(access(victim, F_OK), 0);
	unlink(victim);
}

/* Whose pids mean other processes there cannot tell who lives, and is not let in. */
UNIT(test_pid_namespace)
{
	char why[XSEG_WHY_SIZE] = "";
	struct xseg_config config = {.name = "pids", .size = 16u << 20};
	struct xseg seg;
	int status;
	ck_assert_int_eq(xseg_segment_create(&config, why), 0);
	ck_assert_int_eq(xseg_segment_join("pids", &seg, why), 0);
	xseg_segment_leave(&seg);
	pid_t child = fork();
	if (child == 0) {
		if (unshare(CLONE_NEWPID))
			_exit(77);
		pid_t inside = fork();
		if (inside == 0)
			_exit(xseg_segment_destroy("pids", why) == -EXDEV &&
						xseg_segment_join("pids", &seg, why) == -EXDEV &&
						strstr(why, "PID namespace")
					? 0
					: 1);
		_exit(waitpid(inside, &status, 0) == inside ? WEXITSTATUS(status) : 1);
	}
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert(WEXITSTATUS(status) == 0 || WEXITSTATUS(status) == 77);
	ck_assert_int_eq(xseg_segment_destroy("pids", why), 0);
}

UNIT(test_two_addresses)
{
	char name[NAME_LENGTH_MAX + 1], path[256];
	make(name, path);
	struct xseg a, b;
	ck_assert_int_eq(xseg_segment_join(name, &a, NULL), 0);
	ck_assert_int_eq(xseg_segment_join(name, &b, NULL), 0);
	ck_assert_ptr_ne(a.base, b.base);
	for (uint32_t page = 0; page < a.page_count; page += 97) {
		memset(xseg_page_address(&a, page), (int)(page % 251), XSEG_PAGE);
		ck_assert_mem_eq(
			xseg_page_address(&a, page), xseg_page_address(&b, page), XSEG_PAGE);
	}
	atomic_store(&a.requests[5].word, 0x1234567890ull);
	ck_assert_uint_eq(atomic_load(&b.requests[5].word), 0x1234567890ull);
	xseg_segment_leave(&a);
	ck_assert_uint_eq(atomic_load(&b.requests[5].word), 0x1234567890ull);
	xseg_segment_leave(&b);
}
