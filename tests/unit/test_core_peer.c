/* SPDX-License-Identifier: Apache-2.0 */
/* Shards: counters and histograms by name, their beginning and end, ways to end the host. */
#include <errno.h>
#include <signal.h>
#include <string.h>

#include "tests/unit/core_rig.h"

static const char *const one_store[] = {"a=t_store", NULL};

static unsigned counter_named(const struct xseg_stats_block *block, const char *name)
{
	for (unsigned i = 0; i < block->counter_count; i++)
		if (!strcmp(block->names[i].name, name))
			return i;
	ck_abort_msg("no counter %s", name);
}

UNIT(test_counters)
{
	static uint8_t data[65536];
	struct rig rig;
	rig_begin(&rig, 0, 1, one_store);
	rig_ask(&rig, "a");
	for (unsigned i = 0; i < 9; i++)
		ck_assert_int_eq(rig_write(&rig, 0, data, 65536), 0);
	ck_assert_int_eq(rig_read(&rig, 0, data, 512), 0);
	ck_assert_int_eq(rig_do(&rig, XSEG_OP_FLUSH, 0, 0, NULL), 0);
	/* as a stranger sees them: by name */
	const struct xseg_stats_block *block = rig_peer(&rig, "a")->shards[0].peer.stats;
	static const struct {
		const char *name;
		uint64_t value;
	} want[] = {{"writes", 9}, {"write_bytes", 9 * 65536}, {"reads", 1}, {"read_bytes", 512},
		{"flushes", 1}, {"others", 0}, {"errors", 0}, {"refused", 0}};
	for (unsigned i = 0; i < countof(want); i++)
		ck_assert_msg(block->counters[counter_named(block, want[i].name)] == want[i].value,
			"%s", want[i].name);
	ck_assert_uint_eq(counter_named(block, "held"), PEER_COUNTER(0));
	ck_assert_str_eq(block->names[counter_named(block, "write_bytes")].unit, "B");
	/* nine writes in the histogram of writes, one flush in its own */
	uint64_t sums[XSEG_HISTOGRAMS] = {0};
	for (unsigned h = 0; h < XSEG_HISTOGRAMS; h++)
		for (unsigned i = 0; i < HISTOGRAM_BUCKETS; i++)
			sums[h] += block->histograms[h].counts[i];
	ck_assert_str_eq(block->histograms[1].name, "write_ns");
	ck_assert_uint_eq(sums[0], 1);
	ck_assert_uint_eq(sums[1], 9);
	ck_assert_uint_eq(sums[2], 1);
	ck_assert_uint_eq(sums[3], 0);
	rig_end(&rig);
}

/* What is in flight shows while it is, and no longer. */
UNIT(test_gauges)
{
	struct rig rig;
	struct client_request request = {.op = XSEG_OP_PREFETCH, .key = {.volume = 1}}, *done;
	rig_begin(&rig, 0, 1, one_store);
	rig_ask(&rig, "a");
	atomic_store(&rig_store(&rig, "a")->hold, true);
	ck_assert_int_eq(client_start(&rig.client, &request), 0);
	RIG_UNTIL(rig_counter(&rig, "a", CORE_JOBS) == 1);
	atomic_store(&rig_store(&rig, "a")->hold, false);
	ck_assert_int_eq(client_collect(&rig.client, &done), 0);
	RIG_UNTIL(rig_counter(&rig, "a", CORE_JOBS) == 0);
	rig_end(&rig);
}

UNIT(test_finish)
{
	struct rig rig;
	rig_begin(&rig, 0, 3, one_store);
	struct rig_store *store = rig_store(&rig, "a");
	ck_assert(host_stop(&rig.host, NULL));
	ck_assert_uint_eq(store->stops, 3);
	ck_assert_uint_eq(store->finished, 0); /* the shards live until the lanes end */
	host_fini(&rig.host);
	rig.serving = false;
	/* no block of counters is left behind */
	for (unsigned i = 0; i < XSEG_STATS_BLOCKS; i++)
		ck_assert_uint_eq(atomic_load(&rig.seg.stats[i].word), 0);
	rig_end(&rig);
}

/* --- ways to end the host ---------------------------------------------------------------- */

static void ender_delete(struct peer *peer, struct job *job)
{
	bool fatal = job->key.object == 1;
	job_complete(job, 0);
	if (fatal)
		peer_fatal(peer, "the listening socket broke: %s", strerror(EIO));
	else
		peer_stop_host(peer);
}

static const struct peer_ops ender_ops = {
	.name = "t_ender", .summary = "ends", .on = {[XSEG_OP_DELETE] = ender_delete}};

static int end_by(uint32_t object)
{
	static const char *const specs[] = {"e=t_ender", NULL};
	const struct timespec limit = {.tv_sec = 10};
	struct rig rig;
	sigset_t set;
	struct client_request request = {
		.op = XSEG_OP_DELETE, .key = {.volume = 1, .object = object}};
	module_register(&ender_ops);
	rig_begin(&rig, 0, 1, specs);
	rig_ask(&rig, "e");
	ck_assert_int_eq(client_do(&rig.client, &request), 0);
	sigemptyset(&set);
	sigaddset(&set, SIGUSR2);
	ck_assert_int_eq(sigtimedwait(&set, NULL, &limit), SIGUSR2);
	int status = atomic_load(&rig.host.status);
	rig_end(&rig);
	return status;
}

UNIT(test_stop_host) { ck_assert_int_eq(end_by(0), 0); }

UNIT(test_fatal) { ck_assert_int_eq(end_by(1), 1); }

/* --- a segment without room for more counters ------------------------------------------------ */

UNIT(test_no_room_for_counters)
{
	static struct xseg_stats_block *blocks[XSEG_STATS_BLOCKS];
	static struct host second;
	struct rig rig;
	char why[WHY_SIZE] = "";
	unsigned count = 0;
	rig_begin(&rig, 0, 1, one_store);
	struct host_peer *a = rig_peer(&rig, "a");
	while (count < XSEG_STATS_BLOCKS && xseg_stats_open(&rig.seg, a->record, a->epoch, 0, NULL,
						    0, NULL, 0, &blocks[count]) == 0)
		count++;
	const struct host_config config = {
		.segment = rig.seg.name, .lanes = 1, .workers = 1, .drain_ns = 1000000000u};
	ck_assert_int_eq(spec_host_add(&second, "b=t_store", why), 0);
	ck_assert_msg(host_start(&second, &config, why) == 0, "%s", why);
	rig_ask(&rig, "b"); /* it serves all the same */
	ck_assert_int_eq(rig_do(&rig, XSEG_OP_FLUSH, 0, 0, NULL), 0);
	ck_assert(host_stop(&second, NULL));
	host_fini(&second);
	while (count)
		xseg_stats_close(blocks[--count]);
	rig_end(&rig);
}
