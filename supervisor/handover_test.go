package supervisor

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/rsstest"
	"github.com/rsswarden/rsswarden/supervisor/alert"
	"github.com/rsswarden/rsswarden/supervisor/attach"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/hold"
	"github.com/rsswarden/rsswarden/supervisor/node"
	"github.com/rsswarden/rsswarden/supervisor/policy"
	"github.com/rsswarden/rsswarden/supervisor/population"
	"github.com/rsswarden/rsswarden/supervisor/record"
	"github.com/rsswarden/rsswarden/supervisor/tell"
	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

// twoUsing are the watchers of two ranks of one node with these rules, where RUNTIME
// is the folder that they meet below, each with a command of so much memory. The
// first leads and is opened, the second follows.
func twoUsing(t *testing.T, used rss.Bytes, rules ...string) (first, second *stand) {
	t.Helper()
	dir := runtimeDir(t)
	for i := range rules {
		rules[i] = strings.ReplaceAll(rules[i], "RUNTIME", dir)
	}
	first, second = leadAndFollow(t, dir, func(o *Options) { o.Settings.Rules = mustRules(rules...) })
	first.put(theCommand, theHolder, used, 0)
	second.put(theCommand, theHolder+500, used, 0)
	first.open(first.holder.begin)
	return first, second
}

// inherits has the lead fall to a stand when the other gives it up.
func (s *stand) inherits(from *stand) {
	s.t.Helper()
	from.pass(nil)
	s.takesOver()
	s.t.Cleanup(func() { s.pass(nil) })
	s.open(s.holder.begin)
}

// isGivenTheLead gives the lead to the follower, which does not lead yet.
func (s *stand) isGivenTheLead() {
	s.t.Helper()
	s.node.Follow(false)
	yields(s.t, s.probes.C(), 10*time.Second) // a program that is being started has the lock open too
	if s.node.Advance(s.now()); !s.node.Successor || s.node.Leads() {
		s.t.Fatal("the lead did not fall to it, or it did not wait")
	}
}

// takesOver has the follower begin to lead.
func (s *stand) takesOver() {
	s.t.Helper()
	s.isGivenTheLead()
	if s.node.Advance(s.now() + time.Second); !s.node.Leads() {
		s.t.Fatal("it does not lead")
	}
}

// fired are the rules that a watcher decided by.
func (s *stand) fired() string {
	s.t.Helper()
	var rules []string
	for _, e := range named(s.events(), event.NameDecision) {
		rules = append(rules, e["rule"].(string))
	}
	return strings.Join(rules, ", ")
}

// TestHandoverBeforeTheAct: a leader that is killed right after it acted has said so.
func TestHandoverBeforeTheAct(t *testing.T) {
	out := filepath.Join(t.TempDir(), "out")
	first, _ := twoUsing(t, 100*rss.MiB, "80%:warn", "85%:exec=cat RUNTIME/*/*/fired >"+out)
	if b, err := first.node.Kept(); b != nil || err != nil {
		t.Fatalf("kept %s, %v before anything was done", b, err)
	}
	first.put(theCommand, theHolder, 900*rss.MiB, 0)
	first.full()
	first.acts.Ran(<-first.acts.Ended())
	if b, err := os.ReadFile(out); err != nil || !strings.Contains(string(b), `:exec=cat`) {
		t.Errorf("when the command ran there was %q, %v", b, err)
	}
	path := filepath.Join(first.node.Dir().Name(), "fired")
	before, err := os.Stat(path)
	if err != nil || before.Mode().Perm() != 0o600 {
		t.Fatalf("%v, %v", before, err)
	}
	for range 5 {
		first.full()
	}
	if after, err := os.Stat(path); err != nil || !os.SameFile(before, after) {
		t.Errorf("written again although nothing had changed: %v", err)
	}
}

