/* SPDX-License-Identifier: Apache-2.0 */
/* volume snapshot, clone and rollback. */
#include <base/must.h>
#include <base/time.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "tools/ctl/ctl_hook.h"
#include "tools/ctl/ctl_map.h"
#include "tools/report/program.h"

static const struct ctl_option option_freeze = {"freeze-cmd", 0, "COMMAND",
	"run before: it makes whoever writes pause, e.g. fsfreeze in the guest", NULL};
static const struct ctl_option option_thaw = {
	"thaw-cmd", 0, "COMMAND", "run after *--freeze-cmd*, whatever came of it", NULL};
static const struct ctl_option option_size = {
	"size", 0, "SIZE", "a larger size than that of the source; the rest is empty", NULL};

static const struct ctl_column made_columns[] = {{"name", "name", CTL_TEXT},
	{"volume", "volume", CTL_TEXT}, {"size", "size", CTL_SIZE}, {"id", "id", CTL_TEXT},
	{"changed", "changed", CTL_TEXT}, {"dry_run", "dry run", CTL_TEXT}};

static void made_print(struct ctl *ctl, const char *name, const struct xseg_volume_info *source,
	uint64_t id, uint64_t size, bool changed)
{
	char text[24];
	bool plan = ctl_option_given(ctl, "dry-run");
	snprintf(text, sizeof(text), "%016llx", (unsigned long long)id);
	json_t *out = json_pack("{s:s, s:s, s:I, s:b, s:b}", "name", name, "volume", source->name,
		"size", (json_int_t)size, "changed", changed && !plan, "dry_run", plan);
	if (id)
		json_object_set_new(out, "id", json_string(text));
	ctl_output_one(ctl, out, made_columns, countof(made_columns) - !plan);
}

/* 0: the name is free; else it is taken. *found is what has it. */
static int name_free(
	struct ctl *ctl, struct client *client, const char *name, struct xseg_volume_info *found)
{
	int rc = ctl_volume_find(ctl, client, name, found);
	if (rc == 0)
		return fault_set(&ctl->fault, FAULT_CONFLICT, name,
			"choose another name, or remove it with 'xsegctl volume rm'",
			"volume '%s' exists", name);
	if (rc != -FAULT_NOT_FOUND)
		return rc;
	memset(&ctl->fault, 0, sizeof(ctl->fault));
	return 0;
}

static int source_ready(struct ctl *ctl, const struct xseg_volume_info *source)
{
	if (source->state == XSEG_VOLUME_READY)
		return ctl_map_changeable(ctl, source);
	return fault_set(&ctl->fault, FAULT_BUSY, source->name, NULL, "volume '%s' is being %s",
		source->name, source->state == XSEG_VOLUME_IMPORTING ? "imported" : "removed");
}

static void ask_make(struct map_ask *ask, const char *name, uint64_t size)
{
	*ask = (struct map_ask){
		.id = ctl_map_draw_id(), .size = size, .created_ns = time_wall_ns()};
	snprintf(ask->name, sizeof(ask->name), "%s", name);
}

/* --- hooks ------------------------------------------------------------------------------ */

static int freeze_fault(struct ctl *ctl, const struct program_result *result, int error)
{
	char line[200];
	if (error == -ETIMEDOUT)
		return fault_set(&ctl->fault, FAULT_TIMEOUT, NULL, "--timeout sets the limit",
			"--freeze-cmd has not ended in time");
	if (error)
		return fault_set(&ctl->fault, FAULT_FAILED, NULL, NULL,
			"--freeze-cmd cannot be run: %s", strerror(-error));
	program_last_line(result->err, line, sizeof(line));
	return fault_set(&ctl->fault, FAULT_FAILED, NULL, NULL,
		"--freeze-cmd has failed (%s %d)%s%s",
		WIFEXITED(result->status) ? "exit" : "signal",
		WIFEXITED(result->status) ? WEXITSTATUS(result->status) : WTERMSIG(result->status),
		line[0] ? ": " : "", line);
}

static int freeze(struct ctl *ctl, const char *volume)
{
	const char *command = ctl_option_value(ctl, "freeze-cmd");
	char *argv[] = {"/bin/sh", "-c", (char *)(uintptr_t)command, NULL};
	struct program_result result;
	setenv("SKERRY_VOLUME", volume, 1);
	int error = program_run(argv, ctl->timeout_ns, &result);
	int rc = error || result.status ? freeze_fault(ctl, &result, error) : 0;
	program_result_free(&result);
	return rc;
}

