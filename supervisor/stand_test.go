package supervisor

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/proctree"
	"github.com/rsswarden/rsswarden/rss/rsstest"
	"github.com/rsswarden/rsswarden/supervisor/action"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/hold"
	"github.com/rsswarden/rsswarden/supervisor/node"
	"github.com/rsswarden/rsswarden/supervisor/nodedir"
	"github.com/rsswarden/rsswarden/supervisor/policy"
	"github.com/rsswarden/rsswarden/supervisor/record"
	"github.com/rsswarden/rsswarden/supervisor/record/store"
	"github.com/rsswarden/rsswarden/supervisor/settings"
	"github.com/rsswarden/rsswarden/supervisor/text"
	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

// exportRecord has this program read a record for a test.
const exportRecord = "export-record"

func TestMain(m *testing.M) {
	rsstest.BeEater()
	if len(os.Args) == 2 && os.Args[1] == action.RequeueCommand {
		if err := action.RequeueJob(os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	if len(os.Args) == 2 && os.Args[1] == exportRecord {
		if err := errors.Join(store.Confine(), store.Export(os.NewFile(3, "record"), os.Stdout)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// PIDs above the kernel's greatest: no test can signal a stranger.
const (
	theHolder  = 5000000
	theCommand = 5000001
	worker1    = 5000011
	worker2    = 5000012
	worker3    = 5000013
)

// fakeHolder stands for the process that holds the command.
type fakeHolder struct {
	begin     hold.Begin
	messages  chan hold.Message
	overrides []int
	unstuck   int
	trims     []hold.TrimRequest
	wants     chan hold.TrimRequest // gets each request, where it is made
}

func (h *fakeHolder) Begin() hold.Begin { return h.begin }

func (h *fakeHolder) Messages() <-chan hold.Message { return h.messages }

func (h *fakeHolder) Subreaper(bool) error { return nil }

func (h *fakeHolder) Override(status int) error {
	h.overrides = append(h.overrides, status)
	return nil
}

func (h *fakeHolder) Unstick() error {
	h.unstuck++
	return nil
}

func (h *fakeHolder) Trim(r hold.TrimRequest) error {
	if h.wants != nil {
		go func() { h.wants <- r }()
		return nil
	}
	h.trims = append(h.trims, r)
	return nil
}

func (h *fakeHolder) Prepare() error { return nil }

func (h *fakeHolder) Rest(hold.Rest, func()) error { return errors.New("this one stays awake") }

func (h *fakeHolder) Start(cmd *exec.Cmd) error { return cmd.Start() }

// lines keeps the lines for people.
type lines struct{ all []string }

func (l *lines) Summary(draw func(text.Style) []string, _ any) {
	l.all = append(l.all, draw(text.Style{})...)
}

func (l *lines) Info(line string) { l.all = append(l.all, line) }

func (l *lines) Warn(line string) { l.all = append(l.all, line) }

// last is the line said last.
func (l *lines) last() string { return l.all[len(l.all)-1] }

// stand is a watcher of a made-up command.
type stand struct {
	*engine
	t      *testing.T
	fs     rsstest.Tree
	holder *fakeHolder
	lines  *lines
	leaps  []leap
}

// leap is time that a test let pass at once, at some moment of the real clock.
type leap struct {
	at time.Time
	by time.Duration
}

// recordStands is the directory in which each stand records, "" for none.
var recordStands string

// newStand makes a watcher with the default ladder and --limit 1000M over
// summed RSS, of a command that has 100 MiB. It is not opened yet.
func newStand(t *testing.T, changes ...func(*Options)) *stand {
	t.Helper()
	fs := rsstest.Empty(t)
	fs.Write("proc/meminfo", "MemTotal:       67108864 kB\nMemFree:        67108864 kB\nMemAvailable:   67108864 kB\nSwapTotal:             0 kB\nSwapFree:              0 kB\n")
	said := &lines{}
	h := &fakeHolder{
		begin:    hold.Begin{PID: theCommand, Holder: theHolder, Attempt: 1},
		messages: make(chan hold.Message, 16),
	}
	rules, err := policy.Ladder(nil)
	wardentest.NoError(t, err)
	opt := Options{
		Link: h, Proc: fs.Proc, Sys: fs.Sys, Self: theHolder + 9, Log: said,
		Lookup: func(string) (string, bool) { return "", false },
		Settings: settings.Settings{
			Run: settings.Run{Command: []string{"python", "train.py"}, Interval: time.Second},
			Policy: settings.Policy{
				UserLimit: settings.UserLimit{Limit: 1000 * rss.MiB, Accounting: event.AccountingRSS},
				Workers:   settings.Workers{Trim: settings.TrimHook}, StopStatus: 137, Grace: time.Minute,
			},
			Outputs: settings.Outputs{Record: settings.RecordNone, Events: filepath.Join(t.TempDir(), "events.jsonl")},
		},
	}
	opt.Settings.Rules = append(opt.Settings.Rules, rules...)
	for _, change := range changes {
		change(&opt)
	}
	if recordStands != "" {
		opt.Settings.Record, opt.Settings.Begun = recordStands, time.Now()
		opt.Settings.RunID = record.NewID(opt.Settings.Begun, nil, "n1", h.begin.Holder)
	}
	s := &stand{t: t, fs: fs, holder: h, lines: said}
	s.put(theCommand, theHolder, 100*rss.MiB, 0)
	s.engine = newEngine(opt, h.begin)
	// It makes its file in the background, and not while the directory goes.
	t.Cleanup(func() { s.tell.CloseSinks(time.Second) })
	return s
}

// opened is newStand with the watcher opened.
func opened(t *testing.T, changes ...func(*Options)) *stand {
	t.Helper()
	s := newStand(t, changes...)
	s.open(s.holder.begin)
	return s
}

// put writes a process of the made-up tree.
func (s *stand) put(pid, parent int, anon, file rss.Bytes) {
	start := uint64(1) << 40 // after this process, which plays a trainer
	if pid == theCommand {
		start = 10 // before it
	}
	s.fs.Put(rsstest.Process{PID: pid, Parent: parent, Start: start, Comm: "python", Anon: anon, File: file})
}

// later lets time pass for the watcher.
func (s *stand) later(d time.Duration) {
	s.started = s.started.Add(-d)
	s.leaps = append(s.leaps, leap{time.Now(), d})
}

// says looks until a line of stderr says this: what is read on the side comes in its own time.
func (s *stand) says(want string) {
	s.t.Helper()
	s.looksUntil(want, func() bool { return strings.Contains(s.stderr(), want) })
}

// told fails the test where stderr lacks one of these.
func (s *stand) told(want ...string) {
	s.t.Helper()
	wardentest.Says(s.t, s.stderr(), want...)
}

// times fails the test where stderr does not say this n times.
func (s *stand) times(n int, text string) {
	s.t.Helper()
	if got := strings.Count(s.stderr(), text); got != n {
		s.t.Errorf("%q is said %d times, want %d\n%s", text, got, n, s.stderr())
	}
}

// does fails the test where another action is in flight than this, "" for none.
func (s *stand) does(want event.Action) {
	s.t.Helper()
	got := event.Action("")
	if f := s.acts.InFlight(); f != nil {
		got = f.Decision.Action
	}
	if got != want {
		s.t.Fatalf("%q is in flight, want %q", got, want)
	}
}

// doesNot fails the test where this action is in flight.
func (s *stand) doesNot(what event.Action) {
	s.t.Helper()
	if f := s.acts.InFlight(); f != nil && f.Decision.Action == what {
		s.t.Fatalf("%s is in flight", what)
	}
}

// last returns the last event of a name, an empty one where there is none.
func (s *stand) last(name event.Name) (last map[string]any) {
	s.t.Helper()
	for _, last = range named(s.events(), name) {
	}
	return last
}

// count is how many events of a name have these values: a field, a value, and so on.
func (s *stand) count(name event.Name, fields ...any) (n int) {
	s.t.Helper()
	for _, e := range named(s.events(), name) {
		is := true
		for i := 0; i < len(fields); i += 2 {
			is = is && e[fields[i].(string)] == fields[i+1]
		}
		if is {
			n++
		}
	}
	return n
}

// only returns the event of a name that there is once.
func only(t *testing.T, all []map[string]any, name event.Name) map[string]any {
	t.Helper()
	some := named(all, name)
	if len(some) != 1 {
		t.Fatalf("%d events %s, want one: %v", len(some), name, some)
	}
	return some[0]
}

// events closes the stream and returns what was written to it.
func (s *stand) events() []map[string]any {
	s.t.Helper()
	s.tell.CloseSinks(10 * time.Second)
	f, err := os.Open(s.Settings.Events)
	wardentest.NoError(s.t, err)
	defer f.Close()
	var all []map[string]any
	for sc := bufio.NewScanner(f); sc.Scan(); {
		var e map[string]any
		if err := json.Unmarshal(sc.Bytes(), &e); err != nil {
			s.t.Fatalf("%q: %v", sc.Text(), err)
		}
		all = append(all, e)
	}
	return all
}

// named returns the events of that name.
func named(all []map[string]any, name event.Name) []map[string]any {
	var some []map[string]any
	for _, e := range all {
		if e["event"] == string(name) {
			some = append(some, e)
		}
	}
	return some
}

// stderr returns the lines that went there.
func (s *stand) stderr() string {
	var b strings.Builder
	for _, line := range s.lines.all {
		fmt.Fprintln(&b, line)
	}
	return b.String()
}

// trainer has this process say hello as a trainer with these loader workers.
// The made-up tree gets it as a child of the command.
func (s *stand) trainer(anon rss.Bytes, workers ...int) rss.ProcID {
	s.t.Helper()
	pid := os.Getpid()
	start, err := proctree.StartTime("/proc", pid)
	wardentest.NoError(s.t, err)
	s.fs.Put(rsstest.Process{PID: pid, Parent: theCommand, Start: start, Comm: "python", Anon: anon})
	id := rss.ProcID{PID: pid, Start: start}
	s.file("hello", id, fmt.Sprintf(`{"v":1,"pid":%d,"start":%d,"ppid":%d,"torch":"1.13.0","can_recycle":true}`, pid, start, theCommand))
	list, err := json.Marshal(workers)
	wardentest.NoError(s.t, err)
	s.log(id, fmt.Sprintf(`"what":"iter","n":1,"kind":"map","persistent":true,"num_workers":%d,"start":"fork","can_recycle":true,"workers":%s`, len(workers), list))
	return id
}

func (s *stand) file(kind string, id rss.ProcID, text string) {
	s.t.Helper()
	name := filepath.Join(s.Settings.Dir, fmt.Sprintf("%s.%d.%d", kind, id.PID, id.Start))
	wardentest.NoError(s.t, os.WriteFile(name, []byte(text), 0o600))
}

// log has the trainer report something.
func (s *stand) log(id rss.ProcID, fields string) {
	s.t.Helper()
	name := filepath.Join(s.Settings.Dir, fmt.Sprintf("log.%d.%d", id.PID, id.Start))
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	wardentest.NoError(s.t, err)
	defer f.Close()
	now := float64(time.Now().Add(time.Second).UnixNano()) / 1e9
	if _, err := fmt.Fprintf(f, `{"t":%f,"pid":%d,%s}`+"\n", now, id.PID, fields); err != nil {
		s.t.Fatal(err)
	}
}

// with is the environment of the watcher.
func with(vars map[string]string) func(*Options) {
	return func(o *Options) {
		o.Lookup = func(name string) (string, bool) { v, ok := vars[name]; return v, ok }
	}
}

// withLoader gives the watcher a run directory.
func withLoader(t *testing.T) func(*Options) {
	dir := t.TempDir()
	wardentest.NoError(t, os.Chmod(dir, 0o700))
	return func(o *Options) { o.Settings.Dir = dir }
}

// user returns the reading of --limit.
func (s *stand) user() *event.Limit {
	s.t.Helper()
	for i := range s.view.Limits {
		if s.view.Limits[i].Name == event.LimitUser {
			return &s.view.Limits[i]
		}
	}
	s.t.Fatal("no reading of --limit")
	return nil
}

// trainerHas gives the trainer of [stand.trainer] so much.
func (s *stand) trainerHas(id rss.ProcID, anon rss.Bytes) {
	s.fs.Put(rsstest.Process{PID: id.PID, Parent: theCommand, Start: id.Start, Comm: "python", Anon: anon})
}

// mustRules parses rules as a user writes them.
func mustRules(texts ...string) (rules []event.Rule) {
	for _, text := range texts {
		r, err := event.ParseRule(text)
		if err != nil {
			panic(err)
		}
		rules = append(rules, r)
	}
	return rules
}

// process is a process as a sample has it.
func process(pid int, role rss.Role, size, virtual rss.Bytes) rss.Proc {
	return rss.Proc{ID: rss.ProcID{PID: pid, Start: 1}, Role: role, State: 'S', RSS: size, Virtual: virtual}
}

// judge has the ladder judge these readings, of which every action could help.
func (s *stand) judge(limits ...event.Limit) policy.Judgement {
	in := policy.Input{Now: s.now(), Limits: limits}
	s.acts.Ladder.Observe(in.Now, limits)
	for due := range s.acts.Ladder.Asks(&in) {
		in.Feasible[due.Ask] = event.Feasibility{OK: true}
	}
	return s.acts.Ladder.Judge(in)
}

// rate is how fast a limit grows, for a test to change.
func (s *stand) rate(l *event.Limit) *rss.Rate {
	for i := range s.view.Limits {
		if s.view.Limits[i].ID() == l.ID() {
			return &s.view.Rates[i]
		}
	}
	s.view.Limits, s.view.Rates = append(s.view.Limits, *l), append(s.view.Rates, rss.Rate{})
	return &s.view.Rates[len(s.view.Rates)-1]
}

// can says whether an action can help a limit now.
func (s *stand) can(a event.Action, l *event.Limit) event.Feasibility {
	return s.acts.Can(event.Rule{Action: a}, l)
}

// rankStand is one rank of job 46, whose command is a real process. All ranks of a
// test see one made-up /proc.
type rankStand struct {
	*jobStand
	id rss.ProcID // of the command
}

// newRank makes the watcher of a rank in a step that has a cgroup with 1000 MiB. It
// has neither joined nor opened.
func newRank(t *testing.T, first *rankStand, dir string, task int, step string, command rss.ProcID, rules ...string) *rankStand {
	t.Helper()
	s := newStand(t, func(o *Options) {
		inJob(t, task, dir, "SLURM_STEP_ID="+step)(o)
		o.Settings.Rules, o.Settings.Limit, o.Self = mustRules(rules...), 0, theHolder+task*10+9
		if first != nil {
			o.Proc, o.Sys = first.Proc, first.Sys
		}
	})
	r := &rankStand{&jobStand{stand: s}, command}
	if first != nil {
		s.fs = first.fs
	}
	s.holder.begin.Holder = theHolder + task*10
	s.holder.begin.PID, s.holder.begin.Start = command.PID, command.Start
	s.observe.Pop.Command, s.observe.Pop.Holder = command, s.holder.begin.Holder
	s.fs.Write("proc/self/mountinfo", "35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n")
	s.fs.Write("proc/sys/kernel/random/boot_id", "b\n")
	r.uses("", 0)
	r.uses(step, 10)
	for _, p := range []rsstest.Process{
		{PID: s.holder.begin.Holder, Parent: 1, Start: 4, Comm: "rsswarden"},
		{PID: s.Self, Parent: s.holder.begin.Holder, Start: 5, Comm: "rsswarden"},
		{PID: command.PID, Parent: s.holder.begin.Holder, Start: command.Start, Comm: "python", Anon: rss.MiB},
	} {
		s.fs.Put(p)
		s.fs.Write(fmt.Sprintf("proc/%d/cgroup", p.PID), fmt.Sprintf("4:memory:/slurm/uid_1/job_46/step_%s\n", step))
	}
	return r
}

// leads has a rank join, lead and open.
func (r *rankStand) leads() {
	r.t.Helper()
	if r.join(r.holder.begin); !r.node.Leads() {
		r.t.Fatal("it does not lead")
	}
	r.t.Cleanup(func() { r.pass(nil) })
	r.open(r.holder.begin)
}

// follows has a rank join that does not lead.
func (r *rankStand) follows() {
	r.t.Helper()
	if r.join(r.holder.begin); r.node.Leads() {
		r.t.Fatal("two lead")
	}
	r.t.Cleanup(func() { r.pass(nil) })
}

// meets has the leader meet so many, and learn the limits of so many steps more.
func (r *rankStand) meets(ranks, steps int) {
	r.t.Helper()
	if r.meet(); len(r.node.Others) != ranks {
		r.t.Fatalf("met %+v", r.node.Others)
	}
	r.full()
	for steps > 0 {
		yields(r.t, r.probes.C(), 10*time.Second)
		_, found := r.observe.HearSteps()
		steps -= found
	}
	r.full()
}

// ordersFile is where a leader asks for something, wherever the directory is now.
func (r *rankStand) ordersFile() string {
	return fmt.Sprintf("/proc/self/fd/%d/%s", r.node.Dir().Fd(), nodedir.FileOf("order", r.node.Me.Holder))
}

// ordered is what stands for a rank to do.
func (r *rankStand) ordered() (o node.Order) {
	r.t.Helper()
	data, err := os.ReadFile(r.ordersFile())
	if err == nil && len(data) > 0 {
		err = json.Unmarshal(data, &o)
	}
	wardentest.NoError(r.t, err)
	return o
}

// ended has a rank's command end by a signal while it leads.
func (r *rankStand) ended(signal int) { r.end(&hold.Exit{Signal: signal}) }

// runtime is where the ranks meet.
func (r *rankStand) runtime() string {
	dir, _ := r.Lookup("RSSWARDEN_RUNTIME")
	return dir
}

// dead waits until a process has ended.
func dead(t *testing.T, id rss.ProcID) {
	t.Helper()
	wardentest.Until(t, fmt.Sprintf("process %v has ended", id), func() bool { return !proctree.Lives("/proc", id) })
}

// counter is a process that says which of TERM and WINCH it got, and lives on.
func counter(t *testing.T) (*rsstest.Child, rss.ProcID) {
	t.Helper()
	c := rsstest.StartChild(t, exec.Command("/bin/sh", "-c",
		"trap 'echo TERM' TERM; trap 'echo WINCH' WINCH; echo ready; while kill -0 $PPID; do sleep 0.05; done"))
	t.Cleanup(func() { _ = unix.Kill(c.PID, unix.SIGKILL) })
	if line, err := c.Line(); line != "ready" {
		t.Fatal(line, err)
	}
	start, err := proctree.StartTime("/proc", c.PID)
	wardentest.NoError(t, err)
	return c, rss.ProcID{PID: c.PID, Start: start}
}

// catcher is such a process of which only the handler matters.
func catcher(t *testing.T) rss.ProcID {
	t.Helper()
	_, id := counter(t)
	return id
}

// terms is how often it got TERM since it was last asked. Of signals that wait the
// one with the lower number is met first, and that is TERM.
func terms(t *testing.T, c *rsstest.Child) (n int) {
	t.Helper()
	wardentest.NoError(t, unix.Kill(c.PID, unix.SIGWINCH))
	for {
		switch line, err := c.Line(); line {
		case "TERM":
			n++
		case "WINCH":
			return n
		default:
			t.Fatal(line, err)
		}
	}
}

// twoRanks are a leader and a follower in the same step, whose command lives on
// after TERM.
func twoRanks(t *testing.T, rules ...string) (first, s *rankStand, command *rsstest.Child) {
	t.Helper()
	dir := runtimeDir(t)
	_, firstID := rsstest.Sleeper(t)
	command, id := counter(t)
	first = newRank(t, nil, dir, 0, "0", firstID, rules...)
	first.leads()
	s = newRank(t, first, dir, 1, "0", id, rules...)
	s.follows()
	first.meets(1, 0)
	return first, s, command
}

// orders has the leader ask for something.
func (r *rankStand) orders(other *rankStand, o node.Order) {
	r.t.Helper()
	o.ID = uint64(time.Now().UnixNano())
	data, err := json.Marshal(o)
	if err == nil {
		err = os.WriteFile(other.ordersFile(), data, 0o600)
	}
	wardentest.NoError(r.t, err)
}

// stop is what a leader asks for, with KILL a second after TERM at the earliest.
var stop = node.Order{Stop: true, StopStatus: 137}

// startsToFollow has a rank follow beside the test. It is over before the test is.
func (r *rankStand) startsToFollow() <-chan bool {
	led, over := make(chan bool, 1), make(chan struct{})
	go func() {
		led <- r.waits()
		close(over)
	}()
	r.t.Cleanup(func() {
		select {
		case r.holder.messages <- hold.Exit{}:
		case <-over: // the test has said so
		}
		<-over
	})
	return led
}

// waits has a rank follow until it leads. It returns false where its command has ended.
func (s *stand) waits() (leads bool) {
	s.openFollowing(s.holder.begin)
	timer := time.NewTimer(s.sleep(s.pause(s.now())))
	defer func() { s.due = 0 }() // outside the loop time that passes is no gap
	for !s.node.Leads() {
		if s.turn(timer) {
			return false
		}
	}
	return true
}

// yields waits for what comes within a time.
func yields[T any](t *testing.T, c <-chan T, within time.Duration) (v T) {
	t.Helper()
	select {
	case v = <-c:
	case <-time.After(within):
		t.Fatalf("nothing within %v", within)
	}
	return v
}

func itoa(n int) string { return strconv.Itoa(n) }
