/* SPDX-License-Identifier: Apache-2.0 */
/* xsegpeer: the program that hosts peers. Reads the command line, waits for signals. */
#include <base/clock.h>
#include <base/crash.h>
#include <base/log.h>
#include <base/time.h>
#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "peers/core/core.h"

#define MAIN_DRAIN_NS 30000000000u
#define MAIN_WORKERS 4u
#define MAIN_WATCH_LEAST_US 1500000u

enum { EXIT_USAGE = 2, EXIT_MISSING = 3 };

/* The heap is small and mostly quiet: few arenas, and what is free goes back soon. */
const char *malloc_conf = "narenas:2,dirty_decay_ms:1000,muzzy_decay_ms:0,tcache_max:4096";

static struct host main_host;

enum {
	OPT_LIST = 256,
	OPT_HELP_ROLE,
	OPT_DESCRIBE,
	OPT_CHECK,
	OPT_MAN,
	OPT_WORKERS,
	OPT_DRAIN,
	OPT_DIE,
	OPT_DUMP,
	OPT_LOG,
	OPT_CRASH,
};

static const struct option main_options[] = {
	{"segment", required_argument, NULL, 's'},
	{"lanes", required_argument, NULL, 'l'},
	{"workers", required_argument, NULL, OPT_WORKERS},
	{"drain-limit", required_argument, NULL, OPT_DRAIN},
	{"dump-file", required_argument, NULL, OPT_DUMP},
	{"log-level", required_argument, NULL, OPT_LOG},
	{"die-with-parent", no_argument, NULL, OPT_DIE},
	{"list", no_argument, NULL, OPT_LIST},
	{"help-role", required_argument, NULL, OPT_HELP_ROLE},
	{"describe-role", required_argument, NULL, OPT_DESCRIBE},
	{"check", no_argument, NULL, OPT_CHECK},
	{"man", required_argument, NULL, OPT_MAN},
	{"crash-points", no_argument, NULL, OPT_CRASH},
	{"help", no_argument, NULL, 'h'},
	{"version", no_argument, NULL, 'V'},
	{NULL, 0, NULL, 0},
};

static const char main_help[] =
	"Usage: xsegpeer -s SEGMENT [-l LANES] PEER=ROLE[,option=value]... [PEER=ROLE...]...\n"
	"\n"
	"Hosts peers in a segment, in the foreground, until SIGTERM; writes 'ready' when all "
	"serve.\n"
	"An edge to the peer below is the option edge.NAME=PEER; '\\,' is a comma within a value.\n"
	"\n"
	"  -s, --segment NAME     the segment to join\n"
	"  -l, --lanes N          threads; each peer has a shard on every one (1 to 16; default "
	"1)\n"
	"      --workers N        threads at most for what blocks (1 to 64; default 4)\n"
	"      --drain-limit TIME how long a stop waits for what is in flight (default 30s)\n"
	"      --dump-file FILE   where SIGUSR1 writes the state of all peers (default stderr)\n"
	"      --log-level LEVEL  error, warning, info or debug (default info)\n"
	"      --die-with-parent  end when the process that started this one ends\n"
	"      --list             the roles there are\n"
	"      --help-role ROLE   the options of a role\n"
	"      --describe-role ROLE  the same as JSON\n"
	"      --man ROLE         its manual page, as scdoc takes it\n"
	"      --check            read the peers and their options, start nothing\n"
	"      --crash-points     the places where SKERRY_CRASH can kill this build\n"
	"  -h, --help\n"
	"  -V, --version\n";

struct main_config {
	struct host_config host;
	const char *dump_file;
	bool die_with_parent, check;
	int status; /* exit at once with it, when >= 0 */
};

__attribute__((format(printf, 1, 2))) static int main_usage(const char *format, ...)
{
	va_list args;
	va_start(args, format);
	fprintf(stderr, "xsegpeer: ");
	vfprintf(stderr, format, args);
	fprintf(stderr, "; see 'xsegpeer --help'\n");
	va_end(args);
	return EXIT_USAGE;
}

