/* SPDX-License-Identifier: Apache-2.0 */
/* Completion for bash and zsh, written from the verb table. */
#include <stdio.h>
#include <string.h>

#include "tools/ctl/ctl_help.h"

/* --- bash ------------------------------------------------------------------------------- */

static void complete_words(const struct ctl_verb *verb)
{
	for (unsigned i = 0; i < CTL_OPTIONS_MAX && verb->options[i]; i++)
		printf(" --%s", verb->options[i]->name);
	for (unsigned i = 0; ctl_options_common[i]; i++)
		printf(" --%s", ctl_options_common[i]->name);
}

bool ctl_complete_first(unsigned index)
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
		if (ctl_complete_first(i))
			printf(" %s", ctl_verbs[i]->noun);
	puts("\"");
}

static void complete_verbs(void)
{
	puts("\tcase $noun in");
	for (unsigned i = 0; ctl_verbs[i]; i++) {
		if (!ctl_complete_first(i) || !ctl_verbs[i]->verb)
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

static void bash_script(void)
{
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
}

/* --- zsh -------------------------------------------------------------------------------- */

/* Within single quotes, with what _describe and _arguments take for their own escaped. */
static void zsh_text(const char *text, const char *special)
{
	for (; *text; text++) {
		if (*text == '\'')
			fputs("'\\'", stdout);
		else if (strchr(special, *text))
			putchar('\\');
		putchar(*text);
	}
}

static void zsh_nouns(void)
{
	puts("\tnouns=('help:say more of a command'");
	for (unsigned i = 0; ctl_verbs[i]; i++) {
		if (!ctl_complete_first(i))
			continue;
		printf("\t\t'%s:", ctl_verbs[i]->noun);
		if (ctl_verbs[i]->verb)
			for (unsigned j = i, n = 0; ctl_verbs[j]; j++) {
				if (!strcmp(ctl_verbs[j]->noun, ctl_verbs[i]->noun))
					printf("%s%s", n++ ? ", " : "", ctl_verbs[j]->verb);
			}
		else
			zsh_text(ctl_verbs[i]->summary, ":\\");
		puts("'");
	}
	puts("\t)");
}

static void zsh_verbs(void)
{
	puts("\tcase $noun in");
	for (unsigned i = 0; ctl_verbs[i]; i++) {
		if (!ctl_complete_first(i) || !ctl_verbs[i]->verb)
			continue;
		printf("\t%s) verbs=(", ctl_verbs[i]->noun);
		for (unsigned j = i; ctl_verbs[j]; j++) {
			if (strcmp(ctl_verbs[j]->noun, ctl_verbs[i]->noun))
				continue;
			printf("'%s:", ctl_verbs[j]->verb);
			zsh_text(ctl_verbs[j]->summary, ":\\");
			fputs("' ", stdout);
		}
		puts(") ;;");
	}
	puts("\tesac");
}

static void zsh_option(const struct ctl_option *option)
{
	bool may = option->argument && option->argument[0] == '[';
	printf("\t\t'--%s%s[", option->name, may ? "=-" : option->argument ? "=" : "");
	zsh_text(option->help, "[]:\\");
	putchar(']');
	if (option->argument)
		printf("%s%s:", may ? "::" : ":", option->name);
	for (unsigned i = 0; option->choices && option->choices[i]; i++)
		printf("%s%s", i ? " " : "(", option->choices[i]);
	puts(option->choices ? ")'" : "'");
}

static void zsh_options(void)
{
	puts("\tcommon=(");
	for (unsigned i = 0; ctl_options_common[i]; i++)
		zsh_option(ctl_options_common[i]);
	puts("\t)\n\tcase \"$noun $verb\" in");
	for (unsigned i = 0; ctl_verbs[i]; i++) {
		const struct ctl_verb *verb = ctl_verbs[i];
		printf("\t\"%s %s\") options=(\n", verb->noun, verb->verb ? verb->verb : "");
		for (unsigned j = 0; j < CTL_OPTIONS_MAX && verb->options[j]; j++)
			zsh_option(verb->options[j]);
		puts("\t) ;;");
	}
	puts("\tesac");
}

static void zsh_script(void)
{
	puts("#compdef xsegctl\n# made by 'xsegctl completion zsh'\n_xsegctl() {\n"
	     "\tlocal noun= verb= word\n\tlocal -a nouns verbs options common\n"
	     "\tlocal -i i=2\n"
	     "\tfor ((; i < CURRENT; i++)); do\n"
	     "\t\tword=${words[i]}\n"
	     "\t\tcase $word in\n"
	     "\t\t-s|--segment|-o|--output|-t|--timeout) ((i++)) ;;\n"
	     "\t\t-*) ;;\n"
	     "\t\t*) if [[ -z $noun ]]; then noun=$word; elif [[ -z $verb ]]; then "
	     "verb=$word; fi ;;\n\t\tesac\n\tdone");
	zsh_nouns();
	zsh_verbs();
	puts("\tif [[ -z $noun ]]; then _describe command nouns; return; fi\n"
	     "\tif [[ $#verbs -gt 0 && -z $verb ]]; then _describe verb verbs; return; fi\n"
	     "\t[[ $#verbs -gt 0 ]] || verb=");
	zsh_options();
	puts("\t_arguments $common $options '*:file:_files'\n}\n_xsegctl \"$@\"");
}

int ctl_complete(struct ctl *ctl)
{
	if (!strcmp(ctl->argv[0], "bash"))
		bash_script();
	else if (!strcmp(ctl->argv[0], "zsh"))
		zsh_script();
	else
		return fault_set(&ctl->fault, FAULT_USAGE, ctl->argv[0], "there are bash and zsh",
			"no completion for '%s'", ctl->argv[0]);
	return 0;
}
