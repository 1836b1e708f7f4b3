/* SPDX-License-Identifier: Apache-2.0 */
/* A role's options: read by its table, with one clear sentence for each mistake. */
#include <base/name.h>
#include <base/size.h>
#include <base/time.h>
#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "peers/core/core.h"

#define OPTIONS_MAX 64u

struct option_word {
	const char *word;
	uint64_t value;
};

static const struct option_word option_truths[] = {{"yes", 1}, {"no", 0}, {"true", 1}, {"false", 0},
	{"on", 1}, {"off", 0}, {"1", 1}, {"0", 0}};

static int option_word_find(
	const struct option_word *words, size_t count, const char *text, uint64_t *value)
{
	for (size_t i = 0; i < count; i++)
		if (!strcasecmp(words[i].word, text)) {
			*value = words[i].value;
			return 0;
		}
	return -EINVAL;
}

static int option_number(const char *text, const char **rest, uint64_t *value)
{
	char *end;
	if (!isdigit((unsigned char)*text)) /* strtoull takes signs and blanks */
		return -EINVAL;
	errno = 0;
	*value = strtoull(text, &end, 10);
	*rest = end;
	return errno == ERANGE ? -ERANGE : 0;
}

static int option_choice(const struct peer_option *option, const char *text, uint64_t *value)
{
	for (uint64_t i = 0; option->choices[i]; i++)
		if (!strcmp(option->choices[i], text)) {
			*value = i;
			return 0;
		}
	return -EINVAL;
}

/* A value as the number it is; -EINVAL: not one, -ERANGE: not this one. */
static int option_read(const struct peer_option *option, const char *text, uint64_t *value)
{
	const char *rest;
	int error = -EINVAL;
	switch (option->type) {
	case PEER_OPTION_BOOL:
		return option_word_find(option_truths, countof(option_truths), text, value);
	case PEER_OPTION_CHOICE: return option_choice(option, text, value);
	case PEER_OPTION_COUNT:
		error = option_number(text, &rest, value);
		if (!error && *rest)
			error = -EINVAL;
		break;
	case PEER_OPTION_SIZE: error = size_parse(text, value); break;
	case PEER_OPTION_TIME: error = time_parse(text, value); break;
	default: break;
	}
	if (!error && (*value < option->min || (option->max && *value > option->max)))
		error = -ERANGE;
	return error;
}

static void option_print_size(uint64_t value, char *out, size_t size)
{
	static const char *const letters[] = {"", "K", "M", "G", "T"};
	unsigned power = 0;
	while (power < 4 && value && value % 1024 == 0) {
		value /= 1024;
		power++;
	}
	snprintf(out, size, "%llu%s", (unsigned long long)value, letters[power]);
}

/* A number as people write it. */
static void option_print(const struct peer_option *option, uint64_t value, char *out, size_t size)
{
	if (option->type == PEER_OPTION_SIZE)
		option_print_size(value, out, size);
	else if (option->type == PEER_OPTION_TIME)
		time_format(value, out, size);
	else
		snprintf(out, size, "%llu", (unsigned long long)value);
}

const char *option_range(const struct peer_option *option, char *out, size_t size)
{
	char low[32], high[32];
	/* sizes and times bring their own */
	bool plain = option->type == PEER_OPTION_COUNT && option->unit;
	const char *space = plain ? " " : "", *unit = plain ? option->unit : "";
	option_print(option, option->min, low, sizeof(low));
	option_print(option, option->max, high, sizeof(high));
	if (option->min && option->max)
		snprintf(out, size, "%s to %s%s%s", low, high, space, unit);
	else if (option->min)
		snprintf(out, size, "at least %s%s%s", low, space, unit);
	else if (option->max)
		snprintf(out, size, "at most %s%s%s", high, space, unit);
	else
		snprintf(out, size, "%s", "");
	return out;
}

static void option_choices(const struct peer_option *option, char *out, size_t size)
{
	size_t at = 0;
	out[0] = '\0';
	for (size_t i = 0; option->choices[i] && at < size; i++)
		at += (size_t)snprintf(
			out + at, size - at, "%s%s", i ? ", " : "", option->choices[i]);
}

/* What such an option wants, for the end of a sentence. */
static void option_wanted(const struct peer_option *option, char *out, size_t size)
{
	static const char *const forms[] = {
		[PEER_OPTION_BOOL] = "yes or no",
		[PEER_OPTION_COUNT] = "a plain number",
		[PEER_OPTION_SIZE] = "a size such as 4096, 64K or 1GiB",
		[PEER_OPTION_TIME] = "a time such as 20us, 10ms or 5s",
	};
	if (option->type == PEER_OPTION_CHOICE)
		option_choices(option, out, size);
	else
		snprintf(out, size, "%s", forms[option->type]);
}

static int option_complain(
	const struct peer_option *option, const char *value, int error, char why[WHY_SIZE])
{
	char text[256];
	if (error == -ERANGE && option_range(option, text, sizeof(text))[0])
		snprintf(why, WHY_SIZE, "option '%s' must be %s, not '%s'", option->name, text,
			value);
	else if (error == -ERANGE)
		snprintf(why, WHY_SIZE, "option '%s' is too large: '%s'", option->name, value);
	else {
		option_wanted(option, text, sizeof(text));
		snprintf(
			why, WHY_SIZE, "option '%s' takes %s, not '%s'", option->name, text, value);
	}
	return -EINVAL;
}

