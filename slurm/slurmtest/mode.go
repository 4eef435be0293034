package slurmtest

import (
	"bytes"
	"cmp"
	"embed"
	"maps"
	"os"
	"slices"
	"strings"
	"text/template"

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
	// Accounting keeps jobs in a slurmdbd of the cluster's own, so that sacct knows them.
	Accounting bool
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

// conf are slurm.conf and cgroup.conf of a cluster. Node names of its own give the cluster
// cgroups of its own, slurm_NAME, on builds with --enable-multiple-slurmd, as Debian's is: there
// %n is the node's name.
//
//go:embed slurm.conf cgroup.conf
var confFiles embed.FS

var conf = template.Must(template.ParseFS(confFiles, "*.conf"))

// writeConf writes the configuration of a cluster on a machine with so many CPUs.
func (c *Cluster) writeConf(host string, cpus int) error {
	s, o := modes[c.Mode], c.options
	type node struct {
		Name string
		Port int
	}
	var nodes []node
	for i, name := range c.nodes {
		nodes = append(nodes, node{name, c.ports[1+i]})
	}
	values := map[string]any{
		"Cluster": c.name, "Host": host, "Root": c.root, "Port": c.ports[0], "FirstJob": c.firstJob, "Nodes": nodes, "Names": strings.Join(c.nodes, ","),
		"CPUs": o.CPUs, "RealMemory": o.RealMemory, "Poll": o.Poll, "Conf": o.Conf, "CgroupConf": o.CgroupConf, "Cgroups": cgroupRoot,
		"Accounting": o.Accounting, "DBDPort": c.ports[1+len(nodes)], "Task": s.task, "Gather": s.gather, "Params": s.params, "NoMemory": s.noMemory, "VSize": s.vsize,
		"BindCPUs": o.Nodes*o.CPUs <= cpus, "RAM": s.ram, "Swap": s.swap, "AllowedSwap": s.allowedSwap, "AllowedRAM": cmp.Or(s.allowedRAM, 100),
	}
	for _, name := range []string{"slurm.conf", "cgroup.conf"} {
		var b bytes.Buffer
		if err := conf.ExecuteTemplate(&b, name, values); err != nil {
			return err
		}
		if err := os.WriteFile(c.path("etc/"+name), b.Bytes(), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// cgroupRoot is where the hierarchies of cgroup v1 are mounted.
const cgroupRoot = "/sys/fs/cgroup"

func hostname() (string, error) {
	name, err := os.Hostname()
	short, _, _ := strings.Cut(name, ".")
	return short, err
}
