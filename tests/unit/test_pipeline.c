/* SPDX-License-Identifier: Apache-2.0 */
/* Pipeline files: what is read, in which order hosts start, and where mistakes are found. */
#include <string.h>
#include <sys/stat.h>

#include "tests/lib/unit.h"
#include "tools/pipeline/pipeline.h"

#define HEAD "[segment]\nname = demo\nsize = 64M\n"

static struct pipeline pipeline;
static struct fault fault;
static char path[512];

static void write_file(const char *leaf, const char *text)
{
	snprintf(path, sizeof(path), "%s/%s", scratch_dir(), leaf);
	FILE *out = fopen(path, "w");
	ck_assert_ptr_nonnull(out);
	fputs(text, out);
	ck_assert_int_eq(fclose(out), 0);
}

static int load(const char *text)
{
	write_file("p.conf", text);
	return pipeline_load(&pipeline, path, &fault);
}

static const char *option(const char *peer, const char *key)
{
	const struct pipeline_peer *found = pipeline_peer_find(&pipeline, peer);
	const char *value = NULL;
	for (unsigned i = 0; found && i < found->option_count; i++)
		if (!strcmp(found->options[i].key, key))
			value = found->options[i].value;
	return value;
}

static const char *host_started(unsigned position)
{
	return pipeline.hosts[pipeline.order[position]].name;
}

UNIT(test_whole)
{
	int rc = load("# comment\n; another\n" HEAD "lanes = 8\nhuge = /mnt/huge\n\n"
		      "[peer nbd0]\nrole = front_nbd\nhost = front\n"
		      "  listen = unix:/a b\n\tlisten = tcp:[::1]:10809\nedge.volume = vol0\n"
		      "[host front]\nlanes = 2\nworkers = 3\n"
		      "[ peer  vol0 ] # more\nrole=volume\nhost=front\nedge.store=mem0\n"
		      "[peer mem0]\nrole = blocker_memory ; inline\n");
	ck_assert_msg(rc == 0, "%s", fault.message);
	ck_assert_str_eq(pipeline.segment, "demo");
	ck_assert_uint_eq(pipeline.size, 64u << 20);
	ck_assert_uint_eq(pipeline.lanes, 8);
	ck_assert_str_eq(pipeline.huge, "/mnt/huge");
	ck_assert_uint_eq(pipeline.peer_count, 3);
	ck_assert_uint_eq(pipeline.host_count, 2);
	ck_assert_str_eq(pipeline_peer_find(&pipeline, "mem0")->role, "blocker_memory");
	ck_assert_uint_eq(pipeline_peer_find(&pipeline, "nbd0")->option_count, 3);
	ck_assert_str_eq(option("nbd0", "listen"), "tcp:[::1]:10809");
	ck_assert_str_eq(host_started(0), "mem0");
	ck_assert_str_eq(host_started(1), "front");
	ck_assert_uint_eq(pipeline.hosts[pipeline.order[1]].lanes, 2);
	ck_assert_uint_eq(pipeline.hosts[pipeline.order[1]].workers, 3);
	pipeline_free(&pipeline);
}

UNIT(test_defaults)
{
	ck_assert_int_eq(load("[peer a]\nrole = r\n"), 0);
	ck_assert_str_eq(pipeline.segment, "");
	ck_assert_uint_eq(pipeline.size, PIPELINE_SIZE_DEFAULT);
	ck_assert(!pipeline.size_given);
	ck_assert_str_eq(host_started(0), "a");
	pipeline_free(&pipeline);
}

