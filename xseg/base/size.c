/* SPDX-License-Identifier: Apache-2.0 */
/* Sizes as people write and read them. */
#include <base/must.h>
#include <base/size.h>
#include <ctype.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static const char size_letters[] = "KMGTPE";

/* "" "B" "K" "KB" "KiB" "kB": the factor, or 0 when it is none of these. */
static uint64_t size_unit(const char *unit)
{
	if (!*unit || !strcmp(unit, "B"))
		return 1;
	const char *letter = strchr(size_letters, toupper((unsigned char)*unit));
	if (!letter)
		return 0;
	unsigned power = (unsigned)(letter - size_letters) + 1;
	/* as the manual says: 4K and 4KiB are binary, 4kB and 4KB are decimal */
	if (!unit[1] || !strcmp(unit + 1, "iB") || !strcmp(unit + 1, "i"))
		return 1ull << (10 * power);
	if (strcmp(unit + 1, "B"))
		return 0;
	uint64_t factor = 1;
	while (power--)
		factor *= 1000;
	return factor;
}

/* Digits after the point: numerator over a power of ten; at most 9 are taken. */
static const char *size_fraction(const char *text, uint64_t *over, uint64_t *under)
{
	*over = 0;
	*under = 1;
	for (; isdigit((unsigned char)*text); text++) {
		if (*under >= 1000000000u)
			continue;
		*over = *over * 10 + (uint64_t)(*text - '0');
		*under *= 10;
	}
	return text;
}

int size_parse(const char *text, uint64_t *size)
{
	uint64_t whole = 0, over = 0, under = 1;
	bool overflow = false;
	if (!isdigit((unsigned char)*text))
		return -EINVAL;
	for (; isdigit((unsigned char)*text); text++)
		overflow |= __builtin_mul_overflow(whole, 10u, &whole) ||
			    __builtin_add_overflow(whole, (uint64_t)(*text - '0'), &whole);
	if (*text == '.') {
		if (!isdigit((unsigned char)text[1]))
			return -EINVAL;
		text = size_fraction(text + 1, &over, &under);
	}
	while (*text == ' ')
		text++;
	uint64_t factor = size_unit(text);
	if (!factor || (under > 1 && factor == 1))
		return -EINVAL;
	uint64_t part = (uint64_t)((unsigned __int128)over * factor / under);
	if (overflow || __builtin_mul_overflow(whole, factor, &whole) ||
		__builtin_add_overflow(whole, part, &whole) || whole > INT64_MAX)
		return -ERANGE;
	*size = whole;
	return 0;
}

const char *size_format(uint64_t size, char *buffer, size_t buffer_size)
{
	if (size < 1024) {
		snprintf(buffer, buffer_size, "%u B", (unsigned)size);
		return buffer;
	}
	double value = (double)size;
	unsigned power = 0;
	/* 1023.95 would print as 1024.0 */
	while (power < sizeof(size_letters) - 1 && (power == 0 || value >= 1023.95)) {
		value /= 1024;
		power++;
	}
	snprintf(buffer, buffer_size, "%.1f %ciB", value, size_letters[power - 1]);
	return buffer;
}
