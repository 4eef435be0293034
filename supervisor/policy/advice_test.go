package policy

import (
	"strings"
	"testing"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
)

func TestAdvise(t *testing.T) {
	at := func(percent float64) *event.Limit { l := slurm(percent); return &l }
	const rung = 2400 * rss.MiB
	for _, c := range []struct {
		what    string
		run     Run
		verdict event.Verdict
		mem     string
		says    string
	}{
		{"much too large", Run{Binding: at(20), FirstRung: rung, Watched: true}, event.VerdictFine, "672M", "peak 600 MiB (summed RSS) of 2.93 GiB; the peak and 10 %"},
		{"nearly full", Run{Binding: at(82), FirstRung: rung, Watched: true}, event.VerdictTight, "2816M", "10 %"},
		{"carried by actions", Run{Binding: at(91), FirstRung: rung, Watched: true, Helped: 3, Skipped: 2}, event.VerdictCarried, "3000M", "without it more is needed, how much is not known"},
		{"carried by budgets alone", Run{Binding: at(70), FirstRung: rung, Watched: true, Trimmed: true}, event.VerdictCarried, "3000M", "enough with rsswarden"},
		{"as advised", Run{Binding: at(91), FirstRung: rung, Watched: true, Skipped: 2}, event.VerdictTight, "3G", "10 %"},
		{"nothing could help", Run{Binding: at(95), FirstRung: rung, Watched: true, Skipped: 1}, event.VerdictNoHelp, "3200M", "no action could help"},
		{"the kernel", Run{Binding: at(99), FirstRung: rung, Watched: true, OOMKills: 1, Killed: true, Helped: 1}, event.VerdictOOM, "4608M", "is a guess"},
		{"slurmstepd", Run{Binding: at(103), FirstRung: rung, Watched: true, Killed: true}, event.VerdictKilled, "5G", "is a guess"},
		{"another process", Run{Binding: at(30), FirstRung: rung, Watched: true, Killed: true}, event.VerdictKilled, "", "did not come from lack of memory"},
		{"perhaps the kernel", Run{Binding: at(30), FirstRung: rung, Watched: true, Killed: true, NodeKills: 2}, event.VerdictKilled, "", "OOM killer ended 2 processes on this node meanwhile"},
		{"perhaps the kernel, no limit", Run{Watched: true, Killed: true, NodeKills: 1}, event.VerdictKilled, "", "OOM killer ended 1 process on this node meanwhile"},
		{"perhaps the kernel, nothing used", Run{Watched: true, Binding: at(0), Killed: true, NodeKills: 1}, event.VerdictKilled, "", "OOM killer ended 1 process on this node meanwhile"},
		{"others' kills", Run{Watched: true, NodeKills: 1}, event.VerdictFine, "", "nothing can be said about --mem"},
		{"another cgroup", Run{Binding: inGroup(at(30)), FirstRung: rung, Watched: true, Elsewhere: map[string]rss.Bytes{"/g": 2 * rss.GiB}}, event.VerdictFine, "", "no --mem advice: 2.00 GiB or more of the tree was charged to another cgroup"},
		{"another cgroup than that", Run{Binding: inGroup(at(20)), FirstRung: rung, Watched: true, Elsewhere: map[string]rss.Bytes{"/h": 2 * rss.GiB}}, event.VerdictFine, "672M", "10 %"},
		{"our stop", Run{Binding: at(97), FirstRung: rung, Watched: true, Stopped: true, OOMKills: 1}, event.VerdictStopped, "4608M", "is a guess"},
		{"asked and ended", Run{Binding: at(94), FirstRung: rung, Watched: true, Asked: true, Failed: true, Helped: 1}, event.VerdictAsked, "4608M", "is a guess"},
		{"asked and went on", Run{Binding: at(94), FirstRung: rung, Watched: true, Asked: true, Skipped: 1}, event.VerdictAsked, "3200M", "a signal asked the trainer"},
		{"asked, then killed", Run{Binding: at(103), FirstRung: rung, Watched: true, Asked: true, Failed: true, Killed: true}, event.VerdictKilled, "5G", "is a guess"},
		{"slurmd, for all steps", Run{Binding: jobSum(129), JobSum: jobSum(129), FirstRung: rung, Watched: true, Failed: true, Cancelled: true}, event.VerdictKilled, "6G",
			"most likely slurmd cancelled the job (OverMemoryKill): peak 3.78 GiB (summed RSS, all steps of the job on this node) of 2.93 GiB"},
		{"slurmd, and the command ended well", Run{Binding: jobSum(101), JobSum: jobSum(101), FirstRung: rung, Watched: true, Helped: 2, Cancelled: true}, event.VerdictKilled, "4608M", "most likely slurmd cancelled"},
		{"a step with less than the job", Run{Binding: at(20), JobSum: jobSum(50), FirstRung: rung, Watched: true}, event.VerdictFine, "1664M", "all steps of the job had 1.46 GiB together"},
		{"over the job's sum, still there", Run{Binding: jobSum(105), JobSum: jobSum(105), FirstRung: rung, Watched: true}, event.VerdictNoHelp, "3584M", "no action could help"},
		{"half seen", Run{Binding: at(30), FirstRung: rung}, event.VerdictUnwatched, "", "the least it was"},
		{"led on", Run{Binding: at(30), FirstRung: rung, Heir: true}, event.VerdictUnwatched, "", "rsswarden report joins it"},
		{"no limit", Run{Watched: true}, event.VerdictFine, "", "no limit on the job's own memory was found"},
		{"nothing used", Run{Watched: true, Binding: at(0)}, event.VerdictFine, "", "nothing was seen to be used of the limit of 2.93 GiB"},
		{"a crash", Run{Binding: at(20), FirstRung: rung, Watched: true, Failed: true}, event.VerdictFine, "672M", "memory was fine, whatever ended the command: peak 600 MiB"},
		{"tiny", Run{Watched: true, Binding: at(0.1)}, event.VerdictFine, "64M", "10 %"},
	} {
		a := Advise(c.run)
		mem := ""
		if a.Mem > 0 {
			mem = MemArg(a.Mem)
		}
		if a.Verdict != c.verdict || mem != c.mem || !strings.Contains(a.Why, c.says) {
			t.Errorf("%s: %s, --mem=%s, %q; want %s, --mem=%s, … %q …", c.what, a.Verdict, mem, a.Why, c.verdict, c.mem, c.says)
		}
	}
}

