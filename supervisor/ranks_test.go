package supervisor

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/rsstest"
	"github.com/rsswarden/rsswarden/supervisor/control"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/hold"
	"github.com/rsswarden/rsswarden/supervisor/node"
	"github.com/rsswarden/rsswarden/supervisor/nodedir"
	"github.com/rsswarden/rsswarden/supervisor/record"
	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

// inJob puts a stand into task 0 of step 46.0 on node n1, with a runtime folder
// that other ranks of the test find too.
func inJob(t *testing.T, task int, runtime string, more ...string) func(*Options) {
	t.Helper()
	vars := map[string]string{
		"SLURM_JOB_ID": "46", "SLURM_STEP_ID": "0", "SLURM_PROCID": strconv.Itoa(task), "SLURMD_NODENAME": "n1",
		"RSSWARDEN_RUNTIME": runtime, "SLURM_CONF": "/no/such/slurm.conf",
	}
	for _, kv := range more {
		k, v, _ := strings.Cut(kv, "=")
		vars[k] = v
	}
	return with(vars)
}

// runtimeDir is a place as fit for run directories as /tmp on a node.
func runtimeDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "ranks")
	wardentest.NoError(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

const (
	otherHolder  = theHolder + 1000
	otherCommand = theCommand + 1000
)

// otherRank lays another rank down in the place where the stand's watcher meets
// others, with a command of so much memory.
func (s *stand) otherRank(task int, anon rss.Bytes) *node.Place {
	s.t.Helper()
	s.fs.Put(rsstest.Process{PID: otherHolder, Parent: 1, Start: 5, Comm: "rsswarden"})
	s.fs.Put(rsstest.Process{PID: otherCommand, Parent: otherHolder, Start: 10, Comm: "python", Anon: anon})
	m := node.Member{
		Holder: rss.ProcID{PID: otherHolder, Start: 5}, Watcher: rss.ProcID{PID: otherHolder + 1, Start: 6},
		Command: rss.ProcID{PID: otherCommand, Start: 10}, Step: "0", Task: task, Words: []string{"python"}, Since: time.Now(),
	}
	runtime, _ := s.Lookup("RSSWARDEN_RUNTIME")
	p := node.New(node.Options{Proc: s.Proc})
	wardentest.NoError(s.t, p.Join([]string{runtime}, placeName(&s.Options, s.holder.begin.Holder), m))
	s.t.Cleanup(func() { p.Leave(nil) })
	return p
}

// leading is a stand that leads. Its holder has a start time, as any process.
func leading(t *testing.T, change ...func(*Options)) *stand {
	t.Helper()
	s := newStand(t, change...)
	s.fs.Put(rsstest.Process{PID: theHolder, Parent: 1, Start: 4, Comm: "rsswarden"})
	if s.join(s.holder.begin); !s.node.Leads() {
		t.Fatal("it does not lead")
	}
	t.Cleanup(func() { s.pass(nil) })
	return s
}

// ranksBelow are the watchers of n ranks that meet: the first leads, the others follow.
func ranksBelow(t *testing.T, n int, change func(task int) []func(*Options)) (all []*stand) {
	t.Helper()
	for task := range n {
		s := newStand(t, change(task)...)
		s.holder.begin.Holder = theHolder + 500*task
		all = append(all, s)
	}
	for task, s := range all {
		for other := range n {
			s.fs.Put(rsstest.Process{PID: theHolder + 500*other, Parent: 1, Start: 4, Comm: "rsswarden"})
		}
		if s.join(s.holder.begin); s.node.Leads() != (task == 0) {
			t.Fatalf("rank %d leads: %v", task, s.node.Leads())
		}
	}
	t.Cleanup(func() { all[0].pass(nil) })
	return all
}

// leadAndFollow are the watchers of two ranks that meet below a folder.
func leadAndFollow(t *testing.T, dir string, change ...func(*Options)) (first, second *stand) {
	t.Helper()
	all := ranksBelow(t, 2, func(task int) []func(*Options) { return append([]func(*Options){inJob(t, task, dir)}, change...) })
	return all[0], all[1]
}

// TestLeaderWatchesAll: the leader watches the commands of all ranks, from their start to
// their end, and says so.
func TestLeaderWatchesAll(t *testing.T) {
	s := leading(t, inJob(t, 0, runtimeDir(t)))
	s.open(s.holder.begin)
	alone := s.watchedRSS()
	other := s.otherRank(1, 300*rss.MiB)
	if !s.meet() {
		t.Fatal("no rank was met")
	}
	s.full()
	if got := s.watchedRSS(); got < alone+300*rss.MiB {
		t.Errorf("%v are watched, %v before", got, alone)
	}
	if l := s.user(); l.Used < 400*rss.MiB {
		t.Errorf("--limit counts %v", l.Used)
	}
	other.Leave(&node.Ended{Signal: 9})
	s.fs.Remove(fmt.Sprintf("proc/%d", otherHolder))
	s.fs.Remove(fmt.Sprintf("proc/%d", otherCommand))
	if !s.meet() {
		t.Fatal("its end was not met")
	}
	s.full()
	if got := s.watchedRSS(); got != alone {
		t.Errorf("%v are watched, want %v", got, alone)
	}
	var told []string
	for _, e := range named(s.events(), event.NameRank) {
		text := fmt.Sprintf("%v %v", e["what"], e["task"])
		if e["signal"] != nil {
			text += fmt.Sprintf(" %v", e["signal"])
		}
		told = append(told, text)
	}
	if want := []string{"leads 0", "joined 1", "ended 1 SIGKILL"}; !slices.Equal(told, want) {
		t.Errorf("told %q, want %q", told, want)
	}
}

// watchedRSS is the RSS of all that is watched.
func (s *stand) watchedRSS() (sum rss.Bytes) {
	for i := range s.view.Sample.Procs {
		sum += s.view.Sample.Procs[i].RSS
	}
	return sum
}

// TestMembersOfOtherKinds: a watcher with other options, in another job or on another
// node, leads by itself; outside Slurm every run does.
func TestMembersOfOtherKinds(t *testing.T) {
	dir := runtimeDir(t)
	first := leading(t, inJob(t, 0, dir))
	name := placeName(&first.Options, first.holder.begin.Holder)
	for _, c := range []struct {
		name   string
		change []func(*Options)
		same   bool
	}{
		{"another task", []func(*Options){inJob(t, 3, dir)}, true},
		{"another step", []func(*Options){inJob(t, 0, dir, "SLURM_STEP_ID=7")}, true},
		{"another job", []func(*Options){inJob(t, 0, dir, "SLURM_JOB_ID=47")}, false},
		{"another node", []func(*Options){inJob(t, 0, dir, "SLURMD_NODENAME=n2")}, false},
		{"another limit", []func(*Options){inJob(t, 3, dir), func(o *Options) { o.Settings.Limit++ }}, false},
		{"other rules", []func(*Options){inJob(t, 3, dir), func(o *Options) { o.Settings.Rules = nil }}, false},
		{"other events", []func(*Options){inJob(t, 3, dir), func(o *Options) { o.Settings.Events = "elsewhere" }}, true},
		{"no job", []func(*Options){inJob(t, 3, dir, "SLURM_JOB_ID=")}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newStand(t, c.change...)
			s.fs.Put(rsstest.Process{PID: theHolder, Parent: 1, Start: 4, Comm: "rsswarden"})
			s.fs.Write("proc/sys/kernel/random/boot_id", "")
			if got := placeName(&s.Options, s.holder.begin.Holder); (got == name) != c.same {
				t.Errorf("meets at %s, the first at %s", got, name)
			}
		})
	}
}

