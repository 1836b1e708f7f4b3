/* SPDX-License-Identifier: Apache-2.0 */
/* What a drive says of a command that it did not do, in words (SPC-4, fixed format). */
#include <string.h>

#include "peers/blocker/tape/tape_scsi.h"
#include "tests/lib/unit.h"

/* As it comes: response code, flags and key, information, additional code. */
static const struct {
	uint8_t bytes[14];
	int result;
	const char *why; /* NULL: none */
} told[] = {
	{{0x70, 0, 0x80, 0, 0, 0, 0, 6, 0, 0, 0, 0, 0x00, 0x01}, TAPE_MARK, NULL},
	{{0x70, 0, 0x00, 0, 0, 0, 0, 6, 0, 0, 0, 0, 0x00, 0x05}, TAPE_END, NULL},
	{{0x70, 0, 0x08, 0, 0, 0, 0, 6, 0, 0, 0, 0, 0x00, 0x05}, TAPE_END, "nothing is written"},
	{{0x70, 0, 0x40, 0, 0, 0, 0, 6, 0, 0, 0, 0, 0x00, 0x02}, 0, NULL}, /* early warning */
	{{0x70, 0, 0x01, 0, 0, 0, 0, 6, 0, 0, 0, 0, 0x17, 0x00}, 0, NULL}, /* recovered */
	{{0x70, 0, 0x4d, 0, 0, 0, 0, 6, 0, 0, 0, 0, 0x00, 0x02}, -ENOSPC, "the medium ends here"},
	{{0x70, 0, 0x02, 0, 0, 0, 0, 6, 0, 0, 0, 0, 0x3a, 0x00}, -EIO, "no cartridge is in"},
	{{0x70, 0, 0x02, 0, 0, 0, 0, 6, 0, 0, 0, 0, 0x04, 0x01}, -EIO, "becoming ready"},
	{{0x70, 0, 0x03, 0, 0, 0, 0, 6, 0, 0, 0, 0, 0x11, 0x00}, -EILSEQ, "could not read here"},
	{{0x70, 0, 0x03, 0, 0, 0, 0, 6, 0, 0, 0, 0, 0x77, 0x77}, -EILSEQ, "medium is damaged"},
	{{0x70, 0, 0x04, 0, 0, 0, 0, 6, 0, 0, 0, 0, 0x44, 0x00}, -EIO, "an internal failure"},
	{{0x70, 0, 0x05, 0, 0, 0, 0, 6, 0, 0, 0, 0, 0x20, 0x00}, -EOPNOTSUPP, "does not know"},
	{{0x70, 0, 0x06, 0, 0, 0, 0, 6, 0, 0, 0, 0, 0x28, 0x00}, -ENOTCONN, "another cartridge"},
	{{0x70, 0, 0x06, 0, 0, 0, 0, 6, 0, 0, 0, 0, 0x29, 0x00}, -ENOTCONN, "was reset"},
	{{0x70, 0, 0x07, 0, 0, 0, 0, 6, 0, 0, 0, 0, 0x27, 0x00}, -EROFS, "write-protected"},
	{{0x70, 0, 0x0b, 0, 0, 0, 0, 6, 0, 0, 0, 0, 0x00, 0x00}, -ENOTCONN, "aborted"},
	{{0x70, 0, 0x0f, 0, 0, 0, 0, 6, 0, 0, 0, 0, 0x00, 0x00}, -EIO, "unknown (sense f/00/00)"},
	{{0x71, 0, 0x03, 0, 0, 0, 0, 6, 0, 0, 0, 0, 0x0c, 0x00}, -EILSEQ, "could not write here"},
};

UNIT_LOOP(sense_in_words, sizeof(told) / sizeof(*told))
{
	struct tape_sense sense;
	char why[200] = "";
	ck_assert(tape_scsi_sense(&sense, told[_i].bytes, sizeof(told[_i].bytes)));
	ck_assert_int_eq(tape_scsi_result(&sense, why, sizeof(why)), told[_i].result);
	if (told[_i].why)
		ck_assert_msg(
			strstr(why, told[_i].why), "'%s' does not say '%s'", why, told[_i].why);
	else
		ck_assert_str_eq(why, "");
}

UNIT(sense_has_a_number)
{
	uint8_t bytes[18] = {0xf0, 0, 0x20, 0xff, 0xff, 0xff, 0x38, 10};
	struct tape_sense sense;
	ck_assert(tape_scsi_sense(&sense, bytes, sizeof(bytes)));
	ck_assert(sense.length && !sense.mark && !sense.end);
	ck_assert_int_eq(sense.information, -200); /* the block was longer by 200 */
	bytes[0] = 0x70;			   /* not valid */
	ck_assert(tape_scsi_sense(&sense, bytes, sizeof(bytes)));
	ck_assert_int_eq(sense.information, 0);
}

UNIT(what_is_no_sense)
{
	uint8_t bytes[18] = {0x72, 3};
	struct tape_sense sense;
	ck_assert(!tape_scsi_sense(&sense, bytes, sizeof(bytes)));
	bytes[0] = 0x70;
	ck_assert(!tape_scsi_sense(&sense, bytes, 13));
}
