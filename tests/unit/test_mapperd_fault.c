/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A mapper in trouble: other hosts, a store that fails after any change, a successor, many at once,
 * and a stop in the middle of it all.
 */
#include <base/time.h>
#include <errno.h>
#include <string.h>

#include "tests/unit/mapper_rig.h"

static struct mrig m;
#define MIB (1u << 20)

static uint64_t make(const char *name, uint64_t size)
{
	uint64_t id = 0;
	ck_assert_int_eq(mrig_create(&m, name, size, &id), 0);
	return id;
}

static struct map_head_info acquire(uint64_t id)
{
	struct map_head_info head = {0};
	ck_assert_int_eq(mrig_acquire(&m, id, &head), 0);
	return head;
}

static struct map_ask ask_of(const char *name, uint64_t id)
{
	struct map_ask ask = {.id = id};
	snprintf(ask.name, sizeof(ask.name), "%s", name);
	return ask;
}

/* --- other hosts ---------------------------------------------------------------------------- */

UNIT(open_elsewhere)
{
	struct map_home home;
	struct map_head_info head;
	struct map_trouble trouble;
	struct map_owner owner;
	mrig_begin(&m, 1, "");
	uint64_t a = make("a", 10 * MIB);
	ck_assert_int_eq(mrig_other_acquire(a, false, &home), 0);
	ck_assert_int_eq(mrig_acquire(&m, a, &head), -EBUSY);
	ck_assert_uint_eq(m.value, 1);
	memcpy(&trouble, m.out, sizeof(trouble));
	ck_assert_uint_eq(trouble.owner.owner, 4711);
	ck_assert_str_eq(trouble.owner.host, "elsewhere");
	ck_assert_int_eq(mrig_control(&m, MAP_ACQUIRE, a, MAP_READ_ONLY, NULL, 0), 0);
	struct map_ask snap = ask_of("a@1", 1001), ask = {.size = MIB};
	ck_assert_int_eq(mrig_ask(&m, MAP_SNAP, a, &snap), -EBUSY);
	ck_assert_int_eq(mrig_ask(&m, MAP_RESIZE, a, &ask), -EBUSY);
	ck_assert_int_eq(mrig_remove(&m, a), -EBUSY);
	ck_assert_int_eq(mrig_control(&m, MAP_BREAK, a, 0, NULL, 0), 0);
	memcpy(&owner, m.out, sizeof(owner));
	ck_assert_uint_eq(owner.owner, 4711);
	ck_assert_uint_eq(mrig_home(a).owner, 0);
	ck_assert_uint_gt(mrig_home(a).term, home.term);
	ck_assert_int_eq(mrig_acquire(&m, a, &head), 0);
	mrig_end(&m);
}

/* Who has it gives it to us; the record's version since then. */
static uint64_t gives(uint64_t id, struct map_home *home)
{
	struct map_claim claim = {
		.owner = home->owner, .lease_ns = 3600000000000u, .host = "elsewhere"};
	ck_assert_int_eq(mrig_control(&m, MAP_HOME, id, 0, NULL, 0), 0);
	uint64_t self = ((struct map_home_info *)m.out)->self;
	ck_assert_int_eq(map_home_give(&mrig_lock()->store, id, &claim, 0, self, home), 0);
	mrig_unlock();
	return home->version;
}

static int is_told(uint64_t id, uint64_t term, uint64_t version)
{
	struct client_request request = {.op = XSEG_OP_CONTROL,
		.key.volume = id,
		.arg0 = MAP_GIVEN,
		.arg1 = term,
		.offset = version};
	return client_do(&m.rig.client, &request);
}

static uint64_t gets(void)
{
	uint64_t count = mrig_lock()->count[MAP_MEMORY_GET];
	mrig_unlock();
	return count;
}

