/* SPDX-License-Identifier: Apache-2.0 */
/* Who may write to which volume: a table in the folder, which all who serve it have mapped. */
#include "peers/blocker/file/file_fence.h"

#include <base/clock.h>
#include <base/crash.h>
#include <base/log.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "peers/blocker/file/file_disk.h"

#define ROOM "blocker_file"
#define NAME "fence"
#define TEMPORARY "tmp/fence"
#define MEMBERS 63u
#define GROUPS \
	512u /* where a volume's place may be, by its id; each further level has twice as many */
#define LEVELS 7u
#define PLACES 64u /* of each group */
#define WAIT_NS 10000000000u
#define PAUSE_NS 1000000

static const char fence_magic[8] = {'S', 'K', 'F', 'E', 'N', 'C', 'E', '1'};

struct fence_head {
	char magic[8];
	_Atomic uint32_t turn; /* which of the counters those use that go in now: its lowest bit */
	_Atomic uint32_t levels;     /* of places, besides the first */
	_Atomic uint64_t changes;    /* grows with each change of a place */
	_Atomic uint32_t at_work[4]; /* 1: somebody has this lock of the folder */
	uint8_t rest[24];
};
fixed(sizeof(struct fence_head) == 64);

/* A process that serves the folder. */
struct fence_member {
	_Atomic uint64_t pid;
	_Atomic uint64_t inside[2]; /* changes of data at work, by turn */
	uint8_t rest[40];
};
fixed(sizeof(struct fence_member) == 64);

struct fence_place {
	_Atomic uint64_t volume; /* 0: free */
	_Atomic uint64_t term;
	_Atomic uint64_t via;  /* through which segment's process it is written; 0: nobody's */
	_Atomic uint64_t left; /* 1: all that came that way is durable, and no more comes */
};
fixed(sizeof(struct fence_place) == 32);

struct fence_file {
	struct fence_head head;
	struct fence_member members[MEMBERS];
	struct fence_place places[][PLACES]; /* GROUPS of the first level, and so on */
};
fixed(offsetof(struct fence_file, places) == XSEG_PAGE);

static size_t level_first(unsigned level) { return (size_t)GROUPS * ((1u << level) - 1); }

static size_t size_with(unsigned levels)
{
	return offsetof(struct fence_file, places) +
	       level_first(levels + 1) * PLACES * sizeof(struct fence_place);
}

/* --- making and mapping it ---------------------------------------------------------------- */

