/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What can be asked of a tape store while it runs: XSEG_OP_CONTROL to its port, arg0 says what.
 * What takes long goes on between other requests.
 *
 * Units: bytes. Errors: -ENOENT: no such slot; -EEXIST: the cartridge has something on it, or is
 * one of the store's; -ENOSPC: there is no room to clean.
 */
#ifndef SKERRY_PEER_TAPE_H
#define SKERRY_PEER_TAPE_H

#include <base/must.h>
#include <stdint.h>

#define TAPE_CONTROL_LIST 0x20000u    /* out: tape_info[]; value: how many there are */
#define TAPE_CONTROL_LABEL 0x20001u   /* arg1: slot, with TAPE_OVERWRITE; value: its number */
#define TAPE_CONTROL_VERIFY 0x20002u  /* arg1: cartridge, 0: all; value: damaged blocks */
#define TAPE_CONTROL_CLEAN 0x20003u   /* the oldest full one; value: its number, 0: there is none */
#define TAPE_CONTROL_REBUILD 0x20004u /* the index, from the cartridges; all else waits */

#define TAPE_PLAN 1u		    /* arg1 of CLEAN: only says which */
#define TAPE_OVERWRITE (1ull << 32) /* whatever is on it */

enum { TAPE_INFO_BLANK, TAPE_INFO_ACTIVE, TAPE_INFO_FULL, TAPE_INFO_FREE };

struct tape_info {
	uint32_t number, slot;
	uint32_t state;	  /* TAPE_INFO_* */
	uint32_t use;	  /* how often it was begun anew */
	uint32_t missing; /* it is not in the library, or cannot be written */
	uint32_t loaded;  /* it is in the drive */
	uint64_t written, live;
	char barcode[40];
};
fixed(sizeof(struct tape_info) == 80);

#endif
