/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where another host is: skerry+tls://HOST[:7070][/VOLUME], skerry+tcp: the same in clear text, and
 * skerry+unix:///[VOLUME]?socket=PATH of this host. There is the exporting end of a bridge.
 *
 * Errors, ownership: as ctl.h. Threads: one. Blocking: none.
 */
#ifndef SKERRY_TOOLS_CTL_URI_H
#define SKERRY_TOOLS_CTL_URI_H

#include <stdio.h>

#include "tools/ctl/ctl.h"

#define CTL_URI_PORT "7070"

struct ctl_uri {
	bool tls;
	char remote[512]; /* as synapse_import takes it: "tcp:HOST:PORT", "unix:PATH" */
	char volume[VOLUME_NAME_LENGTH_MAX + 1]; /* "": none is named */
};
bool ctl_uri_is(const char *text);
/* false: it is none. */
bool ctl_uri_read(const char *text, struct ctl_uri *uri);
/* What a synapse_import has to know to get there, out of the options below: lines key=value. */
void ctl_uri_link(const struct ctl *ctl, const struct ctl_uri *uri, FILE *out);
/* A name for that peer, of the host's: "far-store1.example.net". */
void ctl_uri_name(const struct ctl_uri *uri, char name[NAME_LENGTH_MAX + 1]);

extern const struct ctl_option ctl_uri_option_tls, ctl_uri_option_cert, ctl_uri_option_clear;

#endif
