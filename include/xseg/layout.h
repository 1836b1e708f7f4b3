/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Everything that lies in a segment, and nothing else. No pointer: indices, and offsets
 * from the start of the file. Each table is an array whose place and count stand in the
 * superblock. docs/segment-layout.md is generated from this file.
 *
 * Units: bytes and ns unless the name says otherwise; native byte order (one host).
 * Threads: fields marked "atomic" are read and written by all; the others have the one
 * writer named. Whoever reads, reads once and checks the copy: the segment is not trusted.
 * Source: one-word ownership generalises vhost-user's in-flight region without its
 * commit spread over two places; owner tags with an epoch follow iceoryx2's robust
 * index set; slot rings with the sequence inside the slot follow virtio's packed ring.
 */
#ifndef SKERRY_XSEG_LAYOUT_H
#define SKERRY_XSEG_LAYOUT_H

#include <base/histogram.h>
#include <base/must.h>
#include <base/name.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <xseg/op.h>

/* "sk_xseg1", little-endian */
#define XSEG_MAGIC 0x31676573785f6b73ull
#define XSEG_LAYOUT_VERSION 3u

#define XSEG_LANES_MAX 64u /* threads in the segment at once */
#define XSEG_PEERS_MAX 64u
#define XSEG_PORTS_MAX 64u
#define XSEG_PORT_LANES_MAX 16u
#define XSEG_EDGES_MAX 128u
#define XSEG_LANE_VOLUMES 4u /* volumes counted one by one: so many for each lane there may be */
#define XSEG_FRAMES 8u	     /* hops of one request */
#define XSEG_EXTENTS 16u     /* in the slot; more lie in a list page */
#define XSEG_LIST_PAGES 2u
#define XSEG_NONE 0xffffffffu

/* Where the tables lie; written once at creation. */
enum xseg_table {
	XSEG_TABLE_PEERS,
	XSEG_TABLE_LANES,
	XSEG_TABLE_PORTS,
	XSEG_TABLE_EDGES,
	XSEG_TABLE_STATS,
	XSEG_TABLE_VOLUMES,
	XSEG_TABLE_REQUEST_HINTS, /* one bit a slot: probably free */
	XSEG_TABLE_REQUESTS,
	XSEG_TABLE_RINGS,      /* [consumer][producer] */
	XSEG_TABLE_PAGE_HINTS, /* one bit a page: probably free */
	XSEG_TABLE_PAGE_DESCRIPTORS,
	XSEG_TABLE_PAGES,
	XSEG_TABLE_COUNT
};

struct xseg_table_place {
	uint64_t offset; /* multiple of XSEG_PAGE */
	uint64_t size;	 /* of the whole table */
	uint32_t count;
	uint32_t item_size;
};
fixed(sizeof(struct xseg_table_place) == 24);

/* Page 0. Written at creation, complete when `magic` is there (stored last). */
#define XSEG_RUN_DIR_MAX 255u

struct xseg_superblock {
	_Atomic uint64_t magic;
	uint32_t layout_version;
	uint32_t layout_hash; /* of the sizes and counts that this build was compiled with */
	uint64_t size;
	uint8_t uuid[16];
	uint8_t boot_id[16];
	uint64_t created_ns; /* wall clock */
	uint64_t pid_ns;     /* whose pids stand in it: inode of the PID namespace; 0: not known */
	uint32_t flags;	     /* XSEG_SEGMENT_* */
	uint32_t lane_count; /* lanes this segment has rings for, <= XSEG_LANES_MAX */
	char name[NAME_LENGTH_MAX + 1];
	struct xseg_table_place tables[XSEG_TABLE_COUNT];
	uint32_t checksum; /* crc32c of all above but magic */
	uint32_t reserved;
	/* from here on: changes while the segment is used */
	_Alignas(128) _Atomic uint64_t generation; /* grows at each join and leave */
	_Atomic uint32_t epoch;			   /* last epoch given to a lane or peer */
	_Atomic uint64_t reaper; /* who reaps: pid 32 | start time, low 32; 0: nobody */
	/* for people and tools: who has the file locked (flock) and keeps its peers, and where */
	_Atomic uint32_t keeper;
	char run_dir[XSEG_RUN_DIR_MAX + 1];
	uint32_t resident; /* 1: all keep their memory where it is, see <xseg/resident.h> */
};
/* The layout's hash does not see where these lie: what is new comes behind them. */
fixed(offsetof(struct xseg_superblock, run_dir) == 540);

