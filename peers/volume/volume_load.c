/* SPDX-License-Identifier: Apache-2.0 */
/* Brings a volume from the store into the table, the first time that somebody asks for it. */
#include <base/crash.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "peers/volume/volume.h"

/*
 * Each shard loads for itself: two that load one volume at once do the work twice, and neither
 * waits for the other's thread.
 */
struct volume_load {
	struct volume_step step; /* first */
	TAILQ_ENTRY(volume_load) link;
	uint64_t id;
	struct job_queue jobs;
	struct volume_task_queue tasks;
	struct volume_record record;
	_Atomic uint64_t *present;
	uint64_t gone; /* removals before we read */
	uint64_t cursor;
};

static void load_record(struct volume_step *step);

static struct volume_load *load_of(struct volume_step *step) { return (struct volume_load *)step; }

static uint64_t object_count(const struct volume_record *record)
{
	return (record->size - 1) / record->object_size + 1;
}

/* Touched where there are objects only: the bitmap of an empty volume costs no memory. */
static int map_present(struct volume_load *load)
{
	size_t size = (size_t)((object_count(&load->record) + 63) / 64 * 8);
	void *map = mmap(NULL, size, PROT_READ | PROT_WRITE,
		MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (map == MAP_FAILED)
		return -errno;
	load->present = map;
	return 0;
}

static void unmap_present(struct volume_load *load)
{
	if (load->present)
		munmap(load->present, (size_t)((object_count(&load->record) + 63) / 64 * 8));
	load->present = NULL;
}

/* Everybody who waits goes on; the job's handler finds the volume this time. */
static void load_end(struct volume_load *load, int error)
{
	struct peer *peer = load->step.peer;
	struct volume_shard *shard = peer->state;
	struct volume_task *task;
	struct job *job;
	TAILQ_REMOVE(&shard->loads, load, link);
	while ((task = TAILQ_FIRST(&load->tasks))) {
		TAILQ_REMOVE(&load->tasks, task, link);
		task->found(task, error);
	}
	while ((job = TAILQ_FIRST(&load->jobs))) {
		TAILQ_REMOVE(&load->jobs, job, link);
		if (error != 0)
			job_fail(job, error);
		else
			peer->ops->on[job->op](peer, job);
	}
	unmap_present(load);
	free(load);
}

static void load_insert(struct volume_load *load)
{
	struct peer *peer = load->step.peer;
	int rc = volume_table_insert(peer->shared, &load->record, load->present, load->gone);
	load->present = NULL;
	if (rc == -EAGAIN) {
		load_record(&load->step);
		return;
	}
	peer_count(peer, VOLUME_LOADS, rc == 0);
	load_end(load, rc);
}

/* Objects beyond the volume's end, or of another epoch, are not its data. */
static void note_keys(struct volume_load *load, const struct call *call)
{
	struct xseg_key keys[256];
	uint32_t total = call->answer_length / sizeof(keys[0]);
	for (uint32_t first = 0; first < total; first += countof(keys)) {
		uint32_t count = total - first < countof(keys) ? total - first : countof(keys);
		call_get_bytes(call, first * sizeof(keys[0]), keys, count * sizeof(keys[0]));
		for (uint32_t i = 0; i < count; i++) {
			uint32_t object = keys[i].object;
			if (keys[i].volume != load->id || keys[i].epoch != 0 ||
				object >= object_count(&load->record))
				continue;
			load->present[object / 64] |= 1ull << (object % 64);
		}
	}
}

static void load_list(struct volume_step *step);

static void load_listed(struct call *call)
{
	struct volume_load *load = load_of(call->context);
	int rc = call->result;
	uint64_t next = call->value;
	if (rc == 0 && call->answer_length > VOLUME_LIST_BYTES)
		rc = -EIO;
	if (rc == 0)
		note_keys(load, call);
	call_end(call);
	if (rc != 0) {
		load_end(load, rc);
		return;
	}
	load->cursor = next;
	crash_point("volume.load.listed");
	if (next != 0)
		load_list(&load->step);
	else
		load_insert(load);
}

static void load_list(struct volume_step *step)
{
	struct volume_load *load = load_of(step);
	struct call *call = volume_step_call(step, load_list, XSEG_OP_LIST,
		(struct xseg_key){.volume = load->id}, VOLUME_LIST_BYTES);
	if (!call)
		return;
	call->arg0 = load->cursor;
	call_submit(call, VOLUME_STORE, load_listed);
}

static void load_recorded(struct call *call)
{
	struct volume_load *load = load_of(call->context);
	uint8_t bytes[XSEG_RECORD_MAX];
	int rc = volume_call_answer(call, bytes);
	call_end(call);
	if (rc >= 0)
		rc = volume_record_decode(bytes, (size_t)rc, &load->record);
	if (rc == 0 && load->record.id != load->id)
		rc = -EILSEQ;
	if (rc == 0)
		rc = map_present(load);
	if (rc == -EOPNOTSUPP) /* a store without records has no such volume either */
		rc = -ENOENT;
	if (rc != 0) {
		load_end(load, rc);
		return;
	}
	volume_flight_note(load->step.peer, load->id, load->present, object_count(&load->record));
	load_list(&load->step);
}

static void load_record(struct volume_step *step)
{
	struct volume_load *load = load_of(step);
	struct volume_shared *shared = step->peer->shared;
	load->gone = atomic_load_explicit(&shared->gone, memory_order_acquire);
	load->cursor = 0;
	struct call *call =
		volume_step_cas(step, load_record, XSEG_CAS_GET, volume_record_key(load->id));
	if (call)
		call_submit(call, VOLUME_STORE, load_recorded);
}

static struct volume_load *load_find(const struct volume_shard *shard, uint64_t id)
{
	struct volume_load *load;
	TAILQ_FOREACH (load, &shard->loads, link)
		if (load->id == id)
			return load;
	return NULL;
}

static struct volume_load *load_new(struct peer *peer, uint64_t id)
{
	struct volume_shard *shard = peer->state;
	struct volume_load *load = calloc(1, sizeof(*load));
	if (!load)
		return NULL;
	load->step.peer = peer;
	load->id = id;
	TAILQ_INIT(&load->jobs);
	TAILQ_INIT(&load->tasks);
	TAILQ_INSERT_TAIL(&shard->loads, load, link);
	return load;
}

void volume_load_job(struct peer *peer, struct job *job)
{
	struct volume_load *load = load_find(peer->state, job->key.volume);
	bool begins = !load;
	if (begins)
		load = load_new(peer, job->key.volume);
	if (!load) {
		job_fail(job, -ENOMEM);
		return;
	}
	TAILQ_INSERT_TAIL(&load->jobs, job, link);
	if (begins)
		load_record(&load->step);
}

void volume_load_task(struct volume_task *task)
{
	struct peer *peer = task->step.peer;
	struct volume_load *load = load_find(peer->state, task->id);
	bool begins = !load;
	if (begins)
		load = load_new(peer, task->id);
	if (!load) {
		task->found(task, -ENOMEM);
		return;
	}
	TAILQ_INSERT_TAIL(&load->tasks, task, link);
	if (begins)
		load_record(&load->step);
}
