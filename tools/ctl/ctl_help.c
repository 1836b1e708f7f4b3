/* SPDX-License-Identifier: Apache-2.0 */
/* Help and the man page (scdoc source), from the verb table. */
#include "tools/ctl/ctl_help.h"

#include <base/must.h>
#include <ctype.h>
#include <stdio.h>
#include <string.h>

/* "volume create NAME" */
static void command_text(const struct ctl_verb *verb, char *out, size_t out_size)
{
	snprintf(out, out_size, "%s%s%s%s%s", verb->noun, verb->verb ? " " : "",
		verb->verb ? verb->verb : "", *verb->arguments ? " " : "", verb->arguments);
}

static void print_commands(const char *noun)
{
	char text[96];
	for (unsigned i = 0; ctl_verbs[i]; i++) {
		if (noun && strcmp(ctl_verbs[i]->noun, noun))
			continue;
		command_text(ctl_verbs[i], text, sizeof(text));
		printf("  %-36s %s\n", text, ctl_verbs[i]->summary);
	}
}

static void print_option(const struct ctl_option *option)
{
	char text[64], letter[8] = "    ";
	if (option->letter)
		snprintf(letter, sizeof(letter), "-%c, ", option->letter);
	snprintf(text, sizeof(text), "%s--%s%s%s", letter, option->name,
		option->argument ? " " : "", option->argument ? option->argument : "");
	printf("  %-36s %s\n", text, option->help);
}

static void print_common(void)
{
	for (unsigned i = 0; ctl_options_common[i]; i++)
		print_option(ctl_options_common[i]);
}

void ctl_help(void)
{
	puts("usage: xsegctl NOUN VERB NAME [--option]...\n\nCommands:");
	print_commands(NULL);
	puts("\nOptions of all commands:");
	print_common();
	puts("\n'xsegctl help NOUN [VERB]' says more of one. Exit status: 0 done, 1 failed, 2 "
	     "usage,\n"
	     "3 not found, 4 exists or conflict, 5 busy, 6 keeper unreachable, 7 timeout,\n"
	     "8 partly done.");
}

void ctl_help_noun(const char *noun)
{
	printf("usage: xsegctl %s VERB ...\n\nCommands:\n", noun);
	print_commands(noun);
}

/* Filled to 78 columns; scdoc escapes, emphasis and indentation are for the man page. */
static void print_prose(const char *text)
{
	size_t column = 0;
	while (*text) {
		size_t length = strcspn(text, " \t\n");
		if (length && column && column + length + 1 > 78)
			column = (putchar('\n'), 0);
		if (length && column)
			column += (putchar(' '), 1);
		for (size_t i = 0; i < length; i++)
			if (text[i] != '\\' && text[i] != '*')
				column += (putchar(text[i]), 1);
		text += length;
		text += strspn(text, " \t\n");
	}
	putchar('\n');
}

static void print_examples(const struct ctl_verb *verb)
{
	const char *text = verb->examples;
	if (text)
		puts("\nExamples:");
	while (text && *text) {
		int length = (int)strcspn(text, "\n");
		printf("  %.*s\n", length, text);
		text += length + (text[length] == '\n');
	}
}

void ctl_help_verb(const struct ctl_verb *verb)
{
	char text[96];
	command_text(verb, text, sizeof(text));
	printf("usage: xsegctl %s [--option]...\n\n%s\n", text, verb->summary);
	if (verb->description) {
		putchar('\n');
		print_prose(verb->description);
	}
	puts("\nOptions:");
	for (unsigned i = 0; i < CTL_OPTIONS_MAX && verb->options[i]; i++)
		print_option(verb->options[i]);
	print_common();
	print_examples(verb);
}

/* --- man page --------------------------------------------------------------------------- */

/* scdoc takes '_' and '*' for emphasis. */
static void man_text(const char *text)
{
	for (; *text; text++) {
		if (*text == '_' || *text == '*' || *text == '\\' || *text == '<')
			putchar('\\');
		putchar(*text);
	}
}

static void man_option(const struct ctl_option *option)
{
	if (option->letter)
		printf("*-%c*, ", option->letter);
	printf("*--%s*", option->name);
	if (option->argument)
		printf(" _%s_", option->argument);
	printf("\n\t");
	man_text(option->help);
	printf("\n\n");
}

/* A literal block, as deep as the rest. */
static void man_examples(const struct ctl_verb *verb)
{
	const char *text = verb->examples;
	if (!text)
		return;
	puts("\t```");
	while (*text) {
		int length = (int)strcspn(text, "\n");
		printf("\t%.*s\n", length, text);
		text += length + (text[length] == '\n');
	}
	puts("\t```\n");
}

static void man_verb(const struct ctl_verb *verb)
{
	printf("*%s%s%s*", verb->noun, verb->verb ? " " : "", verb->verb ? verb->verb : "");
	if (*verb->arguments) {
		putchar(' ');
		man_text(verb->arguments);
	}
	printf("\n\t");
	man_text(verb->summary);
	printf("\n\n");
	if (verb->description)
		printf("%s\n", verb->description);
	for (unsigned i = 0; i < CTL_OPTIONS_MAX && verb->options[i]; i++)
		man_option(verb->options[i]);
	man_examples(verb);
}

void ctl_help_man(void)
{
	puts("xsegctl(1)\n\n# NAME\n\nxsegctl - controls Skerry segments, pipelines and volumes\n\n"
	     "# SYNOPSIS\n\n*xsegctl* _NOUN_ _VERB_ _NAME_ [--option]...\n\n"
	     "# DESCRIPTION\n\n"
	     "Commands for segments and volumes speak to the segment itself and work while the "
	     "keeper, *xsegd*(8), is away. *up*, *down*, *peer*, *edge set*, *config* and *job "
	     "cancel* need the keeper. *status*, *stats* and lists ask the keeper where there is "
	     "one, and read the segment where there is none. *ls* is short for *list*.\n\n"
	     "Data goes to stdout, everything else to stderr. Sizes are written 4096, 4K, 4KiB "
	     "or 4kB (decimal); times 500ms, 30s, 2m. Commands that destroy refuse what is in "
	     "use; they ask on a terminal and need *--yes* elsewhere.\n\n# COMMANDS\n");
	for (unsigned i = 0; ctl_verbs[i]; i++)
		man_verb(ctl_verbs[i]);
	puts("# OPTIONS OF ALL COMMANDS\n");
	for (unsigned i = 0; ctl_options_common[i]; i++)
		man_option(ctl_options_common[i]);
	puts("# EXIT STATUS\n\n"
	     "0 done; 1 failed; 2 usage; 3 not found; 4 exists or conflict; 5 busy, attached; 6 "
	     "keeper unreachable; 7 timeout; 8 partly done. *status* exits 1 when something is "
	     "not well.\n\n"
	     "With *--json* an error is an object on stderr: {\"error\": {\"code\", \"name\", "
	     "\"message\", \"hint\", \"object\"}}.\n\n"
	     "# ENVIRONMENT\n\n"
	     "*SKERRY\\_SEGMENT*\n\tsegment used when *--segment* is not given\n\n"
	     "*SKERRY\\_SHM\\_DIR*\n\tfolder of segments, /dev/shm\n\n"
	     "*SKERRY\\_RUN\\_DIR*\n\tfolder of sockets, bells and logs, /run/skerry\n\n"
	     "# SEE ALSO\n\n*xsegd*(8), *xsegpeer*(1)");
}
