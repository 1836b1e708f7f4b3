/* SPDX-License-Identifier: Apache-2.0 */
/* Who may write to a volume: one at a time, and whoever loses is told to whom. */
#include <errno.h>
#include <string.h>

#include "peers/map/map_home.h"
#include "peers/map/map_volume.h"
#include "tests/lib/map_memory.h"
#include "tests/lib/unit.h"

#define ID 0x77u
#define LEASE 1000u

static struct map_memory *memory;
static struct map_watch watch;
static struct map_home found;

static void setup(void)
{
	memory = map_memory_create();
	map_home_watch_init(&watch);
	memset(&found, 0xee, sizeof(found));
}

static void teardown(void) { map_memory_destroy(memory); }

static struct map_claim claim_of(uint64_t owner, uint64_t now)
{
	return (struct map_claim){.owner = owner,
		.now_ns = now,
		.boot_ns = now,
		.boot = 8,
		.lease_ns = LEASE,
		.watch = &watch,
		.host = owner == 1 ? "one" : "two"};
}

/* From a segment of a name, after a boot. */
static int acquire_from(uint64_t owner, uint64_t now, uint64_t place, uint64_t boot)
{
	struct map_claim claim = claim_of(owner, now);
	claim.place = place;
	claim.boot = boot;
	return map_home_acquire(&memory->store, ID, &claim, false, &found);
}

static int acquire(uint64_t owner, uint64_t now, bool force)
{
	struct map_claim claim = claim_of(owner, now);
	return map_home_acquire(&memory->store, ID, &claim, force, &found);
}

static int renew(uint64_t owner, uint64_t now, uint64_t term)
{
	struct map_claim claim = claim_of(owner, now);
	found.version = 0;
	return map_home_renew(&memory->store, ID, &claim, term, &found);
}

static int give(uint64_t owner, uint64_t now, uint64_t term, uint64_t next)
{
	struct map_claim claim = claim_of(owner, now);
	found.version = 0;
	return map_home_give(&memory->store, ID, &claim, term, next, &found);
}

static void check_found(uint64_t owner, uint64_t term, uint64_t since, uint64_t until)
{
	ck_assert_uint_eq(found.id, ID);
	ck_assert_uint_eq(found.owner, owner);
	ck_assert_uint_eq(found.term, term);
	ck_assert_uint_eq(found.since_ns, since);
	ck_assert_uint_eq(found.until_ns, until);
	ck_assert_str_eq(found.host, owner == 1 ? "one" : "two");
}

/* Nobody waits for a lease of himself before the machine was started anew. */
UNIT(test_another_boot)
{
	setup();
	ck_assert_int_eq(acquire_from(1, 5000, 7, 8), 0);
	ck_assert_int_eq(acquire_from(2, 5001, 7, 8), -EBUSY); /* the same boot: it may live */
	ck_assert_int_eq(acquire_from(2, 5002, 6, 9), -EBUSY); /* another segment or machine */
	ck_assert_int_eq(acquire_from(2, 5003, 7, 0), -EBUSY);
	ck_assert_int_eq(acquire_from(2, 5004, 0, 9), -EBUSY);
	ck_assert_int_eq(acquire_from(2, 5005, 7, 9), 0);
	ck_assert_uint_eq(found.term, 2);
	ck_assert_int_eq(acquire_from(1, 5006, 7, 9), -EBUSY);
	/* who is not known is waited for, by the clock of whoever waits */
	ck_assert_int_eq(acquire_from(3, 90000, 0, 0), -EBUSY);
	ck_assert_int_eq(acquire_from(3, 90000 + LEASE - 1, 0, 0), -EBUSY);
	ck_assert_int_eq(acquire_from(3, 90000 + LEASE, 0, 0), 0);
	ck_assert_int_eq(acquire_from(2, 91001, 7, 9), -EBUSY);
	ck_assert_int_eq(acquire_from(2, 91002, 0, 0), -EBUSY);
	teardown();
}

