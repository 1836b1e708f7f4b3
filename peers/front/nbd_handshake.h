/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The handshake as a machine that eats bytes and writes bytes; what it cannot know itself it asks
 * of its owner. Pure: no socket, no call.
 *
 *   FLAGS --> OPTION <--> SKIP (data too long to look at)
 *               |  ^
 *               v  |
 *              ASKED --> ENDED (transmission, or closed)
 *
 * Units: bytes. Errors: asks for NBD_ASK_CLOSE with `why` set. Ownership: nbd_handshake_fini()
 * frees the output. Threads: one at a time.
 */
#ifndef SKERRY_FRONT_NBD_HANDSHAKE_H
#define SKERRY_FRONT_NBD_HANDSHAKE_H

#include <stddef.h>
#include <xseg/op.h>

#include "peers/front/nbd_command.h"

/* Longest option data that is looked at; more is skipped, far more ends the session. */
#define NBD_OPTION_MAX 65536u
#define NBD_OPTION_SKIP_MAX (32u << 20)
#define NBD_LIST_MAX (1u << 20)
#define NBD_REFUSAL_MAX 512u

#define NBD_ALLOCATION "base:allocation"
#define NBD_DIRTY "skerry:dirty:" /* and the name of a snapshot of the export's */
/* Behind a volume's name, which has no slash in it: to be opened for reading only. */
#define NBD_READ_ONLY_SUFFIX "/ro"

enum nbd_handshake_state {
	NBD_HANDSHAKE_FLAGS,
	NBD_HANDSHAKE_OPTION,
	NBD_HANDSHAKE_SKIP,
	NBD_HANDSHAKE_ASKED,
	NBD_HANDSHAKE_ENDED,
	NBD_HANDSHAKE_STATES
};

/* What the owner has to do next. */
enum nbd_ask {
	NBD_ASK_BYTES, /* feed more */
	NBD_ASK_LIST,  /* nbd_handshake_listed() for each export, then nbd_handshake_list_end() */
	NBD_ASK_INFO,  /* look `name` up, then nbd_handshake_found() */
	NBD_ASK_OPEN,  /* open `name`, then nbd_handshake_found() */
	NBD_ASK_SNAPSHOTS, /* of `meta_volume`, those of `dirty`: nbd_handshake_snapshot() each,
			      then nbd_handshake_snapshots_end() */
	NBD_ASK_TLS,	   /* send the output, run TLS, then nbd_handshake_secured() */
	NBD_ASK_SERVE,	   /* send the output; `session` holds from here on */
	NBD_ASK_CLOSE,	   /* send the output, then close */
};

/* Snapshots that queries of contexts name. */
struct nbd_option_dirty {
	bool all;
	unsigned count;
	char name[NBD_DIRTY_MAX + 1][VOLUME_NAME_LENGTH_MAX + 1]; /* the last is never used */
};

/* Bytes to be sent; grows as needed. */
struct nbd_bytes {
	uint8_t *data;
	size_t size, capacity;
};

struct nbd_handshake {
	/* the owner's settings */
	bool tls_offered, tls_required;
	bool read_only;
	bool patching; /* parts of sectors can be written */
	uint32_t payload_max;
	/* the machine's */
	uint8_t state;
	bool newstyle, no_zeroes, secure, structured;
	bool meta;	      /* base:allocation was set for meta_name */
	bool meta_matched;    /* the query under way asks for it */
	uint16_t infos;	      /* bits of enum nbd_info that were asked for */
	uint32_t option;      /* under way */
	uint32_t skip;	      /* bytes of it still to be thrown away */
	uint32_t listed;      /* exports told in this LIST */
	const char *why;      /* of NBD_ASK_CLOSE, for the log; NULL: a polite end */
	bool wants_read_only; /* the client will not write */
	char name[VOLUME_NAME_LENGTH_MAX + 1]; /* asked for; "" is the default export */
	char meta_name[VOLUME_NAME_LENGTH_MAX + 1];
	uint64_t meta_volume;
	struct nbd_option_dirty dirty; /* what the query under way asks for */
	unsigned set_count;	       /* those that were set for meta_name */
	struct nbd_dirty set[NBD_DIRTY_MAX];
	char holder[128]; /* -EBUSY: who has it, the owner's words; or "" */
	char refusal[NBD_REFUSAL_MAX];
	struct nbd_bytes out;
	struct nbd_session session;
};

