/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tests/property/rehome_world.h"

#define STEPS 120u	/* with faults */
#define STEPS_CALM 600u /* without */

static void law(struct world *w, bool holds, const char *text)
{
	if (!holds && !w->law)
		w->law = text;
}

static struct message *post(struct world *w, enum kind kind, unsigned host, unsigned from)
{
	static struct message lost;
	struct message *m = w->count < MESSAGES ? &w->messages[w->count++] : &lost;
	*m = (struct message){.kind = kind, .host = host, .from = from, .first = NOBODY};
	return m;
}

/* --- a client's request ----------------------------------------------------------------------- */

static void answered(struct world *w, struct message *m, int error)
{
	struct client *client = &w->clients[m->client];
	client->busy = false;
	if (client->ends || error == 0)
		return;
	law(w, client->broken != w->broken || client->counted == BY_NOBODY,
		"who is attached sees an error");
	client->is_open = false;
}

static void serve(struct world *w, struct message *m)
{
	struct composer *c = &w->composers[m->host];
	struct client *client = &w->clients[m->client];
	int rc = acquire(w, m->host);
	/* when the answer comes, it is not there any more for whom he asked */
	const struct re_homer *h = &w->homes[client->host];
	bool is_there = m->first == NOBODY || (h->state == REHOME_AWAY && h->edge == m->first);
	if (client->ends && !is_there) {
		post(w, REQUEST, client->host, client->host)->client = m->client;
		return;
	}
	if (client->ends) {
		client->is_open = rc == 0;
		c->kept |= client->is_open && m->first != NOBODY; /* before it is closed there */
		client->counted = m->first == NOBODY ? BY_COMPOSER : BY_RE_HOMER;
		client->term = c->term;
		client->broken = w->broken;
		answered(w, m, rc);
		return;
	}
	if (rc == 0 && m->term < c->line)
		rc = -ESTALE;
	if (rc == 0 && !client->reads) {
		law(w, client->broken == w->broken, "who was overtaken writes");
		c->cached = w->truth = ++w->next_value;
		c->has = c->is_dirty = true;
	} else if (rc == 0) {
		c->cached = c->has ? c->cached : w->stored;
		c->has = true;
		law(w, c->cached == w->truth, "what is read is old");
	}
	answered(w, m, rc);
}

/* --- a re-homer ------------------------------------------------------------------------------- */

static bool is_quiet(const struct world *w, unsigned host, bool reads)
{
	for (unsigned i = 0; i < w->count; i++) {
		const struct message *m = &w->messages[i];
		if (m->kind == SERVE && m->host == host && (reads || !w->clients[m->client].reads))
			return w->weak == WEAK_FREEZE;
	}
	return true;
}

static void event(struct world *w, unsigned host, enum rehome_event what);

static void wake(struct world *w, unsigned host)
{
	struct re_homer *h = &w->homes[host];
	for (unsigned i = 0; i < CLIENTS; i++)
		if (h->waiting[i]) {
			h->waiting[i] = false;
			struct message *m = post(w, REQUEST, host, host);
			m->client = i;
			m->term = w->clients[i].term;
			m->first = h->first[i];
		}
}

static void act(struct world *w, unsigned host, enum rehome_action action)
{
	static const enum kind kinds[REHOME_ACTIONS] = {[REHOME_DO_LOOK] = LOOK,
		[REHOME_DO_PUSH] = PUSH,
		[REHOME_DO_GIVE] = GIVE,
		[REHOME_DO_TAKE] = TAKE,
		[REHOME_DO_ACQUIRE] = ACQUIRE};
	struct re_homer *h = &w->homes[host];
	if (action == REHOME_DO_LOOK || action == REHOME_DO_ACQUIRE)
		h->unsure = !is_quiet(w, host, true);
	if (action == REHOME_DO_SERVE || action == REHOME_DO_FORWARD) {
		h->attached = h->state == REHOME_AWAY;
		wake(w, host);
	}
	h->due = action == REHOME_DO_TAKE || action == REHOME_DO_FREEZE;
	if (kinds[action] == REQUEST || (action == REHOME_DO_TAKE && h->has_early))
		return;
	unsigned at = action == REHOME_DO_TAKE ? h->to : host;
	struct message *m = post(w, kinds[action], at, host);
	m->serial = h->serial;
	m->term = h->term;
	m->since = h->since;
	m->next = h->next;
	m->given = action == REHOME_DO_TAKE ? h->given : 0;
	h->given = 0;
	h->early = 0;
	if (action == REHOME_DO_GIVE && any(w, 3) != 0) {
		struct message *early = post(w, TAKE, h->to, host);
		early->serial = h->early = h->serial;
		early->term = h->term;
		early->since = h->since;
		early->early = h->has_early = true;
	}
}

