/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a program's region and its front say to each other, over a UNIX socket: messages of one
 * size, native byte order (one host). A program asks, each question is answered, in order; the
 * front never speaks first.
 *
 *   OPEN    offset, size (0: to the end), arg = flags of region_open(), text = the volume's name,
 *           token 0, or of before: to a front that was started anew.
 *           Answer: size, token, arg = size of the volume; the descriptor of the memory
 *   ARM     arg = where the program has mapped the memory; the descriptor of its userfaultfd, which
 *           has that range registered. From the answer on faults are the front's
 *   SYNC    offset, size. The answer: durable
 *   FETCH   offset, size. The answer: it has been noted
 *   ADVISE  offset, size, arg = enum region_advice
 *   STATUS  Answer: text = struct region_status
 *   LEAVE   the program has unmapped it
 *
 * The answer has the question's type and serial, and an error: 0 or -errno, with a sentence for the
 * user in text when OPEN is refused.
 */
#ifndef SKERRY_XSEG_REGION_WIRE_H
#define SKERRY_XSEG_REGION_WIRE_H

#include <base/must.h>
#include <base/name.h>
#include <stdint.h>

#define REGION_WIRE_MAGIC 0x6e676572u /* "regn" */
#define REGION_WIRE_VERSION 1u
#define REGION_WIRE_SOCKET "region" /* in the segment's run folder, unless told otherwise */

enum region_wire_type {
	REGION_WIRE_NONE,
	REGION_WIRE_OPEN,
	REGION_WIRE_ARM,
	REGION_WIRE_SYNC,
	REGION_WIRE_FETCH,
	REGION_WIRE_ADVISE,
	REGION_WIRE_STATUS,
	REGION_WIRE_LEAVE,
	REGION_WIRE_TYPES
};

struct region_wire {
	uint32_t magic;
	uint16_t version, type;
	uint32_t serial;
	int32_t error;
	uint64_t offset, size, arg, token;
	char text[VOLUME_NAME_LENGTH_MAX + 1];
};
fixed(sizeof(struct region_wire) == 48 + VOLUME_NAME_LENGTH_MAX + 1);

/* What the program asks of userfaultfd; its range is registered for missing pages, and a shared
   one for minor faults and write protection, too. */
#define REGION_WIRE_MODE_CONTINUE_WP 2u /* UFFDIO_CONTINUE_MODE_WP, Linux 6.4 */

#endif
