/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A vhost-user-blk backend, as a driver meets it:
 *
 *   vhost_check laws SOCKET              TAP: what virtio promises
 *   vhost_check rude SOCKET              TAP: guests and monitors that mean no good
 *   vhost_check moves SOCKET             TAP: what a machine that is moved needs
 *   vhost_check verify SOCKET SECONDS    load, checked, over any number of the backend's deaths;
 *                                      says "started"; SIGUSR1 ends it sooner
 *   vhost_check noted SOCKET             a read is noted in the in-flight region; see there
 *   vhost_check resized SOCKET BYTES     waits for the news that the disk has that size
 *   vhost_check load SOCKET read|write SIZE DEPTH MS    at random; MS 0: all, in order;
 *                                      "OPERATIONS/S P50_US KICKS", the last for each operation
 *   vhost_check status SOCKET TYPE SECTOR LENGTH        one request: its status, a number
 *   vhost_check writes SOCKET COUNT 0|1  one after the other; 0: with its write cache turned off
 *
 * --packed before all that: over packed rings.
 */
#include "tests/lib/vhost_check.h"

#include <base/clock.h>
#include <base/hash.h>
#include <base/must.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define SECTOR 512u

static unsigned laws, broken;
static bool packed; /* rings */

void check_law(const char *name, bool holds)
{
	printf("%sok %u - %s\n", holds ? "" : "not ", ++laws, name);
	fflush(stdout);
	broken += !holds;
}

int check_end(void)
{
	printf("1..%u\n", laws);
	return broken ? 1 : 0;
}

void check_pattern(void *data, uint64_t length, uint64_t seed)
{
	for (uint64_t i = 0; i < length / 8; i++)
		((uint64_t *)data)[i] = hash_u64(seed * 1000003 + i);
}

bool check_has_pattern(const void *data, uint64_t length, uint64_t seed)
{
	for (uint64_t i = 0; i < length / 8; i++)
		if (((const uint64_t *)data)[i] != hash_u64(seed * 1000003 + i))
			return false;
	return true;
}

static bool is_zero(const uint8_t *data, uint64_t length)
{
	for (uint64_t i = 0; i < length; i++)
		if (data[i])
			return false;
	return true;
}

bool check_open(struct driver *driver, const char *socket, struct driver_config config)
{
	config.socket = socket;
	config.queues = config.queues ? config.queues : 1;
	config.memory = CHECK_MEMORY;
	config.packed = packed;
	int error = driver_open(driver, &config);
	if (error)
		printf("# cannot open: %s\n", strerror(-error));
	return !error;
}

/* --- laws ------------------------------------------------------------------------ */

bool check_writes_and_reads(struct driver *driver, unsigned index, uint64_t sector, uint64_t size)
{
	uint8_t *there = driver->data, *back = driver->data + CHECK_MEMORY / 2;
	check_pattern(there, size, sector + 1);
	memset(back, 0xee, size);
	return driver_do(driver, index, VIRTIO_BLK_T_OUT, sector, there, size) == 0 &&
	       driver_do(driver, index, VIRTIO_BLK_T_IN, sector, back, size) == 0 &&
	       check_has_pattern(back, size, sector + 1);
}

/* Pieces that begin and end anywhere, 126 of them. */
static bool scatters(struct driver *driver)
{
	struct iovec out[126], in[126];
	uint64_t size = 0;
	uint16_t head;
	uint32_t length;
	for (unsigned i = 0; i < 126; i++) {
		uint64_t piece = i == 125 ? (SECTOR - size % SECTOR) : 1 + (i * 613) % 9000;
		out[i] = (struct iovec){driver->data + i * 16384 + i, piece};
		in[i] = (struct iovec){driver->data + CHECK_MEMORY / 2 + i * 16384 + 3 * i, piece};
		for (uint64_t j = 0; j < piece; j++)
			((uint8_t *)out[i].iov_base)[j] = (uint8_t)hash_u64(size + j);
		size += piece;
	}
	if (driver_submit(driver, 0, VIRTIO_BLK_T_OUT, 100, out, 126, &head) ||
		driver_wait(driver, 0, &head, &length, 60000) || driver->queue[0].status[head] ||
		length != 1)
		return false;
	if (driver_submit(driver, 0, VIRTIO_BLK_T_IN, 100, in, 126, &head) ||
		driver_wait(driver, 0, &head, &length, 60000) || driver->queue[0].status[head] ||
		length != size + 1)
		return false;
	for (unsigned i = 0; i < 126; i++)
		if (memcmp(in[i].iov_base, out[i].iov_base, in[i].iov_len) != 0)
			return false;
	return true;
}

