/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the mapper has not got yet: intents in kept pages, over a floor that keeps pages in an
 * array and calls until the test answers them. A restart is a table that is thrown away and made
 * of the same pages.
 */
#include <errno.h>
#include <peer/keep.h>
#include <string.h>
#include <xseg/page.h>

#include "peers/volume/volume_intent_priv.h"
#include "peers/volume/volume_map.h"
#include "tests/lib/unit.h"

#define PAGES 64u
#define PORT 7u
#define VOLUME 0x4711u
#define EPOCH 5u

/* --- the floor ---------------------------------------------------------------------------- */

static struct xseg_page_descriptor descriptors[PAGES];
static _Alignas(XSEG_PAGE) uint8_t memory[PAGES][XSEG_PAGE];
static struct xseg segment = {.descriptors = descriptors, .page_count = PAGES};
static uint32_t pages_used, pages_most = PAGES;
static struct xseg_stats_block stats;
static struct volume_shared shared;
static struct peer peers[2];
static unsigned woken;
static struct volume *loaded;

static struct call asked;
static bool is_asked;
static struct map_update updates[2 * 3200];

const struct xseg *peer_segment(const struct peer *peer)
{
	(void)peer;
	return &segment;
}

int peer_page_hold(struct peer *peer, uint32_t *pages, uint32_t count)
{
	(void)peer;
	must(count == 1);
	if (pages_used == pages_most)
		return -EAGAIN;
	pages_used++;
	for (*pages = 0; atomic_load(&descriptors[*pages].word) != 0;)
		++*pages;
	memset(memory[*pages], 0xee, XSEG_PAGE);
	return 0;
}

struct xseg_page_descriptor *peer_page_about(struct peer *peer, uint32_t page)
{
	(void)peer;
	return &descriptors[page];
}

uint8_t *peer_page_memory(struct peer *peer, uint32_t page)
{
	(void)peer;
	return memory[page];
}

void peer_page_keep(struct peer *peer, uint32_t page)
{
	(void)peer;
	atomic_store(&descriptors[page].word, XSEG_PAGE_KEPT | (uint64_t)PORT << 32);
}

void peer_page_drop(struct peer *peer, uint32_t page)
{
	(void)peer;
	ck_assert_uint_ne(atomic_exchange(&descriptors[page].word, 0), 0);
	memset(memory[page], 0xee, XSEG_PAGE);
	pages_used--;
}

void peer_page_let_go(struct peer *peer, uint32_t page)
{
	(void)peer;
	(void)page;
	pages_used--;
}

void peer_wake(struct peer *peer, unsigned shard)
{
	(void)peer;
	woken |= 1u << shard;
}

struct volume *volume_table_lookup(struct peer *peer, uint64_t id)
{
	(void)peer;
	return loaded && loaded->id == id ? loaded : NULL;
}

void volume_lease_lost(struct peer *peer, uint64_t id)
{
	(void)peer;
	(void)id;
	ck_abort(); /* nobody says -ESTALE here */
}

struct call *volume_step_call(struct volume_step *step, void (*run)(struct volume_step *step),
	enum xseg_op op, struct xseg_key key, uint32_t bytes)
{
	(void)run;
	ck_assert(!is_asked);
	ck_assert_uint_le(bytes, sizeof(updates));
	asked = (struct call){.op = op, .key = key, .length = bytes, .context = step};
	return &asked;
}

void call_put_bytes(struct call *call, uint32_t at, const void *from, uint32_t length)
{
	ck_assert_uint_le(at + length, call->length);
	memcpy((uint8_t *)updates + at, from, length);
}

void call_submit(struct call *call, unsigned edge, call_done_f *done)
{
	ck_assert_uint_eq(edge, VOLUME_MAP);
	ck_assert_uint_eq(call->arg0, MAP_PUBLISH);
	ck_assert_uint_eq(call->length, call->arg1 * sizeof(struct map_update));
	call->done = done;
	is_asked = true;
}

void call_end(struct call *call) { (void)call; }

static void answer(int result)
{
	ck_assert(is_asked);
	is_asked = false;
	asked.result = result;
	asked.done(&asked);
}

/* --- beginning, and again ----------------------------------------------------------------- */

