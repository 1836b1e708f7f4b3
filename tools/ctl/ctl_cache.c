/* SPDX-License-Identifier: Apache-2.0 */
/* cache list, stats, mode, flush, drop, resize and policy: asked of the cache, by its port. */
#include "tools/ctl/ctl_cache.h"

#include <base/must.h>
#include <base/size.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xseg/registry.h>

#include "tools/ctl/ctl_volume.h"

#define LONG_NS (365ull * 24 * 3600 * 1000000000u) /* as long as the store takes */

static const struct ctl_option option_volume = {
	"volume", 0, "VOLUME", "only this volume (default: all of them)", NULL};
static const struct ctl_option option_mode_volume = {"volume", 0, "VOLUME",
	"of this volume (default: of all that have no setting of their own)", NULL};
static const struct ctl_option option_ack = {"ack", 0, "WHERE",
	"a flush is answered when its data is at the blocker, in the journal, or at once "
	"(volatile)",
	ctl_cache_acks};
static const struct ctl_option option_share = {
	"share", 0, "PERCENT", "most that one volume may take of the cache; 0: no limit", NULL};
static const struct ctl_option option_volumes = {
	"volumes", 0, NULL, "a line for each volume", NULL};

/* --- list ------------------------------------------------------------------------------- */

static const struct ctl_column list_columns[] = {{"name", "NAME", CTL_TEXT},
	{"phase", "PHASE", CTL_TEXT}, {"mode", "MODE", CTL_TEXT}, {"ack", "ACK", CTL_TEXT},
	{"policy", "POLICY", CTL_TEXT}, {"size", "SIZE", CTL_SIZE}, {"used", "USED", CTL_SIZE},
	{"dirty", "DIRTY", CTL_SIZE}, {"health", "HEALTH", CTL_TEXT},
	{"reason", "REASON", CTL_TEXT}};

static json_t *list_one(struct ctl *ctl, const char *segment, const char *name)
{
	char why[XSEG_WHY_SIZE] = "";
	struct cache_state state;
	struct client client;
	int rc = client_open(&client, segment, name, why);
	if (!rc) {
		client.timeout_ns = ctl->timeout_given ? ctl->timeout_ns : 2000000000u;
		rc = ctl_cache_ask_state(&client, &state);
		client_close(&client);
	}
	if (!rc)
		return ctl_cache_ask_state_json(name, &state);
	return json_pack("{s:s, s:s, s:s, s:s}", "name", name, "phase", "unknown", "health",
		"silent", "reason", why[0] ? why : strerror(-rc));
}

static int run_list(struct ctl *ctl)
{
	json_t *rows = json_array();
	struct xseg seg;
	int rc = ctl_join(ctl, &seg);
	if (rc) {
		json_decref(rows);
		return rc;
	}
	for (uint32_t i = 0; i < XSEG_PEERS_MAX; i++) {
		struct xseg_peer_view view;
		if (!xseg_peer_view(&seg, i, &view) || strcmp(view.role, CTL_CACHE_ROLE))
			continue;
		if (view.life == XSEG_LIFE_DEAD)
			json_array_append_new(
				rows, json_pack("{s:s, s:s, s:s, s:s}", "name", view.name, "phase",
					      "unknown", "health", "dead", "reason",
					      "its process is gone"));
		else
			json_array_append_new(rows, list_one(ctl, seg.name, view.name));
	}
	xseg_segment_leave(&seg);
	ctl_output_rows(ctl, "caches", rows, list_columns, countof(list_columns));
	return 0;
}

const struct ctl_verb ctl_cache_list = {
	"cache",
	"list",
	"",
	0,
	0,
	"list caches and how they are",
	NULL,
	run_list,
	{0},
	.examples = "xsegctl cache list\n",
};

/* --- one cache, one volume -------------------------------------------------------------- */

struct ask {
	struct ctl *ctl;
	const char *name;
	struct client client;
	struct cache_state state;
	uint64_t volume; /* of --volume; 0: none */
};