/* Clocks of two machines: only a record that does not change for a lease is nobody's. */
UNIT(test_watch)
{
	setup();
	ck_assert_int_eq(acquire_from(1, 5000, 1, 8), 0);
	for (uint64_t now = 100000; now < 103000; now += LEASE - 1) {
		ck_assert_int_eq(acquire_from(2, now, 2, 9), -EBUSY);
		ck_assert_int_eq(acquire_from(1, now % 777, 1, 8), 0); /* renewed by its own */
	}
	ck_assert_int_eq(acquire_from(2, 200000, 2, 9), -EBUSY);
	ck_assert_int_eq(acquire_from(2, 200000 + LEASE, 2, 9), 0);
	ck_assert_uint_eq(found.term, 2);
	teardown();
}

/* The wall clock is set by an hour, there and back: nobody gets what another has. */
UNIT(test_clock_set)
{
	struct map_claim claim = claim_of(2, 5100);
	setup();
	ck_assert_int_eq(acquire(1, 5000, false), 0);
	claim.now_ns += 3600000000000;
	ck_assert_int_eq(map_home_acquire(&memory->store, ID, &claim, false, &found), -EBUSY);
	claim.now_ns = 1;
	ck_assert_int_eq(map_home_acquire(&memory->store, ID, &claim, false, &found), -EBUSY);
	claim.boot_ns = 6000;
	ck_assert_int_eq(map_home_acquire(&memory->store, ID, &claim, false, &found), 0);
	teardown();
}

UNIT(test_acquire_and_renew)
{
	setup();
	ck_assert_int_eq(map_home_read(&memory->store, ID, &found), -ENOENT);
	ck_assert_int_eq(acquire(1, 5000, false), 0);
	check_found(1, 1, 5000, 6000);
	ck_assert_int_eq(acquire(1, 5500, false), 0); /* said again */
	check_found(1, 1, 5000, 6500);
	ck_assert_int_eq(renew(1, 6000, 1), 0);
	check_found(1, 1, 5000, 7000);
	memset(&found, 0, sizeof(found));
	ck_assert_int_eq(map_home_read(&memory->store, ID, &found), 0);
	check_found(1, 1, 5000, 7000);
	teardown();
}

UNIT(test_busy_says_who)
{
	setup();
	ck_assert_int_eq(acquire(1, 5000, false), 0);
	ck_assert_int_eq(acquire(2, 5999, false), -EBUSY);
	check_found(1, 1, 5000, 6000);
	ck_assert_int_eq(acquire(2, 6000, false), 0); /* the lease has run out */
	check_found(2, 2, 6000, 7000);
	ck_assert_int_eq(renew(1, 6001, 1), -ESTALE);
	check_found(2, 2, 6000, 7000);
	ck_assert_int_eq(acquire(1, 6001, false), -EBUSY);
	check_found(2, 2, 6000, 7000);
	teardown();
}

UNIT(test_force)
{
	setup();
	ck_assert_int_eq(acquire(1, 5000, false), 0);
	ck_assert_int_eq(acquire(2, 5001, true), 0);
	check_found(2, 2, 5001, 6001);
	ck_assert_int_eq(renew(1, 5002, 1), -ESTALE);
	ck_assert_int_eq(acquire(1, 5003, true), 0);
	check_found(1, 3, 5003, 6003);
	/* ours again, but not by that term */
	ck_assert_int_eq(renew(1, 5004, 1), -ESTALE);
	ck_assert_int_eq(map_home_release(&memory->store, ID, 1, 1), 0);
	ck_assert_int_eq(renew(1, 5004, 3), 0);
	teardown();
}

