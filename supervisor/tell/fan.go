// Package tell hands on what a run has to say: lines for people, events for the stream,
// the record and the clients of the control socket. A sink owns its state and takes
// values; it never waits, and what it loses it counts.
package tell

import (
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/slurm"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/limit"
	"github.com/rsswarden/rsswarden/supervisor/loader"
	"github.com/rsswarden/rsswarden/supervisor/phrase"
	"github.com/rsswarden/rsswarden/supervisor/policy"
	"github.com/rsswarden/rsswarden/supervisor/record"
	"github.com/rsswarden/rsswarden/supervisor/settings"
	"github.com/rsswarden/rsswarden/supervisor/text"
	"github.com/rsswarden/rsswarden/supervisor/view"
)

// Fan hands what a run has to say to all sinks that take it.
type Fan struct {
	*events
	Readers  Readers
	Record   Record
	Textfile Textfile
	Alerts   Alerts
	Status   Status
	Findings Findings
	Limits   Limits
	Sum      Summary
	signals  signals
	samples  samples
	judged   uint64 // judgements that have changed what the ladder remembers
}

// New returns a Fan that writes lines, of each node of a job with its name, and events where
// the settings say so.
func New(lines Lines, set *settings.Settings, run Run) *Fan {
	out := newEvents(lines, set, run)
	f := &Fan{
		events: out, Record: Record{out: out}, Textfile: Textfile{out: out}, Alerts: Alerts{out: out, Comment: Comment{out: out}},
		Status: Status{out: out}, Findings: Findings{out: out}, Limits: Limits{out: out}, samples: samples{out: out},
	}
	f.Status.sum = &f.Sum
	f.Textfile.soFar = func() (*event.Limit, *event.Saved) { return f.Sum.peak(), &f.Sum.Saved.Saved }
	out.sinks = []Sink{&out.Clients, out.stream, &f.Record, &f.Sum}
	return f
}

// Readers are what is read only when it is reported.
type Readers struct {
	Counts  func(rss.ProcID) (maps, fds int)
	Pace    func(*event.Limit) float64 // see [Summary.Peak]
	Outside func(*event.Limit, *rss.Sample) rss.Bytes
	Kills   func() []limit.Kills
	Costs   func() ([]event.Cost, error) // what the holder and the watcher cost
}

// Look hands on a look.
func (f *Fan) Look(l *Look) {
	f.Tick(l.Now)
	f.samples.put(l, f.Run.Interval, f.Costs)
	f.record(l, false)
	f.Sum.noteMapped(f.events)
	f.Textfile.look(l, false, f.Readers.Kills, f.Costs)
}

// BeforeDecision hands on the look that a decision was made on, before it is carried out.
func (f *Fan) BeforeDecision(l *Look) {
	f.samples.put(l, 0, f.Costs)
	f.record(l, true)
}

// AfterDecisions has the metrics hold what was decided.
func (f *Fan) AfterDecisions(l *Look) { f.Textfile.look(l, true, f.Readers.Kills, f.Costs) }

// Moved gives the record the look at which the ladder has changed without a decision.
func (f *Fan) Moved(l *Look) { f.record(l, true) }

func (f *Fan) record(l *Look, atDecision bool) {
	if f.Record.due(l.Now, max(f.Run.Interval, recordEvery), l.View.Sample.Seq, atDecision) {
		f.Recorder.Sample(&record.Look{
			At: l.Took, AtDecision: atDecision, Sample: &l.View.Sample, Limits: l.View.Limits,
			Self: f.Run.Self, Holder: f.Run.Holder, Counts: f.Readers.Counts,
		})
	}
}

// Costs returns what the holder and the watcher cost.
func (f *Fan) Costs(now time.Duration) []event.Cost {
	costs, err := f.Readers.Costs()
	if err != nil {
		f.Fault(now, "ours", err)
	}
	return costs
}

// Start is how a watcher begins.
type Start struct {
	PID     int // of the command
	Attempt int // 1 for the first watcher of a run

	// Of what was attached to: the name of a job, its steps on this node, and what cannot
	// be done from outside.
	Job, Steps string
	Cannot     []string

	Rank  int // of our command
	Outer int // rsswarden run that ours is within, 0 for none
	// OuterBySite says that the site started that one, which gives way to ours.
	OuterBySite bool
	Parent      string // the program that started the holder, where no other leads
	Slurm       slurm.Job
	Batch       bool // … and whether it is in one
}

