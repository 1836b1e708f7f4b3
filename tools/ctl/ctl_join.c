/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the segment that is meant, and the composer in it. */
#include <base/clock.h>
#include <peer/client.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xseg/registry.h>

#include "tools/ctl/ctl.h"
#include "tools/ctl/ctl_rpc.h"

#define COMES_NS 10000000000u
#define COMES_LOOK_MS 50

struct names {
	unsigned count;
	char first[NAME_LENGTH_MAX + 1];
	char list[128];
};

static void names_add(struct names *names, const char *name)
{
	size_t n = strlen(names->list);
	if (names->count++ == 0)
		snprintf(names->first, sizeof(names->first), "%s", name);
	snprintf(names->list + n, sizeof(names->list) - n, "%s%s", n ? ", " : "", name);
}

static int visit(const char *name, void *context)
{
	names_add(context, name);
	return 0;
}

void ctl_join_run_dir(const char *segment)
{
	char run_dir[XSEG_RUN_DIR_MAX + 1] = "";
	const char *given = getenv("SKERRY_RUN_DIR");
	uint32_t pid;
	if ((!given || !*given) && xseg_segment_keeper(segment, &pid, run_dir) == 0 && *run_dir)
		setenv("SKERRY_RUN_DIR", run_dir, 1);
}

static int segment_name(struct ctl *ctl, char name[NAME_LENGTH_MAX + 1])
{
	struct names names = {0};
	const char *given = ctl->segment ? ctl->segment : getenv("SKERRY_SEGMENT");
	if (given && *given) {
		if (!name_check(given))
			return fault_set(&ctl->fault, FAULT_USAGE, given, NULL,
				"SKERRY_SEGMENT='%s' is no name for a segment", given);
		snprintf(name, NAME_LENGTH_MAX + 1, "%s", given);
		return 0;
	}
	xseg_segment_list(visit, &names);
	if (names.count == 0)
		return fault_set(&ctl->fault, FAULT_NOT_FOUND, NULL,
			"make one with 'xsegctl up FILE' or 'xsegctl segment create NAME --size "
			"1G'",
			"there is no segment");
	if (names.count > 1) {
		fault_set(&ctl->fault, FAULT_USAGE, NULL, NULL, "there are several segments (%s)",
			names.list);
		fault_hint(&ctl->fault, "say which with --segment");
		return -FAULT_USAGE;
	}
	snprintf(name, NAME_LENGTH_MAX + 1, "%s", names.first);
	return 0;
}

int ctl_join_segment_name(struct ctl *ctl, char name[NAME_LENGTH_MAX + 1])
{
	int rc = segment_name(ctl, name);
	if (!rc)
		ctl_join_run_dir(name);
	return rc;
}

int ctl_join(struct ctl *ctl, struct xseg *seg)
{
	char name[NAME_LENGTH_MAX + 1], why[XSEG_WHY_SIZE] = "";
	int rc = ctl_join_segment_name(ctl, name);
	if (rc)
		return rc;
	rc = xseg_segment_join(name, seg, why);
	if (rc)
		return fault_set(&ctl->fault, fault_code_of_errno(rc), name, NULL, "%s", why);
	return 0;
}

/* --- the composer ----------------------------------------------------------------------- */

static void find_composers(const struct xseg *seg, struct names *alive, struct names *dead)
{
	for (uint32_t i = 0; i < XSEG_PEERS_MAX; i++) {
		struct xseg_peer_view view;
		if (!xseg_peer_view(seg, i, &view) || strcmp(view.role, "volume"))
			continue;
		names_add(view.life == XSEG_LIFE_DEAD ? dead : alive, view.name);
	}
}

