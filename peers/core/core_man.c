/* SPDX-License-Identifier: Apache-2.0 */
/* What a role's tables tell people: a short help, and a man page in scdoc's form. */
#include <ctype.h>
#include <string.h>

#include "peers/core/core.h"

static const char *const man_forms[] = {
	[PEER_OPTION_TEXT] = "TEXT",
	[PEER_OPTION_LIST] = "TEXT",
	[PEER_OPTION_BOOL] = "yes|no",
	[PEER_OPTION_COUNT] = "N",
	[PEER_OPTION_SIZE] = "SIZE",
	[PEER_OPTION_TIME] = "TIME",
};

static const char *man_form(const struct peer_option *option, char *out, size_t size)
{
	size_t at = 0;
	if (option->type != PEER_OPTION_CHOICE)
		return man_forms[option->type];
	out[0] = '\0';
	for (size_t i = 0; option->choices[i] && at < size; i++)
		at += (size_t)snprintf(
			out + at, size - at, "%s%s", i ? "|" : "", option->choices[i]);
	return out;
}

/* "(16 to 64 files; default 32; required)" or nothing. */
static const char *man_notes(const struct peer_option *option, char *out, size_t size)
{
	char range[96];
	size_t at = 0;
	const char *parts[4];
	char initial[96];
	unsigned count = 0;
	if (option->type >= PEER_OPTION_COUNT && option->type <= PEER_OPTION_TIME &&
		option_range(option, range, sizeof(range))[0])
		parts[count++] = range;
	if (option->initial && *option->initial) {
		snprintf(initial, sizeof(initial), "default %s", option->initial);
		parts[count++] = initial;
	}
	if (option->required)
		parts[count++] = "required";
	if (option->type == PEER_OPTION_LIST)
		parts[count++] = "may be given several times";
	out[0] = '\0';
	for (unsigned i = 0; i < count && at < size; i++)
		at += (size_t)snprintf(out + at, size - at, "%s%s%s", i ? "; " : "(", parts[i],
			i + 1 == count ? ")" : "");
	return out;
}

/* scdoc takes _ and * for markup. */
static void man_text(const char *text, FILE *out)
{
	for (; *text; text++) {
		if (strchr("_*\\#`~[", *text))
			fputc('\\', out);
		fputc(*text, out);
	}
}

static void man_help_edges(const struct peer_ops *ops, FILE *out)
{
	for (unsigned i = 0; ops->edges && ops->edges[i]; i++) {
		char key[64];
		snprintf(key, sizeof(key), "edge.%s=PEER", ops->edges[i]);
		fprintf(out, "  %-28s where its requests go; kept in the segment once set\n", key);
	}
}

void man_help(const struct peer_ops *ops, FILE *out)
{
	fprintf(out, "%s: %s\n", ops->name, ops->summary ? ops->summary : "");
	if (option_count(ops->options) || (ops->edges && ops->edges[0]))
		fprintf(out, "\nOptions:\n");
	for (const struct peer_option *o = ops->options; o && o->type != PEER_OPTION_END; o++) {
		char form[128], notes[256], key[192];
		snprintf(key, sizeof(key), "%s=%s", o->name, man_form(o, form, sizeof(form)));
		man_notes(o, notes, sizeof(notes));
		fprintf(out, "  %-28s %s%s%s\n", key, o->help ? o->help : "", notes[0] ? " " : "",
			notes);
	}
	man_help_edges(ops, out);
}

static void man_synopsis(const struct peer_ops *ops, FILE *out)
{
	fprintf(out, "# SYNOPSIS\n\n*xsegpeer* -s _SEGMENT_ _PEER_=");
	man_text(ops->name, out);
	for (const struct peer_option *o = ops->options; o && o->type != PEER_OPTION_END; o++) {
		if (!o->required)
			continue;
		fprintf(out, ",");
		man_text(o->name, out);
		fprintf(out, "=...");
	}
	if (option_count(ops->options))
		fprintf(out, "[,_option_=_value_]...");
	for (unsigned i = 0; ops->edges && ops->edges[i]; i++) {
		fprintf(out, ",edge.");
		man_text(ops->edges[i], out);
		fprintf(out, "=_PEER_");
	}
	fprintf(out, "\n\n");
}

static void man_options(const struct peer_ops *ops, FILE *out)
{
	fprintf(out, "# OPTIONS\n\n");
	for (const struct peer_option *o = ops->options; o && o->type != PEER_OPTION_END; o++) {
		char form[128], notes[256];
		fprintf(out, "*");
		man_text(o->name, out);
		fprintf(out, "*=");
		man_text(man_form(o, form, sizeof(form)), out);
		fprintf(out, "\n\t");
		/* the table's line is lower case without a stop: here it is a sentence */
		char first[2] = {(char)toupper((unsigned char)(o->help ? o->help[0] : ' ')), '\0'};
		man_text(first, out);
		man_text(o->help ? o->help + 1 : "", out);
		fprintf(out, ". ");
		man_text(man_notes(o, notes, sizeof(notes)), out);
		fprintf(out, "\n\n");
	}
	for (unsigned i = 0; ops->edges && ops->edges[i]; i++) {
		fprintf(out, "*edge.");
		man_text(ops->edges[i], out);
		fprintf(out,
			"*=_PEER_\n\tThe peer that serves its requests. The segment keeps the "
			"edge: "
			"it may be left out once set, and switched by *xsegctl edge set*.\n\n");
	}
	if (!option_count(ops->options) && !(ops->edges && ops->edges[0]))
		fprintf(out, "None.\n\n");
}

static void man_counters(const struct peer_ops *ops, FILE *out)
{
	if (!ops->counters || !ops->counters->name)
		return;
	fprintf(out, "# COUNTERS\n\nBeside those that every peer has (see *xsegpeer*(1)):\n\n");
	for (const struct xseg_counter *c = ops->counters; c->name; c++) {
		fprintf(out, "*");
		man_text(c->name, out);
		fprintf(out, "*%s%s%s\n\t", c->unit[0] ? " (" : "", c->unit, c->unit[0] ? ")" : "");
		man_text(c->help ? c->help : "", out);
		fprintf(out, "\n\n");
	}
}

void man_page(const struct peer_ops *ops, FILE *out)
{
	fprintf(out, "%s(7) \"skerry\" \"Skerry peers\"\n\n# NAME\n\n", ops->name);
	man_text(ops->name, out);
	fprintf(out, " - ");
	man_text(ops->summary ? ops->summary : "a peer", out);
	fprintf(out, "\n\n");
	man_synopsis(ops, out);
	if (ops->description)
		fprintf(out, "# DESCRIPTION\n\n%s\n\n", ops->description);
	man_options(ops, out);
	man_counters(ops, out);
	fprintf(out, "# SEE ALSO\n\n*xsegpeer*(1), *xsegctl*(1)\n");
}
