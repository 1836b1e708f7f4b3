/* SPDX-License-Identifier: Apache-2.0 */
/* Names: which are allowed, and which was meant. */
#include <base/name.h>
#include <string.h>

#include "tests/lib/unit.h"

UNIT(test_names)
{
	static const char *const good[] = {
		"a", "vol0", "A.b_c-d", "0", "_x", "abcdefghijabcdefghijabcdefghija"};
	static const char *const bad[] = {"", ".", ".a", "-a", "a b", "a/b", "a:b", "a\n",
		"\xc3\xa9", "abcdefghijabcdefghijabcdefghijab"};
	for (unsigned i = 0; i < countof(good); i++)
		ck_assert_msg(name_check(good[i]), "%s", good[i]);
	for (unsigned i = 0; i < countof(bad); i++)
		ck_assert_msg(!name_check(bad[i]), "%s", bad[i]);
}

UNIT(test_volume_names)
{
	static const char *const good[] = {"a", "my disk", ".hidden", "caf\xc3\xa9", "\xe2\x82\xac",
		"\xf0\x9f\x90\x8b", "\xf4\x8f\xbf\xbf", "a:b,c=d", "disk@monday", "a@-"};
	static const char *const bad[] = {"", "-a", "a/b", "a\n", "\x7f", "\x80", "\xc0\xaf",
		"\xe0\x80\xaf", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xc3", "\xe2\x82", "x\xff",
		"\xc2\x85", "\xf8\x88\x80\x80\x80", "@", "a@", "@a", "a@b@c", "a@b/c"};
	char longest[VOLUME_NAME_LENGTH_MAX + 2];
	for (unsigned i = 0; i < countof(good); i++)
		ck_assert_msg(name_check_volume(good[i]), "good %u", i);
	for (unsigned i = 0; i < countof(bad); i++)
		ck_assert_msg(!name_check_volume(bad[i]), "bad %u", i);
	memset(longest, 'x', sizeof(longest));
	longest[VOLUME_PART_MAX] = 0;
	ck_assert(name_check_volume(longest));
	longest[VOLUME_PART_MAX] = '@';
	longest[VOLUME_NAME_LENGTH_MAX] = 0;
	ck_assert(name_check_volume(longest));
	longest[VOLUME_NAME_LENGTH_MAX] = 'x';
	longest[VOLUME_NAME_LENGTH_MAX + 1] = 0;
	ck_assert(!name_check_volume(longest));
	longest[VOLUME_PART_MAX] = 'x';
	longest[VOLUME_PART_MAX + 1] = 0;
	ck_assert(!name_check_volume(longest));
}

UNIT(test_nearest)
{
	static const char *const names[] = {
		"listen", "export", "read-only", "tls", "tls-cert", "tls-key", "front_nbd"};
	static const struct {
		const char *typed, *meant;
	} cases[] = {{"lisen", "listen"}, {"lsiten", "listen"}, {"Listen", "listen"},
		{"exprot", "export"}, {"readonly", "read-only"}, {"tls-crt", "tls-cert"},
		{"front_ndb", "front_nbd"}, {"front", "front_nbd"}, {"tsl", "tls"},
		{"colour", NULL}, {"x", NULL}, {"", NULL}};
	for (unsigned i = 0; i < countof(cases); i++) {
		const char *got = name_nearest(cases[i].typed, names, countof(names));
		if (cases[i].meant)
			ck_assert_pstr_eq(got, cases[i].meant);
		else
			ck_assert_ptr_null(got);
	}
	ck_assert_ptr_null(name_nearest("listen", names, 0));
	char word[200];
	memset(word, 'l', sizeof(word) - 1);
	word[sizeof(word) - 1] = 0;
	ck_assert_ptr_null(name_nearest(word, names, countof(names)));
}

UNIT(test_make_utf8)
{
	char cut[] = "caf\xc3", whole[] = "caf\xc3\xa9 \xe6\x97\xa5",
	     wild[] = "\xff\xc0\x80x\xed\xa0\x80";
	name_make_utf8(cut);
	ck_assert_str_eq(cut, "caf?");
	name_make_utf8(whole);
	ck_assert_str_eq(whole, "caf\xc3\xa9 \xe6\x97\xa5");
	name_make_utf8(wild);
	ck_assert_str_eq(wild, "???x???");
}
