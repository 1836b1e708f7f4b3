/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fuzzes the pipeline file: the input is one, read as xsegd and `config check` read it, against
 * three roles. What is accepted must come back the same from the arguments it is turned into.
 */
#include <base/log.h>
#include <base/must.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/roles.h"
#include "tools/pipeline/pipeline.h"
#include "tools/pipeline/pipeline_diff.h"
#include "tools/pipeline/pipeline_keep.h"

static char path[64];
static int file;

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	(void)argc;
	(void)argv;
	log_level_set(LOG_LEVEL_ERROR);
	file = memfd_create("pipeline", MFD_CLOEXEC);
	must(file >= 0);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", file);
	return 0;
}

/* --- what was read is what is said ----------------------------------------------------------- */

/* The next option that is not the keeper's, from *i on; NULL: no more. */
static const struct pipeline_option *next_option(const struct pipeline_peer *peer, unsigned *i)
{
	while (*i < peer->option_count && pipeline_keep_key(peer->options[*i].key))
		(*i)++;
	return *i < peer->option_count ? &peer->options[(*i)++] : NULL;
}

static void same_peer(const struct pipeline_peer *a, const struct pipeline_peer *b)
{
	unsigned i = 0, k = 0;
	must(!strcmp(a->name, b->name) && !strcmp(a->role, b->role));
	for (;;) {
		const struct pipeline_option *x = next_option(a, &i), *y = next_option(b, &k);
		must(!x == !y);
		if (!x)
			return;
		must(!strcmp(x->key, y->key) && !strcmp(x->value, y->value));
	}
}

/* NAME=ROLE,key=value,... says the same as the file. */
static void there_and_back(const struct pipeline *pipeline)
{
	struct pipeline again = {.peers = calloc(PIPELINE_PEERS_MAX, sizeof(*again.peers)),
		.hosts = calloc(PIPELINE_HOSTS_MAX, sizeof(*again.hosts))};
	for (unsigned i = 0; i < pipeline->peer_count; i++) {
		struct fault fault = {0};
		char *argument = pipeline_text_argument(&pipeline->peers[i]);
		must(pipeline_text_parse(&again, argument, &fault) == 0);
		same_peer(&pipeline->peers[i], &again.peers[i]);
		free(argument);
	}
	pipeline_free(&again);
}

/* Written as a file and read again there is nothing to be done to become the same. */
static void saved_and_read(const struct pipeline *pipeline)
{
	static struct pipeline_plan plan;
	struct pipeline again;
	struct fault fault = {0};
	char *text = pipeline_write_text(pipeline, &fault);
	if (!text) {
		must(fault.code != FAULT_NONE && fault.message[0]);
		return;
	}
	must(pipeline_load_text(&again, text, "saved", &fault) == 0);
	must(pipeline_diff(pipeline, &again, &plan, &fault) == 0 && plan.count == 0);
	char *twice = pipeline_write_text(&again, &fault);
	must(twice && !strcmp(text, twice));
	free(twice);
	free(text);
	pipeline_free(&again);
}

static void good(const struct pipeline *pipeline)
{
	must(pipeline->peer_count <= PIPELINE_PEERS_MAX);
	must(pipeline->host_count <= PIPELINE_HOSTS_MAX);
	for (unsigned i = 0; i < pipeline->peer_count; i++)
		must(pipeline->peers[i].host < pipeline->host_count);
	there_and_back(pipeline);
	saved_and_read(pipeline);
}

static void read_file(const uint8_t *data, size_t size)
{
	struct pipeline pipeline;
	struct fault fault;
	must(ftruncate(file, 0) == 0);
	must(pwrite(file, data, size, 0) == (ssize_t)size);
	int rc = pipeline_load(&pipeline, path, &fault);
	if (rc == 0)
		rc = fuzz_roles_check(&pipeline, &fault);
	/* who is refused is told why */
	must(rc == 0 || (fault.code != FAULT_NONE && fault.message[0]));
	if (rc == 0)
		good(&pipeline);
	pipeline_free(&pipeline);
}

/* A peer as `peer start` takes it. */
static void read_argument(const uint8_t *data, size_t size)
{
	struct pipeline pipeline = {.peers = calloc(PIPELINE_PEERS_MAX, sizeof(*pipeline.peers)),
		.hosts = calloc(PIPELINE_HOSTS_MAX, sizeof(*pipeline.hosts))};
	struct fault fault = {0};
	char *argument = strndup((const char *)data, size);
	if (pipeline_text_parse(&pipeline, argument, &fault) == 0)
		there_and_back(&pipeline);
	else
		must(fault.code != FAULT_NONE && fault.message[0]);
	free(argument);
	pipeline_free(&pipeline);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (size && data[0] == '=')
		read_argument(data + 1, size - 1);
	else
		read_file(data, size);
	return 0;
}