static int option_list_add(struct peer_list *list, const char *value)
{
	char **grown = realloc(list->item, (list->count + 1) * sizeof(*grown));
	if (!grown)
		return -ENOMEM;
	list->item = grown;
	grown[list->count] = strdup(value);
	if (!grown[list->count])
		return -ENOMEM;
	list->count++;
	return 0;
}

static int option_text_set(char **text, const char *value)
{
	char *copy = strdup(value);
	if (!copy)
		return -ENOMEM;
	free(*text);
	*text = copy;
	return 0;
}

/* Whoever uses a text may rely on its limit. */
static int option_text_check(const struct peer_option *option, const char *value, char *why)
{
	size_t length = strlen(value), most = option->max ? option->max : PEER_TEXT_MAX;
	if (length <= most)
		return 0;
	snprintf(why, WHY_SIZE, "option '%s' has at most %zu characters, not %zu: '%.32s...'",
		option->name, most, length, value);
	return -EINVAL;
}

/* One value into its place. */
static int option_store(
	const struct peer_option *option, void *options, const char *value, char *why)
{
	uint8_t *place = (uint8_t *)options + option->offset;
	uint64_t number = 0;
	bool text = option->type == PEER_OPTION_TEXT || option->type == PEER_OPTION_LIST;
	int error = text ? option_text_check(option, value, why) : 0;
	if (error)
		return error;
	switch (option->type) {
	case PEER_OPTION_TEXT: error = option_text_set((char **)(void *)place, value); break;
	case PEER_OPTION_LIST:
		error = option_list_add((struct peer_list *)(void *)place, value);
		break;
	default:
		error = option_read(option, value, &number);
		if (error)
			return option_complain(option, value, error, why);
		if (option->type == PEER_OPTION_BOOL)
			*(bool *)place = number;
		else
			*(uint64_t *)(void *)place = number;
	}
	if (error)
		snprintf(why, WHY_SIZE, "option '%s': out of memory", option->name);
	return error;
}

const struct peer_option *option_find(const struct peer_option *table, const char *key)
{
	for (; table && table->type != PEER_OPTION_END; table++)
		if (!strcmp(table->name, key))
			return table;
	return NULL;
}

size_t option_count(const struct peer_option *table)
{
	size_t count = 0;
	while (table && table[count].type != PEER_OPTION_END)
		count++;
	return count;
}

void option_hint(const struct peer_option *table, const char *const *edges, const char *key,
	char *out, size_t size)
{
	const char *names[OPTIONS_MAX + PEER_EDGES_MAX];
	char edge_names[PEER_EDGES_MAX][NAME_LENGTH_MAX + 8];
	size_t count = 0, edge_count = 0, at = 0;
	for (; table && table->type != PEER_OPTION_END && count < OPTIONS_MAX; table++)
		names[count++] = table->name;
	for (; edges && edges[edge_count] && edge_count < PEER_EDGES_MAX; edge_count++) {
		snprintf(edge_names[edge_count], sizeof(edge_names[0]), "edge.%s",
			edges[edge_count]);
		names[count++] = edge_names[edge_count];
	}
	const char *nearest = name_nearest(key, names, count);
	if (nearest) {
		snprintf(out, size, "did you mean '%s'?", nearest);
		return;
	}
	at = (size_t)snprintf(out, size, count ? "it takes " : "it takes none");
	for (size_t i = 0; i < count && at < size; i++)
		at += (size_t)snprintf(out + at, size - at, "%s%s", i ? ", " : "", names[i]);
}

int option_set(const struct peer_option *table, void *options, const char *key, const char *value,
	char why[WHY_SIZE])
{
	const struct peer_option *option = option_find(table, key);
	must(option);
	return option_store(option, options, value, why);
}

int option_defaults(const struct peer_option *table, void *options, char why[WHY_SIZE])
{
	for (; table && table->type != PEER_OPTION_END; table++) {
		if (!table->initial)
			continue;
		int error = option_store(table, options, table->initial, why);
		if (error)
			return error;
	}
	return 0;
}

void option_clear(const struct peer_option *option, void *options)
{
	uint8_t *place = (uint8_t *)options + option->offset;
	if (option->type == PEER_OPTION_TEXT) {
		char **text = (char **)(void *)place;
		free(*text);
		*text = NULL;
	} else if (option->type == PEER_OPTION_LIST) {
		struct peer_list *list = (struct peer_list *)(void *)place;
		for (size_t i = 0; i < list->count; i++)
			free(list->item[i]);
		free(list->item);
		*list = (struct peer_list){.item = NULL};
	}
}

void option_free(const struct peer_option *table, void *options)
{
	for (; options && table && table->type != PEER_OPTION_END; table++)
		option_clear(table, options);
}

int option_missing(const struct peer_option *table, const bool *given, char why[WHY_SIZE])
{
	for (size_t i = 0; table && table[i].type != PEER_OPTION_END; i++)
		if (table[i].required && !given[i]) {
			snprintf(why, WHY_SIZE, "option '%s' is missing: %s", table[i].name,
				table[i].help ? table[i].help : "it must be given");
			return -EINVAL;
		}
	return 0;
}
