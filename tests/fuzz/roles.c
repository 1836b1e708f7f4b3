/* SPDX-License-Identifier: Apache-2.0 */
/* Four roles, as `xsegpeer --describe-role` would tell of them. */
#include "tests/fuzz/roles.h"

#include <base/must.h>
#include <string.h>

static const char *const role_names[] = {"front_nbd", "volume", "mapperd", "blocker_null"};
static const char front_text[] =
	"{\"name\": \"front_nbd\", \"edges\": [\"volume\"], \"options\": ["
	"{\"name\": \"listen\", \"type\": \"list\", \"required\": true},"
	"{\"name\": \"tls\", \"type\": \"choice\", \"choices\": [\"on\", \"off\"]},"
	"{\"name\": \"requests\", \"type\": \"count\", \"min\": 1, \"max\": 64}]}";
static const char volume_text[] =
	"{\"name\": \"volume\", \"edges\": [\"store\", \"map\"], \"options\": ["
	"{\"name\": \"object-size\", \"type\": \"size\", \"min\": 4096, \"max\": 4194304}]}";
static const char mapper_text[] =
	"{\"name\": \"mapperd\", \"edges\": [\"store\"], \"options\": ["
	"{\"name\": \"lease\", \"type\": \"time\", \"min\": 1000000000, \"max\": 86400000000000}]}";
static const char null_text[] = "{\"name\": \"blocker_null\", \"edges\": [], \"options\": []}";
static const char *const role_texts[] = {front_text, volume_text, mapper_text, null_text};
static json_t *role_json[countof(role_names)];

static json_t *describe(void *context, const char *role)
{
	(void)context;
	for (size_t i = 0; i < countof(role_names); i++) {
		if (strcmp(role_names[i], role))
			continue;
		if (!role_json[i])
			must(role_json[i] = json_loads(role_texts[i], 0, NULL));
		return role_json[i];
	}
	return NULL;
}

int fuzz_roles_check(const struct pipeline *pipeline, struct fault *fault)
{
	const struct pipeline_roles roles = {
		.describe = describe, .names = role_names, .name_count = countof(role_names)};
	return pipeline_check(pipeline, &roles, fault);
}
