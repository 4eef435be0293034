package report

import (
	"bytes"
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

// inTurn are ranks of one node that each lead for a minute under one --limit of 1 GiB
// and then end, the first with the highest peak: 400 MiB, and less by 50 MiB each. Who
// took over calls its run unwatched, as it was not there from the start.
func inTurn(ranks int) (runs []*record.Run) {
	for n := range ranks {
		d := recordtest.Ranks{
			Node: "n1", Nodes: 1, Tasks: ranks, First: n, Count: ranks - n, Leader: n, Start: noon, User: true, Limit: rss.GiB,
			From: time.Duration(n)*time.Minute + time.Second, To: time.Duration(n+1) * time.Minute,
			Share: func(time.Duration) float64 { return float64(400-50*n) / 1024 },
			Exit:  recordtest.Ended(0, "", event.VerdictUnwatched),
		}
		if n == 0 {
			d.From, d.Exit = 0, recordtest.Ended(0, "", event.VerdictFine)
		}
		runs = append(runs, d.Run())
	}
	return runs
}

// TestAdviseInTurn: what leaders had one after the other is not added up, and neither is
// their one limit; what two had at the same time, each under its own, is. A part of the
// job that is in no record leaves open what it needs.
func TestAdviseInTurn(t *testing.T) {
	least := func(runs ...*record.Run) []*record.Run { return runs }
	six := inTurn(6)
	others := inTurn(3)
	for i, r := range others {
		r.Meta.Command = []string{"sleep", fmt.Sprint(i)}
	}
	carried := inTurn(2)
	carried[1].Events = append([]record.Entry{
		{At: 70 * time.Second, Name: event.NameDecision, Value: &event.Decision{ID: 1, Rule: "85%:trim", Action: event.ActionTrim, Limit: event.LimitUser}},
		{At: 71 * time.Second, Name: event.NameOutcome, Value: &event.Outcome{Decision: 1, OK: true, Freed: rss.MiB}},
	}, carried[1].Events...)
	failed := inTurn(2)
	failed[1].Exit().Code = new(int)
	*failed[1].Exit().Code = 3
	other := recordtest.Ranks{
		Node: "n1", Nodes: 1, Tasks: 2, First: 1, Count: 1, Leader: 1, Start: noon, User: true, Limit: rss.GiB, To: time.Minute,
		Share: func(time.Duration) float64 { return 0.25 }, Exit: recordtest.Ended(0, "", event.VerdictFine),
	}.Run()
	for _, test := range []struct {
		name string
		runs []*record.Run
		line string
		says string
	}{
		{"one", inTurn(1), "#SBATCH --mem=448M", "400 MiB"},
		{"two", inTurn(2), "#SBATCH --mem=448M", "peak 400 MiB (summed RSS, as --limit counts; no limit that kills was found) of 1.00 GiB; the peak and 10 % on top"},
		{"six", six, "#SBATCH --mem=448M", "peak 400 MiB (summed RSS, as --limit counts; no limit that kills was found) of 1.00 GiB"},
		{"six, read in another order", least(six[4], six[0], six[5], six[2], six[1], six[3]), "#SBATCH --mem=448M", "peak 400 MiB (summed RSS, as --limit counts; no limit that kills was found) of 1.00 GiB"},
		{"each with another command", others, "#SBATCH --mem=448M", "peak 400 MiB (summed RSS, as --limit counts; no limit that kills was found) of 1.00 GiB"},
		{"two at the same time", least(inTurn(1)[0], other), "#SBATCH --mem=736M", "peak 656 MiB (summed RSS, as --limit counts; no limit that kills was found) of 2.00 GiB"},
		{"the second is not there", least(six[0], six[2]), noMem, "the most was 400 MiB of 1.00 GiB (39 %), summed RSS, and the watcher was not there for all of the run"},
		{"the first is not there", inTurn(2)[1:], noMem, "peak 350 MiB (summed RSS, as --limit counts; no limit that kills was found) of 1.00 GiB is the least it was"},
		{"the second was carried", carried, noMem, "enough with rsswarden"},
		{"the second failed", failed, noMem, "the most was 400 MiB of 1.00 GiB (39 %), summed RSS, and it ended with exit status 3"},
	} {
		lines := Advise(test.runs)
		if len(lines) != 1 || lines[0].Line != test.line || !strings.Contains(lines[0].Why, test.says) {
			t.Errorf("%s: %+v", test.name, lines)
		}
	}
}

// TestSuccessions: of two meeting places on one node each leader goes on from the one
// of its own.
func TestSuccessions(t *testing.T) {
	at := func(minutes int) time.Time { return noon.Add(time.Duration(minutes) * time.Minute) }
	rank := func(task int) rankKey { return rankKey{step: "0", task: task} }
	led := func(began, ended int, tasks ...int) tenure {
		x := tenure{node: "n1", start: noon, began: at(began), ended: at(ended)}
		for _, task := range tasks {
			x.ranks = append(x.ranks, rank(task))
		}
		return x
	}
	got := successions([]tenure{led(6, 9, 3), led(0, 5, 0, 2), led(0, 5, 1, 3), led(6, 9, 2), led(0, 9, 7)})
	if want := []int{2, -1, -1, 1, -1}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// TestHolderKilled: where a leader's holder was killed its rank is not said to have
// ended, nor how: the command may run on.
func TestHolderKilled(t *testing.T) {
	runs := inTurn(2)
	e := runs[0].Exit()
	e.Code, e.Verdict = nil, event.VerdictUnwatched
	rep := build(runs, nil, noon)
	if len(rep.Leads) != 1 || !rep.Leads[0].Lost || !strings.Contains(leadSentence(&rep.Leads[0]), "task 0, whose watcher was gone, to step 0, task 1") {
		t.Errorf("leads %+v", rep.Leads)
	}
	if want := "n1, step 0, task 0: most likely somebody's SIGKILL ended rsswarden's holder at 12:01:00"; !strings.HasPrefix(rep.Verdict, want) {
		t.Errorf("%s", rep.Verdict)
	}
	if text := strings.Join(rep.Evidence, "\n"); !strings.Contains(text, "12:01:00.0: rsswarden's holder was gone; how the command ended, or whether it did, nobody saw") {
		t.Errorf("%s", text)
	}
	if rep.Ranks[0].Code != nil || !rep.Ranks[0].End.IsZero() {
		t.Errorf("%+v", rep.Ranks[0])
	}
	if l := Advise(runs)[0]; l.Line != noMem || !strings.Contains(l.Why, "the watcher was not there for all of the run") {
		t.Errorf("%+v", l)
	}
}

// ledTwice are two ranks of one node: task 0 leads a minute until its watcher is
// killed, task 1 leads two minutes and ends, and then task 0 leads again.
func ledTwice(t *testing.T) (twice, between *record.Run) {
	d := recordtest.Ranks{
		Node: "n1", Nodes: 1, Tasks: 2, First: 0, Count: 2, Start: noon, User: true, Limit: rss.GiB, To: time.Minute,
		Share: func(time.Duration) float64 { return 0.4 },
	}
	again, other := d, d
	again.Count, again.From, again.To = 1, 3*time.Minute+time.Second, 4*time.Minute
	again.Share = func(time.Duration) float64 { return 0.2 }
	again.Exit = recordtest.Ended(0, "", event.VerdictUnwatched)
	other.Leader, other.From, other.To = 1, time.Minute+500*time.Millisecond, 3*time.Minute
	other.Share = func(time.Duration) float64 { return 0.3 }
	other.Exit = recordtest.Ended(0, "", event.VerdictUnwatched)
	twice, ok := record.Join([]*record.Run{d.Run(), again.Run()})
	if !ok {
		t.Fatal("not joined")
	}
	return twice, other.Run()
}

// TestLedTwice: of a rank that led twice each time is told, with who led between, and
// its end.
func TestLedTwice(t *testing.T) {
	twice, between := ledTwice(t)
	for _, runs := range [][]*record.Run{{twice, between}, {between, twice}} {
		rep, line := build(runs, nil, noon), series(runs)
		var leads []string
		for i := range rep.Leads {
			leads = append(leads, leadSentence(&rep.Leads[i]))
		}
		if diff := cmp.Diff([]string{
			"on n1 the lead went from step 0, task 0, whose watcher was gone, to step 0, task 1 at 12:01:00; nothing was recorded there for 500 ms",
			"on n1 the lead went from step 0, task 1, whose rank had ended, to step 0, task 0 at 12:03:01; nothing was recorded there for 1 s",
		}, leads); diff != "" {
			t.Error(diff)
		}
		if want := "both ranks on 1 node ended with exit status 0; n1 came nearest to its limit, user, with 410 MiB of 1.00 GiB (40 %)"; rep.Verdict != want {
			t.Errorf("%s", rep.Verdict)
		}
		if len(rep.Runs) != 2 || len(rep.Nodes[0].Runs) != 2 || rep.Runs[0].Code == nil || rep.Runs[0].Samples != 61+60 || !rep.Runs[0].End.Equal(noon.Add(4*time.Minute)) {
			t.Errorf("%+v", rep.Runs)
		}
		if l := Advise(runs)[0]; l.Line != "#SBATCH --mem=464M" || !strings.Contains(l.Why, "peak 410 MiB (summed RSS, as --limit counts; no limit that kills was found) of 1.00 GiB") {
			t.Errorf("%+v", l)
		}
		if len(line.Runs) != 1 || line.Length != 4*time.Minute {
			t.Errorf("%d charts of %v", len(line.Runs), line.Length)
		}
	}
	if rep := build([]*record.Run{twice}, nil, noon); len(rep.Leads) != 0 || len(rep.Runs) != 1 {
		t.Errorf("alone: %+v", rep.Leads)
	}
}

// TestLimitsInTurn: the one limit of leaders that followed each other is told once, over
// all of the time; of two at the same time each says whose it is.
func TestLimitsInTurn(t *testing.T) {
	twice, between := ledTwice(t)
	other := recordtest.Ranks{
		Node: "n1", Nodes: 1, Tasks: 3, First: 2, Count: 1, Leader: 2, Start: noon, User: true, Limit: rss.GiB, To: 4 * time.Minute,
		Share: func(time.Duration) float64 { return 0.25 }, Exit: recordtest.Ended(0, "", event.VerdictFine),
	}.Run()
	section := func(runs ...*record.Run) string {
		rep, line := build(runs, nil, noon), series(runs)
		var b bytes.Buffer
		if err := WriteText(&b, rep, 80, false); err != nil {
			t.Fatal(err)
		}
		page, _ := writeBoth(t, rep, &line)
		_, rows, _ := strings.Cut(page, `id="limits"`)
		rows, _, _ = strings.Cut(rows, "</section>")
		text := b.String()
		_, text, _ = strings.Cut(text, "\nlimits\n")
		text, _, _ = strings.Cut(text, "\n\n")
		if n, want := strings.Count(rows, ">user<"), strings.Count(text, "  user, tree on n1"); n != want {
			t.Errorf("%d rows of the page, %d of the text", n, want)
		}
		return text
	}
	one := section(twice, between)
	if want := "  user, tree on n1   at most 410 MiB of 1.00 GiB (40 %) at 12:00:00\n" +
		"    our own rules act on summed RSS; limit from --limit\n" +
		"    " + strings.Repeat("▄", 10) + strings.Repeat("▃", 20) + strings.Repeat("▂", 10) + "  0 to 100 % over 4 min 00 s"; !strings.Contains(one, want) || strings.Count(one, "user, tree") != 1 {
		t.Errorf("%s", one)
	}
	two := section(twice, between, other)
	for _, want := range []string{"user, tree on n1, step 0, task 0, then 1 at most 410 MiB", "user, tree on n1, step 0, task 2 at most 256 MiB"} {
		if !strings.Contains(two, want) {
			t.Errorf("no %q in %s", want, two)
		}
	}
}
