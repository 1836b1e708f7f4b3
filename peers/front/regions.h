/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The region front, private to its files: volumes as memory of programs (<xseg/region.h>).
 *
 *   socket -> message -> attachment                      region_attach.c, region_message.c
 *   userfaultfd -> fault -> fill -> page                 region_fault.c, region_fill.c
 *   page -> write -> volume                              region_write.c, region_evict.c
 *
 * The pages of a volume lie in one file beside the segment, which all programs map that have the
 * volume open here; a second one, the book, says of each page whether it is there and whether the
 * volume has it. A page that the volume has is write-protected wherever it is mapped, so no program
 * changes it before we have been told. The files outlive this process, and so does what a program
 * has in flight: its thread waits in the kernel until a successor has its userfaultfd.
 *
 * Units: bytes, pages of 4096, ns. Errors: 0 or -errno. Threads: the lane of the only shard.
 */
#ifndef SKERRY_FRONT_REGIONS_H
#define SKERRY_FRONT_REGIONS_H

#include <base/path.h>
#include <base/sm.h>
#include <peer/worker.h>
#include <xseg/region.h>
#include <xseg/region_wire.h>

#include "peers/front/front.h"

#define REGION_ROOM "front_region"
#define REGION_FILLS 64u	     /* reads in flight */
#define REGION_WRITES 16u	     /* writes in flight */
#define REGION_RUN 64u		     /* pages of one of them, at most */
#define REGION_AHEAD_MIN 4u	     /* pages fetched beyond one that is touched in order */
#define REGION_USERS 256u	     /* attachments of one volume */
#define REGION_SIZE_MAX (1ull << 46) /* of a volume: its book has a byte for each page */
#define REGION_LOOK_NS 50000000u     /* between looks whether a program is still there */
#define REGION_RETRY_NS 1000000000u  /* a write that failed, and nobody waits for */
#define REGION_EVICT_LOOK 4096u	     /* pages looked at in a turn to find some that can go */

struct event;
struct regions;
struct region_volume;
struct region_attach;

struct regions_options {
	struct peer_list listen;
	struct peer_list volumes;
	bool read_only;
	uint64_t memory;
	char *orders;
	char *socket_mode, *socket_group;
};

enum regions_counter {
	REGION_COUNT_FAULTS,
	REGION_COUNT_FETCHED,
	REGION_COUNT_AHEAD,
	REGION_COUNT_WRITTEN,
	REGION_COUNT_EVICTED,
	REGION_COUNT_SYNCS,
	REGION_COUNT_POISONED,
	REGION_COUNT_RESIDENT,
	REGION_COUNT_DIRTY,
	REGION_COUNT_OPENS,
	REGION_COUNT_CLOSES,
	REGION_COUNT_ADOPTED,
	REGION_COUNT_WAITS,
	REGION_COUNTERS
};

/* --- the book: what outlives the process ---------------------------------------------- */

/*
 *   ABSENT --filled--> CLEAN --written to--> DIRTY
 *      ^--evicted--------' ^--the volume has it-'
 *
 * DIRTY is noted before the program may write, CLEAN when it cannot any more and the volume has it,
 * ABSENT before the page goes. Of what a process that was killed leaves, a page that is there and
 * not in the book is none.
 */
enum region_page { REGION_ABSENT, REGION_CLEAN, REGION_DIRTY };
#define REGION_STATE 3u
#define REGION_FILLING 4u /* being read; these two are of one process only */
#define REGION_WRITING 8u
#define REGION_CHANGED 16u			  /* since that began: it stays dirty */
#define REGION_KEPT 32u				  /* REGION_KEEP */
#define REGION_NOTED 64u			  /* in the order of first touches */
#define REGION_ASIDE (REGION_KEPT | REGION_NOTED) /* says nothing of what it has */

/* Pages in a row. */
struct region_run {
	uint64_t first;
	uint32_t count, reserved;
};

/* In which they were touched first; those of before are fetched meanwhile. */
struct region_order {
	struct region_run *run;
	uint32_t count, room;
	uint32_t replays;  /* runs of before */
	uint32_t at, done; /* of them: where the fetch is; pages of that one */
	const struct region_order_work *loading; /* those of before are being read */
	bool changed;
};

