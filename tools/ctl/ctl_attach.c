/* SPDX-License-Identifier: Apache-2.0 */
/* volume uri, volume attach: where clients reach a volume, in the words of those who attach it. */
#include <base/must.h>
#include <inttypes.h>
#include <peer/front.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/ctl/ctl_front.h"
#include "tools/ctl/ctl_map.h"

#define RECONNECT_S 60 /* as long as a front may be away */
#define NODE_MAX 31u   /* of a node's name in QEMU */

#define MEMORY_MIB 1024u

static const char *const choices[] = {
	"qemu", "libvirt", "cloud-hypervisor", "nbd-client", "file", "losetup", NULL};
static const struct ctl_option option_print = {"print", 0, "HOW",
	"for whom: qemu, libvirt, cloud-hypervisor, nbd-client, file or losetup", choices};
static const char *const ways[] = {"nbd", "vhost-user", NULL};
static const struct ctl_option option_over = {
	"over", 0, "WAY", "nbd or vhost-user (default: NBD, or what a front offers)", ways};
static const struct ctl_option option_memory = {
	"memory", 0, "SIZE", "memory of the machine, which it shares over vhost-user (1G)", NULL};

static const struct ctl_column columns[] = {{"uri", "URI", CTL_TEXT}, {"front", "FRONT", CTL_TEXT}};

struct place {
	unsigned flags;
	char path[128]; /* of a socket, or ... */
	char host[256], port[16];
};

static void place_read(const json_t *row, struct place *place)
{
	const char *text = json_string_value(json_object_get(row, "text"));
	const char *colon = strrchr(text, ':');
	memset(place, 0, sizeof(*place));
	place->flags = (unsigned)json_integer_value(json_object_get(row, "flags"));
	if (place->flags & FRONT_ADDRESS_UNIX) {
		snprintf(place->path, sizeof(place->path), "%s", text);
		return;
	}
	if (place->flags & FRONT_ADDRESS_ANY)
		gethostname(place->host, sizeof(place->host) - 1);
	else
		snprintf(place->host, sizeof(place->host), "%.*s", colon ? (int)(colon - text) : 0,
			text);
	snprintf(place->port, sizeof(place->port), "%s", colon ? colon + 1 : "");
}

/* --- text of others --------------------------------------------------------------------------- */

/* As RFC 3986 has it; `also` needs no escape either. */
static void put_escaped(FILE *out, const char *text, const char *also)
{
	for (; *text; text++) {
		unsigned char c = (unsigned char)*text;
		bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
			     (c >= '0' && c <= '9') || strchr("-._~", c) || strchr(also, c);
		fprintf(out, plain ? "%c" : "%%%02X", c);
	}
}

static void put_xml(FILE *out, const char *text)
{
	for (; *text; text++) {
		const char *word = *text == '&'	   ? "&amp;"
				   : *text == '<'  ? "&lt;"
				   : *text == '\'' ? "&apos;"
				   : *text == '"'  ? "&quot;"
						   : NULL;
		if (word)
			fputs(word, out);
		else
			putc(*text, out);
	}
}

/* For a shell. */
static void put_quoted(FILE *out, const char *text)
{
	putc('\'', out);
	for (; *text; text++)
		if (*text == '\'')
			fputs("'\\''", out);
		else
			putc(*text, out);
	putc('\'', out);
}

static void put_uri(FILE *out, const struct place *place, const char *volume)
{
	bool tls = place->flags & FRONT_ADDRESS_TLS;
	if (place->flags & FRONT_ADDRESS_UNIX) {
		fprintf(out, "nbd%s+unix:///", tls ? "s" : "");
		put_escaped(out, volume, "@");
		fputs("?socket=", out);
		put_escaped(out, place->path, "/");
		return;
	}
	fprintf(out, "nbd%s://%s:%s/", tls ? "s" : "", place->host, place->port);
	put_escaped(out, volume, "@");
}

/* --- volume uri ------------------------------------------------------------------------------- */