UNIT(test_release)
{
	setup();
	ck_assert_int_eq(map_home_release(&memory->store, ID, 1, 1), 0); /* never had it */
	ck_assert_int_eq(acquire(1, 5000, false), 0);
	ck_assert_int_eq(map_home_release(&memory->store, ID, 2, 1), 0); /* another's stays */
	ck_assert_int_eq(acquire(2, 5001, false), -EBUSY);
	ck_assert_int_eq(map_home_release(&memory->store, ID, 1, 1), 0);
	ck_assert_int_eq(map_home_release(&memory->store, ID, 1, 1), 0);
	ck_assert_int_eq(renew(1, 5001, 1), -ESTALE);
	ck_assert_int_eq(acquire(2, 5001, false), 0);
	check_found(2, 2, 5001, 6001); /* the term goes on where it was */
	ck_assert_int_eq(map_home_release(&memory->store, ID, 2, 2), 0);
	ck_assert_int_eq(acquire(2, 5002, false), 0);
	check_found(2, 3, 5002, 6002);
	teardown();
}

/* Handed over: one of two has it, whoever is first, and a third waits for a lease's time. */
UNIT(test_give)
{
	setup();
	ck_assert_int_eq(give(1, 5000, 1, 2), -ESTALE);
	ck_assert_int_eq(acquire(1, 5000, false), 0);
	ck_assert_int_eq(give(1, 5000, 1, 1), -EINVAL);
	ck_assert_int_eq(give(1, 5000, 1, 0), -EINVAL);
	ck_assert_int_eq(give(2, 5000, 1, 3), -ESTALE);
	ck_assert_int_eq(give(1, 5000, 2, 2), -ESTALE);
	ck_assert_int_eq(give(1, 5000, 1, 2), 0);
	ck_assert_int_eq(give(1, 5000, 1, 2), 0);
	ck_assert_int_eq(renew(1, 5001, 1), -ESTALE);
	ck_assert_int_eq(acquire(3, 5999, false), -EBUSY);
	ck_assert_int_eq(acquire(2, 5002, false), 0);
	check_found(2, 2, 5002, 6002);
	ck_assert_uint_eq(found.line, 2);
	ck_assert_uint_eq(found.since, 1);		   /* who opened it then goes on */
	ck_assert_int_eq(acquire(1, 5003, false), -EBUSY); /* too late to take it back */
	ck_assert_int_eq(give(2, 5003, 2, 3), 0);
	ck_assert_int_eq(acquire(2, 5004, false), 0); /* taken back */
	ck_assert_uint_eq(found.term, 3);
	ck_assert_uint_eq(found.line, 2);
	ck_assert_int_eq(acquire(3, 5004, false), -EBUSY);
	ck_assert_int_eq(give(2, 5005, 3, 1), 0);
	ck_assert_int_eq(acquire(1, 5006, false), 0); /* and back again */
	ck_assert_uint_eq(found.term, 4);
	ck_assert_uint_eq(found.since, 1);
	/* given back to everybody, it is as before to whoever gave it away, and to nobody else */
	ck_assert_int_eq(map_home_release(&memory->store, ID, 1, 4), 0);
	ck_assert_int_eq(acquire(2, 5007, false), 0);
	ck_assert_uint_eq(found.line, 5);
	ck_assert_uint_eq(found.since, 1);
	ck_assert_int_eq(map_home_release(&memory->store, ID, 2, 5), 0);
	ck_assert_int_eq(acquire(3, 5007, false), 0);
	ck_assert_uint_eq(found.since, 0);
	ck_assert_int_eq(map_home_release(&memory->store, ID, 3, 6), 0);
	ck_assert_int_eq(acquire(2, 5007, false), 0);
	ck_assert_uint_eq(found.since, 0);
	ck_assert_int_eq(give(2, 5007, 7, 1), 0);
	ck_assert_int_eq(acquire(1, 5007, false), 0);
	ck_assert_int_eq(give(1, 5007, 8, 2), 0);
	ck_assert_int_eq(acquire(3, 6007, false), 0); /* both are gone */
	ck_assert_uint_eq(found.since, 0);
	teardown();
}

