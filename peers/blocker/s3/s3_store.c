/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Is the store the one that it was, and ours to write? One object, `store`, says who it is and who
 * writes there. S3 has nothing that would keep a deposed writer's late PUT out, so there is one
 * writer, and another is only let in when that one has left, or by somebody's word.
 */
#include <base/clock.h>
#include <base/log.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

#include "peers/blocker/s3/s3.h"

#define OBJECT "store"
#define NOBODY "-"
#define OPEN_NS_MAX 5000000000u

struct note {
	char identity[HOME_IDENTITY], owner[128];
};

static bool parse(const char *text, struct note *note)
{
	int version = 0;
	return text &&
	       sscanf(text, "skerry-s3 %d\nidentity %32[0-9a-f]\nowner %127[^\n]", &version,
		       note->identity, note->owner) == 3 &&
	       version == 1;
}

static int write_note(char *text, size_t size, const struct note *note)
{
	return snprintf(
		text, size, "skerry-s3 1\nidentity %s\nowner %s\n", note->identity, note->owner);
}

/* --- at the beginning and the end, blocking --------------------------------------------------- */

static void noted(struct s3_transfer *t, int error) { *(int *)t->whose = error; }

static int ask(struct s3_link *link, struct s3_transfer *t)
{
	int error = -EIO;
	snprintf(t->name, sizeof(t->name), OBJECT);
	t->done = noted;
	t->whose = &error;
	s3_link_submit(link, t);
	if (t->until_ns > clock_now_ns() + OPEN_NS_MAX)
		t->until_ns = clock_now_ns() + OPEN_NS_MAX;
	s3_link_wait(link);
	return error;
}

static int get(struct s3_link *link, struct note *note, char tag[S3_TAG])
{
	struct s3_transfer t = {.method = S3_GET};
	int error = ask(link, &t);
	if (!error && !parse(t.text, note))
		error = -EPROTO;
	snprintf(tag, S3_TAG, "%s", t.tag);
	free(t.text);
	return error;
}

static int put(struct s3_link *link, const struct note *note, const char *match)
{
	char text[512];
	struct s3_transfer t = {.method = S3_PUT, .body = text};
	t.body_size = (uint32_t)write_note(text, sizeof(text), note);
	snprintf(t.match, sizeof(t.match), "%s", match);
	int error = ask(link, &t);
	free(t.text);
	return error;
}

static const char *words_of(const struct s3_link *link, int error)
{
	return error == -EPROTO ? "'store' is of another version, or not ours"
	       : *link->words	? link->words
				: strerror(-error);
}

static int refuse_owner(
	const struct s3_store *store, const struct note *note, char *why, size_t why_size)
{
	snprintf(why, why_size,
		"prefix: '%s' of bucket '%s' is written by '%s', and two writers would overwrite "
		"each other: choose another prefix, or, when that one is gone for good, "
		"takeover=yes",
		store->options->prefix, store->options->bucket, note->owner);
	return -EBUSY;
}

/* Over what was read, if that is still there. */
static int put_over(struct s3_link *link, const struct note *note, const char *tag)
{
	int error = put(link, note, tag);
	if (error == -ECANCELED && *tag == '"') {
		link->store->bare = true;
		error = put(link, note, tag);
		link->store->bare = error == 0;
	}
	return error == -EOPNOTSUPP ? put(link, note, "") : error;
}

/* Read again, for a server that minds no conditions lets the last one win, and a try whose answer
   was lost makes the next one's condition fail. */
static int claim(struct s3_link *link, struct note *note, const char *tag, char now[S3_TAG])
{
	snprintf(note->owner, sizeof(note->owner), "%s", link->store->owner);
	int error = put_over(link, note, tag);
	if (error == 0 || error == -ECANCELED)
		error = get(link, note, now);
	return error ? error : strcmp(note->owner, link->store->owner) ? -EBUSY : 0;
}

static bool is_about_conditions(int error)
{
	return error == 0 || error == -ECANCELED || error == -EOPNOTSUPP;
}

/* Does the server mind conditions: one that holds, and one that cannot? */
static int probe(struct s3_link *link, const struct note *note, const char *tag)
{
	int holds = put_over(link, note, tag);
	/* a first try whose answer was lost has changed the tag */
	for (int tries = 0; holds == -ECANCELED && tries < 3; tries++) {
		char now[S3_TAG];
		struct note same;
		holds = get(link, &same, now);
		holds = holds ? holds : put_over(link, note, now);
	}
	int cannot = put(link, note, "\"00000000000000000000000000000000\"");
	if (!is_about_conditions(holds) || !is_about_conditions(cannot))
		return is_about_conditions(holds) ? cannot : holds;
	link->store->conditional = holds == 0 && cannot == -ECANCELED;
	if (!link->store->conditional)
		log_warning(S3_ROOM,
			"%s: the server does not mind If-Match: what it does late may undo what "
			"was written after it",
			link->peer->name);
	return 0;
}

