/* SPDX-License-Identifier: Apache-2.0 */
/* A volume's memory and its book: two files beside the segment, which outlive this process. */
#include <base/crash.h>
#include <base/log.h>
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <linux/userfaultfd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "peers/front/regions.h"

static void volume_show(const struct regions *regions)
{
	peer_set(regions->peer, REGION_COUNT_RESIDENT, regions->resident * XSEG_PAGE);
	peer_set(regions->peer, REGION_COUNT_DIRTY, regions->dirty * XSEG_PAGE);
}

/* --- files -------------------------------------------------------------------------- */

static int volume_path(const struct regions *regions, const char *which, const char *kind,
	char path[PATH_LENGTH_MAX])
{
	char leaf[NAME_LENGTH_MAX + 40];
	snprintf(leaf, sizeof(leaf), "%s:%s.%s", regions->peer->name, which, kind);
	return path_region(path, peer_segment(regions->peer)->name, leaf);
}

static int volume_paths(const struct regions *regions, uint64_t id, char memory[PATH_LENGTH_MAX],
	char book[PATH_LENGTH_MAX])
{
	char which[20];
	snprintf(which, sizeof(which), "%016llx", (unsigned long long)id);
	int error = volume_path(regions, which, "memory", memory);
	return error ? error : volume_path(regions, which, "book", book);
}

struct region_volume *region_volume_find(const struct regions *regions, uint64_t id)
{
	struct region_volume *volume;
	TAILQ_FOREACH (volume, &regions->list, link)
		if (volume->book->volume == id)
			break;
	return volume;
}

void region_volume_forget(const struct regions *regions, uint64_t id)
{
	char memory[PATH_LENGTH_MAX], book[PATH_LENGTH_MAX];
	if (region_volume_find(regions, id) || volume_paths(regions, id, memory, book))
		return;
	unlink(book);
	unlink(memory);
}

static int volume_open_files(struct region_volume *volume)
{
	volume->memory_fd = path_open(volume->memory_path, O_RDWR | O_CREAT, 0600);
	if (volume->memory_fd < 0)
		return volume->memory_fd;
	volume->readers_fd = path_open(volume->memory_path, O_RDONLY, 0);
	if (volume->readers_fd < 0)
		return volume->readers_fd;
	/* held by each program that is given one of these, too: nobody removes the files */
	if (flock(volume->memory_fd, LOCK_SH | LOCK_NB) ||
		flock(volume->readers_fd, LOCK_SH | LOCK_NB))
		return -errno;
	volume->book_fd = path_open(volume->book_path, O_RDWR | O_CREAT, 0600);
	return volume->book_fd < 0 ? volume->book_fd : 0;
}

static void volume_close_inlet(struct region_volume *volume)
{
	if (volume->inlet)
		munmap(volume->inlet, volume->inlet_size);
	if (volume->inlet_fd >= 0)
		close(volume->inlet_fd);
	volume->inlet = NULL;
	volume->inlet_fd = -1;
}

/* write(2) would not do: a program that has not to ask us for a page which is there could see one
   that is half written. */
static int volume_open_inlet(struct region_volume *volume, uint64_t pages)
{
	size_t size = pages * XSEG_PAGE;
	void *map = mmap(NULL, size, PROT_NONE, MAP_SHARED | MAP_NORESERVE, volume->memory_fd, 0);
	if (map == MAP_FAILED)
		return -errno;
	int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | UFFD_USER_MODE_ONLY);
	struct uffdio_api api = {.api = UFFD_API, .features = UFFD_FEATURE_MISSING_SHMEM};
	struct uffdio_register range = {.range = {.start = (uintptr_t)map, .len = size},
		.mode = UFFDIO_REGISTER_MODE_MISSING};
	if (fd < 0 || ioctl(fd, UFFDIO_API, &api) || ioctl(fd, UFFDIO_REGISTER, &range)) {
		int error = -errno;
		munmap(map, size);
		if (fd >= 0)
			close(fd);
		return error;
	}
	volume_close_inlet(volume);
	volume->inlet = map;
	volume->inlet_size = size;
	volume->inlet_fd = fd;
	return 0;
}

