/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Transfers: libcurl's multi interface on the lane's libevent. What a server refuses for now, and
 * what is lost on the way, is sent again after a while that grows and that chance varies, until its
 * time is over.
 */
#include <base/clock.h>
#include <base/crc32c.h>
#include <base/log.h>
#include <base/must.h>
#include <errno.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/evp.h>
#include <peer/peer.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

#include "peers/blocker/s3/s3.h"

#define BACKOFF_MIN_NS 50000000u
#define BACKOFF_MAX_NS 5000000000u
#define CONNECT_MS_MAX 10000
#define SKEW_TOLERATED 240 /* seconds; servers refuse 900 */
#define TEXT_MAX (XSEG_OBJECT_MAX + 65536u)

/* A handle of libcurl's and what it looks at while a transfer uses it. */
struct s3_easy {
	SLIST_ENTRY(s3_easy) link;
	CURL *curl;
	struct curl_slist *headers;
	char words[CURL_ERROR_SIZE];
	char url[4096];
};

static void count(struct s3_link *link, unsigned counter)
{
	if (link->base)
		peer_count(link->peer, counter, 1);
}

void s3_link_say(struct s3_link *link, int error, const char *text)
{
	count(link, S3_ERRORS);
	if (link->said != error && link->base)
		log_error(S3_ROOM, "%s: %s", link->peer->name, text);
	link->said = error;
}

bool s3_link_element(const char **at, const char *name, char *to, size_t size)
{
	char mark[64];
	snprintf(mark, sizeof(mark), "<%s>", name);
	const char *from = *at ? strstr(*at, mark) : NULL;
	if (!from)
		return false;
	from += strlen(mark);
	const char *end = strchr(from, '<');
	if (!end)
		return false;
	snprintf(to, size, "%.*s", (int)(end - from), from);
	*at = end;
	return true;
}

/* --- what comes --------------------------------------------------------------------------- */

static bool make_room(struct s3_transfer *t, size_t more)
{
	size_t need = t->text_size + more + 1;
	curl_off_t told = -1;
	if (need > TEXT_MAX)
		return false;
	if (need <= t->text_room)
		return true;
	curl_easy_getinfo(t->easy->curl, CURLINFO_CONTENT_LENGTH_DOWNLOAD_T, &told);
	size_t room = told < TEXT_MAX && told + 1 > (curl_off_t)need ? (size_t)told + 1 : 2 * need;
	char *text = realloc(t->text, room);
	if (!text)
		return false;
	t->text = text;
	t->text_room = (uint32_t)room;
	return true;
}

static bool take_text(struct s3_transfer *t, const char *bytes, size_t size)
{
	if (!make_room(t, size))
		return false;
	memcpy(t->text + t->text_size, bytes, size);
	t->text_size += (uint32_t)size;
	t->text[t->text_size] = 0;
	return true;
}

static void take_range(struct s3_transfer *t, const char *bytes, size_t size)
{
	size_t left = t->length - t->got;
	size = size < left ? size : left;
	if (t->job)
		job_put_bytes(t->job, t->got, bytes, (uint32_t)size);
	else
		memcpy(t->bytes + t->got, bytes, size);
	t->got += (uint32_t)size;
}

static size_t take_body(char *bytes, size_t one, size_t many, void *whose)
{
	struct s3_transfer *t = whose;
	long status = 0;
	size_t size = one * many, before = 0;
	curl_easy_getinfo(t->easy->curl, CURLINFO_RESPONSE_CODE, &status);
	if (!t->length || status / 100 != 2)
		return take_text(t, bytes, size) ? size : 0;
	if (status == 200 && t->skipped < t->offset) { /* it knows no ranges: all of it comes */
		before = t->offset - t->skipped < size ? t->offset - t->skipped : size;
		t->skipped += (uint32_t)before;
	}
	take_range(t, bytes + before, size - before);
	return size;
}

static void copy_header(CURL *curl, const char *name, char *to, size_t size)
{
	struct curl_header *header;
	*to = 0;
	if (curl_easy_header(curl, name, 0, CURLH_HEADER, -1, &header) == CURLHE_OK &&
		strlen(header->value) < size)
		strcpy(to, header->value);
}