/* As many as a ring holds, on all rings, at once; a few times, so that it turns over. */
static bool fills_rings_once(struct driver *driver, unsigned queues, unsigned each)
{
	unsigned sent = 0, back = 0, wrong = 0;
	uint16_t head;
	uint32_t length;
	for (unsigned q = 0; q < queues; q++)
		for (unsigned i = 0; i < each; i++, sent++) {
			struct iovec iov = {driver->data + sent * 8192, 4096};
			check_pattern(iov.iov_base, 4096, sent + 7);
			wrong += driver_submit(driver, q, VIRTIO_BLK_T_OUT, 4000 + sent * 8ull,
					 &iov, 1, &head) != 0;
		}
	for (unsigned q = 0; q < queues; q++)
		for (unsigned i = 0; i < each; i++, back++)
			wrong += driver_wait(driver, q, &head, &length, 60000) ||
				 driver->queue[q].status[head];
	uint8_t *all = driver->data + CHECK_MEMORY / 2;
	wrong += driver_do(driver, 0, VIRTIO_BLK_T_IN, 4000, all, sent * 4096ull) != 0;
	for (unsigned i = 0; i < sent; i++)
		wrong += !check_has_pattern(all + i * 4096ull, 4096, i + 7);
	return wrong == 0 && back == sent;
}

static bool fills_rings(struct driver *driver, unsigned queues)
{
	bool tables = driver->features & 1ull << VIRTIO_RING_F_INDIRECT_DESC;
	for (unsigned i = 0; i < 4; i++)
		if (!fills_rings_once(driver, queues, tables ? DRIVER_NUM : DRIVER_NUM / 3))
			return false;
	return true;
}

static int ranges(struct driver *driver, uint32_t type, const uint64_t *sectors, unsigned count,
	uint32_t flags)
{
	struct virtio_blk_discard_write_zeroes *wire = (void *)driver->data;
	for (unsigned i = 0; i < count; i++)
		wire[i] = (struct virtio_blk_discard_write_zeroes){
			sectors[2 * i], (uint32_t)sectors[2 * i + 1], flags};
	return driver_do(driver, 0, type, 0, wire, count * sizeof(*wire));
}

static void laws_of_ranges(struct driver *driver)
{
	const uint64_t two[] = {8, 8, 32, 16}, beyond[] = {driver->disk.capacity - 8, 16};
	uint8_t *back = driver->data + CHECK_MEMORY / 2;
	check_law("data lie there", check_writes_and_reads(driver, 0, 0, 64 * SECTOR));
	check_law("two ranges are zeroed",
		ranges(driver, VIRTIO_BLK_T_WRITE_ZEROES, two, 2, 0) == VIRTIO_BLK_S_OK);
	check_law("they read as zeros, and nothing else does",
		driver_do(driver, 0, VIRTIO_BLK_T_IN, 0, back, 64 * SECTOR) == 0 &&
			is_zero(back + 8 * SECTOR, 8 * SECTOR) &&
			is_zero(back + 32 * SECTOR, 16 * SECTOR) &&
			!is_zero(back + 7 * SECTOR, SECTOR) &&
			!is_zero(back + 16 * SECTOR, SECTOR));
	check_law("zeros may be unmapped",
		ranges(driver, VIRTIO_BLK_T_WRITE_ZEROES, two, 2, 1) == VIRTIO_BLK_S_OK);
	check_law("a discard is done",
		ranges(driver, VIRTIO_BLK_T_DISCARD, two, 1, 0) == VIRTIO_BLK_S_OK);
	check_law("a discard with a flag is not known",
		ranges(driver, VIRTIO_BLK_T_DISCARD, two, 1, 1) == VIRTIO_BLK_S_UNSUPP);
	check_law("a range beyond the end is refused",
		ranges(driver, VIRTIO_BLK_T_DISCARD, beyond, 1, 0) == VIRTIO_BLK_S_IOERR);
	check_law("half a range is refused", driver_do(driver, 0, VIRTIO_BLK_T_DISCARD, 0,
						     driver->data, 24) == VIRTIO_BLK_S_IOERR);
}

