/* SPDX-License-Identifier: Apache-2.0 */
/* Sizes as people write them, and as they read them. */
#include <base/size.h>
#include <errno.h>

#include "tests/lib/unit.h"

UNIT(test_good)
{
	static const struct {
		const char *text;
		uint64_t size;
	} cases[] = {{"0", 0}, {"1", 1}, {"4096", 4096}, {"4096B", 4096}, {"4K", 4096},
		{"4k", 4096}, {"4KiB", 4096}, {"4Ki", 4096}, {"4kB", 4000}, {"4KB", 4000},
		{"1M", 1u << 20}, {"1.5G", 3ull << 29}, {"1.5GiB", 3ull << 29}, {"0.5K", 512},
		{"2T", 2ull << 40}, {"1P", 1ull << 50}, {"7E", 7ull << 60}, {"10 MiB", 10u << 20},
		{"1MB", 1000000}, {"9223372036854775807", INT64_MAX}, {"0.0009765625K", 0},
		{"00012", 12}, {"1.9999999999999999K", 2047}};
	for (unsigned i = 0; i < countof(cases); i++) {
		uint64_t size = 99;
		ck_assert_msg(size_parse(cases[i].text, &size) == 0, "%s", cases[i].text);
		ck_assert_msg(
			size == cases[i].size, "%s: %llu", cases[i].text, (unsigned long long)size);
	}
}

UNIT(test_bad)
{
	static const struct {
		const char *text;
		int error;
	} cases[] = {{"", -EINVAL}, {"K", -EINVAL}, {"-1", -EINVAL}, {"+1", -EINVAL},
		{" 1", -EINVAL}, {"1X", -EINVAL}, {"1KX", -EINVAL}, {"1.K", -EINVAL},
		{".5K", -EINVAL}, {"1.5", -EINVAL}, {"0x10", -EINVAL}, {"1 2", -EINVAL},
		{"1KiBs", -EINVAL}, {"4bytes", -EINVAL}, {"9223372036854775808", -ERANGE},
		{"8E", -ERANGE}, {"99999999999999999999999", -ERANGE}, {"99999999999G", -ERANGE}};
	for (unsigned i = 0; i < countof(cases); i++) {
		uint64_t size = 99;
		ck_assert_msg(
			size_parse(cases[i].text, &size) == cases[i].error, "%s", cases[i].text);
		ck_assert_uint_eq(size, 99);
	}
}

UNIT(test_format)
{
	static const struct {
		uint64_t size;
		const char *text;
	} cases[] = {{0, "0 B"}, {1023, "1023 B"}, {1024, "1.0 KiB"}, {1536, "1.5 KiB"},
		{1048575, "1.0 MiB"}, {1u << 20, "1.0 MiB"}, {1ull << 30, "1.0 GiB"},
		{3ull << 29, "1.5 GiB"}, {1ull << 40, "1.0 TiB"}, {UINT64_MAX, "16.0 EiB"}};
	char text[32];
	for (unsigned i = 0; i < countof(cases); i++)
		ck_assert_str_eq(size_format(cases[i].size, text, sizeof(text)), cases[i].text);
	char small[4];
	size_format(123456, small, sizeof(small));
	ck_assert_uint_eq(small[3], 0);
}
