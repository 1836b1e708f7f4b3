/* SPDX-License-Identifier: Apache-2.0 */
#include "peers/blocker/s3/s3_sign.h"

#include <base/must.h>
#include <ctype.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <stdio.h>
#include <string.h>

#define HASH 32
#define CANONICAL 16384

static void hex_of(const uint8_t hash[HASH], char hex[2 * HASH + 1])
{
	for (int i = 0; i < HASH; i++)
		sprintf(hex + 2 * i, "%02x", hash[i]);
}

void s3_sign_hash(const void *data, size_t size, char hex[65])
{
	uint8_t hash[EVP_MAX_MD_SIZE];
	must(EVP_Digest(data, size, hash, NULL, EVP_sha256(), NULL) == 1);
	hex_of(hash, hex);
}

static void hmac(const void *key, size_t key_size, const char *text, uint8_t out[HASH])
{
	must(HMAC(
		EVP_sha256(), key, (int)key_size, (const uint8_t *)text, strlen(text), out, NULL));
}

void s3_sign_date(time_t now, char date[S3_DATE])
{
	struct tm tm;
	gmtime_r(&now, &tm);
	must(strftime(date, S3_DATE, "%Y%m%dT%H%M%SZ", &tm) == S3_DATE - 1);
}

void s3_sign_encode(char *to, size_t size, const char *from, bool path)
{
	size_t at = strlen(to);
	for (; *from && at + 4 <= size; from++) {
		unsigned char c = (unsigned char)*from;
		bool plain = (c < 128 && isalnum(c)) || strchr("-_.~", c) || (path && c == '/');
		at += (size_t)snprintf(to + at, size - at, plain ? "%c" : "%%%02X", c);
	}
}

/* A key of its own for each day, region and service. */
static const uint8_t *day_key(struct s3_signer *signer, const char *day)
{
	uint8_t a[HASH], b[HASH];
	char first[sizeof(signer->keys.secret) + 5];
	if (strcmp(signer->day, day) == 0)
		return signer->key;
	snprintf(first, sizeof(first), "AWS4%s", signer->keys.secret);
	hmac(first, strlen(first), day, a);
	hmac(a, HASH, signer->region, b);
	hmac(b, HASH, "s3", a);
	hmac(a, HASH, "aws4_request", signer->key);
	snprintf(signer->day, sizeof(signer->day), "%s", day);
	return signer->key;
}

void s3_sign(struct s3_signer *signer, const struct s3_signed *request, const char *date,
	char authorization[S3_AUTHORIZATION])
{
	char names[512] = "", canonical[CANONICAL], hash[65], day[9], scope[128];
	char to_sign[512], signature[65];
	uint8_t raw[HASH];
	int n = snprintf(canonical, sizeof(canonical), "%s\n%s\n%s\n", request->method,
		request->path, request->query);
	for (int i = 0; i < request->count; i++) {
		const struct s3_header *header = &request->headers[i];
		size_t end = strlen(names);
		snprintf(names + end, sizeof(names) - end, "%s%s", i ? ";" : "", header->name);
		n += snprintf(canonical + n, sizeof(canonical) - (size_t)n, "%s:%s\n", header->name,
			header->value);
		must((size_t)n < sizeof(canonical));
	}
	n += snprintf(
		canonical + n, sizeof(canonical) - (size_t)n, "\n%s\n%s", names, request->payload);
	must((size_t)n < sizeof(canonical));
	s3_sign_hash(canonical, (size_t)n, hash);
	snprintf(day, sizeof(day), "%.8s", date);
	snprintf(scope, sizeof(scope), "%s/%s/s3/aws4_request", day, signer->region);
	snprintf(to_sign, sizeof(to_sign), "AWS4-HMAC-SHA256\n%s\n%s\n%s", date, scope, hash);
	hmac(day_key(signer, day), HASH, to_sign, raw);
	hex_of(raw, signature);
	snprintf(authorization, S3_AUTHORIZATION,
		"AWS4-HMAC-SHA256 Credential=%s/%s,SignedHeaders=%s,Signature=%s",
		signer->keys.access, scope, names, signature);
}