/* Stores first, whatever the order in the file; a chain through hosts and back is no circle. */
UNIT(test_order)
{
	ck_assert_int_eq(load("[peer top]\nrole=r\nedge.x=middle\n[peer middle]\nrole=r\n"
			      "edge.x=left\nedge.y=right\n[peer left]\nrole=r\nedge.x=bottom\n"
			      "[peer right]\nrole=r\nedge.x=bottom\n[peer bottom]\nrole=r\n"),
		0);
	ck_assert_str_eq(host_started(0), "bottom");
	ck_assert_str_eq(host_started(3), "middle");
	ck_assert_str_eq(host_started(4), "top");
	pipeline_free(&pipeline);
	ck_assert_int_eq(load("[peer top]\nrole=r\nhost=h\nedge.x=mid\n[peer mid]\nrole=r\n"
			      "edge.x=low\n[peer low]\nrole=r\nhost=h\n"),
		0);
	ck_assert_uint_eq(pipeline.host_count, 2);
	pipeline_free(&pipeline);
}

struct mistake {
	const char *text, *says, *hint;
};

static const struct mistake mistakes[] = {
	{HEAD "[pear x]\n", "p.conf:4: unknown section [pear x]", "did you mean 'peer'?"},
	{HEAD "[peer]\n", "p.conf:4: a peer section is [peer NAME]", ""},
	{HEAD "[peer a b]\n", "p.conf:4: a peer section is [peer NAME]", ""},
	{HEAD "[peer a/b]\n", "p.conf:4: 'a/b' is no name for a peer", ""},
	{HEAD "[peer a\n", "p.conf:4: a section starts with '[' but has no ']'", ""},
	{HEAD "lane = 3\n", "p.conf:4: unknown key 'lane' in [segment]", "did you mean 'lanes'?"},
	{HEAD "[peer a]\nrole=r\nhost=h\n[host h]\nworkers = 65\n",
		"p.conf:8: workers='65' is not a number from 1 to 64", ""},
	{HEAD "lanes = 0\n", "p.conf:4: lanes='0' is not a number from 1 to 64", ""},
	{HEAD "lanes = -1\n", "p.conf:4: lanes='-1' is not a number", ""},
	{HEAD "lanes = 3x\n", "p.conf:4: lanes='3x' is not a number", ""},
	{"[segment]\nsize = 1\n", "p.conf:2: size='1' is not a segment size", ""},
	{"[segment]\nname = a b\n", "p.conf:2: 'a b' is no name for a segment", ""},
	{HEAD "[peer a]\nrole=r\n\n[host b]\n", "p.conf:7: no peer lives in host 'b'",
		"did you mean 'a'?"},
	{HEAD "[peer a]\nedge.x=a\n", "p.conf:4: the peer has no role=", ""},
	{HEAD "[peer a]\nrole=r\nedge.x=a\n", "p.conf:6: edge.x closes a circle", ""},
	{HEAD "[peer a]\nrole=r\nedge.x=mem1\n[peer mem0]\nrole=r\n",
		"p.conf:6: edge.x leads to 'mem1', but there is no such peer",
		"did you mean 'mem0'?"},
	{HEAD "[peer a]\nrole=r\nrole=s\n", "p.conf:6: role is given twice, first in line 5", ""},
	{HEAD "[peer a]\nrole=r\nhost=../x\n", "p.conf:6: '../x' is no name for a host", ""},
	{HEAD "nonsense\n", "p.conf:4: neither a key nor a section", ""},
	{"x = 1\n", "p.conf:1: 'x' stands before any section", ""},
};

UNIT(test_mistakes)
{
	for (size_t i = 0; i < countof(mistakes); i++) {
		const struct mistake *m = &mistakes[i];
		ck_assert_msg(load(m->text) == -FAULT_USAGE, "taken: %s", m->text);
		ck_assert_msg(strstr(fault.message, m->says), "'%s' instead of '%s'", fault.message,
			m->says);
		ck_assert_msg(!*m->hint || !strcmp(fault.hint, m->hint), "hint '%s' of '%s'",
			fault.hint, m->says);
		pipeline_free(&pipeline);
	}
}