// TestCannotSaveHandover: where nothing can be written one line says so, and rules are
// carried out all the same.
func TestCannotSaveHandover(t *testing.T) {
	first, _ := twoUsing(t, 100*rss.MiB, "80%:warn", "85%:exec=true")
	wardentest.NoError(t, os.MkdirAll(filepath.Join(first.node.Dir().Name(), "fired.tmp", "x"), 0o700))
	t.Cleanup(func() { os.RemoveAll(filepath.Join(first.node.Dir().Name(), "fired.tmp")) })
	first.put(theCommand, theHolder, 900*rss.MiB, 0)
	first.full()
	first.acts.Ran(<-first.acts.Ended())
	first.put(theCommand, theHolder, 100*rss.MiB, 0)
	first.full()
	all := first.events()
	if n := len(named(all, event.NameDecision)); n != 2 {
		t.Errorf("%d decisions", n)
	}
	f := ofLeader(all, "cannot write")
	if len(f) != 1 {
		t.Errorf("faults %v", f)
	}
}

// TestSuccessorOfGarbage takes what cannot be read, and what is about ranks that had all
// ended before any of these began, as nothing at all.
func TestSuccessorOfGarbage(t *testing.T) {
	first, second := twoUsing(t, 900*rss.MiB, "80%:warn")
	path := filepath.Join(first.node.Dir().Name(), "fired")
	was, err := os.ReadFile(path)
	wardentest.NoError(t, err)
	second.inherits(first)
	with := func(field string, value any) string {
		var kept map[string]any
		wardentest.NoError(t, json.Unmarshal(was, &kept))
		kept[field] = value
		b, err := json.Marshal(kept)
		wardentest.NoError(t, err)
		return string(b)
	}
	faults := 0
	for _, c := range []struct {
		name, text string
		known      bool
		fault      bool
	}{
		{"as it was", string(was), true, false},
		{"garbage", "{", false, true},
		{"a version of tomorrow", with("v", 2), false, true},
		{"of others", with("at_ns", 1), false, false},
		{"of the future", with("at_ns", int64(bootTime()+time.Hour)), false, false},
		{"too large", strings.Repeat(" ", 1<<20), false, true},
	} {
		wardentest.NoError(t, os.WriteFile(path, []byte(c.text), 0o600))
		second.acts.Ladder = policy.New(second.acts.Ladder.Rules(), 1)
		second.loadHandover()
		if known := len(second.judge(second.view.Limits...).Decisions) == 0; known != c.known {
			t.Errorf("%s: that it had warned is known: %v", c.name, known)
		}
		if c.fault {
			faults++
		}
	}
	f := ofLeader(second.events(), "may be done again")
	if len(f) != faults {
		t.Errorf("faults %v, want %d", f, faults)
	}
}

// ofLeader returns the faults of what the ranks have between them that say so.
func ofLeader(all []map[string]any, text string) []map[string]any {
	return slices.DeleteFunc(named(all, event.NameFault), func(e map[string]any) bool {
		return e["part"] != "leader" || !strings.Contains(e["error"].(string), text)
	})
}

// TestHandOverOfStep: the limits of a step have its name only as long as others are
// known, which a successor finds after its first look.
func TestHandOverOfStep(t *testing.T) {
	const rule = "80%:warn"
	limit := event.Limit{Name: event.LimitSlurm, Scope: event.ScopeStep, Accounting: event.AccountingRSS, Used: 90, Limit: 100}
	named := limit
	named.Level = "46.0"
	other := limit
	other.Level = "46.1"
	s, _ := twoUsing(t, 100*rss.MiB, rule)
	decided := func(l event.Limit) int {
		return len(s.judge(l).Decisions)
	}
	for _, l := range []event.Limit{limit, named} {
		s.acts.Ladder = policy.New(s.acts.Ladder.Rules(), 1)
		if decided(l) != 1 {
			t.Fatal("it did not warn")
		}
		_ = s.node.Keep(node.Handover{Waiting: 1}, func() ([]byte, error) { return []byte("null"), nil }) // something else was kept last
		s.saveHandover()
		s.acts.Ladder = policy.New(s.acts.Ladder.Rules(), 1)
		s.loadHandover()
		if a, b, c := decided(limit), decided(named), decided(other); a != 0 || b != 0 || c != 1 {
			t.Errorf("of %q: warned %d times alone, %d times by its name, %d times of another step", l.Level, a, b, c)
		}
	}
}

