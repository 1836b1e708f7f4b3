/* SPDX-License-Identifier: Apache-2.0 */
/* The memory's registration with userfaultfd. */
#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "xseg/region/region_priv.h"

/* Newer than the headers of Debian 12. */
#ifndef USERFAULTFD_IOC_NEW
#define USERFAULTFD_IOC_NEW _IO(0xAA, 0x00)
#endif

/*
 * Faults of the kernel itself, in read(2) say, may only be had by who is trusted: root, users of
 * /dev/userfaultfd, or everybody where vm.unprivileged_userfaultfd is 1.
 */
static int fault_new(bool *kernel_faults)
{
	*kernel_faults = true;
	int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK);
	if (fd < 0 && errno == EPERM) {
		int device = open("/dev/userfaultfd", O_RDWR | O_CLOEXEC);
		if (device >= 0) {
			fd = ioctl(device, USERFAULTFD_IOC_NEW, O_CLOEXEC | O_NONBLOCK);
			close(device);
		}
	}
	if (fd >= 0)
		return fd;
	*kernel_faults = false;
	fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | UFFD_USER_MODE_ONLY);
	return fd < 0 ? -errno : fd;
}

int region_fault_open(struct region *region)
{
	bool shared = !(region->flags & (REGION_READ_ONLY | REGION_PRIVATE));
	int fd = fault_new(&region->kernel_faults);
	if (fd < 0)
		return region_refuse(fd, "userfaultfd is refused: %s", strerror(-fd));
	struct uffdio_api api = {.api = UFFD_API,
		.features = UFFD_FEATURE_MISSING_SHMEM |
			    (shared ? UFFD_FEATURE_MINOR_SHMEM | UFFD_FEATURE_PAGEFAULT_FLAG_WP |
						    UFFD_FEATURE_WP_HUGETLBFS_SHMEM
				    : 0)};
	struct uffdio_register range = {
		.range = {.start = (uintptr_t)region->memory, .len = region->mapped},
		.mode = UFFDIO_REGISTER_MODE_MISSING |
			(shared ? UFFDIO_REGISTER_MODE_MINOR | UFFDIO_REGISTER_MODE_WP : 0)};
	if (ioctl(fd, UFFDIO_API, &api) || ioctl(fd, UFFDIO_REGISTER, &range)) {
		int error = -errno;
		close(fd);
		return region_refuse(error == -EINVAL ? -ENOSYS : error,
			"this kernel's userfaultfd cannot do it (Linux 6.4 can): %s",
			strerror(-error));
	}
	region->fault_fd = fd;
	return 0;
}

void region_fault_close(struct region *region)
{
	struct uffdio_range range = {.start = (uintptr_t)region->memory, .len = region->mapped};
	if (region->fault_fd < 0)
		return;
	ioctl(region->fault_fd, UFFDIO_UNREGISTER, &range);
	close(region->fault_fd);
	region->fault_fd = -1;
}
