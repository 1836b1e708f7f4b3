/* SPDX-License-Identifier: Apache-2.0 */
/* Times as people write them, and as they read them; ranges of bits. */
#include <base/bits.h>
#include <base/time.h>

#include "tests/lib/unit.h"

UNIT(test_good)
{
	static const struct {
		const char *text;
		uint64_t ns;
	} cases[] = {{"0", 0}, {"0s", 0}, {"1", NS_PER_S}, {"1s", NS_PER_S}, {"1.5", 1500000000},
		{"250ms", 250 * NS_PER_MS}, {"7us", 7000}, {"9ns", 9}, {"2m", 120 * NS_PER_S},
		{"2min", 120 * NS_PER_S}, {"1h", 3600 * NS_PER_S}, {"0.1ns", 0}, {"1MS", NS_PER_MS},
		{"1.0000000019s", NS_PER_S + 1}};
	for (unsigned i = 0; i < countof(cases); i++) {
		uint64_t ns = 99;
		ck_assert_msg(time_parse(cases[i].text, &ns) == 0, "%s", cases[i].text);
		ck_assert_msg(ns == cases[i].ns, "%s: %llu", cases[i].text, (unsigned long long)ns);
		int want = cases[i].ns ? 0 : -EINVAL;
		ck_assert_int_eq(time_parse_positive(cases[i].text, &ns), want);
	}
}

UNIT(test_bad)
{
	static const struct {
		const char *text;
		int error;
	} cases[] = {{"", -EINVAL}, {"s", -EINVAL}, {"-1s", -EINVAL}, {" 1s", -EINVAL},
		{"1 s", -EINVAL}, {"1.s", -EINVAL}, {".5s", -EINVAL}, {"1d", -EINVAL},
		{"1sec", -EINVAL}, {"3000000000h", -ERANGE}, {"99999999999999999999", -ERANGE}};
	for (unsigned i = 0; i < countof(cases); i++) {
		uint64_t ns = 99;
		ck_assert_msg(
			time_parse(cases[i].text, &ns) == cases[i].error, "%s", cases[i].text);
		ck_assert_uint_eq(ns, 99);
	}
}

UNIT(test_format)
{
	static const struct {
		uint64_t ns;
		const char *text;
	} cases[] = {{0, "0ns"}, {1, "1ns"}, {1500, "1500ns"}, {2000, "2us"}, {NS_PER_S, "1s"},
		{90 * NS_PER_S, "90s"}, {120 * NS_PER_S, "2m"}, {7200 * NS_PER_S, "2h"}};
	for (unsigned i = 0; i < countof(cases); i++) {
		char text[32];
		ck_assert_str_eq(time_format(cases[i].ns, text, sizeof(text)), cases[i].text);
	}
}

/* Each range of three words against bits that are looked at one by one. */
UNIT(test_bits)
{
	for (uint32_t first = 0; first < 192; first++)
		for (uint32_t count = 1; first + count <= 192; count++) {
			uint64_t words[3] = {0};
			bits_set(words, first, count);
			for (uint32_t i = 0; i < 192; i++)
				ck_assert_int_eq(
					bits_has(words, i), i >= first && i < first + count);
			ck_assert(bits_all(words, first, count) && bits_any(words, first, count));
			ck_assert(first == 0 || !bits_any(words, 0, first));
			ck_assert(first == 0 || !bits_all(words, first - 1, count + 1));
			bits_clear(words, first, count);
			ck_assert(!bits_any(words, 0, 192));
		}
}
