package slurmtest

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/rsswarden/rsswarden/rss/rsstest/debian"
)

// Mode is a way in which a site can have Slurm count and limit memory.
type Mode string

// The modes. Those in whose line slurmstepd kills set OverMemoryKill.
const (
	Linux         Mode = "linux"           // slurmstepd kills on summed RSS
	LinuxPss      Mode = "linux-pss"       // … on summed PSS
	LinuxNoShared Mode = "linux-noshared"  // … on summed RSS less shared pages
	LinuxVSize    Mode = "linux-vsize"     // … on summed RSS, and on virtual memory above 4 times the limit
	LinuxOff      Mode = "linux-off"       // only the node's OOM killer kills
	LinuxNoMemory Mode = "linux-no-memory" // as linux, with no memory in SelectTypeParameters
	CgroupKill    Mode = "cgroup-kill"     // slurmstepd kills on the anonymous memory of the task's cgroup
	Cgroup        Mode = "cgroup"          // the kernel kills at the job's cgroup limit
	CgroupSwap    Mode = "cgroup-swap"     // as cgroup, with swap limited to none
	CgroupSwap50  Mode = "cgroup-swap-50"  // as cgroup, with swap limited to half of the memory
	CgroupMemsw   Mode = "cgroup-memsw"    // memory is not limited, memory and swap together are, to 1.5 times the memory
	Cgroup150     Mode = "cgroup-150"      // as cgroup, with AllowedRAMSpace=150
	Cgroup50      Mode = "cgroup-50"       // as cgroup, with AllowedRAMSpace=50
	CgroupLinux   Mode = "cgroup-linux"    // as cgroup, with jobacct_gather/linux, which kills nothing
	CgroupNoMem   Mode = "cgroup-no-mem"   // as cgroup, with no memory in SelectTypeParameters
)

// Modes lists every mode.
var Modes = slices.Sorted(maps.Keys(modes))

// InCgroups says whether each job is in a memory cgroup of its own.
func (m Mode) InCgroups() bool { return modes[m].task == taskCgroup }

// settings are what the modes differ in.
type settings struct {
	task, gather, params string
	ram, swap            bool // Constrain{RAM,Swap}Space
	allowedRAM           int  // AllowedRAMSpace in percent, 100 if 0
	allowedSwap          int  // AllowedSwapSpace in percent
	vsize                int  // VSizeFactor in percent, none if 0
	noMemory             bool // memory is no consumable resource
}

const (
	taskNone     = "task/none"
	taskCgroup   = "task/cgroup"
	gatherLinux  = "jobacct_gather/linux"
	gatherCgroup = "jobacct_gather/cgroup"
	overKill     = "OverMemoryKill"
)

var modes = map[Mode]settings{
	Linux:         {task: taskNone, gather: gatherLinux, params: overKill},
	LinuxPss:      {task: taskNone, gather: gatherLinux, params: overKill + ",UsePss"},
	LinuxNoShared: {task: taskNone, gather: gatherLinux, params: overKill + ",NoShared"},
	LinuxVSize:    {task: taskNone, gather: gatherLinux, params: overKill, vsize: 400},
	LinuxOff:      {task: taskNone, gather: gatherLinux},
	LinuxNoMemory: {task: taskNone, gather: gatherLinux, params: overKill, noMemory: true},
	CgroupKill:    {task: taskCgroup, gather: gatherCgroup, params: overKill},
	Cgroup:        {task: taskCgroup, gather: gatherCgroup, ram: true},
	CgroupSwap:    {task: taskCgroup, gather: gatherCgroup, ram: true, swap: true},
	CgroupSwap50:  {task: taskCgroup, gather: gatherCgroup, ram: true, swap: true, allowedSwap: 50},
	CgroupMemsw:   {task: taskCgroup, gather: gatherCgroup, swap: true, allowedSwap: 50},
	Cgroup150:     {task: taskCgroup, gather: gatherCgroup, ram: true, allowedRAM: 150},
	Cgroup50:      {task: taskCgroup, gather: gatherCgroup, ram: true, allowedRAM: 50},
	CgroupLinux:   {task: taskCgroup, gather: gatherLinux, ram: true},
	CgroupNoMem:   {task: taskCgroup, gather: gatherCgroup, ram: true, noMemory: true},
}