static void laws_of_refusals(struct driver *driver)
{
	uint64_t end = driver->disk.capacity;
	uint8_t *data = driver->data;
	check_law("the last sector can be read",
		driver_do(driver, 0, VIRTIO_BLK_T_IN, end - 1, data, SECTOR) == VIRTIO_BLK_S_OK);
	check_law("not one more", driver_do(driver, 0, VIRTIO_BLK_T_IN, end - 1, data,
					  2 * SECTOR) == VIRTIO_BLK_S_IOERR);
	check_law("nor where numbers turn over", driver_do(driver, 0, VIRTIO_BLK_T_OUT, UINT64_MAX,
							 data, SECTOR) == VIRTIO_BLK_S_IOERR);
	check_law("nor parts of a sector",
		driver_do(driver, 0, VIRTIO_BLK_T_IN, 0, data, 100) == VIRTIO_BLK_S_IOERR);
	check_law("an unknown request is said to be unknown",
		driver_do(driver, 0, 77, 0, data, SECTOR) == VIRTIO_BLK_S_UNSUPP);
}

static bool sets_cache(struct driver *driver, uint8_t on)
{
	union vhost_payload wce = {.config = {32, 1, 0, {on}}};
	return driver_tell(driver, VHOST_SET_CONFIG, &wce, VHOST_CONFIG_HEADER + 1, -1) == 0 &&
	       driver_get_config(driver) == 0 && driver->disk.wce == on;
}

static int check_laws(const char *socket)
{
	struct driver driver;
	char id[20];
	if (!check_open(&driver, socket, (struct driver_config){.queues = 3}))
		return 1;
	check_law("it has a size", driver.disk.capacity > 0 && driver.disk.blk_size == SECTOR &&
					   driver.disk.seg_max == 126 && driver.disk.wce == 1);
	check_law("a request is answered", check_writes_and_reads(&driver, 0, 8, 4096));
	check_law("a sector", check_writes_and_reads(&driver, 0, 3, SECTOR));
	check_law("16 MiB at an odd place", check_writes_and_reads(&driver, 0, 8191, 16u << 20));
	check_law("in pieces of any size", scatters(&driver));
	check_law("on another ring", check_writes_and_reads(&driver, 2, 40, 65536));
	check_law("full rings, three of them", fills_rings(&driver, 3));
	check_law("a flush",
		driver_do(&driver, 0, VIRTIO_BLK_T_FLUSH, 0, NULL, 0) == VIRTIO_BLK_S_OK);
	check_law("it has a name",
		driver_do(&driver, 0, VIRTIO_BLK_T_GET_ID, 0, driver.data, 20) == VIRTIO_BLK_S_OK);
	memcpy(id, driver.data, sizeof(id));
	printf("# '%.20s'\n", id);
	laws_of_ranges(&driver);
	laws_of_refusals(&driver);
	check_law("its write cache is turned off",
		sets_cache(&driver, 0) && check_writes_and_reads(&driver, 0, 8, 4096));
	union vhost_payload wce = {.config = {0, 1, 0, {0}}};
	check_law("nothing else of it can be changed",
		driver_tell(&driver, VHOST_SET_CONFIG, &wce, VHOST_CONFIG_HEADER + 1, -1) != 0);
	driver_close(&driver);
	check_law("without indices of events",
		check_open(&driver, socket,
			(struct driver_config){.without = 1ull << VIRTIO_RING_F_EVENT_IDX}) &&
			check_writes_and_reads(&driver, 0, 8, 65536) && fills_rings(&driver, 1));
	driver_close(&driver);
	check_law("without tables",
		check_open(&driver, socket,
			(struct driver_config){.without = 1ull << VIRTIO_RING_F_INDIRECT_DESC}) &&
			check_writes_and_reads(&driver, 0, 8, 65536) && fills_rings(&driver, 1));
	driver_close(&driver);
	check_law("without an in-flight region",
		check_open(&driver, socket, (struct driver_config){.no_inflight = true}) &&
			check_writes_and_reads(&driver, 0, 8, 65536));
	driver_close(&driver);
	check_law("by a monitor that knows nothing of rounds",
		check_open(&driver, socket, (struct driver_config){.no_rounds = true}) &&
			check_writes_and_reads(&driver, 0, 8, 65536));
	driver_close(&driver);
	check_law("without anything newer than vhost",
		check_open(&driver, socket, (struct driver_config){.no_protocol = true}) &&
			check_writes_and_reads(&driver, 0, 8, 65536));
	driver_close(&driver);
	return check_end();
}