/* That the volume is there, too. */
static json_t *find(struct ctl *ctl, const char *volume, unsigned way)
{
	struct xseg_volume_info info;
	struct client client;
	if (ctl_map_open(ctl, volume, &client, &info))
		return NULL;
	client_close(&client);
	return ctl_front_addresses(ctl, volume, way);
}

static int run_uri(struct ctl *ctl)
{
	const char *volume = ctl->argv[0];
	json_t *found = find(ctl, volume, 0), *rows = json_array(), *row;
	size_t i;
	json_array_foreach (found, i, row) {
		struct place place;
		char *uri = NULL;
		size_t size = 0;
		FILE *out = open_memstream(&uri, &size);
		must(out);
		place_read(row, &place);
		put_uri(out, &place, volume);
		must(fclose(out) == 0);
		if (ctl->format == CTL_TABLE)
			puts(uri);
		json_array_append_new(rows, json_pack("{s:s, s:O}", "uri", uri, "front",
						    json_object_get(row, "front")));
		free(uri);
	}
	json_decref(found);
	if (found && ctl->format != CTL_TABLE)
		ctl_output_rows(ctl, "uris", json_incref(rows), columns, countof(columns));
	json_decref(rows);
	return found ? 0 : -(int)ctl->fault.code;
}

const struct ctl_verb ctl_volume_uri = {
	"volume",
	"uri",
	"VOLUME",
	1,
	1,
	"where NBD clients reach a volume or a snapshot",
	"\tA line for each address of each front that offers it, as nbdinfo, nbdcopy, qemu-img and "
	"libnbd take it. *nbds* means that TLS is required.\n",
	run_uri,
	{&ctl_option_via},
	.examples = "xsegctl volume uri disk\nnbdinfo \"$(xsegctl volume uri disk)\"\n",
};

/* --- volume attach ---------------------------------------------------------------------------- */

static void node_of(const char *volume, char out[NODE_MAX + 1])
{
	size_t n = (size_t)snprintf(out, NODE_MAX + 1, "%.31s", volume);
	for (size_t i = 0; i < n && i < NODE_MAX; i++) {
		char c = out[i];
		bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
		bool digit = (c >= '0' && c <= '9') || c == '-' || c == '_' || c == '.';
		if (!letter && (i == 0 || !digit))
			out[i] = i == 0 ? 'v' : '_';
	}
}

/* JSON, so that no name needs escapes of QEMU's own. */
static void print_qemu(const struct place *place, const char *volume)
{
	char node[NODE_MAX + 1];
	bool local = place->flags & FRONT_ADDRESS_UNIX;
	node_of(volume, node);
	json_t *server = local ? json_pack("{s:s, s:s}", "type", "unix", "path", place->path)
			       : json_pack("{s:s, s:s, s:s}", "type", "inet", "host", place->host,
					 "port", place->port);
	json_t *block = json_pack("{s:s, s:s, s:o, s:s, s:i, s:s, s:{s:b, s:b}}", "driver", "nbd",
		"node-name", node, "server", server, "export", volume, "reconnect-delay",
		RECONNECT_S, "discard", "unmap", "cache", "direct", 1, "no-flush", 0);
	if (strchr(volume, '@'))
		json_object_set_new(block, "read-only", json_true());
	if (place->flags & FRONT_ADDRESS_TLS) {
		json_object_set_new(block, "tls-creds", json_string("tls0"));
		puts("-object tls-creds-x509,id=tls0,endpoint=client,dir=CERTIFICATES \\");
	}
	char *text = json_dumps(block, JSON_COMPACT);
	must(text);
	fputs("-blockdev ", stdout);
	put_quoted(stdout, text);
	printf(" \\\n-device virtio-blk-pci,drive=%s\n", node);
	free(text);
	json_decref(block);
}

