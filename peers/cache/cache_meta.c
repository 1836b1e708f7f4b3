/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is kept beside the buckets: records that say which object a bucket's number means, and one
 * page of settings; the terms of volumes are in cache_term.c.
 *
 * A record is used while its state is odd; whoever reads it without being its shard looks at the
 * state before and after. Settings are never changed in place: a new page is published, then
 * the old one dropped; of two the later sequence counts.
 */
#include <base/crash.h>
#include <base/crc32c.h>
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <xseg/page.h>

#include "peers/cache/cache.h"
#include "peers/cache/cache_object.h"

#define META_SETTINGS 0xffffffffu /* descriptor's `object` of the page of settings */
#define META_MAGIC 0x73637973u

struct meta_record {
	struct xseg_key key;
	_Atomic uint32_t state; /* odd: used */
	uint32_t next;		/* in its shard's list of free ones */
	uint64_t reserved;
};
fixed(sizeof(struct meta_record) * CACHE_META_RECORDS == XSEG_PAGE);

struct meta_volume {
	uint64_t volume;
	struct cache_setting setting;
};

/* What was said on the command line, and what has been asked for since. */
struct meta_given {
	uint64_t size;
	uint32_t phase, policy;
	struct cache_setting setting;
};

#define META_VOLUMES 164u
struct meta_settings {
	uint32_t magic, count;
	struct meta_given options, now;
	uint8_t journal[16];
	struct meta_volume volumes[META_VOLUMES];
	uint32_t replaying;
	uint32_t crc32c; /* of all before */
};
fixed(sizeof(struct meta_settings) <= XSEG_PAGE);

void cache_meta_describe(struct peer *peer, uint32_t page, uint32_t what, uint64_t sequence)
{
	struct xseg_page_descriptor *about = peer_page_about(peer, page);
	atomic_store(&about->valid, 0);
	atomic_store(&about->dirty, 0);
	about->bucket = CACHE_META_BUCKET;
	about->object = what;
	about->sequence = sequence;
	about->epoch = 0;
}

/* --- records ----------------------------------------------------------------------------- */

static struct meta_record *record_at(const struct peer *peer, uint32_t record)
{
	const struct cache_shared *shared = cache_shared(peer);
	uint32_t ordinal = record / (uint32_t)CACHE_META_RECORDS, page = 0;
	if (ordinal < atomic_load_explicit(&shared->record_page_count, memory_order_acquire))
		page = atomic_load_explicit(&shared->record_pages[ordinal], memory_order_acquire);
	if (page == 0)
		return NULL;
	struct peer *p = (struct peer *)(uintptr_t)peer;
	return (struct meta_record *)(void *)peer_page_memory(p, page - 1) +
	       record % CACHE_META_RECORDS;
}

bool cache_meta_key(const struct peer *peer, uint32_t record, struct xseg_key *key)
{
	struct meta_record *r = record_at(peer, record);
	if (!r)
		return false;
	uint32_t state = atomic_load_explicit(&r->state, memory_order_acquire);
	if (!(state & 1u))
		return false;
	*key = r->key;
	atomic_thread_fence(memory_order_acquire);
	return atomic_load_explicit(&r->state, memory_order_relaxed) == state;
}

/* A page of free records, in the shard's list from then on. */
static int records_grow(struct peer *peer)
{
	struct cache_shared *shared = cache_shared(peer);
	uint32_t page;
	int error = peer_page_hold(peer, &page, 1);
	if (error)
		return error;
	uint32_t ordinal = atomic_fetch_add(&shared->record_page_count, 1);
	must(ordinal < peer_segment(peer)->page_count);
	struct meta_record *records = (void *)peer_page_memory(peer, page);
	memset(records, 0, XSEG_PAGE);
	for (uint32_t i = 0; i < CACHE_META_RECORDS; i++)
		records[i].next = i + 1 < CACHE_META_RECORDS ? ordinal * CACHE_META_RECORDS + i + 1
							     : XSEG_NONE;
	cache_meta_describe(peer, page, ordinal, 0);
	crash_point("cache.meta.before_keep");
	peer_page_keep(peer, page);
	atomic_store_explicit(&shared->record_pages[ordinal], page + 1, memory_order_release);
	cache_of(peer)->record_free = ordinal * CACHE_META_RECORDS;
	return 0;
}

int cache_meta_object(struct peer *peer, const struct xseg_key *key, uint32_t *record)
{
	struct cache *cache = cache_of(peer);
	int error = cache->record_free == XSEG_NONE ? records_grow(peer) : 0;
	if (error)
		return error;
	*record = cache->record_free;
	struct meta_record *r = record_at(peer, *record);
	must(r);
	cache->record_free = r->next;
	r->key = *key;
	crash_point("cache.meta.record");
	atomic_fetch_add_explicit(&r->state, 1, memory_order_release);
	return 0;
}