#define XSEG_SEGMENT_HUGE_TLB 1u
#define XSEG_SEGMENT_COLLAPSED 2u /* MADV_COLLAPSE gave huge pages */

/*
 * A page of data, described. `word` is the only truth about who has the page:
 *
 *   FREE --claim--> HELD --donate--> STORED --replace--> RETIRED --last unpin--> FREE
 *                    |`------free---------> FREE  (STORED without pins -> FREE)
 *                    `--keep--> KEPT --replace--> RETIRED or FREE, as above
 *
 * STORED pages go with the process of their owner; KEPT ones belong to a port and wait for whoever
 * binds it next.
 *
 * word: state 4 bits | pins 28 bits (low half); owner 16 | owner epoch 16 (high half). The owner is
 * a lane; of a KEPT page a port, and the epoch 0.
 */
enum xseg_page_state {
	XSEG_PAGE_FREE,
	XSEG_PAGE_HELD,
	XSEG_PAGE_STORED,
	XSEG_PAGE_RETIRED,
	XSEG_PAGE_KEPT,
	XSEG_PAGE_STATES
};

struct xseg_page_descriptor {
	_Atomic uint64_t word;
	/* of a KEPT page: what its holder's successor has to know; there before the word says KEPT,
	   and only `valid` and `dirty` change afterwards */
	_Atomic uint8_t valid; /* sectors that hold data, bit 0 = first */
	_Atomic uint8_t dirty; /* of those, the ones that the store below lacks */
	uint16_t bucket;       /* page number within the object */
	uint32_t object;       /* the holder's object entry */
	uint64_t sequence;     /* of the last write: of two with one place the later counts */
	uint32_t crc32c;
	uint32_t epoch; /* flush epoch */
};
fixed(sizeof(struct xseg_page_descriptor) == 32);

/*
 * Words that somebody may look at while their owner changes them: whole, in no order. What hangs on
 * the value is looked at once more under the word that does order.
 */
#define xseg_peek(word) __atomic_load_n(&(word), __ATOMIC_RELAXED)
#define xseg_poke(word, value) __atomic_store_n(&(word), (value), __ATOMIC_RELAXED)

/* A run of pages. */
struct xseg_extent {
	uint32_t page;
	uint32_t count;
};
fixed(sizeof(struct xseg_extent) == 8);

/*
 * The states of a request, in the low 4 bits of its word:
 *
 *          alloc          submit            accept           respond          receive
 *   FREE ---------> OWNED --------> SUBMITTED -----> TAKEN ----------> DONE --------> OWNED
 *     ^               |                  ^             |                               |
 *     `----- put -----'                  `-- forward --'             (the client again)'
 *
 * word: state 4 | frame 4 | owner 16 | epoch 16 | generation 24
 * owner is the client's lane (OWNED, DONE), a port (SUBMITTED), the server's lane (TAKEN);
 * epoch is that lane's, or 0 for a port. generation grows at each alloc.
 */
enum xseg_request_state {
	XSEG_REQUEST_FREE,
	XSEG_REQUEST_OWNED,
	XSEG_REQUEST_SUBMITTED,
	XSEG_REQUEST_TAKEN,
	XSEG_REQUEST_DONE,
	XSEG_REQUEST_STATES
};

/* One hop. What the hop before wrote is never overwritten: a forward fills the next. */
struct xseg_frame {
	uint8_t op;   /* enum xseg_op */
	uint8_t lane; /* lane of the port it is for, or XSEG_LANE_ANY: steered by key and offset */
	uint16_t flags; /* XSEG_F_* */
	uint16_t port;	/* where to */
	uint16_t from;	/* lane that filled it */
	struct xseg_key key;
	uint64_t offset;
	uint32_t length;
	uint32_t reserved;
	uint64_t arg0;
	uint64_t arg1;
	uint64_t time_ns; /* begin of the turn that filled it, not before the hop before */
};
fixed(sizeof(struct xseg_frame) == 64);

