package render

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/rsstest/golden"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/policy"
	"github.com/rsswarden/rsswarden/supervisor/record"
	"github.com/rsswarden/rsswarden/supervisor/record/recordtest"
	"github.com/rsswarden/rsswarden/supervisor/scenetest"
	values "github.com/rsswarden/rsswarden/supervisor/text"
	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

// advised is what advice is asked from: runs, or runs that are made, each 3 hours after the last.
type advised struct {
	what string
	made []scenetest.Made
	runs []*record.Run
}

// checkAdvice compares the advice on each with a file.
func checkAdvice(t *testing.T, path string, cases []advised) {
	t.Helper()
	said := ""
	for _, c := range cases {
		for i, m := range c.made {
			m.Start = time.Duration(i) * 3 * time.Hour
			c.runs = append(c.runs, m.Run())
		}
		said += "== " + c.what + "\n"
		for _, l := range Advise(c.runs) {
			if l.Evidence == "" || l.Mem != 0 && l.Line != "#SBATCH --mem="+policy.MemArg(l.Mem) && l.Line != "--limit "+policy.MemArg(l.Mem) {
				t.Errorf("%s: %+v", c.what, l)
			}
			said += fmt.Sprintf("%s\n    %s\n    %s\n", l.Line, l.Why, l.Evidence)
		}
	}
	golden.Check(t, path, said)
}

