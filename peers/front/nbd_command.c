/* SPDX-License-Identifier: Apache-2.0 */
/* Requests off the wire, held against what was agreed in the handshake. */
#include "peers/front/nbd_command.h"

#include <errno.h>

/* Which flags a command may carry; FUA is fine with all of them. */
static const struct {
	const char *name;
	uint16_t flags;
} nbd_commands[NBD_CMD_COUNT] = {
	[NBD_CMD_READ] = {"read", NBD_CMD_FLAG_DF},
	[NBD_CMD_WRITE] = {"write", 0},
	[NBD_CMD_DISC] = {"disc", 0},
	[NBD_CMD_FLUSH] = {"flush", 0},
	[NBD_CMD_TRIM] = {"trim", 0},
	[NBD_CMD_CACHE] = {"cache", 0},
	[NBD_CMD_WRITE_ZEROES] = {"write-zeroes", NBD_CMD_FLAG_NO_HOLE | NBD_CMD_FLAG_FAST_ZERO},
	[NBD_CMD_BLOCK_STATUS] = {"block-status", NBD_CMD_FLAG_REQ_ONE},
};

int nbd_command_parse(const uint8_t wire[NBD_REQUEST_HEADER], struct nbd_command *command)
{
	if (nbd_get32(wire) != NBD_REQUEST_MAGIC)
		return -EPROTO;
	command->flags = nbd_get16(wire + 4);
	command->type = nbd_get16(wire + 6);
	memcpy(&command->cookie, wire + 8, 8); /* opaque: goes back as it came */
	command->offset = nbd_get64(wire + 16);
	command->length = nbd_get32(wire + 24);
	return 0;
}

static bool nbd_flags_known(const struct nbd_session *session, const struct nbd_command *command)
{
	unsigned known = NBD_CMD_FLAG_FUA | nbd_commands[command->type].flags;
	if (!(session->flags & NBD_FLAG_SEND_DF))
		known &= ~(unsigned)NBD_CMD_FLAG_DF;
	if (!(session->flags & NBD_FLAG_SEND_FAST_ZERO))
		known &= ~(unsigned)NBD_CMD_FLAG_FAST_ZERO;
	return !(command->flags & ~known);
}

static enum nbd_error nbd_range_check(
	const struct nbd_session *session, const struct nbd_command *command)
{
	bool writes = command->type == NBD_CMD_WRITE || command->type == NBD_CMD_WRITE_ZEROES;
	if (command->offset > session->size || command->length > session->size - command->offset)
		return writes ? NBD_ENOSPC : NBD_EINVAL;
	uint64_t odd = (command->offset | command->length) % NBD_BLOCK_MIN;
	if (odd && (session->blocks_known || (writes && !session->patching)))
		return NBD_EINVAL;
	return NBD_OK;
}

enum nbd_error nbd_command_check(
	const struct nbd_session *session, const struct nbd_command *command)
{
	if (command->type >= NBD_CMD_COUNT || !nbd_flags_known(session, command))
		return NBD_EINVAL;
	if (session->flags & NBD_FLAG_READ_ONLY && nbd_command_alters(command->type))
		return NBD_EPERM;
	if (command->type == NBD_CMD_FLUSH || command->type == NBD_CMD_DISC)
		return NBD_OK;
	if (command->type == NBD_CMD_READ && command->length > session->payload_max)
		return session->structured ? NBD_EOVERFLOW : NBD_EINVAL;
	if (command->type == NBD_CMD_WRITE && command->length > session->payload_max)
		return NBD_EINVAL;
	bool contexts = session->meta || session->dirty_count;
	if (command->type == NBD_CMD_BLOCK_STATUS && (!contexts || !command->length))
		return NBD_EINVAL;
	return nbd_range_check(session, command);
}

enum nbd_error nbd_command_error(int error)
{
	switch (-error) {
	case 0: return NBD_OK;
	case EPERM:
	case EACCES:
	case EROFS: return NBD_EPERM;
	case ENOMEM: return NBD_ENOMEM;
	case EINVAL: return NBD_EINVAL;
	case ENOSPC:
	case EDQUOT:
	case EFBIG: return NBD_ENOSPC;
	case EOPNOTSUPP: return NBD_ENOTSUP;
	case ESHUTDOWN: return NBD_ESHUTDOWN;
	default: return NBD_EIO;
	}
}

const char *nbd_command_name(unsigned type)
{
	return type < NBD_CMD_COUNT ? nbd_commands[type].name : "unknown";
}