#define XSEG_LANE_ANY 0xffu

/* Request flags beside the frames (request.flags). */
enum {
	XSEG_R_BORROWED =
		1 << 0, /* the extents belong to another request: never freed with this one */
	XSEG_R_DONATED = 1 << 1, /* some pages were kept by the server: those in taken[] */
};

struct xseg_request {
	_Atomic uint64_t word;
	_Atomic uint64_t sequence; /* submit order: ns << 6 | lane */
	uint64_t cookie;	   /* the client's own */
	int32_t result;		   /* 0 or -errno */
	uint32_t length;	   /* bytes served */
	uint64_t value;		   /* small answers: version, cursor, count */
	uint16_t client;	   /* lane */
	uint16_t client_epoch;
	uint16_t extent_count;
	uint16_t answer_count; /* >0: READ data lies in pinned pages instead */
	uint16_t data_offset;  /* of the first byte in the first page; offset % XSEG_PAGE */
	uint16_t flags;	       /* XSEG_R_* */
	uint32_t list[XSEG_LIST_PAGES]; /* pages that hold extents[XSEG_EXTENTS...], or XSEG_NONE */
	uint32_t reserved;
	struct xseg_frame frame[XSEG_FRAMES];
	struct xseg_extent extents[XSEG_EXTENTS];
	union {
		struct xseg_extent answer[XSEG_EXTENTS]; /* READ: pinned pages */
		uint64_t taken[XSEG_EXTENTS]; /* WRITE: bit per page that the server kept */
	};
};
fixed(sizeof(struct xseg_request) == 64 + XSEG_FRAMES * 64 + 2 * XSEG_EXTENTS * 8);

/* A hint that request `request` has something for the consumer. */
struct xseg_slot {
	_Atomic uint64_t sequence; /* position + 1 when full */
	uint32_t request;
	uint32_t kind; /* enum xseg_hint */
	uint64_t reserved[6];
};
fixed(sizeof(struct xseg_slot) == 64);

enum xseg_hint { XSEG_HINT_SUBMIT, XSEG_HINT_REPLY };

#define XSEG_RING_SLOTS 256u

/* One producer lane, one consumer lane. */
struct xseg_ring {
	_Alignas(128) _Atomic uint64_t head; /* consumer: everything before was taken */
	_Alignas(128) struct xseg_slot slots[XSEG_RING_SLOTS];
};
fixed(sizeof(struct xseg_ring) == 128 + XSEG_RING_SLOTS * 64);

/* What a lane sleeps on. */
struct xseg_bell {
	_Atomic uint32_t asleep; /* futex word: 1 = ring me */
	uint32_t kind;		 /* enum xseg_bell_kind */
	uint32_t reserved[2];
};

enum xseg_bell_kind { XSEG_BELL_FUTEX, XSEG_BELL_FD };

enum xseg_life {
	XSEG_LIFE_FREE,
	XSEG_LIFE_JOINING,
	XSEG_LIFE_ALIVE,
	XSEG_LIFE_DRAINING,
	XSEG_LIFE_DEAD
};

/* A thread in the segment. */
struct xseg_lane_record {
	_Alignas(128) _Atomic uint64_t word; /* life 8 | epoch 16 | pid 32 (one CAS claims it) */
	_Atomic uint64_t start_time; /* of pid, clock ticks since boot: tells a reused pid */
	_Atomic uint64_t producers; /* bit per lane that has sent to us; set once by the producer */
	_Atomic uint64_t heartbeat; /* turns */
	_Atomic uint32_t rescan;    /* grows: look through the table for what is yours */
	/* ns of the turns in which something moved, and asleep; the rest was spent looking */
	_Atomic uint64_t busy_ns, asleep_ns, sleeps;
	_Atomic uint64_t turn_ns; /* when this turn began; asleep: since then */
	_Alignas(128) struct xseg_bell bell;
};
fixed(sizeof(struct xseg_lane_record) == 256);

