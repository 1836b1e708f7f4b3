/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the verb and its options in argv, by the verb table, and says what is near a typo. */
#include <base/must.h>
#include <base/size.h>
#include <base/time.h>
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config.h"
#include "tools/ctl/ctl.h"

static const char *const format_names[] = {"table", "json", "jsonl", "csv", NULL};
static const char *const progress_names[] = {"auto", "bar", "plain", "json", "none", NULL};

const struct ctl_option ctl_option_yes = {"yes", 'y', NULL, "do not ask", NULL};
const struct ctl_option ctl_option_dry_run = {
	"dry-run", 'n', NULL, "say what would be done, do nothing", NULL};
const struct ctl_option ctl_option_progress = {
	"progress", 0, "HOW", "auto, bar, plain, json or none", progress_names};
const struct ctl_option ctl_option_via = {
	"via", 0, "PEER", "the composer to ask, where there are several", NULL};
const struct ctl_option ctl_option_discard = {"discard-dirty", 0, "BYTES",
	"give up what has not reached its store: so many bytes, as was shown", NULL};

static const struct ctl_option option_segment = {
	"segment", 's', "NAME", "segment (default: $SKERRY_SEGMENT, or the only one)", NULL};
static const struct ctl_option option_output = {
	"output", 'o', "FORMAT", "table, json, jsonl or csv", format_names};
static const struct ctl_option option_json = {
	"json", 0, NULL, "the same as -o json; errors too", NULL};
static const struct ctl_option option_timeout = {
	"timeout", 't', "TIME", "longest wait: 500ms, 30s, 2m (default 30s)", NULL};
static const struct ctl_option option_help = {"help", 'h', NULL, "show help", NULL};

const struct ctl_option *const ctl_options_common[] = {
	&option_segment, &option_output, &option_json, &option_timeout, &option_help, NULL};

#define COMMON_COUNT (countof(ctl_options_common) - 1)
/* What getopt_long() returns: an index from here on. */
#define OPTION_BASE 1000
#define SHOW_VERSION 2000
#define SHOW_MAN 2001

/* --- values ----------------------------------------------------------------------------- */

static int option_index(const struct ctl *ctl, const char *name)
{
	for (unsigned i = 0; i < CTL_OPTIONS_MAX && ctl->verb->options[i]; i++)
		if (!strcmp(ctl->verb->options[i]->name, name))
			return (int)i;
	return -1;
}

const char *ctl_option_value(const struct ctl *ctl, const char *name)
{
	int i = option_index(ctl, name);
	return i < 0 ? NULL : ctl->values[i];
}

bool ctl_option_given(const struct ctl *ctl, const char *name)
{
	return ctl_option_value(ctl, name) != NULL;
}

int ctl_option_size(struct ctl *ctl, const char *name, uint64_t *size)
{
	const char *text = ctl_option_value(ctl, name);
	if (text && size_parse(text, size))
		return fault_set(&ctl->fault, FAULT_USAGE, text, "write e.g. 4096, 4K, 1.5G",
			"--%s: '%s' is not a size", name, text);
	return 0;
}

int ctl_option_number(struct ctl *ctl, const char *name, uint64_t max, uint64_t *count)
{
	const char *text = ctl_option_value(ctl, name);
	char *end;
	if (!text)
		return 0;
	errno = 0;
	unsigned long long n = strtoull(text, &end, 10);
	if (errno || end == text || *end || text[0] == '-' || n < 1 || n > max)
		return fault_set(&ctl->fault, FAULT_USAGE, text, NULL,
			"--%s: '%s' is not a number from 1 to %llu", name, text,
			(unsigned long long)max);
	*count = n;
	return 0;
}

/* --- one option ------------------------------------------------------------------------- */

static int choice_check(struct ctl *ctl, const struct ctl_option *option, const char *value)
{
	size_t count = 0;
	if (!option->choices)
		return 0;
	for (; option->choices[count]; count++)
		if (!strcmp(option->choices[count], value))
			return (int)count;
	fault_set(&ctl->fault, FAULT_USAGE, value, NULL, "--%s: '%s' is none of its values",
		option->name, value);
	fault_nearest(&ctl->fault, value, option->choices, count, option->help);
	return -FAULT_USAGE;
}

