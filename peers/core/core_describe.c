/* SPDX-License-Identifier: Apache-2.0 */
/* What a role's tables tell programs: the same as its help, as JSON (xsegpeer --describe-role). */
#include "peers/core/core.h"

static const char *const describe_types[] = {
	[PEER_OPTION_TEXT] = "text",
	[PEER_OPTION_LIST] = "list",
	[PEER_OPTION_BOOL] = "bool",
	[PEER_OPTION_COUNT] = "count",
	[PEER_OPTION_SIZE] = "size",
	[PEER_OPTION_TIME] = "time",
	[PEER_OPTION_CHOICE] = "choice",
};

static void describe_text(const char *text, FILE *out)
{
	fputc('"', out);
	for (; text && *text; text++) {
		if ((unsigned char)*text < 0x20)
			fprintf(out, "\\u%04x", (unsigned)*text);
		else if (*text == '"' || *text == '\\')
			fprintf(out, "\\%c", *text);
		else
			fputc(*text, out);
	}
	fputc('"', out);
}

static void describe_names(const char *const *names, FILE *out)
{
	fputc('[', out);
	for (unsigned i = 0; names && names[i]; i++) {
		fputs(i ? ", " : "", out);
		describe_text(names[i], out);
	}
	fputc(']', out);
}

static void describe_option(const struct peer_option *option, FILE *out)
{
	fputs("{\"name\": ", out);
	describe_text(option->name, out);
	fprintf(out, ", \"type\": \"%s\", \"required\": %s, \"min\": %llu, \"max\": %llu, ",
		describe_types[option->type], option->required ? "true" : "false",
		(unsigned long long)option->min, (unsigned long long)option->max);
	fputs("\"initial\": ", out);
	describe_text(option->initial, out);
	fputs(", \"choices\": ", out);
	describe_names(option->choices, out);
	fputs(", \"unit\": ", out);
	describe_text(option->unit, out);
	fputs(", \"help\": ", out);
	describe_text(option->help, out);
	fputc('}', out);
}

void describe_role(const struct peer_ops *ops, FILE *out)
{
	const struct peer_option *option = ops->options;
	fputs("{\"schema_version\": 1, \"name\": ", out);
	describe_text(ops->name, out);
	fputs(", \"summary\": ", out);
	describe_text(ops->summary, out);
	fputs(", \"edges\": ", out);
	describe_names(ops->edges, out);
	/* a file names all others, so that none is forgotten */
	if (ops->edges_needed == PEER_EDGES_ANY || ops->edges_later)
		fprintf(out, ", \"edges_needed\": %u",
			ops->edges_needed == PEER_EDGES_ANY ? 0 : ops->edges_needed);
	if (ops->serves) {
		fputs(", \"serves\": ", out);
		describe_text(ops->serves, out);
	}
	fputs(", \"options\": [", out);
	for (unsigned i = 0; option && option->type != PEER_OPTION_END; option++, i++) {
		fputs(i ? ", " : "", out);
		describe_option(option, out);
	}
	fputs("]}\n", out);
}
