/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Does to volumes what bench/volumes.py asks for, and says in one JSON object how long it took.
 *
 *   bench_volume SEGMENT create PORT PREFIX COUNT SIZE OBJECT_SIZE
 *   bench_volume SEGMENT fill MAPPER NAME OBJECTS     all of them are in its map; none is written
 *   bench_volume SEGMENT copy PORT snapshot|clone NAME PREFIX COUNT [open]
 *   bench_volume SEGMENT remove PORT PREFIX COUNT
 *   bench_volume SEGMENT reads PORT COUNT NAME        4 KiB each, in no order, one at a time
 *   bench_volume SEGMENT writes PORT FIRST COUNT BLOCK NAME...  block BLOCK of each object from
 *                                                     FIRST on, of the volumes in turn
 *   bench_volume SEGMENT crowd PORT ROUNDS NAME...    all blocks of all volumes, in turn
 *   bench_volume SEGMENT hops ROUNDS COUNT DEPTH PORT[:NAME]...  in turn: reads of a volume, or
 *                                                     of a store's objects
 */
#include <errno.h>
#include <string.h>

#include "bench/asker.h"

#define NAMES_MAX 80u
#define NEWS_BATCH 16384u

struct bench_volume {
	const char *segment;
	int count;   /* of words */
	char **word; /* behind the verb */
};

static uint64_t number(const struct bench_volume *b, int i)
{
	return strtoull(b->word[i], NULL, 10);
}

static void name_of(char name[VOLUME_NAME_LENGTH_MAX + 1], const char *prefix, uint32_t i)
{
	snprintf(name, VOLUME_NAME_LENGTH_MAX + 1, "%s%u", prefix, i);
}

/* --- made, filled, copied, removed -------------------------------------------------------- */

static uint64_t verb_create(const struct bench_volume *b)
{
	struct client client;
	uint32_t count = (uint32_t)number(b, 2);
	asker_open(&client, b->segment, b->word[0]);
	uint64_t begun_ns = clock_now_ns();
	uint64_t id =
		asker_create(&client, b->word[1], count, number(b, 3), (uint32_t)number(b, 4));
	printf("{\"ns\": %llu, \"id\": %llu}\n",
		(unsigned long long)((clock_now_ns() - begun_ns) / count), (unsigned long long)id);
	client_close(&client);
	return 0;
}

/* As a composer publishes what has been written: the map cannot know that nothing was. */
static void publish(struct client *client, const struct map_head_info *head, uint32_t first,
	uint32_t count, struct map_update *changes)
{
	memset(changes, 0, count * sizeof(*changes));
	for (uint32_t i = 0; i < count; i++)
		changes[i] = (struct map_update){.object = first + i, .epoch = head->epoch};
	struct client_request request = {.arg0 = MAP_PUBLISH,
		.arg1 = count,
		.key.volume = head->id,
		.send = changes,
		.send_size = count * (uint32_t)sizeof(*changes)};
	asker_control(client, &request, NULL, NULL, request.send_size);
}

static uint64_t verb_fill(const struct bench_volume *b)
{
	struct client client;
	struct map_head_info head;
	struct map_ask ask = {.id = 0};
	uint32_t count = (uint32_t)number(b, 2);
	struct map_update *changes = malloc(NEWS_BATCH * sizeof(*changes));
	must(changes);
	asker_open(&client, b->segment, b->word[0]);
	snprintf(ask.name, sizeof(ask.name), "%s", b->word[1]);
	struct client_request acquire = {.arg0 = MAP_ACQUIRE};
	asker_control(&client, &acquire, &ask, &head, sizeof(head));
	uint64_t begun_ns = clock_now_ns();
	for (uint32_t at = 0; at < count; at += NEWS_BATCH)
		publish(&client, &head, at, count - at < NEWS_BATCH ? count - at : NEWS_BATCH,
			changes);
	uint64_t took_ns = clock_now_ns() - begun_ns;
	struct client_request release = {.arg0 = MAP_RELEASE, .key.volume = head.id};
	asker_control(&client, &release, NULL, NULL, 0);
	printf("{\"ns\": %llu}\n", (unsigned long long)(took_ns / (count ? count : 1)));
	client_close(&client);
	free(changes);
	return 0;
}