/* A line as long as may be is read whole; one more is an error, not two lines. */
UNIT(test_long_line)
{
	static char text[PIPELINE_LINE_MAX + 64];
	const char *head = "[peer a]\nrole=r\nx=";
	size_t length = PIPELINE_LINE_MAX - 8;
	snprintf(text, sizeof(text), "%s", head);
	memset(text + strlen(head), 'y', length);
	strcpy(text + strlen(head) + length, "\n");
	ck_assert_msg(load(text) == 0, "%s", fault.message);
	ck_assert_uint_eq(strlen(option("a", "x")), length);
	pipeline_free(&pipeline);
	memset(text + strlen(head), 'y', length + 16);
	strcpy(text + strlen(head) + length + 16, "\n");
	ck_assert_int_eq(load(text), -FAULT_USAGE);
	ck_assert_ptr_nonnull(strstr(fault.message, "p.conf:3: the line is longer"));
	pipeline_free(&pipeline);
}

UNIT(test_folder)
{
	char folder[512];
	snprintf(folder, sizeof(folder), "%s/sub", scratch_dir());
	ck_assert_int_eq(mkdir(folder, 0700), 0);
	snprintf(folder, sizeof(folder), "%s/sub/p.conf.d", scratch_dir());
	ck_assert_int_eq(mkdir(folder, 0700), 0);
	write_file("sub/p.conf.d/20.conf", "[peer a]\nlisten = third\n[peer b]\nrole = s\n");
	write_file("sub/p.conf.d/10.conf", "[peer a]\nlisten = second\nlisten = more\nz = 1\n");
	write_file("sub/p.conf.d/note.txt", "not read\n");
	write_file("sub/p.conf.d/.hidden.conf", "not read\n");
	write_file("sub/p.conf", "[peer a]\nrole = r\nlisten = first\nlisten = too\n");
	ck_assert_msg(pipeline_load(&pipeline, path, &fault) == 0, "%s", fault.message);
	ck_assert_uint_eq(pipeline.file_count, 3);
	ck_assert_uint_eq(pipeline_peer_find(&pipeline, "a")->option_count, 2);
	ck_assert_str_eq(option("a", "listen"), "third");
	ck_assert_str_eq(option("a", "z"), "1");
	ck_assert_ptr_nonnull(pipeline_peer_find(&pipeline, "b"));
	pipeline_free(&pipeline);
}

UNIT(test_hash)
{
	ck_assert_int_eq(load("[peer a]\nrole = r\n"), 0);
	uint64_t hash = pipeline.hash;
	pipeline_free(&pipeline);
	ck_assert_int_eq(load("[peer a]\nrole = r\n"), 0);
	ck_assert_uint_eq(pipeline.hash, hash);
	pipeline_free(&pipeline);
	ck_assert_int_eq(load("[peer a]\nrole = s\n"), 0);
	ck_assert_uint_ne(pipeline.hash, hash);
	pipeline_free(&pipeline);
}

/* As xsegpeer takes it, and back: commas and backslashes in a value survive. */
UNIT(test_argument)
{
	ck_assert_int_eq(
		load("[peer a]\nrole = r\nx = 1,2\ny = \\\nedge.z = b\n[peer b]\nrole=s\n"), 0);
	char *text = pipeline_text_argument(pipeline_peer_find(&pipeline, "a"));
	ck_assert_str_eq(text, "a=r,x=1\\,2,y=\\\\,edge.z=b");
	pipeline_free(&pipeline);
	ck_assert_int_eq(load("[peer b]\nrole = s\n"), 0);
	ck_assert_int_eq(pipeline_text_parse(&pipeline, text, &fault), 0);
	ck_assert_str_eq(option("a", "y"), "\\");
	pipeline_free(&pipeline);
	free(text);
	ck_assert_int_eq(load("[peer b]\nrole = s\n"), 0);
	ck_assert_int_eq(pipeline_text_parse(&pipeline, "a=r,x=1\\,2,edge.z=b", &fault), 0);
	ck_assert_str_eq(option("a", "x"), "1,2");
	ck_assert_str_eq(option("a", "edge.z"), "b");
	static const char *const bad[] = {
		"", "=", "c", "c=", "c=r,", "c=r,x", "c=r,=1", "c/d=r", "=r"};
	for (size_t i = 0; i < countof(bad); i++) {
		ck_assert_msg(pipeline_text_parse(&pipeline, bad[i], &fault) == -FAULT_USAGE,
			"'%s'", bad[i]);
		ck_assert_uint_eq(pipeline.peer_count, 2);
	}
	ck_assert_int_eq(pipeline_text_parse(&pipeline, "a=r", &fault), -FAULT_CONFLICT);
	pipeline_free(&pipeline);
}

