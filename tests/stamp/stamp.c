/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stamp: writes sectors that say what they are to NBD volumes, reads them back all the time, and
 * proves that every read was linearizable and that no acknowledged write is lost.
 */
#include "tests/stamp/stamp.h"

#include <base/size.h>
#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

static volatile int stop;

static const char usage_text[] =
	"usage: stamp [OPTION]... URI...\n"
	"Writes stamped sectors to NBD volumes (blank at first), reads them back, checks each "
	"read.\n"
	"  --connections N    to each volume (4)\n"
	"  --depth N          operations at a time on each connection (8)\n"
	"  --seconds S        of load (5); --ops N: so many operations instead\n"
	"  --read-share P     of 100 operations (50)\n"
	"  --longest SIZE     of one operation (64K)\n"
	"  --hot SIZE         where half of all operations go (64K)\n"
	"  --seed N           of the random numbers (1)\n"
	"  --journal FILE     keep what was acknowledged there; a file of an earlier run is gone "
	"on\n"
	"                     with, and what it says must be there\n"
	"  --sync             with fdatasync() for each record\n"
	"  --verify-only      read all of it once, no load\n"
	"  --map FILE         the last pass only notes there which version each sector has (u64)\n"
	"  --no-final         do not read all of it at the end\n"
	"  --mixes            a read while the same sector is written may find half of each\n"
	"  --replays          there will be faults: a write may take effect more than once before "
	"it\n"
	"                     is acknowledged\n"
	"  --reconnect S      how long a connection may be gone (60)\n"
	"  --hang S           how long one operation may take (60)\n"
	"  --progress S       a line of JSON each so many seconds\n"
	"  --allow ERRNO      a guest error (number) that is none; may be repeated\n"
	"The last line of stdout is JSON. Exit status: 0: all well; 1: it is not; 2: usage;\n"
	"3: no connection, or the journal is of other volumes.\n";

enum {
	CONNECTIONS = 256,
	DEPTH,
	SECONDS,
	OPS,
	READ_SHARE,
	LONGEST,
	HOT,
	SEED,
	JOURNAL,
	SYNC,
	VERIFY_ONLY,
	MAP,
	REPLAYS,
	MIXES,
	NO_FINAL,
	RECONNECT,
	HANG,
	PROGRESS,
	ALLOW
};

static const struct option long_options[] = {
	{"connections", required_argument, NULL, CONNECTIONS},
	{"depth", required_argument, NULL, DEPTH},
	{"seconds", required_argument, NULL, SECONDS},
	{"ops", required_argument, NULL, OPS},
	{"read-share", required_argument, NULL, READ_SHARE},
	{"longest", required_argument, NULL, LONGEST},
	{"hot", required_argument, NULL, HOT},
	{"seed", required_argument, NULL, SEED},
	{"journal", required_argument, NULL, JOURNAL},
	{"sync", no_argument, NULL, SYNC},
	{"verify-only", no_argument, NULL, VERIFY_ONLY},
	{"map", required_argument, NULL, MAP},
	{"replays", no_argument, NULL, REPLAYS},
	{"mixes", no_argument, NULL, MIXES},
	{"no-final", no_argument, NULL, NO_FINAL},
	{"reconnect", required_argument, NULL, RECONNECT},
	{"hang", required_argument, NULL, HANG},
	{"progress", required_argument, NULL, PROGRESS},
	{"allow", required_argument, NULL, ALLOW},
	{"help", no_argument, NULL, 'h'},
	{NULL, 0, NULL, 0},
};

static void usage(int status)
{
	fputs(usage_text, status ? stderr : stdout);
	exit(status);
}

static uint64_t number(const char *text, uint64_t least, uint64_t most)
{
	uint64_t value;
	if (size_parse(text, &value) || value < least || value > most) {
		fprintf(stderr, "stamp: '%s' is not a number from %llu to %llu\n", text,
			(unsigned long long)least, (unsigned long long)most);
		exit(2);
	}
	return value;
}

static double seconds(const char *text)
{
	char *end;
	double value = strtod(text, &end);
	if (*end || end == text || !(value >= 0 && value < 1e7)) {
		fprintf(stderr, "stamp: '%s' is not a number of seconds\n", text);
		exit(2);
	}
	return value;
}

