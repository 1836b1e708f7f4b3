/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Records and lists, many at a time, on a worker: a store behind a bridge takes one round trip for
 * all of them, and whoever asks for them meanwhile waits no longer than that.
 */
#include <base/crash.h>

#include "peers/mover/mover.h"

#define LIST_BYTES (1u << 20)
#define LISTS 8u /* at once */

struct batch {
	struct mover_record *records[MOVER_RECORDS];
	struct mover_call calls[MOVER_RECORDS];
	unsigned count;
};

static void add(struct batch *batch, struct mover_record *record, struct mover_call call)
{
	must(batch->count < MOVER_RECORDS);
	call.op = XSEG_OP_CAS;
	call.key = record->key;
	batch->records[batch->count] = record;
	batch->calls[batch->count++] = call;
}

/* Each call has its own result; that of all does not matter. */
static void ask(struct mover *mover, unsigned store, struct batch *batch)
{
	(void)mover_call_all(&mover->row, store, batch->calls, batch->count);
}

int mover_record_get(
	struct mover *mover, unsigned store, struct mover_record *records, unsigned count)
{
	struct batch batch = {.count = 0};
	int rc = 0;
	for (unsigned i = 0; i < count; i++)
		add(&batch, &records[i],
			(struct mover_call){.arg1 = XSEG_CAS_GET,
				.room = XSEG_RECORD_MAX,
				.receive = records[i].bytes});
	ask(mover, store, &batch);
	for (unsigned i = 0; i < count; i++) {
		struct mover_record *record = &records[i];
		record->error = batch.calls[i].result;
		record->size = batch.calls[i].got;
		record->version = record->error == 0 ? batch.calls[i].value : 0;
		record->over = 0;
		record->put = false;
		if (record->error != -ENOENT && (rc == 0 || rc == -EILSEQ))
			rc = record->error ? record->error : rc;
	}
	return rc;
}

int mover_record_put_once(struct mover *mover, unsigned store, struct mover_record *records,
	unsigned count, bool keep)
{
	struct batch batch = {.count = 0};
	int rc = 0;
	for (unsigned i = 0; i < count; i++)
		if (records[i].error == 0 && !records[i].put)
			add(&batch, &records[i],
				(struct mover_call){.arg0 = records[i].over,
					.arg1 = XSEG_CAS_PUT,
					.room = records[i].size,
					.send = records[i].bytes});
	ask(mover, store, &batch);
	for (unsigned i = 0; i < batch.count; i++) {
		struct mover_record *record = batch.records[i];
		int error = batch.calls[i].result;
		bool damaged = error == -EILSEQ, known = record->over == XSEG_CAS_DAMAGED;
		record->put = error == 0 || (error == -EEXIST && keep);
		record->over = damaged ? XSEG_CAS_DAMAGED : batch.calls[i].value;
		if (error == -EEXIST || (damaged && !known))
			error = -ESTALE;
		if (!record->put && (rc == 0 || rc == -ESTALE))
			rc = error;
	}
	crash_point("mover.record.put");
	return rc;
}

int mover_record_put(struct mover *mover, unsigned store, struct mover_record *records,
	unsigned count, bool keep)
{
	int rc;
	do
		rc = mover_record_put_once(mover, store, records, count, keep);
	while (rc == -ESTALE);
	return rc;
}

int mover_record_delete(
	struct mover *mover, unsigned store, struct mover_record *records, unsigned count)
{
	struct batch batch = {.count = 0};
	int rc = 0;
	for (unsigned i = 0; i < count; i++)
		if (records[i].error == 0)
			add(&batch, &records[i],
				(struct mover_call){
					.arg0 = records[i].version, .arg1 = XSEG_CAS_DELETE});
	ask(mover, store, &batch);
	for (unsigned i = 0; i < batch.count; i++)
		if (batch.calls[i].result != -ENOENT && (rc == 0 || rc == -ESTALE))
			rc = batch.calls[i].result ? batch.calls[i].result : rc;
	return rc;
}

/* --- lists ---------------------------------------------------------------------------------- */

struct list {
	struct xseg_key of, *part;
	uint64_t cursor;
};

/* The next part of each; those that are not at their end stay. */
static int list_parts(struct mover *mover, unsigned store, struct list *lists, unsigned *count,
	struct mover_keys *keys)
{
	struct mover_call calls[LISTS];
	unsigned left = 0;
	for (unsigned i = 0; i < *count; i++)
		calls[i] = (struct mover_call){.op = XSEG_OP_LIST,
			.key = lists[i].of,
			.room = LIST_BYTES,
			.arg0 = lists[i].cursor,
			.receive = lists[i].part};
	int rc = mover_call_all(&mover->row, store, calls, *count);
	for (unsigned i = 0; i < *count && rc == 0; i++) {
		for (uint32_t k = 0; k < calls[i].got / sizeof(*lists[i].part); k++)
			mover_group_keys_add(keys, lists[i].part[k]);
		lists[i].cursor = calls[i].value;
		struct list done = lists[i];
		if (done.cursor == 0)
			continue;
		lists[i] = lists[left];
		lists[left++] = done;
	}
	*count = left;
	return rc;
}

/* Some at a time. */
static int list_each(struct mover *mover, unsigned store, const struct xseg_key *of, uint32_t total,
	struct mover_keys *keys)
{
	struct list lists[LISTS] = {{.cursor = 0}};
	unsigned count = 0;
	int rc = 0;
	for (unsigned i = 0; i < LISTS && i < total; i++) {
		lists[i].part = malloc(LIST_BYTES);
		must(lists[i].part);
	}
	for (uint32_t next = 0; (next < total || count > 0) && rc == 0;) {
		while (count < LISTS && next < total) {
			lists[count].of = of[next++];
			lists[count++].cursor = 0;
		}
		rc = list_parts(mover, store, lists, &count, keys);
	}
	for (unsigned i = 0; i < LISTS; i++)
		free(lists[i].part);
	return rc;
}

int mover_record_list_all(
	struct mover *mover, unsigned store, uint32_t epoch, struct mover_keys *keys)
{
	struct xseg_key of = {.epoch = epoch};
	return list_each(mover, store, &of, 1, keys);
}

int mover_record_list_group(struct mover *mover, unsigned store, const struct mover_group *group,
	struct mover_keys *keys)
{
	struct xseg_key of[MOVER_IDS_MAX];
	for (uint32_t i = 0; i < group->count; i++)
		of[i] = (struct xseg_key){.volume = group->ids[i]};
	return list_each(mover, store, of, group->count, keys);
}
