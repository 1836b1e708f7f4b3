/* SPDX-License-Identifier: Apache-2.0 */
/* An attachment: one region of one program, from its first message to its last. */
#include <base/crash.h>
#include <base/log.h>
#include <errno.h>
#include <event2/event.h>
#include <peer/map.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "peers/front/regions.h"

static const struct sm_state states[REGION_ATTACH_STATES] = {
	[REGION_WAITING] = {"waiting", SM(REGION_OPENING) | SM(REGION_GONE)},
	[REGION_OPENING] = {"opening", SM(REGION_UNARMED) | SM(REGION_ENDING) | SM(REGION_GONE)},
	[REGION_UNARMED] = {"unarmed", SM(REGION_SERVING) | SM(REGION_ENDING)},
	[REGION_SERVING] = {"serving", SM(REGION_ENDING)},
	[REGION_ENDING] = {"ending", SM(REGION_CLOSING)},
	[REGION_CLOSING] = {"closing", SM(REGION_GONE)},
	[REGION_GONE] = {"gone", 0},
};

static void attach_move(struct region_attach *attach, enum region_attach_state to)
{
	sm_move(states, &attach->state, to);
	attach->regions->again = true;
}

static void attach_ask(struct region_attach *attach, retry_f *ask)
{
	struct peer *peer = attach->regions->peer;
	if (!ask(peer, attach))
		peer_retry(peer, ask, attach);
}

/* --- opening ----------------------------------------------------------------------------- */

static bool attach_offers(const struct regions *regions, const char *name)
{
	const struct peer_list *list = &regions->options->volumes;
	size_t length = strcspn(name, "@");
	for (size_t i = 0; i < list->count; i++)
		if (strlen(list->item[i]) == length && !strncmp(list->item[i], name, length))
			return true;
	return !list->count;
}

static int attach_refuse(struct region_attach *attach, int error, const char *why)
{
	struct region_wire wire = attach->wire;
	snprintf(wire.text, sizeof(wire.text), "%s", why ? why : strerror(-error));
	region_message_answer(attach, &wire, error, -1);
	return error;
}

/* The part of the volume that it wants. */
static const char *attach_range(struct region_attach *attach, uint64_t size)
{
	uint64_t offset = attach->wire.offset, wanted = attach->wire.size;
	uint64_t room = (size + XSEG_PAGE - 1) / XSEG_PAGE * XSEG_PAGE;
	if (offset % XSEG_PAGE || offset >= size || wanted > room - offset)
		return "the volume ends before";
	if (!wanted || wanted > size - offset)
		wanted = size - offset;
	attach->wire.size = wanted;
	attach->first = offset / XSEG_PAGE;
	attach->pages = (wanted + XSEG_PAGE - 1) / XSEG_PAGE;
	return NULL;
}

static void attach_join(struct region_attach *attach, const struct xseg_volume_info *info)
{
	struct region_volume *volume = attach->volume;
	if (!volume->front.users)
		front_volume_add(&attach->regions->volumes, &volume->front, info->id);
	front_volume_use(&volume->front, info->term, attach->writes);
	volume->book->term = volume->front.term;
	TAILQ_INSERT_TAIL(&volume->attached, attach, volume_link);
}

static void attach_admit(struct region_attach *attach, const struct xseg_volume_info *info)
{
	struct region_wire *wire = &attach->wire;
	int memory = attach->shared ? attach->volume->memory_fd : attach->volume->readers_fd;
	const char *why = attach_range(attach, info->size);
	int error =
		why ? -EINVAL : region_volume_admit(attach->volume, attach->first, attach->pages);
	attach->token = wire->token;
	if (!region_volume_has_user(attach->volume, attach->token))
		must(getrandom(&attach->token, sizeof(attach->token), 0) ==
			(ssize_t)sizeof(attach->token));
	if (error) {
		attach_refuse(attach, error, why);
		region_attach_end(attach, NULL);
		return;
	}
	attach->client.about.volume = info->id;
	attach->client.about.flags = attach->shared ? 0 : FRONT_CLIENT_READ_ONLY;
	wire->token = attach->token;
	wire->arg = info->size;
	attach_move(attach, REGION_UNARMED);
	region_message_answer(attach, wire, 0, memory);
}

/* Of a volume that is no more, or that another host has written to since, nobody needs what is
   left. */
static void attach_leave_aside(const struct region_attach *attach, int error)
{
	const char *then = "it stays until the next start";
	if (error == -ENOENT || error == -ESTALE) {
		region_volume_forget(attach->regions, attach->leftover);
		then = "what programs had written and not synced is lost";
	}
	log_warning(REGION_ROOM,
		"%s: there is memory of volume %016llx, which cannot be opened: %s; %s",
		attach->regions->peer->name, (unsigned long long)attach->leftover, strerror(-error),
		then);
}

