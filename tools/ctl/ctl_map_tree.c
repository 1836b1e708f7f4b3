/* SPDX-License-Identifier: Apache-2.0 */
/* All volumes, and which of them hang from which. */
#include <base/must.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/ctl/ctl_map.h"

#define LIST_AT_ONCE 2048u /* a store reads all keys for each part of a list */
#define NAMES_SHOWN 5u

/* --- asking ----------------------------------------------------------------------------- */

static int nodes_add(struct ctl_map_nodes *nodes, const struct xseg_volume_info *infos, size_t n)
{
	struct ctl_map_node *all = realloc(nodes->all, (nodes->count + n) * sizeof(*all));
	if (!all)
		return -ENOMEM;
	nodes->all = all;
	for (size_t i = 0; i < n; i++) {
		struct ctl_map_node *node = &all[nodes->count++];
		*node = (struct ctl_map_node){.info = infos[i], .parent = infos[i].parent};
		node->info.name[VOLUME_NAME_LENGTH_MAX] = 0;
	}
	return 0;
}

int ctl_map_tree_list(struct client *client, struct ctl_map_nodes *nodes)
{
	static struct xseg_volume_info infos[LIST_AT_ONCE];
	uint64_t cursor = 0;
	*nodes = (struct ctl_map_nodes){0};
	do {
		struct client_request request = {.op = XSEG_OP_LIST,
			.arg0 = cursor,
			.length = sizeof(infos),
			.receive = infos,
			.receive_size = sizeof(infos)};
		int rc = ctl_volume_do(client, &request);
		size_t count = request.answer_length / sizeof(infos[0]);
		if (!rc && request.answer_length > sizeof(infos))
			rc = -EPROTO;
		if (!rc && count)
			rc = nodes_add(nodes, infos, count);
		if (rc)
			return rc;
		if (request.value && request.value == cursor)
			return -EPROTO; /* it would never end */
		cursor = request.value;
	} while (cursor);
	return 0;
}

/* --- order ------------------------------------------------------------------------------ */

static int by_age(const void *a, const void *b)
{
	const struct ctl_map_node *x = a, *y = b;
	if (x->info.created_ns != y->info.created_ns)
		return x->info.created_ns < y->info.created_ns ? -1 : 1;
	return strcmp(x->info.name, y->info.name);
}

/* To find all of one parent, or one by its id, without looking at everybody. */
struct link {
	uint64_t key;
	size_t index;
};

struct order {
	const struct ctl_map_nodes *from;
	struct link *ids, *parents;
	struct ctl_map_node *to;
	size_t count;
	bool *taken;
	size_t *stack;
	unsigned *depths;
};

static int by_key(const void *a, const void *b)
{
	const struct link *x = a, *y = b;
	if (x->key != y->key)
		return x->key < y->key ? -1 : 1;
	return x->index < y->index ? -1 : x->index > y->index;
}

/* The first one that has this key or a larger one. */
static size_t link_first(const struct link *links, size_t count, uint64_t key)
{
	size_t low = 0, high = count;
	while (low < high) {
		size_t middle = low + (high - low) / 2;
		if (links[middle].key < key)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

static void *array(size_t count, size_t size)
{
	void *out = calloc(count, size);
	must(out);
	return out;
}

static void order_open(struct order *order, const struct ctl_map_nodes *from)
{
	size_t count = from->count;
	*order = (struct order){.from = from,
		.ids = array(count, sizeof(*order->ids)),
		.parents = array(count, sizeof(*order->parents)),
		.to = array(count, sizeof(*order->to)),
		.taken = array(count, sizeof(*order->taken)),
		.stack = array(count, sizeof(*order->stack)),
		.depths = array(count, sizeof(*order->depths))};
	for (size_t i = 0; i < count; i++) {
		order->ids[i] = (struct link){from->all[i].info.id, i};
		order->parents[i] = (struct link){from->all[i].parent, i};
	}
	qsort(order->ids, count, sizeof(*order->ids), by_key);
	qsort(order->parents, count, sizeof(*order->parents), by_key);
}

static void order_close(struct order *order)
{
	free(order->ids);
	free(order->parents);
	free(order->taken);
	free(order->stack);
	free(order->depths);
}

static bool has_parent(const struct order *order, size_t i)
{
	uint64_t parent = order->from->all[i].parent;
	size_t at = link_first(order->ids, order->from->count, parent);
	return parent && at < order->from->count && order->ids[at].key == parent &&
	       order->ids[at].index != i;
}

/* A volume, then all that hangs from it, deeper by one each. No recursion: chains are long. */
static void order_below(struct order *order, size_t root)
{
	size_t used = 0, count = order->from->count;
	order->stack[used] = root;
	order->depths[used++] = 0;
	order->taken[root] = true;
	while (used) {
		size_t at = order->stack[--used];
		unsigned depth = order->depths[used];
		uint64_t id = order->from->all[at].info.id;
		size_t first = link_first(order->parents, count, id), end = first;
		order->to[order->count] = order->from->all[at];
		order->to[order->count++].depth = depth;
		while (end < count && order->parents[end].key == id)
			end++;
		while (id && end-- > first) { /* the oldest is taken from the stack first */
			size_t child = order->parents[end].index;
			if (order->taken[child])
				continue;
			order->taken[child] = true;
			order->stack[used] = child;
			order->depths[used++] = depth + 1;
		}
	}
}

void ctl_map_tree_sort(struct ctl_map_nodes *nodes)
{
	struct order order;
	if (nodes->count == 0)
		return;
	qsort(nodes->all, nodes->count, sizeof(*nodes->all), by_age);
	order_open(&order, nodes);
	for (size_t i = 0; i < nodes->count; i++)
		if (!order.taken[i] && !has_parent(&order, i))
			order_below(&order, i);
	for (size_t i = 0; i < nodes->count; i++) /* a circle cannot be, and is shown if it is */
		if (!order.taken[i])
			order_below(&order, i);
	order_close(&order);
	free(nodes->all);
	nodes->all = order.to;
}

/* --- children --------------------------------------------------------------------------- */

size_t ctl_map_tree_children(
	const struct ctl_map_nodes *nodes, uint64_t id, char *out, size_t out_size)
{
	size_t count = 0, length = 0;
	out[0] = 0;
	for (size_t i = 0; i < nodes->count; i++) {
		if (nodes->all[i].parent != id)
			continue;
		if (count++ < NAMES_SHOWN && length < out_size)
			length += (size_t)snprintf(out + length, out_size - length, "%s'%.60s'",
				length ? ", " : "", nodes->all[i].info.name);
	}
	if (count > NAMES_SHOWN && length < out_size)
		snprintf(out + length, out_size - length, " and %zu more", count - NAMES_SHOWN);
	return count;
}

int ctl_map_tree_childless(
	struct ctl *ctl, struct client *client, const struct xseg_volume_info *info)
{
	struct ctl_map_nodes nodes;
	char names[512];
	int rc = ctl_map_tree_list(client, &nodes);
	ctl_map_tree_sort(&nodes);
	size_t count = ctl_map_tree_children(&nodes, info->id, names, sizeof(names));
	free(nodes.all);
	if (rc)
		return ctl_map_fault(ctl, info, "cannot be asked for its children", rc, NULL);
	if (!count)
		return 0;
	return fault_set(&ctl->fault, FAULT_BUSY, info->name,
		"remove them first, or make clones independent with 'xsegctl volume flatten'",
		"volume '%s' has children: %s", info->name, names);
}
