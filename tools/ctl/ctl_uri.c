/* SPDX-License-Identifier: Apache-2.0 */
/* URIs of other hosts, and what a bridge to them needs. */
#include "tools/ctl/ctl_uri.h"

#include <base/crc32c.h>
#include <base/path.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const struct ctl_option ctl_uri_option_tls = {"tls", 0, "DIR",
	"with ca.crt, crl.pem, and NAME.crt and NAME.key (default /etc/skerry/tls)", NULL};
const struct ctl_option ctl_uri_option_cert = {
	"cert", 0, "NAME", "which certificate is shown (default: the host's name)", NULL};
const struct ctl_option ctl_uri_option_clear = {
	"clear-text", 0, NULL, "no TLS to another host: whoever is on the way reads all", NULL};
/* --- reading ---------------------------------------------------------------------------------- */

bool ctl_uri_is(const char *text) { return strncmp(text, "skerry+", 7) == 0; }

/* "%20" -> " "; false: no good. */
static bool decode(char *text)
{
	char *to = text;
	for (; *text; text++) {
		char hex[3] = "", *end = hex;
		if (*text != '%') {
			*to++ = *text;
			continue;
		}
		if (text[1] && text[2])
			memcpy(hex, text + 1, 2);
		*to++ = (char)strtoul(hex, &end, 16);
		if (end != hex + 2)
			return false;
		text += 2;
	}
	*to = 0;
	return true;
}

bool ctl_uri_read(const char *text, struct ctl_uri *uri)
{
	char rest[512], none[] = "";
	bool local = strncmp(text, "skerry+unix:///", 15) == 0;
	uri->tls = strncmp(text, "skerry+tls://", 13) == 0;
	if (!uri->tls && !local && strncmp(text, "skerry+tcp://", 13))
		return false;
	snprintf(rest, sizeof(rest), "%s", text + (local ? 15 : 13));
	char *volume = local ? rest : strchr(rest, '/');
	char *query = strchr(rest, '?');
	if (query)
		*query++ = 0;
	if ((local && (!query || strncmp(query, "socket=", 7))) || (!local && query))
		return false;
	if (!local && volume)
		*volume++ = 0;
	volume = volume ? volume : none;
	if (!decode(volume) || (query && !decode(query)) || (*volume && !name_check_volume(volume)))
		return false;
	snprintf(uri->volume, sizeof(uri->volume), "%.*s", VOLUME_NAME_LENGTH_MAX, volume);
	const char *colon = strrchr(rest, ':'), *bracket = strrchr(rest, ']');
	bool port = colon && (!bracket || colon > bracket);
	if (local)
		snprintf(uri->remote, sizeof(uri->remote), "unix:%s", query + 7);
	else
		snprintf(uri->remote, sizeof(uri->remote), "tcp:%.400s%s", rest,
			port ? "" : ":" CTL_URI_PORT);
	return local || *rest;
}

/* --- the way there ---------------------------------------------------------------------------- */

void ctl_uri_link(const struct ctl *ctl, const struct ctl_uri *uri, FILE *out)
{
	const char *tls = ctl_option_value(ctl, "tls");
	const char *cert = ctl_option_value(ctl, "cert");
	char host[64] = "", list[PATH_LENGTH_MAX];
	fprintf(out, "remote=%s\n", uri->remote);
	if (ctl_option_given(ctl, "clear-text"))
		fputs("clear-text=yes\n", out);
	if (!uri->tls)
		return;
	gethostname(host, sizeof(host) - 1);
	host[strcspn(host, ".")] = 0;
	tls = tls ? tls : "/etc/skerry/tls";
	cert = cert ? cert : host;
	fprintf(out, "tls-ca=%s/ca.crt\ntls-cert=%s/%s.crt\ntls-key=%s/%s.key\n", tls, tls, cert,
		tls, cert);
	snprintf(list, sizeof(list), "%.200s/crl.pem", tls);
	if (access(list, R_OK) == 0)
		fprintf(out, "tls-crl=%s\n", list);
}

/* The usual port goes without saying; what is too long is told apart by its checksum. */
void ctl_uri_name(const struct ctl_uri *uri, char name[NAME_LENGTH_MAX + 1])
{
	char host[sizeof(uri->remote)];
	const char *slash = strrchr(uri->remote, '/');
	snprintf(host, sizeof(host), "%s", slash ? slash + 1 : strchr(uri->remote, ':') + 1);
	size_t length = strlen(host), port = strlen(":" CTL_URI_PORT);
	if (length > port && strcmp(host + length - port, ":" CTL_URI_PORT) == 0)
		host[length -= port] = 0;
	for (char *c = host; *c; c++)
		if (!(*c >= 'a' && *c <= 'z') && !(*c >= 'A' && *c <= 'Z') &&
			!(*c >= '0' && *c <= '9') && !strchr("._-", *c))
			*c = '-';
	if (length <= NAME_LENGTH_MAX - 4)
		snprintf(name, NAME_LENGTH_MAX + 1, "far-%.*s", NAME_LENGTH_MAX - 4, host);
	else
		snprintf(name, NAME_LENGTH_MAX + 1, "far-%.18s-%08x", host,
			crc32c(0, uri->remote, strlen(uri->remote)));
}
