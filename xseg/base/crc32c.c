/* SPDX-License-Identifier: Apache-2.0 */
/* CRC-32C: by the CPU's instruction where there is one, by a table of 8 x 256 words elsewhere. */
#include <base/crc32c.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#define CRC32C_POLYNOMIAL 0x82f63b78u /* reflected */

typedef uint32_t crc32c_f(uint32_t crc, const unsigned char *data, size_t size);

/* table[k][b]: byte b followed by k zero bytes */
static uint32_t crc32c_words[8][256];
static pthread_once_t crc32c_once = PTHREAD_ONCE_INIT;

static void crc32c_words_fill(void)
{
	for (uint32_t byte = 0; byte < 256; byte++) {
		uint32_t crc = byte;
		for (int bit = 0; bit < 8; bit++)
			crc = (crc >> 1) ^ (crc & 1 ? CRC32C_POLYNOMIAL : 0);
		crc32c_words[0][byte] = crc;
	}
	for (uint32_t byte = 0; byte < 256; byte++)
		for (int k = 1; k < 8; k++) {
			uint32_t before = crc32c_words[k - 1][byte];
			crc32c_words[k][byte] = (before >> 8) ^ crc32c_words[0][before & 0xff];
		}
}

static uint32_t crc32c_bytes(uint32_t crc, const unsigned char *data, size_t size)
{
	while (size--)
		crc = (crc >> 8) ^ crc32c_words[0][(crc ^ *data++) & 0xff];
	return crc;
}

static uint32_t crc32c_by_table(uint32_t crc, const unsigned char *data, size_t size)
{
	pthread_once(&crc32c_once, crc32c_words_fill);
	for (; size >= 8; data += 8, size -= 8) {
		uint32_t low = crc ^ ((uint32_t)data[0] | (uint32_t)data[1] << 8 |
					     (uint32_t)data[2] << 16 | (uint32_t)data[3] << 24);
		crc = crc32c_words[7][low & 0xff] ^ crc32c_words[6][(low >> 8) & 0xff] ^
		      crc32c_words[5][(low >> 16) & 0xff] ^ crc32c_words[4][low >> 24] ^
		      crc32c_words[3][data[4]] ^ crc32c_words[2][data[5]] ^
		      crc32c_words[1][data[6]] ^ crc32c_words[0][data[7]];
	}
	return crc32c_bytes(crc, data, size);
}

#if defined(__x86_64__)
/*
 * The instruction takes three cycles and one can begin in each, so four runs of CRC32C_RUN bytes
 * are summed side by side. A sum is a linear function of the one before, so that of a run moves
 * behind the next one by a table for each of its bytes (Gopal and others, Fast CRC Computation for
 * iSCSI Polynomial Using CRC32 Instruction, Intel 2011).
 */
#define CRC32C_RUN 1024u
static uint32_t crc32c_behind[4]
			     [256]; /* [i][b]: byte i of a sum is b, followed by a run of zeros */
static pthread_once_t crc32c_behind_once = PTHREAD_ONCE_INIT;

static void crc32c_behind_fill(void)
{
	pthread_once(&crc32c_once, crc32c_words_fill);
	for (unsigned i = 0; i < 32; i++) {
		uint32_t bit = 1u << i;
		for (unsigned n = 0; n < CRC32C_RUN; n++)
			bit = (bit >> 8) ^ crc32c_words[0][bit & 0xff];
		for (unsigned byte = 0; byte < 256; byte++)
			if (byte >> (i % 8) & 1)
				crc32c_behind[i / 8][byte] ^= bit;
	}
}

static uint32_t crc32c_move(uint64_t crc)
{
	return crc32c_behind[0][crc & 0xff] ^ crc32c_behind[1][(crc >> 8) & 0xff] ^
	       crc32c_behind[2][(crc >> 16) & 0xff] ^ crc32c_behind[3][(crc >> 24) & 0xff];
}

static uint64_t crc32c_word(const unsigned char *data)
{
	uint64_t word;
	memcpy(&word, data, sizeof(word));
	return word;
}

__attribute__((target("sse4.2"))) static uint32_t crc32c_four_runs(
	uint64_t crc, const unsigned char *data)
{
	uint64_t b = 0, c = 0, d = 0;
	for (unsigned at = 0; at < CRC32C_RUN; at += 8, data += 8) {
		crc = __builtin_ia32_crc32di(crc, crc32c_word(data));
		b = __builtin_ia32_crc32di(b, crc32c_word(data + CRC32C_RUN));
		c = __builtin_ia32_crc32di(c, crc32c_word(data + 2 * CRC32C_RUN));
		d = __builtin_ia32_crc32di(d, crc32c_word(data + 3 * CRC32C_RUN));
	}
	return crc32c_move(crc32c_move(crc32c_move(crc) ^ b) ^ c) ^ (uint32_t)d;
}

__attribute__((target("sse4.2"))) static uint32_t crc32c_by_cpu(
	uint32_t crc, const unsigned char *data, size_t size)
{
	if (size >= 4 * CRC32C_RUN)
		pthread_once(&crc32c_behind_once, crc32c_behind_fill);
	for (; size >= 4 * CRC32C_RUN; data += 4 * CRC32C_RUN, size -= 4 * CRC32C_RUN)
		crc = crc32c_four_runs(crc, data);
	uint64_t wide = crc;
	for (; size >= 8; data += 8, size -= 8)
		wide = __builtin_ia32_crc32di(wide, crc32c_word(data));
	crc = (uint32_t)wide;
	for (; size > 0; data++, size--)
		crc = __builtin_ia32_crc32qi(crc, *data);
	return crc;
}

static crc32c_f *crc32c_choose(void)
{
	__builtin_cpu_init();
	return __builtin_cpu_supports("sse4.2") ? crc32c_by_cpu : crc32c_by_table;
}
#else
static crc32c_f *crc32c_choose(void) { return crc32c_by_table; }
#endif

uint32_t crc32c_table(uint32_t crc, const void *data, size_t size)
{
	return ~crc32c_by_table(~crc, data, size);
}

uint32_t crc32c(uint32_t crc, const void *data, size_t size)
{
	/* two threads at once choose the same */
	static _Atomic(crc32c_f *) chosen;
	crc32c_f *f = atomic_load_explicit(&chosen, memory_order_relaxed);
	if (!f) {
		f = crc32c_choose();
		atomic_store_explicit(&chosen, f, memory_order_relaxed);
	}
	return ~f(~crc, data, size);
}