static void attach_opened(struct call *call)
{
	struct region_attach *attach = call->context;
	struct regions *regions = attach->regions;
	struct xseg_volume_info info;
	int error = front_volume_info(call, &info);
	call_end(call);
	attach->asked = false;
	regions->leftovers -= attach->leftover != 0;
	regions->again = true;
	bool open = !error, left = attach->left;
	attach->left = false;
	if (!error && attach->shared && info.flags & XSEG_VOLUME_READ_ONLY)
		error = -EROFS;
	if (open) {
		attach->opened = info.id;
		int failed = region_volume_open(regions, info.id, info.size, &attach->volume);
		error = error ? error : failed;
	}
	if (attach->volume)
		attach_join(attach, &info);
	if (attach->fd < 0 || error || left) {
		if (error)
			attach_refuse(attach, error, NULL);
		if (error && attach->leftover)
			attach_leave_aside(attach, error);
		region_attach_end(attach, NULL);
		return;
	}
	attach_admit(attach, &info);
}

static bool ask_open(struct peer *peer, void *context)
{
	struct region_attach *attach = context;
	const struct regions *regions = attach->regions;
	const struct front_open open = {.name = attach->leftover ? NULL : attach->wire.text,
		.id = attach->leftover,
		.term = attach->term,
		.writes = attach->writes};
	/* first what was left, in its term: it is stale if another host has had it since */
	if (regions->volumes.reopening || (regions->leftovers && !attach->leftover))
		return false;
	return front_volume_ask_open(peer, &open, attach, attach_opened);
}

int region_attach_open(struct region_attach *attach)
{
	const struct regions *regions = attach->regions;
	const uint64_t flags = attach->wire.arg;
	if (attach->state != REGION_WAITING ||
		flags & ~(uint64_t)(REGION_READ_ONLY | REGION_PRIVATE))
		return -EINVAL;
	attach->shared = !(flags & (REGION_READ_ONLY | REGION_PRIVATE));
	attach->writes = attach->shared;
	attach_move(attach, REGION_OPENING);
	attach->asked = true;
	if (!attach_offers(regions, attach->wire.text)) {
		attach->asked = false;
		attach_refuse(attach, -ENOENT, "this front does not serve it");
		region_attach_end(attach, NULL);
	} else if (attach->shared && regions->options->read_only) {
		attach->asked = false;
		attach_refuse(attach, -EROFS, "this front is read-only");
		region_attach_end(attach, NULL);
	} else {
		attach_ask(attach, ask_open);
	}
	return 0;
}

/* The same region, over a connection that it has given up. */
static void attach_replace(const struct region_attach *attach)
{
	struct region_attach *other;
	TAILQ_FOREACH (other, &attach->volume->attached, volume_link)
		if (other != attach && other->token == attach->token)
			region_attach_end(other, NULL);
}

int region_attach_serve(struct region_attach *attach)
{
	int error = region_fault_arm(attach);
	if (error)
		return error;
	attach_replace(attach);
	attach_move(attach, REGION_SERVING);
	attach->hot = true;
	front_client_add(&attach->regions->clients, &attach->client);
	attach->listed = true;
	crash_point("front_region.attach.serving");
	return 0;
}

/* --- its socket ----------------------------------------------------------------------------- */

static void attach_readable(evutil_socket_t fd, short what, void *context)
{
	struct region_attach *attach = context;
	(void)fd;
	(void)what;
	attach->regions->again = true;
	int error = region_message_read(attach);
	if (error == -EAGAIN)
		return;
	if (error) {
		region_attach_hang_up(
			attach, error == -EPROTO ? "does not speak our protocol" : NULL);
		return;
	}
	/* one question at a time: the next one is read when it has been answered */
	event_del(attach->event);
	region_message_take(attach);
}

static struct region_attach *attach_new(struct regions *regions, int fd)
{
	struct region_attach *attach = calloc(1, sizeof(*attach));
	if (!attach)
		return NULL;
	*attach = (struct region_attach){
		.regions = regions, .fd = fd, .given = -1, .fault_fd = -1, .state = REGION_WAITING};
	TAILQ_INSERT_TAIL(&regions->attaches, attach, link);
	peer_count(regions->peer, REGION_COUNT_OPENS, 1);
	return attach;
}

