/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the blockers' checker is made of: one client, operations in a line each, TAP, and bytes
 * that say where they belong.
 *
 * Units: bytes. Errors: 0 or -errno, as the blocker answered. Ownership: caller's. Threads: one.
 * Blocking: all.
 */
#ifndef SKERRY_TESTS_LIB_BLOCKER_RIG_H
#define SKERRY_TESTS_LIB_BLOCKER_RIG_H

#include <peer/client.h>

struct rig {
	struct client client;
	const char *segment, *peer;
	uint64_t volume; /* of this run; the ones behind it are its own, too */
	uint64_t seed;
	uint8_t *out, *in; /* XSEG_OBJECT_MAX each */
	bool space_known;  /* rig_info()'s last answer says which space the object takes */
	bool failed;	   /* the law that is being checked */
	unsigned laws, broken;
	unsigned said; /* about this law; more is only counted */
};

int rig_open(struct rig *rig, const char *segment, const char *peer);
void rig_close(struct rig *rig);

/* --- TAP ------------------------------------------------------------------------ */

void rig_law(struct rig *rig, const char *name, void (*law)(struct rig *rig));
/* Notes where, and that the law is broken; goes on. */
__attribute__((format(printf, 4, 5))) void rig_broken(
	struct rig *rig, const char *file, int line, const char *format, ...);

#define expect_int(rig, got, want) \
	do { \
		long long got_ = (got), want_ = (want); \
		if (got_ != want_) \
			rig_broken(rig, __FILE__, __LINE__, "%s is %lld, not %lld", #got, got_, \
				want_); \
	} while (0)

#define expect_true(rig, what) \
	do { \
		if (!(what)) \
			rig_broken(rig, __FILE__, __LINE__, "%s is false", #what); \
	} while (0)

/* --- operations ------------------------------------------------------------------- */

struct span {
	uint64_t offset;
	uint32_t length;
};

struct xseg_key rig_key(const struct rig *rig, unsigned volume, uint32_t object);
int rig_read(struct rig *rig, struct xseg_key key, struct span span, void *to);
int rig_write(
	struct rig *rig, struct xseg_key key, struct span span, const void *from, unsigned flags);
/* ZERO, DISCARD, FLUSH, DELETE, PREFETCH */
int rig_do(struct rig *rig, enum xseg_op op, struct xseg_key key, struct span span, unsigned flags);
int rig_control(struct rig *rig, struct xseg_key key, uint64_t verb, uint64_t term, unsigned flags);
int rig_copy(struct rig *rig, struct xseg_key to, struct xseg_key from, struct span span);
int rig_info(struct rig *rig, struct xseg_key key, struct xseg_object_info *info);
int rig_space(struct rig *rig, struct xseg_space *space);
/* How many stretches, or -errno. */
int rig_status(struct rig *rig, struct xseg_key key, struct span span,
	struct xseg_status_extent *out, int room);
/* How many keys, or -errno; *cursor moves on, 0: no more. */
int rig_list(struct rig *rig, struct xseg_key of, uint64_t *cursor, struct xseg_key *out, int room);
/* Size of the record, or -errno; *version: found. */
int rig_cas_get(struct rig *rig, struct xseg_key key, void *to, uint32_t room, uint64_t *version);
/* *version: expected, then what is there now. */
int rig_cas_put(
	struct rig *rig, struct xseg_key key, const void *from, uint32_t size, uint64_t *version);
int rig_cas_delete(struct rig *rig, struct xseg_key key, uint64_t *version);

/* --- bytes that say where they belong ------------------------------------------------ */

void pattern_fill(uint8_t *to, struct xseg_key key, struct span span, uint64_t seed);
/* Index of the first byte that is wrong, or -1. */
long pattern_check(const uint8_t *from, struct xseg_key key, struct span span, uint64_t seed);
long zeros_check(const uint8_t *from, uint32_t length);
uint64_t rig_random(struct rig *rig);

/* --- what is checked ------------------------------------------------------------------ */

void blocker_laws(struct rig *rig);    /* blocker_laws.c */
void blocker_records(struct rig *rig); /* blocker_records.c */
void blocker_fence(struct rig *rig);   /* blocker_laws_fence.c */
/* Both have a client of the same store, through a segment each. */
void blocker_fence_shared(struct rig *rig, struct rig *other);
void blocker_model(struct rig *rig, unsigned steps); /* blocker_model.c */

/* of blocker_pattern, with that object size */
void blocker_pattern(struct rig *rig, uint64_t object_size); /* blocker_laws_pattern.c */

#endif
