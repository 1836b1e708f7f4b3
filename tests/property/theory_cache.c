/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Laws of the cache, over a store that records what reaches it: after any history of reads, writes,
 * zeroes, discards and flushes of several volumes, with room for a small part of what is used,
 *
 *   a read gives what was acknowledged last;
 *   when a FLUSH or a FUA write is answered, what it covers is at the store, flushed;
 *   the store is a prefix: before anything that was written after a FLUSH reaches the store, all
 *     that was written before that FLUSH is there, flushed, wherever the log is cut;
 *   when the cache has stopped, everything is;
 *   when the segment is gone instead, as in a crash of the host, the journal brings back whatever
 *     was flushed.
 *
 * Each sector says which write it is of. Writes are numbered, so the later of two is the higher.
 */
#include <criterion/criterion.h>
#include <criterion/theories.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "tests/property/volume_rig.h"

#define VOLUMES 3u
#define OBJECTS 4u
#define SPAN (1u << 20) /* bytes of each object that are used */
#define SECTOR 512u
#define SECTORS (SPAN / SECTOR)
#define ZEROED (OBJECTS - 1) /* only this object is zeroed: the log does not number zeroes */
#define FLUSHES 256u
#define STEPS 1200u

/* --- what the recording store notes: tests/lib/blocker_record.c ---------------------------- */

enum { NOTE_BEGIN, NOTE_END };

struct note {
	uint32_t magic, carried;
	uint64_t number, begin, time_ns, volume, offset, arg0, arg1;
	uint32_t object, length, crc;
	int32_t error;
	uint8_t op, kind, shard, flags;
	uint32_t reserved;
};
fixed(sizeof(struct note) == 88);
#define NOTE_MAGIC 0x4e4f5445u
#define HEAD 48u

struct stamp {
	uint64_t magic;
	uint32_t volume, object, sector, number;
};
#define STAMP_MAGIC 0x73746d7063616368u

/* --- what is known ------------------------------------------------------------------------- */

/* Of each sector the number of a write; 0: never written, or zeroed. */
struct versions {
	uint32_t of[OBJECTS][SECTORS];
};

/* A FLUSH that was answered; or a FUA write, of which only its own sectors count. */
struct flushed {
	uint32_t volume;
	uint32_t last;	       /* the write that was asked for last when it was answered */
	off_t log;	       /* so long was the log then */
	struct versions *then; /* when it was asked for */
};

struct theory {
	struct rig rig;
	struct client client;
	const struct setting *setting;
	uint64_t random;
	uint32_t number;
	struct versions now[VOLUMES];
	struct flushed flushed[FLUSHES];
	unsigned flushed_count;
	char log[256];
	uint8_t out[SPAN], in[SPAN];
	/* one FLUSH of each volume may be under way */
	struct client_request flush[VOLUMES];
	struct versions *flush_then[VOLUMES];
	/* while the log is looked at */
	struct versions ended[VOLUMES], durable[VOLUMES];
	unsigned due[VOLUMES]; /* flushed[] before that are known to hold */
};

struct setting {
	const char *options;
	unsigned lanes;
	bool store_acks; /* a FLUSH is answered when the store has it */
	bool prefix; /* of epochs, without any FLUSH: not where writes may go past (ack=blocker) */
	bool far;    /* each write takes the store long */
};

static unsigned any(struct theory *t, unsigned below)
{
	return (unsigned)(random_next(&t->random) % below);
}

static off_t log_size(const struct theory *t)
{
	struct stat about;
	cr_assert(stat(t->log, &about) == 0);
	return about.st_size;
}

static uint64_t id_of(uint32_t volume) { return volume + 1; }

/* --- asking -------------------------------------------------------------------------------- */

static void range_any(struct theory *t, uint32_t *first, uint32_t *count)
{
	static const uint32_t most[] = {1, 8, 8, 8, 64, 300};
	*count = 1 + any(t, most[any(t, countof(most))]);
	*first = any(t, SECTORS - *count + 1);
	if (any(t, 3) == 0) { /* whole buckets */
		*first = *first / 8 * 8;
		*count = (*count + 7) / 8 * 8;
		if (*first + *count > SECTORS)
			*first = SECTORS - *count;
	}
}