/* Whoever was told reads no home record, and is believed no more than the record. */
UNIT(given)
{
	struct map_home home;
	mrig_begin(&m, 1, "");
	uint64_t a = make("a", 10 * MIB);
	ck_assert_int_eq(is_told(a, 1, 1), -ENOENT);
	uint64_t read, version;
	do { /* others may read something, too */
		ck_assert_int_eq(mrig_other_acquire(a, true, &home), 0);
		uint64_t term = home.term;
		version = gives(a, &home);
		ck_assert_int_eq(is_told(a, term + 1, version), -ENOENT);
		ck_assert_int_eq(is_told(a, term, version), 0);
		read = gets();
		ck_assert_int_eq(mrig_control(&m, MAP_CLAIM, a, 0, NULL, 0), 0);
		read = gets() - read;
		ck_assert_uint_eq(((struct map_head_info *)m.out)->term, term + 1);
		ck_assert_uint_eq(mrig_home(a).previous, 4711);
	} while (read > 2); /* both halves of the volume's record */
	/* who has given it takes it back, and is faster */
	ck_assert_int_eq(mrig_other_acquire(a, true, &home), 0);
	version = gives(a, &home);
	ck_assert_int_eq(is_told(a, home.term, version), 0);
	ck_assert_int_eq(mrig_other_acquire(a, false, &home), 0);
	ck_assert_int_eq(mrig_control(&m, MAP_CLAIM, a, 0, NULL, 0), -EBUSY);
	ck_assert_uint_eq(mrig_home(a).owner, 4711);
	mrig_end(&m);
}

static bool acquires(uint64_t id, int result)
{
	return mrig_control(&m, MAP_ACQUIRE, id, 0, NULL, 0) == result;
}

/* In two steps or in one; its store has to agree before it is answered. */
UNIT(claimed)
{
	struct map_home home;
	mrig_begin(&m, 1, "");
	uint64_t a = make("a", 10 * MIB);
	atomic_store(&mrig_fence, -ETIMEDOUT);
	ck_assert_int_eq(mrig_control(&m, MAP_CLAIM, a, 0, NULL, 0), 0);
	uint64_t term = mrig_home(a).term;
	ck_assert(acquires(a, -ETIMEDOUT));
	atomic_store(&mrig_fence, 0);
	ck_assert(acquires(a, 0));
	uint32_t epoch = ((struct map_head_info *)m.out)->epoch;
	ck_assert_uint_eq(((struct map_head_info *)m.out)->term, term);
	/* by a composer that was started anew */
	ck_assert_int_eq(mrig_control(&m, MAP_CLAIM, a, 0, NULL, 0), 0);
	ck_assert(acquires(a, 0));
	ck_assert_uint_eq(((struct map_head_info *)m.out)->epoch, epoch + 1);
	ck_assert_int_eq(mrig_control(&m, MAP_RELEASE, a, 0, NULL, 0), 0);
	/* a predecessor's claim */
	ck_assert_int_eq(mrig_control(&m, MAP_CLAIM, a, 0, NULL, 0), 0);
	term = mrig_home(a).term;
	mrig_again(&m, "");
	ck_assert(acquires(a, 0));
	ck_assert_uint_eq(((struct map_head_info *)m.out)->term, term);
	ck_assert_int_eq(mrig_control(&m, MAP_RELEASE, a, 0, NULL, 0), 0);
	/* none at all */
	ck_assert(acquires(a, 0));
	ck_assert_uint_eq(((struct map_head_info *)m.out)->term, term + 1);
	/* one that was lost in between: the store knows */
	ck_assert_int_eq(mrig_other_acquire(a, true, &home), 0);
	atomic_store(&mrig_fence, -ESTALE);
	ck_assert(acquires(a, -ESTALE));
	ck_assert_int_eq(mrig_control(&m, MAP_RELEASE, a, 0, NULL, 0), 0);
	ck_assert_uint_eq(mrig_home(a).owner, home.owner);
	ck_assert(acquires(a, -EBUSY));
	atomic_store(&mrig_fence, -EOPNOTSUPP);
	mrig_end(&m);
}