static void event(struct world *w, unsigned host, enum rehome_event what)
{
	struct re_homer *h = &w->homes[host];
	const struct rehome_rule *rule = rehome_table_find(h->state, what);
	if (!rule)
		return;
	h->again = rule->next == h->state && what == REHOME_EV_FAILED;
	h->state = rule->next;
	h->serial = ++w->serial;
	h->due = false;
	h->action = rule->action;
	if (!h->again)
		act(w, host, rule->action);
	for (unsigned i = 0; h->again && h->state == REHOME_LOOKING && i < CLIENTS; i++)
		if (h->waiting[i] && w->clients[i].ends) {
			h->waiting[i] = false;
			struct message *m = post(w, SERVE, host, host);
			m->client = i;
			m->first = h->first[i];
			h->unsure = true;
		}
}

/* What its record says; after ACQUIRE, when it was read. */
static void judge(struct world *w, struct message *m)
{
	struct re_homer *h = &w->homes[m->host];
	struct rehome_terms terms;
	bool taking = h->state == REHOME_TAKING;
	bool early = taking && h->has_take && h->take.early && m->result != 0;
	if (early && any(w, 8) != 0) { /* for a while it looks whether the record says so, too */
		h->again = true;
		return;
	}
	uint64_t owner = w->owners[m->host], since = h->since;
	unsigned edge = NOBODY;
	bool sure = true;
	for (unsigned i = 0; i < HOSTS; i++) {
		if (i != m->host && h->knows[i] && w->owners[i] == m->home.owner)
			edge = i;
		sure &= i == m->host || h->knows[i];
	}
	bool known = edge != NOBODY;
	enum rehome_event found = m->kind == LOOKED
					  ? rehome_table_judge(&m->home, owner, known, sure, &terms)
					  : rehome_table_acquired(h->state, m->result == 0, h->term,
						    &m->home, owner, known, sure, &terms);
	if (taking && m->result == 0 && w->weak == WEAK_NOT_HANDED) {
		found = REHOME_EV_OURS;
		terms = (struct rehome_terms){since, m->home.term};
	}
	h->since = terms.since;
	h->term = terms.term;
	h->edge = edge;
	if (taking && h->has_take) {
		struct message *answer = post(w, TAKEN, h->take.from, m->host);
		answer->serial = h->take.serial;
		answer->result = found == REHOME_EV_OURS ? 0 : -ESTALE;
		answer->term = h->term;
	}
	h->has_take &= !taking;
	h->keeping |= m->kind == ACQUIRED && found == REHOME_EV_OURS;
	h->again |= found == REHOME_EV_THEIRS && h->unsure;
	if (!h->again)
		event(w, m->host, found);
}

static void request(struct world *w, struct message *m)
{
	struct re_homer *h = &w->homes[m->host];
	enum rehome_way way = rehome_table_way(h->state, w->clients[m->client].reads);
	if (way == REHOME_WAY_WAIT) {
		h->waiting[m->client] = true;
		h->first[m->client] = m->first;
		w->clients[m->client].term = m->term;
		event(w, m->host, REHOME_EV_ASKED);
		return;
	}
	bool here = way == REHOME_WAY_HERE;
	h->attached |= !here;
	struct message *next = post(w, here ? SERVE : REQUEST, here ? m->host : h->edge, m->host);
	next->client = m->client;
	next->first = w->clients[m->client].host != m->host ? m->first : here ? NOBODY : h->edge;
	next->term = w->weak == WEAK_ANY_TERM && h->term > m->term
			     ? h->term
			     : rehome_table_term(m->term, h->since, h->term);
}