static void ask(struct theory *t, struct client_request *request, uint32_t volume)
{
	request->key.volume = id_of(volume);
	int error = client_do(&t->client, request);
	cr_assert(error == 0, "%s: op %d of volume %u: %s", t->setting->options, request->op,
		volume, strerror(-error));
}

static void note_flushed(struct theory *t, uint32_t volume, struct versions *then)
{
	if (t->flushed_count == FLUSHES) {
		free(then);
		return;
	}
	t->flushed[t->flushed_count++] = (struct flushed){volume, t->number, log_size(t), then};
}

static struct versions *copy_of(const struct versions *versions)
{
	struct versions *copy = malloc(sizeof(*copy));
	cr_assert(copy);
	return memcpy(copy, versions, sizeof(*copy));
}

static void do_write(struct theory *t, uint32_t volume, uint32_t object)
{
	uint32_t first, count;
	range_any(t, &first, &count);
	bool fua = any(t, 40) == 0;
	t->number++;
	for (uint32_t i = 0; i < count; i++) {
		uint8_t *sector = t->out + i * SECTOR;
		struct stamp stamp = {STAMP_MAGIC, volume, object, first + i, t->number};
		memset(sector, (int)t->number, SECTOR);
		memcpy(sector, &stamp, sizeof(stamp));
	}
	struct client_request request = {.op = XSEG_OP_WRITE,
		.flags = fua	     ? XSEG_F_FUA
			 : any(t, 2) ? XSEG_F_DONATE
				     : 0,
		.key.object = object,
		.offset = first * SECTOR,
		.length = count * SECTOR,
		.send = t->out,
		.send_size = count * SECTOR};
	ask(t, &request, volume);
	struct versions *own = fua ? calloc(1, sizeof(*own)) : NULL;
	for (uint32_t i = 0; i < count; i++) {
		t->now[volume].of[object][first + i] = t->number;
		if (own)
			own->of[object][first + i] = t->number;
	}
	if (own)
		note_flushed(t, volume, own);
}

static void do_zero(struct theory *t, uint32_t volume)
{
	uint32_t first, count;
	range_any(t, &first, &count);
	t->number++;
	struct client_request request = {.op = any(t, 2) ? XSEG_OP_ZERO : XSEG_OP_DISCARD,
		.key.object = ZEROED,
		.offset = first * SECTOR,
		.length = count * SECTOR};
	ask(t, &request, volume);
	memset(&t->now[volume].of[ZEROED][first], 0, count * sizeof(uint32_t));
}

static void check_sector(
	struct theory *t, uint32_t volume, uint32_t object, uint32_t sector, const uint8_t *data)
{
	uint32_t expect = t->now[volume].of[object][sector];
	struct stamp stamp;
	memcpy(&stamp, data, sizeof(stamp));
	bool right = expect == 0 ? stamp.magic == 0 && stamp.number == 0 && data[SECTOR - 1] == 0
				 : stamp.magic == STAMP_MAGIC && stamp.volume == volume &&
					   stamp.object == object && stamp.sector == sector &&
					   stamp.number == expect &&
					   data[SECTOR - 1] == (uint8_t)expect;
	cr_assert(right, "%s: volume %u object %u sector %u is of write %u, not %u",
		t->setting->options, volume, object, sector, stamp.number, expect);
}

static void do_read(struct theory *t, uint32_t volume, uint32_t object)
{
	uint32_t first, count;
	range_any(t, &first, &count);
	struct client_request request = {.op = XSEG_OP_READ,
		.flags = any(t, 2) ? XSEG_F_PIN : 0,
		.key.object = object,
		.offset = first * SECTOR,
		.length = count * SECTOR,
		.receive = t->in,
		.receive_size = count * SECTOR};
	ask(t, &request, volume);
	for (uint32_t i = 0; i < count; i++)
		check_sector(t, volume, object, first + i, t->in + i * SECTOR);
}

