/* SPDX-License-Identifier: Apache-2.0 */
/* Maps a segment and checks every word of its superblock before anything else is believed. */
#include <base/path.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/membarrier.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <xseg/segment.h>

#include "xseg/xseg_layout.h"

/* Are the tables where this build would have put them? */
static bool places_right(const struct xseg_superblock *super)
{
	struct xseg_table_place places[XSEG_TABLE_COUNT];
	uint32_t requests = super->tables[XSEG_TABLE_REQUESTS].count;
	uint32_t pages = super->tables[XSEG_TABLE_PAGES].count;
	if (super->lane_count == 0 || super->lane_count > XSEG_LANES_MAX || requests == 0 ||
		requests > (1u << 20) || pages == 0 || pages > (XSEG_SIZE_MAX >> XSEG_PAGE_SHIFT))
		return false;
	uint64_t need = layout_places(super->lane_count, requests, pages, places);
	return need <= super->size && memcmp(places, super->tables, sizeof(places)) == 0;
}

/* `super` is a private copy: nobody changes it while we look. */
static int check_super(
	const struct xseg_superblock *super, uint64_t file_size, const char *path, char *why)
{
	if (atomic_load_explicit(&super->magic, memory_order_relaxed) != XSEG_MAGIC)
		return layout_why(why, -EILSEQ, "'%s' is not a segment (no magic number)", path);
	if (super->layout_version != XSEG_LAYOUT_VERSION)
		return layout_why(why, -EPROTO,
			"'%s' has layout version %u, this program knows %u; use the programs that "
			"made "
			"it, or destroy and create it again",
			path, super->layout_version, XSEG_LAYOUT_VERSION);
	if (super->layout_hash != xseg_layout_hash())
		return layout_why(why, -EPROTO,
			"'%s' was made by another build (layout %08x, this one is %08x); use its "
			"programs, or destroy and create it again",
			path, super->layout_hash, xseg_layout_hash());
	if (super->checksum != layout_checksum(super))
		return layout_why(why, -EILSEQ,
			"'%s' is corrupted (superblock checksum); destroy it and create it again",
			path);
	if (super->size > file_size)
		return layout_why(why, -EMSGSIZE,
			"'%s' is truncated: %llu of %llu bytes are there; destroy it and create it "
			"again",
			path, (unsigned long long)file_size, (unsigned long long)super->size);
	if (!places_right(super))
		return layout_why(why, -EILSEQ,
			"'%s' is corrupted (table places); destroy it and create it again", path);
	uint8_t boot_id[16];
	layout_boot_id(boot_id);
	if (memcmp(boot_id, super->boot_id, sizeof(boot_id)) != 0)
		return layout_why(why, -ESTALE,
			"'%s' is left from another boot; destroy it and create it again", path);
	uint64_t ours = layout_pid_ns();
	if (super->pid_ns != 0 && ours != 0 && super->pid_ns != ours)
		return layout_why(why, -EXDEV,
			"'%s' belongs to another PID namespace: who lives there cannot be seen "
			"from here; share it (docker run --pid=container:NAME, or --pid=host)",
			path);
	return 0;
}

static void *table(const struct xseg *seg, const struct xseg_superblock *super, unsigned which)
{
	return seg->base + super->tables[which].offset;
}

static void resolve(struct xseg *seg, const struct xseg_superblock *super)
{
	seg->super = (void *)seg->base;
	seg->peers = table(seg, super, XSEG_TABLE_PEERS);
	seg->lanes = table(seg, super, XSEG_TABLE_LANES);
	seg->ports = table(seg, super, XSEG_TABLE_PORTS);
	seg->edges = table(seg, super, XSEG_TABLE_EDGES);
	seg->stats = table(seg, super, XSEG_TABLE_STATS);
	seg->volumes = table(seg, super, XSEG_TABLE_VOLUMES);
	seg->request_hints = table(seg, super, XSEG_TABLE_REQUEST_HINTS);
	seg->requests = table(seg, super, XSEG_TABLE_REQUESTS);
	seg->rings = table(seg, super, XSEG_TABLE_RINGS);
	seg->page_hints = table(seg, super, XSEG_TABLE_PAGE_HINTS);
	seg->descriptors = table(seg, super, XSEG_TABLE_PAGE_DESCRIPTORS);
	seg->pages = table(seg, super, XSEG_TABLE_PAGES);
	seg->request_count = super->tables[XSEG_TABLE_REQUESTS].count;
	seg->page_count = super->tables[XSEG_TABLE_PAGES].count;
	seg->lane_count = super->lane_count;
	seg->volume_count = super->tables[XSEG_TABLE_VOLUMES].count;
	memcpy(seg->name, super->name, sizeof(seg->name));
	seg->name[sizeof(seg->name) - 1] = '\0';
}