// TestNoMeetingPlace: where others cannot be met a watcher leads for its own
// command, and says that it does not know of them.
func TestNoMeetingPlace(t *testing.T) {
	dir := runtimeDir(t)
	s := newStand(t, inJob(t, 0, dir))
	for _, parent := range []string{dir, "/tmp"} {
		wardentest.NoError(t, nodedir.Make(node.All(parent)))
		path := filepath.Join(node.All(parent), node.Prefix+placeName(&s.Options, s.holder.begin.Holder))
		wardentest.NoError(t, os.WriteFile(path, nil, 0o600))
		t.Cleanup(func() {
			os.Remove(path)
			os.Remove(node.All(parent)) // if it is empty
		})
	}
	if s.join(s.holder.begin); !s.node.Leads() {
		t.Fatal("it does not lead at once")
	}
	s.open(s.holder.begin)
	if len(s.view.Sample.Procs) == 0 {
		t.Error("its own command is not watched")
	}
	if s.count(event.NameFault, "part", "leader") == 0 {
		t.Error("no fault of the leader's")
	}
}

// TestNodeBeforeLines: the nodes of a job write to one file.
func TestNodeBeforeLines(t *testing.T) {
	for nodes, want := range map[string]string{"1": "watching", "2": "n1: watching"} {
		s := leading(t, inJob(t, 0, runtimeDir(t), "SLURM_STEP_NUM_NODES="+nodes))
		s.open(s.holder.begin)
		if len(s.lines.all) == 0 || !strings.HasPrefix(s.lines.all[0], want) {
			t.Errorf("%s nodes: said %q", nodes, s.lines.all)
		}
	}
}