static void take(struct world *w, struct message *m)
{
	struct re_homer *h = &w->homes[m->host];
	bool is_here = h->state == REHOME_HOME && h->term == m->term + 1;
	if (h->state == REHOME_TAKING && !h->has_take && h->term == m->term) {
		h->has_take = true;
		h->take = *m;
		return;
	}
	if (!is_here && rehome_table_find(h->state, REHOME_EV_OFFERED)) {
		h->term = m->term;
		h->since = m->since;
		h->has_take = true;
		h->take = *m;
		if (m->given != 0 && (m->next == w->owners[m->host] || w->weak == WEAK_TOLD))
			told(w, m->host, m->term, m->given);
		event(w, m->host, REHOME_EV_OFFERED);
		return;
	}
	struct message *answer = post(w, TAKEN, m->from, m->host);
	answer->serial = m->serial;
	answer->result = is_here ? 0 : -EBUSY;
	answer->term = h->term;
}

/* --- messages --------------------------------------------------------------------------------- */

static struct message *answer_to(
	struct world *w, const struct message *m, enum kind kind, int result)
{
	struct message *answer = post(w, kind, m->from, m->host);
	answer->serial = m->serial;
	answer->result = result;
	answer->home = look(w, m->host);
	answer->term = w->composers[m->host].term;
	return answer;
}

/* What a composer is asked. */
static void asked(struct world *w, struct message *m)
{
	bool is_unsure;
	if (m->kind == SERVE) {
		serve(w, m);
	} else if (m->kind == PUSH) {
		if (w->weak != WEAK_GIVE_DIRTY)
			write_back(w, m->host);
		answer_to(w, m, PUSHED, 0);
	} else if (m->kind == GIVE) {
		int rc = give(w, m->host, m->next, &is_unsure);
		uint64_t version = w->composers[m->host].known.version;
		answer_to(w, m, GIVEN, rc)->given = rc == 0 ? version : 0;
	} else if (m->kind == LOOK) {
		answer_to(w, m, LOOKED, 0);
	} else {
		int rc = claim(w, m->host);
		w->composers[m->host].kept |= rc == 0;
		answer_to(w, m, ACQUIRED, rc);
	}
}

static enum rehome_event pushed(struct world *w, const struct re_homer *h)
{
	bool last = h->state == REHOME_FLUSHING;
	if (last && !w->calm && any(w, 8) == 0)
		return REHOME_EV_FAILED;
	return last || any(w, 3) ? REHOME_EV_SHORT : REHOME_EV_LONG;
}

/* What a re-homer hears. */
static void heard(struct world *w, struct message *m)
{
	struct re_homer *h = &w->homes[m->host];
	bool early = m->kind == TAKEN && h->state == REHOME_COMMITTING && m->serial == h->early;
	if (m->serial != h->serial && !early) /* something else has happened since */
		return;
	if (early && m->result != 0 && w->weak != WEAK_EARLY) {
		bool is_due = h->has_early && h->due; /* it has been given */
		h->has_early = false;
		if (is_due)
			act(w, m->host, REHOME_DO_TAKE);
		return;
	}
	switch (m->kind) {
	case LOOKED:
	case ACQUIRED: judge(w, m); break;
	case PUSHED: event(w, m->host, pushed(w, h)); break;
	case GIVEN:
		w->homes[m->host].given = m->given;
		event(w, m->host, m->result ? REHOME_EV_FAILED : REHOME_EV_GIVEN);
		break;
	case TAKEN:
		if (m->result == 0) {
			h->edge = h->to;
			h->term = m->term;
		}
		event(w, m->host, m->result ? REHOME_EV_FAILED : REHOME_EV_THEIRS);
		break;
	default: break;
	}
}

