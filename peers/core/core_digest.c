/* SPDX-License-Identifier: Apache-2.0 */
/* Digests of data, by which two hosts find out that they have the same. */
#define XXH_INLINE_ALL
#include <peer/call.h>
#include <xxhash.h>

#define PIECE 65536u
#define PIECES (PIECE / XSEG_PAGE + 1)

void call_digest_bytes(const void *bytes, uint32_t length, uint8_t out[XSEG_DIGEST])
{
	XXH128_canonical_t canonical;
	XXH128_canonicalFromHash(&canonical, XXH3_128bits(bytes, length));
	memcpy(out, canonical.digest, XSEG_DIGEST);
}

void call_digest(const struct call *call, uint32_t at, uint32_t length, uint8_t out[XSEG_DIGEST])
{
	XXH128_canonical_t canonical;
	struct iovec iov[PIECES];
	XXH3_state_t state;
	XXH3_INITSTATE(&state);
	XXH3_128bits_reset(&state);
	for (uint32_t size; length > 0; at += size, length -= size) {
		size = length < PIECE ? length : PIECE;
		int count = call_iov(call, at, size, iov, PIECES);
		must(count > 0);
		for (int i = 0; i < count; i++)
			XXH3_128bits_update(&state, iov[i].iov_base, iov[i].iov_len);
	}
	XXH128_canonicalFromHash(&canonical, XXH3_128bits_digest(&state));
	memcpy(out, canonical.digest, XSEG_DIGEST);
}
