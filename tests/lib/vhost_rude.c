/* SPDX-License-Identifier: Apache-2.0 */
/* Guests whose rings make no sense, and monitors whose messages do not. */
#include <base/must.h>
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/lib/vhost_check.h"

/* What lies in a ring that no driver would put there. */
struct nonsense {
	const char *name;
	void (*put)(struct driver *driver, struct vring_desc *desc);
	uint16_t head;
	bool split; /* there is no such thing in a packed ring */
};

static struct vring_desc plain(
	struct driver *driver, uint32_t length, uint16_t flags, uint16_t next)
{
	return (struct vring_desc){driver_guest(driver, driver->data), length, flags, next};
}

static void put_circle(struct driver *driver, struct vring_desc *desc)
{
	desc[0] = plain(driver, 16, VRING_DESC_F_NEXT, 1);
	desc[1] = plain(driver, 16, VRING_DESC_F_NEXT, 0);
}

static void put_outside(struct driver *driver, struct vring_desc *desc)
{
	desc[0] = plain(driver, 16, VRING_DESC_F_NEXT, 1);
	desc[1] = (struct vring_desc){0x1000, 4096, VRING_DESC_F_WRITE, 0};
}

static void put_over_the_end(struct driver *driver, struct vring_desc *desc)
{
	desc[0] = plain(driver, 16, VRING_DESC_F_NEXT, 1);
	desc[1] = plain(driver, UINT32_MAX, VRING_DESC_F_WRITE, 0);
}

static void put_turned_over(struct driver *driver, struct vring_desc *desc)
{
	desc[0] = plain(driver, 16, VRING_DESC_F_NEXT, 1);
	desc[1] = (struct vring_desc){UINT64_MAX - 15, 4096, VRING_DESC_F_WRITE, 0};
}

static void put_next_outside(struct driver *driver, struct vring_desc *desc)
{
	desc[0] = plain(driver, 16, VRING_DESC_F_NEXT, DRIVER_NUM);
}

static void put_no_status(struct driver *driver, struct vring_desc *desc)
{
	desc[0] = plain(driver, 4096, 0, 0);
}

static void put_short_header(struct driver *driver, struct vring_desc *desc)
{
	desc[0] = plain(driver, 8, VRING_DESC_F_NEXT, 1);
	desc[1] = plain(driver, 1, VRING_DESC_F_WRITE, 0);
}

static void put_mixed(struct driver *driver, struct vring_desc *desc)
{
	desc[0] = plain(driver, 16, VRING_DESC_F_WRITE | VRING_DESC_F_NEXT, 1);
	desc[1] = plain(driver, 16, 0, 0);
}

static struct vring_desc indirect(struct driver *driver, uint32_t length, uint16_t flags)
{
	return plain(driver, length, (uint16_t)(VRING_DESC_F_INDIRECT | flags), 1);
}

static void put_nested(struct driver *driver, struct vring_desc *desc)
{
	((struct vring_desc *)driver->data)[0] = indirect(driver, 32, 0);
	desc[0] = indirect(driver, 32, 0);
}

static void put_part_of_table(struct driver *driver, struct vring_desc *desc)
{
	desc[0] = indirect(driver, 24, 0);
}

static void put_no_table(struct driver *driver, struct vring_desc *desc)
{
	desc[0] = indirect(driver, 0, 0);
}

static void put_table_outside(struct driver *driver, struct vring_desc *desc)
{
	(void)driver;
	desc[0] = (struct vring_desc){0x1000, 32, VRING_DESC_F_INDIRECT, 0};
}

static void put_table_and_more(struct driver *driver, struct vring_desc *desc)
{
	desc[0] = indirect(driver, 32, VRING_DESC_F_NEXT);
}

/* More pieces than one request may have. */
static void put_many(struct driver *driver, struct vring_desc *desc)
{
	struct vring_desc *table = (void *)driver->data;
	for (uint16_t i = 0; i < 4000; i++)
		table[i] = plain(driver, 16, VRING_DESC_F_NEXT, (uint16_t)(i + 1));
	desc[0] = indirect(driver, 4000 * sizeof(*table), 0);
}

static void put_nothing(struct driver *driver, struct vring_desc *desc)
{
	(void)driver;
	(void)desc;
}

static void put_a_thousand(struct driver *driver, struct vring_desc *desc)
{
	(void)desc;
	driver->queue[0].avail_at += 1000;
}