/* Answered later: what is written meanwhile is on either side of it. */
static void flush_begin(struct theory *t, uint32_t volume)
{
	if (t->flush_then[volume])
		return;
	t->flush_then[volume] = copy_of(&t->now[volume]);
	t->flush[volume] =
		(struct client_request){.op = XSEG_OP_FLUSH, .key.volume = id_of(volume)};
	cr_assert(client_start(&t->client, &t->flush[volume]) == 0);
}

static void flush_end(struct theory *t)
{
	struct client_request *done;
	int rc = client_collect(&t->client, &done);
	if (rc == -ENOENT)
		return;
	cr_assert(rc == 0 && done->result == 0, "%s: a FLUSH: %d, %s", t->setting->options, rc,
		rc ? "" : strerror(-done->result));
	uint32_t volume = (uint32_t)(done - t->flush);
	note_flushed(t, volume, t->flush_then[volume]);
	t->flush_then[volume] = NULL;
}

static void step(struct theory *t)
{
	uint32_t volume = any(t, VOLUMES), object = any(t, OBJECTS);
	switch (any(t, 32)) {
	case 0: flush_begin(t, volume); break;
	case 1:
	case 2: flush_end(t); break;
	case 3: do_zero(t, volume); break;
	case 4: usleep(any(t, 3000)); break;
	default:
		if (any(t, 5) < 3)
			do_write(t, volume, object);
		else
			do_read(t, volume, object);
	}
}

/* --- the log ------------------------------------------------------------------------------- */

static void raise_to(struct versions *low, const struct versions *high)
{
	for (uint32_t o = 0; o < OBJECTS; o++)
		for (uint32_t s = 0; s < SECTORS; s++)
			if (low->of[o][s] < high->of[o][s])
				low->of[o][s] = high->of[o][s];
}

/* Is everything of `then` durable? */
static void check_durable(
	struct theory *t, const struct flushed *flushed, const char *law, uint64_t number)
{
	const struct versions *durable = &t->durable[flushed->volume];
	for (uint32_t o = 0; o < ZEROED; o++)
		for (uint32_t s = 0; s < SECTORS; s++)
			cr_assert(durable->of[o][s] >= flushed->then->of[o][s],
				"%s: %s at note %llu: volume %u object %u sector %u is of write "
				"%u, "
				"%u was flushed",
				t->setting->options, law, (unsigned long long)number,
				flushed->volume, o, s, durable->of[o][s], flushed->then->of[o][s]);
}

/* The highest write in it, and into `out`. */
static uint32_t note_versions(
	struct theory *t, const struct note *note, const uint8_t *heads, struct versions *out)
{
	uint32_t highest = 0;
	for (uint32_t i = 0; i < note->carried / HEAD; i++) {
		uint32_t sector = (uint32_t)(note->offset / SECTOR) + i;
		struct stamp stamp;
		memcpy(&stamp, heads + i * HEAD, sizeof(stamp));
		if (note->object == ZEROED || stamp.magic != STAMP_MAGIC)
			continue;
		cr_assert(stamp.volume == note->volume - 1 && stamp.object == note->object &&
				  stamp.sector == sector && sector < SECTORS,
			"%s: note %llu writes the wrong place", t->setting->options,
			(unsigned long long)note->number);
		if (highest < stamp.number)
			highest = stamp.number;
		if (out && out->of[note->object][sector] < stamp.number)
			out->of[note->object][sector] = stamp.number;
	}
	return highest;
}

/* Something of that number goes to the store: what was flushed before it was written is there. */
static void check_prefix(struct theory *t, uint32_t volume, uint32_t highest, uint64_t number)
{
	for (unsigned i = t->due[volume]; i < t->flushed_count; i++) {
		const struct flushed *flushed = &t->flushed[i];
		if (flushed->volume != volume)
			continue;
		if (flushed->last >= highest)
			break;
		check_durable(t, flushed, "prefix", number);
		t->due[volume] = i + 1;
	}
}

/* Notes of what has begun and not ended, by number. */
struct open_note {
	uint64_t number;
	struct versions *covers; /* FLUSH */
	const struct note *note; /* WRITE */
};
#define OPEN_NOTES 4096u