/* Whose clock is set back waits longer, and never less; his own volume he keeps. */
UNIT(test_clock_set_back)
{
	setup();
	ck_assert_int_eq(acquire(1, 5000, false), 0);
	ck_assert_int_eq(acquire(2, 10, false), -EBUSY);
	ck_assert_int_eq(renew(1, 100, 1), 0);
	check_found(1, 1, 5000, 1100);
	ck_assert_int_eq(acquire(1, 200, false), 0);
	check_found(1, 1, 5000, 1200);
	ck_assert_int_eq(acquire(2, 1200, false), 0);
	check_found(2, 2, 1200, 2200);
	teardown();
}

UNIT(test_refused)
{
	setup();
	char host[MAP_HOST_MAX + 2];
	struct map_claim claim = claim_of(0, 5);
	ck_assert_int_eq(map_home_acquire(&memory->store, ID, &claim, false, &found), -EINVAL);
	claim = claim_of(1, UINT64_MAX - LEASE + 1);
	ck_assert_int_eq(map_home_acquire(&memory->store, ID, &claim, true, &found), -EINVAL);
	ck_assert_int_eq(map_home_renew(&memory->store, ID, &claim, 1, &found), -EINVAL);
	claim = claim_of(1, 5);
	ck_assert_int_eq(map_home_acquire(&memory->store, 0, &claim, false, &found), -EINVAL);
	memset(host, 'h', sizeof(host));
	host[MAP_HOST_MAX + 1] = 0;
	claim.host = host;
	ck_assert_int_eq(map_home_acquire(&memory->store, ID, &claim, false, &found), -EINVAL);
	host[MAP_HOST_MAX] = 0;
	ck_assert_int_eq(map_home_acquire(&memory->store, ID, &claim, false, &found), 0);
	ck_assert_str_eq(found.host, host);
	teardown();
}

/* A damaged record is nobody's leave to write; by force it is replaced, with a higher term. */
UNIT(test_damaged)
{
	setup();
	struct xseg_key key = {.volume = ID, .epoch = XSEG_EPOCH_HOME};
	ck_assert_int_eq(acquire(1, 5000, false), 0);
	map_memory_corrupt(memory, key, 20, 4);
	ck_assert_int_eq(acquire(2, 9000, false), -EILSEQ);
	ck_assert_int_eq(acquire(1, 5000, false), -EILSEQ);
	ck_assert_int_eq(renew(1, 5000, 1), -EILSEQ);
	ck_assert_int_eq(acquire(2, 9000, true), 0);
	check_found(2, 9001, 9000, 10000);
	ck_assert_int_eq(renew(1, 5000, 1), -ESTALE);
	teardown();
}

/* Whoever has put it last reads it when it is not as he has left it, and only then. */
UNIT(test_known)
{
	setup();
	struct map_claim claim = claim_of(1, 20);
	ck_assert_int_eq(acquire(1, 10, false), 0);
	struct map_home first = found;
	map_memory_heal(memory);
	ck_assert_int_eq(map_home_renew(&memory->store, ID, &claim, 1, &found), 0);
	check_found(1, 1, 10, 20 + LEASE);
	ck_assert_uint_eq(memory->count[MAP_MEMORY_GET], 0);
	struct map_home last = found;
	found = first;
	claim.now_ns = 30;
	ck_assert_int_eq(map_home_renew(&memory->store, ID, &claim, 1, &found), 0);
	check_found(1, 1, 10, 30 + LEASE);
	ck_assert_uint_eq(memory->count[MAP_MEMORY_GET], 1);
	ck_assert_int_eq(map_home_give(&memory->store, ID, &claim, 1, 2, &last), 0);
	ck_assert_uint_eq(memory->count[MAP_MEMORY_GET], 2);
	ck_assert_int_eq(acquire(1, 40, false), 0);
	last = found;
	map_memory_heal(memory);
	ck_assert_int_eq(map_home_give(&memory->store, ID, &claim, found.term, 2, &last), 0);
	ck_assert_uint_eq(memory->count[MAP_MEMORY_GET], 0);
	ck_assert_int_eq(acquire(2, 50, false), 0);
	ck_assert_int_eq(map_home_give(&memory->store, ID, &claim, last.term, 3, &last), -ESTALE);
	ck_assert_int_eq(map_home_renew(&memory->store, ID, &claim, last.term, &last), -ESTALE);
	ck_assert_int_eq(map_home_read(&memory->store, ID, &found), 0);
	ck_assert_uint_eq(found.owner, 2);
	teardown();
}