static int take(struct s3_link *link, struct note *note, int found, const char *tag, char *why,
	size_t why_size)
{
	const struct s3_options *options = link->store->options;
	if (found == -ENOENT && home_random(note->identity))
		return -EIO;
	if (found == 0 && strcmp(note->owner, NOBODY) != 0 &&
		strcmp(note->owner, link->store->owner) != 0 && !options->takeover)
		return refuse_owner(link->store, note, why, why_size);
	char now[S3_TAG];
	int error = claim(link, note, found == -ENOENT ? "*" : tag, now);
	error = error ? error : probe(link, note, now);
	if (error == -EBUSY || error == -ECANCELED)
		return refuse_owner(link->store, note, why, why_size);
	return error;
}

int s3_store_open(struct s3_link *link, char *why, size_t why_size)
{
	const struct s3_options *options = link->store->options;
	struct note note = {.owner = NOBODY};
	char tag[S3_TAG];
	int error = get(link, &note, tag);
	*why = 0;
	if (!options->read_only && (error == 0 || error == -ENOENT))
		error = take(link, &note, error, tag, why, why_size);
	if (!error)
		snprintf(link->store->identity, sizeof(link->store->identity), "%s", note.identity);
	else if (!*why && error == -ENOENT)
		snprintf(why, why_size, "prefix: there is no store at '%s' of bucket '%s'",
			options->prefix, options->bucket);
	else if (!*why)
		snprintf(why, why_size, "endpoint: '%s', bucket '%s': %s", options->endpoint,
			options->bucket, words_of(link, error));
	return error;
}

void s3_store_leave(struct s3_link *link)
{
	struct note note;
	char tag[S3_TAG];
	int error = get(link, &note, tag);
	if (error || strcmp(note.owner, link->store->owner) != 0)
		return;
	snprintf(note.owner, sizeof(note.owner), NOBODY);
	error = put_over(link, &note, link->store->conditional ? tag : "");
	if (error)
		log_warning(S3_ROOM, "%s: the prefix could not be given back: %s", link->peer->name,
			words_of(link, error));
}

/* --- meanwhile -------------------------------------------------------------------------------- */

static int verdict(const struct s3_shard *shard, const struct s3_transfer *t, int error)
{
	struct note note;
	if (error == -ENOENT || (!error && !parse(t->text, &note)))
		return -EIO;
	if (error)
		return error;
	if (strcmp(note.identity, shard->store->identity) != 0)
		return -EIO;
	bool ours =
		shard->store->options->read_only || strcmp(note.owner, shard->store->owner) == 0;
	return ours ? 0 : -ESTALE;
}

static void check_begin(struct s3_shard *shard);

static void check_done(struct s3_transfer *t, int error)
{
	struct s3_shard *shard = t->whose;
	struct s3_check *check;
	int answer = verdict(shard, t, error);
	if (answer == -EIO && (!error || error == -ENOENT))
		s3_link_say(&shard->link, -ENODATA,
			"what was stored here is gone: 'store' is another one's, or not there");
	if (answer == -ESTALE) {
		shard->deposed = true;
		s3_link_say(&shard->link, answer, "another one has taken the prefix over");
	}
	shard->asked = false;
	while ((check = STAILQ_FIRST(&shard->checked))) {
		STAILQ_REMOVE_HEAD(&shard->checked, link);
		check->done(check->whose, answer);
	}
	if (!STAILQ_EMPTY(&shard->checks) && !shard->asked)
		check_begin(shard);
}

static void check_begin(struct s3_shard *shard)
{
	struct s3_transfer *t = &shard->asking;
	char *text = t->text;
	STAILQ_CONCAT(&shard->checked, &shard->checks);
	*t = (struct s3_transfer){.method = S3_GET,
		.name = OBJECT,
		.done = check_done,
		.whose = shard,
		.text = text,
		.text_room = t->text_room};
	shard->asked = true;
	shard->asked_ns = clock_now_ns();
	s3_link_submit(&shard->link, t);
}

void s3_store_check(struct s3_shard *shard, struct s3_check *check)
{
	STAILQ_INSERT_TAIL(&shard->checks, check, link);
	if (!shard->asked)
		check_begin(shard);
}
