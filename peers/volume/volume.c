/* SPDX-License-Identifier: Apache-2.0 */
/* The composer: what it is called, what it can be told, and who handles what. */
#include "peers/volume/volume.h"

#include <base/clock.h>
#include <base/size.h>
#include <errno.h>
#include <string.h>

static const struct peer_option volume_options[] = {
	OPTION_SIZE(struct volume_options, object_size, "object-size", .min = XSEG_PAGE,
		.max = XSEG_OBJECT_MAX, .initial = "4M", .unit = "bytes",
		.help = "size of the objects of new volumes: a power of two"),
	OPTION_LIST(struct volume_options, fixed, "fixed", .unit = "NAME:SIZE",
		.help = "NAME:SIZE, a volume without a record: for stores that keep none"),
	OPTION_END,
};

static const char *const volume_edges[] = {"store", NULL};

static const struct xseg_counter volume_counters[] = {
	[VOLUME_FORWARDED] = {"forwarded", "", "requests handed on as they are, to one object"},
	[VOLUME_SPLIT] = {"split", "", "requests that lay in several objects"},
	[VOLUME_HOLES] = {"holes", "", "objects found absent, answered without the store"},
	[VOLUME_LOADS] = {"loads", "", "volumes read from the store"},
	[VOLUME_TIDIED] = {"tidied", "", "records deleted that a killed composer left half made"},
	{NULL, NULL, NULL},
};

size_t volume_fixed_name(const char *text, char name[VOLUME_NAME_LENGTH_MAX + 1])
{
	const char *colon = strrchr(text, ':');
	size_t length = colon ? (size_t)(colon - text) : 0;
	if (length > VOLUME_NAME_LENGTH_MAX)
		length = 0;
	memcpy(name, text, length);
	name[length] = 0;
	return length;
}

static int add_fixed(struct peer *peer, const char *text, char *why, size_t why_size)
{
	const struct volume_options *options = peer->options;
	struct volume_record record = {
		.object_size = (uint32_t)options->object_size, .state = XSEG_VOLUME_READY};
	size_t length = volume_fixed_name(text, record.name);
	if (length == 0 || size_parse(text + length + 1, &record.size) != 0) {
		snprintf(why, why_size, "fixed=%s: write NAME:SIZE, as in disk0:10G", text);
		return -EINVAL;
	}
	record.id = volume_name_hash(record.name);
	int rc = volume_record_check(&record);
	if (rc == 0)
		rc = volume_table_add_fixed(peer->shared, &record);
	if (rc == -EINVAL)
		snprintf(why, why_size,
			"fixed=%s: the size must be a multiple of %u and not 0, the name UTF-8 "
			"without '/' and control characters",
			text, XSEG_SECTOR);
	else if (rc != 0)
		snprintf(why, why_size, "fixed=%s: %s", text,
			rc == -EEXIST ? "there is one of that name already" : strerror(-rc));
	return rc;
}

static int volume_open(struct peer *first, char *why, size_t why_size)
{
	const struct volume_options *options = first->options;
	if (options->object_size & (options->object_size - 1)) {
		snprintf(why, why_size, "object-size must be a power of two from 4K to 4M");
		return -EINVAL;
	}
	struct volume_shared *shared = first->shared;
	shared->started_ns = clock_now_ns();
	int rc = volume_table_open(shared);
	if (rc != 0) {
		snprintf(why, why_size, "mutex: %s", strerror(-rc));
		return rc;
	}
	for (size_t i = 0; rc == 0 && i < options->fixed.count; i++)
		rc = add_fixed(first, options->fixed.item[i], why, why_size);
	if (rc != 0)
		volume_table_close(first->shared);
	return rc;
}

static void volume_close(struct peer *first) { volume_table_close(first->shared); }

static int volume_start(struct peer *peer, char *why, size_t why_size)
{
	struct volume_shard *shard = peer->state;
	TAILQ_INIT(&shard->loads);
	int rc = volume_cache_open(shard);
	if (rc != 0)
		snprintf(why, why_size, "no memory");
	return rc;
}

static void volume_finish(struct peer *peer) { volume_cache_close(peer); }

static const struct peer_ops volume_ops = {
	.name = "volume",
	.summary = "makes volumes of the objects in a store",
	.description =
		"The composer keeps a record of each volume in the store below it and finds the "
		"object that a request lies in. A request that lies in one object is handed on; "
		"one that does not is split and its answers joined. What was never written is "
		"answered with zeros without asking the store.\n\n"
		"One composer at a time may serve a store: what it knows of holes and of who has a "
		"volume open is its own.",
	.options = volume_options,
	.options_size = sizeof(struct volume_options),
	.state_size = sizeof(struct volume_shard),
	.shared_size = sizeof(struct volume_shared),
	.edges = volume_edges,
	.counters = volume_counters,
	.open = volume_open,
	.close = volume_close,
	.start = volume_start,
	.finish = volume_finish,
	.idle = volume_tidy_idle,
	.dump = volume_table_dump,
	.on =
		{
			[XSEG_OP_READ] = volume_io_read,
			[XSEG_OP_WRITE] = volume_io_write,
			[XSEG_OP_ZERO] = volume_io_zero,
			[XSEG_OP_DISCARD] = volume_io_discard,
			[XSEG_OP_FLUSH] = volume_io_flush,
			[XSEG_OP_PREFETCH] = volume_io_prefetch,
			[XSEG_OP_STATUS] = volume_status,
			[XSEG_OP_OPEN] = volume_admin_open,
			[XSEG_OP_CLOSE] = volume_admin_close,
			[XSEG_OP_INFO] = volume_admin_info,
			[XSEG_OP_LIST] = volume_list,
			[XSEG_OP_CREATE] = volume_admin_create,
			[XSEG_OP_UPDATE] = volume_admin_update,
			[XSEG_OP_REMOVE] = volume_remove,
		},
};
PEER_MODULE(volume_ops);
