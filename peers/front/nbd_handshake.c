/* SPDX-License-Identifier: Apache-2.0 */
/* Fixed newstyle negotiation: greeting, options, and the way into transmission. */
#include "peers/front/nbd_handshake.h"

#include <base/must.h>
#include <base/sm.h>
#include <errno.h>
#include <peer/map.h>
#include <stdio.h>
#include <stdlib.h>

static const struct sm_state nbd_handshake_table[NBD_HANDSHAKE_STATES] = {
	[NBD_HANDSHAKE_FLAGS] = {"flags", SM(NBD_HANDSHAKE_OPTION) | SM(NBD_HANDSHAKE_ENDED)},
	[NBD_HANDSHAKE_OPTION] = {"option",
		SM(NBD_HANDSHAKE_SKIP) | SM(NBD_HANDSHAKE_ASKED) | SM(NBD_HANDSHAKE_ENDED)},
	[NBD_HANDSHAKE_SKIP] = {"skip", SM(NBD_HANDSHAKE_OPTION) | SM(NBD_HANDSHAKE_ENDED)},
	[NBD_HANDSHAKE_ASKED] = {"asked", SM(NBD_HANDSHAKE_OPTION) | SM(NBD_HANDSHAKE_ENDED)},
	[NBD_HANDSHAKE_ENDED] = {"ended", 0},
};

static void nbd_handshake_move(struct nbd_handshake *h, enum nbd_handshake_state to)
{
	sm_move(nbd_handshake_table, &h->state, to);
}

void nbd_handshake_init(struct nbd_handshake *h)
{
	must(h->payload_max > 0);
	h->state = NBD_HANDSHAKE_FLAGS;
	uint8_t *at = nbd_option_add_bytes(&h->out, 18);
	at = nbd_put64(nbd_put64(at, NBD_MAGIC), NBD_OPTION_MAGIC);
	nbd_put16(at, NBD_FLAG_FIXED_NEWSTYLE | NBD_FLAG_NO_ZEROES);
}

void nbd_handshake_fini(struct nbd_handshake *h)
{
	free(h->out.data);
	h->out = (struct nbd_bytes){0};
}

static enum nbd_ask nbd_handshake_end(struct nbd_handshake *h, const char *why)
{
	nbd_handshake_move(h, NBD_HANDSHAKE_ENDED);
	h->why = why;
	return NBD_ASK_CLOSE;
}

static enum nbd_ask nbd_handshake_ask(struct nbd_handshake *h, enum nbd_ask what)
{
	nbd_handshake_move(h, NBD_HANDSHAKE_ASKED);
	return what;
}

static enum nbd_ask nbd_handshake_refuse(struct nbd_handshake *h, uint32_t type, const char *text)
{
	if (h->option == NBD_OPT_EXPORT_NAME)
		return nbd_handshake_end(h, text); /* it has no way to say no */
	nbd_option_refuse(&h->out, h->option, type, text);
	return NBD_ASK_BYTES;
}

static enum nbd_ask nbd_handshake_ack(struct nbd_handshake *h)
{
	nbd_option_reply(&h->out, h->option, NBD_REP_ACK, 0);
	return NBD_ASK_BYTES;
}

static void nbd_handshake_unset(struct nbd_handshake *h)
{
	h->meta = false;
	h->set_count = 0;
}

/* --- the options ----------------------------------------------------------------- */

static enum nbd_ask nbd_handshake_name(
	struct nbd_handshake *h, const uint8_t *name, uint32_t size, enum nbd_ask ask)
{
	h->wants_read_only = nbd_option_wants_read_only(name, &size);
	h->holder[0] = 0;
	if (nbd_option_name(name, size, h->name))
		return nbd_handshake_refuse(h, NBD_REP_ERR_UNKNOWN, "no export can have that name");
	return nbd_handshake_ask(h, ask);
}

