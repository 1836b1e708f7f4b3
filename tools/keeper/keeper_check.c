/* SPDX-License-Identifier: Apache-2.0 */
/* Checks a pipeline against the roles that xsegpeer knows, before anything is started. */
#include <base/must.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "tools/keeper/keeper.h"
#include "tools/report/program.h"

#define ASK_NS (20ull * 1000000000u)
#define ASK_ONE_NS (3ull * 1000000000u) /* while others wait */
#define ROLES_MAX 64u

struct roles {
	struct keeper *keeper;
	char *names[ROLES_MAX];
	size_t count;
	json_t *described; /* role -> its JSON */
};

static int run_failed(const struct keeper *keeper, int rc, struct fault *fault)
{
	return fault_set(fault, rc == -ETIMEDOUT ? FAULT_TIMEOUT : FAULT_FAILED, keeper->xsegpeer,
		NULL, "'%s' cannot be asked: %s", keeper->xsegpeer, strerror(-rc));
}

/* The first word of each line. */
static int roles_list(struct roles *roles, struct fault *fault)
{
	struct program_result result;
	char *argv[] = {roles->keeper->xsegpeer, "--list", NULL}, line[256];
	int rc = program_run(argv, ASK_NS, &result);
	if (!rc && result.status) {
		program_last_line(result.err, line, sizeof(line));
		fault_set(fault, FAULT_FAILED, "xsegpeer", NULL, "%s",
			line[0] ? line : "xsegpeer --list failed");
	} else if (rc) {
		run_failed(roles->keeper, rc, fault);
	}
	char *save = NULL;
	for (char *at = strtok_r(result.out ? result.out : (char[]){0}, "\n", &save);
		at && roles->count < ROLES_MAX; at = strtok_r(NULL, "\n", &save)) {
		at[strcspn(at, " \t")] = 0;
		if (*at)
			roles->names[roles->count++] = strdup(at);
	}
	program_result_free(&result);
	return fault->code ? -(int)fault->code : 0;
}

static json_t *describe(void *context, const char *role)
{
	struct roles *roles = context;
	struct program_result result;
	json_t *known = json_object_get(roles->described, role);
	char *argv[] = {roles->keeper->xsegpeer, "--describe-role", (char *)role, NULL};
	if (known)
		return known;
	for (size_t i = 0; i < roles->count; i++)
		if (!strcmp(roles->names[i], role)) {
			int rc = program_run(argv, ASK_NS, &result);
			known = rc || result.status ? NULL : json_loads(result.out, 0, NULL);
			program_result_free(&result);
			if (known)
				json_object_set_new(roles->described, role, known);
		}
	return known;
}

/* --- the values of options -------------------------------------------------------------- */

/* What stands between quotes behind `before`. */
static void quoted(const char *text, const char *before, char *out, size_t out_size)
{
	const char *at = strstr(text, before);
	out[0] = 0;
	if (!at)
		return;
	at += strlen(before);
	snprintf(out, out_size, "%.*s", (int)strcspn(at, "'"), at);
}

/* "xsegpeer: peer 'mem0': option 'size' ..." gets its place in the file in front. */
static int check_complain(const struct pipeline *pipeline, const char *line, struct fault *fault)
{
	char name[64], key[64], place[PATH_MAX + 16];
	const char *text = strncmp(line, "xsegpeer: ", 10) ? line : line + 10;
	quoted(text, "peer '", name, sizeof(name));
	quoted(text, "option '", key, sizeof(key));
	const struct pipeline_peer *peer = pipeline_peer_find(pipeline, name);
	if (!peer)
		return fault_set(fault, FAULT_USAGE, name, NULL, "%s", text);
	pipeline_check_place(pipeline, peer, key[0] ? key : NULL, place, sizeof(place));
	return fault_set(fault, FAULT_USAGE, key[0] ? key : name, NULL, "%s: %s", place, text);
}

static int check_host(struct keeper *keeper, const struct pipeline *pipeline, unsigned host,
	uint64_t limit_ns, struct fault *fault)
{
	char *argv[PIPELINE_PEERS_MAX + 5] = {keeper->xsegpeer, "-s", keeper->name, "--check"};
	struct program_result result;
	char line[512];
	int argc = 4, rc = 0;
	for (unsigned i = 0; i < pipeline->peer_count; i++)
		if (pipeline->peers[i].host == host)
			argv[argc++] = pipeline_text_argument(&pipeline->peers[i]);
	int ran = program_run(argv, limit_ns, &result);
	if (ran) {
		rc = run_failed(keeper, ran, fault);
	} else if (!WIFEXITED(result.status) || WEXITSTATUS(result.status)) {
		program_last_line(result.err, line, sizeof(line));
		rc = check_complain(pipeline, line, fault);
	}
	program_result_free(&result);
	while (argc > 4)
		free(argv[--argc]);
	return rc;
}

int keeper_check_host(struct keeper *keeper, unsigned host, struct fault *fault)
{
	return check_host(keeper, &keeper->pipeline, host, ASK_ONE_NS, fault);
}

bool keeper_check_role_serves(struct keeper *keeper, const char *role, const char *edge)
{
	struct roles roles = {.keeper = keeper,
		.names = {(char *)(uintptr_t)role},
		.count = 1,
		.described = json_object()};
	const json_t *described = describe(&roles, role);
	bool serves = !described || pipeline_check_role_serves(described, edge);
	json_decref(roles.described);
	return serves;
}

int keeper_check(struct keeper *keeper, const struct pipeline *pipeline, struct fault *fault)
{
	struct roles roles = {.keeper = keeper, .described = json_object()};
	int rc = roles_list(&roles, fault);
	struct pipeline_roles view = {.describe = describe,
		.context = &roles,
		.names = (const char *const *)roles.names,
		.name_count = roles.count};
	if (!rc)
		rc = pipeline_check(pipeline, &view, fault);
	for (unsigned i = 0; !rc && i < pipeline->host_count; i++)
		rc = check_host(keeper, pipeline, i, ASK_NS, fault);
	for (size_t i = 0; i < roles.count; i++)
		free(roles.names[i]);
	json_decref(roles.described);
	return rc;
}
