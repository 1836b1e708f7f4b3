/* SPDX-License-Identifier: Apache-2.0 */
/* cert of a build without OpenSSL: says so. */
#include "tools/ctl/ctl.h"

static int run(struct ctl *ctl)
{
	return fault_set(&ctl->fault, FAULT_FAILED, NULL, "it needs libssl-dev when it is built",
		"this build has no TLS");
}

const struct ctl_verb ctl_cert_init = {"cert", "init", "[NAME]", 0, 1,
	"make an authority (not in this build)", NULL, run, {&ctl_option_dry_run},
	"xsegctl cert init\n"};
const struct ctl_verb ctl_cert_issue = {"cert", "issue", "NAME", 1, 1,
	"sign a certificate (not in this build)", NULL, run, {&ctl_option_dry_run},
	"xsegctl cert issue NAME\n"};
const struct ctl_verb ctl_cert_revoke = {"cert", "revoke", "NAME", 1, 1,
	"end a certificate (not in this build)", NULL, run, {&ctl_option_dry_run},
	"xsegctl cert revoke NAME\n"};
const struct ctl_verb ctl_cert_list = {"cert", "list", "", 0, 0,
	"list certificates (not in this build)", NULL, run, {0}, "xsegctl cert list\n"};
