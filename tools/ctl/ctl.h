/* SPDX-License-Identifier: Apache-2.0 */
/*
 * xsegctl: a table of commands. One struct ctl_verb says all about a command; parsing, help, the
 * man page and completion come from it.
 *
 * Units: bytes, ns. Errors: 0; -enum fault_code with ctl->fault set; a positive number is an exit
 * status without an error (status: not well). Ownership: ctl borrows argv. Threads: one.
 */
#ifndef SKERRY_TOOLS_CTL_H
#define SKERRY_TOOLS_CTL_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <xseg/segment.h>

#include "tools/report/fault.h"

struct client;

#define CTL_SCHEMA_VERSION 1
#define CTL_OPTIONS_MAX 16u

struct ctl_option {
	const char *name;
	char letter;	      /* or 0 */
	const char *argument; /* NULL: a switch; "[TIME]": --option or --option=TIME */
	const char *help;
	const char *const *choices; /* NULL-terminated, or NULL */
};

struct ctl;

struct ctl_verb {
	const char *noun, *verb; /* verb NULL: the noun stands alone */
	const char *arguments;	 /* "NAME", "[SEGMENT]" */
	int least, most;	 /* how many */
	const char *summary;
	const char *description; /* scdoc paragraphs, may be NULL */
	int (*run)(struct ctl *ctl);
	const struct ctl_option *options[CTL_OPTIONS_MAX]; /* beside the common ones */
	const char *examples;				   /* a line each, for help and man */
};

enum ctl_format { CTL_TABLE, CTL_JSON, CTL_JSONL, CTL_CSV };
enum ctl_progress_mode {
	CTL_PROGRESS_AUTO,
	CTL_PROGRESS_BAR,
	CTL_PROGRESS_PLAIN,
	CTL_PROGRESS_JSON,
	CTL_PROGRESS_NONE
};

struct ctl {
	const struct ctl_verb *verb;
	int argc; /* arguments after the verb */
	char **argv;
	const char *values[CTL_OPTIONS_MAX]; /* of verb->options; a switch's is "" */
	const char *segment;		     /* as given, or NULL */
	enum ctl_format format;
	uint64_t timeout_ns;
	bool timeout_given;
	struct fault fault;
};

/* --- options (ctl_option.c) --- */

extern const struct ctl_option ctl_option_yes, ctl_option_dry_run, ctl_option_progress,
	ctl_option_via, ctl_option_discard;
extern const struct ctl_option *const ctl_options_common[]; /* NULL at the end */

/* Value of an option of this verb: NULL when it was not given. */
const char *ctl_option_value(const struct ctl *ctl, const char *name);
bool ctl_option_given(const struct ctl *ctl, const char *name);
int ctl_option_size(
	struct ctl *ctl, const char *name, uint64_t *size); /* unchanged when not given */
int ctl_option_number(struct ctl *ctl, const char *name, uint64_t max, uint64_t *count);
/* Fills ctl from argv; 0, -code, or CTL_SHOWN when help or the like was printed. */
#define CTL_SHOWN 100
int ctl_option_parse(struct ctl *ctl, int argc, char **argv);
const struct ctl_verb *ctl_option_verb(const char *noun, const char *verb);

extern const struct ctl_verb *const ctl_verbs[]; /* NULL at the end; ctl_table.c */

/* --- help (ctl_help.c) --- */

void ctl_help(void);
void ctl_help_noun(const char *noun);
void ctl_help_verb(const struct ctl_verb *verb);
void ctl_help_man(void);
int ctl_complete(struct ctl *ctl);

/* --- questions and interrupts (ctl_ask.c) --- */

/* 0 when --yes was given or the user says so; else a fault: usage without a terminal. The deed is
   said as in "remove volume 'disk' and all its data". */
int ctl_ask(struct ctl *ctl, const char *deed);
/* SIGINT, SIGTERM and SIGHUP set a flag from now on. */
void ctl_ask_interrupt_catch(void);
bool ctl_ask_interrupted(void);
/* While something is undone it is as if nobody had said it; the signal, to be put back. */
int ctl_ask_interrupt_block(void);
void ctl_ask_interrupt_resume(int signal);
int ctl_ask_interrupted_by(void); /* the signal, or 0 */
/* Until fd is ready (POLLIN, POLLOUT) or ^C; false: ^C. A signal just before a read is not lost. */
bool ctl_ask_interrupt_wait(int fd, short events);
int ctl_ask_interrupted_fault(struct ctl *ctl, const char *object);

