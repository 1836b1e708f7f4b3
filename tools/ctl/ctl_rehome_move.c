/* SPDX-License-Identifier: Apache-2.0 */
/* Volumes on their way, several at a time, with commands of the user's; what went wrong. */
#include "tools/ctl/ctl_rehome_move.h"

#include <base/must.h>
#include <base/time.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "tools/ctl/ctl_map.h"

#define LOOK_NS 20000000u

static const char no_re_homer[] = "no re-homer is behind that bridge",
		  an_export[] = "there a synapse_export with edge.volume=home0 is needed";

static int told(const struct ctl_rehome *rehome, const struct ctl_move *move, size_t stay)
{
	static const struct {
		int error;
		enum fault_code code;
		const char *text, *hint;
	} known[] = {
		{-EBUSY, FAULT_BUSY, "another host has it, or it is being moved already",
			"'xsegctl volume info' and 'xsegctl rehome status' say which"},
		{-EXDEV, FAULT_CONFLICT, "the other host does not have it in the same store",
			"--store says where the other one keeps its volumes: the data go along"},
		{-ENOLINK, FAULT_FAILED, no_re_homer, an_export},
		{-EOPNOTSUPP, FAULT_FAILED, no_re_homer, an_export},
		{-ENOTCONN, FAULT_FAILED, "the bridge to the other host is down",
			"'xsegctl bridge status' says why"},
		{-EPROTO, FAULT_FAILED, "the other host's re-homer is of another version", NULL},
		{-ELOOP, FAULT_USAGE, "that bridge leads back to this host", NULL},
		{-EPERM, FAULT_FAILED,
			"the other host lets this one use volumes, and not move them",
			"allow= of its exporting end names some; without names all may be moved"},
		{-EROFS, FAULT_USAGE, "it is read-only", "every host can read a snapshot as it is"},
		{-EAGAIN, FAULT_FAILED, "it is written to faster than its cache writes back",
			"--on-stall force accepts a longer pause, throttle slows writers down"},
		{-ECANCELED, FAULT_FAILED, "it was cancelled", NULL},
		{-ETIME, FAULT_TIMEOUT, "requests on their way did not end in time",
			"its drain-timeout= sets the limit; 'xsegctl trace' shows them"},
		{-ETIMEDOUT, FAULT_TIMEOUT, "the other host did not take it in time",
			"'xsegctl bridge status' says how the link is"},
	};
	struct ctl *ctl = rehome->plug.ctl;
	enum fault_code code = fault_code_of_errno(move->error);
	const char *name = move->info.name, *text = strerror(-move->error), *hint = NULL;
	const char *where = rehome->comes ? "there" : "here";
	char why[64];
	for (size_t i = 0; i < countof(known); i++) {
		if (known[i].error != move->error)
			continue;
		code = known[i].code;
		text = known[i].text;
		hint = known[i].hint;
	}
	if (rehome->comes && move->error == -ENOLINK) {
		text = "the other host's re-homer has no bridge to the one here";
		hint = "edge.volume-to= of that one leads to one";
	}
	if (move->refused) {
		snprintf(why, sizeof(why), "--freeze-cmd failed (exit status %d)", move->refused);
		text = why;
		hint = "what it said is above";
	}
	if (rehome->count > 1)
		return fault_set(&ctl->fault, code, name, hint,
			"%zu of %zu volumes stay %s, '%s': %s", stay, rehome->count, where, name,
			text);
	return fault_set(
		&ctl->fault, code, name, hint, "volume '%s' stays %s: %s", name, where, text);
}

/* Whoever was frozen goes on, in any case. */
static void end_move(struct ctl_move *move)
{
	move->step = move->frozen && move->rehome->thaw ? MOVE_THAWS : MOVE_ENDED;
	if (move->rehoming)
		rehoming_close(move->rehoming);
	move->rehoming = NULL;
}

/* Where the volume is does not depend on it. */
static void thaw(struct ctl_move *move)
{
	if (!ctl_hook_ended(&move->hook))
		return;
	ctl_hook_keep(&move->undo);
	if (!ctl_hook_ended(&move->undo))
		return;
	move->step = MOVE_ENDED;
	if (move->undo.status != 0)
		fprintf(stderr,
			"xsegctl: --thaw-cmd of volume '%s' failed (exit status %d); the rest is "
			"done\n",
			move->info.name, move->undo.status);
}