static void start(void)
{
	char why[256];
	ck_assert_int_eq(volume_intent_open(&peers[0], why, sizeof(why)), 0);
}

static void begin(void)
{
	for (unsigned i = 0; i < 2; i++)
		peers[i] = (struct peer){.name = "vol0",
			.shared = &shared,
			.stats = &stats,
			.port = PORT,
			.shard = i,
			.shards = 2};
	start();
}

static void restart(void)
{
	volume_intent_close(&peers[0]);
	start();
}

static void end(void) { volume_intent_close(&peers[0]); }

static struct volume_intent intent_of(uint32_t object, uint32_t flags)
{
	return (struct volume_intent){.volume = VOLUME,
		.object = object,
		.epoch = EPOCH,
		.flags = flags,
		.parent_owner = flags ? 0x99 : 0,
		.parent_epoch = flags ? 3 : 0};
}

static void make(uint32_t object, uint32_t flags)
{
	struct volume_intent intent = intent_of(object, flags);
	ck_assert_int_eq(volume_intent_make(&peers[0], &intent), 0);
}

static bool has(uint32_t object, unsigned cluster)
{
	uint64_t bits[MAP_HAS_WORDS] = {0};
	bits[cluster / 64] = 1ull << cluster % 64;
	return volume_intent_has(&peers[0], VOLUME, object, bits);
}

static uint64_t bits_of(uint32_t object)
{
	struct volume_intent intent;
	ck_assert(volume_intent_find(&peers[0], VOLUME, object, &intent));
	return intent.has[0];
}

static bool is_there(uint32_t object)
{
	struct volume_intent intent;
	return volume_intent_find(&peers[0], VOLUME, object, &intent);
}

/* --- publishing ------------------------------------------------------------------------------ */

struct publisher {
	struct volume_publish publish; /* first */
	unsigned gathered, done;
	int error;
};

static void gathered(struct volume_publish *publish) { ((struct publisher *)publish)->gathered++; }
static void published(struct volume_publish *publish, int error)
{
	((struct publisher *)publish)->done++;
	((struct publisher *)publish)->error = error;
}

static void publish_begin(struct publisher *publisher, unsigned shard)
{
	*publisher = (struct publisher){.publish = {.step.peer = &peers[shard],
						.gathered = gathered,
						.done = published,
						.volume = VOLUME}};
	volume_publish_begin(&publisher->publish);
}

static void publish_send(struct publisher *publisher, uint32_t count)
{
	publish_begin(publisher, 0);
	ck_assert_uint_eq(publisher->gathered, 1);
	ck_assert_uint_eq(publisher->publish.count, count);
	volume_publish_send(&publisher->publish);
	ck_assert(is_asked);
}

/* --- keeping ------------------------------------------------------------------------------ */

UNIT(intents_outlive_their_process)
{
	begin();
	for (uint32_t i = 0; i < 60; i++)
		make(i * 7, i % 2 ? MAP_WORD_PARTIAL : 0);
	for (uint32_t i = 1; i < 60; i += 2)
		ck_assert(has(i * 7, 3));
	ck_assert(has(7, 700));
	ck_assert(volume_intent_any(&peers[0], VOLUME));
	ck_assert(!volume_intent_any(&peers[0], VOLUME + 1));
	restart();
	ck_assert_uint_eq(atomic_load(&shared.intents->count), 60);
	for (uint32_t i = 0; i < 60; i++) {
		struct volume_intent intent;
		ck_assert(volume_intent_find(&peers[0], VOLUME, i * 7, &intent));
		ck_assert_uint_eq(intent.flags, i % 2 ? MAP_WORD_PARTIAL : 0);
		ck_assert_uint_eq(intent.epoch, EPOCH);
		ck_assert_uint_eq(intent.parent_owner, i % 2 ? 0x99 : 0);
	}
	struct volume_intent intent;
	ck_assert(volume_intent_find(&peers[0], VOLUME, 7, &intent));
	ck_assert_uint_eq(intent.has[0], 8);
	ck_assert_uint_eq(intent.has[700 / 64], 1ull << 700 % 64);
	/* what is free in their pages is used first */
	uint32_t before = pages_used;
	for (uint32_t i = 0; i < 3 * INTENTS_PER_PAGE - 60; i++)
		make(1000 + i, 0);
	ck_assert_uint_eq(pages_used, before);
	make(5000, 0);
	ck_assert_uint_eq(pages_used, before + 1);
	end();
}