static int volume_id(struct ask *ask)
{
	const char *name = ctl_option_value(ask->ctl, "volume");
	struct xseg_volume_info info;
	struct client client;
	if (!name)
		return 0;
	int rc = ctl_volume_name_check(ask->ctl, name);
	if (!rc)
		rc = ctl_join_composer(ask->ctl, &client);
	if (rc)
		return rc;
	rc = ctl_volume_find(ask->ctl, &client, name, &info);
	client_close(&client);
	ask->volume = rc ? 0 : info.id;
	return rc;
}

/* The cache that was named, its state, and the volume. */
static int ask_open(struct ctl *ctl, struct ask *ask)
{
	*ask = (struct ask){.ctl = ctl, .name = ctl->argv[0]};
	int rc = volume_id(ask);
	if (!rc)
		rc = ctl_cache_ask_open(ctl, ask->name, &ask->client);
	if (rc)
		return rc;
	int error = ctl_cache_ask_state(&ask->client, &ask->state);
	if (!error)
		return 0;
	client_close(&ask->client);
	return ctl_cache_ask_fault(ctl, ask->name, "asked", error);
}

/* Asked for, and the client closed. */
static int ask_do(struct ask *ask, struct ctl_cache_ask_call *call, const char *what)
{
	bool plan = ctl_option_given(ask->ctl, "dry-run");
	int error = plan ? 0 : ctl_cache_ask_call(&ask->client, call);
	client_close(&ask->client);
	return error ? ctl_cache_ask_fault(ask->ctl, ask->name, what, error) : 0;
}

/* The row of the volume among those that the cache knows; -ENOENT: it has nothing of it. */
static int volume_state(struct ask *ask, struct cache_volume_state *state)
{
	struct cache_volume_state *all;
	uint32_t count;
	int rc = ctl_cache_ask_volumes(&ask->client, &all, &count);
	bool found = false;
	for (uint32_t i = 0; !rc && i < count && !found; i++) {
		found = all[i].volume == ask->volume;
		if (found)
			*state = all[i];
	}
	free(all);
	return rc ? rc : found ? 0 : -ENOENT;
}

/* --- stats ------------------------------------------------------------------------------ */

static const struct ctl_column stats_columns[] = {{"name", "name", CTL_TEXT},
	{"phase", "phase", CTL_TEXT}, {"mode", "mode", CTL_TEXT}, {"ack", "ack", CTL_TEXT},
	{"policy", "policy", CTL_TEXT}, {"size", "size", CTL_SIZE}, {"used", "used", CTL_SIZE},
	{"dirty", "dirty", CTL_SIZE}, {"oldest_ns", "oldest dirty", CTL_TIME},
	{"objects", "objects", CTL_COUNT}, {"waiting", "waiting requests", CTL_COUNT},
	{"journal", "journal", CTL_SIZE}, {"hits", "hits", CTL_COUNT},
	{"misses", "misses", CTL_COUNT}, {"hit_percent", "hit %", CTL_COUNT},
	{"fills", "fills", CTL_COUNT}, {"bypasses", "bypasses", CTL_COUNT},
	{"evictions", "evictions", CTL_COUNT}, {"written", "written to the store", CTL_SIZE},
	{"write_calls", "in requests", CTL_COUNT}, {"health", "health", CTL_TEXT},
	{"reason", "reason", CTL_TEXT}};

static const struct ctl_column volume_columns[] = {{"volume", "VOLUME", CTL_TEXT},
	{"mode", "MODE", CTL_TEXT}, {"ack", "ACK", CTL_TEXT}, {"used", "USED", CTL_SIZE},
	{"dirty", "DIRTY", CTL_SIZE}, {"hit_percent", "HIT %", CTL_COUNT},
	{"hits", "HITS", CTL_COUNT}, {"misses", "MISSES", CTL_COUNT}, {"fills", "FILLS", CTL_COUNT},
	{"bypasses", "BYPASSES", CTL_COUNT}, {"evictions", "EVICTIONS", CTL_COUNT},
	{"written", "WRITTEN", CTL_SIZE}, {"write_calls", "IN REQUESTS", CTL_COUNT},
	{"epochs_behind", "EPOCHS BEHIND", CTL_COUNT}, {"bypassing", "BYPASSING", CTL_TEXT}};

