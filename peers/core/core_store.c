/* SPDX-License-Identifier: Apache-2.0 */
/* What is the same in every store: the rules of records, and how answers are laid out. */
#include <base/bytes.h>
#include <base/time.h>
#include <peer/store.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

uint64_t store_record_version_next(uint64_t found)
{
	struct timespec now;
	if (found != 0 && found != XSEG_CAS_DAMAGED)
		return found + 1;
	clock_gettime(CLOCK_REALTIME, &now);
	return time_of(&now);
}

int store_record_check(const struct job *job, uint64_t found)
{
	switch (job->arg1) {
	case XSEG_CAS_GET: return found ? 0 : -ENOENT;
	case XSEG_CAS_PUT:
		if (job->length > XSEG_RECORD_MAX)
			return -EINVAL;
		if (found == job->arg0)
			return 0;
		return job->arg0 == 0 ? -EEXIST : -ESTALE;
	case XSEG_CAS_DELETE:
		if (!found)
			return -ENOENT;
		return found == job->arg0 ? 0 : -ESTALE;
	default: return -EINVAL;
	}
}

int store_record_answer(struct job *job, const void *record, size_t size)
{
	if (size > job->data_size)
		return -EMSGSIZE;
	job_put_bytes(job, 0, record, (uint32_t)size);
	return (int)size;
}

int store_space_answer(struct job *job, uint64_t total, uint64_t free)
{
	struct xseg_space space = {.total = total, .free = free};
	if (job->data_size < sizeof(space))
		return -EINVAL;
	job_put_bytes(job, 0, &space, sizeof(space));
	return sizeof(space);
}

/* --- zeros ----------------------------------------------------------------------------------- */

bool store_stretch_next(const struct job *job, const char *bytes, struct store_stretch *s)
{
	uint32_t at = s->at + s->size;
	if (at >= job->length)
		return false;
	*s = (struct store_stretch){.at = at, .size = store_piece_of(job, at).size};
	s->zero = bytes_are_zero(bytes + at, s->size);
	for (uint32_t more; (at = s->at + s->size) < job->length; s->size += more) {
		more = store_piece_of(job, at).size;
		if (bytes_are_zero(bytes + at, more) != s->zero)
			break;
	}
	return true;
}

/* --- LIST ------------------------------------------------------------------------------------ */

static int compare(uint64_t a, uint64_t b) { return a < b ? -1 : a > b; }

int store_key_compare(const struct xseg_key *a, const struct xseg_key *b)
{
	bool record = store_record_is(a);
	if (record != store_record_is(b))
		return record ? 1 : -1;
	if (record && a->epoch != b->epoch)
		return compare(a->epoch, b->epoch);
	if (a->volume != b->volume)
		return compare(a->volume, b->volume);
	return a->object != b->object ? compare(a->object, b->object) : compare(a->epoch, b->epoch);
}

static uint64_t list_order(const struct xseg_key *key)
{
	return store_record_is(key) ? key->volume : (uint64_t)key->object << 32 | key->epoch;
}

static int list_compare(const void *a, const void *b) { return store_key_compare(a, b); }

static uint32_t list_room(const struct job *job)
{
	uint32_t size = job->length < job->data_size ? job->length : job->data_size;
	return size / sizeof(struct xseg_key);
}

struct xseg_key store_list_from(const struct job *job)
{
	if (store_record_is(&job->key))
		return (struct xseg_key){.volume = job->arg0, .epoch = job->key.epoch};
	return (struct xseg_key){.volume = job->key.volume,
		.object = (uint32_t)(job->arg0 >> 32),
		.epoch = (uint32_t)job->arg0};
}

bool store_list_wants(const struct job *job, const struct xseg_key *key)
{
	bool record = store_record_is(&job->key);
	if (record ? key->epoch != job->key.epoch : store_record_is(key))
		return false;
	if (key->volume != job->key.volume && (!record || job->key.volume != 0))
		return false;
	return list_order(key) >= job->arg0;
}

void store_list_add(struct store_list *list, struct xseg_key key)
{
	if (list->count == list->room) {
		uint32_t room = list->room ? 2 * list->room : 64;
		void *grown = realloc(list->keys, room * sizeof(key));
		if (!grown) {
			list->error = -ENOMEM;
			return;
		}
		list->keys = grown;
		list->room = room;
	}
	list->keys[list->count++] = key;
}

bool store_list_full(const struct store_list *list)
{
	return list->error || list->count > list_room(list->job);
}

/* All with the next one's place are asked for again: a volume may have several records. */
static int list_cut(const struct store_list *list, uint32_t room, uint64_t *next)
{
	uint32_t count = room;
	*next = list_order(&list->keys[room]);
	while (count && list_order(&list->keys[count - 1]) == *next)
		count--;
	return room == 0 ? -EINVAL : count == 0 ? -E2BIG : (int)count;
}

int store_list_put(struct store_list *list, uint64_t *value)
{
	uint32_t room = list_room(list->job);
	int count = list->error ? list->error : (int)list->count;
	*value = 0;
	if (count > (int)room)
		count = list_cut(list, room, value);
	if (count > 0)
		job_put_bytes(list->job, 0, list->keys, (uint32_t)count * sizeof(*list->keys));
	free(list->keys);
	return count < 0 ? count : count * (int)sizeof(*list->keys);
}

int store_list_end(struct store_list *list, uint64_t *value)
{
	if (list->count)
		qsort(list->keys, list->count, sizeof(*list->keys), list_compare);
	return store_list_put(list, value);
}

/* --- STATUS ---------------------------------------------------------------------------------- */

static bool status_put(struct store_status *status)
{
	uint32_t size = sizeof(status->last), at = status->count * size;
	if (status->last.length == 0)
		return true;
	if (at + size > status->job->data_size)
		return false;
	job_put_bytes(status->job, at, &status->last, size);
	status->last.length = 0;
	status->count++;
	return true;
}

bool store_status_flags(struct store_status *status, uint64_t length, uint32_t flags)
{
	if (status->last.flags != flags && !status_put(status))
		return false;
	status->last.flags = flags;
	status->last.length += length;
	return true;
}

int store_status_end(struct store_status *status, uint64_t *value)
{
	status_put(status);
	*value = status->count;
	return (int)(status->count * sizeof(status->last));
}

int store_status_of(struct job *job, const char *bytes, uint64_t *value)
{
	struct store_status status = {.job = job};
	for (struct store_stretch s = {0}; store_stretch_next(job, bytes, &s);)
		if (!store_status_add(&status, s.size, s.zero))
			break;
	return store_status_end(&status, value);
}

void store_answer(struct job *job, int answer, uint64_t value)
{
	if (answer < 0)
		job_fail_value(job, answer, value);
	else
		job_complete_value(job, (uint32_t)answer, value);
}