static int common_set(struct ctl *ctl, const struct ctl_option *option, const char *value)
{
	int choice = choice_check(ctl, option, value ? value : "");
	if (choice < 0)
		return choice;
	if (option == &option_segment) {
		if (!name_check(value))
			return fault_set(&ctl->fault, FAULT_USAGE, value, NULL,
				"'%s' is no name for a segment", value);
		ctl->segment = value;
	} else if (option == &option_output) {
		ctl->format = (enum ctl_format)choice;
	} else if (option == &option_json) {
		ctl->format = CTL_JSON;
	} else if (option == &option_timeout) {
		ctl->timeout_given = true;
		if (time_parse_positive(value, &ctl->timeout_ns))
			return fault_set(&ctl->fault, FAULT_USAGE, value,
				"write e.g. 500ms, 30s, 2m", "--timeout: '%s' is not a time",
				value);
	} else {
		must(option == &option_help);
		if (ctl->verb)
			ctl_help_verb(ctl->verb);
		else
			ctl_help();
		return CTL_SHOWN;
	}
	return 0;
}

static int verb_set(struct ctl *ctl, unsigned index, const char *value)
{
	const struct ctl_option *option = ctl->verb->options[index];
	int choice = choice_check(ctl, option, value ? value : "");
	if (choice < 0)
		return choice;
	ctl->values[index] = value ? value : "";
	return 0;
}

static int option_set(struct ctl *ctl, unsigned index, const char *value)
{
	if (index < COMMON_COUNT)
		return common_set(ctl, ctl_options_common[index], value);
	return verb_set(ctl, index - COMMON_COUNT, value);
}

static const struct ctl_option *option_at(const struct ctl *ctl, unsigned index)
{
	if (index < COMMON_COUNT)
		return ctl_options_common[index];
	return ctl->verb->options[index - COMMON_COUNT];
}

/* --- getopt ----------------------------------------------------------------------------- */

#define TABLE_MAX (COMMON_COUNT + CTL_OPTIONS_MAX + 3)

struct table {
	struct option longs[TABLE_MAX];
	char shorts[3 * TABLE_MAX];
	const char *names[TABLE_MAX];
	unsigned count;
};

static void table_add(struct table *table, const struct ctl_option *option)
{
	bool may = option->argument && option->argument[0] == '[';
	int has = may ? optional_argument : option->argument ? required_argument : no_argument;
	table->longs[table->count] =
		(struct option){option->name, has, NULL, OPTION_BASE + (int)table->count};
	table->names[table->count++] = option->name;
	if (!option->letter)
		return;
	size_t n = strlen(table->shorts);
	snprintf(table->shorts + n, sizeof(table->shorts) - n, "%c%s", option->letter,
		may		   ? "::"
		: option->argument ? ":"
				   : "");
}

static void table_make(struct table *table, const struct ctl *ctl)
{
	memset(table, 0, sizeof(*table));
	/* '+': stop at the first word, which is the noun; ':' tells a missing value apart */
	snprintf(table->shorts, sizeof(table->shorts), "%s", ctl->verb ? ":" : "+:");
	for (unsigned i = 0; i < COMMON_COUNT; i++)
		table_add(table, ctl_options_common[i]);
	for (unsigned i = 0; ctl->verb && i < CTL_OPTIONS_MAX && ctl->verb->options[i]; i++)
		table_add(table, ctl->verb->options[i]);
	if (ctl->verb)
		return;
	table->longs[table->count] = (struct option){"version", no_argument, NULL, SHOW_VERSION};
	table->names[table->count++] = "version";
	table->longs[table->count] = (struct option){"man", no_argument, NULL, SHOW_MAN};
	table->names[table->count++] = "man";
}

static int option_unknown(struct ctl *ctl, const struct table *table, const char *word)
{
	char name[64], otherwise[128] = "options of a command follow it";
	const char *verb = ctl->verb && ctl->verb->verb ? ctl->verb->verb : "";
	bool is_long = !strncmp(word, "--", 2);
	snprintf(name, sizeof(name), "%.*s", (int)strcspn(word, "="), word);
	fault_set(&ctl->fault, FAULT_USAGE, name, NULL, "unknown option '%s'", name);
	if (ctl->verb)
		snprintf(otherwise, sizeof(otherwise), "'xsegctl help %s%s%s' lists its options",
			ctl->verb->noun, *verb ? " " : "", verb);
	const char *nearest = is_long ? name_nearest(name + 2, table->names, table->count) : NULL;
	if (nearest)
		fault_hint(&ctl->fault, "did you mean '--%s'?", nearest);
	else
		fault_hint(&ctl->fault, "%s", otherwise);
	return -FAULT_USAGE;
}

