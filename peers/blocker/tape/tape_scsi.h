/* SPDX-License-Identifier: Apache-2.0 */
/*
 * SCSI commands over iSCSI, and what their answers mean in words.
 *
 * Errors, threads, blocking: as in tape_drive.h.
 */
#ifndef SKERRY_BLOCKER_TAPE_SCSI_H
#define SKERRY_BLOCKER_TAPE_SCSI_H

#include <iscsi/iscsi.h>
#include <iscsi/scsi-lowlevel.h>

#include "peers/blocker/tape/tape_drive.h"

/* What a CHECK CONDITION told (SPC-4, fixed format). */
struct tape_sense {
	uint8_t key, asc, ascq;
	bool mark, end, length; /* FILEMARK, EOM, ILI */
	int32_t information;
};

struct tape_scsi {
	struct iscsi_context *context;
	int lun;
	struct tape_sense sense; /* of the last command */
};

/* bytes: as they come. false: it is no such sense. */
bool tape_scsi_sense(struct tape_sense *sense, const uint8_t *bytes, size_t size);
/* 0, TAPE_MARK, TAPE_END or -errno, and then a sentence. */
int tape_scsi_result(const struct tape_sense *sense, char *why, size_t why_size);

int tape_scsi_open(struct tape_drive *drive, struct tape_scsi *scsi, const char *url);
void tape_scsi_close(struct tape_scsi *scsi);
/* direction: SCSI_XFER_*. */
int tape_scsi_run(struct tape_drive *drive, struct tape_scsi *scsi, const uint8_t *command,
	int command_size, int direction, void *data, size_t size);
/* TEST UNIT READY, until it is, or the timeout has passed. */
int tape_scsi_ready(struct tape_drive *drive, struct tape_scsi *scsi);

/* A library's slots and what is in them; `loaded` is the slot whose cartridge is in the drive, 0:
   there is none. */
int tape_scsi_slots(struct tape_drive *drive, struct tape_scsi *changer, struct tape_slot *slots,
	unsigned *loaded);
/* From where it stands to the drive, the drive's back to its slot. */
int tape_scsi_load(struct tape_drive *drive, struct tape_scsi *changer, unsigned slot, bool *moved);

#endif