/* So many pages: as large as the volume, which may have grown. On an error all is as it was. */
static int volume_map(struct region_volume *volume, uint64_t pages)
{
	size_t size = REGION_PAGES_AT + pages;
	if (ftruncate(volume->memory_fd, (off_t)(pages * XSEG_PAGE)) ||
		ftruncate(volume->book_fd, (off_t)size) ||
		fallocate(volume->book_fd, 0, 0, REGION_PAGES_AT))
		return -errno;
	void *book = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, volume->book_fd, 0);
	int error = book == MAP_FAILED ? -errno : volume_open_inlet(volume, pages);
	if (error) {
		if (book != MAP_FAILED)
			munmap(book, size);
		return error;
	}
	if (volume->book)
		munmap(volume->book, volume->book_size);
	volume->book = book;
	volume->book_size = size;
	volume->page = (_Atomic uint8_t *)book + REGION_PAGES_AT;
	return 0;
}

static void volume_unmap(struct region_volume *volume)
{
	if (volume->book)
		munmap(volume->book, volume->book_size);
	volume_close_inlet(volume);
	const int fds[] = {volume->memory_fd, volume->readers_fd, volume->book_fd};
	for (unsigned i = 0; i < 3; i++)
		if (fds[i] >= 0)
			close(fds[i]);
}

static bool volume_book_is_sound(const struct region_volume *volume, uint64_t id)
{
	const struct region_book *book = volume->book;
	return atomic_load(&book->magic) == REGION_BOOK_MAGIC &&
	       book->version == REGION_BOOK_VERSION && book->volume == id &&
	       book->low <= book->high && book->high <= volume->pages;
}

/* A book that a process did not come to finish belongs to memory that nobody has seen. */
static int volume_begin_book(struct region_volume *volume, uint64_t id)
{
	struct region_book *book = volume->book;
	if (volume_book_is_sound(volume, id))
		return 0;
	atomic_store(&book->magic, 0);
	if (ftruncate(volume->memory_fd, 0) ||
		ftruncate(volume->memory_fd, (off_t)(volume->pages * XSEG_PAGE)))
		return -errno;
	memset(book, 0, sizeof(*book));
	book->version = REGION_BOOK_VERSION;
	book->volume = id;
	atomic_store_explicit(&book->magic, REGION_BOOK_MAGIC, memory_order_release);
	return 0;
}

/* --- pages -------------------------------------------------------------------------- */

void region_volume_set(struct region_volume *volume, uint64_t page, unsigned state)
{
	struct regions *regions = volume->regions;
	unsigned was = region_state(volume, page);
	bool there = (was & (REGION_STATE | REGION_FILLING)) != 0;
	bool comes = (state & (REGION_STATE | REGION_FILLING)) != 0;
	bool dirty = (was & REGION_STATE) == REGION_DIRTY;
	bool dirties = (state & REGION_STATE) == REGION_DIRTY;
	atomic_store_explicit(&volume->page[page], (uint8_t)state, memory_order_release);
	volume->resident += (uint64_t)comes - (uint64_t)there;
	regions->resident += (uint64_t)comes - (uint64_t)there;
	volume->dirty += (uint64_t)dirties - (uint64_t)dirty;
	if (comes != there || dirty != dirties)
		volume_show(regions);
}

void region_volume_punch(const struct region_volume *volume, uint64_t page, uint32_t count)
{
	fallocate(volume->memory_fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
		(off_t)(page * XSEG_PAGE), (off_t)count * XSEG_PAGE);
}

static int volume_copy(struct region_volume *volume, uint64_t page, const void *from, size_t size)
{
	struct uffdio_copy copy = {.dst = (uintptr_t)volume->inlet + page * XSEG_PAGE,
		.src = (uintptr_t)from,
		.len = size,
		.mode = UFFDIO_COPY_MODE_DONTWAKE};
	while (copy.len) {
		if (ioctl(volume->inlet_fd, UFFDIO_COPY, &copy) == 0)
			return 0;
		int error = errno;
		uint64_t done = copy.copy > 0 ? (uint64_t)copy.copy : 0;
		copy.dst += done;
		copy.src += done;
		copy.len -= done;
		/* one that nobody has noted is none */
		if (error == EEXIST)
			region_volume_punch(
				volume, (copy.dst - (uintptr_t)volume->inlet) / XSEG_PAGE, 1);
		else if (error != EAGAIN && error != EINTR)
			return -error;
	}
	return 0;
}

int region_volume_bring(struct region_volume *volume, uint64_t page, const void *from, size_t size)
{
	uint8_t last[XSEG_PAGE];
	size_t whole = size / XSEG_PAGE * XSEG_PAGE;
	int error = volume_copy(volume, page, from, whole);
	if (error || whole == size)
		return error;
	memcpy(last, (const uint8_t *)from + whole, size - whole);
	memset(last + (size - whole), 0, XSEG_PAGE - (size - whole));
	return volume_copy(volume, page + whole / XSEG_PAGE, last, XSEG_PAGE);
}

