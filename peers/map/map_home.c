/* SPDX-License-Identifier: Apache-2.0 */
/* Who may write to a volume: the home record, read and put until nobody interferes. */
#include "peers/map/map_home.h"

#include <errno.h>
#include <string.h>

#define TRIES 100u /* races lost in a row; then -EBUSY */

static struct xseg_key home_key(uint64_t id)
{
	return (struct xseg_key){.volume = id, .epoch = XSEG_EPOCH_HOME};
}

/* *version is right for -EILSEQ, too. */
static int home_get(struct map_store *store, uint64_t id, struct map_home *home, uint64_t *version)
{
	uint8_t bytes[XSEG_RECORD_MAX];
	*version = 0;
	*home = (struct map_home){.id = id};
	int rc = store->get(store, home_key(id), bytes, version);
	if (rc < 0)
		return rc;
	rc = map_home_decode(bytes, (size_t)rc, home);
	return rc == 0 && home->id != id ? -EILSEQ : rc;
}

static int home_put(struct map_store *store, const struct map_home *home, uint64_t version)
{
	uint8_t bytes[MAP_HOME_RECORD_SIZE];
	map_home_encode(home, bytes);
	int rc = store->put(store, home_key(home->id), bytes, sizeof(bytes), &version);
	return rc == -EEXIST || rc == -ENOENT ? -ESTALE : rc;
}

static bool claim_check(uint64_t id, const struct map_claim *claim)
{
	return id != 0 && claim->owner != 0 && claim->host && strlen(claim->host) <= MAP_HOST_MAX &&
	       claim->lease_ns <= UINT64_MAX - claim->now_ns;
}

static void home_take(struct map_home *home, const struct map_claim *claim)
{
	memset(home->host, 0, sizeof(home->host));
	memcpy(home->host, claim->host, strlen(claim->host));
	home->owner = claim->owner;
	home->since_ns = claim->now_ns;
	home->term++;
	if (home->last != claim->owner)
		home->line = home->term;
	home->last = claim->owner;
	home->place = claim->place;
	home->boot = claim->boot;
}

/* It was a segment of this name on this machine, which has been started anew since: nobody there
   lives, and there is no lease to wait for. */
static bool is_dead(const struct map_home *home, const struct map_claim *claim)
{
	return home->place != 0 && home->place == claim->place && home->boot != 0 &&
	       claim->boot != 0 && home->boot != claim->boot;
}

/*
 * By what the claimant's clock says: one that has been set back finds leases longer than they are,
 * and waits. What the term was in a damaged record nobody knows; no count is as high as the clock.
 */
static int acquire_once(struct map_store *store, uint64_t id, const struct map_claim *claim,
	bool force, struct map_home *found)
{
	uint64_t version;
	struct map_home home;
	int rc = home_get(store, id, &home, &version);
	if (rc == -EILSEQ && force)
		home = (struct map_home){.id = id, .term = claim->now_ns};
	else if (rc != 0 && rc != -ENOENT)
		return rc;
	*found = home;
	if (home.owner != claim->owner) {
		if (home.owner != 0 && claim->now_ns < home.until_ns && !force &&
			!is_dead(&home, claim))
			return -EBUSY;
		home_take(&home, claim);
	}
	home.until_ns = claim->now_ns + claim->lease_ns;
	rc = home_put(store, &home, version);
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

int map_home_renew(struct map_store *store, uint64_t id, const struct map_claim *claim,
	uint64_t term, struct map_home *found)
{
	uint64_t version;
	if (!claim_check(id, claim))
		return -EINVAL;
	for (unsigned tries = 0; tries < TRIES; tries++) {
		int rc = home_get(store, id, found, &version);
		if (rc == -ENOENT ||
			(rc == 0 && (found->owner != claim->owner || found->term != term)))
			return -ESTALE;
		if (rc != 0)
			return rc;
		struct map_home home = *found;
		home.until_ns = claim->now_ns + claim->lease_ns;
		rc = home_put(store, &home, version);
		if (rc == 0)
			*found = home;
		if (rc != -ESTALE)
			return rc;
	}
	return -EBUSY;
}

/* Term and host stay: the term for the next one's, the host for people. */
int map_home_release(struct map_store *store, uint64_t id, uint64_t owner, uint64_t term)
{
	struct map_home home;
	uint64_t version;
	for (unsigned tries = 0; tries < TRIES; tries++) {
		int rc = home_get(store, id, &home, &version);
		if (rc == -ENOENT || (rc == 0 && (home.owner != owner || home.term != term)))
			return 0;
		if (rc != 0)
			return rc;
		home.owner = 0;
		home.until_ns = 0;
		rc = home_put(store, &home, version);
		if (rc != -ESTALE)
			return rc;
	}
	return -EBUSY;
}

int map_home_read(struct map_store *store, uint64_t id, struct map_home *found)
{
	uint64_t version;
	return home_get(store, id, found, &version);
}