/* Whoever is told in which version it was given to him takes it without a look, and only then. */
UNIT(test_told)
{
	setup();
	struct map_claim claim = claim_of(2, 20);
	ck_assert_int_eq(acquire(1, 10, false), 0);
	struct map_home told = found;
	ck_assert_int_eq(give(1, 10, 1, 2), 0);
	ck_assert_int_eq(map_home_take(&memory->store, &claim, &told), -EINVAL);
	told.owner = 0;
	told.next = 2;
	struct map_home before = told;
	ck_assert_int_eq(map_home_take(&memory->store, &claim, &told), -ESTALE);
	told = before;
	told.version = found.version;
	map_memory_heal(memory);
	ck_assert_int_eq(map_home_take(&memory->store, &claim, &told), 0);
	ck_assert_uint_eq(memory->count[MAP_MEMORY_GET], 0);
	ck_assert_int_eq(map_home_read(&memory->store, ID, &found), 0);
	check_found(2, 2, 20, 20 + LEASE);
	ck_assert_uint_eq(found.since, 1);
	ck_assert_uint_eq(found.previous, 1);
	ck_assert_int_eq(map_home_take(&memory->store, &claim, &told), -EINVAL);
	told = before;
	told.version = found.version - 1;
	ck_assert_int_eq(map_home_take(&memory->store, &claim, &told), -ESTALE);
	teardown();
}

/* Cut off, the answer lost or the change not made: said again it is ours, with one term. */
UNIT(test_cut_anywhere)
{
	for (unsigned force = 0; force < 2; force++)
		for (unsigned done = 0; done < 2; done++) {
			setup();
			ck_assert_int_eq(acquire(2, 10, false), 0);
			map_memory_heal(memory);
			memory->fail_at = 1;
			memory->fail_done = done;
			uint64_t now = force ? 20 : 10 + LEASE;
			ck_assert_int_eq(acquire(1, now, force), -EIO);
			map_memory_lose(memory, 1);
			ck_assert_int_eq(map_home_read(&memory->store, ID, &found), 0);
			check_found(done ? 1 : 2, done ? 2 : 1, done ? now : 10,
				(done ? now : 10) + LEASE);
			ck_assert_int_eq(acquire(1, now + 1, force), 0);
			check_found(1, 2, done ? now : now + 1, now + 1 + LEASE);
			map_memory_heal(memory);
			memory->fail_at = 1;
			memory->fail_done = done;
			ck_assert_int_eq(map_home_release(&memory->store, ID, 1, 2), -EIO);
			map_memory_heal(memory);
			ck_assert_int_eq(map_home_release(&memory->store, ID, 1, 2), 0);
			ck_assert_int_eq(acquire(2, now + 2, false), 0);
			check_found(2, 3, now + 2, now + 2 + LEASE);
			teardown();
		}
}

/* --- two at once ------------------------------------------------------------------------------ */

static unsigned rival_at;
static bool rival_force;
static int rival_rc;

static int rival_acts(struct map_memory *at, enum map_memory_kind kind, struct xseg_key key)
{
	struct map_claim claim = claim_of(2, 100);
	struct map_home rival;
	(void)kind;
	(void)key;
	if (rival_at-- != 0)
		return 0;
	at->before = NULL;
	rival_rc = map_home_acquire(&at->store, ID, &claim, rival_force, &rival);
	return 0;
}