/* What mostly bypasses the cache by itself: what it left behind was seldom read. */
static const char *bypassing(const struct cache_volume_state *v)
{
	if (v->read_bypass && v->write_bypass)
		return "reads, writes";
	return v->read_bypass ? "reads" : v->write_bypass ? "writes" : "nothing";
}

static double percent(uint64_t hits, uint64_t misses)
{
	return hits + misses ? (double)hits * 100 / (double)(hits + misses) : 0;
}

static json_t *volume_json(const struct cache_volume_state *v, const char *name)
{
	char id[24];
	snprintf(id, sizeof(id), "%016llx", (unsigned long long)v->volume);
	json_t *out = json_pack("{s:s, s:s, s:s, s:s, s:i, s:I, s:I}", "volume", name ? name : id,
		"id", id, "mode", ctl_cache_ask_word(ctl_cache_modes, v->setting.mode), "ack",
		ctl_cache_ask_word(ctl_cache_acks, v->setting.ack), "share", (int)v->setting.share,
		"used", (json_int_t)v->used, "dirty", (json_int_t)v->dirty);
	json_object_update_new(out,
		json_pack("{s:f, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:s}", "hit_percent",
			percent(v->hits, v->misses), "hits", (json_int_t)v->hits, "misses",
			(json_int_t)v->misses, "fills", (json_int_t)v->fills, "bypasses",
			(json_int_t)v->bypasses, "evictions", (json_int_t)v->evictions, "written",
			(json_int_t)v->written, "write_calls", (json_int_t)v->write_calls,
			"epochs_behind", (json_int_t)(uint32_t)(v->epoch - v->epoch_durable),
			"oldest_ns", (json_int_t)v->oldest_ns, "bypassing", bypassing(v)));
	return out;
}

/* Names are the composer's; without one ids do. */
static void names_add(struct ctl *ctl, json_t *rows)
{
	struct fault kept = ctl->fault;
	struct client client;
	json_t *row;
	size_t i;
	if (json_array_size(rows) && !ctl_join_composer(ctl, &client)) {
		json_array_foreach (rows, i, row) {
			const char *id = json_string_value(json_object_get(row, "id"));
			struct xseg_volume_info info = {0};
			struct client_request request = {.op = XSEG_OP_INFO,
				.key.volume = strtoull(id, NULL, 16),
				.length = sizeof(info),
				.send = &info,
				.send_size = sizeof(info),
				.receive = &info,
				.receive_size = sizeof(info)};
			bool good = !client_do(&client, &request) && !request.result;
			info.name[VOLUME_NAME_LENGTH_MAX] = 0;
			if (good && info.name[0]) /* one that is no UTF-8 keeps its id */
				json_object_set_new(row, "volume", json_string(info.name));
		}
		client_close(&client);
	}
	ctl->fault = kept;
}

static void total(json_t *out, const struct cache_volume_state *all, uint32_t count)
{
	struct cache_volume_state sum = {0};
	for (uint32_t i = 0; i < count; i++) {
		sum.hits += all[i].hits;
		sum.misses += all[i].misses;
		sum.fills += all[i].fills;
		sum.bypasses += all[i].bypasses;
		sum.evictions += all[i].evictions;
		sum.written += all[i].written;
		sum.write_calls += all[i].write_calls;
	}
	json_object_update_new(
		out, json_pack("{s:I, s:I, s:f, s:I, s:I, s:I, s:I, s:I, s:i}", "hits",
			     (json_int_t)sum.hits, "misses", (json_int_t)sum.misses, "hit_percent",
			     percent(sum.hits, sum.misses), "fills", (json_int_t)sum.fills,
			     "bypasses", (json_int_t)sum.bypasses, "evictions",
			     (json_int_t)sum.evictions, "written", (json_int_t)sum.written,
			     "write_calls", (json_int_t)sum.write_calls, "volumes", (int)count));
}