// TestFollowerEnds: the last word of who followed has the exit status, and says that
// another watched.
func TestFollowerEnds(t *testing.T) {
	first, s := leadAndFollow(t, runtimeDir(t))
	first.meet()
	s.holder.messages <- hold.Exit{Code: 3}
	if s.waits() {
		t.Fatal("it leads")
	}
	first.fs.End(theHolder + 500)
	if !first.meet() {
		t.Fatal("its end was not met")
	}
	ended := named(first.events(), event.NameRank)
	if last := ended[len(ended)-1]; last["what"] != "ended" || last["code"] != 3.0 {
		t.Errorf("%v", last)
	}
	wardentest.Has(t, s.last(event.NameExit), "code", 3.0, "outcome", "failed", "watched", "rank")
	s.told("command failed (exit 3")
}

// TestLeaderReportsTheLastAttempt: the leader on the first node does, once, and no other
// task.
func TestLeaderReportsTheLastAttempt(t *testing.T) {
	for _, c := range []struct {
		name      string
		node      string
		successor bool
		want      bool
	}{
		{"on the first node", "0", false, true},
		{"on another", "1", false, false},
		{"who took over", "0", true, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := leading(t, inJob(t, 3, runtimeDir(t), "SLURM_RESTART_COUNT=1", "SLURM_NODEID="+c.node, "SLURM_SUBMIT_DIR="+t.TempDir()))
			s.open(s.holder.begin)
			s.node.Successor = c.successor
			if told := s.acts.LastAttempt() != nil; told != c.want {
				t.Errorf("task 3 tells: %v", told)
			}
		})
	}
}

// TestLeaderAsksAhead: a rule on requeue= has Slurm asked by the leader, whichever task of
// the node that is.
func TestLeaderAsksAhead(t *testing.T) {
	s := leading(t, inJob(t, 3, runtimeDir(t), "SLURM_LOCALID=3"))
	s.Settings.Rules, s.Settings.MaxRequeues = mustRules("97%:requeue"), 3
	s.open(s.holder.begin)
	if !s.acts.AsksSlurm() {
		t.Error("Slurm is not asked")
	}
}

// TestSocketComesBack: the control socket comes back where it was removed.
func TestSocketComesBack(t *testing.T) {
	s := leading(t, inJob(t, 0, runtimeDir(t)))
	s.open(s.holder.begin)
	path := filepath.Join(s.node.Dir().Name(), control.SocketName)
	wardentest.NoError(t, os.Remove(path))
	s.meet()
	if _, err := os.Lstat(path); err == nil {
		t.Fatal("it is looked after at each look")
	}
	s.started = s.started.Add(-time.Minute)
	s.meet()
	if _, err := os.Lstat(path); err != nil {
		t.Error(err)
	}
}

// stopsAndEnds has the leader tell a rank to stop, and end: the lead falls to that rank.
func (r *rankStand) stopsAndEnds(next *rankStand) {
	r.t.Helper()
	o := stop
	o.Grace = time.Minute
	r.orders(next, o)
	r.pass(&hold.Exit{})
	if !next.waits() {
		r.t.Fatal("it does not lead")
	}
}

// TestSuccessorKills: the lead falls to who was told to stop; the KILL comes as if it had
// not, and only to its own tree.
func TestSuccessorKills(t *testing.T) {
	first, s, command := twoRanks(t)
	third, thirdID := rsstest.Sleeper(t)
	first.stopsAndEnds(s)
	if n := terms(t, command); n != 1 {
		t.Errorf("%d times TERM", n)
	}
	newRank(t, s, s.runtime(), 2, "0", thirdID).follows()
	s.meets(1, 0)
	s.later(30 * time.Second)
	s.node.Advance(s.now())
	if n := terms(t, command); n != 0 {
		t.Errorf("%d times TERM", n) // and it lives
	}
	s.later(32 * time.Second)
	over := make(chan struct{})
	go func() {
		s.loop()
		close(over)
	}()
	dead(t, s.id)
	s.holder.messages <- hold.Exit{Signal: 9}
	yields(t, over, 10*time.Second)
	if !running(third) {
		t.Error("another rank was ended")
	}
	wardentest.Has(t, s.last(event.NameExit), "by", "rsswarden", "code", 137.0)
}