static int main_number(const char *option, const char *text, unsigned max, unsigned *out)
{
	char *end;
	unsigned long value = strtoul(text, &end, 10);
	if (*text < '0' || *text > '9' || *end || value < 1 || value > max)
		return main_usage("%s takes 1 to %u, not '%s'", option, max, text);
	*out = (unsigned)value;
	return -1;
}

static int main_time(const char *text, uint64_t *ns)
{
	struct {
		uint64_t ns;
	} place;
	const struct peer_option table[] = {
		{.type = PEER_OPTION_TIME, .name = "--drain-limit", .offset = 0}, OPTION_END};
	char why[WHY_SIZE];
	if (option_set(table, &place, "--drain-limit", text, why))
		return main_usage("%s", why);
	*ns = place.ns;
	return -1;
}

static void main_list_one(const struct peer_ops *ops, void *context)
{
	(void)context;
	printf("%-20s %s\n", ops->name, ops->summary ? ops->summary : "");
}

static int main_list(void)
{
	if (module_visit(main_list_one, NULL) == 0)
		return 0;
	fprintf(stderr, "xsegpeer: no roles in the module folder (SKERRY_MODULE_DIR moves it)\n");
	return 1;
}

/* Stays loaded: its crash points lie in it. */
static void main_crash_one(const struct peer_ops *ops, void *context)
{
	char why[WHY_SIZE];
	const struct peer_ops *again;
	void *module;
	(void)context;
	if (module_open(ops->name, &module, &again, why))
		fprintf(stderr, "xsegpeer: %s\n", why);
}

static int main_crash(void)
{
	module_visit(main_crash_one, NULL);
	crash_points_list(stdout);
	if (crash_points_there())
		return 0;
	fprintf(stderr, "xsegpeer: built without crash points (configure --enable-crash-points)\n");
	return 1;
}

static int main_describe(const char *role, void (*describe)(const struct peer_ops *ops, FILE *out))
{
	char why[WHY_SIZE];
	const struct peer_ops *ops;
	void *module;
	int error = module_open(role, &module, &ops, why);
	if (error) {
		fprintf(stderr, "xsegpeer: %s\n", why);
		return error == -ENOENT ? EXIT_MISSING : 1;
	}
	describe(ops, stdout);
	module_close(module);
	return 0;
}

/* One option; what to exit with at once, or -1. */
static int main_option(int option, struct main_config *config)
{
	int level;
	switch (option) {
	case 's': config->host.segment = optarg; return -1;
	case 'l': return main_number("--lanes", optarg, HOST_LANES_MAX, &config->host.lanes);
	case OPT_WORKERS: return main_number("--workers", optarg, 64, &config->host.workers);
	case OPT_DRAIN: return main_time(optarg, &config->host.drain_ns);
	case OPT_DUMP: config->dump_file = optarg; return -1;
	case OPT_DIE: config->die_with_parent = true; return -1;
	case OPT_LOG:
		level = log_level_parse(optarg);
		if (level < 0)
			return main_usage(
				"--log-level takes error, warning, info or debug, not '%s'",
				optarg);
		log_level_set((enum log_level)level);
		return -1;
	case OPT_LIST: return main_list();
	case OPT_CRASH: return main_crash();
	case OPT_HELP_ROLE: return main_describe(optarg, man_help);
	case OPT_DESCRIBE: return main_describe(optarg, describe_role);
	case OPT_CHECK: config->check = true; return -1;
	case OPT_MAN: return main_describe(optarg, man_page);
	case 'h': fputs(main_help, stdout); return 0;
	case 'V': puts("xsegpeer (skerry) " PACKAGE_VERSION); return 0;
	default: return EXIT_USAGE;
	}
}

static int main_parse(int argc, char **argv, struct main_config *config)
{
	int option, status = -1;
	while (status < 0 && (option = getopt_long(argc, argv, "s:l:hV", main_options, NULL)) != -1)
		status = main_option(option, config);
	if (status >= 0)
		return status;
	if (!config->host.segment)
		config->host.segment = getenv("SKERRY_SEGMENT");
	if (!config->host.segment || !*config->host.segment)
		return main_usage("no segment is named (-s SEGMENT)");
	if (optind == argc)
		return main_usage("no peer is named (PEER=ROLE)");
	for (; optind < argc; optind++) {
		char why[WHY_SIZE];
		if (spec_host_add(&main_host, argv[optind], why)) {
			fprintf(stderr, "xsegpeer: %s\n", why);
			return EXIT_USAGE;
		}
	}
	return config->check ? 0 : -1;
}