/* Nothing was read by it, and it may not be in the store. */
UNIT(a_child_without_a_cluster_is_not_kept)
{
	struct volume_intent intent;
	begin();
	for (uint32_t i = 0; i < 2 * INTENTS_PER_PAGE; i++)
		make(i, MAP_WORD_PARTIAL);
	ck_assert(has(5, 1));
	restart();
	ck_assert_uint_eq(atomic_load(&shared.intents->count), 1);
	ck_assert(volume_intent_find(&peers[0], VOLUME, 5, &intent));
	ck_assert(!volume_intent_find(&peers[0], VOLUME, 6, &intent));
	ck_assert_uint_eq(pages_used, 1);
	end();
}

/* Killed when the new intent was there and the old one not yet gone. */
UNIT(of_two_the_later_counts)
{
	for (unsigned order = 0; order < 2; order++) {
		begin();
		make(1, MAP_WORD_PARTIAL);
		make(2, 0);
		ck_assert(has(1, 1));
		struct volume_intent *slots = (struct volume_intent *)(void *)memory[0];
		struct volume_intent *later = NULL, *empty = NULL;
		for (unsigned i = 0; i < INTENTS_PER_PAGE; i++) {
			if (slots[i].volume == VOLUME && slots[i].object == 1)
				later = &slots[i];
			else if (slots[i].volume == 0 && (!empty || order == 0))
				empty = &slots[i];
		}
		ck_assert(later && empty);
		*empty = *later;
		struct volume_intent *older = order ? later : empty;
		older->changes = later->changes - 1;
		older->has[0] = 0;
		restart();
		ck_assert_uint_eq(bits_of(1), 2);
		ck_assert_uint_eq(atomic_load(&shared.intents->count), 2);
		/* the other one is free: it does not come back */
		restart();
		ck_assert_uint_eq(atomic_load(&shared.intents->count), 2);
		/* and what is made from now on is later than all that was found */
		make(1, MAP_WORD_ZERO);
		restart();
		struct volume_intent intent;
		ck_assert(volume_intent_find(&peers[0], VOLUME, 1, &intent));
		ck_assert_uint_eq(intent.flags, MAP_WORD_ZERO);
		end();
		memset(descriptors, 0, sizeof(descriptors));
		pages_used = 0;
	}
}

UNIT(pages_of_others_are_left_alone)
{
	begin();
	make(1, 0);
	end();
	uint32_t page = pages_used++;
	ck_assert_uint_eq(page, 1);
	memset(memory[page], 1, XSEG_PAGE);
	peer_page_keep(&peers[0], page);
	start();
	ck_assert_uint_eq(atomic_load(&shared.intents->count), 1);
	end();
}

UNIT(without_a_page_nothing_changes)
{
	struct volume_intent intent = intent_of(INTENTS_PER_PAGE, 0);
	begin();
	pages_most = 1;
	for (uint32_t i = 0; i < INTENTS_PER_PAGE; i++)
		make(i, 0);
	ck_assert_int_eq(volume_intent_make(&peers[0], &intent), -EAGAIN);
	intent.object = 3;
	intent.flags = MAP_WORD_ZERO;
	ck_assert_int_eq(volume_intent_make(&peers[0], &intent), -EAGAIN);
	ck_assert(volume_intent_find(&peers[0], VOLUME, 3, &intent));
	ck_assert_uint_eq(intent.flags, 0);
	ck_assert(!is_there(INTENTS_PER_PAGE));
	pages_most = 2;
	make(3, MAP_WORD_ZERO);
	restart();
	ck_assert_uint_eq(atomic_load(&shared.intents->count), INTENTS_PER_PAGE);
	end();
}

/* --- publishing ------------------------------------------------------------------------------ */

