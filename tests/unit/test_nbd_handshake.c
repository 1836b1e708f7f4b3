/* SPDX-License-Identifier: Apache-2.0 */
/* The handshake, byte for byte: options by table, fed whole and in random cuts. */
#include <errno.h>

#include "peers/front/nbd_handshake.h"
#include "tests/lib/unit.h"

#define STREAM_MAX (256u << 10)

/* --- bytes as text --------------------------------------------------------------- */

static uint8_t *unhex(uint8_t *to, const char *text)
{
	for (; *text; text++) {
		if (*text == ' ')
			continue;
		if (*text == '\'') { /* 'text' */
			const char *end = strchr(text + 1, '\'');
			memcpy(to, text + 1, (size_t)(end - text - 1));
			to += end - text - 1;
			text = end;
			continue;
		}
		unsigned byte;
		ck_assert_int_eq(sscanf(text, "%2x", &byte), 1);
		*to++ = (uint8_t)byte;
		text++;
	}
	return to;
}

static uint8_t *put_option(uint8_t *to, uint32_t option, const char *data)
{
	uint8_t *body = nbd_put32(nbd_put64(to, NBD_OPTION_MAGIC), option) + 4;
	uint8_t *end = unhex(body, data);
	nbd_put32(body - 4, (uint32_t)(end - body));
	return end;
}

/* --- an owner with two volumes --------------------------------------------------- */

struct owner {
	struct nbd_handshake h;
	enum nbd_ask last;
	unsigned tls;
};

static void owner_find(struct owner *o, bool open)
{
	struct xseg_volume_info info = {.id = 5, .size = 0x100000, .object_size = 4 << 20};
	const char *name = *o->h.name ? o->h.name : "disk";
	bool found = !strcmp(name, "disk") || !strcmp(name, "two");
	strcpy(info.name, name);
	(void)open;
	o->last = nbd_handshake_found(&o->h, found ? 0 : -ENOENT, &info);
}

/* Each has "a" and "b". */
static void owner_snapshots(struct owner *o)
{
	const struct nbd_option_dirty *dirty = &o->h.dirty;
	for (unsigned i = 0; i < dirty->count && !dirty->all; i++)
		if (!strcmp(dirty->name[i], "a") || !strcmp(dirty->name[i], "b"))
			nbd_handshake_snapshot(
				&o->h, dirty->name[i], 100u + (uint8_t)*dirty->name[i], 512);
	if (dirty->all) {
		nbd_handshake_snapshot(&o->h, "a", 100 + 'a', 512);
		nbd_handshake_snapshot(&o->h, "b", 100 + 'b', 512);
	}
	o->last = nbd_handshake_snapshots_end(&o->h, 0);
}

static void owner_act(struct owner *o)
{
	switch (o->last) {
	case NBD_ASK_LIST:
		nbd_handshake_listed(&o->h, "disk");
		nbd_handshake_listed(&o->h, "two");
		o->last = nbd_handshake_list_end(&o->h, 0);
		break;
	case NBD_ASK_INFO: owner_find(o, false); break;
	case NBD_ASK_OPEN: owner_find(o, true); break;
	case NBD_ASK_SNAPSHOTS: owner_snapshots(o); break;
	case NBD_ASK_TLS:
		o->tls++;
		nbd_handshake_secured(&o->h);
		o->last = NBD_ASK_BYTES;
		break;
	default: break;
	}
}

/* Feeds at most `cut` bytes at a time (0: random) as a receive buffer would: what is left stays in
   front. */
static size_t owner_feed(
	struct owner *o, const uint8_t *data, size_t size, unsigned cut, uint64_t *seed)
{
	size_t eaten = 0, seen = 0;
	o->last = NBD_ASK_BYTES;
	while (o->last == NBD_ASK_BYTES) {
		size_t step;
		o->last = nbd_handshake_eat(&o->h, data + eaten, seen - eaten, &step);
		eaten += step;
		bool asked = o->last != NBD_ASK_BYTES;
		owner_act(o);
		if (o->last == NBD_ASK_SNAPSHOTS)
			owner_act(o);
		if (asked || (step && o->last == NBD_ASK_BYTES))
			continue;
		if (seen == size)
			break;
		size_t more = cut ? cut : 1 + random_next(seed) % 40;
		seen = seen + more < size ? seen + more : size;
	}
	return eaten;
}

static void owner_init(struct owner *o)
{
	*o = (struct owner){.h = {.payload_max = 32 << 20, .tls_offered = true, .patching = true}};
	nbd_handshake_init(&o->h);
}