static void take_headers(struct s3_transfer *t)
{
	CURL *curl = t->easy->curl;
	char date[64];
	curl_off_t size = 0;
	long status = 0;
	curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &status);
	curl_easy_getinfo(curl, CURLINFO_CONTENT_LENGTH_DOWNLOAD_T, &size);
	copy_header(curl, "etag", t->tag, sizeof(t->tag));
	copy_header(curl, "date", date, sizeof(date));
	t->status = (int)status;
	t->size = size > 0 ? (uint64_t)size : 0;
	t->date = *date ? curl_getdate(date, NULL) : 0;
}

/* --- sending ------------------------------------------------------------------------------ */

static const char *const methods[] = {"GET", "HEAD", "PUT", "DELETE"};

static void add_header(struct s3_easy *easy, const char *name, const char *value)
{
	char line[S3_HEADER];
	snprintf(line, sizeof(line), "%s:%s%s", name, *value ? " " : "", value);
	struct curl_slist *more = curl_slist_append(easy->headers, line);
	must(more);
	easy->headers = more;
}

static void add_signed(struct s3_link *link, struct s3_transfer *t, const char *path)
{
	struct s3_header headers[S3_HEADERS] = {{"host", link->store->host}};
	char date[S3_DATE], authorization[S3_AUTHORIZATION], sum[16];
	int n = 1;
	s3_sign_date(time(NULL) + (time_t)atomic_load(&link->store->skew), date);
	if (t->method == S3_PUT) {
		uint32_t crc = __builtin_bswap32(crc32c(0, t->body, t->body_size));
		EVP_EncodeBlock((uint8_t *)sum, (const uint8_t *)&crc, sizeof(crc));
		headers[n++] = (struct s3_header){"x-amz-checksum-crc32c", sum};
	}
	headers[n++] = (struct s3_header){"x-amz-content-sha256", S3_UNSIGNED};
	headers[n++] = (struct s3_header){"x-amz-date", date};
	if (*link->signer.keys.token)
		headers[n++] = (struct s3_header){"x-amz-security-token", link->signer.keys.token};
	struct s3_signed request = {.method = methods[t->method],
		.path = path,
		.query = t->query,
		.headers = headers,
		.count = n,
		.payload = S3_UNSIGNED};
	s3_sign(&link->signer, &request, date, authorization);
	for (int i = 1; i < n; i++) /* libcurl sends the host */
		add_header(t->easy, headers[i].name, headers[i].value);
	add_header(t->easy, "Authorization", authorization);
}

static void set_condition(struct s3_easy *easy, const struct s3_transfer *t)
{
	char tag[S3_TAG];
	size_t length = strlen(t->match);
	bool bare = t->by->store->bare && *t->match == '"' && length > 2;
	if (!length)
		return;
	snprintf(tag, sizeof(tag), "%.*s", (int)(bare ? length - 2 : length), t->match + bare);
	add_header(easy, *tag == '*' ? "If-None-Match" : "If-Match", tag);
}

static void set_body(struct s3_easy *easy, const struct s3_transfer *t)
{
	curl_easy_setopt(easy->curl, CURLOPT_CUSTOMREQUEST, "PUT");
	curl_easy_setopt(easy->curl, CURLOPT_POSTFIELDS, t->body_size ? t->body : "");
	curl_easy_setopt(easy->curl, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)t->body_size);
	curl_easy_setopt(easy->curl, CURLOPT_UPLOAD_BUFFERSIZE, 1L << 20);
	add_header(easy, "Content-Type", "application/octet-stream");
	add_header(easy, "Expect", "");
	set_condition(easy, t);
}

static void set_method(struct s3_easy *easy, const struct s3_transfer *t)
{
	char range[48];
	if (t->method == S3_PUT)
		set_body(easy, t);
	else if (t->method == S3_HEAD)
		curl_easy_setopt(easy->curl, CURLOPT_NOBODY, 1L);
	else if (t->method == S3_DELETE)
		curl_easy_setopt(easy->curl, CURLOPT_CUSTOMREQUEST, "DELETE");
	if (t->method == S3_GET && t->length) {
		snprintf(range, sizeof(range), "%" PRIu32 "-%" PRIu32, t->offset,
			t->offset + t->length - 1);
		curl_easy_setopt(easy->curl, CURLOPT_RANGE, range);
	}
}

