/* SPDX-License-Identifier: Apache-2.0 */
/* Makes, lists and destroys segments: the file as a whole. */
#include <base/clock.h>
#include <base/path.h>
#include <base/size.h>
#include <base/time.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>
#include <xseg/registry.h>
#include <xseg/ring.h>
#include <xseg/segment.h>

#include "xseg/xseg_layout.h"

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

#define SEGMENT_PREFIX "xseg."

static uint64_t huge_page_size(int fd)
{
	struct statfs fs;
	return fstatfs(fd, &fs) == 0 && fs.f_type == 0x958458f6 ? (uint64_t)fs.f_bsize : 0;
}

/* Lanes and requests for a size, where the user did not say. */
static void choose_counts(const struct xseg_config *config, uint32_t *lanes, uint32_t *requests)
{
	*lanes = config->lanes;
	if (*lanes == 0)
		*lanes = config->size >= (1u << 30) ? 32 : config->size >= (128u << 20) ? 16 : 8;
	if (config->size < (32u << 20) && config->lanes == 0)
		*lanes = 4;
	*requests = config->requests;
	if (*requests == 0) {
		uint64_t n = config->size / XSEG_PAGE / 32;
		*requests = n < 1024 ? 1024 : n > 65536 ? 65536 : (uint32_t)n;
	}
}

static int fill_superblock(struct xseg_superblock *super, const struct xseg_config *config,
	uint64_t size, uint32_t lanes, uint32_t requests, uint32_t pages)
{
	memset(super, 0, sizeof(*super));
	super->layout_version = XSEG_LAYOUT_VERSION;
	super->layout_hash = xseg_layout_hash();
	super->size = size;
	if (getrandom(super->uuid, sizeof(super->uuid), 0) != (ssize_t)sizeof(super->uuid))
		return -EIO;
	layout_boot_id(super->boot_id);
	super->pid_ns = layout_pid_ns();
	struct timespec now;
	clock_gettime(CLOCK_REALTIME, &now);
	super->created_ns = time_of(&now);
	super->lane_count = lanes;
	super->flags = config->huge_dir ? XSEG_SEGMENT_HUGE_TLB : 0;
	snprintf(super->name, sizeof(super->name), "%s", config->name);
	layout_places(lanes, requests, pages, super->tables);
	return 0;
}

/* Everything starts as zeros except the hints (all free) and the edges (nowhere). */
static void fill_tables(uint8_t *base, const struct xseg_superblock *super)
{
	const struct xseg_table_place *t = super->tables;
	const struct {
		unsigned hints, things;
	} pools[] = {{XSEG_TABLE_REQUEST_HINTS, XSEG_TABLE_REQUESTS},
		{XSEG_TABLE_PAGE_HINTS, XSEG_TABLE_PAGES}};
	for (unsigned p = 0; p < countof(pools); p++) {
		uint64_t *hints = (uint64_t *)(void *)(base + t[pools[p].hints].offset);
		uint32_t count = t[pools[p].things].count;
		for (uint32_t i = 0; i < count / 64; i++)
			hints[i] = ~0ull;
		if (count % 64)
			hints[count / 64] = (1ull << count % 64) - 1;
	}
	struct xseg_edge_record *edges = (void *)(base + t[XSEG_TABLE_EDGES].offset);
	for (uint32_t i = 0; i < t[XSEG_TABLE_EDGES].count; i++)
		atomic_init(&edges[i].word, (uint64_t)XSEG_NONE << 32);
}

/*
 * Huge pages where the kernel gives them, even with shmem_enabled=never. One small page in each
 * is enough to collapse it, and a third of the work of collapsing 512 of them.
 */
static bool collapse(int fd, uint8_t *base, const struct xseg_table_place *pages)
{
	uint64_t size = pages->size / LAYOUT_HUGE * LAYOUT_HUGE;
	if (size == 0 || pages->offset % LAYOUT_HUGE)
		return false;
	for (uint64_t at = 0; at < size; at += LAYOUT_HUGE)
		if (posix_fallocate(fd, (off_t)(pages->offset + at), XSEG_PAGE) != 0)
			return false;
	return madvise(base + pages->offset, size, MADV_COLLAPSE) == 0;
}