void cache_meta_object_free(struct peer *peer, uint32_t record)
{
	struct cache *cache = cache_of(peer);
	struct meta_record *r = record_at(peer, record);
	must(r && (atomic_load(&r->state) & 1u));
	atomic_fetch_add(&r->state, 1);
	r->next = cache->record_free;
	cache->record_free = record;
}

void cache_meta_sweep(struct peer *peer)
{
	uint32_t pages = atomic_load(&cache_shared(peer)->record_page_count);
	struct xseg_key key;
	for (uint32_t record = 0; record < pages * CACHE_META_RECORDS; record++) {
		if (!cache_meta_key(peer, record, &key) || !cache_key_is_mine(peer, &key))
			continue;
		struct cache_object *object = cache_object_find(peer, &key);
		if (!object || object->record != record)
			cache_meta_object_free(peer, record);
	}
}

/* --- settings ---------------------------------------------------------------------------- */

static void meta_options(const struct peer *peer, struct meta_given *given)
{
	const struct cache_options *options = cache_options(peer);
	*given = (struct meta_given){.size = options->size,
		.phase = options->begin == 0 ? CACHE_CACHING : CACHE_PASSING,
		.policy = (uint32_t)options->policy,
		.setting = {.mode = (uint32_t)options->mode,
			.ack = (uint32_t)options->ack,
			.share = (uint32_t)options->share}};
}

static void meta_now(const struct peer *peer, struct meta_given *now)
{
	const struct cache_shared *shared = cache_shared(peer);
	*now = (struct meta_given){.size = atomic_load(&shared->size),
		.phase = shared->beginning ? CACHE_PASSING : atomic_load(&shared->phase),
		.policy = atomic_load(&shared->policy),
		.setting = {.mode = atomic_load(&shared->mode),
			.ack = atomic_load(&shared->ack),
			.share = atomic_load(&shared->share)}};
}

static uint32_t meta_volumes(const struct cache_shared *shared, struct meta_volume *out)
{
	uint32_t count = 0;
	for (uint32_t i = 0; i < CACHE_VOLUME_SLOTS && count < META_VOLUMES; i++) {
		const struct cache_volume *volume = &shared->volumes[i];
		uint64_t id = atomic_load(&volume->id);
		if (id == 0 || !atomic_load(&volume->own_setting))
			continue;
		out[count].volume = id;
		out[count++].setting = (struct cache_setting){.mode = atomic_load(&volume->mode),
			.ack = atomic_load(&volume->ack),
			.share = atomic_load(&volume->share)};
	}
	return count;
}

bool cache_meta_room(const struct peer *peer)
{
	const struct cache_shared *shared = cache_shared(peer);
	uint32_t count = 0;
	for (uint32_t i = 0; i < CACHE_VOLUME_SLOTS; i++)
		count += atomic_load(&shared->volumes[i].own_setting);
	return count < META_VOLUMES;
}

int cache_meta_write(struct peer *peer)
{
	struct cache_shared *shared = cache_shared(peer);
	uint32_t page, old = shared->settings_page;
	int error = peer_page_hold(peer, &page, 1);
	if (error)
		return error;
	struct meta_settings *out = (void *)peer_page_memory(peer, page);
	memset(out, 0, XSEG_PAGE);
	out->magic = META_MAGIC;
	meta_options(peer, &out->options);
	meta_now(peer, &out->now);
	if (shared->journal)
		memcpy(out->journal, cache_journal_identity(shared->journal), sizeof(out->journal));
	out->replaying = shared->replaying;
	out->count = meta_volumes(shared, out->volumes);
	out->crc32c = crc32c(0, out, offsetof(struct meta_settings, crc32c));
	cache_meta_describe(peer, page, META_SETTINGS, ++shared->settings_sequence);
	crash_point("cache.meta.settings.before_keep");
	peer_page_keep(peer, page);
	shared->settings_page = page;
	crash_point("cache.meta.settings.kept");
	if (old != XSEG_NONE)
		peer_page_drop(peer, old);
	return 0;
}

static bool meta_again(struct peer *peer, void *context)
{
	(void)context;
	return cache_meta_write(peer) == 0;
}

void cache_meta_save(struct peer *peer)
{
	if (cache_meta_write(peer))
		peer_retry(peer, meta_again, NULL);
}

