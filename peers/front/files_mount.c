/* SPDX-License-Identifier: Apache-2.0 */
/* The folder: mounted, taken over from a predecessor, unmounted; what a dead one has left goes. */
#include <base/crash.h>
#include <base/log.h>
#include <base/must.h>
#include <errno.h>
#include <fcntl.h>
#include <peer/notify.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include "peers/front/files.h"

static void kept_name(const struct files *files, const char *what, char name[FRONT_FDSTORE_LENGTH])
{
	snprintf(name, FRONT_FDSTORE_LENGTH, "%.24s/%s", files->peer->name, what);
}

/* --- unmounting -------------------------------------------------------------------- */

/* Not root: only a program that is may. */
static void run_fusermount(const char *path)
{
	char *argv[] = {"fusermount3", "-u", "-q", "-z", "--", (char *)path, NULL};
	char *environment[] = {"PATH=/usr/sbin:/usr/bin:/sbin:/bin", NULL};
	int status;
	pid_t pid;
	if (!posix_spawnp(&pid, argv[0], NULL, NULL, argv, environment))
		while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
			;
}

static void unmount(const char *path)
{
	if (umount2(path, MNT_DETACH) && errno == EPERM)
		run_fusermount(path);
}

/* What nobody answers for any more; a stat(2) might be answered out of the kernel's cache. */
static void unmount_dead(const char *path)
{
	struct statvfs st;
	if (statvfs(path, &st) && errno == ENOTCONN)
		unmount(path);
}

static void unmount_run(struct worker_item *item)
{
	const struct files *files = files_of(item->post.peer);
	if (fuse_session_exited(files->session)) {
		unmount_dead(files->options->path);
		return;
	}
	int fd = open(files->options->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd >= 0) {
		syncfs(fd);
		close(fd);
	}
	unmount(files->options->path);
}

static void unmount_done(struct worker_item *item)
{
	struct files *files = files_of(item->post.peer);
	files->unmounts = false;
	files->mounted = false;
	files->again = true;
}

void files_mount_end(struct files *files)
{
	files->unmounts = true;
	worker_run(files->peer, &files->unmounting, unmount_run, unmount_done);
}

/* --- mounting ---------------------------------------------------------------------- */

/* Without asking whoever serves it: that may be us. */
static bool is_mount(const char *path)
{
	struct statx st;
	return !statx(AT_FDCWD, path, AT_STATX_DONT_SYNC | AT_NO_AUTOMOUNT, STATX_TYPE, &st) &&
	       st.stx_attributes & STATX_ATTR_MOUNT_ROOT;
}

/* Somebody may have unmounted it while another name space still has it. */
bool files_mount_is_there(const struct files *files)
{
	return files->mounted && is_mount(files->options->path);
}

/* What a process that was killed has left there answers nobody. */
static int clear_path(const char *path, char *why, size_t size)
{
	struct stat st;
	unmount_dead(path);
	int error = stat(path, &st) ? -errno : 0;
	if (!error && !S_ISDIR(st.st_mode))
		error = -ENOTDIR;
	if (!error && is_mount(path))
		error = -EBUSY;
	if (error == -EBUSY)
		snprintf(why, size, "path=%s: something is mounted there already", path);
	else if (error)
		snprintf(why, size, "path=%s: %s", path, strerror(-error));
	return error;
}

static int new_memory(struct files *files)
{
	files->memory_fd = memfd_create("front_fuse", MFD_CLOEXEC);
	if (files->memory_fd < 0 || ftruncate(files->memory_fd, (off_t)FILES_MEMORY_SIZE))
		return -errno;
	return 0;
}

static int map_memory(struct files *files)
{
	struct stat st;
	if (fstat(files->memory_fd, &st) || (uint64_t)st.st_size != FILES_MEMORY_SIZE)
		return -EINVAL;
	void *map = mmap(
		NULL, FILES_MEMORY_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, files->memory_fd, 0);
	if (map == MAP_FAILED)
		return -errno;
	files->memory = map;
	return 0;
}

static void close_memory(struct files *files)
{
	if (files->memory)
		munmap(files->memory, FILES_MEMORY_SIZE);
	if (files->memory_fd >= 0)
		close(files->memory_fd);
	files->memory = NULL;
	files->memory_fd = -1;
}

/* A comma would begin another option. */
static void put_word(FILE *out, const char *text)
{
	for (; *text; text++) {
		if (strchr(",\\", *text))
			putc('\\', out);
		putc(*text, out);
	}
}

/* Who asks the kernel what is mounted sees which peer it is: skerry:SEGMENT/PEER, and the volume
   when there is one alone. */
static void put_options(const struct files *files, char *options, size_t size)
{
	const struct peer_list *volumes = &files->options->volumes;
	FILE *out = fmemopen(options, size, "w");
	must(out);
	/* others may come in if the files' rights say so */
	fprintf(out, "default_permissions,subtype=skerry%s,fsname=skerry:%s/%s",
		files->rights.mode & 077 ? ",allow_other" : "", peer_segment(files->peer)->name,
		files->peer->name);
	if (volumes->count == 1) {
		putc('/', out);
		put_word(out, volumes->item[0]);
	}
	must(fclose(out) == 0);
}

