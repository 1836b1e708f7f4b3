/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The meddling blocker: hands all down to a store, but does to it what a file says, which is looked
 * at for each request, and every few ms for those that it holds. Words in the file, in any order;
 * none: it hands all down.
 *
 *   delay=US        every request that matches waits so long; jitter=US: and up to so long more
 *   away            all that match wait until the word is gone
 *   fail=EIO        they fail so (any of the table below)
 *   full            WRITE and ZERO fail with ENOSPC
 *   lie=flush       a FLUSH is answered and not handed down, a FUA write is none
 *   lie=lose        a write is answered and forgotten
 *   lie=reorder     a write is answered at once and handed down behind the second FLUSH from then
 * Which match:
 *   ops=write,flush (all)    first=BYTES last=BYTES (place: object number << 22 | offset)
 *   what=N                   arg0 is N: what a CONTROL says
 *   every=N                  one of N of those, on each shard (fail and lie; 1)
 *   after=N                  those after N of them, on each shard (delay and away; 0)
 *
 * The counter `rules` grows by one on each shard when a change of the file has been taken.
 */
#include <errno.h>
#include <fcntl.h>
#include <peer/call.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define LOOK_NS 3000000u
#define RULES_MAX 4096u
#define OBJECT_SHIFT 22
#define ALL_OPS (~0u)

enum lie { LIE_NONE, LIE_FLUSH, LIE_LOSE, LIE_REORDER };

struct rules {
	uint64_t delay_ns, jitter_ns, first, last, every, after, what; /* what: 0: any */
	uint32_t ops;						       /* a bit for each */
	int error;
	bool away, full;
	enum lie lie;
};

struct meddle_options {
	char *rules;
};

static const struct peer_option meddle_options[] = {
	OPTION_TEXT(struct meddle_options, rules, "rules", .required = true,
		.help = "file that says what is done; may be absent"),
	OPTION_END,
};

static const char *const meddle_edges[] = {"store", NULL};

enum { COUNT_RULES, COUNT_FAILED, COUNT_LIES, COUNT_HELD };
static const struct xseg_counter meddle_counters[] = {
	{.name = "rules", .unit = "times", .help = "the file was read anew"},
	{.name = "failed", .unit = "requests", .help = "answered with an error"},
	{.name = "lies", .unit = "requests", .help = "answered wrong"},
	{.name = "waited", .unit = "requests", .help = "kept for a while"},
	{.name = NULL},
};

struct meddle {
	struct rules rules;
	struct timespec changed;
	off_t size;
	ino_t inode;
	uint64_t look_ns, matched, random;
	struct job_queue held;
	struct call *late; /* a write that has been answered and not handed down */
	unsigned late_flushes;
};

/* --- the rules ------------------------------------------------------------------------------- */

static const struct {
	const char *name;
	int number;
} errors[] = {{"EIO", EIO}, {"ENOSPC", ENOSPC}, {"ETIMEDOUT", ETIMEDOUT}, {"EROFS", EROFS},
	{"ENOMEM", ENOMEM}, {"EPERM", EPERM}, {"ENXIO", ENXIO}, {"EOPNOTSUPP", EOPNOTSUPP}};

static int error_of(const char *name)
{
	for (size_t i = 0; i < sizeof(errors) / sizeof(errors[0]); i++)
		if (!strcmp(errors[i].name, name))
			return errors[i].number;
	return EIO;
}

static enum lie lie_of(const char *name)
{
	if (!strcmp(name, "flush"))
		return LIE_FLUSH;
	return strcmp(name, "lose") == 0 ? LIE_LOSE : LIE_REORDER;
}

static uint32_t ops_of(char *names)
{
	uint32_t ops = 0;
	char *rest = NULL;
	for (char *name = strtok_r(names, ",", &rest); name; name = strtok_r(NULL, ",", &rest))
		for (unsigned op = 0; op < XSEG_OP_COUNT; op++)
			if (!strcasecmp(xseg_op_name(op), name))
				ops |= 1u << op;
	return ops;
}