static bool meta_good(const struct meta_settings *settings)
{
	return settings->magic == META_MAGIC && settings->count <= META_VOLUMES &&
	       settings->crc32c == crc32c(0, settings, offsetof(struct meta_settings, crc32c)) &&
	       settings->now.phase <= CACHE_DRAINING && settings->now.policy <= CACHE_CLOCK2Q &&
	       settings->now.setting.mode <= CACHE_WRITEAROUND &&
	       settings->now.setting.ack <= CACHE_ACK_VOLATILE;
}

/* Has the option been changed since? Then it counts, else what was asked for meanwhile. */
#define META_PICK(field) (saved->options.field == given.field ? saved->now.field : given.field)

static void meta_apply(struct peer *first, const struct meta_settings *saved)
{
	struct cache_shared *shared = cache_shared(first);
	struct meta_given given;
	meta_options(first, &given);
	shared->replaying = saved->replaying;
	shared->journal_known =
		shared->journal && memcmp(saved->journal, cache_journal_identity(shared->journal),
					   sizeof(saved->journal)) == 0;
	atomic_store(&shared->size, META_PICK(size));
	atomic_store(&shared->phase, META_PICK(phase));
	atomic_store(&shared->policy, META_PICK(policy));
	atomic_store(&shared->mode, META_PICK(setting.mode));
	atomic_store(&shared->ack, META_PICK(setting.ack));
	atomic_store(&shared->share, META_PICK(setting.share));
	for (uint32_t i = 0; i < saved->count; i++) {
		const struct meta_volume *from = &saved->volumes[i];
		struct cache_volume *volume = cache_volume_get(first, from->volume);
		if (!volume || from->setting.mode > CACHE_WRITEAROUND ||
			from->setting.ack > CACHE_ACK_VOLATILE)
			continue;
		atomic_store(&volume->mode, from->setting.mode);
		atomic_store(&volume->ack, from->setting.ack);
		atomic_store(&volume->share, from->setting.share);
		atomic_store(&volume->own_setting, true);
	}
}

/* --- what was found at a start ----------------------------------------------------------- */

/* The settings that count, and drops what they have replaced. */
static void open_settings(struct peer *first, uint32_t page)
{
	struct cache_shared *shared = cache_shared(first);
	uint64_t sequence = peer_page_about(first, page)->sequence;
	uint32_t lost = page, old = shared->settings_page;
	if (meta_good((void *)peer_page_memory(first, page)) &&
		(old == XSEG_NONE || sequence > shared->settings_sequence)) {
		lost = old;
		shared->settings_page = page;
		shared->settings_sequence = sequence;
	}
	if (lost != XSEG_NONE)
		peer_page_drop(first, lost);
}

static void open_page(struct peer *first, uint32_t page)
{
	struct cache_shared *shared = cache_shared(first);
	const struct xseg_page_descriptor *about = peer_page_about(first, page);
	uint32_t ordinal = about->object;
	if (ordinal == META_SETTINGS) {
		open_settings(first, page);
	} else if (ordinal >= CACHE_META_TERMS) {
		cache_term_open_page(first, page, ordinal - CACHE_META_TERMS);
	} else if (ordinal >= peer_segment(first)->page_count ||
		   atomic_load(&shared->record_pages[ordinal])) {
		peer_page_drop(first, page);
	} else {
		atomic_store(&shared->record_pages[ordinal], page + 1);
		if (ordinal >= atomic_load(&shared->record_page_count))
			atomic_store(&shared->record_page_count, ordinal + 1);
	}
}

/* Those that nobody uses, dealt out to the shards. */
static void open_free(struct peer *first)
{
	struct cache_shared *shared = cache_shared(first);
	uint32_t pages = atomic_load(&shared->record_page_count);
	for (unsigned i = 0; i < XSEG_PORT_LANES_MAX; i++)
		shared->record_free[i] = XSEG_NONE;
	for (uint32_t record = pages * CACHE_META_RECORDS; record-- > 0;) {
		struct meta_record *r = record_at(first, record);
		if (!r || (atomic_load(&r->state) & 1u))
			continue;
		uint32_t *head = &shared->record_free[record / CACHE_META_RECORDS % first->shards];
		r->next = *head;
		*head = record;
	}
}

/* What is dirty of an object, by its record + 1 (0: nothing). */
struct open_dirty {
	uint32_t record, first, last; /* epochs */
};

/*
 * Collected by record, as what a record means is known when all have been found. One that needs the
 * place of another in the table moves that to the end of the list.
 */
#define OPEN_TABLE 2048u
struct open_list {
	struct open_dirty *item; /* OPEN_TABLE by record, then those that had to go */
	uint32_t count;
	size_t size;
};

