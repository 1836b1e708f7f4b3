/* SPDX-License-Identifier: Apache-2.0 */
#include "peers/rehome/rehome_table.h"

#include <stddef.h>

#define RULE(state, event, next, action) \
	{ \
		REHOME_##state, REHOME_EV_##event, REHOME_##next, REHOME_DO_##action \
	}

static const struct rehome_rule rules[] = {
	/* a peer that was started, or started anew, knows nothing: the record does */
	RULE(UNKNOWN, ASKED, LOOKING, LOOK),
	RULE(LOOKING, OURS, HOME, SERVE),
	RULE(LOOKING, THEIRS, AWAY, FORWARD),
	RULE(LOOKING, OPEN_ENDED, SETTLING, ACQUIRE),
	RULE(LOOKING, OFFERED, TAKING, ACQUIRE),
	RULE(LOOKING, FAILED, LOOKING, LOOK),
	/* source */
	RULE(HOME, BEGIN, EXPORT, PUSH),
	RULE(EXPORT, LONG, EXPORT, PUSH),
	RULE(EXPORT, SHORT, DRAINING, FREEZE),
	RULE(EXPORT, FAILED, HOME, SERVE),
	RULE(EXPORT, CANCEL, HOME, SERVE),
	RULE(DRAINING, QUIET, FLUSHING, PUSH),
	RULE(DRAINING, FAILED, HOME, SERVE),
	RULE(DRAINING, CANCEL, HOME, SERVE),
	RULE(FLUSHING, SHORT, FROZEN, FREEZE),
	RULE(FLUSHING, FAILED, HOME, SERVE),
	RULE(FLUSHING, CANCEL, HOME, SERVE),
	RULE(FROZEN, QUIET, COMMITTING, GIVE),
	RULE(FROZEN, FAILED, HOME, SERVE),
	RULE(FROZEN, CANCEL, HOME, SERVE),
	RULE(COMMITTING, GIVEN, COMMITTING, TAKE),
	RULE(COMMITTING, THEIRS, AWAY, FORWARD),
	RULE(COMMITTING, FAILED, SETTLING, ACQUIRE),
	/* no CANCEL: what gives it away is on its way, and would come after what takes it back */
	RULE(SETTLING, OURS, HOME, SERVE),
	RULE(SETTLING, THEIRS, AWAY, FORWARD),
	RULE(SETTLING, FAILED, SETTLING, ACQUIRE),
	/* it may have become somebody else's without us */
	RULE(AWAY, CANCEL, LOOKING, LOOK),
	RULE(AWAY, ELSEWHERE, LOOKING, LOOK),
	RULE(HOME, ELSEWHERE, LOOKING, LOOK),
	/* destination */
	RULE(UNKNOWN, OFFERED, TAKING, ACQUIRE),
	RULE(HOME, OFFERED, TAKING, ACQUIRE),
	RULE(AWAY, OFFERED, TAKING, ACQUIRE),
	RULE(TAKING, OURS, HOME, SERVE),
	RULE(TAKING, FAILED, LOOKING, LOOK),
};

const struct rehome_rule *rehome_table_find(enum rehome_state state, enum rehome_event event)
{
	for (unsigned i = 0; i < sizeof(rules) / sizeof(*rules); i++)
		if (rules[i].state == state && rules[i].event == event)
			return &rules[i];
	return NULL;
}

enum rehome_way rehome_table_way(enum rehome_state state, bool reads)
{
	static const uint8_t ways[REHOME_STATES] = {[REHOME_HOME] = REHOME_WAY_HERE,
		[REHOME_EXPORT] = REHOME_WAY_HERE,
		[REHOME_AWAY] = REHOME_WAY_THERE};
	if (reads && (state == REHOME_DRAINING || state == REHOME_FLUSHING))
		return REHOME_WAY_HERE;
	return ways[state];
}

/* Nobody has it. Whose turn is it? */
static enum rehome_event judge_free(
	const struct map_home_info *home, uint64_t owner, struct rehome_terms *terms)
{
	/* given away by us, or given back by whom we gave it to: who is attached goes on */
	bool was_ours = home->last == owner || (home->next == 0 && home->previous == owner);
	if (was_ours || home->next == owner)
		*terms = (struct rehome_terms){home->since ? home->since : home->line, home->term};
	if (home->next == owner)
		return REHOME_EV_OFFERED;
	/* whoever comes for it first has it; of one that is given away, when a lease is over */
	return home->next != 0 || home->since != 0 ? REHOME_EV_OPEN_ENDED : REHOME_EV_OURS;
}

enum rehome_event rehome_table_judge(const struct map_home_info *home, uint64_t owner,
	bool is_known, bool sure, struct rehome_terms *terms)
{
	*terms = (struct rehome_terms){0, 0};
	if (home->owner == 0)
		return judge_free(home, owner, terms);
	if (home->since != 0 && (is_known || home->owner == owner))
		*terms = (struct rehome_terms){home->since, home->term};
	/* our composer may think otherwise, or be about to give it back */
	if (home->owner == owner)
		return REHOME_EV_OPEN_ENDED;
	if (is_known)
		return REHOME_EV_THEIRS;
	/* he may be behind an edge that has not answered yet */
	return sure ? REHOME_EV_OURS : REHOME_EV_FAILED;
}

enum rehome_event rehome_table_acquired(enum rehome_state state, bool acquired, uint64_t given,
	const struct map_home_info *home, uint64_t owner, bool is_known, bool sure,
	struct rehome_terms *terms)
{
	enum rehome_event event = rehome_table_judge(home, owner, is_known, sure, terms);
	bool ours = acquired && home->owner == owner;
	if (state == REHOME_TAKING)
		ours = ours && home->since != 0 && home->since <= given && home->term > given;
	if (ours)
		return REHOME_EV_OURS;
	/* it is ours to take, and was not to be had yet */
	bool again = state == REHOME_TAKING || home->owner == 0 || home->owner == owner;
	return again ? REHOME_EV_FAILED : event;
}
