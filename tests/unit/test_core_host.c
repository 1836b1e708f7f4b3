/* SPDX-License-Identifier: Apache-2.0 */
/* The process: what keeps it from starting, what a stop waits for, what it says when asked. */
#include <errno.h>
#include <string.h>
#include <xseg/registry.h>

#include "tests/unit/core_rig.h"

static const char *const one_store[] = {"a=t_store", NULL};
static const char *const chain[] = {
	"a=t_store", "p=t_pass,edge.below=q", "q=t_pass,edge.below=a", NULL};

/* A second host in the same segment; 0, or the error with its sentence. */
static int second_start(
	struct rig *rig, struct host *host, const char *spec, unsigned lanes, char *why)
{
	const struct host_config config = {
		.segment = rig->seg.name, .lanes = lanes, .workers = 1, .drain_ns = 1000000000u};
	memset(host, 0, sizeof(*host));
	int error = spec_host_add(host, spec, why);
	ck_assert_msg(error == 0, "%s", why);
	return host_start(host, &config, why);
}

UNIT(test_refusals)
{
	static struct host host;
	static const struct {
		const char *spec;
		unsigned lanes;
		const char *says;
	} cases[] = {
		{"a=t_store", 1, "peer 'a' is running already"},
		{"b=t_pass", 1, "peer 'b': its edge 'below' leads nowhere"},
		{"b=t_store,number=13", 2, "13 is an unlucky number"},
		{"b=t_store,number=14", 1, "peer 'b' does not open: Permission denied"},
		{"b=t_store", 16, "has all its"},
	};
	struct rig rig;
	uint8_t byte[512] = {0};
	char why[WHY_SIZE];
	rig_begin(&rig, 0, 2, one_store);
	rig_ask(&rig, "a");
	for (unsigned i = 0; i < countof(cases); i++) {
		ck_assert_int_lt(second_start(&rig, &host, cases[i].spec, cases[i].lanes, why), 0);
		ck_assert_msg(strstr(why, cases[i].says), "case %u: %s", i, why);
		/* nothing is left of it, and the first one serves on */
		struct xseg_peer_view view;
		ck_assert_int_eq(xseg_peer_find(&rig.seg, "b", &view), -ENOENT);
		ck_assert_int_eq(rig_write(&rig, 0, byte, 512), 0);
	}
	/* and all lanes came back: as many as there are can be had again */
	ck_assert_int_eq(second_start(&rig, &host, "b=t_store", 5, why), 0);
	ck_assert(host_stop(&host, NULL));
	host_fini(&host);
	rig_end(&rig);
}

UNIT(test_no_segment)
{
	static struct host host;
	char why[WHY_SIZE];
	const struct host_config config = {.segment = "nosuch", .lanes = 1, .workers = 1};
	module_register(&rig_store_ops);
	ck_assert_int_eq(spec_host_add(&host, "a=t_store", why), 0);
	ck_assert_int_eq(host_start(&host, &config, why), -ENOENT);
	ck_assert(strstr(why, "nosuch"));
	host_fini(&host);
}

/* The order of stops is the pipeline's, whatever the command line's was. */
UNIT(test_order)
{
	struct rig rig;
	rig_begin(&rig, 0, 1, chain);
	ck_assert_str_eq(rig.host.order[0]->name, "p");
	ck_assert_str_eq(rig.host.order[1]->name, "q");
	ck_assert_str_eq(rig.host.order[2]->name, "a");
	rig_end(&rig);
}

/* Edges stay in the segment: the next start needs no option; a later option moves them. */
UNIT(test_edges_stay)
{
	static struct host host;
	struct rig rig;
	char why[WHY_SIZE] = "";
	uint8_t byte[512] = {9};
	rig_begin(&rig, 0, 1, one_store);
	ck_assert_int_eq(second_start(&rig, &host, "p=t_pass,edge.below=later", 1, why), 0);
	ck_assert(host_stop(&host, NULL));
	host_fini(&host);
	ck_assert_int_eq(second_start(&rig, &host, "p=t_pass,edge.below=a", 1, why), 0);
	ck_assert(host_stop(&host, NULL));
	host_fini(&host);
	ck_assert_msg(second_start(&rig, &host, "p=t_pass", 1, why) == 0, "%s", why);
	rig_ask(&rig, "p");
	ck_assert_int_eq(rig_write(&rig, 0, byte, 512), 0);
	ck_assert(rig_holds(&rig, "a", 0, byte, 512));
	ck_assert(host_stop(&host, NULL));
	host_fini(&host);
	rig_end(&rig);
}

