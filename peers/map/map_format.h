/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a volume and its map are made of in a store (docs/format-map.md, byte by byte).
 *
 * The map says of each object of a volume which object of the store holds it: {owner, epoch,
 * number}. It is a tree of one or two levels below the volume's record: top references lead to map
 * pages of 512 entries, or to directories of 256 references to map pages. A page is never changed
 * in place: what a snapshot shares gets a name of its own at the first change, what nobody shares
 * is written to the other half of its object. The record, put by `cas`, is the switch.
 *
 * Owners are numbered by a table in the record that only grows and that a snapshot or clone
 * inherits, so that a number in a shared page means the same to all who share it.
 *
 * Units: bytes. Errors: -EILSEQ (not such a thing, or damaged), -EPROTO (of another version).
 * Ownership: caller's buffers. Threads: any. Blocking: none.
 */
#ifndef SKERRY_MAP_FORMAT_H
#define SKERRY_MAP_FORMAT_H

#include <stdbool.h>
#include <stddef.h>
#include <xseg/op.h>

#define MAP_RECORD_SIZE 4096u /* of a volume */
#define MAP_NAME_RECORD_SIZE 284u
#define MAP_HOME_RECORD_SIZE 512u
#define MAP_PAGE_SIZE 4096u
#define MAP_ENTRIES 512u			      /* of a map page */
#define MAP_DIRECTORY_REFS 256u			      /* of a directory */
#define MAP_TOP_REFS 128u			      /* of a record */
#define MAP_OWNERS_MAX 128u			      /* clones of clones of clones */
#define MAP_OBJECTS_FLAT (MAP_TOP_REFS * MAP_ENTRIES) /* with one level; more take two */
#define MAP_OBJECTS_MAX (MAP_TOP_REFS * MAP_DIRECTORY_REFS * MAP_ENTRIES)
#define MAP_CLUSTER 4096u    /* what a partial object has or has not */
#define MAP_BITMAP_SIZE 512u /* of a partial object, in two halves */
#define MAP_BITMAP_WORDS (XSEG_OBJECT_MAX / MAP_CLUSTER / 64)

/*
 * Objects of a volume in the store: data have epochs 1 to MAP_EPOCH_MAX; with MAP_EPOCH_MAP added
 * they are the map's own of that epoch, told apart by their number.
 */
#define MAP_EPOCH_MAX 0x7ffffff0u
#define MAP_EPOCH_MAP 0x80000000u
#define MAP_NUMBER_DIRECTORY 0x100000u /* + number of the directory */
#define MAP_NUMBER_BITMAP 0x200000u    /* + object / MAP_BITMAP_GROUP */
#define MAP_BITMAP_GROUP 128u

/* --- entries and references --------------------------------------------------------------- */

/* Where an object's data is. All zero: a hole. */
struct map_entry {
	uint32_t epoch;
	uint16_t owner; /* index into the record's table */
	uint16_t flags; /* MAP_PARTIAL or MAP_ZERO */
};
#define MAP_PARTIAL 1u /* has a bitmap; what it has not, its parent has */
#define MAP_ZERO 2u    /* reads as zeros, whatever lies below; there is no such object */

/* Where a page of the map is. All zero: all holes. */
struct map_ref {
	uint32_t epoch;
	uint32_t crc;	/* of the page */
	uint32_t count; /* entries below that are no holes */
	uint16_t owner;
	uint8_t half; /* of its object: 0 or 1 */
};

static inline bool map_entry_is_hole(struct map_entry entry) { return entry.epoch == 0; }
static inline bool map_ref_is_hole(struct map_ref ref) { return ref.epoch == 0; }
bool map_format_entry_same(struct map_entry a, struct map_entry b);
bool map_format_ref_same(struct map_ref a, struct map_ref b);

/* May an entry look like this in a map with so many owners? */
bool map_format_entry_check(struct map_entry entry, unsigned owners);

/* Each page as it lies in the store. Decoding: -EILSEQ when an entry cannot be: an owner beyond
   `owners`, unknown flags, an epoch out of range. */
void map_format_page_encode(
	const struct map_entry entries[MAP_ENTRIES], uint8_t out[MAP_PAGE_SIZE]);
int map_format_page_decode(
	const uint8_t from[MAP_PAGE_SIZE], unsigned owners, struct map_entry entries[MAP_ENTRIES]);
void map_format_directory_encode(
	const struct map_ref refs[MAP_DIRECTORY_REFS], uint8_t out[MAP_PAGE_SIZE]);
int map_format_directory_decode(const uint8_t from[MAP_PAGE_SIZE], unsigned owners,
	struct map_ref refs[MAP_DIRECTORY_REFS]);

/* --- records ------------------------------------------------------------------------------ */

/* Flags of a volume, beside XSEG_VOLUME_READ_ONLY. */
#define MAP_SNAPSHOT 4u	 /* nobody writes to it, ever */
#define MAP_PROTECTED 8u /* not to be removed */
#define MAP_NEW 16u	 /* in the making: it is there only if its name leads to it */

/* At {id, XSEG_EPOCH_VOLUME, generation % 2}: the whole one with the higher generation counts. */
struct map_volume {
	uint64_t id;
	uint64_t size;
	uint32_t object_size;
	uint32_t state; /* enum xseg_volume_state */
	uint32_t flags; /* XSEG_VOLUME_READ_ONLY, MAP_SNAPSHOT, MAP_PROTECTED, MAP_NEW */
	uint64_t created_ns;
	uint64_t generation; /* one more at each put */
	uint64_t parent;     /* snapshot: of that volume; clone: of that snapshot; 0: none */
	uint32_t epoch;	     /* that new objects get; never given twice */
	uint32_t frozen; /* own objects and pages up to this epoch are shared, not to be changed */
	uint16_t owner_count;
	uint16_t self;	/* own index there; a snapshot has MAP_OWNERS_MAX */
	uint16_t depth; /* levels below: 1 or 2 */
	char name[VOLUME_NAME_LENGTH_MAX + 1];
	uint64_t owners[MAP_OWNERS_MAX];
	struct map_ref top[MAP_TOP_REFS];
	uint64_t limit_iops, limit_bytes,
		limit_burst_ms; /* struct map_change_limits of <peer/map.h> */
};

