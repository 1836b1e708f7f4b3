/* SPDX-License-Identifier: Apache-2.0 */
/* The table of commands: parsing, help, the man page and completion come from it. */
#include "tools/ctl/ctl.h"

const struct ctl_verb ctl_completion_verb = {
	"completion",
	NULL,
	"SHELL",
	1,
	1,
	"print the completion script for a shell (bash or zsh)",
	NULL,
	ctl_complete,
	{0},
	.examples = "xsegctl completion bash >/etc/bash_completion.d/xsegctl\n"
		    "xsegctl completion zsh >~/.zfunc/_xsegctl\n",
};

const struct ctl_verb *const ctl_verbs[] = {&ctl_segment_create, &ctl_segment_destroy,
	&ctl_segment_list, &ctl_segment_dump, &ctl_segment_fsck, &ctl_segment_reap, &ctl_up_verb,
	&ctl_down_verb, &ctl_peer_start, &ctl_peer_stop, &ctl_peer_restart, &ctl_peer_rm,
	&ctl_peer_list, &ctl_edge_set, &ctl_edge_list, &ctl_client_list, &ctl_plug_verb,
	&ctl_unplug_verb, &ctl_cache_list, &ctl_cache_stats, &ctl_cache_mode, &ctl_cache_flush,
	&ctl_cache_drop, &ctl_cache_resize, &ctl_cache_policy, &ctl_volume_create, &ctl_volume_rm,
	&ctl_volume_list, &ctl_volume_info, &ctl_volume_clone, &ctl_volume_snapshot,
	&ctl_volume_rollback, &ctl_volume_resize, &ctl_volume_rename, &ctl_volume_protect,
	&ctl_volume_unprotect, &ctl_volume_flatten, &ctl_volume_move, &ctl_volume_diff,
	&ctl_volume_uri, &ctl_volume_attach, &ctl_volume_limit, &ctl_volume_break, &ctl_volume_gc,
	&ctl_volume_fsck, &ctl_import_verb, &ctl_export_verb, &ctl_config_check, &ctl_config_diff,
	&ctl_config_apply, &ctl_config_save, &ctl_job_list, &ctl_job_show, &ctl_job_wait,
	&ctl_job_cancel, &ctl_job_tidy, &ctl_tape_list, &ctl_tape_label, &ctl_tape_verify,
	&ctl_tape_clean, &ctl_tape_rebuild, &ctl_mount_verb, &ctl_umount_verb, &ctl_swap_on,
	&ctl_swap_off, &ctl_bridge_add, &ctl_bridge_rm, &ctl_bridge_list, &ctl_bridge_status,
	&ctl_rehome_status, &ctl_rehome_cancel, &ctl_rehome_verb, &ctl_evacuate_verb,
	&ctl_cert_init, &ctl_cert_issue, &ctl_cert_revoke, &ctl_cert_list, &ctl_status_verb,
	&ctl_stats_verb, &ctl_top_verb, &ctl_trace_verb, &ctl_events_verb, &ctl_log_level,
	&ctl_metrics_verb, &ctl_completion_verb, NULL};