static void take_word(struct rules *rules, char *word)
{
	char *value = strchr(word, '=');
	if (value)
		*value++ = 0;
	else
		value = word + strlen(word);
	uint64_t number = strtoull(value, NULL, 0);
	if (!strcmp(word, "delay"))
		rules->delay_ns = number * 1000;
	else if (!strcmp(word, "jitter"))
		rules->jitter_ns = number * 1000;
	else if (!strcmp(word, "first"))
		rules->first = number;
	else if (!strcmp(word, "last"))
		rules->last = number;
	else if (!strcmp(word, "every"))
		rules->every = number ? number : 1;
	else if (!strcmp(word, "what"))
		rules->what = number;
	else if (!strcmp(word, "after"))
		rules->after = number;
	else if (!strcmp(word, "fail"))
		rules->error = error_of(value);
	else if (!strcmp(word, "ops"))
		rules->ops = ops_of(value);
	else if (!strcmp(word, "lie"))
		rules->lie = lie_of(value);
	else if (!strcmp(word, "away"))
		rules->away = true;
	else if (!strcmp(word, "full"))
		rules->full = true;
}

static void read_rules(struct meddle *meddle, const char *path)
{
	char text[RULES_MAX], *rest = NULL;
	meddle->rules = (struct rules){.last = UINT64_MAX, .every = 1, .ops = ALL_OPS};
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t size = fd < 0 ? 0 : read(fd, text, sizeof(text) - 1);
	if (fd >= 0)
		close(fd);
	text[size > 0 ? size : 0] = 0;
	for (char *word = strtok_r(text, " \t\n", &rest); word;
		word = strtok_r(NULL, " \t\n", &rest))
		take_word(&meddle->rules, word);
}

/* Has the file changed? It is replaced as a whole. */
static void look(struct peer *peer)
{
	const struct meddle_options *options = peer->options;
	struct meddle *meddle = peer->state;
	struct stat stat_now;
	meddle->look_ns = peer_now_ns(peer) + LOOK_NS;
	if (stat(options->rules, &stat_now))
		memset(&stat_now, 0, sizeof(stat_now));
	if (stat_now.st_ino == meddle->inode && stat_now.st_size == meddle->size &&
		memcmp(&stat_now.st_mtim, &meddle->changed, sizeof(meddle->changed)) == 0)
		return;
	meddle->inode = stat_now.st_ino;
	meddle->size = stat_now.st_size;
	meddle->changed = stat_now.st_mtim;
	read_rules(meddle, options->rules);
	peer_count(peer, COUNT_RULES, 1);
}

static uint64_t draw(struct meddle *meddle, uint64_t below)
{
	meddle->random = meddle->random * 6364136223846793005ull + 1442695040888963407ull;
	return below ? (meddle->random >> 33) % below : 0;
}

static bool matches(const struct rules *rules, const struct job *job)
{
	uint64_t place = (uint64_t)job->key.object << OBJECT_SHIFT | job->offset;
	return rules->ops >> job->op & 1 && place <= rules->last &&
	       place + job->length >= rules->first && (!rules->what || job->arg0 == rules->what);
}

static bool its_turn(struct meddle *meddle) { return ++meddle->matched % meddle->rules.every == 0; }

/* --- lies ------------------------------------------------------------------------------- */

static void late_done(struct call *call) { call_end(call); }

static void late_send(struct meddle *meddle)
{
	struct call *call = meddle->late;
	meddle->late = NULL;
	if (call)
		call_submit(call, 0, late_done);
}

/* A copy of the write for later; false: there is one already, or no room. */
static bool late_keep(struct peer *peer, struct job *job)
{
	struct meddle *meddle = peer->state;
	struct call *call;
	struct iovec iov[XSEG_EXTENTS];
	int count = job_iov(job, 0, job->length, iov, XSEG_EXTENTS);
	if (meddle->late || count < 0 || call_begin(peer, &call))
		return false;
	call->op = XSEG_OP_WRITE;
	call->key = job->key;
	call->offset = job->offset;
	call->length = job->length;
	if (call_pages(call, job->length)) {
		call_end(call);
		return false;
	}
	uint32_t at = 0;
	for (int i = 0; i < count; at += (uint32_t)iov[i++].iov_len)
		call_put_bytes(call, at, iov[i].iov_base, (uint32_t)iov[i].iov_len);
	meddle->late = call;
	meddle->late_flushes = 2;
	return true;
}