/* --- pipeline files (ctl_config.c) --- */

/* Asks xsegd, who asks xsegpeer; a fault says file and line. */
int ctl_config_check_file(struct ctl *ctl, const char *path);

/* --- the segment (ctl_join.c) --- */

/* Which: -s, $SKERRY_SEGMENT, or the only one there is. */
int ctl_join_segment_name(struct ctl *ctl, char name[NAME_LENGTH_MAX + 1]);
/* The run folder of the segment's keeper, as the segment says, unless SKERRY_RUN_DIR is set. */
void ctl_join_run_dir(const char *segment);
int ctl_join(struct ctl *ctl, struct xseg *seg);
/* A client of the composer: the peer of role "volume", or --via. */
int ctl_join_composer(struct ctl *ctl, struct client *client);
int ctl_join_composer_name(struct ctl *ctl, char name[NAME_LENGTH_MAX + 1]);
/* A client of that peer, with the limit of --timeout. */
int ctl_join_peer(struct ctl *ctl, const char *segment, const char *peer, struct client *client);

extern const struct ctl_verb ctl_segment_create, ctl_segment_destroy, ctl_segment_list,
	ctl_segment_dump;
extern const struct ctl_verb ctl_volume_create, ctl_volume_rm, ctl_volume_list, ctl_volume_info;
extern const struct ctl_verb ctl_volume_clone, ctl_volume_snapshot, ctl_volume_rollback,
	ctl_volume_resize, ctl_volume_rename, ctl_volume_protect, ctl_volume_unprotect,
	ctl_volume_flatten, ctl_volume_move, ctl_volume_diff, ctl_volume_limit, ctl_volume_break,
	ctl_volume_gc, ctl_volume_fsck;
extern const struct ctl_verb ctl_import_verb, ctl_export_verb;
extern const struct ctl_verb ctl_up_verb, ctl_down_verb;
extern const struct ctl_verb ctl_peer_start, ctl_peer_stop, ctl_peer_restart, ctl_peer_list;
extern const struct ctl_verb ctl_edge_set, ctl_edge_list;
extern const struct ctl_verb ctl_config_check, ctl_config_diff, ctl_config_apply, ctl_config_save;
extern const struct ctl_verb ctl_job_list, ctl_job_show, ctl_job_wait, ctl_job_cancel, ctl_job_tidy;
extern const struct ctl_verb ctl_segment_reap;
extern const struct ctl_verb ctl_client_list, ctl_volume_uri, ctl_volume_attach, ctl_peer_rm;
extern const struct ctl_verb ctl_plug_verb, ctl_unplug_verb;
extern const struct ctl_verb ctl_cache_list, ctl_cache_stats, ctl_cache_mode, ctl_cache_flush,
	ctl_cache_drop, ctl_cache_resize, ctl_cache_policy;
extern const struct ctl_verb ctl_tape_list, ctl_tape_label, ctl_tape_verify, ctl_tape_clean,
	ctl_tape_rebuild;
extern const struct ctl_verb ctl_mount_verb, ctl_umount_verb, ctl_swap_on, ctl_swap_off;
extern const struct ctl_verb ctl_bridge_add, ctl_bridge_rm, ctl_bridge_list, ctl_bridge_status;
extern const struct ctl_verb ctl_rehome_verb, ctl_rehome_status, ctl_rehome_cancel,
	ctl_evacuate_verb;
extern const struct ctl_verb ctl_cert_init, ctl_cert_issue, ctl_cert_revoke, ctl_cert_list;
extern const struct ctl_verb ctl_status_verb, ctl_stats_verb, ctl_completion_verb;
extern const struct ctl_verb ctl_top_verb, ctl_events_verb, ctl_log_level, ctl_trace_verb,
	ctl_segment_fsck, ctl_metrics_verb;

#endif