// TestAdviceOnLoaders: of a journal and of the seed, the post that this project began with,
// too.
func TestAdviceOnLoaders(t *testing.T) {
	usage := func(anon, file, shmem, pss func(x float64) float64) func(float64) record.Usage {
		return func(x float64) record.Usage {
			return record.Usage{Anon: scenetest.Gb(anon(x)), File: scenetest.Gb(file(x)), Shmem: scenetest.Gb(shmem(x)), PSS: scenetest.Gb(pss(x))}
		}
	}
	is := func(v float64) func(float64) float64 { return func(float64) float64 { return v } }
	rises := func(from, to float64) func(float64) float64 {
		return func(x float64) float64 { return from + (to-from)*x }
	}
	// levels is up after a tenth of the run.
	levels := func(to float64) func(float64) float64 { return func(x float64) float64 { return min(to, to*10*x) } }
	pss := func(size float64) event.Limit {
		l := scenetest.SlurmRSS(size)
		l.Accounting = event.AccountingPSS
		return l
	}
	fine, tight, oom := scenetest.Ended(0, event.RunOK), scenetest.Ended(0, event.RunTight), scenetest.KilledBy("SIGKILL", event.RunOOM)
	journal := scenetest.Made{Limit: scenetest.SlurmRSS(5.5), Workers: 4, Worker: scenetest.Steady(0.2, 0.8, 0), Exit: scenetest.Ended(0, event.RunTight)}
	checkAdvice(t, "testdata/advice_loader.txt", []advised{
		{what: "room for all", made: []scenetest.Made{{Limit: scenetest.SlurmRSS(16), Workers: 4, Worker: usage(is(0.2), is(0.8), is(0), is(0)), Exit: fine}}},
		{what: "four workers near the limit", made: []scenetest.Made{{Limit: scenetest.SlurmRSS(5.5), Workers: 4, Worker: usage(is(0.25), is(0.75), is(0), is(0)), Exit: tight}}},
		{what: "killed by the kernel", made: []scenetest.Made{{Limit: scenetest.CgroupLimit(4), Trainer: scenetest.Steady(1, 0, 0), Workers: 4, Worker: usage(rises(0.1, 0.75), is(0), is(0), is(0)), Exit: oom}}},
		{what: "the workers are not what is large", made: []scenetest.Made{{Limit: scenetest.SlurmRSS(9), Trainer: scenetest.Steady(8, 0, 0), Workers: 4, Worker: usage(is(0.1), is(0.02), is(0), is(0)), Exit: tight}}},
		{what: "one worker", made: []scenetest.Made{{Limit: scenetest.SlurmRSS(4), Trainer: scenetest.Steady(1, 0, 0), Workers: 1, Worker: usage(is(0.2), is(2.5), is(0), is(0)), Exit: tight}}},
		{what: "PSS not read", made: []scenetest.Made{{Limit: pss(2), Workers: 4, Worker: usage(is(0.2), is(0.8), is(0), is(0)), Used: func(float64) rss.Bytes { return scenetest.Gb(1.9) }, Exit: tight}}},
		{what: "mapped pages that grow on", made: []scenetest.Made{{Limit: scenetest.SlurmRSS(16), Workers: 4, Worker: usage(is(0.2), rises(0.2, 1.2), is(0), is(0)), Exit: fine}}},
		{what: "mapped pages that no limit counts", made: []scenetest.Made{{Limit: scenetest.CgroupLimit(16), Workers: 4, Worker: usage(is(0.2), rises(0.2, 1.2), is(0), is(0)), Used: func(float64) rss.Bytes { return scenetest.Gb(2) }, Exit: fine}}},
		{what: "mapped pages that level off", made: []scenetest.Made{{Limit: scenetest.SlurmRSS(16), Workers: 4, Worker: usage(is(0.2), levels(1.2), is(0), is(0)), Exit: fine}}},
		{what: "a leak", made: []scenetest.Made{{Limit: scenetest.CgroupLimit(16), Workers: 2, Worker: usage(rises(0.3, 2), is(0.2), is(0), is(0)), Exit: fine}}},
		{what: "workers that end with the epoch", made: []scenetest.Made{{Limit: scenetest.SlurmRSS(16), Workers: 4, Fresh: 5, Worker: usage(is(0.2), rises(0.2, 1.2), is(0), is(0)), Exit: fine}}},
		{what: "born with the trainer's memory", made: []scenetest.Made{{Limit: scenetest.SlurmRSS(16), Trainer: scenetest.Steady(2, 0, 0), Workers: 6, Worker: usage(is(1.9), is(0.1), is(0), is(0)), Exit: tight}}},
		{what: "born small", made: []scenetest.Made{{Limit: scenetest.SlurmRSS(16), Trainer: scenetest.Steady(2, 0, 0), Workers: 6, Worker: usage(is(0.9), is(1.1), is(0), is(0)), Exit: tight}}},
		{what: "too few samples", made: []scenetest.Made{{Limit: scenetest.SlurmRSS(16), Every: time.Hour, Workers: 4, Worker: usage(is(0.2), rises(0.2, 1.2), is(0), is(0)), Exit: fine}}},
		{what: "a journal", runs: []*record.Run{scenetest.AsJournal(t, journal.Run())}},
		{what: "the seed", runs: []*record.Run{recordtest.SeedRun()}},
	})
}

