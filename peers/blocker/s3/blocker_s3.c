/* SPDX-License-Identifier: Apache-2.0 */
/* The S3 blocker: objects as objects of a bucket. */
#include <base/log.h>
#include <base/name.h>
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xseg/layout.h>
#include <xxhash.h>

#include "peers/blocker/s3/s3.h"

static const char *const style_choices[] = {"path", "host", NULL};

static const struct peer_option s3_options[] = {
	OPTION_TEXT(struct s3_options, endpoint, "endpoint", .max = 250,
		.help = "http://HOST[:PORT] or https://...; Amazon's of the region otherwise"),
	OPTION_TEXT(struct s3_options, bucket, "bucket", .required = true, .max = 63,
		.help = "the bucket, which has to be there"),
	OPTION_TEXT(struct s3_options, prefix, "prefix", .initial = "skerry", .max = 128,
		.help = "first part of all names: stores in one bucket are kept apart by it"),
	OPTION_TEXT(struct s3_options, region, "region", .initial = "us-east-1", .max = 64,
		.help = "region of the bucket, as signatures name it"),
	OPTION_CHOICE(struct s3_options, style, "style", .choices = style_choices,
		.initial = "path", .help = "where the bucket's name stands: path or host of URLs"),
	OPTION_TEXT(struct s3_options, key_file, "key-file",
		.help = "file with the access key, the secret key and, of a session, the token, a "
			"line each; else AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and "
			"AWS_SESSION_TOKEN of the environment"),
	OPTION_TEXT(struct s3_options, ca_file, "ca-file",
		.help = "certificates of those who may vouch for the server; the system's "
			"otherwise"),
	OPTION_BOOL(struct s3_options, read_only, "read-only",
		.help = "writes nothing; a public bucket then needs no keys"),
	OPTION_BOOL(struct s3_options, takeover, "takeover",
		.help = "takes the prefix from a writer that is gone for good"),
	OPTION_TIME(struct s3_options, timeout, "timeout", .min = 1000000000, .initial = "30s",
		.help = "a request that has not been done after so long, tried again and again, "
			"fails: ETIMEDOUT"),
	OPTION_COUNT(struct s3_options, connections, "connections", .min = 1, .max = 1024,
		.initial = "16",
		.help = "to the server, of each lane; so many objects are written "
			"at once"),
	OPTION_SIZE(struct s3_options, memory, "memory", .initial = "64M", .unit = "bytes",
		.help = "for what was written lately: to change a part of an object needs the "
			"rest of it"),
	OPTION_END,
};

static const struct xseg_counter s3_counters[] = {
	[S3_PUTS] = {"puts", "", "objects put"},
	[S3_GATHERED] = {"gathered", "", "writes that went with the PUT of another one"},
	[S3_FETCHES] = {"fetches", "", "whole objects read, to change a part"},
	[S3_RETRIES] = {"retries", "", "requests sent again"},
	[S3_CONFLICTS] = {"conflicts", "", "PUTs refused since the object had changed"},
	[S3_ERRORS] = {"errors", "", "requests that the server failed"},
	[S3_COUNTERS] = {NULL, NULL, NULL},
};

/* --- options ---------------------------------------------------------------------------------- */

static bool consists_of(const char *text, const char *more)
{
	for (; *text; text++)
		if (!isalnum((unsigned char)*text) && !strchr(more, *text))
			return false;
	return true;
}

static int check_names(const struct s3_options *options, char *why, size_t why_size)
{
	size_t length = strlen(options->prefix);
	if (strlen(options->bucket) < 3 || !consists_of(options->bucket, ".-_")) {
		snprintf(why, why_size,
			"bucket: '%s' is not the name of one: 3 to 63 letters, digits, '.', '-'",
			options->bucket);
		return -EINVAL;
	}
	if (!length || !consists_of(options->prefix, "._-/") || options->prefix[0] == '/' ||
		options->prefix[length - 1] == '/' || strstr(options->prefix, "//")) {
		snprintf(why, why_size,
			"prefix: '%s' must be letters, digits, '.', '_', '-', with single '/' "
			"between them",
			options->prefix);
		return -EINVAL;
	}
	return 0;
}