static enum nbd_ask nbd_handshake_info(struct nbd_handshake *h, const uint8_t *data, uint32_t size)
{
	struct nbd_option_query query;
	if (nbd_option_parse_info(data, size, &query))
		return nbd_handshake_refuse(
			h, NBD_REP_ERR_INVALID, "lengths inside the option do not fit");
	h->infos = nbd_option_infos(&query);
	return nbd_handshake_name(h, query.name, query.name_size,
		h->option == NBD_OPT_GO ? NBD_ASK_OPEN : NBD_ASK_INFO);
}

static enum nbd_ask nbd_handshake_meta(struct nbd_handshake *h, const uint8_t *data, uint32_t size)
{
	bool listing = h->option == NBD_OPT_LIST_META_CONTEXT;
	struct nbd_option_query query;
	if (!listing)
		nbd_handshake_unset(h); /* also when this one fails */
	if (!h->structured)
		return nbd_handshake_refuse(
			h, NBD_REP_ERR_INVALID, "ask for structured replies first");
	if (nbd_option_parse_meta(data, size, &query))
		return nbd_handshake_refuse(
			h, NBD_REP_ERR_INVALID, "lengths inside the option do not fit");
	h->meta_matched = nbd_option_selects_allocation(&query, listing);
	nbd_option_dirty(&query, listing, &h->dirty);
	return nbd_handshake_name(h, query.name, query.name_size, NBD_ASK_INFO);
}

static enum nbd_ask nbd_handshake_starttls(struct nbd_handshake *h)
{
	if (h->secure)
		return nbd_handshake_refuse(h, NBD_REP_ERR_INVALID, "TLS runs already");
	if (!h->tls_offered)
		return nbd_handshake_refuse(
			h, NBD_REP_ERR_POLICY, "this server has no certificate");
	nbd_handshake_ack(h);
	return nbd_handshake_ask(h, NBD_ASK_TLS);
}

static enum nbd_ask nbd_handshake_structured(struct nbd_handshake *h)
{
	h->structured = true;
	return nbd_handshake_ack(h);
}

static enum nbd_ask nbd_handshake_list(struct nbd_handshake *h)
{
	h->listed = 0;
	return nbd_handshake_ask(h, NBD_ASK_LIST);
}

static enum nbd_ask nbd_handshake_abort(struct nbd_handshake *h)
{
	nbd_handshake_ack(h);
	return nbd_handshake_end(h, NULL);
}

/* Options that take no data. */
static enum nbd_ask nbd_handshake_bare(struct nbd_handshake *h, uint32_t size)
{
	if (size)
		return nbd_handshake_refuse(h, NBD_REP_ERR_INVALID, "this option takes no data");
	switch (h->option) {
	case NBD_OPT_STARTTLS: return nbd_handshake_starttls(h);
	case NBD_OPT_STRUCTURED_REPLY: return nbd_handshake_structured(h);
	default: return nbd_handshake_list(h);
	}
}

static enum nbd_ask nbd_handshake_option(
	struct nbd_handshake *h, const uint8_t *data, uint32_t size)
{
	if (!h->newstyle && h->option != NBD_OPT_EXPORT_NAME)
		return nbd_handshake_end(h, "options from a client that is not 'fixed newstyle'");
	if (h->option == NBD_OPT_ABORT)
		return nbd_handshake_abort(h);
	if (h->tls_required && !h->secure && h->option != NBD_OPT_STARTTLS)
		return nbd_handshake_refuse(h, NBD_REP_ERR_TLS_REQD, "start TLS first");
	switch (h->option) {
	case NBD_OPT_EXPORT_NAME: return nbd_handshake_name(h, data, size, NBD_ASK_OPEN);
	case NBD_OPT_LIST:
	case NBD_OPT_STARTTLS:
	case NBD_OPT_STRUCTURED_REPLY: return nbd_handshake_bare(h, size);
	case NBD_OPT_INFO:
	case NBD_OPT_GO: return nbd_handshake_info(h, data, size);
	case NBD_OPT_LIST_META_CONTEXT:
	case NBD_OPT_SET_META_CONTEXT: return nbd_handshake_meta(h, data, size);
	default:
		return nbd_handshake_refuse(
			h, NBD_REP_ERR_UNSUP, "this server does not know that option");
	}
}

