/* SPDX-License-Identifier: Apache-2.0 */
/* What volume verbs make of answers: trees, names of children, and a sentence for each refusal. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "peers/map/map_sweep.h"
#include "tests/lib/unit.h"
#include "tools/ctl/ctl_map_sweep.h"

/* --- trees ------------------------------------------------------------------------------ */

static void node_add(struct ctl_map_nodes *nodes, uint64_t id, uint64_t parent, uint64_t age)
{
	if ((nodes->count & (nodes->count - 1)) == 0) /* for a sanitizer each time is a new place */
		nodes->all = realloc(nodes->all, (2 * nodes->count + 1) * sizeof(*nodes->all));
	ck_assert_ptr_nonnull(nodes->all);
	struct ctl_map_node *node = &nodes->all[nodes->count++];
	*node = (struct ctl_map_node){.parent = parent};
	node->info.id = id;
	node->info.created_ns = age;
	snprintf(node->info.name, sizeof(node->info.name), "v%llu", (unsigned long long)id);
}

static const char *order_of(const struct ctl_map_nodes *nodes)
{
	static char text[256];
	size_t n = 0;
	text[0] = 0;
	for (size_t i = 0; i < nodes->count; i++)
		n += (size_t)snprintf(text + n, sizeof(text) - n, "%s%s:%u", i ? " " : "",
			nodes->all[i].info.name, nodes->all[i].depth);
	return text;
}

UNIT(test_tree)
{
	struct ctl_map_nodes nodes = {0};
	ctl_map_tree_sort(&nodes);
	node_add(&nodes, 5, 3, 50);
	node_add(&nodes, 1, 0, 10);
	node_add(&nodes, 4, 1, 20);
	node_add(&nodes, 3, 1, 30);
	node_add(&nodes, 2, 0, 5);
	node_add(&nodes, 6, 77, 60); /* its parent is not there */
	ctl_map_tree_sort(&nodes);
	ck_assert_str_eq(order_of(&nodes), "v2:0 v1:0 v4:1 v3:1 v5:2 v6:0");
	free(nodes.all);
}

/* What cannot be is shown all the same, once each. */
UNIT(test_tree_circle)
{
	struct ctl_map_nodes nodes = {0};
	node_add(&nodes, 1, 2, 1);
	node_add(&nodes, 2, 1, 2);
	node_add(&nodes, 3, 3, 3);
	ctl_map_tree_sort(&nodes);
	ck_assert_str_eq(order_of(&nodes), "v3:0 v1:0 v2:1");
	free(nodes.all);
}

UNIT(test_tree_chain)
{
	struct ctl_map_nodes nodes = {0};
	for (uint64_t i = 0; i < 10000; i++)
		node_add(&nodes, 10000 - i, 9999 - i, 10000 - i);
	ctl_map_tree_sort(&nodes);
	for (unsigned i = 0; i < 10000; i++) {
		ck_assert_uint_eq(nodes.all[i].info.id, i + 1);
		ck_assert_uint_eq(nodes.all[i].depth, i);
	}
	free(nodes.all);
}

UNIT(test_children)
{
	struct ctl_map_nodes nodes = {0};
	char names[256], few[12];
	ck_assert_uint_eq(ctl_map_tree_children(&nodes, 1, names, sizeof(names)), 0);
	ck_assert_str_eq(names, "");
	for (uint64_t i = 2; i < 4; i++)
		node_add(&nodes, i, 1, i);
	ck_assert_uint_eq(ctl_map_tree_children(&nodes, 1, names, sizeof(names)), 2);
	ck_assert_str_eq(names, "'v2', 'v3'");
	for (uint64_t i = 4; i < 10; i++)
		node_add(&nodes, i, 1, i);
	ck_assert_uint_eq(ctl_map_tree_children(&nodes, 1, names, sizeof(names)), 8);
	ck_assert_str_eq(names, "'v2', 'v3', 'v4', 'v5', 'v6' and 3 more");
	ck_assert_uint_eq(ctl_map_tree_children(&nodes, 1, few, sizeof(few)), 8);
	ck_assert_uint_eq(strlen(few), sizeof(few) - 1);
	free(nodes.all);
}

/* --- refusals --------------------------------------------------------------------------- */

static struct fault fault_of(int error, uint32_t flags, const struct ctl_map_call *call)
{
	struct ctl ctl = {0};
	struct xseg_volume_info info = {.flags = flags, .name = "disk"};
	int rc = ctl_map_fault(&ctl, &info, "cannot be resized", error, call);
	ck_assert_int_eq(rc, -(int)ctl.fault.code);
	return ctl.fault;
}