static struct open_note *open_note(struct open_note *open, uint64_t number)
{
	for (unsigned i = 0; i < OPEN_NOTES; i++)
		if (open[i].number == number)
			return &open[i];
	cr_assert(false, "a note that never began, or too many");
	return NULL;
}

static void log_begin(struct theory *t, struct open_note *open, const struct note *note)
{
	uint32_t volume = (uint32_t)note->volume - 1;
	struct open_note *place = open_note(open, 0);
	*place = (struct open_note){.number = note->number, .note = note};
	if (note->op == XSEG_OP_FLUSH)
		place->covers = copy_of(&t->ended[volume]);
	else if (note->op == XSEG_OP_WRITE && t->setting->prefix)
		check_prefix(t, volume, note_versions(t, note, (const uint8_t *)(note + 1), NULL),
			note->number);
}

static void log_end(struct theory *t, struct open_note *open, const struct note *note)
{
	uint32_t volume = (uint32_t)note->volume - 1;
	struct open_note *place = open_note(open, note->begin);
	const struct note *begin = place->note;
	const uint8_t *heads = (const uint8_t *)(begin + 1);
	cr_assert(note->error == 0);
	if (begin->op == XSEG_OP_WRITE) {
		note_versions(t, begin, heads, &t->ended[volume]);
		if (begin->flags & XSEG_F_FUA)
			note_versions(t, begin, heads, &t->durable[volume]);
	} else if (begin->op == XSEG_OP_FLUSH) {
		raise_to(&t->durable[volume], place->covers);
	}
	free(place->covers);
	*place = (struct open_note){.number = 0};
}

static uint8_t *log_read(const struct theory *t, size_t *size)
{
	*size = (size_t)log_size(t);
	uint8_t *text = malloc(*size + 1);
	int fd = open(t->log, O_RDONLY | O_CLOEXEC);
	cr_assert(text && fd >= 0 && read(fd, text, *size) == (ssize_t)*size);
	close(fd);
	return text;
}

static void check_log(struct theory *t)
{
	static struct open_note open[OPEN_NOTES];
	size_t size, at = 0;
	uint8_t *text = log_read(t, &size);
	unsigned next = 0;
	memset(open, 0, sizeof(open));
	while (at < size) {
		const struct note *note = (const void *)(text + at);
		cr_assert(
			note->magic == NOTE_MAGIC && note->volume >= 1 && note->volume <= VOLUMES);
		for (; next < t->flushed_count && (size_t)t->flushed[next].log <= at; next++)
			if (t->setting->store_acks)
				check_durable(t, &t->flushed[next], "flushed", note->number);
		if (note->kind == NOTE_BEGIN)
			log_begin(t, open, note);
		else
			log_end(t, open, note);
		at += sizeof(*note) + note->carried;
	}
	for (uint32_t volume = 0; volume < VOLUMES; volume++) {
		struct flushed all = {.volume = volume, .then = &t->now[volume]};
		check_durable(t, &all, "stopped", UINT64_MAX);
	}
	free(text);
}

/* --- the theory ---------------------------------------------------------------------------- */

/* Then writes that somebody waits for are durable by themselves. */
static void far(const struct theory *t)
{
	static const char rules[] = "ops=write delay=5000 jitter=3000";
	char path[300];
	snprintf(path, sizeof(path), "%s/rules", t->rig.dir);
	int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	cr_assert(write(fd, rules, strlen(rules)) == (ssize_t)strlen(rules) && close(fd) == 0);
}

static void begin(struct theory *t)
{
	char peers[800];
	scratch_begin();
	rig_open(&t->rig, 96u << 20);
	snprintf(t->log, sizeof(t->log), "%s/log", t->rig.dir);
	snprintf(peers, sizeof(peers),
		"c0=cached,edge.store=%s,size=%uM,epoch=20ms,age=50ms,%s "
		"d0=blocker_meddle,edge.store=r0,rules=@/rules "
		"r0=blocker_record,edge.store=m0,log=@/log,data=heads "
		"m0=blocker_memory,size=32M",
		t->setting->far ? "d0" : "r0", t->setting->lanes, t->setting->options);
	far(t);
	rig_start(&t->rig, 0, t->setting->lanes, peers);
	rig_client(&t->rig, &t->client, "c0");
}