// TestSuccessorStopsAgain: where use is above the rung still the successor stops the ranks that
// were not told, and sends its own command no second TERM; nothing has failed.
func TestSuccessorStopsAgain(t *testing.T) {
	for _, others := range []int{0, 1} {
		first, s, command := twoRanks(t, "90%:stop")
		first.stopsAndEnds(s)
		var third *rankStand
		if others > 0 {
			_, id := rsstest.Sleeper(t)
			third = newRank(t, s, s.runtime(), 2, "0", id, "90%:stop")
			third.follows()
			s.meets(1, 0)
		}
		s.uses("0", 950)
		s.full()
		if n := terms(t, command); n != 1 {
			t.Errorf("%d others: %d times TERM", others, n)
		}
		if third != nil && !third.ordered().Stop {
			t.Error("the rank that was not told is not stopped")
		}
		if !slices.Equal(s.holder.overrides, []int{137}) {
			t.Errorf("the holder is to end with %v", s.holder.overrides)
		}
		if s.acts.InFlight() == nil || strings.Contains(s.stderr(), "failed") {
			t.Errorf("%d others: flight %v, said\n%s", others, s.acts.InFlight(), s.stderr())
		}
	}
}

// TestOrdersBeforeNews: an order from before we watched for news is carried out, and so is
// the last one.
func TestOrdersBeforeNews(t *testing.T) {
	for name, carried := range map[string]func(first, s *rankStand){
		"before it follows": func(_, s *rankStand) {
			s.holder.messages <- hold.Exit{}
			s.waits()
		},
		"as it takes over": func(first, s *rankStand) {
			first.pass(&hold.Exit{})
			s.isGivenTheLead()
		},
	} {
		t.Run(name, func(t *testing.T) {
			first, s, command := twoRanks(t)
			first.orders(s, stop)
			carried(first, s)
			if n := terms(t, command); n != 1 {
				t.Errorf("%d times TERM", n)
			}
		})
	}
}

// unstuckHolder tells when it was looked after.
type unstuckHolder struct {
	*fakeHolder
	unstuck chan time.Time
}

func (h unstuckHolder) Unstick() error {
	h.unstuck <- time.Now()
	return nil
}

// TestFollowerLooksAfterTheHolder: two looks see a holder that alone was stopped; the
// end of its command must not wait for them for long.
func TestFollowerLooksAfterTheHolder(t *testing.T) {
	_, s, _ := twoRanks(t)
	h := unstuckHolder{s.holder, make(chan time.Time, 10)}
	s.Link = h
	led := s.startsToFollow()
	began := time.Now()
	yields(t, h.unstuck, 10*time.Second)
	if took := yields(t, h.unstuck, 10*time.Second).Sub(began); took > 9*time.Second {
		t.Errorf("two looks took %v", took)
	}
	s.holder.messages <- hold.Exit{}
	yields(t, led, 10*time.Second)
}

// TestRanksEndTogether: two ranks end before the third, the successor, begins to lead, and
// then that ends too. All ends are in its record.
func TestRanksEndTogether(t *testing.T) {
	dir, submit := runtimeDir(t), t.TempDir()
	const n = 3
	all := ranksBelow(t, n, func(task int) []func(*Options) {
		return []func(*Options){inJob(t, task, dir, "SLURM_SUBMIT_DIR="+submit, "HOME="+submit)}
	})
	last := all[n-1]
	run := &last.tell.Run
	run.Begun = time.Now()
	last.Settings.Record, run.ID = t.TempDir(), record.NewID(run.Begun, nil, "n1", 1)
	all[1].end(&hold.Exit{Signal: 9})
	all[0].pass(&hold.Exit{})
	last.fs.End(theHolder)
	last.fs.End(theHolder + 500)
	last.isGivenTheLead()
	last.end(&hold.Exit{Code: 3})

	journals, err := filepath.Glob(submit + "/.rsswarden/2*.jsonl")
	if err != nil || len(journals) != 1 {
		t.Fatalf("journals %q, %v", journals, err)
	}
	kept, err := record.ReadJournal(journals[0])
	wardentest.NoError(t, err)
	var told []string
	for _, e := range kept.Events {
		switch e := e.Value.(type) {
		case *event.Rank:
			text := fmt.Sprintf("%s %d", e.What, e.Task)
			if e.Signal != nil {
				text += " " + *e.Signal
			}
			told = append(told, text)
		case *event.Exit:
			told = append(told, fmt.Sprintf("exit %d", *e.Code))
		}
	}
	if got := fmt.Sprint(told); got != "[leads 2 ended 1 SIGKILL exit 3]" {
		t.Errorf("told %s", got)
	}
}
