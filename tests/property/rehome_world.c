/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/property/rehome_world.h"

#include <errno.h>

/* --- the record ------------------------------------------------------------------------------- */

struct map_claim claim_of(const struct world *w, unsigned host)
{
	return (struct map_claim){.owner = w->owners[host],
		.now_ns = w->clock,
		.boot_ns = w->clock,
		.boot = 8,
		.lease_ns = LEASE,
		.watch = w->watch,
		.host = "h"};
}

struct map_home record(struct world *w)
{
	struct map_home home = {0};
	map_home_read(&w->memory->store, ID, &home);
	return home;
}

struct map_home_info look(struct world *w, unsigned host)
{
	struct map_home home = record(w);
	w->composers[host].seen = home;
	return (struct map_home_info){w->owners[host], home.owner, home.last, home.next,
		home.previous, home.term, home.line, home.since};
}

/* --- composer, cache and store ---------------------------------------------------------------- */

void write_back(struct world *w, unsigned host)
{
	struct composer *c = &w->composers[host];
	if (c->is_dirty && c->cached_term >= w->fence)
		w->stored = c->cached;
	c->is_dirty = false;
}

int claim(struct world *w, unsigned host)
{
	struct composer *c = &w->composers[host];
	struct map_claim claim = claim_of(w, host);
	struct map_home before = record(w), home = c->seen;
	if (c->claimed || c->acquired)
		return 0;
	bool is_ours = home.owner == 0 && home.next == w->owners[host];
	int rc = is_ours ? map_home_take(&w->memory->store, &claim, &home) : -ESTALE;
	c->seen = (struct map_home){0};
	if (rc == -ESTALE)
		rc = map_home_acquire(&w->memory->store, ID, &claim, w->weak == WEAK_BLIND, &home);
	if (rc != 0)
		return rc;
	bool is_free = before.owner == 0 && before.next == 0;
	bool handed = before.next == w->owners[host] || before.last == w->owners[host] ||
		      (is_free && before.previous == w->owners[host]);
	bool was = before.owner == w->owners[host];
	w->broken += before.term != 0 && !was && !handed;
	if (w->weak == WEAK_NO_PREDECESSOR && !handed)
		home.line = before.line;
	c->claimed = true;
	c->known = home;
	c->term = home.term;
	c->line = home.line;
	return 0;
}

int acquire(struct world *w, unsigned host)
{
	struct composer *c = &w->composers[host];
	int rc = claim(w, host);
	if (rc != 0 || c->acquired)
		return rc;
	c->claimed = false;
	c->acquired = true;
	w->fence = c->term > w->fence ? c->term : w->fence;
	if (c->cached_term < c->line && w->weak != WEAK_NO_FENCE)
		c->has = c->is_dirty = false;
	c->cached_term = c->term;
	return 0;
}

void told(struct world *w, unsigned host, uint64_t term, uint64_t version)
{
	struct map_home *seen = &w->composers[host].seen;
	if (seen->term != term)
		return;
	seen->owner = 0;
	seen->next = w->owners[host];
	seen->version = version;
}

unsigned opens(const struct world *w, unsigned host, enum counted counted)
{
	unsigned count = 0;
	for (unsigned i = 0; i < CLIENTS; i++)
		count += w->clients[i].is_open && w->clients[i].host == host &&
			 w->clients[i].counted == counted;
	return count;
}

void release_idle(struct world *w, unsigned host)
{
	struct composer *c = &w->composers[host];
	if (!c->acquired || c->kept || opens(w, host, BY_COMPOSER) > 0)
		return;
	write_back(w, host);
	map_home_release(&w->memory->store, ID, w->owners[host], c->term);
	c->acquired = false;
}

int give(struct world *w, unsigned host, uint64_t next, bool *is_unsure)
{
	struct composer *c = &w->composers[host];
	struct map_claim claim = claim_of(w, host);
	if (c->claimed)
		acquire(w, host);
	if (!c->acquired)
		return -ESTALE;
	if (w->weak != WEAK_GIVE_DIRTY)
		write_back(w, host);
	*is_unsure = !w->calm && any(w, 6) == 0;
	bool done = !*is_unsure || any(w, 2);
	int rc = done ? map_home_give(&w->memory->store, ID, &claim, c->term, next, &c->known) : 0;
	c->acquired = false; /* it acquires it first, whatever became of it */
	return rc == 0 && *is_unsure ? -EIO : rc;
}