/* What was ours is another's: nothing more of ours comes into the map. */
UNIT(taken_away)
{
	struct map_home home;
	struct map_head other;
	mrig_begin(&m, 1, "");
	uint64_t a = make("a", 10 * MIB);
	struct map_head_info head = acquire(a);
	ck_assert_int_eq(mrig_publish(&m, a, 3, head.epoch), 0);
	ck_assert_int_eq(mrig_other_acquire(a, true, &home), 0);
	struct map_home_info known, found;
	ck_assert_int_eq(mrig_control(&m, MAP_HOME, a, MAP_HOME_KNOWN, NULL, 0), 0);
	memcpy(&known, m.out, sizeof(known));
	ck_assert_int_eq(mrig_control(&m, MAP_HOME, a, 0, NULL, 0), 0);
	memcpy(&found, m.out, sizeof(found));
	ck_assert_uint_eq(known.owner, known.self);
	ck_assert_uint_eq(known.term, head.term);
	ck_assert_uint_eq(found.owner, 4711);
	struct map_store *store = &mrig_lock()->store;
	ck_assert_int_eq(map_change_epoch(store, a, false, &other), 0);
	mrig_unlock();
	ck_assert_int_eq(mrig_publish(&m, a, 4, head.epoch), -ESTALE);
	ck_assert_int_eq(mrig_publish(&m, a, 4, other.volume.epoch), -ESTALE);
	ck_assert_uint_eq(mrig_word(&m, a, 4), 0);
	RIG_UNTIL(mrig_counter(&m, MAPPER_LOST) == 1);
	ck_assert_int_eq(mrig_control(&m, MAP_RELEASE, a, 0, NULL, 0), 0);
	ck_assert_uint_eq(mrig_home(a).owner, 4711); /* that was not ours to release */
	mrig_end(&m);
}

/* The other one has not come to its epoch yet: the record that it changed is not to be put over. */
UNIT(taken_away_just_now)
{
	struct map_home home;
	mrig_begin(&m, 1, "");
	uint64_t a = make("a", 10 * MIB);
	struct map_head_info head = acquire(a);
	ck_assert_int_eq(mrig_publish(&m, a, 3, head.epoch), 0);
	ck_assert_int_eq(mrig_other_acquire(a, true, &home), 0);
	struct map_store *store = &mrig_lock()->store;
	ck_assert_int_eq(map_change_flags(store, a, MAP_PROTECTED, 0), 0);
	mrig_unlock();
	ck_assert_int_eq(mrig_publish(&m, a, 4, head.epoch), -ESTALE);
	ck_assert_uint_eq(mrig_word(&m, a, 4), 0);
	mrig_end(&m);
}

/* What was read of the map before is not there any more. */
UNIT(looked_at_while_another_writes)
{
	struct map_home home;
	struct map_head other;
	mrig_begin(&m, 1, "");
	uint64_t a = make("a", 10 * MIB);
	struct map_head_info head = acquire(a);
	ck_assert_int_eq(mrig_publish(&m, a, 3, head.epoch), 0);
	ck_assert_int_eq(mrig_control(&m, MAP_RELEASE, a, 0, NULL, 0), 0);
	ck_assert_int_eq(mrig_control(&m, MAP_ACQUIRE, a, MAP_READ_ONLY, NULL, 0), 0);
	ck_assert_uint_ne(mrig_word(&m, a, 3), 0);
	ck_assert_int_eq(mrig_other_acquire(a, false, &home), 0);
	for (uint32_t i = 0; i < 6; i++) { /* over both halves of the page, and again */
		struct map_delta deltas = {.object = 10 + i, .epoch = head.epoch};
		struct map_store *store = &mrig_lock()->store;
		ck_assert_int_eq(map_update(store, a, &deltas, 1, &other), 0);
		mrig_unlock();
	}
	ck_assert_uint_ne(mrig_word(&m, a, 15), 0);
	ck_assert_uint_ge(mrig_counter(&m, MAPPER_AGAIN), 1);
	mrig_end(&m);
}

/* A record that changed behind our back, and is ours still: read again. */
UNIT(overtaken_and_still_ours)
{
	mrig_begin(&m, 1, "");
	uint64_t a = make("a", 10 * MIB);
	struct map_head_info head = acquire(a);
	ck_assert_int_eq(mrig_publish(&m, a, 3, head.epoch), 0);
	struct map_store *store = &mrig_lock()->store;
	ck_assert_int_eq(map_change_flags(store, a, MAP_PROTECTED, 0), 0);
	mrig_unlock();
	ck_assert_int_eq(mrig_publish(&m, a, 4, head.epoch), 0);
	ck_assert_uint_ne(mrig_word(&m, a, 3), 0);
	ck_assert_uint_ne(mrig_word(&m, a, 4), 0);
	ck_assert_int_eq(mrig_remove(&m, a), -EPERM); /* that change is there, too */
	mrig_end(&m);
}