func TestAdviceOnMem(t *testing.T) {
	linear := func(from, to float64) func(float64) record.Usage {
		return func(x float64) record.Usage { return record.Usage{Anon: scenetest.Gb(from + (to-from)*x)} }
	}
	slows := func(x float64) record.Usage { return record.Usage{Anon: scenetest.Gb(4 - 2/(1+6*x))} }
	jumps := func(x float64) record.Usage {
		if x > 0.9 {
			return record.Usage{Anon: scenetest.Gb(5)}
		}
		return record.Usage{Anon: scenetest.Gb(4)}
	}
	user := event.Limit{Name: event.LimitUser, Scope: event.ScopeTree, Accounting: event.AccountingRSS, Limit: scenetest.Gb(4), LimitSource: "--limit"}
	died := func(id string, size float64) scenetest.Made {
		return scenetest.Made{ID: id, Limit: scenetest.SlurmRSS(size), Trainer: scenetest.Steady(size*0.99, 0, 0), Exit: scenetest.KilledBy("SIGKILL", event.RunKilled)}
	}
	saved := func(id string, size float64) scenetest.Made {
		return scenetest.Made{ID: id, Limit: scenetest.SlurmRSS(size), Trainer: scenetest.Steady(size*0.9, 0, 0), Exit: scenetest.Ended(0, event.RunKept)}
	}
	term := []record.Entry{{At: 2*time.Hour - time.Minute, Name: event.NameSignal, Value: &event.Signal{Signal: "SIGTERM"}}}
	byHand := func(share float64) scenetest.Made {
		d := &event.Decision{ID: 1, Rule: event.AskedFor, By: 9, Action: event.ActionTrim, Limit: event.LimitSlurm, Used: scenetest.Gb(8 * share), LimitSize: scenetest.Gb(8)}
		return scenetest.Made{Limit: scenetest.SlurmRSS(8), Trainer: scenetest.Steady(8*share, 0, 0), Exit: scenetest.Ended(0, map[bool]event.RunOutcome{false: event.RunOK, true: event.RunKept}[share > 0.85]), Events: []record.Entry{
			{At: time.Hour, Name: event.NameDecision, Value: d},
			{At: time.Hour + time.Second, Name: event.NameOutcome, Value: &event.Outcome{Decision: 1, OK: true, Freed: rss.GiB}},
		}}
	}
	node := event.Limit{Name: event.LimitNode, Scope: event.ScopeNode, Limit: scenetest.Gb(64)}
	whoKills := scenetest.Made{ID: "a", Limit: scenetest.SlurmRSS(8), Trainer: scenetest.Steady(4, 0, 0), Exit: scenetest.Ended(0, event.RunOK)}.Run()
	whoKills.Exit().Binding = &event.Limit{Name: event.LimitUser, Scope: event.ScopeTree, Accounting: event.AccountingPSS, Used: scenetest.Gb(1.9), Limit: scenetest.Gb(2)}
	checkAdvice(t, "testdata/advice_mem.txt", []advised{
		{what: "one clean run", made: []scenetest.Made{{Limit: scenetest.SlurmRSS(8), Trainer: scenetest.Steady(4, 0, 0), Exit: scenetest.Ended(0, event.RunOK)}}},
		{what: "one that grows on", made: []scenetest.Made{{Limit: scenetest.SlurmRSS(8), Trainer: linear(2, 4), Exit: scenetest.Ended(0, event.RunOK)}}},
		{what: "a short one that grows on", made: []scenetest.Made{{Limit: scenetest.SlurmRSS(8), Lasts: 5 * time.Minute, Trainer: linear(2, 4), Exit: scenetest.Ended(0, event.RunOK)}}},
		{what: "one that slows down", made: []scenetest.Made{{Limit: scenetest.SlurmRSS(8), Trainer: slows, Exit: scenetest.Ended(0, event.RunOK)}}},
		{what: "a jump at the end", made: []scenetest.Made{{Limit: scenetest.SlurmRSS(8), Trainer: jumps, Exit: scenetest.Ended(0, event.RunOK)}}},
		{what: "killed by its limit", made: []scenetest.Made{died("a", 4)}},
		{what: "the kernel", made: []scenetest.Made{{Limit: scenetest.CgroupLimit(4), Trainer: scenetest.Steady(4, 0, 0), Exit: scenetest.KilledBy("SIGKILL", event.RunOOM)}}},
		{what: "no exit event, and full", made: []scenetest.Made{{Limit: scenetest.SlurmRSS(4), Trainer: scenetest.Steady(3.9, 0, 0)}}},
		{what: "no exit event, full, after SIGTERM", made: []scenetest.Made{{Limit: scenetest.SlurmRSS(4), Trainer: scenetest.Steady(3.9, 0, 0), Events: term}}},
		{what: "no exit event, and room", made: []scenetest.Made{{Limit: scenetest.SlurmRSS(8), Trainer: scenetest.Steady(3.9, 0, 0)}}},
		{what: "still going on", made: []scenetest.Made{{Limit: scenetest.SlurmRSS(8), Trainer: scenetest.Steady(4, 0, 0), Live: true}}},
		{what: "crashed", made: []scenetest.Made{{Limit: scenetest.SlurmRSS(8), Trainer: scenetest.Steady(4, 0, 0), Exit: scenetest.Ended(1, event.RunFailed)}}},
		{what: "killed from outside", made: []scenetest.Made{{Limit: scenetest.SlurmRSS(8), Trainer: scenetest.Steady(4, 0, 0), Exit: scenetest.KilledBy("SIGKILL", event.RunKilled)}}},
		{what: "carried", made: []scenetest.Made{saved("a", 4)}},
		{what: "carried inside --limit", made: []scenetest.Made{{Limit: user, Trainer: scenetest.Steady(3.8, 0, 0), Exit: scenetest.Ended(0, event.RunKept)}}},
		{what: "trimmed by hand with room", made: []scenetest.Made{byHand(0.5)}},
		{what: "trimmed by hand where memory was short", made: []scenetest.Made{byHand(0.95)}},
		{what: "the node's limit alone", made: []scenetest.Made{{Limit: node, Trainer: scenetest.Steady(4, 0, 0), Exit: scenetest.Ended(0, event.RunOK)}}},
		{what: "nothing used", made: []scenetest.Made{{Limit: user, Trainer: scenetest.Steady(0, 0, 0), Exit: scenetest.Ended(0, event.RunOK)}}},
		{what: "no limit", made: []scenetest.Made{{Exit: scenetest.Ended(0, event.RunOK)}}},
		{what: "killed, then enough", made: []scenetest.Made{died("a", 4), {ID: "b", Limit: scenetest.SlurmRSS(6), Trainer: scenetest.Steady(4.5, 0, 0), Exit: scenetest.Ended(0, event.RunOK)}}},
		{what: "killed, then carried", made: []scenetest.Made{died("a", 4), saved("b", 4)}},
		{what: "killed, then carried at less", made: []scenetest.Made{died("a", 4), saved("b", 3)}},
		{what: "carried, then killed", made: []scenetest.Made{saved("a", 4), died("b", 5)}},
		{what: "carried, then enough without", made: []scenetest.Made{saved("a", 4), {ID: "b", Limit: scenetest.SlurmRSS(8), Trainer: scenetest.Steady(5, 0, 0), Exit: scenetest.Ended(0, event.RunOK)}}},
		{what: "none tells all", made: []scenetest.Made{{ID: "a", Limit: scenetest.SlurmRSS(8), Trainer: scenetest.Steady(4, 0, 0), Live: true}, {ID: "b", Limit: scenetest.SlurmRSS(8), Trainer: scenetest.Steady(3, 0, 0)}}},
		{what: "an early end that had more", made: []scenetest.Made{{ID: "a", Limit: scenetest.SlurmRSS(8), Trainer: scenetest.Steady(4, 0, 0), Exit: scenetest.Ended(0, event.RunOK)}, {ID: "b", Limit: scenetest.SlurmRSS(8), Trainer: scenetest.Steady(6, 0, 0), Exit: scenetest.Ended(1, event.RunFailed)}}},
		{what: "--limit came nearer than the limit that kills", runs: []*record.Run{whoKills}},
	})
}

