/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Volumes as everybody thinks of them: names, sizes and contents in plain tables; and a composer of
 * a few lines, which writes and reads objects of volumes in a store through their maps.
 *
 * Objects have four clusters; what is looked at is a few objects far apart. A cluster's contents
 * are a token, 0: zeros.
 *
 * Units: sizes in objects. Errors: 0 or -errno. Ownership: caller's. Threads: one. Blocking: none.
 */
#ifndef SKERRY_TESTS_PROPERTY_MAP_MODEL_H
#define SKERRY_TESTS_PROPERTY_MAP_MODEL_H

#include "peers/map/map_volume.h"
#include "tests/lib/map_memory.h"

#define MODEL_VOLUMES 10u
#define MODEL_NAMES 12u
#define MODEL_OBJECTS 7u
#define MODEL_CLUSTERS 4u
#define MODEL_OBJECT_SIZE (MODEL_CLUSTERS * MAP_CLUSTER)
#define MODEL_ID 0x1000u /* of the first volume; they are never given twice */
#define MODEL_CREATED_NS 100u

struct model_volume {
	bool there, snapshot, protected;
	bool removing; /* half: it holds its name and its parent, and can only be removed again */
	unsigned name; /* MODEL_NAMES: a half removed one's is free again */
	uint64_t id, parent;
	uint32_t size;
	uint32_t data[MODEL_OBJECTS][MODEL_CLUSTERS];
};

struct model {
	struct model_volume volumes[MODEL_VOLUMES];
	uint64_t next_id;
	uint32_t next_token;
};

enum model_kind {
	MODEL_WRITE,
	MODEL_ZERO,
	MODEL_HOLE,
	MODEL_FLATTEN,
	MODEL_CREATE,
	MODEL_SNAPSHOT,
	MODEL_CLONE,
	MODEL_ROLLBACK,
	MODEL_RESIZE,
	MODEL_RENAME,
	MODEL_REMOVE,
	MODEL_PROTECT,
	MODEL_EPOCH,
	MODEL_CLEANUP,
	MODEL_DETACH,
	MODEL_KINDS
};

struct model_op {
	enum model_kind kind;
	uint64_t id;	/* of the volume, or the source */
	uint64_t other; /* snapshot to go back to, or what is to be made */
	unsigned name, object, mask;
	uint32_t size, token;
	bool flag; /* protect, freeze; detach: it is flat */
};

void model_init(struct model *model);
/* NULL also for one that is being removed. */
const struct model_volume *model_find(const struct model *model, uint64_t id);
unsigned model_count(const struct model *model);
uint32_t model_object(unsigned index); /* its number */
uint32_t model_size(unsigned index);
#define MODEL_SIZES 8u
const char *model_name(unsigned index);
const char *model_kind_name(enum model_kind kind);
bool model_is_data(enum model_kind kind);

/* What the operation does to the tables, and what it answers. */
int model_apply(struct model *model, const struct model_op *op);
/* The same to a store. `fresh`: by somebody who has just opened the volume. */
int model_run(struct map_store *store, const struct model_op *op, bool fresh);
/*
 * Cut off in its middle, and nobody ever says it again: the tables become what the store shows, as
 * before or as after it, or a volume half removed. False: it is none of these.
 */
bool model_abandon(struct map_memory *memory, struct model *model, const struct model_op *op);
/* Stands the volume alone? Looked at entry by entry. */
bool model_is_flat(struct map_store *store, uint64_t id);

/* Does the store hold what a says; of contents, what a or b says (b may be NULL)? Volumes that are
   being removed are not there. Says on stderr what is not as it should be if `loud`. */
bool model_match(
	struct map_memory *memory, const struct model *a, const struct model *b, bool loud);
/* Are there records or objects that none of the volumes needs? */
bool model_leftover(struct map_memory *memory, const struct model *model);

#endif