/* The settings must be there; puts the greeting into the output. */
void nbd_handshake_init(struct nbd_handshake *h);
void nbd_handshake_fini(struct nbd_handshake *h);

/*
 * Takes what is complete in [data, data + size); *eaten says how much. Stops at the first question,
 * so call again with the rest once it is answered.
 */
enum nbd_ask nbd_handshake_eat(
	struct nbd_handshake *h, const uint8_t *data, size_t size, size_t *eaten);

void nbd_handshake_listed(struct nbd_handshake *h, const char *name);
enum nbd_ask nbd_handshake_list_end(struct nbd_handshake *h, int error);
/* error 0 and the volume, or -errno. */
enum nbd_ask nbd_handshake_found(
	struct nbd_handshake *h, int error, const struct xseg_volume_info *info);
void nbd_handshake_snapshot(struct nbd_handshake *h, const char *name, uint64_t id, uint64_t size);
enum nbd_ask nbd_handshake_snapshots_end(struct nbd_handshake *h, int error);
/* TLS runs: all that was agreed before is forgotten. */
void nbd_handshake_secured(struct nbd_handshake *h);

/* --- for the parts of the machine ------------------------------------------------ */

/* Room for `size` more bytes of output. */
uint8_t *nbd_option_add_bytes(struct nbd_bytes *bytes, size_t size);

/* Option data taken apart (nbd_option.c); each is 0 or -EINVAL. */
struct nbd_option_query {
	const uint8_t *name;
	uint32_t name_size;
	const uint8_t *rest; /* info requests, or context queries */
	uint32_t rest_size;
	uint32_t count;
};
int nbd_option_parse_info(const uint8_t *data, uint32_t size, struct nbd_option_query *query);
int nbd_option_parse_meta(const uint8_t *data, uint32_t size, struct nbd_option_query *query);
/* Bits of enum nbd_info. */
uint16_t nbd_option_infos(const struct nbd_option_query *query);
/* Does any of the queries name base:allocation? Listing knows wildcards, setting does not. */
bool nbd_option_selects_allocation(const struct nbd_option_query *query, bool listing);
/* Which snapshots they name. */
void nbd_option_dirty(
	const struct nbd_option_query *query, bool listing, struct nbd_option_dirty *dirty);
/* Takes NBD_READ_ONLY_SUFFIX off; was it there? */
bool nbd_option_wants_read_only(const uint8_t *name, uint32_t *size);
/* The name as a string, or -ENOENT when no export can have it. */
int nbd_option_name(const uint8_t *name, uint32_t size, char out[VOLUME_NAME_LENGTH_MAX + 1]);

/* One reply to option `option`, `size` bytes of data to be filled in where the result points. */
uint8_t *nbd_option_reply(struct nbd_bytes *out, uint32_t option, uint32_t type, uint32_t size);
/* The same with a text that people may read. */
void nbd_option_refuse(struct nbd_bytes *out, uint32_t option, uint32_t type, const char *text);
void nbd_option_reply_export(
	struct nbd_bytes *out, uint32_t option, const struct nbd_session *session);
void nbd_option_reply_blocks(
	struct nbd_bytes *out, uint32_t option, const struct nbd_session *session);
void nbd_option_reply_name(struct nbd_bytes *out, uint32_t option, const char *name);
void nbd_option_reply_context(struct nbd_bytes *out, uint32_t option, uint32_t context,
	const char *space, const char *name);

#define NBD_CONTEXT_ALLOCATION 1u /* id of base:allocation */
#define NBD_CONTEXT_DIRTY 2u	  /* of the first snapshot; the next ones follow */

#endif
