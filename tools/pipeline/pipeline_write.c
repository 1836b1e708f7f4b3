/* SPDX-License-Identifier: Apache-2.0 */
/* Writes a pipeline as the file that it would be read from. */
#include <base/must.h>
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/pipeline/pipeline.h"

/* libinih cuts blanks at both ends, and a comment behind a blank and a ';'. */
static bool value_fits(const char *key, const char *value)
{
	size_t length = strlen(value);
	bool blank_ends = length && (isspace((unsigned char)value[0]) ||
					    isspace((unsigned char)value[length - 1]));
	if (blank_ends || value[0] == ';' || strlen(key) + length + 4 > PIPELINE_LINE_MAX - 2)
		return false;
	for (size_t i = 0; i < length; i++) {
		bool comment = value[i] == ';' && i && isspace((unsigned char)value[i - 1]);
		if (comment || value[i] == '\n' || value[i] == '\r')
			return false;
	}
	return true;
}

static void write_size(FILE *out, uint64_t size)
{
	static const char units[] = "TGMK";
	for (unsigned i = 0; i < 4; i++) {
		unsigned shift = 40 - 10 * i;
		if (size && (size & ((1ull << shift) - 1)) == 0) {
			fprintf(out, "size = %llu%c\n", (unsigned long long)(size >> shift),
				units[i]);
			return;
		}
	}
	fprintf(out, "size = %llu\n", (unsigned long long)size);
}

static void write_segment(FILE *out, const struct pipeline *pipeline)
{
	fputs("[segment]\n", out);
	if (pipeline->segment[0])
		fprintf(out, "name = %s\n", pipeline->segment);
	if (pipeline->size_given)
		write_size(out, pipeline->size);
	if (pipeline->lanes)
		fprintf(out, "lanes = %u\n", pipeline->lanes);
	if (pipeline->huge)
		fprintf(out, "huge = %s\n", pipeline->huge);
	if (pipeline->socket_group)
		fprintf(out, "socket-group = %s\n", pipeline->socket_group);
}

/* Hosts that say nothing are made by their peers' host=. */
static void write_hosts(FILE *out, const struct pipeline *pipeline)
{
	for (unsigned i = 0; i < pipeline->host_count; i++) {
		const struct pipeline_host *host = &pipeline->hosts[i];
		if (!host->lanes && !host->workers && !host->option_count)
			continue;
		fprintf(out, "\n[host %s]\n", host->name);
		if (host->lanes)
			fprintf(out, "lanes = %u\n", host->lanes);
		if (host->workers)
			fprintf(out, "workers = %u\n", host->workers);
		for (unsigned j = 0; j < host->option_count; j++)
			fprintf(out, "%s = %s\n", host->options[j].key, host->options[j].value);
	}
}

static int write_peer(FILE *out, const struct pipeline *pipeline, const struct pipeline_peer *peer,
	struct fault *fault)
{
	const char *host = pipeline->hosts[peer->host].name;
	fprintf(out, "\n[peer %s]\nrole = %s\n", peer->name, peer->role);
	if (strcmp(host, peer->name))
		fprintf(out, "host = %s\n", host);
	for (unsigned i = 0; i < peer->option_count; i++) {
		const struct pipeline_option *option = &peer->options[i];
		if (!value_fits(option->key, option->value))
			return fault_set(fault, FAULT_FAILED, peer->name, NULL,
				"option '%s' of peer '%s' has a value that a pipeline file cannot "
				"say",
				option->key, peer->name);
		fprintf(out, "%s = %s\n", option->key, option->value);
	}
	return 0;
}

char *pipeline_write_text(const struct pipeline *pipeline, struct fault *fault)
{
	char *text = NULL;
	size_t size;
	int rc = 0;
	FILE *out = open_memstream(&text, &size);
	must(out);
	write_segment(out, pipeline);
	write_hosts(out, pipeline);
	for (unsigned i = 0; !rc && i < pipeline->peer_count; i++)
		rc = write_peer(out, pipeline, &pipeline->peers[i], fault);
	must(fclose(out) == 0);
	if (!rc)
		return text;
	free(text);
	return NULL;
}