// TestAdviceOnSeveralRuns: the greatest peak and 10 %, and more where peaks differ by more.
// Other scripts count as other runs, other arguments do not; ranks of a job are one observation,
// nodes do not add up. What the newest was found to do is named, until it is fixed.
func TestAdviceOnSeveralRuns(t *testing.T) {
	kinds, twice := scenetest.Alike(2, 2, 2), scenetest.Alike(4)
	kinds[0].Meta.Command = []string{"python", "train.py", "--lr", "1"}
	kinds[1].Meta.Command = []string{"python", "-u", "eval.py"}
	rank := func(id, node string, task int, peak float64, l event.Limit) *record.Run {
		return scenetest.Made{
			ID: id, Node: node, Job: &record.Job{ID: "7", Step: "0", Task: task}, Limit: l, Trainer: scenetest.Steady(peak, 0, 0),
			Exit: scenetest.Ended(0, event.RunOK),
		}.Run()
	}
	cgroup := scenetest.CgroupLimit(8)
	user := event.Limit{Name: event.LimitUser, Scope: event.ScopeTree, Accounting: event.AccountingRSS, Limit: scenetest.Gb(4), LimitSource: "--limit"}
	found, fixed := scenetest.GrownScene().Run(), scenetest.GrownScene()
	fixed.Job.ID = "13"
	fixed.Events = fixed.Events[len(fixed.Events)-1:]
	later := fixed.Run()
	later.Meta.ID, later.Meta.Start = "later", scenetest.Noon.Add(time.Hour)
	checkAdvice(t, "testdata/advice_several.txt", []advised{
		{what: "two alike", runs: scenetest.Alike(4, 4)},
		{what: "nothing used", runs: scenetest.Alike(0.001, 0.001)},
		{what: "five nearly alike", runs: scenetest.Alike(4, 4.01, 3.99, 4, 4.02)},
		{what: "five that differ", runs: scenetest.Alike(4, 4.4, 3.8, 4.1, 4.2)},
		{what: "two that have little in common", runs: scenetest.Alike(2, 4)},
		{what: "kinds", runs: kinds},
		{what: "ranks under one limit", runs: []*record.Run{rank("a", "n1", 0, 2, cgroup), rank("b", "n1", 1, 2, cgroup), rank("c", "n2", 2, 3, cgroup)}},
		{what: "ranks with a limit each", runs: []*record.Run{rank("a", "n1", 0, 2, user), rank("b", "n1", 1, 2, user)}},
		{what: "one that was read twice", runs: append(twice, twice[0])},
		{what: "no run"},
		{what: "something was found", runs: []*record.Run{found}},
		{what: "it was fixed since", runs: []*record.Run{found, later}},
	})
}

