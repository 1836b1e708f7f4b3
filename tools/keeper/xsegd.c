/* SPDX-License-Identifier: Apache-2.0 */
/* xsegd, the keeper: reads a pipeline file, brings it up, watches it, takes it down again. */
#include <base/crash.h>
#include <base/log.h>
#include <base/must.h>
#include <base/time.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "config.h"
#include "tools/keeper/guard.h"
#include "tools/keeper/keeper.h"
#include "tools/keeper/keeper_cache.h"
#include "tools/keeper/keeper_job.h"
#include "tools/keeper/xsegd_man.h"
#include "tools/report/program.h"

#define START_NS (30ull * 1000000000u)
#define STOP_NS (30ull * 1000000000u)
#define FDS_WANTED 65536u
#define SHOWN 100

enum { OPT_STOP_TIMEOUT = 256, OPT_REPORT_FD, OPT_LOG_LEVEL, OPT_MAN, OPT_CRASH, OPT_GUARDED };

static const struct option options[] = {{"timeout", required_argument, NULL, 't'},
	{"stop-timeout", required_argument, NULL, OPT_STOP_TIMEOUT},
	{"report-fd", required_argument, NULL, OPT_REPORT_FD},
	{"log-level", required_argument, NULL, OPT_LOG_LEVEL}, {"check", no_argument, NULL, 'c'},
	{"guarded", no_argument, NULL, OPT_GUARDED}, {"crash-points", no_argument, NULL, OPT_CRASH},
	{"man", no_argument, NULL, OPT_MAN}, {"help", no_argument, NULL, 'h'},
	{"version", no_argument, NULL, 'V'}, {NULL, 0, NULL, 0}};

static struct keeper keeper;

/* --- the command line ------------------------------------------------------------------- */

static int bad_value(struct fault *fault, const char *option, const char *value)
{
	return fault_set(fault, FAULT_USAGE, value, "see 'xsegd --help'", "%s: '%s' will not do",
		option, value);
}

static int set_option(int option, bool *check, struct fault *fault)
{
	char *end;
	int level;
	switch (option) {
	case 't':
		return time_parse_positive(optarg, &keeper.start_ns)
			       ? bad_value(fault, "--timeout", optarg)
			       : 0;
	case OPT_STOP_TIMEOUT:
		return time_parse_positive(optarg, &keeper.stop_ns)
			       ? bad_value(fault, "--stop-timeout", optarg)
			       : 0;
	case OPT_REPORT_FD:
		keeper.report = (int)strtol(optarg, &end, 10);
		if (*end || fcntl(keeper.report, F_SETFD, FD_CLOEXEC) < 0) {
			keeper.report = -1;
			return bad_value(fault, "--report-fd", optarg);
		}
		return 0;
	case OPT_LOG_LEVEL:
		level = log_level_parse(optarg);
		if (level < 0)
			return bad_value(fault, "--log-level", optarg);
		log_level_set((enum log_level)level);
		return 0;
	case 'c': *check = true; return 0;
	case OPT_GUARDED: keeper.guarded = true; return 0;
	case 'h': xsegd_man_help(); return SHOWN;
	case 'V': puts("xsegd (skerry) " PACKAGE_VERSION); return SHOWN;
	case OPT_MAN: xsegd_man(); return SHOWN;
	case OPT_CRASH: crash_points_list(stdout); return SHOWN;
	default:
		return fault_set(fault, FAULT_USAGE, NULL, "see 'xsegd --help'",
			"an option is unknown or lacks its value");
	}
}