static void option(struct options *o, int which)
{
	switch (which) {
	case CONNECTIONS: o->connections = (unsigned)number(optarg, 1, 256); break;
	case DEPTH: o->depth = (unsigned)number(optarg, 1, 1024); break;
	case SECONDS: o->seconds = seconds(optarg); break;
	case OPS: o->ops = number(optarg, 1, INT64_MAX); break;
	case READ_SHARE: o->read_share = (unsigned)number(optarg, 0, 100); break;
	case LONGEST: o->sectors_max = (unsigned)number(optarg, 4096, 4 << 20) / 512; break;
	case HOT: o->hot = number(optarg, 4096, INT64_MAX) / 512; break;
	case SEED: o->seed = number(optarg, 0, INT64_MAX); break;
	case JOURNAL: o->journal = optarg; break;
	case SYNC: o->sync = true; break;
	case MAP: o->map = optarg; break;
	case VERIFY_ONLY: o->verify_only = true; break;
	case REPLAYS: o->replays = true; break;
	case MIXES: o->mixes = true; break;
	case NO_FINAL: o->final_pass = false; break;
	case RECONNECT: o->reconnect_s = seconds(optarg); break;
	case HANG: o->hang_s = seconds(optarg); break;
	case PROGRESS: o->progress_s = seconds(optarg); break;
	case ALLOW: o->allowed[number(optarg, 1, STAMP_ERRNOS - 1)] = true; break;
	case 'h': usage(0); break;
	default: usage(2);
	}
}

/* "errors": {"ENOSPC": 3}; returns how many of them were not allowed. */
static uint64_t print_errors(const struct options *options, const struct results *results)
{
	const char *comma = "";
	uint64_t bad = 0;
	printf("\"errors\": {");
	for (int i = 0; i < STAMP_ERRNOS; i++) {
		if (!results->errors[i])
			continue;
		const char *name = i ? strerrorname_np(i) : "other";
		printf("%s\"%s\": %llu", comma, name ? name : "other",
			(unsigned long long)results->errors[i]);
		comma = ", ";
		if (!options->allowed[i])
			bad += results->errors[i];
	}
	printf("}, \"guest_errors\": %llu, ", (unsigned long long)bad);
	return bad;
}

static void field(const char *name, uint64_t value)
{
	printf("\"%s\": %llu, ", name, (unsigned long long)value);
}

static bool print_results(const struct options *options, const struct results *r)
{
	printf("{");
	uint64_t bad = print_errors(options, r);
	field("old", r->old);
	field("twice", r->twice);
	field("mixed", r->mixed);
	field("lost", r->lost);
	field("torn", r->torn);
	field("misplaced", r->misplaced);
	field("alien", r->alien);
	field("hung", r->hung);
	field("reads", r->reads);
	field("writes", r->writes);
	field("flushes", r->flushes);
	field("bytes_read", r->bytes_read);
	field("bytes_written", r->bytes_written);
	field("sectors_checked", r->sectors_checked);
	field("reconnects", r->reconnects);
	field("repeated", r->repeated);
	field("latency_p50_ns", histogram_quantile(r->latency, 0.5));
	field("latency_p99_ns", histogram_quantile(r->latency, 0.99));
	field("latency_max_ns", r->latency_ns_max);
	field("pause_max_ns", r->pause_ns_max);
	bad += options->mixes ? 0 : r->mixed;
	bad += options->replays ? 0 : r->twice;
	bad += r->old + r->torn + r->misplaced + r->alien + r->hung + (r->given_up != 0);
	printf("\"given_up\": %s, \"ok\": %s, \"schema_version\": 1}\n",
		r->given_up ? "true" : "false", bad ? "false" : "true");
	return bad == 0;
}

static void ask_to_stop(int signal)
{
	(void)signal;
	stop = 1;
}

int main(int argc, char **argv)
{
	static struct results results;
	struct options options = {.connections = 4,
		.depth = 8,
		.seconds = 5,
		.read_share = 50,
		.sectors_max = 128,
		.hot = 128,
		.seed = 1,
		.reconnect_s = 60,
		.hang_s = 60,
		.final_pass = true};
	for (int c; (c = getopt_long(argc, argv, "h", long_options, NULL)) != -1;)
		option(&options, c);
	for (; optind < argc && options.volumes < STAMP_VOLUMES; optind++)
		options.uris[options.volumes++] = argv[optind];
	if (options.volumes == 0 || optind != argc)
		usage(2);
	struct sigaction action = {.sa_handler = ask_to_stop};
	sigaction(SIGTERM, &action, NULL);
	sigaction(SIGINT, &action, NULL);
	int error = load_run(&options, &results, &stop);
	if (error) {
		fprintf(stderr, "stamp: %s\n", strerror(-error));
		return 3;
	}
	return print_results(&options, &results) ? 0 : 1;
}