// TestAdviseNodes: --mem is for each node, so it is the fullest that counts, and a
// record that ends where another goes on hides nothing.
func TestAdviseNodes(t *testing.T) {
	failed := scenetest.OnNode(1)
	failed.Ends[0].Code = 1
	checkAdvice(t, "testdata/advice_nodes.txt", []advised{
		{what: "both ended well", runs: scenetest.Built(scenetest.OnNode(2), scenetest.OnNode(1))},
		{what: "the lead moved", runs: scenetest.LeadMoved()},
		{what: "n2 was killed", runs: scenetest.OomOnN2()},
		{what: "requeued with more", runs: scenetest.SecondAttempt()},
		{what: "64 nodes", runs: scenetest.SixtyFour(time.Minute)},
		{what: "a rank failed", runs: scenetest.Built(failed)},
	})
}

// TestAdviseInTurn: what leaders had one after the other is not added up, and neither is
// their one limit; what two had at the same time, each under its own, is. A part of the
// job that is in no record leaves open what it needs.
func TestAdviseInTurn(t *testing.T) {
	six := scenetest.InTurn(6)
	others := scenetest.InTurn(3)
	for i, r := range others {
		r.Meta.Command = []string{"sleep", fmt.Sprint(i)}
	}
	carried := scenetest.InTurn(2)
	carried[1].Events = append([]record.Entry{
		{At: 70 * time.Second, Name: event.NameDecision, Value: &event.Decision{ID: 1, Rule: "85%:trim", Action: event.ActionTrim, Limit: event.LimitUser}},
		{At: 71 * time.Second, Name: event.NameOutcome, Value: &event.Outcome{Decision: 1, OK: true, Freed: rss.MiB}},
	}, carried[1].Events...)
	carried[1].Exit().Outcome = event.RunKept
	failed := scenetest.InTurn(2)
	failed[1].Exit().Code = new(int)
	*failed[1].Exit().Code = 3
	other := recordtest.Ranks{
		Node: "n1", Nodes: 1, Tasks: 2, First: 1, Count: 1, Leader: 1, Start: scenetest.Noon, User: true, Limit: rss.GiB, To: time.Minute,
		Share: func(time.Duration) float64 { return 0.25 }, Exit: recordtest.Ended(0, "", event.RunOK),
	}.Run()
	checkAdvice(t, "testdata/advice_in_turn.txt", []advised{
		{what: "one", runs: scenetest.InTurn(1)},
		{what: "two", runs: scenetest.InTurn(2)},
		{what: "six", runs: six},
		{what: "six, read in another order", runs: []*record.Run{six[4], six[0], six[5], six[2], six[1], six[3]}},
		{what: "each with another command", runs: others},
		{what: "two at the same time", runs: []*record.Run{scenetest.InTurn(1)[0], other}},
		{what: "the second is not there", runs: []*record.Run{six[0], six[2]}},
		{what: "the first is not there", runs: scenetest.InTurn(2)[1:]},
		{what: "the second was kept under its limit", runs: carried},
		{what: "the second failed", runs: failed},
	})
}