static const struct nonsense nonsenses[] = {
	{"descriptors in a circle", put_circle, 0, false},
	{"data outside of memory", put_outside, 0, false},
	{"data over the end of memory", put_over_the_end, 0, false},
	{"data where numbers turn over", put_turned_over, 0, false},
	{"a next one that is none", put_next_outside, 0, true},
	{"no room for a status", put_no_status, 0, false},
	{"half a header", put_short_header, 0, false},
	{"what is read behind what is written", put_mixed, 0, false},
	{"a table in a table", put_nested, 0, false},
	{"a part of a table", put_part_of_table, 0, false},
	{"an empty table", put_no_table, 0, false},
	{"a table outside of memory", put_table_outside, 0, false},
	{"a table and more", put_table_and_more, 0, false},
	{"4000 pieces", put_many, 0, false},
	{"a head that is none", put_nothing, 40000, true},
	{"a thousand requests in a ring of 64", put_a_thousand, 0, true},
};

static bool serves(const char *socket)
{
	struct driver driver;
	if (!check_open(&driver, socket, (struct driver_config){0}))
		return false;
	bool good = check_writes_and_reads(&driver, 0, 8, 4096);
	driver_close(&driver);
	return good;
}

/* The ring is given up, with nothing in it answered; its other ring is served, as is everybody. */
static bool is_given_up(struct driver *driver)
{
	uint16_t head;
	uint32_t length;
	return driver_is_told(driver, 0) && driver_poll(driver, 0, &head, &length) == -EAGAIN &&
	       check_writes_and_reads(driver, 1, 8, 4096);
}

static void rude_ring(const char *socket, const struct nonsense *nonsense)
{
	struct driver driver;
	bool good = check_open(&driver, socket, (struct driver_config){.queues = 2});
	if (good && nonsense->split && driver_is_packed(&driver)) {
		driver_close(&driver);
		return;
	}
	if (good) {
		nonsense->put(&driver, driver.queue[0].desc);
		driver_offer(&driver, 0, nonsense->head);
		driver_kick(&driver, 0);
		good = is_given_up(&driver);
	}
	driver_close(&driver);
	check_law(nonsense->name, good && serves(socket));
}

static bool refuses(
	const char *socket, uint32_t request, const void *payload, uint32_t size, int fd)
{
	struct driver driver;
	bool good = check_open(&driver, socket, (struct driver_config){.quiet = true}) &&
		    driver_tell(&driver, request, payload, size, fd) != 0;
	driver_close(&driver);
	return good && serves(socket);
}

static void rude_messages(const char *socket)
{
	const struct {
		uint32_t count, padding;
		struct vhost_wire_region region;
	} none = {1, 0, {0, 4096, 0, 0}}, many = {200, 0, {0, 4096, 0, 0}};
	int small = memfd_create("small", MFD_CLOEXEC);
	must(small >= 0 && ftruncate(small, 4096) == 0);
	const struct {
		uint64_t padding;
		struct vhost_wire_region region;
	} beyond = {0, {1ull << 40, 1u << 20, 1ull << 40, 0}},
	  over = {0, {UINT64_MAX - 10, 4096, 0, 0}}, inside = {0, {DRIVER_GUEST, 4096, 0, 0}};
	const uint32_t odd[2] = {0, 3}, far[2] = {200, 64}, large[2] = {0, 65536};
	const uint64_t address[5] = {0, 1, 2, 3, 4};
	const union vhost_payload region = {.inflight = {1u << 20, 0, 60000, 60000}};
	const union vhost_payload config = {.config = {0, 4000, 0, {0}}};
	check_law("memory without a descriptor",
		refuses(socket, VHOST_SET_MEM_TABLE, &none, sizeof(none), -1));
	check_law("more memory than it says",
		refuses(socket, VHOST_SET_MEM_TABLE, &many, sizeof(many), small));
	check_law("memory that is not in the file",
		refuses(socket, VHOST_ADD_MEM_REG, &beyond, sizeof(beyond), small));
	check_law("memory over the end of all",
		refuses(socket, VHOST_ADD_MEM_REG, &over, sizeof(over), small));
	check_law("memory that is there already",
		refuses(socket, VHOST_ADD_MEM_REG, &inside, sizeof(inside), small));
	check_law("a ring of 3", refuses(socket, VHOST_SET_VRING_NUM, odd, sizeof(odd), -1));
	check_law(
		"a ring of 65536", refuses(socket, VHOST_SET_VRING_NUM, large, sizeof(large), -1));
	check_law("ring 200", refuses(socket, VHOST_SET_VRING_NUM, far, sizeof(far), -1));
	check_law("half a message", refuses(socket, VHOST_SET_VRING_ADDR, address, 16, -1));
	check_law("an in-flight region of the wrong size",
		refuses(socket, VHOST_SET_INFLIGHT_FD, &region, VHOST_INFLIGHT_SIZE, small));
	check_law("a configuration of 4000 bytes",
		refuses(socket, VHOST_SET_CONFIG, &config, VHOST_CONFIG_HEADER, -1));
	check_law("features that nobody has",
		refuses(socket, VHOST_SET_FEATURES, &(uint64_t){UINT64_MAX}, 8, -1));
	check_law("a message that nobody knows", refuses(socket, 4711, "", 0, -1));
	close(small);
}

