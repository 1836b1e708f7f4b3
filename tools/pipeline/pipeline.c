/* SPDX-License-Identifier: Apache-2.0 */
/* Reads pipeline files: INI sections into peers, hosts and a segment, each with its place. */
#include "tools/pipeline/pipeline.h"

#include <base/must.h>
#include <base/size.h>
#include <dirent.h>
#include <errno.h>
#include <grp.h>
#include <ini.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xseg/segment.h>
#include <xxhash.h>

#include "tools/pipeline/pipeline_edit.h"
#include "tools/pipeline/pipeline_keep.h"

struct reader {
	struct pipeline *pipeline;
	struct fault *fault;
	FILE *stream;
	unsigned file, line;
	char section[NAME_LENGTH_MAX + 16];
};

static const char *const segment_keys[] = {"name", "size", "lanes", "huge", "socket-group"};
static const char *const host_keys[] = {"lanes", "workers", "restart", "restart-delay",
	"restart-delay-max", "restart-limit", "restart-window", "watchdog", "watchdog-action",
	"request-limit"};
static const char *const section_kinds[] = {"segment", "host", "peer"};

static int reader_fail(struct reader *reader, const char *object, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
static int reader_fail(struct reader *reader, const char *object, const char *format, ...)
{
	char text[512];
	va_list list;
	if (reader->fault->code)
		return -1; /* the first one is the one to fix */
	va_start(list, format);
	vsnprintf(text, sizeof(text), format, list);
	va_end(list);
	fault_set(reader->fault, FAULT_USAGE, object, NULL, "%s:%u: %s",
		reader->pipeline->files[reader->file], reader->line, text);
	return -1;
}

/* --- finding and making entries --------------------------------------------------------- */

static struct pipeline_peer *peer_find(const struct pipeline *pipeline, const char *name)
{
	for (unsigned i = 0; i < pipeline->peer_count; i++)
		if (!strcmp(pipeline->peers[i].name, name))
			return &pipeline->peers[i];
	return NULL;
}

const struct pipeline_peer *pipeline_peer_find(const struct pipeline *pipeline, const char *name)
{
	return peer_find(pipeline, name);
}

struct pipeline_peer *pipeline_peer_add(struct pipeline *pipeline, const char *name)
{
	if (pipeline->peer_count == PIPELINE_PEERS_MAX)
		return NULL;
	struct pipeline_peer *peer = &pipeline->peers[pipeline->peer_count++];
	memset(peer, 0, sizeof(*peer));
	snprintf(peer->name, sizeof(peer->name), "%s", name);
	return peer;
}

struct pipeline_host *pipeline_host_find(const struct pipeline *pipeline, const char *name)
{
	for (unsigned i = 0; i < pipeline->host_count; i++)
		if (!strcmp(pipeline->hosts[i].name, name))
			return &pipeline->hosts[i];
	return NULL;
}

struct pipeline_host *pipeline_host_add(struct pipeline *pipeline, const char *name)
{
	if (pipeline->host_count == PIPELINE_HOSTS_MAX)
		return NULL;
	struct pipeline_host *host = &pipeline->hosts[pipeline->host_count++];
	memset(host, 0, sizeof(*host));
	snprintf(host->name, sizeof(host->name), "%s", name);
	return host;
}

/* What earlier files said of this key gives way; how many are left. */
static unsigned options_replace(
	struct pipeline_option *options, unsigned count, const char *key, unsigned file)
{
	unsigned kept = 0;
	for (unsigned i = 0; i < count; i++) {
		struct pipeline_option *option = &options[i];
		if (option->file != file && !strcmp(option->key, key)) {
			free(option->key);
			free(option->value);
		} else {
			options[kept++] = *option;
		}
	}
	return kept;
}

int pipeline_option_add(struct pipeline_peer *peer, const char *key, const char *value,
	unsigned file, unsigned line)
{
	peer->option_count = options_replace(peer->options, peer->option_count, key, file);
	if (peer->option_count == PIPELINE_OPTIONS_MAX)
		return -E2BIG;
	struct pipeline_option *option = &peer->options[peer->option_count++];
	*option = (struct pipeline_option){
		.key = strdup(key), .value = strdup(value), .file = file, .line = line};
	return 0;
}

int pipeline_host_option_add(struct pipeline_host *host, const char *key, const char *value,
	unsigned file, unsigned line)
{
	host->option_count = options_replace(host->options, host->option_count, key, file);
	if (host->option_count == PIPELINE_HOST_OPTIONS_MAX)
		return -E2BIG;
	host->options[host->option_count++] = (struct pipeline_option){
		.key = strdup(key), .value = strdup(value), .file = file, .line = line};
	return 0;
}

/* --- one key ---------------------------------------------------------------------------- */

static int parse_count(
	struct reader *reader, const char *key, const char *value, unsigned max, unsigned *out)
{
	char *end;
	errno = 0;
	unsigned long n = strtoul(value, &end, 10);
	if (errno || *end || end == value || value[0] == '-' || n < 1 || n > max)
		return reader_fail(
			reader, key, "%s='%s' is not a number from 1 to %u", key, value, max);
	*out = (unsigned)n;
	return 0;
}

static int parse_segment_size(struct reader *reader, const char *value)
{
	uint64_t size;
	if (size_parse(value, &size) || size < XSEG_SIZE_MIN || size > XSEG_SIZE_MAX)
		return reader_fail(reader, "size",
			"size='%s' is not a segment size; write e.g. 1G (8M to 1T)", value);
	reader->pipeline->size = size;
	reader->pipeline->size_given = true;
	return 0;
}

int pipeline_group(const char *text, gid_t *group)
{
	const struct group *found = getgrnam(text);
	char *end;
	unsigned long number = strtoul(text, &end, 10);
	if (!found && (!*text || *end || number > UINT32_MAX - 1))
		return -ENOENT;
	*group = found ? found->gr_gid : (gid_t)number;
	return 0;
}

static int segment_key(struct reader *reader, const char *key, const char *value)
{
	struct pipeline *p = reader->pipeline;
	if (!strcmp(key, "size"))
		return parse_segment_size(reader, value);
	if (!strcmp(key, "lanes"))
		return parse_count(reader, key, value, XSEG_LANES_MAX, &p->lanes);
	if (!strcmp(key, "huge")) {
		free(p->huge);
		p->huge = strdup(value);
		return 0;
	}
	if (!strcmp(key, "socket-group")) {
		gid_t group;
		if (pipeline_group(value, &group))
			return reader_fail(
				reader, value, "socket-group='%s': there is no such group", value);
		free(p->socket_group);
		p->socket_group = strdup(value);
		return 0;
	}
	if (!strcmp(key, "name")) {
		if (!name_check(value))
			return reader_fail(reader, value, "'%s' is no name for a segment", value);
		snprintf(p->segment, sizeof(p->segment), "%s", value);
		return 0;
	}
	reader_fail(reader, key, "unknown key '%s' in [segment]", key);
	fault_nearest(reader->fault, key, segment_keys, countof(segment_keys),
		"it has name, size, lanes, huge, socket-group");
	return -1;
}

static int host_key(struct reader *reader, const char *name, const char *key, const char *value)
{
	struct pipeline_host *host = pipeline_host_find(reader->pipeline, name);
	must(host);
	if (!strcmp(key, "lanes"))
		return parse_count(reader, key, value, XSEG_PORT_LANES_MAX, &host->lanes);
	if (!strcmp(key, "workers"))
		return parse_count(reader, key, value, 64, &host->workers); /* as xsegpeer has it */
	if (pipeline_keep_key(key) && !pipeline_keep_fallback(key))
		return pipeline_host_option_add(host, key, value, reader->file, reader->line)
			       ? reader_fail(reader, key, "too many keys")
			       : 0;
	reader_fail(reader, key, "unknown key '%s' in [host %s]", key, name);
	fault_nearest(reader->fault, key, host_keys, countof(host_keys),
		"it has lanes, workers and how it is kept: see skerry-pipeline(5)");
	return -1;
}

static int peer_role(struct reader *reader, struct pipeline_peer *peer, const char *value)
{
	if (peer->role && peer->role_file == reader->file)
		return reader_fail(
			reader, "role", "role is given twice, first in line %u", peer->role_line);
	free(peer->role);
	peer->role = strdup(value);
	peer->role_file = reader->file;
	peer->role_line = reader->line;
	return 0;
}

static int peer_key(struct reader *reader, const char *name, const char *key, const char *value)
{
	struct pipeline_peer *peer = peer_find(reader->pipeline, name);
	must(peer);
	if (!strcmp(key, "role"))
		return peer_role(reader, peer, value);
	if (!strcmp(key, "host")) {
		if (!name_check(value))
			return reader_fail(reader, value, "'%s' is no name for a host", value);
		snprintf(peer->host_name, sizeof(peer->host_name), "%s", value);
		peer->host_file = reader->file;
		peer->host_line = reader->line;
		return 0;
	}
	if (pipeline_option_add(peer, key, value, reader->file, reader->line))
		return reader_fail(reader, key, "more than %u options", PIPELINE_OPTIONS_MAX);
	return 0;
}

static int on_key(void *user, const char *section, const char *key, const char *value)
{
	struct reader *reader = user;
	(void)section; /* libinih cuts long ones; ours was checked */
	if (reader->fault->code)
		return 1;
	if (!reader->section[0])
		reader_fail(reader, key, "'%s' stands before any section", key);
	else if (!strcmp(reader->section, "segment"))
		segment_key(reader, key, value);
	else if (!strncmp(reader->section, "host ", 5))
		host_key(reader, reader->section + 5, key, value);
	else
		peer_key(reader, reader->section + 5, key, value);
	return 1;
}

/* --- sections and lines ----------------------------------------------------------------- */

static int section_unknown(struct reader *reader, const char *kind)
{
	reader_fail(reader, kind, "unknown section [%s]", kind);
	fault_nearest(reader->fault, kind, section_kinds, countof(section_kinds),
		"sections are [segment], [host NAME] and [peer NAME]");
	return -1;
}

static int section_named(struct reader *reader, const char *kind, const char *name)
{
	struct pipeline *p = reader->pipeline;
	if (!name_check(name))
		return reader_fail(reader, name, "'%s' is no name for a %s", name, kind);
	snprintf(reader->section, sizeof(reader->section), "%s %s", kind, name);
	if (!strcmp(kind, "peer")) {
		struct pipeline_peer *peer = peer_find(p, name);
		if (peer)
			return 0;
		peer = pipeline_peer_add(p, name);
		if (!peer)
			return reader_fail(reader, name, "more than %u peers", PIPELINE_PEERS_MAX);
		peer->file = reader->file;
		peer->line = reader->line;
		return 0;
	}
	struct pipeline_host *host = pipeline_host_find(p, name);
	if (host)
		return 0;
	host = pipeline_host_add(p, name);
	if (!host)
		return reader_fail(reader, name, "more than %u hosts", PIPELINE_HOSTS_MAX);
	host->file = reader->file;
	host->line = reader->line;
	return 0;
}

/* "[peer vol0]": libinih says nothing of a section without keys, so we look ourselves. */
static int section_begin(struct reader *reader, const char *line)
{
	char text[128], kind[64] = "", name[64] = "", rest[2] = "";
	const char *end = strchr(line, ']');
	if (!end)
		return reader_fail(reader, NULL, "a section starts with '[' but has no ']'");
	if ((size_t)(end - line) >= sizeof(text))
		return reader_fail(reader, NULL, "the section's name is too long");
	snprintf(text, sizeof(text), "%.*s", (int)(end - line - 1), line + 1);
	int n = sscanf(text, " %63s %63s %1s", kind, name, rest);
	if (n == 1 && !strcmp(kind, "segment")) {
		snprintf(reader->section, sizeof(reader->section), "segment");
		return 0;
	}
	if (strcmp(kind, "peer") && strcmp(kind, "host"))
		return section_unknown(reader, n < 1 ? "" : text);
	if (n != 2)
		return reader_fail(reader, kind, "a %s section is [%s NAME]", kind, kind);
	return section_named(reader, kind, name);
}

/* libinih's fgets(): counts lines, sees sections, and takes no line for a continuation. */
static char *read_line(char *out, int size, void *user)
{
	struct reader *reader = user;
	if (!fgets(out, size, reader->stream))
		return NULL;
	reader->line++;
	size_t length = strlen(out);
	if (length && out[length - 1] != '\n' && !feof(reader->stream)) {
		reader_fail(reader, NULL, "the line is longer than %d characters", size - 2);
		return NULL;
	}
	reader->pipeline->hash = XXH3_64bits_withSeed(out, length, reader->pipeline->hash);
	size_t blank = strspn(out, " \t");
	memmove(out, out + blank, length - blank + 1);
	if (out[0] == '[' && section_begin(reader, out))
		return NULL;
	return out;
}

/* Closes the stream. */
static int read_stream(
	struct pipeline *pipeline, FILE *stream, const char *path, struct fault *fault)
{
	struct reader reader = {.pipeline = pipeline, .fault = fault, .stream = stream};
	if (!stream) {
		enum fault_code code = errno == ENOENT ? FAULT_NOT_FOUND : FAULT_FAILED;
		return fault_set(fault, code, path, NULL, "pipeline file '%s' cannot be read: %s",
			path, strerror(errno));
	}
	reader.file = pipeline->file_count++;
	pipeline->files[reader.file] = strdup(path);
	ini_use_stack = true; /* else ini_max_line means nothing */
	ini_max_line = PIPELINE_LINE_MAX;
	int bad_line = ini_parse_stream(read_line, &reader, on_key, &reader);
	bool broken = ferror(stream);
	fclose(stream);
	if (!fault->code && broken)
		fault_set(fault, FAULT_FAILED, path, NULL, "'%s' cannot be read", path);
	if (!fault->code && bad_line > 0)
		fault_set(fault, FAULT_USAGE, path, "a line is KEY=VALUE, [SECTION] or # comment",
			"%s:%d: neither a key nor a section", path, bad_line);
	return fault->code ? -(int)fault->code : 0;
}

static int read_file(struct pipeline *pipeline, const char *path, struct fault *fault)
{
	if (pipeline->file_count == PIPELINE_FILES_MAX)
		return fault_set(fault, FAULT_USAGE, path, NULL, "more than %u pipeline files",
			PIPELINE_FILES_MAX);
	return read_stream(pipeline, fopen(path, "re"), path, fault);
}

static int is_conf(const struct dirent *entry)
{
	size_t length = strlen(entry->d_name);
	return entry->d_name[0] != '.' && length > 5 &&
	       !strcmp(entry->d_name + length - 5, ".conf");
}

static void entries_free(struct dirent **entries, int count)
{
	for (int i = 0; i < count; i++)
		free(entries[i]);
	if (count >= 0)
		free(entries);
}

/* A folder for all files beside it was once read for each of them: whoever has one is told, or its
   keys would be gone without a word. */
static int refuse_common(const char *path, struct fault *fault)
{
	char copy[PATH_MAX], folder[PATH_MAX + 16];
	struct dirent **entries;
	snprintf(copy, sizeof(copy), "%s", path);
	snprintf(folder, sizeof(folder), "%s/conf.d", dirname(copy));
	int count = scandir(folder, &entries, is_conf, alphasort);
	entries_free(entries, count);
	if (count <= 0)
		return 0;
	fault_set(fault, FAULT_USAGE, folder, NULL,
		"'%s' is not read: it would be for every pipeline file beside it", folder);
	fault_hint(fault, "move its files to '%s.d'", path);
	return -FAULT_USAGE;
}

static int read_folder(struct pipeline *pipeline, const char *path, struct fault *fault)
{
	char folder[PATH_MAX + 16], file[PATH_MAX + 300];
	struct dirent **entries;
	int rc = refuse_common(path, fault);
	if (rc)
		return rc;
	snprintf(folder, sizeof(folder), "%s.d", path);
	int count = scandir(folder, &entries, is_conf, alphasort);
	if (count < 0)
		return 0;
	for (int i = 0; i < count; i++) {
		snprintf(file, sizeof(file), "%s/%s", folder, entries[i]->d_name);
		if (!rc)
			rc = read_file(pipeline, file, fault);
	}
	entries_free(entries, count);
	return rc;
}

void pipeline_init(struct pipeline *pipeline)
{
	memset(pipeline, 0, sizeof(*pipeline));
	pipeline->size = PIPELINE_SIZE_DEFAULT;
	pipeline->peers = calloc(PIPELINE_PEERS_MAX, sizeof(*pipeline->peers));
	pipeline->hosts = calloc(PIPELINE_HOSTS_MAX, sizeof(*pipeline->hosts));
	must(pipeline->peers && pipeline->hosts);
}

int pipeline_load_text(
	struct pipeline *pipeline, const char *text, const char *name, struct fault *fault)
{
	memset(fault, 0, sizeof(*fault));
	pipeline_init(pipeline);
	FILE *stream = *text ? fmemopen((char *)text, strlen(text), "r") : fopen("/dev/null", "re");
	int rc = read_stream(pipeline, stream, name, fault);
	return rc ? rc : pipeline_check_resolve(pipeline, fault);
}

int pipeline_load(struct pipeline *pipeline, const char *path, struct fault *fault)
{
	memset(fault, 0, sizeof(*fault));
	pipeline_init(pipeline);
	int rc = read_file(pipeline, path, fault);
	if (!rc)
		rc = read_folder(pipeline, path, fault);
	if (!rc)
		rc = pipeline_check_resolve(pipeline, fault);
	return rc;
}

static void options_clear(struct pipeline_option *options, unsigned count)
{
	for (unsigned i = 0; i < count; i++) {
		free(options[i].key);
		free(options[i].value);
	}
}

static void peer_clear(struct pipeline_peer *peer)
{
	free(peer->role);
	options_clear(peer->options, peer->option_count);
}

void pipeline_host_clear(struct pipeline_host *host)
{
	options_clear(host->options, host->option_count);
	host->option_count = 0;
}

void pipeline_peer_drop(struct pipeline *pipeline)
{
	must(pipeline->peer_count);
	peer_clear(&pipeline->peers[--pipeline->peer_count]);
}

void pipeline_peer_remove(struct pipeline *pipeline, unsigned index)
{
	must(index < pipeline->peer_count);
	peer_clear(&pipeline->peers[index]);
	pipeline->peer_count--;
	memmove(&pipeline->peers[index], &pipeline->peers[index + 1],
		(pipeline->peer_count - index) * sizeof(pipeline->peers[0]));
}

struct pipeline_peer *pipeline_peer_copy(
	struct pipeline *pipeline, const struct pipeline_peer *from)
{
	struct pipeline_peer *peer = pipeline_peer_add(pipeline, from->name);
	if (!peer)
		return NULL;
	peer->role = strdup(from->role);
	must(peer->role);
	peer->file = peer->role_file = PIPELINE_FILES_MAX; /* of no file */
	snprintf(peer->host_name, sizeof(peer->host_name), "%s", from->host_name);
	for (unsigned i = 0; i < from->option_count; i++)
		must(!pipeline_option_add(
			peer, from->options[i].key, from->options[i].value, PIPELINE_FILES_MAX, 0));
	return peer;
}

void pipeline_free(struct pipeline *pipeline)
{
	while (pipeline->peer_count)
		pipeline_peer_drop(pipeline);
	for (unsigned i = 0; i < pipeline->host_count; i++)
		pipeline_host_clear(&pipeline->hosts[i]);
	for (unsigned i = 0; i < pipeline->file_count; i++)
		free(pipeline->files[i]);
	free(pipeline->peers);
	free(pipeline->hosts);
	free(pipeline->huge);
	free(pipeline->socket_group);
	memset(pipeline, 0, sizeof(*pipeline));
}