static uint64_t verb_copy(const struct bench_volume *b)
{
	struct client client;
	struct samples took;
	uint32_t count = (uint32_t)number(b, 4);
	bool open = b->count > 5;
	asker_open(&client, b->segment, b->word[0]);
	samples_init(&took, count);
	struct xseg_volume_info info = asker_open_volume(&client, b->word[2], open);
	if (!open)
		asker_close_volume(&client, info.id);
	for (uint32_t i = 0; i < count; i++) {
		struct map_ask ask = {.size = 0};
		must(getentropy(&ask.id, sizeof(ask.id)) == 0);
		name_of(ask.name, b->word[3], i);
		struct client_request request = {
			.arg0 = strcmp(b->word[1], "clone") == 0 ? MAP_CLONE : MAP_SNAP,
			.key.volume = info.id};
		samples_add(&took, (double)asker_control(&client, &request, &ask, NULL, 4096));
	}
	if (open)
		asker_close_volume(&client, info.id);
	printf("{\"p50_ns\": %.0f, \"max_ns\": %.0f}\n", samples_median(&took),
		samples_quantile(&took, 1));
	samples_fini(&took);
	client_close(&client);
	return 0;
}

static uint64_t verb_remove(const struct bench_volume *b)
{
	struct client client;
	asker_open(&client, b->segment, b->word[0]);
	for (uint32_t i = 0; i < number(b, 2); i++) {
		char name[VOLUME_NAME_LENGTH_MAX + 1];
		name_of(name, b->word[1], i);
		asker_remove(&client, name);
	}
	printf("{}\n");
	client_close(&client);
	return 0;
}

/* --- reads and writes --------------------------------------------------------------------- */

struct opened {
	struct client client;
	struct asker asker;
	struct xseg_volume_info info;
	struct samples took;
};

/* PORT and NAME, or a store when there is no name. */
static struct opened *open_one(
	const char *segment, const char *port, const char *name, bool writes, uint32_t samples)
{
	struct opened *o = calloc(1, sizeof(*o));
	must(o);
	asker_open(&o->client, segment, port);
	o->info = (struct xseg_volume_info){.size = 1u << 30, .object_size = XSEG_OBJECT_MAX};
	if (name)
		o->info = asker_open_volume(&o->client, name, writes);
	o->asker = (struct asker){.seg = &o->client.seg,
		.lane = o->client.lane,
		.port = o->client.port,
		.volume = name ? o->info.id : 0,
		.size = o->info.size};
	samples_init(&o->took, samples);
	return o;
}

static uint64_t close_one(struct opened *o)
{
	uint64_t errors = o->asker.errors;
	if (o->asker.volume != 0)
		asker_close_volume(&o->client, o->info.id);
	samples_fini(&o->took);
	client_close(&o->client);
	free(o);
	return errors;
}

static uint64_t verb_reads(const struct bench_volume *b)
{
	uint32_t count = (uint32_t)number(b, 1);
	struct opened *o = open_one(b->segment, b->word[0], b->word[2], false, count);
	for (uint32_t i = 0; i < count; i++)
		samples_add(&o->took,
			(double)asker_one(&o->asker, XSEG_OP_READ, asker_block(&o->asker)));
	printf("{\"p50_ns\": %.0f}\n", samples_median(&o->took));
	return close_one(o);
}

static void flush(struct opened *o, struct samples *took)
{
	struct client_request request = {.op = XSEG_OP_FLUSH, .key.volume = o->info.id};
	uint64_t begun_ns = clock_now_ns();
	int rc = client_do(&o->client, &request);
	if (rc != 0 || request.result != 0)
		asker_fail("flush", rc ? rc : request.result);
	samples_add(took, (double)(clock_now_ns() - begun_ns));
}

static uint64_t verb_writes(const struct bench_volume *b)
{
	struct opened *o[NAMES_MAX];
	uint32_t first = (uint32_t)number(b, 1), count = (uint32_t)number(b, 2);
	int names = b->count - 4;
	uint64_t errors = 0;
	must(names > 0 && names <= (int)NAMES_MAX);
	for (int n = 0; n < names; n++)
		o[n] = open_one(b->segment, b->word[0], b->word[4 + n], true, count);
	for (uint32_t i = first; i < first + count; i++)
		for (int n = 0; n < names; n++) {
			uint64_t block = (uint64_t)i * (o[n]->info.object_size / XSEG_PAGE);
			samples_add(&o[n]->took, (double)asker_one(&o[n]->asker, XSEG_OP_WRITE,
							 block + number(b, 3)));
		}
	printf("{");
	for (int n = 0; n < names; n++) {
		struct samples flushed;
		samples_init(&flushed, 1);
		flush(o[n], &flushed);
		printf("%s\"%s\": {\"p50_ns\": %.0f, \"flush_ns\": %.0f}", n ? ", " : "",
			b->word[4 + n], samples_median(&o[n]->took), samples_median(&flushed));
		samples_fini(&flushed);
		errors += close_one(o[n]);
	}
	printf("}\n");
	return errors;
}