static bool lie(struct peer *peer, struct job *job)
{
	struct meddle *meddle = peer->state;
	const struct rules *rules = &meddle->rules;
	bool write = job->op == XSEG_OP_WRITE, told = false;
	if (rules->lie == LIE_FLUSH) {
		told = job->op == XSEG_OP_FLUSH;
		job->flags &= ~(unsigned)XSEG_F_FUA;
	} else if (rules->lie == LIE_LOSE) {
		told = write && its_turn(meddle);
	} else if (rules->lie == LIE_REORDER) {
		told = write && its_turn(meddle) && late_keep(peer, job);
	}
	if (!told)
		return false;
	peer_count(peer, COUNT_LIES, 1);
	job_complete(job, write ? job->length : 0);
	return true;
}

/* --- requests --------------------------------------------------------------------------- */

static bool fails(struct peer *peer, struct job *job)
{
	struct meddle *meddle = peer->state;
	const struct rules *rules = &meddle->rules;
	bool grows = job->op == XSEG_OP_WRITE || job->op == XSEG_OP_ZERO;
	int error = rules->full && grows ? ENOSPC : rules->error;
	if (!error || !its_turn(meddle))
		return false;
	peer_count(peer, COUNT_FAILED, 1);
	job_fail(job, -error);
	return true;
}

static void act(struct peer *peer, struct job *job)
{
	struct meddle *meddle = peer->state;
	if (matches(&meddle->rules, job) && (fails(peer, job) || lie(peer, job)))
		return;
	if (job->op == XSEG_OP_FLUSH && meddle->late && meddle->late_flushes-- == 0)
		late_send(meddle);
	job_forward(job, 0);
}

static bool is_spared(struct meddle *meddle)
{
	return meddle->rules.after > 0 && meddle->rules.after-- > 0;
}

static void meddle_handle(struct peer *peer, struct job *job)
{
	struct meddle *meddle = peer->state;
	const struct rules *rules = &meddle->rules;
	look(peer);
	uint64_t wait = rules->delay_ns + draw(meddle, rules->jitter_ns);
	if (peer->stopping || !matches(rules, job) || (!rules->away && !wait) ||
		is_spared(meddle)) {
		act(peer, job);
		return;
	}
	job->context = (void *)(uintptr_t)(peer_now_ns(peer) + wait);
	TAILQ_INSERT_TAIL(&meddle->held, job, link);
	peer_count(peer, COUNT_HELD, 1);
}

static bool meddle_poll(struct peer *peer)
{
	struct meddle *meddle = peer->state;
	struct job *job, *next;
	uint64_t now = peer_now_ns(peer), wake = now + LOOK_NS;
	bool moved = false;
	if (now >= meddle->look_ns)
		look(peer);
	for (job = TAILQ_FIRST(&meddle->held); job; job = next) {
		next = TAILQ_NEXT(job, link);
		uint64_t due = (uint64_t)(uintptr_t)job->context;
		bool stays = due > now || (meddle->rules.away && matches(&meddle->rules, job));
		if (stays && due > now && due < wake)
			wake = due;
		if (stays && !peer->stopping)
			continue;
		TAILQ_REMOVE(&meddle->held, job, link);
		act(peer, job);
		moved = true;
	}
	peer_wake_at(peer, wake);
	return moved;
}

static int meddle_start(struct peer *peer, char *why, size_t why_size)
{
	const struct meddle_options *options = peer->options;
	struct meddle *meddle = peer->state;
	(void)why;
	(void)why_size;
	TAILQ_INIT(&meddle->held);
	meddle->random = peer->shard;
	read_rules(meddle, options->rules);
	return 0;
}

static void meddle_stop(struct peer *peer) { late_send(peer->state); }

static const struct peer_ops meddle_ops = {
	.name = "blocker_meddle",
	.summary = "delays, fails, holds and lies as a file says, for tests",
	.options = meddle_options,
	.options_size = sizeof(struct meddle_options),
	.state_size = sizeof(struct meddle),
	.edges = meddle_edges,
	.counters = meddle_counters,
	.start = meddle_start,
	.stop = meddle_stop,
	.poll = meddle_poll,
	.on = {[XSEG_OP_READ... XSEG_OP_COUNT - 1] = meddle_handle},
};
PEER_MODULE(meddle_ops);