/* --- the stream ------------------------------------------------------------------ */

static enum nbd_ask nbd_handshake_flags(struct nbd_handshake *h, const uint8_t *data)
{
	uint32_t flags = nbd_get32(data);
	if (flags & ~(uint32_t)(NBD_FLAG_FIXED_NEWSTYLE | NBD_FLAG_NO_ZEROES))
		return nbd_handshake_end(h, "client flags that nobody defined");
	h->newstyle = flags & NBD_FLAG_FIXED_NEWSTYLE;
	h->no_zeroes = flags & NBD_FLAG_NO_ZEROES;
	nbd_handshake_move(h, NBD_HANDSHAKE_OPTION);
	return NBD_ASK_BYTES;
}

/* Too long to look at: thrown away as it comes, answered in its place. */
static enum nbd_ask nbd_handshake_oversize(struct nbd_handshake *h, uint32_t size)
{
	if (size > NBD_OPTION_SKIP_MAX || h->option == NBD_OPT_EXPORT_NAME)
		return nbd_handshake_end(h, "an option of more data than any has");
	h->skip = size;
	nbd_handshake_move(h, NBD_HANDSHAKE_SKIP);
	return NBD_ASK_BYTES;
}

static enum nbd_ask nbd_handshake_skip(struct nbd_handshake *h, size_t size, size_t *eaten)
{
	*eaten = size < h->skip ? size : h->skip;
	h->skip -= (uint32_t)*eaten;
	if (h->skip)
		return NBD_ASK_BYTES;
	if (h->option == NBD_OPT_SET_META_CONTEXT)
		nbd_handshake_unset(h);
	nbd_handshake_move(h, NBD_HANDSHAKE_OPTION);
	bool closed = h->tls_required && !h->secure;
	return nbd_handshake_refuse(h, closed ? NBD_REP_ERR_TLS_REQD : NBD_REP_ERR_TOO_BIG,
		closed ? "start TLS first" : "too much data for an option");
}

static enum nbd_ask nbd_handshake_header(
	struct nbd_handshake *h, const uint8_t *data, size_t size, size_t *eaten)
{
	if (size >= 8 && nbd_get64(data) != NBD_OPTION_MAGIC)
		return nbd_handshake_end(h, "something else where an option should begin");
	if (size < NBD_OPTION_HEADER)
		return NBD_ASK_BYTES;
	uint32_t length = nbd_get32(data + 12);
	h->option = nbd_get32(data + 8);
	if (length > NBD_OPTION_MAX) {
		*eaten = NBD_OPTION_HEADER;
		return nbd_handshake_oversize(h, length);
	}
	if (size - NBD_OPTION_HEADER < length)
		return NBD_ASK_BYTES;
	*eaten = NBD_OPTION_HEADER + length;
	return nbd_handshake_option(h, data + NBD_OPTION_HEADER, length);
}

static enum nbd_ask nbd_handshake_step(
	struct nbd_handshake *h, const uint8_t *data, size_t size, size_t *eaten)
{
	*eaten = 0;
	switch (h->state) {
	case NBD_HANDSHAKE_FLAGS:
		if (size < 4)
			return NBD_ASK_BYTES;
		*eaten = 4;
		return nbd_handshake_flags(h, data);
	case NBD_HANDSHAKE_SKIP: return nbd_handshake_skip(h, size, eaten);
	default:
		must(h->state == NBD_HANDSHAKE_OPTION);
		return nbd_handshake_header(h, data, size, eaten);
	}
}

enum nbd_ask nbd_handshake_eat(
	struct nbd_handshake *h, const uint8_t *data, size_t size, size_t *eaten)
{
	enum nbd_ask ask = NBD_ASK_BYTES;
	size_t step;
	*eaten = 0;
	do {
		ask = nbd_handshake_step(h, data + *eaten, size - *eaten, &step);
		*eaten += step;
	} while (ask == NBD_ASK_BYTES && step);
	return ask;
}

/* --- answers --------------------------------------------------------------------- */