static int thaw(struct ctl *ctl, struct ctl_hook *hook)
{
	ctl_hook_keep(hook);
	if (!ctl_hook_wait(hook, false, ctl->timeout_ns))
		return fault_set(&ctl->fault, FAULT_TIMEOUT, NULL, "--timeout sets the limit",
			"--thaw-cmd has not ended in time");
	return hook->status == 0 ? 0
				 : fault_set(&ctl->fault, FAULT_FAILED, NULL, NULL,
					   "--thaw-cmd has failed (exit status %d)", hook->status);
}

static int hooks_check(struct ctl *ctl)
{
	if (ctl_option_given(ctl, "freeze-cmd") == ctl_option_given(ctl, "thaw-cmd"))
		return 0;
	return fault_set(&ctl->fault, FAULT_USAGE, NULL, NULL,
		"--freeze-cmd and --thaw-cmd go together: what is frozen must go on");
}

/* --- snapshot --------------------------------------------------------------------------- */

/* Between the hooks, whoever presses ^C waits for the thaw, which comes also when we are killed. If
   it fails after all went well, the snapshot is there, and somebody may still wait. */
static int snapshot_held(struct ctl *ctl, struct client *client,
	const struct xseg_volume_info *volume, const struct map_ask *ask)
{
	struct ctl_map_call call = {.what = MAP_SNAP, .volume = volume->id, .ask = ask};
	struct ctl_hook hook;
	if (!ctl_option_given(ctl, "freeze-cmd"))
		return ctl_map_do(ctl, client, volume, "cannot be snapshotted", &call);
	ctl_ask_interrupt_catch();
	setenv("SKERRY_SNAPSHOT", ctl->argv[0], 1);
	int error = ctl_hook_promise(&hook, ctl_option_value(ctl, "thaw-cmd"), volume->name);
	if (error)
		return fault_set(&ctl->fault, FAULT_FAILED, NULL, NULL,
			"--thaw-cmd cannot be run: %s", strerror(-error));
	int rc = freeze(ctl, volume->name);
	if (!rc && ctl_ask_interrupted())
		rc = ctl_ask_interrupted_fault(ctl, volume->name);
	if (!rc)
		rc = ctl_map_do(ctl, client, volume, "cannot be snapshotted", &call);
	struct fault first = ctl->fault;
	int thawed = thaw(ctl, &hook);
	if (rc) {
		ctl->fault = first;
		if (thawed)
			fault_hint(&ctl->fault, "--thaw-cmd has failed, too");
		return rc;
	}
	if (!thawed)
		return 0;
	ctl->fault.code = FAULT_PARTLY;
	fault_hint(&ctl->fault, "the snapshot '%.128s' is there; see that its guest goes on",
		ask->name);
	return -FAULT_PARTLY;
}

static int snapshot(struct ctl *ctl, struct client *client, const struct xseg_volume_info *volume)
{
	struct xseg_volume_info found;
	struct map_ask ask;
	const char *name = ctl->argv[0];
	int rc = source_ready(ctl, volume);
	if (!rc && (volume->flags & XSEG_VOLUME_SNAPSHOT))
		rc = ctl_map_fault(ctl, volume, "cannot be snapshotted", -EPERM, NULL);
	if (!rc)
		rc = name_free(ctl, client, name, &found);
	ask_make(&ask, name, 0);
	if (!rc && !ctl_option_given(ctl, "dry-run"))
		rc = snapshot_held(ctl, client, volume, &ask);
	if (!rc)
		made_print(ctl, name, volume, ctl_option_given(ctl, "dry-run") ? 0 : ask.id,
			volume->size, true);
	return rc;
}

static int run_snapshot(struct ctl *ctl)
{
	char name[VOLUME_NAME_LENGTH_MAX + 1];
	struct xseg_volume_info volume;
	struct client client;
	int rc = hooks_check(ctl);
	if (!rc)
		rc = ctl_volume_snap_name_check(ctl, name);
	if (!rc)
		rc = ctl_map_open(ctl, name, &client, &volume);
	if (rc)
		return rc;
	rc = snapshot(ctl, &client, &volume);
	client_close(&client);
	return rc;
}

