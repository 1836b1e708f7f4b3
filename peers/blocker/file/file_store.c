/* SPDX-License-Identifier: Apache-2.0 */
/* The folder as a whole: made, recognised, locked, tidied, left. */
#include <base/crash.h>
#include <base/log.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "peers/blocker/file/file_disk.h"
#include "peers/blocker/file/file_home.h"

#define ROOM "blocker_file"
#define FORMAT_NAME "skerry blocker_file "
#define FORMAT FORMAT_NAME "1\n"
#define JOIN_TRIES 500u /* each of 20 ms */

/* Where the sentence goes that says why a folder will not do. */
struct reason {
	char *text;
	size_t size;
	const char *dir;
};

__attribute__((format(printf, 3, 4))) static int refuse(
	const struct reason *why, int error, const char *format, ...)
{
	int used = snprintf(why->text, why->size, "folder '%s' ", why->dir);
	va_list args;
	va_start(args, format);
	if (used >= 0 && (size_t)used < why->size)
		vsnprintf(why->text + used, why->size - (size_t)used, format, args);
	va_end(args);
	return error;
}

/* --- recognising it -------------------------------------------------------------- */

/* The whole of a small file, with a NUL behind it: its size, or -errno. */
static int read_small(int root, const char *path, char *out, size_t size)
{
	int fd = openat(root, path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	if (fd < 0)
		return -errno;
	ssize_t got = read(fd, out, size - 1);
	int error = got < 0 ? -errno : 0;
	close(fd);
	if (error)
		return error;
	out[got] = 0;
	return (int)got;
}

/*
 * It is known what must be here: a folder that is missing, empty or another store is not to be
 * served, nor changed.
 */
static int check_home(const char *expect, const struct reason *why)
{
	char identity[HOME_IDENTITY] = "";
	int root = open(why->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int error = root < 0 ? -errno : file_home_read(root, identity);
	if (root >= 0)
		close(root);
	if (error && error != -ENOENT)
		return refuse(why, error, "cannot be read: %s", strerror(-error));
	if (!error && strcmp(identity, expect) == 0)
		return 0;
	return refuse(why, -ESTALE,
		"is not the store that this peer has served in this segment; mount that one, or "
		"stop the peer before it is given another");
}

/* What may lie in a folder that we have not finished making. */
static bool name_is_harmless(const char *name)
{
	static const char *const names[] = {
		".", "..", "lost+found", "lock", "tmp", "objects", "records", "identity", "fence"};
	for (size_t i = 0; i < countof(names); i++)
		if (strcmp(name, names[i]) == 0)
			return true;
	return false;
}

/* 0, or -ENOTEMPTY. */
static int check_empty(int root)
{
	int fd = openat(root, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *folder = fd < 0 ? NULL : fdopendir(fd);
	if (!folder) {
		int error = -errno;
		if (fd >= 0)
			close(fd);
		return error;
	}
	int error = 0;
	const struct dirent *entry;
	while (!error && (entry = readdir(folder)))
		if (!name_is_harmless(entry->d_name))
			error = -ENOTEMPTY;
	closedir(folder);
	return error;
}

/* *made: it holds no store yet. */
static int check_format(int root, bool *made, const struct reason *why)
{
	char text[64];
	int got = read_small(root, "format", text, sizeof(text));
	*made = got == -ENOENT;
	if (got == -ENOENT) {
		int error = check_empty(root);
		if (error == -ENOTEMPTY)
			return refuse(why, error,
				"is not empty and holds no store; name an empty or a new one");
		return error ? refuse(why, error, "cannot be read: %s", strerror(-error)) : 0;
	}
	if (got < 0)
		return refuse(why, got, "cannot be read: %s", strerror(-got));
	if (strcmp(text, FORMAT) == 0)
		return 0;
	text[strcspn(text, "\n")] = 0;
	if (strncmp(text, FORMAT_NAME, strlen(FORMAT_NAME)) == 0)
		return refuse(why, -EPROTO, "has format version %s, this program knows 1",
			text + strlen(FORMAT_NAME));
	return refuse(why, -EILSEQ, "has a file 'format' that is not a store's");
}

/* --- making it ---------------------------------------------------------------------- */

static int write_format(int root)
{
	int fd = openat(root, "tmp/format", O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	if (fd < 0)
		return -errno;
	ssize_t put = write(fd, FORMAT, strlen(FORMAT));
	int error = put < 0 ? -errno : put != (ssize_t)strlen(FORMAT) ? -ENOSPC : 0;
	if (!error && fsync(fd))
		error = -errno;
	close(fd);
	if (!error && renameat(root, "tmp/format", root, "format"))
		error = -errno;
	return error;
}

/* A copy of a store may have lost its empty folders. */
static int make_folders(int root)
{
	static const char *const folders[] = {"tmp", "objects", "records"};
	bool made = false;
	for (size_t i = 0; i < countof(folders); i++) {
		if (mkdirat(root, folders[i], 0700) == 0)
			made = true;
		else if (errno != EEXIST)
			return -errno;
	}
	return made && fsync(root) ? -errno : 0;
}

/* The format file comes last: a folder without one is made again. */
static int make_store(int root, bool fresh, const struct reason *why)
{
	int error = make_folders(root);
	if (!error && fresh)
		error = write_format(root);
	if (!error && fresh && fsync(root))
		error = -errno;
	return error ? refuse(why, error, "cannot be made a store: %s", strerror(-error)) : 0;
}

/* The name of a folder just made is in the one above. */
static int sync_parent(const char *dir)
{
	char *path = NULL;
	if (asprintf(&path, "%s/..", dir) < 0)
		return -ENOMEM;
	int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	free(path);
	if (fd < 0)
		return -errno;
	int error = fsync(fd) ? -errno : 0;
	close(fd);
	return error;
}

static int open_root(const char *dir, int *root, const struct reason *why)
{
	bool made = mkdir(dir, 0700) == 0;
	if (!made && errno == ENOENT)
		return refuse(why, -ENOENT, "cannot be made: the folder above it does not exist");
	if (!made && errno != EEXIST)
		return refuse(why, -errno, "cannot be made: %s", strerror(errno));
	*root = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (*root < 0 && errno == ENOTDIR)
		return refuse(why, -ENOTDIR, "is not a folder");
	if (*root < 0)
		return refuse(why, -errno, "cannot be opened: %s", strerror(errno));
	int error = made ? sync_parent(dir) : 0;
	return error ? refuse(why, error, "cannot be made durable: %s", strerror(-error)) : 0;
}

/* --- one process at a time --------------------------------------------------------------- */

static int refuse_locked(int root, bool shared, const struct reason *why)
{
	char text[32];
	int got = read_small(root, "lock", text, sizeof(text));
	long pid = got > 0 ? strtol(text, NULL, 10) : 0;
	const char *hint = shared ? ", which does not share it" : "";
	if (pid > 0)
		return refuse(why, -EBUSY, "is served by process %ld already%s", pid, hint);
	return refuse(why, -EBUSY, "is served by another process already%s", hint);
}

/* Who is the first of those that share it has it alone until all is tidy. */
static int lock_shared(int lock, bool *alone)
{
	const struct timespec pause = {.tv_nsec = 20000000};
	int error = -EBUSY;
	for (unsigned tries = 0; tries < JOIN_TRIES && error == -EBUSY; tries++) {
		*alone = flock(lock, LOCK_EX | LOCK_NB) == 0;
		if (*alone || flock(lock, LOCK_SH | LOCK_NB) == 0)
			return 0;
		error = errno == EWOULDBLOCK ? -EBUSY : -errno;
		nanosleep(&pause, NULL);
	}
	return error;
}

static int lock_alone(int lock, bool *alone)
{
	*alone = true;
	if (flock(lock, LOCK_EX | LOCK_NB) == 0)
		return 0;
	return errno == EWOULDBLOCK ? -EBUSY : -errno;
}

static int take_lock(int root, int *lock, bool shared, bool *alone, const struct reason *why)
{
	*lock = openat(root, "lock", O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (*lock < 0)
		return refuse(why, -errno, "cannot be written to: %s", strerror(errno));
	int error = shared ? lock_shared(*lock, alone) : lock_alone(*lock, alone);
	if (error == -EBUSY)
		return refuse_locked(root, shared, why);
	if (error)
		return refuse(why, error, "cannot be locked: %s", strerror(-error));
	/* who has it, for people: a disk without space can do without */
	char text[32];
	int length = snprintf(text, sizeof(text), "%ld\n", (long)getpid());
	if (ftruncate(*lock, 0) || pwrite(*lock, text, (size_t)length, 0) < 0)
		error = errno == ENOSPC || errno == EDQUOT ? 0 : -errno;
	return error ? refuse(why, error, "cannot be written to: %s", strerror(-error)) : 0;
}

/* --- after whoever was here before --------------------------------------------------------- */

/* Nothing in tmp/ has ever been promised to anybody. */
static int empty_tmp(int root)
{
	int fd = openat(root, "tmp", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *folder = fd < 0 ? NULL : fdopendir(fd);
	if (!folder) {
		int error = -errno;
		if (fd >= 0)
			close(fd);
		return error;
	}
	int error = 0;
	const struct dirent *entry;
	while (!error && (entry = readdir(folder)))
		if (entry->d_name[0] != '.' && unlinkat(fd, entry->d_name, 0))
			error = -errno;
	closedir(folder);
	return error;
}

/*
 * A process that was killed may have completed writes that are not durable yet; the flush that
 * covers them will come to us, who know nothing of them. A mark says that it was not killed.
 */
static int look_for_mark(int root, bool *killed)
{
	*killed = unlinkat(root, "clean", 0) != 0;
	return *killed && errno != ENOENT ? -errno : 0;
}

static int settle(int root, bool made, bool *killed, const struct reason *why)
{
	int error = make_store(root, made, why);
	if (error)
		return error;
	error = empty_tmp(root);
	if (error)
		return refuse(why, error, "cannot be tidied: %s", strerror(-error));
	*killed = false;
	crash_point("blocker_file.start.tidied");
	error = made ? 0 : look_for_mark(root, killed);
	return error ? refuse(why, error, "cannot be written to: %s", strerror(-error)) : 0;
}

static void store_free(struct file_store *store, bool last)
{
	file_fence_close(store, last);
	if (store->lock >= 0)
		close(store->lock);
	if (store->root >= 0)
		close(store->root);
	for (unsigned i = 0; i < FILE_LOCKS; i++)
		pthread_mutex_destroy(&store->mutex[i]);
	pthread_mutex_destroy(&store->inheritance);
	free(store->dir);
}

static int refuse_shared(int error, const struct reason *why)
{
	if (error == -EXDEV)
		return refuse(why, error,
			"is served by processes of another container: they count their writes in a "
			"folder of segments that we do not see; give all of them the same "
			"/dev/shm");
	return refuse(why, error, "cannot be shared: its file 'fence' %s: %s",
		error == -EILSEQ ? "is not one" : "cannot be used", strerror(-error));
}

/* What is not shared can do without, be it full or read-only. Others may come from here on. */
static int open_fence(struct file_store *store, uint64_t own, bool alone, const struct reason *why)
{
	int error = file_fence_open(store, own, alone);
	if (error && store->shared)
		return refuse_shared(error, why);
	if (error)
		log_warning(ROOM, "folder '%s': nobody can be kept from writing to it: %s",
			store->dir, strerror(-error));
	if (store->shared && alone && flock(store->lock, LOCK_SH | LOCK_NB))
		return refuse(why, -EBUSY, "was locked by another process meanwhile");
	return 0;
}

int file_store_open(
	struct file_store *store, const struct file_ask *ask, char *why, size_t why_size)
{
	const struct reason reason = {why, why_size, ask->dir};
	bool made = false, killed = true, alone = true;
	store->root = store->lock = store->fence.fd = -1;
	store->shared = ask->shared;
	int error = ask->expect ? check_home(ask->expect, &reason) : 0;
	error = error ? error : open_root(ask->dir, &store->root, &reason);
	error = error ? error : check_format(store->root, &made, &reason);
	error = error ? error : take_lock(store->root, &store->lock, ask->shared, &alone, &reason);
	if (!error && made && !alone) /* another has made it meanwhile */
		error = check_format(store->root, &made, &reason);
	if (!error && alone)
		error = settle(store->root, made, &killed, &reason);
	store->dir = error ? NULL : strdup(ask->dir);
	if (!error && !store->dir)
		error = refuse(&reason, -ENOMEM, "cannot be opened: out of memory");
	for (unsigned i = 0; i < FILE_LOCKS; i++)
		must(pthread_mutex_init(&store->mutex[i], NULL) == 0);
	must(pthread_mutex_init(&store->inheritance, NULL) == 0);
	error = error ? error : open_fence(store, ask->own, alone, &reason);
	store->records_owed = killed;
	atomic_store(&store->owes, killed);
	if (error)
		store_free(store, false);
	return error;
}

/* Nobody else serves it, nor begins to until we have gone. */
static bool is_last(const struct file_store *store)
{
	return !store->shared || flock(store->lock, LOCK_EX | LOCK_NB) == 0;
}

/*
 * Of those that share it the last one marks it; what one of the others has left when it was killed
 * is made durable before.
 */
static bool may_mark(struct file_store *store)
{
	if (file_store_owes(store) || !file_store_alive(store))
		return false;
	return !store->shared || syncfs(store->root) == 0;
}

/* The mark need not be durable: after a crash of the machine the disk is all there is. */
void file_store_close(struct file_store *store, bool clean)
{
	bool last = is_last(store);
	if (clean && last && may_mark(store)) {
		int fd = openat(store->root, "clean", O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
		if (fd >= 0)
			close(fd);
		else
			log_warning(ROOM, "folder '%s': no mark that it was left clean: %s",
				store->dir, strerror(errno));
	}
	store_free(store, last);
}

int file_store_inherit(struct file_store *store)
{
	if (!atomic_load(&store->owes))
		return atomic_load(&store->inherit_error);
	must(pthread_mutex_lock(&store->inheritance) == 0);
	if (atomic_load(&store->owes)) {
		int error = syncfs(store->root) ? -errno : 0;
		if (error)
			log_error(ROOM,
				"folder '%s': what a killed process wrote cannot be made durable: "
				"%s",
				store->dir, strerror(-error));
		/* the second time Linux would say yes, though nothing was saved */
		atomic_store(&store->inherit_error, error);
		atomic_store(&store->owes, false);
	}
	must(pthread_mutex_unlock(&store->inheritance) == 0);
	return atomic_load(&store->inherit_error);
}

bool file_store_alive(const struct file_store *store)
{
	struct stat s;
	return fstat(store->lock, &s) == 0 && s.st_nlink > 0;
}

int file_store_sync(const struct file_store *store, const char *path)
{
	int fd = openat(store->root, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	int error;
	do
		error = fsync(fd) ? -errno : 0;
	while (error == -EINTR);
	close(fd);
	return error;
}
