/* SPDX-License-Identifier: Apache-2.0 */
/* Help, the man page (scdoc source) and bash completion, all from the verb table. */
#include <base/must.h>
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "tools/ctl.h"

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
}

void ctl_help_man(void)
{
	puts("xsegctl(1)\n\n# NAME\n\nxsegctl - controls Skerry segments, pipelines and volumes\n\n"
	     "# SYNOPSIS\n\n*xsegctl* _NOUN_ _VERB_ _NAME_ [--option]...\n\n"
	     "# DESCRIPTION\n\n"
	     "Commands for segments and volumes speak to the segment itself and work while the "
	     "keeper, *xsegd*(8), is away. *up*, *down*, *peer start*, *peer stop* and *edge set* "
	     "need the keeper. *status*, *stats* and lists ask the keeper where there is one, and "
	     "read the segment where there is none.\n\n"
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

/* --- completion ------------------------------------------------------------------------- */

static void complete_words(const struct ctl_verb *verb)
{
	for (unsigned i = 0; i < CTL_OPTIONS_MAX && verb->options[i]; i++)
		printf(" --%s", verb->options[i]->name);
	for (unsigned i = 0; ctl_options_common[i]; i++)
		printf(" --%s", ctl_options_common[i]->name);
}

static bool noun_first(unsigned index)
{
	for (unsigned i = 0; i < index; i++)
		if (!strcmp(ctl_verbs[i]->noun, ctl_verbs[index]->noun))
			return false;
	return true;
}

static void complete_choices(const struct ctl_option *option)
{
	if (!option->choices)
		return;
	printf("\t--%s) COMPREPLY=($(compgen -W \"", option->name);
	for (unsigned i = 0; option->choices[i]; i++)
		printf("%s%s", i ? " " : "", option->choices[i]);
	puts("\" -- \"$cur\")); return ;;");
}

static void complete_nouns(void)
{
	printf("\tlocal nouns=\"help");
	for (unsigned i = 0; ctl_verbs[i]; i++)
		if (noun_first(i))
			printf(" %s", ctl_verbs[i]->noun);
	puts("\"");
}

static void complete_verbs(void)
{
	puts("\tcase $noun in");
	for (unsigned i = 0; ctl_verbs[i]; i++) {
		if (!noun_first(i) || !ctl_verbs[i]->verb)
			continue;
		printf("\t%s) verbs=\"", ctl_verbs[i]->noun);
		for (unsigned j = i; ctl_verbs[j]; j++)
			if (!strcmp(ctl_verbs[j]->noun, ctl_verbs[i]->noun))
				printf("%s%s", j > i ? " " : "", ctl_verbs[j]->verb);
		puts("\" ;;");
	}
	puts("\tesac");
}

static void complete_options(void)
{
	puts("\tcase \"$noun $verb\" in");
	for (unsigned i = 0; ctl_verbs[i]; i++) {
		printf("\t\"%s %s\") options=\"", ctl_verbs[i]->noun,
			ctl_verbs[i]->verb ? ctl_verbs[i]->verb : "");
		complete_words(ctl_verbs[i]);
		puts("\" ;;");
	}
	puts("\tesac");
}

int ctl_help_completion(struct ctl *ctl)
{
	if (strcmp(ctl->argv[0], "bash"))
		return fault_set(&ctl->fault, FAULT_USAGE, ctl->argv[0], "there is bash",
			"no completion for '%s'", ctl->argv[0]);
	puts("# bash completion for xsegctl; made by 'xsegctl completion bash'\n_xsegctl() {\n"
	     "\tlocal cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]}\n"
	     "\tlocal noun= verb= verbs= options= i=1 word\n"
	     "\tfor ((; i < COMP_CWORD; i++)); do\n"
	     "\t\tword=${COMP_WORDS[i]}\n"
	     "\t\tcase $word in\n"
	     "\t\t-s|--segment|-o|--output|-t|--timeout) ((i++)) ;;\n"
	     "\t\t-*) ;;\n"
	     "\t\t*) if [ -z \"$noun\" ]; then noun=$word; elif [ -z \"$verb\" ]; then verb=$word; "
	     "fi ;;\n\t\tesac\n\tdone");
	complete_nouns();
	puts("\tcase $prev in");
	for (unsigned i = 0; ctl_options_common[i]; i++)
		complete_choices(ctl_options_common[i]);
	complete_choices(&ctl_option_progress);
	puts("\tesac\n"
	     "\tif [ -z \"$noun\" ]; then COMPREPLY=($(compgen -W \"$nouns\" -- \"$cur\")); "
	     "return; "
	     "fi");
	complete_verbs();
	puts("\tif [ -n \"$verbs\" ] && [ -z \"$verb\" ]; then\n"
	     "\t\tCOMPREPLY=($(compgen -W \"$verbs\" -- \"$cur\")); return\n\tfi\n"
	     "\t[ -n \"$verbs\" ] || verb=");
	complete_options();
	puts("\tcase $cur in\n\t-*) COMPREPLY=($(compgen -W \"$options\" -- \"$cur\")) ;;\n"
	     "\t*) COMPREPLY=($(compgen -f -- \"$cur\")) ;;\n\tesac\n}\n"
	     "complete -o filenames -F _xsegctl xsegctl");
	return 0;
}
