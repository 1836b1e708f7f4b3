/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Signatures. Source of the expected ones: the examples in "Signature Calculations for the
 * Authorization Header: Transferring Payload in a Single Chunk (AWS Signature Version 4)", Amazon
 * S3 API Reference.
 */
#include <string.h>

#include "peers/blocker/s3/s3_sign.h"
#include "tests/lib/unit.h"

#define DATE "20130524T000000Z"
#define HOST "examplebucket.s3.amazonaws.com"
#define NOTHING "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

static struct s3_signer signer = {
	.keys = {.access = "AKIAIOSFODNN7EXAMPLE",
		.secret = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"},
	.region = "us-east-1",
};

static void signs(const char *method, const char *path, const char *query,
	const struct s3_header *headers, int count, const char *payload, const char *signature)
{
	char authorization[S3_AUTHORIZATION];
	struct s3_signed request = {.method = method,
		.path = path,
		.query = query,
		.headers = headers,
		.count = count,
		.payload = payload};
	s3_sign(&signer, &request, DATE, authorization);
	const char *found = strstr(authorization, "Signature=");
	ck_assert_ptr_nonnull(found);
	ck_assert_str_eq(found + strlen("Signature="), signature);
	ck_assert_ptr_nonnull(strstr(authorization,
		"Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request,"));
}

UNIT(test_get_of_a_range)
{
	struct s3_header headers[] = {{"host", HOST}, {"range", "bytes=0-9"},
		{"x-amz-content-sha256", NOTHING}, {"x-amz-date", DATE}};
	signs("GET", "/test.txt", "", headers, 4, NOTHING,
		"f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41");
}

UNIT(test_put)
{
	static const char body[] = "Welcome to Amazon S3.";
	char hash[65], path[64] = "";
	s3_sign_hash(body, strlen(body), hash);
	ck_assert_str_eq(hash, "44ce7dd67c959e0d3524ffac1771dfbba87d2b6b4b4e99e42034a8b803f8b072");
	s3_sign_encode(path, sizeof(path), "/test$file.text", true);
	struct s3_header headers[] = {{"date", "Fri, 24 May 2013 00:00:00 GMT"}, {"host", HOST},
		{"x-amz-content-sha256", hash}, {"x-amz-date", DATE},
		{"x-amz-storage-class", "REDUCED_REDUNDANCY"}};
	signs("PUT", path, "", headers, 5, hash,
		"98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd");
}

UNIT(test_queries)
{
	struct s3_header headers[] = {
		{"host", HOST}, {"x-amz-content-sha256", NOTHING}, {"x-amz-date", DATE}};
	signs("GET", "/", "lifecycle=", headers, 3, NOTHING,
		"fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543");
	signs("GET", "/", "max-keys=2&prefix=J", headers, 3, NOTHING,
		"34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7");
}

UNIT(test_encoding)
{
	char text[64] = "x=";
	s3_sign_encode(text, sizeof(text), "a/b 1+\xc3\xa4~(x)", false);
	ck_assert_str_eq(text, "x=a%2Fb%201%2B%C3%A4~%28x%29");
	char path[16] = "";
	s3_sign_encode(path, sizeof(path), "/a/b", true);
	ck_assert_str_eq(path, "/a/b");
	char small[8] = "";
	s3_sign_encode(small, sizeof(small), "     ", false);
	ck_assert_str_eq(small, "%20%20"); /* what does not fit is left out whole */
}

UNIT(test_the_key_changes_with_the_day)
{
	struct s3_header headers[] = {{"host", HOST}};
	struct s3_signed request = {.method = "GET",
		.path = "/",
		.query = "",
		.headers = headers,
		.count = 1,
		.payload = S3_UNSIGNED};
	char first[S3_AUTHORIZATION], later[S3_AUTHORIZATION], again[S3_AUTHORIZATION];
	char date[S3_DATE];
	s3_sign_date(1369353600, date);
	ck_assert_str_eq(date, DATE);
	s3_sign(&signer, &request, date, first);
	s3_sign(&signer, &request, "20130525T000000Z", later);
	ck_assert_str_ne(first, later);
	s3_sign(&signer, &request, date, again);
	ck_assert_str_eq(first, again);
}