/* --- a machine that moves ---------------------------------------------------------- */

static bool stops_and_goes_on(struct driver *driver)
{
	uint16_t head, back;
	uint32_t base, length;
	struct iovec iov = {driver->data, 4096};
	if (driver_stop(driver, 0, &base) || base != driver_base(driver, 0))
		return false;
	/* what comes meanwhile waits */
	driver_will_kick(driver, 0);
	if (driver_submit(driver, 0, VIRTIO_BLK_T_IN, 0, &iov, 1, &head) ||
		driver_wait(driver, 0, &back, &length, 200) != -ETIMEDOUT)
		return false;
	return driver_start(driver, 0, base) == 0 &&
	       driver_wait(driver, 0, &back, &length, 60000) == 0 && back == head;
}

/* The monitor may keep the in-flight region when a machine is reset. */
static bool begins_again(struct driver *driver)
{
	uint32_t base;
	if (driver_stop(driver, 0, &base))
		return false;
	driver_begin_again(driver, 0);
	return driver_start(driver, 0, driver_base(driver, 0)) == 0 &&
	       check_writes_and_reads(driver, 0, 8, 4096);
}

static bool logs_pages(struct driver *driver)
{
	uint64_t size = (DRIVER_GUEST + driver->memory_size) / 4096 / 8 + 8, wanted = 0;
	int fd = memfd_create("log", MFD_CLOEXEC);
	union vhost_payload payload = {.log = {size, 0}};
	must(fd >= 0 && ftruncate(fd, (off_t)size) == 0);
	uint8_t *log = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	must(log != MAP_FAILED);
	uint64_t before = driver->protocol;
	driver->protocol = 0; /* it answers in any case, once */
	int error = driver_tell(driver, VHOST_SET_LOG_BASE, &payload, 16, fd);
	union vhost_payload answer;
	struct vhost_header got;
	must(read(driver->fd, &got, sizeof(got)) == sizeof(got));
	must(read(driver->fd, &answer, got.size) == (ssize_t)got.size);
	driver->protocol = before;
	if (error || driver_number(driver, VHOST_SET_FEATURES,
			     driver->features | 1ull << VHOST_F_LOG_ALL))
		return false;
	uint8_t *data = driver->data + (1u << 20);
	if (driver_do(driver, 0, VIRTIO_BLK_T_IN, 0, data, 16384))
		return false;
	for (uint64_t page = driver_guest(driver, data) / 4096; wanted < 4; wanted++, page++)
		if (!(log[page / 8] >> (page % 8) & 1))
			return false;
	const void *ring = packed ? (void *)driver->queue[0].packed.desc : driver->queue[0].used;
	uint64_t used = driver_guest(driver, ring) / 4096;
	uint64_t other = driver_guest(driver, data + (1u << 20)) / 4096;
	bool marked = log[used / 8] >> (used % 8) & 1, clean = !(log[other / 8] >> (other % 8) & 1);
	munmap(log, size);
	close(fd);
	return marked && clean && driver_number(driver, VHOST_SET_FEATURES, driver->features) == 0;
}

#define MORE_GUEST 0x900000000ull
#define MORE_SIZE (1u << 20)

/* A page of the disk, read to memory that driver_submit() knows nothing of. */
static bool reads_to(struct driver *driver, uint64_t sector, uint64_t guest)
{
	struct driver_queue *queue = &driver->queue[0];
	uint16_t head = queue->free[queue->free_count - 1], back;
	uint32_t length;
	struct vring_desc *table = &queue->tables[head * DRIVER_TABLE];
	/* the same request twice, the second time with another address */
	if (driver_do(driver, 0, VIRTIO_BLK_T_IN, sector, driver->data, 4096))
		return false;
	queue->free_count--;
	queue->busy[head] = true;
	queue->status[head] = 0xff;
	table[1].addr = guest;
	driver_offer(driver, 0, head);
	return driver_wait(driver, 0, &back, &length, 60000) == 0 && back == head &&
	       queue->status[head] == 0;
}