// TestHandedOverUnbegun: a program that waited for another to end is run by the successor,
// the one that ran is not run again.
func TestHandedOverUnbegun(t *testing.T) {
	first, second := twoUsing(t, 900*rss.MiB, "85%:exec=sleep 1000", "85%:exec=true")
	first.full()
	t.Cleanup(func() { first.acts.Close() })
	if first.acts.Waiting() == 0 {
		t.Fatal("no program waits")
	}
	second.inherits(first)
	second.acts.Ran(<-second.acts.Ended())
	if got := second.fired(); got != "85%:exec=true" {
		t.Errorf("fired %q", got)
	}
}

// TestAlertsOfTheNextLeader: they have the same labels, so that Alertmanager sees no
// difference; and one that ends as well resolves them.
func TestAlertsOfTheNextLeader(t *testing.T) {
	dir := runtimeDir(t)
	place, with := telling(t, alert.Webhook)
	all := ranksBelow(t, 3, func(task int) []func(*Options) {
		return []func(*Options){inJob(t, task, dir), with, func(o *Options) {
			o.Settings.Rules, o.Settings.RunID = mustRules("80%:warn", "95%:stop"), fmt.Sprint("rank ", task)
		}}
	})
	first, next, last := all[0], all[1], all[2]
	for _, s := range all {
		s.put(theCommand, s.holder.begin.Holder, 850*rss.MiB, 0)
	}
	first.open(first.holder.begin)
	if m := carried(t, place, 1)[0]; m.Job != "46" {
		t.Fatalf("%+v", m)
	}
	want := first.tell.Alerts.OpenIDs()
	first.tell.Alerts.Close(false) // others live
	next.inherits(first)
	if got := next.tell.Alerts.OpenIDs(); got != want {
		t.Errorf("the next leader has %v, the first had %v", got, want)
	}
	if m := carried(t, place, 2); m[0].ID != m[1].ID || m[0].Status != alert.Firing || m[1].Status != alert.Firing {
		t.Errorf("%+v", m)
	}
	next.tell.Alerts.Close(false)
	next.pass(&hold.Exit{})
	last.isGivenTheLead()
	last.end(&hold.Exit{})
	m := carried(t, place, 3)
	i := slices.IndexFunc(m, func(m alert.Message) bool { return m.Status == alert.Resolved })
	if len(m) != 3 || i < 0 || m[i].ID != m[(i+1)%3].ID {
		t.Errorf("%+v", m)
	}
}

// TestAlertLeftBeforeTheKill: what was told, and whose rung was left, is the next
// leader's to resolve.
func TestAlertLeftBeforeTheKill(t *testing.T) {
	place, with := telling(t, alert.Webhook)
	first, next := leadAndFollow(t, runtimeDir(t), with, func(o *Options) { o.Settings.Rules = mustRules("80%:warn") })
	first.put(theCommand, theHolder, 850*rss.MiB, 0)
	next.put(theCommand, theHolder+500, 100*rss.MiB, 0)
	first.open(first.holder.begin)
	told := carried(t, place, 1)[0]
	first.put(theCommand, theHolder, 100*rss.MiB, 0)
	first.later(time.Second)
	first.full()
	if raised := first.acts.Ladder.Raised(first.view.Limits); len(raised) != 0 {
		t.Fatalf("%v", raised)
	}
	first.tell.Alerts.Close(false) // it is killed
	next.inherits(first)
	if got := next.status().Alerts; len(got) != 1 || got[0].Firing != 1 {
		t.Errorf("the next leader knows of %+v", got)
	}
	next.end(&hold.Exit{})
	all := carried(t, place, 2)
	if i := slices.IndexFunc(all, func(m alert.Message) bool { return m.Status == alert.Resolved }); len(all) != 2 || i < 0 || all[i].ID != told.ID {
		t.Errorf("%+v", all)
	}
}

