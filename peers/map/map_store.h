/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the mapper asks of a store, one after the other, each until it is done. The mapper's peer
 * answers with requests down its edge (mapper_store.c), tests with a store in memory that can be
 * cut off after any change.
 *
 * Units: bytes. Errors: 0 or a count, or -errno. Ownership: caller's buffers. Threads: as the
 * implementation says. Blocking: all.
 */
#ifndef SKERRY_MAP_STORE_H
#define SKERRY_MAP_STORE_H

#include <stddef.h>
#include <xseg/op.h>

/* A part of an object. */
struct map_range {
	struct xseg_key key;
	uint32_t offset, length;
};

struct map_store {
	/* What is not there reads as zeros. */
	int (*read)(struct map_store *store, struct xseg_key key, uint32_t offset, void *to,
		uint32_t length);
	/* These will be read next, in that order, most likely. NULL: it is of no use. */
	void (*expect)(struct map_store *store, const struct map_range *ranges, size_t count);
	/* Durable after the next flush of key.volume, which has the error of one that failed. */
	int (*write)(struct map_store *store, struct xseg_key key, uint32_t offset,
		const void *from, uint32_t length);
	int (*flush)(struct map_store *store, uint64_t volume);
	/* A whole object; fine when absent. */
	int (*discard)(struct map_store *store, struct xseg_key key);
	/* dst <- src, [offset, offset + length) of the objects. */
	int (*copy)(struct map_store *store, struct xseg_key to, struct xseg_key from,
		uint32_t offset, uint32_t length);
	/* Objects of a volume, of all epochs but records: how many were put into keys. *cursor: 0
	   first, 0 when these were the last. */
	int (*list)(struct map_store *store, uint64_t volume, uint64_t *cursor,
		struct xseg_key *keys, uint32_t max);
	/* Bytes of space that an object takes; 0 when absent. */
	int (*allocated)(struct map_store *store, struct xseg_key key, uint64_t *bytes);
	/* Records: atomic and durable (enum xseg_cas). get: its size; -ENOENT. put, drop: *version
	   is what is expected (0: absent), then what is there; -EEXIST, -ESTALE. A get that is
	   -EILSEQ says in *version what a put or drop of what is damaged is to expect. */
	int (*get)(struct map_store *store, struct xseg_key key, uint8_t to[XSEG_RECORD_MAX],
		uint64_t *version);
	int (*put)(struct map_store *store, struct xseg_key key, const void *from, uint32_t size,
		uint64_t *version);
	int (*drop)(struct map_store *store, struct xseg_key key, uint64_t *version);
	/* As list(), of the records of one epoch (XSEG_EPOCH_*). */
	int (*records)(struct map_store *store, uint32_t epoch, uint64_t *cursor,
		struct xseg_key *keys, uint32_t max);
};

#endif