static int run_stats(struct ctl *ctl)
{
	struct cache_volume_state *all;
	struct ask ask;
	uint32_t count;
	int rc = ask_open(ctl, &ask);
	if (rc)
		return rc;
	int error = ctl_cache_ask_volumes(&ask.client, &all, &count);
	client_close(&ask.client);
	if (error) {
		free(all);
		return ctl_cache_ask_fault(ctl, ask.name, "asked", error);
	}
	if (ctl_option_given(ctl, "volumes")) {
		json_t *rows = json_array();
		for (uint32_t i = 0; i < count; i++)
			json_array_append_new(rows, volume_json(&all[i], NULL));
		names_add(ctl, rows);
		ctl_output_rows(ctl, "volumes", rows, volume_columns, countof(volume_columns));
	} else {
		json_t *out = ctl_cache_ask_state_json(ask.name, &ask.state);
		total(out, all, count);
		ctl_output_one(ctl, out, stats_columns, countof(stats_columns));
	}
	free(all);
	return 0;
}

const struct ctl_verb ctl_cache_stats = {
	"cache",
	"stats",
	"CACHE",
	1,
	1,
	"what is in a cache, and what it is worth",
	"\tHits, misses, fills, bypasses and evictions are counted in buckets of 4 KiB, since the "
	"process started. BYPASSING, with *--volumes*, are requests that mostly go to the store "
	"without the cache, since what they left in it was seldom read again.\n",
	run_stats,
	{&option_volumes, &ctl_option_via},
	.examples = "xsegctl cache stats cache0 --volumes\n",
};

/* --- mode ------------------------------------------------------------------------------- */

static const struct ctl_column mode_columns[] = {{"name", "name", CTL_TEXT},
	{"volume", "volume", CTL_TEXT}, {"mode", "mode", CTL_TEXT}, {"ack", "ack", CTL_TEXT},
	{"share", "share %", CTL_COUNT}, {"changed", "changed", CTL_TEXT}};

static int mode_wanted(struct ctl *ctl, struct cache_setting *setting)
{
	uint64_t share = setting->share;
	const char *ack = ctl_option_value(ctl, "ack");
	int mode = ctl->argc > 1 ? ctl_cache_ask_number(ctl_cache_modes, ctl->argv[1])
				 : (int)setting->mode;
	int number = ack ? ctl_cache_ask_number(ctl_cache_acks, ack) : (int)setting->ack;
	int rc = ctl_option_number(ctl, "share", 100, &share);
	if (mode < 0)
		return fault_set(&ctl->fault, FAULT_USAGE, ctl->argv[1],
			"writeback, writethrough or writearound", "'%s' is no mode", ctl->argv[1]);
	if (number < 0)
		return fault_set(&ctl->fault, FAULT_USAGE, ack, "blocker, journal or volatile",
			"--ack: '%s' is not known", ack);
	*setting = (struct cache_setting){
		.mode = (uint32_t)mode, .ack = (uint32_t)number, .share = (uint32_t)share};
	return rc;
}

static int run_mode(struct ctl *ctl)
{
	struct cache_volume_state volume;
	struct ask ask;
	int rc = ask_open(ctl, &ask);
	if (rc)
		return rc;
	struct cache_setting now = ask.state.setting, wanted;
	int error = ask.volume ? volume_state(&ask, &volume) : -ENOENT;
	if (!error)
		now = volume.setting;
	wanted = now;
	rc = error && error != -ENOENT ? ctl_cache_ask_fault(ctl, ask.name, "asked", error)
				       : mode_wanted(ctl, &wanted);
	if (rc) {
		client_close(&ask.client);
		return rc;
	}
	bool differs =
		now.mode != wanted.mode || now.ack != wanted.ack || now.share != wanted.share;
	struct ctl_cache_ask_call call = {
		.what = CACHE_SET, .volume = ask.volume, .setting = &wanted};
	rc = ask_do(&ask, &call, "set");
	if (rc)
		return rc;
	const char *name = ctl_option_value(ctl, "volume");
	bool plan = ctl_option_given(ctl, "dry-run");
	ctl_output_one(ctl,
		json_pack("{s:s, s:s?, s:s, s:s, s:i, s:b, s:b}", "name", ask.name, "volume", name,
			"mode", ctl_cache_ask_word(ctl_cache_modes, wanted.mode), "ack",
			ctl_cache_ask_word(ctl_cache_acks, wanted.ack), "share", (int)wanted.share,
			"changed", differs && !plan, "dry_run", plan),
		mode_columns, countof(mode_columns));
	return 0;
}