UNIT(what_is_told_is_struck_out)
{
	struct publisher publisher;
	begin();
	make(9, 0);
	make(4, MAP_WORD_PARTIAL);
	ck_assert(has(4, 1));
	publish_send(&publisher, 2);
	ck_assert_uint_eq(asked.arg1, 2);
	ck_assert_uint_eq(updates[0].object, 4);
	ck_assert_uint_eq(updates[0].flags, MAP_WORD_PARTIAL);
	ck_assert_uint_eq(updates[0].parent_owner, 0x99);
	ck_assert_uint_eq(updates[0].has[0], 2);
	ck_assert_uint_eq(updates[1].object, 9);
	ck_assert_uint_eq(updates[1].epoch, EPOCH);
	ck_assert(is_there(4)); /* not before it is durable */
	answer(0);
	ck_assert_uint_eq(publisher.done, 1);
	ck_assert_int_eq(publisher.error, 0);
	ck_assert(!is_there(4));
	ck_assert(!is_there(9));
	ck_assert(!volume_intent_any(&peers[0], VOLUME));
	ck_assert(!has(4, 2));		  /* whoever has more to say makes it again */
	ck_assert_uint_eq(pages_used, 0); /* nothing that looks as if it were still to be saved */
	restart();
	ck_assert_uint_eq(atomic_load(&shared.intents->count), 0);
	end();
}

UNIT(many_are_told_in_pieces)
{
	struct publisher publisher;
	begin();
	pages_most = PAGES;
	for (uint32_t i = 0; i < PAGES * INTENTS_PER_PAGE; i++)
		make(i, 0);
	publish_send(&publisher, PAGES * INTENTS_PER_PAGE);
	uint32_t sent = 0;
	while (is_asked) {
		ck_assert_uint_eq(updates[0].object, sent);
		sent += (uint32_t)asked.arg1;
		answer(0);
		ck_assert(!is_there(sent - 1));
	}
	ck_assert_uint_eq(sent, PAGES * INTENTS_PER_PAGE);
	ck_assert_uint_eq(publisher.done, 1);
	end();
}

/* How an intent may change while it is published: then it stays. */
static void change_bits(void) { ck_assert(has(1, 5)); }
static void change_kind(void) { make(1, MAP_WORD_ZERO); }
static void forget_and_make(void)
{
	volume_intent_forget(&peers[0], VOLUME);
	make(1, MAP_WORD_PARTIAL);
}

UNIT_LOOP(what_changes_while_it_is_told_stays, 3)
{
	static void (*const changes[])(void) = {change_bits, change_kind, forget_and_make};
	struct publisher publisher;
	begin();
	make(1, MAP_WORD_PARTIAL);
	ck_assert(has(1, 0));
	publish_send(&publisher, 1);
	changes[_i]();
	answer(0);
	ck_assert_uint_eq(publisher.done, 1);
	ck_assert(is_there(1));
	publish_send(&publisher, 1);
	ck_assert_uint_eq(updates[0].flags, _i == 1 ? MAP_WORD_ZERO : MAP_WORD_PARTIAL);
	ck_assert_uint_eq(updates[0].has[0], _i == 0 ? 0x21 : 0);
	answer(0);
	ck_assert(!is_there(1));
	end();
}

UNIT(what_could_not_be_told_stays)
{
	struct publisher publisher;
	begin();
	make(1, 0);
	make(2, 0);
	publish_send(&publisher, 2);
	answer(-EIO);
	ck_assert_uint_eq(publisher.done, 1);
	ck_assert_int_eq(publisher.error, -EIO);
	ck_assert(is_there(1) && is_there(2));
	/* nor when the store could not flush */
	publish_begin(&publisher, 0);
	ck_assert_uint_eq(publisher.publish.count, 2);
	volume_publish_drop(&publisher.publish);
	ck_assert(!is_asked);
	publish_send(&publisher, 2);
	answer(0);
	ck_assert(!is_there(1) && !is_there(2));
	end();
}