UNIT(test_race)
{
	for (unsigned at = 0; at < 2; at++) {
		setup();
		rival_at = at;
		rival_force = false;
		memory->before = rival_acts;
		ck_assert_int_eq(acquire(1, 100, false), -EBUSY);
		ck_assert_int_eq(rival_rc, 0);
		check_found(2, 1, 100, 1100);
		/* of a renewal and a force, the renewal is told */
		rival_at = at;
		rival_force = true;
		ck_assert_int_eq(acquire(1, 101, true), 0);
		memory->before = rival_acts;
		ck_assert_int_eq(renew(1, 102, 2), -ESTALE);
		check_found(2, 3, 100, 1100);
		/* and what is released too late stays with the next */
		ck_assert_int_eq(acquire(1, 101, true), 0);
		rival_at = at;
		memory->before = rival_acts;
		ck_assert_int_eq(map_home_release(&memory->store, ID, 1, 4), 0);
		ck_assert_int_eq(map_home_read(&memory->store, ID, &found), 0);
		check_found(2, 5, 100, 1100);
		teardown();
	}
}

/* Any history, any clocks: the term only grows, changes with the owner and with nothing else, and
   nobody has the volume who was not given it. */
UNIT(test_any_history)
{
	setup();
	uint64_t random = 17, owner = 0, term = 0, until = 0, next = 0, last = 0;
	for (unsigned step = 0; step < 20000; step++) {
		uint64_t who = 1 + random_next(&random) % 3, now = random_next(&random) % 4000;
		unsigned what = (unsigned)(random_next(&random) % 9);
		bool mine = owner == who;
		if (what == 0) {
			ck_assert_int_eq(map_home_release(&memory->store, ID, who, term), 0);
			owner = mine ? 0 : owner;
			until = mine ? 0 : until;
		} else if (what == 8) {
			uint64_t to = who % 3 + 1;
			bool again = owner == 0 && term != 0 && next == to;
			ck_assert_int_eq(give(who, now, term, to), mine || again ? 0 : -ESTALE);
			until = mine ? now + LEASE : until;
			next = mine ? to : next;
			owner = mine ? 0 : owner;
		} else if (what < 4) {
			int rc = term == 0 ? -ESTALE : renew(who, now, term);
			ck_assert_int_eq(rc, mine ? 0 : -ESTALE);
			until = mine ? now + LEASE : until;
		} else {
			bool force = what == 7;
			bool kept = next != 0 && next != who && last != who;
			bool may = mine || (owner == 0 && !kept) || now >= until || force;
			ck_assert_int_eq(acquire(who, now, force), may ? 0 : -EBUSY);
			term += may && !mine;
			until = may ? now + LEASE : until;
			last = may ? who : last;
			next = may ? 0 : next;
			owner = may ? who : owner;
		}
		if (term != 0) {
			ck_assert_int_eq(map_home_read(&memory->store, ID, &found), 0);
			ck_assert_uint_eq(found.term, term);
			ck_assert_uint_eq(found.owner, owner);
			ck_assert_uint_eq(found.next, next);
			ck_assert_uint_eq(found.until_ns, until);
		}
	}
	teardown();
}

/* Who removes a volume claims it first, also when it is gone already. */
UNIT(test_removed_again)
{
	setup();
	ck_assert_int_eq(acquire(1, 100, false), 0);
	ck_assert_int_eq(map_remove(&memory->store, ID, NULL), 0);
	ck_assert_int_eq(map_home_read(&memory->store, ID, &found), -ENOENT);
	ck_assert_int_eq(map_home_release(&memory->store, ID, 1, 1), 0);
	ck_assert_int_eq(map_home_read(&memory->store, ID, &found), -ENOENT);
	teardown();
}
