/* SPDX-License-Identifier: Apache-2.0 */
/* Which names are allowed, and which name somebody probably meant. */
#include <base/must.h>
#include <base/name.h>
#include <ctype.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

static bool name_character(unsigned char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
	       c == '.' || c == '_' || c == '-';
}

bool name_check(const char *name)
{
	size_t length = strnlen(name, NAME_LENGTH_MAX + 1);
	if (length == 0 || length > NAME_LENGTH_MAX || *name == '.' || *name == '-')
		return false;
	for (size_t i = 0; i < length; i++)
		if (!name_character((unsigned char)name[i]))
			return false;
	return true;
}

/* Bytes of the UTF-8 character at p (0: not one): no overlong forms, surrogates, > U+10FFFF. */
static size_t name_utf8(const unsigned char *p)
{
	static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
	size_t size = p[0] < 0x80	? 1
		      : p[0] >> 5 == 6	? 2
		      : p[0] >> 4 == 14 ? 3
		      : p[0] >> 3 == 30 ? 4
					: 0;
	if (size < 2)
		return size;
	uint32_t code = p[0] & (0x7fu >> size);
	for (size_t i = 1; i < size; i++) {
		if (p[i] >> 6 != 2) /* the terminating 0 stops here too */
			return 0;
		code = code << 6 | (p[i] & 0x3fu);
	}
	bool good = code >= least[size] && code <= 0x10ffff && (code < 0xd800 || code > 0xdfff) &&
		    code >= 0xa0; /* 0x80-0x9f are control characters */
	return good ? size : 0;
}

void name_make_utf8(char *text)
{
	for (unsigned char *p = (unsigned char *)text; *p;) {
		size_t size = name_utf8(p);
		if (size == 0)
			*p = '?';
		p += size ? size : 1;
	}
}

bool name_check_volume(const char *name)
{
	size_t length = strnlen(name, VOLUME_NAME_LENGTH_MAX + 1), volume = strcspn(name, "@");
	if (length > VOLUME_NAME_LENGTH_MAX || volume == 0 || volume > VOLUME_PART_MAX ||
		*name == '-')
		return false;
	const char *snapshot = name[volume] ? name + volume + 1 : NULL;
	if (snapshot &&
		(!*snapshot || strlen(snapshot) > SNAPSHOT_PART_MAX || strchr(snapshot, '@')))
		return false;
	const unsigned char *p = (const unsigned char *)name;
	while (*p) {
		size_t size = name_utf8(p);
		if (size == 0 || *p < 0x20 || *p == 0x7f || *p == '/')
			return false;
		p += size;
	}
	return true;
}

/* Edits (insert, remove, change, swap of neighbours) between two words of at most 63 characters. */
static unsigned name_distance(const char *a, const char *b)
{
	enum { LIMIT = 63 };
	size_t n = strlen(a), m = strlen(b);
	if (n > LIMIT || m > LIMIT)
		return UINT_MAX;
	unsigned row[3][LIMIT + 1];
	for (size_t j = 0; j <= m; j++)
		row[0][j] = (unsigned)j;
	for (size_t i = 1; i <= n; i++) {
		unsigned *now = row[i % 3], *last = row[(i + 2) % 3], *older = row[(i + 1) % 3];
		now[0] = (unsigned)i;
		for (size_t j = 1; j <= m; j++) {
			unsigned best = last[j - 1] + (tolower((unsigned char)a[i - 1]) !=
							      tolower((unsigned char)b[j - 1]));
			if (last[j] + 1 < best)
				best = last[j] + 1;
			if (now[j - 1] + 1 < best)
				best = now[j - 1] + 1;
			if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] &&
				older[j - 2] + 1 < best)
				best = older[j - 2] + 1;
			now[j] = best;
		}
	}
	return row[n % 3][m];
}

const char *name_nearest(const char *name, const char *const *names, size_t count)
{
	const char *nearest = NULL;
	/* a third of the word may be wrong: more is no longer a slip of the fingers */
	unsigned best = (unsigned)strlen(name) / 3 + 1;
	for (size_t i = 0; i < count; i++) {
		size_t length = strlen(name);
		unsigned distance = name_distance(name, names[i]);
		/* half a word typed: "listen-a" for "listen-address" */
		if (length >= 3 && !strncmp(name, names[i], length))
			distance = 1;
		if (distance < best || (distance == best && !nearest)) {
			best = distance;
			nearest = names[i];
		}
	}
	return nearest;
}

void name_machine(char id[NAME_MACHINE])
{
	FILE *in = fopen("/etc/machine-id", "re");
	*id = 0;
	if (!in)
		return;
	if (fscanf(in, "%32[0-9a-f]", id) != 1 || strlen(id) != NAME_MACHINE - 1)
		*id = 0;
	fclose(in);
}