static int map(int fd, const char *path, struct xseg *seg, char *why)
{
	struct xseg_superblock super;
	struct stat st;
	if (fstat(fd, &st) != 0)
		return layout_why(why, -errno, "'%s' cannot be read: %s", path, strerror(errno));
	ssize_t got = S_ISREG(st.st_mode) ? pread(fd, &super, sizeof(super), 0) : 0;
	if (got < 0)
		return layout_why(why, -errno, "'%s' cannot be read: %s", path, strerror(errno));
	if (got < (ssize_t)sizeof(super))
		return layout_why(
			why, -EMSGSIZE, "'%s' is truncated: not even a superblock is there", path);
	int ret = check_super(&super, (uint64_t)st.st_size, path, why);
	if (ret)
		return ret;
	seg->size = super.size;
	seg->base = layout_map(fd, super.size);
	if (seg->base == MAP_FAILED)
		return layout_why(why, -errno, "'%s' cannot be mapped: %s", path, strerror(errno));
	resolve(seg, &super);
	/* a core file shall hold the tables, not gigabytes of guests' data */
	madvise(seg->pages, super.tables[XSEG_TABLE_PAGES].size, MADV_DONTDUMP);
	return 0;
}

/* A segment on hugetlbfs has a link in the shm folder; a link of a stranger's is not followed. */
int layout_open(const char *path, char *why)
{
	char target[PATH_LENGTH_MAX];
	ssize_t length = readlink(path, target, sizeof(target) - 1);
	int fd = length > 0 ? path_check(path) : 0;
	if (fd == 0) {
		target[length > 0 ? length : 0] = 0;
		fd = path_open(length > 0 ? target : path, O_RDWR, 0);
	}
	if (fd == -EPERM)
		return layout_why(why, fd,
			"'%s' belongs to another user, or others may write to it: it is not used; "
			"look at it with 'ls -l', and remove it if nobody needs it",
			path);
	if (fd < 0)
		return layout_why(why, fd, "'%s' cannot be opened: %s", path, strerror(-fd));
	return fd;
}

int xseg_segment_join_path(const char *path, struct xseg *seg, char why[XSEG_WHY_SIZE])
{
	memset(seg, 0, sizeof(*seg));
	int fd = layout_open(path, why);
	if (fd < 0)
		return fd;
	int ret = map(fd, path, seg, why);
	close(fd);
	if (ret)
		return ret;
	snprintf(seg->path, sizeof(seg->path), "%s", path);
	/* before the first message: others' barriers must reach this process */
	seg->barrier = syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED, 0, 0) == 0;
	return 0;
}

void xseg_segment_barrier(void)
{
	atomic_thread_fence(memory_order_seq_cst);
	syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL_EXPEDITED, 0, 0);
}

int xseg_segment_join(const char *name, struct xseg *seg, char why[XSEG_WHY_SIZE])
{
	char path[PATH_LENGTH_MAX];
	memset(seg, 0, sizeof(*seg));
	if (!name_check(name) || path_segment(path, name) != 0)
		return layout_why(why, -EINVAL, "'%s' is not a segment name", name);
	if (access(path, F_OK) != 0)
		return layout_why(why, -ENOENT,
			"segment '%s' does not exist; create it with 'xsegctl segment create %s "
			"--size 1G'",
			name, name);
	return xseg_segment_join_path(path, seg, why);
}

void xseg_segment_leave(struct xseg *seg)
{
	if (seg->base)
		layout_unmap(seg->base, seg->size);
	memset(seg, 0, sizeof(*seg));
}

int xseg_segment_keep(const struct xseg *seg, const char *run_dir, int *fd)
{
	*fd = layout_open(seg->path, NULL);
	if (*fd < 0)
		return *fd;
	if (flock(*fd, LOCK_EX | LOCK_NB)) {
		int error = errno == EWOULDBLOCK ? -EBUSY : -errno;
		close(*fd);
		*fd = -1;
		return error;
	}
	snprintf(seg->super->run_dir, sizeof(seg->super->run_dir), "%s", run_dir);
	atomic_store(&seg->super->keeper, (uint32_t)getpid());
	return 0;
}

int xseg_segment_keeper(const char *name, uint32_t *pid, char run_dir[XSEG_RUN_DIR_MAX + 1])
{
	char path[PATH_LENGTH_MAX];
	struct xseg_superblock super;
	if (!name_check(name) || path_segment(path, name) != 0)
		return -EINVAL;
	int fd = layout_open(path, NULL);
	if (fd < 0)
		return fd;
	ssize_t got = pread(fd, &super, sizeof(super), 0);
	close(fd);
	if (got != (ssize_t)sizeof(super) ||
		atomic_load_explicit(&super.magic, memory_order_relaxed) != XSEG_MAGIC ||
		super.layout_hash != xseg_layout_hash())
		return -EILSEQ;
	*pid = atomic_load_explicit(&super.keeper, memory_order_relaxed);
	memcpy(run_dir, super.run_dir, sizeof(super.run_dir));
	run_dir[XSEG_RUN_DIR_MAX] = 0;
	return 0;
}