/* The replies after the greeting, as "type length data"; texts of errors are left out. */
static size_t strip(const struct nbd_bytes *out, uint8_t *to)
{
	uint8_t *begin = to;
	size_t at = 18;
	while (at + 20 <= out->size && nbd_get64(out->data + at) == NBD_OPTION_REPLY_MAGIC) {
		uint32_t type = nbd_get32(out->data + at + 12),
			 size = nbd_get32(out->data + at + 16);
		to = nbd_put32(to, nbd_get32(out->data + at + 8));
		to = nbd_put32(to, type);
		ck_assert_uint_le(at + 20 + size, out->size);
		if (!(type & 0x80000000u)) {
			to = nbd_put32(to, size);
			memcpy(to, out->data + at + 20, size);
			to += size;
		}
		at += 20 + size;
	}
	memcpy(to, out->data + at, out->size - at); /* of EXPORT_NAME */
	return (size_t)(to - begin) + out->size - at;
}

/* --- the tables ------------------------------------------------------------------ */

struct row {
	const char *name;
	struct {
		uint32_t option;
		const char *data;
	} say[6];
	const char *expect; /* option type [length data] ... */
	enum nbd_ask last;
	const char *flags; /* of the client; NULL: fixed newstyle without zeroes */
	bool tls_required, no_tls, read_only;
};

#define ACK(o) "000000" o "00000001 00000000 "
#define ERR(o, e) "000000" o "800000" e
#define DIRTY(option, context, name) \
	"000000" option " 00000004 00000012 000000" context " 'skerry:dirty:" name "' "
#define EXPORT(o, f) "000000" o "00000003 0000000c 0000 0000000000100000 " f " "
#define BLOCKS(o) "000000" o "00000003 0000000e 0003 00000200 00001000 02000000 "