UNIT(test_refusals)
{
	struct map_ask ask = {.name = "new"};
	struct ctl_map_call call = {.blamed = true, .ask = &ask};
	call.trouble.owner.owner = 1;
	call.trouble.owner.since_ns = 1000000000000000000u;
	strcpy(call.trouble.owner.host, "alpha");
	struct fault fault = fault_of(-EBUSY, 0, &call);
	ck_assert_int_eq(fault.code, FAULT_BUSY);
	ck_assert_ptr_nonnull(strstr(fault.message, "host 'alpha' has it open since 2001-09-"));
	ck_assert_ptr_nonnull(strstr(fault.hint, "'xsegctl volume break-lock disk'"));
	ck_assert_int_eq(fault_of(-EBUSY, 0, NULL).code, FAULT_BUSY);
	strcpy(call.trouble.name, "child");
	fault = fault_of(-ENOTEMPTY, 0, &call);
	ck_assert_int_eq(fault.code, FAULT_BUSY);
	ck_assert_str_eq(fault.message, "volume 'disk' cannot be resized: 'child' hangs from it");
	fault = fault_of(-EEXIST, 0, &call);
	ck_assert_int_eq(fault.code, FAULT_CONFLICT);
	ck_assert_ptr_nonnull(strstr(fault.message, "the name 'child' is taken"));
	call.blamed = false;
	ck_assert_ptr_nonnull(
		strstr(fault_of(-EEXIST, 0, &call).message, "the name 'new' is taken"));
	fault = fault_of(-EPERM, XSEG_VOLUME_PROTECTED, NULL);
	ck_assert_int_eq(fault.code, FAULT_BUSY);
	ck_assert_ptr_nonnull(strstr(fault.hint, "unprotect disk"));
	fault = fault_of(-EPERM, XSEG_VOLUME_SNAPSHOT, NULL);
	ck_assert_int_eq(fault.code, FAULT_CONFLICT);
	ck_assert_ptr_nonnull(strstr(fault.message, "a snapshot"));
	ck_assert_int_eq(fault_of(-ETIMEDOUT, 0, NULL).code, FAULT_TIMEOUT);
	ck_assert_int_eq(fault_of(-ENOENT, 0, NULL).code, FAULT_NOT_FOUND);
	ck_assert_int_eq(fault_of(-EIO, 0, NULL).code, FAULT_FAILED);
}

/* Whatever the error: the volume's name, what was asked, and something to do where there is. */
UNIT(test_reasons)
{
	static const int with_hint[] = {
		EOPNOTSUPP, EMLINK, EILSEQ, ENOTUNIQ, EOVERFLOW, EFBIG, ESTALE, ENOSPC, ETIMEDOUT};
	for (size_t i = 0; i < sizeof(with_hint) / sizeof(with_hint[0]); i++) {
		struct fault fault = fault_of(-with_hint[i], 0, NULL);
		ck_assert_ptr_nonnull(strstr(fault.message, "volume 'disk' cannot be resized: "));
		ck_assert_msg(fault.hint[0], "no hint for %s", strerror(with_hint[i]));
		ck_assert_str_eq(fault.object, "disk");
	}
}

/* The mapper's numbers mean here what they mean there. */
UNIT(test_findings)
{
	ck_assert_uint_eq(MAP_FINDINGS, CTL_MAP_FINDINGS);
	for (unsigned i = 0; i < MAP_FINDINGS; i++) {
		ck_assert_str_eq(ctl_map_sweep_finding_name(i), map_fsck_finding_name(i));
		ck_assert_uint_gt(strlen(ctl_map_sweep_finding_meaning(i)), 20);
	}
	ck_assert_str_eq(ctl_map_sweep_finding_name(MAP_FINDINGS), "unknown");
	ck_assert_ptr_nonnull(ctl_map_sweep_finding_meaning(4711));
}

UNIT(test_owner)
{
	struct map_owner owner = {.owner = 0xabc, .term = 3, .host = "a\xff"};
	json_t *json = ctl_map_owner_json(&owner);
	ck_assert_str_eq(json_string_value(json_object_get(json, "owner")), "0000000000000abc");
	ck_assert_ptr_nonnull(json_string_value(json_object_get(json, "host")));
	json_decref(json);
	owner.owner = 0;
	ck_assert(json_is_null(ctl_map_owner_json(&owner)));
}