// Start writes the start event and the first lines. Where another rank leads, that one tells
// of limits.
func (f *Fan) Start(s *Start, v *view.View) {
	f.Put(event.NameStart, func(h event.Head) any { return f.startEvent(h, s, v) })
	if f.Run.Holder == 0 {
		line := phrase.Watching(f.Run.Command, s.PID)
		if f.Run.WholeJob {
			line = phrase.WatchingJob(s.Job, s.Steps, len(v.Sample.Procs))
		}
		f.Info(line)
		f.Limits.room(v)
		for _, text := range s.Cannot {
			f.Info("attached: " + text)
		}
		return
	}
	if s.Attempt > 1 {
		f.Warn(fmt.Sprintf("the watcher had ended and was restarted (attempt %d); the command ran on", s.Attempt))
	}
	if s.Outer != 0 && !s.OuterBySite && (!f.Sum.Led || s.Rank <= 0) { // of several ranks one says it
		f.Warn(phrase.Nested(s.Outer, f.set.Dir != ""))
	}
	if f.Sum.Led {
		return
	}
	f.Info(phrase.Watching(f.Run.Command, s.PID))
	f.Limits.room(v)
	if text := phrase.NoExec(s.Slurm, s.Batch, s.Parent); text != "" && s.Outer == 0 { // the outer says it
		f.Warn(text)
	}
}

// NoteStart has the record of a successor begin as others do, with the rules and what else was
// set: nothing was recorded when that was told. It comes after the lead was told of, so that
// each lead of a record that has several has its own.
func (f *Fan) NoteStart(s *Start, v *view.View) {
	f.Note(event.NameStart, func(h event.Head) any { return f.startEvent(h, s, v) })
}

// StartAgain says that the lead fell to us, in the place of the first line.
func (f *Fan) StartAgain(s *Start, v *view.View) {
	f.Info(fmt.Sprintf("rank %d leads on this node now, the last leader has ended", s.Rank))
	f.Info(phrase.Watching(f.Run.Command, s.PID))
	f.Limits.room(v)
}

func (f *Fan) startEvent(h event.Head, s *Start, v *view.View) event.Start {
	e := event.Start{
		Head: h, Command: f.Run.Command, PID: s.PID, Version: f.Run.Version,
		Settings: f.set.Origins, Rules: f.set.RuleTexts(), Limits: append([]event.Limit{}, v.Limits...), Restarts: max(s.Attempt-1, 0),
	}
	if f.Run.Holder == 0 {
		e.Attached, e.Job, e.Cannot = true, s.Job, s.Cannot
	}
	return e
}

// Tell tells what the parts of the watcher have to say.
func (f *Fan) Tell(now time.Duration, news view.News) {
	for _, n := range news {
		switch n := n.(type) {
		case view.Fault:
			f.Fault(now, n.Part, n.Err)
		case view.Line:
			f.line(now, &n)
		case view.Cured:
			f.Cured(now, n.Cure, n.Text)
		case event.Found:
			f.Put(event.NameLimit, func(h event.Head) any { n.Head = h; return n })
		case event.LoaderSaid:
			f.Status.said(&n)
			f.Put(event.NameLoader, func(h event.Head) any { n.Head = h; return n })
		default:
			panic(fmt.Sprintf("internal error: no way to tell of a %T", n))
		}
	}
}

func (l *Log) line(now time.Duration, n *view.Line) {
	switch {
	case n.Once != "" && !l.Once(n.Once, n.Key):
	case n.Kind != "":
		l.Say(now, n.Kind, n.Text)
	case n.Warn:
		l.Warn(n.Text)
	default:
		l.Info(n.Text)
	}
}

// Loaders tells of what loaders said, and sums it up.
func (f *Fan) Loaders(now time.Duration, said []loader.Said, news view.News) {
	f.Tell(now, news)
	for i := range said {
		f.Sum.Loader(now, &said[i])
		if s := &said[i]; s.What == event.LoaderRecycled && s.New != 0 {
			f.Status.Replaced(s.Worker, s.New)
		}
	}
}