const struct ctl_verb ctl_volume_snapshot = {
	"volume",
	"snapshot",
	"VOLUME@SNAP",
	1,
	2,
	"keep a volume as it is now",
	"\tTakes no space and the same time whatever the size. A snapshot never changes; it can be "
	"read, "
	"exported, cloned and rolled back to. While guests run it is what a power cut would have "
	"left (all that they have flushed is in it); with *--freeze-cmd* and *--thaw-cmd* they can "
	"be told to pause: both are run by sh with SKERRY_VOLUME and SKERRY_SNAPSHOT (VOLUME@SNAP) "
	"set, each for *--timeout* at most. No snapshot is made when *--freeze-cmd* fails.\n",
	run_snapshot,
	{&option_freeze, &option_thaw, &ctl_option_via, &ctl_option_dry_run},
	.examples = "xsegctl volume snapshot disk@monday\n"
		    "xsegctl volume snapshot disk@monday --freeze-cmd 'virsh domfsfreeze vm1' "
		    "--thaw-cmd 'virsh domfsthaw vm1'\n",
};

/* --- clone ------------------------------------------------------------------------------ */

/* A clone of a snapshot that is there is what was asked for; one of a volume is of another time. */
static int clone_exists(struct ctl *ctl, struct client *client,
	const struct xseg_volume_info *source, const struct xseg_volume_info *found, uint64_t size)
{
	struct map_head_info head;
	bool same = (source->flags & XSEG_VOLUME_SNAPSHOT) && found->size == size &&
		    found->state == XSEG_VOLUME_READY && !(found->flags & XSEG_VOLUME_SNAPSHOT) &&
		    ctl_map_head(client, found->id, &head) == 0 && head.parent == source->id;
	if (!same)
		return -FAULT_CONFLICT; /* as name_free() said */
	memset(&ctl->fault, 0, sizeof(ctl->fault));
	made_print(ctl, found->name, source, found->id, size, false);
	return 0;
}

static int clone_size(struct ctl *ctl, const struct xseg_volume_info *source, uint64_t *size)
{
	*size = source->size;
	int rc = ctl_option_size(ctl, "size", size);
	if (!rc && (*size < source->size || *size % XSEG_SECTOR))
		rc = fault_set(&ctl->fault, FAULT_USAGE, source->name, NULL,
			"--size: a multiple of %u, and not below the %llu bytes of '%s'",
			XSEG_SECTOR, (unsigned long long)source->size, source->name);
	struct xseg_volume_info wanted = *source;
	wanted.size = *size;
	return rc ? rc : ctl_volume_size_check(ctl, &wanted, "cannot be cloned");
}

static int clone(struct ctl *ctl, struct client *client, const struct xseg_volume_info *source,
	const char *name)
{
	struct xseg_volume_info found;
	struct map_ask ask;
	uint64_t size;
	int rc = source_ready(ctl, source);
	if (!rc)
		rc = clone_size(ctl, source, &size);
	if (rc)
		return rc;
	rc = name_free(ctl, client, name, &found);
	if (rc == -FAULT_CONFLICT)
		return clone_exists(ctl, client, source, &found, size);
	ask_make(&ask, name, size == source->size ? 0 : size);
	struct ctl_map_call call = {.what = MAP_CLONE, .volume = source->id, .ask = &ask};
	bool plan = ctl_option_given(ctl, "dry-run");
	if (!rc && !plan)
		rc = ctl_map_do(ctl, client, source, "cannot be cloned", &call);
	if (!rc)
		made_print(ctl, name, source, plan ? 0 : ask.id, size, true);
	return rc;
}

int ctl_snap_clone(struct ctl *ctl, const char *source_name, const char *name)
{
	struct xseg_volume_info source;
	struct client client;
	int rc = ctl_volume_new_name_check(ctl, name);
	if (!rc)
		rc = ctl_map_open(ctl, source_name, &client, &source);
	if (rc)
		return rc;
	rc = clone(ctl, &client, &source, name);
	client_close(&client);
	return rc;
}

static int run_clone(struct ctl *ctl) { return ctl_snap_clone(ctl, ctl->argv[0], ctl->argv[1]); }

