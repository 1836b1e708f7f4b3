/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Notes in a volume that is memory: a length, and behind it lines of text.
 *
 *   cc -o notes notes.c $(pkg-config --cflags --libs skerry-region)
 *   notes SEGMENT VOLUME TEXT      adds one; it is durable when the program ends
 *   notes SEGMENT VOLUME           shows all
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <xseg/region.h>

struct notes {
	uint64_t used;
	char text[];
};

static int add(struct region *region, const char *text)
{
	struct notes *notes = region_memory(region);
	uint64_t room = region_size(region) - sizeof(*notes), length = strlen(text) + 1;
	if (notes->used > room || length > room - notes->used)
		return -ENOSPC;
	memcpy(notes->text + notes->used, text, length - 1);
	notes->text[notes->used + length - 1] = '\n';
	/* the length last: who reads meanwhile sees whole notes. The sync in between makes that
	   hold when the host stops in this moment, too, as pages reach the volume in any order. */
	int error = region_sync(region, 0, 0);
	if (error)
		return error;
	notes->used += length;
	return region_sync(region, 0, sizeof(*notes));
}

int main(int count, char **words)
{
	if (count != 3 && count != 4) {
		fprintf(stderr, "usage: notes SEGMENT VOLUME [TEXT]\n");
		return 2;
	}
	struct region *region =
		region_open(words[1], words[2], 0, 0, count == 3 ? REGION_READ_ONLY : 0);
	if (!region) {
		fprintf(stderr, "notes: %s\n", region_why());
		return 1;
	}
	const struct notes *notes = region_memory(region);
	int error = 0;
	if (count == 4)
		error = add(region, words[3]);
	else
		fwrite(notes->text, 1, notes->used, stdout);
	if (error)
		fprintf(stderr, "notes: %s\n", strerror(-error));
	region_close(region);
	return error ? 1 : 0;
}