/* --- leases --------------------------------------------------------------------------------- */

UNIT(leases_are_renewed_and_inherited)
{
	struct map_head_info head, after;
	mrig_begin(&m, 2, ",lease=1s");
	uint64_t a = make("a", 10 * MIB), b = make("b", MIB);
	head = acquire(a);
	uint64_t until = mrig_home(a).until_ns;
	RIG_UNTIL(mrig_home(a).until_ns > until);
	ck_assert_uint_eq(mrig_home(a).term, head.term);
	RIG_UNTIL(mrig_counter(&m, MAPPER_RENEWALS) >= 1);
	/* as a mapper that was killed in the middle of a change leaves it */
	struct map_claim claim = {.owner = mrig_home(a).owner,
		.now_ns = time_wall_ns(),
		.lease_ns = 3600000000000u,
		.host = "this one",
		.flags = MAP_HOME_CHANGING};
	struct map_home home;
	ck_assert_int_eq(map_home_acquire(&mrig_lock()->store, b, &claim, false, &home), 0);
	mrig_unlock();
	mrig_again(&m, ",lease=60s");
	until = mrig_home(a).until_ns;
	RIG_UNTIL(mrig_home(a).until_ns > until); /* nobody has asked for it */
	RIG_UNTIL(mrig_home(b).owner == 0);
	ck_assert_int_eq(mrig_publish(&m, a, 3, head.epoch), 0);
	after = acquire(a);
	ck_assert_uint_eq(after.term, head.term);
	mrig_end(&m);
}

/* Before it has looked through the records a successor gets updates. */
UNIT(deltas_for_a_successor)
{
	mrig_begin(&m, 1, "");
	uint64_t a = make("a", 10 * MIB);
	struct map_head_info head = acquire(a);
	for (unsigned i = 0; i < 10; i++) {
		mrig_again(&m, "");
		ck_assert_int_eq(mrig_publish(&m, a, i, head.epoch), 0);
	}
	mrig_end(&m);
}

UNIT(a_lost_lease_is_noticed)
{
	struct map_home home;
	mrig_begin(&m, 1, ",lease=1s");
	uint64_t a = make("a", 10 * MIB);
	struct map_head_info head = acquire(a);
	ck_assert_int_eq(mrig_other_acquire(a, true, &home), 0);
	RIG_UNTIL(mrig_counter(&m, MAPPER_LOST) == 1);
	ck_assert_int_eq(mrig_publish(&m, a, 3, head.epoch), -ESTALE);
	mrig_end(&m);
}

/* --- a store that is cut off after any change ----------------------------------------------- */

struct step {
	const char *name;
	int (*run)(uint64_t a);
};

static int step_create(uint64_t a)
{
	struct xseg_volume_info info = {.id = 5001, .size = MIB, .created_ns = 1, .name = "new"};
	struct client_request request = {.op = XSEG_OP_CREATE,
		.length = sizeof(info),
		.send = &info,
		.send_size = sizeof(info),
		.receive = &info,
		.receive_size = sizeof(info)};
	(void)a;
	return client_do(&m.rig.client, &request);
}

static int step_snapshot(uint64_t a)
{
	struct map_ask ask = ask_of("a@snap", 5002);
	return mrig_ask(&m, MAP_SNAP, a, &ask);
}

static int step_clone(uint64_t a)
{
	struct map_ask ask = ask_of("clone", 5003);
	return mrig_ask(&m, MAP_CLONE, a, &ask);
}

static int step_rename(uint64_t a)
{
	struct map_ask ask = ask_of("renamed", 0);
	return mrig_ask(&m, MAP_RENAME, a, &ask);
}

static int step_resize(uint64_t a)
{
	struct map_ask ask = {.size = 3 * MRIG_OBJECT + 512};
	return mrig_ask(&m, MAP_RESIZE, a, &ask);
}

