/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What there is, by omaps, which the cluster keeps in order:
 *
 *   i.VOLUME         which parts of the index there are: OBJECT's upper half
 *   i.VOLUME.PART    OBJECT.EPOCH for each object of the volume in that part
 *   r.EPOCH          VOLUME.OBJECT for each record of that kind: its version, then the record
 *
 * all in hexadecimal. A part has 65536 objects at most: a larger omap is a burden to its OSD.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "peers/blocker/rados/ceph.h"

#define KEYS_AT_ONCE 1024u

/* --- omaps ---------------------------------------------------------------------------------- */

int ceph_index_get(
	struct ceph_link *link, const char *object, const char *key, void *to, size_t room)
{
	rados_omap_iter_t found = NULL;
	const char *keys[] = {key};
	size_t key_size = strlen(key), got_key_size, size = 0;
	char *got_key = NULL, *value = NULL;
	int rc = 0;
	rados_read_op_t op = rados_create_read_op();
	rados_read_op_omap_get_vals_by_keys2(op, keys, 1, &key_size, &found, &rc);
	int error = rados_read_op_operate(op, link->io, object, 0);
	error = error ? error : rc;
	if (!error)
		error = rados_omap_get_next2(found, &got_key, &value, &got_key_size, &size);
	if (!error && got_key && size > room)
		error = -EILSEQ;
	if (!error && got_key && size)
		memcpy(to, value, size);
	if (found)
		rados_omap_get_end(found);
	rados_release_read_op(op);
	return error == -ENOENT ? ceph_link_pool(link) : error ? error : got_key ? (int)size : 0;
}

int ceph_index_swap(struct ceph_link *link, const char *object, const char *key,
	struct ceph_value old, struct ceph_value now)
{
	const char *keys[] = {key}, *values[] = {now.data};
	size_t key_size = strlen(key);
	rados_write_op_t op = rados_create_write_op();
	rados_write_op_create(op, LIBRADOS_CREATE_IDEMPOTENT, NULL);
	/* one that is not there is like an empty one */
	rados_write_op_omap_cmp2(op, key, LIBRADOS_CMPXATTR_OP_EQ, old.size ? old.data : "",
		key_size, old.size, NULL);
	if (now.size)
		rados_write_op_omap_set2(op, keys, values, &key_size, &now.size, 1);
	else
		rados_write_op_omap_rm_keys2(op, keys, &key_size, 1);
	int error = rados_write_op_operate(op, link->io, object, NULL, 0);
	rados_release_write_op(op);
	return error;
}

/* The next so many keys; *last: where to go on. True: there may be more. */
static int walk_part(struct ceph_link *link, const char *object, char last[CEPH_NAME],
	ceph_visit_f *visit, void *context, bool *more)
{
	rados_omap_iter_t found = NULL;
	unsigned char rest = 0;
	char *key, *value;
	size_t key_size, size;
	int rc = 0;
	rados_read_op_t op = rados_create_read_op();
	rados_read_op_omap_get_vals2(op, last, "", KEYS_AT_ONCE, &found, &rest, &rc);
	int error = rados_read_op_operate(op, link->io, object, 0);
	error = error ? error : rc;
	*more = rest;
	while (!error) {
		error = rados_omap_get_next2(found, &key, &value, &key_size, &size);
		if (error || !key)
			break;
		snprintf(last, CEPH_NAME, "%.*s", (int)key_size, key);
		if (!visit(context, last, value, size)) {
			*more = false;
			break;
		}
	}
	if (found)
		rados_omap_get_end(found);
	rados_release_read_op(op);
	return error == -ENOENT ? ceph_link_pool(link) : error;
}

int ceph_index_walk(struct ceph_link *link, const char *object, const char *after,
	ceph_visit_f *visit, void *context)
{
	char last[CEPH_NAME];
	bool more = true;
	int error = 0;
	snprintf(last, sizeof(last), "%s", after);
	while (!error && more)
		error = walk_part(link, object, last, visit, context, &more);
	return error;
}

/* --- objects -------------------------------------------------------------------------------- */

static void part_name(char name[CEPH_NAME], uint64_t volume, uint32_t part)
{
	snprintf(name, CEPH_NAME, "i.%016" PRIx64 ".%04x", volume, part);
}

static void object_key(char key[CEPH_NAME], uint32_t object, uint32_t epoch)
{
	snprintf(key, CEPH_NAME, "%08x.%08x", object, epoch);
}

static int set_key(struct ceph_link *link, const char *object, const char *key, bool there)
{
	const char *keys[] = {key}, *values[] = {"1"};
	size_t key_size = strlen(key), size = 1;
	rados_write_op_t op = rados_create_write_op();
	if (there)
		rados_write_op_omap_set2(op, keys, values, &key_size, &size, 1);
	else
		rados_write_op_omap_rm_keys2(op, keys, &key_size, 1);
	int error = rados_write_op_operate(op, link->io, object, NULL, 0);
	rados_release_write_op(op);
	return !there && error == -ENOENT ? 0 : error;
}

/* The part is noted before anything is put into it. */
int ceph_index_add(struct ceph_link *link, const struct xseg_key *key)
{
	char directory[CEPH_NAME], part[CEPH_NAME], name[CEPH_NAME], one[2];
	snprintf(directory, sizeof(directory), "i.%016" PRIx64, key->volume);
	part_name(part, key->volume, key->object >> 16);
	snprintf(name, sizeof(name), "%04x", key->object >> 16);
	int error = ceph_index_get(link, directory, name, one, sizeof(one));
	if (error == 0)
		error = set_key(link, directory, name, true);
	object_key(name, key->object, key->epoch);
	error = error < 0 ? error : set_key(link, part, name, true);
	return error;
}

