/* SPDX-License-Identifier: Apache-2.0 */
/* The memory blocker: objects in pages of the segment. The second peer to read: state, options. */
#include <peer/call.h>

#include "peers/blocker/pagestore.h"
#include "peers/blocker/record.h"

struct memory_options {
	uint64_t size;
};

static const struct peer_option memory_options[] = {
	OPTION_SIZE(struct memory_options, size, "size",
		.help = "most that it takes of the page pool; 0: half of it"),
	OPTION_END,
};

/* Of one shard. CAS goes to the first shard of a port, so its table holds all records. */
struct memory {
	struct pagestore store; /* first */
	struct record_table records;
};

static int memory_open(struct peer *first, char *why, size_t why_size)
{
	const struct memory_options *options = first->options;
	return pagestore_limit(first, options->size, why, why_size);
}

static int memory_start(struct peer *peer, char *why, size_t why_size)
{
	struct memory *memory = peer->state;
	return pagestore_open(&memory->store, peer, why, why_size);
}

static void memory_finish(struct peer *peer)
{
	struct memory *memory = peer->state;
	pagestore_close(&memory->store);
	record_fini(&memory->records);
}

static int memory_do(struct memory *memory, struct job *job, uint64_t *value)
{
	switch (job->op) {
	case XSEG_OP_READ: return pagestore_read(&memory->store, job);
	case XSEG_OP_WRITE: return pagestore_write(&memory->store, job);
	case XSEG_OP_ZERO:
	case XSEG_OP_DISCARD: return pagestore_zero(&memory->store, job);
	case XSEG_OP_COPY: return pagestore_copy(&memory->store, job);
	case XSEG_OP_DELETE: return pagestore_delete(&memory->store, job);
	case XSEG_OP_INFO: return pagestore_info(&memory->store, job);
	case XSEG_OP_STATUS: return pagestore_status(&memory->store, job, value);
	case XSEG_OP_CAS: return record_cas(&memory->records, job, value);
	case XSEG_OP_PREFETCH:
	/* nothing to wait for: memory is all there is, and it dies with the process */
	case XSEG_OP_FLUSH: return 0;
	default: must(job->op == XSEG_OP_LIST);
	}
	return store_record_is(&job->key) ? record_list(&memory->records, job, value)
					  : pagestore_list(&memory->store, job, value);
}

/* False: the pool is low; asked again when there may be pages. */
static bool memory_try(struct peer *peer, void *context)
{
	struct job *job = context;
	uint64_t value = 0;
	int answer = memory_do(peer->state, job, &value);
	if (answer != -EAGAIN)
		store_answer(job, answer, value);
	return answer != -EAGAIN;
}

static void memory_take(struct peer *peer, struct job *job)
{
	if (!memory_try(peer, job))
		peer_retry(peer, memory_try, job);
}

static const struct peer_ops memory_ops = {
	.name = "blocker_memory",
	.summary = "objects in pages of the segment",
	.serves = "store",
	.description = "Reads lend pages, writes keep them: whole pages are not copied. What is "
		       "stored goes with the process. A full store fails what grows it.\n",
	.options = memory_options,
	.options_size = sizeof(struct memory_options),
	.state_size = sizeof(struct memory),
	.shared_size = sizeof(struct pagestore_shared),
	.open = memory_open,
	.start = memory_start,
	.finish = memory_finish,
	.expect = pagestore_expect,
	.on = {[XSEG_OP_READ... XSEG_OP_CAS] = memory_take,
		[XSEG_OP_INFO... XSEG_OP_LIST] = memory_take},
};
PEER_MODULE(memory_ops);
