/* SPDX-License-Identifier: Apache-2.0 */
/* The journal: which writes were begun and which were acknowledged, in the order it happened. */
#include <base/clock.h>
#include <base/crc32c.h>
#include <base/must.h>
#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "tests/stamp/stamp.h"

static uint32_t crc_of(const struct journal_record *record)
{
	const size_t at = sizeof(record->crc);
	return crc32c(0, (const uint8_t *)record + at, sizeof(*record) - at);
}

/* How many bytes of it are whole records; what comes after was on its way when we were killed. */
static off_t replay(
	int fd, void (*each)(void *context, const struct journal_record *record), void *context)
{
	struct journal_record records[512];
	off_t whole = 0;
	for (;;) {
		ssize_t got = pread(fd, records, sizeof(records), whole);
		size_t count = got < 0 ? 0 : (size_t)got / sizeof(records[0]);
		for (size_t i = 0; i < count; i++) {
			if (records[i].crc != crc_of(&records[i]))
				return whole;
			each(context, &records[i]);
			whole += sizeof(records[0]);
		}
		if (count < sizeof(records) / sizeof(records[0]))
			return whole;
	}
}

int journal_open(struct journal *journal, const char *path, bool sync,
	void (*each)(void *context, const struct journal_record *record), void *context)
{
	*journal = (struct journal){.fd = -1, .sync = sync};
	if (!path)
		return 0;
	int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (fd < 0)
		return -errno;
	off_t whole = replay(fd, each, context);
	off_t end = lseek(fd, 0, SEEK_END);
	/* Damage anywhere but in the last record is not ours: to go on would hide lost writes. */
	if (end - whole >= (off_t)sizeof(struct journal_record)) {
		close(fd);
		return -EBADMSG;
	}
	if (ftruncate(fd, whole) || lseek(fd, whole, SEEK_SET) < 0) {
		close(fd);
		return -EIO;
	}
	journal->fd = fd;
	return 0;
}

void journal_close(struct journal *journal)
{
	if (journal->fd >= 0)
		close(journal->fd);
	journal->fd = -1;
}

void journal_put(struct journal *journal, enum journal_kind kind, unsigned volume, uint64_t sector,
	uint32_t count, uint64_t sequence)
{
	journal_put_flags(journal, kind, volume, sector, count, sequence, 0);
}

void journal_put_flags(struct journal *journal, enum journal_kind kind, unsigned volume,
	uint64_t sector, uint32_t count, uint64_t sequence, uint32_t flags)
{
	if (journal->fd < 0)
		return;
	struct journal_record record = {.kind = (uint16_t)kind,
		.volume = (uint16_t)volume,
		.count = count,
		.sector = sector,
		.sequence = sequence,
		.flags = flags,
		.time_ns = clock_now_ns()};
	record.crc = crc_of(&record);
	must(write(journal->fd, &record, sizeof(record)) == sizeof(record));
	if (journal->sync)
		must(fdatasync(journal->fd) == 0);
}