static void end(struct theory *t)
{
	while (t->flush_then[0] || t->flush_then[1] || t->flush_then[2])
		flush_end(t);
	client_close(&t->client);
	rig_stop(&t->rig, 0);
	check_log(t);
	for (unsigned i = 0; i < t->flushed_count; i++)
		free(t->flushed[i].then);
	rig_close(&t->rig);
	scratch_end();
}

static const struct setting settings[] = {
	{"mode=writeback,policy=clock2q", 1, true, false, false},
	{"mode=writeback,policy=s3fifo,read-ahead=64K,bypass=256K", 2, true, false, false},
	/* little room: writes go past, or where they may not, wait */
	{"mode=writeback,policy=lru,dirty-soft=5,dirty-hard=20", 3, true, false, false},
	{"mode=writeback,policy=lru,dirty-soft=5,dirty-hard=20,ack=volatile", 3, false, true,
		false},
	{"mode=writeback,policy=clock2q,ack=journal,journal=@/journal,journal-size=16M", 1, false,
		true, false},
	{"mode=writeback,policy=lru,ack=journal,journal=@/journal,journal-size=16M", 2, false, true,
		false},
	{"mode=writeback,policy=s3fifo,ack=volatile", 2, false, true, false},
	{"mode=writeback,policy=clock2q,strict=no,share=40", 1, true, false, false},
	{"mode=writethrough,policy=lru", 1, true, false, false},
	{"mode=writethrough,policy=clock2q,read-ahead=256K", 2, true, false, false},
	{"mode=writearound,policy=s3fifo", 1, true, false, false},
	{"mode=writeback,policy=clock2q", 1, true, false, true},
	{"mode=writeback,policy=s3fifo,bypass=256K", 2, true, false, true},
};

static void try(const struct setting *setting, unsigned seed)
{
	struct theory *t = calloc(1, sizeof(*t));
	cr_assert(t);
	t->setting = setting;
	t->random = seed * 7919u + (unsigned)(setting - settings) * 104729u + 1;
	begin(t);
	for (unsigned i = 0; i < STEPS; i++)
		step(t);
	end(t);
	free(t);
}

/* --- a crash of the host: the segment is gone, the files are there ---------------------------- */

/* The same segment by name, with nothing in it. */
static void segment_again(struct theory *t)
{
	struct xseg *seg = &t->rig.seg;
	char why[XSEG_WHY_SIZE] = "", name[NAME_LENGTH_MAX + 1];
	snprintf(name, sizeof(name), "%s", seg->name);
	xseg_segment_leave(seg);
	cr_assert(xseg_segment_destroy(name, why) == 0, "%s", why);
	struct xseg_config config = {
		.name = name, .size = 96u << 20, .lanes = 16, .requests = 8192};
	cr_assert(xseg_segment_create(&config, why) == 0, "%s", why);
	cr_assert(xseg_segment_join(name, seg, why) == 0, "%s", why);
}

/* Not older than what was flushed, not newer than what was written, and of the right place. */
static void check_recovered(struct theory *t, uint32_t volume, uint32_t object)
{
	struct client_request request = {.op = XSEG_OP_READ,
		.key.object = object,
		.length = SPAN,
		.receive = t->in,
		.receive_size = SPAN};
	ask(t, &request, volume);
	for (uint32_t s = 0; s < SECTORS; s++) {
		struct stamp stamp;
		memcpy(&stamp, t->in + s * SECTOR, sizeof(stamp));
		cr_assert(stamp.number >= t->durable[volume].of[object][s] &&
				  stamp.number <= t->now[volume].of[object][s],
			"%s: volume %u object %u sector %u is of write %u; %u was flushed, %u "
			"written",
			t->setting->options, volume, object, s, stamp.number,
			t->durable[volume].of[object][s], t->now[volume].of[object][s]);
		cr_assert(stamp.number == 0 ||
			  (stamp.volume == volume && stamp.object == object && stamp.sector == s));
	}
}

