/* SPDX-License-Identifier: Apache-2.0 */
/* What applying a file does: the least, in a safe order; and writing a pipeline as a file. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tests/lib/unit.h"
#include "tools/pipeline/pipeline_diff.h"
#include "tools/pipeline/pipeline_edit.h"
#include "tools/pipeline/pipeline_running.h"

#define HEAD "[segment]\nname = d\nsize = 64M\nlanes = 8\n"
#define MEM0 "[peer mem0]\nrole = memory\n"
#define VOL0 "[peer vol0]\nrole = volume\nhost = low\nedge.store = mem0\n"
#define NBD0 "[peer nbd0]\nrole = nbd\nlisten = unix:/a\nedge.volume = vol0\n"
#define ALL HEAD MEM0 VOL0 NBD0

static struct pipeline have, want;
static struct pipeline_plan plan;
static struct fault fault;

static void load(struct pipeline *pipeline, const char *text)
{
	ck_assert_msg(pipeline_load_text(pipeline, text, "t", &fault) == 0, "%s", fault.message);
}

/* "start mem1; restart low; switch vol0:store; stop mem0" */
static const char *diff(const char *from, const char *to)
{
	static char out[4096];
	load(&have, from);
	load(&want, to);
	ck_assert_int_eq(pipeline_diff(&have, &want, &plan, &fault), 0);
	out[0] = 0;
	for (unsigned i = 0; i < plan.count; i++) {
		size_t n = strlen(out);
		snprintf(out + n, sizeof(out) - n, "%s%s %s", n ? "; " : "",
			pipeline_diff_action_name(plan.steps[i].action), plan.steps[i].object);
	}
	pipeline_free(&have);
	pipeline_free(&want);
	return out;
}

UNIT(test_same)
{
	ck_assert_str_eq(diff(ALL, ALL), "");
	/* neither the order of sections nor of keys says anything */
	ck_assert_str_eq(diff(ALL, HEAD NBD0 MEM0
				 "[peer vol0]\nedge.store = mem0\nhost = low\nrole = volume\n"),
		"");
	ck_assert_str_eq(diff(ALL, "[segment]\nname = d\n" MEM0 VOL0 NBD0), "");
}

UNIT(test_start_and_stop)
{
	ck_assert_str_eq(diff(ALL, ALL "[peer m]\nrole = memory\n"), "start m");
	ck_assert_str_eq(diff(ALL "[peer m]\nrole = memory\n", ALL), "stop m");
	ck_assert(plan.steps[0].last);
	/* stores first, fronts first to go */
	ck_assert_str_eq(diff(HEAD MEM0, ALL), "start low; start nbd0");
	ck_assert_str_eq(diff(ALL, HEAD MEM0), "stop nbd0; stop low");
}

UNIT(test_restart)
{
	ck_assert_str_eq(diff(ALL, HEAD MEM0 VOL0 NBD0 "listen = tcp:1\n"), "restart nbd0");
	ck_assert_str_eq(plan.steps[0].reason, "nbd0: listen=unix:/a, tcp:1, was unix:/a");
	ck_assert_str_eq(diff(ALL, HEAD "[host low]\nlanes = 2\n" MEM0 VOL0 NBD0), "restart low");
	ck_assert_str_eq(diff(ALL, HEAD "[peer mem0]\nrole = null\n" VOL0 NBD0), "restart mem0");
	ck_assert_str_eq(plan.steps[0].reason, "mem0: role null, was memory");
	/* the order of a list does say something */
	ck_assert_str_eq(diff(ALL "listen = b\n", HEAD MEM0 VOL0
				 "[peer nbd0]\nrole = nbd\nlisten = b\nlisten = unix:/a\n"
				 "edge.volume = vol0\n"),
		"restart nbd0");
}

#define CACHE0 "[peer cache0]\nrole = cached\nedge.store = mem0\nsize = 8M\n"

