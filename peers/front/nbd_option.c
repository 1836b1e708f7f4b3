/* SPDX-License-Identifier: Apache-2.0 */
/* What lies inside options and their replies. */
#include <base/must.h>
#include <errno.h>
#include <stdlib.h>

#include "peers/front/nbd_handshake.h"

#define NBD_SKERRY "skerry:"

uint8_t *nbd_option_add_bytes(struct nbd_bytes *bytes, size_t size)
{
	if (bytes->size + size > bytes->capacity) {
		size_t capacity = (bytes->size + size) * 2;
		uint8_t *data = realloc(bytes->data, capacity);
		must(data != NULL);
		bytes->data = data;
		bytes->capacity = capacity;
	}
	uint8_t *at = bytes->data + bytes->size;
	bytes->size += size;
	return at;
}

/* The name and what is behind it: both kinds of data begin so. */
static int nbd_option_parse_name(
	const uint8_t *data, uint32_t size, uint32_t tail, struct nbd_option_query *query)
{
	if (size < 4 + tail)
		return -EINVAL;
	query->name_size = nbd_get32(data);
	if (query->name_size > size - 4 - tail)
		return -EINVAL;
	query->name = data + 4;
	query->rest = query->name + query->name_size + tail;
	query->rest_size = size - 4 - query->name_size - tail;
	return 0;
}

int nbd_option_parse_info(const uint8_t *data, uint32_t size, struct nbd_option_query *query)
{
	int error = nbd_option_parse_name(data, size, 2, query);
	if (error)
		return error;
	query->count = nbd_get16(query->rest - 2);
	return query->rest_size == query->count * 2 ? 0 : -EINVAL;
}

int nbd_option_parse_meta(const uint8_t *data, uint32_t size, struct nbd_option_query *query)
{
	int error = nbd_option_parse_name(data, size, 4, query);
	if (error)
		return error;
	query->count = nbd_get32(query->rest - 4);
	const uint8_t *at = query->rest;
	uint32_t left = query->rest_size;
	for (uint32_t i = 0; i < query->count; i++) {
		if (left < 4 || nbd_get32(at) > left - 4)
			return -EINVAL;
		uint32_t taken = 4 + nbd_get32(at);
		at += taken;
		left -= taken;
	}
	return left ? -EINVAL : 0;
}

uint16_t nbd_option_infos(const struct nbd_option_query *query)
{
	uint16_t infos = 0;
	for (uint32_t i = 0; i < query->count; i++) {
		uint16_t info = nbd_get16(query->rest + 2 * i);
		if (info <= NBD_INFO_BLOCK_SIZE)
			infos |= (uint16_t)(1u << info);
	}
	return infos;
}

bool nbd_option_selects_allocation(const struct nbd_option_query *query, bool listing)
{
	const uint8_t *at = query->rest;
	for (uint32_t i = 0; i < query->count; i++) {
		uint32_t size = nbd_get32(at);
		const uint8_t *text = at + 4;
		if (size == strlen(NBD_ALLOCATION) && !memcmp(text, NBD_ALLOCATION, size))
			return true;
		if (listing && size == strlen("base:") && !memcmp(text, "base:", size))
			return true;
		at = text + size;
	}
	return listing && !query->count;
}

/* One query; false: it is of no interest, or there are too many. */
static bool nbd_option_dirty_one(const uint8_t *text, uint32_t size, struct nbd_option_dirty *dirty)
{
	const uint32_t prefix = (uint32_t)strlen(NBD_DIRTY);
	char *name = dirty->name[dirty->count];
	bool begins = size >= prefix && !memcmp(text, NBD_DIRTY, prefix);
	if ((begins && size == prefix) ||
		(size == strlen(NBD_SKERRY) && !memcmp(text, NBD_SKERRY, size)))
		dirty->all = true;
	else if (begins && dirty->count < NBD_DIRTY_MAX &&
		 size - prefix <= VOLUME_NAME_LENGTH_MAX &&
		 !memchr(text + prefix, 0, size - prefix)) {
		memcpy(name, text + prefix, size - prefix);
		name[size - prefix] = 0;
		return name_check_volume(name);
	}
	return false;
}

void nbd_option_dirty(
	const struct nbd_option_query *query, bool listing, struct nbd_option_dirty *dirty)
{
	const uint8_t *at = query->rest;
	dirty->count = 0;
	dirty->all = listing && !query->count;
	for (uint32_t i = 0; i < query->count; i++) {
		uint32_t size = nbd_get32(at);
		dirty->count += nbd_option_dirty_one(at + 4, size, dirty);
		at += 4 + size;
	}
}

bool nbd_option_wants_read_only(const uint8_t *name, uint32_t *size)
{
	const uint32_t suffix = (uint32_t)strlen(NBD_READ_ONLY_SUFFIX);
	if (*size < suffix || memcmp(name + *size - suffix, NBD_READ_ONLY_SUFFIX, suffix))
		return false;
	*size -= suffix;
	return true;
}

int nbd_option_name(const uint8_t *name, uint32_t size, char out[VOLUME_NAME_LENGTH_MAX + 1])
{
	if (size > VOLUME_NAME_LENGTH_MAX || memchr(name, 0, size))
		return -ENOENT;
	memcpy(out, name, size);
	out[size] = 0;
	return !size || name_check_volume(out) ? 0 : -ENOENT;
}

uint8_t *nbd_option_reply(struct nbd_bytes *out, uint32_t option, uint32_t type, uint32_t size)
{
	uint8_t *at = nbd_option_add_bytes(out, 20 + size);
	at = nbd_put64(at, NBD_OPTION_REPLY_MAGIC);
	at = nbd_put32(at, option);
	at = nbd_put32(at, type);
	return nbd_put32(at, size);
}

void nbd_option_refuse(struct nbd_bytes *out, uint32_t option, uint32_t type, const char *text)
{
	uint32_t size = (uint32_t)strlen(text);
	memcpy(nbd_option_reply(out, option, type, size), text, size);
}

void nbd_option_reply_export(
	struct nbd_bytes *out, uint32_t option, const struct nbd_session *session)
{
	uint8_t *at = nbd_option_reply(out, option, NBD_REP_INFO, 12);
	nbd_put16(nbd_put64(nbd_put16(at, NBD_INFO_EXPORT), session->size), session->flags);
}

void nbd_option_reply_blocks(
	struct nbd_bytes *out, uint32_t option, const struct nbd_session *session)
{
	uint8_t *at = nbd_option_reply(out, option, NBD_REP_INFO, 14);
	at = nbd_put32(nbd_put16(at, NBD_INFO_BLOCK_SIZE), NBD_BLOCK_MIN);
	nbd_put32(nbd_put32(at, NBD_BLOCK_PREFERRED), session->payload_max);
}

void nbd_option_reply_name(struct nbd_bytes *out, uint32_t option, const char *name)
{
	uint32_t size = (uint32_t)strlen(name);
	uint8_t *at = nbd_option_reply(out, option, NBD_REP_INFO, 2 + size);
	memcpy(nbd_put16(at, NBD_INFO_NAME), name, size);
}

void nbd_option_reply_context(struct nbd_bytes *out, uint32_t option, uint32_t context,
	const char *space, const char *name)
{
	size_t first = strlen(space), second = strlen(name);
	uint8_t *at =
		nbd_option_reply(out, option, NBD_REP_META_CONTEXT, (uint32_t)(4 + first + second));
	at = nbd_put32(at, context);
	memcpy(at, space, first);
	memcpy(at + first, name, second);
}