/* Gives every page its memory now, so that nobody meets a full /dev/shm (SIGBUS) later. */
static int prefault(int fd, uint8_t *base, struct xseg_superblock *super, char *why)
{
	if (!(super->flags & XSEG_SEGMENT_HUGE_TLB) &&
		collapse(fd, base, &super->tables[XSEG_TABLE_PAGES]))
		super->flags |= XSEG_SEGMENT_COLLAPSED;
	int error = posix_fallocate(fd, 0, (off_t)super->size);
	if (error)
		return layout_why(why, -error,
			"segment '%s' of %llu bytes does not fit into '%s' (%s); free memory there "
			"or create a smaller one with --size",
			super->name, (unsigned long long)super->size, path_shm_dir(),
			strerror(error));
	madvise(base, super->size, MADV_POPULATE_WRITE);
	return 0;
}

static int build(int fd, const struct xseg_config *config, uint64_t size, char *why)
{
	uint32_t lanes, requests;
	choose_counts(config, &lanes, &requests);
	uint32_t pages = layout_pages_for(size, lanes, requests);
	if (lanes == 0 || lanes > XSEG_LANES_MAX || requests < 64 || requests > (1u << 20))
		return layout_why(why, -EINVAL,
			"segment '%s': lanes must be 1 to %u, requests 64 to "
			"1048576",
			config->name, XSEG_LANES_MAX);
	if (pages < 256)
		return layout_why(why, -EINVAL,
			"segment '%s': %llu bytes leave no room for data pages with %u lanes; give "
			"it more with --size or fewer --lanes",
			config->name, (unsigned long long)size, lanes);
	if (ftruncate(fd, (off_t)size) != 0)
		return layout_why(why, -errno, "segment '%s' cannot have %llu bytes: %s",
			config->name, (unsigned long long)size, strerror(errno));
	uint8_t *base = layout_map(fd, size);
	if (base == MAP_FAILED)
		return layout_why(why, -errno, "segment '%s' cannot be mapped: %s", config->name,
			strerror(errno));
	struct xseg_superblock *super = (void *)base;
	struct xseg_superblock draft;
	int ret = fill_superblock(&draft, config, size, lanes, requests, pages);
	if (ret == 0 && !config->no_prefault)
		ret = prefault(fd, base, &draft, why);
	if (ret == 0) {
		memcpy(super, &draft, sizeof(draft));
		fill_tables(base, super);
		super->checksum = layout_checksum(super);
		atomic_store_explicit(&super->magic, XSEG_MAGIC, memory_order_release);
	}
	layout_unmap(base, size);
	return ret;
}

static int check_config(const struct xseg_config *config, char *why)
{
	if (!config->name || !name_check(config->name))
		return layout_why(why, -EINVAL,
			"'%s' is not a segment name: use 1 to %d of A-Z a-z 0-9 . _ - and begin "
			"with none of . -",
			config->name ? config->name : "", NAME_LENGTH_MAX);
	char least[32], most[32];
	if (config->size < XSEG_SIZE_MIN || config->size > XSEG_SIZE_MAX)
		return layout_why(why, -EINVAL, "segment '%s': the size must be %s to %s",
			config->name, size_format(XSEG_SIZE_MIN, least, sizeof(least)),
			size_format(XSEG_SIZE_MAX, most, sizeof(most)));
	return 0;
}

/* One on hugetlbfs gets a link in the shm folder, where all segments are looked for. */
static int name_huge(const struct xseg_config *config, const char *path)
{
	char link[PATH_LENGTH_MAX];
	if (!config->huge_dir)
		return 0;
	if (path_segment(link, config->name) != 0 || symlink(path, link) == 0)
		return 0;
	int error = errno;
	unlink(path);
	errno = error;
	return -1;
}

/* The file itself, and the link when there is one: that leads to hugetlbfs, and nowhere else. */
static int unlink_both(const char *path, char *why)
{
	char target[PATH_LENGTH_MAX];
	ssize_t length = readlink(path, target, sizeof(target) - 1);
	int fd = layout_open(path, why);
	if (fd == -EPERM)
		return fd;
	bool huge = fd >= 0 && length > 0 && huge_page_size(fd) != 0;
	if (fd >= 0)
		close(fd);
	target[length > 0 ? length : 0] = '\0';
	if ((huge && unlink(target) != 0 && errno != ENOENT) || unlink(path) != 0)
		return layout_why(why, -errno, "'%s' cannot be removed: %s", path, strerror(errno));
	return 0;
}

