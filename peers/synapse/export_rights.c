/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which volumes an importing end may use: those that 'allow' names behind the URI of its
 * certificate. A composer is asked for volumes by name once, and by number from then on, so the
 * numbers are noted as they go by; a new process asks for them before it lets anybody in.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "peers/synapse/export.h"

struct export_rule {
	char *uri;    /* and, behind it, what the names point into */
	char **names; /* none: whatever there is */
	size_t count;
	uint64_t *ids;
	size_t id_count, id_room;
	size_t next;	/* name to be asked for */
	unsigned asked; /* on their way */
};

/* --- rules ------------------------------------------------------------------------------------ */

static int parse(struct export_rule *rule, const char *text)
{
	char *rest, *word;
	rule->uri = strdup(text);
	rule->names = calloc(strlen(text), sizeof(*rule->names));
	if (!rule->uri || !rule->names)
		return -ENOMEM;
	strtok_r(rule->uri, " ", &rest);
	while ((word = strtok_r(NULL, " ", &rest)))
		rule->names[rule->count++] = word;
	return 0;
}

int export_rights_open(struct export *export, char *why, size_t why_size)
{
	const struct peer_list *allow = &export_options_of(export)->allow;
	export->rules = calloc(allow->count + 1, sizeof(*export->rules));
	int error = export->rules ? 0 : -ENOMEM;
	for (; !error && export->rule_count < allow->count; export->rule_count++)
		error = parse(&export->rules[export->rule_count], allow->item[export->rule_count]);
	if (error) {
		snprintf(why, why_size, "out of memory");
		return error;
	}
	for (size_t i = 0; i < export->rule_count; i++)
		if (export->rules[i].count > 0 && export->edge != EXPORT_EDGE_VOLUME) {
			snprintf(why, why_size,
				"allow=%s: only a composer (edge.volume) knows volumes by name; "
				"whoever comes in to a store reaches all that is in it",
				export_options_of(export)->allow.item[i]);
			return -EINVAL;
		}
	return 0;
}

void export_rights_close(struct export *export)
{
	for (size_t i = 0; i < export->rule_count; i++) {
		free(export->rules[i].uri);
		free(export->rules[i].names);
		free(export->rules[i].ids);
	}
	free(export->rules);
}

struct export_rule *export_rights_find(const struct export *export, const struct tls_link *tls)
{
	for (size_t i = 0; i < export->rule_count; i++)
		if (tls_is(tls, export->rules[i].uri))
			return &export->rules[i];
	return NULL;
}

/* --- numbers ---------------------------------------------------------------------------------- */

static bool knows(const struct export_rule *rule, uint64_t id)
{
	for (size_t i = 0; i < rule->id_count; i++)
		if (rule->ids[i] == id)
			return true;
	return false;
}

/* Without memory it stays closed. */
static void note(struct export_rule *rule, const struct call *call)
{
	struct xseg_volume_info info;
	if (call->result || call->data_size < sizeof(info))
		return;
	call_get_bytes(call, 0, &info, sizeof(info));
	if (knows(rule, info.id))
		return;
	if (rule->id_count == rule->id_room) {
		size_t room = rule->id_room ? rule->id_room * 2 : 16;
		uint64_t *grown = realloc(rule->ids, room * sizeof(*grown));
		if (!grown)
			return;
		rule->ids = grown;
		rule->id_room = room;
	}
	rule->ids[rule->id_count++] = info.id;
}

static void informed(struct call *call)
{
	struct export_rule *rule = call->context;
	rule->asked--;
	note(rule, call);
	call_end(call);
}

static bool ask(struct export *export, struct export_rule *rule, const char *name)
{
	struct xseg_volume_info info = {0};
	struct call *call;
	if (call_begin(export->peer, &call))
		return false;
	call->op = XSEG_OP_INFO;
	call->context = rule;
	if (call_pages(call, sizeof(info))) {
		call_end(call);
		return false;
	}
	snprintf(info.name, sizeof(info.name), "%s", name);
	call_put_bytes(call, 0, &info, sizeof(info));
	rule->asked++;
	call_submit(call, export->edge, informed);
	return true;
}

bool export_rights_ready(struct export *export, struct export_rule *rule)
{
	if (!rule)
		return true;
	while (rule->next < rule->count && ask(export, rule, rule->names[rule->next]))
		rule->next++;
	return rule->next == rule->count && rule->asked == 0;
}

/* --- requests --------------------------------------------------------------------------------- */

/* A volume, or a snapshot of it. */
static bool names(const struct export_rule *rule, const struct call *call)
{
	char name[VOLUME_NAME_LENGTH_MAX + 1];
	if (call->data_size < sizeof(struct xseg_volume_info))
		return false;
	call_get_bytes(call, XSEG_NAME_AT, name, sizeof(name));
	size_t length = strcspn(memchr(name, 0, sizeof(name)) ? name : "", "@");
	for (size_t i = 0; i < rule->count; i++)
		if (length > 0 && strlen(rule->names[i]) == length &&
			memcmp(rule->names[i], name, length) == 0)
			return true;
	return false;
}

bool export_rights_allow(const struct export_request *request)
{
	const struct export_rule *rule = request->session->rule;
	if (!rule || rule->count == 0)
		return true;
	switch (request->op) {
	case XSEG_OP_OPEN:
	case XSEG_OP_INFO:
		if (request->volume == 0)
			return names(rule, request->call);
		return knows(rule, request->volume);
	case XSEG_OP_READ:
	case XSEG_OP_WRITE:
	case XSEG_OP_ZERO:
	case XSEG_OP_DISCARD:
	case XSEG_OP_FLUSH:
	case XSEG_OP_PREFETCH:
	case XSEG_OP_STATUS: return knows(rule, request->volume);
	case XSEG_OP_CLOSE: return request->volume == 0 || knows(rule, request->volume);
	case XSEG_OP_CONTROL: return request->digest && knows(rule, request->volume);
	default: return false;
	}
}

void export_rights_answered(const struct export_request *request, const struct call *call)
{
	struct export_rule *rule = request->session->rule;
	bool by_name = request->volume == 0 &&
		       (request->op == XSEG_OP_OPEN || request->op == XSEG_OP_INFO);
	if (rule && rule->count > 0 && by_name)
		note(rule, call);
}