const struct ctl_verb ctl_cache_mode = {
	"cache",
	"mode",
	"CACHE [writeback|writethrough|writearound]",
	1,
	2,
	"what a cache does with writes",
	"\t*writeback* answers when they are in the cache, *writethrough* when they are at the "
	"store, *writearound* does not keep them. Takes effect with the next request, outlives the "
	"process, and is for one volume with *--volume*. What is not said stays as it is.\n",
	run_mode,
	{&option_mode_volume, &option_ack, &option_share, &ctl_option_via, &ctl_option_dry_run},
	.examples = "xsegctl cache mode cache0 writethrough\n"
		    "xsegctl cache mode cache0 writeback --volume scratch --ack volatile\n",
};

/* --- flush and drop --------------------------------------------------------------------- */

static const struct ctl_column flush_columns[] = {{"name", "name", CTL_TEXT},
	{"volume", "volume", CTL_TEXT}, {"dirty", "was dirty", CTL_SIZE},
	{"changed", "changed", CTL_TEXT}};
static const struct ctl_column drop_columns[] = {{"name", "name", CTL_TEXT},
	{"volume", "volume", CTL_TEXT}, {"dropped", "dropped", CTL_SIZE},
	{"changed", "changed", CTL_TEXT}};

/* What of it is dirty, or used. */
static void amount(struct ask *ask, uint64_t *used, uint64_t *dirty)
{
	struct cache_volume_state volume = {0};
	*used = ask->state.used;
	*dirty = ask->state.dirty;
	if (!ask->volume)
		return;
	volume_state(ask, &volume);
	*used = volume.used;
	*dirty = volume.dirty;
}

static int run_flush(struct ctl *ctl)
{
	struct ask ask;
	uint64_t used, dirty;
	bool plan = ctl_option_given(ctl, "dry-run");
	int rc = ask_open(ctl, &ask);
	if (rc)
		return rc;
	amount(&ask, &used, &dirty);
	struct ctl_cache_ask_call call = {.what = CACHE_FLUSH, .volume = ask.volume};
	ask.client.timeout_ns = ctl->timeout_given ? ctl->timeout_ns : LONG_NS;
	rc = ask_do(&ask, &call, "flushed");
	if (!rc)
		ctl_output_one(ctl,
			json_pack("{s:s, s:s?, s:I, s:b, s:b}", "name", ask.name, "volume",
				ctl_option_value(ctl, "volume"), "dirty", (json_int_t)dirty,
				"changed", dirty && !plan, "dry_run", plan),
			flush_columns, countof(flush_columns));
	return rc;
}

const struct ctl_verb ctl_cache_flush = {
	"cache",
	"flush",
	"CACHE",
	1,
	1,
	"write back what is dirty, and wait for it",
	"\tReturns when all that was dirty is at the blocker, and flushed there; *--timeout* "
	"limits "
	"the wait (default: none).\n",
	run_flush,
	{&option_volume, &ctl_option_via, &ctl_option_dry_run},
	.examples = "xsegctl cache flush cache0 --volume disk\n",
};

static int run_drop(struct ctl *ctl)
{
	struct ask ask;
	uint64_t used, dirty;
	bool plan = ctl_option_given(ctl, "dry-run");
	int rc = ask_open(ctl, &ask);
	if (rc)
		return rc;
	amount(&ask, &used, &dirty);
	struct ctl_cache_ask_call call = {.what = CACHE_DROP, .volume = ask.volume};
	rc = ask_do(&ask, &call, "dropped");
	uint64_t dropped = plan ? (used > dirty ? used - dirty : 0) : call.value * XSEG_PAGE;
	if (!rc)
		ctl_output_one(ctl,
			json_pack("{s:s, s:s?, s:I, s:b, s:b}", "name", ask.name, "volume",
				ctl_option_value(ctl, "volume"), "dropped", (json_int_t)dropped,
				"changed", dropped && !plan, "dry_run", plan),
			drop_columns, countof(drop_columns));
	return rc;
}

const struct ctl_verb ctl_cache_drop = {
	"cache",
	"drop",
	"CACHE",
	1,
	1,
	"forget what is clean",
	"\tNothing is lost: what is dirty stays. To measure with a cold cache, flush it first.\n",
	run_drop,
	{&option_volume, &ctl_option_via, &ctl_option_dry_run},
	.examples = "xsegctl cache drop cache0\n",
};

