package slurmtest

import (
	"fmt"
	"os"
	"strings"
)

// Mode is a way in which a site can have Slurm count and limit memory.
type Mode string

// The modes. Only the first four set OverMemoryKill.
const (
	Linux         Mode = "linux"          // slurmstepd kills on summed RSS
	LinuxPss      Mode = "linux-pss"      // … on summed PSS
	LinuxNoShared Mode = "linux-noshared" // … on summed RSS less shared pages
	CgroupKill    Mode = "cgroup-kill"    // … on the anonymous memory of the task's cgroup
	Cgroup        Mode = "cgroup"         // the kernel kills at the job's cgroup limit
	CgroupSwap    Mode = "cgroup-swap"    // as cgroup, with the swap limited too
)

// Modes lists every mode.
var Modes = []Mode{Linux, LinuxPss, LinuxNoShared, CgroupKill, Cgroup, CgroupSwap}

// settings are what the modes differ in.
type settings struct {
	task, gather, params string
	ram, swap            string
}

var modes = map[Mode]settings{
	Linux:         {"task/none", "jobacct_gather/linux", "OverMemoryKill", "no", "no"},
	LinuxPss:      {"task/none", "jobacct_gather/linux", "OverMemoryKill,UsePss", "no", "no"},
	LinuxNoShared: {"task/none", "jobacct_gather/linux", "OverMemoryKill,NoShared", "no", "no"},
	CgroupKill:    {"task/cgroup", "jobacct_gather/cgroup", "OverMemoryKill", "no", "no"},
	Cgroup:        {"task/cgroup", "jobacct_gather/cgroup", "", "yes", "no"},
	CgroupSwap:    {"task/cgroup", "jobacct_gather/cgroup", "", "yes", "yes"},
}

// Options change the cluster; the zero value is what most tests want.
type Options struct {
	// RealMemory is the memory of the node in MiB, 8000 if 0. It may be more
	// than the machine has.
	RealMemory int
	// CPUs is the number of CPUs of the node, at least 2; that of the machine
	// if 0.
	CPUs int
	// Poll is JobAcctGatherFrequency in seconds, 1 if 0.
	Poll int
	// Conf and CgroupConf are lines added to slurm.conf and cgroup.conf.
	Conf, CgroupConf string
	// User is whom jobs run as, nobody if empty.
	User string
}

func (o Options) withDefaults(cpus int) Options {
	if o.RealMemory == 0 {
		o.RealMemory = 8000
	}
	if o.CPUs == 0 {
		o.CPUs = max(cpus, 2)
	}
	if o.Poll == 0 {
		o.Poll = 1
	}
	if o.User == "" {
		o.User = "nobody"
	}
	return o
}

// slurmConf is the slurm.conf of the cluster. A node name of its own gives the
// cluster cgroups of its own, slurm_NAME, on builds with
// --enable-multiple-slurmd, as Debian's is.
func (c *Cluster) slurmConf(host string) string {
	s, o := modes[c.Mode], c.options
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	line("ClusterName=%s", c.node)
	line("SlurmctldHost=%s(127.0.0.1)", host)
	line("SlurmUser=root")
	line("SlurmdUser=root")
	line("AuthType=auth/munge")
	line("AuthInfo=socket=%s", c.path("munge/socket"))
	line("CredType=cred/munge")
	line("SlurmctldPort=%d", c.ports[0])
	line("SlurmdPort=%d", c.ports[1])
	line("SlurmctldPidFile=%s", c.path("slurmctld.pid"))
	line("SlurmdPidFile=%s", c.path("slurmd.pid"))
	line("SlurmctldLogFile=%s", c.path("log/slurmctld.log"))
	line("SlurmdLogFile=%s", c.path("log/slurmd.log"))
	line("StateSaveLocation=%s", c.path("state"))
	line("SlurmdSpoolDir=%s", c.path("spool"))
	line("SlurmctldDebug=info")
	line("SlurmdDebug=debug")
	line("SlurmdParameters=config_overrides")
	line("ProctrackType=proctrack/cgroup")
	line("TaskPlugin=%s", s.task)
	line("JobAcctGatherType=%s", s.gather)
	line("JobAcctGatherFrequency=task=%d", o.Poll)
	if s.params != "" {
		line("JobAcctGatherParams=%s", s.params)
	}
	line("SelectType=select/cons_tres")
	line("SelectTypeParameters=CR_Core_Memory")
	line("DefMemPerCPU=256")
	line("AccountingStorageType=accounting_storage/none")
	line("MpiDefault=none")
	line("SwitchType=switch/none")
	line("ReturnToService=2")
	line("SlurmctldTimeout=30")
	line("SlurmdTimeout=30")
	line("KillWait=5")
	line("MinJobAge=3600")
	line("FirstJobId=%d", c.firstJob)
	line("SchedulerParameters=batch_sched_delay=0,sched_min_interval=0,bf_interval=1")
	line("PropagateResourceLimits=NONE")
	line("MailProg=/bin/true")
	line("JobRequeue=1")
	if o.Conf != "" {
		line("%s", o.Conf)
	}
	line("NodeName=%s NodeHostname=%s NodeAddr=127.0.0.1 CPUs=%d RealMemory=%d State=UNKNOWN", c.node, host, o.CPUs, o.RealMemory)
	line("PartitionName=debug Nodes=%s Default=YES MaxTime=60 State=UP", c.node)
	return b.String()
}

func (c *Cluster) cgroupConf(cpus int) string {
	s := modes[c.Mode]
	cores := "yes"
	if c.options.CPUs > cpus {
		cores = "no"
	}
	return fmt.Sprintf(`CgroupPlugin=cgroup/v1
CgroupMountpoint=%s
CgroupAutomount=no
ConstrainCores=%s
ConstrainDevices=no
ConstrainRAMSpace=%s
ConstrainSwapSpace=%s
AllowedSwapSpace=0
AllowedRAMSpace=100
MinRAMSpace=30
%s
`, cgroupRoot, cores, s.ram, s.swap, c.options.CgroupConf)
}

// cgroupRoot is where the hierarchies of cgroup v1 are mounted.
const cgroupRoot = "/sys/fs/cgroup"

// controllers are those in which Slurm makes directories.
var controllers = []string{"freezer", "memory", "cpuset", "cpuacct", "devices"}

func hostname() (string, error) {
	name, err := os.Hostname()
	short, _, _ := strings.Cut(name, ".")
	return short, err
}