static void set_limits(struct s3_link *link, const struct s3_transfer *t, uint64_t now)
{
	CURL *curl = t->easy->curl;
	uint64_t timeout = link->store->options->timeout;
	long left = t->until_ns > now ? (long)((t->until_ns - now) / 1000000) + 1 : 1;
	long stalled = (long)(timeout / 3000000000u);
	curl_easy_setopt(curl, CURLOPT_TIMEOUT_MS, left);
	curl_easy_setopt(
		curl, CURLOPT_CONNECTTIMEOUT_MS, left < CONNECT_MS_MAX ? left : CONNECT_MS_MAX);
	curl_easy_setopt(curl, CURLOPT_LOW_SPEED_LIMIT, 1L);
	curl_easy_setopt(curl, CURLOPT_LOW_SPEED_TIME, stalled ? stalled : 1L);
	curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
	curl_easy_setopt(curl, CURLOPT_TCP_NODELAY, 1L);
	curl_easy_setopt(curl, CURLOPT_BUFFERSIZE, 512L << 10);
	curl_easy_setopt(curl, CURLOPT_PATH_AS_IS, 1L);
	curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https");
	if (link->store->options->ca_file)
		curl_easy_setopt(curl, CURLOPT_CAINFO, link->store->options->ca_file);
}

static struct s3_easy *easy_take(struct s3_link *link)
{
	struct s3_easy *easy = SLIST_FIRST(&link->idle);
	if (easy) {
		SLIST_REMOVE_HEAD(&link->idle, link);
		curl_easy_reset(easy->curl);
		return easy;
	}
	easy = calloc(1, sizeof(*easy));
	must(easy);
	easy->curl = curl_easy_init();
	must(easy->curl);
	return easy;
}

static void easy_give(struct s3_link *link, struct s3_easy *easy)
{
	curl_slist_free_all(easy->headers);
	easy->headers = NULL;
	SLIST_INSERT_HEAD(&link->idle, easy, link);
}

static void forget_answer(struct s3_transfer *t)
{
	t->got = t->skipped = t->text_size = 0;
	if (t->text)
		*t->text = 0;
}

static void transmit(struct s3_link *link, struct s3_transfer *t)
{
	const struct s3_store *store = link->store;
	char path[4 * S3_NAME] = "", raw[S3_NAME + 300];
	struct s3_easy *easy = t->easy = easy_take(link);
	if (*t->name)
		snprintf(
			raw, sizeof(raw), "%s/%s/%s", store->base, store->options->prefix, t->name);
	else
		snprintf(raw, sizeof(raw), "%s/", store->base);
	s3_sign_encode(path, sizeof(path), raw, true);
	snprintf(easy->url, sizeof(easy->url), "%s%s%s%s", store->url, path, *t->query ? "?" : "",
		t->query);
	forget_answer(t);
	if (*link->signer.keys.access)
		add_signed(link, t, path);
	set_method(easy, t);
	set_limits(link, t, clock_now_ns());
	curl_easy_setopt(easy->curl, CURLOPT_URL, easy->url);
	curl_easy_setopt(easy->curl, CURLOPT_HTTPHEADER, easy->headers);
	curl_easy_setopt(easy->curl, CURLOPT_ERRORBUFFER, easy->words);
	curl_easy_setopt(easy->curl, CURLOPT_WRITEFUNCTION, take_body);
	curl_easy_setopt(easy->curl, CURLOPT_WRITEDATA, t);
	curl_easy_setopt(easy->curl, CURLOPT_PRIVATE, t);
	*easy->words = 0;
	t->tries++;
	link->under_way++;
	must(curl_multi_add_handle(link->multi, easy->curl) == CURLM_OK);
}

void s3_link_submit(struct s3_link *link, struct s3_transfer *t)
{
	t->by = link;
	t->until_ns = clock_now_ns() + link->store->options->timeout;
	t->tries = 0;
	*t->why = 0;
	t->backoff_ns = 0;
	transmit(link, t);
}

/* --- what an answer means ------------------------------------------------------------------- */

#define AGAIN 1

static int of_code(const char *code)
{
	static const struct {
		const char *code;
		int error;
	} known[] = {{"NoSuchKey", -ENOENT}, {"NoSuchBucket", -EIO}, {"InvalidRange", -ERANGE},
		{"PreconditionFailed", -ECANCELED}, {"QuotaExceeded", -ENOSPC},
		{"XMinioStorageFull", -ENOSPC}, {"MethodNotAllowed", -EROFS}};
	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
		if (strcmp(code, known[i].code) == 0)
			return known[i].error;
	return 0;
}