static int step_remove(uint64_t a) { return mrig_remove(&m, a); }

static int step_acquire(uint64_t a)
{
	struct map_head_info head;
	return mrig_acquire(&m, a, &head);
}

static int step_break(uint64_t a)
{
	struct map_home home;
	int rc = mrig_other_acquire(a, false, &home);
	/* the second time it is ours, as the first mapper left it */
	return rc != 0 && rc != -EIO && rc != -EBUSY ? rc
						     : mrig_control(&m, MAP_BREAK, a, 0, NULL, 0);
}

static int step_flatten(uint64_t a)
{
	int rc = step_clone(a);
	return rc != 0 ? rc : mrig_control(&m, MAP_FLATTEN, 5003, 0, NULL, 0);
}

static const struct step steps[] = {{"create", step_create}, {"snapshot", step_snapshot},
	{"clone", step_clone}, {"rename", step_rename}, {"resize", step_resize},
	{"remove", step_remove}, {"acquire", step_acquire}, {"break", step_break},
	{"flatten", step_flatten}};

/* But for what nobody needs, and an old name that has not been cleaned up yet. */
static void findings_none(void)
{
	struct map_ask ask = {0};
	struct map_sweep_state state;
	uint64_t flags = MAP_SWEEP_START | MAP_SWEEP_EXPLAIN;
	ck_assert_int_eq(mrig_control(&m, MAP_SWEEP, 0, flags, &ask, sizeof(ask)), 0);
	do {
		ck_assert_int_eq(mrig_control(&m, MAP_SWEEP_STATE, 0, 0, NULL, 0), 0);
		memcpy(&state, m.out, sizeof(state));
		usleep(1000);
	} while (state.running);
	const struct map_finding_info *found = (const void *)(m.out + sizeof(state));
	for (uint64_t i = 0; i < state.findings; i++)
		ck_assert_msg(found[i].finding == MAP_FOUND_UNREACHABLE ||
				      found[i].finding == MAP_FOUND_BAD_NAME,
			"%s", map_fsck_finding_name(found[i].finding));
	ck_assert_int_eq(state.error, 0);
}

/*
 * After each change of the store in turn nothing more is done, and the mapper goes. Its successor
 * is asked the same and does it.
 */
UNIT_LOOP(cut_off_and_asked_again, countof(steps))
{
	const struct step *step = &steps[_i];
	bool cut = true;
	unsigned cuts = 0;
	for (uint64_t after = 1; cut; after++) {
		mrig_begin(&m, 1, "");
		uint64_t a = make("a", 10 * MIB);
		struct map_head_info head = acquire(a);
		for (uint32_t i = 0; i < 5; i++)
			ck_assert_int_eq(mrig_publish(&m, a, i, head.epoch), 0);
		ck_assert_int_eq(mrig_control(&m, MAP_RELEASE, a, 0, NULL, 0), 0);
		struct map_memory *memory = mrig_lock();
		map_memory_heal(memory);
		memory->cut_after = after;
		mrig_unlock();
		int rc = step->run(a);
		memory = mrig_lock();
		cut = memory->cut;
		mrig_unlock();
		ck_assert_msg(cut || rc == 0, "%s: %d after %u cuts", step->name, rc, cuts);
		cuts += cut;
		mrig_healed_again(&m, "");
		rc = step->run(a);
		ck_assert_msg(rc == 0, "%s, cut after %u: %d", step->name, (unsigned)after, rc);
		findings_none();
		mrig_end(&m);
	}
	ck_assert_uint_gt(cuts, 0);
}

/* Clusters 0 and 1 of each of them are the clone's own; said of all at once. */
static int publish_partial(uint64_t a, const struct map_head_info *parent, uint32_t epoch)
{
	struct map_update news[5];
	for (uint32_t i = 0; i < countof(news); i++)
		news[i] = (struct map_update){.object = i,
			.flags = MAP_PARTIAL,
			.epoch = epoch,
			.parent_epoch = parent->epoch,
			.parent_owner = a,
			.has = {3}};
	return mrig_control(&m, MAP_PUBLISH, 5003, countof(news), news, sizeof(news));
}

