/* SPDX-License-Identifier: Apache-2.0 */
/* Who may write to which volume: a table in the folder, which all who serve it read. */
#include "peers/blocker/file/file_fence.h"

#include <base/crash.h>
#include <base/hash.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "peers/blocker/file/file_disk.h"

#define NAME "fence"
#define TEMPORARY "tmp/fence"
#define GROUPS \
	512u /* where a volume's place may be, by its id; each further level has twice as many */
#define LEVELS 7u
#define PLACES 64u /* of each group */

static const char fence_magic[8] = {'S', 'K', 'F', 'E', 'N', 'C', 'E', '2'};
static const char magic_before[8] = {'S', 'K', 'F', 'E', 'N', 'C', 'E', '1'};

/* As all that lies in the file it is read through a mapping and written by pwrite(), which says so
   when there is no space: where a file system copies on write, that may be at any write. */
struct fence_head {
	char magic[8];
	uint8_t crowd[CROWD_ID]; /* the counters of those that serve the folder */
	_Atomic uint32_t levels; /* of places, besides the first */
	uint8_t rest[36];
};
fixed(sizeof(struct fence_head) == 64);

struct fence_place {
	_Atomic uint64_t volume; /* 0: free */
	_Atomic uint64_t term;
	_Atomic uint64_t via; /* through which segment's process it is written; 0: nobody's */
	/* lowest bit: all that came that way is durable, and no more comes; the others: since which
	   term nobody else had it */
	_Atomic uint64_t line_left;
};
fixed(sizeof(struct fence_place) == 32);

static uint64_t line_of(const struct fence_place *place)
{
	return atomic_load(&place->line_left) >> 1;
}

static bool is_left(const struct fence_place *place) { return atomic_load(&place->line_left) & 1; }

struct fence_file {
	struct fence_head head;
	uint8_t rest[XSEG_PAGE - sizeof(struct fence_head)];
	struct fence_place places[][PLACES]; /* GROUPS of the first level, and so on */
};
fixed(offsetof(struct fence_file, places) == XSEG_PAGE);

static size_t level_first(unsigned level) { return (size_t)GROUPS * ((1u << level) - 1); }

static size_t size_with(unsigned levels)
{
	return offsetof(struct fence_file, places) +
	       level_first(levels + 1) * PLACES * sizeof(struct fence_place);
}

static int put(const struct file_fence *fence, size_t at, const void *data, size_t size)
{
	ssize_t done = pwrite(fence->fd, data, size, (off_t)at);
	return done < 0 ? -errno : done == (ssize_t)size ? 0 : -ENOSPC;
}

/* A place is whole within a page. Who reads it half written looks again, for `changes` grows when
   it is done. */
static int put_place(
	const struct file_fence *fence, const struct fence_place *at, struct fence_place place)
{
	return put(fence, (size_t)((const char *)at - (const char *)fence->file), &place,
		sizeof(place));
}

static void changed(struct file_store *store) { atomic_fetch_add(&store->crowd.file->changes, 1); }

/* --- making and mapping it ---------------------------------------------------------------- */

/* Writing in place saves space where a file system copies otherwise; only an empty file can be
   told so, and not everywhere. */
static void ask_for_writing_in_place(int fd)
{
	int flags = 0;
	if (ioctl(fd, FS_IOC_GETFLAGS, &flags) == 0) {
		flags |= FS_NOCOW_FL;
		(void)ioctl(fd, FS_IOC_SETFLAGS, &flags);
	}
}