/* A peer: a program part with a name. */
struct xseg_peer_record {
	_Alignas(128) _Atomic uint64_t word; /* life 8 | epoch 16 | pid 32 */
	_Atomic uint64_t start_time;
	uint64_t lanes; /* bit per lane */
	uint64_t joined_ns;
	char name[NAME_LENGTH_MAX + 1];
	char role[NAME_LENGTH_MAX + 1];
	_Atomic uint32_t named; /* the epoch whose name this is: the last one's stays until then */
	_Atomic uint32_t log_level;	/* asked for while it runs; 0: as its process was started */
	_Atomic uint32_t log_level_now; /* in effect 8 | the log_level that was seen 8 */
};
fixed(sizeof(struct xseg_peer_record) == 128);

/* Where a peer is reached. Lives on when its peer dies: the successor binds it again. */
struct xseg_port_record {
	_Alignas(128) _Atomic uint64_t word; /* life 8 | epoch 16 | peer 32 (JOINING: pid) */
	uint32_t lane_count;
	uint8_t lane[XSEG_PORT_LANES_MAX];
	char name[NAME_LENGTH_MAX + 1]; /* the peer's */
};
fixed(sizeof(struct xseg_port_record) == 128);

#define XSEG_EDGE_NAME_MAX (2 * NAME_LENGTH_MAX + 2)

/* A peer's named way down. */
struct xseg_edge_record {
	_Alignas(
		128) _Atomic uint64_t word; /* generation 32 | port 32 (XSEG_NONE: leads nowhere) */
	_Atomic uint32_t life;		    /* FREE, JOINING | pid << 8, ALIVE */
	char name[XSEG_EDGE_NAME_MAX];	    /* "PEER:edge" */
	_Atomic uint32_t spare;		    /* 1: it may lead nowhere; its peer can do without */
};
fixed(sizeof(struct xseg_edge_record) == 128);

/* Counters of one shard of a peer; written by its lane alone, read by anyone. */
#define XSEG_COUNTERS 48u
#define XSEG_HISTOGRAMS 4u

struct xseg_counter_name {
	char name[40];
	char unit[8];
	char help[64];
};

struct xseg_histogram {
	char name[24];
	_Atomic uint64_t sum;
	_Atomic uint64_t counts[HISTOGRAM_BUCKETS];
};

struct xseg_stats_block {
	_Alignas(128) _Atomic uint64_t word; /* life 8 | epoch 16 | peer 32 */
	uint32_t lane;
	uint32_t counter_count;
	uint32_t histogram_count;
	struct xseg_counter_name names[XSEG_COUNTERS];
	_Alignas(128) _Atomic uint64_t counters[XSEG_COUNTERS];
	struct xseg_histogram histograms[XSEG_HISTOGRAMS];
};

#define XSEG_STATS_BLOCKS XSEG_LANES_MAX

enum xseg_volume_op {
	XSEG_VOLUME_OP_READ,
	XSEG_VOLUME_OP_WRITE,
	XSEG_VOLUME_OP_FLUSH,
	XSEG_VOLUME_OP_OTHER, /* zeroes, discards and all else */
	XSEG_VOLUME_OPS
};

/* What one lane of a front has done on one volume; written by that lane alone, read by anyone. */
struct xseg_volume_block {
	_Alignas(128) _Atomic uint64_t word; /* life 8 | epoch 16 | peer 32 */
	uint64_t volume;
	uint32_t lane;
	_Atomic uint32_t named; /* 1: name is complete */
	char name[VOLUME_NAME_LENGTH_MAX + 1];
	_Alignas(128) _Atomic uint64_t bytes[XSEG_VOLUME_OPS];
	_Atomic uint64_t errors;
	struct xseg_histogram latency[XSEG_VOLUME_OPS]; /* ns */
};

/* The words that say life, epoch and owner. */
static inline uint64_t xseg_life_word(unsigned life, unsigned epoch, uint32_t owner)
{
	return (uint64_t)life | (uint64_t)(epoch & 0xffffu) << 8 | (uint64_t)owner << 32;
}
static inline unsigned xseg_life_of(uint64_t word) { return word & 0xffu; }
static inline unsigned xseg_epoch_of(uint64_t word) { return (word >> 8) & 0xffffu; }
static inline uint32_t xseg_owner_of(uint64_t word) { return (uint32_t)(word >> 32); }

#endif
