/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a loop on libcurl's multi interface with nothing around it gets out of a bucket: the limit
 * that blocker_s3 is measured against by bench/stores.py.
 *
 *   bench_s3 http://HOST:PORT/BUCKET KEY-FILE read|write BLOCK DEPTH SECONDS SIZE
 *
 * Ranges of objects of 4 MiB are read, objects of BLOCK are put. Prints JSON: operations a second,
 * and CPU microseconds of each.
 */
#include <base/hash.h>
#include <base/must.h>
#include <curl/curl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "bench/bare.h"
#include "peers/blocker/s3/s3_sign.h"

struct slot {
	CURL *curl;
	struct curl_slist *headers;
};

static struct slot slots[BARE_DEPTH_MAX];
static struct s3_signer signer = {.region = "us-east-1"};
static char host[256], bucket[128];
static char *payload;
static CURLM *multi;

static void read_keys(const char *path)
{
	FILE *in = fopen(path, "re");
	if (!in || fscanf(in, "%128s %256s", signer.keys.access, signer.keys.secret) != 2)
		bare_fail(path, "no keys");
	fclose(in);
}

static size_t swallow(char *bytes, size_t one, size_t many, void *context)
{
	(void)bytes;
	(void)context;
	return one * many;
}

static void add(struct slot *slot, const char *name, const char *value)
{
	char line[2048];
	snprintf(line, sizeof(line), "%s: %s", name, value);
	slot->headers = curl_slist_append(slot->headers, line);
}

static void sign(struct slot *slot, const char *method, const char *path)
{
	char date[S3_DATE], authorization[S3_AUTHORIZATION];
	s3_sign_date(time(NULL), date);
	struct s3_header headers[] = {
		{"host", host}, {"x-amz-content-sha256", S3_UNSIGNED}, {"x-amz-date", date}};
	struct s3_signed request = {.method = method,
		.path = path,
		.query = "",
		.headers = headers,
		.count = 3,
		.payload = S3_UNSIGNED};
	s3_sign(&signer, &request, date, authorization);
	add(slot, headers[1].name, headers[1].value);
	add(slot, headers[2].name, headers[2].value);
	add(slot, "Authorization", authorization);
}

static void submit(const struct bare *bare, uint32_t number, uint64_t at)
{
	struct slot *slot = &slots[number];
	uint32_t block = bare->block;
	char path[300], url[600], range[48];
	CURL *curl = slot->curl;
	curl_easy_reset(curl);
	curl_slist_free_all(slot->headers);
	slot->headers = NULL;
	snprintf(path, sizeof(path), "/%s/bare/%llu", bucket,
		(unsigned long long)(at / BARE_OBJECT));
	snprintf(url, sizeof(url), "http://%s%s", host, path);
	sign(slot, bare->reads ? "GET" : "PUT", path);
	if (bare->reads) {
		snprintf(range, sizeof(range), "%u-%u", (unsigned)(at % BARE_OBJECT),
			(unsigned)(at % BARE_OBJECT) + block - 1);
		curl_easy_setopt(curl, CURLOPT_RANGE, range);
	} else {
		curl_easy_setopt(curl, CURLOPT_CUSTOMREQUEST, "PUT");
		curl_easy_setopt(curl, CURLOPT_POSTFIELDS, payload);
		curl_easy_setopt(curl, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)block);
		curl_easy_setopt(curl, CURLOPT_UPLOAD_BUFFERSIZE, 1L << 20);
		slot->headers = curl_slist_append(slot->headers, "Expect:");
	}
	curl_easy_setopt(curl, CURLOPT_URL, url);
	curl_easy_setopt(curl, CURLOPT_HTTPHEADER, slot->headers);
	curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, swallow);
	curl_easy_setopt(curl, CURLOPT_PRIVATE, slot);
	curl_easy_setopt(curl, CURLOPT_BUFFERSIZE, 512L << 10);
	must(curl_multi_add_handle(multi, curl) == CURLM_OK);
}

static uint32_t collect(void)
{
	struct slot *slot;
	CURLMsg *message;
	long status = 0;
	int left;
	curl_multi_perform(multi, &left);
	while (!(message = curl_multi_info_read(multi, &left))) {
		curl_multi_poll(multi, NULL, 0, 1000, NULL);
		curl_multi_perform(multi, &left);
	}
	CURL *curl = message->easy_handle;
	if (message->data.result != CURLE_OK)
		bare_fail("a request", curl_easy_strerror(message->data.result));
	curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &status);
	curl_easy_getinfo(curl, CURLINFO_PRIVATE, &slot);
	if (status / 100 != 2)
		bare_fail("a request", "refused");
	curl_multi_remove_handle(multi, curl);
	return (uint32_t)(slot - slots);
}

static void fill(uint64_t size)
{
	struct bare whole = {.block = BARE_OBJECT};
	for (uint64_t at = 0; at < size; at += BARE_OBJECT) {
		submit(&whole, 0, at);
		collect();
	}
}

int main(int argc, char **argv)
{
	struct bare bare = {.submit = submit, .collect = collect};
	if (argc != 8 || sscanf(argv[1], "http://%255[^/]/%127s", host, bucket) != 2) {
		fprintf(stderr, "usage: bench_s3 http://HOST:PORT/BUCKET KEY-FILE read|write "
				"BLOCK DEPTH SECONDS SIZE\n");
		return 2;
	}
	bare_parse(&bare, argv + 3);
	must(bare.reads || bare.block == BARE_OBJECT);
	read_keys(argv[2]);
	multi = curl_multi_init();
	payload = malloc(BARE_OBJECT);
	must(multi && payload);
	for (uint32_t i = 0; i < BARE_OBJECT; i++)
		payload[i] = (char)hash_u64(i);
	for (uint32_t i = 0; i < bare.depth; i++)
		slots[i].curl = curl_easy_init();
	if (bare.reads)
		fill(bare.size);
	bare_run(&bare);
	return 0;
}
