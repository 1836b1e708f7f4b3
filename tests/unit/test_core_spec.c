/* SPDX-License-Identifier: Apache-2.0 */
/* PEER=ROLE,option=value,...: read as it was meant, or refused with one sentence. */
#include <errno.h>
#include <string.h>

#include "tests/unit/core_rig.h"

/* As core_rig.c has them. */
struct rig_options {
	uint64_t number;
	char *text;
	struct peer_list list;
	bool truth;
	uint64_t size, time, choice;
};

static struct host host;

static void register_all(void)
{
	memset(&host, 0, sizeof(host));
	module_register(&rig_store_ops);
	module_register(&rig_pass_ops);
}

UNIT(test_values)
{
	char why[WHY_SIZE] = "";
	register_all();
	ck_assert_msg(spec_host_add(&host,
			      "a=t_store,text=x\\,y=z\\,,list=1,list=tcp:[::1]:5,truth=yes,size=8K,"
			      "time=1us,choice=red",
			      why) == 0,
		"%s", why);
	struct host_peer *peer = &host.peers[0];
	const struct rig_options *o = peer->options;
	ck_assert_str_eq(peer->name, "a");
	ck_assert_str_eq(peer->role, "t_store");
	ck_assert_str_eq(o->text, "x,y=z,");
	ck_assert_uint_eq(o->list.count, 2); /* the initial item has gone */
	ck_assert_str_eq(o->list.item[1], "tcp:[::1]:5");
	ck_assert(o->truth);
	ck_assert_uint_eq(o->number, 4);
	ck_assert_uint_eq(o->size, 8192);
	ck_assert_uint_eq(o->time, 1000);
	ck_assert_uint_eq(o->choice, 0);
	spec_peer_free(peer);
}

UNIT(test_defaults_and_edges)
{
	char why[WHY_SIZE] = "";
	register_all();
	ck_assert_int_eq(spec_host_add(&host, "a=t_store", why), 0);
	const struct rig_options *o = host.peers[0].options;
	ck_assert_uint_eq(o->list.count, 1);
	ck_assert_str_eq(o->list.item[0], "first");
	ck_assert_str_eq(o->text, "none");
	ck_assert_int_eq(spec_host_add(&host, "p=t_pass,edge.below=a", why), 0);
	ck_assert_str_eq(host.peers[1].edge[0].target, "a");
	ck_assert_int_eq(spec_host_add(&host, "q=t_pass", why), 0);
	ck_assert_ptr_null(host.peers[2].edge[0].target);
	for (unsigned i = 0; i < 3; i++)
		spec_peer_free(&host.peers[i]);
}

UNIT(test_refused)
{
	static const struct {
		const char *spec, *says;
	} cases[] = {
		{"", "'' is not PEER=ROLE"},
		{"a", "'a' is not PEER=ROLE"},
		{"a=", "'a=' is not PEER=ROLE"},
		{"=t_store", "'' is not a peer's name"},
		{"-a=t_store", "'-a' is not a peer's name"},
		{"a/b=t_store", "'a/b' is not a peer's name"},
		{"abcdefghijabcdefghijabcdefghijab=t_store", "is not a peer's name"},
		{"good=t_store", "peer 'good' is named twice"},
		{"a=t_stor", "there is no role 't_stor'"},
		{"a=../t_store", "there is no role '../t_store'"},
		{"a=t_store,", "'' is not option=value"},
		{"a=t_store,number", "'number' is not option=value"},
		{"a=t_store,number=1", "peer 'a': option 'number' must be 2 to 64 things, not '1'"},
		{"a=t_store,nubmer=3",
			"role t_store has no option 'nubmer'; did you mean 'number'?"},
		{"a=t_store,number=3,number=4", "peer 'a': option 'number' is given twice"},
		{"a=t_store,edge.below=x", "role t_store has no option 'edge.below'"},
		{"a=t_pass,edge.belwo=x", "did you mean 'edge.below'?"},
		{"a=t_pass,edge.below=", "that is not a peer's name"},
		{"a=t_pass,edge.below=a", "leads back to itself"},
		{"a=t_pass,x=1", "role t_pass has no option 'x'; it takes edge.below"},
	};
	char why[WHY_SIZE] = "";
	register_all();
	ck_assert_int_eq(spec_host_add(&host, "good=t_store", why), 0);
	for (unsigned i = 0; i < countof(cases); i++) {
		ck_assert_int_lt(spec_host_add(&host, cases[i].spec, why), 0);
		ck_assert_msg(strstr(why, cases[i].says), "'%s': %s", cases[i].spec, why);
		ck_assert_uint_eq(host.peer_count, 1);
	}
	spec_peer_free(&host.peers[0]);
}

UNIT(test_too_many)
{
	char why[WHY_SIZE], spec[64];
	register_all();
	for (unsigned i = 0; i < HOST_PEERS_MAX; i++) {
		snprintf(spec, sizeof(spec), "p%u=t_store", i);
		ck_assert_int_eq(spec_host_add(&host, spec, why), 0);
	}
	ck_assert_int_lt(spec_host_add(&host, "one-more=t_store", why), 0);
	ck_assert(strstr(why, "more than 32 peers"));
	for (unsigned i = 0; i < HOST_PEERS_MAX; i++)
		spec_peer_free(&host.peers[i]);
}