/* --- what a predecessor has left ------------------------------------------------------- */

/* Where the file has pages from `page` on: [*page, *end). */
static bool volume_data(const struct region_volume *volume, uint64_t *page, uint64_t *end)
{
	off_t from = lseek(volume->memory_fd, (off_t)(*page * XSEG_PAGE), SEEK_DATA);
	off_t to = from < 0 ? -1 : lseek(volume->memory_fd, from, SEEK_HOLE);
	if (to < 0)
		return false;
	*page = (uint64_t)from / XSEG_PAGE;
	*end = ((uint64_t)to + XSEG_PAGE - 1) / XSEG_PAGE;
	return true;
}

/* There, and not in the book: it was being read, or it was on its way out. */
static void volume_adopt_page(struct region_volume *volume, uint64_t page)
{
	bool noted = page >= volume->low && page < volume->high;
	unsigned was = noted ? region_state(volume, page) : REGION_ABSENT;
	if (noted)
		atomic_store(&volume->page[page], REGION_ABSENT);
	if (was & REGION_STATE)
		region_volume_set(volume, page, was & (REGION_STATE | REGION_KEPT));
	else
		region_volume_punch(volume, page, 1);
}

static void volume_adopt(struct region_volume *volume)
{
	uint64_t page = 0, end, at = 0;
	volume->low = volume->book->low;
	volume->high = volume->book->high;
	for (; volume_data(volume, &page, &end); page = end) {
		for (; at < page; at++)
			if (at >= volume->low && at < volume->high)
				atomic_store(&volume->page[at], 0);
		for (; at < end; at++)
			volume_adopt_page(volume, at);
	}
	for (at = at > volume->low ? at : volume->low; at < volume->high; at++)
		atomic_store(&volume->page[at], 0);
}

/* --- life --------------------------------------------------------------------------- */

/* Of a volume that was made smaller the memory stays as it is: programs have mapped it. */
static int volume_grow(struct region_volume *volume, uint64_t size)
{
	struct stat st;
	if (fstat(volume->memory_fd, &st))
		return -errno;
	if (!volume->book && (uint64_t)st.st_size > size)
		size = (uint64_t)st.st_size;
	if (size <= volume->size)
		return 0;
	uint64_t pages = (size + XSEG_PAGE - 1) / XSEG_PAGE;
	int error = volume_map(volume, pages);
	if (error)
		return error;
	volume->size = size;
	volume->pages = pages;
	return 0;
}

int region_volume_open(
	struct regions *regions, uint64_t id, uint64_t size, struct region_volume **out)
{
	struct region_volume *volume = region_volume_find(regions, id);
	*out = volume;
	if (size > REGION_SIZE_MAX)
		return -EFBIG;
	if (volume)
		return volume_grow(volume, size);
	volume = calloc(1, sizeof(*volume));
	if (!volume)
		return -ENOMEM;
	volume->regions = regions;
	volume->memory_fd = volume->readers_fd = volume->book_fd = volume->inlet_fd = -1;
	TAILQ_INIT(&volume->attached);
	TAILQ_INIT(&volume->tasks);
	int error = volume_paths(regions, id, volume->memory_path, volume->book_path);
	error = error ? error : volume_open_files(volume);
	error = error ? error : volume_grow(volume, size);
	error = error ? error : volume_begin_book(volume, id);
	if (error) {
		volume_unmap(volume);
		free(volume);
		return error;
	}
	volume_adopt(volume);
	TAILQ_INSERT_TAIL(&regions->list, volume, link);
	region_order_load(volume);
	*out = volume;
	return 0;
}

int region_volume_admit(struct region_volume *volume, uint64_t first, uint64_t pages)
{
	bool none = volume->low == volume->high;
	uint64_t low = none || first < volume->low ? first : volume->low;
	uint64_t high = none || first + pages > volume->high ? first + pages : volume->high;
	if (low == volume->low && high == volume->high)
		return 0;
	if (fallocate(volume->book_fd, 0, (off_t)(REGION_PAGES_AT + low), (off_t)(high - low)))
		return -errno;
	volume->book->low = volume->low = low;
	volume->book->high = volume->high = high;
	return 0;
}