static int make_file(struct file_store *store)
{
	int fd = openat(store->root, TEMPORARY, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	if (fd < 0)
		return -errno;
	ask_for_writing_in_place(fd);
	int error = -posix_fallocate(fd, 0, (off_t)size_with(0));
	if (!error && pwrite(fd, fence_magic, sizeof(fence_magic), 0) != sizeof(fence_magic))
		error = -ENOSPC;
	if (!error && fsync(fd))
		error = -errno;
	close(fd);
	if (!error && renameat(store->root, TEMPORARY, store->root, NAME))
		error = -errno;
	if (error)
		unlinkat(store->root, TEMPORARY, 0);
	return error ? error : fsync(store->root) ? -errno : 0;
}

/* Of a version before: it had counters where there is nothing now, and no id of any. */
static int renew(const struct file_fence *fence)
{
	struct fence_head head = {.levels = atomic_load(&fence->file->head.levels)};
	memcpy(head.magic, fence_magic, sizeof(fence_magic));
	return put(fence, 0, &head, sizeof(head));
}

/* With room for all that may be added to it: what is behind its end is not looked at. */
static int map_file(struct file_store *store, bool alone)
{
	struct file_fence *fence = &store->fence;
	struct stat s;
	fence->fd = openat(store->root, NAME, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
	if (fence->fd < 0)
		return -errno;
	int error = fstat(fence->fd, &s) ? -errno : 0;
	if (!error && s.st_size < (off_t)size_with(0))
		error = -EILSEQ;
	if (!error) {
		fence->file =
			mmap(NULL, size_with(LEVELS - 1), PROT_READ, MAP_SHARED, fence->fd, 0);
		error = fence->file == MAP_FAILED ? -errno : 0;
	}
	if (error) {
		fence->file = NULL;
		return error;
	}
	const struct fence_head *head = &fence->file->head;
	if (alone && memcmp(head->magic, magic_before, sizeof(magic_before)) == 0)
		error = renew(fence);
	if (!error && (memcmp(head->magic, fence_magic, sizeof(fence_magic)) != 0 ||
			      head->levels >= LEVELS || s.st_size < (off_t)size_with(head->levels)))
		error = -EILSEQ;
	return error;
}

/* The counters that belong to it, or new ones. */
static int join_crowd(struct file_store *store, bool alone)
{
	uint8_t id[CROWD_ID];
	memcpy(id, store->fence.file->head.crowd, sizeof(id));
	int error = file_crowd_open(store, id, alone);
	if (!error && memcmp(id, store->fence.file->head.crowd, sizeof(id)) != 0)
		error = put(&store->fence, offsetof(struct fence_head, crowd), id, sizeof(id));
	return error;
}

int file_fence_open(struct file_store *store, uint64_t own, bool alone)
{
	struct file_fence *fence = &store->fence;
	fence->own = own;
	fence->counts = store->shared;
	fence->fd = -1;
	file_lock(store, FILE_LOCK_FENCE);
	int error = map_file(store, alone);
	if (error == -ENOENT) {
		error = make_file(store);
		error = error ? error : map_file(store, alone);
	}
	error = error ? error : join_crowd(store, alone);
	if (error)
		file_fence_close(store, false);
	file_lock_release(store, FILE_LOCK_FENCE);
	fence->why = error;
	return error;
}

void file_fence_close(struct file_store *store, bool last)
{
	file_crowd_close(store, last);
	if (store->fence.file)
		munmap(store->fence.file, size_with(LEVELS - 1));
	if (store->fence.fd >= 0)
		close(store->fence.fd);
	store->fence.file = NULL;
	store->fence.fd = -1;
}

bool file_fence_begin(struct file_store *store, unsigned lock)
{
	return store->crowd.file && atomic_exchange(&store->crowd.file->at_work[lock], 1) != 0;
}

void file_fence_end(struct file_store *store, unsigned lock)
{
	if (store->crowd.file)
		atomic_store(&store->crowd.file->at_work[lock], 0);
}

/* --- looking ------------------------------------------------------------------------------ */

static struct fence_place *group_of(const struct file_fence *fence, uint64_t volume, unsigned level)
{
	uint64_t group = (hash_u64(volume) >> 32) % ((uint64_t)GROUPS << level);
	return fence->file->places[level_first(level) + group];
}

static struct fence_place *find_in(struct fence_place *group, uint64_t volume)
{
	for (unsigned i = 0; i < PLACES; i++)
		if (atomic_load_explicit(&group[i].volume, memory_order_acquire) == volume)
			return &group[i];
	return NULL;
}

/* Among those of that volume's groups: its own place, or (0) a free one. */
static struct fence_place *find_for(const struct file_fence *fence, uint64_t volume, uint64_t what)
{
	struct fence_place *place = NULL;
	unsigned levels = atomic_load_explicit(&fence->file->head.levels, memory_order_acquire);
	for (unsigned level = 0; level <= levels && level < LEVELS && !place; level++)
		place = find_in(group_of(fence, volume, level), what);
	return place;
}

static struct fence_place *find(const struct file_fence *fence, uint64_t volume)
{
	return find_for(fence, volume, volume);
}

/* Since a term before the line another has had it: what was written then and comes only now, out of
   a cache that has not heard of that yet, would go over what the other has written. */
static bool is_of_ours(const struct file_fence_look *look, uint64_t term)
{
	return look->mine && (term == 0 || term + 1 >= look->line);
}

bool file_fence_look(const struct file_store *store, struct file_fence_look *look, uint64_t volume,
	uint64_t term)
{
	const struct file_fence *fence = &store->fence;
	if (!fence->file)
		return true;
	uint64_t changes = atomic_load(&store->crowd.file->changes) + 1;
	if (likely(look->volume == volume && look->changes == changes))
		return is_of_ours(look, term);
	const struct fence_place *place = find(fence, volume);
	*look = (struct file_fence_look){.volume = volume,
		.changes = changes,
		.line = place ? line_of(place) : 0,
		.mine = !place || atomic_load(&place->via) == fence->own};
	return is_of_ours(look, term);
}

/* Whoever has not been counted when a new owner looks sees the change that was made before. */
bool file_fence_enter(const struct file_store *store, struct file_fence_look *look, uint64_t volume,
	uint64_t term, unsigned *turn)
{
	*turn = 0;
	if (!store->fence.file || !store->fence.counts)
		return file_fence_look(store, look, volume, term);
	*turn = file_crowd_enter(&store->crowd, volume);
	if (file_fence_look(store, look, volume, term))
		return true;
	file_crowd_leave(&store->crowd, volume, *turn);
	return false;
}

void file_fence_leave(const struct file_store *store, uint64_t volume, unsigned turn)
{
	if (store->fence.file && store->fence.counts)
		file_crowd_leave(&store->crowd, volume, turn);
}

/* --- setting ------------------------------------------------------------------------------ */

/* One level more. All of its space is taken before anybody looks there. */
static int grow(struct file_store *store)
{
	const struct file_fence *fence = &store->fence;
	uint32_t levels = atomic_load(&fence->file->head.levels) + 1;
	if (levels == LEVELS)
		return -ENOSPC;
	int error = -posix_fallocate(fence->fd, 0, (off_t)size_with(levels));
	if (!error && fsync(fence->fd))
		error = -errno;
	return error ? error
		     : put(fence, offsetof(struct fence_head, levels), &levels, sizeof(levels));
}

static int find_or_make(struct file_store *store, uint64_t volume, struct fence_place **place)
{
	const struct file_fence *fence = &store->fence;
	int error = 0;
	*place = find(fence, volume);
	while (!*place && !(*place = find_for(fence, volume, 0)) && !error)
		error = grow(store);
	return *place ? 0 : error;
}

static int give(struct file_store *store, const struct fence_place *place,
	const struct file_fence_claim *claim)
{
	const struct file_fence *fence = &store->fence;
	int error = put_place(fence, place,
		(struct fence_place){.volume = claim->volume,
			.term = claim->term,
			.via = claim->nobody ? 0 : fence->own,
			.line_left = claim->line << 1 | claim->nobody});
	changed(store);
	crash_point("blocker_file.fence.set");
	return error ? error : fdatasync(fence->fd) ? -errno : 0;
}

/*
 * Nobody's while we wait: killed in the middle, it is for the next one with that term to say
 * whose it is.
 */
static int bar(struct file_store *store, const struct fence_place *place, bool known,
	struct file_fence_claim *claim)
{
	bool left = !known || is_left(place);
	int error = put_place(&store->fence, place,
		(struct fence_place){.volume = claim->volume,
			.term = claim->term,
			.line_left = claim->line << 1 | left});
	changed(store);
	crash_point("blocker_file.fence.barred");
	claim->owed = !left;
	claim->past = file_crowd_now(&store->crowd, claim->volume);
	return error;
}

static int begin(struct file_store *store, struct file_fence_claim *claim)
{
	const struct file_fence *fence = &store->fence;
	struct fence_place *place;
	int error = find_or_make(store, claim->volume, &place);
	if (error)
		return error;
	bool known = atomic_load(&place->volume) == claim->volume;
	uint64_t had = known ? atomic_load(&place->term) : 0, via = atomic_load(&place->via);
	bool ours = known && via == fence->own && !claim->nobody;
	bool same = known && claim->term == had; /* as before, perhaps by another way */
	if (claim->line == 0)
		claim->line = ours || same ? line_of(place) : claim->term;
	if (ours && same && claim->line == line_of(place) && !is_left(place))
		return 0;
	if (known && claim->term < had)
		return -ESTALE;
	if (ours)
		return give(store, place, claim);
	error = bar(store, place, known, claim);
	if (error)
		return error;
	return store->shared ? FILE_FENCE_WAITS : give(store, place, claim);
}

int file_fence_claim(struct file_store *store, struct file_fence_claim *claim)
{
	if (claim->volume == 0 || claim->term == 0)
		return -EINVAL;
	if (!store->fence.file)
		return store->shared ? store->fence.why : -EOPNOTSUPP;
	file_lock(store, FILE_LOCK_FENCE);
	int error = begin(store, claim);
	file_lock_release(store, FILE_LOCK_FENCE);
	return error;
}

/* While we waited it may have been given to another, with that term or a later one. */
static int end(struct file_store *store, const struct file_fence_claim *claim)
{
	const struct file_fence *fence = &store->fence;
	const struct fence_place *place = find(fence, claim->volume);
	if (!place || atomic_load(&place->term) != claim->term)
		return -ESTALE;
	uint64_t via = atomic_load(&place->via);
	return via == 0 || via == fence->own ? give(store, place, claim) : -ESTALE;
}

/* What the one before has written and not made durable is made so, for whoever reads it now may
   build on it. */
int file_fence_take(struct file_store *store, const struct file_fence_claim *claim)
{
	if (claim->owed && syncfs(store->root))
		return -errno;
	file_lock(store, FILE_LOCK_FENCE);
	int error = end(store, claim);
	file_lock_release(store, FILE_LOCK_FENCE);
	return error;
}

int file_fence_left(struct file_store *store, uint64_t volume, uint64_t term)
{
	const struct file_fence *fence = &store->fence;
	if (!fence->file)
		return 0;
	file_lock(store, FILE_LOCK_FENCE);
	const struct fence_place *place = find(fence, volume);
	int error = 0;
	uint64_t left = place ? atomic_load(&place->line_left) | 1 : 0;
	bool is_now = place && (term == 0 || atomic_load(&place->term) == term);
	if (is_now && atomic_load(&place->via) == fence->own)
		error = put(fence,
			(size_t)((const char *)&place->line_left - (const char *)fence->file),
			&left, sizeof(left));
	file_lock_release(store, FILE_LOCK_FENCE);
	return error;
}

void file_fence_forget(struct file_store *store, uint64_t volume)
{
	const struct file_fence *fence = &store->fence;
	if (!fence->file)
		return;
	file_lock(store, FILE_LOCK_FENCE);
	const struct fence_place *place = find(fence, volume);
	if (place) {
		/* without space it stays taken, by a volume that nobody asks for */
		(void)put_place(fence, place, (struct fence_place){0});
		changed(store);
	}
	file_lock_release(store, FILE_LOCK_FENCE);
}
