/* SPDX-License-Identifier: Apache-2.0 */
/* Who may write to a volume: the home record, read and put until nobody interferes. */
#include "peers/map/map_home.h"

#include <base/hash.h>
#include <base/must.h>
#include <errno.h>
#include <string.h>

#define TRIES 100u /* races lost in a row; then -EBUSY */

/* Its version is right for -EILSEQ, too. */
static int home_get(struct map_store *store, uint64_t id, struct map_home *home)
{
	uint8_t bytes[XSEG_RECORD_MAX];
	*home = (struct map_home){.id = id};
	int rc = store->get(store, map_home_key(id), bytes, &home->version);
	if (rc < 0)
		return rc;
	rc = map_format_home_decode(bytes, (size_t)rc, home);
	return rc == 0 && home->id != id ? -EILSEQ : rc;
}

static int home_put(struct map_store *store, struct map_home *home)
{
	uint8_t bytes[MAP_HOME_RECORD_SIZE];
	map_format_home_encode(home, bytes);
	int rc = store->put(store, map_home_key(home->id), bytes, sizeof(bytes), &home->version);
	return rc == -EEXIST || rc == -ENOENT ? -ESTALE : rc;
}

/* --- when a lease is over ----------------------------------------------------------------- */

void map_home_watch_init(struct map_watch *watch)
{
	memset(watch, 0, sizeof(*watch));
	must(pthread_mutex_init(&watch->lock, NULL) == 0);
}

/* Has it been as it is for so long, since it was looked at first? */
static bool unchanged_for(
	struct map_watch *watch, uint64_t id, uint64_t version, uint64_t now_ns, uint64_t lease_ns)
{
	struct map_watched *slot = &watch->slots[(hash_u64(id) >> 32) % MAP_WATCH_SLOTS];
	pthread_mutex_lock(&watch->lock);
	if (slot->id != id || slot->version != version)
		*slot = (struct map_watched){id, version, now_ns};
	bool over = now_ns - slot->since_ns >= lease_ns;
	pthread_mutex_unlock(&watch->lock);
	return over;
}

/* It was a segment of this name on this machine, which has been started anew since: nobody there
   lives, and there is no lease to wait for. */
static bool is_dead(const struct map_home *home, const struct map_claim *claim)
{
	return home->place != 0 && home->place == claim->place && home->boot != 0 &&
	       claim->boot != 0 && home->boot != claim->boot;
}

static bool is_over(const struct map_home *home, const struct map_claim *claim)
{
	if (is_dead(home, claim))
		return true;
	if (home->boot != 0 && home->boot == claim->boot && home->until_boot_ns != 0)
		return claim->boot_ns >= home->until_boot_ns;
	uint64_t lease_ns = home->lease_ns != 0 ? home->lease_ns : claim->lease_ns;
	return claim->watch &&
	       unchanged_for(claim->watch, home->id, home->version, claim->boot_ns, lease_ns);
}

/* --- changes --------------------------------------------------------------------------------- */

static bool claim_check(uint64_t id, const struct map_claim *claim)
{
	return id != 0 && claim->owner != 0 && claim->host && strlen(claim->host) <= MAP_HOST_MAX &&
	       claim->lease_ns <= UINT64_MAX - claim->now_ns &&
	       claim->lease_ns <= UINT64_MAX - claim->boot_ns;
}

static void change_owner(struct map_home *home, const struct map_claim *claim)
{
	bool is_free = home->owner == 0 && home->next == 0;
	memset(home->host, 0, sizeof(home->host));
	memcpy(home->host, claim->host, strlen(claim->host));
	home->flags = claim->flags;
	home->owner = claim->owner;
	home->since_ns = claim->now_ns;
	home->term++;
	if (home->last != claim->owner) {
		/* what was given back to everybody, and nobody took, is as it was to who gave it */
		bool back = is_free && home->previous == claim->owner;
		bool handed = home->next == claim->owner || back;
		uint64_t first = home->since != 0 ? home->since : home->line;
		home->since = handed ? first : 0;
		home->previous = handed ? home->last : 0;
		home->line = home->term;
	}
	home->next = 0;
	home->last = claim->owner;
	home->place = claim->place;
	home->boot = claim->boot;
}

static void home_renew(struct map_home *home, const struct map_claim *claim)
{
	home->until_ns = claim->now_ns + claim->lease_ns;
	home->until_boot_ns = claim->boot_ns + claim->lease_ns;
	home->lease_ns = claim->lease_ns;
}