static void crash_begin(struct theory *t)
{
	char peers[800];
	scratch_begin();
	rig_open(&t->rig, 96u << 20);
	snprintf(t->log, sizeof(t->log), "%s/log", t->rig.dir);
	cr_assert(close(open(t->log, O_WRONLY | O_CREAT | O_CLOEXEC, 0600)) == 0);
	snprintf(peers, sizeof(peers),
		"c0=cached,edge.store=f0,size=8M,%s f0=blocker_file,dir=@/store",
		t->setting->options);
	rig_start(&t->rig, 0, t->setting->lanes, peers);
	rig_client(&t->rig, &t->client, "c0");
}

/* Twice: the second time with what was replayed the first time, and more. */
static void crash(struct theory *t)
{
	for (unsigned i = 0; i < t->flushed_count; i++)
		raise_to(&t->durable[t->flushed[i].volume], t->flushed[i].then);
	client_close(&t->client);
	rig_kill(&t->rig, 0);
	segment_again(t);
	rig_start_again(&t->rig, 0);
	rig_client(&t->rig, &t->client, "c0");
	for (uint32_t volume = 0; volume < VOLUMES; volume++)
		for (uint32_t object = 0; object < ZEROED; object++)
			check_recovered(t, volume, object);
}

static const struct setting crash_settings[] = {
	{"ack=journal,journal=@/journal,journal-size=16M,epoch=20ms,age=50ms", 1, false, false,
		false},
	{"ack=journal,journal=@/journal,journal-size=16M,epoch=20ms,age=10s", 2, false, false,
		false},
	{"ack=journal,journal=@/journal,journal-size=64M,epoch=1s,age=10s", 3, false, false, false},
	{"ack=blocker,journal=@/journal,journal-size=16M,epoch=20ms,age=50ms", 2, false, false,
		false},
};

/* After the crash nobody knows what of the rest is there: what is read then is what counts. */
static void settle(struct theory *t)
{
	for (uint32_t volume = 0; volume < VOLUMES; volume++)
		for (uint32_t object = 0; object < OBJECTS; object++) {
			struct client_request request = {.op = XSEG_OP_READ,
				.key.object = object,
				.length = SPAN,
				.receive = t->in,
				.receive_size = SPAN};
			ask(t, &request, volume);
			for (uint32_t s = 0; s < SECTORS; s++) {
				struct stamp stamp;
				memcpy(&stamp, t->in + s * SECTOR, sizeof(stamp));
				t->now[volume].of[object][s] = stamp.number;
			}
		}
}

static void try_crash(const struct setting *setting, unsigned seed)
{
	struct theory *t = calloc(1, sizeof(*t));
	cr_assert(t);
	t->setting = setting;
	t->random = seed * 7919u + (unsigned)(setting - crash_settings) * 104729u + 3;
	crash_begin(t);
	for (unsigned round = 0; round < 2; round++) {
		for (unsigned i = 0; i < STEPS / 2; i++)
			step(t);
		while (any(t, 2) && (t->flush_then[0] || t->flush_then[1] || t->flush_then[2]))
			flush_end(t);
		for (uint32_t volume = 0; volume < VOLUMES; volume++) {
			free(t->flush_then[volume]);
			t->flush_then[volume] = NULL;
		}
		crash(t);
		settle(t);
	}
	client_close(&t->client);
	for (unsigned i = 0; i < t->flushed_count; i++)
		free(t->flushed[i].then);
	rig_close(&t->rig);
	scratch_end();
	free(t);
}

TheoryDataPoints(cache, journal_brings_back) = {
	DataPoints(unsigned, 0, 1, 2, 3),
	DataPoints(unsigned, 1, 2),
};

Theory((unsigned setting, unsigned seed), cache, journal_brings_back, .timeout = 120)
{
	cr_assert_lt(setting, countof(crash_settings));
	try_crash(&crash_settings[setting], seed);
}

TheoryDataPoints(cache, store_is_a_prefix) = {
	DataPoints(unsigned, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12),
	DataPoints(unsigned, 1, 2),
};

Theory((unsigned setting, unsigned seed), cache, store_is_a_prefix, .timeout = 120)
{
	cr_assert_lt(setting, countof(settings));
	try(&settings[setting], seed);
}