static int read_arguments(int argc, char **argv, bool *check, struct fault *fault)
{
	int option, rc = 0;
	opterr = 0;
	while (!rc && (option = getopt_long(argc, argv, "t:chV", options, NULL)) >= 0)
		rc = set_option(option, check, fault);
	if (rc)
		return rc;
	if (argc - optind < 1 || argc - optind > 2)
		return fault_set(fault, FAULT_USAGE, NULL, "see 'xsegd --help'",
			"usage: xsegd [SEGMENT] FILE");
	const char *name = argc - optind == 2 ? argv[optind] : "";
	if (*name && !name_check(name))
		return fault_set(
			fault, FAULT_USAGE, name, NULL, "'%s' is no name for a segment", name);
	snprintf(keeper.name, sizeof(keeper.name), "%s", name);
	if (!realpath(argv[argc - 1], keeper.path))
		return fault_set(fault, errno == ENOENT ? FAULT_NOT_FOUND : FAULT_FAILED,
			argv[argc - 1], NULL, "pipeline file '%s': %s", argv[argc - 1],
			strerror(errno));
	return 0;
}

/* --- coming up -------------------------------------------------------------------------- */

static int name_segment(struct fault *fault)
{
	if (!keeper.name[0])
		snprintf(keeper.name, sizeof(keeper.name), "%s", keeper.pipeline.segment);
	if (!keeper.name[0])
		return fault_set(fault, FAULT_USAGE, keeper.path,
			"write 'name=' into [segment], or name it before the file",
			"'%s' does not say which segment", keeper.path);
	if (program_find("xsegpeer", keeper.xsegpeer))
		return fault_set(fault, FAULT_FAILED, "xsegpeer",
			"SKERRY_XSEGPEER says where it is", "xsegpeer is not found");
	return 0;
}

/* What an earlier keeper ran goes on as it was, even if the file cannot be read just now. */
static bool resume(int read, const struct fault *bad)
{
	struct fault fault;
	uint64_t hash = keeper.pipeline.hash;
	if (keeper_save_load(&keeper, &fault, read ? NULL : &hash))
		return false;
	if (read)
		log_warning(
			"keeper", "%s; segment '%s' goes on as it was", bad->message, keeper.name);
	else if (hash != keeper.pipeline.hash)
		log_warning("keeper",
			"'%s' has changed; segment '%s' goes on as it was, until 'xsegctl config "
			"apply'",
			keeper.path, keeper.name);
	return true;
}

/* All that can be known to be wrong is known before anything is done. */
static int prepare(bool check, struct fault *fault)
{
	struct fault bad = {0}, unnamed = {0};
	int read = pipeline_load(&keeper.pipeline, keeper.path, &bad);
	int rc = name_segment(&unnamed);
	if (!rc && !check && resume(read, &bad))
		return 0;
	*fault = read ? bad : unnamed;
	rc = read ? read : rc;
	return rc ? rc : keeper_check(&keeper, &keeper.pipeline, fault);
}

static int open_all(struct fault *fault)
{
	int rc = keeper_files_lock(&keeper, fault);
	if (!rc)
		rc = keeper_files_segment(&keeper, fault);
	if (rc)
		return rc;
	for (unsigned i = 0; i < keeper.pipeline.host_count; i++) {
		keeper_host_init(&keeper, i);
		keeper.order[i] = keeper.pipeline.order[i];
	}
	keeper.order_count = keeper.pipeline.host_count;
	keeper_event(&keeper, "keeper_started",
		json_pack("{s:i, s:b}", "pid", (int)getpid(), "resumed", (int)keeper.resumed));
	keeper_notify_take(&keeper);
	rc = keeper_adopt(&keeper, fault);
	if (!rc && keeper.resumed)
		keeper_save_apply(&keeper);
	if (!rc)
		rc = keeper_store_open(&keeper, fault);
	if (!rc)
		rc = keeper_server_open(&keeper, fault);
	if (!rc)
		keeper_job_open(&keeper);
	keeper_reap_open(&keeper);
	keeper_reap_soon(&keeper);
	keeper_watch_open(&keeper);
	if (!rc && keeper.resumed)
		keeper_turn_resume(&keeper);
	return rc;
}

/* --- going down ------------------------------------------------------------------------- */