/* A program that has mapped it. */
struct region_user {
	uint64_t token; /* 0: free. Written last */
	int32_t pid;
	uint32_t reserved;
};

#define REGION_BOOK_MAGIC 0x6b6f6f62676e7279ull
#define REGION_BOOK_VERSION 1u
struct region_book {
	_Atomic uint64_t magic; /* written last */
	uint32_t version, reserved;
	uint64_t volume;
	uint64_t term;	    /* in which it was last opened to be written to */
	uint64_t low, high; /* pages that this file has room for */
	struct region_user user[REGION_USERS];
};
#define REGION_PAGES_AT 16384u
fixed(sizeof(struct region_book) <= REGION_PAGES_AT);

/* --- a volume ----------------------------------------------------------------------- */

struct region_volume {
	TAILQ_ENTRY(region_volume) link; /* regions->list */
	struct regions *regions;
	struct front_volume front;
	uint64_t size, pages;
	uint64_t low, high; /* pages that programs may have */
	char memory_path[PATH_LENGTH_MAX], book_path[PATH_LENGTH_MAX];
	int memory_fd, readers_fd; /* the second cannot be written to */
	uint8_t *inlet; /* the memory, mapped by us; nobody touches it: pages come in there */
	size_t inlet_size;
	int inlet_fd; /* its userfaultfd */
	int book_fd;
	struct region_book *book;
	size_t book_size;
	_Atomic uint8_t *page; /* in the book */
	TAILQ_HEAD(region_attach_list, region_attach) attached;
	uint64_t resident, dirty;
	uint64_t fetched, written, evicted;
	unsigned fills, writes; /* in flight */
	uint64_t hand;		/* of eviction */
	struct region_order order;
	uint64_t failures; /* of writes */
	int failed;	   /* the last one's, 0: it went well */
	int lost;	   /* another host has it, or it is no more: nothing will be written */
	uint64_t retry_ns; /* not before */
	uint64_t begun;	   /* writes, ever */
	uint64_t held_ns;  /* until then writers wait; 0: they do not */
	bool missing;	   /* region_volume_misses(), as it was at: */
	uint64_t missing_ns;
	TAILQ_HEAD(region_task_list, region_task) tasks;
};

enum region_task_step { TASK_WRITES, TASK_FLUSHES, TASK_DROPS };

/* Something that takes more than a turn: SYNC, DROP, or, for nobody, all before it is closed. */
struct region_task {
	TAILQ_ENTRY(region_task) link;
	struct region_volume *volume;
	struct region_attach *attach; /* who waits for the answer; NULL: has left, or nobody ever */
	struct job *job;	      /* or who asked through the segment */
	struct region_wire wire;
	uint64_t first, end, at; /* pages */
	uint64_t failures;	 /* of the volume, when it began */
	uint64_t until;		 /* the volume's last write that belongs to it; 0: not known yet */
	uint8_t step;		 /* enum region_task_step */
	bool drops;		 /* what is clean goes then */
};

/* --- requests ------------------------------------------------------------------------ */

struct region_fill {
	struct region_volume *volume;
	uint64_t first;
	uint32_t count; /* pages; 0: free */
	bool urgent;
	bool starved; /* waits for memory, or for the segment */
	/* a write to its first page waits, there */
	struct region_attach *writer;
};

struct region_write {
	struct region_volume *volume;
	uint64_t first, number; /* the volume's so manieth */
	uint32_t count;		/* 0: free */
	bool unprotected; /* for a program that was missing when it began: its pages stay dirty */
};

/* --- an attachment: one region of one program ------------------------------------------ */

/*
 *   WAITING --OPEN--> OPENING --opened--> UNARMED --ARM--> SERVING --LEAVE, gone--> ENDING
 *      |                 |                   `------------------------------------^   |
 *      `-----gone--------`--refused--> GONE <--closed-- CLOSING <--nothing to do------'
 *
 * ENDING of the last that may write lasts until the volume has all that was written.
 */
enum region_attach_state {
	REGION_WAITING,
	REGION_OPENING,
	REGION_UNARMED,
	REGION_SERVING,
	REGION_ENDING,
	REGION_CLOSING,
	REGION_GONE,
	REGION_ATTACH_STATES
};