static void print_libvirt(const struct place *place, const char *volume)
{
	bool tls = place->flags & FRONT_ADDRESS_TLS;
	puts("<disk type='network' device='disk'>\n"
	     "  <driver name='qemu' type='raw' cache='none' discard='unmap'/>");
	fputs("  <source protocol='nbd' name='", stdout);
	put_xml(stdout, volume);
	printf("'%s>\n", tls ? " tls='yes'" : "");
	if (place->flags & FRONT_ADDRESS_UNIX) {
		fputs("    <host transport='unix' socket='", stdout);
		put_xml(stdout, place->path);
		puts("'/>");
	} else {
		printf("    <host name='%s' port='%s'/>\n", place->host, place->port);
	}
	printf("    <reconnect delay='%d'/>\n  </source>\n"
	       "  <target dev='vda' bus='virtio'/>\n",
		RECONNECT_S);
	if (strchr(volume, '@'))
		puts("  <readonly/>");
	puts("</disk>");
}

static void print_client(const struct place *place, const char *volume)
{
	if (place->flags & FRONT_ADDRESS_UNIX) {
		fputs("nbd-client -unix ", stdout);
		put_quoted(stdout, place->path);
	} else {
		printf("nbd-client %s %s", place->host, place->port);
	}
	fputs(" /dev/nbd0 -persist -name ", stdout);
	put_quoted(stdout, volume);
	puts(place->flags & FRONT_ADDRESS_TLS ? " -enable-tls" : "");
}

/* --- over vhost-user -------------------------------------------------------------------------- */

/* A comma ends a value. */
static void put_value(FILE *out, const char *text)
{
	for (; *text; text++)
		fputs(*text == ',' ? ",," : (const char[]){*text, 0}, out);
}

static void put_argument(const char *start, const char *path, const char *end)
{
	char *text = NULL;
	size_t size = 0;
	FILE *out = open_memstream(&text, &size);
	must(out);
	fputs(start, out);
	put_value(out, path);
	fputs(end, out);
	must(fclose(out) == 0);
	put_quoted(stdout, text);
	free(text);
}

static void print_qemu_vhost(const struct place *place, const char *volume, uint64_t mib)
{
	char node[NODE_MAX + 1], start[NODE_MAX + 32];
	node_of(volume, node);
	printf("-m %" PRIu64 "M -object memory-backend-memfd,id=memory,size=%" PRIu64
	       "M,share=on \\\n"
	       "-machine memory-backend=memory \\\n-chardev ",
		mib, mib);
	snprintf(start, sizeof(start), "socket,id=%s,path=", node);
	put_argument(start, place->path, ",reconnect=1");
	printf(" \\\n-device vhost-user-blk-pci,chardev=%s\n", node);
}

static void print_libvirt_vhost(const struct place *place, const char *volume)
{
	puts("<!-- the domain needs: <memoryBacking><source type='memfd'/>"
	     "<access mode='shared'/></memoryBacking> -->\n"
	     "<disk type='vhostuser' device='disk'>\n"
	     "  <driver name='qemu' type='raw'/>");
	fputs("  <source type='unix' path='", stdout);
	put_xml(stdout, place->path);
	puts("'>\n    <reconnect enabled='yes' timeout='1'/>\n  </source>\n"
	     "  <target dev='vda' bus='virtio'/>");
	if (strchr(volume, '@'))
		puts("  <readonly/>");
	puts("</disk>");
}

static void print_cloud_hypervisor(const struct place *place, uint64_t mib)
{
	printf("--memory size=%" PRIu64 "M,shared=on \\\n--disk ", mib);
	put_argument("vhost_user=on,socket=", place->path, "");
	putchar('\n');
}

/* The first on this machine; else the first there is. */
static void place_choose(const json_t *rows, struct place *place)
{
	json_t *row;
	size_t i;
	json_array_foreach (rows, i, row) {
		place_read(row, place);
		if (place->flags & FRONT_ADDRESS_UNIX)
			return;
	}
	place_read(json_array_get(rows, 0), place);
}

static void print_vhost(
	const char *volume, const char *how, const struct place *place, uint64_t mib)
{
	if (!strcmp(how, "qemu"))
		print_qemu_vhost(place, volume, mib);
	else if (!strcmp(how, "libvirt"))
		print_libvirt_vhost(place, volume);
	else
		print_cloud_hypervisor(place, mib);
}