static const struct row rows[] = {
	{"abort", {{2, ""}}, ACK("02"), .last = NBD_ASK_CLOSE},
	{"abort with data", {{2, "616263"}}, ACK("02"), .last = NBD_ASK_CLOSE},
	{"list", {{3, ""}},
		"00000003 00000002 00000008 00000004 'disk' 00000003 00000002 00000007 00000003 "
		"'two' " ACK("03"),
		.last = NBD_ASK_BYTES},
	{"list with data", {{3, "00"}, {3, ""}},
		ERR("03", "03") "00000003 00000002 00000008 00000004 'disk' 00000003 00000002 "
				"00000007 00000003 "
				"'two' " ACK("03"),
		.last = NBD_ASK_BYTES},
	{"peek export", {{4, ""}}, ERR("04", "01"), .last = NBD_ASK_BYTES},
	{"option 0", {{0, ""}}, ERR("00", "01"), .last = NBD_ASK_BYTES},
	{"extended headers", {{11, ""}}, ERR("0b", "01"), .last = NBD_ASK_BYTES},
	{"unknown with data, then another", {{99, "0102030405"}, {2, ""}},
		ERR("63", "01") ACK("02"), .last = NBD_ASK_CLOSE},
	{"export name", {{1, "'disk'"}}, "0000000000100000 0d6d", .last = NBD_ASK_SERVE},
	{"export name, the default", {{1, ""}}, "0000000000100000 0d6d", .last = NBD_ASK_SERVE},
	{"export name, unknown", {{1, "'nope'"}}, "", .last = NBD_ASK_CLOSE},
	{"export name, read-only", {{1, "'disk'"}}, "0000000000100000 050f", .last = NBD_ASK_SERVE,
		.read_only = true},
	{"info", {{6, "00000004 'disk' 0000"}}, EXPORT("06", "0d6d") ACK("06"),
		.last = NBD_ASK_BYTES},
	{"info of all kinds", {{6, "00000004 'disk' 0004 0000 0001 0003 7777"}},
		EXPORT("06", "0d6d") "00000006 00000003 00000006 0001 'disk' " BLOCKS("06")
			ACK("06"),
		.last = NBD_ASK_BYTES},
	{"info, unknown name", {{6, "00000003 'abc' 0000"}}, ERR("06", "06"),
		.last = NBD_ASK_BYTES},
	{"info, a name with NUL", {{6, "00000003 610062 0000"}}, ERR("06", "06"),
		.last = NBD_ASK_BYTES},
	{"info, nothing", {{6, ""}}, ERR("06", "03"), .last = NBD_ASK_BYTES},
	{"info, name too long", {{6, "00000005 'disk' 0000"}}, ERR("06", "03"),
		.last = NBD_ASK_BYTES},
	{"info, name of 4 GiB", {{6, "ffffffff 'disk' 0000"}}, ERR("06", "03"),
		.last = NBD_ASK_BYTES},
	{"info, requests missing", {{6, "00000004 'disk' 0001"}}, ERR("06", "03"),
		.last = NBD_ASK_BYTES},
	{"info, a byte too many", {{6, "00000004 'disk' 0000 00"}}, ERR("06", "03"),
		.last = NBD_ASK_BYTES},
	{"go", {{7, "00000004 'disk' 0001 0003"}}, EXPORT("07", "0d6d") BLOCKS("07") ACK("07"),
		.last = NBD_ASK_SERVE},
	{"go after a failed one", {{7, "00000001 'x' 0000"}, {7, "00000000 0000"}},
		ERR("07", "06") EXPORT("07", "0d6d") ACK("07"), .last = NBD_ASK_SERVE},
	{"structured, go", {{8, ""}, {7, "00000004 'disk' 0000"}},
		ACK("08") EXPORT("07", "0ded") ACK("07"), .last = NBD_ASK_SERVE},
	{"structured with data", {{8, "00"}, {7, "00000004 'disk' 0000"}},
		ERR("08", "03") EXPORT("07", "0d6d") ACK("07"), .last = NBD_ASK_SERVE},
	{"meta before structured",
		{{10, "00000004 'disk' 00000001 0000000f 'base:allocation'"},
			{9, "00000004 'disk' 00000000"}},
		ERR("0a", "03") ERR("09", "03"), .last = NBD_ASK_BYTES},
	{"list meta",
		{{8, ""}, {9, "00000004 'disk' 00000000"},
			{9, "00000004 'disk' 00000001 00000005 'base:'"},
			{9, "00000004 'disk' 00000001 00000003 'x:y'"}},
		ACK("08") "00000009 00000004 00000013 00000000 'base:allocation' " DIRTY(
			"09", "00", "a") DIRTY("09", "00", "b")
			ACK("09") "00000009 00000004 00000013 00000000 'base:allocation' " ACK("09")
				ACK("09"),
		.last = NBD_ASK_BYTES},
	{"list snapshots",
		{{8, ""}, {9, "00000004 'disk' 00000001 00000007 'skerry:'"},
			{9, "00000004 'disk' 00000001 0000000d 'skerry:dirty:'"},
			{9, "00000004 'disk' 00000002 0000000e 'skerry:dirty:b' 0000000e "
			    "'skerry:dirty:c'"}},
		ACK("08") DIRTY("09", "00", "a") DIRTY("09", "00", "b") ACK("09") DIRTY("09", "00",
			"a") DIRTY("09", "00", "b") ACK("09") DIRTY("09", "00", "b") ACK("09"),
		.last = NBD_ASK_BYTES},
	{"set snapshots",
		{{8, ""},
			{10, "00000004 'disk' 00000004 0000000e 'skerry:dirty:b' 0000000f "
			     "'base:allocation' 0000000e 'skerry:dirty:a' 0000000e "
			     "'skerry:dirty:b'"},
			{10, "00000004 'disk' 00000001 0000000d 'skerry:dirty:'"}},
		ACK("08") "0000000a 00000004 00000013 00000001 'base:allocation' " DIRTY(
			"0a", "02", "b") DIRTY("0a", "03", "a") ACK("0a") DIRTY("0a", "02", "a")
			DIRTY("0a", "03", "b") ACK("0a"),
		.last = NBD_ASK_BYTES},
	{"set meta",
		{{8, ""},
			{10, "00000004 'disk' 00000002 00000003 'x:y' 0000000f 'base:allocation'"},
			{10, "00000004 'disk' 00000001 00000005 'base:'"}},
		ACK("08") "0000000a 00000004 00000013 00000001 'base:allocation' " ACK("0a")
			ACK("0a"),
		.last = NBD_ASK_BYTES},
	{"meta, torn",
		{{8, ""}, {10, "00000004 'disk' 00000001 00000010 'base:allocation'"},
			{9, "00000004 'disk' 00000002 00000001 'a'"},
			{9, "00000004 'disk' ffffffff"}, {9, "00000004 'disk' 00000000 00"},
			{9, "00000004 'disk'"}},
		ACK("08") ERR("0a", "03") ERR("09", "03") ERR("09", "03") ERR("09", "03")
			ERR("09", "03"),
		.last = NBD_ASK_BYTES},
	{"meta of an unknown export",
		{{8, ""}, {10, "00000001 'x' 00000001 0000000f 'base:allocation'"}},
		ACK("08") ERR("0a", "06"), .last = NBD_ASK_BYTES},
	{"starttls", {{5, ""}, {5, ""}}, ACK("05") ERR("05", "03"), .last = NBD_ASK_BYTES},
	{"starttls with data", {{5, "00"}}, ERR("05", "03"), .last = NBD_ASK_BYTES},
	{"starttls, no certificate", {{5, ""}}, ERR("05", "02"), .last = NBD_ASK_BYTES,
		.no_tls = true},
	{"starttls forgets", {{8, ""}, {5, ""}, {7, "00000004 'disk' 0000"}},
		ACK("08") ACK("05") EXPORT("07", "0d6d") ACK("07"), .last = NBD_ASK_SERVE},
	{"tls required", {{3, ""}, {7, "00000004 'disk' 0000"}, {99, "00"}, {2, ""}},
		ERR("03", "05") ERR("07", "05") ERR("63", "05") ACK("02"), .last = NBD_ASK_CLOSE,
		.tls_required = true},
	{"tls required, export name", {{1, "'disk'"}}, "", .last = NBD_ASK_CLOSE,
		.tls_required = true},
	{"tls required, and there", {{5, ""}, {7, "00000004 'disk' 0000"}},
		ACK("05") EXPORT("07", "0d6d") ACK("07"), .last = NBD_ASK_SERVE,
		.tls_required = true},
	{"plain newstyle", {{1, "'disk'"}},
		"0000000000100000 0d6d "
		"0000000000000000000000000000000000000000000000000000000000000000"
		"00000000000000000000000000000000000000000000000000000000000000000000000000000000"
		"00000000000000000000000000000000000000000000000000000000000000000000000000000000"
		"000000000000000000000000",
		.last = NBD_ASK_SERVE, .flags = "00000000"},
	{"plain newstyle, another option", {{3, ""}}, "", .last = NBD_ASK_CLOSE,
		.flags = "00000000"},
	{"unknown client flags", {{3, ""}}, "", .last = NBD_ASK_CLOSE, .flags = "00000007"},
};

