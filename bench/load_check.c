/* SPDX-License-Identifier: Apache-2.0 */
/* What blocks must hold: each sector says which one it is and which version of it. */
#include <base/log.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "bench/load.h"

#define CHECK_SAID 8u /* of so many faults it is said what they are */

/* The first bytes of a sector; the rest follows from it (full) or is as it was (meta). */
struct load_stamp {
	uint64_t volume, sector, version, sum;
};

static uint64_t check_mix(uint64_t x)
{
	x = (x ^ x >> 32) * 0xd6e8feb86659fd93u;
	x = (x ^ x >> 32) * 0xd6e8feb86659fd93u;
	return x ^ x >> 32;
}

static uint64_t check_sum(const struct load_check *check, const struct load_stamp *stamp)
{
	return check_mix(
		stamp->volume ^
		check_mix(stamp->sector ^ check_mix(stamp->version ^ check_mix(check->seed + 1))));
}

/* The sector as it must be. */
static void check_make(
	const struct load_check *check, uint64_t number, uint32_t version, uint64_t word[64])
{
	struct load_stamp stamp = {.volume = check->volume, .sector = number, .version = version};
	stamp.sum = check_sum(check, &stamp);
	memcpy(word, &stamp, sizeof(stamp));
	if (check->how != LOAD_VERIFY_FULL)
		return;
	uint64_t random = stamp.sum | 1;
	for (unsigned i = sizeof(stamp) / 8; i < 64; i++)
		word[i] = load_random(&random);
}

static uint32_t check_bytes(const struct load_check *check)
{
	return check->how == LOAD_VERIFY_FULL ? XSEG_SECTOR : (uint32_t)sizeof(struct load_stamp);
}

int load_check_open(struct load_check *check, const struct load_options *options, uint64_t sectors)
{
	check->how = (enum load_verify)options->verify;
	check->volume = options->volume;
	check->seed = options->seed;
	check->sectors = sectors;
	if (check->how == LOAD_VERIFY_NONE)
		return 0;
	check->sent = calloc(sectors, sizeof(*check->sent));
	check->done = calloc(sectors, sizeof(*check->done));
	if (!check->sent || !check->done)
		return -ENOMEM;
	if (!options->fresh)
		memset(check->done, 0xff, sectors * sizeof(*check->done));
	return 0;
}

void load_check_close(struct load_check *check)
{
	free(check->sent);
	free(check->done);
}

bool load_check_busy(const struct load_check *check, uint64_t first, uint32_t count)
{
	for (uint64_t i = first; i < first + count; i++)
		if (check->done[i] == LOAD_UNKNOWN_BUSY ||
			(check->sent[i] != check->done[i] && check->done[i] != LOAD_UNKNOWN))
			return true;
	return false;
}

void load_check_fill(struct load_check *check, struct call *call, uint64_t first, uint64_t number)
{
	uint64_t word[XSEG_SECTOR / 8];
	for (uint32_t i = 0; i < call->length / XSEG_SECTOR; i++) {
		if (check->done[first + i] == LOAD_UNKNOWN)
			check->done[first + i] = LOAD_UNKNOWN_BUSY;
		check_make(check, number + i, ++check->sent[first + i], word);
		call_put_bytes(call, i * XSEG_SECTOR, word, check_bytes(check));
	}
}

void load_check_written(struct load_check *check, uint64_t first, uint32_t count, bool failed)
{
	for (uint64_t i = first; i < first + count; i++)
		check->done[i] = failed ? LOAD_UNKNOWN : check->sent[i];
}

void load_check_note(
	const struct load_check *check, uint64_t first, uint32_t count, uint32_t *least)
{
	memcpy(least, check->done + first, count * sizeof(*least));
}

static bool check_is_zero(const uint64_t *word, uint32_t bytes)
{
	uint64_t any = 0;
	for (uint32_t i = 0; i < bytes / 8; i++)
		any |= word[i];
	return any == 0;
}

/* Its version, or LOAD_UNKNOWN: it is not that sector, or damaged. */
static uint32_t check_version(const struct load_check *check, uint64_t number, const uint64_t *word)
{
	uint64_t want[XSEG_SECTOR / 8];
	uint32_t bytes = check_bytes(check);
	if (check_is_zero(word, bytes))
		return 0;
	uint32_t version = (uint32_t)((const struct load_stamp *)word)->version;
	check_make(check, number, version, want);
	return memcmp(word, want, bytes) ? LOAD_UNKNOWN : version;
}

static void check_say(uint64_t number, uint32_t version, uint32_t least, uint32_t most)
{
	static _Atomic unsigned said;
	if (atomic_fetch_add(&said, 1) >= CHECK_SAID)
		return;
	if (version == LOAD_UNKNOWN)
		log_error("load", "sector %llu holds something else than was written there",
			(unsigned long long)number);
	else
		log_error("load", "sector %llu holds version %u, must be from %u to %u",
			(unsigned long long)number, version, least, most);
}

uint32_t load_check_read(const struct load_check *check, const struct call *call, uint64_t first,
	uint64_t number, const uint32_t *least)
{
	uint64_t word[XSEG_SECTOR / 8];
	uint32_t bad = 0;
	for (uint32_t i = 0; i < call->length / XSEG_SECTOR; i++) {
		if (least[i] >= LOAD_UNKNOWN_BUSY || check->done[first + i] >= LOAD_UNKNOWN_BUSY)
			continue;
		call_get_bytes(call, i * XSEG_SECTOR, word, check_bytes(check));
		uint32_t version = check_version(check, number + i, word);
		if (version != LOAD_UNKNOWN && version >= least[i] &&
			version <= check->sent[first + i])
			continue;
		check_say(number + i, version, least[i], check->sent[first + i]);
		bad++;
	}
	return bad;
}