/* --- against roles ---------------------------------------------------------------------- */

static json_t *described;

static json_t *describe(void *context, const char *role)
{
	(void)context;
	return strcmp(role, "r") ? NULL : described;
}

static int check(const char *text)
{
	static const char *const names[] = {"r", "rest"};
	struct pipeline_roles roles = {.describe = describe, .names = names, .name_count = 2};
	ck_assert_msg(load(text) == 0, "%s", fault.message);
	int rc = pipeline_check(&pipeline, &roles, &fault);
	pipeline_free(&pipeline);
	return rc;
}

UNIT(test_roles)
{
	described = json_loads("{\"edges\": [\"store\"], \"options\": ["
			       "{\"name\": \"dir\", \"type\": \"text\", \"required\": true},"
			       "{\"name\": \"listen\", \"type\": \"list\", \"required\": false}]}",
		0, NULL);
	ck_assert_ptr_nonnull(described);
	ck_assert_int_eq(check("[peer a]\nrole=x\n"), -FAULT_USAGE);
	ck_assert_ptr_nonnull(strstr(fault.message, "p.conf:2: unknown role 'x'"));
	ck_assert_int_eq(check("[peer a]\nrole=rets\n"), -FAULT_USAGE);
	ck_assert_str_eq(fault.hint, "did you mean 'rest'?");
	ck_assert_int_eq(check("[peer a]\nrole=r\ndir=/x\n"), -FAULT_USAGE);
	ck_assert_ptr_nonnull(
		strstr(fault.message, "p.conf:1: peer 'a' (role r) needs edge.store"));
	ck_assert_int_eq(check("[peer a]\nrole=r\ndirs=/x\n"), -FAULT_USAGE);
	ck_assert_ptr_nonnull(strstr(fault.message, "p.conf:3: role r has no option 'dirs'"));
	ck_assert_str_eq(fault.hint, "did you mean 'dir'?");
	ck_assert_int_eq(check("[peer a]\nrole=r\ndir=/x\ndir=/y\n"), -FAULT_USAGE);
	ck_assert_ptr_nonnull(strstr(fault.message, "'dir' is given twice"));
	ck_assert_int_eq(
		check("[peer a]\nrole=r\nedge.sture=a2\n[peer a2]\nrole=r\n"), -FAULT_USAGE);
	ck_assert_str_eq(fault.hint, "did you mean 'edge.store'?");
	ck_assert_int_eq(check("[segment]\nname=x\n"), -FAULT_USAGE);
	ck_assert_ptr_nonnull(strstr(fault.message, "there is no peer in it"));
	/* whole, but for the last one down, whose edge is missing: lists may repeat */
	ck_assert_int_eq(check("[peer a]\nrole=r\ndir=/x\nlisten=1\nlisten=2\nedge.store=b\n"
			       "[peer b]\nrole=r\ndir=/x\n"),
		-FAULT_USAGE);
	ck_assert_ptr_nonnull(
		strstr(fault.message, "p.conf:7: peer 'b' (role r) needs edge.store"));
	json_object_set_new(described, "edges", json_array());
	ck_assert_int_eq(check("[peer a]\nrole=r\ndir=/x\nlisten=1\nlisten=2\n"), 0);
	json_decref(described);
}