static int of_status(int status)
{
	switch (status) {
	case 404: return -ENOENT;
	case 416: return -ERANGE;
	case 412: return -ECANCELED;
	case 401:
	case 403: return -EACCES;
	case 405: return -EROFS;
	case 501: return -EOPNOTSUPP;
	case 507: return -ENOSPC;
	case 408:
	case 409: /* two conditional requests met: neither was done */
	case 425:
	case 429: return AGAIN;
	default: return status >= 500 ? AGAIN : -EIO;
	}
}

/* The server's clock is another one than ours: from now on we go by its. */
static bool clock_is_wrong(struct s3_store *store, const struct s3_transfer *t)
{
	int64_t ours = time(NULL) + atomic_load(&store->skew), ahead = t->date - ours;
	if (t->status != 403 || t->date <= 0 || t->tries > 3 || llabs(ahead) < SKEW_TOLERATED)
		return false;
	atomic_fetch_add(&store->skew, ahead);
	return true;
}

/* A try that ends because no time is left does not know why: the one before it does. */
static int judge(struct s3_link *link, struct s3_transfer *t, CURLcode rc, uint64_t now)
{
	char code[64] = "", message[256] = "";
	const char *at = t->text_size ? t->text : NULL, *from = at;
	if (rc != CURLE_OK) {
		if (!*t->why || rc != CURLE_OPERATION_TIMEDOUT || now < t->until_ns)
			snprintf(t->why, sizeof(t->why), "%s",
				*t->easy->words ? t->easy->words : curl_easy_strerror(rc));
		return rc == CURLE_PEER_FAILED_VERIFICATION || rc == CURLE_SSL_CACERT_BADFILE
			       ? -EACCES
			       : AGAIN;
	}
	if (t->status >= 200 && t->status < 300)
		return 0;
	s3_link_element(&at, "Code", code, sizeof(code));
	s3_link_element(&from, "Message", message, sizeof(message));
	snprintf(t->why, sizeof(t->why), "the server says: %s%s%s (status %d)", code,
		*message ? ": " : "", message, t->status);
	if (clock_is_wrong(link->store, t))
		return AGAIN;
	int error = of_code(code);
	return error ? error : of_status(t->status);
}

static bool is_worth_saying(int error)
{
	return error && error != -ENOENT && error != -ERANGE && error != -ECANCELED &&
	       error != -EOPNOTSUPP;
}

static void wait_a_while(struct s3_link *link, struct s3_transfer *t, uint64_t now)
{
	uint64_t longer = t->backoff_ns * 2;
	longer = longer < BACKOFF_MIN_NS ? BACKOFF_MIN_NS : longer;
	t->backoff_ns = longer > BACKOFF_MAX_NS ? BACKOFF_MAX_NS : longer;
	t->retry_ns = now + t->backoff_ns / 2 +
		      (uint64_t)random() % (t->backoff_ns / 2); /* not all at one time */
	count(link, S3_RETRIES);
	TAILQ_INSERT_TAIL(&link->waiting, t, link);
}

static void ended(struct s3_link *link, struct s3_transfer *t, CURLcode rc)
{
	uint64_t now = clock_now_ns();
	take_headers(t);
	int error = judge(link, t, rc, now);
	easy_give(link, t->easy);
	t->easy = NULL;
	if (error == AGAIN && now < t->until_ns) {
		wait_a_while(link, t, now);
		return;
	}
	snprintf(link->words, sizeof(link->words), "%s", t->why);
	if (error == AGAIN) {
		error = -ETIMEDOUT;
		snprintf(link->words, sizeof(link->words),
			"nothing in time, %u tries; the last: %s", t->tries, t->why);
	}
	if (is_worth_saying(error)) {
		s3_link_say(link, error, link->words);
	} else if (!error) {
		link->said = 0;
	}
	t->done(t, error);
}

/* --- the turn ------------------------------------------------------------------------------- */

bool s3_link_turn(struct s3_link *link)
{
	struct s3_transfer *t, *next;
	uint64_t now = TAILQ_EMPTY(&link->waiting) ? 0 : clock_now_ns();
	bool moved = false;
	int left;
	for (CURLMsg *m; link->under_way && (m = curl_multi_info_read(link->multi, &left));) {
		CURLcode rc = m->data.result;
		CURL *curl = m->easy_handle;
		curl_easy_getinfo(curl, CURLINFO_PRIVATE, &t);
		curl_multi_remove_handle(link->multi, curl);
		link->under_way--;
		ended(link, t, rc);
		moved = true;
	}
	for (t = TAILQ_FIRST(&link->waiting); t; t = next) {
		next = TAILQ_NEXT(t, link);
		if (t->retry_ns > now)
			continue;
		TAILQ_REMOVE(&link->waiting, t, link);
		transmit(link, t);
		moved = true;
	}
	return moved;
}