int ceph_index_remove(struct ceph_link *link, const struct xseg_key *key)
{
	char part[CEPH_NAME], name[CEPH_NAME];
	part_name(part, key->volume, key->object >> 16);
	object_key(name, key->object, key->epoch);
	return set_key(link, part, name, false);
}

/* --- LIST ----------------------------------------------------------------------------------- */

struct listing {
	struct store_list list;
	struct ceph_link *link;
	struct xseg_key from;
	int error;
};

static bool list_add(struct listing *listing, struct xseg_key key)
{
	if (store_list_wants(listing->list.job, &key))
		store_list_add(&listing->list, key);
	return !store_list_full(&listing->list);
}

static bool list_object(void *context, const char *key, const char *value, size_t size)
{
	struct listing *listing = context;
	struct xseg_key found = {.volume = listing->from.volume};
	(void)value;
	(void)size;
	if (sscanf(key, "%8" SCNx32 ".%8" SCNx32, &found.object, &found.epoch) != 2)
		return true;
	return list_add(listing, found);
}

static bool list_part(void *context, const char *key, const char *value, size_t size)
{
	struct listing *listing = context;
	const struct xseg_key *from = &listing->from;
	uint32_t part = (uint32_t)strtoul(key, NULL, 16);
	char object[CEPH_NAME], after[CEPH_NAME] = "";
	(void)value;
	(void)size;
	uint64_t place = (uint64_t)from->object << 32 | from->epoch;
	if (part < from->object >> 16)
		return true;
	if (part == from->object >> 16 && place > 0)
		object_key(after, (uint32_t)((place - 1) >> 32), (uint32_t)(place - 1));
	part_name(object, from->volume, part);
	listing->error = ceph_index_walk(listing->link, object, after, list_object, listing);
	return !listing->error && !store_list_full(&listing->list);
}

static bool list_record(void *context, const char *key, const char *value, size_t size)
{
	struct listing *listing = context;
	struct xseg_key found = {.epoch = listing->from.epoch};
	uint64_t only = listing->list.job->key.volume;
	(void)value;
	(void)size;
	if (sscanf(key, "%16" SCNx64 ".%8" SCNx32, &found.volume, &found.object) != 2)
		return true;
	if (only && found.volume > only)
		return false;
	return list_add(listing, found);
}

int ceph_index_list(struct ceph_task *task, struct ceph_link *link)
{
	struct job *job = task->job;
	struct listing listing = {.list = {.job = job}, .link = link, .from = store_list_from(job)};
	char name[CEPH_NAME], after[CEPH_NAME];
	int error;
	if (store_record_is(&job->key)) {
		uint64_t first = listing.from.volume;
		first = first < job->key.volume ? job->key.volume : first;
		snprintf(name, sizeof(name), "r.%08x", job->key.epoch);
		snprintf(after, sizeof(after), "%016" PRIx64, first);
		error = ceph_index_walk(link, name, after, list_record, &listing);
	} else {
		snprintf(name, sizeof(name), "i.%016" PRIx64, job->key.volume);
		error = ceph_index_walk(link, name, "", list_part, &listing);
	}
	error = error ? error : listing.error;
	if (!error)
		return store_list_end(&listing.list, &task->value);
	free(listing.list.keys);
	return error;
}

/* --- CAS ------------------------------------------------------------------------------------ */

struct record {
	uint64_t version;
	uint8_t data[XSEG_RECORD_MAX];
};

static int cas_once(struct ceph_task *task, struct ceph_link *link)
{
	struct job *job = task->job;
	struct record old, now;
	char object[CEPH_NAME], key[CEPH_NAME];
	snprintf(object, sizeof(object), "r.%08x", job->key.epoch);
	snprintf(key, sizeof(key), "%016" PRIx64 ".%08x", job->key.volume, job->key.object);
	int size = ceph_index_get(link, object, key, &old, sizeof(old));
	if (size < 0 || (size > 0 && size < (int)sizeof(old.version)))
		return size < 0 ? size : -EILSEQ;
	task->value = size ? old.version : 0;
	int error = store_record_check(job, task->value);
	if (error)
		return error;
	if (job->arg1 == XSEG_CAS_GET)
		return store_record_answer(job, old.data, (size_t)size - sizeof(old.version));
	struct ceph_value was = {&old, (size_t)size}, is = {NULL, 0};
	if (job->arg1 == XSEG_CAS_PUT) {
		now.version = store_record_version_next(task->value);
		job_get_bytes(job, 0, now.data, job->length);
		is = (struct ceph_value){&now, sizeof(now.version) + job->length};
	}
	error = ceph_index_swap(link, object, key, was, is);
	if (!error && job->arg1 == XSEG_CAS_PUT)
		task->value = now.version;
	return error;
}

int ceph_index_cas(struct ceph_task *task, struct ceph_link *link)
{
	int error;
	while ((error = cas_once(task, link)) == -ECANCELED)
		atomic_fetch_add(&link->store->counted[CEPH_CAS_RETRIES], 1);
	const struct job *job = task->job;
	if (!error && job->arg1 == XSEG_CAS_DELETE && job->key.epoch == XSEG_EPOCH_HOME)
		ceph_fence_forget(link, job->key.volume);
	return error;
}