struct region_attach {
	TAILQ_ENTRY(region_attach) link;	/* regions->attaches */
	TAILQ_ENTRY(region_attach) volume_link; /* volume->attached */
	struct regions *regions;
	struct region_volume *volume; /* NULL: not opened yet */
	uint8_t state;
	int fd; /* of its socket; -1: none, as the program has left it, or is a predecessor's */
	int fault_fd; /* its userfaultfd; -1: not armed */
	struct event *event, *fault_event;
	struct region_wire wire; /* the message that is coming in */
	uint32_t got;
	int given;   /* a descriptor that came with it; -1: none */
	bool asked;  /* OPEN or CLOSE is out */
	bool left;   /* it has ended while OPEN was out */
	bool listed; /* in regions->clients */
	bool shared, random;
	bool writes;	   /* the volume is open for that */
	bool flushed;	   /* ENDING: nothing is dirty, and that is durable */
	bool probed;	   /* a write has failed, and the volume is still ours */
	uint64_t opened;   /* the volume, to be closed; 0: not */
	uint64_t leftover; /* a predecessor's, to be opened by its id, */
	uint64_t term;	   /* as it was opened then */
	int pid;
	uint64_t looked_ns; /* fd is -1: was its process still there? */
	bool hot;	    /* it had faults of late: looked at each turn */
	uint64_t token;
	uint64_t address, first, pages; /* where it is mapped; in the volume */
	uint64_t faults;
	uint64_t next;	     /* page after the last one touched */
	uint32_t ahead;	     /* pages that are fetched beyond it */
	uint64_t write_next; /* the same of writes */
	uint32_t write_ahead;
	uint64_t fetch, fetch_end; /* what the program has asked for */
	struct front_client_entry client;
};

struct regions {
	struct peer *peer;
	const struct regions_options *options;
	struct front_listeners listeners;
	struct front_clients clients;
	struct front_door door;
	struct front_log log;
	struct front_volumes volumes;
	struct event_base *base;
	TAILQ_HEAD(, region_volume) list;
	STAILQ_HEAD(, region_order_work) orders; /* on their way, in order */
	struct region_attach_list attaches;
	struct region_fill fill[REGION_FILLS];
	struct region_write write[REGION_WRITES];
	unsigned fills, writes;
	uint64_t resident, dirty, limit; /* pages, of all volumes; those being read are resident */
	uint64_t evictable_ns;		 /* nothing could go: not looked again before */
	bool again;
	unsigned leftovers; /* that are not open yet: before them no other volume is */
	bool ending;	    /* what is dirty is written, then all attachments end */
	bool leaves;	    /* they do, and the files stay for a successor where they are needed */
};

static inline struct regions *regions_of(const struct peer *peer) { return peer->state; }

static inline unsigned region_state(const struct region_volume *volume, uint64_t page)
{
	return atomic_load_explicit(&volume->page[page], memory_order_relaxed);
}

/* region_volume.c */
/* The volume's memory, made or found. */
int region_volume_open(
	struct regions *regions, uint64_t id, uint64_t size, struct region_volume **volume);
struct region_volume *region_volume_find(const struct regions *regions, uint64_t id);
/* These pages may be mapped: there is room in the book. */
int region_volume_admit(struct region_volume *volume, uint64_t first, uint64_t pages);
/* keep: the files stay, for a successor. */
void region_volume_close(struct region_volume *volume, bool keep);
/* Each volume that predecessors have left something of. */
void region_volume_leftovers(struct regions *regions,
	void (*visit)(struct regions *regions, uint64_t id, uint64_t term));
/* These pages come, each with all that it has at once: a program sees nothing else of it. `from`
   has `size` bytes of them; the rest is zeros. */
int region_volume_bring(struct region_volume *volume, uint64_t page, const void *from, size_t size);
/* The files of one that is not open go. */
void region_volume_forget(const struct regions *regions, uint64_t id);
/* They are in the memory file no more. */
void region_volume_punch(const struct region_volume *volume, uint64_t page, uint32_t count);
/* The page's state, with its flags. */
void region_volume_set(struct region_volume *volume, uint64_t page, unsigned state);
int region_volume_add_user(struct region_volume *volume, uint64_t token, int pid);
void region_volume_remove_user(struct region_volume *volume, uint64_t token);
bool region_volume_has_user(const struct region_volume *volume, uint64_t token);
/* Does that process have the memory mapped? */
bool region_volume_is_mapped(const struct region_volume *volume, int pid);
/* Is there one that has, and has not come back to us? */
bool region_volume_misses(struct region_volume *volume);