static struct fuse_session *new_session(struct files *files)
{
	char options[2 * VOLUME_NAME_LENGTH_MAX + 192];
	put_options(files, options, sizeof(options));
	char *argv[] = {"front_fuse", "-o", options, NULL};
	struct fuse_args args = FUSE_ARGS_INIT(3, argv);
	struct fuse_session *session =
		fuse_session_new(&args, &files_operations, sizeof(files_operations), files);
	fuse_opt_free_args(&args);
	return session;
}

void files_mount_keep(const struct files *files, const char *what, int fd)
{
	char name[FRONT_FDSTORE_LENGTH];
	kept_name(files, what, name);
	int error = notify_store_fd(name, fd);
	if (error && error != -ENOENT)
		log_warning(FILES_ROOM, "%s: '%s' will not outlive this process: %s",
			files->peer->name, files->options->path, strerror(-error));
	crash_point("front_fuse.mount.kept");
}

static int mount_new(struct files *files, char *why, size_t size)
{
	const char *path = files->options->path;
	int error = clear_path(path, why, size);
	if (error)
		return error;
	error = new_memory(files);
	error = error ? error : map_memory(files);
	if (error) {
		snprintf(why, size, "no memory for what is in flight: %s", strerror(-error));
		return error;
	}
	files->memory->magic = FILES_MAGIC;
	if (fuse_session_mount(files->session, path)) {
		snprintf(why, size,
			"path=%s cannot be mounted: as root, or with the program fusermount3 of "
			"Debian's package fuse3%s",
			path,
			files->rights.mode & 077 ? " and 'user_allow_other' in /etc/fuse.conf"
						 : "");
		return -EPERM;
	}
	crash_point("front_fuse.mount.mounted");
	files_mount_keep(files, "state", files->memory_fd);
	files_mount_keep(files, "device", fuse_session_fd(files->session));
	log_info(FILES_ROOM, "%s: mounted on %s", files->peer->name, path);
	return 0;
}

/* --- taking over ------------------------------------------------------------------- */

/* libfuse hears what was agreed; its answer comes too late for the kernel, which ignores it. */
static void agree_again(struct files *files)
{
	uint8_t copy[FILES_INIT_MAX];
	struct files_memory *memory = files->memory;
	struct fuse_buf buffer = {.mem = copy, .size = memory->init_length};
	if (!memory->init_length)
		return;
	memcpy(copy, memory->init, sizeof(copy));
	fuse_session_process_buf(files->session, &buffer);
}

int files_mount_take(const struct files *files, const char *what)
{
	char name[FRONT_FDSTORE_LENGTH];
	kept_name(files, what, name);
	return notify_take_fd(name);
}

void files_mount_drop(const struct files *files, const char *what)
{
	char name[FRONT_FDSTORE_LENGTH];
	kept_name(files, what, name);
	notify_drop_fd(name);
}

/* The connection; -ENOENT: there is nothing that could be taken over. */
static int take_over(struct files *files)
{
	int device = files_mount_take(files, "device");
	files->memory_fd = files_mount_take(files, "state");
	bool there = device >= 0 && files->memory_fd >= 0 && is_mount(files->options->path);
	int error = there ? map_memory(files) : -ENOENT;
	if (!error && (files->memory->magic != FILES_MAGIC ||
			      files->memory->init_length > FILES_INIT_MAX))
		error = -ENOENT;
	if (!error)
		return device;
	if (device >= 0)
		close(device);
	close_memory(files);
	files_mount_drop(files, "device");
	files_mount_drop(files, "state");
	return -ENOENT;
}

int files_mount_open(struct files *files, char *why, size_t size)
{
	files->session = new_session(files);
	if (!files->session) {
		snprintf(why, size, "libfuse makes no session");
		return -ENOMEM;
	}
	int fd = take_over(files);
	bool goes_on = fd >= 0;
	int error = goes_on ? 0 : mount_new(files, why, size);
	if (!error) {
		fd = goes_on ? fd : fuse_session_fd(files->session);
		error = files_device_open(files, fd, goes_on);
		if (error)
			snprintf(why, size,
				"no pipe for what is in flight: %s; see "
				"/proc/sys/fs/pipe-user-pages-soft and -hard",
				strerror(-error));
	}
	if (error) {
		files_mount_close(files);
		return error;
	}
	agree_again(files);
	fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
	/* memory that we need must not wait for what we have to write */
	prctl(PR_SET_IO_FLUSHER, 1, 0, 0, 0);
	files->mounted = true;
	return 0;
}

void files_mount_close(struct files *files)
{
	/* what has not been told to stop has failed to start: somebody will try again */
	bool leave = files->mounted && (notify_handover() || !files->stopping);
	if (files->session)
		fuse_session_destroy(files->session);
	close_memory(files);
	files_device_close(files, leave);
	if (!leave) {
		files_mount_drop(files, "device");
		files_mount_drop(files, "state");
	}
	files->session = NULL;
}
