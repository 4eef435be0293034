package main_test

import (
	"slices"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/slurm/slurmtest"
	"github.com/rsswarden/rsswarden/supervisor/event"
)

// Which limit kills, which counter is compared with it and who does it, for
// each way in which a site can have Slurm count memory. Rows are those of the
// table of Slurm's accountings that this project was designed by:
//
//	 1  v2, ConstrainRAMSpace                     not here: the memory controller is cgroup v1's; rows 7
//	 2  … with AllowedSwapSpace                   on v1
//	 3  … AllowedRAMSpace above 100               on v1, where nothing throttles; v2's memory.high not here
//	 4  … AllowedRAMSpace below 100               on v1
//	 5  … ConstrainSwapSpace alone                on v1
//	 6  v2, nothing constrained                   not here; 13 is the same on v1
//	 7  v1, ConstrainRAMSpace, and with swap
//	 8  --mem=0; 8b no memory in SelectTypeParameters
//	 9  OverMemoryKill, RSS;  10 NoShared, UsePss;  11 jobacct_gather/cgroup
//	12  VSizeFactor
//	13  nothing enforced;  13a no configuration to be read;  13b no Slurm
//	14  a limit that shrinks under a running job  Slurm 26.05's --mem-update not here: root lowers it
//	15  several steps on a node
//	16  ROCm's hipMalloc, which nothing charges   not here: no such hardware
//	A.3, A.4  --mem-per-cpu; srun --mem in a bigger job
//
// The layouts of v2 that are not here are text archives in the tests of
// supervisor/limit and rss/cgroup.
type accounting struct {
	row  string
	mode slurmtest.Mode
	args string // of sbatch
	srun string // options of srun; rsswarden runs in that step
	env  string // put before rsswarden
	want []wanted
}

// wanted is one limit. used is what the counter must show of what hold.py
// takes in a job of its own: 120 MiB of memory, and two maps of one file of 60.
type wanted struct {
	name     event.LimitName
	scope    event.Scope
	acc      event.Accounting
	mib      rss.Bytes // 0: MemTotal, or nearly so
	enforcer string
	source   string // end of
	used     [2]rss.Bytes
}

var (
	usedRSS      = [2]rss.Bytes{240, 290}
	usedPSS      = [2]rss.Bytes{180, 225}
	usedNoShared = [2]rss.Bytes{120, 155}
	usedCgroup   = [2]rss.Bytes{120, 165}
	usedAny      = [2]rss.Bytes{1, 1 << 30}
)

// stepd is a limit that slurmstepd holds the step to.
func stepd(acc event.Accounting, mib rss.Bytes, used [2]rss.Bytes) wanted {
	return wanted{event.LimitSlurm, event.ScopeStep, acc, mib, "slurmstepd, by OverMemoryKill", "RLIMIT_RSS", used}
}

// kernel are the limits of the job's and the step's cgroup.
func kernel(job, step rss.Bytes) []wanted {
	const end = "/memory.limit_in_bytes"
	return []wanted{
		{event.LimitCgroup, event.ScopeJob, event.AccountingCgroup, job, "kernel OOM killer", end, usedCgroup},
		{event.LimitCgroup, event.ScopeStep, event.AccountingCgroup, step, "kernel OOM killer", "/step_batch" + end, usedCgroup},
	}
}

var node = wanted{event.LimitNode, event.ScopeNode, "", 0, "kernel OOM killer of the node", "meminfo: MemTotal", usedAny}

// blind hides everything that tells what Slurm does.
const blind = "env SLURM_CONF=/nonexistent PATH=/nonexistent"

func accountings() []accounting {
	rssKills := stepd(event.AccountingRSS, 400, usedRSS)
	perhaps := func(w wanted) wanted { w.enforcer = "slurmstepd perhaps, by OverMemoryKill"; return w }
	inStep := func(w []wanted, step string) []wanted {
		w[1].source = "/step_" + step + "/memory.limit_in_bytes"
		return w
	}
	virtual := stepd(event.AccountingVirtual, 4000, usedAny)
	virtual.source = "RLIMIT_RSS times VSizeFactor=400 %"
	anon := stepd(event.AccountingCgroup, 400, usedCgroup)
	return []accounting{
		{"9", slurmtest.Linux, "--mem=400", "", "", []wanted{rssKills, node}},
		{"A.3", slurmtest.Linux, "--mem-per-cpu=200 -c2", "", "", []wanted{rssKills, node}},
		{"A.4", slurmtest.Linux, "--mem=900", "--mem=400", "", []wanted{rssKills, node}},
		{"8", slurmtest.Linux, "--mem=0", "", "", []wanted{node, stepd(event.AccountingRSS, 0, usedRSS)}},
		{"13a", slurmtest.Linux, "--mem=400", "", blind, []wanted{perhaps(rssKills), node}},
		{"10", slurmtest.LinuxPss, "--mem=400", "", "", []wanted{stepd(event.AccountingPSS, 400, usedPSS), node}},
		{"10", slurmtest.LinuxNoShared, "--mem=400", "", "", []wanted{stepd(event.AccountingNoShared, 400, usedNoShared), node}},
		{"12", slurmtest.LinuxVSize, "--mem=1000", "", "", []wanted{stepd(event.AccountingRSS, 1000, usedRSS), virtual, node}},
		{"13", slurmtest.LinuxOff, "--mem=400", "", "", []wanted{node}},
		{"8b", slurmtest.LinuxNoMemory, "--mem=400", "", "", []wanted{node}},
		{"11", slurmtest.CgroupKill, "--mem=400", "", "", []wanted{anon, node}},
		{"13a", slurmtest.CgroupKill, "--mem=400", "", blind, []wanted{perhaps(anon), node}},
		{"7", slurmtest.Cgroup, "--mem=400", "", "", kernel(400, 400)},
		{"A.3", slurmtest.Cgroup, "--mem-per-cpu=200 -c2", "", "", kernel(400, 400)},
		{"A.4", slurmtest.Cgroup, "--mem=900", "--mem=400", "", inStep(kernel(900, 400), "0")},
		{"8", slurmtest.Cgroup, "--mem=0", "", "", append(kernel(0, 0), node)},
		{"13a", slurmtest.Cgroup, "--mem=400", "", blind, kernel(400, 400)},
		{"7", slurmtest.CgroupSwap, "--mem=400", "", "", kernel(400, 400)},
		{"2", slurmtest.CgroupSwap50, "--mem=400", "", "", kernel(400, 400)},
		{"5", slurmtest.CgroupMemsw, "--mem=400", "", "", kernel(600, 600)},
		{"3", slurmtest.Cgroup150, "--mem=400", "", "", kernel(600, 600)},
		{"4", slurmtest.Cgroup50, "--mem=400", "", "", kernel(200, 200)},
		{"7", slurmtest.CgroupLinux, "--mem=400", "", "", kernel(400, 400)},
		{"8b", slurmtest.CgroupNoMem, "--mem=400", "", "", append(kernel(0, 0), node)},
	}
}

// firing is the order in which limits would fire at this use.
func firing(limits []event.Limit) bool {
	return slices.IsSortedFunc(limits, func(a, b event.Limit) int {
		switch x, y := a.UsedMax.Of(a.Limit), b.UsedMax.Of(b.Limit); {
		case x > y:
			return -1
		case x < y:
			return 1
		}
		return 0
	})
}