/* optopt is a letter, an index of ours (a long option misused), or 0 (a long one nobody knows). */
static int option_bad(struct ctl *ctl, const struct table *table, int c, char **argv)
{
	char letter[3] = {'-', (char)optopt, 0};
	const char *word = optopt > 0 && optopt < OPTION_BASE ? letter : argv[optind - 1];
	if (c == ':')
		return fault_set(
			&ctl->fault, FAULT_USAGE, word, NULL, "option '%s' needs a value", word);
	if (optopt >= OPTION_BASE)
		return fault_set(&ctl->fault, FAULT_USAGE, word, NULL,
			"option '%.*s' takes no value", (int)strcspn(word, "="), word);
	return option_unknown(ctl, table, word);
}

/* A letter's index. */
static unsigned letter_index(const struct ctl *ctl, const struct table *table, int letter)
{
	for (unsigned i = 0; i < table->count; i++)
		if (option_at(ctl, i)->letter == letter)
			return i;
	must_fail("a letter of the table", __FILE__, __LINE__);
}

static int options_read(struct ctl *ctl, int argc, char **argv)
{
	struct table table;
	int c, rc = 0;
	table_make(&table, ctl);
	opterr = 0;
	optind = 0; /* GNU: start anew, whatever the table was */
	while (!rc && (c = getopt_long(argc, argv, table.shorts, table.longs, NULL)) >= 0) {
		if (c == '?' || c == ':')
			rc = option_bad(ctl, &table, c, argv);
		else if (c == SHOW_VERSION)
			rc = (puts("xsegctl (skerry) " PACKAGE_VERSION), CTL_SHOWN);
		else if (c == SHOW_MAN)
			rc = (ctl_help_man(), CTL_SHOWN);
		else if (c >= OPTION_BASE)
			rc = option_set(ctl, (unsigned)(c - OPTION_BASE), optarg);
		else
			rc = option_set(ctl, letter_index(ctl, &table, c), optarg);
	}
	return rc;
}

/* --- nouns and verbs -------------------------------------------------------------------- */

const struct ctl_verb *ctl_option_verb(const char *noun, const char *verb)
{
	if (verb && !strcmp(verb, "ls"))
		verb = "list";
	for (unsigned i = 0; ctl_verbs[i]; i++) {
		const struct ctl_verb *v = ctl_verbs[i];
		if (strcmp(v->noun, noun))
			continue;
		if (!v->verb || (verb && !strcmp(v->verb, verb)))
			return v;
	}
	return NULL;
}

static bool noun_known(const char *noun)
{
	for (unsigned i = 0; ctl_verbs[i]; i++)
		if (!strcmp(ctl_verbs[i]->noun, noun))
			return true;
	return false;
}

/* What takes something away is nobody's guess at what was meant: those verbs ask, and 'down'. */
static bool is_harmless(const struct ctl_verb *verb)
{
	for (unsigned i = 0; verb->options[i]; i++)
		if (verb->options[i] == &ctl_option_yes)
			return false;
	return strcmp(verb->noun, "down") != 0;
}

static int noun_unknown(struct ctl *ctl, const char *noun)
{
	const char *names[64];
	size_t count = 0;
	for (unsigned i = 0; ctl_verbs[i] && count < countof(names); i++)
		if (ctl_verbs[i]->verb || is_harmless(ctl_verbs[i]))
			names[count++] = ctl_verbs[i]->noun;
	fault_set(&ctl->fault, FAULT_USAGE, noun, NULL, "unknown command '%s'", noun);
	fault_nearest(&ctl->fault, noun, names, count, "'xsegctl help' lists them");
	return -FAULT_USAGE;
}

