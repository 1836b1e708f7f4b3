/* SPDX-License-Identifier: Apache-2.0 */
/* Peers as one argument, NAME=ROLE,key=value,...: written for xsegpeer, read for `peer start`. */
#include <base/must.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/pipeline/pipeline.h"
#include "tools/pipeline/pipeline_edit.h"
#include "tools/pipeline/pipeline_keep.h"

/* A comma in a value is written `\,`, a backslash `\\`: one at the end hides no comma. */
static void put_escaped(FILE *out, const char *text)
{
	for (; *text; text++) {
		if (*text == ',' || *text == '\\')
			fputc('\\', out);
		fputc(*text, out);
	}
}

char *pipeline_text_argument(const struct pipeline_peer *peer)
{
	char *text = NULL;
	size_t size;
	FILE *out = open_memstream(&text, &size);
	must(out);
	fprintf(out, "%s=", peer->name);
	put_escaped(out, peer->role);
	for (unsigned i = 0; i < peer->option_count; i++) {
		if (pipeline_keep_key(peer->options[i].key))
			continue;
		fputc(',', out);
		put_escaped(out, peer->options[i].key);
		fputc('=', out);
		put_escaped(out, peer->options[i].value);
	}
	must(fclose(out) == 0);
	return text;
}

/* The next piece up to an unescaped comma, unescaped in place; moves *at behind it. */
static char *next_piece(char **at)
{
	char *from = *at, *to = *at, *piece = *at;
	while (*from && *from != ',') {
		if (from[0] == '\\' && (from[1] == ',' || from[1] == '\\'))
			from++;
		*to++ = *from++;
	}
	*at = *from ? from + 1 : NULL;
	*to = 0;
	return piece;
}

static int argument_fail(struct fault *fault, const char *argument, const char *why)
{
	return fault_set(fault, FAULT_USAGE, argument,
		"a peer is written NAME=ROLE,key=value,edge.X=PEER", "'%s': %s", argument, why);
}

static int parse_pieces(
	struct pipeline *pipeline, char *text, const char *argument, struct fault *fault)
{
	char *at = text, *head = next_piece(&at), *role = strchr(head, '=');
	if (!role || !role[1])
		return argument_fail(fault, argument, "no role");
	*role++ = 0;
	if (!name_check(head))
		return argument_fail(fault, argument, "no name for a peer");
	if (pipeline_peer_find(pipeline, head))
		return fault_set(
			fault, FAULT_CONFLICT, head, NULL, "there is a peer '%s' already", head);
	struct pipeline_peer *peer = pipeline_peer_add(pipeline, head);
	if (!peer)
		return argument_fail(fault, argument, "too many peers");
	peer->file = peer->role_file = PIPELINE_FILES_MAX; /* of no file */
	peer->role = strdup(role);
	while (at) {
		char *key = next_piece(&at), *value = strchr(key, '=');
		if (!value || value == key)
			return argument_fail(fault, argument, "an option is key=value");
		*value++ = 0;
		if (pipeline_option_add(peer, key, value, PIPELINE_FILES_MAX, 0))
			return argument_fail(fault, argument, "too many options");
	}
	return 0;
}

int pipeline_text_parse(struct pipeline *pipeline, const char *argument, struct fault *fault)
{
	char *text = strdup(argument);
	must(text);
	unsigned before = pipeline->peer_count;
	int rc = parse_pieces(pipeline, text, argument, fault);
	if (rc && pipeline->peer_count > before)
		pipeline_peer_drop(pipeline);
	free(text);
	return rc;
}