/* Does a re-homer say that somebody is attached to what is there? */
static bool is_kept_by(const struct world *w, unsigned host)
{
	for (unsigned i = 0; i < HOSTS; i++)
		if (w->homes[i].state == REHOME_AWAY && w->homes[i].edge == host &&
			w->homes[i].attached)
			return true;
	return opens(w, host, BY_RE_HOMER) > 0;
}

/* Is anybody to say soon that it is to be kept? A re-homer that was killed is there again, and has
   said so, before a minute is over. */
static bool is_wanted(const struct world *w, unsigned host)
{
	for (unsigned i = 0; i < HOSTS; i++)
		if (opens(w, i, BY_RE_HOMER) > 0 || (i != host && opens(w, i, BY_COMPOSER) > 0))
			return true;
	return false;
}

static void keep(struct world *w, struct message *m)
{
	struct re_homer *h = &w->homes[m->host];
	if (h->state == REHOME_AWAY && h->edge == m->client) {
		event(w, m->host, REHOME_EV_CANCEL); /* each of us thinks that another has it */
	} else if (h->state == REHOME_AWAY) {
		struct message *on = post(w, KEEP, h->edge, m->host);
		on->there = m->there;
		on->client = m->client;
	} else if (h->state != REHOME_HOME) {
		event(w, m->host, REHOME_EV_ASKED);
	} else if (!m->there) {
		/* it is for some seconds more: who is attached has said so again by then */
		w->composers[m->host].kept = is_kept_by(w, m->host) || is_wanted(w, m->host);
	} else if (acquire(w, m->host) == 0) {
		w->composers[m->host].kept = true;
	}
}

/* Between hosts a link may be cut: what is asked fails, or the answer does, or it is asked twice.
   Requests of clients wait for it. */
static void deliver(struct world *w, unsigned which)
{
	struct message m = w->messages[which];
	bool control = m.kind == TAKE || m.kind == TAKEN || m.kind == KEEP;
	bool lost = control && !w->calm && any(w, 8) == 0;
	bool twice = control && m.kind != TAKEN && !w->calm && any(w, 6) == 0;
	bool is_for_composer = m.kind == SERVE || m.kind == LOOK || m.kind == PUSH ||
			       m.kind == GIVE || m.kind == ACQUIRE;
	if (!twice)
		w->messages[which] = w->messages[--w->count];
	if (is_for_composer)
		asked(w, &m);
	else if (lost)
		return;
	else if (m.kind == REQUEST)
		request(w, &m);
	else if (m.kind == TAKE)
		take(w, &m);
	else if (m.kind == KEEP)
		keep(w, &m);
	else
		heard(w, &m);
}

/* --- what else happens ------------------------------------------------------------------------ */

static void client_acts(struct world *w)
{
	unsigned i = any(w, CLIENTS);
	struct client *client = &w->clients[i];
	if (client->busy)
		return;
	if (client->is_open && !w->calm && any(w, 8) == 0) {
		client->is_open = false;
		return;
	}
	client->ends = !client->is_open;
	client->reads = !client->ends && any(w, 2);
	client->busy = true;
	struct message *m = post(w, REQUEST, client->host, client->host);
	m->client = i;
	m->term = client->ends ? 0 : client->term;
	client->term = m->term;
}

static void begin(struct world *w)
{
	unsigned host = any(w, HOSTS), to = any(w, HOSTS);
	struct re_homer *h = &w->homes[host];
	if (to == host || h->state != REHOME_HOME || acquire(w, host) != 0)
		return;
	struct map_home_info home = look(w, host);
	w->composers[host].kept = true;
	h->term = home.term;
	h->since = home.since ? home.since : home.line;
	h->to = to;
	h->next = w->owners[to];
	h->knows[to] = true;
	if (any(w, 4) != 0)
		look(w, to); /* it was offered */
	event(w, host, REHOME_EV_BEGIN);
}

/* What it has asked its composer comes to rest before its successor begins (core_host.c), and is
   answered to nobody; what it was asked itself is asked again of its successor. */