/* How a cache began says nothing of one that runs, and is not saved. */
UNIT(test_begin)
{
	ck_assert_str_eq(diff(ALL CACHE0 "begin = passing\n", ALL CACHE0), "");
	ck_assert_str_eq(diff(ALL CACHE0, ALL CACHE0 "begin = caching\n"), "");
	ck_assert_str_eq(
		diff(ALL CACHE0 "begin = passing\n", ALL CACHE0 "age = 1s\n"), "restart cache0");
	ck_assert_str_eq(diff(ALL, HEAD MEM0 VOL0 NBD0 "begin = late\n"), "restart nbd0");
	load(&have, ALL CACHE0 "begin = passing\n");
	pipeline_running_begun(&have);
	char *text = pipeline_write_text(&have, &fault);
	ck_assert_ptr_nonnull(text);
	ck_assert_ptr_null(strstr(text, "begin"));
	ck_assert_ptr_nonnull(strstr(text, "size = 8M"));
	free(text);
	pipeline_free(&have);
}

UNIT(test_edges)
{
	const char *other = HEAD "[peer mem1]\nrole = memory\n"
				 "[peer vol0]\nrole = volume\nhost = low\nedge.store = mem1\n" NBD0;
	/* the new store serves before the edge moves, the old one goes after */
	ck_assert_str_eq(diff(ALL, other), "start mem1; switch vol0:store; stop mem0");
	ck_assert_str_eq(plan.steps[1].to, "mem1");
	ck_assert_str_eq(plan.steps[1].reason, "to mem1, was mem0");
}

/* a -> b -> c becomes a -> c -> b: whoever switched c first would close a circle. */
UNIT(test_edges_no_circle)
{
	const char *from = HEAD "[peer a]\nrole=r\nedge.x=b\n[peer b]\nrole=r\nedge.x=c\n"
				"[peer c]\nrole=r\nedge.x=m\n[peer m]\nrole=s\n";
	const char *to = HEAD "[peer c]\nrole=r\nedge.x=b\n[peer a]\nrole=r\nedge.x=c\n"
			      "[peer b]\nrole=r\nedge.x=m\n[peer m]\nrole=s\n";
	const char *steps = diff(from, to);
	const char *b = strstr(steps, "switch b:x"), *c = strstr(steps, "switch c:x");
	ck_assert_ptr_nonnull(b);
	ck_assert_ptr_nonnull(c);
	ck_assert_msg(b < c, "%s", steps);
	ck_assert_uint_eq(plan.count, 3);
}

UNIT(test_moves)
{
	/* vol0 into nbd0's process: both stop before either starts */
	ck_assert_str_eq(
		diff(ALL, HEAD MEM0
			"[peer vol0]\nrole = volume\nhost = nbd0\nedge.store = mem0\n" NBD0),
		"stop nbd0; stop low; start nbd0");
	ck_assert(!plan.steps[0].last);
	ck_assert(plan.steps[1].last);
	/* two that swap */
	ck_assert_str_eq(diff(HEAD "[peer a]\nrole=r\nhost=x\n[peer b]\nrole=r\nhost=y\n",
				 HEAD "[peer a]\nrole=r\nhost=y\n[peer b]\nrole=r\nhost=x\n"),
		"stop y; stop x; start y; start x");
}

/* A front of another name on the same socket: the old one lets go of it first. */
UNIT(test_replaced_front)
{
	ck_assert_str_eq(diff(ALL, HEAD MEM0 VOL0
				 "[peer nbd1]\nrole = nbd\nlisten = unix:/a\nedge.volume = vol0\n"),
		"stop nbd0; start nbd1");
	/* a store that is in use is never stopped before its successor serves */
	ck_assert_str_eq(
		diff(HEAD "[peer f]\nrole=file\ndir=/d\n[peer v]\nrole=volume\nedge.store=f\n",
			HEAD "[peer g]\nrole=file\ndir=/d\n[peer v]\nrole=volume\nedge.store=g\n"),
		"start g; switch v:store; stop f");
}

UNIT(test_settings)
{
	ck_assert_str_eq(diff(ALL, HEAD MEM0 "restart = never\n" VOL0 NBD0), "settings mem0");
	ck_assert_str_eq(
		diff(ALL, HEAD "[host low]\nwatchdog = 5s\n" MEM0 VOL0 NBD0), "settings low");
	/* with another reason to start anew they come along */
	ck_assert_str_eq(diff(ALL, HEAD "[host low]\nlanes = 3\nwatchdog = 5s\n" MEM0 VOL0 NBD0),
		"restart low");
}