const struct ctl_verb ctl_volume_clone = {
	"volume",
	"clone",
	"SOURCE NEW",
	2,
	2,
	"make a volume with the contents of another one",
	"\tTakes no space and the same time whatever the size: what neither of them has changed "
	"since "
	"is shared. SOURCE is a snapshot, or a volume as it is now. To be rid of what is shared, "
	"see *volume flatten*.\n",
	run_clone,
	{&option_size, &ctl_option_via, &ctl_option_dry_run},
	.examples = "xsegctl volume clone debian-12 vm1\n"
		    "xsegctl volume clone debian-12 vm2 --size 40G\n",
};

/* --- rollback --------------------------------------------------------------------------- */

static const struct ctl_column rollback_columns[] = {{"name", "name", CTL_TEXT},
	{"snapshot", "snapshot", CTL_TEXT}, {"size", "size", CTL_SIZE},
	{"changed", "changed", CTL_TEXT}, {"dry_run", "dry run", CTL_TEXT}};

static int rollback_fault(struct ctl *ctl, const struct xseg_volume_info *volume,
	const struct xseg_volume_info *snapshot, int error, const struct ctl_map_call *call)
{
	if (error == -EINVAL)
		return fault_set(&ctl->fault, FAULT_CONFLICT, snapshot->name,
			"'xsegctl volume list --tree' shows whose it is; 'xsegctl volume clone' "
			"makes a volume of it",
			"'%s' is not a snapshot of volume '%s'", snapshot->name, volume->name);
	return ctl_map_fault(ctl, volume, "cannot be rolled back", error, call);
}

static int rollback_ask(struct ctl *ctl, const struct xseg_volume_info *volume,
	const struct xseg_volume_info *snapshot)
{
	char deed[768], since[32];
	if (volume->opens)
		return fault_set(&ctl->fault, FAULT_BUSY, volume->name,
			"let its clients disconnect first",
			"volume '%s' is attached: %u have it open", volume->name, volume->opens);
	ctl_map_date(snapshot->created_ns, since, sizeof(since));
	snprintf(deed, sizeof(deed),
		"lose all that was written to volume '%s' since %s, when '%s' was made",
		volume->name, since, snapshot->name);
	return ctl_option_given(ctl, "dry-run") ? 0 : ctl_ask(ctl, deed);
}

static int rollback(struct ctl *ctl, struct client *client, const struct xseg_volume_info *volume)
{
	struct xseg_volume_info snapshot;
	int rc = ctl_volume_find(ctl, client, ctl->argv[0], &snapshot);
	bool plan = ctl_option_given(ctl, "dry-run");
	if (!rc)
		rc = ctl_map_changeable(ctl, volume);
	if (!rc && !(snapshot.flags & XSEG_VOLUME_SNAPSHOT))
		rc = rollback_fault(ctl, volume, &snapshot, -EINVAL, NULL);
	if (!rc)
		rc = rollback_ask(ctl, volume, &snapshot);
	struct map_ask ask = {.id = snapshot.id};
	struct ctl_map_call call = {.what = MAP_ROLLBACK, .volume = volume->id, .ask = &ask};
	int error = rc || plan ? 0 : ctl_map_call(client, &call);
	if (error)
		rc = rollback_fault(ctl, volume, &snapshot, error, &call);
	if (rc)
		return rc;
	ctl_output_one(ctl,
		json_pack("{s:s, s:s, s:I, s:b, s:b}", "name", volume->name, "snapshot",
			snapshot.name, "size", (json_int_t)snapshot.size, "changed", !plan,
			"dry_run", plan),
		rollback_columns, countof(rollback_columns) - !plan);
	return 0;
}

static int run_rollback(struct ctl *ctl)
{
	char name[VOLUME_NAME_LENGTH_MAX + 1];
	struct xseg_volume_info volume;
	struct client client;
	int rc = ctl_volume_snap_name_check(ctl, name);
	if (!rc)
		rc = ctl_map_open(ctl, name, &client, &volume);
	if (rc)
		return rc;
	rc = rollback(ctl, &client, &volume);
	client_close(&client);
	return rc;
}

const struct ctl_verb ctl_volume_rollback = {
	"volume",
	"rollback",
	"VOLUME@SNAP",
	1,
	2,
	"give a volume the contents and size of one of its snapshots",
	"\tWhat was written since is lost (make a snapshot of it first to keep it). The volume "
	"must "
	"not be open.\n",
	run_rollback,
	{&ctl_option_yes, &ctl_option_via, &ctl_option_dry_run},
	.examples = "xsegctl volume rollback disk@monday --yes\n",
};
