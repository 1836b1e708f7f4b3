/* SPDX-License-Identifier: Apache-2.0 */
/* What is imported: a file, a device, a pipe, or an image that qemu-nbd reads. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tools/ctl/ctl_import.h"

static int source_fault(struct import *import, const char *what, int error)
{
	return fault_set(&import->ctl->fault, error == ENOENT ? FAULT_NOT_FOUND : FAULT_FAILED,
		import->path, NULL, "'%s' cannot be %s: %s", import->path, what, strerror(error));
}

bool ctl_import_is_raw(const struct import *import) { return !strcmp(import->format, "raw"); }

/* Formats that people name their files after. */
static const char *const named_formats[] = {
	"qcow2", "qcow", "vmdk", "vdi", "vhd", "vhdx", "vpc", "qed", NULL};

/* What the file's name says; its contents may be a guest's, and are not asked. */
static const char *format_of_name(const char *path)
{
	const char *dot = strrchr(path, '.');
	for (unsigned i = 0; dot && named_formats[i]; i++)
		if (!strcasecmp(dot + 1, named_formats[i]))
			return !strcmp(named_formats[i], "vhd") ? "vpc" : named_formats[i];
	return "raw";
}

static int format_choose(struct import *import, bool regular)
{
	const char *given = ctl_option_value(import->ctl, "format"),
		   *named = regular ? format_of_name(import->path) : "raw";
	if (!given && strcmp(named, "raw"))
		return fault_set(&import->ctl->fault, FAULT_USAGE, import->path,
			"say --format auto if it is what its name says, --format raw if its bytes "
			"shall be the disk",
			"'%s' has the name of a %s image", import->path, named);
	snprintf(import->format, sizeof(import->format), "%s",
		!given			? "raw"
		: strcmp(given, "auto") ? given
					: named);
	return 0;
}

static int source_format(struct import *import, bool regular)
{
	int rc = format_choose(import, regular);
	if (rc || ctl_import_is_raw(import))
		return rc;
	if (!regular)
		return fault_set(&import->ctl->fault, FAULT_USAGE, import->path, NULL,
			"--format %s: '%s' is no file", import->format, import->path);
	return ctl_volume_image_look(import->ctl, import->path, import->format,
		ctl_option_given(import->ctl, "allow-backing"), &import->source_size);
}

int ctl_import_source_open(struct import *import)
{
	struct stat st;
	import->fd = strcmp(import->path, "-") ? open(import->path, O_RDONLY | O_CLOEXEC)
					       : dup(STDIN_FILENO);
	if (import->fd < 0)
		return source_fault(import, "opened", errno);
	if (fstat(import->fd, &st))
		return source_fault(import, "read", errno);
	if (S_ISDIR(st.st_mode))
		return source_fault(import, "imported", EISDIR);
	int rc = source_format(import, S_ISREG(st.st_mode) && strcmp(import->path, "-"));
	if (rc || (!S_ISREG(st.st_mode) && !S_ISBLK(st.st_mode)))
		return rc;
	if (!ctl_import_is_raw(import)) {
		import->seekable = true;
		return 0;
	}
	off_t end = lseek(import->fd, 0, SEEK_END);
	if (end < 0 || lseek(import->fd, 0, SEEK_SET) < 0)
		return source_fault(import, "measured", errno);
	import->seekable = true;
	import->source_size = (uint64_t)end;
	posix_fadvise(import->fd, 0, 0, POSIX_FADV_SEQUENTIAL);
	return 0;
}

int ctl_import_source_size(struct import *import)
{
	struct ctl *ctl = import->ctl;
	uint64_t size = import->source_size;
	int rc = ctl_option_size(ctl, "size", &size);
	if (rc)
		return rc;
	if (!import->seekable && !ctl_option_given(ctl, "size"))
		return fault_set(&ctl->fault, FAULT_USAGE, import->path,
			"say how large the volume shall be, e.g. --size 10G",
			"the size of what comes in is not known beforehand");
	if (size < import->source_size)
		return fault_set(&ctl->fault, FAULT_USAGE, import->path, NULL,
			"--size: '%s' has %llu bytes, that is more", import->path,
			(unsigned long long)import->source_size);
	if (size == 0)
		return fault_set(&ctl->fault, FAULT_USAGE, import->path,
			"say how large the volume shall be with --size", "'%s' is empty",
			import->path);
	import->info.size = (size + XSEG_SECTOR - 1) / XSEG_SECTOR * XSEG_SECTOR;
	if (import->info.size != size)
		fprintf(stderr,
			"xsegctl: note: %llu bytes are rounded up to %llu, "
			"whole sectors of %u\n",
			(unsigned long long)size, (unsigned long long)import->info.size,
			XSEG_SECTOR);
	return 0;
}

bool ctl_import_source_data(struct import *import)
{
	if (!import->seekable)
		return true;
	if (!ctl_import_is_raw(import)) {
		import->at = ctl_volume_image_data(&import->image, import->at);
		return import->at < import->source_size;
	}
	off_t data = lseek(import->fd, (off_t)import->at, SEEK_DATA);
	if (data < 0 && errno == ENXIO) { /* only a hole is left */
		import->at = import->source_size;
		return false;
	}
	if (data > (off_t)import->at)
		import->at = (uint64_t)data / CTL_COPY_BLOCK * CTL_COPY_BLOCK;
	return import->at < import->source_size;
}

static int image_read(struct import *import, uint32_t room, uint32_t *got)
{
	uint64_t left = import->source_size - import->at;
	*got = left < room ? (uint32_t)left : room;
	int error =
		*got ? ctl_volume_image_read(&import->image, import->buffer, *got, import->at) : 0;
	memset(import->buffer + *got, 0, -*got % XSEG_SECTOR);
	return error ? source_fault(import, "read", -error) : 0;
}

int ctl_import_source_read(struct import *import, uint32_t *got)
{
	uint32_t room = import->plan.chunk - (uint32_t)(import->at % import->plan.chunk);
	*got = 0;
	if (!ctl_import_is_raw(import))
		return image_read(import, room, got);
	while (*got < room && !ctl_ask_interrupted()) {
		if (!import->seekable && !ctl_ask_interrupt_wait(import->fd, POLLIN))
			break;
		ssize_t n = import->seekable ? pread(import->fd, import->buffer + *got, room - *got,
						       (off_t)(import->at + *got))
					     : read(import->fd, import->buffer + *got, room - *got);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return source_fault(import, "read", errno);
		if (n == 0)
			break;
		*got += (uint32_t)n;
	}
	if (import->at + *got > import->info.size)
		return fault_set(&import->ctl->fault, FAULT_FAILED, import->path,
			"give a larger --size", "'%s' has more than %llu bytes", import->path,
			(unsigned long long)import->info.size);
	uint32_t whole = (*got + XSEG_SECTOR - 1) / XSEG_SECTOR * XSEG_SECTOR;
	memset(import->buffer + *got, 0, whole - *got);
	return 0;
}

int ctl_import_source_unchanged(struct import *import)
{
	if (!ctl_import_is_raw(import)) /* qemu-nbd would have said so */
		return 0;
	off_t end = import->seekable ? lseek(import->fd, 0, SEEK_END) : (off_t)import->at;
	if (import->at == (uint64_t)end && (!import->seekable || import->at == import->source_size))
		return 0;
	return fault_set(&import->ctl->fault, FAULT_FAILED, import->path, "import it again",
		"'%s' has changed its size from %llu to %lld while it was read", import->path,
		(unsigned long long)import->source_size, (long long)end);
}