static int find_place(struct s3_store *store, char *why, size_t why_size)
{
	const struct s3_options *options = store->options;
	char amazon[128], *endpoint = options->endpoint;
	snprintf(amazon, sizeof(amazon), "https://s3.%s.amazonaws.com", options->region);
	if (!endpoint)
		endpoint = amazon;
	const char *host = strstr(endpoint, "://");
	size_t length = host ? strcspn(host + 3, "/?#@") : 0;
	if ((strncmp(endpoint, "http://", 7) && strncmp(endpoint, "https://", 8)) || !length ||
		strlen(host + 3 + length) > 1) {
		snprintf(why, why_size,
			"endpoint: '%s' must be http://HOST[:PORT] or https://HOST[:PORT]",
			endpoint);
		return -EINVAL;
	}
	bool in_host = options->style == S3_STYLE_HOST;
	snprintf(store->host, sizeof(store->host), "%s%s%.*s", in_host ? options->bucket : "",
		in_host ? "." : "", (int)length, host + 3);
	snprintf(store->url, sizeof(store->url), "%.*s://%s", (int)(host - endpoint), endpoint,
		store->host);
	snprintf(store->base, sizeof(store->base), "%s%s", in_host ? "" : "/",
		in_host ? "" : options->bucket);
	return 0;
}

static void take_line(FILE *in, char *to, size_t size)
{
	char line[4096] = "";
	if (!fgets(line, sizeof(line), in))
		return;
	line[strcspn(line, "\r\n")] = 0;
	snprintf(to, size, "%s", line);
}

static void take_variable(const char *name, char *to, size_t size)
{
	const char *value = getenv(name);
	snprintf(to, size, "%s", value ? value : "");
}

static int read_keys(struct s3_store *store, char *why, size_t why_size)
{
	const struct s3_options *options = store->options;
	struct s3_keys *keys = &store->keys;
	if (options->key_file) {
		FILE *in = fopen(options->key_file, "re");
		if (!in) {
			int error = -errno;
			snprintf(why, why_size, "key-file: '%s': %s", options->key_file,
				strerror(-error));
			return error;
		}
		take_line(in, keys->access, sizeof(keys->access));
		take_line(in, keys->secret, sizeof(keys->secret));
		take_line(in, keys->token, sizeof(keys->token));
		fclose(in);
	} else {
		take_variable("AWS_ACCESS_KEY_ID", keys->access, sizeof(keys->access));
		take_variable("AWS_SECRET_ACCESS_KEY", keys->secret, sizeof(keys->secret));
		take_variable("AWS_SESSION_TOKEN", keys->token, sizeof(keys->token));
	}
	if (*keys->access && *keys->secret)
		return 0;
	if (options->read_only && !options->key_file)
		return 0;
	snprintf(why, why_size, "key-file: %s has no access key and secret key, a line each%s",
		options->key_file ? options->key_file : "is not given, and the environment",
		options->key_file ? "" : "; only a public bucket with read-only=yes needs none");
	return -EINVAL;
}

/* The same after a restart of peer, segment or machine, and nobody else's. A machine that has no
   id cannot be known again: there it is the same as long as the segment is. */
static void name_owner(struct s3_store *store, const struct peer *peer)
{
	char machine[NAME_MACHINE], host[65] = "", text[256];
	name_machine(machine);
	gethostname(host, sizeof(host) - 1);
	snprintf(text, sizeof(text), "%s/%s/%s/%s", machine, host, peer_segment(peer)->name,
		peer->name);
	uint64_t who = *machine ? XXH3_64bits(text, strlen(text)) : home_writer(peer);
	snprintf(store->owner, sizeof(store->owner), "%016" PRIx64 " (%.30s/%.30s/%.30s)", who,
		host, peer_segment(peer)->name, peer->name);
}

/* --- the peer --------------------------------------------------------------------------------- */

