/* SPDX-License-Identifier: Apache-2.0 */
/* Times as people write and read them. */
#include <base/must.h>
#include <base/time.h>
#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <strings.h>

static const struct {
	const char *word;
	uint64_t ns;
} units[] = {{"ns", 1}, {"us", NS_PER_US}, {"ms", NS_PER_MS}, {"s", NS_PER_S}, {"m", 60 * NS_PER_S},
	{"min", 60 * NS_PER_S}, {"h", 3600 * NS_PER_S}};

static int unit_of(const char *word, uint64_t *ns)
{
	if (!*word)
		word = "s";
	for (size_t i = 0; i < countof(units); i++)
		if (!strcasecmp(units[i].word, word)) {
			*ns = units[i].ns;
			return 0;
		}
	return -EINVAL;
}

int time_parse(const char *text, uint64_t *ns)
{
	uint64_t whole = 0, over = 0, under = 1, unit;
	bool overflow = false;
	if (!isdigit((unsigned char)*text))
		return -EINVAL;
	for (; isdigit((unsigned char)*text); text++)
		overflow |= __builtin_mul_overflow(whole, 10u, &whole) ||
			    __builtin_add_overflow(whole, (uint64_t)(*text - '0'), &whole);
	if (*text == '.') {
		if (!isdigit((unsigned char)*++text))
			return -EINVAL;
		for (; isdigit((unsigned char)*text); text++) {
			if (under >= NS_PER_S)
				continue; /* less than a nanosecond */
			over = over * 10 + (uint64_t)(*text - '0');
			under *= 10;
		}
	}
	if (unit_of(text, &unit))
		return -EINVAL;
	uint64_t part = (uint64_t)((unsigned __int128)over * unit / under);
	if (overflow || __builtin_mul_overflow(whole, unit, &whole) ||
		__builtin_add_overflow(whole, part, &whole) || whole > INT64_MAX)
		return -ERANGE;
	*ns = whole;
	return 0;
}

const char *time_format(uint64_t ns, char *buffer, size_t size)
{
	size_t best = 0;
	for (size_t i = 0; i < countof(units); i++)
		if (ns >= units[i].ns && ns % units[i].ns == 0 && units[i].ns != units[best].ns)
			best = i;
	snprintf(buffer, size, "%llu%s", (unsigned long long)(ns / units[best].ns),
		units[best].word);
	return buffer;
}