// TestAlertsOfTwoRuns: of two that watch the same job on the same node, with options of
// their own, the end of one resolves nothing that the other tells.
func TestAlertsOfTwoRuns(t *testing.T) {
	place, with := telling(t, alert.Webhook)
	var runs []*stand
	for i, rules := range [][]string{{"80%:warn"}, {"80%:warn", "99%:stop"}} {
		s := leading(t, inJob(t, 0, runtimeDir(t)), with, func(o *Options) {
			o.Settings.Rules, o.Settings.RunID = mustRules(rules...), fmt.Sprint("run ", i)
		})
		s.put(theCommand, theHolder, 850*rss.MiB, 0)
		s.open(s.holder.begin)
		runs = append(runs, s)
	}
	carried(t, place, 2)
	runs[0].end(&hold.Exit{})
	stays := runs[1].tell.Alerts.OpenIDs()
	if stays == "" || strings.Contains(stays, " ") {
		t.Fatalf("not one alert: %q", stays)
	}
	for _, m := range carried(t, place, 3) {
		if m.Job != "46" || m.Run == "" {
			t.Errorf("%+v", m)
		}
		if m.Status == alert.Resolved && m.ID == stays {
			t.Error("the end of one has resolved the other's")
		}
	}
}

// keeping is a recorder that makes a run of what it is given, as a record would.
type keeping struct {
	*record.Builder
	start  time.Time
	limits map[event.LimitID]int
}

func newKeeping(start time.Time) *keeping {
	return &keeping{record.NewBuilder(record.Meta{V: record.Version, ID: "kept", Start: start}), start, map[event.LimitID]int{}}
}

func (k *keeping) Sample(l *record.Look) {
	s := record.Sample{At: l.At, AtDecision: l.AtDecision}
	for i := range l.Limits {
		e := &l.Limits[i]
		n, ok := k.limits[e.ID()]
		if !ok {
			n = k.Builder.Limit(event.Limit{Name: e.Name, Scope: e.Scope, Accounting: e.Accounting, Level: e.Level})
			k.limits[e.ID()] = n
		}
		r := record.Reading{Limit: n, Used: e.Used, UsedMax: e.UsedMax, Size: e.Limit, ETA: -1}
		if e.ETA != nil {
			r.ETA = *e.ETA
		}
		s.Limits = append(s.Limits, r)
	}
	k.Builder.Sample(&s)
}

// Event keeps what a record has: a pointer to what is read back.
func (k *keeping) Event(name event.Name, v any) {
	e := record.Entry{Name: name, Value: v}
	switch v := v.(type) {
	case event.Start:
		e.At, e.Value = v.Time.Sub(k.start), &v
	case event.Handover:
		e.At, e.Value = v.Time.Sub(k.start), &v
	case event.Decision:
		e.At, e.Value = v.Time.Sub(k.start), &v
	default:
		return
	}
	k.Builder.Event(e)
}

func (k *keeping) Begin()              {}
func (k *keeping) Close(time.Duration) {}

// TestSuccessorIsRecorded: the record of a successor has the rules and the state it took
// over, which go nowhere else.
func TestSuccessorIsRecorded(t *testing.T) {
	first, second := twoUsing(t, 900*rss.MiB, "80%:warn", "85%:warn")
	second.tell.Run.Begun, second.tell.Run.BegunMono = time.Now(), tell.Monotonic()
	k := newKeeping(second.tell.Run.Begun)
	second.tell.Recorder = k
	second.inherits(first)
	second.full()
	if got := second.fired(); got != "" {
		t.Errorf("fired %q", got)
	}
	all := second.events()
	if n := len(named(all, event.NameHandover)) + len(named(all, event.NameStart)); n != 0 {
		t.Errorf("%d events were written, want them in the record alone", n)
	}
	run := k.Run()
	var names []event.Name
	for _, e := range run.Events {
		names = append(names, e.Name)
	}
	if !slices.Equal(names, []event.Name{event.NameStart, event.NameHandover}) {
		t.Fatalf("recorded %v", names)
	}
	start, h := run.Events[0].Value.(*event.Start), run.Events[1].Value.(*event.Handover)
	if !slices.Equal(start.Rules, second.Settings.RuleTexts()) {
		t.Errorf("the record's rules are %v", start.Rules)
	}
	if m, err := policy.ParseMemory(h.Memory); err != nil || len(m.Rungs) != 2 || m.At > h.Clock || h.Ran < 0 || h.Ran > second.runTime() {
		t.Errorf("%+v, %v", h, err)
	}
}

// attachedTo makes a watcher of what we did not start.
func attachedTo(noHook string, cannot ...string) func(*Options) {
	return func(o *Options) {
		o.Able = attach.FromOutside(noHook, cannot)
		o.Link.(*fakeHolder).begin.Holder = 0
	}
}