// Budget tells once that n workers keep to each of mapped pages.
func (f *Fan) Budget(each rss.Bytes, n int) {
	if n > 0 && f.Once("budget", "") {
		f.Info(fmt.Sprintf("%s up to %s of mapped pages each", holders(n), each.Typed()))
	}
}

// holders is "1 worker holds", "3 workers hold".
func holders(n int) string {
	if n == 1 {
		return "1 worker holds"
	}
	return text.Count(n, "worker") + " hold"
}

// SHMUsers tells who holds what in /dev/shm, if that is known now.
func (f *Fan) SHMUsers(now time.Duration, line string) {
	if line != "" {
		f.Say(now, "/dev/shm line", line)
	}
}

// Cured tells of a cure: an event each time, a line once.
func (f *Fan) Cured(now time.Duration, c event.Cure, line string) {
	f.Put(event.NameCure, func(h event.Head) any { c.Head = h; return c })
	if f.Once("cure", line) {
		f.Say(now, "remedy line", line)
	}
}

// Signal tells of a signal that reached the holder. perSecond is by how much a limit is
// approached.
func (f *Fan) Signal(now time.Duration, e event.Signal, limits []event.Limit, perSecond func(*event.Limit) float64) {
	if !f.signals.fresh(now, e) {
		return
	}
	if e.Sender > 0 { // nothing makes the read wait; proc_pid_comm(5)
		e.Comm = firstLine(filepath.Join(f.Run.Proc, strconv.Itoa(e.Sender), "comm"))
	}
	if slices.Contains(endSignals, e.Signal) {
		f.Sum.asked, f.Sum.askedAt = e.Signal, now
	}
	if e.Signal == "SIGTERM" && strings.HasPrefix(e.Comm, "slurmstepd") {
		f.Sum.Term(now, limits, perSecond)
	}
	f.Put(event.NameSignal, func(h event.Head) any { e.Head = h; return e })
}

// Outcome sums an outcome up and tells it.
func (f *Fan) Outcome(d *event.Decision, o *event.Outcome) {
	told := *o
	f.Put(event.NameOutcome, func(h event.Head) any {
		told.Head = h
		return outcomeOf(d.Limit, told)
	})
	f.Status.Outcome(d, told)
}

// countOutcome is an outcome about a limit on a number, which has no bytes to tell
// of. The samples have the number before and after.
type countOutcome struct {
	event.Outcome
	Before *struct{} `json:"before_bytes,omitempty"`
	After  *struct{} `json:"after_bytes,omitempty"`
	Freed  *struct{} `json:"freed_bytes,omitempty"`
}

// outcomeOf returns an outcome as the event of it is written.
func outcomeOf(l event.LimitName, o event.Outcome) any {
	if !l.Counts() {
		return o
	}
	return countOutcome{Outcome: o}
}

// Skipped tells that a rung was crossed and its action cannot help. l is the limit as read,
// nil where it was not.
func (f *Fan) Skipped(now time.Duration, s *policy.Skipped, l *event.Limit) {
	// The ledger is about memory, and where a rung is none it was not crossed.
	var action event.Action
	if r := s.Rule; s.On.Name.Thing() == "" && (r.Cond.Kind != event.KindFree || r.Cond.Free < s.LimitSize) {
		action = r.Action
	}
	if l == nil && s.On.Name != event.LimitTime {
		return
	}
	why := string(s.Reason)
	if s.Detail != "" {
		why += ", " + s.Detail
	}
	f.Put(event.NameOutcome, func(h event.Head) any {
		return outcomeOf(s.On.Name, event.Outcome{
			Head: h, Action: action, Reason: s.Reason, Detail: s.Rule.String() + ": " + why,
			Before: s.Used, After: s.Used,
		})
	})
	// The detail may name another process each time, and faults share the room.
	if f.Once("skip", string(s.Rule.Action)+s.Rule.Arg+"@"+string(s.On.Name)+string(s.Reason)) {
		f.SayOf(now, Kind{Name: "skipped " + string(s.Rule.Action), Thing: "skipped action"}, phrase.SkippedRule(&s.Rule, s.On.Name, s.Reason, s.Detail))
	}
}