UNIT(one_teller_of_a_volume_at_a_time)
{
	struct publisher first, second, third;
	begin();
	make(1, 0);
	publish_send(&first, 1);
	make(2, 0);
	publish_begin(&second, 1);
	publish_begin(&third, 0);
	ck_assert_uint_eq(second.gathered + third.gathered, 0);
	answer(0);
	ck_assert_uint_eq(woken, 2);
	ck_assert(!volume_publish_poll(&peers[0]));
	ck_assert(volume_publish_poll(&peers[1]));
	ck_assert_uint_eq(second.gathered, 1);
	ck_assert_uint_eq(second.publish.count, 1);
	volume_publish_send(&second.publish);
	answer(0);
	ck_assert_uint_eq(second.done, 1);
	/* nothing is left for the third */
	ck_assert(volume_publish_poll(&peers[0]));
	ck_assert_uint_eq(third.gathered, 1);
	ck_assert_uint_eq(third.publish.count, 0);
	ck_assert(!volume_intent_any(&peers[0], VOLUME));
	end();
}

/* --- first writes ------------------------------------------------------------------------- */

static int first(uint32_t object, bool zero)
{
	struct volume_intent intent = intent_of(object, 0);
	return volume_intent_first(&peers[0], &intent, zero);
}

static unsigned published_flags(uint32_t count)
{
	struct publisher publisher;
	publish_send(&publisher, count);
	answer(0);
	return updates[0].flags;
}

static void nothing_to_tell(void)
{
	struct publisher publisher;
	publish_begin(&publisher, 0);
	ck_assert_uint_eq(publisher.gathered, 1);
	ck_assert_uint_eq(publisher.publish.count, 0);
}

/* A FLUSH beside first writes publishes of none that may come to nothing, of any that has not. */
UNIT(what_is_made_is_published)
{
	begin();
	ck_assert_int_eq(first(1, false), 0);
	ck_assert_int_eq(first(1, false), 0);
	nothing_to_tell();
	volume_intent_made(&peers[0], VOLUME, 1);
	/* the other one's end changes nothing */
	ck_assert(!volume_intent_failed(&peers[0], VOLUME, 1));
	ck_assert_int_eq(first(1, false), -EALREADY);
	ck_assert_uint_eq(published_flags(1), 0);
	ck_assert(!is_there(1));
	end();
}

UNIT(what_is_not_made_is_forgotten)
{
	begin();
	ck_assert_int_eq(first(1, false), 0);
	ck_assert_int_eq(first(1, false), 0);
	ck_assert(!volume_intent_failed(&peers[0], VOLUME, 1)); /* one may still make it */
	ck_assert(volume_intent_failed(&peers[0], VOLUME, 1));
	ck_assert_int_eq(first(1, false), -EAGAIN); /* not before it has been removed */
	volume_intent_undo(&peers[0], VOLUME, 1, true);
	ck_assert(!is_there(1));
	ck_assert(!volume_intent_any(&peers[0], VOLUME));
	ck_assert_uint_eq(pages_used, 0);
	/* what could not be removed may be there */
	ck_assert_int_eq(first(1, false), 0);
	ck_assert(volume_intent_failed(&peers[0], VOLUME, 1));
	volume_intent_undo(&peers[0], VOLUME, 1, false);
	ck_assert_uint_eq(published_flags(1), 0);
	end();
}

/* Its parent has something else: that it is zero is published at any time. */
UNIT(what_was_zero_stays_so)
{
	begin();
	make(1, MAP_WORD_ZERO);
	ck_assert_int_eq(first(1, true), 0);
	ck_assert_uint_eq(published_flags(1), MAP_WORD_ZERO);
	ck_assert(is_there(1));
	ck_assert(volume_intent_failed(&peers[0], VOLUME, 1));
	volume_intent_undo(&peers[0], VOLUME, 1, true);
	ck_assert_uint_eq(published_flags(1), MAP_WORD_ZERO);
	ck_assert(!is_there(1));
	ck_assert_int_eq(first(1, true), 0);
	volume_intent_made(&peers[0], VOLUME, 1);
	ck_assert_uint_eq(published_flags(1), 0);
	end();
}

/* Whoever was killed may have written it. */
UNIT(a_successor_takes_it_for_made)
{
	begin();
	ck_assert_int_eq(first(1, false), 0);
	restart();
	ck_assert_int_eq(first(1, false), -EALREADY);
	ck_assert_uint_eq(published_flags(1), 0);
	end();
}