void region_volume_close(struct region_volume *volume, bool keep)
{
	struct regions *regions = volume->regions;
	must(TAILQ_EMPTY(&volume->attached) && !volume->fills && !volume->writes);
	TAILQ_REMOVE(&regions->list, volume, link);
	regions->resident -= volume->resident;
	regions->dirty -= volume->dirty;
	volume_show(regions);
	region_order_save(volume);
	if (!keep) {
		/* without its book it is nobody's */
		unlink(volume->book_path);
		unlink(volume->memory_path);
	}
	volume_unmap(volume);
	free(volume);
}

/* In which it was opened last; 0: not known, or never to be written to. */
static uint64_t volume_term_of(const char *path)
{
	struct region_book book;
	int fd = path_open(path, O_RDONLY, 0);
	ssize_t got = fd < 0 ? -1 : pread(fd, &book, sizeof(book), 0);
	if (fd >= 0)
		close(fd);
	bool sound = got == (ssize_t)sizeof(book) && atomic_load(&book.magic) == REGION_BOOK_MAGIC;
	return sound ? book.term : 0;
}

void region_volume_leftovers(
	struct regions *regions, void (*visit)(struct regions *regions, uint64_t id, uint64_t term))
{
	char pattern[PATH_LENGTH_MAX];
	glob_t found = {0};
	if (volume_path(regions, "????????????????", "book", pattern) ||
		glob(pattern, 0, NULL, &found))
		return;
	for (size_t i = 0; i < found.gl_pathc; i++) {
		const char *path = found.gl_pathv[i];
		char *end;
		/* 16 digits before ".book" */
		uint64_t id = strtoull(path + strlen(path) - 21, &end, 16);
		if (id && !strcmp(end, ".book"))
			visit(regions, id, volume_term_of(path));
	}
	globfree(&found);
}

/* --- programs that have it ---------------------------------------------------------------- */

/* Also after exec(2) it is the same process, and has nothing of it. Where we may not look it
   has. */
bool region_volume_is_mapped(const struct region_volume *volume, int pid)
{
	const char *name = strrchr(volume->memory_path, '/');
	char path[32], *line = NULL;
	size_t room = 0;
	bool mapped = false;
	snprintf(path, sizeof(path), "/proc/%d/maps", pid);
	FILE *file = fopen(path, "re");
	if (!file)
		return errno == EACCES || errno == EPERM;
	while (!mapped && getline(&line, &room, file) > 0)
		mapped = strstr(line, name) != NULL;
	free(line);
	fclose(file);
	return mapped;
}

static struct region_user *volume_user(const struct region_volume *volume, uint64_t token)
{
	for (unsigned i = 0; i < REGION_USERS; i++)
		if (volume->book->user[i].token == token)
			return &volume->book->user[i];
	return NULL;
}

int region_volume_add_user(struct region_volume *volume, uint64_t token, int pid)
{
	struct region_user *user = volume_user(volume, token);
	if (!user)
		user = volume_user(volume, 0);
	if (!user)
		return -EUSERS;
	user->pid = pid;
	__atomic_store_n(&user->token, token, __ATOMIC_RELEASE);
	volume->missing_ns = 0;
	return 0;
}

void region_volume_remove_user(struct region_volume *volume, uint64_t token)
{
	struct region_user *user = token ? volume_user(volume, token) : NULL;
	if (user)
		__atomic_store_n(&user->token, 0, __ATOMIC_RELEASE);
	volume->missing_ns = 0;
}

bool region_volume_has_user(const struct region_volume *volume, uint64_t token)
{
	return token && volume_user(volume, token);
}

static bool user_is_here(const struct region_volume *volume, uint64_t token)
{
	const struct region_attach *attach;
	TAILQ_FOREACH (attach, &volume->attached, volume_link)
		if (attach->token == token && attach->state == REGION_SERVING)
			return true;
	return false;
}

static bool volume_looks(struct region_volume *volume)
{
	bool missing = false;
	for (unsigned i = 0; i < REGION_USERS; i++) {
		struct region_user *user = &volume->book->user[i];
		if (!user->token || user_is_here(volume, user->token))
			continue;
		if (region_volume_is_mapped(volume, user->pid))
			missing = true;
		else
			region_volume_remove_user(volume, user->token);
	}
	return missing;
}

bool region_volume_misses(struct region_volume *volume)
{
	uint64_t now = peer_now_ns(volume->regions->peer);
	if (now - volume->missing_ns < REGION_LOOK_NS)
		return volume->missing;
	volume->missing = volume_looks(volume);
	volume->missing_ns = now;
	return volume->missing;
}