// Judged notes what a judgement was given where it has changed what the ladder remembers: what
// an action could do rests on loaders, ptrace and much else that no record has.
func (f *Fan) Judged(in *policy.Input, j *policy.Judgement) {
	if !j.Moved {
		return
	}
	f.judged++ // where nothing is recorded, too: a record that begins later has not all
	f.Note(event.NameJudged, func(h event.Head) any {
		e := policy.Record(in, j)
		e.Head, e.N = h, f.judged
		return e
	})
}

// About writes a line about a decision: what was done behind how full the limit is, nil for
// one that was not read. share has more about that: ", +300 MiB/s".
func (f *Fan) About(now time.Duration, d *event.Decision, l *event.Limit, share, what string) {
	if l == nil {
		l = &event.Limit{Name: d.Limit, Used: d.Used, Limit: d.LimitSize}
	}
	f.Limits.about(now, d, l, phrase.Share, share+": "+what, ": "+what)
}

// Near writes that a rule warns. more has a forecast.
func (f *Fan) Near(now time.Duration, d *event.Decision, l *event.Limit, more string) {
	f.Limits.about(now, d, l, phrase.Near, more, "")
}

// signals remembers which signals were told lately, and when.
type signals map[event.Signal]time.Duration

const (
	// signalAgain is how soon the same signal from the same sender is reported again:
	// a window that is resized sends dozens of SIGWINCH.
	signalAgain = time.Second
	// mostSignals bounds what is remembered, by signals of as many senders.
	mostSignals = 64
)

// fresh says that a signal is to be told.
func (s *signals) fresh(now time.Duration, sig event.Signal) bool {
	if last, again := (*s)[sig]; again && now-last < signalAgain {
		return false
	}
	if *s == nil || len(*s) >= mostSignals {
		*s = signals{}
	}
	(*s)[sig] = now
	return true
}

// Findings tells of what the diagnosis finds.
type Findings struct {
	out  *events
	told map[findingKey]toldFinding
}

// findingKey is what there is one finding of at a time.
type findingKey struct {
	finding event.Finding
	role    rss.Role
}

// toldFinding is a finding as it was told last.
type toldFinding struct {
	trust float64   // the most it was trusted
	bytes rss.Bytes // what it had cost then
	said  bool      // … on stderr
	file  string    // … naming that file
}

// pressing is how full the binding limit is when a finding is written to stderr: with
// much left it can wait for the summary.
const pressing = 0.5

// Tell tells of what a diagnosis has found, binding being the limit that binds, nil for
// none. What runs out of mappings or descriptors has said so itself.
func (f *Findings) Tell(now time.Duration, all []event.Diagnosis, binding *event.Limit) {
	for _, d := range all {
		f.tell(now, d, d.Finding != event.FindingSpawn && binding != nil && binding.Ratio() >= pressing)
	}
}

// tell tells of a finding where it is new, more certain, or has cost twice as much, and
// in a line once it presses. What is only possible waits for the end.
func (f *Findings) tell(now time.Duration, d event.Diagnosis, presses bool) {
	if d.Confidence == event.Possible {
		return
	}
	key := findingKey{d.Finding, d.Role}
	t, told := f.told[key]
	if !told || d.Confidence.Trust() > t.trust || d.Bytes >= max(2*t.bytes, 1) {
		t.trust, t.bytes = max(t.trust, d.Confidence.Trust()), max(t.bytes, d.Bytes)
		f.out.Put(event.NameDiagnosis, func(h event.Head) any { d.Head = h; return d })
	}
	if presses && (!t.said || d.File != "" && t.file != d.File) {
		t.said, t.file = true, d.File
		f.out.Say(now, "growth line", phrase.Growth(&d))
	}
	if f.told == nil {
		f.told = map[findingKey]toldFinding{}
	}
	f.told[key] = t
}

// Last tells as events what stands at the end and was only possible so far: it
// might have been taken back.
func (f *Findings) Last(all []event.Diagnosis) {
	for _, d := range all {
		if _, told := f.told[findingKey{d.Finding, d.Role}]; !told {
			f.out.Put(event.NameDiagnosis, func(h event.Head) any { d.Head = h; return d })
		}
	}
}
