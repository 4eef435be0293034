package report

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/record"
	"github.com/rsswarden/rsswarden/supervisor/record/recordtest"
)

// TestRankTrees: a process is its nearest rank's, however deep below it, with a PID
// that was used before too; what is rsswarden's own is nobody's.
func TestRankTrees(t *testing.T) {
	r := &record.Run{Meta: record.Meta{Holder: 10, Process: rss.ProcID{PID: 12}, Job: &record.Job{ID: "1", Step: "0", Task: 0}}}
	add := func(pid, parent int, start uint64, comm string) int {
		r.Procs = append(r.Procs, record.Proc{ID: rss.ProcID{PID: pid, Start: start}, Parent: parent, Comm: comm})
		return len(r.Procs) - 1
	}
	want := map[int]int{}
	want[add(10, 1, 1, "rsswarden")] = noRank
	want[add(11, 10, 2, "rsswarden")] = noRank
	want[add(12, 10, 2, "python")] = 0
	want[add(13, 12, 3, "worker")] = 0
	want[add(20, 1, 1, "rsswarden")] = noRank
	want[add(21, 20, 2, "rsswarden")] = noRank
	want[add(22, 20, 2, "sh")] = 1
	want[add(23, 22, 3, "python")] = 1
	want[add(24, 23, 9, "worker")] = 1
	want[add(23, 1, 50, "cron")] = noRank    // 23 again, of somebody else's
	want[add(25, 23, 60, "script")] = noRank // the second one's child
	want[add(26, 20, 9, "orphan")] = 1
	want[add(30, 31, 9, "a")] = noRank // a circle, in a damaged record
	want[add(31, 30, 9, "b")] = noRank
	r.Events = []record.Entry{{Value: &event.Rank{What: event.RankJoined, Task: 1, Step: "0", PID: 22, Holder: 20}}}
	got := ranksOf(r)
	for i, w := range want {
		if got.of[i] != w {
			t.Errorf("process %d (%s) is of rank %d, want %d", r.Procs[i].ID.PID, r.Procs[i].Comm, got.of[i], w)
		}
	}
}

// TestRanksOfOneRecord: ranks whose processes are counted beside the leader's tree
// have their sums too, and one node has a table of them.
func TestRanksOfOneRecord(t *testing.T) {
	for _, beside := range []bool{false, true} {
		d := onNode(1)
		d.Nodes, d.Beside = 1, beside
		rep := build(built(d), nil, noon)
		if len(rep.Ranks) != 2 || rep.Ranks[1].Peak == nil || *rep.Ranks[1].Peak < 2**rep.Ranks[0].Peak-rss.MiB || rep.Ranks[1].Workers != 2 || rep.Ranks[1].Comm != "python" {
			t.Errorf("beside %v: %+v", beside, rep.Ranks)
		}
		if rep.Clock.Note != "" || rep.Unrecorded != 0 || !strings.HasPrefix(rep.Verdict, "both ranks on 1 node ended with exit status 0; ") {
			t.Errorf("%q, %d: %s", rep.Clock.Note, rep.Unrecorded, rep.Verdict)
		}
	}
	if rep := build([]*record.Run{carriedRun()}, nil, noon); rep.Nodes != nil || rep.Ranks != nil || rep.Clock != nil || rep.told {
		t.Errorf("one run of one rank: %+v", rep.Together)
	}
}

// TestLostLeaders: what is said of a record that breaks off where another goes on.
func TestLostLeaders(t *testing.T) {
	lost := func(share float64, ended ...recordtest.RankEnd) []*record.Run {
		a, b := onNode(2), onNode(2)
		a.To, a.Exit, a.Ends, a.Share = 5*time.Minute, nil, nil, recordtest.Rising(5*time.Minute, 0.3, share)
		b.From, b.Leader, b.Ends = 5*time.Minute+time.Second, 3, ended
		b.Share = func(time.Duration) float64 { return 0.2 }
		return built(a, b)
	}
	for _, test := range []struct {
		name    string
		runs    []*record.Run
		cause   event.Cause
		verdict string
	}{
		{"its rank went on", lost(0.5, recordtest.RankEnd{Task: 2, At: minutes}), event.CauseEnded, "both ranks on 1 node with a record ended with exit status 0; n2 came nearest to its limit, cgroup, with 2.00 GiB of 4.00 GiB (50 %)"},
		{"its rank failed later", lost(0.5, recordtest.RankEnd{Task: 2, At: minutes - time.Minute, Code: 3}), event.CauseCrash, "n2, step 0, task 2: the command failed by itself: exit status 3"},
		{"killed with its rank, memory full", lost(0.97, recordtest.RankEnd{Task: 2, At: 5*time.Minute + time.Second, Signal: "SIGKILL"}), event.CauseKernelOOM, "n2, step 0, task 2: most likely killed by the kernel: cgroup"},
		{"killed with its rank, room left", lost(0.5, recordtest.RankEnd{Task: 2, At: 5*time.Minute + time.Second, Signal: "SIGKILL"}), event.CauseKilled, "n2, step 0, task 2: "},
		{"nobody knows of its rank", lost(0.5), event.CauseEnded, "1 of 2 ranks on 1 node with a record ended with exit status 0, how the other ended is not in the records"},
	} {
		t.Run(test.name, func(t *testing.T) {
			for _, runs := range [][]*record.Run{test.runs, {test.runs[1], test.runs[0]}} {
				rep := build(runs, nil, noon)
				if rep.Cause != test.cause || !strings.HasPrefix(rep.Verdict, test.verdict) {
					t.Errorf("%s: %s", rep.Cause, rep.Verdict)
				}
				if len(rep.Leads) != 1 || !rep.Leads[0].Lost || rep.Leads[0].From != 2 || rep.Leads[0].To != 3 || rep.Leads[0].Gap != 1 {
					t.Errorf("leads %+v", rep.Leads)
				}
			}
		})
	}
}

