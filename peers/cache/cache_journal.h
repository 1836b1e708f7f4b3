/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The local journal: what makes a FLUSH quick when the store is far. Dirty sectors are appended to
 * a file on a local disk, one write and one fdatasync for all that is waiting (group commit), and
 * are read back after a crash of the host (docs/format-cache-journal.md).
 *
 *   cache_journal.c        batches of all shards in, done() out, one worker between
 *   cache_journal_log.c    the file: a ring of records; append, mark, recycle
 *   cache_journal_scan.c   the file at a start: which records are whole, handing them on
 *
 * Who calls what, in order:
 *
 *   open()  once for the process   replay()  by each shard that starts on a segment without kept
 *   pages; never else: kept pages are newer than the journal   newest()  for a volume's first epoch
 *   append(), durable()  from any lane   turn()  each turn of each shard   close()
 *
 * Two facts are kept of a volume: what was appended, and the mark: up to and with which epoch the
 * store has it all, flushed. A mark is written down as a batch is, because a replay of what is
 * older than the store's would undo what the store has since got: so a volume's `durable`
 * is to be published (FLUSHes answered, barriers ended, a later epoch sent) only when done() of its
 * mark was called. For a volume that the journal has nothing of, durable() is done at once.
 *
 * Nothing fails: a journal that is full, or cannot be written, keeps its batches waiting and tries
 * again; FLUSHes are then answered when the store has the data. For that cache_journal_hurry()
 * says that write-back shall not wait, cancel() gives a waiting batch back, and a mark that cannot
 * be written is done() with an error: publish `durable` all the same, the journal goes on trying.
 * A mark also ends all waiting batches that it covers: their data are at the store.
 *
 * Units: bytes, ns; sectors 512 bytes, buckets 4 KiB. Errors: 0 or -errno. Ownership: batches,
 * their items and the pages behind them are the caller's and stay as they are from append() to
 * done(): so an entry in a batch is to be CACHE_E_WRITING, or its epoch is not written back
 * meanwhile. Threads: any lane; done() is called on the lane of batch->peer, from turn(). Blocking:
 * open(), replay() and close() read and write the file; nothing else blocks.
 */
#ifndef SKERRY_CACHE_JOURNAL_H
#define SKERRY_CACHE_JOURNAL_H

#include <peer/peer.h>
#include <sys/queue.h>

#define CACHE_JOURNAL_SIZE_MIN (16u << 20)
#define CACHE_JOURNAL_SIZE_DEFAULT (1ull << 30)
#define CACHE_JOURNAL_OWNER_MAX 128u

struct cache_journal;

struct cache_journal_config {
	const char *path;
	uint64_t size; /* of the file, when it is made; 0: the default. An old one keeps its size
			  while there is something in it */
	const char *owner; /* SEGMENT/PEER: a journal of another is refused */
	unsigned shards;
};

/* Sectors of a bucket of an object. */
struct cache_journal_item {
	uint32_t object, key_epoch; /* of the key */
	uint16_t bucket;
	uint8_t sectors;  /* which of the page: bit 0 the first */
	const void *data; /* the page: 4 KiB, of which only those sectors are read */
};

/* One volume, one epoch, one shard; also a mark (count 0). Zeroed, then filled by the caller. */
struct cache_journal_batch {
	struct peer *peer;
	uint64_t volume;
	uint64_t term; /* of the volume's home record, as heard last; 0: not known */
	uint32_t epoch;
	uint32_t count;
	const struct cache_journal_item *items;
	/* error: 0: on the disk, or at the store; else a mark that could not be written (yet) */
	void (*done)(struct cache_journal_batch *batch, int error);
	void *context;
	/* the journal's */
	uint8_t state;
	bool mark;
	int error;
	uint32_t next, reached; /* items that are in the file; that will be when this group is */
	struct journal_volume *at;
	TAILQ_ENTRY(cache_journal_batch) link;
};

/*
 * The file at `path`, made if there is none. On refusal `why` says in one sentence what is wrong
 * and what to do: of another cache, another version, in use, damaged before its end, no space.
 */
int cache_journal_open(struct cache_journal **journal, const struct cache_journal_config *config,
	char *why, size_t why_size);
/* No batch is waiting: cancel them first. */
void cache_journal_close(struct cache_journal *journal);

/* The journal's own identity: to be noted with what the segment keeps, and compared. 16 bytes. */
const uint8_t *cache_journal_identity(const struct cache_journal *journal);

/*
 * Hands on, in the order of their writing, all items found at open() that are newer than their
 * volume's mark. A later one counts. item->data points to the bucket's 4 KiB with the sectors at
 * their places, valid until `take` returns; take returns 0 or -errno, which ends it. Several shards
 * may replay at once, each taking what is its own; none may call durable() before all have ended.
 * -EILSEQ: damaged; the log has the sentence.
 */
struct cache_journal_from { /* of the batch that it was part of */
	uint64_t volume, term;
	uint32_t epoch;
};
typedef int cache_journal_take_f(void *context, const struct cache_journal_from *from,
	const struct cache_journal_item *item);
int cache_journal_replay(struct cache_journal *journal, cache_journal_take_f *take, void *context);
/* What was found at open(), for the log: items to replay, and a tail that was cut off. */
void cache_journal_found(const struct cache_journal *journal, uint64_t *items, bool *cut);
/* The highest epoch that the journal knows of the volume: new ones must be later. False: none. */
bool cache_journal_newest(struct cache_journal *journal, uint64_t volume, uint32_t *epoch);

/* Writes the batch down, after all that were handed in before it. */
void cache_journal_append(struct cache_journal *journal, struct cache_journal_batch *batch);
/*
 * The store has everything of batch->volume up to and with batch->epoch, flushed. True: nothing is
 * to be written, go on at once, done() is not called. False: done() is called when it is.
 */
bool cache_journal_durable(struct cache_journal *journal, struct cache_journal_batch *batch);
/* True: it is the caller's again, done() is not called (part of it may be in the file). False: it
   is being written now, or was; done() comes. */
bool cache_journal_cancel(struct cache_journal *journal, struct cache_journal_batch *batch);
/* Each turn of each shard: calls done() of its batches, tries again what failed. True when
   something moved. Cheap when nothing is there. */
bool cache_journal_turn(struct cache_journal *journal, struct peer *peer);
/* When turn() wants to be called again at the latest, to try again; 0: no need. */
uint64_t cache_journal_due_ns(const struct cache_journal *journal);

/* Batches wait for space or for a disk that fails: write back what is closed, now. Any thread. */
bool cache_journal_hurry(const struct cache_journal *journal);
/* Of the last write to it; 0: it works. Any thread. */
int cache_journal_error(const struct cache_journal *journal);
/* Bytes that are not free. Any thread. */
uint64_t cache_journal_used(const struct cache_journal *journal);
uint64_t cache_journal_size(const struct cache_journal *journal);

#endif