static void print_nbd(const char *volume, const char *how, const struct place *place)
{
	if (!strcmp(how, "qemu"))
		print_qemu(place, volume);
	else if (!strcmp(how, "libvirt"))
		print_libvirt(place, volume);
	else
		print_client(place, volume);
}

/* Which way, where it was not said: what there is, NBD first. */
static json_t *find_way(struct ctl *ctl, const char *over, bool *vhost)
{
	const struct fault before = ctl->fault;
	json_t *rows = find(ctl, ctl->argv[0], *vhost ? FRONT_ADDRESS_VHOST : 0);
	if (rows || over || *vhost)
		return rows;
	const struct fault missing = ctl->fault;
	ctl->fault = before;
	*vhost = true;
	rows = find(ctl, ctl->argv[0], FRONT_ADDRESS_VHOST);
	if (!rows)
		ctl->fault = missing;
	return rows;
}

static int print_file(struct ctl *ctl, const char *how)
{
	json_t *rows = find(ctl, ctl->argv[0], FRONT_ADDRESS_FILE);
	if (!rows)
		return -(int)ctl->fault.code;
	const char *path = json_string_value(json_object_get(json_array_get(rows, 0), "text"));
	if (!strcmp(how, "losetup")) {
		fputs("losetup --find --show --direct-io=on ", stdout);
		put_quoted(stdout, path);
		putchar('\n');
	} else {
		puts(path);
	}
	json_decref(rows);
	return 0;
}

static int run_attach(struct ctl *ctl)
{
	const char *volume = ctl->argv[0], *how = ctl_option_value(ctl, "print");
	const char *over = ctl_option_value(ctl, "over");
	struct place place;
	uint64_t memory = (uint64_t)MEMORY_MIB << 20;
	if (!how)
		return fault_set(&ctl->fault, FAULT_USAGE, volume,
			"--print qemu, libvirt, cloud-hypervisor, nbd-client, file or losetup "
			"shows what to say to whom",
			"a volume is attached by who uses it: a machine, or the kernel");
	bool file = !strcmp(how, "file") || !strcmp(how, "losetup");
	bool client = !strcmp(how, "nbd-client"), vhost = !strcmp(how, "cloud-hypervisor");
	if (over && (file || ((client || vhost) && client == !strcmp(over, "vhost-user"))))
		return fault_set(&ctl->fault, FAULT_USAGE, over, "leave --over out",
			"%s does not attach disks over %s", how, over);
	if (ctl_option_size(ctl, "memory", &memory))
		return -(int)ctl->fault.code;
	if (file)
		return print_file(ctl, how);
	vhost |= over && !strcmp(over, "vhost-user");
	json_t *rows = find_way(ctl, client ? how : over, &vhost);
	if (!rows)
		return -(int)ctl->fault.code;
	place_choose(rows, &place);
	json_decref(rows);
	if (vhost)
		print_vhost(volume, how, &place, memory >> 20);
	else
		print_nbd(volume, how, &place);
	return 0;
}

const struct ctl_verb ctl_volume_attach = {
	"volume",
	"attach",
	"VOLUME",
	1,
	1,
	"print what attaches a volume to a machine or the kernel",
	"\t*--print qemu*: arguments of qemu-system. *libvirt*: the XML of a disk, for virsh "
	"attach-device; choose another *dev* where vda is taken. *cloud-hypervisor*: its "
	"arguments. *nbd-client*: a command. All of them connect again when the front was away. "
	"With a UNIX socket where there is one. *file*: where a *skerry-role-front_fuse*(7) has "
	"it; *losetup*: a command that makes that file a device.\n\n"
	"\tOver *vhost-user* the machine shares its memory with the front: *--memory* is all that "
	"it has, and takes the place of another *-m*.\n",
	run_attach,
	{&option_print, &option_over, &option_memory, &ctl_option_via},
	.examples = "xsegctl volume attach disk --print qemu\n"
		    "xsegctl volume attach disk --print qemu --over vhost-user --memory 4G\n"
		    "virsh attach-device vm1 <(xsegctl volume attach disk --print libvirt)\n",
};