static size_t row_stream(const struct row *row, uint8_t *to)
{
	uint8_t *end = unhex(to, row->flags ? row->flags : "00000003");
	for (unsigned i = 0; i < countof(row->say) && row->say[i].data; i++)
		end = put_option(end, row->say[i].option, row->say[i].data);
	return (size_t)(end - to);
}

static void row_check(const struct row *row, unsigned cut, uint64_t *seed)
{
	static uint8_t stream[STREAM_MAX], got[STREAM_MAX], want[STREAM_MAX];
	struct owner o;
	owner_init(&o);
	o.h.tls_required = row->tls_required;
	o.h.tls_offered = !row->no_tls;
	o.h.read_only = row->read_only;
	size_t size = row_stream(row, stream);
	size_t eaten = owner_feed(&o, stream, size, cut, seed);
	size_t want_size = (size_t)(unhex(want, row->expect) - want),
	       got_size = strip(&o.h.out, got);
	ck_assert_msg(o.last == row->last, "%s (cut %u): asks %d, not %d", row->name, cut, o.last,
		row->last);
	ck_assert_msg(got_size == want_size && !memcmp(got, want, want_size),
		"%s (cut %u): other bytes", row->name, cut);
	if (row->last != NBD_ASK_CLOSE)
		ck_assert_msg(eaten == size, "%s: %zu of %zu bytes eaten", row->name, eaten, size);
	nbd_handshake_fini(&o.h);
}

UNIT(test_options_by_table)
{
	uint64_t seed = 7;
	for (unsigned i = 0; i < countof(rows); i++)
		for (unsigned cut = 0; cut < 6; cut++)
			row_check(&rows[i], cut == 5 ? 100000 : cut, &seed);
}

UNIT(test_greeting)
{
	uint8_t want[18];
	struct owner o;
	owner_init(&o);
	unhex(want, "'NBDMAGICIHAVEOPT' 0003");
	ck_assert_uint_eq(o.h.out.size, 18);
	ck_assert_mem_eq(o.h.out.data, want, 18);
	nbd_handshake_fini(&o.h);
}