/* All of its space is taken now: what is written through a mapping must never meet a full disk. */
static int make_file(struct file_store *store)
{
	int fd = openat(store->root, TEMPORARY, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	if (fd < 0)
		return -errno;
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

/* With room for all that may be added to it: what is behind its end is not looked at. */
static int map_file(struct file_store *store, struct fence_file **file)
{
	struct stat s;
	int fd = openat(store->root, NAME, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
	if (fd < 0)
		return -errno;
	int error = fstat(fd, &s) ? -errno : 0;
	if (!error && s.st_size < (off_t)size_with(0))
		error = -EILSEQ;
	if (!error) {
		*file = mmap(
			NULL, size_with(LEVELS - 1), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
		error = *file == MAP_FAILED ? -errno : 0;
	}
	close(fd);
	if (!error && (memcmp((*file)->head.magic, fence_magic, sizeof(fence_magic)) != 0 ||
			      (*file)->head.levels >= LEVELS ||
			      s.st_size < (off_t)size_with((*file)->head.levels))) {
		munmap(*file, size_with(LEVELS - 1));
		error = -EILSEQ;
	}
	return error;
}

/* The place of a process that has gone is another's. */
static int take_member(struct file_store *store)
{
	struct file_fence *fence = &store->fence;
	for (unsigned i = 0; i < MEMBERS; i++) {
		struct fence_member *member = &fence->file->members[i];
		if (!file_lock_try(store, FILE_LOCK_MEMBER + i))
			continue;
		atomic_store(&member->inside[0], 0);
		atomic_store(&member->inside[1], 0);
		atomic_store(&member->pid, (uint64_t)getpid());
		fence->member = i;
		return 0;
	}
	return -EUSERS;
}

int file_fence_open(struct file_store *store, uint64_t own)
{
	struct file_fence *fence = &store->fence;
	fence->own = own;
	fence->counts = store->shared;
	file_lock(store, FILE_LOCK_FENCE);
	int error = map_file(store, &fence->file);
	if (error == -ENOENT) {
		error = make_file(store);
		error = error ? error : map_file(store, &fence->file);
	}
	if (!error) {
		error = take_member(store);
		if (error)
			munmap(fence->file, size_with(LEVELS - 1));
	}
	file_unlock(store, FILE_LOCK_FENCE);
	if (error)
		fence->file = NULL;
	fence->why = error;
	return error;
}

void file_fence_close(struct file_store *store)
{
	if (store->fence.file)
		munmap(store->fence.file, size_with(LEVELS - 1));
	store->fence.file = NULL;
}

bool file_fence_begin(struct file_fence *fence, unsigned lock)
{
	return fence->file && atomic_exchange(&fence->file->head.at_work[lock], 1) != 0;
}

void file_fence_end(struct file_fence *fence, unsigned lock)
{
	if (fence->file)
		atomic_store(&fence->file->head.at_work[lock], 0);
}

/* --- looking ------------------------------------------------------------------------------ */

static struct fence_place *group_of(const struct file_fence *fence, uint64_t volume, unsigned level)
{
	uint64_t group = (volume * 0x9e3779b97f4a7c15ull >> 32) % ((uint64_t)GROUPS << level);
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

bool file_fence_look(const struct file_fence *fence, struct file_fence_look *look, uint64_t volume)
{
	if (!fence->file)
		return true;
	uint64_t changes = atomic_load(&fence->file->head.changes) + 1;
	if (likely(look->volume == volume && look->changes == changes))
		return look->mine;
	const struct fence_place *place = find(fence, volume);
	*look = (struct file_fence_look){.volume = volume,
		.changes = changes,
		.mine = !place || atomic_load(&place->via) == fence->own};
	return look->mine;
}

/* Whoever has not been counted when a new owner looks sees the change that was made before. */
bool file_fence_enter(
	struct file_fence *fence, struct file_fence_look *look, uint64_t volume, unsigned *turn)
{
	*turn = 0;
	if (!fence->file || !fence->counts)
		return file_fence_look(fence, look, volume);
	*turn = atomic_load(&fence->file->head.turn) & 1;
	atomic_fetch_add(&fence->file->members[fence->member].inside[*turn], 1);
	if (file_fence_look(fence, look, volume))
		return true;
	file_fence_leave(fence, *turn);
	return false;
}

void file_fence_leave(struct file_fence *fence, unsigned turn)
{
	if (fence->file && fence->counts)
		atomic_fetch_sub(&fence->file->members[fence->member].inside[turn], 1);
}

/* --- setting ------------------------------------------------------------------------------ */

/* A process that has gone writes nothing any more. */
static bool is_inside(struct file_store *store, unsigned i, unsigned turn)
{
	struct fence_member *member = &store->fence.file->members[i];
	if (atomic_load(&member->inside[turn]) == 0)
		return false;
	return i == store->fence.member || !file_lock_is_free(store, FILE_LOCK_MEMBER + i);
}

static int wait_for_member(
	struct file_store *store, unsigned i, unsigned turn, uint64_t until_ns, uint64_t volume)
{
	const struct timespec pause = {.tv_nsec = PAUSE_NS};
	while (is_inside(store, i, turn)) {
		if (clock_now_ns() > until_ns) {
			log_error(ROOM,
				"volume %016llx is not taken away from process %llu: it has had "
				"writes under way for %u s; end it, if it hangs",
				(unsigned long long)volume,
				(unsigned long long)atomic_load(&store->fence.file->members[i].pid),
				(unsigned)(WAIT_NS / 1000000000u));
			return -ETIMEDOUT;
		}
		nanosleep(&pause, NULL);
	}
	return 0;
}

/*
 * Until all who went in before have left. Those who go in meanwhile are counted elsewhere, so it
 * comes to an end; twice, for there may be some of each from before.
 */
static int wait_for_all(struct file_store *store, uint64_t volume)
{
	struct fence_head *head = &store->fence.file->head;
	uint64_t until_ns = clock_now_ns() + WAIT_NS;
	int error = 0;
	for (unsigned round = 0; round < 2 && !error; round++) {
		unsigned turn = atomic_fetch_add(&head->turn, 1) & 1;
		for (unsigned i = 0; i < MEMBERS && !error; i++)
			error = wait_for_member(store, i, turn, until_ns, volume);
	}
	return error;
}

/* One level more. All of its space is taken before anybody looks there. */
static int grow(struct file_store *store)
{
	struct fence_head *head = &store->fence.file->head;
	unsigned levels = atomic_load(&head->levels) + 1;
	if (levels == LEVELS)
		return -ENOSPC;
	int fd = openat(store->root, NAME, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
	if (fd < 0)
		return -errno;
	int error = -posix_fallocate(fd, 0, (off_t)size_with(levels));
	if (!error && fsync(fd))
		error = -errno;
	close(fd);
	if (!error)
		atomic_store_explicit(&head->levels, levels, memory_order_release);
	return error;
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

/* The page of the place, and that of the head. */
static int sync_place(const struct fence_file *file, const struct fence_place *place)
{
	uintptr_t page = (uintptr_t)place & ~(uintptr_t)(XSEG_PAGE - 1);
	if (msync((void *)page, XSEG_PAGE, MS_SYNC) ||
		msync((void *)(uintptr_t)file, XSEG_PAGE, MS_SYNC))
		return -errno;
	return 0;
}

/*
 * Nobody's while we wait: killed in the middle, it is for the next one with that term to say
 * whose it is. What the one before has written and not made durable is made so, for whoever reads
 * it now may build on it.
 */
static int hand_over(
	struct file_store *store, struct fence_place *place, uint64_t volume, uint64_t term)
{
	struct fence_file *file = store->fence.file;
	atomic_store(&place->via, 0);
	atomic_store(&place->term, term);
	if (atomic_exchange(&place->volume, volume) != volume)
		atomic_store(&place->left, 1);
	atomic_fetch_add(&file->head.changes, 1);
	crash_point("blocker_file.fence.barred");
	if (!store->shared)
		return 0;
	int error = wait_for_all(store, volume);
	if (!error && !atomic_load(&place->left))
		error = syncfs(store->root) ? -errno : 0;
	return error;
}

static int set(struct file_store *store, uint64_t volume, uint64_t term, bool nobody)
{
	struct file_fence *fence = &store->fence;
	struct fence_place *place;
	int error = find_or_make(store, volume, &place);
	if (error)
		return error;
	bool known = atomic_load(&place->volume) == volume;
	uint64_t had = known ? atomic_load(&place->term) : 0, via = atomic_load(&place->via);
	if (known && term == had && via == fence->own && !nobody)
		return 0;
	if (known && (term < had || (term == had && via != 0 && via != fence->own)))
		return -ESTALE;
	if (!known || via != fence->own || nobody)
		error = hand_over(store, place, volume, term);
	if (error)
		return error;
	atomic_store(&place->term, term);
	atomic_store(&place->left, nobody);
	atomic_store(&place->via, nobody ? 0 : fence->own);
	atomic_fetch_add(&fence->file->head.changes, 1);
	crash_point("blocker_file.fence.set");
	return sync_place(fence->file, place);
}

int file_fence_set(struct file_store *store, uint64_t volume, uint64_t term, bool nobody)
{
	if (volume == 0 || term == 0)
		return -EINVAL;
	if (!store->fence.file)
		return store->shared ? store->fence.why : -EOPNOTSUPP;
	file_lock(store, FILE_LOCK_FENCE);
	int error = set(store, volume, term, nobody);
	file_unlock(store, FILE_LOCK_FENCE);
	return error;
}

int file_fence_left(struct file_store *store, uint64_t volume)
{
	struct file_fence *fence = &store->fence;
	if (!fence->file)
		return 0;
	file_lock(store, FILE_LOCK_FENCE);
	struct fence_place *place = find(fence, volume);
	if (place && atomic_load(&place->via) == fence->own)
		atomic_store(&place->left, 1);
	file_unlock(store, FILE_LOCK_FENCE);
	return 0;
}

void file_fence_forget(struct file_store *store, uint64_t volume)
{
	struct file_fence *fence = &store->fence;
	if (!fence->file)
		return;
	file_lock(store, FILE_LOCK_FENCE);
	struct fence_place *place = find(fence, volume);
	if (place) {
		atomic_store(&place->volume, 0);
		atomic_fetch_add(&fence->file->head.changes, 1);
	}
	file_unlock(store, FILE_LOCK_FENCE);
}