/* All of them on one lane: as many clients as volumes would need as many lanes. */
static uint64_t verb_crowd(const struct bench_volume *b)
{
	struct client client;
	struct asker asker[NAMES_MAX];
	uint32_t names = (uint32_t)b->count - 2;
	uint64_t rounds = number(b, 1), errors = 0, reads = 0;
	must(names > 0 && names <= NAMES_MAX);
	asker_open(&client, b->segment, b->word[0]);
	for (uint32_t n = 0; n < names; n++) {
		struct xseg_volume_info info = asker_open_volume(&client, b->word[2 + n], false);
		asker[n] = (struct asker){.seg = &client.seg,
			.lane = client.lane,
			.port = client.port,
			.volume = info.id,
			.size = info.size};
	}
	uint64_t begun_ns = clock_now_ns();
	for (uint64_t i = 0; i < rounds * (asker[0].size / XSEG_PAGE); i += 32)
		for (uint32_t n = 0; n < names; n++, reads += 32)
			asker_many(&asker[n], 32, 32);
	uint64_t took_ns = clock_now_ns() - begun_ns;
	for (uint32_t n = 0; n < names; n++) {
		errors += asker[n].errors;
		asker_close_volume(&client, asker[n].volume);
	}
	printf("{\"reads\": %llu, \"ops_per_second\": %.0f}\n", (unsigned long long)reads,
		(double)reads * 1e9 / (double)took_ns);
	client_close(&client);
	return errors;
}

/* --- hops --------------------------------------------------------------------------------- */

static void hop_round(struct opened *o, uint32_t count, uint32_t depth)
{
	if (depth > 1) {
		samples_add(&o->took, 1e9 / asker_many(&o->asker, count, depth));
		return;
	}
	for (uint32_t i = 0; i < count; i++)
		samples_add(&o->took,
			(double)asker_one(&o->asker, XSEG_OP_READ, asker_block(&o->asker)));
}

static uint64_t verb_hops(const struct bench_volume *b)
{
	struct opened *o[NAMES_MAX];
	uint32_t rounds = (uint32_t)number(b, 0), count = (uint32_t)number(b, 1);
	uint32_t depth = (uint32_t)number(b, 2), samples = depth > 1 ? rounds : rounds * count;
	int ways = b->count - 3;
	uint64_t errors = 0;
	must(ways > 0 && ways <= (int)NAMES_MAX && depth > 0 && depth <= 256);
	for (int n = 0; n < ways; n++) {
		char *port = b->word[3 + n], *name = strchr(port, ':');
		if (name)
			*name++ = 0;
		o[n] = open_one(b->segment, port, name, true, samples);
		asker_many(&o[n]->asker, 2000, 64); /* all is known then */
	}
	for (uint32_t i = 0; i < rounds; i++)
		for (int n = 0; n < ways; n++)
			hop_round(o[n], count, depth);
	printf("{");
	for (int n = 0; n < ways; n++) {
		printf("%s\"%s\": %.2f", n ? ", " : "", b->word[3 + n],
			samples_median(&o[n]->took));
		errors += close_one(o[n]);
	}
	printf("}\n");
	return errors;
}

/* --- main --------------------------------------------------------------------------------- */

static const struct verb {
	const char *name;
	int words; /* at the least */
	uint64_t (*run)(const struct bench_volume *b);
} verbs[] = {
	{"create", 5, verb_create},
	{"fill", 3, verb_fill},
	{"copy", 5, verb_copy},
	{"remove", 3, verb_remove},
	{"reads", 3, verb_reads},
	{"writes", 5, verb_writes},
	{"crowd", 3, verb_crowd},
	{"hops", 4, verb_hops},
};

int main(int argc, char **argv)
{
	for (unsigned i = 0; argc > 2 && i < countof(verbs); i++) {
		if (strcmp(verbs[i].name, argv[2]) != 0 || argc - 3 < verbs[i].words)
			continue;
		struct bench_volume b = {.segment = argv[1], .count = argc - 3, .word = argv + 3};
		uint64_t errors = verbs[i].run(&b);
		if (errors)
			fprintf(stderr, "bench_volume: %llu requests failed\n",
				(unsigned long long)errors);
		return errors != 0;
	}
	fprintf(stderr, "usage: bench_volume SEGMENT VERB PORT ..., see bench/bench_volume.c\n");
	return 2;
}