static int freeze(void *context)
{
	struct ctl_move *move = context;
	const struct ctl_rehome *rehome = move->rehome;
	const char *name = move->info.name;
	bool promised =
		move->frozen || !rehome->thaw || !ctl_hook_promise(&move->undo, rehome->thaw, name);
	if (!move->frozen && promised)
		ctl_hook_start(&move->hook, rehome->freeze, name);
	else if (!move->frozen)
		move->hook.status = move->undo.status; /* it could not be undone */
	move->frozen = true;
	if (!ctl_hook_ended(&move->hook))
		return -EAGAIN;
	move->refused = move->hook.status;
	return move->refused ? -ECANCELED : 0;
}

static int open_move(struct ctl_rehome *rehome, struct ctl_move *move)
{
	const struct ctl *ctl = rehome->plug.ctl;
	struct rehoming_ask ask = rehome->ask;
	if (move->rehoming)
		return 0;
	ask.segment = rehome->plug.seg.name;
	ask.rehomer = rehome->plug.name;
	ask.bridge = rehome->to;
	ask.timeout_ns = ctl->timeout_given ? ctl->timeout_ns : CTL_MAP_PATIENCE_NS;
	ask.context = move;
	ask.before_suspend = rehome->freeze ? freeze : NULL;
	move->rehome = rehome;
	move->rehoming = rehome->comes ? rehoming_leech(&ask, move->info.name)
				       : rehoming_seed(&ask, move->info.name);
	return move->rehoming ? 0 : -errno;
}

static void step(struct ctl_rehome *rehome, struct ctl_move *move)
{
	int error = open_move(rehome, move);
	error = error ? error : rehoming_step(move->rehoming);
	if (move->rehoming)
		move->state = *rehoming_info(move->rehoming);
	rehome->begun |= !error || error == REHOMING_GOES || error == -ETIMEDOUT;
	move->step = error == REHOMING_WAITS ? MOVE_WAITS : MOVE_GOES;
	if (error > 0)
		return;
	move->error = error;
	end_move(move);
}

/* As many at once as may be; how many have ended. */
static size_t go_on(struct ctl_rehome *rehome)
{
	size_t ended = 0, going = 0;
	for (size_t i = 0; i < rehome->count; i++) {
		struct ctl_move *move = &rehome->moves[i];
		if (move->step == MOVE_GOES ||
			(move->step == MOVE_WAITS && going < rehome->at_once))
			step(rehome, move);
		else if (move->step == MOVE_THAWS)
			thaw(move);
		going += move->step == MOVE_GOES;
		ended += move->step == MOVE_ENDED;
	}
	return ended;
}

static int interrupted(struct ctl_rehome *rehome)
{
	for (size_t i = 0; i < rehome->count; i++) {
		struct ctl_move *move = &rehome->moves[i];
		if (move->step == MOVE_GOES) {
			rehoming_cancel(move->rehoming);
			ctl_hook_wait(&move->hook, true, 0);
			end_move(move);
		}
	}
	for (size_t i = 0; i < rehome->count; i++)
		while (rehome->moves[i].step == MOVE_THAWS) {
			ctl_hook_wait(&rehome->moves[i].hook, false, 0);
			ctl_hook_keep(&rehome->moves[i].undo);
			ctl_hook_wait(&rehome->moves[i].undo, false, 0);
			thaw(&rehome->moves[i]);
		}
	return ctl_ask_interrupted_fault(
		rehome->plug.ctl, rehome->count == 1 ? rehome->moves[0].info.name : NULL);
}

int ctl_rehome_move_follow(struct ctl_rehome *rehome, struct ctl_work *work)
{
	size_t ended;
	while ((ended = go_on(rehome)) < rehome->count) {
		if (ctl_ask_interrupted())
			return interrupted(rehome);
		if (rehome->count == 1)
			ctl_work_progress(work, rehome->moves[0].state.rounds, 0);
		else
			ctl_work_progress(work, ended, rehome->count);
		time_nap(LOOK_NS);
	}
	return 0;
}

int ctl_rehome_move_ask(struct ctl_rehome *rehome, struct ctl_move *move)
{
	int error = open_move(rehome, move);
	error = error ? error : rehoming_check(move->rehoming);
	return error == -EXDEV ? 0 : error;
}

int ctl_rehome_move_judge(const struct ctl_rehome *rehome)
{
	const struct ctl_move *first = NULL;
	size_t stay = 0;
	for (size_t i = rehome->count; i-- > 0;) {
		if (rehome->moves[i].error == 0)
			continue;
		first = &rehome->moves[i];
		stay++;
	}
	return first ? told(rehome, first, stay) : 0;
}
