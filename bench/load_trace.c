/* SPDX-License-Identifier: Apache-2.0 */
/* Block traces from files: all of them in memory, cut at the borders of objects. */
#include <base/hash.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench/load.h"

#define TRACE_CHAINS (1u << 16)
#define TRACE_OBJECT_SHIFT 22
#define TRACE_FIELDS 7
#define TRACE_REST (1u << 30) /* longest request that is believed */

/* Which objects there are: numbers given by when they were met. */
struct trace_names {
	uint64_t *name;
	uint32_t *next, chain[TRACE_CHAINS];
	uint32_t count, room;
};

struct trace_reader {
	struct load_trace *trace;
	struct trace_names names;
	uint64_t room;
	const uint8_t *data;
	size_t size;
};

/* --- what comes out ------------------------------------------------------------ */

static int trace_object(struct trace_names *names, uint64_t name, uint32_t *object)
{
	uint32_t *head = &names->chain[hash_u64(name) >> 48];
	for (uint32_t i = *head; i != 0; i = names->next[i - 1])
		if (names->name[i - 1] == name) {
			*object = i - 1;
			return 0;
		}
	if (names->count == names->room) {
		names->room = names->room ? names->room * 2 : 1024;
		uint64_t *name_more = realloc(names->name, names->room * sizeof(*name_more));
		names->name = name_more ? name_more : names->name;
		uint32_t *next_more = realloc(names->next, names->room * sizeof(*next_more));
		names->next = next_more ? next_more : names->next;
		if (!name_more || !next_more)
			return -ENOMEM;
	}
	*object = names->count++;
	names->name[*object] = name;
	names->next[*object] = *head;
	*head = *object + 1;
	return 0;
}

static int trace_put(struct trace_reader *reader, struct load_record record)
{
	struct load_trace *trace = reader->trace;
	if (trace->count == reader->room) {
		reader->room = reader->room ? reader->room * 2 : 1u << 16;
		void *more = realloc(trace->records, reader->room * sizeof(*trace->records));
		if (!more)
			return -ENOMEM;
		trace->records = more;
	}
	if (record.length > trace->length_max)
		trace->length_max = record.length;
	trace->records[trace->count++] = record;
	return 0;
}

/* [offset, offset + length) of the disk, piece by piece. */
static int trace_add(struct trace_reader *reader, uint64_t offset, uint64_t length, bool write)
{
	offset -= offset % XSEG_SECTOR;
	length = (length + XSEG_SECTOR - 1) / XSEG_SECTOR * XSEG_SECTOR;
	if (length > TRACE_REST)
		return -EINVAL;
	while (length) {
		uint32_t at = (uint32_t)(offset % XSEG_OBJECT_MAX), object;
		uint32_t n = XSEG_OBJECT_MAX - at;
		n = length < n ? (uint32_t)length : n;
		int error = trace_object(&reader->names, offset >> TRACE_OBJECT_SHIFT, &object);
		if (!error)
			error = trace_put(reader, (struct load_record){.object = object,
							  .offset = at,
							  .length = n & 0x7fffffff,
							  .write = write});
		if (error)
			return error;
		offset += n;
		length -= n;
	}
	return 0;
}

/* --- the formats ------------------------------------------------------------------ */

static uint64_t trace_word(const uint8_t *from, unsigned bytes)
{
	uint64_t value = 0;
	for (unsigned i = bytes; i-- > 0;)
		value = value << 8 | from[i];
	return value;
}

/* SCSI's READ and WRITE of 6 to 16 bytes. */
static bool trace_scsi_writes(unsigned op)
{
	return op == 0x0a || op == 0x2a || op == 0xaa || op == 0x8a;
}

static bool trace_scsi_is(unsigned op)
{
	return trace_scsi_writes(op) || op == 0x08 || op == 0x28 || op == 0xa8 || op == 0x88;
}

/* One line; 1: a header, or something that is neither read nor write. */
static int trace_line(struct trace_reader *reader, char *line)
{
	char *field[TRACE_FIELDS], *rest = line;
	unsigned count = 0;
	while (count < TRACE_FIELDS && (field[count] = strsep(&rest, ",")))
		count++;
	if (count < 5)
		return -EINVAL;
	if (count >= 6) { /* time,host,disk,Read,offset,size: in bytes */
		bool write = field[3][0] == 'W' || field[3][0] == 'w';
		if (!write && field[3][0] != 'R' && field[3][0] != 'r')
			return 1;
		return trace_add(
			reader, strtoull(field[4], NULL, 10), strtoull(field[5], NULL, 10), write);
	}
	unsigned op = (unsigned)strtoul(field[2], NULL, 16); /* version,time,op,size,lbn */
	if (!trace_scsi_is(op))
		return 1;
	return trace_add(reader, strtoull(field[4], NULL, 10) * XSEG_SECTOR,
		strtoull(field[3], NULL, 10), trace_scsi_writes(op));
}

static int trace_csv(struct trace_reader *reader)
{
	const char *at = (const char *)reader->data, *end = at + reader->size;
	reader->trace->knows_writes = true;
	while (at < end) {
		char line[256];
		const char *stop = memchr(at, '\n', (size_t)(end - at));
		size_t length = (size_t)((stop ? stop : end) - at);
		if (length >= sizeof(line))
			return -EINVAL;
		memcpy(line, at, length);
		line[length] = '\0';
		if (length) {
			int error = trace_line(reader, line);
			if (error < 0)
				return error;
		}
		at = stop ? stop + 1 : end;
	}
	return 0;
}