void s3_link_wake(struct s3_link *link)
{
	const struct s3_transfer *t;
	TAILQ_FOREACH (t, &link->waiting, link)
		peer_wake_at(link->peer, t->retry_ns);
}

void s3_link_wait(struct s3_link *link)
{
	int running;
	while (link->under_way || !TAILQ_EMPTY(&link->waiting)) {
		curl_multi_perform(link->multi, &running);
		if (!s3_link_turn(link))
			curl_multi_poll(link->multi, NULL, 0, 20, NULL);
	}
}

/* --- libcurl on libevent -------------------------------------------------------------------- */

/*
 * A server that sends headers and data apart (radosgw) keeps the data back until the headers are
 * acknowledged (Nagle), which the kernel puts off for 40 ms: it is told to do that at once.
 */
static void on_socket(evutil_socket_t fd, short what, void *whose)
{
	struct s3_link *link = whose;
	int running, mask = (what & EV_READ ? CURL_CSELECT_IN : 0) |
			    (what & EV_WRITE ? CURL_CSELECT_OUT : 0);
	if (what & EV_READ)
		setsockopt(fd, IPPROTO_TCP, TCP_QUICKACK, &(int){1}, sizeof(int));
	curl_multi_socket_action(link->multi, fd, mask, &running);
}

static void on_timer(evutil_socket_t fd, short what, void *whose)
{
	struct s3_link *link = whose;
	int running;
	(void)fd;
	(void)what;
	curl_multi_socket_action(link->multi, CURL_SOCKET_TIMEOUT, 0, &running);
}

static int socket_wanted(CURL *easy, curl_socket_t fd, int what, void *whose, void *had)
{
	struct s3_link *link = whose;
	struct event *event = had;
	short mask = EV_PERSIST | (what & CURL_POLL_IN ? EV_READ : 0) |
		     (what & CURL_POLL_OUT ? EV_WRITE : 0);
	(void)easy;
	if (event)
		event_free(event);
	event = what == CURL_POLL_REMOVE ? NULL : event_new(link->base, fd, mask, on_socket, link);
	if (event)
		event_add(event, NULL);
	curl_multi_assign(link->multi, fd, event);
	return 0;
}

static int timer_wanted(CURLM *multi, long ms, void *whose)
{
	struct s3_link *link = whose;
	struct timeval after = {.tv_sec = ms / 1000, .tv_usec = ms % 1000 * 1000};
	(void)multi;
	if (ms < 0)
		evtimer_del(link->timer);
	else
		evtimer_add(link->timer, &after);
	return 0;
}

int s3_link_open(struct s3_link *link, struct s3_store *store, struct peer *peer)
{
	link->store = store;
	link->peer = peer;
	link->signer = (struct s3_signer){.keys = store->keys, .region = store->options->region};
	TAILQ_INIT(&link->waiting);
	SLIST_INIT(&link->idle);
	link->multi = curl_multi_init();
	if (!link->multi)
		return -ENOMEM;
	long connections = (long)store->options->connections;
	curl_multi_setopt(link->multi, CURLMOPT_MAX_TOTAL_CONNECTIONS, connections);
	curl_multi_setopt(link->multi, CURLMOPT_MAXCONNECTS, connections);
	if (!link->base)
		return 0;
	link->timer = evtimer_new(link->base, on_timer, link);
	curl_multi_setopt(link->multi, CURLMOPT_SOCKETFUNCTION, socket_wanted);
	curl_multi_setopt(link->multi, CURLMOPT_SOCKETDATA, link);
	curl_multi_setopt(link->multi, CURLMOPT_TIMERFUNCTION, timer_wanted);
	curl_multi_setopt(link->multi, CURLMOPT_TIMERDATA, link);
	return link->timer ? 0 : -ENOMEM;
}

void s3_link_close(struct s3_link *link)
{
	struct s3_easy *easy;
	if (!link->multi)
		return;
	curl_multi_cleanup(link->multi); /* closes what is connected: the events go with it */
	while ((easy = SLIST_FIRST(&link->idle))) {
		SLIST_REMOVE_HEAD(&link->idle, link);
		curl_easy_cleanup(easy->curl);
		free(easy);
	}
	if (link->timer)
		event_free(link->timer);
	link->multi = NULL;
}