// TestNotesOnce: what several ranks have in common is noted once, with how many they
// are, and not again where more went wrong behind it; a text of several lines is on one,
// in the text and on the page.
func TestNotesOnce(t *testing.T) {
	runs := scenetest.InTurn(4)
	for i, r := range runs {
		fault := func(text string) record.Entry {
			return record.Entry{At: time.Duration(i) * time.Minute, Name: event.NameFault, Value: &event.Fault{Part: "slurm", Error: text}}
		}
		r.Events = append([]record.Entry{fault("no slurm.conf"), fault("no slurm.conf\ncannot ask scontrol:\r\n\tno host\n")}, r.Events...)
		if i == 2 {
			r.Thinned = true
		}
	}
	rep := pageReport(runs...)
	want := []string{
		"4 ranks, the first n1, step 0, task 0: a part of rsswarden had stopped working: slurm: no slurm.conf; cannot ask scontrol: no host",
		"n1, step 0, task 2: old samples were thinned: one stands for 10 s or more, the fullest of them",
	}
	if diff := cmp.Diff(want, rep.Notes); diff != "" {
		t.Error(diff)
	}
	page, _ := writeBoth(t, rep)
	var text bytes.Buffer
	wardentest.NoError(t, Text(&text, rep, values.Style{}, true))
	if strings.Contains(page, "\uFFFD") || strings.Contains(text.String(), "\uFFFD") {
		t.Error("a line of ours broke off in what cannot be shown")
	}
}

// TestNotesOfOneRun: a warning about options when a run began is no failure of ours, and a
// training that the hook did not reach gives one note for each cause, for any number of
// processes.
func TestNotesOfOneRun(t *testing.T) {
	r := scenetest.Made{ID: "a", Limit: scenetest.SlurmRSS(8), Trainer: scenetest.Steady(4, 0, 0), Exit: scenetest.Ended(0, event.RunOK)}.Run()
	r.Events = append([]record.Entry{{Name: event.NameFault, Value: &event.Fault{Part: "start", Error: "--limit 900T can never act"}}}, r.Events...)
	for pid, why := range []string{"its environment", "its environment", "its namespace"} {
		r.Events = append(r.Events, record.Entry{Name: event.NameLoader, Value: &event.LoaderSaid{What: event.LoaderUnreached, PID: pid + 1, Reason: why}})
	}
	const unreached = "the loader hook did not reach a process that had loaded PyTorch, so its workers were not replaced, and not trimmed but by ptrace: "
	want := []string{"at the start: --limit 900T can never act", unreached + "its environment", unreached + "its namespace"}
	if diff := cmp.Diff(want, told([]*record.Run{r}, nil, scenetest.Noon).Notes); diff != "" {
		t.Error(diff)
	}
}