void nbd_handshake_listed(struct nbd_handshake *h, const char *name)
{
	uint32_t size = (uint32_t)strlen(name);
	if (h->out.size > NBD_LIST_MAX)
		return;
	memcpy(nbd_put32(nbd_option_reply(&h->out, h->option, NBD_REP_SERVER, 4 + size), size),
		name, size);
	h->listed++;
}

enum nbd_ask nbd_handshake_list_end(struct nbd_handshake *h, int error)
{
	nbd_handshake_move(h, NBD_HANDSHAKE_OPTION);
	if (error)
		return nbd_handshake_refuse(
			h, NBD_REP_ERR_PLATFORM, "the list of exports cannot be read now");
	if (h->out.size > NBD_LIST_MAX)
		return nbd_handshake_refuse(h, NBD_REP_ERR_TOO_BIG, "too many exports to list");
	return nbd_handshake_ack(h);
}

static uint16_t nbd_handshake_export_flags(
	const struct nbd_handshake *h, const struct xseg_volume_info *info)
{
	unsigned flags = NBD_FLAG_HAS_FLAGS | NBD_FLAG_SEND_FLUSH | NBD_FLAG_SEND_FUA |
			 NBD_FLAG_CAN_MULTI_CONN | NBD_FLAG_SEND_CACHE;
	if (h->read_only || info->flags & (XSEG_VOLUME_READ_ONLY | XSEG_VOLUME_SNAPSHOT))
		flags |= NBD_FLAG_READ_ONLY;
	else
		flags |= NBD_FLAG_SEND_TRIM | NBD_FLAG_SEND_WRITE_ZEROES | NBD_FLAG_SEND_FAST_ZERO;
	if (h->structured)
		flags |= NBD_FLAG_SEND_DF;
	return (uint16_t)flags;
}

static struct nbd_session nbd_handshake_session(
	const struct nbd_handshake *h, const struct xseg_volume_info *info)
{
	struct nbd_session session = {
		.volume = info->id,
		.term = info->flags & XSEG_VOLUME_READ_ONLY ? 0 : info->term,
		.size = info->size,
		.payload_max = h->payload_max,
		.flags = nbd_handshake_export_flags(h, info),
		.structured = h->structured,
		.meta = h->meta && !strcmp(h->meta_name, info->name),
		.blocks_known = h->option == NBD_OPT_GO && h->infos & 1u << NBD_INFO_BLOCK_SIZE,
		.patching = h->patching,
	};
	if (h->set_count && h->meta_volume == info->id && !strcmp(h->meta_name, info->name)) {
		session.object_size = info->object_size;
		session.dirty_count = (uint8_t)h->set_count;
		memcpy(session.dirty, h->set, sizeof(session.dirty));
	}
	return session;
}

static void nbd_handshake_tell(struct nbd_handshake *h, const struct xseg_volume_info *info)
{
	nbd_option_reply_export(&h->out, h->option, &h->session);
	if (h->infos & 1u << NBD_INFO_NAME)
		nbd_option_reply_name(&h->out, h->option, info->name);
	if (h->infos & 1u << NBD_INFO_BLOCK_SIZE)
		nbd_option_reply_blocks(&h->out, h->option, &h->session);
	nbd_handshake_ack(h);
}

static void nbd_handshake_tell_old(struct nbd_handshake *h)
{
	size_t size = 10 + (h->no_zeroes ? 0 : 124);
	uint8_t *at = nbd_option_add_bytes(&h->out, size);
	memset(at, 0, size);
	nbd_put16(nbd_put64(at, h->session.size), h->session.flags);
}

static enum nbd_ask nbd_handshake_contexts(
	struct nbd_handshake *h, const struct xseg_volume_info *info)
{
	bool setting = h->option == NBD_OPT_SET_META_CONTEXT;
	if (setting) {
		h->meta = h->meta_matched;
		strcpy(h->meta_name, info->name);
	}
	h->meta_volume = info->id;
	if (h->meta_matched)
		nbd_option_reply_context(&h->out, h->option, setting ? NBD_CONTEXT_ALLOCATION : 0,
			NBD_ALLOCATION, "");
	bool maps = !(info->flags & XSEG_VOLUME_FIXED) && name_check_volume(info->name) &&
		    info->object_size >= MAP_CLUSTER;
	if (maps && (h->dirty.all || h->dirty.count))
		return nbd_handshake_ask(h, NBD_ASK_SNAPSHOTS);
	return nbd_handshake_ack(h);
}