/* What was sent to a port before anybody served it is served by the first who does. */
UNIT(test_sent_before)
{
	static struct host host;
	static struct client_request requests[40];
	struct rig rig;
	struct client_request *done;
	char why[WHY_SIZE] = "";
	uint32_t port;
	rig_begin(&rig, 0, 1, one_store);
	ck_assert_int_eq(xseg_port_reserve(&rig.seg, "later", &port), 0);
	rig_ask(&rig, "later");
	for (unsigned i = 0; i < countof(requests); i++) {
		requests[i] = (struct client_request){
			.op = XSEG_OP_DELETE, .key = {.volume = 1, .object = i}};
		ck_assert_int_eq(client_start(&rig.client, &requests[i]), 0);
	}
	ck_assert_int_eq(second_start(&rig, &host, "later=t_store", 3, why), 0);
	for (unsigned i = 0; i < countof(requests); i++) {
		ck_assert_int_eq(client_collect(&rig.client, &done), 0);
		ck_assert_int_eq(done->result, done->key.object == 13 ? -ESTALE : 0);
	}
	ck_assert(host_stop(&host, NULL));
	host_fini(&host);
	rig_end(&rig);
}

static bool in_a_hurry(void) { return true; }

/* A stop waits for what is in flight, unless somebody is in a hurry or the limit is over. */
UNIT(test_drain)
{
	struct rig rig;
	struct client_request request = {.op = XSEG_OP_PREFETCH, .key = {.volume = 1}};
	struct client_request *done;
	rig_begin(&rig, 0, 2, chain);
	struct rig_store *store = rig_store(&rig, "a");
	rig_ask(&rig, "p");
	atomic_store(&store->hold, true);
	ck_assert_int_eq(client_start(&rig.client, &request), 0);
	RIG_UNTIL(rig_jobs(&rig, "a") == 1);
	ck_assert(host_stop(&rig.host, in_a_hurry) == false);
	rig.host.config.drain_ns = 200000000;
	ck_assert(host_stop(&rig.host, NULL) == false);
	ck_assert_uint_eq(store->stops, 2);
	atomic_store(&store->hold, false);
	rig.host.config.drain_ns = 120000000000u;
	ck_assert(host_stop(&rig.host, NULL) == true);
	ck_assert_int_eq(client_collect(&rig.client, &done), 0);
	ck_assert_int_eq(done->result, 0);
	ck_assert_uint_eq(store->stops, 2); /* each shard was asked once */
	rig_end(&rig);
}

UNIT(test_dump)
{
	struct rig rig;
	char text[8192] = "";
	struct client_request request = {
		.op = XSEG_OP_PREFETCH, .key = {.volume = 1}, .offset = 1536};
	rig_begin(&rig, 0, 2, chain);
	rig_ask(&rig, "a");
	atomic_store(&rig_store(&rig, "a")->hold, true);
	ck_assert_int_eq(client_start(&rig.client, &request), 0);
	RIG_UNTIL(rig_jobs(&rig, "a") == 1);
	FILE *out = fmemopen(text, sizeof(text) - 1, "w");
	host_dump(&rig.host, out);
	fclose(out);
	ck_assert(strstr(text, "lane 0"));
	ck_assert(strstr(text, "lane 1"));
	ck_assert(strstr(text, "peer q (t_pass) shard 1: 0 jobs"));
	ck_assert(strstr(text, "job: prefetch"));
	ck_assert(strstr(text, "offset 1536"));
	atomic_store(&rig_store(&rig, "a")->hold, false);
	rig_end(&rig);
}
