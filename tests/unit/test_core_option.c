/* SPDX-License-Identifier: Apache-2.0 */
/* Options: what each type takes, what it refuses, and how it says so. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/core_rig.h"

struct values {
	char *text;
	struct peer_list list;
	bool truth;
	uint64_t count, size, time, choice;
};

static const char *const choices[] = {"auto", "off", "require", NULL};

static const struct peer_option table[] = {
	OPTION_TEXT(struct values, text, "text", .required = true, .help = "the words"),
	OPTION_LIST(struct values, list, "listen", .max = 255, .help = "where"),
	OPTION_BOOL(struct values, truth, "read-only", .initial = "yes", .help = "whether"),
	OPTION_COUNT(struct values, count, "files", .min = 16, .max = 65536, .initial = "1024",
		.unit = "files", .help = "how many"),
	OPTION_SIZE(struct values, size, "size", .min = 4096, .max = 4194304, .initial = "1M",
		.unit = "bytes", .help = "how big"),
	OPTION_TIME(
		struct values, time, "limit", .min = 1000000, .initial = "5s", .help = "how long"),
	OPTION_CHOICE(
		struct values, choice, "tls", .choices = choices, .initial = "off", .help = "when"),
	OPTION_END,
};

UNIT(test_defaults)
{
	struct values v = {0};
	char why[WHY_SIZE];
	ck_assert_int_eq(option_defaults(table, &v, why), 0);
	ck_assert_ptr_null(v.text);
	ck_assert(v.truth);
	ck_assert_uint_eq(v.count, 1024);
	ck_assert_uint_eq(v.size, 1u << 20);
	ck_assert_uint_eq(v.time, 5000000000u);
	ck_assert_uint_eq(v.choice, 1);
	ck_assert_uint_eq(option_count(table), 7);
	option_free(table, &v);
}

UNIT(test_good)
{
	static const struct {
		const char *key, *value;
		uint64_t number;
	} cases[] = {{"files", "16", 16}, {"files", "65536", 65536}, {"size", "4K", 4096},
		{"size", "4MiB", 4194304}, {"size", "8192", 8192}, {"limit", "1ms", 1000000},
		{"limit", "20000us", 20000000}, {"limit", "2m", 120000000000},
		{"tls", "require", 2}, {"tls", "auto", 0}, {"read-only", "no", 0},
		{"read-only", "on", 1}, {"read-only", "TRUE", 1}, {"read-only", "0", 0}};
	char why[WHY_SIZE];
	for (unsigned i = 0; i < countof(cases); i++) {
		struct values v = {.truth = !cases[i].number};
		ck_assert_int_eq(option_set(table, &v, cases[i].key, cases[i].value, why), 0);
		uint64_t got = *cases[i].key == 'f'   ? v.count
			       : *cases[i].key == 's' ? v.size
			       : *cases[i].key == 'l' ? v.time
			       : *cases[i].key == 't' ? v.choice
						      : v.truth;
		ck_assert_uint_eq(got, cases[i].number);
	}
}

UNIT(test_bad)
{
	static const struct {
		const char *key, *value, *says;
	} cases[] = {
		{"files", "15", "option 'files' must be 16 to 65536 files, not '15'"},
		{"files", "65537", "must be 16 to 65536 files"},
		{"files", "99999999999999999999", "must be 16 to 65536 files"},
		{"files", "-20", "option 'files' takes a plain number, not '-20'"},
		{"files", "20x", "takes a plain number"},
		{"files", "", "takes a plain number"},
		{"size", "1K", "option 'size' must be 4K to 4M, not '1K'"},
		{"size", "1X", "takes a size such as"},
		{"limit", "1us", "option 'limit' must be at least 1ms, not '1us'"},
		{"limit", "5d", "takes a time such as"},
		{"limit", "5 s", "takes a time such as"},
		{"tls", "On", "option 'tls' takes auto, off, require, not 'On'"},
		{"read-only", "maybe", "takes yes or no"},
	};
	char why[WHY_SIZE];
	for (unsigned i = 0; i < countof(cases); i++) {
		struct values v = {.count = 7, .size = 7, .time = 7, .choice = 7};
		ck_assert_int_eq(option_set(table, &v, cases[i].key, cases[i].value, why), -EINVAL);
		ck_assert_msg(strstr(why, cases[i].says), "case %u: %s", i, why);
		/* and nothing was changed */
		ck_assert_uint_eq(v.count + v.size + v.time + v.choice, 28);
	}
}

UNIT(test_texts)
{
	struct values v = {0};
	char why[WHY_SIZE];
	ck_assert_int_eq(option_set(table, &v, "text", "one", why), 0);
	ck_assert_int_eq(option_set(table, &v, "text", "", why), 0);
	ck_assert_str_eq(v.text, "");
	for (unsigned i = 0; i < 20; i++)
		ck_assert_int_eq(option_set(table, &v, "listen", i % 2 ? "odd" : "even", why), 0);
	ck_assert_uint_eq(v.list.count, 20);
	ck_assert_str_eq(v.list.item[0], "even");
	ck_assert_str_eq(v.list.item[19], "odd");
	option_free(table, &v);
	ck_assert_uint_eq(v.list.count, 0);
}

UNIT(test_missing)
{
	bool given[7] = {false};
	char why[WHY_SIZE];
	ck_assert_int_eq(option_missing(table, given, why), -EINVAL);
	ck_assert_str_eq(why, "option 'text' is missing: the words");
	given[0] = true;
	ck_assert_int_eq(option_missing(table, given, why), 0);
	ck_assert_int_eq(option_missing(NULL, given, why), 0);
}

UNIT(test_hint)
{
	static const char *const edges[] = {"volume", NULL};
	char text[256];
	option_hint(table, edges, "lisen", text, sizeof(text));
	ck_assert_str_eq(text, "did you mean 'listen'?");
	option_hint(table, edges, "edge.volum", text, sizeof(text));
	ck_assert_str_eq(text, "did you mean 'edge.volume'?");
	option_hint(table, NULL, "zzzzzzzz", text, sizeof(text));
	ck_assert_str_eq(text, "it takes text, listen, read-only, files, size, limit, tls");
	option_hint(NULL, NULL, "any", text, sizeof(text));
	ck_assert_str_eq(text, "it takes none");
	char small[12];
	option_hint(table, NULL, "zzzzzzzz", small, sizeof(small));
	ck_assert_uint_lt(strlen(small), sizeof(small));
}

/* Each text has a limit, its own or that of a path. */
UNIT(test_long)
{
	static const struct {
		const char *key;
		size_t most;
	} cases[] = {{"listen", 255}, {"text", PEER_TEXT_MAX}};
	char text[PEER_TEXT_MAX + 2], why[WHY_SIZE], want[32];
	for (unsigned i = 0; i < countof(cases); i++) {
		struct values v = {0};
		memset(text, 'x', sizeof(text));
		text[cases[i].most] = 0;
		ck_assert_int_eq(option_set(table, &v, cases[i].key, text, why), 0);
		text[cases[i].most] = 'x';
		text[cases[i].most + 1] = 0;
		ck_assert_int_eq(option_set(table, &v, cases[i].key, text, why), -EINVAL);
		snprintf(want, sizeof(want), "at most %zu characters", cases[i].most);
		ck_assert_ptr_nonnull(strstr(why, want));
		option_free(table, &v);
	}
}