static int verb_unknown(struct ctl *ctl, const char *noun, const char *verb)
{
	const char *names[64];
	char list[200] = "";
	size_t count = 0;
	for (unsigned i = 0; ctl_verbs[i] && count < countof(names); i++) {
		if (strcmp(ctl_verbs[i]->noun, noun))
			continue;
		if (is_harmless(ctl_verbs[i]))
			names[count++] = ctl_verbs[i]->verb;
		size_t n = strlen(list);
		snprintf(list + n, sizeof(list) - n, "%s%s", n ? ", " : "it has ",
			ctl_verbs[i]->verb);
	}
	if (!verb)
		return fault_set(&ctl->fault, FAULT_USAGE, noun, list, "%s: what with it?", noun);
	fault_set(&ctl->fault, FAULT_USAGE, verb, NULL, "unknown verb '%s %s'", noun, verb);
	fault_nearest(&ctl->fault, verb, names, count, list);
	return -FAULT_USAGE;
}

static int help_asked(struct ctl *ctl, int argc, char **argv)
{
	if (argc < 2)
		return ctl_help(), CTL_SHOWN;
	if (!noun_known(argv[1]))
		return noun_unknown(ctl, argv[1]);
	const struct ctl_verb *verb = ctl_option_verb(argv[1], argc > 2 ? argv[2] : NULL);
	if (verb)
		ctl_help_verb(verb);
	else if (argc > 2)
		return verb_unknown(ctl, argv[1], argv[2]);
	else
		ctl_help_noun(argv[1]);
	return CTL_SHOWN;
}

static int verb_read(struct ctl *ctl, int argc, char **argv)
{
	const char *second = argc > 1 ? argv[1] : NULL;
	if (!noun_known(argv[0]))
		return noun_unknown(ctl, argv[0]);
	ctl->verb = ctl_option_verb(argv[0], second);
	if (ctl->verb)
		return 0;
	if (second && (!strcmp(second, "--help") || !strcmp(second, "-h")))
		return ctl_help_noun(argv[0]), CTL_SHOWN;
	return verb_unknown(ctl, argv[0], second);
}

static int arguments_check(struct ctl *ctl)
{
	const struct ctl_verb *v = ctl->verb;
	const char *verb = v->verb ? v->verb : "", *blank = v->verb ? " " : "";
	if (ctl->argc < v->least)
		return fault_set(&ctl->fault, FAULT_USAGE, NULL, NULL,
			"something is missing: xsegctl %s%s%s %s", v->noun, blank, verb,
			v->arguments);
	if (ctl->argc > v->most)
		return fault_set(&ctl->fault, FAULT_USAGE, ctl->argv[v->most], NULL,
			"'%s' is one too many: xsegctl %s%s%s %s", ctl->argv[v->most], v->noun,
			blank, verb, v->arguments);
	return 0;
}

/* Errors in the options themselves should have the format that was asked for. */
static void format_guess(struct ctl *ctl, int argc, char **argv)
{
	for (int i = 1; i < argc; i++) {
		if (!strcmp(argv[i], "--json") || !strcmp(argv[i], "-ojson") ||
			!strcmp(argv[i], "--output=json"))
			ctl->format = CTL_JSON;
		if (i + 1 < argc && (!strcmp(argv[i], "-o") || !strcmp(argv[i], "--output")) &&
			!strncmp(argv[i + 1], "json", 4))
			ctl->format = CTL_JSON;
	}
}

int ctl_option_parse(struct ctl *ctl, int argc, char **argv)
{
	format_guess(ctl, argc, argv);
	enum ctl_format guessed = ctl->format;
	int rc = options_read(ctl, argc, argv);
	if (rc)
		return rc;
	argc -= optind;
	argv += optind;
	if (argc == 0)
		return fault_set(&ctl->fault, FAULT_USAGE, NULL,
			"'xsegctl help' lists the commands", "no command given");
	if (!strcmp(argv[0], "help"))
		return help_asked(ctl, argc, argv);
	rc = verb_read(ctl, argc, argv);
	if (rc)
		return rc;
	int skip = ctl->verb->verb ? 1 : 0; /* the last word of the command is argv[0] */
	argc -= skip;
	argv += skip;
	rc = options_read(ctl, argc, argv);
	if (rc) {
		ctl->format = guessed;
		return rc;
	}
	ctl->argc = argc - optind;
	ctl->argv = argv + optind;
	return arguments_check(ctl);
}
