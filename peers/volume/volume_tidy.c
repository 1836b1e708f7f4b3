/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Records that no name leads to: a composer was killed while it created or removed a volume. Once
 * in a process, when somebody first asks about volumes, they are looked for and deleted.
 *
 * Such a record has no objects: a volume gets its first after its name, and loses its name after
 * its last. One that a CREATE is at just now is told by its version: see volume_admin.c.
 */
#include <base/log.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "peers/volume/volume.h"

#define TIDY_KEYS 256u

struct tidy {
	struct volume_step step; /* first */
	uint64_t cursor;
	uint32_t count, next; /* of the keys */
	struct volume_record record;
	uint64_t version; /* as it was read */
	uint64_t deleted;
	struct xseg_key keys[TIDY_KEYS];
};

static void tidy_next(struct tidy *tidy);

static struct tidy *tidy_of(struct volume_step *step) { return (struct tidy *)step; }

static void tidy_end(struct tidy *tidy)
{
	struct peer *peer = tidy->step.peer;
	struct volume_shard *shard = peer->state;
	if (tidy->deleted)
		log_info("volume", "%s: deleted %llu records that were left half made", peer->name,
			(unsigned long long)tidy->deleted);
	shard->tidying = false;
	free(tidy);
}

static void tidy_deleted(struct call *call)
{
	struct tidy *tidy = call->context;
	tidy->deleted += call->result == 0;
	peer_count(tidy->step.peer, VOLUME_TIDIED, call->result == 0);
	call_end(call);
	tidy_next(tidy);
}

static void tidy_delete(struct volume_step *step)
{
	struct tidy *tidy = tidy_of(step);
	struct call *call = volume_step_cas(
		step, tidy_delete, XSEG_CAS_DELETE, volume_record_key(tidy->record.id));
	if (!call)
		return;
	call->arg0 = tidy->version;
	call_submit(call, VOLUME_STORE, tidy_deleted);
}

/* Whoever cannot be read for sure is left alone. */
static void tidy_named(struct call *call)
{
	struct tidy *tidy = call->context;
	struct volume_name_record name;
	uint8_t bytes[XSEG_RECORD_MAX];
	int rc = volume_call_answer(call, bytes);
	call_end(call);
	if (rc >= 0)
		rc = volume_name_record_decode(bytes, (size_t)rc, &name);
	/* somebody else's name, or one that another name's record hides, leads not here either */
	bool leads = rc == 0 && name.id == tidy->record.id;
	if (rc == -ENOENT || (rc == 0 && !leads))
		tidy_delete(&tidy->step);
	else
		tidy_next(tidy);
}

static void tidy_name(struct volume_step *step)
{
	struct tidy *tidy = tidy_of(step);
	struct call *call =
		volume_step_cas(step, tidy_name, XSEG_CAS_GET, volume_name_key(tidy->record.name));
	if (call)
		call_submit(call, VOLUME_STORE, tidy_named);
}

static void tidy_read(struct call *call)
{
	struct tidy *tidy = call->context;
	uint8_t bytes[XSEG_RECORD_MAX];
	uint64_t id = call->key.volume;
	int rc = volume_call_answer(call, bytes);
	tidy->version = call->value;
	call_end(call);
	if (rc >= 0)
		rc = volume_record_decode(bytes, (size_t)rc, &tidy->record);
	if (rc == 0 && tidy->record.id == id)
		tidy_name(&tidy->step);
	else
		tidy_next(tidy);
}

static void tidy_record(struct volume_step *step)
{
	struct tidy *tidy = tidy_of(step);
	struct call *call =
		volume_step_cas(step, tidy_record, XSEG_CAS_GET, tidy->keys[tidy->next]);
	if (!call)
		return;
	tidy->next++;
	call_submit(call, VOLUME_STORE, tidy_read);
}

static void tidy_listed(struct call *call)
{
	struct tidy *tidy = call->context;
	int rc = call->result;
	tidy->next = 0;
	tidy->count = rc == 0 ? call->answer_length / sizeof(struct xseg_key) : 0;
	tidy->cursor = rc == 0 ? call->value : 0;
	if (tidy->count > TIDY_KEYS)
		tidy->count = 0;
	call_get_bytes(call, 0, tidy->keys, tidy->count * (uint32_t)sizeof(struct xseg_key));
	call_end(call);
	tidy_next(tidy);
}

static void tidy_list(struct volume_step *step)
{
	struct tidy *tidy = tidy_of(step);
	struct call *call = volume_step_call(step, tidy_list, XSEG_OP_LIST,
		(struct xseg_key){.epoch = XSEG_EPOCH_VOLUME}, sizeof(tidy->keys));
	if (!call)
		return;
	call->arg0 = tidy->cursor;
	call_submit(call, VOLUME_STORE, tidy_listed);
}

static void tidy_next(struct tidy *tidy)
{
	if (tidy->step.peer->stopping)
		tidy_end(tidy);
	else if (tidy->next < tidy->count)
		tidy_record(&tidy->step);
	else if (tidy->cursor != 0)
		tidy_list(&tidy->step);
	else
		tidy_end(tidy);
}

void volume_tidy_begin(struct peer *peer)
{
	struct volume_shared *shared = peer->shared;
	struct volume_shard *shard = peer->state;
	if (likely(atomic_load_explicit(&shared->tidied, memory_order_relaxed)) ||
		atomic_exchange(&shared->tidied, true))
		return;
	struct tidy *tidy = calloc(1, sizeof(*tidy));
	if (!tidy)
		return;
	shard->tidying = true;
	tidy->step.peer = peer;
	tidy_list(&tidy->step);
}

bool volume_tidy_idle(struct peer *peer)
{
	const struct volume_shard *shard = peer->state;
	return !shard->tidying;
}