static int choose_composer(
	struct ctl *ctl, const struct xseg *seg, char name[NAME_LENGTH_MAX + 1], bool *is_dead)
{
	struct names alive = {0}, dead = {0};
	find_composers(seg, &alive, &dead);
	if (alive.count == 1) {
		snprintf(name, NAME_LENGTH_MAX + 1, "%s", alive.first);
		return 0;
	}
	if (alive.count > 1)
		return fault_set(&ctl->fault, FAULT_USAGE, seg->name, "say which with --via",
			"segment '%s' has several composers (%s)", seg->name, alive.list);
	snprintf(name, NAME_LENGTH_MAX + 1, "%s", dead.first);
	*is_dead = dead.count > 0;
	if (dead.count)
		return fault_set(&ctl->fault, FAULT_FAILED, dead.first,
			"start it again with 'xsegctl peer start'",
			"the composer '%s' of segment '%s' is dead", dead.first, seg->name);
	fault_set(&ctl->fault, FAULT_NOT_FOUND, seg->name, NULL,
		"segment '%s' has no composer (a peer of role volume), so it has no volumes",
		seg->name);
	fault_hint(&ctl->fault, "start one with 'xsegctl up FILE'");
	return -FAULT_NOT_FOUND;
}

static int check_via(struct ctl *ctl, const struct xseg *seg, const char *via, bool *is_dead)
{
	struct xseg_peer_view view;
	if (xseg_peer_find(seg, via, &view))
		return fault_set(&ctl->fault, FAULT_NOT_FOUND, via,
			"'xsegctl peer list' lists them", "segment '%s' has no peer '%s'",
			seg->name, via);
	*is_dead = view.life == XSEG_LIFE_DEAD;
	if (*is_dead)
		return fault_set(&ctl->fault, FAULT_FAILED, via, NULL, "peer '%s' is dead", via);
	return 0;
}

/* Does the keeper start it again? */
static bool comes_back(struct ctl *ctl, const char *segment, const char *name)
{
	const struct fault before = ctl->fault;
	json_t *list = NULL, *peer;
	size_t i;
	bool comes = false;
	if (ctl_rpc_call(ctl, segment, "peer.list", NULL, &list))
		list = NULL;
	json_array_foreach (json_object_get(list, "peers"), i, peer) {
		const char *found = json_string_value(json_object_get(peer, "name"));
		const char *state = json_string_value(json_object_get(peer, "state"));
		if (found && state && !strcmp(found, name))
			comes = strcmp(state, "given-up") != 0 && strncmp(state, "stop", 4) != 0;
	}
	json_decref(list);
	ctl->fault = before;
	return comes;
}

/*
 * The composer's name. One that is being started anew is waited for, so that commands see a pause,
 * as clients do: those that are on their way when it dies go to its successor.
 */
static int find_composer(struct ctl *ctl, const struct xseg *seg, char name[NAME_LENGTH_MAX + 1])
{
	const char *via = ctl_option_value(ctl, "via");
	uint64_t until = clock_now_ns() + (ctl->timeout_given ? ctl->timeout_ns : COMES_NS);
	for (;;) {
		bool dead = false;
		if (via)
			snprintf(name, NAME_LENGTH_MAX + 1, "%s", via);
		int rc = via ? check_via(ctl, seg, via, &dead)
			     : choose_composer(ctl, seg, name, &dead);
		if (!dead || clock_now_ns() >= until || ctl_ask_interrupted() ||
			!comes_back(ctl, seg->name, name))
			return rc;
		memset(&ctl->fault, 0, sizeof(ctl->fault));
		poll(NULL, 0, COMES_LOOK_MS);
	}
}

int ctl_join_composer_name(struct ctl *ctl, char name[NAME_LENGTH_MAX + 1])
{
	struct xseg seg;
	int rc = ctl_join(ctl, &seg);
	if (rc)
		return rc;
	rc = find_composer(ctl, &seg, name);
	xseg_segment_leave(&seg);
	return rc;
}

int ctl_join_peer(struct ctl *ctl, const char *segment, const char *peer, struct client *client)
{
	char why[XSEG_WHY_SIZE] = "";
	int rc = client_open(client, segment, peer, why);
	if (rc)
		return fault_set(&ctl->fault, fault_code_of_errno(rc), peer, NULL, "%s", why);
	client->timeout_ns = ctl->timeout_ns;
	return 0;
}

int ctl_join_composer(struct ctl *ctl, struct client *client)
{
	char name[NAME_LENGTH_MAX + 1], segment[NAME_LENGTH_MAX + 1];
	int rc = ctl_join_segment_name(ctl, segment);
	rc = rc ? rc : ctl_join_composer_name(ctl, name);
	return rc ? rc : ctl_join_peer(ctl, segment, name, client);
}