void region_attach_create(struct regions *regions, int fd)
{
	char who[FRONT_WHO_LENGTH];
	struct region_attach *attach = attach_new(regions, fd);
	if (!attach) {
		close(fd);
		return;
	}
	front_name_client(fd, who);
	snprintf(attach->client.about.who, sizeof(attach->client.about.who), "%s", who);
	attach->event = event_new(regions->base, fd, EV_READ | EV_PERSIST, attach_readable, attach);
	if (!attach->event || event_add(attach->event, NULL))
		region_attach_end(attach, NULL);
}

void region_attach_leftover(struct regions *regions, uint64_t volume, uint64_t term)
{
	struct region_attach *attach = attach_new(regions, -1);
	if (!attach)
		return;
	attach->leftover = volume;
	attach->term = term;
	regions->leftovers++;
	attach->writes = attach->asked = true;
	peer_count(regions->peer, REGION_COUNT_ADOPTED, 1);
	attach_move(attach, REGION_OPENING);
	attach_ask(attach, ask_open);
}

/* --- its end ------------------------------------------------------------------------------ */

/* What would be answered, or mapped there first, is not any more. */
static void attach_forget(struct region_attach *attach)
{
	struct regions *regions = attach->regions;
	struct region_task *task;
	for (unsigned i = 0; i < REGION_FILLS; i++)
		if (regions->fill[i].writer == attach)
			regions->fill[i].writer = NULL;
	if (attach->volume)
		TAILQ_FOREACH (task, &attach->volume->tasks, link)
			if (task->attach == attach)
				task->attach = NULL;
}

static void attach_unplug(struct region_attach *attach)
{
	if (attach->listed)
		front_client_remove(&attach->regions->clients, &attach->client);
	attach->listed = false;
	if (attach->event)
		event_free(attach->event);
	if (attach->fault_event)
		event_free(attach->fault_event);
	attach->event = attach->fault_event = NULL;
	int *const fds[] = {&attach->fd, &attach->fault_fd, &attach->given};
	for (unsigned i = 0; i < 3; i++) {
		if (*fds[i] >= 0)
			close(*fds[i]);
		*fds[i] = -1;
	}
}

void region_attach_end(struct region_attach *attach, const char *why)
{
	if (attach->state >= REGION_ENDING || attach->left)
		return;
	if (why)
		front_log(&attach->regions->log, attach->regions->peer, attach->client.about.who,
			"%s", why);
	attach_forget(attach);
	attach_unplug(attach);
	attach->regions->again = true;
	/* OPEN is out: its answer ends it */
	attach->left = attach->asked;
	if (!attach->left)
		attach_move(attach, attach->opened ? REGION_ENDING : REGION_GONE);
	if (attach->volume)
		attach->volume->missing_ns = 0;
}

/* The process has ended, or what it has now is another program. */
static void attach_gone(struct region_attach *attach)
{
	region_volume_remove_user(attach->volume, attach->token);
	region_attach_end(attach, NULL);
}

void region_attach_hang_up(struct region_attach *attach, const char *why)
{
	if (attach->state != REGION_SERVING) {
		region_attach_end(attach, why);
		return;
	}
	if (why)
		front_log(&attach->regions->log, attach->regions->peer, attach->client.about.who,
			"%s", why);
	attach_forget(attach);
	event_free(attach->event);
	attach->event = NULL;
	close(attach->fd);
	attach->fd = -1;
	attach->looked_ns = 0;
	attach->regions->again = true;
}

/* Without a socket it does not say when it leaves. */
static void attach_look(struct region_attach *attach)
{
	uint64_t now = peer_now_ns(attach->regions->peer);
	if (now - attach->looked_ns < REGION_LOOK_NS)
		return;
	attach->looked_ns = now;
	if (!region_volume_is_mapped(attach->volume, attach->pid))
		attach_gone(attach);
}

static void attach_closed(struct call *call)
{
	struct region_attach *attach = call->context;
	call_end(call);
	attach->asked = false;
	attach_move(attach, REGION_GONE);
}

static bool ask_close(struct peer *peer, void *context)
{
	struct region_attach *attach = context;
	return !attach->regions->volumes.reopening &&
	       front_volume_ask_close(peer, attach->opened, attach, attach_closed);
}

/* Another host has it, or has had it since it was opened here: what it wrote is newer. */
static int attach_judge(const struct region_volume *volume, const struct call *call)
{
	struct map_home_info home;
	const uint64_t term = volume->front.term;
	if (call->result == -ENOENT)
		return -ENOENT;
	if (call->result || call->answer_length < MAP_ANSWER_AT + sizeof(home) || !term)
		return 0;
	call_get_bytes(call, MAP_ANSWER_AT, &home, sizeof(home));
	bool ours = home.owner == home.self; /* of whoever answers: where our writes go, too */
	bool theirs = home.owner && !ours && home.term > term;
	bool handed_over = ours && home.since && home.since <= term; /* then we go on */
	return theirs || (home.line > term && !handed_over) ? -ESTALE : 0;
}

