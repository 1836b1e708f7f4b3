/* SPDX-License-Identifier: Apache-2.0 */
/* An example or two of each command, for help and the man page. */
#include <base/must.h>

#include "tools/ctl/ctl_help.h"

static const struct {
	const struct ctl_verb *verb;
	const char *text;
} examples[] = {
	{&ctl_segment_create, "xsegctl segment create demo --size 1G\n"},
	{&ctl_segment_destroy, "xsegctl segment destroy demo --yes\n"},
	{&ctl_segment_list, "xsegctl segment list --json\n"},
	{&ctl_segment_dump, "xsegctl segment dump demo\n"},
	{&ctl_segment_fsck, "xsegctl segment fsck demo\n"},
	{&ctl_segment_reap, "xsegctl segment reap demo --dry-run\n"
			    "xsegctl segment reap demo\n"},
	{&ctl_up_verb, "xsegctl up demo.conf --dry-run\n"
		       "xsegctl up demo.conf\n"},
	{&ctl_down_verb, "xsegctl down demo --timeout 10s\n"},
	{&ctl_peer_start, "xsegctl peer start nbd0\n"
			  "xsegctl peer start mem1=blocker_memory --lanes 2\n"},
	{&ctl_peer_stop, "xsegctl peer stop nbd0 --host\n"},
	{&ctl_peer_restart, "xsegctl peer restart vol0\n"
			    "xsegctl peer restart vol0 --host --exec\n"},
	{&ctl_peer_list, "xsegctl peer list -o csv\n"},
	{&ctl_edge_set, "xsegctl edge set vol0:store mem1\n"
			"xsegctl edge set vol0:store none --dry-run\n"},
	{&ctl_edge_list, "xsegctl edge list\n"},
	{&ctl_plug_verb, "xsegctl plug cached --at vol0:store --dry-run\n"
			 "xsegctl plug cached --at vol0:store size=512M policy=s3fifo\n"},
	{&ctl_unplug_verb, "xsegctl unplug cache0\n"
			   "xsegctl unplug cache0 --discard-dirty=1048576\n"},
	{&ctl_peer_rm, "xsegctl peer stop cache0\nxsegctl peer rm cache0\n"},
	{&ctl_volume_uri, "xsegctl volume uri disk\nnbdinfo \"$(xsegctl volume uri disk)\"\n"},
	{&ctl_volume_attach,
		"xsegctl volume attach disk --print qemu\n"
		"virsh attach-device vm1 <(xsegctl volume attach disk --print libvirt)\n"},
	{&ctl_client_list, "xsegctl client list\n"},
	{&ctl_cache_list, "xsegctl cache list\n"},
	{&ctl_cache_stats, "xsegctl cache stats cache0 --volumes\n"},
	{&ctl_cache_mode, "xsegctl cache mode cache0 writethrough\n"
			  "xsegctl cache mode cache0 writeback --volume scratch --ack volatile\n"},
	{&ctl_cache_flush, "xsegctl cache flush cache0 --volume disk\n"},
	{&ctl_cache_drop, "xsegctl cache drop cache0\n"},
	{&ctl_cache_resize, "xsegctl cache resize cache0 512M\n"},
	{&ctl_cache_policy, "xsegctl cache policy cache0 lru\n"},
	{&ctl_volume_create, "xsegctl volume create disk --size 10G\n"
			     "xsegctl volume create vm1 --from debian-12 --size 40G\n"},
	{&ctl_volume_rm, "xsegctl volume rm disk --yes\n"},
	{&ctl_volume_list, "xsegctl volume list --json\n"
			   "xsegctl volume list --tree\n"},
	{&ctl_volume_info, "xsegctl volume info disk\n"},
	{&ctl_volume_clone, "xsegctl volume clone debian-12 vm1\n"
			    "xsegctl volume clone debian-12 vm2 --size 40G\n"},
	{&ctl_volume_snapshot,
		"xsegctl volume snapshot disk@monday\n"
		"xsegctl volume snapshot disk@monday --freeze 'virsh domfsfreeze vm1' "
		"--thaw 'virsh domfsthaw vm1'\n"},
	{&ctl_volume_rollback, "xsegctl volume rollback disk@monday --yes\n"},
	{&ctl_volume_resize, "xsegctl volume resize disk 20G\n"
			     "xsegctl volume resize disk 5G --dry-run\n"},
	{&ctl_volume_rename, "xsegctl volume rename disk old-disk\n"},
	{&ctl_volume_protect, "xsegctl volume protect debian-12\n"},
	{&ctl_volume_unprotect, "xsegctl volume unprotect debian-12\n"},
	{&ctl_volume_flatten, "xsegctl volume flatten vm1 --progress=plain\n"
			      "xsegctl volume flatten vm1 --detach\n"},
	{&ctl_volume_diff, "xsegctl volume diff disk@monday disk@tuesday --json\n"},
	{&ctl_volume_limit, "xsegctl volume limit vm1 --iops 2000 --bandwidth 200M --burst 2s\n"
			    "xsegctl volume limit vm1 --iops 0\n"},
	{&ctl_volume_break, "xsegctl volume break-lock disk --dry-run\n"
			    "xsegctl volume break-lock disk --yes\n"},
	{&ctl_volume_gc, "xsegctl volume gc --rate 500\n"
			 "xsegctl volume gc --wait\n"},
	{&ctl_volume_fsck, "xsegctl volume fsck\n"
			   "xsegctl volume fsck disk --repair\n"},
	{&ctl_import_verb, "xsegctl volume import debian.raw disk --progress=plain\n"
			   "xsegctl volume import debian.raw disk --detach\n"
			   "xsegctl volume import debian-12.qcow2 debian-12\n"
			   "xsegctl volume import debian-12.1.qcow2 debian-12.1 --base golden\n"
			   "zcat image.gz | xsegctl volume import - disk --size 10G\n"},
	{&ctl_export_verb,
		"xsegctl volume export disk disk.raw --yes\n"
		"xsegctl volume export disk@monday disk@monday.qcow2 --format qcow2\n"
		"xsegctl volume export disk@tuesday disk@tuesday.qcow2 --since disk@monday\n"
		"xsegctl volume export disk - | gzip >disk.gz\n"},
	{&ctl_config_check, "xsegctl config check demo.conf\n"},
	{&ctl_config_diff, "xsegctl config diff demo.conf\n"},
	{&ctl_config_apply, "xsegctl config apply demo.conf --dry-run\n"
			    "xsegctl config apply demo.conf\n"},
	{&ctl_config_save, "xsegctl config save demo.conf --yes\n"
			   "xsegctl config save\n"},
	{&ctl_job_list, "xsegctl job list --json\n"},
	{&ctl_job_show, "xsegctl job show 3\n"},
	{&ctl_job_wait, "xsegctl job wait 3 --progress=bar\n"},
	{&ctl_job_cancel, "xsegctl job cancel 3\n"},
	{&ctl_job_tidy, "xsegctl job tidy\n"},
	{&ctl_status_verb, "xsegctl status demo\n"},
	{&ctl_stats_verb, "xsegctl stats vol0 --json\n"
			  "xsegctl stats --watch 2s\n"
			  "xsegctl stats --volumes\n"},
	{&ctl_top_verb, "xsegctl top\n"
			"xsegctl top --batch -n 60 --json\n"},
	{&ctl_trace_verb, "xsegctl trace --slow 100ms\n"
			  "xsegctl trace --peer mem0 --count 20 --json\n"},
	{&ctl_events_verb, "xsegctl events --since 12h --event peer_died\n"
			   "xsegctl events --follow\n"},
	{&ctl_log_level, "xsegctl log level vol0 debug\n"
			 "xsegctl log level vol0 default\n"},
	{&ctl_metrics_verb, "xsegctl metrics >skerry.prom\n"
			    "xsegctl metrics --listen tcp:127.0.0.1:9464\n"},
	{&ctl_completion_verb, "xsegctl completion bash >/etc/bash_completion.d/xsegctl\n"
			       "xsegctl completion zsh >~/.zfunc/_xsegctl\n"},
};

const char *ctl_example_print(const struct ctl_verb *verb)
{
	for (size_t i = 0; i < countof(examples); i++)
		if (examples[i].verb == verb)
			return examples[i].text;
	return NULL;
}