static void re_homer_dies(struct world *w, unsigned host)
{
	struct re_homer *h = &w->homes[host];
	for (unsigned i = w->count; i-- > 0;) {
		enum kind kind = w->messages[i].kind;
		if (w->messages[i].host == host && (kind == GIVE || kind == ACQUIRE))
			deliver(w, i);
	}
	if (h->has_take)
		*post(w, TAKE, host, h->take.from) = h->take;
	wake(w, host);
	*h = (struct re_homer){.serial = ++w->serial};
	for (unsigned i = 0; i < CLIENTS; i++)
		if (w->clients[i].host == host && w->clients[i].counted == BY_RE_HOMER)
			w->clients[i].counted = BY_NOBODY;
	if (opens(w, host, BY_COMPOSER) > 0)
		event(w, host, REHOME_EV_ASKED); /* it looks at what is open */
}

static void composer_dies(struct world *w, unsigned host)
{
	struct composer *c = &w->composers[host];
	struct map_home home = record(w);
	c->acquired = !c->claimed && home.owner == w->owners[host];
	c->claimed &= home.owner == w->owners[host];
	c->known = home;
	c->seen = (struct map_home){0};
	c->term = c->acquired ? home.term : c->term;
	c->line = c->acquired ? home.line : c->line;
}

/* It was there, or something of it was. */
static bool is_lost_with(const struct world *w, unsigned which, unsigned host)
{
	for (unsigned i = 0; i < w->count; i++) {
		const struct message *m = &w->messages[i];
		if (m->kind <= SERVE && m->client == which && (m->host == host || m->from == host))
			return true;
	}
	return w->clients[which].host == host || w->homes[host].waiting[which];
}

static void fail_client(struct world *w, unsigned which)
{
	struct client *client = &w->clients[which];
	*client = (struct client){.host = client->host};
	for (unsigned i = 0; i < HOSTS; i++)
		w->homes[i].waiting[which] = false;
	for (unsigned i = w->count; i-- > 0;)
		if (w->messages[i].kind <= SERVE && w->messages[i].client == which)
			w->messages[i] = w->messages[--w->count];
}

static void host_dies(struct world *w, unsigned host)
{
	struct map_home home = record(w);
	if (w->host_died)
		return;
	w->host_died = true;
	w->broken += home.owner == w->owners[host]; /* and what was not flushed */
	if (home.owner == w->owners[host] && w->composers[host].is_dirty)
		w->truth = w->stored;
	for (unsigned i = 0; i < CLIENTS; i++)
		if (is_lost_with(w, i, host))
			fail_client(w, i);
	for (unsigned i = w->count; i-- > 0;)
		if (w->messages[i].host == host || w->messages[i].from == host)
			w->messages[i] = w->messages[--w->count];
	for (unsigned i = 0; i < HOSTS; i++)
		w->homes[i].knows[host] = false;
	w->owners[host] += HOSTS;
	w->homes[host] = (struct re_homer){.serial = ++w->serial};
	w->composers[host] = (struct composer){0};
}

/* A lease is long, against the time after which what has failed is tried again. */
static bool is_in_haste(struct world *w)
{
	struct map_home home = record(w);
	for (unsigned i = 0; i < HOSTS; i++)
		if (home.owner == w->owners[i] && !w->composers[i].acquired)
			return true;
	return false;
}

/* Whoever lives renews his lease. */
static void time_passes(struct world *w)
{
	if (is_in_haste(w))
		return;
	for (unsigned part = 0; part < 4; part++) {
		w->clock += LEASE / 4;
		for (unsigned i = 0; i < HOSTS; i++) {
			struct map_claim claim = claim_of(w, i);
			struct composer *c = &w->composers[i];
			c->kept &= is_wanted(w, i);
			if (c->acquired && map_home_renew(&w->memory->store, ID, &claim, c->term,
						   &c->known) == -ESTALE)
				c->acquired = false;
		}
	}
}