static void expect_partial(uint32_t epoch)
{
	struct map_object objects[5];
	struct map_bitmap_info infos[countof(objects)];
	for (uint32_t i = 0; i < countof(objects); i++) {
		ck_assert_uint_ne(mrig_word(&m, 5003, i), 0);
		objects[i] = (struct map_object){5003, epoch, i};
	}
	ck_assert_int_eq(
		mrig_control(&m, MAP_BITMAP, 5003, countof(objects), objects, sizeof(objects)), 0);
	memcpy(infos, m.out, sizeof(infos));
	for (uint32_t i = 0; i < countof(infos); i++) {
		ck_assert_int_eq(infos[i].error, 0);
		ck_assert_uint_eq(infos[i].has[0], 3);
	}
}

/* What is written at once is not taken for durable when one of it has failed. */
UNIT(one_of_many_writes_fails)
{
	bool failed = true;
	for (uint64_t at = 1; failed; at++) {
		mrig_begin(&m, 1, "");
		uint64_t a = make("a", 10 * MIB);
		struct map_head_info parent = acquire(a);
		for (uint32_t i = 0; i < 5; i++)
			ck_assert_int_eq(mrig_publish(&m, a, i, parent.epoch), 0);
		ck_assert_int_eq(step_clone(a), 0);
		struct map_head_info head = acquire(5003);
		struct map_memory *memory = mrig_lock();
		map_memory_heal(memory);
		memory->fail_at = at;
		mrig_unlock();
		int rc = publish_partial(a, &parent, head.epoch);
		memory = mrig_lock();
		failed = memory->mutations >= at;
		map_memory_heal(memory);
		mrig_unlock();
		ck_assert_int_eq(rc, failed && rc != 0 ? -EIO : 0); /* or it was tried again */
		if (rc != 0)
			ck_assert_int_eq(publish_partial(a, &parent, head.epoch), 0);
		map_memory_lose(mrig_lock(), 0);
		mrig_unlock();
		mrig_again(&m, "");
		expect_partial(head.epoch);
		mrig_end(&m);
	}
}

/* --- many at once --------------------------------------------------------------------------- */

#define VOLUMES 8
#define CLIENTS 4

struct worker {
	pthread_t thread;
	struct mrig m;
	struct client client;
	uint64_t ids[VOLUMES];
	uint32_t epochs[VOLUMES];
	unsigned index;
	_Atomic unsigned *told;
	_Atomic bool *stop;
	int error;
};

/* Each tells of objects of its own, of all volumes, and looks at others. */
static void *work(void *context)
{
	struct worker *w = context;
	uint64_t state = w->index + 1;
	for (unsigned i = 0; i < 100 && !atomic_load(w->stop) && w->error == 0; i++) {
		unsigned v = random_next(&state) % VOLUMES;
		struct map_update new = {.object = i * CLIENTS + w->index, .epoch = w->epochs[v]};
		w->error = mrig_ask_at(
			&w->client, &w->m, MAP_PUBLISH, w->ids[v], 1, &new, sizeof(new));
		if (w->error == 0)
			w->error = mrig_ask_at(&w->client, &w->m, MAP_PAGE, w->ids[v], 0, NULL, 0);
		uint64_t word;
		memcpy(&word, w->m.out + new.object * sizeof(word), sizeof(word));
		if (w->error == 0 && word == 0)
			w->error = -EILSEQ;
		atomic_fetch_add(w->told, w->error == 0);
	}
	return NULL;
}

static struct worker workers[CLIENTS];
static _Atomic unsigned told;
static _Atomic bool stop;

static void begin_work(void)
{
	char name[16];
	for (unsigned v = 0; v < VOLUMES; v++) {
		snprintf(name, sizeof(name), "v%u", v);
		workers[0].ids[v] = make(name, 100 * MIB);
		workers[0].epochs[v] = acquire(workers[0].ids[v]).epoch;
	}
	for (unsigned i = 0; i < CLIENTS; i++) {
		struct worker *w = &workers[i];
		memcpy(w->ids, workers[0].ids, sizeof(w->ids));
		memcpy(w->epochs, workers[0].epochs, sizeof(w->epochs));
		w->index = i;
		w->told = &told;
		w->stop = &stop;
		w->m.out = malloc(1u << 20);
		mrig_client(&m, &w->client);
		must(w->m.out && pthread_create(&w->thread, NULL, work, w) == 0);
	}
}

