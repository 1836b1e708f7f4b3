/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a loop on a tape drive with nothing around it gets: the limit that blocker_tape is measured
 * against by bench/stores.py. Blocks of 512 KiB, one after the other, as a drive takes them.
 *
 *   bench_tape DRIVE-URL CHANGER-URL SLOT write|read BYTES
 *
 * The slot's cartridge is written or read from its beginning. Prints JSON: 4 MiB a second.
 */
#include <base/clock.h>
#include <base/must.h>
#include <stdlib.h>
#include <string.h>

#include "peers/blocker/tape/tape_drive.h"

#define BLOCK (512u << 10)

static struct tape_drive drive = {.ops = &tape_iscsi};

static void check(int error)
{
	if (error == 0)
		return;
	fprintf(stderr, "bench_tape: %s\n", error > 0 ? "the tape ends here" : drive.why);
	exit(1);
}

static void block(char *bytes, bool reads)
{
	size_t got = BLOCK;
	bool warning;
	check(reads ? drive.ops->read(&drive, bytes, BLOCK, &got)
		    : drive.ops->write(&drive, bytes, BLOCK, &warning));
	must(got == BLOCK);
}

int main(int argc, char **argv)
{
	if (argc != 6) {
		fprintf(stderr, "bench_tape DRIVE CHANGER SLOT write|read BYTES\n");
		return 2;
	}
	struct tape_drive_options options = {
		.drive = argv[1], .changer = argv[2], .timeout_ns = 60000000000u};
	bool reads = strcmp(argv[4], "read") == 0;
	uint64_t size = strtoull(argv[5], NULL, 10);
	char *bytes = malloc(BLOCK);
	must(bytes);
	for (uint32_t i = 0; i < BLOCK; i++)
		bytes[i] = (char)rand();
	drive.options = &options;
	check(drive.ops->open(&drive));
	check(drive.ops->load(&drive, (unsigned)atoi(argv[3])));
	uint64_t from = clock_now_ns();
	for (uint64_t at = 0; at < size; at += BLOCK)
		block(bytes, reads);
	if (!reads)
		check(drive.ops->mark(&drive, 1));
	double seconds = (double)(clock_now_ns() - from) / 1e9;
	printf("{\"ops_per_second\": %.2f}\n", (double)size / (4 << 20) / seconds);
	drive.ops->close(&drive);
	free(bytes);
	return 0;
}
