package report

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/record"
)

// carriedRun is a run that actions kept inside its limit.
func carriedRun() *record.Run {
	s := scene{
		job: inJob(), limits: []event.Limit{limitJob, limitStepd}, length: minutes, sizes: []rss.Bytes{mem, mem},
		used: func(at time.Duration) []rss.Bytes {
			saw := float64(at%(2*time.Minute)) / float64(2*time.Minute)
			return []rss.Bytes{mem.Scale(0.5 + 0.45*saw), mem.Scale(0.3 + 0.1*saw)}
		},
	}
	s.maps = func(at time.Duration) int { return 20000 + int(at/time.Second) }
	for i := range 5 {
		at := time.Duration(i+1) * 2 * time.Minute
		id := uint64(2*i + 1)
		s.events = append(s.events,
			record.Entry{At: at - 20*time.Second, Name: event.NameDecision, Value: &event.Decision{ID: id, Rule: "80%:warn", Limit: event.LimitCgroup, Action: event.ActionWarn, Used: mem.Scale(0.8), LimitSize: mem}},
			record.Entry{At: at - 2*time.Second, Name: event.NameDecision, Value: &event.Decision{ID: id + 1, Rule: "90%:recycle", Limit: event.LimitCgroup, Action: event.ActionRecycle, Used: mem.Scale(0.94), LimitSize: mem}},
		)
		o := &event.Outcome{Decision: id + 1, OK: i != 3, Freed: 1200 * rss.MiB, Duration: 0.4, Paused: 0.014, PID: 702}
		if !o.OK {
			o.Freed, o.Paused, o.Reason = 0, 0, event.ReasonRecent
		}
		s.events = append(s.events, record.Entry{At: at - time.Second, Name: event.NameOutcome, Value: o})
	}
	code := 0
	sum, unreclaimable := 1000*rss.MiB, mem.Scale(0.951)
	s.events = append(s.events, record.Entry{At: minutes, Name: event.NameExit, Value: &event.Exit{
		By: "command", Code: &code, Verdict: event.VerdictCarried, Peaks: event.Peaks{RSS: &sum, Cgroup: &unreclaimable},
		Advice: mem, AdviceWhy: "peak 2.79 GiB (unreclaimable memory) of 2.93 GiB; enough with rsswarden, whose actions kept the job inside; without it more is needed, how much is not known",
	}})
	return s.run()
}

func find(t *testing.T, name string) dying {
	t.Helper()
	for _, d := range slices.Concat(deaths, sideDeaths) {
		if d.name == name {
			return d
		}
	}
	t.Fatalf("no death %q", name)
	return dying{}
}

// ranks are four tasks on two nodes of which one dies by the kernel's hand and
// the others of its end.
func ranks() []*record.Run {
	var out []*record.Run
	for task := range 4 {
		j := &record.Job{ID: "12", Step: "0", Task: task, Tasks: 4, Nodes: 2, End: noon.Add(time.Hour)}
		s := scene{job: j, limits: []event.Limit{limitJob}, length: minutes, sizes: []rss.Bytes{mem}, used: rising(minutes, mem, 0.2, 0.5+0.16*float64(task))}
		s.events = []record.Entry{signalled(minutes+2*time.Second, "SIGTERM"), exits(minutes+4*time.Second, "", 1)}
		if task == 3 {
			s.events = []record.Entry{exits(minutes+500*time.Millisecond, "SIGKILL", 0, kills(1)...)}
		}
		r := s.run()
		r.Meta.Node, r.Meta.ID = "n"+string('1'+rune(task/2)), "run"+string('0'+rune(task))
		out = append(out, r)
	}
	return out
}

func TestWriteTextColor(t *testing.T) {
	rep := build([]*record.Run{carriedRun()}, nil, noon)
	var plain, colored bytes.Buffer
	if err := WriteText(&plain, rep, 0, false); err != nil {
		t.Fatal(err)
	}
	if err := WriteText(&colored, rep, 0, true); err != nil {
		t.Fatal(err)
	}
	stripped := colored.String()
	for _, s := range []string{bold, dim, red, green, amber, "0"} {
		stripped = strings.ReplaceAll(stripped, "\x1b["+s+"m", "")
	}
	if diff := cmp.Diff(plain.String(), stripped); diff != "" {
		t.Errorf("color changes more than color:\n%s", diff)
	}
	if !strings.HasPrefix(colored.String(), "\x1b["+green+"m") {
		t.Errorf("the verdict has no color: %.40q", colored.String())
	}
}