/* --- signals -------------------------------------------------------------------------- */

/* SIGHUP is SIGTERM with a successor to follow. SIGUSR2 is a lane's: peer_stop_host() and
   peer_fatal(). */
static void main_block(sigset_t *set)
{
	sigemptyset(set);
	sigaddset(set, SIGTERM);
	sigaddset(set, SIGINT);
	sigaddset(set, SIGHUP);
	sigaddset(set, SIGUSR1);
	sigaddset(set, SIGUSR2);
	sigprocmask(SIG_BLOCK, set, NULL);
	signal(SIGPIPE, SIG_IGN);
}

/* While we drain: a second SIGTERM or SIGINT ends it. */
static bool main_hurry(void)
{
	sigset_t set;
	const struct timespec now = {0};
	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	return sigtimedwait(&set, NULL, &now) > 0;
}

static void main_dump(const struct main_config *config)
{
	FILE *out = config->dump_file ? fopen(config->dump_file, "ae") : stderr;
	if (!out) {
		log_error("core_main", "cannot write %s: %s", config->dump_file, strerror(errno));
		return;
	}
	host_dump(&main_host, out);
	if (out != stderr)
		fclose(out);
}

/* How often the service manager wants a sign of life (two in its limit); a day when it does not. */
static uint64_t main_watch_every_ns(void)
{
	const char *text = getenv("WATCHDOG_USEC");
	unsigned long long us = text ? strtoull(text, NULL, 10) / 2 : 0;
	/* lanes that sleep make a turn a second: more often nobody can tell */
	if (us < MAIN_WATCH_LEAST_US)
		us = text ? MAIN_WATCH_LEAST_US : 86400000000u;
	return us * NS_PER_US;
}

/*
 * Until we are to stop; the signal: SIGHUP when a successor follows. A signal that ends a wait puts
 * no sign of life off: being stopped and continued does that as well as SIGUSR1.
 */
static int main_wait(const sigset_t *set, const struct main_config *config)
{
	const uint64_t every_ns = main_watch_every_ns();
	uint64_t next_ns = clock_now_ns() + every_ns;
	for (;;) {
		uint64_t now_ns = clock_now_ns();
		if (now_ns >= next_ns && host_alive(&main_host))
			notify_alive();
		if (now_ns >= next_ns)
			next_ns = now_ns + every_ns;
		struct timespec left = time_spec(next_ns - now_ns);
		int signal = sigtimedwait(set, NULL, &left);
		if (signal == SIGUSR1)
			main_dump(config);
		else if (signal > 0)
			return signal;
	}
}

static int main_serve(struct main_config *config)
{
	char why[WHY_SIZE];
	sigset_t set;
	main_block(&set);
	if (host_start(&main_host, &config->host, why)) {
		fprintf(stderr, "xsegpeer: %s\n", why);
		return 1;
	}
	notify_drop_rest();
	puts("ready");
	fflush(stdout);
	notify_ready("serving");
	int signal = main_wait(&set, config);
	notify_stopping(config->host.drain_ns, signal == SIGHUP);
	if (!host_stop(&main_host, main_hurry)) {
		log_error("core_main", "not everything has ended; this is left:");
		host_dump(&main_host, stderr);
		/* what is in flight stays in the segment, for the next to take up */
		_exit(1);
	}
	int status = atomic_load(&main_host.status);
	host_fini(&main_host);
	return status;
}

int main(int argc, char **argv)
{
	struct main_config config = {
		.host = {.lanes = 1, .workers = MAIN_WORKERS, .drain_ns = MAIN_DRAIN_NS}};
	log_open("xsegpeer");
	int status = main_parse(argc, argv, &config);
	if (status >= 0)
		return status;
	/* our parent may have gone while we were starting */
	if (config.die_with_parent) {
		pid_t parent = getppid();
		prctl(PR_SET_PDEATHSIG, SIGTERM);
		if (getppid() != parent)
			return 1;
	}
	return main_serve(&config);
}