static int open_dirty_begin(const struct peer *first, struct open_list *list)
{
	list->count = OPEN_TABLE;
	list->size = ((size_t)peer_segment(first)->page_count + OPEN_TABLE) * sizeof(*list->item);
	list->item = mmap(NULL, list->size, PROT_READ | PROT_WRITE,
		MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	return list->item == MAP_FAILED ? -ENOMEM : 0;
}

static inline void open_record(struct open_list *list, uint32_t record, uint32_t epoch)
{
	struct open_dirty *item = &list->item[record % OPEN_TABLE];
	if (unlikely(item->record != record + 1)) {
		if (item->record)
			list->item[list->count++] = *item;
		*item = (struct open_dirty){record + 1, epoch, epoch};
	} else if (unlikely(epoch != item->last)) {
		if (cache_epoch_before(epoch, item->first))
			item->first = epoch;
		if (cache_epoch_before(item->last, epoch))
			item->last = epoch;
	}
}

/* All epochs that are dirty are closed; each shard may have some of the oldest until it has
   looked. */
static void open_epochs(struct peer *first, const struct open_dirty *dirty)
{
	struct xseg_key key;
	if (!dirty->record || !cache_meta_key(first, dirty->record - 1, &key))
		return;
	struct cache_volume *volume = cache_volume_get(first, key.volume);
	if (!volume)
		return;
	uint32_t low = atomic_load(&volume->low[0]);
	if (low == CACHE_NO_EPOCH) {
		atomic_store(&volume->open, dirty->last + 1);
		atomic_store(&volume->touched, dirty->last);
	}
	if (low == CACHE_NO_EPOCH || cache_epoch_before(dirty->first, low)) {
		atomic_store(&volume->durable, dirty->first - 1);
		atomic_store(&volume->wanted, dirty->first - 1);
		for (unsigned i = 0; i < first->shards; i++)
			atomic_store(&volume->low[i], dirty->first);
	}
	cache_epoch_raise(&volume->open, dirty->last + 1);
	cache_epoch_raise(&volume->touched, dirty->last);
}

static void open_defaults(struct peer *first)
{
	struct cache_shared *shared = cache_shared(first);
	struct meta_given given;
	meta_options(first, &given);
	atomic_store(&shared->size, given.size);
	atomic_store(&shared->phase, given.phase);
	atomic_store(&shared->policy, given.policy);
	atomic_store(&shared->mode, given.setting.mode);
	atomic_store(&shared->ack, given.setting.ack);
	atomic_store(&shared->share, given.setting.share);
}

static void open_walk(struct peer *first, struct open_list *list)
{
	const struct xseg *seg = peer_segment(first);
	uint32_t cursor = 0, page, kept = 0;
	while ((page = xseg_page_next_kept(seg, first->port, &cursor)) != XSEG_NONE) {
		const struct xseg_page_descriptor *about = &seg->descriptors[page];
		kept++;
		if (unlikely(about->bucket == CACHE_META_BUCKET))
			open_page(first, page);
		else if (atomic_load_explicit(&about->dirty, memory_order_relaxed))
			open_record(list, about->object, about->epoch);
	}
	cache_shared(first)->kept_pages = kept;
}

int cache_meta_open(struct peer *first, char *why, size_t why_size)
{
	struct cache_shared *shared = cache_shared(first);
	struct open_list list;
	size_t size = ((size_t)peer_segment(first)->page_count + 1) * sizeof(uint32_t);
	void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE,
		MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (memory == MAP_FAILED) {
		snprintf(why, why_size, "no memory for the table of objects");
		return -ENOMEM;
	}
	shared->record_pages = memory;
	shared->record_pages_size = size; /* at close the lane has left */
	shared->settings_page = XSEG_NONE;
	open_defaults(first);
	if (open_dirty_begin(first, &list)) {
		snprintf(why, why_size, "no memory for the list of dirty pages");
		return -ENOMEM;
	}
	open_walk(first, &list);
	open_free(first);
	cache_term_open(first);
	shared->replaying = shared->journal && shared->kept_pages == 0;
	if (shared->settings_page != XSEG_NONE)
		meta_apply(first, (void *)peer_page_memory(first, shared->settings_page));
	for (uint32_t i = 0; i < list.count; i++)
		open_epochs(first, &list.item[i]);
	munmap(list.item, list.size);
	return 0;
}

void cache_meta_close(struct peer *first)
{
	struct cache_shared *shared = cache_shared(first);
	if (shared->record_pages)
		munmap(shared->record_pages, shared->record_pages_size);
	shared->record_pages = NULL;
}

void cache_meta_drop_records(struct peer *peer)
{
	struct cache_shared *shared = cache_shared(peer);
	uint32_t count = atomic_load(&shared->record_page_count);
	for (uint32_t i = 0; i < count; i++) {
		uint32_t page = atomic_exchange(&shared->record_pages[i], 0);
		if (page)
			peer_page_drop(peer, page - 1);
	}
}