/* One that is too long is thrown away as it comes; the next is understood. */
UNIT(test_long_options)
{
	static const uint32_t sizes[] = {NBD_OPTION_MAX, NBD_OPTION_MAX + 1, NBD_OPTION_MAX * 2};
	static const uint32_t types[] = {
		NBD_REP_ERR_UNSUP, NBD_REP_ERR_TOO_BIG, NBD_REP_ERR_TOO_BIG};
	static uint8_t stream[STREAM_MAX];
	for (unsigned i = 0; i < countof(sizes); i++) {
		struct owner o;
		uint64_t seed = i;
		owner_init(&o);
		uint8_t *end = nbd_put32(stream, 3);
		end = nbd_put32(nbd_put32(nbd_put64(end, NBD_OPTION_MAGIC), 77), sizes[i]);
		memset(end, 0x49, sizes[i]);
		end = put_option(end + sizes[i], NBD_OPT_ABORT, "");
		owner_feed(&o, stream, (size_t)(end - stream), i == 1 ? 1000 : 0, &seed);
		ck_assert_int_eq(o.last, NBD_ASK_CLOSE);
		ck_assert_uint_eq(nbd_get32(o.h.out.data + 18 + 12), types[i]);
		ck_assert_ptr_null(o.h.why);
		nbd_handshake_fini(&o.h);
	}
}

UNIT(test_what_ends_the_session)
{
	static const char *const streams[] = {"00000003 'IHAVEOPS' 00000003 00000000",
		"00000003 'NBDMAGIC'", "00000003 'IHAVEOPT' 00000007 ffffffff",
		"00000003 'IHAVEOPT' 00000001 00020000"};
	uint8_t stream[64];
	uint64_t seed = 1;
	for (unsigned i = 0; i < countof(streams); i++) {
		struct owner o;
		owner_init(&o);
		owner_feed(&o, stream, (size_t)(unhex(stream, streams[i]) - stream), 1, &seed);
		ck_assert_int_eq(o.last, NBD_ASK_CLOSE);
		ck_assert_ptr_nonnull(o.h.why);
		nbd_handshake_fini(&o.h);
	}
}

static struct nbd_session agreed(const char *const (*say)[2], unsigned count)
{
	uint8_t stream[1024], *end = nbd_put32(stream, 3);
	struct owner o;
	uint64_t seed = 1;
	owner_init(&o);
	for (unsigned i = 0; i < count; i++)
		end = put_option(end, (uint32_t)strtoul(say[i][0], NULL, 10), say[i][1]);
	owner_feed(&o, stream, (size_t)(end - stream), 0, &seed);
	ck_assert_int_eq(o.last, NBD_ASK_SERVE);
	nbd_handshake_fini(&o.h);
	return o.h.session;
}

UNIT(test_session)
{
	static const char *const plain[][2] = {{"7", "00000004 'disk' 0000"}};
	static const char *const full[][2] = {{"8", ""},
		{"10", "00000004 'disk' 00000001 0000000f 'base:allocation'"},
		{"7", "00000004 'disk' 0001 0003"}};
	static const char *const other[][2] = {{"8", ""},
		{"10", "00000003 'two' 00000001 0000000f 'base:allocation'"},
		{"7", "00000004 'disk' 0001 0003"}};
	static const char *const undone[][2] = {{"8", ""},
		{"10", "00000004 'disk' 00000001 0000000f 'base:allocation'"}, {"10", "00"},
		{"7", "00000004 'disk' 0000"}};
	struct nbd_session s = agreed(plain, countof(plain));
	ck_assert(
		!s.structured && !s.meta && !s.blocks_known && s.volume == 5 && s.size == 0x100000);
	s = agreed(full, countof(full));
	ck_assert(s.structured && s.meta && s.blocks_known);
	s = agreed(other, countof(other));
	ck_assert(s.structured && !s.meta);
	s = agreed(undone, countof(undone));
	ck_assert(s.structured && !s.meta);
}

/* Bytes that make no sense never make it run away or ask what it may not ask. */
UNIT(test_garbage)
{
	static uint8_t stream[2048];
	uint64_t seed = 42;
	for (unsigned round = 0; round < 3000; round++) {
		struct owner o;
		uint8_t *end = nbd_put32(
			stream, (uint32_t)random_next(&seed) & (round % 2 ? 3 : 0xffffffffu));
		owner_init(&o);
		for (unsigned i = 0; i < 8; i++) {
			uint32_t size = random_next(&seed) % 100;
			end = nbd_put32(nbd_put64(end, NBD_OPTION_MAGIC), random_next(&seed) % 13);
			end = nbd_put32(end, round % 7 ? size : (uint32_t)random_next(&seed));
			for (uint32_t n = 0; n < size; n++)
				*end++ = (uint8_t)(random_next(&seed) % 3 ? 0 : random_next(&seed));
		}
		size_t eaten = owner_feed(&o, stream, (size_t)(end - stream), 0, &seed);
		ck_assert_uint_le(eaten, (size_t)(end - stream));
		nbd_handshake_fini(&o.h);
	}
}