// attachedToJob makes one of a job.
func attachedToJob(j *population.Job) func(*Options) {
	return func(o *Options) {
		attachedTo("")(o)
		o.Job = func() population.Job { return *j }
	}
}

// TestAttachedLastWords: how it ended is not known, and perhaps it has not.
func TestAttachedLastWords(t *testing.T) {
	for name, c := range map[string]struct {
		job     string
		ended   bool
		stopped bool
		by      string
		words   string
	}{
		"ended":    {"", true, false, "command", "process 5000001 has ended, its parent knows how"},
		"left":     {"", false, false, "detached", "process 5000001 runs on, unwatched"},
		"stopped":  {"", true, true, "rsswarden", "✖ stopped by rsswarden"},
		"job":      {"46", true, false, "command", "job 46 has no process left on this node"},
		"job left": {"46", false, false, "detached", "job 46 runs on, unwatched"},
	} {
		t.Run(name, func(t *testing.T) {
			s := opened(t, func(o *Options) {
				attachedTo("because", "it is so")(o)
				if c.job != "" {
					o.Job = func() population.Job {
						id := rss.ProcID{PID: theCommand, Start: 10}
						return population.Job{Name: c.job, Roots: []rss.ProcID{id}, Steps: []string{"0"}, StepOf: map[rss.ProcID]string{id: "0"}}
					}
				}
			})
			s.tell.Sum.Stopped = c.stopped
			var exit *hold.Exit
			if c.ended {
				exit = &hold.Exit{}
			}
			s.end(exit)
			all := s.events()
			end, start := named(all, event.NameExit)[0], named(all, event.NameStart)[0]
			outcome := map[string]string{"command": "unknown", "detached": "unknown", "rsswarden": "stopped"}[c.by]
			wardentest.Has(t, end, "by", c.by, "code", nil, "signal", nil, "outcome", outcome)
			if start["attached"] != true || start["cannot"].([]any)[0] != "it is so" {
				t.Errorf("start %v", start)
			}
			s.told(c.words, "attached: it is so\n")
		})
	}
}

// TestAttachedToUs: where we run in what we watch, we do not end ourselves.
func TestAttachedToUs(t *testing.T) {
	s := opened(t, attachedTo(""))
	s.acts.Self = os.Getpid()
	if err := s.acts.Kill(rss.ProcID{PID: os.Getpid()}, unix.SIGKILL); err != nil {
		t.Error(err)
	}
}

// TestAttachedJob: all of a job is watched, and asked.
func TestAttachedJob(t *testing.T) {
	const task = theCommand + 50
	roots := []rss.ProcID{{PID: theCommand, Start: 10}, {PID: task, Start: 20}}
	job := population.Job{
		Name: "46", Roots: roots, Tasks: roots, Steps: []string{"0", "batch"},
		StepOf: map[rss.ProcID]string{roots[0]: "0", roots[1]: "batch"},
	}
	s := newStand(t, attachedToJob(&job))
	s.fs.Put(rsstest.Process{PID: task, Parent: 1, Start: 20, Comm: "python", Anon: 200 * rss.MiB})
	s.open(s.holder.begin)
	if u := s.user(); u.Used != 300*rss.MiB {
		t.Errorf("the job uses %v, want that of both tasks", u.Used)
	}
	s.told("watching job 46 here: steps 0 and batch, 2 processes\n")
	var asked []int
	for _, p := range s.observe.Pop.Commands(&s.view.Sample, "") {
		asked = append(asked, p.ID.PID)
	}
	if len(asked) != 2 || asked[1] != task {
		t.Errorf("asked %v", asked)
	}
	// No such processes exist outside the made-up tree.
	if err := s.acts.Kill(s.observe.Pop.Command, 0); !errors.Is(err, unix.ESRCH) {
		t.Errorf("whether it lives: %v", err)
	}

	// The first task has ended, with its step.
	s.fs.End(theCommand)
	job.Roots = roots[1:]
	job.Tasks, job.Steps = job.Roots, []string{"batch"}
	s.full()
	if u := s.user(); u.Used != 200*rss.MiB || s.observe.Pop.Command.PID != task {
		t.Errorf("the job uses %v, its command is %v", u.Used, s.observe.Pop.Command)
	}
}
