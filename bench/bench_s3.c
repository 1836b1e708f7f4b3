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
#include <base/clock.h>
#include <base/hash.h>
#include <base/must.h>
#include <curl/curl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "peers/blocker/s3/s3_sign.h"

#define OBJECT (4u << 20)
#define DEPTH_MAX 256

struct slot {
	CURL *curl;
	struct curl_slist *headers;
};

static struct slot slots[DEPTH_MAX];
static struct s3_signer signer = {.region = "us-east-1"};
static char host[256], bucket[128];
static char *payload;
static CURLM *multi;

static _Noreturn void fail(const char *what, const char *why)
{
	fprintf(stderr, "bench_s3: %s: %s\n", what, why);
	exit(1);
}

static void read_keys(const char *path)
{
	FILE *in = fopen(path, "re");
	if (!in || fscanf(in, "%128s %256s", signer.keys.access, signer.keys.secret) != 2)
		fail(path, "no keys");
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

static void submit(struct slot *slot, bool reads, uint32_t block, uint64_t at)
{
	char path[300], url[600], range[48];
	CURL *curl = slot->curl;
	curl_easy_reset(curl);
	curl_slist_free_all(slot->headers);
	slot->headers = NULL;
	snprintf(path, sizeof(path), "/%s/bare/%llu", bucket, (unsigned long long)(at / OBJECT));
	snprintf(url, sizeof(url), "http://%s%s", host, path);
	sign(slot, reads ? "GET" : "PUT", path);
	if (reads) {
		snprintf(range, sizeof(range), "%u-%u", (unsigned)(at % OBJECT),
			(unsigned)(at % OBJECT) + block - 1);
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

/* The next one that has ended. */
static struct slot *collect(void)
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
		fail("a request", curl_easy_strerror(message->data.result));
	curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &status);
	curl_easy_getinfo(curl, CURLINFO_PRIVATE, &slot);
	if (status / 100 != 2)
		fail("a request", "refused");
	curl_multi_remove_handle(multi, curl);
	return slot;
}

static double cpu_us(void)
{
	struct timespec t;
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static void fill(uint64_t size)
{
	for (uint64_t at = 0; at < size; at += OBJECT) {
		submit(&slots[0], false, OBJECT, at);
		collect();
	}
}

int main(int argc, char **argv)
{
	if (argc != 8 || sscanf(argv[1], "http://%255[^/]/%127s", host, bucket) != 2) {
		fprintf(stderr, "usage: bench_s3 http://HOST:PORT/BUCKET KEY-FILE read|write "
				"BLOCK DEPTH SECONDS SIZE\n");
		return 2;
	}
	bool reads = strcmp(argv[3], "read") == 0;
	uint32_t block = (uint32_t)atoi(argv[4]), depth = (uint32_t)atoi(argv[5]), done = 0;
	uint64_t size = strtoull(argv[7], NULL, 10), blocks = size / block, next = 1;
	must(block > 0 && block <= OBJECT && depth > 0 && depth <= DEPTH_MAX && blocks > 0);
	must(reads || block == OBJECT);
	read_keys(argv[2]);
	multi = curl_multi_init();
	payload = malloc(OBJECT);
	must(multi && payload);
	for (uint32_t i = 0; i < OBJECT; i++)
		payload[i] = (char)hash_u64(i);
	for (uint32_t i = 0; i < depth; i++)
		slots[i].curl = curl_easy_init();
	if (reads)
		fill(size);
	double used = cpu_us();
	uint64_t from = clock_now_ns(), until = from + (uint64_t)(atof(argv[6]) * 1e9);
	for (uint32_t i = 0; i < depth; i++)
		submit(&slots[i], reads, block, hash_u64(next++) % blocks * block);
	for (; clock_now_ns() < until; done++)
		submit(collect(), reads, block, hash_u64(next++) % blocks * block);
	double seconds = (double)(clock_now_ns() - from) / 1e9;
	printf("{\"ops_per_second\": %.1f, \"cpu_us_per_op\": %.2f}\n", done / seconds,
		(cpu_us() - used) / (done ? done : 1));
	return 0;
}