/* region_attach.c */
void region_attach_create(struct regions *regions, int fd);
/* Nobody's: until what a predecessor has left is written, and its programs are back. */
void region_attach_leftover(struct regions *regions, uint64_t volume, uint64_t term);
void region_attach_end(struct region_attach *attach, const char *why);
/* Its socket is of no more use. As long as the program has the memory mapped it is served. */
void region_attach_hang_up(struct region_attach *attach, const char *why);
bool region_attach_turn(struct region_attach *attach);
bool region_attach_busy(const struct peer *peer);
void region_attach_dump(const struct region_attach *attach, FILE *out);
/* Its first message: OPEN. 0: it will be answered. */
int region_attach_open(struct region_attach *attach);
/* Its memory and its userfaultfd are known. */
int region_attach_serve(struct region_attach *attach);

/* region_message.c */
int region_message_read(struct region_attach *attach);
/* The message that was read is done, or will be. */
void region_message_take(struct region_attach *attach);
/* error: 0 or -errno; text, if any, is in the message already. give: a descriptor, or -1. */
void region_message_answer(
	struct region_attach *attach, struct region_wire *wire, int error, int give);

/* region_fault.c */
/* Serves what has come; true: something did. */
bool region_fault_turn(struct region_attach *attach);
/* The descriptor is a userfaultfd, and is served from now on. */
int region_fault_arm(struct region_attach *attach);
/* Writers wait, for so long at most; 0: no longer. */
void region_fault_hold(struct region_volume *volume, uint64_t ns);
/* All that waits looks again. */
void region_fault_wake(struct region_attach *attach, uint64_t first, uint64_t count);
/* These pages are there: mapped in all programs; protected, but for the first one in `writer`. */
void region_fault_map(struct region_volume *volume, uint64_t first, uint64_t count,
	const struct region_attach *writer);
/* Nobody writes to them any more without a fault. */
void region_fault_protect(struct region_volume *volume, uint64_t first, uint64_t count);
/* They cannot be read: whoever touches them is told. */
void region_fault_poison(struct region_volume *volume, uint64_t first, uint64_t count);

/* region_fill.c */
bool region_fill_room(const struct regions *regions);
/* The page, and what is likely to be touched next. writer: may be NULL. */
void region_fill_fault(struct region_attach *attach, uint64_t page, bool writes);
/* What programs have asked for goes on. */
bool region_fill_turn(struct regions *regions);

/* region_order.c */
void region_order_load(struct region_volume *volume);
/* On its way to the file; the volume goes. */
void region_order_save(struct region_volume *volume);
void region_order_note(struct region_volume *volume, uint64_t page, uint32_t count);
/* What was touched next the last time, and is still to be fetched; it was, up to a page; or none of
   it any more. */
bool region_order_next(struct region_volume *volume, uint64_t *first, uint64_t *end);
void region_order_went(struct region_volume *volume, uint64_t to);
void region_order_stop(struct region_volume *volume);

/* region_write.c */
/* Begins to write a run of dirty pages from `page` on, not beyond `end`; pages, 0: not now. */
uint32_t region_write_begin(struct region_volume *volume, uint64_t page, uint64_t end);
/* All that is dirty there is written, that is durable, then (drops) what is clean goes. Who waits
   for it is noted in the task. NULL: too many of them. */
struct region_task *region_write_task(
	struct region_volume *volume, uint64_t first, uint64_t count, bool drops);
struct region_task *region_write_all(struct region_volume *volume, bool drops);
bool region_write_turn(struct region_volume *volume);

/* region_evict.c */
/* So many more pages may come; false: not now. */
bool region_evict_room(struct regions *regions, uint32_t pages);
/* Of `most` pages from there on those go that may, as many as there are in a row; kept: also
   REGION_KEEP. */
uint32_t region_evict_run(struct region_volume *volume, uint64_t page, uint64_t most, bool kept);

#endif