int xseg_segment_create(const struct xseg_config *config, char why[XSEG_WHY_SIZE])
{
	int ret = check_config(config, why);
	if (ret)
		return ret;
	char path[PATH_LENGTH_MAX];
	ret = path_segment(path, config->name);
	const char *dir = config->huge_dir ? config->huge_dir : path_shm_dir();
	if (config->huge_dir && ret == 0 &&
		snprintf(path, sizeof(path), "%s/" SEGMENT_PREFIX "%s", dir, config->name) >=
			(int)sizeof(path))
		ret = -ENAMETOOLONG;
	if (ret)
		return layout_why(why, ret, "segment '%s': its path is too long", config->name);
	struct stat st;
	if (lstat(path, &st) == 0)
		return layout_why(why, -EEXIST,
			"segment '%s' exists ('%s'); destroy it first with "
			"'xsegctl segment destroy %s'",
			config->name, path, config->name);
	/* an unnamed file: whatever stops us, nothing is left */
	int fd = open(dir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0660);
	if (fd < 0)
		return layout_why(why, -errno, "segment '%s' cannot be made in '%s': %s",
			config->name, dir, strerror(errno));
	uint64_t unit = huge_page_size(fd);
	if (!unit)
		unit = XSEG_PAGE;
	ret = build(fd, config, (config->size + unit - 1) / unit * unit, why);
	if (ret == 0) {
		char self[64];
		snprintf(self, sizeof(self), "/proc/self/fd/%d", fd);
		if (linkat(AT_FDCWD, self, AT_FDCWD, path, AT_SYMLINK_FOLLOW) != 0 ||
			name_huge(config, path) != 0)
			ret = layout_why(why, -errno, "segment '%s' cannot be named '%s': %s",
				config->name, path, strerror(errno));
	}
	close(fd);
	return ret;
}

/* Does a living process have a lane in it? Then *who is its pid. */
static bool in_use(const struct xseg *seg, pid_t *who)
{
	for (uint32_t i = 0; i < XSEG_LANES_MAX; i++) {
		uint64_t word = atomic_load_explicit(&seg->lanes[i].word, memory_order_acquire);
		if (xseg_life_of(word) == XSEG_LIFE_FREE)
			continue;
		if (!xseg_lane_alive(seg, i, (uint16_t)xseg_epoch_of(word)))
			continue;
		*who = (pid_t)xseg_owner_of(word);
		return true;
	}
	return false;
}

/*
 * The memory that programs have had of its volumes (<xseg/region.h>) goes with it, unless one still
 * has it mapped: the front locks the file as long as anybody does, and a program waits for a
 * segment of that name.
 */
static void destroy_regions(const char *name)
{
	char path[PATH_LENGTH_MAX];
	glob_t found = {0};
	if (path_region(path, name, "*.memory") || glob(path, 0, NULL, &found))
		return;
	for (size_t i = 0; i < found.gl_pathc; i++) {
		const char *memory = found.gl_pathv[i];
		size_t length = strlen(memory) - strlen("memory");
		int fd = path_open(memory, O_RDONLY, 0);
		if (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0) {
			snprintf(path, sizeof(path), "%.*sbook", (int)length, memory);
			unlink(path);
			unlink(memory);
		}
		if (fd >= 0)
			close(fd);
	}
	globfree(&found);
}

int xseg_segment_destroy(const char *name, char why[XSEG_WHY_SIZE])
{
	char path[PATH_LENGTH_MAX];
	if (!name_check(name) || path_segment(path, name) != 0)
		return layout_why(why, -EINVAL, "'%s' is not a segment name", name);
	struct stat st;
	if (lstat(path, &st) != 0)
		return layout_why(why, -ENOENT, "segment '%s' does not exist", name);
	struct xseg seg;
	pid_t who = 0;
	int joined = xseg_segment_join(name, &seg, why);
	if (joined == -EXDEV) /* whether somebody uses it cannot be seen */
		return joined;
	if (joined == 0) {
		bool busy = in_use(&seg, &who);
		xseg_segment_leave(&seg);
		if (busy)
			return layout_why(why, -EBUSY,
				"segment '%s' is in use by process %d; stop it "
				"first ('xsegctl down %s')",
				name, (int)who, name);
	}
	int error = unlink_both(path, why);
	if (!error)
		destroy_regions(name);
	return error;
}

static int by_prefix(const struct dirent *entry)
{
	return strncmp(entry->d_name, SEGMENT_PREFIX, sizeof(SEGMENT_PREFIX) - 1) == 0 &&
	       name_check(entry->d_name + sizeof(SEGMENT_PREFIX) - 1);
}

int xseg_segment_list(int (*visit)(const char *name, void *context), void *context)
{
	struct dirent **entries;
	int count = scandir(path_shm_dir(), &entries, by_prefix, alphasort);
	if (count < 0)
		return -errno;
	int ret = 0;
	for (int i = 0; i < count; i++) {
		if (ret == 0)
			ret = visit(entries[i]->d_name + sizeof(SEGMENT_PREFIX) - 1, context);
		free(entries[i]);
	}
	free(entries);
	return ret;
}