static void end_work(void)
{
	for (unsigned i = 0; i < CLIENTS; i++) {
		pthread_join(workers[i].thread, NULL);
		ck_assert_int_eq(workers[i].error, 0);
		client_close(&workers[i].client);
		free(workers[i].m.out);
	}
}

UNIT(many_clients_many_volumes)
{
	mrig_begin(&m, 2, ",threads=4");
	begin_work();
	end_work();
	ck_assert_uint_eq(told, CLIENTS * 100);
	uint64_t found = 0;
	for (unsigned v = 0; v < VOLUMES; v++) {
		struct xseg_volume_info info;
		ck_assert_int_eq(mrig_info(&m, workers[0].ids[v], NULL, &info), 0);
		found += info.objects;
	}
	ck_assert_uint_eq(found, CLIENTS * 100);
	mrig_end(&m);
}

/* Threads that want 64 requests each, of 128 that there are: they wait for one another. */
static void *list_all(void *context)
{
	struct worker *w = context;
	char names[4096];
	for (unsigned i = 0; i < 20; i++)
		if (mrig_list_at(&w->client, 100, names, sizeof(names)) != 70)
			w->error = -EIO;
	return NULL;
}

UNIT(few_requests_for_many)
{
	char name[16];
	mrig_small = true;
	mrig_begin(&m, 1, ",threads=16");
	for (unsigned i = 0; i < 70; i++) {
		snprintf(name, sizeof(name), "v%u", i);
		make(name, MIB);
	}
	for (unsigned i = 0; i < CLIENTS; i++) {
		mrig_client(&m, &workers[i].client);
		must(pthread_create(&workers[i].thread, NULL, list_all, &workers[i]) == 0);
	}
	end_work();
	ck_assert_uint_gt(rig_counter(&m.rig, "map", CORE_RETRIES), 0);
	mrig_end(&m);
}

/* A stop waits for what is under way; what comes meanwhile is the successor's. */
UNIT(stopped_under_load)
{
	mrig_begin(&m, 1, ",threads=3");
	begin_work();
	for (unsigned i = 0; i < 5; i++) {
		unsigned before = atomic_load(&told);
		RIG_UNTIL(atomic_load(&told) > before + 10);
		mrig_again(&m, ",threads=3");
	}
	end_work();
	ck_assert_uint_eq(told, CLIENTS * 100);
	mrig_end(&m);
}

/* What is quick does not wait for what is long, nor one volume for another. */
UNIT(looks_pass_what_is_slow)
{
	struct client others[3];
	struct client_request asked[3], *done;
	mrig_begin(&m, 1, ",threads=3");
	uint64_t slow[3] = {make("x", MIB), make("y", MIB), make("z", MIB)};
	uint64_t b = make("b", 10 * MIB);
	struct map_head_info head = acquire(b);
	mrig_word(&m, b, 0);
	atomic_store(&mrig_spare, b);
	atomic_store(&mrig_hold, true);
	for (unsigned i = 0; i < 3; i++) { /* more than may be at work at the same time */
		mrig_client(&m, &others[i]);
		asked[i] = (struct client_request){
			.op = XSEG_OP_CONTROL, .key.volume = slow[i], .arg0 = MAP_FLATTEN};
		ck_assert_int_eq(client_start(&others[i], &asked[i]), 0);
	}
	RIG_UNTIL(
		atomic_load(&mrig_held) >= 2); /* what the mapper does by itself may be held, too */
	mrig_word(&m, b, 0);
	ck_assert_int_eq(mrig_publish(&m, b, 1, head.epoch), 0);
	atomic_store(&mrig_hold, false);
	for (unsigned i = 0; i < 3; i++) {
		ck_assert_int_eq(client_collect(&others[i], &done), 0);
		ck_assert_int_eq(done->result, 0);
		client_close(&others[i]);
	}
	mrig_end(&m);
}