UNIT(a_child_without_a_cluster_is_forgotten)
{
	struct volume_intent intent = intent_of(1, MAP_WORD_PARTIAL);
	begin();
	ck_assert_int_eq(volume_intent_try(&peers[0], &intent), 0);
	nothing_to_tell();
	ck_assert(volume_intent_unmake(&peers[0], VOLUME, 1));
	ck_assert(!is_there(1));
	ck_assert(!volume_intent_unmake(&peers[0], VOLUME, 1));
	ck_assert_int_eq(volume_intent_try(&peers[0], &intent), 0);
	ck_assert(has(1, 3));
	ck_assert(!volume_intent_unmake(&peers[0], VOLUME, 1));
	ck_assert_uint_eq(published_flags(1), MAP_WORD_PARTIAL);
	end();
}

/* --- and the map -------------------------------------------------------------------------- */

static struct volume *volume_new(void)
{
	struct volume *volume = calloc(1, sizeof(*volume));
	must(volume);
	volume->id = VOLUME;
	volume->object_shift = 14; /* four clusters */
	volume->self = 3;
	volume->owners[3] = VOLUME;
	volume->pages = calloc(VOLUME_PAGES_MAX, sizeof(*volume->pages));
	must(volume->pages);
	return volume;
}

static void volume_free(struct volume *volume)
{
	for (uint32_t i = 0; i < 4; i++)
		free(atomic_load(&volume->pages[i]));
	free(volume->pages);
	free(volume);
}

static bool publish(struct volume *volume, uint32_t page, uint32_t forgets)
{
	struct volume_page *entries = calloc(1, sizeof(*entries));
	must(entries);
	bool taken = volume_intent_install(&peers[0], volume, page, entries, forgets);
	if (!taken)
		free(entries);
	return taken;
}

static uint64_t word_of(const struct volume *volume, uint32_t object)
{
	return atomic_load(&volume_map_page(volume, object)->entry[object % MAP_PAGE_ENTRIES]);
}

UNIT(intents_lie_over_a_page)
{
	begin();
	struct volume *volume = volume_new();
	make(1, 0);
	ck_assert_int_eq(first(6, false), 0);
	ck_assert_int_eq(first(7, true), 0);
	make(2, MAP_WORD_PARTIAL);
	make(3, MAP_WORD_PARTIAL);
	make(4, MAP_WORD_ZERO);
	make(MAP_PAGE_ENTRIES + 5, 0);
	ck_assert(has(2, 2));
	for (unsigned i = 0; i < 4; i++)
		ck_assert(has(3, i));
	ck_assert(publish(volume, 0, 0));
	ck_assert(!publish(volume, 0, 0)); /* there is one */
	ck_assert_uint_eq(word_of(volume, 0), 0);
	ck_assert_uint_eq(word_of(volume, 1), map_word(EPOCH, 3, 0));
	ck_assert_uint_eq(word_of(volume, 2), map_word(EPOCH, 3, MAP_WORD_PARTIAL));
	ck_assert_uint_eq(word_of(volume, 3), map_word(EPOCH, 3, 0)); /* it has all */
	ck_assert_uint_eq(word_of(volume, 4), map_word(EPOCH, 3, MAP_WORD_ZERO));
	ck_assert_uint_eq(word_of(volume, 5), 0);
	ck_assert_uint_eq(word_of(volume, 6), 0); /* nobody has made it yet */
	ck_assert_uint_eq(word_of(volume, 7), map_word(EPOCH, 3, MAP_WORD_ZERO));
	volume_free(volume);
	end();
}

/* The mapper was asked for the page before it was published: its answer has not the object, nor is
   there an intent any more when it comes. */
UNIT(a_page_asked_for_too_early_is_not_taken)
{
	struct publisher publisher;
	begin();
	struct volume *volume = volume_new();
	loaded = volume;
	make(1, 0);
	uint32_t forgets = atomic_load(&volume->forgets);
	publish_send(&publisher, 1);
	answer(0);
	ck_assert(!publish(volume, 0, forgets));
	ck_assert(publish(volume, 0, atomic_load(&volume->forgets)));
	/* with the page there, its entry has been moved: nothing is to be asked for again */
	forgets = atomic_load(&volume->forgets);
	make(2, 0);
	publish_send(&publisher, 1);
	answer(0);
	ck_assert_uint_eq(atomic_load(&volume->forgets), forgets);
	loaded = NULL;
	volume_free(volume);
	end();
}