UNIT(test_segment)
{
	ck_assert_str_eq(
		diff(ALL, "[segment]\nname = d\nsize = 128M\n" MEM0 VOL0 NBD0), "segment size");
	ck_assert_str_eq(diff(ALL, "[segment]\nname = e\nlanes = 9\n" MEM0 VOL0 NBD0),
		"segment lanes; segment name");
}

UNIT(test_down)
{
	load(&have, ALL);
	load(&want, ALL);
	pipeline_host_find(&have, "mem0")->down = true;
	ck_assert_int_eq(pipeline_diff(&have, &want, &plan, &fault), 0);
	ck_assert_uint_eq(plan.count, 1);
	ck_assert_int_eq(plan.steps[0].action, PIPELINE_START);
	ck_assert_str_eq(plan.steps[0].reason, "it is down");
	pipeline_free(&have);
	pipeline_free(&want);
}

/* --- written, and read again ------------------------------------------------------------ */

UNIT(test_round_trip)
{
	const char *text = HEAD "huge = /mnt/h\n"
				"[host low]\nlanes = 2\nworkers = 3\nrestart = never\n" MEM0 VOL0
				"x = a, b; c # d\n" NBD0 "listen = tcp:[::1]:1\n";
	load(&have, text);
	char *once = pipeline_write_text(&have, &fault);
	ck_assert_ptr_nonnull(once);
	load(&want, once);
	ck_assert_int_eq(pipeline_diff(&have, &want, &plan, &fault), 0);
	ck_assert_uint_eq(plan.count, 0);
	char *twice = pipeline_write_text(&want, &fault);
	ck_assert_str_eq(once, twice);
	ck_assert_str_eq(want.huge, "/mnt/h");
	ck_assert_uint_eq(pipeline_host_find(&want, "low")->workers, 3);
	free(once);
	free(twice);
	pipeline_free(&have);
	pipeline_free(&want);
}

UNIT(test_unsayable)
{
	static const char *const values[] = {" a", "a ", "a ;b", ";a", "a\nrole = x"};
	for (unsigned i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
		load(&have, ALL);
		struct pipeline_peer *peer = &have.peers[0];
		ck_assert_int_eq(pipeline_option_add(peer, "x", values[i], 0, 0), 0);
		ck_assert_msg(!pipeline_write_text(&have, &fault), "'%s'", values[i]);
		ck_assert_int_eq(fault.code, FAULT_FAILED);
		pipeline_free(&have);
	}
}

/* --- as processes were started ---------------------------------------------------------- */

UNIT(test_arguments)
{
	char *argv[] = {"-s", "d", "--drain-limit=24h", "-l2", "--workers", "3", "--log-level",
		"debug", "vol0=volume,edge.store=mem0,x=1\\,2", "nbd0=nbd,listen=unix:/a,listen=b"};
	pipeline_init(&have);
	ck_assert_int_eq(pipeline_running_arguments(&have, argv, 10, "front"), 0);
	ck_assert_uint_eq(have.host_count, 1);
	ck_assert_uint_eq(have.hosts[0].lanes, 2);
	ck_assert_uint_eq(have.hosts[0].workers, 3);
	ck_assert_uint_eq(have.hosts[0].peer_count, 2);
	ck_assert_str_eq(have.peers[0].options[1].value, "1,2");
	ck_assert_uint_eq(have.peers[1].option_count, 2);
	ck_assert_int_eq(pipeline_running_arguments(&have, argv, 10, "front"), -EEXIST);
	/* the same peers once more: nothing of it stays */
	ck_assert_int_eq(pipeline_running_arguments(&have, argv, 10, "other"), -EINVAL);
	ck_assert_uint_eq(have.host_count, 1);
	ck_assert_uint_eq(have.peer_count, 2);
	ck_assert_int_eq(pipeline_running_arguments(&have, argv, 2, "none"), -EINVAL);
	pipeline_free(&have);
}