/* At {hash of the name, XSEG_EPOCH_NAME, 0}: which volume may have it. The volume's record says
   whether it does: a name record that its volume does not bear out is a leftover. */
struct map_name {
	uint64_t id;
	char name[VOLUME_NAME_LENGTH_MAX + 1];
};

#define MAP_HOST_MAX 63u
#define MAP_HOME_CHANGING 1u /* flag: the mapper has it for the time of one change, nobody else */
/* At {id, XSEG_EPOCH_HOME, 0}: who may write to the volume. Absent: nobody ever did. */
struct map_home {
	uint64_t id;
	uint64_t term;	   /* one more with each change of owner: stores refuse lower ones */
	uint64_t owner;	   /* random, drawn by each segment; 0: nobody */
	uint64_t since_ns; /* wall clock */
	uint64_t until_ns; /* end of the lease, wall clock: for people */
	char host[MAP_HOST_MAX + 1]; /* for people: host and segment */
	uint64_t last;		     /* owner of this term, also when he has given it back */
	uint64_t line; /* since this term it is the same one each time; 0: not known */
	/* the owner's segment by name, and the boot of its machine; 0: not known */
	uint64_t place, boot;
	uint64_t until_boot_ns; /* end of the lease, CLOCK_BOOTTIME of that boot; 0: not known */
	uint64_t lease_ns;	/* its length; 0: not known */
	uint64_t next;		/* nobody has it, and this one alone may, until the lease ends */
	uint64_t since;	   /* since this term it was only ever handed over; 0: not handed over */
	uint64_t previous; /* where `last` has it from, if it was handed over */
	uint32_t flags;	   /* MAP_HOME_* */
	uint64_t version;  /* no part of it: of the record as read or put; 0: neither */
};

/* May a volume look like this? 0 or -EINVAL. */
int map_format_volume_check(const struct map_volume *volume);
/* The volume must pass map_format_volume_check(). */
void map_format_volume_encode(const struct map_volume *volume, uint8_t out[MAP_RECORD_SIZE]);
int map_format_volume_decode(const uint8_t *from, size_t size, struct map_volume *volume);
void map_format_name_encode(const struct map_name *name, uint8_t out[MAP_NAME_RECORD_SIZE]);
int map_format_name_decode(const uint8_t *from, size_t size, struct map_name *name);
void map_format_home_encode(const struct map_home *home, uint8_t out[MAP_HOME_RECORD_SIZE]);
int map_format_home_decode(const uint8_t *from, size_t size, struct map_home *home);

static inline uint64_t map_objects(const struct map_volume *volume)
{
	return volume->size == 0 ? 0 : (volume->size - 1) / volume->object_size + 1;
}

/* --- bitmap ----------------------------------------------------------------------------- */

/*
 * What a partial object has: bit per cluster. What it has not is in its parent, another object of
 * the same number, which may be partial itself. Bits are only ever set. It lies in two halves, the
 * whole one with the higher sequence counts.
 */
struct map_bitmap {
	uint64_t owner; /* volume that the object is of */
	uint32_t epoch, object;
	uint64_t sequence; /* one more at each writing; half = sequence % 2 */
	uint64_t parent_owner;
	uint32_t parent_epoch;
	uint32_t parent_flags; /* MAP_PARTIAL or 0 */
	uint64_t has[MAP_BITMAP_WORDS];
};

void map_format_bitmap_encode(const struct map_bitmap *bitmap, uint8_t out[MAP_BITMAP_SIZE]);
int map_format_bitmap_decode(const uint8_t from[MAP_BITMAP_SIZE], struct map_bitmap *bitmap);

/* --- names -------------------------------------------------------------------------------- */

/* Where a name's record lies; never 0. */
uint64_t map_format_name_hash(const char *name);

static inline struct xseg_key map_volume_key(uint64_t id, unsigned half)
{
	return (struct xseg_key){.volume = id, .epoch = XSEG_EPOCH_VOLUME, .object = half};
}
static inline struct xseg_key map_home_key(uint64_t id)
{
	return (struct xseg_key){.volume = id, .epoch = XSEG_EPOCH_HOME};
}
static inline struct xseg_key map_name_key(const char *name)
{
	return (struct xseg_key){.volume = map_format_name_hash(name), .epoch = XSEG_EPOCH_NAME};
}
static inline struct xseg_key map_page_key(uint64_t owner, uint32_t epoch, uint32_t page)
{
	return (struct xseg_key){.volume = owner, .epoch = MAP_EPOCH_MAP | epoch, .object = page};
}
static inline struct xseg_key map_directory_key(uint64_t owner, uint32_t epoch, uint32_t number)
{
	return map_page_key(owner, epoch, MAP_NUMBER_DIRECTORY + number);
}
static inline struct xseg_key map_bitmap_key(uint64_t owner, uint32_t epoch, uint32_t object)
{
	return map_page_key(owner, epoch, MAP_NUMBER_BITMAP + object / MAP_BITMAP_GROUP);
}
static inline uint32_t map_bitmap_offset(uint32_t object, unsigned half)
{
	return (object % MAP_BITMAP_GROUP * 2 + half) * MAP_BITMAP_SIZE;
}

#endif