/* What the term was in a damaged record nobody knows; no count is as high as the wall clock. */
static int acquire_once(struct map_store *store, uint64_t id, const struct map_claim *claim,
	bool force, struct map_home *found)
{
	struct map_home home;
	int rc = home_get(store, id, &home);
	if (rc == -EILSEQ && force)
		home = (struct map_home){.id = id, .term = claim->now_ns, .version = home.version};
	else if (rc != 0 && rc != -ENOENT)
		return rc;
	*found = home;
	if (home.owner != claim->owner) {
		bool kept = home.owner != 0 || (home.next != 0 && home.next != claim->owner &&
						       home.last != claim->owner);
		if (kept && !force && !is_over(&home, claim))
			return -EBUSY;
		change_owner(&home, claim);
	}
	home_renew(&home, claim);
	rc = home_put(store, &home);
	if (rc == 0)
		*found = home;
	return rc;
}

int map_home_acquire(struct map_store *store, uint64_t id, const struct map_claim *claim,
	bool force, struct map_home *found)
{
	if (!claim_check(id, claim))
		return -EINVAL;
	for (unsigned tries = 0; tries < TRIES; tries++) {
		int rc = acquire_once(store, id, claim, force, found);
		if (rc != -ESTALE)
			return rc;
	}
	return -EBUSY;
}

int map_home_take(struct map_store *store, const struct map_claim *claim, struct map_home *home)
{
	struct map_home taken = *home;
	if (!claim_check(home->id, claim) || home->owner != 0 || home->next != claim->owner)
		return -EINVAL;
	change_owner(&taken, claim);
	home_renew(&taken, claim);
	int rc = home_put(store, &taken);
	if (rc == 0)
		*home = taken;
	return rc;
}

int map_home_renew(struct map_store *store, uint64_t id, const struct map_claim *claim,
	uint64_t term, struct map_home *found)
{
	if (!claim_check(id, claim))
		return -EINVAL;
	for (unsigned tries = 0; tries < TRIES; tries++) {
		int rc = found->version != 0 ? 0 : home_get(store, id, found);
		if (rc == -ENOENT ||
			(rc == 0 && (found->owner != claim->owner || found->term != term)))
			return -ESTALE;
		if (rc != 0)
			return rc;
		struct map_home home = *found;
		home_renew(&home, claim);
		rc = home_put(store, &home);
		if (rc == 0)
			*found = home;
		if (rc != -ESTALE)
			return rc;
		found->version = 0;
	}
	return -EBUSY;
}

/* Term and host stay: the term for the next one's, the host for people. -ENOENT: it is not ours. */
static int let_go(struct map_store *store, uint64_t id, uint64_t owner, uint64_t term,
	uint64_t next, const struct map_claim *claim, struct map_home *home)
{
	for (unsigned tries = 0; tries < TRIES; tries++) {
		int rc = home->version != 0 ? 0 : home_get(store, id, home);
		bool is_meant = rc == 0 && (term == 0 || home->term == term);
		if (is_meant && home->owner == 0 && home->next == next)
			return 0; /* said again */
		if (rc == 0 && (!is_meant || home->owner != owner))
			return -ENOENT;
		if (rc != 0)
			return rc;
		home->owner = 0;
		home->until_ns = home->until_boot_ns = 0;
		home->next = next;
		if (claim)
			home_renew(home, claim);
		rc = home_put(store, home);
		if (rc != -ESTALE)
			return rc;
		home->version = 0;
	}
	return -EBUSY;
}

int map_home_give(struct map_store *store, uint64_t id, const struct map_claim *claim,
	uint64_t term, uint64_t next, struct map_home *home)
{
	if (!claim_check(id, claim) || next == 0 || next == claim->owner)
		return -EINVAL;
	int rc = let_go(store, id, claim->owner, term, next, claim, home);
	return rc == -ENOENT ? -ESTALE : rc;
}

int map_home_release(struct map_store *store, uint64_t id, uint64_t owner, uint64_t term)
{
	struct map_home home = {0};
	int rc = let_go(store, id, owner, term, 0, NULL, &home);
	return rc == -ENOENT ? 0 : rc;
}

int map_home_read(struct map_store *store, uint64_t id, struct map_home *found)
{
	return home_get(store, id, found);
}