static void tell(const struct fault *fault)
{
	if (keeper.report >= 0) {
		json_t *error = json_pack("{s:o}", "error", fault_to_json(fault));
		char *text = json_dumps(error, JSON_COMPACT);
		dprintf(keeper.report, "%s\n", text);
		free(text);
		json_decref(error);
		close(keeper.report);
		keeper.report = -1;
	}
	fprintf(stderr, "xsegd: %s%s%s\n", fault->message, fault->hint[0] ? "; " : "", fault->hint);
}

/* Answers `down`, and says how it went. */
static int close_all(void)
{
	struct fault partly = {0};
	char strangers[256];
	bool failed = keeper.fault.code != FAULT_NONE;
	if (keeper.joined)
		keeper_event(&keeper, "keeper_stopped",
			json_pack("{s:i, s:s}", "pid", (int)getpid(), "reason",
				failed ? keeper.fault.message : "as asked"));
	keeper_watch_close(&keeper);
	keeper_reap_close(&keeper);
	keeper_store_close(&keeper);
	keeper_guard_close(&keeper);
	bool used = keeper.joined && keeper_adopt_strangers(&keeper, strangers, sizeof(strangers));
	keeper_job_close(&keeper, true);
	bool destroy = keeper.made_segment && !used && (!failed || keeper.made_now);
	if (destroy && keeper.joined && keeper_cache_let_go(&keeper, keeper.discard_dirty, &partly))
		destroy = false;
	bool destroyed = keeper_files_remove(&keeper, destroy);
	if (keeper.killed[0] && !partly.code)
		fault_set(&partly, FAULT_PARTLY, keeper.name,
			"--timeout sets how long each may drain",
			"segment '%s' is down, but did not drain in time and was killed: %s",
			keeper.name, keeper.killed);
	if (keeper.operation.kind == KEEPER_OP_DOWN)
		keeper_server_finish(&keeper,
			partly.code
				? NULL
				: json_pack("{s:i, s:s, s:i, s:b}", "schema_version", 1, "segment",
					  keeper.name, "stopped_count", (int)keeper.stopped_count,
					  "segment_destroyed", (int)destroyed),
			partly.code ? &partly : NULL);
	log_info("keeper", "segment '%s' is down: %u processes stopped", keeper.name,
		keeper.stopped_count);
	keeper_server_close(&keeper);
	if (failed)
		tell(&keeper.fault);
	return failed ? (int)keeper.fault.code : (int)partly.code;
}

/* For what it keeps of others; they inherit it. */
static void raise_limit(void)
{
	struct rlimit limit;
	if (getrlimit(RLIMIT_NOFILE, &limit) || limit.rlim_cur >= FDS_WANTED)
		return;
	limit.rlim_cur = limit.rlim_max < FDS_WANTED ? limit.rlim_max : FDS_WANTED;
	setrlimit(RLIMIT_NOFILE, &limit);
}

int main(int argc, char **argv)
{
	struct fault fault = {0};
	bool check = false;
	if (argc > 1 && !strcmp(argv[1], GUARD_OPTION))
		return guard_main(argv);
	keeper = (struct keeper){.report = -1,
		.lock = -1,
		.kept = -1,
		.notify_fd = -1,
		.guard_socket = -1,
		.guard = -1,
		.argv = argv,
		.start_ns = START_NS,
		.stop_ns = STOP_NS};
	log_open("xsegd");
	signal(SIGPIPE, SIG_IGN);
	raise_limit();
	keeper_guard_take(&keeper);
	int rc = read_arguments(argc, argv, &check, &fault);
	if (rc == SHOWN)
		return 0;
	if (!rc)
		rc = prepare(check, &fault);
	if (!rc && check)
		return puts("ok"), 0;
	if (rc) {
		tell(&fault);
		return (int)fault.code;
	}
	keeper.base = event_base_new();
	must(keeper.base);
	keeper_turn_open(&keeper);
	rc = open_all(&fault);
	if (rc && keeper.lock < 0) { /* another's */
		tell(&fault);
		return (int)fault.code;
	}
	if (rc)
		keeper.fault = fault;
	else {
		keeper_turn_soon(&keeper);
		event_base_dispatch(keeper.base);
	}
	return close_all();
}