static void timers(struct world *w, unsigned host)
{
	struct re_homer *h = &w->homes[host];
	bool frozen = h->state == REHOME_FROZEN, drains = frozen || h->state == REHOME_DRAINING;
	if (w->composers[host].claimed && any(w, 2))
		acquire(w, host);
	if (drains && is_quiet(w, host, frozen)) {
		event(w, host, REHOME_EV_QUIET);
	} else if (h->due && any(w, 4) == 0 && w->weak != WEAK_NO_TIMER) {
		event(w, host, REHOME_EV_FAILED);
	} else if (h->again && w->weak != WEAK_NO_RETRY) {
		h->again = false;
		act(w, host, h->action);
	} else if (h->state == REHOME_AWAY && h->attached) {
		h->attached = opens(w, host, BY_COMPOSER) + opens(w, host, BY_RE_HOMER) > 0;
		struct message *m = post(w, KEEP, h->edge, host);
		m->there = h->attached;
		m->client = host;
	} else if (h->state == REHOME_HOME && (h->keeping || opens(w, host, BY_RE_HOMER) > 0)) {
		h->keeping = opens(w, host, BY_RE_HOMER) > 0;
		if (acquire(w, host) == 0)
			w->composers[host].kept =
				h->keeping || h->since != 0 || is_kept_by(w, host);
	}
}

static void step(struct world *w)
{
	unsigned host = any(w, HOSTS);
	unsigned what = any(w, w->calm ? 70 : 100);
	if (what < 40 && w->count > 0)
		deliver(w, any(w, w->count));
	else if (what < 52)
		client_acts(w);
	else if (what < 60)
		timers(w, host);
	else if (what < 63)
		w->homes[host].knows[any(w, HOSTS)] = true;
	else if (what < 66)
		release_idle(w, host);
	else if (what < 70)
		time_passes(w);
	else if (what < 82)
		begin(w);
	else if (what < 86) /* who opens it may look at any time, at a record of before */
		event(w, host, any(w, 2) ? REHOME_EV_CANCEL : REHOME_EV_ELSEWHERE);
	else if (what < 90)
		re_homer_dies(w, host);
	else if (what < 94)
		composer_dies(w, host);
	else if (what == 99 && any(w, 4) == 0)
		host_dies(w, host);
}

/* --- the end ---------------------------------------------------------------------------------- */

static void check_end(struct world *w)
{
	unsigned owners = 0;
	struct map_home home = record(w);
	for (unsigned i = 0; i < HOSTS; i++) {
		enum rehome_state state = w->homes[i].state;
		law(w, state == REHOME_HOME || state == REHOME_AWAY || state == REHOME_UNKNOWN,
			"a move ends");
		owners += w->composers[i].acquired;
		law(w, !w->composers[i].acquired || home.owner == w->owners[i],
			"the record knows who has it");
	}
	law(w, owners <= 1, "one has it");
	for (unsigned i = 0; i < CLIENTS; i++)
		law(w, !w->clients[i].busy, "everybody is answered");
}

static void calm_down(struct world *w)
{
	w->calm = true;
	for (unsigned i = 0; i < STEPS_CALM && !w->law; i++)
		step(w);
	/* no more is asked; what was, ends */
	for (unsigned i = 0; i < STEPS_CALM && !w->law; i++) {
		unsigned host = any(w, HOSTS);
		if (w->count > 0)
			deliver(w, any(w, w->count));
		timers(w, host);
		w->homes[host].knows[any(w, HOSTS)] = true;
	}
	if (!w->law)
		check_end(w);
}

const char *rehome_model_run(unsigned seed, enum weak weak, unsigned *steps)
{
	struct world w = {.random = seed * 1000003u + 1, .weak = weak, .clock = 5000};
	w.memory = map_memory_create();
	w.watch = malloc(sizeof(*w.watch));
	map_home_watch_init(w.watch);
	for (unsigned i = 0; i < HOSTS; i++)
		w.owners[i] = i + 1;
	for (unsigned i = 0; i < CLIENTS; i++)
		w.clients[i] = (struct client){.host = i % HOSTS};
	for (*steps = 0; *steps < STEPS && !w.law; ++*steps)
		step(&w);
	if (!w.law)
		calm_down(&w);
	map_memory_destroy(w.memory);
	free(w.watch);
	return w.law;
}