/* --- resize and policy ------------------------------------------------------------------ */

static const struct ctl_column resize_columns[] = {{"name", "name", CTL_TEXT},
	{"from", "was", CTL_SIZE}, {"size", "size", CTL_SIZE}, {"changed", "changed", CTL_TEXT}};
static const struct ctl_column policy_columns[] = {{"name", "name", CTL_TEXT},
	{"from", "was", CTL_TEXT}, {"policy", "policy", CTL_TEXT},
	{"changed", "changed", CTL_TEXT}};

static int run_resize(struct ctl *ctl)
{
	struct ask ask;
	uint64_t size;
	bool plan = ctl_option_given(ctl, "dry-run");
	if (size_parse(ctl->argv[1], &size) || size < XSEG_PAGE)
		return fault_set(&ctl->fault, FAULT_USAGE, ctl->argv[1], "write e.g. 512M, 4G",
			"'%s' is no size for a cache", ctl->argv[1]);
	int rc = ask_open(ctl, &ask);
	if (rc)
		return rc;
	uint64_t most = ask.client.seg.page_count / 4 * 3ull * XSEG_PAGE;
	if (size > most) {
		client_close(&ask.client);
		fault_set(&ctl->fault, FAULT_USAGE, ask.name, NULL,
			"%llu bytes are too much: a cache may take three quarters of its segment, "
			"%llu bytes",
			(unsigned long long)size, (unsigned long long)most);
		return -FAULT_USAGE;
	}
	struct ctl_cache_ask_call call = {.what = CACHE_RESIZE, .number = size};
	ask.client.timeout_ns = ctl->timeout_given ? ctl->timeout_ns : LONG_NS;
	rc = ask_do(&ask, &call, "resized");
	if (!rc)
		ctl_output_one(ctl,
			json_pack("{s:s, s:I, s:I, s:b, s:b}", "name", ask.name, "from",
				(json_int_t)ask.state.size, "size", (json_int_t)size, "changed",
				ask.state.size != size && !plan, "dry_run", plan),
			resize_columns, countof(resize_columns));
	return rc;
}

const struct ctl_verb ctl_cache_resize = {
	"cache",
	"resize",
	"CACHE SIZE",
	2,
	2,
	"give a cache more or less of the segment",
	"\tSmaller: clean buckets are evicted, dirty ones written back first. Outlives the "
	"process.\n",
	run_resize,
	{&ctl_option_dry_run},
	.examples = "xsegctl cache resize cache0 512M\n",
};

static int run_policy(struct ctl *ctl)
{
	struct ask ask;
	bool plan = ctl_option_given(ctl, "dry-run");
	int policy = ctl_cache_ask_number(ctl_cache_policies, ctl->argv[1]);
	if (policy < 0)
		return fault_set(&ctl->fault, FAULT_USAGE, ctl->argv[1], "lru, s3fifo or clock2q",
			"'%s' is no policy", ctl->argv[1]);
	int rc = ask_open(ctl, &ask);
	if (rc)
		return rc;
	struct ctl_cache_ask_call call = {.what = CACHE_POLICY, .number = (uint64_t)policy};
	rc = ask_do(&ask, &call, "told its policy");
	if (!rc)
		ctl_output_one(ctl,
			json_pack("{s:s, s:s, s:s, s:b, s:b}", "name", ask.name, "from",
				ctl_cache_ask_word(ctl_cache_policies, ask.state.policy), "policy",
				ctl->argv[1], "changed",
				ask.state.policy != (uint32_t)policy && !plan, "dry_run", plan),
			policy_columns, countof(policy_columns));
	return rc;
}

const struct ctl_verb ctl_cache_policy = {
	"cache",
	"policy",
	"CACHE lru|s3fifo|clock2q",
	2,
	2,
	"choose what is evicted first",
	"\tWhat is cached stays; in which order it was used is forgotten.\n",
	run_policy,
	{&ctl_option_dry_run},
	.examples = "xsegctl cache policy cache0 lru\n",
};