static bool adds_memory(struct driver *driver)
{
	union vhost_payload answer = {0};
	int fd = memfd_create("more", MFD_CLOEXEC);
	const struct {
		uint64_t padding;
		struct vhost_wire_region region;
	} slot = {0, {MORE_GUEST, MORE_SIZE, 0x6000000000ull, 0}};
	must(fd >= 0 && ftruncate(fd, MORE_SIZE) == 0);
	uint8_t *more = mmap(NULL, MORE_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	must(more != MAP_FAILED);
	check_pattern(driver->data, 4096, 99);
	bool good = driver_ask(driver, VHOST_GET_MAX_MEM_SLOTS, &answer, 0, NULL) == 0 &&
		    answer.number >= 32 &&
		    driver_do(driver, 0, VIRTIO_BLK_T_OUT, 16, driver->data, 4096) == 0 &&
		    driver_tell(driver, VHOST_ADD_MEM_REG, &slot, sizeof(slot), fd) == 0 &&
		    reads_to(driver, 16, MORE_GUEST + 4096) &&
		    check_has_pattern(more + 4096, 4096, 99) &&
		    driver_tell(driver, VHOST_REM_MEM_REG, &slot, sizeof(slot), -1) == 0;
	munmap(more, MORE_SIZE);
	close(fd);
	return good;
}

/* All that was agreed of its rings is forgotten; its memory stays. */
static bool starts_after_reset(struct driver *driver)
{
	return driver_tell(driver, VHOST_RESET_DEVICE, "", 0, -1) == 0 &&
	       driver_start(driver, 0, driver_base(driver, 0)) == 0;
}

static bool is_taken(const void *region, unsigned head)
{
	const volatile struct vhost_inflight *split = region;
	const volatile struct vhost_packed_inflight *other = region;
	return packed ? other->entry[head].taken : split->entry[head].taken;
}

static void leave_split(struct driver_queue *queue, void *region)
{
	struct vhost_inflight *notes = region;
	for (uint16_t i = 0; i < 4; i++) {
		notes->entry[i].taken = i != 1;
		notes->entry[i].counter = i;
	}
	queue->used->ring[0].id = 1;
	queue->used->ring[1].id = 2;
	queue->used->idx = queue->used_at = 2;
	notes->batch = 2;
	notes->used_at = 1;
}

/* What they are lies in the copies alone: their descriptors are written over. */
static void leave_packed(struct driver_queue *queue, void *region)
{
	struct vhost_packed_inflight *notes = region;
	for (uint16_t i = 0; i < 4; i++) {
		struct vring_packed_desc *desc = &queue->packed.desc[i];
		notes->entry[i] = (struct vhost_packed_entry){.taken = i != 1,
			.next = (uint16_t)(i + 1),
			.last = i,
			.num = 1,
			.counter = i,
			.id = desc->id,
			.flags = desc->flags,
			.len = desc->len,
			.addr = desc->addr};
	}
	for (uint16_t i = 0; i < 4; i++)
		queue->packed.desc[i] = (struct vring_packed_desc){.addr = 1,
			.id = (uint16_t)(i + 1),
			.flags = i < 2 ? 1u << VRING_PACKED_DESC_F_AVAIL |
						 1u << VRING_PACKED_DESC_F_USED
				       : 0};
	notes->entry[1].next = 4;
	notes->entry[2].next = 1;
	notes->free_at = 2;
	notes->old_free_at = 1;
	notes->used_at = 2;
	notes->old_used_at = 1;
	notes->by_base = 0;
	queue->packed.used.slot = 2;
}

/*
 * Whoever served before had taken heads 0 to 3, given 1 and 2 back, and was killed before it noted
 * that of the last one. So 0 and 3 are done, once each, and the others are not.
 */
static bool recovers(const char *socket)
{
	struct driver driver;
	uint16_t head, seen = 0;
	uint32_t length, base;
	if (!check_open(&driver, socket, (struct driver_config){.quiet = true}))
		return false;
	struct driver_queue *queue = &driver.queue[0];
	void *region = mmap(NULL, driver.inflight_size, PROT_READ | PROT_WRITE, MAP_SHARED,
		driver.inflight_fd, 0);
	must(region != MAP_FAILED);
	for (uint16_t i = 0; i < 4; i++) {
		struct iovec iov = {driver.data + i * 4096u, 4096};
		must(driver_submit(&driver, 0, VIRTIO_BLK_T_IN, 8, &iov, 1, &head) == 0 &&
			head == i);
	}
	(packed ? leave_packed : leave_split)(queue, region);
	bool good = driver_start(&driver, 0, driver_base(&driver, 0)) == 0;
	for (unsigned i = 0; good && i < 2; i++) {
		good = driver_wait(&driver, 0, &head, &length, 60000) == 0;
		seen |= (uint16_t)(1u << head);
	}
	/* the ring's index moves before that is noted; when it has stopped, all is */
	good = good && driver_stop(&driver, 0, &base) == 0 &&
	       base == (packed ? driver_base(&driver, 0) : 4);
	good = good && seen == (1u << 0 | 1u << 3) && queue->status[0] == 0 &&
	       queue->status[3] == 0 && queue->status[1] == 0xff && queue->status[2] == 0xff &&
	       !is_taken(region, 0) && !is_taken(region, 2) && !is_taken(region, 3);
	munmap(region, driver.inflight_size);
	driver_close(&driver);
	return good;
}

static int check_moves(const char *socket)
{
	struct driver driver;
	if (!check_open(&driver, socket, (struct driver_config){.queues = 2}))
		return 1;
	check_law("a request is answered", check_writes_and_reads(&driver, 0, 8, 4096));
	check_law("a ring stops, and goes on where it was", stops_and_goes_on(&driver));
	check_law("it is reset, and begins again", begins_again(&driver));
	check_law("memory is added, used and taken away", adds_memory(&driver));
	check_law("what is changed is logged", logs_pages(&driver));
	check_law("a request is answered", check_writes_and_reads(&driver, 0, 8, 4096));
	check_law("what was in flight is done, and nothing else", recovers(socket));
	check_law("a device that was reset starts again", starts_after_reset(&driver));
	check_law("a request is answered", check_writes_and_reads(&driver, 0, 8, 4096));
	driver_close(&driver);
	return check_end();
}

/* --- verify ---------------------------------------------------------------------- */

#define SLOTS 16u
#define SLOT_SIZE 65536u

struct slot {
	uint64_t sequence;
	bool reading;
	unsigned queue;
	uint16_t head;
};

struct verify {
	struct driver driver;
	struct slot slot[SLOTS];
	uint64_t done, wrong, reconnects;
};

static uint8_t *slot_data(struct verify *verify, unsigned i, bool reading)
{
	return verify->driver.data + (i * 2 + reading) * SLOT_SIZE;
}

static uint64_t slot_size(const struct slot *slot)
{
	return SECTOR * (1 + hash_u64(slot->sequence) % (SLOT_SIZE / SECTOR));
}

static void slot_send(struct verify *verify, unsigned i)
{
	struct slot *slot = &verify->slot[i];
	uint8_t *data = slot_data(verify, i, slot->reading);
	struct iovec iov = {data, slot_size(slot)};
	if (slot->reading)
		memset(data, 0, iov.iov_len);
	else
		check_pattern(data, iov.iov_len, slot->sequence * SLOTS + i);
	must(driver_submit(&verify->driver, slot->queue,
		     slot->reading ? VIRTIO_BLK_T_IN : VIRTIO_BLK_T_OUT, i * (SLOT_SIZE / SECTOR),
		     &iov, 1, &slot->head) == 0);
}

/* A write is read back, and then the next one goes out. */
static void slot_ends(struct verify *verify, unsigned queue, uint16_t head, bool more)
{
	for (unsigned i = 0; i < SLOTS; i++) {
		struct slot *slot = &verify->slot[i];
		if (slot->queue != queue || slot->head != head)
			continue;
		bool good = verify->driver.queue[queue].status[head] == 0;
		if (good && slot->reading)
			good = check_has_pattern(slot_data(verify, i, true), slot_size(slot),
				slot->sequence * SLOTS + i);
		verify->wrong += !good;
		verify->done++;
		slot->head = UINT16_MAX;
		slot->sequence += slot->reading;
		slot->reading = !slot->reading;
		if (more)
			slot_send(verify, i);
		return;
	}
	verify->wrong++; /* an answer to nobody */
}

static unsigned verify_wait(struct verify *verify, bool more)
{
	struct driver *driver = &verify->driver;
	uint16_t head;
	uint32_t length;
	unsigned out = 0;
	for (unsigned q = 0; q < driver->config.queues; q++) {
		unsigned busy = DRIVER_NUM - driver->queue[q].free_count;
		if (!busy)
			continue;
		int error = driver_wait(driver, q, &head, &length, 60000);
		if (error == -EPIPE) {
			must(driver_reconnect(driver) == 0);
			verify->reconnects++;
		} else if (error) {
			printf("# nothing comes back\n");
			verify->wrong++;
			return 0;
		} else {
			slot_ends(verify, q, head, more);
		}
		out += DRIVER_NUM - driver->queue[q].free_count;
	}
	return out;
}

static volatile sig_atomic_t enough;

static void stop_verify(int signal)
{
	(void)signal;
	enough = 1;
}

static int run_verify(const char *socket, unsigned seconds)
{
	signal(SIGUSR1, stop_verify);
	struct verify verify = {.done = 0};
	uint64_t until = clock_now_ns() + seconds * 1000000000ull;
	/* chains that lie in the ring itself are more to get wrong for one that is packed */
	uint64_t without = packed ? 1ull << VIRTIO_RING_F_INDIRECT_DESC : 0;
	if (!check_open(&verify.driver, socket,
		    (struct driver_config){.queues = 2, .without = without}))
		return 1;
	puts("started");
	fflush(stdout);
	for (unsigned i = 0; i < SLOTS; i++) {
		verify.slot[i].queue = i % 2;
		slot_send(&verify, i);
	}
	while (!verify.wrong && !enough && clock_now_ns() < until)
		verify_wait(&verify, true);
	while (!verify.wrong && verify_wait(&verify, false))
		continue;
	printf("%llu done, %llu wrong, %llu reconnects\n", (unsigned long long)verify.done,
		(unsigned long long)verify.wrong, (unsigned long long)verify.reconnects);
	driver_close(&verify.driver);
	return verify.wrong ? 1 : 0;
}

/* A read is noted as taken while the store stands still (SIGUSR1: it does), and then is no more. */
static int run_noted(const char *socket)
{
	const struct timespec nap = {0, 1000000};
	struct driver driver;
	struct iovec iov;
	uint16_t head;
	uint32_t length, base;
	signal(SIGUSR1, stop_verify);
	if (!check_open(&driver, socket, (struct driver_config){0}))
		return 1;
	const void *region =
		mmap(NULL, driver.inflight_size, PROT_READ, MAP_SHARED, driver.inflight_fd, 0);
	must(region != MAP_FAILED);
	puts("open");
	fflush(stdout);
	while (!enough)
		nanosleep(&nap, NULL);
	iov = (struct iovec){driver.data, 4096};
	must(driver_submit(&driver, 0, VIRTIO_BLK_T_IN, 8, &iov, 1, &head) == 0);
	for (unsigned i = 0; i < 60000 && !is_taken(region, head); i++)
		nanosleep(&nap, NULL);
	if (!is_taken(region, head))
		return 1;
	puts("taken");
	fflush(stdout);
	int error = driver_wait(&driver, 0, &head, &length, 60000);
	if (!error)
		error = driver_stop(&driver, 0, &base);
	return error || is_taken(region, head) || driver.queue[0].status[head];
}

/* --- the rest -------------------------------------------------------------------- */

static int run_resized(const char *socket, uint64_t bytes)
{
	struct driver driver;
	struct vhost_header header;
	if (!check_open(&driver, socket, (struct driver_config){0}))
		return 1;
	puts("open");
	fflush(stdout);
	while (driver.disk.capacity * SECTOR != bytes) {
		if (read(driver.back, &header, sizeof(header)) != sizeof(header) ||
			header.request != VHOST_BACKEND_CONFIG_CHANGE || driver_get_config(&driver))
			return 1;
	}
	int status =
		driver_do(&driver, 0, VIRTIO_BLK_T_IN, bytes / SECTOR - 8, driver.data, 8 * SECTOR);
	driver_close(&driver);
	return status;
}

static int by_number(const void *a, const void *b)
{
	uint64_t one = *(const uint64_t *)a, other = *(const uint64_t *)b;
	return one < other ? -1 : one > other;
}

#define SAMPLES 1000000u

static int run_load(const char *socket, bool writes, uint64_t size, unsigned depth, uint64_t ms)
{
	struct driver driver;
	uint64_t *began = calloc(DRIVER_NUM, sizeof(*began)),
		 *took = calloc(SAMPLES, sizeof(*took));
	uint64_t done = 0, sent = 0;
	must(began && took && depth <= DRIVER_NUM && depth * size <= CHECK_MEMORY);
	if (!check_open(&driver, socket, (struct driver_config){0}))
		return 1;
	uint64_t places = driver.disk.capacity * SECTOR / size;
	bool fills = !ms; /* each place once, in order */
	uint64_t start = clock_now_ns(), now = start, until = start + ms * 1000000;
	uint16_t head;
	uint32_t length;
	while ((fills ? sent < places : now < until) || driver.queue[0].free_count < DRIVER_NUM) {
		while ((fills ? sent < places : now < until) &&
			DRIVER_NUM - driver.queue[0].free_count < depth) {
			uint16_t next = driver.queue[0].free[driver.queue[0].free_count - 1];
			struct iovec iov = {driver.data + next % depth * size, size};
			uint64_t place = (fills ? sent : hash_u64(sent)) % places;
			sent++;
			must(driver_submit(&driver, 0, writes ? VIRTIO_BLK_T_OUT : VIRTIO_BLK_T_IN,
				     place * (size / SECTOR), &iov, 1, &head) == 0);
			began[head] = now;
		}
		int error = driver_wait(&driver, 0, &head, &length, 60000);
		now = clock_now_ns();
		if (error || driver.queue[0].status[head])
			return 1;
		took[done++ % SAMPLES] = now - began[head];
	}
	uint64_t count = done < SAMPLES ? done : SAMPLES;
	qsort(took, count, sizeof(*took), by_number);
	printf("%.0f %.1f %.3f\n", (double)done * 1e9 / (double)(now - start),
		(double)took[count / 2] / 1000, (double)driver.queue[0].kicks / (double)done);
	driver_close(&driver);
	free(began);
	free(took);
	return 0;
}

static int run_status(const char *socket, char **word)
{
	struct driver driver;
	if (!check_open(&driver, socket, (struct driver_config){0}))
		return 1;
	printf("%d\n",
		driver_do(&driver, 0, (uint32_t)strtoul(word[0], NULL, 0),
			strtoull(word[1], NULL, 0), driver.data, strtoull(word[2], NULL, 0)));
	driver_close(&driver);
	return 0;
}

static int run_writes(const char *socket, unsigned count, bool cached)
{
	struct driver driver;
	if (!check_open(&driver, socket, (struct driver_config){0}))
		return 1;
	bool good = sets_cache(&driver, cached);
	for (unsigned i = 0; good && i < count; i++)
		good = driver_do(&driver, 0, VIRTIO_BLK_T_OUT, 8, driver.data, 4096) ==
		       VIRTIO_BLK_S_OK;
	driver_close(&driver);
	return !good;
}

int main(int argc, char **argv)
{
	packed = argc > 1 && !strcmp(argv[1], "--packed");
	if (packed)
		argc--, argv++;
	const char *what = argc > 2 ? argv[1] : "", *socket = argc > 2 ? argv[2] : "";
	if (!strcmp(what, "laws"))
		return check_laws(socket);
	if (!strcmp(what, "rude"))
		return check_rude(socket);
	if (!strcmp(what, "moves"))
		return check_moves(socket);
	if (!strcmp(what, "verify") && argc == 4)
		return run_verify(socket, (unsigned)atoi(argv[3]));
	if (!strcmp(what, "noted"))
		return run_noted(socket);
	if (!strcmp(what, "resized") && argc == 4)
		return run_resized(socket, strtoull(argv[3], NULL, 0));
	if (!strcmp(what, "load") && argc == 7)
		return run_load(socket, !strcmp(argv[3], "write"), strtoull(argv[4], NULL, 0),
			(unsigned)atoi(argv[5]), strtoull(argv[6], NULL, 0));
	if (!strcmp(what, "status") && argc == 6)
		return run_status(socket, argv + 3);
	if (!strcmp(what, "writes") && argc == 5)
		return run_writes(socket, (unsigned)atoi(argv[3]), atoi(argv[4]));
	fprintf(stderr, "vhost_check: see the head of tests/lib/vhost_check.c\n");
	return 2;
}