// TestAdviceByWhoKills: with --limit, the --mem advised follows the accounting of what
// kills, whatever --accounting says and whichever is nearer.
func TestAdviceByWhoKills(t *testing.T) {
	own := event.Limit{Name: event.LimitUser, Accounting: event.AccountingPSS, Used: 900 * rss.MiB, Limit: rss.GiB}
	of := func(l event.Limit, enforcer string) *event.Limit { l.Enforcer = enforcer; return &l }
	group := slurm(50)
	group.Name, group.Accounting = event.LimitCgroup, event.AccountingCgroup
	for _, c := range []struct {
		what string
		run  Run
		mem  string
		says string
	}{
		{"slurmstepd", Run{Ends: of(slurm(50), "slurmstepd, by OverMemoryKill")}, "1664M",
			"peak 1.46 GiB (summed RSS, by which slurmstepd kills; --limit counts summed PSS) of 2.93 GiB; the peak and 10 % on top"},
		{"slurmstepd perhaps", Run{Ends: of(slurm(50), "slurmstepd perhaps, by OverMemoryKill")}, "1664M", "by which slurmstepd perhaps kills"},
		{"the kernel", Run{Ends: of(group, "kernel OOM killer")}, "1664M", "(unreclaimable memory, by which the kernel kills; --limit counts summed PSS)"},
		{"nothing kills", Run{}, "992M", "(summed PSS, as --limit counts; no limit that kills was found)"},
		{"carried", Run{Ends: of(slurm(50), "slurmstepd"), Helped: 1}, "3000M", "enough with rsswarden"},
		{"our stop", Run{Ends: of(slurm(50), "slurmstepd"), Stopped: true}, "2304M", "is a guess"},
		{"the kernel's kill", Run{Ends: of(group, "kernel OOM killer"), OOMKills: 1}, "4608M", "is a guess"},
		{"a kill from outside", Run{Ends: of(slurm(50), "slurmstepd"), EndsRung: 2400 * rss.MiB, FirstRung: 800 * rss.MiB, Killed: true}, "", "did not come from lack of memory"},
	} {
		c.run.Watched, c.run.Binding = true, &own
		a := Advise(c.run)
		mem := ""
		if a.Mem > 0 {
			mem = MemArg(a.Mem)
		}
		if mem != c.mem || !strings.Contains(a.Why, c.says) {
			t.Errorf("%s: --mem=%s, %q; want --mem=%s, … %q …", c.what, mem, a.Why, c.mem, c.says)
		}
	}
}

func TestAdviceNamesTheAccounting(t *testing.T) {
	for a, word := range map[event.Accounting]string{
		event.AccountingRSS: "summed RSS", event.AccountingPSS: "summed PSS", event.AccountingNoShared: "less shared",
		event.AccountingCgroup: "tasks' cgroups", event.AccountingVirtual: "virtual", "": "(use)",
	} {
		l := slurm(50)
		l.Accounting = a
		if got := Advise(Run{Watched: true, Binding: &l}).Why; !strings.Contains(got, word) {
			t.Errorf("%q: %q does not say %q", a, got, word)
		}
	}
}

func TestNeatMem(t *testing.T) {
	for in, want := range map[rss.Bytes]string{
		1: "1M", 15*rss.MiB + 1: "16M", 33 * rss.MiB: "34M", 690 * rss.MiB: "704M",
		3000 * rss.MiB: "3G", 3073 * rss.MiB: "3200M", 7 * rss.GiB: "7G", 101 * rss.GiB: "104G",
	} {
		if got := MemArg(NeatMem(in)); got != want {
			t.Errorf("%v becomes %s, want %s", in, got, want)
		}
		if NeatMem(NeatMem(in)) != NeatMem(in) {
			t.Errorf("%v is not neat", NeatMem(in))
		}
	}
	if got := MemArg(GuessMem(3073 * rss.MiB)); got != "3328M" {
		t.Errorf("a guess of 3073 MiB becomes %s", got)
	}
	if got := MemArg(rss.GiB + 1); got != "1025M" {
		t.Errorf("MemArg rounds 1 GiB + 1 to %s", got)
	}
}

// inGroup makes a limit one of a cgroup.
func inGroup(l *event.Limit) *event.Limit {
	l.Name, l.Accounting, l.Level = event.LimitCgroup, event.AccountingCgroup, "/g"
	return l
}

// jobSum is slurmd's limit on all steps of the job.
func jobSum(percent float64) *event.Limit {
	l := slurm(percent)
	l.Scope, l.Enforcer = event.ScopeJob, "slurmd, by OverMemoryKill, at each ping"
	return &l
}
