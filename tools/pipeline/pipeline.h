/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A pipeline file: which segment, which peers, how their edges run, and who shares a process.
 *
 *   [segment]      name= size= lanes= huge=DIR socket-group=GROUP
 *   [host NAME]    lanes= workers=          a process; optional
 *   [peer NAME]    role= host=NAME edge.X=PEER and the role's options as they are
 *   and in both, how the keeper keeps the process: see pipeline_keep.h
 *
 * A peer without host= lives in a process of its own, which has the peer's name. Files in
 * FILE.d/ (demo.conf.d/ of demo.conf) are read after it, in order of their names; a key given there
 * replaces what files before it said. A key given several times in one file is a list.
 *
 * Units: sizes in bytes. Errors: -enum fault_code, the fault says file:line. Ownership: load
 * fills, free empties. Threads: one. Blocking: reads files.
 */
#ifndef SKERRY_TOOLS_PIPELINE_H
#define SKERRY_TOOLS_PIPELINE_H

#include <base/name.h>
#include <base/path.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "tools/report/fault.h"

#define PIPELINE_PEERS_MAX 64u
#define PIPELINE_HOSTS_MAX 64u
#define PIPELINE_OPTIONS_MAX 64u
#define PIPELINE_HOST_OPTIONS_MAX 16u
#define PIPELINE_FILES_MAX 64u
#define PIPELINE_LINE_MAX 4096
#define PIPELINE_SIZE_DEFAULT (1ull << 30)

struct pipeline_option {
	char *key, *value;
	unsigned file, line;
};

struct pipeline_peer {
	char name[NAME_LENGTH_MAX + 1];
	char *role;
	unsigned file, line, role_file, role_line;
	unsigned host; /* index, after pipeline_check_resolve() */
	char host_name[NAME_LENGTH_MAX + 1];
	unsigned host_file, host_line;
	struct pipeline_option options[PIPELINE_OPTIONS_MAX];
	unsigned option_count;
};

struct pipeline_host {
	char name[NAME_LENGTH_MAX + 1];
	unsigned lanes, workers; /* 0: xsegpeer's default */
	unsigned file, line;
	unsigned peer_count;
	struct pipeline_option options[PIPELINE_HOST_OPTIONS_MAX]; /* the keeper's */
	unsigned option_count;
	bool down; /* of a running pipeline: should run, does not */
};

struct pipeline {
	char segment[NAME_LENGTH_MAX + 1];
	uint64_t size;
	unsigned lanes; /* 0: chosen by size */
	bool size_given;
	char *huge;
	char *socket_group; /* who may speak to the keeper, too; NULL: nobody else */
	struct pipeline_peer *peers;
	unsigned peer_count;
	struct pipeline_host *hosts;
	unsigned host_count;
	unsigned
		order[PIPELINE_HOSTS_MAX]; /* hosts, stores first; after pipeline_check_resolve() */
	char *files[PIPELINE_FILES_MAX];
	unsigned file_count;
	uint64_t hash; /* XXH3 of all that was read, by lines: tells a changed file */
};

/* Reads and checks what can be checked without the roles. */
int pipeline_load(struct pipeline *pipeline, const char *path, struct fault *fault);
/* The same from memory, without FILE.d; `name` stands for the file in what is said of it. */
int pipeline_load_text(
	struct pipeline *pipeline, const char *text, const char *name, struct fault *fault);
void pipeline_free(struct pipeline *pipeline);
/* A group by name or number; -ENOENT: there is none. */
int pipeline_group(const char *text, gid_t *group);
/* A file that loads as this pipeline; malloc'd. NULL and a fault when a value cannot be said in
   one (a newline, " ;"). */
char *pipeline_write_text(const struct pipeline *pipeline, struct fault *fault);

/*
 * Roles, edges and options against what the roles say of themselves. describe(role) gives the
 * JSON of `xsegpeer --describe-role` (borrowed), NULL when there is no such role; roles: all names.
 */
struct pipeline_roles {
	json_t *(*describe)(void *context, const char *role);
	void *context;
	const char *const *names;
	size_t name_count;
};
int pipeline_check(
	const struct pipeline *pipeline, const struct pipeline_roles *roles, struct fault *fault);
/* Of a role's description: may an edge of that name lead to it? */
bool pipeline_check_role_serves(const json_t *role, const char *edge);
/* Does its value name a peer? edge.NAME and second choices of those. */
bool pipeline_check_is_edge(const struct pipeline_option *option);

/* "NAME=ROLE,key=value,..." as xsegpeer takes it; malloc'd. */
char *pipeline_text_argument(const struct pipeline_peer *peer);
/* The other way round: adds the peer of such an argument, with a host of its own. */
int pipeline_text_parse(struct pipeline *pipeline, const char *argument, struct fault *fault);
const struct pipeline_peer *pipeline_peer_find(const struct pipeline *pipeline, const char *name);
/* "FILE:LINE" of an option, or of the peer when `key` is not among its own. */
void pipeline_check_place(const struct pipeline *pipeline, const struct pipeline_peer *peer,
	const char *key, char *out, size_t out_size);

#endif