void nbd_handshake_snapshot(struct nbd_handshake *h, const char *name, uint64_t id, uint64_t size)
{
	bool setting = h->option == NBD_OPT_SET_META_CONTEXT;
	for (unsigned i = 0; setting && i < h->set_count; i++)
		if (h->set[i].snapshot == id)
			return;
	if (setting ? h->set_count == NBD_DIRTY_MAX : h->out.size > NBD_LIST_MAX)
		return;
	nbd_option_reply_context(&h->out, h->option, setting ? NBD_CONTEXT_DIRTY + h->set_count : 0,
		NBD_DIRTY, name);
	if (setting)
		h->set[h->set_count++] = (struct nbd_dirty){.snapshot = id, .size = size};
}

enum nbd_ask nbd_handshake_snapshots_end(struct nbd_handshake *h, int error)
{
	nbd_handshake_move(h, NBD_HANDSHAKE_OPTION);
	if (!error)
		return nbd_handshake_ack(h);
	if (h->option == NBD_OPT_SET_META_CONTEXT)
		nbd_handshake_unset(h);
	return nbd_handshake_refuse(
		h, NBD_REP_ERR_PLATFORM, "the list of snapshots cannot be read now");
}

/* Somebody has it. Whoever only reads need not wait until he is done. */
static enum nbd_ask nbd_handshake_busy(struct nbd_handshake *h)
{
	if (!h->holder[0])
		return nbd_handshake_refuse(h, NBD_REP_ERR_POLICY, "the export is busy");
	snprintf(h->refusal, sizeof(h->refusal),
		"the export is open for writing on %s; as '%s" NBD_READ_ONLY_SUFFIX
		"' it can be read",
		h->holder, h->name);
	return nbd_handshake_refuse(h, NBD_REP_ERR_POLICY, h->refusal);
}

static enum nbd_ask nbd_handshake_missing(struct nbd_handshake *h, int error)
{
	switch (-error) {
	case ENOENT: return nbd_handshake_refuse(h, NBD_REP_ERR_UNKNOWN, "there is no such export");
	case EBUSY: return nbd_handshake_busy(h);
	case EAGAIN: return nbd_handshake_refuse(h, NBD_REP_ERR_POLICY, "the export is busy");
	case ESHUTDOWN:
		return nbd_handshake_refuse(h, NBD_REP_ERR_SHUTDOWN, "the server is stopping");
	default:
		return nbd_handshake_refuse(
			h, NBD_REP_ERR_UNKNOWN, "the export cannot be reached now");
	}
}

enum nbd_ask nbd_handshake_found(
	struct nbd_handshake *h, int error, const struct xseg_volume_info *info)
{
	nbd_handshake_move(h, NBD_HANDSHAKE_OPTION);
	if (error)
		return nbd_handshake_missing(h, error);
	if (h->option == NBD_OPT_LIST_META_CONTEXT || h->option == NBD_OPT_SET_META_CONTEXT)
		return nbd_handshake_contexts(h, info);
	h->session = nbd_handshake_session(h, info);
	if (h->option == NBD_OPT_EXPORT_NAME)
		nbd_handshake_tell_old(h);
	else
		nbd_handshake_tell(h, info);
	if (h->option == NBD_OPT_INFO)
		return NBD_ASK_BYTES;
	nbd_handshake_move(h, NBD_HANDSHAKE_ENDED);
	return NBD_ASK_SERVE;
}

void nbd_handshake_secured(struct nbd_handshake *h)
{
	nbd_handshake_move(h, NBD_HANDSHAKE_OPTION);
	h->secure = true;
	h->structured = false;
	nbd_handshake_unset(h);
}
