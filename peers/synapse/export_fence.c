/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which segment may write to which volume, for all that comes over this peer. To the store behind
 * it all importers are one writer, so it is here that they are told apart (docs/decisions/0010).
 * The table is noted in a file: one that has lost it would let a deposed owner write.
 */
#include <base/log.h>
#include <base/path.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xseg/segment.h>

#include "peers/synapse/export.h"

/* Where it is, or would be. */
static uint32_t find(const struct export *export, uint64_t volume)
{
	uint32_t low = 0, high = export->fences;
	while (low < high) {
		uint32_t middle = low + (high - low) / 2;
		if (export->fence[middle].volume < volume)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

static struct export_fence *get(const struct export *export, uint64_t volume)
{
	uint32_t at = find(export, volume);
	bool there = at < export->fences && export->fence[at].volume == volume;
	return there ? &export->fence[at] : NULL;
}

/* --- the file --------------------------------------------------------------------------------- */

/* Its folder, which is made, when `folder` says so. */
static int file_path(const struct export *export, bool folder, char path[PATH_LENGTH_MAX])
{
	const char *state = export_options_of(export)->state;
	char leaf[NAME_LENGTH_MAX + 8];
	snprintf(leaf, sizeof(leaf), "fence.%s", export->peer->name);
	if (!state) {
		int error = path_run(path, peer_segment(export->peer)->name, folder ? NULL : leaf);
		return error || !folder ? error : path_make_dir(path);
	}
	int length = folder ? snprintf(path, PATH_LENGTH_MAX, "%s", state)
			    : snprintf(path, PATH_LENGTH_MAX, "%s/%s", state, leaf);
	if (length >= PATH_LENGTH_MAX)
		return -ENAMETOOLONG;
	return folder && mkdir(path, 0700) && errno != EEXIST ? -errno : 0;
}

static int sync_folder(const char *folder)
{
	int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int error = fd < 0 || fsync(fd) ? -errno : 0;
	if (fd >= 0)
		close(fd);
	return error;
}

static int save(const struct export *export)
{
	char folder[PATH_LENGTH_MAX], path[PATH_LENGTH_MAX], next[PATH_LENGTH_MAX + 8];
	const struct xseg *seg = peer_segment(export->peer);
	bool outlives_host = export_options_of(export)->state != NULL; /* else our process alone */
	int error = file_path(export, true, folder);
	error = error ? error : file_path(export, false, path);
	if (error)
		return error;
	snprintf(next, sizeof(next), "%s.new", path);
	FILE *out = fopen(next, "we");
	if (!out)
		return -errno;
	fwrite(seg->super->uuid, sizeof(seg->super->uuid), 1, out);
	fwrite(export->fence, sizeof(*export->fence), export->fences, out);
	error = fflush(out) || (outlives_host && fsync(fileno(out))) ? -errno : 0;
	if (fclose(out) && !error)
		error = -errno;
	if (!error && rename(next, path))
		error = -errno;
	return error || !outlives_host ? error : sync_folder(folder);
}

static void read_file(struct export *export, FILE *in)
{
	const struct xseg *seg = peer_segment(export->peer);
	struct export_fence fence;
	uint8_t uuid[16];
	bool ours = fread(uuid, sizeof(uuid), 1, in) == 1 &&
		    memcmp(uuid, seg->super->uuid, sizeof(uuid)) == 0;
	/* in RUN_DIR, of another segment of that name: its volumes are others */
	if (!ours && !export_options_of(export)->state)
		return;
	while (export->fences < EXPORT_FENCES_MAX && fread(&fence, sizeof(fence), 1, in) == 1) {
		fence.told = EXPORT_TOLD_NOT;
		export->fence[export->fences++] = fence;
	}
}

void export_fence_load(struct export *export)
{
	char path[PATH_LENGTH_MAX];
	FILE *in = file_path(export, false, path) ? NULL : fopen(path, "re");
	if (!in)
		return;
	read_file(export, in);
	fclose(in);
}

/* --- rules ------------------------------------------------------------------------------------ */

/* A segment's number may have been heard by others: with another certificate it is not the same. */
static bool is_same(const struct export_fence *fence, const uint8_t writer[16], uint32_t who)
{
	return memcmp(fence->writer, writer, sizeof(fence->writer)) == 0 &&
	       (fence->who == 0 || fence->who == who);
}

bool export_fence_allows(const struct export *export, const struct export_session *session,
	uint64_t volume, uint64_t term)
{
	const struct export_fence *fence = get(export, volume);
	if (!fence)
		return true;
	if (fence->nobody || !is_same(fence, session->hello.writer, session->who))
		return false;
	return term == 0 || term + 1 >= fence->line; /* as stores do: XSEG_CONTROL_FENCE */
}

static int add(struct export *export, const struct export_fence *claim)
{
	uint32_t at = find(export, claim->volume);
	if (export->fences == EXPORT_FENCES_MAX)
		return -ENOSPC;
	memmove(&export->fence[at + 1], &export->fence[at],
		(export->fences - at) * sizeof(*export->fence));
	export->fence[at] = *claim;
	export->fences++;
	return 0;
}

static int note(const struct export *export)
{
	int error = save(export);
	if (error)
		log_error("synapse_export", "%s: who may write to a volume cannot be noted: %s",
			export->peer->name, strerror(-error));
	return error;
}

int export_fence_claim(struct export *export, const struct export_fence *claim)
{
	struct export_fence *had = get(export, claim->volume), next = *claim;
	bool ours = had && is_same(had, claim->writer, claim->who);
	bool same = had && claim->term == had->term; /* as before, perhaps by another way */
	if (had && claim->term < had->term)
		return -ESTALE;
	if (next.line == 0)
		next.line = ours || same ? had->line : next.term;
	next.owed = had && (!ours || had->owed);
	next.told = had ? had->told : EXPORT_TOLD; /* by the FENCE itself, before it is answered */
	if (had && memcmp(had, &next, sizeof(next)) == 0)
		return 0;
	int error = had ? (*had = next, 0) : add(export, &next);
	return error ? error : note(export);
}

bool export_fence_owes(const struct export *export, uint64_t volume)
{
	const struct export_fence *fence = get(export, volume);
	return fence && fence->owed;
}

/* If that cannot be noted, it is paid once more by whoever comes next. */
void export_fence_paid(struct export *export, uint64_t volume)
{
	struct export_fence *fence = get(export, volume);
	if (!fence || !fence->owed)
		return;
	fence->owed = 0;
	(void)note(export);
}

/* --- what is below ---------------------------------------------------------------------------- */

/* Not of what is owed first: the FENCE that waits for that goes down then. Nor of nobody's: no
   cache takes anything of it. */
struct export_fence *export_fence_untold(struct export *export, uint64_t volume)
{
	const struct export_shared *shared = export->peer->shared;
	uint32_t refences = atomic_load(&shared->refences);
	for (uint32_t i = 0; refences != export->refences && i < export->fences; i++)
		export->fence[i].told = EXPORT_TOLD_NOT;
	export->refences = refences;
	struct export_fence *fence = get(export, volume);
	bool untold = fence && fence->told != EXPORT_TOLD && !fence->owed && !fence->nobody;
	return untold ? fence : NULL;
}

/* Was there a REFENCE meanwhile, it went perhaps to whom the edge does not lead to any more. */
bool export_fence_told(struct export *export, uint64_t volume, uint64_t term, bool good)
{
	struct export_fence *fence = get(export, volume);
	bool same = fence && fence->term == term;
	if (fence && fence->told == EXPORT_TELLING)
		fence->told = good && same ? EXPORT_TOLD : EXPORT_TOLD_NOT;
	return same;
}

void export_fence_forget(struct export *export, uint64_t volume)
{
	struct export_fence *fence = get(export, volume);
	if (!fence)
		return;
	uint32_t behind = export->fences - (uint32_t)(fence - export->fence) - 1;
	memmove(fence, fence + 1, behind * sizeof(*fence));
	export->fences--;
	(void)save(export); /* what the file has too much does no harm */
}
