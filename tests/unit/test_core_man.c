/* SPDX-License-Identifier: Apache-2.0 */
/* Help and man page: every option, edge and counter of a table is in both, and scdoc takes it. */
#include <stdlib.h>
#include <string.h>

#include "tests/unit/core_rig.h"

static char text[32768];

static const char *written(
	void (*write)(const struct peer_ops *ops, FILE *out), const struct peer_ops *ops)
{
	memset(text, 0, sizeof(text));
	FILE *out = fmemopen(text, sizeof(text) - 1, "w");
	write(ops, out);
	fclose(out);
	return text;
}

UNIT(test_help)
{
	const char *help = written(man_help, &rig_store_ops);
	ck_assert(strstr(help, "t_store: keeps bytes, for tests\n"));
	ck_assert(strstr(help, "number=N"));
	ck_assert(strstr(help, "how many (2 to 64 things; default 4)"));
	ck_assert(strstr(help, "how big (at least 4K; default 64K)"));
	ck_assert(strstr(help, "how long (at most 1s; default 5ms)"));
	ck_assert(strstr(help, "choice=red|green"));
	ck_assert(strstr(help, "may be given several times"));
	help = written(man_help, &rig_pass_ops);
	ck_assert(strstr(help, "edge.below=PEER"));
}

UNIT(test_page)
{
	const char *page = written(man_page, &rig_store_ops);
	ck_assert(strstr(page, "t_store(7)"));
	ck_assert(strstr(page, "t\\_store - keeps bytes, for tests"));
	for (const struct peer_option *o = rig_store_ops.options; o->type != PEER_OPTION_END; o++) {
		char bold[64];
		snprintf(bold, sizeof(bold), "\n*%s*=", o->name);
		ck_assert_msg(strstr(page, bold), "no %s", o->name);
	}
	ck_assert(strstr(page, "# COUNTERS"));
	ck_assert(strstr(page, "*held*\n\tjobs that were held"));
	page = written(man_page, &rig_pass_ops);
	ck_assert(strstr(page, "*edge.below*=_PEER_"));
	ck_assert(!strstr(page, "# COUNTERS"));
}

static bool scdoc_takes(const char *page)
{
	FILE *pipe = popen("scdoc >/dev/null 2>&1", "w");
	fputs(page, pipe);
	return pclose(pipe) == 0;
}

UNIT(test_scdoc)
{
	if (system("command -v scdoc >/dev/null 2>&1") != 0)
		return; /* the build says whether there is one */
	ck_assert(!scdoc_takes("no such heading"));
	ck_assert(scdoc_takes(written(man_page, &rig_store_ops)));
	ck_assert(scdoc_takes(written(man_page, &rig_split_ops)));
}