static void attach_probed(struct call *call)
{
	struct region_attach *attach = call->context;
	struct region_volume *volume = attach->volume;
	volume->lost = attach_judge(volume, call);
	call_end(call);
	attach->asked = false;
	attach->regions->again = true;
	if (volume->lost)
		log_error(REGION_ROOM,
			"%s: %llu bytes that programs have written to volume %016llx are lost: %s",
			attach->regions->peer->name, (unsigned long long)volume->dirty * XSEG_PAGE,
			(unsigned long long)volume->front.id,
			volume->lost == -ESTALE ? "another host has had it since"
						: strerror(-volume->lost));
}

/* A write that is refused does not say whether it always will be. */
static bool ask_probe(struct peer *peer, void *context)
{
	struct region_attach *attach = context;
	struct call *call;
	if (call_begin(peer, &call))
		return false;
	call->op = XSEG_OP_CONTROL;
	if (call_pages(call, MAP_ANSWER_AT + sizeof(struct map_home_info))) {
		call_end(call);
		return false;
	}
	call->key.volume = attach->opened;
	call->arg0 = MAP_HOME;
	call->context = attach;
	call_submit(call, FRONT_EDGE_VOLUME, attach_probed);
	return true;
}

/* The last that may write leaves when the volume has all of it. True: not yet. */
static bool attach_drains(struct region_attach *attach)
{
	struct region_volume *volume = attach->volume;
	struct regions *regions = attach->regions;
	if (!attach->writes || volume->front.changers > 1)
		return false;
	if (regions->leaves)
		return false;
	if (region_volume_misses(volume))
		return true;
	if (volume->lost || (!volume->dirty && attach->flushed))
		return false;
	uint64_t now = peer_now_ns(regions->peer);
	if (attach->asked || !TAILQ_EMPTY(&volume->tasks) || now < volume->retry_ns)
		return true;
	attach->probed = volume->failed && !attach->probed;
	if (attach->probed) {
		attach->asked = true;
		attach_ask(attach, ask_probe);
	} else {
		attach->flushed = !volume->dirty;
		region_write_all(volume, false);
	}
	return true;
}

static void attach_leave(struct region_attach *attach)
{
	struct region_volume *volume = attach->volume;
	if (volume) {
		TAILQ_REMOVE(&volume->attached, attach, volume_link);
		if (front_volume_unuse(&volume->front, attach->writes))
			region_volume_close(volume,
				region_volume_misses(volume) || (volume->dirty && !volume->lost));
	}
	attach_move(attach, REGION_CLOSING);
	attach->asked = true;
	attach_ask(attach, ask_close);
}

static bool attach_may_leave(struct region_attach *attach)
{
	const struct region_volume *volume = attach->volume;
	if (attach->regions->volumes.reopening || attach->asked)
		return false;
	if (!volume)
		return true;
	bool last = volume->front.users == 1;
	if (last && (volume->fills || volume->writes || !TAILQ_EMPTY(&volume->tasks)))
		return false;
	return !attach_drains(attach);
}

bool region_attach_turn(struct region_attach *attach)
{
	struct regions *regions = attach->regions;
	if (attach->state == REGION_SERVING && attach->fd < 0)
		attach_look(attach);
	if (attach->state == REGION_ENDING && attach_may_leave(attach)) {
		attach_leave(attach);
		return true;
	}
	if (attach->state != REGION_GONE)
		return false;
	TAILQ_REMOVE(&regions->attaches, attach, link);
	peer_count(regions->peer, REGION_COUNT_CLOSES, 1);
	free(attach);
	return true;
}

bool region_attach_busy(const struct peer *peer)
{
	const struct region_attach *attach;
	TAILQ_FOREACH (attach, &regions_of(peer)->attaches, link)
		if (attach->asked)
			return true;
	return false;
}

void region_attach_dump(const struct region_attach *attach, FILE *out)
{
	fprintf(out, "  %s: %s, pages %llu to %llu of %016llx, %llu faults\n",
		attach->fd < 0 ? "what a predecessor has left" : attach->client.about.who,
		states[attach->state].name, (unsigned long long)attach->first,
		(unsigned long long)(attach->first + attach->pages),
		(unsigned long long)attach->opened, (unsigned long long)attach->faults);
}