/* While the rings are served. */
static void rude_while_serving(const char *socket)
{
	struct driver driver;
	uint16_t head;
	int small = memfd_create("small", MFD_CLOEXEC);
	must(small >= 0 && ftruncate(small, 1 << 20) == 0);
	const struct {
		uint32_t count, padding;
		struct vhost_wire_region region;
	} other = {1, 0, {1ull << 40, 1u << 20, 1ull << 41, 0}};
	union vhost_payload region = {.inflight = {0, 0, DRIVER_QUEUES, DRIVER_NUM}};
	bool good = check_open(&driver, socket, (struct driver_config){.queues = 2});
	region.inflight.size = driver.inflight_size;
	check_law("another in-flight region",
		good &&
			driver_tell(&driver, VHOST_SET_INFLIGHT_FD, &region, VHOST_INFLIGHT_SIZE,
				driver.inflight_fd) != 0 &&
			check_writes_and_reads(&driver, 0, 8, 4096));
	for (unsigned i = 0; good && i < DRIVER_NUM; i++) {
		struct iovec iov = {driver.data + i * 65536ull, 65536};
		must(driver_submit(&driver, i % 2, VIRTIO_BLK_T_IN, i * 128, &iov, 1, &head) == 0);
	}
	check_law("memory is taken away under what is in flight",
		good &&
			driver_tell(&driver, VHOST_SET_MEM_TABLE, &other, sizeof(other), small) !=
				0 &&
			serves(socket));
	driver_close(&driver);
	close(small);
}

static bool hung_up(const struct driver *driver)
{
	struct pollfd fd = {driver->fd, POLLIN, 0};
	char byte;
	return poll(&fd, 1, 60000) == 1 && read(driver->fd, &byte, 1) <= 0;
}

/* Another machine of the same process does not notice, and nothing of it is written. */
static void rude_cut(const char *socket, const char *name, bool rings)
{
	struct driver driver, other;
	uint16_t head;
	bool good = check_open(&other, socket, (struct driver_config){.queues = 1}) &&
		    check_writes_and_reads(&other, 0, 8, 65536) &&
		    check_open(&driver, socket, (struct driver_config){.queues = 1}) &&
		    check_writes_and_reads(&driver, 0, 1024, 4096);
	if (good) {
		struct iovec iov = {driver.data, 65536};
		off_t data = driver.data - driver.memory;
		must(ftruncate(driver.memory_fd, rings ? 0 : data) == 0);
		if (!rings)
			must(driver_submit(&driver, 0, VIRTIO_BLK_T_OUT, 8, &iov, 1, &head) == 0);
		driver_kick(&driver, 0);
		good = hung_up(&driver);
		driver_close(&driver);
	}
	uint8_t *back = other.data + CHECK_MEMORY / 2;
	good = good && driver_do(&other, 0, VIRTIO_BLK_T_IN, 8, back, 65536) == 0 &&
	       check_has_pattern(back, 65536, 9);
	driver_close(&other);
	check_law(name, good && serves(socket));
}

static void rude_bytes(const char *socket)
{
	struct driver driver;
	uint64_t noise[64];
	unsigned good = 0;
	for (unsigned i = 0; i < 50; i++) {
		if (!check_open(&driver, socket, (struct driver_config){.quiet = true}))
			break;
		check_pattern(noise, sizeof(noise), i);
		if (i % 2) /* a sound header before it */
			memcpy(noise, &(struct vhost_header){1 + i % 40, VHOST_VERSION, 64 + i},
				12);
		if (write(driver.fd, noise, 12 + i * 10) > 0)
			good++;
		driver_close(&driver);
	}
	check_law("noise", good == 50 && serves(socket));
}

int check_rude(const char *socket)
{
	for (size_t i = 0; i < sizeof(nonsenses) / sizeof(nonsenses[0]); i++)
		rude_ring(socket, &nonsenses[i]);
	rude_messages(socket);
	rude_while_serving(socket);
	rude_cut(socket, "memory that is cut off under data", false);
	rude_cut(socket, "memory that is cut off under rings", true);
	rude_bytes(socket);
	return check_end();
}
