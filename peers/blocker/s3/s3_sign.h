/* SPDX-License-Identifier: Apache-2.0 */
/*
 * AWS Signature Version 4: who sends a request, and that nobody has changed it.
 *
 * Units: bytes. Errors: none. Threads: one for each signer. Blocking: none.
 * Source: "Authenticating Requests (AWS Signature Version 4)", Amazon S3 API Reference; the
 * examples there are our unit test.
 */
#ifndef SKERRY_BLOCKER_S3_SIGN_H
#define SKERRY_BLOCKER_S3_SIGN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#define S3_DATE 17	      /* 20130524T000000Z */
#define S3_AUTHORIZATION 1280 /* bytes of that header's value */
#define S3_HEADERS 16
#define S3_HEADER 4096

struct s3_keys {
	char access[129], secret[257];
	char token[2049]; /* of a session, or "" */
};

struct s3_signer {
	struct s3_keys keys;
	const char *region;
	char day[9]; /* for which the key below was made */
	uint8_t key[32];
};

/* Names in lower case, in the order of their bytes. */
struct s3_header {
	const char *name;
	const char *value;
};

struct s3_signed {
	const char *method;
	const char *path;  /* encoded */
	const char *query; /* name=value&..., each encoded, in the order of their names; or "" */
	const struct s3_header *headers;
	int count;
	const char *payload; /* hexadecimal SHA-256 of the body, or UNSIGNED-PAYLOAD */
};

#define S3_UNSIGNED "UNSIGNED-PAYLOAD"

void s3_sign_date(time_t now, char date[S3_DATE]);
/* date: what the header x-amz-date says, which is one of the headers. */
void s3_sign(struct s3_signer *signer, const struct s3_signed *request, const char *date,
	char authorization[S3_AUTHORIZATION]);
/* Appends what URLs take, as they take it; '/' stays as it is where `path` says so. */
void s3_sign_encode(char *to, size_t size, const char *from, bool path);
/* 64 digits and a zero. */
void s3_sign_hash(const void *data, size_t size, char hex[65]);

#endif