// Options change the cluster; the zero value is what most tests want.
type Options struct {
	// Nodes is how many nodes there are, each with a slurmd of its own on this
	// machine, 1 if 0. The other numbers are those of each.
	Nodes int
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
	// User is the account of jobs; empty means "nobody".
	User string
	// Suite takes Slurm, and with it all that jobs and commands run, from the
	// root of a suite (rss/rsstest/debian); from this machine if empty.
	Suite debian.Suite
}

// Usual is for tests that have no wish of their own: more than they take, so that the
// cluster is not started again for each.
var Usual = Options{Nodes: 2, CPUs: 16, RealMemory: 45000}

func (o Options) withDefaults(cpus int) Options {
	if o.Nodes == 0 {
		o.Nodes = 1
	}
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

// slurmConf is the slurm.conf of the cluster. Node names of its own give the
// cluster cgroups of its own, slurm_NAME, on builds with
// --enable-multiple-slurmd, as Debian's is: there %n is the node's name.
func (c *Cluster) slurmConf(host string) string {
	s, o := modes[c.Mode], c.options
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	line("ClusterName=%s", c.name)
	line("SlurmctldHost=%s(127.0.0.1)", host)
	line("SlurmUser=root")
	line("SlurmdUser=root")
	line("AuthType=auth/munge")
	line("AuthInfo=socket=%s", c.path("munge/socket"))
	line("CredType=cred/munge")
	line("SlurmctldPort=%d", c.ports[0])
	line("SlurmctldPidFile=%s", c.path("slurmctld.pid"))
	line("SlurmdPidFile=%s", c.path("slurmd.%n.pid"))
	line("SlurmctldLogFile=%s", c.path("log/slurmctld.log"))
	line("SlurmdLogFile=%s", c.path("log/"+logOf("%n")+".log"))
	line("StateSaveLocation=%s", c.path("state"))
	line("SlurmdSpoolDir=%s", c.path("spool/%n"))
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
	if s.noMemory {
		line("SelectTypeParameters=CR_Core")
	} else {
		line("SelectTypeParameters=CR_Core_Memory")
		line("DefMemPerCPU=256")
	}
	if s.vsize != 0 {
		line("VSizeFactor=%d", s.vsize)
	}
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
	for i, node := range c.nodes {
		line("NodeName=%s NodeHostname=%s NodeAddr=127.0.0.1 Port=%d CPUs=%d RealMemory=%d State=UNKNOWN",
			node, host, c.ports[1+i], o.CPUs, o.RealMemory)
	}
	line("PartitionName=debug Nodes=%s Default=YES MaxTime=60 State=UP", strings.Join(c.nodes, ","))
	return b.String()
}

func (c *Cluster) cgroupConf(cpus int) string {
	s := modes[c.Mode]
	return fmt.Sprintf(`CgroupPlugin=cgroup/v1
CgroupMountpoint=%s
ConstrainCores=%s
ConstrainDevices=no
ConstrainRAMSpace=%s
ConstrainSwapSpace=%s
AllowedSwapSpace=%d
AllowedRAMSpace=%d
MinRAMSpace=30
%s
`, cgroupRoot, yes(c.options.Nodes*c.options.CPUs <= cpus), yes(s.ram), yes(s.swap), s.allowedSwap, cmp.Or(s.allowedRAM, 100), c.options.CgroupConf)
}

func yes(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

// cgroupRoot is where the hierarchies of cgroup v1 are mounted.
const cgroupRoot = "/sys/fs/cgroup"

func hostname() (string, error) {
	name, err := os.Hostname()
	short, _, _ := strings.Cut(name, ".")
	return short, err
}