// TestLeadChanges: a rank that ended first hands over too; a step that comes later,
// another life and two populations at once do not.
func TestLeadChanges(t *testing.T) {
	ended, heir := onNode(2), onNode(2)
	ended.To, ended.Ends = 5*time.Minute, nil
	heir.From, heir.Leader, heir.Ends = 5*time.Minute+time.Second, 3, nil
	later := heir
	later.Step, later.Start, later.From = "1", noon.Add(6*time.Minute), 0
	again := heir
	again.Restart = 1
	beside := heir
	beside.From = 0
	for name, test := range map[string]struct {
		next recordtest.Ranks
		want string
	}{
		"a rank of the same step": {heir, "on n2 the lead went from step 0, task 2, whose rank had ended, to step 0, task 3 at 12:05:01; nothing was recorded there for 1 s"},
		"a later step":            {later, ""},
		"another life":            {again, ""},
		"at once":                 {beside, ""},
	} {
		rep := build(built(ended, test.next), nil, noon)
		var got []string
		for i := range rep.Leads {
			got = append(got, leadSentence(&rep.Leads[i]))
		}
		if s := strings.Join(got, "\n"); s != test.want {
			t.Errorf("%s: %q", name, s)
		}
	}
}

// TestFailedRank: the rank that failed is told, with what the limits stood at then,
// however long the others went on, and in a job that still runs.
func TestFailedRank(t *testing.T) {
	for _, live := range []bool{false, true} {
		d := onNode(2)
		d.Share = func(at time.Duration) float64 {
			if at <= 2*time.Minute {
				return recordtest.Rising(2*time.Minute, 0.3, 0.99)(at)
			}
			return 0.3
		}
		d.Ends = []recordtest.RankEnd{{Task: 3, At: 2 * time.Minute, Signal: "SIGKILL"}}
		if live {
			d.Exit = nil
		}
		runs := built(onNode(1), d)
		runs[1].Live = live
		rep := build(runs, nil, noon)
		if rep.Cause != event.CauseKernelOOM || !strings.HasPrefix(rep.Verdict, "n2, step 0, task 3: most likely killed by the kernel: cgroup") || !strings.Contains(rep.Verdict, "12:01:59") {
			t.Errorf("live %v: %s: %s", live, rep.Cause, rep.Verdict)
		}
		if b := rep.Binding; b == nil || b.Node != "n2" || !b.Decided || b.Task != 3 || b.RankRSS == 0 {
			t.Errorf("binding %+v", b)
		}
		if !slices.ContainsFunc(rep.Evidence, func(s string) bool {
			return strings.Contains(s, "step 0, task 3 (python, process 10302) ended with SIGKILL")
		}) {
			t.Errorf("evidence %q", rep.Evidence)
		}
	}
}

