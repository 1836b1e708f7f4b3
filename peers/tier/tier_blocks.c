/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of blocks, written to the near store and read from it. */
#include "peers/tier/tier.h"

#define AT_ONCE 256u /* blocks of one request */

int tier_blocks_add(struct tier_blocks *blocks, const struct tier_entry *entry)
{
	bool full =
		blocks->count == 0 || blocks->block[blocks->count - 1].count == TIER_BLOCK_ENTRIES;
	if (full && blocks->count == blocks->room) {
		size_t room = blocks->room ? blocks->room * 2 : 4;
		struct tier_block *grown = realloc(blocks->block, room * sizeof(*grown));
		if (!grown)
			return -ENOMEM;
		blocks->block = grown;
		blocks->room = room;
	}
	if (full)
		memset(&blocks->block[blocks->count++], 0, sizeof(struct tier_block));
	struct tier_block *last = &blocks->block[blocks->count - 1];
	last->entry[last->count++] = *entry;
	return 0;
}

void tier_blocks_clear(struct tier_blocks *blocks)
{
	free(blocks->block);
	blocks->block = NULL;
	blocks->count = blocks->room = 0;
}

/* The object in which a block lies, where in it, and how many more of `count` lie there. */
static struct xseg_key place(
	const struct tier_blocks *blocks, uint64_t number, size_t *count, uint64_t *offset)
{
	uint64_t all = XSEG_OBJECT_MAX / TIER_BLOCK, in = number % all;
	if (*count > all - in)
		*count = all - in;
	if (*count > AT_ONCE)
		*count = AT_ONCE;
	*offset = in * TIER_BLOCK;
	return blocks->touch ? tier_format_touch_key()
			     : tier_format_log_key(blocks->generation, number);
}

static int ask(struct tier_blocks *blocks, enum xseg_op op, size_t count, struct call **call)
{
	uint64_t offset;
	struct xseg_key key = place(blocks, blocks->first + blocks->at, &count, &offset);
	int error = tier_serve_call(
		blocks->tier, op, key, offset, (uint32_t)(count * TIER_BLOCK), call);
	if (!error)
		(*call)->context = blocks;
	return error;
}

/* --- writing ------------------------------------------------------------------------------ */

static bool write_on(struct peer *peer, void *context);

static void written(struct call *call)
{
	struct tier_blocks *blocks = call->context;
	blocks->error = call->result;
	blocks->at += call->length / TIER_BLOCK;
	call_end(call);
	if (blocks->error || blocks->at == blocks->count)
		blocks->done(blocks);
	else if (!write_on(blocks->tier->peer, blocks))
		peer_retry(blocks->tier->peer, write_on, blocks);
}

static bool write_on(struct peer *peer, void *context)
{
	struct tier_blocks *blocks = context;
	struct call *call;
	(void)peer;
	if (ask(blocks, XSEG_OP_WRITE, blocks->count - blocks->at, &call))
		return false;
	call->flags = XSEG_F_FUA;
	call_put_bytes(call, 0, &blocks->block[blocks->at], call->length);
	call_submit(call, TIER_NEAR, written);
	return true;
}

void tier_blocks_write(struct tier_blocks *blocks)
{
	must(blocks->count > 0);
	for (size_t i = 0; i < blocks->count; i++) {
		blocks->block[i].generation = blocks->generation;
		blocks->block[i].number = blocks->first + i;
		tier_format_seal(&blocks->block[i]);
	}
	blocks->at = 0;
	blocks->error = 0;
	if (!write_on(blocks->tier->peer, blocks))
		peer_retry(blocks->tier->peer, write_on, blocks);
}

/* --- reading -------------------------------------------------------------------------------- */

static bool read_on(struct peer *peer, void *context);

/* Until one is not as it should be. If others follow it, it is damaged; else the row ends there, or
   its last append was torn, and what that said was not relied on. */
static void take(struct tier_blocks *blocks, const struct tier_block *block, uint64_t number)
{
	if (blocks->touch && number == 0)
		blocks->generation = block->generation;
	bool good = tier_format_block_good(block, blocks->generation, number);
	if (good && blocks->at < number)
		blocks->error = -EILSEQ;
	if (!good || blocks->at < number)
		return;
	for (uint32_t i = 0; i < block->count; i++)
		blocks->entry(blocks->tier, &block->entry[i]);
	blocks->at++;
}

static void arrived(struct call *call)
{
	struct tier_blocks *blocks = call->context;
	size_t count = call->length / TIER_BLOCK;
	uint64_t first = blocks->at;
	blocks->error = call->result == -ENOENT ? 0 : call->result;
	for (size_t i = 0; i < count && call->result == 0; i++) {
		struct tier_block block;
		call_get_bytes(call, (uint32_t)(i * TIER_BLOCK), &block, sizeof(block));
		take(blocks, &block, first + i);
	}
	bool more = call->result == 0 && blocks->at == first + count;
	call_end(call);
	if (more && blocks->touch && blocks->at >= XSEG_OBJECT_MAX / TIER_BLOCK)
		more = false;
	if (!more)
		blocks->done(blocks);
	else if (!read_on(blocks->tier->peer, blocks))
		peer_retry(blocks->tier->peer, read_on, blocks);
}

static bool read_on(struct peer *peer, void *context)
{
	struct tier_blocks *blocks = context;
	struct call *call;
	(void)peer;
	if (ask(blocks, XSEG_OP_READ, AT_ONCE, &call))
		return false;
	call_submit(call, TIER_NEAR, arrived);
	return true;
}

void tier_blocks_read(struct tier_blocks *blocks)
{
	blocks->at = 0;
	blocks->first = 0;
	if (!read_on(blocks->tier->peer, blocks))
		peer_retry(blocks->tier->peer, read_on, blocks);
}