/* Where in a record its parts lie. */
struct trace_vscsi {
	unsigned size, op, version, length, block;
};
static const struct trace_vscsi trace_vscsi[] = {{32, 12, 14, 4, 16}, {40, 0, 2, 8, 24}};

/* 1 or 2; 0: neither. */
static unsigned trace_vscsi_version(const struct trace_reader *reader)
{
	for (unsigned v = 0; v < countof(trace_vscsi); v++) {
		const struct trace_vscsi *is = &trace_vscsi[v];
		unsigned seen = 0;
		for (size_t at = 0; at + is->size <= reader->size && seen < 8; at += is->size) {
			if (trace_word(reader->data + at + is->version, 2) >> 8 != v + 1)
				break;
			seen++;
		}
		if (seen && reader->size % is->size == 0 &&
			(seen == 8 || seen == reader->size / is->size))
			return v + 1;
	}
	return 0;
}

static int trace_binary(struct trace_reader *reader, const struct trace_vscsi *is)
{
	reader->trace->knows_writes = true;
	for (size_t at = 0; at + is->size <= reader->size; at += is->size) {
		const uint8_t *from = reader->data + at;
		unsigned op = (unsigned)trace_word(from + is->op, 2);
		if (!trace_scsi_is(op))
			continue;
		int error = trace_add(reader, trace_word(from + is->block, 8) * XSEG_SECTOR,
			trace_word(from + is->length, 4), trace_scsi_writes(op));
		if (error)
			return error;
	}
	return 0;
}

static int trace_numbers(struct trace_reader *reader)
{
	if (reader->size % 4)
		return -EINVAL;
	for (size_t at = 0; at < reader->size; at += 4) {
		int error = trace_add(
			reader, trace_word(reader->data + at, 4) * XSEG_PAGE, XSEG_PAGE, false);
		if (error)
			return error;
	}
	return 0;
}

static bool trace_is_text(const struct trace_reader *reader)
{
	for (size_t i = 0; i < reader->size && i < 64; i++)
		if (reader->data[i] >= 0x7f ||
			(reader->data[i] < ' ' && !memchr("\r\n\t", reader->data[i], 3)))
			return false;
	return true;
}

static int trace_read(struct trace_reader *reader)
{
	if (trace_is_text(reader))
		return trace_csv(reader);
	unsigned version = trace_vscsi_version(reader);
	return version ? trace_binary(reader, &trace_vscsi[version - 1]) : trace_numbers(reader);
}

/* --- the file ------------------------------------------------------------------------- */

/* What comes out of `fd`, to its end. */
static int trace_slurp(int fd, uint8_t **data, size_t *size)
{
	size_t room = 1u << 20;
	uint8_t *all = malloc(room);
	*size = 0;
	while (all) {
		ssize_t n = read(fd, all + *size, room - *size);
		if (n <= 0) {
			*data = all;
			return n < 0 ? -errno : 0;
		}
		*size += (size_t)n;
		if (*size < room)
			continue;
		uint8_t *more = realloc(all, room *= 2);
		if (!more)
			free(all);
		all = more;
	}
	*data = NULL;
	return -ENOMEM;
}

static int trace_unpack(const char *path, uint8_t **data, size_t *size)
{
	int ends[2], status;
	if (pipe2(ends, O_CLOEXEC))
		return -errno;
	pid_t pid = fork();
	if (pid == 0) {
		dup2(ends[1], 1);
		execlp("xz", "xz", "-dc", "--", path, NULL);
		_exit(127);
	}
	close(ends[1]);
	int error = pid < 0 ? -ENOMEM : trace_slurp(ends[0], data, size);
	close(ends[0]);
	if (pid > 0 && (waitpid(pid, &status, 0) != pid || status != 0) && !error)
		error = -EIO;
	return error;
}

static int trace_file(const char *path, uint8_t **data, size_t *size)
{
	size_t length = strlen(path);
	if (length > 3 && !strcmp(path + length - 3, ".xz"))
		return access(path, R_OK) ? -errno : trace_unpack(path, data, size);
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	int error = trace_slurp(fd, data, size);
	close(fd);
	return error;
}

int load_trace_open(struct load_trace *trace, const char *path, char *why, size_t why_size)
{
	uint8_t *data = NULL;
	struct trace_reader *reader = calloc(1, sizeof(*reader));
	if (!reader)
		return -ENOMEM;
	int error = trace_file(path, &data, &reader->size);
	reader->trace = trace;
	reader->data = data;
	if (!error)
		error = trace_read(reader);
	if (!error && trace->count == 0)
		error = -EINVAL;
	trace->objects = reader->names.count;
	free(reader->names.name);
	free(reader->names.next);
	free(reader);
	free(data);
	if (error)
		snprintf(why, why_size, "trace %s cannot be read: %s", path,
			error == -EINVAL ? "no block trace that we know" : strerror(-error));
	return error;
}

void load_trace_close(struct load_trace *trace) { free(trace->records); }
