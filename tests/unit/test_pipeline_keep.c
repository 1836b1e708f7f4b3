/* SPDX-License-Identifier: Apache-2.0 */
/* How processes are kept: keys of hosts and peers, what follows from them, and mistakes. */
#include <stdlib.h>
#include <string.h>

#include "tests/lib/unit.h"
#include "tools/pipeline/pipeline_keep.h"

#define SECOND 1000000000ull

static struct pipeline pipeline;
static struct fault fault;

static int load(const char *text) { return pipeline_load_text(&pipeline, text, "p.conf", &fault); }

static struct pipeline_keep keep_of(const char *peer)
{
	struct pipeline_keep keep;
	const struct pipeline_peer *found = pipeline_peer_find(&pipeline, peer);
	ck_assert_ptr_nonnull(found);
	ck_assert_int_eq(pipeline_keep_read(&pipeline, found->host, &keep, &fault), 0);
	return keep;
}

static void refused(const char *text, const char *why)
{
	ck_assert_int_eq(load(text), -FAULT_USAGE);
	ck_assert_msg(strstr(fault.message, why), "%s", fault.message);
	pipeline_free(&pipeline);
}

UNIT(test_defaults)
{
	ck_assert_int_eq(load("[peer a]\nrole=r\n"), 0);
	struct pipeline_keep keep = keep_of("a");
	ck_assert_int_eq(keep.restart, PIPELINE_RESTART_ALWAYS);
	ck_assert_uint_eq(keep.delay_ns, 0);
	ck_assert_uint_eq(keep.delay_max_ns, 5 * SECOND);
	ck_assert_uint_eq(keep.limit, 10);
	ck_assert_uint_eq(keep.window_ns, 60 * SECOND);
	ck_assert_uint_eq(keep.watchdog_ns, 10 * SECOND);
	ck_assert(!keep.watchdog_restarts);
	ck_assert_uint_eq(keep.request_ns, 10 * SECOND);
	pipeline_free(&pipeline);
}

UNIT(test_all)
{
	ck_assert_int_eq(load("[host h]\nlanes=2\nrestart=on-failure\nrestart-delay=20ms\n"
			      "restart-delay-max=0\nrestart-limit=0\nrestart-window=2m\n"
			      "[peer a]\nrole=r\nhost=h\nwatchdog=0\nwatchdog-action=restart\n"
			      "[peer b]\nrole=r\nhost=h\nrequest-limit=0s\nrestart=on-failure\n"
			      "[peer c]\nrole=r\nrestart=never\n"),
		0);
	struct pipeline_keep keep = keep_of("b");
	ck_assert_int_eq(keep.restart, PIPELINE_RESTART_FAILURE);
	ck_assert_uint_eq(keep.delay_ns, 20000000);
	ck_assert_uint_eq(keep.delay_max_ns, 0);
	ck_assert_uint_eq(keep.limit, 0);
	ck_assert_uint_eq(keep.window_ns, 120 * SECOND);
	ck_assert_uint_eq(keep.watchdog_ns, 0);
	ck_assert(keep.watchdog_restarts);
	ck_assert_uint_eq(keep.request_ns, 0);
	ck_assert_int_eq(keep_of("c").restart, PIPELINE_RESTART_NEVER);
	pipeline_free(&pipeline);
}

UNIT(test_mistakes)
{
	refused("[host a]\nrestart=sometimes\n[peer a]\nrole=r\n",
		"p.conf:2: restart=sometimes: write always, on-failure or never");
	refused("[peer a]\nrole=r\nrestart-limit=101\n", "p.conf:3: restart-limit=101");
	refused("[peer a]\nrole=r\nrestart-limit=-1\n", "restart-limit=-1");
	refused("[peer a]\nrole=r\nrestart-window=0\n", "restart-window=0");
	refused("[peer a]\nrole=r\nrestart-delay=soon\n", "restart-delay=soon");
	refused("[peer a]\nrole=r\nwatchdog=2s\n", "watchdog=2s: write a time from 2500ms");
	refused("[peer a]\nrole=r\nwatchdog-action=shout\n", "write event or restart");
	refused("[host h]\n[peer a]\nrole=r\nhost=h\nwatchdog=5s\n[peer b]\nrole=r\nhost=h\n"
		"watchdog=6s\n",
		"p.conf:9: watchdog=6s: the same process is given watchdog=5s too");
	refused("[host a]\nfallback.x=b\n[peer a]\nrole=r\n", "unknown key 'fallback.x'");
	refused("[peer a]\nrole=r\nfallback.x=b\n", "fallback.x leads to 'b'");
}

/* The second choice is known, is started before, and no program sees any of these keys. */
UNIT(test_fallback)
{
	ck_assert_int_eq(load("[peer a]\nrole=r\nedge.x=b\nfallback.x=c\nrestart=never\nsize=1\n"
			      "[peer b]\nrole=r\n[peer c]\nrole=r\n"),
		0);
	ck_assert_str_eq(pipeline_keep_second(&pipeline, "a", "x"), "c");
	ck_assert_ptr_null(pipeline_keep_second(&pipeline, "a", "y"));
	ck_assert_ptr_null(pipeline_keep_second(&pipeline, "nix", "x"));
	ck_assert_str_eq(pipeline.hosts[pipeline.order[2]].name, "a");
	char *text = pipeline_text_argument(pipeline_peer_find(&pipeline, "a"));
	ck_assert_str_eq(text, "a=r,edge.x=b,size=1");
	free(text);
	/* but a file does */
	text = pipeline_write_text(&pipeline, &fault);
	ck_assert_ptr_nonnull(text);
	pipeline_free(&pipeline);
	ck_assert_int_eq(load(text), 0);
	ck_assert_str_eq(pipeline_keep_second(&pipeline, "a", "x"), "c");
	ck_assert_int_eq(keep_of("a").restart, PIPELINE_RESTART_NEVER);
	pipeline_free(&pipeline);
	free(text);
}

/* A host's keys survive being written as a file. */
UNIT(test_written)
{
	ck_assert_int_eq(load("[host h]\nwatchdog=30s\n[peer a]\nrole=r\nhost=h\n"), 0);
	char *text = pipeline_write_text(&pipeline, &fault);
	pipeline_free(&pipeline);
	ck_assert_int_eq(load(text), 0);
	ck_assert_uint_eq(keep_of("a").watchdog_ns, 30 * SECOND);
	pipeline_free(&pipeline);
	free(text);
}