static int s3_open(struct peer *first, char *why, size_t why_size)
{
	struct s3_store *store = first->shared;
	struct s3_link link = {.store = store};
	char place[1024];
	store->options = first->options;
	int error = check_names(store->options, why, why_size);
	error = error ? error : find_place(store, why, why_size);
	error = error ? error : read_keys(store, why, why_size);
	if (error)
		return error;
	name_owner(store, first);
	if (curl_global_init(CURL_GLOBAL_DEFAULT))
		return -ENOMEM;
	error = s3_link_open(&link, store, first);
	error = error ? error : s3_store_open(&link, why, why_size);
	s3_link_close(&link);
	snprintf(place, sizeof(place), "%s%s/%s", store->url, store->base, store->options->prefix);
	return error ? error
		     : home_check(first, place, store->identity, store->home, why, why_size);
}

static void s3_close(struct peer *first)
{
	struct s3_store *store = first->shared;
	struct s3_link link = {.store = store};
	if (*store->home)
		unlink(store->home);
	if (store->options && !store->options->read_only && *store->home &&
		!s3_link_open(&link, store, first))
		s3_store_leave(&link);
	s3_link_close(&link);
}

static int s3_start(struct peer *peer, char *why, size_t why_size)
{
	struct s3_shard *shard = peer->state;
	shard->peer = peer;
	shard->store = peer->shared;
	shard->link.base = peer_event_base(peer);
	s3_object_start(shard);
	int error = s3_link_open(&shard->link, shard->store, peer);
	if (error)
		snprintf(why, why_size, "libcurl does not start: %s", strerror(-error));
	return error;
}

static void s3_finish(struct peer *peer)
{
	struct s3_shard *shard = peer->state;
	s3_link_close(&shard->link);
	s3_object_finish(shard);
}

static bool s3_poll(struct peer *peer)
{
	struct s3_shard *shard = peer->state;
	bool moved = s3_link_turn(&shard->link);
	return s3_object_turn(shard) || moved;
}

static bool s3_idle(struct peer *peer)
{
	const struct s3_shard *shard = peer->state;
	return !shard->asked; /* the look that a writer has now and then */
}

static bool s3_sleep(struct peer *peer)
{
	struct s3_shard *shard = peer->state;
	/* the event loop may have ended a transfer since it was polled */
	bool moved = s3_poll(peer);
	s3_link_wake(&shard->link);
	return !moved;
}

static void s3_flush(struct peer *peer, struct job *job)
{
	/* the server has all that was answered */
	(void)peer;
	job_complete(job, 0);
}

static const struct peer_ops s3_ops = {
	.name = "blocker_s3",
	.summary = "objects in an S3 bucket",
	.serves = "store",
	.description =
		"For what is cold or public, with a cache above: a write puts the whole object. "
		"One peer writes to a prefix; another one is refused until that has left.\n",
	.options = s3_options,
	.options_size = sizeof(struct s3_options),
	.counters = s3_counters,
	.state_size = sizeof(struct s3_shard),
	.shared_size = sizeof(struct s3_store),
	.open = s3_open,
	.close = s3_close,
	.start = s3_start,
	.finish = s3_finish,
	.idle = s3_idle,
	.poll = s3_poll,
	.sleep = s3_sleep,
	.on = {[XSEG_OP_READ] = s3_op_take,
		[XSEG_OP_WRITE] = s3_op_take,
		[XSEG_OP_ZERO] = s3_op_take,
		[XSEG_OP_DISCARD] = s3_op_take,
		[XSEG_OP_STATUS] = s3_op_take,
		[XSEG_OP_COPY] = s3_op_take,
		[XSEG_OP_DELETE] = s3_op_take,
		[XSEG_OP_CAS] = s3_op_take,
		[XSEG_OP_INFO] = s3_op_take,
		[XSEG_OP_LIST] = s3_op_take,
		[XSEG_OP_FLUSH] = s3_flush,
		[XSEG_OP_PREFETCH] = s3_flush},
};
PEER_MODULE(s3_ops);