func TestClock(t *testing.T) {
	set := func(d recordtest.Ranks, start, mono time.Duration) *record.Run {
		d.Start, d.Mono = d.Start.Add(start), mono
		return d.Run()
	}
	said := saysNodes("n1", "n2")
	for _, test := range []struct {
		name   string
		runs   []*record.Run
		said   *SlurmSays
		basis  string
		spread float64 // negative for none
		behind float64 // of n1
		note   string
	}{
		{"together", []*record.Run{set(onNode(1), 0, 0), set(onNode(2), 300*time.Millisecond, 0)}, said, "wall", 0.3, 0, "within 300 ms by these"},
		{"far apart", []*record.Run{set(onNode(1), 0, 0), set(onNode(2), 40*time.Second, 0)}, said, "wall", 40, 0, "up to 40 s apart by these: the clocks differ, or tasks began late"},
		{"behind Slurm's", []*record.Run{set(onNode(1), -3*time.Second, 0), set(onNode(2), 0, 0)}, said, "wall", 3, 3, "on n1 rsswarden began 3 s before Slurm began the job"},
		{"a fraction is no skew", []*record.Run{set(onNode(1), -900*time.Millisecond, 0), set(onNode(2), 0, 0)}, said, "wall", 0.9, 0, "within 900 ms"},
		{"no step in common", []*record.Run{set(onNode(1), 0, 0), set(recordtest.Ranks{Step: "1", Node: "n2", Count: 1, Start: noon, To: minutes}, 0, 0)}, nil, "wall", -1, 0, "nothing in the records tells"},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := build(test.runs, test.said, noon).Clock
			spread := -1.0
			if c.Spread != nil {
				spread = *c.Spread
			}
			if c.Basis != test.basis || spread != test.spread || c.Behind["n1"] != test.behind || c.Behind["n2"] != 0 || !strings.Contains(c.Note, test.note) {
				t.Errorf("%+v", c)
			}
		})
	}
}

// TestOneClock: where the time of day was set between two records of one boot, the
// monotonic clock says how far apart they are; of other boots and other time
// namespaces it says nothing.
func TestOneClock(t *testing.T) {
	at := func(node, boot string, wall, mono time.Duration) *record.Run {
		return &record.Run{Meta: record.Meta{ID: fmt.Sprint(wall, mono), Node: node, BootID: boot, Start: noon.Add(wall), Mono: mono}}
	}
	for _, test := range []struct {
		name string
		runs []*record.Run
		want []time.Duration // starts
	}{
		{"set back by a minute between", []*record.Run{at("n1", "b", 0, time.Hour), at("n1", "b", -30*time.Second, time.Hour+30*time.Second)}, []time.Duration{-time.Minute, -30 * time.Second}},
		{"nothing set", []*record.Run{at("n1", "b", 0, time.Hour), at("n1", "b", 30*time.Second, time.Hour+30*time.Second)}, []time.Duration{0, 30 * time.Second}},
		{"another boot", []*record.Run{at("n1", "b", 0, time.Hour), at("n1", "c", 30*time.Second, time.Minute)}, []time.Duration{0, 30 * time.Second}},
		{"another node", []*record.Run{at("n1", "b", 0, time.Hour), at("n2", "b", 30*time.Second, time.Minute)}, []time.Duration{0, 30 * time.Second}},
		{"another time namespace", []*record.Run{at("n1", "b", 0, 100*time.Hour), at("n1", "b", 30*time.Second, time.Second)}, []time.Duration{0, 30 * time.Second}},
		{"not known", []*record.Run{at("n1", "b", 0, 0), at("n1", "b", 30*time.Second, time.Minute), nil}, []time.Duration{0, 30 * time.Second}},
	} {
		var got []time.Duration
		for _, r := range oneClock(test.runs) {
			if r != nil {
				got = append(got, r.Meta.Start.Sub(noon))
			}
		}
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%s: %s", test.name, diff)
		}
		if test.runs[0].Meta.Start != noon {
			t.Errorf("%s: the run itself was changed", test.name)
		}
	}
}

// TestAdviseNodes: --mem is for each node, so it is the fullest that counts, and a
// record that breaks off where another goes on hides nothing.
func TestAdviseNodes(t *testing.T) {
	for _, test := range []struct {
		name string
		runs []*record.Run
		line string
		has  string
	}{
		{"both ended well", built(onNode(2), onNode(1)), "#SBATCH --mem=3712M", "on n2, which needed most of 2 nodes"},
		{"the lead moved", leadMoved(), "#SBATCH --mem=3712M", "on n2, which needed most of 2 nodes"},
		{"n2 was killed", oomOnN2(), "#SBATCH --mem=6G", "on n2, which needed most of 2 nodes"},
		{"requeued with more", secondLife(), "#SBATCH --mem=5632M", "on n2, which needed most of 2 nodes"},
		{"64 nodes", sixtyFour(time.Minute), "#SBATCH --mem=68G", "on n41, which needed most of 64 nodes"},
	} {
		lines := Advise(test.runs)
		if len(lines) == 0 || lines[0].Line != test.line || !strings.Contains(lines[0].Evidence, test.has) {
			t.Errorf("%s: %+v", test.name, lines)
		}
	}
	failed := onNode(1)
	failed.Ends[0].Code = 1
	if l := Advise(built(failed))[0]; l.Mem == 0 || !strings.Contains(l.Why, "a rank failed, so what it would have needed later is not known") {
		t.Errorf("a rank failed: %+v", l)
	}
}
