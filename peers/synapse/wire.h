/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a bridge speaks: frames, each a header of 80 bytes and then data; byte by byte in
 * docs/format-bridge.md.
 *
 * Units: bytes. Errors: 0 or -errno; -EPROTO: no frame of ours, or one that nobody may send.
 * Ownership: caller's buffers. Threads: any. Blocking: none.
 */
#ifndef SKERRY_SYNAPSE_WIRE_H
#define SKERRY_SYNAPSE_WIRE_H

#include <stdbool.h>
#include <stdint.h>
#include <xseg/op.h>

#define WIRE_MAGIC 0x31594b53u /* "SKY1" */
#define WIRE_VERSION 1u
#define WIRE_HEADER 80u
#define WIRE_CONNS 2u	  /* of a session, see enum wire_class */
#define WIRE_WINDOW 1024u /* requests from the lowest that is not answered, at most */
#define WIRE_HELLO 192u
#define WIRE_WELCOME 48u
#define WIRE_REFUSAL 256u
#define WIRE_NAME 64u
#define WIRE_CONTROL_MAX 65536u /* data of what is neither READ nor WRITE */

enum wire_type {
	WIRE_TYPE_HELLO = 1, /* importer, first */
	WIRE_TYPE_WELCOME,   /* exporter: from here on requests */
	WIRE_TYPE_REFUSE,    /* exporter: why not; the connection ends */
	WIRE_TYPE_REQUEST,
	WIRE_TYPE_ANSWER,
	WIRE_TYPE_PING, /* importer */
	WIRE_TYPE_PONG,
	WIRE_TYPE_COUNT
};

/* A small request never waits behind the data of a large one. */
enum wire_class { WIRE_URGENT, WIRE_BULK };
#define WIRE_URGENT_MAX 16384u
#define WIRE_F_PACKED 0x8000u /* beside XSEG_F_* */

struct wire_frame {
	enum wire_type type;
	uint8_t op;	   /* REQUEST: enum xseg_op */
	uint16_t flags;	   /* REQUEST: XSEG_F_* */
	uint64_t sequence; /* REQUEST, its ANSWER; PING, its PONG */
	struct xseg_key key;
	uint64_t offset;
	uint32_t length; /* ANSWER: answer_length */
	uint32_t data;	 /* bytes that follow */
	uint32_t packed; /* in so many; 0: as they are. Of WRITE and of ANSWERs */
	uint64_t value;	 /* REQUEST: arg0; ANSWER: value */
	uint64_t arg1;
	uint32_t room;	   /* REQUEST: for data of the answer */
	int32_t result;	   /* ANSWER, REFUSE: 0 or -errno of Linux */
	uint32_t data_crc; /* crc32c of the data; 0 where it is not checked */
	uint32_t behind;   /* REQUEST: sequence - the lowest that is not answered */
};

/* Who speaks: the writer is a segment, the session one lane of an importing peer while its process
   lives; what the lanes of one life have in common are the first bytes of their sessions. */
#define WIRE_LIFE 8u
struct wire_hello {
	uint16_t version_min, version_max;
	uint8_t conn; /* enum wire_class */
	uint8_t checksums;
	uint8_t packs; /* what it can unpack: 1 << enum pack_method */
	uint16_t lane;
	uint8_t writer[16];  /* uuid of the segment */
	uint8_t session[16]; /* random */
	uint64_t generation; /* grows with each attempt of the session */
	char importer[WIRE_NAME], port[WIRE_NAME];
};

struct wire_welcome {
	uint16_t version;
	uint8_t checksums; /* both sides check data */
	uint8_t packs;	   /* both can */
	uint8_t known;	   /* the session is the one of before, what it had asked is not lost */
	uint32_t window;   /* requests on their way at most */
	uint64_t bytes;	   /* of data on their way at most, both directions */
};

void wire_pack(const struct wire_frame *frame, uint8_t out[WIRE_HEADER]);
/* -EPROTO, with the reason in *why. */
int wire_unpack(const uint8_t in[WIRE_HEADER], struct wire_frame *frame, const char **why);
void wire_pack_hello(const struct wire_hello *hello, uint8_t out[WIRE_HELLO]);
int wire_unpack_hello(const uint8_t in[WIRE_HELLO], struct wire_hello *hello);
void wire_pack_welcome(const struct wire_welcome *welcome, uint8_t out[WIRE_WELCOME]);
int wire_unpack_welcome(const uint8_t in[WIRE_WELCOME], struct wire_welcome *welcome);

/* Which data of this operation go, and come back. `size`: bytes of data that the request has. */
uint32_t wire_data_of(enum xseg_op op, uint32_t length, uint64_t arg1, uint32_t size);
uint32_t wire_room_of(enum xseg_op op, uint32_t length, uint64_t arg1, uint32_t size);
/* Done twice it has the same effect and the same answer, so its answer need not be kept. */
bool wire_is_repeatable(enum xseg_op op, uint64_t arg1);
enum wire_class wire_class_of(uint32_t data, uint32_t room);

#endif
